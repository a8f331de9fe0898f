"""ModulatedOLS beyond the conformance suite: estimators, formulas of the paper, options, bad input."""

import importlib.util
import math

import numpy as np
import pandas as pd
import pytest

import privinf as pi
from privinf.inference.corrected_features import CorrectedLeastSquares
from privinf.mechanisms.local.modulation_map import ModulationMap, modulated_message, orthonormal_directions
from privinf.modulation import theory
from privinf.modulation.equation import feature_noise, gradient_path, modulation_system, round_systems
from privinf.noise import SimulationNoise

BETA = np.array([1.0, -0.5, 0.25, 0.0, 0.8])


def sphere(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 5))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return X @ BETA + 0.3 * rng.standard_normal(n), X


def test_fixed_interface():
    y, X = sphere(4000)
    m = pi.ModulatedOLS(y, X, radius=1.0, response="public")
    r = m.fit(epsilon=4.0, delta=1e-5, method="one-shot", rng=0)
    assert isinstance(r.params, pd.Series)
    assert r.params.index.tolist() == ["x1", "x2", "x3", "x4", "x5"]
    assert r.privacy.epsilon(1e-5) == pytest.approx(4.0, rel=1e-9)
    assert r.privacy.rho == pytest.approx(r.privacy.mu**2 / 2)
    assert len(r.privacy.releases) == 1
    test = r.score_test(BETA)
    assert test.df == 5
    assert 0 <= test.pvalue <= 1
    release = m.release(epsilon=4.0, delta=1e-5)
    assert release.secure
    assert release.arrays["features"].shape == (4000, 5)


def test_release_is_read_only_and_in_scaled_units():
    y, X = sphere(500)
    release = pi.ModulatedOLS(y, X, radius=1.0, response="public").release(epsilon=math.inf)
    np.testing.assert_allclose(release.arrays["features"], 0.5 * X, rtol=1e-12)
    with pytest.raises(ValueError, match="read-only"):
        release.arrays["features"][0, 0] = 1.0


def test_iterative_release_and_its_three_estimators():
    y, X = sphere(3000)
    m = pi.ModulatedOLS(y, X, radius=1.0, directions=2, amplitude=0.5, response="public")
    release = m.release(method="iterative", rounds=4, mu=40.0, rng=0, progress=False)
    assert release.arrays["features"].shape == (4, 3000, 5)
    assert release.arrays["directions"].shape == (4, 2, 5)
    assert len(release.entries) == 4
    model = pi.ModulatedOLS.from_release(release)
    average, pooled, last = (model.fit(estimator=e) for e in ("client-average", "pooled", "last"))
    assert np.allclose(average.params, pooled.params, atol=0.2)
    moments = [(s.A, s.g) for s in round_systems(release)]
    path = gradient_path(moments, np.zeros(5), step=0.8, max_norm=None)
    np.testing.assert_allclose(last.params, path[-1])
    for t in range(4):  # directions were kept orthogonal to the server's iterate
        np.testing.assert_allclose(release.arrays["directions"][t] @ path[t], 0.0, atol=1e-9)
    with pytest.raises(pi.errors.NotAvailableError, match="optimization error"):
        _ = last.bse
    assert last.score_test(BETA).pvalue > 0


def test_client_average_of_equal_rounds_is_the_mean_message():
    y, X = sphere(2000)
    release = pi.ModulatedOLS(y, X, radius=1.0, response="public").release(
        method="iterative", rounds=5, mu=20.0, rng=1, progress=False
    )
    system = modulation_system(release, "client-average")
    x = release.arrays["features"].mean(axis=0) / 0.5
    S = np.mean(
        [
            theory.modulation_noise_cov(v, scale=s, contraction=0.5, amplitude=0.1)
            for v, s in zip(release.arrays["directions"], release.noise_model["scales"], strict=True)
        ],
        axis=0,
    )
    np.testing.assert_allclose(system.A, x.T @ x / 2000 - S / 5, atol=1e-12)


def test_unequal_budgets_weigh_the_rounds():
    y, X = sphere(1000)
    m = pi.ModulatedOLS(y, X, radius=1.0, response="public")
    release = m.release(method="iterative", rounds=2, schedule=[1.0, 3.0], mu=2.0, rng=0, progress=False)
    first, second = (entry.loss.mu**2 for entry in release.entries)
    assert second / first == pytest.approx(3.0)
    assert first + second == pytest.approx(4.0)
    # one shot of the same budget has the same noise as the weighted average
    one = m.release(mu=2.0, rng=0)
    scales = np.array(release.noise_model["scales"])
    assert 1 / math.sqrt(np.sum(scales**-2.0)) == pytest.approx(one.noise_model["scales"][0], rel=1e-9)


@pytest.mark.audit
@pytest.mark.parametrize("m", [1, 3])
@pytest.mark.parametrize("orthogonal", [True, False])
def test_theorem_8_1_against_simulation(m, orthogonal):
    rng = np.random.default_rng(1)
    n, d, reps = 200, 4, 6000
    X = rng.uniform(-1, 1, (n, d))
    beta = np.array([1.0, -0.5, 0.4, 0.8])
    y = X @ np.array([0.8, -0.2, 0.5, 0.1]) + 0.3 * rng.standard_normal(n)
    V = orthonormal_directions(np.random.default_rng(7), m, d, orthogonal_to=beta if orthogonal else None)
    parameters = ModulationMap(contraction=0.4, amplitude=1.2, frequency=1.0, directions=m)
    shape = {"contraction": 0.4, "amplitude": 1.2}
    S = theory.modulation_noise_cov(V, scale=0.5, **shape)
    source = SimulationNoise(rng)
    clean = X.T @ (X @ beta - y) / n
    squares = np.empty(reps)
    for k in range(reps):
        x = modulated_message(X, V, 0.5, source, parameters) / 0.6
        squares[k] = np.sum(((x.T @ x / n - S) @ beta - x.T @ y / n - clean) ** 2)
    residual = X @ beta - y
    claim = theory.gradient_variance(
        beta,
        second_moment=X.T @ X / n,
        residual_cross=X.T @ residual / n,
        residual_variance=float(np.mean(residual**2)),
        noise_cov=S,
        directions=V,
        cumulants=theory.modulation_cumulants(V, **shape),
        nobs=n,
    )
    assert abs(squares.mean() / claim - 1) < 4 * squares.std() / squares.mean() / math.sqrt(reps)
    paper = (
        np.mean(residual**2) * (1.44 / 2 + d * 0.25)
        + 2 * 0.25 * beta @ X.T @ residual / n
        + 0.25 * beta @ beta * np.trace(X.T @ X / n)
    ) / (n * 0.36) + beta @ beta * (1.44 * 0.25 / 2 + (d + 1) * 0.0625) / (n * 0.36**2)
    if orthogonal:
        assert paper == pytest.approx(claim, rel=1e-9)
    else:
        assert abs(paper / claim - 1) > 0.05


def test_the_lemmas_behind_theorem_8_1():
    """Lemmas A.1, B.1, C.1, D.1, D.2 and Theorem C.2: the gradient's three blocks and their sizes."""
    rng = np.random.default_rng(2)
    K, d, reps, alpha, lam, sigma = 6, 4, 20_000, 0.4, 1.2, 0.5
    X, y, beta = rng.uniform(-1, 1, (K, d)), rng.uniform(-1, 1, K), np.array([1.0, -0.5, 0.4, 0.8])
    v = orthonormal_directions(rng, 1, d, orthogonal_to=beta)[0]
    C = np.cos(X @ v + rng.uniform(0, 2 * math.pi, (reps, K)))
    noise = sigma * rng.standard_normal((reps, K, d))
    r, q = X @ beta - y, noise @ beta
    T1 = lam * (C @ r)[:, None] * v + np.einsum("rkd,k->rd", noise, r)
    T2 = q @ X
    s, w = (C * q).sum(axis=1), np.einsum("rkd,rk->rd", noise, q)
    centred = w - K * sigma**2 * beta
    T3 = lam * s[:, None] * v + centred
    blocks = (T1 + T2) / (K * (1 - alpha)) + T3 / (K * (1 - alpha) ** 2)
    # A.1: they are the error of the server's gradient, draw by draw
    S = theory.modulation_noise_cov(v[None], scale=sigma, contraction=alpha, amplitude=lam)
    for draw in range(3):
        message = (1 - alpha) * X + lam * C[draw][:, None] * v + noise[draw]
        system = CorrectedLeastSquares(message / (1 - alpha), y, S)
        clean = X.T @ r / K
        np.testing.assert_allclose(system.A @ beta - system.g - clean, blocks[draw], atol=1e-12)
    length2 = beta @ beta
    claims = [
        (C[:, 0] ** 2, 0.5),
        (C[:, 0], 0.0),
        (q[:, 0] ** 2, sigma**2 * length2),  # B.1
        (q[:, 0] * (noise[:, 0] @ v), 0.0),
        (q[:, 0] * (noise[:, 0] @ X[1]), sigma**2 * beta @ X[1]),
        (q[:, 0] * (noise[:, 0] ** 2).sum(axis=1), 0.0),  # equation 33
        (q[:, 0] ** 2 * (noise[:, 0] ** 2).sum(axis=1), sigma**4 * (d + 2) * length2),
        (
            ((T1 + T2) ** 2).sum(axis=1),
            r @ r * (lam**2 / 2 + d * sigma**2)  # C.1
            + 2 * sigma**2 * beta @ X.T @ r
            + sigma**2 * length2 * (X**2).sum(),
        ),
        ((T1 * T3).sum(axis=1), 0.0),
        ((T2 * T3).sum(axis=1), 0.0),  # C.2
        (s**2, K * sigma**2 * length2 / 2),
        (s * (w @ v), 0.0),  # D.1
        ((centred**2).sum(axis=1), K * sigma**4 * length2 * (d + 1)),
        ((T3**2).sum(axis=1), K * length2 * (lam**2 * sigma**2 / 2 + (d + 1) * sigma**4)),  # D.2
    ]
    for draws, claim in claims:
        assert draws.mean() == pytest.approx(claim, abs=4.5 * draws.std() / math.sqrt(reps))


def binding_table(n, beta, radius, bound):
    """Records at which Corollary 9.1 is reached: x_i = R beta/|beta|, y_i = -M."""
    return np.tile(radius * beta / np.linalg.norm(beta), (n, 1)), np.full(n, -bound)


def share(V, beta):
    """The share of |beta|^2 in the span of V."""
    return min(1.0, float(((V @ beta) ** 2).sum() / (beta @ beta)))


def simulated_variance(X, y, beta, V, shape, scale, response_noise, rng, reps):
    """Mean and standard error of ||G - grad L||^2 over releases of the same rows."""
    keep, parameters = 1.0 - shape["contraction"], ModulationMap(directions=len(V), **shape)
    S = theory.modulation_noise_cov(V, scale=scale, **shape)
    n, d = X.shape
    clean = X.T @ (X @ beta - y) / n
    x = modulated_message(np.tile(X, (reps, 1)), V, scale, SimulationNoise(rng), parameters) / keep
    x = x.reshape(reps, n, d)
    seen = y + math.sqrt(response_noise) * rng.standard_normal((reps, n))
    gradient = (x * (x @ beta - seen)[..., None]).mean(axis=1) - S @ beta
    squares = ((gradient - clean) ** 2).sum(axis=1)
    return squares.mean(), squares.std() / math.sqrt(reps)


@pytest.mark.parametrize("mu", [0.1, 0.7, 4.0, 20.0])
@pytest.mark.parametrize(("n", "d", "m", "length"), [(1, 1, 1, 1.0), (4, 3, 1, 0.3), (20, 10, 2, 5.0)])
def test_corollary_9_1_is_above_every_simulation_and_reached_at_the_binding_table(mu, n, d, m, length):
    """Any V and V orthogonal to beta, y in clear and protected; what a mutant would give is far below."""
    radius, bound, reps, rng = 1.0, 2.0, 1500, np.random.default_rng([n, int(10 * mu)])
    shape = {"contraction": 0.5, "amplitude": 0.8}
    scale = 0.5 * 2.0 * radius / mu
    given = {
        "beta_norm": length,
        "feature_norm": radius,
        "response_norm": bound,
        "scale": scale,
        "dimension": d,
        "nobs": n,
        "directions": m,
        **shape,
    }
    for protected, lie in ((a, b) for a in (False, True) for b in ("any", "orthogonal", "along")):
        if lie == "orthogonal" and m == d:
            continue
        beta = rng.standard_normal(d)
        V = orthonormal_directions(rng, m, d, orthogonal_to=beta if lie == "orthogonal" else None)
        beta = V[0] if lie == "along" else beta
        beta = length * beta / np.linalg.norm(beta)
        tau2 = (2.0 * bound / mu) ** 2 if protected else 0.0
        claim = {**given, "alignment": share(V, beta), "response_noise": tau2}
        assert theory.variance_bound(**claim) <= theory.variance_bound(**{**claim, "alignment": 1.0})
        most = theory.variance_bound(**claim)
        X = rng.standard_normal((n, d))
        X *= radius / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), radius)
        for table in ((X, rng.uniform(-bound, bound, n)), binding_table(n, beta, radius, bound)):
            mean, error = simulated_variance(*table, beta, V, shape, scale, tau2, rng, reps)
            assert mean <= most + 4.5 * error
        assert most <= 1.5 * mean
        if lie != "any":
            assert most == pytest.approx(mean, abs=4.5 * error)
        if mu < 0.5:  # where these terms weigh: without the dimension, without the response's noise
            wrong = [{"dimension": 1}] * (d > 1) + [{"response_noise": 0.0}] * protected
            assert all(theory.variance_bound(**{**claim, **one}) < mean - 4.5 * error for one in wrong)


@pytest.mark.parametrize("lie", ["orthogonal", "along"])
@pytest.mark.parametrize("response_noise", [0.0, 5.0])
def test_corollary_9_1_is_the_exact_variance_at_the_binding_table(lie, response_noise):
    """With little noise in the features too, where the response's noise times R^2 is what weighs."""
    rng, n, d, shape = np.random.default_rng(8), 7, 4, {"contraction": 0.5, "amplitude": 0.3}
    beta = rng.standard_normal(d)
    V = orthonormal_directions(rng, 2, d, orthogonal_to=beta if lie == "orthogonal" else None)
    beta = 1.5 * V[0] if lie == "along" else beta
    X, y = binding_table(n, beta, 1.2, 2.0)
    residual = X @ beta - y
    exact = theory.gradient_variance(
        beta,
        second_moment=X.T @ X / n,
        residual_cross=X.T @ residual / n,
        residual_variance=float(np.mean(residual**2)),
        response_noise=response_noise,
        nobs=n,
        directions=V,
        noise_cov=theory.modulation_noise_cov(V, scale=0.1, **shape),
        cumulants=theory.modulation_cumulants(V, **shape),
    )
    bound = theory.variance_bound(
        beta_norm=float(np.linalg.norm(beta)),
        feature_norm=1.2,
        response_norm=2.0,
        scale=0.1,
        dimension=d,
        nobs=n,
        directions=2,
        alignment=share(V, beta),
        response_noise=response_noise,
        **shape,
    )
    assert bound == pytest.approx(exact, rel=1e-9)


def test_corollary_9_1_is_the_papers_where_the_paper_has_it():
    B, R, M, sigma, alpha, lam, d, K = 1.5, 1.2, 2.0, 0.7, 0.4, 1.1, 5, 30
    reach, keep = R * B + M, 1.0 - alpha
    first = reach**2 * (lam**2 / 2 + d * sigma**2) + 2 * sigma**2 * B * R * reach + sigma**2 * B**2 * R**2
    paper = (first + B**2 * (lam**2 * sigma**2 / 2 + (d + 1) * sigma**4) / keep**2) / (K * keep**2)
    given = {
        "beta_norm": B,
        "feature_norm": R,
        "response_norm": M,
        "scale": sigma,
        "contraction": alpha,
        "amplitude": lam,
        "dimension": d,
        "nobs": K,
        "directions": 2,
    }
    assert theory.variance_bound(**given, alignment=0.0) == pytest.approx(paper)
    assert theory.variance_bound(**given) > paper


@pytest.mark.parametrize("mu", [0.1, 1.0, 20.0])
@pytest.mark.parametrize("options", [{}, {"method": "iterative", "rounds": 3, "progress": False}])
def test_a_results_bound_holds_for_its_own_gradient(mu, options):
    """The exact variance, of the clean rows and the release's noise, at any coefficients in the ball."""
    y, X = sphere(300)
    model = pi.ModulatedOLS(y, X, radius=1.0, y_bounds=(-3, 3), directions=2)
    r = model.fit(mu=mu, rng=0, **options)
    noise, tau2 = feature_noise(r.release), r.release.noise_model["response_scale"] ** 2
    bound = r.variance_bound(beta_norm=1.5)
    clean = modulation_system(model.release(epsilon=math.inf, rng=0))
    for seed in range(5):
        beta = np.random.default_rng(seed).normal(size=5)
        beta *= 1.5 / np.linalg.norm(beta)
        exact = theory.gradient_variance(
            beta,
            second_moment=clean.A,
            residual_cross=clean.A @ beta - clean.g,
            residual_variance=clean.residual_variance(beta),
            noise_cov=noise.cov,
            directions=noise.directions,
            cumulants=noise.cumulants,
            nobs=300,
            response_noise=tau2,
        )
        assert exact <= bound
    assert r.variance_bound(beta_norm=1.5, alignment=0.0) < bound
    with pytest.raises(pi.errors.ArgumentError, match="alignment"):
        r.variance_bound(beta_norm=1.5, alignment=1.5)


def test_lemma_d_3_against_simulation():
    rng = np.random.default_rng(0)
    V, h = orthonormal_directions(rng, 2, 4), np.array([0.8, -0.3, 1.1, 0.4])
    phases = rng.uniform(0.0, 2.0 * math.pi, (40_000, 2))
    moved = np.cos(3.0 * V @ h + phases) - np.cos(phases)
    squares = ((0.6 * h + 1.5 / math.sqrt(2) * moved @ V) ** 2).sum(axis=1)
    shape = {"contraction": 0.4, "amplitude": 1.5, "frequency": 3.0}
    claim = theory.expected_expansion(h, V, **shape)
    assert claim == pytest.approx(squares.mean(), abs=4.5 * squares.std() / 200)
    # below the square of the Lipschitz constant of Theorem 7.2 times the distance
    assert claim < (ModulationMap(directions=2, sensitivity="lipschitz", **shape).lipschitz() ** 2) * (h @ h)


def test_theorem_9_2_corrected_holds_and_as_printed_fails():
    """Rounds from the solution, at step 1/L: what is left is noise, which K divides once."""
    rng = np.random.default_rng(3)
    n, d, reps, rounds, scale = 40, 3, 300, 40, 0.5
    shape = {"contraction": 0.5, "amplitude": 0.8}
    X = rng.uniform(-0.5, 0.5, (n, d))
    y = X @ np.array([0.5, -0.5, 0.2]) + rng.uniform(-0.2, 0.2, n)
    Sigma, cross = X.T @ X / n, X.T @ y / n
    best, L = np.linalg.solve(Sigma, cross), np.linalg.eigvalsh(Sigma)[-1]
    beta, total = np.tile(best, (reps, 1)), np.zeros((reps, d))
    for _ in range(rounds):
        total += beta
        V = orthonormal_directions(rng, 1, d)
        x = modulated_message(np.tile(X, (reps, 1)), V, scale, SimulationNoise(rng), ModulationMap(**shape))
        x = x.reshape(reps, n, d) / 0.5
        S = theory.modulation_noise_cov(V, scale=scale, **shape)
        errors = np.einsum("rnd,rd->rn", x, beta) - y
        beta = beta - (np.einsum("rnd,rn->rd", x, errors) / n - beta @ S) / L
        beta /= np.maximum(1.0, np.linalg.norm(beta, axis=1, keepdims=True) / 2.0)
    gap = total / rounds - best
    excess = 0.5 * np.einsum("rd,de,re->r", gap, Sigma, gap)
    given = {"scale": scale, "dimension": d, "nobs": n, **shape}
    reach = {"feature_norm": np.linalg.norm(X, axis=1).max(), "response_norm": abs(y).max()}
    uniform = theory.variance_bound(beta_norm=2.0, **reach, **given)
    V = orthonormal_directions(rng, 1, d)
    here = theory.gradient_variance(
        best,
        second_moment=Sigma,
        residual_cross=Sigma @ best - cross,
        nobs=n,
        directions=V,
        residual_variance=np.mean((X @ best - y) ** 2),
        cumulants=theory.modulation_cumulants(V, **shape),
        noise_cov=theory.modulation_noise_cov(V, scale=scale, **shape),
    )
    found, error = excess.mean(), excess.std() / math.sqrt(reps)
    bounds = [
        theory.convergence_bound(smoothness=L, distance=0.0, rounds=rounds, variance=variance)
        for variance in (here, uniform)
    ]
    assert found < bounds[0] < bounds[1]
    assert found > 4.5 * error + bounds[0] / n


def test_convergence_bound():
    y, X = sphere(3000)
    r = pi.ModulatedOLS(y, X, radius=1.0, y_bounds=(-3, 3)).fit(mu=20.0, rng=0)
    assert r.convergence_bound(distance=1.0, rounds=10, variance=r.variance_bound(beta_norm=1.5)) > 0
    # Theorem 9.2 corrected: twice the rounds, half the first term
    a = theory.convergence_bound(smoothness=2.0, distance=1.0, rounds=10, variance=0.0)
    assert a == pytest.approx(0.1)
    b = theory.convergence_bound(smoothness=2.0, distance=0.0, rounds=10, variance=0.4)
    assert b == pytest.approx(0.1)


def test_reconstruction_bounds():
    common = {"dimension": 3, "scales": [1.0], "contraction": 0.5, "frequency": 1.0, "directions": 1}
    flat = theory.reconstruction_bound(**common, amplitude=0.0)
    assert flat == pytest.approx(1.0 / 0.25)
    hidden = theory.reconstruction_bound(**common, amplitude=2.0, phase="unknown")
    known = theory.reconstruction_bound(**common, amplitude=2.0, phase="known")
    # knowing the phase helps the attacker; not knowing it makes the modulation noise along v
    assert known < flat < hidden
    assert known == pytest.approx(1.0 / (0.25 + 4.0 / 2 / 3))
    twice = theory.reconstruction_bound(**(common | {"scales": [1.0, 1.0]}), amplitude=0.0)
    assert twice == pytest.approx(flat / 2)
    clear = theory.reconstruction_bound(**common, amplitude=0.0, beta_norm=1.0, error_variance=0.5)
    assert clear < flat


@pytest.mark.parametrize("m", [1, 3])
def test_the_bound_given_a_phase_is_that_of_the_jacobian(m):
    """Bound (18) of Theorem 6.3 by finite differences of the client's map, and its average over phases."""
    rng, d, alpha, lam, omega, sigma = np.random.default_rng(m), 4, 0.4, 1.2, 1.5, 0.5
    V = orthonormal_directions(rng, m, d)
    x, phi, b = rng.uniform(-0.5, 0.5, d), rng.uniform(0, 2 * math.pi, m), rng.standard_normal(d)

    def client(x):
        return (1 - alpha) * x + lam / math.sqrt(m) * np.cos(omega * V @ x + phi) @ V

    steps = 1e-6 * np.eye(d)
    jacobian = np.array([(client(x + step) - client(x - step)) / 2e-6 for step in steps]).T
    information = jacobian.T @ jacobian / sigma**2 + np.outer(b, b) / 0.7
    common = {"dimension": d, "scales": [sigma], "contraction": alpha, "amplitude": lam, "frequency": omega}
    common |= {"directions": m, "beta_norm": np.linalg.norm(b), "error_variance": 0.7, "phase": "known"}
    bound = theory.reconstruction_bound(**common, angles=[omega * V @ x + phi])
    assert bound == pytest.approx(d / np.trace(information), rel=1e-6)
    assert bound <= np.trace(np.linalg.inv(information)) / d
    # Corollary 6.4 averages the denominator; equally spaced angles have this average.
    grid = 2 * math.pi * np.arange(8) / 8
    bounds = [theory.reconstruction_bound(**common, angles=[[angle] * m]) for angle in grid]
    average = theory.reconstruction_bound(**common)
    assert 1 / average == pytest.approx(np.mean(1 / np.array(bounds)))
    assert min(bounds) < average < max(bounds)
    for wrong in ({"angles": [[0.1] * (m + 1)]}, {"angles": [[0.1] * m], "phase": "unknown"}):
        with pytest.raises(pi.errors.ArgumentError, match="angles="):
            theory.reconstruction_bound(**common | wrong)


def test_the_claims_on_parameters_in_sections_7_and_10():
    """Of the paper's sensitivity L only one of two terms falls by sqrt m, and no alpha above zero pays."""
    alpha, lam, omega, multiplier = 0.4, 1.2, 1.5, 2.0

    def scale(m, alpha=alpha):
        words = {"amplitude": lam, "frequency": omega, "sensitivity": "lipschitz"}
        shape = ModulationMap(directions=m, contraction=alpha, **words)
        return multiplier * shape.lipschitz()

    counts = np.array([1, 4, 16, 10_000])
    scales = np.array([scale(m) for m in counts])
    np.testing.assert_allclose(scales / multiplier - (1 - alpha), lam * omega / np.sqrt(counts))
    assert (np.diff(scales) < 0).all()
    # The second moment's bias before the correction, sigma^2 + lambda^2/(2m) along V, falls to a limit.
    bias = scales**2 + lam**2 / (2 * counts)
    assert bias[2] / bias[0] < 1 / math.sqrt(counts[2])
    assert bias[3] / bias[0] > 1 / math.sqrt(counts[3])
    assert bias[3] > multiplier**2 * (1 - alpha) ** 2
    # Section 10: every term depends on sigma/(1 - alpha) = c (1 + lambda omega/((1 - alpha) sqrt m)).
    alphas = np.linspace(0.0, 0.9, 10)
    ratios = np.array([scale(4, a) / (1 - a) for a in alphas])
    assert (np.diff(ratios) > 0).all()


def test_fisher_information_of_the_wave():
    assert theory.wave_information(0.0, 0.7) == pytest.approx(1 / 0.49, rel=1e-6)
    # against a Monte Carlo of the squared score
    rng = np.random.default_rng(0)
    z = 1.5 * np.cos(rng.uniform(0, 2 * math.pi, 200_000)) + 0.8 * rng.standard_normal(200_000)
    centers = 1.5 * np.cos(math.pi * (np.arange(400) + 0.5) / 400)
    kernel = np.exp(-0.5 * ((z[:20_000, None] - centers) / 0.8) ** 2)
    score = (kernel * (z[:20_000, None] - centers) / 0.64).sum(axis=1) / kernel.sum(axis=1)
    assert theory.wave_information(1.5, 0.8) == pytest.approx(np.mean(score**2), rel=0.03)


def test_unbiased_attack_respects_the_bound():
    """g/(1-alpha) is an unbiased reconstruction; its error is at least the bound."""
    x = np.tile([[0.3, -0.1, 0.2]], (50_000, 1))
    V = orthonormal_directions(np.random.default_rng(0), 1, 3)
    g = modulated_message(x, V, 0.5, SimulationNoise(1), ModulationMap(amplitude=0.8)) / 0.5
    bound = theory.reconstruction_bound(
        dimension=3, scales=[0.5], contraction=0.5, amplitude=0.8, frequency=1.0, directions=1
    )
    assert np.mean((g - x) ** 2) >= bound * 0.99


def test_ridge_and_fuller_are_named_and_do_what_they_say():
    y, X = sphere(3000)
    release = pi.ModulatedOLS(y, X, radius=1.0, response="public").release(mu=25.0, rng=0)
    model = pi.ModulatedOLS.from_release(release)
    plain, ridge = model.fit(), model.fit(ridge=0.5)
    system = modulation_system(release)
    np.testing.assert_allclose(ridge.params, np.linalg.solve(system.A + 0.5 * np.eye(5), system.g))
    np.testing.assert_allclose(ridge.conf_int(), plain.conf_int())
    assert "ridge" in str(ridge.summary()).lower()
    target = model.fit(ridge=0.5, target="penalized")
    assert (target.bse < plain.bse).all()
    np.testing.assert_allclose(target.conf_int().mean(axis=1), ridge.params)
    fuller = model.fit(stabilization="fuller")
    assert "Fuller" in str(fuller.summary())
    assert not np.allclose(fuller.params, plain.params, rtol=1e-6)
    sample = model.fit(target="sample")
    assert (sample.bse < plain.bse).all()
    for bad in (
        {"ridge": -1.0},
        {"ridge": 1.0, "stabilization": "fuller"},
        {"stabilization": "ridge"},
        {"fuller": 3.0},
        {"target": "penalized"},
        {"target": "all"},
    ):
        with pytest.raises(pi.errors.ArgumentError):
            model.fit(**bad)


def test_public_columns_travel_in_clear_and_only_if_declared():
    y, X = sphere(2000)
    z = np.linspace(0, 1, 2000)
    frame = pi.add_constant(pd.DataFrame(X, columns=list("abcde"))).assign(z=z)
    m = pi.ModulatedOLS(y, frame, radius=1.0, public=["z"], response="public")
    release = m.release(mu=2.0)
    np.testing.assert_array_equal(release.arrays["public"], np.column_stack([np.ones(2000), z]))
    assert release.arrays["features"].shape == (2000, 5)
    # a column of ones that nobody declared is protected like any other
    undeclared = pi.ModulatedOLS(y, np.column_stack([np.ones(2000), X]), radius=2.0, response="public")
    assert undeclared.release(mu=2.0).arrays["features"].shape == (2000, 6)


def test_declared_constant_must_be_one():
    y, X = sphere(100)
    frame = pd.DataFrame(X, columns=list("abcde")).assign(const=2.0)
    with pytest.raises(pi.errors.SchemaError, match="const"):
        pi.ModulatedOLS(y, frame, radius=1.0, public=["const"], response="public").fit(mu=1.0, rng=0)


def test_bounds_from_the_data_warn_and_mark_the_report():
    y, X = sphere(200)
    with pytest.warns(pi.errors.DataDependentBoundsWarning):
        m = pi.ModulatedOLS(y, X, bounds="data", response="public")
    r = m.fit(mu=1.0, rng=0)
    assert any("bounds" in text for text in r.privacy.assumptions)
    assert "from the data, NOT protected" in str(r.summary())


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"X": lambda X: np.where(np.arange(X.size).reshape(X.shape) == 7, np.nan, X)}, "SchemaError", "x3"),
        ({"X": lambda X: np.where(np.arange(X.size).reshape(X.shape) == 7, np.inf, X)}, "SchemaError", "x3"),
        ({"y": lambda y: np.r_[np.nan, y[1:]]}, "SchemaError", "y"),
        ({"y": lambda y: y[:-1]}, "ArgumentError", "rows"),
        ({"X": lambda X: X[:3], "y": lambda y: y[:3]}, "AlignmentError", "too few"),
        ({"X": lambda X: X[None]}, "ArgumentError", "dimension"),
        ({"radius": None}, "SensitivityError", "bounds"),
        ({"radius": -1.0}, "ArgumentError", "radius"),
        ({"radius": None, "bounds": [(1, 0)] * 5}, "SchemaError", "x1"),
        ({"radius": None, "bounds": [(1, 1)] * 5}, "SchemaError", "x1"),
        ({"radius": None, "bounds": [(0, 1)] * 4}, "SchemaError", "bounds"),
        ({"public": ["nobody"]}, "SchemaError", "nobody"),
        ({"y_bounds": (2, 1)}, "SchemaError", "y"),
        ({"contraction": 1.0}, "ArgumentError", "contraction"),
        ({"directions": 6}, "ArgumentError", "directions"),
        ({"sensitivity": "none"}, "ArgumentError", "exact"),
        ({"weights": np.ones(100)}, "NotAvailableError", "weight"),
    ],
)
def test_bad_input_is_refused_before_anything_is_spent(change, error, words):
    y, X = sphere(100)
    arguments = {"y": y, "X": X, "radius": 1.0, "response": None if "y_bounds" in change else "public"}
    for name, value in change.items():
        arguments[name] = value(arguments[name]) if callable(value) else value
    ledger = pi.Ledger()
    with pytest.raises(getattr(pi.errors, error), match=words) as caught:
        pi.ModulatedOLS(arguments.pop("y"), arguments.pop("X"), ledger=ledger, **arguments).fit(mu=1.0, rng=0)
    assert ledger.entries == ()
    assert isinstance(caught.value, pi.errors.PrivinfError)


def test_options_that_do_not_belong_are_refused():
    y, X = sphere(300)
    m = pi.ModulatedOLS(y, X, radius=1.0, response="public")
    with pytest.raises(pi.errors.ArgumentError, match="iterative"):
        m.fit(mu=1.0, rounds=3, rng=0)
    with pytest.raises(pi.errors.ArgumentError, match="iterative"):
        m.fit(mu=1.0, estimator="pooled", rng=0)
    release = m.release(mu=1.0, rng=0)
    with pytest.raises(pi.errors.ArgumentError, match="from a release"):
        pi.ModulatedOLS.from_release(release).fit(epsilon=1.0)
    with pytest.raises(pi.errors.AlignmentError, match="moments"):
        pi.MomentOLS.from_release(release)
    with pytest.raises(pi.errors.NotAvailableError, match="rows"):
        pi.ModulatedOLS.from_release(release).release(mu=1.0)
    with pytest.raises(pi.errors.ArgumentError):
        pi.ModulatedOLS.from_release("release.npz")
    assert len(m.ledger.entries) == 1


def test_no_option_is_accepted_and_ignored():
    y, X = sphere(300)
    m = pi.ModulatedOLS(y, X, radius=1.0, response="public")
    one = m.release(mu=1.0, rng=0)
    rounds = m.release(mu=1.0, rng=0, method="iterative", rounds=2, progress=False)
    refused = [
        lambda: pi.ModulatedOLS.from_release(one).fit(step=0.5),
        lambda: pi.ModulatedOLS.from_release(rounds).fit(max_norm=2.0),
        lambda: pi.ModulatedOLS(y, X, radius=1.0, response_share=0.3, response="public"),
        lambda: m.fit(mu=1.0, rng=0, source="opendp"),
        lambda: m.fit(mu=1.0, rng=0, calibration="classic"),
        lambda: pi.ModulatedOLS(y, X, radius=1.0, ledger="book", response="public").fit(mu=1.0, rng=0),
        lambda: pi.MomentOLS(y, X, radius=1.0, y_bounds=(-2, 2)).fit(mu=9.0, rng=0, robust_share=0.3),
        lambda: pi.MomentOLS(y, X, radius=1.0, y_bounds=(-2, 2), trust="local").fit(
            mu=9.0, rng=0, robust_share=0.3
        ),
    ]
    for attempt in refused:
        with pytest.raises(pi.errors.ArgumentError):
            attempt()
    assert len(m.ledger.entries) == 3
    last = pi.ModulatedOLS.from_release(rounds)
    loose, tight = (last.fit(estimator="last", max_norm=size).params for size in (None, 1e-3))
    assert np.linalg.norm(tight) <= 1e-3 < np.linalg.norm(loose)


def test_several_rows_a_person_cluster_the_scores():
    rng = np.random.default_rng(0)
    people, rows = 400, 3
    person = np.repeat(np.arange(people), rows)
    x = np.repeat(rng.uniform(-1, 1, people), rows)
    y = 0.5 * x + np.repeat(rng.normal(0, 0.3, people), rows)
    frame = pd.DataFrame({"id": person, "x": x, "y": y.clip(-2, 2)})
    schema = pi.Schema({"x": (-1, 1), "y": (-2, 2)}, unit="id", max_rows=3)
    r = pi.ModulatedOLS.from_formula("y ~ x", frame, schema=schema).fit(epsilon=math.inf)
    import statsmodels.api as sm

    theirs = sm.OLS.from_formula("y ~ x", frame).fit(
        cov_type="cluster", cov_kwds={"groups": person, "use_correction": False}, use_t=False
    )
    np.testing.assert_allclose(r.bse, theirs.bse, rtol=1e-8)
    assert r.privacy.unit == "id"
    assert any("which rows belong" in text for text in r.privacy.assumptions)
    crowded = pi.Schema({"x": (-1, 1), "y": (-2, 2)}, unit="id", max_rows=2)
    model = pi.ModulatedOLS.from_formula("y ~ x", frame, schema=crowded)
    with pytest.raises(pi.errors.AlignmentError, match="max_rows"):
        model.fit(mu=1.0, rng=0)


def test_missing_values_are_imputed_from_public_numbers():
    schema = pi.Schema({"x": (0, 4), "y": (-1, 1)})
    frame = pd.DataFrame({"x": [0.0, 1.0, np.nan, 4.0], "y": [0.1, 0.2, 0.3, np.nan]})
    release = pi.ModulatedOLS.from_formula("y ~ x", frame, schema=schema, missing="impute-public").release(
        epsilon=math.inf
    )
    np.testing.assert_allclose(release.arrays["features"][:, 0] / 0.5, [-1.0, -0.5, 0.0, 1.0])
    np.testing.assert_allclose(release.arrays["response"], [0.1, 0.2, 0.3, 0.0], atol=1e-12)


def test_weak_identification_warns_where_normal_inference_is_asked():
    y, X = sphere(40_000)
    r = pi.ModulatedOLS(y, X, radius=1.0, response="public").fit(epsilon=4.0, delta=1e-5, rng=0)
    assert r.identification.weak
    assert r.estimate.cov is not None
    for ask in (r.conf_int, lambda: r.t_test("x1 = 0"), lambda: r.wald_test("x1 = x2")):
        with pytest.warns(pi.errors.WeakIdentificationWarning, match="weak"):
            ask()
    assert "replaced by score" in str(r.summary())
    assert len(r.weakly_identified)
    score = r.conf_int(method="score").to_numpy()
    assert (score[:, 0] < r.params.to_numpy()).all()
    assert (score[:, 1] > r.params.to_numpy()).all()


def test_a_release_from_another_schema_is_refused():
    frame = pd.DataFrame({"x": np.linspace(-1, 1, 50), "y": np.linspace(-1, 1, 50)})
    schema = pi.Schema({"x": (-1, 1), "y": (-1, 1)})
    release = pi.Modulation(schema, "y ~ x").release(frame, mu=1.0)
    pi.ModulatedOLS.from_release(release, schema=schema)
    with pytest.raises(pi.errors.AlignmentError, match="another schema"):
        pi.ModulatedOLS.from_release(release, schema=pi.Schema({"x": (-1, 2), "y": (-1, 1)}))


@pytest.mark.audit
@pytest.mark.parametrize("options", [{}, {"method": "iterative", "rounds": 2, "estimator": "pooled"}])
def test_noise_part_of_the_covariance_is_the_spread_over_releases(options):
    """Same rows, noise drawn again: most of it here is that of the protected response."""
    y, X = sphere(3000)
    m = pi.ModulatedOLS(y, X, radius=1.0, y_bounds=(-3, 3), response_share=0.1)
    rng, fits = np.random.default_rng(0), []
    for _ in range(300):
        fits.append(m.fit(mu=30.0, rng=rng, **options, **({"progress": False} if options else {})))
    spread = np.std([f.params for f in fits], axis=0)
    claimed = np.sqrt(np.mean([np.asarray(f.bse_privacy) ** 2 for f in fits], axis=0))
    assert (np.abs(spread / claimed - 1) < 5 / math.sqrt(2 * 300)).all()
    # the sampling error is what is left: close to that of least squares on the clean rows
    assert np.median([f.bse_sampling for f in fits]) == pytest.approx(math.sqrt(0.09 * 5 / 3000), rel=0.15)


def test_convergence_bound_refuses_impossible_numbers():
    with pytest.raises(pi.errors.ArgumentError, match="smoothness"):
        theory.convergence_bound(smoothness=0.0, distance=1.0, rounds=5, variance=0.1)
    with pytest.raises(pi.errors.ArgumentError, match="rounds"):
        theory.convergence_bound(smoothness=1.0, distance=1.0, rounds=0, variance=0.1)


def test_clustered_rows_never_get_the_error_of_independent_ones():
    rng = np.random.default_rng(0)
    person = np.repeat(np.arange(2000), 3)
    x = np.repeat(rng.uniform(-1, 1, 2000), 3)
    y = (0.5 * x + np.repeat(rng.normal(0, 0.3, 2000), 3)).clip(-2, 2)
    frame = pd.DataFrame({"id": person, "x": x, "y": y})
    schema = pi.Schema({"x": (-1, 1), "y": (-2, 2)}, unit="id", max_rows=3)
    model = pi.ModulatedOLS.from_formula("y ~ x", frame, schema=schema)
    with pytest.raises(pi.errors.NotAvailableError, match="bse_sampling"):
        _ = model.fit(mu=8.0, rng=0).bse_sampling
    clear = model.fit(mu=300.0, rng=0)  # little noise: the clustered difference is determined
    assert clear.bse_sampling["x"] == pytest.approx(math.sqrt(0.09 * 3 / 2000), rel=0.15)


def test_named_terms_of_the_noise_add_up_to_theorem_8_1():
    y, X = sphere(3000)
    r = pi.ModulatedOLS(y, X, radius=1.0, y_bounds=(-3, 3)).fit(epsilon=20.0, delta=1e-5, rng=0)
    system = modulation_system(r.release, "client-average")
    terms = system.noise_terms(np.linalg.solve(system.A, system.g))
    assert list(terms) == ["feature noise", "feature noise in residuals", "noise on noise", "response noise"]
    assert np.trace(sum(terms.values())) / r.nobs == pytest.approx(r.gradient_variance(), rel=1e-9)


@pytest.mark.audit
def test_a_response_that_nobody_declared_public_is_warned_of_wherever_rows_are_sent(tmp_path):
    """At fit and at release, and at the head of everything that is shown; saying so silences the warning."""
    y, X = sphere(400)
    for send in ("fit", "release"):
        with pytest.warns(pi.errors.UnprotectedResponseWarning, match="y is NOT protected") as told:
            made = getattr(pi.ModulatedOLS(y, X, radius=1.0), send)(epsilon=30.0, delta=1e-6, rng=0)
        assert [one.filename for one in told] == [__file__]
    model = pi.ModulatedOLS(y, X, radius=1.0)
    with pytest.raises(pi.errors.UnprotectedResponseWarning):  # filters make it an error: nothing is charged
        model.fit(epsilon=30.0, delta=1e-6, rng=0)
    assert not model.ledger.entries
    r = pi.ModulatedOLS.from_release(made).fit()  # whoever analyses a release sends nothing
    stated = pi.ModulatedOLS(y, X, radius=1.0, response="public").fit(epsilon=30.0, delta=1e-6, rng=0)
    for result in (r, stated):
        assert result.privacy.response_in_clear
        assert "the response is NOT protected" in str(result.privacy)
        head = str(result.summary()).partition("----")[0]
        assert "y is NOT protected" in head
        assert "y is NOT protected" in str(result.summary(slim=True))
        assert result.to_dict()["facts"]["Response"] == "y is NOT protected"
        assert result.to_dict()["privacy"]["response_in_clear"] is True
    if importlib.util.find_spec("matplotlib"):
        r.report(tmp_path / "page.html")
        assert "y is NOT protected" in (tmp_path / "page.html").read_text()
    protected = pi.ModulatedOLS(y, X, radius=1.0, y_bounds=(-3, 3)).fit(epsilon=30.0, delta=1e-6, rng=0)
    assert not protected.privacy.response_in_clear
    assert "NOT protected" not in str(protected.summary())


def test_what_is_said_of_the_response_fits_its_bounds():
    y, X = sphere(50)
    with pytest.raises(pi.errors.ArgumentError, match="needs public bounds: pass y_bounds"):
        pi.ModulatedOLS(y, X, radius=1.0, response="protected")
    with pytest.raises(pi.errors.ArgumentError, match="leave one of them out"):
        pi.ModulatedOLS(y, X, radius=1.0, response="public", y_bounds=(-3, 3))
    pi.ModulatedOLS(y, X, radius=1.0, response="protected", y_bounds=(-3, 3))


def test_a_response_that_the_schema_declares_public_is_not_warned_of():
    frame = pd.DataFrame({"x": np.linspace(-1, 1, 50), "y": np.linspace(-1, 1, 50)})
    schema = pi.Schema({"x": (-1, 1), "y": pi.Numeric(-1, 1, public=True)})
    r = pi.ModulatedOLS.from_formula("y ~ x", frame, schema=schema).fit(epsilon=30.0, delta=1e-6, rng=0)
    assert "y is NOT protected" in str(r.summary())


def test_without_bounds_there_is_no_bound_and_nothing_is_called_clipped():
    y, X = sphere(400)
    r = pi.ModulatedOLS(y, X, adjacency="unit", response="public").fit(epsilon=30.0, delta=1e-6, rng=0)
    with pytest.raises(pi.errors.NotAvailableError, match="no bounds of the columns are declared"):
        r.variance_bound(beta_norm=1.0, response_norm=1.0)  # it was 9.7e196
    assert "clipped" not in str(r.summary())
    protected = pi.ModulatedOLS(y, X, adjacency="unit", y_bounds=(-3, 3))
    assert "with the response clipped" in protected.fit(epsilon=30.0, delta=1e-6, rng=0).notes[0]
    ball = pi.ModulatedOLS(y, X, radius=1.0, response="public").fit(epsilon=30.0, delta=1e-6, rng=0)
    assert "with rows longer than the public radius shortened to it; y is not clipped" in ball.notes[0]
    assert ball.variance_bound(beta_norm=1.0, response_norm=1.0) < 1e3
    box = pi.ModulatedOLS(y, X, bounds=[(-1, 1)] * X.shape[1], response="public")
    assert "clipped to their public bounds" in box.fit(epsilon=30.0, delta=1e-6, rng=0).notes[0]
