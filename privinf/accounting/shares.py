"""A part of a budget: what a share of it comes to, rounded down, so that all parts never exceed the whole."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from privinf.accounting.budget import ROUNDING
from privinf.errors import ArgumentError
from privinf.validation import check_positive


def part_of_mu(mu: float, share: float) -> float:
    """Return the mu of a share of mu^2, in which Gaussian mechanisms add up; infinite without noise."""
    return mu if math.isinf(mu) else mu * math.sqrt(share * ROUNDING)


def part_of_rho(rho: float, share: float) -> float:
    """Return the rho of a share of rho, which adds up in zCDP."""
    return share * rho * ROUNDING


def check_shares(shares: Mapping[str, float], names: Sequence[str]) -> dict[str, float]:
    """Return the shares given, one for each name, positive and of sum one; else ArgumentError."""
    if not isinstance(shares, Mapping) or set(shares) != set(names):
        raise ArgumentError(f"shares= must be a mapping with a share for each of {', '.join(names)}")
    for name, share in shares.items():
        check_positive(share, f"shares[{name!r}]")
    if abs(sum(shares.values()) - 1.0) > 1e-9:
        raise ArgumentError(f"shares= must sum to 1, but its values sum to {sum(shares.values()):.6g}")
    return {name: float(share) for name, share in shares.items()}
