r"""How the budget of one interval is shared out where parties have parts of their own.

A column is picked when its sum stands out: by peeling k of p columns at a price of r, one needs a sum of
about ``2 sqrt(k / 2r) log p``, and has ``n c``, c the column's correlation with the residual. With s signals
of size b, k of them not yet fitted and an error variance of a quarter of the signals' (a public guess),
1/c^2 is about ``(k b^2 + s b^2 / 4) / b^2 = k + s/4``: the price is in proportion to
``k (k + s/4) (log p)^2 / n^2``, whatever the budget, so that its share grows as rho falls. Noise of
coefficients, whose sum grows as k^2, and of Gram matrices matters less: their shares grow slowly. What is
left goes to the score.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

# Factors of (log p)^2 k (k + s/4) / (rho n^2), and shares at rho n^2 = REFERENCE; found in simulations.
PICKING = 6.4
ERROR_SHARE = 0.25
NEIGHBOUR_SUM = 5e4
REFERENCE = 3e5
SCALES, SLOPES = 0.025, 0.03
LEAST_SCORE = 0.25
SEPARATE_GRAMS = 0.15


@dataclass(frozen=True, slots=True)
class MachineSize:
    """The size of a request: rows of all parties and of a typical one, columns, columns picked."""

    total: int
    rows: int
    p: int
    shared: int
    own: int
    sparsity: int
    neighbours: int


def machine_shares(
    rho: float, size: MachineSize, *, targets: int = 1, joint: bool = False, machine: bool = False
) -> dict[str, float]:
    """Return the default shares of one interval's rho, or of a joint one; they sum to one.

    Parameters
    ----------
    rho : float
    size : MachineSize
    targets : int
        Whose intervals share a joint budget.
    joint, machine : bool
        Whether the budget is joint, and whether neighbours and precision columns are each party's own.

    Notes
    -----
    **Privacy.** A function of public numbers.
    """
    one, every = rho * size.rows**2, rho * size.total**2
    near = NEIGHBOUR_SUM * size.neighbours * (targets if joint else 1) / (one if machine else every)
    gram = _within(0.03 * (REFERENCE / one) ** 0.4, 0.02, 0.07)
    shares = {
        "selection": _within(_picking(size.shared, size, every), 0.015, 0.2),
        "refit": _within(0.1 * (REFERENCE / every) ** 0.25, 0.02, 0.12),
        "scales": SCALES,
        "own_selection": _within(_picking(size.own, size, one), 0.15, 0.33),
        "own_refit": _within(0.04 * (REFERENCE / one) ** 0.25 * math.sqrt(size.own), 0.08, 0.18),
        "neighbours": _within(near, 0.004, 0.12 if joint or machine else 0.05),
        "gram": SEPARATE_GRAMS if joint or machine else gram,
        "slopes": SLOPES,
    }
    used = sum(shares.values())
    if used > 1.0 - LEAST_SCORE:
        shares = {name: share * (1.0 - LEAST_SCORE) / used for name, share in shares.items()}
    return shares | {"score": 1.0 - sum(shares.values())}


def _picking(picks: int, size: MachineSize, strength: float) -> float:
    return PICKING * picks * (picks + ERROR_SHARE * size.sparsity) * math.log(size.p) ** 2 / strength


def _within(share: float, low: float, high: float) -> float:
    return min(max(share, low), high)
