"""Exact sums of products: equal to Python's integers, in any order, of any blocks, merged along any tree."""

import math
import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privinf.errors import ArgumentError, SensitivityError
from privinf.mechanisms import sums
from privinf.mechanisms.statistics.loops import on_grid
from privinf.mechanisms.sums import (
    BLOCK_ROWS,
    FULL_SCALE,
    ExactSum,
    ProductSums,
    block_rows,
    held_norms,
    scaled_down,
)

TOTAL_ROWS = 2**40
TOP = int(FULL_SCALE)
HOSTILE = st.sampled_from([TOP, -TOP, TOP - 1, 1 - TOP, 0, 1, -1]) | st.integers(-TOP, TOP)
WILD = st.sampled_from(
    [0.0, -0.0, 1.0, -1.0, 5e-324, 1e308, -1e308, math.inf, -math.inf, 2.0**-21, 1 + 2**-52]
)
FACTORS = st.floats(-1.0, 1.0) | st.sampled_from([1.0, -1.0, 1 - 2**-53, 2.0**-1074])


def python_products(rows):
    z = [[int(value) for value in row] for row in rows]
    size = len(z[0]) if z else 0
    return [[sum(row[i] * row[j] for row in z) for j in range(size)] for i in range(size)]


def upper(found):
    whole = found.total.integers()
    return [whole[i, j] for i in range(len(whole)) for j in range(i, len(whole))]


def bits(found):
    return found.total._high.tobytes() + found.total._low.tobytes()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(HOSTILE, min_size=3, max_size=3), min_size=1, max_size=40), st.data())
def test_sums_are_those_of_python_whatever_the_blocks_their_order_and_the_merges(rows, data):
    z = np.array(rows, dtype=np.float64)
    expected = python_products(rows)
    whole = ProductSums((1, 2))
    whole.update(z[:, :1], z[:, 1:])
    assert upper(whole) == [expected[i][j] for i in range(3) for j in range(i, 3)]
    order = np.array(data.draw(st.permutations(range(len(z)))))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(z)), max_size=4)))
    parts = []
    for part in np.split(z[order], cuts):
        one = ProductSums((1, 2))
        one.update(np.asfortranarray(part[:, :1]), part[:, 1:])
        parts.append(one)
    while len(parts) > 1:
        taken = parts.pop(data.draw(st.integers(0, len(parts) - 1)))
        parts[data.draw(st.integers(0, len(parts) - 1))].merge(taken)
    assert bits(parts[0]) == bits(whole)
    assert parts[0].rows == len(z)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_largest_values_fill_the_doubles_and_pass_them_by_none(sign):
    rows = 2 * BLOCK_ROWS + 3
    z = np.full((rows, 2), FULL_SCALE)
    z[:, 1] *= sign
    found = ProductSums((2,))
    found.update(z)
    assert upper(found) == [rows * TOP**2, int(sign) * rows * TOP**2, rows * TOP**2]
    assert BLOCK_ROWS * TOP**2 == 2**53


def test_digits_are_carried_before_a_word_is_full():
    found, expected = ExactSum((3,)), np.zeros(3, dtype=object)
    for place in range(1100):  # of 2^10 sums of 2^53 a word overflows
        sums = np.array([2.0**53, -(2.0**53), (-1.0) ** place * (2.0**53 - place)])
        found.add(sums)
        expected += [int(one) for one in sums]
        if place in (3, 1099):
            found.merge(found)
            expected *= 2
    assert found.integers().tolist() == expected.tolist()
    found.carry()
    assert found.integers().tolist() == expected.tolist()
    assert (found._low >= 0).all()


def test_one_more_row_a_block_would_round():
    rows = np.full((BLOCK_ROWS + 1, 1), FULL_SCALE)
    rows[-1] = 1.0
    assert int((rows.T @ rows).item()) != BLOCK_ROWS * TOP**2 + 1
    found = ProductSums((1,))
    found.update(rows)
    assert upper(found) == [BLOCK_ROWS * TOP**2 + 1]


def test_sums_take_2_to_the_40_rows_and_no_more():
    found, count = ProductSums((1, 1)), 1
    found.update(np.full((1, 1), FULL_SCALE), np.full((1, 1), -FULL_SCALE))
    while count < TOTAL_ROWS:
        found.merge(found)
        count *= 2
    assert found.rows == TOTAL_ROWS
    assert upper(found) == [TOTAL_ROWS * TOP**2, -TOTAL_ROWS * TOP**2, TOTAL_ROWS * TOP**2]
    with pytest.raises(SensitivityError, match="2\\^40 rows"):
        found.update(np.zeros((1, 1)), np.zeros((1, 1)))


@settings(max_examples=80, deadline=None)
@given(
    st.integers(-(2**90), 2**90),
    st.floats(1e-12, 1e12),
    st.integers(-40, 70),
)
def test_totals_are_rounded_once(number, unit, power):
    held = ExactSum((1,))
    words = [number >> shift & (2**30 - 1) for shift in (0, 30, 60)] + [number >> 90]
    for place, word in enumerate(words):
        part = ExactSum((1,))
        part.add(np.array([float(word)]))
        for _ in range(30 * place):
            part.merge(part)
        held.merge(part)
    assert held.integers()[0] == number
    exact = Fraction(number) * Fraction(unit)
    assert held.floats(np.array([unit]))[0] == float(exact)
    grid = 2.0**power
    wanted = math.floor(exact / Fraction(grid) + Fraction(1, 2))
    if abs(wanted) < 2**62:
        assert held.steps(np.array([unit]), grid)[0] == wanted
    else:
        with pytest.raises(SensitivityError, match="too small for an exact sum"):
            held.steps(np.array([unit]), grid)


@settings(max_examples=80, deadline=None)
@given(st.lists(WILD | st.floats(-2.0, 2.0), min_size=1, max_size=20))
def test_values_end_on_the_grid_and_keep_their_order(values):
    x = np.array(sorted(values))
    with np.errstate(all="ignore"):
        steps = on_grid(x, FULL_SCALE, 0.5, FULL_SCALE, np.empty_like(x))
    assert (np.abs(steps) <= FULL_SCALE).all()
    assert (steps == np.floor(steps)).all()
    assert (np.diff(steps) >= 0).all()
    inside = np.abs(x) <= 1.0
    assert (np.abs(steps / FULL_SCALE - x)[inside] <= 0.5 / FULL_SCALE).all()


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(HOSTILE, FACTORS), min_size=1, max_size=20))
def test_no_number_grows_where_it_is_scaled_down(pairs):
    steps, factors = np.array(pairs, dtype=np.float64).T
    found = scaled_down(steps.copy(), factors)
    assert (np.abs(found) <= np.abs(steps)).all()
    assert (np.abs(found - steps * factors) <= 0.5).all()


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.lists(HOSTILE, min_size=4, max_size=4), min_size=1, max_size=10), st.integers(2**10, 2**21)
)
def test_no_row_is_longer_than_its_ball(rows, limit):
    before = np.array(rows, dtype=np.float64)
    found = held_norms(before.copy(), float(limit))
    for row, held in zip(rows, found, strict=True):
        exact, now = (sum(int(k) ** 2 for k in one) for one in (row, held))
        assert now <= limit**2
        if exact <= limit**2:
            assert list(held) == row
        else:
            assert math.isqrt(now) >= limit - 4


def test_rounding_to_the_nearest_would_pass_the_ball():
    rng = np.random.default_rng(0)
    steps = np.rint(rng.normal(size=(400, 8)) * FULL_SCALE)
    factors = FULL_SCALE / np.sqrt((steps**2).sum(axis=1))
    nearest = np.rint(steps * factors[:, None])
    assert ((nearest**2).sum(axis=1) > FULL_SCALE**2).any()
    assert ((held_norms(steps, FULL_SCALE) ** 2).sum(axis=1) <= FULL_SCALE**2).all()


def test_wrong_things_are_refused_and_nothing_is_shown():
    one = ProductSums((1, 2))
    with pytest.raises(ArgumentError, match="different numbers of columns"):
        one.merge(ProductSums((3,)))
    with pytest.raises(SensitivityError, match="8192 columns"):
        held_norms(np.zeros((1, BLOCK_ROWS + 1)), 1.0)
    for held in (one, one.total):
        assert "not shown" in repr(held) or "rows" in repr(held)
        with pytest.raises(TypeError, match="pickled"):
            pickle.dumps(held)


def test_blocks_have_few_numbers_and_at_most_8192_rows():
    assert block_rows(1) == BLOCK_ROWS == 8192
    assert block_rows(200) * 200 <= sums.BLOCK_NUMBERS
    assert block_rows(10**6) == 64
