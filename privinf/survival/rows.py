"""Times, statuses and groups of records as a design, whatever holds them, and the public grid of times."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from privinf.errors import ArgumentError, NotAvailableError, SchemaError, SensitivityError
from privinf.fitting.event_status import check_event
from privinf.fitting.rows import ONE_SITE, ModelRows, rows_of_table, trust_of_sums
from privinf.mechanisms.arrays import status_numbers
from privinf.mechanisms.samples import sample_rows
from privinf.mechanisms.statistics.survival import MOST_INTERVALS
from privinf.schema import Design, Factor, Numeric, Schema
from privinf.schema.table import check_schema
from privinf.typing import (
    ArrayLike,
    ColumnLike,
    Floats,
    Label,
    Missing,
    Pair,
    Table,
    Trust,
)
from privinf.validation import check_array, check_count, check_flag, check_positive, shown_name

DEFAULT_INTERVALS = 64  # of the default grid
NO_HORIZON = (
    "the grid needs a public end: pass horizon=, or bounds=(0, end) of the times, or the edges of the grid "
    "as grid="
)
IMPUTING = (
    "missing='impute-public' is not available for times to an event, because imputed times or statuses would "
    "count as events and exposure: pass missing='drop', or remove the rows"
)
ONE_GROUP_COLUMN = (
    "by= must be the name of one column. For groups by several columns, add one column of their combinations "
    "to the table, such as rows['hospital'] + ' ' + rows['arm'], declare its levels in the schema, and pass "
    "its name"
)
SEVERAL_ROWS = (
    "the schema allows up to {1} rows for each value of its unit {0!r}, and survival curves need one row for "
    "each person: pass data with one row for each person, such as the time to the first event"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SurvivalOptions:
    """Arguments of `KaplanMeier`, `NelsonAalen` and `logrank`, which describe them.

    Attributes
    ----------
    event, by, data, schema, bounds, levels
        The columns, and the public facts about them.
    horizon, grid, discrete
        The grid of times.
    missing, trust, sites
        Treatment of missing values, and who adds up.
    """

    event: Label | None = None
    by: ColumnLike | str | None = None
    data: Table = None
    schema: Schema | None = None
    bounds: Pair | None = None
    levels: Sequence[Label] | None = None
    horizon: float | None = None
    grid: int | ArrayLike = DEFAULT_INTERVALS
    discrete: bool = False
    missing: Missing = "raise"
    trust: Trust | None = None
    sites: ColumnLike | str | None = None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SurvivalRows:
    """Records at sites or in one place, with the public facts of the release of their cells.

    Attributes
    ----------
    rows : ModelRows
        Placed at sites, or in this process.
    trust : {"central", "server", "secure-sum"}
    edges : ndarray, shape (K,)
        Ends of the intervals.
    discrete : bool
        Whether the edges are all times that can occur.
    status : int
        Position of the status among the columns.
    groups : tuple of int
        Positions of the marks of all groups but the first.
    levels : tuple of str
        Names of the groups; one, "all", without groups.
    names : tuple of str
        Columns of time and status, and of the groups.
    clips_status : bool
        Whether the status is a column with bounds, so that codes above 1 count as events. Arrays are checked.
    n : int
        Public number of records.
    missing : {"raise", "drop"}

    Notes
    -----
    **Privacy.** Rows are held and passed on; only `privinf.mechanisms` reads them.
    """

    rows: ModelRows
    trust: Trust
    edges: Floats
    discrete: bool
    status: int
    groups: tuple[int, ...]
    levels: tuple[str, ...]
    names: tuple[str, ...]
    clips_status: bool
    n: int
    missing: Missing


def survival_rows(time: ColumnLike | str, status: ColumnLike | str, options: SurvivalOptions) -> SurvivalRows:
    """Return the records of a call; nothing is released or charged.

    Raises
    ------
    ArgumentError, SchemaError, SensitivityError, NotAvailableError
        Columns do not fit their declarations, the grid is none, or the rows cannot be used.
    """
    discrete = check_flag(options.discrete, "discrete")
    columns = {"time": time, "status": status} | ({} if options.by is None else {"by": options.by})
    if isinstance(options.by, (list, tuple)) and (isinstance(time, str) or options.data is not None):
        raise ArgumentError(ONE_GROUP_COLUMN)
    named = all(isinstance(column, str) for column in columns.values())
    if named:
        names, schema = _named_columns(columns, options)
    else:
        names, schema = _arrays(columns, options)
    if schema.unit is not None and schema.max_rows > 1:
        raise NotAvailableError(SEVERAL_ROWS.format(schema.unit, schema.max_rows))
    bounds = schema[names[0]]
    high = getattr(bounds, "high", None)
    if high is None or not math.isfinite(high):
        raise SensitivityError(
            f"the time {names[0]!r} needs public bounds: declare them in the schema, or pass bounds=(0, end)"
        )
    edges = _edges(options, float(high), discrete=discrete)
    levels = ("all",) if len(names) < 3 else _levels(schema, names[2])
    _check_status(schema, names[1], options.event)
    terms = [_term(schema, name) for name in names[1:]]
    design = Design.from_formula(f"{_quoted(names[0])} ~ {' + '.join(terms)}", schema, response="protected")
    if named:
        model_rows = rows_of_table(design, options.data, missing=options.missing)
    else:
        rows = sample_rows(dict(zip(names, columns.values(), strict=True)), options.missing)
        model_rows = ModelRows(design=design, parts={ONE_SITE: rows})
    split = model_rows.split(options.sites)
    alone = split.federation is None and options.sites is None
    trust = trust_of_sums(options.trust, alone=alone)
    placed = split.placed(trust, passes=True)
    counts, missing = placed.described()
    if missing == "impute-public":
        raise NotAvailableError(IMPUTING)
    return SurvivalRows(
        rows=placed,
        trust=trust,
        edges=edges,
        discrete=discrete,
        status=_positions(design, names[1])[0],
        groups=() if len(names) < 3 else _positions(design, names[2]),
        levels=levels,
        names=names,
        clips_status=named and isinstance(schema[names[1]], Numeric),
        n=sum(counts.values()),
        missing=missing,
    )


def _named_columns(columns: dict[str, Any], options: SurvivalOptions) -> tuple[tuple[str, ...], Schema]:
    """Return the names of the columns of a table, and their schema."""
    names = tuple(columns.values())
    if len(set(names)) < len(names):
        raise ArgumentError("time, status and by= must name different columns")
    if options.data is None:
        raise ArgumentError(f"{names[0]!r} is the name of a column: pass its table as data=")
    if options.schema is None:
        raise SensitivityError(
            f"{names[0]!r} is the name of a column: pass schema=, which declares the bounds of the time, the "
            "two values of the status, and the levels of the groups"
        )
    check_schema(options.schema)
    if options.bounds is not None or options.levels is not None:
        raise ArgumentError(
            "bounds= and levels= cannot be combined with schema=, which declares them: leave out bounds= "
            "and levels="
        )
    return names, options.schema


def _arrays(columns: dict[str, Any], options: SurvivalOptions) -> tuple[tuple[str, ...], Schema]:
    """Return the names of arrays, and a schema of what the call declares about them."""
    if options.data is not None or any(isinstance(column, str) for column in columns.values()):
        raise ArgumentError("columns must all be names of columns in data=, or all be arrays")
    if options.schema is not None:
        raise ArgumentError(
            "schema= can only be passed with data=: with arrays, pass bounds= and levels= instead"
        )
    status_numbers(columns["status"])
    declared: dict[str, Any] = {"time": _time_bounds(options), "status": (0, 1)}
    if "by" in columns:
        if options.levels is None:
            raise SensitivityError("the groups have no public list: pass levels=, or names of columns")
        declared["by"] = Factor(tuple(options.levels))
    elif options.levels is not None:
        raise ArgumentError("levels= are the groups of by=: pass by=, or leave levels= out")
    labels = [getattr(column, "name", None) for column in columns.values()]
    usable = all(isinstance(label, str) and label for label in labels) and len(set(labels)) == len(labels)
    names = tuple(map(str, labels)) if usable else tuple(columns)
    return names, Schema(dict(zip(names, declared.values(), strict=True)))


def _time_bounds(options: SurvivalOptions) -> tuple[float, float]:
    """Return public bounds of an array of times."""
    if options.bounds is not None:
        if isinstance(options.bounds, str) or np.shape(options.bounds) != (2,):
            raise SchemaError("bounds= must be a pair of public numbers, (low, high)")
        low, high = options.bounds
        return float(low), float(high)
    if options.horizon is not None:
        return 0.0, check_positive(options.horizon, "horizon")
    if isinstance(options.grid, (int, np.integer)):
        raise SensitivityError(NO_HORIZON)
    return 0.0, float(_edge_array(options.grid)[-1])


def _edges(options: SurvivalOptions, high: float, *, discrete: bool) -> Floats:
    """Return the public edges of the grid."""
    if isinstance(options.grid, (int, np.integer)):
        if discrete:
            raise ArgumentError(
                "discrete=True needs the list of all times that can occur: pass it as grid=, for example "
                "grid=range(1, 61) for months"
            )
        intervals = check_count(options.grid, "grid")
        if intervals > MOST_INTERVALS:
            raise ArgumentError(f"grid= must be at most {MOST_INTERVALS} intervals")
        end = high if options.horizon is None else check_positive(options.horizon, "horizon")
        if end > high:
            raise ArgumentError(
                f"horizon= is beyond the public upper bound of the time, {high:g}: pass a horizon up to it"
            )
        if not end > 0.0:
            raise SchemaError("the public upper bound of the time must be positive")
        return end * np.arange(1, intervals + 1) / intervals
    if options.horizon is not None:
        raise ArgumentError("horizon= is the last edge of the grid: leave it out where grid= lists the edges")
    return _edge_array(options.grid)


def _edge_array(grid: Any) -> Floats:
    edges = check_array(list(grid) if isinstance(grid, range) else grid, "grid", ndim=1)
    if len(edges) > 1 and edges[0] == 0.0:
        edges = edges[1:]
    if not 1 <= len(edges) <= MOST_INTERVALS or not edges[0] > 0.0 or not (np.diff(edges) > 0.0).all():
        raise ArgumentError(
            f"grid= must be a number of intervals, or at most {MOST_INTERVALS} positive edges in increasing "
            "order"
        )
    return edges


def _levels(schema: Schema, name: str) -> tuple[str, ...]:
    """Return the names of the groups."""
    declared = schema[name]
    if isinstance(declared, Factor):
        if len(declared.levels) < 2:
            raise SchemaError(f"by={name!r} has one level: leave by= out")
        return tuple(map(str, declared.levels))
    if (declared.low, declared.high) == (0.0, 1.0):
        return ("0", "1")
    raise SchemaError(f"by={name!r} has no declared levels: declare them in the schema as a list")


def _check_status(schema: Schema, name: str, event: Label | None) -> None:
    """Raise SchemaError unless the status is declared as 0 or 1, or with two levels and a known event."""
    declared = schema[name]
    two = isinstance(declared, Factor) and len(declared.levels) == 2
    if not two and (isinstance(declared, Factor) or (declared.low, declared.high) != (0.0, 1.0)):
        raise SchemaError(
            f"the status {name!r} must be declared with two values, of which the second is the event: with "
            "bounds (0, 1), or as a list of two levels. Competing risks are not available: for one of "
            "several events, make a column that is 1 for this event and 0 otherwise, which gives its "
            "cause-specific hazard"
        )
    check_event(declared, name, event, "pass the groups as by=")


def _positions(design: Design, name: str) -> tuple[int, ...]:
    return tuple(at for at, column in enumerate(design.columns) if column.inputs == (name,))


def _term(schema: Schema, name: str) -> str:
    """Return the term of a status or of groups: marks of levels, or a column of zeros and ones."""
    return f"C({_quoted(name)})" if isinstance(schema[name], Factor) else _quoted(name)


def _quoted(name: str) -> str:
    """Return a column's name as formulas write it."""
    if '"' in name or "\\" in name:
        raise SchemaError(f"column {shown_name(name)} has a quotation mark in its name: rename it")
    return name if name.isidentifier() else f'Q("{name}")'
