"""Rows on their grid: contributions of a record as integers, with norms within the sensitivity.

z stands for a record's columns in scaled units, ``|z_j| <= h_j`` by public bounds, ``|z| <= R``.

**Boxes.** Where ``sum h_j^2 <= R^2``, column j has the unit ``h_j 2^-20``: both ends of a symmetric box are
on the grid, no integer passes 2^20, and a record on the grid is inside the box that sensitivities are
derived for. An end nearer to zero may be passed by half a unit, which no norm sees.

**Balls.** Otherwise all columns have one unit, 2^-20 of the largest h_j, and a record whose exact integer
norm passes R is shrunk and cut toward zero (`held_norms`): it is in the ball. Where bounds are infinite,
or more than 16 times as wide as the ball, z is shrunk to R first, by sums of squares in the order of the
columns, and the unit is ``R 2^-20``.

**Linear predictors.** z'theta has theta on a public grid so fine that the sum over columns is an exact
integer below 2^53, and so coarse that it can be: 2^-32 of ``sum |theta_j| h_j``. It is a function of theta
and bounds alone; a residual moves by 2^-33 of that at most, per column.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from privinf.mechanisms.statistics.block import LARGEST, Args, SiteBlock, clipped, made_finite, unit_sums
from privinf.mechanisms.statistics.loops import like, on_grid, rooms
from privinf.mechanisms.sums import (
    FULL_SCALE,
    NORM_SLACK,
    ProductSums,
    block_rows,
    held_norms,
    held_sums,
    scaled_down,
    shrunk,
)
from privinf.typing import Floats, Integers

# A ball below this share of the widest column has a grid of its own.
NARROW_BALL = 1.0 / 16.0
PREDICTOR_BITS = 32  # binary digits of the public weights of a predictor below the sum of all of them


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnGrid:
    """How columns are put on their grid: a function of public numbers.

    Attributes
    ----------
    factor, shift : ndarray, shape (k,)
        steps = floor(x factor + shift): x in the holder's units, or in scaled ones where rows are shrunk.
    ends : pair of ndarrays of shape (k,), or None
        Steps of the bounds where these are not +-2^20.
    units : ndarray, shape (k,)
        Value of a step, in scaled units.
    limit : float
        Largest norm of a row, in steps; infinite where the box keeps to it.
    radius : float
        Norm to which rows are shrunk before they are put on the grid; infinite where they are not.
    """

    factor: Floats
    shift: Floats
    ends: tuple[Floats, Floats] | None
    units: Floats
    limit: float
    radius: float

    @classmethod
    def from_bounds(cls, low: Floats, high: Floats, center: Floats, scale: Floats, norm: float) -> ColumnGrid:
        """Return the grid of columns between public bounds, of rows (x - center) / scale that keep a norm."""
        half_ranges = np.minimum(
            np.abs((np.stack([low, high]) - center) / scale).max(axis=0, initial=0.0), LARGEST
        )
        half_ranges = np.where(half_ranges > 0.0, half_ranges, 1.0)
        limit = math.inf
        if not math.sqrt(float(half_ranges @ half_ranges)) <= norm * (1.0 + NORM_SLACK):
            widest = float(half_ranges.max())
            if norm < NARROW_BALL * widest:
                units = np.full(len(half_ranges), norm / FULL_SCALE)
                return cls(
                    factor=1.0 / units,
                    shift=np.full(len(half_ranges), 0.5),
                    ends=None,
                    units=units,
                    limit=FULL_SCALE,
                    radius=norm,
                )
            half_ranges = np.full(len(half_ranges), widest)
            limit = norm / widest * FULL_SCALE * (1.0 + NORM_SLACK)
        units = half_ranges / FULL_SCALE
        factor = 1.0 / (scale * units)
        shift = 0.5 - center * factor
        bottom = np.floor(low * factor + shift)
        top = np.floor(high * factor + shift)
        covers_grid = bool((bottom <= -FULL_SCALE).all() and (top >= FULL_SCALE).all())
        ends = None if covers_grid else (bottom, top)
        return cls(factor=factor, shift=shift, ends=ends, units=units, limit=limit, radius=math.inf)

    def key(self) -> bytes:
        """Return bytes that differ between grids."""
        arrays = (self.factor, self.shift, self.units, *(self.ends or ()))
        numbers = np.array([self.limit, self.radius])
        return b"".join(array.tobytes() for array in (numbers, *arrays))

    def column(self, at: int) -> ColumnGrid:
        """Return the grid of one column."""
        position = slice(at, at + 1)
        ends = None if self.ends is None else (self.ends[0][position], self.ends[1][position])
        return ColumnGrid(
            factor=self.factor[position],
            shift=self.shift[position],
            ends=ends,
            units=self.units[position],
            limit=self.limit,
            radius=self.radius,
        )

    def put(self, x: Floats, out: Floats, *, finite: bool) -> Floats:
        """Return the integers of values, shape (rows, k), in `out`, between the ends; nan counts as 0."""
        on_grid(x, self.factor, self.shift, FULL_SCALE, out)
        if not finite and np.isnan(out.sum()):
            np.nan_to_num(out, copy=False)
        if self.ends is not None:
            low, high = np.clip(self.ends, -FULL_SCALE, FULL_SCALE)  # wherever the bounds may lie
            for j in np.flatnonzero((low > -FULL_SCALE) | (high < FULL_SCALE)):
                out[:, j].clip(low[j], high[j], out=out[:, j])
        return out


class RowGrid:
    """Puts the columns of blocks on their grid, all but a constant.

    Parameters
    ----------
    block : SiteBlock
        Any block of the rows: its bounds count, its rows are not read.
    args : mapping
        `center` and `scale`, `constant` and `norm` of a statistic.
    beside : int
        How many columns of something else have room on their left, where numbers lie column by column.
    """

    __slots__ = ("_args", "_chosen", "_rooms", "grid", "room")

    def __init__(self, block: SiteBlock, args: Args, public: int = 0) -> None:
        width = block.features.shape[1]
        constant = args.get("constant")
        private = np.arange(width) if constant is None else np.delete(np.arange(width), constant)
        center, scale = (
            np.full(width, start) if args.get(name) is None else np.asarray(args[name], dtype=np.float64)
            for name, start in (("center", 0.0), ("scale", 1.0))
        )
        ends = block.low[private], block.high[private]
        self.grid = ColumnGrid.from_bounds(*ends, center[private], scale[private], float(args["norm"]))
        self._args = args
        self._chosen = _run(private)
        rows = block_rows(len(private))
        self.room = rooms(rows, public + len(private))[1]
        self._rooms = rooms(rows, len(private))[0], self.room[:, public:]

    @property
    def rows(self) -> int:
        """Most rows of a block, and of `room`, which is stored by columns."""
        return len(self.room)

    def steps(self, block: SiteBlock) -> Floats:
        """Return the integers of a block, shape (rows, k), valid until the next call; nan counts as 0."""
        grid = self.grid
        x = block.features[:, self._chosen]
        if math.isfinite(grid.radius):
            x = shrunk(block.columns(self._args, self._chosen), grid.radius)
        out = grid.put(x, like(self._rooms, x), finite=block.finite)
        return out if math.isinf(grid.limit) else held_norms(out, grid.limit)


def _run(indices: Integers) -> Integers | slice:
    """Return positions as a slice where they are adjacent, which copies nothing."""
    together = len(indices) > 0 and int(indices[-1] - indices[0]) == len(indices) - 1
    return slice(int(indices[0]), int(indices[-1]) + 1) if together else indices


def plain_steps(values: Floats, unit: Floats, out: Floats) -> Floats:
    """Return the integers nearest to values / unit, at most 2^20 in size, in `out`; nan counts as 0."""
    return made_finite(on_grid(values, 1.0 / unit, 0.5, FULL_SCALE, out))


def predictor(groups: Sequence[tuple[Floats, Floats]]) -> Floats:
    """Return sum of steps x weight over groups of columns, shape (rows,), weights on a public grid.

    Parameters
    ----------
    groups : sequence of (ndarray of shape (rows, k), ndarray of shape (k,))
        Steps, and the value of one step.
    """
    total = float(np.abs(np.concatenate([weight for _, weight in groups])).sum())
    unit = math.ldexp(1.0, math.frexp(total)[1] - PREDICTOR_BITS) if total > 0.0 else 1.0
    total_steps: Floats = sum((steps @ np.rint(weight / unit) for steps, weight in groups), np.zeros(1))
    return total_steps * unit


class MomentSums:
    """Exact sums of w z z', or of w^2 clip(e, E)^2 x x', over blocks of rows (see `moments`).

    Parameters
    ----------
    block : SiteBlock
        Any block of the rows: its bounds count, its rows are not read.
    args : mapping
        Arguments of the statistic, checked.
    half_ranges : ndarray, shape (k,)
        Largest sizes of the public columns, or of the constant.
    pairs : tuple of ndarrays
        Rows, columns and isometric factors of the entries that are requested, of the upper triangle: public
        columns, response, private ones.
    residual : bool
        Whether these are the residual moments.

    Attributes
    ----------
    args : mapping
        Arguments of the statistic.
    response : ColumnGrid or None
        The grid of the response; None with residual moments.
    public : ndarray, shape (k, k)
        Sum w q q' of a holder's public columns, on their grid.

    Notes
    -----
    **Privacy.** Holds sums without noise: never leaves the mechanisms.
    """

    __slots__ = (
        "_grid",
        "_pairs",
        "_public_steps",
        "_residual",
        "_sums",
        "_units",
        "_values",
        "_weight_bound",
        "args",
        "response",
    )

    def __init__(
        self,
        block: SiteBlock,
        args: Args,
        half_ranges: Floats,
        pairs: tuple[Integers, Integers, Floats],
        *,
        residual: bool,
    ) -> None:
        self.args = args
        self._pairs = pairs
        self._residual = residual
        self._weight_bound = float(args.get("weight_bound", 1.0))
        self.response = None if residual else self._response_grid(block, args)
        self._grid = RowGrid(block, args, len(half_ranges) + (not residual))
        self._units = [half_ranges / FULL_SCALE, self._grid.grid.units]
        unit_groups = self._units[:1] if self.response is None else [self._units[0], self.response.units]
        public_units = np.concatenate(unit_groups)
        self._values = np.concatenate([public_units, self._units[1]])
        self._public_steps = self._grid.room[:, : len(public_units)]
        self._sums = ProductSums([len(public_units), len(self._units[1])])

    @property
    def rows(self) -> int:
        """Number of rows that were added."""
        return self._sums.rows

    def update(self, block: SiteBlock) -> None:
        """Add rows; blocks contain complete units."""
        with np.errstate(all="ignore"):
            if self._residual and "unit_norm" in self.args:
                self._add_units(block)
            else:
                for part in block.parts(self._grid.rows):
                    self._add(part)

    def _add_units(self, block: SiteBlock) -> None:
        """Add the products of units' sums of scores, shrunk and divided by the cap on rows."""
        scores = []
        for part in block.parts(self._grid.rows):
            x = self._grid.steps(part)
            q = self._public_and_response(part)
            scores.append(np.hstack([q, x]) * self._residual_share(part, q, x)[:, None])
        sums = unit_sums(np.floor(np.concatenate(scores) + 0.5), block.units)
        values = self._values * self._weight_bound * float(self.args["residual_clip"])
        sums = held_sums(sums, values, float(self.args["unit_norm"]), int(self.args.get("max_rows", 1)))
        self._sums.update(*np.split(sums, [len(self._units[0])], axis=1))

    def _add(self, block: SiteBlock) -> None:
        public_steps, x = self.factors(block, self._public_and_response(block), self._grid.steps(block))
        together = x.strides[0] < x.strides[1]  # one product of matrices in place of three
        self._sums.update(*([self._grid.room[: len(x)]] if together else [public_steps, x]))

    def factors(self, rows: SiteBlock, public_steps: Floats, x: Floats) -> tuple[Floats, Floats]:
        """Return the integers whose products are added up, in place of those of public and private columns.

        The response is next to the public columns; without it, all are times residuals of `rows`.
        """
        if self._residual:
            share = self._residual_share(rows, public_steps, x)[:, None]
        elif rows.weights is None:
            return public_steps, x
        else:
            share = np.sqrt(np.minimum(rows.weights / self._weight_bound, 1.0))[:, None]
        return scaled_down(public_steps, share), scaled_down(x, share)

    def _public_and_response(self, block: SiteBlock) -> Floats:
        """Return the public columns and c y, in units of k 2^-20 between the bounds of y."""
        out = self._public_steps[: len(block)]
        units = self._units[0]
        public = out[:, : len(units)]
        if block.clear is None or block.clear.strides[0] == 0:  # ones, as `RowPasses` has them
            public[:] = FULL_SCALE
        else:
            plain_steps(block.clear, units, public)
        if self.response is not None and "response" in self.args:
            plain_steps(block.residual(self.args)[:, None], 1.0 / self.response.factor, out[:, len(units) :])
        elif self.response is not None:
            self.response.put(block.response[:, None], out[:, len(units) :], finite=block.finite)
        return out

    @staticmethod
    def _response_grid(block: SiteBlock, args: Args) -> ColumnGrid:
        unit = np.array([float(args["response_bound"]) / FULL_SCALE])
        factor = float(args["response_factor"]) / unit
        shift = 0.5 - float(args.get("intercept", 0.0)) * factor
        ends = max(block.response_low, -LARGEST), min(block.response_high, LARGEST)
        bottom, top = (np.floor(end * factor + shift) for end in ends)
        covers_grid = bottom[0] <= -FULL_SCALE and top[0] >= FULL_SCALE
        return ColumnGrid(
            factor=factor,
            shift=shift,
            ends=None if covers_grid else (bottom, top),
            units=unit,
            limit=math.inf,
            radius=math.inf,
        )

    def _residual_share(self, block: SiteBlock, q: Floats, x: Floats) -> Floats:
        """Return w clip(e, E) / (W E)."""
        b = np.asarray(self.args["coefficients"], dtype=np.float64)
        clip = float(self.args["residual_clip"])
        groups = zip((q, x), np.split(b, [len(self._units[0])]), self._units, strict=True)
        fitted = predictor([(steps, part * units) for steps, part, units in groups])
        e = block.residual(self.args) * float(self.args["response_factor"]) - fitted
        share = clipped(e, clip) / clip
        return share if block.weights is None else share * np.minimum(block.weights / self._weight_bound, 1.0)

    @property
    def columns(self) -> ColumnGrid:
        """The grid of the private columns."""
        return self._grid.grid

    @property
    def sums(self) -> ProductSums:
        """The sums of products."""
        return self._sums

    def merge(self, other: MomentSums) -> None:
        """Add the rows of another accumulator of the same query."""
        self._sums.merge(other._sums)

    def floats(self) -> Floats:
        """Return the isometric entries, each the double nearest to the exact sum."""
        rows, columns, factors = self._pairs
        return self._sums.total.at(rows, columns).floats(self._value(rows, columns) * factors)

    def steps(self, grid: float) -> Integers:
        """Return the isometric entries in steps of a grid, a power of two, each rounded once."""
        rows, columns, factors = self._pairs
        return self._sums.total.at(rows, columns).steps(self._value(rows, columns) * factors, grid)

    @property
    def public(self) -> Floats:
        """Sum w q q', exact up to one rounding an entry."""
        rows, columns = np.triu_indices(len(self._units[0]))
        full = np.zeros([len(self._units[0])] * 2)
        full[rows, columns] = self._sums.total.at(rows, columns).floats(self._value(rows, columns))
        full[columns, rows] = full[rows, columns]
        return full

    def _value(self, rows: Integers, columns: Integers) -> Floats:
        """Return the value of one product of steps."""
        units = self._values
        weight = self._weight_bound
        if self._residual:
            weight = (weight * float(self.args["residual_clip"])) ** 2
            if "unit_norm" in self.args:
                weight *= int(self.args.get("max_rows", 1)) ** 2
        return np.asarray(units[rows] * units[columns] * weight)
