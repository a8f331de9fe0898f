"""Random words from the operating system, and comparisons of a uniform number that are never rounded."""

from __future__ import annotations

import decimal
import os
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]

WORD = 64


def random_words(count: int) -> Words:
    """Return `count` uniform 64-bit words, fresh from ``os.urandom``: nothing is kept between calls."""
    return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)


def random_word() -> int:
    """Return one uniform 64-bit word."""
    return int.from_bytes(os.urandom(8), "little")


def uniform_below(head: int, bits: int, scale: Fraction, exponent: Fraction) -> bool:
    """Decide U < scale exp(-exponent) exactly, for a uniform U on [0, 1) whose first bits are known.

    Parameters
    ----------
    head, bits : int
        The first `bits` bits of U are those of `head`; the others are drawn as far as they matter.
    scale, exponent : Fraction
        Both nonnegative.

    Notes
    -----
    U lies in an interval of length 2^-bits. The right side is enclosed by decimals of growing precision;
    as long as the two intervals meet, 64 more bits are drawn. The answer is that of exact arithmetic.
    """
    while True:
        with decimal.localcontext(precise(bits // 3 + 24)) as context:
            value = Fraction((-quotient(exponent)).exp()) * scale
            # The rounded quotient moves the exponent by a relative 10^-prec at most.
            slack = value * (int(exponent) + 4) / 10 ** (context.prec - 1)
        if (head + 1) <= (value - slack) * 2**bits:
            return True
        if head >= (value + slack) * 2**bits:
            return False
        head, bits = head << WORD | random_word(), bits + WORD


def precise(digits: int) -> decimal.Context:
    """Return a decimal context of so many digits in which nothing over- or underflows."""
    return decimal.Context(prec=digits, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX)


def quotient(number: Fraction) -> Any:
    """Return a fraction as a decimal, rounded in the current context."""
    return decimal.Decimal(number.numerator) / decimal.Decimal(number.denominator)
