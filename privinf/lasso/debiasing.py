r"""Debiasing: neighbours, one noisy union Gram matrix, precision columns and the joint clipped score.

For targets j = 1, ..., k after a sparse fit: the neighbours of each target are picked by peeling
``|sum clip(x_j, 1) clip(x_k, 1)|``; one Gram matrix on the union of picked columns, targets and neighbours
gives all precision columns (`privinf.lasso.precision`); the scores of all targets are clipped and
released as one vector, with its slopes and variances (`privinf.lasso.coordinates`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from privinf.errors import NotPositiveDefiniteError
from privinf.lasso.coordinates import Debiased, ScoreRelease, debiased_coordinates
from privinf.lasso.joint import joint_covariance, score_correlation
from privinf.lasso.precision import column_noise_variance, floored, precision_columns
from privinf.lasso.radii import ClipRadii, clip_radii, norm_moments, residual_moments
from privinf.lasso.sums import Score, SparseSums
from privinf.lasso.thresholding import GRAM_ROOM, SparseFit, error_covariance, positions
from privinf.typing import Floats

# Products u_j x_j are shrunk to so many times C: at least, and as long as the noise of a slope is no larger.
SLOPE_ROOM, SLOPE_NOISE = 3.0, 0.05


@dataclass(frozen=True, slots=True)
class DebiasingBudget:
    """Prices in zCDP: neighbours, union Gram matrix, sizes of its columns, slopes with variances, score."""

    neighbours: float
    gram: float
    sizes: float
    slopes: float
    score: float


@dataclass(frozen=True, slots=True, eq=False)
class DebiasedFit:
    """Debiased coordinates in the units of the sums, with everything that their law needs.

    Attributes
    ----------
    found : Debiased
    correlation : ndarray, shape (k, k)
        Of the scores.
    union : list of int
        Columns of the union Gram matrix.
    columns : ndarray, shape (size of the union, k)
        Precision columns w_j / sqrt(w_jj).
    radii : tuple of float
        C and R in units of the residuals' scale.
    """

    found: Debiased
    correlation: Floats
    union: list[int]
    columns: Floats
    radii: tuple[float, float]

    @property
    def cov(self) -> Floats:
        """Total covariance."""
        return joint_covariance(self.correlation, self.found.sampling, self.found.privacy)


def debias(
    sums: SparseSums,
    fit: SparseFit,
    targets: Sequence[int],
    budget: DebiasingBudget,
    *,
    neighbours: int = 4,
    excluded: Sequence[int] = (),
) -> DebiasedFit:
    """Return the debiased coordinates of some columns.

    Parameters
    ----------
    sums : SparseSums
    fit : SparseFit
    targets : sequence of int
    budget : DebiasingBudget
    neighbours : int
        Picked for every target, beside the columns of the fit.
    excluded : sequence of int
        Columns that may not be neighbours.

    Notes
    -----
    **Privacy.** Spends what `budget` says.
    """
    members = _members(sums, fit, targets, neighbours, excluded, budget.neighbours)
    union = list(dict.fromkeys([*fit.picked, *targets, *(j for chosen in members for j in chosen)]))
    sums.size_columns(union, budget.sizes)
    norm = math.inf if math.isinf(budget.gram) else math.sqrt(GRAM_ROOM * len(union))
    noisy, gram_sd = sums.gram(union, norm, budget.gram, "Gram matrix of the precision columns")
    gram = floored(noisy)
    columns = precision_columns(gram, [list(positions(chosen, union)) for chosen in members])
    at = positions(targets, union)
    diagonal = columns[at, np.arange(len(targets))]
    if not (diagonal > 0.0).all():
        raise NotPositiveDefiniteError("the noisy Gram matrix gives a precision that is not positive")
    standard = columns / np.sqrt(diagonal)
    released, radii = _scores(sums, fit, targets, union, standard, budget)
    noise = column_noise(gram, gram_sd, columns, fit, targets, union, sums.n)
    start = np.zeros(len(sums.units.scale))
    start[fit.picked] = fit.picked_beta
    found = debiased_coordinates(start[list(targets)], released, noise)
    return DebiasedFit(found, score_correlation(columns, gram), union, standard, radii)


def _members(
    sums: SparseSums,
    fit: SparseFit,
    targets: Sequence[int],
    neighbours: int,
    excluded: Sequence[int],
    rho: float,
) -> list[list[int]]:
    """Return for every target: itself, the columns of the fit, its neighbours."""
    p = len(sums.units.scale)
    allowed = np.ones((len(targets), p), dtype=bool)
    allowed[:, [*fit.picked, *excluded]] = False
    allowed[np.arange(len(targets)), list(targets)] = False
    count = min(neighbours, int(allowed.sum(axis=1).min()))
    near: list[list[int]] = [[] for _ in targets]
    if count > 0:
        near = sums.neighbours(targets, count, allowed, rho)
    return [list(dict.fromkeys([j, *fit.picked, *chosen])) for j, chosen in zip(targets, near, strict=True)]


def _scores(
    sums: SparseSums,
    fit: SparseFit,
    targets: Sequence[int],
    union: list[int],
    transform: Floats,
    budget: DebiasingBudget,
) -> tuple[ScoreRelease, tuple[float, float]]:
    radii = clip_radii(len(targets), sums.n, budget.score)
    score = Score(union, transform, radii.norm, radii.residual * fit.scale, fit.picked, fit.picked_beta)
    mean, mean_sd = sums.score(score, budget.score, "debiasing scores")
    reach = float(sums.units.reach[list(targets)].max())
    norm = slope_norm(radii, len(targets), reach, sums.n, budget.slopes / 2.0)
    slope, slope_sd = sums.slopes(score, targets, norm, budget.slopes / 2.0)
    square = sums.variances(score, budget.slopes / 2.0)
    released = ScoreRelease(mean, slope, square, mean_sd, slope_sd, sums.n)
    return released, (radii.norm, radii.residual)


def slope_norm(radii: ClipRadii, targets: int, reach: float, n: int, rho: float) -> float:
    """Return where the products u_j x_j are shrunk, for abs(u) <= C and abs(x_j) <= reach.

    A column of many zeros and rare large values has most of its slope in the large ones: nothing is cut
    below ``C reach`` unless the noise of a slope would be too large against the slope of normal columns.
    """
    if math.isinf(rho):
        return math.inf
    slope = norm_moments(radii.norm, targets)[0] * residual_moments(radii.residual)[0]
    affordable = SLOPE_NOISE * slope * n * math.sqrt(2.0 * rho) / 2.0
    return min(radii.norm * reach, max(SLOPE_ROOM * radii.norm, affordable))


def column_noise(
    gram: Floats,
    gram_sd: float,
    columns: Floats,
    fit: SparseFit,
    targets: Sequence[int],
    union: list[int],
    n: int,
) -> Floats:
    """Return the variance that the noise of each precision column causes, its own coordinate left out."""
    at = positions(fit.picked, union)
    error = error_covariance(np.asarray(np.linalg.inv(gram[np.ix_(at, at)])), fit, n)
    found = np.empty(len(targets))
    for column, target in enumerate(targets):
        others = np.array([i for i, j in enumerate(fit.picked) if j != target], dtype=int)
        found[column] = column_noise_variance(
            columns[:, [column]], gram_sd, at[others], error[np.ix_(others, others)]
        )[0]
    return found
