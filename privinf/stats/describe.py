"""Columns at a glance: means, standard deviations and quartiles, each with its interval."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from privinf.accounting import Ledger, PrivacyReport
from privinf.accounting.purposes import charged_for
from privinf.error_boundary import error_boundaries, error_boundary
from privinf.errors import ArgumentError
from privinf.inference.quantiles import ordered_intervals, quantile_interval
from privinf.mechanisms.samples import SampleQuery
from privinf.notebook import html_frame
from privinf.results.export import PortableTable
from privinf.results.notes import sentence
from privinf.schema import Schema
from privinf.schema.declared import checked_names
from privinf.stats.base import Cautions, SampleOptions, check_level, of_imputation, request_columns
from privinf.stats.means import described
from privinf.stats.quantiles import OpenedColumn, spending, streamed, two_sided
from privinf.typing import Calibration, Missing, NoiseChoice, RngLike, SourceName, Table
from privinf.wire import Labels

if TYPE_CHECKING:
    import pandas as pd

QUARTILES = (0.25, 0.5, 0.75)
ROWS_WITH_INTERVALS = ("mean", "25%", "50%", "75%")  # rows of the table that have intervals
SUMS_SHARE = 0.4  # share of a column's mu^2 for its sums; the rest is for its distribution function
CLIPPED_COLUMNS = "All numbers describe values clipped to their public bounds."


@error_boundaries
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Description(PortableTable):
    """Means, standard deviations and quartiles of columns; made by `privinf.stats.describe`.

    Attributes
    ----------
    table : DataFrame
        Mean, standard deviation and quartiles of every column, as pandas' ``describe`` shows them; without
        the smallest and largest values, which are single records.
    intervals : DataFrame
        Low and high ends of the intervals of the numbers in `table`.
    privacy : PrivacyReport
        Cost of the releases.
    missing : {"raise", "impute-public"}
        How missing values were handled.

    Notes
    -----
    **Privacy.** The numbers are functions of releases, and public.
    """

    table: pd.DataFrame
    intervals: pd.DataFrame
    privacy: PrivacyReport

    missing: Missing = "raise"

    title: ClassVar[str] = "Description"

    @property
    def cautions(self) -> Cautions:
        """Caution about imputed values, if imputation was requested."""
        return of_imputation(self.missing)

    @property
    def nobs(self) -> int:
        """Number of records, public."""
        return int(self.table.loc["count"].to_numpy().max())

    def tidy(self) -> pd.DataFrame:
        """Return a table with one row per column and statistic.

        Returns
        -------
        DataFrame
            Columns ``column``, ``term`` ("mean", "std", "25%", "50%", "75%"), ``estimate``, and ``conf_low``
            and ``conf_high`` of the level that was requested; nan where there is no interval.
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
        return pd.DataFrame(rows, columns=["column", "term", "estimate", "conf_low", "conf_high"])

    def __repr__(self) -> str:
        return "\n".join([self.table.to_string(), *self._notes])

    def _repr_html_(self) -> str:
        return html_frame(self.table, self.title, self._notes)

    @property
    def _notes(self) -> list[str]:
        cautions = [sentence(text) for _, text in self.cautions]
        return [CLIPPED_COLUMNS, *cautions, *([self.privacy.stamp] if self.privacy.stamp else [])]


@error_boundary
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
    """Describe numeric columns by mean, standard deviation and quartiles.

    Parameters
    ----------
    data : table
        The rows: a frame of any library, a mapping of arrays, or the path of a CSV or Parquet file.
    columns : sequence of str, optional
        Columns to describe; default: all of the schema.
    schema : Schema, optional
        Public bounds and levels of the columns of `data`. It is required.
    epsilon : float, optional
        Epsilon of the (epsilon, delta) guarantee for everything that the call releases. Give exactly one of
        `epsilon`, `mu` and `rho`. ``epsilon=inf`` adds no noise. Each column has an equal share of mu^2.
    delta : float, optional
        Delta of the guarantee, at most 1/n, such as 1e-6. A finite `epsilon` needs it wherever the noise is
        Gaussian. With `mu` or `rho` it is the delta at which epsilon is reported.
    mu : float, optional
        Budget in Gaussian differential privacy, instead of `epsilon`.
    rho : float, optional
        Budget in zero-concentrated differential privacy (zCDP), instead of `epsilon`.
    rng : None, int or Generator, optional
        None (default) draws secure noise. A seed or a Generator draws simulation noise, which is not private;
        the results are marked as such.
    confidence_level : float
        Level of the intervals, between 0 and 1. It holds for each interval separately.
    missing : {"raise", "impute-public"}
        Whether missing values are refused, or replaced by the middle of the bounds (of a factor, by its first
        level).
    noise : {"auto", "gaussian", "laplace"}
        Distribution of the noise. "auto" is Laplace noise where the budget is stated in epsilon alone, or
        where no ledger is given and Laplace noise is smaller. Otherwise it is Gaussian noise, which composes
        better. This function always uses Gaussian noise, and refuses "laplace".
    calibration : {"exact", "classic"}, optional
        How `epsilon` and `delta` determine the noise. "exact" (default) is the exact account of Gaussian
        noise. "classic" is the textbook formula, to reproduce published results only.
    source : {"lattice", "opendp"}, optional
        Sampler of secure noise: privinf's own (default), or OpenDP's.
    ledger : Ledger, optional
        Budget ledger. It refuses the release before any row is read if its limit would be exceeded, and it is
        charged before anything is released.

    Returns
    -------
    Description
        ``.table`` (count, mean, std and quartiles of every column), ``.intervals``, ``.privacy``.

    Raises
    ------
    ArgumentError, SchemaError, NotAvailableError, BudgetExceededError
        An argument is invalid, a column does not match its declaration, the request is not available for
        these rows, or the ledger's limit does not allow the release.

    Notes
    -----
    **Privacy.** Neighbors differ by the replacement of one record; the number of records is public. Every
    record is read. Each column has two Gaussian releases: 0.4 of its mu^2 is for the sums of values and
    squares, and 0.6 for its distribution function at 1,024 cells of its bounds.

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
    if schema is None:
        raise ArgumentError("schema= is missing: describe() needs the bounds of the columns")
    names = checked_names(schema.columns if columns is None else columns)
    declared = dict(zip(names, names, strict=True))
    request = streamed(request_columns(declared, dict.fromkeys(names), options)[0])
    opened = {name: OpenedColumn.from_request(request, name) for name in names}
    part = 1.0 / len(names)
    entries = []
    estimates: dict[str, list[float]] = {}
    ends: dict[str, list[float]] = {}
    with charged_for(f"describe: {', '.join(names)}"):
        for name, column in opened.items():
            query = SampleQuery(
                kind="one sample", values=(name,), label=Labels.DESCRIBED_SUMS.format(name=name)
            )
            sums = spending(request, column.spending.mu * math.sqrt(SUMS_SHARE * part)).release(query)
            first, lines = column.first_distribution((1.0 - SUMS_SHARE) * part, Labels.DESCRIBE)
            entries += [*sums.entries, *lines]
            mean = described(sums, level=level)
            z = two_sided(level)
            quarters = ordered_intervals(
                QUARTILES, [quantile_interval(first, q, z, column.low, column.high) for q in QUARTILES]
            ).tolist()
            estimates[name] = [sums.nobs, mean.estimate, mean.sd, *(quartile[0] for quartile in quarters)]
            ends[name] = [
                *mean.confidence_interval(level),
                *(end for quartile in quarters for end in quartile[1:]),
            ]
    index = pd.MultiIndex.from_product([ROWS_WITH_INTERVALS, ["low", "high"]])
    return Description(
        pd.DataFrame(estimates, index=["count", "mean", "std", *ROWS_WITH_INTERVALS[1:]]),
        pd.DataFrame(ends, index=index),
        PrivacyReport.from_entries(entries, ledger, delta=opened[names[0]].spending.delta),
        request.rows.missing,
    )
