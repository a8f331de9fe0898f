"""A party's rows in blocks, each row at its place in the order that all parties share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
import pandas as pd

from privinf.error_boundary import error_boundary
from privinf.errors import AlignmentError, NotAvailableError, SchemaError
from privinf.mechanisms.reading import checked_blocks, evened, number_blocks
from privinf.mechanisms.roster import Alignment, IdReader, align, compare, id_blocks
from privinf.mechanisms.rows import (
    ALIGNED,
    MESSAGES,
    EncodedRows,
    Rows,
    as_rows,
    check_levels,
    encode,
    needed,
    numeric_names,
    refuse_unordered,
)
from privinf.mechanisms.sources import Source, Types, no_rows, require_columns
from privinf.mechanisms.tables import source_of
from privinf.schema import Design, Schema
from privinf.schema.table import check_schema
from privinf.typing import Floats, Integers, Missing, Table
from privinf.validation import READ_ROWS, check_count

T = TypeVar("T")


@runtime_checkable
class RowBlocks(Protocol):
    """Rows in blocks, for the `rows` of a party's release.

    ``len()`` is the number n of rows. Each block has a position: an int, the position of the first row, if
    its rows are consecutive, else the int64 position of each row. Every position from 0 to n - 1 occurs
    exactly once.
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
            Position of the first row, or of every row of the block, and the block.
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
    """Open a party's table for a release: check its columns and people, and align its rows by id.

    Parameters
    ----------
    data : path, DataFrame or another table
        CSV (.csv, .tsv, also .gz; UTF-8, with column names) or Parquet (needs pyarrow), a file or a folder;
        a table in memory, of polars or Arrow too; a pyarrow dataset. Only the columns needed are read, in
        blocks. Queries and streams have no fixed order, and are refused.
    schema : Schema
        The party's columns.
    id : str, optional
        Column of ids, whole numbers or texts. Rows are then in the order of the sorted ids; files that are
        sorted already are read in constant memory, and for others the ids are kept in memory (about 32 bytes
        per row). Without it the order of the file is used, which must be the same at every party.
    n : int, optional
        Number of people of the plan.
    ids_sha256 : str, optional
        `roster_digest` of the people of the plan.
    roster : table, optional
        A table with an id column that lists the people, to report missing and additional ids.

    Returns
    -------
    RowBlocks
        The rows in the order of the sorted ids, for the `release` of a mechanism.

    Raises
    ------
    SchemaError
        A column is missing or occurs twice.
    AlignmentError
        The ids have gaps or repetitions, or are not those of the plan or the roster.
    StorageError
        A file does not exist or cannot be read.
    NotAvailableError
        A Parquet file without pyarrow.
    ArgumentError
        A query or a stream.

    Notes
    -----
    **Privacy.** Reads ids and numbers of rows, at their holder. Who is in the table is public in every
    guarantee about a release of several parties.

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


class RecordBlocks(Generic[T]):
    """Records of a table that need not fit in memory, for releases of one message per row.

    Parameters
    ----------
    design : Design
    rows : Rows
    columns : sequence of str
        Those that are read.
    encoded : callable (Rows, seen_levels=) -> T
        Makes of some rows what noise is for; `seen_levels` as for `encode`.
    whole : bool
        One block of all rows, in memory.
    numbers : callable (block) -> T, optional
        Makes the same of an array of checked numbers: the response, and the columns of the design.

    Notes
    -----
    **Privacy.** Reads every row once a pass; holds `READ_ROWS` of them, raw: not pickled and not shown.
    Blocks have that many rows, the last one fewer, whatever those of the source have.
    """

    __slots__ = ("_columns", "_design", "_encoded", "_encoded_blocks", "_names", "_numbers", "_rows", "n")

    def __init__(
        self,
        design: Design,
        rows: Rows,
        columns: Sequence[str],
        encoded: Callable[..., T],
        *,
        whole: bool,
        numbers: Callable[[Floats], T] | None = None,
    ) -> None:
        refuse_unordered(rows, MESSAGES)
        rows.refuse_empty()
        self.n = 0
        self._encoded_blocks = list[T]()
        if whole:
            opened = rows.opened(columns, design.schema)
            self._encoded_blocks = [encoded(opened, seen_levels=None)]
            self.n = len(opened)
        elif design.schema is not None and design.schema.unit is not None:
            raise NotAvailableError(
                "to= cannot be used with a schema that declares unit=: make the release in memory "
                "and write it with save(path)"
            )
        self._design = design
        self._rows = rows
        self._columns = columns
        self._encoded = encoded
        self._numbers = numbers
        self._names = numeric_names(design) if numbers is not None and design.constant == 0 else None

    def checked(self) -> RecordBlocks[T]:
        """Return itself once a pass has checked and counted all rows."""
        for _ in self._pass(lambda block: None) if self.n == 0 else ():
            pass
        return self

    def __iter__(self) -> Iterator[T]:
        """Yield the messages of each block.

        Raises
        ------
        SchemaError, AlignmentError
            As `encode`; the table has other rows than in the pass before.
        """
        yield from self._encoded_blocks or self._pass(self._numbers)

    def _pass(self, numbers: Callable[[Floats], Any] | None) -> Iterator[Any]:
        """Yield the results of each block; numbers were checked on reading."""
        seen_columns = set[str]()
        n = 0
        for part in self._parts():
            n += len(part)
            if numbers is not None and isinstance(part, np.ndarray):
                yield numbers(part)
            else:
                yield self._encoded(part, seen_levels=seen_columns)
        check_levels(self._design.schema, needed(self._design), seen_columns)
        if n < (p := len(self._design.columns)):
            raise AlignmentError(
                f"{n} rows are too few to estimate {p} coefficients: use at least as many rows as "
                "coefficients"
            )
        if self.n not in (0, n):
            raise AlignmentError(
                "the table has changed since it was first read: start again with a table that nobody "
                "writes to"
            )
        self.n = n

    def _parts(self) -> Iterator[Rows | Floats]:
        features = self._rows.features
        response = self._rows.response
        if isinstance(features, Source):
            types: Types = self._design.schema or "guessed"
            blocks: Iterator[Any] = checked_blocks(features, self._columns, types)
            if self._names is not None:
                blocks = number_blocks(features, self._names, types, READ_ROWS, constant=1)
            for block in evened(blocks, self._names):
                yield block if isinstance(block, np.ndarray) else replace(self._rows, features=block)
            return
        for start in range(0, len(self._rows), READ_ROWS):
            part = slice(start, start + READ_ROWS)
            rows = features.iloc[part] if isinstance(features, pd.DataFrame) else features[part]
            yield replace(self._rows, features=rows, response=None if response is None else response[part])

    def __repr__(self) -> str:
        return "<RecordBlocks, rows not shown>"

    def __reduce__(self) -> Any:
        raise TypeError("raw rows cannot be pickled: pickle the release or the result instead")


def encoded_blocks(
    design: Design, rows: Rows, weights: str | None, *, whole: bool
) -> RecordBlocks[EncodedRows]:
    """Return the blocks of `encode`."""
    encode_part = partial(encode, design, weights=weights)
    return RecordBlocks(design, rows, needed(design, weights), encode_part, whole=whole)


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
