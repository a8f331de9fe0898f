r"""The mean of one column, and its t-test, from noisy sums of values and squares.

In units in which values are in [-1, 1] the release is S = sum u + e and Q = sum u^2 + e', noise of sds a, b:

    m = S/n,  s^2 = (Q/n - m^2 + a^2/n^2) n/(n - 1), not below 0,  V = s^2/n + a^2/n^2.

V holds all of the error of m, and is itself known with an error: t has Satterthwaite's degrees of freedom,
2 V^2 over its variance 2 s^4/(n^2 (n - 1)) + (b^2 + 4 m^2 a^2)/n^4. So there is always a p-value: the noise
hides s^2 only where it rules V. Where the noise is Laplace noise, a p-value is the largest one of t's, of
the distribution of a normal number plus a Laplace number, and below n = 1,000 of t's rank in 9,999 simulated
releases of normal values of the same mean and sd; an interval is the widest one. They are functions of the
release: the same release has the same p-value.

**Rows without a value** (`missing="drop"`) add zero to the sums N of ones, S of u and P of 1 - u^2 over
complete rows, whose noise has the sds d, a and b. The score of a mean m is S - m N, with

    R = N - P - S^2/N + (a^2 + m^2 d^2)/N,  V(m) = R N/(N - 1) + a^2 + m^2 d^2,

R not below 0 and at the estimate S/N. The interval holds every m with (S - m N)^2 <= t^2 V(m), and is that of
the bounds where the noise hides N. The noise of R has the variance (1 + m^2)^2 d^2 + 4 m^2 a^2 + b^2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from scipy import stats as distributions
from scipy.special import log_ndtr, ndtr

from privinf.accounting import Ledger
from privinf.accounting.purposes import charged_for
from privinf.error_boundary import error_boundaries, error_boundary, refuses
from privinf.errors import ChangedTargetWarning, HeavyTailWarning
from privinf.inference.counts import noise_half
from privinf.inference.noisy_variance import NoisyVariance, StandardizedMean, is_hidden
from privinf.inference.quantiles import MeanClip
from privinf.mechanisms.samples import SampleQuery, SampleSums
from privinf.results.notes import Note
from privinf.schema import Schema
from privinf.stats import base
from privinf.stats.comparisons import GroupsResult, group_means
from privinf.stats.groups import LARGEST_QUANTILE, quadratic_set
from privinf.stats.quantiles import clipped_sums
from privinf.stats.values_at_bounds import Cautions, sample_at_bounds
from privinf.typing import (
    Alternative,
    Calibration,
    ClipRule,
    ColumnLike,
    CountTarget,
    Floats,
    Label,
    Missing,
    NoiseChoice,
    Pair,
    RngLike,
    SourceName,
    Table,
)
from privinf.validation import check_choice, check_number
from privinf.wire import Labels

CLIPPED_MEAN = "Values are clipped to the public bounds [{:g}, {:g}]; the mean is that of the clipped values."
SIMULATED_BELOW = 1000  # rows below which p-values under Laplace noise are also simulated
DRAWS = 9999  # simulated releases
SEED = 16  # of these releases: the same release has the same p-value
UNSEEN = (
    "of {1} values, clipping may have changed {0} of clipping; the interval extrapolates the tails. The "
    "interval does not cover a few extreme values; if there are any, clipping them could move the mean {2}. "
    "With tighter bounds, the interval relies less on this extrapolation"
)
POPMEAN_BEYOND = (
    "popmean is outside the bounds to which values are clipped, so the test rejects it for any "
    "data; declare bounds that contain every plausible mean"
)
DF_OF_MEAN = (
    "Df is the number of degrees of freedom of the standard error; the noise is part of it, so it is not the "
    "number of records less one."
)
TEST_OF_MEAN = "ttest(popmean) of the result tests that the mean has a given value, at no further cost"
HIDDEN_VARIANCE = (
    "The variance cannot be distinguished from the noise, so the standard error is almost "
    "entirely due to noise."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanModel:
    """Mean, standard deviation and error from released sums, units of u; arrays of one shape.

    `noise` holds the sds of the noise of S and of Q; `laplace` is whether it is Laplace noise.
    """

    mean: Floats
    sd: Floats
    se: Floats
    df: Floats
    n: int
    noise: tuple[float, float]
    laplace: bool = False
    raw_variance: Floats
    variance_noise: Floats

    @classmethod
    def from_sums(
        cls, S: Floats, Q: Floats, n: int, noise: tuple[float, float], *, laplace: bool = False
    ) -> MeanModel:
        """Return the distribution of released sums, whose noise has these sds."""
        a, b = noise
        m = S / n
        raw = (Q / n - m**2 + (a / n) ** 2) * (n / (n - 1.0))
        s2 = np.maximum(raw, 0.0)
        V = s2 / n + (a / n) ** 2
        spread = 2.0 * s2**2 / (n**2 * (n - 1.0)) + (b**2 + 4.0 * m**2 * a**2) / float(n) ** 4
        with np.errstate(divide="ignore", invalid="ignore"):
            df = np.where(spread > 0.0, 2.0 * V**2 / spread, n - 1.0)
        return cls(
            mean=m,
            sd=np.sqrt(s2),
            se=np.sqrt(V),
            df=np.minimum(df, 1e15),
            n=n,
            noise=noise,
            laplace=laplace and a > 0.0,
            raw_variance=np.asarray(raw),
            variance_noise=np.asarray(np.sqrt(b**2 + 4.0 * m**2 * a**2) / (n - 1.0)),
        )

    @classmethod
    def released(cls, release: SampleSums) -> MeanModel:
        """Return the distribution of one release."""
        (S, Q), (a, b) = release.sums[0], release.scale
        laplace = release.noise == "laplace"
        return cls.from_sums(
            np.asarray(S), np.asarray(Q), release.nobs, (float(a), float(b)), laplace=laplace
        )

    def variance(self) -> NoisyVariance:
        """Return the variance, of one entry, before it is made nonnegative, and its noise."""
        return NoisyVariance(estimate=float(self.raw_variance), noise=float(self.variance_noise))

    def quantile(self, level: float) -> float:
        """Return the quantile of |m - mean| over its standard error."""
        return float(np.max(self._half(level) / np.maximum(self.se, 1e-300)))

    def noise_covariance(self) -> float:
        """Return the covariance of the noise of the mean and of the variance."""
        return float(-2.0 * self.mean * (self.noise[0] / self.n) ** 2)

    def _half(self, level: float) -> Floats:
        """Return the half-length of an interval."""
        half = distributions.t.isf((1.0 - level) / 2.0, self.df) * self.se
        return np.maximum(half, self._laplace_half(1.0 - level)) if self.laplace else np.asarray(half)

    def interval(self, level: float) -> tuple[Floats, Floats]:
        """Return the ends, inside [-1, 1]."""
        half = self._half(level)
        return np.clip(self.mean - half, -1.0, 1.0), np.clip(self.mean + half, -1.0, 1.0)

    @property
    def table_se(self) -> float:
        """Standard error of this table's mean: the noise alone."""
        return self.noise[0] / self.n

    def table_interval(self, level: float) -> tuple[Floats, Floats]:
        """Return the ends of the mean of this table, which the noise alone moves, inside [-1, 1]."""
        half = noise_half(np.asarray(self.noise[0] / self.n), level, 1 if self.laplace else None)
        return np.clip(self.mean - half, -1.0, 1.0), np.clip(self.mean + half, -1.0, 1.0)

    def test(self, null: float, alternative: Alternative) -> tuple[Floats, Floats]:
        """Return t and its p-value."""
        with np.errstate(divide="ignore", invalid="ignore"):
            t = (self.mean - null) / self.se
        two_sided = 2.0 * distributions.t.sf(np.abs(t), self.df)
        if self.laplace:
            two_sided = np.maximum(two_sided, self._laplace_pvalue(t, null))
        if alternative == "two-sided":
            return t, np.asarray(two_sided)
        agrees = t > 0.0 if alternative == "greater" else t < 0.0
        return t, np.where(agrees, two_sided / 2.0, 1.0 - two_sided / 2.0)

    def least_pvalue(self, alternative: Alternative) -> float:
        """Return the smallest p-value that simulated releases can give; 0 where none are simulated."""
        if not self.laplace or self.n >= SIMULATED_BELOW:
            return 0.0
        return 1.0 / (DRAWS + 1.0) / (1.0 if alternative == "two-sided" else 2.0)

    def _laplace_pvalue(self, t: Floats, null: float) -> Floats:
        pvalue = 2.0 * laplace_tail(np.abs(t) * self.se, *self._parts())
        if self.n >= SIMULATED_BELOW:
            return pvalue
        larger_draws = np.count_nonzero(self._simulated(null) >= np.abs(t))
        return np.maximum(pvalue, (1.0 + larger_draws) / (DRAWS + 1.0))

    def _laplace_half(self, alpha: float) -> Floats:
        half_length = laplace_quantile(alpha / 2.0, *self._parts())
        if self.n >= SIMULATED_BELOW:
            return half_length
        drawn = np.quantile(self._simulated(float(self.mean)), 1.0 - alpha, method="higher")
        return np.maximum(half_length, drawn * self.se)

    def _parts(self) -> tuple[Floats, float]:
        """Return the sd of sampling, and the scale of Laplace noise, in the mean."""
        return self.sd / math.sqrt(self.n), self.noise[0] / (math.sqrt(2.0) * self.n)

    def _simulated(self, mean: float) -> Floats:
        """Return |t| of simulated releases of normal values of this mean and this distribution's sd."""
        n = self.n
        (normal, chi2, first, second) = _standard_draws(self.n)
        at = mean + float(self.sd) / math.sqrt(n) * normal
        squares = float(self.sd) ** 2 * chi2 + n * at**2
        a, b = (sd / math.sqrt(2.0) for sd in self.noise)
        simulated = MeanModel.from_sums(n * at + a * first, squares + b * second, n, self.noise)
        return np.abs((simulated.mean - mean) / simulated.se)


@lru_cache(maxsize=4)
def _standard_draws(n: int) -> tuple[Floats, Floats, Floats, Floats]:
    """Return the components of simulated releases of n records: normal, chi-square and Laplace draws."""
    rng = np.random.default_rng(SEED)
    draws = (
        rng.standard_normal(DRAWS),
        rng.chisquare(n - 1, DRAWS),
        rng.laplace(size=DRAWS),
        rng.laplace(size=DRAWS),
    )
    for numbers in draws:
        numbers.setflags(write=False)
    return draws


def laplace_tail(x: Floats, sd: Floats, b: float) -> Floats:
    """Return P(X > x), x >= 0, of a normal number of this sd plus a Laplace number of scale b."""
    sd = np.maximum(sd, 1e-9 * b)
    r = sd / b
    z = x / sd
    low = np.exp(r * r / 2.0 - x / b + log_ndtr(z - r))
    high = np.exp(r * r / 2.0 + x / b + log_ndtr(-z - r))
    return np.asarray(ndtr(-z) + 0.5 * (low - high))


def laplace_quantile(tail: float, sd: Floats, b: float) -> Floats:
    """Return the x at which `laplace_tail` is `tail`, by bisection."""
    low = np.zeros(np.shape(sd))
    high = 2.0 * (distributions.norm.isf(tail / 2.0) * np.asarray(sd) + b * math.log(1.0 / tail))
    for _ in range(60):
        middle = (low + high) / 2.0
        above = laplace_tail(middle, sd, b) > tail
        low = np.where(above, middle, low)
        high = np.where(above, high, middle)
    return high


@dataclass(frozen=True, slots=True, kw_only=True)
class CompleteMeanModel:
    """Mean of complete rows, whose number N is released with noise: scores S - m N, units of u.

    `R` is the sum of squares about the mean, `noise` holds the sds of the noise of N and of S.
    """

    N: float
    S: float
    R: float
    df: float
    noise: tuple[float, float]
    raw_variance: float
    variance_noise: float

    def variance(self) -> NoisyVariance:
        """Return the variance before it is made nonnegative, and its noise."""
        return NoisyVariance(estimate=self.raw_variance, noise=self.variance_noise)

    @classmethod
    def from_sums(cls, sums: Floats, n: int, noise: tuple[float, float, float]) -> CompleteMeanModel:
        """Return the distribution of released sums N, S and P of n rows, whose noise has these sds."""
        N, S, P = map(float, sums)
        N = min(N, float(n))
        rows = max(N, 2.0)
        d, a, b = noise
        m = min(max(S / rows, -1.0), 1.0)
        squares = N - P - S**2 / rows + (a**2 + m**2 * d**2) / rows
        R = max(squares, 0.0) * rows / (rows - 1.0)
        noise_variance = (1.0 + m**2) ** 2 * d**2 + 4.0 * m**2 * a**2 + b**2
        scatter = 2.0 * R**2 / (rows - 1.0) + noise_variance
        df = 2.0 * (R + a**2 + m**2 * d**2) ** 2 / scatter if scatter > 0.0 else rows - 1.0
        return cls(
            N=N,
            S=S,
            R=R,
            df=min(df, 1e15),
            noise=(d, a),
            raw_variance=squares / (rows - 1.0),
            variance_noise=math.sqrt(noise_variance) / (rows - 1.0),
        )

    @property
    def mean(self) -> float:
        """The estimate, inside [-1, 1]."""
        return min(max(self.S / max(self.N, 2.0), -1.0), 1.0)

    @property
    def sd(self) -> float:
        """Standard deviation of the values; 0 where the noise hides it."""
        return math.sqrt(self.R / max(self.N, 2.0))

    @property
    def se(self) -> float:
        """Standard error of the mean, at most that of any value between the bounds."""
        return min(math.sqrt(self._variance(self.mean)) / max(self.N, 2.0), 1.0)

    def _variance(self, m: float) -> float:
        d, a = self.noise
        return self.R + a**2 + m**2 * d**2

    def quantile(self, level: float) -> float:
        """Return the quantile of |S - m N| over its sd."""
        return min(float(distributions.t.isf((1.0 - level) / 2.0, self.df)), LARGEST_QUANTILE)

    def noise_covariance(self) -> float:
        """Return the covariance of the noise of the mean and of the variance."""
        (d, a), m = self.noise, self.mean
        of_count = m * (1.0 + m**2 - max(self.raw_variance, 0.0)) * d**2
        return -(2.0 * m * a**2 + of_count) / max(self.N, 2.0) ** 2

    @property
    def table_se(self) -> float:
        """Standard error of this table's mean: the noise alone."""
        d, a = self.noise
        return min(math.hypot(a, self.mean * d) / max(self.N, 2.0), 1.0)

    def interval(self, level: float) -> tuple[float, float]:
        """Return the ends, inside [-1, 1]."""
        return self._set(self.quantile(level), self.R)

    def table_interval(self, level: float) -> tuple[float, float]:
        """Return the ends for the mean of this table's complete rows, inside [-1, 1]."""
        return self._set(float(distributions.norm.isf((1.0 - level) / 2.0)), 0.0)

    def _set(self, t: float, R: float) -> tuple[float, float]:
        d, a = self.noise
        if t * d >= self.N:
            return -1.0, 1.0
        low, high = quadratic_set(
            np.asarray(self.N**2 - (t * d) ** 2),
            np.asarray(-2.0 * self.S * self.N),
            np.asarray(self.S**2 - t**2 * (R + a**2)),
            1.0,
        )
        return float(low), float(high)

    def least_pvalue(self, alternative: Alternative) -> float:
        """Return 0: no releases are simulated."""
        return 0.0

    def test(self, null: float, alternative: Alternative) -> tuple[float, float]:
        """Return t and its p-value."""
        sd = math.sqrt(self._variance(null))
        score = self.S - null * self.N
        t = score / sd if sd > 0.0 else math.copysign(math.inf, score) if score else math.nan
        two_sided = 2.0 * float(distributions.t.sf(abs(t), self.df))
        if alternative == "two-sided":
            return t, two_sided
        agrees = t > 0.0 if alternative == "greater" else t < 0.0
        return t, two_sided / 2.0 if agrees else 1.0 - two_sided / 2.0


def released_model(release: SampleSums) -> MeanModel | CompleteMeanModel:
    """Return the distribution of one release, of all rows or of complete ones."""
    if release.complete is None:
        return MeanModel.released(release)
    d, a, b = map(float, release.scale)
    return CompleteMeanModel.from_sums(release.sums[0], release.nobs, (d, a, b))


@error_boundaries
@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class MeanResult(base.StatResult):
    """Mean of a column with intervals and tests, from one noisy release.

    The class also has all attributes of `StatResult`.

    Attributes
    ----------
    clip : clip, optional
        Clipping thresholds of the values, if they were computed from noisy counts; otherwise None.
    target : {"population", "table"}
        Target of the interval: the mean of the population, or of this table.

    Notes
    -----
    **Privacy.** Costs nothing: it uses only released numbers.
    """

    clip: MeanClip | None = None
    target: CountTarget = "population"

    @property
    def _tests(self) -> str:
        return TEST_OF_MEAN

    @property
    def sd(self) -> float:
        """Standard deviation of the values, corrected for the noise; nan if the noise hides it."""
        return deviation(self.release, self.confidence_level)[0]

    def confidence_interval(self, confidence_level: float = 0.95) -> base.ConfidenceInterval:
        """Return the interval of the mean, in the units of the data.

        The interval is one-sided if the test of the result is one-sided.

        Parameters
        ----------
        confidence_level : float
            Confidence level of the interval, between 0 and 1.

        Returns
        -------
        (low, high)
            A named tuple.
        """
        level = base.check_level(confidence_level)
        model = released_model(self.release)
        (middle, half) = _units(self.release)
        up, down = (0.0, 0.0) if self.clip is None else self.clip.share(self.nobs)

        def two_sided(at: float) -> base.ConfidenceInterval:
            low, high = model.interval(at) if self.target == "population" else model.table_interval(at)
            return base.ConfidenceInterval(
                float(middle + half * low) - down, float(middle + half * high) + up
            )

        ends = base.ConfidenceInterval(middle - half - down, middle + half + up)
        return base.one_sided(two_sided, level, self.alternative, ends)

    def ttest(
        self, popmean: float = 0.0, *, alternative: Alternative = "two-sided", confidence_level: float = 0.95
    ) -> MeanResult:
        """Test that the mean is `popmean` by a t-test, from the same release.

        If the clipping thresholds were computed from noisy counts, clipping may bias the mean. The p-value is
        then the largest p-value over all possible values of the bias.

        Parameters
        ----------
        popmean : float
            Mean under the null hypothesis, in the units of the data.
        alternative : {"two-sided", "less", "greater"}
            Alternative hypothesis: the mean differs from `popmean`, or is less or greater than `popmean`.
        confidence_level : float
            Confidence level of the interval, between 0 and 1.

        Returns
        -------
        MeanResult
            Result of the test.
        """
        return _tested(self, popmean, alternative, confidence_level)


@error_boundary
@refuses(base.COLUMN_REFUSALS)
def mean(
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
    clip: ClipRule = "bounds",
    target: CountTarget = "population",
    simultaneous: bool = False,
    confidence_level: float = 0.95,
    missing: Missing = "raise",
    noise: NoiseChoice = "auto",
    calibration: Calibration | None = None,
    source: SourceName | None = None,
    ledger: Ledger | None = None,
) -> MeanResult | GroupsResult:
    """Return the mean of a column, or of its groups, with intervals that account for the noise.

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
        Group of each record, the name of the column of groups, or the names of several columns. The result
        then has one mean per group.
    bounds : (low, high), optional
        Public bounds of the values; values outside the bounds are clipped. For a column of `data`, the schema
        declares the bounds.
    levels : sequence, optional
        Public list of all groups, required if `by` is an array.
    clip : {"bounds", "auto"}
        Clipping of the values. With "bounds" (default) values are clipped at the public bounds. With "auto",
        which is useful if the bounds are too wide, the clipping thresholds are computed from noisy counts.
        If values are very skewed, as costs are, intervals can be wider than with "bounds".
        The intervals with "auto" are for the mean of the original values: they include the largest effect
        that clipping may have if the detected tail continues as a power law. With `by`, any group may have
        the entire tail, so the intervals of small groups are wide. The intervals do not allow for undetected
        rows: rows far beyond the thresholds that are too few to be detected. The attribute `clip` of the
        result states how many undetected rows there may be.
    target : {"population", "table"}
        Target of the estimate. With "population" (default) the target is the mean of the population from
        which the records are a sample. With "table" the target is the mean of this table, and the intervals
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
    MeanResult or GroupsResult
        Result with ``estimate``, ``bse``, ``confidence_interval()``, ``sd``, ``ttest(popmean)`` and
        ``privacy``. If `by` is passed, ``table`` has the means of the groups, and ``pairwise()`` and
        ``contrast(...)`` compare them from the same release.

    Warns
    -----
    HeavyTailWarning
        Issued with ``clip="auto"`` under two conditions. First, there may be rows beyond the clipping
        thresholds that are too few to be detected. Second, if these undetected rows had values at the public
        bounds, they could change the mean by more than half the length of the interval. With `by`, the
        warning is about the group whose mean they could change most.

    Notes
    -----
    **Privacy.** Neighboring tables differ in one record (replace-one), and the number of records is public.
    Reads every row. Let u be a clipped value, in units in which the clipping thresholds are -1 and 1. The
    sums of u and of u^2 are released together, at the cost of the sum of u alone. If `by` is passed, the
    counts, sums and sums of squares of all groups are released together, at the same cost.

    Examples
    --------
    >>> import numpy as np, privinf as pi
    >>> x = np.random.default_rng(0).normal(5.0, 1.0, 5000)
    >>> r = pi.stats.mean(x, bounds=(0, 10), epsilon=1.0, delta=1e-6, rng=0)
    >>> low, high = r.confidence_interval()
    >>> bool(low < 5.0 < high)
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
    if by is not None:
        request, value, groups = base.request_by(a, by, bounds, levels, options)
        label = Labels.BY.format(values=value, groups=", ".join(groups))
        query = SampleQuery(kind="groups", values=(value,), by=groups, label=label)
        with charged_for(Labels.MEAN.format(name=label)):
            return group_means(request, query, clip, intervals)
    base.refuse_group_options(levels, simultaneous)
    return _mean(a, bounds, clip, confidence_level, options, target)


def _mean(
    a: ColumnLike | str,
    bounds: Pair | None,
    clip: ClipRule,
    confidence_level: float,
    options: base.SampleOptions,
    target: CountTarget = "population",
) -> MeanResult:
    """Return the mean of a column, by its own clip or by its bounds."""
    level = base.check_level(confidence_level)
    request, (name,) = base.request_columns({"a": a}, {"a": base.public_pair(bounds)}, options)
    if check_choice(clip, ClipRule, "clip") == "auto":
        release, chosen = clipped_sums(request, name, level)
        estimate = described(release, chosen, level=level, target=target)
        low, high = estimate.confidence_interval(level)
        if chosen.hides(estimate.nobs, 0.5 * (high - low)):
            unseen = UNSEEN.format(chosen.changed(), estimate.nobs, chosen.worst_shift(estimate.nobs))
            return replace(estimate, cautions=base.warn_of(((HeavyTailWarning, unseen),)))
        return estimate
    release = request.release(
        SampleQuery(kind="one sample", values=(name,), label=Labels.MEAN.format(name=name))
    )
    cautions, _ = sample_at_bounds(release)
    return replace(described(release, level=level, target=target), cautions=base.warn_of(cautions))


@error_boundary
def ttest_1samp(
    a: ColumnLike | str,
    popmean: float = 0.0,
    data: Table = None,
    *,
    schema: Schema | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    mu: float | None = None,
    rho: float | None = None,
    rng: RngLike = None,
    bounds: Pair | None = None,
    clip: ClipRule = "bounds",
    alternative: Alternative = "two-sided",
    confidence_level: float = 0.95,
    missing: Missing = "raise",
    noise: NoiseChoice = "auto",
    calibration: Calibration | None = None,
    source: SourceName | None = None,
    ledger: Ledger | None = None,
) -> MeanResult:
    """Test that the mean of a column is `popmean`, by a t-test that allows for the noise.

    Parameters
    ----------
    a : array_like, Series or str
        Values of the records, or the name of a column of `data`.
    popmean : float
        Mean under the null hypothesis, in the units of the values.
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
    bounds : (low, high), optional
        Public bounds of the values; values outside the bounds are clipped. For a column of `data`, the schema
        declares the bounds.
    clip : {"bounds", "auto"}
        Clipping of the values. With "bounds" (default) values are clipped at the public bounds. With "auto",
        which is useful if the bounds are too wide, the clipping thresholds are computed from noisy counts.
        The intervals with "auto" do not allow for undetected rows: rows far beyond the thresholds that are
        too few to be detected. The attribute `clip` of the result states how many undetected rows there may
        be.
    alternative : {"two-sided", "less", "greater"}
        Alternative hypothesis: the mean differs from `popmean`, or is less or greater than `popmean`.
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
    MeanResult
        Result with ``statistic``, ``pvalue``, ``df`` and ``confidence_interval()``. Its attribute ``effects``
        contains Cohen's d.

    Notes
    -----
    **Privacy.** There is one release. The method ``ttest(popmean)`` of the result tests any other null
    hypothesis from this release, at no further cost. The release costs `epsilon`, `mu` or `rho`. Rows are
    read only after the ledger has accepted the release.

    Examples
    --------
    >>> import numpy as np, privinf as pi
    >>> x = np.random.default_rng(0).normal(5.0, 1.0, 5000)
    >>> bool(pi.stats.ttest_1samp(x, 4.0, bounds=(0, 10), mu=0.5, rng=0).pvalue < 0.001)
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
    base.check_level(confidence_level, alternative)
    base.refuse_table(popmean, "popmean")
    check_number(popmean, "popmean")
    estimate = _mean(a, bounds, clip, confidence_level, options)
    return estimate.ttest(popmean, alternative=alternative, confidence_level=confidence_level)


def _units(release: SampleSums) -> tuple[float, float]:
    return float(release.middle[0]), float(release.half[0])


def _notes(release: SampleSums, model: MeanModel | CompleteMeanModel) -> tuple[str | Note, ...]:
    middle, half = _units(release)
    clipped = Note(CLIPPED_MEAN.format(middle - half, middle + half), "header")
    hidden = (HIDDEN_VARIANCE,) if model.sd == 0.0 and release.scale[0] > 0.0 else ()
    return (clipped, *hidden, *sample_at_bounds(release)[1])


def deviation(release: SampleSums, level: float) -> tuple[float, float, float]:
    """Return a standard deviation and its interval, in the units of the data; nan where noise hides it.

    The noise of the variance is known. Its sampling variance is that of (u - m)^2 over n, at most ``(1 +
    |m|)^2 S / n`` for values in [-1, 1] of mean m and variance S. The interval holds the S that both allow.
    """
    _, half = _units(release)
    variance, fourth = _variance(released_model(release), release.nobs)
    hidden = is_hidden(variance.estimate, variance.noise)
    z = float(distributions.norm.isf((1.0 - level) / 2.0))
    low, high = variance.interval(z, fourth)
    sd = math.nan if hidden else half * math.sqrt(variance.estimate)
    return sd, half * math.sqrt(low), half * min(math.sqrt(high), 1.0)


def _variance(model: MeanModel | CompleteMeanModel, nobs: int) -> tuple[NoisyVariance, float]:
    """Return a variance with its noise, and the factor by which it bounds its own sampling variance."""
    variance = model.variance()
    n = max(float(getattr(model, "N", nobs)), 2.0)
    if variance.noise == 0.0:
        variance = NoisyVariance(estimate=max(variance.estimate, 0.0))
    return variance, (1.0 + min(abs(float(model.mean)), 1.0)) ** 2 / n


def _standardized(release: SampleSums, null: float, level: float) -> tuple[float, base.ConfidenceInterval]:
    """Return Cohen's d, the distance of the mean from `null` in standard deviations, and its interval."""
    model = released_model(release)
    variance, fourth = _variance(model, release.nobs)
    ratio = StandardizedMean(
        mean=float(model.mean) - null,
        sd=float(model.se),
        variance=variance,
        fourth=fourth,
        covariance=model.noise_covariance(),
    )
    return ratio.estimate, base.ConfidenceInterval(*ratio.interval(model.quantile(level)))


def described(
    release: SampleSums,
    clip: MeanClip | None = None,
    *,
    level: float,
    target: CountTarget = "population",
) -> MeanResult:
    """Return the mean of one release and its interval, in the units of the data."""
    model = released_model(release)
    (middle, half) = _units(release)
    mean = MeanResult(
        title="Mean", release=release, rows=(), clip=clip, confidence_level=level, target=target
    )
    row = base.EstimateRow(
        release.query.values[0],
        middle + half * float(np.clip(model.mean, -1.0, 1.0)),
        half * float(model.se if target == "population" else model.table_se),
        *mean.confidence_interval(level),
    )
    notes = _notes(release, model) if clip is None else _clip_notes(clip, mean.nobs)
    return replace(mean, rows=(row,), ranked_notes=(*base.target_notes(target), *notes))


def _clip_notes(clip: MeanClip, n: int) -> tuple[Note, ...]:
    return (
        Note(clip.note(n), "header"),
        Note(clip.caution(n), "table"),
        Note(clip.counts(n), "detail"),
    )


def _tested(mean: MeanResult, popmean: float, alternative: Alternative, level: float) -> MeanResult:
    base.check_level(level, alternative)
    release = mean.release
    clip = mean.clip
    model = released_model(release)
    (middle, half) = _units(release)
    null = (check_number(popmean, "popmean") - middle) / half
    cautions: Cautions = ((ChangedTargetWarning, POPMEAN_BEYOND),) * (clip is None and abs(null) > 1.0)
    t, pvalue = (
        model.test(null, alternative)
        if clip is None
        else _allowed(model, null, alternative, clip.share(mean.nobs), half)
    )
    estimate = described(release, clip, level=level)
    size, size_ends = _standardized(release, null, level)
    name = release.query.values[0]
    result = MeanResult(
        title="One-Sample t-Test",
        release=release,
        rows=estimate.rows,
        confidence_level=level,
        clip=clip,
        ranked_notes=(*estimate.ranked_notes, DF_OF_MEAN),
        test=base.NullTest(
            statistic=float(t),
            pvalue=float(pvalue),
            df=float(model.df),
            least_pvalue=model.least_pvalue(alternative),
            null=f"mean of {name} = {popmean:g}",
            alternative=alternative,
        ),
        cautions=(*mean.cautions, *base.warn_of(cautions)),
        effects={base.COHENS_D: size},
        effect_intervals={base.COHENS_D: size_ends},
    )
    ends = result.confidence_interval(level)
    object.__setattr__(result, "rows", (estimate.rows[0]._replace(low=ends.low, high=ends.high),))
    return result


def _allowed(
    model: MeanModel | CompleteMeanModel,
    null: float,
    alternative: Alternative,
    shifts: tuple[float, float],
    half: float,
) -> tuple[Floats | float, Floats | float]:
    """Return t and its largest p-value over means of clipped values that the null allows for.

    The mean is at most above/n higher than that of clipped values and below/n lower, which are the `shifts`:
    the test rejects the values outside `MeanResult.confidence_interval`.
    """
    above, below = (cut / half for cut in shifts)
    sides = {"greater": model.test(null + below, "greater"), "less": model.test(null - above, "less")}
    if alternative != "two-sided":
        return sides[alternative]
    t, pvalue = min(sides.values(), key=lambda test: float(test[1]))
    two_sided = np.minimum(2.0 * pvalue, 1.0)
    return (t, two_sided) if two_sided < 1.0 else (np.zeros(()), two_sided)
