"""Power of a log-rank test, and the expected interval of a hazard ratio, before any rows are there."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr

from privinf.error_boundary import error_boundaries, error_boundary
from privinf.errors import ArgumentError
from privinf.inference.estimate import upper_quantile
from privinf.inference.survival import CellEstimate, CellNoise, log_hazard_ratio, log_rank
from privinf.mechanisms.gaussian import total_mu
from privinf.mechanisms.statistics.survival import MOST_INTERVALS, SurvivalCells, suffix_root
from privinf.survival.rows import DEFAULT_INTERVALS
from privinf.typing import Floats, SpendingOptions
from privinf.validation import check_count, check_fraction, check_number, check_positive

MOST_PEOPLE = 10**9


@error_boundaries
@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class LogRankPlan:
    """Planned log-rank test of two groups: power for guessed hazards, a number of people and a budget.

    Attributes
    ----------
    hazard_ratio : float
        Guessed hazard ratio of the second group to the first group.
    survival : float
        Guessed share of the first group who have not had the event at the horizon.
    dropout : float
        Guessed share of the people without the event who are censored before the horizon.
    share : float
        Share of all people who are in the second group.
    scale : float
        Standard deviation of the noise of every released count; 0 without noise.
    intervals : int
        Number of intervals of the time grid.
    alpha : float
        Level of the test.
    spending : mapping of str to float
        Budget: epsilon and delta, mu, or rho.

    Notes
    -----
    **Privacy.** Costs nothing: no rows are read.
    """

    hazard_ratio: float
    survival: float
    dropout: float
    share: float
    scale: float
    intervals: int
    alpha: float
    spending: Mapping[str, Any]

    def power(self, n: int) -> float:
        """Return the power of the test, that is, the probability that it rejects equal hazards.

        Parameters
        ----------
        n : int
            Number of people.

        Returns
        -------
        float
            Power, between `alpha` and 1.
        """
        return self._power(check_count(n, "n", least=2))

    def n_for(self, power: float = 0.8) -> int:
        """Return the number of people that is needed for a power.

        Parameters
        ----------
        power : float
            Power that the test must have, above `alpha` and below 1.

        Returns
        -------
        int
            Smallest number of people with this power, accurate to 1%.

        Raises
        ------
        ArgumentError
            Raised if even 1,000,000,000 people are not enough, or the power is not above `alpha`.
        """
        aim = check_fraction(power, "power")
        if aim <= self.alpha:
            raise ArgumentError("power= must be above the level alpha= of the test")
        if self.hazard_ratio == 1.0 or self._power(MOST_PEOPLE) < aim:
            raise ArgumentError(
                f"not even {MOST_PEOPLE:,} people reach this power: plan a hazard ratio farther from 1"
            )
        low, high = 2.0, float(MOST_PEOPLE)
        while high > 1.005 * low and high - low > 1.0:
            middle = math.sqrt(low * high)
            low, high = (low, middle) if self._power(middle) >= aim else (middle, high)
        return math.ceil(high)

    def interval(self, n: int) -> tuple[float, float]:
        """Return the interval of the hazard ratio that would result if all counts had their expected values.

        Parameters
        ----------
        n : int
            Number of people.

        Returns
        -------
        (low, high)
            Ends of the interval with the confidence level ``1 - alpha``. The ends are 0 or infinite if the
            noise is too large.
        """
        z = upper_quantile(self.alpha / 2.0)
        _, low, high = log_hazard_ratio(self._cells(float(check_count(n, "n", least=2))), z)
        return math.exp(low), math.exp(high)

    def summary(self) -> str:
        """Return the plan as text: power and interval for several numbers of people, and the guesses.

        Returns
        -------
        str
            A table with one line per number of people.
        """
        budget = ", ".join(f"{name} {value:g}" for name, value in self.spending.items())
        lines = [
            f"Planned log-rank test of two groups: {budget}; test at level {self.alpha:g}; Gaussian noise"
            + ("" if self.scale > 0.0 else " of size 0"),
            "",
            f"{'n':>10}  {'power':>7}  {f'{100 * (1 - self.alpha):g}% interval of the hazard ratio':>36}",
        ]
        for n in (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000):
            interval = "{:.3g} to {:.3g}".format(*self.interval(n))
            lines.append(f"{n:>10,}  {self.power(n):>7.3f}  {interval:>36}")
        first = f"{self.survival:.0%} of the first group have not had the event at the horizon"
        return "\n".join(
            [
                *lines,
                "",
                "Assumptions",
                f"  the hazard ratio of the second group to the first group is {self.hazard_ratio:g}",
                f"  {first}",
                f"  {self.dropout:.0%} of the people without the event are censored before the horizon",
                f"  {self.share:.4g} of the people are in the second group",
                "  times to the event and to dropout have exponential distributions",
                f"  the time grid has {self.intervals} intervals up to the horizon",
                "",
                "n_for(power), power(n) and interval(n)",
            ]
        )

    def __repr__(self) -> str:
        return self.summary()

    def _power(self, n: float) -> float:
        score = log_rank(self._cells(n), corrected=False)
        variance = float((score.sampling + score.noise)[0, 0])
        if not variance > 0.0:
            return self.alpha
        z = upper_quantile(self.alpha / 2.0)
        shift = abs(float(score.U[0])) / math.sqrt(variance)
        return float(ndtr(shift - z) + ndtr(-shift - z))

    def _cells(self, n: float) -> CellEstimate:
        """Return the expected cells of n people: exponential times of events and of dropout."""
        times = np.linspace(0.0, 1.0, self.intervals + 1)
        leaving = -math.log1p(-self.dropout)
        first = -math.log(self.survival)
        parts = [
            _expected(n * (1.0 - self.share), first, leaving, times),
            _expected(n * self.share, first * self.hazard_ratio, leaving, times),
        ]
        D, C = (np.stack([part[place] for part in parts]) for place in (0, 1))
        noise = CellNoise(scale=self.scale, root=suffix_root(self.intervals + 1), groups=2)
        return CellEstimate(D=D, C=C, noise=noise)


def _expected(n: float, hazard: float, leaving: float, times: Floats) -> tuple[Floats, Floats]:
    """Return the expected numbers of events and of censored people by interval."""
    present = n * np.exp(-(hazard + leaving) * times)
    gone = -np.diff(present)
    return gone * (hazard / (hazard + leaving)), np.append(gone * (leaving / (hazard + leaving)), present[-1])


@error_boundary
def plan_logrank(
    *,
    hazard_ratio: float,
    survival: float,
    dropout: float = 0.0,
    share: float = 0.5,
    epsilon: float | None = None,
    delta: float | None = None,
    mu: float | None = None,
    rho: float | None = None,
    grid: int = DEFAULT_INTERVALS,
    alpha: float = 0.05,
) -> LogRankPlan:
    """Plan a log-rank test of two groups: power, number of people, interval of the hazard ratio.

    Parameters
    ----------
    hazard_ratio : float
        Guessed hazard ratio of the second group to the first group.
    survival : float
        Guessed share of the first group who have not had the event at the horizon, between 0 and 1.
    dropout : float
        Guessed share of the people without the event who are censored before the horizon.
    share : float
        Share of all people who are in the second group.
    epsilon : float, optional
        Epsilon of the (epsilon, delta) guarantee of the release. Pass exactly one of `epsilon`, `mu` and
        `rho`. With ``epsilon=inf`` a test without noise is planned.
    delta : float, optional
        Delta of the guarantee, at most 1/n, such as 1e-6. A finite `epsilon` needs a delta.
    mu : float, optional
        Budget in Gaussian differential privacy, instead of `epsilon`.
    rho : float, optional
        Budget in zero-concentrated differential privacy (zCDP), instead of `epsilon`.
    grid : int
        Number of intervals of the time grid.
    alpha : float
        Level of the test.

    Returns
    -------
    LogRankPlan
        Plan with the methods ``power(n)``, ``n_for(power)`` and ``interval(n)``.

    Raises
    ------
    ArgumentError
        Raised if a guess or the budget is out of range.

    Notes
    -----
    Times to the event and times to dropout are assumed to have exponential distributions. The power is
    computed for a normally distributed score. The mean and the variance of the score are computed from the
    expected counts, and the variance includes the noise.

    **Privacy.** Costs nothing: no rows are read.

    Examples
    --------
    >>> import privinf as pi
    >>> plan = pi.survival.plan_logrank(hazard_ratio=1.5, survival=0.6, epsilon=1.0, delta=1e-6)
    >>> 800 < plan.n_for(0.8) < 1600
    True
    """
    spending = SpendingOptions(epsilon=epsilon, delta=delta, mu=mu, rho=rho).spending()
    intervals = check_count(grid, "grid")
    if intervals > MOST_INTERVALS:
        raise ArgumentError(f"grid= must be at most {MOST_INTERVALS} intervals")
    level = total_mu(spending)
    cells = SurvivalCells(edges=np.arange(1.0, intervals + 1.0), groups=2, counted=False, negative=True)
    return LogRankPlan(
        hazard_ratio=check_positive(hazard_ratio, "hazard_ratio"),
        survival=check_fraction(survival, "survival"),
        dropout=check_number(dropout, "dropout", low=0.0, high=0.99),
        share=check_fraction(share, "share"),
        scale=0.0 if math.isinf(level) else cells.sensitivity().l2 / level,
        intervals=intervals,
        alpha=check_fraction(alpha, "alpha"),
        spending=dict(spending),
    )
