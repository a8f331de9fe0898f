from __future__ import annotations

import copy
import json
import pickle
from dataclasses import FrozenInstanceError

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf
from hypothesis import given, settings
from hypothesis import strategies as st

from privinf.errors import ArgumentError, SchemaError, SensitivityError
from privinf.schema import Design, Numeric, Schema, add_constant
from privinf.schema.formulas import formula_columns


@pytest.fixture(scope="module")
def schema() -> Schema:
    return Schema(
        {"y": (-3, 7), "x": (1, 4), "z": (-0.1, 0.3), "g": ["a", "b", "c"], "w": Numeric(0, 1, public=True)}
    )


DESIGNS = [
    lambda schema: Design.from_formula("y ~ x + z + g + w", schema),
    lambda schema: Design.from_formula("y ~ 0 + x:z + g", schema, radius=1.5),
    lambda schema: Design.from_formula(
        "np.exp(y) ~ np.log(x) * g + bs(x, knots=[2], lower_bound=1, upper_bound=4)", schema
    ),
    lambda schema: Design.from_formula(
        "q ~ cr(x, knots=[2, 3], lower_bound=1, upper_bound=4)", schema, response="public"
    ),
    lambda schema: Design.from_arrays(["a", "const"], radius=1 / 3, public=["const"]),
    lambda schema: Design.from_arrays(["a", "b"], bounds={"a": (0, 0.1), "b": (-1 / 3, 1)}, y_bounds=(0, 1)),
]


def test_the_removed_method_of_a_schema_names_what_replaces_it(schema):
    with pytest.raises(AttributeError, match=r"use privinf\.Design\.from_formula\(formula, schema\)"):
        schema.design("y ~ x")
    with pytest.raises(AttributeError, match=r"^'Schema' object has no attribute 'levels'$"):
        schema.levels
    assert not hasattr(schema, "design")
    assert "design" not in dir(schema)
    for back in (pickle.loads(pickle.dumps(schema)), copy.copy(schema), copy.deepcopy(schema)):
        assert back == schema


def test_a_design_is_made_of_a_formulas_columns(schema):
    coded = formula_columns("y ~ x + w + g + x:w", schema, response_public=False)
    design = Design.from_formula("y ~ x + w + g + x:w", schema)
    assert coded.names == design.names
    assert coded.intercept == design.constant == 0
    assert coded.private == tuple(design.private)
    assert [(one.low, one.high) for one in coded.bounds] == list(zip(design.low, design.high, strict=True))
    assert coded.exclusive == design.blocks == ((1, 2),)
    assert coded.response == design.outcome
    assert design.terms == dict(zip(design.names, ("Intercept", "g", "g", "x", "w", "x:w"), strict=True))
    with pytest.raises(FrozenInstanceError):
        coded.formula = "y ~ x"
    with pytest.raises(SchemaError, match="both the response and a regressor"):
        Design.from_formula("y ~ x + y", schema)
    assert formula_columns("y ~ x + y", schema, response_public=False).names[-1] == "y"


@pytest.mark.parametrize("wrong", [{"y": (-3, 7), "x": (1, 4)}, "y ~ x", None])
def test_a_formula_needs_a_schema(wrong):
    with pytest.raises(ArgumentError, match=r"schema= must be a privinf\.Schema"):
        Design.from_formula("y ~ x", wrong)


def test_a_design_of_arrays_has_no_terms():
    with pytest.raises(SchemaError, match="not from a formula"):
        Design.from_arrays(["a"], bounds=[(0, 1)]).terms


@pytest.mark.parametrize("make", DESIGNS)
def test_round_trips_are_exact(schema, make):
    design = make(schema)
    text = json.dumps(design.to_dict(), allow_nan=False)
    copies = (
        Design.from_dict(json.loads(text)),
        Design.from_dict(json.loads(json.dumps(design.to_dict(), sort_keys=True))),
        pickle.loads(pickle.dumps(design)),
        copy.deepcopy(design),
    )
    for back in copies:
        assert back == design
        assert back.to_dict() == design.to_dict()
        assert back.digest == design.digest
        assert hash(back) == hash(design)
        for name in ("private", "low", "high", "center", "scale"):
            np.testing.assert_array_equal(getattr(back, name), getattr(design, name))
            assert not getattr(back, name).flags.writeable
        for name in ("names", "constant", "blocks", "radius", "diameter", "norm", "y_center", "y_scale"):
            assert getattr(back, name) == getattr(design, name)


def test_designs_differ_in_digest(schema):
    designs = [make(schema) for make in DESIGNS]
    designs += [
        Design.from_formula("y ~ x", schema),
        Design.from_formula("y ~ x", schema, radius=1.0),
        Design.from_formula("y ~ x", schema, response="public"),
        Design.from_formula("y ~ 0 + x", schema),
        Design.from_formula("y ~ x", Schema({"y": (-3, 7), "x": (1, 5)})),
        Design.from_arrays(["a"], bounds=[(0, 1)]),
        Design.from_arrays(["a"], bounds=[(0, 2)]),
        Design.from_arrays(["a"], bounds=[(0, 1)], y_bounds=(0, 1)),
        Design.from_arrays(["a"], bounds=[(0, 1)], y_bounds=(0, 2)),
    ]
    assert len({design.digest for design in designs}) == len(designs)
    assert all(one != other for i, one in enumerate(designs) for other in designs[:i])
    assert designs[0] != "design"


def test_digest_does_not_depend_on_the_last_bit_of_a_logarithm(schema):
    design = Design.from_formula("np.exp(y) ~ np.log(x) + np.exp(z)", schema)
    content = design.to_dict()
    content["high"][1] = float(np.nextafter(content["high"][1], np.inf))
    content["outcome"]["bounds"][1] = float(np.nextafter(content["outcome"]["bounds"][1], np.inf))
    nudged = Design.from_dict(content)
    assert nudged.digest == design.digest
    assert nudged.high[1] > design.high[1]
    arrays = Design.from_arrays(["a"], bounds=[(0, 1)])
    assert arrays.digest != Design.from_arrays(["a"], bounds=[(0, np.nextafter(1, 2))]).digest


def tampered(content, path, value):
    content = copy.deepcopy(content)
    *inner, last = path
    target = content
    for key in inner:
        target = target[key]
    target[last] = value
    return content


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("format",), 2),
        (("private",), [False] * 6),
        (("private", 5), True),
        (("low", 3), 1.5),
        (("high", 3), 3.0),
        (("high", 3), None),
        (("low", 3), "one"),
        (("blocks",), [[1, 2, 3]]),
        (("blocks",), [[1, 2], [2]]),
        (("blocks",), [[0, 1]]),
        (("blocks",), [[1, 9]]),
        (("constant",), 3),
        (("constant",), 5),
        (("constant",), "0"),
        (("constant",), -1),
        (("radius",), -1.0),
        (("outcome", "bounds"), None),
        (("outcome", "bounds"), [0.0, 1.0]),
        (("outcome", "bounds"), [7.0, -3.0]),
        (("outcome", "bounds"), ["a", "b"]),
        (("outcome", "column", "pieces", 0), {"expression": "__import__('os')"}),
        (("columns", 3, "pieces", 0), {"column": "nope"}),
        (("columns", 3, "pieces", 0), {"evil": 1}),
        (("columns", 1, "pieces", 0, "level"), "zz"),
        (("columns",), []),
        (("columns", 4, "name"), "x"),
        (("schema",), {}),
        (("schema", "columns", "x", "high"), 9.0),
    ],
)
def test_a_design_that_arrives_must_follow_from_its_schema(schema, path, value):
    content = Design.from_formula("y ~ x + z + g + w", schema).to_dict()
    assert [column["name"] for column in content["columns"]] == [
        "Intercept",
        "g[T.b]",
        "g[T.c]",
        "x",
        "z",
        "w",
    ]
    Design.from_dict(copy.deepcopy(content))
    with pytest.raises((SchemaError, SensitivityError, ArgumentError)):
        Design.from_dict(tampered(content, path, value))


@pytest.mark.parametrize("content", [None, {}, [], {"format": 1}, "design"])
def test_foreign_content(content):
    with pytest.raises(SchemaError, match="does not describe a design"):
        Design.from_dict(content)


@pytest.mark.parametrize("make", DESIGNS)
def test_to_user_inverts_the_scaling(schema, make):
    """The scaled and the user-unit linear predictor agree row by row, for any coefficients."""
    design = make(schema)
    rng = np.random.default_rng(3)
    p = len(design.names)
    matrix = rng.normal(size=(50, p)) * 10
    if design.constant is not None:
        matrix[:, design.constant] = 1.0
    scaled = rng.normal(size=p)
    transform, shift = design.to_user
    user = transform @ scaled + shift
    predicted = design.y_center + design.y_scale * (((matrix - design.center) / design.scale) @ scaled)
    np.testing.assert_allclose(matrix @ user, predicted, rtol=1e-10, atol=1e-9)
    slopes = user[design.private]
    np.testing.assert_allclose(design.scaled_slopes(slopes), scaled[design.private], rtol=1e-12)


def test_scaled_least_squares_equals_statsmodels(schema):
    rng = np.random.default_rng(5)
    n = 300
    table = pd.DataFrame(
        {
            "x": rng.uniform(1, 4, n),
            "z": rng.uniform(-0.1, 0.3, n),
            "g": rng.choice(list("abc"), n),
            "w": rng.uniform(0, 1, n),
        }
    )
    table["y"] = table["x"] - 5 * table["z"] + rng.normal(size=n)
    for formula in ("y ~ x + z + g + w", "y ~ 0 + x + z + w", "y ~ 0 + g + x"):
        design = Design.from_formula(formula, schema)
        scaled = (design.matrix(table) - design.center) / design.scale
        response = (design.response_values(table) - design.y_center) / design.y_scale
        transform, shift = design.to_user
        user = transform @ np.linalg.lstsq(scaled, response, rcond=None)[0] + shift
        expected = smf.ols(formula, table).fit().params
        assert tuple(expected.index) == design.names
        np.testing.assert_allclose(user, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("make", DESIGNS)
def test_frame_is_public_and_fits_the_design(schema, make):
    design = make(schema)
    frame = design.frame()
    matrix = design.matrix(frame)
    assert len(frame) >= 3
    assert matrix.shape == (len(frame), len(design.names))
    assert design.response_values(frame).shape == (len(frame),)
    if design.constant is not None:
        assert (matrix[:, design.constant] == 1.0).all()
    if design.schema is not None:
        bounds = np.array([design.low, design.high])
        assert (matrix >= bounds[0] - 1e-12).all()
        assert (matrix <= bounds[1] + 1e-12).all()


def test_arrays_bounds_in_every_form():
    names = ["a", "const", "b"]
    aligned = Design.from_arrays(names, bounds=[(0, 1), (2, 6)], public=["const"])
    full = Design.from_arrays(names, bounds=[(0, 1), (0, 2), (2, 6)], public=["const"])
    named = Design.from_arrays(names, bounds={"b": (2, 6), "a": (0, 1)}, public=("const",))
    for design in (aligned, full, named):
        assert design.constant == 1
        assert design.private.tolist() == [True, False, True]
        assert design.private_names == ("a", "b")
        assert design.center.tolist() == [0.5, 0.0, 4.0]
        assert design.scale.tolist() == [0.5, 1.0, 2.0]
        assert design.diameter == pytest.approx(2 * np.sqrt(2))
    assert aligned == named
    assert aligned.response_public
    array = Design.from_arrays(names, bounds=np.array([[0, 1], [2, 6]]), public=["const"])
    assert array == aligned


def test_arrays_radius_alone_neither_scales_nor_centres():
    design = Design.from_arrays(["const", "a", "b"], radius=0.5, public=["const"], y_bounds=(1, 3))
    assert design.center.tolist() == [0.0] * 3
    assert design.scale.tolist() == [1.0] * 3
    assert design.diameter == 1.0
    assert design.norm == 0.5
    assert design.box_diameter == np.inf
    assert (design.y_center, design.y_scale) == (2.0, 1.0)


def test_arrays_both_take_the_smaller():
    loose = Design.from_arrays(["a", "b"], bounds=[(-1, 1)] * 2, radius=10.0)
    tight = Design.from_arrays(["a", "b"], bounds=[(-2, 2)] * 2, radius=0.5)
    assert loose.diameter == pytest.approx(2 * np.sqrt(2))
    assert tight.diameter == 1.0
    assert tight.scale.tolist() == [2.0, 2.0]


def test_arrays_without_constant_divide_by_the_largest_size():
    design = Design.from_arrays(["a"], bounds=[(-1, 3)], y_bounds=(-4, 2))
    assert design.center.tolist() == [0.0]
    assert design.scale.tolist() == [3.0]
    assert design.diameter == pytest.approx(4 / 3)
    assert (design.y_center, design.y_scale, design.y_norm) == (0.0, 4.0, 1.0)
    assert design.y_diameter == 1.5


def test_the_constant_is_declared_never_guessed():
    assert Design.from_arrays(["const"], radius=1.0).constant is None
    assert Design.from_arrays(["one", "a"], radius=1.0, public=["one"]).constant is None
    assert Design.from_arrays(["one", "a"], radius=1.0, public=["one"], constant=0).constant == 0
    for constant in (1, 2, -1):
        with pytest.raises(SchemaError, match="declared public"):
            Design.from_arrays(["one", "a"], radius=1.0, public=["one"], constant=constant)
    with pytest.raises(ArgumentError):
        Design.from_arrays(["one", "a"], radius=1.0, public=["one"], constant=True)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({}, SensitivityError, "'a'.*bounds= or radius=, or pass bounds='data'"),
        ({"bounds": {"a": (0, 1)}}, SensitivityError, "'b'"),
        ({"bounds": {"a": (0, 1)}, "radius": 1.0}, SensitivityError, "'b'"),
        ({"bounds": {"a": (0, 1), "b": (0, 1), "c": (0, 1)}}, SchemaError, "'c'"),
        ({"bounds": [(0, 1)]}, SchemaError, "length 1"),
        ({"bounds": [(0, 1)] * 3}, SchemaError, "length 3"),
        ({"bounds": [(0, 1), (1, 0)]}, SchemaError, "'b'.*increasing"),
        ({"bounds": [(0, 1), (1, 1)]}, SchemaError, "'b'"),
        ({"bounds": [(0, 1), (0, np.inf)]}, SchemaError, "'b'.*finite"),
        ({"bounds": [(0, 1), (np.nan, 1)]}, SchemaError, "'b'.*finite"),
        ({"bounds": [(0, 1), (0, 1, 2)]}, SchemaError, "'b'.*pair"),
        ({"bounds": [(0, 1), 5]}, SchemaError, "'b'.*pair"),
        ({"bounds": 5}, SchemaError, "pairs"),
        ({"bounds": "data"}, ArgumentError, "model"),
        ({"radius": 0.0}, ArgumentError, "radius"),
        ({"radius": np.nan}, ArgumentError, "radius"),
        ({"radius": np.inf}, ArgumentError, "radius"),
        ({"radius": 1.0, "public": ["zz"]}, SchemaError, "'zz'"),
        ({"radius": 1.0, "public": "a"}, SchemaError, "list"),
        ({"radius": 1.0, "y_bounds": (1, 0)}, SchemaError, "'y'"),
        ({"radius": 1.0, "y_bounds": (0, np.inf)}, SchemaError, "'y'"),
    ],
)
def test_arrays_bad_arguments(options, error, words):
    with pytest.raises(error, match=words):
        Design.from_arrays(["a", "b"], **options)


@pytest.mark.parametrize("names", [[], ["a", "a"], ["a", 1], ["a", ""], "ab"])
def test_arrays_bad_names(names):
    with pytest.raises(SchemaError):
        Design.from_arrays(names, radius=1.0)


def test_public_columns_alone_have_no_sensitivity():
    design = Design.from_arrays(["const", "w"], public=["const", "w"])
    assert design.diameter == 0.0
    assert design.norm == 0.0
    with pytest.raises(SensitivityError, match="without protection"):
        design.y_diameter
    with pytest.raises(SensitivityError, match="without protection"):
        design.y_norm


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(-1e3, 1e3), st.floats(1e-3, 1e3)).map(lambda t: (t[0], t[0] + t[1])),
        min_size=1,
        max_size=5,
    ),
    st.booleans(),
)
def test_scaled_bounds_lie_in_the_unit_box(pairs, constant):
    names = [f"x{k}" for k in range(len(pairs))]
    extra = {"public": ["const"]} if constant else {}
    design = Design.from_arrays(
        [*names, *extra.get("public", [])], bounds=dict(zip(names, pairs, strict=True)), **extra
    )
    low, high = design.scaled_low[design.private], design.scaled_high[design.private]
    assert (np.maximum(np.abs(low), np.abs(high)) <= 1 + 1e-9).all()
    assert design.diameter == pytest.approx(np.linalg.norm(high - low))
    assert design.norm <= np.sqrt(len(pairs)) * (1 + 1e-9)
    assert design.diameter <= 2 * design.norm * (1 + 1e-9)


def test_designs_are_immutable(schema):
    design = Design.from_formula("y ~ x", schema)
    with pytest.raises(AttributeError):
        design.radius = 1.0
    with pytest.raises(ValueError, match="read-only"):
        design.low[0] = 0.0


def test_repr_is_short(schema):
    assert repr(Design.from_formula("y ~ x + w", schema)) == "Design('y ~ x + w': 3 columns, 1 private)"
    assert "y ~ a + b" in repr(Design.from_arrays(["a", "b"], radius=1.0))


def test_add_constant():
    frame = add_constant(np.zeros((3, 2)))
    assert list(frame) == ["const", "x1", "x2"]
    assert frame.attrs["privinf_public"] == ("const",)
    assert frame["const"].tolist() == [1.0] * 3
    assert list(add_constant(np.zeros(3), prepend=False)) == ["x1", "const"]
    source = pd.DataFrame({"a": [1.0]})
    source.attrs["privinf_public"] = ("a",)
    assert add_constant(source).attrs["privinf_public"] == ("a", "const")
    assert list(source) == ["a"]
    with pytest.raises(SchemaError, match="const"):
        add_constant(frame)
    with pytest.raises(SchemaError, match="dimensions"):
        add_constant(np.zeros((2, 2, 2)))
