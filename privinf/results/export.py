"""Results for other programs: tidy tables, JSON that anything can read, and Parquet.

Warnings of a result are exported with it: a flag and their kinds in tables, the texts in JSON and Parquet.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pandas as pd

from privinf.accounting import PrivacyReport
from privinf.completeness import CompleteRows
from privinf.error_boundary import error_boundaries
from privinf.errors import ConvergenceError, LargeDeltaWarning, NotAvailableError, NotPositiveDefiniteError
from privinf.results.fitted import FittedResult
from privinf.results.notes import CHANGED_TARGET, IMPUTED
from privinf.results.rendering import PrivateSummary
from privinf.results.summary import SummaryOptions, large_delta, summarize
from privinf.storage.checksummed import write_json, write_parquet
from privinf.typing import AnyPath, IntervalMethod
from privinf.validation import check_fraction
from privinf.wire import Formats, readable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Caution: TypeAlias = tuple[str, str]
EXPORT_VERSION = 1  # of the JSON of results, tests and tables
FIT = Formats.FIT
TEST = Formats.TEST
TABLE = Formats.TABLE
# The kind of caution of a fit that has no covariance.
NO_ERRORS = "NoStandardErrors"
# Columns of a table that state the cost of the fit.
COST_COLUMNS = ("epsilon", "delta", "mu", "rho", "unit", "relation", "trust", "secure")
# Columns of `glance()`.
GLANCE = (
    "model",
    "response",
    "response_level",
    "nobs",
    "nobs_std_error",
    "df_resid",
    "r_squared",
    "sigma",
    "cov_type",
    "target",
    "identification",
    "weak",
    "cautions",
    *COST_COLUMNS,
)
TIDY_TEST = ["term", "estimate", "std_error", "conf_low", "conf_high"]


@dataclass(frozen=True, slots=True, eq=False)
class Export:
    """A result as tables and texts; all of it post-processes the fit's releases.

    Attributes
    ----------
    result : FittedResult
    """

    result: FittedResult

    def tidy(self, alpha: float = 0.05, method: IntervalMethod = "wald") -> pd.DataFrame:
        """Return a table with one row per coefficient, as R's ``broom::tidy`` and ``marginaleffects`` do.

        Parameters
        ----------
        alpha : float
            One minus the confidence level of the intervals.
        method : {"wald", "score"}
            Method of the intervals, one of the methods of `conf_int`.

        Returns
        -------
        DataFrame
            Table with the columns ``term``, ``estimate``, ``std_error`` (sampling error and privacy noise),
            ``std_error_sampling`` (sampling error alone), ``statistic``, ``p_value``, ``conf_low``,
            ``conf_high``, ``weak`` and ``cautions``. The column ``weak`` is True if the coefficient is weakly
            identified, and ``cautions`` has the kinds of warnings about its interval. Missing entries are
            nan.

        Warns
        -----
        WeakIdentificationWarning
            Issued if some coefficients are weakly identified.
        """
        check_fraction(alpha, "alpha")
        size = len(self.result.names)
        table = {"term": list(self.result.names), "estimate": self.result.params.to_numpy()}
        columns: dict[str, Callable[[], Any]] = {
            "std_error": lambda: self.result.bse,
            "std_error_sampling": lambda: self.result.bse_sampling,
            "statistic": lambda: self.result.tvalues,
            "p_value": lambda: self.result.pvalues,
        }
        for name, column in columns.items():
            table[name] = np.asarray(_value_or(column, np.full(size, np.nan)), dtype=np.float64)
        ends = np.asarray(_value_or(lambda: self.result.conf_int(alpha, method), np.full((size, 2), np.nan)))
        cautions = self.cautions
        marks = {
            "weak": _weak_coefficients(self.result, cautions),
            "cautions": [caution_kinds(cautions)] * size,
        }
        return pd.DataFrame(table | {"conf_low": ends[:, 0], "conf_high": ends[:, 1]} | marks)

    def glance(self) -> pd.DataFrame:
        """Return a table with one row about the fit: size, measures of fit, identification and privacy.

        Table with the columns ``model``, ``response``, ``response_level`` (level of a text response that
        counts as 1; None where the response is a number), ``nobs``, ``nobs_std_error``, ``df_resid``,
        ``r_squared``, ``sigma``, ``cov_type``, ``target``, ``identification``, ``weak``, ``cautions`` (kinds
        of cautions), ``epsilon``, ``delta``, ``mu``, ``rho``, ``unit``, ``relation``, ``trust``, ``secure``.
        Missing entries are nan.

        The number of records is public, because neighboring tables have the same length. With
        ``missing="drop"``, ``nobs`` is an estimate of the number of complete records, which is private, and
        ``nobs_std_error`` is the standard deviation of its noise. Otherwise ``nobs_std_error`` is 0.

        Returns
        -------
        DataFrame
            One row.
        """
        result = self.result
        cautions = self.cautions
        facts: dict[str, Callable[[], Any]] = {
            "df_resid": lambda: result.df_resid,
            "r_squared": lambda: result.rsquared,
            "sigma": lambda: math.sqrt(result.scale),
            "identification": lambda: result.identification.statistic,
        }
        row = {
            "model": result.model.name,
            "response": result.model.endog_names,
            "response_level": result.model.response_level,
            "nobs": result.nobs,
            "nobs_std_error": _records_error(result._context.complete),
        }
        row |= {name: _value_or(fact, math.nan) for name, fact in facts.items()}
        row |= {"cov_type": result.cov_type, "target": result.target}
        row |= {
            "weak": any(_weak_coefficients(result, cautions)),
            "cautions": caution_kinds(cautions),
            **_spent(result.privacy),
        }
        return pd.DataFrame([row], columns=list(GLANCE))

    @property
    def cautions(self) -> tuple[Caution, ...]:
        """Warnings about normal intervals and the stated delta: kinds, as the warnings', and texts.

        Empty where nothing speaks against them.
        """
        context = self.result._context
        estimate = self.result.estimate
        cautions = [(CHANGED_TARGET, IMPUTED)] if context.imputed else []
        cautions += [
            (caution_kind(category), f"intervals: {text}")
            for category, text in self.result._inference.interval_warnings
        ]
        cautions += [(CHANGED_TARGET, text) for text in context.target_changes(estimate)]
        if not self.result._inference.has_intervals:
            cautions.append((NO_ERRORS, str(estimate.weak_reason)))
        return (*cautions, *_of_delta(self.result.privacy, context.table_rows(self.result.nobs)))

    def to_dict(self, alpha: float = 0.05) -> dict[str, Any]:
        """Return the contents of the summary as a dictionary of numbers and texts.

        The keys are ``format``, ``version``, ``fit`` (the row of `glance`), ``alpha``, ``coefficients`` (the
        rows of `tidy`), ``weakly_identified`` (names and strengths of identification), ``covariance`` (None
        if the noise is too large), ``cautions`` (``kind`` and ``text``), ``privacy``, ``facts`` and
        ``notes``. The value of ``privacy`` has the total cost, ``stamp``, ``response_in_clear``,
        ``assumptions`` and one entry per release. The value of ``facts`` has the labels and values in the
        header of the summary, and ``notes`` has its warnings and notes. Missing numbers are None, and
        infinite ends of intervals are ``"inf"`` and ``"-inf"``.

        Parameters
        ----------
        alpha : float
            One minus the confidence level of the intervals.

        Returns
        -------
        dict
            Dictionary that contains only numbers, texts, lists and dictionaries, so that it can be written as
            JSON.
        """
        cov = self.result.estimate.cov
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # `cautions` has them
            summary = summarize(self.result, SummaryOptions(alpha=alpha))
            rows = self.tidy(alpha)
        exported = {
            "format": FIT,
            "version": EXPORT_VERSION,
            "fit": _records(self.glance())[0],
            "alpha": alpha,
        }
        exported |= {"coefficients": _records(rows.drop(columns="cautions"))}
        weak = self.result._inference.weakness
        exported |= {"weakly_identified": {str(name): float(weak[name]) for name in weak.index}}
        exported |= {
            "covariance": None if cov is None else cov.tolist(),
            "cautions": _caution_records(self.cautions),
        }
        return _plain_dict(exported | _surroundings(self.result.privacy, summary))

    def to_json(self, path: AnyPath | None = None, *, alpha: float = 0.05, overwrite: bool = False) -> str:
        """Return the contents of the summary as JSON text, and write it to a file if `path` is passed.

        Parameters
        ----------
        path : path, optional
            File to write. By default no file is written.
        alpha : float
            One minus the confidence level of the intervals.
        overwrite : bool
            Whether to replace an existing file.

        Returns
        -------
        str
            The JSON.

        Raises
        ------
        ArgumentError
            Raised if the file exists and `overwrite` is not True.
        """
        return write_json(self.to_dict(alpha), path, overwrite)

    def to_parquet(self, path: AnyPath, *, alpha: float = 0.05, overwrite: bool = False) -> None:
        """Write the table of `tidy` as a Parquet file; its metadata contain the JSON text of `to_json`.

        Parameters
        ----------
        path : path
            File to write.
        alpha : float
            One minus the confidence level of the intervals.
        overwrite : bool
            Whether to replace an existing file.

        Raises
        ------
        ArgumentError
            Raised if the file exists and `overwrite` is not True.
        NotAvailableError
            Raised if pyarrow is not installed (``privinf[parquet]``).
        """
        write_parquet(lambda: self.tidy(alpha), self.to_dict(alpha), path, overwrite)


@error_boundaries
class PortableTable:
    """Numbers with intervals, no fit and no test, that leave as tables and texts; all of it post-processes.

    A class has `tidy`, ``privacy``, ``nobs``, a title and its cautions.
    """

    __slots__ = ()

    def glance(self) -> pd.DataFrame:
        """Return one row: ``title``, ``nobs``, ``nobs_std_error``, ``cautions``, and the cost.

        The columns of the cost, and the standard error of the number of records, are those of
        `Results.glance`.

        Returns
        -------
        DataFrame
            One row.
        """
        table: Any = self
        row = {"title": table.title, "nobs": table.nobs, "nobs_std_error": _table_records_error(table)}
        row |= {"cautions": caution_kinds(_of_test(table))}
        return pd.DataFrame([row | _spent(table.privacy)])

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain numbers and texts, for JSON.

        The keys are ``format``, ``version``, ``table`` (`glance`), ``estimates`` (one `tidy` row each),
        ``cautions`` and ``privacy``. Where rows with missing values were dropped, ``complete`` has the
        estimated number of complete rows (``rows``), the ends of its 95% interval (``low``, ``high``) and the
        number of all rows (``of``), of several columns by name.

        Returns
        -------
        dict
            Dictionary that contains only numbers, texts, lists and dictionaries, so that it can be written as
            JSON.
        """
        table: Any = self
        exported = {"format": TABLE, "version": EXPORT_VERSION, "table": _records(self.glance())[0]}
        exported |= {"estimates": _records(table.tidy()), "cautions": _caution_records(_of_test(table))}
        return _plain_dict(exported | _completeness(table) | {"privacy": _privacy(table.privacy)})

    def to_json(self, path: AnyPath | None = None, *, overwrite: bool = False) -> str:
        """Return the contents of the summary as JSON text, and write it to a file if `path` is passed.

        Parameters
        ----------
        path : path, optional
            File to write. By default no file is written.
        overwrite : bool
            Whether to replace an existing file.

        Returns
        -------
        str
            The JSON.
        """
        return write_json(self.to_dict(), path, overwrite)

    def to_parquet(self, path: AnyPath, *, overwrite: bool = False) -> None:
        """Write the table of `tidy` as a Parquet file; its metadata contain the JSON text of `to_json`.

        Parameters
        ----------
        path : path
            File to write.
        overwrite : bool
            Whether to replace an existing file.
        """
        write_parquet(self.tidy, self.to_dict(), path, overwrite)  # type: ignore[attr-defined]


@error_boundaries
class PortableCurves(PortableTable):
    """Curves with intervals that leave as tables, texts and plots; all of it post-processes one release."""

    __slots__ = ()

    def plot(self, *, ax: Axes | None = None) -> Axes:
        """Plot the curves as steps, with their bands, and the numbers at risk below.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Axes to plot on. By default new axes are made.

        Returns
        -------
        matplotlib Axes
            The axes with the plot.

        Raises
        ------
        NotAvailableError
            matplotlib is not installed (``privinf[plots]``).
        """
        from privinf.plotting import curves

        return curves(self, ax=ax)


@error_boundaries
class PortableTest(PortableTable):
    """The result of a test that leaves as tables and texts; all of it post-processes one release."""

    __slots__ = ()

    def tidy(self) -> pd.DataFrame:
        """Return one row an estimate, as `Results.tidy`.

        Columns ``term``, ``estimate``, ``std_error``, ``conf_low``, ``conf_high``, of the level that the test
        was requested.

        Returns
        -------
        DataFrame
            One row an estimate.
        """
        return pd.DataFrame([tuple(row) for row in self.rows], columns=TIDY_TEST)  # type: ignore[attr-defined]

    @property
    def _plotted_rows(self) -> tuple[Any, ...]:
        """Estimates that a plot shows."""
        test: Any = self
        return tuple(test.rows)

    @property
    def _ones(self) -> list[str]:
        """Which of two levels counts as 1, for the axis of a plot; empty where no column has such levels."""
        return []

    @property
    def _row_columns(self) -> tuple[str, ...]:
        """Columns whose values name the rows of a plot; empty where the rows name themselves."""
        return ()

    def plot(self, *, ax: Axes | None = None) -> Axes:
        """Plot the estimates with their intervals, in the order of the table.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Axes to plot on. By default new axes are made.

        Returns
        -------
        matplotlib Axes
            The axes with the plot.

        Raises
        ------
        NotAvailableError
            matplotlib is not installed (``privinf[plots]``).
        """
        from privinf.plotting import estimates

        return estimates(self, ax=ax)

    def glance(self) -> pd.DataFrame:
        """Return one row on the whole test.

        Columns ``title``, ``nobs``, ``nobs_std_error``, ``null``, ``alternative``, ``statistic``, ``df``,
        ``df_denom`` (of an F distribution), ``p_value``, ``confidence_level``, ``noise``, ``cautions``, and
        ``epsilon`` to ``secure`` as `Results.glance` has them. Missing entries are nan, or an empty text.

        Returns
        -------
        DataFrame
            One row.
        """
        test: Any = self
        statistic, pvalue, df = (getattr(test, name, math.nan) for name in ("statistic", "pvalue", "df"))
        first, second = df if isinstance(df, tuple) else (df, math.nan)
        row = {"title": test.title, "nobs": test.nobs, "nobs_std_error": _table_records_error(test)}
        row |= {"null": test.null, "alternative": test.alternative}
        row |= {"statistic": statistic, "df": first, "df_denom": second, "p_value": float(pvalue)}
        row |= {"confidence_level": test.confidence_level, "noise": test.release.noise}
        row |= {"cautions": caution_kinds(_of_test(test))}
        return pd.DataFrame([row | _spent(test.privacy)])

    def to_dict(self) -> dict[str, Any]:
        """Return the contents of the summary as a dictionary of numbers and texts.

        The keys are ``format``, ``version``, ``test`` (`glance`), ``estimates`` (one `tidy` row each),
        ``effects``, ``effect_intervals``, and ``cautions``, ``privacy``, ``facts`` and ``notes`` as
        `Results.to_dict` has them. Where rows with missing values were dropped, ``complete`` is as in
        `PortableTable.to_dict`.

        Returns
        -------
        dict
            Dictionary that contains only numbers, texts, lists and dictionaries, so that it can be written as
            JSON.
        """
        test: Any = self
        exported = {"format": TEST, "version": EXPORT_VERSION, "test": _records(self.glance())[0]}
        exported |= {"estimates": _records(self.tidy()), "effects": dict(test.effects)}
        intervals = getattr(test, "effect_intervals", {})  # which tests of survival do not have
        exported["effect_intervals"] = {name: list(ends) for name, ends in intervals.items()}
        exported |= {"cautions": _caution_records(_of_test(test))}
        exported |= _completeness(test)
        return _plain_dict(exported | _surroundings(test.privacy, test.summary()))


def _weak_coefficients(result: FittedResult, cautions: Sequence[Caution]) -> list[bool]:
    """Return which coefficients are weakly identified; all where a caution is of the fit as a whole."""
    weak = set(result._inference.weakness.index)
    jointly = not weak and any(kind in ("WeakIdentification", NO_ERRORS) for kind, _ in cautions)
    return [jointly or name in weak for name in result.names]


def _value_or(value: Callable[[], Any], otherwise: Any) -> Any:
    """Return what is there, and something else where the noise or the model leaves none."""
    try:
        return value()
    except (NotAvailableError, NotPositiveDefiniteError, ConvergenceError):
        return otherwise


def caution_kind(category: type[Warning]) -> str:
    """Return the kind of a caution: the name of its warning."""
    return category.__name__.removesuffix("Warning")


def caution_kinds(cautions: Sequence[Caution]) -> str:
    """Return the kinds, each once."""
    return ", ".join(dict.fromkeys(kind for kind, _ in cautions))


def _caution_records(cautions: Iterable[Caution]) -> list[dict[str, str]]:
    return [{"kind": kind, "text": text} for kind, text in cautions]


def _of_test(test: Any) -> list[Caution]:
    complete = _complete_rows(test)
    n = max((rows.of for rows in complete.values()), default=test.nobs)
    return [(caution_kind(category), text) for category, text in test.cautions] + _of_delta(test.privacy, n)


def _records_error(complete: CompleteRows | None) -> float:
    """Return the standard error of a number of records: 0 where it is public."""
    return 0.0 if complete is None else complete.sd


def _table_records_error(test: Any) -> float:
    """Return the same of a test or table; of several columns, of the one whose number the table states."""
    return max(((rows.rows, rows.sd) for rows in _complete_rows(test).values()), default=(0, 0.0))[1]


def _complete_rows(test: Any) -> Mapping[str, CompleteRows]:
    """Return estimated numbers of complete rows by column, of a test by the empty name."""
    complete = getattr(test, "complete", None)
    if isinstance(complete, Mapping):
        return complete
    return {} if complete is None else {"": complete}


def _completeness(test: Any) -> dict[str, Any]:
    """Return how many rows are complete, with an interval, for JSON; empty where no rows were dropped."""
    facts = {}
    for name, rows in _complete_rows(test).items():
        low, high = rows.interval
        facts[name] = {"rows": rows.rows, "low": low, "high": high, "of": rows.of}
    return {"complete": facts.get("", facts)} if facts else {}


def _of_delta(report: PrivacyReport, nobs: int) -> list[Caution]:
    return [(caution_kind(LargeDeltaWarning), text) for text in large_delta(report, nobs)]


def _spent(report: PrivacyReport) -> dict[str, Any]:
    delta = report.default_delta
    costs: list[Callable[[], Any]] = [lambda: report.epsilon(delta), lambda: report.mu, lambda: report.rho]
    epsilon, mu, rho = (_value_or(cost, math.nan) for cost in costs)
    words = (epsilon, delta, mu, rho, report.unit, report.relation, report.trust, report.secure)
    return dict(zip(COST_COLUMNS, words, strict=True))


def _privacy(report: PrivacyReport) -> dict[str, Any]:
    exported = {"epsilon": report.epsilon(), "delta": report.default_delta, "stamp": report.stamp}
    exported |= {"response_in_clear": report.response_in_clear}
    return exported | {
        "assumptions": [readable(text) for text in report.assumptions],
        "releases": _records(report.releases),
    }


def _surroundings(report: PrivacyReport, summary: PrivateSummary) -> dict[str, Any]:
    return {"privacy": _privacy(report), "facts": summary.plain_facts, "notes": summary.plain_notes}


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(name): value for name, value in row.items()} for row in table.to_dict("records")]


def _plain_dict(value: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _plain(item) for name, item in value.items()}


def _plain(value: Any) -> Any:
    """Return numbers of Python, None for nan, texts for infinities."""
    if isinstance(value, dict):
        return _plain_dict(value)
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    plain = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, float) and not math.isfinite(plain):
        return None if math.isnan(plain) else ("inf" if plain > 0 else "-inf")
    return plain
