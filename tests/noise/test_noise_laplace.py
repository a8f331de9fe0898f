"""Discrete Laplace noise: its law, the exact path, and the sources that offer it."""

import math

import numpy as np
import pytest
from scipy import stats
from support.instrument import RecordingNoise

from privinf.noise import LatticeNoise, SimulationNoise, grid_step, lattice
from privinf.noise.entropy import SYSTEM


def assert_discrete_laplace(x, ratio):
    reach = math.ceil(8 * ratio) + 2
    k = np.arange(-reach, reach + 1)
    p = np.exp(-np.abs(k) / ratio)
    cdf = np.cumsum(p / p.sum())
    edges = np.unique(np.searchsorted(cdf, np.linspace(0.002, 0.998, 50)))
    cells = np.searchsorted(k[edges], x, side="left")
    probability = np.diff(np.concatenate([[0.0], cdf[edges], [1.0]]))
    kept = probability > 0
    counts = np.bincount(cells, minlength=len(probability))
    assert counts[~kept].sum() == 0
    assert stats.chisquare(counts[kept], len(x) * probability[kept]).pvalue > 1e-5


@pytest.mark.parametrize("ratio", [0.3, 1.0, 7.5, 1000.0])
def test_the_law_on_the_integers(ratio):
    assert_discrete_laplace(lattice.laplace_steps(ratio, 60_000), ratio)


@pytest.mark.audit
@pytest.mark.parametrize("ratio", [1.0, 30.0])
def test_exact_decisions_have_the_same_law(ratio, monkeypatch):
    monkeypatch.setattr(lattice, "CLOSE", 1.0)
    decided = []
    exact = lattice._exact_geometric
    monkeypatch.setattr(lattice, "_exact_geometric", lambda *a: decided.append(a) or exact(*a))
    assert_discrete_laplace(lattice.laplace_steps(ratio, 4000), ratio)
    assert len(decided) == 8000


class Fixed:
    def __init__(self, words):
        self.given = words

    def words(self, count):
        return self.given[:count]


@pytest.mark.audit
def test_doubles_and_exact_arithmetic_decide_alike():
    words = np.random.default_rng(0).integers(0, 2**64, 3000, dtype=np.uint64)
    for ratio in (1.0, 12.5, 2.0**20, 2.0**21):
        fast = lattice._geometric(ratio, 3000, Fixed(words))
        exact = [lattice._exact_geometric(int(word), 64, lattice.Fraction(ratio), SYSTEM) for word in words]
        np.testing.assert_array_equal(fast, exact)


@pytest.mark.parametrize("head", [0, 1, 2**64 - 1])
def test_the_ends_of_the_uniform_take_more_bits(head):
    steps = lattice._exact_geometric(head, 64, lattice.Fraction(2.0**20), SYSTEM)
    assert steps == 0 if head == 2**64 - 1 else steps > 43 * 2**20


@pytest.mark.parametrize("source", [SimulationNoise(0), LatticeNoise()], ids=["seeded", "secure"])
def test_sources_have_the_stated_scale(source):
    recording = RecordingNoise(source)
    noise = recording.laplace(3.0, (200, 500))
    assert noise.shape == (200, 500)
    assert recording.calls[0].kind == "laplace"
    assert recording.calls[0].scale == 3.0
    assert stats.kstest(noise.ravel(), stats.laplace(scale=3.0).cdf).pvalue > 1e-5
    if source.secure:
        steps = noise / grid_step(3.0)
        np.testing.assert_array_equal(steps, np.rint(steps))
