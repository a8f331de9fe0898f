"""Rows of every model: arrays, sites, a table or a federation become one `ModelRows`.

Rows stay where they are: in a handle (`privinf.mechanisms.rows.Rows`) that is held and passed on, or at the
sites of a federation. Further needs of a model (a radius, clips, units) are the model's own, and follow
from the design.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from privinf.errors import ArgumentError, NotAvailableError, SchemaError, SensitivityError
from privinf.mechanisms import arrays
from privinf.mechanisms.opened import split
from privinf.mechanisms.rows import ALIGNED, EACH_PARTY, Rows, refuse_dropping, refuse_unordered
from privinf.schema import Design, Schema
from privinf.schema.arrays import CONSTANT
from privinf.schema.design import resolve_design
from privinf.schema.geometry import UNBOUNDED_RADIUS
from privinf.typing import (
    Bounds,
    ColumnLike,
    ColumnsLike,
    Label,
    Missing,
    Pair,
    PartyColumns,
    SitePairs,
    Table,
    Trust,
)
from privinf.validation import check_choice, shown_name
from privinf.wire import Requests

if TYPE_CHECKING:
    from privinf.federation import Federation

ONE_SITE = "all"
AT_SITES = 'is only for rows in one place: for several sites pass trust="server" or trust="secure-sum"'
NO_RECORD_ALONE = "is not supported, because the fit needs sums over many records: pass {}"
NEEDS_SITES = "needs rows at several sites: pass a federation as the data, or use from_arrays"
WEIGHTS_BY_NAME = (
    "cannot be an array: use from_formula, and pass weights= as the name of a column that "
    "the schema declares public with positive bounds"
)
PROTECTED = "this model also protects the response, which needs public bounds: pass y_bounds=(low, high)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Public facts of arrays: bounds of columns and response, and the columns that need none.

    Attributes
    ----------
    bounds, radius, y_bounds
        As the models take them.
    public : sequence of column names or positions
    max_abs : float or None
        Instead of `bounds`: every column lies in [-max_abs, max_abs].
    unbounded : bool
        Whether private columns may go without bounds.
    """

    bounds: Bounds = None
    radius: float | None = None
    y_bounds: Pair | str | None = None
    public: Sequence[str | int] = ()
    max_abs: float | None = None
    unbounded: bool = False


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ModelRows:
    """The rows of a model, here or at the sites of a federation, and their public facts.

    Attributes
    ----------
    design : Design
    parts : mapping of label to Rows
        Handles of the rows that are here, by site; rows in one place are one part.
    federation : Federation or None
        The sites that hold the rows.
    data_bounds : bool
        Whether bounds were taken from the rows (a leak that every ledger line names).
    site_design : Design or None
        Design that sites of tables must adopt first, where it is not `design`.

    Notes
    -----
    **Privacy.** Rows are held and passed on; only `privinf.mechanisms` reads them.
    """

    design: Design
    parts: Mapping[Label, Rows]
    federation: Federation | None = None
    data_bounds: bool = False
    site_design: Design | None = None

    @property
    def rows(self) -> Rows:
        """The handle of rows in one place."""
        (rows,) = self.parts.values()
        return rows

    @property
    def sites(self) -> Federation:
        """The federation."""
        assert self.federation is not None
        return self.federation

    def split(self, sites: ColumnLike | None) -> ModelRows:
        """Return the rows as those of one site a label of `sites`, an array or a table's column."""
        if sites is None:
            return self
        if self.federation is not None:
            raise ArgumentError(
                "sites= splits one table into sites, and the data here are already a federation with "
                "sites: leave sites= out"
            )
        return replace(self, parts=split(self.rows, sites, self.design))

    def placed(self, trust: Trust, *, zero_out: bool = False, passes: bool = False) -> ModelRows:
        """Return the rows at sites: of a federation or this process, or (`passes`) as a table that stays."""
        if self.federation is not None:
            return self
        from privinf.federation.curator import TableByPasses
        from privinf.federation.local import in_process

        if passes and trust == "central" and TableByPasses.takes(self.rows, self.design):
            return replace(self, federation=TableByPasses(self.rows, self.design, ONE_SITE))
        keyed = trust == "secure-sum"
        return replace(self, federation=in_process(self.design, self.parts, keyed=keyed, zero_out=zero_out))

    def described(self) -> tuple[dict[str, int], Missing]:
        """Return the number of rows of each site, and whether any site imputes: both are public."""
        from privinf.federation import Query
        from privinf.federation.rounds import imputed_at, replies_of

        replies = replies_of(self.sites, Query(Requests.DESCRIBE))
        return {reply.site: reply.rows for reply in replies}, imputed_at(replies)

    def named(self) -> dict[str, Label]:
        """Return the caller's label of every site."""
        return dict(zip(self.sites.sites, self.parts or self.sites.sites, strict=True))


# ---- adapters


def rows_of_arrays(y: ColumnLike, X: ColumnsLike, limits: Limits, *, missing: Missing = "raise") -> ModelRows:
    """Return one pair (y, X) as rows in one place, for a mechanism that reads them.

    Raises
    ------
    ArgumentError, SchemaError, SensitivityError
        Shapes, labels or bounds do not fit; no message holds a value of a row.
    """
    pair = arrays.array_rows(y, X, missing=missing)
    declared = [*pair.marked, *(_public_name(item, pair.names) for item in limits.public)]
    private = [name for name in pair.names if name not in declared]
    bounds, y_bounds = arrays.own_bounds(pair, limits.bounds, limits.y_bounds, private)
    radius = limits.radius
    if bounds is None and radius is None and limits.unbounded:
        radius = UNBOUNDED_RADIUS
    if bounds is None and radius is None:
        raise SensitivityError(
            f"{private[0] if private else 'X'!r} has no public bounds: pass bounds=[(low, high), "
            '...] or radius=, or pass bounds="data" to use its smallest and largest values, which '
            "is not private"
        )
    design = Design.from_arrays(
        pair.names, bounds=bounds, radius=radius, public=declared, response=pair.label, y_bounds=y_bounds
    )
    from_data = isinstance(limits.bounds, str) or isinstance(limits.y_bounds, str)
    return ModelRows(design=design, parts={ONE_SITE: pair.rows}, data_bounds=from_data)


def rows_of_site(y: ColumnLike, X: ColumnsLike, limits: Limits, *, missing: Missing = "raise") -> ModelRows:
    """Return one pair (y, X) as rows of one site; errors as in `rows_of_arrays`."""
    pair = arrays.site_rows(y, X, missing=missing)
    return ModelRows(design=_site_design(pair.names, limits, pair.label), parts={ONE_SITE: pair.rows})


def rows_of_pairs(sites: SitePairs, limits: Limits, *, missing: Missing = "raise") -> ModelRows:
    """Return one pair (y, X) a site as rows; a message about one site's rows names it."""
    parts, names = arrays.rows_by_site(sites, missing=missing)
    return ModelRows(design=_site_design(names, limits, "y"), parts=parts)


def rows_of_formula(
    formula: str, data: Table, schema: Schema, *, radius: float | None = None, missing: Missing = "raise"
) -> ModelRows:
    """Return the rows that a formula makes, its response protected: see `rows_of_table`."""
    design = resolve_design(
        schema, formula, response="protected", radius=radius, example="from_formula('y ~ x1 + x2', data, ...)"
    )
    return rows_of_table(design, data, missing=missing)


def rows_of_table(design: Design, data: Table, *, missing: Missing = "raise") -> ModelRows:
    """Return the rows that a formula's design makes of one table, or of the tables of a federation's sites.

    Raises
    ------
    ArgumentError
        The sites choose `missing`.
    """
    if not is_federation(data):
        return ModelRows(design=design, parts={ONE_SITE: Rows(data, None, missing)})
    if missing != "raise":
        raise ArgumentError(
            "missing= cannot be passed for a federation: each site declares it, by Site(Rows(table, "
            "missing=...), schema)"
        )
    return ModelRows(design=design, parts={}, federation=data)


def _site_design(names: Sequence[str], limits: Limits, label: str) -> Design:
    """Return the design of sites of arrays: every column is protected but the constant, and the response."""
    if limits.y_bounds is None:
        raise SchemaError(PROTECTED)
    if isinstance(limits.bounds, str) or isinstance(limits.y_bounds, str):
        raise ArgumentError(
            'bounds="data" is only available for a single table: for several sites, pass bounds= '
            "and y_bounds= as pairs (low, high)"
        )
    public = [CONSTANT] if CONSTANT in names else []
    bounds = limits.bounds
    if limits.max_abs is not None:
        bounds = [(-limits.max_abs, limits.max_abs)] * (len(names) - len(public))
    if bounds is None and limits.radius is None:
        raise SensitivityError("the columns need public bounds: pass bounds=[(low, high), ...]")
    return Design.from_arrays(
        names, bounds=bounds, radius=limits.radius, public=public, response=label, y_bounds=limits.y_bounds
    )


def _public_name(item: str | int, names: Sequence[str]) -> str:
    if isinstance(item, (int, np.integer)) and 0 <= item < len(names):
        return names[int(item)]
    if item in names:
        return str(item)
    raise SchemaError(
        f"public= names column {shown_name(item)}, which is not among the columns {', '.join(names)}"
    )


# ---- refusals


def is_federation(data: object) -> TypeGuard[Federation]:
    """Return whether rows are at the sites of a federation."""
    return callable(getattr(type(data), "ask", None))


def refuse_federation(data: object, model: str) -> None:
    """Raise NotAvailableError if a model of rows in one place was given a federation."""
    if is_federation(data):
        raise NotAvailableError(
            f"{model} needs a table, not a federation: release the table where it is held, and pass "
            "the release to from_release"
        )


def refuse_weights(weights: object) -> None:
    """Raise NotAvailableError if observation weights were given for a federation."""
    if weights is not None:
        raise NotAvailableError(
            "weights= cannot be used with a federation, because weights must be public, and a federation "
            "protects all columns, also those that the schema declares public: leave weights= out"
        )


def check_binary(design: Design) -> None:
    """Refuse a response that is not declared from 0 to 1, since larger values would be clipped silently.

    Only the declaration is read, because an error about values would disclose something of a row.
    """
    if (design.y_low, design.y_high) != (0.0, 1.0):
        raise SchemaError(
            f"a binomial response must be 0 or 1, but {design.response!r} is declared with other values. "
            "Declare the levels [0, 1], or two levels that are texts; of two other numbers, write the second "
            "one in the formula, as in I(y == 2) for the levels [1, 2]"
        )


def check_trust(trust: Trust | None, default: Trust, refused: Mapping[Trust, str]) -> Trust:
    """Return the trust model; `refused` explains why some values are not available for the model."""
    chosen: Trust = check_choice(default if trust is None else trust, Trust, "trust")
    if chosen in refused:
        raise ArgumentError(f"trust={chosen!r} {refused[chosen]}")
    return chosen


def trust_of_sums(trust: Trust | None, *, alone: bool) -> Trust:
    """Return whom a model of sums trusts: by default a curator of rows in one place, or a server of sites."""
    remedy = 'trust="central"' if alone else 'trust="server" or trust="secure-sum"'
    refused: dict[Trust, str] = {"local": NO_RECORD_ALONE.format(remedy)}
    if not alone:
        refused["central"] = AT_SITES
    return check_trust(trust, "central" if alone else "server", refused)


# ---- columns at parties


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PartyTable:
    """The whole table of parties with columns of their own, and its public facts.

    Attributes
    ----------
    rows : Rows
        The handle of the table.
    schemas : mapping of str to Schema
        Columns of each party.
    label : str or None
        The response, where it is named.
    order : tuple of str, or None
        Columns as the caller gave them.
    data_bounds : bool
        Whether bounds were taken from the rows.
    """

    rows: Rows
    schemas: Mapping[str, Schema]
    label: str | None = None
    order: tuple[str, ...] | None = None
    data_bounds: bool = False


def table_of_arrays(
    y: ColumnLike,
    X: ColumnsLike,
    parties: PartyColumns,
    bounds: Bounds,
    y_bounds: Pair | str | None,
    *,
    missing: Missing = "raise",
) -> PartyTable:
    """Return the table of y and X, and the columns of each party.

    Raises
    ------
    ArgumentError, SchemaError, SensitivityError
        A column belongs to no party, or to two, or has no bounds; no message holds a value of a row.
    """
    refuse_dropping(missing, EACH_PARTY)
    rows, names, label = arrays.array_table(y, X, missing=missing)
    assigned = {name: arrays.party_columns(items, names, label) for name, items in parties.items()}
    arrays.check_cover(assigned, names)
    limits = arrays.column_limits(rows, [name for name in names if name != label], label, bounds, y_bounds)
    schemas = {name: Schema({c: limits[c] for c in columns}) for name, columns in assigned.items()}
    from_data = isinstance(bounds, str) or isinstance(y_bounds, str)
    return PartyTable(rows=rows, schemas=schemas, label=label, order=tuple(names), data_bounds=from_data)


def table_of_parties(
    data: Table, schema: Schema, parties: PartyColumns, *, missing: Missing = "raise"
) -> PartyTable:
    """Return a table, the columns of each party, and the unit; columns of no party are not released."""
    assigned = {name: [str(column) for column in columns] for name, columns in parties.items()}
    arrays.check_cover(assigned, None)
    declared = {name: {column: schema[column] for column in columns} for name, columns in assigned.items()}
    whose: dict[str, Any] = {"unit": schema.unit, "max_rows": schema.max_rows}
    schemas = {name: Schema(columns, **whose) for name, columns in declared.items()}
    refuse_dropping(missing, EACH_PARTY)
    rows = Rows(data, None, missing)
    refuse_unordered(rows, ALIGNED)
    return PartyTable(rows=rows, schemas=schemas)
