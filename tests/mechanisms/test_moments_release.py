"""Moments: sensitivity, exact totals, budget before rows."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from scipy.special import expit

import privinf as pi
from privinf.mechanisms import sums as exact_sums
from privinf.mechanisms.moments import noisy_total
from privinf.mechanisms.passes import OwnSum
from privinf.mechanisms.statistics.block import SiteBlock
from privinf.mechanisms.statistics.moments import MomentLayout, second_moment_sensitivity
from privinf.noise import LatticeNoise, grid_step


def farthest(x_norm, y_norm, q2, rng):
    """Search the largest distance between two records' moments over the whole domain."""

    def distance2(p):
        a, b = x_norm * expit(p[0]), x_norm * expit(p[1])
        y, w = y_norm * np.tanh(p[3]), y_norm * np.tanh(p[4])
        inner = a * b * np.tanh(p[2]) + y * w
        return -((q2 + a * a + y * y) ** 2 + (q2 + b * b + w * w) ** 2 - 2 * (q2 + inner) ** 2)

    starts = rng.normal(size=(25, 5)) * 2
    return math.sqrt(max(-minimize(distance2, start, method="Nelder-Mead").fun for start in starts))


@pytest.mark.audit
@pytest.mark.parametrize("q2", [0.0, 1.0, 3.0])
@pytest.mark.parametrize(("x_norm", "y_norm"), [(1.0, 0.9), (1.7, 1.5), (0.5, 0.4), (0.4, 2.5)])
def test_sensitivity_bounds_the_search_and_is_attained_for_the_default_weights(x_norm, y_norm, q2):
    found = farthest(x_norm, y_norm, q2, np.random.default_rng(3))
    claim = second_moment_sensitivity(x_norm, y_norm, q2)
    assert found <= claim * (1 + 1e-9)
    if y_norm**2 <= x_norm**2 + q2:
        assert found >= 0.97 * claim


def test_the_formula_sometimes_given_for_large_y_is_beaten_by_the_empty_record():
    # 2 sqrt(2) R k against ||zz' - 0|| = R^2 + k^2
    assert 2 * math.sqrt(2) * 0.4 * 2.5 < 0.4**2 + 2.5**2
    assert second_moment_sensitivity(0.4, 2.5) >= 0.4**2 + 2.5**2


def test_layout_round_trip():
    layout = MomentLayout(public=2, private=2)
    z = np.random.default_rng(0).normal(size=(7, 5))
    rows, columns, factors = layout.pairs()
    moments = (z[:, rows] * z[:, columns] * factors).sum(axis=0)
    full = layout.matrix(moments, z[:, :2].T @ z[:, :2])
    np.testing.assert_allclose(full, z.T @ z, atol=1e-12)
    # isometric: distances between moment vectors are Frobenius distances
    single = MomentLayout(public=0, private=4)
    rows, columns, factors = single.pairs()
    vectors = z[:, rows] * z[:, columns] * factors
    outer = np.einsum("ij,ik->ijk", z, z)
    assert np.linalg.norm(vectors[0] - vectors[1]) == pytest.approx(np.linalg.norm(outer[0] - outer[1]))


class NoNoise(LatticeNoise):
    def gaussian_steps(self, values, sigma_steps):
        return values


def second_moments(rows):
    """Return a curator's exact sums of second moments of weighted rows (x1, x2, y)."""
    told = {
        "norm": 2.0,
        "public": 1,
        "public_norm2": 1.0,
        "max_rows": 1,
        "weight_bound": 2.0,
        "response_factor": 1.0,
        "response_bound": 1.0,
    }
    ends, y = np.full(2, 1.0), rows[:, 2]
    block = SiteBlock(
        features=rows[:, :2],
        response=y,
        low=-ends,
        high=ends,
        response_low=-1.0,
        response_high=1.0,
        clear=np.ones((len(y), 1)),
        weights=1.0 + np.abs(y),
    )
    sums = OwnSum.from_statistic("moments.total", "moments", told, MomentLayout(1, 2)).sums(block)
    sums.update(block)
    return sums


def test_secure_totals_are_exact_and_do_not_depend_on_order_or_blocks(monkeypatch):
    rng = np.random.default_rng(1)
    rows = rng.uniform(-1, 1, (1000, 3)) * 10.0 ** rng.integers(-9, 1, (1000, 1))
    whole = noisy_total(second_moments(rows), 1e-3, NoNoise())
    merged, *others = (second_moments(part) for part in np.array_split(rows, 3))
    for other in others:
        merged.merge(other)
    monkeypatch.setattr(exact_sums, "BLOCK_NUMBERS", 300)
    np.testing.assert_array_equal(whole, noisy_total(second_moments(rows[::-1]), 1e-3, NoNoise()))
    np.testing.assert_array_equal(whole, noisy_total(merged, 1e-3, NoNoise()))
    np.testing.assert_array_equal(whole / grid_step(1e-3), np.rint(whole / grid_step(1e-3)))
    exact = noisy_total(merged, 0.0, NoNoise())
    assert 0.0 < np.abs(whole - exact).max() <= 0.5 * grid_step(1e-3)
    root = np.sqrt(1.0 + np.abs(rows[:, 2]))[:, None]
    z = root * np.column_stack([np.ones(1000), rows])
    full = MomentLayout(1, 2).matrix(exact, np.array([[0.0]]))
    np.testing.assert_allclose(full[:, 1:], (z.T @ z)[:, 1:], rtol=0, atol=1000 * 2.0**-19)
    assert merged.public.item() == pytest.approx((root**2).sum(), rel=1e-6)


def test_the_order_of_the_rows_of_a_release_cannot_be_seen():
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(rng.uniform(-2, 2, (20_000, 3)), columns=["a", "b", "y"])
    turned = frame.iloc[rng.permutation(len(frame))]
    schema = pi.Schema({"a": (-1, 1), "b": (-1.5, 1), "y": (-1, 2)})
    found = [
        pi.Moments(schema, "y ~ a + b").release(one, mu=1.0, cov_type="HC0", rng=5) for one in (frame, turned)
    ]
    for name in ("moments", "residual_moments"):
        np.testing.assert_array_equal(found[0].arrays[name], found[1].arrays[name])
    y, X = frame["y"].to_numpy(), frame[["a", "b"]].to_numpy()
    arrays = pi.MomentOLS(y, pi.add_constant(X), bounds=[(-1, 1), (-1.5, 1)], y_bounds=(-1, 2))
    np.testing.assert_array_equal(arrays.release(mu=1.0, rng=5).arrays["moments"], found_of(schema, frame))


def found_of(schema, frame):
    return pi.Moments(schema, "y ~ a + b").release(frame, mu=1.0, rng=5).arrays["moments"]


@pytest.mark.parametrize("cov_type", ["nonrobust", "HC0"])
def test_a_total_that_its_grid_has_no_room_for_is_refused_before_it_is_charged(cov_type):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (100, 2))
    model = pi.MomentOLS(X[:, 0], X, bounds=[(-1, 1)] * 2, y_bounds=(-2, 2))
    with pytest.raises(pi.errors.SensitivityError, match="too small to be represented exactly"):
        model.release(mu=1e12, cov_type=cov_type)
    assert len(model.ledger) == 0
    assert model.release(mu=1e9, cov_type=cov_type).entries[0].secure
    assert model.release(mu=1e12, cov_type=cov_type, rng=0).noise_model["scale"] > 0.0


def test_a_curators_moments_are_those_of_a_site_with_the_same_rows():
    rng = np.random.default_rng(2)
    X, y = rng.uniform(-2, 2, (300, 2)), rng.uniform(-3, 3, 300)
    bounds = {"bounds": [(-1, 1)] * 2, "radius": 0.8, "y_bounds": (-1, 2)}
    frame = pi.add_constant(pd.DataFrame(X, columns=["a", "b"]))
    release = pi.MomentOLS(y, frame, **bounds).release(mu=math.inf, cov_type="HC0")
    site = pi.MomentOLS.from_arrays([(y, frame)], trust="server", **bounds)
    other = site.release(mu=math.inf, cov_type="HC0")
    for name in ("moments", "public_moments", "residual_moments"):
        np.testing.assert_allclose(release.arrays[name], other.arrays[name], rtol=1e-12)


@pytest.mark.parametrize("trust", ["central", "local"])
def test_several_rows_of_a_unit_multiply_the_noise(trust):
    frame = pd.DataFrame({"id": np.repeat(np.arange(100), 2), "x": 0.1, "y": 0.2})
    frame["x"] = np.linspace(-1, 1, 200)
    scales = []
    for rows in (1, 2):
        schema = pi.Schema(
            {"x": (-1, 1), "y": (-1, 1)}, **({"unit": "id", "max_rows": 2} if rows == 2 else {})
        )
        release = pi.Moments(schema, "y ~ x", trust=trust).release(frame, mu=0.5, rng=0)
        scales.append(release.noise_model["scale"])
    expected = 2.0 if trust == "central" else math.sqrt(2.0)
    assert scales[1] / scales[0] == pytest.approx(expected, rel=1e-9)


def test_hc0_release_is_two_lines_whose_mu_add_up():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (500, 2))
    model = pi.MomentOLS(X[:, 0], X, bounds=[(-1, 1)] * 2, y_bounds=(-2, 2))
    release = model.release(mu=0.8, cov_type="HC0", rng=0)
    assert sum(entry.loss.mu**2 for entry in release.entries) == pytest.approx(0.64, rel=1e-12)
    assert len(release.entries) == 2
    assert release.noise_model["residual_bound"] < 10
