"""Tests by ranks: scipy's without noise, their level with it, what they say, and that bounds cost nothing."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats as scipy_stats

import privinf as pi
from privinf.errors import ArgumentError, SchemaError

RNG = np.random.default_rng(4)
X, Y = RNG.lognormal(0.4, 1.0, 260), RNG.lognormal(0.0, 1.0, 140)
G = RNG.choice(["a", "b", "c"], 600, p=[0.5, 0.3, 0.2])
Z = RNG.lognormal(0.0, 1.0, 600) * np.where(G == "c", 2.0, 1.0)
# Separation of three groups of equal sizes, normal with means 0, 1 and 2: the last group is above the first.
SEPARATION_OF_SHIFTS = (
    8.0 / 9.0 * (scipy_stats.norm.cdf(1.0 / 2.0**0.5) + scipy_stats.norm.cdf(2.0 / 2.0**0.5) - 1.0)
)


@pytest.mark.parametrize("side", ["two-sided", "less", "greater"])
def test_without_noise_they_are_scipys(side):
    ours = pi.stats.mannwhitneyu(X, Y, alternative=side, epsilon=math.inf)
    theirs = scipy_stats.mannwhitneyu(X, Y, alternative=side, method="asymptotic", use_continuity=False)
    assert ours.pvalue == pytest.approx(theirs.pvalue, rel=1e-9)
    assert ours.estimate == pytest.approx(theirs.statistic / (260 * 140))
    one = pi.stats.wilcoxon(X, 1.2, alternative=side, epsilon=math.inf)
    scipys = scipy_stats.wilcoxon(X - 1.2, alternative=side, correction=False)
    assert one.pvalue == pytest.approx(scipys.pvalue, rel=1e-6)


def test_ties_count_half_and_zeros_have_no_sign():
    x, y = np.array([0.0, 1.0, 1.0, 2.0] * 30), np.array([0.0, 0.0, 1.0, 1.0] * 30)
    r = pi.stats.mannwhitneyu(x, y, epsilon=math.inf)
    assert r.estimate == pytest.approx(scipy_stats.mannwhitneyu(x, y).statistic / 120**2)
    d = np.array([0.0, 0.0, 1.0, -1.0, 2.0])
    walsh = np.sign(d[:, None] + d)[np.triu_indices(5)].sum()
    assert pi.stats.wilcoxon(d, epsilon=math.inf).estimate == pytest.approx(walsh / 15.0)


@pytest.mark.audit
@pytest.mark.parametrize("spent", [{"mu": 0.5}, {"epsilon": 1.0, "delta": 0}])
def test_levels_and_coverage_hold_with_noise(spent):
    """200 releases each: at most 10% rejected of equal distributions; P(x > y) covered at least 90%."""
    rng, rejected, covered = np.random.default_rng(0), np.zeros(3), 0
    truth = scipy_stats.norm.cdf(1.0 / math.sqrt(2.0))
    for _ in range(200):
        a, b = rng.standard_normal(20), rng.standard_normal(180)
        g = rng.choice(["a", "b", "c"], 150)
        words = spent | {"rng": rng}
        rejected += [
            pi.stats.mannwhitneyu(a, b, **words).pvalue < 0.05,
            pi.stats.kruskal(rng.standard_normal(150), g, levels=["a", "b", "c"], **words).pvalue < 0.05,
            pi.stats.wilcoxon(b, **words).pvalue < 0.05,
        ]
        row = pi.stats.mannwhitneyu(np.append(b, a) + 1.0, rng.standard_normal(200), **words).rows[0]
        covered += row.low <= truth <= row.high
    assert (rejected / 200 <= 0.1).all()
    assert covered / 200 >= 0.9


def test_small_samples_that_the_means_cannot_tell_apart_by_loose_bounds():
    """n = 201, three groups .15 apart, sd .15, epsilon 1: ranks need no bounds."""
    rng = np.random.default_rng(1)
    g = np.repeat(["a", "b", "c"], 67)
    x = np.repeat([0.35, 0.5, 0.65], 67) + 0.15 * rng.standard_normal(201)
    found = [
        pi.stats.kruskal(x, g, levels=["a", "b", "c"], epsilon=1.0, delta=0, rng=seed).pvalue
        for seed in range(20)
    ]
    assert np.mean(np.array(found) < 0.05) >= 0.95


def test_tables_formulas_and_what_is_said():
    frame = pd.DataFrame({"x": Z, "g": G})
    schema = pi.Schema({"x": (0, 100), "g": ["a", "b", "c"]})
    r = pi.stats.kruskal("x ~ g", frame, schema=schema, epsilon=2.0, delta=0, rng=0)
    again = pi.stats.kruskal(Z, G, levels=["a", "b", "c"], epsilon=2.0, delta=0, rng=0)
    assert r.pvalue == again.pvalue < 0.001
    assert "Kruskal-Wallis" in str(r.summary())
    assert "equal distributions" in str(r.summary())
    two = frame[frame.g != "c"]
    both = pi.Schema({"x": (0, 100), "g": ["a", "b"]})
    m = pi.stats.mannwhitneyu("x ~ g", data=two, schema=both, epsilon=2.0, delta=0, rng=0)
    k = pi.stats.kruskal("x ~ g", two, schema=both, epsilon=2.0, delta=0, rng=0)
    assert (m.pvalue, m.estimate, m.rows[0].name) == (k.pvalue, k.estimate, "P(a > b)")
    assert m.privacy.epsilon(1e-9) == pytest.approx(2.0, abs=1e-6)


def test_the_smaller_noise_outside_of_a_ledger():
    words = {"epsilon": 1.0, "delta": 1e-6, "rng": 0}
    assert pi.stats.wilcoxon(X, **words).release.noise == "laplace"
    assert pi.stats.wilcoxon(X, **words, ledger=pi.Ledger()).release.noise == "gaussian"


def test_a_group_that_the_noise_hides_is_told_nothing_of():
    r = pi.stats.mannwhitneyu(X, [1.0], mu=0.2, rng=0)
    assert r.rows[0][1:] == (0.5, 0.5, 0.0, 1.0)
    assert "too large to estimate the number of records in one group" in str(r)
    assert not pi.stats.mannwhitneyu(X, [], mu=0.2, rng=0).pvalue < 0.05
    assert math.isnan(pi.stats.mannwhitneyu(X, [], epsilon=math.inf).pvalue)


def test_what_is_wrong_is_said_before_anything_is_spent():
    ledger = pi.Ledger(pi.Budget(mu=1.0))
    words = {"mu": 0.1, "ledger": ledger}
    schema = pi.Schema({"x": (0, 100), "g": ["a", "b", "c"]})
    with pytest.raises(SchemaError, match="use kruskal"):
        pi.stats.mannwhitneyu("x ~ g", data=pd.DataFrame({"x": Z, "g": G}), schema=schema, **words)
    with pytest.raises(SchemaError, match="missing"):
        pi.stats.wilcoxon(np.append(X, np.nan), **words)
    with pytest.raises(ArgumentError):
        pi.stats.wilcoxon(X, "middle", **words)
    assert len(ledger) == 0


def test_the_separation_of_groups_is_one_if_two_halves_do_not_overlap():
    x, g = np.arange(400.0), np.repeat(["a", "b", "c", "d"], 100)
    r = pi.stats.kruskal(x, g, levels=["a", "b", "c", "d"], epsilon=math.inf)
    assert r.estimate == pytest.approx(1.0)
    assert (r.rows[0].low, r.rows[0].high) == (pytest.approx(0.8, abs=0.1), 1.0)
    r = pi.stats.kruskal(np.tile(np.arange(100.0), 4), g, levels=["a", "b", "c", "d"], epsilon=math.inf)
    assert (r.estimate, r.rows[0].low) == (0.0, 0.0)


@pytest.mark.parametrize(("delta", "missing"), [(0, "raise"), (1e-6, "raise"), (1e-6, "drop")])
def test_the_interval_of_the_separation_allows_for_sampling(delta, missing):
    """Of equal distributions it contains 0 whenever the test does not reject; see `separation_ends`."""
    rng = np.random.default_rng(5)
    n, k = 400, 3
    covered = 0
    for seed in range(40):
        g = rng.integers(0, k, n)
        z = rng.standard_normal(n)
        frame = pd.DataFrame({"x": z, "y": z + g, "g": g})
        words = {"schema": pi.Schema({"x": (-5, 5), "y": (-5, 8), "g": [0, 1, 2]}), "epsilon": 4.0}
        words |= {"delta": delta, "missing": missing, "rng": seed}
        equal = pi.stats.kruskal("x ~ g", frame, **words)
        assert equal.rows[0].low == 0.0 or equal.pvalue < 0.05
        assert equal.rows[0].high < 0.5
        covered += equal.rows[0].low == 0.0
        apart = pi.stats.kruskal("y ~ g", frame, **words).rows[0]
        covered += apart.low <= SEPARATION_OF_SHIFTS <= apart.high
        assert apart.low > 0.0
        assert apart.bse < 0.15
    assert covered >= 76  # of 80
