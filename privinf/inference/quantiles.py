"""Quantiles and ranges from noisy distribution functions: where the rows are, and where few of them end.

A distribution function counts rows at or below public edges, with noise that neighboring counts share. Its
isotonic regression is a possible distribution. A count is *detected* if it exceeds some sds of its noise.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from scipy.optimize import brentq, isotonic_regression

from privinf.typing import Floats

POWERS = (-20, 43)  # signed powers of 2, from 2^-20 to 2^43, within which a range is sought
QUARTERS = 4  # edges in an octave where rows are detected at 0 alone
CERTAIN = 4.0  # sds of the noise from which on rows are certain to lie beyond an edge
IN_TAIL = 2.0  # sds of the noise from which on rows count as detected in a tail
TAIL_RATIO = 4.0  # ratio of the two counts between which a tail's slope is taken
INNER = 128  # cells of a range
OUTER = 64  # cells of each side beyond it
FAR = 15.0  # extent of these, in ranges
NARROW = 256  # cells of a narrow octave
WINDOW = 64  # edges of the second distribution function, around a quantile
SHRINK = 0.75  # factor by which each of a half of them is nearer to the quantile than the one before
SLOPES = (1.3, 12.0)  # least and largest slope of a tail beyond what is detected of it
MOST_CUT = 0.05  # largest share of the rows that a clip may cut

CLIP_NOTE = (
    "Values are clipped to [{:.6g}, {:.6g}], which may shift the mean {}; the interval includes this shift."
)
NO_CLIP_SHIFT = (
    "Values are clipped to the public bounds [{:.6g}, {:.6g}]; the interval is for the mean of the clipped "
    "values."
)
FAR_VALUES = (
    "The interval does not allow for extreme values that the noise hides; if all values outside the clipping "
    "limits were at the public bounds, the mean would shift {}."
)
NO_FAR_VALUES = (
    "The interval includes no shift from clipping, because both limits of clipping are public bounds."
)
CLIP_COUNTS = "Of {} values, {}, according to the noisy counts from which the limits of clipping were chosen."
PUBLIC_LIMITS = (
    "Both limits of clipping are public bounds, because the noisy counts gave no reason for narrower limits."
)


class Distribution(Protocol):
    """Rows at or below each of increasing edges, the sds of their noise, and the number of all rows.

    Where rows with missing values were dropped, that number is an estimate; `sds_about` allows for its noise.
    """

    @property
    def edges(self) -> Floats: ...  # noqa: D102
    @property
    def counts(self) -> Floats: ...  # noqa: D102
    @property
    def sds(self) -> Floats: ...  # noqa: D102
    @property
    def n(self) -> int: ...  # noqa: D102
    def sds_about(self, q: float) -> Floats: ...  # noqa: D102


def monotone(distribution: Distribution) -> Floats:
    """Return counts that rows can have: the isotonic regression, within [0, n]."""
    return np.asarray(
        np.clip(isotonic_regression(distribution.counts).x, 0.0, distribution.n), dtype=np.float64
    )


HAIR = 1e-6  # how far an edge at 1 may be from it
# Range in which the rows of a column of 0 and 1 are detected.
ZEROS_AND_ONES = (-(2.0 ** POWERS[0]), 1.0)
# Sds of the noise by which counts may rise between 0 and 1 where no row lies between.
FLAT = 6.0
NONE_OUTSIDE = 3.0  # sds of the noise up to which counts of rows below 0 or above 1 may be noise alone


def signed_powers(parts: int = 1) -> Floats:
    """Return +-2^k for k in `POWERS`, in steps of this fraction of an octave."""
    first, last = POWERS
    powers = 2.0 ** (first + np.arange((last - first) * parts + 1) / parts)
    return np.concatenate([-powers[::-1], powers])


def detected_range(distribution: Distribution) -> tuple[int, int]:
    """Return the positions of the edges between which all rows lie, except for two undetected tails."""
    counts = monotone(distribution)
    threshold = np.maximum(CERTAIN * distribution.sds, 0.5)
    below = np.flatnonzero(counts >= threshold)
    upper_threshold = np.maximum(CERTAIN * distribution.sds_about(1.0), 0.5)
    above = np.flatnonzero(distribution.n - counts >= upper_threshold)
    last = len(counts) - 1
    low = max(int(below[0]) - 1, 0) if len(below) else last - 1
    high = min(int(above[-1]) + 1, last) if len(above) else 1
    return low, max(high, low + 1)


@dataclass(frozen=True, slots=True)
class Search:
    """Range in which rows were detected, and the edges of the next release."""

    low: float
    high: float

    @classmethod
    def from_distribution(cls, distribution: Distribution) -> Search:
        """Return what a first release shows."""
        first, last = detected_range(distribution)
        return cls(float(distribution.edges[first]), float(distribution.edges[last]))

    @property
    def degenerate(self) -> bool:
        """Whether nothing was detected away from 0."""
        return self.high - self.low <= 2.0 ** (POWERS[0] + 1)

    @property
    def narrow(self) -> bool:
        """Whether all rows are in one or two octaves of one sign, which needs a second release."""
        ends = sorted((abs(self.low), abs(self.high)))
        return self.low * self.high > 0.0 and ends[1] <= 4.0 * ends[0]

    def narrowed(self, distribution: Distribution) -> Search:
        """Return the range within a narrow one, a cell added on each side."""
        first, last = detected_range(distribution)
        edges = distribution.edges
        return Search(float(edges[max(first - 1, 0)]), float(edges[min(last + 1, len(edges) - 1)]))

    def last_edges(self) -> Floats:
        """Return equal cells over the range and one more on each side, then growing ones on both sides."""
        if self.degenerate:
            return signed_powers(QUARTERS)
        span = self.high - self.low
        core = np.linspace(self.low - span, self.high + span, 3 * INNER + 1)
        growth = brentq(lambda r: (r**OUTER - 1.0) * r / (r - 1.0) - FAR * INNER, 1.001, 2.0)
        distances = span / INNER * np.cumsum(growth ** np.arange(1.0, OUTER + 1.0))
        return np.concatenate([(core[0] - distances)[::-1], core, core[-1] + distances])


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Bounds of a column that few rows pass: `most` of them, counted outside and two sds of noise a side.

    `hidden`: nothing was detected on either side of one cell. `moves`: by what share of itself they may
    change a slope on the column, cov(x, e)/var(x) of the clipped x and of what is cut, e; with two sds of the
    noise, and the undetected part as an exponential tail. `beyond`: share of the rows outside, but for four
    sds.
    """

    low: float
    high: float
    most: float
    hidden: bool
    moves: float
    beyond: float


def range_at(distribution: Distribution, clip: float) -> Range:
    """Return the bounds that a share `clip` of the rows passes, half of it on each side.

    Where that is too few to be detected, the tail is extrapolated as that of an exponential
    distribution, at the slope between `IN_TAIL` sds of the noise and `TAIL_RATIO` times as many.
    """
    counts = monotone(distribution)
    aim = 0.5 * clip * distribution.n
    upper = distribution.edges, distribution.n - counts, distribution.sds_about(1.0)
    lower = -distribution.edges[::-1], counts[::-1], distribution.sds[::-1]
    high = _tail_end(*upper, aim, distribution.n)
    low = -_tail_end(*lower, aim, distribution.n)
    if not low < high:
        place = min(max(int(np.searchsorted(distribution.edges, low)), 1), len(distribution.edges) - 1)
        low, high = (float(edge) for edge in distribution.edges[place - 1 : place + 1])
    return range_between(distribution, low, high)


def range_between(distribution: Distribution, low: float, high: float) -> Range:
    """Return what a distribution shows of the rows outside of bounds."""
    counts = monotone(distribution)
    upper = distribution.edges, distribution.n - counts, distribution.sds_about(1.0)
    lower = -distribution.edges[::-1], counts[::-1], distribution.sds[::-1]
    at_low = min(int(np.searchsorted(distribution.edges, low, side="left")), len(counts) - 1)
    at_high = max(int(np.searchsorted(distribution.edges, high, side="right")) - 1, 0)
    outside = counts[at_low] + distribution.n - counts[at_high]
    upper_sds = distribution.sds_about(1.0)
    slack = 2.0 * (distribution.sds[at_low] + upper_sds[at_high])
    visible = (counts >= IN_TAIL * distribution.sds) & (distribution.n - counts >= IN_TAIL * upper_sds)
    mean, variance = _clipped_moments(distribution.edges, counts, distribution.n, low, high)
    cut = _cut(*upper, distribution.n, high) * (high - mean) + _cut(*lower, distribution.n, -low) * (
        mean - low
    )
    moves = cut / (distribution.n * variance) if variance > 0.0 else math.inf
    largest_share = min(float(outside + slack) / distribution.n, 1.0)
    return Range(
        low=low,
        high=high,
        most=largest_share,
        hidden=not visible.any(),
        moves=float(moves),
        beyond=float(outside - 2.0 * slack) / distribution.n,
    )


def _clipped_moments(edges: Floats, counts: Floats, n: int, low: float, high: float) -> tuple[float, float]:
    """Return mean and variance of the values clipped to bounds, as the middles of their cells."""
    at = np.clip(np.concatenate([edges[:1], 0.5 * (edges[1:] + edges[:-1]), edges[-1:]]), low, high)
    shares = np.diff(np.concatenate([[0.0], counts, [float(n)]])) / n
    mean = float(shares @ at)
    return mean, float(shares @ (at - mean) ** 2)


def _tail(edges: Floats, tail_counts: Floats, sds: Floats, n: int) -> tuple[int, float, float]:
    """Return the position of the last edge with a detected tail, its level there, and the tail's length."""
    visible = np.flatnonzero(tail_counts >= IN_TAIL * sds)
    if not len(visible):
        return -1, 0.0, 0.0
    outer = int(visible[-1])
    level = IN_TAIL * float(sds[outer])
    top = min(TAIL_RATIO * level, 0.5 * n)
    inner = np.flatnonzero(tail_counts >= np.minimum(TAIL_RATIO * IN_TAIL * sds, 0.5 * n))
    length = float(edges[outer] - edges[min(int(inner[-1]), outer) if len(inner) else 0])
    return outer, level, length / math.log(top / level) if top > 1.2 * level else length


def _tail_end(edges: Floats, tail_counts: Floats, sds: Floats, aim: float, n: int) -> float:
    """Return where `aim` rows lie beyond; edges run outward, and counts beyond them fall."""
    if aim >= IN_TAIL * sds.max():
        within = np.flatnonzero(tail_counts <= aim)
        return float(edges[within[0]] if len(within) else edges[-1])
    outer, level, length = _tail(edges, tail_counts, sds, n)
    if outer < 0:
        return float(edges[0])
    start = float(edges[min(outer + 1, len(edges) - 1)])
    return min(start + length * math.log(max(level / aim, 1.0)), float(edges[-1]))


def _cut(edges: Floats, tail_counts: Floats, sds: Floats, n: int, bound: float) -> float:
    """Return how far at most rows lie beyond a bound, added up: the integral of the counts beyond it."""
    outer, _, length = _tail(edges, tail_counts, sds, n)
    outer = max(outer, 0)
    length = max(length, float(edges[min(outer + 1, len(edges) - 1)] - edges[outer]))
    upper_counts = np.minimum.accumulate(tail_counts + 2.0 * sds)
    widths = np.diff(np.maximum(edges[: outer + 1], bound))
    rest = (
        upper_counts[outer]
        * length
        * math.exp(-min(max(bound - edges[outer], 0.0) / max(length, 1e-300), 700.0))
    )
    return float(widths @ upper_counts[:outer] + rest)


def range_search(clip: float) -> Generator[tuple[Floats, float], Distribution, Range]:
    """Find the range of a column that leaves out a share `clip`, by two releases of it, or three.

    Yields public edges and a share of mu^2 for which the distribution is released there: .3 for signed powers
    of 2; then .7, or, where all rows lie within two octaves, .2 for a second release and .5. Either way they
    add up to 1.
    """
    search = Search.from_distribution((yield signed_powers(), 0.3))
    rest = 0.7
    if search.narrow:
        search = search.narrowed((yield np.linspace(search.low, search.high, NARROW + 1), 0.2))
        rest = 0.5
    distribution = yield search.last_edges(), rest
    if (search.low, search.high) == ZEROS_AND_ONES and (found := zeros_and_ones(distribution)) is not None:
        return found
    return ends_at_zero(search, distribution, range_at(distribution, clip))


def ends_at_zero(search: Search, distribution: Distribution, bounds: Range) -> Range:
    """Return bounds that end at 0 where a bound is less than one cell beyond 0 and no row was detected there.

    A first release has edges at +-2^k only, so the range of a column of costs begins at -2^-20 and not at 0.
    The counts cannot distinguish such a bound from 0. A column whose values are all smaller than 2^-20 keeps
    its bounds. Post-processing: only the released counts decide.
    """
    smallest = 2.0 ** POWERS[0]
    cell = (search.high - search.low) / INNER
    edges = distribution.edges
    low, high = bounds.low, bounds.high
    counted_low, counted_high = low, high
    if search.low == -smallest and -cell < low < 0.0:
        low = 0.0
        counted_low = float(edges[np.searchsorted(edges, 0.0) - 1])
    if search.high == smallest and 0.0 < high < cell:
        high = 0.0
        counted_high = float(edges[np.searchsorted(edges, 0.0, side="right")])
    if search.degenerate or (low, high) == (bounds.low, bounds.high) or not low < high:
        return bounds
    # Rows beyond 0 are counted at the edge next to it: a count at 0 itself would include the rows at 0.
    return replace(range_between(distribution, counted_low, counted_high), low=low, high=high)


def zeros_and_ones(distribution: Distribution) -> Range | None:
    """Return the bounds 0 and 1 where no row is detected below 0, between 0 and 1, or above 1; else None.

    They are the bounds of a binomial response. They contain all numbers between 0 and 1, of which the noise
    may hide a few.
    """
    edges = distribution.edges
    counts = distribution.counts
    below, above = (int(np.searchsorted(edges, end)) for end in (0.0, 1.0 - HAIR))
    below -= 1
    outside = np.array([counts[below], distribution.n - counts[above]])
    rise = np.ptp(isotonic_regression(counts[below + 1 : above]).x)
    sds = np.array([distribution.sds[below], distribution.sds_about(1.0)[above]])
    largest = np.maximum(NONE_OUTSIDE * sds, 0.5)
    if (outside > largest).any() or rise > max(FLAT * distribution.sds.max(), 0.5):
        return None
    around = range_between(distribution, float(edges[below]), float(edges[above]))
    return replace(around, low=0.0, high=1.0)


# ---- quantiles


def inverse(distribution: Distribution, at: Floats, low: float, high: float) -> Floats:
    """Return the points within [low, high] with this many rows below, by linear interpolation."""
    edges = np.concatenate([[low], distribution.edges, [high]])
    counts = np.concatenate([[0.0], monotone(distribution), [float(distribution.n)]])
    right = np.clip(np.searchsorted(counts, at, side="left"), 1, len(counts) - 1)
    rise = np.maximum(counts[right] - counts[right - 1], 1e-300)
    share = np.clip((at - counts[right - 1]) / rise, 0.0, 1.0)
    return np.asarray(edges[right - 1] + share * (edges[right] - edges[right - 1]))


def quantile_estimate(distribution: Distribution, q: float, low: float, high: float) -> float:
    """Return a quantile within public bounds, by linear interpolation within cells.

    The first cell and the last one are exceptions, because many values can be equal to a bound. Where such a
    cell has more rows than its neighbor would have at the same width, the difference is taken as an atom at
    the bound, and the rest as spread evenly. So a column of which 88% are 0 has the quartiles 0, and a smooth
    density is interpolated as elsewhere.
    """
    edges = np.concatenate([[low], distribution.edges, [high]])
    counts = np.concatenate([[0.0], monotone(distribution), [float(distribution.n)]])
    aim = q * distribution.n
    widths = np.diff(edges)
    rows = np.diff(counts)
    if len(rows) > 1 and aim <= counts[1]:
        rest = min(rows[1] * widths[0] / widths[1], rows[0])
        return float(low + widths[0] * _share_of(aim - (rows[0] - rest), rest))
    if len(rows) > 1 and aim >= counts[-2]:
        rest = min(rows[-2] * widths[-1] / widths[-2], rows[-1])
        return float(high - widths[-1] * _share_of(distribution.n - aim - (rows[-1] - rest), rest))
    return float(inverse(distribution, np.array([aim]), low, high)[0])


def _share_of(part: float, whole: float) -> float:
    """Return a part of a whole as a share between 0 and 1; 0 of nothing."""
    return min(max(part / whole, 0.0), 1.0) if whole > 0.0 else 0.0


def window_edges(distribution: Distribution, q: float, z: float, low: float, high: float) -> Floats:
    """Return edges for a second release for a quantile: within z standard errors and 3 sds of noise of it.

    Half of them draw near to the estimate by a constant factor, half divide the rows that were detected
    equally.
    """
    counts = monotone(distribution)
    aim = q * distribution.n
    slack = z * math.sqrt(distribution.n * q * (1.0 - q)) + 3.0 * distribution.sds_about(q)
    below = np.flatnonzero(counts <= aim - slack)
    above = np.flatnonzero(counts >= aim + slack)
    first = float(distribution.edges[below[-1]]) if len(below) else low
    last = float(distribution.edges[above[0]]) if len(above) else high
    middle = float(np.clip(inverse(distribution, np.array([aim]), low, high)[0], first, last))
    nearer = SHRINK ** np.arange(WINDOW // 4)
    start, stop = np.interp(
        [first, last], np.concatenate([[low], distribution.edges, [high]]), [0, *counts, distribution.n]
    )
    equal = inverse(distribution, np.linspace(start, stop, WINDOW // 2 + 2), low, high)
    edges = np.concatenate([middle - (middle - first) * nearer, middle + (last - middle) * nearer, equal])
    edges = np.unique(np.clip(edges, first, last))
    inside = edges[(edges > low) & (edges < high)]
    return inside if len(inside) else np.array([0.5 * (low + high)])


def quantile_interval(
    distribution: Distribution, q: float, z: float, low: float, high: float, *, sampling: bool = True
) -> tuple[float, float, float]:
    """Return a quantile within public bounds and the ends of its interval; without `sampling` of this table.

    The lower end is the edge before the first with F >= qn - z (nq(1-q) + s^2)^.5, the upper one the edge
    after the last with F <= qn + the same: edges between which the truth is not rejected, and all between.
    If F is rejected at all edges, too small up to one and too large from the next one on, then the interval
    is one cell. A cell contains its upper edge, so the interval contains an atom at either of its ends.
    Here s is the sd of the noise of F - qn; both have noise where n is the estimated number of complete rows.
    """
    edges = np.concatenate([[low], distribution.edges, [high]])
    aim = q * distribution.n
    spread = distribution.n * q * (1.0 - q) if sampling else 0.0
    half = z * np.sqrt(spread + distribution.sds_about(q) ** 2)
    at_least = np.flatnonzero(distribution.counts >= aim - half)
    within = np.flatnonzero(distribution.counts <= aim + half)
    first = int(at_least[0]) if len(at_least) else len(distribution.edges)
    last = int(within[-1]) + 2 if len(within) else 1
    middle = quantile_estimate(distribution, q, low, high)
    return middle, min(float(edges[first]), middle), max(float(edges[last]), middle)


def ordered_intervals(q: Sequence[float], intervals: Sequence[tuple[float, float, float]]) -> Floats:
    """Return estimates and ends of intervals of several quantiles, shape (k, 3), in the order of their q.

    Parameters
    ----------
    q : sequence of k float
    intervals : sequence of k (estimate, low, high)
        Each from noise of its own, so that they may be out of order.

    Notes
    -----
    Estimates are the isotonic regression. A lower end is the least of those of its own and all larger q, an
    upper end the largest of those of its own and all smaller q. Both are then in order, and every interval
    contains the original one, so that none covers less, alone or jointly. The isotonic estimate
    lies between the least estimate of its own and larger q and the largest of its own and smaller q, hence
    inside. Intervals that were in order stay as they were.

    **Privacy.** Post-processing.
    """
    order = np.argsort(np.asarray(q, dtype=np.float64), kind="stable")
    middle, low, high = np.asarray(intervals, dtype=np.float64)[order].T
    ordered = np.empty((len(order), 3))
    ordered[order, 0] = isotonic_regression(middle).x
    ordered[order, 1] = np.minimum.accumulate(low[::-1])[::-1]
    ordered[order, 2] = np.maximum.accumulate(high)
    ordered[:, 0] = np.clip(ordered[:, 0], ordered[:, 1], ordered[:, 2])  # means of equal numbers, rounded
    return ordered


# ---- where to clip a mean


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanClip:
    """Where the values of a mean are clipped.

    `below`, `above` are how much either end may cut off the sum, if the tail that is detected goes on as a
    power law, 0 at a public bound; `most` how many rows may lie beyond: those counted, and two sds of the
    noise; `rest` how far each public bound is.
    """

    low: float
    high: float
    below: float
    above: float
    most: tuple[float, float]
    rest: tuple[float, float] = (0.0, 0.0)

    def share(self, n: float) -> tuple[float, float]:
        """Return how far the clip may have moved the mean of n values down, and up."""
        return self.above / n, self.below / n

    def shift(self, n: float) -> str:
        """Return the shifts of `share` that are not zero, for a sentence; empty if both are."""
        return _directions(self.share(n), " and ")

    def note(self, n: int) -> str:
        """Return a sentence about its effect."""
        shift = self.shift(n)
        return (CLIP_NOTE if shift else NO_CLIP_SHIFT).format(self.low, self.high, shift)

    def caution(self, n: int) -> str:
        """Return a sentence about values that the interval does not allow for."""
        shift = self.worst_shift(n)
        return FAR_VALUES.format(shift) if shift else NO_FAR_VALUES

    def worst_shift(self, n: float) -> str:
        """Return the shifts of `worst` that are not zero, for a sentence; empty if both are."""
        return _directions(self.worst(n), " or ")

    def changed(self) -> str:
        """Return how many values the clip may have changed, for a sentence."""
        sides = zip(self.most, ("below the lower limit", "above the upper limit"), strict=True)
        return " and ".join(f"{math.ceil(most)} values {side}" for most, side in sides if most > 0.0)

    def counts(self, n: int) -> str:
        """Return a sentence about how many of n values may be beyond the limits."""
        ends = zip(self.most, ("below the lower limit", "above the upper limit"), strict=True)
        parts = [f"at most {math.ceil(count)} may be {end}" for count, end in ends if count > 0.0]
        return CLIP_COUNTS.format(n, " and ".join(parts)) if parts else PUBLIC_LIMITS

    def worst(self, n: float) -> tuple[float, float]:
        """Return how far the clip moves the mean down, and up, if all that may lie beyond is at a bound."""
        return self.most[1] * self.rest[1] / n, self.most[0] * self.rest[0] / n

    def hides(self, n: float, half: float) -> bool:
        """Return whether undetected rows could move the mean by more than an interval's half-length."""
        return max(self.worst(n)) > half


def _directions(shifts: tuple[float, float], joint: str) -> str:
    """Return a shift down and one up for a sentence, without those that are zero."""
    named = zip(shifts, ("down", "up"), strict=True)
    return joint.join(f"{direction} by {shift:.3g}" for shift, direction in named if shift > 0.0)


def mean_clip(
    distribution: Distribution, low: float, high: float, z: float, mu: float, *, groups: int = 1
) -> MeanClip:
    """Return the clip within public bounds that makes a mean's interval shortest; noise has sd range/mu.

    Of several `groups` it is the interval of a group of average size. Any group may have all of the tail.

    Beyond the point t0 where its count passes `CERTAIN` sds of the noise a tail is taken to fall as a power
    law, at the slope from the point t1 where it passes four times as many; distances from the median. An end
    stays at its public bound where the noise hides half of the rows, where t0 and t1 are fewer than
    four cells apart (a sharp end has no slope), and where more than a twentieth of the rows would be cut.
    """
    counts = monotone(distribution)
    middle, lower, upper = inverse(distribution, distribution.n * np.array([0.5, 0.16, 0.84]), low, high)
    up, down = distribution.edges > middle, distribution.edges < middle
    lower_tail = (middle - distribution.edges[down])[::-1], counts[down][::-1], distribution.sds[down][::-1]
    upper_tail = distribution.edges[up] - middle, distribution.n - counts[up], distribution.sds_about(1.0)[up]
    ends = _side(*lower_tail, distribution.n, middle - low), _side(*upper_tail, distribution.n, high - middle)
    total = ends[0][0][:, None] + ends[1][0]
    spread = np.sqrt(distribution.n / groups * (0.5 * (upper - lower)) ** 2 + (total / mu) ** 2)
    at = np.unravel_index(np.argmin(z * spread + ends[0][1][:, None] + ends[1][1]), total.shape)
    (low_end, below, below_count), (high_end, above, above_count) = (
        tuple(float(part[place]) for part in side) for side, place in zip(ends, at, strict=True)
    )
    low_end, high_end = float(middle) - low_end, float(middle) + high_end
    return MeanClip(
        low=low_end,
        high=high_end,
        below=below,
        above=above,
        most=(below_count, above_count),
        rest=(low_end - low, high - high_end),
    )


def _side(t: Floats, tail_counts: Floats, sds: Floats, n: int, bound: float) -> tuple[Floats, Floats, Floats]:
    """Return possible clipping distances of one side, the sum that each may cut, and its number of rows."""
    none = np.array([bound]), np.zeros(1), np.zeros(1)
    if not len(t) or 0.5 * n < 4.0 * CERTAIN * sds.max() or not sds.max() > 0.0:
        return none
    outer, inner = (np.flatnonzero(tail_counts >= times * CERTAIN * sds) for times in (1.0, 4.0))
    if not len(inner) or outer[-1] - inner[-1] < 4:
        return none
    t0 = int(outer[-1])
    t1 = int(inner[-1])
    ratio = max(tail_counts[t1] / tail_counts[t0], 1.001)
    slope = float(np.clip(math.log(ratio) / math.log(t[t0] / t[t1]), *SLOPES))
    upper_counts = tail_counts + 2.0 * sds
    likely = np.where(
        t > t[t0], np.minimum(upper_counts, upper_counts[t0] * (t / t[t0]) ** -slope), upper_counts
    )
    cut = np.cumsum((likely * np.diff(np.append(t, bound)))[::-1])[::-1]
    allowed = likely <= MOST_CUT * n
    return np.append(t[allowed], bound), np.append(cut[allowed], 0.0), np.append(upper_counts[allowed], 0.0)
