"""Columns of a table of any kind, by passes, and the un-noised sums that tests and means are made of.

Where rows are in memory a pass is over arrays that were checked once; of any other table it reads the columns
again, block by block, and checks them as it reads; in a database it is a query.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from privinf.errors import AlignmentError, SchemaError
from privinf.mechanisms.pushdown.databases import unfit
from privinf.mechanisms.rows import Rows, check_levels, unit_codes
from privinf.mechanisms.statistics.gridded import ColumnGrid
from privinf.mechanisms.statistics.samples import (
    SAMPLE_STATISTICS,
    EntrySums,
    Sample,
    SampleStatistic,
    Weighted,
    weighted_sums,
)
from privinf.schema import Factor, Schema
from privinf.schema.arrays import kinds_of
from privinf.schema.reading import Reader, as_frame
from privinf.typing import ColumnKind, Floats, SampleKind
from privinf.wire import Labels


class ColumnPasses:
    """Columns of a table, read on every request; every pass checks its rows.

    Parameters
    ----------
    rows : Rows
    names : sequence of str
    schema : Schema, optional
        Declares them; without it they are numbers without gaps.
    numbers : bool
        Whether they are checked against the schema; else as they are, by `frames`.
    often : bool
        Whether more than one pass is needed: sources that can be read only once are refused before reading.
    unit : str, optional
        Column with the person of each row. Such tables are collected.
    max_rows : int
        How many rows one person may have.

    Raises
    ------
    NotAvailableError
        A stream that is needed again.
    SchemaError, AlignmentError
        Here, or by a pass: a column differs from its declaration, a person has too many rows, or a table has
        other rows than in the pass before.

    Notes
    -----
    **Privacy.** Holds raw rows: never leaves the mechanisms, is neither pickled nor shown.
    """

    __slots__ = ("_count", "_names", "_reader", "_rows", "schema")

    def __init__(
        self,
        rows: Rows,
        names: Sequence[str],
        schema: Schema | None = None,
        *,
        numbers: bool = True,
        often: bool = False,
        unit: str | None = None,
        max_rows: int = 1,
    ) -> None:
        if often:
            rows.refuse_once()
        if unit is not None:
            columns = list(dict.fromkeys([*names, unit]))
            rows = rows.copied(columns).opened(columns, schema)
            unit_codes(Schema(dict.fromkeys(names, (0.0, 1.0)), unit=unit, max_rows=max_rows), rows)
        self._rows = rows
        self._names = tuple(names)
        self.schema = schema
        self._reader: Reader | None = None
        self._count: int | None = None
        rows.refuse_empty()
        if rows.in_memory and numbers:
            self._reader = Reader(rows.features, schema, rows.missing)
            self._reader.open(self._names)
            self._count = len(self._reader)

    @property
    def known(self) -> bool:
        """Whether the number of rows is known."""
        return self._count is not None

    @property
    def n(self) -> int:
        """Number of rows, once there was a pass."""
        assert self._count is not None
        return self._count

    @property
    def pushed(self) -> Rows | None:
        """The rows, if a database sums them."""
        return None if self._rows.in_memory or not self._rows.features.pushes else self._rows

    def readers(self) -> Iterator[Reader]:
        """Yield all rows once, in blocks whose columns are checked."""
        if self._reader is not None:
            yield self._reader
            return
        seen_columns = set[str]()
        n = 0
        for frame in self.frames():
            reader = Reader(frame, self.schema, self._rows.missing, seen_levels=seen_columns)
            reader.open(self._names)
            yield reader
            n += len(reader)
        if n:
            check_levels(self.schema, self._names, seen_columns)
        self.counted(n)

    def frames(self) -> Iterator[pd.DataFrame]:
        """Yield all rows once, as they are."""
        if self._rows.in_memory:
            yield as_frame(self._rows.features)
            return
        from privinf.mechanisms.reading import checked_blocks

        yield from checked_blocks(self._rows.features, self._names, self.schema or "guessed")

    def counted(self, n: int) -> None:
        """Take the number of rows of a whole pass."""
        if self._count not in (None, n):
            raise AlignmentError(
                "the table has changed since it was first read: start again with a table that nobody "
                "writes to"
            )
        self._count = n

    def __repr__(self) -> str:
        return "<ColumnPasses, rows not shown>"

    def __reduce__(self) -> Any:
        raise TypeError("raw rows cannot be pickled: pickle the release or the result instead")


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
    from privinf.mechanisms.reading import checked_blocks

    return kinds_of(next(checked_blocks(source, chosen, "guessed")))


# ---- sums


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleQuery:
    """A query for sums (a key of `SAMPLE_STATISTICS`) over columns; `label` is for the ledger.

    `values` are numbers, or have two levels, of which the second counts as 1. Every combination of the levels
    of the columns `by` is a cell, the last column's levels running fastest. `center`, user units, is what
    signed ranks are about.
    """

    kind: SampleKind
    values: tuple[str, ...] = ()
    by: tuple[str, ...] = ()
    label: str = Labels.SUMS
    center: float = 0.0


@dataclass(frozen=True, slots=True)
class SampleTotals:
    """The un-noised sums of a query by one pass over rows: in memory, of any table, or in a database."""

    schema: Schema
    query: SampleQuery

    @property
    def levels(self) -> tuple[tuple[Any, ...], ...]:
        """Levels of each column of `query.by`."""
        return tuple(_levels(self.schema, name) for name in self.query.by)

    @property
    def cells(self) -> int:
        """Number of cells."""
        return math.prod(map(len, self.levels))

    @property
    def statistic(self) -> SampleStatistic:
        """The statistic whose sums are taken."""
        return SAMPLE_STATISTICS[self.query.kind]

    def over(self, rows: Rows, weighted: Weighted, *, exact: bool) -> tuple[EntrySums | Floats, int]:
        """Return the weighted sums, exact or in doubles, and the number of rows.

        Ranks are of all rows together: their columns are kept, 8 bytes a number, and their sum is in doubles.
        """
        named = (*self.query.values, *self.query.by)
        passes = ColumnPasses(rows, named, self.schema, unit=self.schema.unit)
        exact = exact and self.statistic.whole is None
        sums = EntrySums(self.statistic, weighted, self.cells)
        if passes.pushed is not None:
            if not exact:
                raise unfit("the test uses ranks or adds no noise")
            from privinf.mechanisms.pushdown import SampleColumn, add_entries

            ends = {name: range_of(self.schema, name) for name in self.query.values}
            columns = {
                name: SampleColumn(self.grid(name), (middle - half, middle + half))
                for name, (middle, half) in ends.items()
            }
            return sums, add_entries(passes.pushed, self.schema, columns, self.query.by, sums)
        if exact:
            for reader in passes.readers():
                sums.update(self.sample(reader, exact=True))
            return sums, passes.n
        zero: Floats = np.zeros(1)
        parts = (self.sample(reader, exact=False) for reader in passes.readers())
        if self.statistic.whole is None:
            return sum((weighted_sums(self.statistic, weighted, part) for part in parts), zero), passes.n
        all_records = Sample.joined(list(parts), self.cells)
        return weighted_sums(self.statistic, weighted, all_records) if len(all_records) > 1 else zero, len(
            all_records
        )

    def sample(self, reader: Reader, *, exact: bool) -> Sample:
        """Return the records of a block, values in [-1, 1] or in steps of 2^-20."""
        values = np.empty((len(reader), len(self.query.values)))
        for place, name in enumerate(self.query.values):
            values[:, place] = self._steps(reader, name) if exact else _scaled(reader, self.schema, name)
        if self.query.kind == "signed ranks":
            middle, half = range_of(self.schema, self.query.values[0])
            values -= (self.query.center - middle) / half
        codes = np.zeros(len(reader), dtype=np.int64)
        for name, levels in zip(self.query.by, self.levels, strict=True):
            codes = codes * len(levels) + reader.codes(name)
        return Sample(values, codes, self.cells)

    def _steps(self, reader: Reader, name: str) -> Floats:
        values = _number(reader, self.schema, name)[:, None]
        grid = self.grid(name)
        with np.errstate(all="ignore"):
            return grid.put(values, np.empty(values.shape), finite=False)[:, 0]

    def grid(self, name: str) -> ColumnGrid:
        """Return the steps of a column: 2^-20 of half its public range, about its middle."""
        middle, half = (np.array([part]) for part in range_of(self.schema, name))
        return ColumnGrid.from_bounds(middle - half, middle + half, middle, half, math.inf)


def _number(reader: Reader, schema: Schema, name: str) -> Floats:
    """Return a column as numbers; of two levels 0 and 1."""
    declared = schema[name]
    two = isinstance(declared, Factor) and declared.categorical
    return reader.codes(name).astype(np.float64) if two else reader.number(name)


def _scaled(reader: Reader, schema: Schema, name: str) -> Floats:
    """Return a column in units of half its public range, about its middle, clipped to [-1, 1]."""
    middle, half = range_of(schema, name)
    values = _number(reader, schema, name)
    with np.errstate(over="ignore"):
        return np.asarray(np.clip((np.clip(values, middle - half, middle + half) - middle) / half, -1.0, 1.0))


def range_of(schema: Schema, name: str) -> tuple[float, float]:
    """Return middle and half of the public range of a column; of two levels that of 0 and 1."""
    declared = schema[name]
    if isinstance(declared, Factor) and declared.categorical:
        if len(declared.levels) != 2:
            raise SchemaError(
                f"column {name!r} has {len(declared.levels)} levels, but must be numeric or have "
                "exactly two levels"
            )
        return 0.5, 0.5
    bounds = schema.interval(name)
    return 0.5 * bounds.low + 0.5 * bounds.high, 0.5 * bounds.high - 0.5 * bounds.low


def _levels(schema: Schema, name: str) -> tuple[Any, ...]:
    declared = schema[name]
    if not isinstance(declared, Factor):
        raise SchemaError(
            f"column {name!r} has no declared levels: declare them in the schema, for example "
            f"{{{name!r}: ['a', 'b']}}"
        )
    return tuple(declared.levels)
