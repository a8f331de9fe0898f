"""Audits of curved statistics: climbs over swaps of records stay below each charge; mutants do not."""

import math

import numpy as np
import pytest
from mutation import Mutant
from scipy.special import expit

from privinf.mechanisms.statistics.block import SiteBlock
from privinf.mechanisms.statistics.curved import CURVED_OPS

P, EDGE, TOP = 3, 2.0, 5.0
CURVED = "mechanisms.statistics.curved"
THETA = np.array([0.8, -0.4, 0.3])
AT = {
    "family": "binomial",
    "theta": THETA,
    "score_bound": 0.7,
    "curvature_bound": 0.2,
    "transform": np.array([[1.2, 0.1, 0.0], [0.0, 0.7, -0.3], [0.2, 0.0, 1.0]]),
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
# A function of count and mean that its ends cut on either side.
TABLES = {
    "family": "poisson",
    "theta": THETA,
    "transform": np.eye(P)[:, :1],
    "by_count": np.array([[0.0, 0.2, 1.5, 3.0], [0.0, 1.0, 2.0, 3.0]]),
    "by_mean": np.array([[1.0, 0.8, 0.5], [0.0, 0.3, 0.6], [-0.4, 0.2, 0.9]]),
    "width": 1.0,
    "mean_unit": 1.2,
    "low": -0.7,
    "high": 1.1,
}
STATISTICS |= {"curved.dispersion": TABLES, "curved.dispersion_meat": TABLES}
POISSON = {"family": "poisson", "theta": 0.5 * THETA}
MIXED = POISSON | {"alpha": 1.5}  # negative binomial counts
CHANGES = ({}, POISSON, MIXED, {"weight": 2}, {"of": "residual"}, {"share": 0.05})
CASES = [
    (name, args | more)
    for name, args in STATISTICS.items()
    for more in CHANGES
    if more.keys() <= {*CURVED_OPS[name].arguments}
]


def block(y, X):
    ends = np.full(X.shape[1], EDGE)
    return SiteBlock(features=X, response=y, low=-ends, high=ends, response_low=0.0, response_high=TOP)


def climbed(name, args, rng, bits=0, tries=15, steps=25):
    """Return the largest move of the sum, in shares of its sensitivity, that a climb over swaps finds."""
    op, args = CURVED_OPS[name], args | {"bits": bits}
    record_sensitivity = op.record_sensitivity(args, P)

    def moved(y, x):
        return np.linalg.norm(
            np.subtract(*(op.function(block(y[i : i + 1], x[i : i + 1]), args) for i in (0, 1)))
        )

    best = 0.0
    for _ in range(tries):
        x = rng.normal(0.0, 1.2, (2, P)) if rng.random() < 0.5 else EDGE * rng.choice([-1.0, 1.0], (2, P))
        y = rng.choice([0.0, 1.0, TOP], 2)
        here = moved(y, x)
        for _ in range(steps):
            other = (
                x + rng.normal(0.0, 0.3, (2, P)) * (rng.random((2, P)) < 0.5),
                rng.choice([0.0, 1.0, TOP], 2),
            )
            if (there := moved(other[1], other[0])) > here:
                (x, y), here = other, there
        best = max(best, here / record_sensitivity.l2)
    return best


@pytest.mark.audit
@pytest.mark.parametrize("bits", [0, 36], ids=["floats", "exact"])
@pytest.mark.parametrize(("name", "args"), CASES)
def test_no_climb_of_swaps_passes_the_charge(name, args, bits):
    found = climbed(name, args, np.random.default_rng(0), bits, tries=8, steps=20)
    assert found <= 1.0 + 1e-9
    assert found > 0.2 or args.get("of") == "curvature"


TERMS = "mechanisms.statistics.summands"
LAYER_NOT_CUT = Mutant(
    CURVED,
    "_score",
    "ball.product(np.copysign(score, at.error), at.v)",
    "Product(9.0 * np.copysign(score, at.error), 9.0 * ball.top, at.v)",
)
COUNTS_NOT_CUT = Mutant(
    CURVED,
    "_dispersion",
    "values = _dispersion_values(rows)",
    "values = 9.0 * _dispersion_values(rows); ball = Ball(size=1, top=9.0, derivation='')",
)
SQUARES_NOT_CUT = Mutant(
    CURVED,
    "_dispersion_meat",
    "values = _dispersion_values(rows)",
    "values = 9.0 * _dispersion_values(rows); outer = Outer(size=1, top=9.0)",
)
MUTANTS = {
    "a step's scores not held": (
        (0, Mutant(TERMS, "Product.plain", "-self.top, self.top", "-99.0, 99.0")),
        (36, Mutant(TERMS, "Product.integers", "-FULL_SCALE, FULL_SCALE", "-9e7, 9e7")),
        "curved.step",
        POISSON,
    ),
    "a matrix not shrunk": (
        (0, Mutant(TERMS, "Square.plain", "self.top / ", "99.0 / ")),
        (36, Mutant(TERMS, "_nearest", "_room(vectors, steps)", "9e7")),
        "curved.secant",
        {"clip": 0.1},
    ),
    "a layer not cut": (
        (0, LAYER_NOT_CUT),
        (36, LAYER_NOT_CUT),
        "curved.score",
        POISSON | {"high": 0.5, "curvature_bound": 9.0},
    ),
    "a function of counts not cut": (
        (0, COUNTS_NOT_CUT),
        (36, COUNTS_NOT_CUT),
        "curved.dispersion",
        {"low": -0.2, "high": 0.3},
    ),
    "squares of counts not cut": (
        (0, SQUARES_NOT_CUT),
        (36, SQUARES_NOT_CUT),
        "curved.dispersion_meat",
        {"low": -0.2, "high": 0.3},
    ),
    "both sums for the price of the dearer": (
        (0, Mutant(CURVED, "joint_distance", "max(between, aligned)", "max(share, 1.0 - share)")),
        (36, Mutant(CURVED, "joint_distance", "max(between, aligned)", "max(share, 1.0 - share)")),
        "curved.step",
        {},
    ),
}


@pytest.mark.audit
@pytest.mark.parametrize("name", MUTANTS)
def test_a_climb_sees_a_weight_or_clip_that_is_left_out(name):
    *broken, op, more = MUTANTS[name]
    for bits, mutant in broken:
        with mutant.applied():
            assert climbed(op, STATISTICS[op] | more, np.random.default_rng(0), bits) > 1.01


def test_weights_in_x_alone_leave_a_right_mean_where_it_is():
    """The mutant weighs by the residual that was seen; so the score at the truth is no longer 0."""
    rng = np.random.default_rng(3)
    X = rng.uniform(-EDGE, EDGE, (200_000, P))
    y = (rng.random(len(X)) < expit(X @ THETA)).astype(float)
    args = AT | {"high": 0.7, "curvature_bound": 1e6}

    def score():
        return CURVED_OPS["curved.score"].function(block(y, X), args) / math.sqrt(len(X))

    assert np.abs(score()).max() < 1.5
    seen = Mutant(
        CURVED,
        "_point",
        "score_size=v.length * larger",
        "score_size=v.length * np.abs(y - mean)",
    )
    with seen.applied():
        assert np.abs(score()).max() > 10.0
