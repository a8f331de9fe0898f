"""``privinf ledger``: create ledgers, report their spending, and take decisions reserved to the holder."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from privinf.accounting import Budget, Ledger, PrivacyReport, compose
from privinf.accounting.budget import DEFAULT_DELTA
from privinf.accounting.entries import stamp_of
from privinf.accounting.files import LedgerFile
from privinf.accounting.journal import Anchor, record_anchor
from privinf.accounting.ledger import FORMAT as CURATOR
from privinf.accounting.purposes import counted_fits, printable
from privinf.accounting.released import appended
from privinf.cli.outputs import DELTA_HELP, FILE, NEW_FILE, check_free, json_option, say
from privinf.errors import ArgumentError
from privinf.federation import SiteLedger
from privinf.federation.envelope import Analyst
from privinf.federation.sessions import Journal
from privinf.federation.site_ledger import FORMAT, read_pins, read_site_ledger
from privinf.secret_files import own_path
from privinf.storage.checksummed import read_bytes
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
    check_free(path, overwrite=None)
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
    """Print the budget that is spent, fit by fit, and the budget that is left.

    Each fit has its times, its name (from ledger.named in Python or --name), its formula or statistic, and
    its cost. The rest of the budget is also stated in fits like the last one.

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
        more = facts["more"]
        count = f" (about {more} more like the last fit)" if more else ""
        if more == 0:
            count = " (less than the last fit cost)"
        adding = f"; {facts['adding']}" if facts["adding"] and facts["fits"] else ""
        click.echo(f"budget left: {facts['left']}{count}{adding}")
    click.echo(
        f"{counted_fits([fit['releases'] for fit in facts['fits']])}; the budget protects each "
        f"{' or one '.join(facts['units']) or facts['name']}"
    )
    for fit in facts["fits"]:
        click.echo(f"  {fit_line(fit)}")
    for line in analyst_lines(facts):
        click.echo(line)
    pins = facts.get("bound", ())
    for pin in pins:
        event = (
            f"'privinf site rebase' recorded a change of the site's {' and '.join(pin['changed'])}, and"
            if pin["changed"]
            else "the first start of the site recorded"
        )
        end = "; the site refuses to start with other rows" if pin is pins[-1] else ""
        click.echo(f"{event} a checksum of the site's {pin['rows']} rows{end}")


def fit_line(fit: Mapping[str, Any]) -> str:
    """Return the charges of a fit in one line: times, name, formula or statistic, cost."""
    title = f"{fit['name']}: {fit['subject']}" if fit["name"] else fit["subject"]
    started, ended = (datetime.fromisoformat(fit[end]) for end in ("started", "ended"))
    time = f"{started:%Y-%m-%d %H:%M}"
    if f"{ended:%Y-%m-%d %H:%M}" != time:
        time += f" to {ended:%H:%M}" if ended.date() == started.date() else f" to {ended:%Y-%m-%d %H:%M}"
    parts = f" in {fit['releases']} releases" if fit["releases"] > 1 else ""
    return f"{time} UTC  {printable(title)}: epsilon {fit['epsilon']:.4g}{parts}"


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
    fits = [
        {
            "name": fit.name,
            "subject": fit.subject,
            "started": fit.started.astimezone(UTC).isoformat(timespec="seconds"),
            "ended": fit.ended.astimezone(UTC).isoformat(timespec="seconds"),
            "releases": len(fit.entries),
            "epsilon": _epsilon(list(fit.entries), delta),
        }
        for fit in ledger.fits
    ]
    return {
        "epsilon": _epsilon(list(ledger.entries), delta),
        "delta": delta or DEFAULT_DELTA,
        "limit": None if budget is None else str(budget),
        "left": None if remaining is None else str(remaining),
        "adding": "" if budget is None else budget.adding,
        "name": ledger.name,
        "releases": len(ledger),
        "fits": fits,
        "more": ledger.count_more(),
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
            "purpose": reservation.purpose,
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
        purpose = reservation["purpose"]
        description = f' described as "{purpose}"' if purpose else ""
        yield (
            f"budget reserved{whose} for a fit{description}: epsilon {reservation['epsilon']:.4g}, of which "
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
    """Give back the budget that fits have reserved in a site's ledger but not spent.

    Use this after a fit was aborted; otherwise its reservation ends after seven days. Stop the site before
    this command. Pass the names of the reservations, which 'privinf ledger show' prints, or --all.

    \b
    Example: privinf ledger free north.ledger --all
    """  # noqa: D301
    with SiteLedger.open(path, anchor=anchor) as ledger:
        reservations = ledger.journal.reservations
        if unknown := set(names) - {reservation.name for reservation in reservations}:
            raise ArgumentError(
                f"the ledger has no budget reservation named {', '.join(map(repr, sorted(unknown)))}; run "
                "'privinf ledger show' to list the reservations"
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


def _beginning(path: Path) -> bytes:
    return read_bytes(path, "a ledger", most=None, secret="ledger")[:400]


def _is_site(path: Path) -> bool:
    return f'"{FORMAT}"'.encode() in _beginning(path)
