"""The sparse fit behind the debiased targets: its coefficients, predictions and residual size."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NotRequired, TypedDict, cast

import numpy as np
import pandas as pd
from scipy.special import expit

from privinf.error_boundary import error_boundaries
from privinf.errors import NotAvailableError
from privinf.lasso.radii import TypicalSize
from privinf.results import Results
from privinf.results.paper_table import ratios
from privinf.results.prediction import Predictions, prediction_rows
from privinf.schema import Design
from privinf.schema.declared import Level
from privinf.typing import ColumnsLike, Floats, Missing, ScoreTarget, Which

SPARSE_INSTEAD = (
    "predict_sparse(rows) returns point predictions of the sparse fit without intervals, because weak "
    "columns that were left out add an unknown error"
)
MIDDLE = (
    "predictions need the mean, but this fit estimates a robust center (target='robust', "
    "or targets='all'): pass all columns as targets= with target='mean'. " + SPARSE_INSTEAD
)
NOT_ALL = (
    "predictions need a debiased coefficient of every column and of the constant, and this fit has none for "
    "{}. " + SPARSE_INSTEAD
)
CENTRED = (
    "predictions need the constant's coefficient, and this fit has none, since columns and response are "
    "centered. " + SPARSE_INSTEAD
)

HIDDEN_SCALE = (
    "the privacy noise leaves the typical size of the residuals known only to be {}, with a confidence of 95%"
)
NO_LEVEL_OF_ODDS = (
    "predictions need the standard error of the intercept, which a logistic fit does not "
    "debias: predict_sparse(rows) returns the sparse fit's probabilities, without intervals"
)


def hidden_scale_text(low: float, high: float) -> str:
    """Return the reason why there is no residual scale, with its bounds."""
    if math.isinf(high):
        return HIDDEN_SCALE.format(f"at least {low:.3g}")
    return HIDDEN_SCALE.format(f"at most {high:.3g}" if low == 0.0 else f"between {low:.3g} and {high:.3g}")


class ScaleSettings(TypedDict, total=False):
    """Bounds of the scale of a fit that released a histogram of its residuals; None for an infinite one."""

    scale_ends: tuple[float, float | None]


class SparseSettings(ScaleSettings):
    """The sparse fit in the user's units."""

    columns: list[str]
    positions: list[int]
    values: list[float]
    scale: float
    constant: str | None
    intercept: float
    centred: bool


class LassoSettings(TypedDict):
    """Contents of results other than the estimate: sparse fit, extras, detection limits of selections."""

    sparse: SparseSettings
    response: str
    level: NotRequired[Level]
    astray: NotRequired[bool]
    target: NotRequired[ScoreTarget]
    tail: NotRequired[list[float]]
    design: NotRequired[dict[str, Any]]
    family: NotRequired[str]
    doubt: NotRequired[str]
    hidden: NotRequired[list[str]]
    two_valued: NotRequired[bool]
    outside: NotRequired[dict[str, float]]
    extras: NotRequired[dict[str, Any]]
    sight: NotRequired[dict[str, Any]]
    multipliers: NotRequired[dict[str, list[float]]]
    marks: NotRequired[dict[str, Any]]
    missed: NotRequired[dict[str, Any]]
    missing: NotRequired[Missing]
    complete: NotRequired[dict[str, Any]]


@dataclass(frozen=True, eq=False)
class LassoPredictions(Predictions):
    """Predicted means of new rows, where every column and the constant has a debiased coefficient."""

    @property
    def settings(self) -> LassoSettings:
        """What the fit kept."""
        return cast(LassoSettings, self.inference.context.settings)

    @cached_property
    def design(self) -> Design | None:
        """The design of the formula; None of arrays."""
        stored = self.settings.get("design")
        return None if stored is None else Design.from_dict(stored)

    @property
    def refusal(self) -> str:
        """Why this result predicts for no new row; empty where it does."""
        if self.settings.get("family", "gaussian") == "binomial":
            return NO_LEVEL_OF_ODDS
        sparse = self.settings["sparse"]
        missing = [name for name in sparse["columns"] if name not in self.inference.names]
        if missing:
            first = ", ".join(map(repr, missing[:3]))
            return NOT_ALL.format(first + (f" and {len(missing) - 3} more" if len(missing) > 3 else ""))
        if sparse["centred"]:
            return CENTRED
        robust = self.settings.get("target", "robust") == "robust"
        noise = self.inference.estimate.noise_cov
        return MIDDLE if robust and noise is not None and noise.any() else ""

    def rows(self, exog: ColumnsLike | None, transform: bool) -> tuple[Floats, pd.Index[Any]]:
        """Return the design matrix of new rows, shape (rows, p), and their labels."""
        if self.refusal:
            raise NotAvailableError(self.refusal)
        return prediction_rows(exog, self.inference.names, self.design, transform=transform)


@error_boundaries
class SparseResults(Results):
    """The part of a debiased lasso's results that rests on its sparse fit.

    Notes
    -----
    **Privacy.** Costs nothing: it uses only released numbers.
    """

    @property
    @abstractmethod
    def _settings(self) -> LassoSettings:
        """Contents of results other than the estimate."""

    @cached_property
    def sparse_params(self) -> pd.Series[float]:
        """Sparse coefficients of all p columns (units of the data). Intervals cannot be based on them."""
        params = np.zeros(len(self._sparse["columns"]))
        params[self._sparse["positions"]] = self._sparse["values"]
        return pd.Series(params, list(self._sparse["columns"]), name="sparse_params")

    @property
    def family(self) -> str:
        """The family: "gaussian" or "binomial"."""
        return self._settings.get("family", "gaussian")

    def odds_ratios(self, alpha: float = 0.05) -> pd.DataFrame:
        """Return exp of the targets' coefficients of a logistic model, with intervals of level ``1 - alpha``.

        Parameters
        ----------
        alpha : float
            One minus the confidence level of the intervals.

        Returns
        -------
        DataFrame
            One row per target.

        Raises
        ------
        NotAvailableError
            The model is linear.
        """
        if self.family != "binomial":
            raise NotAvailableError("odds ratios need family='binomial', and this fit is linear")
        return ratios(self, "odds ratio", alpha)

    def predict_sparse(self, exog: ColumnsLike | None = None, transform: bool = True) -> pd.Series[float]:
        """Return the sparse fit's point predictions of new rows: `sparse_params`, and the intercept.

        Of a logistic fit they are probabilities.

        Parameters
        ----------
        exog : table, mapping of columns or single values, Series of one row, or array
            Raw rows, if the fit has a formula. Otherwise the design matrix, all columns of the fit (by name
            where there are names); a table may leave out the constant.
        transform : bool
            Whether a formula is applied; False: `exog` is the design matrix.

        Returns
        -------
        Series named ``sparse_mean``. The sparse fit was selected on the rows and has no intervals.

        Notes
        -----
        Without a constant the fit centers columns and response at c and m, and predicts
        ``m + (x - c)'b``.

        **Privacy.** Post-processing.
        """
        sparse = self._sparse
        design = self._predictions.design if transform else None
        rows, index = prediction_rows(
            exog, tuple(sparse["columns"]), design, transform=transform, constant=sparse["constant"]
        )
        means = rows @ self.sparse_params.to_numpy() + sparse["intercept"]
        means = expit(means) if self.family == "binomial" else means
        return pd.Series(means, index, name="sparse_mean")

    def _refused_methods(self) -> frozenset[str]:
        refused = super()._refused_methods()
        if self.family != "binomial" or self._estimate.cov is None:
            refused |= {"odds_ratios"}
        return refused

    @cached_property
    def _predictions(self) -> LassoPredictions:
        return LassoPredictions(self._inference, self._fit_statistics)

    def predict(
        self, exog: ColumnsLike | None = None, transform: bool = True, which: Which = "mean"
    ) -> pd.Series[float]:
        """Return predicted means of new rows by the debiased coefficients.

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
            A column or the constant has no debiased coefficient, or the target is not the mean; the message
            states which. `predict_sparse` predicts from the sparse fit.
        """
        means = super().predict(exog, transform, which)
        self._caution("a prediction")
        return means

    @property
    def selected(self) -> tuple[str, ...]:
        """Names of the columns that the fit kept, in the order of the columns."""
        columns = self._sparse["columns"]
        return tuple(columns[position] for position in self._sparse["positions"])

    @property
    def residual_scale(self) -> float:
        """Released typical size of the residuals: their 68% point, an sd if they are normal.

        It is estimated from all counts of a noisy histogram and is available only if the noise leaves it
        known within a factor of 2 (`residual_scale_bounds`).

        Raises
        ------
        NotAvailableError
            The noise hides it, or the model is logistic.
        """
        low, high = self.residual_scale_bounds
        scale = float(self._sparse["scale"])
        if not TypicalSize(value=scale, low=low, high=high).known:
            raise NotAvailableError(f"residual_scale is not available: {hidden_scale_text(low, high)}")
        return scale

    @property
    def residual_scale_bounds(self) -> tuple[float, float]:
        """Bounds of the 68% point of the residuals, which allow for the privacy noise.

        They contain the 68% point of the residuals of these rows, from the released coefficients, with a
        probability of at least 95%. If the noise leaves no bound, the lower one is 0 or the upper one is
        infinite. Both equal `residual_scale` if the fit released it without a histogram.

        Raises
        ------
        NotAvailableError
            The model is logistic.
        """
        if self.family == "binomial":
            raise NotAvailableError(
                "a logistic fit releases no residual scale, because the mean of a 0/1 response determines "
                "its variance"
            )
        scale = float(self._sparse["scale"])
        low, high = self._sparse.get("scale_ends", (scale, scale))
        return float(low), math.inf if high is None else float(high)

    @property
    def picks_from(self) -> pd.DataFrame:
        """Releases that columns were selected from on secure sums, one row each.

        ``entries`` numbers were released together, each divided by its slope of error ``sd``, without noise
        ``sampling_sd``: a covariance with the residuals in units of y per declared unit of the column, or a
        correlation with a target. ``found_from`` is its detection limit. `radius` is that of the shrunk
        vector, see `privinf.lasso.selection`.

        Raises
        ------
        NotAvailableError
            A trusted server peeled sums without noise: none of that left it.
        """
        detection = self._settings.get("sight")
        if detection is None:
            raise NotAvailableError(
                "detection limits are available only for fits with trust='secure-sum', because without it a "
                "trusted server selects columns from sums without noise"
            )
        return pd.DataFrame(detection["looks"]).set_index("label").rename_axis("release")

    @property
    def score_target(self) -> ScoreTarget:
        """Target of the scores of a linear fit: the "mean", or the "robust" center of clipped errors."""
        if self.family == "binomial":
            raise NotAvailableError(
                "score_target is not available for a logistic fit, which clips no residuals: its "
                "coefficients are log odds ratios"
            )
        return self._settings.get("target", "robust")

    @property
    def _sparse(self) -> SparseSettings:
        return self._settings["sparse"]
