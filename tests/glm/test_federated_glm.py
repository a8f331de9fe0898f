"""FederatedGLM: maximum likelihood without noise, intervals with it, mutants, entry points, refusals."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy.special import expit

import privinf as pi
from privinf.errors import (
    ArgumentError,
    BudgetExceededError,
    ConvergenceError,
    NotAvailableError,
    NotPositiveDefiniteError,
    SchemaError,
    SensitivityError,
    WeakIdentificationWarning,
)
from privinf.federation import InProcessFederation, Site, SitePolicy
from privinf.glm.newton import semidefinite
from privinf.mechanisms.catalogue import SITE_OPS
from privinf.mechanisms.statistics.glm import GLM_OPS
from studies.simulation import binomial_limits

TRUE = np.array([0.3, 0.5, -0.5, 0.0, 1.0])
COLUMNS = ["const", "a", "b", "c", "d"]
BOUNDS = {"a": (-1, 3), "b": (-1, 1), "c": (-1, 1), "d": (-1, 1)}
Y_BOUNDS = {"gaussian": (-4.0, 5.0), "binomial": None, "poisson": (0, 40)}
FAMILIES = {
    "gaussian": sm.families.Gaussian(),
    "binomial": sm.families.Binomial(),
    "poisson": sm.families.Poisson(),
}


def draw(family, n, seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.uniform(-1, 1, (n, 5)), columns=COLUMNS)
    X["const"] = 1.0
    eta = X.to_numpy() @ TRUE
    y = {
        "gaussian": lambda: eta + rng.normal(0.0, 0.5, n),
        "binomial": lambda: (rng.uniform(size=n) < expit(eta)).astype(float),
        "poisson": lambda: rng.poisson(np.exp(eta)).astype(float),
    }[family]()
    return y, X


def model_of(family, y, X, sites=8, **options):
    parts = np.array_split(np.arange(len(y)), sites)
    given = {"bounds": BOUNDS, "y_bounds": Y_BOUNDS[family]} | options
    return pi.FederatedGLM.from_arrays([(y[i], X.iloc[i]) for i in parts], family=family, **given)


@pytest.mark.parametrize("family", FAMILIES)
def test_without_noise_it_is_pooled_maximum_likelihood(family):
    y, X = draw(family, 1500)
    fit = model_of(family, y, X).fit(epsilon=np.inf)
    pooled = sm.GLM(y, X, family=FAMILIES[family]).fit(cov_type="HC0", tol=1e-14, maxiter=100)
    np.testing.assert_allclose(fit.params, pooled.params, rtol=0, atol=1e-6)
    np.testing.assert_allclose(fit.cov_params(), pooled.cov_params(), rtol=1e-6, atol=1e-9)
    rows = X.iloc[:5].assign(a=[0.0, 2.9, -0.3, 1.0, 2.0])
    expected = pooled.get_prediction(rows).summary_frame()
    np.testing.assert_allclose(fit.predict(rows), expected["mean"], rtol=1e-6)
    np.testing.assert_allclose(fit.get_prediction(rows).se_mean, expected["mean_se"], rtol=1e-5)
    assert list(fit.trace.columns) == COLUMNS
    np.testing.assert_allclose(fit.trace.iloc[-1], fit.params, atol=1e-8)


@pytest.mark.parametrize("family", ["binomial", "poisson"])
def test_the_models_variance_may_be_taken_for_the_meat(family):
    y, X = draw(family, 1500)
    model = model_of(family, y, X, sites=3)
    fit = model.fit(epsilon=np.inf, cov_type="nonrobust")
    pooled = sm.GLM(y, X, family=FAMILIES[family]).fit(tol=1e-14, maxiter=100)
    np.testing.assert_allclose(fit.cov_params(), pooled.cov_params(), rtol=1e-6, atol=1e-9)
    assert "nonrobust" in fit.summary().as_text()
    assert not any("meat" in line.label for line in fit.privacy.entries)


def test_without_a_meat_its_share_goes_to_the_others():
    y, X = draw("binomial", 20_000)
    noisy = model_of("binomial", y, X, sites=2).fit(
        epsilon=2.0, delta=1e-6, cov_type="nonrobust", optimizer=pi.Newton(), rng=0
    )
    assert noisy.privacy.epsilon(1e-6) == pytest.approx(2.0, rel=1e-6)
    final = np.array([line.loss.mu**2 for line in noisy.privacy.entries[-2:]])
    np.testing.assert_allclose(final, np.array([7.0, 2.0]) / 9.0 * 0.8 * noisy.privacy.mu**2, rtol=1e-9)
    assert (np.abs(noisy.params - TRUE) < 4.0 * noisy.bse).all()
    with pytest.raises(ArgumentError, match="not available for least squares"):
        model_of("gaussian", *draw("gaussian", 100)).fit(
            epsilon=1.0, delta=1e-6, cov_type="nonrobust", optimizer=pi.Newton()
        )
    with pytest.raises(ArgumentError, match="cov_type"):
        model_of("binomial", y[:100], X[:100]).fit(epsilon=1.0, delta=1e-6, cov_type="HC3")


def test_the_summary_says_whether_tuning_was_charged():
    y, X = draw("binomial", 20_000)
    ledger = pi.Ledger()
    model = model_of("binomial", y, X, sites=2, ledger=ledger)
    alone = model.fit(epsilon=1.0, delta=1e-6, rng=0)
    assert any("does not count" in note for note in alone.notes)
    after = model.fit(epsilon=1.0, delta=1e-6, rng=1)
    (note,) = [note for note in after.notes if "earlier releases" in note]
    assert note.startswith("The ledger also contains 9 earlier releases")
    assert f"epsilon {after.privacy.cumulative.epsilon(1e-6):.4g}" in note
    assert "9 earlier releases" in after.summary(notes="all").as_text().replace("\n", " ")


def test_a_formula_over_a_federation_is_the_same_fit():
    y, X = draw("binomial", 900)
    table = X.assign(y=y)
    schema = pi.Schema({"y": pi.Numeric(0, 1)} | {k: pi.Numeric(*b) for k, b in BOUNDS.items()})
    policy = SitePolicy(trusted_server=True, simulation=True)
    sites = {str(i): Site(table.iloc[i::3], schema, policy=policy) for i in range(3)}
    by_formula = pi.FederatedGLM.from_formula(
        "y ~ a + b + c + d", InProcessFederation(sites), schema=schema, family="binomial"
    ).fit(epsilon=np.inf)
    arrays = model_of("binomial", y, X).fit(epsilon=np.inf)
    np.testing.assert_allclose(by_formula.params, arrays.params, atol=1e-10)
    framed = pi.FederatedGLM.from_formula("y ~ a + b + c + d", table, schema=schema, family="binomial")
    np.testing.assert_allclose(framed.fit(epsilon=np.inf).params, arrays.params, atol=1e-10)
    np.testing.assert_allclose(by_formula.predict(table[:3]), arrays.predict(X[:3]), atol=1e-10)


def test_public_columns_and_levels_are_scaled_and_bounded():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {"a": rng.uniform(-1, 3, 6000), "g": rng.choice(list("uvw"), 6000), "t": rng.uniform(0, 40, 6000)}
    )
    table["y"] = (rng.uniform(size=6000) < expit(0.4 * table["a"] + 0.05 * table["t"] - 1.0)).astype(float)
    schema = pi.Schema(
        {
            "y": pi.Numeric(0, 1),
            "a": pi.Numeric(-1, 3),
            "g": pi.Factor(list("uvw")),
            "t": pi.Numeric(0, 40, public=True),
        }
    )
    model = pi.FederatedGLM.from_formula("y ~ a + g + t", table, schema=schema, family="binomial")
    # constant, a, one of two levels, t: each at most 1
    assert model._rows.radius == pytest.approx(2.0)
    pooled = sm.GLM.from_formula("y ~ a + g + t", table, family=sm.families.Binomial()).fit(cov_type="HC0")
    fit = model.fit(epsilon=np.inf)
    np.testing.assert_allclose(fit.params, pooled.params[list(fit.names)], atol=1e-6)
    np.testing.assert_allclose(fit.bse, pooled.bse[list(fit.names)], rtol=1e-6)
    noisy = model.fit(epsilon=4.0, delta=1e-6, rng=0)
    assert (np.abs(noisy.params - fit.params) < 4.0 * noisy.bse_privacy).all()
    with pytest.raises((SensitivityError, SchemaError), match="'h'"):
        pi.FederatedGLM.from_formula("y ~ a + h", table.assign(h=1.0), schema=schema, family="binomial")


def test_secure_sums_give_the_same_fit_and_the_same_law_of_the_noise():
    y, X = draw("binomial", 8000)
    trusted, secure = (model_of("binomial", y, X, sites=4, trust=trust) for trust in ("server", "secure-sum"))
    exact = [model.fit(epsilon=np.inf) for model in (trusted, secure)]
    np.testing.assert_allclose(exact[1].params, exact[0].params, atol=1e-8)
    np.testing.assert_allclose(exact[1].bse, exact[0].bse, atol=1e-8)
    spent = {"epsilon": 2.0, "delta": 1e-6, "rng": 0, "optimizer": pi.Newton()}
    noisy = [model.fit(**spent) for model in (trusted, secure)]
    colluding = secure.fit(**spent, max_colluding=1)
    for fit in (*noisy, colluding):
        assert fit.privacy.epsilon(1e-6) == pytest.approx(2.0, rel=1e-6)
        assert (np.abs(fit.params - TRUE) < 4.0 * fit.bse).all()
    ratios = [fit.bse_privacy.mean() / noisy[0].bse_privacy.mean() for fit in (noisy[1], colluding)]
    # three of four sites carry the promise: the whole has 4/3 of the variance
    assert ratios[0] == pytest.approx(1.0, rel=0.1)
    assert ratios[1] == pytest.approx(math.sqrt(4 / 3), rel=0.1)
    assert noisy[1].options["Trust"] == "secure-sum"
    secret = secure.fit(epsilon=2.0, delta=1e-6, optimizer=pi.DOME(k=3, most_learned=1, epochs=1))
    assert not secret.privacy.simulated
    assert secret.privacy.epsilon(1e-6) <= 2.0
    with pytest.raises(ArgumentError, match="max_colluding"):
        trusted.fit(epsilon=2.0, delta=1e-6, max_colluding=1)
    with pytest.raises(ArgumentError, match="trust"):
        model_of("binomial", y, X, trust="anybody")


def test_the_whole_facade(tmp_path):
    y, X = draw("binomial", 20_000)
    model = model_of("binomial", y, X)
    fit = model.fit(epsilon=2.0, delta=1e-6, optimizer=pi.Newton(), rng=0)
    assert fit.privacy.epsilon(1e-6) == pytest.approx(2.0, rel=1e-6)
    assert fit.privacy.epsilon(1e-6) <= 2.0
    assert "federation" not in repr(fit)
    np.testing.assert_allclose(fit.t_test(np.eye(5)).tvalue.ravel(), fit.tvalues)
    np.testing.assert_allclose(fit.bse**2, fit.bse_sampling**2 + fit.bse_privacy**2)
    for text in (fit.summary().as_text(), fit.summary().as_html(), fit.summary().as_latex()):
        assert "FederatedGLM" in text
    fit.save(tmp_path / "fit.privinf")
    again = pi.load_results(tmp_path / "fit.privinf")
    assert type(again) is type(fit)
    pd.testing.assert_frame_equal(again.trace, fit.trace)
    pd.testing.assert_series_equal(again.bse, fit.bse)
    sent = fit.communication
    # three rounds of score and Hessian, then score, Hessian and meat
    assert list(sent["floats_up"]) == [5, 15] * 3 + [5, 15, 15]
    assert (sent["bytes_up"] == 8 * sent["floats_up"]).all()
    assert (sent["floats_down"] <= 15).all()
    for test in (None, again.names[1:3], {again.names[1]: 0.1}):
        assert again.score_test(test).statistic == pytest.approx(fit.score_test(test).statistic, rel=1e-9)


def test_every_round_is_charged_and_sites_agree():
    y, X = draw("binomial", 5000)
    ledger = pi.Ledger(pi.Budget(epsilon=2.0, delta=1e-6))
    model = model_of("binomial", y, X, ledger=ledger)
    fit = model.fit(epsilon=1.0, delta=1e-6, optimizer=pi.Newton(rounds=2, final_share=0.7), rng=0)
    assert len(fit.privacy.entries) == 2 * 2 + 3
    assert fit.privacy.mu == pytest.approx(pi.Budget(epsilon=1.0, delta=1e-6).mu, rel=1e-9)
    sites = model._rows.federation._sites.values()
    assert all(math.isclose(site.ledger.total().mu, fit.privacy.mu) for site in sites)
    final = [entry.loss.mu**2 for entry in fit.privacy.entries[-3:]]
    np.testing.assert_allclose(final, np.array([0.7, 0.2, 0.1]) * 0.7 * fit.privacy.mu**2, rtol=1e-9)
    with pytest.raises(BudgetExceededError):
        model.fit(epsilon=2.0, delta=1e-6, rng=0)
    assert len(ledger.entries) == 7


@pytest.mark.audit
@pytest.mark.parametrize("trust", ["server", "secure-sum"])
@pytest.mark.parametrize(
    "optimizer", [pi.Newton(), pi.DPSGD(epochs=12, batches=3, step=6.0)], ids=["Newton", "DPSGD"]
)
def test_zero_out_costs_a_quarter_of_the_rho_and_says_so(trust, optimizer):
    y, X = draw("binomial", 20_000)
    settings = {"epsilon": 1.0, "delta": 1e-6, "optimizer": optimizer, "rng": 1}
    full, half = (
        model_of("binomial", y, X, sites=3, trust=trust).fit(**settings, relation=relation)
        for relation in ("replace-one", "zero-out")
    )
    assert half.privacy.relation == "zero-out"
    assert half.options["Neighbors"] == "zero-out"
    assert "zero-out" in half.summary().as_text()
    assert "Neighbors" not in full.options
    assert half.privacy.mu == pytest.approx(full.privacy.mu, rel=1e-9)
    scales = [{entry.label: entry.noise["scale"] for entry in fit.privacy.entries} for fit in (full, half)]
    # two orthogonal matrices are sqrt 2 apart, two scores up to twice their length
    assert scales[1]["final Hessian"] == pytest.approx(scales[0]["final Hessian"] / math.sqrt(2.0), rel=1e-5)
    first = "score, round 1" if optimizer == pi.Newton() else "gradient"
    assert scales[1][first] == pytest.approx(scales[0][first] / 2.0, rel=0.02)
    assert 0.5 < half.bse_privacy.mean() / full.bse_privacy.mean() < 0.8


def test_relations_are_not_mixed():
    y, X = draw("binomial", 5000)
    model = model_of("binomial", y, X)
    model.fit(epsilon=1.0, delta=1e-6, rng=0)
    spent = len(model.ledger)
    with pytest.raises(ArgumentError, match="under different neighboring relations"):
        model.fit(epsilon=1.0, delta=1e-6, rng=0, relation="zero-out")
    with pytest.raises(ArgumentError, match="relation"):
        model.fit(epsilon=1.0, delta=1e-6, rng=0, relation="add-remove")
    assert len(model.ledger) == spent


def test_secure_noise_is_the_default():
    y, X = draw("binomial", 3000)
    fit = model_of("binomial", y, X, sites=2).fit(epsilon=8.0, delta=1e-6)
    assert not fit.privacy.simulated
    assert (np.abs(fit.params - TRUE) < 6.0 * fit.bse).all()


# ---- intervals

D, N = 10, 10_000
BETA = np.array([0.8, -0.6, 0.5, -0.4, 0.3, -0.2, 0.1, 0.0, 0.0, 0.5])


def replications(epsilon, count):
    """Return errors, standard errors and sampling standard errors of private logistic fits, (count, D)."""
    found = []
    for seed in range(count):
        rng = np.random.default_rng([7, seed])
        X = rng.choice([-1.0, 1.0], (N, D))
        y = (rng.uniform(size=N) < expit(X @ BETA)).astype(float)
        sites = [(y[i::4], X[i::4]) for i in range(4)]
        model = pi.FederatedGLM.from_arrays(sites, bounds=[(-1, 1)] * D, family="binomial")
        fit = model.fit(epsilon=epsilon, delta=1e-6, optimizer=pi.Newton(), rng=rng)
        found.append((fit.params - BETA, fit.bse, fit.bse_sampling))
    return np.swapaxes(np.array(found), 0, 1)


def coverage(errors, bse):
    return float((np.abs(errors) < 1.959964 * bse).mean())


@pytest.mark.audit
def test_intervals_cover_and_those_without_the_noise_do_not():
    count = 25
    errors, bse, sampling = replications(0.5, count)
    low, high = binomial_limits(0.95, count * D)
    assert low <= coverage(errors, bse) <= high
    assert coverage(errors, sampling) < 0.9
    assert np.median(bse / sampling) > 1.2


@pytest.mark.audit
def test_clipping_whole_scores_is_seen(monkeypatch):
    """Scores clipped at 2, and not weighted in x: the estimate is biased however small the noise is."""
    whole = GLM_OPS["glm.sketched_score"]
    clipped = replace(
        GLM_OPS["glm.score"], function=lambda block, args: whole.function(block, {**args, "clip": 2.0})
    )
    errors, bse, _ = replications(np.inf, 4)
    assert coverage(errors, bse) > 0.8
    monkeypatch.setitem(SITE_OPS, "glm.score", clipped)
    errors, bse, _ = replications(np.inf, 4)
    assert coverage(errors, bse) < 0.6


def test_a_noisy_meat_becomes_semidefinite_and_keeps_its_trace():
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((6, 6))
    matrix = np.diag([3.0, 2.0, 1.0, 0.2, 0.1, 0.0]) + 0.4 * (noise + noise.T)
    assert np.linalg.eigvalsh(matrix)[0] < 0.0
    found = semidefinite(matrix)
    assert np.linalg.eigvalsh(found)[0] > -1e-12
    assert np.trace(found) == pytest.approx(np.trace(matrix))
    # no other such matrix is nearer: random ones of the same trace
    for _ in range(200):
        half = rng.standard_normal((6, 6)) * rng.uniform(0.0, 1.0, 6)
        other = half @ half.T + 20.0 * rng.uniform() * found
        other *= np.trace(matrix) / np.trace(other)
        assert np.linalg.norm(other - matrix) >= np.linalg.norm(found - matrix)
    fine = matrix + 3.0 * np.eye(6)
    np.testing.assert_allclose(semidefinite(fine), fine, atol=1e-12)
    assert not semidefinite(-fine).any()


def test_rows_that_are_weighted_down_keep_the_coefficients():
    rng = np.random.default_rng(2)
    X = rng.uniform(-1.0, 1.0, (60_000, D))
    y = (rng.uniform(size=len(X)) < expit(X @ BETA)).astype(float)
    fit = pi.FederatedGLM.from_arrays([(y, X)], bounds=[(-1, 1)] * D, family="binomial", radius=1.5).fit(
        epsilon=np.inf
    )
    assert ((X**2).sum(axis=1) > 1.5**2).mean() > 0.8
    assert (np.abs(fit.params - BETA) < 3.5 * fit.bse).all()


@pytest.mark.parametrize("family", ["gaussian", "poisson"])
def test_other_families_with_noise(family):
    y, X = draw(family, 60_000, seed=3)
    options = {"residual_clip": 2.0} if family == "gaussian" else {"y_bounds": (0, 12)}
    fit = model_of(family, y, X, sites=2, **options).fit(epsilon=2.0, delta=1e-6, rng=4)
    reference = sm.GLM(y, X, family=FAMILIES[family]).fit(cov_type="HC0")
    # In 30 seeds bounds of the scores moved "a" by .94 of these errors on the average; sds were up to 1.35.
    assert (np.abs(fit.params - reference.params) < 5.0 * fit.bse_privacy).all()
    assert (fit.bse > reference.bse).all()


def test_a_clip_that_binds_gives_the_clipped_score_estimate():
    y, X = draw("gaussian", 2000)
    y[::20] += 3.0
    fit = model_of("gaussian", y, X, y_bounds=(-10, 10), residual_clip=0.6).fit(epsilon=np.inf)
    rows = X.to_numpy()
    raw = y - rows @ fit.params.to_numpy()
    np.testing.assert_allclose(rows.T @ np.clip(raw, -0.6, 0.6) / len(y), 0.0, atol=1e-9)
    bread = np.linalg.inv((rows * (np.abs(raw) < 0.6)[:, None]).T @ rows)
    meat = (rows * (np.clip(raw, -0.6, 0.6) ** 2)[:, None]).T @ rows
    np.testing.assert_allclose(fit.cov_params(), bread @ meat @ bread, rtol=1e-6, atol=1e-10)
    assert np.abs(fit.params - TRUE).max() < 0.15


@pytest.mark.audit
@pytest.mark.filterwarnings("ignore::privinf.errors.MisfitWarning")
def test_a_hessian_that_the_noise_hides_leaves_coefficients_without_intervals():
    y, X = draw("binomial", 5000)
    y, X = y[:3000], X[:3000].assign(c=X["b"][:3000])
    model = model_of("binomial", y, X)
    fit = model.fit(epsilon=1.0, delta=1e-6, optimizer=pi.Newton(), rng=0)
    assert "Newton" in fit.method
    assert np.isfinite(fit.params).all()
    with pytest.raises(NotAvailableError, match="noise hides the Hessian"):
        fit.conf_int()
    assert "FederatedGLM" in fit.summary().as_text()
    posterior = model.fit(epsilon=1.0, delta=1e-6, rng=0)
    assert posterior.cov_type == "posterior"
    assert "posterior with a normal prior (standard deviation 5)" in posterior.summary().as_text().replace(
        "\n    ", " "
    )
    with pytest.warns(WeakIdentificationWarning, match="the prior influences the coefficients b, c"):
        ends = posterior.conf_int().loc[["b", "c"]].to_numpy()
    assert (ends[:, 1] - ends[:, 0] > 5.0).all()


def test_bad_requests():
    y, X = draw("binomial", 300)
    with pytest.raises(ArgumentError, match="family"):
        pi.FederatedGLM.from_arrays([(y, X)], bounds=BOUNDS, family="gamma")
    with pytest.raises(ArgumentError, match="y_bounds"):
        model_of("binomial", y, X, y_bounds=(0, 1))
    with pytest.raises(SchemaError, match="y_bounds"):
        model_of("gaussian", y, X, y_bounds=None)
    with pytest.raises(SchemaError, match="not negative"):
        model_of("poisson", y, X, y_bounds=(-1, 4))
    with pytest.raises(ArgumentError, match="residual_clip"):
        model_of("binomial", y, X, residual_clip=1.0)
    with pytest.raises(SensitivityError):
        model_of("binomial", y, X, bounds=None)
    with pytest.raises(ArgumentError, match="at least one pair"):
        pi.FederatedGLM.from_arrays([], bounds=BOUNDS, family="binomial")
    with pytest.raises(ArgumentError, match="other columns"):
        pi.FederatedGLM.from_arrays([(y, X), (y, X[["const", "a"]])], bounds=BOUNDS, family="binomial")
    model = model_of("binomial", y, X)
    for bad in ({"epsilon": -1.0}, {"epsilon": 1.0, "delta": 2.0}):
        with pytest.raises(ArgumentError):
            model.fit(**bad)
    assert len(model.ledger) == 0
    with pytest.raises(ArgumentError):
        pi.Newton(rounds=0)
    with pytest.raises(ArgumentError):
        pi.Newton(final_share=1.0)
    schema = pi.Schema({"y": pi.Numeric(0, 2), "a": pi.Numeric(-1, 1)})
    with pytest.raises(SchemaError, match="0 or 1"):
        pi.FederatedGLM.from_formula("y ~ a", X.assign(y=y), schema=schema, family="binomial")


def test_no_finite_or_unique_estimate_is_said():
    y, X = draw("binomial", 300)
    separated = (X["b"] > 0).astype(float).to_numpy()
    with pytest.raises((ConvergenceError, NotPositiveDefiniteError)):
        model_of("binomial", separated, X).fit(epsilon=np.inf)
    with pytest.raises(NotPositiveDefiniteError, match="linearly dependent"):
        model_of("binomial", y, X.assign(c=X["b"])).fit(epsilon=np.inf)


def test_models_are_not_pickled():
    import pickle

    y, X = draw("binomial", 100)
    with pytest.raises(TypeError, match="raw rows"):
        pickle.dumps(model_of("binomial", y, X))
