"""Prediction of the mean response, with intervals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privinf.errors import ArgumentError
from privinf.inference.normal import upper_quantile
from privinf.typing import ArrayLike, Floats
from privinf.validation import check_array, check_fraction


@dataclass(frozen=True, slots=True)
class MeanPrediction:
    """Predicted means and their standard errors.

    Attributes
    ----------
    mean, se : ndarray, shape (rows,)
    df : float
        Degrees of freedom of the t quantiles; infinite: normal.
    """

    mean: Floats
    se: Floats
    df: float = np.inf

    def conf_int(self, alpha: float = 0.05) -> Floats:
        """Return pointwise intervals of level ``1 - alpha``, shape (rows, 2)."""
        half = upper_quantile(check_fraction(alpha, "alpha") / 2.0, self.df) * self.se
        return np.column_stack([self.mean - half, self.mean + half])


def predict_mean(exog: ArrayLike, params: ArrayLike, cov: ArrayLike, *, df: float = np.inf) -> MeanPrediction:
    """Return ``exog params`` with standard errors ``sqrt(diag(exog cov exog'))``.

    Parameters
    ----------
    exog : array_like, shape (rows, p)
    params : array_like, shape (p,)
    cov : array_like, shape (p, p)
    df : float
        Of the covariance.
    """
    rows, center = check_array(exog, "exog", ndim=2), check_array(params, "params", ndim=1)
    covariance = check_array(cov, "cov", ndim=2)
    if rows.shape[1] != len(center) or covariance.shape != (len(center),) * 2:
        raise ArgumentError(f"exog {rows.shape}, params {center.shape} and cov {covariance.shape} do not fit")
    variances = np.einsum("ij,jk,ik->i", rows, covariance, rows, optimize=True)
    return MeanPrediction(rows @ center, np.sqrt(np.maximum(variances, 0.0)), df)
