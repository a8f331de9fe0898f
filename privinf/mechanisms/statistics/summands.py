r"""Summands of statistics: products of numbers and directions, squares of vectors, and counts.

Counts of terms above public thresholds go by the square root of the matrix that adds cells up.

With h the numbers of records in the m cells that m increasing thresholds begin, the counts above them are T
h, T upper triangular of ones. U, upper Toeplitz with first row f_0 = 1, f_k = f_{k-1} (2k - 1)/(2k), is the
square root of T: the square of (1 - x)^{-1/2} is 1 + x + x^2 + .... So U h is released with noise g xi, and N
= U (release) has the counts T h and noise of sd g sqrt(f_0^2 + ... + f_{m-1-i}^2): at 20 cells 2.4 / mu for
the lowest of them, where the sums of a noisy histogram have 6.3 / mu. (Fichtenberger, Henzinger and Upadhyay
2023, arXiv 2202.11205, for running sums.)

Replacing a record moves U h by the difference of two columns of U, or by one column: a record below all
thresholds is in no cell. Entries of U are numbers of `DIGITS` binary digits; h is exact, and U h is rounded
once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from privinf.errors import ArgumentError, SensitivityError
from privinf.mechanisms.statistics.block import (
    SMALLEST,
    Args,
    clipped,
    cut,
    made_finite,
    rounded,
    unit_of,
    vector,
)
from privinf.mechanisms.statistics.isometric import ROOT2_BITS, isometric_pairs, pair_products
from privinf.mechanisms.statistics.loops import ScratchBuffers, above, lengths, nearest
from privinf.mechanisms.statistics.ops import RecordSensitivity
from privinf.mechanisms.sums import (
    BLOCK_ROWS,
    EXACT_BITS,
    FULL_SCALE,
    VALUE_BITS,
    ExactSum,
    ProductSums,
    added_rows,
)
from privinf.typing import Flags, Floats, Integers
from privinf.wire import Derivations

DIGITS = 24  # binary digits after the point to which entries of U are rounded
SHORT_ROWS = 1 << 62 - DIGITS  # rows below which U h, in units of 2^-24, is in 64-bit integers
MOST_CELLS = 256  # thresholds of one count
SMALLEST_THRESHOLD = 2.0**-200  # values up to this count as 0
MORE_BITS = 12  # binary digits of a product's number beyond an integer's
NORM_ROOM = 1.0 - 2.0**-40  # factor for the rounding error of a norm in doubles
# Most binary digits of a record's number: a block of 8,192 rows adds them up within 2^53.
NUMBER_DIGITS = EXACT_BITS + 1 - BLOCK_ROWS.bit_length()

# ---- summands


class Summand(Protocol):
    """A public set of vectors, one of which every record adds to a sum."""

    def sensitivity(self) -> RecordSensitivity:
        """Return how far replacing one vector of the set by another can move the sum."""


S_co = TypeVar("S_co", bound=Summand, covariant=True)


@dataclass(frozen=True, slots=True)
class Copies(Generic[S_co]):
    """Several vectors of one set, one after the other: squared distances add up."""

    part: S_co
    count: int

    def sensitivity(self) -> RecordSensitivity:
        """Return the sensitivity of all sums together: sqrt(count) times that of one."""
        part = self.part.sensitivity()
        root = math.sqrt(self.count)
        return replace(
            part,
            shape=(self.count * part.size,),
            l2=root * part.l2,
            norm=None if part.norm is None else root * part.norm,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ball:
    """Vectors of `size` entries with norm at most `top`: opposite ones are 2 `top` apart.

    A statistic whose arguments leave less room passes the largest distance `apart` and norm `longest` that
    it proves.
    """

    size: int
    top: float
    derivation: str
    apart: float = math.inf
    longest: float = math.inf

    def sensitivity(self) -> RecordSensitivity:
        """Return the diameter and the radius of the set."""
        l2 = min(2.0 * self.top, self.apart)
        return RecordSensitivity(
            shape=(self.size,),
            l2=l2,
            linf=l2,
            bound=self.top,
            derivation=self.derivation,
            norm=min(self.top, self.longest),
        )

    def product(self, left: Floats, along: RowDirections) -> Product:
        """Return the sum of numbers, which are cut to +-`top`, times directions."""
        return Product(left, self.top, along)

    def shrunk(self, vectors: Floats) -> Product:
        """Return the sum of vectors, shape (size, rows), which are shrunk to a norm of `top`."""
        along = RowDirections(made_finite(vectors))
        return Product(np.minimum(along.length, self.top), self.top, along)

    def along(self, left: Floats, along: RowDirections, digits: int) -> Numbers:
        """Return the sum of numbers, cut to +-`top`, times directions, cut to digits."""
        room = _norm_room(self.top, len(along))
        unit = unit_of(self.top, min(digits, NUMBER_DIGITS)) or 1.0
        shares = np.clip(made_finite(left), -room, room)
        shares /= np.maximum(along.length, SMALLEST) * unit
        values = along.vectors * shares
        return Numbers(np.trunc(values, out=values) if digits else values, unit)

    def numbers(self, vectors: Floats, digits: int) -> Numbers:
        """Return the sum of vectors, shape (size, rows), shrunk and cut to digits in place."""
        return Numbers.cut_from(shrunk_vectors(vectors, self.top), self.top, digits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer:
    """Matrices s s' in isometric entries, s of `size` entries with norm at most `top`, each at most `entry`.

    ||a a' - b b'||^2 = |a|^4 + |b|^4 - 2 (a'b)^2 is at most 2 q^2, q the largest |s|^2, with equality for
    orthogonal a and b of full length; for vectors of one entry it is at most q^2. A statistic whose argument
    is `top`^2 itself passes it as `square`, and its root as `top`.
    """

    size: int
    top: float
    square: float | None = None
    entry: float = math.inf
    derivation: str = Derivations.RANK_ONE

    def sensitivity(self) -> RecordSensitivity:
        """Return the largest Frobenius distance of two matrices, and the largest norm of one."""
        norm2 = self.top**2 if self.square is None else self.square
        entry2 = self.entry**2
        q = min(self.size * entry2, norm2)
        shape = (self.size * (self.size + 1) // 2,)
        if self.size == 1:
            return RecordSensitivity(shape=shape, l2=q, linf=q, bound=q, derivation=self.derivation, norm=q)
        beside = math.sqrt(2.0) * min(entry2, norm2 / 2.0)  # an entry beside the diagonal
        on = min(entry2, norm2)  # one on the diagonal
        return RecordSensitivity(
            shape=shape,
            l2=math.sqrt(2.0) * q,
            linf=max(2.0 * beside, on),
            bound=max(beside, on),
            derivation=self.derivation,
            norm=q,
        )

    def matrices(self, vectors: Floats, length: Floats, size: Floats | None = None) -> Square:
        """Return the sum over vectors, shape (size, rows), of known length, which are shrunk to `top`."""
        return Square(vectors=vectors, top=self.top, length=length, size=size)

    def aligned(self, vectors: Floats, digits: int) -> Square:
        """Return the sum over vectors, (size, rows), clipped to `entry` and shrunk to `top` in place.

        Where there are digits a product, times the isometric factor, is a whole number of their units.
        """
        vectors = clipped(vectors, self.entry)
        length = lengths(vectors)
        top = min(self.top, self.entry * math.sqrt(self.size))
        if not digits:
            return Square(vectors=vectors, top=top, length=length)
        unit = _unit_of_factor(min(self.entry, top), digits, ROOT2_BITS)
        steps = top / unit
        if not _room(vectors, steps) > 0.0:
            raise SensitivityError(
                f"a clipping norm of {top:g} is too small for vectors of {self.size} entries, since the "
                "entries are rounded: use a larger norm or fewer columns"
            )
        most = math.floor(min(self.entry, top) / unit)
        return Square(vectors=vectors, top=top, length=length, steps=steps, most=most)


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """Arrays with every entry in [-`bound`, `bound`], and with norm at most `radius`."""

    shape: tuple[int, ...]
    bound: float
    derivation: str
    radius: float = math.inf

    def sensitivity(self) -> RecordSensitivity:
        """Return the distance of opposite arrays, in both norms."""
        norm = min(self.radius, self.bound * math.sqrt(math.prod(self.shape)))
        bound = min(self.bound, self.radius)
        return RecordSensitivity(
            shape=self.shape,
            l2=2.0 * norm,
            linf=2.0 * bound,
            bound=bound,
            derivation=self.derivation,
            norm=norm,
        )

    def numbers(self, values: Floats, digits: int) -> Numbers:
        """Return the sum of arrays, shape (size, rows), clipped, shrunk and cut to digits in place."""
        values = clipped(values, self.bound)
        if math.isfinite(self.radius):
            values = shrunk_vectors(values, self.radius)
        return Numbers.cut_from(values, min(self.bound, self.radius), digits)


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossProducts:
    """Matrices a b' with every entry of a and of b at most `entry`, and |a| |b| at most `radius`."""

    shape: tuple[int, int]
    entry: float
    derivation: str
    radius: float = math.inf

    def sensitivity(self) -> RecordSensitivity:
        """Return the distance of opposite matrices, in both norms."""
        box = Box(shape=self.shape, bound=self.entry**2, radius=self.radius, derivation=self.derivation)
        return box.sensitivity()

    def matrices(self, left: Floats, right: Floats, digits: int) -> Cross:
        """Return the sum over rows, (m, rows) and (k, rows), clipped, rounded and shrunk in place.

        The vector b is on its grid; a is shrunk against it and cut toward zero.
        """
        unit = _unit_of_factor(self.entry, digits) if digits else 0.0
        a, step = rounded(clipped(left, self.entry), unit, self.entry)
        b, _ = rounded(clipped(right, self.entry), unit, self.entry)
        if math.isfinite(self.radius) and len(a) and len(b):
            room = _norm_room(self.radius / step**2, sum(self.shape))
            a *= room / np.maximum(lengths(a) * lengths(b), room)
            a = np.trunc(a, out=a) if unit else a
        return Cross(a, b, step**2)


@dataclass(frozen=True, slots=True, kw_only=True)
class NonNegative:
    """Arrays with every entry in [0, `bound`], whose entries add up to at most `total`.

    ||a - b||^2 is at most |a|^2 + |b|^2, and |a| at most the sum of a.
    """

    shape: tuple[int, ...]
    bound: float
    derivation: str
    total: float = math.inf

    def sensitivity(self) -> RecordSensitivity:
        """Return the largest distance of two arrays, in both norms."""
        norm = self.bound * math.sqrt(math.prod(self.shape))
        return RecordSensitivity(
            shape=self.shape,
            l2=min(norm, math.sqrt(2.0) * self.total),
            linf=self.bound,
            bound=self.bound,
            derivation=self.derivation,
            norm=min(norm, self.total),
        )

    def numbers(self, values: Floats, digits: int) -> Numbers:
        """Return the sum of arrays, shape (size, rows), cut to the bounds and to digits in place.

        Where there is a `total`, they are made by `squares`.
        """
        values = np.maximum(clipped(values, self.bound), 0.0, out=values)
        return Numbers.cut_from(values, self.bound, digits)

    def squares(self, vectors: Floats, digits: int) -> Numbers:
        """Return the sum of squared entries of vectors, (size, rows), which are shrunk for the `total`."""
        if math.isfinite(self.total):
            vectors = shrunk_vectors(vectors, math.sqrt(self.total))
        else:
            vectors = clipped(vectors, math.sqrt(self.bound))
        return self.numbers(np.square(vectors, out=vectors), digits)


@dataclass(frozen=True, slots=True, kw_only=True)
class OneCell:
    """One of the unit vectors: a record is in one of `cells` cells, and can move to another."""

    cells: int
    derivation: str

    def sensitivity(self) -> RecordSensitivity:
        """Return the distance of two unit vectors."""
        return RecordSensitivity(
            shape=(self.cells,),
            l2=math.sqrt(2.0),
            linf=1.0,
            bound=1.0,
            derivation=self.derivation,
            norm=1.0,
        )

    def counts(self, places: Integers) -> Histogram:
        """Return the number of rows in each cell, of the cells in which they are, shape (rows,)."""
        return Histogram(np.clip(places, 0, self.cells - 1), self.cells)


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """Vectors of `size` marks, each 0 or 1: one with all of them, and one with none, are sqrt(size) apart."""

    size: int
    derivation: str

    def sensitivity(self) -> RecordSensitivity:
        """Return the distance of the vector of ones from zero, in both norms."""
        norm = math.sqrt(self.size)
        return RecordSensitivity(
            shape=(self.size,),
            l2=norm,
            linf=1.0,
            bound=1.0,
            derivation=self.derivation,
            norm=norm,
        )

    def counts(self, marked: Flags) -> Numbers:
        """Return the number of rows with each mark, of marks of shape (size, rows)."""
        return Numbers(marked.astype(np.bool_), 1.0)


@dataclass(frozen=True, slots=True)
class ReplaceOnly(Generic[S_co]):
    """The vectors of a set, for a sum that is charged for replacing a record and never for leaving it out."""

    part: S_co

    def sensitivity(self) -> RecordSensitivity:
        """Return the sensitivity without the norm of one vector."""
        return replace(self.part.sensitivity(), norm=None)


@dataclass(frozen=True, slots=True)
class Cells:
    """Columns of U, or nothing: counts above thresholds, in the coordinates in which they are released."""

    thresholds: Floats
    derivation: str = Derivations.RUNNING_SUMS

    @classmethod
    def from_args(cls, args: Args) -> Cells:
        """Return the cells between the requested thresholds; ArgumentError if these do not increase."""
        thresholds = vector(args, "thresholds")
        increasing = bool((np.diff(thresholds) > 0.0).all())
        if not 1 <= len(thresholds) <= MOST_CELLS or thresholds[0] < 0.0 or not increasing:
            raise ArgumentError(
                f"argument 'thresholds' of the statistic must hold between 1 and {MOST_CELLS} nonnegative "
                "numbers in increasing order"
            )
        return cls(thresholds)

    def sensitivity(self) -> RecordSensitivity:
        """Return the largest distance of two columns, and the longest column."""
        cells = len(self.thresholds)
        return RecordSensitivity(
            shape=(cells,),
            l2=root_sensitivity(cells),
            linf=1.0,
            bound=1.0,
            derivation=self.derivation,
            norm=float(np.linalg.norm(root_matrix(cells)[:, -1])),
        )

    def counts(self, values: Floats) -> Counts:
        """Return the counts of values."""
        return Counts(values, self.thresholds)


def stated(summand: Callable[[Args, int], Summand]) -> Callable[[Args, int], RecordSensitivity]:
    """Return the sensitivity of a statistic (`SiteOp.sensitivity`) whose contributions lie in a summand."""
    return partial(_sensitivity_of, summand)


def _sensitivity_of(summand: Callable[[Args, int], Summand], args: Args, columns: int) -> RecordSensitivity:
    return summand(args, columns).sensitivity()


# ---- counts


@lru_cache(maxsize=256)
def root_matrix(cells: int) -> Floats:
    """Return U, shape (m, m)."""
    k = np.arange(1, cells)
    factors = np.concatenate([[1.0], np.cumprod((2.0 * k - 1.0) / (2.0 * k))])
    factors = np.ldexp(np.rint(np.ldexp(factors, DIGITS)), -DIGITS)
    gap = np.arange(cells)[None, :] - np.arange(cells)[:, None]
    matrix = np.where(gap >= 0, factors[np.maximum(gap, 0)], 0.0)
    matrix.setflags(write=False)
    return matrix


@lru_cache(maxsize=256)
def whole_root(cells: int) -> Integers:
    """Return U in units of 2^-24, shape (m, m)."""
    matrix = np.ldexp(root_matrix(cells), DIGITS).astype(np.int64)
    matrix.setflags(write=False)
    return matrix


@lru_cache(maxsize=256)
def root_sensitivity(cells: int) -> float:
    """Return max |U (e_i - e_j)| over the m cells and the place below them: 1.52 for 8, 1.71 for 20."""
    columns = np.column_stack([np.zeros(cells), root_matrix(cells)])
    squares = np.einsum("ij,ij->j", columns, columns)
    distances = squares[:, None] + squares[None, :] - 2.0 * columns.T @ columns
    return math.sqrt(float(distances.max()))


class _VectorSums:
    """Exact sums of integers of records."""

    __slots__ = ("rows", "total")

    def __init__(self, size: int) -> None:
        self.total = ExactSum((size,))
        self.rows = 0

    def update(self, steps: Any) -> None:
        """Add the integers of at most 8,192 records, shape (rows, size), none larger than 2^40."""
        self.rows = added_rows(self.rows, len(steps))
        self.total.add(steps.sum(axis=0))

    def take(self, count: int, sums: Any) -> None:
        """Add records of which the sums are known, as integers."""
        self.rows = added_rows(self.rows, count)
        self.total.add_integers(sums)

    def merge(self, other: _VectorSums) -> None:
        """Add the records of another accumulator."""
        self.rows = added_rows(self.rows, other.rows)
        self.total.merge(other.total)


class CellSums(_VectorSums):
    """Exact numbers of records in cells."""

    __slots__ = ()

    def update(self, places: Integers) -> None:
        """Add records by their cells; 0 stands for no cell."""
        self.take(len(places), np.bincount(places, minlength=self.total.shape[0] + 1)[1:])


class ThresholdSums(_VectorSums):
    """Exact numbers of records in the cells that increasing thresholds begin."""

    __slots__ = ("_thresholds",)

    def __init__(self, thresholds: Floats) -> None:
        super().__init__(len(thresholds))
        self._thresholds = thresholds

    def update(self, values: Floats) -> None:
        """Add records by their values."""
        cells = above(values, self._thresholds)
        cells[:-1] -= cells[1:]
        self.take(len(values), cells)


@dataclass(frozen=True, slots=True)
class Histogram:
    """Numbers of records in cells, by the cell of each record, shape (rows,)."""

    places: Integers
    cells: int

    @property
    def width(self) -> int:
        """Numbers of a row."""
        return 1

    def plain(self) -> Floats:
        """Return the sum, shape (cells,)."""
        return np.bincount(self.places, minlength=self.cells).astype(np.float64)

    def empty(self) -> CellSums:
        """Return an accumulator."""
        return CellSums(self.cells)

    def integers(self, room: ScratchBuffers | None = None) -> tuple[Integers]:
        """Return the cells of the records, counted from 1."""
        return (self.places + 1,)

    def entries(self, sums: CellSums) -> tuple[ExactSum, Floats]:
        """Return the integers of the sum and the value of one unit."""
        return sums.total, np.ones(self.cells)


@dataclass(frozen=True, slots=True)
class Counts:
    """U h of the values; nan counts as above all thresholds.

    Thresholds below `SMALLEST_THRESHOLD`, 0 among them, count what is above it: products of smaller numbers
    differ between databases and doubles.
    """

    values: Floats
    thresholds: Floats

    def __post_init__(self) -> None:
        object.__setattr__(self, "thresholds", np.maximum(self.thresholds, SMALLEST_THRESHOLD))

    @property
    def width(self) -> int:
        """Numbers of a row."""
        return 1

    def plain(self) -> Floats:
        """Return the sum, shape (m,)."""
        sums = self.empty()
        sums.update(self.values)
        cells = sums.total.integers().astype(np.float64)
        return np.asarray(root_matrix(len(self.thresholds)) @ cells)

    def empty(self) -> ThresholdSums:
        """Return an accumulator."""
        return ThresholdSums(self.thresholds)

    def integers(self, room: ScratchBuffers | None = None) -> tuple[Floats]:
        """Return the values, shape (rows,), which the accumulator counts."""
        return (self.values,)

    def entries(self, sums: ThresholdSums) -> tuple[ExactSum, Floats]:
        """Return the integers of the sum and the value of one unit."""
        cells = sums.total.integers()
        if sums.rows < SHORT_ROWS:
            cells = cells.astype(np.int64)
        return ExactSum.from_integers(whole_root(len(cells)) @ cells), np.full(len(cells), 2.0**-DIGITS)


def counts_above(release: Floats, scale: float) -> tuple[Floats, Floats]:
    """Return the counts above the thresholds and the sds of their noise, both of shape (m,).

    Parameters
    ----------
    release : ndarray, shape (m,)
        U h with noise.
    scale : float
        Sd of the noise of each entry.

    Notes
    -----
    **Privacy.** Post-processing of the release.
    """
    root = root_matrix(len(release))
    return root @ release, scale * np.sqrt(np.einsum("ij,ij->i", root, root))


# ---- numbers


@dataclass(frozen=True, slots=True)
class Numbers:
    """Sum of vectors of rows, shape (k, rows): integers, or marks, of a unit that is a power of two."""

    steps: Floats | Flags
    unit: float

    @classmethod
    def cut_from(cls, values: Floats, bound: float, digits: int) -> Numbers:
        """Return values of size at most `bound`, cut toward zero to so many digits below it, in place."""
        return cls(*cut(values, unit_of(bound, min(digits, NUMBER_DIGITS))))

    @property
    def width(self) -> int:
        """Numbers of a row."""
        return len(self.steps)

    def plain(self) -> Floats:
        """Return the sum, shape (k,)."""
        return np.asarray(self.steps.sum(axis=1) * self.unit)

    def empty(self) -> _VectorSums:
        """Return an accumulator."""
        return _VectorSums(len(self.steps))

    def integers(self, room: ScratchBuffers | None = None) -> tuple[Floats | Flags]:
        """Return the integers, shape (k, rows)."""
        return (self.steps,)

    def entries(self, sums: _VectorSums) -> tuple[ExactSum, Floats]:
        """Return the integers of the sum and the value of one unit."""
        return sums.total, np.full(len(self.steps), self.unit)


def shrunk_vectors(vectors: Floats, top: float) -> Floats:
    """Return vectors, shape (k, rows), shrunk in place to a norm of at most `top`."""
    room = _norm_room(top, len(vectors))
    made_finite(vectors)
    if len(vectors):
        vectors *= room / np.maximum(lengths(vectors), room)
    return vectors


def _norm_room(top: float, size: int) -> float:
    """Return the norm to which vectors are shrunk: norms in doubles are right to (size + 3) 2^-53."""
    return top * (NORM_ROOM - size * 2.0**-52)


# ---- products and squares


class RowDirections:
    """Vectors of rows, shape (k, rows), with their lengths, and their directions once they are requested.

    Where they are `lasting`, every query makes its own directions, in memory that it uses again for the next
    rows: this takes less time than new memory for the directions of all rows.
    """

    __slots__ = ("_lasting", "_steps", "length", "vectors")

    def __init__(self, vectors: Floats, length: Floats | None = None, *, lasting: bool = False) -> None:
        self._lasting = lasting
        self.vectors = vectors
        self.length = lengths(vectors) if length is None else length
        self._steps: Floats | None = None

    def __len__(self) -> int:
        return len(self.vectors)

    def steps(self, room: ScratchBuffers | None = None) -> Floats:
        """Return the directions on their grid, shape (k, rows)."""
        if self._steps is not None:
            return self._steps
        steps = _nearest(self.vectors, self.length, out=_buffer(self.vectors, room))
        if not self._lasting:
            self._steps = steps
        return steps


@dataclass(frozen=True, slots=True)
class Product:
    """Sum l v/|v|, times a public factor: `left`, of size at most `top`, and the vectors that it is along."""

    left: Floats
    top: float
    along: RowDirections
    factor: float = 1.0

    @property
    def width(self) -> int:
        """Numbers of a row."""
        return len(self.along)

    def plain(self) -> Floats:
        """Return the sum, shape (k,)."""
        scores = np.clip(made_finite(self.left), -self.top, self.top)
        shares = scores / np.maximum(self.along.length, SMALLEST)
        return np.asarray(self.along.vectors @ shares * self.factor)

    def empty(self) -> ProductSums:
        """Return an accumulator."""
        return ProductSums((2, len(self.along)), squares=False)

    def integers(self, room: ScratchBuffers | None = None) -> tuple[Floats, Floats]:
        """Return both words of the numbers, shape (2, rows), and the directions, shape (k, rows)."""
        scores = np.clip(made_finite(self.left) * (FULL_SCALE / self.top), -FULL_SCALE, FULL_SCALE)
        high = np.floor(scores)
        words = np.stack([high, np.floor((scores - high) * 2.0**MORE_BITS + 0.5)])
        return words, self.along.steps(room)

    def entries(self, sums: ProductSums) -> tuple[ExactSum, Floats]:
        """Return the integers of the sum and the value of one unit."""
        high, low = sums.total.integers()
        unit = self.factor * self.top * math.ldexp(1.0 / FULL_SCALE**2, -MORE_BITS)
        return ExactSum.from_integers((high << MORE_BITS) + low), np.full(len(self.along), unit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Square:
    """Sum s s', times a public factor, in isometric entries: s are the vectors shrunk to a norm of `top`.

    The vectors are `vectors`, times `size` where there is one, for each column one number. Where there is
    none no other code uses them: integers take their place. A norm of `top` has `steps` units, and an entry
    at most `most`. A row may have `count` vectors, first those of all rows, then the next ones.
    """

    vectors: Floats
    top: float
    length: Floats
    factor: float = 1.0
    size: Floats | None = None
    steps: float = FULL_SCALE
    most: float = math.inf
    count: int = 1

    @property
    def width(self) -> int:
        """Numbers of a row."""
        return len(self.vectors)

    def plain(self) -> Floats:
        """Return the sum, shape (k (k + 1) / 2,)."""
        vectors = self.vectors if self.size is None else self.vectors * self.size
        s = vectors * np.minimum(1.0, self.top / np.maximum(self.length, SMALLEST))
        return pair_products(s, s, isometric_pairs(len(s))) * self.factor

    def empty(self) -> ProductSums:
        """Return an accumulator."""
        return ProductSums((len(self.vectors),), vectors=self.count)

    def integers(self, room: ScratchBuffers | None = None) -> tuple[Floats]:
        """Return the vectors, shape (k, rows)."""
        out = self.vectors if self.size is None else _buffer(self.vectors, room)
        integers = _nearest(self.vectors, self.length, self.steps / self.top, self.size, out, self.steps)
        if math.isfinite(self.most):
            np.clip(integers, -self.most, self.most, out=integers)
        return (integers,)

    def entries(self, sums: ProductSums) -> tuple[ExactSum, Floats]:
        """Return the integers of the sum and the value of one unit."""
        rows, columns, isometric = isometric_pairs(len(self.vectors))
        return sums.total.at(rows, columns), isometric * (self.factor * (self.top / self.steps) ** 2)


@dataclass(frozen=True, slots=True)
class Cross:
    """Sum a b' of rows, shapes (m, rows) and (k, rows), as a vector, times a unit."""

    left: Floats
    right: Floats
    unit: float

    @property
    def width(self) -> int:
        """Numbers of a row."""
        return len(self.left) + len(self.right)

    def plain(self) -> Floats:
        """Return the sum, shape (m k,)."""
        return np.asarray((self.left @ self.right.T * self.unit).ravel())

    def empty(self) -> ProductSums:
        """Return an accumulator."""
        return ProductSums((len(self.left), len(self.right)), squares=False)

    def integers(self, room: ScratchBuffers | None = None) -> tuple[Floats, Floats]:
        """Return both vectors."""
        return self.left, self.right

    def entries(self, sums: ProductSums) -> tuple[ExactSum, Floats]:
        """Return the integers of the sum and the value of one unit."""
        total = sums.total.flat()
        return total, np.full(total.shape, self.unit)


def _unit_of_factor(bound: float, digits: int, others: int = 0) -> float:
    """Return the unit of each factor of a product with so many binary digits, some for another factor.

    ArgumentError where none are left.
    """
    half = min((digits - others) // 2, VALUE_BITS)
    if half < 1:
        raise ArgumentError(
            f"argument 'bits' of the statistic is too small for products: it must be at least {2 + others}"
        )
    return unit_of(bound, half)


def _room(vectors: Floats, steps: float) -> float:
    """Return the length in units at which vectors are rounded to the nearest integers, none over `steps`."""
    return steps * NORM_ROOM - 0.5 * math.sqrt(len(vectors))


def _buffer(vectors: Floats, room: ScratchBuffers | None) -> Floats | None:
    """Return memory for as many numbers, if there is a room for them."""
    return None if room is None else room.take(*vectors.shape)


def _nearest(
    vectors: Floats,
    length: Floats,
    factor: float = math.inf,
    size: Floats | None = None,
    out: Floats | None = None,
    steps: float = FULL_SCALE,
) -> Floats:
    """Return the integers nearest to vectors of these lengths as long as there is room, or times `factor`."""
    room = _room(vectors, steps)
    return nearest(vectors, size, np.minimum(factor, room / np.maximum(length, SMALLEST)), out)
