"""Statistics of products clipped as wholes: values, sensitivities by search, exact sums, refusals."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from privinf.errors import ArgumentError
from privinf.mechanisms import single_statistics, site_rows
from privinf.mechanisms.single_statistics import SINGLE_OPS
from privinf.mechanisms.site_rows import SiteBlock, exact_bits
from privinf.mechanisms.sparse_statistics import SITE_OPS

P, LOW, HIGH = 3, -2.0, 2.0
PRODUCTS = {
    "support": np.array([2]), "beta": np.array([0.5]), "intercept": 0.1, "columns": np.array([0, 1]),
    "transform": np.array([[1.0, 0.2], [-0.1, 1.0]]), "bound": 0.7,
}  # fmt: skip
SLOPES = PRODUCTS | {"targets": np.array([1, 0]), "slope_clip": 1.5}
CASES = {
    "product_scores": PRODUCTS,
    "product_variances": PRODUCTS,
    "product_slopes": SLOPES,
    "mean_slope": SLOPES | {"weights": np.array([1.0, 0.8])},
}


def block(y, X):
    limits = {"low": np.full(P, LOW), "high": np.full(P, HIGH)}
    return SiteBlock(X, y, **limits, response_low=-3.0, response_high=3.0)


def records(name, bits):
    """Return f(z), one row a record: corners, points inside, far outside, absurd."""
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.choice([LOW, -1.0, 0.0, 1.0, HIGH], (900, P)), rng.normal(0.0, 40.0, (80, P))])
    y = rng.choice([-3.0, 3.0, -0.5, 0.5, 0.0, 400.0], len(X))
    y[:300] = 0.1 + 0.5 * X[:300, 2]  # residual 0: every product is inside
    X[-1], y[-1] = 1e308, -1e308
    args, op = CASES[name] | {"bits": bits}, SINGLE_OPS[name]
    return np.array([op.function(block(y[i : i + 1], X[i : i + 1]), args) for i in range(len(y))])


def farthest(values):
    return cdist(values, values).max(), cdist(values, values, "chebyshev").max()


@pytest.mark.parametrize("bits", [0, 40], ids=["floats", "exact"])
@pytest.mark.parametrize("name", CASES)
def test_the_farthest_pair_attains_the_stated_sensitivity(name, bits):
    reach, values = SINGLE_OPS[name].reach(CASES[name], P), records(name, bits)
    l2, linf = farthest(values)
    assert np.isfinite(values).all()
    assert np.abs(values).max() <= reach.bound
    for found, stated in ((l2, reach.l2), (linf, reach.linf)):
        assert 0.999 * stated <= found <= stated * (1 + 1e-12)


@pytest.mark.parametrize(("name", "door"), [("product_scores", "clipped"), ("product_variances", "clipped")])
def test_the_search_sees_a_clip_that_is_not_enforced(name, door, monkeypatch):
    monkeypatch.setattr(single_statistics, door, lambda values, bound: values)
    assert farthest(records(name, 0)[:-1])[1] > 1.05 * SINGLE_OPS[name].reach(CASES[name], P).linf


@pytest.mark.parametrize("name", ["product_slopes", "mean_slope"])
def test_the_search_sees_a_slope_that_is_not_clipped(name, monkeypatch):
    class Unclipped:
        def __getattr__(self, member):
            return (lambda values, low, high, out=None: values) if member == "clip" else getattr(np, member)

    monkeypatch.setattr(single_statistics, "np", Unclipped())
    assert farthest(records(name, 0)[:-1])[1] > 1.05 * SINGLE_OPS[name].reach(CASES[name], P).linf


def naive(name, args, y, X):
    x = np.clip(X, LOW, HIGH)
    r = np.clip(y, -3.0, 3.0) - args["intercept"] - x[:, args["support"]] @ args["beta"]
    u, B = x[:, args["columns"]] @ args["transform"], args["bound"]
    products = np.clip(u * r[:, None], -B, B)
    if name == "product_scores":
        return products.sum(axis=0)
    if name == "product_variances":
        return (products**2).sum(axis=0)
    top = args["slope_clip"]
    slopes = u * x[:, args["targets"]] * (np.abs(u * r[:, None]) < B)
    if name == "product_slopes":
        return np.clip(slopes, -top / 2, top).sum(axis=0)
    return [np.clip(slopes @ args["weights"] / 2, -top / 2, top).sum()]


@pytest.fixture
def sample():
    rng = np.random.default_rng(5)
    X = rng.normal(0.0, 1.2, (700, P))
    return X @ [0.5, 0.0, -0.2] + rng.normal(0.0, 0.6, 700), X


@pytest.mark.parametrize("bits", [0, 40], ids=["floats", "exact"])
@pytest.mark.parametrize("name", CASES)
def test_sums_are_what_they_are_said_to_be(name, bits, sample, monkeypatch):
    monkeypatch.setattr(site_rows, "NARROW_ENTRIES", 300)  # several blocks
    found = SITE_OPS[name].total(block(*sample), CASES[name] | {"bits": bits})
    np.testing.assert_allclose(found, naive(name, CASES[name], *sample), rtol=0, atol=1e-8)


@pytest.mark.parametrize("name", CASES)
def test_exact_sums_do_not_depend_on_order_or_blocks(name, sample, monkeypatch):
    y, X = sample
    args = CASES[name] | {"bits": exact_bits(700)}
    whole = SINGLE_OPS[name].total(block(y, X), args)
    order = np.random.default_rng(0).permutation(700)
    monkeypatch.setattr(site_rows, "NARROW_ENTRIES", 64)
    np.testing.assert_array_equal(SINGLE_OPS[name].total(block(y[order], X[order]), args), whole)


def test_bad_arguments():
    wrong = [
        ("product_scores", PRODUCTS | {"bound": -1.0}),
        ("product_scores", PRODUCTS | {"transform": np.ones((3, 2))}),
        ("product_scores", PRODUCTS | {"slope_clip": 1.0}),
        ("product_variances", {key: PRODUCTS[key] for key in ("columns", "transform")}),
        ("product_slopes", SLOPES | {"targets": np.array([0])}),
        ("product_slopes", SLOPES | {"slope_clip": 0.0}),
        ("mean_slope", SLOPES | {"weights": np.ones(3)}),
        ("mean_slope", SLOPES),
    ]
    for name, args in wrong:
        with pytest.raises(ArgumentError):
            SITE_OPS[name].reach(args, P)
