"""Sandwich covariances from bread and meat, and meats that noise has made indefinite."""

from __future__ import annotations

import numpy as np

from privinf.typing import Floats


def sandwich(bread: Floats, meat: Floats, n: int) -> Floats:
    """Return ``bread^-1 meat bread^-T / n``, symmetric.

    Parameters
    ----------
    bread : (p, p) array
        Minus the derivative of the mean score, invertible.
    meat : (p, p) array
        n times the covariance of the mean score.
    n : int
        Number of records.
    """
    half = np.linalg.solve(bread, meat)
    cov = np.linalg.solve(bread, half.T) / n
    return (cov + cov.T) / 2


def score_meat(scores: Floats, n: int) -> Floats:
    """Return n times the covariance of the mean of independent scores.

    Parameters
    ----------
    scores : (m, p) array
        One row for each independent unit, scaled so that the mean over rows is the mean over records.
    n : int
        Number of records; equal to m without clusters.

    Notes
    -----
    Centred, divisor m, no small-sample factor: HC0 for records, its clustered form for clusters.
    """
    m = scores.shape[0]
    mean = scores.mean(axis=0)
    meat: Floats = n / m * (scores.T @ scores / m - np.outer(mean, mean))
    return meat


def semidefinite(matrix: Floats) -> Floats:
    """Return the nearest positive semidefinite matrix of the same trace, 0 where that is not positive.

    Cutting negative eigenvalues off alone would raise the trace: a noisy meat would come out too large.
    """
    values, vectors = np.linalg.eigh(matrix)
    total = float(values.sum())
    if total <= 0.0:
        return np.zeros_like(matrix)
    # Projection on a simplex: the largest k for which the k-th value stays positive.
    falling = values[::-1]
    shifts = (np.cumsum(falling) - total) / np.arange(1, len(values) + 1)
    shift = shifts[np.flatnonzero(falling > shifts)[-1]]
    return np.asarray((vectors * np.maximum(values - shift, 0.0)) @ vectors.T)
