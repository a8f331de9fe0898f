"""Where residuals are clipped for robust errors, and what becomes of a meat that noise made indefinite."""

import math

import numpy as np
import pytest

from privinf.mechanisms.residual_plan import MomentScale, ResidualPlan
from privinf.moments.equation import NoisyTotals


def scale_of(**changed):
    given = {
        "weight": 1.0,
        "x_norm": math.sqrt(3.0),
        "y_norm": 1.0,
        "public": 1,
        "public_norm2": 1.0,
        "n": 10_000,
        "noise": 1e-4,
        "residual_noise": 1e-4,
    }
    return MomentScale(**given | changed)


def moments(sd):
    """Return mean moments of (1, x1, x2, x3, y) with y = .2 + .1 x1 + an error."""
    half = np.diag([1.0, *[math.sqrt(1.0 / 3.0)] * 3, sd])
    z = np.eye(5)
    z[4, :2] = 0.2, 0.1
    return z @ half**2 @ z.T


def test_the_clip_is_wide_unless_public_bounds_or_the_noise_make_it_smaller():
    wide = ResidualPlan.from_moments(moments(0.05), scale_of(noise=0.0, residual_noise=0.0))
    np.testing.assert_allclose(wide.coefficients, [0.2, 0.1, 0.0, 0.0], atol=1e-12)
    assert wide.bound == pytest.approx(20 * 0.05)
    assert wide.largest == pytest.approx(1.0 + 0.2 + 0.1 * math.sqrt(3.0))
    # no residual can pass the public bounds: 20 sds would be noise for nothing
    large = ResidualPlan.from_moments(moments(0.3), scale_of(noise=0.0, residual_noise=0.0))
    assert large.bound == large.largest < 20 * 0.3
    bounds = [
        ResidualPlan.from_moments(moments(0.05), scale_of(residual_noise=s)).bound for s in (1e-5, 1e-2, 1e3)
    ]
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[0] == pytest.approx(20 * 0.05)
    assert bounds[2] == pytest.approx(3 * 0.05)
    # where the moments' own noise is most of the variance, there is room for a wide clip again
    again = ResidualPlan.from_moments(moments(0.05), scale_of(residual_noise=1e-2, noise=1.0))
    assert bounds[1] < again.bound


def test_of_units_the_clip_is_of_the_length_of_their_scores():
    fine = ResidualPlan.from_moments(moments(0.05), scale_of(noise=0.0, residual_noise=0.0, units=3))
    assert fine.bound == pytest.approx(20 * 3 * 0.05 * math.sqrt(2.0))  # tr A = 1 + 3/3
    assert fine.largest == pytest.approx(3 * fine.residual * 2.0)
    noisy = ResidualPlan.from_moments(moments(0.05), scale_of(residual_noise=1e3, units=3))
    assert noisy.bound == pytest.approx(3 * 3 * 0.05 * math.sqrt(2.0))


def test_a_noisy_meat_keeps_its_trace():
    rng = np.random.default_rng(1)
    noise = rng.standard_normal((6, 6))
    meat = np.eye(6) + 0.5 * (noise + noise.T)
    assert np.linalg.eigvalsh(meat)[0] < 0.0
    system = NoisyTotals(np.eye(7), n=100, scale=0.0, residual_moments=meat)
    found = system.clean_meat(np.zeros(6))[0]
    assert system.residual_projected
    assert np.trace(found) == pytest.approx(np.trace(meat))
    assert np.linalg.eigvalsh(found)[0] > -1e-12
    assert not NoisyTotals(np.eye(7), n=100, scale=0.0, residual_moments=np.eye(6)).residual_projected
