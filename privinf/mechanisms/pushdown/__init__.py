"""Sums made where the rows are: inside a database, as queries, or on a cluster, as a task a partition."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from privinf.errors import AlignmentError
from privinf.mechanisms.pushdown.databases import Dialect, Layer, case, unfit
from privinf.mechanisms.pushdown.queries import ALL_ROWS, GAP, TableQuery
from privinf.mechanisms.rows import PublicSizes, Rows, check_levels, needed
from privinf.mechanisms.statistics.block import Args, SiteBlock
from privinf.mechanisms.statistics.gridded import ColumnGrid
from privinf.mechanisms.statistics.ops import Accumulator, SiteOp
from privinf.mechanisms.statistics.samples import EntrySums, SampleStatistic
from privinf.mechanisms.sums import FULL_SCALE, VALUE_BITS
from privinf.schema import Design, Schema
from privinf.typing import Floats, Integers


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteSums:
    """Rows that are summed where they are, as a design has them.

    Attributes
    ----------
    rows : Rows
    design : Design
    empty : SiteBlock
        A block without rows.
    weights : str or None
        Column of public observation weights.
    stream : int or None
        Blocks have all columns side by side, and their stream of public random numbers.
    public : PublicSizes or None
        Bounds of the public columns of all rows.
    passes : type
        `RowPasses`, for the parts of the rows.
    """

    rows: Rows
    design: Design
    empty: SiteBlock
    weights: str | None
    stream: int | None
    public: PublicSizes | None
    passes: Callable[..., Any]

    def sums(
        self, queries: Sequence[tuple[SiteOp, Args]], *, exact: bool
    ) -> tuple[list[Accumulator], list[int]]:
        """Return exact sums over all rows, and how many rows each query found.

        Raises as `traced.add_pushed` and `cluster.add_partitions`, and NotAvailableError for other sums.
        """
        totals = [op.sums(self.empty, args) for op, args in queries if op.sums is not None]
        if len(totals) < len(queries):
            raise unfit("a statistic of this method cannot be summed exactly")
        if self.rows.features.pushes:
            from privinf.mechanisms.pushdown.traced import add_pushed

            plain = exact and self.weights is None
            return totals, add_pushed(self.rows, self.design, self.empty, totals, plain)
        from privinf.mechanisms.pushdown.cluster import PartitionTask, add_partitions

        names = tuple((op.name, args) for op, args in queries)
        task = PartitionTask(
            design=self.design,
            missing=self.rows.missing,
            weights=self.weights,
            stream=self.stream,
            public=self.public,
            passes=self.passes,
            queries=names,
            table=self.rows.features.name,
        )
        n, seen_columns = add_partitions(self.rows, task, totals)
        check_levels(self.design.schema, needed(self.design), set(seen_columns))
        return totals, [n]


@dataclass(frozen=True, slots=True)
class SampleColumn:
    """How a column of a sample is put on its grid, and its public ends."""

    grid: ColumnGrid
    ends: tuple[float, float]


def add_entries(
    rows: Rows,
    schema: Schema,
    values: Mapping[str, SampleColumn],
    by: Mapping[str, Sequence[float] | None],
    sums: EntrySums,
) -> int:
    """Add all rows of a table in a database to sums of samples, and return how many there are.

    `values` are columns, of which a database makes integers; every combination of the levels of `by`, or of
    the bins between the cuts that it names, is a cell. Raises as `traced.add_pushed`.
    """
    source = rows.features
    table_query = TableQuery(source, schema, [*values, *by], rows.missing)
    dialect = source.dialect
    steps = [table_query.sample_steps(name, column.grid, column.ends) for name, column in values.items()]
    bins = {name: cuts for name, cuts in by.items() if cuts is not None}
    numbers = {name: f"_b{place}" for place, name in enumerate(bins)}
    passed = [*table_query.value_names, *numbers.values()]
    finite = [f"{table_query.finite(name)} AS {column}" for name, column in numbers.items()]
    layers, texts = _entries(dialect, sums.statistic, steps, passed)
    if bins:
        layers = [[*table_query.value_names, *finite], *layers]
    places = {name: (_ladder(dialect, cuts, numbers[name]), len(cuts) + 1) for name, cuts in bins.items()}
    last = [f"{dialect.integer(text)} AS _z{place}" for place, text in enumerate(texts) if text is not None]
    sum_texts = [
        ALL_ROWS if text is None else dialect.total.format(f"_z{place}") for place, text in enumerate(texts)
    ]
    cell = f"{table_query.cell_or_gap(list(by), places)} AS _cell"
    n, numbers_by_cell = table_query.counted([*layers, [cell, *table_query.value_names, *last]], sum_texts)
    numbers_by_cell.pop(GAP, None)
    totals = np.zeros(sums.shape, dtype=object)
    for place, found in numbers_by_cell.items():
        ones = [1 << 2 * VALUE_BITS if text is None else 1 for text in texts]
        totals[place] = [number * factor for number, factor in zip(found, ones, strict=True)]
    sums.take(n, totals)
    return n


def _entries(
    dialect: Dialect,
    statistic: SampleStatistic,
    steps: Sequence[tuple[str, int, int]],
    passthrough: Sequence[str],
) -> tuple[list[Layer], list[str | None]]:
    """Return layers below a statistic's entries, and their texts above these; None where all rows add 2^40.

    `steps` are the integers of columns, with their ends; `passthrough` are columns that go all the way up.
    """
    if not steps:
        return [], [None]
    from privinf.mechanisms.pushdown.expressions import Expressions, layers_of
    from privinf.mechanisms.pushdown.traced import Traced

    expressions = Expressions(dialect)
    values: Any = Traced(expressions, [expressions.column(*step) for step in steps])
    assert statistic.entries is not None
    entries: list[Any] = list(statistic.entries(values, FULL_SCALE))
    nodes = [node for entry in entries for node in entry.nodes.flat]
    layers, texts = layers_of([node for node in nodes if not node.known], passthrough)
    inputs = [f"{text} AS {name}" for text, name in expressions.columns.items()]
    return [[*passthrough, *inputs], *layers], [None if node.known else texts[node] for node in nodes]


def cell_numbers(
    rows: Rows, schema: Schema | None, edges: Mapping[str, Floats]
) -> tuple[dict[str, Integers], int]:
    """Return how many rows of a table in a database lie in each cell of columns' edges, and of how many.

    Where rows with missing values are dropped, they are in one more cell, the last one.

    Raises as `traced.add_pushed`; AlignmentError for a table that changes between the columns.
    """
    source = rows.features
    counts = dict[str, Integers]()
    sizes = set[int]()
    for name, column_edges in edges.items():
        table_query = TableQuery(source, schema, [name], rows.missing)
        ladder = _ladder(source.dialect, column_edges.tolist())
        cell = f"{table_query.where_complete(ladder, len(column_edges) + 1)} AS _cell"
        n, numbers = table_query.counted(
            [
                [*table_query.value_names, f"{table_query.finite(name)} AS _x"],
                [*table_query.value_names, cell],
            ],
            [ALL_ROWS],
        )
        counts[name] = np.zeros(len(column_edges) + 1 + table_query.drops, dtype=np.int64)
        for place, (number,) in numbers.items():
            counts[name][place] = number
        sizes.add(n)
    if len(sizes) > 1:
        raise AlignmentError(
            "the table has changed since it was first read: start again with a table that nobody writes to"
        )
    return counts, sizes.pop()


def _ladder(dialect: Dialect, edges: Sequence[float], column: str = "_x", start: int = 0) -> str:
    """Return how many edges are below the number in a column, by halves."""
    if not edges:
        return str(start)
    half = len(edges) // 2
    below = _ladder(dialect, edges[:half], column, start)
    above = _ladder(dialect, edges[half + 1 :], column, start + half + 1)
    return case([(f"{column} <= {dialect.number(edges[half])}", below)], above)
