r"""Intervals of a curved fit, from draws of what its final release leaves open; a posterior where it is weak.

In the whitened units of the final release, H = H_0 + N with N the known noise, and S = H_0 D + e with e of
covariance V = meat/n + sigma_S^2 I + allowance: the coefficients' distance D from theta_T has the draws

.. math:: (H - N)^{-1} (S - e).

Where H does not stand clear of its noise these have no moments, and intervals by them may miss. There a named
prior is put on the coefficients, N(0, 10^2) for the constant and N(0, 5^2) for the others, in units in which
columns are in [-1, 1], and H_0 is integrated over its noise: draws H - N that are positive definite are
weighted by the density of S, N(H m, H T H + V), with m and T the prior's moments of D.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

import numpy as np

from privinf.glm.curved import FinalStep
from privinf.typing import Floats

DRAWS, FEWER_DRAWS, MANY_COLUMNS = 4000, 1500, 20
# Eigenvalues of a drawn Hessian, in mean ones, are not below this.
LEAST_DRAWN = 0.02
PRIOR_CONSTANT, PRIOR_SLOPE = 10.0, 5.0
FEWEST_KEPT = 200
# A last step of more standard errors (squared, a coefficient), or that moves predictors further, or that goes
# on where the last round had not come to rest, leaves a remainder that intervals do not know of.
LONGEST_STEP2, LONGEST_SHIFT, WALKING_SHIFT = 8.0, 1.2, 0.7
# A mean curvature below this share of what the response's mean allows: predictors tell almost every outcome.
TELLING = 0.2


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
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
    settled : bool
    sampling : ndarray, shape (p, p)
        Covariance that the rows alone would leave.
    """

    params: Floats
    draws: Floats
    weak: bool
    length2: float
    shift: float
    settled: bool
    sampling: Floats


def drawn(step: FinalStep, n: int, constant: int | None) -> Drawn:
    """Return the draws that a final release of `n` rows leaves, made from a seed of its own bytes."""
    hessian, score, back = step.hessian, step.score, step.place.transform.T
    p = len(score.mean)
    rng, count = np.random.default_rng(_seed(step)), FEWER_DRAWS if p > MANY_COLUMNS else DRAWS
    values, vectors = hessian.floored()
    move = vectors @ ((vectors.T @ score.mean) / values)
    variance = step.meat / n + (score.sd**2 + step.allowance) * np.eye(p)
    errors = rng.standard_normal((count, p)) @ np.linalg.cholesky(variance).T
    hessians = hessian.mean - symmetric_noise(rng, p, hessian.sd, count)
    level = max(float(np.trace(hessian.mean)) / p, hessian.floor / p)
    weak = bool(np.linalg.eigvalsh(hessian.mean)[0] < hessian.floor)
    if weak:
        mean, root = _prior(step, constant)
        moves = _posterior(rng, hessians, score.mean, errors, variance, mean, root, LEAST_DRAWN * level)
        params = moves.mean(axis=0)
    else:
        moves, params = _solved(hessians, score.mean - errors, LEAST_DRAWN * level), move
    covariance = np.atleast_2d(np.cov(moves.T))
    length2 = float(move @ np.linalg.solve(covariance, move)) / p if hessian.sd or score.sd else 0.0
    shift = math.sqrt(max(float(move @ hessian.mean @ move), 0.0) / level)
    far = shift > LONGEST_SHIFT or (step.walking and shift > WALKING_SHIFT)
    inverse = (vectors / values) @ vectors.T
    theta = step.place.theta
    return Drawn(
        theta + back @ params, theta + moves @ back.T, weak, length2, shift,
        not far and length2 <= LONGEST_STEP2, back @ inverse @ step.meat @ inverse @ back.T / n,
    )  # fmt: skip


def symmetric_noise(rng: np.random.Generator, p: int, sd: float, count: int) -> Floats:
    """Return noise of symmetric matrices, isotropic in the Frobenius norm, `sd` on the diagonal."""
    upper = np.triu(rng.standard_normal((count, p, p)) * (sd / math.sqrt(2.0)), 1)
    found = upper + np.swapaxes(upper, 1, 2)
    found[:, np.arange(p), np.arange(p)] = sd * rng.standard_normal((count, p))
    return np.asarray(found)


def _seed(step: FinalStep) -> int:
    """Return a seed from the release: anybody who has it makes the same draws."""
    parts = (step.place.theta, step.place.transform, step.score.mean, step.hessian.mean, step.meat)
    text = b"".join(np.ascontiguousarray(part, dtype="<f8").tobytes() for part in parts)
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "big")


def _solved(matrices: Floats, vectors: Floats, least: float) -> Floats:
    """Return matrix^-1 vector, draw by draw, eigenvalues not below `least`."""
    values, axes = np.linalg.eigh(matrices)
    along = np.einsum("nji,nj->ni", axes, vectors) / np.maximum(values, least)
    return np.asarray(np.einsum("nij,nj->ni", axes, along))


def _prior(step: FinalStep, constant: int | None) -> tuple[Floats, Floats]:
    """Return mean and root of the covariance of D in whitened units, by the prior of the coefficients."""
    sds = np.full(len(step.place.theta), PRIOR_SLOPE)
    if constant is not None:
        sds[constant] = PRIOR_CONSTANT
    inverse = np.linalg.inv(step.place.transform.T)
    return -inverse @ step.place.theta, inverse * sds


def _posterior(
    rng: np.random.Generator,
    hessians: Floats,
    score: Floats,
    errors: Floats,
    variance: Floats,
    mean: Floats,
    root: Floats,
    least: float,
) -> Floats:
    """Return draws of D from its posterior, the Hessian integrated over its noise."""
    values, axes = np.linalg.eigh(hessians)
    kept = values[:, 0] > 0.0
    if kept.sum() < FEWEST_KEPT:
        # Few draws are positive definite: all are made so.
        hessians = np.einsum("nij,nj,nkj->nik", axes, np.maximum(values, least), axes)
    else:
        hessians = hessians[kept]
    spread = root @ root.T
    spreads = hessians @ spread @ hessians + variance
    away = score - hessians @ mean
    likelihood = -0.5 * (
        np.linalg.slogdet(spreads)[1]
        + np.einsum("ni,ni->n", away, np.linalg.solve(spreads, away[..., None])[..., 0])
    )
    weights = np.exp(likelihood - likelihood.max())
    chosen = rng.choice(len(hessians), size=len(errors), p=weights / weights.sum())
    hessians, spreads = hessians[chosen], spreads[chosen]
    # A draw of the prior, moved by the gain to where its score would be the one that was seen.
    moves = mean + rng.standard_normal(errors.shape) @ root.T
    missing = score - np.einsum("nij,nj->ni", hessians, moves) - errors
    solved = np.linalg.solve(spreads, missing[..., None])[..., 0]
    return np.asarray(moves + np.einsum("nij,nj->ni", hessians, solved) @ spread)
