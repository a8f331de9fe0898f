"""A ledger in a file: the account that several processes charge in turn and cannot overspend."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

from filelock import FileLock, Timeout

from privinf.accounting.budget import Budget
from privinf.accounting.entries import LedgerEntry
from privinf.accounting.ledger import Account, Ledger, check_budget, enlist, read_account
from privinf.accounting.losses import Loss
from privinf.accounting.scopes import Part, Scope
from privinf.doors import doors
from privinf.errors import ArgumentError, FileMissingError, PrivinfError, StorageError
from privinf.sealed import read_text, sealed_json, written_whole
from privinf.validation import check_path, check_vacant

_PATIENCE = 60.0  # seconds for another process's spend, which takes milliseconds


@doors
class LedgerFile(Ledger):
    """A `Ledger` whose account is a file; give it as ``ledger=`` to a release.

    Parameters
    ----------
    path : path
        Made by the first spend if it is not there. Beside it stands ``<path>.lock``.
    budget : Budget, optional
        The limit of a new ledger; of one that is there it may be repeated, not changed.
    name : str
        Whose account a new ledger is, for reports.

    Raises
    ------
    StorageError
        There is no ledger at `path` and no budget for a new one, its folder is missing, or the file is
        damaged, not a ledger or one with another limit.
    ArgumentError
        `budget` is not a Budget, or `name` is empty.

    Notes
    -----
    **Privacy.** Reads no rows. Each spend holds a lock on the file, reads what all processes have spent,
    refuses what would pass the limit, and replaces the file as a whole after its new content has reached the
    disk: of two processes that ask for the last of a budget, one is refused. The lock needs a disk that
    supports it (local, or a network disk with locks). Whoever can write the file can also put an older
    copy in its place: protect it as you protect the rows. Where a `Site` has such a ledger, what a fit
    reserves is checked against the limit, and not held: other processes may charge it.

    Examples
    --------
    >>> import tempfile
    >>> from privinf.accounting import Budget, GaussianLoss
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ledger = LedgerFile(f"{folder}/clinic.ledger", Budget(mu=1.0))
    ...     ledger.check([GaussianLoss(0.6)])
    ...     len(ledger)
    0
    """

    __slots__ = ()

    def __init__(self, path: str | PathLike[str], budget: Budget | None = None, name: str = "person") -> None:
        check_budget(budget)
        if not isinstance(name, str) or not name.strip():
            raise ArgumentError("name must be a non-empty text")
        account = FileAccount(check_path(path).resolve(), budget, name)
        enlist(account)
        self._account, self._scope = account, ()

    @classmethod
    def create(cls, path: str | PathLike[str], budget: Budget, name: str = "person") -> Self:
        """Make the file of a new ledger, empty, and open it (ArgumentError if there is one)."""
        check_vacant(path)
        made = cls(path, budget, name)
        made._account.record(())
        return made


class FileAccount(Account):
    """The account behind the doors of a ledger file; it holds nothing that the file does not say."""

    def __init__(self, path: Path, budget: Budget | None, name: str) -> None:
        super().__init__(budget, name, str(uuid4()))
        self.path = path
        self._found = path.exists()
        if not self._found:
            if budget is None:
                raise FileMissingError(
                    f"there is no ledger at {path}: give the budget that a new one shall have"
                )
            if not path.parent.is_dir():
                raise StorageError(f"{path.parent} is no folder: make it before a ledger is kept there")
            return
        there = self._read()
        self.budget, self.name, self.identity = there.budget, there.name, there.identity

    def snapshot(self) -> tuple[LedgerEntry, ...]:
        """Return all entries, in order."""
        return self._read().snapshot()

    def check(self, spends: list[tuple[Scope, Loss]], what: str) -> None:
        """Raise BudgetExceededError if the spends would pass the limit; `what` names them."""
        self._read().check(spends, what)

    def remaining(self, scope: Scope) -> Budget | None:
        """Return what may still be spent at `scope`, None without a limit."""
        return self._read().remaining(scope)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready record."""
        return self._read().to_dict()

    def hold(self, part: Part, losses: Sequence[Loss], what: str = "") -> None:
        """Raise BudgetExceededError if losses would pass the limit: nothing is held from other processes."""
        self._read().hold(part, losses, what)

    def record(self, entries: tuple[LedgerEntry, ...], on: Part | None = None) -> None:
        """Record entries, all or none, and return when they have reached the disk."""
        with self._changing() as account:
            account.record(entries)

    def absorb(self, entries: Iterable[LedgerEntry], on: Part | None = None) -> None:
        """Add what another copy of this account recorded."""
        with self._changing() as account:
            account.absorb(entries)

    def reopened(self, scope: Scope) -> tuple[Any, ...]:
        """Return how to open a door to this file elsewhere: a function and its arguments, for pickle."""
        limit = None if self.budget is None else self.budget.to_dict()
        return _reopen, (str(self.path), limit, self.name, scope)

    @contextmanager
    def _changing(self) -> Iterator[Account]:
        """Hold the lock; write what the block made of the account, unless it raised."""
        try:
            with FileLock(f"{self.path}.lock", timeout=_PATIENCE):
                account = self._read()
                yield account
                with written_whole(self.path, lasting=True) as stream:
                    stream.write(sealed_json(account.to_dict(), indent=1).encode())
                self._found, self.identity = True, account.identity
        except Timeout:
            raise StorageError(
                f"the ledger {self.path} is locked by another process: try again when it has ended"
            ) from None
        except PrivinfError:  # a missing file's is an OSError too
            raise
        except OSError as problem:
            raise StorageError(
                f"the ledger {self.path} cannot be written ({problem.strerror}): nothing was recorded"
            ) from None

    def _read(self) -> Account:
        """Return what the file says; an empty account where no spend has made it yet."""
        if not os.path.lexists(self.path):
            if self._found:
                raise FileMissingError(f"the ledger {self.path} is gone: put it back")
            return Account(self.budget, self.name, self.identity)
        account = _account_in(self.path)
        if self.budget is not None and account.budget != self.budget:
            raise StorageError(
                f"the ledger {self.path} has the limit {account.budget or 'none'}, not {self.budget}: a "
                "limit is set once"
            )
        return account


def _account_in(path: Path) -> Account:
    text = read_text(path, "a ledger")
    try:
        return read_account(text)
    except StorageError as problem:
        reason = str(problem)
    raise StorageError(f"{path}: {reason}")


def _reopen(path: str, budget: dict[str, Any] | None, name: str, scope: Scope) -> Ledger:
    door = LedgerFile(path, None if budget is None else Budget.from_dict(budget), name)
    door._scope = scope
    return door
