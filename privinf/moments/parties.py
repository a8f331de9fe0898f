"""The parties of a federated MomentOLS: the doors their rows come in by, and what is public of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from privinf.errors import SchemaError, SensitivityError
from privinf.federation import Federation
from privinf.federation.local import Parties, in_process, parts_of
from privinf.schema import Design, Schema
from privinf.schema.arrays import CONSTANT
from privinf.schema.design import resolve_design


@dataclass(frozen=True, slots=True, eq=False)
class MomentParties:
    """A federation, and the design of a regression over it.

    Attributes
    ----------
    federation : Federation
    design : Design
        What is released is about: every column protected but the constant.
    asked : Design or None
        What sites must adopt first, where they hold tables: the same columns as their schema declares them.

    Notes
    -----
    **Privacy.** Holds no rows: the federation does.
    """

    federation: Federation
    design: Design
    asked: Design | None = None


def parties_of_formula(formula: str, federation: Federation, schema: Schema, radius: Any) -> MomentParties:
    """Return the parties behind a federation whose sites hold tables.

    Columns that the schema declares public are protected like the others: no site sends them in clear.
    """
    asked = resolve_design(schema, formula, response="protected", radius=radius)
    if asked.response_public:
        raise SchemaError(f"MomentOLS protects the response too: {asked.response!r} is declared public")
    closed = Schema(
        {name: replace(declared, public=False) for name, declared in schema.columns.items()},
        unit=schema.unit,
        max_rows=schema.max_rows,
    )
    return MomentParties(federation, _protected(closed.design(formula, radius=radius)), asked)


def parties_of_arrays(
    parties: Parties, *, bounds: Any, radius: Any, y_bounds: Any, keyed: bool
) -> MomentParties:
    """Return the parties of one pair (y, X) each, as sites of this process; `keyed` for secure sums.

    Raises
    ------
    PrivinfError
        A party's rows are not what they must be; the message names the party.
    """
    if y_bounds is None:
        raise SchemaError("MomentOLS protects the response too: pass its public bounds, y_bounds=(low, high)")
    if bounds is None and radius is None:
        raise SensitivityError("the columns need public bounds: pass bounds=[(low, high), ...] or radius=r")
    parts, names = parts_of(parties)
    public = [CONSTANT] if CONSTANT in names else []
    design = Design.from_arrays(names, bounds=bounds, radius=radius, public=public, y_bounds=y_bounds)
    return MomentParties(in_process(_protected(design), parts, keyed=keyed), design)


def _protected(design: Design) -> Design:
    if not design.private.any():
        raise SensitivityError("there is no column beside the constant: nothing to protect")
    return design
