"""``privinf site doctor`` and ``status``: what a site lacks, what is too open, what it has spent."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import click

from privinf.accounting import PrivacyReport
from privinf.cli.deployment import days_left, executable, read_federation
from privinf.cli.inputs import read_schema_file, read_toml
from privinf.cli.ledgers import analyst_lines, told_by_analyst
from privinf.cli.outputs import json_option
from privinf.cli.sites import read_policy
from privinf.errors import ArgumentError, PrivinfError
from privinf.federation import IdentityKey, Query, RemoteSite, Roster
from privinf.federation.checkpoint import KEY_FILE, OURS, RESERVATION, ROWS_FILE
from privinf.federation.daemon import LONGEST_PATH
from privinf.federation.site_ledger import read_site_ledger
from privinf.schema.declared import Numeric
from privinf.sealed import read_text
from privinf.secret_files import faults_of, folder_faults_of
from privinf.typing import SecretKind
from privinf.wire import Requests

FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
# Keys of site.toml.
SITE_WORDS = (
    "name",
    "data",
    "schema",
    "policy",
    "ledger",
    "key",
    "node_key",
    "socket",
    "federation",
    "group",
)
WIDE = 1e6  # a range of bounds so wide that it is worth a warning
SOON = 30.0  # days: a certificate that ends sooner is worth a warning
LARGE_EPSILON = 10.0  # a ledger that allows a larger epsilon is worth a warning
SECRETS: dict[str, SecretKind] = {"key": "key", "node_key": "key", "ledger": "ledger"}
# The secret files in the folder of a fit, beside its questions and releases.
CHECKPOINT_FILES = (KEY_FILE, ROWS_FILE, RESERVATION)
Level = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """What is wrong with a site: a site with an error is not started."""

    level: Level
    what: str
    remedy: str


@click.command("doctor")
@click.argument("folder", type=FOLDER)
@json_option
def doctor_command(folder: Path, as_json: bool) -> None:
    """Say what a site lacks and what of it is too open; code 2 where it would not start.

    \b
    privinf site doctor north
    privinf site doctor fit.rounds       # the folder that a fit has as its checkpoint

    Reads no row. Checkpoints in the site's folder are looked at too.
    What it cannot see: other copies of the files, and who else is administrator here.
    """  # noqa: D301
    alone = _is_checkpoint(folder) and not (folder / "site.toml").exists()
    results = list(secrets_in(folder)) if alone else findings(folder, read_site(folder))
    if as_json:
        click.echo(json.dumps([asdict(finding) for finding in results], indent=1))
    else:
        click.echo(
            "\n".join(f"{finding.level}: {finding.what}: {finding.remedy}" for finding in results)
            or "nothing is wrong"
        )
    if any(finding.level == "error" for finding in results):
        raise click.exceptions.Exit(2)


@click.command("status")
@click.argument("folder", type=FOLDER)
@json_option
def status_command(folder: Path, as_json: bool) -> None:
    """Say whether a site answers, and what its ledger has spent and has left, epsilon first, and by whom."""
    site = read_site(folder)
    try:
        reply = RemoteSite(site["socket"], timeout=5.0).handle(Query(Requests.DESCRIBE), site["name"])
        facts: dict[str, Any] = {"site": site["name"], "answers": True}
        facts |= {"rows": None if reply.error else reply.rows}  # a refusal where the policy lists analysts
    except PrivinfError:
        facts = {"site": site["name"], "answers": False, "rows": None}
    journal = read_site_ledger(folder / site["ledger"])
    ledger = journal.ledger
    assert ledger.budget is not None  # `init` gives one
    spent = PrivacyReport.of(ledger.entries, delta=ledger.budget.delta)
    delta = spent.default_delta
    remaining = ledger.remaining()
    assert remaining is not None
    facts |= {"epsilon": spent.epsilon() if len(ledger) else 0.0, "of": ledger.budget.epsilon(delta)}
    facts |= {"left": remaining.epsilon(delta), "delta": delta, "releases": len(ledger)}
    facts |= told_by_analyst(journal, delta, read_policy(folder / site["policy"]).analysts)
    if as_json:
        click.echo(json.dumps(facts, indent=1))
        return
    rows = "its analysts alone" if facts["rows"] is None else f"{facts['rows']} rows"
    answers = f"answers, {rows}" if facts["answers"] else "does not answer"
    click.echo(f"site {facts['site']}: {answers}")
    click.echo(
        f"epsilon {facts['epsilon']:.4g} of {facts['of']:.4g} at delta {facts['delta']:g} spent in "
        f"{facts['releases']} release(s); {facts['left']:.4g} left"
    )
    for line in analyst_lines(facts):
        click.echo(line)


def read_site(folder: Path) -> dict[str, str]:
    """Return what site.toml says (ArgumentError where it lacks a word or has one too many)."""
    content = read_toml(folder / "site.toml")
    if set(content) != set(SITE_WORDS) or not all(isinstance(text, str) for text in content.values()):
        raise ArgumentError(f"{folder / 'site.toml'} must say {', '.join(SITE_WORDS)}, each a text")
    return content


def findings(folder: Path, site: dict[str, str]) -> list[Diagnostic]:
    """Return what is wrong with a site's files, errors first; no row is read."""
    results = [*_files(folder, site), *_contents(folder, site)]
    return sorted(results, key=lambda finding: finding.level)


def _files(folder: Path, site: dict[str, str]) -> Iterator[Diagnostic]:
    """Look at who may read and change a site's files."""
    for word in ("data", "schema", "policy", "ledger", "key", "node_key", "federation"):
        path = folder / site[word]
        if not path.exists():
            remedy = "copy it from privinf federation init" if word == "federation" else "put it back"
            yield Diagnostic("error", f"{path} is missing", remedy)
            continue
        status = path.stat()
        if word in SECRETS:
            yield from _secret(path, SECRETS[word])
            continue
        if status.st_uid != os.geteuid():
            yield Diagnostic(
                "warning", f"{path} belongs to another account", "run the site as the owner of its files"
            )
        if word == "data" and status.st_mode & 0o077:
            yield Diagnostic("warning", f"{path} is open to others", f"chmod -R go= {path}")
        elif status.st_mode & 0o022:
            yield Diagnostic("error", f"{path} can be changed by others", f"chmod go-w {path}")
    yield from secrets_in(folder)
    socket = Path(site["socket"])
    if len(os.fsencode(socket)) > LONGEST_PATH:
        yield Diagnostic(
            "error",
            f"the path of the socket has more than {LONGEST_PATH} bytes",
            "name a shorter one in site.toml",
        )
    elif not socket.parent.is_dir():
        yield Diagnostic("error", f"{socket.parent} is no folder", "make it: the socket is put there")


def _secret(path: Path, kind: SecretKind) -> Iterator[Diagnostic]:
    """Look at a secret file by the rules that it is opened by, and warn of a ledger that others may read."""
    faults = faults_of(path, "a secret file", kind)
    yield from (Diagnostic("error", fault.what, fault.remedy) for fault in faults)
    if kind == "ledger" and not faults:
        for fault in faults_of(path, "a ledger", "key"):
            yield Diagnostic("warning", fault.what, fault.remedy)


def secrets_in(folder: Path) -> Iterator[Diagnostic]:
    """Look for files that others could read or change in a folder, and in the checkpoints in it."""
    checkpoints = [place for place in (folder, *sorted(folder.iterdir())) if _is_checkpoint(place)]
    for place in dict.fromkeys((folder, *checkpoints)):
        yield from (Diagnostic("error", fault.what, fault.remedy) for fault in folder_faults_of(place))
    for place in checkpoints:
        for path in sorted(place.iterdir()):
            if path.name in CHECKPOINT_FILES or OURS.fullmatch(path.name):
                yield from _secret(path, "key" if path.suffix == ".key" else "ledger")


def _is_checkpoint(folder: Path) -> bool:
    """Return whether a folder is that of a fit."""
    return any(os.path.lexists(folder / name) for name in CHECKPOINT_FILES)


def _contents(folder: Path, site: dict[str, str]) -> Iterator[Diagnostic]:
    """Look at what the files say, and whether they go together."""
    for look in (_schema, _policy, _ledger, _federation):
        try:
            yield from look(folder, site)
        except (PrivinfError, OSError) as problem:
            yield Diagnostic("error", str(problem), "put a good file in its place")


def _schema(folder: Path, site: dict[str, str]) -> Iterator[Diagnostic]:
    schema = read_schema_file(folder / site["schema"])
    if schema.blank:
        yield Diagnostic(
            "error", f"the schema has blanks: {', '.join(schema.blank)}", "fill in public bounds and levels"
        )
    wide = [
        name
        for name, declared in schema.columns.items()
        if isinstance(declared, Numeric) and max(map(abs, (declared.low, declared.high))) > WIDE
    ]
    if wide:
        yield Diagnostic(
            "warning",
            f"bounds beyond {WIDE:g}: {', '.join(wide)}",
            "noise grows with bounds: change the unit",
        )


def _policy(folder: Path, site: dict[str, str]) -> Iterator[Diagnostic]:
    policy = read_policy(folder / site["policy"])
    if policy.trusted_server:
        yield Diagnostic(
            "warning", "the policy sends un-noised sums to the server", "only where you trust it with them"
        )
    elif not policy.secure_sums:
        yield Diagnostic("error", "the policy answers nothing", 'allow "secure_sums" in it')
    if policy.simulation:
        yield Diagnostic(
            "warning", "the policy allows releases without noise", 'for made-up rows only: drop "simulation"'
        )
    if policy.secure_sums and (folder / site["federation"]).exists():
        roster = Roster.from_json(read_federation(folder / site["federation"])["roster"])
        if len(roster) < policy.min_sites:
            yield Diagnostic(
                "error",
                f"masked sums need {policy.min_sites} sites, the roster has {len(roster)}",
                'lower "min_sites", or have more sites',
            )


def _ledger(folder: Path, site: dict[str, str]) -> Iterator[Diagnostic]:
    if not (folder / site["ledger"]).exists():
        return
    ledger = read_site_ledger(folder / site["ledger"]).ledger
    if ledger.budget is None:
        yield Diagnostic("error", "the ledger has no limit", "make one with a limit: privinf site init")
    elif (limit := ledger.budget.epsilon(ledger.budget.delta)) > LARGE_EPSILON:
        yield Diagnostic("warning", f"the limit is epsilon {limit:.4g}", "that promises little to one person")


def _federation(folder: Path, site: dict[str, str]) -> Iterator[Diagnostic]:
    if not (folder / site["federation"]).exists():
        return
    federation = read_federation(folder / site["federation"])
    roster = Roster.from_json(federation["roster"])
    key = IdentityKey.load(folder / site["key"])
    verifying = key.verifying if roster.signed else None
    if (roster.keys.get(site["name"]), roster.verifying.get(site["name"])) != (key.public, verifying):
        yield Diagnostic(
            "error",
            "the roster has another key for this site, or none",
            "make the federation of the present bundles",
        )
    if not roster.signed:
        yield Diagnostic(
            "warning",
            "the roster has no verifying keys: replies are not signed, and privinf federation fit refuses it",
            "make the federation of the present bundles",
        )
    listed = {analyst.key for analyst in read_policy(folder / site["policy"]).analysts}
    if listed and not listed & {analyst["key"] for analyst in federation["analysts"]}:
        yield Diagnostic(
            "warning",
            "the policy lists none of the federation's analysts",
            'list in "analysts" whom you want to answer: federation.json has their keys',
        )
    pinned = folder / "roster.json"
    if pinned.exists() and Roster.from_json(read_text(pinned, "a roster")).digest != roster.digest:
        yield Diagnostic(
            "error",
            "the roster is another one than at the last start",
            f"agree on it anew, then delete {pinned}",
        )
    schema = read_schema_file(folder / site["schema"])
    if federation["schema"] is not None and not schema.blank and federation["schema"] != schema.to_dict():
        yield Diagnostic(
            "error", "the schema is another one than the federation's", "sites must have the same schema"
        )
    if federation["address"]:
        days = days_left(federation["authority"])
        if days < SOON:
            yield Diagnostic(
                "error" if days <= 0.0 else "warning",
                f"the certificates end in {days:.0f} days",
                "make the federation anew",
            )
        executable("flower-supernode")
        yield Diagnostic(
            "warning",
            "the Flower node runs under the account that reads the rows",
            "code that is sent to nodes can read them: see docs/howto/hospitals.md",
        )
