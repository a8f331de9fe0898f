"""Symmetric matrices as vectors of the same length: the upper triangle, above the diagonal times sqrt 2."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from privinf.typing import Floats, Integers

# sqrt 2 from below, with so few digits that products with it stay exact.
ROOT2_BELOW = 181.0 / 128.0
ROOT2_BITS = 8  # binary digits that a product with it has more


@lru_cache(maxsize=4)
def isometric_pairs(size: int) -> tuple[Integers, Integers, Floats]:
    """Return rows, columns and isometric factors of a (size, size) matrix's upper triangle, read-only."""
    rows, columns = (index.astype(np.int64) for index in np.triu_indices(size))
    factors = np.where(rows == columns, 1.0, ROOT2_BELOW)
    for array in (rows, columns, factors):
        array.setflags(write=False)
    return rows, columns, factors


def pair_products(left: Floats, right: Floats, pairs: tuple[Integers, Integers, Floats]) -> Floats:
    """Return entries of left right', times their factors, in doubles; shapes (k, rows)."""
    rows, columns, factors = pairs
    return np.asarray((left @ right.T)[rows, columns] * factors)


def from_isometric(entries: Floats) -> Floats:
    """Return the symmetric matrix whose isometric upper triangle is given, shape (k (k + 1) / 2,)."""
    size = (math.isqrt(8 * len(entries) + 1) - 1) // 2
    rows, columns, factors = isometric_pairs(size)
    full = np.zeros((size, size))
    full[rows, columns] = entries / factors
    full[columns, rows] = full[rows, columns]
    return full
