"""FederatedGLM says that its rounds did not settle, has no intervals then, and says so of no fit that did."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from scipy.stats import binom

import privinf as pi
from privinf.errors import NotAvailableError

NORMAL = 1.959963984540054
RARE = np.array([-4.75, 0.8, -0.5, 0.3, 0.0])
BETA = np.array([0.8, -0.6, 0.5, -0.4, 0.3, -0.2, 0.1, 0.0, 0.0, 0.5])


def rows_of(n, beta, seed, *, family="binomial", sd=0.5, constant=True):
    rng = np.random.default_rng([17, seed])
    X = rng.uniform(-1.0, 1.0, (n, len(beta) - constant))
    frame = pd.DataFrame(X, columns=[f"x{j + 1}" for j in range(X.shape[1])])
    design = pi.add_constant(frame) if constant else frame
    eta = design.to_numpy() @ beta
    y = {
        "binomial": lambda: (rng.uniform(size=n) < expit(eta)).astype(float),
        "gaussian": lambda: eta + sd * rng.standard_normal(n),
        "poisson": lambda: rng.poisson(np.exp(eta)).astype(float),
    }[family]()
    return y, design


def model_of(y, X, family="binomial", **options):
    bounds = {name: (-1, 1) for name in X.columns if name != "const"}
    half = len(y) // 2
    return pi.FederatedGLM.from_arrays(
        [(y[:half], X[:half]), (y[half:], X[half:])], bounds=bounds, family=family, **options
    )


def converged(fit):
    return fit.estimate.cov is not None


@pytest.mark.audit
@pytest.mark.parametrize(
    ("share", "n", "beta", "epsilon"),
    [("1%", 200_000, RARE, 2.0), ("2%", 100_000, np.r_[-4.0, RARE[1:]], 2.0), ("1%", 20_000, RARE, 4.0)],
)
def test_rare_events_do_not_settle_in_three_rounds(share, n, beta, epsilon):
    """Every interval missed the constant here, and a half to all of the slopes."""
    for seed in range(3):
        y, X = rows_of(n, beta, seed)
        fit = model_of(y, X).fit(epsilon=epsilon, delta=1e-6, optimizer=pi.Newton(), rng=seed)
        assert not converged(fit), share
        assert "did not converge" in fit.estimate.weak_reason


def test_a_clip_that_is_small_against_the_response_does_not_settle():
    for clip in (1.0, 0.5):
        y, X = rows_of(50_000, np.array([0.0, 5.0, -2.5, 1.25]), 0, family="gaussian")
        model = model_of(y, X, "gaussian", y_bounds=(-10, 10), residual_clip=clip)
        assert not converged(model.fit(epsilon=1.0, delta=1e-6, optimizer=pi.Newton(), rng=0))
    wide = model_of(y, X, "gaussian", y_bounds=(-10, 10))
    wide = wide.fit(epsilon=1.0, delta=1e-6, optimizer=pi.Newton(), rng=0)
    assert converged(wide)


@pytest.mark.audit
def test_strong_signals_on_wide_bounds_do_not_settle():
    misses, fits = 0, 0
    for seed in range(12):
        rng = np.random.default_rng([18, seed])
        X = pd.DataFrame(np.clip(rng.standard_normal((20_000, 4)), -4, 4), columns=list("abcd"))
        truth = np.array([5.0, -3.0, 2.0, 0.0])
        y = (rng.uniform(size=len(X)) < expit(X.to_numpy() @ truth)).astype(float)
        model = pi.FederatedGLM.from_arrays([(y, X)], bounds=[(-4, 4)] * 4, family="binomial")
        fit = model.fit(epsilon=4.0, delta=1e-6, optimizer=pi.Newton(), rng=rng)
        if converged(fit):
            fits += 1
            misses += (np.abs(fit.params - truth) > NORMAL * fit.bse).any()
    assert fits <= 2
    assert misses <= 1


def test_what_needs_a_covariance_says_why_it_is_not_there(tmp_path):
    y, X = rows_of(60_000, RARE, 0)
    fit = model_of(y, X).fit(epsilon=4.0, delta=1e-6, optimizer=pi.Newton(), rng=0)
    asked = {
        "bse": lambda: fit.bse,
        "tvalues": lambda: fit.tvalues,
        "pvalues": lambda: fit.pvalues,
        "conf_int": fit.conf_int,
        "cov_params": fit.cov_params,
        "t_test": lambda: fit.t_test("x1 = 0"),
        "wald_test": lambda: fit.wald_test("x1 = x2 = 0"),
        "draws": lambda: fit.draws(10, rng=0),
        "get_prediction": lambda: fit.get_prediction(X[:2]),
        "simultaneous": lambda: fit.simultaneous(rng=0),
        "bse_privacy": lambda: fit.bse_privacy,
    }
    for name, ask in asked.items():
        with pytest.raises(NotAvailableError) as told:
            ask()
        if name != "bse_privacy":
            assert "did not converge" in str(told.value), name
    assert np.isfinite(fit.params).all()
    np.testing.assert_allclose(fit.predict(X[:3]), expit(X[:3].to_numpy() @ fit.params.to_numpy()))
    text = " ".join(fit.summary().as_text().split())
    assert "The fit did not converge" in text
    assert "NOT CONVERGED (see notes)" in text
    assert "std err" not in text
    fit.save(tmp_path / "far.privinf")
    again = pi.load_results(tmp_path / "far.privinf")
    assert again.estimate.weak_reason == fit.estimate.weak_reason
    assert fit.privacy.epsilon(1e-6) == pytest.approx(4.0, rel=1e-6)


@pytest.mark.audit
def test_more_rounds_settle_it():
    """What the message asks for helps: six rounds reach 1% of positives."""
    y, X = rows_of(200_000, RARE, 0)
    fit = model_of(y, X).fit(epsilon=4.0, delta=1e-6, optimizer=pi.Newton(rounds=6), rng=0)
    assert converged(fit)
    assert (np.abs(fit.params - RARE) < 4.0 * fit.bse).all()


def test_targets_that_did_not_settle_have_no_intervals():
    y, X = rows_of(40_000, np.r_[-3.5, BETA], 0)
    model = model_of(y, X)
    early = pi.DPSGD(epochs=1, batches=1, step=1e-3, final_share=0.9)
    fit = model.fit(epsilon=8.0, delta=1e-6, targets=["x1", "x2"], optimizer=early, rng=0)
    with pytest.raises(NotAvailableError, match="did not converge"):
        fit.conf_int()
    assert list(fit.params.index) == ["x1", "x2"]


GOOD = {
    "binomial, eps 2": ("binomial", 20_000, BETA, False, 2.0, {}),
    "binomial, eps .5": ("binomial", 20_000, BETA, False, 0.5, {}),
    "one slope, eps .5": ("binomial", 20_000, np.array([0.2, 0.8]), True, 0.5, {}),
    "gaussian": (
        "gaussian",
        60_000,
        np.array([0.3, 0.5, -0.5, 0.0, 1.0]),
        True,
        2.0,
        {"y_bounds": (-4, 5), "residual_clip": 2.0},
    ),
    "poisson": ("poisson", 60_000, np.array([0.3, 0.5, -0.5, 0.0, 1.0]), True, 2.0, {"y_bounds": (0, 12)}),
}


@pytest.mark.audit
@pytest.mark.parametrize("name", GOOD)
def test_fits_that_settled_keep_their_intervals(name):
    family, n, beta, constant, epsilon, options = GOOD[name]
    count, flagged, hits = 20, 0, []
    for seed in range(count):
        y, X = rows_of(n, beta, seed, family=family, constant=constant)
        fit = model_of(y, X, family, **options).fit(epsilon=epsilon, delta=1e-6, rng=seed)
        if converged(fit):
            hits.append(np.abs(fit.params - beta) <= NORMAL * fit.bse)
        else:
            flagged += 1
    assert flagged <= 1
    assert np.mean(hits) >= binom.ppf(1e-3, np.size(hits), 0.95) / np.size(hits)


@pytest.mark.parametrize("family", ["binomial", "gaussian", "poisson"])
@pytest.mark.parametrize("rare", [False, True])
def test_without_noise_a_fit_that_converged_is_never_flagged(family, rare):
    constant = {"binomial": -4.0, "gaussian": 3.0, "poisson": -3.0}[family] if rare else 0.2
    y, X = rows_of(4000, np.array([constant, 0.5, -0.5, 0.0]), 1, family=family)
    options = {} if family == "binomial" else {"y_bounds": (-8, 8) if family == "gaussian" else (0, 30)}
    if family == "gaussian" and rare:
        options["residual_clip"] = 0.2
    for cov_type in ("HC0",) if family == "gaussian" else ("HC0", "nonrobust"):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert converged(model_of(y, X, family, **options).fit(epsilon=np.inf, cov_type=cov_type))
