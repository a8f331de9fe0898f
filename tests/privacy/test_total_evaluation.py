"""No function of a row can raise, warn or give infinite numbers: at the evaluator, by every entry point."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from ulp_search import (
    ENTRY_POINTS,
    LOW,
    MATH,
    Candidate,
    chains,
    differing,
    evaluator_differs,
    neighbours,
    search,
)

import privinf as pi
from privinf.errors import ArgumentError, SchemaError
from privinf.mechanisms.opened import OpenedRows
from privinf.mechanisms.rows import Rows
from privinf.schema import Interval, expressions
from privinf.schema.intervals import Ranged

HUGE = 1.7e308


def worst(tries: int = 400, keep: int = 3) -> list[Candidate]:
    rng = np.random.default_rng(11)
    return [one for chain in chains() for one in search(chain, tries, keep, rng)]


@pytest.mark.audit
def test_no_formula_leaves_its_interval():
    assert not [one.formula for one in worst() if evaluator_differs(one)]


@pytest.mark.audit
@pytest.mark.parametrize("entry_point", ENTRY_POINTS)
def test_no_door_tells_neighbours_apart_for_nothing(entry_point):
    candidates = worst(200, 1)[:: 1 if entry_point == "site" else 4]
    assert not list(differing(candidates, {entry_point: ENTRY_POINTS[entry_point]}))


def test_the_search_finds_an_evaluator_that_is_not_total(monkeypatch):
    """The mutant is what was: ends by Python's functions, rows by numpy's, and nothing put inside."""

    def by_python(self, function):
        name = getattr(function, "__name__", "")
        ends = [MATH[name](end) if name in MATH else float(function(np.float64(end))) for end in self.ends]
        return Interval(min(ends), max(ends))

    monkeypatch.setattr(Interval, "ends", property(lambda self: (self.low, self.high)), raising=False)
    monkeypatch.setattr(Interval, "images", by_python)
    monkeypatch.setattr(Interval, "inside", lambda self, values: values)
    assert any(evaluator_differs(one) for one in worst())


@pytest.mark.audit
def test_a_curators_release_does_not_say_whether_a_row_is_there():
    """The finding: a probe of the last bits was refused, uncharged, for the one table with a row at t."""
    rng = np.random.default_rng(0)
    found = [
        one for name in ("exp", "log", "**3", "**1.7", "expm1") for one in search((name,), 4000, 40, rng)
    ]
    told = list(differing(found, {name: ENTRY_POINTS[name] for name in ("site", "central")}))
    assert told == []


@pytest.mark.parametrize("value", [HUGE, -HUGE, 5e-324, 0.0, -0.0])
@pytest.mark.parametrize(
    "formula",
    [
        "y ~ x",
        "y ~ I(x ** 2) + np.exp(x / 70)",
        "np.log(y + 2) ~ np.sqrt(x)",
        "y ~ bs(x, knots=[20], lower_bound=0, upper_bound=64)",
        "y ~ cr(x, knots=[20], lower_bound=0, upper_bound=64):x",
    ],
)
def test_rows_far_outside_their_bounds_neither_warn_nor_raise(formula, value):
    schema = pi.Schema({"x": (LOW, 64.0), "y": (-1.0, 1.0)})
    table, _ = neighbours(Candidate("x", 3.0))
    table.loc[0, ["x", "y"]] = value
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for trust in ("central", "local"):
            release = pi.Moments(schema, formula, trust=trust, radius=1.5).release(table, mu=1.0, rng=0)
            assert np.isfinite(release.arrays["moments"]).all()


def test_public_columns_outside_their_bounds_stay_finite():
    schema = pi.Schema({"x": (1.0, 4.0), "y": (-1.0, 1.0), "z": (0.0, 1.0)}, public=["x"])
    design = pi.Design.from_formula("y ~ np.log(x) + z", schema)
    table = pd.DataFrame({"x": [-3.0, 2.0, 9.0], "y": 0.0, "z": 0.5})
    logs = design.matrix(table)[:, design.names.index("np.log(x)")]
    np.testing.assert_allclose(logs, np.log([1.0, 2.0, 9.0]))


def test_a_public_response_without_bounds_is_refused_by_name_only():
    schema = pi.Schema({"x": (1.0, 4.0)})
    design = pi.Design.from_formula("np.log(w) ~ x", schema, response="public")
    with pytest.raises(SchemaError, match="infinite or undefined in some rows"):
        design.response_values(pd.DataFrame({"x": [1.0, 2.0], "w": [-1.0, 1.0]}))


def test_ends_are_computed_as_rows_are_and_round_outward():
    bounds = Interval(0.1, 0.7)
    for source in ("np.exp(x)", "np.log(x)", "x ** 1.7", "np.log1p(x)"):
        found = expressions.interval(source, lambda _: bounds)
        ends = expressions.values(source, lambda _: np.array([bounds.low, bounds.high]))
        assert found.low < ends.min() <= ends.max() < found.high


@pytest.mark.parametrize(
    ("source", "low", "high"),
    [
        ("np.log(x)", 0.0, None),
        ("np.sqrt(np.log(x))", 0.0, None),
        ("np.sqrt(64 - x)", 0.0, 63**0.5),
        ("np.sqrt(np.exp(x - 1) - 1)", 0.0, None),
        ("(np.exp(1 - x) - np.exp(-63)) ** 0.5", None, None),
    ],
)
def test_formulas_that_touch_the_edge_of_a_domain_still_work(source, low, high):
    bounds = Interval(1.0, 64.0)
    found = expressions.interval(source, lambda _: bounds)
    values = expressions.bounded(source, lambda _: Ranged.from_values(np.linspace(1.0, 64.0, 50), bounds))
    assert np.isfinite(values).all()
    assert low is None or found.low == low
    assert high is None or found.high == pytest.approx(high)


def test_what_is_not_a_number_becomes_a_public_one():
    found = Interval(-1.0, 2.0).inside(np.array([np.nan, np.inf, -np.inf, 0.5]))
    assert found.tolist() == [2.0, 2.0, -1.0, 0.5]


@pytest.mark.parametrize("source", ["x" + " ** 1" * 260, "-" * 260 + "x", "x + 1e999", "x * " + "9" * 400])
def test_expressions_that_would_take_long_or_overflow_are_refused(source):
    with pytest.raises(SchemaError):
        expressions.interval(source, lambda _: Interval(0.0, 1.0))


def test_nested_exponents_take_no_time():
    """Each level asked for the value of the next one twice: 2^100 of them."""
    found = expressions.interval("x" + " ** 1" * 100, lambda _: Interval(0.0, 2.0))
    assert (found.low, found.high) == (0.0, 2.0)


def test_binary_columns_are_columns_as_they_are():
    """A derived column declared binary would tell whether any row gives anything but 0 and 1."""
    schema = pi.Schema({"x": (0.0, 1.0), "y": [0, 1]})
    with pytest.raises(ArgumentError, match="must be a column of the data"):
        pi.LocalExamples(schema, "y ~ I(x ** 2)", binary=["I(x ** 2)"])


# ---- opening


def opened(table: pd.DataFrame, schema: pi.Schema) -> OpenedRows:
    return OpenedRows(Rows(table), schema)


def test_a_defective_column_is_publicly_unavailable_and_its_defect_is_the_holders():
    schema = pi.Schema({"x": (0.0, 1.0), "g": ["a", "b"], "y": (-1.0, 1.0), "z": (0.0, 1.0)})
    table = pd.DataFrame({"x": [0.1, np.nan], "g": ["a", "c"], "y": [0.0, 0.5]})
    rows = opened(table, schema)
    assert rows.unavailable == ("x", "g", "z")
    assert "missing values" in rows.defects["x"]
    assert rows.lacks(pi.Design.from_formula("y ~ x", schema)) == ("x",)
    with pytest.raises(SchemaError, match="'x' is available"):
        rows.matrix(pi.Design.from_formula("y ~ x", schema))


def test_opened_columns_give_every_design_of_theirs():
    schema = pi.Schema({"x": (0.0, 1.0), "y": (-1.0, 1.0)})
    table = pd.DataFrame({"x": [0.1, HUGE, -3.0], "y": [0.0, 0.5, 9.0]})
    rows = opened(table, schema)
    design = pi.Design.from_formula("I(y ** 2) ~ np.exp(x)", schema)
    np.testing.assert_array_equal(rows.matrix(design), design.matrix(table))
    np.testing.assert_array_equal(rows.response(design), [0.0, 0.25, 1.0])


def test_units_are_counted_when_rows_are_opened():
    schema = pi.Schema({"x": (0.0, 1.0)}, unit="who")
    with pytest.raises(SchemaError, match=r"'who' .*is not among"):
        opened(pd.DataFrame({"x": [0.1, 0.2]}), schema)
    from privinf.errors import AlignmentError

    with pytest.raises(AlignmentError, match="max_rows=1"):
        opened(pd.DataFrame({"x": [0.1, 0.2], "who": [7, 7]}), schema)


def test_matrices_are_opened_once_and_not_copied():
    design = pi.Design.from_arrays(["const", "x"], bounds=[(0, 1)], y_bounds=(-1, 1), public=["const"])
    X = np.column_stack([np.ones(3), [0.0, 0.5, 1.0]])
    rows = OpenedRows(Rows(X, np.zeros(3)), design)
    assert rows.matrix(design) is X
    assert rows.unavailable == ()
    with pytest.raises(SchemaError, match="'const' is declared as the constant"):
        OpenedRows(Rows(2.0 * X, np.zeros(3)), design)


@pytest.mark.parametrize(
    "knots",
    [
        "[0.5, 0.5000000001], lower_bound=0, upper_bound=1",
        "[0], lower_bound=-1e308, upper_bound=1e308",
        "[3e-300], lower_bound=0, upper_bound=5e-300",
    ],
)
@pytest.mark.parametrize("kind", ["bs", "cr"])
def test_knots_without_room_for_digits_are_refused(kind, knots):
    with pytest.raises(SchemaError, match=r"knots=? must"):
        pi.Design.from_formula(f"y ~ {kind}(x, knots={knots})", pi.Schema({"x": (0.0, 1.0), "y": (0.0, 1.0)}))
