"""Models: releases in, results out."""

from privinf.models.modulated_ols import ModulatedOLS
from privinf.models.modulation_results import ModulatedOLSResults
from privinf.models.moment_ols import MomentOLS

__all__ = ["ModulatedOLS", "ModulatedOLSResults", "MomentOLS"]
