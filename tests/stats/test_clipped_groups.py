"""Groups compared on a clip that noisy counts chose: what it is, what it is worth, and what it says."""

import math
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from statsmodels.stats.oneway import anova_oneway

import privinf as pi
from privinf.errors import ArgumentError, ChangedTargetWarning, HeavyTailWarning
from privinf.mechanisms.distribution import NoisyCDF
from privinf.stats.groups import CutTails, GroupModel, contrast_set
from privinf.stats.quantiles import core_clip

LEVELS = ["a", "b", "c"]
WORDS = {"levels": LEVELS, "bounds": (-1.0, 2.0), "clip": "auto"}


def swanbergs(rng, n=201, means=(0.35, 0.5, 0.65)):
    g = np.repeat(np.arange(3), n // 3)
    return np.clip(np.array(means)[g] + 0.15 * rng.standard_normal(n), 0.0, 1.0), np.array(LEVELS)[g]


def rejections(means, runs):
    """Return how often it rejects at .05, bounds three times as wide as the values go, (1, 1e-6)."""
    rng, found = np.random.default_rng(3), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ChangedTargetWarning)
        for _ in range(runs):
            x, g = swanbergs(rng, means=means)
            found.append(pi.stats.anova_oneway(x, g, mu=0.23667, rng=rng, **WORDS).pvalue < 0.05)
    return np.mean(found)


GROUPS = ["a", "b", "c"]
SHARES = [0.55, 0.35, 0.1]
SCALES = np.array([1.0, 1.3, 1.6])


def lognormal_means(top, n, seed, **options):
    """Return means by group of lognormal values within (0, top), and the true means."""
    rng = np.random.default_rng(seed)
    g = rng.choice(3, n, p=SHARES)
    y = np.exp(1.0 + rng.normal(0.0, 0.6, n)) * SCALES[g]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = pi.stats.mean(
            y, by=np.array(GROUPS)[g], levels=GROUPS, bounds=(0, top), clip="auto", rng=seed, **options
        )
    return result, np.exp(1.0 + 0.18) * SCALES


def ends(table):
    """Return the ends of the intervals of a table."""
    return table.iloc[:, -2:].to_numpy(dtype=np.float64).T


def test_intervals_of_clipped_means_are_for_the_original_values():
    """They covered in 0.5% to 25% of runs, when they were about clipped values."""
    covered = []
    for seed in range(25):
        result, truth = lognormal_means(600, 20_000, seed, epsilon=1, delta=1e-6)
        assert result.clip.high < 100.0
        low, high = ends(result.table)
        pairs = result.pairwise(simultaneous=False)
        lower, upper = ends(pairs.table)
        differences = np.array([truth[0] - truth[1], truth[0] - truth[2], truth[1] - truth[2]])
        covered.append([*(low <= truth) & (truth <= high), *(lower <= differences) & (differences <= upper)])
        assert ((pairs.pvalues.to_numpy() < 0.05) == ((lower > 0.0) | (upper < 0.0))).all()
    assert np.mean(covered, axis=0).min() >= 0.84
    assert "original values" in str(result)
    assert "Test" not in str(result)
    assert (result.means().table.to_numpy() == result.table.to_numpy()).all()


def test_what_clipping_may_have_cut_is_part_of_every_interval():
    result, _ = lognormal_means(600, 20_000, 1, epsilon=1, delta=1e-6)
    unaware = GroupModel.released(result.release)
    aware = GroupModel.released(result.release, result.clip)
    unit = float(result.release.half[0])
    (low, high), (narrow_low, narrow_high) = aware.mean_sets(0.95), unaware.mean_sets(0.95)
    cut = result.clip.above / unit / aware.N
    assert (high - narrow_high > 0.9 * cut).all()
    assert (low <= narrow_low).all()
    assert (aware.mean_sds() == unaware.mean_sds()).all()
    first, second = np.array([0, 0, 1]), np.array([1, 2, 2])
    assert (aware.sds(first, second) == unaware.sds(first, second)).all()
    t, _ = aware.differences(first, second)
    assert (np.abs(t) <= np.abs(unaware.differences(first, second)[0])).all()


def cut_groups(counts, below, above, noise=(5.0, 5.0)):
    """Return groups of mean 0 and sd 0.3, of any of which clipping may have cut these parts of the sum."""
    N = np.array(counts, dtype=np.float64)
    model = GroupModel.from_sums(N, np.zeros(len(N)), N - 0.09 * N, int(N.sum()), noise)
    return replace(model, tails=CutTails(below=below, above=above, low=-30.0, high=30.0))


def test_each_end_of_a_mean_is_moved_by_its_own_tail():
    counts = np.array([4000.0, 2000.0])
    low, high = cut_groups(counts, 0.0, 0.0).mean_sets(0.95)
    for below, above in ((100.0, 0.0), (0.0, 100.0)):
        least, most = cut_groups(counts, below, above).mean_sets(0.95)
        np.testing.assert_allclose(low - least, below / counts, atol=1e-3)
        np.testing.assert_allclose(most - high, above / counts, atol=1e-3)


@pytest.mark.parametrize("counts", [(4000, 4000), (4000, 700), (9000, 60)])
@pytest.mark.parametrize("shift", [0.0, 20.0, 80.0, 320.0])
def test_a_pair_as_a_contrast_is_not_shorter_than_as_a_difference(counts, shift):
    """The shift was in the root sum of squares: at 8 sds the interval covered in 10% of runs, not 95%."""
    for below, above in ((shift, shift), (0.0, shift), (shift, 0.0)):
        model = cut_groups(counts, below, above)
        low, high = contrast_set(model, np.array([1.0, -1.0]), 0.95)
        (least, most), _ = model.first_difference(0.95)
        assert low <= least + 3e-3 * abs(least)
        assert high >= most - 3e-3 * abs(most)
        assert high - low >= most - least


def test_what_clipping_may_have_cut_adds_linearly_to_a_contrast():
    c = np.array([0.5, 0.5, -1.0, 0.0])
    counts = (4000, 2000, 5000, 3)
    low, high = contrast_set(cut_groups(counts, 0.0, 0.0), c, 0.95)
    for below, above in ((100.0, 0.0), (0.0, 100.0), (200.0, 50.0)):
        found = contrast_set(cut_groups(counts, below, above), c, 0.95)
        down = 0.5 * below / 2000 + above / 5000
        up = 0.5 * above / 2000 + below / 5000
        assert found == pytest.approx((low - down, high + up), abs=1e-3)
    hidden = contrast_set(cut_groups(counts, 1.0, 1.0), np.array([1.0, 0.0, 0.0, -1.0]), 0.95)
    assert hidden == (-60.0, 60.0)


def test_a_contrast_agrees_with_the_pair_of_a_release():
    result, truth = lognormal_means(600, 20_000, 1, epsilon=1, delta=1e-6)
    low, high = ends(result.contrast([1, 0, -1]).table)
    lower, upper = ends(result.pairwise(simultaneous=False).table)
    assert low[0] <= lower[1] + 1e-3
    assert high[0] >= upper[1] - 1e-3
    assert low[0] <= truth[0] - truth[2] <= high[0]


def test_rows_without_a_value_are_not_among_the_values_that_clipping_changed():
    rng = np.random.default_rng(0)
    g = np.array(GROUPS)[rng.choice(3, 20_000, p=SHARES)]
    y = np.where(rng.random(20_000) < 0.25, np.nan, np.exp(1.0 + rng.normal(0.0, 0.6, 20_000)))
    with pytest.warns(HeavyTailWarning, match="values, clipping may"):
        result = pi.stats.mean(
            y,
            by=g,
            levels=GROUPS,
            bounds=(0, 600),
            clip="auto",
            missing="drop",
            epsilon=1,
            delta=1e-6,
            rng=1,
        )
    values = result.release.complete.rows
    assert abs(values - 15_000) < 500
    assert f"of {values} values" in result.cautions[0][1].lower()
    assert sum(f"Of {values} values" in note for note in result.notes) >= 1


def test_a_group_that_the_noise_hides_has_the_public_bounds_as_its_interval():
    rng = np.random.default_rng(0)
    g = np.where(np.arange(20_000) < 3, "b", "a")
    y = np.exp(1.0 + rng.normal(0.0, 0.6, 20_000))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = pi.stats.mean(
            y, by=g, levels=["a", "b"], bounds=(0, 600), clip="auto", epsilon=1, delta=1e-6, rng=1
        )
    assert ends(result.table)[:, 1].tolist() == pytest.approx([0.0, 600.0])
    assert tuple(result.confidence_interval()) == pytest.approx((-600.0, 600.0))


def test_undetected_values_are_a_caution_that_names_a_group():
    rng = np.random.default_rng(0)
    g = rng.choice(3, 20_000, p=SHARES)
    y = np.exp(1.0 + rng.normal(0.0, 0.6, 20_000)) * SCALES[g]
    with pytest.warns(HeavyTailWarning, match="all in group"):
        result = pi.stats.mean(
            y,
            by=np.array(GROUPS)[g],
            levels=GROUPS,
            bounds=(0, 600),
            clip="auto",
            epsilon=1,
            delta=1e-6,
            rng=1,
        )
    assert [kind for kind, _ in result.cautions] == [HeavyTailWarning]
    assert "HeavyTail" in result.to_latex()
    assert result.pairwise().cautions == result.cautions


@pytest.mark.audit
def test_loose_bounds_cost_little_power_and_no_level():
    """.85 and .05 in thousands of runs (benchmarks/results/tests_size.md); without the clip .12."""
    assert rejections((0.35, 0.5, 0.65), 80) >= 0.72
    assert rejections((0.5, 0.5, 0.5), 80) <= 0.13


def test_the_result_says_what_it_compares():
    rng = np.random.default_rng(0)
    x, g = swanbergs(rng)
    with pytest.warns(ChangedTargetWarning, match="different spreads or tails"):
        r = pi.stats.anova_oneway(x, g, mu=0.3, rng=1, **WORDS)
    ends = f"clipped to [{r.clip.low:.6g}, {r.clip.high:.6g}]"
    assert ends in r.null
    assert all(ends in str(one.summary()) for one in (r, r.means(), r.pairwise(), r.contrast([1, -1, 0])))
    assert ".." not in str(r.summary(notes="all"))
    texts = [*r.notes, *(text for _, text in r.cautions)]
    assert not any(one != other and one.rstrip(".") in other for one in texts for other in texts)
    assert "All means and differences are of values clipped" in str(r.means())
    assert -1.0 < r.clip.low < r.clip.high < 2.0
    assert len(r.privacy.entries) == 2
    assert r.privacy.mu == pytest.approx(0.3)
    with pytest.warns(ChangedTargetWarning):
        t = pi.stats.ttest_ind(x[g != "c"], x[g == "c"], bounds=(-1, 2), clip="auto", mu=0.3, rng=1)
    low, high = t.confidence_interval()
    assert abs(low) <= t.clip.high - t.clip.low >= abs(high)


def test_many_records_are_hardly_clipped_and_nothing_is_warned_of():
    rng = np.random.default_rng(1)
    g = np.array(LEVELS)[rng.integers(0, 3, 60_000)]
    x = rng.normal(0.5, 0.15, 60_000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        r = pi.stats.anova_oneway(x, g, mu=1.0, rng=0, **WORDS)
    assert r.clip.most < 0.01
    assert r.clip.high - r.clip.low > 8 * 0.15


def test_without_noise_nothing_is_clipped():
    x, g = swanbergs(np.random.default_rng(2))
    r = pi.stats.anova_oneway(x, g, epsilon=math.inf, **WORDS)
    assert (r.clip.low, r.clip.high, r.clip.most) == (-1.0, 2.0, 0.0)
    assert r.pvalue == pytest.approx(anova_oneway(x, g, use_var="unequal").pvalue, rel=1e-7)


def test_a_heap_does_not_make_the_clip_vanish():
    """80% at one value: quartiles are equal there, and the tail that is seen sets the width."""
    counts = np.full(1023, 8000.0)
    edges = np.linspace(0.0, 100.0, 1025)[1:-1]
    counts += np.clip(edges / 50.0, 0.0, 1.0) * 2000.0
    clip = core_clip(
        NoisyCDF(edges=edges, counts=counts, sds=np.full(1023, 10.0), n=10_000), 0.0, 100.0, 0.05, 2
    )
    assert clip.high > 10.0


def test_what_cannot_be_asked_is_refused_before_anything_is_spent():
    ledger = pi.Ledger(pi.Budget(mu=1.0))
    x, g = swanbergs(np.random.default_rng(2))
    with pytest.raises(ArgumentError, match="'auto', 'bounds'"):
        pi.stats.anova_oneway(x, g, mu=0.1, ledger=ledger, **WORDS | {"clip": "tails"})
    with pytest.raises(ArgumentError, match="noise='gaussian'"):
        pi.stats.anova_oneway(x, g, epsilon=1.0, delta=1e-6, noise="laplace", ledger=ledger, **WORDS)
    assert len(ledger) == 0


@pytest.mark.filterwarnings("ignore::privinf.errors.HeavyTailWarning")
@pytest.mark.parametrize("by", [None, "group"])
def test_dates_are_clipped_as_dates(by):
    rng = np.random.default_rng(0)
    days = rng.normal(18300.0, 300.0, 6000).round()
    group = np.array(["a", "b"])[rng.integers(0, 2, 6000)]
    table = pd.DataFrame({"day": days.astype("datetime64[D]"), "group": group})
    schema = pi.Schema({"day": ("1990-01-01", "2060-01-01"), "group": ["a", "b"]})
    ledger = pi.Ledger()
    fit = pi.stats.mean("day", by=by, data=table, schema=schema, clip="auto", mu=5.0, rng=1, ledger=ledger)
    assert len(ledger.entries) == 2
    assert fit.clip.high - fit.clip.low < 10_000.0  # of the 25,567 days of the bounds
    means = [days.mean()] if by is None else [days[group == level].mean() for level in ("a", "b")]
    low, high = ends(fit.table)
    assert (low < means).all()
    assert (means < high).all()
