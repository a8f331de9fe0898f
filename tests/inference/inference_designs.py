"""Made-up designs that the inference tests share."""

from __future__ import annotations

import numpy as np

from privinf.inference.corrected_features import CorrectedLeastSquares
from privinf.moments.equation import NoisyTotals
from privinf.moments.records import NoisyRecordMoments


def clean_rows(rng, n, d, *, intercept=False, sigma=0.3):
    """x uniform in the cube [-1, 1]^d, slopes alternating; (X, y, beta) with the intercept first."""
    x = rng.uniform(-1.0, 1.0, (n, d))
    beta = np.resize([1.0, -0.5, 0.25], d)
    y = x @ beta + sigma * rng.standard_normal(n) * (1.0 + 0.5 * np.abs(x[:, 0]))
    if intercept:
        return np.column_stack([np.ones(n), x]), y + 0.4, np.append(0.4, beta)
    return x, y, beta


def noisy_features(rng, X, y, sd, *, intercept=False, **options):
    """Corrected least squares with Gaussian noise of sd on every private column."""
    public = int(intercept)
    noise = sd * rng.standard_normal(X.shape)
    noise[:, :public] = 0.0
    cov = np.diag(np.append(np.zeros(public), np.full(X.shape[1] - public, sd**2)))
    return CorrectedLeastSquares(X + noise, y, cov, **options)


def isometric(z, public):
    """Isometric entries of z z' for each row, less the public block."""
    rows, columns = np.triu_indices(z.shape[1])
    keep = columns >= public
    rows, columns = rows[keep], columns[keep]
    return z[:, rows] * z[:, columns] * np.where(rows == columns, 1.0, np.sqrt(2.0))


def noisy_totals(rng, X, y, scale, *, intercept=False, weight=0.7):
    """Second moments of (X, weight y) with noise of sd scale on the isometric entries of the sum."""
    z, public = np.column_stack([X, weight * y]), int(intercept)
    q = z.shape[1]
    noise = np.triu(rng.standard_normal((q, q)) / np.sqrt(2.0), 1)
    noise = scale * (noise + noise.T + np.diag(rng.standard_normal(q)))
    noise[:public, :public] = 0.0
    return NoisyTotals((z.T @ z + noise) / len(y), n=len(y), public=public, weight=weight, scale=scale)


def noisy_records(rng, X, y, scale, *, intercept=False, weight=0.7, **options):
    """Per-record moments of (X, weight y) with noise of sd scale on each isometric entry."""
    public = int(intercept)
    entries = isometric(np.column_stack([X, weight * y]), public)
    return NoisyRecordMoments(
        entries + scale * rng.standard_normal(entries.shape),
        public=X[:, :public],
        private=X.shape[1] - public,
        weight=weight,
        scale=scale,
        **options,
    )
