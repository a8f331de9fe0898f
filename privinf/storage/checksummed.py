"""Files and JSON that come from elsewhere: read strictly, with a checksum where the package wrote them.

A sealed text holds the SHA-256 of its own content in the field ``sha256``: a damaged digit is noticed, a
forger can compute it again. Texts that people write (schemas, policies, lists of columns) have none.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import secrets
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from os import PathLike
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, ParamSpec, TypeVar

from privinf.errors import (
    FileMissingError,
    NotAvailableError,
    PrivinfError,
    PrivinfWarning,
    StorageError,
    UnforeseenError,
)
from privinf.secret_files import SAFELY, check_folder, open_secret
from privinf.typing import AnyPath, SecretKind
from privinf.validation import check_path, check_vacant
from privinf.wire import Formats

if TYPE_CHECKING:
    import pandas as pd

P = ParamSpec("P")
R = TypeVar("R")

SEAL = "sha256"
# No number of the package has more digits; with more, an int passes for a number and overflows as a float.
MOST_DIGITS = 300
MOST_BYTES = 1 << 28  # of a text that is read
# Metadata of a Parquet file: values that its table cannot hold.
PARQUET_KEY = Formats.PARQUET_KEY


def checksummed_json(
    record: Mapping[str, Any], *, beside: Mapping[str, Any] | None = None, indent: int | None = None
) -> str:
    """Return a record as JSON text with its checksum, on a line of its own where there are lines.

    `beside` has fields that follow the record and are not under the checksum.
    """
    return json.dumps({SEAL: checksum(record), **record, **(beside or {})}, indent=indent, allow_nan=False)


def verified_record(record: object, subject: str, fields: Iterable[str]) -> dict[str, Any]:
    """Return a record that was read without its checksum, once that is right.

    A record without a checksum passes, because people who edit a text by hand delete its checksum. A record
    with other fields does not pass, so a checksum whose name is damaged is an error.

    Raises StorageError if it is not a JSON object with these fields, or its checksum does not match.
    """
    if not isinstance(record, dict) or record.keys() - {SEAL} != set(fields):
        raise StorageError(
            f"this version of privinf cannot read the text as {subject}; update privinf, or use another file"
        )
    content = {name: value for name, value in record.items() if name != SEAL}
    if SEAL in record and record[SEAL] != checksum(content):
        raise StorageError(
            f"the text is not {subject} as privinf wrote it, because its checksum does not match; use the "
            "original text"
        )
    return content


def checksum(record: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a record as canonical JSON, in hexadecimal."""
    text = json.dumps(record, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def parse_json(text: str | bytes, subject: str, *, constants: bool = False) -> Any:
    """Return the value of a JSON text.

    Parameters
    ----------
    text : str or bytes
    subject : str
        Name of the object in messages.
    constants : bool
        Whether nan and infinities are numbers.

    Raises
    ------
    StorageError
        The text is not JSON, or is JSON that two programs may read differently. Examples are a key that
        occurs twice in an object, a number or a nesting of lists without end, and a text that is not Unicode.
    """
    place = ""
    try:
        content = json.loads(
            text,
            parse_int=_integer,
            parse_float=float if constants else _finite,
            parse_constant=float if constants else _finite,
            object_pairs_hook=_object,
        )
        json.dumps(content, ensure_ascii=False).encode()  # refuses halves of characters
        return content
    except json.JSONDecodeError as problem:
        place = f" (line {problem.lineno})"
    except (RecursionError, TypeError, ValueError):
        pass
    raise StorageError(f"{subject} is not valid JSON{place}")


def read_bytes(
    path: str | PathLike[str],
    subject: str,
    *,
    most: int | None = MOST_BYTES,
    secret: SecretKind | None = None,
) -> bytes:
    """Return the content of a file, of a secret one by the rules of `open_secret`.

    Raises StorageError if it cannot be read, is longer than `most` bytes, or is secret and not safe.
    """
    place = check_path(path)
    try:
        with open(place if secret is None else open_secret(place, subject, secret), "rb") as stream:
            content = stream.read(-1 if most is None else most + 1)
    except OSError as problem:
        failure = unreadable(path, problem)
    else:
        if most is None or len(content) <= most:
            return content
        failure = StorageError(f"{path} is too large to be {subject}")
    raise failure


def read_text(path: str | PathLike[str], subject: str, *, secret: SecretKind | None = None) -> str:
    """Return the text of a UTF-8 file (StorageError if it cannot be read, or is secret and not safe)."""
    content = read_bytes(path, subject, secret=secret)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        pass
    raise StorageError(f"{path} is not a UTF-8 text file, so it cannot be {subject}")


@contextmanager
def written_whole(path: Path, *, private: bool = False, lasting: bool = False) -> Iterator[IO[bytes]]:
    """Open a file that is there as a whole, on disk, when the block has ended, or as it was before.

    Parameters
    ----------
    path : Path
    private : bool
        Whether only the file's owner may read it; its folder must be one for secret files (StorageError).
    lasting : bool
        Whether the file's new name must have reached the disk too.
    """
    if private:
        check_folder(path.parent, path.name)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        with open(draft, "xb", opener=_open_private if private else None) as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)
    if lasting and os.name == "posix":
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def save_text(path: str | PathLike[str], text: str, *, overwrite: bool = False) -> None:
    """Write a text file as a whole; see `save_bytes`."""
    save_bytes(path, text.encode(), overwrite=overwrite)


def save_bytes(path: str | PathLike[str], content: bytes, *, overwrite: bool = False) -> None:
    """Write a file as a whole, for people and other programs.

    Raises ArgumentError if the file exists and `overwrite` is not True;
    StorageError if it cannot be written.
    """
    target = check_vacant(path, overwrite)
    try:
        with written_whole(target) as stream:
            stream.write(content)
        return
    except OSError as problem:
        error = StorageError(f"{target} cannot be written ({problem.strerror or type(problem).__name__})")
    raise error


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags | SAFELY, 0o600)


def unreadable(path: str | PathLike[str], problem: OSError) -> StorageError:
    """Return the error for a file that the system does not give."""
    if isinstance(problem, FileNotFoundError):
        return FileMissingError(f"the file {Path(path)} does not exist")
    if isinstance(problem, IsADirectoryError):
        return StorageError(f"{Path(path)} is a folder; pass the path of a file")
    if isinstance(problem, PermissionError):
        return StorageError(
            f"this account is not allowed to read {Path(path)}; use an account that may read it"
        )
    return StorageError(f"{Path(path)} cannot be read ({problem.strerror or type(problem).__name__})")


def reads(subject: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a function that reads foreign data raise only bare errors of the tree.

    Every other exception means that the content does not describe `subject`; its text is left out.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
            failure: Exception
            try:
                return function(*args, **kwargs)
            except Exception as problem:
                failure = problem
                own_error = isinstance(problem, (PrivinfError, PrivinfWarning))
                if not own_error or isinstance(problem, UnforeseenError):
                    failure = StorageError(
                        f"the stored content does not describe {subject}: it is damaged, or another version "
                        "of privinf wrote it; use an intact copy, or that version"
                    )
            failure.__context__ = failure.__cause__ = None
            raise failure

        return wrapped

    return decorate


def _integer(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise ValueError("digits")
    return int(digits)


def _finite(number: str) -> float:
    value = float(number)
    if not math.isfinite(value):
        raise ValueError("finite")
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        raise ValueError("keys")
    return content


def write_json(content: Mapping[str, Any], path: AnyPath | None, overwrite: bool) -> str:
    """Return plain content as JSON; with a path, also write it to a file."""
    text = json.dumps(content, indent=1, allow_nan=False, ensure_ascii=False) + "\n"
    if path is not None:
        save_text(path, text, overwrite=overwrite)
    return text


def write_parquet(
    make_table: Callable[[], pd.DataFrame], content: Mapping[str, Any], path: AnyPath, overwrite: bool
) -> None:
    """Write a table as a Parquet file, and plain content as JSON in its metadata."""
    try:
        from pyarrow import Table, parquet
    except ImportError:
        raise NotAvailableError("Parquet files need pyarrow: install privinf[parquet]") from None
    target = check_vacant(path, overwrite)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the file has the same contents
        table = Table.from_pandas(make_table(), preserve_index=False)
    text = json.dumps(content, allow_nan=False, ensure_ascii=False).encode()
    stream = io.BytesIO()
    annotated = table.replace_schema_metadata({**(table.schema.metadata or {}), PARQUET_KEY: text})
    parquet.write_table(annotated, stream)
    save_bytes(target, stream.getvalue(), overwrite=overwrite)
