"""Columns of each party of a mixing plan, and their public facts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from privinf.accounting import calibrate_mu
from privinf.accounting.losses import json_number
from privinf.error_boundary import error_boundaries
from privinf.errors import ArgumentError, SchemaError
from privinf.mechanisms.mixing.theory import LABEL_SPREAD, MixingGuess, guessed_variances
from privinf.schema import Design, Factor, Schema
from privinf.schema.arrays import CONSTANT
from privinf.schema.terms import Column, Indicator, Plain, Response
from privinf.typing import Calibration, DiameterChoice
from privinf.validation import check_flag, check_fraction

# In the place of the response in a plan that names none.
NO_RESPONSE = Response(Column("(any released column)", ()), True, None)


@error_boundaries
@dataclass(frozen=True, slots=True)
class PartyPlan:
    """Columns and budget of one party in a plan of several parties.

    Attributes
    ----------
    schema : Schema
        Columns of the party, all private, with public bounds or levels.
    epsilon, delta : float
        Epsilon and delta of the guarantee of the party's one release. With ``epsilon=inf`` no noise is added,
        for simulations only.
    mu, rho : float
        Budget in Gaussian differential privacy (mu) or in zero-concentrated differential privacy (rho),
        instead of `epsilon`. Epsilon is then reported at `delta`.
    """

    schema: Schema
    epsilon: float | None = None
    delta: float | None = None
    _: KW_ONLY
    mu: float | None = None
    rho: float | None = None

    @property
    def spending(self) -> dict[str, float | None]:
        """Budget of the party, as keyword arguments of the method `release`."""
        return {"epsilon": self.epsilon, "delta": self.delta, "mu": self.mu, "rho": self.rho}

    def total_mu(self, calibration: Calibration = "exact") -> float:
        """Return the budget as mu in Gaussian differential privacy.

        Parameters
        ----------
        calibration : {"exact", "classic"}
            How the noise is computed from `epsilon` and `delta`.

        Returns
        -------
        float
            mu in Gaussian differential privacy.

        Raises
        ------
        ArgumentError
            Raised if the plan of the party has no budget, or more than one.
        """
        return calibrate_mu(**self.spending, calibration=calibration)

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary that can be written as JSON.

        Returns
        -------
        dict
            For `from_dict`.
        """
        spending = {name: json_number(value) for name, value in self.spending.items() if value is not None}
        return {"schema": self.schema.to_dict(), **spending}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> PartyPlan:
        """Make the object from a dictionary that `to_dict` returned.

        Parameters
        ----------
        content : mapping
            Result of `to_dict`.

        Returns
        -------
        PartyPlan
            The same plan.
        """
        fields = dict(content)
        schema = Schema.from_dict(fields.pop("schema"))
        return cls(schema=schema, **{name: float(value) for name, value in fields.items()})


@dataclass(frozen=True, slots=True)
class PlanColumns:
    """Released columns of all parties, scaled units.

    Attributes
    ----------
    names : tuple of str
    noise, variances : tuple of float
        Noise variance and guessed variance of each.
    own_mu : dict of str to float
        Privacy loss of each party's release about its own columns.
    """

    names: tuple[str, ...]
    noise: tuple[float, ...]
    variances: tuple[float, ...]
    own_mu: dict[str, float]

    def guess(self, label: str | None, rsquared: float) -> MixingGuess:
        """Return the public guess for a regression on `label`, or on any column where it is None."""
        noise = np.array(self.noise)
        variances = np.array(self.variances)
        features = np.ones(len(noise), dtype=bool)
        response = features
        if label is not None:
            if label not in self.names:
                raise SchemaError(
                    f"{label!r} is not a released column; released columns are: {', '.join(self.names)}"
                )
            response = np.array([name == label for name in self.names])
            features = ~response
        return MixingGuess(
            noise=float(noise[features].mean()) if features.any() else float(noise.mean()),
            label_noise=float(noise[response].mean()),
            signal=float(variances[features].mean()) if features.any() else float(variances.mean()),
            label_variance=LABEL_SPREAD * float(variances[response].mean()),
            rsquared=check_fraction(rsquared, "rsquared"),
        )


def party_designs(parties: Mapping[str, PartyPlan], centred: bool) -> dict[str, Design]:
    """Return the design of each party."""
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
        used_diameter = largest if diameter == "largest" else design.diameter
        own_mu[name] = mu * design.diameter / used_diameter
        names += design.private_names
        noise += [(used_diameter / mu) ** 2] * len(design.private_names)
        variances += guessed_variances(design).tolist()
    return PlanColumns(tuple(names), tuple(noise), tuple(variances), own_mu)


def check_parties(parties: Mapping[str, PartyPlan], id: str | None) -> None:
    """Refuse parties without budget, and columns of two parties (ArgumentError, SchemaError)."""
    if not isinstance(parties, Mapping) or not parties:
        raise ArgumentError("parties= must map the name of each party to a PartyPlan, for at least one party")
    owners: dict[str, str] = {}
    for name, party in parties.items():
        if not isinstance(name, str) or not name.strip() or not isinstance(party, PartyPlan):
            raise ArgumentError("parties= must map non-empty names to PartyPlan objects")
        party.total_mu()
        for column in party.schema.columns:
            if column in owners:
                raise SchemaError(
                    f"column {column!r} belongs to party {owners[column]!r} and to {name!r}: every column "
                    "must belong to one party"
                )
            if column == id:
                raise SchemaError(
                    f"the id column {id!r} is never released: remove it from the columns of party {name!r}"
                )
            owners[column] = name


def party_design(schema: Schema, *, centred: bool) -> Design:
    """Return the design of everything that a party declares.

    A numeric column is one number; a factor is its indicators, of all levels but the first.

    Parameters
    ----------
    schema : Schema
        Columns of the party, all of them private, with their public bounds or levels.
    centered : bool
        Whether numeric columns are centered at the middle of their bounds (scaled range [-1, 1]) or only
        divided by their largest absolute value.

    Returns
    -------
    Design
        Without a response: any released column may become one. Where `centered`, its first column is the
        constant, which is public and not released.

    Raises
    ------
    SchemaError
        A column is declared public, is called ``const``, or the schema has several rows per unit.

    Notes
    -----
    **Privacy.** Public. `Design.diameter` is the replace-one sensitivity of the party's part of a row.
    """
    if schema.unit is not None or schema.max_rows != 1:
        raise SchemaError(
            "tables of parties must have one row per person: remove unit= and max_rows= from the schema"
        )
    columns: list[Column] = []
    blocks: list[tuple[int, ...]] = []
    for name, declared in schema.columns.items():
        if declared.public or name == CONSTANT:
            raise SchemaError(
                (
                    f"column {name!r} is declared public, but a party releases only private columns: "
                    "declare it private, or leave it out"
                )
                if declared.public
                else f"the name of column {name!r} is reserved for the constant: rename this column"
            )
        if isinstance(declared, Factor):
            start = len(columns)
            levels = declared.levels[1:]
            columns += [Column(f"{name}[T.{level}]", (Indicator(name, level),)) for level in levels]
            blocks.append(tuple(range(start, len(columns))))
        else:
            columns.append(Column(name, (Plain(name),)))
    head = [Column(CONSTANT, ())] if check_flag(centred, "intercept") else []
    bounds = [column.interval(schema) for column in (*head, *columns)]
    return Design(
        formula=None,
        schema=schema,
        columns=(*head, *columns),
        private=np.array([False] * len(head) + [True] * len(columns)),
        constant=0 if centred else None,
        low=np.array([pair.low for pair in bounds]),
        high=np.array([pair.high for pair in bounds]),
        blocks=tuple(tuple(len(head) + k for k in block) for block in blocks),
        radius=None,
        outcome=NO_RESPONSE,
    )


def released_columns(design: Design) -> dict[Any, int]:
    """Return the position among the released columns of each column's pieces (its factors)."""
    released = [column for column, private in zip(design.columns, design.private, strict=True) if private]
    return {column.pieces: position for position, column in enumerate(released)}
