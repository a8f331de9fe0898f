"""Columns of new rows with values outside the range of the fit, by declarations alone."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from privinf.schema.declared import Numeric
from privinf.schema.reading import Reader
from privinf.schema.table import Schema
from privinf.schema.terms import Column, Spline
from privinf.typing import Flags, Floats

# How far a value may pass a bound unmentioned, in ranges: numerical derivatives step so far.
HAIR = 1e-3
# The exceeded bound, and the fit's treatment there: the end of a sentence about a column.
FLAT_BEYOND = "has values beyond the boundary knots of its spline, where the curve is constant"
BEYOND_BOUNDS = "has values outside its declared bounds, but the fit used values clipped to these bounds"


def inputs_beyond(
    inputs: Iterable[str], columns: Sequence[Column], schema: Schema | None, rows: Reader
) -> dict[str, str]:
    """Return the inputs of a formula's columns that pass their knots or bounds in new rows, and which."""
    reasons = {}
    knots = {
        piece.column: (piece.basis.lower, piece.basis.upper)
        for column in columns
        for piece in column.pieces
        if isinstance(piece, Spline)
    }
    for name in inputs:
        declared = None if schema is None or name not in schema else schema[name]
        if not isinstance(declared, Numeric):
            continue
        values = rows.number(name)
        if name in knots and passes(values, *knots[name]):
            reasons[name] = FLAT_BEYOND
        elif not declared.public and passes(values, declared.low, declared.high):
            reasons[name] = BEYOND_BOUNDS
    return reasons


def columns_beyond(
    names: Sequence[str], private: Flags, low: Floats, high: Floats, rows: Floats
) -> dict[str, str]:
    """Return the same of a design matrix of arrays, shape (n, p), where some entries may be nan."""
    reasons = {}
    for place, name in enumerate(names):
        ends = float(low[place]), float(high[place])
        if private[place] and math.isfinite(ends[0]) and passes(rows[:, place], *ends):
            reasons[name] = BEYOND_BOUNDS
    return reasons


def passes(values: Floats, low: float, high: float) -> bool:
    """Return whether some values lie outside, by more than a hair of the range."""
    room = HAIR * (high - low)
    return bool(((values < low - room) | (values > high + room)).any())
