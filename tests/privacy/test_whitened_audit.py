"""Audits of a second look: climbs over swaps stay below each charge and reach it; mutants pass it.

The records of `attained` stand on grids; here swaps climb from corners, from far outside and from inside, at
many whitenings, thetas and clips.
"""

import math
from functools import cache

import attained
import numpy as np
import pytest
from mutation import Mutant

from privinf.errors import ArgumentError, PrivinfError, SensitivityError
from privinf.mechanisms.statistics.block import SiteBlock
from privinf.mechanisms.statistics.layers import LAYER_OPS
from privinf.mechanisms.statistics.summands import counts_above, root_matrix, root_sensitivity
from privinf.mechanisms.statistics.whitened import WHITENED_OPS

P, EDGE, TOP = 3, 2.0, 3.0
HUGE = 1e300
WHITENED, SUMMANDS = "mechanisms.statistics.whitened", "mechanisms.statistics.summands"
LAYERS = "mechanisms.statistics.layers"
OPS = WHITENED_OPS | {name: op for name, op in LAYER_OPS.items() if "." in name}
REACHED = {
    "layers.counts": 0.95,
    "layers.score": 0.99,
    "layers.meat": 0.95,
    "layers.slopes": 0.95,
    "whitened.counts": 0.95,
    "whitened.columns": 0.95,
    "whitened.moments": 0.95,
    "whitened.gram": 0.95,
    "whitened.score": 0.99,
    "whitened.meat": 0.95,
    "whitened.hessian": 0.95,
    "whitened.square": 0.99,
}


def drawn_args(name, rng):
    """Return arguments of a statistic as a fit makes them: a full whitening, a theta, clips that bind."""
    args = {
        "response_factor": rng.uniform(0.3, 1.5),
        "intercept": rng.normal(0.0, 0.3),
        "unit": rng.uniform(0.2, 1.0),
        "theta": rng.normal(0.0, 0.4, P),
        "whitening": np.eye(P) + 0.4 * rng.standard_normal((P, P)),
        "support": np.array([0, 2]),
        "beta": rng.normal(0.0, 0.4, 2),
        "columns": np.arange(P),
        "transform": np.eye(P)[:, :2] + 0.3 * rng.standard_normal((P, 2)),
        "targets": np.array([1, 0]),
    }
    low = rng.choice([0.0, rng.uniform(0.2, 1.5)])
    layers = {"low": low, "high": low + rng.uniform(0.3, 1.5)}
    if name.endswith((".meat", ".hessian", ".slopes")):
        layers["weight"] = rng.uniform(1.0, 2.5)
    if name == "whitened.columns":
        layers = {"columns": np.array([2, 0]), "thresholds": 0.6 + 0.7 * np.arange(rng.integers(1, 4))}
    if name in ("whitened.gram", "whitened.hessian", "whitened.moments"):
        layers["clip"] = rng.uniform(0.4, 1.2)
    if name == "layers.slopes":
        layers["norm"] = rng.uniform(0.4, 1.2)
    if name.endswith(".counts"):
        quantity = str(rng.choice(["residual", "length", "score"]))
        layers = {"quantity": quantity, "thresholds": 0.4 * 2.0 ** np.arange(rng.integers(1, 4))}
    if name == "whitened.square" or rng.random() < 0.3:
        layers["residual_clip"] = rng.uniform(0.5, 1.0)
    if name == "whitened.moments":
        layers["response_weight"] = rng.uniform(0.5, 2.0)
    if rng.random() < 0.5:
        layers["constant"] = 0
    if rng.random() < 0.3:
        layers["row_weights"] = True
    kept = {*OPS[name].arguments}
    return {key: value for key, value in (args | layers).items() if key in kept}


def block(y, X):
    ends = np.full(X.shape[1], EDGE)
    return SiteBlock(features=X, response=y, low=-ends, high=ends, response_low=-TOP, response_high=TOP)


def records(rng, count):
    """Return records of corners, of the inside, of both, and far outside."""
    X = rng.choice([-EDGE, EDGE], (count, P))
    inside = rng.random((count, P)) < rng.choice([0.0, 0.5, 1.0], (count, 1))
    X = np.where(inside, rng.uniform(-EDGE, EDGE, (count, P)), X)
    X[rng.random((count, P)) < 0.03] = HUGE
    return rng.choice([-HUGE, -TOP, -0.2, 0.4, TOP, HUGE], count), X


def climbed(name, args, rng, tries=6, steps=60):
    """Return the largest move of the sum, in shares of its sensitivity, that climbs over swaps find."""
    op = OPS[name]
    record_sensitivity = op.record_sensitivity(args, P)

    def value(y, x):
        return op.function(block(np.array([y]), x[None, :]), args)

    y, X = records(rng, 150)
    values = np.array([value(*one) for one in zip(y, X, strict=True)])
    apart = np.linalg.norm(values[:, None] - values[None], axis=2)
    best = 0.0
    for place in np.argsort(apart, axis=None)[-tries:]:
        pair = [np.append(X[k], y[k]) for k in np.unravel_index(place, apart.shape)]
        here = apart.ravel()[place]
        for _ in range(steps):
            k = rng.integers(2)
            step = rng.choice([0.03, 0.3]) * rng.standard_normal(P + 1) * (rng.random(P + 1) < 0.6)
            tried = [one + step * (i == k) for i, one in enumerate(pair)]
            there = np.linalg.norm(np.subtract(*(value(one[-1], one[:-1]) for one in tried)))
            if there > here:
                pair, here = tried, there
        best = max(best, here / record_sensitivity.l2)
    return float(best)


@pytest.mark.audit
@pytest.mark.parametrize("bits", [0, 36], ids=["floats", "exact"])
@pytest.mark.parametrize("name", OPS)
def test_climbs_reach_the_charge_and_never_pass_it(name, bits):
    rng = np.random.default_rng(0)
    starts = 4 if bits else 8
    found = [climbed(name, drawn_args(name, rng) | {"bits": bits}, rng) for _ in range(starts)]
    assert max(found) <= 1.0 + 1e-9
    assert max(found) >= REACHED[name]


def test_a_record_of_no_number_moves_no_sum_farther():
    rng = np.random.default_rng(1)
    strange = np.array([np.nan, np.inf, -np.inf, HUGE, -HUGE, 5e-324, -0.0])
    for name, op in OPS.items():
        args = drawn_args(name, rng)
        record_sensitivity = op.record_sensitivity(args, P)
        plain = op.function(block(np.array([0.3]), np.full((1, P), 0.4)), args)
        for _ in range(40):
            y, X = rng.choice(strange, 1), rng.choice(strange, (1, P))
            moved = op.function(block(y, X), args) - plain
            assert np.isfinite(moved).all(), name
            assert np.linalg.norm(moved) <= record_sensitivity.l2 * (1.0 + 1e-9), name


# ---- counts


@pytest.mark.parametrize("cells", [1, 2, 8, 20, 40, 120])
def test_counts_move_as_far_as_the_worst_swap_of_all(cells):
    root = np.column_stack([np.zeros(cells), root_matrix(cells)])
    moved = max(np.linalg.norm(root - root[:, [k]], axis=0).max() for k in range(cells + 1))
    assert root_sensitivity(cells) == pytest.approx(moved, rel=1e-12)
    assert cells not in (8, 20, 40) or round(moved, 2) == {8: 1.52, 20: 1.71, 40: 1.83}[cells]


def test_counts_come_back_from_their_root_with_the_sd_that_is_stated():
    rng = np.random.default_rng(2)
    hits = rng.integers(0, 50, 20)
    released = root_matrix(20) @ hits + 3.0 * rng.standard_normal((4000, 20))
    found, sd = np.array([counts_above(one, 3.0)[0] for one in released]), counts_above(released[0], 3.0)[1]
    np.testing.assert_allclose(found.mean(axis=0), hits[::-1].cumsum()[::-1], atol=5.0 * sd.max() / 60.0)
    np.testing.assert_allclose(found.std(axis=0), sd, rtol=0.05)


# ---- mutants


# What is broken, and the case of `attained` whose sizes must show it.
MUTANTS = {
    "rows shrunk to the longest of their own, not to a public radius": (
        Mutant(
            WHITENED,
            "_gram",
            "outer.matrices(v, lengths(v))",
            "Square(vectors=v, top=max(0.1, lengths(v).max()), length=lengths(v))",
        ),
        "whitened.gram",
    ),
    "cells without the place below them": (
        Mutant(
            SUMMANDS,
            "root_sensitivity",
            "np.column_stack([np.zeros(cells), root_matrix(cells)])",
            "root_matrix(cells)",
        ),
        "whitened.counts, one threshold",
    ),
    "counts charged as a histogram": (
        Mutant(SUMMANDS, "Cells.sensitivity", "l2=root_sensitivity(cells)", "l2=math.sqrt(2.0)"),
        "whitened.counts",
    ),
    "a layer without its upper clip": (
        Mutant(
            LAYERS,
            "layer",
            "0.0, ball.top)\n    return ball.product(np.copysign(size, e), v)",
            "0.0, 9.0)\n    return Product(np.copysign(size, e), 9.0, v)",
        ),
        "whitened.score",
    ),
    "the second layer from zero on": (
        Mutant(
            LAYERS,
            "layer",
            'args) - float(args["low"]), 0.0, ball.top)\n    return ball.product(np.copysign(size, e), v)',
            'args), 0.0, args["high"])\n    return Product(np.copysign(size, e), args["high"], v)',
        ),
        "whitened.score, upper",
    ),
    "directions of any length": (
        Mutant(SUMMANDS, "Product.plain", "scores / np.maximum", "2.0 * scores / np.maximum"),
        "whitened.score",
    ),
    "a layer charged its radius": (
        Mutant(SUMMANDS, "Ball.sensitivity", "2.0 * self.top", "self.top"),
        "whitened.score",
    ),
    "a meat whose upper layer is weighed twice and not shrunk": (
        Mutant(
            LAYERS,
            "meat",
            "weight * np.clip(t - low, 0.0, high - low)\n    return outer.matrices(v.vectors, size, ",
            "2.0 * weight * np.clip(t - low, 0.0, high - low)\n"
            "    return Square(vectors=v.vectors, top=99.0, length=size, size=",
        ),
        "whitened.meat",
    ),
    "products of slopes that are not shrunk": (
        Mutant(SUMMANDS, "Ball.shrunk", "np.minimum(along.length, self.top), self.top", "along.length, 1e9"),
        "layers.slopes",
    ),
    "slopes shrunk to twice their norm": (
        Mutant(
            LAYERS,
            "_slopes",
            "ball.shrunk(",
            'Ball(size=ball.size, top=2.0 * ball.top, derivation="").shrunk(',
        ),
        "layers.slopes",
    ),
    "the meat of targets without its root of two": (
        Mutant(SUMMANDS, "Outer.sensitivity", "l2=math.sqrt(2.0) * q,", "l2=q,"),
        "layers.meat",
    ),
    "squares of residuals that are not clipped": (
        Mutant(
            WHITENED,
            "_square",
            "outer.matrices(e[None], np.abs(e))",
            "Square(vectors=e[None] + 1.0, top=1.0 + outer.top, length=np.abs(e))",
        ),
        "whitened.square",
    ),
    "a Hessian clipped at its longest row": (
        Mutant(
            WHITENED,
            "_hessian",
            "outer.matrices(v.vectors, v.length * root, root)",
            "Square(vectors=v.vectors, top=max(0.1, v.length.max()), length=v.length * root, size=root)",
        ),
        "whitened.hessian",
    ),
}


QUICK = "a layer charged its radius"


@cache
def of_sound_code(case):
    """Return what `attained` says of a case while nothing is broken: once for all mutants of the case."""
    return attained.complaints(case)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name == QUICK else pytest.mark.audit) for name in MUTANTS],
)
def test_a_weight_clip_or_cell_that_is_left_out_is_seen(name):
    mutant, case = MUTANTS[name]
    assert of_sound_code(case) == []
    with mutant.applied():
        assert any("is passed" in text for text in attained.complaints(case))


# ---- arguments that no site takes


BAD = {
    "whitening": [None, np.eye(2), np.full((P, P), np.nan), np.full((P, P), np.inf), 1e31 * np.eye(P), "x"],
    "theta": [None, np.zeros(2), np.full(P, np.nan), np.full(P, 1e31), np.zeros((P, 1))],
    "unit": [None, 0.0, -1.0, math.nan, math.inf, "1"],
    "response_factor": [None, 0.0, -1.0, math.nan, math.inf],
    "thresholds": [
        None,
        [],
        [1.0, 0.5],
        [0.5, 0.5],
        [-1.0, 1.0],
        [math.nan, 1.0],
        [1.0, math.inf],
        [[1.0, 2.0]],
        np.arange(1.0, 400.0),
    ],
    "quantity": [None, "rows", 3],
    "clip": [None, 0.0, -1.0, math.nan, math.inf],
    "low": [None, -1.0, math.nan, math.inf],
    "high": [None, 0.0, math.nan, math.inf],
    "weight": [None, 0.5, math.nan, math.inf],
    "residual_clip": [0.0, -1.0, math.nan, math.inf],
    "constant": [P, -1, 0.5, "x"],
    "bits": [-1, 64, 0.5],
}


@pytest.mark.parametrize("name", WHITENED_OPS)
def test_hostile_arguments_are_refused_before_a_charge(name):
    rng = np.random.default_rng(3)
    op, refused, public = WHITENED_OPS[name], set(), block(*records(rng, 4))
    for field, values in BAD.items():
        for value in values if field in {*op.arguments, "bits"} else []:
            known = {"low": 0.2, "high": 1.0, "quantity": "score"} | {field: value}
            args = {
                key: one
                for key, one in (drawn_args(name, rng) | known).items()
                if key in {*op.arguments, "bits"}
            }
            if value is None:
                args.pop(field)
            with pytest.raises((ArgumentError, SensitivityError)) as caught:
                op.checked(args, public, 10)
            assert isinstance(caught.value, PrivinfError)
            assert "nan" not in str(caught.value).split()
            refused.add(field)
    assert refused >= {"whitening", "theta", "response_factor", "thresholds"} & {*op.arguments}
