"""The summary: coefficients with both kinds of error, identification, tests and the privacy spent."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from privinf.accounting import PrivacyReport
from privinf.accounting.entries import SIMULATION
from privinf.errors import ArgumentError, ConvergenceError, NotAvailableError, NotPositiveDefiniteError
from privinf.inference.covariances import sampling_kind
from privinf.inference.linear_scores import CHI_SQUARE
from privinf.inference.score_test import Identification
from privinf.results.fitted import FittedResult
from privinf.results.notes import CLIPPED, IMPUTED_LABEL, IMPUTED_VALUE, Note, clipped_texts, sentence
from privinf.results.rendering import Fact, PrivateSummary
from privinf.results.wald import STEEP
from privinf.typing import Floats, SummaryNotes
from privinf.validation import check_choice, check_flag, check_fraction
from privinf.wire import readable

ERRORS_NOTE = (
    "std err is the total: sampling error and privacy noise. (no noise) is the standard error that the same "
    "data would have had without noise, estimated from the release."
)
# A chi-square statistic is a sum over its degrees of freedom, and F a mean: this is what to compare with F.
PER_DF = "Per df, as F:"
# A row at the head of every table of a fit whose response went out as it is.
UNPROTECTED = "{} is NOT protected"
NOT_PRIVATE = "NOT PRIVATE"  # the same of a fit with seeded noise, or without any
NOTABLE_BIAS = 0.1  # standard errors: a smaller bound of the bias is left to the notes in full
# Rows of the header that say what a reader takes for granted.
USUAL_OPTIONS = {"Sites": "1", "Residual clip": "by counts"}
SLOW_SETS = (
    "Score intervals, which hold their level however strong the noise is, take hundreds of passes over the "
    "records here: conf_int(method='score') computes them, and the summary shows them from then on."
)
SCORE_NOTE = (
    "The intervals invert the score test, which holds its level however strong the noise is; they are "
    "conservative, and an infinite end means that the release does not bound the coefficient."
)
SMALLEST_FIXED = 1e-4  # columns with a smaller entry have a format for each cell
EQUAL_VARIANCE = "assumes equal error variance"
EQUAL_VARIANCE_NOTE = (
    "Intervals and tests, the score test among them, assume that the errors have equal variance: where it "
    "goes with the columns they may be far from their level. "
)
ROBUST_INSTRUMENTS = "Two-stage least squares on a release has no other covariance."
ROBUST_FIT = "cov_type='HC0' does not assume it."
# Of a fit from a release of totals, whose covariance cannot be chosen any more.
ROBUST_RELEASE = (
    "This release has no other covariance for this formula; a new release of the rows, OLS or MomentOLS with "
    "cov_type='HC0', does not assume it."
)
T_NOTE = (
    "P-values and intervals take t quantiles, by Satterthwaite with {:d} degrees of freedom where an error "
    "is all from sampling, and with more where noise, whose law is known, is part of it."
)
ALLOWED_BIAS = (
    "P-values and intervals are the worst under a bias of up to {:.2g} standard errors, which the release "
    "does not rule out."
)
FLOORED_NOTE = (
    "The release does not tell the residual variance from zero: what sampling adds to the standard errors is "
    "held at the least that the noisy moments allow, and nearly all of the rest is noise."
)
DELTA_CAUTION = (
    "epsilon is stated at delta = {:g}, which is at least 1/n: publishing one record at random would keep "
    "such a claim; name a delta far below 1/n"
)
CLIPPED_NOTE = (
    "Robust errors leave out what residuals have beyond {:.1f} of their sds, where noise drowns it: on "
    "skewed responses intervals may cover less than they say. More rows or a larger robust_share see more."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryOptions:
    """What a summary is told to call things, and how much to say; see `Results.summary`."""

    yname: str | None = None
    xname: Sequence[str] | None = None
    title: str | None = None
    alpha: float = 0.05
    slim: bool = False
    notes: SummaryNotes = "main"

    def names(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return what rows are called, one text for each coefficient (else ArgumentError)."""
        if self.xname is None:
            return names
        found = () if isinstance(self.xname, str) else tuple(self.xname)
        if len(found) != len(names) or not all(isinstance(name, str) for name in found):
            raise ArgumentError(f"xname must name all {len(names)} coefficients: {', '.join(names)}")
        return found

    def title_of(self, result: FittedResult) -> str:
        """Return the title."""
        return f"{result.model.name or 'Private regression'} Results" if self.title is None else self.title

    def check(self) -> SummaryOptions:
        """Return itself if it can be followed (else ArgumentError)."""
        check_fraction(self.alpha, "alpha")
        check_flag(self.slim, "slim")
        check_choice(self.notes, SummaryNotes, "notes")
        if not isinstance(self.yname, (str, type(None))):
            raise ArgumentError(f"yname must be a text, got {type(self.yname).__name__}")
        return self


def summarize(result: FittedResult, told: SummaryOptions) -> PrivateSummary:
    """Return the summary of a result."""
    alpha = told.check().alpha
    names = told.names(result.names)
    weak = result.estimate.cov is None
    header, cells, notes = _score_table(result, alpha) if weak else _wald_table(result, alpha)
    known = result._context.ranked
    explained = [note for note in known if note.rank != "detail"] if told.slim else [*notes, *known]
    summary = PrivateSummary(
        title=told.title_of(result),
        top=_model_facts(result, told),
        header=header,
        rows=[(name, *row) for name, row in zip(names, cells, strict=True)],
        tests=([], []) if told.slim else _test_facts(result),
        privacy=privacy_facts(result.privacy),
        notes=[*_warnings(result), *explained, *_assumptions(result.privacy)],
        shown=told.notes,
    )
    for column in result._summary_columns():
        summary = summary.with_column(column)
    return summary


def large_delta(report: PrivacyReport, nobs: float) -> list[str]:
    """Return a list with the caution about a delta of 1/n or more; an empty list where it is smaller."""
    delta = report.default_delta
    large = 0.0 < report.epsilon(delta) < math.inf and delta * nobs >= 1.0
    return [DELTA_CAUTION.format(delta)] if large else []


def privacy_facts(report: PrivacyReport) -> tuple[list[Fact], list[Fact]]:
    """Return the privacy block: what was spent, and what it protects against whom."""
    delta = report.default_delta
    source = ", ".join(dict.fromkeys(entry.source for entry in report.entries)) or "none"
    parties = [
        (f"Epsilon, {name} alone:", f"{report.party(name).epsilon(delta):.4g}")
        for name in (report.parties.index if any(entry.party for entry in report.entries) else ())
    ]
    earlier = report.subject == "earlier release"
    epsilon_of = "Release, epsilon" if earlier else "Epsilon"
    spent = [
        (f"{epsilon_of} (delta={delta:g}):", f"{report.epsilon(delta):.4g}"),
        *parties,
        ("mu (Gaussian DP):", _or_reason(lambda: report.mu)),
        ("rho (zCDP):", _or_reason(lambda: report.rho)),
        *([("Spent by this fit:", "0 (uses a release)")] if earlier else []),
    ]
    if not earlier or len(report.recorded) > len(report.entries):
        total = f"{report.cumulative.epsilon(delta):.4g}{_of_fit(report)}{report.stamp_of_others}"
        spent.append(("Epsilon, whole ledger:", total))
    meaning = [
        ("Unit of privacy:", report.unit),
        ("Neighbours:", report.relation),
        ("Trust model:", report.trust),
        ("Noise:", report.stamp or f"{source} (secure)"),
    ]
    return spent, meaning


def _of_fit(report: PrivacyReport) -> str:
    return f" (fit {report.fit})" if report.place and report.fit is not None else ""


def number(value: float, digits: int = 4) -> str:
    """Return a number in at most 10 characters: fixed point where that is readable."""
    if not math.isfinite(value):
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    if value == 0.0 or 1e-3 <= abs(value) < 1e5:
        return f"{value:.{digits}f}"
    return f"{value:.3g}" if abs(value) >= 1e5 else f"{value:.2e}"


def column(values: Iterable[float]) -> list[str]:
    """Return numbers in one format, so that their points stand below one another where that is readable."""
    cells = [float(value) for value in values]
    sizes = [abs(value) for value in cells if math.isfinite(value) and value != 0.0]
    if not sizes or max(sizes) >= 1e5 or min(sizes) < SMALLEST_FIXED:
        return [number(value) for value in cells]
    digits = min(max(2 - math.floor(math.log10(min(sizes))), 4), 6)
    return [f"{value:.{digits}f}" if math.isfinite(value) else number(value) for value in cells]


def _wald_table(result: FittedResult, alpha: float) -> tuple[list[str], list[list[str]], list[Note]]:
    interval = result._inference.interval(alpha)  # a note says it where it is weak
    notes = [Note(ERRORS_NOTE, "table")]
    try:
        sampling = result.bse_sampling.to_numpy()
    except NotAvailableError as reason:
        sampling = np.full(len(result.names), np.nan)
        notes.append(Note(f"{reason}.", "table"))
    errors = ["-" if cell == "nan" else cell for cell in column(sampling)]
    columns = [
        column(result.params),
        column(result.bse),
        errors,
        [f"{statistic:.3f}" for statistic in result.tvalues],
        [f"{p:.3f}" for p in result.pvalues],
        column(interval[:, 0]),
        column(interval[:, 1]),
    ]
    rows = [list(row) for row in zip(*columns, strict=True)]
    known = result.estimate
    notes += [Note(T_NOTE.format(result.df_resid))] if math.isfinite(known.df_resid) else []
    if known.bias is not None:
        bias = float(np.max(known.bias / known.bse))
        notes.append(Note(ALLOWED_BIAS.format(bias), "table" if bias > NOTABLE_BIAS else "detail"))
    letter = "t" if result.use_t else "z"
    return ["coef", "std err", "(no noise)", letter, f"P>|{letter}|", *_interval_header(alpha)], rows, notes


def _score_table(result: FittedResult, alpha: float) -> tuple[list[str], list[list[str]], list[Note]]:
    notes = [Note(f"No standard errors: {result.estimate.weak_reason}.", "must-read")]
    if not result.score_sets_are_quick(alpha):
        return ["coef"], [[number(coef)] for coef in result.params], [*notes, Note(SLOW_SETS, "table")]
    try:
        interval = result.conf_int(alpha, method="score").to_numpy()
    except (NotAvailableError, NotPositiveDefiniteError, ConvergenceError) as reason:
        rows = [[number(coef)] for coef in result.params]
        return ["coef"], rows, [*notes, Note(f"No score intervals: {reason}.", "must-read")]
    rows = [[number(coef), *ends] for coef, ends in zip(result.params, _ends(interval), strict=True)]
    low, high = _interval_header(alpha)
    return ["coef", f"score {low}", high], rows, [*notes, Note(SCORE_NOTE, "table")]


def _ends(interval: Floats) -> list[list[str]]:
    return [[number(low), number(high)] for low, high in interval]


def _interval_header(alpha: float) -> tuple[str, str]:
    return f"[{alpha / 2:.4g}", f"{1 - alpha / 2:.4g}]"


def _model_facts(result: FittedResult, told: SummaryOptions) -> tuple[list[Fact], list[Fact]]:
    name = result.model.endog_names if told.yname is None else told.yname
    unprotected = [("Response:", UNPROTECTED.format(name))] if result.privacy.response_in_clear else []
    stamped = [("Privacy:", NOT_PRIVATE)] if result.privacy.stamp else []
    left = [
        ("Dep. Variable:", name),
        ("Model:", result.model.name),
        *stamped,
        *unprotected,
        *([("Method:", result.method)] if result.method else []),
        *(
            (f"{name}:", str(value))
            for name, value in result.options.items()
            if _is_news(result, name, value)
        ),
    ]
    completed = [(IMPUTED_LABEL, IMPUTED_VALUE)] if result._context.imputed else []
    if told.slim:
        right = [("No. Observations:", f"{result.nobs:d}"), ("Covariance Type:", result.cov_type)]
        return left[: 2 + len(stamped) + len(unprotected)], [*right, *completed]
    right = [
        ("No. Observations:", f"{result.nobs:d}"),
        ("Df Residuals:", f"{result.df_resid:d}"),
        *([] if result._fit_statistics.no_moments else _moment_facts(result)),
        ("Covariance Type:", result.cov_type),
        *_target_fact(result),
        *completed,
    ]
    return left, right


def _is_news(result: FittedResult, name: str, value: object) -> bool:
    """Return whether an option of a fit tells more than the usual, and than the rows on privacy."""
    usual = result.privacy.trust if name == "Trust" else USUAL_OPTIONS.get(name)
    return str(value) != usual


def _target_fact(result: FittedResult) -> list[Fact]:
    """Return whose coefficients these are, where it is not the population of the rows as they are."""
    if result.target != "population":
        return [("Target:", result.target)]
    clipped = any(note.text == CLIPPED for note in result._context.ranked)
    return [("Target:", "clipped values")] if clipped else []


def _moment_facts(result: FittedResult) -> list[Fact]:
    measures = [
        ("R-squared (corrected):", _or_reason(lambda: result.rsquared)),
        ("Residual var. (corrected):", _or_reason(lambda: result.scale)),
    ]
    if not _shows_f(result):
        return measures
    return [
        *measures,
        ("Adj. R-squared:", _or_reason(lambda: result.rsquared_adj)),
        ("F-statistic:", _or_reason(lambda: result.fvalue)),
        ("Prob (F-statistic):", _or_reason(lambda: result.f_pvalue)),
    ]


def _shows_f(result: FittedResult) -> bool:
    return result._fit_statistics.no_moments is None and math.isfinite(result.estimate.df_resid)


def _test_facts(result: FittedResult) -> tuple[list[Fact], list[Fact]]:
    left: list[Fact] = []
    right: list[Fact] = []
    try:
        strength = result.identification
        left.append(("Identification:", f"{strength.statistic:.4g}"))
        left.append(("Weak below:", f"{strength.threshold:.3g}"))
        left.append(_verdict(result, strength))
    except NotAvailableError:
        pass
    try:
        test = result.score_test()
        right.append(("Score test, slopes 0:", test.law.described(test.statistic, test.df)))
        right.append((test.law.tail + ":", f"{test.pvalue:.3g}" if test.pvalue > 0.0 else "< 1e-300"))
        if test.df > 1 and test.law == CHI_SQUARE and _shows_f(result):
            right.append((PER_DF, number(test.statistic / test.df)))
    except (NotAvailableError, NotPositiveDefiniteError, ConvergenceError):
        pass
    return left, right


def _verdict(result: FittedResult, strength: Identification) -> Fact:
    """Return what is to be thought of Wald intervals, or what they rest on."""
    if strength.weak:
        return "Wald intervals:", "NOT to be trusted"
    if result.estimate.cov is None:
        return "Wald intervals:", "not available"
    if result._context.rows_alone(result.cov_type):
        return "Intervals:", "take rows as independent"
    if sampling_kind(result.cov_type) == "homoskedastic":
        return "Intervals:", EQUAL_VARIANCE
    if strength.steep:
        return "Wald intervals:", "err on one side"
    if result._context.shifts(result.estimate) or clipped_texts(result._context.settings):
        return "Wald intervals:", "for clipped columns"
    if result._context.imputed:
        return "Wald intervals:", "for completed rows"
    clipped = "clipped_at" in result._context.settings
    return "Wald intervals:", "residuals clipped" if clipped else "not flagged"


def _warnings(result: FittedResult) -> list[Note]:
    """Return what a reader must know first; a stamp is a detail, as a row of the header says it."""
    stamp = result.privacy.stamp
    stamped = []
    if stamp == SIMULATION:
        stamped = [f"{SIMULATION}. The noise came from a seed; whoever knows the seed can remove it."]
    elif stamp:
        stamped = [f"{stamp}. The release holds the rows as they are."]
    return [*(Note(text) for text in stamped), *(Note(text, "must-read") for text in _cautions(result))]


def _cautions(result: FittedResult) -> list[str]:
    lines = []
    lines += [sentence(text) for text in large_delta(result.privacy, result.nobs)]
    if result.estimate.cov is not None and (said := result._context.rows_alone(result.cov_type)):
        lines.append(f"{said[0].upper()}{said[1:]}.")
    try:
        if result.identification.weak and result.estimate.cov is not None:
            lines.append(
                "Weak identification: the noise leaves too little signal for normal intervals; use "
                "score_test() and conf_int(method='score')."
            )
        if result.identification.steep and result.estimate.cov is not None:
            lines.append(f"S{STEEP.format(result.identification.stretch)[1:]}.")
        if sampling_kind(result.cov_type) == "homoskedastic":
            lines.append(EQUAL_VARIANCE_NOTE + _other_covariance(result))
        if _floored(result):
            lines.append(FLOORED_NOTE)
        if "clipped_at" in result._context.settings:
            lines.append(CLIPPED_NOTE.format(result._context.settings["clipped_at"]))
    except NotAvailableError:
        pass
    return lines


def _other_covariance(result: FittedResult) -> str:
    """Return what does without the assumption of equal variance, where this result could have had it."""
    if result.model.name == "TwoStageLeastSquares":
        return ROBUST_INSTRUMENTS
    return ROBUST_RELEASE if result.privacy.subject == "earlier release" else ROBUST_FIT


def _floored(result: FittedResult) -> bool:
    """Whether the covariance rests on a residual variance that came out negative."""
    known = result._context
    no_moments = result._fit_statistics.no_moments
    if result.estimate.cov is None or result.target == "sample" or no_moments is not None:
        return False
    if sampling_kind(result.cov_type) == "homoskedastic":
        return known.scale is None
    return known.sampling_cov is not None and not known.sampling_cov.any()


def _assumptions(report: PrivacyReport) -> list[str]:
    return [f"The privacy claim assumes: {readable(text).rstrip('.')}." for text in report.assumptions]


def _or_reason(figure: object) -> str:
    try:
        return number(figure())  # type: ignore[operator]
    except NotAvailableError:
        return "not available"
