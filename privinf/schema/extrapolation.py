"""Columns of new rows with values outside the range of the fit, by declarations alone."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from privinf.schema.declared import DAYS, Declaration, Numeric, as_dates
from privinf.schema.reading import Reader
from privinf.schema.table import Schema
from privinf.schema.terms import Column, Spline
from privinf.typing import Flags, Floats

# How far a value may pass a bound unmentioned, in ranges: numerical derivatives step so far.
HAIR = 1e-3
# The exceeded bound, with the number of rows, and the fit's treatment there: the end of a sentence about a
# column.
BELOW = "is below its {} {} in {:,} of {:,} new rows"
ABOVE = "is above its {} {} in {:,} of {:,} new rows"
DECLARED = "declared bound", "and the fit used values clipped to its bounds"
KNOT = "boundary knot", "where the curve is constant"


def inputs_beyond(
    inputs: Iterable[str], columns: Sequence[Column], schema: Schema | None, rows: Reader
) -> dict[str, str]:
    """Return the inputs of a formula's columns that pass their knots or bounds in new rows, and which."""
    reasons: dict[str, str] = {}
    pieces = [piece for column in columns for piece in column.pieces]
    knots = {
        piece.column: (piece.basis.lower, piece.basis.upper) for piece in pieces if isinstance(piece, Spline)
    }
    for name in inputs:
        declared = None if schema is None or name not in schema else schema[name]
        if not isinstance(declared, Numeric):  # levels that are not declared are refused
            continue
        is_date = declared.unit == DAYS
        text = exceeded(rows.number(name), *knots[name], KNOT, is_date) if name in knots else ""
        text = text or beyond_declared(rows.number(name), declared)
        reasons |= {name: text} if text else {}
    return reasons


def beyond_declared(values: Floats, declared: Declaration) -> str:
    """Return which declared bound of a column some values pass; empty for none, and for public columns."""
    if declared.categorical or declared.public:
        return ""
    bounds = declared.interval
    return exceeded(values, bounds.low, bounds.high, DECLARED, declared.unit == DAYS)


def columns_beyond(
    names: Sequence[str], private: Flags, low: Floats, high: Floats, rows: Floats
) -> dict[str, str]:
    """Return the same of a design matrix of arrays, shape (n, p), where some entries may be nan."""
    reasons = {}
    for place, name in enumerate(names):
        ends = float(low[place]), float(high[place])
        if private[place] and math.isfinite(ends[0]) and (text := exceeded(rows[:, place], *ends, DECLARED)):
            reasons[name] = text
    return reasons


def exceeded(values: Floats, low: float, high: float, limit: tuple[str, str], is_date: bool = False) -> str:
    """Return which end is passed, by more than a hair of the range, and by how many values; or nothing."""
    room = HAIR * (high - low)
    counts = np.count_nonzero(values < low - room), np.count_nonzero(values > high + room)
    name, treatment = limit
    texts = [
        text.format(name, _shown(end, is_date), count, len(values))
        for text, end, count in zip((BELOW, ABOVE), (low, high), counts, strict=True)
        if count
    ]
    return f"{' and '.join(texts)}, {treatment}" if texts else ""


def _shown(end: float, is_date: bool) -> str:
    return str(as_dates(np.array([end]))[0].astype("datetime64[D]")) if is_date else f"{end:.10g}"
