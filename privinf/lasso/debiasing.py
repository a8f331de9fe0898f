"""Debiasing named targets: the joint clipped score of their nodewise regressions, its slopes and variances.

For targets j = 1, ..., k after a sparse fit `privinf.lasso.nodewise` gives the nodewise regressions; the
scores of all targets are clipped and released as one vector, with its slopes and variances: so that their
root is the mean's (`privinf.lasso.mean_scores`), or clipped as narrowly as is best for normal errors
("robust", `privinf.lasso.coordinates`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from privinf.inference.tails import Clip
from privinf.lasso.coordinates import (
    HIDDEN_SLOPES,
    Debiased,
    HiddenByNoise,
    Score,
    ScoreRelease,
    debiased_coordinates,
    joint_covariance,
    slopes_above_noise,
)
from privinf.lasso.diagnostics import NodewiseDiagnostics
from privinf.lasso.fit import SparseFit
from privinf.lasso.mean_scores import mean_scores
from privinf.lasso.nodewise import target_columns
from privinf.lasso.plan import DebiasingPrices
from privinf.lasso.radii import ClipRadii, clip_radii, norm_moments, residual_moments
from privinf.lasso.sums import RESIDUAL_ROOM, SparseSums
from privinf.typing import Flags, Floats, ScoreTarget
from privinf.wire import Labels, Statistics

SLOPE_ROOM = 3.0  # products u_j x_j are shrunk to this many times C, or to more while that costs little noise
SLOPE_NOISE = 0.05  # the noise of a slope that counts as little, relative to the slope (`slope_norm`)
MOST_OUTSIDE = 0.02  # share of values outside the bounds that changes coefficients
SURE = 3.0  # sds of its noise that this share must also exceed


@dataclass(frozen=True, slots=True, eq=False)
class Outside:
    """Shares of the values of k targets that lie outside their public bounds, and the sd of their noise."""

    shares: Floats
    sd: float

    @classmethod
    def from_sums(cls, sums: SparseSums, targets: Sequence[int], rho: float) -> Outside:
        """Release these shares."""
        noisy = sums.server.vector_sum(
            Statistics.COLUMNS_OUTSIDE,
            sums.args((), np.empty(0), columns=np.asarray(targets)),
            label=Labels.VALUES_OUTSIDE,
            rho=rho,
            sites=sums.sites,
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

    @property
    def cov(self) -> Floats:
        """Total covariance."""
        return joint_covariance(self.correlation, self.coordinates.sampling, self.coordinates.privacy)


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
    start = np.zeros(len(sums.units.scale))
    start[fit.selected] = fit.selected_beta
    center_sd = 0.0
    if budget.center > 0.0:
        bound = RESIDUAL_ROOM * fit.scale
        center_sd = sums.center_residual(
            fit.selected, fit.selected_beta, bound, budget.center, Labels.MEAN_OF_RESIDUALS
        )
    centers = np.array([sums.center_sd.get(j, 0.0) for j in precision.union])
    # The remaining means of u and of the residual add their product to a score.
    product = center_sd * np.sqrt(centers**2 @ precision.standard**2)
    if target == "mean":
        scores = mean_scores(
            sums,
            fit,
            targets,
            precision.union,
            precision.standard,
            precision.correlation,
            score=budget.score,
            slopes=budget.slopes,
        )
        release = scores.release
        correlation = scores.correlation
        radii = (math.inf, math.inf)
        bias = scores.bias if scores.clip.ratio > 0.0 else None
        clip = scores.clip
    else:
        release, radii = _scores(sums, fit, targets, precision.union, precision.standard, budget)
        correlation = precision.correlation
        bias = None
        clip = None
    release = with_noise(release, product)
    above_noise = slopes_above_noise(release)
    coordinates = coordinates_above_noise(start[list(targets)], release, precision.noise, above_noise)
    return DebiasedFit(
        coordinates=coordinates,
        correlation=correlation[np.ix_(above_noise, above_noise)],
        union=precision.union,
        columns=precision.standard[:, above_noise],
        radii=radii,
        bias=None if bias is None else bias[above_noise],
        clip=clip,
        marks=None if precision.marks is None else precision.marks.only(above_noise),
        outside=outside.only(above_noise),
        above_noise=above_noise,
    )


def coordinates_above_noise(
    start: Floats, release: ScoreRelease, column: Floats, above_noise: Flags
) -> Debiased:
    """Return the debiased coordinates of the targets whose slopes the noise does not hide.

    Raises
    ------
    HiddenByNoise
        The noise hides the slopes of all targets.

    Notes
    -----
    **Privacy.** Post-processing.
    """
    if not above_noise.any():
        raise HiddenByNoise(HIDDEN_SLOPES)
    return debiased_coordinates(start[above_noise], release.only(above_noise), column[above_noise])


def with_noise(release: ScoreRelease, sd: Floats) -> ScoreRelease:
    """Return a release whose scores have more noise, of these sds."""
    return replace(release, score_sd=np.hypot(release.score_sd, sd))


def _scores(
    sums: SparseSums,
    fit: SparseFit,
    targets: Sequence[int],
    union: list[int],
    transform: Floats,
    budget: DebiasingPrices,
) -> tuple[ScoreRelease, tuple[float, float]]:
    radii = clip_radii(len(targets), sums.n, budget.score)
    score = Score(
        columns=union,
        transform=transform,
        norm=radii.norm,
        residual=radii.residual * fit.scale,
        support=fit.selected,
        beta=fit.selected_beta,
    )
    mean, mean_sd = sums.score(score, budget.score, Labels.DEBIASING_SCORES)
    max_abs = float(sums.units.max_abs[list(targets)].max())
    norm = slope_norm(radii, len(targets), max_abs, sums.n, budget.slopes / 2.0)
    slope, slope_sd = sums.slopes(score, targets, norm, budget.slopes / 2.0)
    square = sums.variances(score, budget.slopes / 2.0)
    released = ScoreRelease(
        score=mean, slope=slope, square=square, score_sd=mean_sd, slope_sd=slope_sd, n=sums.n
    )
    return released, (radii.norm, radii.residual)


def slope_norm(radii: ClipRadii, targets: int, max_abs: float, n: int, rho: float) -> float:
    """Return where the products u_j x_j are shrunk, for abs(u) <= C and abs(x_j) <= max_abs.

    A column of many zeros and rare large values has most of its slope in the large ones: nothing is cut
    below ``C max_abs`` unless the noise of a slope would be too large against the slope of normal columns.
    """
    if math.isinf(rho):
        return math.inf
    slope = norm_moments(radii.norm, targets)[0] * residual_moments(radii.residual)[0]
    affordable = SLOPE_NOISE * slope * n * math.sqrt(2.0 * rho) / 2.0
    return min(radii.norm * max_abs, max(SLOPE_ROOM * radii.norm, affordable))
