"""Each summand's sensitivity is reached by two vectors of its set, and passed by none."""

from __future__ import annotations

import ast
import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mutation import Mutant
from scipy.spatial.distance import pdist

import privinf.mechanisms.statistics
from privinf.mechanisms.statistics.summands import (
    Ball,
    Box,
    Cells,
    Copies,
    CrossProducts,
    NonNegative,
    OneCell,
    Outer,
    ReplaceOnly,
    root_matrix,
)

RNG = np.random.default_rng(0)
SUMMANDS = "mechanisms.statistics.summands"


def directions(size: int) -> Any:
    """Return vectors of norm 1: opposite axes, and others."""
    normal = RNG.standard_normal((200, size))
    return np.concatenate([np.eye(size), -np.eye(size), normal / np.linalg.norm(normal, axis=1)[:, None]])


def corners(size: int) -> Any:
    """Return all vectors of entries 1 and -1, and some of the box between."""
    return np.concatenate(
        [list(itertools.product([1.0, -1.0], repeat=size)), RNG.uniform(-1, 1, (200, size))]
    )


def outer(vectors: Any) -> Any:
    """Return the isometric entries of s s'."""
    rows, columns = np.triu_indices(vectors.shape[1])
    return vectors[:, rows] * vectors[:, columns] * np.where(rows == columns, 1.0, math.sqrt(2.0))


def cross(left: Any, right: Any) -> Any:
    """Return the entries of all a b', of some of the vectors."""
    return np.einsum("im,jk->ijmk", left[:20], right[:20]).reshape(-1, left.shape[1] * right.shape[1])


def cells(thresholds: int) -> Any:
    """Return the columns of U, and nothing."""
    return np.concatenate([root_matrix(thresholds).T, np.zeros((1, thresholds))])


def flat(size: int) -> Any:
    """Return directions, among which are pairs that are opposite in two entries of equal size."""
    pair = np.zeros((2, size))
    pair[:, :2] = np.array([[1.0, 1.0], [1.0, -1.0]]) / math.sqrt(2.0)
    return np.concatenate([directions(size), pair])


CASES: dict[str, tuple[Any, Callable[[], Any]]] = {
    "ball": (Ball(size=3, top=1.7, derivation=""), lambda: 1.7 * directions(3)),
    "ball of one number": (Ball(size=1, top=0.3, derivation=""), lambda: 0.3 * directions(1)),
    "outer products": (Outer(size=3, top=1.3), lambda: outer(1.3 * flat(3))),
    "outer products of one number": (
        Outer(size=1, top=1.3),
        lambda: outer(np.array([[1.3], [0.0], [-0.7]])),
    ),
    "outer products by their square": (
        Outer(size=2, top=math.sqrt(0.7), square=0.7),
        lambda: outer(math.sqrt(0.7) * flat(2)),
    ),
    "outer products of a box": (
        Outer(size=4, top=math.inf, entry=0.6),
        lambda: outer(0.6 * corners(4)),
    ),
    "box": (Box(shape=(2, 2), bound=0.6, derivation=""), lambda: 0.6 * corners(4)),
    "box in a ball": (
        Box(shape=(3,), bound=9.0, radius=1.2, derivation=""),
        lambda: 1.2 * directions(3),
    ),
    "products of two vectors": (
        CrossProducts(shape=(2, 3), entry=0.6, derivation=""),
        lambda: 0.36 * cross(corners(2), corners(3)),
    ),
    "products of two vectors in a ball": (
        CrossProducts(shape=(2, 3), entry=9.0, radius=1.2, derivation=""),
        lambda: 1.2 * cross(directions(2), directions(3)),
    ),
    "nonnegative": (
        NonNegative(shape=(3,), bound=2.0, derivation=""),
        lambda: 1.0 + corners(3),
    ),
    "nonnegative with a total": (
        NonNegative(shape=(4,), bound=2.0, total=2.0, derivation=""),
        lambda: 2.0 * np.concatenate([np.eye(4), RNG.dirichlet(np.ones(4), 200)]),
    ),
    "nonnegative number": (
        NonNegative(shape=(1,), bound=2.0, total=2.0, derivation=""),
        lambda: np.array([[0.0], [2.0]]),
    ),
    "one cell": (OneCell(cells=5, derivation=""), lambda: np.eye(5)),
    "counts": (Cells(np.arange(1.0, 9.0)), lambda: cells(8)),
    "one count": (Cells(np.array([0.5])), lambda: cells(1)),
    "copies of counts": (
        Copies(Cells(np.arange(1.0, 6.0)), 3),
        lambda: np.array([np.concatenate(each) for each in itertools.product(cells(5), repeat=3)]),
    ),
}


def complaints(name: str) -> list[str]:
    """Return which numbers that a summand states its vectors pass, or stay clearly below."""
    summand, draw = CASES[name]
    stated = summand.sensitivity()
    vectors = draw()
    reached = {
        "l2": pdist(vectors).max(),
        "linf": pdist(vectors, "chebyshev").max(),
        "bound": np.abs(vectors).max(),
        "norm": np.linalg.norm(vectors, axis=1).max(),
    }
    ratios = {quantity: value / getattr(stated, quantity) for quantity, value in reached.items()}
    assert vectors.shape[1] == stated.size
    return [quantity for quantity, ratio in ratios.items() if not 1.0 - 1e-12 <= ratio <= 1.0 + 1e-12]


@pytest.mark.parametrize("name", CASES)
def test_every_number_is_reached_and_never_passed(name):
    assert complaints(name) == []


def test_sums_that_only_replace_state_no_norm():
    part = Box(shape=(3,), bound=1.0, derivation="x")
    assert ReplaceOnly(part).sensitivity().norm is None
    assert ReplaceOnly(part).sensitivity().l2 == part.sensitivity().l2


MUTANTS = {
    "a radius for a diameter": (Mutant(SUMMANDS, "Ball.sensitivity", "2.0 * self.top", "self.top"), "ball"),
    "matrices without their root of two": (
        Mutant(SUMMANDS, "Outer.sensitivity", "l2=math.sqrt(2.0) * q,", "l2=q,"),
        "outer products",
    ),
    "entries beside the diagonal as those on it": (
        Mutant(SUMMANDS, "Outer.sensitivity", "max(2.0 * beside, on)", "max(beside, on)"),
        "outer products of a box",
    ),
    "half a box": (Mutant(SUMMANDS, "Box.sensitivity", "l2=2.0 * norm", "l2=norm"), "box"),
    "a total for the distance": (
        Mutant(SUMMANDS, "NonNegative.sensitivity", "math.sqrt(2.0) * self.total", "self.total"),
        "nonnegative with a total",
    ),
    "one cell without the one that is left": (
        Mutant(SUMMANDS, "OneCell.sensitivity", "l2=math.sqrt(2.0)", "l2=1.0"),
        "one cell",
    ),
    "counts as a histogram": (
        Mutant(SUMMANDS, "Cells.sensitivity", "l2=root_sensitivity(cells)", "l2=math.sqrt(2.0)"),
        "counts",
    ),
    "copies at the price of one": (
        Mutant(SUMMANDS, "Copies.sensitivity", "l2=root * part.l2", "l2=part.l2"),
        "copies of counts",
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_sensitivity_that_is_too_small_is_seen(name):
    mutant, case = MUTANTS[name]
    with mutant.applied():
        assert complaints(case)


# ---- terms are made by their summands


def terms_made(source: str) -> set[str]:
    """Return in which functions terms of rows are made by hand."""
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    return {
        function.name
        for function in functions
        for node in ast.walk(function)
        if isinstance(node, ast.Call)
        and _named(node.func) in ("Product", "Square", "Counts", "Numbers", "Cross", "Histogram")
    }


def _named(called: ast.expr) -> str:
    """Return the name of a class that is called, or whose constructor is."""
    owner = called.value if isinstance(called, ast.Attribute) else called
    return owner.id if isinstance(owner, ast.Name) else ""


def test_only_summands_make_terms():
    """So a term keeps to the norm that its summand states: no statistic passes a second one."""
    folder = Path(privinf.mechanisms.statistics.__file__).parent
    made = {path.stem: terms_made(path.read_text()) for path in folder.glob("*.py")}
    assert {stem: names for stem, names in made.items() if names} == {
        "summands": {"product", "shrunk", "matrices", "aligned", "along", "counts", "numbers"},
        "scores": {"numbers"},  # of `ScoresWithSquares`, a summand
        "curved": {"terms"},  # of `OneDirection`, a summand
    }


def test_a_term_made_by_hand_is_seen():
    assert terms_made("def gram(rows, outer):\n    return Square(vectors=rows, top=9.0)") == {"gram"}
