"""Numbers of a block of rows: how they lie in memory, and the inner loops over them, by numpy or compiled.

Where numba is installed (privinf[fast]) loops over large blocks are compiled. They give the bits of numpy's:
number by number the same IEEE operations in the same order, none contracted, in one pass over memory where
numpy takes one for each. Sums of products are of integers that stay below 2^53, so that no order of additions
and no fused multiplication rounds anything: there alone the compiler may choose. The first work of a
process, and all small blocks, are numpy's: small fits do not wait for numba to be loaded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from privinf.typing import Flags, Floats, Integers

if TYPE_CHECKING:
    from privinf.mechanisms.statistics.compiled import Compiled

LARGE_BLOCK = 1 << 16  # numbers of a block from which on its loops are compiled ones
# Numbers that numpy works on before numba is loaded: on as many compiled loops save some of the .4 seconds
# that it takes.
WORTH_LOADING = 1 << 28
MANY_VALUES = 2048  # values from which on they are compared with one threshold after the other
TILE = 64  # rows that one operation of numpy covers, as if they were one long row


# ---- in memory


def aligned(rows: int, columns: int) -> Floats:
    """Return an empty array that begins on a line of the cache: numpy works twice as fast on it."""
    raw = np.empty(rows * columns * 8 + 64, dtype=np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + rows * columns * 8].view(np.float64).reshape(rows, columns)


def rooms(rows: int, columns: int) -> tuple[Floats, Floats]:
    """Return such arrays that lie by rows, and column by column.

    Columns are an odd number of lines apart, as a power of two would drive them out of the cache.
    """
    lines = -(-rows // 8) | 1
    return aligned(rows, columns), aligned(columns, 8 * lines)[:, :rows].T


def like(rooms: tuple[Floats, Floats], block: Floats) -> Floats:
    """Return as many rows of the room in which numbers lie as they do in a block."""
    return rooms[block.strides[0] < block.strides[1]][: len(block)]


class ScratchBuffers:
    """Memory for the arrays of a block, taken again for the next: new pages cost as much as work on them."""

    __slots__ = ("_arrays", "_next")

    def __init__(self) -> None:
        self._arrays: list[Floats] = []
        self._next = 0

    def clear(self) -> None:
        """Begin another block: the arrays of the one before hold nothing any more."""
        self._next = 0

    def take(self, *shape: int) -> Floats:
        """Return a new array within a block, with arbitrary contents."""
        size = math.prod(shape)
        at = self._next
        if at == len(self._arrays):
            self._arrays.append(np.empty(size))
        elif self._arrays[at].size < size:
            self._arrays[at] = np.empty(size)
        self._next += 1
        return self._arrays[at][:size].reshape(shape)


def filled(out: Floats, places: Sequence[int], columns: Sequence[np.ndarray[Any, Any]]) -> bool:
    """Copy columns to their places in a block stored by columns; return whether all are finite.

    `columns` are arrays of numbers of shape (rows,), of any type. False too, by numpy, where a sum overflows.
    """
    for place, column in zip(places, columns, strict=True):
        out[:, place] = column
    if (fast := _loops(out)) is not None and (columns_view := _side_by_side(out.T)) is not None:
        return bool(fast.finite(columns_view, len(out)))
    with np.errstate(all="ignore"):
        return bool(np.isfinite(out.sum()))


def _side_by_side(columns: Floats) -> Floats | None:
    """Return an array whose rows begin with numbers (k, rows) that lie side by side; None where none does.

    Memory after them in its rows must not be read or written.
    """
    if columns.ndim != 2 or columns.dtype != np.float64:
        return None
    if columns.flags.c_contiguous:
        return columns
    apart = columns.strides[0] // 8 if len(columns) > 1 else columns.shape[1]
    if columns.strides[1] != 8 or columns.strides[0] % 8 or apart < columns.shape[1]:
        return None
    return as_strided(columns, (len(columns), apart), (8 * apart, 8), writeable=columns.flags.writeable)


# ---- loops


def on_grid(
    values: Floats, factor: Floats | float, shift: Floats | float, largest: float, out: Floats
) -> Floats:
    """Return floor(values x factor + shift) held at +-largest, in `out`; nan stays.

    Each step is one IEEE operation a number, and grows with the value. The shift holds the 1/2 that makes
    floor the nearest integer. Factor and shift are numbers, or of shape (k,) for values of shape (rows, k).
    """
    if (fast := _loops(out)) is not None:
        inputs = _side_by_side(values.T)
        outputs = _side_by_side(out.T)
        if inputs is not None and outputs is not None:
            rows = (np.full(len(outputs), row, dtype=np.float64) for row in (factor, shift))
            fast.on_grid(inputs, len(out), *rows, largest, outputs)
            return out
    _by_column(np.multiply, values, factor, out)
    _by_column(np.add, out, shift, out)
    np.floor(out, out=out)
    return out.clip(-largest, largest, out=out)


def beyond(values: Floats, low: Floats, high: Floats) -> Flags:
    """Return which values, shape (rows, k), are below `low` or above `high`, shape (k,); shape (k, rows)."""
    marks = np.empty_like(values, dtype=np.bool_)
    marks_above = np.empty_like(marks)
    _by_column(np.less, values, low, marks)
    _by_column(np.greater, values, high, marks_above)
    return np.logical_or(marks, marks_above, out=marks).T


def _by_column(operation: np.ufunc, values: Floats, row: Floats | float, out: Floats | Flags) -> None:
    """Put operation(values, row) into `out`; numpy repeats one number fastest, then a long row."""
    if isinstance(row, np.ndarray):
        tile, same = _tile(row.tobytes())
        if same:
            row = tile[0]
        elif len(tile) and values.flags.c_contiguous and out.flags.c_contiguous:
            tiled = len(values) - len(values) % TILE
            operation(values[:tiled].reshape(-1, len(tile)), tile, out=out[:tiled].reshape(-1, len(tile)))
            values = values[tiled:]
            out = out[tiled:]
    operation(values, row, out=out)


@lru_cache(maxsize=256)
def _tile(row: bytes) -> tuple[Floats, bool]:
    """Return a row many times over, and whether its numbers are the same."""
    tile = np.tile(np.frombuffer(row), TILE)
    return tile, bool(len(tile) and (tile == tile[0]).all())


def lengths(vectors: Floats) -> Floats:
    """Return the norms of columns, squares being added up entry by entry."""
    fast = _loops(vectors)
    if fast is not None and (inputs := _side_by_side(vectors)) is not None:
        norms = np.empty(vectors.shape[1])
        fast.lengths(inputs, norms)
        return norms
    total: Floats = np.square(vectors[0])
    square = np.empty_like(total)
    for entries in vectors[1:]:
        total += np.square(entries, out=square)
    return np.sqrt(total, out=total)


def nearest(vectors: Floats, size: Floats | None, factors: Floats, out: Floats | None = None) -> Floats:
    """Return floor(vectors x size x factors + 1/2), shape (k, rows), one of both for each column."""
    fast = _loops(vectors)
    if fast is not None and (inputs := _side_by_side(vectors)) is not None:
        out = np.empty(vectors.shape) if out is None else out
        if (outputs := _side_by_side(out)) is not None:
            size = np.ones(out.shape[1]) if size is None else size
            fast.nearest(inputs, *map(np.ascontiguousarray, (size, factors)), outputs)
            return out
    steps = np.multiply(vectors, factors if size is None else size, out=out)
    if size is not None:
        steps *= factors
    steps += 0.5
    return np.floor(steps, out=steps)


def forms(weights: Floats, values: Floats, room: ScratchBuffers | None = None) -> Floats:
    """Return weights @ values', shape (m, rows): sums of integers, times powers of two, that stay below 2^53.

    Parameters
    ----------
    weights : ndarray, shape (m, k)
    values : ndarray, shape (rows, k)
    room : ScratchBuffers, optional
        Where the memory for it is taken.
    """
    shape = len(weights), len(values)
    out = np.empty(shape) if room is None else room.take(*shape)
    fast = _loops(values) if len(weights) > 1 else None
    if fast is not None and fast.quick_forms and (inputs := _side_by_side(values.T)) is not None:
        fast.forms(np.ascontiguousarray(weights), inputs, len(values), out)
        return out
    return np.matmul(weights, values.T, out=out)


def above(values: Floats, thresholds: Floats) -> Integers:
    """Return how many values are above each of increasing thresholds, shape (m,); nan is above all."""
    if (fast := _loops(values, 8 * len(thresholds))) is not None:
        places = np.empty(len(values), dtype=np.int64)
        fast.above(*(np.ascontiguousarray(array, dtype=np.float64) for array in (values, thresholds)), places)
    elif len(values) < MANY_VALUES:
        places = np.searchsorted(thresholds, values, side="left")
    else:  # values in random order mislead the branches of a search
        marks = np.empty(len(values), dtype=np.bool_)
        at_or_below = [
            np.count_nonzero(np.less_equal(values, threshold, out=marks)) for threshold in thresholds
        ]
        return len(values) - np.array(at_or_below, dtype=np.int64)
    return len(values) - np.cumsum(np.bincount(places, minlength=len(thresholds) + 1)[:-1])


def products(left: Floats, right: Floats) -> Floats:
    """Return the sums over rows of all products of integers, whose sums stay below 2^53: left'right.

    Parameters
    ----------
    left, right : ndarray, shapes (rows, a) and (rows, b)
        Of one array with itself the entries below the diagonal may be anything.
    """
    if (fast := _loops(max(left, right, key=np.size))) is not None:
        pair = _side_by_side(left.T), _side_by_side(right.T)
        if pair[0] is not None and pair[1] is not None:
            return np.asarray(fast.products(*pair, len(left), left is right))
    return np.asarray(left.T @ right)


# ---- which


_worked = 0


def _loops(block: Floats, times: int = 1) -> Compiled | None:
    """Return the compiled loops for a block, worked on several times; None where numpy's are to be taken."""
    global _worked
    if not isinstance(block, np.ndarray) or block.size * times < LARGE_BLOCK:
        return None
    if _worked < WORTH_LOADING:
        _worked += block.size
        return None
    from privinf.mechanisms.statistics import compiled

    return compiled.compiled_loops()
