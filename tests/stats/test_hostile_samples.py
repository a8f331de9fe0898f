"""Samples that tests are not made for: constants, empty groups, single records, values beyond a bound."""

import math
import warnings

import numpy as np
import pytest

import privinf as pi
from privinf.errors import ArgumentError, ChangedTargetWarning, SchemaError
from privinf.stats.groups import GroupModel
from privinf.stats.means import MeanModel
from privinf.stats.values_at_bounds import values_at_bounds

RNG = np.random.default_rng(7)
X = RNG.normal(5.0, 1.0, 300)
SPENT = [
    {"epsilon": math.inf},
    {"mu": 0.3, "rng": 0},
    {"epsilon": 1.0, "delta": 0, "rng": 0},
    {"mu": 50.0, "rng": 0},
]
SIDES = ["two-sided", "less", "greater"]
FULL = pytest.approx((-10.0, 10.0))


@pytest.mark.parametrize("spent", SPENT)
@pytest.mark.parametrize("side", SIDES)
def test_a_constant_column_at_the_null_is_not_rejected(spent, side):
    r = pi.stats.ttest_1samp(np.full(300, 5.0), 5.0, bounds=(0, 10), alternative=side, **spent)
    assert math.isnan(r.pvalue) or r.pvalue > 0.05  # scipy's nan without noise
    low, high = r.confidence_interval()
    assert low <= 5.0 <= high


@pytest.mark.parametrize("spent", SPENT)
def test_a_group_of_one_record_is_never_sure(spent):
    """Without noise scipy's nan; with it the record is hidden, or its group's spread is."""
    for r in (
        pi.stats.ttest_ind(X, [9.0], bounds=(0, 10), **spent),
        pi.stats.ttest_ind([2.0], [9.0], bounds=(0, 10), **spent),
    ):
        assert not r.pvalue < 0.05
        assert r.confidence_interval() == FULL
    g = np.array(["a"] * 150 + ["b"] * 149 + ["c"])
    r = pi.stats.anova_oneway(np.append(X[:299], 9.0), g, levels=["a", "b", "c"], bounds=(0, 10), **spent)
    assert not r.pvalue < 0.01


@pytest.mark.parametrize("spent", SPENT)
def test_an_empty_group_is_told_nothing_of(spent):
    r = pi.stats.ttest_ind(X, [], bounds=(0, 10), **spent)
    assert not r.pvalue < 0.05
    assert r.confidence_interval() == FULL
    assert tuple(r.means().table.iloc[1, 2:]) == (0.0, 10.0)
    one = pi.stats.anova_oneway(X, ["a"] * 300, levels=["a", "b", "c"], bounds=(0, 10), **spent)
    assert not one.pvalue < 0.05
    assert all((row.low, row.high) == FULL for row in one.pairwise().rows)


@pytest.mark.parametrize("spent", SPENT[:3])
def test_values_beyond_the_bounds_are_warned_of(spent):
    with pytest.warns(ChangedTargetWarning, match="less than 5% of the width of the bounds away"):
        r = pi.stats.mean(np.full(300, 99.0), bounds=(0, 10), **spent)
    assert r.confidence_interval().high == 10.0
    with pytest.warns(ChangedTargetWarning, match="popmean is outside"):
        r.ttest(99.0)
    with pytest.warns(ChangedTargetWarning, match="in group 'b'"):
        pi.stats.ttest_ind(X, np.full(900, 99.0), bounds=(0, 10), **spent)


def test_values_that_are_merely_near_a_bound_or_hidden_are_not():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pi.stats.mean(RNG.exponential(1.0, 300), bounds=(0, 10), mu=1.0, rng=0)
        pi.stats.mean(np.full(300, 10.0), bounds=(0, 10), mu=0.1, rng=0)
        pi.stats.mean((RNG.uniform(size=300) < 0.05).astype(float), bounds=(0, 1), mu=1.0, rng=0)
        pi.stats.ttest_ind(X, np.full(3, 10.0), bounds=(0, 10), mu=0.5, rng=0)


def _costs(n: int = 6000) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    costs = np.where(rng.uniform(size=n) < 0.12, np.minimum(rng.lognormal(7.0, 1.0, n), 50_000.0), 0.0)
    return costs, np.repeat(["city", "coast", "north"], n // 3)


def test_a_column_of_mostly_zeros_with_the_lower_bound_0_has_one_note_and_no_warning():
    """Costs that are mostly 0 equal the bound: nothing is clipped, and wider bounds would only add noise."""
    costs, groups = _costs()
    missing = np.where(np.arange(len(costs)) % 20 == 0, np.nan, costs)
    spent = {"bounds": (0, 50_000), "epsilon": 2.0, "delta": 1e-6, "rng": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one = pi.stats.mean(costs, **spent)
        by = pi.stats.mean(missing, by=groups, levels=["city", "coast", "north"], missing="drop", **spent)
        total = pi.stats.sum(costs, by=groups, levels=["city", "coast", "north"], **spent)
        tested = pi.stats.anova_oneway(costs, groups, levels=["city", "coast", "north"], **spent)
    for result in (one, by, by.pairwise(), total, tested):
        texts = [note.text for note in result.summary(notes="all").ranked_notes]
        (text,) = (text for text in texts if "At least half of the values" in text)
        assert "at the lower bound 0, close to it or below it" in text
        assert "wider bounds" not in text
        assert result.cautions == ()
    (text,) = (note.text for note in by.summary().ranked_notes if "At least half" in note.text)
    assert "in groups 'city', 'coast' and 'north'" in text
    assert "rows are complete" in by.summary().ranked_notes[0].text
    assert "rows are complete" in str(by.summary()).replace("\n    ", " ")


def test_groups_whose_values_are_all_below_the_bound_0_have_one_warning():
    costs, groups = _costs()
    with pytest.warns(ChangedTargetWarning) as found:
        r = pi.stats.mean(
            -costs - 1.0, by=groups, levels=["city", "coast", "north"], bounds=(0, 50_000), mu=1.0, rng=0
        )
    assert len(found) == len(r.cautions) == 1
    assert "'city', 'coast' and 'north'" in r.cautions[0][1]
    assert "Values below 0 are clipped to 0" in r.cautions[0][1]
    with pytest.warns(
        ChangedTargetWarning, match="in groups 'city', 'coast' and 'north' are beyond the upper bound 10"
    ):
        r = pi.stats.mean(
            costs + 20.0, by=groups, levels=["city", "coast", "north"], bounds=(0, 10), mu=1.0, rng=0
        )
    assert len(r.cautions) == 1


def test_a_rare_yes_is_not_taken_for_another_code():
    """With the codes 1 and 2 all values are clipped to 1: a share of 1% of ones shows other values."""
    rare = (np.arange(6000) % 100 == 0).astype(float)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pi.stats.mean(rare, bounds=(0, 1), mu=1.0, rng=0)
    with pytest.warns(ChangedTargetWarning, match="other codes of yes and no"):
        pi.stats.mean(rare + 1.0, bounds=(0, 1), mu=1.0, rng=0)


def test_many_groups_are_not_all_named():
    names, means = [f"g{j}" for j in range(12)], np.full(12, -0.99)
    ((_, text),), _ = values_at_bounds("x", names, means, np.full(12, 1e-3), (5.0, 10.0))
    assert "'g7' and 4 more are beyond the lower bound 5" in text


def test_standard_errors_at_a_bound_are_not_cut_to_nothing():
    with pytest.warns(ChangedTargetWarning):
        r = pi.stats.ttest_ind(np.zeros(900), np.full(900, 10.0), bounds=(0, 10), epsilon=1.0, delta=0, rng=0)
    assert (r.table["std err"] > 0.01).all()


@pytest.mark.parametrize("side", SIDES)
def test_a_noised_variance_below_zero_gives_no_sure_answer(side):
    """S and Q say that s^2 is far below 0: noise alone rules the error, and the null is not rejected."""
    law = MeanModel.from_sums(np.array(1.0), np.array(-40.0), 300, (6.0, 3.6))
    t, pvalue = law.test(0.0, side)
    assert law.sd == 0.0
    assert pvalue > 0.05
    assert math.isfinite(t)
    low, high = law.interval(0.95)
    assert low < 0.0 < high
    groups = GroupModel.from_sums(
        np.array([150.0, 150.0]), np.array([3.0, -3.0]), np.array([190.0, 180.0]), 300, (8.0, 8.0)
    )
    F, df = groups.equal_means()
    assert math.isfinite(F)
    assert 0.0 < df < 1e3
    assert F < 4.0


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_missing_and_infinite_values_are_refused(value):
    ledger = pi.Ledger(pi.Budget(mu=1.0))
    wrong = np.append(X, value)
    for test in (
        lambda: pi.stats.ttest_1samp(wrong, 5.0, bounds=(0, 10), mu=0.1, ledger=ledger),
        lambda: pi.stats.ttest_ind(wrong, X, bounds=(0, 10), mu=0.1, ledger=ledger),
    ):
        with pytest.raises(SchemaError):
            test()
    with pytest.raises(ArgumentError, match="'raise', 'impute-public', 'drop'"):
        pi.stats.ttest_1samp(wrong, 5.0, bounds=(0, 10), missing="omit", mu=0.1, ledger=ledger)
    assert len(ledger) == 0
