"""Statistics of rows as queries: their own functions, followed with expressions in place of numbers.

A statistic says what rows add to a sum by numpy's operations on what a reader gives it (`terms`). Here the
reader gives `Traced` arrays: an operation on them makes the expression of SQL of what numpy would compute
(`expressions`), so that every statistic has one definition, and a database adds up the integers of blocks.

Responses, weights and exposures nearer to 0 than 2^-500 count as 0: with them products would be too small for
doubles, where some databases fail. No sum sees it: thresholds are above 2^-200, and two words -1 and 1 are 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import combinations_with_replacement
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from privinf.mechanisms.databases import Dialect, PushedSource, case, named, unfit
from privinf.mechanisms.expressions import Expressions, Node, layers_of
from privinf.mechanisms.pushed import Question, add_rows
from privinf.mechanisms.rows import Rows
from privinf.mechanisms.statistics.block import Args, SiteBlock
from privinf.mechanisms.statistics.gridded import MomentSums
from privinf.mechanisms.statistics.ops import Accumulator
from privinf.mechanisms.statistics.tails import Counts
from privinf.mechanisms.statistics.terms import PlacedRows, Product, RowReader, Term, TermSums, grid_of
from privinf.mechanisms.sums import FULL_SCALE
from privinf.schema import Design
from privinf.typing import Floats, Integers

# Sums of one query: databases return no more than about 1,600 columns.
MOST_SUMS = 1500
TINY = 2.0**-500
Nodes: TypeAlias = np.ndarray[Any, np.dtype[np.object_]]


class Traced(NDArrayOperatorsMixin):
    """Stands in for an array of numbers of rows: expressions of the shape that it has without its rows."""

    __slots__ = ("_made", "nodes")

    def __init__(self, made: Expressions, nodes: Nodes | Sequence[Node] | Node) -> None:
        self._made, self.nodes = made, np.asarray(nodes, dtype=object)

    def _entries(self, one: Any) -> Nodes:
        """Return an operand's expressions; the last axis of arrays stands for rows."""
        if isinstance(one, Traced):
            return one.nodes
        values = np.asarray(one, dtype=np.float64)
        if values.ndim:
            if values.shape[-1] != 1:
                raise unfit("numbers that go by row are asked for")
            values = values[..., 0]
        found = np.empty(values.shape, dtype=object)
        for place in np.ndindex(values.shape):
            found[place] = self._made.number(float(values[place]))
        return found

    def _each(self, make: Callable[..., Node], *operands: Any) -> Nodes:
        arrays = np.broadcast_arrays(*(self._entries(one) for one in operands))
        found = np.empty(arrays[0].shape, dtype=object)
        for place in np.ndindex(found.shape):
            found[place] = make(*(array[place] for array in arrays))
        return found

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **more: Any) -> Any:
        name, x = ufunc.__name__, inputs
        if name in ("greater", "greater_equal"):
            name, x = name.replace("greater", "less"), inputs[::-1]
        elif name == "square":
            name, x = "multiply", inputs * 2
        make = getattr(self._made, name, None)
        if method != "__call__" or not (make or name in ("matmul", "isfinite")):
            raise unfit(f"a statistic asks for {name}")
        if name == "isfinite":
            return np.isfinite([end for one in _nodes(self) for end in (one.low, one.high)])
        if name == "matmul":
            return Traced(self._made, [self._made.form(row, _nodes(x[1])) for row in np.asarray(x[0])])
        assert make is not None
        return self._into(more.get("out"), self._each(make, *x))

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        make, name = self._made, function.__name__
        if name in ("empty_like", "zeros_like", "ones_like"):
            value = make.number(1.0 if name == "ones_like" else 0.0)
            return Traced(make, np.full(args[0].nodes.shape, value, dtype=object))
        if name in ("stack", "vstack"):
            return Traced(make, np.concatenate([np.atleast_1d(one.nodes) for one in args[0]]))
        if name == "where":
            return Traced(make, self._each(make.where, *args))
        if name == "clip":
            held = self._each(lambda x, a, b: make.minimum(make.maximum(x, a), b), *args)
            return self._into([kwargs["out"]] if "out" in kwargs else None, held)
        raise unfit(f"a statistic asks for {name}, or a number could be infinite")

    def _into(self, out: Any, nodes: Nodes) -> Any:
        """Return an array of what was found, one that is given for it if there is one."""
        found = Traced(self._made, nodes) if out is None else out[0]
        found.nodes = nodes
        return found

    def __getitem__(self, index: Any) -> Traced:
        if isinstance(index, tuple) and index[:1] == (slice(None),):  # rows come first
            index = index[1:]
        return Traced(self._made, self.nodes[index])

    def __setitem__(self, test: Traced, value: float) -> None:
        self.nodes = self._each(self._made.where, test, value, self)

    def __len__(self) -> int:
        return len(self.nodes)

    @property
    def T(self) -> Traced:
        """The array itself: rows have no axis here."""
        return self

    def copy(self) -> Traced:
        """Return another array of the same expressions."""
        return Traced(self._made, self.nodes)

    def astype(self, dtype: object) -> Traced:
        """Return the array: integers are doubles until they are added up."""
        return self

    def sum(self) -> float:
        """Return nan if a number could be infinite, as checks of a block's numbers have it; else 0."""
        return 0.0 if np.isfinite(self).all() else math.nan

    def looked_up(self, table: Floats) -> Traced:
        """Return the numbers of a table at these places."""
        return Traced(self._made, self._each(lambda place: self._made.looked_up(place, table), self))

    def looked_up_between(self, values: Floats, steps: Floats, share: Traced) -> Traced:
        """Return value + share x step, which is between two neighbours of a table."""
        make = self._made

        def one(place: Node, part: Node) -> Node:
            held = values[max(int(place.low), 0) : int(place.high) + 2]
            product = make.multiply(part, make.looked_up(place, steps))
            parts = product, " + ", make.looked_up(place, values)
            return make.node(parts, float(held.min()), float(held.max()))

        return Traced(make, self._each(one, self, share))


# ---- readers of rows that stay where they are


class TracedReader:
    """Reads the columns of a table in a database, as `RowReader` and its block read rows."""

    exact = True

    def __init__(self, question: Question, made: Expressions, public: SiteBlock, args: Args) -> None:
        self._question, self._made, self._public, self.args, self.block = question, made, public, args, self
        self.response_low, self.response_high = public.response_low, public.response_high

    def _value(self, at: int | None, low: float, high: float) -> Node:
        number, text = self._question.dialect.number, self._question.value(at)
        return self._made.column(case([(f"ABS({text}) < {number(TINY)}", number(0.0))], text), low, high)

    def outcome(self) -> Floats:
        """Return the response between its bounds."""
        return cast("Floats", Traced(self._made, self._value(None, self.response_low, self.response_high)))

    def columns(self, args: Args, chosen: Integers | None = None) -> Floats:
        """Return columns in their units."""
        if chosen is None:
            raise unfit("rows are weighted by narrower bounds")
        low, high = self._public.low, self._public.high
        found: Any = Traced(self._made, [self._value(int(at), low[at], high[at]) for at in chosen])
        if (center := args.get("center")) is not None:
            found -= np.asarray(center)[chosen][:, None]
        if (scale := args.get("scale")) is not None:
            found *= 1.0 / np.asarray(scale)[chosen][:, None]
        return cast("Floats", found)

    def read(self, chosen: Integers | None = None, constant: int | None = None) -> PlacedRows:
        """Return all columns, or some, the constant being 1."""
        index, grid = grid_of(self._public, self.args, chosen, constant)
        if grid is None:
            raise unfit("bounds are wider than the radius of rows")
        nodes = []
        for j, at in enumerate(np.arange(len(self._public.low))[index]):
            steps = self._question.steps(int(at), grid.column(j))
            node = self._made.column(self._question.dialect.double_of(steps.text), steps.least, steps.most)
            nodes.append(self._made.number(FULL_SCALE) if at == constant else node)
        return PlacedRows(cast("Floats", Traced(self._made, nodes)), grid.units)


# ---- sums


def counted_rows(rows: Rows, design: Design) -> int:
    """Return how many rows a table has, all checked once its columns were; errors as for `add_pushed`."""
    source: PushedSource = rows.features
    size = len(design.columns) + 1
    if size * (size + 1) // 2 > MOST_SUMS:
        raise unfit(f"there are {size - 1} coefficients")
    question = Question(source, design, rows.missing)
    question.check_columns()
    asked = named("_s", ["COUNT(*)", *question.defects()])
    return question.checked(source.totals([question.values(), asked]))


def add_pushed(
    rows: Rows, design: Design, public: SiteBlock, asked: Sequence[Accumulator], plain: bool
) -> list[int]:
    """Add all rows of a table to empty accumulators, inside its database; return how many each query found.

    `public` is a block without rows; `plain` says that they are neither weighted nor for a fit without noise.
    Raises NotAvailableError for what no query is made for, SchemaError for rows as blocks of them do,
    StorageError if the query fails.
    """
    found = [add_rows(rows, design, one, plain=plain) for one in asked if isinstance(one, MomentSums)]
    terms = [one for one in asked if isinstance(one, TermSums)]
    return [*found, *(_add_terms(rows, design, public, terms) if terms else [])]


def _add_terms(rows: Rows, design: Design, public: SiteBlock, asked: Sequence[TermSums]) -> list[int]:
    source: PushedSource = rows.features
    question, made = Question(source, design, rows.missing), Expressions(source.dialect)
    found: list[tuple[Any, Term, list[tuple[Node, ...]]]] = []
    for one in asked:
        terms = one.terms(cast("RowReader", TracedReader(question, made, public, one.args)))
        found += [(part, term, _products(term)) for part, term in zip(one.parts, terms, strict=True)]
    if (size := sum(len(products) for _, _, products in found)) > MOST_SUMS:
        if len(asked) == 1:
            raise unfit(f"there are {size} sums")
        return [n for one in asked for n in _add_terms(rows, design, public, [one])]
    plain = {node: isinstance(term, Counts) for _, term, pairs in found for pair in pairs for node in pair}
    layers, shown = layers_of(list(plain), question.kept)
    names = {root: f"_z{place}" for place, root in enumerate(plain)}
    whole = source.dialect.integer
    last = [f"{shown[one] if plain[one] else whole(shown[one])} AS {name}" for one, name in names.items()]
    defects = question.defects()
    sums = [
        source.dialect.total.format(text)
        for _, term, products in found
        for text in _texts(source.dialect, term, [[names[node] for node in pair] for pair in products])
    ]
    read = [f"{text} AS {name}" for text, name in made.columns.items()]
    below = [question.values(), [*question.kept, *read], *layers, [*question.kept, *last]]
    n, *totals = source.totals([*below, named("_s", ["COUNT(*)", *defects, *sums])])
    question.checked([n, *totals[: len(defects)]])
    rest = iter(totals[len(defects) :])
    for part, term, products in found:
        _take(part, term, n, [next(rest) for _ in products])
    return [n]


def _products(term: Term) -> list[tuple[Node, ...]]:
    """Return the integers whose products are added up, or the number that is compared."""
    if isinstance(term, Counts):
        if not term.thresholds[0] > 2.0**-200:
            raise unfit("numbers above 0 are counted")
        return [tuple(_nodes(term.values))] * len(term.thresholds)
    if isinstance(term, Product):
        words, steps = map(_nodes, term.integers())
        return [(word, step) for word in words for step in steps]
    return list(combinations_with_replacement(_nodes(term.integers()[0]), 2))


def _nodes(array: Any) -> list[Node]:
    return list(array.nodes.flat)


def _texts(dialect: Dialect, term: Term, products: list[list[str]]) -> list[str]:
    """Return what is added up over rows."""
    if not isinstance(term, Counts):
        return [" * ".join(names) for names in products]
    return [
        case([(f"{name} > {dialect.number(least)}", "1")], "0")
        for (name,), least in zip(products, term.thresholds, strict=True)
    ]


def _take(sums: Any, term: Term, n: int, totals: list[int]) -> None:
    """Put the sums of a term into its accumulator."""
    if isinstance(term, Counts):
        sums.take(n, -np.diff(np.array([*totals, 0], dtype=np.int64)))
    else:
        whole = np.zeros(sums.total.shape, dtype=object)
        first = np.mgrid[:2, 2 : len(whole)] if isinstance(term, Product) else np.triu_indices(len(whole))
        whole[tuple(np.reshape(index, -1) for index in first)] = totals
        sums.take(n, whole)
