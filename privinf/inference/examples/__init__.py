"""Estimating functions of released examples, nonlinear in the coefficients: roots, tests, intervals."""

from privinf.inference.examples.noise import LabelNoise, ResponseColumns
from privinf.inference.examples.root import Root, solve_root
from privinf.inference.examples.start import regression_calibration
from privinf.inference.examples.system import Correction, ExampleScores, Loss

__all__ = [
    "Correction", "ExampleScores", "LabelNoise", "Loss", "ResponseColumns", "Root", "regression_calibration",
    "solve_root",
]  # fmt: skip
