"""Designs: laws, truths, public columns."""

from __future__ import annotations

import numpy as np
import pytest
import statsmodels.api as sm

import privinf as pi
from studies.designs import cube_design, sphere_design

OPTIONS = [(False, False), (True, False), (False, True), (True, True)]


@pytest.mark.parametrize("design", [sphere_design, cube_design])
@pytest.mark.parametrize(("intercept", "public_covariate"), OPTIONS)
def test_least_squares_finds_the_stated_truth(design, intercept, public_covariate):
    sample = design(40_000, 1, intercept=intercept, public_covariate=public_covariate)
    assert list(sample.X.columns) == list(sample.params.index)
    fit = sm.OLS(sample.y, sample.X).fit()
    # joint test of the truth at one in a thousand
    assert fit.f_test((np.eye(len(sample.params)), sample.params.to_numpy())).pvalue > 1e-3
    assert fit.mse_resid == pytest.approx(0.09, rel=0.03)


def test_supports():
    sphere = sphere_design(500, 0)
    np.testing.assert_allclose(np.linalg.norm(sphere.X, axis=1), 1.0)
    assert abs(np.cov(sphere.X.T) - np.eye(5) / 5).max() < 0.05
    cube = cube_design(5000, 0)
    assert cube.X.abs().to_numpy().max() <= 1.0
    assert abs(cube.y).max() <= 2.0


def test_public_columns_are_declared_and_only_they():
    sample = sphere_design(3000, 0, intercept=True, public_covariate=True)
    release = pi.ModulatedOLS(sample.y, sample.X, radius=1.0, response="public").release(
        epsilon=4.0, delta=1e-5, rng=0
    )
    assert release.arrays["features"].shape == (3000, 5)
    np.testing.assert_array_equal(release.arrays["public"][:, 1], sample.X["z"])


def test_a_seed_is_a_sample():
    assert sphere_design(50, 7).X.equals(sphere_design(50, 7).X)
    assert not sphere_design(50, 7).X.equals(sphere_design(50, 8).X)
