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
        assert "'x' is above its boundary knot 8 in 2 of 3 new rows, where the curve is constant" in text
        assert "9" not in text
        assert told(predict, pd.DataFrame({"x": [1.0, 4.0, 8.0], "z": [0.0, 0.5, 1.0]})) == []
    with pytest.warns(ExtrapolationWarning):
        assert r.predict(beyond).nunique() == 1


def test_beyond_declared_bounds_predictions_say_so():
    for formula in ("y ~ x + z", "y ~ np.log(1 + x) + z", "y ~ poly(x, 2) + z"):
        r = fitted(formula)
        (text,) = told(r.predict, {"x": [5.0, 11.0], "z": [0.5, 2.0]})
        assert "'x' is above its declared bound 10 in 1 of 2 new rows" in text
        assert "'z' is above its declared bound 1 in 1 of 2 new rows" in text
        assert told(r.predict, {"x": [0.0, 10.0], "z": [0.0, 1.0]}) == []
    public = pi.Schema({"x": pi.Numeric(0, 10, public=True), "z": (0, 1), "y": (-3, 3)})
    r = pi.ModulatedOLS.from_formula("y ~ x + z", ROWS, schema=public).fit(**SPEND)
    assert told(r.predict, {"x": [11.0], "z": [0.5]}) == []  # it is used as it is


def test_arrays_and_missing_values():
    X = ROWS[["x", "z"]]
    r = pi.MomentOLS(ROWS.y, X, bounds=[(0, 10), (0, 1)], y_bounds=(-3, 3)).fit(**SPEND)
    (text,) = told(r.predict, np.array([[5.0, 0.5], [5.0, 1.5]]))
    assert "'z' is above its declared bound 1 in 1 of 2 new rows, and the fit used values clipped" in text
    assert told(r.predict, np.array([[np.nan, 7.0], [5.0, 1.0]])) == []  # a row that is not predicted
    ball = pi.MomentOLS(ROWS.y, X, radius=12.0, y_bounds=(-3, 3)).fit(**SPEND)
    assert told(ball.predict, np.array([[50.0, 0.5]])) == []  # no bounds of columns are declared


def test_both_ends_are_named_and_dates_are_printed_as_dates():
    rng = np.random.default_rng(1)
    rows = pd.DataFrame({"day": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.uniform(0, 300, 2000), "D")})
    rows = rows.assign(y=rng.uniform(0, 1, 2000))
    schema = pi.Schema({"day": ("2020-01-01", "2020-12-31"), "y": (0, 1)})
    r = pi.MomentOLS.from_formula("y ~ day", rows, schema=schema).fit(**SPEND)
    days = pd.to_datetime(["2019-01-01", "2020-05-05", "2022-01-01", "2022-01-01"])
    (text,) = told(r.predict, pd.DataFrame({"day": days}))
    assert (
        "'day' is below its declared bound 2020-01-01 in 1 of 4 new rows and is above its declared bound "
        "2020-12-31 in 2 of 4 new rows" in text
    )
    assert "2022" not in text
    assert "2019" not in text


def test_exposures_and_offsets_beyond_their_bounds_are_warned_of():
    rng = np.random.default_rng(2)
    rows = pd.DataFrame({"x": rng.uniform(0, 1, 4000), "years": rng.uniform(0.5, 2, 4000)})
    rows["k"] = rng.poisson(rows.years * np.exp(rows.x))
    schema = pi.Schema({"x": (0, 1), "years": (0.5, 2), "k": (0, 30)})
    r = pi.Poisson.from_formula("k ~ x", rows, schema=schema, exposure="years").fit(**SPEND)
    new = {"x": [0.5, 0.6, 0.7], "years": [1.0, 7.0, 8.0]}
    for predict in (r.predict, r.get_prediction):
        (text,) = told(predict, new)
        assert "'years' is above its declared bound 2 in 2 of 3 new rows" in text
        assert "7" not in text
        (text,) = told(lambda exog, predict=predict: predict(exog, exposure=0.1), {"x": [0.5, 0.6]})
        assert "'years' is below its declared bound 0.5 in 2 of 2 new rows" in text
        assert told(predict, {"x": [0.5], "years": [1.0]}) == []


def test_rows_of_the_design_matrix_of_a_formula_are_compared_too():
    r = fitted("y ~ x + z")
    (text,) = told(lambda rows: r.predict(rows, transform=False), np.array([[1.0, 11.0, 0.5]]))
    assert "'x' is above its declared bound 10 in 1 of 1 new rows" in text
