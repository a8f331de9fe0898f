r"""Slopes for prediction from mixed rows: regression calibration and a ridge.

The de-biased estimate is for inference: where the rows are mostly noise its error is far larger than that of
no model. Prediction asks for small error instead, and gets it by pulling the slopes towards zero by as much
as the noise makes necessary.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privinf.typing import Floats

# Share of the label's variance that the features explain, as the prior has it; fixed before any data.
PRIOR_RSQUARED = 0.5


@dataclass(frozen=True, slots=True)
class ShrunkFit:
    """Slopes for prediction and the numbers that shrank them.

    Attributes
    ----------
    slopes : ndarray, shape (d,)
        Scaled units.
    kappa : ndarray, shape (d,)
        Share of a mixed column's variance that is not noise: ``E[x | x + noise] = kappa (x + noise)``.
    penalty : ndarray, shape (d,)
        Added to the Gram matrix of the rows ``kappa x``.
    """

    slopes: Floats
    kappa: Floats
    penalty: Floats


def shrunk_slopes(
    X: Floats,
    y: Floats,
    noise: Floats,
    y_noise: float,
    *,
    kept: float,
    signal_bounds: Floats,
    label_variance_bound: float,
    rsquared: float = PRIOR_RSQUARED,
) -> ShrunkFit:
    r"""Return slopes for prediction from centred mixed rows.

    Parameters
    ----------
    X : ndarray, shape (k, d)
        Mixed rows of the features, centred by the means of the all-ones row; scaled units.
    y : ndarray, shape (k,)
        Mixed label, centred likewise.
    noise : ndarray, shape (d,)
        Noise variance of each column.
    y_noise : float
        Noise variance of the label.
    kept : float
        N = (1 - a) n: a mixed row's covariance is ``N H / k`` plus the noise's.
    signal_bounds : ndarray, shape (d,)
        Largest variance of each feature that its public bounds allow.
    label_variance_bound : float
        The same for the label.
    rsquared : float
        R^2 of the prior, in (0, 1).
    """
    k, d = X.shape
    share = kept / k
    variances = _signal_variances(X, noise, share, signal_bounds)
    label = _signal_variances(y[:, None], np.array([y_noise]), share, np.array([label_variance_bound]))[0]
    kappa = variances * share / (variances * share + noise)
    slope_variance = rsquared * label / (variances * d)
    penalty = float(y @ y) / k / slope_variance
    calibrated = X * kappa
    gram = calibrated.T @ calibrated + np.diag(penalty)
    return ShrunkFit(np.linalg.solve(gram, calibrated.T @ y), kappa, penalty)


def _signal_variances(columns: Floats, noise: Floats, share: float, bounds: Floats) -> Floats:
    """Return variances per person from de-biased traces, within 1% and 100% of what the bounds allow."""
    found = (np.mean(columns**2, axis=0) - noise) / share
    return np.asarray(np.clip(found, 0.01 * bounds, bounds), dtype=np.float64)
