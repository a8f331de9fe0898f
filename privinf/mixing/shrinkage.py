r"""Slopes for prediction from mixed rows: regression calibration and ridges, averaged over plausible values.

The de-biased estimate is for inference: where the rows are mostly noise its error is far larger than that of
no model. Prediction requests small error instead, and gets it by pulling the slopes toward zero by as much
as the noise makes necessary.

Notation: k rows ``x + u``, ``y + v`` with known noise variances; a row's signal has covariance
``share H``, share = N/k, where H is the covariance of one person's features.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privinf.typing import Floats

# The prior, fixed before any data: log variances even between a hundredth of what the public bounds allow and
# all of it.
VARIANCE_RATIOS = np.geomspace(0.01, 1.0, 13)
RSQUARED_GRID = np.linspace(0.025, 0.975, 20) ** 2  # and the multiple correlation even between 0 and 1
# Sample covariances count if their squares add up to this many times those of independent columns.
COVARIANCE_MARGIN = 1.3
# Of the estimated signal, relative to the mean signal: the truth is positive definite.
LEAST_EIGENVALUE = 0.02
# Noise of columns without noise, relative to their signal, so that one set of formulas serves.
LEAST_NOISE = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class ShrunkFit:
    """Slopes for prediction and estimates of the rule.

    Attributes
    ----------
    slopes : ndarray, shape (d,)
        Scaled units.
    variances : ndarray, shape (d,)
        Estimated variance of each feature, per person; scaled units.
    kappa : ndarray, shape (d,)
        Share of a mixed column's variance that is not noise.
    covariance_weight : float
        Weight of the sample covariances between columns, 0 (columns taken as uncorrelated) to 1.
    label_variance, rsquared : float
        Posterior means of the label's variance and of R^2.
    """

    slopes: Floats
    variances: Floats
    kappa: Floats
    covariance_weight: float
    label_variance: float
    rsquared: float


def shrunk_slopes(
    X: Floats,
    y: Floats,
    noise: Floats,
    y_noise: float,
    *,
    kept: float,
    signal_bounds: Floats,
    label_variance_bound: float,
) -> ShrunkFit:
    r"""Return slopes for prediction from centered mixed rows.

    Parameters
    ----------
    X : ndarray, shape (k, d)
        Mixed rows of the features, centered by the means of the all-ones row; scaled units.
    y : ndarray, shape (k,)
        Mixed label, centered likewise.
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

    Notes
    -----
    **Privacy.** Post-processing of the release and public numbers.

    With signal S = share H and noise T = diag(noise), ``E[x | x + u] = K (x + u)``, K = S (S + T)^-1: the
    calibrated rows Z = (x + u) K' predict the label as clean rows would. Given R^2 and the label's variance
    v, slopes of standardized features are normal with mean zero and variance ``w2 = R^2 v / tr C``, C their
    correlation matrix, and the rows leave ``v_e = y_noise + share v (1 - R^2 kappa)``, kappa the share of
    the signal that Z has, so that

    .. math:: w = (Z'Z + (v_e / w2) I)^{-1} Z'y .

    R^2 and v are averaged over a public grid by their likelihood. Variances of features are averaged alike,
    column by column. Covariances enter as far as they stand out of the noise (linear shrinkage of Ledoit
    and Wolf, 2004, with a margin). Where the rows are uninformative the slopes go to zero and the prediction
    to the label's mean. The rule was chosen on simulated designs, not on any data set.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> k, share, noise = 200, 500.0, 100.0
    >>> x = rng.standard_normal((k, 2)) * np.sqrt(share / 3)
    >>> y = x @ [0.6, -0.3] + rng.standard_normal(k) * np.sqrt(noise)
    >>> X = x + rng.standard_normal((k, 2)) * np.sqrt(noise)
    >>> fit = shrunk_slopes(
    ...     X, y, np.full(2, noise), noise, kept=k * share, signal_bounds=np.ones(2), label_variance_bound=1.0
    ... )
    >>> bool((abs(fit.slopes - [0.6, -0.3]) < 0.2).all()), bool((abs(fit.kappa - 0.63) < 0.1).all())
    (True, True)
    """
    k = len(y)
    share = kept / k
    noise = np.maximum(noise, LEAST_NOISE * share * signal_bounds)
    variances = _variances(X, noise, share, signal_bounds)
    scale = np.sqrt(share * variances)
    snr = share * variances / noise
    correlation, weight = _correlation(X / np.sqrt(noise), snr)
    calibrated = (X / scale) @ np.linalg.solve(correlation + np.diag(1.0 / snr), correlation)
    slopes, label_variance, rsquared = _averaged_ridge(
        calibrated, y, y_noise, share * label_variance_bound * VARIANCE_RATIOS, float(np.trace(correlation))
    )
    return ShrunkFit(
        slopes=slopes / scale,
        variances=variances,
        kappa=snr / (1.0 + snr),
        covariance_weight=weight,
        label_variance=label_variance / share,
        rsquared=rsquared,
    )


def _variances(X: Floats, noise: Floats, share: float, bounds: Floats) -> Floats:
    """Return each feature's variance per person, averaged over the grid by the column's likelihood."""
    k = len(X)
    signal = VARIANCE_RATIOS[:, None] * bounds
    total = share * signal + noise
    weights = _weights(-0.5 * (k * np.log(total) + np.sum(X**2, axis=0) / total))
    return np.asarray(np.sum(weights * signal, axis=0), dtype=np.float64)


def _correlation(whitened: Floats, snr: Floats) -> tuple[Floats, float]:
    """Return the correlation matrix of the features and the weight that sample covariances have in it.

    The rows are in units of their noise. For independent columns the off-diagonal sample covariances have
    expected sum of squares `chance`; the excess is signal.
    """
    k, d = whitened.shape
    covariances = whitened.T @ whitened / k
    np.fill_diagonal(covariances, 0.0)
    sum_of_squares = float(np.sum(covariances**2))
    chance = float(np.sum(1.0 + snr) ** 2 - np.sum((1.0 + snr) ** 2)) / k
    weight = max(0.0, 1.0 - COVARIANCE_MARGIN * chance / sum_of_squares) if sum_of_squares > 0.0 else 0.0
    correlation = np.eye(d) + weight * covariances / np.sqrt(np.outer(snr, snr))
    values, vectors = np.linalg.eigh(correlation)
    return (vectors * np.maximum(values, LEAST_EIGENVALUE)) @ vectors.T, weight


def _averaged_ridge(
    rows: Floats, y: Floats, y_noise: float, label_signals: Floats, total: float
) -> tuple[Floats, float, float]:
    """Return the posterior means of slopes, of the label's signal variance a row, and of R^2.

    `total` is the trace of the clean rows' covariance, standardized columns.
    """
    k = len(y)
    values, vectors = np.linalg.eigh(rows.T @ rows)
    values = np.maximum(values, 1e-12 * values.max())
    projected = vectors.T @ (rows.T @ y)
    explained = projected**2 / values
    rest = max(float(y @ y) - float(explained.sum()), 0.0)
    kappa = min(float(values.sum()) / (k * total), 1.0)
    signal, rsquared = (grid.ravel() for grid in np.meshgrid(label_signals, RSQUARED_GRID, indexing="ij"))
    slope_variance = (rsquared * signal / total)[:, None]
    residual_variance = (y_noise + signal * (1.0 - rsquared * kappa))[:, None]
    variance = residual_variance + slope_variance * values
    log_likelihood = -0.5 * (
        np.sum(np.log(variance) + explained / variance, axis=1)
        + (k - len(values)) * np.log(residual_variance[:, 0])
        + rest / residual_variance[:, 0]
    )
    weights = _weights(log_likelihood)
    means = weights @ (slope_variance * projected / variance)
    return vectors @ means, float(weights @ signal), float(weights @ rsquared)


def _weights(log_likelihood: Floats) -> Floats:
    """Return weights that sum to one along the first axis."""
    weights = np.exp(log_likelihood - log_likelihood.max(axis=0))
    return np.asarray(weights / weights.sum(axis=0), dtype=np.float64)
