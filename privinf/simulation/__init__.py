"""Simulation: designs with a known truth, a Monte Carlo harness, and the baseline of paper 1."""

from privinf.simulation.coverage import binomial_limits, rates, replicate
from privinf.simulation.designs import Sample, cube_design, sphere_design
from privinf.simulation.dp_fedsgd import FedSGD, dp_fedsgd, paper_rho

__all__ = [
    "FedSGD",
    "Sample",
    "binomial_limits",
    "cube_design",
    "dp_fedsgd",
    "paper_rho",
    "rates",
    "replicate",
    "sphere_design",
]
