r"""The public mixing matrix B (k x n) that all parties of a plan share, and sums over it in one pass.

Every column of B has norm 1, which is all that the sensitivity of a mixed release needs. B is made from
(seed, record position) alone, so each party builds the same B in its own process, in any order of its rows.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privinf.errors import AlignmentError, ArgumentError
from privinf.mechanisms.mixing.kernels import HadamardKernel, Kernel, SignKernel, SketchKernel
from privinf.typing import Floats, Integers, MixingKind
from privinf.validation import check_array, check_choice, check_count

_MOST_RECORDS = 2**40  # people of a plan
_DIGEST_ENTRIES = 2**24  # entries of the matrix that are digested at a time


@dataclass(frozen=True, slots=True)
class MixingMatrix:
    r"""A random k x n matrix with columns of norm 1, known from its seed.

    Parameters
    ----------
    kind : {"signs", "hadamard", "countsketch"}
        Independent signs :math:`\pm 1/\sqrt k`; k rows of a Hadamard matrix of order 2^q >= n, sampled
        without replacement, times a random sign a record and :math:`1/\sqrt k`; or one :math:`\pm 1` a
        record, in a random row.
    n : int
        Records (columns of B).
    k : int
        Mixed rows, at most n.
    seed : int
        The shared public seed, 0 <= seed < 2^64.

    Raises
    ------
    ArgumentError
        An argument is out of its range.

    Notes
    -----
    **Privacy.** B is public and must not depend on the data. Replacing one record moves the mixed rows by
    the distance of the two records: columns of norm 1.

    Work for n records of width d: n k d for "signs", n d log k for "hadamard", n d for "countsketch".
    Bits are raw Philox4x64 words keyed by (seed, kind) and read at the record's position: the same on every
    platform and for every order of the records. In all three kinds E[B'B] = I; with "hadamard" the order
    is the next power of two.

    References
    ----------
    Tropp (2011), Improved analysis of the subsampled randomized Hadamard transform. Charikar, Chen and
    Farach-Colton (2002), Finding frequent items in data streams. Salmon, Moraes, Dror and Shaw (2011),
    Parallel random numbers: as easy as 1, 2, 3.

    Examples
    --------
    >>> import numpy as np
    >>> matrix = MixingMatrix("hadamard", n=6, k=2, seed=1)
    >>> mixer = matrix.mixer(width=1)
    >>> mixer.update(np.ones((6, 1)), 0)
    >>> bool((mixer.total()[:, 0] == matrix.entries(range(6)).sum(axis=1)).all())
    True
    """

    kind: MixingKind
    n: int
    k: int
    seed: int

    def __post_init__(self) -> None:
        check_choice(self.kind, MixingKind, "kind")
        for name in ("n", "k"):
            object.__setattr__(self, name, check_count(getattr(self, name), name))
        object.__setattr__(self, "seed", check_count(self.seed, "seed", least=0))
        if self.n > _MOST_RECORDS:
            raise ArgumentError(f"n={self.n} people are too many: pass at most 2**40")
        if self.k > self.n:
            raise ArgumentError(
                f"k={self.k} (number of random sums over people) is too large: pass at most n={self.n}, the "
                "number of people"
            )
        if self.seed >= 2**64:
            raise ArgumentError(f"seed={self.seed} must be below 2**64")

    @property
    def scale(self) -> float:
        """Factor of the entries -1, 0, +1, which gives every column norm 1."""
        return 1.0 if self.kind == "countsketch" else 1.0 / math.sqrt(self.k)

    @property
    def touched(self) -> int:
        """Mixed rows that one record changes."""
        return 1 if self.kind == "countsketch" else self.k

    def entries(self, positions: ArrayLike) -> NDArray[np.int8]:
        """Return the unscaled entries (-1, 0, +1) of some records, shape (k, m), in the order given.

        Raises
        ------
        ArgumentError
            A position is not a whole number in 0 .. n-1.
        """
        distinct, back = np.unique(self._checked(positions), return_inverse=True)
        return self._kernel().entries(distinct)[back].T

    def digest(self) -> str:
        """Return the SHA-256 of all unscaled entries: one signed byte each, record by record."""
        kernel = self._kernel()
        hashed = hashlib.sha256()
        step = max(1, _DIGEST_ENTRIES // self.k)
        for start in range(0, self.n, step):
            block = kernel.entries(np.arange(start, min(start + step, self.n)))
            hashed.update(np.ascontiguousarray(block).tobytes())
        return hashed.hexdigest()

    def mixer(self, width: int) -> Mixer:
        """Return an empty accumulator of the mixed rows of `width` columns."""
        return Mixer(self, check_count(width, "width"), self._kernel())

    def _kernel(self) -> Kernel:
        if self.kind == "signs":
            return SignKernel(self.k, self.seed)
        if self.kind == "hadamard":
            return HadamardKernel.sample(self.n, self.k, self.seed)
        return SketchKernel(self.k, self.seed)

    def _checked(self, positions: ArrayLike) -> Integers:
        array = np.asarray(positions)
        if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
            raise ArgumentError("row numbers must be a vector of integers")
        if array.size and (array.min() < 0 or array.max() >= self.n):
            raise ArgumentError(f"row numbers must be between 0 and n-1 = {self.n - 1}")
        return array.astype(np.int64)


class Mixer:
    """Sums of records over a mixing matrix, block by block; memory O(block + k width).

    Attributes
    ----------
    matrix : MixingMatrix
    width : int
        Columns of every block.
    records : int
        Records added so far.

    Notes
    -----
    **Privacy.** Holds exact sums over raw records, without noise: it never leaves the mechanism.

    Give it integers (as float64, all sums of absolute values below 2^53): the total is then exact, the same
    whatever the size and the order of the blocks.
    """

    __slots__ = ("_kernel", "_total", "matrix", "records", "width")

    def __init__(self, matrix: MixingMatrix, width: int, kernel: Kernel) -> None:
        self.matrix = matrix
        self.width = width
        self.records = 0
        self._kernel = kernel
        self._total = np.zeros((matrix.k, width))

    def update(self, block: Floats, position: int | Integers) -> None:
        """Add some records.

        Parameters
        ----------
        block : array (m, width)
        position : int or int64 array (m,)
            Where the run of records starts, or each record's own position, 0 .. n-1, in any order.

        Raises
        ------
        ArgumentError
            A wrong shape, a position outside 0 .. n-1 or twice in the block, or more than n records in all.
        """
        values = np.ascontiguousarray(check_array(block, "block=", ndim=2))
        if values.shape[1] != self.width:
            raise ArgumentError(
                f"the array has {values.shape[1]} column(s), but this mixer was made with "
                f"width={self.width}: pass an array with that many columns"
            )
        positions = self._positions(position, len(values))
        if self.records + len(values) > self.matrix.n:
            raise ArgumentError(f"more than n={self.matrix.n} records were added: add every record only once")
        if not len(values):
            return
        if np.any(np.diff(positions) <= 0):
            order = np.argsort(positions)
            positions = positions[order]
            values = values[order]
            if np.any(np.diff(positions) == 0):
                raise ArgumentError("row numbers must be distinct: add every record only once")
        self._kernel.add(self._total, values, positions)
        self.records += len(values)

    def total(self) -> Floats:
        """Return the unscaled sums so far, shape (k, width)."""
        return self._total.copy()

    def merge(self, other: Mixer) -> None:
        """Add the records of another mixer of the same matrix and width.

        Raises
        ------
        AlignmentError
            The mixers have different matrices or widths, or more than n records together.
        """
        if other.matrix != self.matrix or other.width != self.width:
            raise AlignmentError(
                "the two mixers (sums of random combinations of rows) have different matrices or widths, "
                "so they cannot be merged: make both mixers from the same plan"
            )
        if self.records + other.records > self.matrix.n:
            raise AlignmentError(
                f"the two mixers together contain more than n={self.matrix.n} records: add every record "
                "to only one of them"
            )
        self._total += other._total
        self.records += other.records

    def _positions(self, position: int | Integers, count: int) -> Integers:
        if np.ndim(position) == 0:
            start = check_count(position, "position", least=0)
            if start + count > self.matrix.n:
                raise ArgumentError(
                    f"with position={start}, the {count} rows would get the numbers {start} to "
                    f"{start + count - 1}, but the largest row number is {self.matrix.n - 1}: pass a smaller "
                    "position= or fewer rows"
                )
            return np.arange(start, start + count)
        positions = self.matrix._checked(position)
        if positions.size != count:
            raise ArgumentError(
                f"{positions.size} row number(s) were passed for {count} record(s): pass one row number "
                "for each record"
            )
        return positions
