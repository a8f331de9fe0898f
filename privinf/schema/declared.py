"""Declarations of one column: its public facts before any row is read."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, date, datetime
from typing import Any, ClassVar, TypeAlias

import numpy as np

from privinf.error_boundary import error_boundaries
from privinf.errors import SchemaError
from privinf.schema.intervals import Interval
from privinf.typing import ColumnKind, Floats
from privinf.validation import check_choice

Level: TypeAlias = str | int | float | bool


@error_boundaries
@dataclass(frozen=True, slots=True)
class Numeric:
    """Declaration of a numeric column with public bounds, in the user's units.

    Parameters
    ----------
    low, high : float
        Public bounds, fixed without looking at the rows, with low < high. The holder of the rows clips values
        outside the bounds to the nearest bound.
    public : bool
        Whether the column is public, such as a treatment that was assigned by a public list. Public columns
        are not protected.
    unit : str
        Unit of measurement, for display.
    center, scale : float, optional
        Public center and scale that ``center(x)`` and ``standardize(x)`` use in a formula, instead of the
        mean and standard deviation of the rows, which are not public.
    missing_codes : sequence of float
        Numbers (in a column of dates: dates) that mean that a value is missing, such as ``[-9]`` or
        ``[999]``. They count as missing values, whether they are inside the bounds or not.

    Raises
    ------
    SchemaError
        Raised if the bounds are reversed, equal, nan or infinite, if `scale` is not positive, or if
        `missing_codes` is not a list of numbers.
    """

    low: float
    high: float
    _: KW_ONLY
    public: bool = False
    unit: str = ""
    center: float | None = None
    scale: float | None = None
    missing_codes: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        low = finite_number(self.low, "the lower bound")
        high = finite_number(self.high, "the upper bound")
        if not low < high:
            remedy = (
                "; if the column is constant, add it with privinf.add_constant instead" if low == high else ""
            )
            raise SchemaError(
                f"bounds ({low:g}, {high:g}) must be increasing, with the lower bound first{remedy}"
            )
        if not math.isfinite(high - low):
            raise SchemaError(
                "bounds are too far apart: the difference between the upper and the lower bound must "
                "be a finite number"
            )
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)
        for name in ("center", "scale"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, finite_number(getattr(self, name), name))
        if self.scale is not None and self.scale <= 0.0:
            raise SchemaError("scale= (the divisor of the column in standardize()) must be positive")
        codes = [date_number(code) if self.unit == DAYS else None for code in _listed(self.missing_codes)]
        numbers = [
            finite_number(code, "each of missing_codes=") if day is None else day
            for code, day in zip(self.missing_codes, codes, strict=True)
        ]
        object.__setattr__(self, "missing_codes", tuple(dict.fromkeys(numbers)))
        _check_labels(self.public, self.unit)

    @property
    def interval(self) -> Interval:
        """The bounds."""
        return Interval(self.low, self.high)

    @property
    def coded_gaps(self) -> tuple[float, ...]:
        """The codes of missing values as doubles, also as columns of single precision have them."""
        return tuple(dict.fromkeys((*self.missing_codes, *map(_single, self.missing_codes))))

    @property
    def is_zero_to_one(self) -> bool:
        """Whether the bounds are 0 and 1, as of a yes/no column whose codes are numbers."""
        return (self.low, self.high) == (0.0, 1.0)

    @property
    def categorical(self) -> bool:
        """Always False: a formula uses a numeric column as a number."""
        return False

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary that can be written as JSON.

        Returns
        -------
        dict
            Numbers and texts.
        """
        record: dict[str, Any] = {
            "low": self.low,
            "high": self.high,
            "public": self.public,
            "unit": self.unit,
        }
        record |= {
            name: getattr(self, name) for name in ("center", "scale") if getattr(self, name) is not None
        }
        return record | ({"missing_codes": list(self.missing_codes)} if self.missing_codes else {})


@error_boundaries
@dataclass(frozen=True, slots=True)
class Factor:
    """Declaration of a column with a public list of levels.

    Parameters
    ----------
    levels : sequence of str, bool or number
        Public list of at least two different levels of one type (text, number or boolean). The first level is
        the reference.
    public : bool
        Whether the column is public. Public columns are not protected.
    unit : str
        Unit of measurement, for display.
    other : level, optional
        Level (one of `levels`) that replaces every undeclared value. Use it to pool rare levels. Without
        `other`, an undeclared value raises an error.
    missing_codes : sequence of level
        Values, of the type of the levels, that mean that a value is missing, such as ``[9]``. They count as
        missing values. To estimate the effect of a missing value, declare a level for it instead.

    Raises
    ------
    SchemaError
        Raised if there are fewer than two levels, repeated levels or levels of several types, if `other`
        is not one of the levels, or if one of `missing_codes` is a level or has another type.

    Notes
    -----
    A column whose levels are texts or booleans is a factor in every formula. A column x whose levels are
    numbers is numeric, with the smallest and the largest level as bounds, unless the formula has ``C(x)``.
    """

    levels: tuple[Level, ...]
    _: KW_ONLY
    public: bool = False
    unit: str = ""
    other: Level | None = None
    missing_codes: tuple[Level, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.levels, str) or not isinstance(self.levels, (Sequence, np.ndarray)):
            raise SchemaError("levels must be a list or an array, such as ['a', 'b']")
        levels = tuple(_level(level) for level in self.levels)
        if len({_kind(level) for level in levels}) > 1:
            raise SchemaError("levels must be all strings, all numbers or all booleans")
        if len(set(levels)) != len(levels):
            raise SchemaError("levels must not repeat")
        if len(levels) < 2:
            raise SchemaError("a factor needs at least two levels")
        object.__setattr__(self, "levels", levels)
        if self.other is not None:
            object.__setattr__(self, "other", _level(self.other))
            if _kind(self.levels[0]) != _kind(self.other) or self.other not in levels:
                raise SchemaError("other= must be one of the declared levels: add it to the list of levels")
        codes = tuple(dict.fromkeys(_level(code) for code in _listed(self.missing_codes)))
        if any(_kind(code) != _kind(levels[0]) for code in codes):
            raise SchemaError(
                f"missing_codes= must have the type of the levels, which is {_kind(levels[0])}: write "
                "texts with quotes and numbers without quotes"
            )
        if both := [code for code in codes if code in levels]:
            raise SchemaError(
                f"{both[0]!r} is a level and one of missing_codes=: leave it out of one of the two lists"
            )
        object.__setattr__(self, "missing_codes", codes)
        _check_labels(self.public, self.unit)

    @property
    def categorical(self) -> bool:
        """True if the levels are not numbers; the column is then a factor in formulas."""
        return _kind(self.levels[0]) != "number"

    @property
    def interval(self) -> Interval:
        """Smallest and largest level, if the levels are numbers.

        The attribute raises SchemaError if the levels are not numbers.
        """
        if self.categorical:
            raise SchemaError(
                "a column whose levels are not numbers can be used only as a factor, as in C(column)"
            )
        numbers = [float(level) for level in self.levels]
        return Interval(min(numbers), max(numbers))

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary that can be written as JSON.

        Returns
        -------
        dict
            Numbers and texts.
        """
        record: dict[str, Any] = {"levels": list(self.levels), "public": self.public, "unit": self.unit}
        record |= {} if self.other is None else {"other": self.other}
        return record | ({"missing_codes": list(self.missing_codes)} if self.missing_codes else {})


@error_boundaries
@dataclass(frozen=True, slots=True)
class Blank:
    """A column of which only the name and the kind are known: bounds or levels are to be filled in."""

    kind: ColumnKind
    public: ClassVar[bool] = False
    unit: ClassVar[str] = ""

    def __post_init__(self) -> None:
        check_choice(self.kind, ColumnKind, "kind")

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary that can be written as JSON."""
        return {"kind": self.kind}


Declaration: TypeAlias = Numeric | Factor


def as_declaration(name: str, value: object) -> Declaration | Blank:
    """Return the declaration of column `name` from a user's argument.

    Raises SchemaError if it is none of a pair of bounds, a list of levels, `Numeric` and `Factor`; names the
    column.
    """
    try:
        if isinstance(value, (Numeric, Factor, Blank)):
            return value
        if isinstance(value, tuple) and len(value) == 2 and _has_open_end(value):
            raise SchemaError(OPEN_BOUNDS)
        if (
            isinstance(value, tuple)
            and len(value) == 2
            and all(isinstance(end, (bool, int, float, np.generic)) for end in value)
            and not any(isinstance(end, np.datetime64) for end in value)
            and all(_kind(_level(end)) == "number" for end in value)
        ):
            return Numeric(*value)
        if isinstance(value, tuple) and len(value) == 2:
            days = [date_number(end) for end in value]
            if None not in days:
                return Numeric(*days, unit=DAYS)  # type: ignore[arg-type]
        if isinstance(value, (list, tuple, np.ndarray)):
            _refuse_listed_bounds(value)
            return Factor(tuple(value))
        raise SchemaError(
            "the declaration must be a tuple of bounds (low, high), a list of levels, or a Numeric or Factor"
        )
    except SchemaError as error:
        raise SchemaError(f"column {name!r}: {error}") from None


def _has_open_end(bounds: tuple[Any, Any]) -> bool:
    """Return whether one of two bounds is missing or not finite, and the other is a number or missing too."""
    is_open = [
        end is None or (isinstance(end, (float, np.floating)) and not math.isfinite(end)) for end in bounds
    ]
    numbers = [isinstance(end, (int, float, np.number)) for end in bounds]
    return any(is_open) and all(a or b for a, b in zip(is_open, numbers, strict=True))


def _refuse_listed_bounds(value: Sequence[Any] | np.ndarray[Any, Any]) -> None:
    """Raise SchemaError for two numbers in a list that may be meant as bounds; levels 0 and 1 pass."""
    if len(value) != 2 or not all(isinstance(end, (int, float, np.number)) for end in value):
        return
    low, high = map(float, value)
    if isinstance(value[0], (bool, np.bool_)) or (low.is_integer() and high - low == 1.0):
        return
    raise SchemaError(
        f"the list [{low:g}, {high:g}] declares two levels but resembles bounds: write "
        f"({low:g}, {high:g}) for bounds, or privinf.Factor([{low:g}, {high:g}]) for levels"
    )


OPEN_BOUNDS = (
    "both bounds must be finite numbers: declare (low, high) such that no plausible value is outside, or "
    "estimate the bounds privately with pi.find_bounds"
)
DAYS = "days since 1970-01-01"
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2})?)?$")


def date_number(value: object) -> float | None:
    """Return a date or time, or its text as YYYY-MM-DD, in days since 1970-01-01; None if it is none."""
    if not isinstance(value, (date, np.datetime64)) and not (isinstance(value, str) and _DATE.match(value)):
        return None
    try:
        if isinstance(value, datetime) and value.tzinfo is not None:
            value = value.astimezone(UTC).replace(tzinfo=None)
        moment = np.datetime64(value, "us")  # type: ignore[call-overload]
    except (ValueError, TypeError, OverflowError):
        return None
    days = (moment - np.datetime64(0, "us")) / np.timedelta64(1, "D")
    return float(days) if math.isfinite(days) else None


def as_dates(days: Floats) -> np.ndarray[Any, np.dtype[np.datetime64]]:
    """Return days since 1970-01-01 as times, to the microsecond."""
    microseconds = np.rint(np.asarray(days) * 86_400e6).astype(np.int64)
    return microseconds.astype("datetime64[us]")


def finite_number(value: object, name: str) -> float:
    """Return a public number as a float; SchemaError if it is none or not finite."""
    if isinstance(value, (bool, np.bool_, str)) or not isinstance(
        value, (int, float, np.integer, np.floating)
    ):
        raise SchemaError(f"{name} must be a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise SchemaError(f"{name} must be a finite number")
    return number + 0.0  # no negative zero: it would change the digest


def _listed(codes: object) -> Sequence[Any] | np.ndarray[Any, Any]:
    """Return codes of missing values; SchemaError if they are not a list."""
    if isinstance(codes, str) or not isinstance(codes, (Sequence, np.ndarray)):
        raise SchemaError("missing_codes= must be a list, such as [-9] or [98, 99]")
    return codes


def _single(number: float) -> float:
    """Return a number as a column of single precision has it."""
    with np.errstate(over="ignore"):
        single = float(np.float32(number))
    return single if math.isfinite(single) else number


def _level(value: Any) -> Level:
    plain = value.item() if isinstance(value, np.generic) else value
    if not isinstance(plain, (str, bool, int, float)):
        raise SchemaError("levels must be strings, booleans or numbers")
    if isinstance(plain, float):
        return finite_number(plain, "each level")
    return plain


def _kind(level: Level) -> str:
    if isinstance(level, str):
        return "text"
    return "boolean" if isinstance(level, bool) else "number"


def _check_labels(public: object, unit: object) -> None:
    if not isinstance(public, bool):
        raise SchemaError("public must be True or False")
    if not isinstance(unit, str):
        raise SchemaError("unit, the unit of measurement, must be a string")


def checked_names(names: Iterable[str]) -> list[str]:
    """Return column names as a list: non-empty texts, at least one, none twice."""
    listed = [names] if isinstance(names, str) else list(names)
    if isinstance(names, str) or not all(isinstance(name, str) and name for name in listed):
        raise SchemaError("names= must be a list of non-empty strings")
    if not listed:
        raise SchemaError("a design needs at least one column")
    if len(set(listed)) != len(listed):
        twice = next(name for position, name in enumerate(listed) if name in listed[:position])
        raise SchemaError(f"the column name {twice!r} is used twice")
    return listed
