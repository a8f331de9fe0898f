"""A folder of files that a fit must not forget: for their owner alone, each under an HMAC of one secret key.

`SealedFolder` has one container a result, which is there as a whole or not at all. `SealedLines` is the file
of the key itself, and lines that are only added to.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from privinf.errors import PrivinfError, StorageError
from privinf.secret_files import check_folder, open_secret
from privinf.storage.checksummed import read_bytes, written_whole
from privinf.storage.containers import Arrays, read_container, write_container
from privinf.wire import Formats

LOCK_FILE = "lock"
# What messages call a file of lines.
NOISE_KEY = "a noise key"
OTHER_FIT = (
    "{} belongs to another fit, or was written by a version of privinf that plans this fit differently; use "
    "a separate checkpoint folder for each fit"
)
OTHER_SEAL = (
    "{} was changed, or it does not belong to the noise key in its folder; restore all files of the folder, "
    "or use a separate checkpoint folder for each fit"
)
Line = Mapping[str, Any]


@dataclass(slots=True, repr=False, kw_only=True)
class SealedFolder:
    """The folder of one fit, and its files of one result each.

    Parameters
    ----------
    path : path
    identity : str
        Of the fit, in the header of every file.
    seal : bytes, optional
        Key of the files' HMAC; without it they have a checksum, which shows accidents and not forgery.

    Raises
    ------
    StorageError
        Another account can write to the folder, or can have read, changed or planted a file in it.

    Notes
    -----
    **Privacy.** Made for its owner alone, as its files are.
    """

    path: Path
    identity: str
    seal: bytes | None = None
    _lock: FileLock = field(init=False)

    def __post_init__(self) -> None:
        self._lock = FileLock(self.path / LOCK_FILE, timeout=0, mode=0o600, thread_local=False)
        if os.path.lexists(self.path):
            try:
                check_folder(self.path, "the files of a fit")
                return
            except OSError as problem:
                error = self._unusable(problem)
            raise error

    def take(self) -> None:
        """Make the folder if it is not there, and keep other runs out of it until `release`."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            check_folder(self.path, "the files of a fit")
            self._lock.acquire()
            return
        except Timeout:
            error = StorageError(
                f"another run is using the checkpoint folder {self.path}; wait until it ends, or pass "
                "another folder"
            )
        except OSError as problem:
            error = self._unusable(problem)
        raise error

    def release(self) -> None:
        """Let other runs use the folder."""
        self._lock.release()

    def names(self, pattern: re.Pattern[str]) -> list[str]:
        """Return the sorted names of the files that match a pattern."""
        return sorted(path.name for path in self.path.glob("*") if pattern.fullmatch(path.name))

    def has(self, name: str) -> bool:
        """Return whether a file is there."""
        return os.path.lexists(self.path / name)

    def read(self, name: str) -> tuple[dict[str, Any], dict[str, np.ndarray[Any, Any]]]:
        """Return a file's header and arrays, if it is of this fit."""
        header, arrays = self.read_of_any(name)
        if not self.owns(header):
            raise StorageError(OTHER_FIT.format(self.path / name))
        return header, arrays

    def read_of_any(self, name: str) -> tuple[dict[str, Any], dict[str, np.ndarray[Any, Any]]]:
        """Return the header and the arrays of a file, which may be of another fit."""
        path = self.path / name
        arrays, header = read_container(
            path, format=Formats.CHECKPOINT, key=self.seal, private=True, mismatch=OTHER_SEAL.format(path)
        )
        return header, arrays

    def owns(self, header: Mapping[str, Any]) -> bool:
        """Return whether a file with this header is of this fit."""
        return header.get("fit") == self.identity

    def write(self, name: str, header: Mapping[str, Any], arrays: Arrays) -> None:
        """Write one file; it is there as a whole, on the disk, or not at all (StorageError)."""
        content = {"fit": self.identity, **header}
        path = self.path / name
        try:
            write_container(path, arrays, content, format=Formats.CHECKPOINT, key=self.seal, private=True)
            return
        except OSError as problem:
            error = StorageError(
                f"{path} cannot be written ({problem.strerror}); check the disk's free space"
            )
        raise error

    def remove(self, name: str) -> None:
        """Remove a file."""
        (self.path / name).unlink()

    def _unusable(self, problem: OSError) -> StorageError:
        return StorageError(f"the checkpoint folder {self.path} cannot be used ({problem.strerror})")


class SealedLines:
    """Lines of JSON in a secret file that is only added to, each with an HMAC under the key in the first one.

    Parameters
    ----------
    path : path
        Of an existing file; see `create`.
    seal_of : callable
        Returns the key of the HMACs by the field "key" of the first line.

    Attributes
    ----------
    header : mapping or None
        The first line; None if the file is damaged.
    lines : list of mapping
        The others. A last one that is not whole was never acted upon; the next one takes its place.

    Raises
    ------
    StorageError
        The file cannot be read, or another account can have read, changed or planted it.
    """

    def __init__(self, path: Path, seal_of: Callable[[str], bytes]) -> None:
        self.path = path
        self.header: Line | None = None
        self.lines: list[Line] = []
        content = read_bytes(path, NOISE_KEY, most=None, secret="key")
        self._first = content[: content.find(b"\n") + 1]
        self._length = content.rfind(b"\n") + 1
        try:
            header, *lines = [json.loads(line) for line in content[: self._length].decode().split("\n")[:-1]]
            self._seal = seal_of(header["key"])
            if all(_tag(line, self._seal) == line["tag"] for line in (header, *lines)):
                self.header = header
                self.lines = lines
        except (AttributeError, KeyError, PrivinfError, RecursionError, TypeError, ValueError):
            pass

    @staticmethod
    def create(path: Path, header: Line, seal: bytes) -> None:
        """Make a file that is there as a whole or not at all, with its first line (StorageError, OSError)."""
        with written_whole(path, private=True) as stream:
            stream.write(_sealed(header, seal))

    def append(self, line: Line) -> None:
        """Add a line, which is on the disk at the return.

        Raises
        ------
        StorageError
            Another process has replaced the file, or the file is not safe.
        OSError
            It cannot be written.
        """
        with open(open_secret(self.path, NOISE_KEY, "key", os.O_RDWR), "r+b") as stream:
            if stream.read(len(self._first)) != self._first:
                raise StorageError(
                    f"another process replaced the file {self.path}, the secret key from which a fit's "
                    "noise is drawn, so the fit was stopped; start a new fit in an empty folder"
                )
            stream.seek(self._length)
            stream.truncate()
            stream.write(_sealed(line, self._seal))
            stream.flush()
            os.fsync(stream.fileno())
            self._length = stream.tell()


def _sealed(line: Line, seal: bytes) -> bytes:
    return (json.dumps({**line, "tag": _tag(line, seal)}, sort_keys=True) + "\n").encode()


def _tag(line: Line, seal: bytes) -> str:
    text = json.dumps({name: line[name] for name in sorted(line) if name != "tag"})
    return hmac.new(seal, text.encode(), hashlib.sha256).hexdigest()[:32]
