r"""The joint covariance of debiased coordinates.

Scores of two targets have the correlation of ``w_j'x`` and ``w_k'x``, estimated on the noisy union Gram by
the symmetrised ``w_j' G~ w_k``, scaled to a unit diagonal. Noise may leave it indefinite: it is projected on
the positive semidefinite matrices, scaled to a unit diagonal again, and brought to the released sampling
variances. The noises of the releases are independent from target to target: they add on the diagonal.
"""

from __future__ import annotations

import numpy as np

from privinf.typing import Floats

# The projection keeps eigenvalues above this, so that the correlation stays invertible.
SMALLEST = 1e-8


def score_correlation(columns: Floats, gram: Floats) -> Floats:
    """Return the correlation matrix of the targets' scores, positive definite with a unit diagonal.

    Parameters
    ----------
    columns : ndarray, shape (size, k)
    gram : ndarray, shape (size, size)

    Notes
    -----
    **Privacy.** Post-processing of the released Gram matrix.
    """
    raw = columns.T @ gram @ columns
    raw = (raw + raw.T) / 2.0
    return _unit_diagonal(_projected(_unit_diagonal(raw)))


def joint_covariance(correlation: Floats, sampling: Floats, privacy: Floats) -> Floats:
    """Return the covariance of debiased coordinates from a correlation and two kinds of variances, (k,)."""
    spread = np.sqrt(sampling)
    return np.asarray(correlation * np.outer(spread, spread) + np.diag(privacy))


def _projected(matrix: Floats) -> Floats:
    values, vectors = np.linalg.eigh(matrix)
    if values[0] >= SMALLEST:
        return matrix
    return np.asarray((vectors * np.maximum(values, SMALLEST)) @ vectors.T)


def _unit_diagonal(matrix: Floats) -> Floats:
    spread = np.sqrt(np.maximum(np.diag(matrix), np.finfo(np.float64).tiny))
    scaled = matrix / np.outer(spread, spread)
    np.fill_diagonal(scaled, 1.0)
    return np.asarray(scaled)
