"""Whatever arguments a site takes, no pair of rows moves a sum by more than is charged, or stops its answer.

A search: arguments of `attained` and of the fuzzer of questions, changed at random to what an analyst may ask
(far intercepts and centers, tiny and huge scales, clips and digits), columns and responses with narrow, huge
or no bounds; rows at bounds, at clips, between, and far out. `attained` has the pairs that reach a size.
"""

import math

import numpy as np
import pandas as pd
import pytest
from attained import CASES, LOW, P, Y
from mutation import Mutant
from query_fuzzer import STATISTICS
from scipy.spatial.distance import cdist

import privinf as pi
from privinf.errors import PrivinfError
from privinf.mechanisms.catalogue import SITE_OPS
from privinf.mechanisms.passes import RowPasses
from privinf.mechanisms.rows import as_rows
from privinf.mechanisms.statistics.block import SiteBlock, made_up
from privinf.mechanisms.statistics.summands import SMALLEST_THRESHOLD

NUMBERS = (0.0, 1e-30, 1e-20, 1e-8, 0.5, 1.0, 1.0000001, 3.0, 100.0, 1e8, 1e20, 1e30)
BITS = (0, 1, 2, 3, 8, 24, 28, 40, 46)
ENTRIES = (0.0, 5e-324, 1e-300, 1e-160, 1e-30, 0.4, 1.0, 2.0, 3.0, 1e10, 1e30, 1e300, math.inf)
BASES = [(op, args, P) for op, args, _ in CASES.values()] + [(op, args, 5) for op, args in STATISTICS.items()]
# A site's total clipped to far less than what its records add, but for the made-up rows that it tries.
SMALL_CLIP = CASES["glm.score, sites, clipped"][1] | {"client_clip": 1e-12, "theta": np.full(P, 0.5)}
BASES.append(("glm.score", SMALL_CLIP, P))
ROWS = 12


def _changed(value, name, rng):
    """Return another value of an argument."""
    if isinstance(value, (bool, str, int)):
        return value
    size = float(10.0 ** rng.normal(0.0, rng.choice([0.1, 1.0, 8.0])))
    array = np.array(value, dtype=np.float64) if np.asarray(value).dtype.kind == "f" else value
    if array is value:
        return value
    kind = rng.integers(4)
    if name in ("thresholds", "edges") or kind == 0:
        array = array * size
    elif kind == 1:
        array.flat[rng.integers(array.size)] = rng.choice(NUMBERS) * rng.choice([-1.0, 1.0])
    elif kind == 2:
        array = rng.normal(size=array.shape) * size
    else:
        array = array * 10.0 ** rng.normal(0.0, 5.0, array.shape)
    array = np.clip(array, -1e30, 1e30)
    return array if array.ndim else float(abs(array))


def _asked(op, args, columns, rng):
    """Return a question's arguments, some of them changed."""
    args = dict(args)
    for name in rng.choice(list(args), int(rng.integers(4))) if args else ():
        args[name] = _changed(args[name], name, rng)
    more = {
        "center": rng.normal(size=columns) * 10.0 ** rng.normal(0.0, 6.0),
        "scale": 10.0 ** rng.normal(0.0, 6.0, columns),
        "intercept": float(rng.normal() * 10.0 ** rng.normal(0.0, 4.0)),
        "bits": int(rng.choice(BITS)),
    }
    told = [name for name in more if rng.uniform() < 0.3 or name == "bits"]
    args |= {name: more[name] for name in told if name in SITE_OPS[op].arguments}
    if "streams" in SITE_OPS[op].arguments and rng.uniform() < 0.3:  # a constant of the site of all blocks
        args |= {"streams": np.array([0]), "intercepts": rng.normal(size=1) * 10.0 ** rng.normal(0.0, 6.0)}
    return args


def _bounds(columns, rng):
    """Return bounds of columns and of the response."""
    low, high, y = np.full(columns, LOW), np.full(columns, -LOW), (-Y, Y)
    kind = rng.integers(6)
    if kind == 0:
        low[0], high[1] = -math.inf, math.inf
    elif kind == 1:
        low, high = -(10.0 ** rng.normal(0.0, 10.0, columns)), 10.0 ** rng.normal(0.0, 10.0, columns)
    elif kind == 2:
        low[-1] = high[-1] = 1.0
    if rng.uniform() < 0.3:
        y = tuple(sorted(rng.choice([0.0, 1.0, -1e30, 1e30, 5.0, 1e-30, -1e-3], 2, replace=False)))
    return low, high, *y


def _rows(columns, rng):
    """Return rows, one by one."""
    X = rng.choice(ENTRIES, (ROWS, columns)) * rng.choice([-1.0, 1.0], (ROWS, columns))
    near = rng.uniform(size=ROWS) < 0.6
    X[near] = rng.normal(size=(int(near.sum()), columns)) * 10.0 ** rng.normal(size=(int(near.sum()), 1))
    y = np.where(rng.uniform(size=ROWS) < 0.5, rng.choice(ENTRIES, ROWS), 10.0 ** rng.normal(size=ROWS))
    return X, y * rng.choice([-1.0, 1.0], ROWS)


def _far(op, args, columns, rng):
    """Return what is wrong with the sizes of one question, None if no site takes it."""
    bounds = _bounds(columns, rng)
    count = int(args.get("client_rows", 1))
    try:
        record_sensitivity = SITE_OPS[op].checked(args, made_up(*bounds), count)
    except PrivinfError:
        return None
    named = dict(zip(("low", "high", "response_low", "response_high"), bounds, strict=True))
    blocks = [
        SiteBlock(features=np.tile(x, (count, 1)), response=np.full(count, y), **named)
        for x, y in zip(*_rows(columns, rng), strict=True)
    ]
    try:
        values = np.array([SITE_OPS[op].total(one, args, record_sensitivity).ravel() for one in blocks])
    except PrivinfError as problem:
        return [f"{op} stops: {problem}"]
    values = np.vstack([values, np.zeros(values.shape[1])])  # a dropped record adds nothing
    sizes = {"l2": cdist(values / record_sensitivity.l2, values / record_sensitivity.l2).max()}
    sizes["linf"] = cdist(
        values / record_sensitivity.linf, values / record_sensitivity.linf, "chebyshev"
    ).max()
    sizes["bound"] = np.abs(values / record_sensitivity.bound).max()
    if record_sensitivity.norm:
        sizes["norm"] = np.linalg.norm(values / record_sensitivity.norm, axis=1).max()
    return [f"{op}: {name} is passed" for name, size in sizes.items() if not size <= 1.0 + 1e-9]


def search(count, seed, only=""):
    """Try so many questions; return how many sites take, and what is wrong."""
    rng, tried, found = np.random.default_rng(seed), 0, []
    bases = [base for base in BASES if base[0].startswith(only)]
    for at in range(count):
        op, args, columns = bases[at % len(bases)]
        with np.errstate(all="ignore"):
            wrong = _far(op, _asked(op, args, columns, rng), columns, rng)
        tried, found = tried + (wrong is not None), found + (wrong or [])
    return tried, found


@pytest.mark.audit
def test_no_question_moves_a_sum_by_more_than_is_charged():
    tried, found = search(1_000, 0)
    assert found == []
    assert tried > 500


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 5))
def test_no_question_of_many_does(seed):
    tried, found = search(30_000, seed)
    assert found == []
    assert tried > 15_000


MUTANTS = {
    "responses held between bounds beyond their grid": (
        Mutant(
            "mechanisms.statistics.gridded",
            "ColumnGrid.put",
            "np.clip(self.ends, -FULL_SCALE, FULL_SCALE)",
            "self.ends",
        ),
        "moments.total",
        600,
        "l2 is passed",
    ),
    "private columns lost beside public ones": (
        Mutant(
            "mechanisms.statistics.moments",
            "second_moment_sensitivity",
            "math.sqrt(8.0 * public_norm2 * rho2)",
            "math.sqrt(2.0 * ((public_norm2 + rho2) ** 2 - (public_norm2 - rho2) ** 2))",
        ),
        "moments.total",
        600,
        "l2 is passed",
    ),
    "digits of a site's clip, not of a record's entry": (
        Mutant(
            "mechanisms.statistics.ops",
            "SiteOp.rounded",
            "record_sensitivity.entry or record_sensitivity.bound",
            "record_sensitivity.bound",
        ),
        "glm.score",
        300,
        "stops",
    ),
}


@pytest.mark.audit
@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_found(name):
    mutant, only, count, told = MUTANTS[name]
    with mutant.applied():
        assert any(told in text for text in search(count, 1, only)[1])


# ---- the floor of thresholds

EDGE = SMALLEST_THRESHOLD * np.array([1.0, 1.0 + 2.0**-52, 1.0 - 2.0**-53, 0.5, 2.0])
TINY = np.concatenate([[0.0], EDGE, np.ldexp(1.0, [-1074, -1022, -900, -501, -500, -300, -180, -1])])
LOW_THRESHOLDS = [
    [0.0],
    [0.0, 2.0**-1000, SMALLEST_THRESHOLD, 0.3],
    [2.0**-300, 0.3],
    [2.0**-250, 2.0**-199, 0.3],
]


def tiny_complaints():
    """Return where counts above tiny thresholds differ in a database, or move by more than is charged."""
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    design = pi.Moments(pi.Schema({"y": (0.0, 1.0), "x": (-1.0, 1.0)}), "y ~ 0 + x").design
    held = pd.DataFrame({"y": TINY, "x": 1.0})
    connection = duckdb.connect()
    connection.register("held", held)
    pushed = as_rows(pi.open_rows(connection.sql("select * from held"), push_down=True))
    asked = [
        (SITE_OPS["whitened.counts"], args | {"thresholds": np.array(thresholds), "bits": 20})
        for args in ({"quantity": "residual"}, {"quantity": "score", "unit": 1.0})
        for thresholds in LOW_THRESHOLDS
    ]
    units = {"theta": np.zeros(1), "whitening": np.eye(1), "response_factor": 1.0}
    asked = [(op, units | args) for op, args in asked]
    (block,) = RowPasses(design, as_rows(held)).blocks()
    inside = RowPasses(design, pushed).push(asked)
    found = []
    for (op, args), one in zip(asked, inside, strict=True):
        rows = [op.total(part, args) for part in block.parts(1)]
        if not np.array_equal(op.total(block, args), one.floats()):
            found.append(f"{args['quantity']}: a database counts others above {args['thresholds']}")
        if not cdist(rows, rows).max() <= op.record_sensitivity(args, 1).l2 * (1.0 + 1e-12):
            found.append(f"{args['quantity']}: l2 is passed")
    return found


def test_rows_above_tiny_thresholds_are_the_same_wherever_they_stand():
    assert tiny_complaints() == []


def test_thresholds_without_a_floor_are_seen():
    floor = "np.maximum(self.thresholds, SMALLEST_THRESHOLD)"
    with Mutant("mechanisms.statistics.summands", "Counts.__post_init__", floor, "self.thresholds").applied():
        assert any("a database counts others" in text for text in tiny_complaints())
