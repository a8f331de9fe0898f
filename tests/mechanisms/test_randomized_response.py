"""Randomized response: probabilities, unbiased inverse, errors."""

import math

import numpy as np
import pytest
from scipy.stats import chisquare

import privinf as pi
from privinf.mechanisms import RandomizedResponse
from privinf.mechanisms.local.responses import lie_probability
from privinf.noise import LatticeNoise, SimulationNoise


@pytest.mark.parametrize("levels", [2, 3, 7])
@pytest.mark.parametrize("source", [SimulationNoise(3), LatticeNoise()], ids=["seeded", "secure"])
def test_probabilities(levels, source):
    law = RandomizedResponse(levels, 1.2)
    assert law.keep / law.other == pytest.approx(math.exp(1.2))
    assert law.keep + (levels - 1) * law.other == pytest.approx(1.0)
    n = 40_000
    sent = law.respond(np.full(n, 1), source)
    expected = np.full(levels, law.other * n)
    expected[1] = law.keep * n
    assert chisquare(np.bincount(sent, minlength=levels), expected).pvalue > 1e-5


def test_inverse_is_unbiased_and_its_variance_known():
    law = RandomizedResponse(3, 1.0)
    labels = np.repeat([0, 1, 2], 50_000)
    hats = law.dummies(law.respond(labels, SimulationNoise(0)))
    for level in range(3):
        truth = np.eye(3)[level]
        spread = hats[labels == level].std(axis=0) / math.sqrt(50_000)
        assert (np.abs(hats[labels == level].mean(axis=0) - truth) < 5 * spread).all()
    binary = RandomizedResponse(2, 1.0)
    x = binary.dummies(binary.respond(labels % 2, SimulationNoise(1)))[:, 1]
    e = math.e
    for value in (0, 1):
        assert x[labels % 2 == value].var() == pytest.approx(e / (e - 1) ** 2, rel=0.02)


def test_the_lie_is_rounded_up_so_that_the_loss_never_exceeds_epsilon():
    for epsilon in (1e-6, 0.3, 1.0, 8.0, 40.0, 60.0):
        for levels in (2, 5):
            law = RandomizedResponse(levels, epsilon)
            # exact in 2^-64 steps; log1p keeps the digits that 1 - lie would lose
            loss = math.log1p(-law.lie) - math.log(law.lie / (levels - 1))
            assert loss <= epsilon * (1 + 1e-12) + 1e-12
            assert loss >= min(epsilon, 30.0) * (1 - 1e-5) - 1e-6


def test_entry_matrix_and_errors():
    law = RandomizedResponse(3, 0.7)
    entry = law.entry(SimulationNoise(0))
    assert entry.loss == pi.accounting.PureLoss(0.7)
    assert not entry.secure
    lie = lie_probability(3, 0.7)
    assert math.log((1.0 - lie) / (lie / 2.0)) == pytest.approx(0.7, rel=1e-9)
    np.testing.assert_array_equal(
        RandomizedResponse(3, math.inf).respond([0, 1, 2], SimulationNoise(0)), [0, 1, 2]
    )
    with pytest.raises(pi.errors.SchemaError):
        RandomizedResponse(2, 1.0).respond([0, 2], SimulationNoise(0))
    with pytest.raises(pi.errors.SchemaError):
        RandomizedResponse(2, 1.0).respond([0.5], SimulationNoise(0))
    for levels, epsilon in ((2, 0.0), (1, 1.0), (2, math.nan)):
        with pytest.raises(pi.errors.ArgumentError):
            RandomizedResponse(levels, epsilon)
