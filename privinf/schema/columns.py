"""Columns of one release for many regressions, and the part that a formula reads.

A formula is answered where each of its columns is a sum of released columns: another coding of a factor is,
and so is, by the constant, a column that is not centered. A factor with numbers as levels is a sum of its
indicators, and where it has two levels, an indicator is a sum of the constant and the number. A product or a
power is one only if it was released.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, TypeVar

import numpy as np

from privinf.errors import NotAvailableError, PrivinfError, SchemaError
from privinf.schema.declared import Factor, Level
from privinf.schema.design import Design, design_of
from privinf.schema.formulas import formula_columns, syntax
from privinf.schema.table import Schema
from privinf.schema.terms import Column, Contrast, Indicator, Piece, Plain
from privinf.typing import Floats
from privinf.validation import shown

Product: TypeAlias = frozenset[Piece]
Fitted = TypeVar("Fitted")
DECLARED_BEFORE = "products, powers and other functions must be declared as columns before the release"
AS_NUMBER = (
    "the release has the column {0!r} as a number, so write {0} in the formula, without C(); for a factor, "
    "declare C({0}) as a column before the release"
)


def columns_design(schema: Schema, columns: Sequence[str], *, radius: float | None = None) -> Design:
    """Return the design of a release of declared columns and a constant, none of them the response.

    Parameters
    ----------
    schema : Schema
    columns : sequence of str
        Terms as in a formula: ``["a", "b", "C(g)", "a:b", "I(a**2)"]``.
    radius : float, optional
        Ball for the scaled private part of a row, the last numeric column left out.

    Returns
    -------
    Design
        Without a formula. What it names as its response is the last numeric column, which stands for no
        more than the others do.

    Raises
    ------
    SchemaError
        A text is not a term of the schema's columns, the constant is removed, no private column is a number
        alone, or there is only one.
    """
    if isinstance(columns, str) or not columns or not all(isinstance(name, str) for name in columns):
        raise SchemaError('columns= must be a list of terms, for example columns=["a", "b", "C(g)"]')
    response = next(_responses(schema, columns), None)
    if response is None:
        raise SchemaError(
            "columns= must name at least one private numeric column of the schema, and none of "
            f"{', '.join(map(shown, columns))} is private and numeric"
        )
    text = f"{response} ~ 1 + {' + '.join(columns)}"
    full = design_of(formula_columns(text, schema, response_public=False), schema, radius=radius)
    if full.constant is None:
        raise SchemaError(
            "columns= contains a term that removes the constant, such as 0: leave this term out, "
            "because a release for many regressions needs the constant"
        )
    positions = [at for at, column in enumerate(full.columns) if column.pieces != full.outcome.column.pieces]
    moved = {old: new for new, old in enumerate(positions)}
    return replace(
        full,
        formula=None,
        columns=tuple(full.columns[at] for at in positions),
        private=full.private[positions],
        constant=moved[full.constant],
        low=full.low[positions],
        high=full.high[positions],
        blocks=tuple(tuple(moved[at] for at in block) for block in full.blocks),
    )


def _responses(schema: Schema, columns: Sequence[str]) -> Iterator[str]:
    """Yield the columns, last first, that can be a protected response."""
    for name in reversed(columns):
        if name in schema and isinstance(schema[name], Factor):
            continue
        try:
            coded = formula_columns(f"{name} ~ 1", schema, response_public=False)
        except PrivinfError:
            continue
        if not coded.response.public:
            yield name


@dataclass(frozen=True, slots=True)
class SubDesign:
    """A regression on columns that a release holds.

    Attributes
    ----------
    design : Design
        Of the regression's formula.
    maps : ndarray, shape (p + 1, q + 1)
        Its p columns and its response, scaled units, as sums of the q columns and the response of the
        release in theirs.
    """

    design: Design
    maps: Floats


def sub_design(released: Design, formula: str) -> SubDesign:
    """Return the part of a release that a formula reads.

    Parameters
    ----------
    released : Design
        The released columns.
    formula : str
        Its response is any numeric column of the release.

    Raises
    ------
    SchemaError
        The text is not a formula of the schema's columns, or the response is also a regressor.
    NotAvailableError
        A column of the formula is not a sum of released columns, or the release came from arrays, which have
        no formulas.
    """
    if released.schema is None:
        raise NotAvailableError(
            "formulas cannot be used with a release made from arrays: release a table with a "
            "schema instead, by Moments(schema, columns=[...])"
        )
    design = Design.from_formula(formula, released.schema)
    return SubDesign(design, scaled_maps(released, design))


def scaled_maps(released: Design, design: Design) -> Floats:
    """Return columns and response of a design, scaled units, as sums of those of a release in theirs."""
    released_columns = _ReleasedColumns.from_design(released)
    outcome = design.outcome.column
    spans = np.vstack([released_columns.scaled_span(column) for column in (*design.columns, outcome)])
    center = np.append(design.center, design.y_center)
    scale = np.append(design.scale, design.y_scale)
    if center.any():
        spans[:, released_columns.place(Column("the constant", ()))] -= center
    return np.asarray(spans / scale[:, None], dtype=np.float64)


def each_formula(formula: str | Sequence[str], fit: Callable[[str], Fitted]) -> Fitted | dict[str, Fitted]:
    """Return the result of `fit` for a formula, or for each of several.

    Parameters
    ----------
    formula : str or sequence of str
        ``"a + b ~ c"`` is ``a ~ c`` and ``b ~ c``.
    fit : callable
        Takes a formula of one response.

    Returns
    -------
    What `fit` returns, or a dict of it: by response for one formula of several, by formula for a list.

    Raises
    ------
    SchemaError
        A text is not a formula, or there is none.
    """
    if isinstance(formula, str):
        responses, _, right = formula.partition("~")
        names = _summands(responses.strip())
        formulas = (
            {name: f"{name} ~ {right.strip()}" for name in names} if len(names) > 1 else {formula: formula}
        )
    else:
        formulas = {text: text for text in formula}
    if not formulas:
        raise SchemaError("no formula was passed: pass at least one formula with a response, such as 'y ~ x'")
    fits = {name: fit(text) for name, text in formulas.items()}
    return next(iter(fits.values())) if isinstance(formula, str) and len(fits) == 1 else fits


def _summands(text: str) -> list[str]:
    """Return what a sum adds up; the text itself where it is none."""
    try:
        node = syntax(text)
    except SchemaError:
        return [text]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [*_summands(ast.unparse(node.left)), ast.unparse(node.right)]
    return [text]


def all_columns(released: Design) -> tuple[Column, ...]:
    """Return the columns of a release, its response last."""
    return (*released.columns, released.outcome.column)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ReleasedColumns:
    """The columns of a release by their factors, and their units."""

    schema: Schema
    names: tuple[str, ...]
    places: Mapping[Product, int]
    sums: Floats
    center: Floats
    scale: Floats

    @classmethod
    def from_design(cls, released: Design) -> _ReleasedColumns:
        assert released.schema is not None
        columns = all_columns(released.user)
        sums = np.eye(len(columns))
        sums[:-1, :-1] = released.basis.T
        return cls(
            schema=released.schema,
            names=tuple(column.name for column in columns),
            places={frozenset(column.pieces): place for place, column in enumerate(columns)},
            sums=sums,
            center=np.append(released.center, released.y_center),
            scale=np.append(released.scale, released.y_scale),
        )

    def place(self, column: Column) -> int:
        """Return where a column stands, or raise NotAvailableError."""
        try:
            return self.places[frozenset(column.pieces)]
        except KeyError:
            raise NotAvailableError(
                f"column {column.name!r} is not a linear combination of the released columns "
                f"{', '.join(self.names)}: {self._remedy(column)}"
            ) from None

    def _remedy(self, column: Column) -> str:
        """Return what to write, or to release, in place of a column that is not a sum of released columns."""
        names = {piece.column for piece in column.pieces if isinstance(piece, Indicator | Contrast)}
        numbers = [name for name in names if frozenset({Plain(name)}) in self.places]
        return AS_NUMBER.format(numbers[0]) if numbers and len(column.pieces) == 1 else DECLARED_BEFORE

    def scaled_span(self, column: Column) -> Floats:
        """Return user units of a column as a sum of the released columns in scaled units."""
        span = self._span(frozenset(column.pieces), column, frozenset())
        scaled = span * self.scale
        if shift := float(span @ self.center):
            scaled[self.place(Column("the constant", ()))] += shift
        return scaled

    def _span(self, product: Product, column: Column, coded: frozenset[str]) -> Floats:
        """Return a product as a sum of released columns, user units.

        The indicator of a level that was not released is 1 less those of all others; `coded` are the factors
        that were expanded so already. A number with levels is the sum of its levels times their indicators.
        """
        span = np.zeros(len(self.names))
        if product in self.places:
            return np.asarray(self.sums[self.places[product]], dtype=np.float64)
        for piece in product:
            rest = product - {piece}
            if isinstance(piece, Indicator) and (numbers := self._two_numbers(piece, rest)) is not None:
                own, other = numbers
                number = self._span(rest | {Plain(piece.column)}, column, coded)
                return (number - other * self._span(rest, column, coded)) / (own - other)
            if isinstance(piece, Indicator) and piece.column not in coded:
                expanded = coded | {piece.column}
                span += self._span(rest, column, expanded)
                for level in self._levels(piece):
                    span -= self._span(rest | {Indicator(piece.column, level)}, column, expanded)
                return span
            if isinstance(piece, Plain | Contrast) and (weights := self._weights(piece)):
                for level, weight in weights.items():
                    span += weight * self._span(rest | {Indicator(piece.column, level)}, column, coded)
                return span
        span[self.place(column)] = 1.0  # which raises
        return span

    def _weights(self, piece: Plain | Contrast) -> Mapping[Level, float]:
        """Return the value of a piece by the level of its factor; empty for a piece of no factor."""
        if isinstance(piece, Contrast):
            return dict(zip(piece.levels, piece.weights, strict=True))
        if piece.column not in self.schema:
            return {}
        declared = self.schema[piece.column]
        if not isinstance(declared, Factor) or declared.categorical:
            return {}
        return {level: float(level) for level in declared.levels}

    def _two_numbers(self, piece: Indicator, rest: Product) -> tuple[float, float] | None:
        """Return the levels of a factor, the indicator's first, if it was released as one of two numbers.

        `rest` are the other pieces of the product.
        """
        declared = self.schema[piece.column]
        assert isinstance(declared, Factor)
        others = self._levels(piece)
        is_number = len(others) == 1 and not declared.categorical and declared.other is None
        if not is_number or rest | {Plain(piece.column)} not in self.places:
            return None
        return float(piece.level), float(others[0])

    def _levels(self, piece: Indicator) -> list[Level]:
        declared = self.schema[piece.column]
        assert isinstance(declared, Factor)
        return [level for level in declared.levels if level != piece.level]
