"""The identification statistic: its scale under pure noise, invariances, and what the flag promises."""

from __future__ import annotations

import math

import numpy as np
import pytest
from inference_designs import clean_rows, noisy_features, noisy_records, noisy_totals
from scipy.stats import binom

from privinf.inference.corrected_features import CorrectedLeastSquares
from privinf.inference.score_test import THRESHOLD, identification
from privinf.inference.solution import solve

MAKERS = {"features": (noisy_features, 1.2), "totals": (noisy_totals, 20.0), "records": (noisy_records, 1.0)}


def test_pure_noise_sits_near_minus_one():
    """d = 20: the lower edge of the Marchenko-Pastur law, and of the semicircle for moments."""
    rng = np.random.default_rng(0)
    n, d = 4000, 20
    y = rng.standard_normal(n)
    noise = CorrectedLeastSquares(3.0 * rng.standard_normal((n, d)), y, 9.0 * np.eye(d))
    assert -1.1 < identification(noise).statistic < -0.7
    totals = noisy_totals(rng, np.zeros((n, d)), y, 5.0)
    assert -1.1 < identification(totals).statistic < -0.7
    records = noisy_records(rng, np.zeros((n, 5)), y, 5.0)
    assert -1.3 < identification(records).statistic < -0.2


@pytest.mark.parametrize("kind", list(MAKERS))
def test_without_noise_it_is_infinite(kind):
    rng = np.random.default_rng(1)
    X, y, _ = clean_rows(rng, 50, 2, intercept=True)
    found = identification(MAKERS[kind][0](rng, X, y, 0.0, intercept=True))
    assert (found.statistic, found.weak) == (math.inf, False)


def test_noise_free_columns_are_partialled_out():
    """A private column that is nearly a public one is weak however large it is."""
    rng = np.random.default_rng(2)
    n = 5000
    z = rng.uniform(-1, 1, n)
    x = z + 0.05 * rng.uniform(-1, 1, n)
    y = x + 0.3 * rng.standard_normal(n)
    released = np.column_stack([z, x + 0.5 * rng.standard_normal(n)])
    beside = CorrectedLeastSquares(released, y, np.diag([0.0, 0.25]))
    alone = CorrectedLeastSquares(released[:, 1:], y, [[0.25]])
    assert identification(beside).weak
    assert not identification(alone).weak
    shift = CorrectedLeastSquares(released @ [[1.0, 7.0], [0.0, 1.0]], y, np.diag([0.0, 0.25]))
    assert identification(shift).statistic == pytest.approx(identification(beside).statistic, rel=1e-8)


def test_it_does_not_depend_on_units_or_equal_weights():
    rng = np.random.default_rng(3)
    X, y, _ = clean_rows(rng, 3000, 3)
    X = X + 0.7 * rng.standard_normal(X.shape)
    T = np.diag([1.0, 100.0, 0.01])
    plain = identification(CorrectedLeastSquares(X, y, 0.49 * np.eye(3)))
    scaled = identification(CorrectedLeastSquares(X @ T, y, 0.49 * T @ T))
    weighted = identification(CorrectedLeastSquares(X, y, 0.49 * np.eye(3), weights=np.full(3000, 5.0)))
    assert scaled.statistic == pytest.approx(plain.statistic, rel=1e-8)
    assert weighted.statistic == pytest.approx(plain.statistic, rel=1e-8)
    assert plain.threshold == pytest.approx(THRESHOLD / math.sqrt(3))
    assert identification(CorrectedLeastSquares(X, y, 0.49 * np.eye(3)), threshold=1e9).weak


@pytest.mark.parametrize("kind", list(MAKERS))
def test_unflagged_wald_intervals_miss_at_most_seven_percent(kind):
    rng = np.random.default_rng(4)
    make, scale = MAKERS[kind]
    kept, missed, flagged = 0, 0, 0
    for n in (300, 2000, 6000):
        for _ in range(150):
            X, y, beta = clean_rows(rng, n, 3)
            system = make(rng, X, y, scale)
            solution = solve(system)
            if identification(system).weak or solution.cov is None:
                flagged += 1
                continue
            missed += int(np.sum(np.abs(solution.params - beta) > 1.96 * np.sqrt(np.diag(solution.cov))))
            kept += 3
    assert kept > 150
    assert missed <= binom.ppf(0.999, kept, 0.07)
    assert flagged > 20
