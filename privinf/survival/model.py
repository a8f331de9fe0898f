"""Models of survival curves and the log-rank test: options, one release, and results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from privinf.accounting import Ledger
from privinf.accounting.ledger import check_ledger
from privinf.error_boundary import error_boundaries, error_boundary, refuses, warn
from privinf.errors import ArgumentError, ChangedTargetWarning, NotAvailableError
from privinf.fitting.model import HidesRows
from privinf.results.notes import ALL_EVENTS, hardly_censored, negative_times_texts
from privinf.schema import Schema
from privinf.survival.comparison import ONE_GROUP, LogRankResult, compared
from privinf.survival.curves import CurveKind, SurvivalResult
from privinf.survival.release import SurvivalRelease, release_cells
from privinf.survival.rows import DEFAULT_INTERVALS, SurvivalOptions, SurvivalRows, survival_rows
from privinf.typing import (
    ArrayLike,
    Calibration,
    ColumnLike,
    Label,
    LogRankWeights,
    Missing,
    Pair,
    RngLike,
    SpendingOptions,
    Table,
    Trust,
)
from privinf.validation import check_choice, check_count, check_fraction, check_number

NOT_YET = "is not available for survival curves and log-rank tests: {}"
# Arguments of other packages, and why they are refused.
REFUSED = {
    "entry": NOT_YET.format(
        "left truncation would need counts of entries; use people who are followed from time 0 alone"
    ),
    "strata": NOT_YET.format("pass the strata as groups with by=, which is one release"),
    "cluster": NOT_YET.format("each person has one row"),
    "freq_weights": NOT_YET.format("every record counts once"),
    "exog": NOT_YET.format("curves have no covariates; pass groups as by="),
}


@error_boundaries
class _CurveModel(HidesRows):
    """Common part of models of curves: the constructor, whose arguments are described once, and fit."""

    kind: ClassVar[CurveKind]
    ledger: Ledger
    _rows: SurvivalRows

    @refuses(REFUSED, NotAvailableError)
    def __init__(
        self,
        time: ColumnLike | str,
        status: ColumnLike | str,
        *,
        event: Label | None = None,
        by: ColumnLike | str | None = None,
        data: Table = None,
        schema: Schema | None = None,
        bounds: Pair | None = None,
        levels: Sequence[Label] | None = None,
        horizon: float | None = None,
        grid: int | ArrayLike = DEFAULT_INTERVALS,
        discrete: bool = False,
        missing: Missing = "raise",
        trust: Trust | None = None,
        sites: ColumnLike | str | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        """Check the columns and the options; no row is released, and nothing is charged.

        Parameters
        ----------
        time : array_like or str
            Time to the event or to censoring of each record, or the name of a column of `data`. The public
            bounds of the time are declared in the schema or passed as `bounds`. A record with a time after
            the horizon counts as censored at the horizon.
        status : array_like or str
            Status of each record: 1 if the record had the event at its time, and 0 if it was censored. If
            `status` is a text, it is the name of a column of `data`. This column has the bounds (0, 1), or
            two declared levels, of which the second is the event. If the levels are texts, pass `event` too.
        event : label, optional
            Level of the status that is the event, if the status is a factor of text levels, such as
            ``"dead"`` of ``["alive", "dead"]``. It must be the second of the two declared levels.
        by : array_like or str, optional
            Group of each record, or the name of its column: one curve per group, from the same release.
        data : table or Federation, optional
            Table that contains the columns that are passed by name: a data frame of any library, a mapping of
            arrays, or the path of a CSV or Parquet file. You can also pass a federation, whose sites hold the
            rows.
        schema : Schema, optional
            Public bounds and levels of the columns of `data`.
        bounds : (low, high), optional
            Public bounds of the times, if `time` is an array. By default they are 0 and `horizon`, or 0 and
            the last edge of `grid`.
        levels : sequence, optional
            Public list of all groups, required if `by` is an array.
        horizon : float, optional
            Public end of the follow-up. The default is the upper bound of the time.
        grid : int or sequence of float
            Number of time intervals of equal length between 0 and the horizon, or the public edges of the
            intervals, of which the last is the horizon. An event at an edge belongs to the interval that ends
            at this edge. A time counts as at an edge if they differ by less than a rounding error (1e-9 of
            the edge), so the edges may be computed, for example by ``np.linspace``.
        discrete : bool
            Whether `grid` lists all times that can occur, such as whole months. If True, the curve is exactly
            the Kaplan-Meier estimator, apart from the noise. If False, a record that is censored in a time
            interval counts as at risk for half of this interval.
        missing : {"raise", "drop"}
            Handling of missing values. With "raise" (default) missing values are refused. With "drop" the
            rows with missing values are left out of every count. The number of dropped rows is private; a
            noisy number of complete rows is released with the counts at no further cost. In a federation each
            site chooses its own handling, by the argument `missing` of its `Rows`.
        trust : {"central", "server", "secure-sum"}, optional
            Who is trusted with the rows. For a table, the choice is "central" (default): one curator holds
            the rows. For several sites, "server" (default) means that the sites send counts without noise to
            a server that they trust. The choice "secure-sum" means that the sites add the noise themselves
            and mask their counts, so that only the noisy total is revealed.
        sites : array_like or str, optional
            Label of the site of every row, or the name of the column of labels, to simulate several sites in
            this process.
        ledger : Ledger, optional
            Budget ledger that records the cost of every fit of the model. A ledger with a limit refuses a
            release that would exceed the limit. By default the model makes a new ledger.

        Raises
        ------
        ArgumentError, SchemaError, SensitivityError, NotAvailableError
            An argument is invalid, a column or its bounds do not match the declaration, or the schema allows
            several rows for one person. Nothing is charged.
        """
        options = SurvivalOptions(
            event=event,
            by=by,
            data=data,
            schema=schema,
            bounds=bounds,
            levels=levels,
            horizon=horizon,
            grid=grid,
            discrete=discrete,
            missing=missing,
            trust=trust,
            sites=sites,
        )
        self.ledger = check_ledger(ledger)
        self._rows = survival_rows(time, status, options)

    def fit(
        self,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        mu: float | None = None,
        rho: float | None = None,
        rng: RngLike = None,
        confidence_level: float = 0.95,
        max_colluding: int = 0,
        calibration: Calibration | None = None,
    ) -> SurvivalResult:
        """Release the counts once, and return the curves.

        Parameters
        ----------
        epsilon : float, optional
            Epsilon of the (epsilon, delta) guarantee for everything that the call releases. Pass exactly one
            of `epsilon`, `mu` and `rho`. With ``epsilon=inf`` no noise is added.
        delta : float, optional
            Delta of the guarantee, at most 1/n, such as 1e-6. A finite `epsilon` needs a delta. With `mu` or
            `rho`, epsilon is reported at this delta.
        mu : float, optional
            Budget in Gaussian differential privacy, instead of `epsilon`.
        rho : float, optional
            Budget in zero-concentrated differential privacy (zCDP), instead of `epsilon`.
        rng : None, int or Generator, optional
            Source of randomness. With None (default) the noise is secure. With a seed or a Generator it is
            simulation noise, which is not private, and the results are marked as NOT PRIVATE.
        confidence_level : float
            Level of the intervals and bands, between 0 and 1.
        max_colluding : int
            Number of sites that may collude with the server in secure sums. The noise of this number of sites
            does not count toward the guarantee.
        calibration : {"exact", "classic"}, optional
            How the noise is computed from `epsilon` and `delta`. The choice "exact" (default) is the exact
            calibration of Gaussian noise. The choice "classic" is the textbook formula; use it only to
            reproduce published results.

        Returns
        -------
        SurvivalResult
            ``.table``, ``.median()``, ``.quantile(p)``, ``.restricted_mean()``, ``.logrank()``, ``.plot()``,
            ``.summary()``, ``.privacy``.

        Raises
        ------
        ArgumentError
            If an argument is invalid; nothing was spent.
        BudgetExceededError
            The release would exceed the ledger's limit; nothing was spent.
        NotAvailableError, AlignmentError
            A site refuses, or there are fewer than two records.

        Notes
        -----
        **Privacy.** One Gaussian release; `privacy` states its cost. Everything in the result is computed
        from it.
        """
        spending = SpendingOptions(
            epsilon=epsilon, delta=delta, mu=mu, rho=rho, rng=rng, calibration=calibration
        )
        level = check_fraction(confidence_level, "confidence_level")
        colluding = check_count(max_colluding, "max_colluding", least=0)
        purpose = purpose_of(type(self).__name__, self._rows)
        release = release_cells(self._rows, spending.spending(), self.ledger, purpose, colluding)
        cautions = warned(release, self._rows)
        return SurvivalResult(release=release, kind=self.kind, confidence_level=level, cautions=cautions)

    def __repr__(self) -> str:
        rows = self._rows
        groups = "" if len(rows.names) < 3 else f", {len(rows.levels)} groups"
        return f"<{type(self).__name__}: {rows.n} records, {len(rows.edges)} times{groups} (rows not shown)>"

    def __reduce__(self) -> Any:
        raise TypeError("a model with raw rows cannot be pickled: pickle the results instead")


def warned(release: SurvivalRelease, rows: SurvivalRows) -> tuple[tuple[type[Warning], str], ...]:
    """Warn of codes that count as events or as times; return the warnings.

    A check of the codes of the status would be a release of its own. So the released number of events
    decides: whether nearly all records have an event, and codes above 1 would count as events.
    """
    nobs = release.nobs if release.complete is None else release.complete.rows
    texts = []
    if rows.clips_status and hardly_censored(float(release.cells.D.sum()), nobs):
        texts.append(ALL_EVENTS)
    texts += negative_times_texts(release.negative_times, release.nobs)
    for text in texts:
        warn(text, ChangedTargetWarning)
    return tuple((ChangedTargetWarning, text) for text in texts)


def purpose_of(name: str, rows: SurvivalRows) -> str:
    """Return the purpose of a release, for the ledger."""
    groups = f" by {rows.names[2]}" if len(rows.names) > 2 else ""
    return f"{name}: {rows.names[0]}, {rows.names[1]}{groups}"


@error_boundaries
class KaplanMeier(_CurveModel):
    """Kaplan-Meier survival curves of groups, with intervals and bands that account for the noise.

    Notes
    -----
    The noisy numbers of events and of censored records, by time interval and group, are released once.
    Curves, intervals, bands, quantiles, restricted means, log-rank tests and hazard ratios are computed from
    this release at no further cost. A finer time grid adds little noise: with 128 intervals the noise of a
    curve is a quarter larger than with 32 intervals.

    Left truncation, strata, several rows for one person, and competing risks are not available.

    **Privacy.** Neighboring tables differ in one record, with its time, status and group (replace-one). The
    number of records, the time grid and the horizon are public. Reads every row once. The noise is the same
    for any number of groups above one. With ``trust="secure-sum"`` only the noisy total is revealed.

    Examples
    --------
    >>> import numpy as np, privinf as pi
    >>> rng = np.random.default_rng(0)
    >>> event, end = rng.exponential(3.0, 5000), rng.uniform(1.0, 6.0, 5000)
    >>> time, status = np.minimum(event, end), (event <= end) * 1
    >>> curve = pi.survival.KaplanMeier(time, status, horizon=5.0).fit(epsilon=1.0, delta=1e-6, rng=0)
    >>> low, high = curve.table.loc[2.5, ["[0.025", "0.975]"]]
    >>> bool(low < np.exp(-2.5 / 3.0) < high)
    True
    """

    kind = "survival"


@error_boundaries
class NelsonAalen(_CurveModel):
    """Nelson-Aalen cumulative hazards of groups, with intervals and bands that account for the noise.

    Notes
    -----
    `NelsonAalen` releases the same counts as `KaplanMeier`. The method ``kaplan_meier()`` of the result
    returns the survival curves at no further cost, and ``nelson_aalen()`` of a result of `KaplanMeier`
    returns the cumulative hazards.

    **Privacy.** Neighboring tables differ in one record, with its time, status and group (replace-one). The
    number of records, the time grid and the horizon are public. Reads every row once.

    Examples
    --------
    >>> import numpy as np, privinf as pi
    >>> rng = np.random.default_rng(0)
    >>> event, end = rng.exponential(3.0, 5000), rng.uniform(1.0, 6.0, 5000)
    >>> time, status = np.minimum(event, end), (event <= end) * 1
    >>> hazard = pi.survival.NelsonAalen(time, status, horizon=5.0).fit(epsilon=1.0, delta=1e-6, rng=0)
    >>> low, high = hazard.table.loc[2.5, ["[0.025", "0.975]"]]
    >>> bool(low < 2.5 / 3.0 < high)
    True
    """

    kind = "hazard"


@error_boundary
@refuses(REFUSED, NotAvailableError)
def logrank(
    time: ColumnLike | str,
    status: ColumnLike | str,
    by: ColumnLike | str,
    *,
    event: Label | None = None,
    data: Table = None,
    schema: Schema | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    mu: float | None = None,
    rho: float | None = None,
    rng: RngLike = None,
    weights: LogRankWeights = "logrank",
    exponent: float = 1.0,
    bounds: Pair | None = None,
    levels: Sequence[Label] | None = None,
    horizon: float | None = None,
    grid: int | ArrayLike = DEFAULT_INTERVALS,
    discrete: bool = False,
    confidence_level: float = 0.95,
    missing: Missing = "raise",
    trust: Trust | None = None,
    sites: ColumnLike | str | None = None,
    max_colluding: int = 0,
    calibration: Calibration | None = None,
    ledger: Ledger | None = None,
) -> LogRankResult:
    """Log-rank test that groups have the same hazards, with the hazard ratio of two groups.

    Parameters
    ----------
    time : array_like or str
        Time to the event or to censoring of each record, or the name of a column of `data`. The public bounds
        of the time are declared in the schema or passed as `bounds`. A record with a time after the horizon
        counts as censored at the horizon.
    status : array_like or str
        Status of each record: 1 if the record had the event at its time, and 0 if it was censored. If
        `status` is a text, it is the name of a column of `data`. This column has the bounds (0, 1), or two
        declared levels, of which the second is the event. If the levels are texts, pass `event` too.
    event : label, optional
        Level of the status that is the event, if the status is a factor of text levels, such as ``"dead"`` of
        ``["alive", "dead"]``. It must be the second of the two declared levels.
    by : array_like or str
        Group of each record, or the name of the column of groups.
    data : table or Federation, optional
        Table that contains the columns that are passed by name: a data frame of any library, a mapping of
        arrays, or the path of a CSV or Parquet file. You can also pass a federation, whose sites hold the
        rows.
    schema : Schema, optional
        Public bounds and levels of the columns of `data`.
    epsilon : float, optional
        Epsilon of the (epsilon, delta) guarantee for everything that the call releases. Pass exactly one of
        `epsilon`, `mu` and `rho`. With ``epsilon=inf`` no noise is added.
    delta : float, optional
        Delta of the guarantee, at most 1/n, such as 1e-6. A finite `epsilon` needs a delta. With `mu` or
        `rho`, epsilon is reported at this delta.
    mu : float, optional
        Budget in Gaussian differential privacy, instead of `epsilon`.
    rho : float, optional
        Budget in zero-concentrated differential privacy (zCDP), instead of `epsilon`.
    rng : None, int or Generator, optional
        Source of randomness. With None (default) the noise is secure. With a seed or a Generator it is
        simulation noise, which is not private, and the results are marked as NOT PRIVATE.
    weights : {"logrank", "fleming-harrington", "gehan"}
        Weights of the time intervals in the test: 1, ``S(t)**exponent``, or the share of the records that are
        at risk.
    exponent : float
        Exponent of "fleming-harrington".
    bounds : (low, high), optional
        Public bounds of the times, if `time` is an array. By default they are 0 and `horizon`, or 0 and the
        last edge of `grid`.
    levels : sequence, optional
        Public list of all groups, required if `by` is an array.
    horizon : float, optional
        Public end of the follow-up. The default is the upper bound of the time.
    grid : int or sequence of float
        Number of time intervals of equal length between 0 and the horizon, or the public edges of the
        intervals, of which the last is the horizon. An event at an edge belongs to the interval that ends at
        this edge. A time counts as at an edge if they differ by less than a rounding error (1e-9 of the
        edge), so the edges may be computed, for example by ``np.linspace``.
    discrete : bool
        Whether `grid` lists all times that can occur, such as whole months. If True, the curve is exactly the
        Kaplan-Meier estimator, apart from the noise. If False, a record that is censored in a time interval
        counts as at risk for half of this interval.
    confidence_level : float
        Confidence level of the interval of the hazard ratio, between 0 and 1.
    missing : {"raise", "drop"}
        Handling of missing values. With "raise" (default) missing values are refused. With "drop" the rows
        with missing values are left out of every count. The number of dropped rows is private; a noisy number
        of complete rows is released with the counts at no further cost. In a federation each site chooses its
        own handling, by the argument `missing` of its `Rows`.
    trust : {"central", "server", "secure-sum"}, optional
        Who is trusted with the rows. For a table, the choice is "central" (default): one curator holds the
        rows. For several sites, "server" (default) means that the sites send counts without noise to a server
        that they trust. The choice "secure-sum" means that the sites add the noise themselves and mask their
        counts, so that only the noisy total is revealed.
    sites : array_like or str, optional
        Label of the site of every row, or the name of the column of labels, to simulate several sites in this
        process.
    max_colluding : int
        Number of sites that may collude with the server in secure sums. The noise of this number of sites
        does not count toward the guarantee.
    calibration : {"exact", "classic"}, optional
        How the noise is computed from `epsilon` and `delta`. The choice "exact" (default) is the exact
        calibration of Gaussian noise. The choice "classic" is the textbook formula; use it only to reproduce
        published results.
    ledger : Ledger, optional
        Budget ledger that records the cost of the release. If the release would exceed the limit of the
        ledger, it is refused before any row is read. The cost is recorded in the ledger before anything is
        released.

    Returns
    -------
    LogRankResult
        Result with ``statistic``, ``pvalue``, ``hazard_ratio`` (for two groups), ``table``, ``summary()`` and
        ``privacy``.

    Raises
    ------
    ArgumentError, SchemaError, SensitivityError, NotAvailableError, BudgetExceededError
        Raised if an argument is invalid, a column does not match its declaration, the statistic is not
        available for this schema, or the release would exceed the limit of the ledger.

    Notes
    -----
    The test has the correct level for noise of any size, because the variance of the score includes the
    variance of the noise. The interval of the hazard ratio contains all ratios that the test does not reject.
    If you also need survival curves, fit `KaplanMeier` and call the method ``logrank()`` of its result, which
    costs nothing more.

    **Privacy.** Neighboring tables differ in one record, with its time, status and group (replace-one). The
    number of records, the time grid and the horizon are public. Reads every row once. There is one release of
    counts, with Gaussian noise.

    Examples
    --------
    >>> import numpy as np, privinf as pi
    >>> rng = np.random.default_rng(0)
    >>> group = rng.integers(0, 2, 8000)
    >>> event, end = rng.exponential(3.0 / (1.0 + group), 8000), rng.uniform(1.0, 6.0, 8000)
    >>> time, status = np.minimum(event, end), (event <= end) * 1
    >>> test = pi.survival.logrank(
    ...     time, status, group, levels=[0, 1], horizon=5.0, epsilon=1.0, delta=1e-6, rng=0
    ... )
    >>> bool(test.pvalue < 1e-6), bool(1.7 < test.hazard_ratio.estimate < 2.3)
    (True, True)
    """
    check_choice(weights, LogRankWeights, "weights")
    check_number(exponent, "exponent", low=0.0)
    if by is None:
        raise ArgumentError(ONE_GROUP)
    spending = SpendingOptions(epsilon=epsilon, delta=delta, mu=mu, rho=rho, rng=rng, calibration=calibration)
    level = check_fraction(confidence_level, "confidence_level")
    colluding = check_count(max_colluding, "max_colluding", least=0)
    options = SurvivalOptions(
        event=event,
        by=by,
        data=data,
        schema=schema,
        bounds=bounds,
        levels=levels,
        horizon=horizon,
        grid=grid,
        discrete=discrete,
        missing=missing,
        trust=trust,
        sites=sites,
    )
    rows = survival_rows(time, status, options)
    account = check_ledger(ledger)
    release = release_cells(rows, spending.spending(), account, purpose_of("logrank", rows), colluding)
    cautions = warned(release, rows)
    return replace(compared(release, weights, exponent, level), cautions=cautions)
