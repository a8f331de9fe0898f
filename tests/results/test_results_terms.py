"""Terms come from the design: names of levels and columns with brackets, any coding, interactions alone."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from patsy import dmatrices
from statsmodels.formula.api import ols

import privinf as pi
from privinf.errors import ArgumentError

AGES = ["[0,18)", "[18,65)", "[65,90)"]


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(0)
    n = 600
    rows = pd.DataFrame(
        {
            "age": rng.choice(AGES, n),
            "sex": rng.choice(["f", "m"], n),
            "x[1]": rng.uniform(-1, 1, n),
            "x[2]": rng.uniform(-1, 1, n),
            "x": rng.uniform(0, 1, n),
        }
    )
    rows["y"] = np.clip(rows["x[1]"] + (rows["age"] == AGES[1]) + rng.normal(size=n), -5, 5)
    return rows


@pytest.fixture(scope="module")
def schema():
    numbers = {"x[1]": (-1, 1), "x[2]": (-1, 1), "x": (0, 1), "y": (-5, 5)}
    return pi.Schema({"age": AGES, "sex": ["f", "m"], **numbers})


FORMULAS = {
    "y ~ age": ["Intercept", "age"],
    "y ~ C(age) * sex": ["Intercept", "C(age)", "sex", "C(age):sex"],
    "y ~ C(age):C(sex)": ["Intercept", "C(age):C(sex)"],
    "y ~ Q('x[1]') + Q('x[2]')": ["Intercept", "Q('x[1]')", "Q('x[2]')"],
    "y ~ C(age, Sum) + x": ["Intercept", "C(age, Sum)", "x"],
    "y ~ C(age, Helmert)": ["Intercept", "C(age, Helmert)"],
    "y ~ C(age, levels=['[65,90)', '[0,18)', '[18,65)'])": [
        "Intercept",
        "C(age, levels=['[65,90)', '[0,18)', '[18,65)'])",
    ],
    "y ~ bs(x, knots=[0.3, 0.6], lower_bound=0, upper_bound=1)": [
        "Intercept",
        "bs(x, knots=[0.3, 0.6], lower_bound=0, upper_bound=1)",
    ],
}


@pytest.mark.parametrize("formula", FORMULAS)
def test_terms_are_those_of_statsmodels(formula, people, schema):
    ours = pi.OLS.from_formula(formula, people, schema=schema).fit(epsilon=math.inf).wald_test_terms().table
    y, X = dmatrices(formula, people, return_type="dataframe")
    by_columns = sm.OLS(y, X).fit(cov_type="HC0", use_t=True)
    theirs = ols(formula, people).fit(cov_type="HC0", use_t=True).wald_test_terms(scalar=True).table
    assert list(ours.index) == FORMULAS[formula] == list(theirs.index)
    assert list(ours["df_constraint"]) == list(theirs["df_constraint"])
    assert len(by_columns.params) == ours["df_constraint"].sum()
    np.testing.assert_allclose(
        ours["statistic"].to_numpy(dtype=float), theirs["statistic"].to_numpy(dtype=float), rtol=1e-6
    )


@pytest.mark.parametrize("coding", ["", ", Sum", ", Helmert", ", levels=['[0,18)','[18,65)', '[65,90)']"])
def test_pairs_of_levels_do_not_depend_on_the_coding(coding, people, schema):
    model = pi.OLS.from_formula(f"y ~ C(age{coding}) + x", people, schema=schema)
    pairs = model.fit(epsilon=math.inf).t_test_pairwise(f"C(age{coding})").result_frame
    theirs = ols("y ~ C(age) + x", people).fit(cov_type="HC0", use_t=True)
    expected = theirs.t_test_pairwise("C(age)").result_frame
    columns = ["coef", "std err", "P>|t|", "pvalue-hs"]
    pairs_of_levels = list(itertools.combinations(AGES, 2))
    assert list(pairs.index) == [f"{later}-{earlier}" for earlier, later in pairs_of_levels]
    np.testing.assert_allclose(
        pairs[columns].to_numpy(dtype=float), expected[columns].to_numpy(dtype=float), rtol=1e-6
    )


def test_pairs_where_every_level_has_a_column(people, schema):
    result = pi.OLS.from_formula("y ~ age - 1", people, schema=schema).fit(epsilon=math.inf)
    theirs = ols("y ~ age - 1", people).fit(cov_type="HC0", use_t=True)
    difference = result.t_test_pairwise("age").result_frame["coef"].iloc[0]
    assert difference == pytest.approx(theirs.params.iloc[1] - theirs.params.iloc[0], rel=1e-6)


def test_a_restriction_names_levels_with_brackets(people, schema):
    result = pi.OLS.from_formula("y ~ age", people, schema=schema).fit(epsilon=math.inf)
    test = result.t_test("age[T.[18,65)] = age[T.[65,90)]")
    assert float(test.effect[0]) == pytest.approx(result.params.iloc[1] - result.params.iloc[2])


def test_an_unknown_adjustment_lists_the_known_ones(people, schema):
    result = pi.OLS.from_formula("y ~ age", people, schema=schema).fit(epsilon=math.inf)
    with pytest.raises(ArgumentError, match="fdr_bh"):
        result.t_test_pairwise("age", method="tukey")
    assert "pvalue-holm" in result.t_test_pairwise("age", method="holm").result_frame
