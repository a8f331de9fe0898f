"""Results of the debiased lasso: the common facade on the targets, with the sparse fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import numpy as np
import pandas as pd

from privinf.error_boundary import error_boundaries
from privinf.errors import (
    ArgumentError,
    ChangedTargetWarning,
    HeavyTailWarning,
    NotAvailableError,
    WeakIdentificationWarning,
)
from privinf.inference.estimate import upper_quantile
from privinf.inference.tails import HEAVY, HEAVY_TAIL
from privinf.lasso.diagnostics import EXPLAINED_NOTE, MissedColumnTest, ScoreTail
from privinf.lasso.results.joint import JointResults
from privinf.lasso.results.sparse import LassoSettings, SparseSettings
from privinf.lasso.rows import LassoFamily
from privinf.results.export import caution_kind
from privinf.results.fit_statistics import FitStatistics
from privinf.results.fitted import ModelLabels
from privinf.results.notes import IF_OUTSIDE, Note, sentence
from privinf.results.rendering import SummaryColumn
from privinf.results.summary import number
from privinf.results.wald import Inference
from privinf.typing import ScoreTarget
from privinf.validation import check_array, check_choice, check_fraction

DIVERGED_NOTE = (
    "The intervals are not reliable, because the sparse fit did not converge (large residuals or a large "
    "last step); keep fewer columns, increase the budget, or move budget to the refit with shares=."
)
TWO_VALUED = "the response has two values: {}"
TWO_ROBUST = (
    "with clipped errors the coefficients are neither those of the linear probability model (target='mean') "
    "nor those of a logit (family='binomial')"
)
OUTSIDE = (
    "{} lie outside their bounds and were clipped to them, so coefficients describe the clipped columns: "
    f"{IF_OUTSIDE}"
)
HIDDEN_TARGETS = (
    "no interval for {}, because the noise is too large to estimate the slope or the variance of the "
    "target's score; in a new fit, pass fewer targets, a larger budget, or other shares="
)
NONE_SELECTED = (
    "no column stands out from the noise, so none was selected and the budget for "
    "intervals was not spent: pass a list of columns as targets=, or increase the budget"
)
# Names of targets that a sentence lists.
MOST_NAMES = 10
NO_SQUARES = "this model releases no squared residuals, only their typical size, `residual_scale`"
BIAS_NOTE = (
    "The estimates have an error of second order: the noise in the coefficients times the noise in the "
    "nodewise regressions. Intervals include its variance. (bias bound) is its worst-case bound, "
    "and conf_int(bias_bound=True) widens the intervals by this bound instead."
)


def hidden_targets_text(settings: LassoSettings) -> str:
    """Return the warning of targets without an interval; empty if all have one."""
    hidden = settings.get("hidden", [])
    return HIDDEN_TARGETS.format(listed(hidden)) if hidden else ""


def listed(names: Sequence[str]) -> str:
    """Return names for a sentence, the first of many."""
    omitted = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + f" and {omitted} more" * (omitted > 0)


def hidden_notes(settings: LassoSettings) -> tuple[Note, ...]:
    """Return the note of targets without an interval."""
    text = hidden_targets_text(settings)
    kind = caution_kind(WeakIdentificationWarning)
    return (Note(sentence(text), "must-read", kind, tuple(settings["hidden"])),) if text else ()


def changed_target(settings: LassoSettings) -> list[str]:
    """Return the reasons why the coefficients have another target than the stated one."""
    texts = []
    if settings.get("two_valued", False) and settings.get("target", "robust") == "robust":
        texts.append(TWO_VALUED.format(TWO_ROBUST))
    if outside := settings.get("outside", {}):
        shares = ", ".join(f"{share:.0%} of {name}" for name, share in outside.items())
        texts.append(OUTSIDE.format(shares))
    return texts


@dataclass(frozen=True, eq=False)
class TargetInference(Inference):
    """Inference about the debiased targets, with the effects of tails, omitted columns and noise."""

    @property
    def settings(self) -> LassoSettings:
        """What the fit kept."""
        return cast(LassoSettings, self.context.settings)

    @property
    def coefficient_scale(self) -> str:
        """Scale on which coefficients are effects."""
        return "log odds" if self.settings.get("family") == "binomial" else "mean"

    @property
    def score_tail(self) -> ScoreTail:
        """Tail of the scores beyond their clip, by noisy counts; see `LassoResults.score_tail`."""
        if "tail" not in self.settings:
            raise NotAvailableError(
                "score_tail is not available, because this fit did not count large scores: fit a debiased "
                "linear model with target='mean'"
            )
        return ScoreTail(*self.settings["tail"])

    @property
    def missed_column_test(self) -> MissedColumnTest:
        """Test that no column outside the fit has an effect; see `LassoResults.missed_column_test`."""
        if "missed" not in self.settings:
            raise NotAvailableError(
                "missed_column_test is not available, because the fit did not make this test: either it "
                "contains all columns, or its coefficients differ between sites"
            )
        return MissedColumnTest.from_dict(self.settings["missed"])

    @property
    def other_warnings(self) -> list[tuple[type[Warning], str]]:
        """Warnings about intervals and tests: categories and texts."""
        settings = self.settings
        warnings: list[tuple[type[Warning], str]] = []
        if "tail" in settings and (ratio := self.score_tail.ratio) > HEAVY:
            warnings.append((HeavyTailWarning, HEAVY_TAIL.format(ratio)))
        if "missed" in settings and (missed := self.missed_column_test).doubtful:
            warnings.append((WeakIdentificationWarning, missed.note))
        warnings += [(ChangedTargetWarning, text) for text in changed_target(settings)]
        texts = [
            DIVERGED_NOTE if settings.get("astray", False) else None,
            settings.get("doubt"),
            hidden_targets_text(settings) if self.estimate.cov is not None else None,
            settings.get("sight", {}).get("missed"),
            settings.get("marks", {}).get("warning"),
        ]
        return warnings + [(WeakIdentificationWarning, text) for text in texts if text]


@error_boundaries
class LassoResults(JointResults):
    """Results of `DebiasedLasso`.

    ``params``, ``bse``, intervals and tests are those of the debiased targets; `sparse_params` is the fit
    before debiasing, of all columns. ``bse_sampling`` is the error without privacy noise but with the same
    clips. Score tests need per-record scores, which are not released: they are not available.
    `predict` and `get_prediction` need a debiased coefficient of every column and of the constant, and the
    target must be the mean; otherwise they raise an error. `predict_sparse` predicts from the sparse fit,
    without intervals.
    `restricted_eigenvalues`, `noise_variance`, `bias_bound` and the private bootstrap are available if they
    were requested in `fit`.

    Notes
    -----
    **Privacy.** Costs nothing: it uses only released numbers.

    Intervals of predicted means use the debiased coefficients. Their coverage was measured on 300 new rows
    with n = 20,000, p = 12 (no constant), epsilon 2 and 20 fits per design. It was 0.94 under normal errors,
    0.96 under errors times abs(x_7), and 0.99 under skewed errors whose size depends on a column. Intervals
    from the covariance of the sparse fit are not offered. They are valid where every signal is strong and
    errors are normal (0.97 with n = 20,000, p = 200 and epsilon 2). Elsewhere they covered too little without
    a warning: 0.57 for eight effects of 0.05 (p = 200), 0.84 under blocks of correlation 0.9, 0.26 under
    effects j^-1.5, and 0.21 under these skewed errors (n = 40,000, epsilon 1, 12 fits each).

    Intervals of targets that were selected on the same rows (``targets="selected"``) are not corrected for
    the selection. Their coverage was measured with n = 10,000, p = 100 (AR 0.5), 2 strong and 4 weak signals
    (3 standard errors each), 8 selected columns and 200 fits, at epsilon 0.8, 2, 8 and infinity. At epsilon
    0.8 a fifth of the fits gave no estimate. For selected columns without signal the coverage was 0.97, 0.90,
    0.72 and 0.64. For the weak signals it was 0.98, 0.94, 0.97 and 0.97, with estimates 13%, 12%, 6% and 5%
    too large. For the strong ones it was 0.98, 0.96, 0.96 and 0.95. For columns named in advance it was 0.94
    to 0.98 throughout.
    """

    def _refused_methods(self) -> frozenset[str]:
        refused = super()._refused_methods()
        return refused if "marks" in self._settings else refused | {"explained_shares"}

    @property
    def model(self) -> ModelLabels:
        """Names of model, response and targets."""
        return replace(super().model, endog_names=self._settings["response"])

    def explained_shares(self, alpha: float = 0.05) -> pd.DataFrame:
        """Return the share of each target that the other columns of its nodewise regression explain.

        Columns ``neighbours`` (number selected for the target, in addition to the columns of the fit),
        ``explained`` with ``lower`` and ``upper`` end of an interval of level ``1 - alpha`` for its noise,
        and ``last_quarter``, the share that the smallest quarter of the neighbors adds: see
        `privinf.lasso.nodewise`.

        Parameters
        ----------
        alpha : float
            One minus the confidence level of the intervals.

        Returns
        -------
        DataFrame
            One row per target.

        Raises
        ------
        NotAvailableError
            No share was released, because all columns are targets or coefficients differ between sites.
        """
        marks = self._settings.get("marks")
        if marks is None:
            raise NotAvailableError(
                "explained_shares() is not available, because this fit has no nodewise regressions (of each "
                "target on the other columns): pass a list as targets=, with family='gaussian' and "
                "heterogeneous=False"
            )
        return explained_table(marks, self.names, check_fraction(alpha, "alpha"))

    @property
    def hidden_targets(self) -> tuple[str, ...]:
        """Targets without an interval, because the noise hides the slopes of their scores.

        Which targets these are follows from released slopes alone, not from their coefficients.
        If all targets are hidden, ``params`` are the coefficients of the sparse fit, and methods that need a
        standard error raise NotAvailableError with the reason.
        """
        return tuple(self._settings.get("hidden", ()))

    @property
    def missed_column_test(self) -> MissedColumnTest:
        """Test that no column outside the fit has an effect, with the bias of undetectable effects.

        Significant columns join the fit. If more are likely, intervals come with a warning. See
        `privinf.lasso.omitted`.

        Raises
        ------
        NotAvailableError
            Every column is in the fit, or coefficients differ between sites.
        """
        return self._inference.missed_column_test

    def _summary_columns(self) -> tuple[SummaryColumn, ...]:
        """Return the shares of the targets that are explained, and the bias bound, where there are any."""
        columns: tuple[SummaryColumn, ...] = ()
        if "marks" in self._settings:
            shares = [f"{share:.2f}" for share in self.explained_shares().explained]
            columns += (SummaryColumn(name="(R2 of x)", cells=shares, place=3, note=EXPLAINED_NOTE),)
        extras = self._settings.get("extras", {})
        return (*columns, bias_column(extras["bias_bound"])) if "bias_bound" in extras else columns

    @cached_property
    def _inference(self) -> TargetInference:
        return TargetInference(self._estimate, self._context)

    @cached_property
    def _fit_statistics(self) -> FitStatistics:
        return FitStatistics(self._inference, NO_SQUARES)

    @property
    def score_tail(self) -> ScoreTail:
        """Tail of the scores beyond their clip, by noisy counts; NotAvailableError without counts."""
        return self._inference.score_tail

    @property
    def _settings(self) -> LassoSettings:
        return self._inference.settings

    def _check_settings(self) -> None:
        settings = self._settings
        if not SparseSettings.__required_keys__ <= settings["sparse"].keys():
            raise ArgumentError("the sparse fit of a result must have a constant and an intercept")
        texts = [settings["response"], settings.get("sight", {}).get("missed") or "", *self.selected]
        texts += [settings.get("marks", {}).get("warning", ""), settings.get("doubt", "")]
        texts += settings.get("hidden", [])
        if not all(isinstance(text, str) for text in texts):
            raise ArgumentError("names and warnings of a result must be strings")
        for name in ("draws", "widths"):
            check_array(settings.get("multipliers", {name: []})[name], name, ndim=1)
        check_choice(settings.get("target", "mean"), ScoreTarget, "target")
        check_choice(self.family, LassoFamily, "family")
        changed_target(settings)
        for component, name in ((self, "sparse_params"), (self._predictions, "design")):
            getattr(component, name)
        with suppress(NotAvailableError):
            self.explained_shares()
        for name in (
            "residual_scale",
            "missed_column_test",
            "score_tail",
            "picks_from",
            "restricted_eigenvalues",
            "noise_variance",
            "bias_bound",
        ):
            with suppress(NotAvailableError):
                getattr(self, name)


def bias_column(bound: Sequence[float]) -> SummaryColumn:
    """Return the bias bound as a column of a summary, before the z statistics."""
    return SummaryColumn(
        name="(bias bound)", cells=[number(value) for value in bound], place=3, note=BIAS_NOTE
    )


def explained_table(settings: Mapping[str, Any], names: Sequence[str], alpha: float) -> pd.DataFrame:
    """Return the shares with intervals of level ``1 - alpha``, a row for each target."""
    share, sd = (np.array(settings[name], dtype=np.float64) for name in ("explained", "explained_sd"))
    half_width = upper_quantile(alpha / 2.0) * sd
    table = {
        "neighbours": np.array(settings["neighbours"], dtype=np.int64),
        "explained": np.clip(share, 0.0, 1.0),
        "lower": np.clip(share - half_width, 0.0, 1.0),
        "upper": np.clip(share + half_width, 0.0, 1.0),
        "last_quarter": np.array(settings["last"], dtype=np.float64),
    }
    return pd.DataFrame(table, list(names))
