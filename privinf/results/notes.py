"""Notes of a result, each with a rank by which a summary chooses; notes on imputed and clipped values."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from privinf.accounting import PrivacyReport
from privinf.completeness import CompleteRows
from privinf.errors import ArgumentError
from privinf.typing import NoteRank
from privinf.validation import check_choice

# Kind of the caution about coefficients that do not describe the rows as they are.
CHANGED_TARGET = "ChangedTarget"
IMPUTING = "impute-public"
MISSING_LABEL = "Missing values:"
IMPUTED_VALUE = "middle of bounds"
DROPPED_VALUE = "rows dropped"
CLIPPED = "Target: the regression on values clipped to their public bounds."
CLIPPED_COLUMNS = "Target: the regression on private columns {}; {} is not clipped."
CLIPPED_RESPONSE = (
    "Target: the regression with the response clipped to its public bounds; the columns have no bounds and "
    "are not clipped."
)
TARGET = "Target: the regression "
CLIPPED_PAIRS = "Correlations are between values clipped to their public bounds."
COMPLETED = (
    "Target: the regression on values clipped to their public bounds, with missing values set to the middle "
    "of these bounds."
)
REPLACED = "missing values were replaced by the middle of their "  # so begin the texts on imputed values
IMPUTED = (
    f"{REPLACED}bounds or the first level of a factor: estimates describe the completed data, and slopes of "
    "columns with missing values are usually biased towards zero"
)
COMPLETE_ROWS = (
    "About {:,} of {:,} rows are complete (95% interval {:,} to {:,}); the estimates describe the complete "
    "rows, and this number of observations is an estimate."
)
# The same where the noisy number is below the least that a fit uses.
FEW_COMPLETE_ROWS = (
    "Probably at most {:,} of {:,} rows are complete (95% interval {:,} to {:,}), so one or more columns may "
    "be almost entirely missing. The number of observations is set to {:,}, which is the least that is used "
    "and may be too large."
)
# The same without noise, where these rows are counted.
FEW_COUNTED_ROWS = (
    "Only {:,} of {:,} rows are complete, so one or more columns may be almost entirely missing. The "
    "number of observations is set to {:,}, which is the least that is used and is too large."
)
# The same of a fit without noise, which counts them.
COUNTED_ROWS = "{:,} of {:,} rows are complete, and the estimates describe these rows."
COMPLETE_TARGET = (
    "The estimates hold for all rows if the model is right and, given the columns, whether a row is complete "
    "does not depend on the response."
)
COMPLETE_SAMPLE_TARGET = (
    "The estimates hold for all rows if whether a row is complete does not depend on its values."
)
IMPUTED_SAMPLE = (
    f"{REPLACED}bounds or the first level of a factor: estimates and tests describe the completed data"
)

# What to do about values outside the bounds, which can be codes.
IF_OUTSIDE = (
    "declare wider bounds; or, if these are codes of missing values such as -9 or 999, declare them as "
    "pi.Numeric(low, high, missing_codes=[-9])"
)
OUTSIDE = (
    "{} lie outside their public bounds and were clipped to them, so coefficients describe the clipped "
    f"values: {IF_OUTSIDE}"
)
# The same of numbers with the bounds (0, 1), which are probably other codes of yes and no.
OUTSIDE_CODES = (
    "{} are outside the bounds 0 and 1 and were clipped to them, as happens to a yes/no column with the "
    "codes 1 and 2: declare the two values of such a column as levels, as in [1, 2]"
)
# The same of the response of a logistic fit, whose bounds are always 0 and 1.
OUTSIDE_OUTCOME = (
    "{} are outside the bounds 0 and 1 and were clipped to them. For the codes 1 and 2, declare the levels "
    "[1, 2], and write I({} == 2) as the response in the formula"
)
OUTSIDE_STATUS = (
    "according to noisy counts, about {} of the values of the status {!r} are neither 0 nor 1, and "
    "values above 1 counted as events: declare the two values of the status as levels, the event second"
)
AT_AN_END = (
    "nearly all values of {} lie at one end of their public bounds, or are clipped to it: check these bounds "
    "and declare others; codes of missing values are declared with missing_codes="
)
# Of a column with the bounds (0, 1).
ALL_ALIKE = (
    "nearly all values of {} are at the same end of the bounds 0 and 1, or are clipped to it: if the column "
    "has other codes of yes and no, such as 1 and 2, declare its two values as levels, as in [1, 2]"
)

# Beginning of the warning of a logistic fit about the weights of its rows.
OUTLYING_WEIGHTS = "outlying rows have less weight"
ALL_EVENTS = (
    "hardly any record is censored. If the status has other codes than 0 and 1, such as 1 and 2, values "
    "above 1 counted as events: declare the two values of the status as levels, the event second"
)
NEGATIVE_TIMES = (
    "about {:.2g}% of the times are negative. They count as times of 0. If negative numbers are codes of "
    "missing times, such as -9, declare the codes by missing_codes= of the column"
)
CLEAR_NEGATIVE = 3.0  # sds of its noise that the number of negative times exceeds if it is stated
SOME_NEGATIVE = 0.001  # share of the records that it exceeds then
MOST_EVENTS = 0.99  # share of events above which a note asks for the codes of the status

MAIN_NOTES = 4  # a summary prints no more notes than this


@dataclass(frozen=True, slots=True)
class Note:
    """One sentence or more about a result, and how much a reader needs it.

    Attributes
    ----------
    text : str
    rank : {"header", "must-read", "table", "detail"}
        "header": the target of the estimates, a row at the head of a summary. "must-read": what a reader must
        know before using the numbers. "table": what the columns of the table are. "detail": the rest.
    kind : str
        Kind of the caution that says the same (`privinf.results.export`), such as "ChangedTarget"; empty
        where there is none.
    columns : tuple of str
        Coefficients whose intervals the note doubts; the summary names them at its head. Empty for a note on
        the fit as a whole.

    Notes
    -----
    **Privacy.** A function of releases and of public arguments.
    """

    text: str
    rank: NoteRank = "detail"
    kind: str = ""
    columns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_choice(self.rank, NoteRank, "rank")
        if not all(isinstance(text, str) for text in (self.text, self.kind, *self.columns)):
            raise ArgumentError("text, kind and columns of a note must be strings")

    def __str__(self) -> str:
        return self.text

    def states(self, text: str) -> bool:
        """Return whether the note has the text of a warning."""
        return self.text in (text, sentence(text)) or text.startswith(self.text)


# Note of a fit of which average marginal effects are not available.
MARGINS_NOTE = (
    "Average marginal effects need fit(margins=True): the Hessian of this fit does not determine them well "
    "enough."
)


def ranked(notes: Iterable[str | Note]) -> tuple[Note, ...]:
    """Return notes as they are; a text without a rank is a detail."""
    return tuple(note if isinstance(note, Note) else Note(note) for note in notes)


def must_read(*texts: str, columns: tuple[str, ...] = ()) -> tuple[Note, ...]:
    """Return notes that a reader must know before using the numbers; `columns` are those that they doubt."""
    return tuple(Note(text, "must-read", columns=columns) for text in texts)


def main_notes(notes: Iterable[Note]) -> tuple[Note, ...]:
    """Return the notes that a summary prints unless it is requested all of them.

    Those that must be read come first, then those that explain the table, at most `MAIN_NOTES` together.
    """
    all_notes = tuple(notes)
    first = [note for note in all_notes if note.rank == "must-read"]
    columns = [note for note in all_notes if note.rank == "table"]
    return (*first, *columns)[:MAIN_NOTES]


def margins_fact(notes: Iterable[Note]) -> str:
    """Return what average marginal effects need, for a row at the head of a summary; empty if nothing."""
    return "fit(margins=True)" if any(note.text == MARGINS_NOTE for note in notes) else ""


def clipped_fact(notes: Iterable[Note]) -> str:
    """Return the clipped variables, for a row at the head of a summary; empty without clipping."""
    texts = [note.text for note in notes if note.rank == "header" and note.text.startswith(TARGET)]
    if not texts:
        return ""
    if "private columns" in texts[0]:
        return "clipped columns"
    return "clipped response" if "response" in texts[0] else "clipped values"


def sentence(text: str) -> str:
    """Return the text of a warning or caution as a sentence."""
    return f"{text[0].upper()}{text[1:]}."


def imputes(*mappings: Mapping[str, Any]) -> bool:
    """Return whether settings, or the noise model of a release, have the option to impute missing values.

    They have it whether or not values were missing. Releases and results of older versions lack it.
    """
    return any(mapping.get("missing") == IMPUTING for mapping in mappings)


def complete_notes(settings: Mapping[str, Any]) -> tuple[Note, ...]:
    """Return the notes of a result whose incomplete rows were dropped: number of complete rows, target."""
    complete = CompleteRows.from_settings(settings)
    if complete is None:
        return ()
    return Note(complete_text(complete), "must-read", CHANGED_TARGET), Note(COMPLETE_TARGET, "table")


def earlier_complete_texts(settings: Mapping[str, Any]) -> frozenset[str]:
    """Return what files of earlier versions have in place of the notes on complete rows."""
    complete = CompleteRows.from_settings(settings)
    if complete is None:
        return frozenset()
    return frozenset({COMPLETE_ROWS.format(complete.rows, complete.of, *complete.interval), COMPLETE_TARGET})


def counted_records(result: Any) -> str:
    """Return the number of records of a fit, marked where it is the estimate for complete rows."""
    complete = getattr(getattr(result, "_context", None), "complete", None)
    is_known = complete is None or complete.is_exact
    return f"{int(result.nobs):d}" if is_known else f"{int(result.nobs):d} (est.)"


def all_events_notes(events: float, n: int) -> tuple[Note, ...]:
    """Return the note on times of which hardly any is censored, as with codes that are clipped to 1."""
    return (Note(sentence(ALL_EVENTS), "table"),) if hardly_censored(events, n) else ()


def hardly_censored(events: float, n: int) -> bool:
    """Return whether nearly all records have an event, as if the codes of the status were clipped to 1."""
    return events > MOST_EVENTS * n


def negative_times_texts(negative: tuple[float, float] | None, n: int) -> tuple[str, ...]:
    """Return the text on negative times of n records, if their number stands out of its noise.

    Parameters
    ----------
    negative : (float, float) or None
        Number of negative times, and the sd of its noise; None if it was not released.
    n : int
    """
    if negative is None:
        return ()
    count, sd = negative
    if count <= max(CLEAR_NEGATIVE * sd, SOME_NEGATIVE * n):
        return ()
    return (NEGATIVE_TIMES.format(100.0 * min(count / n, 1.0)),)


def complete_sample_notes(complete: CompleteRows | None) -> tuple[Note, ...]:
    """Return the notes of a test whose incomplete rows were dropped; none where no rows were."""
    if complete is None:
        return ()
    return Note(complete_text(complete), "must-read", CHANGED_TARGET), Note(COMPLETE_SAMPLE_TARGET, "table")


def complete_text(complete: CompleteRows) -> str:
    """Return the sentence on how many rows are complete: an interval, or without noise the number."""
    low, high = complete.interval
    if complete.is_exact and complete.total is not None:
        return FEW_COUNTED_ROWS.format(round(complete.total), complete.of, complete.rows)
    if complete.is_exact:
        return COUNTED_ROWS.format(complete.rows, complete.of)
    if complete.is_raised:
        return FEW_COMPLETE_ROWS.format(high, complete.of, low, high, complete.rows)
    return COMPLETE_ROWS.format(complete.rows, complete.of, low, high)


def target_notes(report: PrivacyReport) -> tuple[Note, ...]:
    """Return the target of a fit with noise: the regression on values clipped to their public bounds."""
    return () if math.isinf(report.epsilon()) else (Note(CLIPPED, "header"),)


def clipped_texts(
    settings: Mapping[str, Any], codes: Collection[str] = (), outcome: str = ""
) -> tuple[str, ...]:
    """Return evidence of releases on values outside their bounds: shares by name, and means at an end.

    `codes` are the columns with the bounds (0, 1), whose values outside are probably other codes of yes and
    no, and `outcome` is the response of a logistic fit.
    """
    shares = dict(settings.get("clipped", {}))
    counts = settings.get("outside_counts", {})
    ends = settings.get("at_an_end", ())
    status = settings.get("hazards", {}).get("status")
    status_share = shares.pop(status, None)
    at_end = [name for name in ends if name not in shares]
    alike = [name for name in at_end if name in codes]
    names_at_end = ", ".join(repr(name) for name in at_end if name not in codes)
    numbers = {name: share for name, share in shares.items() if name not in codes}
    coded = {name: share for name, share in shares.items() if name in codes}
    outcome_share = coded.pop(outcome, None)
    texts = []
    if outcome_share is not None:
        texts.append(OUTSIDE_OUTCOME.format(_of_values({outcome: outcome_share}, counts), outcome))
    texts += [OUTSIDE.format(_of_values(numbers, counts))] if numbers else []
    texts += [OUTSIDE_CODES.format(_of_values(coded, counts))] if coded else []
    texts += [ALL_ALIKE.format(", ".join(map(repr, alike)))] if alike else []
    if status_share is not None:
        texts.append(OUTSIDE_STATUS.format(_percent(float(status_share)), status))
    return (*texts, *([AT_AN_END.format(names_at_end)] if names_at_end else []))


def _percent(share: float) -> str:
    """Return a share in percent: with two digits below 2%."""
    return f"{share:.0%}" if share >= 0.02 else f"{100.0 * share:.2g}%"


def _of_values(shares: Mapping[str, float], counts: Mapping[str, Any]) -> str:
    """Return shares outside of bounds, one column or more, as the subject of a sentence.

    `counts` are those of `privinf.results.outside_counts`; files of earlier versions have none.
    """
    parts = []
    for name, share in shares.items():
        number = counts.get("counts", {}).get(name)
        sd = f", standard error {counts['sd']:,.0f}" if counts.get("sd") else ""
        of = "" if number is None else f" ({number:,.0f} of {counts['rows']:,}{sd})"
        parts.append(f"{_percent(float(share))} of the values of {name!r}{of}")
    listed = f"{', '.join(parts[:-1])}{' and ' * (len(parts) > 1)}{parts[-1]}"
    return f"according to noisy counts, about {listed}"


def with_imputation(notes: Iterable[str | Note]) -> tuple[Note, ...]:
    """Return the notes of a result of imputed rows: its target, and the effect on estimates."""
    target = Note(COMPLETED, "header")
    effect = Note(sentence(IMPUTED), "must-read", CHANGED_TARGET)
    # A saved result has these notes in the words of the version that wrote it.
    remaining = (
        note for note in ranked(notes) if not note.text.startswith((TARGET, sentence(REPLACED)[:-1]))
    )
    return (target, effect, *remaining)
