"""Each summand's sensitivity is reached by two vectors of its set, and records stay in the set."""

from __future__ import annotations

import ast
import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mutation import Mutant
from scipy.spatial.distance import pdist

import privinf.mechanisms.statistics
from privinf.mechanisms.statistics.block import made_finite
from privinf.mechanisms.statistics.isometric import ROOT2_BITS
from privinf.mechanisms.statistics.summands import (
    Ball,
    Box,
    Cells,
    Copies,
    CrossProducts,
    Marks,
    NonNegative,
    OneCell,
    Outer,
    ReplaceOnly,
    RowDirections,
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
    "marks": (Marks(size=4, derivation=""), lambda: (1.0 + corners(4)) / 2.0),
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
    "marks at the price of one": (
        Mutant(SUMMANDS, "Marks.sensitivity", "math.sqrt(self.size)", "1.0"),
        "marks",
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


# ---- vectors are put into the sets


ABSURD = np.array([math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324, 0.0, 1e30, 1.0, -0.3])


def wild(size: int) -> Any:
    """Return vectors, shape (size, rows), of corners, directions of any length and absurd numbers."""
    rows = [
        3.0 * RNG.choice([-1.0, 1.0], (30, size)),
        RNG.standard_normal((60, size)) * 10.0 ** RNG.uniform(-3.0, 6.0, (60, 1)),
        RNG.choice(ABSURD, (60, size)),
        np.repeat(ABSURD[:, None], size, axis=1),
        9.0 * np.eye(3, size),
    ]
    return np.concatenate(rows).T.copy()


def integers(term: Any) -> list[list[list[int]]]:
    """Return the integers of a term, one vector of Python's a row, for each of its groups."""
    groups = term.integers()
    if not all(np.isfinite(group).all() for group in groups):
        raise OverflowError("a number of a record is not finite")
    return [[[int(number) for number in row] for row in group.T] for group in groups]


def norms2(vectors: list[list[int]]) -> list[int]:
    """Return squared norms."""
    return [sum(number * number for number in vector) for vector in vectors]


def of_numbers(term: Any, *, entry: float, norm: float, low: float = -math.inf) -> bool:
    """Return whether all vectors keep to bounds of an entry and of the norm, in rational arithmetic."""
    (vectors,), unit = integers(term), Fraction(term.unit)
    sizes = [number * unit for vector in vectors for number in vector]
    return (
        max(norms2(vectors)) * unit**2 <= Fraction(norm) ** 2
        and max(map(abs, sizes)) <= Fraction(entry)
        and min(sizes) >= low
    )


def of_totals(term: Any, total: float) -> bool:
    """Return whether the entries of every vector are nonnegative and add up to the total at most."""
    (vectors,), unit = integers(term), Fraction(term.unit)
    return all(min(vector) >= 0 and sum(vector) * unit <= Fraction(total) for vector in vectors)


def of_products(term: Any, *, entry: float, radius: float) -> bool:
    """Return whether entries of both factors keep to their bound, and the product of norms to its own."""
    left, right = integers(term)
    sizes = [abs(number) for group in (left, right) for vector in group for number in vector]
    products = [a * b for a, b in zip(norms2(left), norms2(right), strict=True)]
    unit = Fraction(term.unit)
    return max(sizes) ** 2 * unit <= Fraction(entry) ** 2 and max(products) * unit**2 <= Fraction(radius) ** 2


def of_squares(term: Any, *, entry: float, top: float) -> bool:
    """Return whether vectors whose products are summed keep to bounds of an entry and of the norm."""
    (vectors,), unit = integers(term), Fraction(term.top) / Fraction(term.steps)
    largest = max(abs(number) for vector in vectors for number in vector)
    return max(norms2(vectors)) * unit**2 <= Fraction(top) ** 2 and largest * unit <= Fraction(entry)


def scores(ball: Ball, size: int, digits: int) -> Any:
    """Return the sum of wild numbers along wild directions."""
    along = RowDirections(made_finite(wild(size)))
    return ball.along(wild(1)[0], along, digits)


def of_cells() -> bool:
    """Return whether records with any place are in one of three cells."""
    (places,) = OneCell(cells=3, derivation="").counts(np.array([-7, 0, 2, 3, 10**9])).integers()
    return bool((places >= 1).all() and (places <= 3).all())


# Name: whether wild vectors of so many entries are in the set, at some digits.
KEPT: dict[str, Callable[[int, int], bool]] = {
    "ball": lambda size, digits: of_numbers(
        Ball(size=size, top=0.7, derivation="").numbers(wild(size), digits), entry=0.7, norm=0.7
    ),
    "ball along directions": lambda size, digits: of_numbers(
        scores(Ball(size=size, top=0.7, derivation=""), size, digits), entry=0.7, norm=0.7
    ),
    "box": lambda size, digits: of_numbers(
        Box(shape=(size,), bound=0.7, derivation="").numbers(wild(size), digits),
        entry=0.7,
        norm=0.7 * math.sqrt(size) * (1.0 + 2.0**-50),
    ),
    "box in a ball": lambda size, digits: of_numbers(
        Box(shape=(size,), bound=0.7, radius=0.9, derivation="").numbers(wild(size), digits),
        entry=0.7,
        norm=0.9,
    ),
    "nonnegative": lambda size, digits: of_numbers(
        NonNegative(shape=(size,), bound=0.7, derivation="").numbers(wild(size), digits),
        entry=0.7,
        norm=float(size),
        low=0.0,
    ),
    "squares": lambda size, digits: of_numbers(
        NonNegative(shape=(size,), bound=0.7, derivation="").squares(wild(size), digits),
        entry=0.7,
        norm=float(size),
        low=0.0,
    ),
    "squares with a total": lambda size, digits: of_totals(
        NonNegative(shape=(size,), bound=0.7, total=0.7, derivation="").squares(wild(size), digits), 0.7
    ),
    "products": lambda size, digits: of_products(
        CrossProducts(shape=(2, size), entry=0.62, derivation="").matrices(wild(2), wild(size), digits),
        entry=0.62,
        radius=9.0 * size,
    ),
    "products in a ball": lambda size, digits: of_products(
        CrossProducts(shape=(2, size), entry=0.62, radius=0.3, derivation="").matrices(
            wild(2), wild(size), digits
        ),
        entry=0.62,
        radius=0.3,
    ),
    "outer products": lambda size, digits: of_squares(
        Outer(size=size, top=0.9, entry=0.62).aligned(wild(size), digits + ROOT2_BITS), entry=0.62, top=0.9
    ),
    "one cell": lambda size, digits: of_cells(),
    "marks": lambda size, digits: of_numbers(
        Marks(size=size, derivation="").counts(wild(size)),
        entry=1.0,
        norm=math.sqrt(size) * (1.0 + 2.0**-50),
        low=0.0,
    ),
}


def out_of_their_set(name: str) -> list[tuple[int, int]]:
    """Return the numbers of entries and the digits at which a record's integers pass what is stated."""
    found = []
    for size, digits in itertools.product((1, 2, 7, 200), (2, 3, 11, 40)):
        if name == "outer products" and math.sqrt(size) > 2.0 ** (digits // 2 - 1):
            continue  # no room for so coarse a grid: the query is refused
        try:
            with np.errstate(all="ignore"):
                kept = KEPT[name](size, digits)
        except OverflowError:
            kept = False
        if not kept:
            found.append((size, digits))
    return found


@pytest.mark.parametrize("name", KEPT)
def test_integers_of_any_record_are_in_the_set_that_the_sensitivity_is_of(name):
    assert out_of_their_set(name) == []


NOT_SHRUNK = Mutant(SUMMANDS, "shrunk_vectors", "room / np.maximum(lengths(vectors), room)", "1.0")
CUT_AWAY = Mutant(
    "mechanisms.statistics.block",
    "cut",
    "np.trunc(values, out=values)",
    "np.copysign(np.ceil(np.abs(values)), values)",
)
PASSED = {
    "vectors that are not shrunk": (NOT_SHRUNK, ("ball", "box in a ball", "squares with a total")),
    "products that are not shrunk": (
        Mutant(SUMMANDS, "CrossProducts.matrices", "a *= room / np.maximum(", "a *= 1.0 + 0.0 * np.maximum("),
        ("products in a ball",),
    ),
    "numbers beyond the ball": (
        Mutant(SUMMANDS, "Ball.along", "np.clip(made_finite(left), -room, room)", "made_finite(left)"),
        ("ball along directions",),
    ),
    "no room for rounding to the nearest": (
        Mutant(SUMMANDS, "_room", "- 0.5 * math.sqrt(len(vectors))", ""),
        ("outer products",),
    ),
    "entries rounded beyond their bound": (
        Mutant(SUMMANDS, "Outer.aligned", "steps=steps, most=most", "steps=steps"),
        ("outer products",),
    ),
    "factors rounded beyond their bound": (
        Mutant(
            "mechanisms.statistics.block",
            "rounded",
            "np.clip(nearest(values, unit)[0], -largest_step, largest_step, out=values)",
            "nearest(values, unit)[0]",
        ),
        ("products",),
    ),
    "numbers cut away from zero": (
        CUT_AWAY,
        ("ball", "box", "box in a ball", "nonnegative", "squares", "squares with a total"),
    ),
    "scores cut away from zero": (
        Mutant(
            SUMMANDS,
            "Ball.along",
            "np.trunc(values, out=values)",
            "np.copysign(np.ceil(np.abs(values)), values)",
        ),
        ("ball along directions",),
    ),
    "products cut away from zero": (
        Mutant(
            SUMMANDS,
            "CrossProducts.matrices",
            "np.trunc(a, out=a)",
            "np.copysign(np.ceil(np.abs(a)), a)",
        ),
        ("products in a ball",),
    ),
    "squares below zero": (
        Mutant(
            SUMMANDS,
            "NonNegative.numbers",
            "np.maximum(clipped(values, self.bound), 0.0, out=values)",
            "clipped(values, self.bound)",
        ),
        ("nonnegative",),
    ),
    "marks of any size": (
        Mutant(SUMMANDS, "Marks.counts", "marked.astype(np.bool_)", "marked"),
        ("marks",),
    ),
    "no last cell": (
        Mutant(SUMMANDS, "OneCell.counts", "np.clip(places, 0, self.cells - 1)", "places"),
        ("one cell",),
    ),
}


@pytest.mark.parametrize("name", PASSED)
def test_integers_out_of_their_set_are_seen(name):
    mutant, cases = PASSED[name]
    with mutant.applied():
        assert [case for case in cases if not out_of_their_set(case)] == []


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
        "hazards": {"matrices"},  # of `Semidefinite`, a summand
    }


def test_a_term_made_by_hand_is_seen():
    assert terms_made("def gram(rows, outer):\n    return Square(vectors=rows, top=9.0)") == {"gram"}
