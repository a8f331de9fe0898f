"""Formula -> design columns. patsy parses the formula and codes the factors; nothing in it is executed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from privinf.errors import SchemaError
from privinf.schema.design import Design
from privinf.schema.factors import Source, declared_levels, numeric_pieces, source_of, syntax
from privinf.schema.geometry import is_public
from privinf.schema.response import Response
from privinf.schema.table import Schema
from privinf.schema.terms import Column, Piece
from privinf.validation import shown


@dataclass(frozen=True, slots=True)
class _Stub:
    """A patsy factor that answers with made-up public values: patsy needs only its type and levels."""

    code: str
    answer: Any
    origin: None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Stub) and self.code == other.code

    def __hash__(self) -> int:
        return hash(self.code)

    def name(self) -> str:
        return self.code

    def memorize_passes_needed(self, state: object, env: object) -> int:
        return 0

    def eval(self, state: object, data: object) -> Any:
        return self.answer


def design_from_formula(
    schema: Schema, formula: str, *, response_public: bool, radius: float | None
) -> Design:
    """Return the design of `formula`; see `Schema.design`."""
    left, right = _parsed(formula)
    response = _response(schema, left, response_public)
    sources = {factor.code: source_of(schema, factor.code) for term in right for factor in term.factors}
    columns, groups = _columns(schema, right, sources)
    return _assembled(formula, schema, columns, groups, response, radius)


def _parsed(formula: str) -> tuple[str, list[Any]]:
    """Return the code of the response and patsy's terms of the right-hand side."""
    import patsy

    if not isinstance(formula, str):
        raise SchemaError(f"formula must be text, got {type(formula).__name__}")
    try:
        description = patsy.ModelDesc.from_formula(formula)
    except Exception as error:  # patsy's tokenizer also fails by assertions and Python's own errors
        reason = error.message if isinstance(error, patsy.PatsyError) else "it is no formula"
        raise SchemaError(f"formula {shown(formula)} cannot be read: {reason}") from None
    left, right = description.lhs_termlist, description.rhs_termlist
    if len(left) != 1 or len(left[0].factors) != 1:
        raise SchemaError(f"formula {shown(formula)} must have one response before the ~")
    if not right:
        raise SchemaError(f"formula {shown(formula)} has no term after the ~")
    return left[0].factors[0].code, right


def _response(schema: Schema, code: str, public: bool) -> Response:
    pieces = numeric_pieces(schema, syntax(code), code, known_only=False)
    if len(pieces) != 1:
        raise SchemaError(f"response {code!r} must be one numeric column")
    return Response.declared(schema, Column(code, pieces), public=public)


def _columns(
    schema: Schema, terms: list[Any], sources: dict[str, Source]
) -> tuple[tuple[Column, ...], tuple[int, ...]]:
    """Return the design columns in patsy's order, and for each the run of patsy's coding it belongs to."""
    info = _design_info(schema, terms, sources)
    names = iter(info.column_names)
    columns: list[Column] = []
    groups: list[int] = []
    runs = [run for subterms in info.term_codings.values() for run in subterms]
    for group, run in enumerate(runs):
        for pieces in _products(schema, run, sources):
            columns.append(Column(next(names), pieces))
            groups.append(group)
    return tuple(columns), tuple(groups)


def _design_info(schema: Schema, terms: list[Any], sources: dict[str, Source]) -> Any:
    from patsy import EvalEnvironment, PatsyError, Term
    from patsy.build import design_matrix_builders

    stubs = {code: _Stub(code, _answer(schema, source)) for code, source in sources.items()}
    stubbed = [Term([stubs[factor.code] for factor in term.factors]) for term in terms]
    try:
        return design_matrix_builders([stubbed], lambda: iter([{}]), EvalEnvironment([]), "raise")[0]
    except PatsyError as error:
        raise SchemaError(f"the formula cannot be coded: {error.message}") from None


def _answer(schema: Schema, source: Source) -> Any:
    import pandas as pd
    from patsy import Treatment
    from patsy.builtins import C

    if isinstance(source, tuple):
        return np.zeros((2, len(source)))
    levels = list(declared_levels(schema, source.column))
    return C(pd.Categorical(levels, categories=levels), Treatment(levels[source.reference]))


def _products(schema: Schema, run: Any, sources: dict[str, Source]) -> Iterator[tuple[Piece, ...]]:
    """Yield the pieces of each column of one run, the first factor varying fastest, as patsy does."""
    choices: list[tuple[Piece, ...]] = []
    for factor in run.factors:
        source = sources[factor.code]
        if isinstance(source, tuple):
            choices.append(source)
            continue
        coding = np.asarray(run.contrast_matrices[factor].matrix)
        levels = declared_levels(schema, source.column)
        choices.append(source.pieces(tuple(levels[k] for k in coding.argmax(axis=0))))
    for product in itertools.product(*reversed(choices)):
        yield tuple(reversed(product))


def _assembled(
    formula: str,
    schema: Schema,
    columns: tuple[Column, ...],
    groups: tuple[int, ...],
    response: Response,
    radius: float | None,
) -> Design:
    """Return the design of coded columns; private indicators of one group exclude one another."""
    bounds = [column.interval(schema) for column in columns]
    private = np.array([not is_public(schema, column) for column in columns])
    blocks: dict[int, list[int]] = {}
    for position, column in enumerate(columns):
        if private[position] and column.indicator:
            blocks.setdefault(groups[position], []).append(position)
    return Design(
        formula=formula,
        schema=schema,
        columns=columns,
        private=private,
        constant=next((k for k, column in enumerate(columns) if not column.pieces), None),
        low=np.array([pair.low for pair in bounds]),
        high=np.array([pair.high for pair in bounds]),
        blocks=tuple(map(tuple, blocks.values())),
        radius=radius,
        outcome=response,
    )
