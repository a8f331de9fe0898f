"""How far apart two rows can be, from public bounds alone: scaling, largest norms and distances, corners."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from privinf.errors import ArgumentError, SchemaError, SensitivityError
from privinf.schema.arrays import NO_BOUNDS
from privinf.schema.terms import Column, Indicator, Response
from privinf.typing import Flags, Floats

Blocks = tuple[tuple[int, ...], ...]
MOST_VERTICES = 1 << 12  # corners of the rows that bounds allow; more are not listed
# Of a ball that holds every row: adjacency="unit" protects records at distance 1 and needs no bound.
UNBOUNDED_RADIUS = 1e100
# Sizes of bounds whose products can be summed: statistics take arguments between 1e-30 and 1e30.
SMALLEST_BOUND = 1e-28  # other than 0
LARGEST_BOUND = 1e28  # that is finite
SAME_UNIT = (0.0, 1.0)  # center and scale of a response in the user's own unit, or of a linear predictor


def scaling(low: Floats, high: Floats, scaled: Flags, *, centred: bool) -> tuple[Floats, Floats]:
    """Return center and scale, each (p,), that carry the bounded columns `scaled` into [-1, 1].

    With a constant (`centered`) these are the middle and half the range, so that the constant absorbs the
    shift; without one, zero and the largest absolute value. Other columns keep 0 and 1.
    """
    center, scale = np.zeros(len(low)), np.ones(len(low))
    chosen = scaled & np.isfinite(low) & np.isfinite(high)
    if centred:
        center[chosen] = 0.5 * low[chosen] + 0.5 * high[chosen]
        scale[chosen] = 0.5 * (high[chosen] - low[chosen])
    else:
        scale[chosen] = np.maximum(np.abs(low), np.abs(high))[chosen]
    return center, scale


def box_diameter(widths: Floats, blocks: Blocks) -> float:
    """Return the largest distance between two rows of a box.

    `widths` are those of the columns outside the blocks. Two rows differ in at most two indicators of a
    block, in one if it has a single indicator.
    """
    return math.sqrt(float(widths @ widths) + _changed_indicators(blocks))


def box_l1_diameter(widths: Floats, blocks: Blocks) -> float:
    """Return the largest l1 distance between two rows of a box; `widths` as in `box_diameter`."""
    return float(widths.sum()) + _changed_indicators(blocks)


def _changed_indicators(blocks: Blocks) -> int:
    """Return in how many indicators two rows differ at most."""
    return sum(2 if len(block) > 1 else 1 for block in blocks)


def box_norm(largest: Floats, blocks: Blocks) -> float:
    """Return the largest norm of a row of a box; `largest` is of the columns outside the blocks."""
    return math.sqrt(float(largest @ largest) + len(blocks))


def outside(private: Flags, blocks: Blocks) -> Flags:
    """Return a mask of the private columns in no block, shape (p,)."""
    mask = private.copy()
    mask[[index for block in blocks for index in block]] = False
    return mask


def to_user(
    center: Floats, scale: Floats, y_affine: tuple[float, float], constant: int | None
) -> tuple[Floats, Floats]:
    """Return T, shape (p, p), and shift, shape (p,): ``params_user = T @ params_scaled + shift``.

    `y_affine` is the center and the scale of the response, ``(y - y_center) / y_scale``; `SAME_UNIT` for
    models of a linear predictor.
    """
    y_center, y_scale = y_affine
    transform = np.diag(y_scale / scale)
    shift = np.zeros(len(scale))
    if constant is not None:
        transform[constant] -= y_scale * center / scale
        shift[constant] = y_center
    return transform, shift


def checked_constant(constant: int | None, private: Flags) -> int | None:
    """Return the position of the column of ones; SchemaError unless it is a public column's."""
    if constant is None:
        return None
    if isinstance(constant, bool) or not isinstance(constant, (int, np.integer)):
        raise ArgumentError("constant= must be the index of a column, an integer starting from 0")
    if not 0 <= constant < len(private) or private[constant]:
        raise SchemaError("constant= must be the index of a column that is declared public")
    return int(constant)


def check_magnitudes(names: Sequence[str], low: Floats, high: Floats, outcome: Response) -> None:
    """Raise SchemaError for bounds so large, or so close to zero, that sums of products would overflow."""
    ends = [*zip(names, low, high, strict=True)]
    if outcome.bounds is not None:
        ends.append((outcome.column.name, outcome.bounds.low, outcome.bounds.high))
    for name, lower, upper in ends:
        size = max(abs(lower), abs(upper))
        if math.isfinite(size) and size != 0.0 and not SMALLEST_BOUND <= size <= LARGEST_BOUND:
            raise SchemaError(
                f"the bounds of {name!r} have magnitude {size:.3g}, outside the supported "
                f"range from {SMALLEST_BOUND:g} to {LARGEST_BOUND:g}: change the unit of the "
                "column"
            )


def check_geometry(
    columns: Sequence[Column], private: Flags, low: Floats, high: Floats, blocks: Blocks, radius: float | None
) -> None:
    """Raise unless bounds are in order, every private column is bounded and blocks exclude one another."""
    for column, hidden, start, stop in zip(columns, private, low, high, strict=True):
        if not start <= stop:
            raise SchemaError(f"the lower bound of {column.name!r} exceeds its upper bound")
        if hidden and start == stop:
            raise SchemaError(
                f"column {column.name!r} is constant over the declared bounds: leave the column out, or "
                "change the bounds"
            )
        if hidden and radius is None and not (math.isfinite(start) and math.isfinite(stop)):
            raise SensitivityError(NO_BOUNDS.format(column.name))
    positions = [index for block in blocks for index in block]
    if len(set(positions)) != len(positions) or not all(0 <= index < len(columns) for index in positions):
        raise SchemaError("blocks= must contain lists of column indices, and no index may occur twice")
    for block in blocks:
        for position, index in enumerate(block):
            if not private[index]:
                raise SchemaError(
                    f"blocks= must contain indices of private columns only, but column "
                    f"{columns[index].name!r} is public"
                )
            if not all(_exclude(columns[index], columns[earlier]) for earlier in block[:position]):
                raise SchemaError(
                    "each list in blocks= must contain indices of indicator columns of which at most one "
                    "is 1 in any row"
                )


def _exclude(first: Column, second: Column) -> bool:
    levels = {piece.column: piece.level for piece in first.pieces if isinstance(piece, Indicator)}
    return (
        first.indicator
        and second.indicator
        and any(
            isinstance(piece, Indicator) and levels.get(piece.column, piece.level) != piece.level
            for piece in second.pieces
        )
    )


# ---- the rows that bounds allow


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Reachable:
    """Rows z in scaled units inside their bounds; a column with equal bounds never varies.

    Attributes
    ----------
    low, high : ndarray, shape (p,)
    blocks : tuple of tuple of int
        Columns of which at most one differs from its lower bound in any row.
    radius : float
        Longest row.
    vertices : ndarray, shape (k, p), or None
        Corners of the set; None where there are too many.
    """

    low: Floats
    high: Floats
    blocks: tuple[tuple[int, ...], ...]
    radius: float
    vertices: Floats | None

    @classmethod
    def from_blocks(
        cls, low: Floats, high: Floats, blocks: Sequence[Sequence[int]], radius: float
    ) -> Reachable:
        """Return the set of rows between bounds, its corners where there are at most 4,096."""
        exclusive = tuple(tuple(int(j) for j in block) for block in blocks)
        return cls(
            low=low, high=high, blocks=exclusive, radius=radius, vertices=_vertices(low, high, exclusive)
        )

    def longest2(self, matrix: Floats) -> float:
        """Return the largest |M z|^2, or a bound of it."""
        bound = self.radius**2 * float(np.linalg.norm(matrix, 2)) ** 2
        if self.vertices is None:
            return bound
        images = self.vertices @ matrix.T
        return min(bound, float(np.einsum("ij,ij->i", images, images).max()))

    def predictor(self, theta: Floats) -> tuple[float, float]:
        """Return the least and the largest z'theta."""
        ends = np.stack([self.low * theta, self.high * theta])
        smallest = ends.min(axis=0)
        largest = ends.max(axis=0)
        inside = {j for block in self.blocks for j in block}
        free = [j for j in range(len(theta)) if j not in inside]
        low = float(smallest[free].sum())
        high = float(largest[free].sum())
        for block in self.blocks:
            at = list(block)
            base = float((self.low[at] * theta[at]).sum())
            moved = (self.high[at] - self.low[at]) * theta[at]
            low += base + min(0.0, float(moved.min()))
            high += base + max(0.0, float(moved.max()))
        return low, high

    def residual(self, theta: Floats, low: float, high: float) -> float:
        """Return the largest |y - z'theta| of responses between `low` and `high`."""
        smallest, largest = self.predictor(theta)
        return max(high - smallest, largest - low)


def _vertices(low: Floats, high: Floats, blocks: tuple[tuple[int, ...], ...]) -> Floats | None:
    inside = {j for block in blocks for j in block}
    free = [j for j in range(len(low)) if j not in inside and high[j] > low[j]]
    count = math.prod([2 ** min(len(free), 40), *(len(block) + 1 for block in blocks)])
    if count > MOST_VERTICES:
        return None
    choices: list[list[tuple[int, ...]]] = [[(), (j,)] for j in free]
    choices += [[(), *((j,) for j in block)] for block in blocks]
    corners = np.tile(low, (count, 1))
    for row, chosen in enumerate(product(*choices)):
        raised = [j for part in chosen for j in part]
        corners[row, raised] = high[raised]
    return corners
