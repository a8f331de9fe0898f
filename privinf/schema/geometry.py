"""Scaling and replace-one geometry of the private part of a row, from public bounds alone."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from privinf.errors import SchemaError, SensitivityError
from privinf.schema.table import Schema
from privinf.schema.terms import Column, Indicator
from privinf.typing import Flags, Floats

Blocks = tuple[tuple[int, ...], ...]
BOUND_TOLERANCE = 1e-9  # between bounds computed on two platforms


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
