"""Values of a table that a schema does not declare, listed for the person who holds the rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from privinf.schema import Schema
from privinf.schema.arrays import is_number_type
from privinf.schema.declared import DAYS, Factor, Level, Numeric, date_number
from privinf.schema.table import other_values
from privinf.typing import Flags, Floats
from privinf.validation import columns_phrase

MOST_SHOWN = 20  # values of a numeric column that are shown, each once; a column of texts has many
PRIVATE = "the next lines show values of rows; only the person who holds the rows may see them"
WITH_GAPS = (
    "missing values are in {}: a fit of these columns stops with an error, unless it is run with --missing "
    "drop (which drops rows that lack a value and keeps their number private) or --missing impute-public"
)
OUTSIDE = (
    "{:.2%} of the values of {!r} are outside its bounds, and fits clip them to the bounds: if these are "
    "codes of missing values, declare them in the schema, as in missing_codes = [-9]"
)
NOT_READ = "{} of the column {!r} {} not {}: {}{}"
NOT_DECLARED = "values of the column {!r} that the schema does not declare: {}"
REPLACED = "values of the column {!r} that count as {!r}, as the schema declares by other: {}"


@dataclass(slots=True, kw_only=True)
class NumericColumn:
    """Counts of the values of a column that the schema declares as numbers or dates.

    Attributes
    ----------
    present : int
        Number of values that can be read.
    outside : int
        Number of these outside the bounds.
    unreadable : int
        Number of values that are not finite numbers, or not dates.
    shown : dict
        The first of these values, each once, in order of appearance.
    """

    present: int = 0
    outside: int = 0
    unreadable: int = 0
    shown: dict[str, None] = field(default_factory=dict)

    def add(self, column: pd.Series[Any], declared: Numeric) -> bool:
        """Add a block of rows, and return whether the block has missing values."""
        absent = column.isna().to_numpy()
        values, readable = _numbers(column, declared)
        coded = readable & np.isin(values, declared.coded_gaps)
        wrong = ~absent & ~readable
        known = values[readable & ~coded]
        self.present += len(known)
        self.outside += int(((known < declared.low) | (known > declared.high)).sum())
        self.unreadable += int(wrong.sum())
        for value in column[wrong].astype(str).drop_duplicates():
            if len(self.shown) < MOST_SHOWN:
                self.shown[value] = None
        return bool((absent | coded).any())

    def line(self, name: str, declared: Numeric) -> str:
        """Return a sentence about the values that cannot be read."""
        count = "1 value" if self.unreadable == 1 else f"{self.unreadable} values"
        verb = "is" if self.unreadable == 1 else "are"
        expected = "a date such as 2013-07-01" if self.unreadable == 1 else "dates such as 2013-07-01"
        if declared.unit != DAYS:
            expected = "a finite number" if self.unreadable == 1 else "finite numbers"
        more = ", ..." if len(self.shown) == MOST_SHOWN else ""
        return NOT_READ.format(count, name, verb, expected, ", ".join(map(repr, self.shown)), more)


def _numbers(column: pd.Series[Any], declared: Numeric) -> tuple[Floats, Flags]:
    """Return the values of a column as numbers, and which of them can be read."""
    if declared.unit == DAYS:
        days = [date_number(value.strip() if isinstance(value, str) else value) for value in column]
        values = np.array([np.nan if day is None else day for day in days], dtype=np.float64)
    elif is_number_type(column.dtype) or not pd.api.types.is_datetime64_any_dtype(column.dtype):
        parsed = pd.to_numeric(column, errors="coerce")
        values = parsed.to_numpy(dtype=np.float64, na_value=np.nan)
    else:
        values = np.full(len(column), np.nan)
    return values, np.isfinite(values)


def _as_levels(column: pd.Series[Any], declared: Factor) -> pd.Series[Any]:
    """Return a column whose levels are numbers, with its numbers as numbers if other values are texts."""
    if isinstance(declared.levels[0], str) or is_number_type(column.dtype):
        return column
    parsed = pd.to_numeric(column, errors="coerce")
    mixed = bool((parsed.isna() & column.notna()).any())
    return column.astype(object).where(parsed.isna(), parsed) if mixed else column


@dataclass(slots=True, eq=False)
class UndeclaredValues:
    """Values of a table that a schema does not declare; blocks of rows are added one after the other."""

    schema: Schema
    numbers: dict[str, NumericColumn] = field(init=False)
    levels: dict[str, dict[Level, None]] = field(init=False)
    gaps: set[str] = field(init=False)

    def __post_init__(self) -> None:
        self.numbers = {name: NumericColumn() for name in self._declared(Numeric)}
        self.levels = {name: {} for name in self._declared(Factor)}
        self.gaps = set()

    def _declared(self, kind: type) -> dict[str, Any]:
        columns = self.schema.columns.items()
        return {
            name: item for name, item in columns if name not in self.schema.blank and isinstance(item, kind)
        }

    @property
    def unreadable(self) -> list[str]:
        """Names of the columns with values that are not numbers, or not dates, as the schema declares."""
        return [name for name, column in self.numbers.items() if column.unreadable]

    def add(self, block: pd.DataFrame) -> None:
        """Add a block of rows."""
        self.gaps.update(name for name in self.schema.columns if block[name].isna().any())
        for name, column in self.numbers.items():
            if column.add(block[name], self._declared(Numeric)[name]):
                self.gaps.add(name)
        for name, declared in self._declared(Factor).items():
            self.levels[name] |= dict.fromkeys(other_values(_as_levels(block[name], declared), declared))
            if block[name].isin(list(declared.missing_codes)).any():
                self.gaps.add(name)

    def lines(self) -> Iterator[str]:
        """Yield the report."""
        yield PRIVATE
        for name in self.unreadable:
            yield self.numbers[name].line(name, self._declared(Numeric)[name])
        undeclared = {name: values for name, values in self.levels.items() if values}
        merged = [name for name in undeclared if self._declared(Factor)[name].other is not None]
        for name in (name for name in undeclared if name not in merged):
            yield NOT_DECLARED.format(name, ", ".join(map(repr, undeclared[name])))
        if len(merged) == len(undeclared):
            yield "the schema declares all values of all categorical columns"
        for name in merged:
            values = ", ".join(map(repr, undeclared[name]))
            yield REPLACED.format(name, self._declared(Factor)[name].other, values)
        for name, column in self.numbers.items():
            if column.outside:
                yield OUTSIDE.format(column.outside / column.present, name)
        if self.numbers and not any(column.outside for column in self.numbers.values()):
            yield "no value of a numeric column is outside its bounds"
        with_gaps = [name for name in self.schema.columns if name in self.gaps]
        yield WITH_GAPS.format(columns_phrase(with_gaps)) if with_gaps else "no column has missing values"
