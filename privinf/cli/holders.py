"""``privinf site init`` and ``up``: a site from its first file to its daemon and its Flower node."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, cast

import click
import tomli_w

from privinf.accounting import Budget
from privinf.cli.deployment import (
    BUNDLE,
    KIT_VERSION,
    PAUSE,
    POLL_SECONDS,
    SITE_NAME,
    SITE_NAME_RULE,
    analysts_of,
    end,
    environment,
    executable,
    free_port,
    node_key,
    private_text,
    reachable,
    read_federation,
    stopped_by_signals,
)
from privinf.cli.doctor import FOLDER, doctor_command, findings, read_site, status_command
from privinf.cli.inputs import read_schema_file
from privinf.cli.ledgers import anchor_option
from privinf.cli.outputs import DELTA_HELP, FILE, json_option, say
from privinf.cli.schemas import suggest_command
from privinf.cli.sites import (
    missing_option,
    opened_ledger,
    opened_site,
    read_policy,
    serve_command,
    site_group,
    site_rows,
)
from privinf.errors import ArgumentError
from privinf.federation import IdentityKey, Roster, SiteLedger
from privinf.secret_files import check_secret
from privinf.storage.checksummed import checksummed_json, save_text
from privinf.typing import Missing

# Default of --missing for a site with a folder.
AS_STORED = "Default: the value in the site's site.toml"


@click.command("init")
@click.argument("name")
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    required=True,
    prompt="File of the site's rows",
    help="File of the site's rows. The file is not copied or moved.",
)
@click.option(
    "--schema",
    "schema_file",
    type=FILE,
    help="Schema file that all sites share. Default: a template to fill in.",
)
@missing_option("raise")
@click.option(
    "--epsilon",
    type=float,
    required=True,
    prompt="Limit on the total epsilon of all releases",
    help="Limit on the total epsilon of all releases, recorded in the site's ledger.",
)
@click.option(
    "--delta",
    type=float,
    required=True,
    prompt="delta for this limit, such as 1e-6",
    help=DELTA_HELP,
)
@click.option(
    "--trust",
    type=click.Choice(["secure-sum", "server"]),
    default="secure-sum",
    show_default=True,
    help=(
        "Sums that the site may send: only secure sums, in which the server sees no single "
        "site's sum (secure-sum), or also sums without noise to a trusted server (server)."
    ),
)
@click.option(
    "--min-sites",
    type=click.IntRange(2),
    default=2,
    show_default=True,
    help="Smallest number of sites over which a secure sum may be computed.",
)
@click.option(
    "--analyst",
    "analysts",
    multiple=True,
    metavar="NAME=KEY[:EPSILON]",
    help=(
        "Name and public key of an analyst who may send queries, optionally with a limit on "
        "epsilon; 'privinf analyst key' makes the key. May be given several times. Default: "
        "anyone who can connect."
    ),
)
@click.option(
    "--simulation",
    is_flag=True,
    help="Allow releases without noise. Use this only if the rows are simulated.",
)
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    help="Folder to create for the site's files. Default: the site's name.",
)
@json_option
@click.pass_context
def init_command(
    ctx: click.Context,
    name: str,
    data: Path,
    schema_file: Path | None,
    missing: Missing,
    epsilon: float,
    delta: float,
    trust: str,
    min_sites: int,
    analysts: tuple[str, ...],
    simulation: bool,
    folder: Path | None,
    as_json: bool,
) -> None:
    """Make a site's folder, with secret keys, policy, schema, ledger, and a public bundle file.

    Send the bundle file, NAME.bundle.json, to the person who runs 'privinf federation init'. It is public.
    Keep all other files at the site. Options can also be read from a TOML file, with 'privinf --config FILE
    site init NAME'; the file has a table [site.init] with lines such as data = "rows.csv".

    \b
    Example: privinf site init north --data rows.csv --schema schema.json --epsilon 4 --delta 1e-6
    """  # noqa: D301
    if not SITE_NAME.fullmatch(name):
        raise ArgumentError(SITE_NAME_RULE)
    folder = Path(name) if folder is None else folder
    if folder.exists():
        raise ArgumentError(
            f"the folder {folder} already exists, and its keys and ledger are never replaced; pass "
            "another folder as --folder"
        )
    if not data.exists():
        raise ArgumentError(f"the file --data {data} does not exist; pass the file of the site's rows")
    budget = Budget(epsilon=epsilon, delta=delta)
    terms = {"secure_sums": True, "min_sites": min_sites} | (
        {"trusted_server": True} if trust == "server" else {}
    )
    policy: dict[str, Any] = terms | ({"simulation": True} if simulation else {})
    if analysts:
        policy |= {"analysts": analysts_of(analysts, delta)}
    new_folder = Path(tempfile.mkdtemp(dir=folder.absolute().parent, prefix=f".{folder.name}."))
    try:
        schema = new_folder / ("schema.toml" if schema_file is None else f"schema{schema_file.suffix}")
        if schema_file is None:
            ctx.invoke(suggest_command, data=data, columns=(), max_rows=1, out=schema, overwrite=False)
        else:
            shutil.copyfile(schema_file, schema)
        declared = read_schema_file(schema)
        key = IdentityKey()
        (secret, public) = node_key()
        key.save(new_folder / f"{name}.key")
        private_text(new_folder / "node.key", secret)
        save_text(new_folder / "policy.json", json.dumps(policy, indent=1) + "\n")
        socket = str(folder.absolute() / f"{name}.sock")
        bundle: dict[str, Any] = {"format": BUNDLE, "name": name, "public": key.public}
        bundle |= {"version": KIT_VERSION, "verifying": key.verifying, "node": public}
        bundle |= {"socket": socket, "schema": None if declared.blank else declared.to_dict()}
        save_text(new_folder / f"{name}.bundle.json", checksummed_json(bundle, indent=1) + "\n")
        words = {"name": name, "data": str(data.absolute()), "schema": schema.name, "policy": "policy.json"}
        words |= {"ledger": f"{name}.ledger", "key": f"{name}.key", "node_key": "node.key", "socket": socket}
        words |= {"federation": "federation.json", "group": "", "missing": missing}
        save_text(new_folder / "site.toml", tomli_w.dumps(words))
        os.rename(new_folder, folder)
        new_folder = folder
        SiteLedger(folder / f"{name}.ledger", budget).close()  # its anchor goes by its path
    except BaseException:
        shutil.rmtree(new_folder, ignore_errors=True)
        raise
    facts = {"site": name, "folder": str(folder), "limit": str(budget), "fill_in": list(declared.blank)}
    facts |= {"bundle": str(folder / f"{name}.bundle.json")}
    say(
        facts,
        as_json,
        (
            f"the folder {folder} of site {name} was created, with a ledger limit of {budget}; send "
            f"the file {facts['bundle']} to the person who sets up the federation"
        ),
    )
    if declared.blank:
        click.echo(
            f"fill in the bounds and levels of {', '.join(declared.blank)} in {folder / schema.name}",
            err=True,
        )


@click.command("up")
@click.argument("folder", type=FOLDER)
@missing_option(None, f"{AS_STORED}.")
@click.option("--quiet", is_flag=True, help="Print only errors and warnings.")
@click.pass_context
def up_command(ctx: click.Context, folder: Path, missing: Missing | None, quiet: bool) -> None:
    """Check a site's files, then answer queries until the site is stopped (SIGTERM).

    First put federation.json, made by 'privinf federation init', into the site's folder. The file lists the
    public keys of all sites. The first start records these keys and prints their digest; compare the digest
    with the other sites, for example by telephone. In a federation that uses Flower, a Flower node runs
    under the same account, so code that is sent to the node can read everything that this account can read.
    To prevent this, run 'privinf site serve' under a separate account.

    \b
    Example: privinf site up north
    """  # noqa: D301
    site = read_site(folder)
    results = findings(folder, site)
    for finding in results:
        click.echo(f"{finding.level.capitalize()}: {finding.what}: {finding.remedy}", err=True)
    if any(finding.level == "error" for finding in results):
        raise ArgumentError(f"site {site['name']} was not started; correct the errors listed above")
    federation = read_federation(folder / site["federation"])
    roster = Roster.from_json(federation["roster"])
    save_text(folder / "roster.json", roster.to_json() + "\n", overwrite=True)
    if not quiet:
        click.echo(
            f"the federation has {len(roster)} sites; compare the digest of their public keys with "
            f"the other sites: {roster.digest}"
        )
    stopped_by_signals()  # until the daemon has its own handler
    with ExitStack() as stack:
        if federation["address"]:
            stack.enter_context(_node(folder.absolute(), site, federation))
        ctx.invoke(
            serve_command,
            name=site["name"],
            data=folder / site["data"],
            ledger_file=folder / site["ledger"],
            path=Path(site["socket"]),
            group=site["group"] or None,
            quiet=quiet,
            schema_file=folder / site["schema"],
            missing=missing or cast("Missing", site["missing"]),
            formula=None,
            policy_file=folder / site["policy"],
            key_file=folder / site["key"],
            roster_file=folder / "roster.json",
        )


@click.command("rebase")
@click.argument("folder", type=FOLDER, required=False)
@click.option("--data", type=click.Path(path_type=Path), help="File of the site's rows after the change.")
@click.option("--schema", "schema_file", type=FILE, help="File of the site's schema after the change.")
@missing_option(None, f"{AS_STORED}, or raise without a folder.")
@click.option("--policy", "policy_file", type=FILE, help="File of the site's policy after the change.")
@click.option(
    "--ledger",
    "ledger_file",
    type=FILE,
    help="File of the site's ledger, as passed to 'privinf site serve --ledger'.",
)
@anchor_option
@json_option
def rebase_command(
    folder: Path | None,
    data: Path | None,
    schema_file: Path | None,
    missing: Missing | None,
    policy_file: Path | None,
    ledger_file: Path | None,
    anchor: Path | None,
    as_json: bool,
) -> None:
    """Record in a site's ledger that its rows, schema or policy were changed on purpose.

    The first start of a site records its rows, schema and policy in the ledger. Later starts with other
    rows, such as a shortened file or reordered rows, with another --missing, or with another schema or
    policy, are refused until this command is run. Stop the site before this command. All charges are kept,
    because the people may be the same. Queries that were charged before the change are not answered from the
    new rows.

    For a site that was not made by 'privinf site init', pass --data, --schema, --policy and --ledger instead
    of a folder.

    \b
    Example: privinf site rebase north
    """  # noqa: D301
    parts = [data, schema_file, policy_file, ledger_file]
    rule: Missing = missing or "raise"
    if folder is not None:
        site = read_site(folder)
        rule = missing or cast("Missing", site["missing"])
        site_paths = [folder / site[word] for word in ("data", "schema", "policy", "ledger")]
        parts = [own_path if path is None else path for path, own_path in zip(parts, site_paths, strict=True)]
    rows_file, schema_path, policy_path, ledger_path = parts
    if rows_file is None or schema_path is None or policy_path is None or ledger_path is None:
        raise ArgumentError("pass the site's folder, or all of --data, --schema, --policy and --ledger")
    schema = read_schema_file(schema_path)
    policy = read_policy(policy_path)
    rows = site_rows(rows_file, schema, rule)
    with opened_ledger(ledger_path, anchor) as ledger:
        before = ledger.journal.pin
        opened_site(rows=rows, schema=schema, policy=policy, ledger=ledger, rebase=True)
        now = ledger.journal.pin
        changed = ledger.journal.latest_change
    assert now is not None
    outcome = "pinned" if before is None else "rebased" if now != before else "unchanged"
    facts = {"done": outcome, "changed": list(changed) if outcome == "rebased" else [], "rows": now.rows}
    facts |= {"rows_before": None if before is None else before.rows}
    changes = f" ({', '.join(changed)})" if outcome == "rebased" else ""
    say(facts, as_json, f"{ledger_path}: {outcome}{changes}, {now.rows} rows; all charges are kept")


@contextmanager
def _node(folder: Path, site: dict[str, str], federation: dict[str, Any]) -> Iterator[None]:
    """Keep a Flower node running next to the daemon: started once both are there, again whenever it ends."""
    check_secret(folder / site["node_key"], "the node's key", "key")
    save_text(folder / "ca.crt", federation["authority"], overwrite=True)
    stopping = threading.Event()
    thread = threading.Thread(target=_keep, args=(folder, site, federation["address"], stopping), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()


def _keep(folder: Path, site: dict[str, str], address: str, stopping: threading.Event) -> None:
    words = [
        executable("flower-supernode"),
        "--root-certificates",
        str(folder / "ca.crt"),
        "--superlink",
        address,
        "--auth-supernode-private-key",
        str(folder / site["node_key"]),
        "--node-config",
        f"site={json.dumps(site['name'])} socket={json.dumps(site['socket'])} timeout=120.0",
    ]
    while not stopping.is_set():
        if not Path(site["socket"]).exists() or not reachable(address):
            stopping.wait(POLL_SECONDS)
            continue
        with open(folder / "node.log", "ab") as log:
            process = subprocess.Popen(
                [*words, "--port", str(free_port())],
                cwd=folder,
                env=environment(folder / ".node"),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        while process.poll() is None and not stopping.wait(POLL_SECONDS):
            pass
        end(process)
        stopping.wait(PAUSE)


for command in (init_command, up_command, rebase_command, doctor_command, status_command):
    site_group.add_command(command)
