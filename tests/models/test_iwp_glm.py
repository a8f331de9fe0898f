"""IWPGLM: the noise-free limit, both doors, units, labels of levels, predictions, what is refused."""

import math
import pickle

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

import privinf as pi
from privinf import errors

RADIUS = 2**0.5


def data(n=20_000, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 2))
    y = (rng.random(n) < 1 / (1 + np.exp(-X @ [1.5, -1.0]))).astype(float)
    return y, X


def frame(n=20_000, seed=0):
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "age": rng.uniform(20, 80, n),
            "sex": rng.integers(0, 2, n).astype(float),
            "g": rng.choice(["u", "v", "w"], n),
        }
    )
    eta = -2.0 + 0.04 * table.age + 0.5 * table.sex - 0.4 * (table.g == "w")
    table["ill"] = np.where(rng.random(n) < 1 / (1 + np.exp(-eta)), "yes", "no")
    table["visits"] = rng.poisson(np.exp(0.2 + 0.01 * table.age)).clip(0, 15).astype(float)
    table["stage"] = rng.choice(["a", "b", "c"], n)
    table["cost"] = (5.0 + 0.1 * table.age + rng.normal(0, 1, n)).clip(0, 20)
    return table


SCHEMA = pi.Schema(
    {
        "age": (20.0, 80.0), "sex": (0.0, 1.0), "g": ["u", "v", "w"], "ill": ["no", "yes"],
        "visits": (0.0, 15.0), "stage": ["a", "b", "c"], "cost": (0.0, 20.0),
    }
)  # fmt: skip
FORMULA = "ill ~ age + sex + C(g)"


def model(formula=FORMULA, loss="logistic", n=20_000, **options):
    return pi.IWPGLM.from_formula(formula, frame(n), schema=SCHEMA, loss=loss, **options)


def close(ours, theirs, tolerance=1e-8):
    np.testing.assert_allclose(ours.params, theirs.params, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(ours.bse, theirs.bse, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(ours.pvalues, theirs.pvalues, atol=tolerance)
    np.testing.assert_allclose(ours.conf_int(), theirs.conf_int(), rtol=tolerance, atol=tolerance)


def test_noise_free_logistic_is_logit():
    table = frame(3000).assign(one=lambda t: (t.ill == "yes").astype(float))
    theirs = sm.Logit.from_formula("one ~ age + sex + C(g)", table).fit(disp=0, cov_type="HC0")
    for binary in ((), ("sex",)):
        ours = model(n=3000, binary=binary).fit(epsilon=math.inf)
        close(ours, theirs)
        assert list(ours.params.index) == list(theirs.params.index)
        np.testing.assert_allclose(ours.predict(table.head(5)), theirs.predict(table.head(5)), rtol=1e-8)


def test_noise_free_squared_is_ols():
    theirs = sm.OLS.from_formula("cost ~ age + C(g)", frame(3000)).fit(cov_type="HC0", use_t=False)
    close(model("cost ~ age + C(g)", "squared", 3000).fit(epsilon=math.inf), theirs)


def test_noise_free_poisson_is_glm():
    formula = "visits ~ age + sex"
    theirs = sm.GLM.from_formula(formula, frame(3000), family=sm.families.Poisson()).fit(cov_type="HC0")
    close(model(formula, "poisson", 3000).fit(epsilon=math.inf), theirs)


def test_noise_free_multinomial_is_mnlogit():
    table = frame(3000)
    codes = table.stage.map({"a": 0, "b": 1, "c": 2})
    X = sm.add_constant(table[["age"]])
    theirs = sm.MNLogit(codes, X).fit(disp=0, cov_type="HC0")
    ours = model("stage ~ age", "multinomial", 3000).fit(epsilon=math.inf)
    assert list(ours.params.index) == ["Intercept[b]", "age[b]", "Intercept[c]", "age[c]"]
    np.testing.assert_allclose(ours.params, theirs.params.to_numpy().T.ravel(), rtol=1e-6)
    np.testing.assert_allclose(ours.bse, theirs.bse.to_numpy().T.ravel(), rtol=1e-6)
    np.testing.assert_allclose(ours.predict(table.head(4)), theirs.predict(X.head(4)), rtol=1e-6)
    assert list(ours.predict(table.head(4)).columns) == ["a", "b", "c"]


def test_array_labels_in_both_codings():
    y, X = data(2000)
    a = pi.IWPGLM(y, X, radius=RADIUS).fit(epsilon=math.inf)
    b = pi.IWPGLM(2 * y - 1, X, radius=RADIUS).fit(epsilon=math.inf)
    np.testing.assert_allclose(a.params, b.params)
    with pytest.raises(errors.PrivinfError) as caught:
        pi.IWPGLM(y + 4.25, X, radius=RADIUS).fit(epsilon=math.inf)
    assert "4.25" not in str(caught.value)


def test_one_release_serves_several_losses_and_doors_agree(tmp_path):
    y, X = data()
    m = pi.IWPGLM(y, X, radius=RADIUS)
    release = m.release(epsilon_x=8.0, epsilon_y=3.0, delta=1e-5)
    assert release.secure
    release.save(tmp_path / "r.npz")
    back = pi.load_release(tmp_path / "r.npz")
    fits = {}
    for loss, ridge in (("quadratic", 0.0), ("exponential", 0.5), ("logistic", 0.0)):
        here = pi.IWPGLM.from_release(release, loss=loss).fit(ridge=ridge)
        there = pi.IWPGLM.from_release(back, loss=loss).fit(ridge=ridge)
        np.testing.assert_array_equal(here.params, there.params)
        fits[loss] = here
        assert release.classify(loss=loss, ridge=ridge).params.equals(here.params)
    assert fits["exponential"].target == "penalized"
    with pytest.raises(errors.NotAvailableError, match="numeric label"):
        release.regress()
    assert "penalised target" in str(fits["exponential"].summary()).replace("\n    ", " ")
    assert len(m.ledger) == len(release.entries)
    with pytest.raises(errors.NotAvailableError, match="numeric label"):
        pi.IWPGLM.from_release(release, loss="squared").fit()
    with pytest.raises(errors.ArgumentError, match="fixed its noise"):
        pi.IWPGLM.from_release(release).fit(epsilon_x=1.0)


def test_noisy_fits_find_the_truth_in_user_units():
    r = model(n=200_000, binary=["sex"]).fit(epsilon_x=30.0, epsilon_y=5.0, delta=1e-5, rng=1)
    truth = pd.Series([-2.0, 0.04, 0.5, 0.0, -0.4], r.params.index[[0, 3, 4, 1, 2]])
    assert (abs(r.params[truth.index] - truth) < 4.5 * r.bse[truth.index]).all()
    assert abs(r.naive["age"]) < abs(r.params["age"])
    assert "Ignoring the noise would have given" in str(r.summary(naive=True)).replace("\n    ", " ")
    test = r.score_test(r.params[["age", "sex", "C(g)[T.v]", "C(g)[T.w]"]])
    assert test.pvalue > 1e-3
    assert r.score_test().pvalue < 1e-6
    assert r.bootstrap(99, rng=0).draws.shape == (99, 5)
    assert r.simultaneous(rng=0).conf_int().shape == (5, 2)


def test_poisson_and_squared_with_noise():
    a = model("visits ~ age", "poisson", 100_000).fit(epsilon_x=20.0, epsilon_y=8.0, delta=1e-5, rng=2)
    assert abs(a.params["age"] - 0.01) < 4.5 * a.bse["age"]
    b = model("cost ~ age", "squared", 100_000).fit(epsilon_x=25.0, epsilon_y=12.0, delta=1e-5, rng=2)
    assert abs(b.params["age"] - 0.1) < 4.5 * b.bse["age"]
    assert b.bse_sampling["age"] < b.bse["age"]


def test_stored_results_come_back(tmp_path):
    y, X = data()
    r = pi.IWPGLM(y, X, radius=RADIUS).fit(epsilon_x=16.0, epsilon_y=4.0, delta=1e-5, rng=0)
    r.save(tmp_path / "r.pi")
    for back in (pi.load_results(tmp_path / "r.pi"), pickle.loads(pickle.dumps(r))):
        assert type(back) is type(r)
        np.testing.assert_array_equal(back.params, r.params)
        assert back.score_test().pvalue == pytest.approx(r.score_test().pvalue)
        assert str(back.summary()) == str(r.summary())
        np.testing.assert_allclose(back.predict(X[:3]), r.predict(X[:3]))


def test_prediction_intervals_stay_between_zero_and_one():
    y, X = data()
    r = pi.IWPGLM(y, X, radius=RADIUS).fit(epsilon_x=16.0, epsilon_y=4.0, delta=1e-5, rng=0)
    table = r.get_prediction(X[:50]).summary_frame()
    assert ((table.mean_ci_lower > 0) & (table.mean_ci_upper < 1)).all()
    linear = r.predict(X[:5], which="linear")
    np.testing.assert_allclose(r.predict(X[:5]), 1 / (1 + np.exp(-linear)))


def test_series_and_naive_fits_say_what_they_are():
    y, X = data()
    release = pi.IWPGLM(y, X, radius=RADIUS).release(epsilon_x=16.0, epsilon_y=4.0, delta=1e-5, rng=0)
    m = pi.IWPGLM.from_release(release)
    series = m.fit(correction="series", truncation=1)
    assert "intervals do not cover" in str(series.summary()).replace("\n    ", " ")
    assert "ignores the noise" in str(m.fit(correction="none").summary()).replace("\n    ", " ")
    with pytest.raises(errors.NotAvailableError):
        series.score_test()
    chosen = m.fit(correction="series").options["Correction"]
    assert chosen in {"series, K = 1", "series, K = 2", "series, K = 3"}


def test_no_root_never_raises_at_fit():
    y, X = data(200)
    r = pi.IWPGLM(y, X, radius=RADIUS).fit(epsilon_x=0.5, epsilon_y=0.5, delta=1e-5, rng=0)
    assert np.isfinite(r.params).all()
    assert r.identification.weak
    assert 0.0 <= r.score_test().pvalue <= 1.0
    assert "weak" in str(r.summary()).lower() or "No standard errors" in str(r.summary())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"loss": "squared"}, "y_bounds"),
        ({"y_bounds": (0, 1)}, "numeric labels"),
        ({"loss": "multinomial"}, "declared levels"),
        ({"loss": "hinge"}, "loss"),
        ({"radius": None}, "no public bounds"),
        ({"binary": ["z"]}, "z"),
    ],
)
def test_bad_models(change, words):
    y, X = data(500)
    with pytest.raises(errors.PrivinfError, match=words):
        pi.IWPGLM(y, X, **({"radius": RADIUS} | change))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"correction": "exact"}, "not available"),
        ({"truncation": 2}, "truncation"),
        ({"ridge": -1.0}, "ridge"),
        ({"epsilon_x": None}, "epsilon"),
        ({"delta": None}, "delta"),
    ],
)
def test_bad_fits_cost_nothing(options, words):
    y, X = data(500)
    m = pi.IWPGLM(y, X, radius=RADIUS)
    with pytest.raises(errors.PrivinfError, match=words):
        m.fit(**({"epsilon_x": 4.0, "epsilon_y": 2.0, "delta": 1e-5, "rng": 0} | options))
    assert len(m.ledger) == 0


def test_one_pass_of_sgd_with_and_without_averaging():
    y, X = data(100_000)
    release = pi.IWPGLM(y, X, radius=RADIUS).release(epsilon_x=16.0, epsilon_y=4.0, delta=1e-5, rng=0)
    m = pi.IWPGLM.from_release(release, loss="quadratic")
    newton = m.fit()
    mean = m.fit(method="sgd", theta_radius=5.0, average=True, burn_in=0.2)
    assert (abs(mean.params - newton.params) < 2.0 * newton.bse).all()
    assert (mean.bse >= newton.bse * 0.99).all()
    assert mean.options["Iterate"] == "average"
    last = m.fit(method="sgd", theta_radius=5.0, batch=64, step=0.01)
    with pytest.raises(errors.NotAvailableError, match="last iterate"):
        last.conf_int()
    assert last.score_test().pvalue == newton.score_test().pvalue


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"method": "sgd"}, "theta_radius"),
        ({"method": "sgd", "theta_radius": math.inf}, "theta_radius"),
        ({"method": "sgd", "theta_radius": 2.0, "batch": 0}, "batch"),
        ({"method": "sgd", "theta_radius": 2.0, "step": -1.0}, "step"),
        ({"method": "sgd", "theta_radius": 2.0, "burn_in": 0.1}, "average"),
        ({"batch": 10}, "only with method='sgd'"),
        ({"method": "adam"}, "method"),
    ],
)
def test_bad_passes_cost_nothing(options, words):
    y, X = data(500)
    m = pi.IWPGLM(y, X, radius=RADIUS)
    with pytest.raises(errors.PrivinfError, match=words):
        m.fit(**({"epsilon_x": 4.0, "epsilon_y": 2.0, "delta": 1e-5, "rng": 0} | options))
    assert len(m.ledger) == 0
