"""NoisyTopK: its law, its price, its ledger lines, ties, grids and refusals."""

import math
from itertools import permutations

import numpy as np
import pytest
from scipy import stats
from support.instrument import RecordingNoise

import privinf as pi
from privinf.accounting import Budget, Ledger, compose, epsilon_to_rho, rho_to_epsilon
from privinf.errors import ArgumentError, BudgetExceededError, SensitivityError
from privinf.mechanisms import noisy_scalar
from privinf.mechanisms.selection import NoisyTopK, private_max
from privinf.noise import LatticeNoise, SimulationNoise, grid_step

SOURCES = [lambda: SimulationNoise(0), LatticeNoise]
BOTH = pytest.mark.parametrize("source", SOURCES, ids=["seeded", "secure"])


def total(peeling):
    return compose([entry.loss for entry in peeling.entries])


def plackett_luce(v, scale, order):
    weights = np.exp(np.abs(v) / scale)
    left, probability = weights.sum(), 1.0
    for j in order:
        probability *= weights[j] / left
        left -= weights[j]
    return probability


@BOTH
def test_picks_follow_the_exponential_mechanism(source):
    v = np.array([0.0, 1.0, -1.5, 1.0])
    peeling = NoisyTopK(2, 1.0, rho=1.0, values=False).calibrated(source())
    draws = 60_000
    support = peeling.draw(np.tile(v, (draws, 1)), source()).support
    orders = list(permutations(range(4), 2))
    counts = [np.all(support == order, axis=1).sum() for order in orders]
    expected = [draws * plackett_luce(v, peeling.scale, order) for order in orders]
    assert stats.chisquare(counts, expected).pvalue > 1e-5


@BOTH
@pytest.mark.parametrize("method", ["gumbel", "laplace"])
def test_ties_at_the_last_place_are_broken_by_the_noise_alone(source, method):
    v = np.array([9.0, 2.0, -2.0, 2.0, 2.0])
    peeling = NoisyTopK(2, 0.01, rho=1.0, method=method, values=False).calibrated(source())
    support = peeling.draw(np.tile(v, (20_000, 1)), source()).support
    assert np.all(support[:, 0] == 0)
    assert stats.chisquare(np.bincount(support[:, 1], minlength=5)[1:]).pvalue > 1e-5


@BOTH
def test_values_are_those_at_the_picks_with_the_stated_noise(source):
    v = np.array([100.0, -80.0, 0.0, 0.0])
    mechanism = NoisyTopK(2, 1.0, rho=2.0)
    peeling = mechanism.calibrated(source())
    top = peeling.draw(np.tile(v, (40_000, 1)), source())
    np.testing.assert_array_equal(top.support, np.tile([0, 1], (40_000, 1)))
    errors = (top.values - [100.0, -80.0]) / top.values_sd
    assert stats.kstest(errors.ravel(), "norm").pvalue > 1e-5
    # sqrt 2 lambda over the mu of half of rho
    assert top.values_sd == pytest.approx(math.sqrt(2.0) / math.sqrt(2.0), rel=1e-5)
    np.testing.assert_array_equal(top.dense()[:, :2], top.values)


def test_laplace_values_have_the_papers_scale():
    peeling = NoisyTopK(2, 1.0, epsilon=1.0, delta=1e-6, method="laplace").calibrated(SimulationNoise(0))
    paper = 2.0 * math.sqrt(3.0 * 2 * math.log(1e6))
    assert peeling.scale == pytest.approx(paper)
    top = peeling.draw(np.tile([900.0, 0.0, 0.0, -900.0], (30_000, 1)), SimulationNoise(1))
    order = np.argsort(top.support, axis=1)
    errors = np.take_along_axis(top.values, order, axis=1) - [900.0, -900.0]
    assert stats.kstest(errors.ravel(), stats.laplace(scale=paper).cdf).pvalue > 1e-5
    assert top.values_sd == pytest.approx(paper * math.sqrt(2.0))


@pytest.mark.parametrize("k", [1, 5, 20])
def test_prices(k):
    gumbel = NoisyTopK(k, 2.0, rho=0.3).calibrated(SimulationNoise(0))
    e0 = 2.0 * 2.0 / gumbel.scale
    assert gumbel.entries[0].loss.rho == pytest.approx(k * e0**2 / 8.0)
    assert gumbel.entries[0].loss.rho + gumbel.entries[1].loss.mu ** 2 / 2.0 == pytest.approx(0.3)
    assert gumbel.entries[1].loss.mu == pytest.approx(math.sqrt(k) * 2.0 / gumbel.values_scale)
    assert total(NoisyTopK(k, 2.0, mu=0.7).calibrated(SimulationNoise(0))).rho == pytest.approx(0.245)
    laplace = NoisyTopK(k, 2.0, rho=0.3, method="laplace").calibrated(SimulationNoise(0))
    assert total(laplace).rho == pytest.approx(0.3)
    pure = NoisyTopK(k, 2.0, epsilon=0.5, delta=0, method="laplace").calibrated(SimulationNoise(0))
    # k picks of 2 lambda/b and k values of lambda/b
    assert 3.0 * k * 2.0 / pure.scale == pytest.approx(0.5)
    assert total(pure).epsilon(1e-12) <= 0.5
    alone = NoisyTopK(k, 2.0, epsilon=0.5, delta=0, values=False).calibrated(SimulationNoise(0))
    assert k * 2.0 * 2.0 / alone.scale == pytest.approx(0.5)


@pytest.mark.parametrize("k", [1, 5, 15])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_a_level_named_by_epsilon_and_delta_is_kept(epsilon, k):
    for method in ("gumbel", "laplace"):
        peeling = NoisyTopK(k, 1.0, epsilon=epsilon, delta=1e-6, method=method).calibrated(SimulationNoise(0))
        assert total(peeling).epsilon(1e-6) <= epsilon * (1 + 1e-12)
    gumbel = NoisyTopK(k, 1.0, epsilon=epsilon, delta=1e-6).calibrated(SimulationNoise(0))
    assert total(gumbel).epsilon(1e-6) == pytest.approx(epsilon, rel=1e-6)


@pytest.mark.parametrize("delta", [1e-9, 1e-5, 0.01])
@pytest.mark.parametrize("epsilon", [1e-3, 0.8, 30.0])
def test_calibration_in_zcdp_inverts_the_conversion(epsilon, delta):
    rho = epsilon_to_rho(epsilon, delta)
    assert rho_to_epsilon(rho, delta) <= epsilon
    assert rho_to_epsilon(rho * (1 + 1e-9), delta) > epsilon
    assert epsilon_to_rho(math.inf, delta) == math.inf


def test_the_grid_is_charged_and_nothing_leaves_it():
    source = LatticeNoise()
    coarse = NoisyTopK(3, 1e-4, rho=1e-8)
    peeling = coarse.calibrated(source)
    step = grid_step(peeling.scale)
    assert peeling.entries[0].sensitivity.value == pytest.approx(1e-4 + 3.0 * step, rel=1e-9)
    assert peeling.scale > coarse.calibrated(SimulationNoise(0)).scale * 1.001
    top = peeling.draw(np.linspace(0.0, 1.0, 9), source)
    on_grid = top.values / grid_step(peeling.values_scale)
    np.testing.assert_array_equal(on_grid, np.rint(on_grid))
    laplace = NoisyTopK(3, 1e-4, epsilon=1e-3, delta=0, method="laplace").calibrated(source)
    assert laplace.entries[0].sensitivity.value == pytest.approx(1e-4 + grid_step(laplace.scale), rel=1e-9)


@BOTH
@pytest.mark.parametrize("method", ["gumbel", "laplace"])
def test_the_raw_noise_calls_add_up_to_the_ledger(source, method):
    recording = RecordingNoise(source())
    peeling = NoisyTopK(4, 0.5, rho=0.7, method=method).calibrated(recording)
    peeling.draw(np.arange(10.0), recording)
    picks = recording.of("gumbel") if method == "gumbel" else recording.of("laplace")[:4]
    assert [call.shape for call in picks] == [(10,)] * 4
    e0 = [2.0 * 0.5 / call.scale for call in picks]
    if method == "gumbel":
        (values,) = recording.of("perturb")
        rho = sum(e * e / 8.0 for e in e0) + (math.sqrt(4) * 0.5 / values.scale) ** 2 / 2.0
    else:
        (values,) = recording.of("laplace")[4:]
        e1 = 0.5 / values.scale
        rho = sum(e * math.tanh(e / 2.0) for e in e0) + 4 * e1 * math.tanh(e1 / 2.0)
    assert values.shape == (4,)
    assert rho == pytest.approx(total(peeling).rho, rel=1e-4)


def test_release_charges_first_and_refuses_what_would_overspend():
    ledger = Ledger(Budget(rho=1.0))
    mechanism = NoisyTopK(2, 1.0, rho=0.5)
    for _ in range(2):
        mechanism.release(np.arange(5.0), ledger=ledger, rng=0)
    assert ledger.total().rho == pytest.approx(1.0)
    with pytest.raises(BudgetExceededError):
        mechanism.release(np.full(5, np.nan), ledger=ledger, rng=0)  # refused before it is read
    assert [entry.mechanism for entry in ledger.entries] == ["gumbel peeling", "gaussian"] * 2
    assert not any(entry.secure for entry in ledger.entries)
    secure = mechanism.release(np.arange(5.0), ledger=(other := Ledger()))
    assert secure.support.shape == (2,)
    assert all(entry.secure for entry in other.entries)
    assert pi.LedgerEntry.from_dict(other.entries[0].to_dict()) == other.entries[0]


def test_several_vectors_are_charged_together():
    peeling = NoisyTopK(2, 1.0, rho=0.1).calibrated(SimulationNoise(0), times=5)
    assert total(peeling).rho == pytest.approx(0.5)
    top = peeling.draw(np.arange(20.0).reshape(5, 4), SimulationNoise(0))
    assert top.support.shape == (5, 2)
    assert top.dense().shape == (5, 4)


def test_only_candidates_are_picked():
    allowed = np.array([True, False, True, True])
    for method in ("gumbel", "laplace"):
        mechanism = NoisyTopK(2, 1e-3, rho=1.0, method=method)
        top = mechanism.release([1.0, 99.0, 2.0, -3.0], candidates=allowed, rng=0)
        assert top.support.tolist() == [3, 2]
    with pytest.raises(ArgumentError, match="candidates"):
        NoisyTopK(4, 1.0, rho=1.0).release(np.ones(4), candidates=allowed, rng=0)


def test_without_noise_it_is_the_top_k():
    top = NoisyTopK(2, 1.0, epsilon=math.inf).release([1.0, -4.0, 3.0])
    assert top.support.tolist() == [1, 2]
    assert top.values.tolist() == [-4.0, 3.0]
    signed = NoisyTopK(1, 1.0, rho=math.inf, absolute=False).release([1.0, -4.0, 3.0])
    assert signed.support.tolist() == [2]


def test_private_max():
    top = private_max([0.0, -50.0, 1.0], 0.1, epsilon=3.0, delta=1e-6, rng=0, label="largest")
    assert top.support.tolist() == [1]
    assert top.values[0] == pytest.approx(-50.0, abs=2.0)
    lone = private_max(
        [0.0, -50.0], 0.1, epsilon=3.0, delta=0, values=False, ledger=(ledger := Ledger()), rng=0
    )
    assert lone.values is None
    assert ledger.total().epsilon(1e-9) <= 3.0
    with pytest.raises(ArgumentError, match="not released"):
        lone.dense()


@pytest.mark.audit
@BOTH
def test_noisy_scalar(source):
    options = {} if source().secure else {"rng": np.random.default_rng(0)}
    ledger = Ledger(Budget(mu=1.0))
    errors = [noisy_scalar(7.0, 0.5, mu=1.0, **options) - 7.0 for _ in range(2000)]
    assert stats.kstest(np.array(errors) / 0.5, "norm").pvalue > 1e-5
    noisy_scalar(7.0, 0.5, mu=1.0, ledger=ledger, **options)
    with pytest.raises(BudgetExceededError):
        noisy_scalar(math.nan, 0.5, mu=0.1, ledger=ledger, **options)
    assert noisy_scalar(7.0, 0.5, mu=math.inf) == 7.0
    for wrong in ({"mu": 1.0, "rho": 1.0}, {}, {"epsilon": 1.0}):
        with pytest.raises(ArgumentError):
            noisy_scalar(7.0, 0.5, **wrong)


def test_bad_input():
    for options in (
        {},
        {"rho": 0.0},
        {"rho": 1.0, "mu": 1.0},
        {"epsilon": 1.0},
        {"epsilon": 1.0, "delta": 2.0},
        {"rho": 1.0, "method": "exponential"},
        {"rho": 1.0, "values_share": 1.0},
        {"rho": math.nan},
    ):
        with pytest.raises(ArgumentError):
            NoisyTopK(2, 1.0, **options)
    for k, sensitivity in ((0, 1.0), (2, 0.0), (2, math.inf), (1.5, 1.0)):
        with pytest.raises(ArgumentError):
            NoisyTopK(k, sensitivity, rho=1.0)
    ledger = Ledger()
    for v in (np.ones(2), np.ones((3, 3))):
        with pytest.raises(ArgumentError):
            NoisyTopK(3, 1.0, rho=1.0).release(v, ledger=ledger)
    assert len(ledger) == 0
    with pytest.raises(SensitivityError, match="budget"):
        NoisyTopK(1, 1.0, rho=1e-16).calibrated(LatticeNoise())
