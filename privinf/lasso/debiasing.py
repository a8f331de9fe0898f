r"""Debiased coefficients of targets after a sparse fit: one Newton step, its covariance, and its releases.

A sparse fit ends with first coefficients b0, in error by d. Nodewise regressions w_j give directions u in R^k
that are orthogonal to the columns of the fit (`privinf.lasso.nodewise`, `privinf.lasso.precision`), and the
mean score s of k targets is released along them (`privinf.lasso.scores`). Its derivative in the targets'
coefficients is -S, in those of other columns nearly zero. So s(b) = s - S (b - b0) has the mean 0 at the
truth but for the noise Z of the nodewise regressions, and one Newton step removes the error of b0 up to
second order,

    b = b0 + A s,   A = S^-1,
    Cov(b) = A [ V / n + Var(noise of s) + Var(noise of S times A s) ] A'  +  diag E (w_j' Z d)^2,

V the mean outer product of the scores. All parts are computed from released numbers. d has the covariance
``(q sigma^2 / n + t^2) H^-1`` on the columns of the fit (`privinf.lasso.fit.error_variance`), H their Gram
matrix or the Hessian, q the sampling variance of the end point relative to the efficient one, t the noise of
the last step in whitened coordinates.

**Linear fits and fits by site** (`debiased_coordinates`) have ``u_j = w_j'x / sqrt(w_jj)`` and a released
slope kappa_j for each target: A = diag(1 / kappa_j), and

    sampling   v_j / (n kappa_j^2), v_j the mean square of the scores; covariances by their correlation
    score      Var(noise of s_j) / kappa_j^2, with that of the product of the means of u_j and of the
               residuals, which are centered at released means
    slope      (s_j / kappa_j^2)^2 Var(noise of kappa_j)
    column     E (w_j' Z d)^2

Where all columns are targets, products with the selected columns take the place of neighbors (`debias_all`).

**Logistic fits** (`debiased_jointly`) have one matrix of slopes. With W the nodewise regressions on
z = (1, x), Omega = E_T' W and ``u = Omega^-1/2 W'z``, M the released secant matrix and delta = M^-1 s,

    S^-1 = A = Omega^1/2 M^-1,
    A [ meat / n + sigma_s^2 I + sigma_M^2 / 2 (|delta|^2 I + delta delta') ] A'  +  diag E (w_j' Z d)^2,

the noise of M being isometric (sd sigma_M on the diagonal, `privinf.inference.one_step.step_noise`). The
score is linear along the step and not at its start: M is a secant. On the targets x = Omega^-1/2 u + rest,
E c u rest' = 0, and w is a function of u but for c: for elliptical columns E w g u rest' = 0 too. The targets
are in the first fit, selected or not, so that d and the step are short; along a long step the other
coefficients would have to move as well. The targets' own d is repaired by A and yet counted in the last
term: a second-order matter.

The two differ because the weight of a row in a logistic score depends on all directions together, so that
scores of correlated targets leak into one another, which only a full matrix of slopes undoes. A linear score
is orthogonal to the other columns of its nodewise regression, so that one slope for each target is enough and
leaves more of the budget to the score.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from privinf.inference.estimate import VarianceTerms
from privinf.inference.one_step import step_noise
from privinf.inference.tails import Clip, shrunk
from privinf.lasso.diagnostics import NodewiseDiagnostics, Outside
from privinf.lasso.fit import MIN_CLEARANCE, SparseFit
from privinf.lasso.logistic import LogisticFit
from privinf.lasso.nodewise import all_target_columns, logistic_target_columns, target_columns
from privinf.lasso.plan import DebiasingPrices
from privinf.lasso.precision import joint_covariance
from privinf.lasso.radii import clip_radii
from privinf.lasso.scores import (
    FAR,
    ScoreRelease,
    WeightedScores,
    mean_scores,
    robust_scores,
    slopes_above_noise,
    steadied_scores,
    weighted_scores,
)
from privinf.lasso.sums import RESIDUAL_ROOM, HiddenByNoise, LogisticSums, Score, SparseSums
from privinf.typing import Flags, Floats, ScoreTarget
from privinf.wire import Labels

COORDINATES_EQUATION = """\
var_j = v_j / (n kappa_j^2) + s_s^2 / kappa_j^2 + (s_j s_kappa / kappa_j^2)^2 + column_j
sampling: v_j / (n kappa_j^2); n is the number of records, v_j the mean square of the clipped scores of
target j, kappa_j their slope
score noise: s_s^2 / kappa_j^2; s_s is the standard deviation of the noise in the score s_j
slope noise: (s_j s_kappa / kappa_j^2)^2; s_kappa is the standard deviation of the noise in the slope
precision columns: column_j = E (w_j' Z d)^2, E is the mean over the noise; w_j are the coefficients of the
nodewise regression of target j, Z the noise of its Gram matrix, d the error of the initial estimate"""
JOINT_EQUATION = """\
cov = L [ meat / n + s_S^2 I + (s_H^2 / 2) (|D|^2 I + D D') ] L' + diag(column)
sampling: meat / n; meat is the shrunk mean outer product of the weighted scores, n the number of records
score noise: s_S^2 I; s_S is the standard deviation of the noise in the score, I the identity matrix
Hessian noise: (s_H^2 / 2) (|D|^2 I + D D'); s_H is that standard deviation for the Hessian M, D = M^-1 s the
last step for the score s; L = Omega^(1/2) M^-1 maps the score to the coefficients, Omega is the matrix of the
entries of all w_j at the targets
precision columns: column_j = E (w_j' Z d)^2, E is the mean over the noise; w_j are the coefficients of the
nodewise regression of target j, Z the noise of its Gram matrix, d the error of the initial estimate"""
HIDDEN_CURVATURE = (
    "the noise hides the curvature of the scores: pass fewer targets, a larger budget, or other shares="
)
HIDDEN_SLOPES = (
    "the noise is too large to estimate the slope or the variance of a target's score, so intervals are not "
    "available: pass fewer targets, a larger budget, or other shares="
)
# Names of terms of the variance.
SCORE_NOISE = "score noise"
SLOPE_NOISE = "slope noise"
COLUMN_NOISE = "precision columns"  # of the noise of nodewise regressions
LEAST_RESIDUAL = 0.6  # residuals are clipped no nearer than here, in units of their scale
RESIDUAL_SHARE = 0.2  # part of the means' price that goes to the mean of the residuals
STANDING = 4.0  # standard deviations of its noise that M must lie above zero
FAR_SIGN = "the debiasing step moves the linear predictor by {:.1f} (root mean square), too far for one step"
WEAK_UNION = "the noise of the Gram matrix of the targets and their neighbors is as large as the matrix"


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
    """Debiased coordinates of k targets, and the covariance of their errors by parts.

    Attributes
    ----------
    params : ndarray, shape (k,)
    sampling : ndarray, shape (k,)
        Variances due to the sampling of the rows.
    sampling_cov : ndarray, shape (k, k)
        Their covariance.
    noise : ndarray, shape (k,) or (k, k)
        Variances due to the noise of all releases, where it is independent between targets; else their
        covariance.
    terms : mapping of str to ndarray
        The named parts of `noise`, each of its shape.
    equation : str
        Meaning of the terms, as results print it.
    """

    params: Floats
    sampling: Floats
    sampling_cov: Floats
    noise: Floats
    terms: Mapping[str, Floats]
    equation: str

    @property
    def privacy(self) -> Floats:
        """Variances due to the noise of the releases, shape (k,)."""
        return self.noise if self.noise.ndim == 1 else np.diag(self.noise)

    @property
    def variance(self) -> Floats:
        """Total variances, shape (k,)."""
        return self.sampling + self.privacy

    def in_units(self, unit: Floats, bias: Floats | None = None) -> TargetCoefficients:
        """Return the coefficients after division by `unit`, (k,); `bias` is that of the coordinates."""
        back = np.outer(unit, unit)
        sampling = self.sampling_cov / back
        noise = _matrix(self.noise) / back
        # Both orders of sum and division remain, as the last bits of covariances depend on them.
        independent = self.noise.ndim == 1
        cov = (self.sampling_cov + _matrix(self.noise)) / back if independent else sampling + noise
        terms = {name: _matrix(term) / back for name, term in self.terms.items()}
        return TargetCoefficients(
            params=self.params / unit,
            cov=cov,
            sampling=sampling,
            noise=noise,
            terms=VarianceTerms.dividing(cov, self.equation, terms),
            bias=None if bias is None else bias / unit,
        )


def _matrix(term: Floats) -> Floats:
    """Return a covariance: of independent numbers where their variances are given."""
    return np.diag(term) if term.ndim == 1 else term


def debiased_coordinates(
    start: Floats, released: ScoreRelease, column: Floats, correlation: Floats
) -> Debiased:
    """Return b = b0 + s / kappa with its variances.

    Parameters
    ----------
    start : ndarray, shape (k,)
        b0 at the targets.
    released : ScoreRelease
    column : ndarray, shape (k,)
        Variance that the noise of the nodewise regressions causes.
    correlation : ndarray, shape (k, k)
        Of the scores.

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
    sampling = np.asarray(released.square / (released.n * slope**2))
    score_noise = np.asarray((released.score_sd / slope) ** 2)
    slope_noise = np.asarray((step * released.slope_sd / slope) ** 2)
    return Debiased(
        params=np.asarray(start + step),
        sampling=sampling,
        sampling_cov=joint_covariance(correlation, sampling, np.zeros(len(slope))),
        noise=score_noise + slope_noise + column,
        terms={SCORE_NOISE: score_noise, SLOPE_NOISE: slope_noise, COLUMN_NOISE: np.asarray(column)},
        equation=COORDINATES_EQUATION,
    )


def debiased_jointly(start: Floats, released: WeightedScores, root: Floats, column: Floats) -> Debiased:
    """Return b = b0 + A s with its covariance, A = Omega^1/2 M^-1.

    Parameters
    ----------
    start : ndarray, shape (k,)
        b0 at the targets.
    released : WeightedScores
    root : ndarray, shape (k, k)
        Omega^1/2.
    column : ndarray, shape (k,)
        Variance that the noise of the nodewise regressions causes.

    Raises
    ------
    HiddenByNoise
        The noise hides the curvature of the scores.

    Notes
    -----
    **Privacy.** Post-processing.
    """
    score = released.score
    secant = released.secant
    meat = released.meat
    if not np.linalg.eigvalsh(secant.mean)[0] > STANDING * secant.sd:
        raise HiddenByNoise(HIDDEN_CURVATURE)
    lead = root @ np.linalg.inv(secant.mean)
    delta = np.asarray(np.linalg.solve(secant.mean, score.mean), dtype=np.float64)
    step_terms = step_noise(delta, score.sd, secant.sd)
    noise = step_terms["score noise"] + step_terms["Hessian noise"]
    sampling = lead @ (shrunk(meat.mean, meat.sd) / released.n) @ lead.T
    return Debiased(
        params=start + lead @ score.mean,
        sampling=np.diag(sampling),
        sampling_cov=sampling,
        noise=lead @ noise @ lead.T + np.diag(column),
        terms={
            SCORE_NOISE: score.sd**2 * (lead @ lead.T),
            "Hessian noise": lead @ step_terms["Hessian noise"] @ lead.T,
            COLUMN_NOISE: np.diag(column),
        },
        equation=JOINT_EQUATION,
    )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class DebiasedFit:
    """Debiased coordinates in the units of the sums, with everything that their distribution needs.

    Attributes
    ----------
    coordinates : Debiased
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
        return self.coordinates.in_units(unit, self.bias)


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
    start = fit.coefficients(len(sums.units.scale))[list(targets)]
    coordinates, above_noise = coordinates_above_noise(start, release, precision.noise, scores.correlation)
    bias = scores.bias if scores.clip is not None and scores.clip.ratio > 0.0 else None
    return DebiasedFit(
        coordinates=coordinates,
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


def coordinates_above_noise(
    start: Floats, release: ScoreRelease, column: Floats, correlation: Floats
) -> tuple[Debiased, Flags]:
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
    coordinates = debiased_coordinates(
        start[above_noise],
        release.only(above_noise),
        column[above_noise],
        correlation[np.ix_(above_noise, above_noise)],
    )
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
    sums.size_together(rest, budget.sizes)
    if budget.center > 0.0:
        sums.center_again((1.0 - RESIDUAL_SHARE) * budget.center, np.arange(p))
    nodewise = all_target_columns(sums, fit, budget)
    radii = clip_radii(p, sums.n, budget.score)
    bound = max(radii.residual, LEAST_RESIDUAL)
    score = Score(
        columns=range(p),
        transform=nodewise.standard,
        norm=radii.norm,
        residual=bound * fit.scale,
        support=fit.selected,
        beta=fit.selected_beta,
    )
    center_sd = _center_residuals(sums, fit, RESIDUAL_SHARE * budget.center)
    root = np.sqrt(nodewise.residual_squares)
    groups = (selected, rest)
    released = steadied_scores(sums, score, root, groups, price=budget.score, slopes=budget.slopes)
    # The remaining means of columns and of residuals add their product to a score, shrunk as the score is.
    centers = np.broadcast_to(sums.mean_sd / sums.units.scale, p)
    shrinkage = np.abs(released.slope) / root
    released = released.with_noise(center_sd * np.sqrt(centers**2 @ nodewise.standard**2) * shrinkage)
    start = fit.coefficients(p)
    coordinates, above_noise = coordinates_above_noise(start, released, nodewise.noise, nodewise.correlation)
    return DebiasedFit(
        coordinates=coordinates,
        union=list(range(p)),
        columns=nodewise.standard[:, above_noise],
        radii=(radii.norm, bound),
        above_noise=above_noise,
    )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class DebiasedLogistic:
    """Debiased coordinates of the targets of a logistic fit, in the units of the sums.

    Attributes
    ----------
    coordinates : Debiased
    signs : tuple of str
        Warning signs of the step.
    """

    coordinates: Debiased
    signs: tuple[str, ...] = ()

    def in_units(self, unit: Floats) -> TargetCoefficients:
        """Return the coefficients after division by `unit`, (k,)."""
        return self.coordinates.in_units(unit)


def debias_logistic(
    sums: LogisticSums,
    fit: LogisticFit,
    targets: Sequence[int],
    prices: DebiasingPrices,
    *,
    neighbors: int,
    excluded: Sequence[int] = (),
) -> DebiasedLogistic:
    """Return the debiased coefficients of some columns.

    Parameters
    ----------
    sums : LogisticSums
    fit : LogisticFit
    targets : sequence of int
    prices : DebiasingPrices
    neighbors : int
        Number selected for every target, in addition to the columns of the fit.
    excluded : sequence of int
        Columns that may not be neighbors, such as one of ones.

    Raises
    ------
    HiddenByNoise
        The noise hides the curvature of the scores.

    Notes
    -----
    **Privacy.** Spends the prices in `prices`, except for that of the candidates.
    """
    nodewise = logistic_target_columns(sums, fit, targets, prices, neighbors=neighbors, excluded=excluded)
    released = weighted_scores(sums, fit, nodewise.along, prices)
    coordinates = debiased_jointly(fit.point.on(targets), released, nodewise.root, nodewise.noise)
    signs = [FAR_SIGN.format(released.moved)] * (released.moved > FAR)
    signs += [WEAK_UNION] * (nodewise.clearance < MIN_CLEARANCE)
    return DebiasedLogistic(coordinates=coordinates, signs=tuple(signs))
