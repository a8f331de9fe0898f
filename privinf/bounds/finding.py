"""Bounds and levels bought with privacy: where nearly all rows lie, and which labels are common.

Numbers get noisy distribution functions (`privinf.inference.quantiles.range_search`), texts noisy counts
(`privinf.mechanisms.distribution`); what comes out is a schema.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from privinf.accounting import (
    GaussianLoss,
    Ledger,
    LedgerEntry,
    Loss,
    PrivacyReport,
    ThresholdLoss,
    gaussian_delta,
    gaussian_epsilon,
)
from privinf.accounting.purposes import charged_for
from privinf.bounds.found import CLIP_COLUMNS, FoundSchema
from privinf.error_boundary import error_boundary, refuses, warn
from privinf.errors import AlignmentError, ArgumentError, ChangedTargetWarning, NotAvailableError, SchemaError
from privinf.inference.quantiles import Range, range_search
from privinf.mechanisms.blocks import column_kinds, table_rows
from privinf.mechanisms.distribution import CellCounts, NoisyLevels, OpenColumns, OpenLabels
from privinf.mechanisms.gaussian import Spending
from privinf.mechanisms.rows import Rows
from privinf.progress import progress_bar, step
from privinf.schema import Factor, Numeric, Schema
from privinf.schema.declared import Declaration, checked_names
from privinf.typing import Calibration, ColumnKind, RngLike, SourceName, SpendingOptions, Table
from privinf.validation import check_count, check_fraction, columns_phrase
from privinf.wire import Labels

LEAST_SIGNAL = 100.0  # n mu of one column, below which no bound is worth its price
LABEL = Labels.FIND_BOUNDS
# Upper limit of the share of rows outside, as a multiple of the wanted share.
MOST_BEYOND = 0.05
POOLED_LEVEL = "other"  # name of the level as which rare levels are pooled
ANOTHER = "another"  # the same where a column has a level of that name
NO_COMMON_LEVEL = (
    "column {!r}: no level has {:.0f} or more rows in the noisy counts, so nearly all "
    "levels are pooled into one; use a larger budget, or declare the levels in the schema"
)
BEYOND_ALL_BOUNDS = (
    "column {!r}: at least {:.0%} of its rows are outside the bounds that were found, "
    "because the search ends at 2^43; divide the column by a power of ten, or declare its "
    "bounds in the schema"
)
# Bounds of a column with codes of missing values while its own bounds are sought: nothing is clipped to them.
UNBOUNDED = (-1e300, 1e300)
CODES_BY_COLUMN = (
    "missing_codes= must be a mapping from columns to lists of their codes, as in missing_codes={'sbp': [-9]}"
)
WITHOUT_GAPS = (
    "missing_codes={} leaves missing values out, and missing_codes={'sbp': [-9]} also leaves out codes"
)
CODES_OF_OTHERS = (
    "missing_codes= names {}, which {} not among the columns whose bounds or levels are sought: add the "
    "names to columns=, or leave them out"
)


@error_boundary
@refuses({"missing": f"is not an argument here: {WITHOUT_GAPS}"})
def find_bounds(
    rows: Table,
    columns: Iterable[str] | None = None,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    mu: float | None = None,
    rho: float | None = None,
    rng: RngLike = None,
    clip: float = 0.01,
    rare: float = 0.01,
    unit: str | None = None,
    max_rows: int = 1,
    missing_codes: Mapping[str, Sequence[Any]] | None = None,
    calibration: Calibration | None = None,
    source: SourceName | None = None,
    ledger: Ledger | None = None,
    progress: bool | None = None,
) -> FoundSchema:
    r"""Release bounds of numeric columns and levels of text columns with noise, as a schema.

    Parameters
    ----------
    rows : table
        Raw rows: a data frame of any library, a mapping of arrays, or the path of a file.
    columns : sequence of str, optional
        Names of the columns whose bounds or levels are released. By default they are all numeric columns.
        Text columns must be named. The names and types of the columns are assumed to be public.
    epsilon : float, optional
        Epsilon of the (epsilon, delta) guarantee for everything that the call releases. Pass exactly one of
        `epsilon`, `mu` and `rho`. With ``epsilon=inf`` no noise is added. The budget is for all columns
        together. Each column gets an equal share of the budget (in mu^2).
    delta : float, optional
        Delta of the guarantee, at most 1/n, such as 1e-6. A finite `epsilon` needs a delta if the noise is
        Gaussian. With `mu` or `rho`, epsilon is reported at this delta. The release of levels always needs a
        delta.
    mu : float, optional
        Budget in Gaussian differential privacy, instead of `epsilon`.
    rho : float, optional
        Budget in zero-concentrated differential privacy (zCDP), instead of `epsilon`.
    rng : None, int or Generator, optional
        Source of randomness. With None (default) the noise is secure. With a seed or a Generator it is
        simulation noise, which is not private, and the results are marked as NOT PRIVATE.
    clip : float
        Share of the rows that may be outside the bounds of a column, half of it on each side.
    rare : float
        Levels whose share of the rows (by noisy counts) is below `rare` are pooled as ``other``. Levels that
        are too rare for a release of their names are pooled too.
    unit : str, optional
        Column that identifies the person of every row, if a person can have several rows (at most
        `max_rows`).
    max_rows : int
        Largest number of rows of one person.
    missing_codes : mapping of str to sequence, optional
        Public codes of missing values by column, such as ``{"sbp": [-9]}``. These values are left out of the
        search, and the returned schema declares them. With this argument, other missing values of numeric
        columns are left out too.
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
    progress : bool, optional
        Whether to show a progress bar over the rows that are read. By default the bar appears on a terminal
        only.

    Returns
    -------
    FoundSchema
        Schema with the released bounds and levels, their cost, and upper limits of the shares of rows that
        are clipped or pooled.

    Raises
    ------
    NotAvailableError
        Raised if the product n mu / `max_rows` is below 100, where mu is the budget of one column. The error
        is also raised if levels are requested and a person may have several rows, or if the rows are a
        stream, which can be read only once. Nothing was spent, and no row was counted.
    SchemaError, ArgumentError
        Raised if a column is absent, has missing or infinite values, or has numbers among texts. The error is
        also raised if levels are requested without `delta`, or if `missing_codes` has another form or names
        other columns.
    BudgetExceededError
        Raised if the release would exceed the limit of the ledger. A ledger with a limit also refuses a
        release of levels, because the limit cannot include the delta of such a release.

    Warns
    -----
    ChangedTargetWarning
        Issued in three cases, in which more rows of a column may be clipped or pooled than intended. First,
        if the noisy counts show only rows with one value, the bounds may clip rows with other values. Second,
        if many rows have values farther than 2^43 from 0, these rows are outside the bounds. Third, it may
        happen that no level of a column reaches the share `rare`. The most common level is then kept if its
        count is above the noise threshold, and all other levels are pooled. Otherwise all levels are pooled.

    Notes
    -----
    For a numeric column, a share of 0.3 of its mu^2 is spent on a noisy distribution function at positive and
    negative powers of 2, from 2^-20 to 2^43. A share of 0.7 is spent on a second noisy distribution function,
    at 512 cells. These cells cover the range in which rows were detected, extended on each side by 16 times
    its width. If this range is only one or two powers of 2 wide, the share of 0.7 is split: 0.2 of mu^2 is
    spent on a finer search of the range, and 0.5 of mu^2 on the 512 cells. If the noise is small enough to
    detect a share of ``clip / 2`` of the rows, each bound is chosen so that this share of the rows is beyond
    it. Otherwise the tail is extrapolated to this share as an exponential tail. If the first distribution
    function shows no negative values, a lower bound that is less than one cell below 0 is set to 0, so that a
    schema of costs permits ``np.sqrt(cost)``. This step uses only the released counts. The same holds for an
    upper bound of a column without positive values. If rows are detected at 0 and 1 only, the bounds are 0
    and 1, as a logistic regression needs them for its response. If all absolute values of a column are below
    2^-20, its bounds are about 2^-20, which is too wide. In this case change the unit of the column.

    The name of a level is released if its noisy count is above 1 + sigma z(1 - delta'), where sigma is the
    standard deviation of the noise, z the normal quantile and delta' a share of delta. For one column at
    epsilon 1 and delta 1e-6, this threshold is a count of 29 rows. The pooled levels are merged with the most
    common level in two cases: if their total share is below `rare`, or if their total count is not larger
    than the noise.

    With `missing_codes`, rows without a value of a numeric column are one more cell of its distribution
    functions, and the estimated number of the other rows replaces n. A code of a text column is released like
    a level, and its count is then subtracted.

    A table that is not in memory is usually read three times, and at most four times. For each text column it
    is read one more time.

    **Privacy.** The function reads all rows of the requested columns. Neighboring tables differ in one record
    (replace-one), and the number of records n is public. All releases have Gaussian noise, and the edges of
    later releases are computed from earlier releases. The name of a level is released only if its noisy count
    is above a threshold.

    Examples
    --------
    >>> import numpy as np, pandas as pd, privinf as pi
    >>> rng = np.random.default_rng(0)
    >>> rows = pd.DataFrame({"age": rng.uniform(20, 70, 9_000), "town": rng.choice(["a", "b"], 9_000)})
    >>> schema = pi.find_bounds(rows, ["age", "town"], epsilon=0.5, delta=1e-6, rng=0)
    >>> bool(15 < schema["age"].low < 25 and 65 < schema["age"].high < 75), schema["town"].levels
    (True, ('a', 'b'))
    """
    options = SpendingOptions(
        epsilon=epsilon,
        delta=delta,
        mu=mu,
        rho=rho,
        rng=rng,
        calibration=calibration,
        source=source,
    )
    shares = check_fraction(clip, "clip"), check_fraction(rare, "rare")
    max_rows = check_count(max_rows, "max_rows")
    budget = Spending.from_options(options.spending(), ledger)
    named = None if columns is None else checked_names(columns)
    table = table_rows(
        rows,
        None if named is None else [*named, *([] if unit is None else [unit])],
        missing="raise" if missing_codes is None else "drop",
    )
    kinds = _kinds(column_kinds(table, named), named)
    codes = _missing_codes(missing_codes, kinds)
    texts = [name for name, kind in kinds.items() if kind == "levels"]
    event = _unseen(budget, len(texts), len(kinds), grouped=unit is not None)
    part = 1.0 / len(kinds)
    column_mu = budget.mu * math.sqrt(part)
    numbers = [name for name in kinds if name not in texts]
    losses: list[Loss] = [GaussianLoss(column_mu * math.sqrt(len(numbers)))] if numbers else []
    if not math.isinf(column_mu):
        losses += [ThresholdLoss(column_mu, event)] * len(texts)
    budget.ledger.check(losses)
    bar = progress_bar(progress, "search for bounds", unit="pass")
    with bar, charged_for(f"find_bounds: {', '.join(kinds)}"), _advising_codes():
        coded = None if missing_codes is None or not numbers else _coded_schema(numbers, codes)
        complete_texts = replace(table, missing="raise")
        of_numbers = table if numbers else complete_texts
        opened = OpenColumns(of_numbers, numbers, schema=coded, unit=unit, max_rows=max_rows)
        searches = _Searches(opened, numbers, shares[0])
        labels = {name: _opened(complete_texts, name) for name in texts}
        n = _same({*searches.counted(), *(column.n for column in labels.values())})
        _check_signal(n / max_rows, column_mu, len(kinds))
        ranges, entries = searches.released(part, budget)
        declarations: dict[str, tuple[Declaration, list[float]]] = {}
        for name in kinds:
            if name in labels:
                noisy_levels, recorded = labels[name].levels(part, event, budget, LABEL)
                entries += recorded
                declarations[name] = _pooled(name, noisy_levels, shares[1], codes.get(name, ()))
            else:
                column_range = _checked(name, ranges[name], shares[0])
                declarations[name] = (
                    Numeric(column_range.low, column_range.high, missing_codes=codes.get(name, ())),
                    [
                        column_range.low,
                        column_range.high,
                        shares[0],
                        column_range.most,
                        math.nan,
                        column_range.moves,
                    ],
                )
    clip_rows = {name: row for name, (_, row) in declarations.items()}
    clips = pd.DataFrame.from_dict(clip_rows, "index", columns=CLIP_COLUMNS)
    return FoundSchema(
        columns={name: declared for name, (declared, _) in declarations.items()},
        clips=clips,
        unit=unit,
        max_rows=max_rows,
        privacy=PrivacyReport.from_entries(entries, budget.ledger, delta=budget.delta, nobs=n),
    )


@contextmanager
def _advising_codes() -> Iterator[None]:
    """Name missing_codes= in errors about missing values, because there is no argument missing= here."""
    try:
        yield
        return
    except SchemaError as problem:
        what, advice, _ = str(problem).partition(" Pass missing='drop'")
        error = SchemaError(f"{what} {WITHOUT_GAPS}" if advice else what)
    raise error


def _missing_codes(
    codes: Mapping[str, Sequence[Any]] | None, kinds: Mapping[str, ColumnKind]
) -> dict[str, tuple[Any, ...]]:
    """Return the checked codes of missing values by column."""
    if codes is None:
        return {}
    if not isinstance(codes, Mapping):
        raise ArgumentError(CODES_BY_COLUMN)
    if others := [name for name in codes if name not in kinds]:
        raise ArgumentError(
            CODES_OF_OTHERS.format(", ".join(map(repr, others)), "is" if len(others) == 1 else "are")
        )
    return {name: _checked_codes(name, kinds[name], listed) for name, listed in codes.items()}


def _checked_codes(name: str, kind: ColumnKind, codes: Any) -> tuple[Any, ...]:
    """Return codes as a column declares them; SchemaError if they are not a list of its type."""
    try:
        if kind == "number":
            return Numeric(*UNBOUNDED, missing_codes=codes).missing_codes
        listed = codes if isinstance(codes, Collection) else ()  # anything else is refused below
        free = {level for level in map(str, range(len(listed) + 2)) if level not in listed}
        return Factor(tuple(sorted(free)), missing_codes=codes).missing_codes
    except SchemaError as error:
        raise SchemaError(f"column {name!r}: {error}") from None


def _coded_schema(numbers: Sequence[str], codes: Mapping[str, tuple[Any, ...]]) -> Schema:
    """Return the declaration of numeric columns with codes of missing values, before they have bounds."""
    return Schema({name: Numeric(*UNBOUNDED, missing_codes=codes.get(name, ())) for name in numbers})


def _opened(table: Rows, name: str) -> OpenLabels:
    """Return the counted texts of a column; the pass is a step of the progress bar."""
    labels = OpenLabels(table, name)
    step()
    return labels


class _Searches:
    """Searches for the ranges of columns; one pass over rows counts the next step of all of them."""

    def __init__(self, columns: OpenColumns, names: Sequence[str], clip: float) -> None:
        self._columns = columns
        self._searches = {name: range_search(clip) for name in names}
        self._edges = {name: next(search) for name, search in self._searches.items()}
        self._cells = dict[str, CellCounts]()

    def counted(self) -> tuple[int, ...]:
        """Count the requested cells and return the number of rows; nothing where there is no column."""
        if not self._edges:
            return ()
        self._cells = self._columns.cells({name: edges for name, (edges, _) in self._edges.items()})
        step()
        return (self._columns.n,)

    def released(self, part: float, budget: Spending) -> tuple[dict[str, Range], list[LedgerEntry]]:
        """Release the counts and continue the searches, each column for a share of the budget's mu^2."""
        ranges = dict[str, Range]()
        entries = list[LedgerEntry]()
        while self._edges:
            for name, (_, share) in list(self._edges.items()):
                cdf, lines = self._columns.release(name, self._cells[name], part * share, budget, LABEL)
                entries += lines
                try:
                    self._edges[name] = self._searches[name].send(cdf)
                except StopIteration as end:
                    ranges[name] = end.value
                    del self._edges[name]
            self.counted()
        return ranges, entries


def _same(sizes: set[int]) -> int:
    """Return the number of rows that all passes found."""
    if len(sizes) > 1:
        raise AlignmentError("the table was changed while it was read; start again")
    return sizes.pop()


def _kinds(kinds: dict[str, ColumnKind], names: Sequence[str] | None) -> dict[str, ColumnKind]:
    """Return the selected columns and the kind of each, by its type."""
    if names is None:
        kinds = {name: kind for name, kind in kinds.items() if kind == "number"}
        if not kinds:
            raise SchemaError("the table has no numeric column; list the columns to search in columns=")
        return kinds
    if absent := [name for name in names if name not in kinds]:
        raise SchemaError(f"the table lacks {columns_phrase(absent)}, which columns= lists")
    return {name: kinds[name] for name in names}


def _unseen(budget: Spending, texts: int, columns: int, *, grouped: bool) -> float:
    """Return delta', the probability with which one record's own level may be shown (`ThresholdLoss`)."""
    if not texts or math.isinf(budget.mu):
        return 0.5
    if grouped:
        raise NotAvailableError(
            "find_bounds cannot find levels if one person can have several rows; declare the "
            "levels of the columns in the schema"
        )
    if budget.delta is None:
        raise ArgumentError(
            "find_bounds needs delta= to find levels, because it may show a level that only one "
            "record has, with probability at most delta; pass delta=, or declare the levels in the "
            "schema"
        )
    epsilon = gaussian_epsilon(budget.mu, budget.delta)
    remaining = [
        (budget.delta - gaussian_delta(epsilon, budget.mu * math.sqrt(1.0 - 0.5 * k / columns))) / k
        for k in range(1, texts + 1)
    ]
    return min(remaining)


def _without_codes(noisy_levels: NoisyLevels, codes: Sequence[Any]) -> NoisyLevels:
    """Return the levels that are not codes of missing values, with the estimated number of their rows."""
    is_code = np.isin(noisy_levels.labels, list(codes))
    missing = max(float(noisy_levels.counts[is_code].sum()), 0.0)
    return replace(
        noisy_levels,
        labels=tuple(label for label in noisy_levels.labels if label not in codes),
        counts=noisy_levels.counts[~is_code],
        n=max(noisy_levels.n - round(missing), 1),
    )


def _pooled(
    name: str, noisy_levels: NoisyLevels, rare: float, codes: Sequence[Any]
) -> tuple[Factor, list[float]]:
    """Return the retained levels, and the share that may be pooled; see `find_bounds`."""
    shown_codes = sum(label in codes for label in noisy_levels.labels)
    noisy_levels = _without_codes(noisy_levels, codes) if codes else noisy_levels
    common = [
        at for at in range(len(noisy_levels.labels)) if noisy_levels.counts[at] >= rare * noisy_levels.n
    ]
    if not common:
        smallest_count = max(noisy_levels.threshold, rare * noisy_levels.n)
        warn(NO_COMMON_LEVEL.format(name, smallest_count), ChangedTargetWarning)
        if not noisy_levels.labels:
            return Factor((POOLED_LEVEL, ANOTHER), other=POOLED_LEVEL, missing_codes=tuple(codes)), [
                math.nan,
                math.nan,
                rare,
                1.0,
                noisy_levels.threshold,
                0.0,
            ]
        common = [int(np.argmax(noisy_levels.counts))]
    pooled_count = noisy_levels.n - float(noisy_levels.counts[common].sum())
    slack = 2.0 * noisy_levels.sd * math.sqrt(len(common) + shown_codes)
    labels = [noisy_levels.labels[at] for at in common]
    largest = int(np.argmax(noisy_levels.counts[common]))
    pool_level = labels[largest]
    pooled_share = min(max(pooled_count, 0.0) + slack, noisy_levels.n) / noisy_levels.n
    largest_share = (
        max(float(noisy_levels.counts[common][largest]) - 2.0 * noisy_levels.sd, 0.0) / noisy_levels.n
    )
    moves = pooled_share / (pooled_share + largest_share) if pooled_share > 0.0 else 0.0
    if len(labels) == 1 or pooled_count > max(slack, rare * noisy_levels.n):
        pool_level = POOLED_LEVEL if labels != [POOLED_LEVEL] else ANOTHER
        moves = 0.0
        labels += [] if pool_level in labels else [pool_level]
    return Factor(tuple(labels), other=pool_level, missing_codes=tuple(codes)), [
        math.nan,
        math.nan,
        rare,
        pooled_share,
        noisy_levels.threshold,
        moves,
    ]


def _check_signal(n: float, mu: float, columns: int) -> None:
    if n * mu < LEAST_SIGNAL:
        raise NotAvailableError(
            f"{LABEL} has too few rows or too small a budget for {columns} columns. The number of "
            "people (rows / max_rows) times mu (the budget of one column in Gaussian differential "
            f"privacy) is {n * mu:.3g}, but must be at least {LEAST_SIGNAL:g}. List fewer columns, use "
            "a larger budget, or declare bounds. Nothing was spent"
        )


def _checked(name: str, column_range: Range, clip: float) -> Range:
    if column_range.beyond > 2.0 * clip + MOST_BEYOND:
        warn(BEYOND_ALL_BOUNDS.format(name, min(column_range.beyond, 1.0)), ChangedTargetWarning)
    elif column_range.hidden:
        warn(
            f"column {name!r}: as far as the noisy counts show, all rows have the same value. Up to "
            f"{100.0 * column_range.most:.2g}% of the rows may be outside the bounds that were found: use a "
            "larger budget, or declare the bounds",
            ChangedTargetWarning,
        )
    return column_range
