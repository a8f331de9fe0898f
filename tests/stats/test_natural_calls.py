"""Natural ways of calling `pi.stats`: table by position, names, formulas, and errors that name the remedy."""

import math

import numpy as np
import pandas as pd
import pytest

import privinf as pi
from privinf import stats
from privinf.errors import ArgumentError, NotAvailableError, SchemaError, SensitivityError

_RNG = np.random.default_rng(45)
N = 2000
ROWS = pd.DataFrame(
    {
        "y": _RNG.normal(5, 1, N),
        "x": _RNG.normal(5, 1, N),
        "sex": _RNG.choice(["f", "m"], N),
        "g": _RNG.choice(["a", "b", "c"], N),
        "sick": _RNG.integers(0, 2, N),
    }
)
SCHEMA = pi.Schema({"y": (0, 10), "x": (0, 10), "sex": ["f", "m"], "g": ["a", "b", "c"], "sick": (0, 1)})
OPTIONS = {"mu": 1.0, "rng": 0}

SITE = pi.federation.Site(ROWS[["y", "x"]], pi.Schema({"y": (0, 10), "x": (0, 10)}))
FEDERATION = pi.federation.InProcessFederation({"north": SITE})

ONE_WAY = [
    (stats.mean, ("y",), {}),
    (stats.mean, ("y",), {"by": "g"}),
    (stats.sum, ("y",), {}),
    (stats.median, ("y",), {}),
    (stats.quantile, ("y", 0.5), {}),
    (stats.counts, ("g",), {}),
    (stats.crosstab, ("g", "sex"), {}),
    (stats.histogram, ("y", 5), {}),
    (stats.proportion_confint, ("sick",), {}),
    (stats.proportions_ztest, ("sick", "sex", None), {}),
    (stats.ttest_1samp, ("y", 5.0), {}),
    (stats.ttest_ind, ("y", "sex"), {}),
    (stats.anova_oneway, ("y", "g"), {}),
    (stats.mannwhitneyu, ("y", "sex"), {}),
    (stats.kruskal, ("y", "g"), {}),
    (stats.wilcoxon, ("y", 5.0), {}),
    (stats.chi2_contingency, ("g", "sex"), {}),
    (stats.pearsonr, ("y", "x"), {}),
]


@pytest.mark.parametrize(("function", "columns", "more"), ONE_WAY, ids=lambda x: getattr(x, "__name__", ""))
def test_the_table_is_passed_after_the_columns_or_as_data(function, columns, more):
    by_position = function(*columns, ROWS, schema=SCHEMA, **more, **OPTIONS)
    by_name = function(*columns, data=ROWS, schema=SCHEMA, **more, **OPTIONS)
    assert by_position.rows == by_name.rows


@pytest.mark.parametrize(
    ("function", "formula", "names"),
    [
        (stats.ttest_ind, "y ~ sex", ("y", "sex")),
        (stats.anova_oneway, "y ~ g", ("y", "g")),
        (stats.mannwhitneyu, "y ~ sex", ("y", "sex")),
        (stats.kruskal, "y ~ C(g)", ("y", "g")),
        (stats.proportions_ztest, "sick ~ sex", ("sick", "sex")),
    ],
)
def test_a_formula_and_its_table_are_the_names_of_two_columns(function, formula, names):
    expected = function(*names, data=ROWS, schema=SCHEMA, **OPTIONS)
    for call in (
        function(formula, ROWS, schema=SCHEMA, **OPTIONS),
        function(formula, data=ROWS, schema=SCHEMA, **OPTIONS),
    ):
        assert call.rows == expected.rows
        assert call.pvalue == expected.pvalue
    with pytest.raises(ArgumentError, match="passed twice"):
        function(formula, ROWS, data=ROWS, schema=SCHEMA, **OPTIONS)


WRONG = [
    (
        lambda **o: stats.ttest_ind("y", by="sex", data=ROWS, schema=SCHEMA, **o),
        ArgumentError,
        "by= .*formula",
    ),
    (lambda **o: stats.mannwhitneyu("y", groups="sex", data=ROWS, **o), ArgumentError, "groups= .*formula"),
    (lambda **o: stats.anova_oneway("y", by="g", data=ROWS, **o), ArgumentError, "as groups="),
    (lambda **o: stats.kruskal("y", by="g", data=ROWS, **o), ArgumentError, "as groups="),
    (lambda **o: stats.proportions_ztest("sick", by="sex", data=ROWS, **o), ArgumentError, "as groups="),
    (lambda **o: stats.proportions_ztest("sick", 0.5, data=ROWS, **o), ArgumentError, "as value="),
    (lambda **o: stats.proportions_ztest("a ~ b", [1], ROWS, data=ROWS, **o), ArgumentError, "twice"),
    (
        lambda **o: stats.proportion_confint("sick", by="g", data=ROWS, **o),
        ArgumentError,
        r"mean\(a, by=\)",
    ),
    (lambda **o: stats.mean("y", groups="g", data=ROWS, **o), ArgumentError, "as by="),
    (lambda **o: stats.mean("y", "g", data=ROWS, schema=SCHEMA, **o), ArgumentError, "as by="),
    (lambda **o: stats.mean("y ~ g", ROWS, schema=SCHEMA, **o), ArgumentError, "is a formula"),
    (lambda **o: stats.crosstab("g ~ sex", ROWS, schema=SCHEMA, **o), ArgumentError, "is a formula"),
    (lambda **o: stats.mean(ROWS, schema=SCHEMA, **o), ArgumentError, "a= is a table"),
    (lambda **o: stats.mean(["y", "x"], ROWS, schema=SCHEMA, **o), ArgumentError, "describe"),
    (lambda **o: stats.quantile("y", ROWS, schema=SCHEMA, **o), ArgumentError, "as data="),
    (lambda **o: stats.histogram("y", ROWS, bins=5, schema=SCHEMA, **o), ArgumentError, "as data="),
    (lambda **o: stats.histogram("y", ROWS, schema=SCHEMA, **o), ArgumentError, "as data="),
    (lambda **o: stats.ttest_1samp("y", ROWS, schema=SCHEMA, **o), ArgumentError, "as data="),
    (lambda **o: stats.wilcoxon("y", ROWS, schema=SCHEMA, **o), ArgumentError, "as data="),
    (lambda **o: stats.wilcoxon(ROWS.y, ROWS.x, **o), ArgumentError, "differences as the first argument"),
    (lambda **o: stats.ttest_ind(ROWS.y, ROWS.sex, bounds=(0, 10), **o), ArgumentError, "pass a formula"),
    (lambda **o: stats.ttest_ind("y", "x", ROWS, schema=SCHEMA, **o), SchemaError, "cannot be the groups"),
    (lambda **o: stats.proportions_ztest(ROWS.sick, ROWS.sex, **o), SensitivityError, "pass levels="),
    (lambda **o: stats.chi2_contingency(ROWS.g, ROWS.sex, **o), SensitivityError, "pass levels="),
    (lambda **o: stats.pearsonr(ROWS.y, ROWS.x, bounds=(0, 10), **o), ArgumentError, "pair of pairs"),
    (lambda **o: stats.describe(ROWS, SCHEMA, **o), ArgumentError, "as schema="),
    (lambda **o: stats.describe("y", data=ROWS, schema=SCHEMA, **o), ArgumentError, "as columns="),
    (lambda **o: stats.describe("y", schema=SCHEMA, **o), ArgumentError, "as columns="),
    (lambda **o: stats.describe(ROWS.y, schema=SCHEMA, **o), ArgumentError, "must be a table"),
    (lambda **o: stats.describe(ROWS, by="g", schema=SCHEMA, **o), ArgumentError, "by="),
    (
        lambda **o: stats.proportions_ztest("sex", "g", data=ROWS, schema=SCHEMA, **o),
        SchemaError,
        "use chi2_contingency",
    ),
    (
        lambda **o: stats.mean("y", data=FEDERATION, schema=SCHEMA, **o),
        ArgumentError,
        "data= is a federation.*pi.OLS",
    ),
]


@pytest.mark.parametrize(("call", "error", "remedy"), WRONG)
def test_a_call_that_fails_names_the_remedy_and_charges_nothing(call, error, remedy):
    ledger = pi.Ledger(pi.Budget(mu=10.0))
    with pytest.raises(error, match=remedy):
        call(mu=1.0, rng=0, ledger=ledger)
    assert len(ledger.entries) == 0


def test_a_list_of_labels_is_a_column_where_no_table_is_passed():
    assert stats.counts(["p", "q"] * 50, levels=["p", "q"], **OPTIONS).nobs == 100


def test_the_interval_of_a_difference_needs_two_groups():
    """With three groups it would be the first minus the second, without a label."""
    for result in (
        stats.mean("y", ROWS, by="g", schema=SCHEMA, **OPTIONS),
        stats.anova_oneway("y ~ g", ROWS, schema=SCHEMA, **OPTIONS),
    ):
        with pytest.raises(NotAvailableError, match=r"3 groups.*pairwise\(\)"):
            result.confidence_interval()
        assert list(result.pairwise().table.index) == ["a - b", "a - c", "b - c"]
    two = stats.anova_oneway("y ~ sex", ROWS, schema=SCHEMA, **OPTIONS)
    test = stats.ttest_ind("y ~ sex", ROWS, schema=SCHEMA, **OPTIONS)
    assert two.confidence_interval() == test.confidence_interval() == test.rows[0][3:]


def test_a_p_value_at_the_floor_of_its_simulation_is_printed_as_at_most_that():
    far = ROWS.assign(g=np.where(ROWS.sex == "f", "a", "b"), sick=(ROWS.sex == "f").astype(int))
    far["y"] = np.where(ROWS.sex == "f", 1.0, 9.0)
    laplace = {"epsilon": 2.0, "delta": 0.0, "rng": 0}
    tests = [
        stats.chi2_contingency("g", "sex", far, schema=SCHEMA, **OPTIONS),
        stats.proportions_ztest("sick ~ sex", far, schema=SCHEMA, **OPTIONS),
        stats.kruskal("y ~ g", far, schema=SCHEMA, **OPTIONS),
        stats.anova_oneway("y ~ sex", far, schema=SCHEMA, **laplace),
        stats.ttest_ind("y ~ sex", far, schema=SCHEMA, **laplace),
        stats.ttest_1samp(far.y[:900] + 5, 1.0, bounds=(0, 20), **laplace),
    ]
    for test in tests:
        assert test.pvalue == test.least_pvalue == pytest.approx(1e-4), test.title
        assert "<= 0.0001" in str(test), test.title
        assert "pvalue<= 0.0001" in repr(test)
        assert "p <= 0.0001" in test.to_latex().replace(r"\textless{}", "<")
        assert "cannot be below 0.0001" in str(test.summary(notes="all"))
    one_sided = stats.ttest_ind("y ~ sex", far, alternative="less", schema=SCHEMA, **laplace)
    assert one_sided.pvalue == one_sided.least_pvalue == pytest.approx(5e-5)
    smooth = stats.ttest_ind("y ~ sex", far, schema=SCHEMA, **OPTIONS)
    assert smooth.least_pvalue == 0.0
    assert "<=" not in str(smooth)


def test_degrees_of_freedom_are_explained():
    for test in (
        stats.ttest_1samp("y", 5.0, ROWS, schema=SCHEMA, **OPTIONS),
        stats.ttest_ind("y ~ sex", ROWS, schema=SCHEMA, **OPTIONS),
        stats.anova_oneway("y ~ g", ROWS, schema=SCHEMA, **OPTIONS),
        stats.chi2_contingency("g", "sex", ROWS, schema=SCHEMA, **OPTIONS),
    ):
        assert "Df is " in str(test), test.title
    assert "less two" in str(stats.pearsonr("y", "x", ROWS, schema=SCHEMA, **OPTIONS).summary(notes="all"))


def test_attributes_of_other_packages_name_those_that_exist():
    test = stats.chi2_contingency("g", "sex", ROWS, schema=SCHEMA, **OPTIONS)
    for name in ("conf_int", "confidence_interval", "params", "pvalues", "tvalues"):
        with pytest.raises(NotAvailableError, match=f"{name} is not available: .*table"):
            getattr(test, name)
        assert not hasattr(test, name)
    with pytest.raises(NotAvailableError, match=r"save is not available: call result.to_json\(path\)"):
        test.save("result.npz")
    with pytest.raises(ArgumentError, match="simultaneous=True in the call"):
        test.plot(simultaneous=True)
    with pytest.raises(ArgumentError, match=r"pass confidence_level=, such as 0\.95"):
        stats.mean("y", data=ROWS, schema=SCHEMA, alpha=0.1, **OPTIONS)
    fit = pi.MomentOLS(ROWS.y, ROWS[["x"]], bounds=[(0, 10)], y_bounds=(0, 10)).fit(**OPTIONS)
    for name in ("dispersion", "alpha"):
        with pytest.raises(NotAvailableError, match="negative binomial fits have alpha"):
            getattr(fit, name)


def test_a_column_of_zeros_and_ones_is_a_column_of_groups():
    levels = pi.Schema({"y": (0, 10), "sick": [0, 1]})
    for function in (stats.ttest_ind, stats.anova_oneway, stats.mannwhitneyu, stats.kruskal):
        by_bounds = function("y ~ sick", ROWS, schema=SCHEMA, **OPTIONS)
        assert by_bounds.rows == function("y ~ sick", ROWS, schema=levels, **OPTIONS).rows
    with pytest.raises(SchemaError, match=r"declare it as \[0, 1\]"):
        pi.OLS.from_formula("y ~ C(sick)", ROWS, schema=SCHEMA)


def test_messages_on_delta_and_notes_on_laplace_noise_agree_with_the_noise():
    spend = {"schema": SCHEMA, "epsilon": 1.0, "rng": 0}
    with pytest.raises(ArgumentError, match="whether Gaussian or Laplace noise is smaller"):
        stats.mean("y", ROWS, **spend)
    with pytest.raises(ArgumentError, match="Gaussian noise needs it"):
        stats.mean("y", ROWS, noise="gaussian", **spend)
    laplace = stats.mean("y", ROWS, delta=1e-6, by="g", **spend)
    gaussian = stats.mean("y", ROWS, delta=1e-6, by="g", noise="gaussian", **spend)
    assert f"counts with mu = {laplace.privacy.mu:.3g}" in " ".join(laplace.notes)
    assert "Laplace" not in " ".join(gaussian.notes)
    assert laplace.privacy.mu > gaussian.privacy.mu
    assert "long tails of Laplace noise" in str(laplace.pairwise().summary()).replace("\n", " ")
    assert "Laplace" not in " ".join(gaussian.pairwise().notes)


def test_means_of_groups_are_a_series():
    one = stats.mean("y", ROWS, by="g", schema=SCHEMA, **OPTIONS)
    assert list(one.to_pandas().index) == ["a", "b", "c"]
    assert one.to_pandas().to_numpy() == pytest.approx(one.table["estimate"].to_numpy())
    two = stats.mean("y", ROWS, by=["g", "sex"], schema=SCHEMA, **OPTIONS)
    assert two.to_pandas().unstack().shape == (3, 2)


def test_means_of_two_levels_say_which_level_counts():
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(
        {"sex": np.where(rng.random(900) < 0.4, "male", "female"), "g": rng.choice(["a", "b"], 900)}
    )
    how = {"schema": pi.Schema({"sex": ["female", "male"], "g": ["a", "b"]}), "mu": 0.5, "rng": 0}
    for result in (
        pi.stats.mean("sex", rows, **how),
        pi.stats.mean("sex", rows, by="g", **how),
        pi.stats.ttest_ind("sex ~ g", rows, **how),
        pi.stats.proportion_confint("sex", rows, **how),
    ):
        assert "1 = 'male'" in str(result)
        assert "1 = 'male'" in result.to_latex().replace("{", "").replace("}", "")
    numbers = pi.stats.mean(
        "sex", {"sex": (rows["sex"] == "male") * 1.0}, **how | {"schema": pi.Schema({"sex": (0, 1)})}
    )
    assert "1 =" not in str(numbers)


def test_plots_name_the_columns():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(
        {"sex": np.where(rng.random(900) < 0.4, "male", "female"), "age": rng.uniform(18, 90, 900)}
    )
    how = {"schema": pi.Schema({"sex": ["female", "male"], "age": (18, 90)}), "mu": 0.5, "rng": 0}
    bars = pi.stats.histogram("age", [18, 40, 65, 90], data=rows, **how).plot()
    assert bars.get_ylabel() == "age"
    share = pi.stats.mean("sex", rows, **how).plot()
    assert "1 = 'male'" in share.get_xlabel()


@pytest.mark.parametrize("levels", [2, "ab", math.nan])
@pytest.mark.parametrize(
    "call",
    [
        lambda x, g, **words: pi.stats.mean(x, by=g, bounds=(0, 1), **words),
        lambda x, g, **words: pi.stats.sum(x, by=g, bounds=(0, 1), **words),
        lambda x, g, **words: pi.stats.anova_oneway(x, g, bounds=(0, 1), **words),
        lambda x, g, **words: pi.stats.counts(g, **words),
        lambda x, g, **words: pi.stats.proportion_confint(g, **words),
    ],
)
def test_levels_that_are_no_list_are_refused_with_the_remedy(call, levels):
    x, g = np.linspace(0.0, 1.0, 40), np.array(["a", "b"] * 20)
    ledger = pi.Ledger()
    with pytest.raises(SchemaError, match="levels= must list the public values"):
        call(x, g, levels=levels, mu=1.0, ledger=ledger)
    assert not ledger.entries
