"""A ledger in a file: the account that several processes charge in turn and cannot overspend."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

from privinf.accounting.budget import Budget
from privinf.accounting.entries import LedgerEntry
from privinf.accounting.journal import PRIVATE, Anchor, Head, OpenJournal, refuse_lost, tag_after
from privinf.accounting.ledger import (
    FORMAT,
    Ledger,
    MemoryAccount,
    RereadAccount,
    check_budget,
    check_unit_name,
    enlist,
)
from privinf.accounting.purposes import PURPOSES, Purpose, read_purposes, stored_purposes
from privinf.accounting.scopes import Part, Scope
from privinf.error_boundary import error_boundaries
from privinf.errors import ArgumentError, FileMissingError, StorageError
from privinf.secret_files import own_path
from privinf.validation import check_vacant

LONGEST_SPEND = 60.0  # seconds for another process's spend, which takes milliseconds


@error_boundaries
class LedgerFile(Ledger):
    """Budget ledger in a file, which several processes can use at the same time.

    Parameters
    ----------
    path : path
        File on a local disk. The first charge creates the file. If the anchor (see `anchor`) shows that there
        was a ledger at this path before, an error is raised.
    budget : Budget, optional
        Limit of a new ledger. For an existing ledger the same limit may be passed again, but not a different
        limit.
    name : str
        Name of the unit of privacy of a new ledger, such as "person".
    anchor : path, optional
        Second file, in a different folder, that stores the number of lines of the ledger and the tag of the
        last one. By default it is a file in ``~/.local/state/privinf/anchors`` (or in ``$XDG_STATE_HOME``),
        whose name is computed from the path of the ledger.

    Raises
    ------
    StorageError
        Raised if there is no ledger at `path` and no `budget` for a new ledger, or the folder is missing. The
        error is also raised if the file is damaged, is not a ledger, is a ledger of version 1, or has a limit
        other than `budget`. The error is also raised if the file was truncated, replaced, or restored from an
        older copy, or if it has a second name (a hard link). If the file was moved, run ``privinf ledger
        anchor`` to use it in its new place.
    ArgumentError
        Raised if `budget` is not a Budget, or `name` is empty.
    NotAvailableError
        Raised if the operating system has no POSIX file locks.

    Notes
    -----
    **Privacy.** Costs nothing: no rows are read. Each charge locks the file. A charge first reads the charges
    of all processes, then refuses a release that would exceed the limit, and otherwise appends a line. The
    line and the anchor are on the disk when the call returns. If two processes request the rest of a budget
    at the same time, one of them is refused. Therefore the limit cannot be exceeded. A fit with several
    releases checks its total cost first, and then charges each release. If another process spends the rest of
    the budget in the meantime, the next release of the fit is refused with BudgetExceededError. The fit then
    has no result, and its earlier charges are kept. Every line is authenticated with a secret key in the
    first line, so only the owner of the file may read it. With the anchor, privinf detects a ledger that was
    truncated, changed or replaced by an older copy, and refuses it. A running process also keeps the last
    line that it read. If the ledger and the anchor are both replaced by older copies, only a process that has
    the ledger open detects the replacement, so protect both files as you protect the rows. If a `Site` has a
    `LedgerFile`, the cost of a planned fit is checked against the limit but not reserved, so other processes
    may spend this budget before the fit ends.

    Examples
    --------
    >>> import tempfile, privinf as pi
    >>> from privinf.accounting import Budget, GaussianLoss
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ledger = pi.LedgerFile(f"{folder}/clinic.ledger", Budget(mu=1.0))
    ...     ledger.check([GaussianLoss(0.6)])
    ...     len(ledger)
    0
    """

    __slots__ = ()

    def __init__(
        self,
        path: str | PathLike[str],
        budget: Budget | None = None,
        name: str = "person",
        *,
        anchor: str | PathLike[str] | None = None,
    ) -> None:
        check_budget(budget)
        check_unit_name(name)
        place = own_path(path)
        account = FileAccount(place, budget, name, Anchor.for_journal(place, anchor))
        enlist(account)
        self._account = account
        self._scope = ()
        self._fit_name = ""

    @classmethod
    def create(
        cls,
        path: str | PathLike[str],
        budget: Budget,
        name: str = "person",
        *,
        anchor: str | PathLike[str] | None = None,
    ) -> Self:
        """Create the file of a new ledger without charges, and open it.

        Parameters
        ----------
        path : path
            File of the ledger.
        budget : Budget
            Limit of the ledger.
        name : str
            Name of the unit of privacy, such as "person".
        anchor : path, optional
            Second file, which stores the number of lines of the ledger and the tag of the last one. It should
            be on a different disk than the ledger.

        Returns
        -------
        LedgerFile
            The open ledger.

        Raises
        ------
        ArgumentError
            Raised if the file exists already.
        """
        check_vacant(path)
        ledger = cls(path, budget, name, anchor=anchor)
        ledger._account.record(())
        return ledger


class FileAccount(RereadAccount):
    """The account of a ledger file: every access reads the file."""

    read_only = False
    shared = True

    def __init__(self, path: Path, budget: Budget | None, name: str, anchor: Anchor) -> None:
        super().__init__(budget, name, str(uuid4()))
        self.path = path
        self.anchor = anchor
        self._latest: Head | None = None
        self._exists = os.path.lexists(path)
        if self._exists:
            stored = self._current()
            self.budget = stored.budget
            self.name = stored.name
            self.identity = stored.identity
            return
        refuse_lost(path, anchor)
        if budget is None:
            raise FileMissingError(
                f"there is no ledger at {path}; create it with 'privinf ledger create', or pass budget= "
                "to create it in Python"
            )
        if not path.parent.is_dir():
            raise StorageError(f"{path.parent} is not a folder; create it before you create a ledger there")

    def record(
        self, entries: tuple[LedgerEntry, ...], on: Part | None = None, *, purpose: Purpose | None = None
    ) -> None:
        """Record entries, all or none, and return when they have reached the disk."""
        if not os.path.lexists(self.path):  # no file is made for a refused spend
            self._current().record(entries)
        with self._opened(making=True) as (chain, account):
            account.record(entries)
            known = {} if purpose is None else dict.fromkeys([entry.id for entry in entries], purpose)
            self._write(chain, entries, known)

    def absorb(
        self,
        entries: Iterable[LedgerEntry],
        on: Part | None = None,
        *,
        purposes: Mapping[str, Purpose] | None = None,
    ) -> None:
        """Add the entries of another copy of this account."""
        with self._opened(making=True) as (chain, account):
            new = tuple(entry for entry in entries if not account.names(entry.id))
            self._write(chain, new, purposes or {})

    def resume(self) -> None:
        """Do nothing: a file is charged by every process that may write it."""

    def reopened(self, scope: Scope) -> tuple[Any, ...]:
        """Return how to open this file elsewhere: a function and its arguments, for pickle."""
        limit = None if self.budget is None else self.budget.to_dict()
        return _reopen, (str(self.path), limit, self.name, str(self.anchor.path), scope)

    def _current(self) -> MemoryAccount:
        """Return the account of the file; an empty one where no spend has created it yet."""
        if not os.path.lexists(self.path) and not self._exists:
            return MemoryAccount(self.budget, self.name, self.identity)
        with self._opened() as (_, account):
            return account

    @contextmanager
    def _opened(self, *, making: bool = False) -> Iterator[tuple[OpenJournal, MemoryAccount]]:
        """Have the file to oneself for a block: its lines, and the account that they make."""
        header = None
        if making and not self._exists:
            limit = None if self.budget is None else self.budget.to_dict()
            header = {"id": self.identity, "name": self.name, "budget": limit}
        chain = OpenJournal(
            path=self.path, kind=FORMAT, anchor=self.anchor, header=header, patience=LONGEST_SPEND
        )
        try:
            account = _account_of(chain.lines, self.path)
            if self._latest is not None and not chain.knows(self._latest):
                raise StorageError(
                    f"the ledger {self.path} has lost entries that this process had read, because an older "
                    "copy replaced the file; restore the latest copy"
                )
            if self.budget is not None and account.budget != self.budget:
                raise StorageError(
                    f"the ledger {self.path} has the limit {account.budget or 'none'}, not {self.budget}, "
                    "and the limit of a ledger cannot be changed; pass the ledger's own limit, or omit it"
                )
            self._exists = True
            self._latest = chain.head
            self.name = account.name
            self.identity = account.identity  # another process may have made the file first
            enlist(self)
            yield chain, account
        finally:
            chain.close()

    def _write(
        self, chain: OpenJournal, entries: tuple[LedgerEntry, ...], purposes: Mapping[str, Purpose]
    ) -> None:
        """Append entries; their fits go to the private part of the line, on which no tag depends."""
        if entries:
            fits = stored_purposes(purposes, [entry.id for entry in entries])
            tag = _tag_of(chain.lines[0], fits)
            beside = {PRIVATE: {PURPOSES: fits, "tag": tag}} if fits else {}
            chain.append({"charge": [entry.to_dict() for entry in entries], **beside})
            self._latest = chain.head


def _account_of(lines: list[dict[str, Any]], path: Path) -> MemoryAccount:
    """Return the account that the lines of a ledger make (StorageError if they make none)."""
    try:
        header = lines[0]
        budget = None if header["budget"] is None else Budget.from_dict(header["budget"])
        account = MemoryAccount(budget, str(header["name"]), str(header["id"]))
        for line in lines[1:]:
            entries = [LedgerEntry.from_dict(entry) for entry in line.get("charge", ())]
            beside = line.get(PRIVATE)
            if beside is not None and beside["tag"] != _tag_of(header, beside[PURPOSES]):
                raise ArgumentError
            account.absorb(entries, purposes={} if beside is None else read_purposes(beside[PURPOSES]))
        return account
    except (AttributeError, ArgumentError, KeyError, TypeError, ValueError):
        raise StorageError(f"the ledger {path} is damaged; restore its latest copy") from None


def _tag_of(header: Mapping[str, Any], fits: Any) -> str:
    """Return the tag of the fits of a line, which the line's own tag does not cover."""
    return tag_after(str(header["secret"]), PURPOSES, json.dumps(fits, sort_keys=True))


def _reopen(path: str, budget: dict[str, Any] | None, name: str, anchor: str, scope: Scope) -> Ledger:
    ledger = LedgerFile(path, None if budget is None else Budget.from_dict(budget), name, anchor=anchor)
    ledger._scope = scope
    return ledger
