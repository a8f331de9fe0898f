"""Two samples and more: scipy's and statsmodels' tests without noise, honest ones with it."""

import math
import pickle

import numpy as np
import pandas as pd
import pytest
from scipy import stats as scipy_stats
from statsmodels.stats.oneway import anova_oneway

import privinf as pi
from privinf.errors import ArgumentError, NotAvailableError, SchemaError
from privinf.results.summary import number
from privinf.stats.groups import GroupModel

RNG = np.random.default_rng(1)
A, B = RNG.normal(5.5, 1.0, 300), RNG.normal(5.0, 1.5, 200)
G = RNG.choice(["u", "v", "w"], 900, p=[0.6, 0.3, 0.1])
X = RNG.normal(5.0, 1.0, 900) + 0.4 * (G == "w")
FRAME = pd.DataFrame({"x": X, "g": G})
SCHEMA = pi.Schema({"x": (-5.0, 15.0), "g": ["u", "v", "w"]})
TWO_SCHEMA = pi.Schema({"x": (-5.0, 15.0), "g": ["u", "v"]})


@pytest.mark.parametrize("alternative", ["two-sided", "less", "greater"])
def test_two_samples_without_noise_are_scipys(alternative):
    ours = pi.stats.ttest_ind(A, B, bounds=(-5, 15), alternative=alternative, epsilon=math.inf)
    theirs = scipy_stats.ttest_ind(A, B, equal_var=False, alternative=alternative)
    found, wanted = (ours.statistic, ours.pvalue, ours.df), (theirs.statistic, theirs.pvalue, theirs.df)
    assert found == pytest.approx(wanted, rel=1e-8)
    interval = np.clip(theirs.confidence_interval(0.9), -20.0, 20.0)
    assert ours.confidence_interval(0.9) == pytest.approx(tuple(interval))
    pooled = math.sqrt((A.var(ddof=1) + B.var(ddof=1)) / 2.0)
    assert ours.effects["Cohen's d"] == pytest.approx((A.mean() - B.mean()) / pooled, rel=1e-6)
    low, high = ours.effect_intervals["Cohen's d"]
    assert low < ours.effects["Cohen's d"] < high
    half = 1.96 * math.sqrt(1.0 / len(A) + 1.0 / len(B))
    assert half < (high - low) / 2.0 < 1.5 * half  # the bounds, which are loose, limit the fourth moment


@pytest.mark.parametrize(("noise", "n"), [("gaussian", 1500), ("laplace", 1500), ("gaussian", 12_000)])
def test_the_interval_of_cohens_d_holds(noise, n):
    """150 draws with groups of different sizes and spreads; the true value is that of clipped values."""
    held, one_held = 0, 0
    words = {"bounds": (0.0, 10.0), "epsilon": 1.0, "delta": 1e-6, "noise": noise}
    for seed in range(150):
        rng = np.random.default_rng(seed)
        a, b = rng.normal(3.5, 1.0, n // 4), rng.normal(4.5, 1.5, n - n // 4)
        two = pi.stats.ttest_ind(a, b, rng=seed, **words)
        low, high = two.effect_intervals["Cohen's d"]
        held += low <= -1.0 / math.sqrt((1.0 + 1.5**2) / 2.0) <= high
        one = pi.stats.ttest_1samp(b, 4.0, rng=seed, **words)
        low, high = one.effect_intervals["Cohen's d"]
        one_held += low <= 0.5 / 1.5 <= high
    assert held >= 135  # with probability 0.999 if 0.95 of them hold
    assert one_held >= 135


def test_a_hidden_spread_leaves_cohens_d_without_value():
    rng = np.random.default_rng(1)
    x = rng.normal(5.0, 0.01, 400)
    words = {"bounds": (0.0, 10.0), "epsilon": 0.5, "delta": 1e-6, "rng": 0}
    for test in (
        pi.stats.ttest_ind(x[:200], x[200:], **words),
        pi.stats.ttest_1samp(x, 5.0, **words),
    ):
        assert math.isnan(test.effects["Cohen's d"])
        assert tuple(test.effect_intervals["Cohen's d"]) == (-math.inf, math.inf)


def test_an_effect_size_has_its_interval_in_the_summary_or_none_is_named():
    two = pi.stats.ttest_ind("x ~ g", FRAME[FRAME["g"] != "w"], schema=TWO_SCHEMA, mu=2.0, rng=0)
    low, high = two.effect_intervals["Cohen's d"]
    text = " ".join(str(two).split())
    assert "Cohen's d:" in text
    assert f"95% interval: [{number(low)}, {number(high)}]" in text
    assert f"(95% interval {number(low)} to {number(high)})" in two.to_html().replace("&#x27;", "'")
    assert two.to_dict()["effect_intervals"] == {"Cohen's d": [low, high]}
    several = pi.stats.anova_oneway("x ~ g", FRAME, schema=SCHEMA, mu=2.0, rng=0)
    assert several.effect_intervals == {}
    assert "eta squared, interval: not available" in " ".join(str(several).split())
    assert "an estimate without an interval" in several.to_html()
    ranks = pi.stats.mannwhitneyu("x ~ g", FRAME[FRAME["g"] != "w"], schema=TWO_SCHEMA, mu=2.0, rng=0)
    ends = [2.0 * end - 1.0 for end in (ranks.rows[0].low, ranks.rows[0].high)]
    assert list(ranks.effect_intervals["rank-biserial r"]) == pytest.approx(ends)
    again = pickle.loads(pickle.dumps(two))
    assert dict(again.effect_intervals) == dict(two.effect_intervals)


def test_formats_that_a_test_lacks_name_the_remedy():
    test = pi.stats.ttest_ind(A, B, bounds=(-5, 15), mu=1.0, rng=0)
    for name, text in (
        ("to_docx", r"to_word\(path\)"),
        ("to_csv", r"tidy\(\)\.to_csv"),
        ("to_frame", r"tidy\(\)"),
    ):
        with pytest.raises(NotAvailableError, match=f"{name} is not available: .*{text}"):
            getattr(test, name)
        assert not hasattr(test, name)


def test_groups_without_noise_are_statsmodels():
    ours = pi.stats.anova_oneway("x ~ g", FRAME, schema=SCHEMA, epsilon=math.inf)
    theirs = anova_oneway(X, G, use_var="unequal")
    assert (ours.statistic, ours.pvalue) == pytest.approx((theirs.statistic, theirs.pvalue), rel=1e-8)
    assert ours.df == pytest.approx(theirs.df)
    between = sum((g == G).sum() * (X[g == G].mean() - X.mean()) ** 2 for g in "uvw")
    assert ours.effects["eta squared"] == pytest.approx(between / ((X - X.mean()) ** 2).sum())
    means = ours.means().table
    assert means["estimate"].to_numpy() == pytest.approx([X[g == G].mean() for g in "uvw"])
    assert means["std err"].to_numpy() == pytest.approx([scipy_stats.sem(X[g == G]) for g in "uvw"], rel=0.02)


def test_all_comparisons_come_from_one_release():
    ledger = pi.Ledger(pi.Budget(mu=0.5))
    r = pi.stats.anova_oneway("x ~ C(g)", data=FRAME, schema=SCHEMA, mu=0.5, ledger=ledger, rng=0)
    pairs, one = r.pairwise(), r.contrast({"u": -0.5, "v": -0.5, "w": 1.0})
    assert list(pairs.table.index) == ["u - v", "u - w", "v - w"]
    assert pairs.release is one.release is r.release
    low, high = one.table.iloc[0, 2:]
    assert low < 0.4 < high
    wide, alone = (np.ptp(two.table.iloc[0, 2:]) for two in (pairs, r.contrast([1, -1, 0])))
    assert wide > alone
    assert len(ledger) == 1
    with pytest.raises(ArgumentError, match="add up to 0"):
        r.contrast([1, 1, 0])
    with pytest.raises(ArgumentError, match="not declared"):
        r.contrast({"u": 1, "z": -1})


def test_simultaneous_intervals_are_wider_than_one_and_narrower_than_bonferronis():
    r = pi.stats.anova_oneway("x ~ g", FRAME, schema=SCHEMA, epsilon=math.inf)
    together = np.ptp(r.pairwise().table.iloc[:, 3:].to_numpy(), axis=1)
    for width, pair in zip(together, ("uv", "uw", "vw"), strict=True):
        first, second = (X[pair[k] == G] for k in (0, 1))
        one, apart = (
            np.ptp(scipy_stats.ttest_ind(first, second, equal_var=False).confidence_interval(level))
            for level in (0.95, 1 - 0.05 / 3)
        )
        assert one < width < 1.02 * apart


def sums(rng, sizes, means, sds, draws):
    """Return clean N, S, P of normal groups, units in which bounds are far away."""
    N = rng.multinomial(sum(sizes), np.array(sizes) / sum(sizes), size=draws).astype(float)
    S = N * means + np.sqrt(N) * sds * rng.standard_normal(N.shape)
    return N, S, N - np.square(sds) * rng.chisquare(np.maximum(N - 1.0, 1e-9)) - S**2 / np.maximum(N, 1.0)


@pytest.mark.parametrize(
    ("sizes", "means", "sds"),
    [([100, 900], 0.0, [0.3, 0.1]), ([20, 980], 0.0, [0.25, 0.25]), ([2500] * 4, -0.7, [0.1] * 4)],
)
def test_size_and_coverage_with_unequal_groups(sizes, means, sds):
    """At the null, 3,000 releases at eps 1: rejected at most 6%, covered at least 94%."""
    rng, draws, a = np.random.default_rng(5), 3000, 8.45
    noise = a * rng.standard_normal((3, draws, len(sizes)))
    N, S, P = (x + e for x, e in zip(sums(rng, sizes, means, np.array(sds), draws), noise, strict=True))
    law = GroupModel.from_sums(N, S, P, sum(sizes), (a, a))
    F, df = law.equal_means()
    assert np.mean(scipy_stats.f.sf(F, len(sizes) - 1, df) < 0.05) <= 0.06
    pair = np.array([0]), np.array([1])
    t = scipy_stats.t.isf(0.025, law.differences(*pair)[1])
    low, high = law.difference_sets(*pair, t)
    assert np.mean((low <= 0.0) & (high >= 0.0)) >= 0.94


def test_power_in_swanbergs_setting():
    """Three groups at .35, .5 and .65, sd .15, n = 200, mu of eps 1: at least .8."""
    rng, draws, a = np.random.default_rng(0), 4000, 2.0 / 0.23667
    x = [
        2 * np.clip(rng.normal(m, 0.15, (draws, size)), 0, 1) - 1
        for m, size in ((0.35, 67), (0.5, 67), (0.65, 66))
    ]
    N = np.tile([67.0, 67.0, 66.0], (draws, 1))
    S, Q = (np.column_stack([(one**power).sum(axis=1) for one in x]) for power in (1, 2))
    noise = a * rng.standard_normal((3, draws, 3))
    F, df = GroupModel.from_sums(N + noise[0], S + noise[1], N - Q + noise[2], 200, (a, a)).equal_means()
    assert np.mean(scipy_stats.f.sf(F, 2, df) < 0.05) >= 0.785


def test_a_group_that_the_noise_hides_is_named_and_not_told_more_of_than_the_bounds():
    rare = pd.DataFrame({"x": np.resize(X, 903), "g": [*G, "z", "z", "z"]})
    schema = pi.Schema({"x": (-5.0, 15.0), "g": ["u", "v", "w", "z"]})
    r = pi.stats.anova_oneway("x ~ g", rare, schema=schema, mu=0.3, rng=0)
    assert "relative to the number of records of z" in str(r.summary())
    assert tuple(r.means().table.loc["z"].iloc[2:]) == (-5.0, 15.0)
    assert math.isfinite(r.pvalue)


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_the_p_value_and_the_interval_say_the_same(noise):
    shifted = [
        pi.stats.ttest_ind(A + shift, B, bounds=(-5, 15), epsilon=1.0, delta=1e-6, noise=noise, rng=3)
        for shift in np.linspace(-1.0, 0.5, 7)
    ]
    for r in shifted:
        low, high = r.confidence_interval()
        assert (r.pvalue < 0.045) <= (not low <= 0.0 <= high) <= (r.pvalue < 0.055)


def test_made_up_releases_say_what_laplace_noise_does():
    r = pi.stats.anova_oneway("x ~ g", FRAME, schema=SCHEMA, epsilon=1.0, delta=0, rng=0)
    assert r.release.noise == "laplace"
    again = pi.stats.anova_oneway("x ~ g", FRAME, schema=SCHEMA, epsilon=1.0, delta=0, rng=0)
    assert r.pvalue == again.pvalue
    made = GroupModel.released(r.release).simulate(4000)
    assert np.std(made.N[:, 0]) == pytest.approx(r.release.scale[0] * math.sqrt(2.0 / 3.0), rel=0.1)


def test_what_is_wrong_is_said_before_anything_is_spent():
    ledger = pi.Ledger(pi.Budget(mu=1.0))
    words = {"mu": 0.1, "ledger": ledger}
    with pytest.raises(ArgumentError, match="must have the form"):
        pi.stats.anova_oneway("x", data=FRAME, schema=SCHEMA, **words)
    with pytest.raises(SchemaError, match="must have exactly two levels for ttest_ind"):
        pi.stats.ttest_ind("x ~ g", data=FRAME, schema=SCHEMA, **words)
    with pytest.raises(SchemaError, match="no declared levels"):
        pi.stats.anova_oneway(
            "x ~ x2", FRAME.assign(x2=X), schema=pi.Schema({"x": (0, 1), "x2": (0, 2)}), **words
        )
    with pytest.raises(ArgumentError, match="groups are missing"):
        pi.stats.ttest_ind(A, bounds=(0, 1), **words)
    with pytest.raises(SchemaError, match="public bounds"):
        pi.stats.ttest_ind(A, B, **words)
    assert len(ledger) == 0


def test_a_level_that_nobody_has_stops_nothing():
    for spent in ({"epsilon": math.inf}, {"mu": 0.3, "rng": 0}, {"epsilon": 0.5, "delta": 0, "rng": 0}):
        r = pi.stats.anova_oneway(X, G, levels=["u", "v", "w", "z"], bounds=(-5, 15), **spent)
        assert 0.0 <= r.pvalue <= 1.0
        assert tuple(r.means().table.loc["z"].iloc[2:]) == (-5.0, 15.0)
    clear = pi.stats.anova_oneway(X, G, levels=["u", "v", "w", "z"], bounds=(-5, 15), epsilon=math.inf)
    assert clear.pvalue == pytest.approx(anova_oneway(X, G, use_var="unequal").pvalue)
    alone = pi.stats.ttest_ind(A, [], bounds=(-5, 15), epsilon=math.inf)
    assert math.isnan(alone.pvalue)
    assert alone.confidence_interval() == (-20.0, 20.0)


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
@pytest.mark.parametrize("simultaneous", [True, False])
def test_p_values_of_pairs_agree_with_their_intervals(noise, simultaneous):
    rng = np.random.default_rng(0)
    g = rng.choice(list("uvw"), 3000)
    x = rng.normal(0.0, 1.0, 3000) + 0.25 * (g == "w")
    spent = {"epsilon": 2.0, "delta": 1e-6, "rng": 0, "noise": noise}
    r = pi.stats.anova_oneway(x, g, bounds=(-4, 4), levels=list("uvw"), **spent)
    for level in (0.8, 0.95, 0.999):
        pairs = r.pairwise(level, simultaneous=simultaneous)
        low, high = pairs.table.iloc[:, 3:].to_numpy().T
        excluded = (low > 0.0) | (high < 0.0)
        assert (excluded == (pairs.pvalues.to_numpy() < 1.0 - level + 1e-12)).all()
    assert pairs.pvalues.index.tolist() == ["u - v", "u - w", "v - w"]
    with pytest.raises(NotAvailableError, match="there are 3 pairs: pvalues has the p-value of each pair"):
        _ = pairs.pvalue
    assert (pairs.tidy().p_value == pairs.pvalues.to_numpy()).all()
    text = str(pairs.summary())
    assert "P>|t|" in text
    assert ("adjusted for the number of" in text) == simultaneous
    latex = pairs.to_latex()
    assert "& p-value &" in latex
    assert ("joint interval" in latex and "hold jointly" in latex) == simultaneous
    separate = r.pairwise(simultaneous=False)
    assert (separate.pvalues.to_numpy() <= r.pairwise().pvalues.to_numpy() + 2e-4).all()


def test_a_bound_on_a_p_value_is_shown_as_one():
    rng = np.random.default_rng(0)
    g = rng.choice(list("uvw"), 3000)
    x = rng.normal(0.0, 1.0, 3000) + 1.0 * (g == "w")
    r = pi.stats.anova_oneway(
        x, g, bounds=(-4, 5), levels=list("uvw"), epsilon=2.0, delta=0.0, rng=0, noise="laplace"
    )
    assert isinstance(r.pvalue, float)
    assert (r.pvalue, str(r.pvalue)) == (1e-4, "<= 0.0001")
    assert r.to_dict()["test"]["p_value"] == 1e-4
    assert pickle.loads(pickle.dumps(r)).pvalue == r.pvalue
    pairs = r.pairwise()
    table = pairs.table
    assert table["pvalue"].dtype == float
    assert table.loc["u - w", "pvalue"] == pairs.least_pvalue == 1e-4
    for text in (repr(table), table._repr_html_().replace("&lt;", "<"), pairs.to_latex(), str(pairs)):
        assert text.replace(r"\textless{}", "<").count("<= 0.0001") == 2
    assert "<=" not in repr(table.loc[["u - v"]])
    welch = pi.stats.ttest_ind(x[g == "u"], x[g == "w"], bounds=(-4, 5), mu=2.0, rng=0)
    assert type(welch.pvalue) is float


def test_without_noise_separate_pairs_are_welchs_tests():
    rng = np.random.default_rng(0)
    g = rng.choice(list("uvw"), 300)
    x = rng.uniform(-1.0, 1.0, 300) * (1.0 + (g == "u")) + 0.3 * (g == "w")
    r = pi.stats.anova_oneway(x, g, bounds=(-4, 4), levels=list("uvw"), epsilon=math.inf)
    expected = scipy_stats.ttest_ind(x[g == "u"], x[g == "w"], equal_var=False).pvalue
    assert r.pairwise(simultaneous=False).pvalues["u - w"] == pytest.approx(expected, rel=1e-6)


def test_a_difference_of_two_groups_is_named():
    rng = np.random.default_rng(0)
    table = {"sex": rng.choice(["m", "f"], 2000), "x": rng.uniform(0.0, 1.0, 2000)}
    schema = pi.Schema({"sex": ["m", "f"], "x": (0, 1)})
    spent = {"schema": schema, "epsilon": 1.0, "delta": 1e-6, "rng": 0}
    means = pi.stats.mean("x", table, by="sex", **spent)
    for name in ("pvalue", "statistic", "df"):
        assert not hasattr(means, name)
        with pytest.raises(NotAvailableError, match=r"has no test: pairwise\(\) of the result"):
            getattr(means, name)
    ends = means.confidence_interval()
    assert ends.difference == "m - f"
    assert "difference='m - f'" in repr(ends)
    low, high = ends
    assert (low, high) == (ends.low, ends.high)
    assert pickle.loads(pickle.dumps(ends)).difference == "m - f"
    assert "the difference m - f" in str(means.summary())
    (only,) = means.pairwise().pvalues
    assert means.pairwise().pvalue == only
    assert pi.stats.ttest_ind("x ~ sex", table, **spent).confidence_interval().difference == "m - f"
