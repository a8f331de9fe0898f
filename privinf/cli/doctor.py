"""``privinf site doctor`` and ``status``: missing files, loose permissions, and spending of a site."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import click

from privinf.accounting import PrivacyReport
from privinf.cli.deployment import days_left, executable, read_federation
from privinf.cli.inputs import read_schema_file, read_toml
from privinf.cli.ledgers import analyst_lines, charges_by_analyst
from privinf.cli.outputs import json_option
from privinf.cli.sites import read_policy
from privinf.errors import ArgumentError, PrivinfError
from privinf.federation import IdentityKey, Query, RemoteSite, Roster
from privinf.federation.checkpoint import KEY_FILE, OURS, RESERVATION, ROWS_FILE
from privinf.federation.daemon import LONGEST_PATH
from privinf.federation.site_ledger import read_site_ledger
from privinf.schema.declared import Numeric
from privinf.secret_files import faults_of, folder_faults_of
from privinf.storage.checksummed import read_text
from privinf.typing import Missing, SecretKind
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
    "missing",
)
DEFAULTS = {"missing": "raise"}  # of keys that files of earlier versions do not have
WIDE = 1e6  # a range of bounds so wide that it is worth a warning
SOON = 30.0  # days: a certificate that ends sooner is worth a warning
LARGE_EPSILON = 10.0  # a ledger that allows a larger epsilon is worth a warning
SECRETS: dict[str, SecretKind] = {"key": "key", "node_key": "key", "ledger": "ledger"}
# The secret files in the folder of a fit, beside its queries and releases.
CHECKPOINT_FILES = (KEY_FILE, ROWS_FILE, RESERVATION)
Level = Literal["error", "warning"]
REMAKE = "run 'privinf federation init' again, with the current *.bundle.json files of all sites"


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """A problem of a site: a site with an error is not started."""

    level: Level
    what: str
    remedy: str


@click.command("doctor")
@click.argument("folder", type=FOLDER)
@json_option
def doctor_command(folder: Path, as_json: bool) -> None:
    """Check a site's files and their permissions; exit with code 2 if the site would not start.

    FOLDER is the folder of a site, or the checkpoint folder of a fit. Checkpoint folders inside the site's
    folder are also checked. No row is read. The command cannot find copies of the files in other folders,
    and cannot find other administrators of this computer.

    \b
    Example: privinf site doctor north
    """  # noqa: D301
    alone = _is_checkpoint(folder) and not (folder / "site.toml").exists()
    results = list(secrets_in(folder)) if alone else findings(folder, read_site(folder))
    if as_json:
        click.echo(json.dumps([asdict(finding) for finding in results], indent=1))
    else:
        click.echo(
            "\n".join(f"{finding.level}: {finding.what}; {finding.remedy}" for finding in results)
            or "no problems found"
        )
    if any(finding.level == "error" for finding in results):
        raise click.exceptions.Exit(2)


@click.command("status")
@click.argument("folder", type=FOLDER)
@json_option
def status_command(folder: Path, as_json: bool) -> None:
    """Print whether a site answers, the total budget spent and left, and the budget spent by each analyst."""
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
    spent = PrivacyReport.from_entries(ledger.entries, delta=ledger.budget.delta)
    delta = spent.default_delta
    remaining = ledger.remaining()
    assert remaining is not None
    facts |= {"epsilon": spent.epsilon() if len(ledger) else 0.0, "of": ledger.budget.epsilon(delta)}
    facts |= {"left": remaining.epsilon(delta), "delta": delta, "releases": len(ledger)}
    facts |= charges_by_analyst(journal, delta, read_policy(folder / site["policy"]).analysts)
    if as_json:
        click.echo(json.dumps(facts, indent=1))
        return
    rows = (
        "but shows its number of rows only to the analysts in its policy"
        if facts["rows"] is None
        else f"{facts['rows']} rows"
    )
    answers = f"answers, {rows}" if facts["answers"] else "does not answer"
    click.echo(f"site {facts['site']}: {answers}")
    click.echo(
        f"epsilon {facts['epsilon']:.4g} of {facts['of']:.4g} at delta {facts['delta']:g} spent in "
        f"{ledger.fits.counted}; {facts['left']:.4g} left"
    )
    for line in analyst_lines(facts):
        click.echo(line)


def read_site(folder: Path) -> dict[str, str]:
    """Return the settings of site.toml (ArgumentError for a missing or unknown key)."""
    content = DEFAULTS | read_toml(folder / "site.toml")
    if set(content) != set(SITE_WORDS) or not all(isinstance(text, str) for text in content.values()):
        raise ArgumentError(
            f"{folder / 'site.toml'} must have the keys {', '.join(SITE_WORDS)}; each value must be a string"
        )
    if content["missing"] not in get_args(Missing):
        raise ArgumentError(f"{folder / 'site.toml'}: missing must be one of {', '.join(get_args(Missing))}")
    return content


def findings(folder: Path, site: dict[str, str]) -> list[Diagnostic]:
    """Return the problems of a site's files, errors first; no row is read."""
    results = list(_files(folder, site))
    reported = {f"{finding.what}; {finding.remedy}" for finding in results}
    results += [finding for finding in _contents(folder, site) if finding.what not in reported]
    return sorted(results, key=lambda finding: finding.level)


def _files(folder: Path, site: dict[str, str]) -> Iterator[Diagnostic]:
    """Check who may read and change a site's files."""
    for word in ("data", "schema", "policy", "ledger", "key", "node_key", "federation"):
        path = folder / site[word]
        if not path.exists():
            remedy = (
                "copy this file from the folder that 'privinf federation init' made"
                if word == "federation"
                else "restore the file from a copy"
            )
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
            yield Diagnostic("warning", f"{path} can be read by other accounts", f"run 'chmod -R go= {path}'")
        elif status.st_mode & 0o022:
            yield Diagnostic("error", f"{path} can be changed by other accounts", f"run 'chmod go-w {path}'")
    yield from secrets_in(folder)
    socket = Path(site["socket"])
    if len(os.fsencode(socket)) > LONGEST_PATH:
        yield Diagnostic(
            "error",
            f"the path of the socket has more than {LONGEST_PATH} bytes",
            "in the file site.toml, set socket to a shorter path",
        )
    elif not socket.parent.is_dir():
        yield Diagnostic(
            "error", f"the folder of the socket, {socket.parent}, does not exist", "create the folder"
        )


def _secret(path: Path, kind: SecretKind) -> Iterator[Diagnostic]:
    """Check a secret file by the rules for opening it, and warn of a ledger that others may read."""
    faults = faults_of(path, "a secret file", kind)
    yield from (Diagnostic("error", fault.what, fault.remedy) for fault in faults)
    if kind == "ledger" and not faults:
        for fault in faults_of(path, "a ledger", "key"):
            yield Diagnostic("warning", fault.what, fault.remedy)


def secrets_in(folder: Path) -> Iterator[Diagnostic]:
    """Find files that others could read or change in a folder and in its checkpoints."""
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
    """Check the contents of the files and whether they belong together."""
    for check in (_schema, _policy, _ledger, _federation):
        try:
            yield from check(folder, site)
        except (PrivinfError, OSError) as problem:
            yield Diagnostic("error", str(problem), "replace the file by a valid one")


def _schema(folder: Path, site: dict[str, str]) -> Iterator[Diagnostic]:
    schema = read_schema_file(folder / site["schema"])
    if schema.blank:
        yield Diagnostic(
            "error",
            f"bounds or levels of the columns {', '.join(schema.blank)} are missing in the schema",
            "fill in public bounds or levels",
        )
    wide = [
        name
        for name, declared in schema.columns.items()
        if isinstance(declared, Numeric) and max(map(abs, (declared.low, declared.high))) > WIDE
    ]
    if wide:
        yield Diagnostic(
            "warning",
            f"the bounds of {', '.join(wide)} are larger than {WIDE:g}",
            (
                "declare tighter bounds if the values allow it, because noise grows with the width of "
                "the bounds"
            ),
        )


def _policy(folder: Path, site: dict[str, str]) -> Iterator[Diagnostic]:
    policy = read_policy(folder / site["policy"])
    if policy.trusted_server:
        yield Diagnostic(
            "warning",
            "the policy allows the site to send sums without noise to the server",
            "allow this only if you trust the server with these sums",
        )
    elif not policy.secure_sums:
        yield Diagnostic("error", "the policy allows no queries", 'set "secure_sums" to true in the policy')
    if policy.simulation:
        yield Diagnostic(
            "warning",
            "the policy allows releases without noise",
            'remove "simulation" from the policy unless the rows are simulated',
        )
    if policy.secure_sums and (folder / site["federation"]).exists():
        roster = Roster.from_json(read_federation(folder / site["federation"])["roster"])
        if len(roster) < policy.min_sites:
            yield Diagnostic(
                "error",
                (
                    f"the policy requires secure sums of at least {policy.min_sites} sites, but the roster "
                    f"has {len(roster)}"
                ),
                'lower "min_sites" in the policy, or add sites',
            )


def _ledger(folder: Path, site: dict[str, str]) -> Iterator[Diagnostic]:
    if not (folder / site["ledger"]).exists():
        return
    ledger = read_site_ledger(folder / site["ledger"]).ledger
    if ledger.budget is None:
        yield Diagnostic(
            "error",
            "the ledger has no limit on the total budget",
            "make the site again with 'privinf site init', whose ledger has a limit",
        )
    elif (limit := ledger.budget.epsilon(ledger.budget.delta)) > LARGE_EPSILON:
        yield Diagnostic(
            "warning",
            (
                f"the ledger's limit, epsilon {limit:.4g}, is so large that it gives each person little "
                "protection"
            ),
            "make the site again with a smaller limit",
        )


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
            (
                "the list of the sites' public keys (the roster) in federation.json does not have this "
                "site's current key"
            ),
            REMAKE,
        )
    if not roster.signed:
        yield Diagnostic(
            "warning",
            "the list of the sites' public keys (the roster) has no keys to verify signatures, so "
            "replies are not signed and 'privinf federation fit' refuses them",
            REMAKE,
        )
    listed = {analyst.key for analyst in read_policy(folder / site["policy"]).analysts}
    if listed and not listed & {analyst["key"] for analyst in federation["analysts"]}:
        yield Diagnostic(
            "warning",
            "the site's policy does not list any of the federation's analysts",
            'add these analysts, with their keys from federation.json, to "analysts" in the policy',
        )
    pinned = folder / "roster.json"
    if pinned.exists() and Roster.from_json(read_text(pinned, "a roster")).digest != roster.digest:
        yield Diagnostic(
            "error",
            "the list of the sites' public keys (the roster) was changed after the site's last start",
            (
                "compare its digest with the other sites, for example by telephone; if they agree, "
                f"delete {pinned}"
            ),
        )
    schema = read_schema_file(folder / site["schema"])
    if federation["schema"] is not None and not schema.blank and federation["schema"] != schema.to_dict():
        yield Diagnostic(
            "error",
            "the site's schema differs from the federation's schema",
            "use the federation's schema at this site",
        )
    if federation["address"]:
        days = days_left(federation["authority"])
        if days < SOON:
            yield Diagnostic(
                "error" if days <= 0.0 else "warning",
                f"the certificates of the federation expire in {days:.0f} days",
                "run 'privinf federation init' again",
            )
        executable("flower-supernode")
        yield Diagnostic(
            "warning",
            "the Flower node runs under the account that can read the rows, so code that is sent "
            "to the node can read them too",
            "to prevent this, run 'privinf site serve' under a separate account",
        )
