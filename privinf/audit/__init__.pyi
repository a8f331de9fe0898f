from .likelihood import AuditResult as AuditResult
from .likelihood import TradeoffBounds as TradeoffBounds
from .likelihood import audit_mechanism as audit_mechanism
from .likelihood import binomial_bounds as binomial_bounds
from .likelihood import gaussian_log_ratio as gaussian_log_ratio
from .likelihood import lower_bounds as lower_bounds
from .likelihood import tradeoff_mu as tradeoff_mu
from .likelihood import wave_log_density as wave_log_density
from .sensitivity import SensitivitySearch as SensitivitySearch
from .sensitivity import search_sensitivity as search_sensitivity

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
