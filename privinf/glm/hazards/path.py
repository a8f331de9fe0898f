r"""The releases that lead to a proportional-hazards fit with a known law of its noise.

Cox's score is orthogonal to the baseline. So a noisy baseline is an offset, and the factors of q blocks of it
are estimated together with the d slopes: P = q + d coefficients. Everything is in x with columns in [-1, 1],
and in whitened units v = W (sqrt q e_b, x). Shares of mu^2 are in brackets.

1. *Cells* [0.05]: events and censored records by interval, hence the baseline (`baseline`).
2. *Gram* of (1, x) [0.03]: W.
3. *Score at 0* [0.04], clipped at 1.3 sqrt P; its step, shrunk as its noise requires.
4. *One round*: counts [0.015], score and Hessian [0.07, half each]; a Newton step, shrunk; W from H.
5. *Final release*: counts [0.02], meat [0.03], score S and secant Hessian H [0.745, of which 75% for S].

After steps 3 and 4 the baseline is computed again at the slopes. Records are followed up to a stop that
leaves noise at most 0.4 of the sampling variance in the round, and 1.5 in the final score. Everything chosen
is a function of releases, and all prices squared add up to mu^2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from privinf.errors import ConvergenceError, NotAvailableError, NotPositiveDefiniteError
from privinf.glm.curved import (
    LOWEST_QUANTILE,
    ROOM,
    ROUND_COUNTS,
    SCORE_SIZES,
    SHORT_MOVE,
    GLMNewtonPath,
    OneStepRelease,
    clip_of,
    newton_move,
    preliminary_step,
    quantile_of,
    sampling_meat,
    shrinkage,
)
from privinf.glm.curved_sums import ROUND_STEP, VISIBLE_SDS, ExpansionPoint, Noisy
from privinf.glm.hazards.baseline import Baseline, events_of
from privinf.glm.hazards.sums import HazardPoint, HazardQueries
from privinf.glm.hazards.target_test import RoundRelease
from privinf.glm.sums import SINGULAR_SUMS
from privinf.typing import Floats
from privinf.wire import Labels

CELLS = 0.05  # share of mu^2 for the cells
GRAM = 0.03  # share for the Gram of (1, x)
START = 0.04  # share for the score at 0
FINAL_COUNTS = 0.02  # share for the counts of the final release
MEAT = 0.03  # share for the meat
FINAL = 0.745  # share for the final score and Hessian
FINAL_SCORE = 0.75  # the score's part of it
START_CLIP = 1.3  # of scores at 0, in units of sqrt P
LONGEST_START = 1.5  # length of the step from 0, in whitened units
FEW_BLOCKS = 2  # of the baseline
MANY_BLOCKS = 4  # the same from MANY on
MANY = 15_000.0  # n mu from which on the baseline has MANY_BLOCKS blocks
MOST_NOISE = 1.5  # rho of the final release up to which records are followed
MOST_NOISE_MODEL = 0.4  # the same of the round, and of a final release that relies on the model
MISFIT = 0.1  # share of the events, times what weights leave out, that a wrong model may add to the score
TRACES = 2.0 ** np.arange(-3.0, 6.01, 0.25)  # thresholds of traces, in units of h P
# Fewest events for each coefficient, and in sds of the noise of their number. At these limits two thirds of
# the fits have intervals, which cover; with half as many events a third to a half do.
FEWEST_EVENTS = 8.0
FEWEST_SDS = 3.0
NEWTON_ROUNDS = 200  # rounds without noise
NEWTON_TOLERANCE = 1e-10  # move of predictors below which a fit without noise has converged
REBASED = 12  # rounds without noise after which the baseline is computed again
TOO_FEW_EVENTS = (
    "too few events: a noisy estimate of their number is {:z.0f} (noise sd {:.2g}), and {} coefficients need "
    "at least {:.0f}. Only this count was charged. Use more records, a larger budget or fewer columns"
)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class HazardFit:
    """Outcome of a fit.

    Attributes
    ----------
    step : OneStepRelease or None
        The final release; None where noise hides the first Hessian in every direction.
    path : list of ndarray
        Slopes before each release, the first at the score's step from 0.
    baseline : Baseline
    stop : float
        c of the final release.
    later : float
        Share of events after the stop, by the cells.
    later_sd : float
        Standard deviation of its noise.
    gram : Noisy
        Of (1, x).
    early : RoundRelease or None
        Score and Hessian of the round; None without noise.
    """

    step: OneStepRelease | None
    path: list[Floats]
    baseline: Baseline
    stop: float
    later: float
    later_sd: float
    gram: Noisy
    early: RoundRelease | None = None


def number_of_blocks(n: int, mu: float) -> int:
    """Return q for this size: 2, or 4 where rows and budget are large."""
    return MANY_BLOCKS if MANY <= n * mu < math.inf else FEW_BLOCKS


def fit_hazards(sums: HazardQueries, *, most_noise: float = MOST_NOISE) -> HazardFit:
    """Return the final release of a fit; without noise it runs to convergence.

    Raises
    ------
    NotAvailableError
        The cells have too few events; nothing else was released.
    ConvergenceError, NotPositiveDefiniteError
        Without noise: no convergence, or columns repeat one another.
    """
    exact = math.isinf(sums.mu)
    cells = sums.cells(CELLS)
    base = Baseline.from_cells(cells, sums.n, sums.edges, number_of_blocks(sums.n, sums.mu))
    P = base.blocks + len(sums.largest)
    events, sd = events_of(cells)
    fewest = max(FEWEST_EVENTS * P, FEWEST_SDS * sd)
    if events < fewest:
        raise NotAvailableError(TOO_FEW_EVENTS.format(events, sd, P, fewest))
    gram = sums.gram(GRAM)
    center = gram.mean[0, 1:]
    spread = gram.lifted()[1:, 1:] - np.outer(center, center)

    def based(at: HazardPoint) -> HazardPoint:
        """Return the point with the baseline at its slopes, from which the blocks start again."""
        theta = np.concatenate([np.zeros(base.blocks), at.slopes])
        return replace(at, baseline=at.baseline.at(at.slopes, center, spread), theta=theta)

    at = based(start(sums, base, gram))
    path = [at.slopes]
    walking = False
    for number in range(1, (NEWTON_ROUNDS if exact else 1) + 1):
        at = replace(at, stop=at.baseline.stop(sums.price(ROUND_STEP / 2.0), P, MOST_NOISE_MODEL))
        at, moved, early = one_round(sums, at, number)
        walking = moved > (NEWTON_TOLERANCE if exact else SHORT_MOVE)
        if not exact and np.linalg.eigvalsh(early.hessian.mean)[-1] <= early.hessian.floor:
            return HazardFit(
                step=None, path=path, baseline=base, stop=at.stop, later=0.0, later_sd=0.0, gram=gram
            )
        at = based(at) if not exact or number <= REBASED else at
        path.append(at.slopes)
        if exact and not walking and number > REBASED:
            break
    if exact and walking:
        raise ConvergenceError(
            f"Newton's method did not converge in {NEWTON_ROUNDS} rounds: the coefficients may be infinite"
        )
    at = replace(at, stop=at.baseline.stop(sums.price(FINAL * FINAL_SCORE), P, most_noise))
    walk = GLMNewtonPath(path=[], walking=walking, second=np.eye(P))
    later, later_sd = at.baseline.later(at.stop)
    return HazardFit(
        step=final(sums, at, walk),
        path=path,
        baseline=at.baseline,
        stop=at.stop,
        later=later,
        later_sd=later_sd,
        gram=gram,
        early=None if exact else early,
    )


def start(sums: HazardQueries, base: Baseline, gram: Noisy) -> HazardPoint:
    """Return where a score at 0 leads, and W by the Gram of (1, x) and blocks of equal numbers of events."""
    q = base.blocks
    P = q + len(sums.largest)
    full = np.eye(P)
    full[:q, q:] = gram.mean[0, 1:] / math.sqrt(q)
    full[q:, :q] = full[:q, q:].T
    full[q:, q:] = gram.mean[1:, 1:]
    values, vectors = Noisy(full, gram.sd).floored()
    transform = (vectors / np.sqrt(values)) @ vectors.T
    level = base.events / base.n
    at = HazardPoint(baseline=base, theta=np.zeros(P), transform=transform, curvature=level)
    clip = START_CLIP * math.sqrt(P) if math.isfinite(sums.mu) else largest_score(sums, at)
    score = sums.score(at, START, Labels.START, high=clip, bound=math.inf)
    step = score.mean / level
    step *= shrinkage(step, np.full(P, (score.sd / level) ** 2))
    step *= min(1.0, LONGEST_START / max(float(np.linalg.norm(step)), 1e-300))
    return replace(at, theta=transform.T @ step)


def one_round(sums: HazardQueries, at: HazardPoint, number: int) -> tuple[HazardPoint, float, RoundRelease]:
    """Return where a Newton step leads, with W from its Hessian, how far it moved, and its release."""
    share = ROUND_STEP / 2.0
    bounds = choose_bounds(sums, at, ROUND_COUNTS, share, share)
    score = sums.score(
        at, share, Labels.SCORE_OF_ROUND.format(round=number), high=bounds.high, bound=bounds.score
    )
    hessian = sums.hessian(
        at,
        share,
        Labels.HESSIAN_OF_ROUND.format(round=number),
        step=np.zeros(len(at.theta)),
        bound=bounds.score,
        trace=bounds.trace,
    )
    move = newton_move(score, hessian)
    theta = at.theta + at.transform.T @ move.step
    return (
        replace(at, theta=theta, transform=move.whitening @ at.transform, curvature=move.level),
        move.moved,
        RoundRelease(theta=at.theta, transform=at.transform, score=score, hessian=hessian, stop=at.stop),
    )


def final(sums: HazardQueries, at: HazardPoint, walk: GLMNewtonPath) -> OneStepRelease:
    """Return the final release."""
    P = len(at.theta)
    for_score = FINAL * FINAL_SCORE
    for_hessian = FINAL - for_score
    bounds = choose_bounds(sums, at, FINAL_COUNTS, for_score, for_hessian)
    place = ExpansionPoint(at.theta, at.transform, at.curvature)
    score = sums.score(at, for_score, Labels.FINAL_SCORE, high=bounds.high, bound=bounds.score)
    meat = sums.meat(at, MEAT, bounds.high)
    hessian = sums.hessian(
        at,
        for_hessian,
        Labels.FINAL_HESSIAN,
        step=preliminary_step(score, place),
        bound=bounds.score,
        trace=bounds.trace,
    )
    values, vectors = hessian.floored()
    step = vectors @ ((vectors.T @ score.mean) / values)
    events = at.baseline.events / at.baseline.n
    allowance = (MISFIT * events * bounds.score_excess) ** 2 / P
    allowance += bounds.trace_excess**2 * float(step @ step) / (4.0 * P)
    sampling = sampling_meat(hessian, meat, 1.0)
    error = math.sqrt(float(np.trace(sampling)) / (P * sums.n) + score.sd**2)
    return OneStepRelease(
        place=place,
        score=score,
        hessian=hessian,
        meat=sampling,
        allowance=allowance,
        walk=walk,
        far=events * bounds.score_excess / error,
    )


# ---- where the sums are clipped, by noisy counts


@dataclass(frozen=True, slots=True, kw_only=True)
class HazardBounds:
    """B and K, the norm of scores, and mean excesses of Q and of traces beyond B and K."""

    score: float
    trace: float
    high: float
    score_excess: float = 0.0
    trace_excess: float = 0.0


def choose_bounds(
    sums: HazardQueries, at: HazardPoint, share: float, for_score: float, for_hessian: float
) -> HazardBounds:
    """Return B and K from noisy counts, for a score and a Hessian released at these shares.

    B minimizes P (2 B / mu)^2 + (m D E(Q - B)+)^2, D the number of events, and is at least the 0.3 quantile
    of Q; K minimizes 4 P (K / mu)^2 + (n E(tr - K)+)^2 and is at least h P.
    """
    if math.isinf(sums.mu):
        largest = largest_score(sums, at)
        return HazardBounds(score=math.inf, trace=largest**2, high=largest)
    n = sums.n
    P = len(at.theta)
    longest = longest_design(sums, at)
    top = longest * max(1.0, at.stop)
    sizes = SCORE_SIZES * math.sqrt(P)
    edges = np.append(sizes[sizes < top / 1.05], top)
    counts, sd = sums.counts(at, "score", edges, share / 2.0, math.inf)
    lowest = quantile_of(edges, counts, (1.0 - LOWEST_QUANTILE) * n)
    cost = 4.0 * P / sums.price(for_score) ** 2
    weight = MISFIT * at.baseline.events / n
    B, score_excess = clip_of(edges, counts, sd, n, cost, weight, lowest, VISIBLE_SDS)
    sizes = TRACES * at.curvature * P
    top = max(B * longest, float(sizes[0]))
    edges = np.append(sizes[sizes < top / 1.05], top)
    counts, sd = sums.counts(at, "curvature", edges, share / 2.0, B)
    cost = 4.0 * P / sums.price(for_hessian) ** 2
    lowest = min(at.curvature * P, float(edges[-1]))
    K, trace_excess = clip_of(edges, counts, sd, n, cost, 1.0, lowest, VISIBLE_SDS)
    return HazardBounds(
        score=B, trace=K, high=B, score_excess=score_excess / n, trace_excess=trace_excess / n
    )


def longest_design(sums: HazardQueries, at: HazardPoint) -> float:
    """Return a bound of |v_b| by the public bounds of the columns."""
    square = at.baseline.blocks + float(sums.largest @ sums.largest)
    return math.sqrt(square) * float(np.linalg.norm(at.transform, 2))


def largest_score(sums: HazardQueries, at: HazardPoint) -> float:
    """Return a bound of scores and of roots of traces that holds for all records inside the bounds."""
    hazard = float(at.increments.sum()) * math.exp(min(float(np.abs(at.slopes) @ sums.largest), 60.0))
    if not math.isfinite(hazard):
        raise NotPositiveDefiniteError(SINGULAR_SUMS)
    return ROOM * longest_design(sums, at) * (1.0 + hazard)
