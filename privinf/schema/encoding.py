"""Designs as JSON: an exact round trip, a digest that no platform changes, and a check of what arrives."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from privinf.doors import doors
from privinf.errors import PrivinfError, SchemaError
from privinf.schema import geometry
from privinf.schema.intervals import Interval
from privinf.schema.table import Schema
from privinf.schema.terms import Column, Response
from privinf.typing import Flags, Floats, Json

FORMAT = 1


@doors
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DesignFields:
    """What a design is written as: everything else about it follows. See `Design`."""

    formula: str | None
    schema: Schema | None
    columns: tuple[Column, ...]
    private: Flags
    constant: int | None
    low: Floats
    high: Floats
    blocks: geometry.Blocks
    radius: float | None
    outcome: Response


D = TypeVar("D", bound=DesignFields)


def design_to_dict(design: DesignFields) -> dict[str, Any]:
    """Return a JSON-able description, numbers exact."""
    bounds = design.outcome.bounds
    return {
        "format": FORMAT,
        "formula": design.formula,
        "schema": None if design.schema is None else design.schema.to_dict(),
        "columns": [column.to_dict() for column in design.columns],
        "private": design.private.tolist(),
        "constant": design.constant,
        "low": _finite_or_none(design.low),
        "high": _finite_or_none(design.high),
        "blocks": [list(block) for block in design.blocks],
        "radius": design.radius,
        "outcome": {
            "column": design.outcome.column.to_dict(),
            "public": design.outcome.public,
            "bounds": None if bounds is None else [bounds.low, bounds.high],
        },
    }


def identity(design: DesignFields) -> dict[str, Any]:
    """Return what tells a design from another: its description without the bounds that a schema implies.

    Those may come from logarithms and exponentials, whose last bit depends on the platform.
    """
    content = design_to_dict(design)
    if design.schema is not None:
        del content["low"], content["high"], content["outcome"]["bounds"]
    return content


def design_from_dict(kind: type[D], content: Json) -> D:
    """Return the design that `design_to_dict` described.

    Raises
    ------
    SchemaError
        If the content describes no design, or one that does not follow from its own schema.
    """
    try:
        if content["format"] != FORMAT:
            raise SchemaError("the design has another format version")
        outcome = content["outcome"]
        bounds = None if outcome["bounds"] is None else Interval(*outcome["bounds"])
        design = kind(
            formula=content["formula"],
            schema=None if content["schema"] is None else Schema.from_dict(content["schema"]),
            columns=tuple(Column.from_dict(column) for column in content["columns"]),
            private=np.array(content["private"], dtype=bool),
            constant=content["constant"],
            low=np.array([-math.inf if end is None else end for end in content["low"]], dtype=float),
            high=np.array([math.inf if end is None else end for end in content["high"]], dtype=float),
            blocks=tuple(tuple(block) for block in content["blocks"]),
            radius=content["radius"],
            outcome=Response(Column.from_dict(outcome["column"]), outcome["public"], bounds),
        )
    except PrivinfError:
        raise
    except (LookupError, TypeError, AttributeError, ValueError, OverflowError, RecursionError):
        raise SchemaError("the content does not describe a design") from None
    _check_declared(design)
    return design


def _check_declared(design: DesignFields) -> None:
    """Raise SchemaError unless a design that came from elsewhere follows from its own schema."""
    schema, outcome = design.schema, design.outcome
    if schema is None:
        return
    geometry.check_against_schema(schema, design.columns, design.private, design.low, design.high)
    if design.constant is not None and design.columns[design.constant].pieces:
        raise SchemaError("the constant must be the column without factors")
    if outcome.bounds is not None:
        ends = np.array([outcome.bounds.low]), np.array([outcome.bounds.high])
        geometry.check_against_schema(schema, [outcome.column], np.array([True]), *ends)


def _finite_or_none(values: Floats) -> list[float | None]:
    return [float(value) if math.isfinite(value) else None for value in values]
