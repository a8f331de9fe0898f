"""Composition against brute-force integration, closed forms and the definitions of zCDP and Gaussian DP."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from privinf.accounting import (
    ApproximateLoss,
    ConcentratedLoss,
    GaussianLoss,
    PureLoss,
    Total,
    compose,
    gaussian_epsilon,
    loss_from_dict,
    pure_mu,
    pure_rho,
    rho_to_delta,
    rho_to_epsilon,
)
from privinf.accounting import calibration as binary
from privinf.errors import ArgumentError, NotAvailableError, PrivinfError


def brute_force_delta(epsilon, mu, responses):
    """Integrate max(0, P - e^eps Q) over the answers and the real line, kink by kink."""
    nodes, weights = np.polynomial.legendre.leggauss(200)
    keep = [math.exp(e) / (1 + math.exp(e)) for e in responses]
    delta = 0.0
    for answers in itertools.product((True, False), repeat=len(responses)):
        p = math.prod(k if a else 1 - k for k, a in zip(keep, answers, strict=True))
        q = math.prod(1 - k if a else k for k, a in zip(keep, answers, strict=True))
        kink = (epsilon + math.log(q / p)) / mu + mu / 2  # where p N(x; mu) = e^eps q N(x; 0)
        left, right = max(kink, -12.0), max(kink, -12.0) + mu + 24.0
        for a, b in itertools.pairwise(np.linspace(left, right, 9)):
            x = (b - a) / 2 * nodes + (a + b) / 2
            density = p * np.exp(-((x - mu) ** 2) / 2) - math.exp(epsilon) * q * np.exp(-(x**2) / 2)
            delta += (b - a) / 2 * float(weights @ density) / math.sqrt(2 * math.pi)
    return delta


@pytest.mark.parametrize("mu", [0.2, 0.7, 2.0])
@pytest.mark.parametrize("responses", [(0.3, 1.1), (1.0, 1.0), (0.05, 2.5)])
def test_mixture_matches_brute_force_integration(mu, responses):
    total = compose([GaussianLoss(mu), *map(PureLoss, responses)])
    for epsilon in (0.0, 0.4, 1.3, 3.0):
        assert total.delta(epsilon) == pytest.approx(brute_force_delta(epsilon, mu, responses), abs=1e-10)
    epsilon = total.epsilon(1e-3)
    assert brute_force_delta(epsilon, mu, responses) == pytest.approx(1e-3, abs=1e-10)


def test_gaussians_compose_to_one_gaussian():
    mus = np.random.default_rng(1).uniform(0.01, 2.0, 50)
    total = compose(GaussianLoss(float(mu)) for mu in mus)
    assert total.mu == pytest.approx(math.sqrt(float(mus @ mus)), rel=1e-14)
    assert total.rho == pytest.approx(float(mus @ mus) / 2, rel=1e-14)
    assert total.epsilon(1e-6) == gaussian_epsilon(total.mu, 1e-6)


def test_responses_alone_have_the_curve_of_the_product_of_coins():
    epsilons = (0.2, 0.7, 0.7, 1.5)
    total = compose(map(PureLoss, epsilons))
    for epsilon in (0.0, 0.5, 1.0, 2.9, 3.0):
        delta = 0.0
        for signs in itertools.product((1, -1), repeat=4):
            p = math.prod(1 / (1 + math.exp(-s * e)) for s, e in zip(signs, epsilons, strict=True))
            loss = sum(s * e for s, e in zip(signs, epsilons, strict=True))
            delta += max(0.0, p * -math.expm1(epsilon - loss))
        assert total.delta(epsilon) == pytest.approx(delta, abs=1e-15)
    assert total.delta(3.1) == 0.0
    assert compose([PureLoss(1.0)]).epsilon(1e-300) == pytest.approx(1.0, rel=1e-15)


def test_repeated_responses_add_up_unlike_the_oracle():
    assert compose([PureLoss(2.197)] * 10).epsilon(1e-15) == pytest.approx(21.97, abs=1e-4)


def test_events_leak_with_their_deltas():
    total = compose([ApproximateLoss(0.1, 1e-8)] * 20)
    assert total.epsilon(1e-6) == pytest.approx(1.79283, abs=1e-5)
    leak = -math.expm1(20 * math.log1p(-1e-8))
    assert total.epsilon(leak * (1 - 1e-9)) == math.inf
    assert total.delta(100.0) == pytest.approx(leak, rel=1e-6)
    assert compose([ApproximateLoss(0.0, 0.5)] * 80).epsilon(0.9) == math.inf
    assert compose([ApproximateLoss(0.5, 0.3)]).delta(0.0) == pytest.approx(
        0.3 + 0.7 * math.tanh(0.25), rel=1e-14
    )
    event = ApproximateLoss(0.5, 1e-4)
    assert compose([event]).epsilon(1e-4 * (1 + 1e-12)) == pytest.approx(0.5, abs=1e-6)


def test_order_and_grouping_do_not_matter():
    losses = [
        GaussianLoss(0.4),
        PureLoss(0.3),
        ApproximateLoss(0.2, 1e-7),
        ConcentratedLoss(0.01),
        PureLoss(1.2),
    ]
    whole = compose(losses)
    for cut in range(6):
        parts = compose(losses[:cut][::-1]) + compose(losses[cut:])
        assert parts.epsilon(1e-5) == pytest.approx(whole.epsilon(1e-5), rel=1e-13)
    assert compose([]) == Total()
    assert compose([]).epsilon(1e-9) == compose([]).mu == compose([]).rho == 0.0


def test_concentrated_forces_the_total_into_rho():
    total = compose([GaussianLoss(0.3), PureLoss(1.0), ConcentratedLoss(0.02)])
    assert total.rho == pytest.approx(0.045 + math.tanh(0.5) + 0.02, rel=1e-14)
    assert total.epsilon(1e-6) == rho_to_epsilon(total.rho, 1e-6)
    with pytest.raises(NotAvailableError, match="does not imply"):
        total.mu
    with_event = compose([ConcentratedLoss(0.02), ApproximateLoss(0.5, 1e-7)])
    rest = (1e-6 - 1e-7) / (1 - 1e-7)
    assert with_event.epsilon(1e-6) == pytest.approx(rho_to_epsilon(0.02 + pure_rho(0.5), rest), rel=1e-12)
    for name in ("mu", "rho"):
        with pytest.raises(NotAvailableError, match="only an"):
            getattr(with_event, name)


def test_no_noise_is_infinite_everywhere():
    for loss in (GaussianLoss(math.inf), PureLoss(math.inf), ConcentratedLoss(math.inf)):
        total = compose([loss, ApproximateLoss(1.0, 1e-6), GaussianLoss(0.1)])
        assert (total.epsilon(0.5), total.mu, total.rho, total.delta(1e6)) == (
            math.inf,
            math.inf,
            math.inf,
            1.0,
        )


def test_extreme_costs_raise_no_warning():
    total = compose([GaussianLoss(1000.0), *[PureLoss(1000.0)] * 30])
    assert total.epsilon(1e-6) == pytest.approx(gaussian_epsilon(1000.0, 1e-6) + 30_000, rel=1e-9)
    assert math.isfinite(total.mu)
    assert total.delta(0.0) == 1.0
    tiny = compose([GaussianLoss(1e-90), PureLoss(1e-90), ApproximateLoss(1e-90, 1e-200)])
    assert tiny.epsilon(1e-12) == 0.0
    assert compose([PureLoss(1e-9)]).epsilon(1e-14) == pytest.approx(1e-9, rel=1e-4)
    assert compose([GaussianLoss(1e90)]).epsilon(1e-6) > 0.0
    assert compose([ConcentratedLoss(1e-90)]).epsilon(1e-6) == 0.0
    assert compose([ConcentratedLoss(1e90)]).epsilon(1e-6) == pytest.approx(1e90, rel=1e-6)


@pytest.mark.parametrize("epsilon", [1e-12, 1e-3, 0.999999, 1.0, 5.0, 40.0, 700.0, 5000.0])
def test_pure_mu_passes_through_the_corner_of_the_response(epsilon):
    mu = pure_mu(epsilon)
    # At its corner the response errs equally on both sides, 1 / (1 + e^eps); so must the Gaussian.
    if epsilon < 30:
        assert ndtr(-mu / 2) == pytest.approx(1 / (1 + math.exp(epsilon)), rel=1e-12)
        assert mu == pytest.approx(-2 * float(ndtri(1 / (1 + math.exp(epsilon)))), rel=1e-3)
    if epsilon < 1e-2:
        assert mu == pytest.approx(epsilon * math.sqrt(2 * math.pi) / 2, rel=1e-5)
    if epsilon > 100:
        assert mu * mu / 8 == pytest.approx(epsilon, rel=0.05)


@pytest.mark.parametrize("epsilon", [0.05, 0.5, 1.0, 3.0, 8.0])
def test_pure_rho_is_the_smallest_that_bounds_every_renyi_divergence(epsilon):
    p, q = 1 / (1 + math.exp(-epsilon)), 1 / (1 + math.exp(epsilon))
    orders = 1 + np.logspace(-6, 3, 2000)
    log_p, log_q = math.log(p), math.log(q)
    terms = np.logaddexp(orders * log_p + (1 - orders) * log_q, orders * log_q + (1 - orders) * log_p)
    ratio = terms / (orders - 1) / orders
    assert float(ratio.max()) <= pure_rho(epsilon) * (1 + 1e-8)
    assert float(ratio.max()) >= pure_rho(epsilon) * (1 - 1e-4)


@pytest.mark.parametrize("rho", [1e-8, 1e-4, 0.0199, 0.5, 5.0, 1e3, 1e6])
@pytest.mark.parametrize("delta", [1e-12, 8.3e-6, 0.01, 0.9])
def test_zcdp_conversion_is_the_optimum_and_consistent(rho, delta):
    epsilon = rho_to_epsilon(rho, delta)
    x = np.logspace(-9, 13, 400_001)
    grid = rho * (1 + x) - np.log1p(1 / x) - (math.log(delta) + np.log1p(x)) / x
    assert epsilon == pytest.approx(max(0.0, float(grid.min())), rel=1e-7, abs=1e-9)
    assert epsilon <= rho + 2 * math.sqrt(rho * math.log(1 / delta))
    assert epsilon >= gaussian_epsilon(math.sqrt(2 * rho), delta) * (1 - 1e-12)
    if epsilon > 0:
        assert rho_to_delta(rho, epsilon) == pytest.approx(delta, rel=1e-5)


def test_zcdp_known_values():
    assert rho_to_epsilon(0.0199, 8.3e-6) == pytest.approx(0.80, abs=0.005)
    assert rho_to_epsilon(1e-3, 1e-6) == pytest.approx(0.1829, abs=1e-4)
    assert rho_to_epsilon(0.125, 1e-6) == pytest.approx(2.419, abs=1e-3)
    assert (rho_to_epsilon(0.0, 0.1), rho_to_epsilon(math.inf, 0.1)) == (0.0, math.inf)
    assert (rho_to_delta(0.0, 0.1), rho_to_delta(math.inf, 0.1)) == (0.0, 1.0)


def test_lattice_bounds_the_exact_atoms_from_above_and_tightly(monkeypatch):
    epsilons = tuple(float(e) for e in np.random.default_rng(2).uniform(0.05, 1.5, 12))
    losses = [GaussianLoss(0.5), *map(PureLoss, epsilons)]
    exact = [compose(losses).epsilon(delta) for delta in (1e-9, 1e-6, 1e-3)]
    only = compose(map(PureLoss, epsilons)).epsilon(1e-6)
    binary.binary_losses.cache_clear()
    monkeypatch.setattr(binary, "MAX_ATOMS", 4000)
    bounds = [compose(losses).epsilon(delta) for delta in (1e-9, 1e-6, 1e-3)]
    bound_only = compose(map(PureLoss, epsilons)).epsilon(1e-6)
    losses_, masses = binary.binary_losses(epsilons)
    binary.binary_losses.cache_clear()
    assert losses_.size > 4000
    assert float(masses.sum()) == pytest.approx(1.0, rel=1e-12)
    for low, high in zip(exact, bounds, strict=True):
        assert low - 1e-12 <= high <= low + 5e-4  # rounding every response up would cost 0.03
    # Without a Gaussian to smooth the atoms the excess is of the first order, at most a step times sqrt(12).
    assert only - 1e-12 <= bound_only <= only + math.sqrt(12) * 2 * sum(epsilons) / 4000


@pytest.mark.audit
def test_many_responses_stay_affordable():
    distinct = compose(PureLoss(float(e)) for e in np.linspace(0.05, 0.5, 60))
    assert distinct.epsilon(1e-6) < sum(np.linspace(0.05, 0.5, 60))
    equal = compose([PureLoss(0.01)] * 150_000)
    assert equal.epsilon(1e-6) == pytest.approx(gaussian_epsilon(0.01 * math.sqrt(150_000), 1e-6), rel=1e-3)
    thousands = compose(PureLoss(float(e)) for e in np.linspace(0.001, 0.01, 10_001))
    assert thousands.epsilon(1e-6) == pytest.approx(gaussian_epsilon(thousands.mu, 1e-6), rel=1e-12)


def test_random_mixtures_are_rounded_upwards():
    rng = np.random.default_rng(3)
    for _ in range(60):
        losses = [GaussianLoss(float(mu)) for mu in rng.uniform(0.01, 2, rng.integers(0, 4))]
        losses += [PureLoss(float(e)) for e in rng.uniform(0.01, 3, rng.integers(0, 6))]
        total, delta = compose(losses), float(10 ** rng.uniform(-9, -1))
        epsilon = total.epsilon(delta)
        assert total.delta(epsilon) <= delta
        assert epsilon == 0.0 or total.delta(epsilon * (1 - 1e-6)) > delta
        if losses:
            assert epsilon <= gaussian_epsilon(total.mu, delta) * (1 + 1e-9)  # mu is an upper bound


@pytest.mark.parametrize(
    "loss", [GaussianLoss(0.3), GaussianLoss(math.inf), PureLoss(0.1), ConcentratedLoss(2.0)]
)
def test_losses_round_trip(loss):
    assert loss_from_dict(loss.to_dict()) == loss


@pytest.mark.parametrize("kind", [GaussianLoss, PureLoss, ConcentratedLoss])
@pytest.mark.parametrize("value", [-1.0, math.nan, -math.inf, 5e-324, 1e-200, 1e200, "1", None, True])
def test_implausible_costs_are_refused(kind, value):
    with pytest.raises(ArgumentError):
        kind(value)


@pytest.mark.parametrize(("epsilon", "delta"), [(-1, 0.1), (math.inf, 0.1), (1, 0), (1, 1), (1, math.nan)])
def test_bad_events_are_refused(epsilon, delta):
    with pytest.raises(ArgumentError):
        ApproximateLoss(epsilon, delta)


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"kind": "laplace"},
        {"kind": "gaussian"},
        {"kind": "pure", "mu": 1},
        {"kind": "pure", "epsilon": "x"},
    ],
)
def test_foreign_records_are_refused(record):
    with pytest.raises(ArgumentError):
        loss_from_dict(record)


def test_arguments_of_a_total_are_checked():
    total = compose([GaussianLoss(1.0)])
    for delta in (0.0, 1.0, -0.1, math.nan):
        with pytest.raises(ArgumentError, match="delta"):
            total.epsilon(delta)
    for epsilon in (-0.1, math.inf, math.nan):
        with pytest.raises(ArgumentError, match="epsilon"):
            total.delta(epsilon)
    with pytest.raises(PrivinfError, match="losses"):
        compose([0.5])


def test_composition_in_zcdp_is_not_tighter_than_in_renyi_divergences():
    """Paper 1, section 4: for Gaussian noise both give one epsilon; exact composition gives a smaller one."""
    rhos, delta = [0.02, 0.005, 0.1], 1e-6
    orders = 1.0 + np.geomspace(1e-3, 1e4, 400_001)
    renyi = sum(rho * orders for rho in rhos)  # of the rounds at each order
    converted = renyi + np.log1p(-1 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1)
    assert converted.min() == pytest.approx(rho_to_epsilon(sum(rhos), delta), rel=1e-6)
    exact = compose([GaussianLoss(math.sqrt(2 * rho)) for rho in rhos]).epsilon(delta)
    assert exact < converted.min()
