from __future__ import annotations

import time

import numpy as np
import pandas as pd
import pytest
from support.speed import slowness

import privinf as pi
from privinf.errors import ArgumentError, SchemaError
from privinf.schema import Design, Schema

SECRET = 987654.321


@pytest.fixture(scope="module")
def schema() -> Schema:
    return Schema(
        {"y": (0, 10), "x": (1, 3), "z": (-1, 4), "g": ["a", "b", "c"], "k": [1, 2, 5], "w": (0, 1)},
        public=["w"],
    )


def rows(**changes):
    base = {
        "y": [1.0, 2.0, 3.0],
        "x": [1.0, 2.0, 3.0],
        "z": [0.0, 1.0, 2.0],
        "g": ["a", "b", "c"],
        "k": [1, 2, 5],
        "w": [0.0, 0.5, 1.0],
    }
    return {**base, **changes}


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("x", ["1", "2", "3"]),
        ("x", [1.0, "2", 3.0]),
        ("x", [str(SECRET)] * 3),
        ("x", [1.0, 2.0, np.nan]),
        ("x", [1.0, None, 3.0]),
        ("x", [1.0, 2.0, np.inf]),
        ("x", [1.0, 2.0, -np.inf]),
        ("x", np.array([1, 2, 3], dtype="datetime64[D]")),
        ("x", [1 + 0j, 2, 3]),
        ("x", [[1, 2], [3, 4], [5, 6]]),
        ("x", [10**400, 1, 2]),
        ("x", pd.Categorical(["u", "v", "u"])),
        ("x", np.ones((3, 2))),
        ("g", ["a", "b", f"{SECRET}"]),
        ("g", ["a", "b", None]),
        ("g", [1, 2, 3]),
        ("g", [["a"], ["b"], ["c"]]),
        ("g", pd.Categorical(["a", "b", "zz"])),
        ("k", [1, 2, 3]),
        ("k", [1.5, 2, 5]),
        ("k", ["1", "2", "5"]),
        ("k", [1, 2, np.nan]),
        ("k", [1, 2, SECRET]),
    ],
)
def test_bad_columns_are_named_and_values_never_shown(schema, column, values):
    design = Design.from_formula("y ~ x + g + k", schema)
    with pytest.raises(SchemaError, match=f"'{column}'") as caught:
        design.matrix(rows(**{column: values}))
    assert str(SECRET) not in str(caught.value)
    assert "zz" not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize("values", [[1.0, 2.0, np.nan], [1.0, np.inf, 2.0], ["a", "b", "c"]])
def test_bad_responses_are_named(schema, values):
    for formula in ("y ~ x", "np.log1p(y) ~ x"):
        with pytest.raises(SchemaError, match="'y'"):
            Design.from_formula(formula, schema).response_values(rows(y=values))


def test_missing_values_are_imputed_from_the_schema(schema):
    gaps = rows(x=[np.nan, 2.0, 3.0], g=[None, "b", "c"], k=[1, np.nan, 5], y=[1.0, np.nan, 3.0])
    design = Design.from_formula("y ~ x + g + k + C(k) + I(x ** 2)", schema)
    found = pd.DataFrame(design.matrix(gaps, "impute-public"), columns=design.names)
    assert found["x"].tolist() == [2.0, 2.0, 3.0]
    assert found["I(x ** 2)"].tolist() == [4.0, 4.0, 9.0]
    assert found[["g[T.b]", "g[T.c]"]].iloc[0].tolist() == [0.0, 0.0]
    assert found["k"].tolist() == [1.0, 1.0, 5.0]
    assert found["C(k)[T.2]"].tolist() == [0.0, 0.0, 0.0]
    assert design.response_values(gaps, "impute-public").tolist() == [1.0, 5.0, 3.0]
    with pytest.raises(SchemaError, match="infinite"):
        design.matrix(rows(x=[np.inf, 2.0, 3.0]), "impute-public")
    with pytest.raises(ArgumentError, match="missing"):
        design.matrix(gaps, "drop")


def test_a_clear_undeclared_response_has_nothing_to_impute_from(schema):
    design = Design.from_formula("q ~ x", schema, response="public")
    with pytest.raises(SchemaError, match=r"'q'.*without declared bounds"):
        design.response_values(rows(q=[1.0, np.nan, 2.0]), "impute-public")


def test_plain_columns_pass_and_derived_ones_are_clipped(schema):
    wild = rows(x=[-5.0, 2.0, 99.0], z=[-9.0, 0.0, 9.0], y=[-1.0, 5.0, 20.0])
    design = Design.from_formula("y ~ x + np.log(x) + x:z + x:g + x:w", schema)
    found = pd.DataFrame(design.matrix(wild), columns=design.names)
    assert found["x"].tolist() == [-5.0, 2.0, 99.0]
    np.testing.assert_allclose(found["np.log(x)"], np.log([1, 2, 3]), rtol=1e-15)
    assert found["x:z"].tolist() == [-1.0, 0.0, 12.0]
    assert found["x:g[T.c]"].tolist() == [0.0, 0.0, 3.0]
    assert found["x:w"].tolist() == [0.0, 1.0, 3.0]
    assert Design.from_formula("y ~ x", schema).response_values(wild).tolist() == [-1.0, 5.0, 20.0]
    logged = Design.from_formula("np.log1p(y) ~ x", schema).response_values(wild)
    np.testing.assert_allclose(logged, np.log1p([0, 5, 10]), rtol=1e-15)


def test_prediction_extrapolates(schema):
    wild = rows(x=[5.0, 2.0, 99.0], z=[-9.0, 0.0, 9.0])
    design = Design.from_formula("y ~ x:z + np.log(x)", schema)
    found = pd.DataFrame(design.matrix(wild, extrapolate=True), columns=design.names)
    assert found["x:z"].tolist() == [-45.0, 0.0, 891.0]
    np.testing.assert_allclose(found["np.log(x)"], np.log([5, 2, 99]), rtol=1e-15)
    with pytest.raises(SchemaError, match=r"np\.log"):
        design.matrix(rows(x=[-1.0, 2.0, 3.0]), extrapolate=True)


def test_public_columns_are_not_clipped(schema):
    design = Design.from_formula("y ~ w + I(w ** 2) + x", schema)
    found = pd.DataFrame(design.matrix(rows(w=[-2.0, 0.5, 3.0])), columns=design.names)
    assert found["w"].tolist() == [-2.0, 0.5, 3.0]
    assert found["I(w ** 2)"].tolist() == [4.0, 0.25, 9.0]


@pytest.mark.parametrize(
    "table",
    [
        np.ones((3, 3)),
        [1, 2, 3],
        None,
        "text",
        {"y": [1.0], "x": [1.0, 2.0]},
        {"y": [1.0]},
        pd.DataFrame([[1.0, 2.0, 3.0]], columns=["y", "x", "x"]),
    ],
)
def test_tables_that_do_not_fit(schema, table):
    with pytest.raises(SchemaError):
        Design.from_formula("y ~ x", schema).matrix(table)


def test_absent_columns_are_listed(schema):
    with pytest.raises(SchemaError, match="lack the columns 'g', 'x'"):
        Design.from_formula("y ~ x + z + g", schema).matrix({"z": [1.0]})


@pytest.mark.parametrize(
    "convert",
    [
        lambda frame: frame,
        lambda frame: {name: frame[name].to_numpy() for name in frame},
        lambda frame: {name: frame[name].tolist() for name in frame},
        lambda frame: frame.astype({"x": "float32", "z": "Float64", "k": "Int64", "g": "category"}),
        lambda frame: frame.astype({"x": object, "g": object, "k": object}),
        lambda frame: frame.astype({"k": float}),
        lambda frame: frame.astype({"k": "category"}),
        lambda frame: frame.set_index(pd.Index([7, 7, 7])),
        lambda frame: frame.assign(g=pd.Categorical(frame["g"], categories=["c", "unused", "b", "a"])),
        lambda frame: pytest.importorskip("pyarrow").Table.from_pandas(frame),
    ],
)
def test_every_kind_of_table_gives_the_same_matrix(schema, convert):
    design = Design.from_formula("y ~ x + z + g + k + C(k)", schema)
    frame = pd.DataFrame(rows())
    frame["x"] = [1.0, 2.5, 3.0]  # exact in float32
    expected = design.matrix(frame)
    assert expected.shape == (3, 8)
    np.testing.assert_array_equal(design.matrix(convert(frame)), expected)
    np.testing.assert_array_equal(design.response_values(convert(frame)), [1.0, 2.0, 3.0])


def test_booleans_are_numbers_in_a_numeric_column(schema):
    found = Design.from_formula("y ~ w", schema).matrix(rows(w=[True, False, True]))
    assert found[:, 1].tolist() == [1.0, 0.0, 1.0]


def test_no_rows_and_intercept_only(schema):
    assert Design.from_formula("y ~ x + g", schema).matrix(pd.DataFrame({"x": [], "g": []})).shape == (0, 4)
    assert Design.from_formula("y ~ 1", schema).matrix(rows()).tolist() == [[1.0]] * 3


def test_results_are_fresh_arrays(schema):
    frame = pd.DataFrame(rows())
    design = Design.from_formula("y ~ x", schema)
    matrix, response = design.matrix(frame), design.response_values(frame)
    matrix[:] = 0.0
    response[:] = 0.0
    assert frame["x"].tolist() == [1.0, 2.0, 3.0]
    assert frame["y"].tolist() == [1.0, 2.0, 3.0]


def test_arrays_by_position_and_frames_by_name():
    design = Design.from_arrays(["a", "b"], bounds=[(0, 1), (0, 2)], y_bounds=(0, 1))
    array = np.array([[0.25, 1.0], [0.5, 2.0]])
    np.testing.assert_array_equal(design.matrix(array), array)
    frame = pd.DataFrame(array[:, ::-1], columns=["b", "a"])
    np.testing.assert_array_equal(design.matrix(frame), array)
    assert design.response_values(np.array([0.5, 0.1])).tolist() == [0.5, 0.1]
    assert design.response_values({"y": [0.5]}).tolist() == [0.5]
    for wrong in (array[:, :1], array[0], np.zeros((2, 3))):
        with pytest.raises(SchemaError, match="shape"):
            design.matrix(wrong)


def test_missing_values_of_arrays():
    gaps = np.array([[np.nan, 1.0], [0.5, 2.0]])
    boxed = Design.from_arrays(["a", "b"], bounds=[(0, 1), (0, 2)], y_bounds=(0, 4))
    with pytest.raises(SchemaError, match="'a'"):
        boxed.matrix(gaps)
    assert boxed.matrix(gaps, "impute-public")[0, 0] == 0.5
    assert boxed.response_values(np.array([np.nan, 1.0]), "impute-public")[0] == 2.0
    ball = Design.from_arrays(["a", "b"], radius=1.0)
    assert ball.matrix(gaps, "impute-public")[0, 0] == 0.0
    clear = Design.from_arrays(["a", "b"], radius=1.0, public=["a"])
    with pytest.raises(SchemaError, match=r"'a'.*without declared bounds"):
        clear.matrix(gaps, "impute-public")


@pytest.mark.timing
def test_a_million_rows_take_well_under_a_second():
    names = [f"x{k}" for k in range(5)]
    design = Design.from_formula(
        "y ~ " + " + ".join(names), Schema({"y": (0, 1)} | dict.fromkeys(names, (0, 1)))
    )
    frame = pd.DataFrame(np.random.default_rng(0).random((1_000_000, 5)), columns=names)
    start = time.process_time()
    design.matrix(frame)
    assert time.process_time() - start < 0.8 * slowness()


def test_a_wrong_number_of_bounds_is_answered_with_the_numbers_that_are_right():
    y, X = np.zeros(9), np.zeros((9, 3))
    with pytest.raises(
        SchemaError, match=r"length 2: pass one pair \(low, high\) for each column \(3 pairs\)$"
    ):
        pi.MomentOLS(y, X, bounds=[(0, 1)] * 2, y_bounds=(0, 1))
    with pytest.raises(SchemaError, match=r"\(3 pairs\), or for each private column only \(2 pairs\)$"):
        pi.MomentOLS(y, X, bounds=[(0, 1)], y_bounds=(0, 1), public=[0])
