"""Standard errors of predicted means, of new observations and of smooth functions of the coefficients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import betainc, pdtr, stdtrit

from privinf.errors import ArgumentError
from privinf.inference.intervals import Precision
from privinf.inference.noisy_variance import NoisyVariance
from privinf.typing import ArrayLike, Floats
from privinf.validation import check_array, check_fraction

# A five-point difference errs by h^4 in truncation and eps / h in rounding: this balances the two.
RELATIVE_STEP = float(np.finfo(np.float64).eps ** 0.2)
PREDICTOR_NODES = 201  # of the distribution of the linear predictor of counts
LARGE_DF = 1e10  # degrees of freedom from which on Student's distribution is the normal one
LOG_MOST = 40.0  # logarithm of a mean, up or down, beyond which it is not followed
MOST_COUNTS = 2.0**48  # counts beyond are returned as infinite


@dataclass(frozen=True, slots=True)
class DeltaMethod:
    """Values of m functions with their first-order covariance.

    Attributes
    ----------
    value : ndarray, shape (m,)
    jacobian : ndarray, shape (m, p)
    cov : ndarray, shape (m, m)
        ``jacobian cov(params) jacobian'``.
    """

    value: Floats
    jacobian: Floats
    cov: Floats

    @property
    def bse(self) -> Floats:
        """Standard errors, shape (m,)."""
        return np.sqrt(np.maximum(np.diag(self.cov), 0.0))


def delta_method(function: Callable[[Floats], ArrayLike], params: ArrayLike, cov: ArrayLike) -> DeltaMethod:
    """Apply the delta method to ``function(params)``, with a numerical Jacobian.

    Parameters
    ----------
    function : callable
        Takes (p,), returns a number or (m,).
    params : array_like, shape (p,)
    cov : array_like, shape (p, p)

    Raises
    ------
    ArgumentError
        The function is not finite near `params`, or does not return (m,).
    """
    center = check_array(params, "params", ndim=1)
    covariance = check_array(cov, "cov", ndim=2)
    spread = np.sqrt(np.diag(covariance))
    value = _evaluate(function, center)
    derivative = jacobian(function, center, scale=np.maximum(np.abs(center), spread))
    return DeltaMethod(value, derivative, derivative @ covariance @ derivative.T)


def jacobian(function: Callable[[Floats], ArrayLike], point: Floats, *, scale: Floats) -> Floats:
    """Return the Jacobian at `point`, shape (m, p), by five-point central differences."""
    columns = []
    for place, size in enumerate(np.where(scale > 0.0, scale, 1.0)):
        step = np.zeros_like(point)
        step[place] = (point[place] + RELATIVE_STEP * size) - point[place]  # exactly representable
        near = _evaluate(function, point + step) - _evaluate(function, point - step)
        far = _evaluate(function, point + 2.0 * step) - _evaluate(function, point - 2.0 * step)
        columns.append((8.0 * near - far) / (12.0 * step[place]))
    return np.column_stack(columns)


def _evaluate(function: Callable[[Floats], ArrayLike], point: Floats) -> Floats:
    with np.errstate(all="ignore"):
        value = np.atleast_1d(np.asarray(function(point.copy()), dtype=np.float64))
    if value.ndim != 1:
        raise ArgumentError(f"function= must return a number or a vector, got shape {value.shape}")
    if not np.isfinite(value).all():
        raise ArgumentError(
            "function= must be finite near the estimate for the delta method, but it returned values "
            "that are not finite"
        )
    return value


@dataclass(frozen=True, slots=True)
class MeanPrediction:
    """Predicted means and their standard errors.

    Attributes
    ----------
    mean, se : ndarray, shape (rows,)
    df : float, or ndarray of shape (rows,)
        Degrees of freedom of the t quantiles; infinite: normal.
    bias : ndarray, shape (rows,), or None
        Largest absolute bias that the intervals allow for.
    """

    mean: Floats
    se: Floats
    df: float | Floats = np.inf
    bias: Floats | None = None

    def conf_int(self, alpha: float = 0.05) -> Floats:
        """Return pointwise intervals of level ``1 - alpha``, shape (rows, 2)."""
        half = Precision(self.se, self.df, self.bias).half_length(alpha)
        return np.column_stack([self.mean - half, self.mean + half])


def predict_mean(
    exog: ArrayLike,
    params: ArrayLike,
    cov: ArrayLike,
    *,
    df: float | Floats = np.inf,
    bias: Floats | None = None,
) -> MeanPrediction:
    """Return ``exog params`` with standard errors ``sqrt(diag(exog cov exog'))``.

    Parameters
    ----------
    exog : array_like, shape (rows, p)
        Rows with NaN have NaN.
    params : array_like, shape (p,)
    cov : array_like, shape (p, p)
    df : float, or ndarray of shape (rows,)
        Of the covariance.
    bias : ndarray, shape (p,), optional
        Largest absolute biases of the parameters; those of the means are ``|exog| bias``.
    """
    rows = check_array(exog, "exog", ndim=2, finite=False)
    center = check_array(params, "params", ndim=1)
    covariance = check_array(cov, "cov", ndim=2)
    if rows.shape[1] != len(center) or covariance.shape != (len(center),) * 2:
        raise ArgumentError(
            f"the shapes of exog {rows.shape}, params {center.shape} and cov {covariance.shape} do not match"
        )
    variances = np.einsum("ij,jk,ik->i", rows, covariance, rows, optimize=True)
    moved = None if bias is None else np.abs(rows) @ bias
    return MeanPrediction(rows @ center, np.sqrt(np.maximum(variances, 0.0)), df, moved)


@dataclass(frozen=True, slots=True)
class NormalObservation:
    """New observations with normal scatter: ``se^2`` is that of the mean plus the residual variance.

    Attributes
    ----------
    mean : ndarray, shape (rows,)
    precision : Precision
        Of the predicted means, with the degrees of freedom of the observations.
    scatter : NoisyVariance
        Of single observations around the predicted means.
    """

    mean: Floats
    precision: Precision
    scatter: NoisyVariance

    @property
    def se(self) -> Floats:
        """Standard errors, shape (rows,)."""
        return np.asarray(np.hypot(self.precision.se, self.scatter.sd))

    def conf_int(self, alpha: float) -> Floats:
        """Return intervals of level ``1 - alpha``, shape (rows, 2)."""
        if self.scatter.noise > 0.0:  # its limit allows for noise, which the degrees of freedom count too
            half = np.hypot(self.precision.half_length(alpha), self.scatter.half_length(alpha))
        else:
            se = np.sqrt(np.square(self.precision.se) + self.scatter.estimate)
            half = replace(self.precision, se=se).half_length(alpha)
        return np.column_stack([self.mean - half, self.mean + half])


@dataclass(frozen=True, slots=True)
class CountObservation:
    """New counts: Poisson or negative binomial, at an uncertain mean.

    The variance of a negative binomial count is ``dispersion * mean``; with `alpha`, mean + alpha mean^2.

    Attributes
    ----------
    linear : MeanPrediction
        Of the logarithm of the mean.
    dispersion : float
        At least 1; 1 is Poisson.
    alpha : float
        At least 0; above it `dispersion` is not used.

    Notes
    -----
    Quantiles of the mixture of the distribution over the normal (or t) error of the linear predictor: Y lies
    in the interval with chance at least ``1 - alpha``, for counts are discrete. A bias moves the ends apart.
    """

    linear: MeanPrediction
    dispersion: float = 1.0
    alpha: float = 0.0

    @property
    def se(self) -> Floats:
        """Standard errors, shape (rows,), to first order in the mean's error."""
        mean = np.exp(self.linear.mean)
        dispersion = 1.0 + self.alpha * mean if self.alpha > 0.0 else self.dispersion
        return np.sqrt(np.square(mean * self.linear.se) + dispersion * mean)

    def conf_int(self, alpha: float) -> Floats:
        """Return intervals of level ``1 - alpha``, shape (rows, 2)."""
        tail = check_fraction(alpha, "alpha") / 2.0
        moved = np.zeros_like(self.linear.mean) if self.linear.bias is None else self.linear.bias
        centers = (self.linear.mean - moved, self.linear.mean + moved)
        df = np.broadcast_to(self.linear.df, self.linear.mean.shape)
        levels = (tail, 1.0 - tail)
        ends = [
            count_quantiles(level, center, self.linear.se, df, self.dispersion, self.alpha)
            for level, center in zip(levels, centers, strict=True)
        ]
        return np.column_stack(ends)


def count_quantiles(
    level: float, eta: Floats, se: Floats, df: Floats, dispersion: float, alpha: float = 0.0
) -> Floats:
    """Return the least counts k with ``P(Y <= k) >= level``, Y a count whose log mean is ``eta + se T``.

    Parameters
    ----------
    level : float
    eta, se, df : ndarray, shape (rows,)
        The chance is an average over equally likely values of T, t with `df`.
    dispersion : float
        Variance over mean: 1 Poisson, above it negative binomial.
    alpha : float
        Above 0 the variance is ``mean + alpha mean^2`` instead.

    Returns
    -------
    ndarray, shape (rows,)
        By bisection; NaN for NaN, infinite beyond the largest count.
    """
    nodes = (np.arange(PREDICTOR_NODES) + 0.5) / PREDICTOR_NODES
    errors = se[:, None] * stdtrit(np.minimum(df, LARGE_DF)[:, None], nodes)
    means = np.exp(np.clip(eta[:, None] + errors, -LOG_MOST, LOG_MOST))

    def below(count: Floats) -> Floats:
        k = count[:, None]
        if alpha > 0.0:
            chance = betainc(1.0 / alpha, k + 1.0, 1.0 / (1.0 + alpha * means))
        elif dispersion > 1.0:
            chance = betainc(means / (dispersion - 1.0), k + 1.0, 1.0 / dispersion)
        else:
            chance = pdtr(k, means)
        return np.asarray(chance.mean(axis=1), dtype=np.float64)

    low, high = np.full(len(eta), -1.0), np.ones(len(eta))
    while (short := (below(high) < level) & (high < MOST_COUNTS)).any():
        low = np.where(short, high, low)
        high = np.where(short, 2.0 * high, high)
    while (high - low > np.maximum(1.0, 2.0**-50 * high)).any():
        middle = np.floor((low + high) / 2.0)
        short = below(middle) < level
        low, high = np.where(short, middle, low), np.where(short, high, np.maximum(middle, low + 1.0))
    return np.where(np.isfinite(eta), np.where(high >= MOST_COUNTS, np.inf, high), np.nan)
