"""Second moments at a site: values, sensitivities by search, exact sums, refusals."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from privinf.errors import ArgumentError
from privinf.mechanisms import sums as exact_sums
from privinf.mechanisms.catalogue import SITE_OPS
from privinf.mechanisms.statistics import block as site_rows
from privinf.mechanisms.statistics import gridded
from privinf.mechanisms.statistics.block import SiteBlock, exact_bits, unit_of
from privinf.mechanisms.statistics.gridded import RowGrid
from privinf.mechanisms.statistics.moments import default_response_weight, second_moment_sensitivity
from privinf.mechanisms.statistics.ops import SUM_DIGITS
from privinf.mechanisms.sums import FULL_SCALE

P, EDGE, LOW, HIGH = 3, 2.0, -1.0, 3.0
CONSTANT = 1
NORM, CENTER, WEIGHT = 1.3, 1.0, 0.6
UNITS = {"center": np.array([0.5, 0.0, -0.5]), "scale": np.array([1.5, 1.0, 2.0]), "intercept": CENTER}
TOTAL = UNITS | {"norm": NORM, "response_factor": WEIGHT, "response_bound": 0.9 * NORM}
RESIDUAL = UNITS | {
    "norm": NORM,
    "response_factor": 0.5,
    "coefficients": np.array([0.4, -0.3, 0.2]),
    "residual_clip": 0.8,
}
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
    return SiteBlock(
        features=X, response=y, low=-ends, high=ends, response_low=LOW, response_high=HIGH, **options
    )


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
    rounded = 700 * 2.0**-20 * SITE_OPS[op].record_sensitivity(args, P).bound if bits else 0.0
    np.testing.assert_allclose(found, naive(name, y, X).sum(axis=0), rtol=0, atol=1e-11 + rounded)


@EVERY
def test_exact_sums_know_no_order_and_no_blocks(name, monkeypatch):
    op, args = CASES[name]
    y, X = sample()
    args = args | {"bits": exact_bits(len(y))}
    whole = SITE_OPS[op].total(block(y, X), args)
    merged, *others = (
        summed(SITE_OPS[op], block(y[part], X[part]), args) for part in np.array_split(np.arange(700), 3)
    )
    for other in others:
        merged.merge(other)
    monkeypatch.setattr(exact_sums, "BLOCK_NUMBERS", 300)
    turned = SITE_OPS[op].total(block(y[::-1], X[::-1]), args)
    np.testing.assert_array_equal(whole, turned)
    columns = SITE_OPS[op].total(block(y, np.asfortranarray(X)), args)
    np.testing.assert_array_equal(whole, columns)
    unit = unit_of(SITE_OPS[op].record_sensitivity(args, P).bound, args["bits"])
    np.testing.assert_array_equal(whole / unit, merged.steps(unit))
    assert merged.rows == 700


def summed(op, rows, args):
    """Return the exact sums of a block."""
    sums = op.sums(rows, args)
    sums.update(rows)
    return sums


def single(name, bits, y, X):
    """Return what each record adds: in doubles, or on its grid and as a total that is rounded."""
    op, args = CASES[name]
    told = args | {"bits": bits}
    return np.array([SITE_OPS[op].total(block(y[i : i + 1], X[i : i + 1]), told) for i in range(len(y))])


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


@pytest.mark.audit
@BITS
@EVERY
def test_the_farthest_pair_attains_the_stated_sensitivity(name, bits, monkeypatch):
    op, args = CASES[name]
    if "coefficients" in args:
        monkeypatch.setitem(CASES, name, (op, args | {"coefficients": np.zeros(P), "response_factor": 5.0}))
        args = CASES[name][1]
    record_sensitivity = SITE_OPS[op].record_sensitivity(args, P)
    values = single(name, bits, *candidates(name))
    assert values.shape[1] == record_sensitivity.size
    values = np.vstack([values, np.zeros(values.shape[1])])  # a record with missing values, dropped
    found = cdist(values, values).max()
    assert np.abs(values).max() <= record_sensitivity.bound * (1 + 1e-12)
    assert found <= record_sensitivity.l2 * (1 + 1e-12)
    assert cdist(values, values, "chebyshev").max() <= record_sensitivity.linf * (1 + 1e-12)
    assert found >= 0.995 * record_sensitivity.l2


def test_sensitivity_is_a_curators_and_not_twice_a_norm():
    for constant in (0, 1):
        args = TOTAL | ({"constant": CONSTANT} if constant else {})
        weight = default_response_weight(NORM, 2.0, constant)
        args |= {"response_factor": weight, "response_bound": 2.0 * weight}
        l2 = SITE_OPS["moments.total"].record_sensitivity(args, P).l2
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
    record_sensitivity = op.record_sensitivity(args, P - 1, own=True)
    site = op.record_sensitivity(CASES[name][1], P)
    assert (record_sensitivity.shape, record_sensitivity.bound) == (
        site.shape,
        pytest.approx(site.bound, rel=1e-15),
    )
    assert record_sensitivity.l2 == pytest.approx(site.l2, rel=1e-6)
    assert record_sensitivity.l2 < site.l2  # no cutting
    found, y_X = op.total(rows(), args, record_sensitivity), sample()
    np.testing.assert_allclose(found, op.total(block(*y_X), CASES[name][1]), rtol=1e-12, atol=1e-12)
    exact = summed(op, rows(), args)
    np.testing.assert_array_equal(exact.floats(), summed(op, block(*y_X), CASES[name][1]).floats())
    np.testing.assert_allclose(exact.floats(), found, rtol=0, atol=700 * 2.0**-20 * record_sensitivity.bound)
    assert np.abs(exact.steps(2.0**-20) * 2.0**-20 - exact.floats()).max() <= 2.0**-21
    assert exact.public.item() == (700.0 if op.name == "moments.total" else exact.floats()[0])


@WITH_CONSTANT
def test_weights_and_rows_of_a_person_multiply_sums_and_their_reach(name):
    op, args, rows = own(name)
    power = 1 if op.name == "moments.total" else 2
    one = op.record_sensitivity(args, P - 1, own=True)
    many = op.record_sensitivity(args | {"weight_bound": 2.5, "max_rows": 3}, P - 1, own=True)
    for of in ("l2", "linf", "bound"):
        assert getattr(many, of) == pytest.approx(3 * 2.5**power * getattr(one, of), rel=1e-15)
    found = op.total(rows(weights=np.full(700, 2.5)), args, one)
    np.testing.assert_allclose(found, 2.5**power * op.total(rows(), args, one), rtol=1e-12)


@pytest.mark.parametrize(
    "change",
    [
        {"public": -1},
        {"public": 1.5},
        {"public_norm2": -1.0},
        {"public_norm2": None},
        {"max_rows": 0},
        {"weight_bound": 0.0},
        {"weight_bound": math.nan},
        {"constant": 0},
        {"bits": 40},
        {"public": None},
    ],
)
def test_what_a_holder_says_of_its_rows_is_checked(change):
    op, args, _ = own("total, constant")
    changed = {key: value for key, value in (args | change).items() if value is not None}
    with pytest.raises(ArgumentError):
        op.record_sensitivity(changed, P - 1, own=True)


@pytest.mark.audit
@EVERY
def test_a_smaller_sensitivity_is_passed(name):
    """What half the sensitivity would allow is exceeded, with cutting or without."""
    op, args = CASES[name]
    values = single(name, 40, *candidates(name))
    assert cdist(values, values).max() > 0.5 * SITE_OPS[op].record_sensitivity(args, P).l2


@BITS
@EVERY
def test_a_record_that_is_not_finite_or_huge_keeps_to_the_bound(name, bits):
    op, args = CASES[name]
    X = np.array([[1e300, 1e300, -1e300], [np.inf, 0.0, 1.0], [1e-320, 0.0, -1e-320]])
    values = single(name, bits, np.array([1e300, -1e300, 0.0]), X)
    assert np.isfinite(values).all()
    assert np.abs(values).max() <= SITE_OPS[op].record_sensitivity(args, P).bound * (1 + 1e-12)


def test_the_column_of_the_constant_is_never_read():
    y, X = sample(50)
    args = TOTAL | {"constant": CONSTANT, "bits": 40}
    other = X.copy()
    other[:, CONSTANT] = 7.0
    op = SITE_OPS["moments.total"]
    np.testing.assert_array_equal(op.total(block(y, X), args), op.total(block(y, other), args))


def test_fewer_digits_of_more_rows_are_charged():
    """2^40 rows leave 11 digits, and a total is moved by one unit of them an entry."""
    op = SITE_OPS["moments.total"]
    few, usual = exact_bits(2**40), exact_bits(2**28 - 1)
    assert (few, usual) == (11, SUM_DIGITS)
    many, record_sensitivity = (
        op.record_sensitivity(TOTAL | {"bits": few}, P),
        op.record_sensitivity(TOTAL | {"bits": usual}, P),
    )
    assert (
        record_sensitivity.l2
        == op.record_sensitivity(TOTAL | {"bits": 40}, P).l2
        == op.record_sensitivity(TOTAL, P).l2
    )
    units = unit_of(record_sensitivity.bound, few) - unit_of(record_sensitivity.bound, usual)
    assert many.l2 - record_sensitivity.l2 == pytest.approx(units * math.sqrt(record_sensitivity.size))


@pytest.mark.audit
@EVERY
def test_records_on_their_grid_keep_the_sensitivity_of_all_records(name, monkeypatch):
    """What a site adds to it is for the rounding of the total alone."""
    op, args = CASES[name]
    if "coefficients" in args:
        monkeypatch.setitem(CASES, name, (op, args | {"coefficients": np.zeros(P), "response_factor": 5.0}))
        args = CASES[name][1]
    constant = float("constant" in args)
    if "coefficients" in args:
        formula = math.sqrt(2.0) * args["residual_clip"] ** 2 * (NORM**2 + constant)
    else:
        formula = second_moment_sensitivity(NORM, args["response_bound"], constant)
    y, X = candidates(name)
    exact = [summed(SITE_OPS[op], block(y[i : i + 1], X[i : i + 1]), args).floats() for i in range(len(y))]
    apart = cdist(exact, exact)
    assert 0.99 * formula < apart.max() <= formula * (1 + 1e-12)
    record_sensitivity = SITE_OPS[op].record_sensitivity(args, P)
    unit = unit_of(record_sensitivity.bound, SUM_DIGITS)
    most = unit * math.sqrt(record_sensitivity.size)
    assert record_sensitivity.l2 - formula == pytest.approx(most, rel=1e-6)
    found = single(name, SUM_DIGITS, y, X)
    assert np.abs(found - exact).max() > 0.1 * unit
    assert (cdist(found, found) - apart).max() <= most


def box_block(rows, low=(-1.0, 0.2), high=(1.0, 1.7)):
    y = np.zeros(len(rows))
    return SiteBlock(
        features=rows,
        response=y,
        low=np.array(low),
        high=np.array(high),
        response_low=LOW,
        response_high=HIGH,
    )


def test_boxes_end_on_their_grid():
    """Corners are as long as the public norm, and no row of the box is longer on its grid."""
    norm = math.hypot(1.0, 1.7)
    args = {"norm": norm, "response_factor": 1.0, "response_bound": 1.0}
    grid = RowGrid(box_block(np.zeros((1, 2))), args)
    rng = np.random.default_rng(0)
    rows = np.concatenate([[[1.0, 1.7], [-1.0, 0.2], [5.0, -9.0]], rng.uniform(-2, 2, (200, 2))])
    steps = grid.steps(box_block(rows)).copy()
    assert math.isinf(grid.grid.limit)
    assert tuple(steps[0]) == (2.0**20, 2.0**20)
    clipped = np.clip(rows, [-1.0, 0.2], [1.0, 1.7])
    assert np.abs(steps * grid.grid.units - clipped).max() <= 0.5 * grid.grid.units.max() * (1 + 1e-9)
    assert np.sqrt(((steps * grid.grid.units) ** 2).sum(axis=1)).max() <= norm * (1 + 2.0**-44)


@pytest.mark.parametrize("norm", [1.2, 0.7, 0.01])
def test_balls_keep_room(norm):
    """Rows on the grid are in their ball, however it stands to the box; those inside stay where they are."""
    args = {"norm": norm, "response_factor": 1.0, "response_bound": 1.0}
    grid = RowGrid(box_block(np.zeros((1, 2))), args)
    rng = np.random.default_rng(1)
    rows = np.concatenate([rng.uniform(-2, 2, (500, 2)), 0.4 * norm * rng.uniform(-1, 1, (100, 2))])
    z = np.clip(rows, [-1.0, 0.2], [1.0, 1.7])
    steps = grid.steps(box_block(rows)).copy()
    lengths = np.sqrt((steps**2).sum(axis=1))
    assert lengths.max() <= norm / grid.grid.units[0] * (1 + 2.0**-43)
    assert lengths.max() >= norm / grid.grid.units[0] * (1 - 2.0**-13)
    held = z * np.minimum(1.0, norm / np.maximum(np.sqrt((z**2).sum(axis=1)), 1e-300))[:, None]
    assert np.abs(steps * grid.grid.units - held).max() <= 2.0 * grid.grid.units[0]


def test_a_mutant_that_rounds_up_at_the_ball_passes_it(monkeypatch):
    def upwards(steps, limit):
        lengths = np.sqrt((steps**2).sum(axis=1))
        return np.ceil(steps * np.minimum(1.0, limit / np.maximum(lengths, 1.0))[:, None])

    monkeypatch.setattr(gridded, "held_norms", upwards)
    args = {"norm": 0.7, "response_factor": 1.0, "response_bound": 1.0}
    rng = np.random.default_rng(2)
    grid = RowGrid(box_block(np.zeros((1, 2))), args)
    steps = grid.steps(box_block(rng.uniform(-2, 2, (500, 2))))
    assert np.sqrt((steps**2).sum(axis=1)).max() > 0.7 / grid.grid.units[0] * (1 + 2.0**-22)


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("total", {"norm": None}, "norm is missing"),
        ("total", {"norm": 0.0}, "norm"),
        ("total", {"response_factor": -1.0}, "response_factor"),
        ("total", {"response_bound": math.inf}, "response_bound"),
        ("total", {"constant": P}, "constant"),
        ("total", {"constant": 0.5}, "constant"),
        ("total", {"coefficients": np.zeros(P)}, "has no argument"),
        ("total", {"support": np.array([0]), "beta": np.zeros(1)}, "has no argument"),
        ("residual", {"coefficients": np.zeros(P - 1)}, "'coefficients' of the statistic has"),
        ("residual", {"residual_clip": 0.0}, "residual_clip"),
        ("residual", {"response_bound": 1.0}, "has no argument"),
    ],
)
def test_arguments_are_checked_before_rows_are_read(name, change, words):
    op, args = CASES[name]
    changed = {key: value for key, value in (args | change).items() if value is not None}
    with pytest.raises(ArgumentError, match=words):
        SITE_OPS[op].total(block(*sample(5)), changed)


def test_a_constant_alone_has_nothing_to_protect():
    with pytest.raises(ArgumentError, match="one other column"):
        SITE_OPS["moments.total"].record_sensitivity(
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
        assert cdist(values, values).max() > 1.2 * op.record_sensitivity(args, P).l2


def test_linear_predictors_are_exact_sums_of_a_coefficient_on_a_public_grid():
    """The order of columns and the kind of products leave no bit of them open; errors are as stated."""
    rng = np.random.default_rng(5)
    steps = np.rint(rng.uniform(-1, 1, (500, 40)) * FULL_SCALE)
    weights = rng.normal(size=40) * 10.0 ** rng.integers(-6, 3, 40)
    found = gridded.predictor([(steps[:, :7], weights[:7]), (steps[:, 7:], weights[7:])])
    order = rng.permutation(40)
    other = gridded.predictor([(np.asfortranarray(steps[:, order]), weights[order])])
    np.testing.assert_array_equal(found, other)
    error = np.abs(found - steps @ weights).max()
    assert 0.0 < error <= 40 * np.abs(weights).sum() * FULL_SCALE * 2.0**-33
    assert not gridded.predictor([(steps, np.zeros(40))]).any()


def test_too_many_digits_a_value_would_round():
    """What 2^20 steps leave exact, 2^21 do not."""
    rows = np.full((8192, 1), 2.0**21)
    rows[0] = 2.0**21 - 1.0
    whole = int((rows.T @ rows).item())
    assert whole != sum(int(k) ** 2 for k in rows[:, 0])
    fits = np.full((8192, 1), FULL_SCALE)
    fits[0] -= 1.0
    assert int((fits.T @ fits).item()) == sum(int(k) ** 2 for k in fits[:, 0])


def test_a_small_record_beside_a_long_public_one_keeps_its_sensitivity():
    for q in (1.0, 1e4, 1e8, 1e12):
        exact = 2.0 * math.sqrt(2.0) * q * math.sqrt(0.5)
        assert second_moment_sensitivity(0.5, 0.5, q**2) == pytest.approx(exact, rel=1e-15)
