"""The argument fuzzer in short, and proof that it can fail: no boundaries, values in messages, early charges.

In full: ``benchmarks/fuzz_arguments.py``.
"""

from __future__ import annotations

import inspect

import argument_fuzzer
import pytest
from argument_corpus import CASES, World
from argument_fuzzer import fuzz
from test_error_boundary import functions_of, public_names

from privinf import error_boundary, validation
from privinf.errors import ArgumentError
from privinf.mechanisms import selection as noisy_top_k
from privinf.mechanisms.gaussian import numbers_of

ROWS = ["Moments.release", "MomentOLS", "NoisyTopK.release", "noisy_scalar", "Design.matrix", "Site"]


@pytest.mark.filterwarnings("ignore::privinf.errors.PrivinfWarning")
@pytest.mark.parametrize("name", CASES)
def test_the_corpus_is_valid(name, tmp_path):
    case, world = CASES[name], World(tmp_path)
    made = case.target(world)(**case.args(world))
    if case.then is not None:
        case.then(made, world)


@pytest.mark.audit
def test_only_errors_of_the_tree_come_out_of_public_functions():
    found = fuzz(600, seed=11)
    assert not found.problems, "\n".join(found.problems)
    assert found.calls == 600
    assert 20 < found.outcomes["a result"] < 150  # some changes are harmless


# ---- mutants: what the fuzzer must see


def functions_with_boundary():
    """Return the public functions."""
    for _, thing in public_names():
        if inspect.isclass(thing):
            yield from (function for _, function in functions_of(thing))
        elif error_boundary.has_error_boundary(thing):
            yield thing


@pytest.fixture
def through():
    """Remove the error boundaries: exceptions pass unchanged."""
    cells = [
        function.__closure__[function.__code__.co_freevars.index("settled")]
        for function in functions_with_boundary()
        if error_boundary.has_error_boundary(function)
    ]
    for cell in cells:
        cell.cell_contents = lambda error, *of_the_call: error
    yield len(cells)
    for cell in cells:
        cell.cell_contents = error_boundary._settled


@pytest.mark.audit
def test_without_boundaries_foreign_exceptions_and_contexts_are_seen(through):
    assert through > 200
    problems = "\n".join(fuzz(200, seed=1, names=ROWS).problems)
    assert "foreign ValueError" in problems
    assert "has a context" in problems


@pytest.mark.audit
def test_values_in_messages_are_seen(monkeypatch):
    monkeypatch.setattr(validation, "shown", repr)
    found = fuzz(300, seed=2, names=["DPSGD", "NoisyTopK", "Newton"])
    assert any("tells a value" in problem for problem in found.problems)


@pytest.mark.audit
def test_refusals_after_the_charge_are_seen(monkeypatch):
    def late(vector):
        if vector.dtype.kind == "O":
            raise ArgumentError("an array of objects")
        return numbers_of(vector)

    monkeypatch.setattr(noisy_top_k, "numbers_of", late)
    found = fuzz(200, seed=3, names=["NoisyTopK.release"])
    assert any("ArgumentError after the charge" in problem for problem in found.problems)


@pytest.mark.audit
def test_warnings_that_are_not_ours_are_seen(monkeypatch):
    monkeypatch.setattr(noisy_top_k, "numbers_of", lambda vector: vector.astype(float) / 0.0)
    found = fuzz(60, seed=4, names=["NoisyTopK.release"])
    assert any("a foreign warning: RuntimeWarning" in problem for problem in found.problems)


@pytest.mark.audit
def test_slow_calls_are_seen(monkeypatch):
    def slow(vector):
        sum(range(10**6))
        return numbers_of(vector)

    monkeypatch.setattr(argument_fuzzer, "LONGEST", 0.005)
    monkeypatch.setattr(noisy_top_k, "numbers_of", slow)
    found = fuzz(120, seed=4, names=["NoisyTopK.release"])
    assert any("took" in problem for problem in found.problems)
