"""Simulated proportional-hazards fits: without noise Cox's regression, sensitivities, coverage."""

from __future__ import annotations

import math

import numpy as np
import pytest
from statsmodels.duration.hazard_regression import PHReg

from privinf.glm.hazards.baseline import (
    Baseline,
    baseline_hazard,
    blocks_of,
    clear_halves,
    marginal_hazard,
    share_followed,
)
from privinf.inference.survival import CellEstimate, CellNoise
from privinf.mechanisms.statistics.summands import root_matrix
from privinf.mechanisms.statistics.survival import suffix_root
from studies.hazards.cox import cox
from studies.hazards.records import (
    Hazard,
    Records,
    follow,
    hessian_sensitivity,
    meat_sensitivity,
    score_sensitivity,
)
from studies.hazards.simulated import SimulatedSums, cells_of, simulated_fit

SLOPES = np.array([0.45, 1.2, -0.9])


def sample(n, seed, shape=1.0, scale=0.62, slopes=SLOPES):
    rng = np.random.default_rng(seed)
    normal = np.clip(0.35 * rng.standard_normal((n, 2)), -1.0, 1.0)
    x = np.column_stack([2.0 * (rng.random(n) < 0.21) - 1.0, normal])
    failure = (rng.exponential(size=n) / (scale * np.exp(x @ slopes))) ** (1.0 / shape)
    end = np.minimum(rng.uniform(0.3, 1.6, n), 1.0)
    return Records(x=x, time=np.minimum(failure, end), event=failure <= end)


def grid(count):
    return np.linspace(0.0, 1.0, count + 1)[1:]


# ---- without noise


@pytest.mark.parametrize(("count", "shape"), [(8, 1.0), (16, 1.0), (16, 2.5), (64, 0.5)])
def test_without_noise_it_is_coxs_regression(count, shape):
    records = sample(4_000, 0, shape)
    fit = simulated_fit(records, grid(count), math.inf, np.random.default_rng(0))
    reference = PHReg(records.time, records.x, status=records.event.astype(int), ties="breslow").fit()
    assert (np.abs(fit.params - reference.params) < 0.1 * reference.bse).all()


def test_cox_has_the_coefficients_and_robust_errors_of_statsmodels():
    records = sample(600, 1)
    coarse = Records(x=records.x, time=np.ceil(records.time * 20.0) / 20.0, event=records.event)  # with ties
    beta = cox(coarse)[0]
    model = PHReg(coarse.time, coarse.x, status=coarse.event.astype(int), ties="breslow")
    np.testing.assert_allclose(beta, model.fit().params, atol=1e-8)
    clustered = PHReg(records.time, records.x, status=records.event.astype(int), ties="breslow").fit(
        groups=np.arange(600)
    )
    np.testing.assert_allclose(cox(records)[1], clustered.bse, rtol=1e-6)


def test_scores_are_differences_that_the_secant_explains():
    rng = np.random.default_rng(2)
    records = sample(500, 2)
    hazard = Hazard(edges=grid(8), increments=rng.uniform(0.02, 0.2, 8), block=np.repeat([0, 1], 4))
    theta = rng.normal(0.0, 0.3, 5)
    transform = rng.normal(size=(5, 5))
    at = follow(records, hazard, theta, transform, math.inf)
    for size in (1e-9, 0.1, 1.0):
        step = size * rng.normal(size=5)
        factors = at.hessians(math.inf, math.inf, step)
        then = follow(records, hazard, theta + transform.T @ step, transform, math.inf)
        change = then.scores(math.inf).sum(axis=0) - at.scores(math.inf).sum(axis=0)
        np.testing.assert_allclose(change, -factors.T @ factors @ step, rtol=1e-6, atol=1e-9 * size * 500)
    plain = at.hessians(math.inf, math.inf)
    tangent = at.hessians(math.inf, math.inf, np.zeros(5))
    np.testing.assert_allclose(plain, tangent)


@pytest.mark.parametrize("stop", [0.3, 1.0, math.inf])
def test_scores_have_mean_zero_at_the_right_coefficients_whatever_stop_and_weights(stop):
    n = 200_000
    records = sample(n, 3)
    hazard = Hazard(edges=grid(16), increments=np.full(16, 0.62 / 16), block=np.repeat([0, 1], 8))
    theta = np.concatenate([np.zeros(2), SLOPES])
    at = follow(records, hazard, theta, np.eye(5), stop)
    bound = float(np.quantile(at.size, 0.5))
    scores = at.scores(bound)
    assert np.linalg.norm(scores, axis=1).max() <= bound * (1.0 + 1e-12)
    errors = scores.std(axis=0) / math.sqrt(n)
    assert (np.abs(scores.mean(axis=0)) < 4.0 * errors).all()
    assert (np.abs(at.residual.sum(axis=1)) <= max(1.0, stop)).all()


# ---- cells


def test_cells_of_every_record_are_one():
    time = np.array([0.0, 0.1, 0.25, 0.26, 1.0, 1.0, 1.5, 1.5])
    event = np.array([True, False, True, True, True, False, True, False])
    D, C = cells_of(time, event, grid(4))
    np.testing.assert_array_equal(D, [2.0, 1.0, 0.0, 1.0])
    np.testing.assert_array_equal(C, [1.0, 0.0, 0.0, 0.0, 3.0])


def test_baseline_is_recovered_from_the_marginal_hazard():
    rng = np.random.default_rng(5)
    n = 400_000
    eta = 0.3 + 1.2 * rng.standard_normal(n)
    time = rng.exponential(size=n) / (0.8 * np.exp(eta))
    D, C = cells_of(np.minimum(time, 1.0), time <= 1.0, grid(16))
    noise = CellNoise(scale=0.0, root=suffix_root(17), groups=1)
    cells = CellEstimate(D=D[None], C=C[None], noise=noise)
    baseline = baseline_hazard(marginal_hazard(cells), 0.3, 1.2)
    assert np.cumsum(baseline)[[3, 7, 15]] == pytest.approx(0.8 * np.array([0.25, 0.5, 1.0]), rel=0.03)
    end = np.searchsorted(np.cumsum(np.full(16, 0.05)), 1.5 * np.exp(-eta), side="right") / 16.0
    followed = (time <= np.minimum(end, 1.0)).sum() / (time <= 1.0).sum()
    shares = share_followed(D, np.full(16, 0.05), 0.3, 1.2, np.array([1.5, math.inf]))
    assert shares == pytest.approx([followed, 1.0], abs=0.02)


def test_blocks_have_about_equal_numbers_of_events():
    np.testing.assert_array_equal(blocks_of(np.array([8.0, 1, 1, 2, 2, 2]), 2), [0, 1, 1, 1, 1, 1])
    np.testing.assert_array_equal(blocks_of(np.ones(8), 4), np.repeat(np.arange(4), 2))


# ---- sensitivities


def any_place(rng):
    """Return any public hazard, theta, W and stop."""
    q, count, d = int(rng.integers(1, 4)), int(rng.integers(4, 9)), int(rng.integers(1, 4))
    block = np.sort(np.concatenate([np.arange(q), rng.integers(0, q, count - q)]))
    hazard = Hazard(
        edges=np.cumsum(rng.uniform(0.05, 1.0, count)), increments=rng.exponential(0.5, count), block=block
    )
    theta = rng.normal(0.0, 1.0, q + d)
    transform = rng.normal(size=(q + d, q + d)) * np.exp(rng.normal(0.0, 1.0, q + d))[:, None]
    return hazard, theta, transform, float(rng.choice([0.7, 1.0, 2.0, 8.0, math.inf]))


def any_records(rng, hazard, d, count=60):
    """Return any records, with ends of their bounds and of the grid among them."""
    x = np.clip(rng.normal(0.0, 1.5, (count, d)), -1.0, 1.0)
    time = rng.choice([0.0, *hazard.edges, *rng.uniform(0.0, 1.2 * hazard.edges[-1], 20)], count)
    return Records(x=x, time=time, event=rng.random(count) < 0.5)


def test_no_swap_passes_a_sensitivity():
    rng = np.random.default_rng(6)
    closest = np.zeros(3)
    for _ in range(60):
        hazard, theta, transform, stop = any_place(rng)
        at = follow(any_records(rng, hazard, len(theta) - hazard.blocks), hazard, theta, transform, stop)
        bound = float(rng.choice(at.size[at.size > 0.0], 1)[0]) if (at.size > 0.0).any() else 1.0
        trace = float(np.quantile(at.traces(bound), rng.random())) + 1e-6
        scores = at.scores(bound)
        apart = np.linalg.norm(scores[:, None] - scores, axis=2).max()
        meats = np.einsum("ni,nj->nij", scores, scores).reshape(len(scores), -1)
        step = rng.normal(size=len(theta)) if rng.random() < 0.5 else None
        factors = at.hessians(bound, trace, step).reshape(len(scores), hazard.blocks, -1)
        matrices = np.einsum("nbi,nbj->nij", factors, factors).reshape(len(scores), -1)
        ratios = np.array(
            [
                apart / score_sensitivity(bound),
                np.linalg.norm(meats[:, None] - meats, axis=2).max() / meat_sensitivity(bound),
                np.linalg.norm(matrices[:, None] - matrices, axis=2).max() / hessian_sensitivity(trace),
            ]
        )
        assert (ratios <= 1.0 + 1e-9).all()
        closest = np.maximum(closest, ratios)
    assert (closest > 0.8).all()


def test_swaps_attain_every_sensitivity():
    """Hazard 1 until the stop at c = 1: an event at once has the residual 1, no event until then -1."""
    hazard = Hazard(edges=np.array([0.5, 1.0]), increments=np.array([0.5, 0.5]), block=np.array([0, 0]))
    x = np.array([[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0]])
    records = Records(x=x, time=np.array([0.0, 1.0, 1.0]), event=np.array([True, False, False]))
    at = follow(records, hazard, np.zeros(3), np.eye(3), 1.0)
    bound = math.sqrt(2.0)  # |(1, x)|
    scores = at.scores(bound)
    assert np.linalg.norm(scores[0] - scores[1]) == pytest.approx(score_sensitivity(bound), rel=1e-12)
    meats = np.einsum("ni,nj->nij", scores, scores)
    assert np.linalg.norm(meats[0] - meats[2]) == pytest.approx(meat_sensitivity(bound), rel=1e-12)
    factors = at.hessians(bound, 1.0)
    matrices = np.einsum("ni,nj->nij", factors, factors)
    assert np.linalg.norm(matrices[1] - matrices[2]) == pytest.approx(hessian_sensitivity(1.0), rel=1e-12)


# ---- fits


@pytest.mark.parametrize("mu", [0.3, 1.0])
def test_a_fit_spends_its_budget(mu):
    fit = simulated_fit(sample(5_000, 7), grid(16), mu, np.random.default_rng(0))
    assert fit.spent == pytest.approx(1.0)


def test_merged_intervals_have_one_hazard_and_floors():
    """With noise of this size only halves of the grid have clear counts; empty ones have few events."""
    noise = CellNoise(scale=3.0, root=suffix_root(9), groups=1)
    D = np.array([4.0, 6.0, 5.0, 5.0, 0.0, 0.0, 0.0, 0.0])
    C = np.append(np.zeros(8), 980.0)
    hazard = marginal_hazard(CellEstimate(D=D[None], C=C[None], noise=noise))
    assert len(np.unique(hazard)) < 8
    assert (hazard > 0.0).all()
    exact = CellEstimate(D=D[None], C=C[None], noise=CellNoise(scale=0.0, root=suffix_root(9), groups=1))
    np.testing.assert_allclose(marginal_hazard(exact)[:2], [4.0 / 998.0, 6.0 / 993.0])


def test_where_most_events_come_early_halves_are_merged_by_themselves():
    """With equal parts the late intervals have hazards of noise, cut at 0: their sum is too large."""
    count = 64
    D = np.concatenate([np.full(8, 250.0), np.full(56, 4.0)])
    C = np.append(np.full(count, 20.0), 8_000.0)
    n = int(D.sum() + C.sum())
    root = suffix_root(count + 1)
    truth = marginal_hazard(
        CellEstimate(D=D[None], C=C[None], noise=CellNoise(scale=0.0, root=root, groups=1))
    ).cumsum()
    edges = np.arange(1, count + 1) / count
    rng = np.random.default_rng(0)
    errors = {True: [], False: []}
    for _ in range(20):
        noise = CellNoise(scale=8.0, root=root, groups=1)
        sums = np.concatenate([root_matrix(len(part)) @ part for part in (D, C)])
        released = sums + 8.0 * rng.standard_normal(len(sums))
        cells = CellEstimate.from_release(released, noise, n)
        parts = sorted((part.start, part.stop) for part in clear_halves(cells))
        assert [start for start, _ in parts[1:]] == [stop for _, stop in parts[:-1]]
        assert parts[:8] == [(k, k + 1) for k in range(8)]
        assert len(parts) < 20
        for is_steep, found in errors.items():
            found.append(marginal_hazard(cells, is_steep=is_steep).sum() - truth[-1])
        assert Baseline.from_cells(cells, n, edges, 2).marginal.sum() - truth[-1] == errors[True][-1]
    assert abs(np.mean(errors[True])) < 0.3 * np.mean(errors[False])


def test_noise_of_counts_of_cells_is_that_of_their_release():
    sums = SimulatedSums(records=sample(2_000, 8), edges=grid(4), mu=0.5, rng=np.random.default_rng(0))
    events = [sums.cells(1.0).D[0] for _ in range(2_000)]
    exact = cells_of(sums.records.time, sums.records.event, sums.edges)[0]
    assert np.abs(np.mean(events, axis=0) - exact).max() < 1.0


@pytest.mark.audit
@pytest.mark.parametrize(("n", "mu"), [(5_000, 0.237), (5_000, 0.838)])
def test_intervals_cover(n, mu):
    covered = []
    for seed in range(150):
        fit = simulated_fit(sample(n, seed), grid(16), mu, np.random.default_rng(seed))
        low, high = fit.intervals()
        covered.append((low <= SLOPES) & (high >= SLOPES))
    assert (np.mean(covered, axis=0) >= 0.89).all()
