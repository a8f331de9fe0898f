"""Measures of how well a model fits, from corrected second moments: no residual of a row is in them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from privinf.errors import NotAvailableError
from privinf.inference.intervals import joint_distribution, joint_statistic
from privinf.inference.noisy_variance import HIDDEN_SDS, NoisyVariance
from privinf.results.wald import Inference
from privinf.typing import Floats

NO_VARIANCE = (
    "the privacy noise hides the residual variance: its estimate is not positive, is below two standard "
    "errors of its noise, exceeds the variance of the response, or rests on columns that the noise hides. "
    "Use a larger budget, more rows or narrower bounds"
)


@dataclass(frozen=True, eq=False)
class FitStatistics:
    """R-squared, the residual variance, sums of squares and the F test of all slopes.

    Attributes
    ----------
    inference : Inference
    no_moments : str or None
        Why the model has neither R-squared nor a residual variance; None for those that have them.
    """

    inference: Inference
    no_moments: str | None = None

    @property
    def rsquared(self) -> float:
        """Share of the response's variance explained, from corrected moments."""
        if self.inference.context.rsquared is None:
            reason = self.no_moments
            outside = (
                "R-squared computed from noise-corrected moments is outside 0 to 1, which happens if the "
                "noise is too strong, the response does not vary, or the estimate is not a least squares "
                "estimate"
            )
            hidden = NO_VARIANCE if self.inference.context.variance_hidden else outside
            raise NotAvailableError(f"rsquared is not available: {reason or hidden}")
        return self.inference.context.rsquared

    @property
    def scale(self) -> float:
        """Residual variance without privacy noise, from corrected moments."""
        if self.inference.context.scale is None:
            reason = self.no_moments
            raise NotAvailableError(f"scale is not available: {reason or NO_VARIANCE}")
        return self.inference.context.scale

    @property
    def rsquared_adj(self) -> float:
        """R-squared adjusted for the number of coefficients, as statsmodels has it."""
        if self.inference.nobs <= self.inference.columns:
            raise NotAvailableError(
                "rsquared_adj is not available: the model has as many coefficients as rows, or more"
            )
        n = self.inference.nobs
        return 1.0 - (n - self.inference.k_constant) / (n - self.inference.columns) * (1.0 - self.rsquared)

    @cached_property
    def fvalue(self) -> float:
        """F statistic of all coefficients but the constant, by the total covariance; see `f_pvalue`."""
        return joint_statistic(self.inference.estimate, self._all_slopes) / len(self._all_slopes)

    @cached_property
    def f_pvalue(self) -> float:
        """p-value of `fvalue`. Where columns add up to a constant, the null is that the mean is constant."""
        distribution = joint_distribution(self.inference.estimate, self._all_slopes)
        distribution = (
            distribution if self.inference.use_t else replace(distribution, df=float(self.inference.df_resid))
        )
        return distribution.pvalue(self.fvalue * distribution.k)

    @property
    def _all_slopes(self) -> Floats:
        """Restrictions that leave nothing but the constant, one row each."""
        if self.no_moments is not None:
            raise NotAvailableError(
                f"fvalue is not available: {self.no_moments}; use f_test() or wald_test() to test "
                "restrictions"
            )
        p = len(self.inference.names)
        design = self.inference.context.design
        constant = None if design is None else design.constant_direction
        if constant is None or self.inference.context.absorbed:
            return np.eye(p)
        if p == 1:
            raise NotAvailableError(
                "fvalue is not available: the model has no coefficient besides the constant"
            )
        first = int(np.flatnonzero(constant)[0])  # what v selects equals its first entry, the rest is zero
        return np.delete(np.eye(p) - np.outer(constant, np.eye(p)[first]), first, axis=0)

    @property
    def scale_noise(self) -> float:
        """Standard error of `scale` that the privacy noise alone causes."""
        return self._noise("scale_noise")

    @property
    def rsquared_noise(self) -> float:
        """Standard error of `rsquared` that the privacy noise alone causes."""
        if self.inference.context.rsquared is None:
            return self.rsquared  # raises the reason
        return self._noise("rsquared_noise")

    def _noise(self, name: str) -> float:
        if self.no_moments is not None:
            raise NotAvailableError(f"{name} is not available: {self.no_moments}")
        return float(self.inference.context.measure_noise.get(name, math.nan))

    def scatter(self) -> NoisyVariance | str:
        """Return the variance of an observation around its mean, or why there is none."""
        noise = self.inference.context.measure_noise.get("scale_noise", 0.0)
        df = float(max(self.inference.nobs - self.inference.columns, 1))
        if self.inference.context.variance_hidden:
            return NoisyVariance(estimate=HIDDEN_SDS * noise, noise=noise, df=df)
        try:
            return NoisyVariance(estimate=self.scale, noise=noise, df=df)
        except NotAvailableError as reason:
            return f"they need the residual variance, and {reason}"

    @property
    def ssr(self) -> float:
        """Sum of squared residuals without privacy noise, from `scale`."""
        freed = self.inference.columns if math.isfinite(self.inference.estimate.df_resid) else 0
        return self.scale * (self.inference.nobs - freed)

    @property
    def ess(self) -> float:
        """Sum of squares that the columns explain, around the mean where there is a constant."""
        return self._total_squares - self.ssr

    @property
    def mse_resid(self) -> float:
        """`ssr` over the number of records less that of coefficients."""
        return self.ssr / (self.inference.nobs - self.inference.columns)

    @property
    def mse_model(self) -> float:
        """`ess` over `df_model`."""
        if not self.inference.df_model:
            raise NotAvailableError(
                "mse_model is not available: the model has no coefficient besides the constant"
            )
        return self.ess / self.inference.df_model

    @property
    def mse_total(self) -> float:
        """Variance of the response (without a constant its mean square), without privacy noise."""
        return self._total_squares / (self.inference.nobs - self.inference.k_constant)

    @property
    def centered_tss(self) -> float:
        """Sum of squares of the response about its mean, from `ssr` and `rsquared`."""
        if not self.inference.k_constant:
            raise NotAvailableError("centered_tss is not available: the model has no constant")
        return self._total_squares

    @property
    def _total_squares(self) -> float:
        if self.rsquared == 1.0:
            raise NotAvailableError(
                "sums of squares are not available: the columns explain all of the response"
            )
        return self.ssr / (1.0 - self.rsquared)
