"""Estimating functions of released examples, nonlinear in the coefficients: roots, tests, intervals."""

from privinf.inference.examples.identification import identification
from privinf.inference.examples.interval import score_interval
from privinf.inference.examples.noise import LabelNoise, ResponseColumns
from privinf.inference.examples.root import Root, solve_root
from privinf.inference.examples.score_test import noise_inflation, score_test
from privinf.inference.examples.start import chosen_truncation, regression_calibration, series_bias
from privinf.inference.examples.system import Correction, ExampleScores
from privinf.typing import Loss

__all__ = [
    "Correction",
    "ExampleScores",
    "LabelNoise",
    "Loss",
    "ResponseColumns",
    "Root",
    "chosen_truncation",
    "identification",
    "noise_inflation",
    "regression_calibration",
    "score_interval",
    "score_test",
    "series_bias",
    "solve_root",
]
