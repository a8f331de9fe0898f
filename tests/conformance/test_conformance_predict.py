"""Every model predicts the whole mean, X @ params with its constant, or refuses: statsmodels' at no noise."""

import math

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from test_conformance import FORMULA, MODELS, SCHEMA, fitted, noisy, rows

import privinf as pi
from privinf.errors import NotAvailableError
from privinf.results import storage

NEW = rows(6, seed=11)
BOUNDS = {"a": (-1.0, 1.0), "b": (-1.0, 3.0), "c": (0.0, 2.0)}
Y_BOUNDS = (-4.0, 6.0)


def matrix(data, constant=True):
    X = data[list(BOUNDS)]
    return pi.add_constant(X) if constant else X


@pytest.mark.parametrize("name", MODELS)
def test_predictions_by_formula_are_the_design_times_the_coefficients(name):
    X = SCHEMA.design(FORMULA).matrix(NEW)
    for r in (fitted(name), noisy(name)):
        expected = X @ r.params.to_numpy()
        np.testing.assert_allclose(r.predict(NEW), expected, rtol=1e-10)
        np.testing.assert_allclose(r.predict(X, transform=False), expected, rtol=1e-10)
        if r.estimate.cov is not None:
            np.testing.assert_allclose(r.get_prediction(NEW).predicted_mean, expected, rtol=1e-10)


ARRAYS = {
    "modulated": lambda y, X, how: pi.ModulatedOLS(y, X, bounds=how, y_bounds=Y_BOUNDS),
    "moments": lambda y, X, how: pi.MomentOLS(y, X, bounds=how, y_bounds=Y_BOUNDS),
    "moments, local": lambda y, X, how: pi.MomentOLS(y, X, bounds=how, y_bounds=Y_BOUNDS, trust="local"),
    "moments, sites": lambda y, X, how: pi.MomentOLS.from_arrays(
        [(y[::2], X[::2]), (y[1::2], X[1::2])], bounds=how, y_bounds=Y_BOUNDS, trust="server"
    ),
    "gaussian GLM": lambda y, X, how: pi.FederatedGLM.from_arrays(
        [(y[::2], X[::2]), (y[1::2], X[1::2])], bounds=how, y_bounds=Y_BOUNDS, family="gaussian"
    ),
}  # fmt: skip


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("name", ARRAYS)
def test_predictions_from_arrays_are_those_of_least_squares(name, constant):
    """With a constant, columns are centred inside: the means must not show it. Without one, through 0."""
    data = rows(600)
    y, X = data.y.to_numpy(), matrix(data, constant)
    r = ARRAYS[name](y, X, BOUNDS).fit(epsilon=math.inf)
    new = matrix(NEW, constant)
    theirs = sm.OLS(y, X).fit(cov_type="HC0").get_prediction(new).summary_frame()
    np.testing.assert_allclose(r.predict(new), theirs["mean"], atol=1e-7)
    np.testing.assert_allclose(r.get_prediction(new).predicted_mean, theirs["mean"], atol=1e-7)
    if r.cov_type == "HC0":
        np.testing.assert_allclose(r.get_prediction(new).se_mean, theirs["mean_se"], atol=1e-7)
    for given in (new[new.columns[::-1]], new.to_numpy()):
        np.testing.assert_allclose(r.predict(given), theirs["mean"], atol=1e-7)


def test_nonlinear_means_are_those_of_statsmodels():
    data = rows(600)
    data["hit"] = (data.y > data.y.median()).astype(float)
    schema = pi.Schema({"hit": (0.0, 1.0), **BOUNDS})
    theirs = sm.GLM.from_formula("hit ~ a + b + c", data, family=sm.families.Binomial()).fit(tol=1e-13)
    federated = pi.FederatedGLM.from_formula("hit ~ a + b + c", data, schema=schema, family="binomial")
    levels = pi.Schema({"hit": ["no", "yes"], **BOUNDS})
    labelled = data.assign(hit=np.where(data.hit > 0, "yes", "no"))
    local = pi.IWPGLM.from_formula("hit ~ a + b + c", labelled, schema=levels, loss="logistic")
    fits = [federated.fit(epsilon=math.inf), local.fit(epsilon=math.inf)]
    for fit in fits:
        np.testing.assert_allclose(fit.predict(NEW), theirs.predict(NEW), atol=1e-6)
        np.testing.assert_allclose(fit.get_prediction(NEW).predicted_mean, theirs.predict(NEW), atol=1e-6)
    part = federated.fit(epsilon=math.inf, targets=["a"])
    for ask in (part.predict, part.get_prediction):
        with pytest.raises(NotAvailableError, match="all coefficients"):
            ask(NEW)


def test_a_lasso_that_leaves_something_out_refuses():
    data = rows(600)
    X = matrix(data)
    model = pi.DebiasedLasso(data.y.to_numpy(), X, bounds=BOUNDS, y_bounds=Y_BOUNDS)
    for targets in (["a", "b", "c"], ["a"], "selected"):
        r = model.fit(epsilon=math.inf, sparsity=2, targets=targets)
        for ask in (r.predict, r.get_prediction):
            with pytest.raises(NotAvailableError, match="const"):
                ask(matrix(NEW))


def test_no_kind_of_results_is_left_out():
    """A model that stores results of a new class must be looked at here."""
    seen = {type(fitted(name)).__name__ for name in MODELS} | {"FederatedGLMResults", "LassoResults"}
    kinds = {recipe.results.__name__ for recipe in storage._recipes.values()}
    assert kinds <= seen | {"Results"}, kinds - seen


def test_frames_are_read_by_name_and_must_be_complete():
    r = fitted("moments-central")
    with pytest.raises(pi.errors.PrivinfError):
        r.predict(pd.DataFrame({"a": [0.0]}))
