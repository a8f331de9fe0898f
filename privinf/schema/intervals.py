"""Interval arithmetic: bounds of a derived column from the public bounds of the columns it is made of."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from privinf.doors import doors
from privinf.errors import SchemaError
from privinf.typing import Floats

# Relative room for the last bits of logarithms, exponentials and powers, which differ between two ways of
# computing them; and how far rounding may carry an end across the edge of a function's domain.
ROOM = 2.0**-50
EDGE = 2.0**-40
WHOLE = 2.0**53


@doors
@dataclass(frozen=True, slots=True)
class Interval:
    """A closed, finite interval that contains every value of a column.

    Sums, differences, products and quotients of ends are correctly rounded, as those of rows are, and so
    contain them. Other functions are computed as those of rows are, and rounded outward. What a row gives
    is put inside all the same (`inside`), so that the last bits of no function can ever be seen.

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
            raise SchemaError("its bounds are not finite over the declared bounds")
        if self.low > self.high:
            raise SchemaError("its bounds are reversed")

    @property
    def middle(self) -> float:
        """The midpoint."""
        return 0.5 * self.low + 0.5 * self.high

    @property
    def reach(self) -> float:
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
            raise SchemaError("its denominator can be zero inside the declared bounds")
        return _hull(a / b for a in (self.low, self.high) for b in (other.low, other.high))

    def power(self, exponent: float) -> Interval:
        """Return the image under x ** exponent, for a fixed exponent.

        Raises SchemaError for a fractional power of negative values or a negative power of values that can be
        zero.
        """
        if exponent < 0.0 and self.low <= 0.0 <= self.high:
            raise SchemaError("it raises values that can be zero to a negative power")
        if not exponent.is_integer() and self.at_least(0.0).low < 0.0:
            raise SchemaError("it raises values that can be negative to a fractional power")
        base = self if exponent.is_integer() else self.at_least(0.0)
        ends = base.images(lambda values: power(values, exponent))
        if exponent > 0.0 and exponent % 2.0 == 0.0 and self.low < 0.0 < self.high:
            return Interval(0.0, ends.high)
        return ends

    def monotone(self, function: Callable[[Floats], Floats], *, least: float, open_end: bool) -> Interval:
        """Return the image under an increasing function whose domain starts at `least`.

        Raises SchemaError if the interval leaves the domain or the image is unbounded.
        """
        if self.low <= least if open_end else self.at_least(least).low < least:
            raise SchemaError(f"it needs values {'above' if open_end else 'of at least'} {least:g}")
        return self.at_least(least).images(function)

    def at_least(self, least: float) -> Interval:
        """Return the interval cut at `least`, where rounding alone has carried its lower end below."""
        crossed = least - EDGE * self.reach <= self.low < least <= self.high
        return Interval(least, self.high) if crossed else self

    def images(self, function: Callable[[Floats], Floats]) -> Interval:
        """Return the hull of a function's values at both ends, rounded outward.

        The function is the one that rows go through. A whole number at a whole end (exp at 0, log at 1,
        powers) is exact and stays.
        """
        ends = np.array([self.low, self.high])
        with np.errstate(all="ignore"):
            values = function(ends)
            exact = (values == np.rint(values)) & (np.abs(values) <= WHOLE) & (ends == np.rint(ends))
            room = np.where(exact, 0.0, ROOM * np.abs(values))
            low, high = (values - room).min(), (values + room).max()
        return Interval(float(low), float(high))

    def inside(self, values: Floats) -> Floats:
        """Return values put into the interval; what is not a number becomes its upper end."""
        return np.fmax(np.fmin(values, self.high), self.low)

    def absolute(self) -> Interval:
        """Return the image under abs(x)."""
        ends = (abs(self.low), abs(self.high))
        return Interval(0.0 if self.low <= 0.0 <= self.high else min(ends), max(ends))


def power(values: Floats, exponent: float) -> Floats:
    """Return values ** exponent, for intervals and for rows alike."""
    return np.asarray(values**exponent)


def _hull(values: object) -> Interval:
    ends = sorted(values)  # type: ignore[call-overload]
    return Interval(float(ends[0]), float(ends[-1]))
