from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from privinf.errors import SchemaError
from privinf.schema import Interval, expressions
from privinf.schema.intervals import FUNCTION_NAMES

ends = st.floats(-50, 50, allow_nan=False).map(lambda x: round(x, 3))
ranges = st.tuples(ends, ends).map(sorted).filter(lambda pair: pair[1] - pair[0] > 1e-3)


def leaves() -> st.SearchStrategy[str]:
    return st.one_of(st.sampled_from(["a", "b"]), st.sampled_from(["2", "0.5", "-1.5"]))


def grow(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    binary = st.tuples(inner, st.sampled_from("+-*/"), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})")
    power = st.tuples(inner, st.sampled_from(["2", "3", "-1", "0.5", "4", "1/3"])).map(
        lambda t: f"({t[0]}) ** ({t[1]})"
    )
    call = st.tuples(st.sampled_from(FUNCTION_NAMES), inner).map(lambda t: f"np.{t[0]}({t[1]})")
    return st.one_of(binary, power, call, inner.map(lambda t: f"-({t})"), inner.map(lambda t: f"I({t})"))


@pytest.mark.audit
@settings(max_examples=600, deadline=None)
@given(st.recursive(leaves(), grow, max_leaves=6), ranges, ranges, st.integers(0, 2**32 - 1))
@example("I((np.expm1(a)) ** (0.5))", [-1.0, 28.0], [0.0, 1.0], 0)
def test_interval_contains_every_value(source, first, second, seed):
    bounds = {"a": Interval(*first), "b": Interval(*second)}
    try:
        claimed = expressions.interval(source, bounds.__getitem__)
    except SchemaError:
        assume(False)
    rng = np.random.default_rng(seed)
    grid = {
        name: np.concatenate([[pair.low, pair.high, pair.middle], rng.uniform(pair.low, pair.high, 60)])
        for name, pair in bounds.items()
    }
    mesh = dict(zip("ab", map(np.ravel, np.meshgrid(grid["a"], grid["b"])), strict=True))
    found = expressions.values(source, mesh.__getitem__)
    slack = 1e-9 * max(claimed.largest, 1e-300)
    assert np.isfinite(found).all()
    assert found.min() >= claimed.low - slack
    assert found.max() <= claimed.high + slack


def test_what_is_negative_beside_large_values_is_no_rounding():
    with pytest.raises(SchemaError, match="negative"):
        expressions.interval("np.expm1(a) ** 0.5", {"a": Interval(-1.0, 28.0)}.__getitem__)


@pytest.mark.parametrize(
    ("source", "low", "high"),
    [
        ("a + b", -1.0, 7.0),
        ("a - b", -6.0, 2.0),
        ("a * b", -8.0, 12.0),
        ("a ** 2", 0.0, 9.0),
        ("a ** 3", -8.0, 27.0),
        ("(b + 1) ** -2", 1 / 25, 0.25),
        ("np.abs(a)", 0.0, 3.0),
        ("np.sqrt(b)", 1.0, 2.0),
        ("np.log(b)", 0.0, math.log(4.0)),
        ("1 / b", 0.25, 1.0),
        ("b ** 0.5", 1.0, 2.0),
        ("-a", -3.0, 2.0),
        ('Q("a") + 1', -1.0, 4.0),
        ("I(a)", -2.0, 3.0),
    ],
)
def test_interval_is_the_range(source, low, high):
    bounds = {"a": Interval(-2.0, 3.0), "b": Interval(1.0, 4.0)}
    found = expressions.interval(source, bounds.__getitem__)
    assert found.low == pytest.approx(low, rel=1e-15)
    assert found.high == pytest.approx(high, rel=1e-15)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("np.log(a)", "above 0"),
        ("np.sqrt(a)", "at least 0"),
        ("np.log1p(a)", "above -1"),
        ("1 / a", "zero"),
        ("a ** -1", "zero"),
        ("a ** 0.5", "fractional"),
        ("np.exp(a * 1000)", "finite"),
        ("a ** 1000", "finite"),
        ("a ** a", "exponent"),
        ("a ** np.log(-1)", "exponent"),
        ("9.0 ** 9.0 ** 9.0 * a", "exponent|overflow|finite"),
    ],
)
def test_unbounded_expressions_are_refused(source, reason):
    with pytest.raises(SchemaError, match=reason):
        expressions.interval(source, lambda _: Interval(-2.0, 3.0))


@pytest.mark.parametrize(
    "source",
    [
        "__import__('os')",
        "a.b",
        "a[0]",
        "a > 1 and a < 2",
        "a if b else a",
        "np.mean(a)",
        "np.log(a, b)",
        "np.log(a, out=b)",
        "lambda: a",
        "'text'",
        "True",
        "a // b",
        "os.log(a)",
        "1j * a",
        "[a]",
        "a +",
        "",
        "a" * 3000,
        "(" * 500 + "a" + ")" * 500,
    ],
)
def test_anything_outside_the_whitelist_is_refused(source):
    with pytest.raises(SchemaError):
        expressions.parse(source)


def test_inputs_are_listed_once_in_order():
    assert expressions.inputs('np.log(b) + a * b - Q("c d")') == ("b", "a", "c d")


def test_values_outside_a_domain_are_not_warnings():
    found = expressions.values("np.log(a) + 1 / a", lambda _: np.array([-1.0, 0.0, 1.0]))
    assert np.isnan(found[0])
    assert found[2] == 1.0


@pytest.mark.parametrize("pair", [(2.0, 1.0), (0.0, math.inf), (math.nan, 1.0)])
def test_interval_must_be_finite_and_ordered(pair):
    with pytest.raises(SchemaError):
        Interval(*pair)
