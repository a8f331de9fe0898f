"""Releases of a holder for means and tests: noisy sums over groups, cells or pairs of raw rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from privinf.accounting import GaussianLoss, LedgerEntry, PrivacyReport, PureLoss, Released
from privinf.accounting.ledger import Ledger, check_ledger
from privinf.completeness import CompleteRows
from privinf.error_boundary import error_boundaries
from privinf.errors import AlignmentError, ArgumentError, NotAvailableError, SchemaError
from privinf.mechanisms.gaussian import (
    WORDS,
    ExactTotal,
    Line,
    Spending,
    check_room,
    total_mu,
    warn_of_large_delta,
)
from privinf.mechanisms.laplace import LaplaceLine
from privinf.mechanisms.passes import ColumnPasses
from privinf.mechanisms.pushdown import SampleColumn, add_entries
from privinf.mechanisms.pushdown.databases import unfit
from privinf.mechanisms.rows import Rows, refuse_dropping
from privinf.mechanisms.statistics.gridded import ColumnGrid
from privinf.mechanisms.statistics.samples import (
    COMPLETE_KINDS,
    SAMPLE_STATISTICS,
    EntrySums,
    Sample,
    SampleStatistic,
    Weighted,
    weighted_sums,
    with_gaps,
)
from privinf.noise import NoiseSource, get_source, grid_step
from privinf.schema import Factor, Schema
from privinf.schema.arrays import check_same_labels
from privinf.schema.reading import Reader
from privinf.typing import ColumnLike, Floats, Integers, Missing, NoiseChoice, SampleKind, SpendingWords
from privinf.validation import check_choice, check_delta, check_fraction, check_positive, check_words, is_zero
from privinf.wire import Labels, Mechanisms, readable

SEVERAL_ROWS = (
    "the schema allows up to {1} rows for each value of its unit {0!r}, and such rows are not independent: "
    "pass data with one row for each value, such as the first admission of each person or the number of "
    "admissions, or fit pi.MomentOLS"
)
GAUSSIAN_ONLY = (
    "missing='drop' always adds Gaussian noise: pass delta=, such as 1e-6, with epsilon=, and leave "
    "noise='laplace' out"
)
# What is refused with missing="drop" and why, and what is available instead.
NOT_OF_COMPLETE: dict[SampleKind, tuple[str, str]] = {
    "distributions": (
        "quantiles of groups, because their release does not count the rows without a value",
        "Compute means by group or quantiles of all rows",
    ),
    "margins": (
        "released margins, because rows and columns would no longer add up to a public total",
        "Leave margins=True out (margins are then sums of cells)",
    ),
}
NO_DELTA = (
    "delta= is missing: with epsilon=, it decides whether Gaussian or Laplace noise is smaller. A common "
    "choice is delta=1e-06, and delta should be at most 1/n. For pure epsilon-differential privacy (Laplace "
    "noise), pass noise='laplace' or delta=0"
)
PURE_SUMS = "For pure epsilon-differential privacy (Laplace noise), pass noise='laplace'"


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnBins:
    """Public bins of a column of numbers: a value at a cut, or below it, is in the bin before the cut.

    `cuts` increase. `labels` name the bins, one more than cuts; none where they are numbered. `edges` are the
    ends of labeled bins, which contain their left one, and the outer bins every value beyond.
    """

    name: str
    cuts: tuple[float, ...]
    labels: tuple[str, ...] = ()
    edges: tuple[float, ...] = ()

    @property
    def levels(self) -> tuple[Any, ...]:
        """Labels of the bins, or their numbers."""
        return self.labels or tuple(range(len(self.cuts) + 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleQuery:
    """A query for sums (a key of `SAMPLE_STATISTICS`) over columns; `label` is for the ledger.

    `values` are numbers, or have two levels, of which the second counts as 1. Every combination of the levels
    of the columns `by` is a cell, the last column's levels running fastest; `bins` makes levels of a column
    of numbers among them. `center`, user units, is what signed ranks are about.
    """

    kind: SampleKind
    values: tuple[str, ...] = ()
    by: tuple[str, ...] = ()
    label: str = Labels.SUMS
    center: float = 0.0
    bins: tuple[ColumnBins, ...] = ()


@error_boundaries
@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class SampleSums(Released):
    """Noisy sums of one `SampleQuery`, and their noise model.

    Attributes
    ----------
    sums : ndarray, shape (cells, m)
        In units in which every value is in [-1, 1]; ranks have one row. "margins" has the counts of cells,
        rows and columns below one another, of "distributions" the released numbers of every group. With
        ``missing="drop"`` they are sums over complete rows; those of groups and cells have one more row for
        the rows without a value.
    scale : ndarray, shape (m,)
        Sd of the noise of each column of `sums`, independent in all entries; 0 without noise. "margins" has
        the sds of cells, of rows and of columns.
    noise : {"gaussian", "laplace"}
        Its distribution.
    nobs : int
        Public number of records.
    middle, half : ndarray, shape (columns,)
        Of the public range of each value: in user units it is ``middle + half u``.
    levels : tuple of tuple
        Levels of each column of `query.by`.
    recorded : PrivacyReport
        This release, and all that its ledger held by then.
    missing : {"raise", "impute-public", "drop"}
        Handling of missing values.
    ones : tuple of (str, label)
        Each value that has two levels, and the level that counts as 1.

    Notes
    -----
    **Privacy.** Released: public.
    """

    query: SampleQuery
    sums: Floats
    scale: Floats
    noise: NoiseChoice
    nobs: int
    middle: Floats
    half: Floats
    levels: tuple[tuple[Any, ...], ...]
    entries: tuple[LedgerEntry, ...]
    recorded: PrivacyReport
    missing: Missing = "raise"
    ones: tuple[tuple[str, Any], ...] = ()

    def __post_init__(self) -> None:
        Released.__post_init__(self)
        for name in ("sums", "scale", "middle", "half"):
            array = np.array(getattr(self, name), dtype=np.float64)
            array.flags.writeable = False
            object.__setattr__(self, name, array)

    @property
    def privacy(self) -> PrivacyReport:
        """The report on this release; `cumulative` is the ledger's."""
        return self.recorded

    def ends_of(self, at: int) -> tuple[float, float]:
        """Return the bounds of the value at a position; an end that rounding moved away from 0 is 0."""
        middle, half = float(self.middle[at]), float(self.half[at])
        low, high = (0.0 if abs(end) < 1e-12 * half else end for end in (middle - half, middle + half))
        return low, high

    @property
    def complete(self) -> CompleteRows | None:
        """The estimated number of complete rows, where the others were dropped; None elsewhere."""
        if self.missing != "drop":
            return None
        if not SAMPLE_STATISTICS[self.query.kind].gaps:
            return CompleteRows.from_count(float(self.sums[0, 0]), float(self.scale[0]), self.nobs)
        counts = self.sums[:, 0]
        gaps = float(counts[-1] + (self.nobs - counts.sum()) / len(counts))
        sd = float(self.scale[0]) * math.sqrt(1.0 - 1.0 / len(counts))
        return CompleteRows.from_count(self.nobs - gaps, sd, self.nobs)

    def __repr__(self) -> str:
        return f"<SampleSums: {readable(self.query.label)}, {self.nobs} records, {self.noise} noise>"


def sample_rows(columns: Mapping[str, ColumnLike], missing: Missing = "raise") -> Rows:
    """Return arrays of one length, by name, as rows.

    Raises ArgumentError, SchemaError or AlignmentError where they are not that.
    """
    check_same_labels(*columns.values())
    if wrong := [name for name, values in columns.items() if np.ndim(values) != 1]:
        raise ArgumentError(f"{wrong[0]} must have one dimension")
    arrays = {
        name: values.array if isinstance(values, pd.Series) else values for name, values in columns.items()
    }
    return Rows(arrays, None, missing)


def joined_rows(samples: Sequence[object], names: Sequence[str], missing: Missing = "raise") -> Rows:
    """Return the records of several samples below one another: columns ``value`` and ``group``."""
    parts = [np.asarray(sample) for sample in samples]
    if any(part.ndim != 1 or part.dtype.kind not in "biuf" for part in parts):
        raise ArgumentError(
            "a sample must be an array of numbers with one dimension; for values and the labels of their "
            "groups, pass a formula and its table, as in 'income ~ sex', data"
        )
    group = np.repeat(np.array(names, dtype=object), [len(part) for part in parts])
    return Rows({"value": np.concatenate(parts).astype(np.float64), "group": group}, None, missing)


def check_columns(rows: Rows, schema: Schema, names: Sequence[str]) -> None:
    """Read columns once and keep nothing, so that a defect is found before anything is charged.

    Rows in memory are checked by every release that opens them. This is for several releases of one call.

    Parameters
    ----------
    rows : Rows
    schema : Schema
    names : sequence of str

    Raises
    ------
    SchemaError, AlignmentError
        A column does not match its declaration.
    NotAvailableError
        A stream, which can be read only once.

    Notes
    -----
    **Privacy.** Reads every record; nothing is released.
    """
    passes = ColumnPasses(
        rows, names, schema, often=True, unit=schema.unit, max_rows=schema.max_rows, dropping=True
    )
    if passes.pushed is None:
        for reader in passes.readers():
            reader.open(names)
        return
    for name in names:
        declared = schema[name]
        levels = isinstance(declared, Factor) and declared.categorical
        bins = () if levels else (ColumnBins(name=name, cuts=(range_of(schema, name)[0],)),)
        totals = SampleTotals(schema, SampleQuery(kind="cells", by=(name,), bins=bins))
        totals.entries(rows, totals.statistic.l2, exact=True)


def release_sample(
    rows: Rows,
    schema: Schema,
    query: SampleQuery,
    spending: SpendingWords,
    *,
    noise: NoiseChoice = "auto",
    ledger: Ledger | None = None,
) -> SampleSums:
    """Release the sums of a query once.

    Parameters
    ----------
    rows : Rows
    schema : Schema
        Bounds of the values, levels of the columns that make cells. Columns that it declares public are
        protected like the others.
    query : SampleQuery
    spending : SpendingWords
    noise : {"auto", "gaussian", "laplace"}
        "auto": Laplace noise for ``delta=0``, or outside of a ledger where it is the smaller one; else
        Gaussian noise, which needs `delta` beside epsilon. "laplace": pure epsilon, with or without `delta`.
    ledger : Ledger, optional

    Raises
    ------
    ArgumentError, SchemaError, SensitivityError, BudgetExceededError
    NotAvailableError
        A person has several rows; or Laplace noise is not available for the query.

    Notes
    -----
    **Privacy.** Neighboring tables differ in one record (replace-one), values and cells together; n is
    public. The release reads every record. The sensitivities are proved in
    `privinf.mechanisms.statistics.samples`. With ``missing="drop"`` a row without a value adds zero to every
    sum, and the number of complete rows, which is private, is released with the sums at no further cost.
    """
    if rows.missing == "drop":
        query = replace(query, kind=_complete_kind(query.kind))
        _refuse_laplace(spending, noise)
    sums = SampleTotals(schema, query)
    statistic = sums.statistic
    price = Price.from_options(statistic, spending, noise, ledger)
    price.ledger.check([price.loss])
    if schema.unit is not None and schema.max_rows > 1:
        raise NotAvailableError(SEVERAL_ROWS.format(schema.unit, schema.max_rows))
    scale, entry = price.calibrated(query.label, statistic, sums.cells, schema.unit or "record")
    total, n = sums.over(rows, price.weighted, exact=scale > 0.0)
    if n < 2:
        raise AlignmentError("a test needs at least two records")
    warn_of_large_delta(price.delta, n)
    weights = statistic.weights(price.weighted, sums.shape)
    check_room(n * float(weights.max()), scale, price.source)
    recorded = price.ledger.spend(entry)
    noisy = _noised(price, total, scale).reshape(-1, weights.shape[-1])
    sd = scale * (math.sqrt(2.0) if price.laplace else 1.0)
    ranges = np.array([range_of(schema, name) for name in query.values]).reshape(-1, 2)
    return SampleSums(
        query=query,
        sums=noisy / weights,
        scale=sd / np.array(price.weighted.weights),
        noise="laplace" if price.laplace else "gaussian",
        nobs=n,
        middle=ranges[:, 0],
        half=ranges[:, 1],
        levels=sums.levels,
        entries=recorded,
        recorded=PrivacyReport.from_entries(recorded, ledger, delta=price.delta, nobs=n),
        missing=rows.missing,
        ones=tuple(
            (name, _levels(schema, name)[1]) for name in query.values if _has_two_levels(schema, name)
        ),
    )


def planned_noise(
    kind: SampleKind, shape: tuple[int, ...], spending: SpendingWords, noise: NoiseChoice = "auto"
) -> tuple[tuple[float, ...], bool]:
    """Return the noise of a release that is not made: its sds, and whether it is Laplace noise.

    Parameters
    ----------
    kind : str
        Key of `SAMPLE_STATISTICS`.
    shape : tuple of int
        Number of levels of each factor.
    spending : SpendingWords
    noise : {"auto", "gaussian", "laplace"}

    Notes
    -----
    **Privacy.** Reads no rows, and charges nothing.
    """
    statistic = SAMPLE_STATISTICS[kind].of_table(shape)
    price = Price.from_options(statistic, spending, noise, None)
    scale, _ = price.calibrated(
        Labels.MEAN.format(name="plan"), statistic, max(math.prod(shape), 1), "record"
    )
    sd = scale * (math.sqrt(2.0) if price.laplace else 1.0)
    return tuple(sd / weight for weight in price.weighted.weights), price.laplace


def _complete_kind(kind: SampleKind) -> SampleKind:
    """Return the statistic of complete rows; NotAvailableError where there is none."""
    if kind not in COMPLETE_KINDS:
        refuse_dropping("drop", *NOT_OF_COMPLETE[kind])
    return COMPLETE_KINDS[kind]


def _refuse_laplace(spending: SpendingWords, noise: NoiseChoice) -> None:
    """Raise NotAvailableError where pure epsilon is requested, which sums of complete rows do not offer."""
    delta = spending.get("delta")
    if noise == "laplace" or (spending.get("epsilon") is not None and delta is not None and is_zero(delta)):
        raise NotAvailableError(GAUSSIAN_ONLY)


# ---- sums


@dataclass(frozen=True, slots=True)
class SampleTotals:
    """The sums without noise of a query by one pass over rows: in memory, of any table, or in a database."""

    schema: Schema
    query: SampleQuery

    @property
    def levels(self) -> tuple[tuple[Any, ...], ...]:
        """Levels of each column of `query.by`."""
        bins = self.bins
        return tuple(
            bins[name].levels if name in bins else _levels(self.schema, name) for name in self.query.by
        )

    @property
    def bins(self) -> dict[str, ColumnBins]:
        """Bins of columns of numbers, by name."""
        return {bins.name: bins for bins in self.query.bins}

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of levels of each column of `query.by`."""
        return tuple(map(len, self.levels))

    @property
    def cells(self) -> int:
        """Number of cells, that of rows without a value among them where they have one."""
        return math.prod(self.shape) + self.statistic.gaps

    @property
    def statistic(self) -> SampleStatistic:
        """The statistic whose sums are taken."""
        statistic = SAMPLE_STATISTICS[self.query.kind]
        return statistic if statistic.sized is None else statistic.of_table(self.shape)

    def over(self, rows: Rows, weighted: Weighted, *, exact: bool) -> tuple[ExactTotal | Floats, int]:
        """Return the weighted sums, exact or in doubles, and the number of rows.

        Totals of counts, such as margins, are exact in either case.
        """
        if self.statistic.totals is None:
            return self.entries(rows, weighted, exact=exact)
        counts, n = self.entries(rows, Weighted((1.0,), weighted.sensitivity), exact=exact)
        whole = counts.counts(self.shape) if isinstance(counts, EntrySums) else _whole(counts, self.shape)
        return self.statistic.totals(whole, weighted), n

    def entries(self, rows: Rows, weighted: Weighted, *, exact: bool) -> tuple[EntrySums | Floats, int]:
        """Return the weighted sums of entries, exact or in doubles, and the number of rows.

        Ranks are of all rows together: their columns are kept, 8 bytes a number, and their sum is in doubles.
        """
        named = (*self.query.values, *self.query.by)
        passes = ColumnPasses(rows, named, self.schema, unit=self.schema.unit, dropping=True)
        exact = exact and self.statistic.whole is None
        sums = EntrySums(self.statistic, weighted, self.cells)
        if passes.pushed is not None:
            if not exact:
                raise unfit("the test uses ranks or adds no noise")
            ends = {name: range_of(self.schema, name) for name in self.query.values}
            columns = {
                name: SampleColumn(self.grid(name), (middle - half, middle + half))
                for name, (middle, half) in ends.items()
            }
            by = {name: self.bins[name].cuts if name in self.bins else None for name in self.query.by}
            sums.add_gaps(n := add_entries(passes.pushed, self.schema, columns, by, sums))
            return sums, n
        if exact:
            for reader in passes.readers():
                sums.update(self.sample(reader, exact=True))
            sums.add_gaps(passes.n)
            return sums, passes.n
        zero: Floats = np.zeros(1)
        parts = (self.sample(reader, exact=False) for reader in passes.readers())
        if self.statistic.whole is None:
            total = sum((weighted_sums(self.statistic, weighted, part) for part in parts), zero)
            return with_gaps(self.statistic, weighted, total, passes.n), passes.n
        all_records = Sample.joined(list(parts), self.cells)
        n = len(all_records) + all_records.gaps
        return weighted_sums(self.statistic, weighted, all_records) if n > 1 else zero, n

    def sample(self, reader: Reader, *, exact: bool) -> Sample:
        """Return the complete records of a block, values in [-1, 1] or in steps of 2^-20."""
        values = np.empty((len(reader), len(self.query.values)))
        for place, name in enumerate(self.query.values):
            values[:, place] = self._steps(reader, name) if exact else _scaled(reader, self.schema, name)
        if self.query.kind in ("signed ranks", "complete signed ranks"):
            middle, half = range_of(self.schema, self.query.values[0])
            values -= (self.query.center - middle) / half
        codes = np.zeros(len(reader), dtype=np.int64)
        for name, levels in zip(self.query.by, self.levels, strict=True):
            codes = codes * len(levels) + self._place(reader, name)
        complete = reader.complete((*self.query.values, *self.query.by)) if reader.drops else None
        if complete is None:
            return Sample(values, codes, self.cells)
        return Sample(values[complete], codes[complete], self.cells, int(np.count_nonzero(~complete)))

    def _place(self, reader: Reader, name: str) -> Integers:
        """Return the positions of the levels, or of the bins, of a column."""
        if name not in self.bins:
            return reader.codes(name)
        return np.searchsorted(self.bins[name].cuts, reader.number(name), side="left")

    def _steps(self, reader: Reader, name: str) -> Floats:
        values = _number(reader, self.schema, name)[:, None]
        grid = self.grid(name)
        with np.errstate(all="ignore"):
            return grid.put(values, np.empty(values.shape), finite=False)[:, 0]

    def grid(self, name: str) -> ColumnGrid:
        """Return the steps of a column: 2^-20 of half its public range, about its middle."""
        middle, half = (np.array([part]) for part in range_of(self.schema, name))
        return ColumnGrid.from_bounds(middle - half, middle + half, middle, half, math.inf)


def _whole(counts: Floats, shape: tuple[int, ...]) -> Integers:
    """Return counts that were added up in doubles, which hold them exactly."""
    return np.rint(np.broadcast_to(counts, (math.prod(shape), 1))).astype(np.int64).reshape(shape)


def _number(reader: Reader, schema: Schema, name: str) -> Floats:
    """Return a column as numbers; two levels become 0 and 1."""
    two = _has_two_levels(schema, name)
    return reader.codes(name).astype(np.float64) if two else reader.number(name)


def _has_two_levels(schema: Schema, name: str) -> bool:
    """Return whether a value has levels, the second of which counts as 1; `range_of` refuses a third."""
    declared = schema[name]
    return isinstance(declared, Factor) and declared.categorical


def _scaled(reader: Reader, schema: Schema, name: str) -> Floats:
    """Return a column in units of half its public range, about its middle, clipped to [-1, 1]."""
    middle, half = range_of(schema, name)
    values = _number(reader, schema, name)
    with np.errstate(over="ignore"):
        return np.asarray(np.clip((np.clip(values, middle - half, middle + half) - middle) / half, -1.0, 1.0))


def range_of(schema: Schema, name: str) -> tuple[float, float]:
    """Return middle and half of the public range of a column; two levels have the range 0 to 1."""
    declared = schema[name]
    if isinstance(declared, Factor) and declared.categorical:
        if len(declared.levels) != 2:
            raise SchemaError(
                f"column {name!r} has {len(declared.levels)} levels, but must be numeric or have "
                "exactly two levels; pi.stats.crosstab(...).row_shares() has their shares by group"
            )
        return 0.5, 0.5
    bounds = schema.interval(name)
    return 0.5 * bounds.low + 0.5 * bounds.high, 0.5 * bounds.high - 0.5 * bounds.low


def _levels(schema: Schema, name: str) -> tuple[Any, ...]:
    declared = schema[name]
    if not isinstance(declared, Factor):
        raise SchemaError(
            f"column {name!r} has no declared levels: declare them in the schema, for example "
            f"{{{name!r}: ['a', 'b']}}"
        )
    return tuple(declared.levels)


# ---- noise


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Budget of a release, distribution of its noise, and the ledger that pays."""

    weighted: Weighted
    loss: GaussianLoss | PureLoss
    delta: float | None
    source: NoiseSource
    ledger: Ledger

    @classmethod
    def from_options(
        cls, statistic: SampleStatistic, words: SpendingWords, noise: NoiseChoice, ledger: Ledger | None
    ) -> Price:
        """Check the options before any row is read, and choose the distribution of the noise."""
        check_words(words, WORDS)
        check_choice(noise, NoiseChoice, "noise")
        if not _laplace(statistic, words, noise, alone=ledger is None):
            spending = Spending.from_options(words, ledger)
            return cls(
                weighted=statistic.l2,
                loss=GaussianLoss(spending.mu),
                delta=spending.delta,
                source=spending.source,
                ledger=spending.ledger,
            )
        assert statistic.l1 is not None
        named = words.get("source")
        source = get_source(rng=words.get("rng"), source="lattice" if named is None else named)
        loss = PureLoss(check_positive(words.get("epsilon"), "epsilon"))
        delta = words.get("delta")
        delta = None if delta is None or is_zero(delta) else check_fraction(delta, "delta")
        return cls(weighted=statistic.l1, loss=loss, delta=delta, source=source, ledger=check_ledger(ledger))

    @property
    def laplace(self) -> bool:
        """Whether the noise is Laplace noise."""
        return isinstance(self.loss, PureLoss)

    def calibrated(
        self, label: str, statistic: SampleStatistic, cells: int, unit: str
    ) -> tuple[float, LedgerEntry]:
        """Return the noise's scale, in weighted units, and the ledger line."""
        entries = statistic.touched(cells)
        source = self.source
        derivation = statistic.derivation
        if isinstance(self.loss, GaussianLoss):
            line = Line(
                label=label,
                mechanism=Mechanisms.GAUSSIAN,
                sensitivity=self.weighted.sensitivity,
                derivation=derivation,
                dimension=entries,
                mu=self.loss.mu,
                unit=unit,
                trust="central",
            )
            return line.calibrated(source)
        pure = LaplaceLine(
            label=label,
            sensitivity=self.weighted.sensitivity,
            derivation=derivation,
            dimension=entries,
            epsilon=self.loss.epsilon,
            unit=unit,
            trust="central",
        )
        return pure.calibrated(source)


def _laplace(statistic: SampleStatistic, words: SpendingWords, noise: NoiseChoice, *, alone: bool) -> bool:
    """Return whether noise is Laplace noise."""
    epsilon, delta = words.get("epsilon"), words.get("delta")
    in_epsilon = epsilon is not None and words.get("mu") is None and words.get("rho") is None
    if noise == "laplace":
        if not in_epsilon or statistic.l1 is None:
            raise NotAvailableError(
                "noise='laplace' is not available for this statistic: leave it out for Gaussian noise"
                if in_epsilon
                else (
                    "noise='laplace' needs a budget in epsilon=: pass epsilon=, or leave noise= out for "
                    "Gaussian noise"
                )
            )
        return not math.isinf(check_positive(epsilon, "epsilon", infinite=True))
    if not in_epsilon or math.isinf(check_positive(epsilon, "epsilon", infinite=True)):
        return False
    possible = noise == "auto" and statistic.l1 is not None and words.get("calibration") != "classic"
    if delta is None or (is_zero(delta) and not possible):
        if delta is None and possible:
            raise ArgumentError(NO_DELTA)
        check_delta(delta, pure="" if statistic.l1 is None else PURE_SUMS)
    if not possible or statistic.l1 is None:
        return False
    if is_zero(delta):
        return True
    sd = math.sqrt(2.0) * statistic.l1.sensitivity / float(epsilon or math.inf)
    return alone and sd < statistic.l2.sensitivity / total_mu(words)


def _noised(price: Price, total: ExactTotal | Floats, scale: float) -> Floats:
    """Return the weighted sums with noise: exact sums in steps, and integer noise, where it is secure."""
    source = price.source
    if scale == 0.0 or not source.secure:
        values = total if isinstance(total, np.ndarray) else total.floats()
        if scale == 0.0:
            return values
        if not price.laplace:
            return source.perturb(values, scale)
        return values + source.laplace(scale, values.shape)
    step = grid_step(scale)
    steps = np.rint(total / step).astype(np.int64) if isinstance(total, np.ndarray) else total.steps(step)
    if price.laplace:
        steps = steps + (source.laplace(scale, steps.shape) / step).astype(np.int64)
    else:
        steps = source.gaussian_steps(steps, scale / step)
    return np.asarray(steps * step, dtype=np.float64)
