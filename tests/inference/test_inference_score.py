"""Score test and score sets: size, invariance, exact sets in one dimension, projections in several."""

from __future__ import annotations

import math

import numpy as np
import pytest
from inference_designs import clean_rows, noisy_features, noisy_records, noisy_totals
from scipy.optimize import minimize
from scipy.stats import binom, chi2

from privinf.errors import ArgumentError, NotPositiveDefiniteError
from privinf.inference.corrected_features import CorrectedLeastSquares
from privinf.inference.score_sets import ScoreSet, score_sets
from privinf.inference.score_test import ScoreTestResult, score_test

MAKERS = {"features": (noisy_features, 2.0), "totals": (noisy_totals, 20.0), "records": (noisy_records, 1.0)}


def inside_binomial(count, trials, p=0.05, level=0.9999):
    low, high = binom.interval(level, trials, p)
    return low <= count <= high


@pytest.mark.audit
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("kind", list(MAKERS))
def test_size_under_strong_noise(kind, intercept):
    rng = np.random.default_rng(10)
    make, scale = MAKERS[kind]
    trials, rejected = 1500, 0
    for _ in range(trials):
        X, y, beta = clean_rows(rng, 1000, 2, intercept=intercept)
        rejected += score_test(make(rng, X, y, scale, intercept=intercept), beta[-2:]).pvalue < 0.05
    assert inside_binomial(rejected, trials)


@pytest.mark.audit
def test_size_at_the_reference_cell_with_an_intercept_and_a_public_covariate():
    """n = 5000, d = 5, sphere, mu .268: the Wald test of the truth rejects 71% of the time here."""
    rng = np.random.default_rng(11)
    n, sd, beta = 5000, 2.0 / 0.268, np.array([1.0, -0.5, 0.25, 0.0, 0.8])
    cov = np.diag([0.0, 0.0] + [sd**2] * 5)
    trials, rejected = 400, 0
    for _ in range(trials):
        x = rng.standard_normal((n, 5))
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        z = rng.standard_normal(n) + x[:, 0]
        y = x @ beta + 0.5 + 0.7 * z + 0.3 * rng.standard_normal(n)
        released = np.column_stack([np.ones(n), z, x + sd * rng.standard_normal(x.shape)])
        rejected += score_test(CorrectedLeastSquares(released, y, cov), beta).pvalue < 0.05
    assert inside_binomial(rejected, trials)


def test_noise_free_columns_are_concentrated_out_exactly():
    """Least squares of y - x'b on z first: the same statistic by the long way."""
    rng = np.random.default_rng(12)
    X, y, beta = clean_rows(rng, 500, 2, intercept=True)
    system = noisy_features(rng, X, y, 0.5, intercept=True)
    released, S = system._X, system.noise_cov[1:, 1:]
    z, x = released[:, :1], released[:, 1:]
    b = beta[1:] + 0.1
    r = y - x @ b - z @ np.linalg.lstsq(z, y - x @ b, rcond=None)[0]
    psi = (x - z @ np.linalg.lstsq(z, x, rcond=None)[0]) * r[:, None] + S @ b
    mean = psi.mean(axis=0)
    long_way = 500 * mean @ np.linalg.solve(np.cov(psi.T, bias=True), mean)
    found = score_test(system, b)
    assert found.statistic == pytest.approx(long_way, rel=1e-10)
    assert found.df == 2
    assert found.pvalue == pytest.approx(chi2.sf(long_way, 2), rel=1e-10)


def test_statistic_vanishes_at_the_estimate_and_ignores_units():
    rng = np.random.default_rng(13)
    X, y, _ = clean_rows(rng, 800, 3, intercept=True)
    X = X + np.pad(0.5 * rng.standard_normal((800, 3)), ((0, 0), (1, 0)))
    S = np.diag([0.0, 0.25, 0.25, 0.25])
    T = np.diag([1.0, 10.0, 0.1, 3.0])
    system, scaled = CorrectedLeastSquares(X, y, S), CorrectedLeastSquares(X @ T, y, T @ S @ T)
    estimate = np.linalg.solve(system.A, system.g)[1:]
    assert score_test(system, estimate).statistic == pytest.approx(0.0, abs=1e-18 * 800)
    units = np.array([10.0, 0.1, 3.0])
    b = np.array([0.3, 0.2, -0.5])
    assert score_test(scaled, b / units).statistic == pytest.approx(score_test(system, b).statistic)
    moved = [s.mapped(1.0 / u).hull for s, u in zip(score_sets(system)[1:], units, strict=True)]
    np.testing.assert_allclose([s.hull for s in score_sets(scaled)[1:]], moved, rtol=1e-5)


def test_tested_columns_may_include_public_ones_but_never_leave_out_noise():
    rng = np.random.default_rng(14)
    X, y, beta = clean_rows(rng, 2000, 2, intercept=True)
    system = noisy_features(rng, X, y, 0.5, intercept=True)
    every = score_test(system, beta, tested=np.array([True, True, True]))
    assert (every.df, every.pvalue > 1e-4) == (3, True)
    assert score_test(system, tested=np.array([True, True, True])).pvalue < 1e-6
    with pytest.raises(ArgumentError, match="released with noise"):
        score_test(system, tested=np.array([True, True, False]))
    with pytest.raises(ArgumentError, match="2 values"):
        score_test(system, beta)
    with pytest.raises(ArgumentError, match="booleans"):
        score_test(system, tested=np.array([1, 1, 1]))
    clean = noisy_features(rng, X, y, 0.0, intercept=True)
    with pytest.raises(ArgumentError, match="there is nothing to test"):
        score_test(clean)


def test_dependent_scores_are_refused():
    system = CorrectedLeastSquares(np.ones((50, 2)), np.arange(50.0), np.zeros((2, 2)))
    every = np.array([True, True])
    with pytest.raises(NotPositiveDefiniteError, match="collinear"):
        score_test(system, tested=every)
    with pytest.raises(NotPositiveDefiniteError, match="collinear"):
        score_sets(system, tested=every)


def closed_form(system, alpha=0.05):
    """The set of one coefficient from the roots of n (g - A b)^2 = c V(b)."""
    C, critical = system.tensor()[:, :, 0, 0], chi2.isf(alpha, 1)
    a, g, n = system.A[0, 0], system.g[0], system.n
    coefficients = n * np.array([a * a, -2 * a * g, g * g])
    coefficients -= critical * np.array([C[0, 0], C[0, 1] + C[1, 0], C[1, 1]])
    roots = np.sort(np.roots(coefficients))
    if np.iscomplexobj(roots):
        return ((-math.inf, math.inf),)
    if coefficients[0] > 0:
        return ((roots[0], roots[1]),)
    return ((-math.inf, roots[0]), (roots[1], math.inf))


@pytest.mark.parametrize("kind", list(MAKERS))
def test_one_coefficient_agrees_with_the_quadratic(kind):
    rng = np.random.default_rng(15)
    make = MAKERS[kind][0]
    shapes = set()
    for scale in np.geomspace(0.02, 1.0, 25) * {"features": 6.0, "totals": 200.0, "records": 8.0}[kind]:
        X, y, _ = clean_rows(rng, 200, 1)
        system = make(rng, X, y, scale)
        if kind == "totals" and np.linalg.eigvalsh(system._second_moments)[0] < 0:
            continue
        (found,) = score_sets(system)
        expected = closed_form(system)
        np.testing.assert_allclose(found.pieces, expected, rtol=1e-6)
        shapes.add((len(expected), math.isinf(expected[0][0])))
    assert {(1, False), (1, True)} <= shapes
    assert kind == "totals" or (2, True) in shapes


def smallest_elsewhere(system, column, value, rng, starts=10):
    """min T over the other coefficients at b_column = value, by a general optimiser."""
    C, n = system.tensor(), system.n

    def statistic(others):
        b = np.insert(others, column, value)
        w = np.append(b, 1.0)
        psi = system.g - system.A @ b
        return n * psi @ np.linalg.solve(np.einsum("k,l,klab->ab", w, w, C), psi)

    centre = np.delete(np.linalg.solve(system.A, system.g), column)
    found = [
        minimize(statistic, centre + spread * rng.standard_normal(len(centre)), method="BFGS").fun
        for spread in np.r_[0.0, np.geomspace(0.1, 30.0, starts)]
    ]
    return min(found)


@pytest.mark.audit
@pytest.mark.parametrize(("n", "sd"), [(400, 0.5), (3000, 1.2), (3000, 1.7)])
def test_ends_of_projected_sets_are_on_the_boundary(n, sd):
    rng = np.random.default_rng(16)
    X, y, _ = clean_rows(rng, n, 3)
    system = noisy_features(rng, X, y, sd)
    critical, finite = chi2.isf(0.05, 3), 0
    for column, found in enumerate(score_sets(system)):
        estimate = np.linalg.solve(system.A, system.g)[column]
        assert estimate in found
        for end in (end for piece in found.pieces for end in piece if math.isfinite(end)):
            finite += 1
            assert smallest_elsewhere(system, column, end, rng) == pytest.approx(critical, rel=1e-5)
        low, high = found.hull
        if found.bounded:
            for value in (low - 0.3 * (high - low), high + 0.3 * (high - low), high + 30 * (high - low)):
                assert smallest_elsewhere(system, column, value, rng) > critical
    assert finite or sd > 1


@pytest.mark.audit
def test_sets_cover_at_least_nominally_and_are_unbounded_when_weak():
    rng = np.random.default_rng(17)
    covered, unbounded, trials = 0, 0, 60
    for _ in range(trials):
        X, y, beta = clean_rows(rng, 300, 2, intercept=True)
        sets = score_sets(noisy_features(rng, X, y, 1.5, intercept=True))
        covered += all(b in found for b, found in zip(beta, sets, strict=True))
        unbounded += not sets[1].bounded
    assert covered >= binom.ppf(1e-4, trials, 0.95)
    assert unbounded > trials / 2


def test_noise_free_columns_get_sets_with_one_more_degree_of_freedom():
    rng = np.random.default_rng(18)
    X, y, _ = clean_rows(rng, 4000, 2, intercept=True)
    system = noisy_features(rng, X, y, 0.3, intercept=True)
    constant, first, second = score_sets(system)
    assert (constant.df, first.df, second.df) == (3, 2, 2)
    (only,) = score_sets(system, [0], alpha=0.2)
    assert constant.hull[0] < only.hull[0] < only.hull[1] < constant.hull[1]
    critical = chi2.isf(0.05, 3)
    for end in constant.hull:
        assert smallest_elsewhere(system, 0, end, rng, 3) == pytest.approx(critical, rel=1e-5)


def test_sets_map_to_other_units():
    found = ScoreSet(((-math.inf, -1.0), (2.0, math.inf)), 0.95, 1)
    assert found.mapped(-2.0, 1.0).pieces == ((-math.inf, -3.0), (3.0, math.inf))
    assert found.hull == (-math.inf, math.inf)
    assert not found.bounded
    assert (0.0 in found, 2.0 in found) == (False, True)
    with pytest.raises(ArgumentError):
        found.mapped(0.0)
    system = CorrectedLeastSquares(np.eye(3), np.ones(3), np.eye(3))
    with pytest.raises(ArgumentError, match="columns"):
        score_sets(system, [3])
    with pytest.raises(ArgumentError, match="alpha"):
        score_sets(system, alpha=1.0)


def test_a_result_prints_one_readable_line():
    result = ScoreTestResult(statistic=12.3456, pvalue=0.00021, df=2, null=np.zeros(2))
    assert str(result) == repr(result) == "<Score test: chi2(2) = 12.35, p-value=0.00021, df=2>"
