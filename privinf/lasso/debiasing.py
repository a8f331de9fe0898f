r"""Debiased coefficients of targets after a sparse fit, and the parts of their variance.

For targets j = 1, ..., k `privinf.lasso.nodewise` gives nodewise regressions w_j on the columns of the fit
and on neighbors. With the first coefficients b0 of the fit and released scores s, slopes kappa and variances
v of all targets (`privinf.lasso.scores`), one Newton step has removed the error of b0 up to second order: the
score's derivative in the j-th coefficient is -kappa_j and in the others nearly zero, as w_j is orthogonal to
them,

    b_j = b0_j + s_j / kappa_j.

The variance has four parts, all from released numbers:

    sampling   v_j / (n kappa_j^2)
    score      Var(noise of s_j) / kappa_j^2, with that of the product of the means of u_j and of r, which
               are centered at released means
    slope      (s_j / kappa_j^2)^2 Var(noise of kappa_j)
    column     E (w_j' Z d)^2, d the error of b0 on the support (see `privinf.lasso.precision`)

The error of b0 has the covariance ``(q sigma^2 / n + t^2) P``, P the inverse of the Gram matrix on the
support, q the relative sampling variance of the clipped gradient steps and t the noise of the last of them in
whitened coordinates.

Where all columns are targets, products with the selected columns take the place of neighbors (`debias_all`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from privinf.inference.estimate import VarianceTerms
from privinf.inference.tails import Clip
from privinf.lasso.diagnostics import NodewiseDiagnostics
from privinf.lasso.fit import SparseFit, error_covariance
from privinf.lasso.nodewise import target_columns
from privinf.lasso.plan import DebiasingPrices
from privinf.lasso.precision import (
    column_noise_variance,
    floored,
    joint_covariance,
    score_correlation,
    steadied,
    steadied_sd,
)
from privinf.lasso.radii import clip_radii, gram_norm, residual_moments
from privinf.lasso.scores import (
    SLOPE_ROOM,
    ScoreRelease,
    clipped_scores,
    mean_scores,
    robust_scores,
    slopes_above_noise,
)
from privinf.lasso.sums import RESIDUAL_ROOM, SMALLEST_SIZE, HiddenByNoise, Score, SparseSums
from privinf.typing import Flags, Floats, Integers, ScoreTarget
from privinf.wire import Labels, Statistics

MOST_OUTSIDE = 0.02  # share of values outside the bounds that changes coefficients
SURE = 3.0  # sds of its noise that this share must also exceed
EQUATION = """\
var_j = v_j / (n kappa_j^2) + s_s^2 / kappa_j^2 + (s_j s_kappa / kappa_j^2)^2 + column_j
sampling: v_j / (n kappa_j^2); n is the number of records, v_j the mean square of the clipped scores of
target j, kappa_j their slope
score noise: s_s^2 / kappa_j^2; s_s is the standard deviation of the noise in the score s_j
slope noise: (s_j s_kappa / kappa_j^2)^2; s_kappa is the standard deviation of the noise in the slope
precision columns: column_j = E (w_j' Z d)^2, E is the mean over the noise; w_j are the coefficients of the
nodewise regression of target j, Z the noise of its Gram matrix, d the error of the initial estimate"""
HIDDEN_SLOPES = (
    "the noise is too large to estimate the slope or the variance of a target's score, so intervals are not "
    "available: pass fewer targets, a larger budget, or other shares="
)
CLIP_OF_PRODUCTS = 1.0  # where both factors of a product are clipped, in units of the columns' sizes
STANDS_OUT = 3.0  # sds of its noise from which on a product is used as it was released
SMALLEST_REST = 0.1  # least share of a column's variance that the selected columns leave
LEAST_RESIDUAL = 0.6  # residuals are clipped no nearer than here, in units of their scale
RESIDUAL_SHARE = 0.2  # part of the means' price that goes to the mean of the residuals
HIDDEN_GRAM = (
    "the noise hides the Gram matrix of the fitted columns: increase the budget, fit fewer "
    "columns, or give this matrix a larger share with shares="
)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TargetCoefficients:
    """Debiased coefficients of k targets in the user's units, of linear and logistic fits.

    Attributes
    ----------
    params : ndarray, shape (k,)
    cov, sampling, noise : ndarray, shape (k, k)
        Total covariance, and its parts: from the sampling of the rows, and from the noise of the releases.
    terms : VarianceTerms
    bias : ndarray, shape (k,), or None
        Bias that intervals allow for.
    """

    params: Floats
    cov: Floats
    sampling: Floats
    noise: Floats
    terms: VarianceTerms
    bias: Floats | None = None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Debiased:
    """Debiased coordinates and the parts of their variances, each of shape (k,).

    Attributes
    ----------
    params : ndarray
    sampling, score, slope, column : ndarray
        Parts of the variance, as the module describes them.
    """

    params: Floats
    sampling: Floats
    score: Floats
    slope: Floats
    column: Floats

    @property
    def privacy(self) -> Floats:
        """Variance that the noise of the releases causes."""
        return self.score + self.slope + self.column

    @property
    def variance(self) -> Floats:
        """Total variance."""
        return self.sampling + self.privacy

    def in_units(self, unit: Floats, correlation: Floats, bias: Floats | None = None) -> TargetCoefficients:
        """Return the coefficients after division by `unit`, (k,); `correlation` is that of the scores."""
        back = np.outer(unit, unit)
        cov = joint_covariance(correlation, self.sampling, self.privacy)
        return TargetCoefficients(
            params=self.params / unit,
            cov=cov / back,
            sampling=joint_covariance(correlation, self.sampling, np.zeros(len(unit))) / back,
            noise=np.diag(self.privacy) / back,
            terms=self._terms(cov, unit),
            bias=None if bias is None else bias / unit,
        )

    def _terms(self, cov: Floats, unit: Floats) -> VarianceTerms:
        """Return the named terms of `cov`, the coordinates' covariance, after division by `unit`."""
        back = np.outer(unit, unit)
        named = {"score noise": self.score, "slope noise": self.slope, "precision columns": self.column}
        noise = {name: np.diag(part) / back for name, part in named.items()}
        return VarianceTerms.dividing(cov / back, EQUATION, noise)


def debiased_coordinates(start: Floats, released: ScoreRelease, column: Floats) -> Debiased:
    """Return b = b0 + s / kappa with its variances.

    Parameters
    ----------
    start : ndarray, shape (k,)
        b0 at the targets.
    released : ScoreRelease
    column : ndarray, shape (k,)
        Variance that the noise of the nodewise regressions causes.

    Raises
    ------
    HiddenByNoise
        The noise leaves a slope or a variance without a sign: the budget is too small for these targets.

    Notes
    -----
    **Privacy.** Post-processing.
    """
    slope = released.slope
    if not slopes_above_noise(released).all():
        raise HiddenByNoise(HIDDEN_SLOPES)
    step = released.score / slope
    return Debiased(
        params=np.asarray(start + step),
        sampling=np.asarray(released.square / (released.n * slope**2)),
        score=np.asarray((released.score_sd / slope) ** 2),
        slope=np.asarray((step * released.slope_sd / slope) ** 2),
        column=np.asarray(column),
    )


@dataclass(frozen=True, slots=True, eq=False)
class Outside:
    """Shares of the values of k targets that lie outside their public bounds, and the sd of their noise."""

    shares: Floats
    sd: float

    @classmethod
    def from_sums(cls, sums: SparseSums, targets: Sequence[int], rho: float) -> Outside:
        """Release these shares."""
        noisy = sums.release(
            Statistics.COLUMNS_OUTSIDE,
            sums.args((), np.empty(0), columns=np.asarray(targets)),
            rho,
            Labels.VALUES_OUTSIDE,
        )
        return cls(noisy.mean, noisy.mean_sd)

    def only(self, above_noise: Flags) -> Outside:
        """Return the shares of some of the targets."""
        return Outside(self.shares[above_noise], self.sd)

    @property
    def cut(self) -> Flags:
        """Which targets have so many, beyond the noise, that their coefficients change, shape (k,)."""
        return np.asarray(self.shares > max(MOST_OUTSIDE, SURE * self.sd))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class DebiasedFit:
    """Debiased coordinates in the units of the sums, with everything that their distribution needs.

    Attributes
    ----------
    coordinates : Debiased
    correlation : ndarray, shape (k, k)
        Of the scores.
    union : list of int
        Columns that any nodewise regression uses.
    columns : ndarray, shape (size of the union, k)
        Nodewise regressions w_j / sqrt(w_jj).
    radii : tuple of float
        C and R in units of the residuals' scale; infinite where products are clipped as a unit.
    bias : ndarray, shape (k,), or None
        Bias that intervals allow for.
    clip : Clip or None
        Where scores of the mean were clipped.
    marks : NodewiseDiagnostics or None
        How well the nodewise regressions are known; None where products with the selection stand for
        neighbors.
    outside : Outside or None
        Values of the targets outside their bounds.
    above_noise : ndarray of bool, shape (number of requested targets,), or None
        Targets that have coordinates; the noise hides the slopes of the others. None: all have.
    """

    coordinates: Debiased
    correlation: Floats
    union: list[int]
    columns: Floats
    radii: tuple[float, float]
    bias: Floats | None = None
    clip: Clip | None = None
    marks: NodewiseDiagnostics | None = None
    outside: Outside | None = None
    above_noise: Flags | None = None

    def in_units(self, unit: Floats) -> TargetCoefficients:
        """Return the coefficients after division by `unit`, (k,)."""
        return self.coordinates.in_units(unit, self.correlation, self.bias)


def debias(
    sums: SparseSums,
    fit: SparseFit,
    targets: Sequence[int],
    budget: DebiasingPrices,
    *,
    neighbors: int | None = None,
    excluded: Sequence[int] = (),
    target: ScoreTarget = "mean",
) -> DebiasedFit:
    """Return the debiased coordinates of some columns.

    Parameters
    ----------
    sums : SparseSums
    fit : SparseFit
    targets : sequence of int
    budget : DebiasingPrices
    neighbors : int, optional
        Number selected for every target, in addition to the columns of the fit. Default:
        `privinf.lasso.nodewise.neighbor_count`.
    excluded : sequence of int
        Columns that may not be neighbors.
    target : {"mean", "robust"}
        Target of the scores.

    Raises
    ------
    HiddenByNoise
        The noise hides the slopes of all targets.

    Notes
    -----
    **Privacy.** Spends the prices in `budget`.
    """
    half = replace(budget, sizes=budget.sizes / 2.0)
    outside = Outside.from_sums(sums, targets, half.sizes)
    precision = target_columns(sums, fit, targets, half, neighbors=neighbors, excluded=excluded)
    center_sd = _center_residuals(sums, fit, budget.center)
    centers = np.array([sums.center_sd.get(j, 0.0) for j in precision.union])
    # The remaining means of u and of the residual add their product to a score.
    product = center_sd * np.sqrt(centers**2 @ precision.standard**2)
    scores = (mean_scores if target == "mean" else robust_scores)(
        sums,
        fit,
        targets,
        precision.union,
        precision.standard,
        precision.correlation,
        score=budget.score,
        slopes=budget.slopes,
    )
    release = scores.release.with_noise(product)
    coordinates, above_noise = coordinates_above_noise(
        fit.coefficients(len(sums.units.scale))[list(targets)], release, precision.noise
    )
    bias = scores.bias if scores.clip is not None and scores.clip.ratio > 0.0 else None
    return DebiasedFit(
        coordinates=coordinates,
        correlation=scores.correlation[np.ix_(above_noise, above_noise)],
        union=precision.union,
        columns=precision.standard[:, above_noise],
        radii=scores.radii,
        bias=None if bias is None else bias[above_noise],
        clip=scores.clip,
        marks=precision.marks.only(above_noise),
        outside=outside.only(above_noise),
        above_noise=above_noise,
    )


def _center_residuals(sums: SparseSums, fit: SparseFit, rho: float) -> float:
    """Center the residuals of a fit at their released mean, and return the sd of its noise; 0 at no price."""
    if rho <= 0.0:
        return 0.0
    bound = RESIDUAL_ROOM * fit.scale
    return sums.center_residual(fit.selected, fit.selected_beta, bound, rho, Labels.MEAN_OF_RESIDUALS)


def coordinates_above_noise(start: Floats, release: ScoreRelease, column: Floats) -> tuple[Debiased, Flags]:
    """Return the debiased coordinates of targets whose slopes the noise does not hide, and which they are.

    Raises
    ------
    HiddenByNoise
        The noise hides the slopes of all targets.

    Notes
    -----
    **Privacy.** Post-processing.
    """
    above_noise = slopes_above_noise(release)
    if not above_noise.any():
        raise HiddenByNoise(HIDDEN_SLOPES)
    coordinates = debiased_coordinates(start[above_noise], release.only(above_noise), column[above_noise])
    return coordinates, above_noise


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
    _size(sums, rest, budget.sizes)
    if budget.center > 0.0:
        sums.center_again((1.0 - RESIDUAL_SHARE) * budget.center)
    noisy, gram_sd = sums.gram(
        fit.selected, gram_norm(len(selected), budget.gram), budget.gram, Labels.GRAM_OF_PRECISION_COLUMNS
    )
    if not np.trace(noisy) > 0.0:
        raise HiddenByNoise(HIDDEN_GRAM)
    gram = floored(noisy)
    products, errors = _products(sums, fit, rest, budget.neighbors)
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
    center_sd = _center_residuals(sums, fit, RESIDUAL_SHARE * budget.center)
    released = _steadied_scores(sums, score, np.sqrt(residual_squares), (selected, rest), budget)
    # The remaining means of columns and of residuals add their product to a score, shrunk as the score is.
    centers = np.broadcast_to(sums.mean_sd / sums.units.scale, p)
    shrunk = np.abs(released.slope) / np.sqrt(residual_squares)
    released = released.with_noise(center_sd * np.sqrt(centers**2 @ columns**2) * shrunk)
    correlation = np.eye(p)
    correlation[np.ix_(selected, selected)] = score_correlation(columns[np.ix_(selected, selected)], gram)
    coordinates, above_noise = coordinates_above_noise(fit.coefficients(p), released, noise)
    return DebiasedFit(
        coordinates=coordinates,
        correlation=correlation[np.ix_(above_noise, above_noise)],
        union=list(range(p)),
        columns=columns[:, above_noise],
        radii=(radii.norm, bound),
        above_noise=above_noise,
    )


def _steadied_scores(
    sums: SparseSums, score: Score, root: Floats, groups: Sequence[Integers], budget: DebiasingPrices
) -> ScoreRelease:
    """Release scores, slopes and variances, the last two steadied within groups; root is sqrt(h)."""
    p = len(root)
    norm = SLOPE_ROOM * score.norm
    released, square_sd = clipped_scores(
        sums, score, range(p), norm, score=budget.score, slopes=budget.slopes
    )
    steady = np.empty(p)
    variance = np.empty(p)
    spread = np.empty(p)
    for group in groups:
        if not len(group):
            continue
        # slope / root is alike in a group; its noise is of this size on average.
        noise = float(released.slope_sd) * math.sqrt(float(np.mean(1.0 / root[group] ** 2)))
        alike = released.slope[group] / root[group]
        steady[group] = steadied(alike, noise) * root[group]
        spread[group] = steadied_sd(alike, noise) * root[group]
        variance[group] = steadied(released.square[group], square_sd)
    return replace(released, slope=steady, square=variance, slope_sd=spread)


def _size(sums: SparseSums, rest: Integers, rho: float) -> None:
    """Take released mean squares of columns, steadied, as their units."""
    units = sums.units
    new = np.array([j for j in rest if j not in units.sized], dtype=np.int64)
    if not len(new):
        return
    bound = float(units.max_abs[new].max())
    noisy = sums.mean_squares(new, bound, rho)
    squares = steadied(noisy.mean, noisy.mean_sd)
    sizes = np.sqrt(np.clip(squares, SMALLEST_SIZE**2, bound**2))
    units.rescale(new, sizes)
    units.sized.update(new.tolist())


def _products(sums: SparseSums, fit: SparseFit, rest: Integers, rho: float) -> tuple[Floats, Floats]:
    """Return c of the columns outside the fit and e^2, each of shape (m, size of rest)."""
    if not len(rest):
        return np.empty((len(fit.selected), 0)), np.empty((len(fit.selected), 0))
    private = math.isfinite(rho)
    bound = CLIP_OF_PRODUCTS if private else float(sums.units.max_abs.max())
    noisy = sums.release(
        Statistics.COLUMN_PRODUCTS,
        sums.args((), np.empty(0), targets=np.array(fit.selected), bound=bound),
        rho,
        Labels.PRODUCTS_WITH_SELECTED,
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
    error = error_covariance(inverse, fit, sums.n)
    noise[selected] = _column_noise(inverse, gram_sd, error)
    slopes = inverse @ products
    residual_squares[rest] = np.maximum(1.0 - np.einsum("ij,ij->j", products, slopes), SMALLEST_REST)
    columns[rest, rest] = 1.0 / np.sqrt(residual_squares[rest])
    columns[np.ix_(selected, rest)] = -slopes / np.sqrt(residual_squares[rest])
    lengths = (slopes**2).sum(axis=0)
    inner = np.einsum("ij,ik,kj->j", slopes, error, slopes)
    moved = np.diag(error) @ errors + gram_sd**2 / 2.0 * (lengths * np.trace(error) + inner)
    noise[rest] = moved / residual_squares[rest] ** 2
    return columns, residual_squares, noise


def _column_noise(columns: Floats, gram_sd: float, error: Floats) -> Floats:
    """Return the variance that the noise of each nodewise regression causes, its own coordinate left out."""
    variances = np.empty(len(columns))
    for column in range(len(columns)):
        rest = np.delete(np.arange(len(columns)), column)
        variances[column] = column_noise_variance(
            columns[:, [column]], gram_sd, rest, error[np.ix_(rest, rest)]
        )[0]
    return variances
