"""Error boundaries: public functions raise errors of the tree alone, bare and without a value of a row."""

from __future__ import annotations

import importlib
import inspect
import pickle
import traceback
from types import FunctionType
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest

import privinf as pi
from privinf import federation, mechanisms
from privinf.error_boundary import error_boundaries, error_boundary, has_error_boundary
from privinf.errors import (
    ArgumentError,
    DataDependentBoundsWarning,
    FileMissingError,
    NotAvailableError,
    NotPositiveDefiniteError,
    PrivinfError,
    SchemaError,
    StorageError,
    UnforeseenError,
)
from privinf.noise import SimulationNoise

ROOMS = (
    "privinf",
    "privinf.accounting",
    "privinf.federation",
    "privinf.mechanisms",
    "privinf.models",
    "privinf.results",
    "privinf.schema",
    "privinf.stats",
)
WITHOUT_BOUNDARY = {"errors"}
SCHEMA = pi.Schema({"x": (0, 1), "y": (0, 2)})
DUNDERS = {"__new__", "__init__", "__call__", "__getitem__"}


def public_names():
    for room in ROOMS:
        module = importlib.import_module(room)
        for name in module.__all__:
            if name not in WITHOUT_BOUNDARY:
                yield f"{room}.{name}", getattr(module, name)


def functions_of(kind):
    """Return what a class and its bases in the package define: constructors and public methods."""
    for base in kind.__mro__:
        if not base.__module__.startswith("privinf") or getattr(base, "_is_protocol", False):
            continue
        if issubclass(base, BaseException):
            continue
        for name, member in vars(base).items():
            if name.startswith("_") and name not in DUNDERS:
                continue
            function = getattr(member, "__func__", member)
            if isinstance(function, FunctionType):
                yield f"{base.__module__}.{base.__qualname__}.{name}", function


def test_every_public_function_and_method_has_an_error_boundary():
    open_ = set()
    for name, thing in public_names():
        if inspect.isclass(thing):
            open_ |= {where for where, function in functions_of(thing) if not has_error_boundary(function)}
        elif isinstance(thing, FunctionType) and not has_error_boundary(thing):
            open_.add(name)
    assert not open_, "\n".join(sorted(open_))


# ---- what an error boundary does


class Evil:
    """An argument whose conversions raise with a value."""

    def __array__(self, *_, **__):
        raise ValueError("7654.321")

    def __float__(self):
        raise TypeError("7654.321")

    def __iter__(self):
        raise RuntimeError("7654.321")


@error_boundary
def tried(error, cause=None):
    try:
        raise ValueError("7654.321")
    except ValueError:
        raise error from cause


@error_boundary
def calling(**options):
    return tried(**options)


def refused(call, kind=PrivinfError):
    """Return the error that a call raises: of the tree, bare, without the sentinel."""
    with pytest.raises(kind) as caught:
        call()
    error = caught.value
    assert error.__context__ is None
    assert error.__cause__ is None
    assert "7654" not in str(error)
    assert "7654" not in repr(error)
    return error


FOREIGN = {
    "ValueError": (ValueError("7654.321"), UnforeseenError),
    "TypeError": (TypeError("7654.321"), UnforeseenError),
    "RecursionError": (RecursionError("7654.321"), UnforeseenError),
    "OverflowError": (OverflowError("7654.321"), UnforeseenError),
    "LinAlgError": (np.linalg.LinAlgError("7654.321"), NotPositiveDefiniteError),
    "OSError": (OSError(5, "7654.321"), StorageError),
    "FileNotFoundError": (FileNotFoundError(2, "7654.321"), FileMissingError),
    "ImportError": (ImportError("7654.321", name="opendp"), NotAvailableError),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_foreign_exceptions_become_errors_of_the_tree_without_their_text(name):
    error, kind = FOREIGN[name]
    assert type(refused(lambda: tried(error))) is kind
    assert type(refused(lambda: tried(error, ValueError("7654.321")))) is kind


@pytest.mark.parametrize(
    "error",
    [SchemaError("no"), KeyboardInterrupt(), SystemExit(2), MemoryError(), UserWarning("no")],
    ids=repr,
)
def test_errors_that_pass_the_boundary_are_bare(error):
    assert refused(lambda: tried(error, ValueError("7654.321")), type(error)) is error


def test_a_call_that_does_not_fit_keeps_pythons_own_error():
    for call in (lambda: tried(), lambda: tried(1, 2, 3)):
        error = refused(call, TypeError)
        assert "tried()" in str(error)
    assert isinstance(refused(lambda: tried(None)), ArgumentError)  # raise None: a TypeError from inside


def test_an_unknown_keyword_is_refused_with_the_closest_known_ones():
    error = refused(lambda: calling(unknown=1), ArgumentError)
    assert str(error) == "'unknown' is not an argument of tried: its arguments are error, cause"
    assert "did you mean 'cause'?" in str(refused(lambda: tried(None, caus=1), ArgumentError))
    for model in (pi.MomentOLS, pi.GLM, pi.DebiasedLasso):
        error = refused(lambda model=model: model.from_formula("y ~ x", None, missin=1), ArgumentError)
        assert str(error).startswith(
            f"'missin' is not an argument of {model.__name__}.from_formula: did you mean"
        )
        assert "'missing'" in str(error)


@error_boundaries
class _Drawn:
    _foreign_arguments: ClassVar = {"joint": "call joint()"}

    def __init__(self, x):
        self.x = x

    def plot(self, ax=None, alpha=0.05):
        return ax

    @classmethod
    def load(cls, path):
        raise ValueError("7654.321")


class Curve(_Drawn):
    """A class of users, who know no other name."""


def test_messages_name_the_class_that_the_caller_knows():
    calls = {
        "Curve() needs x=": lambda: Curve(),
        "'xx' is not an argument of Curve: did you mean 'x'": lambda: Curve(xx=1),
        "'color' is not an argument of Curve.plot: its arguments are ax": lambda: Curve(1).plot(color=1),
        "Curve.load cannot use": lambda: Curve.load("x"),
        "x= was passed to Curve twice": lambda: Curve(1, x=1),
        "Curve.plot() accepts only ax": lambda: Curve(1).plot(1, 2, 3),
    }
    for text, call in calls.items():
        assert str(refused(call)).startswith(text)


def test_arguments_of_other_packages_have_remedies():
    error = refused(lambda: Curve(1).plot(joint=True), ArgumentError)
    assert str(error) == "'joint' is not an argument of Curve.plot: call joint()"
    error = refused(lambda: Curve(1).plot(confidence_level=0.9), ArgumentError)
    assert "Curve.plot: pass alpha=, which is one minus the confidence level" in str(error)
    error = refused(lambda: Curve(1, confidence_level=0.9), ArgumentError)
    assert "its arguments are x" in str(error)


def test_a_boundary_keeps_signature_name_and_traceback():
    assert error_boundary(tried) is tried
    assert str(inspect.signature(tried)) == "(error, cause=None)"
    error = refused(lambda: tried(ValueError("7654.321")))
    names = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    assert names[-1] == "tried"


def test_missing_files_are_errors_of_both_kinds(tmp_path):
    path = tmp_path / "none.npz"
    calls = {
        "release": lambda: pi.load_release(path),
        "results": lambda: pi.load_results(path),
        "table": lambda: pi.open_table(tmp_path / "none.csv", SCHEMA, id="id"),
        "plan": lambda: pi.MixingPlan.load(path),
        "key": lambda: federation.IdentityKey.load(path),
        "ledger": lambda: pi.LedgerFile(path),
    }
    for name, call in calls.items():
        error = refused(call, StorageError)
        assert isinstance(error, FileNotFoundError), name
        assert "none" in str(error), name
        assert pickle.loads(pickle.dumps(error)).args == error.args


def test_not_available_stays_an_attribute_error():
    assert not hasattr(pi.Budget(mu=1.0), "no_such")
    assert not hasattr(pi.Budget(epsilon=1.0, delta=0), "mu")


def test_a_warning_points_at_the_line_that_called():
    with pytest.warns(DataDependentBoundsWarning) as caught:
        pi.MomentOLS([1.0, 2.0, 3.0], [[0.5], [0.6], [0.1]], bounds="data", y_bounds=(0, 3))
    assert [entry.filename for entry in caught] == [__file__]


# ---- calls that once kept a value: all of these fail on the earlier code

SECRET = 7654.321
RAGGED = [[0.1, SECRET], [0.2], [0.3, 0.4]]
TEXTS = np.array([["0.1"], ["7654.321x"], ["0.2"]], dtype=object)
FRAME = pd.DataFrame({"x": ["0.1", "7654.321x", "0.2"], "y": [0.0, 1.0, 2.0]})


def kept_before():
    bounds = {"bounds": [(0.0, 1.0)], "y_bounds": (0.0, 2.0)}
    y = [0.0, 1.0, 2.0]
    yield "texts in an array", lambda: pi.MomentOLS(y, TEXTS, **bounds).fit(mu=1.0, rng=0)
    yield "texts in the response", lambda: pi.MomentOLS(TEXTS[:, 0], [[0.1]] * 3, **bounds).fit(mu=1.0, rng=0)
    yield "a ragged list", lambda: pi.MomentOLS(y, RAGGED, **bounds).fit(mu=1.0, rng=0)
    yield "texts in a column", lambda: pi.MomentOLS.from_formula("y ~ x", FRAME, schema=SCHEMA).fit(mu=1.0)
    yield "an array that raises", lambda: pi.MomentOLS(y, Evil(), **bounds).fit(mu=1.0, rng=0)
    yield "modulation", lambda: pi.ModulatedOLS(y, TEXTS, **bounds).fit(mu=1.0, rng=0)
    yield "machines", lambda: pi.sparse_mean([TEXTS, TEXTS], epsilon=1.0, sparsity=1)
    yield "codes", lambda: mechanisms.RandomizedResponse(2, 1.0).respond(["7654.321"], SimulationNoise(0))
    yield "a vector of texts", lambda: mechanisms.NoisyTopK(1, 1.0, rho=1.0).release(["7654.321", "1"])
    yield "a scalar of text", lambda: mechanisms.noisy_scalar("7654.321", 1.0, mu=1.0)


@pytest.mark.parametrize(("name", "call"), [pytest.param(*case, id=case[0]) for case in kept_before()])
def test_no_boundary_keeps_a_value_in_the_context(name, call):
    refused(call)
