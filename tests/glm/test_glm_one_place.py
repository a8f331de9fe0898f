"""`FederatedGLM(y, X)`: rows in one place, with a trusted curator."""

import math
import warnings

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy.special import expit

import privinf as pi
from privinf.errors import ArgumentError, ChangedTargetWarning, SchemaError, SensitivityError
from studies.simulation import binomial_limits

BETA = np.array([0.3, 0.8, -0.5])
FAMILIES = {
    "gaussian": (sm.families.Gaussian(), (-6.0, 6.0)),
    "binomial": (sm.families.Binomial(), None),
    "poisson": (sm.families.Poisson(), (0.0, 30.0)),
}


def draw(family, n=2_000, seed=0):
    """Return a response and a frame with a constant."""
    rng = np.random.default_rng(seed)
    X = pi.add_constant(pd.DataFrame(rng.uniform(-1, 1, (n, 2)), columns=["a", "b"]))
    eta = X.to_numpy() @ BETA
    if family == "gaussian":
        return np.clip(eta + 0.5 * rng.standard_normal(n), -6, 6), X
    if family == "binomial":
        return (rng.uniform(size=n) < expit(eta)).astype(float), X
    return rng.poisson(np.exp(eta)).clip(0, 30).astype(float), X


def one_place(family, y, X, **options):
    return pi.FederatedGLM(y, X, bounds=[(-1, 1)] * 2, family=family, y_bounds=FAMILIES[family][1], **options)


@pytest.mark.parametrize("family", FAMILIES)
def test_without_noise_it_is_statsmodels(family):
    y, X = draw(family)
    fit = one_place(family, y, X, residual_clip=None if family == "binomial" else 60.0).fit(epsilon=math.inf)
    theirs = sm.GLM(y, X, family=FAMILIES[family][0]).fit(tol=1e-14, maxiter=100)
    np.testing.assert_allclose(fit.params, theirs.params, rtol=1e-8, atol=1e-8)
    assert list(fit.params.index) == ["const", "a", "b"]
    robust = sm.GLM(y, X, family=FAMILIES[family][0]).fit(cov_type="HC0", tol=1e-14, maxiter=100)
    np.testing.assert_allclose(fit.bse, robust.bse, rtol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_it_is_the_fit_of_one_site(family):
    """A curator's fit has the numbers of a server's with one site; what differs is who is trusted."""
    y, X = draw(family)
    alone = one_place(family, y, X).fit(epsilon=2.0, delta=1e-6, rng=0)
    site = pi.FederatedGLM.from_arrays(
        [(y, X)], bounds=[(-1, 1)] * 2, family=family, y_bounds=FAMILIES[family][1]
    ).fit(epsilon=2.0, delta=1e-6, rng=0)
    np.testing.assert_array_equal(alone.params, site.params)
    np.testing.assert_array_equal(alone.bse, site.bse)
    assert {entry.trust for entry in alone.privacy.entries} == {"central"}
    assert {entry.trust for entry in site.privacy.entries} == {"server"}
    assert "central" in str(alone.summary())
    assert "server" not in str(alone.summary())


def test_a_data_frame_is_in_one_place_too():
    y, X = draw("gaussian")
    schema = pi.Schema({"y": (-6, 6), "a": (-1, 1), "b": (-1, 1)})
    data = X[["a", "b"]].assign(y=y)
    model = pi.FederatedGLM.from_formula("y ~ a + b", data, schema=schema, family="gaussian")
    fit = model.fit(mu=1.0, rng=0)
    assert {entry.trust for entry in fit.privacy.entries} == {"central"}


@pytest.mark.audit
def test_intervals_cover():
    reps, hits = 60, 0
    for seed in range(reps):
        y, X = draw("binomial", n=4_000, seed=seed)
        with warnings.catch_warnings():  # one count in a hundred of values outside stands out by chance
            warnings.simplefilter("ignore", ChangedTargetWarning)
            fit = one_place("binomial", y, X).fit(epsilon=3.0, delta=1e-6, rng=seed)
        hits += int(((fit.conf_int() - BETA[:, None]).prod(axis=1) < 0).sum())
    low, high = binomial_limits(0.95, 3 * reps, level=0.999)
    assert low <= hits / (3 * reps) <= high


@pytest.mark.parametrize(("word", "level"), [("mu", 0.5), ("rho", 0.125)])
def test_levels_are_words_for_one_budget(word, level):
    """mu = .5, rho = mu^2 / 2 and the epsilon that goes with them are one price."""
    y, X = draw("binomial")
    fit = one_place("binomial", y, X).fit(**{word: level}, delta=1e-6, rng=0)
    assert fit.privacy.mu == pytest.approx(0.5, rel=1e-9)
    epsilon = pi.accounting.gaussian_epsilon(0.5, 1e-6)
    other = one_place("binomial", y, X).fit(epsilon=epsilon, delta=1e-6, rng=0)
    np.testing.assert_allclose(fit.params, other.params, rtol=1e-4)


def test_missing_values_are_refused_or_imputed():
    y, X = draw("gaussian")
    holes, gap = X.copy(), y.copy()
    holes.loc[3, "a"], gap[5] = np.nan, np.nan
    holes.attrs = X.attrs
    with pytest.raises(ArgumentError, match="nan"):
        one_place("gaussian", y, holes)
    filled, known = X.copy(), y.copy()
    filled.loc[3, "a"], known[5] = 0.0, 0.0  # the middles of the bounds
    filled.attrs = X.attrs
    ours = one_place("gaussian", gap, holes, missing="impute-public").fit(epsilon=math.inf)
    np.testing.assert_array_equal(
        ours.params, one_place("gaussian", known, filled).fit(epsilon=math.inf).params
    )


def test_what_it_cannot_do_is_refused_with_the_reason():
    y, X = draw("gaussian")
    with pytest.raises(ArgumentError, match="needs sums over many records"):
        one_place("gaussian", y, X, trust="local")
    with pytest.raises(ArgumentError, match="at least two sites"):
        one_place("gaussian", y, X, trust="secure-sum")
    with pytest.raises(ArgumentError, match="rows in one place"):
        pi.FederatedGLM.from_arrays(
            [(y, X)], bounds=[(-1, 1)] * 2, family="gaussian", y_bounds=(-6, 6), trust="central"
        )
    with pytest.raises(SchemaError, match="y_bounds"):
        pi.FederatedGLM(y, X, bounds=[(-1, 1)] * 2, family="gaussian")
    with pytest.raises(SensitivityError, match="bounds"):
        pi.FederatedGLM(y, X, bounds=None, family="gaussian", y_bounds=(-6, 6))
    with pytest.raises(ArgumentError, match="data"):
        pi.FederatedGLM(y, X, bounds="data", family="gaussian", y_bounds=(-6, 6))


@pytest.mark.parametrize("model", [pi.OLS, pi.Poisson])
def test_a_constant_alone_is_a_mean_and_costs_nothing(model):
    table = pd.DataFrame({"y": np.arange(400) % 5})
    ledger = pi.Ledger()
    one = model.from_formula("y ~ 1", table, schema=pi.Schema({"y": (0.0, 5.0)}), ledger=ledger)
    with pytest.raises(pi.errors.ArgumentError, match=r"use pi\.stats\.mean\(\)"):
        one.fit(epsilon=1.0, delta=1e-6)
    assert not ledger.entries
