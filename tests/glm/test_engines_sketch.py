"""The sketch of DOME: Lemmas 3.1 and 3.2 by simulation, learned directions, unbiased probes."""

import numpy as np
import pytest

from privinf.glm.sketch import LearnedSpace, RunningMoments, Sketch, debiased_square
from privinf.mechanisms.statistics.glm import sketch_of


def space_of(d, r, seed=0):
    basis = np.linalg.qr(np.random.default_rng(seed).standard_normal((d, r)))[0]
    return LearnedSpace(basis, np.arange(r, 0, -1.0), 10)


def test_noise_after_projection_costs_k_and_not_d():
    """Lemma 3.1: gradients in a known k-dimensional space, the same noise on every number that is sent."""
    rng = np.random.default_rng(1)
    d, k, sigma, draws = 400, 40, 0.3, 1500
    basis = space_of(d, k).basis
    gradient = basis @ rng.standard_normal(k)
    full = sketched = 0.0
    for _ in range(draws):
        full += ((sigma * rng.standard_normal(d)) ** 2).sum()
        estimate = basis @ (basis.T @ gradient + sigma * rng.standard_normal(k))
        sketched += ((estimate - gradient) ** 2).sum()
    assert full / draws == pytest.approx(sigma**2 * d, rel=0.02)
    assert sketched / draws == pytest.approx(sigma**2 * k, rel=0.02)
    assert sketched / full == pytest.approx(k / d, rel=0.02)


@pytest.mark.parametrize("kind", ["unbiased", "orthonormal"])
def test_the_second_moment_without_the_noise(kind):
    """Lemma 3.2, summed over coordinates; leaving the correction out is seen."""
    rng = np.random.default_rng(2)
    sketch = Sketch.of(space_of(60, 4), 12, 7, kind)
    z, sd, draws = rng.standard_normal(12), 0.8, 6000
    noisy = (z + sd * rng.standard_normal((draws, 12))) @ sketch.matrix.T
    truth = ((sketch.matrix @ z) ** 2).sum()
    found = debiased_square(noisy, sd**2 * sketch.noise_diagonal).sum(axis=1).mean()
    assert found == pytest.approx(truth, rel=0.02)
    assert (noisy**2).sum(axis=1).mean() > 1.2 * truth
    # entry by entry too
    each = debiased_square(noisy, sd**2 * sketch.noise_diagonal).mean(axis=0)
    spread = (noisy**2).std(axis=0) / np.sqrt(draws)
    assert (np.abs(each - (sketch.matrix @ z) ** 2) < 4.5 * spread).all()


def test_adams_second_moment_is_that_of_the_gradient():
    rng = np.random.default_rng(3)
    gradient, sd = np.array([0.5, 0.0, -1.0]), 2.0
    moments = RunningMoments.start(3)
    for _ in range(20_000):
        moments.update(gradient + sd * rng.standard_normal(3), np.full(3, sd**2))
    assert np.abs(moments.second - gradient**2).max() < 1.0
    assert moments.direction[0] > 0.0
    assert (moments.unit**2 >= 0.09 * sd**2).all()
    np.testing.assert_array_equal(RunningMoments.start(2).unit, 1.0)


def test_history_pca_is_the_eigenbasis_of_the_past():
    rng = np.random.default_rng(4)
    past = rng.standard_normal((30, 4)) * [4.0, 2.0, 1.0, 0.5] @ rng.standard_normal((4, 50))
    space = LearnedSpace.empty(50)
    for direction in past:
        space = space.track(direction, most=6, energy=1.0 - 1e-12)
    values, vectors = np.linalg.eigh(past.T @ past / 30)
    assert space.basis.shape == (50, 4)
    np.testing.assert_allclose(space.values, values[:-5:-1], rtol=1e-8)
    np.testing.assert_allclose(np.abs(space.basis.T @ vectors[:, :-5:-1]), np.eye(4), atol=1e-7)
    fewer = LearnedSpace.empty(50)
    for direction in past:
        fewer = fewer.track(direction, most=6, energy=0.7)
    assert fewer.basis.shape[1] < 4
    assert space.track(np.zeros(50), most=2, energy=0.9).basis.shape[1] <= 4
    assert LearnedSpace.empty(5).track(np.zeros(5), most=2, energy=0.9).basis.shape == (5, 0)


def test_another_preconditioner_carries_the_space_over():
    space, ratio = space_of(20, 3), np.linspace(0.5, 3.0, 20)
    found = space.rescaled(ratio).basis
    np.testing.assert_allclose(found.T @ found, np.eye(3), atol=1e-12)
    moved = ratio[:, None] * space.basis
    np.testing.assert_allclose(found @ (found.T @ moved), moved, atol=1e-12)
    assert LearnedSpace.empty(20).rescaled(ratio).basis.shape == (20, 0)


@pytest.mark.parametrize("learned", [0, 3])
def test_scaled_probes_make_the_estimate_unbiased(learned):
    d, k, draws = 40, 10, 3000
    space = space_of(d, learned) if learned else LearnedSpace.empty(d)
    h = np.random.default_rng(5).standard_normal(d)
    mean = {}
    for kind in ("unbiased", "orthonormal"):
        total = np.zeros(d)
        for seed in range(draws):
            sketch = Sketch.of(space, k, seed, kind).matrix
            total += sketch @ (sketch.T @ h)
        mean[kind] = total / draws
    assert np.linalg.norm(mean["unbiased"] - h) < 0.05 * np.linalg.norm(h)
    assert np.linalg.norm(mean["orthonormal"] - h) > 0.5 * np.linalg.norm(h)


@pytest.mark.parametrize("kind", ["unbiased", "orthonormal"])
@pytest.mark.parametrize("learned", [0, 5])
def test_sites_make_the_same_sketch_from_what_they_are_told(learned, kind):
    space = space_of(200, learned) if learned else LearnedSpace.empty(200)
    sketch = Sketch.of(space, 20, 11, kind)
    np.testing.assert_allclose(sketch_of(sketch.arguments, 200), sketch.matrix, atol=1e-12)
    assert sum(np.size(value) for value in sketch.arguments.values()) <= 200 * learned + 3
