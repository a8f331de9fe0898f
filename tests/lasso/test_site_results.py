"""The result of all sites: names, covariances between sites, agreement, forest plots, draws, files."""

import math
import pickle

import numpy as np
import pandas as pd
import pytest

import privinf as pi
from privinf.errors import ArgumentError, NotAvailableError
from privinf.lasso.heterogeneous import results as joint_results
from privinf.lasso.heterogeneous.results import ALL_HIDDEN, SiteResults
from privinf.lasso.precision import entry_noise_covariance
from studies.lasso import LassoDesign

SITES = ("north", "south", "west")
COLUMNS = ("x1", "x5", "x12")
SPEND = {"epsilon": 4.0, "delta": 1e-5, "sparsity": 5, "shared_sparsity": 3, "heterogeneous": True}


@pytest.fixture(scope="module")
def model():
    sample = LassoDesign(machines=3, n=4_000, p=24, sparsity=5, shared_sparsity=3).draw(1)
    labels = np.array(SITES)[sample.machines]
    y = sample.y + 0.3 * sample.X[:, 11] * (labels == "south")
    return pi.DebiasedLasso(y, sample.X, x_bound=3.5, y_bounds=(-5, 5), sites=labels)


@pytest.fixture(scope="module")
def fit(model):
    return model.fit(**SPEND, targets=list(COLUMNS), rng=0)


def test_coefficients_are_named_by_column_and_site(fit):
    assert isinstance(fit, SiteResults)
    assert list(fit.names[:4]) == ["x1[north]", "x5[north]", "x12[north]", "x1[south]"]
    assert fit.pairs[3] == ("south", "x1")
    frame = fit.summary_frame()
    assert frame.index.names == ["site", "column"]
    for label in SITES:
        one = fit.site(label)
        for column in COLUMNS:
            name = f"{column}[{label}]"
            assert fit.params[name] == one.params[column] == frame.loc[(label, column), "coef"]
            assert fit.bse[name] == pytest.approx(one.bse[column], rel=1e-12)
        block = [f"{column}[{label}]" for column in COLUMNS]
        np.testing.assert_allclose(
            fit.cov_params().loc[block, block], one.cov_params(), rtol=1e-12, atol=1e-20
        )
        np.testing.assert_allclose(fit.conf_int().loc[block], one.conf_int(), rtol=1e-9)
    assert fit.nobs == 12_000
    tidy = fit.tidy()
    assert list(tidy.site) == [site for site, _ in fit.pairs]
    assert list(tidy.column) == [column for _, column in fit.pairs]
    with pytest.raises(NotAvailableError, match="site"):
        fit.predict()
    with pytest.raises(ArgumentError, match="unknown site"):
        fit.site("east")


def test_terms_add_up_and_only_one_column_s_errors_are_shared_between_sites(fit):
    formula = fit.variance_formula
    total = sum(formula.covariance(term) for term in formula.variances)
    np.testing.assert_allclose(total, fit.cov_params(), rtol=1e-9, atol=1e-18)
    assert "between sites" in formula.equation
    cov = fit.estimate.cov
    sites, columns = zip(*fit.pairs, strict=True)
    between = np.not_equal.outer(np.array(sites), np.array(sites))
    same = np.equal.outer(np.array(columns), np.array(columns))
    assert (cov[between & ~same] == 0.0).all()
    assert (cov[between & same] != 0.0).all()
    for term in ("sampling", "score noise"):
        assert (formula.covariance(term).to_numpy()[between] == 0.0).all()
    assert np.abs(fit.estimate.corr[between]).max() < 0.2


@pytest.mark.parametrize("seed", range(3))
def test_the_noise_of_one_gram_matrix_moves_sites_together(seed):
    """E (w_a' Z d) (w_b' Z d) against draws of Z and d."""
    rng = np.random.default_rng(seed)
    size, places = 5, np.array([1, 3])
    columns = rng.standard_normal((3, size))
    variances = rng.uniform(0.5, 2.0, (size, size))
    variances = (variances + variances.T) / 2.0
    root = rng.standard_normal((2, 2))
    draws = 200_000
    Z = np.tril(rng.standard_normal((draws, size, size)))
    Z = (Z + np.tril(Z, -1).transpose(0, 2, 1)) * np.sqrt(variances)
    d = rng.standard_normal((draws, 2)) @ root.T
    moved = np.einsum("ia,rab,rb->ri", columns, Z[:, :, places], d)
    expected = entry_noise_covariance(columns, variances, places, root @ root.T)
    spread = np.sqrt(np.outer(np.diag(expected), np.diag(expected)))
    assert (np.abs(moved.T @ moved / draws - expected) < 0.03 * spread).all()


def test_agreement_is_the_wald_test_of_equality(fit):
    agreed = fit.agreement("x1")
    wald = fit.wald_test("x1[north] = x1[south] = x1[west]")
    assert agreed.statistic == pytest.approx(float(wald.statistic), rel=1e-9)
    assert agreed.pvalue == pytest.approx(float(wald.pvalue), rel=1e-9)
    assert agreed.df == 2
    frame = fit.agreement().summary_frame()
    assert list(frame.index) == list(COLUMNS)
    assert frame.loc["x1", "Q"] == pytest.approx(agreed.statistic, rel=1e-9)
    assert frame.loc["x12", "P>Q"] < 1e-6
    assert frame.loc["x1", "P>Q"] > 1e-3
    assert (frame["Holm"] >= frame["P>Q"]).all()
    assert (frame["I2 low"] <= frame["I2"]).all()
    assert (frame["I2"] <= frame["I2 high"]).all()
    every = fit.agreement()
    rejected = every.deviations.reject
    assert rejected["x12[south] - pooled"]
    assert not rejected[["x1[north] - pooled", "x1[south] - pooled", "x1[west] - pooled"]].any()
    joint = fit.wald_test(
        "x1[north] = x1[south] = x1[west], x5[north] = x5[south] = x5[west], "
        "x12[north] = x12[south] = x12[west]"
    )
    assert every.statistic == pytest.approx(float(joint.statistic), rel=1e-8)
    assert every.df == 6
    assert every.to_dict()["format"] == "privinf-table"
    assert every.tidy().term.tolist() == list(COLUMNS)
    assert "Agreement of sites" in repr(every)
    assert "x12" in every._repr_html_()
    with pytest.raises(ArgumentError, match="no site has a coefficient of 'x7'"):
        fit.agreement(["x7"])
    with pytest.raises(ArgumentError, match="column= must be one of"):
        every.plot()


def test_a_forest_has_every_site_and_the_pooled_interval(fit):
    pytest.importorskip("matplotlib")
    ax = fit.agreement(["x1", "x12"]).plot("x12")
    assert [label.get_text() for label in ax.get_yticklabels()] == [*SITES, "pooled"]
    assert "Q = " in ax.get_xlabel()
    assert "SIMULATION" in " ".join(text.get_text() for text in ax.texts)


def test_draws_have_a_variable_per_column_and_a_dimension_of_sites(fit):
    pytest.importorskip("xarray")
    drawn = fit.draws(4_000, rng=1)
    assert list(drawn.data_vars) == list(COLUMNS)
    assert list(drawn.site.values) == list(SITES)
    values = drawn["x12"].sel(site="south").values.ravel()
    assert values.mean() == pytest.approx(fit.params["x12[south]"], abs=5 * fit.bse["x12[south]"] / 60)
    assert values.std() == pytest.approx(fit.bse["x12[south]"], rel=0.1)


def test_results_come_back_from_files_and_pickles(fit, tmp_path):
    path = tmp_path / "sites.privinf"
    fit.save(path)
    for again in (pi.load_results(path), pickle.loads(pickle.dumps(fit))):
        assert isinstance(again, SiteResults)
        assert again.labels == SITES
        pd.testing.assert_series_equal(again.shared_params, fit.shared_params)
        pd.testing.assert_series_equal(again.differs, fit.differs)
        assert str(again.summary()) == str(fit.summary())
        assert repr(again.agreement()) == repr(fit.agreement())
        for label in SITES:
            one, other = again.site(label), fit.site(label)
            assert str(one.summary(notes="all")) == str(other.summary(notes="all"))
            np.testing.assert_array_equal(one.estimate.cov, other.estimate.cov)
            pd.testing.assert_series_equal(one.sparse_params, other.sparse_params)


def test_too_many_coefficients_leave_the_sites_their_intervals(model, monkeypatch, tmp_path):
    monkeypatch.setattr(joint_results, "MOST_COEFFICIENTS", 8)
    fit = model.fit(**SPEND, targets=list(COLUMNS), rng=0)
    assert len(fit.params) == 9
    assert len(fit.weakly_identified) == 0
    for member in (lambda: fit.bse, fit.agreement, lambda: fit.t_test("x1[north]"), fit.summary_frame):
        with pytest.raises(NotAvailableError, match=r"site\(label\)"):
            member()
    with pytest.raises(NotAvailableError, match="too many for one file"):
        fit.save(tmp_path / "sites.privinf")
    assert "agreement" not in dir(fit)
    assert np.isfinite(fit.site("west").conf_int().to_numpy()).all()
    assert len(pickle.loads(pickle.dumps(fit)).site("west").params) == 3


def test_where_noise_hides_every_target_the_sparse_fits_are_left(model, tmp_path):
    fit = model.fit(**SPEND | {"epsilon": 0.02}, targets=list(COLUMNS), rng=0)
    assert fit.estimate.weak_reason == ALL_HIDDEN
    assert len(fit.params) == 9
    assert set(fit.hidden_targets) == set(fit.names)
    assert list(fit.weakly_identified.index) == list(fit.names)
    with pytest.raises(NotAvailableError, match="hides the slopes"):
        fit.conf_int()
    path = tmp_path / "sites.privinf"
    fit.save(path)
    again = pi.load_results(path)
    pd.testing.assert_series_equal(again.params, fit.params)
    assert str(again.site("north").summary()) == str(fit.site("north").summary())
    assert math.isinf(fit.to_frame()["widest"].max())


def test_own_nodewise_regressions_share_only_slopes(model):
    fit = model.fit(**SPEND, targets=list(COLUMNS), precision="machine", rng=0)
    columns = fit.variance_formula.covariance("precision columns").to_numpy()
    sites = np.array([site for site, _ in fit.pairs])
    assert (columns[np.not_equal.outer(sites, sites)] == 0.0).all()
