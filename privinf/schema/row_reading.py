"""How a design reads raw rows: the columns of a table become the design matrix and the response."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np

from privinf.errors import ArgumentError, SchemaError
from privinf.schema.intervals import Interval
from privinf.schema.matrix_columns import stand_ins
from privinf.schema.reading import Reader
from privinf.schema.table import Schema
from privinf.schema.terms import Column, Response, inputs_of
from privinf.typing import Flags, Floats, Missing, Table


@dataclass(frozen=True, slots=True, kw_only=True)
class RowReading:
    """The columns and the response of a design, and the declarations by which their values are computed.

    Attributes
    ----------
    schema : Schema or None
        None for arrays, whose columns are numbers.
    columns : tuple of Column
        Columns of the design, p of them.
    private : ndarray of bool, shape (p,)
        Columns that are computed inside their bounds.
    low, high : ndarray, shape (p,)
        Bounds in user units.
    outcome : Response
        The response and its bounds.

    Notes
    -----
    **Privacy.** Public. Its methods read raw rows and return them transformed: call them only where rows may
    be seen. Errors name columns, never values.
    """

    schema: Schema | None
    columns: tuple[Column, ...]
    private: Flags
    low: Floats
    high: Floats
    outcome: Response

    def open(self, table: Any, missing: Missing, seen_levels: set[str] | None = None) -> Reader:
        """Return a reader of a table, or of an array that is the matrix; no column is read yet."""
        if isinstance(table, np.ndarray):
            if self.schema is not None or table.ndim != 2 or table.shape[1] != len(self.columns):
                raise SchemaError(
                    f"an array of shape {table.shape} does not fit the regression; pass a table "
                    f"with these columns instead: {', '.join(map(repr, inputs_of(self.columns)))}"
                )
            table = {column.name: values for column, values in zip(self.columns, table.T, strict=True)}
        middles = None
        if self.schema is None:
            middles = stand_ins([column.name for column in self.columns], self.private, self.low, self.high)
        return Reader(
            table=table, schema=self.schema, missing=missing, middles=middles, seen_levels=seen_levels
        )

    def features(
        self, table: Table, missing: Missing, *, extrapolate: bool, seen_levels: set[str] | None
    ) -> Floats:
        """Return the design matrix of a table, shape (n, p); arguments and errors of `Design.released`."""
        _refuse_dropping(missing)
        if self.is_matrix(table) and np.isfinite(table).all():
            return np.array(table)
        inputs = inputs_of(self.columns)
        if extrapolate and seen_levels is None:  # of new rows, all can have a level that counts as `other`
            self.open(table, missing).check_types(inputs)
            seen_levels = set()
        reader = self.open(table, missing, seen_levels)
        reader.open(inputs)
        return self.evaluate(reader, extrapolate=extrapolate)

    def evaluate(self, reader: Reader, *, extrapolate: bool = False) -> Floats:
        """Return the design matrix of opened columns, shape (n, p), in user units.

        Without `extrapolate` no row of opened columns can make it fail, warn or leave the finite numbers, and
        derived private columns end up inside their bounds. With it, SchemaError where a derived column is
        not finite in some of the new rows.
        """
        # Column by column in memory, as its columns are written and read.
        result = np.empty((len(reader), len(self.columns)), order="F")
        for position, column in enumerate(self.columns):
            inside = None
            if self.private[position] and not extrapolate and not column.plain:
                inside = Interval(self.low[position], self.high[position])
            result[:, position] = column.values_inside(reader, inside, strict=extrapolate)
        return result

    def is_matrix(self, table: Table) -> TypeGuard[Floats]:
        """Return whether a table is the design matrix already: floats, and a design made for arrays."""
        if self.schema is not None or not isinstance(table, np.ndarray) or table.dtype != np.float64:
            return False
        return table.ndim == 2 and table.shape[1] == len(self.columns)

    def response(self, table: Table, missing: Missing, *, seen_levels: set[str] | None) -> Floats:
        """Return the response of a table; arguments and errors of `Design.response_values`."""
        _refuse_dropping(missing)
        name = self.outcome.column.name
        if isinstance(table, np.ndarray) and table.ndim == 1 and self.schema is None:
            table = {name: table}
        bounds = self.outcome.bounds
        middles = {} if bounds is None else {name: bounds.middle}
        reader = Reader(
            table=table, schema=self.schema, missing=missing, middles=middles, seen_levels=seen_levels
        )
        reader.open(self.outcome.column.inputs)
        return self.evaluate_response(reader)

    def evaluate_response(self, reader: Reader) -> Floats:
        """Return the response of opened columns, in user units; finite where it is protected.

        SchemaError where a response that is sent in clear is not finite in some rows, and its columns have
        no bounds.
        """
        column = self.outcome.column
        declared = self.schema is not None and all(name in self.schema for name in column.inputs)
        return np.array(column.values_inside(reader, self.outcome.bounds, strict=not declared))


def _refuse_dropping(missing: Missing) -> None:
    """Raise ArgumentError: columns are computed for all rows, and only sums of them drop rows."""
    if missing == "drop":
        raise ArgumentError(
            "missing='drop' is for sums over rows, and columns of rows are computed for every row: pass "
            "missing='raise' and complete rows, or missing='impute-public'"
        )
