"""`Results` is one class that delegates to small frozen components, with their help and errors."""

import copy
import dataclasses
import gc
import inspect
import pickle
import weakref

import numpy as np
import pytest

import privinf as pi
from privinf.errors import ArgumentError
from privinf.glm.results import GLMResults
from privinf.iwp.results import IWPGLMResults
from privinf.lasso.results import LassoResults
from privinf.mixing.results import MixingResults
from privinf.modulation.results import ModulatedOLSResults
from privinf.moments.iv import IVResults
from privinf.results import Results
from privinf.results.cautions import Cautious
from privinf.results.export import Export
from privinf.results.fit_statistics import FitStatistics
from privinf.results.fitted import FittedResult
from privinf.results.hypotheses import LinearTests
from privinf.results.prediction import Predictions
from privinf.results.rendering import UnavailableAttributes
from privinf.results.resampling import Resampling
from privinf.results.score_inference import ScoreTests
from privinf.results.wald import Inference

COMPONENTS = {
    "_inference": Inference,
    "_tests": LinearTests,
    "_fit_statistics": FitStatistics,
    "_score_tests": ScoreTests,
    "_resampling": Resampling,
    "_predictions": Predictions,
    "_export": Export,
}

PUBLIC = vars(Results).keys() | vars(FittedResult).keys()


@pytest.fixture(scope="module")
def result():
    rng = np.random.default_rng(5)
    X = rng.uniform(-1, 1, (2000, 2))
    y = np.clip(X @ [0.5, 0.0] + 0.3 * rng.standard_normal(2000), -2, 2)
    return pi.MomentOLS(y, X, bounds=[(-1, 1)] * 2, y_bounds=(-2, 2)).fit(epsilon=2.0, delta=1e-6, rng=0)


def delegated():
    """Return the public methods that hand on to a component, with the component's name and class."""
    return [
        (name, component, kind)
        for component, kind in COMPONENTS.items()
        for name, member in vars(kind).items()
        if inspect.isfunction(member) and not name.startswith("_") and name in PUBLIC
    ]


def test_there_is_no_chain_of_parents():
    assert Results.__mro__ == (Results, FittedResult, Cautious, UnavailableAttributes, object)


def test_components_are_frozen_and_of_the_result_alone(result):
    for name, kind in COMPONENTS.items():
        component = getattr(result, name)
        assert type(component) is kind
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(component, dataclasses.fields(component)[0].name, None)
    assert result._inference is result._inference
    assert result._inference.estimate is result.estimate


@pytest.mark.parametrize(("name", "component", "kind"), delegated())
def test_a_delegated_method_has_the_components_help_or_a_fuller_one(name, component, kind):
    here, there = getattr(Results, name), getattr(kind, name)
    assert inspect.getdoc(here)
    assert not inspect.getdoc(here).startswith("See ")
    assert here.__qualname__ == f"Results.{name}"
    own = list(inspect.signature(here).parameters)
    assert own == list(inspect.signature(there).parameters)


@pytest.mark.parametrize(
    "kind",
    [GLMResults, IWPGLMResults, LassoResults, MixingResults, ModulatedOLSResults, IVResults],
)
def test_a_method_replaces_components_and_few_other_private_members(kind):
    others = {"_summary_columns", "_check_settings", "_stored_context", "_refused_methods", "_probes"}
    own = [base for base in kind.__mro__ if base not in Results.__mro__]
    replaced = {name for base in own for name in vars(base) if name.startswith("_")} & set(dir(Results))
    assert {name for name in replaced if not name.startswith("__")} <= COMPONENTS.keys() | others


def test_at_least_the_tests_and_tables_are_delegated():
    names = {name for name, _, _ in delegated()}
    assert names >= {"t_test", "wald_test", "f_test", "delta_method", "cov_params", "score_set"}
    assert names >= {"tidy", "glance", "to_dict", "to_json", "to_parquet", "draws", "to_arviz"}


def test_a_call_that_does_not_fit_is_told_as_of_results(result):
    with pytest.raises(ArgumentError, match=r"'use_tt' .* Results\.t_test: did you mean 'use_t'"):
        result.t_test("x1 = 0", use_tt=True)
    with pytest.raises(TypeError, match="r_matrix"):
        result.t_test()


def test_numbers_of_the_result_are_those_of_its_components(result):
    assert result.params is result._inference.params
    assert result.scale == result._fit_statistics.scale
    assert result.t_test("x1 = x2").pvalue == result._tests.t_test("x1 = x2").pvalue
    np.testing.assert_array_equal(result.conf_int(0.1), result._inference.interval(0.1))
    np.testing.assert_array_equal(result.conf_int(0.1, "score"), result._score_tests.intervals(0.1))
    assert result.to_dict() == result._export.to_dict()


def test_a_result_dies_with_its_last_reference(result):
    """No component that a result keeps holds the result: memory is freed without the collector."""
    one = result._with(result.estimate, result._context)
    one.summary(), one.simultaneous(rng=0), one.conf_int(method="score"), one.to_dict(), dir(one)
    watch = weakref.ref(one)
    gc.disable()
    try:
        del one
        assert watch() is None
    finally:
        gc.enable()


def test_pickles_and_copies_make_their_own_components(result):
    assert result.bse.notna().all()
    for same in (pickle.loads(pickle.dumps(result)), copy.deepcopy(result)):
        assert same._inference is not result._inference
        assert same.bse.equals(result.bse)
        assert str(same.summary()) == str(result.summary())


def test_a_stored_fit_rests_on_the_equation_that_its_settings_hold(tmp_path):
    rng = np.random.default_rng(6)
    X = rng.uniform(-1, 1, (3000, 2))
    y = (rng.uniform(size=3000) < 1.0 / (1.0 + np.exp(-X[:, 0]))).astype(float)
    fit = pi.Logit(y, X, bounds=[(-1, 1)] * 2).fit(epsilon=4.0, delta=1e-6, rng=0)
    fit.save(tmp_path / "fit", records=False)
    stored = pi.load_results(tmp_path / "fit")
    assert stored._inference.context is stored._context
    assert stored._inference.context.system is not None
    assert stored.score_test().statistic == pytest.approx(fit.score_test().statistic)
