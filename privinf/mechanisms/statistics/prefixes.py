r"""Counts up to public edges, by the square root of prefix sums: one distribution function, or one per group.

h holds the counts of K cells, cell 0 up to the first edge and the last one beyond
the last edge. Counts up to every edge are sums of prefixes, A h with A the lower triangle of ones. Noise on
A h itself would have sd sqrt(K - 1)/mu, and noise on h would add up to sqrt(K). With L the square root of A,
the lower triangle

    L[t, s] = f_(t - s),   f_0 = 1,   f_k = f_(k-1) (2k - 1)/(2k),   L L = A,

noise z goes to L h, and L times that, A h + L z, is post-processing. Its sd is smaller than log K/mu.

Sensitivity of L h. A record leaves one cell and enters another, d cells away. L h moves by the difference of
two columns of L: entries f_t - f_(t-d) from the first of both cells on, f being 0 at negative places. Its
squared norm is a sum of squares over what follows that cell: largest where all K entries do, so

    max_d  sum_(t < K) (f_t - f_(t-d))^2,   d = 1, ..., K - 1,

which is computed for every d; its root is 1.912 at K = 64, 2.131 at 256, 2.329 at 1024. Distributions of
several groups, each with an L h of its own, are moved most by a record that changes its group too: f >= 0, so
two columns of L have no negative product, and sqrt(2 sum f^2) bounds both (2.56 at 1024).

Exactness. f is rounded to multiples of 2^-22, the sensitivity is that of the rounded f, and what undoes it is
A L^-1 of the rounded L. Entries of L h are integers times 2^-22. They are added up of two words of the
counts, 20 digits each: no term is negative and none of the sums passes 2^20 sum f < 2^30, which doubles hold
with 22 digits more. So they are exact for 2^40 rows, and L h is rounded once, to the grid of its noise.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import scipy  # whose parts are loaded when they are used

from privinf.mechanisms.sums import ExactSum
from privinf.typing import Floats, Integers

ROOT_DIGITS = 22  # binary digits after the point to which f is rounded
WORD_DIGITS = 20  # binary digits of counts in the lower of two words


@lru_cache(maxsize=16)
def root(cells: int) -> Floats:
    """Return f_0, ..., f_(K-1), multiples of 2^-22."""
    k = np.arange(1.0, cells)
    f = np.cumprod(np.concatenate([[1.0], (2.0 * k - 1.0) / (2.0 * k)]))
    f = np.rint(np.ldexp(f, ROOT_DIGITS)) * 2.0**-ROOT_DIGITS
    f.setflags(write=False)
    return f


@lru_cache(maxsize=16)
def prefix_sensitivity(cells: int, groups: int = 1) -> float:
    """Return the replace-one l2 sensitivity of L h, or of L h of several groups together (see module)."""
    f = root(cells)
    if groups > 1:
        return math.sqrt(2.0 * float(f @ f))
    # sum (f_t - f_(t-d))^2 over t < K: all of f, f without its last d entries, less twice their product
    lagged = np.correlate(f, f, "full")[cells - 1 :]
    squares = np.cumsum(f * f)
    return math.sqrt(float((squares[-1] + squares[cells - 2 :: -1] - 2.0 * lagged[1:]).max()))


@lru_cache(maxsize=16)
def undoing(cells: int) -> Floats:
    """Return g, the first column of A L^-1: A h + noise is the lower triangle of g times L h + noise."""
    g = scipy.signal.lfilter([1.0], root(cells), np.ones(cells))
    g.setflags(write=False)
    return g


class PrefixSums:
    """L h of counts (..., cells), exact for up to 2^40 rows.

    Notes
    -----
    **Privacy.** Holds sums without noise: never leaves the mechanisms, cannot be pickled.
    """

    __slots__ = ("_total",)

    def __init__(self, cells: Integers) -> None:
        f = root(cells.shape[-1])
        self._total = ExactSum(cells.shape)
        for power, word in ((WORD_DIGITS, cells >> WORD_DIGITS), (0, cells & ((1 << WORD_DIGITS) - 1))):
            sums = np.ldexp(scipy.signal.lfilter(f, [1.0], word.astype(np.float64)), ROOT_DIGITS)
            self._total.add_integers(sums.astype(np.int64).astype(object) * (1 << power))

    def floats(self) -> Floats:
        """Return the doubles nearest to the sums."""
        return self._total.floats(np.full(self._total.shape, 2.0**-ROOT_DIGITS))

    def steps(self, grid: float) -> Integers:
        """Return the sums in steps of a grid, rounded once."""
        return self._total.steps(np.full(self._total.shape, 2.0**-ROOT_DIGITS), grid)

    def __repr__(self) -> str:
        return "<PrefixSums, not shown>"

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("sums without noise cannot be pickled: pickle the release instead")
