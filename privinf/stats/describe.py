"""Columns at a glance: means, standard deviations, quartiles and shares of levels, with their intervals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from privinf.accounting import GaussianLoss, Ledger, LedgerEntry, PrivacyReport
from privinf.accounting.purposes import charged_for
from privinf.completeness import CompleteRows
from privinf.error_boundary import error_boundaries, error_boundary, refuses
from privinf.errors import ArgumentError, WeakIdentificationWarning
from privinf.inference.quantiles import ordered_intervals, quantile_interval
from privinf.mechanisms.gaussian import Spending
from privinf.mechanisms.samples import SampleQuery, check_columns
from privinf.notebook import html_frame
from privinf.results.export import PortableTable
from privinf.results.notes import COMPLETE_SAMPLE_TARGET, sentence
from privinf.results.paper_table import PaperTable, PortablePaperTable, privacy_note, row_digits, spread_of
from privinf.schema import Factor, Schema
from privinf.schema.declared import DAYS, as_dates, checked_names
from privinf.stats.base import SampleOptions, check_level, of_imputation, request_columns
from privinf.stats.counts import CountsResult, level_counts
from privinf.stats.means import described, deviation
from privinf.stats.quantiles import (
    FIRST_CELLS,
    NO_LAPLACE,
    OpenedColumn,
    in_one_cell,
    spending,
    streamed,
    two_sided,
)
from privinf.stats.values_at_bounds import Cautions
from privinf.typing import Calibration, Missing, NoiseChoice, RngLike, SourceName, Table
from privinf.validation import listed
from privinf.wire import Labels

if TYPE_CHECKING:
    import pandas as pd

QUARTILES = (0.25, 0.5, 0.75)
INTERVALS_ELSEWHERE = (
    "Intervals of means, standard deviations and quartiles are in .intervals and in .tidy()."
)
QUARTILE_ROWS = ("25%", "50%", "75%")
ROWS_WITH_INTERVALS = ("mean", "std", *QUARTILE_ROWS)  # rows of the table that have intervals
ROWS_OF_DATES = ("mean", *QUARTILE_ROWS)  # rows that are dates where a column is one
PAPER_DIGITS = 2  # digits after the point at least, in tables for papers
SUMS_SHARE = 0.4  # share of a column's mu^2 for its sums; the rest is for its distribution function
LEVEL_COLUMNS = ("count", "share", "low", "high")  # of the table of factors
COMPLETE_COLUMN = (
    "About {1:,} of {2:,} rows have a value of {0!r} (95% interval {3:,} to {4:,}); the count is an estimate."
)
TABLE_FIRST = "is the first argument, the table: pass the names of its columns as columns="
HIDDEN_DEVIATION = (
    "the privacy noise hides the standard deviation of {!r}, which is therefore nan in the table. It is at "
    "most {:.4g} (upper end of its {:g}% interval). Use a larger budget, more rows or narrower bounds{}"
)
OR_QUARTILES = ", or report the quartiles instead"
ONE_CELL = (
    "The release shows only in which of the 1,024 cells between the bounds these quartiles are; {}. "
    "Use narrower bounds, or pi.stats.quantile, whose cells are finer near the quantile."
)
CLIPPED_COLUMNS = "All numbers describe values clipped to their public bounds."


def _no_levels() -> pd.DataFrame:
    """Return the table of factors of a description that has none."""
    import pandas as pd

    index = pd.MultiIndex.from_arrays([[], []], names=["column", "level"])
    return pd.DataFrame({name: np.empty(0) for name in LEVEL_COLUMNS}, index)


@error_boundaries
@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class Description(PortableTable, PortablePaperTable):
    """Result of `describe`: means and quartiles of numeric columns, and shares of the levels of factors.

    Attributes
    ----------
    table : DataFrame
        Mean, standard deviation and quartiles of every column, as pandas' ``describe`` shows them. A standard
        deviation that the noise hides is nan, and a caution states this. Minimum and maximum are not
        released, because they are values of single records.
    intervals : DataFrame
        Lower and upper ends of the intervals of the numbers in `table`.
    privacy : PrivacyReport
        Cost of the releases.
    missing : {"raise", "impute-public", "drop"}
        How missing values were handled.
    levels : DataFrame
        For every factor, a table with one row per level: the count in this table, the share, and the ends of
        the interval for the share in the population. It is empty if there are no factors.
    complete : dict
        Noisy estimates of the number of complete rows of each column, if rows with missing values were
        dropped; otherwise empty.
    confidence_level : float
        Level of the intervals.
    dates : tuple of str
        Names of the columns of dates. In `table` and `intervals` their numbers are days since 1970-01-01.
        When the result is printed, means and quartiles of these columns are shown as dates.
    one_cell : dict
        For columns with quartiles whose interval is one cell of the grid, the names of these quartiles, such
        as "50%". The release does not show where in the cell such a quartile is, and a note states this.

    Notes
    -----
    **Privacy.** Costs nothing: it uses only released numbers.
    """

    table: pd.DataFrame
    intervals: pd.DataFrame
    privacy: PrivacyReport

    missing: Missing = "raise"
    levels: pd.DataFrame = field(default_factory=_no_levels)
    complete: Mapping[str, CompleteRows] = field(default_factory=dict)
    confidence_level: float = 0.95
    dates: tuple[str, ...] = ()
    one_cell: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    title: ClassVar[str] = "Description"

    @property
    def cautions(self) -> Cautions:
        """Cautions about hidden standard deviations, and about imputed values where they were imputed."""
        level = 100.0 * self.confidence_level
        hidden = tuple(
            (
                WeakIdentificationWarning,
                HIDDEN_DEVIATION.format(
                    name,
                    self.intervals.at[("std", "high"), name],
                    level,
                    "" if name in self.one_cell else OR_QUARTILES,
                ),
            )
            for name in self.table.columns[np.isnan(self.table.loc["std"].to_numpy(dtype=np.float64))]
        )
        return (*of_imputation(self.missing), *hidden)

    @property
    def nobs(self) -> int:
        """Public number of records; with ``missing="drop"``, the largest noisy count of the columns."""
        if len(self.table.columns):
            return int(self.table.loc["count"].to_numpy().max())
        first = self.levels.index[0][0]
        return round(float(self.levels.loc[first, "count"].sum()))

    def tidy(self) -> pd.DataFrame:
        """Return a table with one row per column and statistic.

        Returns
        -------
        DataFrame
            Table with the columns ``column``, ``term``, ``estimate``, ``conf_low`` and ``conf_high``. The
            term of a numeric column is "mean", "std", "25%", "50%" or "75%". The term of a factor is "share
            of" followed by a level. The interval has the requested confidence level. An estimate is nan if
            the noise hides it.
        """
        import pandas as pd

        ends = self.intervals
        rows = [
            (
                name,
                term,
                self.table.at[term, name],
                *(
                    ends.at[(term, end), name] if term in ROWS_WITH_INTERVALS else math.nan
                    for end in ("low", "high")
                ),
            )
            for name in self.table.columns
            for term in self.table.index[1:]
        ]
        shares = zip(self.levels.index, self.levels.to_numpy(), strict=True)
        rows += [(cell[0], Labels.SHARE.format(name=cell[1]), *numbers[1:]) for cell, numbers in shares]
        return pd.DataFrame(rows, columns=["column", "term", "estimate", "conf_low", "conf_high"])

    def _paper_table(self, digits: int | None) -> PaperTable:
        rows: list[tuple[str, ...]] = []
        for name, term, *numbers in self.tidy().itertuples(index=False):
            dated = name in self.dates and term in ROWS_OF_DATES
            place = row_digits([spread_of(numbers[0], math.nan, *numbers[1:])], digits, PAPER_DIGITS)
            estimate, low, high = (_date(x) if dated else f"{x:.{place}f}" for x in numbers)
            term = f"{term} (days)" if name in self.dates and term == "std" else term
            rows.append((f"{name}, {term}", estimate, "" if math.isnan(numbers[1]) else f"[{low}, {high}]"))
        note = [privacy_note(self.privacy, f"{self.nobs:,}"), CLIPPED_COLUMNS]
        note += [f"{sentence(text)}" for _, text in self.cautions]
        return PaperTable(
            header=("", "Estimate", f"{100 * self.confidence_level:g}% interval"),
            rows=rows,
            note=" ".join(note),
        )

    def _shown(self) -> pd.DataFrame:
        """Return the table with dates in the place of days since 1970-01-01."""
        if not self.dates:
            return self.table
        shown = self.table.astype(object)
        for name in self.dates:
            numbers = self.table[name]
            shown[name] = [_date(x) if term in ROWS_OF_DATES else x for term, x in numbers.items()]
            if math.isfinite(numbers["std"]):
                shown.loc["std", name] = f"{numbers['std']:.4g} days"
        return shown

    def __repr__(self) -> str:
        tables = [self._shown(), self.levels]
        return (
            "\n\n".join([table.to_string() for table in tables if table.size]) + "\n" + "\n".join(self._notes)
        )

    def _repr_html_(self) -> str:
        if not self.levels.size:
            return html_frame(self._shown(), self.title, self._notes)
        factors = html_frame(self.levels.reset_index(), "Factors", self._notes)
        return html_frame(self._shown(), self.title, []) + factors if self.table.size else factors

    def _cells_of(self, name: str) -> str:
        """Return the quartiles of a column that are known up to a cell, each cell with its ends."""
        cells: dict[tuple[float, float], list[str]] = {}
        for term in self.one_cell[name]:
            low, high = self.intervals[name].loc[term].loc[["low", "high"]].tolist()
            cells.setdefault((low, high), []).append(term)
        written = _date if name in self.dates else "{:.4g}".format
        parts = [
            f"{listed(terms)} ({written(low)} to {written(high)})" for (low, high), terms in cells.items()
        ]
        return f"{name!r}: {', '.join(parts)}"

    @property
    def _notes(self) -> list[str]:
        cautions = [sentence(text) for _, text in self.cautions]
        cautions += [
            COMPLETE_COLUMN.format(name, rows.rows, rows.of, *rows.interval)
            for name, rows in self.complete.items()
        ]
        cautions += [COMPLETE_SAMPLE_TARGET] if self.complete else []
        cautions += [ONE_CELL.format("; ".join(map(self._cells_of, self.one_cell)))] if self.one_cell else []
        first = [CLIPPED_COLUMNS, *([INTERVALS_ELSEWHERE] if self.table.size else [])]
        return [*first, *cautions, *([self.privacy.stamp] if self.privacy.stamp else [])]


@error_boundary
@refuses({"by": "is not an argument here: pi.stats.mean and pi.stats.quantile take by=", "data": TABLE_FIRST})
def describe(
    data: Table,
    columns: Iterable[str] | None = None,
    *,
    schema: Schema | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    mu: float | None = None,
    rho: float | None = None,
    rng: RngLike = None,
    confidence_level: float = 0.95,
    missing: Missing = "raise",
    noise: NoiseChoice = "auto",
    calibration: Calibration | None = None,
    source: SourceName | None = None,
    ledger: Ledger | None = None,
) -> Description:
    """Describe numeric columns by mean, standard deviation and quartiles, and text levels by their shares.

    Parameters
    ----------
    data : table
        Raw rows: a data frame of any library, a mapping of arrays, or the path of a CSV or Parquet file.
    columns : sequence of str, optional
        Names of the columns to describe. By default they are all columns of the schema. A column whose levels
        are numbers, such as [1, 2], is described as a number; for the shares of its levels use
        `pi.stats.counts`.
    schema : Schema, optional
        Public bounds and levels of the columns of `data` (required).
    epsilon : float, optional
        Epsilon of the (epsilon, delta) guarantee for everything that the call releases. Pass exactly one of
        `epsilon`, `mu` and `rho`. With ``epsilon=inf`` no noise is added. Each column gets an equal share of
        the budget (in mu^2).
    delta : float, optional
        Delta of the guarantee, at most 1/n, such as 1e-6. A finite `epsilon` needs a delta if the noise is
        Gaussian. With `mu` or `rho`, epsilon is reported at this delta.
    mu : float, optional
        Budget in Gaussian differential privacy, instead of `epsilon`.
    rho : float, optional
        Budget in zero-concentrated differential privacy (zCDP), instead of `epsilon`.
    rng : None, int or Generator, optional
        Source of randomness. With None (default) the noise is secure. With a seed or a Generator it is
        simulation noise, which is not private, and the results are marked as NOT PRIVATE.
    confidence_level : float
        Confidence level of the intervals, between 0 and 1. The level applies to each interval separately.
    missing : {"raise", "impute-public", "drop"}
        Handling of missing values. With "raise" (default) missing values are refused. With "impute-public"
        they are replaced by the middle of the bounds, or by the first level of a factor. With "drop" the rows
        with missing values are left out of every sum. The number of dropped rows is private; a noisy number
        of complete rows is released with the sums at no further cost. With "drop" the noise is Gaussian.
    noise : {"auto", "gaussian", "laplace"}
        Distribution of the noise. With "auto" the noise is Laplace noise if ``delta=0``, or if no ledger is
        passed and Laplace noise is smaller. Otherwise the noise is Gaussian, for which the total cost of
        several releases is lower. This function is an exception: it always uses Gaussian noise, and refuses
        "laplace".
    calibration : {"exact", "classic"}, optional
        How the noise is computed from `epsilon` and `delta`. The choice "exact" (default) is the exact
        calibration of Gaussian noise. The choice "classic" is the textbook formula; use it only to reproduce
        published results.
    source : {"lattice", "opendp"}, optional
        Sampler of the secure noise: "lattice" is the sampler of privinf (default), and "opendp" is the
        sampler of OpenDP.
    ledger : Ledger, optional
        Budget ledger that records the cost of the release. If the release would exceed the limit of the
        ledger, it is refused before any row is read. The cost is recorded in the ledger before anything is
        released.

    Returns
    -------
    Description
        Result with ``table`` (count, mean, std and quartiles of every numeric column), ``intervals``,
        ``levels`` (counts and shares of factors) and ``privacy``.

    Raises
    ------
    ArgumentError, SchemaError, NotAvailableError, BudgetExceededError
        Raised if an argument is invalid, a column does not match its declaration, the statistic is not
        available for this schema, or the release would exceed the limit of the ledger.

    Notes
    -----
    **Privacy.** Neighboring tables differ in one record (replace-one), and the number of records is public.
    Reads every row. All columns are checked before the first release. Each numeric column has two releases
    with Gaussian noise. The sums of values and squares cost 0.4 of the mu^2 of the column, and its
    distribution function at 1,024 equal cells between its bounds costs 0.6. A factor whose levels are texts
    has one release, of the counts of its levels.

    Examples
    --------
    >>> import numpy as np, pandas as pd, privinf as pi
    >>> rows = pd.DataFrame({"age": np.random.default_rng(0).uniform(20, 60, 9_000)})
    >>> r = pi.stats.describe(rows, schema=pi.Schema({"age": (0, 100)}), mu=1.0, rng=0)
    >>> list(r.table.index), bool(39 < r.table.loc["50%", "age"] < 41)
    (['count', 'mean', 'std', '25%', '50%', '75%'], True)
    """
    options = SampleOptions(
        data=data,
        schema=schema,
        epsilon=epsilon,
        delta=delta,
        mu=mu,
        rho=rho,
        rng=rng,
        missing=missing,
        noise=noise,
        calibration=calibration,
        source=source,
        ledger=ledger,
    )
    import pandas as pd

    level = check_level(confidence_level)
    if isinstance(columns, Schema):
        raise ArgumentError("columns= is a schema: pass it as schema=")
    if schema is None:
        raise ArgumentError("schema= is missing: describe() needs the bounds of the columns")
    names = checked_names(schema.columns if columns is None else columns)
    if isinstance(data, str) and data in schema.columns:
        raise ArgumentError(f"data= {TABLE_FIRST}")
    declared = dict(zip(names, names, strict=True))
    request = streamed(request_columns(declared, dict.fromkeys(names), options)[0])
    if options.noise == "laplace":
        raise ArgumentError(NO_LAPLACE)
    budget = Spending.from_options(request.options.spending(), ledger)
    budget.ledger.check(GaussianLoss(budget.mu))
    factors = [name for name in names if _is_factor(schema, name)]
    check_columns(request.rows, request.schema, names)
    opened = {name: OpenedColumn.from_request(request, name) for name in names if name not in factors}
    part = 1.0 / len(names)
    entries: list[LedgerEntry] = []
    estimates: dict[str, list[float]] = {}
    ends: dict[str, list[float]] = {}
    counted: list[tuple[tuple[Any, Any], Any]] = []
    complete: dict[str, CompleteRows] = {}
    one_cell: dict[str, tuple[str, ...]] = {}
    n: int | None = None
    with charged_for(f"describe: {', '.join(names)}"):
        for name in names:
            if name in factors:
                result = level_counts(spending(request, budget.mu * math.sqrt(part)), (name,), level)
                entries += result.release.entries
                n = result.release.nobs
                counted += _level_rows(name, result)
                complete |= {} if result.complete is None else {name: result.complete}
                continue
            column = opened[name]
            query = SampleQuery(
                kind="one sample", values=(name,), label=Labels.DESCRIBED_SUMS.format(name=name)
            )
            sums = spending(request, column.spending.mu * math.sqrt(SUMS_SHARE * part)).release(query)
            first, lines = column.first_distribution((1.0 - SUMS_SHARE) * part, Labels.DESCRIBE)
            entries += [*sums.entries, *lines]
            n = sums.nobs
            mean = described(sums, level=level)
            z = two_sided(level)
            quarters = ordered_intervals(
                QUARTILES, [quantile_interval(first, q, z, column.low, column.high) for q in QUARTILES]
            ).tolist()
            cell = (column.high - column.low) / FIRST_CELLS
            if within := tuple(
                term
                for term, (_, low, high) in zip(QUARTILE_ROWS, quarters, strict=True)
                if in_one_cell(low, high, cell)
            ):
                one_cell[name] = within
            if sums.complete is not None:
                complete[name] = sums.complete
            sd, *ends_of_sd = deviation(sums, level)
            estimates[name] = [mean.nobs, mean.estimate, sd, *(quartile[0] for quartile in quarters)]
            ends[name] = [
                *mean.confidence_interval(level),
                *ends_of_sd,
                *(end for quartile in quarters for end in quartile[1:]),
            ]
    index = pd.MultiIndex.from_product([ROWS_WITH_INTERVALS, ["low", "high"]])
    levels = _no_levels()
    if counted:
        cells, numbers = zip(*counted, strict=True)
        labels = pd.MultiIndex.from_tuples(cells, names=["column", "level"])
        levels = pd.DataFrame(numbers, labels, LEVEL_COLUMNS)
    return Description(
        table=pd.DataFrame(estimates, index=["count", "mean", "std", *QUARTILE_ROWS]),
        intervals=pd.DataFrame(ends, index=index),
        privacy=PrivacyReport.from_entries(entries, ledger, delta=budget.delta, nobs=n),
        missing=request.rows.missing,
        levels=levels,
        complete=complete,
        confidence_level=level,
        dates=tuple(name for name in opened if schema[name].unit == DAYS),
        one_cell=one_cell,
    )


def _date(days: float) -> str:
    """Return days since 1970-01-01 as a date."""
    return str(as_dates(np.array(days)).astype("datetime64[D]")) if math.isfinite(days) else f"{days:g}"


def _is_factor(schema: Schema, name: str) -> bool:
    """Return whether a column has levels that are texts."""
    declared = schema[name]
    return isinstance(declared, Factor) and declared.categorical


def _level_rows(name: str, result: CountsResult) -> list[tuple[tuple[Any, Any], Any]]:
    """Return count, share and interval of every level of a factor."""
    cells = zip(result.release.levels[0], result.rows, strict=True)
    return [
        ((name, level), (row.estimate * result.nobs, row.estimate, row.low, row.high)) for level, row in cells
    ]
