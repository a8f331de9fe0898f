"""The three mixing matrices, as functions of (seed, record): entries, and sums over blocks of records.

Every kernel holds no more than a block at a time. Blocks of integers are summed exactly (all partial sums
are integers below 2^53 in float64), so a total does not depend on block size, order or thread count.

A kernel is a matrix (k, n) of -1, 0 and +1: ``entries`` returns the columns of some records, transposed, of
shape (m, k); ``add`` adds ``entries.T @ block`` to a total (k, width). Positions increase strictly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array

from privinf.mechanisms.philox import Words, words_of, words_run
from privinf.typing import Floats, Integers

Signs: TypeAlias = NDArray[np.int8]

# Second word of the Philox key: streams of different use never meet.
_SIGNS = 1  # all entries of a SignKernel
_RECORD_SIGNS = 2  # signs of a HadamardKernel's records
_ROW_SAMPLE = 3  # rows of a HadamardKernel
_BUCKETS = 4  # rows and signs of a SketchKernel's records

_COUNTER_BITS = 256  # random bits of one counter of Philox4x64: four words
_DENSE_ENTRIES = 2**19  # entries unpacked at a time: 4 MiB of float64, about a second-level cache
_SKETCH_BLOCK = 2**15  # records of a SketchKernel that are added up at a time, at least
_CACHED = 2**16  # numbers of a block that is transformed in cache
_RADIX_BITS = 4  # H_16: the fastest stage of the transform as a matrix product
_THIN = 2  # entries that take the time of one transformed number (measured, widths 3 to 40)


@dataclass(frozen=True, slots=True)
class SignKernel:
    """Independent signs: bit l of record i's words is 0 for +1 and 1 for -1."""

    k: int
    seed: int

    def _bits(self, positions: Integers) -> NDArray[np.uint8]:
        per = 4 * math.ceil(self.k / _COUNTER_BITS)
        return _bits(words_of(self.seed, _SIGNS, positions, per), self.k)

    def entries(self, positions: Integers) -> Signs:
        """Return the columns of some records, transposed."""
        return _signs(self._bits(positions))

    def add(self, total: Floats, block: Floats, positions: Integers) -> None:
        """Add ``entries.T @ block`` to `total`; sum s x = sum x - 2 sum b x for s = 1 - 2 b."""
        sums = np.zeros((block.shape[1], self.k))
        for part in _slices(len(block), max(1, _DENSE_ENTRIES // self.k)):
            bits = self._bits(positions[part]).astype(np.float64)
            sums += block[part].T @ bits
        total += block.sum(axis=0)
        total -= 2.0 * sums.T


@dataclass(frozen=True, slots=True)
class HadamardKernel:
    """Rows of a Hadamard matrix of order 2^q >= n sampled without replacement, one random sign a record.

    Entry (l, i) is ``s_i (-1)^popcount(row_l & i)``. With i = m h + j the matrix is
    ``H_{2^q / m} (x) H_m``: an aligned block of m records is transformed in cache, and row l takes number
    ``row_l mod m`` of it with sign ``(-1)^popcount(h & (row_l // m))``.
    """

    seed: int
    rows: Integers
    order: int

    @classmethod
    def sample(cls, n: int, k: int, seed: int) -> HadamardKernel:
        """Take the first k distinct values of a stream of row numbers."""
        order = 1 << (n - 1).bit_length()
        drawn = np.empty(0, dtype=np.int64)
        position = 0
        while drawn.size < k:
            count = 2 * (k - drawn.size) + 64
            words = words_run(seed, _ROW_SAMPLE, position, count)
            fresh = (words & np.uint64(order - 1)).astype(np.int64)
            drawn = np.concatenate([drawn, fresh])
            drawn = drawn[np.sort(np.unique(drawn, return_index=True)[1])]
            position += count
        return cls(seed, drawn[:k], order)

    def _record_signs(self, positions: Integers) -> Signs:
        number = positions // 64
        starts = np.flatnonzero(np.diff(number, prepend=-1))
        words = words_of(self.seed, _RECORD_SIGNS, number[starts])
        repeats = np.diff(starts, append=positions.size)
        return _signs(np.repeat(_bits(words, 64), repeats, axis=0)[np.arange(positions.size), positions % 64])

    def entries(self, positions: Integers) -> Signs:
        """Return the columns of some records: a popcount's parity is the sum of those of groups of bits."""
        parity = np.zeros((positions.size, self.rows.size), dtype=np.uint8)
        for shift in range(0, self.order.bit_length() - 1, _RADIX_BITS):
            index = np.arange(1 << _RADIX_BITS)
            parity ^= _parity(index[:, None] << shift, self.rows)[(positions >> shift) % index.size]
        return self._record_signs(positions)[:, None] * _signs(parity)

    def add(self, total: Floats, block: Floats, positions: Integers) -> None:
        """Add ``entries.T @ block``; records of thinly filled blocks are summed from their entries."""
        size = self._transformed(total.shape[1], int(positions[-1] - positions[0]) + 1)
        number = positions // size
        edges = np.flatnonzero(np.diff(number, prepend=-1, append=-1))
        counts = np.diff(edges)
        thin = counts * self.rows.size < _THIN * size * total.shape[1]
        rest = np.repeat(thin, counts)
        self._add_entries(total, block[rest], positions[rest])
        for start, count in zip(edges[:-1][~thin], counts[~thin], strict=True):
            part = slice(start, start + count)
            self._add_transformed(total, block[part], positions[part], size)

    def _transformed(self, width: int, span: int) -> int:
        """Return the number of records transformed together: few enough for the cache, about k or more."""
        fitting = max(_CACHED // width, self.rows.size, 1).bit_length() - 1
        return 1 << min(fitting, (span - 1).bit_length())

    def _add_entries(self, total: Floats, block: Floats, positions: Integers) -> None:
        for part in _slices(len(block), max(1, _DENSE_ENTRIES // self.rows.size)):
            total += (block[part].T @ self.entries(positions[part]).astype(np.float64)).T

    def _add_transformed(self, total: Floats, block: Floats, positions: Integers, size: int) -> None:
        high = int(positions[0]) // size
        signed = block * self._record_signs(positions)[:, None]
        if len(block) < size:
            padded = np.zeros((size, block.shape[1]))
            padded[positions - high * size] = signed
            signed = padded
        selected = walsh_hadamard(signed)[self.rows & (size - 1)]
        selected *= _walsh(self.rows // size, np.int64(high))[:, None]
        total += selected


@dataclass(frozen=True, slots=True)
class SketchKernel:
    """One +-1 a record: the high half of record i's word selects the row, its lowest bit the sign."""

    k: int
    seed: int

    def _draw(self, positions: Integers) -> tuple[Integers, Signs]:
        words = words_of(self.seed, _BUCKETS, positions)[:, 0]
        return _buckets(words, self.k), _signs((words & np.uint64(1)).astype(np.uint8))

    def entries(self, positions: Integers) -> Signs:
        """Return the columns of some records, transposed."""
        rows, signs = self._draw(positions)
        dense = np.zeros((positions.size, self.k), dtype=np.int8)
        dense[np.arange(positions.size), rows] = signs
        return dense

    def add(self, total: Floats, block: Floats, positions: Integers) -> None:
        """Add ``entries.T @ block`` to `total`."""
        for part in _slices(len(block), max(_SKETCH_BLOCK, self.k)):
            rows, signs = self._draw(positions[part])
            if rows.size < self.k:
                reached, rows = np.unique(rows, return_inverse=True)
                total[reached] += _sparse_product(rows, signs, reached.size, block[part])
            else:
                total += _sparse_product(rows, signs, self.k, block[part])


Kernel: TypeAlias = SignKernel | HadamardKernel | SketchKernel


def _sparse_product(rows: Integers, signs: Signs, k: int, block: Floats) -> Floats:
    """Return the sums of signed records of `block` that go to each of `k` rows."""
    starts = np.arange(rows.size + 1)
    matrix = csc_array((signs.astype(np.float64), rows, starts), shape=(k, rows.size))
    return np.asarray(matrix @ block, dtype=np.float64)


def walsh_hadamard(block: Floats) -> Floats:
    """Return ``H @ block`` for the Hadamard matrix of Sylvester, block (2^q, width)."""
    size, width = block.shape
    bits = size.bit_length() - 1
    stride = 1
    values = block
    while stride < size:
        radix = 1 << min(_RADIX_BITS, bits - stride.bit_length() + 1)
        index = np.arange(radix)
        stage = _walsh(index[:, None], index).astype(np.float64)
        values = np.matmul(stage, values.reshape(stride, radix, -1))
        stride *= radix
    return values.reshape(size, width)


def _walsh(left: Integers, right: Integers | np.int64) -> Signs:
    """Return ``(-1)^popcount(left & right)``."""
    return _signs(_parity(left, right))


def _parity(left: Integers, right: Integers | np.int64) -> NDArray[np.uint8]:
    """Return ``popcount(left & right) mod 2``."""
    parity: NDArray[np.uint8] = np.bitwise_count(left & right) & np.uint8(1)
    return parity


def _signs(bits: NDArray[np.uint8]) -> Signs:
    """Return +1 for bit 0 and -1 for bit 1."""
    return 1 - 2 * bits.astype(np.int8)


def _bits(words: Words, count: int) -> NDArray[np.uint8]:
    """Return the first bits of each row of words, least significant first, on every platform: (m, count)."""
    octets = words.astype("<u8", copy=False).view(np.uint8)
    return np.unpackbits(octets[:, : math.ceil(count / 8)], axis=1, count=count, bitorder="little")


def _buckets(words: Words, k: int) -> Integers:
    """Return ``floor(k u)`` for the fraction u that the high half of each word is: bias below k / 2^32."""
    return (((words >> np.uint64(32)) * np.uint64(k)) >> np.uint64(32)).astype(np.int64)


def _slices(count: int, size: int) -> list[slice]:
    """Return consecutive slices of at most `size` that cover ``range(count)``."""
    return [slice(start, min(start + size, count)) for start in range(0, count, size)]
