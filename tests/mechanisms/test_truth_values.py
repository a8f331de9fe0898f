"""Columns of truth values, of whatever library, are numbers and levels in every entry point."""

import numpy as np
import pandas as pd
import pytest
from support.tables import of_library

import privinf as pi

SPEND = {"mu": 1.0, "rng": 0}
NUMBERS = pi.Schema({"y": (-3, 3), "b": (0, 1), "x": (-1, 1)})
LEVELS = pi.Schema({"y": (-3, 3), "b": [False, True], "x": (-1, 1)})
X_BOUNDS, Y_BOUNDS = [(0, 1), (-1, 1)], (-3, 3)


@pytest.fixture
def frame():
    rng = np.random.default_rng(0)
    return pd.DataFrame({"y": rng.normal(size=400), "b": rng.random(400) < 0.5, "x": rng.uniform(-1, 1, 400)})


def sites(data):
    halves = [data[:200], data[200:]]
    return [(half["y"], half[["b", "x"]]) for half in halves]


ENTRY_POINTS = {
    "a number of a formula": lambda d: pi.MomentOLS.from_formula("y ~ b + x", d, schema=NUMBERS).fit(**SPEND),
    "levels of a formula": lambda d: pi.MomentOLS.from_formula("y ~ C(b) + x", d, schema=LEVELS).fit(**SPEND),
    "columns of X": lambda d: pi.MomentOLS(d["y"], d[["b", "x"]], bounds=X_BOUNDS, y_bounds=Y_BOUNDS).fit(
        **SPEND
    ),
    "y": lambda d: pi.MomentOLS(d["b"], d[["x"]], bounds=[(-1, 1)], y_bounds=(0, 1)).fit(**SPEND),
    "sites": lambda d: pi.OLS.from_arrays(sites(d), bounds=X_BOUNDS, y_bounds=Y_BOUNDS).fit(**SPEND),
}


@pytest.mark.parametrize("entry_point", ENTRY_POINTS)
@pytest.mark.parametrize("dtype", ["boolean", "bool[pyarrow]"])
def test_truth_values_of_any_library_are_taken(dtype, entry_point, frame):
    of_library("pyarrow")
    made = [ENTRY_POINTS[entry_point](frame.astype({"b": one})).params for one in ("bool", dtype)]
    np.testing.assert_array_equal(*made)


@pytest.mark.parametrize("dtype", ["boolean", "bool[pyarrow]"])
def test_missing_truth_values_are_imputed(dtype, frame):
    of_library("pyarrow")
    gaps = frame["b"].astype(object).where(frame["x"] > -0.9)
    made = [
        pi.MomentOLS.from_formula("y ~ b + x", frame.assign(b=b), schema=NUMBERS, missing="impute-public")
        for b in (gaps.map({True: 1.0, False: 0.0}), gaps.astype(dtype))
    ]
    np.testing.assert_array_equal(*(model.fit(**SPEND).params for model in made))


@pytest.mark.parametrize("dtype", ["bool", "boolean", "bool[pyarrow]"])
def test_truth_values_are_numbers_of_a_blank_schema(dtype, frame):
    of_library("pyarrow")
    schema = pi.Schema.from_frame_names(frame.astype({"b": dtype}))
    assert schema.columns["b"].kind == "number"
    fit = pi.MomentOLS.from_formula("y ~ b + x", frame, schema=NUMBERS).fit(**SPEND)
    np.testing.assert_array_equal(fit.predict(frame[:5].astype({"b": dtype})), fit.predict(frame[:5]))
