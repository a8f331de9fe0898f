"""Fits without noise of rows that do not identify the coefficients: refused, and the columns are named."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

import privinf as pi
from privinf.errors import AlignmentError, ConvergenceError, NotPositiveDefiniteError, SchemaError

RESPONSES = {"OLS": "y", "MomentOLS": "y", "Logit": "b", "Poisson": "c"}
SCHEMA = pi.Schema(
    {
        "x": (-10, 10),
        "z": (0, 1),
        "y": (-6, 6),
        "b": (0, 1),
        "c": (0, 10),
        "k": (-1, 9),
        "x2": (-20, 20),
        "g": ["low", "middle", "high"],
        "age": (0, 1),
        "smoker": [0, 1],
    }
)
SPLINE = "cr(z, knots=[.3, .6], lower_bound=0, upper_bound=1)"


def people(n=400):
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"x": rng.uniform(-1, 1, n), "z": rng.uniform(0, 1, n)})
    rows["y"] = np.clip(1 + rows.x + rng.normal(size=n) * 0.5, -6, 6)
    rows["b"] = (rng.uniform(size=n) < 0.5).astype(int)
    rows["c"] = np.clip(rng.poisson(1.5, n), 0, 10)
    rows["g"] = rng.choice(["low", "middle"], n)
    rows["age"] = rng.uniform(size=n)
    rows["smoker"] = (rng.uniform(size=n) < 0.4).astype(int)
    return rows.assign(k=3.0, x2=2 * rows.x)


def fit(model, right, rows, **options):
    formula = f"{RESPONSES[model]} ~ {right}"
    return getattr(pi, model).from_formula(formula, rows, schema=SCHEMA).fit(epsilon=math.inf, **options)


@pytest.mark.parametrize("model", RESPONSES)
@pytest.mark.parametrize("value", [0.0, 1.0, 3.0, 5.0])
def test_a_column_that_does_not_vary(model, value):
    with pytest.raises(NotPositiveDefiniteError, match="columns 'Intercept', 'k' are linearly dependent"):
        fit(model, "k + z", people().assign(k=value))


@pytest.mark.parametrize("model", RESPONSES)
@pytest.mark.parametrize(
    ("right", "columns"),
    [
        ("g + x", r"column 'g\[T.high\]' is 0 in all rows"),
        ("x + x2 + z", "columns 'x', 'x2' are"),
        (SPLINE, "columns 'Intercept', 'cr"),
    ],
    ids=["a level without rows", "twice a column", "cr beside the constant"],
)
def test_columns_that_repeat_one_another_are_named(model, right, columns):
    with pytest.raises(NotPositiveDefiniteError, match=columns):
        fit(model, right, people())


@pytest.mark.parametrize("model", RESPONSES)
def test_a_factor_and_its_number_repeat_one_another_whatever_the_rows_are(model):
    with pytest.raises(SchemaError, match=r"columns 'C\(smoker\)\[T.1\]', 'smoker' of the formula"):
        fit(model, "age + smoker + C(smoker)", people())


@pytest.mark.parametrize("model", RESPONSES)
def test_fewer_rows_than_coefficients(model):
    with pytest.raises(AlignmentError, match=r"2 rows are too few to (estimate|identify) 4 coefficients"):
        fit(model, "x + z + age", people().iloc[:2])


def test_columns_that_almost_repeat_one_another_are_fitted():
    rows = people()
    rows["x2"] = rows.x + 1e-4 * rows.z
    for model in ("OLS", "MomentOLS"):
        theirs = sm.OLS(rows.y, sm.add_constant(rows[["x", "x2"]])).fit()
        np.testing.assert_allclose(fit(model, "x + x2", rows).params, theirs.params, rtol=1e-4)


@pytest.mark.parametrize(
    ("model", "changed", "message"),
    [
        ("Logit", lambda rows: rows.assign(b=1), "all outcomes are equal"),
        ("Logit", lambda rows: rows.assign(b=0), "all outcomes are equal"),
        (
            "Logit",
            lambda rows: rows.assign(b=(rows.x > 0).astype(int)),
            "infinite, because 'x' separates the outcomes",
        ),
        ("Poisson", lambda rows: rows.assign(c=0), "all counts are zero"),
    ],
    ids=["all 1", "all 0", "separated", "no counts"],
)
def test_outcomes_that_are_separated(model, changed, message):
    with pytest.raises(ConvergenceError, match=message):
        fit(model, "x", changed(people()))


def test_one_level_separates_some_outcomes():
    rows = people()
    rare = rows.z < 0.1
    rows["g"] = np.where(rare, "high", rows.g)
    with pytest.raises(ConvergenceError, match=r"'g\[T.high\]' separates the outcomes"):
        fit("Logit", "g + x", rows.assign(b=np.where(rare, 1, rows.b)))
    with pytest.raises(ConvergenceError, match=r"'g\[T.high\]' are zero"):
        fit("Poisson", "g + x", rows.assign(c=np.where(rare, 0, rows.c)))


@pytest.mark.parametrize("model", ["Logit", "Poisson"])
def test_one_event_is_enough_for_a_finite_maximum(model):
    rows = people()
    rows[RESPONSES[model]] = (np.arange(len(rows)) == 7).astype(int)
    exog = sm.add_constant(rows[["x"]])
    theirs = getattr(sm, model)(rows[RESPONSES[model]], exog).fit(disp=0, maxiter=100)
    np.testing.assert_allclose(fit(model, "x", rows).params, theirs.params, rtol=1e-5)


def test_a_steep_slope_is_no_separation():
    rows = people()
    rows["b"] = (rows.x + np.random.default_rng(1).normal(size=len(rows)) * 0.1 > 0).astype(int)
    theirs = sm.Logit(rows.b, sm.add_constant(rows[["x"]])).fit(disp=0, maxiter=100)
    np.testing.assert_allclose(fit("Logit", "x", rows).params, theirs.params, rtol=1e-5)
