"""Joint intervals and adjusted p-values, labelled."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

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
PRIVATE_DRAWS = "private-bootstrap"  # method of joint inference from released maxima
WITHOUT_DISTRIBUTION = ("bonferroni", "holm", "fdr_bh")  # adjustments of pointwise p-values alone
WITH_BIAS = (
    "Intervals and p-values allow for a possible bias of at most {:.2g} standard errors, all adjustments in "
    "the same way. Half an interval is longer than the critical value times std err."
)
WITH_NOISE_OF_DRAWS = (
    "single-step and step-down also allow for the noise of the released draws, so they can exceed bonferroni."
)


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
    half_lengths : ndarray, shape (m,)
        Half the lengths of the joint intervals: ``critical_value * bse``, and more with a bias.
    bias : ndarray, shape (m,), or None
        Largest absolute bias that intervals and p-values allow for. All adjustments allow for it in the same
        way, so that single-step p-values are at most Bonferroni's, and step-down p-values at most Holm's.
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
    half_lengths: Floats
    df: float = np.inf
    bias: Floats | None = None
    least_pvalue: float = 0.0

    @property
    def critical_value(self) -> float:
        """Half-width of the joint intervals in standard errors, of a quantity without a bias."""
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
        half = self.half_lengths
        return pd.DataFrame(np.column_stack([self.effect - half, self.effect + half]), list(self.names))

    @property
    def pvalues(self) -> pd.Series[float]:
        """Adjusted p-values by the step-down method of Romano and Wolf.

        They use the joint distribution of the statistics and control the chance of any false rejection.
        `summary_frame` has p-values of other adjustments.
        """
        return pd.Series(self.max_t.step_down, list(self.names), name="pvalues")

    @property
    def reject(self) -> pd.Series[bool]:
        """Which hypotheses `pvalues` reject at level `alpha`."""
        return pd.Series(self.max_t.step_down <= self.alpha, list(self.names), name="reject")

    def summary_frame(self) -> pd.DataFrame:
        """Return effects, pointwise and adjusted p-values, and joint intervals in one table.

        Returns
        -------
        DataFrame
            One row per quantity. The columns "single-step" and "step-down" have p-values that use the joint
            distribution of the statistics. They control the chance of any false rejection, as do
            "bonferroni" and "holm" without the joint distribution. The column "fdr_bh" (Benjamini and
            Hochberg) controls the expected share of false rejections among all rejections. If the quantities
            may have a bias, the column "bias bound" has its largest size.
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
        table |= {"single-step": self.max_t.single_step, "step-down": self.max_t.step_down}
        from statsmodels.stats.multitest import multipletests

        pointwise = table[f"P>|{letter}|"]
        table |= {method: multipletests(pointwise, method=method)[1] for method in WITHOUT_DISTRIBUTION}
        table |= {} if self.bias is None else {"bias bound": self.bias}
        table |= {"joint low": low, "joint high": high}
        return pd.DataFrame(table, list(self.names))

    @property
    def _precision(self) -> Precision:
        return Precision(self.bse, self.df, self.bias)

    def __repr__(self) -> str:
        head = f"Joint {100 * (1 - self.alpha):g}% inference, {self.method} max-|t|, critical value "
        table = self.summary_frame().to_string(float_format="%.4g", formatters=self._formatters)
        return "\n".join([f"{head}{self.critical_value:.4f}", table, *self._notes])

    def _repr_html_(self) -> str:
        table = str(self.summary_frame().to_html(float_format="{:.4g}".format, formatters=self._formatters))
        return table + "".join(f"<p>{note}</p>" for note in self._notes)

    @property
    def _notes(self) -> list[str]:
        """Sentences below the table."""
        notes = [] if self.bias is None else [WITH_BIAS.format(float((self.bias / self.bse).max()))]
        return [*notes, WITH_NOISE_OF_DRAWS] if self.method == PRIVATE_DRAWS else notes

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
    moved = None if bias is None else bias / bse
    statistics = (effect - restrictions.q) / bse
    least_pvalue = 0.0
    if method == "gaussian":
        count = max(10_000, min(100_000, 8 * BLOCK // len(effect))) if draws is None else draws
        max_t = gaussian_max_t(statistics, cov, alpha=alpha, draws=count, df=df, bias=moved, rng=rng)
    elif null is not None:
        max_t = drawn_max_t(statistics, null, alpha=alpha, bias=moved)
    else:
        influence = estimate.influence @ restrictions.R.T
        count = 1_999 if draws is None else draws
        max_t = multiplier_max_t(statistics, influence, alpha=alpha, draws=count, bias=moved, rng=rng)
    if method != "gaussian":
        least_pvalue = 1.0 / (max_t.draws + 1.0)
    half_lengths = max_t.critical_value * bse
    if max_t.level is not None:
        half_lengths = Precision(bse, df, bias).half_length(max_t.level)
    return SimultaneousResults(
        names=restrictions.labels,
        effect=effect,
        bse=bse,
        null=restrictions.q,
        max_t=max_t,
        alpha=alpha,
        method=method,
        half_lengths=half_lengths,
        df=df,
        bias=bias,
        least_pvalue=least_pvalue,
    )
