"""Restricted eigenvalues and noise variance: exact without noise, noise as stated, clipping undone."""

import math

import numpy as np
import pytest

from privinf.accounting import Ledger, compose
from privinf.errors import NotAvailableError
from privinf.federation import InProcessFederation, Site, SitePolicy, TrustedServer
from privinf.lasso.extras import noise_variance, normal_variance, restricted_eigenvalues, sparse_directions
from privinf.lasso.fit import SparseFit
from privinf.lasso.radii import residual_moments
from privinf.lasso.rows import SparseUnits
from privinf.lasso.sums import SparseSums
from privinf.schema import Design
from studies.simulation import binomial_limits

P, BETA = 12, np.array([0.8, -0.5])
POLICY = SitePolicy(trusted_server=True, simulation=True)


def rows(seed, n, decay=0.5, sd=0.7):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, P))
    for j in range(1, P):
        X[:, j] = decay * X[:, j - 1] + math.sqrt(1.0 - decay**2) * X[:, j]
    return X[:, :2] @ BETA + sd * rng.standard_normal(n), X


def sums_of(y, X, rng=None, ledger=None):
    names = [f"x{j}" for j in range(P)]
    design = Design.from_arrays(names, bounds=[(-8.0, 8.0)] * P, y_bounds=(-20, 20))
    half = len(y) // 3
    sites = {
        "a": Site((y[:half], X[:half]), design, policy=POLICY),
        "b": Site((y[half:], X[half:]), design, policy=POLICY),
    }
    server = TrustedServer(InProcessFederation(sites), rng=rng, ledger=ledger)
    units = SparseUnits(
        center=np.zeros(P),
        scale=np.ones(P),
        max_abs=np.full(P, 8.0),
        intercept=0.0,
        y_max_abs=20.0,
        y_limit=20.0,
    )
    return SparseSums(server=server, units=units, n=server.nobs)


def fit_of(scale=0.7, step_sd=0.0):
    return SparseFit(
        support=[0, 1],
        beta=BETA,
        selected=[0, 1],
        selected_beta=BETA,
        scale=scale,
        step_sd=step_sd,
        efficiency=1.0,
        selected_errors=np.ones(2),
    )


def test_directions_are_sparse_unit_vectors_and_public():
    found = sparse_directions(30, 4, 50, 3)
    assert np.allclose((found**2).sum(axis=0), 1.0)
    assert (np.count_nonzero(found, axis=0) == 4).all()
    assert np.array_equal(found, sparse_directions(30, 4, 50, 3))
    assert not np.array_equal(found, sparse_directions(30, 4, 50, 4))


def test_without_noise_they_are_the_extremes_over_the_directions():
    y, X = rows(0, 900)
    found = restricted_eigenvalues(sums_of(y, X), 3, math.inf, vectors=80, public_seed=5)
    squares = ((X @ sparse_directions(P, 3, 80, 5)) ** 2).mean(axis=0)
    assert found.largest == pytest.approx(squares.max(), rel=1e-12)
    assert found.smallest == pytest.approx(squares.min(), rel=1e-12)
    assert (found.smallest_sd, found.largest_sd, found.selection_scale) == (0.0, 0.0, 0.0)
    assert found.ratio == pytest.approx(squares.max() / squares.min())
    some = restricted_eigenvalues(sums_of(y, X), 3, math.inf, columns=[7, 2, 4], vectors=80)
    assert some.columns == 3
    part = X[:, [7, 2, 4]] @ sparse_directions(3, 3, 80, 0)
    assert some.largest == pytest.approx((part**2).mean(axis=0).max(), rel=1e-12)
    values = np.linalg.eigvalsh(X.T @ X / 900)
    assert values[0] <= found.smallest <= found.largest <= values[-1]


@pytest.mark.audit
def test_noise_is_of_the_stated_size_and_the_clipping_is_undone():
    """Of one direction, so that nothing is picked: mean and sd of the released values."""
    y, X = rows(1, 30_000)
    v = sparse_directions(P, 3, 1, 0)[:, 0]
    truth = v @ (0.5 ** np.abs(np.subtract.outer(np.arange(P), np.arange(P)))) @ v
    found = [restricted_eigenvalues(sums_of(y, X, rng=seed), 3, 1e-3, vectors=1) for seed in range(60)]
    values, sd = np.array([one.largest for one in found]), found[0].largest_sd
    sampling = truth * math.sqrt(2.0 / 30_000) * 1.2
    assert abs(values.mean() - truth) < 4.0 * math.hypot(sampling, sd / math.sqrt(60))
    low, high = binomial_limits(0.95, 120)
    both = np.concatenate([values, [one.smallest for one in found]])
    assert low <= np.mean(np.abs(both - both.mean()) < 1.96 * sd) <= high


def test_price_and_seeds():
    y, X = rows(2, 500)
    ledger = Ledger()
    found = restricted_eigenvalues(sums_of(y, X, ledger=ledger), 20, 0.01, vectors=10)
    assert compose(entry.loss for entry in ledger.entries).rho == pytest.approx(0.01, rel=1e-6)
    assert found.sparsity == P
    labels = [entry.label for entry in ledger.entries]
    assert any("smallest" in label for label in labels)
    assert any("largest" in label for label in labels)


def test_a_smallest_value_below_its_noise_gives_no_ratio():
    y, X = rows(3, 300)
    noisy = restricted_eigenvalues(sums_of(y, X, rng=2), 3, 1e-5, vectors=5)
    with pytest.raises(NotAvailableError, match="smallest"):
        noisy.ratio


@pytest.mark.parametrize("variance", [0.2, 1.0, 5.0])
def test_normal_variance_inverts_the_clipping(variance):
    clip = 1.7
    square = variance * residual_moments(clip / math.sqrt(variance))[1]
    found, slope = normal_variance(square, clip)
    assert found == pytest.approx(variance, rel=1e-9)
    assert slope == pytest.approx((normal_variance(square + 1e-6, clip)[0] - variance) / 1e-6, rel=1e-4)
    assert normal_variance(square, math.inf) == (square, 1.0)
    assert normal_variance(-0.1, clip) == (-0.1, 1.0)
    with pytest.raises(NotAvailableError, match="clip"):
        normal_variance(0.96 * clip**2, clip)


def test_noise_variance_without_noise_is_the_mean_squared_residual():
    y, X = rows(4, 400)
    found = noise_variance(sums_of(y, X), fit_of(), math.inf)
    assert found.value == pytest.approx(((y - X[:, :2] @ BETA) ** 2).sum() / 398, rel=1e-12)
    assert (found.noise_sd, found.clip) == (0.0, math.inf)


@pytest.mark.audit
@pytest.mark.parametrize(("scale", "step"), [(0.5, 0.0), (0.7, 0.0), (1.0, 0.0), (0.7, 0.2)])
def test_noise_variance_is_right_whatever_the_clip(scale, step):
    """R is 2.5 times a scale that may be off; noise of the coefficients is taken off again."""
    y, X = rows(5, 20_000)
    root = np.linalg.inv(np.linalg.cholesky(np.array([[1.0, 0.5], [0.5, 1.0]]))).T
    values = []
    for seed in range(60):
        beta = BETA + step * root @ np.random.default_rng(100 + seed).standard_normal(2)
        fit = SparseFit(
            support=[0, 1],
            beta=beta,
            selected=[0, 1],
            selected_beta=beta,
            scale=scale,
            step_sd=step,
            efficiency=1.0,
            selected_errors=np.ones(2),
        )
        found = noise_variance(sums_of(y, X, rng=seed), fit, 2e-4)
        values.append(found.value)
    spread = found.noise_sd
    sampling = 0.49 * math.sqrt(2.2 / 20_000)
    assert abs(np.mean(values) - 0.49) < 4.0 * math.hypot(sampling, spread / math.sqrt(60))
    assert found.clip == pytest.approx(2.5 * scale)
    if step == 0.0:
        for share, normal in ((0.95, 1.96), (0.5, 0.6745)):
            low, high = binomial_limits(share, 60, level=0.997)
            assert low <= np.mean(np.abs(values - np.mean(values)) < normal * spread) <= high


def test_noise_variance_hidden_by_noise():
    y, X = rows(6, 60)
    with pytest.raises(NotAvailableError, match="variance"):
        noise_variance(sums_of(y, X, rng=0), fit_of(step_sd=3.0), 1.0)


def test_noise_of_the_coefficients_is_in_the_noise_of_the_variance():
    """Two coefficients with noise t: chi-square with 2 degrees of freedom times t^2, of sd 2 t^2."""
    y, X = rows(7, 20_000)
    plain = noise_variance(sums_of(y, X, rng=0), fit_of(), 1.0)
    moved = noise_variance(sums_of(y, X, rng=0), fit_of(step_sd=0.2), 1.0)
    assert moved.noise_sd**2 - plain.noise_sd**2 == pytest.approx((2.0 * 0.04 / (1.0 - 2 / 20_000)) ** 2)


def test_a_variance_below_two_sds_of_its_noise_is_hidden():
    y, X = rows(8, 20_000)
    fit = fit_of(step_sd=0.45)  # 0.49 - 2 * 0.2 is positive, and below two sds of 0.4
    with pytest.raises(NotAvailableError, match="the noise hides the variance of the errors"):
        noise_variance(sums_of(y, X, rng=0), fit, 1.0)
