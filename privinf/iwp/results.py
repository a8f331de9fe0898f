"""Results of IWPGLM: the common facade on a nonlinear estimating function, and its diagnostics."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, cast

import numpy as np
import pandas as pd

from privinf.error_boundary import error_boundaries
from privinf.errors import ArgumentError, NotAvailableError
from privinf.inference.noisy_variance import is_hidden
from privinf.inference.score_sets import ScoreSet
from privinf.inference.score_test import ScoreTestResult
from privinf.iwp.data import count_dispersion, largest_dispersion
from privinf.iwp.equation import ExampleScores
from privinf.iwp.interval import score_interval
from privinf.iwp.noise import examples_noise_model
from privinf.iwp.root import Root, solve_root
from privinf.iwp.score_test import noise_inflation, restricted_score_test
from privinf.iwp.score_test import score_test as test_examples
from privinf.iwp.solving import ExampleSettings, example_system, sent_units, user_map
from privinf.progress import progress_bar, step
from privinf.releases import Release
from privinf.results import Results
from privinf.results.constraints import ConstraintLike, Constraints
from privinf.results.delegation import delegated
from privinf.results.fit_statistics import FitStatistics
from privinf.results.notes import Note
from privinf.results.prediction import (
    Prediction,
    Predictions,
    class_probabilities,
    mean_response,
    predicted,
    prediction_rows,
)
from privinf.results.rendering import PrivateSummary
from privinf.results.resampling import BootstrapResults, Resampling
from privinf.results.score_inference import ScoreTests
from privinf.results.wald import Inference
from privinf.schema import Design
from privinf.typing import (
    ArrayLike,
    BootstrapMethod,
    ColumnsLike,
    Floats,
    LossName,
    RngLike,
    SummaryNotes,
    Which,
)
from privinf.validation import check_array, check_choice, check_flag

# Scale on which coefficients are effects, by loss.
SCALES: Mapping[LossName, str] = {
    "squared": "mean",
    "quadratic": "mean of -1 and 1",
    "logistic": "log odds",
    "exponential": "half log odds",
    "multinomial": "log odds",
    "poisson": "log mean",
}
# Records times coefficients up to which a summary inverts the score test by default (about a second).
QUICK = 20_000

NO_INFLATION = (
    "The noise inflation is an exponential of the squared coefficients, and the coefficients of this weak "
    "fit are not reliable."
)
NO_SYSTEM = (
    "score tests and score intervals need the released rows, and this result was saved without them: compute "
    "them before you save a result, or save it with records=True"
)


@dataclass(frozen=True, eq=False)
class ExampleInference(Inference):
    """Inference from released examples: with their equation, and the map to scaled units."""

    @property
    def settings(self) -> ExampleSettings:
        """What the model needs to make its equation again."""
        return cast(ExampleSettings, self.context.settings)

    @property
    def coefficient_scale(self) -> str:
        """Scale on which coefficients are effects."""
        return SCALES[self.settings["loss"]]

    @property
    def release(self) -> Release:
        """The examples; NotAvailableError for a result that was stored without them."""
        if self.context.release is None:
            raise NotAvailableError(NO_SYSTEM)
        return self.context.release

    @property
    def system(self) -> ExampleScores:
        """The estimating equation; NotAvailableError for a result that was stored without the examples."""
        if self.context.system is None or self.context.release is None:
            raise NotAvailableError(NO_SYSTEM)
        return cast("ExampleScores", self.context.system)

    @cached_property
    def user_map(self) -> tuple[Floats, Floats]:
        """Matrix and shift that turn scaled parameters into the user's."""
        return blocked_map(self.release, self.settings["loss"], len(self.names))

    @cached_property
    def scaled_params(self) -> Floats:
        """The estimate in scaled units."""
        transform, shift = self.user_map
        return np.asarray(np.linalg.solve(transform, self.estimate.params - shift), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class ExampleScoreTests(ScoreTests):
    """Score tests on released examples, whose scores are not linear in the coefficients."""

    inference: ExampleInference

    @property
    def available(self) -> bool:
        """Whether the examples are there; with several classes, coefficients have no design."""
        return self.inference.context.system is not None and self.inference.context.release is not None

    def score_sets_are_quick(self, alpha: float) -> bool:
        """Return whether they are known, or the records few: a nonlinear score is minimized many times."""
        return alpha in self.known_sets or self.inference.nobs * len(self.inference.names) <= QUICK

    def score_test(self, beta0: ConstraintLike | None = None) -> ScoreTestResult:
        """Test slopes without assuming that the noise is weak.

        Parameters
        ----------
        beta0 : str, list of str, mapping, (R, q), or array, optional
            Restrictions in any form that `wald_test` reads, the other coefficients solved under the null; or
            an array of all private coefficients, in the units of the data, public columns concentrated out;
            multinomial: class by class. By default the hypothesis is that all slopes are zero.

        Returns
        -------
        object
            ``.statistic``, ``.pvalue`` and ``.df``.

        Raises
        ------
        NotAvailableError
            For corrections whose scores are biased at the truth (series, none), and for the exponential and
            Poisson losses where the noise leaves no usable central limit.
        ConvergenceError
            The coefficients that restrictions leave free have no root under the null.
        """
        return super().score_test(beta0)

    def restricted_test(self, restrictions: Constraints) -> ScoreTestResult:
        """Return the score test of ``R b = q`` in the units of the data."""
        inference = self.inference
        transform, shift = inference.user_map
        R = restrictions.R
        q = restrictions.q
        test = restricted_score_test(
            inference.system, R @ transform, q - R @ shift, near=inference.scaled_params
        )
        return replace(test, null=q)

    def slopes_test(self, beta0: ArrayLike | None) -> ScoreTestResult:
        """Return the score test of private coefficients (units of the data); None: every slope is zero."""
        system = self.inference.system
        design = self.inference.release.design
        classes = system.p // len(design.names)
        if beta0 is None:
            tested = np.tile(np.arange(len(design.names)) != _constant(design), classes)
            if not tested.any():
                raise NotAvailableError(
                    "score_test() has no slope to test, because the model has no column except the constant"
                )
            return test_examples(system, tested=tested)
        private = np.tile(design.private, classes)
        names = [name for name, noisy in zip(self.inference.names, private, strict=True) if noisy]
        if isinstance(beta0, pd.Series):
            if sorted(map(str, beta0.index)) != sorted(names):
                raise ArgumentError(
                    "beta0= must have one value for each private coefficient, labeled by the names of these "
                    f"coefficients: {', '.join(names)}"
                )
            beta0 = beta0[names]
        values = check_array(beta0, "beta0", ndim=1)
        if values.shape != (len(names),):
            raise ArgumentError(f"beta0 must hold {len(names)} values, one for each of: {', '.join(names)}")
        factors = np.diag(self.inference.user_map[0])[private]
        return replace(test_examples(system, values / factors, tested=private), null=values)

    def all_sets(self, alpha: float) -> tuple[ScoreSet, ...]:
        """Return the score sets of all parameters in the units of the data."""
        inference = self.inference
        system = inference.system
        design = inference.release.design
        transform, shift = inference.user_map
        centered = bool(sent_units(inference.release)[0].any())
        sets = []
        with progress_bar(None, "score intervals", total=system.p, unit="coefficient"):
            for column in range(system.p):
                step()
                column_system = system
                point = inference.scaled_params
                if centered and column % len(design.names) == _constant(design):
                    column_system, point = self._uncentered
                root = Root(params=point, converged=True, iterations=0, reason="", tried=0, start=point)
                interval = score_interval(column_system, root, column, alpha=alpha)
                sets.append(interval.mapped(float(transform[column, column]), float(shift[column])))
        return tuple(sets)

    @cached_property
    def _uncentered(self) -> tuple[ExampleScores, Floats]:
        """Return the system of columns whose centering is undone, and the estimate in its units.

        Their constant is a multiple of the user's; that of centered columns is not.
        """
        release = self.inference.release
        design = release.design
        shifts = np.diag(np.ones(len(design.names)))
        center, scale = sent_units(release)
        shifts[_constant(design)] -= center / scale
        uncentring = np.kron(np.eye(len(self.inference.names) // len(design.names)), shifts)
        system = example_system(release, self.inference.settings, centered=False)
        return system, np.asarray(uncentring @ self.inference.scaled_params, dtype=np.float64)


@dataclass(frozen=True, eq=False)
class ExampleResampling(Resampling):
    """Draws from the distribution of coefficients whose equation is not linear."""

    def bootstrap(
        self,
        draws: int = 999,
        method: BootstrapMethod | None = None,
        *,
        rng: RngLike = None,
        progress: bool | None = None,
    ) -> BootstrapResults:
        """Return the bootstrap distribution of the coefficients: "multiplier" or "parametric".

        Parameters
        ----------
        draws : int
            Number of replicates.
        method : {"multiplier", "parametric"}, optional
            Random signs on the records' influences; or draws from the normal distribution with the estimate's
            covariance. Default: "multiplier" if scores of records are available.
        rng : None, int or Generator
            Seed of the replicates.
        progress : bool, optional
            Whether to show a progress bar of the replicates; default: on a terminal only.

        Returns
        -------
        object
            ``.conf_int()``, ``.bse``, ``.draws`` and ``.summary_frame()``.

        Raises
        ------
        NotAvailableError
            For "pairs", which would solve a nonlinear equation for every draw.
        """
        if method == "pairs":
            raise NotAvailableError(
                "method='pairs' is not available, because it would solve the nonlinear model again for "
                "every draw: use method='multiplier'"
            )
        return super().bootstrap(draws, method, rng=rng, progress=progress)


@dataclass(frozen=True, eq=False)
class ExamplePredictions(Predictions):
    """Predictions on the scale of the mean: of numbers, counts, labels and classes."""

    inference: ExampleInference

    @property
    def loss(self) -> LossName:
        """Name of the loss that the fit minimizes."""
        return self.inference.settings["loss"]

    def rows(self, exog: ColumnsLike | None, transform: bool) -> tuple[Floats, pd.Index[Any]]:
        """Return the design matrix of new rows, and their labels; several classes share its columns."""
        design = self.inference.context.design or self.inference.release.design
        return prediction_rows(exog, design.names, design, transform=transform)

    def predict(self, exog: ColumnsLike | None = None, transform: bool = True, which: Which = "mean") -> Any:
        """Return predictions for new rows.

        Parameters
        ----------
        exog : table, mapping of columns or single values, Series of one row, or array
            New rows with the formula's columns, or the design matrix itself (by name where there are names).
        transform : bool
            False: `exog` is the design matrix although the model has a formula.
        which : {"mean", "linear"}
            The mean (for labels of levels: the probability of the second level; multinomial: a column for
            every level), or the linear predictor.

        Returns
        -------
        Series, or DataFrame with a column for every level
        """
        check_choice(which, Which, "which")
        rows, index = self.rows(exog, transform)
        params = self.inference.params.to_numpy()
        if self.loss == "multinomial":
            linear = rows @ params.reshape(-1, rows.shape[1]).T
            levels = list(examples_noise_model(self.inference.release)["label"]["levels"])
            if which == "linear":
                return pd.DataFrame(linear, index, levels[1:])
            return pd.DataFrame(class_probabilities(linear), index, levels)
        linear = rows @ params
        return pd.Series(mean_response(self.loss, linear) if which == "mean" else linear, index, name=which)

    def get_prediction(self, exog: ColumnsLike | None = None, transform: bool = True) -> Prediction:
        """Return predicted means with standard errors (delta method) and intervals (from the predictor's).

        There are intervals of new observations for the squared loss, where the residual variance is known.
        For counts they use the Poisson distribution, or a negative binomial one where `dispersion` plus two
        of its standard errors is above 1. Labels of two values have none.

        Parameters
        ----------
        exog : table, mapping of columns or single values, Series of one row, or array
            New rows with the formula's columns, or the design matrix itself (by name where there are names).
        transform : bool
            False: `exog` is the design matrix although the model has a formula.

        Returns
        -------
        object
            ``.predicted_mean``, ``.se_mean``, ``.conf_int()`` and ``.summary_frame()``.

        Raises
        ------
        NotAvailableError
            For the multinomial loss: use `delta_method`.
        """
        if self.loss == "multinomial":
            raise NotAvailableError(
                "get_prediction() is not available for a label of several levels: use delta_method() "
                "for their probabilities"
            )
        estimate = self.inference.estimate
        rows = self.rows(exog, transform)
        if self.loss != "poisson":
            prediction = predicted(estimate, rows, self.loss, scatter=self.statistics.scatter())
            return replace(prediction, quantity=self.quantity)
        try:
            ratio, se = self._count_dispersion
        except NotAvailableError as reason:
            return replace(
                predicted(estimate, rows, self.loss),
                observation=None,
                reason=f"they need the dispersion of the counts, and {reason}",
                quantity=self.quantity,
            )
        prediction = predicted(estimate, rows, self.loss, dispersion=max(largest_dispersion(ratio, se), 1.0))
        return replace(prediction, quantity=self.quantity)

    @property
    def dispersion(self) -> tuple[float, float]:
        """Mean of (y - mu)^2 over that of mu, and its standard error; see `IWPGLMResults.dispersion`."""
        ratio, se = self._count_dispersion
        if is_hidden(ratio, se):
            raise NotAvailableError(
                "dispersion is not available, because the noise hides the variance of the counts: its "
                "estimate is below two standard errors. It is at most "
                f"{largest_dispersion(ratio, se):.3g} times that of a Poisson model"
            )
        return ratio, se

    @cached_property
    def _count_dispersion(self) -> tuple[float, float]:
        """The ratio, which noise may make negative, and its standard error."""
        system = self.inference.system
        if self.loss != "poisson" or system.correction != "exact":
            raise NotAvailableError("dispersion is available only for loss='poisson' with correction='exact'")
        ratio_and_se = count_dispersion(system.data, self.inference.scaled_params)
        if not math.isfinite(ratio_and_se[1]):
            raise NotAvailableError(
                "dispersion is not available, because the noise hides the variance of the counts"
            )
        return ratio_and_se


@error_boundaries
class IWPGLMResults(Results):
    """Results of an `IWPGLM` fit.

    Adds to `Results`: `naive` (the estimate that ignores the noise), `variance_inflation`, `dispersion`
    of counts, and predictions on the scale of the mean. Score tests solve the noise-free coefficients under
    the null.
    """

    @cached_property
    def _inference(self) -> ExampleInference:
        return ExampleInference(self._estimate, self._context)

    @cached_property
    def _fit_statistics(self) -> FitStatistics:
        return FitStatistics(
            self._inference,
            None
            if self.loss == "squared"
            else f"this statistic is defined only for loss='squared', not for loss={self.loss!r}",
        )

    @cached_property
    def _score_tests(self) -> ExampleScoreTests:
        return ExampleScoreTests(self._inference)

    @cached_property
    def _resampling(self) -> ExampleResampling:
        return ExampleResampling(self._inference)

    @cached_property
    def _predictions(self) -> ExamplePredictions:
        return ExamplePredictions(self._inference, self._fit_statistics)

    score_test = delegated("_score_tests", ExampleScoreTests.score_test)
    bootstrap = delegated("_resampling", ExampleResampling.bootstrap)
    predict = delegated("_predictions", ExamplePredictions.predict)
    get_prediction = delegated("_predictions", ExamplePredictions.get_prediction)

    @property
    def loss(self) -> LossName:
        """Name of the loss that the fit minimizes."""
        return cast(ExampleSettings, self._context.settings)["loss"]

    def _check_settings(self) -> None:
        check_choice(self.loss, LossName, "loss")

    # It solves the equation again.
    _probes: ClassVar[Mapping[str, str]] = {"naive": "_released_examples"}

    @property
    def _released_examples(self) -> Release:
        return self._inference.release

    def _refused_methods(self) -> frozenset[str]:
        refused = super()._refused_methods()
        return refused | {"get_prediction"} if self.loss == "multinomial" else refused

    @cached_property
    def naive(self) -> pd.Series[float]:
        """Coefficients of the fit that ignores the noise (units of the data): biased, for comparison only."""
        inference = self._inference
        settings: ExampleSettings = {**inference.settings, "correction": "none", "truncation": None}
        root = solve_root(example_system(inference.release, settings))
        transform, shift = inference.user_map
        return inference.labelled(transform @ root.params + shift, "naive")

    @property
    def variance_inflation(self) -> float:
        """Relative variance that the noise adds to corrected exponentials, exp(theta'S theta) - 1.

        It is 0 for losses other than the exponential and the Poisson loss.

        Raises
        ------
        NotAvailableError
            The fit is weak, so its coefficients have no standard errors.
        """
        system = self._inference.system
        if self.loss not in {"exponential", "poisson"} or system.correction != "exact":
            return 0.0
        strength = self._inference.context.identification
        if self._estimate.cov is None or (strength is not None and strength.weak):
            raise NotAvailableError(f"variance_inflation is not available. {NO_INFLATION}")
        return noise_inflation(system, self._inference.scaled_params)

    @property
    def dispersion(self) -> tuple[float, float]:
        """Dispersion of counts with its standard error: mean (y - mu)^2 over mean mu, 1 for Poisson counts.

        From the released examples (`privinf.iwp.data.count_dispersion`): the noise makes its error large.
        NotAvailableError where it is below two standard errors, for other losses, for correction="none", and
        without the examples.
        """
        return self._predictions.dispersion

    def summary(
        self,
        yname: str | None = None,
        xname: Sequence[str] | None = None,
        title: str | None = None,
        alpha: float = 0.05,
        slim: bool = False,
        notes: SummaryNotes = "main",
        *,
        naive: bool = False,
    ) -> PrivateSummary:
        """Return the summary; ``as_text``, ``as_html``, ``as_latex`` and ``as_csv`` render it.

        Parameters
        ----------
        yname : str, optional
            Name of the response.
        xname : sequence of str, optional
            Names of all coefficients.
        title : str, optional
            Title of the table.
        alpha : float
            One minus the confidence level of the intervals.
        slim : bool
            Whether to leave out tests and explanations; warnings and the budget spent stay.
        notes : {"main", "all"}
            "main" prints warnings and explanations of the table, "all" every note, the assumptions of the
            privacy guarantee among them. ``result.notes``, `report` and `to_dict` always have all notes.
        naive : bool
            Whether to add the coefficients that ignore the noise.

        Returns
        -------
        Summary of statsmodels
            Summary, which prints as text. Its methods ``as_text``, ``as_html``, ``as_latex`` and ``as_csv``
            return other formats.
        """
        summary = super().summary(yname, xname, title, alpha, slim, notes)
        if not check_flag(naive, "naive"):
            return summary
        values = ", ".join(f"{name} {value:.4g}" for name, value in self.naive.items())
        note = Note(f"Without the correction for the noise the coefficients would be: {values}.", "must-read")
        return summary.with_note(note)


def blocked_map(release: Release, loss: LossName, parameters: int) -> tuple[Floats, Floats]:
    """Return T and shift of all parameters: one block for every class."""
    transform, shift = user_map(release, loss)
    classes = parameters // len(shift)
    blocks = np.kron(np.eye(classes), transform)
    return np.asarray(blocks, dtype=np.float64), np.tile(shift, classes)


def _constant(design: Design) -> int:
    return -1 if design.constant is None else design.constant
