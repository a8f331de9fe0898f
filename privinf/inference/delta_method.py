"""Standard errors of predicted means and of smooth functions of the coefficients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from privinf.errors import ArgumentError
from privinf.inference.intervals import Precision
from privinf.typing import ArrayLike, Floats
from privinf.validation import check_array

# A five-point difference errs by h^4 in truncation and eps / h in rounding: this balances the two.
RELATIVE_STEP = float(np.finfo(np.float64).eps ** 0.2)


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
        raise ArgumentError(f"function must return a number or a vector, got shape {value.shape}")
    if not np.isfinite(value).all():
        raise ArgumentError(
            "function is not finite near the estimate: the delta method needs it smooth there"
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
    params : array_like, shape (p,)
    cov : array_like, shape (p, p)
    df : float, or ndarray of shape (rows,)
        Of the covariance.
    bias : ndarray, shape (p,), optional
        Largest absolute biases of the parameters; those of the means are ``|exog| bias``.
    """
    rows, center = check_array(exog, "exog", ndim=2), check_array(params, "params", ndim=1)
    covariance = check_array(cov, "cov", ndim=2)
    if rows.shape[1] != len(center) or covariance.shape != (len(center),) * 2:
        raise ArgumentError(f"exog {rows.shape}, params {center.shape} and cov {covariance.shape} do not fit")
    variances = np.einsum("ij,jk,ik->i", rows, covariance, rows, optimize=True)
    moved = None if bias is None else np.abs(rows) @ bias
    return MeanPrediction(rows @ center, np.sqrt(np.maximum(variances, 0.0)), df, moved)
