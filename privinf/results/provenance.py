"""Where an estimate came from, what it cost, how its error divides, and score and joint inference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Unpack, cast

import numpy as np
import pandas as pd

from privinf.accounting import PrivacyReport
from privinf.error_boundary import doors
from privinf.errors import NotAvailableError
from privinf.inference.estimate import Estimate
from privinf.inference.intervals import joint_law, joint_statistic
from privinf.results import context as scoring
from privinf.results.constraints import (
    ConstraintLike,
    Constraints,
    check_independent,
    describes_restrictions,
    linear_constraints,
)
from privinf.results.context import Context, Surroundings
from privinf.results.hypotheses import HypothesisResults
from privinf.typing import ArrayLike, Floats, IntervalMethod, RngLike
from privinf.validation import check_choice, check_fraction

if TYPE_CHECKING:
    from privinf.inference.score_sets import ScoreSet
    from privinf.inference.score_test import Identification, ScoreTestResult
    from privinf.releases import Release
    from privinf.results import simultaneous as joint
    from privinf.results.variance import VarianceFormula


@dataclass(frozen=True, slots=True)
class ModelLabels:
    """Names that statsmodels' tables ask the model for.

    Attributes
    ----------
    name : str
    endog_names : str
    exog_names : list of str
    """

    name: str
    endog_names: str
    exog_names: list[str]


@doors
class DescribedResults(HypothesisResults):
    """An estimate with its provenance, both kinds of error, and inference that holds under strong noise."""

    def __init__(self, estimate: Estimate, *, report: PrivacyReport, **context: Unpack[Surroundings]) -> None:
        surroundings = Context(report=report, **context).fit_to(estimate).warned(estimate)
        self.__dict__.update(_estimate=estimate, _context=surroundings)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable: {name!r} cannot be set")

    @property
    def estimate(self) -> Estimate:
        """The estimate behind everything, in the user's units."""
        return self._estimate

    @property
    def privacy(self) -> PrivacyReport:
        """What this fit cost; ``.cumulative`` is the whole ledger."""
        return self._context.report

    @property
    def identification(self) -> Identification:
        """How much signal the noise left, and whether it is enough for Wald intervals."""
        found = self._context.identification
        if found is None:
            raise NotAvailableError("identification: this estimator has no such statistic")
        return found

    @property
    def release(self) -> Release | None:
        """What the estimate was made from; None where it was not kept."""
        return self._context.release

    @property
    def model(self) -> ModelLabels:
        """Names of model, response and coefficients."""
        design = self._context.design
        response = "y" if design is None else design.response
        return ModelLabels(self._context.model, response, list(self.names))

    @property
    def method(self) -> str:
        """How the coefficients were estimated."""
        return self._context.method

    @property
    def target(self) -> str:
        """Whose coefficients the intervals are for."""
        return self._context.target

    @property
    def options(self) -> Mapping[str, str]:
        """Named choices, as the summary prints them."""
        return MappingProxyType(dict(self._context.options))

    @property
    def notes(self) -> tuple[str, ...]:
        """Footnotes of the summary."""
        return tuple(note.text for note in self._context.ranked)

    @property
    def _no_moments(self) -> str | None:
        """Why this model has neither R-squared nor a residual variance; None for those that have them."""
        return None

    @property
    def rsquared(self) -> float:
        """Share of the response's variance explained, from corrected moments."""
        if self._context.rsquared is None:
            reason = self._no_moments
            noisy = "the corrected moments give no value between 0 and 1: too much noise"
            raise NotAvailableError(f"rsquared: {reason or noisy}")
        return self._context.rsquared

    @property
    def scale(self) -> float:
        """Residual variance without privacy noise, from corrected moments."""
        if self._context.scale is None:
            reason = self._no_moments
            raise NotAvailableError(
                f"scale: {reason or 'the corrected residual variance is not positive: too much noise'}"
            )
        return self._context.scale

    @property
    def rsquared_adj(self) -> float:
        """R-squared adjusted for the number of coefficients, as statsmodels has it."""
        if self.nobs <= self._columns:
            raise NotAvailableError("rsquared_adj: there are no more rows than coefficients")
        return 1.0 - (self.nobs - self.k_constant) / (self.nobs - self._columns) * (1.0 - self.rsquared)

    @property
    def fvalue(self) -> float:
        """F statistic of all coefficients but the constant, by the total covariance; see `f_pvalue`."""
        return joint_statistic(self._estimate, self._all_slopes) / len(self._all_slopes)

    @property
    def f_pvalue(self) -> float:
        """p-value of `fvalue`. Where columns add up to a constant, the null is that the mean is constant."""
        law = joint_law(self._estimate, self._all_slopes)
        law = law if self.use_t else replace(law, df=float(self.df_resid))
        return law.pvalue(self.fvalue * law.k)

    @property
    def _all_slopes(self) -> Floats:
        """Restrictions that leave nothing but the constant, one row each."""
        if self._no_moments is not None:
            raise NotAvailableError(f"fvalue: {self._no_moments}; f_test() and wald_test() test restrictions")
        p = len(self.names)
        design = self._context.design
        constant = None if design is None else design.constant_direction
        if constant is None or self._context.absorbed:
            return np.eye(p)
        if p == 1:
            raise NotAvailableError("fvalue: the model has no coefficient besides the constant")
        first = int(np.flatnonzero(constant)[0])  # what v picks equals its first entry, the rest is zero
        return np.delete(np.eye(p) - np.outer(constant, np.eye(p)[first]), first, axis=0)

    def _scatter(self) -> float | str:
        try:
            return self.scale
        except NotAvailableError as reason:
            return str(reason)

    @cached_property
    def bse_sampling(self) -> pd.Series[float]:
        """Standard errors that the same data would have had without noise; nan where hidden."""
        cov = self._context.sampling_cov
        if cov is None:
            raise NotAvailableError("bse_sampling: the noise hides what the error without it would be")
        known = np.where(np.diag(cov) < 0.0, np.nan, np.diag(cov))
        return self._labelled(np.sqrt(known), "bse_sampling")

    @cached_property
    def bse_privacy(self) -> pd.Series[float]:
        """Standard errors that the privacy noise alone causes."""
        return self._labelled(self._estimate.noise_bse, "bse_privacy")

    @property
    def noise_cov(self) -> pd.DataFrame:
        """Covariance of the part of the coefficients' error that the privacy mechanism causes."""
        names = list(self.names)
        return pd.DataFrame(np.array(self._estimate.noise_covariance), names, names)

    @property
    def variance_formula(self) -> VarianceFormula:
        """The named terms that add up to the coefficients' covariance, their sizes and their equation."""
        from privinf.results.variance import variance_formula

        return variance_formula(self._estimate, self._context)

    @cached_property
    def noise_share(self) -> pd.Series[float]:
        """Share of each coefficient's variance that the privacy noise causes."""
        share = np.square(self.bse_privacy.to_numpy() / self._estimate.bse)
        return self._labelled(np.minimum(share, 1.0), "noise_share")

    def conf_int(
        self,
        alpha: float = 0.05,
        method: IntervalMethod = "wald",
        cols: Sequence[str | int] | None = None,
    ) -> pd.DataFrame:
        """Return intervals of level ``1 - alpha``, columns 0 and 1.

        Parameters
        ----------
        alpha : float
        cols : sequence of names or positions, optional
            Coefficients wanted; default: all.
        method : {"wald", "score"}
            "score" inverts the score test, which holds its level however strong the noise is: intervals are
            conservative, the convex hulls of `score_set`, and unbounded where the data say so little.

        Warns
        -----
        WeakIdentificationWarning
            Normal intervals were asked for and `identification` says that they should not be trusted.
        """
        if check_choice(method, IntervalMethod, "method") == "wald":
            table = super().conf_int(alpha)
        else:
            hulls = [found.hull for found in self._score_sets(alpha)]
            table = pd.DataFrame(np.array(hulls, dtype=np.float64), list(self.names))
        return table if cols is None else table.iloc[[self._position(column) for column in cols]]

    def score_test(self, beta0: ConstraintLike | None = None) -> ScoreTestResult:
        """Test slopes without assuming that the noise is weak.

        Parameters
        ----------
        beta0 : str, list of str, mapping, (R, q), or array, optional
            Restrictions as for `wald_test`, ``"x1 = x2"``, ``["x1", "x2"]``, ``{"x1": 0.5}``, of which the
            other coefficients are solved under the null; or an array of all private slopes in the user's
            units, public columns concentrated out (Anderson-Rubin form). Default: the global null that every
            slope but the constant is zero.

        Returns
        -------
        ScoreTestResult : statistic, pvalue, df

        Notes
        -----
        Restrictions: `privinf.inference.score_sets`, which without noise is the Lagrange multiplier
        test of statsmodels (of curved models, Logit and Poisson, the score is moved along the Hessian of the
        fit, and without noise it is their Wald test).

        Without an argument it tests what `fvalue` tests, that every slope is zero. Its statistic is a
        chi-square, the sum over its ``df`` restrictions, and `fvalue` is a mean over them: compare
        ``statistic / df`` with F. They still differ a little, since the score test takes the variance of the
        scores where the slopes are zero, and F that of the estimate, which divides by a noisy Hessian.

        It needs the covariance of the scores. With ``cov_type="nonrobust"`` (`MomentOLS` on totals) that
        assumes equal error variance: where the variance goes with the columns, a test at 5% rejected a true
        hypothesis in .19 to .38 of samples (benchmarks/results/hc0_real.md). ``cov_type="HC0"`` does not.
        """
        if beta0 is None or not describes_restrictions(beta0):
            return self._slopes_test(cast("ArrayLike | None", beta0))
        return self._restricted_test(check_independent(linear_constraints(beta0, self.names)))

    def _slopes_test(self, beta0: ArrayLike | None) -> ScoreTestResult:
        return scoring.score_test(self._context, beta0)

    def _restricted_test(self, restrictions: Constraints) -> ScoreTestResult:
        return scoring.restricted_score_test(self._context, restrictions.R, restrictions.q)

    def score_set(self, name: str, alpha: float = 0.05) -> ScoreSet:
        """Return the values of one coefficient that the score test does not reject: pieces and hull."""
        return self._score_sets(alpha)[self._position(name)]

    def simultaneous(
        self,
        alpha: float = 0.05,
        which: ConstraintLike | None = None,
        method: joint.SimultaneousMethod = "gaussian",
        *,
        draws: int | None = None,
        rng: RngLike = None,
    ) -> joint.SimultaneousResults:
        """Return joint intervals and adjusted p-values.

        Parameters
        ----------
        alpha : float
        which : str, list, mapping, array or (R, q), optional
            Coefficients or contrasts, as in `t_test`; they may be linearly dependent. Default: all
            coefficients.
        method : {"gaussian", "multiplier"}
            Null distribution of the largest |t|: from the covariance, or from released records or mixed rows.
        draws : int, optional
            Default: 100,000 normal draws (fewer for more than 300 quantities), 1,999 of multipliers.
        rng : None, int or Generator
        """
        from privinf.results import simultaneous as joint

        chosen = linear_constraints(np.eye(len(self.names)) if which is None else which, self.names)
        null = self._null_draws(chosen.R, draws, rng) if method == "multiplier" else None
        return joint.simultaneous(
            self._estimate, chosen, alpha=alpha, method=method, draws=draws, rng=rng, null=null
        )

    def _null_draws(self, R: Floats, draws: int | None, rng: RngLike) -> Floats | None:
        """Return the model's own draws of the t statistics of ``R b``; None: by the records' influences."""
        self._require_population("method='multiplier'")
        return None

    def score_sets_are_quick(self, alpha: float) -> bool:
        """Return whether score intervals of this level are at hand or cost next to nothing."""
        return True

    def _check_settings(self) -> None:
        """Read all that this class takes from its settings: those of a file could be anything."""

    def _score_sets(self, alpha: float) -> tuple[ScoreSet, ...]:
        known = self.__dict__.setdefault("_known_score_sets", {})
        if alpha not in known:
            known[alpha] = self._all_score_sets(check_fraction(alpha, "alpha"))
        return cast("tuple[ScoreSet, ...]", known[alpha])

    def _all_score_sets(self, alpha: float) -> tuple[ScoreSet, ...]:
        return scoring.all_score_sets(self._context, alpha)

    def _require_population(self, what: str) -> None:
        if self.target == "sample":
            raise NotAvailableError(
                f"{what} resamples records, which is sampling error; the target is this finite population, "
                "whose only error is the noise"
            )
