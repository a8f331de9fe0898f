"""OpenedRows: a holder's rows, read and checked once, so that no later query can fail."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from privinf.errors import AlignmentError, ArgumentError, SchemaError
from privinf.mechanisms.labels import coded, label_column
from privinf.mechanisms.rows import (
    BLOCK,
    Rows,
    check_constant,
    gaps_as_nan,
    inputs_outside,
    needed,
    once_complete,
    read_rows,
    unit_codes,
)
from privinf.mechanisms.statistics.places import COPIED_BYTES
from privinf.schema import Design, Factor, Schema
from privinf.schema.reading import Reader, as_frame
from privinf.typing import ColumnLike, Flags, Floats, Label, Missing

Values = TypeVar("Values", Floats, Flags)


class OpenedRows:
    """Rows of one holder, opened against a schema.

    Defects of the data are found here, once, and reported to the holder alone: missing values (where
    they are not imputed), infinities, undeclared levels, texts for numbers, a constant that is not all ones,
    lengths that differ, units with more rows than declared. Columns that cannot be opened are publicly
    unavailable from then on.

    Parameters
    ----------
    rows : Rows
    schema : Schema or Design
        With a `Schema`, or a design made from one, every declared column is opened, defective or not. With a
        design of plain arrays the rows are its matrix and its response.

    Attributes
    ----------
    defects : mapping of str to str
        Defects of the columns that could not be opened: for the holder, never for a reply.
    ordered : bool
        Whether rows have places of their own (see `Rows`).
    lent : bool
        Whether the arrays are the caller's own, who can write into them (see `keep`).
    missing : {"raise", "impute-public", "drop"}
        Handling of missing values. With "drop" the length counts all rows, while `matrix` and `response` have
        those rows alone in which a design lacks nothing.

    Raises
    ------
    SchemaError
        Rows of a design that cannot be opened for it; a response that is not numeric or not finite.
    AlignmentError
        Lengths differ, or a unit has more rows than declared.

    Notes
    -----
    **Privacy.** Holds raw rows. Not pickled and not shown.
    """

    __slots__ = (
        "_answered",
        "_declared",
        "_design",
        "_matrix",
        "_reader",
        "_response",
        "_size",
        "defects",
        "lent",
        "missing",
        "ordered",
    )

    def __init__(self, rows: Rows, schema: Schema | Design) -> None:
        self._design = schema if isinstance(schema, Design) and schema.schema is None else None
        self._matrix: Floats | None = None
        self._reader: Reader | None = None
        self._declared: Schema | None = None
        self.defects: Mapping[str, str] = MappingProxyType({})
        rows = rows.opened(_declared(schema), schema.schema if isinstance(schema, Design) else schema)
        self.ordered = rows.ordered
        self.missing: Missing = rows.missing
        self._size = len(rows)
        self._answered: Flags | None = None  # rows with a response, where it is apart from a table
        if rows.missing == "drop":
            rows = self._without_gaps(rows)
        self._response = None if rows.response is None else _numbers(_imputed(rows, self._design))
        if self._design is not None:
            self._open_arrays(self._design, rows)
        else:
            self._open_columns(schema, rows)
        self.lent = True
        if self._declared is not None and self._declared.unit is not None:
            self.keep()  # no person gets more rows after the count
        if self._response is not None:
            _check_lengths(len(self._response), len(rows))

    def _without_gaps(self, rows: Rows) -> Rows:
        """Return the complete rows of arrays, or all rows of a table.

        For a table with a response apart from it, remember which rows have one.
        """
        if rows.response is not None:
            _check_lengths(len(rows.response), self._size)
        if self._design is not None:
            complete = read_rows(self._design, gaps_as_nan(rows))
            return replace(rows, features=complete.matrix, response=complete.response)
        if rows.response is None:
            return rows
        absent = np.asarray(pd.isna(np.asarray(rows.response)))
        self._answered = ~absent if absent.any() else None
        return replace(rows, response=np.where(absent, 0.0, rows.response))

    def _open_arrays(self, design: Design, rows: Rows) -> None:
        X = rows.features
        ready = isinstance(X, np.ndarray) and X.dtype == np.float64 and X.ndim == 2
        if not (ready and X.shape[1] == len(design.names)) or rows.missing == "impute-public":
            X = design.released(X, missing=once_complete(rows.missing))
        _check_matrix(X, design)
        self._matrix = X
        if self._response is None:
            self._response = design.response_values(rows.features, missing=once_complete(rows.missing))

    def _open_columns(self, schema: Schema | Design, rows: Rows) -> None:
        declared = schema.schema if isinstance(schema, Design) else schema
        assert declared is not None
        unit_codes(declared, rows)
        self._declared = declared
        self._reader = Reader(rows.features, declared, rows.missing)
        self.defects = MappingProxyType(self._reader.defects(declared.columns))
        if isinstance(schema, Design):
            self._reader.open(self._needed(schema))

    def keep(self) -> bool:
        """Keep rows of one's own from now on, where that takes less than `COPIED_BYTES` of arrays.

        Columns of tables are copied whatever their size. Returns whether something was copied: what was made
        of the rows before can be of others. Where arrays are too large they stay `lent`.
        """
        if not self.lent:
            return False
        arrays = [array for array in (self._matrix, self._response) if array is not None]
        if self._reader is not None:
            self._reader.keep()
        elif sum(array.nbytes for array in arrays) >= COPIED_BYTES:
            return False
        if self._matrix is not None:
            self._matrix = np.array(self._matrix)
        if self._response is not None:
            self._response = np.array(self._response)
        self.lent = False
        return True

    @property
    def lends(self) -> bool:
        """Whether blocks of the rows are views of the caller's arrays; those of tables are computed."""
        return self.lent and not (self._matrix is None and self._response is None)

    def check_again(self) -> None:
        """Raise SchemaError if arrays, read where they are, would no longer be opened; copies nothing."""
        try:
            if self._design is not None and self._matrix is not None:
                _check_matrix(self._matrix, self._design)
            if self._response is not None:
                _numbers(self._response)
        except SchemaError as error:
            raise SchemaError(
                f"the rows were changed after they were passed, and are no longer valid. Pass valid rows "
                f"again. The problem: {error}"
            ) from None

    def digest(self, key: bytes) -> str:
        """Return the HMAC-SHA256, under a key, of all declared columns that could be opened, row after row.

        Numbers count as doubles, factors by their levels' texts, so that a table has one digest, whichever
        file and blocks of reading. Rows without places of their own are sorted.

        The rows are kept first (`keep`), so that they stay those of the digest.

        **Privacy.** A function of every row: it stays with the holder, as its key does.
        """
        self.keep()
        named = self._columns()
        order = None if self.ordered else np.lexsort([values for values, _ in named.values()])
        table_hash = hmac.new(key, f"{self._size} rows".encode(), hashlib.sha256)
        for name, (values, levels) in sorted(named.items()):
            column_hash = hmac.new(key, json.dumps([name, levels is None]).encode(), hashlib.sha256)
            for start in range(0, self._size, BLOCK):
                part = slice(start, start + BLOCK)
                block = values[part] if order is None else values[order[part]]
                column_hash.update(
                    (block + 0.0).astype("<f8").tobytes() if levels is None else levels[block].tobytes()
                )
            table_hash.update(column_hash.digest())
        return table_hash.hexdigest()

    def _columns(self) -> dict[str, tuple[Any, Any]]:
        """Return values of each column, with digests of a factor's levels by its codes."""
        columns: dict[str, tuple[Any, Any]] = {}
        if self.missing == "drop":
            columns |= self._gaps()
        if self._response is not None:
            columns["response"] = self._response, None
        if self._reader is None:
            assert self._matrix is not None
            return columns | {f"column {j}": (column, None) for j, column in enumerate(self._matrix.T)}
        assert self._declared is not None
        for name, declared in self._declared.columns.items():
            if name in self.defects:
                continue
            if isinstance(declared, Factor):
                texts = [hashlib.sha256(repr(level).encode()).digest() for level in declared.levels]
                columns[f"column {name}"] = self._reader.codes(name), np.array(texts, dtype="S32")
            else:
                columns[f"column {name}"] = self._reader.number(name), None
        return columns

    def _gaps(self) -> dict[str, tuple[Any, Any]]:
        """Return 1 where a column of a table, or the response beside it, has a value; else nothing."""
        marks: dict[str, Flags | None] = {"response": self._answered}
        if self._reader is not None and self._declared is not None:
            names = [name for name in self._declared.columns if name not in self.defects]
            marks |= {name: self._reader.complete((name,)) for name in names}
        return {
            f"values of {name}": (mark.astype(np.float64), None)
            for name, mark in marks.items()
            if mark is not None
        }

    @property
    def unavailable(self) -> tuple[str, ...]:
        """Declared columns that could not be opened: public."""
        return tuple(self.defects)

    def lacks(self, design: Design) -> tuple[str, ...]:
        """Return the columns that a design names and that are unavailable or not declared: public."""
        if self._reader is None:
            return ()
        declared = design.schema.columns if design.schema is not None else ()
        return tuple(name for name in self._needed(design) if name in self.defects or name not in declared)

    def matrix(self, design: Design) -> Floats:
        """Return the design matrix, shape (n, p), in user units; total for a design that `lacks` nothing."""
        if self._reader is None:
            self._check_design(design)
            assert self._matrix is not None
            return self._matrix
        self._check_columns(design)
        return self._complete(design, design.reading.evaluate(self._reader))

    def response(self, design: Design) -> Floats:
        """Return the response, shape (n,), in user units; total for a design that `lacks` nothing."""
        if self._response is not None:
            return self._complete(design, self._response)
        assert self._reader is not None
        self._check_columns(design)
        return self._complete(design, design.reading.evaluate_response(self._reader))

    def inputs_outside(self, design: Design) -> Flags | None:
        """Return which inputs of derived columns lie outside their bounds: see `rows.inputs_outside`."""
        if self._reader is None:
            return None
        self._check_columns(design)
        marks = inputs_outside(design, self._reader)
        return None if marks is None else self._complete(design, marks)

    def _complete(self, design: Design, values: Values) -> Values:
        """Return the values of those rows in which a design lacks nothing, where the others are dropped."""
        if self.missing != "drop" or self._reader is None:
            return values
        complete = self._reader.complete(self._needed(design))
        if self._answered is not None:
            complete = self._answered if complete is None else complete & self._answered
        return values if complete is None else values[complete]

    def _needed(self, design: Design) -> tuple[str, ...]:
        response = design.outcome.column.inputs if self._response is None else ()
        return tuple(dict.fromkeys((*design.inputs, *response)))

    def _check_columns(self, design: Design) -> None:
        if missing := self.lacks(design):
            raise SchemaError(f"no column {', '.join(map(repr, missing))} is available in the data")

    def _check_design(self, design: Design) -> None:
        if design != self._design:
            raise AlignmentError(
                "the columns or bounds of this design differ from those of the design with which the "
                "rows were opened: open the rows again with this design"
            )

    def __len__(self) -> int:
        return self._size

    def __repr__(self) -> str:
        return f"<OpenedRows: {self._size} rows, not shown>"

    def __reduce__(self) -> Any:
        raise TypeError("raw rows cannot be pickled: pickle the release or the result instead")


def _check_lengths(responses: int, rows: int) -> None:
    if responses != rows:
        raise AlignmentError(
            f"the response has {responses} rows and the features have {rows}: pass the same rows in both"
        )


def _check_matrix(X: Floats, design: Design) -> None:
    for start in range(0, len(X), 4096):
        if not np.isfinite(X[start : start + 4096]).all():
            raise SchemaError("the features have missing or infinite values")
    check_constant(design, X)


def _declared(schema: Schema | Design) -> list[str]:
    """Return the columns of a table that may be queried."""
    declared = schema.schema if isinstance(schema, Design) else schema
    design_columns = needed(schema) if isinstance(schema, Design) else []
    if declared is None:
        return design_columns
    return list(
        dict.fromkeys(
            (*declared.columns, *([] if declared.unit is None else [declared.unit]), *design_columns)
        )
    )


def split(rows: Rows, labels: ColumnLike, design: Design) -> dict[Label, Rows]:
    """Return the rows of every label, in the order in which the labels first come.

    Parameters
    ----------
    rows : Rows
    design : Design
        Its columns are read of a table that is not in memory.
    labels : array_like of shape (n,), or str
        A text names a column of a table.

    Raises
    ------
    ArgumentError
        There is not one label a row.
    SchemaError
        The table has no such column; a label is missing, or they are of several types.
    AlignmentError
        A unit has more rows than declared, all labels together.
    """
    rows = rows.opened([*needed(design), *([labels] if isinstance(labels, str) else [])], design.schema)
    unit_codes(design.schema, rows)
    features: Any = rows.features
    if isinstance(labels, str):
        features = as_frame(features)
        if labels not in features:
            raise SchemaError(f"sites={labels!r} is not the name of a column of the data")
        labels = features[labels]
    parts = {}
    for label, at in _groups(label_column(labels), len(features)):
        part = features.iloc[at] if isinstance(features, pd.DataFrame) else features[at]
        parts[label] = replace(
            rows, features=part, response=None if rows.response is None else rows.response[at]
        )
    return parts


def _groups(labels: pd.Series[Any], rows: int) -> Iterator[tuple[Any, Any]]:
    """Yield the rows of every label, as slices where they are adjacent: all rows, each once."""
    if len(labels) != rows:
        raise ArgumentError(f"sites= must hold one label for each of the {rows} rows")
    codes = coded(labels, "sites=")
    if (codes < 0).any():
        raise SchemaError("sites= has missing values: every row needs the label of its site")
    order = np.argsort(codes, kind="stable")
    for at in np.split(order, np.cumsum(np.bincount(codes))[:-1]):
        label = labels.iloc[at[0]]
        together = at[-1] - at[0] + 1 == len(at)
        value = label.item() if hasattr(label, "item") else label
        yield value, slice(int(at[0]), int(at[-1]) + 1) if together else at


def _imputed(rows: Rows, design: Design | None) -> Any:
    """Return the response, with the middle of its bounds for missing values if the holder imputes."""
    response = rows.response
    if rows.missing != "impute-public" or design is None or design.outcome.bounds is None:
        return response
    values = np.asarray(response)
    if values.dtype.kind != "f":
        return response
    return np.where(np.isnan(values), design.outcome.bounds.middle, values)


def _numbers(response: Any) -> Floats:
    try:
        values = np.asarray(response, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        values = np.full((1, 1), np.nan)
    if values.ndim != 1 or not np.isfinite(values).all():
        raise SchemaError("the response must be one numeric column without missing or infinite values")
    return values
