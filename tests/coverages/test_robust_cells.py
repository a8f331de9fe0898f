"""MomentOLS on skewed responses: robust errors hold there, and summaries say what intervals assume."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom
from statsmodels.datasets import fair, randhie

import privinf as pi

REAL = {
    "fair": (fair, "affairs", {"rate_marriage": (1, 5), "religious": (1, 4), "yrs_married": (0.5, 23)}, 58),
    "rand": (randhie, "mdvis", {"lncoins": (0, math.log(101.0)), "idp": (0, 1), "physlm": (0, 1)}, 77),
}
REPLICATIONS, ROWS = 100, 50_000


def fits_of(name):
    """Return errors and standard errors at epsilon 4 of rows drawn again, each (REPLICATIONS, 4)."""
    source, response, bounds, top = REAL[name]
    rows = source.load_pandas().data.astype(float)
    X, y = pi.add_constant(rows[list(bounds)]), rows[response].to_numpy()
    target = np.linalg.lstsq(X.to_numpy(), y, rcond=None)[0]
    found = []
    for number in range(REPLICATIONS):
        rng = np.random.default_rng([5, number])
        chosen = rng.integers(len(y), size=ROWS)
        model = pi.MomentOLS(y[chosen], X.iloc[chosen], bounds=bounds, y_bounds=(0, top))
        r = model.fit(epsilon=4.0, delta=1e-6, cov_type="HC0", rng=rng)
        found.append((r.params - target, r.bse))
    return np.swapaxes(np.array(found), 0, 1)


@pytest.mark.audit
@pytest.mark.parametrize("name", REAL)
def test_robust_errors_hold_on_skewed_responses(name):
    """With residuals clipped at 3 of their sds errors are a fifth too small here: .85 to .92 covered."""
    errors, se = fits_of(name)
    ratio2 = (errors**2).mean(axis=0) / (se**2).mean(axis=0)
    # the mean of four chi-squares over their degrees, were the errors right; they go together
    assert ratio2.mean() < 1.0 + 3.0 * math.sqrt(2.0 / REPLICATIONS / 3.0)
    assert (np.sqrt(ratio2) <= 1.2 + 2.0 / math.sqrt(2.0 * REPLICATIONS)).all()
    covered = (np.abs(errors) <= 1.959964 * se).mean(axis=0)
    assert (covered >= binom.ppf(0.005, REPLICATIONS, 0.93) / REPLICATIONS).all()


def grouped(seed, n=20_000):
    """Return rows of which a tenth, the group, has errors of three times the sd; the true slope is 0."""
    rng = np.random.default_rng(seed)
    group = (rng.uniform(size=n) < 0.1).astype(float)
    y = np.clip(0.3 * (1.0 + 2.0 * group) * rng.standard_normal(n), -4.0, 4.0)
    return y, pi.add_constant(pd.DataFrame({"group": group}))


def fit_of(seed, cov_type, **spending):
    y, X = grouped(seed)
    model = pi.MomentOLS(y, X, bounds=[(0, 1)], y_bounds=(-4, 4))
    return model.fit(**({"mu": 4.0} | spending), cov_type=cov_type, rng=seed)


@pytest.mark.audit
def test_nonrobust_score_tests_need_equal_variance_and_the_summary_says_so():
    rejected = {
        cov_type: np.mean([fit_of(seed, cov_type).score_test([0.0]).pvalue < 0.05 for seed in range(80)])
        for cov_type in ("nonrobust", "HC0")
    }
    assert rejected["nonrobust"] > 0.2
    assert rejected["HC0"] <= binom.isf(0.005, 80, 0.05) / 80
    plain, robust = (fit_of(0, cov_type) for cov_type in ("nonrobust", "HC0"))
    text = plain.summary().as_text()
    assert "assume equal variances" in text
    assert "cov_type='HC0'" in " ".join(text.split())
    assert "not flagged" not in text
    for summary in (plain.summary().as_html(), plain.summary().as_latex(), plain.summary().as_csv()):
        assert "assume equal variances" in summary
        assert "not flagged" not in summary
    assert "not flagged" in robust.summary().as_text()
    assert "equal error variances" not in robust.summary().as_text()
    assert "assume equal variances" not in robust.summary().as_text()
    assert "trusted" not in str(plain.identification)
    assert "equal error variance" in pi.Results.score_test.__doc__


def test_a_clip_that_the_noise_made_narrow_is_said():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (1500, 10))
    y = np.clip(X @ np.full(10, 0.1) + 0.1 * rng.standard_normal(1500), -3, 3)
    model = pi.MomentOLS(y, X, bounds=[(-1, 1)] * 10, y_bounds=(-3, 3))
    found = model.fit(mu=60.0, cov_type="HC0", robust_share=1e-5, rng=0)
    assert found.release.noise_model["residual_bound"] < found.release.noise_model["residual_largest"]
    text = " ".join(found.summary().as_text().split())
    assert "for clipped residuals" in text
    assert "not flagged" not in text
    assert "standard deviations, where noise dominates" in text
