"""Empirical checks of privacy guarantees: lower bounds on the loss, and sensitivities.

An audit draws a mechanism on a pair of neighbours and proves, with confidence 99.9%, a lower bound on its
loss. It fails if the bound is above the claim, and is blind if the bound is far below the mechanism's
exact loss on that pair (then it would not have seen a fault either).
"""

from studies.audit.likelihood import (
    AuditResult,
    TradeoffBounds,
    audit_mechanism,
    binomial_bounds,
    gaussian_log_ratio,
    lower_bounds,
    tradeoff_mu,
    wave_log_density,
)
from studies.audit.sensitivity import SensitivitySearch, search_sensitivity

__all__ = [
    "AuditResult",
    "SensitivitySearch",
    "TradeoffBounds",
    "audit_mechanism",
    "binomial_bounds",
    "gaussian_log_ratio",
    "lower_bounds",
    "search_sensitivity",
    "tradeoff_mu",
    "wave_log_density",
]
