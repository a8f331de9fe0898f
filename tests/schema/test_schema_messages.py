"""What a newcomer writes first, and is told: what is wrong, where, and what to write instead."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import privinf as pi
from privinf.errors import ArgumentError, SchemaError

BUDGET = {"epsilon": 1.0, "delta": 1e-6, "rng": 0}


def people(n=400):
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "x": rng.uniform(0, 1, n),
            "t": rng.uniform(1, 5, n),
            "c": np.clip(rng.poisson(1, n), 0, 10),
            "g": rng.choice(["a", "b"], n),
            "h": rng.choice(["u", "v", "w"], n),
            "first name": rng.uniform(size=n),
            "large": rng.uniform(size=n) * 1e200,
            "small": rng.uniform(size=n) * 1e-200,
            "y": rng.uniform(size=n),
        }
    )


SCHEMA = pi.Schema(
    {
        "x": (0, 1),
        "t": (0.5, 6),
        "c": (0, 10),
        "g": ["a", "b"],
        "h": ["u", "v", "w"],
        "first name": (0, 1),
        "large": (0, 1e200),
        "small": (0, 1e-200),
        "y": (0, 1),
    }
)


@pytest.mark.parametrize("role", ["exposure", "offset", "weights"])
def test_arrays_in_place_of_names(role):
    rows = people()
    with pytest.raises(ArgumentError, match=f"{role}= must be the name of a column"):
        pi.Poisson.from_formula("c ~ x", rows, schema=SCHEMA, **{role: rows["t"]})


def test_the_logarithm_of_an_exposure():
    with pytest.raises(SchemaError, match="exposure='t'"):
        pi.Poisson.from_formula("c ~ x + offset(np.log(t))", people(), schema=SCHEMA)
    with pytest.raises(SchemaError, match="add the logarithm of the exposure as a column"):
        pi.Logit.from_formula("g ~ x + offset(np.log(t))", people(), schema=SCHEMA)


@pytest.mark.parametrize("column", ["large", "small"])
@pytest.mark.parametrize("model", ["OLS", "MomentOLS"])
@pytest.mark.parametrize("formula", ["y ~ {}", "{} ~ x"])
def test_sizes_that_cannot_be_summed_name_the_column(model, formula, column):
    with pytest.raises(SchemaError, match=f"bounds of '{column}'.*change the unit"):
        getattr(pi, model).from_formula(formula.format(column), people(), schema=SCHEMA).fit(**BUDGET)


def test_backticks():
    with pytest.raises(SchemaError, match=r"Q\('x y'\)"):
        pi.OLS.from_formula("y ~ `first name`", people(), schema=SCHEMA)


def test_a_table_may_be_the_second_argument_of_a_test():
    rows = people()
    first = pi.stats.ttest_ind("x ~ g", rows, schema=SCHEMA, **BUDGET)
    second = pi.stats.ttest_ind("x ~ g", data=rows, schema=SCHEMA, **BUDGET)
    assert first.statistic == second.statistic
    with pytest.raises(ArgumentError, match="twice"):
        pi.stats.ttest_ind("x ~ g", rows, data=rows, schema=SCHEMA, **BUDGET)


@pytest.mark.parametrize("ends", [[18, 95], [18.5, 95.0], [95, 18], np.array([0, 10]), [0.0, 0.5]])
def test_bounds_in_a_list(ends):
    with pytest.raises(SchemaError, match="for bounds, or"):
        pi.Schema({"age": ends})


@pytest.mark.parametrize("levels", [[0, 1], [1, 2], [1.0, 2.0], [False, True], [0, 10, 20], ["18", "95"]])
def test_levels_in_a_list(levels):
    assert len(pi.Schema({"g": levels}).columns["g"].levels) == len(levels)


def test_stored_schemas_keep_two_levels_that_look_like_bounds(tmp_path):
    schema = pi.Schema({"dose": pi.Factor([10, 50])})
    schema.save(tmp_path / "schema.toml")
    assert pi.load_schema(tmp_path / "schema.toml").to_dict() == schema.to_dict()
    assert pi.Schema.from_dict(schema.to_dict()).to_dict() == schema.to_dict()


def test_a_dict_in_place_of_a_schema():
    plain = {"x": (0, 1), "y": (0, 1)}
    entry_points = [
        lambda: pi.OLS.from_formula("y ~ x", people(), schema=plain),
        lambda: pi.ModulatedOLS.from_formula("y ~ x", people(), schema=plain),
        lambda: pi.IWPGLM.from_formula("y ~ x", people(), schema=plain),
        lambda: pi.stats.mean("x", data=people(), schema=plain, **BUDGET),
        lambda: pi.Moments(plain, columns=["x", "y"]),
    ]
    for entry_point in entry_points:
        with pytest.raises(ArgumentError, match=r"write privinf.Schema\("):
            entry_point()


def test_a_response_of_texts():
    with pytest.raises(SchemaError, match=r"factor with 3 levels.*two levels"):
        pi.OLS.from_formula("h ~ x", people(), schema=SCHEMA)


def test_undeclared_levels_are_named_to_the_holder_alone():
    narrow = pi.Schema({"y": (0, 1), "h": ["u", "v"], "g": ["a", "b"]})
    with pytest.raises(SchemaError, match="undeclared_levels") as caught:
        pi.OLS.from_formula("y ~ h", people(), schema=narrow).fit(**BUDGET)
    assert "'w'" not in str(caught.value)
    assert narrow.undeclared_levels(people()) == {"h": ["w"]}
    assert SCHEMA.undeclared_levels(people()) == {}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("low = inf", "low must be finite"),
        ("low = nan", "low must be finite"),
        ('low = "10"', "low must be a number without quotes"),
        ("low = true", "low must be a number without quotes"),
        ("low = [1]", "low must be a number without quotes"),
    ],
)
def test_bounds_in_a_file_that_are_not_numbers(tmp_path, line, message):
    path = tmp_path / "schema.toml"
    path.write_text(f"[columns.age]\n{line}\nhigh = 90\n")
    with pytest.raises(SchemaError, match=f"column 'age': {message}"):
        pi.load_schema(path)
