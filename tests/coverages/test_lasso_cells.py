"""Reduced cells of the long simulations of benchmarks/verify_lasso.py, judged by binomial limits."""

from functools import cache

import numpy as np
import pytest

import privinf as pi
from studies.lasso import LassoDesign
from studies.lasso_baselines import debiased_lasso
from studies.simulation import binomial_limits

DELTA, NORMAL = 1e-5, 1.959963984540054
TARGETS, SIGNALS = [0, 4, 7, 50], 2  # the errors of the hard cell depend on feature 7
SIZE = {"machines": 1, "n": 10_000, "p": 100, "sparsity": 5}
CELLS = {
    "normal": (LassoDesign(**SIZE), 0.8, 60),
    "hard": (
        LassoDesign(**SIZE, features="equicorrelated", correlation=0.3, errors="heteroskedastic"),
        1.5,
        50,
    ),
}


@cache
def fits(name):
    """Errors of the targets, their standard errors, those without privacy noise, and what was selected.

    Last come 20 fits without privacy and without debiasing, of the normal cell alone.
    """
    design, epsilon, reps = CELLS[name]
    rng = np.random.default_rng(11)
    errors, ses, sampling = (np.full((reps, len(TARGETS)), np.nan) for _ in range(3))
    found, naive = 0, []
    for i in range(reps):
        sample = design.draw(rng)
        model = pi.DebiasedLasso(sample.y, sample.X, x_bound=3.5, y_bounds=(-5, 5))
        r = model.fit(epsilon=epsilon, delta=DELTA, sparsity=5, targets=TARGETS, rng=rng)
        if r.hidden_targets:  # in one fit of 30 to 250
            continue
        assert r.privacy.epsilon(DELTA) <= epsilon
        errors[i], ses[i] = r.params - sample.shared[TARGETS], r.bse
        sampling[i] = r.bse_sampling
        found += bool((r.sparse_params[sample.shared != 0.0] != 0.0).all())
        if i < 20 and name == "normal":
            clear = debiased_lasso(sample.y, sample.X, targets=TARGETS)
            naive.append((clear.sparse_params[TARGETS] - sample.shared[TARGETS]) / clear.bse)
    return errors, ses, sampling, found, np.array(naive)


def inside(z):
    """Whether coverage, of each target and of all together, lies inside limits that hold in 99% of runs.

    Fits that hide a target have no interval of it, and are left out; there are few.
    """
    shown = ~np.isnan(z).any(axis=1)
    assert shown.mean() >= 0.9
    held = np.abs(z[shown]) <= NORMAL
    level = 1.0 - 0.01 / (z.shape[1] + 1)
    low, high = binomial_limits(0.95, len(held), level)
    each = held.mean(axis=0)
    pooled = binomial_limits(0.95, held.size, level)
    return bool(low <= each.min() and each.max() <= high and pooled[0] <= held.mean() <= pooled[1])


@pytest.mark.audit
@pytest.mark.parametrize("name", list(CELLS))
def test_joint_intervals_cover(name):
    errors, ses, _, found, _ = fits(name)
    assert inside(errors / ses)
    assert not inside(1.4 * errors / ses)  # intervals that are too short are seen
    assert found >= binomial_limits(0.99, len(errors))[0] * len(errors)


@pytest.mark.audit
def test_intervals_without_the_variance_of_the_noise_do_not_cover():
    errors, _, sampling, *_ = fits("normal")
    assert not inside(errors / sampling)


@pytest.mark.audit
def test_width_is_near_the_one_without_privacy():
    """The mean's scores cost at 10,000 rows, more than those that suit normal errors."""
    _, ses, _, _, _ = fits("normal")
    design, epsilon, _ = CELLS["normal"]
    clear = np.sqrt(design.sampling_variance()[TARGETS] / design.nobs)
    ratio = np.nanmedian(ses, axis=0) / clear
    assert (ratio > 1.0).all()
    assert (ratio < 2.8).all()  # 2.65 at most in 60 fits, the looks for missed columns paid
    robust, rng = [], np.random.default_rng(12)
    for _ in range(8):
        sample = design.draw(rng)
        model = pi.DebiasedLasso(sample.y, sample.X, x_bound=3.5, y_bounds=(-5, 5))
        r = model.fit(epsilon=epsilon, delta=DELTA, sparsity=5, targets=TARGETS, target="robust", rng=rng)
        robust.append(r.bse)
    ratio = np.median(robust, axis=0) / clear
    assert (ratio > 1.0).all()
    assert (ratio < 2.3).all()


@pytest.mark.audit
def test_the_lasso_without_debiasing_does_not_cover_signals():
    """The same standard errors around the shrunk coefficients, without privacy."""
    *_, naive = fits("normal")
    low, _ = binomial_limits(0.95, naive[:, :SIGNALS].size)
    assert (np.abs(naive[:, :SIGNALS]) <= NORMAL).mean() < low
