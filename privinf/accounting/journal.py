"""Journals: files of lines that only grow, chained by a secret, with a witness in another folder.

A line is ``<tag> <JSON object>``; its tag is the HMAC-SHA256, under the secret in the first line, of the tag
before it and its own text. The last tag represents all lines; with their number it is the `Head`. An anchor,
a small file in another folder, records the last head: a journal that was cut or put back to an older
copy does not contain it. The "private" part of a line is not under its tag, so that no head depends on it.
Local disks only: the lock on the file itself is the system's flock.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any
from uuid import uuid4

from privinf.errors import FileMissingError, NotAvailableError, StorageError
from privinf.secret_files import open_secret, own_path
from privinf.storage.checksummed import (
    checksummed_json,
    parse_json,
    read_bytes,
    verified_record,
    written_whole,
)
from privinf.validation import is_unicode
from privinf.wire import Formats

CHAINED_VERSION = 2  # of journals whose lines are chained by a secret
PRIVATE = "private"
ANCHOR = Formats.ANCHOR
ANCHOR_FIELDS = ("format", "version", "id", "path", "count", "tag")  # of a witness's file
# A clock of files moves in steps: a change within this many nanoseconds of another may show the same time.
CLOCK_STEP = 200_000_000
WAIT = 0.002  # seconds between two checks of a lock
SECOND_NAME = "received a second name (a hard link)"
LOST_ENTRIES = (
    "the ledger {} has lost entries that were charged, because the file was cut or replaced by an older "
    "copy; restore the latest copy"
)
IN_USE = (
    "the ledger {} is in use by another process, or already open in this one; close it "
    "there and try again. Only one process at a time may run a site"
)


@dataclass(frozen=True, slots=True)
class Head:
    """State of a journal: its number of lines, and the tag of the last."""

    count: int
    tag: str


@dataclass(frozen=True, slots=True)
class Anchor:
    """The file that remembers the head of a journal, in another folder than the journal's.

    Parameters
    ----------
    path : Path
        Where it is kept.
    journal : Path
        Whose head it is.
    """

    path: Path
    journal: Path

    @classmethod
    def for_journal(cls, journal: Path, path: str | PathLike[str] | None = None) -> Anchor:
        """Return the anchor of a journal, by default in the account's own folder of states.

        Raises
        ------
        StorageError
            The account lacks a home folder, or the anchor would be next to the journal. Or the path of the
            journal is not Unicode, so the anchor could not record it.
        """
        if not is_unicode(str(journal)):
            raise StorageError(
                f"the path {str(journal)!r} of a ledger must contain only Unicode characters, because a "
                "second file records it; rename the file or the folder"
            )
        if path is not None:
            place = own_path(path)
            if place.parent == journal.parent:
                raise StorageError(
                    f"the file {place}, which records the last entry of a ledger, must be in a different "
                    "folder than the ledger"
                )
            return cls(place, journal)
        name = hashlib.sha256(os.fsencode(journal)).hexdigest()[:32]
        with suppress(RuntimeError):
            state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
            return cls(Path(state) / "privinf" / "anchors" / f"{name}.json", journal)
        raise StorageError(
            "this user has no home folder, where the file that records a ledger's last entry is "
            "created; pass the path of that file as anchor="
        )

    def read(self) -> tuple[str, Head] | None:
        """Return the journal's id and its head as they were remembered, None if there is no anchor."""
        if not os.path.lexists(self.path):
            return None
        text = read_bytes(self.path, "an anchor", secret="ledger")
        content: dict[str, Any] | None = None
        with suppress(StorageError):
            content = verified_record(parse_json(text, "an anchor"), "an anchor", ANCHOR_FIELDS)
        if content is None:
            raise StorageError(
                f"the file {self.path}, which records the last entry of the ledger {self.journal}, is "
                "damaged; restore its latest copy. If you know that the ledger itself is the latest copy, "
                f"delete this file and run 'privinf ledger anchor {self.journal}'"
            )
        identity = content["id"]
        count = content["count"]
        tag = content["tag"]
        is_ours = content["format"] == ANCHOR and content["path"] == str(self.journal)
        if not is_ours or type(count) is not int or not isinstance(identity, str) or not isinstance(tag, str):
            raise StorageError(
                f"{self.path} does not record the last entry of the ledger {self.journal}, but of "
                "another ledger"
            )
        return identity, Head(count, tag)

    def record(self, identity: str, head: Head) -> None:
        """Remember a head; on disk when this returns (OSError or StorageError if it cannot be)."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        content = {
            "format": ANCHOR,
            "version": 1,
            "id": identity,
            "path": str(self.journal),
            "count": head.count,
            "tag": head.tag,
        }
        with written_whole(self.path, private=True, lasting=True) as stream:
            stream.write(checksummed_json(content).encode())


class OpenJournal:
    """A journal that this object alone has open; `lines` are its parsed lines.

    Parameters
    ----------
    path : Path
        Resolved.
    kind : str
        Format that the first line must name.
    anchor : Anchor
    header : dict, optional
        The first line of a journal that is made if there is none: its limit and name.
    patience : float
        Seconds to wait for others.

    Raises
    ------
    StorageError
        Another process or object has it open; it was cut, put back, replaced or damaged; it has another name
        (a hard link); its anchor is missing; there was a journal here, and it is gone.
    FileMissingError
        There is none, and no header.
    """

    def __init__(
        self,
        path: Path,
        kind: str,
        anchor: Anchor,
        header: Mapping[str, Any] | None = None,
        patience: float = 0.0,
    ) -> None:
        self.path = path
        self.kind = kind
        self.anchor = anchor
        self.lines: list[dict[str, Any]] = []
        self._tags: list[str] = []
        self._file: int | None = None
        self._size = 0
        self._ctime = 0
        self._verified = 0
        try:
            self._open_file(header)
        except OSError as problem:
            if isinstance(problem, StorageError):
                raise
            raise StorageError(f"the ledger {path} cannot be opened ({problem.strerror})") from None
        try:
            self._lock(patience)
            self._load(header)
        except BaseException:
            self.close()
            raise

    @property
    def head(self) -> Head:
        """How many lines there are, and the tag of the last."""
        return Head(len(self._tags), self._tags[-1] if self._tags else "")

    def knows(self, head: Head) -> bool:
        """Return whether the line of this number has this tag here."""
        within = 1 <= head.count <= len(self._tags)
        return within and hmac.compare_digest(self._tags[head.count - 1].encode(), head.tag.encode())

    def append(self, line: Mapping[str, Any]) -> None:
        """Write a line and return when it, and after it the anchor, have reached the disk.

        Raises
        ------
        StorageError
            The file was changed (`watch`), or the disk is full: then nothing was recorded, and
            the journal is closed.
        """
        self.watch()
        self._append(line)

    def watch(self) -> None:
        """Raise StorageError if the journal is closed, or was changed by others."""
        if self._file is None:
            raise StorageError(f"the ledger {self.path} is closed; open it again")
        if reason := self._changed():
            remedy = (
                "delete the second name" if reason == SECOND_NAME else "restore its latest copy and reopen it"
            )
            raise StorageError(
                f"the ledger {self.path} {reason} while it was open; nothing is charged and no query is "
                f"answered until you {remedy}"
            )

    def close(self) -> None:
        """Close the file, and let go of its lock."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _changed(self) -> str:
        """Return a description of a change of the file, an empty text without one."""
        assert self._file is not None
        opened = os.fstat(self._file)
        try:
            current = os.stat(self.path)
        except OSError:
            return "was removed"
        if (current.st_dev, current.st_ino) != (opened.st_dev, opened.st_ino):
            return "was replaced"
        if opened.st_nlink != 1:
            return SECOND_NAME
        if opened.st_size != self._size:
            return "was changed"
        if opened.st_ctime_ns == self._ctime and self._verified - self._ctime > CLOCK_STEP:
            return ""
        self._ctime = opened.st_ctime_ns
        self._verified = time.time_ns()
        same = hashlib.sha256(_content(self._file)).digest() == self._sum.digest()
        return "" if same else "was changed"

    def _open_file(self, header: Mapping[str, Any] | None) -> None:
        """Open the file; make it where there is none, and a header."""
        if not self.path.parent.is_dir():
            refuse_lost(self.path, self.anchor)
            raise StorageError(
                f"{self.path.parent} is not a folder; create it before you create a ledger there"
            )
        flags = os.O_RDWR | os.O_APPEND
        with suppress(FileNotFoundError):
            self._file = open_secret(self.path, "a ledger", "ledger", flags)
            return
        refuse_lost(self.path, self.anchor)
        if header is None:
            raise FileMissingError(
                f"there is no ledger at {self.path}; create it with 'privinf ledger create'"
            )
        try:
            self._file = open_secret(self.path, "a ledger", "ledger", flags | os.O_CREAT | os.O_EXCL)
        except FileExistsError:  # another process has made it meanwhile
            self._file = open_secret(self.path, "a ledger", "ledger", flags)

    def _lock(self, patience: float) -> None:
        """Lock the file itself, by whatever name it was opened."""
        assert self._file is not None
        if os.name != "posix":
            raise NotAvailableError(
                "a ledger in a file needs POSIX file locks, which this system does not have"
            )
        end = time.monotonic() + patience
        while not _flocked(self._file):
            if time.monotonic() >= end:
                raise StorageError(IN_USE.format(self.path))
            time.sleep(WAIT)
        opened = os.fstat(self._file)
        if opened.st_nlink != 1:
            raise StorageError(
                f"the ledger {self.path} has {opened.st_nlink} names (hard links), but must have only "
                "one; delete the other names"
            )

    def _begin(self, header: Mapping[str, Any]) -> None:
        """Write the first line; an anchor without lines marks it as under way."""
        assert self._file is not None
        first = {
            "format": self.kind,
            "version": CHAINED_VERSION,
            "id": str(uuid4()),
            "secret": secrets.token_hex(32),
            **header,
        }
        self._know(b"", [], [])
        try:
            self.anchor.record(first["id"], Head(0, ""))
            self._append(first)
            _sync_folder(self.path.parent)
        except (OSError, StorageError) as problem:
            if (self.anchor.read() or ("", Head(0, "")))[1].count == 0:  # nothing was ever charged
                self.path.unlink(missing_ok=True)
            reason = str(problem) if isinstance(problem, StorageError) else problem.strerror
            raise StorageError(
                f"the ledger {self.path}, or the file {self.anchor.path} that records its last entry, "
                f"cannot be created ({reason})"
            ) from None
        self.lines = [first]

    def _load(self, header: Mapping[str, Any] | None) -> None:
        """Read all lines, and compare them with the anchor."""
        assert self._file is not None
        content = _content(self._file)
        end = content.rfind(b"\n") + 1
        remembered = self.anchor.read()
        new = not content if remembered is None else not end and not remembered[1].count
        if new and header is not None:
            os.ftruncate(self._file, 0)  # of one killed when it was made: nothing was ever charged
            self._begin(header)
            return
        lines, tags = verified_lines(content[:end], self.path, self.kind)
        torn = len(content) > end
        ahead = self._after_anchor(lines[0]["id"], tags, remembered, torn=torn)
        if torn:
            os.ftruncate(self._file, end)
            os.fsync(self._file)
        self._know(content[:end], lines, tags)
        if ahead:
            try:
                self.anchor.record(lines[0]["id"], self.head)
            except OSError as problem:
                raise StorageError(
                    f"the file {self.anchor.path}, by which a ledger that was replaced by an old copy is "
                    f"detected, cannot be written ({problem.strerror})"
                ) from None

    def _after_anchor(
        self, identity: str, tags: list[str], remembered: tuple[str, Head] | None, *, torn: bool
    ) -> bool:
        """Return whether the journal has one line more than its anchor; StorageError if it lost one."""
        if remembered is None:
            raise StorageError(
                f"the ledger {self.path} may be an old copy, because its file {self.anchor.path}, which "
                "records the last entry, is missing. If you know that the ledger is the latest copy, "
                f"run 'privinf ledger anchor {self.path}'"
            )
        anchored, head = remembered
        if anchored != identity:
            raise StorageError(
                f"the ledger {self.path} was replaced by another ledger; restore the latest copy"
            )
        ahead = len(tags) - head.count
        if ahead < 0 or (head.count and tags[head.count - 1] != head.tag):
            raise StorageError(LOST_ENTRIES.format(self.path))
        if ahead > 1 or (torn and ahead):
            raise StorageError(
                f"the file {self.anchor.path}, which records the last entry of a ledger, is older than "
                f"the ledger {self.path}; restore the latest copies of both files"
            )
        return ahead == 1

    def _know(self, content: bytes, lines: list[dict[str, Any]], tags: list[str]) -> None:
        assert self._file is not None
        self.lines = lines
        self._tags = tags
        self._size = len(content)
        self._sum = hashlib.sha256(content)
        self._ctime = os.fstat(self._file).st_ctime_ns
        self._verified = 0

    def _append(self, line: Mapping[str, Any]) -> None:
        assert self._file is not None
        first = self.lines[0] if self.lines else line
        content, tag = encoded(str(first["secret"]), self.head.tag, line)
        parse_json(content[content.index(b" ") + 1 :], "a new line of the ledger")  # else unreadable later
        before, after = self.head, Head(len(self._tags) + 1, tag)
        try:
            _write(self._file, content)
            os.fsync(self._file)
            self.anchor.record(str(first["id"]), after)
        except (OSError, StorageError) as problem:
            with suppress(OSError, StorageError):  # a line that was never reported is taken back
                if (remembered := self.anchor.read()) is not None and remembered[1] == before:
                    os.ftruncate(self._file, self._size)
                    os.fsync(self._file)
            self.close()
            reason = str(problem) if isinstance(problem, StorageError) else problem.strerror
            raise StorageError(
                f"the ledger {self.path}, or the file {self.anchor.path} that records its last entry, "
                f"cannot be written ({reason}); nothing was recorded or sent"
            ) from None
        self._tags.append(tag)
        self._size += len(content)
        self._sum.update(content)
        self._ctime = os.fstat(self._file).st_ctime_ns
        self._verified = 0


def _flocked(file: int) -> bool:
    fcntl = import_module("fcntl")
    with suppress(OSError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def refuse_lost(path: Path, anchor: Anchor) -> None:
    """Raise StorageError if there was a journal where there is none now."""
    if (remembered := anchor.read()) is not None and remembered[1].count:
        raise StorageError(
            f"the ledger {path} was removed; restore its latest copy. A new ledger would not "
            "include the privacy already spent; if you want a new ledger anyway, delete "
            f"{anchor.path}"
        )


def record_anchor(path: Path, kind: str, anchor: Anchor) -> Head:
    """Accept a journal as the latest: record its head, on its holder's request.

    Raises
    ------
    StorageError
        It is damaged, or open elsewhere, or none of this kind.
    """
    content = read_bytes(path, "a ledger", most=None, secret="ledger")
    lines, tags = verified_lines(content[: content.rfind(b"\n") + 1], path, kind)
    if (remembered := anchor.read()) is not None and remembered[0] != lines[0]["id"]:
        raise StorageError(
            f"the file {anchor.path} records the last entry of another ledger that was at {path}; "
            "if that ledger is lost, delete the file, and then try again"
        )
    if remembered is not None and remembered[1].count > len(tags):
        raise StorageError(
            f"the ledger {path} has only {len(tags)} of the {remembered[1].count} lines that "
            f"{anchor.path} records; restore the latest copy of the ledger. If that copy is lost, "
            f"delete {anchor.path}, and then try again"
        )
    try:
        anchor.record(lines[0]["id"], Head(len(tags), tags[-1]))
        with_anchor = OpenJournal(path, kind, anchor)
        with_anchor.append({"anchored": len(tags)})
        with_anchor.close()
    except OSError as problem:
        if isinstance(problem, StorageError):
            raise
        raise StorageError(
            f"the file {anchor.path}, by which a ledger that was replaced by an old copy is "
            f"detected, cannot be written ({problem.strerror})"
        ) from None
    return with_anchor.head


def _content(file: int) -> bytes:
    """Return all that an open file holds."""
    pieces = []
    offset = 0
    while piece := os.pread(file, 1 << 20, offset):
        pieces.append(piece)
        offset += len(piece)
    return b"".join(pieces)


def _write(file: int, content: bytes) -> None:
    """Write all bytes at the end."""
    while content:
        content = content[os.write(file, content) :]


def _sync_folder(folder: Path) -> None:
    place = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(place)
    finally:
        os.close(place)


def encoded(secret: str, before: str, line: Mapping[str, Any]) -> tuple[bytes, str]:
    """Return a line as it is written after the tag of the line before it, and its own tag."""
    text = json.dumps(line, sort_keys=True, allow_nan=False)
    tag = tag_after(secret, before, chained(line, text))
    return f"{tag} {text}\n".encode(), tag


def chained(line: Mapping[str, Any], text: str) -> str:
    """Return the tagged part of a line: its text without the private part."""
    if PRIVATE not in line:
        return text
    if text != json.dumps(line, sort_keys=True, allow_nan=False):
        return ""  # written by somebody else
    public = {name: value for name, value in line.items() if name != PRIVATE}
    return json.dumps(public, sort_keys=True, allow_nan=False)


def verified_lines(content: bytes, path: Path, kind: str) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the lines and tags of a journal (StorageError unless each follows from those before it)."""
    lines: list[dict[str, Any]] = []
    tags: list[str] = []
    for raw in content.split(b"\n")[:-1]:
        tag, _, text = raw.decode(errors="replace").partition(" ")
        line: Any = None
        with suppress(StorageError):
            line = parse_json(text, "a line")
        first = lines[0] if lines else line
        if not isinstance(line, dict) or not isinstance(first.get("secret"), str):
            break
        if tag != tag_after(first["secret"], tags[-1] if tags else "", chained(line, text)):
            break
        lines.append(line)
        tags.append(tag)
    else:
        has_header = lines and (lines[0].get("format"), lines[0].get("version")) == (kind, CHAINED_VERSION)
        if has_header and isinstance(lines[0].get("id"), str):
            return lines, tags
    raise _unreadable(lines, content, path, kind)


def _unreadable(lines: list[dict[str, Any]], content: bytes, path: Path, kind: str) -> StorageError:
    """Return the error about a file that is not a ledger of this kind.

    `lines` are the lines that could be read.
    """
    formats = {line.get("format") for line in lines[:1]}
    if Formats.SITE_LEDGER in formats - {kind}:
        return StorageError(
            f"{path} is the ledger of a site; pass a ledger that was created without --site, with 'privinf "
            "ledger create'"
        )
    if Formats.LEDGER in formats - {kind}:
        return StorageError(
            f"{path} is not the ledger of a site; pass a ledger that was created with 'privinf ledger create "
            "--site'"
        )
    if f'"{kind}"'.encode() in content[:400] and b'"version": 1' in content[:400]:
        return StorageError(
            f"the ledger {path} has version 1, which this version of privinf does not read; create a new "
            "ledger with 'privinf ledger create', and lower its limit by what the old releases spent"
        )
    return StorageError(
        f"the ledger {path} is damaged, or is not a ledger as 'privinf ledger create"
        f"{' --site' * (kind != Formats.LEDGER)}' makes it; restore its latest copy, or pass another file"
    )


def tag_after(secret: str, before: str, text: str) -> str:
    """Return the tag of a line: of all lines up to it."""
    return hmac.new(secret.encode(), f"{before} {text}".encode(), hashlib.sha256).hexdigest()
