"""Flags of single coefficients: their score intervals and p-values, names in every output, and coverage."""

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom

import privinf as pi
from privinf.errors import DependentRowsWarning, NotAvailableError, WeakIdentificationWarning
from privinf.inference.coefficient_sets import coefficient_set
from privinf.inference.linear_scores import tensor_forms
from privinf.results.coefficient_tests import with_constant
from privinf.schema import Design

SCHEMA = pi.Schema(
    {"x": (1, 20), "z": (-3, 3), "g": pi.Factor(["a", "b", "c"]), "y": (-4, 8), "d": pi.Factor([0, 1])}
)
TRUTH = pd.Series({"Intercept": 1.0, "g[T.b]": 0.5, "g[T.c]": -0.8, "x": 0.05, "z": 0.3})
LEVEL = {"epsilon": 2.0, "delta": 1e-6}
QUIET = pytest.mark.filterwarnings("ignore::privinf.errors.PrivinfWarning")


def rows(n=4000, seed=0):
    """Return rows of which half a percent have the level c."""
    rng = np.random.default_rng(seed)
    x, z = rng.uniform(1, 20, n), rng.normal(size=n).clip(-3, 3)
    g = rng.choice(["a", "b", "c"], n, p=[0.6, 0.395, 0.005])
    mean = 1.0 + 0.5 * (g == "b") - 0.8 * (g == "c") + 0.05 * x + 0.3 * z
    frame = pd.DataFrame({"x": x, "z": z, "g": g, "y": mean + rng.uniform(-1.5, 1.5, n)})
    return frame.assign(d=(rng.random(n) < 1.0 / (1.0 + np.exp(1.5 - mean))).astype(int))


def fitted(model="MomentOLS", formula="y ~ x + z + g", seed=0, level=LEVEL, n=4000, **options):
    made = getattr(pi, model).from_formula(formula, rows(n, seed), schema=SCHEMA, **options)
    return made.fit(**level, rng=seed + 1)


@pytest.fixture(scope="module")
def moments():
    return fitted()


@pytest.fixture(scope="module")
def scores():
    return fitted("OLS", "y ~ x + z + g", level={"epsilon": 1.0, "delta": 1e-6})


@pytest.fixture(scope="module")
def without_covariance():
    return fitted(formula="y ~ x + np.log(x) + z + g", level={"epsilon": 1.0, "delta": 1e-6})


def told(ask):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        value = ask()
    return value, [str(one.message) for one in caught if issubclass(one.category, WeakIdentificationWarning)]


@QUIET
def test_a_rare_level_is_flagged_alone(moments):
    assert moments.identification.weak
    weak = moments.weakly_identified
    assert list(weak.index) == ["g[T.c]"]
    assert weak["g[T.c]"] < 4.95
    others = moments.conf_int().drop("g[T.c]")
    truth = TRUTH[others.index]
    assert ((others[0] < truth) & (truth < others[1])).all()


@QUIET
@pytest.mark.parametrize("kind", ["moments", "scores", "without_covariance"])
def test_intervals_and_pvalues_are_those_of_each_coefficients_score_test(kind, request):
    result = request.getfixturevalue(kind)
    transform, shift = result._context.design.to_user
    for alpha in (0.05, 0.2):
        ends = result.conf_int(alpha)
        for j, name in enumerate(result.names):
            hull = coefficient_set(result._context.system, transform[j], alpha=alpha).hull
            np.testing.assert_allclose(ends.loc[name], np.array(hull) + shift[j], rtol=1e-9)
    for name in result.names:
        assert result.pvalues[name] == pytest.approx(result.score_test(f"{name} = 0").pvalue, rel=1e-6)
    assert (np.sign(result.tvalues) == np.sign(result.params)).all()


@QUIET
def test_estimates_are_roots_of_the_released_equation_but_for_hidden_ones(scores):
    single, weak = scores._inference.single, scores.weakly_identified.index
    assert "g[T.c]" in weak
    assert "z" not in weak
    np.testing.assert_array_equal(scores.params[weak], scores.estimate.params[np.isin(scores.names, weak)])
    np.testing.assert_allclose(scores.params["z"], single.roots[scores.names.index("z")])
    assert scores.params["z"] != scores.estimate.params[scores.names.index("z")]
    assert scores.conf_int().loc["z"].between(*scores.conf_int().loc["z"]).all()
    low, high = scores.conf_int().loc["z"]
    assert low < scores.params["z"] < high
    design = np.ones((1, len(scores.names)))  # predictions use coefficients that belong together
    assert scores.predict(design, transform=False).iloc[0] == pytest.approx(scores.estimate.params.sum())


@QUIET
def test_a_fit_without_a_covariance_has_intervals_of_single_coefficients(without_covariance):
    result = without_covariance
    assert result.estimate.cov is None
    weak = result.weakly_identified.index
    assert "g[T.b]" not in weak
    assert np.isfinite(result.conf_int().loc["g[T.b]"]).all()
    assert result.bse.isna().equals(pd.Series(np.isin(result.names, weak), result.bse.index))
    with pytest.raises(NotAvailableError):
        result.cov_params()
    table = str(result.summary())
    assert "Weak for:" in table
    assert "replaced by score" in table
    tidy = result.tidy().set_index("term")
    assert list(tidy.index[tidy.weak]) == list(weak)
    assert tidy.loc["g[T.b]", ["std_error", "p_value", "conf_low"]].notna().all()
    page = result.to_html(stars=True)
    assert f"{result.params['g[T.b]']:.3f}***" in page
    assert f"Weakly identified: {', '.join(weak)}." in page


@QUIET
def test_dependent_rows_are_warned_of_although_there_is_no_covariance():
    frame = rows().assign(who=np.repeat(np.arange(2000), 2))
    schema = pi.Schema(SCHEMA.columns, unit="who", max_rows=2)
    made = pi.MomentOLS.from_formula("y ~ x + np.log(x) + z + g", frame, schema=schema)
    result = made.fit(epsilon=1.5, delta=1e-6, rng=0, cov_type="nonrobust")
    assert result.estimate.cov is None
    assert "z" not in result.weakly_identified.index
    with pytest.warns(DependentRowsWarning, match="one 'who' may have up to 2 rows"):
        result.conf_int()
    assert "assume independent rows" in str(result.summary())
    assert "DependentRows" in [kind for kind, _ in result.cautions]


def test_warnings_name_the_coefficients_and_others_speak_of_joint_inference(moments):
    for ask in (moments.conf_int, moments.tidy, lambda: moments.pvalues):
        _, texts = told(ask)
        assert len(texts) == 1
        assert "the noise hides g[T.c], whose" in texts[0]
    _, texts = told(lambda: moments.t_test("x = z"))
    assert len(texts) == 1
    assert "several coefficients" in texts[0]
    pytest.importorskip("matplotlib")
    _, texts = told(moments.plot)
    assert "g[T.c]" in texts[0]
    axes, texts = told(lambda: moments.plot(simultaneous=True))
    assert "several coefficients" in texts[0]
    assert "g[T.c] (weak)" in [label.get_text() for label in axes.get_yticklabels()]


def test_a_warning_gives_the_reason_of_a_constant_that_is_strong_itself():
    schema = pi.Schema({**SCHEMA.columns, "w": (1, 20)})
    frame = rows(2000)
    made = pi.MomentOLS.from_formula("y ~ x + w", frame.assign(w=frame.x), schema=schema)
    result, _ = told(lambda: made.fit(epsilon=1.0, delta=1e-6, rng=1))
    weak = result.weakly_identified
    assert weak["Intercept"] > 4.95 > weak[["x", "w"]].max()
    _, texts = told(result.conf_int)
    assert "hides x, w, whose scores have slopes below 4.95" in texts[0]
    assert "noise, and Intercept, which contains their slopes; these" in texts[0]


@QUIET
def test_every_output_names_the_coefficient(moments):
    summary = str(moments.summary())
    assert "Weak for:                        g[T.c]" in summary
    assert "the noise hides the coefficients named" in summary
    assert moments.glance().weak.item()
    assert [kind for kind, _ in moments.cautions] == ["WeakIdentification"]
    exported = moments.to_dict()
    assert exported["weakly_identified"] == {"g[T.c]": moments.weakly_identified.item()}
    assert [one["term"] for one in exported["coefficients"] if one["weak"]] == ["g[T.c]"]


@QUIET
def test_maketables_has_the_marks_and_no_errors_where_intervals_are_of_score_tests(moments):
    entry = moments.to_maketables()
    table = entry.__maketables_coef_table__
    cells = [f"{b:.3f}" for b in table["b"]]
    expected = [f"{b:.3f}" + "\u2020" * (name == "g[T.c]") for name, b in moments.params.items()]
    assert cells == expected
    assert table["se"].isna().all()
    np.testing.assert_array_equal(table["p"], moments.pvalues)
    np.testing.assert_array_equal(table[["ci95l", "ci95u"]], moments.conf_int())
    facts = {key: entry.__maketables_stat__(key) for key in entry.__maketables_default_stat_keys__}
    assert facts["\u2020 weakly identified"] == "g[T.c]"
    assert facts["se_type"] == "none, intervals from score tests"
    strong = fitted(formula="y ~ x + z", level={"epsilon": 4.0, "delta": 1e-6})
    entry = strong.to_maketables()
    assert entry.__maketables_coef_table__["b"].dtype == float
    np.testing.assert_array_equal(entry.__maketables_coef_table__["se"], strong.bse)
    assert not any("\u2020" in key for key in entry.__maketables_default_stat_keys__)


@QUIET
def test_a_table_of_maketables_shows_the_marks(moments):
    maketables = pytest.importorskip("maketables", reason="the extra privinf[tables] is not installed")
    text = maketables.ETable([moments.to_maketables()]).make(type="tex")
    assert f"{moments.params['g[T.c]']:.3f}\u2020" in text
    assert "weakly identified" in text


@QUIET
def test_a_flagged_fit_in_which_no_coefficient_is_hidden_is_not_condemned(moments):
    strong = fitted(formula="y ~ x + z", level={"epsilon": 4.0, "delta": 1e-6})
    weak = replace(strong.identification, weak=True)
    result = strong._with(strong.estimate, replace(strong._context, identification=weak))
    assert len(result.weakly_identified) == 0
    assert not result.weakly_identified
    assert told(result.conf_int)[1] == []
    assert len(told(lambda: result.wald_test("x = z = 0"))[1]) == 1
    assert result.cautions == ()
    assert not result.glance().weak.item()
    text = str(result.summary())
    assert "Weak for" not in text
    assert "z, p-value and interval of each coefficient are those of its own score test" in text
    assert strong._inference.single is None
    np.testing.assert_allclose(result.conf_int(), strong.conf_int(), rtol=0.05, atol=1e-3)


@QUIET
def test_it_survives_a_file(tmp_path, moments, scores):
    for result in (moments, scores):
        result.save(tmp_path / "fit.npz", overwrite=True)
        again = pi.load_results(tmp_path / "fit.npz")
        pd.testing.assert_series_equal(again.weakly_identified, result.weakly_identified)
        pd.testing.assert_frame_equal(again.conf_int(), result.conf_int())
    moments.save(tmp_path / "small.npz", records=False)
    small = pi.load_results(tmp_path / "small.npz")  # without the equation: the fit as a whole
    assert list(small.weakly_identified.index) == list(small.names)
    assert small.weakly_identified
    assert small.weakly_identified.isna().all()


@QUIET
def test_targets_and_stabilized_estimates_keep_their_numbers():
    release = fitted().release
    sample = pi.MomentOLS.from_release(release).fit(target="sample")
    assert sample.identification.weak
    assert sample._inference.single is None
    ridge = pi.MomentOLS.from_release(release).fit(ridge=0.01)
    np.testing.assert_array_equal(ridge.params, ridge._context.point)
    assert ridge._inference.single is not None


@QUIET
def test_a_posterior_flags_the_coefficients_that_its_prior_decides():
    result = fitted("Logit", "d ~ x + z + g", level={"epsilon": 4.0, "delta": 1e-6}, n=1000)
    assert result.cov_type == "posterior"
    weak = result.weakly_identified
    assert weak.name == "prior bias"
    assert "g[T.c]" in weak.index
    assert "x" not in weak.index
    assert ((weak > 0.4) & (weak < 3.0)).all()
    assert "the prior influences the coefficients" in told(result.conf_int)[1][0]
    assert "normal prior" in told(lambda: result.wald_test("x = z = 0"))[1][0]
    assert list(result.tidy().query("weak").term) == list(weak.index)
    assert "Weak for" in str(result.summary())


@QUIET
def test_absorbed_effects_are_left_out():
    result = fitted(formula="y ~ x + z | g", level={"epsilon": 0.5, "delta": 1e-6})
    assert result.names == ("x", "z")
    assert result.identification.weak
    assert result.conf_int().shape == (2, 2)
    assert result._inference.single.hidden.shape == (2,)


def test_a_hidden_number_hides_the_constant_and_a_hidden_level_does_not():
    design = Design.from_formula("y ~ x + z + g", SCHEMA)
    for name, flagged in (("x", True), ("z", False), ("g[T.c]", False)):  # z is centered at zero
        flags = np.array([column == name for column in design.names])
        assert with_constant(flags, design)[design.constant] == flagged
    lone = Design.from_formula("y ~ x - 1", SCHEMA)
    assert with_constant(np.array([True]), lone).tolist() == [True]


@QUIET
@pytest.mark.parametrize("options", [{}, {"cov_type": "HC0"}, {"public": True}])
def test_forms_of_contrasts_are_those_of_the_tensor(options):
    schema = SCHEMA
    if options.pop("public", False):
        schema = pi.Schema({**dict(SCHEMA.columns), "z": pi.Numeric(-3, 3, public=True)})
    made = pi.MomentOLS.from_formula("y ~ x + z + g", rows(), schema=schema)
    system = made.fit(**LEVEL, rng=0, **options)._context.system
    t = np.random.default_rng(0).normal(size=(3, 5))
    expected = tensor_forms(system.tensor(), t)
    np.testing.assert_allclose(system.contrast_forms(t), expected, rtol=1e-8, atol=1e-12)


@QUIET
def test_forms_of_one_step_scores_are_those_of_the_tensor(scores):
    system = scores._context.system
    t = np.random.default_rng(0).normal(size=(3, 5))
    np.testing.assert_allclose(system.contrast_forms(t), tensor_forms(system.tensor(), t), rtol=1e-8)


@QUIET
@pytest.mark.audit
@pytest.mark.parametrize(("model", "epsilon", "n"), [("OLS", 0.5, 5000), ("MomentOLS", 4.0, 2000)])
def test_coefficients_without_a_flag_are_covered_in_flagged_fits(model, epsilon, n):
    covered = {name: [] for name in TRUTH.index}
    for seed in range(150):
        result = fitted(model, seed=100 + seed, level={"epsilon": epsilon, "delta": 1e-6}, n=n)
        if not result.identification.weak:
            continue
        ends, truth = result.conf_int(), TRUTH[list(result.names)]
        usable = ~np.isin(result.names, result.weakly_identified.index)
        for name in np.array(result.names)[usable]:
            covered[name].append(ends.loc[name, 0] <= truth[name] <= ends.loc[name, 1])
    assert sum(map(len, covered.values())) > 150
    for inside in covered.values():
        assert sum(inside) >= binom.ppf(0.005, len(inside), 0.95)
