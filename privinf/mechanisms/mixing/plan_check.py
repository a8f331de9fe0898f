"""What a plan will cost, and whether it can identify a regression, before any row is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

IDENTIFIED = 3.0


class Checked(Protocol):
    """What is printed of a plan; see `MixingPlan`."""

    @property
    def parties(self) -> Mapping[str, Any]:
        """What each party releases."""

    @property
    def n(self) -> int:
        """Number of people."""

    @property
    def k(self) -> int:
        """Number of mixed rows."""

    @property
    def kind(self) -> str:
        """Law of the mixing matrix."""

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


@dataclass(frozen=True, slots=True)
class PartyForecast:
    """One party's line of a plan check.

    Attributes
    ----------
    party : str
    columns : int
    noise_scale : float
        Noise sd of every released number, scaled units.
    epsilon, delta : float
        What its release reveals.
    """

    party: str
    columns: int
    noise_scale: float
    epsilon: float
    delta: float


@dataclass(frozen=True, slots=True)
class PlanCheck:
    """What a plan will cost, and whether it can work; print it.

    Attributes
    ----------
    plan : MixingPlan
    parties : tuple of PartyForecast
    epsilon, delta : float
        Of one person: all parties together.
    forecast : float
        phi = n h/(2 tau^2 sqrt(d k)); about what the identification statistic will be for regressions on
        columns that are not collinear.
    """

    plan: Checked
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
        what = f"{plan.k} mixed rows ({plan.kind}, public seed {plan.seed})"
        if plan.method == "gaussian-rows":
            what = "all rows, with noise"
        verdict = "identified: normal intervals can be expected"
        if not self.identified:
            verdict = (
                "NOT IDENTIFIED: expect unbounded intervals; use more people, fewer columns or a larger "
                "epsilon, or the score test alone"
            )
        lines = [
            f"Plan of {len(plan.parties)} parties, {plan.n} people, {plan.width} columns: {what}",
            f"all-ones row: share {plan.share:.3g}" if plan.intercept and plan.share else "no all-ones row",
            *(
                f"  {p.party}: {p.columns} column(s), noise sd {p.noise_scale:.4g} (scaled units), "
                f"epsilon {p.epsilon:.4g} at delta {p.delta:g}"
                for p in self.parties
            ),
            f"one person, all parties: epsilon {self.epsilon:.4g} at delta {self.delta:g}",
            f"identification forecast phi = {self.forecast:.3g} (needs {IDENTIFIED:g}): {verdict}",
            "(phi takes columns to spread evenly over their bounds, not collinear; narrow bounds help)",
        ]
        return "\n".join(lines)
