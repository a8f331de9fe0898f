"""Estimating functions: consistency of their parts, noise laws, variances, weak systems, refusals."""

from __future__ import annotations

import numpy as np
import pytest
from inference_designs import clean_rows, noisy_features, noisy_records, noisy_totals

from privinf.errors import ArgumentError, NotAvailableError, NotPositiveDefiniteError
from privinf.inference.corrected_features import CorrectedLeastSquares
from privinf.inference.solution import score_meat, solve
from privinf.moments.equation import NoisyTotals
from privinf.moments.records import NoisyRecordMoments

MAKERS = {"features": (noisy_features, 0.6), "totals": (noisy_totals, 8.0), "records": (noisy_records, 0.5)}
WEIGHTED = [{}, {"groups": True}, {"weights": True}, {"groups": True, "weights": True}]


def extras(n, flags, seed=9):
    rng = np.random.default_rng(seed)
    values = {"groups": rng.integers(0, n // 4, n), "weights": rng.uniform(0.5, 2.0, n)}
    return {name: values[name] for name in flags}


@pytest.mark.parametrize("flags", WEIGHTED)
@pytest.mark.parametrize("make", [noisy_features, noisy_records])
def test_scores_meat_and_tensor_agree(make, flags):
    rng = np.random.default_rng(0)
    X, y, _ = clean_rows(rng, 300, 3, intercept=True)
    system = make(rng, X, y, 0.4, intercept=True, **extras(300, flags))
    b = rng.standard_normal(4)
    w = np.append(b, 1.0)
    scores = system.scores(b)
    np.testing.assert_allclose(scores.mean(axis=0), system.g - system.A @ b, atol=1e-12)
    np.testing.assert_allclose(score_meat(scores, 300), system.meat(b), rtol=1e-9)
    np.testing.assert_allclose(np.einsum("k,l,klab->ab", w, w, system.tensor()), system.meat(b), rtol=1e-9)


def test_totals_tensor_agrees_with_the_formula():
    rng = np.random.default_rng(0)
    X, y, _ = clean_rows(rng, 300, 3)
    system = noisy_totals(rng, X, y, 3.0)
    b = rng.standard_normal(3)
    noise = 9.0 / 2 / 300 * ((b @ b + 0.7**-2) * np.eye(3) + np.outer(b, b))
    np.testing.assert_allclose(system.noise_meat(b), noise, rtol=1e-12)
    variance = system.residual_variance(b)
    np.testing.assert_allclose(system.null_meat(b), variance * system.A + noise, rtol=1e-12)
    variance += np.trace(np.linalg.solve(system.A, noise)) / 300  # what an estimate takes off
    np.testing.assert_allclose(system.meat(b), variance * 300 / 297 * system.A + noise, rtol=1e-12)


def fourth_moment_noise(rng, n, d, gaussian, amplitude, V):
    """Gaussian plus arcsine noise along the rows of V: (u, covariance, cumulants)."""
    u = gaussian * rng.standard_normal((n, d))
    u += amplitude * np.cos(rng.uniform(0, 2 * np.pi, (n, len(V)))) @ V
    cov = gaussian**2 * np.eye(d) + amplitude**2 / 2 * V.T @ V
    return u, cov, np.full(len(V), -3.0 / 8.0 * amplitude**4)


@pytest.mark.audit
@pytest.mark.parametrize(
    ("flags", "y_sd", "shared"),
    [(f, 0.4, False) for f in WEIGHTED] + [({"groups": True, "weights": True}, 0.8, True)],
)
def test_feature_noise_meat_is_the_covariance_over_the_noise(flags, y_sd, shared):
    rng = np.random.default_rng(1)
    n, d, draws = 150, 3, 6000
    x, y, beta = clean_rows(rng, n, d)
    V = np.linalg.qr(rng.standard_normal((d, 2)))[0].T
    options = extras(n, flags)
    b = beta + np.array([0.3, 0.0, -0.2])
    psi, meats = np.empty((draws, d)), []
    for i in range(draws):
        u, cov, cumulants = fourth_moment_noise(rng, n, d, 0.3, 1.5, V)
        v = rng.standard_normal(n)
        noisy_y = y + y_sd * (v[options["groups"]] if shared else v)
        system = CorrectedLeastSquares(
            x + u,
            noisy_y,
            cov,
            y_noise_var=y_sd**2,
            fourth_directions=V,
            fourth_cumulants=cumulants,
            shared_response_noise=shared,
            **options,
        )
        psi[i] = system.g - system.A @ b
        if i < 400:
            meats.append(system.noise_meat(b))
    truth, estimate = n * np.cov(psi.T), np.mean(meats, axis=0)
    scale = np.sqrt(np.outer(np.diag(truth), np.diag(truth)))
    np.testing.assert_allclose(estimate / scale, truth / scale, atol=0.07)
    # Without the cumulants the noise along V would be overstated by more than that.
    if not flags:
        plain = CorrectedLeastSquares(x + u, noisy_y, cov, y_noise_var=y_sd**2).noise_meat(b)
        assert np.abs((plain - estimate) / scale).max() > 0.1


@pytest.mark.audit
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("kind", ["totals", "records"])
def test_moment_noise_meat_is_the_covariance_over_the_noise(kind, intercept):
    rng = np.random.default_rng(2)
    make, scale = MAKERS[kind]
    X, y, beta = clean_rows(rng, 60, 2, intercept=intercept)
    b = beta + 0.2
    draws = [make(rng, X, y, scale, intercept=intercept) for _ in range(4000)]
    truth = 60 * np.cov(np.array([s.g - s.A @ b for s in draws]).T)
    expected = draws[0].noise_meat(b)
    size = np.sqrt(np.outer(np.diag(truth), np.diag(truth)))
    np.testing.assert_allclose(expected / size, truth / size, atol=0.08)


@pytest.mark.audit
@pytest.mark.parametrize("n", [1000, 4000])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("kind", list(MAKERS))
def test_variance_is_that_of_the_estimate(kind, intercept, n):
    """Mean estimated variance against the Monte Carlo variance: sampling and noise together."""
    rng = np.random.default_rng(3)
    make, scale = MAKERS[kind]
    params, variances, draws = [], [], 700
    for _ in range(draws):
        X, y, beta = clean_rows(rng, n, 2, intercept=intercept)
        solution = solve(make(rng, X, y, scale, intercept=intercept))
        params.append(solution.params)
        variances.append(np.diag(solution.cov))
    ratio = np.mean(variances, axis=0) / np.var(params, axis=0)
    # 5 sds of a sample variance, and the bias of order 1/n of a ratio of noisy moments.
    np.testing.assert_allclose(ratio, 1.0, atol=5 * np.sqrt(2 / draws) * 0.6 + 60 / n)
    z = (np.mean(params, axis=0) - beta) / np.sqrt(np.var(params, axis=0) / draws)
    assert np.abs(z).max() < 4.5


@pytest.mark.audit
@pytest.mark.parametrize("kind", list(MAKERS))
def test_noise_part_is_the_variance_over_the_noise_alone(kind):
    rng = np.random.default_rng(4)
    make, scale = MAKERS[kind]
    X, y, _ = clean_rows(rng, 2000, 2, intercept=True)
    fits = [solve(make(rng, X, y, scale, intercept=True), target="sample") for _ in range(600)]
    ratio = np.mean([np.diag(f.cov) for f in fits], axis=0) / np.var([f.params for f in fits], axis=0)
    np.testing.assert_allclose(ratio, 1.0, atol=0.25)
    assert fits[0].cov_type == "noise only"
    np.testing.assert_array_equal(fits[0].cov, fits[0].noise_cov)


@pytest.mark.parametrize(("sd", "kind"), [(0.05, "heteroskedastic"), (1.0, "homoskedastic")])
def test_clean_error_from_a_noisy_release(sd, kind):
    rng = np.random.default_rng(5)
    X, y, _ = clean_rows(rng, 40000, 2, intercept=True)
    clean = solve(noisy_features(rng, X, y, 0.0, intercept=True))
    noisy = [solve(noisy_features(rng, X, y, sd, intercept=True)) for _ in range(8)]
    assert {fit.sampling_kind for fit in noisy} == {kind}
    if kind == "heteroskedastic":
        reference = clean.cov
    else:
        reference = clean.bread
        reference = np.linalg.inv(reference) * np.mean((y - X @ clean.params) ** 2) / len(y)
    mean = np.mean([np.sqrt(np.diag(fit.sampling_cov)) for fit in noisy], axis=0)
    np.testing.assert_allclose(mean, np.sqrt(np.diag(reference)), rtol=0.05)


@pytest.mark.audit
def test_clean_error_does_not_count_fitted_noise_as_explained():
    """The residual variance at the estimate is a minimum: 4% too small here unless that is given back."""
    rng = np.random.default_rng(15)
    ratios, naive = [], []
    for _ in range(800):
        X, y, beta = clean_rows(rng, 800, 4, sigma=0.6)
        system = noisy_features(rng, X, y, 0.7)
        solution = solve(system)
        meat, kind = system.clean_meat(solution.params)
        assert kind == "homoskedastic"
        truth = np.mean((y - X @ beta) ** 2)
        ratios.append(np.trace(meat) / np.trace(system.A) / truth)
        naive.append(system.residual_variance(solution.params) / truth)
    sd = np.std(ratios) / np.sqrt(800)
    assert abs(np.mean(ratios) - 1.0) < 3.5 * sd
    assert np.mean(naive) < 1.0 - 3.5 * sd


@pytest.mark.parametrize(("kind", "scale"), [("features", 20.0), ("totals", 2000.0), ("records", 30.0)])
def test_weak_systems_are_solved_without_a_covariance(kind, scale):
    reasons = set()
    for seed in range(12):
        rng = np.random.default_rng(seed)
        X, y, _ = clean_rows(rng, 300, 4)
        solution = solve(MAKERS[kind][0](rng, X, y, scale))
        assert np.isfinite(solution.params).all()
        if solution.cov is None:
            reasons.add(solution.weak_reason)
            estimate = solution.estimate(list("abcd"))
            with pytest.raises(NotAvailableError, match="larger than the variation of the columns"):
                estimate.bse
    assert reasons


@pytest.mark.parametrize("y_sd", [0.0, 0.5])
def test_fuller_is_always_positive_definite(y_sd):
    rng = np.random.default_rng(6)
    indefinite = still_indefinite = 0
    for _ in range(40):
        X, y, _ = clean_rows(rng, 400, 3, intercept=True)
        noisy_y = y + y_sd * rng.standard_normal(len(y))
        system = noisy_features(rng, X, noisy_y, 3.0, intercept=True, y_noise_var=y_sd**2)
        solution = solve(system, stabilization="fuller")
        assert np.linalg.eigvalsh(solution.bread)[0] > 0
        assert solution.cov is not None
        np.testing.assert_allclose(solution.scores.mean(axis=0), 0.0, atol=1e-12)
        indefinite += np.linalg.eigvalsh(system.A)[0] <= 0
        still_indefinite += np.linalg.eigvalsh(system.A + (3 + 4) / 400 * system.noise_cov)[0] <= 0
    # The term min(1, l - 1/n) is what does it: shrinking by a/n alone is not enough.
    assert indefinite >= still_indefinite > 10


def test_fuller_differs_little_where_identification_is_strong():
    rng = np.random.default_rng(7)
    X, y, _ = clean_rows(rng, 20000, 3)
    system = noisy_features(rng, X, y, 0.3)
    plain, fuller = solve(system), solve(system, stabilization="fuller", fuller_a=2.0)
    assert 0 < np.abs(plain.params - fuller.params).max() < 0.05 * np.sqrt(np.diag(plain.cov)).min()
    np.testing.assert_allclose(fuller.cov, plain.cov, rtol=0.01)


def test_ridge_reports_a_point_and_infers_from_the_unpenalised_moments():
    rng = np.random.default_rng(8)
    X, y, _ = clean_rows(rng, 5000, 3, intercept=True)
    system = noisy_features(rng, X, y, 0.3, intercept=True)
    plain = solve(system)
    ridge = solve(system, stabilization="ridge", ridge=0.5)
    aimed = solve(system, stabilization="ridge", ridge=0.5, target="penalized")
    penalty = np.diag([0.0, 0.5, 0.5, 0.5])
    np.testing.assert_allclose(ridge.point, np.linalg.solve(system.A + penalty, system.g))
    np.testing.assert_array_equal(ridge.cov, plain.cov)
    np.testing.assert_array_equal(ridge.params, plain.params)
    np.testing.assert_array_equal(aimed.params, ridge.point)
    assert (np.diag(aimed.cov)[1:] < np.diag(plain.cov)[1:]).all()


def test_indefinite_residual_moments_are_projected_and_flagged():
    X, y, _ = clean_rows(np.random.default_rng(0), 200, 2)
    z = np.column_stack([X, y])
    H = np.diag([0.1, -0.01])
    system = NoisyTotals(z.T @ z / 200, n=200, scale=1.0, residual_moments=H)
    assert system.residual_projected
    assert np.linalg.eigvalsh(solve(system).cov)[0] > 0
    assert solve(system).sampling_kind == "heteroskedastic"


@pytest.mark.parametrize(
    "options",
    [
        {"ridge": 1.0},
        {"stabilization": "ridge"},
        {"fuller_a": 3.0},
        {"target": "penalized"},
        {"stabilization": "lasso"},
        {"target": "people"},
        {"stabilization": "ridge", "ridge": -1.0},
    ],
)
def test_options_that_do_not_go_together_are_refused(options):
    system = CorrectedLeastSquares(np.eye(3), np.ones(3), np.zeros((3, 3)))
    with pytest.raises(ArgumentError):
        solve(system, **options)


def test_fuller_of_moments_says_why_not():
    rng = np.random.default_rng(0)
    X, y, _ = clean_rows(rng, 100, 2)
    for make in (noisy_totals, noisy_records):
        with pytest.raises(NotAvailableError, match="ridge"):
            solve(make(rng, X, y, 0.1), stabilization="fuller")


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"y": np.ones(4)}, ArgumentError),
        ({"X": np.full((5, 2), np.nan)}, ArgumentError),
        ({"noise_cov": np.eye(3)}, ArgumentError),
        ({"noise_cov": -np.eye(2)}, NotPositiveDefiniteError),
        ({"y_noise_var": -1.0}, ArgumentError),
        ({"fourth_cumulants": np.ones(1)}, ArgumentError),
        ({"fourth_cumulants": np.ones(1), "fourth_directions": np.ones((1, 3))}, ArgumentError),
        ({"groups": np.ones(5)}, ArgumentError),
        ({"groups": np.ones(4, dtype=int)}, ArgumentError),
        ({"weights": np.zeros(5)}, ArgumentError),
    ],
)
def test_bad_features_are_refused(change, error):
    fields = {"X": np.ones((5, 2)), "y": np.ones(5), "noise_cov": np.eye(2)} | change
    with pytest.raises(error):
        CorrectedLeastSquares(fields.pop("X"), fields.pop("y"), fields.pop("noise_cov"), **fields)


def test_bad_moments_are_refused():
    with pytest.raises(ArgumentError, match="symmetric"):
        NoisyTotals([[1.0, 0.5], [0.0, 1.0]], n=10, scale=1.0)
    with pytest.raises(ArgumentError, match="private column"):
        NoisyTotals(np.eye(2), n=10, public=1, scale=1.0)
    with pytest.raises(ArgumentError, match="permutation"):
        NoisyTotals(np.eye(3), n=10, order=[0, 0], scale=1.0)
    with pytest.raises(ArgumentError, match="residual_moments"):
        NoisyTotals(np.eye(3), n=10, scale=1.0, residual_moments=np.eye(3))
    with pytest.raises(ArgumentError, match="columns"):
        NoisyRecordMoments(np.ones((5, 4)), private=2, scale=1.0)
