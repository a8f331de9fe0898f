"""``privinf federation``: keys and certificates of sites, their Flower server, and fits of all rows."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import tomli_w

from privinf.cli.deployment import (
    FEDERATION,
    KIT_VERSION,
    POLL_SECONDS,
    TAGGED,
    analysts_of,
    certificates,
    days_left,
    end,
    environment,
    executable,
    flwr,
    private_text,
    reachable,
    read_bundle,
    read_federation,
    stopped_by_signals,
)
from privinf.cli.federated_fits import read_plan, run_plan
from privinf.cli.outputs import FILE, json_option, say
from privinf.errors import AlignmentError, ArgumentError
from privinf.federation import IdentityKey, Roster, SocketFederation
from privinf.federation.askers import EndOptions, ends_of
from privinf.federation.checkpoint import HEADS_FILE
from privinf.secret_files import check_secret
from privinf.storage.checksummed import checksummed_json, parse_json, read_text, save_text

# Names of the server on its own machine, where 'federation up' and 'federation fit' connect to it.
LOCAL = ("localhost", "127.0.0.1")
# In a federation's folder: the key that signs queries.
ANALYST_KEY = "analyst.key"
SERVER_STOPPED = "the federation's server stopped unexpectedly; see its log file {}"
FIT = """# The plan of a fit over all sites; run it with privinf federation fit fit.toml
# model = "MomentOLS", "FederatedGLM", "Poisson", "NegativeBinomial", "DebiasedLasso", or
# "PHReg" with status = "column of the events"; or statistic = "column_sums", with [args] and mu.
# Survival curves: pi.survival.KaplanMeier, in Python
model = "FederatedGLM"
formula = "FILL IN: y ~ a + b"
family = "binomial"       # or "gaussian"; delete this line unless the model is FederatedGLM or DebiasedLasso
trust = "secure-sum"      # or "server": sites send sums without noise to a trusted server
epsilon = 1.0
delta = 1e-6
checkpoint = "fit.rounds" # the same command resumes from it; delete this line for DebiasedLasso and PHReg
out = "fit"               # results are written to fit.json and fit.npz

# [options]               # further options of the model's fit, such as cov_type = "HC0"
# [optimizer]             # for FederatedGLM, such as name = "DPSGD", epochs = 5
"""


# ---- commands


@click.group("federation")
def federation_group() -> None:
    """Set up a federation of sites, and fit models to all their rows.

    \b
    1. Each site runs 'privinf site init' to make its keys, policy, ledger and public file.
    2. One person runs 'privinf federation init' with the public files of all sites.
    3. Each site runs 'privinf site up' to answer queries until it is stopped.
    4. The server runs 'privinf federation up' to pass messages between sites and analyst.
    5. The analyst runs 'privinf federation fit' to fit the model that a TOML file describes.
    """  # noqa: D301


@federation_group.command("init")
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument("bundles", type=FILE, nargs=-1, required=True)
@click.option(
    "--host",
    "hosts",
    multiple=True,
    default=LOCAL,
    show_default=True,
    help=(
        "Host name or IP address of the server, for its certificate. May be given several "
        "times; sites connect to the first one."
    ),
)
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    default=8000,
    show_default=True,
    help="Port at which the server listens.",
)
@click.option(
    "--days",
    type=click.IntRange(1, 3650),
    default=365,
    show_default=True,
    help="Number of days for which the certificates are valid.",
)
@click.option("--sockets", is_flag=True, help="Run all sites as daemons on this computer, without Flower.")
@click.option(
    "--analyst",
    "analysts",
    multiple=True,
    metavar="NAME=KEY",
    help=(
        "Name and public key of an analyst who may send queries; 'privinf analyst key' makes "
        "the key. May be given several times. Default: a new key in FOLDER/analyst.key."
    ),
)
@json_option
def init_command(
    folder: Path,
    bundles: tuple[Path, ...],
    hosts: tuple[str, ...],
    port: int,
    days: int,
    sockets: bool,
    analysts: tuple[str, ...],
    as_json: bool,
) -> None:
    """Make a federation, in a new folder, from the public bundle files of its sites.

    Each site makes its bundle file with 'privinf site init'. Send federation.json from the new folder to
    every site. This file is public: it has the public keys of all sites, the schema, and the certificate by
    which sites recognize the server. Keep ca.key, server.key and analyst.key secret. Queries are signed with
    analyst.key, unless --analyst lists other analysts. A person who distributes federation.json could add a
    false site. To exclude this, the sites should compare the printed digest, for example by telephone.

    \b
    Example: privinf federation init hospitals *.bundle.json --host server.example
    """  # noqa: D301
    if folder.exists():
        raise ArgumentError(
            f"the folder {folder} already exists; choose the name of a new folder for the federation"
        )
    if not folder.absolute().parent.is_dir():
        raise ArgumentError(f"the folder {folder.absolute().parent} does not exist; create it first")
    records = [read_bundle(path) for path in bundles]
    analyst_key = IdentityKey()
    listed = analysts_of(analysts or [f"analyst={analyst_key.verifying}"])
    roster = Roster(_by_name(records, "public"), _by_name(records, "verifying"))
    sites = {bundle["name"]: {"node": bundle["node"], "socket": bundle["socket"]} for bundle in records}
    record = {"format": FEDERATION, "version": KIT_VERSION, "sites": sites, "roster": roster.to_json()}
    record |= {"analysts": listed}
    record |= {
        "schema": _schema(records),
        "address": "" if sockets else f"{hosts[0]}:{port}",
        "authority": "",
    }
    new_folder = Path(tempfile.mkdtemp(dir=folder.absolute().parent, prefix=f".{folder.name}."))
    try:
        if not sockets:
            key, authority, server_key, server = certificates(list(dict.fromkeys([*hosts, *LOCAL])), days)
            record["authority"] = authority
            private_text(new_folder / "ca.key", key)
            private_text(new_folder / "server.key", server_key)
            save_text(new_folder / "ca.crt", authority)
            save_text(new_folder / "server.pem", server)
            (new_folder / "nodes").mkdir()
            for name, text in _by_name(records, "node").items():
                save_text(new_folder / "nodes" / f"{name}.pub", f"{text}\n")
        if record["schema"] is not None:
            save_text(new_folder / "schema.json", json.dumps(record["schema"], indent=1))
        save_text(new_folder / "federation.json", checksummed_json(record, indent=1) + "\n")
        save_text(new_folder / "fit.toml", FIT)
        if not analysts:
            analyst_key.save(new_folder / ANALYST_KEY)
        os.rename(new_folder, folder)
    except BaseException:
        shutil.rmtree(new_folder, ignore_errors=True)
        raise
    public = str(folder / "federation.json")
    plan = str(folder / "fit.toml")
    facts = {"sites": list(sites), "digest": roster.digest, "federation": public, "plan": plan}
    first = (
        f"the federation has {len(roster)} sites; compare the digest of their public keys with "
        f"the sites: {roster.digest}"
    )
    say(facts, as_json, first, f"send {public} to every site, and fill in {plan}")


@federation_group.command("up")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--listen", default="127.0.0.1", show_default=True, help="IP address at which the server listens."
)
def up_command(folder: Path, listen: str) -> None:
    """Run the Flower server of a federation until it is stopped (SIGTERM).

    The server uses TLS and accepts only the sites of the federation. However, anyone who can connect to the
    server's port and has the certificate in federation.json can send code to all sites, because Flower has
    no user accounts for this. Let the server listen at 127.0.0.1, behind a proxy that forwards only requests
    to /v1/fleet/.

    \b
    Example: privinf federation up hospitals
    """  # noqa: D301
    record = read_federation(folder / "federation.json")
    if not record["address"]:
        raise ArgumentError(
            f"the federation {folder} was made with --sockets, so it needs no server; run 'privinf "
            "federation fit' directly"
        )
    if days_left(read_text(folder / "server.pem", "a certificate")) <= 0.0:
        raise ArgumentError(
            f"the certificates in {folder} have expired; make the federation again with 'privinf "
            "federation init'"
        )
    check_secret((folder / "server.key").absolute(), "the server's key", "key")
    if listen != "127.0.0.1":
        click.echo(
            f"Warning: anyone who can connect to {listen} can send code to all sites' Flower nodes", err=True
        )
    port = int(record["address"].rpartition(":")[2])
    stopping = stopped_by_signals()
    log = folder / "superlink.log"
    words = [executable("flower-superlink"), "--ssl-ca-certfile", "ca.crt", "--ssl-certfile", "server.pem"]
    words += ["--ssl-keyfile", "server.key", "--enable-supernode-auth", "--host", listen, "--port", str(port)]
    words += ["--disable-runtime-dependency-installation"]
    with open(log, "ab") as stream:
        process = subprocess.Popen(
            words,
            cwd=folder,
            env=environment(folder.absolute() / ".superlink"),
            stdout=stream,
            stderr=stream,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    try:
        while not reachable(f"{_reachable_host(listen)}:{port}"):
            if process.poll() is not None:
                raise AlignmentError(SERVER_STOPPED.format(log))
            if stopping.wait(POLL_SECONDS):
                return
        for name in record["sites"]:
            flwr(
                folder,
                record,
                "supernode",
                "register",
                str((folder / "nodes" / f"{name}.pub").absolute()),
                TAGGED,
            )
        click.echo(f"the server of {len(record['sites'])} sites listens at {listen}:{port}")
        while process.poll() is None and not stopping.wait(POLL_SECONDS):
            pass
        if process.poll() is not None and not stopping.is_set():
            raise AlignmentError(SERVER_STOPPED.format(log))
    finally:
        end(process)


@federation_group.command("fit")
@click.argument("plan_file", type=FILE)
@click.option(
    "--folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder that 'privinf federation init' made. Default: the folder of the TOML file.",
)
@click.option(
    "--key",
    "key_file",
    type=FILE,
    help=(
        "File of your secret key, made by 'privinf analyst key'. Default: analyst.key in the "
        "federation's folder."
    ),
)
@click.option(
    "--simulation",
    is_flag=True,
    help=(
        "Allow epsilon = inf or a seed in the TOML file. Use this only for simulated rows; the "
        "policies of all sites must allow it too."
    ),
)
@click.option("--overwrite", is_flag=True, help="Replace existing results.")
@click.option(
    "--timeout",
    type=float,
    default=3600.0,
    show_default=True,
    help="Largest number of seconds to wait for the results from Flower.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON.")
def fit_command(
    plan_file: Path,
    folder: Path | None,
    key_file: Path | None,
    simulation: bool,
    overwrite: bool,
    timeout: float,
    as_json: bool,
) -> None:
    """Fit a model to the rows of all sites, as a TOML file describes it.

    Run this command on the server's computer. If a site refuses or does not answer, the error names the
    site. Budget that was already charged stays charged. If the TOML file sets a checkpoint, repeat the
    command to resume the fit. Replies must be signed with the keys in federation.json. Keep heads.json in
    the same folder: it records the last entry of each site's ledger, to detect a ledger that was replaced
    by an older copy.

    \b
    Example: privinf federation fit hospitals/fit.toml
    """  # noqa: D301
    folder = plan_file.parent if folder is None else folder
    record = read_federation(folder / "federation.json")
    schema = folder / "schema.json"
    plan = read_plan(plan_file, schema if schema.exists() else None, simulation=simulation)
    ends = _ends(folder.absolute(), key_file)
    if record["address"]:
        words = {"simulation": simulation, "overwrite": overwrite, "plan": str(plan_file.absolute())}
        words |= {
            "schema": str(schema.absolute()) if schema.exists() else "",
            "sites": ",".join(record["sites"]),
        }
        result = over_flower(folder, record, words | ends, timeout)
    else:
        sockets = {name: site["socket"] for name, site in record["sites"].items()}
        signed: EndOptions = {**ends_of(ends), "roster": Roster.from_json(record["roster"])}
        result = run_plan(plan, SocketFederation(sockets, **signed), overwrite=overwrite)
    click.echo(
        json.dumps(result, indent=1) if as_json else result.get("summary", json.dumps(result, indent=1))
    )
    if not as_json:
        click.echo("written: " + " and ".join(f"{plan.out}{ending}" for ending in plan.endings))


def _ends(folder: Path, key_file: Path | None) -> dict[str, str]:
    """Return the files of an analyst: the key, if there is one, and the stored heads of ledgers."""
    key = folder / ANALYST_KEY if key_file is None else key_file.absolute()
    return {"key": str(key) if key.exists() else "", "heads": str(folder / HEADS_FILE)}


def over_flower(
    folder: Path, record: Mapping[str, Any], words: dict[str, Any], timeout: float
) -> dict[str, Any]:
    """Send a plan to the server, and return its results (AlignmentError if none come in time)."""
    with tempfile.TemporaryDirectory(prefix="privinf") as app_folder:
        app = Path(app_folder)
        answer_path = Path(app_folder) / "told.json"
        (app / "fitapp").mkdir()
        save_text(app / "roster.json", record["roster"])
        settings = words | {"told": str(answer_path), "roster": str(app / "roster.json")}
        save_text(app / "pyproject.toml", APP + tomli_w.dumps(settings))
        for name, text in (
            ("__init__", '"""A fit of privinf."""\n'),
            ("client_app", CLIENT),
            ("server_app", SERVER),
        ):
            save_text(app / "fitapp" / f"{name}.py", text)
        flwr(folder, record, "run", app_folder, TAGGED)
        waiting = threading.Event()
        seconds = timeout
        while not answer_path.exists():
            if seconds <= 0.0:
                raise AlignmentError(
                    f"Flower returned no results within {timeout:g} seconds; see the log file "
                    f"{folder / 'superlink.log'}, or pass a larger --timeout"
                )
            waiting.wait(POLL_SECONDS)
            seconds -= POLL_SECONDS
        result = parse_json(read_text(answer_path, "results"), "the server's results file")
    if "error" in result:
        raise AlignmentError(str(result["error"]))
    return dict(result)


APP = """[project]
name = "fitapp"
version = "1.0.0"
description = "A federated fit of privinf"
license = "BSD-3-Clause"
dependencies = []

[tool.flwr.app]
publisher = "privinf"

[tool.flwr.app.components]
serverapp = "fitapp.server_app:app"
clientapp = "fitapp.client_app:app"

[tool.flwr.app.config]
"""
CLIENT = "from privinf.federation.flower import client_app\n\napp = client_app()\n"
SERVER = """from privinf.cli.federated_fits import fit_over_flower, told_problem
from privinf.federation.flower import server_app

app = server_app(fit_over_flower, failed=told_problem, timeout=180.0, patience=600.0)
"""


def _reachable_host(listen: str) -> str:
    return "127.0.0.1" if listen in ("0.0.0.0", "::") else listen


def _by_name(bundles: list[dict[str, Any]], field: str) -> dict[str, str]:
    names = [bundle["name"] for bundle in bundles]
    if len(set(names)) < len(names):
        raise ArgumentError(
            "two of the bundle files belong to the same site; pass one bundle file for each site"
        )
    return {bundle["name"]: bundle[field] for bundle in bundles}


def _schema(bundles: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the schema that all bundles have; None where some were made before it was filled in."""
    schemas = [bundle["schema"] for bundle in bundles]
    if None in schemas:
        return None
    for bundle in bundles[1:]:
        if bundle["schema"] != schemas[0]:
            raise AlignmentError(
                f"the schema of site {bundle['name']!r} differs from the schema of site "
                f"{bundles[0]['name']!r}; all sites must use the same schema"
            )
    return dict(schemas[0])
