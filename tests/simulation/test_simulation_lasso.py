"""Sparse designs on several machines, the paper's tables, and what private fits are compared with."""

import numpy as np
import pytest
from scipy import stats

from privinf.errors import ArgumentError, NotAvailableError
from privinf.simulation.lasso import ERROR_COLUMN, LassoDesign, lasso_design
from privinf.simulation.lasso_tables import paper_design, paper_table

ALPHA = 1e-4
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
