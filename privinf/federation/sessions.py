"""Memory of a running site: queries, their order, analysts, reservations, designs, replies."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from privinf.accounting import Ledger, LedgerEntry, Loss, loss_from_dict
from privinf.accounting.journal import PRIVATE, Head
from privinf.accounting.ledger import account_of, ledger_of, named_labels
from privinf.accounting.losses import noise_free
from privinf.accounting.purposes import PURPOSES, STATED, Purpose, read_purposes, stated_text
from privinf.accounting.scopes import Part, Tally
from privinf.errors import ArgumentError, NotAvailableError, StorageError
from privinf.federation.envelope import Analyst, SignedHead
from privinf.federation.messages import Query, Reply
from privinf.wire import Requests

LASTING = 7 * 24 * 3600  # seconds that a reservation lasts: a week
MOST_OPEN = 64  # reservations that one analyst may have at a time
MOST_LOSSES = 64  # losses of one reservation
# Session of a reservation.
RESERVATION_NAME = re.compile("[0-9A-Za-z _-]{1,64}")  # of a session, which the holder's ledger shows
RESERVED_SUBJECT = "the reservation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """The reserved total charge of the queries of one fit.

    Attributes
    ----------
    analyst, name : str
        Analyst who reserved it (empty where the policy lists nobody), and the name that queries use.
    losses : tuple of Loss
    until : int
        When it ends, in seconds since 1970.
    purpose : str
        The analyst's own description of the fit; empty without one.
    """

    analyst: str
    name: str
    losses: tuple[Loss, ...]
    until: int
    purpose: str = ""

    @property
    def part(self) -> Part:
        """Its place in a `Tally`."""
        return self.analyst, self.name

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary that can be written as JSON, without the purpose."""
        losses = [loss.to_dict() for loss in self.losses]
        return {"analyst": self.analyst, "name": self.name, "losses": losses, "until": self.until}

    @classmethod
    def from_line(cls, line: Mapping[str, Any]) -> Reservation:
        """Rebuild the object from a line of a ledger: the result of ``to_dict``, and the purpose."""
        record = line["reserve"]
        return cls(
            analyst=str(record["analyst"]),
            name=str(record["name"]),
            losses=tuple(loss_from_dict(loss) for loss in record["losses"]),
            until=int(record["until"]),
            purpose=stated_in(line),
        )


class Journal:
    """Memory of a running site: charged queries, their order, reservations, designs, sent replies.

    Parameters
    ----------
    ledger : Ledger
        Where charges are spent.
    clock : callable
        Function that returns the present time, in seconds since 1970. This time determines which reservations
        have expired.

    Notes
    -----
    **Privacy.** Holds public numbers and sent replies: masked words, never sums without noise. Charges and
    reservations count against the ledger's limit and against that of the querying analyst (`Tally`), the
    latter computed from all charges ever made for the name. The clock can end a reservation, a promise to an
    analyst, and nothing else.
    """

    def __init__(self, ledger: Ledger, clock: Callable[[], float] = time.time) -> None:
        self._account, self._scope = account_of(ledger)
        self.clock = clock
        self._last: dict[str, int] = {}
        self._charged: set[str] = set()
        self._replies: dict[str, Reply] = {}
        self._designs: dict[str, int] = {}
        self._outdated: set[str | Part] = set()
        self._rows = uuid4().hex[:16]
        self._reserved: dict[Part, Reservation] = {}
        self._lines_by_analyst: dict[str, list[tuple[Part | None, LedgerEntry]]] = {}
        self._tallies: dict[str, Tally] = {}
        self.peers: dict[str, SignedHead] = {}

    @property
    def ledger(self) -> Ledger:
        """A ledger of the account."""
        return ledger_of(self._account, self._scope)

    @property
    def reservations(self) -> tuple[Reservation, ...]:
        """Those that hold now."""
        now = self.clock()
        return tuple(reservation for reservation in self._reserved.values() if reservation.until > now)

    @property
    def charges(self) -> dict[str, tuple[LedgerEntry, ...]]:
        """Lines by analyst; the empty name where the policy listed nobody."""
        return {
            name: tuple(entry for _, entry in credited) for name, credited in self._lines_by_analyst.items()
        }

    def charged_on(self, reserved: Reservation) -> tuple[LedgerEntry, ...]:
        """Return the lines that were charged on a reservation."""
        credited = self._lines_by_analyst.get(reserved.analyst, ())
        return tuple(entry for on, entry in credited if on == reserved.part)

    def tally(self, by: Analyst | None) -> Tally | None:
        """Return the charges against an analyst's own budget, None without one."""
        if by is None or by.budget is None:
            return None
        tally = self._tallies.get(by.name)
        if tally is None or tally.budget != by.budget:
            tally = Tally(by.budget, f"analyst {by.name!r}")
            for on, entry in self._lines_by_analyst.get(by.name, ()):
                tally.add([(entry.scope, entry.loss)], on)
            for reservation in self._reserved.values():
                if reservation.analyst == by.name:
                    tally.hold(reservation.part, reservation.losses)
            self._tallies[by.name] = tally  # whole: a kind of loss may be one that the budget cannot count
        return tally

    def introduce(self, digest: str, limit: int) -> None:
        """Count the design of this digest, unless it was counted before.

        Raises
        ------
        NotAvailableError
            It is not among the first `limit` designs.
        """
        if self._designs.get(digest, len(self._designs)) >= limit:
            raise NotAvailableError(
                f"this regression (design) is new to the site, whose policy allows only {limit} new "
                "designs; the person who runs the site must list its digest in "
                "SitePolicy(designs=...), or raise SitePolicy(new_designs=...)"
            )
        if digest not in self._designs:
            self._write({"design": digest})
            self._designs[digest] = len(self._designs)

    def begin(
        self, query: Query, digest: str, entries: tuple[LedgerEntry, ...], by: Analyst | None = None
    ) -> None:
        """Charge a query of this digest to its analyst, unless it was charged before.

        It is charged on the reservation that it names, if that is the analyst's own and holds.

        Raises
        ------
        NotAvailableError
            Another query was made at this position of the session, or later in it; or the query, or
            one of its session or its reservation, was charged for other rows than the site has now.
        BudgetExceededError
            The ledger's limit, or the analyst's, would be passed; nothing is remembered.
        """
        note = self._note(query, digest) | ({} if by is None else {"analyst": by.name})
        note |= {"reservation": query.reservation} if query.reservation else {}
        note |= _stated(query)
        placed = tuple(entry.within(self._scope) for entry in entries)
        on = _part(note)
        if not self._outdated.isdisjoint((digest, query.session, on)):
            raise NotAvailableError(
                "this fit was begun before the site's rows or schema were changed with 'privinf site "
                "rebase'; start a new fit, with a new checkpoint folder"
            )
        if self._knows(query, digest):
            return
        self.expire()
        if (tally := self.tally(by)) is not None:
            spends = [(entry.scope, entry.loss) for entry in placed]
            tally.charge(spends, named_labels(placed), on, keep=False)
        self._spend(placed, on, note)
        self._take_turn(note)
        self._credit(note, placed)

    def settle(self, query: Query, by: Analyst | None = None) -> None:
        """Reserve an amount ("reserve"), or return the uncharged amount ("end"), unless this was done before.

        The reservation goes by the name of the query's session. It holds a total amount for all
        charges that name it, before and after; reserved again, at a later position, it lasts again.

        Raises
        ------
        ArgumentError
            There is an argument, no session, or no loss that can be reserved.
        NotAvailableError
            The analyst has `MOST_OPEN` others, or the position has passed.
        BudgetExceededError
            The ledger's limit, or the analyst's, would be passed; nothing is remembered.
        """
        if query.args or not RESERVATION_NAME.fullmatch(query.session):
            raise ArgumentError(
                f"the query {query.op!r} must have no arguments, and the name of its session must have "
                "1 to 64 letters or digits"
            )
        digest = query.digest
        if self._knows(query, digest):
            return
        self.expire()
        part = ("" if by is None else by.name, query.session)
        note = self._note(query, digest)
        if query.op == Requests.RESERVE:
            losses, until = reserved_losses(query.charges), int(self.clock()) + LASTING
            reserved = Reservation(
                analyst=part[0], name=part[1], losses=losses, until=until, purpose=query.purpose
            )
            self._hold(reserved, by, note | _stated(query))
        elif part in self._reserved:
            self._write({"free": list(part), **note})
            self._free(part)
            self._take_turn(note)

    def _hold(self, reservation: Reservation, by: Analyst | None, note: dict[str, Any]) -> None:
        """Reserve, by both budgets or by none."""
        open_parts = [
            part for part in self._reserved if part[0] == reservation.analyst and part != reservation.part
        ]
        if len(open_parts) >= MOST_OPEN:
            raise NotAvailableError(
                f"the site already holds {MOST_OPEN} budget reservations of this analyst, the largest "
                "number allowed; wait until some of them end (after at most seven days), or ask the person "
                "who runs the site to free some with 'privinf ledger free'"
            )
        try:
            if (tally := self.tally(by)) is not None:
                tally.hold(reservation.part, reservation.losses, RESERVED_SUBJECT)
            self._account.hold(reservation.part, reservation.losses, RESERVED_SUBJECT)
        except BaseException:
            self._tallies.pop(reservation.analyst, None)  # it is reckoned again from what holds
            raise
        self._write({"reserve": reservation.to_dict(), **note})
        self._reserved[reservation.part] = reservation
        self._take_turn(note)

    def expire(self) -> None:
        """Return the amounts of expired reservations."""
        now = self.clock()
        for reservation in [
            reservation for reservation in self._reserved.values() if reservation.until <= now
        ]:
            self._free(reservation.part)

    def free(self, reserved: Reservation) -> None:
        """Return the uncharged amount of a reservation, on its holder's request."""
        self._write({"free": list(reserved.part)})
        self._free(reserved.part)

    def take_up(self, line: Mapping[str, Any]) -> None:
        """Read a ledger line about charges, positions, reservations and designs into memory."""
        names = ("digest", "session", "analyst", "reservation")
        if wrong := [name for name in names if name in line and not isinstance(line[name], str)]:
            raise StorageError(
                f"a line of the site's ledger is not valid, because its entry {wrong[0]!r} is not a text; "
                "restore the latest copy of the ledger"
            )
        if "charge" in line:
            entries = tuple(LedgerEntry.from_dict(entry) for entry in line["charge"])
            purposes = read_purposes(line.get(PRIVATE, {}).get(PURPOSES, ()))
            if "session" in line:
                purposes |= dict.fromkeys([entry.id for entry in entries], purpose_of_query(line))
            self._account.absorb(entries, _part(line), purposes=purposes)
            self._credit(line, entries)
        if "reserve" in line:
            reservation = Reservation.from_line(line)
            self._account.hold(reservation.part, reservation.losses)
            self._reserved[reservation.part] = reservation
        if "free" in line:
            analyst, name = line["free"]
            self._free((analyst, name))
        if "session" in line:
            self._take_turn(line)
        if "design" in line:
            self._designs.setdefault(str(line["design"]), len(self._designs))

    @property
    def head(self) -> Head | None:
        """Head of the ledger's file, None for a ledger in memory."""
        return None

    def knows(self, head: Head) -> bool:
        """Return whether this ledger's own chain has this head; one in memory has none."""
        return False

    def witness(self, heads: Mapping[str, SignedHead]) -> None:
        """Keep heads of other sites, as a witness of their ledgers."""
        self.peers |= heads

    def watch(self) -> None:
        """Raise StorageError if the ledger's file was changed by others."""

    def outdate(self) -> None:
        """Stop answering charged queries, and other queries of the same sessions and reservations.

        A fit that went on with other rows would take batches of these and of those for disjoint.
        """
        parts = (on for credited in self._lines_by_analyst.values() for on, _ in credited if on is not None)
        self._outdated |= {*self._charged, *self._last, *parts}

    def place(self, name: str) -> str:
        """Return the name under which batches of a site's rows are filed: another one for other rows.

        Only a file ensures that a later site has the same rows, in the same order.
        """
        return f"{name}, rows {self._rows}"

    def recall(self, digest: str) -> Reply | None:
        """Return the reply to the query of this digest, None if there was none."""
        return self._replies.get(digest)

    def keep(self, digest: str, reply: Reply) -> None:
        """Remember a reply, before it is sent."""
        self._replies[digest] = reply

    def _knows(self, query: Query, digest: str) -> bool:
        """Return whether a query was accepted before; NotAvailableError if its position has passed."""
        if digest not in self._charged and query.sequence <= self._last.get(query.session, -1):
            raise NotAvailableError(
                "a query with this sequence number, or with a later one, was already sent in this "
                "session; the server that sends the queries must start a new session"
            )
        return digest in self._charged

    def _note(self, query: Query, digest: str) -> dict[str, Any]:
        return {"digest": digest, "session": query.session, "sequence": query.sequence}

    def _take_turn(self, line: Mapping[str, Any]) -> None:
        self._charged.add(line["digest"])
        self._last[line["session"]] = int(line["sequence"])

    def _credit(self, line: Mapping[str, Any], entries: tuple[LedgerEntry, ...]) -> None:
        """Record the analyst of a charged line; it counts against the analyst's budget."""
        whose = line.get("analyst", "")
        on = _part(line)
        self._lines_by_analyst.setdefault(whose, []).extend((on, entry) for entry in entries)
        if whose in self._tallies:
            self._tallies[whose].add([(entry.scope, entry.loss) for entry in entries], on)

    def _free(self, part: Part) -> None:
        self._reserved.pop(part, None)
        self._account.free(part)
        if part[0] in self._tallies:
            self._tallies[part[0]].free(part)

    def _spend(self, entries: tuple[LedgerEntry, ...], on: Part | None, note: dict[str, Any]) -> None:
        self._account.record(entries, on, purpose=purpose_of_query(note))

    def _write(self, line: dict[str, Any]) -> None:
        """Keep a line, where there is a file."""


def purpose_of_query(line: Mapping[str, Any]) -> Purpose:
    """Return the fit that a query at a site belongs to: that of its reservation, else of its session.

    The analyst's own description of the fit is quoted.
    """
    analyst = line.get("analyst", "")
    subject = f"fit by analyst {analyst}" if analyst else "fit over sites"
    quoted = stated_in(line)
    return Purpose(
        fit=f"{analyst} {line.get('reservation', line['session'])}",
        subject=f'{subject}, described as "{quoted}"' if quoted else subject,
    )


def stated_in(line: Mapping[str, Any]) -> str:
    """Return the analyst's own description of the fit in a line, as it may be printed; empty without one."""
    text = line.get(PRIVATE, {}).get(STATED, "")
    if not isinstance(text, str):
        raise StorageError(
            f"a line of the site's ledger is not valid, because its entry {STATED!r} is not a text; restore "
            "the latest copy of the ledger"
        )
    return stated_text(text)


def _stated(query: Query) -> dict[str, Any]:
    """Return the part of a line that has the analyst's own description of the fit; empty without one."""
    return {PRIVATE: {STATED: query.purpose}} if query.purpose else {}


def _part(line: Mapping[str, Any]) -> Part | None:
    """Return the reservation that a line of a charge names: of the same analyst, whether it holds or not."""
    return (line.get("analyst", ""), line["reservation"]) if "reservation" in line else None


def reserved_losses(charges: Sequence[Mapping[str, Any]]) -> tuple[Loss, ...]:
    """Return the losses that a query reserves (ArgumentError: they are invalid, or without noise)."""
    if not 1 <= len(charges) <= MOST_LOSSES:
        raise ArgumentError(f"a budget reservation must list 1 to {MOST_LOSSES} privacy losses")
    losses = tuple(map(loss_from_dict, charges))
    if any(map(noise_free, losses)):
        raise ArgumentError(
            "budget cannot be reserved for releases without noise, because their privacy loss is infinite"
        )
    return losses
