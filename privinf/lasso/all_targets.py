"""Debiasing of all columns: scores of all p, with products with the selected columns as neighbors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tqdm import tqdm

from privinf.lasso.coordinates import (
    HiddenByNoise,
    Score,
    ScoreRelease,
    score_correlation,
    slopes_above_noise,
    steadied,
    steadied_sd,
)
from privinf.lasso.debiasing import SLOPE_ROOM, DebiasedFit, coordinates_above_noise, with_noise
from privinf.lasso.fit import SparseFit, error_covariance, positions
from privinf.lasso.plan import DebiasingPrices
from privinf.lasso.precision import column_noise_variance, floored
from privinf.lasso.radii import GRAM_ROOM, clip_radii, residual_moments
from privinf.lasso.sums import RESIDUAL_ROOM, SMALLEST_SIZE, SparseSums
from privinf.typing import Floats, Integers
from privinf.wire import Labels, Statistics

PRODUCT_CLIP = 1.0  # where both factors of a product are clipped, in units of the columns' sizes
STANDS_OUT = 3.0  # sds of its noise from which on a product is used as it was released
SMALLEST_REST = 0.1  # least share of a column's variance that the selected columns leave
LEAST_RESIDUAL = 0.6  # residuals are clipped no nearer than here, in units of their scale
STAGES = 6  # of the progress bar
RESIDUAL_SHARE = 0.2  # part of the means' price that goes to the mean of the residuals
HIDDEN_GRAM = (
    "the noise hides the Gram matrix of the fitted columns: increase the budget, fit fewer "
    "columns, or give this matrix a larger share with shares="
)


def debias_all(sums: SparseSums, fit: SparseFit, budget: DebiasingPrices) -> DebiasedFit:
    """Return the debiased coordinates of all p columns, in their order.

    Parameters
    ----------
    sums : SparseSums
    fit : SparseFit
    budget : DebiasingPrices
        `neighbours` pays for the products with the selected columns, `gram` for their Gram matrix, `center`
        for the means of columns and residuals; without it columns stay where they are.

    Raises
    ------
    HiddenByNoise
        The noise hides the slopes, or the Gram matrix of the fit's columns.

    Notes
    -----
    **Privacy.** Spends the prices in `budget`. The correlation of the scores of two columns outside
    the fit is not released. It is set to 0, which is conservative for simultaneous intervals.
    """
    p = len(sums.units.scale)
    selected = np.array(fit.selected)
    rest = np.setdiff1d(np.arange(p), selected)
    with tqdm(total=STAGES, desc="debiasing all columns", disable=None) as bar:
        _size(sums, rest, budget.sizes)
        if budget.center > 0.0:
            sums.center_again((1.0 - RESIDUAL_SHARE) * budget.center)
        bar.update()
        norm = math.inf if math.isinf(budget.gram) else math.sqrt(GRAM_ROOM * len(selected))
        noisy, gram_sd = sums.gram(fit.selected, norm, budget.gram, Labels.GRAM_OF_PRECISION_COLUMNS)
        if not np.trace(noisy) > 0.0:
            raise HiddenByNoise(HIDDEN_GRAM)
        gram = floored(noisy)
        bar.update()
        products, errors = _products(sums, fit, rest, budget.neighbors)
        bar.update()
        columns, residual_squares, noise = _columns(sums, fit, rest, gram, gram_sd, products, errors)
        radii = clip_radii(p, sums.n, budget.score)
        bound = max(radii.residual, LEAST_RESIDUAL)
        score = Score(
            columns=range(p),
            transform=columns,
            norm=radii.norm,
            residual=bound * fit.scale,
            support=fit.selected,
            beta=fit.selected_beta,
        )
        center_sd = 0.0
        if budget.center > 0.0:
            center_sd = sums.center_residual(
                fit.selected,
                fit.selected_beta,
                RESIDUAL_ROOM * fit.scale,
                RESIDUAL_SHARE * budget.center,
                Labels.MEAN_OF_RESIDUALS,
            )
        released = _release(sums, score, np.sqrt(residual_squares), (selected, rest), budget, bar.update)
    # The remaining means of columns and of residuals add their product to a score, shrunk as the score is.
    centers = np.broadcast_to(sums.mean_sd / sums.units.scale, p)
    shrunk = np.abs(released.slope) / np.sqrt(residual_squares)
    released = with_noise(released, center_sd * np.sqrt(centers**2 @ columns**2) * shrunk)
    start = np.zeros(p)
    start[selected] = fit.selected_beta
    correlation = np.eye(p)
    correlation[np.ix_(selected, selected)] = score_correlation(columns[np.ix_(selected, selected)], gram)
    above_noise = slopes_above_noise(released)
    coordinates = coordinates_above_noise(start, released, noise, above_noise)
    return DebiasedFit(
        coordinates=coordinates,
        correlation=correlation[np.ix_(above_noise, above_noise)],
        union=list(range(p)),
        columns=columns[:, above_noise],
        radii=(radii.norm, bound),
        above_noise=above_noise,
    )


def _release(
    sums: SparseSums,
    score: Score,
    root: Floats,
    groups: Sequence[Integers],
    budget: DebiasingPrices,
    advance: Callable[[], Any],
) -> ScoreRelease:
    """Release scores, slopes and variances, the last two steadied within groups; root is sqrt(h)."""
    p = len(root)
    mean, mean_sd = sums.score(score, budget.score, Labels.DEBIASING_SCORES)
    advance()
    slope, slope_sd = sums.slopes(score, range(p), SLOPE_ROOM * score.norm, budget.slopes / 2.0)
    advance()
    square, square_sd = sums.single(
        Statistics.SCORE_VARIANCES, score, budget.slopes / 2.0, Labels.VARIANCES_OF_SCORES
    )
    advance()
    steady = np.empty(p)
    variance = np.empty(p)
    spread = np.empty(p)
    for group in groups:
        if not len(group):
            continue
        # slope / root is alike in a group; its noise is of this size on average.
        noise = slope_sd * math.sqrt(float(np.mean(1.0 / root[group] ** 2)))
        alike = slope[group] / root[group]
        steady[group] = steadied(alike, noise) * root[group]
        spread[group] = steadied_sd(alike, noise) * root[group]
        variance[group] = steadied(square[group], square_sd)
    return ScoreRelease(
        score=mean, slope=steady, square=variance, score_sd=mean_sd, slope_sd=spread, n=sums.n
    )


def _size(sums: SparseSums, rest: Integers, rho: float) -> None:
    """Take released mean squares of columns, steadied, as their units."""
    units = sums.units
    new = np.array([j for j in rest if j not in units.sized], dtype=np.int64)
    if not len(new):
        return
    bound = float(units.max_abs[new].max())
    noisy = sums.server.vector_sum(
        Statistics.COLUMN_SQUARES,
        sums.args((), np.empty(0), columns=new, bound=bound),
        label=Labels.SIZES_OF_COLUMNS,
        rho=rho,
        sites=sums.sites,
    )
    squares = steadied(noisy.mean, noisy.mean_sd)
    sizes = np.sqrt(np.clip(squares, SMALLEST_SIZE**2, bound**2))
    units.scale, units.max_abs = units.scale.copy(), units.max_abs.copy()
    units.scale[new] *= sizes
    units.max_abs[new] /= sizes
    units.sized.update(new.tolist())


def _products(sums: SparseSums, fit: SparseFit, rest: Integers, rho: float) -> tuple[Floats, Floats]:
    """Return c of the columns outside the fit and e^2, each of shape (m, size of rest)."""
    if not len(rest):
        return np.empty((len(fit.selected), 0)), np.empty((len(fit.selected), 0))
    private = math.isfinite(rho)
    bound = PRODUCT_CLIP if private else float(sums.units.max_abs.max())
    noisy = sums.server.vector_sum(
        Statistics.COLUMN_PRODUCTS,
        sums.args((), np.empty(0), targets=np.array(fit.selected), bound=bound),
        label=Labels.PRODUCTS_WITH_SELECTED,
        rho=rho,
        sites=sums.sites,
    )
    # E clip(x) clip(z) is about P(|x| < c)^2 E x z for normal x and z.
    shrunk = residual_moments(bound)[0] ** 2 if private else 1.0
    products = noisy.mean[:, rest] / shrunk
    sd = noisy.mean_sd / shrunk
    if not private:
        return products, np.zeros_like(products)
    away = products - products.mean(axis=1, keepdims=True)
    above_noise = np.abs(away) > STANDS_OUT * sd
    unseen = max(0.0, float(np.var(away[~above_noise])) - sd**2) if not above_noise.all() else 0.0
    return np.where(above_noise, products, products - away), np.where(above_noise, sd**2, unseen)


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
    p = len(sums.units.scale)
    selected = np.array(fit.selected)
    inverse = np.asarray(np.linalg.inv(gram))
    columns = np.zeros((p, p))
    residual_squares = np.empty(p)
    noise = np.empty(p)
    residual_squares[selected] = 1.0 / np.diag(inverse)
    columns[np.ix_(selected, selected)] = inverse * np.sqrt(residual_squares[selected])
    noise[selected] = _column_noise(gram, gram_sd, inverse, fit, fit.selected, fit.selected, sums.n)
    slopes = inverse @ products
    residual_squares[rest] = np.maximum(1.0 - np.einsum("ij,ij->j", products, slopes), SMALLEST_REST)
    columns[rest, rest] = 1.0 / np.sqrt(residual_squares[rest])
    columns[np.ix_(selected, rest)] = -slopes / np.sqrt(residual_squares[rest])
    error = error_covariance(inverse, fit, sums.n)
    lengths = (slopes**2).sum(axis=0)
    inner = np.einsum("ij,ik,kj->j", slopes, error, slopes)
    moved = np.diag(error) @ errors + gram_sd**2 / 2.0 * (lengths * np.trace(error) + inner)
    noise[rest] = moved / residual_squares[rest] ** 2
    return columns, residual_squares, noise


def _column_noise(
    gram: Floats,
    gram_sd: float,
    columns: Floats,
    fit: SparseFit,
    targets: Sequence[int],
    union: list[int],
    n: int,
) -> Floats:
    """Return the variance that the noise of each nodewise regression causes, its own coordinate left out."""
    at = positions(fit.selected, union)
    error = error_covariance(np.asarray(np.linalg.inv(gram[np.ix_(at, at)])), fit, n)
    variances = np.empty(len(targets))
    for column, target in enumerate(targets):
        rest = np.array([i for i, j in enumerate(fit.selected) if j != target], dtype=int)
        variances[column] = column_noise_variance(
            columns[:, [column]], gram_sd, at[rest], error[np.ix_(rest, rest)]
        )[0]
    return variances
