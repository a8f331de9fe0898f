"""Counts of records by factors and bins: tables of this data set, or shares of the population.

The counts have the noise of one release (`privinf.mechanisms.samples`): of the cells alone, or of cells, rows
and columns. Estimates, display and intervals are in `privinf.inference.counts`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from scipy.special import ndtri

from privinf.accounting import Ledger
from privinf.completeness import CompleteRows
from privinf.error_boundary import error_boundaries, error_boundary, refuses
from privinf.errors import ArgumentError, NotAvailableError
from privinf.inference.counts import (
    ShareModel,
    TableEstimate,
    count_intervals,
    estimate_table,
    laplace_share_intervals,
    noise_half,
    on_simplex,
    with_margins,
)
from privinf.mechanisms.samples import ColumnBins, SampleQuery, SampleSums
from privinf.results.notes import Note
from privinf.results.summary import number
from privinf.schema import Schema
from privinf.schema.declared import DAYS, as_dates, date_number
from privinf.stats import base
from privinf.stats.association import independence
from privinf.stats.groups import complete_share_intervals, row_share_sets, score_interval
from privinf.typing import (
    ArrayLike,
    Calibration,
    ColumnLike,
    CountTarget,
    Flags,
    Floats,
    Integers,
    Label,
    Missing,
    NoiseChoice,
    Pair,
    RngLike,
    ShareMethod,
    SourceName,
    Table,
)
from privinf.validation import check_array, check_count, check_flag, check_number, is_zero
from privinf.wire import Labels

if TYPE_CHECKING:
    import pandas as pd

ALONE = 25  # most cells of a table whose margins are added up instead of released
ALL = "All"  # name of a margin, as in pandas
OTHER_ALL = "All levels"  # name of a margin where a level has that name
OF_TABLE = (
    "The counts are those of this table: standard errors and intervals allow for the noise, not for sampling."
)
OF_POPULATION = (
    "The shares are those of the population from which the records are a sample: standard errors and "
    "intervals allow for sampling and for the noise."
)
SHOWN = (
    "The estimates are the nearest possible table: nothing is negative, and {}. Standard errors and "
    "intervals belong to the estimates before this projection, in .unprojected."
)
EXACT = "The method is exact: it uses the distribution of a binomial count plus the noise."
SCORE = "Score interval."
IMPOSSIBLE = "{} cells cannot occur and are 0."
# Of a small table whose margins were bought, although its cells alone are more precise.
COSTLY_MARGINS = (
    "margins=True used part of the budget for the totals of rows and columns: without it, margins are sums "
    "of the cells, and standard errors of the cells would be {:.0%} smaller{}."
)
BY_LAPLACE = ', with noise="laplace"'
NOTABLE_LOSS = 1.02  # standard errors of cells over those without released margins, from which a note says so
SUPPRESSED = (
    "Of {cells} cells, {hidden} have unprojected estimates below {below:g} and are not shown. Together "
    "they have {rest:.6g} records, the total minus the cells shown. Because the cells were selected, each "
    "interval of a cell has the level {level:.4g}."
)
SHARES_WITHIN = "shares of {} within {}"
OF_ROWS = "Each share is that of one level within a {} of the table. The denominators are noisy counts too."
NO_ROWS = (
    "shares within rows and columns need a crosstab without suppressed cells: call them on the "
    "result of pi.stats.crosstab"
)
CROSSTAB_REFUSALS = {
    "normalize": "is not an argument here: .row_shares() and .column_shares() of the result return shares "
    "within rows and columns with intervals, from the same release",
    "by": "is not an argument here: pass the two columns as the first and the second argument",
}
NONE_SUPPRESSED = "No cell has an unprojected estimate below {:g}, so all cells are shown."


# ---- models of a release


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class CountModel:
    """Estimates of a release of counts, and how their noise is distributed.

    Attributes
    ----------
    shape : tuple of int
        Number of levels of each factor.
    estimate : TableEstimate
        Estimates as a table of two factors; with another number of factors, as one row.
    shown : ndarray
        The nearest possible table, in the shape of `estimate`.
    possible : ndarray of bool
        False for cells that cannot occur, in the same shape.
    n : int
        Number of records of which shares are taken: all, or the estimated number of complete records.
    sd : float
        Sd of the noise of a released count of a cell.
    laplace : bool
        Whether the noise is Laplace noise: estimates are then not conditioned on the public total.
    total : int
        Public number of all records.
    complete : CompleteRows or None
        The estimated number of complete rows, where the others were dropped; None elsewhere.
    """

    shape: tuple[int, ...]
    estimate: TableEstimate
    shown: Floats
    possible: Flags
    n: int
    sd: float
    laplace: bool
    total: int
    complete: CompleteRows | None = None

    @classmethod
    def from_release(cls, release: SampleSums, zeros: Sequence[tuple[Any, ...]] = ()) -> CountModel:
        """Return the model of one release."""
        shape = tuple(map(len, release.levels))
        two = len(shape) == 2
        flat = shape if two else (1, math.prod(shape))
        possible = _possible(release, zeros).reshape(flat)
        size = math.prod(shape)
        n = release.nobs
        sd = float(release.scale[0])
        if release.complete is not None:
            return cls._of_complete(release, shape, possible)
        numbers = release.sums[:, 0] if sd > 0.0 else np.rint(release.sums[:, 0])
        laplace = release.noise == "laplace"
        cells = numbers[:size].reshape(flat)
        if release.query.kind == "margins":
            estimate = estimate_table(
                cells,
                n,
                sd,
                rows=numbers[size : size + shape[0]],
                columns=numbers[size + shape[0] :],
                margin_sds=(float(release.scale[1]), float(release.scale[2])),
                possible=possible,
            )
        else:
            estimate = estimate_table(cells, n, sd, possible=possible)
        shown = _shown(estimate, n, possible, two=two) if sd > 0.0 else estimate.cells
        if laplace:
            estimate = _independent(cells * possible, sd, possible)
        return cls(
            shape=shape,
            estimate=estimate,
            shown=shown,
            possible=possible,
            n=n,
            sd=sd,
            laplace=laplace,
            total=n,
        )

    @classmethod
    def _of_complete(cls, release: SampleSums, shape: tuple[int, ...], possible: Flags) -> CountModel:
        """Return the model where rows without a value are one more cell, which is not shown.

        All cells are conditioned on the public total: a sum of c of P possible ones has noise of variance
        s^2 c (1 - c/P), and the covariance s^2 c/P with the number of complete rows.
        """
        n = release.nobs
        sd = float(release.scale[0])
        numbers = release.sums[:, 0] if sd > 0.0 else np.rint(release.sums[:, 0])
        every = np.append(possible.ravel(), True)
        cells = (
            estimate_table(numbers[None], n, sd, possible=every[None]).cells[0, :-1].reshape(possible.shape)
        )
        parts = float(every.sum())
        sds = [
            sd * np.sqrt(c * (1.0 - c / parts))
            for c in (possible, possible.sum(axis=1), possible.sum(axis=0))
        ]
        estimate = TableEstimate(
            cells=cells,
            rows=cells.sum(axis=1),
            columns=cells.sum(axis=0),
            cell_sds=sds[0],
            row_sds=sds[1],
            column_sds=sds[2],
        )
        shown = cells
        if sd > 0.0:
            projected = np.zeros(len(every))
            rest = n - float(cells.sum())
            projected[every] = on_simplex(np.append(cells[possible], rest), float(n))
            shown = projected[:-1].reshape(possible.shape)
        complete = CompleteRows.from_count(float(cells.sum()), sd * math.sqrt(1.0 - 1.0 / parts), n)
        return cls(
            shape=shape,
            estimate=estimate,
            shown=shown,
            possible=possible,
            n=complete.rows,
            sd=sd,
            laplace=False,
            total=n,
            complete=complete,
        )

    @property
    def shown_total(self) -> float:
        """The total of what is shown: the number of records, or the estimated one of complete records."""
        return float(self.n) if self.complete is None else max(float(self.shown.sum()), 1.0)

    def terms(self, *, margins: bool) -> Integers:
        """Return of how many Laplace numbers the noise of each estimate is a sum."""
        cells = np.ones(self.possible.size, dtype=np.int64)
        sums = [self.possible.sum(axis=1), self.possible.sum(axis=0)] if margins else []
        return np.asarray(np.maximum(np.concatenate([cells, *sums]), 1), dtype=np.int64)

    def numbers(self, *, margins: bool) -> tuple[Floats, Floats, Floats]:
        """Return what is shown, the unprojected estimates and their sds: cells, then rows and columns."""
        estimate = self.estimate
        shown = [self.shown.ravel()]
        estimates = [estimate.cells.ravel()]
        sds = [estimate.cell_sds.ravel()]
        if margins:
            shown += [self.shown.sum(axis=1), self.shown.sum(axis=0)]
            estimates += [estimate.rows, estimate.columns]
            sds += [estimate.row_sds, estimate.column_sds]
        return np.concatenate(shown), np.concatenate(estimates), np.concatenate(sds)

    def intervals(
        self, target: CountTarget, levels: Floats, *, margins: bool, method: ShareMethod = "score"
    ) -> tuple[Floats, Floats]:
        """Return the ends of intervals of counts or shares, each at its level; a level of nan gives nan.

        `method` is that of shares.
        """
        _, x, sds = self.numbers(margins=margins)
        terms = self.terms(margins=margins)
        low = np.full(len(x), np.nan)
        high = np.full(len(x), np.nan)
        for level in np.unique(levels[~np.isnan(levels)]):
            at = levels == level
            laplace_terms = terms[at] if self.laplace else None
            if target == "table":
                half = noise_half(sds[at], float(level), laplace_terms)
                low[at], high[at] = count_intervals(x[at], half, self.total)
            elif self.complete is not None:
                parts = int(self.possible.sum()) + 1
                low[at], high[at] = complete_share_intervals(
                    x[at], terms[at], float(self.n), self.sd, parts, float(level)
                )
            elif method == "exact":
                low[at], high[at] = self._exact_shares(x[at], sds[at], float(level))
            elif laplace_terms is None:
                low[at], high[at] = score_interval(x[at], self.total, sds[at], float(level))
            else:
                low[at], high[at] = laplace_share_intervals(
                    x[at], self.total, sds[at], float(level), laplace_terms
                )
        empty = np.flatnonzero(~self.possible.ravel() & ~np.isnan(levels[: self.possible.size]))
        low[empty] = high[empty] = 0.0
        return low, high

    def _exact_shares(self, x: Floats, sds: Floats, level: float) -> tuple[Floats, Floats]:
        """Return the ends of shares by the exact tests of each count, whose noise has its own sd."""
        ends = [
            ShareModel(count, self.total, float(sd), self.laplace).exact_interval(level)
            for count, sd in zip(x, sds, strict=True)
        ]
        low, high = np.array(ends).T
        return low, high


def _possible(release: SampleSums, zeros: Sequence[tuple[Any, ...]]) -> Flags:
    """Return which cells can occur; ArgumentError for cells that the table does not have."""
    possible = np.ones([len(levels) for levels in release.levels], dtype=bool)
    for cell in zeros:
        possible[tuple(levels.index(level) for levels, level in zip(release.levels, cell, strict=True))] = (
            False
        )
    return possible


def _shown(estimate: TableEstimate, n: int, possible: Flags, *, two: bool) -> Floats:
    """Return the nearest possible table: margins first where there are two factors."""
    total = float(n)
    if not two:
        shown = np.zeros(possible.shape)
        shown[possible] = on_simplex(estimate.cells[possible], total)
        return shown
    margins = []
    for sums, present in ((estimate.rows, possible.any(axis=1)), (estimate.columns, possible.any(axis=0))):
        margin = np.zeros(len(sums))
        margin[present] = on_simplex(sums[present], total)
        margins.append(margin)
    return with_margins(estimate.cells, margins[0], margins[1], possible)


def _independent(cells: Floats, sd: float, possible: Flags) -> TableEstimate:
    """Return the estimates as they were released, with independent noise."""
    marks = possible.astype(np.float64)
    return TableEstimate(
        cells=cells,
        rows=cells.sum(axis=1),
        columns=cells.sum(axis=0),
        cell_sds=sd * marks,
        row_sds=sd * np.sqrt(marks.sum(axis=1)),
        column_sds=sd * np.sqrt(marks.sum(axis=0)),
    )


# ---- results

ShareAxis = Literal["row", "column"]
MORE_FACTORS = (
    "a crosstab has two columns, and a list of names was passed: for a table of more columns, name all of "
    "them in pi.stats.counts, as in counts('a', by=['b', 'c'], ...)"
)
TEST_OF_CROSSTAB = (
    "independence() of the crosstab tests that its two factors are independent, at no further cost"
)


@error_boundaries
@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class CountsResult(base.StatResult):
    """Counts of cells, or shares of cells in the population, with intervals, from one noisy release.

    The class also has all attributes of `StatResult`.

    Attributes
    ----------
    target : {"table", "population"}
        Target of the estimates: counts in this table, or shares in the population.
    structural_zeros : tuple
        Cells that cannot occur.
    below : float or None
        Threshold below which cells were suppressed; None if no cells were suppressed.
    unprojected : tuple of float
        Estimates before the projection onto possible tables, one for each row of the table.
    method : {"score", "exact"}
        Method of the intervals of shares.

    Notes
    -----
    **Privacy.** Costs nothing: it uses only released numbers.
    """

    target: CountTarget = "table"
    structural_zeros: tuple[tuple[Any, ...], ...] = ()
    below: float | None = None
    unprojected: tuple[float, ...] = ()
    method: ShareMethod = "score"

    @property
    def _tests(self) -> str:
        return TEST_OF_CROSSTAB if self.title == CROSSTAB else base.ESTIMATES_ONLY

    @property
    def complete(self) -> CompleteRows | None:
        """Estimated number of complete rows, if incomplete rows were dropped; otherwise None."""
        complete = self.release.complete
        if complete is None or not self.structural_zeros:
            return complete
        return CountModel.from_release(self.release, self.structural_zeros).complete

    @property
    def _estimated(self) -> str:
        """What the estimates are, for the head of the summary."""
        if self.target == "table":
            return super(CountsResult, self)._estimated
        return f"shares of {', '.join(self.release.query.by)}"

    @property
    def _plotted_rows(self) -> tuple[base.EstimateRow, ...]:
        """Estimates of the cells, without margins."""
        if self.title != CROSSTAB:
            return self.rows
        return self.rows[: -sum(map(len, self.release.levels))]

    def _shown_number(self, value: float) -> str:
        """Return a count or a share as the summary prints it."""
        return base.count_number(value) if self.target == "table" else number(value)

    def intervals(
        self,
        *,
        target: CountTarget | None = None,
        confidence_level: float | None = None,
        simultaneous: bool | None = None,
    ) -> CountsResult:
        """Return the same counts with different intervals, from the same release.

        Parameters
        ----------
        target : {"table", "population"}, optional
            Target: counts in this table, or shares in the population. The default is the target of this
            result.
        confidence_level : float, optional
            Confidence level of the intervals, between 0 and 1. The default is the level of this result.
        simultaneous : bool, optional
            Whether all intervals hold jointly at the confidence level. By default it is the same as in this
            result.

        Returns
        -------
        CountsResult
            Result with the same estimates and the new intervals.
        """
        chosen = base.IntervalOptions.changed(self, target, confidence_level, simultaneous)
        return self._again(chosen, self.below)

    def suppress(self, below: float) -> CountsResult:
        """Return the result without the cells whose noisy counts are below a public threshold.

        Parameters
        ----------
        below : float
            Threshold for the noisy counts (before the projection). The threshold must be chosen without
            looking at the table.

        Returns
        -------
        CountsResult
            Result with the cells at or above the threshold, and all margins. The notes of the result state
            the number and the total count of the suppressed cells. If R of K cells are shown, the level of
            intervals that are not simultaneous is changed to 1 - (1 - level) R/K. This level corrects for the
            selection (Benjamini and Yekutieli).

        Raises
        ------
        NotAvailableError
            Raised if no cell reaches the threshold.

        Notes
        -----
        **Privacy.** Costs nothing: it uses only released numbers. The noise protects people. Suppression of
        cells adds no protection. The levels are public.
        """
        same = base.IntervalOptions.changed(self, None, None, None)
        return self._again(same, check_number(below, "below"))

    def _again(self, intervals: base.IntervalOptions, below: float | None) -> CountsResult:
        """Return the counts of the same release with other intervals, or without cells below a threshold."""
        return _counted(
            self.release,
            title=self.title,
            intervals=intervals,
            zeros=self.structural_zeros,
            below=below,
            method=self.method,
        )

    def row_shares(
        self,
        confidence_level: float | None = None,
        *,
        target: CountTarget | None = None,
        simultaneous: bool | None = None,
    ) -> SharesResult:
        """Return the shares of the cells of a crosstab within their rows, from the same release.

        Parameters
        ----------
        confidence_level : float, optional
            Confidence level of the intervals, between 0 and 1. The default is the level of this result.
        target : {"table", "population"}, optional
            Target: shares of the records in this table, or of the population. The default is the target of
            this result.
        simultaneous : bool, optional
            Whether all intervals hold jointly at the confidence level. By default it is the same as in this
            result.

        Returns
        -------
        SharesResult
            Table with one row per cell, such as "never in north". The shares of each row add up to 1. The
            method `to_pandas` returns them in the shape of the crosstab.

        Raises
        ------
        NotAvailableError
            Raised if the result is not a crosstab, or cells were suppressed.

        Notes
        -----
        **Privacy.** Costs nothing: it uses only released numbers. The intervals allow for the noise of the
        cell and of the row total. If margins were released, the intervals use the released cells alone.
        """
        return self._shares_within("row", confidence_level, target, simultaneous)

    def column_shares(
        self,
        confidence_level: float | None = None,
        *,
        target: CountTarget | None = None,
        simultaneous: bool | None = None,
    ) -> SharesResult:
        """Return the shares of the cells of a crosstab within their columns, from the same release.

        Parameters
        ----------
        confidence_level : float, optional
            Confidence level of the intervals, between 0 and 1. The default is the level of this result.
        target : {"table", "population"}, optional
            Target: shares of the records in this table, or of the population. The default is the target of
            this result.
        simultaneous : bool, optional
            Whether all intervals hold jointly at the confidence level. By default it is the same as in this
            result.

        Returns
        -------
        SharesResult
            Table with one row per cell. The shares of each column add up to 1. The method `to_pandas` returns
            them in the shape of the crosstab.

        Raises
        ------
        NotAvailableError
            Raised if the result is not a crosstab, or cells were suppressed.

        Notes
        -----
        **Privacy.** Costs nothing: it uses only released numbers. The intervals allow for the noise of the
        cell and of the column total. If margins were released, the intervals use the released cells alone.
        """
        return self._shares_within("column", confidence_level, target, simultaneous)

    def _shares_within(
        self,
        axis: ShareAxis,
        confidence_level: float | None,
        target: CountTarget | None,
        simultaneous: bool | None,
    ) -> SharesResult:
        """Return the shares within rows or columns."""
        if self.title != CROSSTAB or self.below is not None:
            raise NotAvailableError(NO_ROWS)
        chosen = base.IntervalOptions.changed(self, target, confidence_level, simultaneous)
        model = CountModel.from_release(self.release, self.structural_zeros)
        x, parts = _alone(self.release, model)
        possible, shown = model.possible, model.shown
        levels = self.release.levels
        if axis == "column":
            x, possible, shown, levels = x.T, possible.T, shown.T, levels[::-1]
        words: Any = {"sd": model.sd, "parts": parts, "sampling": chosen.sampling}
        level = chosen.level_of_each(int(possible.sum()))
        quantile = -float(ndtri((1.0 - level) / 2.0))
        if model.laplace:  # no sum of Laplace numbers has a longer tail than one with the same variance
            quantile = max(quantile, -math.log(1.0 - level) / math.sqrt(2.0))
        low, high = row_share_sets(x, possible, quantile=quantile, **words)
        ends = row_share_sets(x, possible, quantile=1.0, **words)
        total = shown.sum(axis=1, keepdims=True)
        even = possible / np.maximum(possible.sum(axis=1, keepdims=True), 1)
        shares = np.where(total > 0.0, shown / np.where(total > 0.0, total, 1.0), even)
        cells = np.stack([shares, 0.5 * (ends[1] - ends[0]), low, high], axis=-1)
        rows = tuple(
            base.EstimateRow(f"{levels[1][k]} in {levels[0][j]}", *map(float, cells[j, k]))
            for j, k in np.ndindex(*possible.shape)
        )
        of_target = OF_POPULATION if chosen.sampling else base.TABLE_ESTIMATES
        within, of = self.release.query.by[:: 1 if axis == "row" else -1]
        estimated = SHARES_WITHIN.format(of, within)
        query = replace(self.release.query, label=estimated)
        return SharesResult(
            title=f"Shares within {axis.title()}s",
            release=replace(self.release, query=query),
            rows=rows,
            confidence_level=chosen.level,
            ranked_notes=(
                Note(of_target, "must-read"),
                Note(OF_ROWS.format(axis), "table"),
                *chosen.joint_notes(len(rows)),
            ),
            simultaneous=chosen.simultaneous,
            target=chosen.target,
            axis=axis,
        )

    def independence(self, confidence_level: float = 0.95) -> base.StatResult:
        """Test that two factors are independent, from the same release.

        Parameters
        ----------
        confidence_level : float
            Confidence level of the intervals of the shares of cells, between 0 and 1.

        Returns
        -------
        StatResult
            Result of the chi-square test, as from `chi2_contingency`, computed from the released cells.

        Raises
        ------
        NotAvailableError
            Raised if the table does not have two factors, or has cells that cannot occur.
        """
        if len(self.release.levels) != 2 or self.structural_zeros:
            raise NotAvailableError(
                "the test of independence needs a table of two factors in which every cell can occur"
            )
        return independence(self.release, base.check_level(confidence_level))

    def to_pandas(self) -> pd.Series | pd.DataFrame:
        """Return the estimates as a pandas object.

        Returns
        -------
        Series or DataFrame
            For a crosstab, a data frame like the result of `pandas.crosstab`. Margins have the name "All", or
            "All levels" if a level has the name "All". For other counts, a series with one entry for each
            level, for each combination of levels, or for each bin of a histogram. The last bin of a histogram
            contains its right edge, so its interval ends at the next floating-point number above this edge.
            Suppressed cells are nan.
        """
        import pandas as pd

        model = CountModel.from_release(self.release, self.structural_zeros)
        unit = 1.0 if self.target == "table" else 1.0 / model.shown_total
        values = unit * model.shown.ravel()
        if self.below is not None:
            hidden = _hidden(model, self.below)
            values = np.where(hidden, np.nan, values)
        names = self.release.query.by
        axes = [_index(self.release, place) for place in range(len(names))]
        if self.title == CROSSTAB:
            cells = pd.DataFrame(values.reshape(model.shape), axes[0], axes[1])
            margin = _margin_name(self.release)
            rows = pd.Series(unit * model.shown.sum(axis=1), axes[0], name=margin)
            columns = unit * model.shown.sum(axis=0)
            frame = pd.concat([cells, rows], axis=1)
            last = pd.DataFrame([[*columns, unit * model.shown_total]], [margin], frame.columns)
            frame = pd.concat([frame, last])
            return frame.rename_axis(index=names[0], columns=names[1])
        index = axes[0] if len(axes) == 1 else pd.MultiIndex.from_product(axes, names=names)
        return pd.Series(values, index, name="count" if self.target == "table" else "share")


@error_boundaries
@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class SharesResult(base.StatResult):
    """Shares of the cells of a crosstab within their rows or columns, with intervals.

    The class also has all attributes of `StatResult`.

    Attributes
    ----------
    axis : {"row", "column"}
        Whether the shares of a row or of a column add up to 1.
    target : {"table", "population"}
        Target of the intervals: shares of the records in this table, or of the population.

    Notes
    -----
    **Privacy.** Costs nothing: it uses only released numbers.
    """

    axis: ShareAxis = "row"
    target: CountTarget = "table"

    @property
    def _tests(self) -> str:
        return TEST_OF_CROSSTAB

    def to_pandas(self) -> pd.DataFrame:
        """Return the shares as a data frame in the shape of the crosstab.

        Returns
        -------
        DataFrame
            Like the result of `pandas.crosstab` with ``normalize="index"`` or ``normalize="columns"``. It has
            one row per level of the first factor, and one column per level of the second.
        """
        import pandas as pd

        first, second = (_index(self.release, place) for place in range(2))
        shares = np.array([row.estimate for row in self.rows])
        if self.axis == "row":
            return pd.DataFrame(shares.reshape(len(first), len(second)), first, second)
        return pd.DataFrame(shares.reshape(len(second), len(first)).T, first, second)


COUNTS = "Counts"
CROSSTAB = "Crosstab"
HISTOGRAM = "Histogram"
PROPORTIONS = "Proportions"


def _index(release: SampleSums, place: int) -> Any:
    """Return the levels of a factor, or the intervals of bins."""
    import pandas as pd

    name = release.query.by[place]
    for bins in release.query.bins:
        if bins.name == name:
            breaks = [*bins.edges[:-1], math.nextafter(bins.edges[-1], math.inf)]
            return pd.IntervalIndex.from_breaks(breaks, closed="left", name=name)
    return pd.Index(release.levels[place], name=name)


def _alone(release: SampleSums, model: CountModel) -> tuple[Floats, int | None]:
    """Return the released cells as a table, and how many counts were conditioned on the public total.

    Released margins are not used; Laplace counts are not conditioned.
    """
    cells = release.sums[: model.possible.size, 0].reshape(model.possible.shape) * model.possible
    if model.laplace or model.sd == 0.0:
        return cells, None
    gaps = 0.0 if model.complete is None else float(release.sums[-1, 0])
    parts = int(model.possible.sum()) + (model.complete is not None)
    return cells + model.possible * ((model.total - float(cells.sum()) - gaps) / parts), parts


def _margin_name(release: SampleSums) -> str:
    """Return the name of the margins of a table, which no level has."""
    name = ALL
    while any(name == str(level) for levels in release.levels for level in levels):
        name = OTHER_ALL if name == ALL else f"{name}, {OTHER_ALL}"
    return name


def _hidden(model: CountModel, below: float) -> Flags:
    """Return which cells are suppressed."""
    return (model.estimate.cells.ravel() < below) & model.possible.ravel()


def _counted(
    release: SampleSums,
    *,
    title: str,
    intervals: base.IntervalOptions,
    zeros: tuple[tuple[Any, ...], ...],
    below: float | None = None,
    method: ShareMethod = "score",
) -> CountsResult:
    """Return the counts of a release with intervals."""
    model = CountModel.from_release(release, zeros)
    margins = title == CROSSTAB
    shown, estimates, sds = model.numbers(margins=margins)
    names = list(base.cell_names(release))
    size = len(names)
    if margins:
        margin = _margin_name(release)
        names += [f"{level_name}, {margin}" for level_name in release.levels[0]]
        names += [f"{margin}, {level_name}" for level_name in release.levels[1]]
    visible = np.ones(len(names), dtype=bool)
    levels = np.full(len(names), intervals.level_of_each(len(names)))
    notes = [Note(OF_POPULATION if intervals.sampling else OF_TABLE, "must-read")]
    if title == PROPORTIONS and intervals.sampling:
        notes.append(Note(EXACT if method == "exact" else SCORE, "table"))
    if below is not None:
        visible[:size] = ~_hidden(model, below)
        cells_shown = int((visible[:size] & model.possible.ravel()).sum())
        cells = int(model.possible.sum())
        if not cells_shown:
            raise NotAvailableError("no cell reaches the threshold below=: pass a smaller threshold")
        if not intervals.simultaneous:
            levels[:size] = 1.0 - (1.0 - intervals.level) * cells_shown / cells
        text = NONE_SUPPRESSED.format(below)
        if cells_shown < cells:
            text = SUPPRESSED.format(
                cells=cells,
                hidden=cells - cells_shown,
                below=below,
                rest=model.n - float(estimates[:size][visible[:size]].sum()),
                level=levels[0],
            )
        notes.append(Note(text, "must-read"))
    levels[~visible] = np.nan
    low, high = model.intervals(intervals.target, levels, margins=margins, method=method)
    unit = 1.0
    if intervals.sampling:
        unit = 1.0 / model.n
        p = np.clip(estimates * unit, 0.0, 1.0)
        sds = np.sqrt(p * (1.0 - p) * model.n + sds**2)
    if float(release.scale[0]) > 0.0:
        records = "records" if model.complete is None else "complete records"
        total = (
            "cells, rows and columns add up" if margins else f"the cells add up to the number of {records}"
        )
        notes.append(Note(SHOWN.format(total), "table"))
    notes += _costs_of_margins(release, model)
    notes += intervals.joint_notes(len(names))
    if zeros:
        notes.append(Note(IMPOSSIBLE.format(int((~model.possible).sum())), "detail"))
    shown_unit = 1.0 / model.shown_total if intervals.sampling else 1.0
    cells_of = np.column_stack([shown_unit * shown, unit * sds, low, high])[visible]
    rows = zip(np.array(names, dtype=object)[visible], cells_of, strict=True)
    return CountsResult(
        title=title,
        release=release,
        rows=tuple(base.EstimateRow(name, *map(float, numbers)) for name, numbers in rows),
        confidence_level=intervals.level,
        ranked_notes=tuple(notes),
        target=intervals.target,
        simultaneous=intervals.simultaneous,
        structural_zeros=zeros,
        below=below,
        unprojected=tuple((unit * estimates[visible]).tolist()),
        method=method,
    )


def _costs_of_margins(release: SampleSums, model: CountModel) -> list[Note]:
    """Return the note on margins of a small table that cost its cells precision; none where they add some.

    Each part of the release has the same sensitivity, so that the cells alone, at the budget of all parts,
    have Gaussian noise of precision ``1/s^2 = 1/s_1^2 + 1/s_2^2 + 1/s_3^2``. Laplace noise of an epsilon has
    the sd ``2 sqrt(2)/epsilon``, since a replaced record moves two cells.
    """
    if release.query.kind != "margins" or model.sd == 0.0 or model.possible.size > ALONE:
        return []
    sd = float(np.sum(np.asarray(release.scale) ** -2.0)) ** -0.5
    alone = estimate_table(model.estimate.cells, model.n, sd, possible=model.possible)
    report = release.privacy
    laplace = 2.0 * math.sqrt(2.0) / report.epsilon(report.default_delta)
    gaussian = float(np.mean(alone.cell_sds[model.possible]))
    loss = float(np.mean(model.estimate.cell_sds[model.possible])) / min(gaussian, laplace)
    if loss < NOTABLE_LOSS:
        return []
    text = COSTLY_MARGINS.format(1.0 - 1.0 / loss, BY_LAPLACE * (laplace < gaussian))
    return [Note(text, "must-read")]


# ---- queries


def _columns_of(a: object, by: object, levels: object) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the columns of a table by argument, and the levels that the call declares for arrays."""
    if by is None:
        return {"a": a}, {"a": base.public_levels(levels)}
    columns = base.by_columns(a, by, levels)
    if "by" not in columns:
        return {"a": a} | columns, dict.fromkeys(("a", *columns))
    pair = (None, None) if levels is None else tuple(levels)  # type: ignore[arg-type]
    if len(pair) != 2:
        raise ArgumentError("levels= must be a pair, with the levels of each of the two columns")
    return {"a": a, "by": by}, {
        name: None if column is None else list(column) for name, column in zip(("a", "by"), pair, strict=True)
    }


def _checked_zeros(
    zeros: Sequence[Any] | None, levels: Sequence[Sequence[Any]]
) -> tuple[tuple[Any, ...], ...]:
    """Return cells that cannot occur, as tuples of declared levels."""
    cells = []
    for cell in () if zeros is None else zeros:
        key = tuple(cell) if isinstance(cell, (tuple, list)) else (cell,)
        known = len(key) == len(levels) and all(
            level in column for level, column in zip(key, levels, strict=True)
        )
        if not known:
            raise ArgumentError(
                "structural_zeros= must name cells of the table, each as a tuple with one declared level "
                "per factor"
            )
        cells.append(key)
    if len(set(cells)) >= math.prod(map(len, levels)):
        raise ArgumentError("structural_zeros= must leave at least one cell that can occur")
    return tuple(dict.fromkeys(cells))


def _release(
    request: base.SampleRequest,
    names: tuple[str, ...],
    zeros: Sequence[Any] | None,
    *,
    margins: bool = False,
    bins: ColumnBins | None = None,
) -> tuple[SampleSums, tuple[tuple[Any, ...], ...]]:
    """Release the counts of a table once; the cells that cannot occur are checked before that."""
    levels = [
        bins.levels if bins is not None and bins.name == name else request.schema[name].levels  # type: ignore[union-attr]
        for name in names
    ]
    cells = _checked_zeros(zeros, levels)
    query = SampleQuery(
        kind="margins" if margins else "cells",
        by=names,
        bins=() if bins is None else (bins,),
        label=Labels.CELLS_OF.format(names=", ".join(names)),
    )
    return request.release(query), cells


def level_counts(
    request: base.SampleRequest, names: tuple[str, ...], level: float, method: ShareMethod = "score"
) -> CountsResult:
    """Return the shares of the levels of a factor, or of the cells of several.

    With Laplace noise the method is "exact".
    """
    release, zeros = _release(request, names, None)
    if release.noise == "laplace":
        method = "exact"
    intervals = base.IntervalOptions(level=level)
    return _counted(release, title=PROPORTIONS, intervals=intervals, zeros=zeros, method=method)


def _pure(options: base.SampleOptions) -> bool:
    """Return whether pure epsilon is requested, which joint releases of cells and margins do not offer."""
    return options.noise == "laplace" or (options.delta is not None and is_zero(options.delta))


def _edges(bins: int | ArrayLike, low: float, high: float, name: str, *, dates: bool = False) -> Floats:
    """Return the public edges of bins, which hold every value between the bounds; dates in days."""
    base.refuse_table(bins, "bins")
    if isinstance(bins, (int, np.integer)) and not isinstance(bins, bool):
        edges = np.linspace(low, high, check_count(bins, "bins", least=2) + 1)
        whole = np.concatenate([edges[:1], np.rint(edges[1:-1]), edges[-1:]])
        return whole if dates and (np.diff(whole) > 0.0).all() else edges
    edges = _edge_array(bins, dates=dates)
    if edges[0] > low or edges[-1] < high:
        start, end = _edge_texts(np.array([low, high]), dates)
        raise ArgumentError(
            f"values of {name!r} may be outside of bins=: start the edges at {start} or below (-inf for an "
            f"open first bin), and end them at {end} or above (inf for a last bin that is top-coded)"
        )
    return edges


def _edge_texts(edges: Floats, dates: bool) -> list[str]:
    """Return edges as texts that differ: numbers, or dates with the time of the day where one needs it."""
    if dates:
        finite = np.isfinite(edges)
        days = bool((edges[finite] % 1.0 == 0.0).all())
        moments = as_dates(np.where(finite, edges, 0.0)).astype("datetime64[D]" if days else "datetime64[s]")
        return [
            str(moment) if known else f"{edge:g}"
            for moment, known, edge in zip(moments, finite, edges, strict=True)
        ]
    texts = [f"{edge:g}" for edge in edges]
    return texts if len(set(texts)) == len(texts) else [repr(float(edge)) for edge in edges]


def _edge_array(bins: object, *, dates: bool = False) -> Floats:
    if dates and _has_dates(bins):
        numbers = [(edge, date_number(edge)) for edge in bins]  # type: ignore[attr-defined]
        bins = [edge if number is None else number for edge, number in numbers]
    edges = check_array(bins, "bins", ndim=1, finite=False)  # type: ignore[arg-type]
    if len(edges) < 3 or not (np.diff(edges) > 0.0).all() or not np.isfinite(edges[1:-1]).all():
        raise ArgumentError(
            "bins= must be a number of bins, or at least three edges in increasing order, of which the first "
            "and the last may be infinite"
        )
    return edges


def _has_dates(bins: Any) -> bool:
    """Return whether some edges are dates."""
    listed = isinstance(bins, Sequence) or (hasattr(bins, "__array__") and np.ndim(bins) == 1)
    return listed and any(date_number(edge) is not None for edge in bins)


def _finite_ends(bins: Any) -> Any:
    """Return the smallest and the largest finite edge, two numbers or two dates; None without two."""
    dated = _has_dates(bins)
    edges = _edge_array(bins, dates=dated)
    finite = np.flatnonzero(np.isfinite(edges))
    if len(finite) < 2:
        return None
    ends = list(bins) if dated else edges.tolist()
    return ends[finite[0]], ends[finite[-1]]


def _bins(name: str, edges: Floats, *, dates: bool = False) -> ColumnBins:
    """Return bins that are closed on the left; values beyond the outer edges are in the outer bins."""
    texts = _edge_texts(edges, dates)
    last = len(edges) - 2
    labels = [f"[{texts[k]}, {texts[k + 1]}{']' if k == last else ')'}" for k in range(last + 1)]
    if math.isinf(edges[0]):
        labels[0] = f"({labels[0][1:]}"
    if math.isinf(edges[-1]):
        labels[-1] = f"{labels[-1][:-1]})"
    cuts = np.nextafter(edges[1:-1], -math.inf)
    return ColumnBins(name=name, cuts=tuple(cuts.tolist()), labels=tuple(labels), edges=tuple(edges.tolist()))


# ---- functions


@error_boundary
@refuses(base.COLUMN_REFUSALS)
def counts(
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
    levels: Sequence[Any] | None = None,
    structural_zeros: Sequence[Any] | None = None,
    target: CountTarget = "table",
    confidence_level: float = 0.95,
    simultaneous: bool = False,
    missing: Missing = "raise",
    noise: NoiseChoice = "auto",
    calibration: Calibration | None = None,
    source: SourceName | None = None,
    ledger: Ledger | None = None,
) -> CountsResult:
    """Count the records with every level of a factor, or with every combination of levels of several factors.

    Parameters
    ----------
    a : array_like or str
        Level of each record, or the name of a column of `data`. A column with the bounds (0, 1) has the
        levels 0 and 1.
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
        Gaussian. With `mu` or `rho`, epsilon is reported at this delta. With ``delta=0`` the guarantee is
        pure epsilon, with Laplace noise.
    mu : float, optional
        Budget in Gaussian differential privacy, instead of `epsilon`.
    rho : float, optional
        Budget in zero-concentrated differential privacy (zCDP), instead of `epsilon`.
    rng : None, int or Generator, optional
        Source of randomness. With None (default) the noise is secure. With a seed or a Generator it is
        simulation noise, which is not private, and the results are marked as NOT PRIVATE.
    by : array_like, str or sequence of str, optional
        Second factor: the level of each record, the name of a column, or the names of several columns.
    levels : sequence, optional
        Public levels of `a`, required if `a` is an array. If `by` is an array as well, pass a pair: the
        levels of `a` and the levels of `by`.
    structural_zeros : sequence, optional
        Cells that cannot occur. Each cell is a tuple with one level per factor, and its count is 0.
    target : {"table", "population"}
        Target of the estimates. With "table" (default) the target is the counts in this table, and the
        intervals allow for the noise alone. With "population" the target is the shares in the population from
        which the records are a sample, and the intervals allow for sampling and noise.
    confidence_level : float
        Confidence level of the intervals, between 0 and 1.
    simultaneous : bool
        Whether all intervals hold jointly at the confidence level. By default each interval holds separately.
    missing : {"raise", "impute-public", "drop"}
        Handling of missing values. With "raise" (default) missing values are refused. With "impute-public"
        they are replaced by the middle of the bounds, or by the first level of a factor. With "drop" the rows
        with missing values are left out of every sum. The number of dropped rows is private; a noisy number
        of complete rows is released with the sums at no further cost. With "drop" the noise is Gaussian.
    noise : {"auto", "gaussian", "laplace"}
        Distribution of the noise. With "auto" the noise is Laplace noise if ``delta=0``, or if no ledger is
        passed and Laplace noise is smaller. Otherwise the noise is Gaussian, for which the total cost of
        several releases is lower.
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
    CountsResult
        Result with ``table``, ``to_pandas()``, ``intervals(...)``, ``suppress(below)``, ``plot()`` and
        ``privacy``.

    Raises
    ------
    ArgumentError, SchemaError, SensitivityError, NotAvailableError, BudgetExceededError
        Raised if an argument is invalid, a column does not match its declaration, or the release would exceed
        the limit of the ledger. The error is also raised if the schema declares several rows per unit.

    Notes
    -----
    With Gaussian noise the counts are adjusted so that they add up to the public number of records. Intervals
    of counts use exact quantiles of the noise, so they are valid for cells of any size. Intervals of shares
    are obtained by inverting score tests.

    **Privacy.** Neighboring tables differ in one record (replace-one), and the number of records is public.
    Reads every row. A replaced record moves from one cell to another, so the vector of counts changes by at
    most sqrt 2, for any number of cells.

    Examples
    --------
    >>> import numpy as np, privinf as pi
    >>> a = np.random.default_rng(0).choice(["x", "y", "z"], 5000, p=[0.7, 0.299, 0.001])
    >>> r = pi.stats.counts(a, levels=["x", "y", "z"], epsilon=1.0, delta=1e-6, rng=0)
    >>> bool(abs(r.to_pandas()["x"] - (a == "x").sum()) < 25)
    True
    """
    options = base.SampleOptions(
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
    intervals = base.IntervalOptions.checked(target, confidence_level, simultaneous)
    columns, declared = _columns_of(a, by, levels)
    request, names = base.request_levels(columns, declared, options)
    release, zeros = _release(request, names, structural_zeros)
    return _counted(release, title=COUNTS, intervals=intervals, zeros=zeros)


@error_boundary
@refuses(CROSSTAB_REFUSALS)
def crosstab(
    a: ColumnLike | str,
    b: ColumnLike | str,
    data: Table = None,
    *,
    schema: Schema | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    mu: float | None = None,
    rho: float | None = None,
    rng: RngLike = None,
    levels: tuple[Sequence[Label], Sequence[Label]] | None = None,
    margins: bool | None = None,
    structural_zeros: Sequence[Any] | None = None,
    target: CountTarget = "table",
    confidence_level: float = 0.95,
    simultaneous: bool = False,
    missing: Missing = "raise",
    noise: NoiseChoice = "auto",
    calibration: Calibration | None = None,
    source: SourceName | None = None,
    ledger: Ledger | None = None,
) -> CountsResult:
    """Count the records in every cell of a contingency table of two factors, with its margins.

    Parameters
    ----------
    a : array_like or str
        Level of each record of the first factor, or the name of its column in `data`. A column with the
        bounds (0, 1) has the levels 0 and 1.
    b : array_like or str
        Level of each record of the second factor, or the name of its column in `data`.
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
        Gaussian. With `mu` or `rho`, epsilon is reported at this delta. With ``delta=0`` the guarantee is
        pure epsilon, with Laplace noise.
    mu : float, optional
        Budget in Gaussian differential privacy, instead of `epsilon`.
    rho : float, optional
        Budget in zero-concentrated differential privacy (zCDP), instead of `epsilon`.
    rng : None, int or Generator, optional
        Source of randomness. With None (default) the noise is secure. With a seed or a Generator it is
        simulation noise, which is not private, and the results are marked as NOT PRIVATE.
    levels : pair of sequences, optional
        Public levels of `a` and of `b`, required if `a` and `b` are arrays.
    margins : bool, optional
        Whether to release the totals of the rows and of the columns in addition to the cells, for a share of
        0.2 of mu^2 each. Otherwise the margins are sums of noisy cells. By default the margins are released
        if the table has more than 25 cells, the noise is Gaussian and no rows are dropped. ``margins=True``
        cannot be combined with ``missing="drop"``.
    structural_zeros : sequence, optional
        Cells that cannot occur. Each cell is a tuple with one level per factor, and its count is 0.
    target : {"table", "population"}
        Target of the estimates. With "table" (default) the target is the counts in this table, and the
        intervals allow for the noise alone. With "population" the target is the shares in the population from
        which the records are a sample, and the intervals allow for sampling and noise.
    confidence_level : float
        Confidence level of the intervals, between 0 and 1.
    simultaneous : bool
        Whether all intervals hold jointly at the confidence level. By default each interval holds separately.
    missing : {"raise", "impute-public", "drop"}
        Handling of missing values. With "raise" (default) missing values are refused. With "impute-public"
        they are replaced by the middle of the bounds, or by the first level of a factor. With "drop" the rows
        with missing values are left out of every sum. The number of dropped rows is private; a noisy number
        of complete rows is released with the sums at no further cost. With "drop" the noise is Gaussian.
    noise : {"auto", "gaussian", "laplace"}
        Distribution of the noise. With "auto" the noise is Laplace noise if ``delta=0``, or if no ledger is
        passed and Laplace noise is smaller. Otherwise the noise is Gaussian, for which the total cost of
        several releases is lower. Margins are released with Gaussian noise only.
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
    CountsResult
        Result with the cells and margins as ``table``, and with ``to_pandas()``, ``independence()``,
        ``intervals(...)``, ``suppress(below)``, ``plot()`` and ``privacy``.

    Raises
    ------
    ArgumentError, SchemaError, SensitivityError, NotAvailableError, BudgetExceededError
        Raised if an argument is invalid, a column does not match its declaration, or the release would exceed
        the limit of the ledger. The error is also raised if the schema declares several rows per unit.

    Notes
    -----
    Released cells and margins are combined by least squares. The resulting table has no negative counts, and
    its cells add up to its margins.

    **Privacy.** Neighboring tables differ in one record (replace-one), and the number of records is public.
    Reads every row. A replaced record moves from one cell to another, and may move to another row and column,
    so the weighted vector of counts changes by at most sqrt 2.

    Examples
    --------
    >>> import numpy as np, privinf as pi
    >>> rng = np.random.default_rng(0)
    >>> a, b = rng.integers(0, 3, 4000), rng.integers(0, 2, 4000)
    >>> r = pi.stats.crosstab(a, b, levels=([0, 1, 2], [0, 1]), epsilon=1.0, delta=1e-6, rng=0)
    >>> frame = r.to_pandas()
    >>> frame.shape, bool(abs(frame.loc[0].iloc[:2].sum() - frame.loc[0, "All"]) < 1e-3)
    ((4, 3), True)
    """
    options = base.SampleOptions(
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
    intervals = base.IntervalOptions.checked(target, confidence_level, simultaneous)
    several = [argument for argument in (a, b) if isinstance(argument, (list, tuple))]
    if any(all(isinstance(name, str) for name in argument) for argument in several) and (
        isinstance(a, str) or isinstance(b, str)
    ):
        raise ArgumentError(MORE_FACTORS)
    columns, declared = _columns_of(a, b, levels)
    request, names = base.request_levels(columns, declared, options)
    declared_levels = [request.schema[name].levels for name in names]  # type: ignore[union-attr]
    size = math.prod(map(len, declared_levels))
    alone = size <= ALONE or _pure(options) or options.missing == "drop"
    with_margin = not alone if margins is None else check_flag(margins, "margins")
    release, zeros = _release(request, names, structural_zeros, margins=with_margin)
    return _counted(release, title=CROSSTAB, intervals=intervals, zeros=zeros)


@error_boundary
@refuses({"bins": "was passed twice, by position and by its name: pass the table as data="})
def histogram(
    a: ColumnLike | str,
    bins: int | ArrayLike = 10,
    data: Table = None,
    *,
    schema: Schema | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    mu: float | None = None,
    rho: float | None = None,
    rng: RngLike = None,
    by: ColumnLike | str | None = None,
    bounds: Pair | None = None,
    levels: Sequence[Label] | None = None,
    target: CountTarget = "table",
    confidence_level: float = 0.95,
    simultaneous: bool = False,
    missing: Missing = "raise",
    noise: NoiseChoice = "auto",
    calibration: Calibration | None = None,
    source: SourceName | None = None,
    ledger: Ledger | None = None,
) -> CountsResult:
    """Count the records in every bin of a histogram, whose edges are public.

    Parameters
    ----------
    a : array_like, Series or str
        Values of the records, or the name of a column of `data`.
    bins : int or sequence of float
        Number of bins of equal width between the public bounds, or a sequence of the edges of the bins. Each
        bin contains its left edge, and the last bin contains both edges. The edges must cover the bounds. The
        first edge may be -inf, and the last edge may be inf (a top-coded bin). Values outside the edges are
        counted in the first or the last bin. The edges of a column of dates are dates, or days since
        1970-01-01.
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
        Gaussian. With `mu` or `rho`, epsilon is reported at this delta. With ``delta=0`` the guarantee is
        pure epsilon, with Laplace noise.
    mu : float, optional
        Budget in Gaussian differential privacy, instead of `epsilon`.
    rho : float, optional
        Budget in zero-concentrated differential privacy (zCDP), instead of `epsilon`.
    rng : None, int or Generator, optional
        Source of randomness. With None (default) the noise is secure. With a seed or a Generator it is
        simulation noise, which is not private, and the results are marked as NOT PRIVATE.
    by : array_like or str, optional
        Group of each record, or the name of the column of groups. The result then has one histogram per
        group.
    bounds : (low, high), optional
        Public bounds of the values, if the values are an array. The default bounds are the smallest and the
        largest finite edge of `bins`.
    levels : sequence, optional
        Public list of all groups, required if `by` is an array.
    target : {"table", "population"}
        Target of the estimates. With "table" (default) the target is the counts in this table, and the
        intervals allow for the noise alone. With "population" the target is the shares in the population from
        which the records are a sample, and the intervals allow for sampling and noise.
    confidence_level : float
        Confidence level of the intervals, between 0 and 1.
    simultaneous : bool
        Whether all intervals hold jointly at the confidence level. By default each interval holds separately.
    missing : {"raise", "impute-public", "drop"}
        Handling of missing values. With "raise" (default) missing values are refused. With "impute-public"
        they are replaced by the middle of the bounds, or by the first level of a factor. With "drop" the rows
        with missing values are left out of every sum. The number of dropped rows is private; a noisy number
        of complete rows is released with the sums at no further cost. With "drop" the noise is Gaussian.
    noise : {"auto", "gaussian", "laplace"}
        Distribution of the noise. With "auto" the noise is Laplace noise if ``delta=0``, or if no ledger is
        passed and Laplace noise is smaller. Otherwise the noise is Gaussian, for which the total cost of
        several releases is lower.
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
    CountsResult
        Result with ``table``, ``to_pandas()`` (a series or data frame whose index contains the bins),
        ``intervals(...)``, ``plot()`` and ``privacy``.

    Raises
    ------
    ArgumentError, SchemaError, SensitivityError, NotAvailableError, BudgetExceededError
        Raised if an argument is invalid, a column does not match its declaration, or the release would exceed
        the limit of the ledger. The error is also raised if the schema declares several rows per unit.

    Notes
    -----
    **Privacy.** Neighboring tables differ in one record (replace-one), and the number of records is public.
    Reads every row. A replaced record moves from one bin to another, so the vector of counts changes by at
    most sqrt 2. The edges must be chosen without looking at the data.

    Examples
    --------
    >>> import numpy as np, privinf as pi
    >>> x = np.random.default_rng(0).uniform(0, 100, 5000)
    >>> r = pi.stats.histogram(x, [0, 18, 65, np.inf], epsilon=1.0, delta=1e-6, rng=0)
    >>> list(r.table.index), bool(abs(r.estimate - (x < 18).sum()) < 25)
    (['[0, 18)', '[18, 65)', '[65, inf)'], True)
    """
    options = base.SampleOptions(
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
    intervals = base.IntervalOptions.checked(target, confidence_level, simultaneous)
    if by is None and levels is not None:
        raise ArgumentError("levels= is for groups: pass by=, or leave it out")
    pair = base.public_pair(bounds)
    if not isinstance(a, str) and pair is None and not isinstance(bins, (int, np.integer)):
        pair = _finite_ends(bins)
    columns: dict[str, Any] = {"a": a} if by is None else {"by": by, "a": a}
    declared = {"a": pair, "by": base.public_levels(levels)}
    request, names = base.request_columns(columns, {name: declared[name] for name in columns}, options)
    name = names[-1]
    request = base.with_levels(request, names[:-1])
    interval = request.schema.interval(name)
    dates = request.schema[name].unit == DAYS
    edges = _edges(bins, interval.low, interval.high, name, dates=dates)
    chosen = _bins(name, edges, dates=dates)
    release, _ = _release(request, names, None, bins=chosen)
    return _counted(release, title=HISTOGRAM, intervals=intervals, zeros=())
