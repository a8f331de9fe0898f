"""Results of proportional-hazards fits: hazard ratios, the follow-up that they are for, notes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from privinf.error_boundary import error_boundaries
from privinf.errors import ArgumentError, NotAvailableError
from privinf.errors import WeakIdentificationWarning as Weak
from privinf.glm.advice import (
    DRAWN_NOTE,
    LAST_STEP,
    POSTERIOR_NOTE,
    declared_two_valued,
    listed,
    step_text,
)
from privinf.glm.curved import OneStepRelease
from privinf.glm.hazards.baseline import STEEP
from privinf.glm.hazards.path import HazardFit
from privinf.glm.hazards.score_equation import hazard_system
from privinf.glm.hazards.target_test import (
    LITTLE_POWER,
    RoundRelease,
    TargetTestResult,
    shown_noncentrality,
    target_test,
)
from privinf.glm.posterior_draws import (
    DRAWN_EQUATION,
    LARGEST_PRIOR_INFLUENCE,
    POSTERIOR_EQUATION,
    PRIOR_SLOPE,
    PosteriorDraws,
    drawn,
    drawn_terms,
    noise_of_draws,
    prior_influence,
    recorded,
)
from privinf.glm.results import FitDescription, GLMInference, singular
from privinf.glm.rows import GlmRows
from privinf.glm.running import NO_CURVATURE
from privinf.inference.estimate import Estimate, VarianceTerms
from privinf.results import Results
from privinf.results.context import Context
from privinf.results.fit_statistics import FitStatistics
from privinf.results.notes import Note, all_events_notes, must_read, sentence
from privinf.results.paper_table import ratios
from privinf.results.prediction import Predictions
from privinf.results.rendering import SummaryColumn, UnavailableOfHazards
from privinf.typing import Floats
from privinf.validation import check_number

NO_SQUARES = "a proportional-hazards fit has no residual variance and no R-squared"
NO_PREDICTIONS = (
    "predictions of survival times and curves are not available, because their intervals are not validated: "
    "use hazard_ratios()"
)
NOT_CONVERGED = (
    "the fit did not converge: the last step moved linear predictors by {:.1f} (root mean square), or {:.1f} "
    "standard errors. The budget is small for {} coefficients and {} records; use more records, a larger "
    "budget, fewer columns or tighter bounds"
)
RATIO_NOTE = "HR is the hazard ratio, exp(coef), per unit of the column."
# Share of events after the stop above which a warning comes. At half of it, effects that vanish after a fifth
# of the follow-up moved coefficients by one standard error.
LATER = 0.06
# Standard deviations of a column between its mean and its farther bound from which on outlying records may
# move its coefficient, and standard errors by which weights of records at this distance may move it if their
# hazard is wrong by a factor. Both are chosen on tables, see benchmarks/results/hazard_tables.md.
FAR_COLUMN = 4.5
FAR_OUT = 10.0
# Move of linear predictors in the last step (root mean square) above which a warning comes. Tests and
# intervals of simulated fits with such a step missed in 14% to 17% (benchmarks/results/hazard_scores.md), and
# score tests in 12% of 299 fits of another law, with a rare binary column, 1,500 rows and epsilon 0.7. On 20
# tables and laws, 3 of 623 converged fits had one.
LONG_MOVE = 0.8
LONG_STEP = (
    "the last step moved linear predictors by {:.1f} (root mean square), which is long: intervals and score "
    "tests of such fits can miss two to three times as often as stated; use more records, a larger budget, "
    "fewer columns or tighter bounds"
)
STEEP_HAZARD = (
    "about {:.0%} of the events come in the first eighth of the follow-up, for which the grid and its noise "
    "are coarse, so coefficients can differ from those of Cox's regression; pass an earlier horizon="
)
CUT_FOLLOW_UP = (
    "records are followed up to a cumulated hazard of {:g}, and about {:.0%} of the events come later "
    "(standard error of the noise {:.1%}); if hazards are not proportional or effects not linear, "
    "coefficients differ from those of complete follow-up; a larger budget, more records or an earlier "
    "horizon= makes this share smaller"
)
# Level of the test of the target below which a warning comes (benchmarks/results/hazard_targets.md).
MOVED_LEVEL = 0.05
MOVED_TARGET = (
    "the coefficients depend on how long records are followed, or on the weights of records far out "
    "(target_test() has the p-value {}, which is below {:g}), so hazards may not be proportional or effects "
    "not linear, and all coefficients can differ from those of Cox's regression"
)
NO_TARGET_TEST = "the test of the target is not available: {}"
EXACT_FIT = "a fit without noise follows all records to the end, with weight 1"
WEAK_FIT = "the fit is weak, so its coefficients come from a posterior"
NO_COVARIANCE = "the fit has no standard errors"
OLDER_FILE = "the file was written by an earlier version of privinf"
BLIND_TEST = (
    "the test of the target, target_test(), has little power in this fit, because its noncentrality is {}, "
    "which is above {:g}: it detects only large differences"
)
FAR_RECORDS = (
    "records far out in {} have less weight; if the model does not hold there, all coefficients differ from "
    "those of Cox's regression; use {}"
)
FAR_NUMBERS = "tighter bounds, a larger budget, or logarithms if the effect is linear in the logarithm"
FAR_LEVELS = (
    "the few records with {} have less weight; if the model does not hold for them, all coefficients differ "
    "from Cox's regression; merge rare levels (pi.Factor([...], other=...)), {}add records or budget"
)
WITHOUT_INTERACTION = "leave out their interactions, "
DECIDED_BY_PRIOR = (
    "the prior influences the coefficients {}; intervals can miss slopes that are large relative to it: use "
    "a larger budget, more records or fewer columns. score_test() and conf_int(method='score') use no prior"
)
OF_A_PRIOR = (
    "weak identification: coefficients and intervals come from a posterior with a normal prior (standard "
    f"deviation {PRIOR_SLOPE:g}) on slopes of columns scaled to [-1, 1], and can miss slopes that are large "
    "relative to it; score_test() and conf_int(method='score') use no prior"
)
# Targets in the header of a summary.
TARGET = "Cox with follow-up to {}, {} intervals"
CUT_TARGET = (
    "Cox with high-risk records followed up to a cumulated hazard of {:g} "
    "({:.1%} of events are later, standard error of the noise {:.1%})"
)
NEGLIGIBLE = 0.001  # share of events after the stop below which the target is called Cox's


class HazardPredictions(Predictions):
    """No predictions."""

    @property
    def refusal(self) -> str:
        """Why this result predicts for no new row."""
        return NO_PREDICTIONS


@dataclass(frozen=True, eq=False)
class HazardInference(GLMInference):
    """Inference of a proportional-hazards fit: draws of the slopes."""

    @property
    def constant(self) -> int | None:
        """None: the baseline has the place of a constant."""
        return None

    @property
    def coefficient_scale(self) -> str:
        """Scale on which coefficients are effects."""
        return "log hazard"

    @property
    def weak_intervals(self) -> list[tuple[type[Warning], str]]:
        """Warning of coefficients that the prior of a posterior decides."""
        names = ", ".join(self.weakness.index) if self.cov_type == "posterior" else ""
        return [(Weak, DECIDED_BY_PRIOR.format(names))] if names else []

    @property
    def weak_joint_inference(self) -> list[tuple[type[Warning], str]]:
        """Warning of the prior of a posterior."""
        return [(Weak, OF_A_PRIOR)] if self.cov_type == "posterior" else []


@error_boundaries
class PHRegResults(UnavailableOfHazards, Results):
    """Results of `PHReg`: coefficients are logarithms of hazard ratios.

    Adds to `Results`: `hazard_ratios`, `follow_up`, `events_after_stop`, `events_after_stop_se` and
    `target_test`.

    Notes
    -----
    Score tests and score intervals move the last released score along the released Hessian, with the factors
    of the baseline solved for (`privinf.glm.hazards.score_equation` has the equation and its variance). They
    use no prior, so they are valid where the fit is weak: `score_test`, ``conf_int(method="score")`` and
    `score_set`. Without noise they are the robust Wald test and its intervals. A fit that ended without
    standard errors has none.

    **Privacy.** Costs nothing: every method uses only released numbers.
    """

    @cached_property
    def _inference(self) -> HazardInference:
        return HazardInference(self._estimate, self._context)

    @cached_property
    def _fit_statistics(self) -> FitStatistics:
        return FitStatistics(self._inference, NO_SQUARES)

    @cached_property
    def _predictions(self) -> HazardPredictions:
        return HazardPredictions(self._inference, self._fit_statistics)

    @property
    def _hazards(self) -> Mapping[str, Any]:
        return dict(self._context.settings["hazards"])

    def _check_settings(self) -> None:
        settings = self._hazards
        if not isinstance(settings, Mapping) or not settings.keys() >= {"stop", "later", "events"}:
            raise ArgumentError("settings of a PHReg result must hold its stop and its events")
        check_number(self.follow_up, "stop", low=0.0, infinite=True)
        check_number(self.events_after_stop, "later", low=0.0, high=1.0)
        if settings.get("later_sd") is not None:
            check_number(settings["later_sd"], "later_sd", low=0.0)
        if settings.get("early") is not None:
            RoundRelease.from_dict(settings["early"])

    @classmethod
    def _stored_context(cls, estimate: Estimate, context: Context) -> Context:
        """Return the context with the equation of score tests, which the settings describe."""
        if "curved" not in context.settings or context.design is None:
            return context
        system = hazard_system(context.settings, context.design, estimate.nobs, estimate.cov_type)
        return replace(context, system=system)

    def _refused_methods(self) -> frozenset[str]:
        refused = super()._refused_methods()
        if self._estimate.cov is None:
            return refused | {"hazard_ratios", "target_test"}
        has_no_test = self._estimate.noise_cov is None or not self._hazards.get("early")
        return refused | {"target_test"} if has_no_test else refused

    def hazard_ratios(self, alpha: float = 0.05) -> pd.DataFrame:
        """Return hazard ratios with intervals: exp of the coefficients.

        Parameters
        ----------
        alpha : float
            One minus the confidence level of the intervals.

        Returns
        -------
        DataFrame
            One row per coefficient.
        """
        return ratios(self, "hazard ratio", alpha)

    @property
    def follow_up(self) -> float:
        """Cumulated hazard up to which records are followed; infinite in a fit without noise."""
        stop = self._hazards["stop"]
        return math.inf if stop is None else float(stop)

    @property
    def events_after_stop(self) -> float:
        """Share of events that come after the stop, estimated from noisy counts.

        Noisy counts below 0 count as 0, so the share is too large if few events come late.
        """
        return float(self._hazards["later"])

    @property
    def events_after_stop_se(self) -> float:
        """Standard error of the noise of `events_after_stop`; nan in files of earlier versions."""
        sd = self._hazards.get("later_sd")
        return math.nan if sd is None else float(sd)

    def target_test(self) -> TargetTestResult:
        r"""Test whether the coefficients depend on how long records are followed, and on their weights.

        Returns
        -------
        TargetTestResult
            ``.statistic``, ``.pvalue``, ``.df``, ``.noncentrality`` and ``.stops``, the two ends of the
            follow-up.

        Raises
        ------
        NotAvailableError
            Raised if the fit is weak, has no standard errors or no noise, or if noise hides a direction of
            the earlier Hessian.

        Notes
        -----
        A specification test (Hausman 1978). A fit solves its score equation twice. In its first round it
        follows records to an earlier end, and gives smaller weights to records far out. If hazards are
        proportional and effects linear, both equations have the same solution. The statistic compares the
        coefficients of the fit with the equation of the round; the covariance includes the noise of both
        releases. If the test rejects, the coefficients of the fit can differ from those of Cox's regression.
        If it does not reject, they can differ too: the test has no power against errors that move both
        equations alike. ``privinf.glm.hazards.target_test`` has the derivation.

        The p-value allows for the curvature of the scores between the round and the fit. If the round ended
        far from the fit, `noncentrality` is large and the test has little power.

        **Privacy.** Costs nothing: the test uses only released numbers.

        References
        ----------
        Hausman (1978), "Specification tests in econometrics".
        """
        early = self._hazards.get("early", OLDER_FILE)
        cov, noise = self._estimate.cov, self._estimate.noise_cov
        reason = WEAK_FIT if noise is None else EXACT_FIT if early is None else ""
        reason = NO_COVARIANCE if cov is None else OLDER_FILE if early is OLDER_FILE else reason
        if reason:
            raise NotAvailableError(NO_TARGET_TEST.format(reason))
        assert cov is not None
        assert noise is not None
        d = len(self._estimate.params)
        scale = np.linalg.inv(np.array(self._context.settings["to_user"])[:, -d:])
        return target_test(
            RoundRelease.from_dict(early),
            scale @ self._estimate.params,
            scale @ cov @ scale.T,
            scale @ noise @ scale.T,
            self._estimate.nobs,
            self.follow_up,
        )

    def _summary_columns(self) -> tuple[SummaryColumn, ...]:
        """Return hazard ratios."""
        cells = [f"{math.exp(min(value, 700.0)):.3f}" for value in self.params]
        return (SummaryColumn(name="HR", cells=cells, place=1, note=Note(RATIO_NOTE, "table")),)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class CellFacts:
    """What the cells of a fit are, and what they contain.

    Attributes
    ----------
    edges : ndarray, shape (K,)
        Ends of the intervals.
    events : float
        Number of events.
    negative : (float, float) or None
        Number of negative times, and the sd of its noise.
    """

    edges: Floats
    events: float
    negative: tuple[float, float] | None


def hazard_results(
    rows: GlmRows, fit: HazardFit, description: FitDescription, cells: CellFacts, status: str
) -> PHRegResults:
    """Return the results of a fit, in the user's units; intervals are quantiles of draws.

    `rows` has only the columns with coefficients; `status` is the name of the status.
    """
    edges = cells.edges
    events = cells.events
    q = fit.baseline.blocks
    back = np.hstack([np.zeros((rows.p, q)), rows.to_user])
    notes = (*_target_notes(rows, fit), *all_events_notes(events, rows.total))
    context = description.context(rows, *notes)
    context["settings"] |= {
        "family": "hazards",
        "hazards": {
            "stop": fit.stop if math.isfinite(fit.stop) else None,
            "later": fit.later,
            "later_sd": fit.later_sd,
            "events": events,
            "status": status,
            "edges": edges.tolist(),
            "early": None if fit.early is None else fit.early.to_dict(),
        },
    }
    if cells.negative is not None:
        context["settings"] |= {"negative_times": list(cells.negative)}
    cut = fit.later > NEGLIGIBLE
    target = TARGET.format(f"{edges[-1]:g}", len(edges))
    context["target"] = CUT_TARGET.format(fit.stop, fit.later, fit.later_sd) if cut else target
    step = fit.step
    if step is None:
        return _without_intervals(back[:, q:] @ fit.path[-1], rows, NO_CURVATURE, context)
    if step.hessian.sd == 0.0:
        return _exact(rows, step, back, context)
    try:
        posterior = drawn(step, rows.total, None)
    except np.linalg.LinAlgError:
        return _without_intervals(back[:, q:] @ fit.path[-1], rows, NO_CURVATURE, context)
    total = np.atleast_2d(np.cov(posterior.draws.T))
    reason = ""
    if not (posterior.converged or posterior.weak):
        length = math.sqrt(posterior.length2)
        reason = NOT_CONVERGED.format(posterior.shift, length, len(total), rows.total)
    reason = reason or singular(total)
    context["notes"] = (*_draw_notes(rows, step, posterior, back, bool(reason)), *context["notes"])
    if reason:
        return _without_intervals(back @ posterior.params, rows, reason, context)
    noise = noise_of_draws(posterior, total)
    terms = VarianceTerms(POSTERIOR_EQUATION, {"sampling, noise and prior": total}, {})
    if noise is not None:
        terms = VarianceTerms.dividing(total, DRAWN_EQUATION, drawn_terms(step, noise))
    estimate = Estimate(
        params=posterior.params,
        cov=total,
        names=(*(f"baseline {b + 1}" for b in range(q)), *rows.design.names),
        nobs=rows.total,
        noise_cov=noise,
        cov_type="posterior" if posterior.weak else "HC0",
        terms=terms,
    ).transformed(back, names=rows.design.names)
    context["settings"] |= {"curved": recorded(step), "to_user": back.tolist()}
    test = None if noise is None else round_test(fit, posterior.params, total, noise, rows.total)
    moved = [] if test is None else moved_targets(test)
    blind = () if test is None else blind_notes(test)
    moved_notes = (note for text in moved for note in must_read(sentence(text)))
    context["notes"] = (*moved_notes, *context["notes"], *blind)
    texts = moved + changed_targets(rows, fit) + long_steps(posterior)
    if texts:
        context["settings"] |= {"misfits": texts}
    sampling = None if noise is None else back @ (total - noise) @ back.T
    system = hazard_system(context["settings"], rows.design, rows.total, estimate.cov_type)
    return PHRegResults(estimate, Context(**context, sampling_cov=sampling, system=system))


def _without_intervals(
    params: Floats, rows: GlmRows, reason: str, context: Mapping[str, Any]
) -> PHRegResults:
    estimate = Estimate(
        params=params,
        cov=None,
        names=rows.design.names,
        nobs=rows.total,
        cov_type="none",
        weak_reason=reason,
    )
    return PHRegResults(estimate, Context(**context))


def _exact(rows: GlmRows, step: OneStepRelease, back: Floats, context: Mapping[str, Any]) -> PHRegResults:
    """Return the results of a fit without noise, with its robust covariance."""
    move = step.place.transform.T @ np.linalg.inv(step.hessian.mean)
    cov = move @ step.meat @ move.T / rows.total
    nothing = np.zeros_like(cov)
    estimate = Estimate(
        params=step.place.theta + move @ step.score.mean,
        cov=cov,
        names=tuple(f"coefficient {j}" for j in range(len(cov))),
        nobs=rows.total,
        noise_cov=nothing,
        cov_type="HC0",
        terms=VarianceTerms.dividing(cov, DRAWN_EQUATION, drawn_terms(step, nothing)),
    ).transformed(back, names=rows.design.names)
    # The settings, which files keep, do not hold the equation: its sums have no noise.
    equation = {"curved": recorded(step), "to_user": back.tolist()}
    system = hazard_system(equation, rows.design, rows.total, "HC0")
    return PHRegResults(estimate, Context(**context, sampling_cov=back @ cov @ back.T, system=system))


def changed_targets(rows: GlmRows, fit: HazardFit) -> list[str]:
    """Return the warnings of a target that may not be Cox's regression.

    They are about all coefficients. Weights are those of whole records: on tables, intervals missed in 14 of
    34 slopes of columns with a long tail, and in 10 of 24 slopes of other columns of the same fits.

    One reason is a hazard so steep at 0 that the grid is coarse. Events after the stop are another. The third
    one is the weight of records far out in a column: weights leave out more than `FAR_OUT` standard errors of
    a score that is wrong there, in columns whose farther bound is more than `FAR_COLUMN` standard deviations
    from the mean. Numbers and levels of factors have different remedies.
    """
    warnings = []
    if (early := fit.baseline.early) > STEEP:
        warnings.append(STEEP_HAZARD.format(early))
    if fit.later > LATER:
        warnings.append(CUT_FOLLOW_UP.format(fit.stop, fit.later, fit.later_sd))
    if fit.step is not None and fit.step.far > 0.0:
        reach = column_reach(fit.step, fit.baseline.blocks, *rows.limits)
        far = (reach > FAR_COLUMN) & (fit.step.far * reach / FAR_COLUMN > FAR_OUT)
        two_valued = declared_two_valued(rows.design)
        if numbers := tuple(rows.design.names[j] for j in np.flatnonzero(far & ~two_valued)):
            warnings.append(FAR_RECORDS.format(listed(numbers), FAR_NUMBERS))
        if levels := [rows.design.columns[j] for j in np.flatnonzero(far & two_valued)]:
            product = any(len(column.pieces) > 1 for column in levels)
            names = listed([column.name for column in levels])
            warnings.append(FAR_LEVELS.format(names, WITHOUT_INTERACTION * product))
    return warnings


def round_test(
    fit: HazardFit, params: Floats, covariance: Floats, noise: Floats, n: int
) -> TargetTestResult | None:
    """Return the `target_test` of a fit; None if noise hides a direction of the round.

    Parameters
    ----------
    fit : HazardFit
    params : ndarray, shape (P,)
        In z.
    covariance, noise : ndarray, shape (P, P)
    n : int
        Number of records.
    """
    q = fit.baseline.blocks
    assert fit.early is not None
    try:
        return target_test(fit.early, params[q:], covariance[q:, q:], noise[q:, q:], n, fit.stop)
    except NotAvailableError:
        return None


def moved_targets(test: TargetTestResult) -> list[str]:
    """Return the warning of coefficients that depend on follow-up and weights, if the test rejects."""
    if not test.pvalue < MOVED_LEVEL:
        return []
    return [MOVED_TARGET.format(shown_below(test.pvalue, MOVED_LEVEL), MOVED_LEVEL)]


def shown_below(pvalue: float, level: float) -> str:
    """Return a p-value below a level with two digits, or with as many as show that it is below."""
    texts = (f"{pvalue:.{digits}g}" for digits in range(2, 18))
    return next(text for text in texts if float(text) < level)


def blind_notes(test: TargetTestResult) -> tuple[Note, ...]:
    """Return the note on a test of the target that has little power."""
    if not test.has_little_power:
        return ()
    return (
        Note(sentence(BLIND_TEST.format(shown_noncentrality(test.noncentrality), LITTLE_POWER)), "table"),
    )


def long_steps(posterior: PosteriorDraws) -> list[str]:
    """Return the warning of a last step so long that the secant Hessian may be wrong, if it is."""
    return [LONG_STEP.format(posterior.shift)] if posterior.shift > LONG_MOVE else []


def column_reach(step: OneStepRelease, blocks: int, low: Floats, high: Floats) -> Floats:
    """Return the distance of a column's mean to its farther bound, in its standard deviations, shape (d,).

    Mean and covariance are those of the final Hessian, whose noise is small in the whitened units of the
    release. The Gram of the columns has noise in the units of the bounds, which hides the variance of a
    column with a long tail.

    Parameters
    ----------
    step : OneStepRelease
    blocks : int
    low, high : ndarray, shape (d,)
        Public bounds of the columns, scaled units.
    """
    back = np.linalg.inv(step.place.transform)
    hessian = back @ step.hessian.lifted() @ back.T
    joint = hessian[:blocks, blocks:]
    mean = joint.sum(axis=0) / np.trace(hessian[:blocks, :blocks]) * math.sqrt(blocks)
    spread = hessian[blocks:, blocks:] - joint.T @ np.linalg.solve(hessian[:blocks, :blocks], joint)
    variance = np.diag(spread) / np.trace(hessian[:blocks, :blocks]) * blocks
    farther = np.maximum(high - mean, mean - low)
    return np.asarray(farther / np.sqrt(np.maximum(variance, 1e-300)))


def _target_notes(rows: GlmRows, fit: HazardFit) -> tuple[Note, ...]:
    """Return the notes on a target that may not be Cox's regression."""
    return tuple(note for text in changed_targets(rows, fit) for note in must_read(sentence(text)))


def _draw_notes(
    rows: GlmRows, step: OneStepRelease, posterior: PosteriorDraws, back: Floats, is_bare: bool
) -> tuple[Note, ...]:
    """Return the notes on the draws of a fit; a fit that `is_bare` has no intervals to explain."""
    size = math.sqrt(posterior.length2)
    length: tuple[Note, ...] = (Note(step_text(size)),)
    if is_bare and not posterior.weak:
        return length if posterior.converged else (Note(LAST_STEP.format(posterior.shift, size)),)
    length += must_read(*map(sentence, long_steps(posterior)))
    if not posterior.weak:
        return Note(DRAWN_NOTE), *length
    influence = prior_influence(step, posterior.draws, None, back)
    decided = zip(rows.design.names, influence > LARGEST_PRIOR_INFLUENCE, strict=True)
    names = tuple(name for name, is_decided in decided if is_decided)
    weak = must_read(POSTERIOR_NOTE.format(PRIOR_SLOPE))
    if names:
        weak += must_read(sentence(DECIDED_BY_PRIOR.format(", ".join(names))), columns=names)
    return *weak, *length
