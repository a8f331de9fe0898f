"""Simulation: designs with a known truth, party releases drawn from sums, Monte Carlo, DP-SGD."""

from privinf.simulation.adassp import AdaSSPFit, adassp
from privinf.simulation.coverage import binomial_limits, rates, replicate
from privinf.simulation.designs import Sample, cube_design, sphere_design
from privinf.simulation.dp_fedsgd import FedSGD, dp_fedsgd, paper_rho
from privinf.simulation.examples import (
    classification_design,
    examples_target,
    labelled_examples,
    staged_examples,
)
from privinf.simulation.lasso import LassoDesign, LassoSample, lasso_design
from privinf.simulation.lasso_baselines import debiased_lasso, naive_split
from privinf.simulation.lasso_tables import paper_design, paper_table
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
    "AdaSSPFit",
    "FedSGD",
    "LassoDesign",
    "LassoSample",
    "MixedRows",
    "PeopleSums",
    "Sample",
    "adassp",
    "binomial_limits",
    "classification_design",
    "cube_design",
    "debiased_lasso",
    "dp_fedsgd",
    "examples_target",
    "labelled_examples",
    "lasso_design",
    "mixed_rows_limit",
    "mixing_design",
    "mixing_sums",
    "naive_split",
    "noisy_rows_gram",
    "paper_design",
    "paper_rho",
    "paper_table",
    "rates",
    "replicate",
    "sphere_design",
    "staged_examples",
]
