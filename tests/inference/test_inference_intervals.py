"""Contrasts with Satterthwaite's degrees of freedom and with room for a bias; joint laws at their worst."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from privinf.errors import ArgumentError
from privinf.inference.delta_method import predict_mean
from privinf.inference.estimate import Estimate
from privinf.inference.intervals import (
    Precision,
    contrast_df,
    joint_distribution,
    joint_statistic,
    moved_quantile,
    precision_of,
)

COV = np.array([[2.0, 0.5, 0.1], [0.5, 1.0, -0.3], [0.1, -0.3, 0.7]])
NAMES = ("a", "b", "c")


def made(noise=0.0, df_resid=7.0, bias=None, **given):
    noise_cov = noise * np.diag(np.diag(COV)) if np.isscalar(noise) else noise
    params = np.array([1.0, -2.0, 0.5])
    return Estimate(
        params=params,
        cov=COV,
        names=NAMES,
        nobs=10,
        noise_cov=noise_cov,
        df_resid=df_resid,
        bias=bias,
        **given,
    )


def test_df_is_n_less_p_without_noise_and_grows_with_its_square_share():
    R = np.array([[1.0, 0, 0], [0, 1, 0], [1, -1, 2]])
    np.testing.assert_allclose(contrast_df(made(), R), 7.0)
    noise = np.diag([1.0, 0.0, 0.0])
    np.testing.assert_allclose(contrast_df(made(noise), R)[:2], [7.0 * 4.0, 7.0])
    variance = R[2] @ COV @ R[2]
    np.testing.assert_allclose(contrast_df(made(noise), R)[2], 7.0 * (variance / (variance - 1.0)) ** 2)
    assert np.isinf(contrast_df(made(np.diag([2.0, 0.0, 0.0])), R)[0])
    np.testing.assert_allclose(contrast_df(made(noise), R[:1], extra=3.0), 7.0 * (5.0 / 4.0) ** 2)
    assert contrast_df(made(df_resid=np.inf), R) == np.inf


@pytest.mark.audit
def test_satterthwaite_covers_where_noise_of_known_variance_is_added():
    rng = np.random.default_rng(0)
    draws, df = 200_000, 5
    for noise in (0.0, 0.5, 2.0, 20.0):
        sampling = rng.chisquare(df, draws) / df
        error = rng.standard_normal(draws) * np.sqrt(1.0 + noise)
        total = sampling + noise
        found = Precision(np.sqrt(total), df * (total / sampling) ** 2).half_length(0.05)
        assert 0.944 < (np.abs(error) <= found).mean() < 0.957


@pytest.mark.parametrize("df", [np.inf, 3.0, 30.0])
@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.3, 0.9])
def test_half_lengths_and_pvalues_are_of_one_family(df, alpha):
    se, bias = np.array([1.0, 2.0, 0.5, 1.0]), np.array([0.0, 1.0, 4.0, 1e-12])
    precise = Precision(se, df, bias)
    half = precise.half_length(alpha)
    np.testing.assert_allclose(precise.pvalues(half / se), alpha, rtol=1e-8)
    plain = Precision(se, df)
    np.testing.assert_allclose(half[[0, 3]], plain.half_length(alpha)[[0, 3]], rtol=1e-10)
    assert (half[1:3] > plain.half_length(alpha)[1:3]).all()
    assert (half <= plain.half_length(alpha) + bias + 1e-12).all()


def test_normal_quantiles_are_those_of_the_noncentral_chi_square():
    moved = np.array([0.0, 0.1, 1.0, 3.0, 20.0])
    expected = np.sqrt(stats.ncx2.ppf(0.95, 1, moved**2))
    np.testing.assert_allclose(moved_quantile(moved, 0.05), expected, rtol=1e-8)


@pytest.mark.audit
def test_moved_t_intervals_cover_whatever_the_bias():
    rng = np.random.default_rng(1)
    for df in (2.0, 10.0):
        spread = np.sqrt(rng.chisquare(df, 20_000) / df)
        error = rng.standard_normal(20_000)
        for bias in (0.0, 0.5, 2.0, 5.0):
            half = Precision(spread, df, np.full(20_000, bias)).half_length(0.05)
            assert 0.944 < (np.abs(error + bias) <= half).mean() < 0.96


def test_a_number_without_error_keeps_its_bias():
    np.testing.assert_array_equal(
        Precision(np.zeros(2), np.inf, np.array([0.0, 2.0])).half_length(0.1), [0, 2]
    )


def test_the_joint_law_is_f_without_noise_and_chi_square_under_much():
    R = np.eye(3)[:2]
    assert joint_distribution(made(), R).df == pytest.approx(7.0)
    statistic = joint_statistic(made(), R)
    beta = made().params[:2]
    assert statistic == pytest.approx(beta @ np.linalg.solve(COV[:2, :2], beta))
    assert joint_distribution(made(), R).pvalue(statistic) == pytest.approx(stats.f.sf(statistic / 2, 2, 7.0))
    assert np.isinf(joint_distribution(made(COV), R).df)
    assert joint_distribution(made(COV), R).pvalue(5.0) == pytest.approx(stats.chi2.sf(5.0, 2))
    half = joint_distribution(made(COV / 2), R)
    assert half.df == pytest.approx(28.0)
    least = min(float(contrast_df(made(np.diag([1.0, 0, 0])), c[None])[0]) for c in (R[0], R[1], R[0] + R[1]))
    assert joint_distribution(made(np.diag([1.0, 0, 0])), R).df <= least


def test_the_joint_law_bounds_every_bias_in_the_box():
    bias = np.array([1.0, 0.5, 2.0])
    R = np.array([[1.0, -1.0, 0.0], [0.0, 1.0, 1.0]])
    distribution = joint_distribution(made(bias=bias, df_resid=np.inf), R)
    V = R @ COV @ R.T
    for signs in np.array(np.meshgrid(*[[-1.0, 1.0]] * 3)).reshape(3, -1).T:
        moved = R @ (signs * bias)
        assert moved @ np.linalg.solve(V, moved) <= distribution.noncentrality + 1e-12
    assert distribution.pvalue(20.0) == pytest.approx(stats.ncx2.sf(20.0, 2, distribution.noncentrality))
    finite = joint_distribution(made(bias=bias), R)
    assert finite.pvalue(20.0) == pytest.approx(stats.ncf.sf(10.0, 2, 7.0, finite.noncentrality))


@pytest.mark.parametrize("df", [np.inf, 7.0])
def test_one_restriction_gives_the_p_value_of_its_contrast(df):
    estimate, R = made(bias=np.array([0.3, 0.2, 0.0]), df_resid=df), np.array([[1.0, 2.0, -1.0]])
    z = estimate.linear(R)[0] / precision_of(estimate, R).se
    expected = precision_of(estimate, R).pvalues(z)[0]
    assert joint_distribution(estimate, R).pvalue(joint_statistic(estimate, R)) == pytest.approx(expected)


def test_estimates_carry_bias_and_degrees_of_freedom_along():
    bias = np.array([0.1, 0.2, 0.3])
    T = np.array([[2.0, -1.0, 0.0], [0.0, 0.0, -3.0]])
    moved = made(bias=bias).transformed(T, names=["x", "y"])
    np.testing.assert_allclose(moved.bias, [0.4, 0.9])
    assert moved.df_resid == 7.0
    assert made(bias=bias).with_cov(COV, cov_type="HC0").bias is not None
    for wrong in ({"bias": -bias}, {"bias": bias[:2]}, {"df": 3.0}, {"df_resid": 0.0}):
        with pytest.raises(ArgumentError):
            made(**wrong)


def test_predictions_take_the_bias_of_their_row():
    bias = np.array([0.1, 0.2, 0.0])
    found = predict_mean(np.array([[1.0, -1.0, 3.0]]), np.zeros(3), COV, bias=bias)
    np.testing.assert_allclose(found.bias, [0.3])
    width = np.diff(found.conf_int())[0, 0]
    assert width > np.diff(predict_mean(np.array([[1.0, -1.0, 3.0]]), np.zeros(3), COV).conf_int())[0, 0]
