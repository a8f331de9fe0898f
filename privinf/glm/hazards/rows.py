"""Public information on the rows of a proportional-hazards model: grid, status, columns."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from privinf.errors import ArgumentError, NotAvailableError, SchemaError
from privinf.fitting.rows import ModelRows
from privinf.glm.rows import GlmRows, glm_rows, without
from privinf.glm.sums import NO_ROLES, Roles
from privinf.mechanisms.statistics.survival import MOST_INTERVALS
from privinf.typing import Floats, Integers
from privinf.validation import check_count, check_positive

NO_CONSTANT = (
    "the formula leaves out the constant, but the baseline hazard takes its place: remove '0 +' or '- 1' "
    "from the formula"
)
NO_DROPPING = (
    "missing='drop' is not available for PHReg, whose number of records must be public: leave missing= out, "
    "or pass missing='impute-public'"
)
NO_COLUMNS = "the model has no column besides the time and the status: name at least one"
STATUS_COLUMN = (
    "status= must be the name of a numeric column with the public bounds (0, 1), which is 1 if the time "
    "ended with the event and 0 if it was censored"
)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class HazardRows:
    """The rows of a proportional-hazards model.

    Attributes
    ----------
    rows : GlmRows
        With the columns of the constant and of the status.
    status : str
    edges : ndarray, shape (K,)
        Ends of the intervals; what happens after the last one is cut.
    """

    rows: GlmRows
    status: str
    edges: Floats

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
    if not isinstance(status, str) or status not in design.names:
        raise ArgumentError(STATUS_COLUMN)
    at = design.names.index(status)
    if (float(design.low[at]), float(design.high[at])) != (0.0, 1.0):
        raise SchemaError(STATUS_COLUMN)
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
    rows = glm_rows(model_rows, "poisson", None, None, Roles(status=status)).user
    if rows.missing == "drop":
        raise NotAvailableError(NO_DROPPING)
    edges = end * np.arange(1.0, intervals + 1.0) / intervals
    return HazardRows(rows=rows, status=status, edges=edges)
