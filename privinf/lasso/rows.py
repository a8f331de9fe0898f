"""The rows of a debiased lasso by site, however they are given, and the units of their columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from privinf.errors import ArgumentError, SchemaError, SensitivityError
from privinf.federation import Federation, Query
from privinf.federation.local import ONE_PARTY, Parties, in_process, matrix_of, parts_of, response_of
from privinf.lasso.sums import SparseUnits
from privinf.mechanisms.rows import Rows
from privinf.schema import Design, Schema
from privinf.schema.design import resolve_design
from privinf.typing import Flags, Floats
from privinf.validation import check_array, check_positive

# Columns are taken to have a third of their half-width as standard deviation until more is released.
TYPICAL = 3.0
# The response's declared bounds say how large it typically gets; only far outside of them is it cut.
RESPONSE_ROOM = 16.0


@dataclass(frozen=True, slots=True, eq=False)
class LassoRows:
    """Sites with rows, and what is public of them.

    Attributes
    ----------
    design : Design
    federation : Federation
    y_bounds : (float, float)
    center, half, scale : ndarray, shape (p,)
        Middles and half-widths of the columns' bounds, declared typical sizes.
    labels : mapping of str to label
        The user's labels of the federation's sites.
    rows : mapping of str to int
        Numbers of rows by site.

    Notes
    -----
    **Privacy.** Holds no rows: the federation does. Numbers of rows are public.
    """

    design: Design
    federation: Federation
    y_bounds: tuple[float, float]
    center: Floats
    half: Floats
    scale: Floats
    labels: Mapping[str, Any]
    rows: Mapping[str, int]

    @property
    def names(self) -> Sequence[str]:
        """Columns."""
        return self.design.names

    @property
    def constant(self) -> int | None:
        """Position of the constant."""
        return self.design.constant

    @property
    def total(self) -> int:
        """Number of rows."""
        return sum(self.rows.values())

    def units(self) -> SparseUnits:
        """Return new units of columns and response, as declared."""
        low, high = self.y_bounds
        return SparseUnits(
            self.center,
            self.scale.copy(),
            self.half / self.scale,
            (low + high) / 2.0,
            (high - low) / 2.0,
            set() if self.constant is None else {self.constant},
        )


def rows_of_arrays(
    y: Any,
    X: Any,
    x_bound: float | None,
    bounds: Any,
    y_bounds: Any,
    x_scale: Any,
    machines: Any,
    *,
    keyed: bool = False,
) -> LassoRows:
    """Return the rows of one response and one matrix, split by the labels of `machines`.

    Here and below `keyed` asks for sites with keys, for secure sums.
    """
    features, names = matrix_of(X)
    response = response_of(y, len(features))
    labels = [(ONE_PARTY, None)] if machines is None else groups_of(machines, len(features))
    parts = {
        label: Rows(features, response) if rows is None else Rows(features[rows], response[rows])
        for label, rows in labels
    }
    design = array_design(names, x_bound, bounds, y_bounds)
    return _bound(design, in_process(design, parts, keyed=keyed), y_bounds, x_scale, list(parts))


def rows_of_parties(
    parties: Parties,
    x_bound: float | None,
    bounds: Any,
    y_bounds: Any,
    x_scale: Any,
    *,
    keyed: bool = False,
) -> LassoRows:
    """Return the rows of one pair (y, X) a site."""
    parts, names = parts_of(parties)
    design = array_design(names, x_bound, bounds, y_bounds)
    return _bound(design, in_process(design, parts, keyed=keyed), y_bounds, x_scale, list(parts))


def rows_of_formula(
    formula: str, data: Any, schema: Schema, machines: str | None, x_scale: Any, *, keyed: bool = False
) -> LassoRows:
    """Return the rows that a formula makes of a data frame, or of a federation's tables."""
    design = resolve_design(schema, formula, response="protected", radius=None)
    if design.y_low is None or design.y_high is None:
        raise SchemaError(f"the schema declares no bounds of the response {design.response!r}")
    if hasattr(data, "ask"):
        if machines is not None:
            raise ArgumentError("machines= names a column of a data frame; a federation has its sites")
        federation = data
    else:
        labels = None if machines is None else data[machines]
        groups = [(ONE_PARTY, slice(None))] if labels is None else groups_of(labels, len(data))
        federation = in_process(design, {label: Rows(data.iloc[rows]) for label, rows in groups}, keyed=keyed)
    return _bound(design, federation, (design.y_low, design.y_high), x_scale)


def _bound(
    design: Design,
    federation: Federation,
    y_bounds: tuple[float, float],
    x_scale: Any,
    labels: Sequence[Any] | None = None,
) -> LassoRows:
    bounded = np.isfinite(design.low)
    low, high = np.where(bounded, design.low, -1.0), np.where(bounded, design.high, 1.0)
    center, half = (low + high) / 2.0, (high - low) / 2.0
    if design.constant is not None:
        bounded = bounded & (np.arange(len(low)) != design.constant)
        center[design.constant], half[design.constant] = 0.0, 1.0
    return LassoRows(
        design,
        federation,
        (float(y_bounds[0]), float(y_bounds[1])),
        center,
        half,
        _scales(x_scale, half, bounded),
        dict(zip(federation.sites, labels or federation.sites, strict=True)),
        {reply.site: reply.rows for reply in federation.ask(Query("describe"))},
    )


def _scales(x_scale: Any, half: Floats, bounded: Flags) -> Floats:
    """Return the declared typical sizes of the columns; the constant is its own unit."""
    if x_scale is None:
        return np.where(bounded, half / TYPICAL, 1.0)
    p = len(half)
    scale = np.asarray(x_scale, dtype=np.float64)
    scale = check_array(np.full(p, scale) if scale.ndim == 0 else scale, "x_scale", ndim=1)
    if len(scale) != p or not (scale > 0.0).all():
        raise ArgumentError(f"x_scale must be positive: one number, or {p} of them")
    return np.where(bounded, scale, 1.0)


def array_design(names: list[str], x_bound: float | None, bounds: Any, y_bounds: Any) -> Design:
    """Return the design of the array doors: the response's bounds wide enough never to cut it."""
    if y_bounds is None:
        raise SchemaError("the response is protected too: pass its public bounds, y_bounds=(low, high)")
    if (x_bound is None) == (bounds is None):
        raise SensitivityError("give the columns' public bounds: either x_bound= or bounds=")
    public = ["const"] if "const" in names else []
    if x_bound is not None:
        reach = check_positive(x_bound, "x_bound")
        bounds = [(-reach, reach)] * (len(names) - len(public))
    low, high = (float(end) for end in y_bounds)
    room = (RESPONSE_ROOM - 1.0) / 2.0 * (high - low)
    return Design.from_arrays(names, bounds=bounds, public=public, y_bounds=(low - room, high + room))


def groups_of(machines: Any, rows: int) -> list[tuple[Any, Any]]:
    """Return the rows of every label, as slices where they stand together."""
    labels = np.asarray(machines)
    if labels.shape != (rows,):
        raise ArgumentError(f"machines must hold one label for each of the {rows} rows")
    found: list[tuple[Any, Any]] = []
    for label in pd.unique(labels):
        at = np.flatnonzero(labels == label)
        together = at[-1] - at[0] + 1 == len(at)
        found.append((label.item() if hasattr(label, "item") else label,
                      slice(int(at[0]), int(at[-1]) + 1) if together else at))  # fmt: skip
    return found
