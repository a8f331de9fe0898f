"""Statistics of curved models: values, sensitivities that no swap of records passes, exact sums, refusals."""

import math

import numpy as np
import pytest
from scipy.special import expit

from privinf.errors import ArgumentError
from privinf.mechanisms.statistics import block as site_rows
from privinf.mechanisms.statistics.block import SiteBlock, exact_bits
from privinf.mechanisms.statistics.curved import CURVED_OPS, joint_distance
from privinf.mechanisms.statistics.isometric import from_isometric
from privinf.mechanisms.statistics.summands import root_matrix

P, EDGE, TOP = 3, 2.0, 5.0
THETA, TRANSFORM = np.array([0.8, -0.4, 0.3]), np.array([[1.2, 0.1, 0.0], [0.0, 0.7, -0.3], [0.2, 0.0, 1.0]])
AT = {
    "family": "binomial",
    "theta": THETA,
    "transform": TRANSFORM,
    "score_bound": 0.7,
    "curvature_bound": 0.2,
}
EDGES = np.geomspace(0.05, 4.0, 9)
STATISTICS = {
    "curved.start": {"block": np.arange(P), "radius": 1.9, "share": 0.6},
    "curved.step": AT | {"share": 0.5},
    "curved.counts": AT | {"of": "curvature", "thresholds": EDGES},
    "curved.score": AT | {"high": 0.7},
    "curved.meat": AT | {"middle": 0.3, "high": 0.7, "upper": 1.4},
    "curved.secant": AT | {"clip": 0.2, "step": np.array([0.6, -0.9, 0.2])},
}
POISSON = {"family": "poisson", "theta": 0.5 * THETA}
# A function of count and mean that its ends cut on either side.
TABLES = POISSON | {
    "transform": np.eye(P)[:, :1],
    "by_count": np.array([[0.0, 0.2, 1.5, 3.0], [0.0, 1.0, 2.0, 3.0]]),
    "by_mean": np.array([[1.0, 0.8, 0.5], [0.0, 0.3, 0.6], [-0.4, 0.2, 0.9]]),
    "width": 1.5,
    "mean_unit": 1.2,
    "low": -0.7,
    "high": 1.1,
}
STATISTICS |= {"curved.dispersion": TABLES, "curved.dispersion_meat": TABLES}
CASES = [
    (name, args | more)
    for name, args in STATISTICS.items()
    for more in (
        {},
        POISSON,
        POISSON | {"alpha": 1.5},
        {"weight": 2},
        {"of": "residual"},
        {"share": 0.05},
    )
    if more.keys() <= {*CURVED_OPS[name].arguments}
]


def block(y, X):
    ends = np.full(X.shape[1], EDGE)
    return SiteBlock(features=X, response=y, low=-ends, high=ends, response_low=0.0, response_high=TOP)


def naive(name, args, y, X):
    """Return what a statistic is said to be, by the equations, one record after the other."""
    sums = 0.0
    for yi, xi in zip(np.clip(y, 0.0, TOP), np.clip(X, -EDGE, EDGE), strict=True):
        if name == "curved.start":
            z = xi * min(1.0, args["radius"] / np.linalg.norm(xi)) / args["radius"]
            s, M = z * (2.0 * yi / TOP - 1.0), np.outer(z, z)
        else:
            eta, v = xi @ args["theta"], args["transform"].T @ xi
            poisson = args["family"] == "poisson"
            m = math.exp(eta) if poisson else expit(eta)
            c, e = (m, yi - m) if poisson else (m * (1.0 - m), min(yi, 1.0) - m)
            o = max(xi[args["weight"]], 0.0) if "weight" in args else 1.0
            o /= 1.0 + args.get("alpha", 0.0) * m
            if "by_count" in args:
                cell = int(min(yi // args["width"], 3))
                places = np.linspace(0.0, 1.0, 3)
                r, s, e = (np.interp(m / (args["mean_unit"] + m), places, row) for row in args["by_mean"])
                g, h = args["by_count"][:, cell]
                value = np.clip(r * g - s * h - e, args["low"], args["high"])
                sums += np.array([value if name == "curved.dispersion" else value**2])
                continue
            k, q = c * v @ v, np.linalg.norm(v) * max(m, 1.0 - m)
            w = min(o, args["curvature_bound"] / k, math.inf if poisson else args["score_bound"] / q)
            s, M = w * e * v / args["score_bound"], w * c * np.outer(v, v) / args["curvature_bound"]
        if name in ("curved.start", "curved.step"):
            s = s * min(1.0, 1.0 / max(np.linalg.norm(s), 1e-9))
            a, b = math.sqrt(1.0 - args["share"]) / 2.0, args["share"] / 2.0
            sums += np.concatenate([a * s, (math.sqrt(b) * M)[np.triu_indices(P)]])
            continue
        t = np.linalg.norm(w * e * v)
        u = w * e * v / t if t > 0.0 else v * 0.0
        if name == "curved.counts":
            value = {"score": o * q, "curvature": w * k, "residual": t}[args["of"]]
            sums += root_matrix(len(EDGES)) @ np.eye(len(EDGES) + 1)[np.searchsorted(EDGES, value)][1:]
        elif name == "curved.score":
            sums += u * min(t, args["high"])
        elif name == "curved.meat":
            low, high = args["middle"], args["high"]
            u = u * (min(t, low) + args["upper"] * np.clip(t - low, 0.0, high - low))
            sums += np.outer(u, u)
        else:
            d = v @ args["step"]
            g = w * ((math.exp(eta + d) if poisson else expit(eta + d)) - m) / d
            sums += min(g, args["clip"] / (v @ v)) * np.outer(v, v)
    return sums


@pytest.fixture
def sample():
    rng = np.random.default_rng(5)
    return rng.integers(0, 3, 300).astype(float), rng.normal(0.0, 0.9, (300, P))


@pytest.mark.audit
@pytest.mark.parametrize("bits", [0, 42], ids=["floats", "exact"])
@pytest.mark.parametrize(("name", "args"), CASES)
def test_sums_are_what_they_are_said_to_be(name, args, bits, sample, monkeypatch):
    monkeypatch.setattr(site_rows, "NARROW_ENTRIES", 300)
    found = CURVED_OPS[name].total(block(*sample), args | {"bits": bits})
    wanted = naive(name, args, *sample)
    if name in ("curved.start", "curved.step"):
        found[P:] = from_isometric(found[P:])[np.triu_indices(P)]
    elif wanted.ndim == 2:
        found = from_isometric(found)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-9 if bits == 0 else 2e-2)


@pytest.mark.parametrize(("name", "args"), CASES)
def test_exact_sums_do_not_depend_on_order_or_blocks(name, args, sample, monkeypatch):
    op, args = CURVED_OPS[name], args | {"bits": exact_bits(300)}
    y, X = sample
    whole = op.total(block(y, X), args)
    monkeypatch.setattr(site_rows, "NARROW_ENTRIES", 300)
    order = np.random.default_rng(0).permutation(300)
    np.testing.assert_array_equal(op.total(block(y[order], X[order]), args), whole)


@pytest.mark.parametrize("share", [0.05, 0.3, 0.5, 0.6, 0.79, 0.95])
def test_the_joint_distance_is_the_largest_of_all_cosines(share):
    t = np.linspace(0.0, 1.0, 100_001)
    score = (1.0 - share) * (1.0 + t) / 2.0
    for start, matrix in ((True, 1.0 - t**2), (False, np.maximum(0.5, 1.0 - t**2))):
        most = math.sqrt((share * matrix + score).max())
        assert most <= joint_distance(share, start=start) <= most + 1e-9
    assert joint_distance(0.5) ** 2 == pytest.approx(0.78, abs=0.002)
    assert joint_distance(0.6, start=True) ** 2 == pytest.approx(0.82, abs=0.005)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("curved.step", {"family": "gaussian"}),
        ("curved.step", {"share": 1.0}),
        ("curved.step", {"score_bound": 0.0}),
        ("curved.step", {"transform": np.eye(2)}),
        ("curved.step", {"theta": np.zeros(2)}),
        ("curved.step", {"weight": 3}),
        ("curved.start", {"block": np.array([], dtype=int)}),
        ("curved.start", {"radius": -1.0}),
        ("curved.counts", {"thresholds": np.array([1.0, 1.0])}),
        ("curved.counts", {"of": "response"}),
        ("curved.counts", {"of": "score", "family": "poisson"}),
        ("curved.score", {"low": 0.7}),
        ("curved.meat", {"middle": 0.8}),
        ("curved.secant", {"step": np.zeros(2)}),
        ("curved.secant", {"clip": -0.1}),
    ],
)
def test_arguments_that_do_not_fit_are_refused(name, change):
    with pytest.raises(ArgumentError):
        CURVED_OPS[name].record_sensitivity(STATISTICS[name] | change, P)


@pytest.mark.parametrize(("name", "args"), CASES)
def test_no_row_leaves_the_finite_numbers(name, args):
    wild = np.array([[1e300, -1e300, 1e300], [np.inf, np.nan, -np.inf], [5e-324, 0.0, -0.0]])
    with np.errstate(all="ignore"):
        for theta in (THETA, 1e30 * THETA):
            told = args | ({"theta": theta} if "theta" in args else {})
            found = CURVED_OPS[name].total(block(np.array([np.nan, np.inf, -1e300]), wild), told)
            assert np.isfinite(found).all()
            assert np.abs(found).max() <= 3.0 * CURVED_OPS[name].record_sensitivity(told, P).bound * (
                1.0 + 1e-9
            )
