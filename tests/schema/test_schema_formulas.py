from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import patsy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privinf.errors import ArgumentError, SchemaError
from privinf.schema import Design, Numeric, Schema

N = 400


@pytest.fixture(scope="module")
def schema() -> Schema:
    return Schema(
        {
            "y": (0, 10),
            "x": (1, 3),
            "z": Numeric(-1, 4, center=1.5, scale=2.0),
            "g": ["a", "b", "c"],
            "h": [False, True],
            "k": [1, 2, 5],
            "w": Numeric(0, 1, public=True),
            "s": (-2, 2),
            "site": ["p", "q"],
            "odd name": (0, 1),
        },
        public=["site"],
    )


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "y": rng.uniform(0, 10, N),
            "x": rng.uniform(1, 3, N),
            "z": rng.uniform(-1, 4, N),
            "g": rng.choice(list("abc"), N),
            "h": rng.random(N) > 0.5,
            "k": rng.choice([1, 2, 5], N),
            "w": rng.uniform(0, 1, N),
            "s": rng.uniform(-2, 2, N),
            "site": rng.choice(["p", "q"], N),
            "odd name": rng.uniform(0, 1, N),
        }
    )


FORMULAS = [
    "y ~ 1",
    "y ~ x",
    "y ~ x - 1",
    "y ~ x + w + k",
    "y ~ x * z * g",
    "y ~ (x + z + s) ** 2",
    "y ~ 0 + g + x",
    "y ~ 0 + g:h",
    "y ~ g / x",
    "y ~ C(k) * g + w:x",
    "np.log1p(y) ~ np.log(x) + I(z ** 2) + np.exp(-z) + np.sqrt(x + 1)",
    "y ~ 1 + g:h",
    "y ~ g * h * x + site",
    "y ~ site * g",
    "y ~ C(g, Treatment('b')) + C(h)",
    "y ~ C(k, Treatment(reference=5)):x + C(k):g:h",
    "y ~ C(k, contrast=Treatment(2))",
    "y ~ C(g, Treatment)",
    "y ~ bs(x, knots=[2], lower_bound=1, upper_bound=3) * g",
    "y ~ bs(x, knots=(1.5, 2.2), degree=2, include_intercept=True, lower_bound=1, upper_bound=3) - 1",
    "y ~ 0 + cr(x, knots=[2, 2.5], lower_bound=1, upper_bound=3)",
    "y ~ x:w:g + k + Q('odd name') + I(Q('odd name') * 2)",
    "y ~ I(x / (z + 2)) + np.abs(s)",
]


@pytest.mark.parametrize("formula", FORMULAS)
def test_names_and_matrix_are_those_of_patsy(schema, table, formula):
    design = Design.from_formula(formula, schema)
    left, right = patsy.dmatrices(formula, table)
    assert list(design.names) == right.design_info.column_names
    assert design.response == left.design_info.column_names[0]
    found = design.matrix(table)
    np.testing.assert_allclose(found, np.asarray(right), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(design.response_values(table), np.asarray(left)[:, 0], rtol=1e-14)
    slack = 1e-12 * (1 + np.abs(design.high))
    assert (found >= design.low - slack).all()
    assert (found <= design.high + slack).all()


@pytest.mark.parametrize("formula", FORMULAS)
def test_bounds_diameter_and_norm_hold_for_all_rows(schema, table, formula):
    """Corners of the box, random rows: no pair is farther apart than the diameter says."""
    design = Design.from_formula(formula, schema)
    rng = np.random.default_rng(1)
    corners = table.copy()
    for name in ("x", "z", "s", "odd name"):
        item = schema[name]
        corners[name] = rng.choice([item.low, item.high], N)
    matrix = design.matrix(pd.concat([table, corners], ignore_index=True))
    scaled = ((matrix - design.center) / design.scale)[:, design.private]
    if not design.private.any():
        assert design.diameter == 0.0
        assert design.norm == 0.0
        return
    squares = (scaled**2).sum(axis=1)
    distance = squares[:, None] + squares[None, :] - 2 * scaled @ scaled.T
    assert np.sqrt(distance.max()) <= design.diameter * (1 + 1e-9)
    assert np.sqrt(squares.max()) <= design.norm * (1 + 1e-9)
    for block in design.blocks:
        assert (matrix[:, block].sum(axis=1) <= 1).all()


def test_private_mask_constant_and_blocks(schema):
    design = Design.from_formula("y ~ x + w + x:w + site + g + site:g + h", schema)
    private = dict(zip(design.names, design.private.tolist(), strict=True))
    assert design.constant == design.names.index("Intercept")
    assert {name for name, flag in private.items() if not flag} == {"Intercept", "site[T.q]", "w"}
    blocks = [{design.names[k] for k in block} for block in design.blocks]
    assert {"g[T.b]", "g[T.c]"} in blocks
    assert {"h[T.True]"} in blocks
    assert {"site[T.q]:g[T.b]", "site[T.q]:g[T.c]"} in blocks
    assert len(blocks) == 3


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        ("y ~ x", 2.0),
        ("y ~ x + z + s", 2 * np.sqrt(3)),
        ("y ~ g", np.sqrt(2)),
        ("y ~ h", 1.0),
        ("y ~ 0 + h", np.sqrt(2)),
        ("y ~ x + g + h + w", np.sqrt(4 + 2 + 1)),
        ("y ~ w + site", 0.0),
        ("y ~ 0 + x", 2 / 3),
        ("y ~ 0 + s", 2.0),
    ],
)
def test_diameters_of_the_methods_page(schema, formula, expected):
    assert Design.from_formula(formula, schema).diameter == pytest.approx(expected, rel=1e-14)


def test_center_and_scale_follow_the_constant(schema):
    with_constant = Design.from_formula("y ~ x + g + w", schema)
    assert with_constant.center.tolist() == [0.0, 0.0, 0.0, 2.0, 0.0]
    assert with_constant.scale.tolist() == [1.0, 1.0, 1.0, 1.0, 1.0]
    assert (with_constant.y_center, with_constant.y_scale) == (5.0, 5.0)
    without = Design.from_formula("y ~ 0 + x + z", schema)
    assert without.constant is None
    assert without.center.tolist() == [0.0, 0.0]
    assert without.scale.tolist() == [3.0, 4.0]
    assert (without.y_center, without.y_scale) == (0.0, 10.0)
    assert without.y_diameter == 1.0
    assert without.y_norm == 1.0


def test_radius_and_box_the_smaller_wins(schema):
    assert Design.from_formula("y ~ x + z", schema, radius=1.0).diameter == 2.0
    assert Design.from_formula("y ~ x + z", schema, radius=1.0).norm == 1.0
    assert Design.from_formula("y ~ x + z", schema, radius=5.0).diameter == pytest.approx(np.sqrt(8))
    assert Design.from_formula("y ~ x + z", schema, radius=5.0).norm == pytest.approx(np.sqrt(2))
    for bad in (0.0, -1.0, np.nan, np.inf, "1", True):
        with pytest.raises(ArgumentError):
            Design.from_formula("y ~ x", schema, radius=bad)


def test_center_and_standardize_use_the_declared_numbers(schema, table):
    design = Design.from_formula("y ~ center(z) + standardize(z) + scale(z) + np.exp(standardize(z))", schema)
    assert design.names[1:] == ("center(z)", "standardize(z)", "scale(z)", "np.exp(standardize(z))")
    z = table["z"].to_numpy()
    expected = [z - 1.5, (z - 1.5) / 2, (z - 1.5) / 2, np.exp((z - 1.5) / 2)]
    np.testing.assert_allclose(design.matrix(table)[:, 1:], np.array(expected).T, rtol=1e-14)
    assert (design.low[2], design.high[2]) == (-1.25, 1.25)


@pytest.mark.parametrize(
    ("formula", "words"),
    [
        ("y ~ center(x)", "center.*Numeric"),
        ("y ~ standardize(x)", "standardize.*scale="),
        ("y ~ scale(x)", "scale.*center="),
        ("y ~ np.exp(standardize(x))", "standardize"),
        ("y ~ standardize(z, ddof=1)", "standardize"),
        ("y ~ center(z + x)", "center"),
        ("y ~ bs(x, df=4)", "bs.*knots"),
        ("y ~ bs(x, knots=[2])", "bs.*lower_bound"),
        ("y ~ bs(x, df=5, knots=[2], lower_bound=1, upper_bound=3)", "df"),
        ("y ~ bs(x, knots=[2, 2], lower_bound=1, upper_bound=3)", "increasing"),
        ("y ~ bs(x, knots=[9], lower_bound=1, upper_bound=3)", "increasing"),
        ("y ~ bs(x, knots=[2], degree=2.5, lower_bound=1, upper_bound=3)", "degree"),
        ("y ~ bs(x, knots=['1.5'], lower_bound=1, upper_bound=3)", "must be a number"),
        ("y ~ bs(x, knots=[2], include_intercept=1, lower_bound=1, upper_bound=3)", "include_intercept"),
        ("y ~ bs(x, 4, [2], lower_bound=1, upper_bound=3)", "df"),
        ("y ~ bs(x, knots='ab', lower_bound=1, upper_bound=3)", "cannot be used"),
        ("y ~ bs(x, knots=[2], lower_bound=1, upper_bound=3, evil=1)", "evil"),
        ("y ~ bs(x + 1, knots=[2], lower_bound=1, upper_bound=3)", "column"),
        ("y ~ cr(x, df=4)", "cr.*knots"),
        ("y ~ cr(x, knots=[2], lower_bound=1, upper_bound=3, constraints='center')", "constraints"),
        ("y ~ cc(x, df=4)", "cc.*derived columns"),
        ("y ~ te(cr(x, df=3), cr(z, df=3))", "te"),
        ("y ~ poly(x)", "poly"),
        ("y ~ bs(g, knots=[2], lower_bound=1, upper_bound=3)", "'g'"),
        ("bs(y, knots=[2, 3], lower_bound=0, upper_bound=10) ~ x", "single numeric column"),
    ],
)
def test_transforms_that_would_learn_are_refused(schema, formula, words):
    with pytest.raises(SchemaError, match=words):
        Design.from_formula(formula, schema)


@pytest.mark.parametrize(
    ("formula", "words"),
    [
        ("y ~ nope", "'nope'.*known columns: y, x"),
        ("y ~ np.log(nope)", "'nope'"),
        ("y ~ C(nope)", "'nope'"),
        ("y ~ x:nope", "'nope'"),
        ("q ~ x", "'q'.*response='public'"),
        ("np.log(q) ~ x", "'q'"),
        ("np.log(y) ~ x", "above 0"),
        ("y ~ np.log(z)", "above 0"),
        ("y ~ I(1 / z)", "zero"),
        ("y ~ np.log(g)", "'g'"),
        ("y ~ C(x)", "'x'.*levels"),
        ("g ~ x", "'g'"),
        ("y ~ C(g, Diff)", "coding must be one of"),
        ("y ~ C(g, Poly())", "coding must be one of"),
        ("y ~ C(g, Treatment('zz'))", "declared levels"),
        ("y ~ C(g, order=['a', 'b', 'c'])", "C\\(column\\)"),
        ("y ~ C(np.log(x))", "C\\(column\\)"),
        ("y ~ C()", "C\\(column\\)"),
        ("y ~ I(x > 2 and z < 1)", "allowed expressions"),
        ("y ~ __import__('os').getcwd()", "allowed expressions"),
        ("y ~ np.mean(x)", "derived column"),
        ("y ~ I(0 * x)", "constant"),
        ("y ~ I(x ** 0)", "constant"),
        ("I(y * 0) ~ x", "constant"),
        ("~ x", "response"),
        ("x", "response"),
        ("y + z ~ x", "response"),
        ("y:z ~ x", "response"),
        ("y ~ 0", "no column"),
        ("y ~ x +", "read|expression"),
        ("y ~ (x", "read|expression"),
        ("y ~ x ~ z", "read"),
        ("", "read|response"),
    ],
)
def test_formulas_that_cannot_be_used(schema, formula, words):
    with pytest.raises(SchemaError, match=words):
        Design.from_formula(formula, schema)


@pytest.mark.parametrize("formula", [None, 3, ["y ~ x"]])
def test_formula_must_be_text(schema, formula):
    with pytest.raises(SchemaError, match="must be a string"):
        Design.from_formula(formula, schema)


def test_response_choices(schema, table):
    clear = Design.from_formula("q ~ x", schema, response="public")
    assert clear.response_public
    assert (clear.y_low, clear.y_high, clear.y_center, clear.y_scale) == (None, None, 0.0, 1.0)
    rows = table.assign(q=np.arange(N) * 1e6)
    assert clear.response_values(rows).tolist() == rows["q"].tolist()
    logged = Design.from_formula("np.log(q + 1) ~ x", schema, response="public")
    np.testing.assert_allclose(logged.response_values(rows), np.log(rows["q"] + 1))
    assert Design.from_formula("y ~ x", schema, response="public").response_public
    assert not Design.from_formula("y ~ x", schema).response_public
    assert Design.from_formula("w ~ x", schema).response_public  # declared public
    assert not Design.from_formula("I(w + y) ~ x", schema).response_public
    with pytest.raises(ArgumentError, match="'clear'"):
        Design.from_formula("y ~ x", schema, response="clear")


def test_response_bounds_by_interval_arithmetic(schema):
    design = Design.from_formula("np.log1p(y) ~ x", schema)
    assert (design.y_low, design.y_high) == (0.0, pytest.approx(np.log(11)))
    assert design.y_norm == pytest.approx(1.0)
    assert design.y_diameter == pytest.approx(2.0)


def test_no_formula_is_executed(schema, monkeypatch):
    """patsy is never asked to evaluate code: its evaluation entry points are mined."""

    def mined(*args, **kwargs):
        raise AssertionError("patsy evaluated the formula")

    monkeypatch.setattr(patsy.eval.EvalEnvironment, "eval", mined)
    monkeypatch.setattr(patsy.EvalFactor, "eval", mined)
    for formula in FORMULAS:
        Design.from_formula(formula, schema)


TOKENS = ["x", "z", "g", "k", "y", "~", "+", "-", ":", "*", "/", "**", "2", "0", "1", "(", ")", "I(", "C("]
TOKENS += [
    "np.log(",
    "Q('g')",
    "bs(x, knots=",
    "[",
    "]",
    ",",
    "'a'",
    "center(",
    "None",
    "$",
    "\\",
    "\n",
    "=",
    "%",
]


@pytest.mark.audit
@settings(max_examples=400, deadline=None)
@given(st.lists(st.sampled_from(TOKENS), min_size=1, max_size=8))
def test_any_text_gives_a_design_or_a_schema_error(schema, tokens):
    try:
        design = Design.from_formula("y ~ " + " ".join(tokens), schema)
    except SchemaError:
        return
    assert len(design.names) == design.matrix(design.frame()).shape[1]


@pytest.mark.parametrize("levels", [2, 3, 5])
def test_every_level_combination_is_coded_as_patsy_codes_it(levels):
    names = [f"l{k}" for k in range(levels)]
    schema = Schema({"y": (0, 1), "a": names, "b": names})
    pairs = list(itertools.product(names, names))
    rows = pd.DataFrame(pairs, columns=["a", "b"]).assign(y=0.5)
    for formula in ("y ~ a * b", "y ~ 0 + a:b", "y ~ a + a:b", "y ~ b:a"):
        expected = patsy.dmatrix(formula.split("~")[1], rows)
        np.testing.assert_array_equal(Design.from_formula(formula, schema).matrix(rows), np.asarray(expected))


def test_a_factor_in_c_as_the_response_names_what_to_write():
    schema = Schema({"smoker": ["no", "yes"], "g": list("abc"), "x": (0, 1)})
    with pytest.raises(SchemaError, match="write 'smoker', a factor whose second level, 'yes', counts as 1"):
        Design.from_formula("C(smoker) ~ x", schema)
    for formula in ("C(g) ~ x", "g ~ x"):
        with pytest.raises(SchemaError, match="add a column of 0 and 1 to the data"):
            Design.from_formula(formula, schema)
