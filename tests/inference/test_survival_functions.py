"""Curves and tests of noisy cells: without noise statsmodels', with noise its variance, size and coverage."""

from __future__ import annotations

import math

import numpy as np
import pytest
import statsmodels.api as sm
from scipy.signal import lfilter
from scipy.special import ndtri
from scipy.stats import chi2

from privinf.inference.survival import (
    CellEstimate,
    CellNoise,
    Curve,
    _noise_covariance,
    gehan_weights,
    log_hazard_ratio,
    log_rank,
    nonnegative,
    survival_difference,
    survival_weights,
    time_weights,
)
from privinf.mechanisms.statistics.survival import suffix_root


def cells_of(time, status, group, groups, edges):
    """Return the numbers of events and censored records, shapes (G, K) and (G, K + 1)."""
    K = len(edges)
    interval = np.searchsorted(edges, time, side="left")
    event = status & (interval < K)
    interval = np.where(event | (time < edges[-1]), interval, K)
    D = [np.bincount(interval[event & (group == g)], minlength=K) for g in range(groups)]
    C = [np.bincount(interval[~event & (group == g)], minlength=K + 1) for g in range(groups)]
    return np.array(D, dtype=float), np.array(C, dtype=float)


def released(D, C, sigma, rng, *, full_grid=False, counted=False):
    """Return the cells of noisy releases, leading axes being draws."""
    groups, K = D.shape[-2:]
    f = suffix_root(K + 1)
    sums = [lfilter(f, [1.0], part[..., ::-1], axis=-1)[..., ::-1] for part in (D, C)]
    values = np.concatenate(sums, axis=-1).reshape(*D.shape[:-2], -1)
    n = D.sum(axis=(-1, -2)) + C.sum(axis=(-1, -2))
    if counted:
        values = np.concatenate([values, np.asarray(n)[..., None]], axis=-1)
    values = values + sigma * rng.standard_normal(values.shape)
    noise = CellNoise(scale=sigma, root=f, groups=groups, counted=float(counted))
    return CellEstimate.from_release(values, noise, int(np.max(n)), full_grid=full_grid)


@pytest.fixture(scope="module")
def heaped():
    rng = np.random.default_rng(0)
    n = 900
    time = rng.integers(1, 41, n).astype(float)
    return time, rng.random(n) < 0.6, rng.integers(0, 3, n), np.arange(1.0, 41.0)


def test_without_noise_and_with_every_time_they_are_statsmodels(heaped):
    time, status, group, edges = heaped
    cells = released(*cells_of(time, status, group, 3, edges), 0.0, np.random.default_rng(0), full_grid=True)
    for g in range(3):
        curve = cells.curve(g)
        reference = sm.SurvfuncRight(time[group == g], status[group == g])
        common = np.isin(edges, reference.surv_times) & curve.used
        expected = reference.surv_prob[np.isin(reference.surv_times, edges[common])]
        assert common.sum() > 30
        assert np.abs(np.exp(-curve.hazard)[common] - expected).max() < 1e-12
    weights = {None: None, "gb": gehan_weights(cells), "fh": survival_weights(cells, 1.0)}
    for kind, numbers in weights.items():
        words = {} if kind is None else {"weight_type": kind} | ({"fh_p": 1.0} if kind == "fh" else {})
        expected = sm.duration.survdiff(time, status, group, **words)[0]
        assert float(log_rank(cells, numbers).statistic) == pytest.approx(expected, rel=1e-8)


def test_the_hazard_ratio_is_where_the_score_is_zero(heaped):
    time, status, group, edges = heaped
    two = group < 2
    cells = released(
        *cells_of(time[two], status[two], group[two], 2, edges), 0.0, np.random.default_rng(0), full_grid=True
    )
    b, low, high = log_hazard_ratio(cells, 1.96)
    cox = sm.PHReg(
        time[two], (group[two] == 1).astype(float)[:, None], status=status[two].astype(float)
    ).fit()
    assert b == pytest.approx(float(cox.params[0]), abs=0.1 * float(cox.bse[0]))
    assert (high - low) / (2 * 1.96) == pytest.approx(float(cox.bse[0]), rel=0.1)
    assert float(log_rank(cells, None, b).U[0]) == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("counted", [False, True])
def test_noise_has_the_covariance_that_is_stated(counted):
    sigma = 3.0
    rng = np.random.default_rng(1)
    D = np.array([[40.0, 30, 20, 10, 5, 5], [10.0, 20, 30, 20, 10, 9]]) * 30
    C = np.array([[9.0, 8, 7, 6, 5, 4, 90], [4.0, 5, 6, 7, 8, 9, 50]]) * 30
    draws = 4000
    cells = released(np.tile(D, (draws, 1, 1)), np.tile(C, (draws, 1, 1)), sigma, rng, counted=counted)
    noise = cells.noise.sizes(full_grid=False)
    Y = cells.at_risk - 0.5 * cells.C[..., :-1]
    for name, stated in (
        ("DD", np.cov(cells.D[:, 0].T)),
        ("YY", np.cov(Y[:, 0].T)),
        ("DY", (cells.D[:, 0] - D[0]).T @ (Y[:, 0] - Y[:, 0].mean(0)) / draws),
    ):
        expected = getattr(noise, name)
        size = np.sqrt(
            np.outer(np.diag(noise.DD if name[0] == "D" else noise.YY), np.diag(getattr(noise, name[1] * 2)))
        )
        assert np.abs(stated - expected).max() < 0.08 * size.max(), name
    E, pooled = cells.exposed, cells.at_risk.sum(axis=1)
    assert np.var(pooled, axis=0) == pytest.approx(noise.pooled_NN, rel=0.12, abs=1e-6)
    assert np.var(E[:, 0], axis=0) == pytest.approx(noise.EE, rel=0.12)
    between = ((E[:, 0] - E[:, 0].mean(0)) * (E[:, 1] - E[:, 1].mean(0))).mean(0)
    assert np.abs(between - noise.other_EE).max() < 0.08 * noise.EE.max()
    curve, exact = cells.curve(0), released(D, C, 0.0, rng, counted=counted).curve(0)
    assert np.var(curve.hazard, axis=0) == pytest.approx(curve.noise_variance.mean(axis=0), rel=0.12)
    assert curve.hazard.mean(axis=0) == pytest.approx(exact.hazard, abs=4e-3)
    score, known = log_rank(cells), log_rank(released(D, C, 0.0, rng, counted=counted))
    assert np.var(score.U, axis=0) == pytest.approx(score.noise[:, 0].mean(axis=0), rel=0.12)
    assert score.U.mean() == pytest.approx(
        float(known.U[0]), abs=4 * math.sqrt(float(score.noise.mean()) / draws)
    )
    if not counted:
        assert cells.total == pytest.approx(np.full(draws, (D.sum() + C.sum())), rel=1e-12)


def test_events_are_made_nonnegative_and_keep_their_order():
    D = np.array([3.0, -2.0, 4.0, -1.0, 2.0])
    smooth = nonnegative(D)
    assert (smooth >= 0.0).all()
    assert nonnegative(np.array([1.0, 2.0, 0.5])) == pytest.approx([1.0, 2.0, 0.5])


def simulated(hazard, n, K, draws, groups, rng):
    edges = np.linspace(0.0, 1.0, K + 1)[1:]
    D, C = np.zeros((draws, groups, K)), np.zeros((draws, groups, K + 1))
    for i in range(draws):
        T = (rng.exponential(size=n) / hazard) ** (1.0 / 0.7)
        censored = rng.uniform(0.2, 1.6, n)
        group = rng.integers(0, groups, n)
        D[i], C[i] = cells_of(np.minimum(T, censored), censored >= T, group, groups, edges)
    return edges, D, C


def test_intervals_bands_quantiles_and_tests_hold_with_noise():
    rng = np.random.default_rng(5)
    edges, D, C = simulated(1.2, 3000, 16, 300, 2, rng)
    truth = 1.2 * edges**0.7
    cells = released(D, C, 2.0 * np.sqrt(2.0) / 0.5, rng)
    curve = cells.curve(0)
    low, high = curve.intervals(1.96)
    cover = ((low <= truth) & (truth <= high)).mean(axis=0)
    assert cover.min() > 0.9
    band_low, band_high = curve.band(0.95)
    joint = ((band_low <= truth) & (truth <= band_high)).all(axis=1).mean()
    assert 0.91 < joint < 0.985
    assert (np.diff(band_low) >= 0.0).all()
    assert (np.diff(band_high) >= 0.0).all()
    places = np.concatenate([[0.0], edges, [np.inf]])
    for p in (0.1, 0.5):
        time = (-math.log1p(-p) / 1.2) ** (1.0 / 0.7)
        first, last = curve.quantile_edges(p, 1.96)
        assert ((places[first] <= time) & (time <= places[last])).mean() > 0.93
    for weights in (None, gehan_weights(cells), survival_weights(cells, 1.0)):
        rejected = (log_rank(cells, weights).statistic > chi2.isf(0.05, 1)).mean()
        assert 0.015 < rejected < 0.09


def test_what_the_noise_hides_is_not_used():
    D, C = np.array([[3.0, 1.0, 1.0]]), np.array([[0.0, 0.0, 0.0, 4.0]])
    cells = released(D, C, 50.0, np.random.default_rng(0))
    curve = cells.curve()
    assert int(curve.last) == 0
    low, high = curve.intervals(1.96)
    assert low.tolist() == [0.0] * 3
    assert np.isinf(high).all()
    assert [int(end) for end in curve.quantile_edges(0.5, 1.96)] == [0, 4]


# ---- quantiles, single times, differences and pairs


def known_curve(hazard, sds, margin):
    """Return a curve of the first edges with these standard deviations, all of them of noise."""
    hazard, sds = np.array(hazard), np.array(sds)
    used = np.ones(len(hazard), dtype=bool)
    zero = np.zeros_like(hazard)
    parts = {"ratio": zero, "sampling": zero, "of_D": zero, "of_Y": zero}
    return Curve(hazard=hazard, noise=np.diag(sds**2), used=used, margin=np.array(margin), **parts)


def test_a_quantile_ends_where_the_curve_has_clearly_passed():
    """The last edge is hardly known: tests of every edge alone leave the interval without an end there."""
    hazard, margin = [0.1, 0.6, 1.1, 1.2, 1.3], [9.0, 5.0, 3.5, 3.2, 1.1]
    well_known = known_curve(hazard, [0.1] * 5, margin)
    assert [int(place) for place in well_known.quantile_edges(0.5, 1.96)] == [1, 3]
    bound = ndtri(1.0 - 0.2 * 0.025 / 3)
    assert (1.1 - math.log(2.0)) / 0.15 < bound < (1.1 - math.log(2.0)) / 0.1
    late = known_curve(hazard, [0.1, 0.1, 0.1, 1.0, 1.0], margin)  # the third edge is a checkpoint
    assert [int(place) for place in late.quantile_edges(0.5, 1.96)] == [1, 3]
    unclear = known_curve(hazard, [0.1, 0.1, 0.15, 1.0, 1.0], margin)
    assert [int(place) for place in unclear.quantile_edges(0.5, 1.96)] == [1, 6]
    elsewhere = known_curve(hazard, [0.1, 0.1, 0.1, 1.0, 1.0], [9.0, 5.0, 3.5, 3.2, 3.1])
    assert [int(place) for place in elsewhere.quantile_edges(0.5, 1.96)] == [1, 6]
    none = known_curve([0.1, 0.2], [0.1, 0.1], [9.0, 9.0])
    assert [int(place) for place in none.quantile_edges(0.5, 1.96)] == [2, 3]


def test_the_interval_at_which_counting_stops_is_not_used():
    """Its own events made the next number at risk small: its hazard would be too high."""
    rng = np.random.default_rng(5)
    edges, D, C = simulated(2.0, 1500, 32, 600, 1, rng)
    curve = released(D, C, 25.0, rng).curve()
    last = curve.last
    stopped = (last > 0) & (last < 32)
    assert stopped.mean() > 0.9
    at = np.maximum(last - 1, 0)[:, None]
    hazard, variance = (np.take_along_axis(part, at, axis=1)[:, 0] for part in (curve.hazard, curve.variance))
    error = (hazard - 2.0 * edges[at[:, 0]] ** 0.7) / np.sqrt(variance)
    assert abs(error[stopped].mean()) < 0.25
    assert (error[stopped] > 1.96).mean() < 0.06


def test_no_end_is_invented_where_the_curve_stays_above():
    rng = np.random.default_rng(4)
    _, D, C = simulated(0.66, 3000, 16, 400, 1, rng)  # S(1) = 0.517
    _, end = released(D, C, 4.0, rng).curve().quantile_edges(0.5, 1.96)
    assert (end == 17).mean() > 0.95


def test_no_end_is_invented_where_the_curve_stays_just_above():
    """The last edge that is used depends on the noise, and must not end intervals too often."""
    rng = np.random.default_rng(11)
    T = -np.log1p(-np.minimum(rng.exponential(size=(500, 2000)), 0.69) / 0.69 * (1.0 - 1e-9)) / 8.0
    cured = rng.exponential(size=T.shape) > 0.69
    T, censored = np.where(cured, np.inf, T), rng.uniform(0.1, 1.0, T.shape)
    edges = np.linspace(0.0, 1.0, 33)[1:]
    cells = [
        cells_of(np.minimum(t, c), c >= t, np.zeros(len(t), dtype=int), 1, edges)
        for t, c in zip(T, censored, strict=True)
    ]
    D, C = (np.stack([cell[place] for cell in cells]) for place in (0, 1))
    _, end = released(D, C, 8.0, rng).curve().quantile_edges(0.5, 1.96)
    assert (end == 33).mean() > 0.945


def test_between_edges_the_curve_has_the_variance_of_its_interpolation():
    rng = np.random.default_rng(6)
    edges, D, C = simulated(1.2, 3000, 16, 1500, 2, rng)
    cells = released(D, C, 4.0, rng)
    curve = cells.curve()
    times = np.array([0.0, edges[2], 0.4, 0.81])
    points = curve.at(edges, times, steps=False)
    assert points.hazard[:, 0].max() == 0.0
    assert points.hazard[:, 1] == pytest.approx(curve.hazard[:, 2], rel=1e-12)
    assert points.variance[:, 1] == pytest.approx(curve.variance[:, 2], rel=1e-9)
    assert points.ratio[:, 1] == pytest.approx(curve.ratio[:, 2], rel=1e-9)
    spread = points.hazard[:, 2:].var(axis=0)
    assert spread == pytest.approx(points.variance[:, 2:].mean(axis=0), rel=0.12)
    steps = curve.at(edges, times, steps=True)
    assert steps.hazard[:, 2] == pytest.approx(curve.hazard[:, 5], rel=1e-12)


def test_differences_of_curves_have_their_variance_and_coverage():
    rng = np.random.default_rng(7)
    edges, D, C = simulated(1.2, 1500, 16, 1500, 2, rng)
    cells = released(D, C, 6.0, rng)
    at = 0.42
    difference, sd, low, high = survival_difference(cells, (0, 1), edges, at, 1.96)
    first, second = (cells.curve(group).at(edges, np.array([at]), steps=False) for group in (0, 1))
    assert difference == pytest.approx(np.exp(-second.hazard[:, 0]) - np.exp(-first.hazard[:, 0]), abs=1e-12)
    assert difference.std() == pytest.approx(sd.mean(), rel=0.08)
    assert 0.93 < ((low <= 0.0) & (high >= 0.0)).mean() < 0.975
    assert ((low < difference) & (difference < high)).all()


def test_the_noise_of_two_curves_is_joined_by_the_known_total():
    rng = np.random.default_rng(8)
    edges, D, C = simulated(1.2, 400, 8, 1, 2, rng)
    draws = 4000
    cells = released(np.repeat(D, draws, axis=0), np.repeat(C, draws, axis=0), 2.0, rng)
    curves = [cells.curve(group) for group in (0, 1)]
    row = time_weights(edges, edges[[3]], steps=False).matrix[0]
    stated = float(np.median(_noise_covariance(cells, (0, 1), curves, row)))
    measured = float(np.cov(curves[0].hazard[:, 3], curves[1].hazard[:, 3])[0, 1])
    sds = [float(np.sqrt(np.median(curve.noise_variance[:, 3]))) for curve in curves]
    assert abs(measured - stated) < 4.0 * sds[0] * sds[1] / math.sqrt(draws)
    own = [float(curve.hazard[:, 3].std()) for curve in curves]
    assert own == pytest.approx(sds, rel=0.05)


def test_a_pair_of_all_groups_is_all_groups(heaped):
    time, status, group, edges = heaped
    two = group < 2
    rng = np.random.default_rng(0)
    cells = released(*cells_of(time[two], status[two], group[two], 2, edges), 3.0, rng, full_grid=True)
    pair = cells.pair(0, 1)
    assert float(log_rank(pair).statistic) == pytest.approx(float(log_rank(cells).statistic), rel=1e-12)
    assert log_hazard_ratio(pair, 1.96) == pytest.approx(log_hazard_ratio(cells, 1.96), rel=1e-9)


def test_pairs_of_three_groups_have_their_size():
    rng = np.random.default_rng(9)
    _, D, C = simulated(1.2, 1000, 16, 1000, 3, rng)
    cells = released(D, C, 8.0, rng)
    for pair in ((0, 1), (1, 2)):
        score = log_rank(cells.pair(*pair))
        assert 0.03 < (score.statistic > chi2.isf(0.05, 1)).mean() < 0.075
    without = released(D[0], C[0], 0.0, rng).pair(0, 2)
    assert without.total == D[0][[0, 2]].sum() + C[0][[0, 2]].sum()
