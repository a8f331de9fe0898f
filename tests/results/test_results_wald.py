import warnings

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula

import privinf as pi
from privinf.errors import ArgumentError, ExtrapolationWarning, NotAvailableError, SchemaError
from privinf.results import Results
from privinf.results.context import Context

EXACT = {"rtol": 1e-10, "atol": 1e-13}
CONSTRAINTS = [
    "x1 = x2 = 0",
    "x1 = x2, C(g)[T.b] = 0.5",
    "2*x1 - x2",
    ["x1", "x1:x2 = 1"],
    "C(g)[T.b] = C(g)[T.c]",
]


def same(found, expected):
    np.testing.assert_allclose(np.squeeze(found), np.squeeze(expected), **EXACT)


@pytest.mark.parametrize("member", ["params", "bse", "tvalues", "pvalues"])
def test_coefficients(results, ols, member):
    pd.testing.assert_series_equal(getattr(results, member), getattr(ols, member), check_names=False, **EXACT)


def test_sizes(results, ols):
    assert (results.nobs, results.df_resid, results.df_model) == (ols.nobs, ols.df_resid, ols.df_model)
    assert results.use_t is False
    assert results.cov_type == "nonrobust"


@pytest.mark.parametrize("alpha", [0.05, 0.2])
def test_intervals(results, ols, alpha):
    pd.testing.assert_frame_equal(results.conf_int(alpha), ols.conf_int(alpha), **EXACT)


def test_covariances(results, ols):
    pd.testing.assert_frame_equal(results.cov_params(), ols.cov_params(), **EXACT)
    R = np.array([[0, 1, -1, 0, 0, 0.0], [0, 0, 1, 0, 2, 0]])
    position = ols.params.index.get_loc("x1")
    same(results.cov_params(r_matrix=R), ols._results.cov_params(r_matrix=R))
    same(results.cov_params(column="x1"), ols._results.cov_params(column=position))
    assert results.cov_params(column=["x1", "x2"]).shape == (2, 2)
    same(results.cov_params(column=0), ols._results.cov_params(column=0))
    with pytest.raises(ArgumentError, match="cannot both be passed"):
        results.cov_params(R, column=0)
    with pytest.raises(ArgumentError, match="unknown coefficient 'z'"):
        results.cov_params(column="z")
    with pytest.raises(ArgumentError):
        results.cov_params(column=6)


@pytest.mark.parametrize("text", CONSTRAINTS)
@pytest.mark.parametrize("engine", ["patsy", "formulaic"])
def test_tests_of_restrictions(results, ols, text, engine, monkeypatch):
    expected_t, expected_wald, expected_f = (
        ols.t_test(text),
        ols.wald_test(text, use_f=False, scalar=True),
        ols.f_test(text),
    )
    monkeypatch.setattr(statsmodels.formula.options, "formula_engine", engine)
    found = results.t_test(text)
    same(found.statistic, expected_t.statistic)
    same(found.pvalue, expected_t.pvalue)
    same(found.conf_int(0.1), expected_t.conf_int(0.1))
    same(found.effect, expected_t.effect)
    wald = results.wald_test(text)
    same([wald.statistic, wald.pvalue], [expected_wald.statistic, expected_wald.pvalue])
    assert wald.df_denom == expected_wald.df_denom
    f = results.f_test(text)
    same([f.fvalue, f.pvalue], [expected_f.fvalue, expected_f.pvalue])
    assert f.df_denom == results.df_resid


def test_t_test_of_each_coefficient_is_its_t_value(results):
    found = results.t_test(list(results.names))
    same(found.statistic, results.tvalues)
    same(found.pvalue, results.pvalues)
    same(found.conf_int(), results.conf_int())
    assert list(found.summary_frame().index) == list(results.names)
    for name in results.names:
        same(results.wald_test(name).statistic, results.tvalues[name] ** 2)


def test_dependent_restrictions_are_refused_jointly_but_not_one_by_one(results):
    text = "x1 = x2, 2*x1 = 2*x2"
    assert len(results.t_test(text).effect) == 2
    for test in (results.wald_test, results.f_test):
        with pytest.raises(ArgumentError, match="linearly dependent"):
            test(text)


def test_pairwise(results, ols):
    found = results.t_test_pairwise("C(g)", method=["hs", "fdr_bh"], alpha=0.1)
    expected = ols.t_test_pairwise("C(g)", method=["hs", "fdr_bh"], alpha=0.1)
    pd.testing.assert_frame_equal(found.result_frame, expected.result_frame, **EXACT)
    same(found.contrasts, expected.contrasts)
    with pytest.raises(ArgumentError, match="not in the model"):
        results.t_test_pairwise("g")
    for term in ("x1", "Intercept", "x1:x2"):
        with pytest.raises(ArgumentError, match="main effect of one factor"):
            results.t_test_pairwise(term)


@pytest.mark.parametrize("options", [{}, {"skip_single": True}, {"combine_terms": ["x1"]}])
def test_terms(results, ols, options):
    found = results.wald_test_terms(**options).table
    expected = ols.wald_test_terms(**options).table
    pd.testing.assert_frame_equal(found.astype(float), expected.astype(float), check_names=False, **EXACT)


def test_terms_that_match_nothing(results):
    with pytest.raises(ArgumentError, match="no term contains 'z'"):
        results.wald_test_terms(combine_terms=["z"])


def test_prediction(results, ols, frame):
    new = frame.iloc[:7][["g", "x2", "x1"]]  # columns in another order
    same(results.predict(new), ols.predict(new))
    found, expected = results.get_prediction(new), ols.get_prediction(new)
    same(found.predicted_mean, expected.predicted_mean)
    same(found.se_mean, expected.se_mean)
    same(found.conf_int(0.1), expected.conf_int(alpha=0.1))
    columns = ["mean", "mean_se", "mean_ci_lower", "mean_ci_upper"]
    same(found.summary_frame(0.1)[columns], expected.summary_frame(0.1)[columns])
    assert list(results.predict(new).index) == list(new.index)


def test_prediction_from_a_design_matrix_is_matched_by_name(results, ols):
    rows = pd.DataFrame(ols.model.exog[:4], columns=list(results.names))
    expected = ols.fittedvalues[:4]
    same(results.predict(rows[rows.columns[::-1]], transform=False), expected)
    same(results.predict(rows.to_numpy(), transform=False), expected)
    with pytest.raises(SchemaError, match="lack the column 'x1'"):
        results.predict(rows.drop(columns="x1"), transform=False)
    with pytest.raises(ArgumentError, match="but the model has 6 coefficients"):
        results.predict(np.ones((2, 3)), transform=False)


def test_prediction_refuses_unknown_levels_without_printing_them(results):
    with pytest.raises(SchemaError, match="'g'") as problem:
        results.predict(pd.DataFrame({"x1": [0.0], "x2": [0.0], "g": ["secret"]}))
    assert "secret" not in str(problem.value)


def test_prediction_outside_the_bounds_extrapolates(results, ols):
    new = pd.DataFrame({"x1": [3.0], "x2": [-2.0], "g": ["c"]})
    with pytest.warns(ExtrapolationWarning, match="'x1' is .* its declared bound"):
        same(results.predict(new), ols.predict(new))


def test_delta_method(results, ols):
    found = results.delta_method(lambda b: b["x1"] / b["x2"])
    a, b = ols.params["x1"], ols.params["x2"]
    cov = ols.cov_params().loc[["x1", "x2"], ["x1", "x2"]].to_numpy()
    gradient = np.array([1 / b, -a / b**2])
    assert found.value[0] == pytest.approx(a / b)
    assert found.bse[0] == pytest.approx(np.sqrt(gradient @ cov @ gradient), rel=1e-9)
    linear = results.delta_method(lambda b: [b["x1"] - b["x2"], b["Intercept"]])
    same(linear.conf_int(), results.t_test("x1 = x2, Intercept").conf_int())
    assert linear.summary_frame().shape == (2, 6)
    assert "std err" in repr(linear)
    assert "<table" in linear._repr_html_()


def test_array_models_have_no_factors(results):
    plain = Results(results.estimate, Context(report=results.privacy))
    with pytest.raises(NotAvailableError, match="formula"):
        plain.t_test_pairwise("C(g)")
    with pytest.raises(NotAvailableError, match="with a formula or with named columns"):
        plain.wald_test_terms()
    assert plain.df_model == len(plain.names)
    assert plain.predict(np.eye(6)).tolist() == plain.params.tolist()
    assert plain.predict(np.ones(6)).tolist() == [pytest.approx(plain.params.sum())]


def test_nothing_warns(results):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        results.f_test("x1 = x2 = 0")
        str(results.t_test("x1 = 0"))


@pytest.mark.parametrize("term", ["C(g)", "g", "C(g) = 0"])
def test_a_term_in_place_of_a_restriction_names_what_tests_it(term):
    rng = np.random.default_rng(0)
    table = {"g": rng.choice(list("abc"), 3000), "x": rng.uniform(-1.0, 1.0, 3000)}
    table["y"] = table["x"] + 0.3 * rng.normal(size=3000)
    schema = pi.Schema({"g": list("abc"), "x": (-1, 1), "y": (-3, 3)})
    fit = pi.OLS.from_formula("y ~ x + C(g)", table, schema=schema).fit(epsilon=4.0, delta=1e-6, rng=0)
    joint = "C(g)[T.b] = C(g)[T.c] = 0"
    for method in (fit.wald_test, fit.f_test, fit.score_test):
        with pytest.raises(ArgumentError, match="wald_test_terms") as caught:
            method(term)
        assert joint in str(caught.value)
    assert fit.wald_test(joint).df_num == 2


def test_a_steep_direction_names_the_test_of_several_coefficients():
    from privinf.results.wald import STEEP_JOINTLY

    assert "score_test()" in STEEP_JOINTLY
