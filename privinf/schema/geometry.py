"""What follows from a design's columns and bounds: its scaling, its geometry, and its description as JSON.

Geometry means how far apart two rows can be, from public bounds alone. The JSON form is an exact round trip,
with a digest that no platform changes; what arrives is checked.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, TypeVar

import numpy as np

from privinf.doors import doors
from privinf.errors import PrivinfError, SchemaError, SensitivityError
from privinf.schema.intervals import Interval
from privinf.schema.table import Schema
from privinf.schema.terms import Column, Indicator, Response
from privinf.typing import Flags, Floats, Json

Blocks = tuple[tuple[int, ...], ...]
BOUND_TOLERANCE = 1e-9  # between bounds computed on two platforms
MOST_VERTICES = 1 << 12  # of the rows that bounds allow


def scaling(low: Floats, high: Floats, scaled: Flags, *, centred: bool) -> tuple[Floats, Floats]:
    """Return centre and scale, each (p,), that carry the bounded columns `scaled` into [-1, 1].

    With a constant (`centred`) these are the middle and half the range, so that the constant absorbs the
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
    hot = sum(2 if len(block) > 1 else 1 for block in blocks)
    return math.sqrt(float(widths @ widths) + hot)


def box_norm(reach: Floats, blocks: Blocks) -> float:
    """Return the largest norm of a row of a box; `reach` is of the columns outside the blocks."""
    return math.sqrt(float(reach @ reach) + len(blocks))


def outside(private: Flags, blocks: Blocks) -> Flags:
    """Return which private columns stand in no block, shape (p,)."""
    mask = private.copy()
    mask[[index for block in blocks for index in block]] = False
    return mask


def check_geometry(
    columns: Sequence[Column], private: Flags, low: Floats, high: Floats, blocks: Blocks, radius: float | None
) -> None:
    """Raise unless bounds are in order, every private column is bounded and blocks exclude one another."""
    for column, hidden, start, stop in zip(columns, private, low, high, strict=True):
        if not start <= stop:
            raise SchemaError(f"bounds of {column.name!r} are not in order")
        if hidden and start == stop:
            raise SchemaError(f"{column.name!r} is constant over the declared bounds")
        if hidden and radius is None and not (math.isfinite(start) and math.isfinite(stop)):
            raise SensitivityError(
                f"column {column.name!r} has no public bounds: pass bounds=, radius= or write bounds='data'"
            )
    positions = [index for block in blocks for index in block]
    if len(set(positions)) != len(positions) or not all(0 <= index < len(columns) for index in positions):
        raise SchemaError("blocks must hold positions of different columns")
    for block in blocks:
        for position, index in enumerate(block):
            if not private[index]:
                raise SchemaError("blocks must hold private columns")
            if not all(_exclude(columns[index], columns[other]) for other in block[:position]):
                raise SchemaError("the indicators of a block must exclude one another")


def check_against_schema(
    schema: Schema, columns: Sequence[Column], private: Flags, low: Floats, high: Floats
) -> None:
    """Raise SchemaError unless what is private, and its bounds, follow from the schema."""
    for column, hidden, start, stop in zip(columns, private, low, high, strict=True):
        bounds = column.interval(schema)
        if bool(hidden) == is_public(schema, column):
            raise SchemaError(f"{column.name!r} is public where the schema says private, or the reverse")
        slack = BOUND_TOLERANCE * max(bounds.reach, bounds.high - bounds.low)
        if not (abs(start - bounds.low) <= slack and abs(stop - bounds.high) <= slack):
            raise SchemaError(f"the bounds of {column.name!r} do not follow from the schema")


def is_public(schema: Schema, column: Column) -> bool:
    """Return whether everything that a column is made of is declared public (so is the constant)."""
    return all(schema[name].public for name in column.inputs)


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


FORMAT = 1


@doors
@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class DesignFields:
    """What a design is written as: everything else about it follows. See `Design`."""

    formula: str | None
    schema: Schema | None
    columns: tuple[Column, ...]
    private: Flags
    constant: int | None
    low: Floats
    high: Floats
    blocks: Blocks
    radius: float | None
    outcome: Response
    raw: tuple[Column, ...] | None = None


D = TypeVar("D", bound=DesignFields)


def design_to_dict(design: DesignFields) -> dict[str, Any]:
    """Return a JSON-able description, numbers exact."""
    bounds = design.outcome.bounds
    raw = {} if design.raw is None else {"raw": [column.to_dict() for column in design.raw]}
    return raw | {
        "format": FORMAT,
        "formula": design.formula,
        "schema": None if design.schema is None else design.schema.to_dict(),
        "columns": [column.to_dict() for column in design.columns],
        "private": design.private.tolist(),
        "constant": design.constant,
        "low": _finite_or_none(design.low),
        "high": _finite_or_none(design.high),
        "blocks": [list(block) for block in design.blocks],
        "radius": design.radius,
        "outcome": {
            "column": design.outcome.column.to_dict(),
            "public": design.outcome.public,
            "bounds": None if bounds is None else [bounds.low, bounds.high],
        },
    }


def identity(design: DesignFields) -> dict[str, Any]:
    """Return what tells a design from another: its description without the bounds that a schema implies.

    Those may come from logarithms and exponentials, whose last bit depends on the platform.
    """
    content = design_to_dict(design)
    if design.schema is not None:
        del content["low"], content["high"], content["outcome"]["bounds"]
    return content


def design_from_dict(kind: type[D], content: Json) -> D:
    """Return the design that `design_to_dict` described.

    Raises SchemaError if the content describes no design, or one that does not follow from its own schema.
    """
    try:
        if content["format"] != FORMAT:
            raise SchemaError("the design has another format version")
        outcome = content["outcome"]
        bounds = None if outcome["bounds"] is None else Interval(*outcome["bounds"])
        design = kind(
            formula=content["formula"],
            schema=None if content["schema"] is None else Schema.from_dict(content["schema"]),
            columns=tuple(Column.from_dict(column) for column in content["columns"]),
            private=np.array(content["private"], dtype=bool),
            constant=content["constant"],
            low=np.array([-math.inf if end is None else end for end in content["low"]], dtype=float),
            high=np.array([math.inf if end is None else end for end in content["high"]], dtype=float),
            blocks=tuple(tuple(block) for block in content["blocks"]),
            radius=content["radius"],
            outcome=Response(Column.from_dict(outcome["column"]), outcome["public"], bounds),
            raw=tuple(Column.from_dict(column) for column in content["raw"]) if "raw" in content else None,
        )
    except PrivinfError:
        raise
    except (LookupError, TypeError, AttributeError, ValueError, OverflowError, RecursionError):
        raise SchemaError("the content does not describe a design") from None
    _check_declared(design)
    return design


def _check_declared(design: DesignFields) -> None:
    """Raise SchemaError unless a design that came from elsewhere follows from its own schema."""
    schema = design.schema
    outcome = design.outcome
    if schema is None:
        return
    check_against_schema(schema, design.columns, design.private, design.low, design.high)
    if design.constant is not None and design.columns[design.constant].pieces:
        raise SchemaError("the constant must be the column without factors")
    if outcome.bounds is not None:
        ends = np.array([outcome.bounds.low]), np.array([outcome.bounds.high])
        check_against_schema(schema, [outcome.column], np.array([True]), *ends)


def _finite_or_none(values: Floats) -> list[float | None]:
    return [float(value) if math.isfinite(value) else None for value in values]


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
    def of(cls, low: Floats, high: Floats, blocks: Sequence[Sequence[int]], radius: float) -> Reachable:
        """Return the set of rows between bounds, its corners where there are at most 4,096."""
        kept = tuple(tuple(int(j) for j in block) for block in blocks)
        return cls(low=low, high=high, blocks=kept, radius=radius, vertices=_vertices(low, high, kept))

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
        least = ends.min(axis=0)
        most = ends.max(axis=0)
        inside = {j for block in self.blocks for j in block}
        free = [j for j in range(len(theta)) if j not in inside]
        low = float(least[free].sum())
        high = float(most[free].sum())
        for block in self.blocks:
            at = list(block)
            base = float((self.low[at] * theta[at]).sum())
            moved = (self.high[at] - self.low[at]) * theta[at]
            low += base + min(0.0, float(moved.min()))
            high += base + max(0.0, float(moved.max()))
        return low, high

    def residual(self, theta: Floats, low: float, high: float) -> float:
        """Return the largest |y - z'theta| of responses between `low` and `high`."""
        least, most = self.predictor(theta)
        return max(high - least, most - low)


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
