"""Interval arithmetic: bounds of a derived column from the public bounds of the columns it is made of.

The same steps are taken on intervals, on rows that stay inside them, and on plain rows (`Algebra`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from privinf.error_boundary import error_boundaries
from privinf.errors import SchemaError
from privinf.typing import Floats

# Relative room for the last bits of logarithms, exponentials and powers, which differ between two ways of
# computing them.
ROOM = 2.0**-50
EDGE = 2.0**-40  # how far rounding may carry an end across the edge of a function's domain, relatively
MOST_CROSSED = 2.0**-16  # and at most: beside exp(28) a value of -0.6 is no rounding
LARGEST_EXACT = 2.0**53  # whole numbers up to this are exact in doubles


@error_boundaries
@dataclass(frozen=True, slots=True)
class Interval:
    """A closed, finite interval that contains every value of a column.

    Sums, differences, products and quotients of ends are correctly rounded, as those of rows are, and so
    contain them. Other functions are computed as for rows, and rounded outward. Values of rows are clipped to
    the interval as well (`inside`), so that the last bits of a function never matter.

    Parameters
    ----------
    low, high : float
        Ends, low <= high.

    Raises
    ------
    SchemaError
        If an end is not finite or the ends are reversed.
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high)):
            raise SchemaError(
                "the expression is not finite over the declared bounds of its columns: change "
                "these bounds, or the expression"
            )
        if self.low > self.high:
            raise SchemaError(
                f"the lower bound {self.low:g} of the expression exceeds its upper bound {self.high:g}: "
                "exchange them"
            )

    @property
    def middle(self) -> float:
        """The midpoint."""
        return 0.5 * self.low + 0.5 * self.high

    @property
    def largest(self) -> float:
        """The largest absolute value."""
        return max(abs(self.low), abs(self.high))

    def __add__(self, other: Interval) -> Interval:
        return Interval(self.low + other.low, self.high + other.high)

    def __sub__(self, other: Interval) -> Interval:
        return Interval(self.low - other.high, self.high - other.low)

    def __neg__(self) -> Interval:
        return Interval(-self.high, -self.low)

    def __mul__(self, other: Interval) -> Interval:
        return _hull(a * b for a in (self.low, self.high) for b in (other.low, other.high))

    def __truediv__(self, other: Interval) -> Interval:
        if other.low <= 0.0 <= other.high:
            raise SchemaError(
                "a denominator in the formula can be zero within the declared bounds of its columns; declare "
                "bounds within which it cannot be zero"
            )
        return _hull(a / b for a in (self.low, self.high) for b in (other.low, other.high))

    def power(self, exponent: float) -> Interval:
        """Return the image under x ** exponent, for a fixed exponent.

        Raises SchemaError for a fractional power of negative values or a negative power of values that can be
        zero.
        """
        if exponent < 0.0 and self.low <= 0.0 <= self.high:
            raise SchemaError(
                "values that can be zero within the declared bounds are raised to a negative power; declare "
                "bounds with which they cannot be zero"
            )
        if not exponent.is_integer() and self.at_least(0.0).low < 0.0:
            raise SchemaError(
                "values that can be negative within the declared bounds are raised to a fractional power; "
                "declare bounds with which they cannot be negative"
            )
        base = self if exponent.is_integer() else self.at_least(0.0)
        ends = base.images(lambda values: power(values, exponent))
        if exponent > 0.0 and exponent % 2.0 == 0.0 and self.low < 0.0 < self.high:
            return Interval(0.0, ends.high)
        return ends

    def monotone(
        self, function: Callable[[Floats], Floats], *, domain_start: float, open_end: bool
    ) -> Interval:
        """Return the image under an increasing function whose domain starts at `domain_start`.

        Raises SchemaError if the interval leaves the domain or the image is unbounded.
        """
        if self.low <= domain_start if open_end else self.at_least(domain_start).low < domain_start:
            relation = "above" if open_end else "of at least"
            remedy = ", or use np.log1p() if values may be 0" if open_end and self.low == domain_start else ""
            raise SchemaError(
                f"a function in the formula is defined only for values {relation} {domain_start:g}, but "
                "within the declared bounds its argument can leave this range; declare narrower bounds of "
                f"its columns{remedy}"
            )
        return self.at_least(domain_start).images(function)

    def at_least(self, end: float) -> Interval:
        """Return the interval cut at `end`, where only rounding has moved its lower end below `end`."""
        room = min(EDGE * self.largest, MOST_CROSSED)
        crossed = end - room <= self.low < end <= self.high
        return Interval(end, self.high) if crossed else self

    def compared(self, test: np.ufunc, other: Interval) -> Interval:
        """Return the image under a comparison: 0 to 1, or one value where the bounds decide it."""
        if test in (np.equal, np.not_equal):
            apart = self.high < other.low or other.high < self.low
            return Interval(float(test is np.not_equal), float(test is np.not_equal)) if apart else TRUTH
        outcomes = {bool(test(a, b)) for a in (self.low, self.high) for b in (other.low, other.high)}
        return TRUTH if len(outcomes) > 1 else Interval(float(*outcomes), float(*outcomes))

    def limited(self, limit: np.ufunc, other: Interval) -> Interval:
        """Return the image under the minimum or the maximum of two values."""
        return Interval(float(limit(self.low, other.low)), float(limit(self.high, other.high)))

    def choice(self, yes: Interval, no: Interval) -> Interval:
        """Return the image of ``where(condition, yes, no)``, this interval being the condition."""
        if self.low == self.high:
            return yes if self.low > 0.5 else no
        return Interval(min(yes.low, no.low), max(yes.high, no.high))

    def images(self, function: Callable[[Floats], Floats]) -> Interval:
        """Return the hull of a function's values at both ends, rounded outward.

        The function is the one applied to rows. A whole number at a whole end (exp at 0, log at 1, powers) is
        exact and stays.
        """
        ends = np.array([self.low, self.high])
        with np.errstate(all="ignore"):
            values = function(ends)
            exact = (values == np.rint(values)) & (np.abs(values) <= LARGEST_EXACT) & (ends == np.rint(ends))
            room = np.where(exact, 0.0, ROOM * np.abs(values))
            low, high = (values - room).min(), (values + room).max()
        return Interval(float(low), float(high))

    def inside(self, values: Floats) -> Floats:
        """Return values clipped to the interval; nan becomes its upper end."""
        return np.fmax(np.fmin(values, self.high), self.low)

    def absolute(self) -> Interval:
        """Return the image under abs(x)."""
        ends = (abs(self.low), abs(self.high))
        return Interval(0.0 if self.low <= 0.0 <= self.high else min(ends), max(ends))


TRUTH = Interval(0.0, 1.0)  # of a comparison that rows decide


def power(values: Floats, exponent: float) -> Floats:
    """Return values ** exponent, for intervals and for rows alike."""
    return np.asarray(values**exponent)


def _hull(values: object) -> Interval:
    ends = sorted(values)  # type: ignore[call-overload]
    return Interval(float(ends[0]), float(ends[-1]))


# ---- interpretations of an expression: an interval, rows inside one, or plain rows

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class _Function:
    """An increasing function on [domain_start, oo), or open there; one implementation for all readings."""

    array: Callable[[Floats], Floats]
    domain_start: float = -math.inf
    open_end: bool = False


_FUNCTIONS: dict[str, _Function] = {
    "log": _Function(np.log, 0.0, True),
    "log1p": _Function(np.log1p, -1.0, True),
    "log2": _Function(np.log2, 0.0, True),
    "log10": _Function(np.log10, 0.0, True),
    "exp": _Function(np.exp),
    "expm1": _Function(np.expm1),
    "sqrt": _Function(np.sqrt, 0.0),
}
FUNCTION_NAMES = ("abs", *_FUNCTIONS)  # functions of one argument


@dataclass(frozen=True, slots=True)
class Ranged:
    """Numbers of rows with the interval that holds them all; every operation keeps them inside.

    Attributes
    ----------
    values : ndarray
        Inside `interval`.
    interval : Interval
        Follows from public bounds alone.
    """

    values: Floats
    interval: Interval

    @classmethod
    def from_values(cls, values: Floats, interval: Interval) -> Ranged:
        """Return values put into their interval."""
        return cls(interval.inside(values), interval)

    def __add__(self, other: Ranged) -> Ranged:
        return Ranged.from_values(self.values + other.values, self.interval + other.interval)

    def __sub__(self, other: Ranged) -> Ranged:
        return Ranged.from_values(self.values - other.values, self.interval - other.interval)

    def __neg__(self) -> Ranged:
        return Ranged(-self.values, -self.interval)

    def __mul__(self, other: Ranged) -> Ranged:
        return Ranged.from_values(self.values * other.values, self.interval * other.interval)

    def __truediv__(self, other: Ranged) -> Ranged:
        return Ranged.from_values(self.values / other.values, self.interval / other.interval)

    def power(self, exponent: float) -> Ranged:
        """Return the numbers raised to a fixed exponent."""
        base = self.values if exponent.is_integer() else np.maximum(self.values, 0.0)
        return Ranged.from_values(power(base, exponent), self.interval.power(exponent))


@dataclass(frozen=True, slots=True, kw_only=True)
class Algebra(Generic[Value]):
    """Interface of the values that the interpreter computes with."""

    constant: Callable[[float], Value]
    power: Callable[[Value, float], Value]
    function: Callable[[str, Value], Value]
    test: Callable[[np.ufunc, Value, Value], Value]
    limit: Callable[[np.ufunc, Value, Value], Value]
    choose: Callable[[Value, Value, Value], Value]


def _interval_function(name: str, value: Interval) -> Interval:
    if name == "abs":
        return value.absolute()
    function = _FUNCTIONS[name]
    return value.monotone(function.array, domain_start=function.domain_start, open_end=function.open_end)


def _ranged_function(name: str, value: Ranged) -> Ranged:
    image = _interval_function(name, value.interval)
    if name == "abs":
        return Ranged.from_values(np.abs(value.values), image)
    function = _FUNCTIONS[name]
    return Ranged.from_values(function.array(np.maximum(value.values, function.domain_start)), image)


def _array_function(name: str, value: Floats) -> Floats:
    return np.abs(value) if name == "abs" else _FUNCTIONS[name].array(value)


def _ranged_limit(limit: np.ufunc, a: Ranged, b: Ranged) -> Ranged:
    return Ranged.from_values(limit(a.values, b.values), a.interval.limited(limit, b.interval))


def _ranged_choice(truth: Ranged, yes: Ranged, no: Ranged) -> Ranged:
    image = truth.interval.choice(yes.interval, no.interval)
    return Ranged.from_values(np.where(truth.values > 0.5, yes.values, no.values), image)


# Steps on intervals.
INTERVALS: Algebra[Interval] = Algebra(
    constant=lambda c: Interval(c, c),
    power=Interval.power,
    function=_interval_function,
    test=lambda test, a, b: a.compared(test, b),
    limit=lambda limit, a, b: a.limited(limit, b),
    choose=Interval.choice,
)
# Steps on rows that stay inside their intervals.
RANGED: Algebra[Ranged] = Algebra(
    constant=lambda c: Ranged(np.float64(c), Interval(c, c)),  # type: ignore[arg-type]
    power=Ranged.power,
    function=_ranged_function,
    test=lambda test, a, b: Ranged.from_values(
        1.0 * test(a.values, b.values), a.interval.compared(test, b.interval)
    ),
    limit=_ranged_limit,
    choose=_ranged_choice,
)
# Steps on plain rows.
ARRAYS: Algebra[Any] = Algebra(
    constant=np.float64,
    power=power,
    function=_array_function,
    test=lambda test, a, b: 1.0 * test(a, b),
    limit=lambda limit, a, b: limit(a, b),
    choose=lambda truth, yes, no: np.where(truth > 0.5, yes, no),
)
