"""Theorems 1 and 2 and lemmas 2 and 4 of paper 5, with constants."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from privinf.errors import ArgumentError
from studies.mixing import PeopleSums, mixed_rows_limit, noisy_rows_gram
from studies.theory.mixed_rows import (
    Regression,
    chi_square_tails,
    inner_products_bound,
    mixed_rows_bound,
    mixed_rows_exponent,
    single_rows_bound,
    single_rows_exponent,
)

W = 0.05
ONE = Regression(1, cross_norm=W / 3.0, inverse_norm=3.0)


def people(n):
    """Sums of n people at their mean: x uniform on [-1, 1], y = .05 x."""
    gram = n * np.array([[1.0, 0.0, 0.0], [0.0, 1 / 3, W / 3], [0.0, W / 3, W**2 / 3]])
    return PeopleSums(n, gram, np.array([W]))


def test_lemma_4_is_sharp_and_as_printed_too_small():
    for h, c in ((0.3, 0.2), (1.0, 0.9)):
        t = h / 2.0  # the largest error that the lemma allows
        worst = (c + t) / (h - t) - c / h
        one = Regression(1, cross_norm=c, inverse_norm=1.0 / h)
        assert one.tolerance(worst) == pytest.approx(t)
        assert worst > (c / h**2 + 2.0 / h) * t
        assert worst > (2.0 * c / h**2 + 5.0 / h) / 4.0 * t
    rng = np.random.default_rng(0)
    H = np.diag([0.3, 0.5, 1.0])
    C, spread = np.array([0.2, -0.1, 0.4]), Regression(3, math.sqrt(0.21), 1.0 / 0.3)
    for _ in range(200):
        beta = rng.uniform(0.01, 3.0)
        t = spread.tolerance(beta)
        E, e = rng.standard_normal((3, 3)), rng.standard_normal(3)
        found = np.linalg.solve(H + t * E / np.linalg.norm(E, 2), C + t * e / np.linalg.norm(e))
        assert np.linalg.norm(found - C / np.diag(H)) <= beta


def test_lemma_2_is_never_below_simulation():
    """Three points in 50 dimensions under 64 rows of random signs."""
    rng, rows = np.random.default_rng(1), 64
    points = rng.standard_normal((3, 50))
    points /= np.linalg.norm(points, axis=1).max()
    signs = rng.choice([-1.0, 1.0], (1_500, rows, 50))
    mixed = signs @ points.T / math.sqrt(rows)
    moved = np.abs(mixed.transpose(0, 2, 1) @ mixed - points @ points.T).max(axis=(1, 2))
    shares = []
    for beta in (0.05, 0.1, 0.5, 0.6, 0.8):
        shares.append((moved > 3.0 * beta).mean())
        assert shares[-1] <= inner_products_bound(beta, rows=rows, vectors=3)
    assert shares[0] > 0.5
    assert inner_products_bound(0.8, rows=rows, vectors=3) < 0.2


def test_chi_square_tails_are_above_the_exact_ones_and_as_printed_below():
    for degrees in (20, 200, 2_000):
        for u in (0.1, 0.3, 0.8, 1.5):
            law = stats.chi2(degrees)
            exact = law.sf(degrees * (1.0 + u)) + law.cdf(degrees * (1.0 - u))
            found = chi_square_tails(u, degrees)
            assert exact <= found
            if 1e-200 < exact < 1e-3:
                assert chi_square_tails(u, 2 * degrees) < exact  # what the paper prints for `degrees`


def test_bounds_are_never_below_simulation():
    """One feature, from sizes where the bound is 1 to sizes where it is near 0."""
    rng, noise, beta = np.random.default_rng(2), np.full(2, 0.5), 0.1
    bounds = []
    for n in 10 ** np.arange(3, 8):
        sums, n = people(int(n)), int(n)
        k = int(math.sqrt(n))
        single, mixed = np.empty(300), np.empty(300)
        for draw in range(300):
            gram = noisy_rows_gram(sums, noise=noise, rng=rng)
            single[draw] = gram[0, 1] / (gram[0, 0] - 0.5 * n) - W
            rows = mixed_rows_limit(sums, k=k, noise=noise, rng=rng).rows
            mixed[draw] = rows[:, 1] @ rows[:, 2] / (rows[:, 1] @ rows[:, 1]) - W
        found = single_rows_bound(beta, ONE, n=n, noise_variance=0.5)
        bounds.append(found)
        assert (np.abs(single) > beta).mean() <= found
        assert (np.abs(mixed) > beta).mean() <= mixed_rows_bound(beta, ONE, n=n, rows=k, noise_variance=0.5)
    assert bounds[0] == 1.0
    assert bounds[-1] < 1e-3


def test_bounds_have_the_rates_of_the_theorems():
    """Log of the bound: linear in n beta^2/(d^2 tau^4), and for mixed rows in k beta^2/d^2."""

    def single(n=2 * 10**9, noise=8.0, features=3, beta=0.1):
        design = Regression(features, cross_norm=W / 3.0, inverse_norm=3.0)
        return -math.log(single_rows_bound(beta, design, n=n, noise_variance=noise) / features**2)

    base = single()
    # Twice the noise variance or as many features again cost a factor of four, half of beta too.
    assert single(n=8 * 10**9) == pytest.approx(4 * base, rel=0.02)
    for change in ({"noise": 16.0}, {"features": 6}, {"beta": 0.05}):
        assert single(n=8 * 10**9, **change) == pytest.approx(base, rel=0.1)

    def mixed(rows, beta=0.1):
        found = mixed_rows_bound(beta, ONE, n=10**20, rows=rows, noise_variance=0.5)
        return -math.log(found / 9.0)

    assert mixed(2 * 10**8) == pytest.approx(2 * mixed(10**8), rel=0.01)
    assert mixed(4 * 10**8, 0.05) == pytest.approx(mixed(10**8), rel=0.01)
    assert mixed_rows_bound(0.1, ONE, n=10**6, rows=10**6, noise_variance=0.5) == 1.0  # R'R/n does not vanish


def test_without_noise_only_sampling_and_mixing_are_left():
    free = single_rows_bound(0.1, ONE, n=10**6, noise_variance=0.0)
    assert 0.0 < free < single_rows_bound(0.1, ONE, n=10**6, noise_variance=0.5)
    assert mixed_rows_bound(0.1, ONE, n=10**9, rows=10**8, noise_variance=0.0) < 1e-6


def test_printed_exponents():
    of = {"features": 10, "largest_party": 2, "sigma": 4.0}
    assert single_rows_exponent(0.1, n=10**6, **of) == pytest.approx(0.01 * 1e6 / (256 * 100 * 4))
    k = int(math.sqrt(10**10 * 10 / 2) / 4)
    found = mixed_rows_exponent(0.1, n=10**10, rows=k, **of)
    assert found == pytest.approx(0.01 * k / 100)
    assert mixed_rows_exponent(0.1, n=10**10, rows=1000 * k, **of) == pytest.approx(
        1e9 / (1000 * k * 20 * 16), rel=1e-6
    )


def test_bad_arguments_are_refused():
    for bad in ((0, 1.0, 1.0), (1, -1.0, 1.0), (1, 1.0, 0.0)):
        with pytest.raises(ArgumentError):
            Regression(*bad)
    with pytest.raises(ArgumentError, match="beta"):
        single_rows_bound(0.0, ONE, n=10, noise_variance=1.0)
    with pytest.raises(ArgumentError, match="noise_variance"):
        mixed_rows_bound(0.1, ONE, n=10, rows=2, noise_variance=-1.0)
    with pytest.raises(ArgumentError, match="beta"):
        inner_products_bound(1.5, rows=10, vectors=2)


def test_lemmas_3_5_and_6():
    """Bounds of a logarithm (the third fails just above 1, and holds with 4), a normal tail, a product."""
    x = np.linspace(1e-3, 0.999, 500)
    assert (-np.log1p(-x) - x >= x**2 / 2.0).all()
    assert (x - np.log1p(x) >= x**2 / 4.0).all()
    above = np.linspace(1.001, 50.0, 500)
    assert 1.1 - math.log(2.1) < 1.1 / 2.0
    assert (above - np.log1p(above) >= above / 4.0).all()
    for t in (0.1, 1.0, 4.0):
        assert math.erfc(t / math.sqrt(2.0)) <= 2.0 / (math.sqrt(2.0 * math.pi) * t) * math.exp(-(t**2) / 2.0)
    a, b = np.random.default_rng(4).standard_normal((2, 100_000))
    plus, minus = (a + b) ** 2 / 2.0, (a - b) ** 2 / 2.0
    np.testing.assert_allclose(a * b, (plus - minus) / 2.0, atol=1e-12)
    assert abs(np.corrcoef(plus, minus)[0, 1]) < 0.02
    assert plus.mean() == pytest.approx(1.0, abs=0.03)
