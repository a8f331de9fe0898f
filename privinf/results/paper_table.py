"""Tables for papers, in LaTeX, HTML or Word: coefficients with errors or intervals, and a note on privacy."""

from __future__ import annotations

import html
import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd

from privinf.accounting import PrivacyReport
from privinf.accounting.report import rounded_up
from privinf.error_boundary import POSITIONAL, error_boundaries, error_boundary, refuses
from privinf.errors import ArgumentError, ConvergenceError, NotAvailableError, NotPositiveDefiniteError
from privinf.results.export import Export, caution_kinds
from privinf.results.fitted import FittedResult
from privinf.results.notes import complete_text
from privinf.results.rendering import FLAG_MARK, NOTE_MARK, UnavailableFormats, latex
from privinf.results.summary import Flags, flags_of
from privinf.storage.checksummed import save_bytes
from privinf.typing import AnyPath, Floats, PaperCells
from privinf.validation import check_choice, check_count, check_flag, check_fraction

# Levels below which a p-value has so many stars: those of statsmodels' summary_col, so that tables agree.
STAR_LEVELS = (0.1, 0.05, 0.01)
DROPPED = "Rows with missing values were dropped."
STAR_NOTE = "* p < 0.1, ** p < 0.05, *** p < 0.01."
MOST_DIGITS = 15  # a double has no more
LEAST_DIGITS = 3  # after the point, where the caller does not choose the digits
SIGNIFICANT_DIGITS = 2  # that the standard error of a row has at least, or half the length of its interval
ERRORS = "Standard errors include the privacy noise."
# The same of a fit, whose summary names the covariance type.
TYPED_ERRORS = "Standard errors ({}) include the privacy noise."
INTERVALS = "{:g}% intervals include the privacy noise."
SCORE_INTERVALS = (
    "The noise is too strong for normal inference about all coefficients, so {:g}% intervals from a score "
    "test of each coefficient replace the standard errors."
)
NO_INTERVALS = "Standard errors and intervals are not available{}."
DOUBTED = "The summary has notes on: {}."
# Under standard errors alone: an interval is not the coefficient plus or minus two of them.
BIASED = (
    "Intervals and p-values of {}{} allow for a possible bias of more than half a standard error, which "
    "standard errors do not include."
)
ROLES = ("Exposure", "Offset", "Weights")  # options of a fit, whose columns have no coefficients
STATED_BIAS = 0.5  # standard errors; a bound of this size makes a 95% interval a fifth longer
MARKED_WEAK = f"{FLAG_MARK} weakly identified: the privacy noise may hide the coefficient."
# Of coefficients with a note that is not about noise, as the summary of the fit states.
MARKED_NOTED = f"{NOTE_MARK} not weakly identified, but possibly biased: see the notes of the summary."
# The same where the only such note is about the weights of a logistic fit.
MARKED_WEIGHTED = (
    f"{NOTE_MARK} not weakly identified, but possibly biased by the lower weight of outlying rows if the "
    "model does not hold for these rows."
)
UNBOUNDED = "not available"
NO_RATIO_CELLS = (
    "cells={!r} is not available, because tables of fits contain coefficients: use "
    "result.odds_ratios().to_latex() for one fit, and pandas.concat({{name: fit.odds_ratios()}}, axis=1) for "
    "several fits"
)
# What callers may pass to request ratios in a table.
RATIO_CELLS = ("or", "odds", "odds_ratio", "odds_ratios", "odds ratios", "irr", "hr", "exp")


NO_MAKETABLES = "tables in Word need the package maketables: run pip install 'privinf[tables]'"
NO_WORD_PATH = "path= must end with .docx, so that Word opens the file"
NO_FILE = "to a file: pathlib.Path('table.tex').write_text(result.to_latex())"
# What `refuses` states of methods that return a table as text.
TEXT_ONLY = {
    POSITIONAL: f"takes arguments by name only, and no path. Write the text that it returns {NO_FILE}",
    **dict.fromkeys(("path", "buf"), f"is not an option. Write the text that the method returns {NO_FILE}"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperTable:
    """The cells of a table and the note below it, as text.

    Attributes
    ----------
    header : tuple of str
        Heads of the columns; that of the names is empty.
    rows : sequence of tuple of str
        Name and cells of each coefficient.
    note : str
        Privacy, number of records, what the errors include, and what stars mean.
    facts : sequence of tuple of str
        Name and cells of each row below a second rule, such as the number of records; empty without them.
    """

    header: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    note: str
    facts: Sequence[tuple[str, ...]] = ()

    def to_latex(self, caption: str | None, label: str | None) -> str:
        """Return a ``table`` environment that needs the packages booktabs and threeparttable."""
        heads = " & ".join(map(latex, self.header)) + r" \\"
        body = [" & ".join(map(latex, row)) + r" \\" for row in self.rows]
        facts = [" & ".join(map(latex, row)) + r" \\" for row in self.facts]
        lines = [r"\begin{table}", r"\centering", r"\begin{threeparttable}"]
        lines += [] if caption is None else [rf"\caption{{{latex(caption)}}}"]
        lines += [] if label is None else [rf"\label{{{label}}}"]
        lines += [rf"\begin{{tabular}}{{l{'r' * (len(self.header) - 1)}}}", r"\toprule", heads, r"\midrule"]
        lines += [*body, *([r"\midrule", *facts] if facts else []), r"\bottomrule"]
        lines += [r"\end{tabular}", r"\begin{tablenotes}\footnotesize"]
        lines += [rf"\item {latex(self.note)}", r"\end{tablenotes}", r"\end{threeparttable}", r"\end{table}"]
        return "\n".join(lines)

    def to_html(self, caption: str | None) -> str:
        """Return one HTML table, the note in its foot."""
        heads = "".join(f'<th scope="col">{html.escape(head)}</th>' for head in self.header)
        lines = ["<table>", *([] if caption is None else [f"<caption>{html.escape(caption)}</caption>"])]
        lines += [f"<thead><tr>{heads}</tr></thead>", "<tbody>"]
        for name, *cells in [*self.rows, *self.facts]:
            entries = "".join(f"<td>{html.escape(cell)}</td>" for cell in cells)
            lines.append(f'<tr><th scope="row">{html.escape(name)}</th>{entries}</tr>')
        foot = f'<tr><td colspan="{len(self.header)}">{html.escape(self.note)}</td></tr>'
        return "\n".join([*lines, "</tbody>", f"<tfoot>{foot}</tfoot>", "</table>"])

    def to_word(self, path: AnyPath, caption: str | None, overwrite: bool) -> None:
        """Write a Word file that contains one table, the note in its last row.

        Raises
        ------
        ArgumentError
            The path does not end with .docx, or the file exists and `overwrite` is not True.
        NotAvailableError
            The package maketables is not installed.
        """
        if Path(path).suffix.lower() != ".docx":
            raise ArgumentError(NO_WORD_PATH)
        try:
            from maketables import MTable
        except ImportError:
            raise NotAvailableError(NO_MAKETABLES) from None
        lines = [*self.rows, *self.facts]
        names = pd.Index([line[0] for line in lines], dtype=object)
        cells = pd.DataFrame([line[1:] for line in lines], names, list(self.header[1:]), dtype=object)
        document = MTable(cells, notes=self.note, caption=caption).make(type="docx")
        content = io.BytesIO()
        document.save(content)
        save_bytes(path, content.getvalue(), overwrite=overwrite)


@error_boundaries
class PortablePaperTable(UnavailableFormats):
    """A result that is one table of a paper, in LaTeX, HTML and Word; its class has `_paper_table`."""

    __slots__ = ()

    @refuses(TEXT_ONLY)
    def to_latex(
        self, *, digits: int | None = None, caption: str | None = None, label: str | None = None
    ) -> str:
        """Return a LaTeX table for a paper, which needs the packages booktabs and threeparttable.

        Parameters
        ----------
        digits : int, optional
            Number of digits after the decimal point, at most 15. By default it is the same as in the summary.
            Tables of `pi.stats.describe` have two, and more if half the length of an interval needs more for
            two significant digits.
        caption, label : str, optional
            Caption and LaTeX label of the table.

        Returns
        -------
        str
            LaTeX code of the table: estimates with their intervals, standard errors where the result has
            them, and p-values of pairs. The note below the table states the test, the effect sizes, epsilon,
            delta, the unit of privacy and the number of records. The note also states whether intervals hold
            jointly, and contains the warnings and the kinds of cautions of the result.

        Raises
        ------
        ArgumentError
            Raised if an argument is invalid.

        Notes
        -----
        **Privacy.** Costs nothing: it uses only released numbers.
        """
        return self._paper_table(check_digits(digits)).to_latex(caption, label)

    @refuses(TEXT_ONLY)
    def to_html(self, *, digits: int | None = None, caption: str | None = None) -> str:
        """Return the same table as `to_latex` in HTML, with the note below the table.

        Parameters
        ----------
        digits : int, optional
            Number of digits after the decimal point, at most 15. By default it is the same as in the summary.
            Tables of `pi.stats.describe` have two, and more if half the length of an interval needs more for
            two significant digits.
        caption : str, optional
            Title above the table.

        Returns
        -------
        str
            HTML text of the table.

        Raises
        ------
        ArgumentError
            Raised if an argument is invalid.

        Notes
        -----
        **Privacy.** Costs nothing: it uses only released numbers.
        """
        return self._paper_table(check_digits(digits)).to_html(caption)

    def to_word(
        self,
        path: AnyPath,
        *,
        digits: int | None = None,
        caption: str | None = None,
        overwrite: bool = False,
    ) -> None:
        """Write the same table as `to_latex` to a Word file, with the note below the table.

        Parameters
        ----------
        path : path
            File to write. Its name must end with ``.docx``.
        digits : int, optional
            Number of digits after the decimal point, at most 15. By default it is the same as in the summary.
            Tables of `pi.stats.describe` have two, and more if half the length of an interval needs more for
            two significant digits.
        caption : str, optional
            Title above the table.
        overwrite : bool
            Whether to replace an existing file.

        Raises
        ------
        ArgumentError
            Raised if an argument is invalid, or if the file exists and `overwrite` is not True.
        NotAvailableError
            Raised if the package maketables is not installed (``privinf[tables]``).

        Notes
        -----
        **Privacy.** Costs nothing: it uses only released numbers.
        """
        self._paper_table(check_digits(digits)).to_word(path, caption, overwrite)

    def _paper_table(self, digits: int | None) -> PaperTable:
        """Return the cells and the note; numbers as in the summary where `digits` is None."""
        raise NotImplementedError


class RatioFrame(pd.DataFrame):
    """Ratios and the ends of their intervals, as a DataFrame whose tables for papers state the privacy."""

    _metadata: ClassVar[list[str]] = ["paper_head", "paper_note", "paper_marks"]
    paper_head: str
    paper_note: str

    @error_boundary
    @refuses(TEXT_ONLY)
    def to_latex(  # type: ignore[override]
        self, *, digits: int | None = None, caption: str | None = None, label: str | None = None
    ) -> str:
        """Return a LaTeX table for a paper, which needs the packages booktabs and threeparttable.

        Parameters
        ----------
        digits : int, optional
            Number of digits after the decimal point, at most 15. By default each row has three, and more if
            half the length of its interval needs more for two significant digits.
        caption, label : str, optional
            Caption and LaTeX label of the table.

        Returns
        -------
        str
            Ratios and intervals, with a dagger at the ratios of flagged coefficients. The note below the
            table states epsilon, delta, the unit of privacy, the number of records, the kinds of the result's
            cautions, and the flagged coefficients.

        Raises
        ------
        ArgumentError
            An argument is invalid.

        Notes
        -----
        **Privacy.** Costs nothing: it uses only released numbers.
        """
        return self._paper_table(digits).to_latex(caption, label)

    @error_boundary
    @refuses(TEXT_ONLY)
    def to_html(  # type: ignore[override]
        self, *, digits: int | None = None, caption: str | None = None
    ) -> str:
        """Return the same table as `to_latex` in HTML, with the note below the table.

        Parameters
        ----------
        digits : int, optional
            Number of digits after the decimal point, at most 15. By default each row has three, and more if
            half the length of its interval needs more for two significant digits.
        caption : str, optional
            Title above the table.

        Returns
        -------
        str
            HTML text of the table.

        Raises
        ------
        ArgumentError
            An argument is invalid.

        Notes
        -----
        **Privacy.** Costs nothing: it uses only released numbers.
        """
        return self._paper_table(digits).to_html(caption)

    @error_boundary
    def to_word(
        self,
        path: AnyPath,
        *,
        digits: int | None = None,
        caption: str | None = None,
        overwrite: bool = False,
    ) -> None:
        """Write the same table as `to_latex` to a Word file, with the note below the table.

        Parameters
        ----------
        path : path
            File to write. Its name must end with ``.docx``.
        digits : int, optional
            Number of digits after the decimal point, at most 15. By default each row has three, and more if
            half the length of its interval needs more for two significant digits.
        caption : str, optional
            Title above the table.
        overwrite : bool
            Whether to replace an existing file.

        Raises
        ------
        ArgumentError
            Raised if an argument is invalid, or if the file exists and `overwrite` is not True.
        NotAvailableError
            Raised if the package maketables is not installed (``privinf[tables]``).

        Notes
        -----
        **Privacy.** Costs nothing: it uses only released numbers.
        """
        self._paper_table(digits).to_word(path, caption, overwrite)

    def _paper_table(self, digits: int | None) -> PaperTable:
        """Return the cells and the note."""
        places = check_digits(digits)
        rows = []
        for name, ratio, low, high in self.itertuples():
            place = row_digits([spread_of(ratio, low=low, high=high)], places)
            mark = self.paper_marks.get(name, "")
            rows.append((str(name), f"{ratio:.{place}f}{mark}", f"[{low:.{place}f}, {high:.{place}f}]"))
        return PaperTable(header=("", str(self.columns[0]), self.paper_head), rows=rows, note=self.paper_note)


def ratios(result: FittedResult, title: str, alpha: float) -> RatioFrame:
    """Return exp of the coefficients of a result and of the ends of their intervals."""
    ends = result.conf_int(alpha).to_numpy()
    with np.errstate(over="ignore"):
        numbers = np.exp(np.column_stack([np.asarray(result.estimate.params), ends]))
    columns = [title, f"[{alpha / 2:.4g}", f"{1 - alpha / 2:.4g}]"]
    frame = RatioFrame(numbers, list(result.names), columns)
    level = 100 * (1 - alpha)
    note = [privacy_note(result.privacy, result._context.records(result.nobs))]
    note += dropped_sentences(result)
    note.append(INTERVALS.format(level))
    flags = flags_of(result)
    note += model_sentences(result)
    note += caution_sentences(result, flags)
    object.__setattr__(frame, "paper_head", f"{level:g}% interval")
    object.__setattr__(frame, "paper_note", " ".join(note))
    object.__setattr__(frame, "paper_marks", dict(flags.marks))
    return frame


def model_sentences(result: FittedResult) -> list[str]:
    """Return which level of a response counts as 1, and which columns are exposure, offset and weights."""
    coded, options = result.model.coded_response, result.options
    sentences = [f"Response: {coded}."] if coded else []
    return sentences + [f"{role}: {options[role]}." for role in ROLES if role in options]


def dropped_sentences(result: FittedResult) -> list[str]:
    """Return that incomplete rows were dropped, with the number of complete rows; nothing where none were."""
    complete = result._context.complete
    return [] if complete is None else [DROPPED, complete_text(complete)]


def caution_sentences(result: FittedResult, flags: Flags) -> list[str]:
    """Return sentences about cautions and flagged coefficients for the note of a table."""
    cautions = Export(result).cautions
    weak = result._inference.weakness.dropna()
    sentences = [f"Cautions: {caution_kinds(cautions)}."] if cautions else []
    sentences += [f"Weakly identified: {', '.join(weak.index)}."] if len(weak) else []
    sentences += [DOUBTED.format(flags.doubted)] if flags.doubted else []
    return [*sentences, *mark_sentences([flags])]


def biased_names(result: FittedResult) -> list[str]:
    """Return the coefficients whose intervals are much longer than their standard errors say."""
    estimate = result.estimate
    if estimate.bias is None or estimate.cov is None:
        return []
    stated = zip(estimate.names, estimate.bias, estimate.bse, strict=True)
    return [name for name, bias, se in stated if bias > STATED_BIAS * se]


def mark_sentences(several: Iterable[Flags]) -> list[str]:
    """Return what the marks of a table mean, for its note; nothing if it has none."""
    marked = [flags for flags in several if flags.marks]
    noted = [flags for flags in marked if NOTE_MARK in flags.marks.values()]
    sentences = [MARKED_WEAK] if any(FLAG_MARK in flags.marks.values() for flags in marked) else []
    if noted:
        sentences.append(MARKED_WEIGHTED if all(flags.weighted for flags in noted) else MARKED_NOTED)
    return sentences


def paper_table(
    result: FittedResult, *, cells: PaperCells, stars: bool, alpha: float, digits: int | None
) -> PaperTable:
    """Return the table of a result; see `Results.to_latex`."""
    check_paper_options(cells, stars, alpha, digits)
    shows_errors = cells == "se" and result.estimate.cov is not None and not has_score_intervals(result)
    starred = stars and result._inference.has_intervals
    flags = flags_of(result)
    marks = star_marks(np.asarray(result.pvalues)) if starred else [""] * len(result.names)
    marks = flag_marks(marks, result.names, flags)
    ends = np.full((len(result.names), 2), np.nan) if shows_errors else _intervals(result, alpha)
    known = np.asarray(result.bse) if shows_errors else np.full(len(result.names), np.nan)
    spreads = map(spread_of, result.params, known, *ends.T)
    places = [row_digits([spread], digits) for spread in spreads]
    estimates = [
        f"{value:.{place}f}{mark}" for value, place, mark in zip(result.params, places, marks, strict=True)
    ]
    if shows_errors:
        head = "Std. error"
        errors = [f"{value:.{place}f}" for value, place in zip(known, places, strict=True)]
    else:
        head = f"{100 * (1 - alpha):g}% interval"
        errors = [
            UNBOUNDED if np.isnan(pair).all() else f"[{pair[0]:.{place}f}, {pair[1]:.{place}f}]"
            for pair, place in zip(ends, places, strict=True)
        ]
    note = [privacy_note(result.privacy, result._context.records(result.nobs)), *dropped_sentences(result)]
    note += model_sentences(result)
    if result.privacy.response_in_clear:
        note.append(f"{result.model.endog_names} is NOT protected.")
    if shows_errors:
        note.append(TYPED_ERRORS.format(result.cov_type) if result.cov_type else ERRORS)
        note += [BIASED.format(", ".join(names), "")] if (names := biased_names(result)) else []
    elif all(cell == UNBOUNDED for cell in errors):
        reason = result.estimate.weak_reason.removeprefix("no intervals: ")
        note.append(NO_INTERVALS.format(f": {reason}" if reason else ""))
    elif has_score_intervals(result):
        note.append(SCORE_INTERVALS.format(100 * (1 - alpha)))
    else:
        note.append(INTERVALS.format(100 * (1 - alpha)))
    note += [STAR_NOTE] if starred else []
    note += caution_sentences(result, flags)
    return PaperTable(
        header=("", "Coefficient", head),
        rows=list(zip(result.names, estimates, errors, strict=True)),
        note=" ".join(note),
    )


def has_score_intervals(result: FittedResult) -> bool:
    """Return whether intervals of single coefficients come from score tests, and not from errors."""
    return result._inference.single is not None


def check_paper_options(cells: PaperCells, stars: bool, alpha: float, digits: int | None) -> None:
    """Raise ArgumentError for an option of a table that is invalid."""
    if isinstance(cells, str) and cells.lower() in RATIO_CELLS:
        raise NotAvailableError(NO_RATIO_CELLS.format(cells))
    check_choice(cells, PaperCells, "cells")
    check_flag(stars, "stars")
    check_fraction(alpha, "alpha")
    check_digits(digits)


def check_digits(digits: int | None) -> int | None:
    """Return a number of digits after the point, or None; ArgumentError where it is invalid."""
    if digits is not None and check_count(digits, "digits", least=0) > MOST_DIGITS:
        raise ArgumentError(f"digits={digits} must be at most {MOST_DIGITS}")
    return digits


def spread_of(value: float, error: float = math.nan, low: float = math.nan, high: float = math.nan) -> float:
    """Return the size that the digits of a row must show; nan where the row has none.

    It is the standard error, without one half the length of the interval, and of an unbounded interval the
    distance from the estimate to the end that is finite. Without errors and intervals it is the size of the
    estimate.
    """
    sizes = (error, (high - low) / 2.0, high - value, value - low, abs(value))
    return next((float(size) for size in sizes if math.isfinite(size) and size > 0.0), math.nan)


def row_digits(spreads: Iterable[float], digits: int | None, least: int = LEAST_DIGITS) -> int:
    """Return the digits after the point of a row: `digits`, else those that its spreads need."""
    if digits is not None:
        return digits
    last = SIGNIFICANT_DIGITS - 1
    exponents = [int(f"{spread:.{last}e}".partition("e")[2]) for spread in spreads if spread > 0.0]
    return min(max([least, *(last - exponent for exponent in exponents)]), MOST_DIGITS)


def star_marks(pvalues: Iterable[float]) -> list[str]:
    """Return the stars of p-values; none for nan."""
    return ["*" * int(sum(p < level for level in STAR_LEVELS)) for p in pvalues]


def flag_marks(marks: Sequence[str], names: Iterable[object], flags: Flags) -> list[str]:
    """Return the marks at coefficients with a dagger or a double dagger at those that the summary flags."""
    return [mark + flags.marks.get(str(name), "") for mark, name in zip(marks, names, strict=True)]


def privacy_note(report: PrivacyReport, records: str) -> str:
    """Return epsilon, delta, the unit of privacy and n as one sentence, and whether the fit is private."""
    delta = report.default_delta
    stamp = f"{report.stamp}. " if report.stamp else ""
    total = ""
    if report.place:
        cumulative = report.cumulative
        others = cumulative.others_included
        including, more = (f", {others}", " Other releases of that ledger add to it.") if others else ("", "")
        total = (
            f" All {len(cumulative.entries)} releases together that the ledger had when this fit ended"
            f"{including}: epsilon = {rounded_up(cumulative.epsilon(), 4)}{report.stamp_of_others}.{more}"
        )
    return (
        f"{stamp}Differential privacy: epsilon = {rounded_up(report.epsilon(delta), 4)}, "
        f"delta = {rounded_up(delta, 6)} "
        f"({report.unit}, {report.relation}); n = {records}.{total}"
    )


def _intervals(result: FittedResult, alpha: float) -> Floats:
    """Return intervals, by the score test where there are no standard errors and this is quick; else nan."""
    unknown = np.full((len(result.names), 2), np.nan)
    try:
        if result._inference.has_intervals:
            return np.asarray(result._inference.interval(alpha))
        if result.score_sets_are_quick(alpha):
            return result.conf_int(alpha, method="score").to_numpy()
    except (NotAvailableError, NotPositiveDefiniteError, ConvergenceError):
        return unknown
    return unknown
