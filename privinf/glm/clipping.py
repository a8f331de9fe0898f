"""Where scores and Hessians of a curved model are weighed down or clipped, by noisy counts of their sizes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from privinf.glm.sums import CurvedSums, Place
from privinf.inference.tails import FLATTEST, SEEN, Tail, best_clip, tail_of
from privinf.typing import Floats

# Thresholds of the counts, in units of the typical size, and steps between two of them.
CELLS, FINE = 2.0 ** np.arange(-5.0, 2.51, 0.25), 8
# A public allowance for a mean that is not right: what share of what weights leave out moves the score.
MISFIT = 0.015
LOWEST_QUANTILE = 0.3
# Counts below so many of their sds count as none; counts whose noise is this share of n choose no K.
SEEN_SDS, MOST_NOISE = 2.0, 0.05 / 6.0
# Weights and log exposures pass their middle by a factor of two at most.
ROOM, LARGEST_LOG = 2.001, 60.0
# Lowest threshold of scores, in units of their usual size; most thresholds; means above so many times the
# largest response are not looked for.
LOWEST_SCORE, MOST_THRESHOLDS, LARGEST_MEAN = 0.7, 120, 4.0


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
    p, half = sums.p, share / 2.0
    if sums.family == "poisson":
        large, beyond = curvature_bound(sums, at, half, curvature)
        tail, mu = residual_tail(sums, at, half, coarse=True), sums.price(score)
        bound = best_clip(tail, lambda c: p * (2.0 * c / mu) ** 2 + (0.5 * tail.excess(c)) ** 2)
        return Bounds(bound, large, 0.0, beyond / sums.n)
    edges = CELLS * math.sqrt(p)
    counts, sd = sums.counts(at, "score", edges, half)
    least = quantile_of(edges, counts, (1.0 - LOWEST_QUANTILE) * sums.n)
    cost = 4.0 * p / sums.price(score) ** 2
    bound, excess = clip_of(edges, counts, sd, sums.n, cost, MISFIT, least)
    edges = CELLS * 2.0 * at.curvature * bound * math.sqrt(p)
    large, beyond = _curvature_bound(sums, at, edges, half, curvature, score_bound=bound)
    return Bounds(bound, large, excess / sums.n, beyond / sums.n)


def residual_tail(sums: CurvedSums, at: Place, share: float, *, coarse: bool) -> Tail:
    """Return the tail of |v e| from counts below the largest that the public bounds allow."""
    length, high = sums.radius * float(np.linalg.norm(at.transform, 2)), sums.response[1]
    predictor = float(np.abs(at.theta).sum() + np.abs(sums.linear).sum() + abs(sums.level))
    top = length * max(high, min(math.exp(min(predictor, LARGEST_LOG)), LARGEST_MEAN * high))
    ratio = math.pow(2.0, 0.5 if coarse else 0.25)
    lowest = LOWEST_SCORE * math.sqrt(sums.p * at.curvature)
    cells = min(max(math.ceil(math.log(max(top / lowest, 1.0)) / math.log(ratio)), 1), MOST_THRESHOLDS)
    thresholds = top * ratio ** np.arange(-cells, 0, dtype=np.float64)
    counts, sd = sums.counts(at, "residual", thresholds, share)
    seen, flattest = (SEEN_SDS, 2.0) if coarse else (SEEN, FLATTEST)
    return tail_of(thresholds, counts, sd, sums.n, top, seen=seen, flattest=flattest)


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
    return clip_of(edges, counts, sd, sums.n, cost, 1.0, min(least, float(edges[-1])))


def clip_of(
    edges: Floats, counts: Floats, sd: Floats, n: int, cost: float, weight: float, least: float
) -> tuple[float, float]:
    """Return the clip c >= least that minimises cost c^2 + (weight X(c))^2, and X(c), the excess beyond it.

    X(c) = sum (t - c)+ is the integral of the counts above t; those below two of their sds count as none.
    """
    above = np.where(counts < SEEN_SDS * sd, 0.0, counts)
    above = np.minimum(np.maximum.accumulate(above[::-1])[::-1], n)
    parts = np.diff(edges) * (above[:-1] + above[1:]) / 2.0
    excess = np.append(np.cumsum(parts[::-1])[::-1], 0.0)
    clips = np.geomspace(edges[0], edges[-1], FINE * (len(edges) - 1) + 1)
    beyond = np.interp(clips, edges, excess)
    loss = cost * clips**2 + (weight * beyond) ** 2
    loss[clips < least * (1.0 - 1e-12)] = math.inf
    best = int(loss.argmin())
    return float(clips[best]), float(beyond[best])


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
