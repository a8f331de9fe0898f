"""Score tests of restrictions: statsmodels without noise, the joint test where nothing is left free."""

import numpy as np
import pytest
import statsmodels.api as sm
from statsmodels.base._parameter_inference import _lm_robust

from privinf.errors import NotPositiveDefiniteError
from privinf.inference.corrected_features import CorrectedLeastSquares
from privinf.inference.score_sets import Restriction, restricted_score_test
from privinf.inference.score_test import score_test
from privinf.moments.equation import NoisyTotals

R = np.array([[0.0, 1.0, -1.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
Q = np.array([0.1, -0.2])


def rows(n=300, seed=0):
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(n), rng.uniform(-1, 1, (n, 3))])
    return X, X @ [0.5, 0.3, 0.2, -0.2] + (0.2 + 0.5 * X[:, 1] ** 2) * rng.standard_normal(n)


def totals(X, y, *, robust=False, scale=0.0, seed=0):
    rng, Z, n = np.random.default_rng(seed), np.column_stack([X, y]), len(y)
    E = np.triu(rng.standard_normal((5, 5)) / np.sqrt(2), 1)
    E = scale * (E + E.T + np.diag(rng.standard_normal(5)))
    E[0, 0] = 0.0
    H = None
    if robust:
        e = y - X @ np.linalg.lstsq(X, y, rcond=None)[0]
        H = (X * e[:, None]).T @ (X * e[:, None]) / n
    return NoisyTotals((Z.T @ Z + E) / n, n=n, public=1, scale=scale, residual_moments=H)


def restricted_fit(X, y, R, q):
    """Return restricted least squares by the multipliers' equations."""
    k = len(R)
    K = np.block([[X.T @ X, R.T], [R, np.zeros((k, k))]])
    return np.linalg.solve(K, np.append(X.T @ y, q))[: X.shape[1]]


@pytest.mark.parametrize("k", [1, 2])
def test_equal_variance_is_the_multiplier_test_of_statsmodels(k):
    X, y = rows()
    found = restricted_score_test(totals(X, y), R[:k], Q[:k])
    b = restricted_fit(X, y, R[:k], Q[:k])
    e = y - X @ b
    assert found.statistic == pytest.approx(lm(X, e), rel=1e-9)
    assert found.df == k
    zero = np.eye(4)[[2, 3]]
    full, small = sm.OLS(y, X).fit(), sm.OLS(y, X[:, :2]).fit()
    statistic, pvalue, _ = full.compare_lm_test(small)
    ours = restricted_score_test(totals(X, y), zero, np.zeros(2))
    assert (ours.statistic, ours.pvalue) == pytest.approx((statistic, pvalue), rel=1e-9)


def lm(X, e):
    """Return n times the uncentred R-squared of restricted residuals on the columns."""
    fitted = X @ np.linalg.lstsq(X, e, rcond=None)[0]
    return len(e) * float(fitted @ fitted) / float(e @ e)


def test_records_scores_give_the_generalised_test_of_statsmodels():
    """Every record's scores at the null make the meat, centred: statsmodels' formula with that meat."""
    X, y = rows()
    system = CorrectedLeastSquares(X, y, np.zeros((4, 4)))
    b = restricted_fit(X, y, R, Q)
    scores = X * (y - X @ b)[:, None]
    B = len(y) * np.cov(scores.T, bias=True)
    theirs = _lm_robust(scores.sum(axis=0), R, np.linalg.inv(X.T @ X), B)
    ours = restricted_score_test(system, R, Q)
    assert (ours.statistic, ours.pvalue) == pytest.approx((theirs.statistic, theirs.pvalue), rel=1e-9)


@pytest.mark.parametrize("robust", [False, True])
def test_all_noisy_columns_restricted_is_the_joint_test(robust):
    X, y = rows()
    system, null = totals(X, y, robust=robust, scale=3.0), np.array([0.3, 0.2, -0.2])
    ours = restricted_score_test(system, np.eye(4)[1:], null)
    joint = score_test(system, null)
    assert (ours.statistic, ours.df) == pytest.approx((joint.statistic, joint.df), rel=1e-9)


def test_the_test_does_not_depend_on_how_restrictions_are_written():
    X, y = rows()
    system, M = totals(X, y, scale=3.0), np.array([[2.0, 1.0], [-1.0, 3.0]])
    one, two = restricted_score_test(system, R, Q), restricted_score_test(system, M @ R, M @ Q)
    assert one.statistic == pytest.approx(two.statistic, rel=1e-9)
    every = restricted_score_test(system, np.eye(4), np.zeros(4))
    assert every.df == 4


def test_weak_tested_directions_are_never_inverted():
    """The column under test is within its noise: A is indefinite along it, and the test goes on."""
    X, y = rows(4000)
    X[:, 3] *= 1e-3
    system = totals(X, X @ [0.5, 0.3, 0.2, 0.0] + 0.1 * np.sin(np.arange(4000.0)), scale=30.0, seed=3)
    assert np.linalg.eigvalsh(system.A)[0] < 0.01
    found = restricted_score_test(system, np.eye(4)[[3]], np.zeros(1))
    assert 0.0 <= found.pvalue <= 1.0
    with pytest.raises(NotPositiveDefiniteError, match="collinear"):
        restricted_score_test(CorrectedLeastSquares(X, 0.0 * y, np.zeros((4, 4))), R, np.zeros(2))


def test_restrictions_are_kept_and_free_directions_break_none():
    null = Restriction.from_arrays(R, Q)
    c = np.array([0.4, -1.0])
    np.testing.assert_allclose(R @ null.at(c), Q, atol=1e-12)
    np.testing.assert_allclose(R @ null.tested, np.eye(2), atol=1e-12)
    slope = np.diag([1.0, 2.0, 3.0, 4.0]) + 0.3
    np.testing.assert_allclose(null.projection(slope) @ slope @ null.free, 0.0, atol=1e-12)
    np.testing.assert_allclose(null.free.T @ slope @ null.direction(slope), 0.0, atol=1e-12)
    np.testing.assert_allclose(null.lift @ np.append(c, 1.0), np.append(null.at(c), 1.0))


@pytest.mark.audit
def test_level_and_power_under_noise():
    """A small study: the large one is benchmarks/score_tests.py."""
    reject = np.zeros(3)
    for seed in range(400):
        rng = np.random.default_rng(seed)
        X = np.column_stack([np.ones(1000), rng.uniform(-1, 1, (1000, 3))])
        y = X @ [0.5, 0.3, 0.3, -0.2] + 0.3 * rng.standard_normal(1000)
        system = totals(X, y, scale=10.0, seed=seed + 10_000)
        nulls = (R, np.array([0.0, -0.2])), (R[:1], np.zeros(1)), (R[1:], np.zeros(1))
        reject += [restricted_score_test(system, a, b).pvalue < 0.05 for a, b in nulls]
    assert (reject[:2] / 400 < 0.082).all()  # 99.8% limits of .05
    assert reject[0] / 400 > 0.02
    assert reject[2] / 400 > 0.9
