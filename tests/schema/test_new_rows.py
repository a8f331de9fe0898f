"""Levels of raw and new rows: another type, another case, and `other=` of new rows alone."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import privinf as pi
from privinf.errors import SchemaError
from privinf.schema.reading import Reader

SPENDING = {"epsilon": 4.0, "delta": 1e-6, "rng": 3}


@pytest.fixture(scope="module")
def fit():
    draw = np.random.default_rng(0)
    data = pd.DataFrame(
        {"y": draw.random(2000), "x": draw.random(2000), "region": draw.choice(["a", "b", "rare"], 2000)}
    )
    schema = pi.Schema({"y": (0, 1), "x": (0, 1), "region": pi.Factor(["a", "b"], other="b")})
    return pi.MomentOLS.from_formula("y ~ x + C(region)", data, schema=schema).fit(**SPENDING)


def test_a_new_row_alone_can_have_a_level_that_counts_as_other(fit):
    alone = fit.predict({"x": [0.5], "region": ["rare"]})
    together = fit.predict({"x": [0.5, 0.5], "region": ["b", "a"]})
    assert float(alone[0]) == float(together[0])


def test_new_rows_of_another_type_are_refused(fit):
    with pytest.raises(SchemaError, match="'region' contains numbers, but its declared levels are texts"):
        fit.predict({"x": [0.5], "region": [2]})


@pytest.mark.parametrize(
    ("values", "levels", "message"),
    [
        (["1", "2"], [1, 2], "contains texts, but its declared levels are numbers: convert the column by"),
        ([1, 2], ["1", "2"], "contains numbers, but its declared levels are texts: declare the levels as"),
        (["Yes", "no"], ["yes", "no"], "differ from its declared level 'yes' only by upper and lower case"),
        (["yes ", "no"], ["yes", "no"], "differ from its declared level 'yes' only by blanks"),
        (["maybe", "no"], ["yes", "no"], "has values outside its declared levels"),
    ],
)
def test_undeclared_levels_name_the_cause(values, levels, message):
    reader = Reader({"g": values}, pi.Schema({"g": pi.Factor(levels)}))
    with pytest.raises(SchemaError, match=message):
        reader.open(("g",))


def test_a_response_of_number_levels_is_not_a_factor():
    schema = pi.Schema({"sex": [1, 2], "x": (0, 1), "died": ["no", "yes"]})
    with pytest.raises(SchemaError, match=r"write I\(sex == 2\), which is 1 for 2 and 0 otherwise"):
        pi.Design.from_formula("C(sex) ~ x", schema)
    with pytest.raises(SchemaError, match="write 'died', a factor whose second level, 'yes', counts as 1"):
        pi.Design.from_formula("C(died) ~ x", schema)
    assert pi.Design.from_formula("I(sex == 2) ~ x", schema).y_high == 1.0


def test_a_status_whose_event_is_first_is_declared_as_a_factor():
    data = pd.DataFrame({"time": [1.0, 2.0], "state": [1, 2]})
    schema = pi.Schema({"time": (0, 5), "state": [1, 2]})
    with pytest.raises(SchemaError, match=r"declare it as the second, pi.Factor\(\[2, 1\]\)"):
        pi.survival.KaplanMeier("time", "state", data=data, schema=schema, event=1).fit(**SPENDING)
