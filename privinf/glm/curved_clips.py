"""Where the sums of a curved model are clipped, by noisy counts, and what the clips may hide."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from privinf.glm.curved_sums import CurvedSums, Place
from privinf.inference.tails import (
    ALLOWED,
    SEEN_BEFORE,
    Tail,
    best_clip,
    decreasing,
    looked_for,
    of_layer,
    tail_of,
)
from privinf.typing import Floats

# Thresholds of the counts, in units of the typical size; clips that are tried between two of them.
CELLS = 2.0 ** np.arange(-5.0, 2.51, 0.25)
SCORE_SIZES = 2.0 ** np.arange(-2.0, 6.01, 0.25)
FINE = 8
# A public allowance for a mean that is not right: what share of what weights leave out moves the score. The
# smaller the curvature the less a mean can be wrong: so much of it, and no less than the least.
MISFIT = 0.4
LEAST_MISFIT = 0.015
# A wider one, where its noise stays below this share of the sampling variance.
WIDE_MISFIT = 0.2
CHEAP = 0.3
# B is no less than this quantile of the scores; counts whose noise is this share of n choose no K.
LOWEST_QUANTILE = 0.3
MOST_NOISE = 0.05 / 6.0
# Weights and log exposures pass their middle by a factor of two at most.
ROOM = 2.001
LARGEST_LOG = 60.0
# Lowest threshold of scores, in units of their usual size; most thresholds; means above so many times the
# largest response are not looked for.
LOWEST_SCORE = 0.7
MOST_THRESHOLDS = 120
LARGEST_MEAN = 4.0
# What lies beyond the clip of counts is of one sign for this share at least.
ONE_SIGN = 0.25


@dataclass(frozen=True, slots=True)
class Bounds:
    """B and K, and what is left beyond them: mean excesses of the score's size and of the Hessian's."""

    score: float
    curvature: float
    score_excess: float = 0.0
    curvature_excess: float = 0.0


def choose_bounds(sums: CurvedSums, at: Place, share: float, score: float, curvature: float) -> Bounds:
    """Return B and K from noisy counts; `score` and `curvature` are the shares that they are for.

    B weighs the noise of the score, p (2 B / mu)^2, against what weights beyond B leave out times `MISFIT`,
    and K likewise: 4 p (K / mu)^2 against the excess.
    """
    if math.isinf(sums.mu):
        return no_bounds(sums, at)
    p = sums.p
    half = share / 2.0
    if sums.family == "poisson":
        large, beyond = curvature_bound(sums, at, half, curvature)
        tail = residual_tail(sums, at, half, coarse=True)
        mu = sums.price(score)
        bound = best_clip(tail, lambda c: p * (2.0 * c / mu) ** 2 + (0.5 * tail.excess(c)) ** 2)
        return Bounds(bound, large, 0.0, beyond / sums.n)
    sizes = SCORE_SIZES * math.sqrt(p)
    top = sums.radius * float(np.linalg.norm(at.transform, 2))
    edges = np.append(sizes[sizes < top / 1.05], top)
    counts, sd = sums.counts(at, "score", edges, half)
    least = quantile_of(edges, counts, (1.0 - LOWEST_QUANTILE) * sums.n)
    cost = 4.0 * p / sums.price(score) ** 2
    bound, excess = clip_of(edges, counts, sd, sums.n, cost, WIDE_MISFIT, least, sums.seen)
    if cost / p * bound**2 > CHEAP * at.curvature * sums.n:
        affordable = math.sqrt(CHEAP * at.curvature * sums.n * p / cost)
        least = max(least, min(affordable, bound))
        bound, excess = clip_of(edges, counts, sd, sums.n, cost, misfit_of(at), least, sums.seen)
    edges = CELLS * 2.0 * at.curvature * bound * math.sqrt(p)
    large, beyond = _curvature_bound(sums, at, edges, half, curvature, score_bound=bound)
    return Bounds(bound, large, excess / sums.n, beyond / sums.n)


def misfit_of(at: Place) -> float:
    """Return what share of what weights leave out may move the score: less where the curvature is small."""
    return max(LEAST_MISFIT, MISFIT * at.curvature)


def residual_tail(sums: CurvedSums, at: Place, share: float, *, coarse: bool) -> Tail:
    """Return the tail of |v e| from counts below the largest that the public bounds allow."""
    length = sums.radius * float(np.linalg.norm(at.transform, 2))
    high = sums.response[1]
    predictor = float(np.abs(at.theta).sum() + np.abs(sums.linear).sum() + abs(sums.level))
    top = length * max(high, min(math.exp(min(predictor, LARGEST_LOG)), LARGEST_MEAN * high))
    ratio = math.pow(2.0, 0.5 if coarse else 0.25)
    lowest = LOWEST_SCORE * math.sqrt(sums.p * at.curvature)
    cells = min(max(math.ceil(math.log(max(top / lowest, 1.0)) / math.log(ratio)), 1), MOST_THRESHOLDS)
    thresholds = top * ratio ** np.arange(-cells, 0, dtype=np.float64)

    def ask(some: Floats, part: float) -> tuple[Floats, Floats]:
        return sums.counts(at, "residual", some, part * share)

    if coarse:
        return tail_of(thresholds, *ask(thresholds, 1.0), sums.n, top, seen=SEEN_BEFORE, flattest=2.0)
    return looked_for(ask, thresholds, sums.n, top)


def curvature_bound(sums: CurvedSums, at: Place, share: float, curvature: float) -> tuple[float, float]:
    """Return K of a Poisson model, and the summed excess beyond it."""
    return _curvature_bound(sums, at, CELLS * 2.0 * at.curvature * sums.p, share, curvature)


def _curvature_bound(
    sums: CurvedSums, at: Place, edges: Floats, share: float, curvature: float, **bounds: float
) -> tuple[float, float]:
    """Return K and the summed excess beyond it."""
    counts, sd = sums.counts(at, "curvature", edges, share, **bounds)
    coarse = math.sqrt(2.0) / sums.price(share) > MOST_NOISE * sums.n
    least = 1.5 * at.curvature * sums.p if coarse else 0.0
    cost = 4.0 * sums.p / sums.price(curvature) ** 2
    return clip_of(edges, counts, sd, sums.n, cost, 1.0, min(least, float(edges[-1])), sums.seen)


def quantile_of(edges: Floats, counts: Floats, level: float) -> float:
    """Return the first edge that at most `level` records pass."""
    passed = np.flatnonzero(np.maximum.accumulate(counts[::-1])[::-1] <= level)
    return float(edges[passed[0] if len(passed) else -1])


def no_bounds(sums: CurvedSums, at: Place) -> Bounds:
    """Return B and K that no row inside the public bounds reaches."""
    length = sums.radius * float(np.linalg.norm(at.transform, 2)) * ROOM
    if sums.family == "binomial":
        return Bounds(length, length**2 / 4.0)
    most = math.exp(
        min(float(np.abs(at.theta).sum() + np.abs(sums.linear).sum() + abs(sums.level)) + 1.0, LARGEST_LOG)
    )
    return Bounds(length * max(most, sums.response[1]), length**2 * most)


def clip_of(
    edges: Floats,
    counts: Floats,
    sd: Floats,
    n: int,
    cost: float,
    weight: float,
    least: float,
    seen: float,
) -> tuple[float, float]:
    """Return the clip c >= least that minimises cost c^2 + (weight X(c))^2, and X(c), the excess beyond it.

    X(c) = sum (t - c)+ is the integral of the counts above t, made nonincreasing (`decreasing`); those below
    `seen` of their sds count as none.
    """
    clips = np.geomspace(edges[0], edges[-1], FINE * (len(edges) - 1) + 1)
    fitted = decreasing(counts, sd)
    above = np.where(fitted < seen * sd, 0.0, fitted)
    above = np.minimum(np.maximum.accumulate(above[::-1])[::-1], n)
    parts = np.diff(edges) * (above[:-1] + above[1:]) / 2.0
    beyond = np.interp(clips, edges, np.append(np.cumsum(parts[::-1])[::-1], 0.0))
    loss = cost * clips**2 + (weight * beyond) ** 2
    loss[clips < least * (1.0 - 1e-12)] = math.inf
    best = int(loss.argmin())
    return float(clips[best]), float(beyond[best])


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Hidden:
    """What the clips of a Poisson model may hide.

    Attributes
    ----------
    upper : ndarray, shape (p,)
        The signed upper layer of the scores.
    upper_sd, layer, ratio : float
        Its noise, its size by the counts, and lambda.
    curvature : float
        What the Hessian's clip takes from the last step: its excess times the step's length.
    """

    upper: Floats
    upper_sd: float
    layer: float
    ratio: float
    curvature: float = 0.0

    def bias(self, influence: Floats) -> Floats:
        """Return the bias to allow for in ``influence @ score``.

        As in least squares by a second look, but no less than `ONE_SIGN` of all that lies beyond the clip:
        counts are skewed, and their largest scores are more of one sign than the layer below. Of what the
        Hessian's clip may take, half.
        """
        size = np.linalg.norm(influence, axis=1)
        seen = ALLOWED * of_layer(influence @ self.upper, self.upper_sd * size, self.layer * size)
        return np.asarray(
            self.ratio * np.maximum(seen, ONE_SIGN * self.layer * size) + 0.5 * self.curvature * size
        )
