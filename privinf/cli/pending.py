"""A release that is finished once, wherever its command was killed: one charge, one file.

The release is made whole before it is charged, and is next to its place as a hidden file, encrypted
under a key that no disk has yet. The charge brings the key: its ledger line has it. So a pending file that
was never charged reveals nothing, and anyone who has the ledger can open one that was charged.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from fractions import Fraction
from importlib import import_module
from pathlib import Path
from typing import IO, Any

from privinf.accounting import Budget, Ledger, LedgerEntry, Loss
from privinf.accounting.ledger import Account, MemoryAccount, RereadAccount, account_of, named_labels
from privinf.accounting.purposes import Purpose
from privinf.accounting.scopes import Part, Scope
from privinf.errors import ArgumentError, NotAvailableError, PrivinfError, StorageError
from privinf.releases import FORMAT, WITHOUT_NOISE, Release, load_release
from privinf.secret_files import SAFELY
from privinf.storage.checksummed import read_bytes, written_whole
from privinf.storage.containers import container_bytes
from privinf.wire import RELEASE_OPTIONS, plan_text

# Facts about the file of a release in a ledger line.
ARRAYS_DIGEST = "arrays_sha256"  # digest of its arrays
ARGUMENTS_DIGEST = "asked_sha256"  # digest of the arguments
OPENS = "pending_key"  # key of the pending file
NONCE = bytes(12)  # every key encrypts one file
NOT_CHARGED = (
    "this copy of a ledger contains releases that are not charged yet, so it cannot be "
    "copied or saved; copy or save the ledger that it was made from"
)
UNDER_WAY = "another process is writing a release to {}; wait until it has ended"


class StagedLedger(Ledger):
    """A ledger handle that refuses entries beyond the limit and stages all others.

    `save_charged` writes them. What a mechanism spends here is not yet charged, and may not leave the
    process: it is neither pickled nor written as text.
    """

    __slots__ = ("_staged", "real")

    def __init__(self, real: Ledger) -> None:
        self.real = real
        account, self._scope = account_of(real)
        self._fit_name = ""
        self._account = self._staged = StagedAccount(account)

    @property
    def lines(self) -> tuple[LedgerEntry, ...]:
        """Staged entries that are not yet charged."""
        depth = len(self._scope)
        return tuple(line for line in self._staged.lines if line.scope[:depth] == self._scope)


class StagedAccount(RereadAccount):
    """The real account as it is now, with lines after it that are not yet charged."""

    def __init__(self, real: Account) -> None:
        super().__init__(real.budget, real.name, real.identity)
        self.real = real
        self.shared = real.shared
        self.lines: list[LedgerEntry] = []
        self._staged_purposes: dict[str, Purpose] = {}

    @property
    def read_only(self) -> bool:  # type: ignore[override]
        """Whether the real account may be read alone."""
        return self.real.read_only

    def check(self, spends: list[tuple[Scope, Loss]], subject: str) -> None:
        """Raise BudgetExceededError if the spends, after the lines here, would pass the real limit."""
        self.real.check([*((line.scope, line.loss) for line in self.lines), *spends], subject)

    def record(
        self, entries: tuple[LedgerEntry, ...], on: Part | None = None, *, purpose: Purpose | None = None
    ) -> None:
        """Keep lines that the real account could afford now, all or none."""
        self.check([(entry.scope, entry.loss) for entry in entries], named_labels(entries))
        self._current().record(entries)
        self.lines += entries
        if purpose is not None:
            self._staged_purposes |= dict.fromkeys([entry.id for entry in entries], purpose)

    def remaining(self, scope: Scope) -> Budget | None:
        """Return the budget left at `scope` after the account's reservations and the staged lines."""
        limit, before, after = (
            account.remaining(scope) for account in (self.real, self._charged(), self._current())
        )
        if limit is None or before is None or after is None:
            return None
        rest = max(limit.limit - (before.limit - after.limit), Fraction(0))
        return Budget.from_dict(limit.to_dict() | {"limit": str(rest)})

    def absorb(
        self,
        entries: Iterable[LedgerEntry],
        on: Part | None = None,
        *,
        purposes: Mapping[str, Purpose] | None = None,
    ) -> None:
        """Add facts to the real account."""
        self.real.absorb(entries, on, purposes=purposes)

    def resume(self) -> None:
        """Let the real account be charged again."""
        self.real.resume()

    def to_dict(self) -> dict[str, Any]:
        """Refuse: a text would present staged lines as charged (NotAvailableError)."""
        raise NotAvailableError(NOT_CHARGED)

    def reopened(self, scope: Scope) -> tuple[Any, ...]:
        """Refuse: another process could not charge the staged lines (NotAvailableError)."""
        raise NotAvailableError(NOT_CHARGED)

    def _charged(self) -> MemoryAccount:
        account = MemoryAccount(self.budget, self.name, self.identity)
        account.absorb(self.real.snapshot(), purposes=self.real.purposes())
        return account

    def _current(self) -> MemoryAccount:
        account = self._charged()
        account.absorb(self.lines, purposes=self._staged_purposes)
        return account


def digest_of_arguments(arguments: Mapping[str, Any], files: Iterable[Path | None]) -> str:
    """Return the SHA-256 of a command's arguments and of the public files that they name."""
    words = {RELEASE_OPTIONS[name]: plan_text(value) for name, value in arguments.items()}
    contents = [
        None if path is None else hashlib.sha256(read_bytes(path, "a file")).hexdigest() for path in files
    ]
    return hashlib.sha256(json.dumps([words, contents]).encode()).hexdigest()


def save_charged(release: Release, out: Path, ledger: Ledger, account: Path, digest: str) -> Release:
    """Charge a release and put it to its place; whatever stops this, `finish` goes on from there.

    Parameters
    ----------
    release : Release
        Made with a `StagedLedger` of `ledger`.
    out : Path
        Replaced if it is there.
    ledger : Ledger
        The whole account, not one of its scopes.
    account : Path
        Its file: pending files are those of one ledger.
    digest : str
        Of `digest_of_arguments`.

    Raises
    ------
    BudgetExceededError, StorageError
        It cannot be charged, or the disk is full; then nothing was charged, or the message says that it was.
    """
    if release.noise_model.get("noise_free", False):
        raise NotAvailableError(WITHOUT_NOISE)
    key = secrets.token_bytes(32)
    opening = {ARRAYS_DIGEST: _arrays_sha256(release), ARGUMENTS_DIGEST: digest, OPENS: key.hex()}
    lines = tuple(entry.filed(entry.id, entry.scope, {**entry.noise, **opening}) for entry in release.entries)
    release = replace(release, entries=lines)
    content = container_bytes(release.arrays, release.header(), format=FORMAT)
    pending = out.with_name(f".{out.name}.{_tag(account)}.{secrets.token_hex(8)}.pending")
    try:
        with open(pending, "xb", opener=lambda path, flags: os.open(path, flags, 0o600)) as stream:
            _hold(stream, out)
            try:
                stream.write(_cipher(key).encrypt(NONCE, content, None))
                stream.flush()
                os.fsync(stream.fileno())
            except OSError:
                pending.unlink(missing_ok=True)
                raise
            if not os.fstat(stream.fileno()).st_nlink:
                raise ArgumentError(UNDER_WAY.format(out))
            try:
                ledger.spend(*lines)
            except PrivinfError:
                if not _charged(ledger, lines):
                    pending.unlink(missing_ok=True)
                raise
            _place(content, out)
            pending.unlink()
    except OSError as problem:
        reason = problem.strerror or type(problem).__name__
        raise StorageError(f"{out} cannot be written ({reason}). {_standing(ledger, lines)}") from None
    return release


def finish(out: Path, ledger: Ledger, account: Path, digest: str, *, overwrite: bool) -> Release | None:
    """Finish a killed run of the same command without a new charge; None if there is none.

    A pending file that was charged takes its place; one that was not is deleted.

    Raises
    ------
    ArgumentError
        The earlier run had other arguments, or another process is running it.
    """
    lines = {entry.noise[OPENS]: entry for entry in ledger.entries if OPENS in entry.noise}
    ours = f".{glob.escape(out.name)}.{_tag(account)}.*.pending"
    for pending in sorted(out.parent.glob(ours)):
        if pending.is_symlink() or not pending.is_file():
            continue  # somebody else put it there
        with _locked(pending, out) as stream:
            opened = _opened(stream.read(), lines)
            if opened is None:
                pending.unlink(missing_ok=True)
                continue
            line, content = opened
            if line.noise[ARGUMENTS_DIGEST] != digest:
                raise ArgumentError(
                    f"an earlier command with other arguments charged a release to {out} but did not "
                    "finish; repeat that command with its arguments first, or choose another file name"
                )
            if out.exists() and not overwrite and read_bytes(out, "a release", most=None) != content:
                raise ArgumentError(
                    f"the file {out} already exists and holds another release; pass --overwrite to replace it"
                )
            _place(content, out)
            pending.unlink()
            return load_release(out)
    return None if overwrite or not out.is_file() else _complete(out, ledger, digest)


def _complete(out: Path, ledger: Ledger, digest: str) -> Release | None:
    """Return the release at its place if the same command put it there."""
    with suppress(PrivinfError):
        release = load_release(out)
        if all(entry.noise.get(ARGUMENTS_DIGEST) == digest for entry in release.entries) and _charged(
            ledger, release.entries
        ):
            return release
    return None


def _opened(content: bytes, lines: Mapping[str, LedgerEntry]) -> tuple[LedgerEntry, bytes] | None:
    """Return the line that charged a pending file, and the file's content; None without such a line."""
    invalid = import_module("cryptography.exceptions").InvalidTag
    for key, line in lines.items():
        with suppress(invalid, ValueError):
            return line, _cipher(bytes.fromhex(key)).decrypt(NONCE, content, None)
    return None


def _tag(account: Path) -> str:
    """Return the name suffixes of the pending files of a ledger."""
    return hashlib.sha256(os.fsencode(account.resolve())).hexdigest()[:16]


def _cipher(key: bytes) -> Any:
    return import_module("cryptography.hazmat.primitives.ciphers.aead").ChaCha20Poly1305(key)


def _arrays_sha256(release: Release) -> str:
    digest = hashlib.sha256()
    for name, array in sorted(release.arrays.items()):
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode() + array.tobytes())
    return digest.hexdigest()


def _place(content: bytes, out: Path) -> None:
    with written_whole(out, lasting=True) as stream:
        stream.write(content)


def _charged(ledger: Ledger, lines: tuple[LedgerEntry, ...]) -> bool:
    """Return whether a ledger has exactly these lines; a ledger in a file is read as it is now."""
    entries = {entry.id: entry for entry in ledger.entries}
    return bool(lines) and all(entries.get(line.id) == line for line in lines)


def _standing(ledger: Ledger, lines: tuple[LedgerEntry, ...]) -> str:
    """Return whether the lines were charged, for a message."""
    if not _charged(ledger, lines):
        return "Nothing was charged"
    return "The release was charged; repeat the same command to finish it without a second charge"


@contextmanager
def _locked(pending: Path, out: Path) -> Iterator[IO[bytes]]:
    """Open a pending file that no other process is at."""
    with open(pending, "rb", opener=lambda path, flags: os.open(path, flags | SAFELY)) as stream:
        _hold(stream, out)
        yield stream


def _hold(stream: IO[bytes], out: Path) -> None:
    """Lock an open file; ArgumentError if another process is at it."""
    if os.name != "posix":
        return
    fcntl = import_module("fcntl")
    try:
        fcntl.flock(stream.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise ArgumentError(UNDER_WAY.format(out)) from None
