"""Small samples and biased estimates: t by Satterthwaite, F, worst-case tests, new observations."""

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf

from privinf.accounting import GaussianLoss, LedgerEntry, PrivacyReport
from privinf.errors import NotAvailableError
from privinf.inference.estimate import Estimate
from privinf.inference.intervals import Precision
from privinf.results import Results, load_results
from privinf.results.context import Context
from privinf.schema import Design, Schema

FULL = "y ~ 0 + C(g) + x1"
EXACT = {"rtol": 1e-10, "atol": 1e-13}


def report():
    entry = LedgerEntry(
        mechanism="gaussian",
        label="moments",
        unit="record",
        relation="replace-one",
        trust="central",
        loss=GaussianLoss(0.25),
        source="lattice",
        secure=True,
    )
    return PrivacyReport.from_entries([entry], delta=1e-5)


def fitted(frame, formula, rows, *, noise=0.0, bias=None, **given):
    data = frame[:rows]
    ols = smf.ols(formula, data).fit()
    cov = np.asarray(ols.cov_params())
    estimate = Estimate(
        params=np.array(ols.params),
        cov=cov,
        names=tuple(ols.params.index),
        nobs=rows,
        noise_cov=noise * cov,
        cov_type="nonrobust",
        df_resid=float(ols.df_resid),
        bias=bias,
    )
    design = Design.from_formula(
        formula, Schema({"x1": (-1, 1), "x2": (-1, 1), "g": ["a", "b", "c"], "y": (-3, 3)})
    )
    known = {"rsquared": float(ols.rsquared), "scale": float(ols.scale)} | given
    return Results(estimate, Context(report=report(), design=design, **known)), ols


@pytest.fixture(params=["y ~ x1 + x2 + C(g)", FULL, "y ~ 0 + x1 + x2", "y ~ x1 * C(g)"])
def pair(request, frame):
    return fitted(frame, request.param, 17)


def test_without_noise_everything_is_that_of_ols(pair, frame):
    ours, ols = pair
    assert ours.use_t
    assert (ours.df_resid, ours.df_model, ours.k_constant) == (ols.df_resid, ols.df_model, ols.k_constant)
    for name in ("pvalues", "tvalues"):
        np.testing.assert_allclose(getattr(ours, name), getattr(ols, name), **EXACT)
    np.testing.assert_allclose(ours.conf_int(0.1), ols.conf_int(0.1), **EXACT)
    for name in ("fvalue", "f_pvalue", "rsquared_adj"):
        np.testing.assert_allclose(getattr(ours, name), getattr(ols, name), rtol=1e-8)
    new = frame[20:26]
    found, expected = (fit.get_prediction(new).summary_frame(0.1) for fit in pair)
    pd.testing.assert_frame_equal(found[list(expected.columns)], expected, **EXACT)


def test_tests_of_restrictions_are_those_of_ols(frame):
    ours, ols = fitted(frame, FULL, 17)
    for text in ("x1", "C(g)[a] = C(g)[b], x1 = 1"):
        found, expected = ours.t_test(text), ols.t_test(text)
        for name in ("tvalue", "pvalue", "sd", "effect"):
            np.testing.assert_allclose(np.squeeze(getattr(found, name)), np.squeeze(getattr(expected, name)))
        assert found.df_denom == expected.df_denom
        np.testing.assert_allclose(found.conf_int(), expected.conf_int(), **EXACT)
        np.testing.assert_allclose(found.summary_frame(), expected.summary_frame(), **EXACT)
        for test in ("wald_test", "f_test"):
            a, b = getattr(ours, test)(text), ols.f_test(text)
            np.testing.assert_allclose((a.fvalue, a.pvalue, a.df_denom), (b.fvalue, b.pvalue, b.df_denom))
    table, expected = ours.wald_test_terms().table, ols.wald_test_terms(scalar=True).table
    np.testing.assert_allclose(table.astype(float), expected.astype(float), rtol=1e-8)
    pairs = ours.t_test_pairwise("C(g)").result_frame
    expected = ols.t_test_pairwise("C(g)").result_frame
    np.testing.assert_allclose(pairs.iloc[:, :6].astype(float), expected.iloc[:, :6].astype(float), rtol=1e-8)


def test_noise_raises_the_degrees_of_freedom_row_by_row(frame):
    ours, ols = fitted(frame, FULL, 17, noise=0.5)
    found = ours.t_test(np.eye(4))
    np.testing.assert_allclose(found.df_denom, 4.0 * ols.df_resid)
    noise = np.zeros((4, 4))
    noise[0, 0] = 0.5 * ours.estimate.cov[0, 0]
    mixed = Results(
        Estimate(
            params=ours.estimate.params,
            cov=ours.estimate.cov,
            names=ours.names,
            nobs=17,
            noise_cov=noise,
            df_resid=ols.df_resid,
        ),
        Context(
            report=ours.privacy,
        ),
    )
    rows = mixed.t_test(np.eye(4))
    assert rows.df_denom.shape == (4,)
    assert rows.df_denom[0] > rows.df_denom[1]
    assert mixed.wald_test(np.eye(4)).df_denom == pytest.approx(ols.df_resid, rel=0.5)
    np.testing.assert_allclose(rows.pvalue, mixed.pvalues)
    np.testing.assert_allclose(rows.conf_int(), mixed.conf_int())
    assert str(rows.summary())


def test_noise_alone_is_normal(frame):
    ours, _ = fitted(frame, FULL, 17, noise=1.0)
    half = 1.959963984540054 * ours.bse
    np.testing.assert_allclose(ours.conf_int()[1] - ours.params, half)
    found = ours.wald_test(np.eye(4))
    assert found.df_denom > 1e9
    assert 0.0 <= found.pvalue <= 1.0
    assert "F test" in str(found)


def test_a_bias_widens_everything(frame):
    plain, _ = fitted(frame, FULL, 17, noise=0.3)
    bias = np.array([0.05, 0.0, 0.1, 0.2])
    moved, _ = fitted(frame, FULL, 17, noise=0.3, bias=bias)
    new = frame[20:23]
    for ask in (
        lambda r: np.diff(r.conf_int()).ravel(),
        lambda r: r.pvalues.to_numpy(),
        lambda r: np.diff(r.t_test(np.eye(4)).conf_int()).ravel(),
        lambda r: r.t_test(np.eye(4)).pvalue,
        lambda r: np.diff(r.simultaneous(rng=0).conf_int()).ravel(),
        lambda r: r.simultaneous(rng=0).pvalues.to_numpy(),
        lambda r: np.diff(r.bootstrap(99, "parametric", rng=0).conf_int()).ravel(),
    ):
        narrow, wide = ask(plain), ask(moved)
        np.testing.assert_allclose(wide[1], narrow[1], atol=0.02)
        assert (np.delete(wide, 1) >= np.delete(narrow, 1)).all()
        assert (wide[[0, 2, 3]] > narrow[[0, 2, 3]]).any()
    for ask in (
        lambda r: r.wald_test("x1 = 0").pvalue,
        lambda r: r.f_test("C(g)[a] = C(g)[c] = 0.4").pvalue,
        lambda r: r.f_pvalue,
        lambda r: r.t_test_pairwise("C(g)").result_frame["P>|t|"].max(),
        lambda r: r.wald_test_terms().pvalues.max(),
        lambda r: np.diff(r.delta_method(lambda b: b["x1"] ** 2).conf_int())[0, 0],
        lambda r: np.diff(r.get_prediction(new).conf_int()).min(),
        lambda r: np.diff(r.get_prediction(new).conf_int(obs=True)).min(),
    ):
        assert ask(moved) > ask(plain)
    assert moved.wald_test("x1 = 0").pvalue == pytest.approx(moved.pvalues["x1"])


def test_the_summary_says_what_intervals_rest_on(frame):
    text = " ".join(str(fitted(frame, FULL, 17, bias=np.full(4, 0.01))[0].summary(notes="all")).split())
    for words in (
        "P>|t|",
        "sampling error has 13 degrees of freedom",
        "standard errors, which the release",
        "F-statistic",
        "Adj. R-sq",
    ):
        assert words in text


def test_without_a_residual_variance_there_are_no_new_observations(frame):
    ours, _ = fitted(frame, FULL, 17, scale=None)
    found = ours.get_prediction(frame[:3])
    assert list(found.summary_frame()) == ["mean", "mean_se", "mean_ci_lower", "mean_ci_upper"]
    for ask in (lambda: found.conf_int(obs=True), lambda: found.se_obs):
        with pytest.raises(NotAvailableError, match="scale is not available: the privacy noise hides"):
            ask()


def test_files_keep_bias_and_degrees_of_freedom(frame, tmp_path):
    ours, _ = fitted(frame, FULL, 17, noise=0.2, bias=np.full(4, 0.01))
    ours.save(tmp_path / "r.npz")
    again = load_results(tmp_path / "r.npz")
    assert again.estimate.df_resid == 13.0
    pd.testing.assert_frame_equal(again.conf_int(), ours.conf_int())


def test_a_single_constant_has_no_f_statistic(frame):
    ours, _ = fitted(frame, "y ~ 1", 17)
    with pytest.raises(NotAvailableError, match="besides the constant"):
        _ = ours.fvalue


def test_frames_state_the_bias_that_intervals_allow_for(frame):
    bias = np.full(4, 0.01)
    ours, _ = fitted(frame, FULL, 17, bias=bias)
    found = ours.get_prediction(frame[:3])
    table = found.summary_frame()
    assert "mean_bias_bound" in repr(found)
    half = (table["mean_ci_upper"] - table["mean"]).to_numpy()
    spread = Precision(found.se_mean.to_numpy(), found.mean.df, found.bias_bound.to_numpy())
    np.testing.assert_allclose(half, spread.half_length(0.05))
    test = ours.t_test(np.eye(4))
    assert test.bias_bound.tolist() == pytest.approx(bias.tolist())
    plain, _ = fitted(frame, FULL, 17)
    assert (plain.get_prediction(frame[:3]).bias_bound == 0.0).all()
    assert list(plain.get_prediction(frame[:3]).summary_frame()) == list(table)
    assert list(plain.t_test(np.eye(4)).summary_frame()) == list(test.summary_frame())
    assert plain.t_test(np.eye(4)).bias_bound.tolist() == [0.0] * 4
