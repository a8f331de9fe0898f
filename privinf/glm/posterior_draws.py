r"""Intervals of a curved fit, from draws of what its final release leaves open; a posterior where it is weak.

In the whitened units of the final release, H = H_0 + N with N the known noise, and S = H_0 D + e with e of
covariance V = meat/n + sigma_S^2 I + allowance: the coefficients' distance D from theta_T has the draws

.. math:: (H - N)^{-1} (S - e).

Where H does not stand clear of its noise these have no moments, and intervals by them may miss. There a named
prior is put on the coefficients, N(0, 10^2) for the constant and N(0, 5^2) for the others, in units in which
columns are in [-1, 1], and H_0 is integrated over its noise: draws H - N that are positive definite are
weighted by the density of S, N(H m, H T H + V), with m and T the prior's moments of D. So it is where rows
are few against coefficients and the last step was too long: a table of a thousand rows has no more to give.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from privinf.glm.column_moments import column_moments, has_two_values
from privinf.glm.curved import GLMNewtonPath, OneStepRelease, preliminary_step
from privinf.glm.curved_sums import ExpansionPoint, Noisy
from privinf.glm.newton import OneStep
from privinf.inference.factorization import exceeds, solved
from privinf.inference.one_step import OneStepScores, step_noise
from privinf.schema import Design
from privinf.typing import Flags, Floats

DRAWS = 4000  # of the coefficients' distance D
FEWER_DRAWS = 1500  # the same where columns are many: each draw inverts a matrix
MANY_COLUMNS = 20  # from one more column on
LEAST_DRAWN = 0.02  # least eigenvalue of a drawn Hessian, relative to the mean one
PRIOR_CONSTANT = 10.0  # sd of the named prior on the constant, see above
PRIOR_SLOPE = 5.0  # sd of the named prior on slopes, in units in which columns are in [-1, 1]
# Prior influence (`prior_influence`) above which a coefficient is called weakly identified. At this
# influence, a normal posterior of a value k prior sds from the prior's mean has a bias of 0.2 k posterior
# sds. It covers with probability 0.950 (k = 1), 0.944 (1.5) and 0.936 (2); k = 2 is a slope of 10 in scaled
# units.
LARGEST_PRIOR_INFLUENCE = 0.2
# Bias by the prior (`prior_bias`), in posterior sds, above which a coefficient of logistic or count models is
# called weakly identified: that of the prior influence 0.2 on a value 2 prior sds from the prior's mean.
LARGEST_PRIOR_BIAS = 0.4
PRIOR_BIAS_LEVEL = 0.9  # quantile of that bias over the draws
FEWEST_KEPT = 200  # positive definite draws of the Hessian that suffice for a posterior; else all are made so
# A last step that moves predictors further (root mean square) leaves a remainder that intervals do not
# include.
LONGEST_SHIFT = 1.2
WALKING_SHIFT = 0.6  # the same where the round before had not come to rest
# Squared length of the last step in standard errors, a coefficient, that leaves such a remainder: the more
# the step moves predictors (key: up to so much), the shorter it may be.
LONGEST_STEP2 = {0.3: math.inf, 0.9: 12.0, LONGEST_SHIFT: 8.0}
# Part of the largest skewness of an indicator that intervals allow for: the curvature changes by less than
# its own size, and a step is too long where the curvature is too small (benchmarks/results/long_steps.md).
INDICATOR_SKEWNESS = 0.5
LEAST_BIAS = 0.1  # standard errors of a coefficient: a smaller bias of the last step is ignored


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PosteriorDraws:
    """Draws of coefficients in z, shape (draws, p), and what they say of the fit.

    Attributes
    ----------
    params : ndarray, shape (p,)
        The estimate: one Newton step, or the posterior's mean.
    draws : ndarray, shape (draws, p)
    weak : bool
        Whether they are from the posterior.
    length2, shift : float
        The last step: its mean square in standard errors, and by how much it moved linear predictors.
    converged : bool
    sampling : ndarray, shape (p, p)
        Covariance that the rows alone would leave.
    """

    params: Floats
    draws: Floats
    weak: bool
    length2: float
    shift: float
    converged: bool
    sampling: Floats


# The draws of the last final release and what they were made from: a fit, its summary and its intervals need
# the same ones.
_LAST_DRAWS: list[tuple[tuple[object, ...], PosteriorDraws]] = []


def drawn(step: OneStepRelease, n: int, constant: int | None) -> PosteriorDraws:
    """Return the draws that a final release of `n` rows leaves, made from a seed of its own bytes.

    The last draws are kept, read-only, for the next call with the same release.
    """
    key = (*_parts_of(step), n, constant)
    for last, draws in list(_LAST_DRAWS):
        if last == key:
            return draws
    draws = _drawn(step, n, constant)
    draws.draws.flags.writeable = False
    _LAST_DRAWS[:] = [(key, draws)]
    return draws


def _drawn(step: OneStepRelease, n: int, constant: int | None) -> PosteriorDraws:
    """Return the draws of `drawn`, made now."""
    hessian = step.hessian
    score = step.score
    back = step.place.transform.T
    p = len(score.mean)
    rng = np.random.default_rng(_seed(step))
    count = FEWER_DRAWS if p > MANY_COLUMNS else DRAWS
    values, vectors = hessian.floored()
    move = vectors @ ((vectors.T @ score.mean) / values)
    variance = step.meat / n + (score.sd**2 + step.allowance) * np.eye(p)
    errors = rng.standard_normal((count, p)) @ np.linalg.cholesky(variance).T
    noise = symmetric_noise(rng, p, hessian.sd, count)
    hessians = np.subtract(hessian.mean, noise, out=noise)
    level = max(float(np.trace(hessian.mean)) / p, hessian.floor / p)
    weak = bool(np.linalg.eigvalsh(hessian.mean)[0] < step.walk.margin * hessian.floor)

    def posterior() -> Floats:
        mean, root = _prior(step, constant)
        matrices = np.ascontiguousarray(hessians)
        return _posterior(rng, matrices, score.mean, errors, variance, mean, root, LEAST_DRAWN * level)

    moves = posterior() if weak else _solved(hessians, score.mean - errors, LEAST_DRAWN * level)
    covariance = np.atleast_2d(np.cov(moves.T))
    length2 = squared_length(move, covariance) / p if hessian.sd or score.sd else 0.0
    shift = math.sqrt(max(float(move @ hessian.mean @ move), 0.0) / level)
    far = moves_too_far(shift, step.walk.walking) or length2 > longest_step2(shift)
    if far and step.walk.is_small and not weak:
        weak, moves = True, posterior()
    params = moves.mean(axis=0) if weak else move
    inverse = (vectors / values) @ vectors.T
    theta = step.place.theta
    return PosteriorDraws(
        params=theta + back @ params,
        draws=theta + moves @ back.T,
        weak=weak,
        length2=length2,
        shift=shift,
        converged=not far,
        sampling=back @ inverse @ step.meat @ inverse @ back.T / n,
    )


def prior_influence(step: OneStepRelease, draws: Floats, constant: int | None, contrasts: Floats) -> Floats:
    r"""Return by how many posterior sds contrasts move for each sd that the prior's mean moves, shape (k,).

    .. math:: \iota_k = \sqrt{k' C T^{-1} C k / k' C k},

    C the covariance of the draws of the coefficients, T that of their prior, both in z. It is 1 where the
    release says nothing of the contrast, and 0 where the prior does not matter.
    """
    covariance = np.atleast_2d(np.cov(draws.T))
    moved = contrasts @ covariance
    spread = np.sum(moved * contrasts, axis=1)
    return np.asarray(np.sqrt(np.sum((moved / prior_sds(step, constant)) ** 2, axis=1) / spread))


def prior_bias(step: OneStepRelease, draws: Floats, constant: int | None, contrasts: Floats) -> Floats:
    r"""Return the bias of contrasts by the prior that 90% of the draws do not exceed, shape (k,).

    Notes
    -----
    In posterior sds, for the coefficients beta of a draw,

    .. math:: |k' C T^{-1} \beta| / \sqrt{k' C k},

    C the covariance of the draws and T that of the prior, whose mean is zero, both in z. The mean of a normal
    posterior has this bias if beta is the truth. It is `prior_influence` times beta's distance from the
    prior's mean, in prior sds, where one coefficient has all of the influence.

    In weak fits of the lottery at epsilon 2, coefficients with a prior influence above 0.2 and a bias of at
    most 0.4 cover 0.99, and those with an influence below 0.2 and a larger bias 0.70
    (`benchmarks/results/lottery.md`).
    """
    covariance = np.atleast_2d(np.cov(draws.T))
    moved = contrasts @ covariance
    sds = np.sqrt(np.sum(moved * contrasts, axis=1))
    biases = np.abs(draws @ (moved / prior_sds(step, constant) ** 2).T)
    return np.asarray(np.quantile(biases, PRIOR_BIAS_LEVEL, axis=0) / sds)


def secant_bias(
    step: OneStepRelease, constant: int | None, indicators: Flags, to_user: Floats, bse: Floats
) -> Floats | None:
    r"""Return the bias that the last step may have because the curvature changes along it, shape (p,).

    Parameters
    ----------
    step : OneStepRelease
    constant : int or None
        Its place.
    indicators : ndarray of bool, shape (p,)
        Columns that are declared as indicators.
    to_user : ndarray, shape (p, p)
        From coefficients of z to the user's.
    bse : ndarray, shape (p,)
        Standard errors in the user's units.

    Returns
    -------
    ndarray or None
        In the user's units; 0 below `LEAST_BIAS` standard errors, and None if all are.

    Notes
    -----
    The released Hessian is a secant towards the preliminary step D'. Where the step D ends elsewhere, the
    secant to its end is another one. The curvature changes by about its own size where predictors move by 1,
    so to first order the coefficient of a column x moves by

    .. math:: \tfrac12 |D_j (D_j - D'_j)|\; E \tilde x^3 / E \tilde x^2,

    x~ the column about its mean. For a column with two values, most of whose rows have the nearer end of its
    bounds, the ratio is at most the distance from the mean to the farther end, of which half is allowed; it
    moves no predictor of rows at the nearer end. Other columns have one standard deviation, a skewness of 1.
    The constant has the same of predictors where columns with two values have the nearer end and others their
    mean, with ratio 1. No bias is larger than the step. Indicators have the ends 0 and 1, and other columns
    -1 and 1.

    Where this bias is large, intervals without it cover far too seldom (`benchmarks/results/long_steps.md`).
    """
    values, vectors = step.hessian.floored()
    move = vectors @ ((vectors.T @ step.score.mean) / values)
    back = step.place.transform.T
    moved = back @ move
    beyond_secant = moved - back @ preliminary_step(step.score, step.place)
    mean, variance = column_moments(step.walk.second, constant)
    two_valued = indicators | has_two_values(mean, variance)
    far = 1.0 + np.abs(mean)
    skewness = np.where(two_valued, INDICATOR_SKEWNESS * far, np.minimum(np.sqrt(variance), far))
    sizes = np.abs(moved) * np.minimum(0.5 * np.abs(beyond_secant) * skewness, 1.0)
    directions = np.eye(len(mean))
    if constant is not None:
        nearest = np.where(indicators, mean > 0.5, np.sign(mean))  # indicators are 0 or 1, others -1 or 1
        fixed = np.where(two_valued, nearest, mean)
        fixed[constant] = 1.0
        sizes[constant] = abs(float(fixed @ moved)) * min(0.5 * abs(float(fixed @ beyond_secant)), 1.0)
        directions[constant] = -fixed
        directions[constant, constant] = 1.0
    bias = np.abs(to_user @ directions) @ sizes
    bias[bias < LEAST_BIAS * bse] = 0.0
    return bias if bias.any() else None


def moves_too_far(shift: float, walking: bool) -> bool:
    """Return whether a last step moved linear predictors too far for intervals.

    Parameters
    ----------
    shift : float
        By how much, root mean square.
    walking : bool
        Whether the round before had not come to rest.
    """
    return shift > LONGEST_SHIFT or (walking and shift > WALKING_SHIFT)


def longest_step2(shift: float) -> float:
    """Return the longest mean square, in standard errors, of a step that moves predictors by `shift`."""
    return next((limit for longest, limit in LONGEST_STEP2.items() if shift <= longest), 0.0)


def squared_length(move: Floats, covariance: Floats) -> float:
    """Return the squared length of a move in its standard errors; infinite where draws have no spread."""
    try:
        return max(float(move @ np.linalg.solve(covariance, move)), 0.0)
    except np.linalg.LinAlgError:
        return math.inf if move.any() else 0.0


def symmetric_noise(rng: np.random.Generator, p: int, sd: float, count: int) -> Floats:
    """Return noise of symmetric matrices, isotropic in the Frobenius norm, `sd` on the diagonal.

    In memory it lies entry by entry, as `factored` works on it.
    """
    entries = rng.standard_normal((count, p, p)).transpose(1, 2, 0)
    noise = np.empty((p, p, count))
    for k in range(p - 1):
        np.multiply(entries[k, k + 1 :], sd / math.sqrt(2.0), out=noise[k, k + 1 :])
        noise[k + 1 :, k] = noise[k, k + 1 :]
    noise[np.arange(p), np.arange(p)] = sd * rng.standard_normal((count, p)).T
    return np.asarray(noise.transpose(2, 0, 1))


DRAWN_EQUATION = """\
cov = covariance of draws of (H - N)^-1 (S - e); to first order
      H^-1 [ meat / n + s_S^2 I + a I + (s_H^2 / 2) (|D|^2 I + D D') ] H^-1
H, S: the noisy Hessian and score of the last step; N is the noise of H, e the error of S
sampling: meat / n; meat is the mean outer product of the scores, n the number of records
allowance for misfit: a I; a is the variance that clipping may hide
score noise: s_S^2 I; s_S is the standard deviation of the noise in S
Hessian noise: (s_H^2 / 2) (|D|^2 I + D D'); s_H is the standard deviation of the noise in H, D the last step
beyond first order: the rest of the draws' covariance, from inverting H with its noise and from simulation"""
POSTERIOR_EQUATION = (
    "cov: covariance of draws from the posterior; sampling, noise and prior are not separated"
)


def drawn_terms(step: OneStepRelease, noise_cov: Floats) -> dict[str, Floats]:
    """Return the terms of `noise_cov`, the draws' covariance less its sampling part."""
    values, vectors = step.hessian.floored()
    inverse = (vectors / values) @ vectors.T
    back = step.place.transform.T @ inverse
    scaled_terms = step_noise(inverse @ step.score.mean, step.score.sd, step.hessian.sd)
    scaled_terms["allowance for misfit"] = step.allowance * np.eye(len(values))
    terms = {name: back @ term @ back.T for name, term in scaled_terms.items()}
    return {**terms, "beyond first order": noise_cov - sum(terms.values())}


def noise_of_draws(posterior: PosteriorDraws, total: Floats) -> Floats | None:
    """Return the part of the covariance of the draws, `total`, that is noise; None of a weak posterior."""
    if posterior.weak:
        return None
    values, vectors = np.linalg.eigh(total - posterior.sampling)
    return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T)


def _parts_of(step: OneStepRelease) -> tuple[object, ...]:
    """Return everything that draws are made from."""
    walk = step.walk
    arrays = (*_seed_parts(step), walk.second)
    numbers = (step.score.sd, step.hessian.sd, step.allowance, walk.margin, walk.walking, walk.is_small)
    return (*(np.ascontiguousarray(array, dtype="<f8").tobytes() for array in arrays), *numbers)


def _seed_parts(step: OneStepRelease) -> tuple[Floats, ...]:
    return step.place.theta, step.place.transform, step.score.mean, step.hessian.mean, step.meat


def _seed(step: OneStepRelease) -> int:
    """Return a seed from the release: anybody who has it makes the same draws."""
    text = b"".join(np.ascontiguousarray(part, dtype="<f8").tobytes() for part in _seed_parts(step))
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "big")


def _solved(matrices: Floats, vectors: Floats, low: float) -> Floats:
    """Return matrix^-1 vector, draw by draw, eigenvalues not below `low`."""
    above = exceeds(matrices, low)
    if above.all():
        return solved(matrices, vectors)
    solutions = np.empty_like(vectors)
    solutions[above] = solved(matrices[above], vectors[above])
    values, axes = np.linalg.eigh(matrices[~above])
    along = np.einsum("nji,nj->ni", axes, vectors[~above]) / np.maximum(values, low)
    solutions[~above] = np.einsum("nij,nj->ni", axes, along)
    return solutions


def prior_sds(step: OneStepRelease, constant: int | None) -> Floats:
    """Return the sds of the named prior of the coefficients in z."""
    sds = np.full(len(step.place.theta), PRIOR_SLOPE)
    if constant is not None:
        sds[constant] = PRIOR_CONSTANT
    return sds


def _prior(step: OneStepRelease, constant: int | None) -> tuple[Floats, Floats]:
    """Return mean and root of the covariance of D in whitened units, by the prior of the coefficients."""
    inverse = np.linalg.inv(step.place.transform.T)
    return -inverse @ step.place.theta, inverse * prior_sds(step, constant)


def _posterior(
    rng: np.random.Generator,
    hessians: Floats,
    score: Floats,
    errors: Floats,
    variance: Floats,
    mean: Floats,
    root: Floats,
    low: float,
) -> Floats:
    """Return draws of D from its posterior, the Hessian integrated over its noise."""
    definite = exceeds(hessians, 0.0)
    if definite.sum() < FEWEST_KEPT:
        # Few draws are positive definite: all are made so.
        values, axes = np.linalg.eigh(hessians)
        hessians = np.einsum("nij,nj,nkj->nik", axes, np.maximum(values, low), axes)
    else:
        hessians = hessians[definite]
    spread = root @ root.T
    spreads = hessians @ spread @ hessians + variance
    away = score - hessians @ mean
    likelihood = -0.5 * (
        np.linalg.slogdet(spreads)[1]
        + np.einsum("ni,ni->n", away, np.linalg.solve(spreads, away[..., None])[..., 0])
    )
    weights = np.exp(likelihood - likelihood.max())
    chosen = rng.choice(len(hessians), size=len(errors), p=weights / weights.sum())
    hessians = hessians[chosen]
    spreads = spreads[chosen]
    # A draw of the prior, moved by the gain to where its score would be the one that was seen.
    moves = mean + rng.standard_normal(errors.shape) @ root.T
    missing = score - np.einsum("nij,nj->ni", hessians, moves) - errors
    solved = np.linalg.solve(spreads, missing[..., None])[..., 0]
    return np.asarray(moves + np.einsum("nij,nj->ni", hessians, solved) @ spread)


# ---- what files keep


def recorded(step: OneStepRelease) -> dict[str, Any]:
    """Return a final release as JSON takes it."""
    return {
        "theta": step.place.theta.tolist(),
        "transform": step.place.transform.tolist(),
        "level": step.place.curvature,
        "score": step.score.mean.tolist(),
        "score_sd": step.score.sd,
        "hessian": step.hessian.mean.tolist(),
        "hessian_sd": step.hessian.sd,
        "meat": step.meat.tolist(),
        "allowance": step.allowance,
        "walking": step.walk.walking,
        "second": step.walk.second.tolist(),
        "margin": step.walk.margin,
        "few": step.walk.is_small,
    }


def restored(record: Mapping[str, Any]) -> OneStepRelease:
    """Return a final release that `recorded` wrote, without its iterates."""
    arrays = {
        name: np.array(record[name], dtype=np.float64) for name in ("theta", "transform", "score", "hessian")
    }
    place = ExpansionPoint(arrays["theta"], arrays["transform"], float(record["level"]))
    second = np.array(record["second"], dtype=np.float64)
    walk = GLMNewtonPath(
        path=[],
        walking=bool(record["walking"]),
        second=second,
        margin=float(record["margin"]),
        is_small=bool(record.get("few", False)),
    )
    return OneStepRelease(
        place=place,
        score=Noisy(arrays["score"], float(record["score_sd"])),
        hessian=Noisy(arrays["hessian"], float(record["hessian_sd"])),
        meat=np.array(record["meat"], dtype=np.float64),
        allowance=float(record["allowance"]),
        walk=walk,
    )


# ---- score tests


def equation_of(step: OneStep) -> OneStepRelease:
    """Return the last Newton step of `GlmSums` as a final release in units that are not whitened."""
    eye = np.eye(len(step.params))
    return OneStepRelease(
        place=ExpansionPoint(step.start, eye, 1.0),
        score=Noisy(step.bread @ step.step, step.score_sd),
        hessian=Noisy(step.bread, step.bread_sd),
        meat=step.meat,
        allowance=0.0,
        walk=GLMNewtonPath(path=[], walking=False, second=eye),
    )


def curved_system(settings: Mapping[str, Any], design: Design, n: int, cov_type: str) -> OneStepScores:
    """Return the equation of score tests that a fit's settings keep.

    Its residual is None: curved models release no squares of residuals.
    """
    step = restored(settings["curved"] if "curved" in settings else settings["equation"])
    transform, shift = design.to_user  # the shift is the response's, which a linear predictor has not
    scaled = np.linalg.inv(transform) @ np.array(settings["to_user"])
    start = scaled @ step.place.theta - np.linalg.solve(transform, shift)
    return OneStepScores(
        to_scaled=scaled @ step.place.transform.T,
        start=start,
        mean=step.score.mean,
        hessian=step.hessian.lifted(),
        released_hessian=step.hessian.mean,
        clean=step.meat,
        known=n * (step.score.sd**2 + step.allowance) * np.eye(len(start)),
        hessian_sd=step.hessian.sd,
        residual=None,
        noise_free=~design.private,
        n=n,
        cov_type=cov_type,
    )
