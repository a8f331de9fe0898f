"""Rows given as arrays: pairs (y, X) and whole tables, read once; the columns of parties."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from privinf.error_boundary import warn
from privinf.errors import (
    ArgumentError,
    DataDependentBoundsWarning,
    PrivinfError,
    SchemaError,
    SensitivityError,
)
from privinf.mechanisms.rows import Rows
from privinf.mechanisms.sources import NO_ROWS
from privinf.schema.arrays import (
    CONSTANT,
    PUBLIC_MARK,
    add_constant,
    check_same_labels,
    labelled,
    plain_numbers,
)
from privinf.typing import (
    Bounds,
    ColumnLike,
    ColumnsLike,
    Floats,
    Missing,
    Pair,
    Pairs,
    SitePairs,
    Table,
)
from privinf.validation import check_array, shown

# ---- pairs


@dataclass(frozen=True, slots=True, repr=False)
class ArrayRows:
    """One pair (y, X): the rows, held and passed on, and their public facts.

    Attributes
    ----------
    rows : Rows
    names : tuple of str
        Columns of X; x1, x2, ... where they have no labels.
    label : str
        The response: the name of a Series, else y.
    marked : tuple of str
        Columns that `privinf.add_constant` has declared public.
    """

    rows: Rows
    names: tuple[str, ...]
    label: str
    marked: tuple[str, ...]


def array_rows(
    y: ColumnLike, X: ColumnsLike, *, missing: Missing = "raise", numeric: bool = False
) -> ArrayRows:
    """Return one pair (y, X) as rows.

    Parameters
    ----------
    y, X : array_like, Series or DataFrame, of polars or Arrow too
    missing : {"raise", "impute-public"}
    numeric : bool
        For sites: floats, at least one row, finite where `missing` says so. Otherwise the mechanism that
        reads them raises the error.

    Raises
    ------
    ArgumentError, SchemaError, AlignmentError
        Shapes or labels of rows do not fit, or the label of a column is not a string; no message holds a
        value.
    """
    finite = numeric and missing == "raise"
    check_same_labels(X, y)
    table: Any = X.to_frame() if isinstance(X, pd.Series) else labelled(X)
    if isinstance(table, pd.DataFrame):
        names = _labels(table)
        marked = tuple(table.attrs.get(PUBLIC_MARK, ()))
        features: Any = table
        if numeric:
            plain = table
            if not all(isinstance(dtype, np.dtype) for dtype in table.dtypes):
                columns = range(len(names))
                plain = pd.DataFrame({place: plain_numbers(table.iloc[:, place]) for place in columns})
            features = check_array(plain.to_numpy(), "X", ndim=2, finite=finite, copy=False)
    else:
        features = _matrix(table, finite=finite)
        marked = ()
        names = tuple(f"x{j + 1}" for j in range(features.shape[1]))
    response = _column(y)
    if numeric:
        response = check_array(response, "y", ndim=1, finite=finite)
    if len(response) != len(features):
        raise ArgumentError(
            f"y has {len(response)} rows but X has {len(features)}: pass one response for every row of X"
        )
    if numeric and not len(response):
        raise ArgumentError(NO_ROWS)
    return ArrayRows(Rows(features, response, missing), names, _name(y), marked)


def rows_by_site(sites: SitePairs, *, missing: Missing = "raise") -> tuple[dict[Any, Rows], tuple[str, ...]]:
    """Return the rows of one pair (y, X) a site by label, numbered where they have none, and their columns.

    Raises
    ------
    ArgumentError, SchemaError
        There is no site, one has no rows or wrong ones, or they differ in their columns; the message names
        the site and shows no value.
    """
    if not isinstance(sites, (Mapping, Sequence)) or isinstance(sites, (str, bytes)) or not len(sites):
        raise ArgumentError("sites= is empty: pass at least one pair (y, X)")
    pairs = sites.items() if isinstance(sites, Mapping) else enumerate(sites)
    parts: dict[Any, Rows] = {}
    columns: dict[str, tuple[str, ...]] = {}
    for label, pair in pairs:
        name = str(label)
        if name in columns:
            raise ArgumentError(f"two sites are called {name!r}: give every site its own name")
        with _naming(name):
            if not isinstance(pair, (tuple, list)) or len(pair) != 2:
                raise ArgumentError("every site must be a pair (y, X)")
            site = site_rows(*pair, missing=missing)
        parts[label] = site.rows
        columns[name] = site.names
    first = next(iter(columns))
    for name, names in columns.items():
        if names != columns[first]:
            raise ArgumentError(
                f"site {name!r} has other columns than site {first!r}: all sites need the same columns in "
                "the same order"
            )
    return parts, columns[first]


def site_rows(y: ColumnLike, X: ColumnsLike, *, missing: Missing = "raise") -> ArrayRows:
    """Return one pair (y, X) as rows of a site, whose one public column is the constant, ``const``."""
    arrays = array_rows(y, X, missing=missing, numeric=True)
    if set(arrays.marked) - {CONSTANT}:
        raise ArgumentError(
            "a federation made from arrays supports only one public column, the constant 'const': "
            "declare the other columns private"
        )
    if CONSTANT in arrays.names:
        ones = arrays.rows.features[:, arrays.names.index(CONSTANT)]
        if not (ones == 1.0).all():
            raise SchemaError(
                f"column {CONSTANT!r} is reserved for the constant, but not all of its values are 1: "
                "set it to 1 in every row, or rename it"
            )
    return arrays


def own_bounds(
    arrays: ArrayRows, bounds: Bounds, y_bounds: Pair | str | None, private: Sequence[str]
) -> tuple[Pairs | None, Pair | None]:
    """Return bounds as pairs: the rows' own for those who wrote "data" (see `data_bounds`)."""
    if isinstance(bounds, str):
        bounds = data_bounds(arrays.rows.features, list(arrays.names), list(private), bounds, "bounds")
    if isinstance(y_bounds, str):
        response = arrays.rows.response[:, None]
        y_bounds = data_bounds(response, ["y"], ["y"], y_bounds, "y_bounds")["y"]
    return bounds, y_bounds


def data_bounds(
    table: Table, names: list[str], columns: list[str], request: str, argument: str
) -> dict[str, tuple[float, float]]:
    """Return the rows' own (min, max) by column, for callers who request it by name.

    Raises
    ------
    ArgumentError
        `request` is not the word "data".
    SensitivityError
        A column is constant: its bounds would be equal.
    SchemaError
        A column is not numeric.

    Notes
    -----
    **Privacy.** A leak: extremes are rows' values. A warning and every ledger line state it.
    """
    if request != "data":
        raise ArgumentError(
            f"{argument}={shown(request)} is not valid: pass pairs (low, high) of public numbers, "
            'or the text "data" to compute bounds from the rows'
        )
    warn(
        (
            f'{argument}="data": bounds are computed from the rows. Such bounds can reveal extreme '
            "values, and the privacy guarantee does not cover this leak"
        ),
        DataDependentBoundsWarning,
    )
    frame = table if isinstance(table, pd.DataFrame) else pd.DataFrame(np.asarray(table), columns=names)
    bounds = {}
    for name in columns:
        try:
            values = np.asarray(frame[name], dtype=np.float64)
        except (TypeError, ValueError, OverflowError):  # their texts hold values
            raise SchemaError(
                f"column {name!r} is not numeric, so its bounds cannot be computed from its values: "
                "convert it to numbers"
            ) from None
        finite = values[np.isfinite(values)]
        low = float(finite.min(initial=np.inf))
        high = float(finite.max(initial=-np.inf))
        if not low < high:
            raise SensitivityError(
                f"column {name!r} is constant, so its bounds cannot be computed from its values: pass "
                "public bounds for it"
            )
        bounds[name] = (low, high)
    return bounds


def _matrix(X: Any, *, finite: bool) -> Floats:
    features = check_array(X, "X", ndim=np.ndim(X), finite=finite, copy=False)
    features = features[:, None] if features.ndim == 1 else features
    if features.ndim != 2:
        raise ArgumentError(f"X must have two dimensions, got shape {features.shape}")
    return features


def _labels(table: pd.DataFrame) -> tuple[str, ...]:
    if any(not isinstance(name, str) for name in table.columns):
        raise SchemaError("X has column labels that are not strings: rename these columns")
    return tuple(table.columns)


def _column(y: Any) -> Any:
    array = np.asarray(plain_numbers(y))
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise ArgumentError(f"y must have one dimension, got shape {array.shape}")
    return array


def _name(y: Any) -> str:
    name = getattr(y, "name", None)
    return "y" if name is None or name == "" else str(name)


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Put the site's name before the message of an error, which holds no value."""
    try:
        yield
    except PrivinfError as error:
        raise type(error)(f"site {name!r}: {error}") from None


# ---- the whole table of a multi-party model, and which party holds which of its columns


def array_table(y: ColumnLike, X: ColumnsLike, *, missing: Missing = "raise") -> tuple[Rows, list[str], str]:
    """Return features and response as the rows of one table, its columns, and the response's name."""
    arrays = array_rows(y, X, missing=missing)
    if CONSTANT in arrays.names:
        raise SchemaError(
            f"X has a column named {CONSTANT!r}: remove it, since intercept=True adds the constant"
        )
    if arrays.label in arrays.names:
        raise SchemaError(
            f"X has a column with the name of the response, {arrays.label!r}: rename one of them"
        )
    features = arrays.rows.features
    frame = features if isinstance(features, pd.DataFrame) else pd.DataFrame(features, columns=arrays.names)
    table = frame.reset_index(drop=True).assign(**{arrays.label: arrays.rows.response})
    return Rows(table, None, missing), list(table.columns), arrays.label


def party_columns(items: Sequence[int | str], names: list[str], label: str) -> list[str]:
    """Return the names of one party's columns."""
    if isinstance(items, (str, int)):
        raise ArgumentError("parties= must map the name of each party to a list of columns")
    columns = []
    for item in items:
        if isinstance(item, (int, np.integer)) and not isinstance(item, bool):
            if not 0 <= item < len(names) - 1:
                raise ArgumentError(
                    f"column {int(item)} in parties= does not exist: X has {len(names) - 1} columns, "
                    "counted from 0"
                )
            columns.append(names[int(item)])
        elif not isinstance(item, str):
            raise SchemaError(
                "parties= must give columns by name or by number (0 for the first), got "
                f"{type(item).__name__}"
            )
        elif item in names:
            columns.append(str(item))
        elif item == "y":
            columns.append(label)
        else:
            raise SchemaError(f"column {item!r} in parties= does not exist; columns are: {', '.join(names)}")
    return columns


def check_cover(assigned: Mapping[str, Sequence[str]], names: Sequence[str] | None) -> None:
    """Refuse columns that belong to no party, or to two."""
    if not assigned:
        raise ArgumentError("parties= is empty: pass a mapping from each party's name to its columns")
    owners: dict[str, str] = {}
    for party, columns in assigned.items():
        if not columns:
            raise ArgumentError(
                f"party {party!r} has no columns: give it at least one column, or remove it from parties="
            )
        for column in columns:
            if column in owners:
                raise SchemaError(
                    f"column {column!r} belongs to party {owners[column]!r} and to {party!r}: every "
                    "column must belong to one party"
                )
            owners[column] = party
    unassigned = [name for name in names or () if name not in owners]
    if unassigned:
        raise SchemaError(f"column {unassigned[0]!r} belongs to no party: add it to a party in parties=")


def column_limits(
    table: Rows, names: Sequence[str], label: str, bounds: Bounds, y_bounds: Pair | str | None
) -> dict[str, Pair]:
    """Return the public bounds of every column: of `names`, and of the response, `label`."""
    if isinstance(bounds, str):
        bounds = data_bounds(table.opened().features, [], list(names), bounds, "bounds")
    if isinstance(y_bounds, str):
        y_bounds = data_bounds(table.opened().features, [], [label], y_bounds, "y_bounds")[label]
    if bounds is None or y_bounds is None:
        name, pairs = ("bounds", "[(low, high), ...]") if bounds is None else ("y_bounds", "(low, high)")
        raise SensitivityError(
            f'no public bounds are declared: pass {name}={pairs}. With {name}="data", bounds are computed '
            "from the rows, but the privacy guarantee does not cover what they reveal about the rows"
        )
    if not isinstance(bounds, Mapping):
        if len(bounds) != len(names):
            raise SchemaError(
                f"bounds= has {len(bounds)} pairs for {len(names)} columns of X: pass one pair (low, "
                "high) for each column"
            )
        bounds = dict(zip(names, bounds, strict=True))
    absent = [name for name in names if name not in bounds]
    if absent:
        raise SensitivityError(f"no public bounds for {absent[0]!r} are declared: add it to bounds=")
    return {**{name: _pair(bounds[name]) for name in names}, label: _pair(y_bounds)}


def _pair(pair: Pair) -> Pair:
    low, high = pair
    return low, high


# ---- times until an event

NO_STATUS = (
    "status must be 1 where the time ended with the event, and 0 where it was censored; replace other "
    "codes, such as the 1 and 2 of R"
)


def status_numbers(status: ColumnLike) -> Floats:
    """Return an array of statuses as numbers, shape (n,), nan where one is missing.

    Raises
    ------
    SchemaError
        There are other values than 0 and 1: clipped to these bounds, the 1 and 2 of R would all be events.
        The message holds no value.
    """
    try:
        numbers = np.asarray(plain_numbers(labelled(status))).ravel().astype(np.float64)
    except (TypeError, ValueError):
        raise SchemaError(NO_STATUS) from None
    if not (np.isnan(numbers) | np.isin(numbers, (0.0, 1.0))).all():
        raise SchemaError(NO_STATUS)
    return numbers


def with_status(X: ColumnsLike, status: ColumnLike | str, name: str) -> tuple[pd.DataFrame, str]:
    """Return columns with the constant and the status of each row, and the name of the status.

    `status` is an array, which becomes the column `name`, or the name of a column of X.

    Raises
    ------
    ArgumentError
        The status has another length, or X has a column of that name already.
    SchemaError
        The status has other values than 0 and 1.
    """
    table = add_constant(X)
    if isinstance(status, str):
        if status in table.columns:
            status_numbers(table[status])
        return table, status
    if name in table.columns:
        raise ArgumentError(
            f"X has a column {name!r}, and status= is an array: pass status={name!r}, or rename the column"
        )
    values = status_numbers(status)
    if len(values) != len(table):
        raise ArgumentError(
            f"status= has {len(values)} values, and X has {len(table)} rows: pass one status per row"
        )
    table[name] = values
    return table, name


def sites_with_constant(sites: SitePairs) -> dict[Any, tuple[ColumnLike, pd.DataFrame]]:
    """Return the pairs (time, X) of sites, every X with the constant.

    Raises
    ------
    ArgumentError
        There is no site, or one is not a pair.
    """
    if not isinstance(sites, (Mapping, Sequence)) or isinstance(sites, (str, bytes)) or not len(sites):
        raise ArgumentError("sites= is empty: pass at least one pair (time, X)")
    pairs = sites.items() if isinstance(sites, Mapping) else enumerate(sites)
    tables = {}
    for label, pair in pairs:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise ArgumentError("every site must be a pair (time, X)")
        tables[label] = (pair[0], add_constant(pair[1]))
    return tables


def column_names(table: pd.DataFrame) -> list[str]:
    """Return the names of a table's columns."""
    return [str(column) for column in table.columns]
