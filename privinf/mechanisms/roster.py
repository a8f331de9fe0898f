"""People of the table: ids in one order for all parties, their digest, each row's position.

Ids are compared as texts without surrounding blanks. Where all of them are whole numbers as they are usually
written (no leading zero or plus sign, at most 64 bits) they are sorted as numbers, else by code point: the
same order and digest whether a file holds them as numbers or as text. The digest is the SHA-256 of the
sorted ids, one a line.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from privinf.errors import AlignmentError
from privinf.mechanisms.labels import NUMBERS, TEXTS, label_column
from privinf.typing import ColumnLike, Integers

# Texts that mean a missing value, in ids as in other columns of a CSV file.
MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "<NA>")

SEVERAL_TYPES = (
    "the id column holds integers in some rows and texts in others, so one id could occur "
    "in both types: convert all ids to one type"
)
_HASHED = 1 << 16  # ids that are digested at a time
_INTEGER_TEXT = "S20"  # -9223372036854775808

# Whole numbers, or UTF-8 texts, whose bytes sort as their code points do.
Ids: TypeAlias = Integers | NDArray[np.bytes_]
IdReader: TypeAlias = Callable[[], Iterator[Ids]]


@dataclass(frozen=True, slots=True)
class Alignment:
    """Positions of the rows of a table in the order of the sorted ids.

    Attributes
    ----------
    n : int
        Number of rows.
    ranks : int64 array (n,) or None
        Position of each row; None where the table is in that order already.
    sha256 : str
        Digest of the sorted ids.
    """

    n: int
    ranks: Integers | None
    sha256: str


def roster_digest(ids: ColumnLike) -> str:
    """Return the SHA-256 that a plan states about its people: of the sorted ids, one a line.

    Parameters
    ----------
    ids : sequence, array or Series of whole numbers or texts
        In any order, each once.

    Returns
    -------
    str
        64 hexadecimal digits.

    Raises
    ------
    AlignmentError
        An id is missing, is there twice, or is neither a whole number nor a text; or some are numbers and
        others texts.

    Examples
    --------
    >>> roster_digest([10, 9, 2]) == roster_digest(["2", "10", "9"])
    True
    """
    column = label_column(ids)
    return align(lambda: id_blocks(iter([column]))).sha256


def id_blocks(columns: Iterator[pd.Series[Any]]) -> Iterator[Ids]:
    """Yield the ids of the blocks of one column.

    Raises AlignmentError as `read_ids`, and where blocks hold ids of several types.
    """
    first = ""
    for column in columns:
        kind, ids = read_ids(column)
        first = first or kind
        if kind and kind != first:
            raise AlignmentError(SEVERAL_TYPES)
        yield ids


def read_ids(column: pd.Series[Any]) -> tuple[str, Ids]:
    """Return the kind of a column of ids, and its ids: whole numbers if all are, else UTF-8 texts.

    Raises
    ------
    AlignmentError
        An id is missing, or neither a whole number nor a text of one line; or some are numbers, others texts.
    """
    dtype = column.dtype
    if column.isna().any():
        raise AlignmentError("the id column has missing values: every row needs its id")
    if pd.api.types.is_integer_dtype(dtype) and (not len(column) or column.max() < 2**63):
        return NUMBERS if len(column) else "", column.to_numpy(dtype=np.int64)
    values = column.to_numpy(dtype=object).tolist()
    kinds = {_id_kind(python_type) for python_type in set(map(type, values))}
    texts = [str(value).strip() for value in values]
    if not set(MISSING).isdisjoint(texts):
        raise AlignmentError("the id column has missing values: every row needs its id")
    if len(kinds) > 1:
        raise AlignmentError(SEVERAL_TYPES)
    return next(iter(kinds), ""), _numbers(_encoded(texts))


def _id_kind(python_type: type) -> str:
    if issubclass(python_type, str):
        return TEXTS
    if issubclass(python_type, (int, np.integer)) and not issubclass(python_type, bool):
        return NUMBERS
    raise AlignmentError("the id column must hold integers or texts: convert the ids to one of these types")


def align(read_blocks: IdReader) -> Alignment:
    """Return the positions of rows by their ids; `read_blocks` yields the blocks of ids at every call.

    Ids that already increase are read in constant memory; else all of them are held and sorted.

    Raises
    ------
    AlignmentError
        An id is there twice.
    """
    return _increasing(read_blocks()) or _ranked(read_blocks())


def compare(read_blocks: IdReader, roster: IdReader) -> tuple[int, int]:
    """Return how many ids of the roster are missing in a table, and how many of its ids are not in it."""
    table_ids = _texts(_collected(read_blocks()))
    roster_ids = _texts(_collected(roster()))
    return len(np.setdiff1d(roster_ids, table_ids)), len(np.setdiff1d(table_ids, roster_ids))


def _encoded(texts: list[str]) -> NDArray[np.bytes_]:
    if any("\n" in text or "\0" in text for text in texts):
        raise AlignmentError(
            "an id contains a line break or a zero byte: every id must be a text of one line"
        )
    try:
        return np.array([text.encode() for text in texts], dtype=np.bytes_)
    except UnicodeEncodeError:
        raise AlignmentError(
            "an id is not a valid Unicode text: read the ids with the encoding in which they were written"
        ) from None


def _numbers(texts: NDArray[np.bytes_]) -> Ids:
    """Return texts as the whole numbers that they spell, if every one is spelt in the usual way."""
    if texts.dtype.itemsize > np.dtype(_INTEGER_TEXT).itemsize:
        return texts
    try:
        numbers = texts.astype(np.int64)
    except (ValueError, OverflowError):
        return texts
    return numbers if np.array_equal(_texts(numbers), texts) else texts


def _texts(ids: Ids) -> NDArray[np.bytes_]:
    """Return ids as texts; whole numbers in 20 bytes each, which holds every one of 64 bits."""
    return np.asarray(ids, dtype=np.bytes_ if ids.dtype.kind == "S" else _INTEGER_TEXT)


def _increasing(blocks: Iterable[Ids]) -> Alignment | None:
    """Return the alignment of ids that increase from row to row, None if they do not."""
    hashed = hashlib.sha256()
    n = 0
    last: Any = None
    for block in blocks:
        if not len(block):
            continue
        ids: Any = block
        if last is not None and last.dtype.kind != ids.dtype.kind:
            if ids.dtype.kind == "S":
                return None
            ids = _texts(ids)
        joined = ids if last is None else np.concatenate([last, ids])
        if not np.all(joined[1:] > joined[:-1]):
            return None
        _hash(hashed, ids)
        n = n + len(ids)
        last = ids[-1:]
    return Alignment(n, None, hashed.hexdigest())


def _ranked(blocks: Iterable[Ids]) -> Alignment:
    ids = _collected(blocks)
    order = np.argsort(ids, kind="stable")
    ids = ids[order]
    repeated = int(np.count_nonzero(ids[1:] == ids[:-1]))
    if repeated:
        raise AlignmentError(f"{repeated} row(s) repeat the id of another row: keep one row per person")
    hashed = hashlib.sha256()
    _hash(hashed, ids)
    ranks = np.empty(len(ids), dtype=np.int64)
    ranks[order] = np.arange(len(ids))
    return Alignment(len(ids), ranks, hashed.hexdigest())


def _collected(blocks: Iterable[Ids]) -> Ids:
    parts = list(blocks)
    if any(block.dtype.kind == "S" for block in parts if len(block)):
        return np.concatenate([_texts(block) for block in parts])
    return np.concatenate([np.empty(0, dtype=np.int64), *(block for block in parts if len(block))])


def _hash(hashed: Any, ids: Ids) -> None:
    for start in range(0, len(ids), _HASHED):
        lines = _texts(ids[start : start + _HASHED]).tolist()
        hashed.update(b"\n".join(lines) + b"\n")
