"""``privinf ledger``: create ledgers, report their spending, and take decisions reserved to the holder."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from filelock import FileLock, Timeout

from privinf.accounting import Budget, Ledger, PrivacyReport, compose
from privinf.accounting.budget import DEFAULT_DELTA
from privinf.accounting.chains import record_anchor
from privinf.accounting.entries import stamp_of
from privinf.accounting.files import LedgerFile
from privinf.accounting.journal import CHAINED_VERSION, Anchor, Head, encoded
from privinf.accounting.ledger import FORMAT as CURATOR
from privinf.accounting.ledger import read_account
from privinf.accounting.released import appended
from privinf.cli.outputs import DELTA_HELP, FILE, NEW_FILE, check_free, json_option, say
from privinf.errors import ArgumentError, StorageError
from privinf.federation import SiteLedger
from privinf.federation.envelope import Analyst
from privinf.federation.sessions import Journal
from privinf.federation.site_ledger import FORMAT, read_pins, read_site_ledger
from privinf.secret_files import FORBIDDEN, check_folder, open_secret, own_path
from privinf.storage.checksummed import parse_json, read_bytes, read_text, written_whole
from privinf.wire import readable

anchor_option = click.option(
    "--anchor",
    type=NEW_FILE,
    help=(
        "File that records the ledger's last entry, to detect a ledger that was replaced by an "
        "older copy. Default: a file in ~/.local/state/privinf/anchors."
    ),
)


@click.group("ledger")
def ledger_group() -> None:
    """Create and inspect budget ledgers, which record all releases.

    Use one ledger for all releases about the same people.
    """


@ledger_group.command("create")
@click.argument("path", type=NEW_FILE)
@click.option("--epsilon", type=float, help="Limit on the total epsilon of all releases.")
@click.option("--delta", type=float, help=DELTA_HELP)
@click.option(
    "--mu",
    type=float,
    help=("Limit as the parameter mu of Gaussian differential privacy; use this instead of --epsilon."),
)
@click.option(
    "--rho",
    type=float,
    help=(
        "Limit as the parameter rho of zero-concentrated differential privacy (zCDP); use this "
        "instead of --epsilon."
    ),
)
@click.option(
    "--name",
    help=(
        "Unit that the limit protects, such as person or household, for use in messages. "
        "Default: person, or record with --site."
    ),
)
@click.option("--site", is_flag=True, help="Create the ledger of a site, for 'privinf site serve --ledger'.")
@anchor_option
@json_option
def create_command(
    path: Path,
    epsilon: float | None,
    delta: float | None,
    mu: float | None,
    rho: float | None,
    name: str | None,
    site: bool,
    anchor: Path | None,
    as_json: bool,
) -> None:
    """Create a budget ledger, the file that is passed as --ledger to other commands.

    The limit cannot be changed later. Keep the ledger on a local disk. A small second file in another
    folder, the ledger's anchor, records the last entry, so that a ledger that was replaced by an older copy
    is detected. Protect both files as carefully as the rows. For a site in a federation, add --site.

    \b
    Example: privinf ledger create study.ledger --epsilon 2 --delta 1e-6
    """  # noqa: D301
    check_free(path, overwrite=False)
    if epsilon is not None and delta is None:
        raise ArgumentError(
            "--epsilon needs --delta, because Gaussian noise gives no guarantee with delta 0; "
            "choose delta well below 1/n, such as 1e-6"
        )
    if anchor is not None and not site:
        raise ArgumentError("--anchor is only for the ledger of a site; pass --site too, or omit --anchor")
    budget = Budget(epsilon=epsilon, delta=delta, mu=mu, rho=rho)
    name = name or ("record" if site else "person")
    if site:
        SiteLedger(path, budget, name, anchor=anchor).close()
    else:
        LedgerFile.create(path, budget, name)
    facts = {"ledger": str(path), "limit": str(budget), "name": name, "site": site}
    say(facts, as_json, f"the ledger {path} was created, with limit {budget} for each {name}")


@ledger_group.command("show")
@click.argument("path", type=FILE)
@json_option
def show_command(path: Path, as_json: bool) -> None:
    """Print the budget that is spent, for which releases, and the budget that is left.

    This works for any ledger, also for a site's ledger while the site is running.

    \b
    Example: privinf ledger show north.ledger
    """  # noqa: D301
    journal = read_site_ledger(path) if _is_site(path) else None
    facts = _record_of(LedgerFile(path) if journal is None else journal.ledger)
    facts |= (
        {} if journal is None else charges_by_analyst(journal, facts["delta"]) | {"bound": read_pins(path)}
    )
    if as_json:
        click.echo(json.dumps(facts, allow_nan=False))
        return
    limit = f"the limit is {facts['limit']}" if facts["limit"] else "there is no limit"
    spent = f"epsilon {facts['epsilon']:.4g} at delta {facts['delta']:g} is spent; {limit}"
    click.echo(f"{path}: {spent}{appended(facts['stamp'])}")
    if facts["left"]:
        click.echo(f"budget left: {facts['left']}")
    click.echo(
        f"{facts['releases']} release(s); the budget protects each "
        f"{' or one '.join(facts['units']) or facts['name']}"
    )
    for label, releases in facts["by_label"].items():
        plain = "".join(sign if sign.isprintable() else " " for sign in label)  # chosen by the caller
        click.echo(f"  {plain}: {releases['releases']} release(s), epsilon {releases['epsilon']:.4g}")
    for line in analyst_lines(facts):
        click.echo(line)
    for pin in facts.get("bound", ()):
        event = (
            f"'privinf site rebase' recorded a change of the site's {' and '.join(pin['changed'])}; it bound "
            "the ledger to"
            if pin["changed"]
            else "at the first start of the site, the ledger was bound to"
        )
        click.echo(f"{event} the site's {pin['rows']} rows")


def _record_of(ledger: Ledger) -> dict[str, Any]:
    """Return the report of a ledger for JSON."""
    budget = ledger.budget
    remaining = ledger.remaining()
    delta = None if budget is None else budget.delta
    labels: dict[str, list[Any]] = {}
    for entry in ledger.entries:
        labels.setdefault(readable(entry.label), []).append(entry)
    by_label = {
        label: {"releases": len(entries), "epsilon": _epsilon(entries, delta)}
        for label, entries in labels.items()
    }
    return {
        "epsilon": _epsilon(list(ledger.entries), delta),
        "delta": delta or DEFAULT_DELTA,
        "limit": None if budget is None else str(budget),
        "left": None if remaining is None else str(remaining),
        "name": ledger.name,
        "releases": len(ledger),
        "by_label": by_label,
        "stamp": stamp_of(ledger.entries),
        "units": list(dict.fromkeys(entry.unit for entry in ledger.entries)),
    }


def charges_by_analyst(
    journal: Journal, delta: float, listed: Iterable[Analyst] = ()
) -> dict[str, list[dict[str, Any]]]:
    """Return spending and budget by analyst, and the reservations, for JSON."""
    charges = journal.charges
    budgets = {analyst.name: analyst.budget for analyst in listed}
    names = sorted({*charges, *budgets} - {""})
    by_analyst = [
        {
            "analyst": name,
            "epsilon": _epsilon([*charges.get(name, ())], delta),
            "of": None if (budget := budgets.get(name)) is None else budget.epsilon(delta),
        }
        for name in names
    ]
    reserved = [
        {
            "name": reservation.name,
            "analyst": reservation.analyst,
            "epsilon": compose(reservation.losses).epsilon(delta),
            "spent": _epsilon([*journal.charged_on(reservation)], delta),
            "until": datetime.fromtimestamp(reservation.until, UTC).isoformat(timespec="minutes"),
        }
        for reservation in journal.reservations
    ]
    return {"by_analyst": by_analyst, "reserved": reserved}


def analyst_lines(facts: Mapping[str, Any]) -> Iterator[str]:
    """Yield the report on analysts and reservations, line by line."""
    for analyst in facts.get("by_analyst", ()):
        limit = "" if analyst["of"] is None else f" of {analyst['of']:.4g}"
        yield f"analyst {analyst['analyst']}: epsilon {analyst['epsilon']:.4g}{limit} spent"
    for reservation in facts.get("reserved", ()):
        whose = f" by {reservation['analyst']}" if reservation["analyst"] else ""
        yield (
            f"budget reserved{whose} for a fit: epsilon {reservation['epsilon']:.4g}, of which "
            f"{reservation['spent']:.4g} is spent; the reservation {reservation['name']!r} ends at "
            f"{reservation['until']}"
        )


@ledger_group.command("free")
@click.argument("path", type=FILE)
@click.argument("names", nargs=-1)
@click.option("--all", "all_reservations", is_flag=True, help="Free all reservations.")
@anchor_option
@json_option
def free_command(
    path: Path, names: tuple[str, ...], all_reservations: bool, anchor: Path | None, as_json: bool
) -> None:
    """Free budget that fits have reserved in a site's ledger but not spent.

    Use this after a fit was aborted; otherwise its reservation ends after seven days. Stop the site before
    this command. Pass the names of the reservations, which 'privinf ledger show' prints, or --all.

    \b
    Example: privinf ledger free north.ledger --all
    """  # noqa: D301
    with SiteLedger.open(path, anchor=anchor) as ledger:
        reservations = ledger.journal.reservations
        if unknown := set(names) - {reservation.name for reservation in reservations}:
            raise ArgumentError(
                f"the ledger has no budget reservation {', '.join(sorted(unknown))}; run 'privinf "
                "ledger show' to list the reservations"
            )
        chosen = [
            reservation for reservation in reservations if all_reservations or reservation.name in names
        ]
        for reservation in chosen:
            ledger.journal.free(reservation)
    facts = {"ledger": str(path), "given_back": [reservation.name for reservation in chosen]}
    say(facts, as_json, f"{path}: {len(chosen)} budget reservation(s) freed")


def _epsilon(entries: list[Any], delta: float | None) -> float:
    return (
        PrivacyReport.from_entries(entries, delta=delta).epsilon(delta or DEFAULT_DELTA) if entries else 0.0
    )


@ledger_group.command("anchor")
@click.argument("path", type=FILE)
@anchor_option
@json_option
def anchor_command(path: Path, anchor: Path | None, as_json: bool) -> None:
    """Accept a ledger as up to date, after it was moved or its anchor file was lost.

    The anchor is a small file in another folder that records the ledger's last entry, so that a ledger
    replaced by an older copy is detected. This command writes the anchor again. Use it only if no later copy
    of the ledger exists, because budget that only a later copy records as spent could be spent a second time.

    \b
    Example: privinf ledger anchor north.ledger
    """  # noqa: D301
    place = own_path(path)
    witness = Anchor.for_journal(place, anchor)
    head = record_anchor(place, FORMAT if _is_site(path) else CURATOR, witness)
    facts = {"ledger": str(path), "lines": head.count, "anchor": str(witness.path)}
    say(
        facts,
        as_json,
        (
            f"{path}: this ledger with {head.count} lines is accepted as up to date; its last "
            f"line is recorded in {witness.path}"
        ),
    )


@ledger_group.command("upgrade")
@click.argument("path", type=FILE)
@anchor_option
@json_option
def upgrade_command(path: Path, anchor: Path | None, as_json: bool) -> None:
    """Upgrade a ledger from version 1 to version 2, which detects replacement by an older copy.

    All charges are kept. The old file is kept in the same folder, under a name that ends in .version-1. Both
    files become readable by their owner only (mode 0600). If the ledger already has version 2, only its
    mode is changed.

    \b
    Example: privinf ledger upgrade north.ledger
    """  # noqa: D301
    place = own_path(path)
    old_file = upgraded(place, Anchor.for_journal(place, anchor))
    facts = {
        "ledger": str(path),
        "version": CHAINED_VERSION,
        "kept": None if old_file is None else str(old_file),
    }
    outcome = (
        "from now on, only its owner can read it"
        if old_file is None
        else f"the old file was saved as {old_file}"
    )
    say(facts, as_json, f"the ledger {path} has version 2; {outcome}")


def _tightened(path: Path) -> bool:
    """Restrict a ledger to its owner (mode 0600); return whether others could read it."""
    handle = open_secret(path, "a ledger", "ledger")
    try:
        open_to_others = bool(os.fstat(handle).st_mode & FORBIDDEN["key"])
        if open_to_others:
            os.fchmod(handle, 0o600)
        return open_to_others
    finally:
        os.close(handle)


def upgraded(path: Path, anchor: Anchor) -> Path | None:
    """Upgrade a ledger of version 1, and return where the old file is; None if others could only read it.

    Raises
    ------
    StorageError
        It is open elsewhere or damaged; it is not a ledger of version 1, and only its owner could read it.
    """
    check_folder(path.parent, "a ledger")
    try:
        with FileLock(f"{path}.lock", timeout=0):
            _end_stopped_upgrade(path)
            if f'"version": {CHAINED_VERSION}'.encode() in _beginning(path):
                if _tightened(path):
                    return None
                raise StorageError(f"the ledger {path} already has version 2 and needs no upgrade")
            kind, read_lines = (FORMAT, _old_lines) if _is_site(path) else (CURATOR, _old_account)
            header, *lines = read_lines(path)
            if (header.get("format"), header.get("version")) != (kind, 1):
                raise StorageError(f"{path} is not a ledger of version 1, so it cannot be upgraded")
            first = {name: header.get(name) for name in ("id", "name", "budget")}
            return written_anew(path, kind, anchor, first, lines)
    except Timeout:
        raise StorageError(f"another process is using the ledger {path}; stop that process first") from None


def written_anew(
    path: Path, kind: str, anchor: Anchor, header: Mapping[str, Any], lines: list[dict[str, Any]]
) -> Path:
    """Put a journal of these lines in the place of a file, which is kept under a name of its own.

    Returns that name. Raises StorageError if it cannot be done; the file is in its place then.
    """
    old_file = _path_of_old_file(path)
    first = {"format": kind, "version": CHAINED_VERSION, "secret": secrets.token_hex(32), **header}
    content = b""
    tag = ""
    for line in (first, *lines):
        written, tag = encoded(first["secret"], tag, line)
        content += written
    try:
        if os.path.lexists(old_file):
            raise StorageError(
                f"the backup file {old_file} already exists, but it is not a copy of this ledger; move "
                "it to another folder first"
            )
        os.link(path, old_file)
        anchor.record(first["id"], Head(1 + len(lines), tag))
        with written_whole(path, private=True, lasting=True) as stream:
            stream.write(content)
        _tightened(old_file)
    except OSError as problem:
        if isinstance(problem, StorageError):
            raise
        raise StorageError(f"the ledger {path} cannot be upgraded ({problem.strerror})") from None
    return old_file


def _old_account(path: Path) -> list[dict[str, Any]]:
    """Return the lines that a file of version 1, one JSON object, becomes."""
    account = read_account(read_text(path, "a ledger", secret="ledger"))
    record = account.to_dict()
    return [record, {"charge": record["entries"]}] if record["entries"] else [record]


def _path_of_old_file(path: Path) -> Path:
    """Return the name under which an upgrade keeps the old file."""
    return path.with_name(f"{path.name}.version-1")


def _end_stopped_upgrade(path: Path) -> None:
    """Remove the second name of a ledger whose upgrade was stopped after it had made it."""
    with suppress(FileNotFoundError):
        if os.path.samestat(os.lstat(path), os.lstat(_path_of_old_file(path))):
            _path_of_old_file(path).unlink()


def _beginning(path: Path) -> bytes:
    return read_bytes(path, "a ledger", most=None, secret="ledger")[:400]


def _is_site(path: Path) -> bool:
    return f'"{FORMAT}"'.encode() in _beginning(path)


def _old_lines(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a file of version 1; a torn last line is left out."""
    content = read_bytes(path, "a site's ledger", most=None, secret="ledger")
    complete = content[: content.rfind(b"\n") + 1]
    torn = content[content.rfind(b"\n") + 1 :]
    lines = [_old_line(line) for line in complete.split(b"\n")[:-1]]
    # A line that is whole but for the byte that ends it was not torn: its end was changed.
    if not lines or any(line is None for line in lines) or _old_line(torn[:-1]) is not None:
        raise StorageError(
            f"the ledger {path} is damaged, or is not a site's ledger of version 1; restore it from "
            "a copy of its latest state"
        )
    return [line for line in lines if line is not None]


def _old_line(text: bytes) -> dict[str, Any] | None:
    """Return the record of a line, None if it is invalid or does not match its checksum."""
    seal, _, content = text.decode(errors="replace").partition(" ")
    if seal != hashlib.sha256(content.encode()).hexdigest()[:16]:
        return None
    try:
        line = parse_json(content, "a line")
    except StorageError:
        return None
    return line if isinstance(line, dict) else None
