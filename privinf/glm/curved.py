r"""Logistic and count models in whitened units: the releases that lead to a final one with a known law.

Everything is in z, the columns in scaled units, [-1, 1], with a constant of 1; v = W z with a public W that
the releases before have learnt, so that the Hessian in v is about h I.

0. *Start*: the Gram of z and the score at 0, together; W = A^{-1/2}, and slopes along the whitened covariance
   of z and y, as a normal predictor would give it.
1. *Rounds*: counts of what bounds a record's score and Hessian, then both together, with the **same
   weights in x alone** in both, which leave a right mean its coefficients; a Newton step, shrunk as its noise
   asks, in counts each hidden direction of a rare level by itself (`hidden_directions`); W from the Hessian.
   The last one is where the step is short and the Hessian clear of its noise.
2. *Final*: counts, score S at theta_T, the meat (its trace where noise would drown it), and a fresh
   **secant** Hessian H along the step that S requires.

Negative binomial counts are fitted as Poisson ones whose rows have the weight 1/(1 + a m), a working
dispersion a: 1 in the first round, then as a first release estimates it. The dispersion itself is released
at the estimated coefficients (`privinf.glm.dispersion`).

The rounds reserve a fixed maximum; what they do not use goes to the final releases. Every choice is a
function of releases, and the squares of all prices add up to mu^2 at most on every path.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit

from privinf.errors import ConvergenceError
from privinf.glm.column_moments import rare_indicators
from privinf.glm.curved_sums import CurvedSums, ExpansionPoint, Noisy, Shares
from privinf.glm.dispersion import FINAL, FIRST_ESTIMATE, Dispersion, estimate_dispersion, working_alpha
from privinf.inference.identifiability import check_finite_maximum, check_full_rank
from privinf.inference.tails import (
    ALLOWED,
    VISIBLE_SDS_BEFORE,
    Tail,
    best_clip,
    confirmed_tail,
    decreasing,
    shrunk,
    size_between_thresholds,
    tail_of,
    two_threshold_clip,
    with_exponential_end,
)
from privinf.typing import Flags, Floats
from privinf.wire import Labels

ROUND_COUNTS = 0.015  # share of mu^2 for the counts of a round
FINAL_COUNTS = 0.03  # share of mu^2 for the counts of the final release
FINAL_MEAT = 0.04  # share of mu^2 for the meat of the final release
LAYERS_COUNTS = 0.1  # share of mu^2 for counts of scores in a Poisson model's final release
MIXED_COUNTS = 0.05  # the same of negative binomial counts, whose tail is exponential
MIXED_MEAT = 0.025  # share for the meat of negative binomial counts
LAYERS_MEAT = 0.06  # share of mu^2 for the meat of a Poisson model's final release
LONGEST_MOVE = 2.0  # of linear predictors in a round, root mean square
SHORT_MOVE = 0.5  # a round that moves predictors of a logistic model less is the last one
SHORT_COUNTS = 0.1  # the same for a Poisson model
# Squared length of the rows of a rare level, relative to the mean one of all rows, p, above which W is not
# stretched further along the level where noise hides its curvature.
LONGEST_RARE = 6.0
HIDDEN_CURVATURE = 2.0  # times the floor, up to which noise hides the curvature of such a direction
CARRIED = 0.5  # share of a direction's squared coefficients above which rare levels carry it
LONGEST_SECANT = 2.0  # length of the preliminary step, along which the final Hessian is a secant
NEWTON_ROUNDS = 100  # rounds without noise
TOLERANCE = 1e-12  # move of predictors, root mean square, below which a fit without noise has converged
OVERSHOOTING = 12  # rounds without noise in which a step that goes too far may leave hardly any curvature
NODES, NODE_WEIGHTS = np.polynomial.hermite_e.hermegauss(41)
NODE_WEIGHTS = NODE_WEIGHTS / NODE_WEIGHTS.sum()  # made to add up to 1: probabilities at NODES
CELLS = 2.0 ** np.arange(-5.0, 2.51, 0.25)  # thresholds of counts of curvature, in units of its typical size
SCORE_SIZES = 2.0 ** np.arange(-2.0, 6.01, 0.25)  # thresholds of counts of scores, in units of sqrt p
FINE = 8  # clips that are tried between two thresholds
# What weights leave out may move the score by this share of the curvature: a public allowance for a wrong
# mean, which can be less wrong where the curvature is small.
MISFIT = 0.4
LEAST_MISFIT = 0.015  # least such share, whatever the curvature
WIDE_MISFIT = 0.2  # a wider allowance, where its noise costs little
CHEAP = 0.3  # share of the sampling variance up to which noise costs little
LOWEST_QUANTILE = 0.3  # B is no less than this quantile of the scores
# Sd of the curvature counts, as a share of n, above which they choose no K: 6 sds are 5%.
MOST_NOISE = 0.05 / 6.0
ROOM = 2.001  # factor of lengths at most: weights and log exposures pass their middle by a factor of two
LARGEST_LOG = 60.0  # logarithm of a mean beyond which bounds and thresholds grow no further
LOWEST_SCORE = 0.7  # lowest threshold of scores, in units of their usual size
MOST_SCORE_THRESHOLDS = 120  # of counts of scores
LARGEST_MEAN = 4.0  # means above this many times the largest response are not looked for
ONE_SIGN = 0.25  # least share of what lies beyond the clip that is taken to be of one sign
# The same of negative binomial counts, in directions in which the rows of the tail cancel.
ONE_SIGN_ACROSS = 0.1


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TailBias:
    """What the clips of a Poisson model may hide.

    Attributes
    ----------
    upper : ndarray, shape (p,)
        The signed upper layer of the scores.
    upper_sd, between, ratio : float
        Its noise, its size by the counts, and lambda.
    curvature : float
        What the Hessian's clip takes from the last step: its excess times the step's length.
    beyond_sd : float
        About the sd of lambda times the size, the mean excess beyond the clip.
    along : ndarray of shape (p,), or None
        Direction of the mean of v, of length 1, for negative binomial counts: their clipped scores all have
        the sign of v, and by the model their mean has this direction.
    """

    upper: Floats
    upper_sd: float
    between: float
    ratio: float
    curvature: float = 0.0
    beyond_sd: float = 0.0
    along: Floats | None = None

    def one_sided_sds(self, influence: Floats) -> Floats:
        """Return the upper layer along each coefficient in sds of its noise, shape (p,).

        It is large where the scores of the layer agree in sign, and 0 without noise.
        """
        noise = self.upper_sd * np.linalg.norm(influence, axis=1)
        size = np.abs(influence @ self.upper)
        ratios: Floats = np.divide(size, noise, out=np.zeros(len(size)), where=noise > 0.0)
        return ratios

    def bias(self, influence: Floats) -> Floats:
        """Return the bias to allow for in ``influence @ score``.

        As in least squares by a second look, but no less than `ONE_SIGN` of all that lies beyond the clip:
        counts are skewed, and their largest scores are more of one sign than the layer below. Of what the
        Hessian's clip may take, half. Where the direction of the tail is known, `ONE_SIGN` applies along it,
        which moves the constant alone, and `ONE_SIGN_ACROSS` to every direction.
        """
        size = np.linalg.norm(influence, axis=1)
        allowed = ALLOWED * size_between_thresholds(
            influence @ self.upper, self.upper_sd * size, self.between * size
        )
        least = ONE_SIGN * size
        if self.along is not None:
            least = np.maximum(ONE_SIGN * np.abs(influence @ self.along), ONE_SIGN_ACROSS * size)
        return np.asarray(
            self.ratio * np.maximum(allowed, least * self.between) + 0.5 * self.curvature * size
        )

    def bias_along(self, influence: Floats, directions: Floats) -> Floats:
        """Return the bias in ``influence @ score`` if the tail has one of these directions, shape (k,).

        The length of a direction, at most 1, is the share of the tail that has it (`privinf.glm.long_rows`).
        The tail is what the counts show and one sd of its noise.
        """
        along = np.abs(influence @ directions.T).max(axis=1, initial=0.0)
        size = np.linalg.norm(influence, axis=1)
        excess = self.ratio * self.between + self.beyond_sd
        return np.asarray(excess * along + 0.5 * self.curvature * size)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class GLMNewtonPath:
    """The way to the final release.

    Attributes
    ----------
    path : list of ndarray
        Iterates in z.
    walking : bool
        Whether the last round moved far.
    second : ndarray, shape (p, p)
        Second moments of z, from the start.
    margin : float
        How many times its floor a Hessian must be not to be called weak.
    is_small : bool
        Whether rows and budget are few against coefficients, by the public rule of sizes.
    """

    path: list[Floats]
    walking: bool
    second: Floats
    margin: float = 1.0
    is_small: bool = False


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class OneStepRelease:
    """The final release of a curved fit, in the whitened units of `place`.

    Attributes
    ----------
    place : ExpansionPoint
        theta_T and W.
    score, hessian : Noisy
        S and the secant Hessian H.
    meat : ndarray, shape (p, p)
        Positive definite.
    allowance : float
        Variance of what weights and clips leave out, in every direction.
    walk : GLMNewtonPath
    hidden : TailBias or None
        Of a Poisson model.
    far : float
        How far a wrong mean may move a logistic model's score by the weights of rows far out, in standard
        errors: what the weights leave out, times the mean curvature. In real tables that mean was off
        by 0.2 to 1.6 of the curvature there.
    dispersion : float
        Of a Poisson model: the trace of the meat over the Hessian's, 1 if the variance is the mean.
    lost : float
        Largest mean curvature that weights and clips take from the Hessian, by the counts.
    alpha : Dispersion or None
        Of negative binomial counts.
    """

    place: ExpansionPoint
    score: Noisy
    hessian: Noisy
    meat: Floats
    allowance: float
    walk: GLMNewtonPath
    hidden: TailBias | None = None
    far: float = 0.0
    dispersion: float = 1.0
    lost: float = 0.0
    alpha: Dispersion | None = None

    @property
    def estimate(self) -> Floats:
        """One Newton step from theta_T, in z."""
        values, vectors = self.hessian.floored()
        step = vectors @ ((vectors.T @ self.score.mean) / values)
        return self.place.theta + self.place.transform.T @ step

    def influence(self, to_user: Floats) -> Floats:
        """Return what turns the score into the last step in the user's units, shape (p, p).

        `to_user` turns z into these units.
        """
        values, vectors = self.hessian.floored()
        return np.asarray(to_user @ self.place.transform.T @ (vectors / values) @ vectors.T)


def fit_curved(sums: CurvedSums, *, robust: bool = True) -> OneStepRelease | GLMNewtonPath:
    """Return the final release of a fit; where a Hessian shows nothing but noise, the way so far.

    Without noise it runs to convergence.

    Raises
    ------
    ConvergenceError
        Without noise: no convergence; it names the columns that separate the outcomes.
    NotPositiveDefiniteError
        Without noise: columns repeat one another.
    """
    size = sums.n * sums.mu / sums.p**1.5
    shares = Shares.from_size(size) if sums.alpha is None else Shares.for_mixed_counts(size)
    place, second = start(sums, shares)
    rare = None
    # Not in a logistic model: held back, its weights leave out more of the outlying rows of weak fits.
    if sums.family == "poisson" and sums.indicators.any():
        rare = rare_indicators(second, sums.constant, sums.indicators)
    path = [place.theta]
    walking = False
    exact = math.isinf(sums.mu)
    for number in range(1, (NEWTON_ROUNDS if exact else shares.rounds) + 1):
        before = place
        label = Labels.SCORE_AND_HESSIAN_OF_ROUND.format(round=number)
        place, moved, hessian = one_round(sums, place, shares.of_round(number), label, rare)
        path.append(place.theta)
        if exact and (number > OVERSHOOTING or moved <= TOLERANCE):
            inverse = np.linalg.inv(before.transform)
            information = inverse @ hessian.mean @ inverse.T
            check_finite_maximum(information, second, sums.n, sums.names, sums.family)
        walking = moved > (SHORT_MOVE if sums.family == "binomial" else SHORT_COUNTS)
        if sums.alpha is not None and (exact or number == 1):
            place, changed = with_dispersion(sums, place, second)
            moved = max(moved, changed) if exact else moved
        if exact:
            if moved <= TOLERANCE:
                break
        elif np.linalg.eigvalsh(hessian.mean)[-1] <= hessian.floor:
            return GLMNewtonPath(path=path, walking=walking, second=second)
        elif (number == 2 and moved <= shares.second_move) or (
            not walking and np.linalg.eigvalsh(hessian.mean)[0] > 0.5 * hessian.floor
        ):
            break
    if exact and walking:
        raise ConvergenceError(
            f"Newton's method did not converge in {NEWTON_ROUNDS} rounds: the coefficients may be infinite"
        )
    way = GLMNewtonPath(
        path=path, walking=walking, second=second, margin=shares.margin, is_small=shares.is_small
    )
    if sums.alpha is None:
        return final(sums, place, shares, way, robust=robust)
    sums.spent += FINAL
    release = final(sums, place, shares, way, robust=robust)
    sums.spent -= FINAL
    return replace(release, alpha=estimate_dispersion(sums, release.estimate, second, FINAL, last=True))


def with_dispersion(sums: CurvedSums, at: ExpansionPoint, second: Floats) -> tuple[ExpansionPoint, float]:
    """Set the working dispersion by a release at `at`; return the place, and by how much it changed.

    The curvature there changes by about as much as that of a record of the mean response.
    """
    before = float(sums.alpha or 0.0)
    level = sums.weighted(sums.mean_response)
    estimate = estimate_dispersion(sums, at.theta, second, FIRST_ESTIMATE, last=False)
    sums.alpha = estimate.value if math.isinf(sums.mu) else working_alpha(estimate)
    ratio = sums.weighted(sums.mean_response) / level
    return replace(at, curvature=at.curvature * ratio), abs(sums.alpha - before)


# ---- the start


def start(sums: CurvedSums, shares: Shares) -> tuple[ExpansionPoint, Floats]:
    """Return where to start, and the Gram: W from it, slopes along the whitened covariance of z and y.

    With a normal predictor, Cov(z, y) is the mean curvature times Cov(z, predictor); the covariance's noise
    is taken from its length, and two of its sds, so that a start is not too far out.
    """
    score, gram = sums.start(shares.start, shares.gram)
    sums.moment_sd = gram.sd
    columns = sums.start_columns
    constant = sums.constant
    free = np.isin(columns, sums.free)
    fixed = sums.linear[columns]
    if math.isinf(sums.mu):
        check_full_rank(gram.mean[np.ix_(free, free)], sums.names)
    second = gram.lifted()  # an offset may be constant, or go with the other columns
    mean = np.zeros(len(columns))
    rate = 0.5
    slopes = free.copy()
    if constant is not None:
        at = int(np.flatnonzero(columns == sums.free[constant])[0])
        mean = second[at]
        slopes[at] = False
        margin = min(max(2.0 * score.sd, 1.0 / sums.n), 0.5)
        rate = float(np.clip(score.mean[at] + 0.5, margin, 1.0 - margin))
    spread = second - np.outer(mean, mean)
    scales, axes = Noisy(spread[np.ix_(slopes, slopes)], gram.sd).floored()
    along = axes.T @ (score.mean - mean * (rate - 0.5))[slopes] / np.sqrt(scales)
    length = _length_of(along, score.sd**2 / scales)
    low, high = sums.response
    sums.mean_response = low + (high - low) * rate
    level, size, curvature = _predictor(sums, sums.mean_response, (high - low) * length, shares)
    beta = size * (axes @ (along / np.sqrt(scales))) / max(float(np.linalg.norm(along)), 1e-300)
    # What goes with an offset is the offset's.
    beta -= axes @ ((axes.T @ (spread @ fixed)[slopes]) / scales)
    theta = np.zeros(len(columns))
    theta[slopes] = beta
    if constant is not None:
        theta[at] = level - sums.level - mean @ (theta + fixed)
    values, vectors = Noisy(gram.mean[np.ix_(free, free)], gram.sd).floored()
    return ExpansionPoint(theta[free], _power(values, vectors, -0.5), curvature), second[np.ix_(free, free)]


def _length_of(vector: Floats, variance: Floats) -> float:
    """Return a noisy vector's length without its noise, two sds of its square below what is likely."""
    square = max(float(vector @ vector - variance.sum()), 0.0)
    sd = math.sqrt(float(2.0 * (variance**2).sum() + 4.0 * (vector**2 * variance).sum()))
    return math.sqrt(max(square - 2.0 * sd, 0.0))


def _predictor(sums: CurvedSums, mean: float, length: float, shares: Shares) -> tuple[float, float, float]:
    """Return level, sd and mean curvature of a normal predictor with this mean and covariance length."""
    if sums.family == "poisson":
        size = min(length / mean, shares.steepest)
        return math.log(mean) - size**2 / 2.0, size, sums.weighted(mean)

    @cache
    def level_of(size: float) -> float:
        if sums.constant is None:
            return 0.0
        return float(brentq(lambda at: NODE_WEIGHTS @ expit(at + size * NODES) - mean, -60.0, 60.0))

    @cache
    def curvature_of(size: float) -> float:
        means = expit(level_of(size) + size * NODES)
        return float(NODE_WEIGHTS @ (means * (1.0 - means)))

    size = shares.steepest
    if size * curvature_of(size) > length:
        size = float(brentq(lambda at: at * curvature_of(at) - length, 0.0, size)) if length > 0.0 else 0.0
    return level_of(size), size, curvature_of(size)


def _power(values: Floats, vectors: Floats, exponent: float) -> Floats:
    return np.asarray((vectors * values**exponent) @ vectors.T)


# ---- rounds


def one_round(
    sums: CurvedSums, at: ExpansionPoint, share: float, label: str, rare: Flags | None = None
) -> tuple[ExpansionPoint, float, Noisy]:
    """Make one round from `at`; return where it ends, how far predictors moved, and the Hessian.

    Score and Hessian cost this `share` of mu^2, half each; `rare` are the columns of rare levels.
    Where the noise alone moves a Poisson model's predictors further than the step, that counts: a step that
    was shrunk away has not shown that none is needed.
    """
    bounds = choose_bounds(sums, at, ROUND_COUNTS, share / 2.0, share / 2.0)
    score, hessian = sums.step(at, bounds.score, bounds.curvature, share, label)
    move = newton_move(score, hessian, None if rare is None else at.transform, rare)
    theta = at.theta + at.transform.T @ move.step
    moved = max(move.moved, move.noise) if sums.family == "poisson" else move.moved
    return ExpansionPoint(theta, move.whitening @ at.transform, move.level), moved, hessian


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class NewtonMove:
    """A Newton step by a noisy score and Hessian, shrunk as its noise requires.

    Attributes
    ----------
    step : ndarray, shape (p,)
        In whitened units.
    whitening : ndarray, shape (p, p)
        Of the Hessian, by which the units become whitened again.
    level : float
        Mean curvature.
    moved, noise : float
        How far the step, and noise alone, move predictors, root mean square.
    """

    step: Floats
    whitening: Floats
    level: float
    moved: float
    noise: float


def newton_move(
    score: Noisy, hessian: Noisy, transform: Floats | None = None, rare: Flags | None = None
) -> NewtonMove:
    r"""Return the step of a score and a Hessian, no longer than `LONGEST_MOVE`.

    Parameters
    ----------
    score, hessian : Noisy
    transform : ndarray, shape (p, p), optional
        W of the whitened units.
    rare : ndarray of bool, shape (p,), optional
        Columns of rare levels.

    Notes
    -----
    A step is shrunk by one factor in all directions, and W stretched by the root of h / lambda along an
    eigenvector u of the Hessian. Where noise hides lambda, it is its floor. That is right for columns that
    nearly repeat one another: no row is long. But the rows of a rare level have the length |W'u| along u, and
    their curvature is clipped at K. Of a level with the share pi of the rows the Hessian shows pi K,
    however far W is stretched, and every round stretches it again; pi K is next to the floor, which is a
    multiple of K too, for few rows. The scores of these rows become the
    longest ones by far. They raise the clip of all scores, and the noise of all coefficients with it.

    So, if `hidden_directions` finds some,

    - W is stretched along them until the rows of the level have the squared length `LONGEST_RARE` p;
    - h is the mean of the other eigenvalues, and the factor of the other directions is made from their steps
      alone;
    - a hidden direction is shrunk by tau^2 / (tau^2 + s^2), s^2 the variance of its noise and tau^2 the mean
      square of the other steps less their noise: in whitened units the steps of all directions have about
      one size.
    """
    values, vectors = hessian.floored()
    step = (vectors.T @ score.mean) / values
    variance = np.square(score.sd / values)
    level = float(values.mean())
    stretched = values
    hidden = np.zeros(len(values), dtype=bool)
    if transform is not None and rare is not None and rare.any():
        coefficients = vectors.T @ transform
        hidden = hidden_directions(values, hessian.floor, coefficients, rare)
    if hidden.any() and not hidden.all():
        clear = ~hidden
        level = float(values[clear].mean())
        signal = max(float(np.mean(step[clear] ** 2 - variance[clear])), 0.0)
        step[clear] *= shrinkage(step[clear], variance[clear])
        step[hidden] *= signal / (signal + variance[hidden])
        lengths = np.sum(np.square(coefficients[hidden]), axis=1)
        stretch = np.clip(LONGEST_RARE * len(step) / lengths, 1.0, level / values[hidden])
        stretched = values.copy()
        stretched[hidden] = level / stretch
    else:
        step *= shrinkage(step, variance)
    moved = math.sqrt(float(step @ (values * step)) / level)
    if moved > LONGEST_MOVE:
        step *= LONGEST_MOVE / moved
    return NewtonMove(
        step=vectors @ step,
        whitening=_power(stretched / level, vectors, -0.5),
        level=level,
        moved=moved,
        noise=math.sqrt(float(variance @ values) / level),
    )


def hidden_directions(values: Floats, floor: float, coefficients: Floats, rare: Flags) -> Flags:
    """Return which directions rare levels carry and the noise hides, shape (p,).

    Parameters
    ----------
    values : ndarray, shape (p,)
        Eigenvalues of a Hessian, not below the floor.
    floor : float
        About the operator norm of its noise.
    coefficients : ndarray, shape (p, p)
        W'u in rows, u the eigenvectors: what a step along u does to the coefficients of z.
    rare : ndarray of bool, shape (p,)
    """
    squares = np.square(coefficients)
    carried = squares[:, rare].sum(axis=1) > CARRIED * squares.sum(axis=1)
    return np.asarray((values <= HIDDEN_CURVATURE * floor) & carried)


def shrinkage(step: Floats, variance: Floats) -> float:
    """Return by how much to shrink a step whose noise has these variances: empirical Bayes."""
    signal = max(float(np.mean(step**2 - variance)), 0.0)
    noise = float(variance.mean())
    return signal / (signal + noise) if noise > 0.0 else 1.0


# ---- the end


def final(
    sums: CurvedSums, at: ExpansionPoint, shares: Shares, walk: GLMNewtonPath, *, robust: bool
) -> OneStepRelease:
    """Make the final release at `at` with all that is left of the budget."""
    if sums.family == "poisson" and not math.isinf(sums.mu):
        return final_layers(sums, at, shares, walk, robust=robust)
    share = 1.0 - sums.spent - FINAL_COUNTS - (FINAL_MEAT if robust else 0.0)
    for_score = share * shares.score
    for_hessian = share * (1.0 - shares.score)
    bounds = choose_bounds(sums, at, FINAL_COUNTS, for_score, for_hessian)
    bound_args = {} if sums.family == "poisson" else {"score_bound": bounds.score}
    score = sums.score(at, for_score, high=bounds.score, **bound_args)
    towards = preliminary_step(score, at)
    size = sums.meat(at, FINAL_MEAT, high=bounds.score, **bound_args) if robust else None
    hessian = sums.secant(at, towards, for_hessian, clip=bounds.curvature, **bound_args)
    values, vectors = hessian.floored()
    step = vectors @ ((vectors.T @ score.mean) / values)
    allowance = (misfit_of(at) * bounds.score_excess) ** 2 / sums.p
    allowance += bounds.curvature_excess**2 * float(step @ step) / (4.0 * sums.p)
    meat = sampling_meat(hessian, size, sums.weight_unit)
    error = math.sqrt(float(np.trace(meat)) / (sums.p * sums.n) + score.sd**2)
    far = at.curvature * bounds.score_excess / error if error > 0.0 else 0.0
    spread = float(np.trace(meat) / np.trace(hessian.mean)) if sums.family == "poisson" else 1.0
    # A weight B/q takes c (q - B)/q <= (q - B)/(4 B), a weight K/k takes (k - K)/|v|^2 <= (k - K)/(4 K).
    lost = 0.25 * (bounds.score_excess / bounds.score + bounds.curvature_excess / bounds.curvature)
    return OneStepRelease(
        place=at,
        score=score,
        hessian=hessian,
        meat=meat,
        allowance=allowance,
        walk=walk,
        far=far,
        dispersion=spread,
        lost=lost,
    )


def final_layers(
    sums: CurvedSums, at: ExpansionPoint, shares: Shares, walk: GLMNewtonPath, *, robust: bool
) -> OneStepRelease:
    """Make the final release of a Poisson model: scores in two layers, clipped where counts of them say."""
    meat = (LAYERS_MEAT if sums.alpha is None else MIXED_MEAT) * robust
    tail = residual_tail(sums, at, LAYERS_COUNTS if sums.alpha is None else MIXED_COUNTS, coarse=False)
    share = 1.0 - sums.spent - FINAL_COUNTS / 2.0 - meat
    for_score = share * shares.score
    for_hessian = share * (1.0 - shares.score)
    large, excess = curvature_bound(sums, at, FINAL_COUNTS / 2.0, for_hessian)
    clip = two_threshold_clip(tail, sums.p, sums.price(for_score), shares.excess_weight)
    low, high = clip.shares()
    lower = sums.score(at, for_score * low, high=clip.low)
    upper = sums.score(at, for_score * high, low=clip.low, high=clip.high)
    score = Noisy(lower.mean + clip.weight * upper.mean, math.hypot(lower.sd, clip.weight * upper.sd))
    towards = preliminary_step(score, at)
    size = sums.meat(at, meat, middle=clip.low, high=clip.high, upper=clip.weight) if robust else None
    hessian = sums.secant(at, towards, for_hessian, clip=large)
    values, vectors = hessian.floored()
    step = vectors @ ((vectors.T @ score.mean) / values)
    sampling = sampling_meat(hessian, None, sums.weight_unit) if size is None else shrunk(size.mean, size.sd)
    lost = excess / sums.n * float(np.linalg.norm(step))
    hidden = TailBias(
        upper=upper.mean,
        upper_sd=upper.sd,
        between=clip.between / sums.n,
        ratio=clip.ratio,
        curvature=lost,
        beyond_sd=clip.beyond_sd / sums.n,
        along=None if sums.alpha is None else _mean_direction(sums, at, hessian),
    )
    spread = float(np.trace(sampling)) / max(float(np.trace(hessian.mean)), hessian.floor)
    return OneStepRelease(
        place=at,
        score=score,
        hessian=hessian,
        meat=sampling,
        allowance=0.0,
        walk=walk,
        hidden=hidden,
        dispersion=spread,
        lost=excess / sums.n * _largest_weight(sums, at),
    )


def _largest_weight(sums: CurvedSums, at: ExpansionPoint) -> float:
    """Return the largest 1/|v|^2 of a record: |u|^2 with u'v the constant; 0 without a constant."""
    constant = _constant_form(sums, at)
    return 0.0 if constant is None else float(constant @ constant)


def _constant_form(sums: CurvedSums, at: ExpansionPoint) -> Floats | None:
    """Return u with u'v the constant; None without a constant."""
    if sums.constant is None:
        return None
    return np.asarray(np.linalg.solve(at.transform.T, np.eye(sums.p)[sums.constant]))


def _mean_direction(sums: CurvedSums, at: ExpansionPoint, hessian: Noisy) -> Floats | None:
    """Return the direction of the weighted mean of v, which is H u with u'v the constant."""
    constant = _constant_form(sums, at)
    if constant is None:
        return None
    mean = hessian.mean @ constant
    return np.asarray(mean / max(float(np.linalg.norm(mean)), 1e-300))


def preliminary_step(score: Noisy, at: ExpansionPoint) -> Floats:
    """Return about the step that a score requires."""
    step = score.mean / at.curvature
    return step * min(1.0, LONGEST_SECANT / max(float(np.linalg.norm(step)), 1e-300))


def sampling_meat(hessian: Noisy, meat: Noisy | None, unit: float) -> Floats:
    """Return the meat, positive definite: the Hessian, or what was released, shrunk toward its shape.

    Scores are in this unit: where their variance is the Hessian H, it is H / unit in units of their own.
    """
    lifted = _lifted(hessian.mean, hessian.floor / 4.0)
    if meat is None:
        return lifted / unit
    return shrunk(meat.mean, meat.sd, lifted * (len(lifted) / float(np.trace(lifted))))


def _lifted(matrix: Floats, low: float) -> Floats:
    values, vectors = np.linalg.eigh(matrix)
    return _power(np.maximum(values, max(low, 1e-12 * values[-1])), vectors, 1.0)


# ---- where the sums are clipped, by noisy counts


@dataclass(frozen=True, slots=True)
class Bounds:
    """B and K, and what is left beyond them: mean excesses of the score's size and of the Hessian's."""

    score: float
    curvature: float
    score_excess: float = 0.0
    curvature_excess: float = 0.0


def choose_bounds(
    sums: CurvedSums, at: ExpansionPoint, share: float, score: float, curvature: float
) -> Bounds:
    """Return B and K from noisy counts; `score` and `curvature` are the shares that they are for.

    B weighs the noise of the score, p (2 B / mu)^2, against what weights beyond B leave out times `MISFIT`,
    and K likewise: 4 p (K / mu)^2 against the excess.
    """
    if math.isinf(sums.mu):
        return no_bounds(sums, at)
    p = sums.p
    half = share / 2.0
    if sums.family == "poisson":
        large, excess_beyond = curvature_bound(sums, at, half, curvature)
        tail = residual_tail(sums, at, half, coarse=True)
        mu = sums.price(score)
        bound = best_clip(tail, lambda c: p * (2.0 * c / mu) ** 2 + (0.5 * tail.excess(c)) ** 2)
        return Bounds(bound, large, 0.0, excess_beyond / sums.n)
    sizes = SCORE_SIZES * math.sqrt(p)
    top = sums.radius * float(np.linalg.norm(at.transform, 2))
    edges = np.append(sizes[sizes < top / 1.05], top)
    counts, sd = sums.counts(at, "score", edges, half)
    lowest = quantile_of(edges, counts, (1.0 - LOWEST_QUANTILE) * sums.n)
    cost = 4.0 * p / sums.price(score) ** 2
    bound, excess = clip_of(edges, counts, sd, sums.n, cost, WIDE_MISFIT, lowest, sums.detection_sds)
    if cost / p * bound**2 > CHEAP * at.curvature * sums.n:
        affordable = math.sqrt(CHEAP * at.curvature * sums.n * p / cost)
        lowest = max(lowest, min(affordable, bound))
        bound, excess = clip_of(edges, counts, sd, sums.n, cost, misfit_of(at), lowest, sums.detection_sds)
    edges = CELLS * 2.0 * at.curvature * bound * math.sqrt(p)
    large, excess_beyond = _curvature_bound(sums, at, edges, half, curvature, score_bound=bound)
    return Bounds(bound, large, excess / sums.n, excess_beyond / sums.n)


def misfit_of(at: ExpansionPoint) -> float:
    """Return what share of what weights leave out may move the score: less where the curvature is small."""
    return max(LEAST_MISFIT, MISFIT * at.curvature)


def residual_tail(sums: CurvedSums, at: ExpansionPoint, share: float, *, coarse: bool) -> Tail:
    """Return the tail of |v e| from counts below the largest that the public bounds allow."""
    length = sums.radius * float(np.linalg.norm(at.transform, 2))
    high = sums.response[1]
    predictor = float(np.abs(at.theta).sum() + np.abs(sums.linear).sum() + abs(sums.level))
    top = length * max(high, min(math.exp(min(predictor, LARGEST_LOG)), LARGEST_MEAN * high))
    ratio = math.pow(2.0, 0.5 if coarse else 0.25)
    lowest = LOWEST_SCORE * math.sqrt(sums.p * at.curvature)
    cells = min(max(math.ceil(math.log(max(top / lowest, 1.0)) / math.log(ratio)), 1), MOST_SCORE_THRESHOLDS)
    thresholds = top * ratio ** np.arange(-cells, 0, dtype=np.float64)

    def release_counts(cuts: Floats, part: float) -> tuple[Floats, Floats]:
        return sums.counts(at, "residual", cuts, part * share)

    if coarse:
        tail = tail_of(
            thresholds,
            *release_counts(thresholds, 1.0),
            sums.n,
            top,
            visible_sds=VISIBLE_SDS_BEFORE,
            flattest=2.0,
        )
    else:
        tail = confirmed_tail(release_counts, thresholds, sums.n, top)
    return tail if sums.alpha is None else with_exponential_end(tail)


def curvature_bound(
    sums: CurvedSums, at: ExpansionPoint, share: float, curvature: float
) -> tuple[float, float]:
    """Return K of a Poisson model, and the summed excess beyond it."""
    return _curvature_bound(sums, at, CELLS * 2.0 * at.curvature * sums.p, share, curvature)


def _curvature_bound(
    sums: CurvedSums, at: ExpansionPoint, edges: Floats, share: float, curvature: float, **bounds: float
) -> tuple[float, float]:
    """Return K and the summed excess beyond it."""
    counts, sd = sums.counts(at, "curvature", edges, share, **bounds)
    coarse = math.sqrt(2.0) / sums.price(share) > MOST_NOISE * sums.n
    lowest = 1.5 * at.curvature * sums.p if coarse else 0.0
    cost = 4.0 * sums.p / sums.price(curvature) ** 2
    return clip_of(edges, counts, sd, sums.n, cost, 1.0, min(lowest, float(edges[-1])), sums.detection_sds)


def quantile_of(edges: Floats, counts: Floats, level: float) -> float:
    """Return the first edge that at most `level` records pass."""
    passed = np.flatnonzero(np.maximum.accumulate(counts[::-1])[::-1] <= level)
    return float(edges[passed[0] if len(passed) else -1])


def no_bounds(sums: CurvedSums, at: ExpansionPoint) -> Bounds:
    """Return B and K that no row inside the public bounds reaches."""
    length = sums.radius * float(np.linalg.norm(at.transform, 2)) * ROOM
    if sums.family == "binomial":
        return Bounds(length, length**2 / 4.0)
    largest_mean = math.exp(
        min(float(np.abs(at.theta).sum() + np.abs(sums.linear).sum() + abs(sums.level)) + 1.0, LARGEST_LOG)
    )
    return Bounds(length * max(largest_mean, sums.response[1]), length**2 * largest_mean)


def clip_of(
    edges: Floats,
    counts: Floats,
    sd: Floats,
    n: int,
    cost: float,
    weight: float,
    lowest: float,
    detection_sds: float,
) -> tuple[float, float]:
    """Return the clip c >= least that minimises cost c^2 + (weight X(c))^2, and X(c), the excess beyond it.

    X(c) = sum (t - c)+ is the integral of the counts above t, made nonincreasing (`decreasing`); those below
    `detection_sds` of their sds count as none.
    """
    clips = np.geomspace(edges[0], edges[-1], FINE * (len(edges) - 1) + 1)
    fitted = decreasing(counts, sd)
    above = np.where(fitted < detection_sds * sd, 0.0, fitted)
    above = np.minimum(np.maximum.accumulate(above[::-1])[::-1], n)
    parts = np.diff(edges) * (above[:-1] + above[1:]) / 2.0
    excess = np.interp(clips, edges, np.append(np.cumsum(parts[::-1])[::-1], 0.0))
    loss = cost * clips**2 + (weight * excess) ** 2
    loss[clips < lowest * (1.0 - 1e-12)] = math.inf
    best = int(loss.argmin())
    return float(clips[best]), float(excess[best])
