"""Designs: the frozen, public description of the columns, bounds and scaling that a release needs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from privinf.error_boundary import error_boundaries
from privinf.errors import ArgumentError, PrivinfError, SchemaError
from privinf.schema import conditioning, geometry
from privinf.schema.declared import checked_names
from privinf.schema.extrapolation import columns_beyond, inputs_beyond
from privinf.schema.formulas import FormulaColumns, formula_columns, refuse_response, terms_by_column
from privinf.schema.intervals import Interval
from privinf.schema.matrix_columns import matrix_columns, simulated_rows
from privinf.schema.row_reading import RowReading
from privinf.schema.table import Schema, canonical_digest, check_schema
from privinf.schema.terms import Column, Response, clipped_inputs, constant_direction, inputs_of
from privinf.typing import Flags, Floats, Json, Missing, Pair, Pairs, ResponseMode, Table
from privinf.validation import check_choice, check_positive

# Version of the description that `Design.to_dict` writes.
FORMAT = 1
DAMAGED = (
    "the stored content does not describe a design, or is damaged: create the design again from its formula"
)

if TYPE_CHECKING:
    import pandas as pd


@error_boundaries
@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Design:
    """Columns of a regression, their public bounds, and the scaling to the units in which noise is added.

    A design is made by `Design.from_formula` or `Design.from_arrays`, from public declarations alone.

    Attributes
    ----------
    formula : str or None
        Formula of the design; None if the design was made from arrays.
    schema : Schema or None
        Schema of the columns; None if the design was made from arrays.
    columns : tuple of columns
        Columns of the design matrix in order; p is their number.
    private : ndarray of bool, shape (p,)
        For each column of the design matrix, False if all columns from which it is computed are declared
        public, and True otherwise.
    constant : int or None
        Position of the public column of ones (the constant); None without a constant.
    low, high : ndarray, shape (p,)
        Bounds of the columns in the units of the data. A column without declared bounds has infinite bounds.
        Public columns may have no declared bounds. If only `radius` is declared, no column has declared
        bounds.
    center, scale : ndarray, shape (p,)
        Center and scale of each column: ``scaled = (x - center) / scale``. In scaled units, the bounds of
        numeric private columns are [-1, 1]. Public columns and indicators are not scaled.
    blocks : tuple of tuple of int
        Private indicator columns of which at most one is 1 in any row.
    radius : float or None
        Radius of the ball that contains the private columns of every row, in scaled units; None without a
        radius.
    outcome : Response
        Response and its public bounds.
    raw : tuple of columns, or None
        Columns of the user's formula, to which the reported coefficients belong, if `columns` are internal
        columns (see `conditioned`).
    basis : ndarray, shape (p, p)
        Matrix M that turns a row of `columns` into a row of `raw`: ``raw = columns @ M``. M is the identity
        matrix if `columns` are the columns of the user's formula.

    Notes
    -----
    **Privacy.** A design is public. Neighboring tables differ in one row (replace-one), so the sensitivity is
    `diameter`: the largest distance between the scaled private columns of two rows.
    """

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
    raw: tuple[Column, ...] | None = None
    center: Floats = field(init=False)
    scale: Floats = field(init=False)
    basis: Floats = field(init=False)
    _digest: str = field(init=False, default="")  # computed when it is first requested

    def __post_init__(self) -> None:
        checked_names(self.names)
        if self.radius is not None:
            object.__setattr__(self, "radius", check_positive(self.radius, "radius"))
        _freeze(self, private=np.array(self.private, dtype=bool), low=self.low, high=self.high)
        object.__setattr__(self, "constant", geometry.checked_constant(self.constant, self.private))
        geometry.check_geometry(self.columns, self.private, self.low, self.high, self.blocks, self.radius)
        scaled = self.private & ~np.array([column.indicator for column in self.columns])
        center, scale = geometry.scaling(self.low, self.high, scaled, centred=self.constant is not None)
        _freeze(self, center=center, scale=scale)
        if self.raw is None:
            basis = np.eye(len(self.columns))
        else:
            basis = conditioning.checked_basis(self.schema, self.columns, self.raw)
        basis.setflags(write=False)
        object.__setattr__(self, "basis", basis)

    def conditioned(self) -> Design:
        """Return an equivalent design in which products are centered and powers are orthogonal.

        Noise is added to the internal columns, and not to the columns of the user's formula. Internal columns
        are products and powers that are centered, or orthogonal to the columns from which they are computed.
        The attribute `basis` converts the coefficients of internal columns exactly to coefficients of the
        user's columns. A product or power is replaced by its centered or orthogonal version only if this
        version is a linear combination of the columns of the formula.

        Returns
        -------
        Design
            The equivalent design, or this design if nothing is changed.
        """
        products = [column for column in self.columns if not column.plain and not column.indicator]
        if self.schema is None or self.raw is not None or not any(column.pieces for column in products):
            return self
        internal = conditioning.internal_columns(self.schema, self.columns)
        if internal == self.columns:
            return self
        low, high = _ends(internal, self.schema)
        blocks = self.blocks + conditioning.new_blocks(self.columns, internal, self.private)
        return replace(self, columns=internal, raw=self.columns, low=low, high=high, blocks=blocks)

    @property
    def user(self) -> Design:
        """The same design with the columns of the user's formula instead of internal columns."""
        if self.raw is None or self.schema is None:
            return self
        low, high = _ends(self.raw, self.schema)
        blocks = tuple(block for block in self.blocks if all(self.raw[j].indicator for j in block))
        return replace(self, columns=self.raw, raw=None, low=low, high=high, blocks=blocks)

    @classmethod
    def from_formula(
        cls,
        formula: str,
        schema: Schema,
        *,
        response: ResponseMode = "protected",
        radius: float | None = None,
    ) -> Design:
        """Make the design of a formula from public declarations alone.

        Parameters
        ----------
        formula : str
            A patsy formula. A formula may contain columns, ``C()`` with Treatment, Sum, Helmert and levels=,
            ``I()``, ``Q()``, arithmetic, fixed powers, comparisons, ``np.where``, ``np.clip``, ``np.log`` and
            similar functions. A formula may also contain ``poly(x, degree)``, ``bs`` and ``cr`` with knots
            and both bounds, and ``center`` and ``standardize`` of columns whose center and scale the schema
            declares.
        schema : Schema
            Public bounds and levels of the columns that the formula names.
        response : {"protected", "public"}
            Whether noise is added to the response ("protected"), or the response is released as it is
            ("public"). A response that is computed from public columns is never protected.
        radius : float, optional
            Radius, in scaled units, of the ball onto which the private columns of each row are projected.

        Returns
        -------
        Design
            Columns, bounds and scaling of the regression, p columns in patsy's order.

        Raises
        ------
        SchemaError
            Raised if the formula names unknown columns, has a term for which no bounds follow from the
            schema, or has its response among the columns.
        ArgumentError
            Raised if `schema` is not a Schema, `radius` is not positive, or `response` is neither "protected"
            nor "public".

        Notes
        -----
        **Privacy.** Costs nothing: the design is computed from the formula and the schema, which are public.

        Examples
        --------
        >>> import privinf as pi
        >>> schema = pi.Schema({"wage": (0, 200), "age": (18, 90), "region": ["north", "south"]})
        >>> design = pi.Design.from_formula("wage ~ age + region", schema)
        >>> design.names, design.diameter
        (('Intercept', 'region[T.south]', 'age'), 2.23606797749979)
        """
        check_schema(schema)
        check_choice(response, ResponseMode, "response")
        coded = formula_columns(formula, schema, response_public=response == "public")
        design = design_of(coded, schema, radius=radius)
        refuse_response(formula, schema, coded.columns, coded.response.column)
        return design

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
        """Make the design of a matrix of numbers, without a formula.

        Parameters
        ----------
        names : sequence of str
            Columns of the matrix, in order.
        bounds : sequence of (low, high), or mapping, optional
            Public bounds of the columns: pairs (low, high) in order, for all columns or for the private
            columns, or a mapping from names of columns to pairs.
        radius : float, optional
            Radius of the ball that contains the private columns of every row. The radius is in scaled units
            if `bounds` is passed, and otherwise in the units of the data.
        public : iterable of str
            Public columns, which are not protected.
        constant : int, optional
            Position of the public column of ones. The default is the public column named ``const``.
        response : str
            Name of the response.
        y_bounds : (low, high), optional
            Public bounds of the response. With bounds, noise is added to the response. Without bounds, the
            response is released unprotected.

        Returns
        -------
        Design
            The design.

        Raises
        ------
        SensitivityError
            Raised if a private column has neither bounds nor radius.
        SchemaError
            Raised if bounds are reversed, equal or infinite, or if names are unknown or repeated.
        """
        columns = matrix_columns(
            names,
            bounds=bounds,
            radius=radius,
            public=public,
            constant=constant,
            response=response,
            y_bounds=y_bounds,
        )
        return cls(formula=None, schema=None, blocks=(), radius=radius, **columns)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns of the design matrix, as statsmodels would print them."""
        return tuple(column.name for column in self.columns)

    @property
    def constant_direction(self) -> Floats | None:
        """Vector v, shape (p,), with ``x'v = 1`` for every row x; None if no such v exists."""
        return constant_direction(self.columns, self.constant, self.schema)

    @property
    def terms(self) -> dict[str, str]:
        """Name of the term of the formula to which each column belongs, as patsy writes it.

        The attribute raises SchemaError if the design was not made from a formula.
        """
        if self.formula is None or self.schema is None:
            raise SchemaError("this design was made from arrays, not from a formula, and has no terms")
        return terms_by_column(self.formula, self.schema)

    @property
    def private_names(self) -> tuple[str, ...]:
        """Names of the private columns of the design matrix."""
        return tuple(name for name, private in zip(self.names, self.private, strict=True) if private)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the columns of the data from which the design matrix is computed."""
        return inputs_of(self.columns)

    @property
    def response(self) -> str:
        """Name of the response."""
        return self.outcome.column.name

    @property
    def response_public(self) -> bool:
        """Whether the response is public. A public response is released unprotected."""
        return self.outcome.public

    @property
    def y_low(self) -> float | None:
        """Lower bound of the response in the units of the data; None if the response is public."""
        return None if self.outcome.bounds is None else self.outcome.bounds.low

    @property
    def y_high(self) -> float | None:
        """Upper bound of the response in the units of the data; None if the response is public."""
        return None if self.outcome.bounds is None else self.outcome.bounds.high

    @property
    def y_center(self) -> float:
        """Value of the response that is 0 in scaled units; 0 for a public response or without a constant."""
        return self.outcome.affine(centred=self.constant is not None)[0]

    @property
    def y_scale(self) -> float:
        """Size of one scaled unit of the response, in the units of the data; 1 if the response is public."""
        return self.outcome.affine(centred=self.constant is not None)[1]

    @property
    def scaled_low(self) -> Floats:
        """Lower bounds of the columns in scaled units, shape (p,)."""
        return (self.low - self.center) / self.scale

    @property
    def scaled_high(self) -> Floats:
        """Upper bounds of the columns in scaled units, shape (p,)."""
        return (self.high - self.center) / self.scale

    @property
    def box_diameter(self) -> float:
        """Largest distance, in scaled units, between the private columns of two rows; inf without bounds."""
        numeric = geometry.outside(self.private, self.blocks)
        return geometry.box_diameter(((self.high - self.low) / self.scale)[numeric], self.blocks)

    @property
    def diameter(self) -> float:
        """Replace-one sensitivity of a row: the smaller of `box_diameter` and twice the radius."""
        ball = math.inf if self.radius is None else 2.0 * self.radius
        return min(self.box_diameter, ball)

    @property
    def norm(self) -> float:
        """Largest norm of the private columns of a row, in scaled units."""
        numeric = geometry.outside(self.private, self.blocks)
        reach = np.maximum(np.abs(self.scaled_low), np.abs(self.scaled_high))[numeric]
        box = geometry.box_norm(reach, self.blocks)
        return box if self.radius is None else min(box, self.radius)

    @property
    def bounded(self) -> bool:
        """Whether the private columns are bounded, by the bounds of all columns or by a radius."""
        return self.norm < geometry.UNBOUNDED_RADIUS

    @property
    def y_diameter(self) -> float:
        """Width of the scaled response.

        The attribute raises SensitivityError if the response is public.
        """
        bounds = self.outcome.protected_bounds
        return (bounds.high - bounds.low) / self.y_scale

    @property
    def y_norm(self) -> float:
        """Largest absolute value of the scaled response.

        The attribute raises SensitivityError if the response is public.
        """
        bounds = self.outcome.protected_bounds
        return max(abs(bounds.low - self.y_center), abs(bounds.high - self.y_center)) / self.y_scale

    @property
    def to_user(self) -> tuple[Floats, Floats]:
        """Matrix T (p, p) and vector shift (p,) of the map ``params_user = T @ params_scaled + shift``.

        The scaled model is ``(y - y_center) / y_scale = sum_j b_j (x_j - center_j) / scale_j``.
        """
        transform, shift = geometry.to_user(
            self.center, self.scale, self.outcome.affine(centred=self.constant is not None), self.constant
        )
        return self.mapped(transform), self.mapped(shift)

    @property
    def reading(self) -> RowReading:
        """Rules by which the design matrix and the response are computed from raw rows."""
        return RowReading(
            schema=self.schema,
            columns=self.columns,
            private=self.private,
            low=self.low,
            high=self.high,
            outcome=self.outcome,
        )

    @property
    def clipped_inputs(self) -> tuple[str, ...]:
        """Numeric columns that are clipped to their bounds before terms are computed from them."""
        if self.schema is None:
            return ()
        private_columns = (column for column, flag in zip(self.columns, self.private, strict=True) if flag)
        return clipped_inputs((self.outcome.column, *private_columns), self.schema)

    def mapped(self, coefficients: Floats) -> Floats:
        """Convert coefficients b of the internal columns to coefficients ``M^-1 b`` of the user's columns.

        Parameters
        ----------
        coefficients : ndarray, shape (p,) or (p, k)
            Coefficients of `columns`.

        Returns
        -------
        ndarray of the same shape
            Coefficients of `raw`.
        """
        if self.raw is None:
            return coefficients
        return np.array(np.linalg.solve(self.basis, coefficients), dtype=np.float64)

    def scaled_slopes(self, slopes: Floats) -> Floats:
        """Convert the coefficients of private columns from the units of the data to scaled units.

        Parameters
        ----------
        slopes : ndarray, shape (number of private columns,)
            Slopes in the units of the data.

        Returns
        -------
        ndarray of the same shape
            Slopes in scaled units.
        """
        private_slopes = np.asarray(slopes, dtype=np.float64)
        if self.raw is not None:  # raw columns that are public are made of public columns alone
            private_slopes = self.basis[np.ix_(self.private, self.private)] @ private_slopes
        return private_slopes * self.scale[self.private] / self.y_scale

    def matrix(self, table: Table, missing: Missing = "raise", *, extrapolate: bool = False) -> Floats:
        """Return the design matrix of raw rows, shape (n, p), in the units of the data.

        Parameters
        ----------
        table : DataFrame, mapping of arrays, table with ``to_pandas``, or (n, p) array
            Raw rows. An array is accepted only if the design was made from arrays.
        missing : {"raise", "impute-public"}
            Handling of missing values: refuse them, or impute the middle of the bounds (for a factor, its
            first level).
        extrapolate : bool
            Whether values outside the declared bounds are used as they are. With False (for holders of the
            rows), columns from which private terms are computed are clipped to their bounds, so that terms
            such as ``np.log(x)`` always exist. Columns that the formula uses without a transformation are not
            clipped here, because the mechanism clips them. With True (for predictions), nothing is clipped.

        Returns
        -------
        ndarray, shape (n, p)
            The design matrix.

        Raises
        ------
        SchemaError
            Raised if a column is absent, has a type or a level that differs from its declaration, or has a
            missing or infinite value. The message names the column, never a value.

        Notes
        -----
        **Privacy.** The method reads raw rows and returns transformed raw rows, without noise. Call it only
        where raw rows may be seen.
        """
        return self.user.released(table, missing, extrapolate=extrapolate)

    def released(
        self,
        table: Table,
        missing: Missing = "raise",
        *,
        extrapolate: bool = False,
        seen_levels: set[str] | None = None,
    ) -> Floats:
        """Return the columns of the user's formula, computed from raw rows, without noise.

        Parameters
        ----------
        table : DataFrame, mapping of arrays, table with ``to_pandas``, or (n, p) array
            Raw rows. An array is accepted only if the design was made from arrays.
        missing : {"raise", "impute-public"}
            Whether missing values are refused, or replaced by the middle of the bounds (for a factor, by its
            first level).
        extrapolate : bool
            Whether values outside the declared bounds are used as they are. With False (for holders of the
            rows), columns from which private terms are computed are clipped to their bounds. With True (for
            predictions), nothing is clipped.
        seen_levels : set of str, optional
            Levels that occurred in earlier blocks, if `table` is one block of a larger table.

        Returns
        -------
        ndarray, shape (n, p)
            The columns, in the units of the data.

        Notes
        -----
        **Privacy.** The method reads raw rows and returns transformed raw rows, without noise. Call it only
        where raw rows may be seen.
        """
        return self.reading.features(table, missing, extrapolate=extrapolate, seen_levels=seen_levels)

    def response_values(
        self, table: Table, missing: Missing = "raise", *, seen_levels: set[str] | None = None
    ) -> Floats:
        """Return the response, computed from raw rows, in the units of the data.

        Parameters
        ----------
        table : DataFrame, mapping of arrays, or table with ``to_pandas``
            Raw rows.
        missing : {"raise", "impute-public"}
            Whether missing values are refused, or replaced by the middle of the bounds (for a factor, by its
            first level).
        seen_levels : set of str, optional
            Levels that occurred in earlier blocks, if `table` is one block of a larger table.

        Returns
        -------
        ndarray, shape (n,)
            The response.

        Raises
        ------
        SchemaError
            Raised if a column is absent, has a type or a level that differs from its declaration, or has a
            missing or infinite value. The message names the column, never a value.

        Notes
        -----
        **Privacy.** The method reads raw rows and returns transformed raw rows, without noise. Call it only
        where raw rows may be seen.
        """
        return self.reading.response(table, missing, seen_levels=seen_levels)

    def beyond(self, table: Table) -> dict[str, str]:
        """Find the columns of new rows that have values outside the bounds or the knots of the fit.

        Parameters
        ----------
        table : table
            New rows with the columns of the formula, without missing values. Do not pass the rows to which
            the model was fitted: the texts state numbers of rows.

        Returns
        -------
        dict of str to str
            Names of the columns with values beyond their bounds or knots, and a text about each column. A
            text states which bound or boundary knot is passed in how many of the new rows, and what the fit
            does there: a spline is constant, and other columns were clipped to their declared bounds.
        """
        reader = self.reading.open(table, "raise")
        return inputs_beyond(self.inputs, self.raw or self.columns, self.schema, reader)

    def beyond_bounds(self, rows: Floats) -> dict[str, str]:
        """Find the columns of a design matrix that have values outside their bounds.

        Parameters
        ----------
        rows : ndarray, shape (n, p)
            Design matrix of new rows; some entries may be nan.

        Returns
        -------
        dict of str to str
            A text for each column that is outside its bounds.
        """
        return columns_beyond(self.names, self.private, self.low, self.high, rows)

    def frame(self) -> pd.DataFrame:
        """Return simulated rows, made from public declarations, with the columns that the formula names.

        Returns
        -------
        DataFrame
            Simulated rows. Together they contain the lower bound, the middle and the upper bound of each
            numeric column, and every level of each factor.
        """
        if self.schema is None:
            return simulated_rows(
                self.names,
                self.low,
                self.high,
                reach=1.0 if self.radius is None else self.radius,
                constant=self.constant,
                response=self.response,
                y_bounds=self.outcome.bounds or Interval(-1.0, 1.0),
            )
        inputs = dict.fromkeys((*self.outcome.column.inputs, *self.inputs))
        frame = self.schema.frame([name for name in inputs if name in self.schema])
        undeclared = [name for name in inputs if name not in self.schema]
        return frame.assign(**{name: np.resize([-1.0, 0.0, 1.0], len(frame)) for name in undeclared})

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary that can be written as JSON; `from_dict` is its exact inverse.

        Returns
        -------
        dict
            For `from_dict`.
        """
        raw = {} if self.raw is None else {"raw": [column.to_dict() for column in self.raw]}
        return raw | {
            "format": FORMAT,
            "formula": self.formula,
            "schema": None if self.schema is None else self.schema.to_dict(),
            "columns": [column.to_dict() for column in self.columns],
            "private": self.private.tolist(),
            "constant": self.constant,
            "low": _finite_or_none(self.low),
            "high": _finite_or_none(self.high),
            "blocks": [list(block) for block in self.blocks],
            "radius": self.radius,
            "outcome": self.outcome.to_dict(),
        }

    @classmethod
    def from_dict(cls, content: Json) -> Design:
        """Make a design from a dictionary that `to_dict` returned.

        Parameters
        ----------
        content : mapping
            Result of `to_dict`.

        Returns
        -------
        Design
            The same design.

        Raises
        ------
        SchemaError
            Raised if the dictionary does not describe a design, or if its design does not follow from its
            schema.
        """
        try:
            design = _described(content)
        except PrivinfError:
            raise
        except (LookupError, TypeError, AttributeError, ValueError, OverflowError, RecursionError):
            raise SchemaError(DAMAGED) from None
        _check_declared(design)
        return design

    @property
    def digest(self) -> str:
        """SHA-256 digest of the canonical JSON text of the design, in hexadecimal.

        Bounds that follow from the schema are not in the digest, because logarithms and exponentials in these
        bounds may differ in their last bit between platforms.
        """
        if not self._digest:
            object.__setattr__(self, "_digest", _digest_of(self))
        return self._digest

    def __eq__(self, other: object) -> bool:
        return _are_equal(self, other) if isinstance(other, Design) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.digest)

    def __reduce__(self) -> tuple[Any, ...]:
        return Design.from_dict, (self.to_dict(),)

    def __repr__(self) -> str:
        private = int(self.private.sum())
        return f"Design({formula_text(self)!r}: {len(self.columns)} columns, {private} private)"


def formula_text(design: Design) -> str:
    """Return the formula of a design; for a design of arrays, its response and columns as a formula."""
    return design.formula or f"{design.response} ~ {' + '.join(design.names)}"


def design_of(coded: FormulaColumns, schema: Schema, *, radius: float | None) -> Design:
    """Return the design of a formula's columns; its response may be among them."""
    return Design(
        formula=coded.formula,
        schema=schema,
        columns=coded.columns,
        private=np.array(coded.private),
        constant=coded.intercept,
        low=np.array([pair.low for pair in coded.bounds]),
        high=np.array([pair.high for pair in coded.bounds]),
        blocks=coded.exclusive,
        radius=radius,
        outcome=coded.response,
    )


def _described(content: Json) -> Design:
    """Return the design that `Design.to_dict` described, with whatever error the content brings."""
    if content["format"] != FORMAT:
        raise SchemaError(
            "the stored design has a format version that this version of privinf cannot read; create the "
            "design again from its formula"
        )
    return Design(
        formula=content["formula"],
        schema=None if content["schema"] is None else Schema.from_dict(content["schema"]),
        columns=tuple(Column.from_dict(column) for column in content["columns"]),
        private=np.array(content["private"], dtype=bool),
        constant=content["constant"],
        low=np.array([-math.inf if end is None else end for end in content["low"]], dtype=float),
        high=np.array([math.inf if end is None else end for end in content["high"]], dtype=float),
        blocks=tuple(tuple(block) for block in content["blocks"]),
        radius=content["radius"],
        outcome=Response.from_dict(content["outcome"]),
        raw=tuple(Column.from_dict(column) for column in content["raw"]) if "raw" in content else None,
    )


def _check_declared(design: Design) -> None:
    """Raise SchemaError unless a design that came from elsewhere follows from its own schema."""
    schema = design.schema
    outcome = design.outcome
    if schema is None:
        return
    for j, column in enumerate(design.columns):
        column.check_declared(schema, design.low[j], design.high[j], private=bool(design.private[j]))
    if design.constant is not None and design.columns[design.constant].pieces:
        raise SchemaError(
            "the stored design is damaged: its constant column depends on other columns; "
            "create the design again from its formula"
        )
    if outcome.bounds is not None:
        outcome.column.check_declared(schema, outcome.bounds.low, outcome.bounds.high, private=True)


def _finite_or_none(values: Floats) -> list[float | None]:
    return [float(value) if math.isfinite(value) else None for value in values]


def _ends(columns: Sequence[Column], schema: Schema) -> tuple[Floats, Floats]:
    """Return the bounds that follow from the schema, each of shape (p,), in the units of the data."""
    bounds = [column.interval(schema) for column in columns]
    return np.array([interval.low for interval in bounds]), np.array([interval.high for interval in bounds])


def _freeze(design: Design, **arrays: Any) -> None:
    """Put read-only copies of arrays of shape (p,) in place of the fields they name."""
    for name, values in arrays.items():
        array = np.array(values, dtype=None if name == "private" else np.float64)
        if array.shape != (len(design.columns),):
            raise SchemaError(f"{name} must have one entry for each column of the design")
        array.setflags(write=False)
        object.__setattr__(design, name, array)


def _are_equal(one: Design, other: Design) -> bool:
    """Return whether two designs have the same content."""
    return one is other or one.to_dict() == other.to_dict()


def _digest_of(design: Design) -> str:
    """Return the digest of a design's content, without the bounds that follow from its schema."""
    content = design.to_dict()
    if design.schema is not None:
        del content["low"], content["high"], content["outcome"]["bounds"]
    return canonical_digest(content)


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
                "formula= cannot be used with a Design, which already has a formula: pass a "
                "Design alone, or a Schema with formula="
            )
        return schema
    check_schema(schema)
    if formula is None:
        raise ArgumentError(f"formula= is missing: a Schema needs a formula, for example {example}")
    return Design.from_formula(formula, schema, response=response, radius=radius)


def refuse_dependent(design: Design, without_coefficients: Iterable[str] = ()) -> None:
    """Raise SchemaError if columns of the formula are linearly dependent for all rows.

    The formula and the schema decide, so a model refuses such a formula before it reads or charges. Columns
    without coefficients, such as an offset, may depend on others.
    """
    apart = set(without_coefficients)
    columns = [column for column in design.conditioned().columns if column.name not in apart]
    conditioning.refuse_dependent(design.schema, columns)
