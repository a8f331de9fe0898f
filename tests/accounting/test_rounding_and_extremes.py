"""Epsilon of pure losses is never below the exact value; budgets beyond all doubles are refused by name."""

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from privacy.mutation import Mutant

import privinf as pi
from privinf.accounting import (
    ApproximateLoss,
    Budget,
    GaussianLoss,
    PrivacyReport,
    PureLoss,
    calibrate_mu,
    compose,
    gaussian_epsilon,
    gaussian_mu,
)
from privinf.accounting.calibration import sum_up
from privinf.errors import ArgumentError, NotAvailableError, SensitivityError
from privinf.stats import ttest_1samp


def exact_delta(epsilons, at):
    """Return delta of the sum of randomized responses, each outcome by itself, with 60 digits."""
    with mpmath.workdps(60):
        delta = mpmath.mpf(0)
        for signs in itertools.product((1, -1), repeat=len(epsilons)):
            loss = mpmath.fsum(sign * mpmath.mpf(e) for sign, e in zip(signs, epsilons, strict=True))
            if loss > at:
                mass = mpmath.mpf(1)
                for sign, e in zip(signs, epsilons, strict=True):
                    mass /= 1 + mpmath.exp(-sign * mpmath.mpf(e))
                delta += mass * (1 - mpmath.exp(at - loss))
        return delta


def compositions(count):
    """Yield epsilons of a few responses, round numbers and others, and a delta."""
    rng = np.random.default_rng(0)
    for index in range(count):
        size = int(rng.integers(1, 7))
        epsilons = rng.choice([0.1, 0.2, 0.3, 0.7, 1.0], size) if index % 2 else rng.uniform(0.01, 2.0, size)
        yield epsilons, float(10.0 ** rng.choice([-300.0, -30.0, rng.uniform(-9.0, -0.5)]))


def stated_too_low(count):
    """Return the compositions whose epsilon is below the exact one."""
    found = []
    for epsilons, delta in compositions(count):
        epsilon = compose([PureLoss(float(e)) for e in epsilons]).epsilon(delta)
        with mpmath.workdps(60):
            if exact_delta(epsilons, mpmath.mpf(epsilon)) > mpmath.mpf(delta):
                found.append((epsilons, delta))
    return found


@pytest.mark.audit
def test_epsilon_of_pure_losses_is_never_below_the_exact_one():
    assert stated_too_low(250) == []


def test_epsilon_of_pure_losses_is_within_its_last_digits():
    for epsilons, delta in compositions(100):
        epsilon = compose([PureLoss(float(e)) for e in epsilons]).epsilon(delta)
        with mpmath.workdps(60):
            below = mpmath.mpf(epsilon) * (1 - mpmath.mpf("1e-12"))
            assert not epsilon or exact_delta(epsilons, below) > mpmath.mpf(delta), (epsilons, delta)


def test_a_total_without_its_margins_is_seen():
    margins = "(1.0 + growth) * _mixture_delta(e - slip, mu, losses, masses)"
    plain = "_mixture_delta(e, mu, losses, masses)"
    with Mutant("accounting.composition", "Total.epsilon", margins, plain).applied():
        assert stated_too_low(60)


def test_a_total_of_pure_losses_is_at_most_their_sum_rounded_up():
    for epsilons in ([0.1] * 3, [0.7] * 7, [0.1, 0.2, 0.4], [1.0], [0.3]):
        epsilon = compose(map(PureLoss, epsilons)).epsilon(1e-300)
        assert epsilon <= sum_up(epsilons)
        assert Fraction(sum_up(epsilons)) >= sum(map(Fraction, epsilons))
    assert sum_up([0.5, 0.25]) == 0.75
    many = compose([PureLoss(0.01)] * 3000)
    assert many.epsilon(1e-6) <= sum_up([0.01] * 3000)


LEVELS = {
    "mu": [1e101, 1e300, 1e-101],
    "rho": [1e101, 1e300, 1e-300],
    "epsilon": [1e101, 1e300, 1e-300],
}


@pytest.mark.parametrize(("name", "level"), [(name, level) for name in LEVELS for level in LEVELS[name]])
def test_levels_that_are_no_budget_are_refused_by_their_own_name(name, level):
    given = {name: level} | ({"delta": 1e-6} if name == "epsilon" else {})
    for refused in (lambda: Budget(**given), lambda: calibrate_mu(**given)):
        with pytest.raises(ArgumentError, match=rf"^{name}=.*is not a plausible privacy loss; pass a number"):
            refused()
    model = pi.MomentOLS(np.zeros(50), np.zeros((50, 1)), bounds=[(-1, 1)], y_bounds=(-1, 1))
    with pytest.raises(ArgumentError, match=f"^{name}="):
        model.fit(**given, rng=0)


@pytest.mark.parametrize("level", [1e-100, 1e-12, 1.0, 1e12, 1e100])
@pytest.mark.parametrize("name", ["mu", "rho", "epsilon"])
def test_levels_at_the_ends_are_converted(name, level):
    given = {name: level} | ({"delta": 1e-6} if name == "epsilon" else {})
    budget, mu = Budget(**given), calibrate_mu(**given)
    assert 0.0 < mu < math.inf
    assert Budget.from_dict(budget.to_dict()) == budget
    assert str(budget)
    assert math.isfinite(budget.epsilon(1e-6))
    assert math.isfinite(compose([GaussianLoss(mu)]).epsilon(1e-6))
    assert GaussianLoss(mu).mu ** 2 <= budget.limit * 2 * (1 + Fraction(1, 10**9))


def test_conversions_beyond_the_doubles_are_refused_by_name():
    with pytest.raises(ArgumentError, match=r"^epsilon=1e\+300 is too large to convert"):
        gaussian_mu(1e300, 1e-6)
    with pytest.raises(ArgumentError, match=r"^mu=1e\+160 is too large to convert"):
        gaussian_epsilon(1e160, 1e-6)
    assert gaussian_epsilon(1e149, 1e-6) == pytest.approx(0.5e298)


@pytest.mark.parametrize("mu", [1e-12, 1e-30, 1e-100])
@pytest.mark.parametrize("model", [pi.OLS, pi.MomentOLS])
def test_a_mu_below_the_grid_of_secure_noise_is_refused_with_the_least_that_would_do(model, mu):
    options = {"intervals": "optional"} if model is pi.OLS else {}
    ledger = pi.Ledger()
    fit = model(np.zeros(50), np.zeros((50, 1)), bounds=[(-1, 1)], y_bounds=(-1, 1), ledger=ledger).fit
    with pytest.raises(SensitivityError, match=r"^mu=\S+ is too small for .*of \d+ numbers.*mu=\S+ or more"):
        fit(mu=mu, **options)
    assert len(ledger) == 0


def test_the_frame_of_a_report_marks_what_is_a_simulation(make_entry):
    secure, seeded = make_entry(), make_entry(source="simulation", secure=False)
    exact = make_entry(GaussianLoss(math.inf), secure=False)
    assert PrivacyReport.from_entries([secure]).to_frame().loc["private"].tolist() == [1.0, 1.0]
    for marked in (seeded, exact):
        assert PrivacyReport.from_entries([marked]).to_frame().loc["private"].tolist() == [0.0, 0.0]
    report = PrivacyReport(entries=(secure,), recorded=(seeded, secure))
    assert report.to_frame().loc["private"].tolist() == [1.0, 0.0]


def test_the_refusal_of_several_rows_a_unit_names_a_model_that_takes_them():
    schema = pi.Schema({"y": (-1.0, 1.0), "x": (-1.0, 1.0)}, unit="person", max_rows=2)
    rows = {"y": np.zeros(40), "x": np.linspace(-1, 1, 40), "person": np.arange(40) // 2}
    with pytest.raises(NotAvailableError, match=r"or fit pi\.MomentOLS"):
        ttest_1samp("y", data=rows, schema=schema, epsilon=1.0, delta=1e-6, rng=0)
    fit = pi.MomentOLS.from_formula("y ~ x", rows, schema=schema).fit(epsilon=1.0, delta=1e-6, rng=0)
    assert "person" in fit.privacy.unit


def test_events_keep_their_deltas():
    assert compose([ApproximateLoss(1.0, 1e-7)]).epsilon(1e-6) <= 1.0
    assert compose([ApproximateLoss(1.0, 1e-6)]).epsilon(1e-6) == math.inf
