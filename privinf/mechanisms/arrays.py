"""The whole table of a multi-party model, as given in arrays, and which party holds which of its columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from privinf.errors import ArgumentError, SchemaError, SensitivityError
from privinf.mechanisms.rows import data_bounds
from privinf.schema.arrays import CONSTANT
from privinf.typing import Bounds, Column, Columns, Pair
from privinf.validation import check_array

PartyColumns = Mapping[str, Sequence[int | str]]


def array_table(y: Column, X: Columns) -> tuple[pd.DataFrame, str]:
    """Return features and response in one table, and the response's name."""
    frame = X if isinstance(X, pd.DataFrame) else None
    if frame is None:
        array = check_array(X, "X", ndim=np.ndim(X), finite=False)
        array = array[:, None] if array.ndim == 1 else array
        if array.ndim != 2:
            raise ArgumentError(f"X must have two dimensions, got shape {array.shape}")
        frame = pd.DataFrame(array, columns=[f"x{j + 1}" for j in range(array.shape[1])])
    if any(not isinstance(name, str) for name in frame.columns):
        raise SchemaError("X has column labels that are not strings: rename them")
    if CONSTANT in frame.columns:
        raise SchemaError(f"X has a column {CONSTANT!r}: leave it out, intercept=True adds the constant")
    response = np.asarray(y)
    response = response[:, 0] if response.ndim == 2 and response.shape[1] == 1 else response
    if response.ndim != 1 or len(response) != len(frame):
        raise ArgumentError(f"y of shape {np.shape(y)} does not fit X of shape {frame.shape}")
    label = str(y.name) if isinstance(y, pd.Series) and y.name is not None else "y"
    if label in frame.columns:
        raise SchemaError(f"X has a column called {label!r}, as the response: rename one of them")
    return frame.reset_index(drop=True).assign(**{label: response}), label


def party_columns(items: Sequence[int | str], names: list[str], label: str) -> list[str]:
    """Return the names of one party's columns."""
    if isinstance(items, (str, int)):
        raise ArgumentError("parties must map each name to a list of columns")
    found = []
    for item in items:
        if isinstance(item, (int, np.integer)) and not isinstance(item, bool):
            if not 0 <= item < len(names) - 1:
                raise ArgumentError(f"column {int(item)} is not among the {len(names) - 1} columns of X")
            found.append(names[int(item)])
        elif not isinstance(item, str):
            raise SchemaError(f"parties name columns by texts or positions, got {type(item).__name__}")
        elif item in names:
            found.append(str(item))
        elif item == "y":
            found.append(label)
        else:
            raise SchemaError(f"party column {item!r} is not among: {', '.join(names)}")
    return found


def check_cover(assigned: Mapping[str, Sequence[str]], names: Sequence[str] | None) -> None:
    """Refuse columns that belong to no party, or to two."""
    if not assigned:
        raise ArgumentError("parties is empty: say which party holds which columns")
    seen: dict[str, str] = {}
    for party, columns in assigned.items():
        if not columns:
            raise ArgumentError(f"party {party!r} has no column")
        for column in columns:
            if column in seen:
                raise SchemaError(f"column {column!r} belongs to party {seen[column]!r} and to {party!r}")
            seen[column] = party
    left = [name for name in names or () if name not in seen]
    if left:
        raise SchemaError(f"column {left[0]!r} belongs to no party")


def column_limits(
    table: pd.DataFrame, label: str, bounds: Bounds, y_bounds: Pair | str | None
) -> dict[str, tuple[float, float]]:
    """Return the public bounds of every column."""
    names = [name for name in table.columns if name != label]
    if isinstance(bounds, str):
        bounds = data_bounds(table, list(table.columns), names, bounds, "bounds")
    if isinstance(y_bounds, str):
        y_bounds = data_bounds(table, list(table.columns), [label], y_bounds, "y_bounds")[label]
    if bounds is None or y_bounds is None:
        what = "bounds=[(low, high), ...]" if bounds is None else "y_bounds=(low, high)"
        raise SensitivityError(
            f'no public bounds: pass {what}, or write "data" to take them from the rows (a leak that no '
            "claim covers)"
        )
    if not isinstance(bounds, Mapping):
        if len(bounds) != len(names):
            raise SchemaError(f"bounds has {len(bounds)} pairs for {len(names)} columns of X")
        bounds = dict(zip(names, bounds, strict=True))
    absent = [name for name in names if name not in bounds]
    if absent:
        raise SensitivityError(f"no public bounds for {absent[0]!r}: add it to bounds=")
    return {**{name: tuple(bounds[name]) for name in names}, label: tuple(y_bounds)}
