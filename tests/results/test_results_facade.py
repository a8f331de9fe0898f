import copy
import dataclasses
import pickle

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm
from statsmodels.iolib.summary2 import summary_col
from statsmodels.stats.multitest import multipletests

import privinf as pi
from privinf.accounting import PrivacyReport
from privinf.accounting.report import rounded_up
from privinf.errors import ArgumentError, NotAvailableError
from privinf.inference.corrected_features import CorrectedLeastSquares
from privinf.inference.estimate import Estimate
from privinf.results import Results, compare
from privinf.results.context import Context
from privinf.results.rendering import UnavailableAttributes
from privinf.schema import Design


def rebuilt(results, **changes):
    context = results._context
    kept = {name: getattr(context, name) for name in context.__slots__}
    estimate = changes.pop("estimate", results.estimate)
    return Results(estimate, Context(**{**kept, **changes}))


@pytest.fixture(scope="module")
def weak(results):
    e = results.estimate
    return rebuilt(
        results,
        estimate=Estimate(
            params=e.params, cov=None, names=e.names, nobs=e.nobs, weak_reason="too much noise"
        ),
        sampling_cov=None,
    )


@pytest.mark.parametrize(
    "member", sorted({*(name for name in vars(UnavailableAttributes) if name[0] != "_"), "identification"})
)
def test_unavailable_members_say_why_and_do_not_exist_for_probes(results, member):
    assert not hasattr(results, member)
    with pytest.raises(NotAvailableError, match=member):
        getattr(results, member)


def test_immutable(results):
    with pytest.raises(AttributeError, match="immutable"):
        results.params = 1
    with pytest.raises(AttributeError, match="immutable"):
        results.anything = 1
    with pytest.raises(TypeError):
        results.options["x"] = "y"
    for member in ("params", "bse", "pvalues", "noise_share"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(results, member).iloc[0] = 1.0
    results = rebuilt(results)
    before = results.bse.copy()
    frame = results.cov_params()
    frame.iloc[:] = 0.0
    results._tests.inner.normalized_cov_params[:] = 7.0
    assert results.estimate.bse.tolist() == before.tolist()


def test_pickle_and_copy(results):
    results._tests.inner
    for other in (pickle.loads(pickle.dumps(results)), copy.deepcopy(results)):
        assert str(other.summary()) == str(results.summary())
        assert other.params.equals(results.params)
        assert "_inner" not in other.__dict__


def test_both_kinds_of_error(results):
    np.testing.assert_allclose(results.bse_sampling**2 + results.bse_privacy**2, results.bse**2)
    np.testing.assert_allclose(results.noise_share, 0.3)


def test_a_point_changes_what_is_reported_but_not_what_is_tested(results):
    moved = rebuilt(results, point=results.params.to_numpy() / 2)
    assert moved.params.equals(results.params / 2)
    assert moved.conf_int().equals(results.conf_int())
    assert moved.tvalues.equals(results.tvalues)


@pytest.mark.parametrize("method", ["conf_int", "summary", "tidy"])
def test_simultaneous_as_an_argument_names_the_method(results, method):
    remedy = rf"of Results.{method}: result.simultaneous\(0.05\).conf_int\(\)"
    with pytest.raises(ArgumentError, match=remedy):
        getattr(results, method)(simultaneous=True)
    with pytest.raises(ArgumentError, match="pass alpha=, which is one minus the confidence level"):
        results.conf_int(level=0.9)
    assert len(results.simultaneous(0.05).conf_int()) == len(results.params)


def test_context_must_fit_the_estimate(results, design):
    with pytest.raises(ArgumentError, match="sampling_cov"):
        rebuilt(results, sampling_cov=np.eye(2))
    with pytest.raises(ArgumentError, match="point"):
        rebuilt(results, point=np.ones(2))
    with pytest.raises(ArgumentError, match="columns of the design differ"):
        rebuilt(results, design=Design.from_arrays(["a"], bounds=[(0, 1)]))
    with pytest.raises(ArgumentError, match="'colour' is not an argument"):
        Results(results.estimate, Context(report=results.privacy, colour="red"))


def test_simultaneous_as_an_argument_of_contrasts_names_the_method(results):
    remedy = r"of Contrasts.conf_int: result.simultaneous\(0.05, which=...\).conf_int\(\)"
    with pytest.raises(ArgumentError, match=remedy):
        results.t_test(np.eye(len(results.params))[:2]).conf_int(simultaneous=True)


def test_printed_contrasts_state_a_bias_that_intervals_allow_for(results):
    p = len(results.params)
    estimate = dataclasses.replace(results.estimate, bias=results.estimate.bse * 0.5)
    biased = rebuilt(results, estimate=estimate)
    assert "allow for a possible bias of up to 0.5 standard errors" in str(biased.t_test(np.eye(p)[:2]))
    assert "allow for a possible bias of up to 0.5 standard errors" in biased.t_test(np.eye(p))._repr_html_()
    assert "possible bias" not in str(results.t_test(np.eye(p)[:2]))


def test_simultaneous_inference_is_repeated_without_a_seed(results):
    first, second = results.simultaneous(), results.simultaneous()
    pd.testing.assert_frame_equal(first.summary_frame(), second.summary_frame())
    assert results.simultaneous(rng=5).critical_value != first.critical_value


def test_simultaneous(results):
    found = results.simultaneous(0.1, rng=0)
    assert list(found.names) == list(results.names)
    half = (found.conf_int()[1] - found.conf_int()[0]) / 2
    np.testing.assert_allclose(half / results.bse, found.critical_value)
    assert norm.isf(0.05) < found.critical_value < norm.isf(0.05 / 6)
    pointwise = results.pvalues.to_numpy()
    table = found.summary_frame()
    for adjustment in ("bonferroni", "holm", "fdr_bh"):
        expected = multipletests(pointwise, method=adjustment)[1]
        np.testing.assert_allclose(table[adjustment], expected)
    assert (table["step-down"] <= table["single-step"]).all()
    assert (table["single-step"] <= table["bonferroni"] + 1e-12).all()
    assert (table["step-down"] <= table["holm"] + 1e-12).all()
    assert found.pvalues.tolist() == table["step-down"].tolist()
    assert found.reject.equals(found.pvalues <= 0.1)
    assert found.summary_frame().shape == (6, 11)
    assert "critical value" in repr(found)
    assert "<table" in found._repr_html_()


def test_simultaneous_inference_allows_for_a_bias_as_the_separate_tests_do(results):
    e = results.estimate
    bias = np.linspace(0.0, 1.5, 6) * e.bse
    biased = rebuilt(results, estimate=dataclasses.replace(e, scores=None, bread=None, bias=bias))
    found = biased.simultaneous()
    table = found.summary_frame()
    np.testing.assert_allclose(table["P>|z|"], biased.pvalues)
    assert (table["single-step"] <= table["bonferroni"]).all()
    assert (table["step-down"] <= table["holm"] + 1e-15).all()
    assert table["bias bound"].tolist() == pytest.approx(bias.tolist())
    half = (found.conf_int()[1] - found.conf_int()[0]).to_numpy() / 2.0
    assert half[0] == pytest.approx(found.critical_value * e.bse[0])
    assert (half[1:] > found.critical_value * e.bse[1:]).all()
    assert (half <= found.critical_value * e.bse + bias + 1e-12).all()
    assert (half >= np.diff(biased.conf_int().to_numpy())[:, 0] / 2.0).all()
    covers_null = (np.abs(found.effect) <= half) == (table["single-step"] > 0.05).to_numpy()
    assert covers_null.all()
    for text in (repr(found), found._repr_html_()):
        assert "possible bias of at most 1.5 standard errors" in text


def test_simultaneous_contrasts_may_be_dependent_and_carry_their_null(results):
    text = "C(g)[T.b] = 0.3, C(g)[T.c] = 0, C(g)[T.b] = C(g)[T.c]"
    found = results.simultaneous(which=text, rng=0)
    np.testing.assert_allclose(found.tvalues, results.t_test(text).statistic)
    assert found.names == ("C(g)[T.b]", "C(g)[T.c]", "C(g)[T.b] - C(g)[T.c]")
    multiplier = results.simultaneous(which=text, method="multiplier", rng=0, draws=4999)
    assert multiplier.critical_value == pytest.approx(found.critical_value, abs=0.1)
    one = results.simultaneous(which="x1", rng=1)
    assert one.conf_int().iloc[0].tolist() == pytest.approx(results.conf_int().loc["x1"].tolist())


@pytest.mark.parametrize("method", ["multiplier", "parametric"])
def test_bootstrap(results, method):
    found = results.bootstrap(1999, method, rng=0)
    np.testing.assert_allclose(found.bse, results.bse, rtol=0.12)
    assert list(found.draws.columns) == list(results.names)
    assert found.cov.shape == (6, 6)
    for kind in ("percentile", "studentized"):
        np.testing.assert_allclose(
            found.conf_int(0.1, kind), results.conf_int(0.1), atol=0.3 * results.bse.max()
        )
    assert found.summary_frame().shape == (6, 7)
    assert found.to_xarray().sizes == {"chain": 1, "draw": 1999, "coefficient": 6}
    assert "bootstrap" in repr(found)
    assert "<table" in found._repr_html_()


def test_resampling_needs_records(results, ols):
    e = results.estimate
    total = rebuilt(results, estimate=Estimate(params=e.params, cov=e.cov, names=e.names, nobs=e.nobs))
    with pytest.raises(NotAvailableError, match="sums over records"):
        total.bootstrap(method="multiplier")
    with pytest.raises(NotAvailableError, match="sums over records"):
        total.simultaneous(method="multiplier")
    with pytest.raises(NotAvailableError, match="method='pairs'"):
        results.bootstrap(method="pairs")
    with pytest.raises(ArgumentError, match="'multiplier', 'pairs', 'parametric'"):
        results.bootstrap(method="wild")
    finite = rebuilt(results, target="sample")
    for call in (finite.bootstrap, finite.simultaneous):
        with pytest.raises(NotAvailableError, match="a fit with target='sample' has no sampling error"):
            call(method="multiplier")
    assert len(finite.bootstrap(50, "parametric").draws) == 50


def test_the_default_bootstrap_is_the_best_there_is(results):
    e = results.estimate
    total = rebuilt(results, estimate=Estimate(params=e.params, cov=e.cov, names=e.names, nobs=e.nobs))
    for result, method in ((results, "multiplier"), (total, "parametric")):
        found = result.bootstrap(50, rng=0)
        assert found.method == method
        assert repr(found).startswith(f"{method} bootstrap")
        np.testing.assert_array_equal(found.draws, result.bootstrap(50, method, rng=0).draws)
    assert rebuilt(results, target="sample").bootstrap(50).method == "parametric"


def test_draws(results):
    pytest.importorskip("xarray")
    found = results.draws(5000, rng=0)
    assert found.params.dims == ("chain", "draw", "coefficient")
    assert "epsilon" in found.attrs["privacy"]
    values = found.params.to_numpy()[0]
    np.testing.assert_allclose(values.std(axis=0), results.bse, rtol=4 * np.sqrt(0.5 / 5000))


def test_to_arviz(results):
    """Its intervals are those of the result."""
    az = pytest.importorskip("arviz")
    container = results.to_arviz(4000, rng=0)
    table = az.summary(container, kind="stats", hdi_prob=0.9)
    np.testing.assert_allclose(table["mean"], results.params, atol=5 * results.bse.max() / np.sqrt(4000))
    ends = np.asarray(az.hdi(container, hdi_prob=0.9).params)
    np.testing.assert_allclose(ends, results.conf_int(0.1), atol=0.25 * results.bse.max())


def test_information_criteria_have_nothing_to_compare(results):
    az = pytest.importorskip("arviz")
    with pytest.raises(Exception, match=r"log.likelihood|ELPD"):
        az.compare({"one": results.to_arviz(50, rng=0), "two": results.to_arviz(50, rng=1)}, ic="loo")


def test_draws_have_the_law_of_the_intervals(results):
    pytest.importorskip("xarray")
    few = rebuilt(results, estimate=dataclasses.replace(results.estimate, df=6.0, df_resid=np.inf))
    found = few.draws(20_000, rng=0)
    assert found.attrs["distribution"].startswith("multivariate t")
    ends = np.quantile(found.params[0], [0.025, 0.975], axis=0).T
    np.testing.assert_allclose(ends, few.conf_int(), atol=0.15 * few.bse.max())
    biased = rebuilt(results, estimate=dataclasses.replace(results.estimate, bias=results.bse.to_numpy()))
    assert biased.draws(10, rng=0).attrs["bias"] == results.bse.max()


def test_summary_col_beside_statsmodels(results, ols, weak):
    text = str(summary_col([results, ols], model_names=["private", "ols"]))
    assert "epsilon (delta=1e-05)" in text
    assert f"{results.params['x1']:.4f}" in text
    assert "0.5000" in text  # R-squared


def test_what_states_an_epsilon_says_that_seeded_noise_is_not_private(results, ols):
    seeded = pi.OLS(np.zeros(400), np.ones((400, 1)) * [[0.5]], bounds=[(0, 1)], y_bounds=(-1, 1))
    seeded = seeded.fit(epsilon=1.0, delta=1e-5, rng=0)
    stamp = seeded.privacy.stamp
    for text in (compare([seeded, results]), summary_col([seeded, results]), seeded.summary()):
        assert stamp in str(text)
    for text in (compare([results, ols]), summary_col([results, ols])):
        assert "noise" not in str(text).replace("privacy noise", "")
    told = compare({"seeded": seeded, "private": results, "ols": ols}).privacy["secure"]
    assert told.tolist() == [False, True, False]
    assert "secure" in seeded.to_maketables().__maketables_default_stat_keys__
    assert "secure" not in results.to_maketables().__maketables_default_stat_keys__


def test_a_ledger_that_holds_seeded_noise_too_says_so():
    ledger, words = pi.Ledger(), {"epsilon": 1.0, "delta": 1e-5}
    model = pi.OLS(np.zeros(400), np.full((400, 1), 0.5), bounds=[(0, 1)], y_bounds=(-1, 1), ledger=ledger)
    fits = [model.fit(**words), model.fit(**words, rng=0), model.fit(**words)]
    stamp = fits[1].privacy.stamp
    assert [bool(fit.privacy.stamp) for fit in fits] == [False, True, False]
    told = fits[2].summary().plain_facts["Epsilon, whole ledger"]
    assert all(stamp in text for text in (told, str(fits[2].privacy), fits[2].privacy.place))
    assert stamp not in str(fits[0].summary()) + str(fits[0].privacy) + fits[0].privacy.place


def test_a_release_that_was_charged_elsewhere_counts_in_the_total():
    rows = pd.DataFrame({"x": np.linspace(0, 1, 400), "y": 0.5})
    schema = pi.Schema({"x": (0, 1), "y": (0, 1)})
    release = pi.LocalExamples(schema, "y ~ x").release(rows, epsilon=8.0, delta=1e-5)
    model = pi.IWPGLM.from_release(release, loss="squared")
    fit = model.fit()
    assert not model.ledger.entries
    assert fit.privacy.cumulative.epsilon(1e-5) == fit.privacy.epsilon(1e-5) > 7.9
    assert float(fit.summary().plain_facts["Release, epsilon (delta=1e-05)"]) > 7.9


def test_the_whole_ledger_is_the_account_behind_every_door():
    ledger, words = pi.Ledger(), {"bounds": [(0, 1)], "y_bounds": (-1, 1)}
    fits = [
        pi.OLS(np.zeros(400), np.full((400, 1), 0.5), ledger=entry_point, **words).fit(mu=0.3)
        for entry_point in (ledger, ledger.scope("second"), ledger.scope("a", disjoint="halves"))
    ]
    together = [fit.privacy.cumulative.mu for fit in fits]
    np.testing.assert_allclose(together, 0.3 * np.sqrt([1.0, 2.0, 3.0]))


def test_compare_says_what_each_claim_assumes():
    rng, words = np.random.default_rng(0), {"mu": 1.0, "rng": 0}
    X, y = rng.uniform(-1, 1, (300, 1)), rng.uniform(-1, 1, 300)
    hidden = pi.ModulatedOLS(y, X, bounds=[(-1, 1)], y_bounds=(-1, 1)).fit(**words)
    clear = pi.ModulatedOLS(y, X, bounds=[(-1, 1)], response="public").fit(**words)
    text = " ".join(str(compare({"hidden": hidden, "clear": clear})).split())
    assert "guarantee of clear assumes: y is NOT protected: it is released without noise" in text
    assert "guarantee assumes: the number of records is public" in text


def test_compare_totals_the_budget(results, ols):
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (300, 1)), rng.uniform(-1, 1, 300)
    model = pi.ModulatedOLS(y, X, bounds=[(-1, 1)], y_bounds=(-1, 1))
    first, second = model.fit(mu=0.6, rng=0), model.fit(mu=0.8, rng=0)
    together = compare({"first": first, "again": first, "second": second})
    assert together.total.mu == pytest.approx(1.0)
    text = " ".join(str(together).split())
    assert f"The fits together spent epsilon {rounded_up(together.total.epsilon(), 4)} at delta 1e-06" in text
    assert "The private fits together spent" in str(compare([first, second, ols]))
    assert "together spent" not in str(compare([first, ols]))
    assert compare([ols]).total is None
    zeroed = dataclasses.replace(first.privacy.entries[0], relation="zero-out", id="zeroed")
    report = dataclasses.replace(first.privacy, entries=(zeroed,))
    other = Results(results.estimate, Context(report=report))
    assert "cannot be added, because their neighboring relations differ" in " ".join(
        str(compare([first, other])).split()
    )


def test_compare(results, ols, weak):
    found = compare({"private": results, "weak": weak, "ols": ols})
    assert found.params.shape == (6, 3)
    assert found.bse["weak"].isna().all()
    np.testing.assert_allclose(found.tvalues["private"], found.tvalues["ols"])
    np.testing.assert_allclose(found.pvalues["private"], found.pvalues["ols"])
    assert found.privacy["epsilon"].tolist() == [results.privacy.epsilon(1e-5)] * 2 + [np.inf]
    text = str(found)
    assert "(-)" in text
    assert "inf" in text
    assert "<table" in found._repr_html_()
    with pytest.raises(ArgumentError, match="at least one"):
        compare({})
    two, same = compare([results, results]), compare((results, ols))
    assert list(two.results) == ["y I", "y II"]
    assert list(same.results) == ["y I", "y II"]
    assert two.bse["y I"].equals(two.bse["y II"])
    assert list(compare([results]).results) == ["y"]
    with pytest.raises(ArgumentError, match="list or tuple"):
        compare(results)
    with pytest.raises(ArgumentError, match="'fit I'"):
        compare([1, 2])
    with pytest.raises(ArgumentError, match="'x' must be a result of a fit"):
        compare({"x": 1})


def test_compare_keeps_coefficients_that_one_fit_lacks(results):
    e = results.estimate
    smaller = Estimate(params=e.params[:2], cov=e.cov[:2, :2], names=e.names[:2], nobs=e.nobs)
    found = compare({"all": results, "two": Results(smaller, Context(report=results.privacy))})
    assert found.params["two"].notna().tolist() == [True, True] + [False] * 4
    assert list(found.params.index) == list(results.names)
    assert str(found).count(results.names[5]) == 1


@pytest.mark.parametrize(
    "call",
    [
        lambda r: r.bse,
        lambda r: r.tvalues,
        lambda r: r.pvalues,
        lambda r: r.conf_int(),
        lambda r: r.cov_params(),
        lambda r: r.t_test("x1"),
        lambda r: r.wald_test("x1"),
        lambda r: r.f_test("x1"),
        lambda r: r.t_test_pairwise("C(g)"),
        lambda r: r.wald_test_terms(),
        lambda r: r.simultaneous(),
        lambda r: r.draws(10),
        lambda r: r.bootstrap(10, "parametric"),
        lambda r: r.noise_share,
        lambda r: r.delta_method(lambda b: b["x1"]),
        lambda r: r.get_prediction(pd.DataFrame({"x1": [0.0], "x2": [0.0], "g": ["a"]})),
    ],
)
def test_weakly_identified_wald_members_give_the_reason(weak, call):
    with pytest.raises(NotAvailableError, match=r"too much noise|noise part"):
        call(weak)


def test_weakly_identified_results_still_show_themselves(weak):
    assert "too much noise" in str(weak.summary())
    assert "Results" in repr(weak)
    assert len(weak.predict(pd.DataFrame({"x1": [0.0], "x2": [0.0], "g": ["a"]}))) == 1


# ---- score inference, on a system in scaled units


@pytest.fixture(scope="module")
def scored():
    """Corrected least squares with a constant, a public covariate and centred private columns."""
    rng = np.random.default_rng(1)
    n = 4000
    x = rng.uniform([2, -1], [6, 1], (n, 2))
    z = rng.standard_normal(n)
    y = 3.0 + 0.5 * x[:, 0] - x[:, 1] + 0.2 * z + 0.3 * rng.standard_normal(n)
    design = Design.from_arrays(
        ["const", "x1", "x2", "z"], bounds=[(2, 6), (-1, 1)], public=["const", "z"], y_bounds=(0, 10)
    )
    S = np.diag([0.0, 0.25, 0.25, 0.0])
    clean = np.column_stack([np.ones(n), x, z])
    released = (clean - design.center) / design.scale + rng.standard_normal((n, 4)) @ np.sqrt(S)
    system = CorrectedLeastSquares(released, (y - design.y_center) / design.y_scale, S)
    beta = np.linalg.solve(system.A, system.g)
    scores = system.scores(beta)
    half = np.linalg.solve(system.A, scores.T) / n
    T, shift = design.to_user
    inverse = np.linalg.inv(T)
    estimate = Estimate(
        params=T @ beta + shift,
        cov=T @ half @ half.T @ T.T,
        names=design.names,
        nobs=n,
        scores=scores @ inverse,
        bread=inverse.T @ system.A @ inverse,
    )
    return design, system, estimate, clean, y


@pytest.fixture(scope="module")
def private(scored, results):
    design, system, estimate, *_ = scored
    return Results(estimate, Context(report=results.privacy, design=design, system=system, model="Corrected"))


def test_score_test_in_user_units(private):
    truth = np.array([0.5, -1.0])
    found = private.score_test(truth)
    assert found.df == 2
    assert found.pvalue > 0.01
    np.testing.assert_array_equal(found.null, truth)
    labelled = private.score_test(pd.Series({"x2": -1.0, "x1": 0.5}))
    assert labelled.statistic == found.statistic
    assert private.score_test(private.params[["x1", "x2"]]).statistic < 1e-12
    assert private.score_test([0.0, 0.0]).pvalue < 1e-10
    with pytest.raises(ArgumentError, match=r"2 values, one for each private column \(x1, x2\), got 3"):
        private.score_test([0.0, 0.0, 0.0])
    with pytest.raises(ArgumentError, match="labeled"):
        private.score_test(pd.Series({"x1": 0.5, "z": 0.0}))


def test_global_null_is_every_slope_but_the_constant(private):
    assert private.score_test().df == 3
    assert private.score_test().pvalue < 1e-10


def test_score_intervals_in_user_units(private):
    score, wald = private.conf_int(method="score"), private.conf_int()
    assert (score[0] < wald[0]).all()
    assert (score[1] > wald[1]).all()  # projection is conservative
    for name, (low, high) in score.iterrows():
        assert (low, high) == private.score_set(name).hull
        assert private.params[name] in private.score_set(name)
    # Ends of a private slope are where the minimum of the score statistic meets the critical value.
    from scipy.optimize import minimize_scalar
    from scipy.stats import chi2

    low, high = score.loc["x1"]
    for end in (low, high):
        profile = minimize_scalar(
            lambda b, end=end: private.score_test([end, b]).statistic, bracket=(-1.1, -0.9)
        )
        assert profile.fun == pytest.approx(chi2.isf(0.05, 2), rel=1e-4)


def test_score_interval_of_a_centred_constant(scored, private):
    """Shifting y by the interval's end of the constant puts zero at the end of the shifted fit's interval."""
    low, high = private.conf_int(method="score").loc["const"]
    wald = private.conf_int().loc["const"]
    assert low < 3.0 < high
    # In one coefficient the projection of chi2(3) widens a Wald interval by sqrt(7.81 / 3.84).
    ratio = (high - low) / (wald[1] - wald[0])
    assert ratio == pytest.approx(np.sqrt(7.815 / 3.841), rel=0.05)


def test_score_alpha_is_checked_and_duality_holds(private):
    with pytest.raises(ArgumentError, match="alpha"):
        private.conf_int(1.5, method="score")
    with pytest.raises(ArgumentError, match="'wald', 'score'"):
        private.conf_int(method="exact")
    wide, narrow = private.conf_int(0.01, method="score"), private.conf_int(0.2, method="score")
    assert ((wide[0] < narrow[0]) & (narrow[1] < wide[1])).all()


def test_score_inference_needs_the_estimating_equation(results):
    for call in (
        results.score_test,
        lambda: results.conf_int(method="score"),
        lambda: results.score_set("x1"),
    ):
        with pytest.raises(NotAvailableError, match="estimating equation"):
            call()


def test_why_there_is_no_estimating_equation(results):
    """A debiased lasso never has one; of another model it was left out."""
    with pytest.raises(NotAvailableError, match="saved with records=False"):
        results.score_test()
    lasso = Results(results.estimate, Context(report=results.privacy, model="DebiasedLasso"))
    with pytest.raises(NotAvailableError, match="DebiasedLasso does not release one"):
        lasso.conf_int(method="score")


def test_pairs_bootstrap_repeats_the_solution(private, scored):
    found = private.bootstrap(400, "pairs", rng=0)
    np.testing.assert_allclose(found.bse, private.bse, rtol=5 * np.sqrt(0.5 / 400))
    low, high = found.conf_int(0.1).to_numpy().T
    np.testing.assert_allclose((high - low) / (2 * norm.isf(0.05) * private.bse), 1.0, atol=0.2)
    assert found.replicates.failed == 0


def test_pairs_bootstrap_of_one_replicate_is_a_refit(private, scored):
    from privinf.results.resampling import resampled_solution

    design, system, _, _, _ = scored
    resolve, units = resampled_solution(private.estimate, system, design)
    weights = np.random.default_rng(2).multinomial(units, np.full(units, 1 / units)).astype(float)
    beta, bse = resolve(weights)
    repeated = np.repeat(np.arange(units), weights.astype(int))
    again = CorrectedLeastSquares(system._X[repeated], system._y[repeated], system.noise_cov)
    solution = np.linalg.solve(again.A, again.g)
    T, shift = design.to_user
    np.testing.assert_allclose(beta, T @ solution + shift, rtol=1e-9)
    half = T @ np.linalg.inv(again.A)
    np.testing.assert_allclose(bse, np.sqrt(np.diag(half @ again.meat(solution) @ half.T) / units), rtol=1e-9)


def test_pairs_bootstrap_refuses_what_is_not_the_solution(private, scored):
    e = private.estimate
    moved = Estimate(
        params=e.params + 1.0, cov=e.cov, names=e.names, nobs=e.nobs, scores=e.scores, bread=e.bread
    )
    other = Results(moved, Context(report=private.privacy, design=scored[0], system=scored[1]))
    with pytest.raises(NotAvailableError, match="solve released moment equations"):
        other.bootstrap(method="pairs")


def test_reports_of_nothing(results):
    empty = Results(results.estimate, Context(report=PrivacyReport.from_entries([])))
    assert "nothing released" in str(empty.summary())
