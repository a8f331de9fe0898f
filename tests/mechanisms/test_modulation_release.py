"""Modulation: the law of a message, enforced bounds, budget before rows, rounds."""

import math

import numpy as np
import pandas as pd
import pytest

import privinf as pi
from privinf.mechanisms import Modulation, Rows
from privinf.mechanisms.local.modulation_map import (
    ModulationMap,
    modulated_message,
    orthonormal_directions,
    planned_response_share,
)
from privinf.mechanisms.rows import encode, project_ball
from privinf.noise import LatticeNoise, SimulationNoise, grid_step
from privinf.schema import Design

SCHEMA = pi.Schema({"y": (0.0, 10.0), "x1": (-1.0, 3.0), "x2": (0.0, 1.0), "g": ["a", "b", "c"]})


def frame(n=200, seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "y": rng.uniform(0, 10, n),
            "x1": rng.uniform(-1, 3, n),
            "x2": rng.uniform(0, 1, n),
            "g": rng.choice(["a", "b", "c"], n),
        }
    )


@pytest.mark.parametrize("source", [SimulationNoise(5), LatticeNoise()], ids=["seeded", "secure"])
@pytest.mark.parametrize("rule", ["exact", "lipschitz"])
def test_message_has_the_stated_law(source, rule):
    n, d, m, scale = 60_000, 4, 2, 0.3
    parameters = ModulationMap(contraction=0.4, amplitude=1.5, frequency=2.0, directions=m, sensitivity=rule)
    x = np.tile(np.array([[0.5, -0.2, 0.1, 0.7]]), (n, 1))
    V = orthonormal_directions(np.random.default_rng(1), m, d)
    message = modulated_message(x, V, scale, source, parameters)
    noise = message - 0.6 * x
    expected = scale**2 * np.eye(d) + 1.5**2 / (2 * m) * V.T @ V
    error = np.abs(noise.T @ noise / n - expected)
    spread = np.sqrt((expected**2 + np.outer(np.diag(expected), np.diag(expected))) / n)
    assert (error < 5 * spread).all()
    assert (np.abs(noise.mean(axis=0)) < 5 * np.sqrt(np.diag(expected) / n)).all()
    along = noise @ V[0]
    cumulant = np.mean(along**4) - 3 * np.mean(along**2) ** 2
    assert cumulant == pytest.approx(-0.375 * (1.5 / math.sqrt(m)) ** 4, abs=0.12)


def test_secure_messages_stay_on_the_grid():
    x = np.random.default_rng(0).normal(size=(500, 3))
    V = orthonormal_directions(np.random.default_rng(1), 1, 3)
    message = modulated_message(x, V, 0.7, LatticeNoise(), ModulationMap())
    steps = message / grid_step(0.7)
    np.testing.assert_array_equal(steps, np.rint(steps))


def test_projection_and_clipping_enforce_the_declared_bounds():
    x = np.random.default_rng(0).normal(size=(100, 3)) * 5
    assert np.linalg.norm(project_ball(x.copy(), 1.0), axis=1).max() <= 1 + 1e-12
    inside = x / np.linalg.norm(x, axis=1, keepdims=True) * 0.5
    np.testing.assert_allclose(project_ball(inside.copy(), 1.0), inside, rtol=1e-12)
    data = frame()
    data.loc[0, "x1"] = 1e9
    data.loc[1, "y"] = -1e9
    design = Design.from_formula("y ~ x1 + x2 + C(g)", SCHEMA)
    encoded = encode(design, Rows(data))
    assert np.abs(encoded.private).max() <= 1.0
    assert np.abs(encoded.response).max() <= 1.0
    largest = max(np.linalg.norm(a - b) for a in encoded.private for b in encoded.private[:50])
    assert largest <= design.diameter + 1e-12


class Untouchable:
    def __getattr__(self, name):
        raise AssertionError("rows were read")

    def __len__(self):
        raise AssertionError("rows were read")


def test_an_overspending_release_is_refused_before_a_row_is_read():
    ledger = pi.Ledger(pi.Budget(mu=1.0))
    mechanism = Modulation(SCHEMA, "y ~ x1 + x2")
    with pytest.raises(pi.errors.BudgetExceededError):
        mechanism.release(Untouchable(), mu=1.01, ledger=ledger)
    assert ledger.entries == ()
    mechanism.release(frame(), mu=1.0, ledger=ledger)
    with pytest.raises(pi.errors.BudgetExceededError):
        mechanism.release(Untouchable(), mu=0.01, ledger=ledger)


def test_bad_rows_are_refused_before_anything_is_spent():
    ledger = pi.Ledger()
    data = frame()
    data.loc[3, "x1"] = np.nan
    with pytest.raises(pi.errors.SchemaError, match="x1"):
        Modulation(SCHEMA, "y ~ x1 + x2").release(data, mu=1.0, ledger=ledger)
    assert ledger.entries == ()


@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.parametrize("response", ["protected", "public"])
def test_shares_add_up_to_the_whole(rounds, response):
    mechanism = Modulation(SCHEMA, "y ~ x1 + x2", response=response)
    session = mechanism.open(frame(), rounds=rounds, mu=0.9, rng=0)
    rng = np.random.default_rng(0)
    for _ in range(rounds):
        session.send(orthonormal_directions(rng, 1, 2))
    release = session.release()
    assert sum(entry.loss.mu**2 for entry in release.entries) == pytest.approx(0.81, rel=1e-12)
    assert len(release.entries) == rounds + (response == "protected")
    if response == "public":
        assert any("y released in clear" in text for text in release.entries[0].assumptions)
    with pytest.raises(pi.errors.ArgumentError, match="paid for"):
        session.send(orthonormal_directions(rng, 1, 2))


def test_noise_scale_follows_from_sensitivity_and_mu():
    X = np.random.default_rng(0).uniform(-0.5, 0.5, (100, 3))
    expected = {"exact": 0.5 * 2.0, "lipschitz": (0.5 + 0.1 * 2.0 / math.sqrt(2)) * 2.0}
    for rule, sensitivity in expected.items():
        model = pi.ModulatedOLS(
            X[:, 0], X, radius=1.0, frequency=2.0, directions=2, sensitivity=rule, response="public"
        )
        release = model.release(mu=0.5, rng=0)
        assert release.noise_model["scales"][0] == pytest.approx(sensitivity / 0.5, rel=1e-9)
    unit = pi.ModulatedOLS(X[:, 0], X, adjacency="unit", response="public").release(mu=0.5, rng=0)
    assert unit.noise_model["scales"][0] == pytest.approx(0.5 / 0.5, rel=1e-9)
    assert unit.entries[0].relation == "metric"


def test_directions_that_are_a_little_too_long_are_refused():
    """By the Lipschitz bound a message moves by as much more, which no line has paid for."""
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (30, 3)), rng.uniform(-1, 1, 30)
    design = pi.Design.from_arrays(["a", "b", "c"], bounds=[(-1, 1)] * 3, y_bounds=(-1, 1))
    session = pi.Modulation(design).open((y, X), rounds=2, mu=1.0)
    V = orthonormal_directions(rng, 1, 3)
    session.send(V)
    for wrong in (V * (1.0 + 1e-6), V * (1.0 + 1e-11), V * 2.0):
        with pytest.raises(pi.errors.ArgumentError, match="orthonormal"):
            session.send(wrong)


def test_directions_are_orthonormal_and_avoid_the_coefficients():
    beta = np.array([1.0, -2.0, 0.5, 0.0])
    V = orthonormal_directions(np.random.default_rng(0), 3, 4, orthogonal_to=beta)
    np.testing.assert_allclose(V @ V.T, np.eye(3), atol=1e-12)
    np.testing.assert_allclose(V @ beta, 0.0, atol=1e-12)
    with pytest.raises(pi.errors.ArgumentError, match="too large for 4 private"):
        orthonormal_directions(np.random.default_rng(0), 4, 4, orthogonal_to=beta)


def test_planned_share_is_better_than_its_neighbours():
    from privinf.mechanisms.local import modulation_map

    share = planned_response_share(0.5, 4.0, 2.0, 4)
    assert 0.02 < share < 0.9
    assert planned_response_share(math.inf, 4.0, 2.0, 4) == 0.5
    assert modulation_map.planned_response_share(0.5, 8.0, 2.0, 16) < share


def test_classic_calibration_reports_the_epsilon_it_really_gives():
    X = np.random.default_rng(0).uniform(-0.5, 0.5, (100, 3))
    release = pi.ModulatedOLS(X[:, 0], X, radius=1.0, response="public").release(
        epsilon=16.0, delta=1e-5, calibration="classic", rng=0
    )
    sigma = release.noise_model["scales"][0]
    assert sigma == pytest.approx(math.sqrt(2 * math.log(1.25e5)) / 16.0, rel=1e-9)
    report = pi.PrivacyReport.from_entries(release.entries)
    assert report.epsilon(1e-5) > 16.0


def test_wrong_designs_are_refused():
    with pytest.raises(pi.errors.ArgumentError, match="formula"):
        Modulation(SCHEMA)
    with pytest.raises(pi.errors.ArgumentError, match="cannot be used with a Design"):
        Modulation(Design.from_formula("y ~ x1", SCHEMA), "y ~ x1")
    with pytest.raises(pi.errors.SensitivityError, match="public"):
        Modulation(Design.from_arrays(["const"], bounds=[], public=["const"], radius=1.0))
    with pytest.raises(pi.errors.ArgumentError):
        Modulation(SCHEMA, "y ~ x1", contraction=1.0)
    with pytest.raises(TypeError, match="pickled"):
        Rows(frame()).__reduce__()
