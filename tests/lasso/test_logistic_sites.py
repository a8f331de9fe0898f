"""Logistic DebiasedLasso over sites of their own coefficients: estimates, budget, rare responses, tests."""

import math
import warnings

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

import privinf as pi
from privinf.accounting import Ledger
from privinf.errors import ArgumentError, NotAvailableError, WeakIdentificationWarning
from privinf.lasso.heterogeneous.results import SiteResults
from privinf.lasso.plan import LogisticSiteShares

N, P = 5_000, 12
LABELS = ("north", "south", "west")
SHARED = {2: 1.0, 9: -0.8}
OWN = 0.5  # of column 5, at the first site alone
TARGETS = [2, 5, 10]
TRUTH = np.array([1.0, OWN, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0])  # of the targets, by site
NAMES = [f"x{j + 1}" for j in TARGETS]
SPEND = {
    "epsilon": 3.0,
    "delta": 1e-6,
    "sparsity": 3,
    "shared_sparsity": 2,
    "heterogeneous": True,
    "targets": TARGETS,
}


def draw(seed=0, n=N, intercepts=(-0.5, 0.1, 0.7)):
    """Return response, columns and sites; every site has an intercept of its own."""
    rng = np.random.default_rng([seed, 23])
    sites = np.repeat(np.arange(3), n)
    X = np.clip(rng.standard_normal((3 * n, P)), -4.0, 4.0)
    eta = np.take(intercepts, sites) + sum(effect * X[:, j] for j, effect in SHARED.items())
    eta += OWN * X[:, 5] * (sites == 0)
    y = (rng.random(3 * n) < 1.0 / (1.0 + np.exp(-eta))).astype(float)
    return y, X, np.array(LABELS)[sites]


def model(rows=None, **options):
    y, X, sites = draw() if rows is None else rows
    return pi.DebiasedLasso(y, X, x_bound=4.0, family="binomial", sites=sites, **options)


@pytest.fixture(scope="module")
def fit():
    return model().fit(**SPEND, rng=1)


def test_every_site_has_a_result_and_all_have_one(fit):
    assert isinstance(fit, SiteResults)
    assert list(fit.names) == [f"{name}[{label}]" for label in LABELS for name in NAMES]
    assert (np.abs(fit.params - TRUTH) < 4.0 * fit.bse).all()
    assert set(fit.shared_params[fit.shared_params != 0.0].index) == {"x3", "x10"}
    assert fit.shared_params["x3"] == pytest.approx(1.0, abs=0.15)
    north = fit.site("north")
    assert north.family == "binomial"
    assert set(north.selected) == {"x3", "x6", "x10"}
    np.testing.assert_allclose(north.params, fit.params[:3])
    np.testing.assert_allclose(north.odds_ratios()["odds ratio"], np.exp(north.params))
    assert list(fit.to_frame().columns) == ["rows", "selected", "rate", "narrowest", "widest"]
    summary = str(fit.summary())
    assert "Rate" not in summary.split("coef")[0]
    assert "Shared part" in summary
    with pytest.raises(NotAvailableError, match="logistic fits"):
        _ = fit.differs


def test_errors_of_two_sites_are_independent(fit):
    sites = np.array([site for site, _ in fit.pairs])
    between = np.not_equal.outer(sites, sites)
    assert (fit.estimate.cov[between] == 0.0).all()
    formula = fit.variance_formula
    np.testing.assert_allclose(
        sum(formula.covariance(term) for term in formula.variances), fit.cov_params(), rtol=1e-9, atol=1e-18
    )


def test_agreement_finds_the_column_whose_effect_one_site_has(fit):
    assert fit.agreement("x6").pvalue < 0.01
    assert fit.agreement(["x3", "x11"]).pvalue > 0.01
    assert fit.agreement("x6").deviations.max_t.single_step[0] < 0.05


def test_nodewise_regressions_are_always_those_of_the_site(fit):
    pd.testing.assert_series_equal(model().fit(**SPEND, precision="machine", rng=1).params, fit.params)


def test_a_file_restores_it(fit, tmp_path):
    fit.save(tmp_path / "fit.privinf")
    again = pi.load_results(tmp_path / "fit.privinf")
    pd.testing.assert_series_equal(again.params, fit.params)
    assert repr(again.agreement()) == repr(fit.agreement())
    assert again.site("west").family == "binomial"
    assert str(again.summary()) == str(fit.summary())


def test_without_noise_every_site_has_its_own_maximum_likelihood():
    y, X, sites = draw()
    fit = model().fit(**SPEND | {"epsilon": math.inf}, rng=1)
    for label in LABELS:
        here = sites == label
        logit = sm.Logit(y[here], sm.add_constant(X[here])).fit(disp=0, cov_type="HC0")
        one = fit.site(label)
        assert (np.abs(one.params - logit.params[1:][TARGETS]) < 0.03 * one.bse).all()  # a Newton step away
        np.testing.assert_allclose(one.bse, logit.bse[1:][TARGETS], rtol=0.02)


def test_a_record_pays_for_the_shared_part_and_its_own_site():
    ledger = Ledger()
    fit = model(ledger=ledger).fit(**SPEND, rng=1)
    assert fit.privacy.epsilon() == pytest.approx(SPEND["epsilon"], rel=0.01)
    assert fit.privacy.epsilon() <= SPEND["epsilon"] * (1.0 + 1e-9)
    assert fit.interval_epsilon == pytest.approx(SPEND["epsilon"], rel=1e-6)
    shares = LogisticSiteShares()
    fields = {name: getattr(shares, name) for name in shares.__dataclass_fields__}
    assert sum(fields.values()) == pytest.approx(1.0)
    with pytest.raises(ArgumentError, match="shares"):
        model(ledger=ledger).fit(**SPEND, shares=fields | {"score": 0.5}, rng=1)
    other = fields | {"score": fields["score"] + 0.05, "gram": fields["gram"] - 0.05}
    assert model().fit(**SPEND, shares=other, rng=1).privacy.epsilon() <= SPEND["epsilon"] * (1.0 + 1e-9)


def test_a_site_whose_response_is_rare_pays_for_its_rate_and_has_no_interval():
    fit = model(draw(intercepts=(-0.5, 0.1, -9.0))).fit(**SPEND, rng=1)
    assert [site for site, _ in fit.pairs] == ["north"] * 3 + ["south"] * 3
    west = fit.site("west")
    assert west.estimate.cov is None
    assert "too rare" in west.estimate.weak_reason
    assert set(west.hidden_targets) == set(NAMES)
    # Of the regression on all rows, which the unequal intercepts attenuate.
    assert 0.4 < west.params["x3"] < 1.0
    assert any("west" in name for name in fit.hidden_targets)
    with pytest.warns(WeakIdentificationWarning, match=r"Site west: No interval .* too rare"):
        assert fit.agreement("x6").pvalue < 0.01


@pytest.mark.parametrize("epsilon", [3.0, math.inf])
def test_a_site_of_one_row_loses_no_other_site(epsilon):
    """As after a typing error in one label."""
    y, X, sites = draw()
    sites = np.where(np.arange(len(sites)) == 5, "nroth", sites.astype(object))
    fit = model((y, X, sites)).fit(**SPEND | {"epsilon": epsilon}, rng=1)
    single = fit.site("nroth")
    assert single.nobs == 1
    assert "too rare" in single.estimate.weak_reason
    assert 0.0 < float(fit.to_frame().loc["nroth", "rate"]) < 1.0
    assert [site for site, _ in fit.pairs] == [label for label in LABELS for _ in TARGETS]


def test_epsilon_of_a_budget_in_rho_is_that_at_one_part_in_two_n(monkeypatch):
    monkeypatch.setattr("privinf.accounting.report.DEFAULT_DELTA", 0.5)
    words = {name: value for name, value in SPEND.items() if name not in ("epsilon", "delta")}
    fit = model().fit(**words, rho=0.5, rng=1)
    assert fit.privacy.default_delta == 0.5 / (3 * N)


def test_where_the_response_is_rare_everywhere_the_rate_alone_is_charged():
    fit = model(draw(intercepts=(-9.0, -9.0, -9.0))).fit(**SPEND, rng=1)
    assert fit.estimate.cov is None
    assert fit.privacy.epsilon() < 0.5 * SPEND["epsilon"]
    assert (fit.shared_params == 0.0).all()
    assert len(fit.site("north").sparse_params) == P
    assert fit.to_dict()["coefficients"] == []
    with pytest.warns(WeakIdentificationWarning, match="too rare"):
        assert fit.tidy().empty


def test_dropped_rows_are_counted_at_every_site():
    y, X, sites = draw()
    X[::7, 3] = np.nan
    fit = model((y, X, sites), missing="drop").fit(**SPEND, rng=1)
    complete = np.isfinite(X).all(axis=1)
    for label in LABELS:
        assert abs(fit.site(label).nobs - complete[sites == label].sum()) < 400
    assert (np.abs(fit.params - TRUTH) < 4.0 * fit.bse).all()


def test_a_formula_has_a_constant_at_every_site():
    y, X, sites = draw()
    table = pd.DataFrame(X[:, :6], columns=[f"v{j}" for j in range(6)]).assign(y=y, place=sites)
    schema = pi.Schema(
        {name: (-4.0, 4.0) for name in table.columns[:6]} | {"y": (0, 1), "place": list(LABELS)}
    )
    built = pi.DebiasedLasso.from_formula(
        "y ~ v0 + v1 + v2 + v3 + v4 + v5", table, schema=schema, family="binomial", sites="place"
    )
    fit = built.fit(**SPEND | {"targets": ["v2", "v5"], "sparsity": 2, "shared_sparsity": 1}, rng=1)
    assert fit.site("north").params["v5"] == pytest.approx(OWN, abs=0.3)
    chances = fit.site("north").predict_sparse(table[:5])
    assert ((chances > 0.0) & (chances < 1.0)).all()


REFUSED = [
    ({"shared_sparsity": None}, ArgumentError, "requires shared_sparsity="),
    ({"shared_sparsity": 3}, ArgumentError, "must be less than"),
    ({"targets": "all"}, NotAvailableError, "or a list|a list of columns"),
    ({"targets": "selected"}, ArgumentError, "requires a list of columns"),
    ({"sparsity": "auto"}, ArgumentError, "a number as sparsity="),
    ({"accounting": "per-interval"}, NotAvailableError, "family='gaussian' and heterogeneous=True"),
    ({"variant": "paper"}, NotAvailableError, "cannot be used with variant='paper'"),
    ({"center": "released"}, ArgumentError, "family='binomial' and heterogeneous=True"),
    ({"epsilon": 0.01}, NotAvailableError, "too few"),
]


@pytest.mark.parametrize(("words", "error", "says"), REFUSED)
def test_refusals_charge_nothing(words, error, says):
    ledger = Ledger()
    with pytest.raises(error, match=says):
        model(ledger=ledger).fit(**SPEND | words, rng=1)
    assert len(ledger) == 0


def test_secure_sums_need_common_coefficients():
    with pytest.raises(NotAvailableError, match="heterogeneous=False"):
        model(trust="secure-sum").fit(**SPEND, rng=1)


@pytest.mark.audit
def test_intervals_cover_and_agreement_has_its_size():
    hits, rejected = [], []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(60):
            fit = model(draw(seed)).fit(**SPEND, rng=seed)
            low, high = fit.conf_int().to_numpy().T
            hits += ((low <= TRUTH) & (high >= TRUTH)).tolist()
            rejected.append(fit.agreement(["x3", "x11"]).pvalue <= 0.05)
    assert 0.92 <= np.mean(hits) <= 0.98
    assert np.mean(rejected) <= 0.15
