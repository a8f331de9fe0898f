"""FederatedGLM in the suite: the noise-free limit, internal consistency, storage, display, every member."""

import math
import pickle
from functools import cache

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from members import SQUARES, WITHHELD, score_tests_are_consistent, touch_all
from support.variance import terms_add_up
from test_conformance import federation_of as sites_with_keys

import privinf as pi

FAMILIES = {
    "gaussian": sm.families.Gaussian(),
    "binomial": sm.families.Binomial(),
    "poisson": sm.families.Poisson(),
}
BOUNDS = {"gaussian": (-4.0, 6.0), "binomial": (0.0, 1.0), "poisson": (0.0, 25.0)}
FORMULA = "y ~ a + b + C(g)"
N = 900
CASES = [(family, trust) for family in FAMILIES for trust in ("server", "secure-sum")]
EVERY = pytest.mark.parametrize(("family", "trust"), CASES)


def schema(family):
    return pi.Schema({"y": BOUNDS[family], "a": (-1.0, 1.0), "b": (-1.0, 3.0), "g": ["u", "v", "w"]})


def rows(family, n=N, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {"a": rng.uniform(-1, 1, n), "b": rng.uniform(-1, 3, n), "g": rng.choice(["u", "v", "w"], n)}
    )
    eta = 0.3 + 0.5 * frame.a - 0.4 * frame.b + 0.2 * (frame.g == "v")
    drawn = {
        "gaussian": lambda: (eta + rng.normal(0, 0.3, n)).clip(-4, 6),
        "binomial": lambda: (rng.uniform(size=n) < 1 / (1 + np.exp(-eta))).astype(float),
        "poisson": lambda: rng.poisson(np.exp(eta)).astype(float),
    }
    return frame.assign(y=drawn[family]())


def build(family, trust, data=None, formula=FORMULA, **options):
    data = rows(family) if data is None else data
    known = schema(family)
    held = sites_with_keys(data, known)
    return pi.FederatedGLM.from_formula(formula, held, schema=known, family=family, trust=trust, **options)


def noisy(family, trust, **options):
    return build(family, trust, rows(family, 9000)).fit(epsilon=20.0, delta=1e-6, rng=3, **options)


# One fit of each model for all tests that only look at it.
shared = cache(noisy)


@EVERY
def test_noise_free_limit_is_statsmodels(family, trust):
    ours = build(family, trust).fit(epsilon=math.inf)
    theirs = sm.GLM.from_formula(FORMULA, rows(family), family=FAMILIES[family]).fit(
        cov_type="HC0", tol=1e-14, maxiter=100, use_t=family == "gaussian"
    )
    close, order = {"rtol": 1e-6, "atol": 1e-8}, list(ours.params.index)
    np.testing.assert_allclose(ours.params, theirs.params[order], **close)
    np.testing.assert_allclose(ours.bse, theirs.bse[order], **close)
    np.testing.assert_allclose(ours.bse_sampling, theirs.bse[order], **close)
    terms_add_up(ours, noise_free=True)
    np.testing.assert_allclose(ours.conf_int(0.1), theirs.conf_int(0.1).loc[order], **close)
    a, b = ours.t_test("a - 2 * b = 0.1"), theirs.t_test("a - 2 * b = 0.1")
    for attribute in ("effect", "tvalue", "pvalue"):
        mine, other = np.squeeze(getattr(a, attribute)), np.squeeze(getattr(b, attribute))
        np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-8)
    a, b = ours.wald_test("a = b"), theirs.wald_test("a = b", use_f=family == "gaussian", scalar=True)
    np.testing.assert_allclose(a.statistic, b.statistic, rtol=1e-5)
    new = rows(family, 5, seed=9)
    np.testing.assert_allclose(ours.predict(new), theirs.predict(new), rtol=1e-6)


@EVERY
def test_internal_consistency(family, trust):
    r = shared(family, trust)
    np.testing.assert_allclose(r.tvalues, r.params / r.bse)
    np.testing.assert_allclose(r.t_test(np.eye(len(r.params))).tvalue, r.tvalues)
    for j, column in enumerate(r.params.index):
        R = np.eye(len(r.params))[j]
        assert float(r.wald_test(R).statistic) == pytest.approx(r.tvalues[column] ** 2, rel=1e-9)
    for end in r.conf_int(0.1).loc["a"]:
        # curved fits have quantiles of draws, near the normal ones
        rel = 1e-6 if family == "gaussian" else 0.2
        assert float(np.squeeze(r.t_test(f"a = {float(end)!r}").pvalue)) == pytest.approx(0.1, rel=rel)
    np.testing.assert_allclose(r.bse**2, r.bse_sampling**2 + r.bse_privacy**2, rtol=1e-6)
    assert (r.bse_sampling < r.bse).all()
    terms_add_up(r)


@EVERY
def test_score_tests_of_restrictions(family, trust):
    score_tests_are_consistent(shared(family, trust))


@EVERY
def test_noise_free_score_tests_are_walds(family, trust):
    """The score is moved along the Hessian of the fit, whose meat it has: the statistics are one."""
    ours = build(family, trust).fit(epsilon=math.inf)
    for text in ("a = b", "a = 0.4, b = -0.3", "Intercept = 0.2"):
        a, b = ours.score_test(text), ours.wald_test(text, use_f=False)
        assert a.statistic == pytest.approx(float(b.statistic), rel=1e-6)


@EVERY
def test_permuting_the_columns_permutes_the_result(family, trust):
    a = build(family, trust, formula="y ~ a + b").fit(epsilon=math.inf)
    b = build(family, trust, formula="y ~ b + a").fit(epsilon=math.inf)
    np.testing.assert_allclose(a.params, b.params[a.params.index], rtol=1e-7)
    np.testing.assert_allclose(a.bse, b.bse[a.params.index], rtol=1e-7)


@pytest.mark.audit
@EVERY
def test_storage_keeps_everything(family, trust, tmp_path):
    a = shared(family, trust)
    a.save(tmp_path / "result.npz")
    for other in (pi.load_results(tmp_path / "result.npz"), pickle.loads(pickle.dumps(a))):
        np.testing.assert_allclose(other.params, a.params, rtol=1e-12)
        np.testing.assert_allclose(other.bse, a.bse, rtol=1e-12)
        assert str(other.summary()) == str(a.summary())
        pd.testing.assert_frame_equal(other.trace, a.trace)
        pd.testing.assert_frame_equal(other.variance_formula.shares, a.variance_formula.shares)


@EVERY
def test_display(family, trust):
    r = shared(family, trust)
    text = str(r.summary())
    for word in ("coef", "std err", "Epsilon", "SIMULATION", family, trust, "C(g)[T.v]"):
        assert word in text, word
    assert max(map(len, text.splitlines())) <= 100
    assert "<table" in r.summary().as_html()
    assert "tabular" in r.summary().as_latex()
    assert "," in r.summary().as_csv()


# Least squares by a second look has them.
NO_SQUARES = {"identification", "rsquared", "scale", "rsquared_adj", "fvalue", "f_pvalue", *SQUARES}


@EVERY
def test_every_public_member_can_be_touched(family, trust):
    touch_all(shared(family, trust), WITHHELD | (set() if family == "gaussian" else NO_SQUARES))


@pytest.mark.audit
@EVERY
def test_seeded_fits_repeat_and_secure_fits_do_not(family, trust):
    a, b = (noisy(family, trust) for _ in range(2))
    np.testing.assert_array_equal(a.params, b.params)
    c, d = (build(family, trust).fit(epsilon=20.0, delta=1e-6) for _ in range(2))
    assert not np.allclose(c.params, d.params, rtol=1e-12)
    assert c.privacy.secure
    assert not a.privacy.secure


@pytest.mark.audit
@EVERY
def test_the_ledger_of_a_model_runs_over_its_fits(family, trust):
    model = build(family, trust, rows(family, 6000))
    first, second = (model.fit(epsilon=epsilon, delta=1e-6, rng=0) for epsilon in (10.0, 20.0))
    assert first.privacy.epsilon(1e-6) == pytest.approx(10.0, rel=1e-6)
    assert second.privacy.epsilon(1e-6) == pytest.approx(20.0, rel=1e-6)
    together = math.hypot(first.privacy.mu, second.privacy.mu)
    assert second.privacy.cumulative.mu == pytest.approx(together, rel=1e-9)


@EVERY
@pytest.mark.parametrize(
    ("spending", "words"),
    [
        ({"epsilon": 0.0, "delta": 1e-5}, "epsilon"),
        ({"epsilon": -1.0, "delta": 1e-5}, "epsilon"),
        ({"epsilon": math.nan, "delta": 1e-5}, "epsilon"),
        ({"epsilon": 1.0, "delta": 0.0}, "delta"),
        ({"epsilon": 1.0, "delta": 1.0}, "delta"),
    ],
)
def test_bad_budgets_are_refused_and_cost_nothing(family, trust, spending, words):
    model = build(family, trust)
    with pytest.raises(pi.errors.PrivinfError, match=words):
        model.fit(**spending)
    assert model.ledger.entries == ()


@pytest.mark.audit
@EVERY
def test_score_and_wald_intervals_of_the_constant_agree(family, trust):
    """Its units have the response's middle in them, which a linear predictor has not."""
    r = shared(family, trust)
    low, high = r.conf_int(method="score").loc["Intercept"]
    assert low < r.params["Intercept"] < high
    assert high - low < 5.0 * float(np.diff(r.conf_int().loc["Intercept"])[0])
