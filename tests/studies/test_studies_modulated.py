"""Paper 1's study: its splits and grids, the price of tuning, and the risks without privacy (Appendix F)."""

from __future__ import annotations

import math

import numpy as np
import pytest

import privinf as pi
from privinf.accounting import gaussian_epsilon
from privinf.errors import ArgumentError
from studies.dp_fedsgd import dp_fedsgd, paper_rho
from studies.modulated import (
    DELTA,
    EPSILONS,
    MAP,
    MAX_NORM,
    ROUNDS,
    agnostic_rate,
    candidates,
    chosen_privately,
    fitted,
    fixed_design_risk,
    gradient_norms,
    least_squares,
    price_of_runs,
    r_squared,
    tasks,
)

TASKS = {task.title: task for task in tasks()}


@pytest.fixture(scope="module")
def rows():
    return TASKS["ModeChoice"].split(0, "validation")


def test_parts_are_apart_and_scaled_by_the_training_part(rows):
    task = TASKS["ModeChoice"]
    X, y, X_valid, y_valid = rows
    same = task.split(0)
    np.testing.assert_array_equal(X, same[0])
    assert (len(X), len(X_valid), len(same[2])) == (504, 168, 168)
    np.testing.assert_allclose([X.mean(axis=0).max(), X.std(axis=0).min(), y.std()], [0, 1, 1], atol=1e-12)
    together = np.sort(np.concatenate([y, y_valid, same[3]]))
    raw = task.data.y.to_numpy()
    order = np.random.default_rng(0).permutation(len(raw))
    centre = raw[order[:504]].mean(), raw[order[:504]].std()
    np.testing.assert_allclose(together, np.sort((raw - centre[0]) / centre[1]))


def test_grids_hold_the_papers_settings(rows):
    for task in TASKS.values():
        X, y, *_ = task.split(0)
        assert (task.step,) in candidates(X, y, "iterative")
        assert (task.ridge,) in candidates(X, y, "one-shot ridge")
        assert task.sgd_step in {step for _, step in candidates(X, y, "DP-SGD")}
    assert gradient_norms(*rows[:2]) == pytest.approx(np.abs(rows[1]) * np.linalg.norm(rows[0], axis=1))


def test_every_setting_is_the_method_itself(rows):
    X, y, *_ = rows
    theirs = {"rho": paper_rho(4.0, DELTA), "delta": DELTA, "rng": 3}
    model = pi.ModulatedOLS(y, X, adjacency="unit", sensitivity="lipschitz", response="public", **MAP)
    ridges = fitted(X, y, "one-shot ridge", [(0.5,), (2.0,)], 4.0, 3)
    once = pi.ModulatedOLS.from_release(model.release(**theirs))
    for found, ridge in zip(ridges, (0.5, 2.0), strict=True):
        np.testing.assert_array_equal(found, once.fit(ridge=ridge).params)
    server = {"step": 0.8, "max_norm": MAX_NORM}
    rounds = model.release(method="iterative", rounds=ROUNDS, progress=False, **server, **theirs)
    last = pi.ModulatedOLS.from_release(rounds).fit(estimator="last", **server)
    np.testing.assert_array_equal(fitted(X, y, "iterative", [(0.8,)], 4.0, 3)[0], last.params)
    plain = dp_fedsgd(y, X, epsilon=4.0, delta=DELTA, clip_norm=2.0, step=0.1, rounds=ROUNDS, rng=3)
    np.testing.assert_array_equal(fitted(X, y, "DP-SGD", [(2.0, 0.1)], 4.0, 3)[0], plain.params)


def test_runs_add_up_and_nothing_is_free():
    mu = math.sqrt(2.0 * paper_rho(1.0, DELTA))
    assert price_of_runs(1.0, 1) == pytest.approx(gaussian_epsilon(mu, DELTA))
    assert price_of_runs(1.0, 1) < 1.0 < price_of_runs(1.0, 4)
    assert price_of_runs(1.0, 4) == pytest.approx(gaussian_epsilon(2.0 * mu, DELTA))
    assert EPSILONS[[0, -1]].tolist() == [0.5, 10.0]


@pytest.mark.parametrize("scale", [1.0, 2.0])
def test_a_private_choice_is_private_and_a_mutant_is_not(scale):
    """Replacing a record moves a mean loss by cap/n at most: all up, or the best one against the others."""
    epsilon, cap, n, k = 1.0, 4.0, 50, 6
    losses = np.full(k, 1.0)
    worst = 0.0
    for moved in ([1.0, *[-1.0] * (k - 1)], [-1.0, *[1.0] * (k - 1)], [1.0] * k):
        before = chosen_privately(losses, cap, n, scale * epsilon)
        after = chosen_privately(losses + cap / n * np.array(moved), cap, n, scale * epsilon)
        worst = max(worst, float(np.abs(np.log(after / before)).max()))
    assert (worst <= epsilon) == (scale == 1.0)
    assert chosen_privately(losses, cap, n, epsilon) == pytest.approx(1 / k)
    sharp = chosen_privately(np.arange(k) / k, cap, 10**6, epsilon)
    assert sharp.argmax() == 0
    assert sharp.max() > 0.999
    with pytest.raises(ArgumentError, match="epsilon"):
        chosen_privately(losses, cap, n, 0.0)


def test_least_squares_reaches_the_risks_of_a_fixed_design():
    rng = np.random.default_rng(0)
    X, beta, sd = rng.standard_normal((40, 3)), np.array([1.0, -1.0, 0.5]), 0.7
    fits = np.array([least_squares(X, X @ beta + sd * rng.standard_normal(40)) for _ in range(4000)])
    prediction, estimation = fixed_design_risk(X, sd**2)
    gaps = ((fits - beta) @ X.T) ** 2
    assert gaps.mean() == pytest.approx(prediction, rel=0.05)
    assert ((fits - beta) ** 2).sum(axis=1).mean() == pytest.approx(estimation, rel=0.05)
    assert fixed_design_risk(np.ones((10, 2)), 1.0) == (0.1, math.inf)
    assert r_squared(np.zeros(3), X, X @ beta) <= 0.0


def test_the_agnostic_rate_is_the_least_of_three():
    ball = {"beta_norm": 1.0, "feature_norm": 2.0, "response_norm": 3.0}
    assert agnostic_rate(1, 100, **ball) == 6.0
    assert agnostic_rate(1, 100, **ball | {"beta_norm": 10.0}) == 9.0
    assert agnostic_rate(10**8, 5, **ball) == 4.0 + 45.0
