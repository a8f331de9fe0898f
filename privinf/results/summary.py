"""The summary: coefficients with both kinds of error, identification, tests and the privacy spent."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from privinf.accounting import PrivacyReport
from privinf.accounting.entries import SIMULATION
from privinf.completeness import CompleteRows
from privinf.errors import (
    ArgumentError,
    ConvergenceError,
    HeavyTailWarning,
    MisfitWarning,
    NotAvailableError,
    NotPositiveDefiniteError,
    SteepDirectionWarning,
    WeakIdentificationWarning,
)
from privinf.inference.covariances import sampling_kind
from privinf.inference.linear_scores import CHI_SQUARE
from privinf.inference.score_test import NOTABLE_BIAS
from privinf.results.fitted import FittedResult
from privinf.results.notes import (
    CHANGED_TARGET,
    DROPPED_VALUE,
    IMPUTED_VALUE,
    MISSING_LABEL,
    OUTLYING_WEIGHTS,
    Note,
    clipped_fact,
    margins_fact,
    must_read,
    sentence,
)
from privinf.results.rendering import FLAG_MARK, NOTE_MARK, Fact, PrivateSummary, coded_response, shown_pvalue
from privinf.results.wald import STEEP
from privinf.typing import Floats, SummaryNotes
from privinf.validation import check_choice, check_flag, check_fraction
from privinf.wire import Assumptions, readable

ERRORS_NOTE = (
    "std err includes sampling error and privacy noise; (no noise) estimates the standard error that the "
    "same data would have without privacy noise."
)
UNKNOWN = "not available"
NO_SAMPLING_ERRORS = (
    "The column (no noise) is blank where the standard error without privacy noise cannot be estimated, "
    "because the noise is too strong or the method does not estimate it."
)
# A chi-square statistic is a sum over its degrees of freedom, and F a mean: this is what to compare with F.
PER_DF = "Per df, as F:"
# A row at the head of every table of a fit whose response went out as it is.
UNPROTECTED = "{} is NOT protected"
RESPONSE_LABEL = "Response:"  # of that row, and of the row that states which level counts as 1
OBSERVATIONS = "No. Observations:"
WHOLE_LEDGER_NOTE = (
    "Epsilon, whole ledger, is at delta={:g}, and can be less than the sum over the fits, because losses of "
    "several fits compose; 'privinf ledger show' states it at the delta of the ledger's limit."
)
ESTIMATED_OBSERVATIONS = "Observations (est.):"  # where incomplete rows were dropped
NOT_PRIVATE = "NOT PRIVATE"  # the same of a fit with seeded noise, or without any
# A row at the head of weakly identified fits: the coefficients, where a check is of single ones.
WEAK_LABEL = "Weak for:"
# The same of coefficients, or of a fit, that a note doubts for another reason.
DOUBTED_LABEL = "See notes for:"
NO_CONVERGENCE = ("Convergence:", "NOT CONVERGED (see notes)")
NO_ERRORS = ("Standard errors:", "none (see notes)")
# What marks at p-values mean.
MARK_LEGENDS = {FLAG_MARK: "weakly identified", NOTE_MARK: "not weak, but see the notes"}
ALL = "all coefficients"
ALL_WEAK = "intervals of all coefficients (see notes)"
MAINLY_WEAK = "intervals of all coefficients, mainly {} (see notes)"
MAINLY_DOUBTED = "all coefficients, mainly {}"
# Warnings about normal intervals that flag a fit.
WEAK_WARNINGS = (WeakIdentificationWarning, SteepDirectionWarning, HeavyTailWarning, MisfitWarning)
# A row at the head of fits in which the place of a row was used.
ORDER = ("Row order:", "assumed public")
# The same of a fit whose bounds were taken from the data: the privacy guarantee does not cover them.
DATA_BOUNDS = ("Bounds:", "from the data, NOT protected")
REPLACED_BY_SCORES = "replaced by score intervals"
# Families that the model's name implies.
_FAMILY_OF = {
    "OLS": "gaussian",
    "Logit": "binomial",
    "Poisson": "poisson",
    "NegativeBinomial": "negative-binomial",
}
RELATION_OPTIONS = ("Neighbors", "Neighbours")  # the second in files of older versions
# Values of options that a summary leaves out, since they are the usual ones.
USUAL_OPTIONS = {"Sites": "1", "Residual clip": "by counts"}
DEFAULT_DELTA_NOTE = (
    "Epsilon is stated at delta = {:g}, the default for budgets in mu or rho; to choose delta, pass delta= "
    "as well, or use a ledger with Budget(epsilon=, delta=)."
)
SLOW_SETS = (
    "Score intervals are not shown, because for this fit they need hundreds of passes over the "
    "records: conf_int(method='score') computes them, and later summaries show them."
)
SCORE_NOTE = (
    "Score intervals are valid however strong the noise is; they are conservative, and an "
    "infinite end means that the release does not bound the coefficient on this side."
)
NO_SCORE_INTERVALS = (
    "Score intervals are not available; call result.conf_int(method='score') to see the reason in its error."
)
NO_INFERENCE = "For the same reason, this fit has no intervals, and no score tests or score intervals."
SMALLEST_FIXED = 1e-4  # columns with a smaller entry have a format for each cell
SEE_NOTES = "see the notes"
EQUAL_VARIANCE = "assume equal variances"
EQUAL_VARIANCE_NOTE = "Intervals and tests, including the score test, assume equal error variances{}"
ROBUST_INSTRUMENTS = "; two-stage least squares on a release has no robust covariance."
ROBUST_FIT = "; pass cov_type='HC0' where the variance may depend on the columns."
# Of a fit from a release of totals, whose covariance cannot be chosen any more.
ROBUST_RELEASE = (
    "; robust standard errors need a new release of the rows by OLS or MomentOLS with cov_type='HC0'."
)
# Where the two tests of the hypothesis that all slopes are zero lead to different decisions.
TESTS_DISAGREE = (
    "The F test and the score test of zero slopes disagree at the 5% level: the F test uses errors at the "
    "estimate, and the score test those under the hypothesis. Publish the score test, which holds its level "
    "however strong the noise is."
)
# Where the two statistics differ by a large factor although both tests decide alike.
TESTS_DIFFER = (
    "F and the score test per df differ by a factor of {:.3g}: F uses the variance at the estimate, and the "
    "score test that under the hypothesis. Publish the score test, which keeps its level for noise of any "
    "strength; the level of F is only right if the noise is weak."
)
LARGEST_FACTOR = 5.0  # between F and the score statistic per df, before a note says which one to publish
TEST_LEVEL = 0.05
T_NOTE = (
    "P-values and intervals use t quantiles. The sampling error has {:d} degrees of "
    "freedom; the total error has more if part of it is noise of known variance "
    "(Satterthwaite)."
)
ALLOWED_BIAS = (
    "P-values and intervals allow for a {} of up to {:.2g} standard errors, which the release cannot rule "
    "out."
)
HIDDEN_VARIANCE_NOTE = (
    "Hidden residual variance: the noise is too strong to estimate it, so it and R-squared are not "
    "available, and intervals of new observations use an upper limit."
)
FLOORED_NOTE = (
    "The noise hides the residual variance, so the sampling part of the standard errors rests on a noisy "
    "estimate of it, or on the smallest value that the noisy moments allow."
)
DELTA_CAUTION = (
    "the privacy guarantee is weak: delta = {:g} is at least 1/n, so publishing one record at random would "
    "satisfy it; choose a delta far below 1/n"
)
WEAK_NOTE = (
    "Weak identification: the noise leaves too little signal for normal intervals; use score_test() and "
    "conf_int(method='score')."
)
# The same where single coefficients have score tests: with names, and where none is weakly identified.
SINGLE_WEAK_NOTE = (
    "Weak identification: the noise hides the coefficients named above. z, p-value and interval of each "
    "coefficient are those of its own score test, so z is not coef / std err; score_test() tests several "
    "coefficients."
)
SINGLE_NOTE = (
    "z, p-value and interval of each coefficient are those of its own score test, because the noise is too "
    "strong for normal inference about all coefficients. So z is not coef / std err; score_test() tests "
    "several coefficients."
)
NO_WEAK_ERRORS = "std err is blank where a coefficient is weakly identified."
CLIPPED_NOTE = (
    "Robust standard errors ignore residuals beyond {:.1f} standard deviations, where noise dominates, so "
    "intervals may be too short for a skewed response; use more rows or a larger robust_share."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryOptions:
    """Names that a summary uses, and how much it prints; see `Results.summary`."""

    yname: str | None = None
    xname: Sequence[str] | None = None
    title: str | None = None
    alpha: float = 0.05
    slim: bool = False
    notes: SummaryNotes = "main"

    def names(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return the names of the rows, one text for each coefficient (else ArgumentError)."""
        if self.xname is None:
            return names
        renamed = () if isinstance(self.xname, str) else tuple(self.xname)
        if len(renamed) != len(names) or not all(isinstance(name, str) for name in renamed):
            raise ArgumentError(f"xname= must name all {len(names)} coefficients: {', '.join(names)}")
        return renamed

    def title_of(self, result: FittedResult) -> str:
        """Return the title."""
        return f"{result.model.name or 'Private regression'} Results" if self.title is None else self.title

    def check(self) -> SummaryOptions:
        """Return the options themselves if they are valid (else ArgumentError)."""
        check_fraction(self.alpha, "alpha")
        check_flag(self.slim, "slim")
        check_choice(self.notes, SummaryNotes, "notes")
        if not isinstance(self.yname, (str, type(None))):
            raise ArgumentError(f"yname= must be a string, got {type(self.yname).__name__}")
        return self


def summarize(result: FittedResult, options: SummaryOptions) -> PrivateSummary:
    """Return the summary of a result."""
    alpha = options.check().alpha
    names = options.names(result.names)
    has_intervals = result._inference.has_intervals
    flags = flags_of(result, dict(zip(result.names, names, strict=True)))
    header, cells, notes = _wald_table(result, alpha, flags) if has_intervals else _score_table(result, alpha)
    ranked_notes = result._context.ranked
    explained = (
        [note for note in ranked_notes if note.rank != "detail"] if options.slim else [*notes, *ranked_notes]
    )
    summary = PrivateSummary(
        title=options.title_of(result),
        top=_model_facts(result, options, flags),
        header=header,
        rows=[(name, *row) for name, row in zip(names, cells, strict=True)],
        tests=([], []) if options.slim else _test_facts(result, flags),
        privacy=privacy_facts(result.privacy),
        notes=[
            *_warnings(result),
            *_disagreement(result),
            *explained,
            *default_delta_notes(result.privacy),
            *whole_ledger_notes(result.privacy),
            *_assumptions(result.privacy),
        ],
        printed=options.notes,
        legend=marks_legend(flags.marks.values()) if has_intervals else "",
    )
    for column in result._summary_columns():
        summary = summary.with_column(column)
    return summary


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """Coefficients whose intervals are flagged, by reason; the texts are empty where none is.

    Attributes
    ----------
    weak : str
        Coefficients that are weakly identified.
    doubted : str
        Coefficients that a note doubts for another reason, such as a misfit.
    columns : tuple of str
        Names of the coefficients that such a note is about.
    marks : mapping of str to str
        The mark in tables of each coefficient that is flagged for either reason, by name.
    weighted : bool
        Whether the only problem of coefficients that a note doubts is the lower weight of outlying rows.
    """

    weak: str = ""
    doubted: str = ""
    columns: tuple[str, ...] = ()
    marks: Mapping[str, str] = field(default_factory=dict)
    weighted: bool = False


def flags_of(result: FittedResult, labels: Mapping[str, str] = MappingProxyType({})) -> Flags:
    """Return the coefficients whose intervals are flagged.

    Weakly identified coefficients are named, and so are those that notes of a fit name. Other flags are of
    the fit as a whole and apply to all coefficients. `labels` has other names for coefficients.
    """
    inference = result._inference
    if not inference.has_intervals:
        return Flags(weak=ALL if inference.converged else "")
    weakness = inference.weakness.dropna() if len(inference.weakness) else inference.weakness
    weak_texts = [text for _, text in inference.weak_intervals] if len(weakness) else []
    weak: list[str] = []
    doubts: list[str] = []
    for category, text in inference.interval_warnings:
        if issubclass(category, WEAK_WARNINGS):
            (weak if issubclass(category, WeakIdentificationWarning) else doubts).append(text)
    named = [note for note in result._context.ranked if note.columns]
    doubtful = [note for note in named if any(note.states(text) for text in doubts)]
    hiding = [note for note in named if note not in doubtful]
    hidden = [*weakness.index, *(name for note in hiding for name in note.columns)]
    doubted = tuple(dict.fromkeys(name for note in doubtful for name in note.columns))
    weak_jointly = [
        text for text in weak if text not in weak_texts and not any(note.states(text) for note in hiding)
    ]
    doubted_jointly = [text for text in doubts if not any(note.states(text) for note in doubtful)]
    several = len(result.names) > 1
    return Flags(
        weak=_flag(weak, weak_jointly, _listed(hidden, labels), (ALL_WEAK, MAINLY_WEAK if several else "")),
        doubted=_flag(
            doubts, doubted_jointly, _listed(doubted, labels), (ALL, MAINLY_DOUBTED if several else "")
        ),
        columns=doubted,
        marks=_marks(result.names, (weak, weak_jointly, hidden), (doubts, doubted_jointly, list(doubted))),
        weighted=bool(doubts) and all(text.startswith(OUTLYING_WEIGHTS) for text in doubts),
    )


def flagged_names(result: FittedResult) -> str:
    """Return the flagged coefficients for a cell of a table: their names, or all."""
    marked = flags_of(result).marks
    return ALL if len(marked) == len(result.names) > 1 else ", ".join(marked)


def marks_legend(marks: Iterable[str]) -> str:
    """Return what the marks of a table mean; empty if there is none."""
    present = set(marks)
    return ", ".join(f"{mark} {text}" for mark, text in MARK_LEGENDS.items() if mark in present)


def _marks(
    names: tuple[str, ...],
    weak: tuple[Sequence[str], Sequence[str], Sequence[str]],
    doubted: tuple[Sequence[str], Sequence[str], Sequence[str]],
) -> dict[str, str]:
    """Return the marks of flagged coefficients; of each kind its warnings, those of the whole fit, and names.

    A weakly identified coefficient that a note doubts too has the mark of a weak one.
    """
    marks: dict[str, str] = {}
    for mark, (texts, jointly, named) in ((NOTE_MARK, doubted), (FLAG_MARK, weak)):
        if texts:
            marks |= dict.fromkeys(named if named and not jointly else names, mark)
    return {name: marks[name] for name in names if name in marks}


def _listed(names: Iterable[str], labels: Mapping[str, str]) -> str:
    return ", ".join(labels.get(name, name) for name in dict.fromkeys(names))


def _flag(texts: Sequence[str], jointly: Sequence[str], names: str, of_all: tuple[str, str]) -> str:
    """Return the coefficients of some warnings: those with names, or all if a warning is of the whole fit."""
    if not texts:
        return ""
    if names and not jointly:
        return names
    everything, mainly = of_all
    return mainly.format(names) if names and mainly else everything


def large_delta(report: PrivacyReport, nobs: float) -> list[str]:
    """Return a list with the caution about a delta of 1/n or more; an empty list where it is smaller."""
    delta = report.default_delta
    large = 0.0 < report.epsilon(delta) < math.inf and delta * nobs >= 1.0
    return [DELTA_CAUTION.format(delta)] if large else []


def default_delta_notes(report: PrivacyReport) -> list[Note]:
    """Return the note on a delta that nobody chose; none where it was chosen, or without noise."""
    stated = report.delta_is_default and 0.0 < report.epsilon() < math.inf
    return [Note(DEFAULT_DELTA_NOTE.format(report.default_delta), "table")] if stated else []


def whole_ledger_notes(report: PrivacyReport) -> list[Note]:
    """Return the note on the epsilon of the whole ledger; none where the ledger has no other releases."""
    others = len(report.recorded) > len(report.entries)
    return [Note(WHOLE_LEDGER_NOTE.format(report.default_delta), "table")] if others else []


def privacy_facts(report: PrivacyReport) -> tuple[list[Fact], list[Fact]]:
    """Return the privacy block: the cost, the unit of privacy, and the trust model."""
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
        *((f"{name}:", value) for name, value in _equivalents(report)),
        *([("Spent by this fit:", "0 (uses a release)")] if earlier else []),
    ]
    if len(report.recorded) > len(report.entries):
        total = f"{report.cumulative.epsilon(delta):.4g}{_of_fit(report)}{report.stamp_of_others}"
        spent.append(("Epsilon, whole ledger:", total))
    meaning = [
        ("Unit of privacy:", report.unit),
        ("Neighbors:", report.relation),
        ("Trust model:", report.trust),
        ("Noise:", report.stamp or f"{source} (secure)"),
    ]
    return spent, meaning


def _equivalents(report: PrivacyReport) -> list[Fact]:
    """Return the cost in the other units that it has."""
    equivalents = []
    for name, unit in (("mu (Gaussian DP)", "mu"), ("rho (zCDP)", "rho")):
        try:
            equivalents.append((name, number(getattr(report, unit))))
        except NotAvailableError:
            continue
    return equivalents


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


def allowed_bias(bias: Floats | None, bse: Floats, name: str) -> list[Note]:
    """Return the note on the largest bias that intervals and p-values allow for; none without a bias."""
    if bias is None:
        return []
    size = float(np.max(bias / bse))
    return [Note(ALLOWED_BIAS.format(name, size), "table" if size > NOTABLE_BIAS else "detail")]


def _wald_table(
    result: FittedResult, alpha: float, flags: Flags
) -> tuple[list[str], list[list[str]], list[Note]]:
    interval = result._inference.interval(alpha)  # flagged at the head where it is weak
    notes = [Note(ERRORS_NOTE, "table")]
    try:
        sampling = result.bse_sampling.to_numpy()
    except NotAvailableError:
        sampling = np.full(len(result.names), np.nan)
        notes.append(Note(NO_SAMPLING_ERRORS, "table"))
    errors = ["-" if cell == "nan" else cell for cell in column(sampling)]
    total_errors = ["-" if cell == "nan" else cell for cell in column(result.bse)]
    notes += [Note(NO_WEAK_ERRORS, "table")] if "-" in total_errors else []
    columns = [
        column(result.params),
        total_errors,
        errors,
        [f"{statistic:.3f}" for statistic in result.tvalues],
        [f"{p:.3f}{flags.marks.get(name, '')}" for name, p in zip(result.names, result.pvalues, strict=True)],
        column(interval[:, 0]),
        column(interval[:, 1]),
    ]
    rows = [list(row) for row in zip(*columns, strict=True)]
    estimate = result.estimate
    single = result._inference.single is not None
    notes += [Note(T_NOTE.format(result.df_resid))] if math.isfinite(estimate.df_resid) and not single else []
    if not single:
        notes += allowed_bias(estimate.bias, estimate.bse, result._inference.bias_name)
    letter = "t" if result.use_t and not single else "z"
    return ["coef", "std err", "(no noise)", letter, f"P>|{letter}|", *_interval_header(alpha)], rows, notes


def _score_table(result: FittedResult, alpha: float) -> tuple[list[str], list[list[str]], list[Note]]:
    reason = result.estimate.weak_reason.removeprefix("no intervals: ")
    converged = result._inference.converged
    notes = list(must_read(f"No standard errors: {reason}." if converged else sentence(reason)))
    if not result.score_sets_are_quick(alpha):
        return ["coef"], [[number(coef)] for coef in result.params], [*notes, Note(SLOW_SETS, "table")]
    try:
        interval = result.conf_int(alpha, method="score").to_numpy()
    except NotAvailableError:
        rows = [[number(coef)] for coef in result.params]
        text = NO_INFERENCE if result._inference.no_scores else NO_SCORE_INTERVALS
        return ["coef"], rows, [*notes, Note(text, "table")]
    except (NotPositiveDefiniteError, ConvergenceError) as reason:
        rows = [[number(coef)] for coef in result.params]
        return ["coef"], rows, [*notes, Note(f"No score intervals: {reason}.", "table")]
    rows = [[number(coef), *ends] for coef, ends in zip(result.params, _ends(interval), strict=True)]
    low, high = _interval_header(alpha)
    return ["coef", f"score {low}", high], rows, [*notes, Note(SCORE_NOTE, "table")]


def _ends(interval: Floats) -> list[list[str]]:
    return [[number(low), number(high)] for low, high in interval]


def _interval_header(alpha: float) -> tuple[str, str]:
    return f"[{alpha / 2:.4g}", f"{1 - alpha / 2:.4g}]"


def _model_facts(
    result: FittedResult, options: SummaryOptions, flags: Flags
) -> tuple[list[Fact], list[Fact]]:
    name = result.model.endog_names if options.yname is None else options.yname
    alarms = [("Privacy:", NOT_PRIVATE)] if result.privacy.stamp else []
    level = result.model.response_level
    coded = "" if level is None else coded_response(name, level)
    if result.privacy.response_in_clear:
        alarms += [(RESPONSE_LABEL, UNPROTECTED.format(f"{coded}," if coded else name))]
    elif coded:
        alarms += [(RESPONSE_LABEL, coded)]
    if flags.weak:
        alarms += [NO_ERRORS if _strong_without_errors(result) else (WEAK_LABEL, flags.weak)]
    alarms += [(DOUBTED_LABEL, flags.doubted)] if flags.doubted else []
    alarms += [] if result._inference.converged else [NO_CONVERGENCE]
    model_facts = [
        *([("Dep. Variable:", name)] if name else []),
        ("Model:", result.model.name),
        *alarms,
        *([("Method:", result.method)] if result.method else []),
        *(
            (f"{name}:", str(value))
            for name, value in result.options.items()
            if _is_shown(result, name, value)
        ),
    ]
    target = _target_facts(result)
    label = observations_label(result._context.complete)
    if options.slim:
        fit_facts = [(label, f"{result.nobs:d}"), ("Covariance Type:", result.cov_type)]
        return model_facts[: 1 + bool(name) + len(alarms)], [*fit_facts, *target]
    fit_facts = [
        (label, f"{result.nobs:d}"),
        ("Df Residuals:", f"{result.df_resid:d}"),
        *(_moment_facts(result) if result.model.endog_names and _has_moments(result) else []),
        ("Covariance Type:", result.cov_type),
        *target,
    ]
    return model_facts, fit_facts


def observations_label(complete: CompleteRows | None) -> str:
    """Return the label of the number of rows: an estimate if noise hides how many were dropped."""
    return OBSERVATIONS if complete is None or complete.is_exact else ESTIMATED_OBSERVATIONS


def _is_shown(result: FittedResult, name: str, value: object) -> bool:
    """Return whether a summary prints an option: it is not the usual one, and no other row has it."""
    report = result.privacy
    usual = {"Trust": report.trust, **dict.fromkeys(RELATION_OPTIONS, report.relation), **USUAL_OPTIONS}
    return str(value) != usual.get(name) and (name, value) != ("Family", _FAMILY_OF.get(result.model.name))


def _target_facts(result: FittedResult) -> list[Fact]:
    """Return the target, with its assumptions, where it is not the regression on the rows themselves."""
    clipped = clipped_fact(result._context.ranked)
    target = result.target if result.target != "population" else clipped
    facts = [("Target:", target)] if target else []
    margins = margins_fact(result._context.ranked)
    facts += [("get_margeff() needs:", margins)] if margins else []
    facts += [(MISSING_LABEL, IMPUTED_VALUE)] if result._context.imputed else []
    facts += [(MISSING_LABEL, DROPPED_VALUE)] if result._context.complete is not None else []
    for assumption, fact in ((Assumptions.PUBLIC_PLACES, ORDER), (Assumptions.DATA_BOUNDS, DATA_BOUNDS)):
        if assumption in result.privacy.assumptions:
            facts = [*facts, fact]
    return facts


def _moment_facts(result: FittedResult) -> list[Fact]:
    measures = [
        ("R-squared (corrected):", _or_reason(lambda: result.rsquared)),
        *_noise_facts(result, "Noise in R-squared:", "rsquared"),
        ("Residual variance:", _or_reason(lambda: result.scale)),
        *_noise_facts(result, "Noise in variance:", "scale"),
    ]
    if not _shows_f(result):
        return measures
    further = [
        ("Adj. R-squared:", _or_reason(lambda: result.rsquared_adj)),
        ("F-statistic:", _or_reason(lambda: result.fvalue)),
        ("Prob (F-statistic):", _or_reason(lambda: result.f_pvalue)),
    ]
    return [*measures, *(fact for fact in further if fact[1] != UNKNOWN)]


def _has_moments(result: FittedResult) -> bool:
    """Return whether the model has R-squared and a residual variance."""
    return result._fit_statistics.no_moments is None


def _shows_f(result: FittedResult) -> bool:
    """Return whether F is shown: not if its normal inference about all slopes may be wrong."""
    return (
        _has_moments(result)
        and math.isfinite(result.estimate.df_resid)
        and not result._inference.weak_joint_inference
    )


def _disagreement(result: FittedResult) -> list[Note]:
    """Return the note on an F test and a score test of zero slopes that decide differently."""
    if not _shows_f(result):
        return []
    try:
        test = result.score_test()
        pvalues, fvalue = (result.f_pvalue, test.pvalue), result.fvalue
    except (NotAvailableError, NotPositiveDefiniteError, ConvergenceError):
        return []
    is_rejected = [pvalue < TEST_LEVEL for pvalue in pvalues if math.isfinite(pvalue)]
    if len(set(is_rejected)) > 1:
        return [Note(TESTS_DISAGREE, "table")]
    score = test.statistic / test.df
    if test.law != CHI_SQUARE or math.isinf(result.privacy.epsilon()) or min(fvalue, score) <= 0.0:
        return []
    factor = max(fvalue / score, score / fvalue)
    return [Note(TESTS_DIFFER.format(factor), "table")] if factor > LARGEST_FACTOR else []


def _strong_without_errors(result: FittedResult) -> bool:
    """Return whether standard errors are missing although the signal is strong, as in a plain fit."""
    if result._inference.has_intervals:
        return False
    try:
        return not result.identification.weak
    except NotAvailableError:
        return False


def _test_facts(result: FittedResult, flags: Flags) -> tuple[list[Fact], list[Fact]]:
    identification_facts: list[Fact] = []
    score_facts: list[Fact] = []
    try:
        strength = result.identification
        identification_facts.append(("Identification:", f"{strength.statistic:.4g}"))
        identification_facts.append(("Weak below:", f"{strength.threshold:.3g}"))
    except NotAvailableError:
        pass
    identification_facts.append(("Wald intervals:", _verdict(result, flags)))
    try:
        test = result.score_test()
        score_facts.append(("Score test, slopes 0:", test.law.described(test.statistic, test.df)))
        score_facts.append((test.law.tail + ":", shown_pvalue(test.pvalue, digits=3)))
        if test.df > 1 and test.law == CHI_SQUARE and _shows_f(result):
            score_facts.append((PER_DF, number(test.statistic / test.df)))
    except (NotAvailableError, NotPositiveDefiniteError, ConvergenceError):
        pass
    return identification_facts, score_facts


def _verdict(result: FittedResult, flags: Flags) -> str:
    """Return whether Wald intervals are flagged, or their assumptions."""
    if result._inference.single is not None:
        return REPLACED_BY_SCORES
    if result.estimate.cov is None:
        return "not available"
    if flags.weak:
        return "flagged as weak"
    if flags.doubted:
        return SEE_NOTES
    if result._context.rows_alone(result.cov_type):
        return "assume independent rows"
    if sampling_kind(result.cov_type) == "homoskedastic":
        return EQUAL_VARIANCE
    if result._context.target_changes(result.estimate):
        return "for clipped values"
    if result._context.imputed:
        return "for completed data"
    if result._context.complete is not None and all(
        note.kind == CHANGED_TARGET for note in result._context.ranked if note.rank == "must-read"
    ):
        return "for complete rows"
    if "clipped_at" in result._context.settings:
        return "for clipped residuals"
    return SEE_NOTES if any(note.rank == "must-read" for note in result._context.ranked) else "not flagged"


def _warnings(result: FittedResult) -> list[Note]:
    """Return the notes that come first; a stamp is a detail, since a row of the header has it."""
    stamp = result.privacy.stamp
    stamped = []
    if stamp == SIMULATION:
        stamped = [f"{SIMULATION}. The noise came from a seed, and anyone who knows the seed can remove it."]
    elif stamp:
        stamped = [f"{stamp}. At least one release has no noise, so it protects no row."]
    return [*(Note(text) for text in stamped), *(Note(text, "must-read") for text in _cautions(result))]


def _cautions(result: FittedResult) -> list[str]:
    lines = []
    lines += [sentence(text) for text in large_delta(result.privacy, result._context.table_rows(result.nobs))]
    if result._inference.has_intervals and (dependence := result._context.rows_alone(result.cov_type)):
        lines.append(sentence(dependence))
    try:
        if result._inference.single is not None:
            lines.append(SINGLE_WEAK_NOTE if len(result._inference.weakness) else SINGLE_NOTE)
        elif result.identification.weak and result.estimate.cov is not None:
            lines.append(WEAK_NOTE)
        if result.identification.steep and result.estimate.cov is not None:
            lines.append(sentence(STEEP.format(result.identification.stretch)))
        if sampling_kind(result.cov_type) == "homoskedastic":
            lines.append(EQUAL_VARIANCE_NOTE.format(_other_covariance(result)))
        if _floored(result):
            lines.append(FLOORED_NOTE)
        elif _has_moments(result) and result._context.variance_hidden:
            lines.append(HIDDEN_VARIANCE_NOTE)
        if "clipped_at" in result._context.settings:
            lines.append(CLIPPED_NOTE.format(result._context.settings["clipped_at"]))
    except NotAvailableError:
        pass
    return lines


def _other_covariance(result: FittedResult) -> str:
    """Return how to avoid the assumption of equal variances."""
    if result.model.name == "TwoStageLeastSquares":
        return ROBUST_INSTRUMENTS
    return ROBUST_RELEASE if result.privacy.subject == "earlier release" else ROBUST_FIT


def _floored(result: FittedResult) -> bool:
    """Return whether the covariance rests on a residual variance that the noise hides."""
    context = result._context
    no_moments = result._fit_statistics.no_moments
    if result.estimate.cov is None or result.target == "sample" or no_moments is not None:
        return False
    if sampling_kind(result.cov_type) == "homoskedastic":
        return context.scale is None
    return context.sampling_cov is not None and not context.sampling_cov.any()


def _assumptions(report: PrivacyReport) -> list[str]:
    return [f"The privacy guarantee assumes: {readable(text).rstrip('.')}." for text in report.assumptions]


def _noise_facts(result: FittedResult, label: str, name: str) -> list[Fact]:
    """Return the standard error that noise causes in a measure of fit that is available and has noise."""
    noise = result._context.measure_noise.get(f"{name}_noise", 0.0)
    shown = noise and _or_reason(lambda: getattr(result, name)) != UNKNOWN
    return [(label, number(noise))] if shown else []


def _or_reason(figure: object) -> str:
    try:
        return number(figure())  # type: ignore[operator]
    except NotAvailableError:
        return UNKNOWN
