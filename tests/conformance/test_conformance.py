"""One suite over every model: the noise-free limit, internal consistency, storage, display."""

import math
import pickle
from functools import cache

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from members import WITHHELD, score_tests_are_consistent, touch_all
from statsmodels.base._parameter_inference import _lm_robust
from support.variance import terms_add_up

import privinf as pi
from privinf.errors import NotAvailableError
from privinf.federation import InProcessFederation, Site, SitePolicy, pinned_keys
from privinf.mechanisms.rows import Rows

N = 400
COLUMNS = ["a", "b", "c"]
SCHEMA = pi.Schema(
    {"y": (-4.0, 6.0), "a": (-1.0, 1.0), "b": (-1.0, 3.0), "c": (0.0, 2.0), "g": ["u", "v", "w"]}
)
FORMULA = "y ~ a + b + c + C(g)"


def rows(n=N, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "a": rng.uniform(-1, 1, n),
            "b": rng.uniform(-1, 3, n),
            "c": rng.uniform(0, 2, n),
            "g": rng.choice(["u", "v", "w"], n),
        }
    )
    mean = 1.0 + 0.5 * frame.a - 0.4 * frame.b + 0.3 * frame.c + 0.2 * (frame.g == "v")
    return frame.assign(y=(mean + rng.normal(0, 0.3, n)).clip(-4, 6))


def federation_of(data, schema=SCHEMA):
    """Return three sites with a third of the rows each, that take part in secure sums and trust a server."""
    keys, roster = pinned_keys(["north", "south", "west"])
    policy = SitePolicy(secure_sums=True, trusted_server=True, simulation=True)
    return InProcessFederation(
        {
            name: Site(Rows(data.iloc[i::3]), schema, policy=policy, key=key, roster=roster)
            for i, (name, key) in enumerate(keys.items())
        }
    )


PARTIES = {"one": ["a", "g"], "two": ["b"], "three": ["c", "y"]}
MODELS = {
    "modulated": (pi.ModulatedOLS, {}, {}, "HC0"),
    "modulated-clear-y": (pi.ModulatedOLS, {"response": "public"}, {}, "HC0"),
    "modulated-iterative": (pi.ModulatedOLS, {}, {"method": "iterative", "rounds": 3}, "HC0"),
    "moments-local": (pi.MomentOLS, {"trust": "local"}, {}, "HC0"),
    "moments-central": (pi.MomentOLS, {"trust": "central"}, {}, "nonrobust"),
    "moments-central-HC0": (pi.MomentOLS, {"trust": "central"}, {"cov_type": "HC0"}, "HC0"),
    "moments-secure-sum": (pi.MomentOLS, {"trust": "secure-sum"}, {}, "nonrobust"),
    "moments-secure-sum-HC0": (
        pi.MomentOLS,
        {"trust": "secure-sum"},
        {"cov_type": "HC0", "max_colluding": 1},
        "HC0",
    ),
    "moments-server": (pi.MomentOLS, {"trust": "server"}, {}, "nonrobust"),
    "party-rows": (pi.DGMOLS, {"intercept": True, "parties": PARTIES}, {}, "HC0"),
    "examples": (pi.IWPGLM, {"loss": "squared", "binary_mechanism": "gaussian"}, {}, "HC0"),
    "party-mixed": (pi.RMGMOLS, {"k": 40, "parties": PARTIES}, {}, "mixed rows"),
}
FEDERATED = {"moments-secure-sum", "moments-secure-sum-HC0", "moments-server"}
# Their residual moments carry noise of their own.
NOISY_MEAT = {"moments-central-HC0", "moments-secure-sum-HC0"}
TOTALS = {name for name in MODELS if name.startswith("moments-")} - {"moments-local"}
EVERY = pytest.mark.parametrize("name", MODELS)
# Random mixing keeps its own error where there is no noise.
EXACT = pytest.mark.parametrize("name", [name for name in MODELS if name != "party-mixed"])
# What the others take from the release, a joined release must be told; a person stands at three parties.
DOOR = {"examples": {"loss": "squared"}}
LABEL = {"party-rows": {"label": "y"}, "party-mixed": {"label": "y"}}
PER_PERSON = {"party-rows": math.sqrt(3), "party-mixed": math.sqrt(3)}


def spending_of(name, spending):
    """Local examples take (epsilon, delta), as randomized response has no mu; here all is Gaussian."""
    if name != "examples" or "mu" not in spending or len(spending.keys() & {"mu", "epsilon"}) == 2:
        return spending
    mu = spending["mu"]
    epsilon = pi.accounting.gaussian_epsilon(mu, 1e-6) if mu > 0 else mu
    rest = {key: value for key, value in spending.items() if key != "mu"}
    return {"epsilon": epsilon, "delta": 1e-6, **rest}


def build(name, data=None, formula=FORMULA):
    model, mechanism, _, _ = MODELS[name]
    data = rows() if data is None else data
    held = federation_of(data) if name in FEDERATED else data
    return model.from_formula(formula, held, schema=SCHEMA, **mechanism)


def fitted(name, data=None, **spending):
    chosen = spending_of(name, spending or {"epsilon": math.inf})
    return build(name, data).fit(**MODELS[name][2], **chosen)


def sent(name, model, **spending):
    released = model.release(**spending_of(name, spending), **MODELS[name][2])
    return pi.join(released) if isinstance(released, dict) else released


@cache
def noisy(name):
    """Return a fit with noise, which all tests of a model share."""
    return fitted(name, rows(20_000), mu=60.0, rng=3)


def reference(name, formula=FORMULA, data=None):
    """Return statsmodels' fit of the same covariance: by t where the moments of the rows are the release."""
    model = sm.OLS.from_formula(formula, rows() if data is None else data)
    by_t = MODELS[name][0] is pi.MomentOLS
    return model.fit(cov_type=MODELS[name][3], use_t=by_t)


@EXACT
def test_noise_free_limit_is_statsmodels(name):
    ours, theirs = fitted(name), reference(name)
    close = {"rtol": 1e-8, "atol": 1e-8}
    assert list(ours.params.index) == list(theirs.params.index)
    np.testing.assert_allclose(ours.params, theirs.params, **close)
    np.testing.assert_allclose(ours.bse, theirs.bse, **close)
    np.testing.assert_allclose(ours.tvalues, theirs.tvalues, **close)
    np.testing.assert_allclose(ours.pvalues, theirs.pvalues, **close)
    np.testing.assert_allclose(ours.cov_params(), theirs.cov_params(), **close)
    np.testing.assert_allclose(ours.conf_int(0.1), theirs.conf_int(0.1), **close)
    np.testing.assert_allclose(ours.bse_sampling, theirs.bse, **close)
    terms_add_up(ours, noise_free=True)
    for constraint in ("a = b", "a = b, c = 0.5", "C(g)[T.v] = C(g)[T.w] = 0"):
        a, b = (
            ours.wald_test(constraint),
            theirs.wald_test(expand(constraint), use_f=theirs.use_t, scalar=True),
        )
        np.testing.assert_allclose(a.statistic, b.statistic, rtol=1e-8)
        np.testing.assert_allclose(a.pvalue, b.pvalue, **close)
    a, b = ours.t_test("a - 2 * b = 0.1"), theirs.t_test("a - 2 * b = 0.1")
    for attribute in ("effect", "tvalue", "pvalue"):
        mine, other = np.squeeze(getattr(a, attribute)), np.squeeze(getattr(b, attribute))
        np.testing.assert_allclose(mine, other, **close)
    np.testing.assert_allclose(a.conf_int(), b.conf_int(), **close)
    new = rows(5, seed=9)
    a, b = ours.get_prediction(new).summary_frame(), theirs.get_prediction(new).summary_frame()
    shared = ["mean", "mean_se", "mean_ci_lower", "mean_ci_upper"]
    np.testing.assert_allclose(a[shared], b[shared], **close)
    np.testing.assert_allclose(ours.rsquared, theirs.rsquared, **close)
    np.testing.assert_allclose(ours.rsquared_adj, theirs.rsquared_adj, **close)
    np.testing.assert_allclose((ours.fvalue, ours.f_pvalue), (theirs.fvalue, theirs.f_pvalue), **close)


def expand(constraint):
    return constraint.replace("C(g)[T.v] = C(g)[T.w] = 0", "C(g)[T.v] = 0, C(g)[T.w] = 0")


@EXACT
def test_noise_free_score_test_is_the_noise_free_formula(name):
    """At epsilon = inf: n psibar' Cov(psi)^-1 psibar, the constant concentrated out."""
    data = rows()
    r = fitted(name)
    design = pi.Design.from_formula(FORMULA, SCHEMA)
    X = design.matrix(data)
    x, y = X[:, 1:] - X[:, 1:].mean(axis=0), data.y - data.y.mean()
    for beta0 in (np.zeros(5), np.array([0.2, 0.1, 0.0, 0.3, 0.0])):
        e = np.asarray(y - x @ beta0)
        psi = x * e[:, None]
        mean = psi.mean(axis=0)
        if MODELS[name][3] == "HC0" and name not in NOISY_MEAT:
            meat = np.cov(psi.T, bias=True)
        elif MODELS[name][3] == "nonrobust":
            meat = np.mean(e**2) * x.T @ x / len(x)
        else:
            continue
        expected = len(x) * mean @ np.linalg.solve(meat, mean)
        test = r.score_test(beta0)
        assert test.statistic == pytest.approx(expected, rel=1e-6)
        assert test.df == 5


@EVERY
def test_internal_consistency(name):
    r = noisy(name)
    np.testing.assert_allclose(r.tvalues, r.params / r.bse)
    np.testing.assert_allclose(r.t_test(np.eye(len(r.params))).tvalue, r.tvalues)
    for j, column in enumerate(r.params.index):
        R = np.eye(len(r.params))[j]
        assert float(r.wald_test(R).statistic) == pytest.approx(r.tvalues[column] ** 2, rel=1e-9)
    for end in r.conf_int(0.1).loc["a"]:
        assert float(np.squeeze(r.t_test(f"a = {float(end)!r}").pvalue)) == pytest.approx(0.1, rel=1e-6)
    total, clean, noise = r.bse**2, r.bse_sampling**2, r.bse_privacy**2
    if name not in NOISY_MEAT:
        # local moments may fall back on the homoskedastic form of the sampling error
        np.testing.assert_allclose(total, clean + noise, rtol=0.1 if name == "moments-local" else 1e-6)
    assert (r.bse_sampling < r.bse).all()
    terms_add_up(r)
    if name == "party-mixed":
        terms_add_up(fitted(name), noise_free=True)


@EVERY
def test_score_tests_of_restrictions(name):
    score_tests_are_consistent(noisy(name))


@EVERY
def test_noise_free_score_tests_of_restrictions(name):
    """At epsilon = inf: statsmodels' generalised formula, with the meat at the restricted estimate."""
    r, data = fitted(name), rows()
    X, y = pi.Design.from_formula(FORMULA, SCHEMA).matrix(data), np.asarray(data.y)
    R, n = np.zeros((2, 6)), len(y)
    names = list(r.names)
    R[0, names.index("a")], R[0, names.index("b")], R[1, names.index("C(g)[T.w]")] = 1.0, -1.0, 1.0
    q = np.array([0.8, 0.1])
    K = np.block([[X.T @ X, R.T], [R, np.zeros((2, 2))]])
    e = y - X @ np.linalg.solve(K, np.append(X.T @ y, q))[:6]
    if MODELS[name][3] == "nonrobust":
        meat = n * np.mean(e**2) * X.T @ X / n
    elif MODELS[name][3] == "HC0" and name not in NOISY_MEAT:
        meat = n * np.cov((X * e[:, None]).T, bias=True)
    else:
        pytest.skip("residual moments and mixed rows know the meat at the estimate alone, or not the rows")
    theirs = _lm_robust(X.T @ e, R, np.linalg.inv(X.T @ X), meat)
    ours = r.score_test((R, q))
    assert (ours.statistic, ours.pvalue, ours.df) == pytest.approx(
        (theirs.statistic, theirs.pvalue, 2), rel=1e-6
    )


@EVERY
def test_permuting_the_columns_permutes_the_result(name):
    options = MODELS[name][2]
    a = build(name, formula="y ~ a + b + c").fit(epsilon=math.inf, **options)
    b = build(name, formula="y ~ c + a + b").fit(epsilon=math.inf, **options)
    np.testing.assert_allclose(a.params, b.params[a.params.index], rtol=1e-9)
    np.testing.assert_allclose(a.bse, b.bse[a.params.index], rtol=1e-9)


@EVERY
def test_both_doors_agree_and_storage_keeps_everything(name, tmp_path):
    model = build(name, rows(5000))
    release = sent(name, model, mu=30.0, rng=1)
    release.save(tmp_path / "release.npz")
    loaded = pi.load_release(tmp_path / "release.npz")
    for key, array in release.arrays.items():
        np.testing.assert_array_equal(loaded.arrays[key], array)
    how, entry_point = LABEL.get(name, {}), DOOR.get(name, {})
    a = type(model).from_release(release, **entry_point).fit(**how)
    b = type(model).from_release(loaded, **entry_point).fit(**how)
    np.testing.assert_array_equal(a.params, b.params)
    assert b.privacy.mu == pytest.approx(30.0 * PER_PERSON.get(name, 1.0), rel=1e-9)
    a.save(tmp_path / "result.npz")
    c = pi.load_results(tmp_path / "result.npz")
    d = pickle.loads(pickle.dumps(a))
    for other in (c, d):
        np.testing.assert_allclose(other.params, a.params, rtol=1e-12)
        np.testing.assert_allclose(other.bse, a.bse, rtol=1e-12)
        assert str(other.summary()) == str(a.summary())
        assert other.score_test().pvalue == pytest.approx(a.score_test().pvalue, rel=1e-9)


@EVERY
def test_display(name):
    r = noisy(name)
    text = str(r.summary())
    for word in ("coef", "std err", "Epsilon", "mu", "SIMULATION", "Identification", "a", "C(g)[T.v]"):
        assert word in text, word
    assert max(map(len, text.splitlines())) <= 100
    assert "<table" in r.summary().as_html()
    assert "tabular" in r.summary().as_latex()
    assert "," in r.summary().as_csv()
    assert "<table" in r._repr_html_()


PROPERTIES_THAT_REFUSE = {"bias", *WITHHELD}


@EVERY
def test_every_public_member_can_be_touched(name):
    of_counts = {"dispersion"} if name == "examples" else set()
    touch_all(noisy(name), PROPERTIES_THAT_REFUSE | of_counts)


@pytest.mark.audit
@EVERY
def test_seeded_fits_repeat_and_secure_fits_do_not(name):
    a, b = (fitted(name, rows(2000), mu=30.0, rng=5) for _ in range(2))
    np.testing.assert_array_equal(a.params, b.params)
    c, d = (fitted(name, rows(2000), mu=30.0) for _ in range(2))
    assert not np.allclose(c.params, d.params, rtol=1e-12)
    assert c.privacy.secure
    assert not a.privacy.secure


@pytest.mark.audit
@EVERY
def test_seeded_and_secure_noise_have_the_same_law(name):
    """Same mean and spread over repeated releases of the same rows (a grid is no visible difference)."""
    data = rows(600)
    draws = {}
    for key, rng in (("seeded", np.random.default_rng(0)), ("secure", None)):
        draws[key] = np.array([fitted(name, data, mu=40.0, rng=rng).params.to_numpy() for _ in range(40)])
    spread = np.sqrt(draws["seeded"].var(axis=0) / 40 + draws["secure"].var(axis=0) / 40)
    assert (np.abs(draws["seeded"].mean(axis=0) - draws["secure"].mean(axis=0)) < 5 * spread).all()
    ratio = draws["seeded"].std(axis=0) / draws["secure"].std(axis=0)
    assert (ratio > 0.45).all()
    assert (ratio < 2.2).all()


@EVERY
def test_the_ledger_of_a_model_runs_over_its_fits(name):
    model = build(name, rows(2000))
    options = MODELS[name][2]
    first = model.fit(**spending_of(name, {"mu": 3.0}), rng=0, **options)
    second = model.fit(**spending_of(name, {"mu": 4.0}), rng=0, **options)
    each = PER_PERSON.get(name, 1.0)
    assert first.privacy.mu == pytest.approx(3.0 * each, rel=1e-9)
    assert second.privacy.mu == pytest.approx(4.0 * each, rel=1e-9)
    assert second.privacy.cumulative.mu == pytest.approx(5.0 * each, rel=1e-9)


@EVERY
def test_noise_free_releases_refuse_to_be_saved(name, tmp_path):
    release = sent(name, build(name), epsilon=math.inf)
    with pytest.raises(pi.errors.NotAvailableError, match="inf"):
        release.save(tmp_path / "rows.npz")
    assert not list(tmp_path.iterdir())


@EVERY
@pytest.mark.parametrize(
    ("spending", "words"),
    [
        ({}, "epsilon"),
        ({"epsilon": 0.0, "delta": 1e-5}, "epsilon"),
        ({"epsilon": -1.0, "delta": 1e-5}, "epsilon"),
        ({"epsilon": math.nan, "delta": 1e-5}, "epsilon"),
        ({"epsilon": 1.0}, "delta"),
        ({"epsilon": 1.0, "delta": 0.0}, "delta"),
        ({"epsilon": 1.0, "delta": 1.0}, "delta"),
        ({"mu": 0.0}, "mu"),
        ({"epsilon": 1.0, "delta": 1e-5, "mu": 1.0}, "mu"),
    ],
)
def test_bad_budgets_are_refused_and_cost_nothing(name, spending, words):
    if name == "examples" and {"mu", "epsilon"} <= spending.keys():
        spending = spending | {"epsilon_x": 1.0}
        del spending["mu"]
        words = "epsilon_x"
    model = build(name)
    with pytest.raises(pi.errors.PrivinfError, match=words):
        model.fit(**spending_of(name, spending), **MODELS[name][2])
    assert model.ledger.entries == ()


@EVERY
def test_weak_identification_never_raises_at_fit(name):
    r = fitted(name, rows(60), mu=0.05, rng=2)
    assert np.isfinite(r.params).all()
    assert r.identification.weak
    assert 0.0 <= r.score_test().pvalue <= 1.0
    text = str(r.summary())
    assert "weak" in text.lower()
    interval = r.conf_int(method="score")
    assert np.isinf(interval.to_numpy()).any()


def names_are_positions(r):
    """Rows of intervals by name or position; predictions by either word; a summary that renames."""
    first = r.names[0]
    whole = r.conf_int(0.1)
    assert r.conf_int(alpha=0.1, cols=[0, r.names[-1]]).equals(whole.iloc[[0, len(whole) - 1]])
    with pytest.raises(pi.errors.ArgumentError):
        r.conf_int(cols=["nothing"])
    assert r.params[first] == r.params.iloc[0]
    renamed = [f"v{j}" for j in range(len(r.names))]
    text = str(r.summary("called", renamed))
    assert "called" in text
    assert "v0" in text
    assert "Results" in str(r.summary(alpha=0.1, slim=True))


@EVERY
def test_statsmodels_words_by_reflex(name):
    r = noisy(name)
    names_are_positions(r)
    new = rows(4, seed=3)
    np.testing.assert_array_equal(r.predict(exog=new), r.predict(new, which="linear"))
    p = len(r.names)
    texts, arrays = ("a = 0", ["a"], {"a": 0.1}), (np.eye(p), np.eye(p)[0], (np.eye(p), 0.1))
    for form in (*texts, *arrays, [1.0] + [0.0] * (p - 1)):
        assert np.isfinite(r.t_test(form).tvalue).all()
    assert r.wald_test_terms().table.shape[0] >= 4
    for word in ("aic", "llf", "resid", "HC1_se", "cov_HC0", "condition_number", "converged", "get_margeff"):
        with pytest.raises(NotAvailableError, match=r"not available: \w+ \w+"):
            getattr(r, word)


@EVERY
def test_covariances_are_words_that_mean_something_or_say_why(name):
    """Whatever statsmodels' fit takes: the covariance there is, its small-sample factor, or the reason."""
    made, options = build(name), {key: value for key, value in MODELS[name][2].items() if key != "cov_type"}
    ours = MODELS[name][3]
    spending = spending_of(name, {"epsilon": math.inf})
    served = {ours, "HC1"} if ours == "HC0" else {ours} - {"mixed rows"}
    served |= {"nonrobust", "HC0", "HC1"} if name in TOTALS else set()
    for word in ("nonrobust", "HC0", "HC1", "HC2", "HC3", "HAC", "cluster"):
        if word in served:
            assert made.fit(**spending, **options, cov_type=word).cov_type == word
            continue
        with pytest.raises(pi.errors.PrivinfError, match=r"(\w+\W+){8}") as refused:
            made.fit(**spending, **options, cov_type=word)
        assert not isinstance(refused.value, pi.errors.UnforeseenError)
    with pytest.raises(NotAvailableError, match="cluster is the schema's unit"):
        made.fit(**spending, **options, cov_kwds={"groups": [1]})


@EVERY
def test_a_model_shows_no_rows_and_says_so(name):
    """statsmodels' attributes that hold rows: no bare AttributeError, and hasattr says no."""
    made = build(name)
    for word in ("exog", "endog", "data"):
        assert not hasattr(made, word)
        with pytest.raises(
            NotAvailableError, match=f"{word} is not available, because models do not show rows"
        ):
            getattr(made, word)
    with pytest.raises(AttributeError, match="no attribute 'exgo'"):
        _ = made.exgo
