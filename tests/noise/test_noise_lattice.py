"""Noise sources: laws, grids, independence, and what a scale costs."""

import math
import pickle
import threading

import numpy as np
import pytest
from scipy import stats

from privinf.errors import ArgumentError, SensitivityError
from privinf.noise import (
    LatticeNoise,
    OpenDPNoise,
    SimulationNoise,
    get_source,
    grid_step,
    solve_scale,
)

LATTICE = LatticeNoise()


@pytest.mark.parametrize("sigma", [0.4, 0.5, 1.0, 1.7, 30.0, 300.0])
def test_lattice_is_the_discrete_gaussian(sigma):
    n = 200_000
    x = LATTICE.gaussian_steps(np.zeros(n, dtype=np.int64), sigma)
    k = np.arange(-math.ceil(9 * sigma) - 2, math.ceil(9 * sigma) + 3)
    p = np.exp(-0.5 * (k / sigma) ** 2)
    expected = n * p / p.sum()
    counts = np.bincount(x - k[0], minlength=len(k))
    # What is rarer than 5 joins the rarest of the common cells.
    common = expected >= 5
    observed, wanted = counts[common], expected[common]
    observed[0] += counts[~common].sum()
    wanted[0] += expected[~common].sum()
    assert stats.chisquare(observed, wanted).pvalue > 1e-5


def test_lattice_at_the_scale_of_releases_is_gaussian():
    x = LATTICE.perturb(np.zeros(400_000), 1.3) / 1.3
    assert stats.kstest(x, "norm").pvalue > 1e-5
    for cut in (2.0, 3.0, 4.0, 4.5):
        tail = int((np.abs(x) > cut).sum())
        p = 2 * stats.norm.sf(cut)
        assert stats.binom.ppf(1e-6, len(x), p) <= tail <= stats.binom.isf(1e-6, len(x), p)


def test_lattice_steps_at_two_to_the_twenty():
    """KS against the exact discrete Gaussian (rounding to integers moves the cdf by 2^-22), tails to 5 sd."""
    n = 1_000_000
    sigma = 2.0**20
    x = LATTICE.gaussian_steps(np.zeros(n, dtype=np.int64), sigma)
    assert stats.kstest((x + 0.5) / sigma, "norm").pvalue > 1e-5
    for cut in (3.0, 4.0, 5.0):
        for tail in (int((x > cut * sigma).sum()), int((x < -cut * sigma).sum())):
            assert stats.binom.ppf(1e-6, n, stats.norm.sf(cut)) <= tail
            assert tail <= stats.binom.isf(1e-6, n, stats.norm.sf(cut))
    # every residue of a block is met: the low bits are uniform
    assert stats.chisquare(np.bincount(x & 63, minlength=64)).pvalue > 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("sigma", [0.5, 1.0, 1.7, 30.0, 300.0, 2.0**20])
def test_lattice_moments_of_many_draws(sigma):
    n = 20_000_000
    x = LATTICE.gaussian_steps(np.zeros(n, dtype=np.int64), sigma).astype(np.float64)
    k = np.arange(-math.ceil(9 * sigma), math.ceil(9 * sigma) + 1) if sigma < 1e4 else None
    if k is None:
        second, fourth = sigma**2, 3 * sigma**4
    else:
        p = np.exp(-0.5 * (k / sigma) ** 2)
        second, fourth = (p @ k**2.0) / p.sum(), (p @ k**4.0) / p.sum()
    assert abs(x.mean()) < 5 * math.sqrt(second / n)
    assert abs((x**2).mean() - second) < 5 * math.sqrt((fourth - second**2) / n)
    assert (x**4).mean() == pytest.approx(fourth, rel=0.01)


@pytest.mark.audit
def test_lattice_agrees_with_opendp():
    pytest.importorskip("opendp")
    ours = LATTICE.gaussian_steps(np.zeros(20_000, dtype=np.int64), 2.0**20)
    theirs = OpenDPNoise().gaussian_steps(np.zeros(20_000, dtype=np.int64), 2.0**20)
    assert stats.ks_2samp(ours, theirs).pvalue > 1e-5
    small = OpenDPNoise().gaussian_steps(np.zeros(20_000, dtype=np.int64), 1.7)
    table = np.array(
        [np.bincount(v + 12, minlength=25)[6:19] for v in (small, LATTICE.gaussian_steps(0 * small, 1.7))]
    )
    assert stats.chi2_contingency(table + 1).pvalue > 1e-5


def test_coordinates_and_calls_are_independent():
    x = LATTICE.perturb(np.zeros((100_000, 3)), 1.0)
    again = LATTICE.perturb(np.zeros((100_000, 3)), 1.0)
    r = np.corrcoef(np.column_stack([x, again, np.roll(x[:, :1], 1, axis=0)]).T)
    assert np.abs(r - np.eye(7)).max() < 5 / math.sqrt(100_000)
    squares = np.corrcoef((x**2).T)
    assert np.abs(squares - np.eye(3)).max() < 5 / math.sqrt(100_000)


def test_forks_threads_and_pickles_never_repeat_a_stream():
    draws = []

    def work(source):
        draws.append(tuple(source.gaussian_steps(np.zeros(8, dtype=np.int64), 2.0**20).tolist()))

    work(pickle.loads(pickle.dumps(LATTICE)))
    threads = [threading.Thread(target=work, args=(LATTICE,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for _ in range(3):
        work(LatticeNoise())
    assert len(set(draws)) == len(draws) == 8


def test_everything_secure_lies_on_the_grid():
    values = np.random.default_rng(0).normal(size=2000) * 10.0 ** np.arange(2000).repeat(1)[::-1].clip(0, 3)
    for scale in (1e-3, 0.7, 123.0):
        noisy = LATTICE.perturb(values, scale) / grid_step(scale)
        np.testing.assert_array_equal(noisy, np.rint(noisy))


def test_low_bits_tell_nothing():
    """Event "not a multiple of 2^-53": probability 0 in one world, above .2 in the other, for floats."""

    def off_grid(x):
        return float(np.mean(x * 2.0**53 != np.rint(x * 2.0**53)))

    zero, one = np.zeros(20_000), np.ones(20_000)
    seeded = SimulationNoise(0)
    assert off_grid(seeded.perturb(zero, 1.0)) > 0.2
    assert off_grid(seeded.perturb(one, 1.0)) < 0.2
    assert off_grid(LATTICE.perturb(zero, 1.0)) == off_grid(LATTICE.perturb(one, 1.0)) == 0.0


@pytest.mark.parametrize("sensitivity", [1e-6, 1.0, 3e5])
@pytest.mark.parametrize("mu", [0.01, 0.27, 1.0, 30.0])
@pytest.mark.parametrize("dimension", [1, 21, 10_000])
def test_scale_pays_for_the_grid(sensitivity, mu, dimension):
    scale, total = solve_scale(sensitivity, mu, dimension, LATTICE)
    assert total >= sensitivity + LATTICE.inflation(scale, dimension)
    assert scale == pytest.approx(total / mu, rel=1e-12)
    assert total <= sensitivity + 2.001 * LATTICE.inflation(scale, dimension)
    assert solve_scale(sensitivity, mu, dimension, SimulationNoise(0))[0] == sensitivity / mu


def test_scale_falls_as_the_budget_grows():
    mus = np.geomspace(1e-3, 100.0, 400)
    scales = [solve_scale(1.0, mu, 21, LATTICE)[0] for mu in mus]
    assert (np.diff(scales) < 0.0).all()


def test_budgets_below_the_grid_are_refused():
    with pytest.raises(SensitivityError, match="too small"):
        solve_scale(1.0, 1e-7, 100, LATTICE)


def test_no_value_stops_the_noise_and_none_moves_further_than_before():
    """Whether an error is raised must not depend on a row."""
    end, step = 2.0**45 * grid_step(1.0), grid_step(1.0)
    wild = np.array([1e30, -1e300, np.inf, -np.inf, np.nan, end - step, end, end + step, -end])
    held = LATTICE.perturb(wild, 1.0) / end
    np.testing.assert_allclose(held, [1, -1, 1, -1, 0, 1, 1, 1, -1], atol=1e-6)


def test_grid_step_is_a_power_of_two_and_fine():
    for scale in (1e-9, 0.3, 0.5, 1.0, 1.999, 2.0, 1e12):
        step = grid_step(scale)
        assert math.frexp(step)[0] == 0.5
        assert 2**20 <= scale / step < 2**21


def test_uniform_bernoulli_and_integers():
    for source in (LATTICE, SimulationNoise(2)):
        u = source.uniform((50_000, 2))
        assert u.shape == (50_000, 2)
        assert stats.kstest(u.ravel(), "uniform").pvalue > 1e-5
        flags = source.bernoulli(0.3, 100_000)
        assert stats.binomtest(int(flags.sum()), 100_000, 0.3).pvalue > 1e-5
        counts = np.bincount(source.integers(7, 70_000), minlength=7)
        assert stats.chisquare(counts).pvalue > 1e-5
    assert LATTICE.bernoulli(1.0, 5).all()
    assert not LATTICE.bernoulli(0.0, 5).any()
    assert (LATTICE.integers(1, 5) == 0).all()


def test_sources_by_name_and_seed():
    assert get_source().secure
    assert get_source().name == "lattice"
    assert not get_source(rng=0).secure
    a, b = get_source(rng=7).perturb(np.zeros(5), 1.0), get_source(rng=7).perturb(np.zeros(5), 1.0)
    np.testing.assert_array_equal(a, b)
    for bad in ("numpy", None):
        with pytest.raises(ArgumentError):
            get_source(source=bad)
    for bad in (-1, 1.5, True, "seed"):
        with pytest.raises(ArgumentError):
            get_source(rng=bad)


def test_opendp_by_name():
    pytest.importorskip("opendp")
    source = get_source(source="opendp")
    assert (source.name, source.secure) == ("opendp", True)
    assert pickle.loads(pickle.dumps(source)).name == "opendp"


def test_simulated_steps_round_a_gaussian():
    x = SimulationNoise(0).gaussian_steps(np.zeros(50_000, dtype=np.int64), 40.0)
    assert x.dtype == np.int64
    assert x.std() == pytest.approx(40.0, rel=0.02)
