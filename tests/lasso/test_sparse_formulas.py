"""Formulas of sparse inference against simulation, each at two sizes."""

import math

import numpy as np
import pytest

from privinf.errors import ArgumentError, NotAvailableError
from privinf.lasso.debiasing import JOINT_EQUATION, debiased_coordinates, debiased_jointly
from privinf.lasso.fit import MIN_CLEARANCE
from privinf.lasso.precision import (
    clearance,
    column_noise_variance,
    floored,
    joint_covariance,
    precision_columns,
    score_correlation,
    steadied,
)
from privinf.lasso.radii import clip_radii, norm_moments, relative_variance, residual_moments
from privinf.lasso.scores import ScoreRelease, WeightedScores
from privinf.lasso.sums import NoisyMean

SQRT_HALF = math.sqrt(0.5)


def within(draws, expected, sds=4.5):
    """The mean of independent draws lies within 4.5 standard errors: one false alarm in 150,000."""
    return abs(np.mean(draws) - expected) < sds * np.std(draws) / math.sqrt(len(draws))


def isometric_noise(rng, size, sd):
    upper = np.triu(rng.standard_normal((size, size)), 1) * SQRT_HALF
    return sd * (upper + upper.T + np.diag(rng.standard_normal(size)))


def ar(size, rho):
    return rho ** np.abs(np.subtract.outer(np.arange(size), np.arange(size)))


@pytest.mark.parametrize(("k", "clip"), [(1, 0.8), (5, 2.4), (40, 5.0)])
def test_norm_moments_are_those_of_a_shrunk_normal_vector(k, clip):
    u = np.random.default_rng(k).standard_normal((40_000, k))
    shrunk = u * np.minimum(1.0, clip / np.linalg.norm(u, axis=1))[:, None]
    slope, square = norm_moments(clip, k)
    assert within((shrunk * u).mean(axis=1), slope)
    assert within((shrunk**2).mean(axis=1), square)


@pytest.mark.parametrize("clip", [0.3, 1.5, 3.0])
def test_residual_moments_are_those_of_a_clipped_normal(clip):
    r = np.random.default_rng(1).standard_normal(100_000)
    inside, square = residual_moments(clip)
    assert within(np.abs(r) < clip, inside)
    assert within(np.clip(r, -clip, clip) ** 2, square)


@pytest.mark.audit
@pytest.mark.parametrize("n", [500, 4_000])
def test_relative_variance_is_the_variance_of_the_noisy_clipped_score(n):
    """The least favourable case is simulated whole: score, slope, noise."""
    k, clip, bound, rho, reps = 2, 1.6, 1.2, 0.05, 2_000
    rng = np.random.default_rng(n)
    slope = norm_moments(clip, k)[0] * residual_moments(bound)[0]
    sd = 2.0 * clip * bound / math.sqrt(2.0 * rho)
    found = np.empty(reps)
    for rep in range(reps):
        u = rng.standard_normal((n, k))
        u *= np.minimum(1.0, clip / np.linalg.norm(u, axis=1))[:, None]
        r = np.clip(rng.standard_normal(n), -bound, bound)
        found[rep] = (u[:, 0] @ r + sd * rng.standard_normal()) / (n * slope)
    assert within(n * found**2, relative_variance(clip, bound, k, n, rho))


@pytest.mark.parametrize(("k", "n", "rho"), [(5, 60_000, 0.00715), (1, 4_000, 0.01), (800, 60_000, 0.007)])
def test_radii_are_the_minimum(k, n, rho):
    best = clip_radii(k, n, rho)
    assert best.variance == relative_variance(best.norm, best.residual, k, n, rho)
    for a, b in [(1.03, 1.0), (0.97, 1.0), (1.0, 1.03), (1.0, 0.97), (1.05, 0.95), (0.95, 1.05)]:
        assert relative_variance(a * best.norm, b * best.residual, k, n, rho) >= best.variance


def test_without_noise_nothing_is_clipped():
    assert clip_radii(5, 100, math.inf).variance == 1.0
    assert relative_variance(math.inf, math.inf, 5, 100, math.inf) == 1.0


@pytest.mark.parametrize("size", [6, 20])
def test_precision_columns_are_those_of_the_inverse(size):
    sigma = ar(size, 0.5)
    inverse = np.linalg.inv(sigma)
    full = precision_columns(sigma, [[2, *(i for i in range(size) if i != 2)]])
    assert np.allclose(full[:, 0], inverse[:, 2])
    near = precision_columns(sigma, [[2, 1, 3]])  # the Markov blanket is enough
    assert np.allclose(near[:, 0], inverse[:, 2])
    with pytest.raises(ArgumentError, match="no index twice"):
        precision_columns(sigma, [[2, 2]])


@pytest.mark.parametrize("n", [2_000, 20_000])
def test_noise_of_columns_times_error_of_coefficients(n):
    size, gram_sd = 8, 30.0 / n
    rng = np.random.default_rng(n)
    sigma, support = ar(size, 0.4), np.array([0, 3, 5])
    error_cov = np.linalg.inv(sigma[np.ix_(support, support)]) / n
    w = precision_columns(sigma, [[1, 0, 2, 3, 5], [6, 5, 7, 0, 3]])
    expected = column_noise_variance(w, gram_sd, support, error_cov)
    root = np.linalg.cholesky(error_cov)
    drawn = np.empty((6_000, 2))
    for rep in range(len(drawn)):
        z = isometric_noise(rng, size, gram_sd)
        drawn[rep] = (w.T @ z)[:, support] @ (root @ rng.standard_normal(3))
    for target in range(2):
        assert within(drawn[:, target] ** 2, expected[target])


def test_floor_of_a_noisy_gram():
    noisy = np.diag([1.0, 1.0, -0.3])
    assert np.linalg.eigvalsh(floored(noisy, 0.05))[0] == pytest.approx(0.05 * 1.7 / 3)
    assert np.array_equal(floored(np.eye(3)), np.eye(3))
    # nothing but noise: any matrix will do to step by, and the clearance marks the fit
    assert np.array_equal(floored(-np.eye(2)), np.eye(2))
    assert clearance(-np.eye(2), 0.1) < MIN_CLEARANCE


def test_joint_coordinates_have_the_covariance_of_their_equation():
    """The equation that users read, evaluated as it is written; it defines each of its symbols."""
    n, eye = 5_000, np.eye(3)
    omega, M = np.linalg.inv(ar(3, 0.6)), 0.2 * eye + 0.02
    s, meat, column = np.array([0.01, -0.02, 0.005]), 0.2 * eye, np.array([1e-5, 2e-5, 3e-5])
    values, vectors = np.linalg.eigh(omega)
    score, secant = NoisyMean(s, 0.003), NoisyMean(M, 0.004)
    released = WeightedScores(score=score, secant=secant, meat=NoisyMean(meat, 0.0), moved=0.1, n=n)
    found = debiased_jointly(np.zeros(3), released, (vectors * np.sqrt(values)) @ vectors.T, column)

    D = np.linalg.solve(M, s)
    L = (vectors * np.sqrt(values)) @ vectors.T @ np.linalg.inv(M)
    privacy = 0.003**2 * eye + 0.004**2 / 2.0 * (D @ D * eye + np.outer(D, D))
    assert np.allclose(found.params, L @ s)
    assert np.allclose(found.sampling_cov, L @ (meat / n) @ L.T)
    assert np.allclose(found.noise, L @ privacy @ L.T + np.diag(column))
    assert found.equation == JOINT_EQUATION
    text = " ".join(JOINT_EQUATION.split())
    for definition in ("D = M^-1 s", "L = Omega^(1/2) M^-1", "Hessian M", "score s;", "Omega is", "w_j are"):
        assert definition in text


@pytest.mark.audit
@pytest.mark.parametrize("n", [1_000, 6_000])
def test_debiased_coordinates_have_their_variance(n):
    """Everything redrawn, with noise as strong as sampling; error sizes depend on the features."""
    reps, clip, bound = 1_000, 1.5, 1.0
    rng = np.random.default_rng(n)
    truth, start = np.array([0.4, -0.2]), np.array([0.4, -0.2]) + 1.0 / math.sqrt(n)
    score_sd, slope_sd = 0.5 / math.sqrt(n), 0.06
    ratios = np.empty((reps, 2))
    for rep in range(reps):
        x = rng.standard_normal((n, 2))
        r = rng.standard_normal(n) * (0.4 + 0.6 * np.abs(x[:, 0])) - x @ (start - truth)
        u = x * np.minimum(1.0, clip / np.linalg.norm(x, axis=1))[:, None]
        psi = np.clip(r, -bound, bound)
        released = ScoreRelease(
            score=u.T @ psi / n + score_sd * rng.standard_normal(2),
            slope=(u * x * (np.abs(r) < bound)[:, None]).mean(axis=0) + slope_sd * rng.standard_normal(2),
            square=((u * psi[:, None]) ** 2).mean(axis=0),
            score_sd=score_sd,
            slope_sd=slope_sd,
            n=n,
        )
        found = debiased_coordinates(start, released, np.zeros(2), np.eye(2))
        ratios[rep] = (found.params - truth) / np.sqrt(found.variance)
    for target in range(2):
        assert abs(np.mean(ratios[:, target])) < 4.5 / math.sqrt(reps) + 0.03
        assert abs(np.var(ratios[:, target]) - 1.0) < 4.5 * math.sqrt(2.0 / reps)


def test_slope_lost_in_noise_is_refused():
    lost = ScoreRelease(
        score=np.ones(1), slope=np.array([0.1]), square=np.ones(1), score_sd=0.1, slope_sd=0.05, n=100
    )
    with pytest.raises(NotAvailableError, match="the variance of a target's score"):
        debiased_coordinates(np.zeros(1), lost, np.zeros(1), np.eye(1))


@pytest.mark.parametrize("n", [2_000, 20_000])
def test_joint_covariance_is_that_of_the_debiased_scores(n):
    size = 6
    sigma = ar(size, 0.6)
    w = precision_columns(sigma, [[0, 1], [1, 0, 2], [4, 3, 5]])
    sampling = np.diag(np.linalg.inv(sigma))[[0, 1, 4]] / n
    privacy = sampling * [0.1, 0.3, 0.2]
    cov = joint_covariance(score_correlation(w, sigma), sampling, privacy)
    assert np.allclose(np.diag(cov), sampling + privacy)
    assert np.allclose(cov[0, 1], np.linalg.inv(sigma)[0, 1] / n)
    assert cov[0, 2] == pytest.approx(0.0, abs=1e-12)


def test_indefinite_correlations_are_projected():
    gram = floored(np.array([[1.0, 0.9, -0.9], [0.9, 1.0, 0.9], [-0.9, 0.9, 1.0]]), -2.0)
    found = score_correlation(np.eye(3), gram)
    assert np.allclose(np.diag(found), 1.0)
    assert np.linalg.eigvalsh(found)[0] > 0.0


def test_squares_that_noise_has_made_negative_have_no_correlations():
    assert np.array_equal(score_correlation(np.eye(2), np.array([[-7.4, 1.0], [1.0, 2.0]])), np.eye(2))


@pytest.mark.parametrize("k", [50, 800])
def test_steadied_numbers_are_nearer_to_the_truth_and_keep_what_stands_out(k):
    rng = np.random.default_rng(k)
    noise = 0.3 * rng.standard_normal(k)
    equal = steadied(1.0 + noise, 0.3)
    assert np.mean((equal - 1.0) ** 2) < 0.3 * np.mean(noise**2)
    apart = np.where(np.arange(k) == 0, 40.0, 1.0)
    assert steadied(apart + noise, 0.3)[0] == pytest.approx(40.0, rel=0.1)
    assert np.array_equal(steadied(np.array([0.7]), 0.3), [0.7])
    assert (steadied(1.0 + 5.0 * noise, 0.1) > 0.0).all()
