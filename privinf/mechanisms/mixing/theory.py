"""Public numbers of a mixing plan: how many rows, how much of the all-ones row, and whether it can work.

Notation: n people, k mixed rows, d features, noise sd tau_j of released column j (scaled units), H the
second moments of the (centered) features, h its typical eigenvalue. A mixed row has covariance
``(1-a) n H / k + S``, S = diag(tau^2), so a plain sum of k rows carries signal (1-a) n h against noise
k tau^2. All of this is public: bounds, budgets and guesses, never data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from privinf.errors import ArgumentError
from privinf.schema import Design
from privinf.typing import Floats

IDENTIFIED = 3.0  # phi from which on normal intervals can be expected
MEAN_SD = 0.02  # sd to which the all-ones row is to give every column mean, in scaled units
LEAST_SHARE = 0.01  # of the all-ones row (`default_share`)
LARGEST_SHARE = 0.5  # of the all-ones row
ROWS_PER_COEFFICIENT = 6  # mixed rows for each coefficient, at least
# Too many rows cost more than too few (each brings its noise), so the default guess errs to the small side.
DEFAULT_RSQUARED = 0.8
# A label is guessed to fill its bounds less than a uniform variable: sd = range/6, a third of that variance.
LABEL_SPREAD = 1.0 / 3.0


class PrintablePlan(Protocol):
    """Printed form of a plan; see `MixingPlan`."""

    @property
    def parties(self) -> Mapping[str, Any]:
        """Releases by party."""

    @property
    def n(self) -> int:
        """Number of people."""

    @property
    def k(self) -> int:
        """Number of mixed rows."""

    @property
    def kind(self) -> str:
        """Distribution of the mixing matrix."""

    @property
    def method(self) -> str:
        """How rows are hidden."""

    @property
    def seed(self) -> int:
        """Public seed of the mixing matrix."""

    @property
    def share(self) -> float:
        """Share of the all-ones row."""

    @property
    def intercept(self) -> bool:
        """Whether there is an all-ones row."""

    @property
    def width(self) -> int:
        """Number of columns of all parties."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MixingGuess:
    """Public facts, or guesses, about a regression on the released columns, in scaled units.

    Attributes
    ----------
    noise : float
        Mean noise variance of a feature, tau^2.
    label_noise : float
        Noise variance of the label, tau_y^2.
    signal : float
        h: variance of a feature.
    label_variance : float
    rsquared : float
        Guess of the share of the label's variance that the features explain, in (0, 1).
    """

    noise: float
    label_noise: float
    signal: float
    label_variance: float
    rsquared: float = DEFAULT_RSQUARED

    @property
    def residual(self) -> float:
        """Residual variance s_e^2."""
        return (1.0 - self.rsquared) * self.label_variance

    @property
    def slopes(self) -> float:
        """Squared norm of the slopes."""
        return self.rsquared * self.label_variance / self.signal


def guessed_variances(design: Design) -> Floats:
    """Return the variance of each released column if it were uniform on its bounds, scaled units.

    Where columns are not centered it is the second moment about zero.
    """
    low = design.scaled_low[design.private]
    high = design.scaled_high[design.private]
    if design.constant is not None:
        return np.asarray((high - low) ** 2 / 12.0, dtype=np.float64)
    return np.asarray((low**2 + low * high + high**2) / 3.0, dtype=np.float64)


def default_share(noise_sd: float, n: int) -> float:
    """Return the public share a of the all-ones row: ``(tau/(0.02 n))^2`` within [0.01, 0.5].

    The row ``sqrt(a) 1'D + noise`` gives every column mean to sd tau/(n sqrt a). With the other rows scaled
    by sqrt(1 - a) every column of the mixing matrix keeps norm 1, so sensitivity and cost stay as they are.
    """
    return float(np.clip((noise_sd / (MEAN_SD * n)) ** 2, LEAST_SHARE, LARGEST_SHARE))


def paper_rows(n: int, mu: float) -> int:
    """Return the paper's number of mixed rows, ``sqrt(n)/sigma`` rounded down, sigma = 1/mu.

    Raises
    ------
    ArgumentError
        There is no noise: then the paper has no rule and k must be named.
    """
    if not math.isfinite(mu):
        raise ArgumentError(
            "k='paper' needs a finite epsilon: with epsilon=inf, pass a number for k (the larger, the more "
            "accurate, up to n)"
        )
    return min(math.floor(math.sqrt(n) * mu), n)


def auto_rows(guess: MixingGuess, *, n: int, features: int, share: float = 0.0) -> int:
    r"""Return the number k of mixed rows that the guess makes best.

    Parameters
    ----------
    guess : MixingGuess
    n : int
    features : int
        d, without the constant.
    share : float
        a, the all-ones row's.

    Returns
    -------
    int in [6 (d + 1), n], at most n.

    Raises
    ------
    ArgumentError
        There is no noise: then more rows are always better and k must be named.

    Notes
    -----
    The asymptotic variance of the de-biased estimator is about
    ``(1/k)(s_e^2 + (k tau^2/N) c) H^-1 (H + (k tau^2/N) I) H^-1``, N = (1-a) n,
    c = (tau_y^2 + tau^2 |w|^2)/tau^2. With the k - p degrees of freedom of a finite sample (p = d + 1) in
    place of k it is smallest at

    .. math:: k^* = p + \sqrt{(p + N s_e^2/(c \tau^2)) (p + N h/\tau^2)}.

    It is flat from 0.7 to 1.4 k*.
    """
    if not guess.noise > 0.0:
        raise ArgumentError(
            "k='auto' needs a finite epsilon: with epsilon=inf, pass a number for k (the larger, "
            "the more accurate, up to n)"
        )
    p = features + 1
    effective_n = (1.0 - share) * n
    ratio = guess.label_noise / guess.noise + guess.slopes
    rows = p + math.sqrt(
        (p + effective_n * guess.residual / (ratio * guess.noise))
        * (p + effective_n * guess.signal / guess.noise)
    )
    return min(max(round(rows), ROWS_PER_COEFFICIENT * p), n)


def identification_forecast(noise: float, signal: float, *, n: int, k: int, features: int) -> float:
    """Return phi = n h/(2 tau^2 sqrt(d k)), the approximate identification statistic.

    Below about 3 the de-biased Gram matrix is often indefinite and Wald intervals should not be expected.
    Infinite without noise.
    """
    if noise == 0.0:
        return math.inf
    return n * signal / (2.0 * noise * math.sqrt(features * k))


@dataclass(frozen=True, slots=True, kw_only=True)
class PartyForecast:
    """One party's line of a plan check.

    Attributes
    ----------
    party : str
    columns : int
    noise_scale : float
        Noise sd of every released number, scaled units.
    epsilon, delta : float
        Privacy loss of its release.
    """

    party: str
    columns: int
    noise_scale: float
    epsilon: float
    delta: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanCheck:
    """Cost and feasibility of a plan; print it.

    Attributes
    ----------
    plan : MixingPlan
    parties : tuple of PartyForecast
    epsilon, delta : float
        Of one person: all parties together.
    forecast : float
        phi = n h/(2 tau^2 sqrt(d k)); the approximate identification statistic for regressions on
        columns that are not collinear.
    """

    plan: PrintablePlan
    parties: tuple[PartyForecast, ...]
    epsilon: float
    delta: float
    forecast: float

    @property
    def identified(self) -> bool:
        """Whether normal intervals can be expected: phi of at least 3."""
        return self.forecast >= IDENTIFIED

    def __str__(self) -> str:
        plan = self.plan
        description = f"{plan.k} random linear combinations of rows ({plan.kind}, public seed {plan.seed})"
        if plan.method == "gaussian-rows":
            description = "all rows, with noise"
        verdict = "the coefficients are identified, so normal intervals can be expected"
        if not self.identified:
            verdict = (
                "the coefficients are NOT IDENTIFIED, so unbounded intervals can be expected. Use more "
                "people, fewer columns or a larger epsilon, or use only the score test"
            )
        intercept = "with an intercept" if plan.intercept else "no intercept"
        if plan.intercept and plan.share:
            intercept = (
                f"intercept: the sum over all people has the share {plan.share:.3g} of each person's squared "
                "weights (share=)"
            )
        lines = [
            f"Plan of {len(plan.parties)} parties, {plan.n} people, {plan.width} columns: {description}",
            intercept,
            *(
                f"  {p.party}: {p.columns} column(s), standard deviation of the noise "
                f"{p.noise_scale:.4g} (columns scaled by their bounds), epsilon {p.epsilon:.4g} at "
                f"delta {p.delta:g}"
                for p in self.parties
            ),
            (
                f"guarantee for one person, over all parties: epsilon {self.epsilon:.4g} at delta "
                f"{self.delta:g}"
            ),
            (
                f"strength of identification, forecast: phi = {self.forecast:.3g} (at least "
                f"{IDENTIFIED:g} is needed); {verdict}"
            ),
            (
                "(the forecast assumes that the columns are spread evenly over their bounds and not "
                "collinear; narrower bounds increase phi)"
            ),
        ]
        return "\n".join(lines)
