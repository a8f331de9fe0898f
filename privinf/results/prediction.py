"""Predicted means of new rows, on the scale of the response, and smooth functions of the coefficients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit

from privinf.errors import ArgumentError, NotAvailableError, SchemaError
from privinf.inference.delta_method import DeltaMethod, MeanPrediction
from privinf.inference.intervals import Precision
from privinf.schema import Design
from privinf.schema.arrays import labelled
from privinf.typing import ColumnsLike, Floats, LossName, Names
from privinf.validation import check_array

NO_SCATTER = "no residual variance was released: how far an observation lies from its mean is not known"


@dataclass(frozen=True, slots=True)
class Prediction:
    """Means predicted for new rows, with standard errors; intervals of new observations where they exist.

    The error of a mean is that of the estimate x'b, sampling and privacy noise together. The interval of a
    new observation adds its scatter around the mean, the released residual variance, and takes it as normal.

    Attributes
    ----------
    mean : MeanPrediction
    index : pandas Index of the new rows
    observation : Precision or None
        Errors of new observations around the predicted means.
    reason : str
        Why there are none.
    """

    mean: MeanPrediction
    index: pd.Index[Any]
    observation: Precision | None = None
    reason: str = NO_SCATTER

    @property
    def predicted_mean(self) -> pd.Series[float]:
        """Predicted means."""
        return pd.Series(self.mean.mean, self.index, name="mean")

    @property
    def se_mean(self) -> pd.Series[float]:
        """Standard errors of the predicted means."""
        return pd.Series(self.mean.se, self.index, name="mean_se")

    @property
    def se_obs(self) -> pd.Series[float]:
        """Standard errors of new observations; NotAvailableError without a residual variance."""
        return pd.Series(self._observed.se, self.index, name="obs_se")

    def conf_int(self, alpha: float = 0.05, *, obs: bool = False) -> pd.DataFrame:
        """Return intervals of level ``1 - alpha``, columns 0 and 1: of means, or of new observations.

        Raises
        ------
        NotAvailableError
            `obs` is True and no residual variance was released.
        """
        if not obs:
            return pd.DataFrame(self.mean.conf_int(alpha), self.index)
        half = self._observed.half_length(alpha)
        return pd.DataFrame(np.column_stack([self.mean.mean - half, self.mean.mean + half]), self.index)

    def summary_frame(self, alpha: float = 0.05) -> pd.DataFrame:
        """Return mean, mean_se, mean_ci_lower and mean_ci_upper of each row.

        Where a residual variance was released, obs_ci_lower and obs_ci_upper of new observations too.
        """
        low, high = self.mean.conf_int(alpha).T
        found = {"mean": self.mean.mean, "mean_se": self.mean.se, "mean_ci_lower": low, "mean_ci_upper": high}
        if self.observation is not None:
            interval = self.conf_int(alpha, obs=True).to_numpy()
            found |= {"obs_ci_lower": interval[:, 0], "obs_ci_upper": interval[:, 1]}
        return pd.DataFrame(found, self.index)

    @property
    def _observed(self) -> Precision:
        if self.observation is None:
            raise NotAvailableError(f"intervals of new observations are not available: {self.reason}")
        return self.observation


def prediction_rows(
    exog: ColumnsLike, names: Names, design: Design | None, *, transform: bool
) -> tuple[Floats, pd.Index[Any]]:
    """Return the design matrix of new rows, shape (rows, p), and their labels.

    A frame is read by column names, never by position; an array must have the p columns in order.
    """
    exog = labelled(exog)
    if isinstance(exog, pd.Series):
        exog = exog.to_frame().T if set(exog.index) >= set(names) else exog.to_frame()
    index = exog.index if isinstance(exog, pd.DataFrame) else None
    if transform and design is not None and design.schema is not None:
        rows = design.matrix(exog, extrapolate=True)
    elif isinstance(exog, pd.DataFrame):
        missing = [name for name in names if name not in exog.columns]
        if missing:
            raise SchemaError(f"the new rows lack the column {missing[0]!r}")
        rows = check_array(exog[list(names)], "exog", ndim=2)
    else:
        rows = np.atleast_2d(check_array(exog, "exog", ndim=np.ndim(exog)))
    if rows.shape[1:] != (len(names),):
        raise ArgumentError(
            f"exog of shape {rows.shape} does not fit {len(names)} coefficients: {', '.join(names)}"
        )
    return rows, pd.RangeIndex(len(rows)) if index is None else index


@dataclass(frozen=True, slots=True)
class NonlinearResults:
    """Values of m smooth functions of the coefficients, with first-order inference.

    Attributes
    ----------
    found : DeltaMethod
    df : float, or ndarray of shape (m,)
        Degrees of freedom of the t quantiles; infinite: normal.
    bias : ndarray, shape (m,), or None
        Largest absolute bias that intervals and tests allow for.
    """

    found: DeltaMethod
    df: float | Floats = np.inf
    bias: Floats | None = None

    @property
    def value(self) -> Floats:
        """Values at the estimate, shape (m,)."""
        return self.found.value

    @property
    def bse(self) -> Floats:
        """Standard errors, shape (m,)."""
        return self.found.bse

    def conf_int(self, alpha: float = 0.05) -> Floats:
        """Return intervals of level ``1 - alpha``, shape (m, 2)."""
        half = self._precision.half_length(alpha)
        return np.column_stack([self.value - half, self.value + half])

    def summary_frame(self, alpha: float = 0.05) -> pd.DataFrame:
        """Return value, standard error, z (or t) test of zero and interval, one row a function."""
        low, high = self.conf_int(alpha).T
        z = np.divide(self.value, self.bse, out=np.full_like(self.value, np.nan), where=self.bse > 0.0)
        letter = "z" if np.isinf(self.df).all() else "t"
        return pd.DataFrame(
            {
                "value": self.value,
                "std err": self.bse,
                letter: z,
                f"P>|{letter}|": self._precision.pvalues(z),
                "Conf. Int. Low": low,
                "Conf. Int. Upp.": high,
            }
        )

    @property
    def _precision(self) -> Precision:
        return Precision(self.bse, self.df, self.bias)

    def __repr__(self) -> str:
        return self.summary_frame().to_string(float_format="%.4g")

    def _repr_html_(self) -> str:
        return str(self.summary_frame().to_html(float_format="{:.4g}".format))


def mean_response(loss: LossName, linear: Floats) -> Floats:
    """Return the mean at a linear predictor.

    squared: itself; poisson: its exponential; logistic, exponential, quadratic: the probability of the
    label's second level, ``expit(eta)``, ``expit(2 eta)`` (the exponential loss's population minimiser is
    half the log odds) and ``(1 + eta)/2``.
    """
    if loss == "poisson":
        return np.exp(linear)
    if loss == "logistic":
        return np.asarray(expit(linear), dtype=np.float64)
    if loss == "exponential":
        return np.asarray(expit(2.0 * linear), dtype=np.float64)
    return (1.0 + linear) / 2.0 if loss == "quadratic" else linear


def mean_slope(loss: LossName, linear: Floats) -> Floats:
    """Return the derivative of `mean_response`."""
    mean = mean_response(loss, linear)
    if loss == "poisson":
        return mean
    if loss in {"logistic", "exponential"}:
        return mean * (1.0 - mean) * (2.0 if loss == "exponential" else 1.0)
    return np.full_like(linear, 0.5 if loss == "quadratic" else 1.0)


def class_probabilities(linear: Floats) -> Floats:
    """Return probabilities (rows, L) from linear predictors (rows, L - 1) against the first level."""
    full = np.column_stack([np.zeros(len(linear)), linear])
    full -= full.max(axis=1, keepdims=True)
    weights = np.exp(full)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True), dtype=np.float64)


@dataclass(frozen=True, slots=True)
class LinkPrediction:
    """Means through a link: standard errors by the delta method, intervals from the linear predictor's.

    Attributes
    ----------
    linear : MeanPrediction
        Of the linear predictor.
    loss : str
    """

    linear: MeanPrediction
    loss: LossName

    @property
    def mean(self) -> Floats:
        """Means, shape (rows,)."""
        return mean_response(self.loss, self.linear.mean)

    @property
    def se(self) -> Floats:
        """Standard errors, shape (rows,)."""
        return np.asarray(mean_slope(self.loss, self.linear.mean) * self.linear.se, dtype=np.float64)

    def conf_int(self, alpha: float = 0.05) -> Floats:
        """Return pointwise intervals of level ``1 - alpha``, shape (rows, 2)."""
        return mean_response(self.loss, self.linear.conf_int(alpha))
