"""Scores of the mean: their derivation, sizes of residuals, centres, and what changes a target."""

import math
import warnings

import numpy as np
import pytest

import privinf as pi
from privinf.accounting import GaussianLoss, LedgerEntry
from privinf.errors import ArgumentError, ChangedTargetWarning, HeavyTailWarning, NotAvailableError
from privinf.federation import NoisySum, TrustedServer
from privinf.inference.tails import Clip, shrunk
from privinf.lasso.fit import SparseFit
from privinf.lasso.radii import ResidualSizes
from privinf.lasso.rows import SparseUnits
from privinf.lasso.scores import mean_scores
from privinf.lasso.sums import CELLS_PER_OCTAVE, OCTAVES, SparseSums
from studies.simulation import binomial_limits

P, TARGETS, BETA = 3, [0, 1], np.array([0.5, -0.3, 0.2])
CORRELATION = np.array([[1.0, 0.5, 0.0], [0.5, 1.0, 0.5], [0.0, 0.5, 1.0]])
PRECISION = np.linalg.inv(CORRELATION)


def rows_of(rng, n, skew):
    X = np.clip(rng.standard_normal((n, P)) @ np.linalg.cholesky(CORRELATION).T, -4.0, 4.0)
    errors = rng.standard_normal(n)
    if skew:
        errors = 0.5 * (rng.standard_exponential(n) - 1.0) * np.exp(skew * X[:, 0])
    return X @ BETA + errors, X


def scores_of(y, X, rho, rng, start):
    """Return the released scores of two targets at first coefficients `start`, exact precision columns."""
    rows = pi.DebiasedLasso(y, X, x_bound=4.0, y_bounds=(-6.0, 6.0))._rows
    units = SparseUnits(
        center=np.zeros(P),
        scale=np.ones(P),
        max_abs=np.full(P, 4.0),
        intercept=0.0,
        y_max_abs=6.0,
        y_limit=96.0,
    )
    sums = SparseSums(server=TrustedServer(rows.federation, rng=rng), units=units, n=len(y))
    scale = 1.0 if rho < math.inf else 0.7
    fit = SparseFit(
        support=list(range(P)),
        beta=start,
        selected=list(range(P)),
        selected_beta=start,
        scale=scale,
        step_sd=0.0,
        efficiency=1.0,
        selected_errors=np.zeros(P),
    )
    transform = PRECISION[:, TARGETS] / np.sqrt(np.diag(PRECISION)[TARGETS])
    correlation = transform.T @ CORRELATION @ transform
    return mean_scores(
        sums, fit, TARGETS, list(range(P)), transform, correlation, score=rho, slopes=rho / 3.0
    ), transform


@pytest.mark.audit
@pytest.mark.parametrize("skew", [0.0, 0.3])
@pytest.mark.parametrize("n", [2_000, 8_000])
def test_one_step_has_the_variance_that_is_stated(n, skew):
    """From a start a few standard errors away; skewed errors whose size is odd in a target: the mean's."""
    z, covered, reps = [], [], 100
    for rep in range(reps):
        rng = np.random.default_rng([n, rep])
        y, X = rows_of(rng, n, skew)
        start = BETA + rng.normal(0.0, 2.0 / math.sqrt(n), P)
        found, _ = scores_of(y, X, 72.0 / n, rep, start)
        release = found.release
        variance = release.square / n + release.score_sd**2
        step = release.score / release.slope
        se = np.sqrt(variance / release.slope**2 + (step * release.slope_sd / release.slope) ** 2)
        error = start[TARGETS] + step - BETA[TARGETS]
        z.append(error / se)
        room = found.bias / se
        covered.append(np.abs(error) <= se * (1.96 + room))
        assert (np.abs(found.correlation) <= 1.0 + 1e-12).all()
    low, _ = binomial_limits(0.95, 2 * reps, level=0.999)
    assert np.mean(covered) >= low
    if not skew:
        assert np.abs(np.mean(z)) < 3.5 / math.sqrt(2 * reps)
        assert np.std(z) == pytest.approx(1.0, abs=0.15)


def test_without_noise_scores_slopes_and_meat_are_those_of_the_rows():
    rng = np.random.default_rng(1)
    y, X = rows_of(rng, 900, 0.2)
    start = BETA + 0.1
    found, transform = scores_of(y, X, math.inf, 0, start)
    u, r = X @ transform, y - X @ start
    np.testing.assert_allclose(found.release.score, (u * r[:, None]).mean(axis=0), rtol=1e-10)
    np.testing.assert_allclose(found.release.slope, (u * X[:, TARGETS]).mean(axis=0), rtol=1e-10)
    meat = (u * r[:, None]).T @ (u * r[:, None]) / len(y)
    np.testing.assert_allclose(found.release.square, np.diag(meat), rtol=1e-4)
    spread = np.sqrt(np.diag(meat))
    np.testing.assert_allclose(found.correlation, meat / np.outer(spread, spread), atol=1e-4)
    assert found.clip.cut == 0.0
    assert (found.bias == 0.0).all()


def test_a_meat_that_is_noise_is_a_multiple_of_its_shape():
    rng = np.random.default_rng(2)
    root = np.linalg.cholesky(CORRELATION)
    exact = 2.0 * CORRELATION
    np.testing.assert_allclose(shrunk(exact, 0.1, CORRELATION), exact)
    away, plain = [], []
    for _ in range(50):
        noise = rng.standard_normal((P, P))
        noisy = exact + 0.3 * (noise + noise.T) / 2.0
        found = shrunk(noisy, 0.3, CORRELATION)
        assert np.linalg.eigvalsh(np.linalg.solve(root, np.linalg.solve(root, found).T)).min() > 0.0
        away.append(np.linalg.norm(found - exact))
        plain.append(np.linalg.norm(noisy - exact))
    assert np.mean(away) < 0.75 * np.mean(plain)


def test_the_bias_of_a_layer_is_at_most_what_counts_leave():
    clip = Clip(low=1.0, high=3.0, ratio=0.5, weight=1.3, between=40.0)
    found = clip.bias(np.array([-10.0, 90.0]), np.array([2.0, 2.0]), np.array([1.0, 1.0]))
    np.testing.assert_allclose(found, 0.7 * 0.5 * np.array([12.0, 40.0]))


# ---- sizes of residuals


LINE = LedgerEntry(
    mechanism="gaussian",
    label="sizes of residuals",
    unit="record",
    relation="replace-one",
    trust="server",
    loss=GaussianLoss(1.0),
    source="test",
    secure=False,
)


def sizes_of(values, sd, seed=0):
    top = 2.0
    edges = top * 2.0 ** (-np.arange(OCTAVES * CELLS_PER_OCTAVE, -1, -1) / CELLS_PER_OCTAVE)
    counts = np.bincount(np.searchsorted(edges, np.abs(values), side="right"), minlength=len(edges) + 1)
    noisy = counts + sd * np.random.default_rng(seed).standard_normal(len(counts))
    return ResidualSizes.from_counts(
        NoisySum(values=noisy, rows=len(values), sites=("one",), scale=sd, mu=1.0, entries=(LINE,)), edges
    )


def test_a_unit_of_clips_follows_the_sd_where_the_tail_has_the_mass():
    rng = np.random.default_rng(3)
    ones = (rng.random(40_000) < 0.1) - 0.1
    rare = sizes_of(ones, 100.0)
    assert rare.two_valued
    assert rare.middle < 0.12
    assert rare.scale == pytest.approx(0.3, rel=0.1)
    normal = [sizes_of(0.3 * rng.standard_normal(40_000), 100.0, seed) for seed in range(100)]
    assert not any(one.two_valued for one in normal)
    assert np.mean([one.scale / one.middle for one in normal]) < 1.01
    heavy = sizes_of(0.01 * rng.standard_t(1.5, 40_000), 1.0)
    assert heavy.scale <= 3.0 * heavy.middle


# ---- fits


def model(seed=0, n=20_000, p=20, **options):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    y = X[:, 0] - 0.5 * X[:, 3] + 0.5 * rng.standard_normal(n)
    return pi.DebiasedLasso(y, X, **({"x_bound": 4.0, "y_bounds": (-6.0, 6.0)} | options))


def fit_of(model, **options):
    return model.fit(
        **({"epsilon": 2.0, "delta": 0.5 / 20_000, "sparsity": 2, "targets": [0, 3, 7], "rng": 0} | options)
    )


@pytest.mark.audit
def test_the_target_is_said_and_the_mean_is_the_default():
    mean, robust = fit_of(model()), fit_of(model(), target="robust")
    assert (mean.score_target, robust.score_target) == ("mean", "robust")
    assert "Target: the mean" in " ".join(mean.notes)
    assert "Target: a robust center" in " ".join(robust.notes)
    assert 0.0 <= mean.score_tail.beyond < 0.02
    with pytest.raises(NotAvailableError, match="did not count large scores"):
        robust.score_tail
    assert robust.bse.mean() < mean.bse.mean()
    every = fit_of(model(), targets="all")
    assert every.score_target == "robust"


@pytest.mark.parametrize(
    ("wrong", "error"),
    [({"targets": "all"}, NotAvailableError), ({"heterogeneous": True}, NotAvailableError)],
)
def test_a_mean_that_cannot_be_had_is_refused(wrong, error):
    with pytest.raises(error, match="target='mean'"):
        fit_of(model(), target="mean", **wrong)
    with pytest.raises(ArgumentError, match="target"):
        fit_of(model(), target="median")


def test_a_tail_beyond_the_counts_is_warned_of_and_allowed_for():
    rng = np.random.default_rng(4)
    X = rng.standard_normal((20_000, 20))
    errors = 0.2 * (rng.random(20_000) ** (-1.0 / 1.3) - 4.3)
    heavy = pi.DebiasedLasso(X[:, 0] + errors, X, x_bound=4.0, y_bounds=(-5.0, 200.0))
    fit = fit_of(heavy, epsilon=0.8, sparsity=1)
    assert fit.score_tail.ratio > 0.7
    assert (fit.estimate.bias > 0.0).all()
    with pytest.warns(HeavyTailWarning, match="heavy tail"):
        half = np.diff(fit.conf_int().to_numpy())[:, 0] / 2.0
    assert (half > 1.97 * fit.bse).all()


@pytest.mark.audit
def test_means_away_from_the_middle_are_covered():
    """Response and columns off the middle of their bounds, no constant: what a constant would do."""
    hits = []
    for seed in range(1000, 1012):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((12_000, 12)) + 1.0
        X[:, 5] = rng.random(12_000) < 0.1
        y = 2.0 + X[:, 0] - 0.5 * X[:, 3] + 0.5 * X[:, 5] + 0.5 * rng.standard_normal(12_000)
        bounds = [(-3.0, 5.0)] * 5 + [(0.0, 1.0)] + [(-8.0, 5.0)] * 6
        fit = pi.DebiasedLasso(y, X, bounds=bounds, y_bounds=(-8.0, 10.0)).fit(
            epsilon=2.0, delta=0.5 / 12_000, sparsity=3, targets=[0, 5, 7], rng=seed
        )
        if not fit.missed_column_test.exhausted:  # the rare column was missed, and is named
            hits.append(np.abs(fit.params - [1.0, 0.5, 0.0]) < 1.96 * fit.bse)  # .954 of 720
    low, _ = binomial_limits(0.95, 3 * len(hits), level=0.99)
    assert np.mean(hits) >= low


@pytest.mark.audit
def test_columns_that_bounds_cut_are_named():
    with pytest.warns(ChangedTargetWarning, match="x1"):
        fit_of(model(x_bound=1.5)).conf_int()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit_of(model()).conf_int()


@pytest.mark.audit
def test_two_values_are_seen_and_robust_scores_of_them_are_warned_of():
    rng = np.random.default_rng(5)
    X = np.clip(rng.standard_normal((20_000, 20)), -3.0, 3.0)
    y = (rng.random(20_000) < 0.15 + 0.03 * X[:, 0]).astype(float)
    fits = {
        target: fit_of(pi.DebiasedLasso(y, X, x_bound=3.0, y_bounds=(0.0, 1.0)), sparsity=1, target=target)
        for target in ("mean", "robust")
    }
    assert "linear probability model" in " ".join(fits["mean"].notes)
    assert abs(fits["mean"].params["x1"] - 0.03) < 3.0 * fits["mean"].bse["x1"]
    with pytest.warns(ChangedTargetWarning, match="two values"):
        fits["robust"].conf_int()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fits["mean"].conf_int()
