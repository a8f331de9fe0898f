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
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from privinf.errors import StorageError
from privinf.secret_files import own_path
from privinf.storage.checksummed import (
    checksummed_json,
    parse_json,
    read_text,
    verified_record,
    written_whole,
)
from privinf.wire import Formats

CHAINED_VERSION = 2  # of journals whose lines are chained by a secret
PRIVATE = "private"
ANCHOR = Formats.ANCHOR
ANCHOR_FIELDS = ("format", "version", "id", "path", "count", "tag")  # of a witness's file


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
            The account has no home, or the anchor would be next to the journal.
        """
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
        record = parse_json(read_text(self.path, "an anchor", secret="ledger"), str(self.path))
        content = verified_record(record, "an anchor", ANCHOR_FIELDS)
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
    old = f'"{kind}"'.encode() in content[:400] and b'"version": 1' in content[:400]
    if old:
        raise StorageError(
            f"the ledger {path} has version 1, which this version of privinf does not read; create a new "
            "ledger with 'privinf ledger create', and lower its limit by what the old releases spent"
        )
    raise StorageError(
        f"the ledger {path} is damaged, or is not a privinf ledger of the expected kind (with "
        "or without 'privinf ledger create --site'); restore its latest copy, or pass another file"
    )


def tag_after(secret: str, before: str, text: str) -> str:
    """Return the tag of a line: of all lines up to it."""
    return hmac.new(secret.encode(), f"{before} {text}".encode(), hashlib.sha256).hexdigest()
