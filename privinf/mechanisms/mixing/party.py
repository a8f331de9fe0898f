"""One party of a mixing plan, and what is publicly known of all their columns."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from privinf.accounting import calibrate_mu
from privinf.doors import doors
from privinf.errors import ArgumentError, SchemaError
from privinf.mechanisms.mixing.parties import party_design
from privinf.mechanisms.mixing.theory import LABEL_SPREAD, MixingGuess, check_rsquared, guessed_variances
from privinf.schema import Design, Schema
from privinf.typing import Calibration, DiameterChoice


@doors
@dataclass(frozen=True, slots=True)
class PartyPlan:
    """One party of a plan.

    Attributes
    ----------
    schema : Schema
        Its columns, all private, with public bounds or levels.
    epsilon, delta : float
        What its one release may cost; ``epsilon=inf`` is no noise, for simulation only.
    mu, rho : float
        The same in Gaussian or concentrated DP, in place of epsilon; delta is then the one to report at.
    """

    schema: Schema
    epsilon: float | None = None
    delta: float | None = None
    mu: float | None = None
    rho: float | None = None

    @property
    def spending(self) -> dict[str, float | None]:
        """The budget as arguments of a release."""
        return {"epsilon": self.epsilon, "delta": self.delta, "mu": self.mu, "rho": self.rho}

    def total_mu(self, calibration: Calibration = "exact") -> float:
        """Return the Gaussian mu that the budget buys (ArgumentError unless it names exactly one level)."""
        return calibrate_mu(**self.spending, calibration=calibration)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able description."""
        given = {name: _plain(value) for name, value in self.spending.items() if value is not None}
        return {"schema": self.schema.to_dict(), **given}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> PartyPlan:
        """Return what `to_dict` described."""
        given = dict(content)
        schema = Schema.from_dict(given.pop("schema"))
        return cls(schema, **{name: float(value) for name, value in given.items()})


@dataclass(frozen=True, slots=True)
class PlanColumns:
    """Released columns of all parties, scaled units.

    Attributes
    ----------
    names : tuple of str
    noise, variances : tuple of float
        Noise variance and guessed variance of each.
    own_mu : dict of str to float
        What each party's release reveals of its own columns.
    """

    names: tuple[str, ...]
    noise: tuple[float, ...]
    variances: tuple[float, ...]
    own_mu: dict[str, float]

    def guess(self, label: str | None, rsquared: float) -> MixingGuess:
        """Return the public guess for a regression on `label`, or on any column where it is None."""
        noise, variances = np.array(self.noise), np.array(self.variances)
        features = np.ones(len(noise), dtype=bool)
        response = features
        if label is not None:
            if label not in self.names:
                raise SchemaError(f"label {label!r} is not a released column: {', '.join(self.names)}")
            response = np.array([name == label for name in self.names])
            features = ~response
        return MixingGuess(
            noise=float(noise[features].mean()) if features.any() else float(noise.mean()),
            label_noise=float(noise[response].mean()),
            signal=float(variances[features].mean()) if features.any() else float(variances.mean()),
            label_variance=LABEL_SPREAD * float(variances[response].mean()),
            rsquared=check_rsquared(rsquared),
        )


def party_designs(parties: Mapping[str, PartyPlan], centred: bool) -> dict[str, Design]:
    """Return every party's design."""
    return {name: party_design(party.schema, centred=centred) for name, party in parties.items()}


def plan_columns(
    parties: Mapping[str, PartyPlan], centred: bool, diameter: DiameterChoice, calibration: Calibration
) -> PlanColumns:
    """Return the released columns of a plan with their noise, scaled units."""
    designs = party_designs(parties, centred)
    largest = max(design.diameter for design in designs.values())
    names: list[str] = []
    noise: list[float] = []
    variances: list[float] = []
    own_mu: dict[str, float] = {}
    for name, design in designs.items():
        mu = parties[name].total_mu(calibration)
        reach = largest if diameter == "largest" else design.diameter
        own_mu[name] = mu * design.diameter / reach
        names += design.private_names
        noise += [(reach / mu) ** 2] * len(design.private_names)
        variances += guessed_variances(design).tolist()
    return PlanColumns(tuple(names), tuple(noise), tuple(variances), own_mu)


def check_parties(parties: Mapping[str, PartyPlan], id: str | None) -> None:
    """Refuse parties without budget, and columns of two parties (ArgumentError, SchemaError)."""
    if not isinstance(parties, Mapping) or not parties:
        raise ArgumentError("parties must be a mapping of names to PartyPlan, with at least one")
    seen: dict[str, str] = {}
    for name, party in parties.items():
        if not isinstance(name, str) or not name.strip() or not isinstance(party, PartyPlan):
            raise ArgumentError("parties must map non-empty names to PartyPlan")
        party.total_mu()
        for column in party.schema.columns:
            if column in seen:
                raise SchemaError(f"column {column!r} belongs to party {seen[column]!r} and to {name!r}")
            if column == id:
                raise SchemaError(f"the id column {id!r} is not released: leave it out of {name!r}'s columns")
            seen[column] = name


def _plain(value: float) -> float | str:
    """JSON has no infinity: write it as text."""
    return "inf" if math.isinf(value) else value
