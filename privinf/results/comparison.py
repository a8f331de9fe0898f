"""Several fits side by side, private or not."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
from statsmodels.iolib.summary2 import Summary

from privinf.accounting import PrivacyReport
from privinf.accounting.report import joint_report, rounded_up
from privinf.error_boundary import error_boundaries, error_boundary, refuses
from privinf.errors import ArgumentError, NotAvailableError, WeakIdentificationWarning
from privinf.results.export import caution_kinds
from privinf.results.fitted import FittedResult
from privinf.results.notes import counted_records
from privinf.results.paper_table import (
    BIASED,
    DROPPED,
    ERRORS,
    INTERVALS,
    LEAST_DIGITS,
    ROLES,
    STAR_NOTE,
    TEXT_ONLY,
    PaperTable,
    biased_names,
    check_paper_options,
    flag_marks,
    has_score_intervals,
    mark_sentences,
    row_digits,
    spread_of,
    star_marks,
)
from privinf.results.rendering import FLAG_MARK, NOTE_MARK, UnavailableOfComparison
from privinf.results.summary import ALL, Flags, flags_of
from privinf.typing import AnyPath, Floats, PaperCells
from privinf.wire import readable

# The words of maketables for columns of `tidy` and of `glance`.
MAKETABLES = {
    "estimate": "b",
    "std_error": "se",
    "statistic": "t",
    "p_value": "p",
    "conf_low": "ci95l",
    "conf_high": "ci95u",
}
# Of fits too noisy for normal inference, whose standard errors do not match their intervals.
BY_SCORES = (
    "Brackets contain {:g}% intervals from score tests, where the noise is too strong for normal inference."
)
# Where fits have coefficients on several scales, which the row of this label states.
SCALE_ROW = "scale"
MIXED_SCALES = (
    "The row scale states on which scale the coefficients of each fit are effects: coefficients on different "
    "scales cannot be compared."
)
# Scales of the coefficients of statsmodels' models by class, and of its GLM by link.
SCALES = {
    **dict.fromkeys(("OLS", "WLS", "GLS", "GLSAR", "RLM", "QuantReg", "MixedLM"), "mean"),
    **dict.fromkeys(("Logit", "MNLogit"), "log odds"),
    **dict.fromkeys(("Poisson", "NegativeBinomial", "NegativeBinomialP", "GeneralizedPoisson"), "log mean"),
    "Probit": "probit",
    "PHReg": "log hazard",
}
LINK_SCALES = {"Identity": "mean", "Logit": "log odds", "Log": "log mean", "Probit": "probit"}
UNIT = "{} hold for the unit of privacy {} and the neighboring relation {}."
CODED = "Response of {}: {}."
PRINTED_DIGITS = 4  # after the point at least, in a comparison that is printed
UNKNOWN_CELL = "-"  # in place of an error or an interval that a fit does not have
MAKETABLES_FACTS = {"N": "records", "r2": "r_squared", "se_type": "errors"}
# Rows of maketables that name the coefficients with a dagger: weakly identified ones, and others.
WEAK_ROW = f"{FLAG_MARK} weakly identified"
FLAGGED_ROW = f"{NOTE_MARK} not weak, but see the notes of the summary"
# In place of the type of the standard errors, of fits whose intervals do not follow from them.
SCORE_ERRORS = "none, intervals from score tests"


@error_boundaries
@dataclass(frozen=True, slots=True)
class Comparison(UnavailableOfComparison):
    """Table of several fits; made by `compare`.

    Attributes
    ----------
    results : mapping of str to results
        Private results, or those of statsmodels.
    """

    results: Mapping[str, Any]

    @property
    def params(self) -> pd.DataFrame:
        """Coefficients, one column per fit."""
        return self._column("params")

    @property
    def bse(self) -> pd.DataFrame:
        """Standard errors, nan where a fit has none."""
        return self._column("bse")

    @property
    def tvalues(self) -> pd.DataFrame:
        """Coefficients over standard errors."""
        return self._column("tvalues")

    @property
    def pvalues(self) -> pd.DataFrame:
        """Two-sided p-values of zero coefficients."""
        return self._column("pvalues")

    @property
    def privacy(self) -> pd.DataFrame:
        """Cost of each fit: epsilon (infinite without privacy), delta, unit, relation, trust, secure."""
        rows = {name: _privacy(result) for name, result in self.results.items()}
        return pd.DataFrame.from_dict(rows, orient="index")

    @property
    def total(self) -> PrivacyReport | None:
        """Privacy report on all private fits together; None without one.

        A release that several fits use is counted once. The total is that of a person whose data are in every
        fit. If fits are in disjoint scopes of one ledger, only the most expensive of these scopes counts;
        the costs of several ledgers add up. ArgumentError if the neighboring relations of the fits cannot be
        added.
        """
        reports = [report for report in map(_report, self.results.values()) if report is not None]
        return joint_report(reports) if reports else None

    def summary(self, float_format: str | None = None) -> Summary:
        """Return coefficients with standard errors in parentheses, nobs and epsilon, one column per fit.

        Parameters
        ----------
        float_format : str, optional
            Format of the numbers, such as ``"%.4f"``. By default each row has four digits after the decimal
            point, and more if a standard error, or half the length of an interval, needs more for two
            significant digits.

        Returns
        -------
        Summary of statsmodels
            Summary, which prints as text. Its methods ``as_text``, ``as_html`` and ``as_latex`` return other
            formats.
        """
        numbers = [_numbers(result, "se", 0.05) for result in self.results.values()]
        places = _places(numbers, None, PRINTED_DIGITS)
        formats = {key: float_format or f"%.{place}f" for key, place in places.items()}
        columns = [
            _stacked(name, result, column, formats)
            for (name, result), column in zip(self.results.items(), numbers, strict=True)
        ]
        order = list(dict.fromkeys(key for column in columns for key in column.index))
        table = pd.concat(columns, axis=1).reindex(pd.MultiIndex.from_tuples(order)).fillna("")
        table.index = pd.Index([name if part == 0 else "" for name, part in order])
        reports = {name: _report(result) for name, result in self.results.items()}
        footer = pd.DataFrame.from_dict(self._facts(), orient="index", columns=list(self.results))
        summary = Summary()
        summary.add_df(pd.concat([table, footer]), align="r")
        summary.add_text("Standard errors (sampling and privacy noise together) in parentheses.")
        if any(map(_has_score_intervals, self.results.values())):
            summary.add_text(BY_SCORES.format(95))
        marks = mark_sentences(map(_flags, self.results.values()))
        for text in (*marks, *self._bias_texts(), *self._texts()):
            summary.add_text(text)
        assumptions: dict[str, list[str]] = {}
        for name, report in reports.items():
            for text in () if report is None else report.assumptions:
                assumptions.setdefault(text, []).append(name)
        for text, names in assumptions.items():
            whose = "" if len(names) == len(reports) else f" of {', '.join(names)}"
            summary.add_text(f"The privacy guarantee{whose} assumes: {readable(text)}.")
        return summary

    @refuses(TEXT_ONLY)
    def to_latex(
        self,
        *,
        cells: PaperCells = "se",
        stars: bool = False,
        alpha: float = 0.05,
        digits: int | None = None,
        caption: str | None = None,
        label: str | None = None,
    ) -> str:
        """Return a LaTeX table for a paper, which needs the packages booktabs and threeparttable.

        Parameters
        ----------
        cells : {"se", "ci"}
            Statistic below the coefficients: standard errors in parentheses, or intervals in brackets. It is
            "-" where a fit does not have it. A fit whose summary has intervals from score tests always has
            these intervals.
        stars : bool
            Whether to mark p-values below 0.1, 0.05 and 0.01, where a fit has p-values. The function
            ``summary_col(stars=True)`` of statsmodels uses the same levels.
        alpha : float
            One minus the confidence level of the intervals.
        digits : int, optional
            Number of digits after the decimal point, at most 15. By default each row has three, and more if
            a standard error, or half the length of an interval, needs more for two significant digits.
        caption, label : str, optional
            Caption and LaTeX label of the table.

        Returns
        -------
        str
            Two rows per coefficient, one column per fit, and rows for the number of records, epsilon (with
            delta) and cautions, and for the scale of the coefficients if it differs between fits. The note
            below the table states the unit of privacy and the neighboring relation, the budget of all private
            fits together, responses that are not protected, and the weakly identified coefficients.

        Raises
        ------
        ArgumentError
            An argument is invalid.

        Notes
        -----
        **Privacy.** Costs nothing: it uses only released numbers.
        """
        return self._paper_table(cells, stars, alpha, digits).to_latex(caption, label)

    @refuses(TEXT_ONLY)
    def to_html(
        self,
        *,
        cells: PaperCells = "se",
        stars: bool = False,
        alpha: float = 0.05,
        digits: int | None = None,
        caption: str | None = None,
    ) -> str:
        """Return the same table as `to_latex` in HTML, with the note below the table.

        Parameters
        ----------
        cells : {"se", "ci"}
            Statistic below the coefficients: standard errors in parentheses, or intervals in brackets. It is
            "-" where a fit does not have it. A fit whose summary has intervals from score tests always has
            these intervals.
        stars : bool
            Whether to mark p-values below 0.1, 0.05 and 0.01, where a fit has p-values. The function
            ``summary_col(stars=True)`` of statsmodels uses the same levels.
        alpha : float
            One minus the confidence level of the intervals.
        digits : int, optional
            Number of digits after the decimal point, at most 15. By default each row has three, and more if
            a standard error, or half the length of an interval, needs more for two significant digits.
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
        return self._paper_table(cells, stars, alpha, digits).to_html(caption)

    def to_word(
        self,
        path: AnyPath,
        *,
        cells: PaperCells = "se",
        stars: bool = False,
        alpha: float = 0.05,
        digits: int | None = None,
        caption: str | None = None,
        overwrite: bool = False,
    ) -> None:
        """Write the same table as `to_latex` to a Word file, with the note below the table.

        Parameters
        ----------
        path : path
            File to write. Its name must end with ``.docx``.
        cells : {"se", "ci"}
            Statistic below the coefficients: standard errors in parentheses, or intervals in brackets. It is
            "-" where a fit does not have it. A fit whose summary has intervals from score tests always has
            these intervals.
        stars : bool
            Whether to mark p-values below 0.1, 0.05 and 0.01, where a fit has p-values. The function
            ``summary_col(stars=True)`` of statsmodels uses the same levels.
        alpha : float
            One minus the confidence level of the intervals.
        digits : int, optional
            Number of digits after the decimal point, at most 15. By default each row has three, and more if
            a standard error, or half the length of an interval, needs more for two significant digits.
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
        self._paper_table(cells, stars, alpha, digits).to_word(path, caption, overwrite)

    def _paper_table(self, cells: PaperCells, stars: bool, alpha: float, digits: int | None) -> PaperTable:
        """Return the cells and the note of a table for a paper."""
        check_paper_options(cells, stars, alpha, digits)
        order = list(dict.fromkeys(name for result in self.results.values() for name in result.params.index))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", WeakIdentificationWarning)  # the note names these coefficients
            numbers = [_numbers(result, cells, alpha) for result in self.results.values()]
            places = _places(numbers, digits, LEAST_DIGITS)
            columns = [
                _paper_cells(result, column, stars, places)
                for result, column in zip(self.results.values(), numbers, strict=True)
            ]
        rows: list[tuple[str, ...]] = []
        for name in order:
            first, second = zip(*(column.get(name, ("", "")) for column in columns), strict=True)
            rows += [(str(name), *first), ("", *second)]
        note = [ERRORS if cells == "se" else INTERVALS.format(100 * (1 - alpha))]
        if cells == "se" and any(map(_has_score_intervals, self.results.values())):
            note.append(BY_SCORES.format(100 * (1 - alpha)))
        note += [STAR_NOTE] if stars else []
        note += self._bias_texts() if cells == "se" else []
        note += self._texts()
        for fit, result in self.results.items():
            if not isinstance(result, FittedResult):
                continue
            if result.privacy.response_in_clear:
                note.append(f"{result.model.endog_names} of {fit} is NOT protected.")
            if len(weak := result.weakly_identified.dropna()):
                note.append(f"Weakly identified in {fit}: {', '.join(weak.index)}.")
            if doubted := _flags(result).doubted:
                note.append(f"The summary of {fit} has notes on {doubted}.")
        note += mark_sentences(map(_flags, self.results.values()))
        return PaperTable(
            header=("", *map(str, self.results)),
            rows=rows,
            note=" ".join(note),
            facts=[(fact, *entries) for fact, entries in self._facts().items()],
        )

    def _facts(self) -> dict[str, list[str]]:
        """Return the rows below the coefficients: a cell per fit, by name of the row."""
        fits = self.results.values()
        facts = {"N": [*map(counted_records, fits)], "epsilon": [*map(_cost, fits)]}
        if self._mixes_scales:
            facts = {SCALE_ROW: [scale or UNKNOWN_CELL for scale in map(_scale, fits)]} | facts
        cautions = [caution_kinds(getattr(result, "cautions", ())) for result in fits]
        facts |= {"cautions": cautions} if any(cautions) else {}
        noise = ["" if (report := _report(result)) is None else report.stamp for result in fits]
        facts |= {"noise": noise} if any(noise) else {}
        return facts

    @property
    def _mixes_scales(self) -> bool:
        return len(set(map(_scale, self.results.values()))) > 1

    def _bias_texts(self) -> list[str]:
        """Return sentences on coefficients whose intervals are much longer than their standard errors say."""
        biased = {
            fit: biased_names(result)
            for fit, result in self.results.items()
            if isinstance(result, FittedResult)
        }
        return [BIASED.format(", ".join(names), f" in {fit}") for fit, names in biased.items() if names]

    def _texts(self) -> list[str]:
        """Return sentences on dropped rows, scales, coded responses, the unit of privacy and the cost."""
        texts = self._dropped_texts()
        texts += [MIXED_SCALES] if self._mixes_scales else []
        for fit, result in self.results.items():
            if not isinstance(result, FittedResult):
                continue
            if result.model.coded_response:
                texts.append(CODED.format(fit, result.model.coded_response))
            roles = {role: result.options[role] for role in ROLES if role in result.options}
            texts += [f"{role} of {fit}: {column}." for role, column in roles.items()]
        units: dict[tuple[str, str], list[str]] = {}
        for fit, result in self.results.items():
            if (report := _report(result)) is not None:
                units.setdefault((report.unit, report.relation), []).append(fit)
        for (unit, relation), fits in units.items():
            subject = "Epsilon and delta" if len(units) == 1 else f"Epsilon and delta of {', '.join(fits)}"
            texts.append(UNIT.format(subject, unit, relation))
        return [*texts, text] if (text := self._total_text()) else texts

    def _dropped_texts(self) -> list[str]:
        """Return a sentence on fits whose incomplete rows were dropped."""
        fits = [
            fit
            for fit, result in self.results.items()
            if isinstance(result, FittedResult) and result._context.complete is not None
        ]
        if len(fits) in (0, len(self.results)):
            return [DROPPED] if fits else []
        return [f"{DROPPED.removesuffix('.')} in {', '.join(fits)}."]

    def _total_text(self) -> str:
        """Return a sentence about the budget of all private fits together; empty for fewer than two."""
        private = [result for result in self.results.values() if _report(result) is not None]
        if len(private) < 2:
            return ""
        try:
            total = self.total
        except ArgumentError:
            return "The budgets of these fits cannot be added, because their neighboring relations differ."
        assert total is not None
        spent = f"epsilon {rounded_up(total.epsilon(), 4)} at delta {total.default_delta:g}"
        subject = "The fits" if len(private) == len(self.results) else "The private fits"
        return f"{subject} together spent {spent}; a release that several fits use is counted once."

    def __str__(self) -> str:
        return str(self.summary())

    def _repr_html_(self) -> str:
        return str(self.summary().as_html())

    def _column(self, member: str) -> pd.DataFrame:
        columns = {name: _values(result, member) for name, result in self.results.items()}
        order = list(dict.fromkeys(key for column in columns.values() for key in column.index))
        return pd.DataFrame(columns).reindex(order)


class MarkedNumber(float):
    """The estimate of a flagged coefficient: a number as any other, which has its mark in every format."""

    mark: str

    def __new__(cls, value: float, mark: str) -> MarkedNumber:
        """Return a number with a mark."""
        number = super().__new__(cls, value)
        number.mark = mark
        return number

    def __format__(self, format_spec: str) -> str:
        return f"{float.__format__(self, format_spec)}{self.mark}"


def flag_rows(result: FittedResult, marks: Mapping[str, str]) -> dict[str, str]:
    """Return the rows of a table of maketables that name the coefficients with a dagger."""
    rows = {}
    for row, mark in ((WEAK_ROW, FLAG_MARK), (FLAGGED_ROW, NOTE_MARK)):
        names = [name for name, its_mark in marks.items() if its_mark == mark]
        if names:
            rows[row] = ALL if len(names) == len(result.names) > 1 else ", ".join(names)
    return rows


@error_boundaries
@dataclass(frozen=True, slots=True, eq=False)
class TableEntry:
    """A fit with the interface of the library maketables; made by `Results.to_maketables`.

    Attributes
    ----------
    coefficients : DataFrame
        `Results.tidy`, without standard errors if the intervals of the fit are from score tests.
    facts : mapping
        `Results.glance`, and what tables print: ``records`` (number of observations, a text with "(est.)" if
        noise hides it), ``errors`` (type of the standard errors, and whether they include privacy noise), and
        the rows that name flagged coefficients.
    marks : mapping of str to str
        Marks of the flagged coefficients, by name: a dagger, or a double dagger.

    Notes
    -----
    **Privacy.** Post-processing of the fit's releases.
    """

    coefficients: pd.DataFrame
    facts: Mapping[str, Any]
    marks: Mapping[str, str] = field(default_factory=dict)

    @property
    def __maketables_coef_table__(self) -> pd.DataFrame:
        table = self.coefficients.set_index("term")[list(MAKETABLES)].rename(columns=MAKETABLES)
        if self.marks:
            estimates = [
                MarkedNumber(b, self.marks[name]) if name in self.marks else b
                for name, b in zip(self.coefficients["term"], table["b"], strict=True)
            ]
            table["b"] = pd.Series(estimates, table.index, dtype=object)
        return table

    @property
    def __maketables_depvar__(self) -> str:
        return str(self.facts["response"])

    @property
    def __maketables_vcov_info__(self) -> dict[str, str]:
        return {"vcov_type": str(self.facts["errors"])}

    @property
    def __maketables_default_stat_keys__(self) -> list[str]:
        cautions = ["cautions"] if self.facts["cautions"] else []
        noise = [] if self.facts["secure"] else ["secure"]
        flags = [row for row in (WEAK_ROW, FLAGGED_ROW) if row in self.facts]
        return ["N", "se_type", "epsilon", "delta", *cautions, *flags, *noise]

    def __maketables_stat__(self, key: str) -> Any:
        """Return a fact of the fit, by its name in `Results.glance` or the library's own; None without."""
        fact = self.facts.get(MAKETABLES_FACTS.get(key, key))
        if isinstance(fact, float) and math.isinf(fact):
            return f"{fact}"  # maketables formats no infinite numbers
        return None if fact is None or fact == "" or pd.isna(fact) else fact


@error_boundary
def compare(results: Mapping[str, Any] | Sequence[Any]) -> Comparison:
    """Compare several fits in one table, with one column per fit.

    Parameters
    ----------
    results : mapping of str to results, or list or tuple of results
        Results of privinf or of statsmodels. Coefficients are matched by name. The fits in a list are named
        by their response. If several fits have the same response, a number is added, such as ``y I``. A
        mapping from names to results gives other names.

    Returns
    -------
    object
        Comparison with the tables ``params``, ``bse``, ``tvalues``, ``pvalues`` and ``privacy``. The
        attribute ``total`` is the total cost of all private fits. The methods ``summary()``, ``to_latex()``
        and ``to_html()`` print the comparison, and ``to_word()`` writes a Word file.

    Raises
    ------
    ArgumentError
        Raised if there are no results, or some result has no attribute ``params``.

    Notes
    -----
    **Privacy.** Costs nothing: it uses only released numbers. If a fit without privacy is printed next to a
    private fit, the comparison as a whole is not private. The epsilon of the fit without privacy is shown as
    infinite.
    """
    if not isinstance(results, (Mapping, list, tuple)):
        raise ArgumentError("results= must be a mapping of names to results, or a list or tuple of results")
    if not results:
        raise ArgumentError("results= of compare() must contain at least one result")
    named = results if isinstance(results, Mapping) else _numbered(results)
    for name, result in named.items():
        if not isinstance(getattr(result, "params", None), pd.Series):
            raise ArgumentError(
                f"in results=, {name!r} must be a result of a fit, whose params are labeled by "
                "coefficient names"
            )
    return Comparison(MappingProxyType(dict(named)))


def _numbered(results: Sequence[Any]) -> dict[str, Any]:
    """Return results by the name of their response, numbered where several have it; means are 'Means'."""
    labels: list[Any] = [getattr(result, "model", None) for result in results]
    responses = [str(getattr(label, "endog_names", "fit") or label.name) for label in labels]
    numbered: dict[str, Any] = {}
    for place, (response, result) in enumerate(zip(responses, results, strict=True)):
        several = responses.count(response) > 1
        number = f" {'I' * responses[: place + 1].count(response)}" if several else ""
        numbered[response + number] = result
    return numbered


def _values(result: Any, member: str) -> pd.Series[float]:
    try:
        values: pd.Series[float] = getattr(result, member)
    except NotAvailableError:
        return pd.Series(np.nan, result.params.index)
    return values


@dataclass(frozen=True, slots=True)
class _Numbers:
    """Numbers of a coefficient in a table: standard error, or ends of the interval; others are nan."""

    value: float
    error: float
    low: float
    high: float

    @property
    def spread(self) -> float:
        """Size that the digits of the row must show."""
        return spread_of(self.value, self.error, self.low, self.high)

    def second_cell(self, float_format: str) -> str:
        """Return the cell below the coefficient; empty where the fit has no such number."""
        if not np.isnan(self.error):
            return f"({float_format % self.error})"
        if np.isnan(self.low) or np.isnan(self.high):
            return ""
        return f"[{float_format % self.low}, {float_format % self.high}]"


def _numbers(result: Any, cells: PaperCells, alpha: float) -> dict[Any, _Numbers]:
    """Return the numbers of each coefficient of a fit; intervals of score tests in place of errors."""
    errors = np.full(len(result.params), np.nan)
    ends = np.full((len(result.params), 2), np.nan)
    if cells == "ci":
        ends = _intervals(result, alpha)
    elif _has_score_intervals(result):
        ends = result._inference.interval(alpha)  # the mark at the coefficient is the warning
    else:
        errors = np.asarray(_values(result, "bse"), dtype=np.float64)
    columns = (np.asarray(result.params, dtype=np.float64), errors, ends[:, 0], ends[:, 1])
    return dict(zip(result.params.index, map(_Numbers, *columns), strict=True))


def _places(columns: Sequence[Mapping[Any, _Numbers]], digits: int | None, least: int) -> dict[Any, int]:
    """Return the digits after the point of each row, which are the same for all fits."""
    spreads: dict[Any, list[float]] = {}
    for column in columns:
        for name, entry in column.items():
            spreads.setdefault(name, []).append(entry.spread)
    return {name: row_digits(sizes, digits, least) for name, sizes in spreads.items()}


def _stacked(
    name: str, result: Any, numbers: Mapping[Any, _Numbers], formats: Mapping[Any, str]
) -> pd.Series[str]:
    cells = {}
    marks = _flags(result).marks
    for label, entry in numbers.items():
        cells[label, 0] = formats[label] % entry.value + marks.get(label, "")
        cells[label, 1] = entry.second_cell(formats[label]) or "(-)"
    return pd.Series(cells, name=name)


def _paper_cells(
    result: Any, numbers: Mapping[Any, _Numbers], stars: bool, places: Mapping[Any, int]
) -> dict[Any, tuple[str, str]]:
    """Return the two cells of each coefficient of a fit."""
    marks = star_marks(_values(result, "pvalues")) if stars else [""] * len(numbers)
    marks = flag_marks(marks, numbers, _flags(result))
    return {
        name: (
            f"{entry.value:.{places[name]}f}{mark}",
            entry.second_cell(f"%.{places[name]}f") or UNKNOWN_CELL,
        )
        for (name, entry), mark in zip(numbers.items(), marks, strict=True)
    }


def _has_score_intervals(result: Any) -> bool:
    return isinstance(result, FittedResult) and has_score_intervals(result)


def _intervals(result: Any, alpha: float) -> Floats:
    """Return intervals of all coefficients, nan where a fit has none."""
    try:
        ends = result.conf_int(alpha).reindex(result.params.index)
    except NotAvailableError:
        return np.full((len(result.params), 2), np.nan)
    return np.asarray(ends, dtype=np.float64)


def _flags(result: Any) -> Flags:
    """Return the flags of a private result; none of another one."""
    return flags_of(result) if isinstance(result, FittedResult) else Flags()


def _scale(result: Any) -> str:
    """Return the scale on which coefficients are effects; empty where it is unknown."""
    if isinstance(result, FittedResult):
        return result._inference.coefficient_scale
    model = getattr(result, "model", None)
    link = getattr(getattr(model, "family", None), "link", None)
    known = SCALES if link is None else LINK_SCALES
    return known.get(type(model if link is None else link).__name__, "")


def _report(result: Any) -> PrivacyReport | None:
    return getattr(result, "privacy", None)


def _privacy(result: Any) -> dict[str, Any]:
    report = _report(result)
    if report is None:
        return {"epsilon": np.inf, "delta": 0.0, "unit": "", "relation": "", "trust": "", "secure": False}
    delta = report.default_delta
    return {
        "epsilon": report.epsilon(delta),
        "delta": delta,
        "unit": report.unit,
        "relation": report.relation,
        "trust": report.trust,
        "secure": report.secure,
    }


def _cost(result: Any) -> str:
    cost = _privacy(result)
    return rounded_up(cost["epsilon"], 4) + (f" ({cost['delta']:g})" if cost["delta"] else "")
