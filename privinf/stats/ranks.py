r"""Rank tests that samples or groups have the same distribution, and signed-rank tests of symmetry.

Rank tests need no bounds, so loose bounds cannot increase their noise. The releases
(`privinf.mechanisms.statistics.samples`):

**Two samples**: R = sum s(x_i - y_j)/2 over all pairs, which is U - n_1 n_2/2, and n_1. If both
    samples have the same distribution, R has mean 0 and variance n_1 n_2 (n + 1)/12, less where there are
    ties, which are not released. The test divides R by the root of that and of the noise's variance. R/(n_1
    n_2) + 1/2 estimates P = P(x > y) + P(x = y)/2, with a sampling variance of at most P (1 - P)/min(n_1,
    n_2) (van Dantzig), of which the interval is made.
**Groups**: W = sum |R_g|, against normal rank sums of groups of equal sizes, which spread W most, and noise.
**Signed ranks**: T = sum of signs of x_i + x_j - 2 c, i <= j; under symmetry its variance is at most
    n (n + 1) (2 n + 1)/6. 2 T/(n (n + 1)) estimates r = P(x + x' > 2 c) - P(x + x' < 2 c), with a variance
    of at most (1 - r^2)/[n/2] (Hoeffding).

With Laplace noise the distribution is that of a normal number plus a Laplace number, in closed form.

**Rows without a value** (`missing="drop"`) add zero to these sums, which are over pairs of complete records,
and the number N of complete records is released with them. N stands for n in all variances; in those of the
null, which grow with N, it is one sd of its noise larger. Intervals allow for the noise of the numbers of
pairs by which R, T and W are divided.

References
----------
Couch, Kazan, Shi, Bray and Groce (2019), "Differentially private nonparametric hypothesis testing". Van
Dantzig (1951), "On the consistency and the power of Wilcoxon's two sample test". Hoeffding (1963),
"Probability inequalities for sums of bounded random variables".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats as distributions

from privinf.accounting import Ledger
from privinf.error_boundary import error_boundary, refuses
from privinf.errors import ArgumentError, SchemaError
from privinf.mechanisms.samples import SampleQuery, SampleSums
from privinf.schema import Schema
from privinf.stats import base
from privinf.stats.comparisons import GROUPS_REFUSALS, TWO_REFUSALS, request_groups, request_two_samples
from privinf.stats.groups import LEAST_RANK, SIMULATED, rank
from privinf.stats.means import laplace_quantile, laplace_tail
from privinf.typing import (
    Alternative,
    Calibration,
    ColumnLike,
    Floats,
    Label,
    Missing,
    NoiseChoice,
    RngLike,
    SourceName,
    Table,
)
from privinf.validation import check_number, real_number
from privinf.wire import Labels

# Bounds of arrays of any numbers: a power of 2, by which values are divided exactly.
ANY_NUMBER = (-(2.0**500), 2.0**500)
RANK_STREAM = 12  # seed of simulated rank sums: the same release has the same p-value
RANK_BISERIAL = "rank-biserial r"
FINENESS = 2001  # values at which the test is inverted
COMPARES_DISTRIBUTIONS = (
    "This tests equal distributions, not equal means: groups with equal means may differ in distribution."
)
NOT_A_CENTER = (
    "center must be a number, the center under the null hypothesis; for pairs, pass the column of their "
    "differences as the first argument"
)
OF_SYMMETRY = (
    "This tests symmetry about the center: a skewed distribution may be rejected whatever its mean or median."
)
SEPARATION = (
    "The row 'ranks apart' is 0 if all groups have the same distribution, and 1 if some groups contain the "
    "lower half of the values and the other groups the upper half. Sampling and noise move its estimate "
    "upward: an interval that starts at 0 does not show a difference."
)
SCALE_OF_SUM = (
    "The statistic is the sum over the groups of the absolute sum of centered ranks, not the H of Kruskal "
    "and Wallis: compare p-values with those of other software, not statistics."
)
# Largest variance of the separation of any groups B, times n, and its ratio to the null variance of half of
# the records, 4/3. With q the share of records in B and p the probability that their values are larger, the
# variance is at most 64 q (1 - q) max(q, 1 - q) p (1 - p)/n, which is largest at p = 1/2 and q = 1/3.
LARGEST_VARIANCE = 64.0 / 27.0
WIDER_THAN_NULL = math.sqrt(LARGEST_VARIANCE / (4.0 / 3.0))
TIES_COUNT_HALF = "Ties count half and make the test conservative."


@dataclass(frozen=True, slots=True)
class RankModel:
    """A score of mean 0 under the null, its sampling sd there, and the sd of its noise."""

    score: float
    sd: float
    noise: float
    laplace: bool = False

    @classmethod
    def of_two(
        cls, score: float, first: float, n: int, noise: Sequence[float], *, laplace: bool
    ) -> RankModel:
        """Return the distribution of R/(n - 1) and n_1, released with noise of these sds.

        n_1 is moved toward n/2, where R spreads most, by one sd of its noise.
        """
        away = n / 2.0 - min(max(first, 0.0), n)
        n1 = n / 2.0 - math.copysign(max(abs(away) - noise[1], 0.0), away)
        sd = math.sqrt(n1 * (n - n1) * (n + 1) / 12.0)
        return cls(score * (n - 1.0), sd, noise[0] * (n - 1.0), laplace)

    def test(self, alternative: Alternative) -> tuple[float, float]:
        """Return z and its p-value."""
        if not math.hypot(self.sd, self.noise) > 0.0:
            return math.nan, math.nan
        z = self.score / math.hypot(self.sd, self.noise)
        tail = float(self._tail(np.array(abs(self.score)), np.array(self.sd)))
        if alternative == "two-sided":
            return z, min(2.0 * tail, 1.0)
        return z, tail if (z > 0.0) == (alternative == "greater") else 1.0 - tail

    def interval(self, level: float, error: Callable[[Floats], Floats], low: float) -> tuple[float, float]:
        """Return the ends of the x in [low, 1] that are not rejected; `error` gives mean and sd at x."""
        x = np.linspace(low, 1.0, FINENESS)
        mean, sd = error(x)
        apart = np.abs(self.score - mean)
        not_rejected = np.flatnonzero(self._tail(apart, sd) >= (1.0 - level) / 2.0)
        if not len(not_rejected):
            nearest = float(x[np.argmin(apart)])
            return nearest, nearest
        step = x[1] - x[0]
        return max(float(x[not_rejected[0]] - step), low), min(float(x[not_rejected[-1]] + step), 1.0)

    def _tail(self, apart: Floats, sd: Floats) -> Floats:
        """Return the probability that a score is so far above its mean, or farther."""
        if self.laplace:
            return laplace_tail(apart, sd, self.noise / math.sqrt(2.0))
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(distributions.norm.sf(np.nan_to_num(apart / np.hypot(sd, self.noise))))


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoRanked:
    """Ranks of two samples from one release: their test, and how many pairs of records they have.

    `first` is the number of records of the first sample, of `n` in all, and `first_sd` the sd of its noise.
    The noise of the number of pairs has the sd ``slope * slope_sd``.
    """

    model: RankModel
    n: float
    first: float
    first_sd: float
    slope: float
    slope_sd: float

    @classmethod
    def released(cls, release: SampleSums) -> TwoRanked:
        """Return what one release says, of all records or of complete ones."""
        numbers = tuple(map(float, release.sums[0]))
        noise = tuple(map(float, release.scale))
        n = release.nobs
        if release.complete is None:
            score, first = numbers
            model = RankModel.of_two(score, first, n, noise, laplace=release.noise == "laplace")
            first = min(max(first, 0.0), float(n))
            return cls(
                model=model,
                n=n,
                first=first,
                first_sd=noise[1],
                slope=n - 2.0 * first,
                slope_sd=noise[1],
            )
        count, score, difference = numbers
        N = min(max(count, 2.0), float(n))
        away = min(abs(difference), N)
        even = max(away - noise[2], 0.0)
        largest = min(N + noise[0], float(n))
        sd = math.sqrt((largest**2 - even**2) / 4.0 * (largest + 1.0) / 12.0)
        return cls(
            model=RankModel(score * (n - 1.0), sd, noise[1] * (n - 1.0)),
            n=N,
            first=0.5 * (N + math.copysign(away, difference)),
            first_sd=0.5 * math.hypot(noise[0], noise[2]),
            slope=0.5,
            slope_sd=math.hypot(N * noise[0], away * noise[2]),
        )


# ---- two samples


@error_boundary
@refuses(TWO_REFUSALS)
def mannwhitneyu(
    x: ColumnLike | str,
    y: Table | None = None,
    data: Table = None,
    *,
    schema: Schema | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    mu: float | None = None,
    rho: float | None = None,
    rng: RngLike = None,
    alternative: Alternative = "two-sided",
    confidence_level: float = 0.95,
    missing: Missing = "raise",
    noise: NoiseChoice = "auto",
    calibration: Calibration | None = None,
    source: SourceName | None = None,
    ledger: Ledger | None = None,
) -> base.StatResult:
    """Rank test that two samples have the same distribution (Wilcoxon-Mann-Whitney test).

    Parameters
    ----------
    x : array_like or str
        The first sample. A formula such as "income ~ sex" is accepted too. In this case, pass the table that
        contains the columns of the formula as `y` or as `data`. The column on the right side of the formula
        must have two levels. Instead of a sample, `x` may also be the name of the column of values in `data`.
    y : array_like, str or table, optional
        The second sample. If `x` is a formula, `y` may be the table. If `x` is the name of a column, `y` is
        the name of the column of the groups.
    data : table, optional
        Table that contains the columns that are passed by name: a data frame of any library, a mapping of
        arrays, or the path of a CSV or Parquet file.
    schema : Schema, optional
        Public bounds and levels of the columns of `data`. Values outside the bounds are clipped to the
        bounds. If the values are an array, no bounds are needed.
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
    alternative : {"two-sided", "less", "greater"}
        Alternative hypothesis: the values of the first sample (or level) tend to differ from the values of
        the second sample, to be smaller, or to be larger.
    confidence_level : float
        Confidence level of the intervals, between 0 and 1.
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
        Result with ``statistic`` (a z statistic), ``pvalue``, and ``estimate``, which is an estimate of P(x >
        y) + P(x = y)/2 with an interval.

    Notes
    -----
    **Privacy.** Neighboring tables differ in one record, in its value or its sample (replace-one), and the
    number of records is public. The sum of ranks and the size of the first sample are released together, and
    the noise of the sum is as small as in a release of the sum alone.

    Examples
    --------
    >>> import numpy as np, privinf as pi
    >>> rng = np.random.default_rng(0)
    >>> x, y = rng.lognormal(0.5, 1, 400), rng.lognormal(0, 1, 300)
    >>> r = pi.stats.mannwhitneyu(x, y, epsilon=1.0, delta=0, rng=0)
    >>> bool(r.pvalue < 0.01 and r.rows[0].low < 0.64 < r.rows[0].high)
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
    level = base.check_level(confidence_level, alternative)
    y, options = base.formula_table(x, y, options)
    request, query = request_two_samples(x, y, None if isinstance(x, str) else ANY_NUMBER, options)
    if len(request.schema[query.by[0]].levels) != 2:  # type: ignore[union-attr]
        raise SchemaError(
            f"{query.by[0]!r} must have exactly two levels for mannwhitneyu: use kruskal for more"
        )
    return _two_samples(request.release(replace(query, kind="two ranked")), alternative, level)


def _two_samples(release: SampleSums, alternative: Alternative, level: float) -> base.StatResult:
    ranked = TwoRanked.released(release)
    model = ranked.model
    z, pvalue = model.test(alternative)
    n = ranked.n
    n1 = ranked.first
    pairs = n1 * (n - n1)
    hidden = min(n1, n - n1) <= 3.0 * ranked.first_sd

    def error(p: Floats) -> Floats:
        sampling = p * (1.0 - p) / max(min(n1, n - n1), 1.0) * pairs**2
        spread = (p - 0.5) * ranked.slope * ranked.slope_sd
        return np.array([(p - 0.5) * pairs, np.sqrt(sampling + spread**2)])

    first_level, second_level = release.levels[0]
    name = f"P({first_level} > {second_level})"
    if hidden:
        row = base.EstimateRow(name=name, estimate=0.5, bse=0.5, low=0.0, high=1.0)
        count_note = "The noise is too large to estimate the number of records in one group."
    else:
        p = float(np.clip(0.5 + model.score / pairs, 0.0, 1.0))
        bse = math.hypot(float(error(np.array([p]))[1, 0]), model.noise) / pairs
        row = base.EstimateRow(name, p, min(bse, 0.5), *model.interval(level, error, 0.0))
        count_note = f"Ties count half in P({first_level} > {second_level})."
    value = release.query.values[0]
    by = release.query.by[0]
    return base.StatResult(
        title="Mann-Whitney Test",
        release=release,
        rows=(row,),
        confidence_level=level,
        test=base.NullTest(
            statistic=z,
            pvalue=pvalue,
            null=f"equal distributions of {value} in both groups of {by}",
            alternative=alternative,
        ),
        effects={RANK_BISERIAL: 2.0 * row.estimate - 1.0},
        effect_intervals={RANK_BISERIAL: base.ConfidenceInterval(2.0 * row.low - 1.0, 2.0 * row.high - 1.0)},
        ranked_notes=(COMPARES_DISTRIBUTIONS, count_note, TIES_COUNT_HALF),
    )


# ---- groups


@error_boundary
@refuses(GROUPS_REFUSALS)
def kruskal(
    values: ColumnLike | str,
    groups: Table | None = None,
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
    missing: Missing = "raise",
    noise: NoiseChoice = "auto",
    calibration: Calibration | None = None,
    source: SourceName | None = None,
    ledger: Ledger | None = None,
) -> base.StatResult:
    """Rank test that groups have the same distribution (a private variant of the Kruskal-Wallis test).

    Parameters
    ----------
    values : array_like or str
        The values. A formula such as "income ~ carrier" is accepted too; it names columns of the table that
        is passed as `groups` or `data`.
    groups : array_like or table, optional
        Group of each record. If `values` is a formula, pass the table as `groups` or as `data`.
    data : table, optional
        Table that contains the columns that are passed by name: a data frame of any library, a mapping of
        arrays, or the path of a CSV or Parquet file.
    schema : Schema, optional
        Public bounds and levels of the columns of `data`. Values outside the bounds are clipped to the
        bounds. If the values are an array, no bounds are needed.
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
        Public list of all groups, required if `groups` is an array.
    confidence_level : float
        Confidence level of the intervals, between 0 and 1.
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
        Result with ``statistic``, ``pvalue`` and ``estimate``. For three or more groups, ``estimate`` is the
        separation of the ranks of the groups, between 0 and 1. The separation is 1 if some of the groups
        together contain the lower half of all values, and the other groups the upper half. Its interval
        allows for sampling and noise, and is conservative. For two groups, ``estimate`` is that of
        `mannwhitneyu`.

    Notes
    -----
    For three groups or more, the statistic is the sum over the groups of the absolute sum of centered ranks,
    as in the test KWabs of Couch et al. (2019). Its scale is not that of H of Kruskal and Wallis, which other
    software reports; the p-values test the same hypothesis.

    **Privacy.** One number is released: the sum, over the groups, of the absolute value of the group's sum of
    centered ranks. The release costs `epsilon`, `mu` or `rho`. Rows are read only after the ledger has
    accepted the release. The reference distribution assumes groups of equal size, so the test is conservative
    if sizes are unequal. No number of a single group is released.

    Examples
    --------
    >>> import numpy as np, privinf as pi
    >>> rng = np.random.default_rng(0)
    >>> g = rng.choice(["a", "b", "c"], 300)
    >>> x = rng.lognormal(size=300) + (g == "c")
    >>> r = pi.stats.kruskal(x, g, levels=["a", "b", "c"], epsilon=2, delta=0, rng=0)
    >>> bool(r.pvalue < 0.01)
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
    level = base.check_level(confidence_level)
    groups, options = base.formula_table(values, groups, options)
    bounds = None if isinstance(values, str) else ANY_NUMBER
    request, query = request_groups(values, groups, bounds, levels, options)
    k = len(request.schema[query.by[0]].levels)  # type: ignore[union-attr]
    if k == 2:
        return _two_samples(request.release(replace(query, kind="two ranked")), "two-sided", level)
    release = request.release(replace(query, kind="many ranked"))
    n = release.nobs
    noise_sd = float(release.scale[-1])
    W = float(release.sums[0, -1])
    laplace = release.noise == "laplace"
    count, count_sd = (float(n), 0.0) if release.complete is None else _complete_count(release)
    null = null_statistics(n, k, noise_sd, laplace=laplace, complete=min(count + count_sd, float(n)))
    pvalue = rank(null, W)
    # W of two halves that do not overlap is n^2/(4 (n - 1)).
    unit = 4.0 * (n - 1.0) / count**2
    noise_sd = math.hypot(noise_sd, W * 2.0 * count_sd / count) if count_sd else noise_sd
    low, high = separation_ends(W, n, k, noise_sd, count, laplace=laplace, level=level)
    apart = [min(max(unit * x, 0.0), 1.0) for x in (W, low, high)]
    sampling = math.sqrt(LARGEST_VARIANCE / count)
    value = query.values[0]
    by = query.by[0]
    return base.StatResult(
        title="Kruskal-Wallis Test (absolute)",
        release=release,
        confidence_level=level,
        rows=(
            base.EstimateRow(
                name="ranks apart",
                estimate=apart[0],
                bse=min(math.hypot(unit * noise_sd, sampling), 1.0),
                low=apart[1],
                high=apart[2],
            ),
        ),
        test=base.NullTest(
            statistic=W,
            pvalue=pvalue,
            least_pvalue=LEAST_RANK,
            null=f"equal distributions of {value} in all groups of {by}",
        ),
        ranked_notes=(COMPARES_DISTRIBUTIONS, SEPARATION, SCALE_OF_SUM, TIES_COUNT_HALF),
    )


def _complete_count(release: SampleSums) -> tuple[float, float]:
    """Return the released number of complete records, at least two, and the sd of its noise."""
    return min(max(float(release.sums[0, 0]), 2.0), float(release.nobs)), float(release.scale[0])


def null_statistics(
    n: int, k: int, noise: float, *, laplace: bool, complete: float | None = None, wider: float = 1.0
) -> Floats:
    """Return simulated W/(n - 1) of k groups of equal sizes and one distribution, noise included.

    `complete` is the number of records whose ranks are summed, where that is not n. The sums have `wider`
    times their standard deviation.
    """
    rng = np.random.default_rng(RANK_STREAM)
    N = n if complete is None else complete
    sums = wider * rng.standard_normal((SIMULATED, k)) * math.sqrt(N / k * N * (N + 1) / 12.0)
    sums -= sums.mean(axis=1, keepdims=True)
    scale = noise / math.sqrt(2.0)
    drawn = rng.laplace(0.0, scale, SIMULATED) if laplace else rng.normal(0.0, noise, SIMULATED)
    return np.asarray(np.abs(sums).sum(axis=1) / (n - 1.0) + drawn)


def separation_ends(
    W: float, n: int, k: int, noise: float, count: float, *, laplace: bool, level: float
) -> tuple[float, float]:
    r"""Return the ends of an interval of the expected W without noise.

    With the centered sums of ranks R_g, W is ``max_B 2 R_B/(n - 1)`` over sets B of groups. So W exceeds its
    value at the expected sums by at most the largest error of the sets, whose null distribution, made wider
    for other distributions, gives the lower end. W falls below that value by at most the error of the one set
    B that is largest there, which gives the upper end. In 300 releases of each of ten populations, the
    intervals at level 0.95 contained the value of the population in 0.98 to 1.00.

    Parameters
    ----------
    W : float
        The released sum, over n - 1.
    n, k : int
        Number of records and of groups.
    noise : float
        Standard deviation of the noise.
    count : float
        Number of records whose ranks are summed.
    """
    tail = (1.0 - level) / 2.0
    above = null_statistics(n, k, noise, laplace=laplace, complete=count, wider=WIDER_THAN_NULL)
    sd = math.sqrt(LARGEST_VARIANCE / count) * count**2 / (4.0 * (n - 1.0))
    if laplace:
        below = float(laplace_quantile(tail, np.array(sd), noise / math.sqrt(2.0)))
    else:
        below = math.hypot(sd, noise) * float(distributions.norm.isf(tail))
    return W - float(np.quantile(above, 1.0 - tail)), W + below


# ---- one sample


@error_boundary
def wilcoxon(
    a: ColumnLike | str,
    center: float = 0.0,
    data: Table = None,
    *,
    schema: Schema | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    mu: float | None = None,
    rho: float | None = None,
    rng: RngLike = None,
    alternative: Alternative = "two-sided",
    confidence_level: float = 0.95,
    missing: Missing = "raise",
    noise: NoiseChoice = "auto",
    calibration: Calibration | None = None,
    source: SourceName | None = None,
    ledger: Ledger | None = None,
) -> base.StatResult:
    """Wilcoxon signed-rank test that the distribution of a column is symmetric about a point.

    Parameters
    ----------
    a : array_like, Series or str
        Values of the records, or the name of a column of `data`. For paired values, pass the differences.
    center : float
        Center under the null hypothesis, in the units of the values.
    data : table, optional
        Table that contains the columns that are passed by name: a data frame of any library, a mapping of
        arrays, or the path of a CSV or Parquet file.
    schema : Schema, optional
        Public bounds and levels of the columns of `data`. Values outside the bounds are clipped to the
        bounds. If the values are an array, no bounds are needed.
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
    alternative : {"two-sided", "less", "greater"}
        Alternative hypothesis: the values tend to differ from the center, or to be below or above the center.
    confidence_level : float
        Confidence level of the intervals, between 0 and 1.
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
        Result with ``statistic`` (a z statistic), ``pvalue`` and ``estimate``, which is the rank-biserial
        correlation with an interval. The correlation is -1 if all values are below the center, and 1 if all
        values are above.

    Notes
    -----
    **Privacy.** Neighboring tables differ in one record (replace-one), and the number of records is public.
    One number is released: the sum of signed ranks divided by n. The released number changes by at most 2 if
    a record is replaced.

    Examples
    --------
    >>> import numpy as np, privinf as pi
    >>> x = np.random.default_rng(0).standard_t(2, 400)
    >>> pi.stats.wilcoxon(x, 1.0, alternative="less", epsilon=1.0, delta=0, rng=0).pvalue < 0.001
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
    level = base.check_level(confidence_level, alternative)
    if real_number(center) is None:
        base.refuse_table(center, "center")
        raise ArgumentError(NOT_A_CENTER)
    at = check_number(center, "center")
    request, (name,) = base.request_columns(
        {"a": a}, {"a": None if isinstance(a, str) else ANY_NUMBER}, options
    )
    query = SampleQuery(
        kind="signed ranks", values=(name,), label=Labels.SIGNED_RANKS.format(name=name), center=at
    )
    release = request.release(query)
    n: float = release.nobs
    T = float(release.sums[0, -1]) * n
    noise_sd = float(release.scale[-1]) * n
    pairs_sd = 0.0
    largest = n
    if release.complete is not None:
        n, count_sd = _complete_count(release)
        largest = min(n + count_sd, float(release.nobs))
        pairs_sd = (n + 0.5) * count_sd
    sd = math.sqrt(largest * (largest + 1) * (2 * largest + 1) / 6.0)
    model = RankModel(T, sd, noise_sd, release.noise == "laplace")
    z, pvalue = model.test(alternative)
    pairs = n * (n + 1) / 2.0

    def error(r: Floats) -> Floats:
        sampling = np.sqrt(np.maximum(1.0 - r * r, 0.0) / (n // 2)) * pairs
        return np.array([r * pairs, np.hypot(sampling, r * pairs_sd) if pairs_sd else sampling])

    r = float(np.clip(T / pairs, -1.0, 1.0))
    bse = math.hypot(float(error(np.array([r]))[1, 0]), noise_sd) / pairs
    row = base.EstimateRow("rank-biserial r", r, min(bse, 1.0), *model.interval(level, error, -1.0))
    return base.StatResult(
        title="Wilcoxon Signed-Rank Test",
        release=release,
        rows=(row,),
        confidence_level=level,
        test=base.NullTest(
            statistic=z, pvalue=pvalue, null=f"{name} symmetric about {at:g}", alternative=alternative
        ),
        ranked_notes=(OF_SYMMETRY, TIES_COUNT_HALF),
    )
