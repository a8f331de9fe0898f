"""Normal inference from an estimate and its covariance: statsmodels underneath, labels on top."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from privinf.doors import doors, warn
from privinf.errors import ArgumentError, SteepDirectionWarning, WeakIdentificationWarning
from privinf.inference.delta_method import delta_method
from privinf.inference.estimate import Estimate
from privinf.inference.intervals import Precision, contrast_bias, contrast_df, precision_of
from privinf.results.constraints import (
    ConstraintLike,
    check_independent,
    left_out,
    linear_constraints,
    pairwise_contrasts,
    terms,
)
from privinf.results.context import Context, index_of
from privinf.results.prediction import (
    NO_SCATTER,
    NonlinearResults,
    Prediction,
    predicted,
    prediction_rows,
)
from privinf.typing import ArrayLike, ColumnsLike, Floats
from privinf.validation import check_array, check_fraction, check_number, shown

if TYPE_CHECKING:
    from statsmodels.stats.contrast import ContrastResults, MultiCompResult, WaldTestResults


STEEP = (
    "steep direction (stretch {:.2g}): the noise moves an estimate and its standard error together, and Wald "
    "intervals err on one side; conf_int(method='score') does not, and is nearly as narrow"
)


@doors
class WaldResults:
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
        return len(self.names) - self.k_constant

    @property
    def k_constant(self) -> int:
        """1 where the columns hold a constant, or add up to one (all levels of a factor), else 0."""
        design = self._context.design
        return int(design is not None and design.constant_direction is not None)

    @property
    def df_resid(self) -> int:
        """Degrees of freedom of the sampling error; else the number of records less that of coefficients."""
        df = self._estimate.df
        return int(df) if math.isfinite(df) else self.nobs - len(self.names)

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
        half, center = self._precision.half_length(alpha), self._estimate.params
        return np.column_stack([center - half, center + half])

    def t_test(self, r_matrix: ConstraintLike) -> ContrastResults:
        """Test restrictions one by one (z tests, or t tests where `use_t`).

        Parameters
        ----------
        r_matrix : str, list, mapping, array or (R, q)
            ``"x1 = x2, x3 = 0.5"``, ``"x1 = x2 = 0"``, ``"2*x1 - x2"``, ``["x1", "x2 = 1"]``, R, (R, q).

        Returns
        -------
        ContrastResults of statsmodels; rows show ``R b``, the test is of ``R b = q``.
        """
        self._warn_if_weak("t_test()")
        restrictions = linear_constraints(r_matrix, self.names)
        result = self._inner.t_test((restrictions.R, restrictions.q))
        result.c_names = list(restrictions.labels)
        return result

    def wald_test(self, r_matrix: ConstraintLike) -> ContrastResults:
        """Test restrictions jointly: chi2, or F where `use_t`."""
        self._warn_if_weak("wald_test()")
        restrictions = check_independent(linear_constraints(r_matrix, self.names))
        return self._inner.wald_test((restrictions.R, restrictions.q), use_f=self.use_t, scalar=True)

    def f_test(self, r_matrix: ConstraintLike) -> ContrastResults:
        """Test restrictions jointly by the F distribution, `df_resid` in the denominator without noise."""
        self._warn_if_weak("f_test()")
        restrictions = check_independent(linear_constraints(r_matrix, self.names))
        return self._inner.wald_test((restrictions.R, restrictions.q), use_f=True, scalar=True)

    def compare_f_test(self, restricted: WaldResults) -> tuple[float, float, int]:
        """Test this fit against one of some of its columns, made from the same release.

        Parameters
        ----------
        restricted : results
            Of the same response; its columns are among those of this fit.

        Returns
        -------
        statistic, pvalue : float
            Of the Wald test that the other columns' coefficients are zero, as `wald_test` has them: F where
            `use_t`, else chi2.
        df : int
            How many columns are left out.

        Raises
        ------
        ArgumentError
            The fits are of other releases or responses, or are not nested.

        Notes
        -----
        The covariance of this fit holds the noise. A difference of residual sums of squares, as statsmodels
        forms it from rows, would have the noise of both fits in it and no F law.
        """
        zero = left_out(self._context, self.names, restricted._context, restricted.names)
        found = self.wald_test(np.eye(len(self.names))[zero])
        return float(found.statistic), float(found.pvalue), len(zero)

    def t_test_pairwise(
        self, term_name: str, method: str | list[str] = "hs", alpha: float = 0.05
    ) -> MultiCompResult:
        """Compare all pairs of levels of a factor.

        Parameters
        ----------
        term_name : str
            As in the formula: ``"C(g)"``.
        method : str or list of str
            Adjustments of ``statsmodels.stats.multitest.multipletests``.
        alpha : float

        Returns
        -------
        MultiCompResult of statsmodels; ``.result_frame`` is the table.
        """
        from statsmodels.stats.contrast import MultiCompResult, t_test_multi

        inner = self._inner
        contrasts, labels, coding, _ = pairwise_contrasts(term_name, self.names, self._context.design)
        frame = t_test_multi(inner, contrasts, method, check_fraction(alpha, "alpha"), contrast_names=labels)
        return MultiCompResult(frame, contrasts, term_name, labels, coding)

    def wald_test_terms(
        self, skip_single: bool = False, combine_terms: Sequence[str] = ()
    ) -> WaldTestResults:
        """Test each term of the formula: all its coefficients are zero.

        Parameters
        ----------
        skip_single : bool
            Leave out terms of one coefficient.
        combine_terms : sequence of str
            Test jointly all terms whose name contains the string, one more row each.
        """
        grouped = terms(self.names, self._context.design)
        tested = [(name, at) for name, at in grouped.items() if not (skip_single and len(at) == 1)]
        for part in combine_terms:
            joint = [place for name, at in grouped.items() if part in name for place in at]
            if not joint:
                raise ArgumentError(f"no term contains {shown(part)}; terms are: {', '.join(grouped)}")
            tested.append((part, joint))
        identity = np.eye(len(self.names))
        return self._inner.wald_test_terms(
            skip_single=True, extra_constraints=[(name, identity[at]) for name, at in tested]
        )

    def delta_method(self, function: Callable[[pd.Series[float]], ArrayLike]) -> NonlinearResults:
        """Return a smooth function of the coefficients with first-order standard errors.

        Parameters
        ----------
        function : callable
            Takes the coefficients as a Series: ``lambda b: b["x1"] / b["x2"]``. May return several values.
        """
        if not callable(function):
            raise ArgumentError("function must be a function of the coefficients")

        def labelled(values: Floats) -> ArrayLike:
            return function(pd.Series(values, list(self.names)))

        smooth = delta_method(labelled, self._estimate.params, self._estimate.covariance)
        df = contrast_df(self._estimate, smooth.jacobian)
        return NonlinearResults(smooth, df, contrast_bias(self._estimate, smooth.jacobian))

    def predict(self, exog: ColumnsLike | None = None, transform: bool = True) -> pd.Series[float]:
        """Return predicted means of new rows, NaN where a column that the model reads is missing.

        Parameters
        ----------
        exog : table, mapping of columns or single values, Series of one row, or array
            New rows with the formula's columns, or the design matrix itself (by name where there are names).
        transform : bool
            False: `exog` is the design matrix although the model has a formula.
        """
        rows, index = self._rows(exog, transform)
        with np.errstate(over="ignore", invalid="ignore"):
            return pd.Series(rows @ self.params.to_numpy(), index, name="mean")

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

    @cached_property
    def _inner(self) -> Any:
        from privinf.results.contrasts import SchemaResults

        return SchemaResults(self._estimate, self.df_model, self.df_resid)

    def _warn_if_weak(self, asked: str) -> None:
        """Warn where normal inference is asked of a result whose identification is flagged as weak."""
        strength = self._context.identification
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

    def _rows(self, exog: Any, transform: bool) -> tuple[Floats, pd.Index[Any]]:
        return prediction_rows(exog, self.names, self._context.design, transform=transform)

    def _labelled(self, values: Floats, name: str) -> pd.Series[float]:
        fixed = np.array(values, dtype=np.float64)
        fixed.setflags(write=False)  # cached: assigning to the Series raises instead of changing the result
        return pd.Series(fixed, index_of(self.names), name=name, copy=False)

    def _position(self, column: Any) -> int:
        if isinstance(column, str):
            if column not in self.names:
                raise ArgumentError(f"no coefficient {shown(column)}; there are: {', '.join(self.names)}")
            return self.names.index(column)
        return int(check_number(column, "column", low=0, high=len(self.names) - 1))
