"""Standard deviations of `describe`: intervals, and nan with a caution where noise hides them."""

import math

import numpy as np
import pandas as pd

import privinf as pi

SCHEMA = pi.Schema({"los": (0, 90), "age": (18, 100)})


def described(seed, epsilon=1.0):
    g = np.random.default_rng(seed)
    los = np.clip(np.ceil(np.exp(g.normal(1.0, 0.7, 8000))), 0, 90)
    rows = pd.DataFrame({"los": los, "age": np.clip(g.normal(62, 16, 8000), 18, 99)})
    return rows, pi.stats.describe(rows, schema=SCHEMA, epsilon=epsilon, delta=1e-6, rng=seed)


def test_standard_deviations_are_never_zero_and_their_intervals_cover():
    hidden, covered = [], []
    for seed in range(60):
        rows, result = described(seed)
        ends = result.intervals.loc["std"]
        covered.append((ends.loc["low"] <= rows.std()) & (rows.std() <= ends.loc["high"]))
        sd = result.table.loc["std"]
        assert not (sd == 0.0).any()
        if math.isnan(sd.los):
            hidden.append(result)
            assert "hides the standard deviation of 'los'" in result.cautions[0][1]
            assert "hides the standard deviation" in repr(result)
        else:
            assert ends.at["low", "los"] <= sd.los <= ends.at["high", "los"]
            assert not result.cautions
    assert hidden
    assert np.mean(covered, axis=0).min() > 0.85
    assert np.mean(covered) > 0.93


def test_without_noise_the_standard_deviation_is_that_of_the_rows():
    rows, result = described(0, math.inf)
    np.testing.assert_allclose(result.table.loc["std"], rows.std(), rtol=1e-6)
    assert not result.cautions
