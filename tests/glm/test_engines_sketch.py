"""The sketch of DOME: Lemmas 3.1 and 3.2 by simulation, learned directions, unbiased probes."""

from dataclasses import replace

import numpy as np
import pytest

from privinf.glm.dome import optimizers, rounds
from privinf.glm.dome.optimizers import DOME, dome_variant
from privinf.glm.dome.rounds import optimise
from privinf.glm.dome.sketch import BETA2, LearnedSpace, RunningMoments, Sketch, debiased_square
from privinf.mechanisms.statistics.glm import sketch_of
from studies.paper.dome import qr_update


def space_of(d, r, seed=0):
    basis = np.linalg.qr(np.random.default_rng(seed).standard_normal((d, r)))[0]
    return LearnedSpace(basis, np.arange(r, 0, -1.0), 10)


def test_noise_after_projection_costs_k_and_not_d():
    """Lemma 3.1: gradients in a known k-dimensional space, no longer after projection than before it."""
    rng = np.random.default_rng(1)
    d, k, sigma, draws = 400, 40, 0.3, 1500
    sketch = Sketch.from_space(space_of(d, k), k, 0, "orthonormal")
    gradient = sketch.matrix @ rng.standard_normal(k)
    sent = sketch.matrix.T @ gradient
    assert np.linalg.norm(sent) == pytest.approx(np.linalg.norm(gradient))  # the same clip, the same noise
    estimates = (sent + sigma * rng.standard_normal((draws, k))) @ sketch.matrix.T
    error = ((estimates - gradient) ** 2).sum(axis=1).mean()
    assert sketch.noise_diagonal.sum() == pytest.approx(k)
    assert error == pytest.approx(sigma**2 * sketch.noise_diagonal.sum(), rel=0.02)
    assert error < 0.11 * ((sigma * rng.standard_normal((draws, d))) ** 2).sum(axis=1).mean()


def test_outside_the_space_a_projection_costs_what_it_misses():
    """Where Lemma 3.1's assumption fails: the error is the part missed and s^2 k, and may exceed s^2 d."""
    rng = np.random.default_rng(1)
    sketch, sigma = Sketch.from_space(space_of(200, 5), 20, 3, "orthonormal"), 0.05
    gradient = rng.standard_normal(200)
    missed = gradient - sketch.matrix @ (sketch.matrix.T @ gradient)
    noisy = sketch.matrix.T @ gradient + sigma * rng.standard_normal((2000, 20))
    error = ((noisy @ sketch.matrix.T - gradient) ** 2).sum(axis=1).mean()
    assert error == pytest.approx(missed @ missed + sigma**2 * 20, rel=0.01)
    assert error > 100.0 * sigma**2 * 200


@pytest.mark.parametrize("kind", ["unbiased", "orthonormal"])
def test_the_second_moment_without_the_noise(kind):
    """Lemma 3.2, summed over coordinates; leaving the correction out is seen."""
    rng = np.random.default_rng(2)
    sketch = Sketch.from_space(space_of(60, 4), 12, 7, kind)
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
        space = space.track(direction, limit=6, energy=1.0 - 1e-12)
    values, vectors = np.linalg.eigh(past.T @ past / 30)
    assert space.basis.shape == (50, 4)
    np.testing.assert_allclose(space.values, values[:-5:-1], rtol=1e-8)
    np.testing.assert_allclose(np.abs(space.basis.T @ vectors[:, :-5:-1]), np.eye(4), atol=1e-7)
    fewer = LearnedSpace.empty(50)
    for direction in past:
        fewer = fewer.track(direction, limit=6, energy=0.7)
    assert fewer.basis.shape[1] < 4
    assert space.track(np.zeros(50), limit=2, energy=0.9).basis.shape[1] <= 4
    assert LearnedSpace.empty(5).track(np.zeros(5), limit=2, energy=0.9).basis.shape == (5, 0)


def test_the_paper_s_update_is_one_qr_step_of_the_same_matrix():
    """Equal in span to the exact update, with leading directions near the exact ones."""
    rng = np.random.default_rng(5)
    vector = rng.standard_normal(30)
    first = qr_update(LearnedSpace.empty(30), vector, 4, 1.0)
    exact = LearnedSpace.empty(30).track(vector, limit=4, energy=1.0)
    np.testing.assert_allclose(first.values, exact.values)
    np.testing.assert_allclose(np.abs(first.basis.T @ exact.basis), 1.0)
    past = (
        rng.standard_normal((200, 4)) * [8.0, 4.0, 2.0, 1.0] @ np.linalg.qr(rng.standard_normal((30, 4)))[0].T
    )
    space = exact = LearnedSpace.empty(30)
    for direction in past:
        space = qr_update(space, direction, 6, 1.0 - 1e-12)
        exact = exact.track(direction, limit=6, energy=1.0 - 1e-12)
    assert space.basis.shape == exact.basis.shape == (30, 4)
    np.testing.assert_allclose(space.basis.T @ space.basis, np.eye(4), atol=1e-10)
    np.testing.assert_allclose(space.basis @ (space.basis.T @ exact.basis), exact.basis, atol=1e-7)
    assert abs(space.basis[:, 0] @ exact.basis[:, 0]) > 0.95
    assert space.values[0] == pytest.approx(exact.values[0], rel=0.1)
    assert space.count == 200
    still = qr_update(space, space.basis[:, 1], 6, 1.0)
    assert still.basis.shape[1] == 4  # nothing is left of a vector that is in the space
    assert qr_update(LearnedSpace.empty(5), np.zeros(5), 2, 0.9).basis.shape == (5, 0)
    assert qr_update(space, past[0], 2, 1.0).basis.shape == (30, 2)


def test_another_preconditioner_carries_the_space_over():
    space, ratio = space_of(20, 3), np.linspace(0.5, 3.0, 20)
    found = space.rescaled(ratio).basis
    np.testing.assert_allclose(found.T @ found, np.eye(3), atol=1e-12)
    moved = ratio[:, None] * space.basis
    np.testing.assert_allclose(found @ (found.T @ moved), moved, atol=1e-12)
    assert LearnedSpace.empty(20).rescaled(ratio).basis.shape == (20, 0)


class ToldSums:
    """A site that answers with given gradients, as sketched as it is told to; and what it was told."""

    def __init__(self, gradients, sd=0.0, rng=None):
        self.gradients, self.sd, self.rng, self.told = gradients, sd, rng, []

    def parts(self, batches):
        return 1

    def batch(self, theta, price, *, clip, batches, batch, seed, unit=1.0, moment=0.0, **sketch):
        gradient = self.gradients[len(self.told) % len(self.gradients)]
        self.told.append({"unit": unit, "moment": moment, "basis": sketch.get("basis")})
        S = sketch_of(sketch, len(gradient))
        noise = self.sd * self.rng.standard_normal(S.shape[1]) if self.sd else 0.0
        return S.T @ ((gradient - moment) / unit) + noise, self.sd


FEW = {"k": 12, "most_learned": 6, "energy": 1.0 - 1e-13, "epochs": 1, "batches": 4}


@pytest.mark.parametrize("centre", [False, True])
@pytest.mark.parametrize("precondition", [False, True])
@pytest.mark.parametrize("variant", ["repaired", "paper"])
def test_the_learned_directions_hold_what_is_sketched(variant, centre, precondition):
    """Repaired: the past (g - m)/unit, in today's unit. As restored: the past g, which then miss them."""
    gradients = np.random.default_rng(6).standard_normal((4, 12)) * np.geomspace(1.0, 0.1, 12)
    sums = ToldSums(gradients)
    options = DOME(**FEW, variant=variant, centre=centre, precondition=precondition)
    optimise(sums, np.zeros(12), 1.0, options, 0)
    last = sums.told[-1]
    sketched = np.array([g - told["moment"] for g, told in zip(gradients, sums.told[:-1], strict=False)])

    def missed(vectors):
        outside = vectors.T - last["basis"] @ (last["basis"].T @ vectors.T)
        return np.linalg.norm(outside, axis=0) / np.linalg.norm(vectors, axis=1)

    if variant == "repaired":
        assert missed(sketched / last["unit"]).max() < 1e-6
    else:
        assert missed(gradients[:3]).max() < 1e-6
    # with neither they are the same; with centring alone, in the same span: m is a mean of past g
    if precondition:
        assert missed(gradients[:3] if variant == "repaired" else sketched / last["unit"]).max() > 0.05


@pytest.mark.parametrize("wrong", ["tracked", "rescaled"])
def test_a_variant_that_tracks_something_else_is_caught(monkeypatch, wrong):
    """Mutants: the gradient itself, or the directions left in the units of rounds that have passed."""
    other = getattr(dome_variant("paper"), wrong)
    mutant = replace(dome_variant("repaired"), **{wrong: other})
    monkeypatch.setitem(optimizers._VARIANTS, "repaired", mutant)
    with pytest.raises(AssertionError):
        test_the_learned_directions_hold_what_is_sketched("repaired", True, True)


def test_the_second_moment_of_a_round_is_that_of_what_the_sketch_shows():
    """Lemma 3.2 as the paper has it, centred and preconditioned: E[m + unit S(z + xi)]^2 less its noise."""
    rng, d, draws = np.random.default_rng(9), 12, 1500
    gradient, unit, moment = rng.standard_normal(d), np.linspace(0.5, 3.0, d), rng.standard_normal(d)
    options = DOME(**FEW | {"k": 8}, variant="paper")
    sums, seen = ToldSums([gradient], 0.7, rng), np.zeros((draws, d))
    for draw in range(draws):
        state = rounds._OptimizerRounds(options, d, 0)
        state.unit, state.moments.first = unit, moment
        state.direction(sums, np.zeros(d), 1.0, 0)
        seen[draw] = state.moments.second / (1.0 - BETA2)
    S = Sketch.from_space(LearnedSpace.empty(d), 8, 1, "orthonormal").matrix
    shown = moment + unit * (S @ (S.T @ ((gradient - moment) / unit)))
    error = seen.std(axis=0) / np.sqrt(draws)
    assert (np.abs(seen.mean(axis=0) - shown**2) < 4.5 * error).all()
    noise = (0.7 * unit) ** 2 * np.einsum("ij,ij->i", S, S)
    assert (noise > 4.5 * error).sum() > d / 2  # without the correction it would be seen


@pytest.mark.audit
@pytest.mark.parametrize("learned", [0, 3])
def test_scaled_probes_make_the_estimate_unbiased(learned):
    d, k, draws = 40, 10, 3000
    space = space_of(d, learned) if learned else LearnedSpace.empty(d)
    h = np.random.default_rng(5).standard_normal(d)
    mean = {}
    for kind in ("unbiased", "orthonormal"):
        total = np.zeros(d)
        for seed in range(draws):
            sketch = Sketch.from_space(space, k, seed, kind).matrix
            total += sketch @ (sketch.T @ h)
        mean[kind] = total / draws
    assert np.linalg.norm(mean["unbiased"] - h) < 0.05 * np.linalg.norm(h)
    assert np.linalg.norm(mean["orthonormal"] - h) > 0.5 * np.linalg.norm(h)


@pytest.mark.parametrize("kind", ["unbiased", "orthonormal"])
@pytest.mark.parametrize("learned", [0, 5])
def test_sites_make_the_same_sketch_from_what_they_are_told(learned, kind):
    space = space_of(200, learned) if learned else LearnedSpace.empty(200)
    sketch = Sketch.from_space(space, 20, 11, kind)
    np.testing.assert_allclose(sketch_of(sketch.arguments, 200), sketch.matrix, atol=1e-12)
    assert sum(np.size(value) for value in sketch.arguments.values()) <= 200 * learned + 3
