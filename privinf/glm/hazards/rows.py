"""Public information on the rows of a proportional-hazards model: grid, status, columns."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from privinf.errors import ArgumentError, SchemaError
from privinf.fitting.event_status import check_event
from privinf.fitting.rows import ModelRows
from privinf.glm.rows import GlmRows, glm_rows, without
from privinf.glm.sums import NO_ROLES, Roles
from privinf.mechanisms.statistics.survival import MOST_INTERVALS
from privinf.schema import Design, Factor, Schema
from privinf.schema.formulas import terms_by_column
from privinf.typing import Floats, Integers, Label
from privinf.validation import check_count, check_positive, shown_name

NO_CONSTANT = (
    "the formula leaves out the constant, but the baseline hazard takes its place: remove '0 +' or '- 1' "
    "from the formula"
)
NO_COLUMNS = "the model has no column besides the time and the status: name at least one"
STATUS_TERM = (
    "column {} is status=, and it is also a term of the formula: leave it out of the formula, since the "
    "status cannot be a regressor"
)
STATUS_COLUMN = (
    "status= must be the name of a column with the public bounds (0, 1), which is 1 if the time ended with "
    "the event and 0 if it was censored, or of a factor with two levels, of which the second is the event"
)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class HazardRows:
    """The rows of a proportional-hazards model.

    Attributes
    ----------
    rows : GlmRows
        With the columns of the constant and of the status.
    status : str
        The status as the user names it.
    event : int
        Position of its column among the columns of the design.
    edges : ndarray, shape (K,)
        Ends of the intervals; what happens after the last one is cut.
    """

    rows: GlmRows
    status: str
    event: int
    edges: Floats

    @property
    def described_status(self) -> str:
        """The status, with the level that is the event if it is a factor."""
        schema = self.rows.design.schema
        declared = None if schema is None else schema[self.status]
        return f"{self.status} = {declared.levels[1]}" if isinstance(declared, Factor) else self.status

    @property
    def constant(self) -> int:
        """Position of the constant."""
        assert self.rows.design.constant is not None
        return self.rows.design.constant

    @property
    def columns(self) -> Integers:
        """Positions of the columns that have coefficients."""
        free = self.rows.free
        return np.asarray(free[free != self.constant])

    @property
    def largest(self) -> Floats:
        """Largest sizes of these columns, scaled units, shape (d,)."""
        low, high = self.rows.limits
        return np.asarray(np.maximum(np.abs(low), np.abs(high))[self.columns])

    def reported(self, rows: GlmRows | None = None) -> GlmRows:
        """Return the rows with only the columns that have coefficients."""
        rows = self.rows if rows is None else rows
        columns = self.columns
        design = replace(rows.design, constant=None)
        return replace(
            rows,
            design=without(design, columns),
            center=rows.center[columns],
            scale=rows.scale[columns],
            roles=NO_ROLES,
        )


def hazard_rows(model_rows: ModelRows, status: str, horizon: float | None, intervals: int) -> HazardRows:
    """Return the rows of a model with its public grid.

    Raises
    ------
    ArgumentError, SchemaError, NotAvailableError
        Status, horizon, grid or columns do not fit a proportional-hazards model.
    """
    design = model_rows.design
    event = event_column(design, status)
    if design.constant is None:
        raise SchemaError(NO_CONSTANT)
    if len(design.names) <= 2:
        raise ArgumentError(NO_COLUMNS)
    low, high = design.y_low, design.y_high
    if low is None or high is None or low < 0.0 or not 0.0 < high < math.inf:
        raise SchemaError(
            f"the time {design.response} needs public bounds (0, horizon), and the lower bound must not be "
            "negative"
        )
    end = float(high) if horizon is None else check_positive(horizon, "horizon")
    if end > high:
        raise ArgumentError(
            f"horizon={end:g} must be at most {high:g}, the upper bound of the time {design.response}"
        )
    if check_count(intervals, "intervals", least=2) > MOST_INTERVALS:
        raise ArgumentError(f"intervals={intervals} must be at most {MOST_INTERVALS}")
    rows = glm_rows(model_rows, "poisson", None, None, Roles(status=event)).user
    edges = end * np.arange(1.0, intervals + 1.0) / intervals
    return HazardRows(rows=rows, status=status, event=rows.design.names.index(event), edges=edges)


def with_status(formula: str, status: str, schema: Schema, event: Label | None = None) -> str:
    """Return a formula with the column of the status, or the mark of the second level of a factor.

    `event` is the level that is the event; see `check_event`.
    """
    if '"' in status or "\\" in status:
        raise SchemaError(f"column {shown_name(status)} has a quotation mark in its name: rename it")
    term = _term_of(status)
    if status in schema:
        declared = schema[status]
        if isinstance(declared, Factor):
            if len(declared.levels) != 2:
                raise SchemaError(STATUS_COLUMN)
            term = f"C({term})"
        parts = {part for name in terms_by_column(formula, schema).values() for part in name.split(":")}
        is_status = isinstance(declared, Factor) or declared.is_zero_to_one
        if is_status and {term, f"C({term})"} & parts:
            raise ArgumentError(STATUS_TERM.format(shown_name(status)))
        check_event(declared, status, event, "put it into the formula")
    return f"{formula} + {term}"


def fit_text(design: Design, status: str) -> str:
    """Return the formula of a user for ledgers, in which the status is an argument and not a term."""
    if design.formula is None:
        event = event_column(design, status)
        names = [name for place, name in enumerate(design.names) if place != design.constant]
        shown = f"{design.response} ~ {' + '.join(name for name in names if name != event)}"
    else:
        term = _term_of(status)
        shown = design.formula.removesuffix(f" + C({term})").removesuffix(f" + {term}")
    return f"{shown}, status={status}"


def _term_of(column: str) -> str:
    """Return a column as a formula has it."""
    return column if column.isidentifier() else f'Q("{column}")'


def event_column(design: Design, status: str) -> str:
    """Return the name of the design's column that is 1 for an event.

    Raises
    ------
    ArgumentError, SchemaError
        There is no such column, or its public values are not 0 and 1.
    """
    if not isinstance(status, str):
        raise ArgumentError(STATUS_COLUMN)
    names = [column.name for column in design.columns if column.inputs == (status,)]
    if status in design.names:
        names = [status]
    if len(names) != 1:
        raise ArgumentError(STATUS_COLUMN)
    at = design.names.index(names[0])
    if (float(design.low[at]), float(design.high[at])) != (0.0, 1.0):
        raise SchemaError(STATUS_COLUMN)
    return names[0]
