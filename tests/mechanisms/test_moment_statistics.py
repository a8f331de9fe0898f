"""Second moments at a site: values, sensitivities by search, exact sums, refusals."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from privinf.errors import ArgumentError, SensitivityError
from privinf.mechanisms.catalogue import SITE_OPS
from privinf.mechanisms.statistics import block as site_rows
from privinf.mechanisms.statistics.block import SiteBlock, exact_bits, unit_of
from privinf.mechanisms.statistics.moments import (
    FEWEST,
    default_response_weight,
    second_moment_sensitivity,
)

P, EDGE, LOW, HIGH = 3, 2.0, -1.0, 3.0
CONSTANT = 1
NORM, CENTER, WEIGHT = 1.3, 1.0, 0.6
UNITS = {"center": np.array([0.5, 0.0, -0.5]), "scale": np.array([1.5, 1.0, 2.0]), "intercept": CENTER}
TOTAL = UNITS | {"norm": NORM, "response_factor": WEIGHT, "response_bound": 0.9 * NORM}
RESIDUAL = UNITS | {
    "norm": NORM, "response_factor": 0.5, "coefficients": np.array([0.4, -0.3, 0.2]), "residual_clip": 0.8,
}  # fmt: skip
CASES = {
    "total": ("moments.total", TOTAL),
    "total, constant": ("moments.total", TOTAL | {"constant": CONSTANT}),
    "residual": ("moments.residual", RESIDUAL),
    "residual, constant": ("moments.residual", RESIDUAL | {"constant": CONSTANT}),
}
EVERY = pytest.mark.parametrize("name", CASES)
BITS = pytest.mark.parametrize("bits", [0, 40], ids=["floats", "exact"])


def block(y, X, **options):
    ends = np.full(X.shape[1], EDGE)
    return SiteBlock(X, y, -ends, ends, response_low=LOW, response_high=HIGH, **options)


def sample(n=700, seed=4):
    rng = np.random.default_rng(seed)
    return 1.0 + 2.0 * rng.normal(size=n), rng.normal(0.0, 1.2, (n, P))


def naive(name, y, X):
    """Return the isometric entries record by record, from matrices."""
    op, args = CASES[name]
    x = (np.clip(X, -EDGE, EDGE) - UNITS["center"]) / UNITS["scale"]
    if constant := "constant" in args:
        x = np.delete(x, CONSTANT, axis=1)
    x *= np.minimum(1.0, NORM / np.linalg.norm(x, axis=1))[:, None]
    y = (np.clip(y, LOW, HIGH) - CENTER) * args["response_factor"]
    ones = np.ones((len(y), int(constant)))
    z, factor = np.column_stack([ones, x]), np.ones(len(y))
    if op == "moments.total":
        y = np.clip(y, -args["response_bound"], args["response_bound"])
        z = np.column_stack([z, y])
    else:
        factor = np.clip(y - z @ args["coefficients"], -args["residual_clip"], args["residual_clip"]) ** 2
    rows, columns = np.triu_indices(z.shape[1])
    found = factor[:, None] * z[:, rows] * z[:, columns] * np.where(rows == columns, 1.0, math.sqrt(2.0))
    return found[:, 1:] if constant and op == "moments.total" else found


@BITS
@EVERY
def test_sums_are_what_they_are_said_to_be(name, bits, monkeypatch):
    monkeypatch.setattr(site_rows, "NARROW_ENTRIES", 300)
    op, args = CASES[name]
    y, X = sample()
    found = SITE_OPS[op].total(block(y, X), args | {"bits": bits})
    cut_off = 700 * unit_of(SITE_OPS[op].reach(args, P).bound, bits)
    np.testing.assert_allclose(found, naive(name, y, X).sum(axis=0), rtol=0, atol=1e-11 + cut_off)


@EVERY
def test_exact_sums_know_no_order_and_no_blocks(name, monkeypatch):
    op, args = CASES[name]
    y, X = sample()
    args = args | {"bits": exact_bits(len(y))}
    whole = SITE_OPS[op].total(block(y, X), args)
    parts = [SITE_OPS[op].total(block(y[part], X[part]), args) for part in np.array_split(np.arange(700), 3)]
    monkeypatch.setattr(site_rows, "NARROW_ENTRIES", 300)
    turned = SITE_OPS[op].total(block(y[::-1], X[::-1]), args)
    np.testing.assert_array_equal(whole, turned)
    np.testing.assert_array_equal(whole, np.sum(parts, axis=0))


def single(name, bits, y, X):
    op, args = CASES[name]
    function = SITE_OPS[op].function
    return np.array(
        [function(block(y[i : i + 1], X[i : i + 1]), args | {"bits": bits}) for i in range(len(y))]
    )


def candidates(name):
    """Return records at all angles with the largest rows and the largest responses, and wild ones."""
    args = CASES[name][1]
    angles = np.linspace(0.0, 2.0 * math.pi, 181)
    plane = np.column_stack([np.cos(angles), np.sin(angles)]) * NORM
    scaled = np.zeros((len(angles), P))
    scaled[:, [0, 2]] = plane
    X = scaled * UNITS["scale"] + UNITS["center"]
    wild = sample(60)[1] * 5.0
    X = np.concatenate([X, X, wild])
    if "coefficients" in args:
        return np.concatenate([np.full(len(X) - 60, HIGH), np.full(60, 50.0)]), X
    y = np.repeat([HIGH, LOW], len(angles))
    return np.concatenate([y, np.full(60, -50.0)]), X


@BITS
@EVERY
def test_the_farthest_pair_attains_the_stated_sensitivity(name, bits, monkeypatch):
    op, args = CASES[name]
    if "coefficients" in args:
        monkeypatch.setitem(CASES, name, (op, args | {"coefficients": np.zeros(P), "response_factor": 5.0}))
        args = CASES[name][1]
    reach = SITE_OPS[op].reach(args, P)
    values = single(name, bits, *candidates(name))
    assert values.shape[1] == reach.size
    found = cdist(values, values).max()
    assert np.abs(values).max() <= reach.bound * (1 + 1e-12)
    assert found <= reach.l2 * (1 + 1e-12)
    assert cdist(values, values, "chebyshev").max() <= reach.linf * (1 + 1e-12)
    assert found >= 0.995 * reach.l2


def test_sensitivity_is_a_curators_and_not_twice_a_norm():
    for constant in (0, 1):
        args = TOTAL | ({"constant": CONSTANT} if constant else {})
        weight = default_response_weight(NORM, 2.0, constant)
        args |= {"response_factor": weight, "response_bound": 2.0 * weight}
        l2 = SITE_OPS["moments.total"].reach(args, P).l2
        assert l2 == pytest.approx(second_moment_sensitivity(NORM, 2.0 * weight, constant), rel=1e-6)
        longest = NORM**2 + (2.0 * weight) ** 2 + constant
        assert l2 < 1.42 * longest


def own(name):
    """Return a question and a block whose constant is a public column beside it: a curator's form."""
    op, args = CASES[name]
    args = {key: value for key, value in args.items() if key != "constant"}
    args |= {key: np.delete(args[key], CONSTANT) for key in ("center", "scale")}
    y, X = sample()

    def rows(**beside):
        others = np.delete(X, CONSTANT, axis=1)
        return block(y, others, clear=np.ones((len(y), 1)), **beside)

    return SITE_OPS[op], args | {"public": 1, "public_norm2": 1.0}, rows


WITH_CONSTANT = pytest.mark.parametrize("name", ["total, constant", "residual, constant"])


@WITH_CONSTANT
def test_a_public_column_of_ones_is_a_constant(name):
    op, args, rows = own(name)
    reach = op.reach(args, P - 1, own=True)
    site = op.reach(CASES[name][1], P)
    assert (reach.shape, reach.bound) == (site.shape, pytest.approx(site.bound, rel=1e-15))
    assert reach.l2 == pytest.approx(site.l2, rel=1e-6)
    assert reach.l2 < site.l2  # no cutting
    found, y_X = op.total(rows(), args, reach), sample()
    np.testing.assert_allclose(found, op.total(block(*y_X), CASES[name][1]), rtol=1e-12, atol=1e-12)
    on_grid = op.total(rows(), args | {"grid": 2.0**-20}, reach)
    np.testing.assert_array_equal(on_grid * 2.0**20, np.rint(on_grid * 2.0**20))
    np.testing.assert_allclose(on_grid, found, rtol=0, atol=700 * 2.0**-21)


@WITH_CONSTANT
def test_weights_and_rows_of_a_person_multiply_sums_and_their_reach(name):
    op, args, rows = own(name)
    power = 1 if op.name == "moments.total" else 2
    one = op.reach(args, P - 1, own=True)
    many = op.reach(args | {"weight_bound": 2.5, "max_rows": 3}, P - 1, own=True)
    for of in ("l2", "linf", "bound"):
        assert getattr(many, of) == pytest.approx(3 * 2.5**power * getattr(one, of), rel=1e-15)
    found = op.total(rows(weights=np.full(700, 2.5)), args, one)
    np.testing.assert_allclose(found, 2.5**power * op.total(rows(), args, one), rtol=1e-12)


@pytest.mark.parametrize(
    "change",
    [
        {"public": -1}, {"public": 1.5}, {"public_norm2": -1.0}, {"public_norm2": None}, {"max_rows": 0},
        {"weight_bound": 0.0}, {"weight_bound": math.nan}, {"constant": 0}, {"bits": 40}, {"public": None},
    ],
)  # fmt: skip
def test_what_a_holder_says_of_its_rows_is_checked(change):
    op, args, _ = own("total, constant")
    changed = {key: value for key, value in (args | change).items() if value is not None}
    with pytest.raises(ArgumentError):
        op.reach(changed, P - 1, own=True)


@EVERY
def test_a_smaller_sensitivity_is_passed(name):
    """What half the sensitivity would allow is exceeded, with cutting or without."""
    op, args = CASES[name]
    values = single(name, 40, *candidates(name))
    assert cdist(values, values).max() > 0.5 * SITE_OPS[op].reach(args, P).l2


@BITS
@EVERY
def test_a_record_that_is_not_finite_or_huge_keeps_to_the_bound(name, bits):
    op, args = CASES[name]
    X = np.array([[1e300, 1e300, -1e300], [np.inf, 0.0, 1.0], [1e-320, 0.0, -1e-320]])
    values = single(name, bits, np.array([1e300, -1e300, 0.0]), X)
    assert np.isfinite(values).all()
    assert np.abs(values).max() <= SITE_OPS[op].reach(args, P).bound * (1 + 1e-12)


def test_the_column_of_the_constant_is_never_read():
    y, X = sample(50)
    args = TOTAL | {"constant": CONSTANT, "bits": 40}
    other = X.copy()
    other[:, CONSTANT] = 7.0
    op = SITE_OPS["moments.total"]
    np.testing.assert_array_equal(op.total(block(y, X), args), op.total(block(y, other), args))


def test_too_many_rows_for_exact_products_are_refused():
    y, X = sample(20)
    op = SITE_OPS["moments.total"]
    with pytest.raises(SensitivityError, match="digits"):
        op.total(block(y, X), TOTAL | {"bits": FEWEST - 1})
    op.total(block(y, X), TOTAL | {"bits": FEWEST})
    assert exact_bits(2**28 - 1) == FEWEST


@EVERY
def test_cutting_moves_pairs_apart_by_no_more_than_is_charged_for_it(name):
    op, args = CASES[name]
    y, X = sample(80)
    cut_off, whole = (cdist(found, found) for found in (single(name, bits, y, X) for bits in (FEWEST, 0)))
    reach = SITE_OPS[op].reach(args, P)
    unit = unit_of(reach.bound, FEWEST)
    most = unit * math.sqrt(reach.size)
    assert 0.3 * unit < (cut_off - whole).max() <= most
    constant = float("constant" in args)
    if "coefficients" in args:
        uncut = math.sqrt(2.0) * args["residual_clip"] ** 2 * (NORM**2 + constant)
    else:
        uncut = second_moment_sensitivity(NORM, args["response_bound"], constant)
    assert reach.l2 - uncut == pytest.approx(most, rel=1e-6)


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("total", {"norm": None}, "norm is missing"),
        ("total", {"norm": 0.0}, "norm"),
        ("total", {"response_factor": -1.0}, "response_factor"),
        ("total", {"response_bound": math.inf}, "response_bound"),
        ("total", {"constant": P}, "constant"),
        ("total", {"constant": 0.5}, "constant"),
        ("total", {"coefficients": np.zeros(P)}, "takes no argument"),
        ("total", {"support": np.array([0]), "beta": np.zeros(1)}, "takes no argument"),
        ("residual", {"coefficients": np.zeros(P - 1)}, "coefficients has"),
        ("residual", {"residual_clip": 0.0}, "residual_clip"),
        ("residual", {"response_bound": 1.0}, "takes no argument"),
    ],
)
def test_arguments_are_checked_before_rows_are_read(name, change, words):
    op, args = CASES[name]
    changed = {key: value for key, value in (args | change).items() if value is not None}
    with pytest.raises(ArgumentError, match=words):
        SITE_OPS[op].total(block(*sample(5)), changed)


def test_a_constant_alone_has_nothing_to_protect():
    with pytest.raises(ArgumentError, match="beside another column"):
        SITE_OPS["moments.total"].reach(
            {"norm": 1.0, "response_factor": 1.0, "response_bound": 1.0, "constant": 0}, 1
        )


def test_mutants_of_the_norm_and_of_the_response_are_seen(monkeypatch):
    """A statistic that does not shrink rows, or does not clip the response, passes its own bound."""
    op, args = SITE_OPS["moments.total"], TOTAL
    y, X = candidates("total")
    loose = replace(op, function=lambda one, told: op.function(one, told | {"norm": 9.0}))
    wide = replace(
        op,
        function=lambda one, told: op.function(one, told | {"response_factor": 9.0, "response_bound": 9.0}),
    )
    for mutant in (loose, wide):
        values = np.array([mutant.function(block(y[i : i + 1], X[i : i + 1]), args) for i in range(len(y))])
        assert cdist(values, values).max() > 1.2 * op.reach(args, P).l2
