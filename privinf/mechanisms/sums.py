"""Exact sums of products over rows: integers in doubles, multiplied by BLAS, added up in two words.

Every value is put on its grid once, by its own record and public numbers alone: x in units of ``unit =
bound 2^-20``, as ``floor(x / unit + 1/2)``, an integer of size at most 2^20 where ``|x| <= bound``. A
product of two is at most 2^40, and the sum of 8,192 of them at most 2^53: every partial sum that BLAS can
form, in any order, with fused multiplications or without, is an integer that a double holds. Nothing is
rounded. The sums of blocks go into two 64-bit words an entry, ``high 2^32 + low`` with ``0 <= low <
2^32``. Totals are integers: they depend neither on the order of rows, nor on the size of blocks, nor on
how sums are merged, nor on the machine. They take 2^40 rows.

>>> import numpy as np
>>> one, other = ProductSums((1, 2)), ProductSums((1, 2))
>>> one.update(np.array([[1.0], [2.0]]), np.array([[3.0, 4.0], [5.0, -6.0]]))
>>> other.update(np.array([[7.0]]), np.array([[0.0, 1.0]]))
>>> one.merge(other)
>>> one.rows, one.total.integers()[0].tolist()
(3, [54, 13, -1])

**Error.** Rounding moves a mean by 2^-21 of its bound at most, and by about 2^-21 / sqrt(3 n) where values
differ. Noise moves it by 1.4 bound / (n mu) or more, sampling by about bound / sqrt(n): the worst case is
below the noise up to n = 3 10^6 / mu, below a thousandth of the sampling error up to n = 4 10^6.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, TypeAlias

import numpy as np

from privinf.errors import ArgumentError, SensitivityError
from privinf.mechanisms.statistics.loops import products
from privinf.typing import Floats, Integers

# Python's integers, of any size.
Wide: TypeAlias = np.ndarray[Any, np.dtype[np.object_]]
VALUE_BITS = 20  # binary digits of a value in units of its bound
EXACT_BITS = 53  # binary digits of doubles, all of which a block's sums may have
FULL_SCALE = 2.0**VALUE_BITS  # a value at its bound, in units of its grid
# Rows whose products of two values add up to no more than EXACT_BITS digits.
BLOCK_ROWS = 1 << (EXACT_BITS - 2 * VALUE_BITS)
_MOST_ROWS = 1 << 40  # of all blocks: 2^40 products of 2^40 are below what both words hold
BLOCK_NUMBERS = 3 << 16  # numbers of a block of factors: its copies stay in the cache
# What rounding leaves of an exact equality of norms; the float slack of ledger lines is larger.
NORM_SLACK = 2.0**-44
_WORD = 32  # binary digits of the lower word
_MOST_ADDED = 256  # sums of 2^53 that the lower word takes before its digits are carried


def block_rows(columns: int) -> int:
    """Return the number of rows that are processed together: at most `BLOCK_ROWS`."""
    return max(64, min(BLOCK_ROWS, BLOCK_NUMBERS // max(columns, 1)))


class ExactSum:
    """An array of sums of integers, exact up to 2^94.

    Notes
    -----
    **Privacy.** Holds sums without noise over records: it stays in the mechanisms and is not pickled or
    shown.
    """

    __slots__ = ("_added", "_high", "_low")

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._high = np.zeros(shape, dtype=np.int64)
        self._low = np.zeros(shape, dtype=np.int64)
        self._added = 0  # how often since digits were carried

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        return self._low.shape

    def add(self, sums: Floats) -> None:
        """Add integers stored in doubles, none larger than 2^53."""
        self._low += sums.astype(np.int64)
        self._added += 1
        if self._added == _MOST_ADDED:
            self.carry()

    def add_integers(self, sums: Wide) -> None:
        """Add an array of Python's integers."""
        self._high += (sums >> _WORD).astype(np.int64)
        self._low += (sums & ((1 << _WORD) - 1)).astype(np.int64)
        self.carry()

    def merge(self, other: ExactSum) -> None:
        """Add another array of the same shape."""
        self.carry()
        self._high += other._high
        self._low += other._low
        self.carry()

    def carry(self) -> None:
        """Bring the words into their ranges: of one sum there is one pair of words then."""
        self._added = 0
        over = self._low >> _WORD
        self._high += over
        self._low &= (1 << _WORD) - 1

    @classmethod
    def from_integers(cls, integers: np.ndarray[Any, np.dtype[np.object_]]) -> ExactSum:
        """Return Python's integers, none larger than 2^94."""
        result = cls(())
        result._high = np.asarray(integers >> _WORD, dtype=np.int64)
        result._low = np.asarray(integers & ((1 << _WORD) - 1), dtype=np.int64)
        return result

    def at(self, rows: Integers, columns: Integers) -> ExactSum:
        """Return some of the sums of a matrix."""
        chosen = ExactSum(())
        chosen._high = self._high[rows, columns]
        chosen._low = self._low[rows, columns]
        return chosen

    def flat(self) -> ExactSum:
        """Return the sums of a matrix as a vector, row by row."""
        vector = ExactSum(())
        vector._high = self._high.ravel()
        vector._low = self._low.ravel()
        return vector

    def _short(self) -> Integers | None:
        """Return the sums where all have at most 60 binary digits."""
        self.carry()
        if self._high.size and max(int(self._high.max()), -int(self._high.min())) >= 1 << 60 - _WORD:
            return None
        return np.asarray((self._high << _WORD) + self._low, dtype=np.int64)

    def integers(self) -> Wide:
        """Return the sums as Python's integers."""
        return np.asarray((self._high.astype(object) << _WORD) + self._low.astype(object), dtype=object)

    def floats(self, units: Floats) -> Floats:
        """Return the doubles nearest to sum x unit; units are positive, of the sums' shape."""
        mantissas, exponents = np.frexp(np.asarray(units, dtype=np.float64))
        short = self._short() if (mantissas == 0.5).all() else None
        if short is not None:  # the same numbers, without integers of any size
            return np.asarray(np.ldexp(short.astype(np.float64), exponents - 1), dtype=np.float64)
        mantissas, exponents = _dyadic(units)
        nearest = (self.integers() * mantissas).astype(np.float64)
        return np.asarray(np.ldexp(nearest, exponents), dtype=np.float64)

    def steps(self, units: Floats, grid: float) -> Integers:
        """Return the integers nearest to sum x unit / grid, halves upwards; nothing is rounded before.

        Parameters
        ----------
        units : ndarray
            Positive, of the sums' shape.
        grid : float
            A power of two.

        Raises
        ------
        SensitivityError
            One has more than 62 binary digits; callers can check this in advance from public numbers.
        """
        mantissas, exponents = np.frexp(np.asarray(units, dtype=np.float64) / grid)
        if (mantissas == 0.5).all() and exponents.size and exponents.min() == exponents.max():
            moved = _shifted(self._short(), int(exponents.max()) - 1)
            if moved is not None:
                return moved
        mantissas, exponents = _dyadic(np.asarray(units) / grid)
        up = np.maximum(exponents + 1, 0).astype(object)
        down = up - exponents.astype(object)
        nearest = np.asarray(((self.integers() * mantissas << up) + (1 << (down - 1))) >> down, dtype=object)
        if nearest.size and max(abs(nearest.max()), abs(nearest.min())) >= 1 << 62:
            raise SensitivityError(
                "the noise is too small for an exact sum in 64-bit integers: use a smaller privacy budget"
            )
        return nearest.astype(np.int64)

    def __reduce__(self) -> Any:
        raise TypeError("sums without noise cannot be pickled: pickle the release instead")

    def __repr__(self) -> str:
        return f"<ExactSum of shape {self.shape}, not shown>"


def _shifted(short: Integers | None, digits: int) -> Integers | None:
    """Return sums times a power of two, halves upwards, where 64 bits hold them."""
    if short is None or not short.size or digits < -60:
        return None
    if digits < 0:
        return np.asarray((short + (1 << -digits - 1)) >> -digits, dtype=np.int64)
    if digits > 60 or np.abs(short).max() >= 1 << max(61 - digits, 0):
        return None
    return np.asarray(short << digits, dtype=np.int64)


def _dyadic(units: Floats) -> tuple[Any, Integers]:
    """Return doubles as integers, which are Python's, and powers of two."""
    mantissas, exponents = np.frexp(np.asarray(units, dtype=np.float64))
    return np.ldexp(mantissas, EXACT_BITS).astype(np.int64).astype(object), exponents - EXACT_BITS


class ProductSums:
    """Sums over rows of the products of all pairs of a row's values: all of ``sum z z'``, z in groups.

    Parameters
    ----------
    sizes : sequence of int
        Number of columns of each group: columns that are made apart need not be copied together.
    squares : bool
        Whether products within a group are wanted too. Without them there are two groups.
    vectors : int
        Number of vectors of one row, whose products are added up.

    Attributes
    ----------
    rows : int
        Number of rows that were added, at most 2^40.

    Notes
    -----
    **Privacy.** As `ExactSum`.
    """

    __slots__ = ("_pending", "_sizes", "_squares", "_sum", "_vectors", "_waiting", "rows")

    def __init__(self, sizes: Sequence[int], *, squares: bool = True, vectors: int = 1) -> None:
        self._sizes = tuple(sizes)
        self._squares = squares
        self._vectors = vectors
        shape = (sum(self._sizes),) * 2 if squares else (self._sizes[0], self._sizes[1])
        self._sum = ExactSum(shape)
        self._pending = np.zeros(shape)
        self._waiting = 0
        self.rows = 0

    def update(self, *groups: Floats) -> None:
        """Add rows: integers in doubles, of size at most 2^20, an array of shape (rows, size) a group.

        Groups that are adjacent in one array, and are multiplied with themselves too, come as that array.

        Raises SensitivityError for more than 2^40 rows.
        """
        count = len(groups[0])
        self.rows = added_rows(self.rows, count // self._vectors)
        for start in range(0, count, BLOCK_ROWS):
            part = [group[start : start + BLOCK_ROWS] for group in groups]
            self._flush(len(part[0]))
            self._multiply(part)

    def take(self, rows: int, sums: Wide) -> None:
        """Add rows whose sums of products are known: Python's integers, of the shape of `total`."""
        self.rows = added_rows(self.rows, rows)
        self._sum.add_integers(sums)

    def _multiply(self, groups: Sequence[Floats]) -> None:
        """Add the upper triangle of one block's products."""
        if len(groups) < len(self._sizes):
            self._pending += products(groups[0], groups[0])
            return
        if not self._squares:
            self._pending += products(*groups)
            return
        ends = list(accumulate(self._sizes, initial=0))
        for i, group in enumerate(groups):
            for j in range(i, len(groups)):
                if self._sizes[i] and self._sizes[j]:
                    self._pending[ends[i] : ends[i + 1], ends[j] : ends[j + 1]] += products(group, groups[j])

    def _flush(self, new_rows: int) -> None:
        """Put what waits in doubles away where that many more rows would be too many for them."""
        if self._waiting + new_rows > BLOCK_ROWS:
            self._sum.add(self._pending)
            self._pending[:] = 0.0
            self._waiting = 0
        self._waiting += new_rows

    def merge(self, other: ProductSums) -> None:
        """Add rows of another accumulator; ArgumentError for groups of other sizes."""
        if other._sizes != self._sizes:
            raise ArgumentError(
                "the two sums were made for different numbers of columns, so they cannot be merged: merge "
                "sums over the same columns"
            )
        self.rows = added_rows(self.rows, other.rows)
        self._sum.merge(other.total)

    @property
    def total(self) -> ExactSum:
        """The sums of products, shape (size, size), of which only the upper triangle holds anything.

        Without squares all products of the first group and the second, in its shape.
        """
        self._flush(BLOCK_ROWS)
        self._waiting = 0
        self._sum.carry()
        return self._sum

    def __reduce__(self) -> Any:
        raise TypeError("sums without noise cannot be pickled: pickle the release instead")

    def __repr__(self) -> str:
        return f"<ProductSums of {self.rows} rows, not shown>"


def added_rows(rows: int, new_rows: int) -> int:
    """Return a number of rows with more; SensitivityError for more than 2^40."""
    if rows + new_rows > _MOST_ROWS:
        raise SensitivityError("exact sums are available for at most 2^40 rows")
    return rows + new_rows


def scaled_down(steps: Floats, factor: Floats) -> Floats:
    """Return floor(steps x factor + 1/2) for factors in [-1, 1], in place: no number grows by it.

    With k an integer and |f| <= 1, |k f| <= |k| in doubles too, and the integer nearest to a number in
    [-|k|, |k|] is in there: norms of rows keep to their bound.
    """
    steps *= factor
    steps += 0.5
    return np.floor(steps, out=steps)


def held_norms(steps: Floats, limit: float) -> Floats:
    """Return rows of integers shrunk, in place, to a norm of at most `limit` units, 2^10 or more.

    The squared norm is an exact integer (up to 8,192 columns); a longer row is multiplied by ``limit (1 -
    2^-50) / norm``, one root, one division and one product a number, and cut toward zero. These three are
    off by (1 + 2^-53)^3 at most, for which there is room; cutting shortens: no row is longer than `limit`.
    """
    if steps.shape[1] > BLOCK_ROWS:
        raise SensitivityError(
            f"norms of rows are available for at most {BLOCK_ROWS} columns: use fewer columns"
        )
    squares = np.einsum("ij,ij->i", steps, steps)
    long = np.flatnonzero(squares > limit * limit)
    if len(long):
        factors = limit * (1.0 - 2.0**-50) / np.sqrt(squares[long])
        steps[long] = np.trunc(steps[long] * factors[:, None])
    return steps


def shrunk(x: Floats, radius: float) -> Floats:
    """Return rows shrunk, in place, to a norm of about `radius`; squares are added up column by column."""
    squares = np.zeros(len(x))
    with np.errstate(over="ignore", invalid="ignore"):
        for column in x.T:
            squares += column * column
        x *= (radius / np.maximum(np.sqrt(squares), radius))[:, None]
    return x


def held_sums(sums: Floats, values: Floats, norm: float, cap: int) -> Floats:
    """Return rows of integers, one of which counts for `values`, shrunk to a norm, over `cap`, cut."""
    squares = np.zeros(len(sums))
    for column in (sums * values).T:
        squares += column * column
    factors = norm * (1.0 - NORM_SLACK) / (np.maximum(np.sqrt(squares), norm) * cap)
    return np.trunc(sums * factors[:, None])
