"""Plans of means, proportions, differences of two groups and counts: widths and power before any row is read.

A plan takes the intervals of `privinf.stats` themselves, at the expected values of a release for guessed
means and spreads, and the noise of the release that a call with the same budget would make.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtr, ndtri

from privinf.accounting.budget import rounded_budget
from privinf.error_boundary import error_boundaries, error_boundary, refuses
from privinf.errors import ArgumentError, NotAvailableError, SensitivityError
from privinf.inference.counts import ShareModel, count_intervals, laplace_share_intervals, noise_half
from privinf.mechanisms.samples import planned_noise
from privinf.stats.groups import MIN_COUNT_SDS, GroupModel, score_interval
from privinf.stats.means import MeanModel, laplace_tail
from privinf.typing import CountTarget, NoiseChoice, Pair, SampleKind, SpendingOptions
from privinf.validation import check_choice, check_count, check_fraction, check_number, check_positive

if TYPE_CHECKING:
    import pandas as pd

LARGEST_SAMPLE = 10**9
MOST_EXACT = 100_000  # people up to which a share has its exact interval, as released; beyond it is the same
MOST_GROUPS = 12  # groups of a planned mean of a group; with more, the width is the same
LARGEST_LEVEL = 500.0  # epsilon, mu or rho up to which `budget_for` looks
SHARES_HAIR = 1e-6  # by which the sum of guessed shares may differ from 1
GROUP_REFUSALS = dict.fromkeys(
    ("by", "groups"),
    "is not an argument of a plan: pass share=, the guessed share of the people who are in the group",
)
MIDDLE = ", the middle of the bounds (pass mean= for another guess)"
MIDDLE_OF_GROUPS = (
    ", the middle of the bounds; if it is not, intervals are wider and the power is lower, so pass mean="
)
ONE_GOAL = "pass either width= (of the interval) or effect= (that the test is to detect)"
LAPLACE_ONLY = (
    ", smaller than Gaussian noise\n(a release that is charged to a ledger, or that drops rows by "
    "missing='drop', has Gaussian noise:\nplan it with noise='gaussian')"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """Expected length of an interval, and both kinds of standard error, in user units."""

    width: float
    sampling_se: float
    noise_se: float
    laplace: bool

    @property
    def se(self) -> float:
        """Standard error, sampling and noise together."""
        return math.hypot(self.sampling_se, self.noise_se)

    def power(self, effect: float, level: float) -> float:
        """Return the probability that the interval excludes a value at this distance from the truth.

        Where the noise is so strong that the interval is cut at public bounds, half its length is the
        quantile of its error.
        """
        half = max(0.5 * self.width, float(ndtri(0.5 * (1.0 + level))) * self.se)
        return min(self._tail(half - effect) + self._tail(half + effect), 1.0)

    def _tail(self, x: float) -> float:
        """Return the probability that the error is above x."""
        if not self.laplace:
            return float(ndtr(-x / self.se)) if self.se > 0.0 else float(x < 0.0)
        tail = float(laplace_tail(np.asarray(abs(x)), np.asarray(self.sampling_se), self.noise_se / 2.0**0.5))
        return tail if x >= 0.0 else 1.0 - tail


class SampleModel(ABC):
    """The statistic of the planned release, and the interval at the expected release of n records."""

    kind: SampleKind

    @property
    @abstractmethod
    def title(self) -> str:
        """Name of the planned quantity."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Numbers of levels of the factors."""

    @abstractmethod
    def expected(self, n: float, sds: tuple[float, ...], laplace: bool, level: float) -> Expected:
        """Return the expected interval; `sds` are those of the noise of the released sums."""

    @property
    def depends_on_n(self) -> bool:
        """Whether the width depends on the number of people."""
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedMean(SampleModel):
    """A mean of values with this mean and standard deviation, in units in which bounds are -1 and 1."""

    mean: float
    sd: float
    half: float
    title: str = "mean"
    kind: SampleKind = "one sample"
    shape: tuple[int, ...] = ()

    def expected(self, n: float, sds: tuple[float, ...], laplace: bool, level: float) -> Expected:
        """Return the interval of `privinf.stats.mean` at the expected sums."""
        n = max(round(n), 2)
        a, b = sds
        square = self.mean**2 + self.sd**2 * (n - 1.0) / n - (a / n) ** 2
        model = MeanModel.from_sums(
            np.asarray(n * self.mean), np.asarray(n * square), n, (a, b), laplace=laplace
        )
        low, high = model.interval(level)
        return Expected(
            width=self.half * float(high - low),
            sampling_se=self.half * self.sd / math.sqrt(n),
            noise_se=self.half * a / n,
            laplace=laplace,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedGroupMean(SampleModel):
    """The mean of one group, to which `share` of the people belong; units as in `PlannedMean`.

    The other groups have the shares `others`. By default they have equal sizes, and they are as many as have
    the same share, at most `MOST_GROUPS` groups in total.
    """

    mean: float
    sd: float
    half: float
    share: float
    others: tuple[float, ...] = ()
    kind: SampleKind = "groups"

    @property
    def title(self) -> str:
        """What is planned, with the share that is assumed."""
        return f"mean of a group with a share of {self.share:.4g} of the n people"

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of groups."""
        if self.others:
            return (1 + len(self.others),)
        return (min(max(math.ceil(1.0 / self.share), 2), MOST_GROUPS),)

    def expected(self, n: float, sds: tuple[float, ...], laplace: bool, level: float) -> Expected:
        """Return the interval of `privinf.stats.mean` with ``by=`` at the expected sums."""
        n = max(round(n), 2)
        a, _, b = sds
        (k,) = self.shape
        others = self.others or ((1.0 - self.share) / (k - 1),) * (k - 1)
        N = n * np.array([self.share, *others])
        bias = np.where(MIN_COUNT_SDS * a < N, a**2 * (1.0 + self.mean**2) / N, 0.0)
        P = N * (1.0 - self.mean**2 - self.sd**2) + bias
        model = GroupModel.from_sums(N, N * self.mean, P, n, (a, b), laplace=laplace)
        low, high = model.mean_sets(level)
        people = float(N[0])
        noise = a * math.sqrt(1.0 + self.mean**2 * (1.0 - 1.0 / k)) / people
        return Expected(
            width=self.half * float(high[0] - low[0]),
            sampling_se=self.half * self.sd / math.sqrt(people),
            noise_se=self.half * noise,
            laplace=False,  # noise of a sum and of a count, which is nearly normal
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedDifference(SampleModel):
    """A difference of the means of two groups, `share` of the people in the second one."""

    mean: float
    sd: float
    half: float
    share: float
    title: str = "difference of the means of two groups"
    kind: SampleKind = "groups"
    shape: tuple[int, ...] = (2,)

    def expected(self, n: float, sds: tuple[float, ...], laplace: bool, level: float) -> Expected:
        """Return the interval of `privinf.stats.ttest_ind` at the expected sums."""
        n = max(round(n), 4)
        a, _, b = sds
        N = n * np.array([1.0 - self.share, self.share])
        bias = np.where(a < N, a**2 * (1.0 + self.mean**2) / N, 0.0)
        P = N * (1.0 - self.mean**2 - self.sd**2) + bias
        model = GroupModel.from_sums(N, N * self.mean, P, n, (a, b), laplace=laplace)
        (low, high), se = model.first_difference(level)
        sampling = self.sd * math.sqrt(float((1.0 / N).sum()))
        return Expected(
            width=self.half * (high - low),
            sampling_se=self.half * sampling,
            noise_se=self.half * math.sqrt(max(se**2 - sampling**2, 0.0)),
            laplace=False,  # a sum of several Laplace numbers, which is nearly normal
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedShare(SampleModel):
    """A share of the population."""

    share: float
    title: str = "proportion"
    kind: SampleKind = "share"
    shape: tuple[int, ...] = ()

    def expected(self, n: float, sds: tuple[float, ...], laplace: bool, level: float) -> Expected:
        """Return the interval of `privinf.stats.proportion_confint` at the expected count."""
        n = max(round(n), 2)
        (sd,) = sds
        model = ShareModel(np.asarray(n * self.share), n, sd, laplace)
        if not laplace:
            low, high = score_interval(model.count, n, sd, level)
        elif n <= MOST_EXACT:
            low, high = map(np.asarray, model.exact_interval(level))
        else:
            low, high = laplace_share_intervals(model.count, n, np.asarray(sd), level, 1)
        return Expected(
            width=float(high) - float(low),
            sampling_se=math.sqrt(self.share * (1.0 - self.share) / n),
            noise_se=sd / n,
            laplace=laplace,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCell(SampleModel):
    """One cell of a table with a share of the records; its count, or its share of the population."""

    cells: int
    share: float
    target: CountTarget
    kind: SampleKind = "cells"
    shape: tuple[int, ...] = ()

    @property
    def title(self) -> str:
        """What is planned, with the share that is assumed."""
        if self.target == "table":
            return f"count of a cell with a share of {self.share:.4g} of the records"
        return f"share of a cell in the population, assumed to be {self.share:.4g}"

    @property
    def depends_on_n(self) -> bool:
        """Whether the width depends on the number of people."""
        return self.target == "population"

    def expected(self, n: float, sds: tuple[float, ...], laplace: bool, level: float) -> Expected:
        """Return the interval of `privinf.stats.counts` at the expected count."""
        n = max(round(n), 2)
        # Gaussian counts are conditioned on their public total.
        sd = sds[0] if laplace else sds[0] * math.sqrt(1.0 - 1.0 / self.cells)
        x = np.asarray([n * self.share])
        if self.target == "table":
            low, high = count_intervals(x, noise_half(np.array([sd]), level, 1 if laplace else None), n)
            return Expected(width=float(high[0] - low[0]), sampling_se=0.0, noise_se=sd, laplace=laplace)
        if laplace:
            low, high = laplace_share_intervals(x, n, np.array([sd]), level, 1)
        else:
            low, high = score_interval(x, n, np.array([sd]), level)
        return Expected(
            width=float(high[0] - low[0]),
            sampling_se=math.sqrt(self.share * (1.0 - self.share) / n),
            noise_se=sd / n,
            laplace=laplace,
        )


@error_boundaries
@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class SamplePlan:
    """Widths and power of a mean, a proportion, a difference or a count, by the number of people.

    Made by `plan_mean`, `plan_difference`, `plan_proportion` and `plan_counts`.

    Attributes
    ----------
    model : model of a sample
        Guesses about the quantity that is planned.
    spending : mapping of str to float
        Budget: epsilon and delta, mu, or rho.
    noise : {"auto", "gaussian", "laplace"}
        Distribution of the noise, as in the functions of `pi.stats`.
    confidence_level : float
        Level of the intervals; tests have the level ``1 - confidence_level``.
    assumptions : tuple of str
        Guesses, and what the plan assumes where nothing was guessed.

    Notes
    -----
    **Privacy.** No rows are read, and nothing is charged.
    """

    model: SampleModel
    spending: Mapping[str, Any]
    noise: NoiseChoice
    confidence_level: float
    assumptions: tuple[str, ...] = ()

    def width(self, n: int) -> float:
        """Return the expected width of the interval.

        Parameters
        ----------
        n : int
            Number of people.

        Returns
        -------
        float
            Upper end minus lower end, in the units of the quantity.
        """
        return self._expected(_people(n)).width

    def se(self, n: int) -> float:
        """Return the expected standard error, sampling and noise together.

        Parameters
        ----------
        n : int
            Number of people.

        Returns
        -------
        float
            In the units of the quantity.
        """
        return self._expected(_people(n)).se

    def se_without_noise(self, n: int) -> float:
        """Return the expected standard error of the same people without privacy noise.

        Parameters
        ----------
        n : int
            Number of people.

        Returns
        -------
        float
            In the units of the quantity.
        """
        return self._expected(_people(n)).sampling_se

    def power(self, n: int, effect: float) -> float:
        """Return the probability that the interval excludes a value at a distance from the truth.

        Parameters
        ----------
        n : int
            Number of people.
        effect : float
            Distance of the true value from the value under the null hypothesis.

        Returns
        -------
        float
            Power of the two-sided test.
        """
        return self._expected(_people(n)).power(abs(check_number(effect, "effect")), self.confidence_level)

    def n_for(self, width: float | None = None, *, effect: float | None = None, power: float = 0.8) -> int:
        """Return the number of people that a width or a power needs.

        Parameters
        ----------
        width : float, optional
            Target width of the interval. Pass either `width` or `effect`.
        effect : float, optional
            Distance of the true value from the null value, which the test is to detect.
        power : float
            Probability with which the test detects `effect`.

        Returns
        -------
        int
            The least number of people, to 0.5%.

        Raises
        ------
        NotAvailableError
            No number of people up to 1,000,000,000 is enough, or the width does not depend on it.
        """
        reached = self._goal(width, effect, power)
        if not self.model.depends_on_n:
            raise NotAvailableError(
                "the width of a count of this table does not depend on the number of people: use "
                "budget_for(n, width=...), or plan shares of the population with target='population'"
            )
        if not reached(self._expected(float(LARGEST_SAMPLE))):
            raise NotAvailableError(
                f"not even {LARGEST_SAMPLE:,} people are enough: use a larger budget, width= or effect="
            )
        return math.ceil(_least(lambda n: reached(self._expected(n)), 2.0, float(LARGEST_SAMPLE)))

    def budget_for(
        self, n: int, width: float | None = None, *, effect: float | None = None, power: float = 0.8
    ) -> float:
        """Return the budget that a width or a power needs.

        Parameters
        ----------
        n : int
            Number of people.
        width : float, optional
            Target width of the interval. Pass either `width` or `effect`.
        effect : float, optional
            Distance of the true value from the null value, which the test is to detect.
        power : float
            Probability with which the test detects `effect`.

        Returns
        -------
        float
            Epsilon, or mu or rho if the plan has mu or rho; to 0.5%, rounded up to four digits.

        Raises
        ------
        NotAvailableError
            Even without noise this number of people is not enough.
        """
        people = _people(n)
        reached = self._goal(width, effect, power)

        def enough(level: float) -> bool:
            plan = replace(self, spending={**self.spending, self._level: level})
            try:
                return reached(plan._expected(people))
            except SensitivityError:  # no noise is as large as so small a budget needs
                return False

        if not enough(LARGEST_LEVEL):
            raise NotAvailableError(
                f"no {self._level} up to {LARGEST_LEVEL:g} is enough for {n:,} people, because of the "
                "sampling error alone: n_for() returns the number of people"
            )
        return rounded_budget(_least(enough, 1e-6, LARGEST_LEVEL))

    def summary(self) -> str:
        """Return the plan as text: expected widths for several numbers of people, and the guesses.

        Returns
        -------
        str
            A table with one line per number of people.
        """
        lines = [
            f"Planned {self.model.title}: {self.described}",
            "",
            f"{'n':>10}  {'width':>10}  {'se':>10}  {'se without noise':>16}",
        ]
        for n in (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000):
            expected = self._expected(float(n))
            lines.append(
                f"{n:>10,}  {expected.width:>10.4g}  {expected.se:>10.4g}  {expected.sampling_se:>16.4g}"
            )
        return "\n".join(
            [
                *lines,
                *assumption_lines(self.assumptions),
                "",
                "n_for(width=...), n_for(effect=...), budget_for(n, ...) and power(n, ...)",
            ]
        )

    def __repr__(self) -> str:
        return self.summary()

    @property
    def described(self) -> str:
        """Budget, level of the intervals and distribution of the noise, as text."""
        sds, laplace = self._noise()
        budget = ", ".join(f"{name} {value:g}" for name, value in self.spending.items())
        return (
            f"{budget}; {100 * self.confidence_level:g}% intervals; "
            f"{'Laplace' if laplace else 'Gaussian'} noise" + ("" if any(sds) else " of size 0")
        ) + (LAPLACE_ONLY if laplace and self.noise == "auto" and self.spending.get("delta") else "")

    @property
    def _level(self) -> str:
        return next(name for name in ("epsilon", "mu", "rho") if name in self.spending)

    def _noise(self) -> tuple[tuple[float, ...], bool]:
        words: Any = dict(self.spending)
        return planned_noise(self.model.kind, self.model.shape, words, self.noise)

    def _expected(self, n: float) -> Expected:
        return self.model.expected(n, *self._noise(), self.confidence_level)

    def _goal(self, width: float | None, effect: float | None, power: float) -> Callable[[Expected], bool]:
        if (width is None) == (effect is None):
            raise ArgumentError(ONE_GOAL)
        if width is not None:
            widest = check_positive(width, "width")
            return lambda expected: expected.width <= widest
        size = abs(check_number(effect, "effect"))
        aim = check_fraction(power, "power")
        if size == 0.0 or aim <= 1.0 - self.confidence_level:
            raise ArgumentError("effect= must not be 0, and power= must be above the level of the test")
        return lambda expected: expected.power(size, self.confidence_level) >= aim


@error_boundaries
@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class GroupPlans:
    """Widths and power of the means of several groups of one release, by the number of people.

    Made by `plan_mean` with several shares.

    Attributes
    ----------
    plans : mapping of group to SamplePlan
        The plan of each group.
    shares : sequence of float
        Guessed shares of the groups.

    Notes
    -----
    **Privacy.** No rows are read, and nothing is charged.
    """

    plans: Mapping[Any, SamplePlan]
    shares: Sequence[float]

    def width(self, n: int) -> pd.Series[float]:
        """Return the expected width of the interval of each group's mean.

        Parameters
        ----------
        n : int
            Number of people in the table.

        Returns
        -------
        Series
            Upper end minus lower end, by group.
        """
        return self._by_group(lambda plan: plan.width(n), "width")

    def se(self, n: int) -> pd.Series[float]:
        """Return the expected standard error of each group's mean, sampling and noise together.

        Parameters
        ----------
        n : int
            Number of people in the table.

        Returns
        -------
        Series
            Standard errors by group.
        """
        return self._by_group(lambda plan: plan.se(n), "se")

    def se_without_noise(self, n: int) -> pd.Series[float]:
        """Return the expected standard error of each group's mean without privacy noise.

        Parameters
        ----------
        n : int
            Number of people in the table.

        Returns
        -------
        Series
            Standard errors by group.
        """
        return self._by_group(lambda plan: plan.se_without_noise(n), "se without noise")

    def power(self, n: int, effect: float) -> pd.Series[float]:
        """Return the power of each group: the probability that its interval excludes a distant value.

        Parameters
        ----------
        n : int
            Number of people in the table.
        effect : float
            Distance of the true mean from the value under the null hypothesis.

        Returns
        -------
        Series
            Power of the two-sided test of each group.
        """
        return self._by_group(lambda plan: plan.power(n, effect), "power")

    def n_for(self, width: float | None = None, *, effect: float | None = None, power: float = 0.8) -> int:
        """Return the number of people with which every group attains a width or a power.

        Parameters
        ----------
        width : float, optional
            Target width of the intervals. Pass either `width` or `effect`.
        effect : float, optional
            Distance of the true mean from the null value, which the test is to detect.
        power : float
            Probability with which the test detects `effect`.

        Returns
        -------
        int
            The least number of people in the table, to 0.5%.

        Raises
        ------
        NotAvailableError
            No number of people up to 1,000,000,000 is enough for some group.
        """
        return max(plan.n_for(width, effect=effect, power=power) for plan in self.plans.values())

    def budget_for(
        self, n: int, width: float | None = None, *, effect: float | None = None, power: float = 0.8
    ) -> float:
        """Return the budget with which every group attains a width or a power.

        Parameters
        ----------
        n : int
            Number of people in the table.
        width : float, optional
            Target width of the intervals. Pass either `width` or `effect`.
        effect : float, optional
            Distance of the true mean from the null value, which the test is to detect.
        power : float
            Probability with which the test detects `effect`.

        Returns
        -------
        float
            Epsilon, or mu or rho if the plan has mu or rho; to 0.5%, rounded up to four digits.

        Raises
        ------
        NotAvailableError
            Even without noise this number of people is not enough for some group.
        """
        return max(plan.budget_for(n, width, effect=effect, power=power) for plan in self.plans.values())

    def summary(self) -> str:
        """Return the plan as text: expected widths of every group for several numbers of people.

        Returns
        -------
        str
            A table with one line per group.
        """
        import pandas as pd

        first = next(iter(self.plans.values()))
        table = pd.DataFrame({f"n = {n:,}": self.width(n) for n in (1_000, 10_000, 100_000)})
        table.insert(0, "share", self.shares)
        return "\n".join(
            [
                f"Planned means of {len(self.plans)} groups: {first.described}",
                "",
                "Width of the interval, by group and number of people",
                table.to_string(float_format="{:.4g}".format),
                *assumption_lines(first.assumptions),
                "",
                "n_for(width=...), n_for(effect=...), budget_for(n, ...) and power(n, ...)",
            ]
        )

    def __repr__(self) -> str:
        return self.summary()

    def _by_group(self, quantity: Callable[[SamplePlan], float], name: str) -> pd.Series[float]:
        import pandas as pd

        return pd.Series({group: quantity(plan) for group, plan in self.plans.items()}, name=name)


def _people(n: int) -> float:
    return float(check_count(n, "n", least=2))


def _least(enough: Callable[[float], bool], low: float, high: float) -> float:
    """Return the least number between two that is enough, to 0.5%."""
    if enough(low):
        return low
    while high > 1.005 * low:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


@error_boundary
@refuses(GROUP_REFUSALS)
def plan_mean(
    *,
    bounds: Pair,
    sd: float,
    mean: float | None = None,
    share: float | Sequence[float] | Mapping[Any, float] | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    mu: float | None = None,
    rho: float | None = None,
    noise: NoiseChoice = "auto",
    confidence_level: float = 0.95,
) -> SamplePlan | GroupPlans:
    """Plan a mean: the width of its interval and the power of its test, by the number of people.

    Parameters
    ----------
    bounds : (low, high)
        Public bounds that the values will have.
    sd : float
        Guess of the standard deviation of the values.
    mean : float, optional
        Guess of their mean; default: the middle of the bounds. With `share`, and with Laplace noise, the
        interval is wider if the mean is farther from the middle.
    share : float, sequence of float, or mapping or Series of group to float, optional
        Guess of the share of the people who are in one group, or the shares of all groups, which add up to 1.
        The plan is then for the mean of this group, or of every group, in a result of `mean` with ``by=``.
        ``sd`` and ``mean`` are those of each group, and n is the number of people in the table, not in a
        group. The other groups of a single share have equal sizes. By default the plan is for the mean of all
        people.
    epsilon : float, optional
        Epsilon of the (epsilon, delta) guarantee of the release. Give exactly one of `epsilon`, `mu` and
        `rho`. ``epsilon=inf`` plans without noise.
    delta : float, optional
        Delta of the guarantee, at most 1/n, such as 1e-6. A finite `epsilon` needs a delta wherever the noise
        is Gaussian. With ``delta=0`` the noise is Laplace noise.
    mu : float, optional
        Budget in Gaussian differential privacy, instead of `epsilon`.
    rho : float, optional
        Budget in zero-concentrated differential privacy (zCDP), instead of `epsilon`.
    noise : {"auto", "gaussian", "laplace"}
        Distribution of the noise. With "auto", the noise is Laplace noise if ``delta=0`` or if it is smaller
        than Gaussian noise, and Gaussian otherwise, as with a budget in `mu` or `rho`. Pass "gaussian" if the
        release will be charged to a ledger, or if it drops rows without a value (``missing="drop"``).
    confidence_level : float
        Level of the intervals, between 0 and 1.

    Returns
    -------
    SamplePlan or GroupPlans
        ``.width(n)``, ``.se(n)``, ``.power(n, effect)``, ``.n_for(...)`` and ``.budget_for(n, ...)``. Of the
        shares of all groups, the first three return a Series by group, and the others return the number or
        the budget with which every group attains the target.

    Raises
    ------
    ArgumentError
        A guess or the budget is out of range.

    Notes
    -----
    **Privacy.** No rows are read, and nothing is charged. Guesses must not come from the rows that are to be
    protected.

    Examples
    --------
    >>> import privinf as pi
    >>> plan = pi.stats.plan_mean(bounds=(0, 60), sd=8, epsilon=1, delta=1e-6)
    >>> round(plan.width(2000), 2), plan.n_for(width=1.0)
    (0.72, 1093)
    >>> group = pi.stats.plan_mean(bounds=(0, 60), sd=8, share=0.1, epsilon=1, delta=1e-6)
    >>> group.width(2000) > plan.width(200)
    True
    >>> shares = {"north": 0.5, "south": 0.3, "west": 0.2}
    >>> groups = pi.stats.plan_mean(bounds=(0, 60), sd=8, share=shares, epsilon=1, delta=1e-6)
    >>> groups.width(2000).idxmax()
    'west'
    """
    center, spread, half = _units(bounds, sd, mean)
    spending = dict(SpendingOptions(epsilon=epsilon, delta=delta, mu=mu, rho=rho).spending())
    if share is None:
        model = PlannedMean(mean=center, sd=spread, half=half)
        assumptions = _values_assumptions(bounds, sd, mean, "the values", MIDDLE)
        return _plan(model, spending, noise, confidence_level, assumptions)
    assumptions = _values_assumptions(bounds, sd, mean, "the values of every group")
    group = PlannedGroupMean(mean=center, sd=spread, half=half, share=0.5)
    if callable(as_dict := getattr(share, "to_dict", None)):  # a Series of pandas
        share = as_dict()
    if isinstance(share, (Sequence, Mapping, np.ndarray)) and not isinstance(share, str):
        shares = _shares(share)
        plans = {
            label: _plan(
                replace(group, share=value, others=tuple(shares[k] for k in shares if k != label)),
                spending,
                noise,
                confidence_level,
                assumptions,
            )
            for label, value in shares.items()
        }
        return GroupPlans(plans=plans, shares=list(shares.values()))
    one_group = replace(group, share=check_fraction(share, "share"))
    assumptions = (*assumptions, f"{one_group.share:.4g} of the people are in the group")
    return _plan(one_group, spending, noise, confidence_level, assumptions)


def _shares(share: Sequence[float] | Mapping[Any, float]) -> dict[Any, float]:
    """Return the shares of all groups by label, or by number from 0; they must add up to 1."""
    named = dict(share) if isinstance(share, Mapping) else dict(enumerate(share))
    shares = {label: check_fraction(value, "share") for label, value in named.items()}
    if len(shares) < 2 or abs(sum(shares.values()) - 1.0) > SHARES_HAIR:
        raise ArgumentError(
            "share= must have the shares of at least two groups, which add up to 1; for the mean of one "
            "group, pass its share as a number"
        )
    return shares


@error_boundary
def plan_difference(
    *,
    bounds: Pair,
    sd: float,
    mean: float | None = None,
    share: float = 0.5,
    epsilon: float | None = None,
    delta: float | None = None,
    mu: float | None = None,
    rho: float | None = None,
    noise: NoiseChoice = "auto",
    confidence_level: float = 0.95,
) -> SamplePlan:
    """Plan a difference of the means of two groups, as `ttest_ind` and `mean` with ``by=`` release it.

    Parameters
    ----------
    bounds : (low, high)
        Public bounds that the values will have.
    sd : float
        Guess of the standard deviation of the values in each group.
    mean : float, optional
        Guess of the mean of all values; default: the middle of the bounds. The interval is wider if the mean
        is farther from the middle.
    share : float
        Guess of the share of people in either one of the two groups.
    epsilon : float, optional
        Epsilon of the (epsilon, delta) guarantee of the release. Give exactly one of `epsilon`, `mu` and
        `rho`. ``epsilon=inf`` plans without noise.
    delta : float, optional
        Delta of the guarantee, at most 1/n, such as 1e-6. A finite `epsilon` needs a delta wherever the noise
        is Gaussian. With ``delta=0`` the noise is Laplace noise.
    mu : float, optional
        Budget in Gaussian differential privacy, instead of `epsilon`.
    rho : float, optional
        Budget in zero-concentrated differential privacy (zCDP), instead of `epsilon`.
    noise : {"auto", "gaussian", "laplace"}
        Distribution of the noise. With "auto", the noise is Laplace noise if ``delta=0`` or if it is smaller
        than Gaussian noise, and Gaussian otherwise, as with a budget in `mu` or `rho`. Pass "gaussian" if the
        release will be charged to a ledger, or if it drops rows without a value (``missing="drop"``).
    confidence_level : float
        Level of the intervals, between 0 and 1.

    Returns
    -------
    SamplePlan
        ``.width(n)``, ``.se(n)``, ``.power(n, effect)``, ``.n_for(...)`` and ``.budget_for(n, ...)``.

    Raises
    ------
    ArgumentError
        A guess or the budget is out of range.

    Notes
    -----
    **Privacy.** No rows are read, and nothing is charged. Guesses must not come from the rows that are to be
    protected.

    Examples
    --------
    >>> import privinf as pi
    >>> plan = pi.stats.plan_difference(bounds=(0, 60), sd=8, epsilon=1, delta=1e-6)
    >>> 0.7 < plan.power(2000, effect=1.2) < 0.9
    True
    """
    center, spread, half = _units(bounds, sd, mean)
    model = PlannedDifference(mean=center, sd=spread, half=half, share=check_fraction(share, "share"))
    spending = SpendingOptions(epsilon=epsilon, delta=delta, mu=mu, rho=rho).spending()
    assumptions = (
        *_values_assumptions(bounds, sd, mean, "the values of each group"),
        f"{model.share:.4g} of the people are in one of the two groups",
    )
    return _plan(model, dict(spending), noise, confidence_level, assumptions)


@error_boundary
def plan_proportion(
    *,
    share: float,
    epsilon: float | None = None,
    delta: float | None = None,
    mu: float | None = None,
    rho: float | None = None,
    noise: NoiseChoice = "auto",
    confidence_level: float = 0.95,
) -> SamplePlan:
    """Plan a proportion: the width of its interval and the power of its test, by the number of people.

    For a difference of the proportions of two groups, use `plan_difference` with ``bounds=(0, 1)`` and
    ``sd=(p * (1 - p)) ** 0.5``.

    Parameters
    ----------
    share : float
        Guess of the proportion.
    epsilon : float, optional
        Epsilon of the (epsilon, delta) guarantee of the release. Give exactly one of `epsilon`, `mu` and
        `rho`. ``epsilon=inf`` plans without noise.
    delta : float, optional
        Delta of the guarantee, at most 1/n, such as 1e-6. A finite `epsilon` needs a delta wherever the noise
        is Gaussian. With ``delta=0`` the noise is Laplace noise.
    mu : float, optional
        Budget in Gaussian differential privacy, instead of `epsilon`.
    rho : float, optional
        Budget in zero-concentrated differential privacy (zCDP), instead of `epsilon`.
    noise : {"auto", "gaussian", "laplace"}
        Distribution of the noise. With "auto", the noise is Laplace noise if ``delta=0`` or if it is smaller
        than Gaussian noise, and Gaussian otherwise, as with a budget in `mu` or `rho`. Pass "gaussian" if the
        release will be charged to a ledger, or if it drops rows without a value (``missing="drop"``).
    confidence_level : float
        Level of the intervals, between 0 and 1.

    Returns
    -------
    SamplePlan
        ``.width(n)``, ``.se(n)``, ``.power(n, effect)``, ``.n_for(...)`` and ``.budget_for(n, ...)``.

    Raises
    ------
    ArgumentError
        A guess or the budget is out of range.

    Notes
    -----
    **Privacy.** No rows are read, and nothing is charged. Guesses must not come from the rows that are to be
    protected.

    Examples
    --------
    >>> import privinf as pi
    >>> plan = pi.stats.plan_proportion(share=0.3, epsilon=1, delta=1e-6)
    >>> 2000 < plan.n_for(width=0.04) < 2200
    True
    """
    model = PlannedShare(share=check_fraction(share, "share"))
    spending = SpendingOptions(epsilon=epsilon, delta=delta, mu=mu, rho=rho).spending()
    return _plan(model, dict(spending), noise, confidence_level)


@error_boundary
def plan_counts(
    *,
    cells: int,
    share: float | None = None,
    target: CountTarget = "table",
    epsilon: float | None = None,
    delta: float | None = None,
    mu: float | None = None,
    rho: float | None = None,
    noise: NoiseChoice = "auto",
    confidence_level: float = 0.95,
) -> SamplePlan:
    """Plan the counts of a table, as `counts` and `crosstab` without margins release them.

    Parameters
    ----------
    cells : int
        Number of cells of the table.
    share : float, optional
        Guessed share of the records that are in the planned cell. The default is ``1 / cells``.
    target : {"table", "population"}
        "table" (default): the count in this table, whose interval allows for the noise alone. "population":
        the share of the population, whose interval allows for sampling too.
    epsilon : float, optional
        Epsilon of the (epsilon, delta) guarantee of the release. Give exactly one of `epsilon`, `mu` and
        `rho`. ``epsilon=inf`` plans without noise.
    delta : float, optional
        Delta of the guarantee, at most 1/n, such as 1e-6. A finite `epsilon` needs a delta wherever the noise
        is Gaussian. With ``delta=0`` the noise is Laplace noise.
    mu : float, optional
        Budget in Gaussian differential privacy, instead of `epsilon`.
    rho : float, optional
        Budget in zero-concentrated differential privacy (zCDP), instead of `epsilon`.
    noise : {"auto", "gaussian", "laplace"}
        Distribution of the noise. With "auto", the noise is Laplace noise if ``delta=0`` or if it is smaller
        than Gaussian noise, and Gaussian otherwise, as with a budget in `mu` or `rho`. Pass "gaussian" if the
        release will be charged to a ledger, or if it drops rows without a value (``missing="drop"``).
    confidence_level : float
        Level of the intervals, between 0 and 1.

    Returns
    -------
    SamplePlan
        ``.width(n)``, ``.se(n)``, ``.power(n, effect)``, ``.n_for(...)`` and ``.budget_for(n, ...)``.

    Raises
    ------
    ArgumentError
        A guess or the budget is out of range.

    Notes
    -----
    **Privacy.** No rows are read, and nothing is charged. Guesses must not come from the rows that are to be
    protected.

    Examples
    --------
    >>> import privinf as pi
    >>> plan = pi.stats.plan_counts(cells=6, epsilon=1, delta=1e-6)
    >>> plan.width(5000)
    11.0
    """
    number = check_count(cells, "cells", least=2)
    model = PlannedCell(
        cells=number,
        share=1.0 / number if share is None else check_fraction(share, "share"),
        target=check_choice(target, CountTarget, "target"),
    )
    spending = SpendingOptions(epsilon=epsilon, delta=delta, mu=mu, rho=rho).spending()
    return _plan(model, dict(spending), noise, confidence_level)


def _plan(
    model: SampleModel,
    spending: dict[str, Any],
    noise: NoiseChoice,
    confidence_level: float,
    assumptions: tuple[str, ...] = (),
) -> SamplePlan:
    """Return the plan once budget and noise are checked."""
    plan = SamplePlan(
        model=model,
        spending=spending,
        noise=check_choice(noise, NoiseChoice, "noise"),
        confidence_level=check_fraction(confidence_level, "confidence_level"),
        assumptions=assumptions,
    )
    plan._noise()
    return plan


def _values_assumptions(
    bounds: Pair, sd: float, mean: float | None, values: str, middle: str = MIDDLE_OF_GROUPS
) -> tuple[str, ...]:
    """Return the guesses about values, as the plan prints them."""
    low, high = bounds
    center = 0.5 * (low + high) if mean is None else mean
    return (
        f"{values} are within the bounds [{low:g}, {high:g}]",
        f"the mean of {values} is {center:g}{'' if mean is not None else middle}",
        f"the standard deviation of {values} is {sd:g}",
    )


def assumption_lines(assumptions: Sequence[str]) -> list[str]:
    """Return the lines of a printed plan that state what it assumes; none if it states nothing."""
    return ["", "Assumptions", *(f"  {text}" for text in assumptions)] if assumptions else []


def _units(bounds: Pair, sd: float, mean: float | None) -> tuple[float, float, float]:
    """Return mean and sd in units in which the bounds are -1 and 1, and half the distance of the bounds."""
    low, high = (check_number(end, "bounds") for end in bounds)
    if not low < high:
        raise ArgumentError("bounds= must be a pair (low, high) of numbers, the lower one first")
    middle, half = 0.5 * (low + high), 0.5 * (high - low)
    center = middle if mean is None else check_number(mean, "mean", low=low, high=high)
    spread = check_positive(sd, "sd")
    largest = math.sqrt((center - low) * (high - center))
    if spread > largest:
        raise ArgumentError(
            f"sd={spread:g} is impossible for values between {low:g} and {high:g} with mean {center:g}: "
            f"pass at most {largest:.4g}"
        )
    return (center - middle) / half, spread / half, half
