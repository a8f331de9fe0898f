"""Sparse designs on several machines, the paper's tables, and what private fits are compared with."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy import stats
from statsmodels.base.distributed_estimation import DistributedModel

from privinf.errors import ArgumentError, NotAvailableError
from studies.adassp import adassp
from studies.lasso import ERROR_COLUMN, LassoDesign, lasso_design
from studies.lasso_baselines import debiased_lasso, naive_split
from studies.lasso_solver import lasso, scaled_lasso
from studies.lasso_tables import paper_design, paper_table
from studies.simulation import binomial_limits

ALPHA = 1e-4
REFERENCE = Path(__file__).parents[1] / "reference"
NAMES = ["normal", "heteroskedastic", "skewed", "chi2", "equicorrelated", "spread"]
SMALL = {"machines": 2, "n": 20_000, "p": 12, "sparsity": 4}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_features_have_the_stated_covariance(name, dtype):
    """Every entry is a mean of n products: compared by its own standard error, at one joint level."""
    design = lasso_design(name, **SMALL)
    X = design.draw(1, dtype=dtype).X
    assert X.dtype == dtype
    upper = np.triu_indices(design.p)
    products = X[:, upper[0]].astype(float) * X[:, upper[1]]
    z = (products.mean(axis=0) - design.covariance()[upper]) / (products.std(axis=0) / np.sqrt(len(X)))
    assert np.abs(z).max() < stats.norm.isf(ALPHA / 2 / len(z))
    assert np.abs(X.mean(axis=0) * np.sqrt(len(X))).max() < stats.norm.isf(ALPHA / 2 / design.p)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("p", [8, 30])
def test_precision_is_the_inverse(name, p):
    design = lasso_design(name, p=p, sparsity=3)
    np.testing.assert_allclose(design.precision() @ design.covariance(), np.eye(p), atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_errors_are_uncorrelated_with_the_features_and_of_the_stated_size(name):
    design = lasso_design(name, **SMALL, error_sd=0.7)
    sample = design.draw(2)
    error = sample.y - sample.X @ sample.params[0]
    scores = sample.X * error[:, None]
    z = scores.mean(axis=0) / (scores.std(axis=0) / np.sqrt(len(error)))
    assert np.abs(z).max() < stats.norm.isf(ALPHA / 2 / design.p)
    squares = error**2
    spread = squares.std() / np.sqrt(len(error))
    assert abs(squares.mean() - 0.49) < stats.norm.isf(ALPHA / 2) * spread
    weight = sample.X[:, ERROR_COLUMN] ** 2
    assert (np.corrcoef(weight, squares)[0, 1] > 0.2) == (name in ("heteroskedastic", "skewed"))
    assert (stats.skew(error) > 0.5) == (name == "skewed")


@pytest.mark.parametrize("name", NAMES)
def test_sampling_variance_is_that_of_least_squares_scores(name):
    design = lasso_design(name, **SMALL)
    sample = design.draw(3)
    influence = (sample.X * (sample.y - sample.X @ sample.params[0])[:, None]) @ design.precision()
    squares = influence**2
    z = (squares.mean(axis=0) - design.sampling_variance()) / (squares.std(axis=0) / np.sqrt(len(squares)))
    assert np.abs(z).max() < stats.norm.isf(ALPHA / 2 / design.p)


def test_variance_without_a_closed_form_is_refused():
    with pytest.raises(NotAvailableError, match="chi-square"):
        LassoDesign(p=20, features="chi2", errors="skewed").sampling_variance()


def test_machines_share_u_and_have_parts_of_their_own():
    design = LassoDesign(machines=6, n=10, p=40, sparsity=7, shared_sparsity=4)
    sample = design.draw(4)
    np.testing.assert_allclose(np.linalg.norm(sample.params, axis=1), 1.0)
    assert (np.count_nonzero(sample.params, axis=1) == 7).all()
    assert set(np.flatnonzero(sample.shared)) == {0, 1, 2, 3}
    np.testing.assert_array_equal(sample.params[:, :4], np.tile(sample.shared[:4], (6, 1)))
    assert len({tuple(np.flatnonzero(row)) for row in sample.params}) > 1
    assert np.bincount(sample.machines).tolist() == [10] * 6
    y, X = sample.rows(2)
    np.testing.assert_array_equal(y, sample.y[sample.machines == 2])
    np.testing.assert_array_equal(X, sample.X[sample.machines == 2])


def test_rows_are_those_of_their_machine():
    """With hardly any error, each machine's least squares is its own truth and no other's."""
    design = LassoDesign(machines=3, n=700, p=30, sparsity=5, shared_sparsity=2, error_sd=1e-9)
    sample = design.draw(5)
    for machine in range(3):
        y, X = sample.rows(machine)
        np.testing.assert_allclose(np.linalg.lstsq(X, y)[0], sample.params[machine], atol=1e-9)


def test_spread_signals_alternate_over_the_whole_range():
    truth = lasso_design("spread", machines=1, n=5).draw(0).params[0]
    support = np.flatnonzero(truth)
    assert len(support) == 15
    assert support[-1] > 740
    assert np.diff(support).min() >= 53
    assert (np.sign(truth[support[1:]]) == -np.sign(truth[support[:-1]])).all()


def test_draws_are_reproducible_and_single_precision_keeps_the_model():
    design = LassoDesign(machines=2, n=600, p=20, sparsity=3, error_sd=1e-12)
    one, two = design.draw(6, dtype="float32"), design.draw(6, dtype="float32")
    np.testing.assert_array_equal(one.X, two.X)
    np.testing.assert_array_equal(one.y, two.y)
    np.testing.assert_allclose(one.X.astype(float) @ one.params[0], one.y, atol=1e-11)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"sparsity": 0}, "sparsity=0"),
        ({"p": 10, "sparsity": 11}, "must not decrease"),
        ({"sparsity": 3, "shared_sparsity": 4}, "must not decrease"),
        ({"correlation": 1.0}, "correlation"),
        ({"features": "cauchy"}, "features='cauchy'"),
        ({"p": 7, "sparsity": 2, "errors": "skewed"}, "feature 7"),
        ({"error_sd": 0.0}, "error_sd"),
    ],
)
def test_bad_designs_are_refused(fields, message):
    with pytest.raises(ArgumentError, match=message):
        LassoDesign(**fields)


def test_tables_of_the_paper():
    """A sum worked out by hand, the row with the least coverage, and the tables' own consistency."""
    table = paper_table()
    assert table.shape == (13, 18)
    assert table["error"].sum() == pytest.approx(0.3077)
    assert table["joint_support"].min() == table.loc[8, "joint_support"] == 0.772
    # the coverage of all coefficients is the mixture of those of zeros and non-zeros, up to rounding
    share = table["sparsity"] / table["p"]
    mixture = share * table["coverage_nonzero"] + (1 - share) * table["coverage_zero"]
    assert (mixture - table["coverage"]).abs().max() < 0.0015


def test_designs_of_the_tables():
    for row, setting in paper_table().iterrows():
        design = paper_design(row)
        for name in ("n", "machines", "p", "sparsity", "shared_sparsity"):
            assert getattr(design, name) == setting[name]
    for row in (0, 14, 1.0, True):
        with pytest.raises(ArgumentError, match="from 1 to 13"):
            paper_design(row)


# ---- the lasso and its debiasing. No R was at hand and no published example of hdi comes with its exact
# inputs, so the references are the optimality conditions, least squares, and statsmodels' own estimators.


def moments(n, p, seed=0, r=0.5):
    design = LassoDesign(machines=1, n=n, p=p, sparsity=3, correlation=r)
    sample = design.draw(seed)
    return sample, sample.X.T @ sample.X / n, sample.X.T @ sample.y / n


@pytest.mark.parametrize(("n", "p"), [(200, 40), (50, 120), (30, 31)])
@pytest.mark.parametrize("penalty", [0.02, 0.1, 0.5])
def test_optimality_conditions(n, p, penalty):
    _, gram, cross = moments(n, p)
    b = lasso(gram, cross, penalty)
    slope = cross - gram @ b
    assert np.abs(slope).max() <= penalty + 1e-8
    np.testing.assert_allclose(slope[b != 0], penalty * np.sign(b[b != 0]), atol=1e-8)
    assert penalty == 0.5 or 0 < np.count_nonzero(b) < p
    left_out = lasso(gram, cross, penalty, without=0)
    rest = lasso(gram[1:, 1:], cross[1:], penalty)
    assert left_out[0] == 0.0
    np.testing.assert_allclose(left_out[1:], rest, atol=1e-9)


def test_least_squares_is_the_limit_of_no_penalty():
    sample, gram, cross = moments(300, 20)
    ols = np.linalg.lstsq(sample.X, sample.y)[0]
    np.testing.assert_allclose(lasso(gram, cross, 0.0), ols, atol=1e-10)
    gaps = [np.abs(lasso(gram, cross, penalty) - ols).max() for penalty in (1e-2, 1e-4, 1e-6)]
    assert gaps[0] > 50 * gaps[1] > 2500 * gaps[2]
    # w is the inverse of the Gram matrix there, so that debiasing gives least squares from any start
    fit = debiased_lasso(sample.y, sample.X, penalty=0.3, node_penalty=0.0, cov_type="nonrobust")
    np.testing.assert_allclose(fit.params, ols, atol=1e-9)
    np.testing.assert_allclose(fit.precision, np.linalg.inv(gram), atol=1e-8)
    whole = sm.OLS(sample.y, sample.X).fit(cov_type="HC0")
    np.testing.assert_allclose(
        debiased_lasso(sample.y, sample.X, penalty=0.0, node_penalty=0.0).bse, whole.bse, rtol=1e-9
    )


@pytest.mark.parametrize(("n", "p"), [(200, 12), (40, 50)])
def test_lasso_agrees_with_statsmodels(n, p):
    sample, gram, cross = moments(n, p)
    theirs = sm.OLS(sample.y, sample.X).fit_regularized(
        alpha=0.08, L1_wt=1.0, maxiter=5000, cnvrg_tol=1e-14, zero_tol=0.0
    )
    np.testing.assert_allclose(lasso(gram, cross, 0.08), theirs.params, atol=1e-6)


def test_debiased_lasso_agrees_with_statsmodels(monkeypatch):
    """statsmodels' debiased estimator, with one partition, exact solves, and the score not divided by s^2."""
    sample, _, _ = moments(150, 10)
    strict = {"alpha": 0.1, "L1_wt": 1.0, "maxiter": 5000, "cnvrg_tol": 1e-14, "zero_tol": 0.0}
    fit_regularized = sm.OLS.fit_regularized
    monkeypatch.setattr(
        sm.OLS, "fit_regularized", lambda model, **how: fit_regularized(model, **strict | how)
    )
    theirs = DistributedModel(1, model_class=sm.OLS, estimation_kwds={"score_kwds": {"scale": 1.0}}).fit(
        iter([(sample.y, sample.X)]), fit_kwds={"alpha": 0.1, "L1_wt": 1.0}
    )
    ours = debiased_lasso(sample.y, sample.X, penalty=0.1, node_penalty=0.1)
    np.testing.assert_allclose(ours.params, theirs.params, atol=1e-6)


@pytest.mark.audit
def test_debiased_lasso_agrees_with_r_in_high_dimension():
    """Values of R's glmnet and the formula of hdi (tests/reference/debiased_lasso.R), p > n."""
    theirs = pd.read_csv(REFERENCE / "debiased_lasso.csv")
    i, j = np.ogrid[1:61, 1:91]
    x = (((31 * i + 17 * j + i * j * j) % 1009) / 1009 - 0.5) * math.sqrt(12)
    x[:, 1:] = x[:, 1:] + 0.4 * x[:, :-1]
    y = x[:, 0] - 0.7 * x[:, 4] + 0.5 * x[:, 39] + (np.arange(1, 61) ** 2 * 11 % 997) / 997 - 0.5
    for cov_type in ("nonrobust", "HC0"):
        ours = debiased_lasso(y, x, penalty=0.08, node_penalty=0.15, cov_type=cov_type)
        np.testing.assert_allclose(ours.sparse_params, theirs["lasso"], atol=1e-6)
        np.testing.assert_allclose(ours.params, theirs["params"], atol=1e-6)
        column = "robust" if cov_type == "HC0" else "nonrobust"
        np.testing.assert_allclose(ours.bse, theirs[column], atol=1e-6)


def test_scaled_lasso_finds_its_own_scale():
    sample, gram, cross = moments(400, 60)
    square = float(np.mean(sample.y**2))
    b, scale = scaled_lasso(gram, cross, square, 0.1)
    assert scale == pytest.approx(np.sqrt(np.mean((sample.y - sample.X @ b) ** 2)), abs=1e-7)
    np.testing.assert_allclose(b, lasso(gram, cross, 0.1 * scale), atol=1e-6)


@pytest.mark.audit
@pytest.mark.parametrize(("name", "n", "p"), [("normal", 300, 200), ("heteroskedastic", 3000, 60)])
def test_coverage_without_privacy(name, n, p):
    """The sandwich needs rows where the errors depend on a feature: with 300, x_7 is covered too rarely."""
    design = lasso_design(name, machines=1, n=n, p=p, sparsity=4)
    targets, runs, hits = np.array([0, 2, 7, 50]), 120, []
    for seed in range(runs):
        sample = design.draw(seed)
        found = debiased_lasso(sample.y, sample.X, targets=targets).conf_int()
        truth = sample.params[0, targets]
        hits.append((found[:, 0] <= truth) & (truth <= found[:, 1]))
    low, high = binomial_limits(0.95, runs * len(targets), 0.999)
    assert low <= np.mean(hits) <= high


def test_single_precision_and_bad_arguments():
    sample, _, _ = moments(300, 20)
    one = debiased_lasso(sample.y, sample.X, targets=[0, 3])
    two = debiased_lasso(sample.y, sample.X.astype(np.float32), targets=[0, 3])
    np.testing.assert_allclose(one.params, two.params, atol=1e-5)
    for how, message in [
        ({"targets": [20]}, "targets"),
        ({"targets": [0.5]}, "targets"),
        ({"penalty": -1.0}, "penalty"),
        ({"node_penalty": -1.0}, "node_penalty"),
        ({"cov_type": "HC3"}, "cov_type"),
    ]:
        with pytest.raises(ArgumentError, match=message):
            debiased_lasso(sample.y, sample.X, **how)
    with pytest.raises(ArgumentError, match="rows"):
        debiased_lasso(sample.y[1:], sample.X)


def test_machines_alone():
    sample = LassoDesign(machines=3, n=200, p=20, sparsity=3, shared_sparsity=1).draw(0)
    fits = naive_split(sample.y, sample.X, sample.machines, debiased_lasso, targets=[1])
    assert list(fits) == [0, 1, 2]
    y, X = sample.rows(1)
    np.testing.assert_array_equal(fits[1].params, debiased_lasso(y, X, targets=[1]).params)
    with pytest.raises(ArgumentError, match="rows"):
        naive_split(sample.y[1:], sample.X, sample.machines, debiased_lasso)


# ---- AdaSSP


BOUNDS = {"x_radius": 3.0, "y_bound": 4.0}


def test_adassp_without_noise_is_least_squares_among_the_clipped():
    sample, _, _ = moments(500, 12)
    fit = adassp(sample.y, sample.X, [0, 1, 2], epsilon=np.inf, delta=1e-6, x_radius=99.0, y_bound=99.0)
    np.testing.assert_allclose(fit.params[:3], np.linalg.lstsq(sample.X[:, :3], sample.y)[0], atol=1e-10)
    assert fit.ridge == 0.0
    norms = np.linalg.norm(sample.X[:, :3], axis=1)
    clipped = sample.X[:, :3] * np.minimum(1, 1 / norms)[:, None]
    tight = adassp(sample.y, sample.X, [0, 1, 2], epsilon=np.inf, delta=1e-6, x_radius=1.0, y_bound=0.5)
    expected = np.linalg.lstsq(clipped, np.clip(sample.y, -0.5, 0.5))[0]
    np.testing.assert_allclose(tight.params[:3], expected, atol=1e-10)


def test_adassp_spends_what_it_says_and_its_sensitivities_hold():
    """The noise of three releases, recorded, against how far two extreme records can move each."""
    rng = np.random.default_rng(0)
    sample, _, _ = moments(60, 5)
    for epsilon in (0.3, 3.0):
        fit = adassp(sample.y, sample.X, [0, 1, 2], epsilon=epsilon, delta=1e-6, rng=0, **BOUNDS)
        assert fit.privacy.epsilon(1e-6) == pytest.approx(epsilon, rel=1e-9)
    claimed = {entry.label: entry.sensitivity.value for entry in fit.privacy.entries}
    upper = np.triu_indices(3)
    stretch = np.where(upper[0] == upper[1], 1.0, np.sqrt(2.0))
    worst = dict.fromkeys(claimed, 0.0)
    base = rng.standard_normal((20, 3)) * 0.1
    for _ in range(2000):
        x = rng.standard_normal((2, 3))
        x *= BOUNDS["x_radius"] / np.linalg.norm(x, axis=1)[:, None]
        if rng.random() < 0.2:
            x[1] = -x[0]
        y = rng.choice([-1.0, 1.0], 2) * BOUNDS["y_bound"]
        grams = [base.T @ base + np.outer(one, one) for one in x]
        gap = (grams[0] - grams[1])[upper] * stretch
        moved = {
            "smallest eigenvalue": abs(np.subtract(*[np.linalg.eigvalsh(gram)[0] for gram in grams])),
            "X'X": np.linalg.norm(gap),
            "X'y": np.linalg.norm(x[0] * y[0] - x[1] * y[1]),
        }
        worst = {label: max(worst[label], moved[label]) for label in claimed}
    for label, most in worst.items():
        assert most <= claimed[label]
    assert worst["X'X"] > 0.95 * claimed["X'X"]
    assert worst["X'y"] > 0.99 * claimed["X'y"]


def test_adassp_ridge_covers_the_noise():
    """With data that say nothing, the regularised matrix is positive definite as often as promised."""
    X = np.zeros((50, 8))
    X[:, 0] = 1e-3
    finite = [
        np.abs(adassp(X[:, 0], X, range(8), epsilon=0.5, delta=1e-6, rng=seed, **BOUNDS).params).max() < 10.0
        for seed in range(200)
    ]
    assert np.mean(finite) >= binomial_limits(0.95, 200, 0.999)[0]


def test_adassp_bad_arguments():
    sample, _, _ = moments(60, 5)
    how = {"epsilon": 1.0, "delta": 1e-6, **BOUNDS}
    for support in ([0, 0], [5], [-1], [0.5]):
        with pytest.raises(ArgumentError, match="support"):
            adassp(sample.y, sample.X, support, **how)
    with pytest.raises(ArgumentError, match="x_radius"):
        adassp(sample.y, sample.X, [0], **how | {"x_radius": 0.0})
    with pytest.raises(ArgumentError, match="one row"):
        adassp(sample.y[1:], sample.X, [0], **how)
