"""Mixed rows: unbiased equations, the variance against simulation at two sizes, the F score test."""

import math

import numpy as np
import pytest
import statsmodels.api as sm
from scipy import stats

from privinf.errors import ArgumentError, NotAvailableError
from privinf.inference.linear_scores import CHI_SQUARE, ScoreDistribution
from privinf.inference.score_sets import score_sets
from privinf.inference.score_test import score_test
from privinf.inference.solution import solve
from privinf.mixing.equation import MixedLeastSquares
from privinf.mixing.rows import normal_meat, residual_excess, row_draws, row_terms
from studies.simulation import binomial_limits

SLOPES = np.array([0.4, -0.3, 0.2])
SHARE = 0.05


def released(rng, *, n, k, tau, intercept=True, spread=0.2):
    """Gaussian-limit rows of D with noise, and D: rows are exact draws given D'D."""
    x = rng.uniform(-1, 1, (n, 3))
    y = 0.5 * intercept + x @ SLOPES + spread * rng.uniform(-1, 1, n)
    D = np.column_stack([np.ones(n), x, y])
    root = np.linalg.cholesky(D.T @ D)
    R = math.sqrt((1 - SHARE) / k) * rng.standard_normal((k, 5)) @ root.T
    noise = tau * rng.standard_normal((k + 1, 4))
    R[:, 1:] += noise[:k]
    top = math.sqrt(SHARE) * D.sum(axis=0)
    top[1:] += noise[k]
    return R, top, D


def system(rows, n, tau, intercept=True, **options):
    R, top, _ = rows
    if intercept:
        means = {"constant": 0, "ones_row": top[:4], "ones_response": top[4]}
        return MixedLeastSquares(
            R[:, :4], R[:, 4], [0.0, *[tau**2] * 3], y_noise=tau**2, n=n, share=SHARE, **means, **options
        )
    return MixedLeastSquares(R[:, 1:4], R[:, 4], [tau**2] * 3, y_noise=tau**2, n=n, share=SHARE, **options)


@pytest.mark.audit
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize(("n", "k", "tau"), [(2000, 200, 0.5), (8000, 400, 1.0)])
def test_variance_against_simulation(intercept, n, k, tau):
    """The stated standard errors are those of the estimates, and 95% intervals cover, for both targets."""
    rng = np.random.default_rng(11)
    truth = np.append(0.5, SLOPES) if intercept else SLOPES
    reps, found = 400, {"error": [], "bse": [], "population": [], "sample": []}
    for _ in range(reps):
        rows = released(rng, n=n, k=k, tau=tau, intercept=intercept)
        own = system(rows, n, tau, intercept)
        solution, given = solve(own), solve(own, target="sample")
        D = rows[2][:, :4] if intercept else rows[2][:, 1:4]
        full = np.linalg.lstsq(D, rows[2][:, 4], rcond=None)[0]
        quantile = stats.t.ppf(0.975, own.df)
        found["error"].append(solution.params - truth)
        found["bse"].append(np.diag(solution.cov))
        found["population"].append(abs(solution.params - truth) < quantile * np.sqrt(np.diag(solution.cov)))
        found["sample"].append(abs(given.params - full) < quantile * np.sqrt(np.diag(given.cov)))
    sd, stated = np.std(found["error"], axis=0), np.sqrt(np.median(found["bse"], axis=0))
    np.testing.assert_allclose(stated, sd, rtol=0.12)
    assert (abs(np.mean(found["error"], axis=0)) < 4 * sd / math.sqrt(reps)).all()
    low, high = binomial_limits(0.95, reps, level=1 - 0.01 / 32)
    for target in ("population", "sample"):
        assert (np.mean(found[target], axis=0) >= low).all()
        assert (np.mean(found[target], axis=0) <= high).all()


@pytest.mark.audit
def test_sampling_error_matters_where_rows_are_many():
    """With k near n and little noise, the population's intervals must be wider than the sample's."""
    rng = np.random.default_rng(5)
    missed = []
    for _ in range(200):
        own = system(released(rng, n=400, k=399, tau=0.01, spread=1.0), 400, 0.01)
        solution = solve(own, target="sample")
        half = stats.t.ppf(0.975, own.df) * np.sqrt(np.diag(solution.cov))
        missed.append(abs(solution.params[1:] - SLOPES) > half[1:])
    assert np.mean(missed) > 0.12


@pytest.mark.parametrize("intercept", [True, False])
def test_score_statistic_is_the_f_test_on_cleaned_rows(intercept):
    rng = np.random.default_rng(0)
    n, k, tau = 3000, 50, 2.0
    own = system(released(rng, n=n, k=k, tau=tau), n, tau, intercept, population=False)
    X, y = own._X, own._y
    for slopes in (np.zeros(3), SLOPES, np.array([3.0, -2.0, 5.0])):
        e = y - X @ slopes
        t = own._common(slopes)
        X0 = X + np.outer(e, t) * k / (e @ e)
        rest = e - X0 @ np.linalg.lstsq(X0, e, rcond=None)[0]
        ratio = (e @ e - rest @ rest) / 3 / (rest @ rest / (k - 3))
        test = score_test(own, slopes)
        assert test.pvalue == pytest.approx(stats.f.sf(ratio, 3, k - 3), rel=1e-8)
        assert test.law.described(test.statistic, 3) == f"F(3, {k - 3}) = {ratio:.4g}"


@pytest.mark.audit
@pytest.mark.parametrize(("n", "k", "tau"), [(1000, 30, 3.0), (3000, 60, 1.0)])
def test_score_test_size_where_nothing_is_identified(n, k, tau):
    rng = np.random.default_rng(2)
    reps, rejected, exact = 1500, 0, 0
    for _ in range(reps):
        own = system(released(rng, n=n, k=k, tau=tau), n, tau)
        rejected += score_test(own, SLOPES).pvalue < 0.05
        exact += own.exact_score_test(np.append(0.0, SLOPES), rng.standard_normal(k))[1] < 0.05
    low, high = binomial_limits(0.05, reps, level=1 - 0.01 / 4)
    assert low <= exact / reps <= high
    assert low - 0.01 <= rejected / reps <= high + 0.01


def test_score_sets_invert_the_test():
    rng = np.random.default_rng(3)
    n, k, tau = 20_000, 120, 1.0
    own = system(released(rng, n=n, k=k, tau=tau), n, tau)
    for column, found in enumerate(score_sets(own, alpha=0.1)):
        low, high = found.hull
        inside = solve(own).params[column]
        assert low < inside < high
    weak = system(released(rng, n=500, k=20, tau=20.0), 500, 20.0)
    assert not score_sets(weak, [1])[0].bounded


def test_tensor_is_the_null_meat():
    rng = np.random.default_rng(4)
    own = system(released(rng, n=2000, k=40, tau=1.0), 2000, 1.0)
    b = rng.standard_normal(4)
    w = np.append(b, 1.0)
    np.testing.assert_allclose(own.null_meat(b), np.einsum("k,l,klab->ab", w, w, own.tensor()))
    np.testing.assert_allclose(own.null_meat(b), own.null_meat(b).T)


def test_no_noise_keeps_mixing_error():
    rng = np.random.default_rng(6)
    own = system(released(rng, n=2000, k=500, tau=0.0), 2000, 0.0)
    solution = solve(own, target="sample")
    assert solution.cov is not None
    assert own.noise_free.all()
    assert solution.noise_cov[1, 1] > 0.0


def test_law_of_the_statistic():
    distribution = ScoreDistribution(40, 3)
    critical = distribution.critical(3, 0.05)
    assert distribution.pvalue(critical, 3) == pytest.approx(0.05)
    assert distribution.pvalue(40.0, 3) == 0.0
    assert distribution.pvalue(1e9, 3) == 0.0
    assert ScoreDistribution(10**7, 3).critical(3, 0.05) == pytest.approx(
        CHI_SQUARE.critical(3, 0.05), rel=1e-4
    )
    assert (distribution.tail, CHI_SQUARE.tail) == ("P>F", "P>chi2")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"y": np.zeros(4)}, "do not match"),
        ({"noise": [-1.0, 1.0]}, "variances"),
        ({"noise": [1.0]}, "do not match"),
        ({"share": 1.0}, "share"),
        ({"X": np.zeros((2, 2)), "y": np.zeros(2)}, "release at least 3"),
        ({"constant": 0, "ones_row": [1.0]}, "one entry for each column"),
        ({"constant": 0, "ones_row": [0.0, 1.0], "ones_response": 1.0}, "must have a positive number"),
    ],
)
def test_bad_arguments(change, words):
    rng = np.random.default_rng(0)
    given = {"X": rng.standard_normal((9, 2)), "y": rng.standard_normal(9), "noise": [1.0, 1.0]} | change
    with pytest.raises(ArgumentError, match=words):
        MixedLeastSquares(given.pop("X"), given.pop("y"), given.pop("noise"), y_noise=1.0, n=100, **given)


def test_fuller_is_not_offered():
    rng = np.random.default_rng(0)
    own = system(released(rng, n=2000, k=40, tau=1.0), 2000, 1.0)
    with pytest.raises(NotAvailableError, match="random linear combinations"):
        solve(own, stabilization="fuller")


def test_terms_of_a_row_are_the_covariance_of_its_score():
    """Simulated: rows of normal people and noise; each term by switching off what it is not of."""
    rng, size, draws = np.random.default_rng(2), 3.0, 400_000
    gram, S, slopes, response = (
        np.array([[1.0, 0.3], [0.3, 0.5]]),
        np.diag([0.4, 0.8]),
        np.array([0.9, -0.5]),
        0.7,
    )
    x = rng.standard_normal((draws, 2)) @ np.linalg.cholesky(size * gram).T
    e, u = math.sqrt(size * 0.6) * rng.standard_normal(draws), rng.standard_normal((draws, 2)) @ np.sqrt(S)
    v = math.sqrt(response) * rng.standard_normal(draws)
    terms = row_terms(size, gram, 0.6, S, S @ slopes, slopes, response)
    parts = {
        "feature noise": u * e[:, None],
        "feature noise in residuals": -x * (u @ slopes)[:, None],
        "noise on noise": -u * (u @ slopes)[:, None],
        "response noise": (x + u) * v[:, None],
    }
    assert terms.keys() == parts.keys()
    for name, part in parts.items():
        np.testing.assert_allclose(np.cov(part.T), terms[name], atol=0.02 * np.abs(terms[name]).max())
    whole = np.cov(((x + u) * (e + v - u @ slopes)[:, None]).T)
    np.testing.assert_allclose(whole, size**2 * 0.6 * gram + sum(terms.values()), atol=0.02 * whole.max())


def test_draws_of_rows_have_their_law_and_the_rest():
    rng, df = np.random.default_rng(0), 12.0
    rows = np.array([[80.0, 40.0], [40.0, 23.0]])
    shifts, statistics = row_draws(rows, np.array([[20.0, 4.0], [4.0, 5.0]]), df, 40_000, rng)
    np.testing.assert_allclose(np.cov(shifts.T), [[100.0, 44.0], [44.0, 28.0]], rtol=0.05)
    for j in (0, 1):
        assert stats.kstest(statistics[:, j], stats.t(df).cdf).pvalue > 1e-3
        assert stats.kstest(statistics[:, j], stats.norm.cdf).pvalue < 1e-6


def plain_rows(rng, reps, k, d, tau, slopes, spread=0.6):
    """Normal rows, d columns of variance 1, noise of sd tau in x and y; shapes (reps, k, d) and (reps, k)."""
    x = rng.standard_normal((reps, k, d))
    y = x @ slopes + spread * rng.standard_normal((reps, k)) + tau * rng.standard_normal((reps, k))
    return x + tau * rng.standard_normal(x.shape), y


def rows_system(X, y, tau, **options):
    """The equation of rows of variance 1, which n people would give whose sums have covariance k."""
    k, d = X.shape
    return MixedLeastSquares(X, y, [tau**2] * d, y_noise=tau**2, n=k, **options)


def test_without_noise_it_is_the_normal_regression_of_the_rows():
    """Given the people the k rows are a normal sample: s^2 (X'X)^-1 with k - d degrees of freedom."""
    (X,), (y,) = plain_rows(np.random.default_rng(0), 1, 25, 4, 0.0, np.array([1.0, -1.0, 0.5, 0.0]))
    own = rows_system(X, y, 0.0)
    fit = sm.OLS(y, X).fit()
    np.testing.assert_allclose(solve(own, target="sample").cov, fit.cov_params(), rtol=1e-9)
    assert own.df == fit.df_resid


@pytest.mark.audit
def test_few_rows_cover_alone_and_jointly():
    """t and F limits at 60 rows; a sandwich of the rows has them far too short jointly."""
    k, d, tau = 60, 8, 0.3
    rng, reps, slopes = np.random.default_rng(1), 1_000, np.resize([1.0, -1.0, 0.5, 0.0], d)
    one, joint, sandwiched = np.zeros((reps, d)), np.zeros(reps), np.zeros(reps)
    for i, (X, y) in enumerate(zip(*plain_rows(rng, reps, k, d, tau, slopes), strict=True)):
        own = rows_system(X, y, tau)
        solution = solve(own, target="sample")
        off = solution.params - slopes
        one[i] = abs(off) <= stats.t.ppf(0.975, own.df) * np.sqrt(np.diag(solution.cov))
        limit = d * stats.f.ppf(0.95, d, own.df)
        joint[i] = off @ np.linalg.solve(solution.cov, off) <= limit
        psi = X * (y - X @ solution.params)[:, None]
        scatter = psi.T @ psi / own.df * k / own.n**2
        score = own.A @ off
        sandwiched[i] = score @ np.linalg.solve(scatter, score) <= limit
    low, high = binomial_limits(0.95, reps, 1 - 0.01 / 3)
    assert low <= one.mean() <= high
    assert low <= joint.mean() <= high
    assert sandwiched.mean() < 0.9


def test_noise_makes_residuals_larger_as_said():
    rng, k, d, tau, reps = np.random.default_rng(3), 300, 4, 0.7, 1_500
    slopes = np.array([1.0, -1.0, 0.5, 0.0])
    X, y = plain_rows(rng, reps, k, d, tau, slopes)
    gram = np.einsum("rki,rkj->rij", X, X, optimize=True) / k - tau**2 * np.eye(d)
    at = np.linalg.solve(gram, np.einsum("rki,rk->ri", X, y)[..., None] / k)[..., 0]
    residual = y - np.einsum("rki,ri->rk", X, at)
    S, truth = tau**2 * np.eye(d), 0.36 + tau**2 * (1.0 + slopes @ slopes)
    share = (residual**2).sum(axis=1).mean() / (k - d) / truth - 1.0
    said = residual_excess(np.eye(d), S, slopes, truth) / k
    assert said == pytest.approx(share, rel=0.2)
    assert said > 0.01
    assert residual_excess(np.eye(d), 0.0 * S, slopes, truth) == 0.0
    assert residual_excess(-np.eye(d), S, slopes, truth) == 0.0


def test_products_of_one_person_are_no_error_of_disjoint_rows():
    """People of unequal variances, half as many rows: the normal meat is right, the sandwich too large."""
    rng, n, k, reps = np.random.default_rng(4), 400, 200, 1_500
    x = rng.uniform(-1, 1, n)
    e = x * (rng.exponential(1.0, n) - 1.0)
    e -= x * (x @ e) / (x @ x)
    found = np.empty((reps, 3))
    for i in range(reps):
        into, signs = rng.integers(0, k, n), rng.choice([-1.0, 1.0], n)
        X, E = np.bincount(into, signs * x, k)[:, None], np.bincount(into, signs * e, k)
        normal = normal_meat(X, E, np.zeros(1), np.eye(1), np.zeros((1, 1)))[0, 0] * (k - 1)
        found[i] = X[:, 0] @ E, normal, (X[:, 0] ** 2 * E**2).sum()
    variance, normal, sandwich = found[:, 0].var(), *found[:, 1:].mean(axis=0)
    assert normal == pytest.approx(variance, rel=0.12)
    assert sandwich > 1.5 * variance
    assert sandwich - normal == pytest.approx((x**2 * e**2).sum(), rel=0.12)


def test_disjoint_rows_show_the_people_s_unequal_variances():
    """k = n, weak noise: the population's error is robust; with few rows it is the homoskedastic one."""
    n, tau, off = 3_000, 0.05, {}
    rng = np.random.default_rng(5)
    x = rng.uniform(-1, 1, (n, 1))
    e = 2.0 * x[:, 0] * rng.standard_normal(n)
    y = x[:, 0] + e
    homoskedastic = e @ e / n * np.mean(x**2)
    for k in (n, 60):
        into, signs = rng.integers(0, k, n), rng.choice([-1.0, 1.0], n)
        rows = np.column_stack([np.bincount(into, signs * v, k) for v in (x[:, 0], y)])
        rows += tau * rng.standard_normal(rows.shape)
        own = MixedLeastSquares(rows[:, :1], rows[:, 1], [tau**2], y_noise=tau**2, n=n, disjoint=True)
        at = np.linalg.solve(own.A, own.g)
        off[k] = (own.meat(at) - own.noise_meat(at))[0, 0]
    assert off[n] == pytest.approx(np.mean(x[:, 0] ** 2 * e**2), rel=0.25)
    assert off[n] > 1.35 * homoskedastic
    assert off[60] == pytest.approx(homoskedastic, rel=0.5)
