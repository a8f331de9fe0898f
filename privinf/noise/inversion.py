r"""Gumbel and discrete Laplace noise by inversion of a uniform number, exactly.

**Gumbel**, standard, rounded to a grid: G = -log(E) with E = -log(1 - V), V uniform on [0, 1). The nearest
grid point of G is found in doubles from 64 bits of V, unless G is near the middle between two grid points or
V is near 0 or 1 (both together: one draw in two thousand).

**Laplace** on the integers, P(x) proportional to exp(-|x|/ratio): the difference of two geometric numbers
floor(ratio E), E = -log(U) with U uniform on (0, 1]. The floor is found in doubles from 64 bits of U, unless
ratio E is near a whole number or U near 0.

What doubles leave open is found in exact arithmetic with as many more bits as it takes. Given independent
uniform bits, the law of the integer returned is the ideal one, without error.
"""

from __future__ import annotations

import decimal
import math
from fractions import Fraction

import numpy as np

from privinf.noise.entropy import SYSTEM, WORD, Entropy, precise, quotient
from privinf.typing import Integers

# Between V = EDGE and 1 - EDGE doubles place G within 2^-36 (near 1, where 1 - V is known to 2^-53 and E is
# 14, within 2^-33/14): that is 2^-15 of a grid step at the largest `ratio`. Above U = EDGE they place E
# within 2^-43, hence ratio E within 2^-22 at the largest ratio.
EDGE = 2.0**-20
CLOSE = 2.0**-12
LARGEST_RATIO = 2.0**21


def gumbel_steps(ratio: float, count: int, entropy: Entropy = SYSTEM) -> Integers:
    """Return round(ratio G) for `count` independent standard Gumbel numbers G, ratio at most 2^21."""
    words = entropy.words(count)
    v = words * 2.0**-WORD
    middle = (v > EDGE) & (v < 1.0 - EDGE)
    steps = -np.log(-np.log1p(-np.where(middle, v, 0.5))) * ratio
    nearest = np.rint(steps)
    settled = middle & (np.abs(steps - nearest) < 0.5 - CLOSE)
    drawn = nearest.astype(np.int64)
    for i in np.flatnonzero(~settled):
        drawn[i] = _exact_gumbel_steps(int(words[i]), WORD, Fraction(ratio), entropy)
    return drawn


def _exact_gumbel_steps(head: int, bits: int, ratio: Fraction, entropy: Entropy) -> int:
    """Return floor(ratio G + 1/2) where the first `bits` bits of V are those of `head`."""
    while True:
        if 0 < head < 2**bits - 1:
            slack = Fraction(1, 10 ** (bits // 4)) * ratio
            high = _gumbel(Fraction(head, 2**bits), bits) * ratio + Fraction(1, 2) + slack
            low = _gumbel(Fraction(head + 1, 2**bits), bits) * ratio + Fraction(1, 2) - slack
            if math.floor(high) == math.floor(low):
                return math.floor(low)
        head, bits = head << WORD | entropy.word(), bits + WORD


def _gumbel(v: Fraction, bits: int) -> Fraction:
    """Return -log(-log(1 - v)) to within 10^(-bits/4), for v a multiple of 2^-bits inside (0, 1)."""
    # Near v = 0 the logarithm loses as many digits as v has leading zeros: twice the digits of 2^-bits.
    with decimal.localcontext(precise(bits + 24)):
        return Fraction(-(-(quotient(1 - v).ln())).ln())


def laplace_steps(ratio: float, count: int, entropy: Entropy = SYSTEM) -> Integers:
    """Return `count` independent discrete Laplace numbers, ratio at most 2^21."""
    return _geometric(ratio, count, entropy) - _geometric(ratio, count, entropy)


def _geometric(ratio: float, count: int, entropy: Entropy) -> Integers:
    """Return floor(ratio E): P(X >= m) = exp(-m/ratio)."""
    words = entropy.words(count)
    u = words * 2.0**-WORD
    usual = u > EDGE
    steps = -np.log(np.where(usual, u, 0.5)) * ratio
    settled = usual & (np.abs(steps - np.rint(steps)) > CLOSE)
    drawn = np.floor(steps).astype(np.int64)
    for i in np.flatnonzero(~settled):
        drawn[i] = _exact_geometric(int(words[i]), WORD, Fraction(ratio), entropy)
    return drawn


def _exact_geometric(head: int, bits: int, ratio: Fraction, entropy: Entropy) -> int:
    """Return floor(ratio E) where the first `bits` bits of U are those of `head`."""
    while True:
        if head > 0:
            slack = Fraction(1, 10 ** (bits // 4)) * ratio
            high = _exponential(Fraction(head, 2**bits), bits) * ratio + slack
            low = max(_exponential(Fraction(head + 1, 2**bits), bits) * ratio - slack, Fraction(0))
            if math.floor(high) == math.floor(low):
                return math.floor(low)
        head, bits = head << WORD | entropy.word(), bits + WORD


def _exponential(u: Fraction, bits: int) -> Fraction:
    """Return -log(u) to within 10^(-bits/4)."""
    with decimal.localcontext(precise(bits + 24)):
        return Fraction(-quotient(u).ln())
