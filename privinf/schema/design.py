"""Designs: the frozen, public description of the columns, bounds and scaling that a release needs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from privinf.errors import ArgumentError, SchemaError, SensitivityError
from privinf.schema.declared import Schema, canonical_digest, midpoint
from privinf.schema.intervals import Interval
from privinf.schema.rows import Rows
from privinf.schema.terms import Column, Plain
from privinf.typing import Flags, Floats, Json, Missing
from privinf.validation import check_positive

if TYPE_CHECKING:
    import pandas as pd

CONSTANT = "const"
PUBLIC_MARK = "privinf_public"
FORMAT = 1


@dataclass(frozen=True, slots=True)
class Response:
    """The response of a design.

    Attributes
    ----------
    column : Column
        What it is made of.
    public : bool
        Sent in clear; then it has no bounds.
    bounds : Interval or None
        Public bounds in user units; None where `public`.
    """

    column: Column
    public: bool
    bounds: Interval | None

    def __post_init__(self) -> None:
        if self.public != (self.bounds is None):
            raise SchemaError("a response has bounds if and only if it is protected")
        if self.bounds is not None and not self.bounds.low < self.bounds.high:
            raise SchemaError(f"response {self.column.name!r} is constant over the declared bounds")

    @classmethod
    def declared(cls, schema: Schema, column: Column, *, public: bool) -> Response:
        """Return the response with bounds from the schema.

        Raises
        ------
        SchemaError
            If it is to be protected and a column that it is made of is not declared.
        """
        unknown = [name for name in column.inputs if name not in schema]
        if not public and unknown:
            raise SchemaError(
                f"response column {unknown[0]!r} is not in the schema: declare its bounds, or ask for "
                "response='public' to send it in clear"
            )
        if public or all(schema[name].public for name in column.inputs):
            return cls(column, True, None)
        return cls(column, False, column.interval(schema))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Design:
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

    Notes
    -----
    **Privacy.** Public. Sensitivities are for replacing one row: `diameter` is the largest distance
    between the scaled private parts of two rows.
    """

    formula: str | None
    schema: Schema | None
    columns: tuple[Column, ...]
    private: Flags
    constant: int | None
    low: Floats
    high: Floats
    center: Floats
    scale: Floats
    blocks: tuple[tuple[int, ...], ...]
    radius: float | None
    outcome: Response

    def __post_init__(self) -> None:
        if self.radius is not None:
            object.__setattr__(self, "radius", check_positive(self.radius, "radius"))
        for name in ("private", "low", "high", "center", "scale"):
            array = np.array(getattr(self, name), dtype=bool if name == "private" else np.float64)
            if array.shape != (len(self.columns),):
                raise SchemaError(f"{name} must have one entry a design column")
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        _check_design(self)

    @classmethod
    def from_arrays(
        cls,
        names: Sequence[str],
        *,
        bounds: Sequence[tuple[float, float]] | Mapping[str, tuple[float, float]] | None = None,
        radius: float | None = None,
        public: Iterable[str] = (),
        constant: int | None = None,
        response: str = "y",
        y_bounds: tuple[float, float] | None = None,
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
        listed = _checked_names(names)
        declared = tuple(public)
        if unknown := [name for name in declared if name not in listed]:
            raise SchemaError(f"public column {unknown[0]!r} is not among {', '.join(listed)}")
        private = np.array([name not in declared for name in listed], dtype=bool)
        if constant is None and CONSTANT in declared:
            constant = listed.index(CONSTANT)
        pairs = _aligned_bounds(listed, private, bounds, radius)
        center, scale = _scaling(pairs, private, np.zeros(len(listed), dtype=bool), constant)
        limits = None if y_bounds is None else _pair(response, y_bounds)
        return cls(
            formula=None,
            schema=None,
            columns=tuple(Column(name, (Plain(name),)) for name in listed),
            private=private,
            constant=constant,
            low=np.array([-math.inf if pair is None else pair.low for pair in pairs]),
            high=np.array([math.inf if pair is None else pair.high for pair in pairs]),
            center=center,
            scale=scale,
            blocks=(),
            radius=radius,
            outcome=Response(Column(response, (Plain(response),)), limits is None, limits),
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the design columns, as statsmodels would print them."""
        return tuple(column.name for column in self.columns)

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
        bounds = self.outcome.bounds
        return 0.0 if bounds is None or self.constant is None else midpoint(bounds)

    @property
    def y_scale(self) -> float:
        """Unit of the scaled response; 1 if it is public."""
        bounds = self.outcome.bounds
        if bounds is None:
            return 1.0
        if self.constant is None:
            return max(abs(bounds.low), abs(bounds.high))
        return 0.5 * (bounds.high - bounds.low)

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
        numeric = self._private_numeric
        widths = ((self.high - self.low) / self.scale)[numeric]
        hot = sum(2 if len(block) > 1 else 1 for block in self.blocks)
        return math.sqrt(float(widths @ widths) + hot) if numeric.any() or hot else 0.0

    @property
    def diameter(self) -> float:
        """The smaller of the box diameter and twice the radius: the replace-one sensitivity of a row."""
        ball = math.inf if self.radius is None else 2.0 * self.radius
        return min(self.box_diameter, ball)

    @property
    def norm(self) -> float:
        """Largest norm of a scaled private row."""
        numeric = self._private_numeric
        reach = np.maximum(np.abs(self.scaled_low), np.abs(self.scaled_high))[numeric]
        box = math.sqrt(float(reach @ reach) + len(self.blocks)) if numeric.any() or self.blocks else 0.0
        return box if self.radius is None else min(box, self.radius)

    @property
    def y_diameter(self) -> float:
        """Width of the scaled response.

        Raises
        ------
        SensitivityError
            If the response is public.
        """
        bounds = self._y_bounds
        return (bounds.high - bounds.low) / self.y_scale

    @property
    def y_norm(self) -> float:
        """Largest absolute value of the scaled response.

        Raises
        ------
        SensitivityError
            If the response is public.
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
        return transform, shift

    def scaled_slopes(self, slopes: Floats) -> Floats:
        """Return private slopes, shape (number of private columns,), from user to scaled units."""
        return np.asarray(slopes, dtype=np.float64) * self.scale[self.private] / self.y_scale

    def user_slopes(self, slopes: Floats) -> Floats:
        """Return private slopes, shape (number of private columns,), from scaled to user units."""
        return np.asarray(slopes, dtype=np.float64) * self.y_scale / self.scale[self.private]

    def matrix(self, table: Any, missing: Missing = "raise", *, extrapolate: bool = False) -> Floats:
        """Return the design matrix of raw rows, shape (n, p), in user units.

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
        rows = self._rows(table, missing)
        rows.require(self.inputs)
        result = np.empty((len(rows), len(self.columns)))
        for position, column in enumerate(self.columns):
            clip = bool(self.private[position]) and not extrapolate
            result[:, position] = _filled(
                column, rows, clip, Interval(self.low[position], self.high[position]) if clip else None
            )
        return result

    def response_values(self, table: Any, missing: Missing = "raise") -> Floats:
        """Return the response of raw rows, shape (n,), in user units; errors as in `matrix`."""
        if isinstance(table, np.ndarray) and table.ndim == 1 and self.schema is None:
            table = {self.response: table}
        column = self.outcome.column
        rows = Rows(table, self.schema, missing, self._y_middle)
        rows.require(column.inputs)
        return np.array(_filled(column, rows, not self.response_public, self.outcome.bounds))

    def frame(self) -> pd.DataFrame:
        """Return made-up public rows with the columns that the formula or the matrix names."""
        import pandas as pd

        if self.schema is not None:
            known = dict.fromkeys((*self.outcome.column.inputs, *self.inputs))
            frame = self.schema.frame([name for name in known if name in self.schema])
            return frame.assign(**{name: [-1.0, 0.0, 1.0] for name in known if name not in self.schema})
        reach = 1.0 if self.radius is None else self.radius
        low = np.where(np.isfinite(self.low), self.low, -reach)
        high = np.where(np.isfinite(self.high), self.high, reach)
        values = np.array([low, 0.5 * low + 0.5 * high, high])
        if self.constant is not None:
            values[:, self.constant] = 1.0
        bounds = self.outcome.bounds or Interval(-1.0, 1.0)
        frame = pd.DataFrame(values, columns=list(self.names))
        return frame.assign(**{self.response: [bounds.low, midpoint(bounds), bounds.high]})

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able description; `from_dict` is its exact inverse."""
        return self._essentials() | {
            name: [None if not math.isfinite(x) else float(x) for x in getattr(self, name)]
            for name in ("low", "high", "center", "scale")
        }

    @classmethod
    def from_dict(cls, content: Json) -> Design:
        """Return the design that `to_dict` described.

        Raises
        ------
        SchemaError
            If the content does not describe a design.
        """
        try:
            if content["format"] != FORMAT:
                raise SchemaError("the design has another format version")
            outcome = content["outcome"]
            bounds = None if outcome["bounds"] is None else Interval(*outcome["bounds"])
            return cls(
                formula=content["formula"],
                schema=None if content["schema"] is None else Schema.from_dict(content["schema"]),
                columns=tuple(Column.from_dict(column) for column in content["columns"]),
                private=np.array(content["private"], dtype=bool),
                constant=content["constant"],
                low=np.array([-math.inf if x is None else x for x in content["low"]], dtype=float),
                high=np.array([math.inf if x is None else x for x in content["high"]], dtype=float),
                center=np.array(content["center"], dtype=float),
                scale=np.array(content["scale"], dtype=float),
                blocks=tuple(tuple(block) for block in content["blocks"]),
                radius=content["radius"],
                outcome=Response(Column.from_dict(outcome["column"]), outcome["public"], bounds),
            )
        except (KeyError, TypeError, AttributeError, IndexError):
            raise SchemaError("the content does not describe a design") from None

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON, in hexadecimal.

        Numbers that follow from the rest by a formula's logarithms and exponentials are left out, as
        their last bit may depend on the platform.
        """
        content = self._essentials()
        if self.schema is None:
            content |= {name: self.to_dict()[name] for name in ("low", "high")}
        elif content["outcome"]["bounds"] is not None:
            content["outcome"] = content["outcome"] | {"bounds": "declared"}
        return canonical_digest(content)

    def __eq__(self, other: object) -> bool:
        return self.to_dict() == other.to_dict() if isinstance(other, Design) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.digest)

    def __reduce__(self) -> tuple[Any, ...]:
        return Design.from_dict, (self.to_dict(),)

    def __repr__(self) -> str:
        shown = self.formula or f"{self.response} ~ {' + '.join(self.names)}"
        return f"Design({shown!r}: {len(self.columns)} columns, {int(self.private.sum())} private)"

    def _essentials(self) -> dict[str, Any]:
        bounds = self.outcome.bounds
        return {
            "format": FORMAT,
            "formula": self.formula,
            "schema": None if self.schema is None else self.schema.to_dict(),
            "columns": [column.to_dict() for column in self.columns],
            "private": self.private.tolist(),
            "constant": self.constant,
            "blocks": [list(block) for block in self.blocks],
            "radius": self.radius,
            "outcome": {
                "column": self.outcome.column.to_dict(),
                "public": self.outcome.public,
                "bounds": None if bounds is None else [bounds.low, bounds.high],
            },
        }

    @property
    def _private_numeric(self) -> Flags:
        numeric = self.private.copy()
        numeric[[index for block in self.blocks for index in block]] = False
        return numeric

    @property
    def _y_bounds(self) -> Interval:
        if self.outcome.bounds is None:
            raise SensitivityError(f"response {self.response!r} is sent in clear: it has no sensitivity")
        return self.outcome.bounds

    @property
    def _y_middle(self) -> dict[str, float]:
        bounds = self.outcome.bounds
        return {} if bounds is None else {self.response: midpoint(bounds)}

    def _rows(self, table: Any, missing: Missing) -> Rows:
        if isinstance(table, np.ndarray):
            if self.schema is not None or table.ndim != 2 or table.shape[1] != len(self.columns):
                raise SchemaError(
                    f"an array of shape {table.shape} does not fit; needed: a table with the columns "
                    f"{', '.join(self.inputs)}"
                )
            table = dict(zip(self.names, table.T, strict=True))
        return Rows(table, self.schema, missing, self._middles)

    @property
    def _middles(self) -> dict[str, float]:
        middles = {}
        for position, name in enumerate(self.names):
            if math.isfinite(self.low[position]):
                middles[name] = 0.5 * float(self.low[position]) + 0.5 * float(self.high[position])
            elif self.private[position]:
                middles[name] = 0.0
        return middles


def add_constant(X: Any, prepend: bool = True) -> pd.DataFrame:
    """Return `X` as a labelled frame with a public column of ones, ``const``.

    Parameters
    ----------
    X : DataFrame, or array of shape (n,) or (n, p)
        Array columns are called x1, x2, ...
    prepend : bool
        Put the constant first (default) or last.

    Raises
    ------
    SchemaError
        If there is a column ``const`` already, or `X` has another shape.

    Notes
    -----
    **Privacy.** The declaration that ``const`` is public travels in ``frame.attrs["privinf_public"]``;
    values are never looked at to find a constant.
    """
    import pandas as pd

    if isinstance(X, pd.DataFrame):
        frame = X.copy()
    else:
        array = np.asarray(X)
        if array.ndim not in (1, 2):
            raise SchemaError(f"X must have one or two dimensions, got shape {array.shape}")
        array = array.reshape(len(array), -1) if array.ndim == 1 else array
        frame = pd.DataFrame(array, columns=[f"x{k + 1}" for k in range(array.shape[1])])
    if CONSTANT in frame.columns:
        raise SchemaError(f"X has a column {CONSTANT!r} already; declare it with public=[{CONSTANT!r}]")
    frame.insert(0 if prepend else frame.shape[1], CONSTANT, 1.0)
    frame.attrs[PUBLIC_MARK] = (*frame.attrs.get(PUBLIC_MARK, ()), CONSTANT)
    return frame


def assemble(
    *,
    formula: str,
    schema: Schema,
    columns: tuple[Column, ...],
    groups: tuple[int, ...],
    response: Response,
    radius: float | None,
) -> Design:
    """Return the design of formula columns, with bounds by interval arithmetic over the schema.

    `groups` says which columns were coded together: private indicators of one group exclude one another.
    """
    pairs = [column.interval(schema) for column in columns]
    private = np.array([not all(schema[name].public for name in column.inputs) for column in columns])
    dummies = np.array([column.indicator for column in columns]) & private
    constant = next((k for k, column in enumerate(columns) if not column.pieces), None)
    for column, pair, hidden in zip(columns, pairs, private, strict=True):
        if hidden and not pair.low < pair.high:
            raise SchemaError(f"{column.name!r} is constant over the declared bounds")
    blocks: dict[int, list[int]] = {}
    for position in np.flatnonzero(dummies):
        blocks.setdefault(groups[position], []).append(int(position))
    center, scale = _scaling(pairs, private, dummies, constant)
    return Design(
        formula=formula,
        schema=schema,
        columns=columns,
        private=private,
        constant=constant,
        low=np.array([pair.low for pair in pairs]),
        high=np.array([pair.high for pair in pairs]),
        center=center,
        scale=scale,
        blocks=tuple(map(tuple, blocks.values())),
        radius=radius,
        outcome=response,
    )


def _scaling(
    pairs: Sequence[Interval | None], private: Flags, dummies: Flags, constant: int | None
) -> tuple[Floats, Floats]:
    """Return centre and scale: the middle and half range with a constant, else 0 and the largest size."""
    center, scale = np.zeros(len(pairs)), np.ones(len(pairs))
    for position, pair in enumerate(pairs):
        if pair is None or not private[position] or dummies[position]:
            continue
        if constant is None:
            scale[position] = max(abs(pair.low), abs(pair.high))
        else:
            center[position] = midpoint(pair)
            scale[position] = 0.5 * (pair.high - pair.low)
    return center, scale


def _filled(column: Column, rows: Rows, clip: bool, bounds: Interval | None) -> Floats:
    if column.plain:
        return column.values(rows, clip=False)
    values = column.values(rows, clip=clip)
    if not np.isfinite(values).all():
        raise SchemaError(f"{column.name!r} is not finite in some rows; restrict its columns first")
    return values if bounds is None else np.clip(values, bounds.low, bounds.high)


def _checked_names(names: Sequence[str]) -> list[str]:
    if isinstance(names, str) or not all(isinstance(name, str) and name for name in names):
        raise SchemaError("names must be a list of non-empty texts")
    listed = list(names)
    if not listed:
        raise SchemaError("a design needs at least one column")
    if len(set(listed)) != len(listed):
        raise SchemaError("names has a column twice")
    return listed


def _aligned_bounds(
    names: list[str], private: Flags, bounds: Any, radius: float | None
) -> list[Interval | None]:
    """Return one interval a column, None where there is none."""
    hidden = [name for name, flag in zip(names, private, strict=True) if flag]
    if isinstance(bounds, str):
        raise ArgumentError("bounds must be numbers here; bounds='data' is an option of the models")
    if bounds is None:
        if hidden and radius is None:
            raise SensitivityError(
                f"column {hidden[0]!r} has no public bounds: pass bounds=, radius= or write bounds='data'"
            )
        return [None] * len(names)
    if isinstance(bounds, Mapping):
        if unknown := [name for name in bounds if name not in names]:
            raise SchemaError(f"bounds name {unknown[0]!r}, which is not among {', '.join(names)}")
        given = dict(bounds)
    else:
        pairs = list(bounds)
        if len(pairs) not in (len(hidden), len(names)):
            raise SchemaError(
                f"bounds has {len(pairs)} pairs for {len(hidden)} private of {len(names)} columns"
            )
        given = dict(zip(hidden if len(pairs) == len(hidden) else names, pairs, strict=True))
    if absent := [name for name in hidden if name not in given]:
        raise SensitivityError(f"column {absent[0]!r} has no public bounds: add it to bounds=")
    return [_pair(name, given[name]) if name in given else None for name in names]


def _pair(name: str, pair: Any) -> Interval:
    from privinf.schema.declared import Numeric

    try:
        low, high = pair
    except (TypeError, ValueError):
        raise SchemaError(f"column {name!r}: bounds must be a pair (low, high)") from None
    try:
        return Numeric(low, high).interval
    except SchemaError as error:
        raise SchemaError(f"column {name!r}: {error}") from None


def _check_design(design: Design) -> None:
    _checked_names(design.names)
    if not (np.isfinite(design.center).all() and np.isfinite(design.scale).all()):
        raise SchemaError("center and scale must be finite")
    if not (design.scale > 0).all() or not (design.low <= design.high).all():
        raise SchemaError("scale must be positive and bounds in order")
    positions = [index for block in design.blocks for index in block]
    if any(not 0 <= index < len(design.columns) or not design.private[index] for index in positions):
        raise SchemaError("blocks must hold positions of private columns")
    if design.constant is not None and (
        not 0 <= design.constant < len(design.columns) or design.private[design.constant]
    ):
        raise SchemaError("the constant must be a column declared public")
    bounded = np.isfinite(design.low) & np.isfinite(design.high)
    if design.radius is None and not bounded[design.private].all():
        name = design.names[int(np.flatnonzero(design.private & ~bounded)[0])]
        raise SensitivityError(f"column {name!r} has no public bounds: pass bounds= or radius=")
