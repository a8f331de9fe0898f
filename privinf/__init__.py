"""privinf: statistical inference from private data.

Estimators whose ``fit()`` returns coefficients, standard errors, intervals and tests that account for the
noise added for differential privacy, and a report of what the privacy costs.
"""

from importlib import import_module
from typing import Any

from privinf import errors
from privinf.accounting import Budget, Ledger, LedgerEntry, PrivacyReport, plan
from privinf.mechanisms import (
    GaussianRows,
    LocalExamples,
    MixingPlan,
    Modulation,
    Moments,
    PartyPlan,
    RandomMixing,
    open_table,
)
from privinf.models import BGMOLS, DGMOLS, IWPGLM, RMGMOLS, ModulatedOLS, MomentOLS, join
from privinf.releases import Release, load_release
from privinf.results import Results, compare, load_results
from privinf.schema import Design, Factor, Numeric, Schema, add_constant
from privinf.version import __version__ as __version__

__all__ = [
    "BGMOLS",
    "DGMOLS",
    "DOME",
    "DPSGD",
    "IWPGLM",
    "RMGMOLS",
    "Budget",
    "DPAdam",
    "DebiasedLasso",
    "Design",
    "Factor",
    "FederatedGLM",
    "GaussianRows",
    "Ledger",
    "LedgerEntry",
    "LedgerFile",
    "LocalExamples",
    "MixingPlan",
    "ModulatedOLS",
    "Modulation",
    "MomentOLS",
    "Moments",
    "Newton",
    "Numeric",
    "PartyPlan",
    "PrivacyReport",
    "RandomMixing",
    "RandomSketch",
    "Release",
    "Results",
    "Schema",
    "add_constant",
    "compare",
    "errors",
    "join",
    "load_release",
    "load_results",
    "open_table",
    "plan",
    "sparse_mean",
]

_ON_DEMAND = ("audit", "datasets", "federation", "plotting", "simulation")
_ELSEWHERE = {
    "DOME": "privinf.glm.first_order",
    "DPAdam": "privinf.glm.first_order",
    "DPSGD": "privinf.glm.first_order",
    "DebiasedLasso": "privinf.lasso.model",
    "FederatedGLM": "privinf.glm.model",
    "LedgerFile": "privinf.accounting.files",
    "Newton": "privinf.glm.newton",
    "RandomSketch": "privinf.glm.first_order",
    "sparse_mean": "privinf.lasso.sparse_mean",
}


def __getattr__(name: str) -> Any:
    """Import what a fit does not need when it is first named."""
    if name in _ON_DEMAND:
        return import_module(f"privinf.{name}")
    if name in _ELSEWHERE:
        return getattr(import_module(_ELSEWHERE[name]), name)
    raise AttributeError(f"module 'privinf' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_ON_DEMAND])
