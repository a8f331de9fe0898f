"""Ledger: the record of all spends, which refuses those that would exceed its limit."""

from __future__ import annotations

import itertools
import json
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any
from uuid import uuid4
from weakref import WeakValueDictionary

from privinf.accounting.budget import Budget
from privinf.accounting.composition import ParallelTotal, Total
from privinf.accounting.entries import LedgerEntry, check_joined, check_units
from privinf.accounting.losses import INTACT_FILE, Loss
from privinf.accounting.purposes import (
    LONGEST_NAME,
    PURPOSES,
    PURPOSES_SEAL,
    LedgerFits,
    Purpose,
    fits_of,
    purpose_of,
    read_purposes,
    running_fit,
    stated_text,
    stored_purposes,
    title_of,
)
from privinf.accounting.scopes import Part, Scope, Tally, check_scope, cost_of, scope_component, total_of
from privinf.error_boundary import error_boundaries
from privinf.errors import ArgumentError, BudgetExceededError, StorageError
from privinf.notebook import html_table
from privinf.storage.checksummed import checksum, checksummed_json, parse_json, reads, verified_record
from privinf.validation import error_text, is_unicode
from privinf.wire import Formats, readable

FORMAT = Formats.LEDGER
_VERSION = 1  # of a ledger's text
_FIELDS = ("format", "version", "id", "name", "budget", "spent", "entries")


@error_boundaries
class Ledger:
    """Budget ledger: all releases about the same units, with an optional hard limit on their total cost.

    Parameters
    ----------
    budget : Budget, optional
        Limit of the ledger. With None, releases are recorded and never refused.
    name : str
        Name of the unit of privacy, such as "person", for reports.

    Raises
    ------
    ArgumentError
        Raised if `budget` is not a Budget or `name` is empty.

    Notes
    -----
    **Privacy.** Costs nothing: no rows are read. A mechanism records the cost of a release in the ledger
    before it reads rows. A refusal therefore does not depend on any row, and an error after the charge does
    not undo the charge. Costs are added as exact rational numbers, in the currency of the limit (mu^2, rho or
    epsilon). Charges are atomic over threads. A copy of the object refers to the same ledger, and a pickle or
    a JSON text contains all charges. If a pickle or text is loaded in a process in which the ledger still
    exists, the loaded object refers to that ledger. In any other process the loaded ledger can only be read,
    because charges to other copies would not be counted. A ledger with a limit can only be read in a forked
    process, too. A limit is enforced in one process only. For several processes, split the budget over them,
    or keep the ledger in a `LedgerFile`.

    Examples
    --------
    >>> import privinf as pi
    >>> from privinf.accounting import GaussianLoss
    >>> ledger = pi.Ledger(pi.Budget(mu=1.0))
    >>> ledger.check([GaussianLoss(0.6), GaussianLoss(0.8)])  # fits exactly: 0.36 + 0.64 = 1
    >>> ledger.total().mu
    0.0
    """

    __slots__ = ("_account", "_fit_name", "_scope")

    def __init__(self, budget: Budget | None = None, name: str = "person") -> None:
        check_budget(budget)
        check_unit_name(name)
        self._account: Account = enlist(MemoryAccount(budget, name, str(uuid4())))
        self._scope: Scope = ()
        self._fit_name = ""

    @property
    def budget(self) -> Budget | None:
        """Limit of the ledger, which applies to all scopes together; None without a limit."""
        return self._account.budget

    @property
    def name(self) -> str:
        """Name of the unit of privacy."""
        return self._account.name

    @property
    def entries(self) -> tuple[LedgerEntry, ...]:
        """The entries that were recorded in this scope and in its nested scopes, in order."""
        depth = len(self._scope)
        return tuple(entry for entry in self._account.snapshot() if entry.scope[:depth] == self._scope)

    def spend(self, *entries: LedgerEntry) -> tuple[LedgerEntry, ...]:
        """Record the cost of releases before they are made; all entries are recorded, or none.

        Parameters
        ----------
        *entries : LedgerEntry
            Ledger entries of the releases.

        Returns
        -------
        tuple of LedgerEntry
            The recorded entries, each with its full scope.

        Raises
        ------
        BudgetExceededError
            Raised if the releases would exceed the limit of the ledger; nothing is then recorded. Call
            `spend` before rows are read.
        ArgumentError
            Raised if an entry is not a LedgerEntry, was recorded before, or protects a different unit than
            the limit. The error is also raised if zero-out and replace-one relations would be mixed, or if
            the ledger was loaded and can only be read.
        """
        for entry in entries:
            if not isinstance(entry, LedgerEntry):
                raise ArgumentError(
                    f"entries= must be a sequence of LedgerEntry objects, got {type(entry).__name__}"
                )
        placed = tuple(entry.within(self._scope) for entry in entries)
        self._account.record(placed, purpose=purpose_of(placed, self._fit_name))
        return placed

    def find(self, entry: LedgerEntry) -> LedgerEntry | None:
        """Return the recorded entry that is equal to a given entry.

        Parameters
        ----------
        entry : LedgerEntry
            Entry to find. All fields of the recorded entry must be equal to the fields of this entry, not
            only the id.

        Returns
        -------
        LedgerEntry or None
            The recorded entry with its full scope, or None if no equal entry was recorded.
        """
        placed = entry.within(self._scope)
        return placed if self._account.holds(placed) else None

    def number_fit(self, entries: Iterable[LedgerEntry]) -> int | None:
        """Return the number of a fit among the fits of this ledger, counted from 1.

        Parameters
        ----------
        entries : iterable of LedgerEntry
            The releases of the fit.

        Returns
        -------
        int or None
            The number of the fit. It is None if the ledger has no entry of this fit, or has earlier entries
            of unknown fits.
        """
        return self._account.number_fit([entry.id for entry in entries])

    def check(self, losses: Loss | Iterable[Loss], scope: Sequence[str] = ()) -> None:
        """Raise BudgetExceededError if the planned `losses` would exceed the limit; nothing is recorded.

        Call `check` before a long computation. The method does not reserve budget; only `spend` does.

        Parameters
        ----------
        losses : Loss or iterable of Loss
            Privacy losses of the planned releases.
        scope : sequence of str
            Names of the scopes under which the losses would be recorded.

        Raises
        ------
        BudgetExceededError
            Raised if the losses would exceed the limit of the ledger.
        ArgumentError
            Raised if the ledger was loaded from a text or a pickle and can only be read.
        """
        checked = (losses,) if isinstance(losses, Loss) else tuple(losses)
        for loss in checked:
            if not isinstance(loss, Loss):
                raise ArgumentError(
                    "losses= must contain privacy loss objects, such as GaussianLoss(mu=1.0), got "
                    f"{type(loss).__name__}"
                )
        path = self._scope + check_scope(scope)
        self._account.check([(path, loss) for loss in checked], "these releases")

    def scope(self, name: str, *, disjoint: str | None = None) -> Ledger:
        """Return an object that records entries in the scope `name` of this ledger.

        Parameters
        ----------
        name : str
            Name of the scope, which is a group of ledger entries. If `disjoint` is passed, `name` is the name
            of one group of units in the partition `disjoint`.
        disjoint : str, optional
            Name of a partition of all **units** into disjoint groups. The partition must be fixed before the
            data are seen. The scopes of one partition contain different units, so only the cost of the most
            expensive scope counts. Without `disjoint`, the costs of scopes add up.

        Returns
        -------
        Ledger
            An object for the same ledger.

        Raises
        ------
        ArgumentError
            Raised if a name is empty or contains ``=``.
        """
        return ledger_of(self._account, (*self._scope, scope_component(name, disjoint)), self._fit_name)

    def named(self, name: str) -> Ledger:
        """Return an object for the same ledger that lists its charges under a name.

        Parameters
        ----------
        name : str
            Name of the fit for readers of the ledger, such as "table 2"; at most 200 characters. The name is
            public. It has no effect on the cost, the noise or the scope of a release. If sites of a
            federation are queried, the name is sent to the sites, together with the model and the formula.

        Returns
        -------
        Ledger
            An object for the same ledger, to pass as ``ledger=``.

        Raises
        ------
        ArgumentError
            Raised if `name` is empty or too long.

        Examples
        --------
        >>> import privinf as pi
        >>> from privinf.mechanisms import noisy_scalar
        >>> ledger = pi.Ledger(pi.Budget(mu=1.0))
        >>> released = noisy_scalar(3.0, 0.001, mu=0.4, rng=0, ledger=ledger.named("table 2"))
        >>> [fit.name for fit in ledger.fits], ledger.count_more()
        (['table 2'], 5)
        """
        if not isinstance(name, str) or not name.strip():
            raise ArgumentError("name= of a fit in a ledger must be a non-empty string")
        if not is_unicode(name):
            raise ArgumentError("name= of a fit in a ledger must contain only Unicode characters")
        line = " ".join(name.split())
        if len(line) > LONGEST_NAME:
            raise ArgumentError(f"name= of a fit in a ledger must have at most {LONGEST_NAME} characters")
        return ledger_of(self._account, self._scope, line)

    @property
    def fits(self) -> LedgerFits:
        """The fits with entries in this scope, in order, each with its formula or statistic and its name.

        The attribute is a tuple of `LedgerFit` objects, and prints as a table with the cost of each fit. The
        entries of ledgers of earlier versions, which did not record the fit, are grouped by their labels.
        """
        return fits_of(
            self.entries, self._account.purposes(), None if self.budget is None else self.budget.delta
        )

    def count_more(self) -> int | None:
        """Return how many further fits the limit allows, if each of them costs as much as the last fit.

        Returns
        -------
        int or None
            The number of further fits; None if there is no limit or no earlier fit.
        """
        rest = self.remaining()
        fits = self.fits
        if self.budget is None or rest is None or not fits:
            return None
        cost = cost_of(self.budget, [(entry.scope, entry.loss) for entry in fits[-1].entries])
        return None if not cost else int(rest.limit // cost)

    def total(self) -> Total | ParallelTotal:
        """Return the joint privacy loss of all releases in this scope, for the unit with the largest loss.

        Returns
        -------
        Total or ParallelTotal
            The joint loss: a `ParallelTotal` if disjoint scopes were used, and otherwise a `Total`.
        """
        depth = len(self._scope)
        return total_of((entry.scope[depth:], entry.loss) for entry in self.entries)

    def remaining(self) -> Budget | None:
        """Return the remaining budget of this scope.

        Returns
        -------
        Budget or None
            The remaining budget, which may be 0; None if the ledger has no limit.
        """
        return self._account.remaining(self._scope)

    def to_json(self) -> str:
        """Return the ledger with all its scopes as JSON text with a checksum.

        Returns
        -------
        str
            For `from_json`.
        """
        purposes = {PURPOSES: self._account.stored_purposes()}
        beside = purposes | {PURPOSES_SEAL: checksum(purposes)}
        return checksummed_json(self._account.to_dict(), beside=beside, indent=1)

    @classmethod
    def from_json(cls, text: str, *, resume: bool = False) -> Ledger:
        """Read a ledger from JSON text, and recompute its total from its entries.

        If the same ledger exists in this process, the charges in the text are merged into the existing
        ledger, and the method returns an object that refers to the existing ledger. If the ledger does not
        exist in this process, the loaded ledger can be read but not charged. Charges are refused because a
        person with an older text or another copy could otherwise spend the same budget again.

        Parameters
        ----------
        text : str
            Result of `to_json`.
        resume : bool
            Whether the loaded ledger can be charged. With True the holder of the data confirms that the text
            is the latest state of the ledger, and that no other copy will be charged. For a ledger that is
            used by several processes one after the other, use a `LedgerFile`, which needs no confirmation.

        Returns
        -------
        Ledger
            The ledger, which can only be read unless `resume` is true.

        Raises
        ------
        StorageError
            Raised if the text is not a ledger, is a ledger of a different version, or was changed after it
            was written.

        Notes
        -----
        Texts that earlier versions of privinf wrote can be read too, although they do not describe the fits.
        For such a text, `fits` groups the entries by their labels.

        Examples
        --------
        >>> import privinf as pi
        >>> text = pi.Ledger(pi.Budget(mu=1.0)).to_json()  # that ledger is gone
        >>> pi.Ledger.from_json(text)
        <Ledger of one person: 0 fits, epsilon <= 4.88655 at delta 1e-06 (mu <= 1), read-only>
        >>> pi.Ledger.from_json(text, resume=True)
        <Ledger of one person: 0 fits, epsilon <= 4.88655 at delta 1e-06 (mu <= 1)>
        """
        ledger = _open(text, ())
        if resume:
            ledger._account.resume()
        return ledger

    def __copy__(self) -> Ledger:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Ledger:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        reopen, arguments = self._account.reopened(self._scope)
        if self._fit_name:
            return _open_named, (self._fit_name, reopen, arguments)
        return reopen, arguments

    def __len__(self) -> int:
        return len(self.entries)

    def __bool__(self) -> bool:
        """A ledger is there even when it is empty: ``ledger or Ledger()`` must not open a second account."""
        return True

    def __repr__(self) -> str:
        limit = "no limit" if self.budget is None else str(self.budget)
        scope = "".join(f", {component}" for component in self._scope)
        mode = ", read-only" if self._account.read_only else ""
        return f"<{type(self).__name__} of one {self.name}{scope}: {self.fits.counted}, {limit}{mode}>"

    def _repr_html_(self) -> str:
        rows = [
            (fit.title, readable(entry.label), entry.mechanism, entry.loss, entry.trust)
            for fit in self.fits
            for entry in fit.entries
        ]
        return html_table(("fit", "label", "mechanism", "loss", "trust"), rows, repr(self).strip("<>"))


def check_budget(budget: object) -> None:
    """Raise ArgumentError unless the argument is a Budget or None."""
    if not (budget is None or isinstance(budget, Budget)):
        raise ArgumentError(f"budget= must be a Budget or None, got {type(budget).__name__}")


def check_unit_name(name: object) -> None:
    """Raise ArgumentError unless a ledger can have this name: that of its privacy unit."""
    if not isinstance(name, str) or not name.strip() or not is_unicode(name):
        raise ArgumentError(
            "name=, the privacy unit that the limit protects, must be a non-empty string of Unicode "
            "characters"
        )


def check_ledger(ledger: Ledger | None) -> Ledger:
    """Return the account to charge, one without a limit by default (ArgumentError if it is none)."""
    if ledger is not None and not isinstance(ledger, Ledger):
        raise ArgumentError(f"ledger= must be a privinf.Ledger, got {type(ledger).__name__}")
    return Ledger() if ledger is None else ledger


class Account(ABC):
    """The account of a ledger: the whole protocol, with no state but its public attributes.

    `Ledger` delegates everything to its account, so each kind must implement all of it: a method that a kind
    leaves out cannot be made, and none can be inherited that reads a state which the kind does not keep.

    Attributes
    ----------
    budget : Budget or None
    name : str
        Name of the unit of privacy.
    identity : str
        The same in every copy of it.
    read_only : bool
        It was loaded, or forked with its process, and may not be charged.
    shared : bool
        Other processes see its spends.
    """

    budget: Budget | None
    name: str
    identity: str
    read_only: bool
    shared: bool

    @abstractmethod
    def snapshot(self) -> tuple[LedgerEntry, ...]:
        """Return all entries, in order."""

    @abstractmethod
    def holds(self, entry: LedgerEntry) -> bool:
        """Return whether this very entry was recorded."""

    @abstractmethod
    def purposes(self) -> dict[str, Purpose]:
        """Return the fit or statistic of each entry by its id, as far as they were recorded."""

    @abstractmethod
    def record(
        self, entries: tuple[LedgerEntry, ...], on: Part | None = None, *, purpose: Purpose | None = None
    ) -> None:
        """Record entries, on a reservation or none, all or none (BudgetExceededError, ArgumentError)."""

    @abstractmethod
    def check(self, spends: list[tuple[Scope, Loss]], subject: str) -> None:
        """Raise BudgetExceededError if the spends would exceed the limit; `subject` names them."""

    @abstractmethod
    def hold(self, part: Part, losses: Sequence[Loss], subject: str = "") -> None:
        """Reserve losses for charges to come (BudgetExceededError); arguments as for `Tally.hold`."""

    @abstractmethod
    def free(self, part: Part) -> None:
        """Return the uncharged amount of a reservation."""

    @abstractmethod
    def number_fit(self, identities: list[str]) -> int | None:
        """Return the number of the fit with these lines; None for none, or after lines of no fit."""

    @abstractmethod
    def resume(self) -> None:
        """Let an account that was loaded be charged again."""

    @abstractmethod
    def remaining(self, scope: Scope) -> Budget | None:
        """Return the remaining budget at `scope`, None without a limit."""

    @abstractmethod
    def absorb(
        self,
        entries: Iterable[LedgerEntry],
        on: Part | None = None,
        *,
        purposes: Mapping[str, Purpose] | None = None,
    ) -> None:
        """Add entries that another copy of this account recorded; as facts they pass no limit check."""

    @abstractmethod
    def reopened(self, scope: Scope) -> tuple[Any, ...]:
        """Return how to open this account elsewhere: a function and its arguments, for pickle."""

    @abstractmethod
    def stored_purposes(self) -> list[dict[str, Any]]:
        """Return the fits of the entries for JSON."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary that can be written as JSON."""


class FitNumbers:
    """Lines by fit of this process; a file does not record them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._fits: dict[str, int] = {}

    def number(self, identities: list[str], recorded: Sequence[str]) -> int | None:
        """Return the number of the fit with these lines among all lines, as `Account.number_fit` does."""
        recorded_ids = set(recorded)
        fit_ids = [key for key in identities if key in recorded_ids]
        if not fit_ids:
            return None
        with self._lock:
            number = self._fits.get(fit_ids[0], 1 + max(self._fits.values(), default=0))
            self._fits |= dict.fromkeys(fit_ids, number)
            earlier = itertools.takewhile(lambda key: key != fit_ids[0], recorded)
            return number if all(key in self._fits for key in earlier) else None


class MemoryAccount(Account):
    """An account in the memory of one process; every change and every reading holds the lock."""

    def __init__(self, budget: Budget | None, name: str, identity: str) -> None:
        self.budget = budget
        self.name = name
        self.identity = identity
        self.read_only = False
        self.shared = False  # shared: other processes see its spends
        self._lock = threading.Lock()
        self._entries: dict[str, LedgerEntry] = {}
        self._purposes: dict[str, Purpose] = {}
        self._fits = FitNumbers()
        self._relations: set[str] = set()
        self._tally = None if budget is None else Tally(budget, f"one {name}")

    def snapshot(self) -> tuple[LedgerEntry, ...]:
        """Return all entries, in order."""
        with self._lock:
            return tuple(self._entries.values())

    def purposes(self) -> dict[str, Purpose]:
        """Return the fit or statistic of each entry by its id, as far as they were recorded."""
        with self._lock:
            return dict(self._purposes)

    def names(self, identity: str) -> bool:
        """Return whether an entry of this id was recorded."""
        with self._lock:
            return identity in self._entries

    def holds(self, entry: LedgerEntry) -> bool:
        """Return whether this very entry was recorded."""
        with self._lock:
            return self._entries.get(entry.id) == entry

    def record(
        self, entries: tuple[LedgerEntry, ...], on: Part | None = None, *, purpose: Purpose | None = None
    ) -> None:
        """Record entries, on a reservation or none, all or none (BudgetExceededError, ArgumentError)."""
        identities = [entry.id for entry in entries]
        with self._lock:
            self._require_open()
            if len(set(identities)) < len(identities) or any(key in self._entries for key in identities):
                raise ArgumentError(
                    "an entry with this id is already in the ledger; create a new entry for every release"
                )
            relations = self._relations | {entry.relation for entry in entries}
            check_joined(relations)
            first = next(itertools.chain(self._entries.values(), entries), None)
            if self.budget is not None and first is not None:
                check_units(first.unit, entries)
            if self._tally is not None:
                spends = [(entry.scope, entry.loss) for entry in entries]
                self._tally.charge(spends, named_labels(entries), on)
            self._entries |= {entry.id: entry for entry in entries}
            self._relations = relations
            if purpose is not None:
                self._purposes |= dict.fromkeys(identities, purpose)

    def check(self, spends: list[tuple[Scope, Loss]], subject: str) -> None:
        """Raise BudgetExceededError if the spends would exceed the limit; `subject` names them."""
        with self._lock:
            self._require_open()
            if self._tally is not None:
                self._tally.charge(spends, subject, keep=False)

    def hold(self, part: Part, losses: Sequence[Loss], subject: str = "") -> None:
        """Reserve losses for charges to come (BudgetExceededError); arguments as for `Tally.hold`."""
        with self._lock:
            self._require_open()
            if self._tally is not None:
                self._tally.hold(part, losses, subject)

    def free(self, part: Part) -> None:
        """Return the uncharged amount of a reservation."""
        with self._lock:
            if self._tally is not None:
                self._tally.free(part)

    def number_fit(self, identities: list[str]) -> int | None:
        """Return the number of the fit with these lines; None for none, or after lines of no fit."""
        with self._lock:
            recorded = list(self._entries)
        return self._fits.number(identities, recorded)

    def resume(self) -> None:
        """Let an account that was loaded be charged again."""
        self.read_only = False

    def _require_open(self) -> None:
        if self.read_only:
            raise ArgumentError(
                "this ledger is a copy that cannot be charged, because the original may be charged "
                "too. If this is the latest copy and no other is in use, open it with "
                "Ledger.from_json(text, resume=True). To share a ledger between processes, use a "
                "LedgerFile. Nothing was recorded or released"
            )

    def remaining(self, scope: Scope) -> Budget | None:
        """Return the remaining budget at `scope`, None without a limit."""
        if self.budget is None or self._tally is None:
            return None
        with self._lock:
            amount = self._tally.remaining(scope)
        record = self.budget.to_dict() | {"limit": str(max(amount, Fraction(0)))}
        return Budget.from_dict(record)

    def absorb(
        self,
        entries: Iterable[LedgerEntry],
        on: Part | None = None,
        *,
        purposes: Mapping[str, Purpose] | None = None,
    ) -> None:
        """Add entries that another copy of this account recorded; as facts they pass no limit check."""
        with self._lock:
            for identity, purpose in (purposes or {}).items():
                self._purposes.setdefault(identity, purpose)
            for entry in entries:
                if entry.id not in self._entries:
                    self._entries[entry.id] = entry
                    self._relations.add(entry.relation)
                    if self._tally is not None:
                        self._tally.add([(entry.scope, entry.loss)], on)

    def reopened(self, scope: Scope) -> tuple[Any, ...]:
        """Return how to open this account elsewhere: a function and its arguments, for pickle."""
        record = self.to_dict() | {PURPOSES: self.stored_purposes()}
        return _open, (json.dumps(record, allow_nan=False), scope)

    def stored_purposes(self) -> list[dict[str, Any]]:
        """Return the fits of the entries for JSON."""
        with self._lock:
            return stored_purposes(self._purposes, self._entries)

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary that can be written as JSON."""
        with self._lock:
            return {
                "format": FORMAT,
                "version": _VERSION,
                "id": self.identity,
                "name": self.name,
                "budget": None if self.budget is None else self.budget.to_dict(),
                "spent": None if self._tally is None else str(self._tally.spent),
                "entries": [entry.to_dict() for entry in self._entries.values()],
            }


class RereadAccount(Account):
    """An account whose entries are stored elsewhere and read from there."""

    def __init__(self, budget: Budget | None, name: str, identity: str) -> None:
        self.budget = budget
        self.name = name
        self.identity = identity
        self._fits = FitNumbers()

    @abstractmethod
    def _current(self) -> MemoryAccount:
        """Return the current account, with all its entries."""

    def snapshot(self) -> tuple[LedgerEntry, ...]:
        """Return all entries, in order."""
        return self._current().snapshot()

    def purposes(self) -> dict[str, Purpose]:
        """Return the fit or statistic of each entry by its id, as far as they were recorded."""
        return self._current().purposes()

    def stored_purposes(self) -> list[dict[str, Any]]:
        """Return the fits of the entries for JSON."""
        return self._current().stored_purposes()

    def holds(self, entry: LedgerEntry) -> bool:
        """Return whether this very entry was recorded."""
        return self._current().holds(entry)

    def check(self, spends: list[tuple[Scope, Loss]], subject: str) -> None:
        """Raise BudgetExceededError if the spends would exceed the limit; `subject` names them."""
        self._current().check(spends, subject)

    def hold(self, part: Part, losses: Sequence[Loss], subject: str = "") -> None:
        """Raise BudgetExceededError if losses exceed the limit: nothing is held from other processes."""
        if subject:
            self.check([((), loss) for loss in losses], subject)

    def free(self, part: Part) -> None:
        """Give back nothing, since nothing is held."""

    def number_fit(self, identities: list[str]) -> int | None:
        """Return the number of the fit with these lines; None for none, or after lines of no fit."""
        return self._fits.number(identities, [entry.id for entry in self.snapshot()])

    def remaining(self, scope: Scope) -> Budget | None:
        """Return the remaining budget at `scope`, None without a limit."""
        return self._current().remaining(scope)

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary that can be written as JSON."""
        return self._current().to_dict()


# Accounts of this process by identity, so that two ledgers of one file share theirs.
_LIVE: WeakValueDictionary[str, Account] = WeakValueDictionary()
_LIVE_LOCK = threading.Lock()  # for changes of `_LIVE`


def _forked() -> None:
    """Let accounts with a limit be read only in a child: its parent may spend the same limit."""
    for account in list(_LIVE.values()):
        account.read_only |= account.budget is not None and not account.shared


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


@reads("a ledger")
def read_account(text: str) -> MemoryAccount:
    """Return the account that JSON text holds, beside any that is alive (StorageError if it holds none)."""
    content = parse_json(text, "the text of a ledger")
    stored = _described_fits(content) if isinstance(content, dict) else ()
    record = verified_record(content, "a ledger", _FIELDS)
    if (record.get("format"), record.get("version")) != (FORMAT, _VERSION):
        raise StorageError(
            "this version of privinf cannot read the text as a ledger; update privinf, or use another text"
        )
    try:
        budget = None if record["budget"] is None else Budget.from_dict(record["budget"])
        account = MemoryAccount(budget, str(record["name"]), str(record["id"]))
        account.absorb(
            [LedgerEntry.from_dict(entry) for entry in record["entries"]], purposes=read_purposes(stored)
        )
        if account.to_dict()["spent"] == record["spent"]:
            return account
        reason = "the sum of the privacy losses of its entries differs from the recorded total"
    except BudgetExceededError:
        reason = "one of its entries has no finite cost under its limit"
    except (ArgumentError, KeyError, TypeError, ValueError) as error:
        reason = error_text(error).removesuffix(INTACT_FILE)
    raise StorageError(f"the text is not a valid ledger, and cannot be opened: {reason}; use an intact copy")


def _described_fits(content: dict[str, Any]) -> Any:
    """Take the fits out of the text of a ledger, which are not under its checksum but under their own.

    Raises StorageError if they were changed, or removed without their checksum.
    """
    stored = content.pop(PURPOSES, ())
    seal = content.pop(PURPOSES_SEAL, None)
    if seal is not None and seal != checksum({PURPOSES: stored}):
        raise StorageError(
            "the descriptions of the fits in the text of a ledger were changed or removed; use the original "
            f"text. To read its entries without the descriptions, delete the keys {PURPOSES!r} and "
            f"{PURPOSES_SEAL!r}"
        )
    return stored


def enlist(account: Account) -> Account:
    """Return the account of this identity that is alive, which is this one if there was none."""
    with _LIVE_LOCK:
        return _LIVE.setdefault(account.identity, account)


def _open(text: str, scope: Scope) -> Ledger:
    """Return a ledger of the account of a text: the living account, or a read-only one."""
    stored = read_account(text)
    stored.read_only = True
    account = enlist(stored)
    if account is not stored:
        account.absorb(stored.snapshot(), purposes=stored.purposes())
    return ledger_of(account, scope)


def _open_named(name: str, reopen: Callable[..., Ledger], arguments: tuple[Any, ...]) -> Ledger:
    """Return the ledger that a function opens, as `Ledger.named` does."""
    return reopen(*arguments).named(name)


def named_labels(entries: Iterable[LedgerEntry]) -> str:
    """Return the labels of entries for a message, each once."""
    labels = list(dict.fromkeys(repr(readable(entry.label)) for entry in entries))
    return f"{'the release' if len(labels) == 1 else 'the releases'} {', '.join(labels)}"


def account_of(ledger: Ledger) -> tuple[Account, Scope]:
    """Return the account of a ledger, and the scope under which the ledger files its entries."""
    return ledger._account, ledger._scope


def charged_since(ledger: Ledger, before: int) -> tuple[LedgerEntry, ...]:
    """Return the entries of the running fit after the first `before` entries of a ledger.

    Other threads, and other processes with the same file, can charge the ledger during the fit. Their entries
    have other purposes. Without a running fit (`charged_for`) all entries are returned.
    """
    entries = ledger.entries[before:]
    current = running_fit()
    if current is None:
        return entries
    purposes = ledger._account.purposes()
    return tuple(entry for entry in entries if entry.id in purposes and purposes[entry.id].fit == current.fit)


def stated_purpose(ledger: Ledger) -> str:
    """Return what the queries of the running fit state to sites: name in the ledger, model and formula."""
    current = running_fit()
    return stated_text(title_of(ledger._fit_name, "" if current is None else current.subject))


def ledger_of(account: Account, scope: Scope = (), fit_name: str = "") -> Ledger:
    """Return a ledger that files its entries in this account, at `scope`, under the name of a fit."""
    ledger = Ledger.__new__(Ledger)
    ledger._account = account
    ledger._scope = scope
    ledger._fit_name = fit_name
    return ledger
