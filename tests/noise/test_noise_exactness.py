"""The samplers are exact: the paths that doubles cannot decide, and the tails beyond the table."""

import decimal
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from privinf.errors import ArgumentError
from privinf.noise import LatticeNoise, SimulationNoise, discrete_gaussian, entropy, grid_step, lattice


class Fixed:
    """Entropy of words that are given."""

    def __init__(self, words=(), each=None):
        self.given, self.each = words, each

    def words(self, count):
        return self.given[:count]

    def word(self):
        return next(self.each)


SIGMAS = [0.05, 0.5, 1.0, 1.7, 30.0, 700.0, 2.0**20, 1.99 * 2.0**20, 2.0**50]


def exact_exp(exponent):
    with decimal.localcontext(decimal.Context(prec=60, Emin=decimal.MIN_EMIN)):
        return Fraction((-decimal.Decimal(exponent.numerator) / decimal.Decimal(exponent.denominator)).exp())


def assert_discrete_gaussian(x, sigma):
    k = np.arange(-math.ceil(9 * sigma) - 2, math.ceil(9 * sigma) + 3)
    p = np.exp(-0.5 * (k / sigma) ** 2)
    cdf = np.cumsum(p / p.sum())
    edges = np.unique(np.searchsorted(cdf, np.linspace(0.002, 0.998, 60)))
    cells = np.searchsorted(k[edges], x, side="left")
    probability = np.diff(np.concatenate([[0.0], cdf[edges], [1.0]]))
    counts = np.bincount(cells, minlength=len(probability))
    assert stats.chisquare(counts, len(x) * probability).pvalue > 1e-5


@pytest.mark.audit
@pytest.mark.parametrize("sigma", [1.7, 30.0, 700.0, 2.0**13])
def test_tails_join_the_table_without_a_seam(sigma, monkeypatch):
    """With a table of 1.5 sd one draw in eight comes from the tails' own sampler."""
    monkeypatch.setattr(discrete_gaussian, "TAIL", 1.5)
    x = discrete_gaussian.discrete_gaussian(sigma, 30_000)
    assert np.mean(np.abs(x) > 1.6 * sigma) > 0.05
    assert_discrete_gaussian(x, sigma)


@pytest.mark.audit
@pytest.mark.parametrize("sigma", [1.0, 300.0])
def test_exact_decisions_have_the_same_law(sigma, monkeypatch):
    monkeypatch.setattr(discrete_gaussian, "MARGIN", 2.0)
    decided = []
    true = discrete_gaussian.uniform_below
    monkeypatch.setattr(
        discrete_gaussian, "uniform_below", lambda *a: decided.append(true(*a)) or decided[-1]
    )
    assert_discrete_gaussian(discrete_gaussian.discrete_gaussian(sigma, 8000), sigma)
    assert len(decided) >= 8000


@pytest.mark.audit
def test_doubles_and_exact_arithmetic_decide_alike(monkeypatch):
    words = np.random.default_rng(0).integers(0, 2**64, 6000, dtype=np.uint64)
    for sigma in SIGMAS[2:-1]:
        table = discrete_gaussian._table(sigma, discrete_gaussian.TAIL)
        monkeypatch.setattr(discrete_gaussian, "MARGIN", 2.0**-42)
        fast = discrete_gaussian._attempt(table, sigma, 3000, Fixed(words))
        monkeypatch.setattr(discrete_gaussian, "MARGIN", 2.0)
        np.testing.assert_array_equal(fast, discrete_gaussian._attempt(table, sigma, 3000, Fixed(words)))


@pytest.mark.parametrize("sigma", [0.5, 30.0, 2.0**20, 1.99 * 2.0**20])
def test_the_guide_finds_the_blocks_of_the_table(sigma, monkeypatch):
    """At every edge between blocks and cells, and one word to either side of it."""
    table = discrete_gaussian._table(sigma, discrete_gaussian.TAIL)
    cells = np.arange(1 << discrete_gaussian.GUIDE_BITS, dtype=np.uint64)
    edges = np.concatenate([table.cumulative, cells << np.uint64(64 - discrete_gaussian.GUIDE_BITS)])
    words = np.concatenate([edges, edges - np.uint64(1), edges + np.uint64(1)])  # modulo 2^64
    assert len(words) > discrete_gaussian.GUIDED
    found = discrete_gaussian._blocks(table, sigma, words)
    np.testing.assert_array_equal(found, np.searchsorted(table.cumulative, words, side="right"))


@pytest.mark.parametrize("sigma", [0.5, 30.0, 1.5 * 2.0**20])
def test_the_same_words_make_the_draws_of_version_0_1(sigma):
    old = pytest.importorskip("benchmarks.old_sampler").OldNoise
    zeros = np.zeros(40_000, dtype=np.int64)
    first, second = (
        source(entropy.Keystream(bytes(32))).gaussian_steps(zeros, sigma) for source in (old, LatticeNoise)
    )
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("sigma", [1.3, 1.5 * 2.0**20])
def test_many_draws_have_the_law(sigma):
    """As releases draw them, by the guide: cells of equal probability from end to end, and beyond 4 sds."""
    x = LatticeNoise().gaussian_steps(np.zeros(400_000, dtype=np.int64), sigma)
    if sigma < 2.0:
        assert_discrete_gaussian(x, sigma)
        return
    counts = np.histogram(stats.norm.cdf((x + 0.0) / sigma), bins=500, range=(0.0, 1.0))[0]
    assert stats.chisquare(counts).pvalue > 1e-5
    inside = np.bincount(np.mod(x, 64), minlength=64)
    assert stats.chisquare(inside).pvalue > 1e-5
    beyond = int((np.abs(x) > 4 * sigma).sum())
    assert stats.binomtest(beyond, len(x), 2 * stats.norm.sf(4.0)).pvalue > 1e-5


@pytest.mark.parametrize("sigma", SIGMAS)
def test_weights_are_above_what_they_bound(sigma):
    """Acceptance probabilities are at most one, and some block's bound is tight."""
    table = discrete_gaussian._table(sigma, discrete_gaussian.TAIL)
    total = sum(int(w) for w in table.weights)
    assert int(table.cumulative[-1]) == total < 2**64
    assert total > 2**64 * (1 - 2.0**-25)
    for b in range(0, len(table.first) - 1, max(1, len(table.first) // 150)):
        low, high = int(table.first[b]), int(table.first[b]) + 2**table.bits - 1
        nearest = 0 if low <= 0 <= high else min(abs(low), abs(high))
        assert table.factor * exact_exp(table.exponent(nearest)) <= int(table.weights[b])
    center = table.factor / int(table.weights[len(table.first) // 2 - 1])
    assert 1 - 2.0**-30 < center <= 1.0


@pytest.mark.parametrize("sigma", SIGMAS)
@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("cell", [0, 1, 5])
def test_tails_have_the_multiple_of_the_table(sigma, side, cell, monkeypatch):
    """P(proposed) P(accepted) / rho(x) is F / (2^64 2^k) for every integer: no output is impossible."""
    table = discrete_gaussian._table(sigma, discrete_gaussian.TAIL)
    words = iter([(2**64 - 2) | side, *([1] * cell), 0])
    asked = []
    monkeypatch.setattr(discrete_gaussian, "uniform_below", lambda *a: asked.append(a) or True)
    x, accepted = discrete_gaussian._draw_tail(table, Fixed(each=words))
    assert accepted
    assert next(words, None) is None
    first, last = int(table.first[0]), int(table.first[-1]) - 1
    offset = x - last - 1 if side else first - 1 - x
    assert offset == (cell + 1) * 2**table.cell_bits - 1
    head, bits, scale, exponent, _ = asked[0]
    assert (head, bits, exponent) == (0, 0, Fraction(x * x) / (2 * Fraction(sigma) ** 2))
    proposed = Fraction(int(table.weights[-1]), 2**64) / 2 / 2 ** (cell + 1) / 2**table.cell_bits
    assert proposed * scale == Fraction(table.factor, 2 ** (64 + table.bits))
    start = last + 1 + cell * 2**table.cell_bits if side else -first + 1 + cell * 2**table.cell_bits
    assert scale * exact_exp(table.exponent(start)) <= 1


def test_sigma_outside_the_range_is_refused():
    for sigma in (0.0, -1.0, math.nan, math.inf, 2.0**-21, 2.0**51):
        with pytest.raises(ArgumentError):
            LatticeNoise().gaussian_steps(np.zeros(2, dtype=np.int64), sigma)
    for scale in (0.0, 1e-310, math.nan):
        with pytest.raises(ArgumentError):
            grid_step(scale)
    assert (LatticeNoise().gaussian_steps(np.zeros(500, dtype=np.int64), 2.0**-20) == 0).all()
    assert LatticeNoise().gaussian_steps(np.zeros((0, 3), dtype=np.int64), 1.0).shape == (0, 3)


@pytest.mark.audit
@pytest.mark.parametrize("exponent", [Fraction(0), Fraction(1, 3), Fraction(45), Fraction(2000)])
@pytest.mark.parametrize("bits", [0, 20, 64, 3000])
def test_uniform_below_is_exact(exponent, bits):
    scale = Fraction(7, 11) * (1 << 60 if exponent == 45 else 1)
    with decimal.localcontext(decimal.Context(prec=3000, Emin=decimal.MIN_EMIN)):
        value = Fraction((-decimal.Decimal(int(exponent * 3)) / 3).exp()) * scale
    head = math.floor(value * 2**bits)
    tail = math.floor(value * 2 ** (bits + 2048)) - (head << 2048)
    words = [tail >> (2048 - 64 * (i + 1)) & (2**64 - 1) for i in range(32)]

    def decide(head, change):
        """The bits of the threshold itself, then a word that is one smaller or larger."""
        stream = iter([*words[:6], words[6] + change, 0])
        return entropy.uniform_below(head, bits, scale, exponent, Fixed(each=stream))

    assert decide(head, -1) is True
    assert decide(head, +1) is False
    if head > 0:
        assert decide(head - 1, 0) is True
    assert decide(head + 1, 0) is False


def test_gumbel_law_and_grid():
    n = 200_000
    for source in (LatticeNoise(), SimulationNoise(0)):
        for scale in (0.7, 3.0):
            assert stats.kstest(source.gumbel(scale, n) / scale, "gumbel_r").pvalue > 1e-5
    x = LatticeNoise().gumbel(0.7, (40_000, 5))
    assert x.shape == (40_000, 5)
    steps = x / grid_step(0.7)
    np.testing.assert_array_equal(steps, np.rint(steps))
    assert np.abs(np.corrcoef(x.T) - np.eye(5)).max() < 5 / math.sqrt(40_000)
    # the largest of five noisy scores follows the exponential mechanism
    scores = np.array([0.0, 0.5, 1.0, 1.0, 2.0])
    winners = np.bincount((scores + x).argmax(axis=1), minlength=5)
    law = np.exp(scores / 0.7) / np.exp(scores / 0.7).sum()
    assert stats.chisquare(winners, 40_000 * law).pvalue > 1e-5


@pytest.mark.audit
def test_gumbel_in_doubles_is_the_exact_one(monkeypatch):
    extreme = [0, 1, 2**44 - 1, 2**44 + 1, 2**64 - 1, 2**64 - 2**43]
    words = np.concatenate(
        [
            np.array(extreme, dtype=np.uint64),
            np.random.default_rng(0).integers(0, 2**64, 3000, dtype=np.uint64),
        ]
    )
    fixed = Fixed(words, iter(lambda: 2**63, None))
    ratio = 1.999 * 2.0**20
    fast = lattice.gumbel_steps(ratio, len(words), fixed)
    monkeypatch.setattr(lattice, "CLOSE", 1.0)
    slow = lattice.gumbel_steps(ratio, len(words), fixed)
    np.testing.assert_array_equal(fast, slow)
    # V = (2^-1) 2^-64: G = 65 log 2; V = 1 - (2^-1) 2^-64: G = -log(65 log 2)
    assert slow[0] == round(ratio * 65 * math.log(2))
    assert slow[4] == round(-ratio * math.log(65 * math.log(2)))
