"""Plans of means, differences, proportions and counts beside simulated releases."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import privinf as pi
from privinf.accounting.budget import rounded_budget
from privinf.errors import ArgumentError, NotAvailableError

NOISES = ["gaussian", "laplace"]
SPENT = {"epsilon": 0.5, "delta": 1e-6}


def ends(result):
    return result.table.iloc[0, -2:].to_numpy()


def released(kind, noise, seed):
    rng = np.random.default_rng(seed)
    words = {**SPENT, "noise": noise, "rng": seed}
    if kind == "mean":
        return ends(pi.stats.mean(np.clip(rng.normal(30, 8, 1500), 0, 60), bounds=(0, 60), **words))
    if kind == "group":
        group = rng.choice(["a", "b", "c"], 3000, p=[0.05, 0.25, 0.7])
        x = np.clip(rng.normal(30, 8, 3000), 0, 60)
        means = pi.stats.mean(x, by=group, levels=["a", "b", "c"], bounds=(0, 60), **words)
        return means.table.iloc[0, -2:].to_numpy()
    if kind == "difference":
        second = rng.random(3000) < 0.3
        x = np.clip(rng.normal(30, 8, 3000) + 1.5 * second, 0, 60)
        return ends(pi.stats.ttest_ind(x[second], x[~second], bounds=(0, 60), **words))
    if kind == "proportion":
        return ends(pi.stats.proportion_confint((rng.random(1000) < 0.3).astype(int), **words))
    schema = pi.Schema({"g": list("abcdef")})
    counts = pi.stats.counts("g", {"g": rng.choice(list("abcdef"), 3000)}, schema=schema, **words)
    return ends(counts if kind == "counts" else counts.intervals(target="population"))


def planned(kind, noise):
    words = {**SPENT, "noise": noise}
    if kind == "mean":
        return pi.stats.plan_mean(bounds=(0, 60), sd=8, **words), 1500
    if kind == "group":
        return pi.stats.plan_mean(bounds=(0, 60), sd=8, share=0.05, **words), 3000
    if kind == "difference":
        return pi.stats.plan_difference(bounds=(0, 60), sd=8, share=0.3, **words), 3000
    if kind == "proportion":
        return pi.stats.plan_proportion(share=0.3, **words), 1000
    target = "table" if kind == "counts" else "population"
    return pi.stats.plan_counts(cells=6, target=target, **words), 3000


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("kind", ["mean", "group", "difference", "proportion", "counts", "shares"])
def test_widths_are_those_of_releases(kind, noise):
    plan, n = planned(kind, noise)
    widths = [np.diff(released(kind, noise, seed)) for seed in range(25)]
    assert plan.width(n) == pytest.approx(float(np.median(widths)), rel=0.06)
    assert plan.se_without_noise(n) < plan.se(n)


@pytest.mark.parametrize("noise", NOISES)
def test_the_shares_of_all_groups_have_the_widths_of_one_release(noise):
    shares = {"a": 0.55, "b": 0.3, "c": 0.15}
    plan = pi.stats.plan_mean(bounds=(0, 60), sd=8, share=shares, noise=noise, **SPENT)
    widths = []
    for seed in range(25):
        rng = np.random.default_rng(seed)
        groups = rng.choice(list(shares), 3000, p=list(shares.values()))
        x = np.clip(rng.normal(30, 8, 3000), 0, 60)
        words = {"levels": list(shares), "bounds": (0, 60), "noise": noise, "rng": seed, **SPENT}
        table = pi.stats.mean(x, by=groups, **words).table
        widths.append((table.iloc[:, -1] - table.iloc[:, -2]).to_numpy())
    np.testing.assert_allclose(plan.width(3000), np.median(widths, axis=0), rtol=0.05)
    assert list(plan.width(3000).index) == ["a", "b", "c"]
    assert (plan.se_without_noise(3000) < plan.se(3000)).all()
    people = plan.n_for(width=1.5)
    assert plan.width(people).max() <= 1.5 < plan.width(math.floor(people / 1.02)).max()
    assert plan.power(people, 1.5).min() == plan.power(people, 1.5)["c"]
    epsilon = plan.budget_for(3000, effect=2.0)
    assert pi.stats.plan_mean(
        bounds=(0, 60), sd=8, share=[0.55, 0.3, 0.15], noise=noise, epsilon=epsilon, delta=SPENT["delta"]
    ).power(3000, 2.0).min() == pytest.approx(0.8, abs=0.02)
    assert "share" in str(plan)


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize(("kind", "null"), [("mean", 31.0), ("difference", 0.0), ("proportion", 0.24)])
def test_power_is_that_of_releases(kind, null, noise):
    plan, n = planned(kind, noise)
    effect = {"mean": 1.0, "difference": 1.5, "proportion": 0.06}[kind]
    detected = 0
    for seed in range(100):
        low, high = released(kind, noise, seed)
        detected += not low <= null <= high
    assert detected / 100 == pytest.approx(plan.power(n, effect), abs=0.14)


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("kind", ["mean", "group", "difference", "proportion", "shares"])
def test_people_and_budgets_attain_their_goals(kind, noise):
    plan, n = planned(kind, noise)
    width = 0.8 * plan.width(n)
    people = plan.n_for(width=width)
    assert plan.width(people) <= width < plan.width(math.floor(people / 1.02))
    effect = 0.5 * plan.width(n)
    people = plan.n_for(effect=effect, power=0.9)
    assert plan.power(people, effect) >= 0.9 > plan.power(math.floor(people / 1.02), effect)
    exact = replace(plan, spending={"epsilon": math.inf}).width(n)
    epsilon = plan.budget_for(n, width=0.5 * (exact + plan.width(n)))
    assert epsilon > 0.5
    with pytest.raises(NotAvailableError, match="n_for"):
        plan.budget_for(n, width=plan.se_without_noise(n))


def test_counts_of_this_table_have_a_width_whatever_the_number_of_people():
    plan = pi.stats.plan_counts(cells=6, **SPENT)
    assert plan.width(1000) == plan.width(100_000)
    with pytest.raises(NotAvailableError, match="budget_for"):
        plan.n_for(width=3.0)
    wide = plan.budget_for(1000, width=100.0)
    assert wide < 0.5


def test_budgets_in_mu_and_without_noise():
    plan = pi.stats.plan_mean(bounds=(0, 1), sd=0.2, mu=0.5)
    assert 0.0 < plan.budget_for(500, width=0.05) < 5.0
    exact = pi.stats.plan_mean(bounds=(0, 1), sd=0.2, epsilon=math.inf)
    assert exact.se(400) == pytest.approx(0.01)
    assert exact.power(400, 0.0) == pytest.approx(0.05, abs=0.002)
    pure = pi.stats.plan_proportion(share=0.5, epsilon=1.0, delta=0)
    assert "Laplace noise" in str(pure)
    assert "missing='drop'" not in str(pure)


def test_a_plan_with_laplace_noise_names_the_releases_that_have_gaussian_noise():
    plan = pi.stats.plan_mean(bounds=(0, 100), sd=5, epsilon=1.0, delta=1e-6)
    assert "drops rows by missing='drop', has Gaussian noise" in str(plan)
    gaussian = pi.stats.plan_mean(bounds=(0, 100), sd=5, epsilon=1.0, delta=1e-6, noise="gaussian")
    assert "missing='drop'" not in str(gaussian)
    assert gaussian.width(1000) > plan.width(1000)


def test_a_plan_prints_widths_by_the_number_of_people():
    text = repr(pi.stats.plan_mean(bounds=(0, 60), sd=8, **SPENT))
    assert "Planned mean: epsilon 0.5, delta 1e-06; 95% intervals" in text
    assert "10,000" in text
    group = repr(pi.stats.plan_mean(bounds=(0, 60), sd=8, share=0.1, **SPENT))
    assert "Planned mean of a group with a share of 0.1 of the n people" in group
    shares = repr(pi.stats.plan_counts(cells=6, target="population", **SPENT))
    assert "Planned share of a cell in the population, assumed to be 0.1667" in shares
    assert "share of 0.1667 of the records" in repr(pi.stats.plan_counts(cells=6, **SPENT))


def test_needed_budgets_are_rounded_up():
    for level, rounded in ((3.1557010215938157, 3.156), (0.0999961, 0.1), (2.0, 2.0), (123.41, 123.5)):
        assert rounded_budget(level) == rounded >= level


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: pi.stats.plan_mean(bounds=(0, 1), sd=0.6, mu=1.0), "impossible for values between 0 and 1"),
        (lambda: pi.stats.plan_mean(bounds=(1, 0), sd=0.1, mu=1.0), "lower one first"),
        (lambda: pi.stats.plan_mean(bounds=(0, 1), sd=0.1, epsilon=1.0), "delta"),
        (lambda: pi.stats.plan_mean(bounds=(0, 1), sd=0.1, by="region", mu=1.0), "by= .*pass share="),
        (lambda: pi.stats.plan_mean(bounds=(0, 1), sd=0.1, groups=4, mu=1.0), "groups= .*pass share="),
        (lambda: pi.stats.plan_mean(bounds=(0, 1), sd=0.1, share=[0.5, 0.4], mu=1.0), "add up to 1"),
        (lambda: pi.stats.plan_mean(bounds=(0, 1), sd=0.1, share=[1.0], mu=1.0), "share"),
        (lambda: pi.stats.plan_proportion(share=1.5, mu=1.0), "share"),
        (lambda: pi.stats.plan_counts(cells=1, mu=1.0), "cells"),
        (lambda: pi.stats.plan_mean(bounds=(0, 1), sd=0.1, mu=1.0).n_for(), "either width="),
        (lambda: pi.stats.plan_mean(bounds=(0, 1), sd=0.1, mu=1.0).n_for(effect=0.0), "must not be 0"),
    ],
)
def test_wrong_guesses_are_refused(call, text):
    with pytest.raises(ArgumentError, match=text):
        call()


def test_a_goal_beyond_every_study_is_refused():
    with pytest.raises(NotAvailableError, match="people are enough"):
        pi.stats.plan_mean(bounds=(0, 1), sd=0.1, mu=0.01).n_for(width=1e-6)


def test_a_plan_prints_what_it_assumes():
    """A plan assumed the middle of the bounds without a word, and its power was too high for skewed costs."""
    plan = pi.stats.plan_difference(bounds=(0, 40_000), sd=2600, **SPENT)
    assert "Assumptions" in str(plan)
    assert "the mean of the values of each group is 20000, the middle of the bounds" in str(plan)
    low = pi.stats.plan_difference(bounds=(0, 40_000), sd=2600, mean=3000, **SPENT)
    assert low.power(8000, effect=200) < plan.power(8000, effect=200) - 0.05
    assert "is 3000" in str(low)
    assert "middle" not in str(low)
    assert any("the mean of the values is 30" in text for text in plan_of_mean().assumptions)
    assert "middle of the bounds" in str(plan_of_mean(share=[0.5, 0.5]))
    series = plan_of_mean(share=pd.Series({"north": 0.3, "south": 0.7}))
    assert series.width(1000).index.tolist() == ["north", "south"]
    assert "0.1 of the people are in the group" in str(plan_of_mean(share=0.1))


def plan_of_mean(**options):
    return pi.stats.plan_mean(bounds=(0, 60), sd=8, **options, **SPENT)


def test_a_plan_of_a_log_rank_test_prints_its_budget_and_its_guesses():
    plan = pi.survival.plan_logrank(hazard_ratio=1.3, survival=0.35, dropout=0.3, **SPENT)
    text = str(plan)
    assert repr(plan) == text
    assert "epsilon 0.5, delta 1e-06" in text
    assert "the hazard ratio of the second group to the first group is 1.3" in text
    assert f"{plan.power(3000):.3f}" in text
