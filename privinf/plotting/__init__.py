"""Plots of private fits; they need the extra ``privinf[plots]``, and matplotlib loads on first use."""

from privinf.plotting.coefficients import bands, coefficients
from privinf.plotting.privacy import budget, noise_share

__all__ = ["bands", "budget", "coefficients", "noise_share"]
