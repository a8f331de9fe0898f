"""Predictions of new rows, on the scale of the response."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import pandas as pd
from scipy.special import expit

from privinf.error_boundary import warn
from privinf.errors import ArgumentError, ExtrapolationWarning, NotAvailableError, SchemaError
from privinf.inference.delta_method import (
    CountObservation,
    MeanPrediction,
    NormalObservation,
    predict_mean,
)
from privinf.inference.estimate import Estimate
from privinf.inference.intervals import Precision, contrast_df
from privinf.inference.noisy_variance import NoisyVariance
from privinf.results.fit_statistics import FitStatistics
from privinf.results.rendering import ROWS_STAY
from privinf.results.wald import Inference
from privinf.schema import Design
from privinf.schema.declared import Level
from privinf.schema.reading import has_missing_codes, named_rows, require_columns
from privinf.typing import ColumnsLike, Floats, LossName, Names, Which
from privinf.validation import check_array, check_choice, shown

ABSORBED = "predictions require the effects that this fit absorbed: write + C(factor) instead of | factor"
NO_SCATTER = (
    "no residual variance was released, so prediction intervals for new observations cannot be computed"
)
PROBABILITY = "the probability of {} = {!r}"  # what predictions are of, if the response has two levels
MEAN = "the mean of {}"
TWO_VALUES = (
    "a new observation is 0 or 1. Use the predicted mean, which is its probability, and "
    "mean_ci, the interval of that probability"
)


class Observation(Protocol):
    """How far new observations lie from their predicted means."""

    @property
    def se(self) -> Floats:
        """Standard errors, shape (rows,)."""

    def conf_int(self, alpha: float) -> Floats:
        """Intervals of level ``1 - alpha``, shape (rows, 2)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Means predicted for new rows, with standard errors; intervals of new observations where they exist.

    The error of a mean is that of the estimate x'b, sampling and privacy noise together. The interval of a
    new observation adds its scatter around the mean: the released residual variance, taken as normal and
    raised for its privacy noise, or the distribution of counts. Rows with missing values have NaN throughout.

    Attributes
    ----------
    mean : MeanPrediction
    index : pandas Index of the new rows
    observation : Observation or None
        Errors of new observations around the predicted means.
    reason : str
        Why there are none.
    quantity : str
        What is predicted: the mean of the response, or of a response with two levels the probability of the
        level that counts as 1.
    """

    mean: MeanPrediction
    index: pd.Index[Any]
    observation: Observation | None = None
    reason: str = NO_SCATTER
    quantity: str = "the mean"

    @property
    def predicted_mean(self) -> pd.Series[float]:
        """Predicted means."""
        return pd.Series(self.mean.mean, self.index, name="mean")

    @property
    def se_mean(self) -> pd.Series[float]:
        """Standard errors of the predicted means."""
        return pd.Series(self.mean.se, self.index, name="mean_se")

    @property
    def bias_bound(self) -> pd.Series[float]:
        """Largest possible bias of the predicted means that intervals allow for; 0 without one.

        Through a link, it is computed to first order.
        """
        bias = self.mean.bias
        return pd.Series(
            np.zeros(len(self.index)) if bias is None else bias, self.index, name="mean_bias_bound"
        )

    @property
    def se_obs(self) -> pd.Series[float]:
        """Standard errors of new observations; NotAvailableError with the reason where there are none."""
        return pd.Series(self._observed.se, self.index, name="obs_se")

    def conf_int(self, alpha: float = 0.05, *, obs: bool = False) -> pd.DataFrame:
        """Return intervals of level ``1 - alpha``, columns 0 and 1: of means, or of new observations.

        Parameters
        ----------
        alpha : float
            One minus the confidence level of the intervals.
        obs : bool
            Whether the intervals are of new observations; default: of means.

        Returns
        -------
        DataFrame
            One row for each new row.

        Raises
        ------
        NotAvailableError
            `obs` is True and there are none: the message states the reason.
        """
        errors = self._observed if obs else self.mean
        return pd.DataFrame(errors.conf_int(alpha), self.index)

    def summary_frame(self, alpha: float = 0.05) -> pd.DataFrame:
        """Return mean, mean_se, mean_ci_lower and mean_ci_upper of each row.

        Where there are intervals of new observations, obs_ci_lower and obs_ci_upper too. If clipping may have
        biased the fit, all intervals allow for it, so they are longer than standard errors alone give. The
        attribute `bias_bound` has the largest bias of each mean.

        Parameters
        ----------
        alpha : float
            One minus the confidence level of the intervals.

        Returns
        -------
        DataFrame
            One row for each new row.
        """
        low, high = self.mean.conf_int(alpha).T
        table = {"mean": self.mean.mean, "mean_se": self.mean.se, "mean_ci_lower": low, "mean_ci_upper": high}
        if self.observation is not None:
            low, high = self.observation.conf_int(alpha).T
            table |= {"obs_ci_lower": low, "obs_ci_upper": high}
        return pd.DataFrame(table, self.index)

    @property
    def _printed(self) -> pd.DataFrame:
        """The frame with the largest bias of each mean, where intervals allow for one."""
        frame = self.summary_frame()
        return frame if self.mean.bias is None else frame.assign(mean_bias_bound=self.mean.bias)

    def __repr__(self) -> str:
        return f"Predictions of {self.quantity}\n{self._printed.to_string(float_format='%.4g')}"

    @property
    def _observed(self) -> Observation:
        if self.observation is None:
            raise NotAvailableError(f"intervals of new observations are not available, because {self.reason}")
        return self.observation


@dataclass(frozen=True, eq=False)
class Predictions:
    """Predicted means of new rows by a linear model.

    A method whose mean is not linear, or whose columns are not those of its coefficients, extends it:
    `refusal`, `rows`, `predict`, `get_prediction`.

    Attributes
    ----------
    inference : Inference
    statistics : FitStatistics
        With the residual variance, for intervals of new observations.
    """

    inference: Inference
    statistics: FitStatistics

    @property
    def refusal(self) -> str:
        """Why this result predicts for no new row; empty where it does."""
        return ABSORBED if self.inference.context.absorbed else ""

    @property
    def quantity(self) -> str:
        """What is predicted, for the results of `get_prediction`."""
        return quantity_of(self.inference.context.response, self.inference.context.response_level)

    def rows(self, exog: ColumnsLike | None, transform: bool) -> tuple[Floats, pd.Index[Any]]:
        """Return the design matrix of new rows, shape (rows, p), and their labels."""
        if self.refusal:
            raise NotAvailableError(self.refusal)
        design = self.inference.context.design
        return prediction_rows(exog, self.inference.names, design, transform=transform)

    def predict(
        self, exog: ColumnsLike | None = None, transform: bool = True, which: Which = "mean"
    ) -> pd.Series[float]:
        """Return predicted means of new rows, NaN where a column that the model reads is missing.

        Parameters
        ----------
        exog : table, mapping of columns or single values, Series of one row, or array
            New rows with the formula's columns, or the design matrix itself (by name where there are names).
        transform : bool
            False: `exog` is the design matrix although the model has a formula.
        which : {"mean", "linear"}
            The same here: the mean is linear.

        Returns
        -------
        Series
            One number per row, under the labels of the rows.

        Raises
        ------
        NotAvailableError
            The result predicts for no new row, or `exog` is None: the rows of the fit are not kept.
        SchemaError
            A column is missing, has the wrong type or an undeclared level.
        ArgumentError
            An array does not fit.
        """
        check_choice(which, Which, "which")
        rows, index = self.rows(exog, transform)
        return pd.Series(self.linear(rows), index, name=which)

    def linear(self, rows: Floats) -> Floats:
        """Return the linear predictor of rows of the design matrix."""
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(rows @ self.inference.joint_params, dtype=np.float64)

    def get_prediction(self, exog: ColumnsLike | None = None, transform: bool = True) -> Prediction:
        """Return predicted means of new rows with standard errors and intervals.

        Where a residual variance was released there are intervals of new observations too.

        Parameters
        ----------
        exog : table, mapping of columns or single values, Series of one row, or array
            New rows with the formula's columns, or the design matrix itself (by name where there are names).
        transform : bool
            False: `exog` is the design matrix although the model has a formula.

        Returns
        -------
        object
            ``.predicted_mean``, ``.se_mean``, ``.conf_int()`` and ``.summary_frame()``.

        Raises
        ------
        NotAvailableError
            The result predicts for no new row, has no covariance, or `exog` is None.
        SchemaError
            A column is missing, has the wrong type or an undeclared level.
        ArgumentError
            An array does not fit.
        """
        rows = self.rows(exog, transform)
        prediction = predicted(self.inference.estimate, rows, "squared", scatter=self.statistics.scatter())
        return replace(prediction, quantity=self.quantity)


def quantity_of(response: str, level: Level | None) -> str:
    """Return what predictions are of: a mean, or the probability of the level that counts as 1."""
    return MEAN.format(response) if level is None else PROBABILITY.format(response, level)


def predicted(
    estimate: Estimate,
    rows: tuple[Floats, pd.Index[Any]],
    loss: LossName,
    *,
    scatter: NoisyVariance | str = NO_SCATTER,
    dispersion: float = 1.0,
    alpha: float = 0.0,
    shift: Floats | float = 0.0,
) -> Prediction:
    """Return the prediction of new rows by the estimate of a model with this loss.

    Parameters
    ----------
    estimate : Estimate
        Of p coefficients.
    rows : ndarray of shape (rows, p), and Index
    loss : LossName
        "squared": the mean is linear; else see `mean_response`.
    scatter : NoisyVariance or str
        Residual variance of a linear mean, or why there is none.
    dispersion, alpha : float
        Of counts; see `CountObservation`.
    shift : float or ndarray of shape (rows,)
        Known numbers that are added to the linear predictors: offsets, and logarithms of exposures.
    """
    exog, index = rows
    with np.errstate(over="ignore", invalid="ignore"):
        df = contrast_df(estimate, exog)
        linear = predict_mean(exog, estimate.params, estimate.covariance, df=df, bias=estimate.bias)
        linear = replace(linear, mean=linear.mean + shift)
    if loss == "squared":
        if isinstance(scatter, str):
            return Prediction(mean=linear, index=index, reason=scatter)
        df = contrast_df(estimate, exog, 0.0 if scatter.noise > 0.0 else scatter.estimate)
        spread = Precision(linear.se, df, linear.bias)
        return Prediction(
            mean=linear, index=index, observation=NormalObservation(linear.mean, spread, scatter)
        )
    mean: Any = LinkPrediction(linear, loss)
    if loss == "poisson":
        return Prediction(mean=mean, index=index, observation=CountObservation(linear, dispersion, alpha))
    return Prediction(mean=mean, index=index, reason=TWO_VALUES)


def prediction_rows(
    exog: ColumnsLike | None,
    names: Names,
    design: Design | None,
    *,
    transform: bool,
    constant: str | None = None,
) -> tuple[Floats, pd.Index[Any]]:
    """Return the design matrix of new rows, shape (rows, p), and their labels.

    Parameters
    ----------
    exog : table, mapping of columns or of single values, Series of one row, or array
        Whatever has names is read by them, never by position; an array must have the p columns in order.
    names : sequence of str
        Names of the p coefficients.
    design : Design or None
    transform : bool
        Whether a design with a formula is applied: then only the columns of the formula are wanted.
    constant : str, optional
        Column of ones that a table may leave out; by default the design's.

    Returns
    -------
    Rows with a missing value are NaN throughout.

    Raises
    ------
    NotAvailableError
        `exog` is None: the rows of the fit are not there.
    SchemaError
        A column is missing, has the wrong type or an undeclared level.
    ArgumentError
        An array does not fit, or has infinite entries.
    """
    if exog is None:
        raise NotAvailableError(f"predictions need new rows: {ROWS_STAY}")
    formula = transform and design is not None and design.schema is not None
    columns = tuple(design.inputs if formula and design is not None else names)
    if constant is None and design is not None and design.constant is not None:
        constant = design.names[design.constant]
    table = named_rows(exog, tuple(name for name in columns if name != constant))
    if formula and design is not None:
        if not isinstance(table, pd.DataFrame):
            needed = f"a table with the columns {', '.join(columns)}" if columns else "a table"
            raise SchemaError(
                f"the model was made from a formula: pass {needed}, not {shown(exog)}. To pass rows of "
                "the design matrix instead, set transform=False"
            )
        return formula_rows(table, columns, design), table.index
    if isinstance(table, pd.DataFrame):
        if constant in columns and constant not in table:
            table = table.assign(**{str(constant): 1.0})
        require_columns(table, columns)
        values = table[list(columns)]
        numbers = np.where(values.isna(), np.nan, values.to_numpy(dtype=object))
        rows = check_array(numbers, "exog", ndim=2, finite=False)
    else:
        rows = np.atleast_2d(check_array(exog, "exog", ndim=np.ndim(exog), finite=False))
    if np.isinf(rows).any():
        raise ArgumentError("exog= contains infinite values: replace them first, or leave these rows out")
    if rows.shape[1:] != (len(names),):
        raise ArgumentError(
            f"exog has shape {rows.shape}, but the model has {len(names)} coefficients: {', '.join(names)}"
        )
    rows = np.where(np.isnan(rows).any(axis=1, keepdims=True), np.nan, rows)
    if design is not None and design.raw is None and design.names == tuple(names):
        warn_beyond(design.beyond_bounds(rows))
    return rows, table.index if isinstance(table, pd.DataFrame) else pd.RangeIndex(len(rows))


def formula_rows(table: pd.DataFrame, inputs: Names, design: Design) -> Floats:
    """Return the design matrix of new rows that a formula reads, NaN in rows that lack a value."""
    require_columns(table, inputs)
    complete = table[list(inputs)].notna().all(axis=1).to_numpy(copy=True)
    if design.schema is not None:
        complete[complete] = ~has_missing_codes(table[complete], inputs, design.schema)
    rows = np.full((len(table), len(design.names)), np.nan)
    if complete.any():
        rows[complete] = design.matrix(table[complete], extrapolate=True)
        warn_beyond(design.beyond(table[complete]))
    return rows


def warn_beyond(limits: Mapping[str, str]) -> None:
    """Warn of columns of new rows with values outside the range of the fit; `limits` names the bound."""
    if limits:
        texts = "; ".join(f"{name!r} {text}" for name, text in limits.items())
        warn(f"predictions extrapolate beyond the values in the fit: {texts}", ExtrapolationWarning)


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

    @property
    def bias(self) -> Floats | None:
        """Largest absolute bias, to first order, shape (rows,); None without one."""
        if self.linear.bias is None:
            return None
        return np.asarray(mean_slope(self.loss, self.linear.mean) * self.linear.bias, dtype=np.float64)

    def conf_int(self, alpha: float = 0.05) -> Floats:
        """Return pointwise intervals of level ``1 - alpha``, shape (rows, 2)."""
        return mean_response(self.loss, self.linear.conf_int(alpha))
