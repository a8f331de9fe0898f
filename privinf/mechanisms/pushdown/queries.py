"""Columns of a table in a database as expressions, and checks that refuse rows.

The columns of a design are numbers of the table or functions of levels alone: values between their bounds,
or the integers of their grid, as `ColumnGrid.put` has them. Every step is one IEEE operation a number, or a
look-up of numpy's results for public numbers: bounds, stand-ins of missing values, levels. Values outside
their bounds, whose products could overflow, missing ones and nan are branches of their own.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np
import pandas as pd

from privinf.errors import SchemaError
from privinf.mechanisms.pushdown.databases import (
    Layer,
    PushedSource,
    case,
    count,
    first_double,
    named,
    unfit,
)
from privinf.mechanisms.rows import Rows
from privinf.mechanisms.sources import no_rows, require_columns
from privinf.mechanisms.statistics.gridded import ColumnGrid
from privinf.mechanisms.sums import EXACT_BITS
from privinf.schema import Design, Factor, Schema
from privinf.schema.declared import DAYS
from privinf.schema.reading import (
    INFINITE,
    MISSING_VALUES,
    NO_DECLARED_LEVEL,
    NOT_NUMBERS,
    outside_levels,
)
from privinf.schema.terms import Column
from privinf.typing import Floats, Missing

MOST_LOOKUPS = 1 << 12  # combinations of levels that one column may distinguish
ALL_ROWS = "COUNT(*)"
GAP = -2  # in place of a level's or a cell's place: the row has no value
UNDECLARED = -1  # in place of a level's place: the schema has no such level


class TableQuery:
    """SQL of columns of a table (numbers where there is no schema), with the checks that refuse rows."""

    __slots__ = ("_factors", "_missing", "_names", "_schema", "_source", "dialect", "strict", "value_names")

    def __init__(
        self, source: PushedSource, schema: Schema | None, names: Sequence[str], missing: Missing
    ) -> None:
        self._source = source
        self._schema = schema
        self._missing = missing
        self.dialect = source.dialect
        self._names = list(dict.fromkeys(names))
        self.value_names = [f"_v{place}" for place in range(len(self._names))]
        # By expression, its column: it is NULL in just the rows where that is not finite.
        self.strict = dict[str, str]()
        require_columns(source, self._names)
        self._factors: dict[str, Factor] = {}
        for name in self._names:
            self._check(name)

    def _check(self, name: str) -> None:
        """Check declaration and type of a column."""
        declared = None if self._schema is None else self._schema[name]
        kind = self._source.kinds[name]
        if isinstance(declared, Factor):
            self._factors[name] = declared
            large = any(
                not isinstance(level, str) and abs(level) >= 2**EXACT_BITS
                for level in (*declared.levels, *declared.missing_codes)
            )
            if large or kind not in ("number", "truth", "text"):
                raise unfit(f"the database and privinf may compare the levels of column {name!r} differently")
        elif declared is not None and declared.unit == DAYS:
            raise unfit(
                f"column {name!r} contains dates, which the database and privinf may convert differently"
            )
        elif kind not in ("number", "decimal", "truth"):
            raise SchemaError(NOT_NUMBERS.format(name))

    # ---- rows with missing values

    @property
    def drops(self) -> bool:
        """Whether rows with missing values add nothing to the sums."""
        return self._missing == "drop"

    def complete(self, text: str) -> str:
        """Return an expression that is NULL in rows with missing values, where these are dropped."""
        if not self.drops:
            return text
        return f"CASE WHEN {' AND '.join(map(self._present, self._names))} THEN {text} END"

    @property
    def complete_rows(self) -> str:
        """How many rows add to the sums: all, or those without missing values."""
        return f"COUNT({self.complete('1')})" if self.drops else ALL_ROWS

    def _present(self, name: str) -> str:
        """Return the condition that a row has a value of a column."""
        value = self._value(name)
        if name in self._factors:
            return f"{value} <> {GAP}"
        return f"{value} IS NOT NULL AND NOT {self.dialect.nan.format(value)}"

    # ---- defects of rows

    def defects(self, strict: Mapping[str, str] | None = None) -> list[str]:
        """Return expressions for rows of numbers that are not finite, and of undeclared levels of a factor.

        Missing numbers are not counted where their rows are dropped.

        `strict` has, by name, an expression that is NULL in just the rows where a number is not finite:
        counting it costs less than a comparison.
        """
        top = self.dialect.top
        expressions = list[str]()
        strict = strict or {}
        for name, value in zip(self._names, self.value_names, strict=True):
            if name in self._factors:
                expressions += [
                    count(f"{value} = {GAP}"),
                    count(f"{value} = {UNDECLARED}"),
                    count(f"{value} >= 0"),
                ]
            elif self.drops:
                expressions.append(count(f"{self._present(name)} AND ABS({value}) > {top}"))
            else:
                finite = strict.get(name, f"CASE WHEN ABS({value}) <= {top} THEN 1 END")
                expressions.append(f"COUNT(*) - COUNT({finite})")
        return expressions

    def checked(self, counts: Sequence[int]) -> int:
        """Return the number of rows; SchemaError for the first column that does not fit the schema."""
        n, *defects = counts
        if not n:
            raise no_rows(self._source.name)
        defect_counts = iter(defects)
        levels = list[str]()
        for name, value in zip(self._names, self.value_names, strict=True):
            if name not in self._factors:
                if next(defect_counts):
                    self._refuse_number(name, value)
                continue
            gaps = next(defect_counts)
            undeclared = next(defect_counts)
            declared = next(defect_counts)
            self._refuse_gaps(name, gaps)
            if undeclared and self._factors[name].other is None:
                raise SchemaError(outside_levels(name, self._factors[name]))
            levels += [] if gaps or declared else [name]
        if levels:
            raise SchemaError(NO_DECLARED_LEVEL.format(levels[0]))
        return n

    def _refuse_number(self, name: str, value: str) -> None:
        top = self.dialect.top
        gaps = [f"{value} IS NULL", self.dialect.nan.format(value)]
        infinite = [*((gap, "0") for gap in gaps), (f"{value} > {top}", "1"), (f"{value} < -{top}", "1")]
        sums = [f"SUM({case([(gap, '1') for gap in gaps], '0')})", f"SUM({case(infinite, '0')})"]
        missing, infinite_rows = self._source.totals([self.values(), named("_s", sums)])
        self._refuse_gaps(name, missing)
        if infinite_rows:
            raise SchemaError(INFINITE.format(name))

    def _refuse_gaps(self, name: str, gaps: int) -> None:
        if gaps and self._missing == "raise":
            raise SchemaError(MISSING_VALUES.format(name))

    # ---- columns

    def values(self) -> Layer:
        """Return the columns as doubles, or as places of their levels."""
        texts = []
        for name in self._names:
            kind = self._source.kinds[name]
            column = self.dialect.name(name)
            value = column if kind == "text" else self.dialect.as_double(column, kind)
            declared = None if self._schema is None else self._schema[name]
            if isinstance(declared, Factor):
                texts.append(self._place(value, kind, declared))
            else:
                texts.append(self._without_codes(value, () if declared is None else declared.coded_gaps))
        return named("_v", texts)

    def _without_codes(self, value: str, codes: Sequence[float]) -> str:
        """Return a number, NULL where it is a code of missing values."""
        for code in codes:
            value = f"NULLIF({value}, {self.dialect.number(code)})"
        return value

    def _place(self, value: str, kind: str, declared: Factor) -> str:
        """Return the position of a row's level among the declared ones."""
        gaps = [f"{value} IS NULL"] + ([] if kind == "text" else [self.dialect.nan.format(value)])
        branches = [(gap, str(GAP)) for gap in gaps]
        if isinstance(declared.levels[0], str) == (kind == "text"):
            branches += [
                (self.dialect.is_level(value, kind, code), str(GAP)) for code in declared.missing_codes
            ]
            branches += [
                (self.dialect.is_level(value, kind, level), str(place))
                for place, level in enumerate(declared.levels)
            ]
        return case(branches, str(UNDECLARED))

    def _of_number(self, name: str, grid: ColumnGrid, low: float, high: float) -> tuple[str, int, int]:
        """Return floor(v factor + shift) between the ends of a column, and where it has no value."""
        dialect = self.dialect
        value = self._value(name)
        factor = float(grid.factor[0])
        shift = float(grid.shift[0])
        points = np.array([[low], [high], [self._stand_in(name)]])
        lowest, highest, gap = (int(step) for step in grid.put(points, np.empty((3, 1)), finite=True)[:, 0])
        at_low = low * factor + shift
        at_high = high * factor + shift
        if factor >= 1.0 and lowest <= at_low < lowest + 1 and highest <= at_high < highest + 1:
            clipped = self._held_value(name, low, high)
            text = f"FLOOR({clipped} * {dialect.number(factor)} + {dialect.number(shift)})"
            return self._remembered(name, text), lowest, highest
        low = first_double(lambda number: number * factor + shift >= lowest, low)
        high = -first_double(lambda number: -number * factor + shift < highest + 1, -high)
        step_text = f"FLOOR({dialect.times(value, factor)} + {dialect.number(shift)})"
        results = step_text, gap, dialect.number(lowest), dialect.number(highest)
        return self._remembered(name, self._cases(value, low, high, *results)), lowest, highest

    def _remembered(self, name: str, text: str) -> str:
        """Return the integers of a column, and remember that they are NULL where it is not finite."""
        if self._missing == "raise":
            self.strict[text] = name
        return text

    def _held_value(self, name: str, low: float, high: float) -> str:
        """Return a column's value within its bounds, or the substitute of a missing one."""
        value = self._value(name)
        number = self.dialect.number
        return self._cases(value, low, high, value, self._stand_in(name), number(low), number(high))

    def _cases(
        self, value: str, low: float, high: float, inside: str, gap: float, below: str, above: str
    ) -> str:
        """Return an expression for a value: NULL for one that is not finite, if missing ones are refused."""
        number = self.dialect.number
        top = self.dialect.top
        within = f"{value} >= {number(low)} AND {value} <= {number(high)}"
        if low == -high:
            within = f"ABS({value}) <= {number(high)}"
        if self._missing != "raise":
            return case(
                [(within, inside), *self._gaps(value, gap), (f"{value} < {number(low)}", below)], above
            )
        outside = [
            (f"{value} < {number(low)} AND {value} >= -{top}", below),
            (f"{value} > {number(high)} AND {value} <= {top}", above),
        ]
        return case([(within, inside), *outside], "NULL")

    def _gaps(self, value: str, instead: float) -> list[tuple[str, str]]:
        substitute = self.dialect.number(instead)
        return [(f"{value} IS NULL", substitute), (self.dialect.nan.format(value), substitute)]

    def _value(self, name: str) -> str:
        return self.value_names[self._names.index(name)]

    def _stand_in(self, name: str) -> float:
        return 0.0 if self._schema is None else self._schema.interval(name).middle

    def _level_test(self, name: str, place: int) -> str:
        """Return the condition that a row counts as having a level."""
        declared = self._factors[name]
        places = [place]
        if place == 0:
            places.append(GAP)
        if declared.other is not None and declared.levels[place] == declared.other:
            places.append(UNDECLARED)
        return f"{self._value(name)} IN ({', '.join(map(str, places))})"

    # ---- samples

    def sample_steps(self, name: str, grid: ColumnGrid, ends: tuple[float, float]) -> tuple[str, int, int]:
        """Return the integers, in doubles, of a column between public ends, or of 0 and 1 for two levels."""
        if name not in self._factors:
            return self._of_number(name, grid, *ends)
        declared = self._factors[name]
        numbers = range(2) if declared.categorical else map(float, declared.levels)
        values = np.array([[float(level)] for level in numbers])
        steps = grid.put(values, np.empty(values.shape), finite=True)[:, 0]
        text = self._by_level(name, list(map(self.dialect.number, steps)))
        return text, int(steps.min()), int(steps.max())

    def cell(self, names: Sequence[str], places: Mapping[str, tuple[str, int]]) -> str:
        """Return the number of the cell that a row's levels make, the last column's running fastest.

        `places` has, for each column without declared levels, the expression of a position, and how many
        positions there are.
        """
        texts = ["0"]
        stride = 1
        for name in reversed(names):
            if name in places:
                place, size = places[name]
            else:
                size = len(self._factors[name].levels)
                place = self._by_level(name, list(map(str, range(size))))
            texts.append(f"{stride} * {place}")
            stride *= size
        return " + ".join(texts)

    def cell_or_gap(self, names: Sequence[str], places: Mapping[str, tuple[str, int]]) -> str:
        """Return the number of a row's cell; `GAP` for rows with missing values, where these are dropped."""
        return self.where_complete(self.cell(names, places), GAP)

    def where_complete(self, text: str, gap: int) -> str:
        """Return an expression that is `gap` in rows with missing values, where these are dropped."""
        return case([(" AND ".join(map(self._present, self._names)), text)], str(gap)) if self.drops else text

    def _by_level(self, name: str, results: list[str]) -> str:
        """Return the result at the level of a row."""
        branches = [(self._level_test(name, place), result) for place, result in enumerate(results[:-1])]
        return f"({case(branches, results[-1])})"

    def finite(self, name: str) -> str:
        """Return a column's value, and the substitute of a missing one."""
        if name in self._factors:
            raise unfit(
                f"column {name!r} has levels, and only the distribution of a numeric column can be computed"
            )
        value = self._value(name)
        return case(self._gaps(value, self._stand_in(name)), value)

    def counted(self, layers: Sequence[Layer], sums: Sequence[str]) -> tuple[int, dict[int, list[int]]]:
        """Return the number of rows, all checked, and sums over those of each number `_cell` of a layer."""
        defects = self.defects()
        columns = ["_cell", *named("_s", [ALL_ROWS, *defects, *sums])]
        rows = self._source.grouped([self.values(), *layers, columns], "_cell")
        start = 2 + len(defects)
        n = self.checked([sum(row[place] for row in rows) for place in range(1, start)])
        return n, {row[0]: row[start:] for row in rows}


class DesignQuery(TableQuery):
    """SQL of a table by a design whose one public column is the constant."""

    __slots__ = ("_design",)

    def __init__(self, source: PushedSource, design: Design, missing: Missing) -> None:
        self._design = design
        names = (*design.inputs, *design.outcome.column.inputs)
        super().__init__(source, design.schema, names, missing)

    def _column_and_bounds(self, at: int | None) -> tuple[Column, float, float]:
        """Return a column of the design, or with None the response, and its bounds."""
        design = self._design
        if at is not None:
            return design.columns[at], float(design.low[at]), float(design.high[at])
        assert design.outcome.bounds is not None
        return design.outcome.column, design.outcome.bounds.low, design.outcome.bounds.high

    def value(self, at: int | None) -> str:
        """Return a column of the design, or with None the response, in its bounds."""
        column, low, high = self._column_and_bounds(at)
        if self._number(column):
            return self._held_value(column.inputs[0], low, high)
        places, values = self._cells(column, at)
        return self._by_cell(column, places, [self.dialect.number(v) for v in np.clip(values, low, high)])

    def outside(self, at: int | None) -> str:
        """Return 1 where a number, or with None the response, lies outside its bounds, and 0 elsewhere."""
        column, low, high = self._column_and_bounds(at)
        inside = self.dialect.number(0.0)
        mark = self.dialect.number(1.0)
        if not self._number(column):
            return inside
        step = (high / 2.0 - low / 2.0) * 2.0**-20
        return self._cases(self._value(column.inputs[0]), low - step, high + step, inside, 0.0, mark, mark)

    def check_columns(self) -> None:
        """Raise NotAvailableError for a column of which no query is made."""
        for at in (None, *range(len(self._design.columns))):
            self.value(at)

    def steps(self, at: int | None, grid: ColumnGrid) -> tuple[str, int, int]:
        """Return the integers, in doubles, of a column or with None of the response, and their ends."""
        column, low, high = self._column_and_bounds(at)
        if self._number(column):
            return self._of_number(column.inputs[0], grid, low, high)
        places, values = self._cells(column, at)
        steps = grid.put(values[:, None], np.empty((len(values), 1)), finite=True)[:, 0]
        text = self._by_cell(column, places, list(map(self.dialect.number, steps)))
        return text, int(steps.min()), int(steps.max())

    def _number(self, column: Column) -> bool:
        return column.plain and column.inputs[0] not in self._factors

    def _cells(self, column: Column, at: int | None) -> tuple[list[tuple[int, ...]], Floats]:
        """Return combinations of the levels that a column depends on, and its values there."""
        names = column.inputs
        if any(name not in self._factors for name in names):
            raise unfit(
                f"column {column.name!r} is neither a numeric column of the table nor a function of "
                "columns with levels (categories)"
            )
        levels = [self._factors[name].levels for name in names]
        if math.prod(map(len, levels)) > MOST_LOOKUPS:
            raise unfit(f"column {column.name!r} depends on more than {MOST_LOOKUPS} combinations of levels")
        places = list(product(*(range(len(column_levels)) for column_levels in levels)))
        frame = self._design.frame()
        frame = frame.iloc[np.zeros(len(places), dtype=int)].reset_index(drop=True)
        for k, name in enumerate(names):
            frame[name] = pd.Series([levels[k][place[k]] for place in places], dtype=object)
        if at is None:
            return places, self._design.response_values(frame)
        return places, self._design.released(frame)[:, at]

    def _by_cell(self, column: Column, places: list[tuple[int, ...]], results: list[str]) -> str:
        """Return the result that belongs to the levels of a row."""
        common = Counter(results).most_common(1)[0][0]
        cells = dict[str, list[str]]()
        for place, result in zip(places, results, strict=True):
            if result != common:
                pairs = zip(column.inputs, place, strict=True)
                cells.setdefault(result, []).append(
                    " AND ".join(self._level_test(name, level) for name, level in pairs)
                )
        return case([(" OR ".join(tests), result) for result, tests in cells.items()], common)

    def may_pass(self, limit: float, longest: dict[int, int]) -> bool:
        """Return whether a row may be longer than a ball; at most one indicator of a block is 1.

        `longest` has the largest size of every private column's integers.
        """
        squares = {place: size**2 for place, size in longest.items()}
        for block in self._design.blocks:
            for place in sorted(block, key=lambda position: squares[position])[:-1]:
                squares[place] = 0
        return sum(squares.values()) > limit * limit


def counted_rows(rows: Rows, design: Design) -> int:
    """Return how many rows a table has, all checked once its columns were; errors as for `add_pushed`."""
    source: PushedSource = rows.features
    size = len(design.columns) + 1
    if size * (size + 1) // 2 > source.dialect.sums:
        raise unfit(f"the model has {size - 1} coefficients, which are too many")
    table_query = DesignQuery(source, design, rows.missing)
    table_query.check_columns()
    sums = named("_s", [ALL_ROWS, *table_query.defects()])
    return table_query.checked(source.totals([table_query.values(), sums]))
