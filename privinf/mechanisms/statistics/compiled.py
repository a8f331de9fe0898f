"""Loops over numbers of a block, compiled by numba, which `loops` uses where blocks are large.

They are plain Python that numba reads. Sums of exact integers alone may be reordered (`exact`), which is
what lets several be made at once; all else is done operation by operation, as it stands here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from timeit import repeat
from typing import Any

import numpy as np

from privinf.typing import Floats, Integers

# Rows that are processed together: their columns stay in the first cache.
CACHED_ROWS = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """Loops over arrays that hold columns, of which the first `rows` numbers count, side by side."""

    finite: Any
    on_grid: Any
    nearest: Any
    lengths: Any
    above: Any
    products: Any
    forms: Any

    @property
    def quick_forms(self) -> bool:
        """Whether `forms` takes less time than BLAS, of which some know the processor better."""
        return _quicker(self.forms)


@lru_cache(maxsize=1)
def compiled_loops() -> Compiled | None:
    """Return the loops; None without a numba that compiles them."""
    for keeps in (True, False):  # next to this file, or in numba's configured folder, if it is writable
        try:
            return _compile_loops(keeps)
        except Exception:  # numba beside a numpy that it does not know, no such folder, a disk that is full
            continue
    return None


def _compile_loops(keeps: bool) -> Compiled | None:
    import numba

    if getattr(numba.config, "DISABLE_JIT", False):
        return None
    number = numba.float64
    vector = numba.float64[::1]
    matrix = numba.float64[:, ::1]
    row, reads = (numba.types.Array(number, ndim, "C", readonly=True) for ndim in (1, 2))

    def compiled(function: Any, kinds: Any, *, exact: bool = False) -> Any:
        allowed = {"reassoc", "contract", "nsz"} if exact else False
        return numba.njit([kinds], cache=keeps, nogil=True, fastmath=allowed)(function)

    return Compiled(
        finite=compiled(_finite, numba.boolean(reads, numba.int64)),
        on_grid=compiled(_on_grid, numba.void(reads, numba.int64, row, row, number, matrix)),
        nearest=compiled(_nearest, numba.void(reads, row, row, matrix)),
        lengths=compiled(_lengths, numba.void(reads, vector)),
        above=compiled(_above, numba.void(row, row, numba.int64[::1])),
        products=compiled(_products, matrix(reads, reads, numba.int64, numba.boolean), exact=True),
        forms=compiled(_forms, numba.void(reads, reads, numba.int64, matrix), exact=True),
    )


@lru_cache(maxsize=1)
def _quicker(loop: Any) -> bool:
    values = np.ones((20, 8192))
    weights = np.ones((20, 20))
    out = np.empty((20, 8192))
    ways = lambda: loop(weights, values, 8192, out), lambda: np.matmul(weights, values, out=out)
    mine, theirs = (min(repeat(way, number=1, repeat=7)) for way in ways)
    return mine < theirs


def _finite(values: Floats, rows: int) -> bool:
    all_finite = True
    for j in range(len(values)):
        column = values[j, :rows]
        for i in range(rows):
            all_finite &= abs(column[i]) < np.inf
    return all_finite


def _on_grid(values: Floats, rows: int, factor: Floats, shift: Floats, largest: float, out: Floats) -> None:
    for j in range(len(values)):
        column = values[j, :rows]
        steps = out[j, :rows]
        by = factor[j]
        offset = shift[j]
        for i in range(rows):
            step = np.floor(column[i] * by + offset)
            step = -largest if step < -largest else step
            steps[i] = largest if step > largest else step


def _nearest(vectors: Floats, size: Floats, factors: Floats, out: Floats) -> None:
    rows = factors.size
    for j in range(len(vectors)):
        entries = vectors[j, :rows]
        steps = out[j, :rows]
        for i in range(rows):
            steps[i] = np.floor(entries[i] * size[i] * factors[i] + 0.5)


def _lengths(vectors: Floats, out: Floats) -> None:
    for start in range(0, out.size, CACHED_ROWS):
        part = out[start : start + CACHED_ROWS]
        for j in range(len(vectors)):
            entries = vectors[j, start : start + part.size]
            for i in range(part.size):
                square = entries[i] * entries[i]
                part[i] = part[i] + square if j else square
        for i in range(part.size):
            part[i] = np.sqrt(part[i])


def _above(values: Floats, thresholds: Floats, out: Integers) -> None:
    for start in range(0, values.size, CACHED_ROWS):
        part = values[start : start + CACHED_ROWS]
        counts = out[start : start + CACHED_ROWS]
        counts[:] = 0
        for threshold in thresholds:
            for i in range(counts.size):
                counts[i] += 0 if part[i] <= threshold else 1


def _products(left: Floats, right: Floats, rows: int, same: bool) -> Floats:
    p, q = len(left), len(right)
    out = np.zeros((p + 3, q + 3))  # four by four at a time, the last ones again where they are fewer
    for start in range(0, rows, CACHED_ROWS):
        end = min(start + CACHED_ROWS, rows)
        for j in range(0, p, 4):
            a0 = left[j, start:end]
            a1 = left[min(j + 1, p - 1), start:end]
            a2 = left[min(j + 2, p - 1), start:end]
            a3 = left[min(j + 3, p - 1), start:end]
            for k in range(j if same else 0, q, 4):
                b0 = right[k, start:end]
                b1 = right[min(k + 1, q - 1), start:end]
                b2 = right[min(k + 2, q - 1), start:end]
                b3 = right[min(k + 3, q - 1), start:end]
                s00 = s01 = s02 = s03 = s10 = s11 = s12 = s13 = 0.0
                s20 = s21 = s22 = s23 = s30 = s31 = s32 = s33 = 0.0
                for i in range(a0.size):
                    s00 = s00 + a0[i] * b0[i]
                    s01 = s01 + a0[i] * b1[i]
                    s02 = s02 + a0[i] * b2[i]
                    s03 = s03 + a0[i] * b3[i]
                    s10 = s10 + a1[i] * b0[i]
                    s11 = s11 + a1[i] * b1[i]
                    s12 = s12 + a1[i] * b2[i]
                    s13 = s13 + a1[i] * b3[i]
                    s20 = s20 + a2[i] * b0[i]
                    s21 = s21 + a2[i] * b1[i]
                    s22 = s22 + a2[i] * b2[i]
                    s23 = s23 + a2[i] * b3[i]
                    s30 = s30 + a3[i] * b0[i]
                    s31 = s31 + a3[i] * b1[i]
                    s32 = s32 + a3[i] * b2[i]
                    s33 = s33 + a3[i] * b3[i]
                tile = (
                    (s00, s01, s02, s03),
                    (s10, s11, s12, s13),
                    (s20, s21, s22, s23),
                    (s30, s31, s32, s33),
                )
                for row in range(4):
                    for column in range(4):
                        out[j + row, k + column] += tile[row][column]
    return out[:p, :q].copy()


def _forms(weights: Floats, values: Floats, rows: int, out: Floats) -> None:
    m, k = weights.shape
    padded = np.zeros((m + 2, k + 3))  # three by four at a time
    padded[:m, :k] = weights
    buffers = np.empty(3 * CACHED_ROWS)
    for start in range(0, rows, CACHED_ROWS):
        end = min(start + CACHED_ROWS, rows)
        size = end - start
        f = buffers[:size]
        g = buffers[CACHED_ROWS : CACHED_ROWS + size]
        h = buffers[2 * CACHED_ROWS : 2 * CACHED_ROWS + size]
        for i in range(0, m, 3):
            u = padded[i]
            v = padded[i + 1]
            w = padded[i + 2]
            for at in range(size):
                f[at] = g[at] = h[at] = 0.0
            for j in range(0, k, 4):
                x0 = values[j, start:end]
                x1 = values[min(j + 1, k - 1), start:end]
                x2 = values[min(j + 2, k - 1), start:end]
                x3 = values[min(j + 3, k - 1), start:end]
                u0 = u[j]
                u1 = u[j + 1]
                u2 = u[j + 2]
                u3 = u[j + 3]
                v0 = v[j]
                v1 = v[j + 1]
                v2 = v[j + 2]
                v3 = v[j + 3]
                w0 = w[j]
                w1 = w[j + 1]
                w2 = w[j + 2]
                w3 = w[j + 3]
                for at in range(size):
                    a = x0[at]
                    b = x1[at]
                    c = x2[at]
                    d = x3[at]
                    f[at] += u0 * a + u1 * b + u2 * c + u3 * d
                    g[at] += v0 * a + v1 * b + v2 * c + v3 * d
                    h[at] += w0 * a + w1 * b + w2 * c + w3 * d
            for row in range(min(3, m - i)):
                entries = out[i + row, start:end]
                sums = buffers[row * CACHED_ROWS : row * CACHED_ROWS + size]
                for at in range(size):
                    entries[at] = sums[at]
