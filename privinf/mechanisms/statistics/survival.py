r"""Numbers of events and of censored records by interval and group, by the square root of suffix sums.

The public edges 0 < t_1 < ... < t_K cut time into intervals (t_{k-1}, t_k]. A record fills one cell of its
group: D_k, an event in interval k, or C_k, censored there. What happens after t_K is cut: a record that is
still followed then, with an event later or censored at t_K or later, is in C_{K+1}. The numbers at risk
are sums over suffixes, N_k = sum_{j >= k} (D_j + C_j). A time that differs from an edge by at most the part
`SAME_TIME` of it is taken to be at the edge: ``np.linspace(0, 0.7, 8)`` has the edge 0.09999999999999999, and
a time of 0.1 belongs to the interval that ends there. U, upper Toeplitz with first row f_0 = 1, f_k =
f_{k-1} (2k - 1)/(2k), is the square root of the matrix of suffix sums (`summands`). For every group U D, of
K entries, and U C, of K + 1, are released.

Sensitivity. A replacement takes one column of U away and adds one. Columns of different sequences have no
entry in common, so their squares add up. In one sequence both are nonnegative, and |a - b|^2 <= |a|^2 +
|b|^2. The longest column of D has f_0, ..., f_{K-1} and that of C has f_0, ..., f_K. So

.. math:: S^2 = \sum_{t < K} f_t^2 + \sum_{t \le K} f_t^2

for one group, attained by an event in interval K that becomes C_{K+1}. With several groups C_{K+1} of one
can become that of another: S^2 = 2 sum_{t <= K} f_t^2, whatever their number.

Records without a value (`missing="drop"`) add nothing. With `counted` the number of complete records is
released too. It moves only if a record comes to lack its value, or stops lacking it: then the squared
distance is that of one column, and 1, which is at most S^2 since f_0 = 1. So the count is free.

No time is negative, but codes of missing values such as -9 are. They fall in the first interval. With
`negative` half the number of records with a negative time is released too. Such a record has a column of
squared length 1 and adds 1/4. That is at most f_0^2 + f_1^2 = 5/4, the square of the column of an event in
the second interval. So from two intervals on this number is free too, whatever replaces the record: one
without a negative time is at most f_0^2 + ... + f_K^2 away in addition, one that lacks its value 1.

Exactness. f has `DIGITS` binary digits, and S is that of the rounded f. Cells are counted in integers, U is
applied to integers, and every entry is rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from privinf.errors import ArgumentError
from privinf.mechanisms.statistics.block import Args, positions, vector, whole_number
from privinf.mechanisms.statistics.loops import ScratchBuffers
from privinf.mechanisms.statistics.ops import RecordSensitivity, SiteOp, named
from privinf.mechanisms.statistics.summands import DIGITS, CellSums
from privinf.mechanisms.statistics.terms import RowReader, op_of_terms
from privinf.mechanisms.sums import ExactSum
from privinf.typing import Floats, Integers
from privinf.validation import SAME_TIME, check_flag
from privinf.wire import Derivations, Statistics

MOST_INTERVALS = 512  # intervals of one grid
MOST_GROUPS = 256
LEAST_INTERVALS = 2  # from which the number of negative times is free
NEGATIVE_WEIGHT = 0.5  # f_1, in the released number
MIDDLE = 0.5  # a status, or the mark of a group, above it is 1


@lru_cache(maxsize=64)
def suffix_root(size: int) -> Floats:
    """Return f_0, ..., f_{size-1}, multiples of 2^-24: the first row of U."""
    k = np.arange(1.0, size)
    f = np.concatenate([[1.0], np.cumprod((2.0 * k - 1.0) / (2.0 * k))])
    f = np.asarray(np.rint(np.ldexp(f, DIGITS)) * 2.0**-DIGITS, dtype=np.float64)
    f.setflags(write=False)
    return f


@dataclass(frozen=True, slots=True, kw_only=True)
class SurvivalCells:
    """Columns of U: one record in a cell of its group, and 1 in the number of complete records.

    Attributes
    ----------
    edges : ndarray, shape (K,)
        Ends of the intervals.
    groups : int
    counted : bool
        Whether the number of complete records is part of the sum.
    negative : bool
        Whether half the number of negative times is part of the sum.
    """

    edges: Floats
    groups: int
    counted: bool
    negative: bool

    @classmethod
    def from_args(cls, args: Args, columns: int) -> SurvivalCells:
        """Return the cells of a query; ArgumentError for a grid or columns that do not fit."""
        edges = vector(args, "edges")
        increasing = bool((np.diff(edges) > 0.0).all())
        if not 1 <= len(edges) <= MOST_INTERVALS or not edges[0] > 0.0 or not increasing:
            raise ArgumentError(
                f"argument 'edges' of the statistic must hold between 1 and {MOST_INTERVALS} positive "
                "numbers in increasing order"
            )
        if whole_number(args, "status", minimum=0) >= columns:
            raise ArgumentError(f"argument 'status' of the statistic must be a column number below {columns}")
        groups = 1 + len(positions(args, "groups", columns)) if "groups" in args else 1
        if groups > MOST_GROUPS:
            raise ArgumentError(
                f"argument 'groups' of the statistic must name fewer than {MOST_GROUPS} columns"
            )
        counted, negative = (check_flag(args.get(name, False), name) for name in ("counted", "negative"))
        if negative and len(edges) < LEAST_INTERVALS:
            raise ArgumentError(
                f"argument 'negative' of the statistic needs at least {LEAST_INTERVALS} intervals"
            )
        return cls(edges=edges, groups=groups, counted=counted, negative=negative)

    @property
    def width(self) -> int:
        """Number of cells of one group, 2K + 1."""
        return 2 * len(self.edges) + 1

    @property
    def size(self) -> int:
        """Number of released entries."""
        return self.groups * self.width + self.counted + self.negative

    @property
    def places(self) -> int:
        """Number of cells that records are counted in: those of negative times are apart, two for a group."""
        return self.groups * (self.width + 2 * self.negative)

    def sensitivity(self) -> RecordSensitivity:
        """Return the largest distance of two columns, and the longest column."""
        squares = np.square(suffix_root(len(self.edges) + 1))
        longest = math.fsum(squares)
        other = longest if self.groups > 1 else math.fsum(squares[:-1])
        return RecordSensitivity(
            shape=(self.size,),
            l2=math.sqrt(longest + other),
            linf=1.0,
            bound=1.0,
            derivation=Derivations.SURVIVAL_CELLS,
            norm=math.sqrt(longest + self.counted),
        )

    def counts(self, time: Floats, status: Floats, groups: Floats) -> SurvivalCounts:
        """Return the counts of records: times, statuses, and marks of all groups but the first, (rows, k)."""
        intervals = len(self.edges)
        interval = np.searchsorted(self.edges * (1.0 + SAME_TIME), time, side="left")
        event = (status > MIDDLE) & (interval < intervals)
        followed = time >= self.edges[-1] * (1.0 - SAME_TIME)
        interval = np.where(followed & ~event, intervals, interval)
        places = np.where(event, interval, intervals + interval)
        group = np.zeros(len(places), dtype=np.int64)
        if groups.shape[1]:
            marks = np.column_stack([np.full(len(places), MIDDLE), groups])
            group = np.argmax(marks, axis=1)
        places = places + self.width * group
        if self.negative:
            apart = self.groups * self.width + 2 * group + event
            places = np.where(time < -SAME_TIME * self.edges[0], apart, places)
        return SurvivalCounts(places=places, cells=self)


@dataclass(frozen=True, slots=True, kw_only=True)
class SurvivalCounts:
    """U D and U C of the groups, one after the other, by the cell of each record, shape (rows,)."""

    places: Integers
    cells: SurvivalCells

    @property
    def width(self) -> int:
        """Numbers of a row."""
        return 1

    def plain(self) -> Floats:
        """Return the sum, shape (groups (2K + 1),), and the numbers of complete and of negative times."""
        cells = self.cells
        counts = np.bincount(self.places, minlength=cells.places)
        return np.asarray(_rooted(counts.astype(np.float64), cells, suffix_root), dtype=np.float64)

    def empty(self) -> CellSums:
        """Return an accumulator."""
        return CellSums(self.cells.places)

    def integers(self, room: ScratchBuffers | None = None) -> tuple[Integers]:
        """Return the cells of the records, counted from 1."""
        return (self.places + 1,)

    def entries(self, sums: CellSums) -> tuple[ExactSum, Floats]:
        """Return the integers of the sum and the value of one unit."""
        total = _rooted(sums.total.integers(), self.cells, _whole_root)
        return ExactSum.from_integers(total), np.full(self.cells.size, 2.0**-DIGITS)


def _whole_root(size: int) -> Any:
    """Return f in units of 2^-24, as Python's integers."""
    return np.ldexp(suffix_root(size), DIGITS).astype(np.int64).astype(object)


def _rooted(counts: Any, cells: SurvivalCells, root: Callable[[int], Any]) -> Any:
    """Return U of every sequence of counts, their total and half the negative times, in units of f."""
    intervals = len(cells.edges)
    parts = []
    size = cells.groups * cells.width
    by_group = counts[:size].reshape(cells.groups, cells.width)
    negative = counts[size:].reshape(cells.groups, -1)
    if cells.negative:  # censored, events: the first cells of their groups
        by_group = by_group.copy()
        by_group[:, intervals] += negative[:, 0]
        by_group[:, 0] += negative[:, 1]
    for group in by_group:
        for sequence in (group[:intervals], group[intervals:]):
            sums = np.convolve(sequence[::-1], root(len(sequence)))[: len(sequence)]
            parts.append(sums[::-1])
    if cells.counted:
        parts.append(np.array([counts.sum() * root(1)[0]]))
    if cells.negative:
        parts.append(np.array([negative.sum() * root(LEAST_INTERVALS)[1]]))
    return np.concatenate(parts)


def _counts(rows: RowReader, cells: SurvivalCells) -> tuple[SurvivalCounts]:
    block = rows.block
    columns = [int(rows.args["status"]), *(int(at) for at in rows.args.get("groups", ()))]
    values = block.features[:, columns]
    return (cells.counts(block.response, values[:, 0], values[:, 1:]),)


SURVIVAL_OPS: dict[str, SiteOp] = named(
    op_of_terms(
        name=Statistics.SURVIVAL_CELLS,
        summand=SurvivalCells.from_args,
        terms=_counts,
        arguments=("bits", "edges", "status", "groups", "counted", "negative"),
    ),
)
