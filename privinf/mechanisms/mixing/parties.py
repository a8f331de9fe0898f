"""One party's columns of a vertically split table: which numbers it releases, and how far a row reaches."""

from __future__ import annotations

from typing import Any

import numpy as np

from privinf.errors import SchemaError
from privinf.schema import Design, Factor, Schema
from privinf.schema.arrays import CONSTANT
from privinf.schema.response import Response
from privinf.schema.terms import Column, Indicator, Plain

NO_RESPONSE = Response(Column("(any released column)", ()), True, None)


def party_design(schema: Schema, *, centred: bool) -> Design:
    """Return the design of everything that a party declares.

    A numeric column is one number; a factor is its indicators, of all levels but the first.

    Parameters
    ----------
    schema : Schema
        The party's columns, all private, with public bounds or levels.
    centred : bool
        Whether numeric columns are centred at the middle of their bounds (scaled range [-1, 1]) or only
        divided by their largest absolute value.

    Returns
    -------
    Design
        Without a response: any released column may become one. Where `centred`, its first column is the
        constant, which is public and not released.

    Raises
    ------
    SchemaError
        A column is declared public, is called ``const``, or the schema has several rows a unit.

    Notes
    -----
    **Privacy.** Public. `Design.diameter` is the replace-one sensitivity of the party's part of a row.
    """
    if schema.unit is not None or schema.max_rows != 1:
        raise SchemaError("vertically split tables have one row a person: declare no unit= or max_rows=")
    columns: list[Column] = []
    blocks: list[tuple[int, ...]] = []
    for name, declared in schema.columns.items():
        if declared.public or name == CONSTANT:
            what = "declared public" if declared.public else "the name of the constant"
            raise SchemaError(f"column {name!r} is {what}: a party releases its private columns only")
        if isinstance(declared, Factor):
            start = len(columns)
            levels = declared.levels[1:]
            columns += [Column(f"{name}[T.{level}]", (Indicator(name, level),)) for level in levels]
            blocks.append(tuple(range(start, len(columns))))
        else:
            columns.append(Column(name, (Plain(name),)))
    head = [Column(CONSTANT, ())] if centred else []
    bounds = [column.interval(schema) for column in (*head, *columns)]
    return Design(
        formula=None,
        schema=schema,
        columns=(*head, *columns),
        private=np.array([False] * len(head) + [True] * len(columns)),
        constant=0 if centred else None,
        low=np.array([pair.low for pair in bounds]),
        high=np.array([pair.high for pair in bounds]),
        blocks=tuple(tuple(len(head) + k for k in block) for block in blocks),
        radius=None,
        outcome=NO_RESPONSE,
    )


def released_columns(design: Design) -> dict[Any, int]:
    """Return the position among the released columns of each column's pieces (what it is made of)."""
    released = [column for column, private in zip(design.columns, design.private, strict=True) if private]
    return {column.pieces: position for position, column in enumerate(released)}
