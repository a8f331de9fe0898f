r"""Contributions of records to a sum, as terms whose factors are rounded to their grid once.

A statistic describes the contribution of a block of rows by a few terms, in numbers:

- `Product`: sum l d, l a number of size at most L and d = v/|v| a direction;
- `Square`: sum s s' in isometric entries, |s| <= S, and `Cross`: sum a b' of two vectors;
- `Counts`: how many values lie above public thresholds (`summands`);
- `Numbers`: sum v, v a vector of numbers of one bound, and `Histogram`: how many rows are in each cell;
- `SurvivalCounts`: how many rows have an event, or are censored, in each interval of time (`survival`).

**On the grid.** Where noise is added, terms become integers (`sums`): l in units of ``L 2^-32``, as two words
of 20 and 12 digits; d in units of 2^-20, s of ``S 2^-20``, each the nearest integers to the vector times a
number at most ``(2^20 (1 - 2^-40) - sqrt(k)/2) / |v|`` for k entries. |v| is a square root of squares that
are added up entry by entry, right to (k + 3) 2^-53; rounding moves an entry by half a unit, so a vector by
sqrt(k)/2: no integer vector is longer than 2^20, and |l| <= L as 2^32 units are whole. So what a record adds
is l d with |l| <= L, |d| <= 1, or s s' with |s| <= S, *whatever* numbers the statistic made of it: its
sensitivity is that of all such vectors, and neither a table of means nor a grid of coefficients, which decide
which of them a record adds, can pass it. (Only the diameter of logistic scores needs more: see `glm`.)

**Aligned sums.** Numbers, cells and products of clipped columns have units that are powers of two, as many
binary digits below their bound as are requested, 40 at most. Vectors are shrunk to their norm first, with
room for its rounding error, and then cut toward zero, which lengthens nothing. Their sums are whole steps of
what a site sends, nothing is rounded after them, and their sensitivity is that of the records alone.

**The same bits.** On rows there are comparisons, + - x / sqrt and floor, number by number, and products of
integers that are exact: linear forms of rows have rows on their grid (`ColumnGrid`; rows with a column beyond
all bounds are divided by their largest number first) and coefficients on a public one, 2^-32 of ``sum |a_j|
h_j``. Means come from tables (`families`). So every source, block size and order of rows gives one sum. Fits
without noise add the same terms up in doubles, of rows as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Generic, Protocol, TypeVar, cast

import numpy as np

from privinf.mechanisms.rows import outer_ends
from privinf.mechanisms.statistics.block import (
    LARGEST,
    Args,
    SiteBlock,
    clipped,
    digits,
    made_finite,
    made_up,
)
from privinf.mechanisms.statistics.gridded import PREDICTOR_BITS, ColumnGrid
from privinf.mechanisms.statistics.loops import ScratchBuffers, beyond, forms, like, on_grid, rooms
from privinf.mechanisms.statistics.ops import RecordSensitivity, SiteOp
from privinf.mechanisms.statistics.summands import NUMBER_DIGITS, Summand
from privinf.mechanisms.sums import FULL_SCALE, ExactSum, block_rows
from privinf.typing import Flags, Floats, Integers

T = TypeVar("T")
S = TypeVar("S", bound=Summand)

NARROW = 16  # columns up to which blocks of rows are cut as if a statistic used all of them
KEPT_NUMBERS = 1 << 19  # numbers of a table up to which quantities of its rows are kept between queries
NOT_PICKLED = "quantities of raw rows cannot be pickled"

# ---- quantities of rows


class BlockQuantities:
    """Quantities that the queries of a pass derive from one block of rows, each computed once.

    Parameters
    ----------
    earlier : dict
        Quantities of the same rows that an earlier pass derived, by their keys. One is dropped where the pass
        makes another one of its name, which then takes its memory: new pages cost as much as work on them.
    lasting : bool
        Whether a later pass uses them too, so that they have memory of their own.
    """

    __slots__ = ("_earlier", "lasting", "values")

    def __init__(self, earlier: dict[Any, Any] | None = None, *, lasting: bool = False) -> None:
        self._earlier = {} if earlier is None else earlier
        self.lasting = lasting
        self.values: dict[Any, Any] = {}

    def once(self, key: Any, make: Callable[[], T]) -> T:
        """Return a quantity by its key: its name, and everything that it depends on besides the rows."""
        if key not in self.values:
            if key not in self._earlier:
                for other in [other for other in self._earlier if other[0] == key[0]]:
                    del self._earlier[other]
            self.values[key] = self._earlier[key] if key in self._earlier else make()
        return cast("T", self.values[key])

    def last(self, key: Any) -> Any:
        """Return a quantity of an earlier pass, which is not kept any more; None if there is none."""
        return self.values.get(key, self._earlier.pop(key, None))

    def __reduce__(self) -> Any:
        raise TypeError(NOT_PICKLED)


class KeptQuantities:
    """Quantities of rows in memory from the last query of a fit, for its next query.

    Queries at one point of a fit share linear forms, lengths and means of all rows. Only rows that nobody
    else can write into are kept, and few enough of them (`KEPT_NUMBERS`).

    Notes
    -----
    **Privacy.** Holds numbers of raw rows: never leaves the mechanisms, cannot be pickled.
    """

    __slots__ = ("_earlier", "_last")

    def __init__(self) -> None:
        self._earlier: dict[tuple[int, int], dict[Any, Any]] = {}
        self._last: dict[tuple[int, int], dict[Any, Any]] = {}

    def begin(self) -> None:
        """Begin a query: quantities that the last one did not use are dropped."""
        self._earlier = self._last
        self._last = {}

    def of_part(self, part: SiteBlock) -> BlockQuantities:
        """Return the quantities of a part of the rows."""
        place = part.start, len(part)
        quantities = BlockQuantities(self._earlier.get(place), lasting=True)
        self._last[place] = quantities.values
        return quantities

    @staticmethod
    def applies_to(block: SiteBlock) -> bool:
        """Return whether quantities of a block can be kept."""
        return not block.lent and block.features.size <= KEPT_NUMBERS

    def __reduce__(self) -> Any:
        raise TypeError(NOT_PICKLED)


# ---- rows


@dataclass(frozen=True, slots=True, repr=False)
class PlacedRows:
    """Columns of a block, as integers in units where they are on their grid.

    Attributes
    ----------
    steps : ndarray, shape (rows, k)
    units : ndarray, shape (k,), or None
        None where nothing is on a grid.
    size : ndarray, shape (rows,), or None
        Factors of the rows.
    room : ScratchBuffers or None
        Memory for their forms, which are valid until rows are read again.
    """

    steps: Floats
    units: Floats | None = None
    size: Floats | None = None
    room: ScratchBuffers | None = None

    def forms(self, coefficients: Floats) -> Floats:
        """Return the linear forms A x of every row, A of shape (m, k); shape (m, rows)."""
        values: Floats
        if self.units is None:
            values = coefficients @ self.steps.T
            return made_finite(values)
        steps, unit = _on_public_grid(
            np.asarray(coefficients, dtype=np.float64).tobytes(), self.units.tobytes()
        )
        if isinstance(self.steps, np.ndarray):
            values = forms(steps * unit, self.steps, self.room)  # exact too: units are powers of two
        else:
            values = steps @ self.steps.T
            values *= unit
        return values if self.size is None else np.multiply(values, self.size, out=values)

    def columns(self) -> Floats:
        """Return the columns, shape (k, rows)."""
        if self.units is None:
            return made_finite(np.ascontiguousarray(self.steps.T))
        values = np.multiply(self.steps.T, self.units[:, None], order="C")
        return values if self.size is None else np.multiply(values, self.size, out=values)


@lru_cache(maxsize=64)
def _on_public_grid(coefficients: bytes, units: bytes) -> tuple[Floats, Floats]:
    """Return coefficients of steps, (m, k), as integers of units, (m, 1), that are powers of two."""
    weights = np.frombuffer(coefficients).reshape(-1, len(units) // 8) * np.frombuffer(units)
    exponents = np.frexp(np.abs(weights).sum(axis=1))[1] - PREDICTOR_BITS
    unit = np.ldexp(1.0, np.maximum(exponents, -1000))[:, None]
    return np.rint(weights / unit), unit


class RowReader:
    """Reads the columns of a block: on their grid for exact sums, else as they are.

    Where the arguments of the statistic have a `radius`, rows with a column beyond it have sizes.
    """

    __slots__ = (
        "_grids",
        "_keys",
        "_making",
        "_placed",
        "_quantities",
        "_rooms",
        "args",
        "block",
        "exact",
        "room",
    )

    def __init__(self, block: SiteBlock, args: Args, *, exact: bool) -> None:
        self.block = block
        self.args = args
        self.exact = exact
        self.room = ScratchBuffers()
        self._grids: dict[bytes, tuple[Any, ColumnGrid | None]] = {}
        self._rooms: dict[bytes, tuple[Floats, Floats]] = {}
        self._making = False  # whether a quantity is being made, which later queries read in place of columns
        self._keys: dict[str, Any] = {}
        self._placed: dict[bytes, PlacedRows] = {}
        self._quantities = BlockQuantities()

    @property
    def width(self) -> int:
        """Number of columns that are read on their grid."""
        return sum(0 if grid is None else len(grid.units) for _, grid in self._grids.values())

    @property
    def digits(self) -> int:
        """Binary digits of a record's numbers below their bound; 0 where they are not cut."""
        return digits(self.args)[0] or NUMBER_DIGITS if self.exact else 0

    @property
    def lasting(self) -> bool:
        """Whether quantities of the rows outlast the block, so that none is in memory of `room`."""
        return self._quantities.lasting

    def take(self, block: SiteBlock, quantities: BlockQuantities) -> None:
        """Read another block, of which several readers can share quantities."""
        self.block = block
        self._placed.clear()
        self._quantities = quantities
        self.room.clear()

    def narrow(self, block: SiteBlock) -> None:
        """Read some of the rows in place of the block, without quantities of all of its rows."""
        self.block = block
        self._placed.clear()
        self._quantities = BlockQuantities()

    def once(self, quantity: str, names: Sequence[str], make: Callable[[], T]) -> T:
        """Return values derived from the rows and the named arguments, once for all readers of a block.

        Their memory is not that of `room` if they are `lasting`. Nobody writes into them.
        """
        if quantity not in self._keys:
            arrays = {name: np.asarray(self.args[name]) for name in names if name in self.args}
            self._keys[quantity] = (
                quantity,
                tuple((name, array.shape, array.tobytes()) for name, array in arrays.items()),
            )
        return self._quantities.once(self._keys[quantity], partial(self._made, make))

    def _made(self, make: Callable[[], T]) -> T:
        self._making = True
        try:
            return make()
        finally:
            self._making = False

    def read(self, chosen: Integers | None = None, constant: int | None = None) -> PlacedRows:
        """Return all columns, or some, the constant being 1; valid until another block is read."""
        if self.exact:
            key = b"" if chosen is None else np.asarray(chosen).tobytes()
            if key in self._placed:
                return self._placed[key]
            if key not in self._grids:
                self._grids[key] = grid_of(self.block, self.args, chosen, constant)
            index, grid = self._grids[key]
            if grid is not None:
                self._placed[key] = self._on_grid(key, index, grid, constant)
                return self._placed[key]
        x = self.block.columns(self.args, chosen)
        if constant is not None:
            x[:, constant] = 1.0
        if not self.exact:
            return PlacedRows(x)
        radius = float(self.args.get("radius", 1.0))
        size = np.maximum(np.abs(x).max(axis=1, initial=0.0) / radius, 1.0)
        x /= size[:, None]
        return self.placed(made_finite(x), radius, size)

    def outside(self, chosen: Integers, *, outcome: bool = False, inputs: int = 0) -> Flags:
        """Return marks of values outside their bounds, shape (k, rows): of columns, response and inputs."""
        block = self.block
        low, high = outer_ends(block.low, block.high)
        if 2 * len(chosen) < len(low):
            marks = [beyond(block.features[:, chosen], low[chosen], high[chosen])]
        else:  # a copy of most columns costs more than a look at all of them
            marks = [beyond(block.features, low, high)[chosen]]
        if outcome:
            ends = outer_ends(np.array([block.response_low]), np.array([block.response_high]))
            marks.append(beyond(block.response[:, None], *ends))
        if inputs:
            known = np.zeros((0, len(block)), np.bool_) if block.inputs is None else block.inputs.T[:inputs]
            marks += [known, np.zeros((inputs - len(known), len(block)), dtype=np.bool_)]
        return np.concatenate(marks)

    def placed(self, x: Floats, largest: float, size: Floats | None = None) -> PlacedRows:
        """Return columns of size at most `largest` on the grid of this size, where sums are exact."""
        if not self.exact:
            return PlacedRows(x)
        unit = largest / FULL_SCALE
        return PlacedRows(on_grid(x, 1.0 / unit, 0.5, FULL_SCALE, x), np.full(x.shape[1], unit), size)

    def _on_grid(self, key: bytes, index: Any, grid: ColumnGrid, constant: int | None) -> PlacedRows:
        width = len(grid.units)
        room = None if self.lasting else self.room
        if self.lasting:
            quantity = ("steps", None if isinstance(index, slice) else index.tobytes(), constant, grid.key())
            if not self._making:
                own = partial(rooms, len(self.block), width)
                steps = self._quantities.once(quantity, lambda: self._steps(index, grid, own(), constant))
                return PlacedRows(steps, grid.units)
            if (earlier := self._quantities.last(quantity)) is not None:
                return PlacedRows(earlier, grid.units)
        if key not in self._rooms:
            self._rooms[key] = rooms(block_rows(width), width)
        return PlacedRows(self._steps(index, grid, self._rooms[key], constant), grid.units, room=room)

    def _steps(
        self, index: Any, grid: ColumnGrid, buffers: tuple[Floats, Floats], constant: int | None
    ) -> Floats:
        x = self.block.features[:, index]
        out = on_grid(x, grid.factor, grid.shift, FULL_SCALE, like(buffers, x))
        if not self.block.finite and np.isnan(out.sum()):
            np.nan_to_num(out, copy=False)
        if grid.ends is not None:
            low, high = grid.ends
            for j in np.flatnonzero((low > -FULL_SCALE) | (high < FULL_SCALE)):
                np.clip(out[:, j], low[j], high[j], out=out[:, j])
        if constant is not None:
            out[:, constant] = FULL_SCALE
        return out


def residual(rows: RowReader, bound: float = math.inf) -> Floats:
    """Return clip(y) - intercept - x_S'beta of the rows, cut to +-`bound`, shape (rows,).

    The column `response`, in its units, has the place of clip(y) if there is one.
    """
    args = rows.args
    r = rows.block.residual({name: value for name, value in args.items() if name not in ("support", "beta")})
    if "support" in args and len(args["support"]):
        r = r - rows.read(np.asarray(args["support"])).forms(np.asarray(args["beta"])[None])[0]
    return clipped(r, bound)


def grid_of(
    block: SiteBlock, args: Args, chosen: Integers | None, constant: int | None
) -> tuple[Any, ColumnGrid | None]:
    """Return the positions of columns in a block, without reading rows, and their grid if there is one."""
    is_all = chosen is None or np.array_equal(chosen, np.arange(len(block.low)))
    index = slice(None) if is_all else np.asarray(chosen)
    low = block.low[index].copy()
    high = block.high[index].copy()
    arrays = [
        np.full(len(block.low), start) if args.get(name) is None else np.asarray(args[name])
        for name, start in (("center", 0.0), ("scale", 1.0))
    ]
    center, scale = (np.array(array, dtype=np.float64)[index] for array in arrays)
    if constant is not None:
        low[constant] = -1.0
        high[constant] = 1.0
        center[constant] = 0.0
        scale[constant] = 1.0
    half_ranges = np.abs((np.stack([low, high]) - center) / scale).max(axis=0, initial=0.0)
    if not half_ranges.max(initial=0.0) <= float(args.get("radius", LARGEST)):
        return index, None
    units = np.where(half_ranges > 0.0, half_ranges, 1.0) / FULL_SCALE
    factor = 1.0 / (scale * units)
    shift = 0.5 - center * factor
    ends = np.floor(low * factor + shift), np.floor(high * factor + shift)
    return index, ColumnGrid(
        factor=factor, shift=shift, ends=ends, units=units, limit=math.inf, radius=math.inf
    )


# ---- sums


class Term(Protocol):
    """Contribution of a block of rows to a sum, in numbers (`summands`)."""

    @property
    def width(self) -> int:
        """Numbers of a row."""

    def plain(self) -> Floats:
        """Return the sum in doubles."""

    def empty(self) -> Any:
        """Return an accumulator of exact integers."""

    def integers(self, room: ScratchBuffers | None = None) -> tuple[Any, ...]:
        """Return the integers of the rows, which the accumulator adds up."""

    def entries(self, sums: Any) -> tuple[ExactSum, Floats]:
        """Return the integers of the sum and the value of one unit."""


class Terms(Protocol):
    """Contribution of a block of rows: always the same number of terms, of the same kinds and sizes."""

    def __call__(self, rows: RowReader, /) -> Sequence[Term]:
        """Return the terms."""


class TermSums:
    """Exact sums of a statistic's terms over blocks of rows, in any order.

    Parameters
    ----------
    terms : callable (RowReader) -> sequence of terms
    block : SiteBlock
        Any block of the rows: its bounds count, its rows are not read.
    args : mapping
        Arguments of the statistic, checked.

    Attributes
    ----------
    width : int
        How many numbers of a row are worked on together, by which rows are cut into blocks.

    Notes
    -----
    **Privacy.** Holds sums without noise: never leaves the mechanisms, cannot be pickled.
    """

    __slots__ = ("_kinds", "_parts", "_public", "_reader", "args", "terms", "width")

    def __init__(self, terms: Terms, block: SiteBlock, args: Args) -> None:
        self.terms = terms
        self.args = args
        self._public = block.low, block.high, block.response_low, block.response_high
        self._kinds: list[Term] | None = None
        self._parts: list[Any] = []
        self._reader = RowReader(block, args, exact=True)
        self.width = len(block.low)
        if self.width > NARROW:
            widths = sum(kind.width for kind in self.kinds)
            self.width = min(self.width, max(self._reader.width, widths))

    @property
    def kinds(self) -> list[Term]:
        """Terms whose sizes are those of all rows: of the first rows, before that of simulated ones."""
        if self._kinds is None:
            self._reader.take(made_up(*self._public), BlockQuantities())
            with np.errstate(all="ignore"):
                self._begin(list(self.terms(self._reader)))
        return cast("list[Term]", self._kinds)

    @property
    def parts(self) -> list[Any]:
        """Accumulators, one for each term."""
        return self._parts if self.kinds else []

    def _begin(self, kinds: list[Term]) -> None:
        self._kinds = kinds
        self._parts = [kind.empty() for kind in kinds]

    @property
    def rows(self) -> int:
        """Number of rows that were added."""
        return int(self.parts[0].rows)

    def update(self, block: SiteBlock) -> None:
        """Add rows."""
        add_together([self], block)

    def add(self, part: SiteBlock, quantities: BlockQuantities) -> None:
        """Add few rows, of which other sums can have the same quantities."""
        self._reader.take(part, quantities)
        terms = list(self.terms(self._reader))
        if self._kinds is None:
            self._begin(terms)
        for sums, term in zip(self._parts, terms, strict=True):
            sums.update(*(group.T for group in term.integers(self._reader.room)))

    def merge(self, other: TermSums) -> None:
        """Add the rows of another accumulator of the same query."""
        for sums, other_sums in zip(self.parts, other.parts, strict=True):
            sums.merge(other_sums)

    def floats(self) -> Floats:
        """Return the sum, each entry the double nearest to the exact one."""
        pairs = [kind.entries(sums) for kind, sums in zip(self.kinds, self.parts, strict=True)]
        return np.concatenate([total.floats(units) for total, units in pairs])

    def steps(self, grid: float) -> Integers:
        """Return the sum in steps of a grid, a power of two, each entry rounded once."""
        pairs = [kind.entries(sums) for kind, sums in zip(self.kinds, self.parts, strict=True)]
        return np.concatenate([total.steps(units, grid) for total, units in pairs])


def add_together(sums: Sequence[TermSums], block: SiteBlock, kept: KeptQuantities | None = None) -> None:
    """Add rows to several sums: common parts of their terms are computed once.

    With `kept` those of the query before are used too, and these are kept.
    """
    if not sums:
        return
    if kept is not None:
        kept.begin()
    with np.errstate(all="ignore"):
        for part in block.parts(block_rows(max(total.width for total in sums))):
            quantities = BlockQuantities() if kept is None else kept.of_part(part)
            for total in sums:
                total.add(part, quantities)


@dataclass(frozen=True, slots=True)
class _Statistic(Generic[S]):
    """A summand, made from the arguments of a query, and the terms of rows that keep to it."""

    summand: Callable[[Args, int], S]
    terms: Callable[[RowReader, S], Sequence[Term]]

    def sensitivity(self, args: Args, columns: int) -> RecordSensitivity:
        """Return the sensitivity that the summand states; checks the arguments."""
        return self.summand(args, columns).sensitivity()

    def sums(self, block: SiteBlock, args: Args) -> TermSums:
        """Return an exact sum over blocks of rows."""
        return TermSums(self._terms_of(block, args), block, args)

    def total(self, block: SiteBlock, args: Args) -> Floats:
        """Return the sum over a block: on the grid where digits are requested, else in doubles."""
        if digits(args)[0]:
            sums = self.sums(block, args)
            sums.update(block)
            return sums.floats()
        terms = self._terms_of(block, args)(RowReader(block, args, exact=False))
        return np.concatenate([term.plain() for term in terms])

    def _terms_of(self, block: SiteBlock, args: Args) -> Terms:
        """Return the terms of rows within the summand of these arguments."""
        summand = self.summand(args, block.features.shape[1])
        return lambda rows: self.terms(rows, summand)


def op_of_terms(
    name: str,
    summand: Callable[[Args, int], S],
    terms: Callable[[RowReader, S], Sequence[Term]],
    arguments: tuple[str, ...],
    partition: Callable[[Args], tuple[str, str] | None] | None = None,
    *,
    wide: bool = False,
    aligned: bool = False,
) -> SiteOp:
    """Return a statistic that is a sum of terms.

    Parameters
    ----------
    name : str
    summand : callable (args, columns) -> Summand
        Checks the arguments, and returns the set of vectors that a record may add.
    terms : callable (rows, summand) -> sequence of terms
        The contribution of rows, within the summand.
    arguments : tuple of str
        Names that `args` may hold.
    partition : callable, optional
        As of `SiteOp`.
    wide : bool
        As of `SiteOp`.
    aligned : bool
        As of `SiteOp`: where all terms have units of the requested digits (`Numbers`, `Histogram`).
    """
    statistic = _Statistic(summand, terms)
    return SiteOp(
        name=name,
        function=statistic.total,
        sensitivity=statistic.sensitivity,
        arguments=arguments,
        version=2,
        partition=partition,
        sums=statistic.sums,
        wide=wide,
        aligned=aligned,
    )
