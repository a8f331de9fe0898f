"""Results of IWPGLM: the common facade on a nonlinear estimating function, and its diagnostics."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar, Unpack, cast

import numpy as np
import pandas as pd
from tqdm import tqdm

from privinf.error_boundary import doors
from privinf.errors import ArgumentError, NotAvailableError
from privinf.inference.score_sets import ScoreSet
from privinf.inference.score_test import ScoreTestResult
from privinf.iwp.data import count_dispersion
from privinf.iwp.equation import ExampleScores
from privinf.iwp.interval import score_interval
from privinf.iwp.noise import examples_law
from privinf.iwp.root import Root, solve_root
from privinf.iwp.score_test import noise_inflation
from privinf.iwp.score_test import restricted_score_test as test_restrictions
from privinf.iwp.score_test import score_test as test_examples
from privinf.iwp.solving import ExampleSettings, example_system, sent_units, user_map
from privinf.releases import Release
from privinf.results import Results
from privinf.results.availability import NEED_EQUATION
from privinf.results.constraints import ConstraintLike, Constraints
from privinf.results.notes import Note
from privinf.results.prediction import (
    Prediction,
    class_probabilities,
    mean_response,
    predicted,
    prediction_rows,
)
from privinf.results.rendering import PrivateSummary
from privinf.results.resampling import BootstrapResults
from privinf.results.summary import SummaryWords
from privinf.schema import Design
from privinf.typing import ArrayLike, BootstrapMethod, ColumnsLike, Floats, LossName, Names, RngLike, Which
from privinf.validation import check_array, check_choice, check_flag, check_words

# Records times coefficients up to which a summary inverts the score test unasked (about a second).
QUICK = 20_000

NO_SYSTEM = (
    "score tests and score intervals rest on the released examples, and this result was stored without them"
)


@doors
class IWPGLMResults(Results):
    """Results of an `IWPGLM` fit.

    Adds to `Results`: `naive` (what ignoring the noise would have given), `variance_inflation`, `dispersion`
    of counts, and predictions on the scale of the mean. Score tests solve the noise-free coefficients under
    the null.
    """

    @property
    def loss(self) -> LossName:
        """The loss."""
        return self._settings["loss"]

    @property
    def _settings(self) -> ExampleSettings:
        return cast(ExampleSettings, self._context.settings)

    def _check_settings(self) -> None:
        check_choice(self.loss, LossName, "loss")

    # It solves the equation again.
    _probes: ClassVar[Mapping[str, str]] = {"naive": "_kept_release"}

    def _refused_methods(self) -> frozenset[str]:
        refused = super()._refused_methods()
        if self._context.system is not None and self._context.release is not None:
            refused -= NEED_EQUATION  # several classes have no design of the coefficients
        else:
            refused |= NEED_EQUATION
        return refused | {"get_prediction"} if self.loss == "multinomial" else refused

    @property
    def _no_moments(self) -> str | None:
        return None if self.loss == "squared" else f"not defined for loss={self.loss!r}"

    def score_test(self, beta0: ConstraintLike | None = None) -> ScoreTestResult:
        """Test slopes without assuming that the noise is weak.

        Parameters
        ----------
        beta0 : str, list of str, mapping, (R, q), or array, optional
            Restrictions as for `wald_test`, the other coefficients solved under the null; or an array of all
            private coefficients, user units, public columns concentrated out; multinomial: class by class.
            Default: every slope but the constant is zero.

        Raises
        ------
        NotAvailableError
            For corrections whose scores are biased at the truth (series, none), and for the exponential and
            Poisson losses where the noise leaves no usable central limit.
        ConvergenceError
            The coefficients that restrictions leave free have no root under the null.
        """
        return super().score_test(beta0)

    def _restricted_test(self, restrictions: Constraints) -> ScoreTestResult:
        system, _ = self._scored
        transform, shift = self._map
        R = restrictions.R
        q = restrictions.q
        test = test_restrictions(system, R @ transform, q - R @ shift, near=self._scaled_params)
        return replace(test, null=q)

    def _slopes_test(self, beta0: ArrayLike | None) -> ScoreTestResult:
        system, design = self._scored
        classes = system.p // len(design.names)
        if beta0 is None:
            tested = np.tile(np.arange(len(design.names)) != _constant(design), classes)
            if not tested.any():
                raise NotAvailableError("score_test: the model has no column beside the constant")
            return test_examples(system, tested=tested)
        names = [name for name, noisy in zip(self.names, self._private, strict=True) if noisy]
        if isinstance(beta0, pd.Series):
            if sorted(map(str, beta0.index)) != sorted(names):
                raise ArgumentError(f"beta0 must be labelled by the private coefficients: {', '.join(names)}")
            beta0 = beta0[names]
        values = check_array(beta0, "beta0", ndim=1)
        if values.shape != (len(names),):
            raise ArgumentError(f"beta0 must hold {len(names)} values: {', '.join(names)}")
        factors = np.diag(self._map[0])[self._private]
        test = test_examples(system, values / factors, tested=self._private)
        return replace(test, null=values)

    def bootstrap(
        self, draws: int = 999, method: BootstrapMethod | None = None, *, rng: RngLike = None
    ) -> BootstrapResults:
        """Return the bootstrap distribution of the coefficients: "multiplier" or "parametric".

        Default: the first where records' scores are there.

        Raises
        ------
        NotAvailableError
            For "pairs", which would solve a nonlinear equation for every draw.
        """
        if method == "pairs":
            raise NotAvailableError(
                "the pairs bootstrap of a nonlinear model solves it anew for every draw: use 'multiplier'"
            )
        return super().bootstrap(draws, method, rng=rng)

    @cached_property
    def naive(self) -> pd.Series[float]:
        """Coefficients that ignoring the noise would have given, user units: biased, for comparison only."""
        release = self._kept_release
        settings: ExampleSettings = {**self._settings, "correction": "none", "truncation": None}
        root = solve_root(example_system(release, settings))
        transform, shift = self._map
        return self._inference.labelled(transform @ root.params + shift, "naive")

    @property
    def variance_inflation(self) -> float:
        """exp(theta'S theta) - 1, the relative variance that the noise gives corrected exponentials.

        Losses other than the exponential and the Poisson loss have no such factor: 0.
        """
        system, _ = self._scored
        if self.loss not in {"exponential", "poisson"} or system.correction != "exact":
            return 0.0
        return noise_inflation(system, self._scaled_params)

    def summary(  # type: ignore[override]
        self,
        yname: str | None = None,
        xname: Names | None = None,
        *,
        naive: bool = False,
        **words: Unpack[SummaryWords],
    ) -> PrivateSummary:
        """Return the summary.

        Parameters
        ----------
        yname, xname, title, alpha, slim, notes
            As for `Results.summary`.
        naive : bool
            Add what ignoring the noise would have given.
        """
        check_words(words, SummaryWords.__annotations__)
        summary = super().summary(yname, xname, **words)
        if not check_flag(naive, "naive"):
            return summary
        values = ", ".join(f"{name} {value:.4g}" for name, value in self.naive.items())
        note = Note(f"Ignoring the noise would have given: {values}.", "must-read")
        return summary.with_note(note)

    def predict(self, exog: ColumnsLike | None = None, transform: bool = True, which: Which = "mean") -> Any:
        """Return predictions for new rows.

        Parameters
        ----------
        exog : table, mapping of columns or single values, Series of one row, or array
        transform : bool
            False: `exog` is the design matrix although the model has a formula.
        which : {"mean", "linear"}
            The mean (for labels of levels: the probability of the second level; multinomial: a column for
            every level), or the linear predictor.
        """
        check_choice(which, Which, "which")
        rows, index = self._rows(exog, transform)
        if self.loss == "multinomial":
            linear = rows @ self.params.to_numpy().reshape(-1, rows.shape[1]).T
            levels = list(examples_law(self._kept_release)["label"]["levels"])
            if which == "linear":
                return pd.DataFrame(linear, index, levels[1:])
            return pd.DataFrame(class_probabilities(linear), index, levels)
        predicted = rows @ self.params.to_numpy()
        if which == "mean":
            predicted = mean_response(self.loss, predicted)
        return pd.Series(predicted, index, name=which)

    def get_prediction(self, exog: ColumnsLike | None = None, transform: bool = True) -> Prediction:
        """Return predicted means with standard errors (delta method) and intervals (from the predictor's).

        Of new observations too: for the squared loss where the residual variance is known; for counts by the
        Poisson law, or a negative binomial one where `dispersion` and two of its standard errors are above
        1. Of labels of two values there are none.

        Raises
        ------
        NotAvailableError
            For the multinomial loss: use `delta_method`.
        """
        if self.loss == "multinomial":
            raise NotAvailableError("get_prediction: probabilities of several levels, use delta_method()")
        rows = self._rows(exog, transform)
        if self.loss != "poisson":
            return predicted(self._estimate, rows, self.loss, scatter=self._fit_statistics.scatter())
        try:
            ratio, se = self.dispersion
        except NotAvailableError as reason:
            prediction = predicted(self._estimate, rows, self.loss)
            return replace(prediction, observation=None, reason=str(reason))
        return predicted(self._estimate, rows, self.loss, dispersion=max(ratio + 2.0 * se, 1.0))

    @cached_property
    def dispersion(self) -> tuple[float, float]:
        """Mean of (y - mu)^2 over that of mu, 1 for Poisson counts, and its standard error.

        From the released examples (`privinf.iwp.data.count_dispersion`): the noise makes its error large.
        NotAvailableError for other losses, for correction="none", and without the examples.
        """
        system, _ = self._scored
        if self.loss != "poisson" or system.correction != "exact":
            raise NotAvailableError("dispersion: of counts, corrected for the noise (loss='poisson')")
        ratio_and_se = count_dispersion(system.data, self._scaled_params)
        if not math.isfinite(ratio_and_se[1]):
            raise NotAvailableError("dispersion: the noise of these examples hides how counts scatter")
        return ratio_and_se

    def _rows(self, exog: Any, transform: bool) -> tuple[Floats, pd.Index[Any]]:
        design = self._context.design or self._kept_release.design
        return prediction_rows(exog, design.names, design, transform=transform)

    def score_sets_are_quick(self, alpha: float) -> bool:
        """Return whether they are known, or the records few: a nonlinear score is minimised many times."""
        return alpha in self.__dict__.get("_known_score_sets", {}) or self.nobs * len(self.names) <= QUICK

    def _all_score_sets(self, alpha: float) -> tuple[ScoreSet, ...]:
        system, design = self._scored
        transform, shift = self._map
        centred = bool(sent_units(self._kept_release)[0].any())
        sets = []
        for column in tqdm(range(system.p), desc="score intervals", disable=None):
            column_system = system
            point = self._scaled_params
            if centred and column % len(design.names) == _constant(design):
                column_system, point = self._uncentred
            root = Root(params=point, converged=True, iterations=0, reason="", tried=0, start=point)
            interval = score_interval(column_system, root, column, alpha=alpha)
            sets.append(interval.mapped(float(transform[column, column]), float(shift[column])))
        return tuple(sets)

    @cached_property
    def _uncentred(self) -> tuple[ExampleScores, Floats]:
        """Return the system of columns whose centring is undone, and the estimate in its units.

        Their constant is a multiple of the user's; that of centred columns is not.
        """
        release = self._kept_release
        design = release.design
        shifts = np.diag(np.ones(len(design.names)))
        center, scale = sent_units(release)
        shifts[_constant(design)] -= center / scale
        moved = np.kron(np.eye(len(self.names) // len(design.names)), shifts)
        system = example_system(release, self._settings, centred=False)
        return system, np.asarray(moved @ self._scaled_params, dtype=np.float64)

    @property
    def _scored(self) -> tuple[ExampleScores, Design]:
        system = self._context.system
        release = self._context.release
        if system is None or release is None:
            raise NotAvailableError(NO_SYSTEM)
        return cast("ExampleScores", system), release.design

    @property
    def _kept_release(self) -> Release:
        if self._context.release is None:
            raise NotAvailableError(NO_SYSTEM)
        return self._context.release

    @cached_property
    def _map(self) -> tuple[Floats, Floats]:
        return blocked_map(self._kept_release, self.loss, len(self.names))

    @cached_property
    def _private(self) -> Any:
        design = self._kept_release.design
        return np.tile(design.private, len(self.names) // len(design.names))

    @cached_property
    def _scaled_params(self) -> Floats:
        transform, shift = self._map
        return np.asarray(np.linalg.solve(transform, self._estimate.params - shift), dtype=np.float64)


def blocked_map(release: Release, loss: LossName, parameters: int) -> tuple[Floats, Floats]:
    """Return T and shift of all parameters: one block for every class."""
    transform, shift = user_map(release, loss)
    classes = parameters // len(shift)
    blocks = np.kron(np.eye(classes), transform)
    return np.asarray(blocks, dtype=np.float64), np.tile(shift, classes)


def _constant(design: Design) -> int:
    return -1 if design.constant is None else design.constant
