"""Designs: the frozen, public description of the columns, bounds and scaling that a release needs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from privinf.doors import doors
from privinf.errors import ArgumentError, SchemaError, SensitivityError
from privinf.schema import geometry
from privinf.schema.arrays import CONSTANT, aligned_bounds, checked_pair, public_flags
from privinf.schema.declared import Numeric, checked_names
from privinf.schema.geometry import DesignFields, design_from_dict, design_to_dict, identity
from privinf.schema.intervals import Interval
from privinf.schema.reading import Reader
from privinf.schema.table import Schema, canonical_digest, check_schema
from privinf.schema.terms import Column, Plain, Response, Spline, constant_direction
from privinf.typing import Floats, Json, Missing, Pair, Pairs, ResponseMode, Table
from privinf.validation import check_choice, check_positive

# New rows: how far a value may pass a bound unmentioned, in ranges (numerical derivatives step so far).
HAIR = 1e-3
FLAT_BEYOND = "passes the boundary knots of its spline, beyond which the curve is flat"
BEYOND_BOUNDS = "passes its declared bounds, to which values were clipped in the fit: this extrapolates"
# Of a ball that holds every row: adjacency="unit" protects records at distance 1 and needs no bound.
UNBOUNDED_RADIUS = 1e100

if TYPE_CHECKING:
    import pandas as pd


# Sizes of bounds whose products can be summed: statistics take arguments between 1e-30 and 1e30.
SMALLEST_BOUND = 1e-28
LARGEST_BOUND = 1e28


@doors
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Design(DesignFields):
    """Columns of a regression, their public bounds, and the map to the units in which noise is added.

    Made by `Schema.design` or `Design.from_arrays`; never fitted on data.

    Attributes
    ----------
    formula : str or None
        None for arrays.
    schema : Schema or None
        None for arrays.
    columns : tuple of Column
        Design columns in order, p of them.
    private : ndarray of bool, shape (p,)
        True unless every column of the data that it is made of is declared public.
    constant : int or None
        Position of the declared-public column of ones.
    low, high : ndarray, shape (p,)
        Bounds in user units; infinite where none are declared (public columns, `radius` alone).
    center, scale : ndarray, shape (p,)
        ``scaled = (x - center) / scale``. Numeric private columns fall into [-1, 1]; public columns and
        indicators stay as they are.
    blocks : tuple of tuple of int
        Private indicator columns of which at most one is 1 in any row.
    radius : float or None
        Ball for the scaled private part of a row.
    outcome : Response
        The response and its bounds.
    raw : tuple of Column, or None
        The columns that coefficients are about, where `columns` are an internal basis (`conditioned`).
    basis : ndarray, shape (p, p)
        M with ``raw = columns @ M``, row by row; the identity where `columns` are themselves.

    Notes
    -----
    **Privacy.** Public. Sensitivities are for replacing one row: `diameter` is the largest distance
    between the scaled private parts of two rows.
    """

    center: Floats = field(init=False)
    scale: Floats = field(init=False)
    basis: Floats = field(init=False)

    def __post_init__(self) -> None:
        checked_names(self.names)
        if self.radius is not None:
            object.__setattr__(self, "radius", check_positive(self.radius, "radius"))
        _freeze(self, private=np.array(self.private, dtype=bool), low=self.low, high=self.high)
        _check_constant(self)
        geometry.check_geometry(self.columns, self.private, self.low, self.high, self.blocks, self.radius)
        scaled = self.private & ~np.array([column.indicator for column in self.columns])
        center, scale = geometry.scaling(self.low, self.high, scaled, centred=self.constant is not None)
        _freeze(self, center=center, scale=scale)
        basis = np.eye(len(self.columns)) if self.raw is None else _basis(self)
        basis.setflags(write=False)
        object.__setattr__(self, "basis", basis)

    def conditioned(self) -> Design:
        """Return the design on centred products and orthogonal powers of its columns, or itself.

        Noise is added to the internal columns, in which products and powers do not repeat the columns that
        they are made of; coefficients are mapped back by `basis`, exactly (`privinf.schema.conditioning`).
        Only columns whose span holds all that centring needs are changed.
        """
        products = [column for column in self.columns if not column.plain and not column.indicator]
        if self.schema is None or self.raw is not None or not any(column.pieces for column in products):
            return self
        from privinf.schema.conditioning import conditioned

        return conditioned(self)

    @property
    def user(self) -> Design:
        """The same design with the columns that coefficients are about in place of an internal basis."""
        if self.raw is None or self.schema is None:
            return self
        ends = [column.interval(self.schema) for column in self.raw]
        blocks = tuple(block for block in self.blocks if all(self.raw[j].indicator for j in block))
        low, high = np.array([[one.low, one.high] for one in ends]).T
        return replace(self, columns=self.raw, raw=None, low=low, high=high, blocks=blocks)

    @classmethod
    def from_arrays(
        cls,
        names: Sequence[str],
        *,
        bounds: Pairs | None = None,
        radius: float | None = None,
        public: Iterable[str] = (),
        constant: int | None = None,
        response: str = "y",
        y_bounds: Pair | None = None,
    ) -> Design:
        """Return the design of a plain matrix.

        Parameters
        ----------
        names : sequence of str
            Columns of the matrix, in order.
        bounds : sequence of (low, high), or mapping, optional
            One pair a private column, one pair a column, or pairs by name.
        radius : float, optional
            Ball for the private part of a row: in scaled units with `bounds`, in user units alone.
        public : iterable of str
            Columns sent in clear.
        constant : int, optional
            Position of the public column of ones; by default the public column named ``const``.
        response : str
            Name of the response.
        y_bounds : (low, high), optional
            Bounds that protect the response; without them it is sent in clear.

        Raises
        ------
        SensitivityError
            If a private column has neither bounds nor radius.
        SchemaError
            On reversed, equal or infinite bounds, unknown or repeated names.
        """
        listed = checked_names(names)
        if not isinstance(response, str) or not response:
            raise SchemaError("response must be the response's name")
        private = [not flag for flag in public_flags(listed, public)]
        if constant is None and CONSTANT in listed and not private[listed.index(CONSTANT)]:
            constant = listed.index(CONSTANT)
        low, high = np.array(aligned_bounds(listed, private, bounds, radius)).T
        limits = None if y_bounds is None else checked_pair(response, y_bounds)
        return cls(
            formula=None,
            schema=None,
            columns=tuple(Column(name, (Plain(name),)) for name in listed),
            private=np.array(private),
            constant=constant,
            low=low,
            high=high,
            blocks=(),
            radius=radius,
            outcome=Response(Column(response, (Plain(response),)), limits is None, limits),
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the design columns, as statsmodels would print them."""
        return tuple(column.name for column in self.columns)

    @property
    def constant_direction(self) -> Floats | None:
        """The v with ``x'v = 1`` in every row, shape (p,): the constant, all levels of a factor, or None."""
        return constant_direction(self.columns, self.constant, self.schema)

    @property
    def private_names(self) -> tuple[str, ...]:
        """Names of the private design columns."""
        return tuple(name for name, private in zip(self.names, self.private, strict=True) if private)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Columns of the data that the design matrix reads."""
        return tuple(dict.fromkeys(name for column in self.columns for name in column.inputs))

    @property
    def response(self) -> str:
        """Name of the response."""
        return self.outcome.column.name

    @property
    def response_public(self) -> bool:
        """Whether the response is sent in clear."""
        return self.outcome.public

    @property
    def y_low(self) -> float | None:
        """Lower bound of the response in user units; None if it is public."""
        return None if self.outcome.bounds is None else self.outcome.bounds.low

    @property
    def y_high(self) -> float | None:
        """Upper bound of the response in user units; None if it is public."""
        return None if self.outcome.bounds is None else self.outcome.bounds.high

    @property
    def y_center(self) -> float:
        """Centre of the scaled response; 0 if it is public or there is no constant."""
        return self.outcome.affine(centred=self.constant is not None)[0]

    @property
    def y_scale(self) -> float:
        """Unit of the scaled response; 1 if it is public."""
        return self.outcome.affine(centred=self.constant is not None)[1]

    @property
    def scaled_low(self) -> Floats:
        """Lower bounds in scaled units, shape (p,)."""
        return (self.low - self.center) / self.scale

    @property
    def scaled_high(self) -> Floats:
        """Upper bounds in scaled units, shape (p,)."""
        return (self.high - self.center) / self.scale

    @property
    def box_diameter(self) -> float:
        """Largest distance between two scaled private rows inside the bounds; inf without bounds."""
        numeric = geometry.outside(self.private, self.blocks)
        return geometry.box_diameter(((self.high - self.low) / self.scale)[numeric], self.blocks)

    @property
    def diameter(self) -> float:
        """The smaller of the box diameter and twice the radius: the replace-one sensitivity of a row."""
        ball = math.inf if self.radius is None else 2.0 * self.radius
        return min(self.box_diameter, ball)

    @property
    def norm(self) -> float:
        """Largest norm of a scaled private row."""
        numeric = geometry.outside(self.private, self.blocks)
        reach = np.maximum(np.abs(self.scaled_low), np.abs(self.scaled_high))[numeric]
        box = geometry.box_norm(reach, self.blocks)
        return box if self.radius is None else min(box, self.radius)

    @property
    def bounded(self) -> bool:
        """Whether a bound of private rows follows from the declarations: bounds of all, or a radius."""
        return self.norm < UNBOUNDED_RADIUS

    @property
    def y_diameter(self) -> float:
        """Width of the scaled response.

        Raises SensitivityError if the response is public.
        """
        bounds = self._y_bounds
        return (bounds.high - bounds.low) / self.y_scale

    @property
    def y_norm(self) -> float:
        """Largest absolute value of the scaled response.

        Raises SensitivityError if the response is public.
        """
        bounds = self._y_bounds
        return max(abs(bounds.low - self.y_center), abs(bounds.high - self.y_center)) / self.y_scale

    @property
    def to_user(self) -> tuple[Floats, Floats]:
        """T, shape (p, p), and shift, shape (p,): ``params_user = T @ params_scaled + shift``.

        The scaled model is ``(y - y_center) / y_scale = sum_j b_j (x_j - center_j) / scale_j``.
        """
        transform = np.diag(self.y_scale / self.scale)
        shift = np.zeros(len(self.columns))
        if self.constant is not None:
            transform[self.constant] -= self.y_scale * self.center / self.scale
            shift[self.constant] = self.y_center
        return self.mapped(transform), self.mapped(shift)

    @property
    def clipped_inputs(self) -> tuple[str, ...]:
        """Numbers of the data that no column has as they are: clipped before columns are made of them."""
        if self.schema is None:
            return ()
        made = [
            self.outcome.column,
            *(column for column, own in zip(self.columns, self.private, strict=True) if own),
        ]
        plain = {column.inputs[0] for column in made if column.plain}
        names = dict.fromkeys(name for column in made if not column.plain for name in column.inputs)
        declared = self.schema.columns
        return tuple(name for name in names if name not in plain and isinstance(declared.get(name), Numeric))

    def mapped(self, coefficients: Floats) -> Floats:
        """Return coefficients of `columns`, shape (p,) or (p, k), as those of `raw`: ``M^-1 b``."""
        if self.raw is None:
            return coefficients
        return np.array(np.linalg.solve(self.basis, coefficients), dtype=np.float64)

    def scaled_slopes(self, slopes: Floats) -> Floats:
        """Return private slopes, shape (number of private columns,), from user to scaled units."""
        own = np.asarray(slopes, dtype=np.float64)
        if self.raw is not None:  # raw columns that are public are made of public columns alone
            own = self.basis[np.ix_(self.private, self.private)] @ own
        return own * self.scale[self.private] / self.y_scale

    def matrix(self, table: Table, missing: Missing = "raise", *, extrapolate: bool = False) -> Floats:
        """Return the design matrix of raw rows, shape (n, p), in user units: what coefficients are about.

        Parameters
        ----------
        table : DataFrame, mapping of arrays, table with ``to_pandas``, or (n, p) array
            Raw rows; an array only where the design came from arrays.
        missing : {"raise", "impute-public"}
            Refuse missing values, or put the middle of the bounds or the first level in their place.
        extrapolate : bool
            False (holders): inputs of derived private columns are clipped to their declared bounds, so
            that ``np.log(x)`` always exists; plain columns are left for the mechanism to clip. True
            (prediction): nothing is clipped.

        Raises
        ------
        SchemaError
            On an absent column, a wrong type, an undeclared level, a missing or infinite value. The
            message names the column, never a value.

        Notes
        -----
        **Privacy.** Reads raw rows and returns them transformed: call it only where rows may be seen.
        """
        return self.user.released(table, missing, extrapolate=extrapolate)

    def released(
        self,
        table: Table,
        missing: Missing = "raise",
        *,
        extrapolate: bool = False,
        seen: set[str] | None = None,
    ) -> Floats:
        """Return the columns of raw rows that noise is for, shape (n, p); as `matrix` without a basis.

        `seen` says that `table` is a part of one (see `Reader`).
        """
        if self.is_matrix(table) and np.isfinite(table).all():
            return np.array(table)
        reader = self._reader(table, missing, seen)
        reader.open(self.inputs)
        return self.evaluate(reader, extrapolate=extrapolate)

    def evaluate(self, reader: Reader, *, extrapolate: bool = False) -> Floats:
        """Return the design matrix of opened columns, shape (n, p), in user units.

        Total unless `extrapolate`: no row of opened columns can make it fail, warn or leave the finite
        numbers. Derived private columns end up inside their bounds.

        With `extrapolate`, raises SchemaError if a derived column is not finite in some of the new rows.
        """
        result = np.empty((len(reader), len(self.columns)))
        for position, column in enumerate(self.columns):
            inside = None
            if self.private[position] and not extrapolate and not column.plain:
                inside = Interval(self.low[position], self.high[position])
            result[:, position] = _read(column, reader, inside, strict=extrapolate)
        return result

    def is_matrix(self, table: Table) -> TypeGuard[Floats]:
        """Whether `table` is the design matrix already: floats, and a design made for arrays."""
        if self.schema is not None or not isinstance(table, np.ndarray) or table.dtype != np.float64:
            return False
        return table.ndim == 2 and table.shape[1] == len(self.columns)

    def response_values(
        self, table: Table, missing: Missing = "raise", *, seen: set[str] | None = None
    ) -> Floats:
        """Return the response of raw rows, shape (n,), in user units; errors and `seen` as in `released`."""
        if isinstance(table, np.ndarray) and table.ndim == 1 and self.schema is None:
            table = {self.response: table}
        bounds = self.outcome.bounds
        middles = {} if bounds is None else {self.response: bounds.middle}
        reader = Reader(table=table, schema=self.schema, missing=missing, middles=middles, seen=seen)
        reader.open(self.outcome.column.inputs)
        return self.evaluate_response(reader)

    def evaluate_response(self, reader: Reader) -> Floats:
        """Return the response of opened columns, shape (n,), in user units; total where it is protected.

        Raises SchemaError if a response that is sent in clear is not finite in some rows, and its columns
        have no bounds.
        """
        column = self.outcome.column
        bounds = self.outcome.bounds
        declared = self.schema is not None and all(name in self.schema for name in column.inputs)
        return np.array(_read(column, reader, bounds, strict=not declared))

    def beyond(self, table: Table) -> dict[str, str]:
        """Return which columns of new rows hold values that no fit could see, and what they pass.

        Parameters
        ----------
        table : table
            New rows of a formula, not those of a fit, without missing values.

        Returns
        -------
        dict of str to str
            Names of columns, and texts that follow from the declarations alone. A spline is flat beyond its
            boundary knots; any other column was clipped to its declared bounds.
        """
        reader = self._reader(table, "raise", None)
        found = {}
        columns = self.columns if self.raw is None else self.raw
        knots = {
            piece.column: (piece.basis.lower, piece.basis.upper)
            for column in columns
            for piece in column.pieces
            if isinstance(piece, Spline)
        }
        for name in self.inputs:
            declared = None if self.schema is None or name not in self.schema else self.schema[name]
            if not isinstance(declared, Numeric):
                continue
            values = reader.number(name)
            if name in knots and _passes(values, *knots[name]):
                found[name] = FLAT_BEYOND
            elif not declared.public and _passes(values, declared.low, declared.high):
                found[name] = BEYOND_BOUNDS
        return found

    def beyond_bounds(self, rows: Floats) -> dict[str, str]:
        """Return the same of a design matrix of arrays, shape (n, p), where some entries may be nan."""
        found = {}
        for place, name in enumerate(self.names):
            low = float(self.low[place])
            high = float(self.high[place])
            if self.private[place] and math.isfinite(low) and _passes(rows[:, place], low, high):
                found[name] = BEYOND_BOUNDS
        return found

    def frame(self) -> pd.DataFrame:
        """Return made-up public rows with the columns that the formula or the matrix names."""
        if self.schema is None:
            return _made_up_arrays(self)
        known = dict.fromkeys((*self.outcome.column.inputs, *self.inputs))
        frame = self.schema.frame([name for name in known if name in self.schema])
        undeclared = [name for name in known if name not in self.schema]
        return frame.assign(**{name: np.resize([-1.0, 0.0, 1.0], len(frame)) for name in undeclared})

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able description; `from_dict` is its exact inverse."""
        return design_to_dict(self)

    @classmethod
    def from_dict(cls, content: Json) -> Design:
        """Return the design that `to_dict` described.

        Raises SchemaError if the content does not describe a design.
        """
        return design_from_dict(cls, content)

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON, in hexadecimal.

        Numbers that follow from the rest by a formula's logarithms and exponentials are left out, as
        their last bit may depend on the platform.
        """
        return canonical_digest(identity(self))

    def __eq__(self, other: object) -> bool:
        return self.to_dict() == other.to_dict() if isinstance(other, Design) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.digest)

    def __reduce__(self) -> tuple[Any, ...]:
        return Design.from_dict, (self.to_dict(),)

    def __repr__(self) -> str:
        shown = self.formula or f"{self.response} ~ {' + '.join(self.names)}"
        return f"Design({shown!r}: {len(self.columns)} columns, {int(self.private.sum())} private)"

    @property
    def _y_bounds(self) -> Interval:
        if self.outcome.bounds is None:
            raise SensitivityError(f"response {self.response!r} is sent in clear: it has no sensitivity")
        return self.outcome.bounds

    def _reader(self, table: Any, missing: Missing, seen: set[str] | None = None) -> Reader:
        if isinstance(table, np.ndarray):
            if self.schema is not None or table.ndim != 2 or table.shape[1] != len(self.columns):
                raise SchemaError(
                    f"an array of shape {table.shape} does not fit; needed: a table with the columns "
                    f"{', '.join(self.inputs)}"
                )
            table = dict(zip(self.names, table.T, strict=True))
        return Reader(
            table=table,
            schema=self.schema,
            missing=missing,
            middles=_middles(self) if self.schema is None else None,
            seen=seen,
        )


def _freeze(design: Design, **arrays: Any) -> None:
    """Put read-only copies of arrays of shape (p,) in place of the fields they name."""
    for name, values in arrays.items():
        array = np.array(values, dtype=None if name == "private" else np.float64)
        if array.shape != (len(design.columns),):
            raise SchemaError(f"{name} must have one entry a design column")
        array.setflags(write=False)
        object.__setattr__(design, name, array)


def _basis(design: Design) -> Floats:
    """Return M with ``raw = columns @ M`` of a design with an internal basis."""
    from privinf.schema.conditioning import basis_of

    if design.raw is None or tuple(column.name for column in design.raw) != design.names:
        raise SchemaError("an internal basis must have the names of the columns that it stands for")
    if design.schema is None:
        raise SchemaError("an internal basis needs a schema")
    found = basis_of(design.schema, design.columns, design.raw)
    if isinstance(found, tuple):
        raise SchemaError(f"{design.names[found[0]]!r} is no sum of the columns that stand for it")
    return found


def _check_constant(design: Design) -> None:
    constant = design.constant
    if constant is None:
        return
    if isinstance(constant, bool) or not isinstance(constant, (int, np.integer)):
        raise ArgumentError("constant must be the position of a column")
    if not 0 <= constant < len(design.columns) or design.private[constant]:
        raise SchemaError("the constant must be a column declared public")
    object.__setattr__(design, "constant", int(constant))


def _read(column: Column, reader: Reader, inside: Interval | None, *, strict: bool) -> Floats:
    """Return a column; with `inside`, its inputs are clipped first and a derived one ends up inside.

    A public column without `inside` is computed from its inputs as they are, and from clipped ones where
    that is not finite; `strict` refuses instead, for columns that belong to the caller.
    """
    if column.plain:
        return column.values(reader, clip=False)
    if inside is not None:
        return inside.inside(column.values(reader, clip=True))
    values = column.values(reader, clip=False)
    finite = np.isfinite(values)
    if finite.all():
        return values
    if strict:
        raise SchemaError(f"{column.name!r} is not finite in some rows; restrict its columns first")
    return np.where(finite, values, column.values(reader, clip=True))


def _passes(values: Floats, low: float, high: float) -> bool:
    """Return whether some values lie outside, by more than a hair of the range."""
    room = HAIR * (high - low)
    return bool(((values < low - room) | (values > high + room)).any())


def _middles(design: Design) -> dict[str, float]:
    """Return what stands in for missing values of a matrix: middles of bounds, or of the ball."""
    middles = {}
    for name, private, low, high in zip(design.names, design.private, design.low, design.high, strict=True):
        if math.isfinite(low) and math.isfinite(high):
            middles[name] = Interval(float(low), float(high)).middle
        elif private:
            middles[name] = 0.0
    return middles


def _made_up_arrays(design: Design) -> pd.DataFrame:
    import pandas as pd

    reach = 1.0 if design.radius is None else design.radius
    low = np.where(np.isfinite(design.low), design.low, -reach)
    high = np.where(np.isfinite(design.high), design.high, reach)
    values = np.array([low, 0.5 * low + 0.5 * high, high])
    if design.constant is not None:
        values[:, design.constant] = 1.0
    bounds = design.outcome.bounds or Interval(-1.0, 1.0)
    frame = pd.DataFrame(values, columns=list(design.names))
    if design.response not in frame:
        frame[design.response] = [bounds.low, bounds.middle, bounds.high]
    return frame


def check_magnitudes(design: Design) -> None:
    """Raise SchemaError for bounds so large, or so close to zero, that sums of products would overflow."""
    ends = [*zip(design.names, design.low, design.high, strict=True)]
    if design.outcome.bounds is not None:
        ends.append((design.response, design.outcome.bounds.low, design.outcome.bounds.high))
    for name, low, high in ends:
        size = max(abs(low), abs(high))
        if math.isfinite(size) and size != 0.0 and not SMALLEST_BOUND <= size <= LARGEST_BOUND:
            raise SchemaError(
                f"the bounds of {name!r} have the size {size:.3g}: sizes from {SMALLEST_BOUND:g} to "
                f"{LARGEST_BOUND:g} can be summed. Give the column another unit"
            )


def resolve_design(
    schema: Schema | Design,
    formula: str | None,
    *,
    response: ResponseMode,
    radius: float | None,
    example: str,
) -> Design:
    """Return the design of a mechanism that was given a Schema and a formula, or a Design.

    `example` is a call that is right, which the error about a missing formula shows.
    """
    if isinstance(schema, Design):
        if formula is not None:
            raise ArgumentError(
                "a Design already has its formula: pass either a Design or a Schema with formula="
            )
        return schema
    check_schema(schema)
    if formula is None:
        raise ArgumentError(f"a Schema needs a formula, for example {example}")
    return schema.design(formula, response=check_choice(response, ResponseMode, "response"), radius=radius)
