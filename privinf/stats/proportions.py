r"""One share and two, from noisy counts: score intervals and exact tests.

The released count of n records is X + e, e of sd s. The score test of p divides by sqrt(n p (1 - p) + s^2);
the interval holds the p that it does not reject. ``method="exact"`` takes the distribution itself, a binomial
number plus noise (`privinf.inference.counts.ShareModel`): with Gaussian noise and one side no test at its
level of GDP has more power. With Laplace noise it is the only one. Two shares are tested by their 2 x 2 table
(`privinf.stats.association`); their difference is one of means (`privinf.stats.groups`) whose squares are
known.

Where rows without a value add zero to every sum, N and S = sum (2 x - 1) over complete records are released,
noise of sds d and a. With m = 2 p - 1 the score S - m N has the variance N (1 - m^2) + a^2 + m^2 d^2, so that
the interval is again where one quadratic is negative. The exact tests need the number of records, and are
refused.

References
----------
Awan and Vadhan (2023), "Canonical noise distributions and private hypothesis tests".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats as distributions

from privinf.accounting import Ledger
from privinf.error_boundary import error_boundary, refuses
from privinf.errors import ArgumentError, ChangedTargetWarning, NotAvailableError, SchemaError
from privinf.inference.counts import ShareModel
from privinf.mechanisms.samples import SampleQuery, SampleSums
from privinf.results.notes import ALL_ALIKE, Note
from privinf.schema import Factor, Numeric, Schema
from privinf.stats.association import request_table, table_model
from privinf.stats.base import (
    ConfidenceInterval,
    EstimateRow,
    NullTest,
    SampleOptions,
    SampleRequest,
    StatResult,
    check_level,
    check_share,
    formula_table,
    public_levels,
    request_columns,
    warn_of,
)
from privinf.stats.comparisons import formula_columns
from privinf.stats.counts import EXACT, SCORE, level_counts
from privinf.stats.groups import LEAST_RANK, GroupModel, quadratic_set, rank, score_interval
from privinf.stats.values_at_bounds import Cautions
from privinf.typing import (
    Alternative,
    Calibration,
    ColumnLike,
    Floats,
    Label,
    Missing,
    NoiseChoice,
    RngLike,
    ShareMethod,
    SourceName,
    Table,
)
from privinf.validation import check_choice, check_number, real_number
from privinf.wire import Labels

CLIPPED_SHARE = (
    "For a column with two levels, estimates are shares of the second level; for a column with bounds "
    "(0, 1), they are means of values clipped to these bounds."
)
EXACT_DROPPING = (
    "method='exact' cannot be combined with missing='drop', because the exact test needs the number of "
    "complete records, which is private: pass method='score'"
)


# Share above which a column of numbers may have the codes 1 and 2, and what its interval must exclude: noise
# alone may make the estimate 1 if records are few.
COHENS_H = "Cohen's h"
NEARLY_ALL = 0.99
LEAST_SURE = 0.9

NOT_GROUPS = "groups= must be a column, not a number: pass the share under the null hypothesis as value="


@dataclass(frozen=True, slots=True)
class CompleteShareModel:
    """Released N and S = sum (2 x - 1) of complete records, whose noise has the sds `count_sd` and `sd`."""

    N: float
    S: float
    count_sd: float
    sd: float

    @classmethod
    def released(cls, release: SampleSums) -> CompleteShareModel:
        """Return the model of one release."""
        N, S = map(float, release.sums[0])
        return cls(min(N, float(release.nobs)), S, *map(float, release.scale))

    @property
    def share(self) -> float:
        """The estimate, inside [0, 1]."""
        return min(max(0.5 + 0.5 * self.S / max(self.N, 1.0), 0.0), 1.0)

    def _sd(self, share: float) -> float:
        m = 2.0 * share - 1.0
        return math.sqrt(max(self.N, 0.0) * (1.0 - m**2) + self.sd**2 + (m * self.count_sd) ** 2)

    @property
    def bse(self) -> float:
        """Standard error of the estimate, at most that of any share."""
        return min(0.5 * self._sd(self.share) / max(self.N, 1.0), 0.5)

    def score(self, share: float) -> float:
        """Return z of the share being `share`."""
        return (self.S - (2.0 * share - 1.0) * self.N) / max(self._sd(share), 1e-300)

    def interval(self, level: float) -> tuple[float, float]:
        """Return the ends of the shares that the score test does not reject; [0, 1] where N is hidden."""
        z2 = float(distributions.norm.isf((1.0 - level) / 2.0)) ** 2
        N = self.N
        if math.sqrt(z2) * self.count_sd >= N:
            return 0.0, 1.0
        low, high = quadratic_set(
            np.asarray(N**2 + z2 * (N - self.count_sd**2)),
            np.asarray(-2.0 * self.S * N),
            np.asarray(self.S**2 - z2 * (N + self.sd**2)),
            1.0,
        )
        return 0.5 + 0.5 * float(low), 0.5 + 0.5 * float(high)


@error_boundary
@refuses(
    {
        "by": "is not an argument here: pi.stats.mean(a, by=) returns the shares of a factor with two levels "
        "by group, and pi.stats.crosstab(a, by).column_shares() or .row_shares() those of any factor"
    }
)
def proportion_confint(
    a: ColumnLike | str,
    data: Table = None,
    *,
    schema: Schema | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    mu: float | None = None,
    rho: float | None = None,
    rng: RngLike = None,
    levels: Sequence[Label] | None = None,
    confidence_level: float = 0.95,
    method: ShareMethod = "score",
    missing: Missing = "raise",
    noise: NoiseChoice = "auto",
    calibration: Calibration | None = None,
    source: SourceName | None = None,
    ledger: Ledger | None = None,
) -> StatResult:
    """Return the share of records with an outcome, or the share of every level of a factor, with intervals.

    Parameters
    ----------
    a : array_like or str
        Outcomes of 0 or 1 (other values are clipped to [0, 1]), or the name of a column of `data`. This
        column must have the bounds (0, 1), or two levels, of which the second is the outcome. If the column
        has more than two levels, the share of each level is returned.
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
    levels : sequence, optional
        Public levels of `a`, required if `a` is an array of labels.
    confidence_level : float
        Confidence level of the intervals, between 0 and 1.
    method : {"score", "exact"}
        Method of the intervals. The choice "score" inverts score tests. The choice "exact" inverts exact
        one-sided tests, as Clopper and Pearson do; with Laplace noise it is always used.
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
    StatResult
        Result with ``estimate``, ``table`` and ``privacy``.

    Notes
    -----
    **Privacy.** Neighboring tables differ in one record (replace-one), and the number of records is public.
    One count is released. The count changes by at most 1 if a record is replaced. For a factor with more than
    two levels, the counts of all levels are released; the vector of counts changes by at most sqrt 2.

    Examples
    --------
    >>> import numpy as np, privinf as pi
    >>> x = np.random.default_rng(0).uniform(size=5000) < 0.02
    >>> r = pi.stats.proportion_confint(x, epsilon=1.0, delta=1e-6, rng=0)
    >>> bool(0.01 < r.rows[0].low < 0.02 < r.rows[0].high < 0.03)
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
    level = check_level(confidence_level)
    method = check_choice(method, ShareMethod, "method")
    request, name = _share_request(a, levels, options, method)
    declared = request.schema[name]
    if isinstance(declared, Factor) and len(declared.levels) > 2:
        return level_counts(request, (name,), level, method)
    release = _share_release(request, name)
    row, model = _share_row(release, level, method)
    return StatResult(
        title="Proportion",
        release=release,
        rows=(row,),
        confidence_level=level,
        ranked_notes=_method_notes(model, method),
        cautions=warn_of(_alike(declared, row)),
    )


@error_boundary
@refuses(
    {"by": "is not an argument here: pass the column of the groups as groups=, or a formula 'sick ~ sex'"}
)
def proportions_ztest(
    a: ColumnLike | str,
    groups: Table | None = None,
    value: float | None = None,
    data: Table = None,
    *,
    schema: Schema | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    mu: float | None = None,
    rho: float | None = None,
    rng: RngLike = None,
    levels: Sequence[Label] | None = None,
    alternative: Alternative = "two-sided",
    confidence_level: float = 0.95,
    method: ShareMethod = "score",
    missing: Missing = "raise",
    noise: NoiseChoice = "auto",
    calibration: Calibration | None = None,
    source: SourceName | None = None,
    ledger: Ledger | None = None,
) -> StatResult:
    """Test that a share is `value`, or that the shares in two groups are equal.

    Parameters
    ----------
    a : array_like or str
        Outcomes of 0 or 1 (other values are clipped to [0, 1]), or the name of a column of `data`. This
        column must have the bounds (0, 1), or two levels, of which the second is the outcome. A formula such
        as "sick ~ sex" is accepted too; it names two columns of the table that is passed as `groups` or
        `data`.
    groups : array_like, str or table, optional
        Group of each record, to compare two groups, or the name of a column of `data`. Two groups are
        compared by the same method as in `chi2_contingency`. If `a` is a formula, pass the table as `groups`
        or as `data`.
    value : float, optional
        Share under the null hypothesis, if `groups` is not passed.
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
    levels : sequence, optional
        Public list of the two groups, required if `groups` is an array.
    alternative : {"two-sided", "less", "greater"}
        Alternative hypothesis: the share differs from `value`, or is less or greater than `value`. With two
        groups, the share of the first group is compared to the share of the second group.
    confidence_level : float
        Confidence level of the intervals, between 0 and 1. The confidence interval of the share, or of the
        difference of shares, is always two-sided.
    method : {"score", "exact"}
        Method of the intervals. The choice "score" inverts score tests. The choice "exact" inverts exact
        one-sided tests, as Clopper and Pearson do; with Laplace noise it is always used.
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
    StatResult
        Result with ``statistic`` and ``pvalue``. Its attribute ``effects`` contains Cohen's h.

    Notes
    -----
    **Privacy.** Neighboring tables differ in one record, with its outcome and its group (replace-one), and
    the number of records is public. For one share, one count is released. For two groups, four counts are
    released together.

    Examples
    --------
    >>> import numpy as np, privinf as pi
    >>> x = np.random.default_rng(0).uniform(size=5000) < 0.3
    >>> bool(pi.stats.proportions_ztest(x, value=0.2, mu=0.5, rng=0).pvalue < 1e-6)
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
    level = check_level(confidence_level, alternative)
    method = check_choice(method, ShareMethod, "method")
    if real_number(groups) is not None:
        raise ArgumentError(NOT_GROUPS)
    if isinstance(a, str) and "~" in a:
        groups, options = formula_table(a, groups, options)
        if groups is not None:
            raise ArgumentError("the groups were passed twice, in the formula and as groups=: pass them once")
        a, groups = formula_columns(a)
    if groups is not None:
        if value is not None:
            raise ArgumentError(
                "value= is only for one sample, and groups= compares two groups with each other: pass "
                "one of them"
            )
        return _two_shares(request_table(a, groups, (None, levels), options), alternative, level)
    if value is None:
        raise ArgumentError("pass value= (one sample) or groups= (two samples)")
    if levels is not None:
        raise ArgumentError("levels= is for groups: pass groups=, or leave it out")
    p0 = check_number(value, "value", low=0.0, high=1.0, open_low=True, open_high=True)
    request, name = _share_request(a, None, options, method)
    release = _share_release(request, name)
    row, model = _share_row(release, level, method)
    z = float(model.score(p0))
    tails = (
        (model.tail(p0), model.below(p0))
        if isinstance(model, ShareModel) and _exact(model, method)
        else (distributions.norm.sf(z), distributions.norm.cdf(z))
    )
    return StatResult(
        title="Test of a Proportion",
        release=release,
        rows=(row,),
        confidence_level=level,
        test=NullTest(
            statistic=z,
            pvalue=_of_tails(float(tails[0]), float(tails[1]), alternative),
            null=f"share of {row.name} = {p0:g}",
            alternative=alternative,
        ),
        effects={COHENS_H: _arc(row.estimate) - _arc(p0)},
        effect_intervals={COHENS_H: ConfidenceInterval(_arc(row.low) - _arc(p0), _arc(row.high) - _arc(p0))},
        ranked_notes=_method_notes(model, method),
        cautions=warn_of(_alike(request.schema[name], row)),
    )


def _share_request(
    a: Any, levels: Sequence[Label] | None, options: SampleOptions, method: ShareMethod
) -> tuple[SampleRequest, str]:
    """Return the column whose shares are asked for, and its name."""
    if method == "exact" and options.missing == "drop":
        raise NotAvailableError(EXACT_DROPPING)
    declared: Any = public_levels(levels)
    if levels is None and not isinstance(a, str):
        declared = (0.0, 1.0)  # bounds: numbers between them are taken
    request, (name,) = request_columns({"a": a}, {"a": declared}, options)
    return request, name


def _share_release(request: SampleRequest, name: str) -> SampleSums:
    check_share(request.schema, name)
    return request.release(SampleQuery(kind="share", values=(name,), label=Labels.SHARE.format(name=name)))


def _alike(declared: Numeric | Factor, row: EstimateRow) -> Cautions:
    """Return the caution about a share of nearly all in a column of numbers, by the released share.

    Other codes than 0 and 1 are clipped: no release counts them, and a check of the rows would be a release.
    """
    if isinstance(declared, Factor) or row.estimate <= NEARLY_ALL or row.low <= LEAST_SURE:
        return ()
    return ((ChangedTargetWarning, ALL_ALIKE.format(repr(row.name))),)


def _exact(model: ShareModel | CompleteShareModel, method: ShareMethod) -> bool:
    return isinstance(model, ShareModel) and (method == "exact" or model.laplace)


def _method_notes(model: ShareModel | CompleteShareModel, method: ShareMethod) -> tuple[str | Note, ...]:
    return EXACT if _exact(model, method) else SCORE, Note(CLIPPED_SHARE, "header")


def _share_row(
    release: SampleSums, level: float, method: ShareMethod
) -> tuple[EstimateRow, ShareModel | CompleteShareModel]:
    name = release.query.values[0]
    if release.complete is not None:
        complete = CompleteShareModel.released(release)
        return EstimateRow(name, complete.share, complete.bse, *complete.interval(level)), complete
    model = ShareModel(release.sums[0, 0], release.nobs, float(release.scale[0]), release.noise == "laplace")
    low, high = (
        model.exact_interval(level)
        if _exact(model, method)
        else score_interval(model.count, model.n, model.sd, level)
    )
    p = min(max(float(model.count) / model.n, 0.0), 1.0)
    bse = math.sqrt(p * (1.0 - p) / model.n + (model.sd / model.n) ** 2)
    return EstimateRow(name=name, estimate=p, bse=bse, low=float(low), high=float(high)), model


def _of_tails(above: float, below: float, alternative: Alternative) -> float:
    if alternative == "two-sided":
        return min(2.0 * min(above, below), 1.0)
    return above if alternative == "greater" else below


def _arc(share: float) -> float:
    return 2.0 * math.asin(math.sqrt(min(max(share, 0.0), 1.0)))


def _two_shares(
    request_and_names: tuple[SampleRequest, tuple[str, ...]], alternative: Alternative, level: float
) -> StatResult:
    """Return the test that the second level's share is equal in two groups, from the 2 x 2 table."""
    request, (outcome, group) = request_and_names
    declared = [request.schema[name] for name in (group, outcome)]
    if any(not isinstance(kind, Factor) or len(kind.levels) != 2 for kind in declared):
        raise SchemaError(
            f"column {group!r} (the group) and column {outcome!r} (the outcome) must each be a factor with "
            "two levels: use chi2_contingency for more levels"
        )
    release = request.release(
        SampleQuery(
            kind="cells", values=(), by=(group, outcome), label=Labels.BY.format(values=outcome, groups=group)
        )
    )
    model = table_model(release)
    simulated = model.simulate().independence()
    T, sign = model.independence()
    # A first group with more of the first outcome has the smaller share of the second.
    z = float(-sign * np.sqrt(T))
    drawn = -simulated[1] * np.sqrt(simulated[0])
    side = 1.0 if alternative == "greater" else -1.0
    pvalue = rank(side * drawn, side * z) if alternative != "two-sided" else rank(simulated[0], float(T))
    noise = math.sqrt(2.0) * model.sd
    N = model.X.sum(axis=1)
    S = model.X[:, 1] - model.X[:, 0]
    gaps = None if model.gaps is None else model.gaps[None]
    groups = GroupModel.from_sums(N, S, np.zeros(2), model.n, (noise, 0.0), laplace=model.laplace, gaps=gaps)
    ends, sd = groups.first_difference(level)
    p = (1.0 + groups.means) / 2.0
    first, second = release.levels[0]
    level_of = release.levels[1][1]
    low, high = groups.mean_sets(level)
    sds = groups.mean_sds()
    shares = (
        EstimateRow(f"share of {level_of} in {name}", *(float(number) for number in numbers))
        for name, *numbers in zip(
            release.levels[0], p, sds / 2.0, (1.0 + low) / 2.0, (1.0 + high) / 2.0, strict=True
        )
    )
    row = EstimateRow(
        name=f"{first} - {second}",
        estimate=float(p[0] - p[1]),
        bse=sd / 2.0,
        low=ends[0] / 2.0,
        high=ends[1] / 2.0,
    )
    return StatResult(
        title="Test of Two Proportions",
        release=release,
        rows=(row, *shares),
        confidence_level=level,
        test=NullTest(
            statistic=z,
            pvalue=pvalue,
            least_pvalue=LEAST_RANK,
            null=f"share of {level_of} in {outcome} equal over {group}",
            alternative=alternative,
        ),
        effects={COHENS_H: _arc(float(p[0])) - _arc(float(p[1]))},
        effect_intervals={COHENS_H: arc_difference(p, (1.0 + low) / 2.0, (1.0 + high) / 2.0)},
    )


def arc_difference(p: Floats, low: Floats, high: Floats) -> ConfidenceInterval:
    """Return the interval of Cohen's h of two shares from their estimates and separate intervals.

    With the arcs a of the shares, and l and u those of the ends, the ends of ``a_1 - a_2`` are ``a_1 - a_2 -
    sqrt((a_1 - l_1)^2 + (u_2 - a_2)^2)`` and ``a_1 - a_2 + sqrt((u_1 - a_1)^2 + (a_2 - l_2)^2)`` (Zou and
    Donner, 2008), within plus and minus pi.
    """
    arcs, lows, highs = (np.array([_arc(float(share)) for share in shares]) for shares in (p, low, high))
    difference = float(arcs[0] - arcs[1])
    below = math.hypot(arcs[0] - lows[0], highs[1] - arcs[1])
    above = math.hypot(highs[0] - arcs[0], arcs[1] - lows[1])
    return ConfidenceInterval(max(difference - below, -math.pi), min(difference + above, math.pi))
