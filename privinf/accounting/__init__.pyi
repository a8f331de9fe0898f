from .budget import Budget as Budget
from .budget import Currency as Currency
from .calibration import calibrate_mu as calibrate_mu
from .calibration import classic_mu as classic_mu
from .calibration import split_mu as split_mu
from .composition import ParallelTotal as ParallelTotal
from .composition import Total as Total
from .composition import compose as compose
from .conversions import epsilon_to_rho as epsilon_to_rho
from .conversions import gaussian_delta as gaussian_delta
from .conversions import gaussian_epsilon as gaussian_epsilon
from .conversions import gaussian_mu as gaussian_mu
from .conversions import rho_to_delta as rho_to_delta
from .conversions import rho_to_epsilon as rho_to_epsilon
from .entries import LedgerEntry as LedgerEntry
from .entries import Sensitivity as Sensitivity
from .ledger import Ledger as Ledger
from .losses import ApproximateLoss as ApproximateLoss
from .losses import ConcentratedLoss as ConcentratedLoss
from .losses import GaussianLoss as GaussianLoss
from .losses import Loss as Loss
from .losses import PureLoss as PureLoss
from .losses import ThresholdLoss as ThresholdLoss
from .losses import loss_from_dict as loss_from_dict
from .losses import pure_mu as pure_mu
from .losses import pure_rho as pure_rho
from .planning import PlannedRelease as PlannedRelease
from .planning import PlanReport as PlanReport
from .planning import plan as plan
from .released import Released as Released
from .released import ReleasedNumber as ReleasedNumber
from .report import PrivacyReport as PrivacyReport

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
    "ThresholdLoss",
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
