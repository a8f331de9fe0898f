"""Predictions of rows that the fit could not see warn, name the column, and show no value."""

import warnings

import numpy as np
import pandas as pd
import pytest

import privinf as pi
from privinf.errors import ExtrapolationWarning

RNG = np.random.default_rng(0)
ROWS = pd.DataFrame({"x": RNG.uniform(0, 10, 3000), "z": RNG.uniform(0, 1, 3000)})
ROWS["y"] = np.sin(ROWS.x) + ROWS.z
SCHEMA = pi.Schema({"x": (0, 10), "z": (0, 1), "y": (-3, 3)})
SPEND = {"epsilon": 50.0, "delta": 1e-6, "rng": 0}
BS = "y ~ bs(x, knots=(4,), lower_bound=1, upper_bound=8) + z"
CR = "y ~ cr(x, knots=(4,), lower_bound=1, upper_bound=8) + z"


def fitted(formula, schema=SCHEMA):
    return pi.MomentOLS.from_formula(formula, ROWS, schema=schema).fit(**SPEND)


def told(predict, rows):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        predict(rows)
    return [str(one.message) for one in found if issubclass(one.category, ExtrapolationWarning)]


@pytest.mark.parametrize("formula", [BS, CR, f"{BS} + z:bs(x, knots=(4,), lower_bound=1, upper_bound=8)"])
def test_beyond_a_splines_knots_predictions_are_flat_and_say_so(formula):
    r = fitted(formula)
    beyond = pd.DataFrame({"x": [8.0, 9.0, 9.5], "z": 0.5})
    for predict in (r.predict, r.get_prediction):
        (text,) = told(predict, beyond)
        assert "'x' has values beyond the boundary knots of its spline, where the curve is constant" in text
        assert "9" not in text
        assert told(predict, pd.DataFrame({"x": [1.0, 4.0, 8.0], "z": [0.0, 0.5, 1.0]})) == []
    with pytest.warns(ExtrapolationWarning):
        assert r.predict(beyond).nunique() == 1


def test_beyond_declared_bounds_predictions_say_so():
    for formula in ("y ~ x + z", "y ~ np.log(1 + x) + z", "y ~ poly(x, 2) + z"):
        r = fitted(formula)
        (text,) = told(r.predict, {"x": [5.0, 11.0], "z": [0.5, 2.0]})
        assert "'x' has values outside its declared bounds" in text
        assert "'z' has values outside its declared bounds" in text
        assert told(r.predict, {"x": [0.0, 10.0], "z": [0.0, 1.0]}) == []
    public = pi.Schema({"x": pi.Numeric(0, 10, public=True), "z": (0, 1), "y": (-3, 3)})
    r = pi.ModulatedOLS.from_formula("y ~ x + z", ROWS, schema=public).fit(**SPEND)
    assert told(r.predict, {"x": [11.0], "z": [0.5]}) == []  # it is used as it is


def test_arrays_and_missing_values():
    X = ROWS[["x", "z"]]
    r = pi.MomentOLS(ROWS.y, X, bounds=[(0, 10), (0, 1)], y_bounds=(-3, 3)).fit(**SPEND)
    (text,) = told(r.predict, np.array([[5.0, 0.5], [5.0, 1.5]]))
    assert "'z' has values outside its declared bounds" in text
    assert told(r.predict, np.array([[np.nan, 7.0], [5.0, 1.0]])) == []  # a row that is not predicted
    ball = pi.MomentOLS(ROWS.y, X, radius=12.0, y_bounds=(-3, 3)).fit(**SPEND)
    assert told(ball.predict, np.array([[50.0, 0.5]])) == []  # no bounds of columns are declared
