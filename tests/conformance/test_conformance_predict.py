"""Every model predicts the whole mean, X @ params with its constant, or refuses: statsmodels' at no noise."""

import math

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import statsmodels.api as sm
from test_conformance import FORMULA, MODELS, SCHEMA, fitted, noisy, rows

import privinf as pi
from privinf.errors import NotAvailableError, PrivinfError, SchemaError
from privinf.inference.delta_method import CountObservation, MeanPrediction
from privinf.results import storage

NEW = rows(6, seed=11)
BOUNDS = {"a": (-1.0, 1.0), "b": (-1.0, 3.0), "c": (0.0, 2.0)}
Y_BOUNDS = (-4.0, 6.0)


def matrix(data, constant=True):
    X = data[list(BOUNDS)]
    return pi.add_constant(X) if constant else X


INPUTS = [*BOUNDS, "g"]


class Foreign:
    """A table of another library: it has columns, and says what it is in pandas' words."""

    def __init__(self, frame):
        self.columns, self._frame = list(frame.columns), frame

    def to_pandas(self):
        return self._frame.reset_index(drop=True)


def keeps_the_contract(r, new=NEW, inputs=tuple(INPUTS), predict=None):
    """New rows in every form that has names give the same means; what is missing is NaN, nothing else."""
    predict = predict or r.predict
    asked = new[list(inputs)].set_axis(list("uvwxyz"))
    expected = predict(asked)
    assert list(expected.index) == list("uvwxyz")
    assert np.isfinite(expected).all()
    as_dict = asked.to_dict("list")
    for form in (asked[asked.columns[::-1]], as_dict, dict(asked.items()), pa.table(as_dict), Foreign(asked)):
        np.testing.assert_array_equal(predict(form), expected)
    for position in (0, 3):
        one = asked.iloc[position]
        assert predict(one).index == [one.name]
        for form in (one, one.to_dict()):
            np.testing.assert_allclose(predict(form), expected.iloc[[position]], rtol=1e-12)
    mixed = as_dict | {inputs[0]: as_dict[inputs[0]][0]}
    constant = asked.assign(**{inputs[0]: as_dict[inputs[0]][0]})
    np.testing.assert_array_equal(predict(mixed), predict(constant))
    holes = asked.copy().astype({"g": object} if "g" in asked else {})
    holes.iloc[1, 0] = np.nan
    holes.iloc[4, -1] = None
    found = predict(holes)
    assert list(found.isna()) == [False, True, False, False, True, False]
    np.testing.assert_array_equal(found.dropna(), expected.drop(["v", "y"]))
    assert predict(holes.iloc[[1, 4]]).isna().all()
    with pytest.raises(SchemaError, match=f"lack the column '{inputs[0]}'"):
        predict(asked.drop(columns=inputs[0]))
    with pytest.raises(PrivinfError, match="differ in length"):
        predict(as_dict | {inputs[0]: [0.5, 0.5]})
    with pytest.raises(PrivinfError, match="infinite"):
        predict(asked.assign(**{inputs[0]: np.inf}))
    with pytest.raises(NotAvailableError, match="which a result does not contain"):
        predict()
    return holes


def tells_its_errors(r, holes, observed=True, reason=""):
    """Standard errors and intervals of the same rows, NaN in the same places."""
    found = r.get_prediction(holes)
    frame = found.summary_frame(0.1)
    np.testing.assert_array_equal(frame["mean"], r.predict(holes))
    assert (frame.isna().any(axis=1) == frame.isna().all(axis=1)).all()
    assert list(frame.index) == list(holes.index)
    whole = frame.dropna()
    assert len(whole) == 4
    assert (whole.mean_ci_lower < whole["mean"]).all()
    assert (whole["mean"] < whole.mean_ci_upper).all()
    assert ("obs_ci_lower" in frame) == observed
    if not observed:
        for ask in (lambda: found.se_obs, lambda: found.conf_int(obs=True)):
            with pytest.raises(NotAvailableError, match=reason):
                ask()
        return
    assert (whole.obs_ci_upper - whole.obs_ci_lower > whole.mean_ci_upper - whole.mean_ci_lower).all()
    np.testing.assert_array_equal(found.conf_int(0.1, obs=True)[1], frame.obs_ci_upper)
    assert (found.se_obs.dropna() > found.se_mean.dropna()).all()


@pytest.mark.audit
@pytest.mark.parametrize("name", MODELS)
def test_predictions_by_formula_are_the_design_times_the_coefficients(name):
    X = pi.Design.from_formula(FORMULA, SCHEMA).matrix(NEW)
    for r in (fitted(name), noisy(name)):
        expected = X @ r.params.to_numpy()
        np.testing.assert_allclose(r.predict(NEW), expected, rtol=1e-10)
        np.testing.assert_allclose(r.predict(X, transform=False), expected, rtol=1e-10)
        if r.estimate.cov is not None:
            np.testing.assert_allclose(r.get_prediction(NEW).predicted_mean, expected, rtol=1e-10)
    tells_its_errors(r, keeps_the_contract(r))


def test_frames_of_polars_are_read_as_those_of_pandas():
    pl = pytest.importorskip("polars")
    r = fitted("moments-central")
    np.testing.assert_allclose(r.predict(pl.DataFrame(NEW[INPUTS].to_dict("list"))), r.predict(NEW))


@pytest.mark.parametrize("family", ["binomial", "poisson"])
def test_predictions_through_a_link_keep_the_contract(family):
    data = rows(3000)
    mean = np.exp(0.5 + 0.5 * data.a)
    rng = np.random.default_rng(4)
    high = {"binomial": 1.0, "poisson": 40.0}[family]
    data["y"] = (rng.uniform(size=3000) < 0.3 * mean) if family == "binomial" else rng.poisson(mean)
    schema = pi.Schema({"y": (0.0, high), **BOUNDS})
    federated = pi.FederatedGLM.from_formula("y ~ a + b + c", data, schema=schema, family=family)
    levels = pi.Schema({"y": ["no", "yes"], **BOUNDS}) if family == "binomial" else schema
    labelled = data.assign(y=np.where(data.y > 0, "yes", "no")) if family == "binomial" else data
    loss = {"binomial": "logistic", "poisson": "poisson"}[family]
    local = pi.IWPGLM.from_formula("y ~ a + b + c", labelled, schema=levels, loss=loss)
    for r in (federated.fit(epsilon=math.inf), local.fit(epsilon=math.inf)):
        holes = keeps_the_contract(r, inputs=tuple(BOUNDS))
        tells_its_errors(r, holes, family == "poisson", "observation is 0 or 1")


@pytest.mark.audit
def test_new_counts_lie_in_their_intervals():
    """Poisson where the variance is the mean; else negative binomial, by the released dispersion."""
    rng = np.random.default_rng(6)
    schema = pi.Schema({"y": (0.0, 80.0), "a": (-1.0, 1.0)})
    for dispersion, noise in ((1.0, {"epsilon": math.inf}), (4.0, {"epsilon": 1.0, "delta": 1e-6, "rng": 0})):
        a = rng.uniform(-1, 1, 20_600)
        mean = np.exp(1.5 + 0.7 * a)
        if dispersion > 1.0:
            mean = rng.gamma(mean / (dispersion - 1.0), dispersion - 1.0)
        data = pd.DataFrame({"a": a, "y": rng.poisson(mean)})
        model = pi.FederatedGLM.from_formula("y ~ a", data[600:], schema=schema, family="poisson")
        new = data[:600]
        low, high = model.fit(**noise).get_prediction(new).conf_int(0.1, obs=True).to_numpy().T
        inside = np.mean((new.y >= low) & (new.y <= high))
        # Of a discrete law: at least .9, and without either end less.
        assert 0.87 < inside < 0.97
        assert np.mean((new.y > low) & (new.y < high)) < 0.93
    uncertain = CountObservation(MeanPrediction(np.array([1.0]), np.array([1.0])))
    draws = rng.poisson(np.exp(1.0 + rng.standard_normal(200_000)))
    np.testing.assert_allclose(uncertain.conf_int(0.1)[0], np.quantile(draws, [0.05, 0.95]), atol=1.0)
    wider = CountObservation(MeanPrediction(np.array([1.0]), np.array([1.0]), bias=np.array([0.5])))
    assert wider.conf_int(0.1)[0, 1] > uncertain.conf_int(0.1)[0, 1]


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
}


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
        keeps_the_contract(r, inputs=tuple(BOUNDS), predict=r.predict_sparse)
        assert r.predict_sparse(NEW[list(BOUNDS)]).name == "sparse_mean"


def test_no_kind_of_results_is_left_out():
    """A model that stores results of a new class must be looked at here."""
    seen = {type(fitted(name)).__name__ for name in MODELS} | {
        "FederatedGLMResults",
        "GLMResults",
        "LassoResults",
    }
    kinds = {recipe.results.__name__ for recipe in storage._recipes.values()}
    assert kinds <= seen | {"Results"}, kinds - seen


def test_what_does_not_fit_is_refused_with_what_to_pass():
    r = fitted("moments-central")
    with pytest.raises(SchemaError, match="lack the columns 'b', 'c'"):
        r.predict(pd.DataFrame({"a": [0.0], "g": ["u"]}))
    with pytest.raises(SchemaError, match="transform=False"):
        r.predict(np.zeros((2, 6)))
    with pytest.raises(SchemaError, match="levels"):
        r.predict(NEW.assign(g="unheard of"))
    with pytest.raises(SchemaError, match="more than one column named a"):
        r.predict(pd.concat([NEW, NEW[["a"]]], axis=1))
    with pytest.raises(PrivinfError, match="5"):
        r.predict(np.zeros((2, 5)), transform=False)


def test_a_constant_of_arrays_may_be_left_out_and_a_column_may_come_alone():
    data = rows(600)
    X = pi.add_constant(data[["a"]])
    for model in (pi.MomentOLS, pi.ModulatedOLS):
        r = model(data.y.to_numpy(), X, bounds={"a": (-1.0, 1.0)}, y_bounds=Y_BOUNDS).fit(epsilon=math.inf)
        whole = r.predict(pi.add_constant(NEW[["a"]]))
        for form in (NEW[["a"]], {"a": NEW.a.tolist()}, NEW.a):
            np.testing.assert_allclose(r.predict(form), whole)
        holes = np.column_stack([np.ones(6), NEW.a.where(NEW.index != 2)])
        assert list(r.predict(holes).isna()) == [row == 2 for row in range(6)]
