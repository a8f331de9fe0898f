"""Estimates, display and intervals of noisy tables: dense algebra, exact distributions, joint coverage."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import norm

from privinf.inference.counts import (
    count_intervals,
    estimate_table,
    joint_level,
    laplace_share_intervals,
    laplace_sum_quantile,
    laplace_sum_tail,
    noise_half,
    on_simplex,
    with_margins,
)
from privinf.stats.groups import score_interval

RNG = np.random.default_rng(3)
CELLS = RNG.multinomial(500, np.full(20, 0.05)).reshape(4, 5)
HOLES = np.ones((4, 5), dtype=bool)
HOLES[1, 2] = HOLES[3, 0] = False


def dense(X, R, K, sds, n, possible):
    """Return cells, margins and their sds by the matrices themselves."""
    r, c = X.shape
    at = np.flatnonzero(possible.ravel())
    A = np.array(
        [[float(i // c == a) for i in at] for a in range(r)]
        + [[float(i % c == b) for i in at] for b in range(c)]
    )
    W = np.diag([1 / sds[1] ** 2] * r + [1 / sds[2] ** 2] * c)
    V = np.linalg.inv(np.eye(len(at)) / sds[0] ** 2 + A.T @ W @ A)
    x = V @ (X.ravel()[at] / sds[0] ** 2 + A.T @ W @ np.concatenate([R, K]))
    u = V.sum(axis=1)
    x -= u * (x.sum() - n) / u.sum()
    V -= np.outer(u, u) / u.sum()
    return x, A @ x, np.sqrt(np.diag(V)), np.sqrt(np.diag(A @ V @ A.T))


@pytest.mark.parametrize("possible", [HOLES, np.ones((4, 5), dtype=bool)])
def test_estimates_are_least_squares(possible):
    sds = (3.0, 5.0, 6.0)
    X = CELLS + 3.0 * RNG.standard_normal((4, 5))
    R, K = CELLS.sum(1) + 5.0 * RNG.standard_normal(4), CELLS.sum(0) + 6.0 * RNG.standard_normal(5)
    found = estimate_table(X, 500, 3.0, rows=R, columns=K, margin_sds=sds[1:], possible=possible)
    cells, margins, cell_sds, margin_sds = dense(X, R, K, sds, 500, possible)
    assert found.cells[possible] == pytest.approx(cells, rel=1e-10)
    assert found.cell_sds[possible] == pytest.approx(cell_sds, rel=1e-10)
    assert np.concatenate([found.rows, found.columns]) == pytest.approx(margins, rel=1e-10)
    assert np.concatenate([found.row_sds, found.column_sds]) == pytest.approx(margin_sds, rel=1e-10)
    assert (found.cells[~possible] == 0.0).all()


def test_variances_are_those_of_the_analysis_of_variance():
    r, c, (wc, wr, wk) = 4, 5, (1 / 9, 1 / 25, 1 / 36)
    found = estimate_table(
        CELLS * 1.0, 500, 3.0, rows=CELLS.sum(1), columns=CELLS.sum(0), margin_sds=(5.0, 6.0)
    )
    assert found.row_sds**2 == pytest.approx(c * (r - 1) / r / (wc + c * wr))
    cell = ((r - 1) / (wc + c * wr) + (c - 1) / (wc + r * wk) + (r - 1) * (c - 1) / wc) / (r * c)
    assert found.cell_sds**2 == pytest.approx(np.full((4, 5), cell))


def test_cells_alone_are_conditioned_on_the_total():
    X = CELLS + 3.0 * RNG.standard_normal((4, 5))
    found = estimate_table(X, 500, 3.0)
    assert found.cells.sum() == pytest.approx(500.0)
    assert found.cell_sds == pytest.approx(np.full((4, 5), 3.0 * math.sqrt(0.95)))
    assert found.row_sds == pytest.approx(np.full(4, 3.0 * math.sqrt(5 * 0.75)))
    exact = estimate_table(CELLS * 1.0, 500, 0.0)
    assert (exact.cells == CELLS).all()
    assert not exact.row_sds.any()


def test_the_shown_table_is_the_nearest_possible_one():
    X = np.array([[3.0, -4.0, 10.0], [-1.0, 2.0, 20.0]])
    rows, columns = on_simplex(X.sum(1), 40.0), on_simplex(X.sum(0), 40.0)
    shown = with_margins(X, rows, columns)
    assert shown.sum(1) == pytest.approx(rows, abs=1e-7)
    assert shown.sum(0) == pytest.approx(columns, abs=1e-7)
    assert shown.min() >= 0.0
    equal = [{"type": "eq", "fun": lambda x, i=i: x.reshape(2, 3).sum(1)[i] - rows[i]} for i in range(2)]
    equal += [{"type": "eq", "fun": lambda x, j=j: x.reshape(2, 3).sum(0)[j] - columns[j]} for j in range(2)]
    nearest = minimize(
        lambda x: ((x - X.ravel()) ** 2).sum(), shown.ravel(), bounds=[(0, None)] * 6, constraints=equal
    )
    assert shown.ravel() == pytest.approx(nearest.x, abs=1e-4)
    assert on_simplex(np.array([5.0, -3.0, 1.0]), 3.0) == pytest.approx([3.0, 0.0, 0.0])


@pytest.mark.parametrize(("shape", "n"), [((50, 20), 20_000), ((16, 16), 1500), ((3, 4), 60)])
def test_displayed_margins_are_their_own_projection(shape, n):
    rng = np.random.default_rng(shape[0])
    cells = rng.multinomial(n, rng.dirichlet(np.full(math.prod(shape), 0.3))).reshape(shape)
    X = cells + 8.0 * rng.standard_normal(shape)
    estimate = estimate_table(
        X,
        n,
        8.0,
        rows=cells.sum(1) + 13.0 * rng.standard_normal(shape[0]),
        columns=cells.sum(0) + 13.0 * rng.standard_normal(shape[1]),
        margin_sds=(13.0, 13.0),
    )
    rows, columns = on_simplex(estimate.rows, n), on_simplex(estimate.columns, n)
    shown = with_margins(estimate.cells, rows, columns)
    assert shown.min() >= 0.0
    assert np.abs(shown.sum(1) - rows).max() < 1e-8 * n
    assert np.abs(shown.sum(0) - columns).max() < 1e-8 * n
    assert np.sqrt(((shown - cells) ** 2).mean()) < np.sqrt(((estimate.cells - cells) ** 2).mean())


@pytest.mark.parametrize("terms", [1, 2, 7])
def test_tails_of_sums_of_laplace_numbers(terms):
    c = laplace_sum_quantile(0.95, terms)
    assert 2.0 * float(laplace_sum_tail(np.array(c), terms)) == pytest.approx(0.05, abs=1e-10)
    sums = RNG.laplace(size=(200_000, terms)).sum(axis=1)
    assert np.mean(np.abs(sums) <= c) == pytest.approx(0.95, abs=0.002)
    assert laplace_sum_tail(np.array([-1.0, 0.0]), terms) == pytest.approx(
        [np.mean(sums > -1.0), 0.5], abs=0.005
    )


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("count", [0, 1, 5, 50, 5000])
def test_intervals_of_counts_cover_every_count_exactly(count, epsilon):
    """The probability of noise that the interval allows for, by the noise's distribution function."""
    scale = 2.0 / epsilon
    half = float(noise_half(np.array(math.sqrt(2.0) * scale), 0.95, 1))
    sd = math.sqrt(2.0) * 5.0 / epsilon
    normal = float(noise_half(np.array(sd), 0.95))
    for c, tail in (
        (half, lambda x: laplace_sum_tail(x / scale, 1)),
        (normal, lambda x: norm.sf(x, scale=sd)),
    ):
        noise = np.linspace(-8.0 * c, 8.0 * c, 160_001)
        low, high = count_intervals(count + noise, np.full(noise.shape, c), 10**6)
        covered = (low <= count) & (count <= high)
        mass = -np.diff(tail(noise))
        assert mass @ covered[1:] >= 0.95 - 1e-4
        at = 1.0 - 2.0 * float(tail(np.array(c)))  # noise within c covers
        assert at >= 0.95
        assert covered[np.abs(noise) <= c].all()
        if count == 0:
            assert covered[noise < 0.0].all()


def test_an_empty_interval_is_the_nearest_count():
    low, high = count_intervals(np.array([-9.0, 0.4, 7.5, 99.0]), np.array([2.0, 0.1, 0.2, 3.0]), 90)
    assert low.tolist() == [0.0, 0.0, 8.0, 90.0]
    assert high.tolist() == [0.0, 0.0, 8.0, 90.0]


@pytest.mark.parametrize("laplace", [False, True])
@pytest.mark.parametrize("cells", [10, 100])
def test_joint_intervals_cover_all_counts_together(cells, laplace):
    draws = 20_000 // cells * 4
    noise = RNG.laplace(size=(draws, cells)) if laplace else RNG.standard_normal((draws, cells))
    sd = math.sqrt(2.0) if laplace else 1.0
    half = noise_half(np.array(sd), joint_level(0.95, cells), 1 if laplace else None)
    if not laplace:
        noise -= noise.mean(axis=1, keepdims=True)  # conditioned on the total
        half = half * math.sqrt(1.0 - 1.0 / cells)
    covered = (np.abs(noise) <= half).all(axis=1).mean()
    assert covered >= 0.95 - 3.3 * math.sqrt(0.95 * 0.05 / draws)


@pytest.mark.parametrize("share", [0.0005, 0.02, 0.5])
@pytest.mark.parametrize("terms", [1, 3])
def test_intervals_of_shares_with_laplace_noise_cover(share, terms):
    n, draws = 1000, 3000
    x = RNG.binomial(n, share, draws) + 2.0 * RNG.laplace(size=(draws, terms)).sum(axis=1)
    low, high = laplace_share_intervals(x, n, np.full(draws, math.sqrt(8.0 * terms)), 0.95, terms)
    assert np.mean((low <= share) & (share <= high)) == pytest.approx(0.955, abs=0.022)
    wide = laplace_share_intervals(np.array([40.0]), n, np.array([1e-6]), 0.95, 1)
    assert np.ravel(wide) == pytest.approx(np.ravel(score_interval(np.array([40.0]), n, 0.0, 0.95)), abs=1e-4)
