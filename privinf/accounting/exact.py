"""Floats as exact rationals, and back, rounded in the safe direction."""

from __future__ import annotations

import math
from fractions import Fraction


def exact(value: float) -> Fraction:
    """Return the decimal that a float prints as, exactly.

    A user who writes 0.1 three times means 0.3; the binary values 3 x 0.1 and 0.3 differ in the last bit, and
    a closed limit would refuse the third spend. The printed decimal is within half a unit of the last place.
    """
    return Fraction(repr(float(value)))


def float_down(value: Fraction) -> float:
    """Return the largest float (near enough) whose decimal does not exceed `value`."""
    number = float(value)
    while exact(number) > value:
        number = math.nextafter(number, -math.inf)
    return number


def sqrt_down(value: Fraction) -> float:
    """Return the largest float (near enough) whose square does not exceed `value` >= 0, exactly."""
    number = math.sqrt(value)
    while exact(number) ** 2 > value:
        number = math.nextafter(number, 0.0)
    return number
