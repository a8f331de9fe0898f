"""A summary as text, HTML, LaTeX and CSV, through statsmodels' Summary."""

from __future__ import annotations

import csv
import html
import io
import itertools
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, TypeAlias, cast

import pandas as pd
from statsmodels.iolib.summary import Summary
from statsmodels.iolib.table import SimpleTable

from privinf.errors import NotAvailableError
from privinf.results.notes import Note, main_notes, ranked
from privinf.typing import SummaryNotes

Fact: TypeAlias = tuple[str, str]
Facts: TypeAlias = tuple[Sequence[Fact], Sequence[Fact]]
Row: TypeAlias = tuple[str, ...]

MIN_WIDTH = 80  # characters of a summary
MAX_WIDTH = 100  # characters of a summary, beyond which names are cut
GAP = 2  # characters between columns
MAX_SPARE = 6  # characters that a gap may be wider

_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "|": r"\textbar{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "\u2020": r"\textdagger{}",
    "\u2021": r"\textdaggerdbl{}",
}


# Of a coefficient that the head of the summary names: at its p-value in a summary, at its estimate in tables
# for papers. The first is for weak identification, the second for a coefficient that the noise does not hide
# but that a note is about, such as one on a possible bias.
FLAG_MARK = "\u2020"
NOTE_MARK = "\u2021"
SEVERAL_PAIRS = "pvalue is not available, because there are {} pairs: pvalues has the p-value of each pair"
# What spreadsheets take for a formula, and numbers, which begin with a sign too.
_FORMULA = re.compile(r"\s*[=+\-@\uff1d\uff0b\uff0d\uff20]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|[+-]?(inf|nan)", re.IGNORECASE)
# Below the notes, where a summary does not print all of them.
MORE_NOTES = '{} more note{}{}: summary(notes="all")'
OF_THEM = ", {} of them important"  # where more notes must be read than a summary prints


def shown_pvalue(value: float, least: float = 0.0, digits: int = 4) -> str:
    """Return a p-value as text; one that is not above the `least` of its simulation as "<= 0.0001"."""
    if least > 0.0 and value <= least:
        return f"<= {least:.{digits}g}"
    return "< 1e-300" if value == 0.0 else f"{value:.{digits}g}"


class PvalueBound(float):
    """A bound on a p-value: a number as any other, which prints with "<="."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<= {float.__repr__(self)}"

    __str__ = __repr__


class NamedStrengths(pd.Series):
    """A Series that is false if it is empty, so that ``if result.weakly_identified:`` works."""

    def __bool__(self) -> bool:  # type: ignore[misc,override]
        return len(self) > 0


class PvalueFrame(pd.DataFrame):
    """A DataFrame with columns of p-values, of which those that are bounds print with "<="."""

    _metadata: ClassVar[list[str]] = ["bounded_columns", "least_pvalue"]
    bounded_columns: tuple[str, ...]
    least_pvalue: float

    @classmethod
    def from_frame(cls, frame: pd.DataFrame, columns: Sequence[str], least: float) -> PvalueFrame:
        """Return a frame whose p-values in these columns are bounds where they are not above `least`."""
        bounded = cls(frame)
        object.__setattr__(bounded, "bounded_columns", tuple(columns))
        object.__setattr__(bounded, "least_pvalue", least)
        return bounded

    @property
    def _printed(self) -> pd.DataFrame:
        frame = pd.DataFrame(self, copy=True)
        least = getattr(self, "least_pvalue", 0.0)
        for name in getattr(self, "bounded_columns", ()):
            if least > 0.0 and name in frame and (frame[name] <= least).any():
                cells = [str(PvalueBound(p)) if p <= least else p for p in frame[name]]
                frame[name] = pd.Series(cells, frame.index, dtype=object)
        return frame

    def __repr__(self) -> str:
        return repr(self._printed)

    def _repr_html_(self) -> str | None:
        return cast("str | None", cast(Any, self._printed)._repr_html_())


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryColumn:
    """A column that the table of a summary has more than others.

    Attributes
    ----------
    name : str
    cells : sequence of str
        One a coefficient.
    place : int
        Position among the columns, counted from 0.
    note : str or Note
        What it is.
    """

    name: str
    cells: Sequence[str]
    place: int
    note: str | Note


class PrivateSummary(Summary):  # type: ignore[misc]
    """Title, facts about the model, the table of coefficients, tests, privacy and notes.

    Parameters
    ----------
    title : str
    top, tests, privacy : pair of lists of (label, value)
        Left and right column of a block.
    header : list of str
        Columns of the coefficient table, without that of the names.
    rows : list of tuples of str
        Name and cells of each coefficient.
    notes : list of str or Note
        A text without a rank is a detail.
    printed : {"main", "all"}
        Which of them are printed; `plain_notes` has all of them.
    legend : str
        What the marks in the table mean, printed before the notes; empty without marks.

    Notes
    -----
    Text is at most 100 columns wide: long values are wrapped and long names shortened in the middle. It is
    wider if names would not stay different. The other formats show both in full. There are no dates: the same
    result has the same summary.
    """

    def __init__(
        self,
        *,
        title: str,
        top: Facts,
        header: Sequence[str],
        rows: Sequence[Row],
        tests: Facts,
        privacy: Facts,
        notes: Sequence[str | Note],
        printed: SummaryNotes = "all",
        legend: str = "",
    ) -> None:
        super().__init__()
        del self.tables  # of statsmodels: those of `tables` are made when they are requested
        self.title = title
        self._header = list(header)
        self._rows = list(rows)
        self._notes = ranked(notes)
        self._printed = printed
        self._legend = legend
        self._blocks = {"top": top, "tests": tests, "privacy": privacy}
        self.add_extra_txt(self.numbered_notes)

    @cached_property
    def tables(self) -> list[SimpleTable]:
        """The blocks of the summary as tables of statsmodels."""
        return [SimpleTable(rows) for rows in self._sections()]

    @property
    def plain_notes(self) -> list[str]:
        """All notes, also those that are not printed."""
        return [note.text for note in self._notes]

    @property
    def ranked_notes(self) -> tuple[Note, ...]:
        """The notes with their ranks."""
        return self._notes

    @property
    def plain_facts(self) -> dict[str, str]:
        """Rows above and below the coefficients: texts by their labels, without the colon."""
        sides = itertools.chain.from_iterable(self._blocks.values())
        return {label.removesuffix(":"): value for side in sides for label, value in side}

    @property
    def numbered_notes(self) -> list[str]:
        """What marks mean, the notes as printed, and how to see the others."""
        notes = self._notes if self._printed == "all" else main_notes(self._notes)
        lines = [self._legend] if self._legend else []
        lines += [f"[{number}] {note.text}" for number, note in enumerate(notes, 1)]
        unprinted = [note for note in self._notes if note not in notes]
        if not unprinted:
            return lines
        important = sum(note.rank == "must-read" for note in unprinted)
        last_line = MORE_NOTES.format(
            len(unprinted), "s" * (len(unprinted) > 1), OF_THEM.format(important) * (important > 0)
        )
        return [*lines, last_line]

    def with_column(self, column: SummaryColumn) -> PrivateSummary:
        """Return the summary with one more column, and a note on it."""
        place = column.place
        note = column.note
        return PrivateSummary(
            title=self.title,
            **self._blocks,
            header=[*self._header[:place], column.name, *self._header[place:]],
            rows=[
                (*row[: place + 1], cell, *row[place + 1 :])
                for row, cell in zip(self._rows, column.cells, strict=True)
            ],
            notes=[*self._notes, note if isinstance(note, Note) else Note(note, "table")],
            printed=self._printed,
            legend=self._legend,
        )

    def with_note(self, note: str | Note) -> PrivateSummary:
        """Return the summary with one more note."""
        return PrivateSummary(
            title=self.title,
            **self._blocks,
            header=self._header,
            rows=self._rows,
            notes=[*self._notes, note],
            printed=self._printed,
            legend=self._legend,
        )

    def as_text(self) -> str:
        """Return the summary as plain text, with a space for each character that does not print."""
        table = _table_lines(self._header, self._rows)
        width = max(MIN_WIDTH, len(table[0]))
        if len(table[0]) < width:
            table = _table_lines(self._header, self._rows, width)
        heavy = "=" * width
        light = "-" * width
        lines = [self.title.center(width).rstrip(), heavy, *_fact_lines(self._blocks["top"], width), heavy]
        lines += [table[0], light, *table[1:], heavy]
        for block in (self._blocks["tests"], self._blocks["privacy"]):
            block_lines = _fact_lines(block, width)
            lines += [*block_lines, heavy] if block_lines else []
        for note in self.numbered_notes:
            lines += textwrap.wrap(note, width, subsequent_indent="    ", break_long_words=False)
        return "\n".join(map(_printable, lines))

    def as_html(self) -> str:
        """Return the summary as HTML tables."""
        parts = [f'<table class="simpletable">\n<caption>{html.escape(self.title)}</caption>\n</table>']
        for section in self._sections():
            cells = [[html.escape(cell) for cell in row] for row in section]
            parts.append(SimpleTable(cells).as_html())
        parts += [f"<p>{html.escape(note)}</p>" for note in self.numbered_notes]
        return "\n".join(parts)

    def as_latex(self) -> str:
        """Return the summary as LaTeX, one tabular a block."""
        parts = [rf"\begin{{center}}\textbf{{{latex(self.title)}}}\end{{center}}"]
        for section in self._sections():
            body = [" & ".join(map(latex, row)) + r" \\" for row in section]
            if section[0][0] == "":
                body.insert(1, r"\hline")
            columns = "l" + "r" * (len(section[0]) - 1)
            tabular = [rf"\begin{{tabular}}{{{columns}}}", r"\hline", *body, r"\hline", r"\end{tabular}"]
            parts.append("\n".join([r"\begin{center}", *tabular, r"\end{center}"]))
        return "\n".join([*parts, *(latex(note) + r" \\" for note in self.numbered_notes)])

    def as_csv(self) -> str:
        """Return the summary as comma-separated values, quoted where names hold commas.

        A text that spreadsheets would read as a formula has an apostrophe before it, since names come from
        other people's schemas.
        """
        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator="\n")
        rows = [(self.title,), *itertools.chain.from_iterable(self._sections())]
        rows += [(note,) for note in self.numbered_notes]
        writer.writerows(map(_inert, rows))
        return stream.getvalue()

    def _sections(self) -> list[list[Row]]:
        """Return rectangular blocks of cells, empty ones left out; the table's first cell is empty."""
        facts: dict[str, list[Row]] = {
            name: [(*a, *b) for a, b in itertools.zip_longest(*block, fillvalue=("", ""))]
            for name, block in self._blocks.items()
        }
        table: list[Row] = [("", *self._header), *self._rows]
        return [part for part in (facts["top"], table, facts["tests"], facts["privacy"]) if part]


def _inert(row: Row) -> Row:
    """Return cells of one line none of which a spreadsheet runs: numbers as they are."""
    cells = map(_printable, row)
    return tuple(
        f"'{cell}" if _FORMULA.match(cell) and not _NUMBER.fullmatch(cell) else cell for cell in cells
    )


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _fact_lines(block: Facts, width: int) -> list[str]:
    half = (width - GAP) // 2
    first, second = (
        list(itertools.chain.from_iterable(_fact(label, value, size) for label, value in facts))
        for facts, size in zip(block, (half, width - GAP - half), strict=True)
    )
    pairs = itertools.zip_longest(first, second, fillvalue="")
    return [f"{a:<{half}}{' ' * GAP}{b}".rstrip() for a, b in pairs]


def _fact(label: str, value: str, width: int) -> list[str]:
    """Return label to the left and value to the right, the value wrapped where it is long."""
    room = max(width - len(label) - 1, width // 3)
    first, *rest = textwrap.wrap(value, room) or [""]
    return [label + first.rjust(width - len(label)), *(line.rjust(width) for line in rest)]


def _table_lines(header: Sequence[str], rows: Sequence[Row], width: int = 0) -> list[str]:
    """Return the header and the rows, aligned; stretched to `width` by equal gaps."""
    rows = [(name, *line) for (name, *_), line in zip(rows, _even_marks(rows), strict=True)]
    cells = list(zip(header, *(row[1:] for row in rows), strict=True))
    sizes = [max(map(len, column)) for column in cells]
    names = max((len(row[0]) for row in rows), default=0)
    names = _distinct_width([row[0] for row in rows], min(names, MAX_WIDTH - sum(sizes) - GAP * len(sizes)))
    slack = max(0, width - names - sum(sizes) - GAP * len(sizes))
    spare, extra = divmod(slack, len(sizes))
    gaps = [GAP + min(spare + (place < extra), MAX_SPARE) for place in range(len(sizes))]
    lines = []
    for name, *values in [("", *header), *rows]:
        padded = "".join(value.rjust(g + s) for value, g, s in zip(values, gaps, sizes, strict=True))
        lines.append(_shortened(name, names).ljust(names) + padded)
    return lines


def _even_marks(rows: Sequence[Row]) -> list[Row]:
    """Return the cells, a space after each unmarked one of a column with marks: points are aligned."""
    columns = list(zip(*(row[1:] for row in rows), strict=True))
    marked = [any(cell.endswith((FLAG_MARK, NOTE_MARK)) for cell in column) for column in columns]
    return [
        tuple(
            f"{cell} " if has_marks and not cell.endswith((FLAG_MARK, NOTE_MARK)) else cell
            for cell, has_marks in zip(row[1:], marked, strict=True)
        )
        for row in rows
    ]


def _distinct_width(names: Sequence[str], width: int) -> int:
    """Return the least width, `width` or more, at which shortened names differ where the names do."""
    different = set(names)
    while len({_shortened(name, width) for name in different}) < len(different):
        width += 1
    return width


def _shortened(name: str, width: int) -> str:
    if len(name) <= width:
        return name
    tail = (width - 3) * 2 // 3  # levels, which distinguish columns, are at the end
    return f"{name[: width - 3 - tail]}...{name[len(name) - tail :]}"


def latex(text: str) -> str:
    """Return a text with the characters escaped that LaTeX takes for commands."""
    return "".join(_LATEX.get(letter, letter) for letter in text)


# ---- attributes of statsmodels' results that a result without rows does not have

ROWS_STAY = (
    "residuals and fitted values describe single rows, which a result does not contain; "
    "predict(new_rows) works for rows that you have"
)
NO_LIKELIHOOD = (
    "the estimate solves a corrected estimating equation and has no likelihood; compare nested models by "
    "wald_test or score_test"
)
ONE_RECORD = "it would show the influence of single records, which the noise protects"
OTHER_COVARIANCE = (
    "the fit released only the covariance that result.cov_type names. For another type, fit again with "
    "cov_type="
)
NO_ROWS_HERE = "a result holds no rows to remove; save(records=False) leaves out the release"
NO_ANOVA = (
    "a result holds no rows, and anova_lm() would ignore the noise in its sums of squares. "
    "result.wald_test_terms() tests each term of the formula, and result.compare_f_test(smaller) compares "
    "nested fits of one release"
)
NO_DOCX = "call result.to_word(path), which writes a Word file"
NO_CSV = "write result.summary().as_csv() into a file, or call result.tidy().to_csv(path)"
NO_EXCEL = "call result.tidy().to_excel(path)"
NO_FRAME = "call result.tidy(), which returns a DataFrame"
NO_MARKDOWN = "call result.tidy().to_markdown(), which needs the package tabulate, or result.to_html()"
NO_CSV_OF_TABLE = "call result.tidy().to_csv(path)"
# Of marginal effects, whose numbers are in a frame of another name.
NO_FILE_OF_EFFECTS = "call effects.summary_frame(), which returns a DataFrame with the methods of pandas"
# Of comparisons, whose numbers are in several frames.
NO_FRAME_OF_COMPARISON = (
    "params, bse, tvalues, pvalues and privacy of a comparison are DataFrames, as in "
    "table.params.to_csv(path)"
)
NO_MARKDOWN_OF_COMPARISON = (
    "call table.params.to_markdown(), which needs the package tabulate, or table.to_html()"
)
EACH_FIT = "call the method of each fit, as in {name: fit.%s() for name, fit in table.results.items()}"
NO_MAKETABLES_OF_COMPARISON = (
    "pass the fits to maketables, as in maketables.ETable([a.to_maketables(), b.to_maketables()]), or call "
    "table.to_word(path)"
)
NO_PLOT_OF_COMPARISON = "call pi.plotting.several(table.results), which draws the fits next to each other"
NO_FILE_OF_COMPARISON = "save each fit by its method save(path), and compare the loaded fits"
NO_SUMMARY2 = "call result.summary(), or pi.summary_col([result, ...]) for several fits side by side"
NO_OPTIMIZER = (
    "no likelihood was optimized; `identification` and the notes show whether the release was strong enough"
)
NO_GRAM = (
    "second moments of the columns are noisy or not released, and statistics of them would "
    "mainly describe the noise; see `identification` and cov_params()"
)
NO_DISPERSION = (
    "negative binomial fits have alpha and alpha_bse, linear fits have scale, and standard errors of Poisson "
    "fits allow for overdispersion without a parameter"
)
NO_EFFECTS = (
    "marginal effects of a linear model are its coefficients; Logit, Poisson and GLM have get_margeff()"
)
NO_FILE_OF_TEST = (
    "call result.to_json(path) or result.to_parquet(path), which keep the numbers of the summary, or pickle "
    "the result"
)
# Of curves, log-rank tests and hazard ratios, by names of lifelines and of statsmodels.
PRINTED = "call print(result.summary())"
CURVE_TABLE = "curves.table has the curves with intervals and bands, and curves.at(times) has single times"
CURVE_INTERVALS = (
    "curves.table has intervals and bands, and curves.intervals(0.9) returns the same curves with intervals "
    "of another level"
)
CURVE_MEDIAN = "call curves.median() or curves.quantile(p)"
CURVE_HAZARD = "curves.nelson_aalen().table has the cumulated hazards"
CURVE_COUNTS = (
    "curves.table has the numbers at risk and of events, and curves.at_risk(times) has single times"
)
CURVE_PLOT = "call curves.plot(), or curves.nelson_aalen().plot() for the cumulated hazards"
NO_BASELINE = (
    "the baseline hazard of this fit is only an aid of the estimate and has no intervals; "
    "privinf.survival.NelsonAalen has cumulated hazards of groups with intervals"
)
NO_CURVES_OF_FIT = (
    "predicted curves have no validated intervals; hazard_ratios() compares people, and "
    "privinf.survival.KaplanMeier has curves of groups"
)
NO_CONCORDANCE = "it needs the order of the records' times, which a result does not contain"
COX_ASSUMPTION = "result.target_test() tests whether hazards are proportional and effects linear"


def unavailable(name: str, reason: str) -> Any:
    """Return a property that raises NotAvailableError with the reason (so that hasattr is False)."""

    def raise_reason(self: object) -> Any:
        raise NotAvailableError(f"{name} is not available: {reason}")

    raise_reason.__name__ = name
    return property(raise_reason, doc=f"Not available: {reason}.")


def coded_response(name: str, level: object) -> str:
    """Return which level of a response counts as 1, as in "died, 1 = 'yes'"."""
    return f"{name}, 1 = {level!r}"


class UnavailableFormats:
    """Formats that users may expect of a result without coefficients; each raises with the remedy."""

    __slots__ = ()

    to_docx = unavailable("to_docx", NO_DOCX)
    to_csv = unavailable("to_csv", NO_CSV_OF_TABLE)
    to_excel = unavailable("to_excel", NO_EXCEL)
    to_frame = unavailable("to_frame", NO_FRAME)
    to_dataframe = unavailable("to_dataframe", NO_FRAME)
    to_markdown = unavailable("to_markdown", NO_MARKDOWN)


class UnavailableOfEffects:
    """Formats that users may expect of marginal effects; each raises with the remedy."""

    __slots__ = ()

    to_docx = unavailable("to_docx", NO_DOCX.replace("result", "effects"))
    to_csv = unavailable("to_csv", NO_FILE_OF_EFFECTS)
    to_excel = unavailable("to_excel", NO_FILE_OF_EFFECTS)
    to_frame = unavailable("to_frame", NO_FILE_OF_EFFECTS)
    to_dataframe = unavailable("to_dataframe", NO_FILE_OF_EFFECTS)
    to_markdown = unavailable("to_markdown", NO_FILE_OF_EFFECTS)
    tidy = unavailable("tidy", NO_FILE_OF_EFFECTS)


class UnavailableOfComparison:
    """Formats and methods of fits that users may expect of a comparison; each raises with the remedy."""

    __slots__ = ()

    to_docx = unavailable("to_docx", NO_DOCX.replace("result", "table"))
    to_csv = unavailable("to_csv", NO_FRAME_OF_COMPARISON)
    to_excel = unavailable("to_excel", NO_FRAME_OF_COMPARISON)
    to_frame = unavailable("to_frame", NO_FRAME_OF_COMPARISON)
    to_dataframe = unavailable("to_dataframe", NO_FRAME_OF_COMPARISON)
    to_parquet = unavailable("to_parquet", NO_FRAME_OF_COMPARISON)
    to_markdown = unavailable("to_markdown", NO_MARKDOWN_OF_COMPARISON)
    to_maketables = unavailable("to_maketables", NO_MAKETABLES_OF_COMPARISON)
    tidy = unavailable("tidy", EACH_FIT % "tidy")
    glance = unavailable("glance", EACH_FIT % "glance")
    conf_int = unavailable("conf_int", EACH_FIT % "conf_int")
    odds_ratios = unavailable("odds_ratios", EACH_FIT % "odds_ratios")
    to_dict = unavailable("to_dict", EACH_FIT % "to_dict")
    to_json = unavailable("to_json", EACH_FIT % "to_dict")
    plot = unavailable("plot", NO_PLOT_OF_COMPARISON)
    save = unavailable("save", NO_FILE_OF_COMPARISON)


def _without_names_of(kind: type, result: object) -> list[str]:
    """Return the attributes of a result for completion, without the foreign names of a class."""
    foreign = {name for name, member in vars(kind).items() if isinstance(member, property)}
    return [name for name in object.__dir__(result) if name not in foreign]


class UnavailableOfCurves:
    """Attributes of curves in lifelines and statsmodels; each raises with the remedy."""

    __slots__ = ()

    print_summary = unavailable("print_summary", PRINTED.replace("result", "curves"))
    survival_function_ = unavailable("survival_function_", CURVE_TABLE)
    survival_function_at_times = unavailable("survival_function_at_times", CURVE_TABLE)
    surv_prob = unavailable("surv_prob", CURVE_TABLE)
    surv_prob_se = unavailable("surv_prob_se", CURVE_TABLE)
    surv_times = unavailable("surv_times", CURVE_TABLE)
    predict = unavailable("predict", CURVE_TABLE)
    conf_int = unavailable("conf_int", CURVE_INTERVALS)
    confidence_interval = unavailable("confidence_interval", CURVE_INTERVALS)
    confidence_interval_ = unavailable("confidence_interval_", CURVE_INTERVALS)
    confidence_interval_survival_function_ = unavailable(
        "confidence_interval_survival_function_", CURVE_INTERVALS
    )
    simultaneous_cb = unavailable("simultaneous_cb", CURVE_INTERVALS)
    median_survival_time_ = unavailable("median_survival_time_", CURVE_MEDIAN)
    percentile = unavailable("percentile", CURVE_MEDIAN)
    quantile_ci = unavailable("quantile_ci", CURVE_MEDIAN)
    cumulative_hazard_ = unavailable("cumulative_hazard_", CURVE_HAZARD)
    baseline_cumulative_hazard = unavailable("baseline_cumulative_hazard", CURVE_HAZARD)
    event_table = unavailable("event_table", CURVE_COUNTS)
    n_risk = unavailable("n_risk", CURVE_COUNTS)
    n_events = unavailable("n_events", CURVE_COUNTS)
    plot_survival_function = unavailable("plot_survival_function", CURVE_PLOT)
    plot_cumulative_hazard = unavailable("plot_cumulative_hazard", CURVE_PLOT)

    def __dir__(self) -> list[str]:
        return _without_names_of(UnavailableOfCurves, self)


class UnavailableOfLogRank:
    """Attributes of a log-rank test in lifelines; each raises with the remedy."""

    __slots__ = ()

    print_summary = unavailable("print_summary", PRINTED)
    p_value = unavailable("p_value", "result.pvalue is the p-value")
    test_statistic = unavailable("test_statistic", "result.statistic is the statistic")

    def __dir__(self) -> list[str]:
        return _without_names_of(UnavailableOfLogRank, self)


class UnavailableOfHazards:
    """Attributes of Cox regressions in lifelines and statsmodels; each raises with the remedy."""

    print_summary = unavailable("print_summary", PRINTED)
    params_ = unavailable("params_", "result.params has the coefficients")
    hazard_ratios_ = unavailable("hazard_ratios_", "call result.hazard_ratios()")
    confidence_intervals_ = unavailable("confidence_intervals_", "call result.conf_int()")
    standard_errors_ = unavailable("standard_errors_", "result.bse has the standard errors")
    concordance_index_ = unavailable("concordance_index_", NO_CONCORDANCE)
    check_assumptions = unavailable("check_assumptions", COX_ASSUMPTION)
    baseline_hazard_ = unavailable("baseline_hazard_", NO_BASELINE)
    baseline_cumulative_hazard_ = unavailable("baseline_cumulative_hazard_", NO_BASELINE)
    baseline_cumulative_hazard = unavailable("baseline_cumulative_hazard", NO_BASELINE)
    baseline_survival_ = unavailable("baseline_survival_", NO_BASELINE)
    predict_survival_function = unavailable("predict_survival_function", NO_CURVES_OF_FIT)
    predict_median = unavailable("predict_median", NO_CURVES_OF_FIT)
    predict_partial_hazard = unavailable("predict_partial_hazard", NO_CURVES_OF_FIT)
    get_distribution = unavailable("get_distribution", NO_CURVES_OF_FIT)
    martingale_residuals = unavailable("martingale_residuals", ROWS_STAY)
    schoenfeld_residuals = unavailable("schoenfeld_residuals", ROWS_STAY)
    score_residuals = unavailable("score_residuals", ROWS_STAY)


class UnavailableAttributes:
    """Attributes of statsmodels' results that a result without rows lacks; each raises with the reason."""

    resid = unavailable("resid", ROWS_STAY)
    wresid = unavailable("wresid", ROWS_STAY)
    resid_pearson = unavailable("resid_pearson", ROWS_STAY)
    resid_response = unavailable("resid_response", ROWS_STAY)
    resid_deviance = unavailable("resid_deviance", ROWS_STAY)
    fittedvalues = unavailable("fittedvalues", ROWS_STAY)
    compare_lm_test = unavailable("compare_lm_test", ROWS_STAY)
    get_influence = unavailable("get_influence", ONE_RECORD)
    outlier_test = unavailable("outlier_test", ONE_RECORD)
    llf = unavailable("llf", NO_LIKELIHOOD)
    aic = unavailable("aic", NO_LIKELIHOOD)
    bic = unavailable("bic", NO_LIKELIHOOD)
    info_criteria = unavailable("info_criteria", NO_LIKELIHOOD)
    deviance = unavailable("deviance", NO_LIKELIHOOD)
    null_deviance = unavailable("null_deviance", NO_LIKELIHOOD)
    llnull = unavailable("llnull", NO_LIKELIHOOD)
    prsquared = unavailable("prsquared", NO_LIKELIHOOD)
    compare_lr_test = unavailable("compare_lr_test", NO_LIKELIHOOD)
    get_robustcov_results = unavailable("get_robustcov_results", OTHER_COVARIANCE)
    remove_data = unavailable("remove_data", NO_ROWS_HERE)
    to_docx = unavailable("to_docx", NO_DOCX)
    to_csv = unavailable("to_csv", NO_CSV)
    to_excel = unavailable("to_excel", NO_EXCEL)
    to_frame = unavailable("to_frame", NO_FRAME)
    to_dataframe = unavailable("to_dataframe", NO_FRAME)
    to_markdown = unavailable("to_markdown", NO_MARKDOWN)
    summary2 = unavailable("summary2", NO_SUMMARY2)
    resid_working = unavailable("resid_working", ROWS_STAY)
    pearson_chi2 = unavailable("pearson_chi2", ROWS_STAY)
    pred_table = unavailable("pred_table", ROWS_STAY)
    plot_partial_residuals = unavailable("plot_partial_residuals", ROWS_STAY)
    plot_added_variable = unavailable("plot_added_variable", ROWS_STAY)
    el_test = unavailable("el_test", ROWS_STAY)
    llr = unavailable("llr", NO_LIKELIHOOD)
    llr_pvalue = unavailable("llr_pvalue", NO_LIKELIHOOD)
    mle_retvals = unavailable("mle_retvals", NO_OPTIMIZER)
    converged = unavailable("converged", NO_OPTIMIZER)
    condition_number = unavailable("condition_number", NO_GRAM)
    eigenvals = unavailable("eigenvals", NO_GRAM)
    normalized_cov_params = unavailable("normalized_cov_params", NO_GRAM)
    uncentered_tss = unavailable("uncentered_tss", NO_GRAM)
    get_margeff = unavailable("get_margeff", NO_EFFECTS)
    dispersion = unavailable("dispersion", NO_DISPERSION)
    alpha = unavailable("alpha", NO_DISPERSION)
    HC0_se = unavailable("HC0_se", OTHER_COVARIANCE)
    cov_HC0 = unavailable("cov_HC0", OTHER_COVARIANCE)
    HC1_se = unavailable("HC1_se", OTHER_COVARIANCE)
    cov_HC1 = unavailable("cov_HC1", OTHER_COVARIANCE)
    HC2_se = unavailable("HC2_se", OTHER_COVARIANCE)
    cov_HC2 = unavailable("cov_HC2", OTHER_COVARIANCE)
    HC3_se = unavailable("HC3_se", OTHER_COVARIANCE)
    cov_HC3 = unavailable("cov_HC3", OTHER_COVARIANCE)
