"""The columns of a plain matrix: names, bounds by place or by name, and which of them are public."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from privinf.errors import ArgumentError, SchemaError, SensitivityError
from privinf.schema.arrays import CONSTANT, NO_BOUNDS
from privinf.schema.declared import Numeric, checked_names
from privinf.schema.intervals import Interval
from privinf.schema.terms import Column, Plain, Response
from privinf.typing import Bounds, Flags, Floats, Pair, Pairs
from privinf.validation import counted, shown_name

if TYPE_CHECKING:
    import pandas as pd

UNBOUNDED = (-math.inf, math.inf)  # bounds of a column for which none are given


class MatrixColumns(TypedDict):
    """Columns of a regression, and the response, by names and bounds of a matrix."""

    columns: tuple[Column, ...]
    private: Flags
    constant: int | None
    low: Floats
    high: Floats
    outcome: Response


def matrix_columns(
    names: Sequence[str],
    *,
    bounds: Pairs | None,
    radius: float | None,
    public: Iterable[str],
    constant: int | None,
    response: str,
    y_bounds: Pair | None,
) -> MatrixColumns:
    """Return the columns of a matrix, whose arguments and errors are those of `Design.from_arrays`."""
    listed = checked_names(names)
    if not isinstance(response, str) or not response:
        raise SchemaError("response= must be the name of the response, a string")
    private = [not flag for flag in public_flags(listed, public)]
    if constant is None and CONSTANT in listed and not private[listed.index(CONSTANT)]:
        constant = listed.index(CONSTANT)
    low, high = np.array(aligned_bounds(listed, private, bounds, radius)).T
    limits = None if y_bounds is None else checked_pair(response, y_bounds)
    return MatrixColumns(
        columns=tuple(Column(name, (Plain(name),)) for name in listed),
        private=np.array(private),
        constant=constant,
        low=low,
        high=high,
        outcome=Response(Column(response, (Plain(response),)), limits is None, limits),
    )


def public_flags(names: Sequence[str], public: Iterable[str]) -> list[bool]:
    """Return for each name whether `public` declares it."""
    if isinstance(public, str):
        raise SchemaError("public= must be a list of column names, not one string")
    declared = set(public)
    if unknown := sorted(declared - set(names), key=str):
        raise SchemaError(
            f"public= names column {shown_name(unknown[0])}, which is not among the columns "
            f"{', '.join(names)}"
        )
    return [name in declared for name in names]


def aligned_bounds(
    names: Sequence[str], private: Sequence[bool], bounds: Bounds, radius: float | None
) -> list[tuple[float, float]]:
    """Return (low, high) of every column, infinite where there are no bounds.

    `bounds` is a sequence of pairs, one per private column or one per column, or a mapping by name.

    Raises
    ------
    SensitivityError
        If a private column has neither bounds nor a radius.
    SchemaError
        If the number of pairs fits nothing, a name is unknown, or a pair is not a valid pair of bounds.
    """
    hidden = [name for name, flag in zip(names, private, strict=True) if flag]
    if isinstance(bounds, str):
        raise ArgumentError(
            "bounds= must be a list of pairs (low, high); bounds='data' is only accepted by "
            "models, such as OLS"
        )
    if bounds is None:
        if hidden and radius is None:
            raise SensitivityError(NO_BOUNDS.format(hidden[0]))
        return [UNBOUNDED] * len(names)
    by_name = _by_name(names, hidden, bounds)
    if absent := [name for name in hidden if name not in by_name]:
        raise SensitivityError(f"column {absent[0]!r} has no public bounds: add it to bounds=")
    pairs = {name: checked_pair(name, pair) for name, pair in by_name.items()}
    return [(pairs[name].low, pairs[name].high) if name in pairs else UNBOUNDED for name in names]


def _by_name(names: Sequence[str], hidden: Sequence[str], bounds: Any) -> dict[str, Any]:
    if isinstance(bounds, Mapping):
        if unknown := [name for name in bounds if name not in names]:
            raise SchemaError(
                f"bounds= names column {shown_name(unknown[0])}, which is not among the columns "
                f"{', '.join(names)}"
            )
        return dict(bounds)
    try:
        pairs = list(bounds)
    except TypeError:
        raise SchemaError(
            "bounds= must be a list of pairs (low, high), or a dict from column names to such pairs"
        ) from None
    for aligned in (hidden, names):
        if len(pairs) == len(aligned):
            return dict(zip(aligned, pairs, strict=True))
    needed = f"each column ({counted(len(names), 'pair')})"
    if len(hidden) != len(names):
        needed += f", or for each private column only ({counted(len(hidden), 'pair')})"
    raise SchemaError(f"bounds= has length {len(pairs)}: pass one pair (low, high) for {needed}")


def checked_pair(name: str, pair: Pair) -> Interval:
    """Return the bounds of column `name`.

    Raises SchemaError if `pair` is not two finite increasing numbers.
    """
    try:
        low, high = pair
    except (TypeError, ValueError, OverflowError):
        raise SchemaError(
            f"column {shown_name(name)}: its bounds must be a pair of numbers (low, high)"
        ) from None
    try:
        return Numeric(low, high).interval
    except SchemaError as error:
        raise SchemaError(f"column {shown_name(name)}: {error}") from None


def stand_ins(names: Sequence[str], private: Flags, low: Floats, high: Floats) -> dict[str, float]:
    """Return substitutes for missing values of a matrix: middles of bounds, or 0, the center of the ball."""
    values = {}
    for name, hidden, lower, upper in zip(names, private, low, high, strict=True):
        if math.isfinite(lower) and math.isfinite(upper):
            values[name] = Interval(float(lower), float(upper)).middle
        elif hidden:
            values[name] = 0.0
    return values


def simulated_rows(
    names: Sequence[str],
    low: Floats,
    high: Floats,
    *,
    reach: float,
    constant: int | None,
    response: str,
    y_bounds: Interval,
) -> pd.DataFrame:
    """Return three simulated public rows of a matrix and its response: low, middle and high of each.

    `reach` stands in for bounds that are infinite.
    """
    import pandas as pd

    lower = np.where(np.isfinite(low), low, -reach)
    upper = np.where(np.isfinite(high), high, reach)
    values = np.array([lower, 0.5 * lower + 0.5 * upper, upper])
    if constant is not None:
        values[:, constant] = 1.0
    frame = pd.DataFrame(values, columns=list(names))
    if response not in frame:
        frame[response] = [y_bounds.low, y_bounds.middle, y_bounds.high]
    return frame
