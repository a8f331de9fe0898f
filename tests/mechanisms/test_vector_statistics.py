"""Products with all columns as one vector: values, sensitivity by search, exact sums, refusals."""

import math

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from privinf.errors import ArgumentError
from privinf.mechanisms.catalogue import SITE_OPS
from privinf.mechanisms.statistics import block as site_rows
from privinf.mechanisms.statistics import summands
from privinf.mechanisms.statistics.block import SiteBlock, exact_bits

P, LOW, HIGH = 4, -2.0, 2.0
BETA = {"support": np.array([0, 2]), "beta": np.array([0.5, -0.25]), "intercept": 0.1}
CASES = {
    "shrunk": ("product_vector", BETA | {"bound": 0.7, "norm": 0.9}),
    "clipped only": ("product_vector", BETA | {"bound": 0.7, "norm": 50.0}),
    "direction": ("product_vector", BETA | {"bound": 1e3, "norm": 0.2}),
    "one target": ("column_product_vector", {"targets": np.array([3]), "bound": 1.2, "norm": 0.6}),
    "two targets": ("column_product_vector", {"targets": np.array([1, 3]), "bound": 1.0, "norm": 0.5}),
    "not shrunk": ("column_product_vector", {"targets": np.array([1, 3]), "bound": 1.0, "norm": 9.0}),
}
TWO, SHRUNK = CASES["two targets"], CASES["shrunk"]
# The targets' own entries are among all columns: the corners of a box, and of few columns, are out of reach.
SLACK = {"not shrunk": 0.7, "two targets": 0.95}


def block(y, X):
    limits = {"low": np.full(P, LOW), "high": np.full(P, HIGH)}
    return SiteBlock(features=X, response=y, **limits, response_low=-3.0, response_high=3.0)


def records(name, bits):
    """Return f(z), one row a candidate record: corners, faces, small targets, far outside, absurd."""
    rng = np.random.default_rng(0)
    # Beside a small target all other columns stand at their clip.
    near = np.array([0.24, 0.2885, 0.3])
    pairs = [
        np.column_stack([np.full(3, HIGH), np.broadcast_to(one, 3), np.full(3, HIGH), near * sign])
        for sign in (-1.0, 1.0)
        for one in (HIGH, near * sign)
    ]
    X = np.concatenate(
        [
            rng.choice([LOW, -1.0, 0.0, 1.0, HIGH], (200, P)),
            *pairs,
            np.repeat(rng.choice([LOW, HIGH], (20, P)), 2, axis=0),
            rng.normal(0.0, 50.0, (20, P)),
        ]
    )
    y = rng.choice([-3.0, 3.0, -0.5, 0.5, 400.0], len(X))
    y[212:252] = np.tile([-3.0, 3.0], 20)
    X[-1], y[-1] = 1e308, -1e308
    op, args = CASES[name]
    args = args | {"bits": bits}
    return np.array(
        [SITE_OPS[op].function(block(y[i : i + 1], X[i : i + 1]), args).ravel() for i in range(len(y))]
    )


@pytest.mark.parametrize("bits", [0, 40], ids=["floats", "exact"])
@pytest.mark.parametrize("name", CASES)
def test_the_farthest_pair_attains_the_stated_sensitivity(name, bits):
    op, args = CASES[name]
    record_sensitivity, values = SITE_OPS[op].record_sensitivity(args, P), records(name, bits)
    l2, linf = cdist(values, values).max(), cdist(values, values, "chebyshev").max()
    assert np.isfinite(values).all()
    assert values.shape[1] == record_sensitivity.size
    assert np.abs(values).max() <= record_sensitivity.bound * (1 + 1e-12)
    assert l2 <= record_sensitivity.l2 * (1 + 1e-12)
    assert linf <= record_sensitivity.linf * (1 + 1e-12)
    assert l2 >= SLACK.get(name, 0.99) * record_sensitivity.l2


@pytest.mark.parametrize("name", ["shrunk", "direction", "one target", "two targets"])
def test_the_search_sees_a_vector_that_is_not_shrunk(name, monkeypatch):
    op, args = CASES[name]
    monkeypatch.setattr(summands, "lengths", lambda vectors: np.zeros(vectors.shape[1]))
    values = records(name, 0)[:-1]
    assert cdist(values, values).max() > 1.05 * SITE_OPS[op].record_sensitivity(args, P).l2


def naive(op, args, y, X):
    """Return the sum, straight from its definition."""
    x = np.clip(X, LOW, HIGH)
    if op == "product_vector":
        r = np.clip(y, -3.0, 3.0) - args["intercept"] - x[:, args["support"]] @ args["beta"]
        f = np.clip(x * r[:, None], -args["bound"], args["bound"])
    else:
        b = np.clip(x, -args["bound"], args["bound"])
        f = (b[:, args["targets"], None] * b[:, None, :]).reshape(len(b), -1)
    f *= np.minimum(1.0, args["norm"] / np.linalg.norm(f, axis=1))[:, None]
    return f.sum(axis=0)


@pytest.fixture
def sample():
    rng = np.random.default_rng(5)
    X = rng.normal(0.0, 1.2, (700, P))
    return X @ [0.5, 0.0, -0.2, 0.1] + rng.normal(0.0, 0.6, 700), X


@pytest.mark.parametrize("bits", [0, 40], ids=["floats", "exact"])
@pytest.mark.parametrize("name", CASES)
def test_sums_are_what_they_are_said_to_be(name, bits, sample, monkeypatch):
    monkeypatch.setattr(site_rows, "ENTRIES", 300)  # several blocks
    op, args = CASES[name]
    found = SITE_OPS[op].total(block(*sample), args | {"bits": bits})
    np.testing.assert_allclose(found.ravel(), naive(op, args, *sample), rtol=0, atol=2e-3 if bits else 1e-9)


@pytest.mark.parametrize("case", [SHRUNK, TWO], ids=["products", "columns"])
def test_exact_sums_do_not_depend_on_order_or_blocks(case, sample, monkeypatch):
    (y, X), (op, args) = sample, case
    args = args | {"bits": exact_bits(700)}
    whole = SITE_OPS[op].total(block(y, X), args)
    order = np.random.default_rng(0).permutation(700)
    monkeypatch.setattr(site_rows, "ENTRIES", 64)
    np.testing.assert_array_equal(SITE_OPS[op].total(block(y[order], X[order]), args), whole)


@pytest.mark.parametrize(
    ("name", "peeled"), [("clipped only", "clipped_products"), ("not shrunk", "column_products")]
)
def test_with_room_for_every_record_it_is_the_sum_that_is_peeled(name, peeled, sample):
    op, args = CASES[name]
    plain = {key: value for key, value in args.items() if key != "norm"}
    for bits in (0, 40):
        found = SITE_OPS[op].total(block(*sample), args | {"bits": bits})
        wanted = SITE_OPS[peeled].total(block(*sample), plain | {"bits": bits})
        np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_bad_arguments():
    wrong = [
        (SHRUNK, {"norm": -1.0}),
        (SHRUNK, {"norm": math.nan}),
        (SHRUNK, {"bound": 0.0}),
        (SHRUNK, {"targets": np.array([0])}),
        (TWO, {"norm": 0.0}),
        (TWO, {"targets": np.array([9])}),
        (TWO, {"transform": np.eye(3)}),
    ]
    for (op, args), change in wrong:
        with pytest.raises(ArgumentError):
            SITE_OPS[op].record_sensitivity(args | change, P)
    for op, args in (SHRUNK, TWO):
        with pytest.raises(ArgumentError):
            SITE_OPS[op].record_sensitivity({key: args[key] for key in args if key != "norm"}, P)


@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize("chosen", [None, np.array([0, 2]), np.array([3])])
def test_columns_are_a_copy(kind, chosen):
    """Rows that a site holds stay as they are, far outside the bounds too."""
    X = np.full((5, P), 7.0, kind)
    found = block(np.zeros(5), X).columns({"center": np.full(P, 1.0), "scale": np.full(P, 2.0)}, chosen)
    assert (found == (HIGH - 1.0) / 2.0).all()
    assert (X == 7.0).all()
