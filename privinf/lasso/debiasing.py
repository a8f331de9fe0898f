"""Debiasing: neighbours, one noisy union Gram matrix, precision columns and the joint clipped score.

For targets j = 1, ..., k after a sparse fit: the neighbours of each target are picked by peeling
``|sum clip(x_j, 1) clip(x_k, 1)|``; one Gram matrix on the union of picked columns, targets and neighbours
gives all precision columns (`privinf.lasso.precision`); the scores of all targets are clipped and
released as one vector, with its slopes and variances (`privinf.lasso.coordinates`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tqdm import tqdm

from privinf.errors import NotPositiveDefiniteError
from privinf.lasso.coordinates import (
    Debiased,
    ScoreRelease,
    debiased_coordinates,
    joint_covariance,
    score_correlation,
    steadied,
    steadied_sd,
)
from privinf.lasso.precision import column_noise_variance, floored, precision_columns
from privinf.lasso.radii import ClipRadii, clip_radii, norm_moments, residual_moments
from privinf.lasso.sums import SMALLEST_SIZE, Score, SparseSums
from privinf.lasso.thresholding import GRAM_ROOM, SparseFit, error_covariance, positions
from privinf.typing import Floats, Integers

# Products u_j x_j are shrunk to so many times C: at least, and as long as the noise of a slope is no larger.
SLOPE_ROOM, SLOPE_NOISE = 3.0, 0.05
PRODUCT_CLIP = 1.0
STANDS_OUT = 3.0
SMALLEST_REST = 0.1
LEAST_RESIDUAL = 0.6
STAGES = 6


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
    coordinates : Debiased
    correlation : ndarray, shape (k, k)
        Of the scores.
    union : list of int
        Columns of the union Gram matrix.
    columns : ndarray, shape (size of the union, k)
        Precision columns w_j / sqrt(w_jj).
    radii : tuple of float
        C and R in units of the residuals' scale.
    """

    coordinates: Debiased
    correlation: Floats
    union: list[int]
    columns: Floats
    radii: tuple[float, float]

    @property
    def cov(self) -> Floats:
        """Total covariance."""
        return joint_covariance(self.correlation, self.coordinates.sampling, self.coordinates.privacy)


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
    coordinates = debiased_coordinates(start[list(targets)], released, noise)
    return DebiasedFit(coordinates, score_correlation(columns, gram), union, standard, radii)


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
    variances = np.empty(len(targets))
    for column, target in enumerate(targets):
        others = np.array([i for i, j in enumerate(fit.picked) if j != target], dtype=int)
        variances[column] = column_noise_variance(
            columns[:, [column]], gram_sd, at[others], error[np.ix_(others, others)]
        )[0]
    return variances


def debias_all(sums: SparseSums, fit: SparseFit, budget: DebiasingBudget) -> DebiasedFit:
    """Return the debiased coordinates of all p columns, in their order.

    Parameters
    ----------
    sums : SparseSums
    fit : SparseFit
    budget : DebiasingBudget
        `neighbours` pays for the products with the picked columns, `gram` for their Gram matrix.

    Raises
    ------
    NotAvailableError
        The noise hides the slopes.

    Notes
    -----
    **Privacy.** Spends what `budget` says. Scores of two columns outside the fit are taken to be
    uncorrelated, which is conservative for simultaneous intervals: nothing is released of their correlation.
    """
    p, picked = len(sums.units.scale), np.array(fit.picked)
    rest = np.setdiff1d(np.arange(p), picked)
    with tqdm(total=STAGES, desc="debiasing all columns", disable=None) as bar:
        _size(sums, rest, budget.sizes)
        bar.update()
        norm = math.inf if math.isinf(budget.gram) else math.sqrt(GRAM_ROOM * len(picked))
        noisy, gram_sd = sums.gram(fit.picked, norm, budget.gram, "Gram matrix of the precision columns")
        gram = floored(noisy)
        bar.update()
        products, errors = _products(sums, fit, rest, budget.neighbours)
        bar.update()
        columns, left, noise = _columns(sums, fit, rest, gram, gram_sd, products, errors)
        radii = clip_radii(p, sums.n, budget.score)
        bound = max(radii.residual, LEAST_RESIDUAL)
        score = Score(range(p), columns, radii.norm, bound * fit.scale, fit.picked, fit.picked_beta)
        released = _release(sums, score, np.sqrt(left), (picked, rest), budget, bar.update)
    start = np.zeros(p)
    start[picked] = fit.picked_beta
    correlation = np.eye(p)
    correlation[np.ix_(picked, picked)] = score_correlation(columns[np.ix_(picked, picked)], gram)
    coordinates = debiased_coordinates(start, released, noise)
    return DebiasedFit(coordinates, correlation, list(range(p)), columns, (radii.norm, bound))


def _release(
    sums: SparseSums,
    score: Score,
    root: Floats,
    groups: Sequence[Integers],
    budget: DebiasingBudget,
    done: Callable[[], Any],
) -> ScoreRelease:
    """Release scores, slopes and variances, the last two steadied within groups; root is sqrt(h)."""
    p = len(root)
    mean, mean_sd = sums.score(score, budget.score, "debiasing scores")
    done()
    slope, slope_sd = sums.slopes(score, range(p), SLOPE_ROOM * score.norm, budget.slopes / 2.0)
    done()
    square, square_sd = sums.single("score_variances", score, budget.slopes / 2.0, "variances of the scores")
    done()
    steady, variance, spread = np.empty(p), np.empty(p), np.empty(p)
    for group in groups:
        if not len(group):
            continue
        # slope / root is alike in a group; its noise is of this size on average.
        noise = slope_sd * math.sqrt(float(np.mean(1.0 / root[group] ** 2)))
        alike = slope[group] / root[group]
        steady[group] = steadied(alike, noise) * root[group]
        spread[group] = steadied_sd(alike, noise) * root[group]
        variance[group] = steadied(square[group], square_sd)
    return ScoreRelease(mean, steady, variance, mean_sd, spread, sums.n)


def _size(sums: SparseSums, rest: Integers, rho: float) -> None:
    """Take released mean squares of columns, steadied, as their units."""
    units = sums.units
    new = np.array([j for j in rest if j not in units.sized], dtype=np.int64)
    if not len(new):
        return
    bound = float(units.reach[new].max())
    noisy = sums.server.vector_sum(
        "column_squares", sums.args((), np.empty(0), columns=new, bound=bound),
        label="sizes of columns", rho=rho, sites=sums.sites,
    )  # fmt: skip
    squares = steadied(noisy.mean, noisy.mean_sd)
    sizes = np.sqrt(np.clip(squares, SMALLEST_SIZE**2, bound**2))
    units.scale, units.reach = units.scale.copy(), units.reach.copy()
    units.scale[new] *= sizes
    units.reach[new] /= sizes
    units.sized.update(new.tolist())


def _products(sums: SparseSums, fit: SparseFit, rest: Integers, rho: float) -> tuple[Floats, Floats]:
    """Return c of the columns outside the fit and e^2, each of shape (m, size of rest)."""
    if not len(rest):
        return np.empty((len(fit.picked), 0)), np.empty((len(fit.picked), 0))
    private = math.isfinite(rho)
    bound = PRODUCT_CLIP if private else float(sums.units.reach.max())
    noisy = sums.server.vector_sum(
        "column_products", sums.args((), np.empty(0), targets=np.array(fit.picked), bound=bound),
        label="products with the selected columns", rho=rho, sites=sums.sites,
    )  # fmt: skip
    # E clip(x) clip(z) is about P(|x| < c)^2 E x z for normal x and z.
    shrunk = residual_moments(bound)[0] ** 2 if private else 1.0
    products, sd = noisy.mean[:, rest] / shrunk, noisy.mean_sd / shrunk
    if not private:
        return products, np.zeros_like(products)
    away = products - products.mean(axis=1, keepdims=True)
    kept = np.abs(away) > STANDS_OUT * sd
    unseen = max(0.0, float(np.var(away[~kept])) - sd**2) if not kept.all() else 0.0
    return np.where(kept, products, products - away), np.where(kept, sd**2, unseen)


def _columns(
    sums: SparseSums,
    fit: SparseFit,
    rest: Integers,
    gram: Floats,
    gram_sd: float,
    products: Floats,
    errors: Floats,
) -> tuple[Floats, Floats, Floats]:
    """Return the columns of all scores, shape (p, p), h, and the variance that the columns' noise causes."""
    p, picked = len(sums.units.scale), np.array(fit.picked)
    inverse = np.asarray(np.linalg.inv(gram))
    columns, left, noise = np.zeros((p, p)), np.empty(p), np.empty(p)
    left[picked] = 1.0 / np.diag(inverse)
    columns[np.ix_(picked, picked)] = inverse * np.sqrt(left[picked])
    noise[picked] = column_noise(gram, gram_sd, inverse, fit, fit.picked, fit.picked, sums.n)
    slopes = inverse @ products
    left[rest] = np.maximum(1.0 - np.einsum("ij,ij->j", products, slopes), SMALLEST_REST)
    columns[rest, rest] = 1.0 / np.sqrt(left[rest])
    columns[np.ix_(picked, rest)] = -slopes / np.sqrt(left[rest])
    error = error_covariance(inverse, fit, sums.n)
    lengths, inner = (slopes**2).sum(axis=0), np.einsum("ij,ik,kj->j", slopes, error, slopes)
    moved = np.diag(error) @ errors + gram_sd**2 / 2.0 * (lengths * np.trace(error) + inner)
    noise[rest] = moved / left[rest] ** 2
    return columns, left, noise
