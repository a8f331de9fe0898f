"""Released objects carry their account and their stamp, and no value stops a release that is paid for."""

from __future__ import annotations

import json
import math
import pickle
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

import privinf as pi
from privinf.accounting import Budget, Ledger
from privinf.errors import ArgumentError, NotAvailableError
from privinf.federation import InProcessFederation, Site, SitePolicy, TrustedServer
from privinf.mechanisms import NoisyTopK, noisy_scalar, private_max
from privinf.mechanisms.gaussian import LARGEST_MULTIPLE
from privinf.noise import LatticeNoise, grid_step
from privinf.noise.lattice import LARGEST_STEP
from privinf.wire import Assumptions

V = [0.5, -3.0, 1.0]
ROWS = np.random.default_rng(0).uniform(size=(40, 3, 2))


def released(mu=1.0, ledger=None, rng=None):
    """Return one object of every kind that mechanisms and servers let out."""
    design = pi.Design.from_arrays(["x"], bounds=[(-1, 1)], y_bounds=(-2, 2))
    policy = SitePolicy(trusted_server=True, simulation=True)
    site = Site((np.full(50, 0.5), np.full((50, 1), 1.0)), design, policy=policy)
    server = TrustedServer(InProcessFederation({"north": site}), rng=rng, ledger=ledger)
    epsilon = math.inf if math.isinf(mu) else 1.0
    model = pi.MomentOLS(ROWS[:, 0, 0], ROWS[:, 0], bounds=[(0, 1)] * 2, y_bounds=(0, 1), ledger=ledger)
    return {
        "scalar": noisy_scalar(3.0, 0.5, mu=mu, rng=rng, ledger=ledger),
        "top k": NoisyTopK(2, 0.1, mu=mu).release(V, rng=rng, ledger=ledger),
        "positions": NoisyTopK(2, 0.1, mu=mu, values=False).release(V, rng=rng, ledger=ledger),
        "max": private_max(V, 0.1, mu=mu, rng=rng, ledger=ledger),
        "sum": server.scalar("squared_residuals", {"residual_clip": 1.0}, mu=mu, label="variance"),
        "gram": server.gram({"residual_clip": 1.0}, mu=mu, label="gram", op="squared_residuals"),
        "machines": pi.sparse_mean(ROWS, epsilon=epsilon, sparsity=1, rng=rng, ledger=ledger),
        "release": model.release(mu=mu, rng=rng),
    }


KINDS = ("scalar", "top k", "positions", "max", "sum", "gram", "machines", "release")


@pytest.mark.parametrize(
    ("mu", "rng", "stamp"),
    [(1.0, None, ""), (1.0, 0, "SIMULATION NOISE: NOT PRIVATE"), (math.inf, None, "NO NOISE: NOT PRIVATE")],
    ids=["secure", "seeded", "clear"],
)
@pytest.mark.filterwarnings("ignore::privinf.errors.WeakIdentificationWarning")
def test_every_released_object_carries_its_account_and_its_stamp(mu, rng, stamp):
    ledger = Ledger()
    for kind, found in released(mu, ledger.scope("all"), rng).items():
        assert found.stamp == found.privacy.stamp == stamp, kind
        assert found.secure == (stamp == ""), kind
        assert ("NOT PRIVATE" in repr(found)) == (stamp != ""), kind
        assert stamp in repr(found), kind
        assert found.entries, kind
        assert set(found.entries) <= set(ledger.entries), kind
        assert all(entry.scope[:1] == ("all",) for entry in found.entries), kind
        if kind != "machines":
            assert found.loss.rho == pytest.approx(mu**2 / 2), kind
        else:
            assert found.loss.epsilon(1e-6) == pytest.approx(math.inf if math.isinf(mu) else 1.0, rel=1e-5)
        if kind != "release" or not math.isinf(mu):
            assert pickle.loads(pickle.dumps(found)).entries == found.entries, kind


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore::privinf.errors.WeakIdentificationWarning")
def test_without_a_ledger_the_account_is_on_the_object(kind):
    found = released(rng=0)[kind]
    assert found.privacy.epsilon(1e-6) > 0.9
    assert all(entry.loss for entry in found.entries)


def test_a_released_number_is_a_float_in_everything_that_users_did_with_it():
    found = noisy_scalar(3.0, 1e-3, mu=1.0, rng=0)
    plain = float(found)
    assert type(plain) is float
    assert (found + 1, 2 * found, -found, found**2, found == plain) == (
        plain + 1,
        2 * plain,
        -plain,
        plain**2,
        True,
    )
    assert type(found + 1) is float  # and carries no account
    assert np.asarray([found, 1.0]).dtype == np.float64
    assert np.sqrt(found) == math.sqrt(plain)
    assert (round(found, 2), f"{found:.3f}", str(found), f"{found}") == (
        round(plain, 2),
        f"{plain:.3f}",
        str(plain),
        str(plain),
    )
    assert json.loads(json.dumps({"x": found})) == {"x": plain}
    assert {found: 1}[plain] == 1
    back = pickle.loads(pickle.dumps(found))
    assert (back, back.entries, back.scale, repr(back)) == (found, found.entries, found.scale, repr(found))
    for change in (lambda: setattr(found, "entries", ()), lambda: delattr(found, "scale")):
        with pytest.raises(AttributeError, match="cannot be changed"):
            change()


def test_the_largest_is_a_number_where_its_value_was_released():
    top = private_max(V, 1e-3, mu=1.0, rng=0)
    assert float(top) == top.values[0]
    for other in (
        private_max(V, 1e-3, mu=1.0, values=False, rng=0),
        NoisyTopK(2, 1e-3, mu=1.0).release(V, rng=0),
    ):
        with pytest.raises(ArgumentError, match="not a single number"):
            float(other)


# ---- values after the charge


class Sly:
    """No number, though it says that it can be one."""

    def __float__(self):
        raise RuntimeError("7654.321")


HARD = {
    "nan": np.array([np.nan, 2.0, 1.0]),
    "infinities": np.array([np.inf, -np.inf, 1.0]),
    "huge": np.array([1e308, -1e308, 1.0]),
    "tiny": np.array([5e-324, -5e-324, 0.0]),
    "huge whole numbers": [10**400, 1, 2],
    "objects": [None, "text in an array of objects", 3.0],
    "sly objects": [Sly(), 1.0, 2.0],
    "arrays in an array": np.array([np.ones(1), np.ones(2), 3.0], dtype=object),
    "decimals": [Decimal("sNaN"), Fraction(1, 3), Decimal(2)],
    "long doubles": np.array([1.0, 2.0, 3.0], dtype=np.longdouble) * np.longdouble(10) ** 4000,
    "flags": [True, False, True],
}


@pytest.mark.parametrize("name", HARD)
@pytest.mark.parametrize("rng", [None, 0], ids=["secure", "seeded"])
@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e100])
@pytest.mark.parametrize("method", ["gumbel", "laplace"])
def test_no_entry_of_a_vector_stops_a_release_that_is_paid_for(name, rng, scale, method):
    v = np.array(HARD[name], dtype=object) if name in ("objects", "sly objects", "decimals") else HARD[name]
    with np.errstate(all="raise"):
        for absolute in (True, False):
            ledger = Ledger()
            mechanism = NoisyTopK(2, scale, rho=1.0, method=method, absolute=absolute)
            top = mechanism.release(v, rng=rng, ledger=ledger)
            assert len(ledger) == 2
            assert np.isfinite(top.values).all()
            assert sorted({0, 1, 2} & set(top.support.tolist())) == sorted(top.support.tolist())
        clear = NoisyTopK(3, scale, rho=math.inf).release(v)
    assert np.isfinite(clear.values).all()


def test_what_is_no_number_counts_as_zero():
    v = np.array([np.nan, -np.inf, 4.0, None, "7", Sly()], dtype=object)
    assert NoisyTopK(6, 1.0, rho=math.inf).release(v).dense().tolist() == [0.0, 0.0, 4.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, -math.inf, 1e308, -1e308, 10**400, True, Decimal(3)], ids=str
)
@pytest.mark.parametrize("rng", [None, 0], ids=["secure", "seeded"])
def test_no_value_stops_a_scalar_that_is_paid_for(value, rng):
    ledger = Ledger()
    found = noisy_scalar(value, 1e-9, mu=1.0, rng=rng, ledger=ledger)
    assert len(ledger) == 1
    assert abs(found) < 2 * LARGEST_MULTIPLE * 1e-9 + 4


def test_the_hold_lies_inside_the_grid_and_moves_no_two_values_apart():
    for scale in (1e-9, 0.7, 1.0, 1.99, 3e7):
        assert LARGEST_MULTIPLE * scale / grid_step(scale) < LARGEST_STEP
        LatticeNoise().perturb(np.array([LARGEST_MULTIPLE * scale, -LARGEST_MULTIPLE * scale]), scale)
    assert float(noisy_scalar(1e30, 1.0, mu=1.0)) == pytest.approx(LARGEST_MULTIPLE, rel=1e-5)


REFUSED = {
    "texts": ["a", "b", "c"],
    "bytes": [b"a", b"b", b"c"],
    "complex": [1j, 2.0, 3.0],
    "dates": np.array(["2020-01-01"] * 3, dtype="datetime64[D]"),
    "ragged": [[1.0], [1.0, 2.0], [3.0]],
    "a matrix": np.ones((3, 3)),
    "too short": [1.0],
    "nothing": [],
    "a number": 3.0,
    "none": None,
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_vector_of_another_type_is_refused_before_the_charge(name):
    ledger = Ledger(Budget(rho=1.0))
    with pytest.raises(ArgumentError) as caught:
        NoisyTopK(2, 1.0, rho=1.0).release(REFUSED[name], ledger=ledger)
    assert caught.value.__context__ is None
    assert len(ledger) == 0


@pytest.mark.parametrize(
    "candidates", [[True], [True, False, False], [1.0, 1.0, 1.0], "all", [[True] * 3]], ids=str
)
def test_candidates_are_checked_before_the_charge(candidates):
    ledger = Ledger()
    with pytest.raises(ArgumentError, match="candidates"):
        NoisyTopK(2, 1.0, rho=1.0).release(V, candidates=candidates, ledger=ledger)
    assert len(ledger) == 0


@pytest.mark.parametrize("value", ["3.0", None, [3.0], 3j, b"3", np.ones(2)], ids=repr)
def test_a_scalar_of_another_type_is_refused_before_the_charge(value):
    ledger = Ledger()
    with pytest.raises(ArgumentError, match="one number"):
        noisy_scalar(value, 1.0, mu=1.0, ledger=ledger)
    assert len(ledger) == 0


@pytest.mark.parametrize("ledger", [Budget(mu=1.0), "ledger", 3], ids=repr)
def test_a_ledger_that_is_none_is_refused(ledger):
    for call in (
        lambda: private_max(V, 1.0, mu=1.0, ledger=ledger),
        lambda: noisy_scalar(1.0, 1.0, mu=1.0, ledger=ledger),
    ):
        with pytest.raises(ArgumentError, match="ledger"):
            call()


def lines_by_places():
    """Return what releases row by row, or by places of rows, take for granted, and what sums do."""
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"x": rng.uniform(-1, 1, 400), "y": rng.uniform(-1, 1, 400)})
    schema, words = pi.Schema({"x": (-1, 1), "y": (-1, 1)}), {"epsilon": 2.0, "delta": 1e-5, "rng": 0}
    parties, optimizer = {"a": ["x"], "b": ["y"]}, pi.DPSGD(epochs=1, batches=2)
    model = pi.GLM.from_formula("y ~ x", rows, schema=schema, family="gaussian")
    batched = model.fit(optimizer=optimizer, **words)
    placed = [
        pi.Modulation(schema, "y ~ x").release(rows, **words).entries,
        pi.LocalExamples(schema, "y ~ x").release(rows, **words).entries,
        pi.Moments(schema, "y ~ x", trust="local").release(rows, **words).entries,
        pi.DGMOLS.from_formula("y ~ x", rows, schema=schema, parties=parties).fit(**words).privacy.entries,
        [line for line in batched.privacy.entries if line.label == "gradient"],
    ]
    sums = [
        pi.Moments(schema, "y ~ x").release(rows, **words).entries,
        pi.OLS.from_formula("y ~ x", rows, schema=schema).fit(**words).privacy.entries,
        pi.find_bounds(rows, **words).privacy.entries,
    ]
    return placed, sums


def test_that_the_order_of_rows_is_public_is_said_where_it_counts():
    """A table that is sorted by an income tells it by the places of its rows, whatever noise they have."""
    placed, sums = lines_by_places()
    assert all(
        lines and all(Assumptions.PUBLIC_PLACES in line.assumptions for line in lines) for lines in placed
    )
    assert not any(Assumptions.PUBLIC_PLACES in line.assumptions for lines in sums for line in lines)


def released_at(delta):
    """Return one object of every entry point that takes a delta."""
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (60, 2)), rng.uniform(-1, 1, 60)
    table = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": y, "g": np.resize(["u", "v"], 60)})
    schema = pi.Schema({"a": (-1, 1), "b": (-1, 1), "y": (-1, 1), "g": ["u", "v"]})
    halves = {
        name: pi.GaussianRows(pi.Schema({column: (-1, 1) for column in columns})).release(
            table[columns], epsilon=1.0, delta=delta, rng=0
        )
        for name, columns in (("one", ["a", "b"]), ("two", ["y"]))
    }
    words = {"epsilon": 1.0, "delta": delta, "rng": 0}
    return {
        "scalar": noisy_scalar(3.0, 0.5, **words),
        "top k": NoisyTopK(2, 0.1, epsilon=1.0, delta=delta).release(V, rng=0),
        "max": private_max(V, 0.1, **words),
        "moments": pi.Moments(schema, "y ~ a + b").release(table, **words),
        "least squares": pi.MomentOLS(y, X, bounds=[(-1, 1)] * 2, y_bounds=(-1, 1)).release(**words),
        "modulation": pi.Modulation(schema, "y ~ a").release(table, **words),
        "examples": pi.LocalExamples(schema, "y ~ a").release(table, **words),
        "mixing": pi.RandomMixing(schema, k=9, seed=1).release(table, **words),
        "rows": halves["one"],
        "joined": pi.join(halves),
    }


def test_a_release_states_epsilon_at_the_delta_that_was_named():
    for kind, found in released_at(1e-3).items():
        assert found.privacy.default_delta == 1e-3, kind
        joint = 2.0 if kind == "joined" else 1.0
        assert found.privacy.epsilon() <= joint * (1.0 + 1e-9), kind
        assert "at delta = 0.001" in str(found.privacy), kind


def test_the_delta_of_a_release_is_kept_by_files_and_pickles(tmp_path):
    everything = released_at(1e-3)
    everything["moments"].save(tmp_path / "moments.npz")
    again = pi.load_release(tmp_path / "moments.npz")
    assert again.privacy.default_delta == 1e-3
    number = pickle.loads(pickle.dumps(everything["scalar"]))
    assert number.privacy.default_delta == 1e-3


def test_a_level_without_a_delta_is_reported_at_the_usual_one():
    assert noisy_scalar(3.0, 0.5, mu=1.0, rng=0).privacy.default_delta == 1e-6
    model = pi.MomentOLS(ROWS[:, 0, 0], ROWS[:, 0], bounds=[(0, 1)] * 2, y_bounds=(0, 1))
    assert model.release(mu=1.0, rng=0).privacy.default_delta == 1e-6


def test_the_old_name_of_the_noise_model_is_refused():
    release = released_at(1e-3)["moments"]
    assert release.noise_model["delta"] == 1e-3
    with pytest.raises(NotAvailableError, match=r"is now Release\.noise_model"):
        _ = release.law
    for name in ("logit", "poisson", "ols"):
        with pytest.raises(NotAvailableError, match=rf"{name} is not available: .*regress\("):
            getattr(release, name)
        assert not hasattr(release, name)
