"""Public information on the rows of a debiased lasso: sites, and units of the columns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from privinf.accounting import Ledger
from privinf.errors import ArgumentError, SchemaError, SensitivityError
from privinf.federation import Federation, SecureServer, TrustedServer
from privinf.fitting.rows import PROTECTED, Limits, ModelRows, check_binary
from privinf.schema import Design
from privinf.typing import ArrayLike, Bounds, Flags, Floats, Integers, Missing, Pair, RngLike, Trust
from privinf.validation import check_array, check_choice, check_positive

LassoFamily = Literal["gaussian", "binomial"]

CONSTANT_TWICE = (
    "the formula has no constant but has all levels of a factor, which are collinear after "
    "columns are centered. Write the formula with its constant, so that one level is left "
    "out"
)
# Columns are taken to have a third of their half-width as standard deviation until more is released.
TYPICAL = 3.0
# Declared bounds of the response are its typical range; it is clipped only far outside of them.
RESPONSE_ROOM = 16.0


@dataclass(slots=True, kw_only=True)
class SparseUnits:
    """Affine units of columns and response: x = (column - center) / scale, y = response - intercept.

    Attributes
    ----------
    center, scale : ndarray, shape (p,)
        Public; `scale` is refined by releases as columns come into play.
    max_abs : ndarray, shape (p,)
        Largest size of a column in declared units (half-width over declared scale).
    intercept : float
    y_max_abs : float
        Largest size of the response that is expected, for the grid of residual sizes.
    y_limit : float
        Largest size of the response: further out it is cut.
    """

    center: Floats
    scale: Floats
    max_abs: Floats
    intercept: float
    y_max_abs: float
    y_limit: float
    sized: set[int] = field(default_factory=set)

    def move(self, columns: Integers, shift: Floats) -> None:
        """Center columns again, `shift` in their units."""
        moved = np.zeros(len(self.scale))
        moved[columns] = shift
        self.center = self.center + moved * self.scale
        self.max_abs = self.max_abs + np.abs(moved)

    def rescale(self, columns: Sequence[int] | Integers, sizes: Floats) -> None:
        """Take other units of columns, `sizes` in those before."""
        scale = self.scale.copy()
        max_abs = self.max_abs.copy()
        scale[columns] *= sizes
        max_abs[columns] /= sizes
        self.scale = scale
        self.max_abs = max_abs


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LassoRows:
    """Sites with rows, and their public information.

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
    trust : {"central", "server", "secure-sum"}
    family : {"gaussian", "binomial"}
    missing : {"raise", "impute-public", "drop"}
        What the holders of the rows do about missing values.

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
    trust: Trust = "server"
    family: LassoFamily = "gaussian"
    missing: Missing = "raise"

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
        middle = (low + high) / 2.0
        half = (high - low) / 2.0
        sized = set() if self.constant is None else {self.constant}
        assert self.design.y_low is not None
        assert self.design.y_high is not None
        limit = max(abs(self.design.y_low - middle), abs(self.design.y_high - middle))
        return SparseUnits(
            center=self.center,
            scale=self.scale.copy(),
            max_abs=self.half / self.scale,
            intercept=middle,
            y_max_abs=half,
            y_limit=limit,
            sized=sized,
        )


# No release of a fit has less of its price than this; options that name shares may go below.
SMALLEST_SHARE = 1e-4


def check_price(server: TrustedServer | SecureServer, columns: int, rho: float) -> None:
    """Raise SensitivityError where a release of a fit may be too cheap for the grid of its noise.

    Before anything is charged: the largest release, of all products of columns, is tried at the price of the
    cheapest.
    """
    if math.isinf(rho):
        return
    try:
        server.check_numbers(columns * (columns + 1) // 2, math.sqrt(2.0 * rho * SMALLEST_SHARE))
        return
    except SensitivityError:
        message = (
            f"rho={rho} is too small for a fit of {columns} columns: the noise would be too large to compute "
            "with. Increase the budget. Nothing was charged"
        )
    raise SensitivityError(message)


def server_of(rows: LassoRows, ledger: Ledger, rng: RngLike) -> TrustedServer:
    """Return the server that all sites of a fit trust."""
    design = None if rows.design.schema is None else rows.design
    return TrustedServer(rows.federation, ledger=ledger, rng=rng, design=design, trust=rows.trust)


def secure_server(rows: LassoRows, ledger: Ledger, rng: RngLike, max_colluding: int) -> SecureServer:
    """Return the server of a fit."""
    design = None if rows.design.schema is None else rows.design
    return SecureServer(rows.federation, max_colluding=max_colluding, ledger=ledger, rng=rng, design=design)


def lasso_limits(
    x_bound: float | None, bounds: Bounds, y_bounds: Pair | None, family: LassoFamily = "gaussian"
) -> Limits:
    """Return the public bounds of arrays, with a response that is never clipped; 0 and 1 if binomial."""
    binomial = check_choice(family, LassoFamily, "family") == "binomial"
    if binomial and y_bounds is not None:
        raise ArgumentError(
            "y_bounds= is for family='gaussian': a binomial response is 0 or 1; leave y_bounds= out"
        )
    if y_bounds is None and not binomial:
        raise SchemaError(PROTECTED)
    if (x_bound is None) == (bounds is None):
        raise SensitivityError("pass the columns' public bounds, either as x_bound= or as bounds=")
    max_abs = None if x_bound is None else check_positive(x_bound, "x_bound")
    if y_bounds is None:
        return Limits(bounds=bounds, max_abs=max_abs, y_bounds=(0.0, 1.0))
    low, high = (float(end) for end in y_bounds)
    room = (RESPONSE_ROOM - 1.0) / 2.0 * (high - low)
    return Limits(bounds=bounds, max_abs=max_abs, y_bounds=(low - room, high + room))


def lasso_rows(
    model_rows: ModelRows,
    trust: Trust,
    y_bounds: Pair | None,
    x_scale: ArrayLike | None,
    family: LassoFamily = "gaussian",
) -> LassoRows:
    """Return the sites of a model with the units of its columns; by default the design has the `y_bounds`."""
    model_rows, design = model_rows.placed(trust), model_rows.design
    if design.y_low is None or design.y_high is None:
        raise SchemaError(f"the schema declares no bounds for the response {design.response!r}")
    if design.constant is None and design.constant_direction is not None:
        raise SchemaError(CONSTANT_TWICE)
    if check_choice(family, LassoFamily, "family") == "binomial":
        check_binary(design)
    y_low, y_high = (design.y_low, design.y_high) if y_bounds is None else y_bounds
    bounded = np.isfinite(design.low)
    low = np.where(bounded, design.low, -1.0)
    high = np.where(bounded, design.high, 1.0)
    center = (low + high) / 2.0
    half = (high - low) / 2.0
    if design.constant is not None:
        bounded = bounded & (np.arange(len(low)) != design.constant)
        center[design.constant] = 0.0
        half[design.constant] = 1.0
    ends = (float(y_low), float(y_high))
    scale = _scales(x_scale, half, bounded)
    counts, missing = model_rows.described()
    return LassoRows(
        design=design,
        federation=model_rows.sites,
        y_bounds=ends,
        center=center,
        half=half,
        scale=scale,
        labels=model_rows.named(),
        rows=counts,
        trust=trust,
        family=family,
        missing=missing,
    )


def _scales(x_scale: ArrayLike | None, half: Floats, bounded: Flags) -> Floats:
    """Return the declared typical sizes of the columns; the constant is its own unit."""
    if x_scale is None:
        return np.where(bounded, half / TYPICAL, 1.0)
    p = len(half)
    scale = np.asarray(x_scale, dtype=np.float64)
    scale = check_array(np.full(p, scale) if scale.ndim == 0 else scale, "x_scale", ndim=1)
    if len(scale) != p or not (scale > half * 1e-300).all():
        raise ArgumentError(
            f"x_scale= must be one positive number, or {p} positive numbers, one for each column. A "
            "number is the typical size of a column, and must be larger than 1e-300 times half the width of "
            "the column's bounds"
        )
    return np.where(bounded, scale, 1.0)
