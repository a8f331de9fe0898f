"""Statistics of products clipped as wholes: values, sensitivity by search, exact sums, refusals."""

import math

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from privinf.errors import ArgumentError
from privinf.mechanisms.catalogue import SITE_OPS
from privinf.mechanisms.statistics import block as site_rows
from privinf.mechanisms.statistics import scores as single_statistics
from privinf.mechanisms.statistics.block import SiteBlock, exact_bits
from privinf.mechanisms.statistics.scores import SINGLE_OPS, ScoresWithSquares

P, LOW, HIGH = 3, -2.0, 2.0
OP = SINGLE_OPS["target_scores"]
TWO = {
    "support": np.array([2]),
    "beta": np.array([0.5]),
    "intercept": 0.1,
    "columns": np.array([0, 1]),
    "transform": np.array([[1.0, 0.2], [-0.1, 1.0]]),
    "bound": 0.7,
    "targets": np.array([1, 0]),
    "weights": np.array([1.0, 0.8]),
    "slope_clip": 1.5,
    "slope_weight": 0.9,
    "average_clip": 1.2,
    "average_weight": 0.7,
}
ONE = TWO | {"transform": TWO["transform"][:, :1], "targets": np.array([1]), "weights": np.ones(1)}
# Light and heavy slopes beside the scores.
CASES = {
    "two": TWO,
    "one": ONE,
    "light": ONE | {"slope_weight": 0.1, "average_weight": 0.05},
    "offsets": ONE | {"offsets": np.array([0.3])},
    "heavy": ONE | {"slope_weight": 3.0, "average_weight": 2.0},
}


def block(y, X):
    limits = {"low": np.full(P, LOW), "high": np.full(P, HIGH)}
    return SiteBlock(features=X, response=y, **limits, response_low=-3.0, response_high=3.0)


def pool(offset=0.0):
    """Return records: products just inside the bound on either side, corners, far outside, absurd."""
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.choice([LOW, -1.0, 0.0, 1.0, HIGH], (1500, P)), rng.normal(0.0, 40.0, (80, P))])
    y = rng.choice([-3.0, 3.0, -0.5, 0.5, 0.0, 400.0], len(X))
    forms = X[:1200, :2] @ TWO["transform"] - offset
    reach = np.maximum(np.abs(forms[:, 0]), np.where(np.arange(1200) % 2, np.abs(forms[:, 1]), 0.0))
    part = rng.choice([-0.9999, -0.6, 0.0, 0.6, 0.9999], 1200)
    y[:1200] = 0.1 + 0.5 * X[:1200, 2] + part * 0.7 / np.maximum(reach, 0.3)
    X[-1], y[-1] = 1e308, -1e308
    return y, X


def records(args, bits):
    y, X = pool(float(args.get("offsets", np.zeros(1))[0]))
    return np.array(
        [OP.function(block(y[i : i + 1], X[i : i + 1]), args | {"bits": bits}) for i in range(len(y))]
    )


def farthest(values):
    return cdist(values, values).max(), cdist(values, values, "chebyshev").max()


@pytest.mark.audit
@pytest.mark.parametrize("bits", [0, 40], ids=["floats", "exact"])
@pytest.mark.parametrize("name", CASES)
def test_the_farthest_pair_attains_the_stated_sensitivity(name, bits):
    record_sensitivity, values = OP.record_sensitivity(CASES[name], P), records(CASES[name], bits)
    l2, linf = farthest(values)
    assert np.isfinite(values).all()
    assert values.shape[1] == record_sensitivity.size
    assert np.abs(values).max() <= record_sensitivity.bound
    assert 0.99 * record_sensitivity.linf <= linf <= record_sensitivity.linf * (1 + 1e-12)
    # Of two targets both scores and both slopes would have to be opposite at once.
    assert (
        (0.9 if name == "two" else 0.99) * record_sensitivity.l2 <= l2 <= record_sensitivity.l2 * (1 + 1e-12)
    )


def test_a_variance_beside_its_score_is_free():
    """On a fine grid of pairs: squares weighted by 3/2 add nothing, by 2 they would."""
    s, t = np.meshgrid(np.linspace(-1.0, 1.0, 801), np.linspace(-1.0, 1.0, 801))
    distances = [
        ((s - t) ** 2 + weight**2 * (s**2 - t**2) ** 2).max()
        for weight in (single_statistics.SQUARE_WEIGHT, 2.0)
    ]
    assert distances[0] == 4.0 < distances[1]


def farthest_on_a_grid(summand, digits):
    """Return the largest distance of two records whose scores are on the grid, and slopes 0."""
    unit = summand.unit(digits)
    scores = np.arange(-1.0, 1.0 + unit, unit)[None]
    numbers = summand.numbers(scores, np.zeros_like(scores), np.zeros(scores.shape[1]), digits)
    return farthest(numbers.steps.T * numbers.unit)[0]


@pytest.mark.parametrize("digits", range(3, 12))
def test_a_variance_beside_its_score_is_free_on_every_grid_that_is_accepted(digits):
    summand = ScoresWithSquares(targets=1, slope_weight=1e-9, average_weight=1e-9)
    assert farthest_on_a_grid(summand, digits) == 2.0
    assert OP.record_sensitivity(CASES["light"] | {"bits": digits}, P).l2 >= 2.0


@pytest.mark.parametrize(
    "change", [{"bits": 2}, {"bits": 3, "slope_weight": 2.0}, {"slope_weight": 1e30}], ids=str
)
def test_a_grid_on_which_squares_are_not_free_is_refused(change):
    summand = ScoresWithSquares(targets=1, slope_weight=1e-9, average_weight=1e-9)
    assert farthest_on_a_grid(summand, 2) == math.sqrt(4.5)
    with pytest.raises(ArgumentError, match="'bits' of the statistic is too small for scores and"):
        OP.record_sensitivity(CASES["light"] | change, P)


@pytest.mark.audit
@pytest.mark.parametrize("name", ["two", "one"])
def test_the_search_sees_a_score_that_is_not_clipped(name, monkeypatch):
    monkeypatch.setattr(single_statistics, "clipped", lambda values, bound: values)
    assert farthest(records(CASES[name], 0)[:-1])[0] > 1.05 * OP.record_sensitivity(CASES[name], P).l2


@pytest.mark.audit
@pytest.mark.parametrize("name", ["two", "heavy"])
def test_the_search_sees_slopes_that_are_not_clipped(name, monkeypatch):
    monkeypatch.setattr(single_statistics, "_between", lambda shares, weight: shares * weight)
    assert farthest(records(CASES[name], 0)[:-1])[0] > 1.05 * OP.record_sensitivity(CASES[name], P).l2


def naive(args, y, X):
    x = np.clip(X, LOW, HIGH)
    r = np.clip(y, -3.0, 3.0) - args["intercept"] - x[:, args["support"]] @ args["beta"]
    u, B = x[:, args["columns"]] @ args["transform"] - args.get("offsets", 0.0), args["bound"]
    s = np.clip(u * r[:, None], -B, B) / B
    raw = u * x[:, args["targets"]] * (np.abs(u * r[:, None]) < B)
    slopes = np.clip(raw, -args["slope_clip"] / 2, args["slope_clip"]) / args["slope_clip"]
    average = np.clip(raw @ args["weights"] / raw.shape[1], -args["average_clip"] / 2, args["average_clip"])
    parts = [s.sum(axis=0), 1.5 * (s**2).sum(axis=0), args["slope_weight"] * slopes.sum(axis=0)]
    return np.concatenate([*parts, [args["average_weight"] * average.sum() / args["average_clip"]]])


@pytest.fixture
def sample():
    rng = np.random.default_rng(5)
    X = rng.normal(0.0, 1.2, (700, P))
    return X @ [0.5, 0.0, -0.2] + rng.normal(0.0, 0.6, 700), X


@pytest.mark.parametrize("bits", [0, 40], ids=["floats", "exact"])
@pytest.mark.parametrize("name", CASES)
def test_sums_are_what_they_are_said_to_be(name, bits, sample, monkeypatch):
    monkeypatch.setattr(site_rows, "NARROW_ENTRIES", 300)  # several blocks
    found = SITE_OPS["target_scores"].total(block(*sample), CASES[name] | {"bits": bits})
    # Forms of rows on their grid are right to about 2^-20 a record.
    np.testing.assert_allclose(found, naive(CASES[name], *sample), rtol=0, atol=1e-4 if bits else 1e-8)


def test_exact_sums_do_not_depend_on_order_or_blocks(sample, monkeypatch):
    y, X = sample
    args = TWO | {"bits": exact_bits(700)}
    whole = OP.total(block(y, X), args)
    order = np.random.default_rng(0).permutation(700)
    monkeypatch.setattr(site_rows, "NARROW_ENTRIES", 64)
    np.testing.assert_array_equal(OP.total(block(y[order], X[order]), args), whole)


def test_bad_arguments():
    wrong = [
        {"bound": -1.0},
        {"transform": np.ones((3, 2))},
        {"clip": 1.0},
        {"targets": np.array([0])},
        {"slope_clip": 0.0},
        {"average_clip": math.nan},
        {"weights": np.ones(3)},
        {"average_weight": -1.0},
    ]
    for change in wrong:
        with pytest.raises(ArgumentError):
            OP.record_sensitivity(TWO | change, P)
    with pytest.raises(ArgumentError):
        OP.record_sensitivity({key: TWO[key] for key in TWO if key != "slope_weight"}, P)
