"""DP-SGD FedAvg: the limit without noise, clipping, noise and accounting."""

from __future__ import annotations

import math

import numpy as np
import pytest

import privinf as pi
from privinf.accounting import gaussian_epsilon
from privinf.errors import ArgumentError, BudgetExceededError
from studies.designs import sphere_design
from studies.dp_fedsgd import clipped_gradients, dp_fedsgd, paper_rho

SETTINGS = {"epsilon": 2.0, "delta": 1e-5, "clip_norm": 0.5, "step": 0.3}


@pytest.fixture(scope="module")
def sample():
    return sphere_design(2000, 0)


def test_without_noise_and_clipping_it_converges_to_least_squares(sample):
    fit = dp_fedsgd(sample.y, sample.X, epsilon=math.inf, delta=1e-5, clip_norm=1e6, step=3.0, rounds=300)
    ols = np.linalg.lstsq(sample.X.to_numpy(), sample.y, rcond=None)[0]
    np.testing.assert_allclose(fit.params, ols, atol=1e-8)
    assert math.isinf(fit.privacy.epsilon(1e-5))


def test_gradients_are_clipped_and_otherwise_exact(sample):
    X, beta = sample.X.to_numpy(), np.full(5, 0.5)
    raw = X * (X @ beta - sample.y)[:, None]
    norms = np.linalg.norm(raw, axis=1)
    sent = clipped_gradients(sample.y, X, beta, 0.5)
    assert (norms > 0.5).any()
    np.testing.assert_allclose(sent[norms <= 0.5], raw[norms <= 0.5])
    np.testing.assert_allclose(np.linalg.norm(sent[norms > 0.5], axis=1), 0.5)
    np.testing.assert_array_equal(clipped_gradients(np.zeros(3), np.zeros((3, 2)), np.ones(2), 1.0), 0.0)


def test_first_step_has_the_stated_noise(sample):
    X = sample.X.to_numpy()
    mean = -0.3 * clipped_gradients(sample.y, X, np.zeros(5), 0.5).mean(axis=0)
    fits = [dp_fedsgd(sample.y, X, **SETTINGS, rounds=1, rng=seed) for seed in range(300)]
    errors = (np.array([fit.path[1] for fit in fits]) - mean) / (0.3 * fits[0].scale / math.sqrt(2000))
    # chi-squared on 1500 degrees of freedom, and a mean of 1500 standard normals
    assert abs((errors**2).mean() - 1.0) < 3.9 * math.sqrt(2 / errors.size)
    assert abs(errors.mean()) < 3.9 / math.sqrt(errors.size)


def test_path_starts_at_zero_and_rounds_are_charged(sample):
    fit = dp_fedsgd(sample.y, sample.X, **SETTINGS, conversion="exact", rng=1)
    assert fit.path.shape == (11, 5)
    np.testing.assert_array_equal(fit.path[0], 0.0)
    assert len(fit.privacy.releases) == 10
    assert fit.privacy.epsilon(1e-5) == pytest.approx(2.0, abs=1e-9)
    assert fit.privacy.mu == pytest.approx(math.sqrt(10) * 1.0 / fit.scale, rel=1e-9)
    assert fit.privacy.simulated


def test_the_papers_conversion_wastes_budget(sample):
    paper = dp_fedsgd(sample.y, sample.X, **SETTINGS, rng=1)
    exact = dp_fedsgd(sample.y, sample.X, **SETTINGS, conversion="exact", rng=1)
    assert paper.privacy.rho == pytest.approx(paper_rho(2.0, 1e-5), rel=1e-9)
    assert paper.privacy.epsilon(1e-5) == pytest.approx(
        gaussian_epsilon(math.sqrt(2 * paper_rho(2.0, 1e-5)), 1e-5)
    )
    assert paper.privacy.epsilon(1e-5) < 2.0
    assert exact.scale < paper.scale


def test_paper_rho_solves_its_equation():
    for epsilon in (1e-6, 0.5, 10.0):
        rho = paper_rho(epsilon, 1e-5)
        assert rho + 2 * math.sqrt(rho * math.log(1e5)) == pytest.approx(epsilon, rel=1e-12)
    assert paper_rho(math.inf, 1e-5) == math.inf


def test_default_noise_is_secure(sample):
    fit = dp_fedsgd(sample.y, sample.X, **SETTINGS, rounds=2)
    assert fit.privacy.secure
    assert fit.privacy.releases["source"].tolist() == ["lattice", "lattice"]


def test_a_ledger_can_refuse_before_anything_is_sent(sample):
    ledger = pi.Ledger(pi.Budget(epsilon=1.0, delta=1e-5))
    with pytest.raises(BudgetExceededError):
        dp_fedsgd(sample.y, sample.X, **SETTINGS, ledger=ledger, rng=0)
    assert ledger.entries == ()


@pytest.mark.parametrize(
    "change",
    [
        {"epsilon": 0.0},
        {"delta": 1.0},
        {"clip_norm": 0.0},
        {"step": -1.0},
        {"rounds": 0},
        {"conversion": "rdp"},
    ],
)
def test_bad_arguments_are_refused(sample, change):
    with pytest.raises(ArgumentError):
        dp_fedsgd(sample.y, sample.X, **(SETTINGS | change), rng=0)
    with pytest.raises(ArgumentError):
        dp_fedsgd(sample.y[:-1], sample.X, **SETTINGS, rng=0)
