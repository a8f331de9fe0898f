"""What a site remembers of its answers: in memory, or in a file that is on disk before a reply leaves."""

from __future__ import annotations

import hashlib
import json
import os
from base64 import b64decode, b64encode
from os import PathLike
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

import numpy as np
from filelock import FileLock, Timeout

from privinf.accounting import Budget, Ledger, LedgerEntry
from privinf.accounting.ledger import Account, check_budget, door_to, enlist
from privinf.doors import doors
from privinf.errors import ArgumentError, NotAvailableError, StorageError
from privinf.federation.messages import Query, Reply
from privinf.sealed import parse_json, read_bytes, unreadable, written_whole

FORMAT, VERSION = "privinf-site-ledger", 1


class Journal:
    """A site's memory while it lives: questions charged, their order, designs counted, replies sent.

    Parameters
    ----------
    ledger : Ledger
        Where charges are spent.

    Notes
    -----
    **Privacy.** Holds public numbers and what was sent: masked words, never un-noised sums.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._last: dict[str, int] = {}
        self._charged: set[str] = set()
        self._replies: dict[str, Reply] = {}
        self._designs: dict[str, int] = {}

    def introduce(self, digest: str, most: int) -> None:
        """Count the design of this digest, unless it was counted before.

        Raises
        ------
        NotAvailableError
            It is not among the first `most` designs.
        """
        if self._designs.get(digest, len(self._designs)) >= most:
            raise NotAvailableError(
                f"its policy takes {most} new designs (SitePolicy(new_designs={most})), and this is not one "
                "of them: the holder must list its digest or allow more"
            )
        if digest not in self._designs:
            self._note(digest)
            self._designs[digest] = len(self._designs)

    def begin(self, query: Query, digest: str, entries: tuple[LedgerEntry, ...]) -> None:
        """Charge a question of this digest, unless it was charged before.

        Raises
        ------
        NotAvailableError
            Another question was asked at this position of the session, or later in it.
        BudgetExceededError
            The ledger's limit would be passed; nothing is remembered.
        """
        if digest in self._charged:
            return
        if query.sequence <= self._last.get(query.session, -1):
            raise NotAvailableError("another question was asked at this position of the session")
        self._spend(query, digest, entries)
        self._charged.add(digest)
        self._last[query.session] = query.sequence

    def recall(self, digest: str) -> Reply | None:
        """Return the reply to the question of this digest, None if there was none."""
        return self._replies.get(digest)

    def keep(self, digest: str, reply: Reply) -> None:
        """Remember a reply, before it is sent."""
        self._replies[digest] = reply

    def _spend(self, query: Query, digest: str, entries: tuple[LedgerEntry, ...]) -> None:
        self._ledger.spend(*entries)

    def _note(self, design: str) -> None:
        """Keep a new design's digest."""


@doors
class SiteLedger(Ledger):
    """A site's ledger and the memory of its answers in one file; give it as ``ledger=`` to a `Site`.

    Parameters
    ----------
    path : path
        Made if it is not there. Beside it stands ``<path>.lock``.
    budget : Budget, optional
        The limit of a new ledger; of one that is there it may be repeated, not changed.
    name : str
        Whose account a new ledger is.

    Raises
    ------
    StorageError
        Another process (or another object of this one) has the ledger open; the file is damaged, not a
        site's ledger, or has another limit; its folder is missing.

    Notes
    -----
    **Privacy.** One line is appended for every charge, with the digest and the position of its question, one
    for every reply, and one for the digest of every new design; each has reached the disk before anything is
    read or sent. After a crash the same question gets the very bytes that it got before, or is answered for
    the first time, and is not charged again; a half-written last line is dropped, since nothing was done on
    its strength. Whoever can put an older copy of the file in its place can make the site spend twice:
    protect it as you protect the rows.

    Examples
    --------
    >>> import tempfile
    >>> from privinf.accounting import Budget
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with SiteLedger(f"{folder}/north.ledger", Budget(mu=1.0)) as ledger:
    ...         len(ledger)
    0
    """

    __slots__ = ("journal",)

    def __init__(self, path: str | PathLike[str], budget: Budget | None = None, name: str = "record") -> None:
        check_budget(budget)
        self.journal = FileJournal(Path(path).resolve(), budget, name)
        self._account, self._scope = self.journal.account, ()

    def close(self) -> None:
        """Close the file, so that another process may open it."""
        self.journal.close()

    def __enter__(self) -> SiteLedger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise TypeError("a site's ledger is a file that one process owns: it is not pickled")


class JournalAccount(Account):
    """The account in a site's file: direct spends are written there too."""

    def __init__(self, budget: Budget | None, name: str, identity: str) -> None:
        super().__init__(budget, name, identity)
        self.journal: FileJournal | None = None

    def record(self, entries: tuple[LedgerEntry, ...], note: dict[str, Any] | None = None) -> None:
        """Record entries, all or none, and return when they, with the note, have reached the disk."""
        if self.journal is None:
            raise StorageError("the site's ledger is not open")
        self.journal.check_open()
        super().record(entries)
        self.journal.append({"charge": [entry.to_dict() for entry in entries], **(note or {})})

    def reopened(self, scope: object) -> Any:
        """Refuse: the file has one owner."""
        raise TypeError("a site's ledger is a file that one process owns: it is not pickled")


class FileJournal(Journal):
    """A `Journal` whose every line is on disk before it counts."""

    def __init__(self, path: Path, budget: Budget | None, name: str) -> None:
        self.path = path
        self._stream: IO[bytes] | None = None
        if not path.parent.is_dir():
            raise StorageError(f"{path.parent} is no folder: make it before a ledger is kept there")
        self._lock = FileLock(f"{path}.lock", timeout=0, thread_local=False)
        try:
            self._lock.acquire()
        except Timeout:
            raise StorageError(f"the ledger {path} is open elsewhere: a site has one owner") from None
        except OSError as problem:
            raise StorageError(f"the ledger {path} cannot be opened ({problem.strerror})") from None
        try:
            self._open(budget, name)
        except BaseException:
            self._lock.release()
            raise

    def _open(self, budget: Budget | None, name: str) -> None:
        if not self.path.exists():
            _create(self.path, _encoded(_header(budget, name)))
        lines, length = _read_lines(self.path)
        self.account = _account_of(lines[0], self.path)
        if budget is not None and self.account.budget != budget:
            raise StorageError(f"the ledger {self.path} has another limit: a limit is set once")
        super().__init__(door_to(self.account))
        if not all(map(self._replayed, lines[1:])):
            raise StorageError(f"the ledger {self.path} is damaged")
        self.account.journal = self
        enlist(self.account)
        try:
            self._stream = self.path.open("ab")
        except OSError as problem:
            raise unreadable(self.path, problem) from None
        self._stream.truncate(length)

    def _replayed(self, line: dict[str, Any]) -> bool:
        """Take up a line; say whether it is one."""
        try:
            self._replay(line)
        except Exception:  # a line that somebody wrote with its checksum may hold anything
            return False
        return True

    def _replay(self, line: dict[str, Any]) -> None:
        if not all(isinstance(line[name], str) for name in ("digest", "session") if name in line):
            raise StorageError("a digest and a session are texts")
        if "charge" in line:
            self.account.absorb([LedgerEntry.from_dict(entry) for entry in line["charge"]])
        if "session" in line:
            self._last[line["session"]] = int(line["sequence"])
            self._charged.add(line["digest"])
        if "design" in line:
            self._designs.setdefault(str(line["design"]), len(self._designs))
        if "reply" in line:
            arrays = {name: _read_array(record) for name, record in line["arrays"].items()}
            self._replies[line["digest"]] = Reply.unpack(line["reply"], arrays)

    def keep(self, digest: str, reply: Reply) -> None:
        """Remember a reply: on disk when this returns."""
        text, arrays = reply.pack()
        stored = {name: _write_array(array) for name, array in arrays.items()}
        self.append({"digest": digest, "reply": text, "arrays": stored})
        super().keep(digest, reply)

    def _spend(self, query: Query, digest: str, entries: tuple[LedgerEntry, ...]) -> None:
        note = {"digest": digest, "session": query.session, "sequence": query.sequence}
        self.account.record(entries, note)

    def _note(self, design: str) -> None:
        self.append({"design": design})

    def append(self, line: dict[str, Any]) -> None:
        """Write a line and return when it has reached the disk."""
        self.check_open()
        assert self._stream is not None
        try:
            self._stream.write(_encoded(line))
            self._stream.flush()
            os.fsync(self._stream.fileno())
        except OSError as problem:
            self.close()
            raise StorageError(
                f"the ledger {self.path} cannot be written ({problem.strerror}): nothing was sent"
            ) from None

    def check_open(self) -> None:
        """Raise StorageError if the file is closed."""
        if self._stream is None:
            raise StorageError(f"the ledger {self.path} is closed")

    def close(self) -> None:
        """Close the file and let go of the lock."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None
            self._lock.release()


def _read_lines(path: Path) -> tuple[list[dict[str, Any]], int]:
    """Return the lines of a file and the length of what is whole; a torn last line is left out."""
    content = read_bytes(path, "a site's ledger", most=None)
    whole, torn = content[: content.rfind(b"\n") + 1], content[content.rfind(b"\n") + 1 :]
    lines = [_read_line(line) for line in whole.split(b"\n")[:-1]]
    # A line that is whole but for the byte that ends it was not torn: its end was changed.
    if not lines or any(line is None for line in lines) or _read_line(torn[:-1]) is not None:
        raise StorageError(f"the ledger {path} is damaged, or no site's ledger")
    return [line for line in lines if line is not None], len(whole)


def _read_line(text: bytes) -> dict[str, Any] | None:
    """Return what a line says, None if it is none or does not match its checksum."""
    checksum, _, content = text.decode(errors="replace").partition(" ")
    if checksum != _checksum(content):
        return None
    try:
        line = parse_json(content, "a line")
    except StorageError:
        return None
    return line if isinstance(line, dict) else None


def _encoded(line: dict[str, Any]) -> bytes:
    text = json.dumps(line, sort_keys=True, allow_nan=False)
    return f"{_checksum(text)} {text}\n".encode()


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _header(budget: Budget | None, name: str) -> dict[str, Any]:
    limit = None if budget is None else budget.to_dict()
    return {"format": FORMAT, "version": VERSION, "id": str(uuid4()), "name": name, "budget": limit}


def _account_of(header: dict[str, Any], path: Path) -> JournalAccount:
    if header.get("format") != FORMAT or header.get("version") != VERSION:
        raise StorageError(f"{path} is no site's ledger of a version that this privinf reads")
    try:
        budget = None if header["budget"] is None else Budget.from_dict(header["budget"])
        return JournalAccount(budget, str(header["name"]), str(header["id"]))
    except (ArgumentError, KeyError, TypeError):
        raise StorageError(f"the ledger {path} is damaged") from None


def _write_array(array: np.ndarray[Any, Any]) -> dict[str, Any]:
    little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    words = b64encode(little.tobytes()).decode()
    return {"dtype": little.dtype.str, "shape": list(array.shape), "bytes": words}


def _read_array(record: dict[str, Any]) -> np.ndarray[Any, Any]:
    content = b64decode(record["bytes"], validate=True)
    found = np.frombuffer(content, dtype=record["dtype"]).reshape(record["shape"])
    return found.astype(found.dtype.newbyteorder("="))


def _create(path: Path, content: bytes) -> None:
    """Make a file that is there as a whole or not at all."""
    try:
        with written_whole(path, lasting=True) as stream:
            stream.write(content)
    except OSError as problem:
        raise StorageError(f"the ledger {path} cannot be made ({problem.strerror})") from None
