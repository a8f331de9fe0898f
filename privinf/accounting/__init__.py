"""What releases cost: losses, exact composition, calibration, budgets, ledgers and reports.

This room reads no rows. Losses (:mod:`.losses`) add up exactly (:mod:`.composition`); calibration turns a
promised level into the mu of a Gaussian release; a :class:`Ledger` records every release, refuses those that
would pass its :class:`Budget`, and a :class:`PrivacyReport` says what was promised in the end.
"""

from __future__ import annotations

from privinf.accounting.budget import Budget, Currency
from privinf.accounting.calibration import calibrate_mu, classic_mu, split_mu
from privinf.accounting.composition import ParallelTotal, Total, compose
from privinf.accounting.concentrated import epsilon_to_rho, rho_to_delta, rho_to_epsilon
from privinf.accounting.entries import LedgerEntry, Sensitivity
from privinf.accounting.gaussian import gaussian_delta, gaussian_epsilon, gaussian_mu
from privinf.accounting.ledger import Ledger
from privinf.accounting.losses import (
    ApproximateLoss,
    ConcentratedLoss,
    GaussianLoss,
    Loss,
    PureLoss,
    loss_from_dict,
    pure_mu,
    pure_rho,
)
from privinf.accounting.planning import PlannedRelease, PlanReport, plan
from privinf.accounting.released import Released, ReleasedNumber
from privinf.accounting.report import PrivacyReport

__all__ = [
    "ApproximateLoss",
    "Budget",
    "ConcentratedLoss",
    "Currency",
    "GaussianLoss",
    "Ledger",
    "LedgerEntry",
    "Loss",
    "ParallelTotal",
    "PlanReport",
    "PlannedRelease",
    "PrivacyReport",
    "PureLoss",
    "Released",
    "ReleasedNumber",
    "Sensitivity",
    "Total",
    "calibrate_mu",
    "classic_mu",
    "compose",
    "epsilon_to_rho",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_mu",
    "loss_from_dict",
    "plan",
    "pure_mu",
    "pure_rho",
    "rho_to_delta",
    "rho_to_epsilon",
    "split_mu",
]
