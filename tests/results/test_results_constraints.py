import numpy as np
import pytest
import statsmodels.formula

from privinf.errors import ArgumentError
from privinf.results.constraints import check_independent, linear_constraints

NAMES = ("x1", "x10", "x2", "x 1", "C(g)[T.b]", "a:b", 'C(h, Treatment("u"))[T.v, w=1]')


def unit(*entries):
    row = np.zeros(len(NAMES))
    for place, value in entries:
        row[place] = value
    return row


@pytest.mark.parametrize(
    ("given", "R", "q", "labels"),
    [
        ("x1 = x2 = 0", [unit((0, 1), (2, -1)), unit((2, 1))], [0, 0], ("x1 - x2", "x2")),
        ("x1 = x2 = x10", [unit((0, 1), (2, -1)), unit((2, 1), (1, -1))], [0, 0], ("x1 - x2", "-x10 + x2")),
        ("x1 = x2, x10 = 0.5", [unit((0, 1), (2, -1)), unit((1, 1))], [0, 0.5], ("x1 - x2", "x10")),
        ("2*x1 - x2", [unit((0, 2), (2, -1))], [0], ("2*x1 - x2",)),
        ("x1=x2=1, x10=2e-3", [unit((0, 1), (2, -1)), unit((2, 1)), unit((1, 1))], [0, 1, 2e-3], None),
        ("x10 = 1", [unit((1, 1))], [1], ("x10",)),
        ("x 1 = a:b", [unit((3, 1), (5, -1))], [0], ("x 1 - a:b",)),
        ("C(g)[T.b]", [unit((4, 1))], [0], ("C(g)[T.b]",)),
        ('C(h, Treatment("u"))[T.v, w=1] = 3', [unit((6, 1))], [3], (NAMES[6],)),
        (["x1", "x2 = 1"], [unit((0, 1)), unit((2, 1))], [0, 1], ("x1", "x2")),
        (("x1", "x2 = 1"), [unit((0, 1)), unit((2, 1))], [0, 1], ("x1", "x2")),
        ({"x1": 0.5}, [unit((0, 1))], [0.5], ("x1",)),
        ("(x1 + x2)/2 = 1", [unit((0, 0.5), (2, 0.5))], [1], ("0.5*x1 + 0.5*x2",)),
        (np.eye(7)[2], [unit((2, 1))], [0], ("x2",)),
        (np.eye(7)[:2], np.eye(7)[:2], [0, 0], ("x1", "x10")),
        ((np.eye(7)[:2], 3.0), np.eye(7)[:2], [3, 3], None),
        ((np.eye(7)[:2], [3.0, 4.0]), np.eye(7)[:2], [3, 4], None),
        ((np.eye(7)[:2], np.array([[3.0], [4.0]])), np.eye(7)[:2], [3, 4], None),
    ],
)
def test_forms(given, R, q, labels):
    found = linear_constraints(given, NAMES)
    np.testing.assert_array_equal(found.R, R)
    np.testing.assert_array_equal(found.q, q)
    assert not np.signbit(found.R[found.R == 0]).any()
    assert labels is None or found.labels == labels


def test_the_global_formula_engine_changes_nothing(monkeypatch):
    monkeypatch.setattr(statsmodels.formula.options, "formula_engine", "formulaic")
    assert len(linear_constraints("x1 = x2 = 0", NAMES).R) == 2


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("z = 1", "coefficients are x1, x10"),
        ("x1*x2", "one variable by another"),
        ("x1 +", "cannot be parsed"),
        ("1 = 1", "no variables"),
        ("x1 = x1", "no variables"),
        ("", "no restriction"),
        ("  ", "no restriction"),
        ([], "no restriction"),
        (["x1", ""], "cannot be parsed"),
        ({"z": 1.0}, "cannot be parsed"),
        (np.ones((1, 3)), "3 columns, .* each of the 7 coefficients"),
        ((np.eye(7), [1.0, 2.0]), "2 entries, .* each of the 7 restrictions"),
        (np.full((1, 7), np.nan), "nan or infinite"),
        (np.zeros((1, 7)), "involves no coefficient"),
        ((np.eye(7), np.nan), "nan or infinite"),
    ],
)
def test_refusals(given, message):
    with pytest.raises(ArgumentError, match=message):
        linear_constraints(given, NAMES)


def test_repeated_names():
    with pytest.raises(ArgumentError, match="several coefficients have the same name"):
        linear_constraints("a", ("a", "a"))


def test_dependent_restrictions():
    with pytest.raises(ArgumentError, match="rank 2"):
        check_independent(linear_constraints("x1 = x2, x2 = x10, x1 = x10", NAMES))
    assert len(check_independent(linear_constraints("x1 = x2 = x10", NAMES)).R) == 2
