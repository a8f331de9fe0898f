"""Without noise, least squares on statsmodels' own data is statsmodels' least squares, to 1e-8."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

import privinf as pi

CLOSE = {"rtol": 1e-8, "atol": 1e-8}
NUMBERS = (
    "rsquared", "rsquared_adj", "fvalue", "f_pvalue", "scale", "df_resid", "df_model", "nobs", "ssr", "ess",
    "mse_resid", "mse_model", "mse_total",
)  # fmt: skip
MODELS = {"moments": pi.MomentOLS, "ols": pi.OLS}


def held(name):
    data = getattr(sm.datasets, name).load_pandas()
    return data.endog, data.exog


def bounds_of(column):
    return float(column.min()), float(column.max())


def fits(model, name, cov_type, constant=True):
    y, X = held(name)
    limits = {label: bounds_of(X[label]) for label in X}
    columns = pi.add_constant(X) if constant else X
    ours = MODELS[model](y, columns, bounds=limits, y_bounds=bounds_of(y)).fit(
        epsilon=math.inf, cov_type=cov_type
    )
    return ours, sm.OLS(y, sm.add_constant(X) if constant else X).fit(cov_type=cov_type, use_t=True)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("cov_type", ["nonrobust", "HC0"])
@pytest.mark.parametrize("name", ["longley", "spector", "randhie"])
def test_every_number_is_that_of_statsmodels(model, name, cov_type):
    ours, theirs = fits(model, name, cov_type)
    for member in ("params", "bse", "tvalues", "pvalues"):
        np.testing.assert_allclose(getattr(ours, member), getattr(theirs, member), err_msg=member, **CLOSE)
    np.testing.assert_allclose(ours.bse_sampling, theirs.bse, **CLOSE)
    for member in NUMBERS:
        np.testing.assert_allclose(getattr(ours, member), getattr(theirs, member), err_msg=member, **CLOSE)
    for alpha in (0.01, 0.05, 0.3):
        np.testing.assert_allclose(ours.conf_int(alpha), theirs.conf_int(alpha), **CLOSE)
    _, X = held(name)
    new = X.iloc[:7]
    found = ours.get_prediction(pi.add_constant(new)).summary_frame(0.1)
    expected = theirs.get_prediction(sm.add_constant(new, has_constant="add")).summary_frame(0.1)
    np.testing.assert_allclose(found[list(expected.columns)], expected, **CLOSE)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("cov_type", ["nonrobust", "HC0"])
def test_tests_of_restrictions_are_those_of_statsmodels(model, cov_type):
    ours, theirs = fits(model, "spector", cov_type)
    for text in ("GPA = 2*PSI", "TUCE = 0, GPA = 0.3"):
        found, expected = ours.t_test(text), theirs.t_test(text)
        for member in ("effect", "sd", "tvalue", "pvalue", "df_denom"):
            a, b = (np.squeeze(getattr(test, member)) for test in (found, expected))
            np.testing.assert_allclose(a, b, err_msg=member, **CLOSE)
        np.testing.assert_allclose(found.conf_int(), expected.conf_int(), **CLOSE)
        a, b = ours.f_test(text), theirs.f_test(text)
        np.testing.assert_allclose(
            (a.fvalue, a.pvalue, a.df_denom), (b.fvalue, b.pvalue, b.df_denom), **CLOSE
        )


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("cov_type", ["nonrobust", "HC0"])
def test_without_a_constant_nothing_is_centred(model, cov_type):
    ours, theirs = fits(model, "spector", cov_type, constant=False)
    for member in NUMBERS:
        np.testing.assert_allclose(getattr(ours, member), getattr(theirs, member), err_msg=member, **CLOSE)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("formula", ["y ~ 0 + C(g) + x", "y ~ 0 + C(g):C(h) + x", "y ~ 0 + x"])
def test_dummies_of_all_levels_are_a_constant(model, formula):
    rng = np.random.default_rng(5)
    frame = pd.DataFrame({"x": rng.uniform(-1, 1, 60), "g": list("abc") * 20, "h": list("uuvv") * 15})
    frame["y"] = 1.0 + 0.5 * frame.x + (frame.g == "b") + 0.2 * rng.standard_normal(60)
    schema = pi.Schema({"y": (-3, 5), "x": (-1, 1), "g": ["a", "b", "c"], "h": ["u", "v"]})
    ours = (
        MODELS[model].from_formula(formula, frame, schema=schema).fit(epsilon=math.inf, cov_type="nonrobust")
    )
    theirs = sm.OLS.from_formula(formula, frame).fit()
    assert ours.k_constant == theirs.k_constant
    for member in ("rsquared", "rsquared_adj", "fvalue", "f_pvalue", "df_model", "df_resid"):
        np.testing.assert_allclose(getattr(ours, member), getattr(theirs, member), err_msg=member, **CLOSE)
