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
    LOOK_EVERY,
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
from privinf.sealed import parse_json, read_text, save_text, sealed_json
from privinf.secret_files import check_secret

# In a federation's folder: by which questions are signed.
ANALYST_KEY = "analyst.key"
FIT = """# What is asked of the sites: privinf federation fit fit.toml
# model = "MomentOLS", "FederatedGLM" or "DebiasedLasso"; or statistic = "column_sums", with [args] and mu
model = "FederatedGLM"
formula = "FILL IN: y ~ a + b"
family = "binomial"       # gaussian, binomial, poisson
trust = "secure-sum"      # or "server": sites send it un-noised sums
epsilon = 1.0
delta = 1e-6
checkpoint = "fit.rounds" # the same command goes on where it was stopped
out = "fit"               # fit.json and fit.npz

# [options]               # further words of the model's fit, such as cov_type = "HC0"
# [optimizer]             # of FederatedGLM: name = "DPSGD", epochs = 5
"""


# ---- commands


@click.group("federation")
def federation_group() -> None:
    """Bring sites together: keys and certificates, the server, and fits over all sites.

    \b
    1. Each site:   privinf site init         keys, policy, schema, ledger, and a public bundle
    2. Together:    privinf federation init   roster and certificates, from the bundles
    3. Each site:   privinf site up           answer questions, until stopped
    4. The server:  privinf federation up     carry messages, until stopped
    5. The analyst: privinf federation fit    a model of all sites' rows, from a TOML file
    """  # noqa: D301


@federation_group.command("init")
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument("bundles", type=FILE, nargs=-1, required=True)
@click.option(
    "--host",
    "hosts",
    multiple=True,
    default=("localhost", "127.0.0.1"),
    show_default=True,
    help="Where sites reach the server; the first one is told to them.",
)
@click.option("--port", type=click.IntRange(1, 65535), default=8000, show_default=True, help="Its port.")
@click.option(
    "--days",
    type=click.IntRange(1, 3650),
    default=365,
    show_default=True,
    help="How long the certificates hold.",
)
@click.option("--sockets", is_flag=True, help="No Flower: all sites are daemons of this machine.")
@click.option(
    "--analyst",
    "analysts",
    multiple=True,
    metavar="NAME=KEY",
    help="Who asks, by privinf analyst key; default: a new key, FOLDER/analyst.key.",
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
    """Make a federation of the sites whose public bundles are given, in a new folder.

    \b
    privinf federation init hospitals *.bundle.json --host server.example

    federation.json in it is public, and goes to every site: the roster of keys, the schema, and the
    certificate of the authority that signed the server's. ca.key and server.key stay where they are, and so
    does analyst.key, by which questions are signed unless --analyst names those who have a key. Whoever
    hands out the roster could put himself among the sites: let them compare its digest aloud.
    """  # noqa: D301
    if folder.exists():
        raise ArgumentError(f"{folder} is there already: choose another name")
    if not folder.absolute().parent.is_dir():
        raise ArgumentError(f"{folder.absolute().parent} is no folder")
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
            key, authority, server_key, server = certificates(list(hosts), days)
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
        save_text(new_folder / "federation.json", sealed_json(record, indent=1) + "\n")
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
    first = f"{len(roster)} sites, digest of the roster {roster.digest}"
    say(facts, as_json, first, f"to every site: {public}; fill in: {plan}")


@federation_group.command("up")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--listen", default="127.0.0.1", show_default=True, help="Address at which the server listens.")
def up_command(folder: Path, listen: str) -> None:
    """Run the Flower server of a federation, with TLS and the keys of the sites' nodes, until SIGTERM.

    \b
    privinf federation up hospitals

    Whoever reaches its port with the certificate of the authority can send code to all nodes: Flower has no
    accounts for that. Leave it on 127.0.0.1, and put a proxy in front that passes on /v1/fleet/ alone.
    """  # noqa: D301
    record = read_federation(folder / "federation.json")
    if not record["address"]:
        raise ArgumentError(f"{folder} was made with --sockets: it needs no server")
    if days_left(read_text(folder / "server.pem", "a certificate")) <= 0.0:
        raise ArgumentError(f"the certificates in {folder} have expired: make the federation anew")
    check_secret((folder / "server.key").absolute(), "the server's key", "key")
    if listen != "127.0.0.1":
        click.echo(f"Warning: whoever reaches {listen} can send code to all nodes", err=True)
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
                raise AlignmentError(f"the server ended: see {log}")
            if stopping.wait(LOOK_EVERY):
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
        click.echo(f"server of {len(record['sites'])} sites at {listen}:{port}")
        while process.poll() is None and not stopping.wait(LOOK_EVERY):
            pass
        if process.poll() is not None and not stopping.is_set():
            raise AlignmentError(f"the server ended: see {log}")
    finally:
        end(process)


@federation_group.command("fit")
@click.argument("plan_file", type=FILE)
@click.option(
    "--folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of the federation; default: that of the plan.",
)
@click.option(
    "--key",
    "key_file",
    type=FILE,
    help="Your secret key (privinf analyst key); default: the folder's analyst.key.",
)
@click.option(
    "--simulation",
    is_flag=True,
    help="Made-up rows: the plan may say epsilon = inf or a seed, if sites allow it.",
)
@click.option("--overwrite", is_flag=True, help="Replace results that are there.")
@click.option(
    "--timeout", type=float, default=3600.0, show_default=True, help="Seconds to wait, over Flower."
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
    """Fit a model to the rows of all sites, as a TOML file says.

    \b
    privinf federation fit hospitals/fit.toml

    Run it where the server runs. What a site refuses or does not answer is told with its name; what was
    charged stays charged, and a plan with a checkpoint goes on from there when the command is repeated.
    Replies must be signed by the keys of federation.json, and heads.json beside it remembers how far each
    site's ledger was: keep it.
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
        click.echo(f"written: {plan.out}.json")


def _ends(folder: Path, key_file: Path | None) -> dict[str, str]:
    """Return the files of an analyst's end: his key, if there is one, and what he remembers of ledgers."""
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
                raise AlignmentError(f"no results within {timeout:g} s: see {folder / 'superlink.log'}")
            waiting.wait(LOOK_EVERY)
            seconds -= LOOK_EVERY
        result = parse_json(read_text(answer_path, "results"), "what the server wrote")
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
        raise ArgumentError("two bundles have the name of one site")
    return {bundle["name"]: bundle[field] for bundle in bundles}


def _schema(bundles: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the schema that all bundles have; None where some were made before it was filled in."""
    schemas = [bundle["schema"] for bundle in bundles]
    if None in schemas:
        return None
    for bundle in bundles[1:]:
        if bundle["schema"] != schemas[0]:
            raise AlignmentError(
                f"site {bundle['name']!r} has another schema than site {bundles[0]['name']!r}"
            )
    return dict(schemas[0])
