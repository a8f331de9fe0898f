"""First errors of a newcomer: calls that do not fit, unknown names, and attempts to change a result."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pandas as pd
import pytest

import privinf as pi
from privinf.errors import CallError, SchemaError

SCHEMA = pi.Schema({"y": (0, 10), "age": (18, 95), "sex": ["female", "male"]})
ROWS = pd.DataFrame(
    {
        "y": np.linspace(0, 10, 60),
        "age": np.linspace(20, 90, 60),
        "sex": ["female", "male"] * 30,
    }
)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda: pi.OLS.from_formula("y ~ age", ROWS),
            r"OLS\.from_formula\(\) needs schema= \(the public",
        ),
        (lambda: pi.PHReg.from_formula("y ~ age", ROWS), "needs status= .* and schema= "),
        (lambda: pi.OLS(ROWS.y, ROWS[["age"]]), r"OLS\(\) needs bounds= \(the public bounds"),
        (
            lambda: pi.OLS.from_formula("y ~ age", ROWS, schema=SCHEMA).fit(1.0),
            r"OLS\.fit\(\) accepts no arguments by position: pass the budget by name",
        ),
        (lambda: pi.OLS.from_formula("y ~ age", ROWS, SCHEMA), "only formula, data by position.*schema="),
    ],
)
def test_a_call_that_does_not_fit_states_the_remedy(call, text):
    with pytest.raises(CallError, match=text) as caught:
        call()
    assert isinstance(caught.value, TypeError)
    assert caught.value.__context__ is None


@pytest.mark.parametrize(
    ("package", "name", "text"),
    [
        (pi, "ols", "did you mean 'OLS'"),
        (pi.stats, "std", "use describe"),
        (pi.stats, "f_oneway", "use anova_oneway"),
        (pi.stats, "spearmanr", "no rank correlation"),
        (pi.survival, "KaplanMeierFitter", "use KaplanMeier; its result has curves"),
        (pi, "KaplanMeier", "use privinf.survival.KaplanMeier$"),
        (pi, "crosstab", "use privinf.stats.crosstab$"),
        (pi, "CoxPH", "use privinf.PHReg"),
        (pi, "WLS", "weights='w'"),
        (pi, "MNLogit", "a column of 0 and 1 for each level"),
        (pi.stats, "zzzz", "has no attribute 'zzzz'$"),
    ],
)
def test_an_unknown_name_has_a_hint(package, name, text):
    with pytest.raises(AttributeError, match=text):
        getattr(package, name)


@pytest.mark.parametrize("bounds", [(0, math.inf), (18, None), (None, 18), (0, math.nan)])
def test_open_bounds_are_called_bounds(bounds):
    with pytest.raises(SchemaError, match="both bounds must be finite numbers"):
        pi.Schema({"age": bounds})


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        (ROWS.assign(age=ROWS.age.astype(str)), r"pd\.to_numeric\(table\['age'\]\)"),
        (ROWS.rename(columns={"age": "Age"}), "its column 'Age' differs from 'age' only by capital"),
        (
            ROWS.assign(age=ROWS.age.where(ROWS.age > 30)),
            r"missing='drop'.*impute-public.*usually biased",
        ),
    ],
)
def test_data_that_do_not_fit_the_schema(rows, text):
    with pytest.raises(SchemaError, match=text):
        pi.OLS.from_formula("y ~ age", rows, schema=SCHEMA).fit(epsilon=1.0, delta=1e-6, rng=1)


def test_a_misspelled_column_has_a_hint():
    with pytest.raises(SchemaError, match=r"not in the schema.*did you mean 'age'"):
        pi.stats.mean("agee", data=ROWS, schema=SCHEMA, epsilon=1.0, delta=1e-6, rng=1)


def test_results_say_that_they_cannot_be_changed():
    options = {"data": ROWS, "schema": SCHEMA, "epsilon": 1.0, "delta": 1e-6, "rng": 1}
    for result in (pi.stats.mean("age", **options), pi.stats.median("age", **options), SCHEMA):
        for name in ("title", "other"):
            with pytest.raises(dataclasses.FrozenInstanceError, match=f"cannot be changed, so '{name}'"):
                setattr(result, name, 1)
            with pytest.raises(dataclasses.FrozenInstanceError, match="cannot be deleted"):
                delattr(result, name)
