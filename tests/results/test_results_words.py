"""statsmodels' keywords of tests: the same numbers where there is no noise, the worst law where there is."""

import math

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf
from scipy import stats

import privinf as pi
from privinf.errors import (
    ArgumentError,
    DependentRowsWarning,
    NotAvailableError,
    NotPositiveDefiniteError,
    SchemaError,
)
from privinf.federation import InProcessFederation, Site
from privinf.inference.estimate import Estimate
from privinf.results import Results
from privinf.results.context import Context

TESTS = ("x1 = 0.3", "x1 = x2, C(g)[T.b] = 0.1")


@pytest.fixture(scope="module", params=[False, True], ids=["z", "t"])
def pair(request, frame, design, results):
    """A result without noise and statsmodels' of the same rows."""
    theirs = smf.ols(design.formula, frame).fit(use_t=request.param)
    df = theirs.df_resid if request.param else np.inf
    estimate = Estimate(
        params=np.array(theirs.params),
        cov=np.asarray(theirs.cov_params()),
        names=tuple(theirs.params.index),
        nobs=int(theirs.nobs),
        noise_cov=np.zeros((6, 6)),
        df_resid=df,
    )
    return Results(estimate, Context(report=results.privacy, design=design)), theirs


def same(ours, theirs):
    assert ours.distribution == theirs.distribution
    for name in ("statistic", "pvalue", "effect", "sd", "df_denom", "df_num"):
        if getattr(theirs, name, None) is not None:
            a, b = getattr(ours, name), getattr(theirs, name)
            assert np.shape(a) == np.shape(b), name
            np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-12, err_msg=name)
    if theirs.effect is not None:
        np.testing.assert_allclose(ours.conf_int(0.1), theirs.conf_int(0.1), rtol=1e-9)


@pytest.mark.parametrize("test", TESTS)
@pytest.mark.parametrize("use_t", [None, False, True])
@pytest.mark.parametrize("times", [None, 2.0])
def test_t_test_takes_use_t_and_cov_p(pair, test, use_t, times):
    ours, theirs = pair
    cov = None if times is None else times * np.asarray(theirs.cov_params()) + 1e-4 * np.eye(6)
    same(ours.t_test(test, cov, use_t), theirs.t_test(test, cov, use_t))


@pytest.mark.parametrize("test", TESTS)
@pytest.mark.parametrize("use_f", [None, False, True])
@pytest.mark.parametrize("how", ["own", "cov_p", "invcov", "df"])
@pytest.mark.parametrize("scalar", [True, False])
def test_wald_test_takes_the_words_of_statsmodels(pair, test, use_f, how, scalar):
    ours, theirs = pair
    words = {"use_f": use_f, "scalar": scalar}
    k = len(np.atleast_1d(theirs.t_test(test).effect))
    if how == "cov_p":
        words["cov_p"] = 3.0 * np.asarray(theirs.cov_params()) + 1e-4 * np.eye(6)
    if how == "invcov":
        words["invcov"] = 40.0 * np.eye(k) + 3.0
    if how == "df":
        words["df_constraints"] = k + 1
    same(ours.wald_test(test, **words), theirs.wald_test(test, **words))
    if use_f and how != "df":
        given = {name: words[name] for name in ("cov_p", "invcov") if name in words}
        if scalar:
            same(ours.f_test(test, **given), theirs.f_test(test, **given))


def test_tests_of_terms_and_pairs_take_their_words(pair):
    ours, theirs = pair
    R = np.eye(6)[[3, 4]]
    for words in (
        {"skip_single": True},
        {"combine_terms": ["x1"]},
        {"extra_constraints": [("both", R)]},
    ):
        a, b = ours.wald_test_terms(**words).table, theirs.wald_test_terms(**words).table
        assert list(a.index) == list(b.index)
        np.testing.assert_allclose(a.to_numpy(float), b.to_numpy(float), rtol=1e-8)
    assert ours.wald_test_terms(scalar=False).table["statistic"].iloc[0].shape == (1, 1)
    words = ours.wald_test_terms(extra_constraints=[("equal", "x1 = x2")])
    assert words.table.loc["equal", "pvalue"] == pytest.approx(float(ours.wald_test("x1 = x2").pvalue))
    labels = ["low", "middle", "high"]
    a, b = (r.t_test_pairwise("C(g)", factor_labels=labels).result_frame for r in (ours, theirs))
    assert list(a.index) == list(b.index) == ["middle-low", "high-low", "high-middle"]
    np.testing.assert_allclose(a.iloc[:, :4].to_numpy(float), b.iloc[:, :4].to_numpy(float), rtol=1e-8)
    with pytest.raises(ArgumentError, match="2 labels, but the factor has 3 levels"):
        ours.t_test_pairwise("C(g)", factor_labels=["a", "b"])


@pytest.mark.parametrize("alternative", ["greater", "less"])
def test_one_sided_tests(pair, alternative):
    ours, theirs = pair
    found, both = ours.t_test("x1, x2 = 0.1", alternative=alternative), theirs.t_test("x1, x2 = 0.1")
    law = stats.t(theirs.df_resid) if ours.use_t else stats.norm
    tail = law.sf if alternative == "greater" else law.cdf
    np.testing.assert_allclose(found.pvalue, tail(both.statistic), rtol=1e-9)
    low, high = found.conf_int(0.05).T
    end = (
        both.effect - law.isf(0.05) * both.sd
        if alternative == "greater"
        else both.effect + law.isf(0.05) * both.sd
    )
    np.testing.assert_allclose(low if alternative == "greater" else high, end, rtol=1e-9)
    assert np.isinf(high if alternative == "greater" else low).all()
    letter = "t" if ours.use_t else "z"
    heading = f"P{'>' if alternative == 'greater' else '<'}{letter}"
    assert heading in found.summary_frame().columns
    assert heading in str(found.summary())
    assert f"P>|{letter}|" in str(ours.t_test("x1").summary())
    with pytest.raises(ArgumentError, match="'two-sided', 'less', 'greater'"):
        ours.t_test("x1", alternative="larger")


def biased(pair, times=1.0):
    ours, _ = pair
    e = ours.estimate
    moved = Estimate(
        params=e.params,
        cov=e.cov,
        names=e.names,
        nobs=e.nobs,
        noise_cov=e.noise_cov,
        df_resid=e.df_resid,
        bias=times * e.bse,
    )
    return Results(moved, Context(report=ours.privacy, design=ours._context.design))


def test_a_bias_is_on_its_worse_side_under_every_word(pair):
    """The p-value is the supremum over the biases that the result allows; the interval inverts the test."""
    result, (ours, _) = biased(pair), pair
    law = stats.t(ours.df_resid) if ours.use_t else stats.norm
    plain = ours.t_test("x1 = 0.9")
    z = float(np.squeeze(plain.statistic))
    reach = np.linspace(-1.0, 1.0, 2001)
    worst = {
        "greater": law.sf(z - reach).max(),
        "less": law.cdf(z - reach).max(),
        "two-sided": (law.sf(abs(z) - reach) + law.cdf(-abs(z) - reach)).max(),
    }
    for alternative, expected in worst.items():
        found = result.t_test("x1 = 0.9", alternative=alternative)
        assert float(found.pvalue) == pytest.approx(expected, rel=1e-9)
        low, high = np.squeeze(found.conf_int(0.1))
        for end in (end for end in (low, high) if np.isfinite(end)):
            at = float(result.t_test(f"x1 = {float(end)!r}", alternative=alternative).pvalue)
            assert at == pytest.approx(0.1, rel=1e-6)
    larger = result.t_test("x1", 4.0 * np.asarray(result.cov_params()))
    assert larger.conf_int()[0, 1] > result.t_test("x1").conf_int()[0, 1]
    flat = result.t_test("x1 = 0.9", use_t=False)
    assert float(flat.pvalue) == pytest.approx(
        (stats.norm.sf(abs(z) - reach) + stats.norm.cdf(-abs(z) - reach)).max()
    )
    chi = result.wald_test("x1 = 0.9", use_f=False)
    assert float(chi.pvalue) == pytest.approx(float(flat.pvalue))
    inverse = 1.0 / float(plain.sd[0, 0] if np.ndim(plain.sd) == 2 else np.squeeze(plain.sd)) ** 2
    assert float(result.wald_test("x1 = 0.9", invcov=[[inverse]], use_f=False).pvalue) == pytest.approx(
        float(flat.pvalue)
    )


def test_a_given_covariance_takes_the_degrees_of_freedom_of_sampling(frame, pair):
    """Noise gives a contrast more degrees of freedom: how much of a given covariance it is, is not known."""
    ours, theirs = pair
    e = ours.estimate
    noisy = Estimate(
        params=e.params, cov=e.cov, names=e.names, nobs=e.nobs, noise_cov=0.5 * e.cov, df_resid=e.df_resid
    )
    result = Results(noisy, Context(report=ours.privacy))
    if ours.use_t:
        assert result.t_test("x1").df_denom == pytest.approx(4.0 * theirs.df_resid)
    same(result.t_test("x1", e.cov), theirs.t_test("x1", np.array(e.cov)))
    same(result.wald_test("x1", e.cov), theirs.wald_test("x1", np.array(e.cov)))


def test_what_does_not_fit_is_refused(pair):
    ours, _ = pair
    e = ours.estimate
    weak = Results(
        Estimate(params=e.params, cov=None, names=e.names, nobs=e.nobs, weak_reason="noise"),
        Context(
            report=ours.privacy,
        ),
    )
    with pytest.raises(ArgumentError, match="cov_p= must have shape"):
        ours.t_test("x1", np.eye(2))
    with pytest.raises(NotPositiveDefiniteError):
        ours.t_test("x1", np.zeros((6, 6)))
    with pytest.raises(ArgumentError, match="cannot both be passed"):
        ours.wald_test("x1", np.eye(6), np.eye(1))
    with pytest.raises(ArgumentError, match="invcov= must have shape"):
        ours.wald_test("x1", invcov=np.eye(2))
    for words in ({"use_f": 1}, {"scalar": "yes"}, {"df_constraints": 0}):
        with pytest.raises(ArgumentError, match=next(iter(words))):
            ours.wald_test("x1", **words)
    with pytest.raises(NotAvailableError, match="noise"):
        weak.t_test("x1", np.eye(6))


def test_functions_of_coefficients_by_name_and_by_position(pair):
    ours, _ = pair
    by_name = ours.delta_method(lambda b: [b["x1"] / b["x2"], b["C(g)[T.b]"]])
    names = list(ours.names)
    one, two, b = names.index("x1"), names.index("x2"), names.index("C(g)[T.b]")
    for function in (
        lambda c: [c[one] / c[two], c[b]],
        lambda c: [c[one - 6] / c.iloc[two], c[[b]].sum()],
        lambda c: [c.x1 / c.to_numpy()[two], np.asarray(c)[b]],
        lambda c: [c[["x1", "x2"]].iloc[0] / c[np.int64(two)], c[b : b + 1].sum()],
    ):
        found = ours.delta_method(function)
        np.testing.assert_allclose(found.value, by_name.value)
        np.testing.assert_allclose(found.bse, by_name.bse)
    for function in (lambda c: c["x9"], lambda c: c[6]):
        with pytest.raises(ArgumentError, match="index from 0 to 5, or one of the names Intercept, "):
            ours.delta_method(function)


def test_summaries_take_their_words(pair):
    ours, _ = pair
    names = [f"c{j}" for j in range(6)]
    said = {"yname": "wage", "xname": names, "title": "A title", "alpha": 0.1}
    text = ours.summary(**said).as_text()
    for word in ("wage", "A title", *names, "0.95", "Epsilon"):
        assert word in text, word
    assert "x1:x2" not in text
    whole, slim = str(ours.summary()), str(ours.summary(slim=True))
    assert "Df Residuals" in whole
    assert "std err includes" in whole
    assert "Df Residuals" not in slim
    assert "std err includes" not in slim
    assert "Epsilon" in slim
    for words in ({"xname": ["a"]}, {"xname": "abcdef"}, {"yname": 0.1}, {"slim": 1}, {"alpha": 0}):
        with pytest.raises(ArgumentError, match=next(iter(words))):
            ours.summary(**words)


def test_other_covariances_are_refused_with_the_reason(frame):
    schema = pi.Schema({"x1": (-1.0, 1.0), "y": (-3.0, 3.0)})
    words = {
        "HC2": "leverage and residual of every row",
        "HC3": "leverage and residual of every row",
        "HAC": "order of the rows",
    }
    words |= {
        "cluster": "declares no unit: in Schema.*, declare the column",
        "fixed scale": "assumes a known residual",
    }
    for kind, reason in words.items():
        for model in (pi.MomentOLS, pi.OLS, pi.ModulatedOLS):
            made = model.from_formula("y ~ x1", frame, schema=schema)
            with pytest.raises((ArgumentError, SchemaError), match=reason):
                made.fit(epsilon=1.0, delta=1e-5, cov_type=kind)
            assert not len(made.ledger)


def test_small_samples_have_statsmodels_own_factor(frame):
    """HC1 at no noise is statsmodels'; with noise the factor is on the sampling part alone."""
    schema = pi.Schema({"x1": (-1.0, 1.0), "x2": (-1.0, 1.0), "y": (-3.0, 3.0)})
    few = frame.iloc[:60].assign(y=frame.y.iloc[:60].clip(-3, 3))
    theirs = smf.ols("y ~ x1 + x2", few).fit(cov_type="HC1")
    entry_points = [
        (pi.OLS, {}),
        (pi.GLM, {"family": "gaussian"}),
        (pi.MomentOLS, {}),
        (pi.ModulatedOLS, {}),
        (pi.MomentOLS, {"trust": "local"}),
        (pi.IWPGLM, {"loss": "squared"}),
    ]
    for model, options in entry_points:
        made = model.from_formula("y ~ x1 + x2", few, schema=schema, **options)
        ours = made.fit(epsilon=math.inf, cov_type="HC1")
        np.testing.assert_allclose(ours.bse, theirs.bse, rtol=1e-8)
        np.testing.assert_allclose(ours.bse_sampling, theirs.bse, rtol=1e-8)
        assert ours.cov_type == "HC1"
        assert np.abs(ours.variance_formula.variances.sum(axis=1) / ours.bse**2 - 1.0).max() < 1e-9
    given = {"mu": 40.0, "rng": 0}
    made = pi.MomentOLS.from_formula("y ~ x1 + x2", few, schema=schema)
    plain, scaled = (made.fit(cov_type=kind, **given) for kind in ("HC0", "HC1"))
    np.testing.assert_array_equal(plain.params, scaled.params)
    np.testing.assert_allclose(scaled.noise_cov, plain.noise_cov)
    expected = 60 / 57 * (plain.cov_params() - plain.noise_cov) + plain.noise_cov
    np.testing.assert_allclose(scaled.cov_params(), expected, rtol=1e-10)
    for model in (pi.Logit, pi.Poisson):
        binary = few.assign(y=(few.y > 0) * 1.0)
        limits = pi.Schema({"x1": (-1.0, 1.0), "y": (0.0, 1.0)})
        with pytest.raises(NotAvailableError, match="HC1 equals its HC0"):
            model.from_formula("y ~ x1", binary, schema=limits).fit(epsilon=math.inf, cov_type="HC1")


def test_words_of_statsmodels_fits_say_why_they_are_not_there(frame):
    schema = pi.Schema({"x1": (-1.0, 1.0), "y": (-3.0, 3.0)})
    for word, reason in {
        "disp": "the privacy budget determines",
        "cov_kwds": "the schema's unit",
        "use_t": "t_test",
    }.items():
        made = pi.OLS.from_formula("y ~ x1", frame, schema=schema)
        with pytest.raises(NotAvailableError, match=reason):
            made.fit(epsilon=1.0, delta=1e-5, **{word: 0})
        assert not len(made.ledger)


def test_score_intervals_without_noise_are_the_shadows_of_the_wald_ellipse(frame):
    """Where scores were released at one point the statistic is quadratic: its sets have a closed form."""
    schema = pi.Schema({"x1": (-1.0, 1.0), "x2": (-1.0, 1.0), "y": (-3.0, 3.0)})
    r = pi.OLS.from_formula("y ~ x1 + x2", frame, schema=schema).fit(epsilon=math.inf)
    found = r.conf_int(method="score")
    half = np.sqrt(stats.chi2.ppf(0.95, 2)) * r.bse
    assert np.abs(found.loc["x1"] - [r.params.x1 - half.x1, r.params.x1 + half.x1]).max() < 0.02 * half.x1
    for end in found.loc["x1"]:
        at_end = r.score_test({"x1": float(end)})
        assert at_end.statistic == pytest.approx(stats.chi2.ppf(0.95, 2), rel=1e-6)


def people(rows=3, count=400, seed=0):
    """Rows of persons whose errors and columns go together."""
    rng = np.random.default_rng(seed)
    who = np.repeat(np.arange(count), rows)
    x = np.clip(np.repeat(rng.uniform(-1, 1, count), rows) + 0.1 * rng.uniform(-1, 1, rows * count), -1, 1)
    shared = np.repeat(rng.normal(0, 0.3, count), rows)
    y = np.clip(0.5 * x + shared + 0.1 * rng.standard_normal(rows * count), -2, 2)
    return pd.DataFrame({"who": who, "x": x, "y": y})


def test_cluster_is_the_word_for_a_schemas_unit():
    """It is statsmodels' (without its factor), of records and of a total; OLS refuses several rows a unit."""
    data, columns = people(), {"x": (-1.0, 1.0), "y": (-2.0, 2.0)}
    schema = pi.Schema(columns, unit="who", max_rows=3)
    theirs = smf.ols("y ~ x", data).fit(
        cov_type="cluster", cov_kwds={"groups": data.who, "use_correction": False}, use_t=False
    )
    local = pi.MomentOLS.from_formula("y ~ x", data, schema=schema, trust="local")
    modulated = pi.ModulatedOLS.from_formula("y ~ x", data, schema=schema)
    for made in (local, modulated):
        r = made.fit(epsilon=math.inf, cov_type="cluster")
        assert r.cov_type == "cluster"
        np.testing.assert_allclose(r.bse, theirs.bse, rtol=1e-8)
        np.testing.assert_allclose(r.conf_int(), theirs.conf_int(), rtol=1e-8)
        for other in ("HC0", "HC1"):
            with pytest.raises(ArgumentError, match="several rows have the same value of 'who'"):
                made.fit(epsilon=math.inf, cov_type=other)
    total = pi.MomentOLS.from_formula("y ~ x", data, schema=schema)
    r = total.fit(epsilon=math.inf, cov_type="cluster")
    np.testing.assert_allclose(r.bse, theirs.bse, rtol=1e-8)
    by_t = smf.ols("y ~ x", data).fit(
        cov_type="cluster", cov_kwds={"groups": data.who, "use_correction": False}, use_t=True
    )
    np.testing.assert_allclose(r.conf_int(), by_t.conf_int(), rtol=1e-8)
    # a public column between private ones
    wide = data.assign(p=np.arange(len(data)) % 7 / 7.0, z=np.cos(np.arange(len(data))))
    open_ = {**columns, "p": pi.Numeric(0.0, 1.0, public=True), "z": (-1.0, 1.0)}
    mixed = pi.MomentOLS.from_formula(
        "y ~ x + p + z", wide, schema=pi.Schema(open_, unit="who", max_rows=3)
    ).fit(epsilon=math.inf, cov_type="cluster")
    groups = {"groups": wide.who, "use_correction": False}
    known = smf.ols("y ~ x + p + z", wide).fit(cov_type="cluster", cov_kwds=groups)
    np.testing.assert_allclose(mixed.bse, known.bse, rtol=1e-8)
    shuffled = data.sample(frac=1.0, random_state=0)
    again = pi.MomentOLS.from_formula("y ~ x", shuffled, schema=schema)
    noisy = [one.fit(mu=20.0, cov_type="cluster", rng=0) for one in (total, again)]
    assert (noisy[0].bse == noisy[1].bse).all()
    assert noisy[0].cov_type == "cluster"
    with pytest.raises(ArgumentError, match="several rows have the same value of"):
        pi.MomentOLS.from_release(noisy[0].release).fit(cov_type="HC0")
    sites = pi.MomentOLS.from_formula("y ~ x", InProcessFederation({"a": Site(data, schema)}), schema=schema)
    with pytest.raises(NotAvailableError, match="may be at different sites"):
        sites.fit(epsilon=math.inf, cov_type="cluster")
    with pytest.raises(NotAvailableError, match="one row per person"):
        pi.OLS.from_formula("y ~ x", data, schema=schema).fit(epsilon=math.inf)
    assert total.fit(epsilon=math.inf).cov_type == "cluster"  # by default
    assert (total.fit(mu=20.0, rng=0).bse == noisy[0].bse).all()
    r = total.fit(epsilon=math.inf, cov_type="nonrobust")
    assert "assume independent rows" in str(r.summary())
    for ask in (r.conf_int, lambda: r.t_test("x"), lambda: r.wald_test("x")):
        with pytest.warns(DependentRowsWarning, match="one 'who' may have up to 3 rows"):
            ask()
    single = pi.Schema(columns, unit="who")
    once = data.iloc[::3]
    robust = smf.ols("y ~ x", once).fit(cov_type="HC0")
    for model in (pi.OLS, pi.MomentOLS):
        r = model.from_formula("y ~ x", once, schema=single).fit(epsilon=math.inf, cov_type="cluster")
        np.testing.assert_allclose(r.bse, robust.bse, rtol=1e-8)
