"""RMGMOLS, DGMOLS, BGMOLS: both entry points, any label, plain and shrunk fits, what is refused."""

import dataclasses
import math
import pickle
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

import privinf as pi
from privinf import errors
from studies.simulation import binomial_limits

N, D = 20_000, 4
BOUNDS = [(-1, 1), (0, 2), (-1, 1), (-3, 1)]
PARTIES = {"a": [0, 1], "b": [2], "c": [3, "y"]}


def data(n=N, seed=0):
    rng = np.random.default_rng(seed)
    low, high = np.array(BOUNDS).T
    X = rng.uniform(low, high, (n, D))
    y = 0.3 + X @ [0.5, -0.2, 0.0, 0.1] + 0.1 * rng.uniform(-1, 1, n)
    return y, X


def model(estimator=pi.RMGMOLS, n=N, **options):
    y, X = data(n)
    return estimator(y, X, parties=PARTIES, bounds=BOUNDS, y_bounds=(-2, 2), **options)


def test_array_names_and_constant_first():
    r = model().fit(epsilon=4.0, delta=1e-5, rng=0)
    assert list(r.params.index) == ["const", "x1", "x2", "x3", "x4"]
    assert list(model(intercept=False).fit(epsilon=4.0, delta=1e-5, rng=0).params.index) == [
        "x1",
        "x2",
        "x3",
        "x4",
    ]
    assert r.use_t
    assert r.df_resid == len(r.release.arrays["response"]) - D
    assert "t" in r.summary().as_text().split("std err")[1][:60]


def test_release_shapes_and_per_person_report():
    m = model()
    rels = m.release(epsilon=1.0, delta=1e-5)
    assert list(rels) == ["a", "b", "c"]
    k = rels["a"].arrays["rows"].shape[0]
    assert [rels[p].arrays["rows"].shape for p in rels] == [(k, 2), (k, 1), (k, 2)]
    assert rels["a"].secure
    r = pi.RMGMOLS.from_release(rels, label="y").fit()
    each = pi.accounting.calibrate_mu(epsilon=1.0, delta=1e-5)
    assert r.privacy.mu == pytest.approx(each * math.sqrt(3))
    assert list(r.privacy.parties.index) == ["a", "b", "c"]
    np.testing.assert_allclose(r.privacy.parties["epsilon"], 1.0, rtol=1e-6)
    assert r.privacy.party("b").mu == pytest.approx(each)
    assert "Epsilon, b alone" in r.summary().as_text()
    assert "Each party alone" in str(r.privacy)
    with pytest.raises(errors.ArgumentError, match="no release of a party"):
        r.privacy.party("z")


def test_both_doors_give_the_same_fit():
    m = model()
    rels = m.release(epsilon=2.0, delta=1e-5, rng=3)
    here = model().fit(epsilon=2.0, delta=1e-5, rng=3)
    there = pi.RMGMOLS.from_release(rels, label="y").fit()
    np.testing.assert_allclose(there.params, here.params[there.params.index])
    formula = pi.RMGMOLS.from_release(rels).regress("y ~ x1 + x2 + x3 + x4")
    np.testing.assert_allclose(formula.params, here.params)
    np.testing.assert_allclose(formula.bse, here.bse)


def test_a_joined_release_regresses_itself():
    rels = model(n=4000).release(epsilon=2.0, delta=1e-5, rng=3)
    joined = pi.join(rels)
    direct = pi.RMGMOLS.from_release(rels).regress("x1 ~ y + x2", target="sample")
    np.testing.assert_array_equal(joined.regress("x1 ~ y + x2", target="sample").params, direct.params)
    with pytest.raises(errors.NotAvailableError, match="combine the releases of all parties"):
        rels["a"].regress("x1 ~ x2")


def test_releases_from_files_keep_the_order_of_their_columns(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"z": rng.uniform(0, 1, 4000), "g": rng.choice(["u", "v", "w"], 4000)})
    frame = frame.assign(a=rng.uniform(0, 1, 4000), y=2 * frame.z + rng.uniform(0, 1, 4000))
    schema = pi.Schema({"z": (0, 1), "g": ["u", "v", "w"], "a": (0, 1), "y": (0, 3)})
    m = pi.RMGMOLS.from_formula(
        "y ~ z + g + a", frame, schema=schema, parties={"one": ["z", "g", "a"], "two": ["y"]}, k=200
    )
    rels = m.release(epsilon=8.0, delta=1e-5, rng=0)
    for name, release in rels.items():
        release.save(tmp_path / name)
    back = {name: pi.load_release(tmp_path / name) for name in rels}
    direct = pi.RMGMOLS.from_release(rels).regress("y ~ z + g + a")
    np.testing.assert_array_equal(
        pi.RMGMOLS.from_release(back).regress("y ~ z + g + a").params, direct.params
    )
    pi.join(back).save(tmp_path / "joined")
    again = pi.load_release(tmp_path / "joined").regress("y ~ z + g + a")
    np.testing.assert_array_equal(again.params, direct.params)


@pytest.mark.parametrize("intercept", [True, False])
def test_dgm_without_noise_is_ols(intercept):
    y, X = data(500)
    r = model(pi.DGMOLS, 500, intercept=intercept).fit(epsilon=math.inf)
    o = sm.OLS(y, sm.add_constant(X) if intercept else X).fit(cov_type="HC0", use_t=False)
    np.testing.assert_allclose(r.params, o.params, rtol=1e-8)
    np.testing.assert_allclose(r.bse, o.bse, rtol=1e-8)
    np.testing.assert_allclose(r.pvalues, o.pvalues, atol=1e-8)
    np.testing.assert_allclose(r.conf_int(), o.conf_int(), rtol=1e-8, atol=1e-10)


def test_regression_on_any_label_equals_least_squares_without_noise():
    """Many mixed rows, no noise: each regression is near the full table's, within its own intervals."""
    y, X = data(4000)
    m = model(n=4000, k=1500, kind="hadamard")
    rels = m.release(epsilon=math.inf)
    frame = pd.DataFrame(X, columns=["x1", "x2", "x3", "x4"]).assign(y=y)
    for formula in ("y ~ x1 + x2 + x3 + x4", "x1 ~ y + x3", "x4 ~ x2 - 1", "x2 ~ 1 + x1"):
        r = pi.RMGMOLS.from_release(rels).regress(formula, target="sample")
        o = sm.OLS.from_formula(formula, frame).fit()
        z = (r.params - o.params) / r.bse
        assert list(r.params.index) == list(o.params.index)
        assert (abs(z) < 4.5).all(), formula


@pytest.mark.audit
@pytest.mark.parametrize("kind", ["signs", "hadamard", "countsketch"])
def test_without_noise_intervals_cover_the_full_data_fit(kind):
    """Over mixing matrices: 95% intervals of the finite population cover its least squares."""
    y, X = data(1500)
    full = sm.OLS(y, sm.add_constant(X)).fit().params
    covered = []
    for seed in range(120):
        r = model(n=1500, k=60, kind=kind, seed=seed).fit(epsilon=math.inf, target="sample")
        interval = r.conf_int().to_numpy()
        covered.append((interval[1:, 0] <= full[1:]) & (full[1:] <= interval[1:, 1]))
    low, high = binomial_limits(0.95, 120 * D, level=0.999)
    assert low <= np.mean(covered) <= max(high, 0.985)


def test_plain_fit_says_how_biased_it_is():
    plain = model().fit(epsilon=4.0, delta=1e-5, rng=1, debias=False)
    fair = model().fit(epsilon=4.0, delta=1e-5, rng=1)
    np.testing.assert_allclose(plain.params - plain.bias, fair.params, rtol=1e-9)
    assert plain.df_resid == fair.df_resid < plain.nobs / 2  # of mixed rows
    with pytest.raises(errors.NotAvailableError, match="plain least squares on the released rows is biased"):
        plain.conf_int()
    assert "biased towards zero" in plain.summary().as_text().replace("\n    ", " ")
    assert plain.score_test().pvalue == fair.score_test().pvalue
    with pytest.raises(errors.NotAvailableError, match="bias"):
        _ = fair.bias


def test_bgm_is_plain_least_squares_on_the_rows():
    rels = model(pi.BGMOLS).release(epsilon=4.0, delta=1e-5, rng=2)
    rows = np.hstack([rels[p].arrays["rows"] for p in rels])
    r = pi.BGMOLS.from_release(rels, label="y").fit()
    scale = np.array([1.0, 2.0, 1.0, 3.0])
    expected = np.linalg.lstsq(rows[:, :4], rows[:, 4], rcond=None)[0] * 2.0 / scale
    np.testing.assert_allclose(r.params, expected, rtol=1e-9)


def test_paper_plain_estimator_on_released_rows():
    """debias=False without intercept is least squares on the k rows, ridge on the scaled Gram matrix."""
    rels = model(intercept=False, k=80).release(epsilon=4.0, delta=1e-5, rng=2)
    rows = np.hstack([rels[p].arrays["rows"] for p in rels])
    X, y = rows[:, :4], rows[:, 4]
    scale = 2.0 / np.array([1.0, 2.0, 1.0, 3.0])
    r = pi.RMGMOLS.from_release(rels, label="y").fit(debias=False)
    np.testing.assert_allclose(r.params, np.linalg.lstsq(X, y, rcond=None)[0] * scale, rtol=1e-9)
    ridged = pi.RMGMOLS.from_release(rels, label="y").fit(debias=False, ridge=1e-3)
    expected = np.linalg.solve(X.T @ X / N + 1e-3 * np.eye(4), X.T @ y / N)
    np.testing.assert_allclose(ridged.params, expected * scale, rtol=1e-9)


def test_a_ridge_of_another_kind_of_number_is_that_number():
    fitted = [
        model().fit(epsilon=1.0, delta=1e-5, rng=0, debias=False, ridge=r) for r in (0.5, Decimal("0.5"))
    ]
    np.testing.assert_array_equal(fitted[0].params, fitted[1].params)


def test_ridge_changes_the_point_and_not_the_intervals():
    rels = model().release(epsilon=4.0, delta=1e-5, rng=2)
    m = pi.RMGMOLS.from_release(rels, label="y")
    ridged, fair = m.fit(ridge=0.5), m.fit()
    assert abs(ridged.params["x1"]) < abs(fair.params["x1"])
    np.testing.assert_allclose(ridged.conf_int(), fair.conf_int())


@pytest.mark.parametrize("kind", [pi.RMGMOLS, pi.DGMOLS, pi.BGMOLS])
def test_several_rows_a_person_are_refused_whichever_door_they_come_by(kind):
    schema = pi.Schema({"age": (20.0, 80.0), "cost": (0.0, 25.0)}, unit="person", max_rows=2)
    frame = pd.DataFrame({"age": [30.0] * 40, "cost": [9.0] * 40, "person": np.arange(40) // 2})
    parties = {"clinic": ["age"], "payer": ["cost"]}
    with pytest.raises(errors.SchemaError, match="one row per person"):
        kind.from_formula("cost ~ age", frame, schema=schema, parties=parties).fit(epsilon=8.0, delta=1e-5)


def test_factors_and_formula_door():
    rng = np.random.default_rng(4)
    n = 30_000
    frame = pd.DataFrame({"age": rng.uniform(20, 80, n), "g": rng.choice(["u", "v", "w"], n)})
    frame["cost"] = 10 + 0.1 * frame.age + 2.0 * (frame.g == "w") + rng.uniform(-1, 1, n)
    schema = pi.Schema({"age": (20.0, 80.0), "g": ["u", "v", "w"], "cost": (0.0, 25.0)})
    parties = {"clinic": ["age"], "registry": ["g"], "payer": ["cost"]}
    m = pi.RMGMOLS.from_formula("cost ~ age + C(g)", frame, schema=schema, parties=parties, k=400)
    r = m.fit(epsilon=8.0, delta=1e-5, rng=0)
    o = sm.OLS.from_formula("cost ~ age + C(g)", frame).fit()
    assert list(r.params.index) == list(o.params.index)
    assert (abs(r.params - o.params) < 5 * r.bse).all()
    assert np.isfinite(r.predict(frame.head(3))).all()
    assert list(r.wald_test_terms().table.index) == ["Intercept", "C(g)", "age"]
    with pytest.raises(errors.NotAvailableError, match="not one of the released columns"):
        pi.RMGMOLS.from_release(m.release(epsilon=8.0, delta=1e-5, rng=0)).regress("cost ~ age*g")
    with pytest.raises(errors.NotAvailableError, match="not one of the released columns"):
        pi.RMGMOLS.from_release(m.release(epsilon=8.0, delta=1e-5, rng=0)).regress("cost ~ np.log(age)")


def test_stored_results_keep_t_inference_and_score_test(tmp_path):
    r = model().fit(epsilon=4.0, delta=1e-5, rng=0)
    r.save(tmp_path / "r.pi")
    back = pi.load_results(tmp_path / "r.pi")
    assert type(back) is type(r)
    np.testing.assert_array_equal(back.pvalues, r.pvalues)
    assert back.score_test().pvalue == r.score_test().pvalue
    assert back.score_test(form="exact").pvalue == r.score_test(form="exact").pvalue
    again = pickle.loads(pickle.dumps(r))
    assert again.conf_int().equals(r.conf_int())
    assert again.privacy.parties.equals(r.privacy.parties)


def test_t_quantiles_everywhere():
    from scipy import stats

    r = model(k=40).fit(epsilon=8.0, delta=1e-5, rng=0)
    t = stats.t(r.df_resid)
    half = (r.conf_int()[1] - r.conf_int()[0]) / 2
    np.testing.assert_allclose(half / r.bse, t.ppf(0.975))
    np.testing.assert_allclose(r.pvalues, 2 * t.sf(abs(r.tvalues)))
    np.testing.assert_allclose(r.t_test("x1 = 0").pvalue, r.pvalues["x1"])
    assert r.wald_test("x1 = 0").pvalue == pytest.approx(r.pvalues["x1"])
    one = r.simultaneous(which="x1", rng=0)
    assert one.critical_value == pytest.approx(t.ppf(0.975))
    every = r.simultaneous(rng=0)
    assert t.ppf(0.975) < every.critical_value < t.ppf(1 - 0.025 / 5)
    _, X = data(3)
    frame = r.get_prediction(X).summary_frame()
    width = frame.mean_ci_upper - frame["mean"]
    np.testing.assert_allclose(width / frame.mean_se, t.ppf(0.975))
    np.testing.assert_allclose(
        r.delta_method(lambda b: b["x1"]).conf_int()[0], r.conf_int().loc["x1"], rtol=1e-6
    )


def test_adjusted_r_squared_counts_people_not_rows():
    """The t law's degrees of freedom are of the k mixed rows; R-squared is of all n people."""
    r = model(n=4000, k=500).fit(epsilon=math.inf, rng=0)
    freed = r.nobs - len(r.names)
    assert r.df_resid < freed / 2
    assert 1.0 - r.rsquared_adj == pytest.approx((r.nobs - 1) / freed * (1.0 - r.rsquared), rel=1e-12)
    assert 0.0 < r.rsquared - r.rsquared_adj < 0.01


def test_noise_of_the_largest_diameter_costs_a_small_party_less():
    own, largest = (model(diameter=d).release(epsilon=1.0, delta=1e-5, rng=0) for d in ("own", "largest"))
    assert (
        own["b"].noise_model["scale"]
        < largest["b"].noise_model["scale"]
        == pytest.approx(largest["a"].noise_model["scale"])
    )
    mu = pi.accounting.calibrate_mu(epsilon=1.0, delta=1e-5)
    assert largest["b"].entries[0].loss.mu == pytest.approx(mu / math.sqrt(2))
    assert own["b"].entries[0].loss.mu == pytest.approx(mu)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"parties": {"a": [0, 1], "b": [2, 3]}}, "belongs to no party"),
        ({"parties": {"a": [0, 1, 2, 3], "b": [3, "y"]}}, "belongs to party"),
        ({"parties": {"a": [0, 1, 2, 9], "b": ["y"]}}, "X has 4 columns"),
        ({"parties": {"a": [0, 1, 2, "z"], "b": ["y"]}}, "does not exist"),
        ({"parties": {"a": [0, 1, 2, 3, "y"], "b": []}}, "has no column"),
        ({"bounds": None}, r"no public bounds are declared: pass bounds=\[\(low, high\), \.\.\.\]"),
        ({"bounds": BOUNDS[:2]}, "2 pairs for 4 columns"),
        ({"y_bounds": None}, r"no public bounds are declared: pass y_bounds=\(low, high\)"),
        ({"k": 3}, "too few for"),
        ({"k": N + 1}, "at most n"),
        ({"kind": "gauss"}, "kind"),
        ({"rsquared": 1.5}, "rsquared"),
        ({"share": 0.2, "intercept": False}, "weight of the intercept"),
        ({"share": 1.2}, "share"),
        ({"rsquared": 0.5, "k": 50}, "k='auto'"),
    ],
)
def test_bad_input_costs_nothing(change, words):
    y, X = data()
    given = {"parties": PARTIES, "bounds": BOUNDS, "y_bounds": (-2, 2)} | change
    ledger = pi.Ledger()
    with pytest.raises(errors.PrivinfError, match=words):
        pi.RMGMOLS(y, X, ledger=ledger, **given).fit(epsilon=1.0, delta=1e-5, rng=0)
    assert len(ledger) == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"shrink": True, "ridge": 1.0}, "because it replaces them"),
        ({"shrink": True, "debias": False}, "because it replaces them"),
        ({"debias": False, "target": "sample"}, "a plain fit"),
        ({"target": "penalized"}, "ridge > 0"),
        ({"ridge": -1.0}, "ridge"),
    ],
)
def test_options_that_do_not_go_together(options, words):
    m = model()
    with pytest.raises(errors.ArgumentError, match=words):
        m.fit(epsilon=1.0, delta=1e-5, rng=0, **options)
    assert len(m.ledger) == 0


def test_a_fault_in_the_last_party_costs_the_first_nothing():
    y, X = data()
    X[5, 3] = np.nan
    m = pi.RMGMOLS(y, X, parties=PARTIES, bounds=BOUNDS, y_bounds=(-2, 2))
    with pytest.raises(errors.SchemaError, match="x4"):
        m.fit(epsilon=1.0, delta=1e-5, rng=0)
    assert len(m.ledger) == 0


def test_constant_added_twice_is_refused():
    y, X = data(100)
    with pytest.raises(errors.SchemaError, match="const"):
        pi.RMGMOLS(y, pi.add_constant(X), parties=PARTIES, bounds=BOUNDS, y_bounds=(-2, 2))


def test_joint_limit_is_asked_for_all_parties_before_any_row_is_read():
    ledger = pi.Ledger(pi.Budget(mu=0.4))
    y, X = data()
    m = pi.RMGMOLS(y, X, parties=PARTIES, bounds=BOUNDS, y_bounds=(-2, 2), ledger=ledger)
    with pytest.raises(errors.BudgetExceededError):
        m.fit(mu=0.25, delta=1e-5, rng=0)
    assert len(ledger) == 0
    m.fit(mu=0.2, delta=1e-5, rng=0)
    assert len(ledger) == 3


def test_releases_of_different_plans_do_not_join():
    base = model(n=2000).release(epsilon=1.0, delta=1e-5, rng=0)
    for options, words in (
        ({"k": 33}, "use the same k"),
        ({"kind": "signs"}, "use the same kind"),
        ({"seed": 5}, "use the same seed"),
        ({"intercept": False}, "use the same"),
    ):
        other = model(n=2000, **options).release(epsilon=1.0, delta=1e-5, rng=0)
        with pytest.raises(errors.AlignmentError, match=words):
            pi.join({"a": base["a"], "b": other["b"]})
    with pytest.raises(errors.AlignmentError, match="two releases of party"):
        pi.join([base["a"], base["a"]])
    with pytest.raises(errors.AlignmentError, match="needs a"):
        pi.DGMOLS.from_release(base)
    with pytest.raises(errors.SchemaError, match="not a released column"):
        pi.RMGMOLS.from_release(base, label="q").fit()
    of_a_plan = {
        name: dataclasses.replace(one, noise_model=_unnamed(one.noise_model)) for name, one in base.items()
    }
    with pytest.raises(errors.ArgumentError, match="name the column"):
        pi.RMGMOLS.from_release(of_a_plan).fit()
    with pytest.raises(errors.ArgumentError, match="built from releases"):
        pi.RMGMOLS.from_release(base, label="y").fit(epsilon=1.0)


def _unnamed(law):
    """Return the law of a release that a party made from a plan, where nobody named a regression."""
    return {name: value for name, value in law.items() if name != "regression"}


def test_noise_free_releases_refuse_to_be_saved(tmp_path):
    rels = model(n=500, k=50).release(epsilon=math.inf)
    with pytest.raises(errors.NotAvailableError, match="epsilon=inf"):
        rels["a"].save(tmp_path / "a.npz")


@pytest.mark.parametrize("target", ["population", "sample"])
def test_mixed_rows_are_drawn_again(target, tmp_path):
    r = model(k=150).fit(epsilon=30.0, delta=1e-5, rng=0, target=target)
    signs, pairs = r.bootstrap(999, rng=1), r.bootstrap(99, "pairs", rng=1)
    np.testing.assert_allclose(signs.bse, r.bse, rtol=0.12)
    np.testing.assert_allclose(pairs.bse, r.bse, rtol=0.5)
    assert (pairs.replicates.bse == r.bse.to_numpy()).all()
    joint = [r.simultaneous(method=method, rng=1) for method in ("gaussian", "multiplier")]
    assert joint[1].critical_value == pytest.approx(joint[0].critical_value, abs=0.25)
    r.save(tmp_path / "rows.npz")
    again = pi.load_results(tmp_path / "rows.npz").simultaneous(method="multiplier", rng=1)
    assert again.critical_value == joint[1].critical_value
    r.save(tmp_path / "none.npz", records=False)
    without = pi.load_results(tmp_path / "none.npz")
    for method in ("multiplier", "pairs"):
        with pytest.raises(
            errors.NotAvailableError, match="needs the released rows, but this result was saved without"
        ):
            without.bootstrap(method=method)
    with pytest.raises(
        errors.NotAvailableError, match="needs the released rows, but this result was saved without"
    ):
        without.simultaneous(method="multiplier")


def test_rows_of_a_penalized_fit_are_not_drawn_again():
    r = model(k=150).fit(epsilon=30.0, delta=1e-5, rng=0, ridge=0.2, target="penalized")
    with pytest.raises(errors.NotAvailableError, match="has a penalty"):
        r.bootstrap(method="multiplier")
    assert r.bootstrap(20).method == "parametric"
    assert model(k=150).fit(epsilon=30.0, delta=1e-5, rng=0).bootstrap(20).method == "multiplier"


@pytest.mark.parametrize(
    ("made", "fitted"),
    [
        ({"intercept": NotImplemented}, {}),
        ({"seed": NotImplemented}, {}),
        ({}, {"debias": NotImplemented}),
        ({}, {"shrink": 1}),
    ],
)
def test_what_is_no_flag_is_refused_before_the_charge(made, fitted):
    """NotImplemented counts as true, with a warning that will be an error."""
    ledger = pi.Ledger()
    with pytest.raises(errors.ArgumentError, match="must be"):
        model(n=2000, ledger=ledger, **made).fit(epsilon=4.0, delta=1e-5, rng=0, **fitted)
    assert not ledger.entries


def test_the_paper_s_variant_is_its_algorithm_2():
    """Signs, k = sqrt(n)/sigma, noise of sd 2 sqrt(d_max) sigma for everybody, plain least squares."""
    sigma, spend = math.sqrt(2 * math.log(1.25 / 1e-5)) / 0.9, {"epsilon": 0.9, "delta": 1e-5}
    y, X = data()
    symmetric = {"bounds": [(-1, 1), (-2, 2), (-1, 1), (-3, 3)], "y_bounds": (-2, 2)}
    paper = pi.RMGMOLS(y, X, parties=PARTIES, variant="paper", **symmetric)
    plan = paper.plan(**spend)
    assert (plan.k, plan.kind, plan.intercept) == (math.floor(math.sqrt(N) / sigma), "signs", False)
    for party in PARTIES:
        scale = plan.mechanism(party).noise_scale(plan.party(party).total_mu(plan.calibration))
        assert scale == pytest.approx(2 * math.sqrt(2) * sigma)
    release = pi.MixingPlan.new(parties=plan.parties, n=N, k="paper", intercept=False, calibration="classic")
    assert release.k == plan.k
    fit = paper.fit(**spend, rng=3)
    named = {"k": plan.k, "kind": "signs", "intercept": False, "diameter": "largest"}
    spelled = pi.RMGMOLS(y, X, parties=PARTIES, **symmetric, **named)
    explicit = spelled.fit(**spend, rng=3, calibration="classic", debias=False)
    np.testing.assert_array_equal(fit.params, explicit.params)
    assert fit.bias is not None
    assert list(fit.params.index) == ["x1", "x2", "x3", "x4"]


def test_arguments_that_are_passed_are_used_in_the_paper_s_variant_too():
    paper = model(variant="paper", k=90, kind="hadamard", intercept=True, diameter="own")
    plan = paper.plan(epsilon=2.0, delta=1e-5, calibration="exact")
    assert (plan.k, plan.kind, plan.intercept, plan.diameter) == (90, "hadamard", True, "own")
    assert plan.calibration == "exact"
    same = model(k=90, kind="hadamard").fit(epsilon=2.0, delta=1e-5, rng=3)
    fit = paper.fit(epsilon=2.0, delta=1e-5, rng=3, calibration="exact", debias=True)
    np.testing.assert_array_equal(fit.params, same.params)
    with pytest.raises(errors.ArgumentError, match="variant="):
        model(variant="printed")
    with pytest.raises(errors.ArgumentError, match="finite epsilon"):
        model(variant="paper").plan(epsilon=math.inf)
