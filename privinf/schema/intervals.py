"""Interval arithmetic: bounds of a derived column from the public bounds of the columns it is made of."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from privinf.errors import SchemaError


@dataclass(frozen=True, slots=True)
class Interval:
    """A closed, finite interval that contains every value of a column.

    Addition, subtraction, multiplication and division of endpoints are correctly rounded and therefore
    contain every correctly rounded result; logarithms, exponentials and powers may be off by an ulp,
    which the clip to the bounds of a derived column takes care of.

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

        Raises
        ------
        SchemaError
            For a fractional power of negative values or a negative power of values that can be zero.
        """
        if exponent < 0.0 and self.low <= 0.0 <= self.high:
            raise SchemaError("it raises values that can be zero to a negative power")
        if not exponent.is_integer() and self.low < 0.0:
            raise SchemaError("it raises values that can be negative to a fractional power")
        ends = [_finite(pow, self.low, exponent), _finite(pow, self.high, exponent)]
        if exponent > 0.0 and exponent % 2.0 == 0.0 and self.low < 0.0 < self.high:
            ends.append(0.0)
        return _hull(ends)

    def monotone(self, function: Callable[[float], float], *, least: float, open_end: bool) -> Interval:
        """Return the image under an increasing function whose domain starts at `least`.

        Raises
        ------
        SchemaError
            If the interval leaves the domain or the image is unbounded.
        """
        if self.low < least or (open_end and self.low == least):
            raise SchemaError(f"it needs values {'above' if open_end else 'of at least'} {least:g}")
        return Interval(_finite(function, self.low), _finite(function, self.high))

    def absolute(self) -> Interval:
        """Return the image under abs(x)."""
        ends = (abs(self.low), abs(self.high))
        return Interval(0.0 if self.low <= 0.0 <= self.high else min(ends), max(ends))


def _hull(values: object) -> Interval:
    ends = sorted(values)  # type: ignore[call-overload]
    return Interval(float(ends[0]), float(ends[-1]))


def _finite(function: Callable[..., float], *arguments: float) -> float:
    try:
        return float(function(*arguments))
    except (OverflowError, ZeroDivisionError):
        return math.inf
