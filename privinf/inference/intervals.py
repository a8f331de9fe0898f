"""Half-lengths and p-values of linear contrasts: normal or t by Satterthwaite's df, with room for a bias."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr, stdtr

from privinf.inference.estimate import Estimate, two_sided_pvalue, upper_quantile, upper_tail
from privinf.typing import Alternative, ArrayLike, Floats
from privinf.validation import check_fraction

QUANTILE_STEPS = 60  # halvings of the bracket, more than a double has digits
CHI_SQUARE_FROM = 1e9  # degrees of freedom from which F is chi-square to nine digits


@dataclass(frozen=True, slots=True)
class Precision:
    """Precision of k numbers: standard errors, their degrees of freedom, and bounds on their bias.

    Attributes
    ----------
    se : ndarray, shape (k,)
    df : float, or ndarray of shape (k,)
        Degrees of freedom of the t quantiles; infinite: normal.
    bias : ndarray, shape (k,), or None
        Largest absolute bias that intervals and p-values allow for; None: no bias.

    Notes
    -----
    With a bias of at most B, the interval has half-length ``se cv(B/se)``, where ``P(|T + B/se| > cv) =
    alpha``, and the p-value is the largest under ``|bias| <= B``. For normal T, cv^2 is the 1 - alpha
    quantile of chi2_1 with non-centrality (B/se)^2 (Armstrong and Kolesar 2018). For t the *central* t is
    moved by B/se: the noncentral t would multiply the bias, which is known, by the error of se. Moved so,
    intervals of nominal 0.95 covered 0.950 to 0.962 at 1 to 30 degrees of freedom, B up to 5 standard errors.

    **Privacy.** Post-processing.
    """

    se: Floats
    df: float | Floats = np.inf
    bias: Floats | None = None

    def half_length(self, alpha: float) -> Floats:
        """Return half the length of intervals of level ``1 - alpha``, shape (k,)."""
        level = check_fraction(alpha, "alpha")
        if self.bias is None:
            return np.asarray(upper_quantile(level / 2.0, self.df) * self.se, dtype=np.float64)
        moved = np.divide(self.bias, self.se, out=np.zeros_like(self.se), where=self.se > 0.0)
        half = self.se * moved_quantile(moved, level, self.df)
        return np.where(self.se > 0.0, half, self.bias)

    def half_width(self, alpha: float) -> Floats:
        """Return the half-widths of one-sided intervals of level ``1 - alpha``, shape (k,)."""
        level = check_fraction(alpha, "alpha")
        return np.asarray(upper_quantile(level, self.df) * self.se + self._largest_bias, dtype=np.float64)

    def pvalues(self, z: ArrayLike, alternative: Alternative = "two-sided") -> Floats:
        """Return p-values of statistics ``z = deviation / se``, the largest that a bias allows."""
        statistics = np.asarray(z, dtype=np.float64)
        if alternative == "two-sided" and self.bias is None:
            return two_sided_pvalue(statistics, self.df)
        moved = np.divide(self._largest_bias, self.se, out=np.zeros_like(self.se), where=self.se > 0.0)
        if alternative == "two-sided":
            return np.minimum(moved_tails(np.abs(statistics), moved, self.df), 1.0)
        above = (statistics if alternative == "greater" else -statistics) - moved
        return np.asarray(upper_tail(above) if np.isinf(self.df).all() else stdtr(self.df, -above))

    @property
    def _largest_bias(self) -> Floats:
        return np.zeros_like(self.se) if self.bias is None else self.bias


def moved_tails(c: Floats, moved: Floats, df: float | Floats = np.inf) -> Floats:
    """Return ``P(|T + moved| > c)``, T normal, or t with finite `df`."""
    if np.isinf(df).all():
        return _normal_tails(c, moved)
    return _t_tails(c, moved, df)


def _t_tails(c: Floats, moved: Floats, df: float | Floats) -> Floats:
    """Return ``P(|T + moved| > c)``, T of Student's t."""
    return np.asarray(stdtr(df, moved - c) + stdtr(df, -moved - c), dtype=np.float64)


def _normal_tails(c: Floats, moved: Floats) -> Floats:
    """Return ``P(|Z + moved| > c)``, Z normal."""
    return np.asarray(ndtr(moved - c) + ndtr(-(c + moved)))


def moved_quantile(moved: Floats, alpha: float, df: float | Floats = np.inf) -> Floats:
    """Return c with ``P(|T + moved| > c) = alpha``; it lies between the one- and the two-sided quantile."""
    low = np.maximum(moved + upper_quantile(alpha, df), 0.0)
    high = moved + upper_quantile(alpha / 2.0, df)
    tails = _normal_tails if np.isinf(df).all() else partial(_t_tails, df=df)
    for _ in range(QUANTILE_STEPS):
        middle = (low + high) / 2.0
        above = tails(middle, moved) > alpha
        low = np.where(above, middle, low)
        high = np.where(above, high, middle)
    return np.where(moved > 0.0, high, upper_quantile(alpha / 2.0, df))


def contrast_df(estimate: Estimate, R: Floats, extra: float = 0.0) -> float | Floats:
    """Return the degrees of freedom of each row of ``R b``, shape (k,), or one number for all.

    Parameters
    ----------
    estimate : Estimate
    R : ndarray, shape (k, p)
    extra : float
        Variance to be added to each contrast's, known as well as the sampling part (a new observation's).

    Notes
    -----
    Satterthwaite: ``df = df_resid (V / V_sampling)^2``, V the contrast's variance, ``V_sampling = R (cov -
    noise_cov) R'``: the noise's variance is known, only the sampling part is estimated, with `df_resid`.
    Without noise that is `df_resid`; where noise dominates, the distribution is normal.
    """
    if np.isfinite(estimate.df) or np.isinf(estimate.df_resid):
        return estimate.df
    if estimate.noise_cov is None:
        return estimate.df_resid
    total, noise = (np.einsum("ij,jk,ik->i", R, V, R) for V in (estimate.covariance, estimate.noise_cov))
    total, sampling = total + extra, np.maximum(total - noise, 0.0) + extra
    ratio = np.divide(total, sampling, out=np.full_like(total, np.inf), where=sampling > 0.0)
    return np.asarray(estimate.df_resid * np.maximum(ratio, 1.0) ** 2, dtype=np.float64)


def contrast_bias(estimate: Estimate, R: Floats) -> Floats | None:
    """Return the largest absolute bias ``|R| bias`` of each row of ``R b``, shape (k,); None without one."""
    return None if estimate.bias is None else np.abs(R) @ estimate.bias


def precision_of(estimate: Estimate, R: Floats | None = None) -> Precision:
    """Return how well ``R b`` is known, by default each of the p coefficients.

    Raises
    ------
    NotAvailableError
        The estimate has no covariance.
    """
    if R is None:
        R = np.eye(len(estimate.params))
        se = estimate.bse
    else:
        se = np.sqrt(np.maximum(np.einsum("ij,jk,ik->i", R, estimate.covariance, R, optimize=True), 0.0))
    return Precision(se, contrast_df(estimate, R), contrast_bias(estimate, R))


@dataclass(frozen=True, slots=True)
class JointDistribution:
    """Distribution of a joint Wald statistic ``W = d' V^-1 d`` of k restrictions.

    Attributes
    ----------
    k : int
    df : float
        Of the denominator of ``F = W/k``; infinite: chi-square.
    noncentrality : float
        What a bias may add.
    """

    k: int
    df: float
    noncentrality: float

    def pvalue(self, W: float) -> float:
        """Return the largest chance of a statistic above `W`."""
        from scipy.stats import chi2, f, ncf, ncx2

        nc = self.noncentrality
        if self.k == 1 and nc > 0.0:
            return min(float(moved_tails(np.array(W**0.5), np.array(nc**0.5), self.df)), 1.0)
        if self.df >= CHI_SQUARE_FROM:
            return float(ncx2.sf(W, self.k, nc) if nc > 0.0 else chi2.sf(W, self.k))
        F = W / self.k
        return float(ncf.sf(F, self.k, self.df, nc) if nc > 0.0 else f.sf(F, self.k, self.df))

    def power(self, noncentrality: float, alpha: float) -> float:
        """Return the chance of a p-value of at most `alpha`, where ``E d' V^-1 E d`` is the noncentrality."""
        from scipy.stats import f, ncf, ncx2

        highest = 4.0 * (self.k + self.noncentrality + 1.0)
        while self.pvalue(highest) > alpha:
            highest *= 2.0
        critical = brentq(lambda W: self.pvalue(W) - alpha, 0.0, highest)
        if self.df >= CHI_SQUARE_FROM:
            return float(ncx2.sf(critical, self.k, noncentrality))
        F = critical / self.k
        if noncentrality == 0.0:  # scipy's noncentral F is not a distribution there
            return float(f.sf(F, self.k, self.df))
        return float(ncf.sf(F, self.k, self.df, noncentrality))


def joint_distribution(estimate: Estimate, R: Floats) -> JointDistribution:
    """Return the distribution of the Wald test of k independent restrictions, the rows of `R`, at its worst.

    Notes
    -----
    Denominator: the smallest degrees of freedom of any combination of the rows, ``df_resid / l^2`` with l the
    largest eigenvalue of V_sampling relative to V. Non-centrality: ``sum_ij |M_ij| B_i B_j``, M = R'V^-1 R,
    which no bias in the box ``|bias| <= B`` exceeds; for one restriction, and where M has no negative entry,
    it is attained. F with a non-centrality (k > 1) takes the noncentral F, which is conservative: it also
    multiplies the bias by the error of the variance.
    """
    root = _whitening(estimate, R)
    nc = _noncentrality(estimate, root.T @ root)
    df = estimate.df
    if np.isfinite(estimate.df_resid):
        noise = 0.0
        if estimate.noise_cov is not None:
            noise = float(np.linalg.eigvalsh(root @ estimate.noise_cov @ root.T)[0])
        share = min(max(1.0 - noise, 0.0), 1.0)
        df = estimate.df_resid / share**2 if share > 0.0 else np.inf
    return JointDistribution(len(R), float(df), nc)


def wald_distribution(estimate: Estimate, R: Floats, inverse: Floats) -> JointDistribution:
    """Return the distribution of ``W = (R b)' inverse (R b)``, `inverse` that of a sampling covariance."""
    nc = _noncentrality(estimate, R.T @ inverse @ R)
    return JointDistribution(len(R), min(estimate.df, estimate.df_resid), nc)


def _noncentrality(estimate: Estimate, M: Floats) -> float:
    return 0.0 if estimate.bias is None else float(estimate.bias @ np.abs(M) @ estimate.bias)


def joint_statistic(estimate: Estimate, R: Floats) -> float:
    """Return ``W = (R b)' (R cov R')^-1 (R b)``."""
    return float(np.sum(np.square(_whitening(estimate, R) @ estimate.params)))


def _whitening(estimate: Estimate, R: Floats) -> Floats:
    """Return ``V^-1/2 R``, V = R cov R', by Cholesky's root of its correlations."""
    _, V = estimate.linear(R)
    unit = np.sqrt(np.diag(V))
    return np.asarray(np.linalg.solve(np.linalg.cholesky(V / np.outer(unit, unit)), R / unit[:, None]))
