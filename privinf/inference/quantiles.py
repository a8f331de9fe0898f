"""Quantiles and ranges from noisy distribution functions: where the rows are, and where few of them end.

A distribution function counts rows at or below public edges, with noise that neighbouring counts share. Its
isotonic regression is what rows can have. A count is *seen* where it passes some sds of its noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.optimize import brentq, isotonic_regression

from privinf.typing import Floats

# Signed powers of 2 from 2^-20 to 2^43, within which a range is sought; where rows are seen at 0 alone, in
# quarters of an octave.
POWERS = (-20, 43)
QUARTERS = 4
# Rows beyond an edge are there for certain, and seen in a tail.
CERTAIN, IN_TAIL = 4.0, 2.0
# A tail's slope is taken between counts so many times apart.
TAIL_RATIO = 4.0
# Cells of a range, of each side beyond it, how far these reach, in ranges, and cells of a narrow octave.
INNER, OUTER, FAR, NARROW = 128, 64, 15.0, 256


class Distribution(Protocol):
    """Rows at or below each of increasing edges, the sds of their noise, and the number of all rows."""

    @property
    def edges(self) -> Floats:
        """Where rows are counted."""

    @property
    def counts(self) -> Floats:
        """Rows at or below each edge."""

    @property
    def sds(self) -> Floats:
        """Of the noise in each count."""

    @property
    def n(self) -> int:
        """All rows."""


def monotone(found: Distribution) -> Floats:
    """Return counts that rows can have: the isotonic regression, within [0, n]."""
    return np.asarray(np.clip(isotonic_regression(found.counts).x, 0.0, found.n), dtype=np.float64)


def signed_powers(parts: int = 1) -> Floats:
    """Return +-2^k for k in `POWERS`, in steps of so many parts of an octave."""
    first, last = POWERS
    powers = 2.0 ** (first + np.arange((last - first) * parts + 1) / parts)
    return np.concatenate([-powers[::-1], powers])


def seen_range(found: Distribution) -> tuple[int, int]:
    """Return the edges, by position, between which all rows are but those of two tails that are not seen."""
    counts, least = monotone(found), np.maximum(CERTAIN * found.sds, 0.5)
    below = np.flatnonzero(counts >= least)
    above = np.flatnonzero(found.n - counts >= least)
    last = len(counts) - 1
    low = max(int(below[0]) - 1, 0) if len(below) else last - 1
    high = min(int(above[-1]) + 1, last) if len(above) else 1
    return low, max(high, low + 1)


@dataclass(frozen=True, slots=True)
class Search:
    """How a range is narrowed, from a first look at signed powers of 2 to the edges of the last one.

    Attributes
    ----------
    low, high : float
        Where rows were seen.
    degenerate : bool
        At 0 alone, as far as could be seen.
    narrow : bool
        Within two neighbouring octaves away from 0, as years are, or temperatures: a second look is needed.
    """

    low: float
    high: float

    @classmethod
    def of(cls, found: Distribution) -> Search:
        """Return what a first look shows."""
        first, last = seen_range(found)
        return cls(float(found.edges[first]), float(found.edges[last]))

    @property
    def degenerate(self) -> bool:
        """Whether nothing was seen away from 0."""
        return self.high - self.low <= 2.0 ** (POWERS[0] + 1)

    @property
    def narrow(self) -> bool:
        """Whether everything lies in one octave or two, of one sign."""
        ends = sorted((abs(self.low), abs(self.high)))
        return self.low * self.high > 0.0 and ends[1] <= 4.0 * ends[0]

    def second_edges(self) -> Floats:
        """Return the edges of a look into a narrow range."""
        return np.linspace(self.low, self.high, NARROW + 1)

    def narrowed(self, found: Distribution) -> Search:
        """Return the range within a narrow one, a cell added on each side."""
        first, last = seen_range(found)
        edges = found.edges
        return Search(float(edges[max(first - 1, 0)]), float(edges[min(last + 1, len(edges) - 1)]))

    def last_edges(self) -> Floats:
        """Return equal cells over the range and one more on each side, then growing ones on both sides."""
        if self.degenerate:
            return signed_powers(QUARTERS)
        span = self.high - self.low
        core = np.linspace(self.low - span, self.high + span, 3 * INNER + 1)
        growth = brentq(lambda r: (r**OUTER - 1.0) * r / (r - 1.0) - FAR * INNER, 1.001, 2.0)
        beyond = span / INNER * np.cumsum(growth ** np.arange(1.0, OUTER + 1.0))
        return np.concatenate([(core[0] - beyond)[::-1], core, core[-1] + beyond])


@dataclass(frozen=True, slots=True)
class Range:
    """Bounds of a column that few rows pass.

    Attributes
    ----------
    low, high : float
    most : float
        Share of the rows that may lie outside: what was counted there, and two sds of its noise on each side.
    hidden : bool
        Nothing was seen on either side of one cell.
    """

    low: float
    high: float
    most: float
    hidden: bool


def range_at(found: Distribution, clip: float) -> Range:
    """Return the bounds that a share `clip` of the rows passes, half of it on each side.

    Where that is too few to be seen, the tail goes on from where it was seen as an exponential law does,
    at the slope between `IN_TAIL` sds of the noise and `TAIL_RATIO` times as many.
    """
    counts, aim = monotone(found), 0.5 * clip * found.n
    high = _tail_end(found.edges, found.n - counts, found.sds, aim, found.n)
    low = -_tail_end(-found.edges[::-1], counts[::-1], found.sds[::-1], aim, found.n)
    if not low < high:
        low, high = _apart(found.edges, low)
    at_low = min(int(np.searchsorted(found.edges, low, side="left")), len(counts) - 1)
    at_high = max(int(np.searchsorted(found.edges, high, side="right")) - 1, 0)
    outside = counts[at_low] + found.n - counts[at_high]
    slack = 2.0 * (found.sds[at_low] + found.sds[at_high])
    seen = (counts >= IN_TAIL * found.sds) & (found.n - counts >= IN_TAIL * found.sds)
    return Range(low, high, min(float(outside + slack) / found.n, 1.0), not seen.any())


def _apart(edges: Floats, at: float) -> tuple[float, float]:
    """Return the two edges about a point."""
    place = min(max(int(np.searchsorted(edges, at)), 1), len(edges) - 1)
    return float(edges[place - 1]), float(edges[place])


def _tail_end(edges: Floats, beyond: Floats, sds: Floats, aim: float, n: int) -> float:
    """Return where `aim` rows lie beyond; edges run outward, and counts beyond them fall."""
    if aim >= IN_TAIL * sds.max():
        passed = np.flatnonzero(beyond <= aim)
        return float(edges[passed[0]] if len(passed) else edges[-1])
    seen = np.flatnonzero(beyond >= IN_TAIL * sds)
    if not len(seen):
        return float(edges[0])
    outer = int(seen[-1])
    level = IN_TAIL * float(sds[outer])
    top = min(TAIL_RATIO * level, 0.5 * n)
    inner = np.flatnonzero(beyond >= np.minimum(TAIL_RATIO * IN_TAIL * sds, 0.5 * n))
    start = float(edges[min(outer + 1, len(edges) - 1)])
    length = float(edges[outer] - edges[min(int(inner[-1]), outer) if len(inner) else 0])
    if top > 1.2 * level:
        length /= math.log(top / level)
    return min(start + length * math.log(max(level / aim, 1.0)), float(edges[-1]))


def find_range(look: Callable[[Floats, float], Distribution], clip: float) -> Range:
    """Return the range of a column by two looks at its distribution, or three.

    Parameters
    ----------
    look : callable (edges, share) -> Distribution
        Releases the distribution at public edges for a share of what may be spent.
    clip : float
        Share of the rows that the range may leave out.

    Notes
    -----
    Shares of mu^2: .3 for signed powers of 2; then .7, or, where all rows lie within two octaves, .2 for a
    second look and .5. They add up to 1 on either way, which the first look decides.
    """
    search, rest = Search.of(look(signed_powers(), 0.3)), 0.7
    if search.narrow:
        search, rest = search.narrowed(look(search.second_edges(), 0.2)), 0.5
    return range_at(look(search.last_edges(), rest), clip)
