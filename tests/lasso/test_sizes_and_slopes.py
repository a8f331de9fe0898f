"""Sizes of columns from clipped squares, where slopes are cut, and what a curved score adds to a variance."""

import math

import numpy as np
import pytest

import privinf as pi
from privinf.federation import TrustedServer
from privinf.lasso.heterogeneous.scores import SLOPE_SPREAD, _slope_variance
from privinf.lasso.radii import clip_radii
from privinf.lasso.scores import SLOPE_NOISE, slope_norm
from privinf.lasso.sums import SparseSums


@pytest.mark.parametrize("clip", [math.inf, 1.5])
def test_sizes_of_normal_columns_do_not_depend_on_the_clip(clip):
    rng = np.random.default_rng(0)
    sd = np.array([0.2, 0.9, 2.0])
    X = rng.standard_normal((60_000, 3)) * sd
    rows = pi.DebiasedLasso(X[:, 0], X, x_bound=9.0, y_bounds=(-3, 3), x_scale=1.0)._rows
    sums = SparseSums(server=TrustedServer(rows.federation, rng=1), units=rows.units(), n=len(X))
    sums.size_columns(range(3), 1.0, clip)
    np.testing.assert_allclose(sums.units.scale, sd, rtol=0.06)
    np.testing.assert_allclose(sums.units.max_abs, 9.0 / sums.units.scale)
    spent = len(sums.server.ledger)
    sums.size_columns(range(3), 1.0, clip)
    assert len(sums.server.ledger) == spent


def test_slopes_are_cut_only_where_their_noise_would_be_large():
    rho, n = 1e-3, 100_000
    radii = clip_radii(5, n, rho)
    assert slope_norm(radii, 5, 3.5, n, rho) == pytest.approx(3.5 * radii.norm)
    far = slope_norm(radii, 5, 1e6, n, rho)
    noise = 2.0 * far / (n * math.sqrt(2.0 * rho))
    assert 0.0 < noise < SLOPE_NOISE
    assert slope_norm(radii, 5, 1e6, 1_000, rho) == pytest.approx(3.0 * radii.norm)
    assert slope_norm(radii, 5, 3.5, n, math.inf) == math.inf


def test_a_large_step_counts_as_uncertain():
    small, large = _slope_variance(np.array([0.01, 0.6]), np.array([1.0, 1.0]))
    assert math.sqrt(small) == pytest.approx(SLOPE_SPREAD * 0.01, rel=1e-3)
    # of signs the score falls short of its slope by atan t against t
    short = 0.6 - math.atan(0.6)
    assert short < math.sqrt(large) < 2.0 * short


@pytest.mark.parametrize("scale", [0.0, 1e-320, [1.0, 1e-310]])
def test_units_of_no_size_are_refused(scale):
    X = np.linspace(-1.0, 1.0, 20).reshape(10, 2)
    with pytest.raises(pi.errors.ArgumentError, match="x_scale= must be one positive number"):
        pi.DebiasedLasso(X[:, 0], X, x_bound=1.0, y_bounds=(-3, 3), x_scale=scale)
