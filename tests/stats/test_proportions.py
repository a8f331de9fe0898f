"""Shares: statsmodels' and scipy's without noise, exact and score intervals with it."""

import math
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import stats as scipy_stats
from statsmodels.stats.proportion import proportion_confint
from statsmodels.stats.proportion import proportions_ztest as theirs_ztest

import privinf as pi
from privinf.errors import ArgumentError, ChangedTargetWarning, SchemaError
from privinf.inference.counts import ShareModel
from privinf.stats.groups import score_interval

X = np.repeat([1, 0], [37, 363])
G = np.resize(["a", "b"], 400)


def test_without_noise_intervals_are_wilsons_and_clopper_pearsons():
    for method, name in (("score", "wilson"), ("exact", "beta")):
        r = pi.stats.proportion_confint(X, method=method, epsilon=math.inf)
        assert r.rows[0][3:] == pytest.approx(proportion_confint(37, 400, method=name), abs=1e-8)
        assert r.estimate == 37 / 400


def test_codes_1_and_2_of_a_column_with_the_bounds_0_and_1_are_named_with_the_remedy():
    rows = pd.DataFrame({"sick": X + 1, "group": G})
    bounds = {"data": rows, "schema": pi.Schema({"sick": (0, 1), "group": ["a", "b"]}), "mu": 1.0, "rng": 0}
    text = r"nearly all values of 'sick'.*as levels, as in \[1, 2\]"
    with pytest.warns(ChangedTargetWarning, match=text):
        r = pi.stats.proportion_confint("sick", **bounds)
    assert "as levels" in str(r.summary())
    with pytest.warns(ChangedTargetWarning, match=text):
        pi.stats.proportions_ztest("sick", value=0.5, **bounds)
    with pytest.warns(ChangedTargetWarning, match=text):
        pi.stats.mean("sick", **bounds)
    # Counts read the bounds (0, 1) as levels, so that the rows are checked; nothing is charged.
    ledger = pi.Ledger()
    for call in (pi.stats.proportions_ztest, pi.stats.chi2_contingency):
        with pytest.raises(SchemaError, match=r"levels 0 and 1 .*as levels, as in \[1, 2\]") as caught:
            call("sick", "group", **bounds, ledger=ledger)
        assert "or declare bounds" not in str(caught.value)
    assert len(ledger) == 0


def test_levels_and_rare_outcomes_are_not_taken_for_other_codes():
    rows = pd.DataFrame({"sick": X + 1})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        r = pi.stats.proportion_confint("sick", rows, schema=pi.Schema({"sick": [1, 2]}), mu=1.0, rng=0)
        assert r.estimate == pytest.approx(37 / 400, abs=0.02)
        pi.stats.proportion_confint(np.arange(400) < 2, mu=1.0, rng=0)
        pi.stats.proportion_confint(np.ones(5), mu=0.1, rng=0)  # noise alone may make the share 1


def test_levels_without_groups_are_refused_before_a_charge():
    ledger = pi.Ledger()
    with pytest.raises(ArgumentError, match="levels= is for groups"):
        pi.stats.proportions_ztest(X, value=0.1, levels=["a", "b"], mu=0.1, ledger=ledger)
    assert len(ledger) == 0


@pytest.mark.parametrize("alternative", ["two-sided", "less", "greater"])
def test_without_noise_one_sample_is_statsmodels(alternative):
    words = {"value": 0.12, "alternative": alternative, "epsilon": math.inf}
    r = pi.stats.proportions_ztest(X, **words)
    side = {"two-sided": "two-sided", "less": "smaller", "greater": "larger"}[alternative]
    assert (r.statistic, r.pvalue) == pytest.approx(
        theirs_ztest(37, 400, 0.12, alternative=side, prop_var=0.12)
    )
    exact = pi.stats.proportions_ztest(X, method="exact", **words)
    binomial = {"less": scipy_stats.binom.cdf(37, 400, 0.12), "greater": scipy_stats.binom.sf(36, 400, 0.12)}
    if alternative in binomial:
        assert exact.pvalue == pytest.approx(binomial[alternative])


@pytest.mark.parametrize("p", [0.5, 0.02, 0.001])
@pytest.mark.parametrize("mu", [0.237, 0.838])
def test_coverage_of_shares(p, mu):
    rng, n, draws = np.random.default_rng(2), 1000, 6000
    count = rng.binomial(n, p, draws) + rng.standard_normal(draws) / mu
    low, high = score_interval(count, n, 1.0 / mu, 0.95)
    assert np.mean((low <= p) & (p <= high)) == pytest.approx(0.95, abs=0.011)


@pytest.mark.audit
@pytest.mark.parametrize("laplace", [False, True])
def test_the_exact_test_is_exact(laplace):
    rng, n, p, draws = np.random.default_rng(4), 300, 0.01, 400
    noise = rng.laplace(0, 1.0, draws) if laplace else rng.normal(0, 1.0, draws)
    sd = math.sqrt(2.0) if laplace else 1.0
    tails = [ShareModel(np.float64(x), n, sd, laplace).tail(p) for x in rng.binomial(n, p, draws) + noise]
    assert scipy_stats.kstest(tails, "uniform").pvalue > 0.01


def test_laplace_noise_takes_the_exact_law():
    r = pi.stats.proportion_confint(X, epsilon=1.0, delta=0, rng=0)
    assert r.release.noise == "laplace"
    assert "method is exact" in r.notes[0]
    law = ShareModel(r.release.sums[0, 0], 400, float(r.release.scale[0]), True)
    low, high = r.rows[0][3:]
    assert law.tail(low) == pytest.approx(0.025, abs=1e-6) == law.below(high)


def test_two_groups_without_noise_are_the_table():
    r = pi.stats.proportions_ztest(X, G, levels=["a", "b"], epsilon=math.inf)
    counts = [X[g == G].sum() for g in "ab"]
    z, pvalue = theirs_ztest(counts, [200, 200])
    assert r.statistic == pytest.approx(z)
    assert [row.estimate for row in r.rows[1:]] == pytest.approx([count / 200 for count in counts])
    assert r.pvalue == pytest.approx(pvalue, abs=0.12)  # of a discrete law, the found table among the others
    assert r.estimate == pytest.approx((counts[0] - counts[1]) / 200)
    low, high = r.rows[0][3:]
    assert low < r.estimate < high
    shares = [count / 200 for count in counts]
    assert r.bse == pytest.approx(math.sqrt(sum(p * (1 - p) / 199 for p in shares)), rel=0.01)


@pytest.mark.parametrize("alternative", ["less", "greater"])
def test_sides_of_two_groups(alternative):
    rng = np.random.default_rng(0)
    g = rng.choice(["a", "b"], 4000)
    hit = rng.uniform(size=4000) < np.where(g == "a", 0.5, 0.35)
    frame = pd.DataFrame({"hit": np.where(hit, "yes", "no"), "g": g})
    schema = pi.Schema({"hit": ["no", "yes"], "g": ["a", "b"]})
    r = pi.stats.proportions_ztest(
        "hit", "g", data=frame, schema=schema, mu=0.5, alternative=alternative, rng=0
    )
    assert (r.pvalue < 0.001) == (alternative == "greater")
    assert r.rows[0].low < 0.15 < r.rows[0].high
    assert r.rows[0].low > 0.0


def test_what_is_wrong_is_said_before_anything_is_spent():
    ledger = pi.Ledger(pi.Budget(mu=1.0))
    words = {"mu": 0.1, "ledger": ledger}
    with pytest.raises(ArgumentError, match="value="):
        pi.stats.proportions_ztest(X, **words)
    with pytest.raises(ArgumentError, match="one sample"):
        pi.stats.proportions_ztest(X, G, 0.5, levels=["a", "b"], **words)
    with pytest.raises(SchemaError, match="is not declared with two values"):
        pi.stats.proportion_confint("x", data={"x": X}, schema=pi.Schema({"x": (0, 5)}), **words)
    with pytest.raises(ArgumentError):
        pi.stats.proportions_ztest(X, value=1.0, **words)
    assert len(ledger) == 0
