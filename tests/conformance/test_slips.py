"""Slips of a first day: calls that nearly say what is meant work, or name the remedy."""

import pandas as pd
import pytest

import privinf as pi
from privinf.errors import ArgumentError, NotAvailableError

ROWS = pd.DataFrame({"x": [0.1, 0.2, 0.3], "y": [0.2, 0.1, 0.4]})
SCHEMA = pi.Schema({"x": (-1, 1), "y": (-2, 2)})


@pytest.mark.parametrize(
    "call",
    [
        lambda: pi.Moments(ROWS),
        lambda: pi.Moments(ROWS, "y ~ x"),
        lambda: pi.Moments(ROWS, columns=["x", "y"]),
        lambda: pi.Design.from_formula("y ~ x", ROWS),
        lambda: pi.Modulation(ROWS, "y ~ x"),
        lambda: pi.plan_study(ROWS, "y ~ x", 500, mu=1.0),
    ],
)
def test_rows_in_place_of_a_schema(call):
    with pytest.raises(ArgumentError, match=r"got DataFrame.*privinf\.Schema\(\{\.\.\.\}\).*release\(\)"):
        call()


@pytest.mark.parametrize("mechanism", [pi.Moments, pi.Modulation])
@pytest.mark.parametrize("formula", [(), ("y ~ x",)])
def test_rows_before_a_schema(mechanism, formula):
    with pytest.raises(ArgumentError, match=r"schema= is the first argument.*\.release\(rows") as raised:
        mechanism(ROWS, *formula, schema=SCHEMA)
    assert f"{mechanism.__name__}(schema, 'y ~ x')" in str(raised.value)


def test_an_argument_that_is_passed_twice():
    with pytest.raises(ArgumentError, match="formula= was passed to Moments twice"):
        pi.Moments(SCHEMA, "y ~ x", formula="y ~ x")


def test_a_study_takes_the_coefficient_by_position():
    known = pi.Guesses(means={"y": 0}, sds={"y": 0.5, "x": 0.5}, rsquared=0.3)
    study = pi.plan_study(SCHEMA, "y ~ x", 500, guesses=known, mu=1.0, estimators=["MomentOLS"])
    for method in (study.n_for, study.budget_for, study.changes):
        with pytest.raises(ArgumentError, match=r"as in n_for\('x', width=0.5\)"):
            method("x")
    assert study.n_for("x", width=0.5) == study.n_for(coefficient="x", width=0.5)
    with pytest.raises(ArgumentError, match="coefficient"):
        study.n_for("z", width=0.5)


def test_options_of_statsmodels_margins_say_what_to_do():
    model = pi.Logit([0.0, 1.0] * 50, pi.add_constant(pd.DataFrame({"x": [0.1, 0.5] * 50})), bounds=[(-1, 1)])
    fit = model.fit(epsilon=50.0, delta=1e-6, rng=0, intervals="optional")
    for name in ("alpha", "atexog", "count"):
        with pytest.raises(NotAvailableError, match=f"{name}="):
            type(fit).get_margeff(fit, **{name: True})
