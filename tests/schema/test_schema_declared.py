from __future__ import annotations

import copy
import json
import math
import pickle

import numpy as np
import pandas as pd
import pytest

from privinf.errors import PrivinfError, SchemaError
from privinf.schema import Factor, Numeric, Schema


@pytest.fixture
def schema() -> Schema:
    return Schema(
        {
            "y": (0, 10),
            "x": Numeric(-1.5, 2.5, unit="m", center=0.1, scale=3.0),
            "g": ["a", "b", "c"],
            "k": [1, 2, 5],
            "h": Factor((False, True), public=True),
            "age": (18, 90),
        },
        public=["age"],
        unit="person",
        max_rows=3,
    )


def test_declarations_are_normalised(schema):
    assert schema["y"] == Numeric(0.0, 10.0)
    assert schema["g"] == Factor(("a", "b", "c"))
    assert schema["k"].interval.low == 1.0
    assert schema["k"].interval.high == 5.0
    assert [schema[name].categorical for name in ("y", "g", "k", "h")] == [False, True, False, True]
    assert schema.public == ("h", "age")
    assert schema["age"].public
    assert "y" in schema
    assert "z" not in schema


@pytest.mark.parametrize(
    "bounds",
    [
        (1, 1),
        (2, 1),
        (0, math.inf),
        (-math.inf, 0),
        (math.nan, 1),
        (0, math.nan),
        (-1.7e308, 1.7e308),
        (0, 10**400),
    ],
)
def test_bad_bounds_name_the_column(bounds):
    with pytest.raises(SchemaError, match="'x'"):
        Schema({"x": bounds})


@pytest.mark.parametrize("bounds", [(True, False), ("1", 2), (None, 1), (1 + 0j, 2)])
def test_bounds_must_be_numbers(bounds):
    with pytest.raises(SchemaError, match="must be a number"):
        Numeric(*bounds)


@pytest.mark.parametrize(
    "levels", [["a"], [], ["a", "a"], ["a", 1], [1, True], [None, "a"], [1.0, math.nan], [1, 1.0], "ab", 5]
)
def test_bad_levels(levels):
    with pytest.raises(SchemaError):
        Factor(levels)


@pytest.mark.parametrize(
    ("columns", "options"),
    [
        ({}, {}),
        ([("x", (0, 1))], {}),
        ({1: (0, 1)}, {}),
        ({"": (0, 1)}, {}),
        ({"x": 3}, {}),
        ({"x": "ab"}, {}),
        ({"x": (0, 1)}, {"public": ["z"]}),
        ({"x": (0, 1)}, {"public": "x"}),
        ({"x": (0, 1)}, {"public": ["x", "x"]}),
        ({"x": (0, 1)}, {"max_rows": 2}),
        ({"x": (0, 1)}, {"unit": "id", "max_rows": 0}),
        ({"x": (0, 1)}, {"unit": "id", "max_rows": 1.5}),
        ({"x": (0, 1)}, {"unit": "x"}),
        ({"x": (0, 1)}, {"unit": 3}),
        ({"x": Numeric(0, 1, scale=2.0, center=0.0)}, {"public": ["x", 1]}),
    ],
)
def test_bad_schemas(columns, options):
    with pytest.raises(SchemaError):
        Schema(columns, **options)


@pytest.mark.parametrize("options", [{"scale": 0.0}, {"scale": -1}, {"center": math.nan}, {"public": "yes"}])
def test_bad_numeric_options(options):
    with pytest.raises(SchemaError):
        Numeric(0, 1, **options)


def test_numeric_options_are_keywords():
    with pytest.raises(TypeError):
        Numeric(0, 1, True)


def test_unknown_column_lists_the_known_ones(schema):
    with pytest.raises(SchemaError, match=r"'z'.*known columns: y, x, g"):
        schema["z"]


def test_round_trips_are_exact(schema):
    third = Schema({"x": Numeric(-1 / 3, 0.1 + 0.2, center=math.pi), "k": Factor([0.1, 1 / 7])})
    for item in (schema, third):
        text = json.dumps(item.to_dict(), allow_nan=False)
        for back in (
            Schema.from_dict(json.loads(text)),
            pickle.loads(pickle.dumps(item)),
            copy.deepcopy(item),
        ):
            assert back == item
            assert back.to_dict() == item.to_dict()
            assert back.digest == item.digest
            assert hash(back) == hash(item)


def test_digest_is_pinned_and_ignores_order():
    one = Schema({"x": (0, 1), "g": ["a", "b"]})
    two = Schema({"g": ["a", "b"], "x": (-0.0, 1.0)})
    assert one == two
    assert one.digest == two.digest
    assert one.digest == "046a9959bdbe7f8ec23b34a8120584d04cce5ead05e0f75c5b1beda4d996a0ab"


@pytest.mark.parametrize(
    "other",
    [
        Schema({"x": (0, 2), "g": ["a", "b"]}),
        Schema({"x": (0, 1), "g": ["b", "a"]}),
        Schema({"x": (0, 1), "g": ["a", "b"]}, public=["x"]),
        Schema({"x": (0, 1), "g": ["a", "b"]}, unit="id"),
        Schema({"x": Numeric(0, 1, center=0.5), "g": ["a", "b"]}),
    ],
)
def test_any_difference_changes_digest_and_equality(other):
    one = Schema({"x": (0, 1), "g": ["a", "b"]})
    assert one != other
    assert one.digest != other.digest


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"columns": []},
        {"columns": {"x": {"low": 0}}, "unit": None, "max_rows": 1},
        {"columns": {"x": 1}, "unit": None, "max_rows": 1},
        {"columns": {"x": {"low": 1, "high": 0}}, "unit": None, "max_rows": 1},
        {"columns": {"x": {"low": 0, "high": 1, "evil": 1}}, "unit": None, "max_rows": 1},
        None,
    ],
)
def test_foreign_content_is_a_schema_error(content):
    with pytest.raises(SchemaError):
        Schema.from_dict(content)


def test_schema_is_immutable(schema):
    with pytest.raises(AttributeError):
        schema.unit = None
    with pytest.raises(TypeError):
        schema.columns["x"] = Numeric(0, 1)


def test_frame_is_made_up_from_the_declarations(schema):
    frame = schema.frame()
    assert list(frame) == ["y", "x", "g", "k", "h", "age"]
    assert frame["x"].tolist() == [-1.5, 0.5, 2.5]
    assert isinstance(frame["g"].dtype, pd.CategoricalDtype)
    assert frame["g"].tolist() == ["a", "b", "c"]
    assert set(frame["k"]) == {1, 2, 5}
    assert schema.frame(["g"]).shape == (3, 1)
    many = Schema({"g": [f"l{k}" for k in range(7)], "x": (0, 1)}).frame()
    assert len(many) == 7
    assert set(many["x"]) == {0.0, 0.5, 1.0}


def test_repr_is_a_table(schema):
    lines = repr(schema).splitlines()
    assert lines[0] == "Schema"
    assert any(line.startswith("x ") and "[-1.5, 2.5]" in line and line.endswith("m") for line in lines)
    assert any(line.startswith("age") and "in clear" in line for line in lines)
    assert "at most 3 row(s)" in lines[-1]
    assert lines[1].split()[-1] == "unit"
    assert repr(Schema({"x": (0, 1)})).splitlines()[1].split()[-1] != "unit"


def test_numpy_scalars_and_arrays_are_accepted():
    schema = Schema({"x": (np.float32(0), np.int64(2)), "k": np.array([1, 2]), "g": np.array(["u", "v"])})
    assert schema["x"] == Numeric(0.0, 2.0)
    assert schema["k"].levels == (1, 2)
    assert json.dumps(schema.to_dict())
    assert isinstance(schema["g"], Factor)


def test_errors_are_of_the_one_tree():
    assert issubclass(SchemaError, PrivinfError)
