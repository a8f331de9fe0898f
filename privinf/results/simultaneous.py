"""Joint intervals and adjusted p-values, labelled."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd

from privinf.errors import ArgumentError
from privinf.inference.bootstrap import BLOCK
from privinf.inference.estimate import Estimate
from privinf.inference.intervals import Precision, contrast_bias, contrast_df
from privinf.inference.simultaneous import MaxT, drawn_max_t, gaussian_max_t, multiplier_max_t
from privinf.results.constraints import Constraints
from privinf.results.rendering import shown_pvalue
from privinf.typing import Floats, RngLike
from privinf.validation import check_choice, shown

JOINT_STREAM = 13  # seed of the draws, unless a call has its own: the same release has the same intervals
SimultaneousMethod = Literal["gaussian", "multiplier"]
Adjustment = Literal["single-step", "step-down", "bonferroni", "holm", "fdr_bh"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SimultaneousResults:
    """Joint inference on several coefficients or contrasts.

    Attributes
    ----------
    names : tuple of m str
    effect, bse : ndarray, shape (m,)
        ``R b`` and its standard errors.
    null : ndarray, shape (m,)
        q, the values under the null hypotheses.
    max_t : MaxT
    alpha : float
    method : str
    df : float
        Degrees of freedom of the statistics, the smallest of the m; infinite: normal.
    bias : ndarray, shape (m,), or None
        Largest absolute bias that intervals and p-values allow for: intervals are longer by it at each end,
        statistics are compared after it was taken off, both of which are conservative.
    least_pvalue : float
        Smallest joint p-value that the draws can give, which is printed as "<="; 0 where there is none.
    """

    names: tuple[str, ...]
    effect: Floats
    bse: Floats
    null: Floats
    max_t: MaxT
    alpha: float
    method: str
    df: float = np.inf
    bias: Floats | None = None
    least_pvalue: float = 0.0

    @property
    def critical_value(self) -> float:
        """Half-width of the joint intervals in standard errors."""
        return self.max_t.critical_value

    @property
    def tvalues(self) -> pd.Series[float]:
        """Statistics ``(R b - q) / bse``."""
        return pd.Series((self.effect - self.null) / self.bse, list(self.names), name="z")

    def conf_int(self) -> pd.DataFrame:
        """Return intervals that cover all m quantities jointly with probability ``1 - alpha``.

        Returns
        -------
        DataFrame
            One row per quantity, columns 0 and 1.
        """
        half = self.critical_value * self.bse + (0.0 if self.bias is None else self.bias)
        return pd.DataFrame(np.column_stack([self.effect - half, self.effect + half]), list(self.names))

    def pvalues(self, adjustment: Adjustment = "step-down") -> pd.Series[float]:
        """Return adjusted p-values.

        Parameters
        ----------
        adjustment : {"single-step", "step-down", "bonferroni", "holm", "fdr_bh"}
            The first two use the joint distribution of the statistics and control the chance of any false
            rejection, as do "bonferroni" and "holm" without it; "fdr_bh" (Benjamini and Hochberg) controls
            the expected share of false ones among the rejections.

        Returns
        -------
        Series
            One number per quantity.
        """
        check_choice(adjustment, Adjustment, "adjustment")
        if adjustment == "single-step":
            values = self.max_t.single_step
        elif adjustment == "step-down":
            values = self.max_t.step_down
        else:
            from statsmodels.stats.multitest import multipletests

            pointwise = self._precision.pvalues(self.tvalues.to_numpy())
            values = multipletests(pointwise, method=adjustment)[1]
        return pd.Series(values, list(self.names), name=adjustment)

    def reject(self, adjustment: Adjustment = "step-down") -> pd.Series[bool]:
        """Return which hypotheses are rejected at level `alpha`.

        Parameters
        ----------
        adjustment : {"single-step", "step-down", "bonferroni", "holm", "fdr_bh"}
            Adjustment of the p-values; see `pvalues`.

        Returns
        -------
        Series
            One truth value a hypothesis.
        """
        return self.pvalues(adjustment) <= self.alpha

    def summary_frame(self) -> pd.DataFrame:
        """Return effects, pointwise and adjusted p-values, and joint intervals in one table.

        Returns
        -------
        DataFrame
            One row per quantity.
        """
        statistics = self.tvalues
        low, high = self.conf_int().to_numpy().T
        letter = "z" if np.isinf(self.df) else "t"
        table = {
            "coef": self.effect,
            "std err": self.bse,
            letter: statistics,
            f"P>|{letter}|": self._precision.pvalues(statistics),
        }
        table |= {adjustment: self.pvalues(adjustment) for adjustment in get_args(Adjustment)}
        table |= {"joint low": low, "joint high": high}
        return pd.DataFrame(table, list(self.names))

    @property
    def _precision(self) -> Precision:
        return Precision(self.bse, self.df, self.bias)

    def __repr__(self) -> str:
        head = f"Joint {100 * (1 - self.alpha):g}% inference, {self.method} max-|t|, critical value "
        table = self.summary_frame().to_string(float_format="%.4g", formatters=self._formatters)
        return f"{head}{self.critical_value:.4f}\n{table}"

    def _repr_html_(self) -> str:
        return str(self.summary_frame().to_html(float_format="{:.4g}".format, formatters=self._formatters))

    @property
    def _formatters(self) -> Any:
        """How joint p-values are printed, by column: functions, for pandas."""
        return dict.fromkeys(("single-step", "step-down"), partial(shown_pvalue, least=self.least_pvalue))


def simultaneous(
    estimate: Estimate,
    restrictions: Constraints,
    *,
    alpha: float,
    method: SimultaneousMethod,
    draws: int | None,
    rng: RngLike,
    null: Floats | None = None,
) -> SimultaneousResults:
    """Return joint inference on ``R b``; see `Results.simultaneous`.

    `null` are draws of the statistics under the null, shape (draws, m), where a model makes its own. Without
    `rng` the draws have a fixed seed.
    """
    rng = JOINT_STREAM if rng is None else rng
    check_choice(method, SimultaneousMethod, "method")
    effect, cov = estimate.linear(restrictions.R)
    variances = np.diag(cov)
    if not (variances > 0.0).all():
        place = restrictions.labels[int(np.flatnonzero(~(variances > 0.0))[0])]
        raise ArgumentError(
            f"{shown(place)} has no sampling error: leave it out of the simultaneous inference"
        )
    bse = np.sqrt(variances)
    df = float(np.min(contrast_df(estimate, restrictions.R)))
    bias = contrast_bias(estimate, restrictions.R)
    deviation = effect - restrictions.q
    if bias is not None:
        deviation = np.maximum(np.abs(deviation) - bias, 0.0)
    statistics = deviation / bse
    least_pvalue = 0.0
    if method == "gaussian":
        count = max(10_000, min(100_000, 8 * BLOCK // len(effect))) if draws is None else draws
        max_t = gaussian_max_t(statistics, cov, alpha=alpha, draws=count, df=df, rng=rng)
    elif null is not None:
        max_t = drawn_max_t(statistics, null, alpha=alpha)
    else:
        influence = estimate.influence @ restrictions.R.T
        max_t = multiplier_max_t(
            statistics, influence, alpha=alpha, draws=1_999 if draws is None else draws, rng=rng
        )
    if method != "gaussian":
        least_pvalue = 1.0 / (max_t.draws + 1.0)
    return SimultaneousResults(
        names=restrictions.labels,
        effect=effect,
        bse=bse,
        null=restrictions.q,
        max_t=max_t,
        alpha=alpha,
        method=method,
        df=df,
        bias=bias,
        least_pvalue=least_pvalue,
    )
