"""One reduced cell of each long simulation of benchmarks/verify.py, judged by binomial limits."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom

import privinf as pi

BETA = np.array([1.0, -0.5, 0.25, 0.0, 0.8])
DELTA = 1e-5


def limits(p, n, cells=1):
    tail = 0.01 / cells / 2
    return binom.ppf(tail, n, p) / n, binom.isf(tail, n, p) / n


def sphere(rng, n):
    x = rng.standard_normal((n, 5))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    return x @ BETA + 0.3 * rng.standard_normal(n), x


@pytest.mark.audit
def test_wald_intervals_cover_where_the_signal_is_identified():
    """Noise of a fifth of the asked design's, so that n = 5,000 stands for n = 1,000,000."""
    reps, rng, misses, flagged = 400, np.random.default_rng(1), np.zeros(5), 0
    for _ in range(reps):
        y, X = sphere(rng, 5000)
        r = pi.ModulatedOLS(y, X, radius=1.0, response="public").fit(mu=4.5, rng=rng)
        misses += np.abs(r.params.to_numpy() - BETA) > 1.959964 * r.bse.to_numpy()
        flagged += r.identification.weak
    low, high = limits(0.05, reps, cells=5)
    assert (misses / reps >= low).all()
    assert (misses / reps <= high).all()
    assert flagged == 0


@pytest.mark.audit
@pytest.mark.parametrize("covariates", [False, True])
def test_score_test_keeps_its_size_where_the_signal_is_weak(covariates):
    reps, rng, rejected, power = 700, np.random.default_rng(2), 0, 0
    for _ in range(reps):
        y, X = sphere(rng, 5000)
        public = ()
        if covariates:
            z = rng.uniform(-1, 1, 5000) + X[:, 0]
            X = pi.add_constant(pd.DataFrame(X, columns=[f"x{j}" for j in range(1, 6)])).assign(z=z)
            y, public = y + 0.7 - 0.4 * z, ["z"]
        r = pi.ModulatedOLS(y, X, radius=1.0, public=public, response="public").fit(
            epsilon=1.0, delta=DELTA, rng=rng
        )
        rejected += r.score_test(BETA).pvalue < 0.05
        power += r.score_test(np.zeros(5)).pvalue < 0.05
        assert r.identification.weak
    low, high = limits(0.05, reps, cells=2)
    assert low <= rejected / reps <= high
    if not covariates:
        assert power / reps >= 0.80


@pytest.mark.audit
def test_wald_test_fails_where_the_score_test_does_not():
    """The mutant of the cell above: normal tests of the truth reject far too often, and are flagged."""
    rng, rejected, reps = np.random.default_rng(3), 0, 200
    for _ in range(reps):
        y, X = sphere(rng, 5000)
        r = pi.ModulatedOLS(y, X, radius=1.0, response="public").fit(epsilon=1.0, delta=DELTA, rng=rng)
        assert r.identification.weak
        if r.estimate.cov is None:
            rejected += 1
            continue
        gap = r.params.to_numpy() - BETA
        rejected += gap @ np.linalg.solve(r.estimate.cov, gap) > 11.07
    assert rejected / reps > 0.5


@pytest.mark.audit
def test_score_intervals_cover():
    rng, reps, covered = np.random.default_rng(4), 60, np.zeros(5)
    for _ in range(reps):
        y, X = sphere(rng, 20_000)
        r = pi.ModulatedOLS(y, X, radius=1.0, response="public").fit(epsilon=3.0, delta=DELTA, rng=rng)
        ci = r.conf_int(method="score").to_numpy()
        covered += (ci[:, 0] <= BETA) & (ci[:, 1] >= BETA)
    assert (covered / reps >= binom.ppf(0.001, reps, 0.95) / reps).all()


@pytest.mark.audit
@pytest.mark.parametrize("cov_type", ["nonrobust", "HC0"])
def test_central_moments_cover(cov_type):
    reps, rng, hits = 300, np.random.default_rng(5), 0
    truth = np.array([0.5, -0.3, 0.2])
    for _ in range(reps):
        X = rng.uniform(-1, 1, (5000, 3))
        y = np.clip(X @ truth + 0.3 * rng.standard_normal(5000), -2, 2)
        r = pi.MomentOLS(y, X, bounds=[(-1, 1)] * 3, y_bounds=(-2, 2)).fit(
            epsilon=1.0, delta=DELTA, rng=rng, cov_type=cov_type
        )
        ci = r.conf_int().to_numpy()
        hits += int(((ci[:, 0] <= truth) & (truth <= ci[:, 1])).sum())
    low, high = limits(0.95, 3 * reps, cells=2)
    assert low <= hits / (3 * reps) <= high


@pytest.mark.audit
def test_client_average_is_as_good_as_one_shot_and_pooling_is_not():
    rng, reps = np.random.default_rng(6), 60
    errors = {"one": [], "average": [], "pooled": []}
    for _ in range(reps):
        y, X = sphere(rng, 4000)
        m = pi.ModulatedOLS(y, X, radius=1.0, response="public")
        fits = {
            "one": m.fit(mu=4.0, rng=rng),
            "average": m.fit(mu=4.0, rng=rng, method="iterative", progress=False),
            "pooled": m.fit(mu=4.0, rng=rng, method="iterative", estimator="pooled", progress=False),
        }
        for name, r in fits.items():
            errors[name].append(np.sum((r.params.to_numpy() - BETA) ** 2))
    rms = {name: math.sqrt(np.mean(values)) for name, values in errors.items()}
    assert rms["average"] <= 1.15 * rms["one"]  # 60 draws: the long run asks 1.05
    assert rms["pooled"] > 1.3 * rms["one"]


@pytest.mark.audit
def test_pooled_scores_must_be_clustered_by_client():
    """Clustered scores cover; the mutant that takes nT scores as independent does not."""
    from privinf.inference.corrected_features import CorrectedLeastSquares
    from privinf.inference.solution import solve
    from privinf.modulation.equation import modulation_system

    rng, reps = np.random.default_rng(7), 150
    clustered, independent = np.zeros(5), np.zeros(5)
    for _ in range(reps):
        y, X = sphere(rng, 2000)
        release = pi.ModulatedOLS(y, X, radius=1.0, response="public").release(
            mu=60.0, rng=rng, method="iterative", rounds=4, progress=False
        )
        system = modulation_system(release, "pooled")
        good = solve(system)
        clustered += np.abs(good.params - BETA) <= 1.96 * np.sqrt(np.diag(good.cov))
        x = (release.arrays["features"] / 0.5).reshape(-1, 5)
        bad = solve(CorrectedLeastSquares(x, np.tile(release.arrays["response"], 4), system.noise_cov))
        independent += np.abs(bad.params - BETA) <= 1.96 * np.sqrt(np.diag(bad.cov))
    low, high = limits(0.95, 5 * reps)
    assert low <= clustered.sum() / (5 * reps) <= high
    assert independent.sum() / (5 * reps) < 0.85


@pytest.mark.audit
def test_standard_error_without_noise_is_estimated_from_the_release():
    rng, found = np.random.default_rng(8), []
    for _ in range(60):
        y, X = sphere(rng, 5000)
        found.append(
            pi.ModulatedOLS(y, X, radius=1.0, response="public").fit(mu=6.0, rng=rng).bse_sampling.to_numpy()
        )
    truth = math.sqrt(0.09 * 5 / 5000)
    assert abs(np.median(found) / truth - 1) < 0.05


@pytest.mark.audit
def test_local_moments_beat_modulated_features_at_small_epsilon():
    rng, ratios = np.random.default_rng(9), []
    for _ in range(8):
        y, X = sphere(rng, 200_000)
        a = pi.ModulatedOLS(y, X, radius=1.0, response="public").fit(epsilon=1.0, delta=DELTA, rng=rng)
        b = pi.MomentOLS(y, X, radius=1.0, y_bounds=(-2.5, 2.5), trust="local").fit(
            epsilon=1.0, delta=DELTA, rng=rng
        )
        ratios.append(np.linalg.norm(b.params - BETA) / np.linalg.norm(a.params - BETA))
    assert np.median(ratios) <= 0.35
