"""Statistics of rows as queries: their own functions, followed with expressions in place of numbers.

A statistic defines contributions to a sum by numpy's operations on a reader's values (`terms`). Here the
reader gives `Traced` arrays: an operation on them makes the SQL expression of numpy's result
(`expressions`), so that every statistic has one definition, and a database adds up the integers of blocks.

Responses, weights and exposures nearer to 0 than 2^-500 count as 0: with them products would be too small for
doubles, where some databases fail. No sum sees it: thresholds are at least 2^-200, two words -1 and 1 are 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import combinations_with_replacement, product
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from privinf.mechanisms.pushdown.databases import Layer, PushedSource, case, count, named, unfit
from privinf.mechanisms.pushdown.expressions import Expressions, Node, layers_of
from privinf.mechanisms.pushdown.queries import ALL_ROWS, DesignQuery
from privinf.mechanisms.rows import Rows
from privinf.mechanisms.statistics.block import Args, SiteBlock
from privinf.mechanisms.statistics.gridded import ColumnGrid, MomentSums
from privinf.mechanisms.statistics.ops import Accumulator
from privinf.mechanisms.statistics.summands import Counts, Numbers, Product, Square
from privinf.mechanisms.statistics.terms import PlacedRows, RowReader, TermSums, grid_of
from privinf.mechanisms.sums import FULL_SCALE, held_norms
from privinf.schema import Design
from privinf.typing import Floats, Integers

TINY = 2.0**-500  # smaller numbers count as 0 in a query
T = TypeVar("T")
Nodes: TypeAlias = np.ndarray[Any, np.dtype[np.object_]]


class Traced(NDArrayOperatorsMixin):
    """Substitute for an array of numbers of rows: expressions of its shape without the rows."""

    __slots__ = ("_expressions", "nodes")

    def __init__(self, expressions: Expressions, nodes: Nodes | Sequence[Node] | Node) -> None:
        self._expressions = expressions
        self.nodes = np.asarray(nodes, dtype=object)

    def _entries(self, operand: Any) -> Nodes:
        """Return an operand's expressions; the last axis of arrays is that of rows."""
        if isinstance(operand, Traced):
            return operand.nodes
        values = np.asarray(operand, dtype=np.float64)
        if values.ndim:
            if values.shape[-1] != 1:
                raise unfit("a statistic of this method needs numbers that differ from row to row")
            values = values[..., 0]
        nodes = np.empty(values.shape, dtype=object)
        for place in np.ndindex(values.shape):
            nodes[place] = self._expressions.number(float(values[place]))
        return nodes

    def _elementwise(self, make: Callable[..., Node], *operands: Any) -> Nodes:
        arrays = np.broadcast_arrays(*(self._entries(operand) for operand in operands))
        nodes = np.empty(arrays[0].shape, dtype=object)
        for place in np.ndindex(nodes.shape):
            nodes[place] = make(*(array[place] for array in arrays))
        return nodes

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        name = ufunc.__name__
        x = inputs
        if name in ("greater", "greater_equal"):
            name = name.replace("greater", "less")
            x = inputs[::-1]
        elif name == "square":
            name = "multiply"
            x = inputs * 2
        make = getattr(self._expressions, name, None)
        if method != "__call__" or not (make or name in ("matmul", "isfinite")):
            raise unfit(
                f"a statistic of this method needs the function {name!r}, which privinf cannot "
                "translate to SQL"
            )
        if name == "isfinite":
            return np.isfinite([end for node in _nodes(self) for end in (node.low, node.high)])
        if name == "matmul":
            form = self._expressions.form
            sums = isinstance(x[0], Traced)
            return Traced(
                self._expressions, form(x[1], _nodes(x[0])) if sums else [form(a, _nodes(x[1])) for a in x[0]]
            )
        assert make is not None
        return self._into(options.get("out"), self._elementwise(make, *x))

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        make = self._expressions
        name = function.__name__
        if name in ("empty_like", "zeros_like", "ones_like"):
            value = make.number(1.0 if name == "ones_like" else 0.0)
            return Traced(make, np.full(args[0].nodes.shape, value, dtype=object))
        if name in ("stack", "vstack", "hstack"):
            return Traced(make, np.concatenate([np.atleast_1d(array.nodes) for array in args[0]]))
        if name == "einsum" and args[0] == "ij,ij->i":
            parts = map(make.multiply, *(_nodes(operand) for operand in args[1:]))
            return Traced(make, reduce(make.add, parts, make.number(0.0)))
        if name == "flatnonzero":
            (test,) = _nodes(args[0])
            return [] if test.known and not test.low else args[0]
        if name == "where":
            return Traced(make, self._elementwise(make.where, *args))
        if name == "clip":
            clipped = self._elementwise(lambda x, a, b: make.minimum(make.maximum(x, a), b), *args)
            return self._into([kwargs["out"]] if "out" in kwargs else None, clipped)
        raise unfit(
            f"a statistic of this method needs the function {name!r}, which privinf cannot "
            "translate to SQL, or one of its numbers could be infinite"
        )

    def _into(self, out: Any, nodes: Nodes) -> Any:
        """Return an array of the results, in `out` if it is passed."""
        result = Traced(self._expressions, nodes) if out is None else out[0]
        result.nodes = nodes
        return result

    def __getitem__(self, index: Any) -> Traced:
        if isinstance(index, Traced):  # rows that meet a condition
            return Traced(self._expressions, self._elementwise(self._expressions.chosen, self, index))
        if isinstance(index, tuple) and index[:1] == (slice(None),):  # rows come first
            index = index[1:]
        return Traced(self._expressions, self.nodes[index])

    def __setitem__(self, test: Traced, value: float) -> None:
        self.nodes = self._elementwise(self._expressions.where, test, value, self)

    def __len__(self) -> int:
        return len(np.atleast_1d(self.nodes))

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape, as if there were one row."""
        return 1, *self.nodes.shape

    @property
    def T(self) -> Traced:
        """The array itself: rows have no axis here."""
        return self

    def copy(self) -> Traced:
        """Return another array of the same expressions."""
        return Traced(self._expressions, self.nodes)

    def astype(self, dtype: object) -> Traced:
        """Return the array: integers are doubles until they are added up."""
        return self

    def sum(self) -> float:
        """Return nan if a number could be infinite, as checks of a block's numbers have it; else 0."""
        return 0.0 if np.isfinite(self).all() else math.nan

    def looked_up(self, table: Floats) -> Traced:
        """Return the numbers of a table at these places."""
        return Traced(
            self._expressions,
            self._elementwise(lambda place: self._expressions.looked_up(place, table), self),
        )

    def looked_up_between(self, values: Floats, steps: Floats, share: Traced) -> Traced:
        """Return value + share x step, which is between two neighbors of a table."""
        make = self._expressions

        def between(place: Node, part: Node) -> Node:
            entries = values[max(int(place.low), 0) : int(place.high) + 2]
            product = make.multiply(part, make.looked_up(place, steps))
            parts = product, " + ", make.looked_up(place, values)
            return make.node(parts, float(entries.min()), float(entries.max()))

        return Traced(make, self._elementwise(between, self, share))


# ---- readers of rows that stay where they are


class TracedReader:
    """Reads the columns of a table in a database, as `RowReader` and its block read rows."""

    exact = True
    lasting = False
    weights = None
    residual = cast("Callable[..., Floats]", SiteBlock.residual)

    def __init__(
        self, table_query: DesignQuery, expressions: Expressions, public: SiteBlock, args: Args
    ) -> None:
        self._query = table_query
        self._expressions = expressions
        self._public = public
        self.args = args
        self.block = self
        self.response_low = public.response_low
        self.response_high = public.response_high

    @property
    def digits(self) -> int:
        """Binary digits of numbers that are cut: no query has them."""
        raise unfit("this method sums numbers that are cut to binary digits")

    @property
    def response(self) -> Floats:
        """The response as it is: no query has it."""
        raise unfit("this method counts records by interval of time")

    @property
    def features(self) -> Floats:
        """The columns as they are: no query has them."""
        raise unfit("this method counts records by interval of time")

    def _value(self, at: int | None, low: float, high: float) -> Node:
        number = self._query.dialect.number
        text = self._query.value(at)
        return self._expressions.column(
            case([(f"ABS({text}) < {number(TINY)}", number(0.0))], text), low, high
        )

    def outcome(self) -> Floats:
        """Return the response between its bounds."""
        return cast(
            "Floats", Traced(self._expressions, self._value(None, self.response_low, self.response_high))
        )

    def columns(self, args: Args, chosen: Integers | None = None) -> Floats:
        """Return columns in their units."""
        if chosen is None:
            raise unfit("this method weights rows by bounds narrower than the declared ones")
        low, high = self._public.low, self._public.high
        values: Any = Traced(self._expressions, [self._value(int(at), low[at], high[at]) for at in chosen])
        if (center := args.get("center")) is not None:
            values -= np.asarray(center)[chosen][:, None]
        if (scale := args.get("scale")) is not None:
            values *= 1.0 / np.asarray(scale)[chosen][:, None]
        return cast("Floats", values)

    def read(self, chosen: Integers | None = None, constant: int | None = None) -> PlacedRows:
        """Return all columns, or some, the constant being 1."""
        index, grid = grid_of(self._public, self.args, chosen, constant)
        if grid is None:
            raise unfit("some bounds are wider than radius=, the largest norm of a row")
        places = np.arange(len(self._public.low))[index]
        nodes = [self._steps(int(at), grid.column(j)) for j, at in enumerate(places)]
        if constant is not None:
            nodes[constant] = self._expressions.number(FULL_SCALE)
        return PlacedRows(self._array(nodes), grid.units)

    def outside(self, chosen: Integers, *, outcome: bool = False, inputs: int = 0) -> Floats:
        """Return marks of columns and of the response, 1 outside the bounds and 0 inside."""
        if inputs:
            raise unfit("this method counts the values outside the bounds of derived columns")
        places: list[int | None] = [*(int(at) for at in chosen), *([None] * outcome)]
        return self._array([self._expressions.column(self._query.outside(at), 0.0, 1.0) for at in places])

    def once(self, quantity: str, names: Sequence[str], make: Callable[[], T]) -> T:
        """Return the values derived from the rows: equal expressions are one."""
        return make()

    def _steps(self, at: int | None, grid: ColumnGrid) -> Node:
        return self._expressions.column(*self._query.steps(at, grid))

    def _array(self, nodes: Sequence[Node]) -> Floats:
        return cast("Floats", Traced(self._expressions, nodes))

    def moments(self, sums: MomentSums, design: Design) -> list[Node]:
        """Return the integers whose products second or residual moments are."""
        grid = sums.columns
        # Where rows are dropped their number is private, and the constant is a column like the others.
        own = np.arange(len(design.columns)) if self._query.drops else np.flatnonzero(design.private)
        private = own.tolist()
        ones = len(design.columns) - len(private)
        if ones > (design.constant is not None):
            raise unfit("the design has public columns other than the constant")
        if math.isfinite(grid.radius):
            raise unfit("some bounds are more than 16 times as wide as radius=, the largest norm of a row")
        nodes = [
            self._expressions.number(_step_of_one(grid.column(j)))
            if at == design.constant
            else self._steps(at, grid.column(j))
            for j, at in enumerate(private)
        ]
        public_nodes = [self._expressions.number(FULL_SCALE)] * ones
        x = self._array(nodes)
        longest = {at: int(node.longest) for at, node in zip(private, nodes, strict=True)}
        if self._query.may_pass(grid.limit, longest):
            x = held_norms(x, grid.limit)
        if sums.response is not None:
            public_nodes.append(self._steps(None, sums.response))
        return _nodes(np.hstack(sums.factors(cast("SiteBlock", self), self._array(public_nodes), x)))


def _step_of_one(grid: ColumnGrid) -> float:
    """Return the integer of a constant, whose unit is that of the widest column where rows are shrunk."""
    return float(grid.put(np.ones((1, 1)), np.empty((1, 1)), finite=True)[0, 0])


# ---- sums


@dataclass(frozen=True, slots=True)
class _SumQuery:
    """Terms of one accumulator: products of integers, or the number that is compared."""

    sums: Any
    products: list[tuple[Node, ...]]
    thresholds: Floats | None = None
    across: bool = False

    def texts(
        self, table_query: DesignQuery, names: Mapping[Node, str], numbers: Mapping[Node, str]
    ) -> list[tuple[int, str]]:
        """Return the summed expressions, and their weights."""
        dialect = table_query.dialect
        if self.thresholds is not None:
            ((node,),) = self.products
            return [
                (1, count(f"{numbers[node]} > {dialect.number(threshold)}")) for threshold in self.thresholds
            ]
        sum_texts = []
        for pair in self.products:
            moving = " * ".join(names[node] for node in pair if not node.known)
            factor = math.prod(int(node.low) for node in pair if node.known)
            sum_texts.append((factor, dialect.total.format(moving) if moving else table_query.complete_rows))
        return sum_texts

    def take(self, n: int, totals: list[int]) -> None:
        """Put the sums into the accumulator."""
        if self.thresholds is not None:
            self.sums.take(n, -np.diff(np.array([*totals, 0], dtype=np.int64)))
            return
        matrix = np.zeros(self.sums.total.shape, dtype=object)
        if self.across:
            matrix[:] = np.array(totals, dtype=object).reshape(matrix.shape)
        else:
            matrix[np.triu_indices(len(matrix))] = totals
        self.sums.take(n, matrix)


def _sum_queries(
    table_query: DesignQuery,
    expressions: Expressions,
    public: SiteBlock,
    design: Design,
    accumulator: Accumulator,
) -> Iterator[_SumQuery]:
    assert isinstance(accumulator, MomentSums | TermSums)
    reader = TracedReader(table_query, expressions, public, accumulator.args)
    if isinstance(accumulator, MomentSums):
        yield _SumQuery(
            accumulator.sums, list(combinations_with_replacement(reader.moments(accumulator, design), 2))
        )
        return
    for part, term in zip(accumulator.parts, accumulator.terms(cast("RowReader", reader)), strict=True):
        if isinstance(term, Counts):
            yield _SumQuery(part, [tuple(_nodes(term.values))], term.thresholds)
        elif isinstance(term, Product):
            yield _SumQuery(part, list(product(*map(_nodes, term.integers()))), across=True)
        elif isinstance(term, Square):
            yield _SumQuery(part, list(combinations_with_replacement(_nodes(term.integers()[0]), 2)))
        elif isinstance(term, Numbers):  # marks: no query has numbers that are cut
            yield _SumQuery(part, [(node,) for node in _nodes(term.steps)], across=True)
        else:
            raise unfit("this method sums other terms than products, squares and counts")


def add_pushed(
    rows: Rows, design: Design, public: SiteBlock, accumulators: Sequence[Accumulator], plain: bool
) -> list[int]:
    """Add all rows of a table to empty accumulators, inside its database; return how many each query found.

    `public` is a block without rows; `plain` marks sums that are neither weighted nor for a fit without
    noise. Raises NotAvailableError where no query is available, SchemaError for rows as blocks of them do,
    StorageError if the query fails.
    """
    if not plain:
        raise unfit("the fit has observation weights or adds no noise")
    source: PushedSource = rows.features
    table_query = DesignQuery(source, design, rows.missing)
    expressions = Expressions(source.dialect)
    queries = [
        part
        for accumulator in accumulators
        for part in _sum_queries(table_query, expressions, public, design, accumulator)
    ]
    layers, strict, *names = _layers(table_query, expressions, queries)
    query_texts = [part.texts(table_query, *names) for part in queries]
    defects = table_query.defects(strict)
    sums = list(
        dict.fromkeys(
            (ALL_ROWS, *defects, *(text for weighted_texts in query_texts for _, text in weighted_texts))
        )
    )
    if len(sums) > source.dialect.sums:
        if len(accumulators) == 1:
            raise unfit(f"the query would need {len(sums)} sums, which are too many for the database")
        return [
            n for accumulator in accumulators for n in add_pushed(rows, design, public, [accumulator], plain)
        ]
    totals = dict(zip(sums, source.totals([*layers, named("_s", sums)]), strict=True))
    n = table_query.checked([totals[ALL_ROWS], *(totals[text] for text in defects)])
    for part, texts in zip(queries, query_texts, strict=True):
        part.take(n, [weight * totals[text] for weight, text in texts])
    return [n]


def _layers(
    table_query: DesignQuery, expressions: Expressions, queries: Sequence[_SumQuery]
) -> tuple[list[Layer], dict[str, str], dict[Node, str], dict[Node, str]]:
    """Return the layers below the sums, and names there: of columns' own integers, all integers, numbers."""
    pairs = [pair for query in queries if query.thresholds is None for pair in query.products]
    names = _named("_z", [node for pair in pairs for node in pair if not node.known])
    numbers = _named("_c", [query.products[0][0] for query in queries if query.thresholds is not None])
    layers, texts = layers_of([*names, *numbers], table_query.value_names)
    factor = table_query.dialect.factor.format
    last = [f"{table_query.complete(factor(texts[node]))} AS {name}" for node, name in names.items()]
    last += [f"{table_query.complete(texts[node])} AS {name}" for node, name in numbers.items()]
    inputs = [f"{text} AS {name}" for text, name in expressions.columns.items()]
    below = [
        table_query.values(),
        [*table_query.value_names, *inputs],
        *layers,
        [*table_query.value_names, *last],
    ]
    columns = {
        name: table_query.strict[text]
        for text, name in expressions.columns.items()
        if text in table_query.strict
    }
    strict = {columns[column]: names[node] for node in names if (column := node.parts[0]) in columns}
    return below, strict, names, numbers


def _named(prefix: str, nodes: Sequence[Node]) -> dict[Node, str]:
    return {node: f"{prefix}{place}" for place, node in enumerate(dict.fromkeys(nodes))}


def _nodes(array: Any) -> list[Node]:
    return list(array.nodes.flat)
