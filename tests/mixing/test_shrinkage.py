"""Slopes for prediction: exact posterior, equivariance, limits, and risk on made-up designs."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from privinf.mixing.shrinkage import (
    RSQUARED_GRID,
    VARIANCE_RATIOS,
    ShrunkFit,
    _averaged_ridge,
    _correlation,
    shrunk_slopes,
)


def mixed(rng, cov, slopes, residual, *, kept, k, noise):
    """Return mixed rows of features and label in their Gaussian limit."""
    share, d = kept / k, len(slopes)
    x = rng.standard_normal((k, d)) @ np.linalg.cholesky(cov).T * np.sqrt(share)
    y = x @ slopes + rng.standard_normal(k) * np.sqrt(share * residual)
    return x + rng.standard_normal((k, d)) * np.sqrt(noise), y + rng.standard_normal(k) * np.sqrt(noise)


def fitted(X, y, noise, kept) -> ShrunkFit:
    d = X.shape[1]
    return shrunk_slopes(
        X, y, np.full(d, noise), noise, kept=kept, signal_bounds=np.ones(d), label_variance_bound=1.0
    )


def risk(slopes, truth, cov, residual):
    """Return the error of prediction over the label's variance."""
    missed = slopes - truth
    return (missed @ cov @ missed + residual) / (truth @ cov @ truth + residual)


def drawn(rng, cov, rsquared, variance=0.1):
    slopes = rng.standard_normal(len(cov)) / np.sqrt(np.diag(cov))
    slopes *= np.sqrt(rsquared * variance / (slopes @ cov @ slopes))
    return slopes, (1.0 - rsquared) * variance


def test_ridge_is_the_posterior_mean_of_the_stated_model():
    """Dense normal densities and posterior means at every point of the grid, summed."""
    rng = np.random.default_rng(0)
    k, d, y_noise, total = 25, 3, 2.0, 2.6
    rows, y = rng.standard_normal((k, d)) * 0.8, rng.standard_normal(k) * 2.5
    signals = 30.0 * VARIANCE_RATIOS
    kappa = np.sum(rows**2) / (k * total)
    logs, means, points = [], [], []
    for signal in signals:
        for rsquared in RSQUARED_GRID:
            left, slope = y_noise + signal * (1 - rsquared * kappa), rsquared * signal / total
            cov = left * np.eye(k) + slope * rows @ rows.T
            logs.append(stats.multivariate_normal(np.zeros(k), cov).logpdf(y))
            means.append(slope * rows.T @ np.linalg.solve(cov, y))
            points.append((signal, rsquared))
    weights = np.exp(np.array(logs) - max(logs))
    weights /= weights.sum()
    slopes, signal, rsquared = _averaged_ridge(rows, y, y_noise, signals, total)
    np.testing.assert_allclose(slopes, weights @ np.array(means), rtol=1e-9)
    np.testing.assert_allclose([signal, rsquared], weights @ np.array(points), rtol=1e-9)


def test_units_and_order_of_columns_do_not_matter():
    rng = np.random.default_rng(1)
    cov = 0.2 * (0.5 * np.eye(4) + 0.5)
    X, y = mixed(rng, cov, np.array([0.4, -0.3, 0.0, 0.2]), 0.02, kept=2e5, k=200, noise=300.0)
    noise, bounds, units = np.full(4, 300.0), np.ones(4), np.array([0.1, 1.0, 3.0, 20.0])
    rules = {"kept": 2e5, "label_variance_bound": 1.0}
    base = shrunk_slopes(X, y, noise, 300.0, signal_bounds=bounds, **rules)
    scaled = shrunk_slopes(X * units, y, noise * units**2, 300.0, signal_bounds=bounds * units**2, **rules)
    np.testing.assert_allclose(scaled.slopes * units, base.slopes, rtol=1e-8)
    order = [2, 0, 3, 1]
    permuted = shrunk_slopes(X[:, order], y, noise, 300.0, signal_bounds=bounds, **rules)
    np.testing.assert_allclose(permuted.slopes, base.slopes[order], rtol=1e-8)
    label = shrunk_slopes(
        X, 5.0 * y, noise, 7500.0, kept=2e5, signal_bounds=bounds, label_variance_bound=25.0
    )
    np.testing.assert_allclose(label.slopes, 5.0 * base.slopes, rtol=1e-8)


def test_without_noise_it_is_least_squares_of_the_rows():
    rng = np.random.default_rng(2)
    slopes = np.array([0.4, -0.3, 0.1])
    X, y = mixed(rng, np.eye(3) / 3, slopes, 0.001, kept=1e5, k=2000, noise=0.0)
    found = fitted(X, y, 0.0, 1e5)
    np.testing.assert_allclose(found.slopes, np.linalg.lstsq(X, y, rcond=None)[0], atol=1e-4)
    np.testing.assert_allclose(found.kappa, 1.0)
    assert found.rsquared > 0.9


def test_strong_rows_are_followed_and_read_right():
    rng = np.random.default_rng(3)
    slopes, residual = drawn(rng, np.eye(6) / 3, 0.8)
    X, y = mixed(rng, np.eye(6) / 3, slopes, residual, kept=1e7, k=4000, noise=500.0)
    found = fitted(X, y, 500.0, 1e7)
    np.testing.assert_allclose(found.slopes, slopes, atol=0.03)
    np.testing.assert_allclose(found.variances, 1 / 3, rtol=0.15)
    assert found.label_variance == pytest.approx(0.1, rel=0.15)
    assert found.rsquared == pytest.approx(0.8, abs=0.15)


def test_hopeless_rows_predict_the_mean():
    rng = np.random.default_rng(4)
    cov = np.eye(9) / 3
    for _ in range(20):
        slopes, residual = drawn(rng, cov, 0.5)
        X, y = mixed(rng, cov, slopes, residual, kept=1000.0, k=60, noise=5000.0)
        assert risk(fitted(X, y, 5000.0, 1000.0).slopes, slopes, cov, residual) < 1.02


def test_covariances_count_only_where_they_stand_out():
    rng = np.random.default_rng(5)
    snr = np.full(20, 0.5)
    independent = rng.standard_normal((200, 20)) * np.sqrt(1 + snr)
    correlation, weight = _correlation(independent, snr)
    assert weight == 0.0
    np.testing.assert_allclose(correlation, np.eye(20), atol=1e-12)
    factor = rng.standard_normal((4000, 1)) * np.sqrt(0.4)
    common = factor + rng.standard_normal((4000, 20)) * np.sqrt(1.1)
    correlation, weight = _correlation(common, snr)
    assert weight > 0.9
    assert np.mean(correlation[~np.eye(20, dtype=bool)]) == pytest.approx(0.8, abs=0.1)


def test_correlated_features_gain_from_their_covariances(monkeypatch):
    rng = np.random.default_rng(6)
    loadings = rng.standard_normal((40, 2))
    cov = loadings @ loadings.T + 0.3 * np.eye(40)
    cov *= 0.25 / np.mean(np.diag(cov))
    gains = []
    for _ in range(60):
        slopes, residual = drawn(rng, cov, 0.7)
        X, y = mixed(rng, cov, slopes, residual, kept=3e5, k=300, noise=600.0)
        with_them = risk(fitted(X, y, 600.0, 3e5).slopes, slopes, cov, residual)
        with monkeypatch.context() as patch:
            patch.setattr("privinf.mixing.shrinkage.COVARIANCE_MARGIN", 1e9)
            without = risk(fitted(X, y, 600.0, 3e5).slopes, slopes, cov, residual)
        gains.append(without - with_them)
    assert np.mean(gains) > 3 * np.std(gains) / np.sqrt(len(gains))


@pytest.mark.parametrize("kept", [1e4, 1e5, 1e6])
@pytest.mark.parametrize("rsquared", [0.0, 0.1, 0.4, 0.75])
def test_risk_is_near_the_mean_or_better_on_made_up_designs(kept, rsquared):
    """Never much worse than predicting the mean; better than the de-biased fit where that is weak."""
    rng = np.random.default_rng([int(kept), int(100 * rsquared)])
    cov, found, debiased = np.diag(rng.uniform(0.05, 0.6, 12)), [], []
    for _ in range(60):
        slopes, residual = drawn(rng, cov, rsquared)
        X, y = mixed(rng, cov, slopes, residual, kept=kept, k=100, noise=600.0)
        found.append(risk(fitted(X, y, 600.0, kept).slopes, slopes, cov, residual))
        corrected = np.linalg.solve(X.T @ X - 100 * 600.0 * np.eye(12), X.T @ y)
        debiased.append(risk(corrected, slopes, cov, residual))
    assert np.mean(found) < 1.05
    assert np.median(found) < np.median(debiased)
    if kept == 1e6 and rsquared == 0.75:
        assert np.mean(found) < 0.55
