"""Results of generalized linear models: the common facade, public iterates and traffic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NotRequired, TypedDict, cast

import numpy as np
import pandas as pd

from privinf.accounting import PrivacyReport
from privinf.error_boundary import error_boundaries, refuses
from privinf.errors import ArgumentError, HeavyTailWarning, MisfitWarning, NotAvailableError
from privinf.errors import WeakIdentificationWarning as Weak
from privinf.glm.advice import (
    DECIDED_BY_PRIOR,
    OF_A_PRIOR,
    far_records,
    few_records,
    hidden_level_warning,
    identified,
    listed,
    long_first_step,
    notes_of,
)
from privinf.glm.convergence import Trajectory, error_of_start, judge_convergence
from privinf.glm.dispersion import Dispersion
from privinf.glm.least_squares import OneStepFit, lacks_released_hessian
from privinf.glm.margins import (
    DERIVATIVES,
    DIFFERENCES,
    MARGINS_NOT_RELEASED,
    NO_CONSTANT,
    NO_DIFFERENCES,
    NO_OFFSET,
    NOISY_AVERAGE,
    WEIGHTED_AVERAGE,
    Average,
    MarginalEffects,
    at_point,
    averaged,
    averaged_logs,
    is_well_determined,
    places_of,
    remarks_of,
    with_differences,
)
from privinf.glm.newton import Block, OneStep
from privinf.glm.one_sided import note_of, one_sided_columns
from privinf.glm.posterior_draws import (
    LARGEST_PRIOR_BIAS,
    curved_system,
    drawn,
    equation_of,
    prior_bias,
    recorded,
    restored,
)
from privinf.glm.queries import LeastSquaresOptions
from privinf.glm.rows import GlmRows
from privinf.glm.sums import BYTES, Traffic
from privinf.inference.estimate import Estimate, VarianceTerms, is_positive_definite
from privinf.inference.one_step import STEP_EQUATION, OneStepScores
from privinf.inference.solution import sandwich
from privinf.results import Results
from privinf.results.coefficient_tests import tests_of
from privinf.results.context import Context, index_of
from privinf.results.delegation import delegated
from privinf.results.fit_statistics import FitStatistics
from privinf.results.notes import Note, must_read, target_notes
from privinf.results.outside_counts import OutsideCounts
from privinf.results.paper_table import ratios
from privinf.results.prediction import Prediction, Predictions, mean_response, predicted, warn_beyond
from privinf.results.wald import NO_CONVERGENCE, Inference
from privinf.schema import Design
from privinf.schema.arrays import labelled
from privinf.schema.declared import Level
from privinf.schema.extrapolation import beyond_declared
from privinf.typing import (
    ArrayLike,
    ColumnsLike,
    CovType,
    Flags,
    Floats,
    LossName,
    Margins,
    MarginsMethod,
    Missing,
    Which,
)
from privinf.validation import check_array, check_choice, check_flag, check_fraction

# Options of statsmodels' get_margeff that no result here has.
NO_OTHER_MARGINS = {
    "alpha": "is an argument of the table: use get_margeff().summary(alpha) or .summary_frame(alpha)",
    "atexog": (
        "is not an option, because rows of your own need no release: use "
        "privinf.marginaleffects.model_of(result, rows)"
    ),
    "count": (
        "is not supported: effects of numbers are derivatives. For a difference of predictions with an "
        "interval, use result.delta_method()"
    ),
}
UNCHARGED = "Settings chosen by looking at private data cost privacy that this report does not count."
CHARGED = (
    "The ledger also contains {} earlier releases; with them this fit costs epsilon {:.4g} "
    "at delta {:g}. Settings chosen from private data in other ways are not charged."
)

NOT_CONVERGED = (
    f"{NO_CONVERGENCE}: the last Newton step was {{:.1f}} standard errors long; use Newton(rounds=6), a "
    "larger final_share=, more rows or budget, or tighter bounds{}"
)
WIDER_CLIP = " or a larger residual_clip="

SINGULAR = (
    "the covariance of the coefficients is not positive definite. Columns may be constant or collinear, "
    "they may fit the response exactly, or the noise may be too large; use fewer columns or a larger budget"
)
FLOORED = (
    "This file was saved by a version that stored the Hessian with raised eigenvalues. Score tests and score "
    "intervals use that Hessian, and they can miss the true values of weakly identified coefficients."
)
NO_DISPERSION = (
    "a fit with weights= releases the dispersion of weighted scores, not that of counts: use conf_int(), the "
    "interval of the mean, or fit without weights="
)
NO_ALPHA = "this fit has no intervals, and then neither the dispersion nor its interval is available"
NO_MEANS = (
    "marginal effects need second moments of the columns, which this fit did not release: use the default "
    "fit of a logistic or Poisson model"
)
NO_SQUARES = "this model releases no squared residuals, from which this quantity is computed"
NOT_AMONG_COEFFICIENTS = (
    "alpha is not among the coefficients: use result.alpha, result.alpha_bse and result.alpha_conf_int()"
)
NO_ROLE = (
    "{0}= needs a model with {1}, and this model was fitted without: leave {0}= out, or name a column of the "
    "schema with {0}= when the model is made"
)
NAMED_TARGETS = (
    "predictions need all coefficients, and this fit reports only its targets: fit without targets="
)
APART = (
    "Intervals of named targets assume that, given the nuisance columns, each target's "
    "column is uncorrelated with all other columns (weighted by the second derivative of "
    "the loss)."
)
LOSSES: dict[str, LossName] = {
    "gaussian": "squared",
    "binomial": "logistic",
    "poisson": "poisson",
    "negative-binomial": "poisson",
}
RATES = ("poisson", "negative-binomial")  # families whose exponentiated coefficients are rate ratios


class GlmSettings(TypedDict):
    """Settings of a result: iterates in the user's units, and (query, floats down, floats up) of each one."""

    family: str
    response: NotRequired[str]
    level: NotRequired[Level]
    trace: list[list[float]]
    rounds: list[list[Any]]
    names: list[str]
    scarce: NotRequired[list[str]]
    misfits: NotRequired[list[str]]
    secant_bias: NotRequired[list[float]]
    hidden_levels: NotRequired[dict[str, float]]
    unbounded: NotRequired[list[str]]
    scores: NotRequired[dict[str, Any]]
    curved: NotRequired[dict[str, Any]]
    equation: NotRequired[dict[str, Any]]
    second: NotRequired[list[list[float]]]
    margins: NotRequired[list[float]]
    hessian_average: NotRequired[dict[str, Any]]
    dispersion: NotRequired[float]
    alpha: NotRequired[dict[str, Any]]
    to_user: NotRequired[list[list[float]]]
    missing: NotRequired[Missing]
    complete: NotRequired[dict[str, Any]]
    clipped: NotRequired[dict[str, float]]
    outside_counts: NotRequired[dict[str, Any]]
    at_an_end: NotRequired[list[str]]
    measure_noise: NotRequired[dict[str, float]]


class WithoutDispersion(pd.Series):
    """Numbers of the coefficients of a negative binomial mean: statsmodels has alpha among them."""

    @property
    def _constructor(self) -> type[pd.Series]:
        return pd.Series

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str) and key == "alpha" and key not in self.index:
            raise KeyError(NOT_AMONG_COEFFICIENTS)
        return super().__getitem__(key)


@dataclass(frozen=True, eq=False)
class GLMInference(Inference):
    """Inference of a generalized linear model: draws of curved fits, effects of heavy tails."""

    @property
    def settings(self) -> GlmSettings:
        """What the fit kept."""
        return cast(GlmSettings, self.context.settings)

    @property
    def constant(self) -> int | None:
        """Place of the constant."""
        return None if self.context.design is None else self.context.design.constant

    @property
    def no_scores(self) -> str:
        """Why the fit has no score tests: a fit without standard errors ended without their equation."""
        return self.estimate.weak_reason if self.estimate.cov is None else ""

    @property
    def coefficient_scale(self) -> str:
        """Scale on which coefficients are effects."""
        return {"gaussian": "mean", "binomial": "log odds"}.get(self.settings["family"], "log mean")

    @property
    def bias_name(self) -> str:
        """What a summary calls the bias: of clipping, of the last step, or of both."""
        if "secant_bias" not in self.settings:
            return super().bias_name
        return (
            "bias of the last step"
            if self.settings["family"] == "binomial"
            else "bias of clipping and the last step"
        )

    def labelled(self, values: Floats, name: str) -> pd.Series[float]:
        """Return numbers, one a coefficient; those of counts with a dispersion state where the latter is."""
        series = super().labelled(values, name)
        return WithoutDispersion(series, copy=False) if "alpha" in self.settings else series

    @cached_property
    def scaled_draws(self) -> Floats | None:
        """Draws of the coefficients of z, shape (draws, p); None where intervals are normal."""
        if "curved" not in self.settings or self.estimate.cov is None:
            return None
        return drawn(restored(self.settings["curved"]), self.nobs, self.constant).draws

    @cached_property
    def posterior(self) -> Floats | None:
        """Draws of the coefficients, shape (draws, p); None where intervals are normal."""
        if self.scaled_draws is None:
            return None
        return np.asarray(self.scaled_draws @ np.array(self.settings["to_user"]).T)

    @cached_property
    def weakness(self) -> pd.Series[float]:
        """Bias by the prior of weakly identified coefficients of a posterior.

        In other curved fits, standard errors of rare levels that the noise hides; else as every result's.
        """
        if self.cov_type != "posterior" or self.scaled_draws is None:
            errors = self.settings.get("hidden_levels", {})
            if not errors:
                return super().weakness
            return pd.Series(list(errors.values()), index_of(tuple(errors)), name="standard error")
        step = restored(self.settings["curved"])
        back = np.array(self.settings["to_user"])
        bias = prior_bias(step, self.scaled_draws, self.constant, back)
        return pd.Series(bias, index_of(self.names), name="prior bias")[bias > LARGEST_PRIOR_BIAS]

    @property
    def weak_intervals(self) -> list[tuple[type[Warning], str]]:
        """Warning of weakly identified coefficients, of a posterior those that its prior decides."""
        if self.cov_type != "posterior":
            return [*self._of_hidden_levels, *super().weak_intervals]
        names = ", ".join(self.weakness.index)
        return [(Weak, DECIDED_BY_PRIOR.format(names))] if names else []

    @property
    def weak_joint_inference(self) -> list[tuple[type[Warning], str]]:
        """Warning of weak identification in some direction, or of the prior of a posterior."""
        if self.cov_type == "posterior":
            return [(Weak, OF_A_PRIOR)]
        return [*self._of_hidden_levels, *super().weak_joint_inference]

    @property
    def _of_hidden_levels(self) -> list[tuple[type[Warning], str]]:
        """Warning of rare levels whose coefficients the noise hides."""
        errors = self.settings.get("hidden_levels", {})
        return [(Weak, hidden_level_warning(errors, self.coefficient_scale))] if errors else []

    def sampled(self, n: int, rng: np.random.Generator) -> tuple[str, Floats]:
        """Return the name of the sampling distribution and n draws from it, shape (n, p)."""
        if self.posterior is None:
            return super().sampled(n, rng)
        return "draws of the coefficients given the final release", rng.choice(self.posterior, n)

    def interval(self, alpha: float) -> Floats:
        """Return the ends of the intervals, shape (p, 2); infinite where the last step was too long."""
        if self.posterior is None:
            return super().interval(alpha)
        level = check_fraction(alpha, "alpha") / 2.0
        in_order = np.sort(self.posterior.T, axis=1)  # numpy selects from draws in order twice as fast
        ends = np.quantile(in_order, [level, 1.0 - level], axis=1, overwrite_input=True).T
        if self.estimate.bias is not None:
            unbiased = replace(self.precision, bias=None)
            extension = self.precision.half_length(alpha) - unbiased.half_length(alpha)
            ends = ends + np.column_stack([-extension, extension])
        ends[self._unbounded] = -np.inf, np.inf
        return ends

    @cached_property
    def pvalues(self) -> pd.Series[float]:
        """Two-sided p-values of zero coefficients; nan where an interval is unbounded."""
        values = super().pvalues
        if not self._unbounded.any():
            return values
        return self.labelled(np.where(self._unbounded, np.nan, values), "pvalues")

    @property
    def _unbounded(self) -> Flags:
        """Coefficients of rare levels without which the fit converged."""
        return np.isin(self.names, self.settings.get("unbounded", []))

    @property
    def other_warnings(self) -> list[tuple[type[Warning], str]]:
        """Warnings about intervals and tests: those of every result, outlying records, a misfit."""
        warnings = super().other_warnings
        warnings += [(HeavyTailWarning, text) for text in self.settings.get("scarce", [])]
        return warnings + [(MisfitWarning, text) for text in self.settings.get("misfits", ())]

    def warnings_about(self, subject: str, jointly: bool) -> list[tuple[type[Warning], str]]:
        """Return warnings as every result does; those about marginal effects do not name the constant."""
        warnings = super().warnings_about(subject, jointly)
        if subject != "get_margeff()":
            return warnings
        return [(category, self._of_effects(text)) for category, text in warnings]

    def _of_effects(self, text: str) -> str:
        """Return a warning without the constant, which has no effect, among the columns that it lists."""
        constant = None if self.constant is None else self.settings["names"][self.constant]
        for note in self.context.ranked:
            effects = [name for name in note.columns if name != constant]
            if effects and note.states(text):
                return text.replace(listed(note.columns), listed(effects))
        return text


@dataclass(frozen=True, eq=False)
class GLMPredictions(Predictions):
    """Predicted means of new rows through the link of the family."""

    inference: GLMInference

    @property
    def refusal(self) -> str:
        """Why this result predicts for no new row; empty where it does."""
        named_targets = self.inference.columns < len(self.inference.settings["names"])
        return super().refusal or (NAMED_TARGETS if named_targets else "")

    @property
    def loss(self) -> LossName:
        """The loss of the family."""
        return LOSSES[self.inference.settings["family"]]

    def predict(
        self,
        exog: ColumnsLike | None = None,
        transform: bool = True,
        which: Which = "mean",
        *,
        exposure: ArrayLike | None = None,
        offset: ArrayLike | None = None,
    ) -> pd.Series[float]:
        """Return predictions for new rows: the mean, or the linear predictor.

        The mean of a binomial response is the probability of 1, which of a response with two levels is the
        second level (``result.model.response_level``).

        Parameters
        ----------
        exog : table, mapping of columns or single values, Series of one row, or array
            New rows with the formula's columns, or the design matrix itself (by name where there are names).
        transform : bool
            False: `exog` is the design matrix although the model has a formula.
        which : {"mean", "linear"}
            The mean, or the linear predictor.
        exposure, offset : number or array_like, shape (rows,), optional
            Exposure and offset of the new rows, for all rows or for each. Default: if the model was fitted
            with an exposure or an offset, the column of that name in `exog`; where there is none, exposure 1
            and offset 0, as in statsmodels.

        Returns
        -------
        Series
            One number per row, under the labels of the rows.
        """
        check_choice(which, Which, "which")
        rows, index = self.rows(exog, transform)
        linear: Floats = rows @ self.inference.joint_params + self._shift(exog, exposure, offset, len(rows))
        return pd.Series(mean_response(self.loss, linear) if which == "mean" else linear, index, name=which)

    def get_prediction(
        self,
        exog: ColumnsLike | None = None,
        transform: bool = True,
        *,
        exposure: ArrayLike | None = None,
        offset: ArrayLike | None = None,
    ) -> Prediction:
        """Return predicted means with standard errors (delta method) and intervals (from the predictor's).

        Intervals of new observations are gaussian, where squares of residuals were released. For counts they
        are Poisson, or negative binomial with the fit's dispersion (released with ``cov_type="HC0"``) where
        it is above 1. For `NegativeBinomial` they have the fit's alpha, taken as known.

        Parameters
        ----------
        exog : table, mapping of columns or single values, Series of one row, or array
            New rows with the formula's columns, or the design matrix itself (by name where there are names).
        transform : bool
            False: `exog` is the design matrix although the model has a formula.
        exposure, offset : number or array_like, shape (rows,), optional
            Exposure and offset of the new rows, for all rows or for each. Default: if the model was fitted
            with an exposure or an offset, the column of that name in `exog`; where there is none, exposure 1
            and offset 0, as in statsmodels.

        Returns
        -------
        object
            ``.predicted_mean``, ``.se_mean``, ``.conf_int()`` and ``.summary_frame()``.
        """
        rows = self.rows(exog, transform)
        prediction = predicted(
            self.inference.estimate,
            rows,
            self.loss,
            scatter=self.statistics.scatter(),
            dispersion=max(self.inference.settings.get("dispersion", 1.0), 1.0),
            alpha=Dispersion.from_dict(self.inference.settings["alpha"]).value
            if "alpha" in self.inference.settings
            else 0.0,
            shift=self._shift(exog, exposure, offset, len(rows[0])),
        )
        prediction = replace(prediction, quantity=self.quantity)
        weighted = self.loss == "poisson" and "Weights" in self.inference.context.options
        return replace(prediction, observation=None, reason=NO_DISPERSION) if weighted else prediction

    def _shift(
        self, exog: ColumnsLike | None, exposure: ArrayLike | None, offset: ArrayLike | None, size: int
    ) -> Floats:
        """Return what exposure and offset add to the linear predictors of new rows, shape (rows,)."""
        options = self.inference.context.options
        if exposure is not None and "Exposure" not in options:
            raise ArgumentError(NO_ROLE.format("exposure", "an exposure"))
        if offset is not None and "Offset" not in options:
            raise ArgumentError(NO_ROLE.format("offset", "an offset"))
        shift = np.zeros(size)
        for role, values in (("Exposure", exposure), ("Offset", offset)):
            if role not in options:
                continue
            numbers = _column(exog, options[role]) if values is None else values
            if numbers is None:
                continue
            name = options[role] if values is None else role.lower() + "="
            checked = check_array(numbers, name, ndim=np.ndim(numbers), finite=False)
            if checked.ndim > 1 or checked.size not in (1, size):
                raise ArgumentError(f"{name} must have one number for each of the {size} new rows")
            if np.isinf(checked).any() or (role == "Exposure" and (checked <= 0.0).any()):
                raise ArgumentError(f"{name} must be {'positive and ' * (role == 'Exposure')}finite")
            self._warn_of_role(options[role], np.broadcast_to(checked, size))
            shift += np.log(checked) if role == "Exposure" else checked
        return shift

    def _warn_of_role(self, name: str, values: Floats) -> None:
        """Warn of exposures or offsets of new rows outside the bounds to which the fit clipped them."""
        design = self.inference.context.design
        if design is not None and design.schema is not None and name in design.schema:
            text = beyond_declared(values, design.schema[name])
            warn_beyond({name: text} if text else {})


def _column(exog: ColumnsLike | None, name: str) -> ArrayLike | None:
    """Return a column of new rows, or its single value; None if they have no column of this name."""
    table: Any = labelled(exog) if exog is not None else None
    if isinstance(table, pd.DataFrame | pd.Series | Mapping) and name in table:
        return np.asarray(table[name])
    return None


@error_boundaries
class GLMResults(Results):
    """Results of `OLS`, `Logit`, `Poisson` and `GLM`.

    Adds to `Results`: `trace`, `communication` and predictions on the scale of the mean. Score tests
    extrapolate the last released score by its Hessian.
    """

    @cached_property
    def _inference(self) -> GLMInference:
        return GLMInference(self._estimate, self._context)

    @cached_property
    def _fit_statistics(self) -> FitStatistics:
        has_squares = self._context.scale is not None or self._context.variance_hidden
        return FitStatistics(self._inference, None if has_squares else NO_SQUARES)

    @cached_property
    def _predictions(self) -> GLMPredictions:
        return GLMPredictions(self._inference, self._fit_statistics)

    predict = delegated("_predictions", GLMPredictions.predict)
    get_prediction = delegated("_predictions", GLMPredictions.get_prediction)

    def _refused_methods(self) -> frozenset[str]:
        refused = super()._refused_methods()
        ratios_of = {"odds_ratios": ("binomial",), "rate_ratios": RATES}
        refused |= {name for name, families in ratios_of.items() if self.family not in families}
        if self._estimate.cov is None:
            refused |= ratios_of.keys()
        if self._estimate.cov is None or "second" not in self._settings or self._inference.constant is None:
            refused |= {"get_margeff"}
        return refused

    @property
    def _settings(self) -> GlmSettings:
        return self._inference.settings

    def _check_settings(self) -> None:
        check_choice(self.family, tuple(LOSSES), "family")
        if any(len(line) != 3 for line in self._settings["rounds"]):
            raise ArgumentError(
                "every entry of rounds must hold a name, the number of floats sent and the number received"
            )
        self.trace.astype(float), self.communication

    @classmethod
    def _stored_context(cls, estimate: Estimate, context: Context) -> Context:
        """Return the context with the equation of curved fits, and a note where a file lacks its Hessian."""
        settings = cast(GlmSettings, context.settings)
        if isinstance(context.system, OneStepScores) and lacks_released_hessian(context.system):
            noted = [note.text for note in context.ranked]
            return (
                context if FLOORED in noted else replace(context, notes=(*context.notes, *must_read(FLOORED)))
            )
        holds_equation = bool(settings.keys() & {"curved", "equation"})
        if not holds_equation or context.system is not None or context.design is None:
            return context
        system = curved_system(settings, context.design, estimate.nobs, estimate.cov_type)
        return replace(context, system=system)

    def odds_ratios(self, alpha: float = 0.05) -> pd.DataFrame:
        """Return odds ratios with intervals: exp of the coefficients of a logistic model.

        Parameters
        ----------
        alpha : float
            One minus the confidence level of the intervals.

        Returns
        -------
        DataFrame
            One row per coefficient.
        """
        return self._ratios(("binomial",), "odds ratio", alpha)

    def rate_ratios(self, alpha: float = 0.05) -> pd.DataFrame:
        """Return rate ratios with intervals: exp of the coefficients of a model of counts.

        Parameters
        ----------
        alpha : float
            One minus the confidence level of the intervals.

        Returns
        -------
        DataFrame
            One row per coefficient.
        """
        return self._ratios(RATES, "rate ratio", alpha)

    def _ratios(self, families: tuple[str, ...], name: str, alpha: float) -> pd.DataFrame:
        if self.family not in families:
            raise NotAvailableError(
                f"{name}s require family={families[0]!r}, but this fit has family={self.family!r}"
            )
        return ratios(self, name, alpha)

    @refuses(NO_OTHER_MARGINS, NotAvailableError)
    def get_margeff(
        self, at: Margins = "overall", method: MarginsMethod = "dydx", *, dummy: bool = False
    ) -> MarginalEffects:
        """Return marginal effects on the mean, with standard errors (delta method) and normal intervals.

        Parameters
        ----------
        at : {"overall", "mean", "zero"}
            Where effects are evaluated. "overall": the average over all records, exposure and offset
            included. It follows from the Hessian of the fit where that widens intervals by at most 2%;
            otherwise it needs ``fit(margins=True)``. "mean": at the columns' means, as the first release has
            them. "zero": at 0. The last two have exposure 1 and offset 0, and cost nothing.
        method : {"dydx", "eyex", "dyex", "eydx"}
            Change that an effect states: dy/dx (default), d(lny)/d(lnx), dy/d(lnx) or d(lny)/dx. Averages of
            a logistic model, and averages of dy/d(lnx), are only available for "dydx".
        dummy : bool
            Whether effects of levels of factors are changes of the mean from 0 to 1, as in statsmodels, and
            not derivatives. Only for `at` "mean" or "zero" and `method` "dydx". Numeric columns of zeros and
            ones are not factors: declare their levels in the schema.

        Returns
        -------
        object
            ``.summary()``, ``.summary_frame()``, ``.margeff``, ``.margeff_se``, ``.tvalues``,
            ``.pvalues`` and ``.conf_int()``.

        Raises
        ------
        NotAvailableError
            The fit has no constant, the average needs another release, or changes from 0 to 1 are requested
            for an average or on a logarithmic scale.
        """
        check_choice(at, Margins, "at")
        check_choice(method, MarginsMethod, "method")
        check_flag(dummy, "dummy")
        settings = self._settings
        constant = self._inference.constant
        if "second" not in settings or constant is None:
            raise NotAvailableError(NO_CONSTANT if "second" in settings else NO_MEANS)
        if dummy and (at == "overall" or method != "dydx"):
            raise NotAvailableError(NO_DIFFERENCES)
        second = np.array(settings["second"])
        indicators = self._indicators
        if at == "overall" and method != "dydx":
            effects = averaged_logs(self._mean_family, self._estimate, second, constant, method)
        elif at == "overall":
            average = self._average(second, constant)
            effects = averaged(self._mean_family, self._estimate, second, constant, average)
        else:
            point = second[constant] if at == "mean" else np.eye(len(second))[constant]
            effects = at_point(self._mean_family, self._estimate, point, constant, method)
            if dummy:
                effects = with_differences(
                    effects, self._mean_family, self._estimate, point, constant, indicators
                )
        meaning = (DIFFERENCES if dummy else DERIVATIVES) if indicators.any() and method == "dydx" else ""
        warnings = [text for _, text in self._inference.warnings_about("get_margeff()", jointly=True)]
        return MarginalEffects(
            effects=effects,
            method=method,
            at=at,
            model=self.model.name,
            response=self.model.endog_names,
            response_level=self.model.response_level,
            report=self.privacy,
            records=self._context.records(self.nobs),
            places=places_of(self._context.options, self.family, at, method),
            remarks=remarks_of(self, self.names[constant], warnings, meaning),
        )

    @property
    def _indicators(self) -> Flags:
        """Whether each coefficient belongs to a level of a factor, shape (p,)."""
        design = self._context.design
        columns = () if design is None else (design.columns if design.raw is None else design.raw)
        levels = {column.name for column in columns if column.indicator}
        return np.array([name in levels for name in self.names])

    def _average(self, second: Floats, constant: int) -> Average:
        """Return the mean derivative: as it was released, or of the Hessian where that suffices."""
        settings = self._settings
        if "margins" in settings:
            mean, sd, ratio = (*settings["margins"], 1.0)[:3]
            return Average(mean=mean, variance=sd**2, covariance=np.zeros(len(second)), ratio=ratio)
        if "hessian_average" in settings:
            average = Average.from_dict(settings["hessian_average"])
            if is_well_determined(self._mean_family, self._estimate, second, constant, average):
                return average
        if self.family == "binomial" and "Offset" in self._context.options:
            raise NotAvailableError(NO_OFFSET)
        weighted = "Weights" in self._context.options
        raise NotAvailableError(MARGINS_NOT_RELEASED.format(WEIGHTED_AVERAGE if weighted else NOISY_AVERAGE))

    @property
    def family(self) -> str:
        """Name of the family: "gaussian", "binomial", "poisson" or "negative-binomial"."""
        return str(self._settings["family"])

    @property
    def _mean_family(self) -> str:
        """Family of the mean: that of negative binomial counts is a Poisson model's."""
        return "poisson" if self.family in RATES else self.family

    @cached_property
    def trace(self) -> pd.DataFrame:
        """Iterates in the user's units, one row per round, the start first; they are public."""
        return pd.DataFrame(np.array(self._settings["trace"]), columns=self._settings["names"])

    @cached_property
    def communication(self) -> pd.DataFrame:
        """Number of floats and bytes that one site received and sent, per query."""
        rounds = list(self._settings["rounds"])
        traffic = pd.DataFrame(rounds, columns=["question", "floats_down", "floats_up"])
        return traffic.assign(bytes_down=BYTES * traffic.floats_down, bytes_up=BYTES * traffic.floats_up)

    predict = delegated("_predictions", GLMPredictions.predict)
    get_prediction = delegated("_predictions", GLMPredictions.get_prediction)


@error_boundaries
class NegativeBinomialResults(GLMResults):
    """Results of `NegativeBinomial`: those of a Poisson model, and the dispersion."""

    def _refused_methods(self) -> frozenset[str]:
        refused = super()._refused_methods()
        return refused | {"alpha_conf_int"} if self._dispersion is None else refused

    @property
    def _dispersion(self) -> Dispersion | None:
        """Estimate of alpha; None where the fit has no interval."""
        if self._estimate.cov is None or "alpha" not in self._settings:
            return None
        return Dispersion.from_dict(self._settings["alpha"])

    def _released_dispersion(self) -> Dispersion:
        """Return the estimate of alpha (NotAvailableError where the fit has no interval)."""
        if self._dispersion is None:
            raise NotAvailableError(NO_ALPHA)
        return self._dispersion

    @property
    def alpha(self) -> float:
        """Dispersion alpha of Var(y) = mu + alpha mu^2; 0 where the released estimate is negative."""
        return self._released_dispersion().value

    @property
    def alpha_bse(self) -> float:
        """Standard error of the dispersion, with sampling and noise."""
        return self._released_dispersion().se

    def alpha_conf_int(self, alpha: float = 0.05) -> tuple[float, float]:
        """Return the interval of the dispersion.

        Parameters
        ----------
        alpha : float
            The interval has the level ``1 - alpha``.

        Returns
        -------
        tuple of float
            Lower and upper end, cut at 0; the upper one is infinite where the noise hides the dispersion.

        Notes
        -----
        The interval has the variance of rows and noise, and a bound for the bias that errors of the
        coefficients cause. It assumes negative binomial counts: otherwise the dispersion is that of the
        nearest negative binomial distribution.
        """
        return self._released_dispersion().interval(check_fraction(alpha, "alpha"))


class FederatedGLMResults(GLMResults):
    """Another name of `GLMResults`, for fits of `FederatedGLM`."""


def response_settings(design: Design) -> dict[str, Any]:
    """Return name and coded level of the response, for a result without its design."""
    level = design.outcome.level
    return {"response": design.response} | ({} if level is None else {"level": level})


def named_results(estimate: Estimate, **context: Any) -> GLMResults:
    """Return results of the class that belongs to the model's name; `context` as `Results` takes it."""
    kinds = {"FederatedGLM": FederatedGLMResults, "NegativeBinomial": NegativeBinomialResults}
    kind = kinds.get(context["model"], GLMResults)
    return kind(estimate, Context(**context))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FitDescription:
    """Description of a fit: model, method, options of the summary, its rounds, traffic and cost.

    `outside` has the counts of values outside their bounds, and `at_an_end` the columns whose released mean
    is at an end of theirs.
    """

    model: str
    method: str
    options: Mapping[str, str]
    trajectory: Trajectory
    traffic: Traffic
    report: PrivacyReport
    outside: OutsideCounts | None = None
    at_an_end: tuple[str, ...] = ()

    @property
    def clipped(self) -> dict[str, float]:
        """Large shares of values that counts put outside their bounds, by name."""
        return {} if self.outside is None else self.outside.large_shares

    def context(self, rows: GlmRows, *notes: str | Note) -> dict[str, Any]:
        """Return the surroundings of the estimate; `notes` for the summary."""
        trace = [(rows.to_user @ theta).tolist() for theta in self.trajectory.path]
        settings: GlmSettings = {
            "family": rows.family,
            "trace": trace,
            "rounds": [list(round_sums) for round_sums in self.traffic.rounds],
            "names": list(rows.design.names),
        }
        if rows.missing != "raise":
            settings["missing"] = rows.missing
        if rows.complete is not None:
            settings["complete"] = rows.complete.settings()["complete"]
        counted: tuple[Note, ...] = ()
        if self.outside is not None:
            settings["outside_counts"] = self.outside.settings()
            counted = (self.outside.note(),)
            if self.clipped:
                settings["clipped"] = self.clipped
        if self.at_an_end:
            settings["at_an_end"] = list(self.at_an_end)
        clipped = target_notes(self.report)
        return {
            "report": self.report,
            "design": rows.design,
            "model": self.model,
            "method": self.method,
            "options": self.options,
            "settings": settings,
            "notes": (*clipped, *notes, self._tuning(), *counted),
        }

    def _tuning(self) -> str:
        """Return whether earlier releases, such as a search for settings, were charged."""
        report = self.report
        earlier = len({entry.id for entry in report.recorded} - {entry.id for entry in report.entries})
        if not earlier:
            return UNCHARGED
        return CHARGED.format(earlier, report.cumulative.epsilon(), report.default_delta)


def glm_results(
    rows: GlmRows, step: OneStep, description: FitDescription, cov_type: str, block: Block | None
) -> GLMResults:
    """Return the results of a fit that ended with a one-step estimate, in the user's units.

    Cov = H^-1 [meat / n + S_score + (s_H^2 / 2) (|D|^2 I + D D')] H^-1.
    """
    sampling = sandwich(step.bread, step.meat, rows.total)
    terms = {name: sandwich(step.bread, term, 1) for name, term in step.noise_terms.items()}
    noise = np.asarray(sum(terms.values()))
    step_names = names = rows.design.names
    back = rows.to_user
    context = description.context(rows, *(() if block is None else must_read(APART)))
    if block is not None:
        step_names = tuple(names[j] for j in block.columns)
        context["design"] = None
        context["settings"] |= response_settings(rows.design)
        names = block.targets
        back = np.diag(1.0 / rows.scale[block.columns])[: len(block.targets)]
    total = sampling + noise
    reason = _nonconvergence(rows, step, description.trajectory, total)
    if reason := reason or singular(total):
        weak = Estimate(
            params=step.params,
            cov=None,
            names=step_names,
            nobs=rows.total,
            cov_type="none",
            weak_reason=reason,
        )
        return named_results(weak.transformed(back, names=names), **context)
    fitted = Estimate(
        params=step.params,
        cov=total,
        names=step_names,
        nobs=rows.total,
        scores=None,
        bread=step.bread,
        noise_cov=noise,
        cov_type=cov_type,
        terms=VarianceTerms.dividing(total, STEP_EQUATION, terms),
    )
    estimate = fitted.transformed(back, names=names)
    equation = {"equation": recorded(equation_of(step)), "to_user": back.tolist()}
    if block is None:
        context["system"] = curved_system(equation, rows.design, rows.total, cov_type)
        context["settings"] |= equation if step.score_sd else {}
    return named_results(estimate, sampling_cov=back @ sampling @ back.T, **context)


def one_step_results(
    rows: GlmRows, one_step: OneStepFit, options: LeastSquaresOptions, description: FitDescription
) -> GLMResults:
    """Return the results of one-step least squares, in the user's units."""
    center, unit, _, _ = rows.response_units
    transform = unit * rows.to_user
    shift = np.zeros(rows.p)
    if rows.design.constant is not None:
        shift[rows.design.constant] = center
    cov, noise = one_step.covariance(transform)
    cov_type: CovType = "HC0" if options.robust else "nonrobust"
    params = transform @ one_step.params + shift
    one_sided, directions = one_sided_columns(rows, one_step)
    bias = np.maximum(one_step.bias(transform), one_step.bias_along(transform, directions))
    if reason := singular(cov):
        bare = Estimate(
            params=params,
            cov=None,
            names=rows.design.names,
            nobs=rows.total,
            cov_type="none",
            weak_reason=reason,
        )
        return named_results(bare, **description.context(rows))
    estimate = Estimate(
        params=params,
        cov=cov,
        names=rows.design.names,
        nobs=rows.total,
        noise_cov=noise,
        cov_type=cov_type,
        df_resid=max(rows.total - rows.p, 1),
        bias=bias if bias.any() else None,
        terms=VarianceTerms.dividing(cov, STEP_EQUATION, one_step.noise_terms(transform)),
    )
    scaled = np.linalg.inv(rows.design.to_user[0]) @ transform
    system = one_step.score_equation(scaled, ~rows.design.private, cov_type, directions)
    strength = identified(rows, one_step, estimate.bse)
    tests = tests_of(system, rows.design, list(range(rows.p))) if strength.weak else None
    hidden = np.full(rows.p, strength.weak) if tests is None else tests.hidden
    measures = one_step.measures
    pull = one_step.tail_pull(transform, estimate.bse)
    doubts = few_records(rows, one_step, pull)
    unclipped = one_step.unclipped_shift(transform)
    doubts += long_first_step(rows, one_step, unclipped, estimate.bse)
    doubts += note_of(rows, one_sided, bias / estimate.bse)
    if one_step.score_sd > 0.0 and one_step.clip.ratio > 0.0:
        doubts += far_records(rows, one_step, pull.one_sided_sds, unclipped, estimate.bse)
    notes = notes_of(rows, one_step, estimate, strength, pull.largest_shift, doubts, hidden)
    context = description.context(rows, *notes)
    scarce = [doubt.text for doubt in doubts if doubt.rank == "must-read"]
    context["settings"] |= {"scores": system.to_dict(), "scarce": scarce}
    freed = unit**2 * (rows.total / max(rows.total - rows.p, 1))
    rsquared, scale = measures.visible()
    context["settings"] |= {
        "measure_noise": {"scale_noise": measures.noise * freed, "rsquared_noise": measures.rsquared_noise}
    }
    return named_results(
        estimate,
        sampling_cov=cov - noise,
        system=system,
        identification=strength,
        rsquared=rsquared,
        scale=None if scale is None else scale * freed,
        **context,
    )


def singular(cov: Floats) -> str:
    """Return why a covariance of released coefficients is invalid; empty where it is valid."""
    return "" if is_positive_definite((cov + cov.T) / 2.0) else SINGULAR


def _nonconvergence(rows: GlmRows, step: OneStep, trajectory: Trajectory, covariance: Floats) -> str:
    """Return why the last step was too long for intervals; empty where it was not."""
    # The linear model's curvature changes as residuals enter the clip or leave it.
    unit = 1.0 if rows.family != "gaussian" or rows.residual_clip is None else rows.residual_clip
    start = error_of_start(trajectory, step.bread, step.meat, rows.total)
    convergence = judge_convergence(step.step, covariance, start, step.shift / unit)
    wider = WIDER_CLIP
    return (
        ""
        if convergence.converged
        else NOT_CONVERGED.format(convergence.length, wider * (rows.family != "binomial"))
    )


def weak_results(rows: GlmRows, description: FitDescription, reason: str, block: Block | None) -> GLMResults:
    """Return the results of a fit without a last step: where its rounds ended, with the reason."""
    names = rows.design.names
    context = description.context(rows)
    params = rows.to_user @ description.trajectory.params
    if block is not None:
        chosen = block.columns[: len(block.targets)]
        names = block.targets
        params = params[chosen]
        context["design"] = None
        context["settings"] |= response_settings(rows.design)
    estimate = Estimate(
        params=params, cov=None, names=names, nobs=rows.total, cov_type="none", weak_reason=reason
    )
    return named_results(estimate, **context)
