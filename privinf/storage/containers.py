"""One file format for releases and results: npz arrays next to a JSON manifest, never pickle.

A file is an uncompressed zip archive that ``numpy.load`` can open too. Its manifest holds the header and
the SHA-256 of every array, and is itself covered by a checksum, or by an HMAC where a key is given. The
same content gives the same bytes on every platform.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import os
import re
import struct
import zipfile
import zlib
from collections.abc import Mapping
from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import IO, Any

import numpy as np

from privinf.errors import ArgumentError, StorageError
from privinf.secret_files import open_secret
from privinf.storage.checksummed import parse_json, read_bytes, reads, unreadable, written_whole
from privinf.validation import check_path
from privinf.wire import Formats

Arrays = Mapping[str, np.ndarray[Any, Any]]

CONTAINER = Formats.CONTAINER
CONTAINER_VERSION = 1  # of the layout of a file
MANIFEST = "manifest.json"
# The earliest moment that a zip archive can express: no clock enters the file.
EPOCH = (1980, 1, 1, 0, 0, 0)
STORED_KINDS = "biufU"
# What zipfile raises on damaged bytes: bad offsets, flags, lengths.
DAMAGE = (
    zipfile.BadZipFile,
    EOFError,
    KeyError,
    MemoryError,
    NotImplementedError,
    OSError,
    OverflowError,
    RuntimeError,
    struct.error,
    ValueError,
    zlib.error,
)
# Arrays as numpy writes them in its format 1.0: always little-endian and in C order, never objects.
ARRAY_MAGIC = b"\x93NUMPY\x01\x00"
# How a user reads a file of another format than the one that was needed.
LOADERS = {
    Formats.RESULTS: "it contains a fit; load it with privinf.load_results",
    Formats.RELEASE: "it contains a release; load it with privinf.load_release",
    Formats.SURVIVAL: "it contains a survival result; load it with privinf.survival.SurvivalResult.load",
}
# The first lines of the JSON that `to_json` writes.
EXPORT = re.compile(rb'\s*\{\s*"format": "(privinf-(?:result|test|table))"')
ARRAY_HEADER = re.compile(
    rb"\{'descr': '([<|][biufU]\d{1,9})', 'fortran_order': False, 'shape': \(([\d, ]{0,99})\), \} *\n"
)


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
        Name and version of the stored object; `read_container` requires both.
    key : bytes, optional
        Secret for an HMAC-SHA256 of the content. Without it the checksum shows accidents, not forgery.
    private : bool
        Whether only the file's owner may read it.

    Raises
    ------
    StorageError
        It is private, and others may write to its folder.
    ArgumentError
        An array or the header cannot be stored without pickle.
    """
    _checked_key(key)
    stored, content = _storable(arrays, header, format, version)
    with written_whole(check_path(path), private=private) as stream:
        _write_archive(stream, stored, content, key)


def container_bytes(arrays: Arrays, header: Mapping[str, Any], *, format: str, version: int = 1) -> bytes:
    """Return the bytes that `write_container` would write without a key; errors as there."""
    _write_archive(stream := BytesIO(), *_storable(arrays, header, format, version), None)
    return stream.getvalue()


def _storable(arrays: Arrays, header: Mapping[str, Any], format: str, version: int) -> tuple[Arrays, Any]:
    stored = {_checked_name(name): _plain(name, array) for name, array in sorted(arrays.items())}
    _canonical(content := _content(header, format, version))
    return stored, content


def read_container(
    path: str | PathLike[str],
    *,
    format: str,
    version: int = 1,
    key: bytes | None = None,
    private: bool = False,
    mismatch: str = "",
) -> tuple[dict[str, np.ndarray[Any, Any]], dict[str, Any]]:
    """Return (arrays, header) of a file that `write_container` wrote, after checking all of it.

    `mismatch` is the message about a wrong key where the caller of the package does not pass the key.

    Raises
    ------
    FileMissingError
        There is no such file.
    StorageError
        It cannot be read; it is foreign, truncated, corrupted, of another format or a newer version; or it
        was written with another key, with a key and none is given, or the other way round; or it is `private`
        and others can have changed or planted it, see `privinf.secret_files`.
    """
    _checked_key(key)
    place = check_path(path)
    try:
        with open(open_secret(place, "a private file", "ledger") if private else place, "rb") as stream:
            return _read_archive(stream, path, format, version, key, mismatch)
    except OSError as problem:
        failure = unreadable(path, problem)
    raise failure


def stored_format(path: str | PathLike[str]) -> str | None:
    """Return the name of the format that a file states, unchecked; None where it is not a container."""
    try:
        with zipfile.ZipFile(check_path(path)) as archive:
            return str(_checked_manifest(archive.read(MANIFEST), path).get("format"))
    except (StorageError, *DAMAGE):
        return None


def write_manifest(
    path: Path, header: Mapping[str, Any], digests: Mapping[str, str], *, format: str, version: int = 1
) -> None:
    """Write the manifest next to a file, with the file's SHA-256, atomically."""
    with written_whole(path) as stream:
        stream.write(_sealed(_content(header, format, version), digests, None))


def read_manifest(
    path: Path, *, format: str, version: int = 1, key: bytes | None = None
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return (header, digests) that `write_manifest` wrote; errors as for `read_container`."""
    manifest = _checked_manifest(read_bytes(path, "a manifest"), path)
    _check_identity(manifest, path, format, version)
    digests = _check_tag(manifest, path, key)
    return manifest["header"], digests


def _content(header: Mapping[str, Any], format: str, version: int) -> dict[str, Any]:
    return {
        "container": CONTAINER,
        "container_version": CONTAINER_VERSION,
        "format": format,
        "version": version,
        "header": header,
    }


def _write_archive(stream: IO[bytes], arrays: Arrays, content: dict[str, Any], key: bytes | None) -> None:
    digests = {}
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            with archive.open(_member(name + ".npy"), "w", force_zip64=True) as member:
                hashing = HashingWriter(member)
                np.lib.format.write_array(hashing, array, version=(1, 0), allow_pickle=False)
            digests[name] = hashing.digest.hexdigest()
        archive.writestr(_member(MANIFEST), _sealed(content, digests, key))


def _sealed(content: dict[str, Any], digests: Mapping[str, str], key: bytes | None) -> bytes:
    manifest = {**content, "arrays": digests}
    method, tag = _tag(_canonical(manifest), key)
    return _canonical({**manifest, "integrity": {"method": method, "tag": tag}})


def _read_archive(
    stream: IO[bytes], path: Any, format: str, version: int, key: bytes | None, mismatch: str
) -> tuple[dict[str, np.ndarray[Any, Any]], dict[str, Any]]:
    """Return (arrays, header) of an open file."""
    try:
        with zipfile.ZipFile(stream) as archive:
            _check_members(archive, path, stream.seek(0, os.SEEK_END))
            manifest = _checked_manifest(archive.read(MANIFEST), path)
            _check_identity(manifest, path, format, version)
            digests = _check_tag(manifest, path, key, mismatch)
            return _read_arrays(archive, digests, path), manifest["header"]
    except DAMAGE:
        pass
    stream.seek(0)
    if export := EXPORT.match(stream.read(200)):
        raise StorageError(
            f"{path} is the JSON export of a result (format {export[1].decode()!r}), which is for other "
            "programs and cannot be loaded as a result: read it with json.load. To load a fit again, write "
            "it with save()"
        )
    raise StorageError(f"{path} is not a privinf file, or it is damaged or incomplete; use an intact copy")


def _check_members(archive: zipfile.ZipFile, path: Any, length: int) -> None:
    """Refuse members that are compressed, or that declare more bytes than the file has."""
    members = archive.infolist()
    if MANIFEST not in archive.namelist():
        raise StorageError(f"{path} is not a privinf file, because it has no list of contents (manifest)")
    if any(member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1 for member in members):
        raise StorageError(
            f"{path} was compressed again by another program and cannot be read; use the original file"
        )
    if sum(max(member.file_size, member.compress_size) for member in members) > length:
        raise StorageError(
            f"{path} is truncated or corrupted, because the sizes of its parts add up to more than the size "
            "of the file; use an intact copy"
        )


def _checked_manifest(text: bytes, path: Any) -> dict[str, Any]:
    manifest = parse_json(text, f"the manifest of {path}", constants=True)
    if not isinstance(manifest, dict) or manifest.get("container") != CONTAINER:
        raise StorageError(
            f"{path} is not a privinf file, because another program wrote its list of contents (manifest)"
        )
    return manifest


def _check_identity(manifest: dict[str, Any], path: Any, format: str, version: int) -> None:
    if manifest.get("container_version") != CONTAINER_VERSION:
        raise StorageError(f"{path} was written by a newer version of privinf; update privinf to read it")
    if manifest.get("format") != format:
        stored = manifest.get("format")
        foreign = f"its format is {stored!r}, but the format {format!r} is needed"
        raise StorageError(f"{path} cannot be read here: {LOADERS.get(str(stored), foreign)}")
    number = manifest.get("version")
    if not isinstance(number, int) or number > version:
        raise StorageError(
            f"{path} is a {format!r} of version {number}, but this privinf reads versions up to "
            f"{version}; update privinf"
        )


def _check_tag(manifest: dict[str, Any], path: Any, key: bytes | None, mismatch: str = "") -> dict[str, str]:
    """Return the digests of the arrays after verifying the manifest."""
    integrity = manifest.pop("integrity", None)
    header = manifest.get("header")
    digests = manifest.get("arrays")
    if not (isinstance(integrity, dict) and isinstance(header, dict) and isinstance(digests, dict)):
        raise StorageError(
            f"{path} is corrupted, because its list of contents (manifest) is incomplete; use an intact copy"
        )
    method, tag = _tag(_canonical(manifest), key)
    if integrity.get("method") != method:
        raise StorageError(
            mismatch
            if mismatch
            else f"{path} was written with a key; pass the same key as key="
            if key is None
            else f"{path} was written without a key, so key= cannot prove who wrote it; omit key="
        )
    if not hmac.compare_digest(str(integrity.get("tag")).encode(), tag.encode()):
        raise StorageError(
            f"{path} is corrupted, because its checksum does not match; use an intact copy"
            if key is None
            else mismatch
            or (
                f"{path} was changed, or was written with another key; pass as key= the key that "
                "was used to write it"
            )
        )
    return digests


def _read_arrays(
    archive: zipfile.ZipFile, digests: Mapping[str, str], path: Any
) -> dict[str, np.ndarray[Any, Any]]:
    if sorted(archive.namelist()) != sorted([*(name + ".npy" for name in digests), MANIFEST]):
        raise StorageError(
            f"{path} is corrupted, because arrays are missing or were added; use an intact copy"
        )
    return {name: _read_array(archive, name, digest, path) for name, digest in digests.items()}


def _read_array(archive: zipfile.ZipFile, name: str, digest: str, path: Any) -> np.ndarray[Any, Any]:
    """Return one array, once its bytes are seen to be those that were written."""
    try:
        content = archive.read(name + ".npy")
    except DAMAGE:
        content = b""
    if hashlib.sha256(content).hexdigest() != digest:
        raise StorageError(
            f"{path} is corrupted, because array {name!r} does not match its checksum; use an intact copy"
        )
    return _parsed_array(content, name, path)


@reads("an array")
def _parsed_array(content: bytes, name: str, path: Any) -> np.ndarray[Any, Any]:
    """Return the array of a member: of a kind that is written, and of the size in its header."""
    match = ARRAY_HEADER.match(content, 10)
    if (
        not content.startswith(ARRAY_MAGIC)
        or match is None
        or match.end() != 10 + int.from_bytes(content[8:10], "little")
    ):
        raise StorageError(
            f"{path} is damaged, or another program wrote it: its array {name!r} has an unknown format; "
            "use the original file"
        )
    dtype = np.dtype(match[1].decode())
    shape = tuple(int(length) for length in match[2].decode().split(",") if length.strip())
    if match.end() + math.prod(shape) * dtype.itemsize != len(content):
        raise StorageError(
            f"{path} is damaged, because its array {name!r} does not have the size that the array's header "
            "declares; use an intact copy"
        )
    array: np.ndarray[Any, Any] = np.ndarray(shape, dtype, content, match.end())
    if dtype.kind == "U":
        array.tolist()  # refuses characters that are none
    return array


class HashingWriter:
    """A binary stream that hashes what passes through it; closing it leaves the stream open."""

    closed = False

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.digest = hashlib.sha256()

    def write(self, block: bytes) -> int:
        """Write and hash."""
        self.digest.update(block)
        return self._stream.write(block)

    def flush(self) -> None:
        """Do nothing: the opener of the stream flushes it."""

    close = flush


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file (StorageError if it cannot be read)."""
    try:
        with open(path, "rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as problem:
        failure = unreadable(path, problem)
    raise failure


def _tag(content: bytes, key: bytes | None) -> tuple[str, str]:
    if key is None:
        return "sha256", hashlib.sha256(content).hexdigest()
    return "hmac-sha256", hmac.new(key, content, hashlib.sha256).hexdigest()


def _checked_key(key: bytes | None) -> None:
    if key is not None and (not isinstance(key, bytes) or not key):
        raise ArgumentError("key= must be non-empty bytes")


def _canonical(content: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(content, sort_keys=True, separators=(",", ":"), default=_jsonable).encode()
    except (TypeError, ValueError) as problem:
        raise ArgumentError(
            f"the header cannot be stored as JSON ({problem}); use numbers, texts, lists and mappings"
        ) from None


def _jsonable(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"JSON cannot hold values of type {type(value).__name__}")


def _member(name: str) -> zipfile.ZipInfo:
    member = zipfile.ZipInfo(name, EPOCH)
    member.create_system = 3  # fixed, so that Windows writes the same bytes
    member.external_attr = 0o644 << 16
    return member


def _checked_name(name: str) -> str:
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9_.\-/]+", name):
        raise ArgumentError(
            f"array name {name!r} is not valid; use only letters, digits and the characters _ . - /"
        )
    return name


def _plain(name: str, array: Any) -> np.ndarray[Any, Any]:
    """Return the array little-endian and in C order, so that equal content is equal bytes."""
    plain = np.asarray(array)
    if plain.dtype.kind not in STORED_KINDS:
        raise ArgumentError(
            f"array {name!r} has the type {plain.dtype}, which cannot be stored; convert it to "
            "numbers, booleans or texts"
        )
    return np.asarray(plain, dtype=plain.dtype.newbyteorder("<"), order="C")
