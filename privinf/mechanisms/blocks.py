"""A party's rows in blocks, each row at its place in the order that all parties share.

That is the order of the sorted ids of people. Ids are compared as texts without surrounding blanks. Where all
of them are whole numbers as they are usually written (no leading zero or plus sign, at most 64 bits) they are
sorted as numbers, else by code point: the same order and digest whether a file holds them as numbers or as
text. The digest is the SHA-256 of the sorted ids, one a line.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from privinf.error_boundary import error_boundary
from privinf.errors import AlignmentError, SchemaError
from privinf.mechanisms.labels import MISSING, NUMBERS, TEXTS, label_column
from privinf.mechanisms.reading import checked_blocks
from privinf.mechanisms.rows import ALIGNED, Rows, as_rows, refuse_unordered
from privinf.mechanisms.sources import Source, no_rows, require_columns
from privinf.mechanisms.tables import source_of
from privinf.schema import Schema
from privinf.schema.arrays import kinds_of
from privinf.schema.table import check_schema
from privinf.typing import ColumnKind, ColumnLike, Integers, Missing, Table
from privinf.validation import check_count

SEVERAL_TYPES = (
    "the id column holds integers in some rows and texts in others, so one id could occur "
    "in both types: convert all ids to one type"
)
_HASHED = 1 << 16  # ids that are digested at a time
_INTEGER_TEXT = "S20"  # -9223372036854775808

# Whole numbers, or UTF-8 texts, whose bytes sort as their code points do.
Ids: TypeAlias = Integers | NDArray[np.bytes_]
IdReader: TypeAlias = Callable[[], Iterator[Ids]]


# ---- a party's table


@runtime_checkable
class RowBlocks(Protocol):
    """Interface of a table that is read in blocks of rows, for the release of a party.

    The number n of rows is ``len()`` of the object. Each block has a position. If the rows of a block are
    consecutive, the position of the block is the position of its first row (an integer). Otherwise, it is an
    int64 array with the position of each row. Every position from 0 to n - 1 occurs in exactly one block.
    """

    def __len__(self) -> int:
        """Return the number of rows.

        Returns
        -------
        int
            n.
        """

    def blocks(self) -> Iterator[tuple[int | Integers, pd.DataFrame]]:
        """Yield blocks of rows with their positions.

        Yields
        ------
        tuple (int or ndarray of int, DataFrame)
            The position of the first row, or of every row, of a block, and the block itself.
        """


class TableRows:
    """`RowBlocks` of a table; made by `open_table`.

    Attributes
    ----------
    ids_sha256 : str
        Digest of the sorted ids (`roster_digest`); empty where no id column was named.
    sorted : bool
        Whether the rows come in the order of their ids, so that nothing was held in memory.
    """

    __slots__ = ("_ranks", "_schema", "_source", "_state", "ids_sha256", "n", "sorted")

    def __init__(self, source: Source, schema: Schema, alignment: Alignment, state: object) -> None:
        self._source = source
        self._schema = schema
        self._state = state
        self._ranks = alignment.ranks
        self.n = alignment.n
        self.ids_sha256 = alignment.sha256
        self.sorted = alignment.ranks is None

    def __len__(self) -> int:
        return self.n

    def blocks(self) -> Iterator[tuple[int | Integers, pd.DataFrame]]:
        """Yield (position, block of the schema's columns).

        Raises
        ------
        AlignmentError
            The table was changed since it was opened.
        StorageError
            The file is damaged.
        """
        start = 0
        for frame in checked_blocks(self._source, list(self._schema.columns), self._schema):
            stop = start + len(frame)
            if stop > self.n:
                break
            yield (start if self._ranks is None else self._ranks[start:stop]), frame
            start = stop
        if start != self.n or self._source.state() != self._state:
            raise AlignmentError(
                f"{self._source.name} was changed while it was read: start again with a table that nobody "
                "writes to"
            )

    def __repr__(self) -> str:
        return f"TableRows({self.n} rows of {self._source.name}, not shown)"

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("raw rows cannot be pickled: pickle the release or the result instead")


@error_boundary
def open_table(
    data: Table,
    schema: Schema,
    *,
    id: str | None = None,
    n: int | None = None,
    ids_sha256: str | None = None,
    roster: Table = None,
) -> TableRows:
    """Open the table of a party for a release: check its columns and people, and align its rows by id.

    Parameters
    ----------
    data : path, DataFrame or another table
        Table of the party: a CSV file (.csv or .tsv, also .gz; UTF-8, with column names), a Parquet file, a
        folder of such files, a table in memory, or a pyarrow dataset. Only the necessary columns are read, in
        blocks. Queries and streams are refused, because their rows have no fixed order.
    schema : Schema
        Columns of the party, with their public bounds or levels.
    id : str, optional
        Name of the column of ids, which are integers or texts. With an id column the rows are released in the
        order of the sorted ids. A file that is already sorted by id is read in constant memory. For other
        files all ids are kept in memory (about 32 bytes per row). Without an id column the rows are in the
        order of the file, which must be the same at every party.
    n : int, optional
        Number of people in the plan.
    ids_sha256 : str, optional
        Digest of the ids of the people in the plan, as `roster_digest` returns it.
    roster : table, optional
        Table with an id column that lists the people in the plan. The ids of this table are compared with the
        ids of the rows, and missing and additional ids are reported.

    Returns
    -------
    RowBlocks
        Rows in the order of the sorted ids, to pass to the method `release` of a mechanism.

    Raises
    ------
    SchemaError
        Raised if a column is missing or occurs twice.
    AlignmentError
        Raised if ids are missing or repeated, or differ from the ids of the plan or the roster.
    StorageError
        Raised if a file does not exist or cannot be read.
    NotAvailableError
        Raised if the file is a Parquet file and pyarrow is not installed.
    ArgumentError
        Raised if the table is a query or a stream, which has no fixed order of its rows.

    Notes
    -----
    **Privacy.** The holder of the table calls this function, which reads the ids and the number of rows. In a
    release by several parties, the set of people in the table is public: the guarantee does not protect it.

    Examples
    --------
    >>> import pandas as pd, privinf as pi
    >>> frame = pd.DataFrame({"patient": [12, 7, 9], "age": [50.0, 61.0, 47.0]})
    >>> table = pi.open_table(frame, pi.Schema({"age": (18, 90)}), id="patient", n=3)
    >>> [position.tolist() for position, _ in table.blocks()]
    [[2, 0, 1]]
    """
    check_schema(schema, "a Schema of the party's columns")
    if id is None and (ids_sha256 is not None or roster is not None):
        raise SchemaError(
            "pass id= with the name of the id column, so that its ids can be compared with roster= "
            "or ids_sha256="
        )
    source = source_of(data)
    refuse_unordered(source, ALIGNED)
    require_columns(source, [*schema.columns, *([] if id is None else [id])])
    state = source.state()
    alignment = Alignment(source.count(), None, "") if id is None else _aligned(source, id)
    if alignment.n == 0:
        raise no_rows(source.name)
    if id is not None and roster is not None:
        _check_roster(source, alignment, id, roster)
    if n is not None and alignment.n != check_count(n, "n"):
        raise AlignmentError(
            f"{source.name} has {alignment.n} rows, but n={n} people were declared: every party "
            "needs one row for each person"
        )
    if ids_sha256 is not None and alignment.sha256 != ids_sha256:
        raise AlignmentError(
            f"the {alignment.n} ids of {source.name} are not the ids of the plan, because their "
            "checksum differs: compare them with the list of ids (roster) that the parties agreed "
            "on"
        )
    return TableRows(source, schema, alignment, state)


def read_roster(data: Table, id: str) -> tuple[int, str]:
    """Return the number of people of a roster and the digest of their ids; raises as `open_table`."""
    source = source_of(data)
    require_columns(source, [id])
    alignment = _aligned(source, id)
    return alignment.n, alignment.sha256


def _reader(source: Source, id: str) -> IdReader:
    return lambda: id_blocks(block[id] for block in source.read([id], "texts"))


def _aligned(source: Source, id: str) -> Alignment:
    try:
        return align(_reader(source, id))
    except AlignmentError as problem:
        reason = str(problem)
    raise AlignmentError(f"{source.name}: {reason}")


def _check_roster(source: Source, alignment: Alignment, id: str, roster: object) -> None:
    roster_source = source_of(roster)
    require_columns(roster_source, [id])
    roster_alignment = _aligned(roster_source, id)
    if roster_alignment.sha256 == alignment.sha256:
        return
    missing, extra = compare(_reader(source, id), _reader(roster_source, id))
    counts = [f"{missing} of the roster's ids are missing"] * (missing > 0 or extra == 0)
    counts += [f"{extra} ids are not in the roster"] * (extra > 0)
    raise AlignmentError(
        f"the ids of {source.name} are not the ids of the roster (the agreed list of ids). "
        f"In the table, {', and '.join(counts)}"
    )


# ---- ids of people


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


# ---- tables of any kind


def table_rows(
    data: Table, names: Sequence[str] | None, schema: Schema | None = None, missing: Missing = "raise"
) -> Rows:
    """Return a table of any kind as rows, read when they are needed; `names` are columns that it must have.

    Raises
    ------
    SchemaError
        The table lacks one of `names` or of the schema's unit, or has it twice.
    """
    if isinstance(data, TableRows):
        return Rows(pd.concat([block for _, block in data.blocks()], ignore_index=True), None, missing)
    rows = as_rows(data, missing)
    if isinstance(rows.features, Source) and names is not None:
        unit = [] if schema is None or schema.unit is None else [schema.unit]
        require_columns(rows.features, [*names, *unit])
    return rows


def column_kinds(rows: Rows, names: Sequence[str] | None) -> dict[str, ColumnKind]:
    """Return the kind of each column, or of some, by its type (see `kinds_of`), or that of its first block.

    Raises NotAvailableError for sources that can be read only once; AlignmentError
    for a table without rows.
    """
    source = rows.features
    if rows.in_memory:
        return kinds_of(source)
    if source.pushes:
        return {
            name: "number" if kind in ("number", "decimal", "truth") else "levels"
            for name, kind in source.kinds.items()
        }
    rows.refuse_once()
    chosen = list(source.columns if names is None else names)
    return kinds_of(next(checked_blocks(source, chosen, "guessed")))
