"""``privinf site``: keys, the roster, and the daemon that answers for a site's rows."""

from __future__ import annotations

import logging
import signal
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import fields
from pathlib import Path
from typing import Any, TypedDict, Unpack, get_args

import click

from privinf.cli.inputs import read_schema_file
from privinf.cli.outputs import FILE, NEW_FILE, Command, check_free, json_option, overwrite_option, say
from privinf.errors import ArgumentError, FileMissingError, StorageError, UnavailableColumnsWarning
from privinf.federation import IdentityKey, Roster, Site, SiteDaemon, SiteLedger, SitePolicy
from privinf.federation.secure.masking import PairKeys
from privinf.mechanisms.blocks import table_rows
from privinf.mechanisms.catalogue import SITE_OPS, look_up
from privinf.mechanisms.rows import Rows
from privinf.schema import Design, Schema
from privinf.storage.checksummed import parse_json, read_text, save_text
from privinf.typing import Missing

# Settings of a policy that are true or false.
FLAGS = tuple(field.name for field in fields(SitePolicy) if field.default is False)
TERMS = tuple(field.name for field in fields(SitePolicy))  # all settings of a policy


class SiteFiles(TypedDict):
    """Files, formula and rule for missing values of a site, without its rows and its ledger."""

    schema_file: Path
    missing: Missing
    formula: str | None
    policy_file: Path
    key_file: Path | None
    roster_file: Path | None


@click.group("site")
def site_group() -> None:
    """Run a site, which holds rows and answers queries about them.

    Each site decides by its own policy, and within its own budget, which queries it answers.

    \b
    1. Each site runs 'privinf site key' and sends the printed public keys to the other sites.
    2. The sites agree on one roster, a file of all public keys ('privinf site roster').
    3. Each site runs 'privinf site serve' to answer queries until it is stopped.

    Keys and roster are needed for secure sums, which hide each site's own numbers from the server.
    """  # noqa: D301


@site_group.command("key")
@click.argument("path", type=NEW_FILE)
@json_option
def key_command(path: Path, as_json: bool) -> None:
    """Make the site's secret key, unless it exists, and print its two public keys for the other sites.

    The printed keys are for 'privinf site roster'. Anyone who has the secret key file can reconstruct the
    sums that this site sent under secure sums, and can sign replies in its name. Protect the file as
    carefully as the rows.

    \b
    Example: privinf site key north.key
    """  # noqa: D301
    key = _own_key(path)
    say({"public": key.public, "verifying": key.verifying}, as_json, f"{key.public}:{key.verifying}")


def _own_key(path: Path) -> IdentityKey:
    """Return the key in a file, which is made if it is not there."""
    if path.exists():
        return IdentityKey.load(path)
    check_free(path, overwrite=None)
    key = IdentityKey()
    key.save(path)
    click.echo(f"new key: {path}", err=True)
    return key


@click.group("analyst")
def analyst_group() -> None:
    """Make the key with which you, as an analyst, sign your queries.

    Nobody without this key can send queries in your name.
    """


@analyst_group.command("key")
@click.argument("path", type=NEW_FILE)
@json_option
def analyst_key_command(path: Path, as_json: bool) -> None:
    """Make your secret key as an analyst, unless it exists, and print the public key for the sites.

    A site allows your queries by this line in its policy: "analysts": [{"name": "ada", "key": "PUBLIC KEY"}].
    It may add a budget for you, such as "budget": {"epsilon": 1, "delta": 1e-6}, within the site's budget. In
    Python, pass key=IdentityKey.load("ada.key") to SocketFederation to sign your queries.

    \b
    Example: privinf analyst key ada.key
    """  # noqa: D301
    verifying = _own_key(path).verifying
    say({"key": verifying}, as_json, verifying)


@site_group.command("roster")
@click.argument("sites", nargs=-1, required=True, metavar="NAME=PUBLIC:VERIFYING...")
@click.option("--out", type=NEW_FILE, required=True, help="File to write, such as roster.json.")
@overwrite_option
@json_option
def roster_command(sites: tuple[str, ...], out: Path, overwrite: bool, as_json: bool) -> None:
    """Write the roster, one file with the names and public keys of all sites.

    Pass NAME=PUBLIC:VERIFYING for each site, with the two keys that 'privinf site key' prints. If VERIFYING
    is omitted for all sites, replies are not signed. All sites must use the same roster and should not
    receive it through the server. To detect a changed roster, compare the printed digest with the other
    sites, for example by telephone.

    \b
    Example: privinf site roster north=3f...a1:77...d0 south=90...7c:0b...e4 --out roster.json
    """  # noqa: D301
    check_free(out, overwrite)
    keys: dict[str, str] = {}
    verifying: dict[str, str] = {}
    for word in sites:
        name, sign, key = word.partition("=")
        if not sign:
            raise ArgumentError(
                f"the argument {word!r} must have the form NAME=PUBLIC:VERIFYING, with the two public "
                "keys that 'privinf site key' prints"
            )
        if name in keys:
            raise ArgumentError(f"site {name!r} is listed twice; list each site once")
        keys[name], sign, second = key.strip().lower().partition(":")
        if sign:
            verifying[name] = second
    roster = Roster(keys, verifying)
    save_text(out, roster.to_json() + "\n", overwrite=overwrite)
    if not roster.signed:
        click.echo(
            (
                "the roster has no keys to verify signatures, so replies of the sites are not signed; "
                "secure sums still work"
            ),
            err=True,
        )
    facts = {"sites": list(roster.keys), "digest": roster.digest, "signed": roster.signed, "out": str(out)}
    say(
        facts,
        as_json,
        (f"the roster lists {len(roster)} sites; compare its digest with the other sites: {roster.digest}"),
        f"written: {out}",
    )


@site_group.command("design")
@click.argument("formula")
@click.option("--schema", "schema_file", type=FILE, required=True, help="Schema file that all sites share.")
@json_option
def design_command(formula: str, schema_file: Path, as_json: bool) -> None:
    """Print digests of a model's columns, to list in a site's policy as allowed designs.

    Queries about the models in the list "designs" are allowed. To refuse all other models, except the model
    of 'privinf site serve --formula', set "new_designs" to 0 in the policy. No row is read, because a digest
    depends only on the formula and the schema.

    \b
    Example: privinf site design "wage ~ age + C(region)" --schema schema.json
    """  # noqa: D301
    design = Design.from_formula(formula, read_schema_file(schema_file))
    digests = list(dict.fromkeys((design.digest, design.conditioned().digest)))
    if not as_json:
        click.echo(f"{', '.join(design.names)}", err=True)
    say({"columns": list(design.names), "digests": digests}, as_json, *digests)


def missing_option(default: Missing | None, otherwise: str = "") -> Callable[[Command], Command]:
    """Return the option --missing of the commands that start a site; `otherwise` names its default."""
    return click.option(
        "--missing",
        type=click.Choice(get_args(Missing)),
        default=default,
        show_default=default is not None,
        help=(
            "Rule for missing values in the site's rows: do not offer columns that have missing values "
            "(raise), drop the rows that lack a value of the model, whose number stays private (drop), or "
            "replace missing values by the midpoint of the public bounds (impute-public). Use the same rule "
            f"at all sites.{otherwise and ' '}{otherwise}"
        ),
    )


@site_group.command("serve")
@click.option("--name", required=True, help="Name of the site.")
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    required=True,
    help="File of the site's rows: CSV (.csv, .tsv, .gz) or Parquet.",
)
@click.option(
    "--schema",
    "schema_file",
    type=FILE,
    required=True,
    help="Schema file (.toml or .json), such as "
    '{"columns": {"age": {"low": 18, "high": 90}, "sex": {"levels": ["f", "m"]}}}.',
)
@missing_option("raise")
@click.option(
    "--formula",
    help=(
        "Formula of a regression that the site prepares when it starts; queries about other regressions "
        "are still possible."
    ),
)
@click.option(
    "--policy",
    "policy_file",
    type=FILE,
    required=True,
    help=(
        "JSON file of the site's policy, that is, which queries it answers, such as "
        '{"secure_sums": true, "min_sites": 3}.'
    ),
)
@click.option(
    "--ledger",
    "ledger_file",
    type=NEW_FILE,
    required=True,
    help="File of the budget ledger of all releases about these rows.",
)
@click.option(
    "--anchor",
    type=NEW_FILE,
    help="File that records the ledger's last entry, if it is not in the default folder.",
)
@click.option(
    "--key",
    "key_file",
    type=FILE,
    help=(
        "File of the site's secret key, made by 'privinf site key'. Needed for secure sums and "
        "for signed replies."
    ),
)
@click.option(
    "--roster",
    "roster_file",
    type=FILE,
    help="File of the public keys of all sites, made by 'privinf site roster'.",
)
@click.option(
    "--socket", "path", type=NEW_FILE, required=True, help="Path of the Unix socket that the daemon creates."
)
@click.option(
    "--group",
    help=(
        "Name of the operating-system group whose accounts may send queries. Default: only the "
        "account that runs this command."
    ),
)
@click.option(
    "--allow-uid",
    "allowed",
    type=int,
    multiple=True,
    help=(
        "Number (user id) of an account that may send queries. May be given several times. "
        "Default: all accounts that can open the socket."
    ),
)
@click.option("--quiet", is_flag=True, help="Print only errors.")
def serve_command(
    name: str,
    data: Path,
    ledger_file: Path,
    anchor: Path | None,
    path: Path,
    group: str | None,
    allowed: tuple[int, ...],
    quiet: bool,
    **files: Unpack[SiteFiles],
) -> None:
    """Hold the rows of a site and answer queries at a Unix socket until stopped (SIGTERM or SIGINT).

    Create the ledger first, only once, with 'privinf ledger create --site'. The first start records these
    rows, schema and policy in the ledger; after a change, run 'privinf site rebase'. Run this command under
    a separate account, and let only this account read the rows, key and ledger. Anyone who can open the
    socket (this account, or --group) can send queries. The policy and the ledger's limit decide which
    queries are answered. Each query is logged to standard error as a line of JSON.

    \b
    Example:
      privinf site serve --name clinic --data rows.csv --schema schema.json --policy policy.json \\
          --ledger clinic.ledger --key clinic.key --roster roster.json --socket /run/privinf/clinic.sock
    """  # noqa: D301
    logging.basicConfig(level=logging.WARNING if quiet else logging.INFO, format="%(message)s")
    content = _content(name, data, files)
    with ExitStack() as stack:
        ledger = stack.enter_context(opened_ledger(ledger_file, anchor))
        site = opened_site(**content, ledger=ledger)
        daemon = stack.enter_context(SiteDaemon(site, name, path, group=group, allow_uids=allowed or None))
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: daemon.stop())
        if not quiet:
            click.echo(f"site {name} with {len(site)} rows answers queries at {daemon.path}")
            signed = content["roster"] is not None and content["roster"].signed
            click.echo(f"replies are {'' if signed else 'not '}signed with the site's key")
        daemon.serve()


def _content(name: str, data: Path, files: SiteFiles) -> dict[str, Any]:
    """Return the parts of a site except its ledger."""
    policy = read_policy(files["policy_file"])
    key, roster = _identity(name, policy, files["key_file"], files["roster_file"])
    schema = read_schema_file(files["schema_file"])
    formula = files["formula"]
    design = schema if formula is None else Design.from_formula(formula, schema)
    rows = site_rows(data, schema, files["missing"])
    return {"rows": rows, "schema": design, "policy": policy, "key": key, "roster": roster}


def site_rows(data: Path, schema: Schema, missing: Missing) -> Rows:
    """Return the declared columns of a site's file (AlignmentError if it has no rows)."""
    names = [*schema.columns, *([] if schema.unit is None else [schema.unit])]
    return table_rows(data, names, schema, missing).opened(names, schema)


def opened_site(**content: Any) -> Site:
    """Return a site, and print for the holder why columns cannot be used."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnavailableColumnsWarning)
        site = Site(**content)
    for column, reason in site.defects.items():
        click.echo(f"Warning: the column {column} cannot be used: {reason}", err=True)
    return site


def read_policy(path: Path) -> SitePolicy:
    """Return the policy in a file; a flag must be true or false, not a text such as "true"."""
    content = _object(path)
    for name, value in content.items():
        if name not in TERMS:
            raise ArgumentError(
                f"{path}: {name!r} is not a setting of a policy; the settings are {', '.join(TERMS)}"
            )
        if (name in FLAGS) != isinstance(value, bool):
            raise ArgumentError(f"{path}: {name} must {'be' if name in FLAGS else 'not be'} true or false")
    if content.get("operations") is not None:
        content["operations"] = _operations(path, content["operations"])
    return SitePolicy(**content)


def _operations(path: Path, names: Any) -> tuple[str, ...]:
    if isinstance(names, list) and all(isinstance(name, str) for name in names):
        look_up(names)
    operations = list(SITE_OPS)
    if not isinstance(names, list) or not all(name in operations for name in names):
        raise ArgumentError(f"{path}: operations must be a list with names from {', '.join(operations)}")
    return tuple(names)


def _identity(
    name: str, policy: SitePolicy, key_file: Path | None, roster_file: Path | None
) -> tuple[IdentityKey | None, Roster | None]:
    """Return key and roster, for secure sums and signatures, which must know the site by this key."""
    if key_file is None or roster_file is None:
        if key_file is not None or roster_file is not None or policy.secure_sums:
            raise ArgumentError(
                "secure sums need both --key (the file of the site's secret key) and --roster (the "
                "file of the public keys of all sites)"
            )
        return None, None
    key = IdentityKey.load(key_file)
    roster = Roster.from_json(read_text(roster_file, "a roster"))
    if not PairKeys(key, roster).owns(name):
        raise ArgumentError(
            f"the file --roster {roster_file} does not list site {name} with the public key of "
            f"--key {key_file}; make the file again with the current public keys of all sites"
        )
    return key, roster


def opened_ledger(path: Path, anchor: Path | None) -> SiteLedger:
    """Open an existing ledger: serving creates none, or a restart could begin a new one."""
    try:
        return SiteLedger.open(path, anchor=anchor)
    except FileMissingError:
        pass
    raise ArgumentError(
        f"the ledger {str(path)!r} does not exist; create it, only once, with 'privinf ledger create "
        f"--site {path} --epsilon ... --delta ...'"
    )


def _object(path: Path) -> dict[str, Any]:
    content = parse_json(read_text(path, "a JSON file"), str(path))
    if not isinstance(content, dict):
        raise StorageError(f"{path} must contain a JSON object")
    return content
