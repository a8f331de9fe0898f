"""What a secure sum will cost and on which grid it goes, before anybody is asked."""

from __future__ import annotations

import math
from dataclasses import dataclass

from privinf.accounting import ConcentratedLoss, GaussianLoss, LedgerEntry, Loss, Sensitivity
from privinf.errors import ArgumentError, SensitivityError
from privinf.federation.rounds import assumed
from privinf.mechanisms.gaussian import FLOAT_SLACK
from privinf.mechanisms.statistics.ops import Reach
from privinf.noise.source import GRID_BITS
from privinf.typing import SumRelation

# Times by which the grid may raise a sensitivity before the release is refused as too large for its budget.
LARGEST_GROWTH = 2.0**10

HONEST = "the sites on the roster follow the protocol, except for so many as are counted as colluding"
UNIFORM = "masks are indistinguishable from uniform words (X25519, HKDF-SHA256, ChaCha20)"


@dataclass(frozen=True, slots=True)
class SumPlan:
    """A secure sum's noise and its ledger line.

    Attributes
    ----------
    grid : float
        Unit of the integers, a power of two.
    site_scale : float
        Sd of the noise of one site; 0 without noise.
    entry : LedgerEntry
    """

    grid: float
    site_scale: float
    entry: LedgerEntry


def plan_sum(
    reach: Reach,
    mu: float,
    *,
    label: str,
    op: str,
    sites: int,
    colluding: int,
    rows: int,
    grid_bits: int = GRID_BITS,
    secure: bool = True,
    relation: SumRelation = "replace-one",
) -> SumPlan:
    """Return the noise that the sites less the colluding ones must add for a price of `mu`.

    Parameters
    ----------
    reach : Reach
    mu : float
        Infinity adds no noise.
    label, op : str
        For the ledger.
    sites : int
        On the roster.
    rows : int
        Of the largest site; 1 where sites are the units.
    grid_bits : int
        The noise of one site spans 2^grid_bits to twice as many steps.
    secure : bool
        False for simulation noise.
    relation : {"replace-one", "zero-out"}

    Raises
    ------
    ArgumentError
        No honest site is left.
    SensitivityError
        The grid's own share of the sensitivity would outgrow the budget.
    """
    carriers, moved = sites - colluding, reach.sensitivity(relation)
    if carriers < 1:
        raise ArgumentError(f"max_colluding={colluding} leaves no honest site among {sites}")
    if math.isinf(mu):
        most = 4.0 * sites * (rows * reach.bound) / 2.0**63
        grid, site_scale, total = math.ldexp(1.0, math.frexp(most)[1]), 0.0, moved
        loss: Loss = GaussianLoss(mu)
    else:
        grid, site_scale, total = solve_grid(moved, reach.size, mu, carriers, grid_bits)
        loss = GaussianLoss(mu) if grid_bits >= GRID_BITS else ConcentratedLoss(mu * mu / 2.0)
    secure = secure and site_scale > 0.0
    source = "lattice" if secure else ("simulation" if site_scale > 0.0 else "none")
    entry = LedgerEntry(
        mechanism="gaussian",
        label=label,
        unit=reach.unit,
        relation=relation,
        trust="secure-sum",
        sensitivity=Sensitivity(norm="l2", value=total, derivation=f"{op}: {reach.derivation}; rounding"),
        noise={
            "law": "none" if site_scale == 0.0 else "discrete gaussian",
            "scale": site_scale * math.sqrt(carriers),
            "grid": grid,
            "sites": sites,
            "colluding": colluding,
            "threshold": sites,  # how many must answer: all; a word that digests of questions hold
        },
        loss=loss,
        source=source,
        secure=secure,
        assumptions=(assumed(reach, relation), HONEST, UNIFORM),
    )
    return SumPlan(grid, site_scale, entry)


def solve_grid(
    moved: float, size: int, mu: float, carriers: int, grid_bits: int
) -> tuple[float, float, float]:
    """Return (grid, sd of one site's noise, sensitivity with the grid's share) for a price of `mu`."""
    sensitivity = total = moved * (1.0 + FLOAT_SLACK)
    for _ in range(64):
        scale = total / (mu * math.sqrt(carriers)) * (1.0 + 2.0**-50)
        grid = math.ldexp(1.0, math.frexp(scale)[1] - 1 - grid_bits)
        enough = sensitivity + grid * math.sqrt(size)
        if enough <= total:
            return grid, scale, total
        total = enough * (1.0 + 2.0**-50)
        if total > LARGEST_GROWTH * sensitivity:
            break
    raise SensitivityError(
        f"mu={mu:g} is too small for {size} numbers on the noise grid: spend more or release fewer"
    )
