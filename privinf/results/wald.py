"""Normal inference from an estimate and its covariance: statsmodels underneath, labels on top."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from privinf.errors import (
    ArgumentError,
    DependentRowsWarning,
    NotAvailableError,
    SteepDirectionWarning,
    WeakIdentificationWarning,
)
from privinf.inference.bootstrap import parametric_bootstrap
from privinf.inference.delta_method import DeltaMethod, delta_method
from privinf.inference.estimate import Estimate
from privinf.inference.intervals import Precision, contrast_bias, contrast_df, precision_of
from privinf.results.coefficient_tests import CoefficientTests, coefficient_tests
from privinf.results.context import Context, index_of
from privinf.typing import ArrayLike, Floats
from privinf.validation import check_array, check_number, shown

if TYPE_CHECKING:
    from privinf.results.variance import VarianceFormula

STEEP = (
    "the noise moves an estimate together with its standard error (ratio {:.2g}), so Wald "
    "intervals miss on one side more often; use conf_int(method='score')"
)
# The same of inference about several coefficients.
STEEP_JOINTLY = (
    "the noise moves an estimate together with its standard error (ratio {:.2g}), so Wald tests and "
    "intervals miss on one side more often; use score_test() with the same restrictions"
)
WEAK = (
    "identification is weak (statistic {:.3g}, threshold {:.3g}), so normal intervals and "
    "tests may be wrong far more often than their level allows; use score_test() and "
    "conf_int(method='score')"
)
# The same of coefficients that have score tests of their own.
WEAK_COEFFICIENTS = (
    "weak identification: the noise hides {}, whose scores have slopes below {:g} standard deviations of "
    "their noise{}; these estimates mainly describe the noise, and their intervals may be unbounded or miss"
)
# The same of a constant whose own score has a larger slope (`coefficient_tests.with_constant`).
WEAK_CONSTANT = ", and {}, which contains their slopes"
# The reason of a fit without standard errors whose iterations did not converge begins so, in files too.
NO_CONVERGENCE = "the fit did not converge"
WEAK_JOINTLY = (
    "identification is weak (statistic {:.3g}, threshold {:.3g}), so normal inference about several "
    "coefficients may be wrong far more often than its level allows; use score_test() for restrictions, and "
    "conf_int() and pvalues for single coefficients"
)


class Coefficients(pd.Series):
    """Coefficients for a caller's function, indexed by name or by position."""

    @property
    def _constructor(self) -> type[pd.Series]:
        return pd.Series

    def __getitem__(self, key: Any) -> Any:
        by_place = isinstance(key, (int, np.integer)) and not isinstance(key, (bool, np.bool_))
        if by_place or (isinstance(key, list) and key and all(isinstance(part, int) for part in key)):
            return self.iloc[key]
        return super().__getitem__(key)


@dataclass(frozen=True, slots=True)
class NonlinearResults:
    """Values of m smooth functions of the coefficients, with first-order inference.

    Attributes
    ----------
    first_order : DeltaMethod
        The values with their Jacobian.
    df : float, or ndarray of shape (m,)
        Degrees of freedom of the t quantiles; infinite: normal.
    bias : ndarray, shape (m,), or None
        Largest absolute bias that intervals and tests allow for.
    """

    first_order: DeltaMethod
    df: float | Floats = np.inf
    bias: Floats | None = None

    @property
    def value(self) -> Floats:
        """Values at the estimate, shape (m,)."""
        return self.first_order.value

    @property
    def bse(self) -> Floats:
        """Standard errors, shape (m,)."""
        return self.first_order.bse

    def conf_int(self, alpha: float = 0.05) -> Floats:
        """Return intervals of level ``1 - alpha``, shape (m, 2).

        Parameters
        ----------
        alpha : float
            One minus the confidence level of the intervals.

        Returns
        -------
        ndarray, shape (m, 2)
        """
        half = self._precision.half_length(alpha)
        return np.column_stack([self.value - half, self.value + half])

    def summary_frame(self, alpha: float = 0.05) -> pd.DataFrame:
        """Return value, standard error, z (or t) test of zero and interval, one row per function.

        Parameters
        ----------
        alpha : float
            One minus the confidence level of the intervals.

        Returns
        -------
        DataFrame
            One row per function.
        """
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


@dataclass(frozen=True, eq=False)
class Inference:
    """Normal inference about the coefficients of one estimate: errors, p-values, intervals.

    All of it is post-processing of the estimate and its covariance. Where the estimate is too weakly
    identified to have a covariance, what needs one raises NotAvailableError with the reason.

    A method whose intervals are not normal, or that has more to warn of, extends `interval`, `sampled` or
    `interval_warnings`.

    Where the joint check flags a fit, single coefficients have score tests instead (`single`): intervals and
    p-values are theirs.

    Attributes
    ----------
    estimate : Estimate
    context : Context
    """

    estimate: Estimate
    context: Context

    @cached_property
    def single(self) -> CoefficientTests | None:
        """Score tests of single coefficients; None where inference is normal."""
        return coefficient_tests(self.estimate, self.context)

    @property
    def has_intervals(self) -> bool:
        """Whether `interval` returns intervals."""
        return self.estimate.cov is not None or self.single is not None

    @property
    def converged(self) -> bool:
        """Whether the iterations of the fit converged; only a fit without standard errors may not have."""
        return not self.estimate.weak_reason.startswith(NO_CONVERGENCE)

    @property
    def coefficient_scale(self) -> str:
        """Scale on which coefficients are effects, for tables of several fits."""
        return "mean"

    @property
    def bias_name(self) -> str:
        """What a summary calls the bias that intervals and tests allow for."""
        return "clipping bias"

    @property
    def no_scores(self) -> str:
        """Why the fit itself has no score tests; empty where it has them, or they were not stored."""
        return ""

    @cached_property
    def weakness(self) -> pd.Series[float]:
        """Strengths of the weakly identified coefficients, by name; nan where only a joint check exists."""
        if self.single is not None:
            return pd.Series(self.single.strengths, index_of(self.names), name="strength")[self.single.hidden]
        strength = self.context.identification
        is_weak = self.estimate.cov is None or (strength is not None and strength.weak)
        names = self.names if is_weak else ()
        return pd.Series(np.nan, index_of(names), name="strength", dtype=np.float64)

    @property
    def use_t(self) -> bool:
        """Whether tests and intervals use t quantiles instead of normal ones.

        Their degrees of freedom are `df_resid` without noise, and grow without bound where noise is most of
        the error of a contrast (Satterthwaite).
        """
        return math.isfinite(self.estimate.df) or math.isfinite(self.estimate.df_resid)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the p coefficients."""
        return self.estimate.names

    @property
    def nobs(self) -> int:
        """Number of records."""
        return self.estimate.nobs

    @property
    def df_model(self) -> int:
        """Number of coefficients besides the constant, be it a column or the sum of dummies."""
        return self.columns - self.k_constant

    @property
    def columns(self) -> int:
        """Number of coefficients that were fitted, absorbed ones among them."""
        return len(self.names) + len(self.context.absorbed)

    @property
    def k_constant(self) -> int:
        """1 where the columns hold a constant, or add up to one (all levels of a factor), else 0."""
        design = self.context.design
        return int(design is not None and design.constant_direction is not None)

    @property
    def df_resid(self) -> int:
        """Degrees of freedom of the sampling error; else the number of records less that of coefficients."""
        df = self.estimate.df
        return int(df) if math.isfinite(df) else self.nobs - self.columns

    @property
    def cov_type(self) -> str:
        """Kind of covariance."""
        return self.estimate.cov_type

    @cached_property
    def params(self) -> pd.Series[float]:
        """Coefficients in the user's units.

        Where intervals are those of score tests of single coefficients, these are the roots of the equation,
        but for weakly identified coefficients.
        """
        values = self.joint_params
        if self.single is not None and self.single.moved:
            values = np.where(self.single.hidden, values, self.single.roots)
        return self.labelled(values, "params")

    @property
    def joint_params(self) -> Floats:
        """Coefficients that belong together, for predictions, shape (p,)."""
        return self.estimate.params if self.context.point is None else self.context.point

    @cached_property
    def bse(self) -> pd.Series[float]:
        """Standard errors, sampling and privacy noise together."""
        if self.single is None:
            return self.labelled(self.estimate.bse, "bse")
        joint = np.full(len(self.names), np.nan) if self.estimate.cov is None else self.estimate.bse
        return self.labelled(np.where(self.single.hidden, joint, self.single.standard_errors), "bse")

    @cached_property
    def tvalues(self) -> pd.Series[float]:
        """Coefficients over their standard errors.

        Where intervals are those of score tests, these are the square roots of their statistics, with the
        signs of `params`.
        """
        if self.single is None:
            return self.labelled(self.estimate.params / self.estimate.bse, "tvalues")
        signed = np.sign(self.params.to_numpy()) * np.sqrt(self.single.statistics())
        return self.labelled(signed, "tvalues")

    @cached_property
    def pvalues(self) -> pd.Series[float]:
        """Two-sided p-values of zero coefficients."""
        if self.single is None:
            return self.labelled(self.precision.pvalues(self.tvalues.to_numpy()), "pvalues")
        return self.labelled(self.single.pvalues(), "pvalues")

    def cov_params(
        self, r_matrix: ArrayLike | None = None, column: str | int | Sequence[str | int] | None = None
    ) -> Any:
        """Return the covariance of the coefficients, of some of them, or of ``R b``.

        Parameters
        ----------
        r_matrix : array_like, shape (k, p) or (p,), optional
            Contrasts R: the covariance of ``R b`` is returned.
        column : name, position or list of either, optional
            Coefficients whose part of the covariance is returned.

        Returns
        -------
        DataFrame (p, p); with `r_matrix` an array (k, k); with a list of columns a DataFrame of them; with
        one column its variance.
        """
        frame = pd.DataFrame(np.array(self.estimate.covariance), index_of(self.names), index_of(self.names))
        if r_matrix is not None and column is not None:
            raise ArgumentError("r_matrix= and column= cannot both be passed: use one of them")
        if r_matrix is not None:
            return self.estimate.linear(check_array(np.atleast_2d(r_matrix), "r_matrix", ndim=2))[1]
        if column is None:
            return frame
        if isinstance(column, (str, int, np.integer)):
            position = self.position(column)
            return float(self.estimate.covariance[position, position])
        positions = [self.position(item) for item in column]
        return frame.iloc[positions, positions]

    def interval(self, alpha: float) -> Floats:
        """Return the ends of the intervals, shape (p, 2); infinite where a score set is unbounded."""
        if self.single is not None:
            return self.single.interval(alpha)
        half = self.precision.half_length(alpha)
        center = self.estimate.params
        return np.column_stack([center - half, center + half])

    def sampled(self, n: int, rng: np.random.Generator) -> tuple[str, Floats]:
        """Return the name of the sampling distribution and n draws from it, shape (n, p)."""
        estimate = self.estimate
        normal = parametric_bootstrap(estimate.params, estimate.covariance, draws=n, rng=rng).draws
        if math.isinf(estimate.df):
            return "normal sampling distribution", normal
        wider = np.sqrt(estimate.df / rng.chisquare(estimate.df, (n, 1)))
        return "multivariate t sampling distribution", estimate.params + wider * (normal - estimate.params)

    @property
    def interval_warnings(self) -> list[tuple[type[Warning], str]]:
        """Reasons against intervals and tests of single coefficients: categories of warnings, and texts."""
        return [*self.weak_intervals, *self.other_warnings]

    @property
    def joint_warnings(self) -> list[tuple[type[Warning], str]]:
        """The same against normal inference about several coefficients, such as contrasts and draws."""
        strength = self.context.identification
        steep = "" if strength is None else STEEP_JOINTLY.format(strength.stretch)
        others = [
            (category, steep if category is SteepDirectionWarning else text)
            for category, text in self.other_warnings
        ]
        return [*self.weak_joint_inference, *others]

    def warnings_about(self, subject: str, jointly: bool) -> list[tuple[type[Warning], str]]:
        """Return the warnings of the member `subject`, whose inference may be about several coefficients."""
        return self.joint_warnings if jointly else self.interval_warnings

    @property
    def weak_intervals(self) -> list[tuple[type[Warning], str]]:
        """Warning of weakly identified coefficients."""
        if self.single is None:
            return self.weak_joint_inference
        if not self.single.hidden.any():
            return []
        assert self.context.system is not None
        least = self.context.system.least_strength
        below = self.weakness < least
        constant = "".join(WEAK_CONSTANT.format(name) for name in self.weakness.index[~below])
        text = WEAK_COEFFICIENTS.format(", ".join(self.weakness.index[below]), least, constant)
        return [(WeakIdentificationWarning, text)]

    @property
    def weak_joint_inference(self) -> list[tuple[type[Warning], str]]:
        """Warning of weak identification in some direction of the coefficients."""
        strength = self.context.identification
        if self.estimate.cov is None or strength is None or not strength.weak:
            return []
        text = WEAK if self.single is None else WEAK_JOINTLY
        return [(WeakIdentificationWarning, text.format(strength.statistic, strength.threshold))]

    @property
    def other_warnings(self) -> list[tuple[type[Warning], str]]:
        """Warnings for other reasons than weak identification."""
        if not self.has_intervals:
            return []
        warnings: list[tuple[type[Warning], str]] = []
        if text := self.context.rows_alone(self.cov_type):
            warnings.append((DependentRowsWarning, text))
        strength = self.context.identification
        if strength is not None and strength.steep:
            warnings.append((SteepDirectionWarning, STEEP.format(strength.stretch)))
        return warnings

    def delta_method(self, function: Callable[[pd.Series[float]], ArrayLike]) -> NonlinearResults:
        """Return a smooth function of the coefficients with first-order standard errors.

        Parameters
        ----------
        function : callable
            Takes the coefficients as a Series, which gives them by name or by position from 0:
            ``lambda b: b["x1"] / b["x2"]``, ``lambda b: b[1] / b[2]``. May return several values.

        Returns
        -------
        object
            ``.value``, ``.bse``, ``.conf_int()`` and ``.summary_frame()``.
        """
        if not callable(function):
            raise ArgumentError("function= must be a callable that takes the coefficients")

        def labelled(values: Floats) -> ArrayLike:
            try:
                return function(Coefficients(values, list(self.names)))
            except (KeyError, IndexError):
                raise ArgumentError(
                    "function= uses an unknown coefficient; use an index from 0 to "
                    f"{len(self.names) - 1}, or one of the names {', '.join(self.names)}"
                ) from None

        smooth = delta_method(labelled, self.estimate.params, self.estimate.covariance)
        df = contrast_df(self.estimate, smooth.jacobian)
        return NonlinearResults(smooth, df, contrast_bias(self.estimate, smooth.jacobian))

    @cached_property
    def bse_sampling(self) -> pd.Series[float]:
        """Standard errors that the same data would have had without noise; nan where hidden."""
        cov = self.context.sampling_cov
        if cov is None:
            raise NotAvailableError(
                "bse_sampling is not available, because this result has no estimate of the standard errors "
                "without privacy noise; bse contains the standard errors with noise"
            )
        variances = np.where(np.diag(cov) < 0.0, np.nan, np.diag(cov))
        return self.labelled(np.sqrt(variances), "bse_sampling")

    @cached_property
    def bse_privacy(self) -> pd.Series[float]:
        """Standard errors that the privacy noise alone causes."""
        return self.labelled(self.estimate.noise_bse, "bse_privacy")

    @property
    def noise_cov(self) -> pd.DataFrame:
        """Covariance of the part of the coefficients' error that the privacy mechanism causes."""
        names = list(self.names)
        return pd.DataFrame(np.array(self.estimate.noise_covariance), names, names)

    @property
    def variance_formula(self) -> VarianceFormula:
        """The named terms that add up to the coefficients' covariance, their sizes and their equation."""
        from privinf.results.variance import variance_formula

        return variance_formula(self.estimate, self.context)

    @cached_property
    def noise_share(self) -> pd.Series[float]:
        """Share of each coefficient's variance that the privacy noise causes."""
        share = np.square(self.bse_privacy.to_numpy() / self.estimate.bse)
        return self.labelled(np.minimum(share, 1.0), "noise_share")

    @cached_property
    def precision(self) -> Precision:
        """Standard errors with their degrees of freedom and bias."""
        return precision_of(self.estimate)

    def labelled(self, values: Floats, name: str) -> pd.Series[float]:
        """Return read-only numbers, one a coefficient, under the coefficients' names."""
        fixed = np.array(values, dtype=np.float64)
        fixed.setflags(write=False)  # cached: assigning to the Series raises instead of changing the result
        return pd.Series(fixed, index_of(self.names), name=name, copy=False)

    def position(self, column: Any) -> int:
        """Return the place of a coefficient that is named, or counted from 0."""
        if isinstance(column, str):
            if not self.names:
                raise NotAvailableError(self.estimate.weak_reason)
            if column not in self.names:
                raise ArgumentError(
                    f"unknown coefficient {shown(column)}; the coefficients are {', '.join(self.names)}"
                )
            return self.names.index(column)
        return int(check_number(column, "column", low=0, high=len(self.names) - 1))
