r"""Discrete Laplace noise on the integers, P(x) proportional to exp(-|x|/ratio), exactly.

X is the difference of two geometric numbers floor(ratio E), E = -log(U) with U uniform on (0, 1]. The floor
is found in doubles from 64 bits of U, unless ratio E is near a whole number or U near 0; then it is found in
exact arithmetic with as many more bits of U as it takes. Given independent uniform bits the law has no error.
"""

from __future__ import annotations

import decimal
import math
from fractions import Fraction

import numpy as np

from privinf.noise.entropy import SYSTEM, WORD, Entropy, precise, quotient
from privinf.typing import Integers

# Above U = EDGE doubles place E within 2^-43, hence ratio E within 2^-22 at the largest ratio, 2^21.
EDGE = 2.0**-20
CLOSE = 2.0**-12


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
        drawn[i] = _exact_steps(int(words[i]), WORD, Fraction(ratio), entropy)
    return drawn


def _exact_steps(head: int, bits: int, ratio: Fraction, entropy: Entropy) -> int:
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
