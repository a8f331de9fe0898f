"""Effect sizes and correlations that the noise hides are not printed as numbers."""

import math

import numpy as np
import pandas as pd
import pytest

import privinf as pi
from privinf.stats.groups import GroupModel, explained_shares


def groups(seed, n=4000):
    g = np.random.default_rng(seed)
    label = g.choice(list("abcde"), n)
    x = np.clip(50.0 + 10.0 * g.normal(size=n) + 2.0 * (label == "b"), 0.0, 100.0)
    return pd.DataFrame({"x": x, "label": label, "w": np.clip(0.02 * x + 0.3 * g.normal(size=n), 0.0, 100.0)})


SCHEMA = pi.Schema({"x": (0, 100), "label": list("abcde"), "w": (0, 100)})


def anova(seed, epsilon):
    return pi.stats.anova_oneway(
        "x", "label", groups(0), schema=SCHEMA, epsilon=epsilon, delta=1e-6, rng=seed
    )


@pytest.mark.filterwarnings("ignore::privinf.errors.PrivinfWarning")
@pytest.mark.parametrize(("epsilon", "least"), [(0.3, 0), (1.0, 0), (6.0, 38)])
def test_a_visible_eta_squared_is_rarely_far_too_small(epsilon, least):
    """It was 0, or less than half of that of the data, in up to 85% of fits."""
    exact = anova(0, math.inf).effects["eta squared"]
    fits = [anova(seed, epsilon) for seed in range(40)]
    shown = [r for r in fits if not math.isnan(r.effects["eta squared"])]
    assert len(shown) >= least
    assert sum(r.effects["eta squared"] < 0.5 * exact for r in shown) <= 3
    assert all("noise alone causes a standard error" in " ".join(r.notes) for r in shown)


def test_the_noise_of_eta_squared_is_calibrated():
    exact = explained_shares(GroupModel.released(anova(0, math.inf).release))[0]["eta squared"]
    models = [explained_shares(GroupModel.released(anova(seed, 6.0).release)) for seed in range(60)]
    z = [(shares["eta squared"] - exact) / sd for shares, sd in models if not math.isnan(sd)]
    assert len(z) > 55
    assert abs(np.mean(z)) < 0.5
    assert 0.75 < np.std(z) < 1.3


@pytest.mark.filterwarnings("ignore::privinf.errors.PrivinfWarning")
def test_hidden_eta_squared_is_explained():
    hidden = next(r for r in (anova(seed, 0.3) for seed in range(40)) if math.isnan(r.effects["eta squared"]))
    assert math.isnan(hidden.effects["omega squared"])
    assert "noise hides the differences between groups" in " ".join(hidden.notes)
    assert "not available (nan)" not in " ".join(anova(0, math.inf).notes)


@pytest.mark.filterwarnings("ignore::privinf.errors.PrivinfWarning")
def test_a_correlation_with_a_hidden_variance_has_no_estimate():
    """The variance of w is 0.13 in bounds of width 100: the estimate was 1, -1 or 0."""
    for seed in range(5):
        r = pi.stats.pearsonr("x", "w", groups(0), schema=SCHEMA, epsilon=0.5, delta=1e-6, rng=seed)
        row = r.rows[0]
        assert math.isnan(row.estimate)
        assert math.isnan(r.effects["r"])
        assert (row.low, row.high) == (-1.0, 1.0)
        assert "there is no estimate" in " ".join(r.notes)


@pytest.mark.filterwarnings("ignore::privinf.errors.PrivinfWarning")
def test_correlations_of_a_release_are_at_most_1():
    mechanism = pi.Moments(SCHEMA, "w ~ x")
    above = 0
    for seed in range(60):
        release = mechanism.release(groups(0), epsilon=0.5, delta=1e-6, rng=seed)
        table = release.corr().table if hasattr(release, "corr") else None
        assert table is not None
        r, low, high = float(table["corr"].iloc[0]), *release.corr()._ends(0.05).iloc[0]
        above += math.isnan(r) and not math.isnan(float(table["P>|z|"].iloc[0]))
        assert math.isnan(r) or abs(r) <= 1.0
        assert -1.0 <= low < high <= 1.0
    assert above > 0
