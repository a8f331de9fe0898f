"""One file format for releases and results: npz arrays beside a JSON manifest, never pickle.

A file is an uncompressed zip archive that ``numpy.load`` can open too. Its manifest holds the header and
the SHA-256 of every array, and is itself covered by a checksum, or by an HMAC where a key is given. The
same content gives the same bytes on every platform.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
import struct
import zipfile
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import IO, Any

import numpy as np

from privinf.errors import ArgumentError, StorageError

Arrays = Mapping[str, np.ndarray[Any, Any]]

CONTAINER = "privinf-container"
CONTAINER_VERSION = 1
MANIFEST = "manifest.json"
# The earliest moment that a zip archive can express: no clock enters the file.
EPOCH = (1980, 1, 1, 0, 0, 0)
STORED_KINDS = "biufU"
# What zipfile and numpy raise on damaged bytes: bad offsets, flags, lengths and shapes.
DAMAGE = (
    zipfile.BadZipFile, EOFError, KeyError, MemoryError, NotImplementedError, OSError, OverflowError,
    RuntimeError, struct.error, ValueError,
)  # fmt: skip


def write_container(
    path: str | PathLike[str],
    arrays: Arrays,
    header: Mapping[str, Any],
    *,
    format: str,
    version: int = 1,
    key: bytes | None = None,
    private: bool = False,
) -> None:
    """Write arrays and a header to one file, atomically.

    Parameters
    ----------
    path : path
        Replaced as a whole if it exists; a write that fails leaves it as it was.
    arrays : mapping of str to ndarray
        Boolean, integer, floating or text arrays; names of letters, digits and ``_ . - /``.
    header : mapping
        JSON-able; numpy scalars become plain numbers, tuples lists.
    format, version : str, int
        Name and version of what is stored; `read_container` insists on both.
    key : bytes, optional
        Secret for an HMAC-SHA256 of the content. Without it the checksum shows accidents, not forgery.
    private : bool
        Whether only the file's owner may read it.

    Raises
    ------
    ArgumentError
        An array or the header cannot be stored without pickle.
    """
    _checked_key(key)
    stored = {_checked_name(name): _plain(name, array) for name, array in sorted(arrays.items())}
    content = {
        "container": CONTAINER,
        "container_version": CONTAINER_VERSION,
        "format": format,
        "version": version,
        "header": header,
    }
    _canonical(content)  # refuse a header that is not JSON before the disk is touched
    target = Path(path)
    draft = target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")
    try:
        with open(draft, "xb", opener=open_private if private else None) as stream:
            _write_archive(stream, stored, content, key)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(draft, target)
    finally:
        draft.unlink(missing_ok=True)


def read_container(
    path: str | PathLike[str], *, format: str, version: int = 1, key: bytes | None = None
) -> tuple[dict[str, np.ndarray[Any, Any]], dict[str, Any]]:
    """Return (arrays, header) of a file that `write_container` wrote, after checking all of it.

    Raises
    ------
    FileNotFoundError
        There is no such file; at a public door FileMissingError.
    StorageError
        The file is foreign, truncated, corrupted, of another format or a newer version; or it was
        written with another key, with a key and none is given, or the other way round.
    """
    _checked_key(key)
    with open(path, "rb") as stream:
        try:
            with zipfile.ZipFile(stream) as archive:
                manifest = _read_manifest(archive, path)
                _check_identity(manifest, path, format, version)
                _check_tag(manifest, path, key)
                return _read_arrays(archive, manifest["arrays"], path), manifest["header"]
        except DAMAGE:
            raise StorageError(f"{path} is truncated, corrupted, or not a privinf file") from None


def open_private(path: str, flags: int) -> int:
    """Open a file that, if it is made, nobody but its owner may read: an `opener` for ``open``."""
    return os.open(path, flags, 0o600)


def _write_archive(stream: IO[bytes], arrays: Arrays, content: dict[str, Any], key: bytes | None) -> None:
    digests = {}
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            with archive.open(_member(name + ".npy"), "w", force_zip64=True) as member:
                hashing = _HashingWriter(member)
                np.lib.format.write_array(hashing, array, version=(1, 0), allow_pickle=False)
            digests[name] = hashing.digest.hexdigest()
        manifest = {**content, "arrays": digests}
        method, tag = _tag(_canonical(manifest), key)
        archive.writestr(
            _member(MANIFEST), _canonical({**manifest, "integrity": {"method": method, "tag": tag}})
        )


def _read_manifest(archive: zipfile.ZipFile, path: Any) -> dict[str, Any]:
    if MANIFEST not in archive.namelist():
        raise StorageError(f"{path} is not a privinf file: it has no manifest")
    if any(
        member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1 for member in archive.infolist()
    ):
        raise StorageError(f"{path} was repacked by another program: ask for the original file")
    try:
        manifest = json.loads(archive.read(MANIFEST))
    except DAMAGE:
        raise StorageError(f"{path} is corrupted: its manifest cannot be read") from None
    if not isinstance(manifest, dict) or manifest.get("container") != CONTAINER:
        raise StorageError(f"{path} is not a privinf file: its manifest is another program's")
    return manifest


def _check_identity(manifest: dict[str, Any], path: Any, format: str, version: int) -> None:
    if manifest.get("container_version") != CONTAINER_VERSION:
        raise StorageError(f"{path} was written by a newer privinf: update the package to read it")
    if manifest.get("format") != format:
        raise StorageError(f"{path} holds a {manifest.get('format')!r}, not a {format!r}")
    found = manifest.get("version")
    if not isinstance(found, int) or found > version:
        raise StorageError(
            f"{path} holds version {found} of {format!r}; this privinf reads up to {version}: update it"
        )


def _check_tag(manifest: dict[str, Any], path: Any, key: bytes | None) -> None:
    integrity = manifest.pop("integrity", None)
    if not isinstance(integrity, dict) or not {"arrays", "header"} <= manifest.keys():
        raise StorageError(f"{path} is corrupted: its manifest is incomplete")
    method, tag = _tag(_canonical(manifest), key)
    if integrity.get("method") != method:
        needed = (
            "was written with a key: pass key="
            if key is None
            else "was written without a key: it proves nothing"
        )
        raise StorageError(f"{path} {needed}")
    if not hmac.compare_digest(str(integrity.get("tag")).encode(), tag.encode()):
        raise StorageError(
            f"{path} is corrupted: its checksum does not match"
            if key is None
            else f"{path} was changed, or written with another key"
        )


def _read_arrays(
    archive: zipfile.ZipFile, digests: Mapping[str, str], path: Any
) -> dict[str, np.ndarray[Any, Any]]:
    if sorted(archive.namelist()) != sorted([*(name + ".npy" for name in digests), MANIFEST]):
        raise StorageError(f"{path} is corrupted: arrays are missing or were added")
    arrays = {}
    for name, expected in digests.items():
        with archive.open(name + ".npy") as member:
            hashing = _HashingReader(member)
            try:
                arrays[name] = np.lib.format.read_array(hashing, allow_pickle=False)
            except DAMAGE:
                raise StorageError(f"{path} is corrupted: array {name!r} cannot be read") from None
            if hashing.read() or hashing.digest.hexdigest() != expected:
                raise StorageError(f"{path} is corrupted: array {name!r} does not match its checksum")
    return arrays


class _HashingWriter:
    """A binary stream that hashes what passes through it."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.digest = hashlib.sha256()

    def write(self, block: Any) -> int:
        self.digest.update(block)
        return self._stream.write(block)


class _HashingReader:
    """A binary stream that hashes what is read from it."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.digest = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        block = self._stream.read(size)
        self.digest.update(block)
        return block


def _tag(content: bytes, key: bytes | None) -> tuple[str, str]:
    if key is None:
        return "sha256", hashlib.sha256(content).hexdigest()
    return "hmac-sha256", hmac.new(key, content, hashlib.sha256).hexdigest()


def _checked_key(key: bytes | None) -> None:
    if key is not None and (not isinstance(key, bytes) or not key):
        raise ArgumentError("key must be non-empty bytes")


def _canonical(content: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(content, sort_keys=True, separators=(",", ":"), default=_jsonable).encode()
    except (TypeError, ValueError) as problem:
        raise ArgumentError(f"the header cannot be stored as JSON: {problem}") from None


def _jsonable(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


def _member(name: str) -> zipfile.ZipInfo:
    member = zipfile.ZipInfo(name, EPOCH)
    member.create_system = 3  # fixed, so that Windows writes the same bytes
    member.external_attr = 0o644 << 16
    return member


def _checked_name(name: str) -> str:
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9_.\-/]+", name):
        raise ArgumentError(f"array name {name!r}: use letters, digits and _ . - /")
    return name


def _plain(name: str, array: Any) -> np.ndarray[Any, Any]:
    """Return the array little-endian and in C order, so that equal content is equal bytes."""
    plain = np.asarray(array)
    if plain.dtype.kind not in STORED_KINDS:
        raise ArgumentError(f"array {name!r} of type {plain.dtype} cannot be stored without pickle")
    return np.asarray(plain, dtype=plain.dtype.newbyteorder("<"), order="C")
