"""Estimating functions that are corrected for the noise law of a release and linear in the coefficients."""

from privinf.inference.corrected_scores.features import CorrectedLeastSquares
from privinf.inference.corrected_scores.mixed import MixedLeastSquares
from privinf.inference.corrected_scores.protocol import LinearScores
from privinf.inference.corrected_scores.records import NoisyRecordMoments
from privinf.inference.corrected_scores.totals import NoisyTotals

__all__ = ["CorrectedLeastSquares", "LinearScores", "MixedLeastSquares", "NoisyRecordMoments", "NoisyTotals"]
