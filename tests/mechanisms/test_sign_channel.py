"""One sign from each machine: assignment, law of the answers, cost, refusals."""

import math

import numpy as np
import pytest
from scipy.stats import binomtest, norm
from support.instrument import RecordingNoise

import privinf as pi
from privinf.errors import AlignmentError, ArgumentError, BudgetExceededError, SchemaError
from privinf.mechanisms.local import signs as sign_channel
from privinf.mechanisms.local.signs import SignChannel, assign_coordinates, mean_sign
from privinf.noise import SimulationNoise

SEEDED = {"rng": 0, "public_seed": 0}


def test_every_coordinate_is_asked_equally_often_up_to_one():
    for machines, p in [(100, 7), (5, 20), (30, 30)]:
        asked = np.bincount(assign_coordinates(machines, p, 0), minlength=p)
        assert asked.sum() == machines
        assert asked.max() - asked.min() <= 1
    # and at random: over seeds, machine 0 is asked about each of two coordinates, and so is the odd one out
    first = [assign_coordinates(3, 2, seed)[0] for seed in range(400)]
    extra = [np.bincount(assign_coordinates(3, 2, seed)).argmax() for seed in range(400)]
    for chosen in (first, extra):
        assert binomtest(int(sum(chosen)), 400).pvalue > 1e-4
    assert (assign_coordinates(50, 9, 3) == assign_coordinates(50, 9, 3)).all()


def test_answers_follow_the_sign_of_the_asked_mean():
    rows = np.random.default_rng(1).standard_normal((500, 3, 6))
    sent = SignChannel(math.inf).release(rows, **SEEDED)
    means = rows.mean(axis=1)[np.arange(500), sent.coordinates]
    np.testing.assert_array_equal(sent.answers, means >= 0.0)
    assert sent.lie == 0.0
    assert mean_sign(np.array([[1.0, -1.0], [-1.0, -1.0]]), 0) == 1
    assert mean_sign(np.array([[1.0, -1.0], [-1.0, -1.0]]), 1) == 0


@pytest.mark.parametrize("noise", [{"rng": 0}, {}], ids=["seeded", "secure"])
def test_share_of_answers(noise):
    """Mean answer lie + (1 - 2 lie) Phi(sqrt(n) mu), in each coordinate."""
    mu, n, m, epsilon = np.array([0.3, -0.1]), 4, 20_000, 1.5
    rows = np.random.default_rng(2).normal(mu, 1.0, (m, n, 2))
    sent = SignChannel(epsilon).release(rows, public_seed=1, **noise)
    lie = 1.0 / (1.0 + math.exp(epsilon))
    assert sent.lie == pytest.approx(lie)
    for j in (0, 1):
        answers = sent.answers[sent.coordinates == j]
        expected = lie + (1 - 2 * lie) * norm.cdf(math.sqrt(n) * mu[j])
        assert binomtest(int(answers.sum()), len(answers), expected).pvalue > 1e-4


@pytest.mark.audit
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0])
def test_variance_is_p_coth_squared_over_m(epsilon):
    """Debiased means of a null design, many times over, against the formula of the docstring."""
    p, m, runs = 5, 100, 600
    signs = np.random.default_rng(3).choice([-1.0, 1.0], (runs, m, 1, p))
    channel = SignChannel(epsilon)
    noise, means = np.random.default_rng(4), []
    for rows in signs:
        sent = channel.release(rows, rng=noise, public_seed=noise)
        debiased = (2 * sent.answers - 1) / (1 - 2 * sent.lie)
        means.append(np.bincount(sent.coordinates, debiased) / np.bincount(sent.coordinates))
    variance = np.var(means)
    spread = math.sqrt(2.0 / (runs * p))  # of a variance of nearly normal means
    assert channel.spread == pytest.approx(1 / math.tanh(epsilon / 2))
    assert abs(variance / (p * channel.spread**2 / m) - 1) < norm.isf(5e-5) * spread


def test_one_line_of_pure_epsilon_for_a_whole_machine():
    rows = [np.ones((n, 3)) for n in (1, 5, 9)]
    ledger = pi.Ledger()
    sent = SignChannel(0.7).release(rows, ledger=ledger, **SEEDED)
    (entry,) = sent.entries
    assert entry.loss == pi.accounting.PureLoss(0.7)
    assert (entry.unit, entry.trust, entry.relation) == ("machine", "local", "replace-one")
    assert not entry.secure
    assert len(ledger) == 1
    assert sent.sizes.tolist() == [1, 5, 9]
    SignChannel(0.7).release(rows, ledger=ledger, **SEEDED)
    assert ledger.total().epsilon(1e-12) == pytest.approx(1.4)


def test_noise_calls_are_one_flag_a_machine(monkeypatch):
    """What was drawn is what the ledger says: one response at its lie probability for each machine."""
    recorded = RecordingNoise(SimulationNoise(0))
    monkeypatch.setattr(sign_channel, "get_source", lambda **how: recorded)
    sent = SignChannel(0.9).release(np.ones((40, 2, 3)), public_seed=0)
    (call,) = recorded.of("bernoulli")
    assert call.shape == (40,)
    assert call.scale == sent.lie == pytest.approx(1 / (1 + math.exp(0.9)))


GOOD = [np.ones((2, 3)), np.ones((4, 3))]


@pytest.mark.parametrize(
    ("samples", "error", "message"),
    [
        ([], ArgumentError, "sequence of arrays"),
        (3.0, ArgumentError, "sequence of arrays"),
        ([np.ones((2, 3)), np.ones((2, 4))], AlignmentError, "columns"),
        ([np.ones((2, 3)), np.empty((0, 3))], SchemaError, "site 1"),
        ([np.ones(3)], SchemaError, "site 0"),
        ([np.ones((2, 3)), np.full((2, 3), 771177.5) * [1, np.nan, 1]], SchemaError, "site 1"),
        ([[["771177.5x"]]], SchemaError, "numeric"),
    ],
)
def test_bad_rows_spend_nothing_and_show_nothing(samples, error, message):
    ledger = pi.Ledger()
    with pytest.raises(error, match=message) as caught:
        SignChannel(1.0).release(samples, ledger=ledger, **SEEDED)
    assert len(ledger) == 0
    assert "771177" not in str(caught.value)


def test_budgets_are_refused_before_rows_are_read():
    with pytest.raises(ArgumentError, match="epsilon"):
        SignChannel(-1.0)
    with pytest.raises(ArgumentError, match="Ledger"):
        SignChannel(1.0).release(GOOD, ledger=3)
    ledger = pi.Ledger(pi.Budget(epsilon=0.5, delta=0))
    with pytest.raises(BudgetExceededError):
        SignChannel(1.0).release(object(), ledger=ledger, **SEEDED)


def test_a_masked_array_hides_nothing_from_the_check():
    samples = np.ma.masked_invalid(np.where(np.arange(24) == 5, np.nan, 1.0).reshape(4, 3, 2))
    with pytest.raises(SchemaError, match="missing or infinite"):
        SignChannel(1.0).release(samples, rng=0)
