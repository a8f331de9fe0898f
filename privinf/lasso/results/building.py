"""Results from the releases of a fit: one builder of linear and logistic fits, and of fits by site."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from typing import Generic, TypeVar

import numpy as np

from privinf.accounting import PrivacyReport
from privinf.completeness import CompleteRows
from privinf.inference.estimate import Estimate, upper_quantile
from privinf.lasso.debiasing import DebiasedFit, DebiasedLogistic, TargetCoefficients
from privinf.lasso.diagnostics import Detection, MissedColumnTest, ScoreTail, cost_notes, tail_notes
from privinf.lasso.extras import Extras
from privinf.lasso.fit import SparseFit
from privinf.lasso.logistic import LogisticFit, SharedStart, TooRareResponse
from privinf.lasso.plan import FALSE_SELECTION_RATE, LassoPlan
from privinf.lasso.radii import Spread, TypicalSize
from privinf.lasso.results import (
    DIVERGED_NOTE,
    TWO_VALUED,
    LassoResults,
    changed_target,
    hidden_notes,
    listed,
)
from privinf.lasso.results.sparse import LassoSettings, SparseSettings, hidden_scale_text
from privinf.lasso.rows import LassoRows, SparseUnits
from privinf.lasso.selection import VectorServer, sharpest
from privinf.lasso.sums import LogisticSums, Point, SparseSums
from privinf.results.context import Context
from privinf.results.notes import Note, must_read, sentence, target_notes
from privinf.typing import Floats, ScoreTarget
from privinf.wire import Labels

METHOD = "debiased lasso"
LOGISTIC_METHOD = "debiased sparse logistic regression"
SELECTED_NOTE = (
    "Targets were selected on the same rows, and intervals are not corrected for this "
    "selection. Coefficients of weak columns may be overestimated, and their intervals "
    "may cover less often than stated; intervals of strong columns are hardly affected."
)
THROUGH_MIDDLE = (
    "The model has no constant: columns and response are centered at the middle of their "
    "bounds. If their means differ from the middle, coefficients are not those of a regression "
    "with a constant; pass center='released' to center at noisy means."
)
TWO_MEAN = (
    "coefficients are those of the linear probability model, with robust standard errors; "
    "family='binomial' fits a logit"
)
KNOWN_SCALE = (
    "The typical size of the residuals (residual_scale) is {:.3g}; the privacy noise leaves it between "
    "{:.3g} and {:.3g}, with a confidence of 95%."
)
WIDE_CLIPS = (
    "Clipping thresholds are multiples of a noisy estimate of this size, so intervals can be much wider than "
    "with a larger budget."
)
ERROR_VARIANCE = (
    "The variance of the errors (noise_variance) is {:.3g}, and the privacy noise alone causes a standard "
    "error of {:.2g}. Residuals were clipped at {:.3g}, and the correction for this clipping assumes normal "
    "errors."
)
SPARSE_VALUES = "{}; the coefficients are those of the sparse fit, which is biased"
RATE_ALONE = (
    "{}. Only the rate of the response was released and charged; no coefficient{} was "
    "estimated, and the sparse fit has only a constant"
)
RATE_OF_SITE = (
    "{}. Only the rate of this site's response was released; its sparse fit is that of all rows, with an "
    "intercept of its own"
)
DOUBTFUL = (
    "The intervals are not reliable, because {}; keep fewer columns, pass fewer targets, or increase the "
    "budget."
)
FURTHER_SIGNS = "The sparse logistic fit has further warning signs: {}."
WEIGHTED_NOTE = (
    "Outlying rows have less weight: if the logistic model with these columns is misspecified, coefficients "
    "can differ from maximum likelihood by a few standard errors; add squares and products that matter."
)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FitReport:
    """What the results of a fit state next to its targets.

    Attributes
    ----------
    rows : LassoRows
    report : PrivacyReport
    nobs : int
    method : str
    options : mapping of str to str
        Header lines of the summary.
    settings : LassoSettings
    notes : sequence of str or Note
    """

    rows: LassoRows
    report: PrivacyReport
    nobs: int
    method: str
    options: Mapping[str, str]
    settings: LassoSettings
    notes: Sequence[str | Note] = ()

    def with_targets(self, targets: Sequence[int], debiased: TargetCoefficients) -> LassoResults:
        """Return the results of a fit with debiased targets."""
        estimate = Estimate(
            params=debiased.params,
            cov=debiased.cov,
            names=tuple(self.rows.names[j] for j in targets),
            nobs=self.nobs,
            noise_cov=debiased.noise,
            cov_type="HC0",
            bias=debiased.bias,
            terms=debiased.terms,
        )
        return self._results(estimate, hidden_notes(self.settings), debiased.sampling)

    def without_intervals(self, sparse_values: Mapping[int, float], reason: str) -> LassoResults:
        """Return the results of a fit without any debiased target.

        Parameters
        ----------
        sparse_values : mapping of int to float
            Coefficients of the targets in the sparse fit, in the user's units; empty where there are no
            targets or the fit has no estimate of them.
        reason : str
            Why no target is debiased.
        """
        estimate = Estimate(
            params=np.array(list(sparse_values.values()), dtype=np.float64),
            cov=None,
            names=tuple(self.rows.names[j] for j in sparse_values),
            nobs=self.nobs,
            cov_type="none",
            weak_reason=SPARSE_VALUES.format(reason) if sparse_values else reason,
        )
        return self._results(estimate)

    def _results(
        self, estimate: Estimate, first: tuple[Note, ...] = (), sampling_cov: Floats | None = None
    ) -> LassoResults:
        return LassoResults(
            estimate,
            Context(
                report=self.report,
                sampling_cov=sampling_cov,
                model="DebiasedLasso",
                method=self.method,
                options=dict(self.options),
                settings=self.settings,
                notes=(*target_notes(self.report), *first, *self.notes),
            ),
        )


Fit = TypeVar("Fit")
Debiased = TypeVar("Debiased")


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FittedTargets(Generic[Fit, Debiased]):
    """A sparse fit of common coefficients and its debiased targets.

    Attributes
    ----------
    fit : SparseFit or LogisticFit
    targets : list of int
        All that were named, or that the fit selected.
    debiased : DebiasedFit, DebiasedLogistic or None
        None where the noise hides all targets, or no column was selected, for the `reason`.
    debiased_targets : list of int
        Targets that have debiased coefficients.
    missed : MissedColumnTest or None
        Test that no column outside the fit has an effect.
    reason : str
    """

    fit: Fit
    targets: list[int]
    debiased: Debiased | None = None
    debiased_targets: Sequence[int] = ()
    missed: MissedColumnTest | None = None
    reason: str = ""

    @property
    def hidden(self) -> list[int]:
        """Targets whose slopes the noise hides."""
        return [j for j in self.targets if j not in self.debiased_targets]


def linear_results(
    rows: LassoRows,
    plan: LassoPlan,
    sums: SparseSums,
    fitted: FittedTargets[SparseFit, DebiasedFit],
    report: PrivacyReport,
    extras: Extras,
    target: ScoreTarget,
    vectors: VectorServer | None = None,
) -> LassoResults:
    """Return the results of a linear fit: with intervals, or without where the noise hides all of them.

    Parameters
    ----------
    rows : LassoRows
    plan : LassoPlan
    sums : SparseSums
    fitted : FittedTargets
    report : PrivacyReport
    extras : Extras
    target : {"mean", "robust"}
        Of the scores.
    vectors : VectorServer, optional
        Of secure sums: results have the detection limits of its releases.
    """
    fit = fitted.fit
    debiased = fitted.debiased
    unit = sums.units.scale[list(fitted.debiased_targets)]
    settings = fit_settings(rows, sparse_part(rows, sums, fit), fit.diverged, sums.complete)
    settings["extras"] = extras.settings(unit)
    settings["target"] = target
    if fitted.hidden:
        settings["hidden"] = [rows.names[j] for j in fitted.hidden]
    notes: tuple[str | Note, ...] = must_read(SELECTED_NOTE) * (plan.targets is None and debiased is not None)
    notes += must_read(DIVERGED_NOTE) * fit.diverged
    notes += must_read(THROUGH_MIDDLE) * (rows.constant is None and sums.through_middle)
    notes += _residual_notes(settings["sparse"], extras)
    if debiased is not None:
        notes += _debiasing_notes(rows, sums, fitted.debiased_targets, debiased, settings)
    notes += _missed_notes(fitted.missed, settings)
    if vectors is not None:
        notes += _detection_notes(rows, plan, fitted, vectors, settings)
    described = FitReport(
        rows=rows,
        report=report,
        nobs=sums.n,
        method=METHOD,
        options={
            "Sparsity": plan.sparsity_text(fit.support, rows.constant),
            "Sites": str(len(rows.rows)),
            "Score target": target,
        },
        settings=settings,
        notes=notes,
    )
    if debiased is None:
        values = fit.coefficients(len(rows.names))
        return described.without_intervals(
            {j: float(values[j] / sums.units.scale[j]) for j in fitted.targets}, fitted.reason
        )
    return described.with_targets(fitted.debiased_targets, debiased.in_units(unit))


def _debiasing_notes(
    rows: LassoRows,
    sums: SparseSums,
    targets: Sequence[int],
    debiased: DebiasedFit,
    settings: LassoSettings,
) -> tuple[Note, ...]:
    """Return the notes on the debiased targets of a linear fit, and add what they state to the settings."""
    names = [rows.names[j] for j in targets]
    notes = tail_notes(debiased.clip, sums.n, len(targets))
    if rows.design.outcome.column.indicator or (sums.sizes and sums.sizes[0].two_valued):
        settings["two_valued"] = True
        notes += must_read(sentence(TWO_VALUED.format(TWO_MEAN))) * (settings["target"] == "mean")
    if debiased.outside is not None and (cut := debiased.outside.cut).any():
        settings["outside"] = {
            name: float(share)
            for name, share, out in zip(names, debiased.outside.shares, cut, strict=True)
            if out
        }
    notes += must_read(*map(sentence, changed_target(settings)))
    if debiased.clip is not None:
        settings["tail"] = list(astuple(ScoreTail.from_clip(debiased.clip, sums.n)))
    if debiased.marks is not None:
        settings["marks"] = debiased.marks.settings(names)
        notes += debiased.marks.notes(names)
    return notes


def _residual_notes(sparse: SparseSettings, extras: Extras) -> tuple[str, ...]:
    """Return the notes on the typical size of the residuals and on the variance of the errors."""
    notes: tuple[str, ...] = ()
    if "scale_ends" in sparse:
        low, high = sparse["scale_ends"]
        typical = TypicalSize(value=sparse["scale"], low=low, high=math.inf if high is None else high)
        if typical.known:
            notes += (KNOWN_SCALE.format(typical.value, typical.low, typical.high),)
        else:
            notes += (f"{hidden_scale_text(typical.low, typical.high).capitalize()}. {WIDE_CLIPS}",)
    if (variance := extras.noise_variance) is not None and math.isfinite(variance.clip):
        notes += (ERROR_VARIANCE.format(variance.value, variance.noise_sd, variance.clip),)
    elif reason := extras.reasons.get("noise_variance"):
        notes += (f"The variance of the errors (noise_variance) is not available: {reason}.",)
    return notes


def _missed_notes(missed: MissedColumnTest | None, settings: LassoSettings) -> tuple[Note, ...]:
    """Return the notes of the test for omitted columns, and add it to the settings."""
    if missed is None:
        return ()
    settings["missed"] = missed.settings()
    return missed.ranked_notes


def _detection_notes(
    rows: LassoRows,
    plan: LassoPlan,
    fitted: FittedTargets[SparseFit, DebiasedFit],
    vectors: VectorServer,
    settings: LassoSettings,
) -> tuple[str | Note, ...]:
    """Return the notes on the selections of a fit on secure sums, and add what they state to the settings."""
    notes: tuple[str | Note, ...] = cost_notes(vectors.releases, len(rows.names))
    if fitted.debiased is None:
        settings["sight"] = {"looks": [asdict(release) for release in vectors.releases]}
        return notes
    detection = detection_of(
        vectors, fitted.fit, plan, fitted.debiased_targets, fitted.debiased, rows.constant
    )
    settings["sight"] = detection.settings()
    return (*notes, *must_read(detection.warning), *detection.details) if detection.weak else notes


def detection_of(
    server: VectorServer,
    fit: SparseFit,
    plan: LassoPlan,
    targets: Sequence[int],
    debiased: DebiasedFit,
    constant: int | None,
) -> Detection:
    """Return the detection limits of the selections; the constant, if there is one, was not selected.

    Notes
    -----
    **Privacy.** Post-processing.

    A column k that was not selected, with a coefficient of b, moves the estimate of target j by
    ``w_j'Sigma_k b``, w_j the nodewise regression: not at all if k is in w_j, else by about w_jj times their
    correlation given the others. A column was missed only if its covariance with the residuals was below
    the detection limit, and it is in no w_j only if the correlation was.

    Columns that stand in for a missed one stand out too: the number that stands out may then equal the
    sparsity, but includes extra columns. Without signal, these have the errors of any column, and were
    selected because of the noise of their release.
    """
    selection = sharpest(server.releases, Labels.SELECTION)
    neighbors = sharpest(server.releases, Labels.NEIGHBOURS)
    assert selection is not None
    selected = np.array(fit.selected) != (-1 if constant is None else constant)
    sizes = np.sort((np.abs(fit.selected_beta) / fit.selected_errors)[selected])[::-1]
    sparsity = plan.sparsity
    critical = upper_quantile(FALSE_SELECTION_RATE / 2.0 / len(server.low))
    spare = max(len(sizes) - sparsity, 1)
    share = selection.sampling_sd / selection.sd
    quiet = min(critical, upper_quantile(FALSE_SELECTION_RATE / 2.0 / spare) + share * critical)
    unseen = max(sparsity - int((sizes > critical).sum()), 0)
    correlation = 1.0 if neighbors is None else min(neighbors.found_from, 1.0)
    at = [debiased.union.index(j) for j in targets]
    precision = debiased.columns[at, np.arange(len(at))] ** 2
    errors = np.sqrt(debiased.coordinates.variance)
    bias = unseen * selection.found_from * correlation * precision / errors
    crowded = bool((sizes[sparsity:] > quiet).any())
    return Detection(
        releases=tuple(server.releases),
        unseen=unseen,
        bias=float(bias.max()),
        crowded=crowded,
        hidden=fit.gram_clearance <= 1.0,
    )


def logistic_results(
    rows: LassoRows,
    plan: LassoPlan,
    sums: LogisticSums,
    fitted: FittedTargets[LogisticFit, DebiasedLogistic],
    report: PrivacyReport,
    vectors: VectorServer | None = None,
    *,
    method: str = LOGISTIC_METHOD,
) -> LassoResults:
    """Return the results of a logistic fit: with intervals, or without where the noise hides them.

    `vectors` is of secure sums: results have the detection limits of its releases. `method` names the site
    where the fit is that of one.
    """
    fit = fitted.fit
    debiased = fitted.debiased
    units = sums.sparse.units
    values = fit.point.beta[fit.kept_positions] / units.scale[fit.support]
    units.intercept = fit.intercept_of_selected
    settings = _logistic_settings(rows, sums.sparse, fit.support, values, fit.spread.rate)
    notes: list[str | Note] = []
    if debiased is not None:
        notes += must_read(SELECTED_NOTE) * (plan.targets is None)
    if signs := [*fit.signs, *(() if debiased is None else debiased.signs)]:
        settings["doubt"] = DOUBTFUL.format(signs[0])
        notes += must_read(settings["doubt"])
        notes += [FURTHER_SIGNS.format(", and ".join(signs[1:]))] * (len(signs) > 1)
    if debiased is not None and math.isfinite(plan.rho):
        notes.append(Note(WEIGHTED_NOTE, "table"))
    notes += _missed_notes(fitted.missed, settings)
    if vectors is not None:
        notes += cost_notes(vectors.releases, len(rows.names))
        settings["sight"] = {"looks": [asdict(release) for release in vectors.releases]}
    if fitted.hidden:
        settings["hidden"] = [rows.names[j] for j in fitted.hidden]
    described = FitReport(
        rows=rows,
        report=report,
        nobs=sums.n,
        method=method,
        options=_logistic_options(rows, plan, settings, fit.spread.rate),
        settings=settings,
        notes=notes,
    )
    targets = fitted.targets
    if debiased is None:
        coefficients = fit.point.on(targets) / units.scale[targets] if targets else ()
        values_of_targets = dict(zip(targets, map(float, coefficients), strict=True))
        return described.without_intervals(values_of_targets, fitted.reason)
    return described.with_targets(targets, debiased.in_units(units.scale[targets]))


def rate_results(
    rows: LassoRows,
    plan: LassoPlan,
    sums: LogisticSums,
    rare: TooRareResponse,
    report: PrivacyReport,
    *,
    method: str = LOGISTIC_METHOD,
    start: SharedStart | None = None,
) -> LassoResults:
    """Return the results of a fit that ended after the rate: a constant, and no estimate of any slope.

    With `start` the fit is that of a site, whose sparse fit has the columns of the fit of all rows.
    """
    units = sums.sparse.units
    shared = (
        Point([], np.empty(0), Spread(rare.rate).level) if start is None else start.at_rate(rare.rate).point
    )
    units.intercept = shared.intercept
    values = shared.beta / units.scale[shared.support]
    settings = _logistic_settings(rows, sums.sparse, shared.support, values, rare.rate)
    hidden = [rows.names[j] for j in plan.targets or ()]
    settings["hidden"] = hidden
    described = FitReport(
        rows=rows,
        report=report,
        nobs=sums.n,
        method=method,
        options=_logistic_options(rows, plan, settings, rare.rate),
        settings=settings,
    )
    if start is not None:
        targets = list(plan.targets or ())
        coefficients = shared.on(targets) / units.scale[targets]
        return described.without_intervals(
            dict(zip(targets, map(float, coefficients), strict=True)), RATE_OF_SITE.format(rare)
        )
    return described.without_intervals({}, RATE_ALONE.format(rare, f" of {listed(hidden)}" if hidden else ""))


def _logistic_options(
    rows: LassoRows, plan: LassoPlan, settings: LassoSettings, rate: float
) -> dict[str, str]:
    """Return the header lines of the summary."""
    return {
        "Family": "binomial",
        "Sparsity": plan.sparsity_text(settings["sparse"]["positions"], rows.constant),
        "Sites": str(len(rows.rows)),
        "Rate": f"{rate:.4g}",
    }


def _logistic_settings(
    rows: LassoRows, sums: SparseSums, support: list[int], values: Floats, rate: float
) -> LassoSettings:
    """Return the stored settings of a logistic fit, whose constant is in the intercept of the units."""
    if rows.constant is not None:
        support = [*support, rows.constant]
        values = np.append(values, 0.0)
    sparse = sparse_settings(rows.names, sums.units, support, values, rate, rows.constant)
    settings = fit_settings(rows, sparse, diverged=False, complete=sums.complete)
    settings["family"] = "binomial"
    return settings


def sparse_part(rows: LassoRows, sums: SparseSums, fit: SparseFit) -> SparseSettings:
    """Return the stored settings of the sparse fit of common coefficients."""
    values = fit.beta / sums.units.scale[fit.support]
    typical = sums.sizes[-1].typical if sums.sizes else None
    scale = fit.scale if typical is None else typical.value
    sparse = sparse_settings(rows.names, sums.units, fit.support, values, scale, rows.constant)
    if typical is not None:
        sparse["scale_ends"] = (typical.low, typical.high if math.isfinite(typical.high) else None)
    sparse["centred"] = sparse["centred"] or sums.centered
    return sparse


def fit_settings(
    rows: LassoRows, sparse: SparseSettings, diverged: bool, complete: CompleteRows | None
) -> LassoSettings:
    """Return the stored settings of every kind of fit: sparse fit, response, rows, and a formula's design."""
    settings: LassoSettings = {"sparse": sparse, "response": rows.design.response}
    if rows.design.outcome.level is not None:
        settings["level"] = rows.design.outcome.level
    if rows.missing != "raise":
        settings["missing"] = rows.missing
    if complete is not None:
        settings["complete"] = complete.settings()["complete"]
    if diverged:
        settings["astray"] = True
    if rows.design.schema is not None:
        settings["design"] = rows.design.to_dict()
    return settings


def sparse_settings(
    names: Sequence[str],
    units: SparseUnits,
    support: Sequence[int],
    values: Floats,
    scale: float,
    constant: int | None = None,
) -> SparseSettings:
    """Return the stored settings of a sparse fit; `values` in the user's units, by `support`.

    A constant takes up the centers of the other columns; without one they stay, as an intercept.
    """
    coefficients = dict(zip(support, map(float, values), strict=True))
    intercept = units.intercept - sum(value * float(units.center[j]) for j, value in coefficients.items())
    if constant is not None:
        coefficients[constant] += intercept
        intercept = 0.0
    positions = sorted(coefficients)
    return {
        "columns": list(names),
        "positions": positions,
        "values": [coefficients[j] for j in positions],
        "scale": scale,
        "constant": None if constant is None else names[constant],
        "intercept": intercept,
        "centred": bool(units.intercept != 0.0 or np.any(units.center != 0.0)),
    }
