"""Without noise every system is least squares as statsmodels has it."""

from __future__ import annotations

import numpy as np
import pytest
import statsmodels.api as sm
from inference_designs import clean_rows, isometric, noisy_features, noisy_records, noisy_totals

from privinf.inference.corrected_features import CorrectedLeastSquares
from privinf.inference.solution import solve
from privinf.moments.equation import NoisyTotals
from privinf.moments.records import NoisyRecordMoments

CLOSE = {"rtol": 1e-10, "atol": 1e-13}


@pytest.fixture(scope="module")
def rows():
    return clean_rows(np.random.default_rng(3), 400, 3, intercept=True)[:2]


@pytest.mark.parametrize("make", [noisy_features, noisy_records])
def test_hc0(rows, make):
    X, y = rows
    solution = solve(make(np.random.default_rng(0), X, y, 0.0, intercept=True))
    reference = sm.OLS(y, X).fit(cov_type="HC0")
    np.testing.assert_allclose(solution.params, reference.params, **CLOSE)
    np.testing.assert_allclose(solution.cov, reference.cov_params(), **CLOSE)
    np.testing.assert_allclose(solution.sampling_cov, solution.cov, **CLOSE)
    np.testing.assert_allclose(solution.noise_cov, 0.0, atol=1e-18)
    assert solution.sampling_kind == "heteroskedastic"
    assert solution.cov_type == "HC0"


@pytest.mark.parametrize("make", [noisy_features, noisy_records])
def test_clusters(rows, make):
    X, y = rows
    groups = np.random.default_rng(1).integers(0, 60, len(y))
    solution = solve(make(np.random.default_rng(0), X, y, 0.0, intercept=True, groups=groups))
    options = {"groups": groups, "use_correction": False}
    reference = sm.OLS(y, X).fit(cov_type="cluster", cov_kwds=options)
    np.testing.assert_allclose(solution.cov, reference.cov_params(), **CLOSE)
    assert solution.scores.shape == (60, 4)
    assert solution.cov_type == "cluster"


@pytest.mark.parametrize("make", [noisy_features, noisy_records])
def test_weights(rows, make):
    X, y = rows
    weights = np.random.default_rng(1).uniform(0.5, 2.0, len(y))
    solution = solve(make(np.random.default_rng(0), X, y, 0.0, intercept=True, weights=weights))
    reference = sm.WLS(y, X, weights=weights).fit(cov_type="HC0")
    np.testing.assert_allclose(solution.params, reference.params, **CLOSE)
    np.testing.assert_allclose(solution.cov, reference.cov_params(), **CLOSE)


def test_totals_are_nonrobust(rows):
    X, y = rows
    system = noisy_totals(np.random.default_rng(0), X, y, 0.0, intercept=True)
    solution = solve(system)
    reference = sm.OLS(y, X).fit()
    np.testing.assert_allclose(solution.params, reference.params, **CLOSE)
    np.testing.assert_allclose(solution.cov, reference.cov_params(), **CLOSE)
    assert (solution.cov_type, solution.sampling_kind, solution.scores) == (
        "nonrobust",
        "homoskedastic",
        None,
    )
    assert system.residual_variance(solution.params) == pytest.approx(reference.ssr / len(y), rel=1e-10)
    assert solution.df_resid == reference.df_resid


def test_totals_with_residual_moments_are_hc0(rows):
    X, y = rows
    reference = sm.OLS(y, X).fit(cov_type="HC0")
    z = np.column_stack([X, y])
    H = (X * reference.resid[:, None] ** 2).T @ X / len(y)
    system = NoisyTotals(z.T @ z / len(y), n=len(y), public=1, scale=0.0, residual_moments=H)
    solution = solve(system)
    np.testing.assert_allclose(solution.cov, reference.cov_params(), **CLOSE)
    assert solution.cov_type == "HC0"
    assert not system.residual_projected


@pytest.mark.parametrize("local", [True, False])
def test_columns_come_back_in_the_order_of_the_design(rows, local):
    X, y = rows
    order = np.array([2, 0, 3, 1])
    released = np.empty_like(X)
    released[:, order] = X
    z = np.column_stack([released, 2.0 * y])
    if local:
        public = {"public": np.empty((len(y), 0)), "private": 4}
        system = NoisyRecordMoments(isometric(z, 0), order=order, weight=2.0, scale=0.0, **public)
    else:
        system = NoisyTotals(z.T @ z / len(y), n=len(y), order=order, weight=2.0, scale=0.0)
    np.testing.assert_allclose(solve(system).params, sm.OLS(y, X).fit().params, **CLOSE)


def test_many_blocks_and_clusters_across_them_change_nothing(monkeypatch, rows):
    X, y = rows
    groups = np.random.default_rng(4).integers(0, 15, len(y))
    whole = CorrectedLeastSquares(X, y, np.zeros((4, 4)), groups=groups)
    beta = np.array([0.3, 1.0, 0.0, -1.0])
    expected = whole.meat(beta), whole.tensor(), whole.scores(beta)
    monkeypatch.setattr("privinf.inference.linear_scores.BLOCK", 37)
    blocked = CorrectedLeastSquares(X, y, np.zeros((4, 4)), groups=groups)
    for got, want in zip((blocked.meat(beta), blocked.tensor(), blocked.scores(beta)), expected, strict=True):
        np.testing.assert_allclose(got, want, atol=1e-12)
