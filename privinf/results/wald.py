"""Normal inference from an estimate and its covariance: statsmodels underneath, labels on top."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from privinf.error_boundary import doors, warn
from privinf.errors import (
    ArgumentError,
    DependentRowsWarning,
    NotAvailableError,
    SteepDirectionWarning,
    WeakIdentificationWarning,
)
from privinf.inference.delta_method import delta_method
from privinf.inference.estimate import Estimate
from privinf.inference.intervals import Precision, contrast_bias, contrast_df, precision_of
from privinf.results.cautions import Cautious
from privinf.results.context import Context, index_of
from privinf.results.prediction import (
    NO_SCATTER,
    NonlinearResults,
    Prediction,
    predicted,
    prediction_rows,
)
from privinf.typing import ArrayLike, ColumnsLike, Floats, Which
from privinf.validation import check_array, check_choice, check_number, shown

STEEP = (
    "steep direction (stretch {:.2g}): the noise moves an estimate and its standard error together, and Wald "
    "intervals err on one side; conf_int(method='score') does not, and is nearly as narrow"
)
ABSORBED = "predictions need the effects that this fit absorbed: write + C(factor) in place of | factor"


class Coefficients(pd.Series):
    """Coefficients that a caller's function gets: by name, or by position where it asks by number."""

    @property
    def _constructor(self) -> type[pd.Series]:
        return pd.Series

    def __getitem__(self, key: Any) -> Any:
        by_place = isinstance(key, (int, np.integer)) and not isinstance(key, (bool, np.bool_))
        if by_place or (isinstance(key, list) and key and all(isinstance(part, int) for part in key)):
            return self.iloc[key]
        return super().__getitem__(key)


@doors
class WaldResults(Cautious):
    """Coefficients with normal inference.

    All of it is post-processing of the estimate and its covariance. Where the estimate is too weakly
    identified to have a covariance, these members raise NotAvailableError with the reason.
    """

    _estimate: Estimate
    _context: Context

    @property
    def use_t(self) -> bool:
        """Whether tests and intervals use t quantiles instead of normal ones.

        Their degrees of freedom are `df_resid` where the noise is nothing, and grow without bound where it is
        most of a contrast's error (Satterthwaite).
        """
        return math.isfinite(self._estimate.df) or math.isfinite(self._estimate.df_resid)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the p coefficients."""
        return self._estimate.names

    @property
    def nobs(self) -> int:
        """Number of records."""
        return self._estimate.nobs

    @property
    def df_model(self) -> int:
        """Number of coefficients besides the constant, be it a column or the sum of dummies."""
        return self._columns - self.k_constant

    @property
    def _columns(self) -> int:
        """Number of coefficients that were fitted, absorbed ones among them."""
        return len(self.names) + len(self._context.absorbed)

    @property
    def k_constant(self) -> int:
        """1 where the columns hold a constant, or add up to one (all levels of a factor), else 0."""
        design = self._context.design
        return int(design is not None and design.constant_direction is not None)

    @property
    def df_resid(self) -> int:
        """Degrees of freedom of the sampling error; else the number of records less that of coefficients."""
        df = self._estimate.df
        return int(df) if math.isfinite(df) else self.nobs - self._columns

    @property
    def cov_type(self) -> str:
        """Kind of covariance."""
        return self._estimate.cov_type

    @cached_property
    def params(self) -> pd.Series[float]:
        """Coefficients in the user's units."""
        point = self._context.point
        return self._labelled(self._estimate.params if point is None else point, "params")

    @cached_property
    def bse(self) -> pd.Series[float]:
        """Standard errors, sampling and privacy noise together."""
        return self._labelled(self._estimate.bse, "bse")

    @cached_property
    def tvalues(self) -> pd.Series[float]:
        """Coefficients over their standard errors."""
        return self._labelled(self._estimate.params / self._estimate.bse, "tvalues")

    @cached_property
    def pvalues(self) -> pd.Series[float]:
        """Two-sided p-values of zero coefficients."""
        return self._labelled(self._precision.pvalues(self.tvalues.to_numpy()), "pvalues")

    def cov_params(
        self, r_matrix: ArrayLike | None = None, column: str | int | Sequence[str | int] | None = None
    ) -> Any:
        """Return the covariance of the coefficients, of some of them, or of ``R b``.

        Parameters
        ----------
        r_matrix : array_like, shape (k, p) or (p,), optional
        column : name, position or list of either, optional

        Returns
        -------
        DataFrame (p, p); with `r_matrix` an array (k, k); with a list of columns a DataFrame of them; with
        one column its variance.
        """
        frame = pd.DataFrame(np.array(self._estimate.covariance), index_of(self.names), index_of(self.names))
        if r_matrix is not None and column is not None:
            raise ArgumentError("r_matrix and column are alternatives: choose one")
        if r_matrix is not None:
            return self._estimate.linear(check_array(np.atleast_2d(r_matrix), "r_matrix", ndim=2))[1]
        if column is None:
            return frame
        if isinstance(column, (str, int, np.integer)):
            position = self._position(column)
            return float(self._estimate.covariance[position, position])
        positions = [self._position(item) for item in column]
        return frame.iloc[positions, positions]

    def conf_int(self, alpha: float = 0.05) -> pd.DataFrame:
        """Return intervals of level ``1 - alpha``, columns 0 and 1."""
        return pd.DataFrame(self._interval(alpha), index_of(self.names))

    def _interval(self, alpha: float) -> Floats:
        """Return the ends of the intervals, shape (p, 2)."""
        half = self._precision.half_length(alpha)
        center = self._estimate.params
        return np.column_stack([center - half, center + half])

    def delta_method(self, function: Callable[[pd.Series[float]], ArrayLike]) -> NonlinearResults:
        """Return a smooth function of the coefficients with first-order standard errors.

        Parameters
        ----------
        function : callable
            Takes the coefficients as a Series, which gives them by name or by position from 0:
            ``lambda b: b["x1"] / b["x2"]``, ``lambda b: b[1] / b[2]``. May return several values.
        """
        if not callable(function):
            raise ArgumentError("function must be a function of the coefficients")

        def labelled(values: Floats) -> ArrayLike:
            try:
                return function(Coefficients(values, list(self.names)))
            except (KeyError, IndexError):
                raise ArgumentError(
                    "function asks for a coefficient that is not there: by name there are "
                    f"{', '.join(self.names)}, by position 0 to {len(self.names) - 1}"
                ) from None

        smooth = delta_method(labelled, self._estimate.params, self._estimate.covariance)
        df = contrast_df(self._estimate, smooth.jacobian)
        return NonlinearResults(smooth, df, contrast_bias(self._estimate, smooth.jacobian))

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
        """
        check_choice(which, Which, "which")
        rows, index = self._rows(exog, transform)
        with np.errstate(over="ignore", invalid="ignore"):
            return pd.Series(rows @ self.params.to_numpy(), index, name=which)

    def get_prediction(self, exog: ColumnsLike | None = None, transform: bool = True) -> Prediction:
        """Return predicted means of new rows with standard errors and intervals; see `predict`.

        Where a residual variance was released there are intervals of new observations too.
        """
        return predicted(self._estimate, self._rows(exog, transform), "squared", scatter=self._scatter())

    def _scatter(self) -> float | str:
        """Return the variance of an observation around its mean, or why there is none."""
        return NO_SCATTER

    @cached_property
    def _precision(self) -> Precision:
        return precision_of(self._estimate)

    def _warn_if_weak(self, asked: str) -> None:
        """Warn where normal inference is asked of a result whose identification is flagged as weak."""
        strength = self._context.identification
        if self._estimate.cov is not None and (said := self._context.rows_alone(self.cov_type)):
            warn(f"{asked}: {said}", DependentRowsWarning)
        if strength is None or self._estimate.cov is None:
            return
        if strength.weak:
            warn(
                f"{asked}: identification is weak (statistic {strength.statistic:.3g}, threshold "
                f"{strength.threshold:.3g}): normal inference may err far more often than it says; use "
                "score_test() and conf_int(method='score')",
                WeakIdentificationWarning,
            )
        if strength.steep:
            warn(f"{asked}: {STEEP.format(strength.stretch)}", SteepDirectionWarning)

    def _no_predictions(self) -> str:
        """Return why this result predicts for no new row; empty where it does."""
        return ABSORBED if self._context.absorbed else ""

    def _rows(self, exog: Any, transform: bool) -> tuple[Floats, pd.Index[Any]]:
        if reason := self._no_predictions():
            raise NotAvailableError(reason)
        return prediction_rows(exog, self.names, self._context.design, transform=transform)

    def _labelled(self, values: Floats, name: str) -> pd.Series[float]:
        fixed = np.array(values, dtype=np.float64)
        fixed.setflags(write=False)  # cached: assigning to the Series raises instead of changing the result
        return pd.Series(fixed, index_of(self.names), name=name, copy=False)

    def _position(self, column: Any) -> int:
        if isinstance(column, str):
            if not self.names:
                raise NotAvailableError(self._estimate.weak_reason)
            if column not in self.names:
                raise ArgumentError(f"no coefficient {shown(column)}; there are: {', '.join(self.names)}")
            return self.names.index(column)
        return int(check_number(column, "column", low=0, high=len(self.names) - 1))
