"""Columns of a design, each the product of its pieces (with none it is the constant), and the response."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, TypeAlias

import numpy as np

from privinf.error_boundary import error_boundaries
from privinf.errors import SchemaError, SensitivityError
from privinf.schema import expressions, splines
from privinf.schema.declared import Factor, Level, Numeric, finite_number
from privinf.schema.intervals import Interval
from privinf.schema.reading import Reader
from privinf.schema.splines import Basis
from privinf.schema.table import Schema
from privinf.typing import Floats, Json
from privinf.validation import nearest

# Between bounds that two platforms computed, relative to their size.
BOUND_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class _OfColumn:
    column: str

    @property
    def inputs(self) -> tuple[str, ...]:
        """Columns of the data that it reads."""
        return (self.column,)


@dataclass(frozen=True, slots=True)
class Plain(_OfColumn):
    """A numeric column as it is."""

    def interval(self, schema: Schema) -> Interval:
        """Bounds that follow from the declarations."""
        return schema.interval(self.column)

    def values(self, rows: Reader, *, clip: bool) -> Floats:
        """Values row by row."""
        return rows.ranged(self.column).values if clip else rows.number(self.column)

    def to_dict(self) -> dict[str, Any]:
        """JSON-able description."""
        return {"column": self.column}


@dataclass(frozen=True, slots=True)
class Expression:
    """A numeric expression over the whitelist of `expressions`."""

    source: str

    @property
    def inputs(self) -> tuple[str, ...]:
        """Columns of the data that it reads."""
        return expressions.inputs(self.source)

    def interval(self, schema: Schema) -> Interval:
        """Bounds that follow from the declarations."""
        return expressions.interval(self.source, schema.interval)

    def values(self, rows: Reader, *, clip: bool) -> Floats:
        """Values row by row."""
        if clip:
            result = expressions.bounded(self.source, rows.ranged)
        else:
            result = expressions.values(self.source, rows.number)
        return np.broadcast_to(result, (len(rows),))

    def to_dict(self) -> dict[str, Any]:
        """JSON-able description."""
        return {"expression": self.source}


@dataclass(frozen=True, slots=True)
class Indicator(_OfColumn):
    """One where a factor has a given level, zero elsewhere."""

    level: Level

    def interval(self, schema: Schema) -> Interval:
        """Zero to one, once the level is found among the declared levels."""
        declared = schema[self.column]
        if not isinstance(declared, Factor) or self.level not in declared.levels:
            raise SchemaError(f"column {self.column!r} has no declared level {self.level!r}")
        return Interval(0.0, 1.0)

    def values(self, rows: Reader, *, clip: bool) -> Floats:
        """Values row by row."""
        return rows.indicator(self.column, self.level)

    def to_dict(self) -> dict[str, Any]:
        """JSON-able description."""
        return {"factor": self.column, "level": self.level}


@dataclass(frozen=True, slots=True)
class Contrast(_OfColumn):
    """A public weight for each level of a factor."""

    levels: tuple[Level, ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        for name in ("levels", "weights"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        plain = all(isinstance(level, (str, int, float)) for level in self.levels)
        if not plain or not len(self.levels) == len(set(self.levels)) == len(self.weights):
            raise SchemaError("a coding must have one weight for each level")
        object.__setattr__(self, "weights", tuple(finite_number(w, "each weight") for w in self.weights))

    def interval(self, schema: Schema) -> Interval:
        """The least and the largest weight, once the levels are found to be those declared."""
        declared = schema[self.column]
        if not isinstance(declared, Factor) or set(declared.levels) != set(self.levels):
            raise SchemaError(
                f"the levels of column {self.column!r} in the schema differ from the levels of its coding in "
                "the design: create the design again from its formula with this schema"
            )
        return Interval(min(self.weights), max(self.weights))

    def values(self, rows: Reader, *, clip: bool) -> Floats:
        """Values row by row."""
        return rows.weights(self.column, dict(zip(self.levels, self.weights, strict=True)))

    def to_dict(self) -> dict[str, Any]:
        """JSON-able description."""
        return {"factor": self.column, "levels": list(self.levels), "weights": list(self.weights)}


@dataclass(frozen=True, slots=True)
class Spline(_OfColumn):
    """One function of a spline basis with public knots."""

    basis: Basis
    index: int

    def interval(self, schema: Schema) -> Interval:
        """Extremes of the basis function between its boundary knots."""
        schema.interval(self.column)
        return splines.intervals(self.basis)[self.index]

    def values(self, rows: Reader, *, clip: bool) -> Floats:
        """Values row by row; the argument is always clipped to the boundary knots."""
        return splines.intervals(self.basis)[self.index].inside(
            rows.basis(self.column, self.basis)[:, self.index]
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-able description."""
        return {"spline": self.column, "basis": self.basis.to_dict(), "index": self.index}


@dataclass(frozen=True, slots=True)
class Polynomial:
    """Legendre's polynomial of an expression, public bounds of which are moved to -1 and 1.

    Of degree 1 that is the expression, centered and scaled.
    """

    source: str
    lower: float
    upper: float
    degree: int

    def __post_init__(self) -> None:
        lower, upper = (finite_number(end, "each bound of a polynomial") for end in (self.lower, self.upper))
        if not (lower < upper and math.isfinite(upper - lower)):
            raise SchemaError("the lower bound of a polynomial must be less than its upper bound")
        if type(self.degree) is not int or not 1 <= self.degree <= splines.HIGHEST:
            raise SchemaError(
                f"the degree of a polynomial must be a whole number from 1 to {splines.HIGHEST}"
            )

    @property
    def inputs(self) -> tuple[str, ...]:
        """Columns of the data that it reads."""
        return expressions.inputs(self.source)

    def interval(self, schema: Schema) -> Interval:
        """Bounds that follow from the declarations."""
        inner = expressions.interval(self.source, schema.interval)
        low, high = self._moved(np.array([inner.low, inner.high]))
        return splines.legendre_interval(self.degree, float(low), float(high))

    def values(self, rows: Reader, *, clip: bool) -> Floats:
        """Values row by row."""
        inner = Expression(self.source).values(rows, clip=clip)
        with np.errstate(all="ignore"):
            return splines.legendre(self.degree, self._moved(inner))

    def to_dict(self) -> dict[str, Any]:
        """JSON-able description."""
        return {"polynomial": self.source, "lower": self.lower, "upper": self.upper, "degree": self.degree}

    def _moved(self, values: Floats) -> Floats:
        return ((values - self.lower) - (self.upper - values)) / (self.upper - self.lower)


# Values are row by row; with `clip` they are total, inside the interval that follows from the declarations.
Piece: TypeAlias = Plain | Expression | Indicator | Contrast | Spline | Polynomial


@dataclass(frozen=True, slots=True)
class Column:
    """A named column of the design: the product of its pieces."""

    name: str
    pieces: tuple[Piece, ...]

    @property
    def inputs(self) -> tuple[str, ...]:
        """Columns of the data that it reads."""
        if len(self.pieces) == 1:
            return self.pieces[0].inputs
        return tuple(dict.fromkeys(name for piece in self.pieces for name in piece.inputs))

    @property
    def plain(self) -> bool:
        """Whether it is one column of the data as it is."""
        return len(self.pieces) == 1 and isinstance(self.pieces[0], Plain)

    @property
    def indicator(self) -> bool:
        """Whether it is a product of indicators, so zero or one."""
        return bool(self.pieces) and all(isinstance(piece, Indicator) for piece in self.pieces)

    def is_public(self, schema: Schema) -> bool:
        """Whether every column of the data that it reads is declared public (the constant reads none)."""
        return all(schema[name].public for name in self.inputs)

    def interval(self, schema: Schema) -> Interval:
        """Bounds that follow from the declarations.

        Raises SchemaError if the product is not bounded.
        """
        bounds = [piece.interval(schema) for piece in self.pieces]
        try:
            return reduce(lambda a, b: a * b, bounds, Interval(1.0, 1.0))
        except SchemaError as error:
            raise SchemaError(f"{self.name!r} cannot be used: {error}") from None

    def check_declared(self, schema: Schema, low: float, high: float, *, private: bool) -> None:
        """Raise SchemaError unless being private, and these bounds, follow from the schema."""
        bounds = self.interval(schema)
        if private == self.is_public(schema):
            raise SchemaError(
                f"the stored design is damaged: column {self.name!r} is public in the design and "
                "private in its schema, or the reverse; create the design again from its formula"
            )
        slack = BOUND_TOLERANCE * max(bounds.largest, bounds.high - bounds.low)
        if not (abs(low - bounds.low) <= slack and abs(high - bounds.high) <= slack):
            raise SchemaError(
                f"the stored design is damaged: the bounds of {self.name!r} do not follow from its "
                "schema; create the design again from its formula"
            )

    def values(self, rows: Reader, *, clip: bool) -> Floats:
        """Values row by row, shape (n,)."""
        factors = [piece.values(rows, clip=clip) for piece in self.pieces]
        with np.errstate(all="ignore"):
            return reduce(np.multiply, factors) if factors else np.ones(len(rows))

    def values_inside(self, rows: Reader, inside: Interval | None, *, strict: bool) -> Floats:
        """Values row by row, shape (n,); finite, and inside `inside` where the column is derived.

        With `inside` the inputs are clipped to their bounds first. Without it the column is computed from its
        inputs as they are, and from clipped ones where that is not finite. A column as it is stays as it is.

        With `strict`, raises SchemaError instead where a row is not finite: for columns of the caller.
        """
        if self.plain:
            return self.values(rows, clip=False)
        if inside is not None:
            return inside.inside(self.values(rows, clip=True))
        values = self.values(rows, clip=False)
        finite = np.isfinite(values)
        if finite.all():
            return values
        if strict:
            raise SchemaError(
                f"column {self.name!r} is infinite or undefined in some rows; change the expression, or "
                "the columns that it is computed from, so that it is finite"
            )
        return np.where(finite, values, self.values(rows, clip=True))

    def to_dict(self) -> dict[str, Any]:
        """JSON-able description."""
        return {"name": self.name, "pieces": [piece.to_dict() for piece in self.pieces]}

    @classmethod
    def from_dict(cls, content: Json) -> Column:
        """Return the column that `to_dict` described; its expressions are checked again."""
        if not isinstance(content["name"], str):
            raise SchemaError("the name of a column must be a string")
        return cls(content["name"], tuple(_piece(piece) for piece in content["pieces"]))


def _piece(content: Json) -> Piece:
    if "column" in content:
        return Plain(content["column"])
    if "expression" in content:
        expressions.parse(content["expression"])
        return Expression(content["expression"])
    if "weights" in content:
        return Contrast(content["factor"], content["levels"], content["weights"])
    if "factor" in content:
        return Indicator(content["factor"], content["level"])
    if "polynomial" in content:
        expressions.parse(content["polynomial"])
        return Polynomial(content["polynomial"], content["lower"], content["upper"], content["degree"])
    return Spline(content["spline"], Basis(**content["basis"]), content["index"])


@error_boundaries
@dataclass(frozen=True, slots=True)
class Response:
    """The response of a design.

    Attributes
    ----------
    column : Column
        Column of the response.
    public : bool
        Whether the response is sent unprotected; it then has no bounds.
    bounds : Interval or None
        Public bounds in user units; None where `public`.

    Raises
    ------
    SchemaError
        If a protected response has no bounds, or only one possible value.
    """

    column: Column
    public: bool
    bounds: Interval | None

    def __post_init__(self) -> None:
        if self.public != (self.bounds is None):
            raise SchemaError(
                "a protected response must have bounds, and a public response must not have bounds"
            )
        if self.bounds is not None and not self.bounds.low < self.bounds.high:
            raise SchemaError(
                f"response {self.column.name!r} is constant over the declared bounds: "
                "use another response, or declare wider bounds"
            )

    @classmethod
    def declared(cls, schema: Schema, column: Column, *, public: bool) -> Response:
        """Return the response with bounds from the schema.

        Raises SchemaError if it is to be protected and a column that it is made of is not declared.
        """
        unknown = [name for name in column.inputs if name not in schema]
        if not public and unknown:
            hint = nearest(unknown[0], schema.columns)
            hint += "" if hint.endswith("?") else "."
            raise SchemaError(
                f"response column {unknown[0]!r} is not in the schema; {hint} "
                "Correct the name, declare its bounds, or pass response='public' (Design, "
                "ModulatedOLS) to leave it unprotected"
            )
        if public or column.is_public(schema):
            return cls(column, True, None)
        return cls(column, False, column.interval(schema))

    def to_dict(self) -> dict[str, Any]:
        """JSON-able description, numbers exact."""
        bounds = None if self.bounds is None else [self.bounds.low, self.bounds.high]
        return {"column": self.column.to_dict(), "public": self.public, "bounds": bounds}

    @classmethod
    def from_dict(cls, content: Json) -> Response:
        """Return the response that `to_dict` described."""
        bounds = None if content["bounds"] is None else Interval(*content["bounds"])
        return cls(Column.from_dict(content["column"]), content["public"], bounds)

    @property
    def level(self) -> Level | None:
        """Level that counts as 1, of a factor with two levels; None where the response is a number."""
        match self.column.pieces:
            case (Indicator(level=level),):
                return level
        return None

    @property
    def protected_bounds(self) -> Interval:
        """Bounds of a protected response; SensitivityError for a public one, which has no sensitivity."""
        if self.bounds is None:
            raise SensitivityError(
                f"the response {self.column.name!r} has no sensitivity, because it is released without "
                "protection: to protect it, omit response='public' and declare its bounds"
            )
        return self.bounds

    def affine(self, *, centred: bool) -> tuple[float, float]:
        """Return center and scale: middle and half range, or 0 and the largest size; 0 and 1 if public."""
        if self.bounds is None:
            return 0.0, 1.0
        if not centred:
            return 0.0, self.bounds.largest
        return self.bounds.middle, 0.5 * (self.bounds.high - self.bounds.low)


def inputs_of(columns: Sequence[Column]) -> tuple[str, ...]:
    """Return the columns of the data that some columns read."""
    return tuple(dict.fromkeys(name for column in columns for name in column.inputs))


def constant_direction(
    columns: tuple[Column, ...], constant: int | None, schema: Schema | None
) -> Floats | None:
    """Return v with ``x'v = 1`` in every row, shape (p,), or None where the columns imply no such v.

    Notes
    -----
    v selects the constant, or all levels of a factor (all cells of several) in a formula without constant.
    """
    if constant is not None:
        return np.asarray(np.arange(len(columns)) == constant, dtype=np.float64)
    cells: dict[tuple[str, ...], list[int]] = {}
    for place, column in enumerate(columns):
        if column.pieces and all(isinstance(piece, Indicator) for piece in column.pieces):
            cells.setdefault(tuple(sorted(column.inputs)), []).append(place)
    for factors, places in cells.items():
        declared = [None if schema is None else schema[name] for name in factors]
        sizes = [len(factor.levels) if isinstance(factor, Factor) else 0 for factor in declared]
        if len(places) == np.prod(sizes):
            return np.isin(np.arange(len(columns)), places).astype(np.float64)
    return None


def clipped_inputs(columns: Sequence[Column], schema: Schema) -> tuple[str, ...]:
    """Return the numbers of the data that columns are computed from and that no column is by itself.

    They are clipped to their bounds before the columns are computed.
    """
    plain = {column.inputs[0] for column in columns if column.plain}
    names = dict.fromkeys(name for column in columns if not column.plain for name in column.inputs)
    declared = schema.columns
    return tuple(name for name in names if name not in plain and isinstance(declared.get(name), Numeric))
