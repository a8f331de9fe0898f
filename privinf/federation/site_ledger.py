"""A site's ledger in a file: charges and answers are on disk before a reply leaves."""

from __future__ import annotations

import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Collection, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from privinf.accounting import Budget, Ledger, LedgerEntry
from privinf.accounting.journal import LOST_ENTRIES, PRIVATE, Anchor, Head, OpenJournal, verified_lines
from privinf.accounting.ledger import MemoryAccount, check_budget, check_unit_name, enlist, ledger_of
from privinf.accounting.purposes import PURPOSES, Purpose, stored_purposes
from privinf.accounting.scopes import Part
from privinf.error_boundary import error_boundaries
from privinf.errors import ArgumentError, PrivinfError, StorageError
from privinf.federation.binding import Bound, Pin
from privinf.federation.envelope import SignedHead
from privinf.federation.messages import Reply
from privinf.federation.sessions import Journal, purpose_of_query
from privinf.secret_files import own_path
from privinf.storage.checksummed import read_bytes
from privinf.wire import Formats

FORMAT = Formats.SITE_LEDGER
Clock = Callable[[], float]
NOT_PICKLED = "a site's ledger is a file that one process uses, so it cannot be pickled"


@error_boundaries
class SiteLedger(Ledger):
    """Budget ledger of a `Site` in a file, which also stores the replies of the site.

    Parameters
    ----------
    path : path
        File on a local disk. The file is created if it does not exist. If the anchor shows that an earlier
        ledger was in this place, an error is raised.
    budget : Budget, optional
        Limit of a new ledger. For an existing ledger the same limit may be passed again, but not a different
        limit.
    name : str
        Name of the unit of privacy of a new ledger, such as "person".
    anchor : path, optional
        Second file, in a different folder, that stores the number of lines of the ledger and the tag of the
        last one. By default it is a file in ``~/.local/state/privinf/anchors`` (or in ``$XDG_STATE_HOME``),
        whose name is computed from the path of the ledger.
    clock : callable
        Function that returns the present time, in seconds since 1970. This time determines which reservations
        have expired.

    Raises
    ------
    StorageError
        Raised if a different process, or a different object in this process, has the ledger open. The error
        is also raised if the file is missing, damaged, truncated, an older copy, a different ledger, or a
        ledger of version 1. The error is also raised if the limit of the ledger differs from `budget`, if the
        ledger has no anchor (run ``privinf ledger anchor``), or if the folder is missing.

    Notes
    -----
    **Privacy.** For every charge one line is appended to the file, with the digest and the position of the
    query. The file also has lines for replies, for new designs, for the last lines of the ledgers of other
    sites, and for the digests of the rows, the schema and the policy. Every line and the anchor are on the
    disk before rows are read or a reply is sent. After a crash a repeated query gets the same reply, or is
    answered for the first time, and is not charged again. An incomplete last line is deleted if the anchor
    shows that no reply depended on it. Every line is authenticated with a secret key in the first line, so
    only the owner of the file may read it. The ledger stores digests of the rows (in their order), the schema
    and the policy of the first `Site` that opens it. A site with different rows, a different schema or a
    different policy is refused until ``Site(..., rebase=True)`` or ``privinf site rebase`` records the
    change. The first `Site` that opens the ledger cannot check whether its rows are complete. The file is
    checked before every reply. If the file was deleted, replaced or changed while the site was running, the
    site answers no more queries. If the ledger and its anchor are both replaced by older copies while no site
    has them open, the site does not detect the replacement. Such a replacement is detected by a server, or by
    a different site, that has stored a later `head` of the ledger.

    Examples
    --------
    >>> import tempfile
    >>> from privinf.accounting import Budget
    >>> from privinf.federation import SiteLedger
    >>> with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as other:
    ...     with SiteLedger(f"{folder}/north.ledger", Budget(mu=1.0), anchor=f"{other}/north") as ledger:
    ...         len(ledger), ledger.head.count
    (0, 1)
    """

    __slots__ = ("journal",)

    def __init__(
        self,
        path: str | PathLike[str],
        budget: Budget | None = None,
        name: str = "record",
        *,
        anchor: str | PathLike[str] | None = None,
        clock: Clock = time.time,
    ) -> None:
        check_budget(budget)
        check_unit_name(name)
        place = own_path(path)
        self.journal = FileJournal(
            path=place, anchor=Anchor.for_journal(place, anchor), budget=budget, name=name, clock=clock
        )
        self._account = self.journal.account
        self._scope = ()
        self._fit_name = ""

    @classmethod
    def open(
        cls, path: str | PathLike[str], *, anchor: str | PathLike[str] | None = None, clock: Clock = time.time
    ) -> SiteLedger:
        """Open an existing ledger, without creating one.

        Parameters
        ----------
        path : path
            File of the ledger.
        anchor : path, optional
            Second file, which stores the last line of the ledger. It should be on a different disk than the
            ledger.
        clock : callable
            Function that returns the time in seconds since 1970, for tests.

        Returns
        -------
        SiteLedger
            The open ledger.

        Raises
        ------
        StorageError
            Raised if the file does not exist, is damaged, or is older than its anchor.
        """
        place = own_path(path)
        ledger = cls.__new__(cls)
        ledger.journal = FileJournal(
            path=place, anchor=Anchor.for_journal(place, anchor), budget=None, name=None, clock=clock
        )
        ledger._account = ledger.journal.account
        ledger._scope = ()
        ledger._fit_name = ""
        return ledger

    @property
    def head(self) -> Head:
        """Number of lines of the file, and the authentication tag of the last line."""
        return self.journal.head

    def knows(self, head: Head) -> bool:
        """Return whether this ledger has, or had, a given last line.

        Parameters
        ----------
        head : head of a ledger
            Number of lines of a ledger and the authentication tag of its last line, as `head` returns them.

        Returns
        -------
        bool
            True if the ledger is in this state, or was in this state earlier.
        """
        return self.journal.knows(head)

    def close(self) -> None:
        """Close the file, so that another process can open the ledger."""
        self.journal.close()

    def __enter__(self) -> SiteLedger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise TypeError(NOT_PICKLED)


class JournalAccount(MemoryAccount):
    """The account in a site's file: direct spends are written there too."""

    def __init__(self, budget: Budget | None, name: str, identity: str) -> None:
        super().__init__(budget, name, identity)
        self.journal: FileJournal | None = None

    def record(
        self,
        entries: tuple[LedgerEntry, ...],
        on: Part | None = None,
        note: dict[str, Any] | None = None,
        *,
        purpose: Purpose | None = None,
    ) -> None:
        """Record entries, all or none, and return when they, with the note, have reached the disk."""
        if self.journal is None:
            raise StorageError("the site's ledger is not open; open it with SiteLedger.open")
        self.journal.watch()
        super().record(entries, on, purpose=purpose)
        line: dict[str, Any] = {"charge": [entry.to_dict() for entry in entries], **(note or {})}
        if note is None and purpose is not None:  # the note of a query names its fit
            fits = stored_purposes({entry.id: purpose for entry in entries}, [entry.id for entry in entries])
            line[PRIVATE] = {PURPOSES: fits}
        self.journal.append(line)

    def reopened(self, scope: object) -> Any:
        """Refuse: the file has one owner."""
        raise TypeError(NOT_PICKLED)


class FileJournal(Journal):
    """A `Journal` whose every line is on disk, chained and anchored, before it counts."""

    def __init__(
        self, path: Path, anchor: Anchor, budget: Budget | None, name: str | None, clock: Clock = time.time
    ) -> None:
        self.path = path
        limit = None if budget is None else budget.to_dict()
        header = None if name is None else {"name": name, "budget": limit}
        self.pin: Pin | None = None
        self.rebases = 0
        self.latest_change = tuple[str, ...]()
        self.orders = 1  # how many orders of rows there were: batches are disjoint within one of them
        self._chain = OpenJournal(path, FORMAT, anchor, header)
        try:
            self._open(budget, clock)
        except BaseException:
            self._chain.close()
            raise

    def _open(self, budget: Budget | None, clock: Clock) -> None:
        """Read the lines into memory."""
        self.account = _account_of(self._chain.lines[0], self.path)
        if budget is not None and self.account.budget != budget:
            raise StorageError(
                f"the ledger {self.path} has a limit that differs from budget= and cannot be changed; "
                "omit budget="
            )
        super().__init__(ledger_of(self.account), clock)
        if not all(map(self._replayed, self._chain.lines[1:])):
            raise StorageError(f"the ledger {self.path} is damaged; restore its latest copy")
        self._chain.lines[1:] = []
        self.account.journal = self
        enlist(self.account)

    @property
    def head(self) -> Head:
        """Number of lines of the file, and the authentication tag of the last line."""
        return self._chain.head

    def knows(self, head: Head) -> bool:
        """Return whether this file's own chain has this head."""
        return self._chain.knows(head)

    def watch(self) -> None:
        """Raise StorageError if the file is closed, gone, replaced or changed."""
        self._chain.watch()

    def _replayed(self, line: dict[str, Any]) -> bool:
        """Read a line; return whether it is valid."""
        try:
            self._replay(line)
        except Exception:  # a line that somebody wrote with its checksum may hold anything
            return False
        return True

    def _replay(self, line: dict[str, Any]) -> None:
        self.take_up(line)
        if "bound" in line:
            self._rebound(Pin.from_line(line), line.get("rebase", ()))
        for name, text in line.get("heads", {}).items():
            self.peers[name] = SignedHead.from_text(text)
        if "reply" in line:
            arrays = {name: _read_array(record) for name, record in line["arrays"].items()}
            self._replies[line["digest"]] = Reply.unpack(line["reply"], arrays)

    def keep(self, digest: str, reply: Reply) -> None:
        """Remember a reply: on disk when this returns."""
        text, arrays = reply.pack()
        stored = {name: _write_array(array) for name, array in arrays.items()}
        self.append({"digest": digest, "reply": text, "arrays": stored})
        super().keep(digest, reply)

    def _spend(self, entries: tuple[LedgerEntry, ...], on: Part | None, note: dict[str, Any]) -> None:
        self.account.record(entries, on, note, purpose=purpose_of_query(note))

    def _write(self, line: dict[str, Any]) -> None:
        self.append(line)

    def bind(self, site: Bound, *, rebase: bool) -> FileJournal:
        """Pin the site's rows, schema and policy, or compare them with the pinned ones; return this journal.

        Raises
        ------
        StorageError
            They differ, and `rebase` does not state that this is intended.
        """
        secret = str(self._chain.lines[0]["secret"])
        changed = () if self.pin is None else self.pin.changed(site, secret)
        if self.pin is not None and changed and not rebase:
            raise StorageError(
                f"since the ledger {self.path} was last opened, these have changed: "
                f"{self.pin.description(changed, site.rows)}. Restore them, or record the change with "
                "'privinf site rebase', which keeps all charges"
            )
        if self.pin is None or changed:
            pin = Pin.from_site(site, secret)
            self.append(pin.line(changed))
            self._rebound(pin, changed)
        return self

    def _rebound(self, pin: Pin, changed: Collection[str]) -> None:
        """Read a pin; queries charged for other rows are not answered from these."""
        self.pin = pin
        if changed:
            self.rebases = self.rebases + 1
            self.latest_change = tuple(changed)
        self.orders += "rows" in changed
        if {"rows", "schema"}.intersection(changed):
            self.outdate()

    def place(self, name: str) -> str:
        """Return the name under which batches of a site's rows are filed: another one after a rebase."""
        return name if self.orders == 1 else f"{name}, rows {self.orders}"

    def witness(self, heads: Mapping[str, SignedHead]) -> None:
        """Keep heads of other sites: on disk when this returns."""
        self.append({"heads": {name: head.text for name, head in heads.items()}})
        super().witness(heads)

    def append(self, line: dict[str, Any]) -> None:
        """Write a line and return when it, and the anchor, have reached the disk."""
        self._chain.append(line)

    def close(self) -> None:
        """Close the file and let go of the lock."""
        self._chain.close()


def read_site_ledger(path: Path, clock: Clock = time.time) -> Journal:
    """Return a site's ledger, read-only; a site may have it open meanwhile.

    Raises
    ------
    StorageError
        It is damaged, or no site's ledger of version 2; or its anchor, if that is in its usual place, records
        entries that the file does not have.
    """
    lines = _lines_of(path)
    journal = Journal(ledger_of(_account_of(lines[0], path)), clock)
    try:
        for line in lines[1:]:
            journal.take_up(line)
    except (PrivinfError, AttributeError, KeyError, TypeError, ValueError):
        raise StorageError(f"the ledger {path} is damaged; restore its latest copy") from None
    journal.expire()
    return journal


def read_pins(path: Path) -> list[Mapping[str, Any]]:
    """Return the bindings of a site's ledger, in order: `rows`, and the parts `changed` by a rebase.

    Digests are left out: they stay in the file.
    """
    pins = [line for line in _lines_of(path) if "bound" in line]
    return [{"rows": line["bound"]["rows"], "changed": line.get("rebase", [])} for line in pins]


def _lines_of(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a site's ledger, which has at least the entries that its anchor records."""
    anchored = _anchored(path)  # read first, because a running site writes the line before the anchor
    content = read_bytes(path, "a site's ledger", most=None, secret="ledger")
    lines, tags = verified_lines(content[: content.rfind(b"\n") + 1], path, FORMAT)
    if anchored is not None:
        identity, head = anchored
        if identity == lines[0]["id"] and head.count and tags[head.count - 1 : head.count] != [head.tag]:
            raise StorageError(LOST_ENTRIES.format(path))
    return lines


def _anchored(path: Path) -> tuple[str, Head] | None:
    """Return what the anchor in its usual place records; None without one."""
    try:
        anchor = Anchor.for_journal(own_path(path))
    except StorageError:  # no home folder
        return None
    return anchor.read()


def _account_of(header: dict[str, Any], path: Path) -> JournalAccount:
    try:
        budget = None if header["budget"] is None else Budget.from_dict(header["budget"])
        return JournalAccount(budget, str(header["name"]), str(header["id"]))
    except (ArgumentError, KeyError, TypeError):
        raise StorageError(f"the ledger {path} is damaged; restore its latest copy") from None


def _write_array(array: np.ndarray[Any, Any]) -> dict[str, Any]:
    little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    words = b64encode(little.tobytes()).decode()
    return {"dtype": little.dtype.str, "shape": list(array.shape), "bytes": words}


def _read_array(record: dict[str, Any]) -> np.ndarray[Any, Any]:
    content = b64decode(record["bytes"], validate=True)
    array = np.frombuffer(content, dtype=record["dtype"]).reshape(record["shape"])
    return array.astype(array.dtype.newbyteorder("="))
