"""The Gaussian privacy curve against 60-digit arithmetic, its inverses, and calibration."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from privinf.accounting import (
    Budget,
    GaussianLoss,
    Ledger,
    LedgerEntry,
    calibrate_mu,
    classic_mu,
    compose,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_mu,
    split_mu,
)
from privinf.accounting.calibration import exact, float_down, sqrt_down
from privinf.accounting.conversions import hockey_stick, rho_to_epsilon
from privinf.errors import ArgumentError


def reference_delta(epsilon: float, mu: float) -> mpmath.mpf:
    with mpmath.workdps(60):
        e, m = mpmath.mpf(epsilon), mpmath.mpf(mu)
        return mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)


@pytest.mark.parametrize("mu", [1e-8, 1e-6, 9e-6, 1.1e-5, 1e-3, 0.1, 0.5, 1.0, 3.0, 10.0, 30.0])
@pytest.mark.parametrize("at", [-3.0, -1.001, -0.999, 0.0, 1.0, 3.0, 6.0, 12.0])
def test_delta_matches_60_digits(mu, at):
    epsilon = (at + mu / 2) * mu  # `at` standard deviations into the tail of the privacy loss
    if epsilon < 0:
        pytest.skip("epsilon below 0")
    expected = float(reference_delta(epsilon, mu))
    assert gaussian_delta(epsilon, mu) == pytest.approx(expected, rel=2e-8, abs=1e-16)
    if 1e-3 <= mu <= 10:
        assert gaussian_delta(epsilon, mu) == pytest.approx(expected, rel=1e-11, abs=1e-300)


@pytest.mark.parametrize("mu", [0.2, 1.0, 4.0])
def test_hockey_stick_at_negative_epsilon(mu):
    epsilon = np.array([-30.0, -2.0, -0.1, 0.1])
    expected = [float(reference_delta(e, mu)) for e in epsilon]
    np.testing.assert_allclose(hockey_stick(epsilon, mu), expected, rtol=1e-13)


@pytest.mark.parametrize("mu", [1e-10, 1e-6, 1e-3, 0.1, 1.0, 10.0, 100.0, 1000.0])
@pytest.mark.parametrize("delta", [1e-300, 1e-12, 1e-6, 1e-3, 0.5, 0.99])
def test_epsilon_never_below_exact_and_tight(mu, delta):
    epsilon = gaussian_epsilon(mu, delta)
    assert gaussian_delta(epsilon, mu) <= delta
    if epsilon == 0.0:
        assert float(reference_delta(0.0, mu)) <= delta * (1 + 1e-9)
        return
    if mu >= 1e-3:
        margin = 1e-10 * epsilon
        assert reference_delta(epsilon + margin, mu) <= delta <= reference_delta(epsilon - margin, mu)


@pytest.mark.parametrize("epsilon", [0.0, 1e-6, 0.01, 1.0, 8.0, 50.0, 1e4, 5e5])
@pytest.mark.parametrize("delta", [1e-12, 1e-6, 1e-2, 0.7])
def test_calibration_inverts_the_curve(epsilon, delta):
    mu = gaussian_mu(epsilon, delta)
    assert gaussian_delta(epsilon, mu) <= delta
    assert gaussian_delta(epsilon, mu * (1 + 1e-7)) > delta
    assert gaussian_epsilon(mu, delta) == pytest.approx(epsilon, rel=1e-9, abs=1e-12)


def test_known_values():
    assert gaussian_epsilon(0.5, 1e-6) == pytest.approx(2.25408465, abs=1e-8)
    assert 1 / gaussian_mu(1.0, 1e-6) == pytest.approx(4.22467889, abs=1e-8)
    assert gaussian_mu(math.inf, 1e-6) == math.inf
    assert gaussian_epsilon(math.inf, 1e-6) == math.inf
    assert gaussian_epsilon(0.0, 1e-6) == 0.0
    assert (gaussian_delta(1.0, 0.0), gaussian_delta(1.0, math.inf)) == (0.0, 1.0)


def test_classic_calibration_reports_what_the_noise_gives():
    claimed, delta = 16.0, 1e-5
    mu = calibrate_mu(epsilon=claimed, delta=delta, calibration="classic")
    assert 1 / mu == pytest.approx(math.sqrt(2 * math.log(1.25 / delta)) / claimed, rel=1e-15)
    assert 1 / mu == pytest.approx(0.30, abs=0.005)
    assert 1 / calibrate_mu(epsilon=claimed, delta=delta) == pytest.approx(0.34, abs=0.005)
    assert compose([GaussianLoss(mu)]).epsilon(delta) > claimed + 1.0  # not private at the level claimed
    assert compose([GaussianLoss(classic_mu(1.0, delta))]).epsilon(delta) < 1.0  # and wasteful where it is


def test_calibrate_mu_accepts_exactly_one_level():
    assert calibrate_mu(mu=0.3) == 0.3
    assert calibrate_mu(mu=0.3, delta=1e-6) == 0.3
    assert calibrate_mu(rho=0.125) == 0.5
    assert calibrate_mu(epsilon=math.inf) == math.inf
    assert calibrate_mu(rho=math.inf) == calibrate_mu(mu=math.inf) == math.inf


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "exactly one"),
        ({"epsilon": 1.0, "mu": 1.0, "delta": 1e-6}, "exactly one"),
        ({"epsilon": 1.0}, "delta= is missing"),
        ({"epsilon": 0.0, "delta": 1e-6}, "epsilon"),
        ({"epsilon": -1.0, "delta": 1e-6}, "epsilon"),
        ({"epsilon": math.nan, "delta": 1e-6}, "epsilon"),
        ({"epsilon": "1", "delta": 1e-6}, "epsilon"),
        ({"epsilon": 1.0, "delta": 0.0}, "delta"),
        ({"epsilon": 1.0, "delta": 1.0}, "delta"),
        ({"mu": 1.0, "delta": 2.0}, "delta"),
        ({"mu": 0.0}, "mu"),
        ({"rho": -0.1}, "rho"),
        ({"rho": 0.1, "calibration": "classic"}, "classic"),
        ({"epsilon": 1.0, "delta": 1e-6, "calibration": "tight"}, "calibration"),
    ],
)
def test_bad_calibrations_are_refused(arguments, message):
    with pytest.raises(ArgumentError, match=message):
        calibrate_mu(**arguments)


@pytest.mark.parametrize("mu", [0.1, 0.3, 1 / 3, 1.0, 7.7])
@pytest.mark.parametrize("shares", [1, 3, 7, 10, [0.2, 0.3, 0.5], [1.0, 2.0, 4.0]])
def test_split_mu_never_exceeds_and_wastes_nothing(mu, shares):
    parts = split_mu(mu, shares)
    spent = sum(exact(part) ** 2 for part in parts)
    assert spent <= exact(mu) ** 2
    assert float(spent) == pytest.approx(mu * mu, rel=1e-14)
    ledger = Ledger(Budget(mu=mu))
    for part in parts:
        ledger.spend(
            LedgerEntry(
                mechanism="gaussian",
                label="round",
                unit="record",
                relation="replace-one",
                trust="local",
                loss=GaussianLoss(part),
                source="lattice",
                secure=True,
            )
        )


def test_split_mu_weights_and_refusals():
    assert split_mu(5.0, [9.0, 16.0]) == (3.0, 4.0)
    assert split_mu(math.inf, 2) == (math.inf, math.inf)
    for bad in (0, -1, [], [1.0, 0.0], 2.5):
        with pytest.raises(ArgumentError):
            split_mu(1.0, bad)


def test_exact_reads_decimals_and_rounds_down():
    assert exact(0.1) * 3 == exact(0.3)
    for value in (Fraction(1, 3), Fraction(2, 7), Fraction(10**20, 3), Fraction(1, 3 * 10**20)):
        assert exact(float_down(value)) <= value < exact(float_down(value)) * Fraction(1 + 2**-50)
        assert exact(sqrt_down(value)) ** 2 <= value < exact(sqrt_down(value)) ** 2 * Fraction(1 + 2**-49)


def test_ends_of_the_doubles():
    """A quotient beyond them; an end of a root's bracket whose logarithm is rounded to the other side."""
    assert gaussian_delta(1e308, 1e-300) == 0.0
    assert rho_to_epsilon(1e300, 1e-300) == pytest.approx(1e300)
    assert rho_to_epsilon(1e308, 1e-300) == pytest.approx(1e308)
