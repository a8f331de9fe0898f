"""A fitted model: its estimate, origin and cost, and all inference about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pandas as pd

from privinf.accounting import PrivacyReport
from privinf.error_boundary import error_boundaries, outer_module, warn
from privinf.errors import MisfitWarning, NotAvailableError
from privinf.inference.estimate import Estimate
from privinf.results.cautions import Cautious
from privinf.results.context import Context
from privinf.results.delegation import delegated
from privinf.results.fit_statistics import FitStatistics
from privinf.results.hypotheses import LinearTests
from privinf.results.prediction import Predictions
from privinf.results.rendering import NO_ANOVA, NamedStrengths, SummaryColumn, coded_response, unavailable
from privinf.results.resampling import Resampling
from privinf.results.score_inference import ScoreTests
from privinf.results.wald import Inference
from privinf.schema.declared import Level

if TYPE_CHECKING:
    from privinf.inference.score_test import Identification
    from privinf.releases import Release
    from privinf.results.variance import VarianceFormula

ANOVA = "statsmodels.stats.anova"  # module of anova_lm


@dataclass(frozen=True, slots=True)
class ModelLabels:
    """Names that statsmodels' tables read from the model.

    Attributes
    ----------
    name : str
    endog_names : str
        Name of the response; empty for means, which have none.
    exog_names : list of str
    response_level : str, bool, number or None
        Level of a response with two levels that counts as 1; None where the response is a number.
    """

    name: str
    endog_names: str
    exog_names: list[str]
    response_level: Level | None = None
    endog = unavailable("endog", NO_ANOVA)  # what anova_lm of statsmodels reads first
    exog = unavailable("exog", NO_ANOVA)

    @property
    def title(self) -> str:
        """Model and response, as the head of a page or of a plot."""
        return ": ".join(filter(None, (self.name or "Private fit", self.endog_names)))

    @property
    def coded_response(self) -> str:
        """Which level counts as 1, as in "died, 1 = 'yes'"; empty where the response is a number."""
        return "" if self.response_level is None else coded_response(self.endog_names, self.response_level)


@error_boundaries
class FittedResult(Cautious):
    """An immutable estimate, and quantities derived from it by components.

    `Results` adds how it leaves: summaries, tables and files, whose modules take this class. The class of a
    method's results puts the method's own components in place of those here.

    Parameters
    ----------
    estimate : Estimate
        Estimate of the p coefficients, in user units.
    context : Context
        Where the estimate came from, and what it cost.
    """

    _estimate: Estimate
    _context: Context

    def __init__(self, estimate: Estimate, context: Context) -> None:
        self.__dict__.update(_estimate=estimate, _context=context.fit_to(estimate).warned(estimate))

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable: {name!r} cannot be set")

    # ---- components: frozen, made when they are read, and without a reference to the result

    @cached_property
    def _inference(self) -> Inference:
        return Inference(self._estimate, self._context)

    @cached_property
    def _tests(self) -> LinearTests:
        return LinearTests(self._inference)

    @cached_property
    def _fit_statistics(self) -> FitStatistics:
        return FitStatistics(self._inference)

    @cached_property
    def _score_tests(self) -> ScoreTests:
        return ScoreTests(self._inference)

    @cached_property
    def _resampling(self) -> Resampling:
        return Resampling(self._inference)

    @cached_property
    def _predictions(self) -> Predictions:
        return Predictions(self._inference, self._fit_statistics)

    # ---- what was fitted, and what it cost

    @property
    def estimate(self) -> Estimate:
        """The estimate from which all members are computed, in the user's units."""
        return self._estimate

    @property
    def privacy(self) -> PrivacyReport:
        """Privacy report of this fit; ``.cumulative`` is that of the whole ledger."""
        return self._context.report

    @property
    def identification(self) -> Identification:
        """Strength of the signal relative to the noise, and whether it is enough for Wald intervals."""
        strength = self._context.identification
        if strength is None:
            raise NotAvailableError(
                f"identification is not available: this fit of {self._context.model} has no statistic that "
                "measures how strongly the noisy release identifies the coefficients"
            )
        return strength

    @property
    def weakly_identified(self) -> pd.Series[float]:
        """Weakly identified coefficients, by name, with their strengths; empty where there are none.

        In a condition, the series is false if it is empty: ``if result.weakly_identified: ...``.

        A strength is the slope of the coefficient's score in standard deviations of the noise of this slope.
        The posterior of a logistic or Poisson fit has the bias by its prior instead, in posterior standard
        deviations, which 90% of its draws do not exceed. Other logistic and count fits have the standard
        errors of rare levels that the noise hides, which are above 1. It is nan, and all coefficients are
        listed, where only a joint check exists, or where the fit has no standard errors, for example because
        it did not converge.

        The constant is listed, whatever its strength, if it contains the slope of a listed column.
        """
        return NamedStrengths(self._inference.weakness)

    @property
    def release(self) -> Release | None:
        """Release behind the estimate; None where it was not kept."""
        return self._context.release

    @property
    def model(self) -> ModelLabels:
        """Names of model, response and coefficients."""
        context = self._context
        return ModelLabels(context.model, context.response, list(self.names), context.response_level)

    @property
    def method(self) -> str:
        """How the coefficients were estimated."""
        return self._context.method

    @property
    def target(self) -> str:
        """Coefficients that the intervals are for, such as those of the population."""
        return self._context.target

    @property
    def options(self) -> Mapping[str, str]:
        """Named choices, as the summary prints them."""
        return MappingProxyType(dict(self._context.options))

    @property
    def notes(self) -> tuple[str, ...]:
        """Footnotes of the summary."""
        return tuple(note.text for note in self._context.ranked)

    # ---- normal inference

    @property
    def use_t(self) -> bool:
        """Whether tests and intervals use t quantiles instead of normal ones.

        Their degrees of freedom are `df_resid` without noise, and grow without bound where noise is most of
        the error of a contrast (Satterthwaite).
        """
        return self._inference.use_t

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the p coefficients."""
        return self._inference.names

    @property
    def nobs(self) -> int:
        """Number of records."""
        return self._inference.nobs

    @property
    def df_model(self) -> int:
        """Number of coefficients besides the constant, be it a column or the sum of dummies."""
        return self._inference.df_model

    @property
    def k_constant(self) -> int:
        """1 where the columns hold a constant, or add up to one (all levels of a factor), else 0."""
        return self._inference.k_constant

    @property
    def df_resid(self) -> int:
        """Degrees of freedom of the sampling error; else the number of records less that of coefficients."""
        return self._inference.df_resid

    @property
    def cov_type(self) -> str:
        """Kind of covariance."""
        return self._inference.cov_type

    @property
    def params(self) -> pd.Series[float]:
        """Coefficients in the user's units."""
        return self._inference.params

    @property
    def bse(self) -> pd.Series[float]:
        """Standard errors, sampling and privacy noise together."""
        return self._inference.bse

    @property
    def tvalues(self) -> pd.Series[float]:
        """Coefficients over their standard errors."""
        return self._inference.tvalues

    @property
    def pvalues(self) -> pd.Series[float]:
        """Two-sided p-values of zero coefficients."""
        return self._inference.pvalues

    @property
    def bse_sampling(self) -> pd.Series[float]:
        """Standard errors that the same data would have had without noise; nan where hidden."""
        return self._inference.bse_sampling

    @property
    def bse_privacy(self) -> pd.Series[float]:
        """Standard errors that the privacy noise alone causes."""
        return self._inference.bse_privacy

    @property
    def noise_cov(self) -> pd.DataFrame:
        """Covariance of the part of the coefficients' error that the privacy mechanism causes."""
        return self._inference.noise_cov

    @property
    def variance_formula(self) -> VarianceFormula:
        """The named terms that add up to the coefficients' covariance, their sizes and their equation."""
        return self._inference.variance_formula

    @property
    def noise_share(self) -> pd.Series[float]:
        """Share of each coefficient's variance that the privacy noise causes."""
        return self._inference.noise_share

    cov_params = delegated("_inference", Inference.cov_params)
    delta_method = delegated("_inference", Inference.delta_method)
    t_test = delegated("_tests", LinearTests.t_test)
    wald_test = delegated("_tests", LinearTests.wald_test)
    f_test = delegated("_tests", LinearTests.f_test)
    t_test_pairwise = delegated("_tests", LinearTests.t_test_pairwise)
    wald_test_terms = delegated("_tests", LinearTests.wald_test_terms)

    compare_f_test = delegated("_tests", LinearTests.compare_f_test)
    conf_int = delegated("_score_tests", ScoreTests.conf_int)

    # ---- measures of fit

    @property
    def rsquared(self) -> float:
        """Share of the response's variance explained, from corrected moments."""
        return self._fit_statistics.rsquared

    @property
    def scale(self) -> float:
        """Residual variance without privacy noise, from corrected moments."""
        return self._fit_statistics.scale

    @property
    def scale_noise(self) -> float:
        """Standard error of `scale` that the privacy noise alone causes; nan where it is not known."""
        return self._fit_statistics.scale_noise

    @property
    def rsquared_noise(self) -> float:
        """Standard error of `rsquared` that the privacy noise alone causes; nan where it is not known."""
        return self._fit_statistics.rsquared_noise

    @property
    def rsquared_adj(self) -> float:
        """R-squared adjusted for the number of coefficients, as statsmodels has it."""
        return self._fit_statistics.rsquared_adj

    @property
    def fvalue(self) -> float:
        """F statistic of all coefficients but the constant, by the total covariance; see `f_pvalue`."""
        return self._fit_statistics.fvalue

    @property
    def f_pvalue(self) -> float:
        """p-value of `fvalue`. Where columns add up to a constant, the null is that the mean is constant."""
        return self._fit_statistics.f_pvalue

    @property
    def ssr(self) -> float:
        """Sum of squared residuals without privacy noise, from `scale`."""
        # anova_lm of several fits reads ssr, df_resid and scale alone: its F test would ignore the noise.
        if outer_module() == ANOVA:
            raise NotAvailableError(f"anova_lm() is not available: {NO_ANOVA}")
        return self._fit_statistics.ssr

    @property
    def ess(self) -> float:
        """Sum of squares that the columns explain, around the mean where there is a constant."""
        return self._fit_statistics.ess

    @property
    def mse_resid(self) -> float:
        """`ssr` over the number of records less that of coefficients."""
        return self._fit_statistics.mse_resid

    @property
    def mse_model(self) -> float:
        """`ess` over `df_model`."""
        return self._fit_statistics.mse_model

    @property
    def mse_total(self) -> float:
        """Variance of the response (without a constant its mean square), without privacy noise."""
        return self._fit_statistics.mse_total

    @property
    def centered_tss(self) -> float:
        """Sum of squares of the response about its mean, from `ssr` and `rsquared`."""
        return self._fit_statistics.centered_tss

    # ---- inference by scores, draws, predictions

    score_test = delegated("_score_tests", ScoreTests.score_test)
    score_set = delegated("_score_tests", ScoreTests.score_set)
    score_sets_are_quick = delegated("_score_tests", ScoreTests.score_sets_are_quick)
    simultaneous = delegated("_resampling", Resampling.simultaneous)
    bootstrap = delegated("_resampling", Resampling.bootstrap)
    draws = delegated("_resampling", Resampling.draws)
    to_arviz = delegated("_resampling", Resampling.to_arviz)
    predict = delegated("_predictions", Predictions.predict)
    get_prediction = delegated("_predictions", Predictions.get_prediction)

    # ---- what the class of a method adds beside its components

    def _warn_if_weak(self, subject: str, jointly: bool = True) -> None:
        for category, text in self._inference.warnings_about(subject, jointly):
            # A misfit is a fact of the fit, so one warning is enough; every table repeats it in its notes.
            reason = text.partition(":")[0]
            if category is MisfitWarning and reason in self._misfits_stated:
                continue
            warn(f"{subject}: {text}", category)
            if category is MisfitWarning:  # after the warning, which may be turned into an error
                self._misfits_stated.add(reason)

    @cached_property
    def _misfits_stated(self) -> set[str]:
        """Beginnings of the texts of which a member has warned."""
        return set()

    def _summary_columns(self) -> tuple[SummaryColumn, ...]:
        """Return the columns that the table of a summary has more than others."""
        return ()

    def _check_settings(self) -> None:
        """Read all that this class takes from its settings: those of a file could be anything."""

    @classmethod
    def _stored_context(cls, estimate: Estimate, context: Context) -> Context:
        """Return the context of a file with an equation that its settings hold, if this class keeps one."""
        return context
