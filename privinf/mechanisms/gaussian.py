"""The Gaussian mechanism: from a sensitivity and a share of mu to a noise scale and a ledger line."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from privinf.accounting import GaussianLoss, Ledger, LedgerEntry, Sensitivity, calibrate_mu
from privinf.accounting.ledger import check_ledger
from privinf.errors import ArgumentError, SensitivityError
from privinf.noise import NoiseSource, get_source, grid_step, solve_scale
from privinf.noise.lattice import LARGEST_STEP
from privinf.schema import Design
from privinf.typing import Calibration, Relation, RngLike, SourceName, TrustModel
from privinf.validation import check_choice

# Rounding of float arithmetic before the noise (scaling, projection) is far below this relative slack,
# which is charged to every sensitivity.
FLOAT_SLACK = 2.0**-40

PUBLIC_N = "the number of records is public (replace-one)"
NOTHING_ADDED = "the number of records is public; a record is replaced by one that contributes nothing"
PUBLIC_CLIENTS = "the sites and their numbers of records are public; one site is replaced as a whole"
NO_CLIENT = "the sites and their numbers of records are public; one site contributes nothing instead"
CLEAR_RESPONSE = "covers features only; y released in clear"
PUBLIC_ROWS = "which rows belong to one unit is public"
DATA_BOUNDS = "bounds were taken from the data: the claim does not cover them"


@dataclass(frozen=True, slots=True)
class Spending:
    """What one call of `release` may spend, and on whose noise.

    Attributes
    ----------
    mu : float
        Total Gaussian mu of the call; infinity means no noise.
    delta : float or None
        The delta that the caller named; reports quote epsilon at it.
    """

    mu: float
    delta: float | None
    source: NoiseSource
    ledger: Ledger

    @classmethod
    def of(
        cls,
        *,
        epsilon: float | None,
        mu: float | None,
        rho: float | None,
        delta: float | None,
        calibration: Calibration,
        ledger: Ledger | None,
        rng: RngLike,
        source: SourceName,
    ) -> Spending:
        """Check the budget arguments of a `release` or `fit` call (before any row is read)."""
        check_choice(calibration, Calibration, "calibration")
        account = check_ledger(ledger)
        if epsilon is None and mu is None and rho is None:
            raise ArgumentError("name what may be spent: epsilon= with delta=, mu= or rho=")
        total = calibrate_mu(epsilon=epsilon, mu=mu, rho=rho, delta=delta, calibration=calibration)
        chosen = get_source(rng=rng, source=source)
        return cls(total, delta, chosen, account)


@dataclass(frozen=True, slots=True)
class Line:
    """One Gaussian release before it is made: everything that its ledger line says.

    Attributes
    ----------
    sensitivity : float
        Replace-one l2 sensitivity of the released array, scaled units, before grid rounding.
    dimension : int
        Number of released numbers that one unit touches (for the grid's share of the sensitivity).
    reach : float
        Public bound of the released numbers that secure noise must have room for; 0 where there is none.
    """

    label: str
    mechanism: str
    sensitivity: float
    derivation: str
    dimension: int
    mu: float
    unit: str
    trust: TrustModel
    relation: Relation = "replace-one"
    assumptions: tuple[str, ...] = field(default=(PUBLIC_N,))
    party: str = ""
    reach: float = 0.0

    def calibrated(self, source: NoiseSource) -> tuple[float, LedgerEntry]:
        """Return the noise scale (sd, scaled units) and the ledger line.

        Raises
        ------
        SensitivityError
            The noise is so small that its grid has no room for what the public bounds allow.
        """
        if math.isinf(self.mu):
            scale, total, noise = 0.0, self.sensitivity, {"law": "none", "scale": 0.0, "grid": 0.0}
            name, secure = "none", False
        else:
            scale, total = solve_scale(
                self.sensitivity * (1.0 + FLOAT_SLACK), self.mu, self.dimension, source
            )
            grid = grid_step(scale) if source.secure else 0.0
            if source.secure and self.reach >= LARGEST_STEP * grid:
                raise SensitivityError(
                    f"{self.label}: at mu={self.mu:.3g} the noise is too small for its fixed-point grid; "
                    "spend less, or epsilon=inf for no noise"
                )
            law = "discrete gaussian" if source.secure else "gaussian"
            noise, name, secure = {"law": law, "scale": scale, "grid": grid}, source.name, source.secure
        entry = LedgerEntry(
            mechanism=self.mechanism,
            label=self.label,
            unit=self.unit,
            relation=self.relation,
            trust=self.trust,
            sensitivity=Sensitivity(norm="l2", value=total, derivation=self.derivation),
            noise=noise,
            loss=GaussianLoss(self.mu),
            source=name,
            secure=secure,
            assumptions=self.assumptions,
            party=self.party,
        )
        return scale, entry


def unit_name(design: Design) -> str:
    """Return the unit of privacy that a report names."""
    return "record" if design.schema is None or design.schema.unit is None else design.schema.unit


def assumed(design: Design, *, data_bounds: bool) -> tuple[str, ...]:
    """Return what every ledger line of a release on `design` takes for granted."""
    clear = design.response_public
    grouped = design.schema is not None and design.schema.unit is not None
    stated = ((True, PUBLIC_N), (clear, CLEAR_RESPONSE), (grouped, PUBLIC_ROWS), (data_bounds, DATA_BOUNDS))
    return tuple(text for holds, text in stated if holds)


def max_rows(design: Design) -> int:
    """Return the public cap on one unit's rows."""
    return 1 if design.schema is None else design.schema.max_rows
