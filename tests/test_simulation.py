"""The Monte Carlo harness: seeds, processes, limits."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

from privinf.errors import ArgumentError
from privinf.simulation import binomial_limits, rates, replicate


def interval_of_a_mean(seed):
    x = np.random.default_rng(seed).standard_normal(50)
    half = 1.959964 / np.sqrt(50)
    return {"mean": x.mean(), "hit": abs(x.mean()) < half, "never": False}


def test_every_replication_has_its_own_reproducible_seed():
    frame = replicate(interval_of_a_mean, 20, seed=3, progress=False)
    assert frame["mean"].nunique() == 20
    assert frame.equals(replicate(interval_of_a_mean, 20, seed=3, progress=False))
    assert not frame.equals(replicate(interval_of_a_mean, 20, seed=4, progress=False))
    # a longer run begins with the shorter one
    assert replicate(interval_of_a_mean, 30, seed=3, progress=False).iloc[:20].equals(frame)


def test_two_processes_give_the_same_rows():
    one = replicate(interval_of_a_mean, 9, seed=5, progress=False)
    assert one.equals(replicate(interval_of_a_mean, 9, seed=5, progress=False, processes=2))
    with pytest.raises(ArgumentError):
        replicate(interval_of_a_mean, 9, seed=5, progress=False, processes=3)


def test_a_right_interval_is_inside_and_a_wrong_one_outside():
    frame = replicate(interval_of_a_mean, 2000, seed=1, progress=False)
    low, high = binomial_limits(0.95, 2000, 0.999)
    assert low <= frame["hit"].mean() <= high
    low, high = binomial_limits(0.92, 2000, 0.999)
    assert not low <= frame["hit"].mean() <= high


@pytest.mark.parametrize(("p", "n"), [(0.95, 500), (0.05, 10_000), (0.5, 7), (0.0, 10), (1.0, 10)])
def test_limits_hold_the_level_and_no_narrower_ones_do(p, n):
    low, high = (round(v * n) for v in binomial_limits(p, n, 0.99))
    inside = binom.cdf(high, n, p) - binom.cdf(low - 1, n, p)
    assert inside >= 0.99 - 1e-12
    if 0.0 < p < 1.0:
        # one step in from either end leaves more than the tail outside
        assert binom.cdf(low, n, p) > 0.005
        assert binom.sf(high - 1, n, p) > 0.005


def test_rates_have_clopper_pearson_intervals():
    frame = replicate(interval_of_a_mean, 400, seed=2, progress=False)
    table = rates(frame, ["hit", "never"], level=0.95)
    hits = int(frame["hit"].sum())
    low, high = table.loc["hit", ["low", "high"]]
    assert binom.sf(hits - 1, 400, low) == pytest.approx(0.025)
    assert binom.cdf(hits, 400, high) == pytest.approx(0.025)
    assert table.loc["never", ["rate", "low"]].tolist() == [0.0, 0.0]
    assert table.loc["never", "high"] == pytest.approx(1 - 0.025 ** (1 / 400))
    assert rates(frame.assign(hit=np.nan), ["hit"])["rate"].isna().all()


@pytest.mark.parametrize("arguments", [(1.2, 10, 0.9), (0.5, 0, 0.9), (0.5, 10, 1.0)])
def test_bad_limits_are_refused(arguments):
    with pytest.raises(ArgumentError):
        binomial_limits(*arguments)
