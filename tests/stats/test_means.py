"""The mean and its t-test: scipy's without noise, honest with it."""

import math
import pickle

import numpy as np
import pandas as pd
import pytest
from scipy import stats as scipy_stats

import privinf as pi
from privinf.errors import (
    ArgumentError,
    BudgetExceededError,
    HeavyTailWarning,
    SchemaError,
    SensitivityError,
    StorageError,
)
from privinf.stats.means import MeanModel, laplace_quantile, laplace_tail

X = np.random.default_rng(3).normal(5.0, 1.0, 400).clip(0.0, 10.0)


@pytest.mark.parametrize("alternative", ["two-sided", "less", "greater"])
def test_without_noise_it_is_scipys(alternative):
    ours = pi.stats.ttest_1samp(X, 4.9, bounds=(0, 10), alternative=alternative, epsilon=math.inf)
    theirs = scipy_stats.ttest_1samp(X, 4.9, alternative=alternative)
    assert [ours.statistic, ours.pvalue, ours.df] == pytest.approx(
        [theirs.statistic, theirs.pvalue, theirs.df]
    )
    interval = theirs.confidence_interval(0.9)
    ends = np.clip(interval, 0.0, 10.0)
    assert ours.confidence_interval(0.9) == pytest.approx(tuple(ends))
    assert ours.effects["Cohen's d"] == pytest.approx((X.mean() - 4.9) / X.std(ddof=1))
    assert ours.sd == pytest.approx(X.std(ddof=1))


def test_arrays_series_tables_and_files_are_one(tmp_path):
    frame = pd.DataFrame({"income": X, "other": 1.0})
    frame.to_csv(tmp_path / "rows.csv", index=False)
    schema = pi.Schema({"income": (0, 10)})
    words = {"mu": 0.5, "rng": 0}
    found = [
        pi.stats.mean(frame["income"], bounds=(0, 10), **words),
        pi.stats.mean("income", data=frame, schema=schema, **words),
        pi.stats.mean("income", data=str(tmp_path / "rows.csv"), schema=schema, **words),
        pi.stats.mean("income", bounds=(0, 10), data=dict(frame), **words),
        pi.stats.mean("income", data=pi.open_table(frame, schema), schema=schema, **words),
    ]
    assert {round(one.estimate, 9) for one in found} == {round(found[0].estimate, 9)}
    assert {one.rows[0].name for one in found} == {"income"}


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
@pytest.mark.parametrize("n", [300, 2000])
def test_the_p_value_and_the_interval_say_the_same(noise, n):
    r = pi.stats.mean(np.resize(X, n), bounds=(0, 10), epsilon=1.0, delta=1e-6, noise=noise, rng=1)
    low, high = r.confidence_interval()
    for end in (low, high):
        assert r.ttest(end).pvalue == pytest.approx(0.05, abs=0.006)
    assert r.release.noise == noise


def test_size_and_power_by_released_sums():
    """Of the law itself: 4,000 releases at the null, n = 300, eps 1 (mu .237 and pure)."""
    rng, n, draws = np.random.default_rng(0), 300, 4000
    x = np.clip(rng.normal(0.0, 0.25, (draws, n)), -1, 1)
    S, Q, a = x.sum(axis=1), (x**2).sum(axis=1), 2.0 / 0.2367
    b = a / 1.665
    law = MeanModel.from_sums(
        S + a * rng.standard_normal(draws), Q + b * rng.standard_normal(draws), n, (a, b)
    )
    assert np.mean(law.test(0.0, "two-sided")[1] < 0.05) == pytest.approx(0.05, abs=0.012)


def test_the_law_of_normal_plus_laplace():
    rng = np.random.default_rng(0)
    drawn = rng.normal(0, 0.7, 400_000) + rng.laplace(0, 0.4, 400_000)
    at = np.array([0.0, 0.5, 1.5, 3.0])
    assert laplace_tail(at, 0.7, 0.4) == pytest.approx([(drawn > x).mean() for x in at], abs=0.003)
    assert laplace_tail(
        laplace_quantile(0.025, np.array([0.7, 0.0]), 0.4), np.array([0.7, 0.0]), 0.4
    ) == pytest.approx(0.025)
    assert laplace_tail(np.array([2.0]), 0.0, 0.4) == pytest.approx([math.exp(-5.0) / 2.0])


def test_what_is_wrong_is_said_before_anything_is_spent():
    ledger = pi.Ledger(pi.Budget(mu=1.0))
    with pytest.raises(SensitivityError, match="'a' has no public bounds"):
        pi.stats.mean(X, mu=0.1, ledger=ledger)
    with pytest.raises(SchemaError):
        pi.stats.mean(X, bounds="data", mu=0.1, ledger=ledger)
    with pytest.raises(ArgumentError, match="data="):
        pi.stats.mean("income", bounds=(0, 1), mu=0.1, ledger=ledger)
    with pytest.raises(ArgumentError, match="only be passed with data="):
        pi.stats.mean(X, bounds=(0, 1), schema=pi.Schema({"a": (0, 1)}), mu=0.1, ledger=ledger)
    with pytest.raises(ArgumentError, match="epsilom"):
        pi.stats.mean(X, bounds=(0, 1), epsilom=0.1, ledger=ledger)
    with pytest.raises(ArgumentError):
        pi.stats.ttest_1samp(X, 1.0, bounds=(0, 10), alternative="both", mu=0.1, ledger=ledger)
    with pytest.raises(BudgetExceededError):
        pi.stats.mean(X, bounds=(0, 10), mu=1.5, ledger=ledger)
    assert len(ledger) == 0


def test_every_other_null_is_free():
    ledger = pi.Ledger(pi.Budget(mu=1.0))
    r = pi.stats.ttest_1samp(X, 5.0, bounds=(0, 10), mu=0.5, ledger=ledger, rng=0)
    assert r.ttest(3.0).pvalue < 1e-6 < r.pvalue
    assert len(ledger) == 1
    assert r.privacy.mu == 0.5 == r.privacy.cumulative.mu


def test_a_level_in_epsilon_takes_the_smaller_noise_outside_of_a_ledger():
    alone = pi.stats.mean(X, bounds=(0, 10), epsilon=1.0, delta=1e-6, rng=0)
    shared = pi.stats.mean(X, bounds=(0, 10), epsilon=1.0, delta=1e-6, rng=0, ledger=pi.Ledger())
    pure = pi.stats.mean(X, bounds=(0, 10), epsilon=1.0, delta=0, rng=0, ledger=pi.Ledger())
    assert [one.release.noise for one in (alone, shared, pure)] == ["laplace", "gaussian", "laplace"]
    assert alone.bse < shared.bse
    assert pure.privacy.epsilon(1e-9) == pytest.approx(1.0, abs=1e-6)


def test_the_summary_says_it_all():
    text = str(
        pi.stats.ttest_1samp(pd.Series(X, name="income"), 5.0, bounds=(0, 10), mu=0.5, rng=0).summary()
    )
    for part in (
        "One-Sample t-Test",
        "mean of income = 5",
        "Cohen's d",
        "mu (Gaussian DP)",
        "SIMULATION",
        "[0, 10]",
    ):
        assert part in text


def test_a_pickle_of_another_version_is_refused_by_name():
    """Its fields are missing, unknown, or, within the objects of a result, were never set."""
    r = pi.stats.ttest_1samp(X, 5.0, bounds=(0, 10), mu=0.5, rng=0)
    rebuild, (kind, state) = r.__reduce__()
    incomplete = object.__new__(type(r.test))
    for name in ("statistic", "pvalue"):
        object.__setattr__(incomplete, name, getattr(r.test, name))
    fewer = {name: value for name, value in state.items() if name != "rows"}
    for old in (fewer, state | {"estimates": ()}, state | {"test": incomplete}, state | {"release": None}):
        with pytest.raises(
            StorageError, match=f"pickled {kind.__name__} was made by another version.*to_json"
        ):
            rebuild(kind, old)
    assert rebuild(kind, state).pvalue == r.pvalue


def test_results_are_frozen_and_can_be_pickled():
    r = pi.stats.ttest_1samp(X, 5.0, bounds=(0, 10), mu=0.5, rng=0)
    again = pickle.loads(pickle.dumps(r))
    assert (again.pvalue, dict(again.effects), again.rows) == (r.pvalue, dict(r.effects), r.rows)
    assert again.confidence_interval() == r.confidence_interval()
    with pytest.raises(AttributeError):
        r.rows = ()
    with pytest.raises(TypeError):
        r.effects["Cohen's d"] = 1.0
    with pytest.raises(ValueError, match="read-only"):
        r.release.sums[0, 0] = 0.0


def test_what_noise_puts_beyond_the_bounds_is_held_there():
    r = pi.stats.mean(X, bounds=(0, 10), mu=1e-4, rng=0)
    assert r.estimate in (0.0, 10.0)
    assert r.rows[0][3:] == (0.0, 10.0)


@pytest.mark.parametrize("side", ["two-sided", "less", "greater"])
def test_a_test_on_a_chosen_clip_allows_for_what_it_cut(side):
    """It rejects what its interval leaves out, which is longer than that of clipped values alone."""
    x = np.random.default_rng(0).lognormal(0.0, 0.75, 20_000)
    with pytest.warns(HeavyTailWarning):
        r = pi.stats.ttest_1samp(x, 1.3, bounds=(0, 60), clip="auto", alternative=side, mu=0.5, rng=1)
    assert r.clip.high < 60.0
    assert r.clip.above > 0.0
    assert "Values are clipped to [" in str(r.summary())
    assert "noisy counts from which the limits of clipping were chosen" in " ".join(r.notes)
    low, high = r.confidence_interval()
    ends = {"two-sided": (low, high), "less": (high,), "greater": (low,)}[side]
    for end in ends:
        assert r.ttest(end, alternative=side).pvalue == pytest.approx(0.05)
    assert r.ttest(r.estimate).pvalue == 1.0
    assert r.ttest(r.estimate).statistic == 0.0
