r"""Releases of the scores of targets, with slopes and variances: of the mean, robust, or logistic.

With first coefficients b0, residuals r = y - x'b0, standardized scores ``u_j = w_j'x / sqrt(w_jj)`` shrunk to
norm at most C and psi the clip to [-R, R], robust scores release, each with Gaussian noise,

    s_j = mean u_j psi(r),   kappa_j = mean u_j x_j 1(|r| < R),   v_j = mean u_j^2 psi(r)^2,

where C and R are best for normal errors (`robust_scores`). kappa and v are means of products, not products of
means: under errors whose size depends on x the latter are wrong.

**Scores whose root is the mean** (`mean_scores`) are clipped by counts of their tail, in two parts. With
u = T'x in R^k, s the size of the residuals, t = |u| |r| / s and q = sign(r) u / |u|, so that u r = s q t, the
joint clip psi_R(r) of u shrunk to C solves E[u psi_R(r)] = 0: if errors are skewed and their size depends on
x, this is another b than that of the mean, for any number of rows. Here tail counts of t, released by the
square root of running sums (`privinf.mechanisms.statistics.summands`), choose C and tau = C/3
(`privinf.inference.tails.two_threshold_clip`: C minimizes the noise and half of the squared excess together),
and the releases are

    S1 = sum q min(t, tau),   S2 = sum q clip(t - tau, 0, C - tau),
    kappa_j = mean u_j x_j psi',   psi' = 1, w, 0 for t <= tau, t <= C and beyond,
    M = mean u~ u~',   u~ = q [min(t, tau) + w clip(t - tau, 0, C - tau)],

each with Gaussian noise. S2, weighted by w = 1 + 0.6 lambda, extrapolates to the tail beyond C, lambda the
excess beyond C over that between tau and C: symmetric tails cost next to nothing, one-sided ones are
corrected. A record's s u~_j has the derivative -u_j x_j psi' in b_j (t moves as u r does), so that one Newton
step is

    b_j = b0_j + s_j / kappa_j,   s_j = s (S1_j + w S2_j) / n,

whose covariance is, W = diag(s / kappa),

    W (M / n + sigma_S^2 I) W + diag((s_j / kappa_j^2)^2 sigma_kappa^2) + that of the nodewise regressions,

sigma_S = 2 C'/(n mu_S), C' = tau + w (C - tau), mu_S^2 the price of both parts. M is released as a full
matrix and shrunk toward a multiple of the correlation of u, which it is where errors do not depend on x. Up
to 0.7 lambda of the upper part may be wrong; intervals allow for the bias

    B_j = 0.7 lambda min(|S2_j| + sd_2, X(tau) - X(C)) s / (n kappa_j).

Prices. One share of the score's price is for the counts; S1 and S2 divide the rest as tau : w (C - tau),
whereby S1 + w S2 has the noise of one sum clipped at C'. M shares that of the slopes.

**Scores of all columns** (`steadied_scores`) are robust ones. Their slopes and variances are shrunk toward
their means, within the selected columns and within the others, as far as their noise asks.

**Logistic scores** (`weighted_scores`) are not clipped but weighted (`privinf.lasso.radii`). Along k
directions u with E c u u' = I they release ``s = mean w u e``, the secant matrix ``M = mean w g u u'``, g the
slope of the mean between eta and eta + u'step for a step along s, and the meat ``mean w^2 e^2 u u'``. The
meat is shrunk toward a multiple of the identity as far as its noise asks, which M is near to at a right mean:
k (k + 1) / 2 noisy numbers, whose noise weighs where responses are rare.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from privinf.federation import NoisyGram
from privinf.inference.tails import LOWER_THRESHOLD_RATIO, Clip, shrunk, tail_of, two_threshold_clip
from privinf.lasso.fit import SparseFit
from privinf.lasso.logistic import LogisticFit
from privinf.lasso.plan import DebiasingPrices
from privinf.lasso.precision import positions, steadied, steadied_sd
from privinf.lasso.radii import (
    ClipRadii,
    clip_radii,
    norm_moments,
    product_moments,
    residual_moments,
    weights_of,
)
from privinf.lasso.sums import ROOM, Directions, LogisticSums, NoisyMean, Score, SparseSums
from privinf.mechanisms.statistics.summands import counts_above
from privinf.typing import Flags, Floats, Integers, PlainValue
from privinf.wire import Labels, Statistics

COUNTS_SHARE = 0.14  # share of the score's price for the counts above thresholds
SLOPES_SHARE = 0.5  # share of the price of slopes and variances for the slopes
LOWEST = 0.7  # smallest threshold, in units of sqrt k
RATIO = 2.0**0.25  # of a threshold to the next lower one
MOST_CELLS = 120  # thresholds, at most
# Sds of its noise that a count must exceed: thresholds reach far beyond what scores usually are, and noise
# alone is taken for a tail in one release of a thousand.
DETECTION_SDS = 2.5
# Products u_j x_j are shrunk to this many times sqrt k, or to more while that costs little noise.
MEAN_SLOPE_ROOM = 4.0
# The noise of a slope that counts as little, relative to the smallest slope (`_slope_norm`).
MEAN_SLOPE_NOISE = 0.06
LEAST_VARIANCE = 0.5  # least variance of a score clipped as a product, relative to that of normal scores
MIN_SLOPE_SDS = 4.0  # sds of its noise that a slope must exceed
SLOPE_ROOM = 3.0  # products u_j x_j are shrunk to this many times C, or to more while that costs little noise
FAR = 1.0  # root mean square move of the predictor beyond which a step is not local, and is shortened
SLOPE_NOISE = 0.05  # the noise of a slope that counts as little, relative to the slope (`slope_norm`)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ScoreRelease:
    """Released scores of k targets: means over n records and the sds of their noise.

    Attributes
    ----------
    score, slope, square : ndarray, shape (k,)
        s, kappa and v.
    score_sd : float or ndarray, shape (k,)
        Sd of the noise of an entry of s.
    slope_sd : float or ndarray, shape (k,)
        Sd of the noise of kappa.
    n : int
    """

    score: Floats
    slope: Floats
    square: Floats
    score_sd: float | Floats
    slope_sd: float | Floats
    n: int

    def only(self, above_noise: Flags) -> ScoreRelease:
        """Return the release of some of the targets."""
        score_sd, slope_sd = np.broadcast_arrays(self.score_sd, self.slope_sd, self.score)[:2]
        return ScoreRelease(
            score=self.score[above_noise],
            slope=self.slope[above_noise],
            square=self.square[above_noise],
            score_sd=score_sd[above_noise],
            slope_sd=slope_sd[above_noise],
            n=self.n,
        )

    def with_noise(self, sd: Floats) -> ScoreRelease:
        """Return the release with more noise in the scores, of these sds."""
        return replace(self, score_sd=np.hypot(self.score_sd, sd))


def within_limits(squares: float | Floats, radius: float, scale: float) -> Floats:
    """Return released mean squares of scores clipped as products, brought within their public limits.

    The largest is the square of the clip, `radius` times `scale`, the least a share of that of normal scores.
    """
    least = LEAST_VARIANCE * product_moments(radius)[1] * scale**2
    return np.asarray(np.clip(squares, least, (radius * scale) ** 2))


def slopes_above_noise(released: ScoreRelease) -> Flags:
    """Return which scores have a slope and a variance that the noise does not hide, shape (k,).

    A target is left out for its own slope and variance alone. The noise of its score, which decides whether
    its interval covers, is independent of theirs, so leaving targets out selects no intervals.

    Notes
    -----
    **Privacy.** Costs nothing: it uses only released numbers.
    """
    steep = released.slope > MIN_SLOPE_SDS * np.asarray(released.slope_sd)
    return np.asarray(steep & (released.square > 0.0))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TargetScores:
    """Released scores of k targets, of the mean or robust.

    Attributes
    ----------
    release : ScoreRelease
        s_j and kappa_j; v_j, or the diagonal of s^2 M.
    correlation : ndarray, shape (k, k)
        Of the clipped scores.
    radii : tuple of float
        C and R in units of the residuals' scale; infinite where products are clipped as a unit.
    bias : ndarray, shape (k,), or None
        B, for scores of the mean.
    clip : Clip or None
        Where scores of the mean were clipped.
    """

    release: ScoreRelease
    correlation: Floats
    radii: tuple[float, float] = (math.inf, math.inf)
    bias: Floats | None = None
    clip: Clip | None = None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Forms:
    """The forms u = T'x_A of k targets, and the residuals of a sparse fit."""

    sums: SparseSums
    fit: SparseFit
    targets: Sequence[int]
    union: Sequence[int]
    transform: Floats

    @property
    def longest(self) -> float:
        """Largest |u| that public bounds allow."""
        return float(np.linalg.norm(self.sums.units.max_abs[list(self.union)] @ np.abs(self.transform)))

    def top(self, residual: float) -> float:
        """Return the largest t of residuals up to a size."""
        return ROOM * self.longest * residual / self.fit.scale

    @property
    def furthest(self) -> float:
        """Largest residual that public bounds allow."""
        units = self.sums.units
        fit = self.fit
        return units.y_limit + float(units.max_abs[fit.selected] @ np.abs(fit.selected_beta))

    def release_sum(self, op: str, rho: float, label: str, **extra: PlainValue) -> Any:
        """Release a sum."""
        args = self.sums.args(
            self.fit.selected,
            self.fit.selected_beta,
            columns=np.asarray(self.union),
            transform=self.transform,
            unit=self.fit.scale,
            **extra,
        )
        return self.sums.release(op, args, rho, label)


def mean_scores(
    sums: SparseSums,
    fit: SparseFit,
    targets: Sequence[int],
    union: Sequence[int],
    transform: Floats,
    correlation: Floats,
    *,
    score: float,
    slopes: float,
) -> TargetScores:
    """Release the scores of the mean of some targets with slopes and meat.

    Parameters
    ----------
    sums : SparseSums
    fit : SparseFit
    targets : sequence of int
    union : sequence of int
        A.
    transform : ndarray, shape (size of A, k)
        T.
    correlation : ndarray, shape (k, k)
        Of u.
    score, slopes : float
        Prices, zCDP: of counts and score, of slopes and meat.

    Notes
    -----
    **Privacy.** Spends both prices.
    """
    forms = _Forms(sums=sums, fit=fit, targets=targets, union=union, transform=transform)
    n = sums.n
    clip, price = _clip(forms, score)
    low, high = clip.shares()
    lower = forms.release_sum(
        Statistics.LAYERS_SCORE, price * low, Labels.DEBIASING_SCORES, low=0.0, high=clip.low
    )
    upper = forms.release_sum(
        Statistics.LAYERS_SCORE, price * high, Labels.DEBIASING_SCORES_ABOVE, low=clip.low, high=clip.high
    )
    thresholds_and_weight = {"low": clip.low, "high": clip.high, "weight": clip.weight}
    slope = forms.release_sum(
        Statistics.LAYERS_SLOPES,
        SLOPES_SHARE * slopes,
        Labels.SLOPES_OF_SCORES,
        **thresholds_and_weight,
        targets=np.asarray(targets),
        norm=_slope_norm(forms, SLOPES_SHARE * slopes),
    )
    released = NoisyGram.from_sum(
        forms.release_sum(
            Statistics.LAYERS_MEAT,
            (1.0 - SLOPES_SHARE) * slopes,
            Labels.VARIANCES_OF_SCORES,
            **thresholds_and_weight,
        )
    )
    meat = shrunk(released.mean, float(released.scale / released.rows), correlation)
    unit = fit.scale
    spread = np.sqrt(np.diag(meat))
    score_sd = unit * math.hypot(lower.mean_sd, clip.weight * upper.mean_sd)
    size = unit / np.maximum(slope.mean, 4.0 * slope.mean_sd + 1e-300)
    return TargetScores(
        release=ScoreRelease(
            score=unit * (lower.mean + clip.weight * upper.mean),
            slope=slope.mean,
            square=unit**2 * spread**2,
            score_sd=score_sd,
            slope_sd=slope.mean_sd,
            n=n,
        ),
        correlation=meat / np.outer(spread, spread),
        bias=clip.bias(size * upper.mean, size * upper.mean_sd, size / n),
        clip=clip,
    )


def _clip(forms: _Forms, rho: float) -> tuple[Clip, float]:
    """Return the clipping thresholds of the scores, and the rest of their price."""
    k = len(forms.targets)
    n = forms.sums.n
    if math.isinf(rho):
        top = forms.top(forms.furthest)
        return Clip(low=LOWER_THRESHOLD_RATIO * top, high=top, ratio=0.0, weight=1.0, between=0.0), rho
    top = forms.top(min(2.0 * forms.sums.units.y_max_abs, forms.furthest))
    lowest = LOWEST * math.sqrt(k)
    cells = min(max(math.ceil(math.log(max(top / lowest, 1.0)) / math.log(RATIO)), 1), MOST_CELLS)
    thresholds = top * RATIO ** np.arange(-cells, 0, dtype=np.float64)
    release = forms.release_sum(
        Statistics.LAYERS_COUNTS, COUNTS_SHARE * rho, Labels.COUNTS_OF_SCORES, thresholds=thresholds
    )
    counts, sd = counts_above(release.values, float(release.scale))
    rest = (1.0 - COUNTS_SHARE) * rho
    return two_threshold_clip(
        tail_of(thresholds, counts, sd, n, top, visible_sds=DETECTION_SDS), k, math.sqrt(2.0 * rest)
    ), rest


def _slope_norm(forms: _Forms, rho: float) -> float:
    """Return D: nothing is cut below the largest product, unless its noise would be too large.

    A cut slope is too small, by a tenth and more for rare columns. Without a cut it is E u_j x_j, the size of
    the residual of x_j: the inverse of its own entry of T.
    """
    targets = list(forms.targets)
    diagonal = forms.transform[positions(targets, forms.union), np.arange(len(targets))]
    largest = ROOM * forms.longest * float(forms.sums.units.max_abs[targets].max())
    if math.isinf(rho):
        return largest
    affordable = MEAN_SLOPE_NOISE / float(diagonal.max()) * forms.sums.n * math.sqrt(2.0 * rho) / 2.0
    return min(largest, max(MEAN_SLOPE_ROOM * math.sqrt(len(targets)), affordable))


def robust_scores(
    sums: SparseSums,
    fit: SparseFit,
    targets: Sequence[int],
    union: Sequence[int],
    transform: Floats,
    correlation: Floats,
    *,
    score: float,
    slopes: float,
) -> TargetScores:
    """Release scores of some targets that are clipped as is best for normal errors; as for `mean_scores`."""
    radii = clip_radii(len(targets), sums.n, score)
    clipped = Score(
        columns=union,
        transform=transform,
        norm=radii.norm,
        residual=radii.residual * fit.scale,
        support=fit.selected,
        beta=fit.selected_beta,
    )
    max_abs = float(sums.units.max_abs[list(targets)].max())
    norm = slope_norm(radii, len(targets), max_abs, sums.n, slopes / 2.0)
    release, _ = clipped_scores(sums, clipped, targets, norm, score=score, slopes=slopes)
    return TargetScores(release=release, correlation=correlation, radii=(radii.norm, radii.residual))


def clipped_scores(
    sums: SparseSums, clipped: Score, targets: Sequence[int], norm: float, *, score: float, slopes: float
) -> tuple[ScoreRelease, float]:
    """Return a released clipped score with slopes, shrunk to `norm`, and variances; and the sd of these."""
    mean, mean_sd = sums.score(clipped, score, Labels.DEBIASING_SCORES)
    slope, slope_sd = sums.slopes(clipped, targets, norm, slopes / 2.0)
    square, square_sd = sums.variances(clipped, slopes / 2.0)
    release = ScoreRelease(
        score=mean, slope=slope, square=square, score_sd=mean_sd, slope_sd=slope_sd, n=sums.n
    )
    return release, square_sd


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


def steadied_scores(
    sums: SparseSums, score: Score, root: Floats, groups: Sequence[Integers], *, price: float, slopes: float
) -> ScoreRelease:
    """Release scores, slopes and variances of all columns, the last two steadied within groups.

    Parameters
    ----------
    sums : SparseSums
    score : Score
    root : ndarray, shape (p,)
        sqrt(h), to which slopes are in proportion within a group.
    groups : sequence of ndarray of int
    price, slopes : float
        Prices, zCDP: of the scores, of slopes and variances.

    Notes
    -----
    **Privacy.** Spends both prices.
    """
    p = len(root)
    norm = SLOPE_ROOM * score.norm
    released, square_sd = clipped_scores(sums, score, range(p), norm, score=price, slopes=slopes)
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


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class WeightedScores:
    """Released logistic scores along k directions.

    Attributes
    ----------
    score : NoisyMean
        s.
    secant, meat : NoisyMean
        M, and the mean outer product of the scores.
    moved : float
        Root mean square of the move of the predictor that s asks for.
    n : int
    """

    score: NoisyMean
    secant: NoisyMean
    meat: NoisyMean
    moved: float
    n: int


def weighted_scores(
    sums: LogisticSums, fit: LogisticFit, along: Directions, prices: DebiasingPrices
) -> WeightedScores:
    """Release the logistic scores along some directions, with secant matrix and meat.

    Notes
    -----
    **Privacy.** Spends the prices of score, slopes and meat.
    """
    weights = weights_of(fit.spread, along.size, sums.n, prices.score)
    score = sums.score(fit.point, along, weights, prices.score, Labels.DEBIASING_SCORES)
    step = score.mean / weights.slope
    moved = float(np.linalg.norm(step)) / math.sqrt(fit.spread.curvature)
    step *= min(1.0, FAR / max(moved, FAR))
    secant = sums.secant(fit.point, along, weights, step, prices.slopes, Labels.SLOPES_OF_SCORES)
    meat = sums.meat(fit.point, along, weights, prices.meat)
    return WeightedScores(score=score, secant=secant, meat=meat, moved=moved, n=sums.n)
