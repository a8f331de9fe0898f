"""Quantiles of one column, and where to clip its mean, by noisy distribution functions over public bounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from scipy.special import ndtri

from privinf.accounting import GaussianLoss, Ledger, LedgerEntry, PrivacyReport, Released
from privinf.accounting.purposes import charged_for
from privinf.completeness import CompleteRows
from privinf.error_boundary import error_boundaries, error_boundary, refuses
from privinf.errors import ArgumentError, NotAvailableError
from privinf.inference.estimate import upper_quantile
from privinf.inference.quantiles import (
    CERTAIN,
    Distribution,
    MeanClip,
    inverse,
    mean_clip,
    monotone,
    ordered_intervals,
    quantile_interval,
    window_edges,
)
from privinf.mechanisms.distribution import NoisyCDF, OpenColumns, group_distributions
from privinf.mechanisms.gaussian import Spending
from privinf.mechanisms.samples import SEVERAL_ROWS, ColumnBins, SampleQuery, SampleSums
from privinf.results.notes import Note
from privinf.schema import Numeric, Schema
from privinf.stats.base import (
    COLUMN_REFUSALS,
    ConfidenceInterval,
    EstimateRow,
    IntervalOptions,
    SampleOptions,
    SampleRequest,
    StatResult,
    cell_names,
    check_level,
    public_pair,
    refuse_group_options,
    refuse_table,
    request_by,
    request_columns,
    target_notes,
)
from privinf.typing import (
    Calibration,
    ColumnLike,
    CountTarget,
    Label,
    Missing,
    NoiseChoice,
    Pair,
    RngLike,
    SourceName,
    Table,
)
from privinf.validation import check_fraction, listed
from privinf.wire import Labels

FIRST_CELLS = 1024  # of the first distribution function
FIRST_SHARE = 0.25  # its share of mu^2 for quantiles; the rest is for windows around them
CLIP_SHARE = 0.2  # its share of mu^2 for the clip of a mean
LEAST_CORE = 1.5  # groups are compared on the median +- this many sds at least
VISIBLE_TAIL = 0.02  # quantiles farther out than this are not used for the sd
NO_LAPLACE = "noise='laplace' is not available for quantiles: pass noise='gaussian', or leave noise= out"
CLIPPED_QUANTILES = (
    "Values are clipped to the public bounds [{:g}, {:g}]; quantiles are those of the clipped values."
)
ONE_CELL = (
    "{} known only to be within one cell of the grid, because the interval is one cell ({:.4g} wide). If the "
    "estimate is a bound, many values are at or close to this bound. Narrower bounds make the cells narrower."
)
MOST_NAMES = 3  # quantiles that this note names
NEARLY_NOTHING = 0.01  # share of the values that may lie beyond a clip without a warning
CORE_NOTE = (
    "All means and differences are of values clipped to [{:.6g}, {:.6g}], and the intervals are for these "
    "means; up to {:.1%} of the values may be outside, according to the noisy counts from which these limits "
    "were chosen."
)
CORE_TARGET = (
    "the means compared are of clipped values, so the test can reject if groups have equal means but "
    "different spreads or tails; for groups with equal distributions it keeps its level"
)
Clip = TypeVar("Clip", bound="MeanClip | CoreClip")


def in_one_cell(low: float, high: float, cell: float) -> bool:
    """Return whether an interval is one of equal cells, so that a release does not show where it is there."""
    return high - low < 1.5 * cell


def two_sided(level: float) -> float:
    """Return the normal quantile of an interval of a level."""
    return upper_quantile((1.0 - level) / 2.0)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class OpenedColumn:
    """A column with its public bounds, opened for releases of its distribution function."""

    columns: OpenColumns
    name: str
    low: float
    high: float
    spending: Spending

    @classmethod
    def from_request(cls, request: SampleRequest, name: str) -> OpenedColumn:
        """Return the column of a test, opened; what the call may spend fits its ledger."""
        schema = request.schema
        options = request.options
        if options.noise == "laplace":
            raise ArgumentError(NO_LAPLACE)
        if schema.unit is not None and schema.max_rows > 1:
            raise NotAvailableError(SEVERAL_ROWS.format(schema.unit, schema.max_rows))
        budget = Spending.from_options(options.spending(), options.ledger)
        bounds = schema.interval(name)
        budget.ledger.check(GaussianLoss(budget.mu))
        opened = OpenColumns(request.rows, (name,), schema=schema, unit=schema.unit)
        return cls(columns=opened, name=name, low=bounds.low, high=bounds.high, spending=budget)

    def first_distribution(self, share: float, label: str) -> tuple[NoisyCDF, tuple[LedgerEntry, ...]]:
        """Release the distribution at equal cells between the bounds."""
        edges = np.linspace(self.low, self.high, FIRST_CELLS + 1)[1:-1]
        return self.columns.cdf(self.name, edges, share, self.spending, label)


@error_boundaries
@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class QuantileRelease(Released):
    """Releases for some quantiles: a distribution function for each, between public bounds."""

    query: SampleQuery
    quantiles: tuple[float, ...]
    distributions: tuple[NoisyCDF, ...]
    bounds: tuple[float, float]
    nobs: int
    noise: NoiseChoice
    entries: tuple[LedgerEntry, ...]
    recorded: PrivacyReport
    missing: Missing = "raise"
    ones: tuple[tuple[str, Any], ...] = ()  # quantiles are of numbers, never of levels

    @property
    def privacy(self) -> PrivacyReport:
        """The report on these releases; `cumulative` is the ledger's."""
        return self.recorded

    @property
    def complete(self) -> CompleteRows | None:
        """The estimated number of complete rows, where the others were dropped; None elsewhere."""
        return self.distributions[0].complete

    def rows(self, level: float, target: CountTarget = "population") -> tuple[EstimateRow, ...]:
        """Return each quantile and its interval; its standard error is half of that over the normal one.

        Noise of their own may put quantiles out of order: they and their ends are put in order.
        """
        z = two_sided(level)
        rows = []
        pairs = zip(self.quantiles, self.distributions, strict=True)
        sampling = target == "population"
        intervals = [
            quantile_interval(distribution, q, z, *self.bounds, sampling=sampling)
            for q, distribution in pairs
        ]
        ordered = ordered_intervals(self.quantiles, intervals).tolist()
        for q, (middle, low, high) in zip(self.quantiles, ordered, strict=True):
            rows.append(
                EstimateRow(
                    name=f"{100.0 * q:.6g}%", estimate=middle, bse=0.5 * (high - low) / z, low=low, high=high
                )
            )
        return tuple(rows)


@error_boundaries
@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class QuantileResult(StatResult):
    """Quantiles of a column with intervals; the class has all attributes of `StatResult`.

    Attributes
    ----------
    target : {"population", "table"}
        Target of the intervals: quantiles of the population, or of this table.

    Notes
    -----
    **Privacy.** Costs nothing: it uses only released numbers.
    """

    release: QuantileRelease  # type: ignore[assignment]
    target: CountTarget = "population"

    def confidence_interval(self, confidence_level: float = 0.95, *, which: int = 0) -> ConfidenceInterval:
        """Return the confidence interval of one quantile.

        Parameters
        ----------
        confidence_level : float
            Confidence level of the interval, between 0 and 1. If this level is above the level that was
            requested in the call of `quantile` or `median`, the interval may end too early. Its end is then a
            public bound, or an end of the range that the second noisy distribution function covers.
        which : int
            Position of the quantile.

        Returns
        -------
        (low, high)
            A named tuple.
        """
        return ConfidenceInterval(*self.release.rows(check_level(confidence_level), self.target)[which][3:])


@error_boundaries
@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class GroupQuantilesResult(StatResult):
    """Quantiles of groups with intervals, from one noisy release.

    The class also has all attributes of `StatResult`.

    Attributes
    ----------
    quantiles : tuple of float
        Orders of the quantiles.
    target : {"population", "table"}
        Target of the intervals: quantiles of the population, or of this table.

    Notes
    -----
    **Privacy.** Costs nothing: it uses only released numbers.
    """

    quantiles: tuple[float, ...] = (0.5,)
    target: CountTarget = "population"

    def intervals(
        self,
        q: float | Sequence[float] | None = None,
        *,
        target: CountTarget | None = None,
        confidence_level: float | None = None,
        simultaneous: bool | None = None,
    ) -> GroupQuantilesResult:
        """Return other quantiles, or the same quantiles with different intervals, from the same release.

        Parameters
        ----------
        q : float or sequence of float, optional
            Orders of the quantiles, between 0 and 1. By default they are the orders of this result.
        target : {"population", "table"}, optional
            Target: quantiles of the population, or of this table. The default is the target of this result.
        confidence_level : float, optional
            Confidence level of the intervals, between 0 and 1. The default is the level of this result.
        simultaneous : bool, optional
            Whether all intervals hold jointly at the confidence level. By default it is the same as in this
            result.

        Returns
        -------
        GroupQuantilesResult
            Result with the requested quantiles and intervals.
        """
        chosen = IntervalOptions.changed(self, target, confidence_level, simultaneous)
        return _of_groups(self.release, self.quantiles if q is None else _orders(q), chosen)


def _orders(q: float | Sequence[float]) -> tuple[float, ...]:
    """Return orders of quantiles; ArgumentError where there is none."""
    refuse_table(q, "q")
    numbers = (q,) if np.ndim(q) == 0 else q
    orders = tuple(check_fraction(number, "q") for number in numbers)  # type: ignore[union-attr]
    if not orders:
        raise ArgumentError("q= must contain at least one number between 0 and 1")
    return orders


def _group_release(request: SampleRequest, value: str, groups: tuple[str, ...]) -> SampleSums:
    """Release the distribution functions of a column in groups once."""
    if request.options.noise == "laplace":
        raise ArgumentError(NO_LAPLACE)
    bounds = request.schema.interval(value)
    cuts = np.linspace(bounds.low, bounds.high, FIRST_CELLS + 1)[1:-1]
    label = Labels.QUANTILES.format(name=Labels.BY.format(values=value, groups=", ".join(groups)))
    bins = ColumnBins(name=value, cuts=tuple(cuts.tolist()))
    query = SampleQuery(kind="distributions", by=(*groups, value), bins=(bins,), label=label)
    return request.release(query)


def _of_groups(
    release: SampleSums, orders: tuple[float, ...], options: IntervalOptions
) -> GroupQuantilesResult:
    """Return the quantiles of groups with intervals."""
    (bins,) = release.query.bins
    edges = np.array(bins.cuts)
    width = float(edges[1] - edges[0])
    low, high = float(edges[0]) - width, float(edges[-1]) + width
    names = cell_names(release)
    z = two_sided(options.level_of_each(len(names) * len(orders)))
    numbers = release.sums.reshape(len(names), len(edges) + 1)
    scale = float(release.scale[0])
    intervals = [
        [
            quantile_interval(distribution, q, z, low, high, sampling=options.sampling)
            for distribution in group_distributions(numbers, edges, scale, release.nobs, q)
        ]
        for q in orders
    ]
    rows = []
    for place, name in enumerate(names):
        ordered = ordered_intervals(orders, [of_order[place] for of_order in intervals]).tolist()
        for q, (middle, lower, upper) in zip(orders, ordered, strict=True):
            label = name if len(orders) == 1 else f"{name}, {100.0 * q:.6g}%"
            rows.append(
                EstimateRow(name=label, estimate=middle, bse=0.5 * (upper - lower) / z, low=lower, high=upper)
            )
    within = [row.name for row in rows if in_one_cell(row.low, row.high, width)]
    return GroupQuantilesResult(
        title="Quantiles of Groups",
        release=release,
        rows=tuple(rows),
        confidence_level=options.level,
        ranked_notes=(
            *target_notes(options.target),
            *options.joint_notes(len(rows)),
            *_one_cell_notes(within, len(rows), width),
            Note(CLIPPED_QUANTILES.format(low, high), "header"),
        ),
        quantiles=orders,
        target=options.target,
        simultaneous=options.simultaneous,
    )


def _one_cell_notes(names: Sequence[str], rows: int, cell: float) -> tuple[Note, ...]:
    """Return the note of quantiles whose intervals are one cell; none if there are no such quantiles."""
    if not names:
        return ()
    if len(names) == rows > 1:
        subject = "All quantiles are"
    elif len(names) > MOST_NAMES:
        subject = f"The quantiles of {len(names)} of {rows} rows are"
    else:
        subject = (
            f"The quantile{'s' * (len(names) > 1)} of {listed(names)} {'are' if len(names) > 1 else 'is'}"
        )
    return (Note(ONE_CELL.format(subject, cell), "table"),)


@error_boundary
@refuses(COLUMN_REFUSALS)
def quantile(
    a: ColumnLike | str,
    q: float | Sequence[float] = 0.5,
    data: Table = None,
    *,
    schema: Schema | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    mu: float | None = None,
    rho: float | None = None,
    rng: RngLike = None,
    by: ColumnLike | str | Sequence[str] | None = None,
    bounds: Pair | None = None,
    levels: Sequence[Label] | None = None,
    target: CountTarget = "population",
    simultaneous: bool = False,
    confidence_level: float = 0.95,
    missing: Missing = "raise",
    noise: NoiseChoice = "auto",
    calibration: Calibration | None = None,
    source: SourceName | None = None,
    ledger: Ledger | None = None,
) -> QuantileResult | GroupQuantilesResult:
    """Return quantiles of a column, or of its groups, with intervals that account for the noise.

    Parameters
    ----------
    a : array_like, Series or str
        Values of the records, or the name of a column of `data`.
    q : float or sequence of float
        Orders of the quantiles, between 0 and 1. Several quantiles share the budget that remains after the
        first release, and each quantile has its own interval.
    data : table, optional
        Table that contains the columns that are passed by name: a data frame of any library, a mapping of
        arrays, or the path of a CSV or Parquet file.
    schema : Schema, optional
        Public bounds and levels of the columns of `data`.
    epsilon : float, optional
        Epsilon of the (epsilon, delta) guarantee for everything that the call releases. Pass exactly one of
        `epsilon`, `mu` and `rho`. With ``epsilon=inf`` no noise is added.
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
    by : array_like, str or sequence of str, optional
        Group of each record, the name of the column of groups, or the names of several columns. The result
        then has the quantiles of each group.
    bounds : (low, high), optional
        Public bounds of the values; values outside the bounds are clipped. For a column of `data`, the schema
        declares the bounds.
    levels : sequence, optional
        Public list of all groups, required if `by` is an array.
    target : {"population", "table"}
        Target of the estimates. With "population" (default) the target is the quantiles of the population
        from which the records are a sample. With "table" the target is the quantiles of this table, and the
        intervals allow for the noise alone.
    simultaneous : bool
        Whether the intervals of all groups hold jointly at the confidence level. By default each interval
        holds separately.
    confidence_level : float
        Confidence level of the intervals, between 0 and 1.
    missing : {"raise", "impute-public", "drop"}
        Handling of missing values. With "raise" (default) missing values are refused. With "impute-public"
        they are replaced by the middle of the bounds, or by the first level of a factor. With "drop" the rows
        with missing values are left out of every sum. The number of dropped rows is private; a noisy number
        of complete rows is released with the sums at no further cost. With "drop" the noise is Gaussian. With
        `by`, "drop" is refused.
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
    QuantileResult or GroupQuantilesResult
        Result with ``estimate`` (the first quantile), ``table`` (all quantiles), ``confidence_interval()``
        and ``privacy``. With `by`, ``.table`` and ``.intervals(...)``.

    Raises
    ------
    ArgumentError, SchemaError, SensitivityError, NotAvailableError, BudgetExceededError
        Raised if an argument is invalid, a column or its bounds do not match the declaration, the statistic
        is not available for this schema, or the release would exceed the limit of the ledger.

    Notes
    -----
    A quarter of mu^2 is spent on a first release: a noisy distribution function at 1,024 equal cells between
    the bounds. The rest is spent on a second noisy distribution function, at about 64 edges near the first
    estimate. The noise is always Gaussian, because Laplace noise would make the intervals about an eighth
    wider. If q is near 0 or 1 and n mu is below 250, an interval may end at a public bound. Estimates of
    several quantiles are made increasing in q by isotonic regression, and intervals that are not in this
    order are widened.

    If `by` is passed, the total budget is spent on one release: the distribution function of each group at
    1,024 equal cells between the bounds. In this case an interval is never shorter than one cell. If an
    interval is one cell, the release does not show where in the cell the quantile is, and a note states this.

    Within a cell, estimates are interpolated linearly. In the first and in the last cell, values can be equal
    to the bound. If this cell has more values than its neighbor, the difference counts as values at the
    bound. For a column of which most values are 0, the lower bound, the estimated median is therefore 0.

    **Privacy.** Neighboring tables differ in one record (replace-one), and the number of records is public.
    Reads every row. There are at least two releases with Gaussian noise. The first release determines the
    edges of the cells in which later releases count rows. If `by` is passed, there is one release, whose
    noise does not depend on the number of groups.

    Examples
    --------
    >>> import numpy as np, privinf as pi
    >>> x = np.random.default_rng(0).exponential(size=9_000)
    >>> low, high = pi.stats.quantile(x, bounds=(0, 50), mu=0.5, rng=0).confidence_interval()
    >>> bool(low < np.log(2) < high)
    True
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
    return _quantiles(
        a,
        _orders(q),
        options,
        by=by,
        bounds=bounds,
        levels=levels,
        intervals=IntervalOptions.checked(target, confidence_level, simultaneous),
    )


@error_boundary
@refuses(COLUMN_REFUSALS)
def median(
    a: ColumnLike | str,
    data: Table = None,
    *,
    schema: Schema | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    mu: float | None = None,
    rho: float | None = None,
    rng: RngLike = None,
    by: ColumnLike | str | Sequence[str] | None = None,
    bounds: Pair | None = None,
    levels: Sequence[Label] | None = None,
    target: CountTarget = "population",
    simultaneous: bool = False,
    confidence_level: float = 0.95,
    missing: Missing = "raise",
    noise: NoiseChoice = "auto",
    calibration: Calibration | None = None,
    source: SourceName | None = None,
    ledger: Ledger | None = None,
) -> QuantileResult | GroupQuantilesResult:
    """Return the median of a column, or of its groups, with intervals that account for the noise.

    Parameters
    ----------
    a : array_like, Series or str
        Values of the records, or the name of a column of `data`.
    data : table, optional
        Table that contains the columns that are passed by name: a data frame of any library, a mapping of
        arrays, or the path of a CSV or Parquet file.
    schema : Schema, optional
        Public bounds and levels of the columns of `data`.
    epsilon : float, optional
        Epsilon of the (epsilon, delta) guarantee for everything that the call releases. Pass exactly one of
        `epsilon`, `mu` and `rho`. With ``epsilon=inf`` no noise is added.
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
    by : array_like, str or sequence of str, optional
        Group of each record, the name of the column of groups, or the names of several columns. The result
        then has one median per group.
    bounds : (low, high), optional
        Public bounds of the values; values outside the bounds are clipped. For a column of `data`, the schema
        declares the bounds.
    levels : sequence, optional
        Public list of all groups, required if `by` is an array.
    target : {"population", "table"}
        Target of the estimate. With "population" (default) the target is the median of the population from
        which the records are a sample. With "table" the target is the median of this table, and the intervals
        allow for the noise alone.
    simultaneous : bool
        Whether the intervals of all groups hold jointly at the confidence level. By default each interval
        holds separately.
    confidence_level : float
        Confidence level of the intervals, between 0 and 1.
    missing : {"raise", "impute-public", "drop"}
        Handling of missing values. With "raise" (default) missing values are refused. With "impute-public"
        they are replaced by the middle of the bounds, or by the first level of a factor. With "drop" the rows
        with missing values are left out of every sum. The number of dropped rows is private; a noisy number
        of complete rows is released with the sums at no further cost. With "drop" the noise is Gaussian. With
        `by`, "drop" is refused.
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
    QuantileResult or GroupQuantilesResult
        Result with ``estimate``, ``table``, ``confidence_interval()`` and ``privacy``. If `by` is passed, it
        has ``table`` and ``intervals(...)``.

    Raises
    ------
    ArgumentError, SchemaError, SensitivityError, NotAvailableError, BudgetExceededError
        Raised if an argument is invalid, a column or its bounds do not match the declaration, the statistic
        is not available for this schema, or the release would exceed the limit of the ledger.

    Notes
    -----
    The median is computed by `quantile` as the quantile of order 0.5.

    **Privacy.** Neighboring tables differ in one record (replace-one), and the number of records is public.
    Reads every row. There are at least two releases with Gaussian noise. The first release determines the
    edges of the cells in which later releases count rows. If `by` is passed, there is one release, whose
    noise does not depend on the number of groups.

    Examples
    --------
    >>> import numpy as np, privinf as pi
    >>> x = np.random.default_rng(0).exponential(size=9_000)
    >>> low, high = pi.stats.median(x, bounds=(0, 50), mu=0.5, rng=0).confidence_interval()
    >>> bool(low < np.log(2) < high)
    True
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
    return _quantiles(
        a,
        (0.5,),
        options,
        by=by,
        bounds=bounds,
        levels=levels,
        intervals=IntervalOptions.checked(target, confidence_level, simultaneous),
    )


def _quantiles(
    a: ColumnLike | str,
    probabilities: tuple[float, ...],
    options: SampleOptions,
    *,
    by: ColumnLike | str | Sequence[str] | None,
    bounds: Pair | None,
    levels: Sequence[Label] | None,
    intervals: IntervalOptions,
) -> QuantileResult | GroupQuantilesResult:
    """Return quantiles of a column by two releases or more, or of its groups by one."""
    if by is not None:
        request, value, groups = request_by(a, by, bounds, levels, options)
        return _of_groups(_group_release(request, value, groups), probabilities, intervals)
    refuse_group_options(levels, intervals.simultaneous)
    request, (name,) = request_columns({"a": a}, {"a": public_pair(bounds)}, options)
    column = OpenedColumn.from_request(request, name)
    label = Labels.QUANTILES.format(name=name)
    part = (1.0 - FIRST_SHARE) / len(probabilities)
    second = []
    with charged_for(""):
        first, lines = column.first_distribution(FIRST_SHARE, label)
        entries = [*lines]
        for probability in probabilities:
            edges = window_edges(first, probability, two_sided(intervals.level), column.low, column.high)
            distribution, lines = column.columns.cdf(name, edges, part, column.spending, label)
            entries += lines
            second.append(distribution)
    release = QuantileRelease(
        query=SampleQuery(kind="one sample", values=(name,), label=label),
        quantiles=probabilities,
        distributions=tuple(second),
        bounds=(column.low, column.high),
        nobs=column.columns.n,
        noise="gaussian",
        entries=tuple(entries),
        recorded=PrivacyReport.from_entries(
            entries, request.options.ledger, delta=column.spending.delta, nobs=column.columns.n
        ),
        missing=request.rows.missing,
    )
    clipped = Note(CLIPPED_QUANTILES.format(column.low, column.high), "header")
    return QuantileResult(
        title="Quantiles",
        release=release,
        rows=release.rows(intervals.level, intervals.target),
        confidence_level=intervals.level,
        ranked_notes=(*target_notes(intervals.target), clipped),
        target=intervals.target,
    )


def streamed(request: SampleRequest) -> SampleRequest:
    """Return the same request with one stream of simulation noise for all releases, if there is a seed."""
    rng = request.options.rng
    return (
        request
        if rng is None
        else replace(request, options=replace(request.options, rng=np.random.default_rng(rng)))
    )


def spending(request: SampleRequest, mu: float) -> SampleRequest:
    """Return the same request for another budget, with Gaussian noise."""
    rest = replace(request.options, epsilon=None, rho=None, calibration=None, mu=mu, noise="gaussian")
    return replace(request, options=rest)


def clipped_sums(request: SampleRequest, name: str, level: float) -> tuple[SampleSums, MeanClip]:
    """Release the sums of one column on a clip that a fifth of mu^2 buys; their account has both releases."""

    def choose(distribution: NoisyCDF, low: float, high: float, rest: float) -> MeanClip:
        return mean_clip(distribution, low, high, two_sided(level), rest)

    query = SampleQuery(kind="one sample", values=(name,), label=Labels.MEAN.format(name=name))
    return clipped_release(request, query, choose)


def clipped_groups(request: SampleRequest, query: SampleQuery) -> tuple[SampleSums, CoreClip]:
    """Release sums that compare groups, on a clip that a fifth of mu^2 buys; with both in their account."""

    def choose(distribution: NoisyCDF, low: float, high: float, rest: float) -> CoreClip:
        return core_clip(distribution, low, high, rest, _number_of_groups(request, query))

    return clipped_release(request, query, choose)


def clipped_group_means(
    request: SampleRequest, query: SampleQuery, level: float
) -> tuple[SampleSums, MeanClip]:
    """Release sums of groups on a clip whose effect on their means is bounded; both are in the account."""

    def choose(distribution: NoisyCDF, low: float, high: float, rest: float) -> MeanClip:
        groups = _number_of_groups(request, query)
        return mean_clip(distribution, low, high, two_sided(level), rest, groups=groups)

    return clipped_release(request, query, choose)


def _number_of_groups(request: SampleRequest, query: SampleQuery) -> int:
    levels = [request.schema[name].levels for name in query.by]  # type: ignore[union-attr]
    return math.prod(map(len, levels))


def clipped_release(
    request: SampleRequest, query: SampleQuery, choose: Callable[[NoisyCDF, float, float, float], Clip]
) -> tuple[SampleSums, Clip]:
    """Release a distribution function, choose a clip by it, and release sums of the clipped values."""
    request = streamed(request)
    name = query.values[0]
    column = OpenedColumn.from_request(request, name)
    with charged_for(""):
        distribution, first = column.first_distribution(CLIP_SHARE, Labels.ITS_CLIP.format(label=query.label))
        rest = math.sqrt(1.0 - CLIP_SHARE) * column.spending.mu
        clip = choose(distribution, column.low, column.high, rest)
        second = replace(spending(request, rest), schema=_clipped_schema(request.schema, name, clip))
        sums = second.release(query)
    entries = (*first, *sums.entries)
    recorded = PrivacyReport.from_entries(
        entries, request.options.ledger, delta=column.spending.delta, nobs=sums.nobs
    )
    return replace(sums, entries=entries, recorded=recorded), clip


def _clipped_schema(schema: Schema, name: str, clip: MeanClip | CoreClip) -> Schema:
    """Return a schema in which the bounds of a column are a clip; dates and codes of missing values stay."""
    declared = schema[name]
    unit = declared.unit if isinstance(declared, Numeric) else ""
    codes = tuple(float(code) for code in declared.missing_codes)
    return schema.fill({name: Numeric(clip.low, clip.high, unit=unit, missing_codes=codes)})


# ---- clipping thresholds of comparisons


@dataclass(frozen=True, slots=True)
class CoreClip:
    """Where values are clipped whose means are compared, and the share of the rows that may lie beyond."""

    low: float
    high: float
    most: float

    def note(self) -> str:
        """Return a sentence about its effect."""
        return CORE_NOTE.format(self.low, self.high, self.most)

    def matters(self) -> bool:
        """Return whether the share of values that may lie beyond is large enough for a warning."""
        return self.most > NEARLY_NOTHING

    def caution(self) -> str:
        """Return the text of a warning: what a test of clipped values compares."""
        return CORE_TARGET


def core_clip(distribution: Distribution, low: float, high: float, mu: float, groups: int) -> CoreClip:
    """Return the clip at which means of groups are compared: middle +- c sds, within public bounds.

    The middle is the median, the sd that of a normal distribution with the quartiles that are detected, or,
    if that is more, with the outermost quantiles that pass `CERTAIN` sds of the noise. In sums of `groups`
    equal groups noise has sd 2 c/mu sds and sampling (n/groups)^.5: c is where the noise has a quarter of the
    variance of sampling, but at least `LEAST_CORE`. So it widens with n mu^2, until nothing is cut.
    """
    visible_share = float(np.clip(CERTAIN * distribution.sds.max() / distribution.n, VISIBLE_TAIL, 0.25))
    shares = np.array([0.25, visible_share, 0.5, 1.0 - visible_share, 0.75])
    q25, tail, middle, far, q75 = inverse(distribution, distribution.n * shares, low, high)
    cell = (high - low) / (len(distribution.edges) + 1)
    sd = max((q75 - q25) / (2.0 * ndtri(0.75)), (far - tail) / (2.0 * ndtri(1.0 - visible_share)), cell)
    limit = max(LEAST_CORE, mu * math.sqrt(distribution.n / groups) / 4.0) * sd
    left_end = max(float(middle - limit), low)
    right_end = min(float(middle + limit), high)
    edges = np.concatenate([[low], distribution.edges, [high]])
    counts = np.concatenate([[0.0], monotone(distribution), [float(distribution.n)]])
    sds = np.concatenate([[0.0], distribution.sds, [0.0]])
    upper_sds = np.concatenate([[0.0], distribution.sds_about(1.0), [0.0]])
    first = int(np.searchsorted(edges, left_end, side="left"))
    last = int(np.searchsorted(edges, right_end, side="right")) - 1
    outside_count = counts[first] + distribution.n - counts[last] + 2.0 * (sds[first] + upper_sds[last])
    return CoreClip(left_end, right_end, min(float(outside_count) / distribution.n, 1.0))
