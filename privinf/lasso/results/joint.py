"""Simultaneous inference of a debiased lasso, and the extra releases for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pandas as pd

from privinf.error_boundary import error_boundaries
from privinf.errors import ArgumentError, NotAvailableError
from privinf.inference.estimate import Estimate
from privinf.inference.intervals import contrast_bias
from privinf.inference.simultaneous import MaxT
from privinf.lasso.bootstrap import PrivateDraws
from privinf.lasso.extras import NoiseVariance, RestrictedEigenvalues, restored
from privinf.lasso.results.sparse import SparseResults
from privinf.notebook import html_table
from privinf.results.constraints import ConstraintLike, Constraints, linear_constraints
from privinf.results.rendering import shown_pvalue
from privinf.results.resampling import Resampling
from privinf.results.simultaneous import PRIVATE_DRAWS, SimultaneousResults
from privinf.typing import ArrayLike, Floats, IntervalMethod, RngLike
from privinf.validation import check_choice, check_fraction

NO_MULTIPLIERS = (
    "the multiplier bootstrap needs the score of every record, but this fit released only "
    "noisy sums of scores: use method='simulation', which is equivalent and free, or fit "
    "with bootstrap_draws=200 and use method='private-bootstrap'"
)


JointMethod = Literal["simulation", "gaussian", "multiplier", "private-bootstrap"]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class MaxTest:
    """Test that all of several coefficients equal given values, by the largest studentized difference.

    Attributes
    ----------
    statistic : float
        Largest ``|b_j - b0_j| / bse_j``.
    pvalue : float
        At least `least_pvalue`.
    critical_value : float
        The hypothesis is rejected where the statistic exceeds it, if the estimates have no bias; with a bias,
        where the p-value is at most `alpha`.
    rejected : tuple of str
        Coefficients that differ, with the chance of any false rejection at most `alpha`; step-down.
    alpha : float
    method : str
    least_pvalue : float
        Smallest p-value that the draws can give, which is printed as "<="; 0 where there is none.
    """

    statistic: float
    pvalue: float
    critical_value: float
    rejected: tuple[str, ...]
    alpha: float
    method: str
    least_pvalue: float = 0.0

    def _repr_html_(self) -> str:
        pvalue = shown_pvalue(self.pvalue, self.least_pvalue)
        cells = (f"{self.statistic:.4g}", f"{self.critical_value:.4g}", pvalue)
        heads = ("largest |t|", "critical value", "p-value", "rejected")
        return html_table(heads, [(*cells, ", ".join(self.rejected) or "none")], "Joint test of coefficients")

    def __repr__(self) -> str:
        rejected = ", ".join(self.rejected) or "none"
        return (
            f"<Joint test: largest |t|={self.statistic:.4g}, critical value={self.critical_value:.4g}, "
            f"p-value {shown_pvalue(self.pvalue, self.least_pvalue)}, rejected: {rejected}>"
        )


def joint_bootstrap(
    estimate: Estimate, drawn: PrivateDraws, chosen: Constraints, alpha: float
) -> SimultaneousResults:
    """Return joint inference on coefficients from released maxima."""
    if ((chosen.R != 0.0).sum(axis=1) != 1).any() or not np.isin(chosen.R, (-1.0, 0.0, 1.0)).all():
        raise NotAvailableError(
            "the private bootstrap supports only the coefficients: use method='simulation' for contrasts"
        )
    effect, cov = estimate.linear(chosen.R)
    bse = np.sqrt(np.diag(cov))
    bias = contrast_bias(estimate, chosen.R)
    away = effect - chosen.q
    if bias is not None:
        away = np.maximum(np.abs(away) - bias, 0.0)
    pvalues = drawn.pvalues(away / bse, alpha)
    quantiles = MaxT(
        critical_value=drawn.critical_value(alpha),
        single_step=pvalues,
        step_down=pvalues,
        draws=len(drawn.values),
    )
    return SimultaneousResults(
        names=chosen.labels,
        effect=effect,
        bse=bse,
        null=chosen.q,
        max_t=quantiles,
        alpha=alpha,
        method=PRIVATE_DRAWS,
        half_lengths=quantiles.critical_value * bse + (0.0 if bias is None else bias),
        bias=bias,
        least_pvalue=float(drawn.pvalues(np.array([np.inf]), alpha)[0]),
    )


@dataclass(frozen=True, eq=False)
class TargetResampling(Resampling):
    """Draws from the distribution of the targets' coefficients: no record's score is released."""

    def null_draws(self, R: Floats, draws: int | None, rng: RngLike) -> Floats | None:
        """Raise NotAvailableError: multipliers need scores of records."""
        raise NotAvailableError(NO_MULTIPLIERS)


@error_boundaries
class JointResults(SparseResults):
    """The part of a debiased lasso's results about several targets, and what a fit releases on demand.

    Notes
    -----
    **Privacy.** Costs nothing: it uses only released numbers.
    """

    @cached_property
    def _resampling(self) -> TargetResampling:
        return TargetResampling(self._inference)

    @property
    def restricted_eigenvalues(self) -> RestrictedEigenvalues:
        """Extreme mean squares over random sparse directions (Algorithm 5), with the sd of their noise.

        Among the columns that were selected, the targets and their neighbors, in units of their released
        sizes. There are more extreme directions than the random ones: the largest is at most, the smallest
        at least, the true one.
        """
        return RestrictedEigenvalues(**restored(self._extra("eigenvalues", "restricted_eigenvalues=True")))

    @property
    def noise_variance(self) -> NoiseVariance:
        """Variance of the errors (Algorithm 4) with the sd of its noise; right if they are normal."""
        return NoiseVariance(**self._extra("noise_variance", "noise_variance=True"))

    @cached_property
    def bias_bound(self) -> pd.Series[float]:
        """Theorem 5's slack, in the units of the data: see `privinf.lasso.extras` for its assumptions."""
        bound = np.array(self._extra("bias_bound", "bias_bound=True"))
        bound.setflags(write=False)
        return pd.Series(bound, list(self.names), name="bias_bound", copy=False)

    def conf_int(
        self,
        alpha: float = 0.05,
        method: IntervalMethod = "wald",
        cols: Sequence[str | int] | None = None,
        *,
        bias_bound: bool = False,
    ) -> pd.DataFrame:
        """Return intervals of level ``1 - alpha``, columns 0 and 1.

        Parameters
        ----------
        alpha : float
            Between 0 and 1.
        method : {"wald", "score"}
            "score" would invert the score test, which this fit does not have: NotAvailableError.
        cols : sequence of names or positions, optional
            Targets to return; default: all.
        bias_bound : bool
            Whether they are widened at both ends by `bias_bound`. Without it the product of the privacy
            errors of coefficients and nodewise regressions counts as a variance, which is valid where the
            two are independent; with it as a bias bound that fails 1% of the time. See
            `privinf.lasso.extras` for the assumptions and for the correction of the paper's text.

        Returns
        -------
        DataFrame
            One row per target.

        Raises
        ------
        NotAvailableError
            The fit released no bound.
        """
        ends = super().conf_int(alpha, method, cols)
        if not bias_bound:
            return ends
        slack = self.bias_bound[ends.index].to_numpy()
        return pd.DataFrame(ends.to_numpy() + np.column_stack([-slack, slack]), ends.index)

    def simultaneous(
        self,
        alpha: float = 0.05,
        which: ConstraintLike | None = None,
        method: JointMethod = "simulation",
        *,
        draws: int | None = None,
        rng: RngLike = None,
    ) -> SimultaneousResults:
        """Return joint intervals and adjusted p-values.

        Parameters
        ----------
        alpha : float
            One minus the joint level of the intervals.
        which : str, list, mapping, array or (R, q), optional
            Coefficients or contrasts; for the private bootstrap coefficients only.
        method : {"simulation", "gaussian", "multiplier", "private-bootstrap"}
            "simulation", called "gaussian" elsewhere, draws from the released covariance: free and sharper.
            "private-bootstrap": Algorithm 7, from the maxima that the fit released, conservative for their
            noise; it is more conservative for fewer coefficients than all targets, and its step-down p-values
            are those of the single step, since maxima of smaller sets were not released. "multiplier" is
            refused: no record's score is released, and the simulation is equivalent to normal multipliers.
        draws : int, optional
            Number of draws of the simulation.
        rng : None, int or Generator
            Seed of the simulation; default: a fixed one.

        Returns
        -------
        object
            ``.conf_int()``, ``.pvalues``, ``.reject``, ``.summary_frame()`` and ``.critical_value``.

        Raises
        ------
        NotAvailableError
            The fit released no draws, or too few for this level, or has no debiased coefficient.
        """
        check_choice(method, JointMethod, "method")
        if self._estimate.cov is None:
            raise NotAvailableError(self._estimate.weak_reason)
        if method != "private-bootstrap":
            plain: Any = "gaussian" if method == "simulation" else method
            return super().simultaneous(alpha, which, plain, draws=draws, rng=rng)
        released = restored(self._extra("bootstrap", "bootstrap_draws=200"))
        drawn = PrivateDraws(values=tuple(released.pop("values")), **released)
        chosen = linear_constraints(np.eye(len(self.names)) if which is None else which, self.names)
        return joint_bootstrap(self.estimate, drawn, chosen, check_fraction(alpha, "alpha"))

    def max_test(
        self,
        b0: ArrayLike = 0.0,
        which: list[str] | None = None,
        *,
        alpha: float = 0.05,
        method: JointMethod = "simulation",
        rng: RngLike = None,
    ) -> MaxTest:
        """Test ``b_j = b0_j`` for several coefficients jointly by the largest studentized difference.

        Parameters
        ----------
        b0 : float, or array_like with one number for each coefficient
            Values under the null hypothesis.
        which : list of str, optional
            Names of the coefficients; default: all targets.
        alpha : float
            Level of the test.
        method : {"simulation", "gaussian", "multiplier", "private-bootstrap"}
            Null distribution, by the names of `simultaneous`. The p-value of the test is its smallest
            single-step p-value.
        rng : None, int or Generator
            Seed of the simulation; default: a fixed one.

        Returns
        -------
        object
            ``.statistic``, ``.pvalue``, ``.critical_value`` and ``.rejected``.
        """
        if self._estimate.cov is None:
            raise NotAvailableError(self._estimate.weak_reason)
        names = list(self.names) if which is None else list(which)
        if not names:
            raise ArgumentError("which= must list at least one coefficient")
        values = np.asarray(b0, dtype=np.float64)
        if values.shape not in ((), (len(names),)):
            raise ArgumentError(
                f"b0= must be one number, or one number for each of the {len(names)} coefficients in which="
            )
        values = np.broadcast_to(values, (len(names),))
        rows = np.eye(len(self.names))[[self._inference.position(name) for name in names]]
        joint = self.simultaneous(alpha, (rows, values), method, rng=rng)
        largest = int(np.argmax(np.abs(joint.tvalues.to_numpy())))
        return MaxTest(
            statistic=float(abs(joint.tvalues.iloc[largest])),
            pvalue=float(joint.max_t.single_step.min()),
            critical_value=joint.critical_value,
            rejected=tuple(name for name, out in zip(names, joint.reject, strict=True) if out),
            alpha=alpha,
            method=method,
            least_pvalue=joint.least_pvalue,
        )

    def _extra(self, name: str, option: str) -> Any:
        extras = self._settings.get("extras", {})
        if name in (reasons := extras.get("reasons", {})):
            reason = reasons[name]
            raise NotAvailableError(f"{name} is not available. {reason[:1].upper()}{reason[1:]}")
        if name not in extras:
            raise NotAvailableError(
                f"this fit did not release the {name.replace('_', ' ')}: pass {option} to fit(), which "
                "costs budget"
            )
        return extras[name]
