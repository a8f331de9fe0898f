"""Score sets of all coefficients at once: those of the former search, and what is decided without one."""

from __future__ import annotations

import former_score_sets
import numpy as np
import pytest
from inference_designs import clean_rows, noisy_totals

from privinf.inference.corrected_features import CorrectedLeastSquares
from privinf.inference.linear_scores import CHI_SQUARE, concentrate
from privinf.inference.score_profiles import Lines, Profiles
from privinf.inference.score_sets import score_sets
from privinf.inference.score_surface import ScoreSurface
from privinf.inference.score_test import score_test

LEVELS = (0.05, 0.2, 0.5)


def drawn_system(seed):
    """One to six correlated columns, some with a constant, few or many rows, weak or strong noise."""
    rng = np.random.default_rng(seed)
    d, n = int(rng.integers(1, 7)), int(rng.choice([60, 200, 1000, 5000]))
    X = rng.standard_normal((n, d)) @ (np.eye(d) + rng.uniform(0, 1.2) * rng.standard_normal((d, d)))
    if rng.random() < 0.4:
        X[:, 0] = 1.0
    y = X @ rng.standard_normal(d) * rng.uniform(0, 2) + rng.standard_normal(n)
    sd = rng.choice([0.1, 0.5, 1.0, 2.0, 5.0])
    covariance, noisy = sd**2 * np.eye(d), X + sd * rng.standard_normal(X.shape)
    if d > 1 and (X[:, 0] == 1.0).all():
        covariance[0, 0], noisy[:, 0] = 0.0, 1.0
    return CorrectedLeastSquares(noisy, y, covariance)


def assert_same(found, wanted):
    for one, other in zip(found, wanted, strict=True):
        assert len(one.pieces) == len(other.pieces)
        np.testing.assert_allclose(one.pieces, other.pieces, rtol=1e-8, atol=1e-8)
        assert (one.level, one.df) == (other.level, other.df)


@pytest.mark.audit
@pytest.mark.parametrize("seed", [1, 2, 9, 14, 17, 21, 24, 27, 32, 38])
def test_the_sets_are_those_of_the_former_search(seed):
    system, alpha = drawn_system(seed), LEVELS[seed % 3]
    assert_same(score_sets(system, alpha=alpha), former_score_sets.score_sets(system, alpha=alpha))


def test_the_seeds_hold_every_kind_of_set():
    found = {seed: score_sets(drawn_system(seed), alpha=LEVELS[seed % 3]) for seed in (2, 12, 24, 27, 32)}
    assert all(one.bounded for one in found[2])
    assert all(one.pieces == ((-np.inf, np.inf),) for one in found[12])
    assert [len(one.pieces) for one in found[24]] == [2, 2, 1]
    assert all(len(one.pieces) == 2 and not one.bounded for one in found[27] + found[32])


def test_a_start_along_its_normal_does_not_leave_the_hyperplane():
    """One coefficient: the statistic tells the set, which the former search took for the whole line."""
    system, alpha = drawn_system(157), LEVELS[157 % 3]
    (found,) = score_sets(system, alpha=alpha)
    limit = CHI_SQUARE.critical(1, alpha)
    tried = np.concatenate([np.linspace(-50.0, 50.0, 801), [0.0629, 0.063, 24.33, 24.34]])
    inside = [score_test(system, [b]).statistic <= limit for b in tried]
    assert [b in found for b in tried] == inside
    assert not all(inside)
    surface = profiles_of(system, alpha).lines.surface
    normals = np.array([[0.6, 0.8], [1.0, 0.0]])
    assert np.abs(np.sum(surface.minimise(normals, normals)[1] * normals, axis=1)).max() < 1e-12


@pytest.mark.parametrize("scale", [2.0, 40.0, 400.0])
def test_noisy_totals_have_the_sets_of_the_former_search(scale):
    rng = np.random.default_rng(3)
    X, y, _ = clean_rows(rng, 800, 4, intercept=True)
    system = noisy_totals(rng, X, y, scale, intercept=True)
    wanted = former_score_sets.score_sets(system, [4, 0, 1])
    assert_same(score_sets(system, [4, 0, 1]), wanted)
    assert_same(score_sets(system)[1:2], wanted[2:])


def profiles_of(system, alpha):
    maps = concentrate(system.A, system.g, ~system.noise_free)
    surface = ScoreSurface.from_arrays(system.A, system.g, system.tensor(), system.n, maps)
    k = surface.B.shape[0]
    return Profiles.from_lines(
        Lines.from_surface(surface, np.arange(k), critical=CHI_SQUARE.critical(k, alpha))
    )


@pytest.mark.parametrize("seed", [2, 9, 24, 32])
def test_what_is_decided_without_a_search_is_what_a_search_finds(seed):
    profiles = profiles_of(drawn_system(seed), LEVELS[seed % 3])
    surface, everything = profiles.lines.surface, np.arange(len(profiles.angles))
    decided = profiles.inside | profiles.beyond
    assert decided.mean() > 0.3
    known = profiles.inside.copy()
    profiles._lower(
        np.repeat(everything, profiles.starts.shape[1]), profiles.starts.reshape(-1, profiles.points.shape[1])
    )
    np.testing.assert_array_equal(known[decided], profiles.inside[decided])
    v = np.random.default_rng(0).standard_normal((500, surface.B.shape[1]))
    bound = np.sum((v @ surface.B.T) ** 2, axis=1) / np.sum(v**2, axis=1) / surface.largest
    assert (surface.values(v) >= bound * (1.0 - 1e-9)).all()


def test_a_bound_that_is_none_changes_sets(monkeypatch):
    """Were T taken to be much larger than it is proved to be, some sets would be too short."""
    system = drawn_system(9)
    right = score_sets(system)
    true = ScoreSurface.largest.func
    monkeypatch.setattr(ScoreSurface, "largest", property(lambda self: true(self) / 1e4))
    wrong = score_sets(system)
    with pytest.raises(AssertionError):
        assert_same(wrong, right)


def test_slopes_and_curvatures_are_those_of_t():
    surface = profiles_of(drawn_system(17), 0.05).lines.surface
    v = np.random.default_rng(1).standard_normal((4, surface.B.shape[1]))
    _, gradient, hessian = surface.evaluate(v)
    for i, step in enumerate(1e-5 * np.eye(v.shape[1])):
        up, down = surface.evaluate(v + step), surface.evaluate(v - step)
        np.testing.assert_allclose((up[0] - down[0]) / 2e-5, gradient[:, i], rtol=1e-5, atol=1e-3)
        np.testing.assert_allclose((up[1] - down[1]) / 2e-5, hessian[:, i], rtol=1e-4, atol=1e-2)
