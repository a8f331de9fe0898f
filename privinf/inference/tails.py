"""Tails of the terms of a sum from noisy counts: how many pass a threshold, and where to clip the sum.

A private sum of terms t >= 0 clips them at some C: its noise grows with C, and the excess beyond C is lost.
Counts of terms above public thresholds (`privinf.mechanisms.statistics.summands`) estimate this excess, up
to their noise; beyond the last count that is detected the tail is taken to go on as a power law.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import isotonic_regression

from privinf.typing import Floats

# Sds of its noise from which on a count, made nonincreasing, is detected, for a sum that intervals rest on.
# Noise looks like a tail in one release of 25.
VISIBLE_SDS = 1.6
VISIBLE_SDS_BEFORE = 2.0  # the same of other sums
UNSEEN = 2.5  # sds of the first count's noise that bound the counts if no count is detected
SURE = 2.0  # a count of this many sds more is detected in all but a thirtieth of releases
OFF = 2.5  # counts more than this many times as far out as the last sure one are released again
TOWERING = 3.5  # sds of its noise from which on a count is sure
SEVERAL = 3  # thresholds that are requested again
MIN_FAR_SDS = 1.0  # sds of its noise that a far count must pass to be released again
MIN_CONFIRMED_SDS = 1.5  # sds of its noise that it must pass the second time to be detected
ONCE_MORE_COSTS = 0.43  # price of the second counts, as a part of that of the first
FLATTEST = 1.5  # least slope of the power law beyond the last count that is detected
STEEPEST = 8.0  # largest slope of that power law
FURTHER = 0.7  # rate of an exponential tail beyond the last threshold, relative to that below it
SLOWEST_DECAY = 2.0  # least rate of an exponential tail, times the last threshold
FLATTEST_SQUARES = 1.1  # least slope of the power law of squares: above 1 their mean is finite
APART = 8.0  # the second point of the power law has this many times the first one's count
LARGEST_SHARE = 0.7  # or this share of all rows, if that is less
TAIL_SHARE = 0.6  # what lies beyond the clip is taken as this times lambda times the signed layer below it
ALLOWED = 0.7  # this times lambda times the upper part may be wrong of that
EXCESS_WEIGHT = 0.5  # weight of the excess beyond the clip relative to the noise, where the clip is chosen
LOWER_THRESHOLD_RATIO = 1.0 / 3.0  # where the lower part ends, relative to the clip
LARGEST_RATIO = 3.0  # of the excess beyond the clip to that in the upper part, lambda
TRIED_CLIPS = 400  # clips that are tried
HEAVY = 0.7  # lambda from which on intervals rest on an assumption about the tail
HEAVY_TAIL = (
    "heavy tail: the part of the scores beyond the clipping threshold is estimated at {:.2f} times the part "
    "just below it, so intervals extrapolate the tail; use more rows, more budget or tighter bounds"
)
THRESHOLDS_OF_DOUBLING = 4  # about as many counts are between a clip and twice the clip
LEAST_EIGENVALUE = 0.05  # of a shrunk meat, relative to the mean of all


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Tail:
    """How many of n terms pass t, for every t up to the largest possible one.

    Attributes
    ----------
    thresholds : ndarray, shape (m,)
        Increasing; the last one that is used is where the power law begins.
    counts : ndarray, shape (m,)
        N at the thresholds, nonincreasing, at most n.
    alpha : float
        Slope of the power law beyond the last threshold.
    top : float
        Largest possible term.
    rows : int
    detected : bool
        Whether any count exceeded its noise.
    hidden : float
        Number of terms that the noise of the counts can hide: fewer than this go unseen in one release in
        thirty, at the last threshold that is used.
    rate : float
        Above 0 the tail beyond the last threshold is exponential with this rate, not a power law.
    """

    thresholds: Floats
    counts: Floats
    alpha: float
    top: float
    rows: int
    detected: bool = True
    hidden: float = 0.0
    rate: float = 0.0

    def excess(self, clips: Floats) -> Floats:
        """Return X(c), the integral of N from c to the top: the sum over rows of (t - c)+."""
        c = np.minimum(np.asarray(clips, dtype=np.float64), self.top)
        first, last = self.thresholds[0], self.thresholds[-1]
        widths = np.diff(self.thresholds)
        pieces = 0.5 * widths * (self.counts[1:] + self.counts[:-1])
        inside = np.concatenate([np.cumsum(pieces[::-1])[::-1], [0.0]])
        power_part = self._power_tail(np.maximum(c, last))
        place = np.clip(np.searchsorted(self.thresholds, c, side="right") - 1, 0, len(self.counts) - 1)
        ahead = np.minimum(place + 1, len(self.counts) - 1)
        at = np.interp(c, self.thresholds, self.counts)
        rest = 0.5 * (self.thresholds[ahead] - c) * (at + self.counts[ahead])
        within = np.where(c < last, inside[ahead] + rest, 0.0)
        below = np.where(c < first, inside[0] + self.rows * (first - c), within)
        return np.asarray(np.where(c < first, below, within) + power_part)

    def above(self, clip: float) -> float:
        """Return N(c)."""
        last = float(self.thresholds[-1])
        if clip >= self.top:
            return 0.0
        if clip >= last and self.rate > 0.0:
            return float(self.counts[-1]) * math.exp(-self.rate * (clip - last))
        if clip >= last:
            return float(self.counts[-1]) * math.pow(clip / last, -self.alpha)
        count = np.interp(clip, self.thresholds, self.counts, left=float(self.rows))
        return float(np.asarray(count))

    def _power_tail(self, c: Floats) -> Floats:
        """Return the integral of the extrapolated tail from c >= the last threshold to the top."""
        last = self.thresholds[-1]
        count = self.counts[-1]
        if self.rate > 0.0:
            rest = math.exp(-self.rate * (max(self.top, last) - last))
            return np.asarray(count / self.rate * (np.exp(-self.rate * (c - last)) - rest))
        power = 1.0 - self.alpha
        top = max(self.top, last)
        return np.asarray(count * last / power * ((top / last) ** power - (c / last) ** power))


def tail_of(
    thresholds: Floats,
    counts: Floats,
    sd: Floats,
    rows: int,
    top: float,
    *,
    visible_sds: float = VISIBLE_SDS,
    flattest: float = FLATTEST,
) -> Tail:
    """Return the tail of noisy counts above thresholds.

    Parameters
    ----------
    thresholds : ndarray, shape (m,)
        Increasing.
    counts, sd : ndarray, shape (m,)
        Noisy numbers of terms above them, and the sds of their noise.
    rows : int
    top : float
        Largest possible term.
    visible_sds : float
        The power law begins at the last threshold whose count, made nonincreasing (`decreasing`), exceeds
        this many sds: the last one, so that a gap does not hide what lies beyond it.
    flattest : float
        Least slope of the power law.

    Notes
    -----
    **Privacy.** Post-processing of the counts.
    """
    fitted = decreasing(counts, sd)
    visible = np.flatnonzero(fitted > visible_sds * sd)
    last = int(visible[-1]) if len(visible) else 0
    tail_counts = fitted[: last + 1]
    if not len(visible):
        tail_counts = np.maximum(tail_counts, UNSEEN * sd[0])
    tail_counts = np.minimum(tail_counts, float(rows))
    enough = np.flatnonzero(tail_counts[:last] >= min(APART * tail_counts[last], LARGEST_SHARE * rows))
    alpha = 2.0
    if len(enough) and tail_counts[last] > 0.0:
        earlier = enough[-1]
        apart = math.log(thresholds[last] / thresholds[earlier])
        alpha = math.log(max(tail_counts[earlier] / tail_counts[last], 1.0)) / apart
    alpha = min(max(alpha, flattest), STEEPEST)
    return Tail(
        thresholds=thresholds[: last + 1],
        counts=tail_counts,
        alpha=alpha,
        top=top,
        rows=rows,
        detected=bool(len(visible)),
        hidden=(visible_sds + SURE) * float(sd[last]),
    )


def with_exponential_end(tail: Tail) -> Tail:
    """Return a tail whose part beyond the last threshold is exponential: that of counts with gamma mixtures.

    Its rate is `FURTHER` times that between the last threshold and the nearest one below whose count is
    `APART` times as large: scores are exponential at different scales, and the longest decay the slowest.
    """
    counts = tail.counts
    last = len(counts) - 1
    enough = np.flatnonzero(counts[:last] >= min(APART * counts[last], LARGEST_SHARE * tail.rows))
    earlier = int(enough[-1]) if len(enough) else 0
    apart = float(tail.thresholds[last] - tail.thresholds[earlier])
    fallen = math.log(max(float(counts[earlier] / counts[last]), 1.0)) if counts[last] > 0.0 else 0.0
    slowest = SLOWEST_DECAY / float(tail.thresholds[last])
    return replace(tail, rate=max(FURTHER * fallen / apart if apart > 0.0 else 0.0, slowest))


def decreasing(counts: Floats, sd: Floats) -> Floats:
    """Return the nonincreasing numbers nearest to noisy counts above increasing thresholds.

    Terms above a threshold are above all lower ones, so a count that stands out where those below it do not
    is noise, and is averaged with them. Terms beyond a gap stay: the counts across the gap are theirs.
    """
    largest = float(sd.max(initial=0.0))
    weights = np.square(largest / sd) if largest > 0.0 else None
    return np.asarray(isotonic_regression(counts, weights=weights, increasing=False).x, dtype=np.float64)


def confirmed_tail(
    release_counts: Callable[[Floats, float], tuple[Floats, Floats]],
    thresholds: Floats,
    rows: int,
    top: float,
) -> Tail:
    """Return the tail that intervals rest on: counts far out are released twice.

    Parameters
    ----------
    release_counts : callable
        (thresholds, part) -> noisy counts above them, and the sds of their noise: a release at that part of
        the price that is meant for counts, 1 at first.
    thresholds : ndarray, shape (m,)
        Increasing.
    rows : int
        Number of rows.
    top : float
        Largest possible term.

    Notes
    -----
    Far beyond the terms that are sure to be there a count is noise, and then a clip out there makes intervals
    many times too wide, or a few terms that decide the sum. So it is released again, at some thresholds.
    Where that does not pass its noise either, thresholds end before the gap; else the counts are averaged and
    end where the second ones do.

    **Privacy.** Post-processing of what `release_counts` releases, once or twice.
    """
    counts, sd = release_counts(thresholds, 1.0)
    fitted = decreasing(counts, sd)
    sure = np.flatnonzero(fitted > TOWERING * sd)
    far = np.flatnonzero(thresholds > OFF * thresholds[sure[-1] if len(sure) else 0])
    visible = far[fitted[far] > MIN_FAR_SDS * sd[far]]
    if len(visible):
        chosen = np.unique(np.linspace(far[0], visible[-1], SEVERAL).round().astype(np.int64))
        second_counts, second_sd = release_counts(thresholds[chosen], ONCE_MORE_COSTS)
        confirmed = np.flatnonzero(decreasing(second_counts, second_sd) > MIN_CONFIRMED_SDS * second_sd)
        stop = int(chosen[confirmed[-1]]) + 1 if len(confirmed) else int(far[0])
        weights = np.square(sd[chosen] / second_sd)
        counts[chosen] = (counts[chosen] + weights * second_counts) / (1.0 + weights)
        combined_sd = sd.copy()
        combined_sd[chosen] /= np.sqrt(1.0 + weights)
        tail = tail_of(thresholds[:stop], counts[:stop], combined_sd[:stop], rows, top)
        return replace(tail, hidden=(VISIBLE_SDS + SURE) * float(sd[len(tail.thresholds) - 1]))
    return tail_of(thresholds, counts, sd, rows, top)


def squared(tail: Tail) -> Tail:
    """Return the tail of the squares of the terms."""
    alpha = max(tail.alpha / 2.0, FLATTEST_SQUARES)
    return replace(tail, thresholds=tail.thresholds**2, alpha=alpha, top=tail.top**2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Clip:
    """Clipping thresholds of a sum in two parts, and the extrapolated tail.

    Attributes
    ----------
    low, high : float
        tau and C: the parts are min(t, tau) and the excess between tau and C.
    ratio : float
        lambda = X(C)/(X(tau) - X(C)): the excess beyond C relative to the upper part.
    weight : float
        w = 1 + 0.6 lambda: weight of the upper part, which includes the extrapolated tail.
    between : float
        X(tau) - X(C): the most that the upper part can hold, by the counts.
    cut : float
        N(C): number of terms above C, by the counts.
    beyond : float
        X(C): the excess beyond C, by the counts.
    hidden : float
        Number of terms that the counts' noise can hide.
    """

    low: float
    high: float
    ratio: float
    weight: float
    between: float
    cut: float = 0.0
    beyond: float = 0.0
    hidden: float = 0.0

    @property
    def effective_threshold(self) -> float:
        """C' = tau + w (C - tau): the sum of both parts is noised as one clipped at C'."""
        return self.low + self.weight * (self.high - self.low)

    @property
    def beyond_sd(self) -> float:
        """About the sd of X(C): counts between C and 2 C make up most of it, at about four thresholds."""
        return self.hidden / (VISIBLE_SDS + SURE) * self.high / math.sqrt(THRESHOLDS_OF_DOUBLING)

    def shares(self) -> tuple[float, float]:
        """Return the shares of mu^2 of both parts, tau : w (C - tau)."""
        return self.low / self.effective_threshold, 1.0 - self.low / self.effective_threshold

    def bias(self, signed: Floats, sd: Floats, length: Floats) -> Floats:
        """Return the error bound of the extrapolated tail: 0.7 lambda times the sum between the thresholds.

        Parameters
        ----------
        signed, sd : ndarray, shape (k,)
            Linear forms of the upper part's sum, and the sds of their noise.
        length : ndarray, shape (k,)
            Lengths of the forms' coefficients: the upper part's own is X(tau) - X(C) at most.
        """
        return np.asarray(ALLOWED * self.ratio * size_between_thresholds(signed, sd, self.between * length))


def size_between_thresholds(signed: Floats, sd: Floats, limit: Floats) -> Floats:
    """Return the size of forms of the upper part's sum, with a sd of their noise; `limit` by the counts."""
    return np.asarray(np.minimum(np.abs(signed) + sd, limit))


def two_threshold_clip(tail: Tail, dimension: int, mu: float, excess_weight: float = EXCESS_WEIGHT) -> Clip:
    """Return the clip of a vector sum of terms of these norms, C minimizing p (2C/mu)^2 + (b X(C))^2.

    Parameters
    ----------
    tail : Tail
    dimension : int
        p.
    mu : float
        Price of the sum.
    excess_weight : float
        b, the weight of what the clip takes.
    """
    clip = best_clip(tail, lambda c: dimension * (2.0 * c / mu) ** 2 + (excess_weight * tail.excess(c)) ** 2)
    low = LOWER_THRESHOLD_RATIO * clip
    excess_at_clip, excess_at_low = (float(part) for part in tail.excess(np.array([clip, low])))
    between = max(excess_at_low - excess_at_clip, 0.0)
    ratio = 0.0 if clip >= tail.top or between == 0.0 else min(LARGEST_RATIO, excess_at_clip / between)
    return Clip(
        low=low,
        high=clip,
        ratio=ratio,
        weight=1.0 + TAIL_SHARE * ratio,
        between=between,
        cut=tail.above(clip),
        beyond=excess_at_clip,
        hidden=tail.hidden,
    )


def best_clip(tail: Tail, loss: Callable[[Floats], Floats]) -> float:
    """Return the clip of least loss between a hundredth of the first threshold and the top."""
    low = min(0.05 * tail.thresholds[0], tail.top)
    tried = np.geomspace(low, tail.top, TRIED_CLIPS)
    return float(tried[int(np.argmin(loss(tried)))])


def shrunk(meat: Floats, sd: float, shape: Floats | None = None) -> Floats:
    """Return a noisy meat shrunk toward a multiple of `shape`, by default the identity.

    Parameters
    ----------
    meat : ndarray, shape (p, p)
        With noise of this sd on its diagonal.
    sd : float
    shape : ndarray, shape (p, p), optional
        Positive definite, of trace p.

    Notes
    -----
    M <- T + (M - T) max(0, 1 - sd^2 (p (p + 1)/2 - 1)/|M - T|^2), T = tr M / p times the shape: as James and
    Stein. In coordinates in which the shape is the identity no eigenvalue is below 0.05 tr M / p.
    """
    p = len(meat)
    shape = np.eye(p) if shape is None else shape
    mean = max(float(np.trace(meat)) / p, sd / math.sqrt(p), 1e-300)
    away = meat - mean * shape
    size2 = float((away**2).sum())
    weight = max(0.0, 1.0 - sd**2 * (p * (p + 1) / 2.0 - 1.0) / size2) if size2 > 0.0 else 0.0
    root = np.linalg.cholesky(shape)
    white = np.linalg.solve(root, np.linalg.solve(root, mean * shape + weight * away).T)
    values, vectors = np.linalg.eigh(white)
    half = root @ vectors
    shrunken = (half * np.maximum(values, LEAST_EIGENVALUE * mean)) @ half.T
    return np.asarray(shrunken * (mean * p / float(np.trace(shrunken))))
