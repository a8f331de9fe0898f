"""Simulation: designs with a known truth, party releases drawn from sums, Monte Carlo, DP-SGD."""

from privinf.simulation.coverage import binomial_limits, rates, replicate
from privinf.simulation.designs import Sample, cube_design, sphere_design
from privinf.simulation.dp_fedsgd import FedSGD, dp_fedsgd, paper_rho
from privinf.simulation.examples import (
    classification_design,
    examples_target,
    labelled_examples,
    staged_examples,
)
from privinf.simulation.mixing import (
    MIXING_PARTIES,
    MixedRows,
    PeopleSums,
    mixed_rows_limit,
    mixing_design,
    mixing_sums,
    noisy_rows_gram,
)

__all__ = [
    "MIXING_PARTIES",
    "FedSGD",
    "MixedRows",
    "PeopleSums",
    "Sample",
    "binomial_limits",
    "classification_design",
    "cube_design",
    "dp_fedsgd",
    "examples_target",
    "labelled_examples",
    "mixed_rows_limit",
    "mixing_design",
    "mixing_sums",
    "noisy_rows_gram",
    "paper_rho",
    "rates",
    "replicate",
    "sphere_design",
    "staged_examples",
]
