"""Debiased coordinates from released scores, slopes and variances.

With first coefficients b0, residuals r = y - x'b0, standardized scores ``u_j = w_j'x / sqrt(w_jj)`` shrunk to
norm at most C and psi the clip to [-R, R], a fit releases, each with Gaussian noise,

    s_j = mean u_j psi(r),   kappa_j = mean u_j x_j 1(|r| < R),   v_j = mean u_j^2 psi(r)^2.

The score's derivative in the j-th coefficient is -kappa_j and in the others nearly zero (w_j is orthogonal to
them), so one Newton step has removed the error of b0 up to second order:

    b_j = b0_j + s_j / kappa_j.

kappa and v are means of products, not products of means: under errors whose size depends on x the latter are
wrong. The variance has four parts, all from released numbers:

    sampling   v_j / (n kappa_j^2)
    score      Var(noise of s_j) / kappa_j^2, with that of the product of the means of u_j and of r, which
               are centered at released means
    slope      (s_j / kappa_j^2)^2 Var(noise of kappa_j)
    column     E (w_j' Z d)^2, d the error of b0 on the support (see `privinf.lasso.precision`)

The error of b0 has the covariance ``(q sigma^2 / n + t^2) P``, P the inverse of the Gram matrix on the
support, q the relative sampling variance of the clipped gradient steps and t the noise of the last of them in
whitened coordinates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from privinf.errors import ArgumentError, NotAvailableError
from privinf.inference.estimate import VarianceTerms
from privinf.typing import Flags, Floats, Integers
from privinf.validation import check_array, check_count, check_fraction, check_number

EQUATION = """\
var_j = v_j / (n kappa_j^2) + s_s^2 / kappa_j^2 + (s_j s_kappa / kappa_j^2)^2 + column_j
sampling: v_j / (n kappa_j^2); n is the number of records, v_j the mean square of the clipped scores of
target j, kappa_j their slope
score noise: s_s^2 / kappa_j^2; s_s is the standard deviation of the noise in the score s_j
slope noise: (s_j s_kappa / kappa_j^2)^2; s_kappa is the standard deviation of the noise in the slope
precision columns: column_j = E (w_j' Z d)^2, E is the mean over the noise; w_j are the coefficients of the
nodewise regression of target j, Z the noise of its Gram matrix, d the error of the initial estimate"""
SMALLEST = 1e-8  # eigenvalue that the projection leaves a correlation matrix, so that it stays invertible
ETA = 0.01  # probability that the bound of `privacy_slack` fails, by default, for each target alone


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Score:
    """A clipped score: u = T'x_A shrunk to `norm`, times the residual of a sparse fit clipped at `residual`.

    Attributes
    ----------
    columns : sequence of int
        A.
    transform : ndarray, shape (size of A, m)
        T.
    norm, residual : float
        C and R; infinite where nothing is noised.
    support, beta
        The sparse fit.
    """

    columns: Sequence[int]
    transform: Floats
    norm: float
    residual: float
    support: Sequence[int]
    beta: Floats

    @property
    def clipped(self) -> bool:
        """Whether anything is clipped."""
        return math.isfinite(self.norm) or math.isfinite(self.residual)


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

    def terms(self, cov: Floats, unit: Floats) -> VarianceTerms:
        """Return the named terms of `cov`, the coordinates' covariance, after division by `unit`."""
        back = np.outer(unit, unit)
        named = {"score noise": self.score, "slope noise": self.slope, "precision columns": self.column}
        noise = {name: np.diag(part) / back for name, part in named.items()}
        return VarianceTerms.dividing(cov / back, EQUATION, noise)


class HiddenByNoise(NotAvailableError):
    """The noise hides a paid release. Fits catch this error and return their other releases with its text."""


MIN_SLOPE_SDS = 4.0  # sds of its noise that a slope must exceed
HIDDEN_SLOPES = (
    "the noise is too large to estimate the slope or the variance of a target's score, so intervals are not "
    "available: pass fewer targets, a larger budget, or other shares="
)


def slopes_above_noise(released: ScoreRelease) -> Flags:
    """Return which scores have a slope and a variance that the noise does not hide, shape (k,).

    A target is left out for its own slope and variance alone. The noise of its score, which decides whether
    its interval covers, is independent of theirs, so leaving targets out selects no intervals.

    Notes
    -----
    **Privacy.** Post-processing of releases.
    """
    steep = released.slope > MIN_SLOPE_SDS * np.asarray(released.slope_sd)
    return np.asarray(steep & (released.square > 0.0))


def steadied(values: Floats, noise_sd: float) -> Floats:
    """Return noisy positive numbers, shrunk toward their mean by the share that noise has in their spread.

    Parameters
    ----------
    values : ndarray, shape (k,)
        Such as the variances of k standardized scores, which are equal under errors independent of features.
    noise_sd : float

    Notes
    -----
    **Privacy.** Post-processing. With ``f = max(0, 1 - noise_sd^2 / Var(values))`` the result is
    ``mean + f (values - mean)``, at least a quarter of the mean: differences that stand out of the
    noise are kept, and differences that are noise are removed.
    """
    mean = float(np.mean(values))
    share = _usable_share(values, noise_sd)
    return np.asarray(np.maximum(mean + share * (values - mean), 0.25 * mean))


def steadied_sd(values: Floats, noise_sd: float) -> float:
    """Return the sd of the noise that is left in `steadied` numbers."""
    share = _usable_share(values, noise_sd)
    return noise_sd * math.sqrt(share**2 + (1.0 - share**2) / len(values))


def _usable_share(values: Floats, noise_sd: float) -> float:
    spread = float(np.var(values))
    return max(0.0, 1.0 - noise_sd**2 / spread) if spread > 0.0 and len(values) > 1 else 1.0


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


def score_correlation(columns: Floats, gram: Floats) -> Floats:
    """Return the correlation matrix of the targets' scores, positive definite with a unit diagonal.

    Parameters
    ----------
    columns : ndarray, shape (size, k)
    gram : ndarray, shape (size, size)

    Notes
    -----
    **Privacy.** Post-processing of the released Gram matrix.
    """
    raw = columns.T @ gram @ columns
    raw = (raw + raw.T) / 2.0
    return _unit_diagonal(_projected(_unit_diagonal(raw)))


def joint_covariance(correlation: Floats, sampling: Floats, privacy: Floats) -> Floats:
    """Return the covariance of debiased coordinates from a correlation and two kinds of variances, (k,)."""
    spread = np.sqrt(sampling)
    return np.asarray(correlation * np.outer(spread, spread) + np.diag(privacy))


def _projected(matrix: Floats) -> Floats:
    values, vectors = np.linalg.eigh(matrix)
    if values[0] >= SMALLEST:
        return matrix
    return np.asarray((vectors * np.maximum(values, SMALLEST)) @ vectors.T)


def _unit_diagonal(matrix: Floats) -> Floats:
    # A square that is negative because of noise is uninformative: its correlations are set to 0.
    spread = np.sqrt(np.where(np.diag(matrix) > 0.0, np.diag(matrix), np.inf))
    scaled = matrix / np.outer(spread, spread)
    np.fill_diagonal(scaled, 1.0)
    return np.asarray(scaled)


def privacy_slack(
    column: Floats, members: Integers, selected: int, privacy_share: float, ratio: float, *, eta: float = ETA
) -> Floats:
    """Return the bound on what the privacy errors of coefficients and nodewise regressions do together, (k,).

    Parameters
    ----------
    column : ndarray, shape (k,)
        Released variances of w_j'Z d, sampling error of the coefficients included.
    members : ndarray of int, shape (k,)
        D_j, entries of each nodewise regression.
    selected : int
        m, columns whose coefficients have noise.
    privacy_share : float
        t^2 / a, the share of the noise in the coefficients' variance, in [0, 1].
    ratio : float
        k_max / k_min, at least 1.
    eta : float
        Probability that a bound fails, each target alone.

    Raises
    ------
    ArgumentError

    Notes
    -----
    **Privacy.** Post-processing. In the units of the coordinates; zero without noise.

    Examples
    --------
    >>> privacy_slack(np.array([1e-6]), np.array([8]), 5, 0.5, 1.0).round(3)
    array([0.013])
    """
    variances = check_array(column, "column", ndim=1)
    sizes = np.asarray(members)
    if sizes.shape != variances.shape or (variances < 0.0).any() or (sizes < 1).any():
        raise ArgumentError(
            "column= must be an array of nonnegative variances, and members= an array of positive integers "
            "of the same length, with one entry for each target"
        )
    check_number(privacy_share, "privacy_share", low=0.0, high=1.0)
    check_number(ratio, "ratio", low=1.0)
    tail = math.sqrt(math.log(2.0 / check_fraction(eta, "eta")))
    effective = max(0.5, 0.5 * check_count(selected, "picked", least=0) / ratio)
    typical = np.sqrt((sizes + 1.0) * privacy_share * variances)
    room = (1.0 + 2.0 * tail / np.sqrt(sizes + 1.0)) * (1.0 + tail / math.sqrt(effective))
    return np.asarray(ratio * typical * room)
