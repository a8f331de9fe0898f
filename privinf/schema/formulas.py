"""From a formula to design columns: patsy parses it and codes the factors; nothing in it is executed."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from privinf.errors import SchemaError
from privinf.schema import expressions
from privinf.schema.calls import EFFECTS, basis_pieces, coded_factor, learns, parted
from privinf.schema.declared import Factor, Level, Numeric
from privinf.schema.intervals import Interval
from privinf.schema.table import Schema, declared_levels, require_number
from privinf.schema.terms import Column, Contrast, Expression, Indicator, Piece, Plain, Response
from privinf.typing import Floats
from privinf.validation import shown

MANY_LEVELS = (
    "the response {0!r} is a factor with {1} levels; it must be a number, or a factor with two levels. To "
    "compare one level with the others, add a column of 0 and 1 to the data, and declare its bounds (0, 1)"
)
CODED = "the response {0!r} cannot have C(): write {1!r}, a factor whose second level, {2!r}, counts as 1"
# The same of levels that are numbers, which a formula uses as numbers.
CODED_NUMBERS = (
    "the response {0!r} cannot have C(): write I({1} == {2!r}), which is 1 for {2!r} and 0 otherwise; {1} "
    "alone is the number itself, {3!r} or {2!r}"
)

# Stateful functions that move or scale a column, which public numbers replace.
SHIFTS = ("center", "standardize", "scale")
BASES = ("bs", "cr", "poly")  # stateful functions with public parameters
LEARNERS = (*SHIFTS, *BASES, "cc", "te")  # all of patsy's functions that learn from rows


@dataclass(frozen=True, slots=True)
class _Stub:
    """A patsy factor that answers with simulated public values: patsy needs only its type and levels."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class FormulaColumns:
    """A formula expanded by a schema: columns of a regression, their public bounds, and the response.

    No row is read for it. `Design.from_formula` makes a design of it.

    Attributes
    ----------
    formula : str
        The text.
    columns : tuple of Column
        Columns of the right-hand side in patsy's order, p of them.
    bounds : tuple of Interval
        Bounds of each column in user units, by interval arithmetic on the declared bounds.
    private : tuple of bool
        Whether each column is made of a column of the data that is not declared public.
    exclusive : tuple of tuple of int
        Positions of private indicators of one term: at most one of a group is 1 in any row.
    response : Response
        The left-hand side and its bounds.

    Notes
    -----
    **Privacy.** Public: it follows from the formula and the schema.
    """

    formula: str
    columns: tuple[Column, ...]
    bounds: tuple[Interval, ...]
    private: tuple[bool, ...]
    exclusive: tuple[tuple[int, ...], ...]
    response: Response

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns, as statsmodels would print them."""
        return tuple(column.name for column in self.columns)

    @property
    def intercept(self) -> int | None:
        """Position of the column of ones; None where the formula takes it out."""
        return next((place for place, column in enumerate(self.columns) if not column.pieces), None)


def formula_columns(formula: str, schema: Schema, *, response_public: bool) -> FormulaColumns:
    """Return the columns of a formula, and its response.

    Parameters
    ----------
    formula : str
        As `Design.from_formula` takes it. The response may be among the columns here: `refuse_response` is
        for regressions.
    schema : Schema
    response_public : bool
        Whether the response is sent in clear even where its columns are not declared public.

    Raises
    ------
    SchemaError
        The formula names unknown columns, or uses functions that the schema cannot bound.
    """
    response_code, right = _parsed(formula)
    response = _response(schema, response_code, response_public)
    sources = {factor.code: source_of(schema, factor.code) for term in right for factor in term.factors}
    columns, groups = _columns(schema, right, sources)
    bounds = tuple(column.interval(schema) for column in columns)
    private = tuple(not column.is_public(schema) for column in columns)
    exclusive: dict[int, list[int]] = {}
    for position, (column, group) in enumerate(zip(columns, groups, strict=True)):
        if private[position] and column.indicator:
            exclusive.setdefault(group, []).append(position)
    return FormulaColumns(
        formula=formula,
        columns=columns,
        bounds=bounds,
        private=private,
        exclusive=tuple(map(tuple, exclusive.values())),
        response=response,
    )


def terms_by_column(formula: str, schema: Schema) -> dict[str, str]:
    """Return the name of the term of each column of a formula, both as patsy writes them.

    The formula is coded again, since names of columns cannot be parsed: levels may hold brackets. One term
    may have columns of several kinds: without main effects ``C(g):C(h)`` starts with those of ``C(h)``.
    """
    _, right = _parsed(formula)
    sources = {factor.code: source_of(schema, factor.code) for term in right for factor in term.factors}
    info = _design_info(schema, right, sources)
    return {
        column: term
        for term, columns in info.term_name_slices.items()
        for column in info.column_names[columns]
    }


def term_name(text: str) -> str:
    """Return the name under which patsy has a term: ``b : a`` is ``b:a``; other texts stay."""
    import patsy

    try:
        terms = patsy.ModelDesc.from_formula(f"~ 0 + {text}").rhs_termlist
    except Exception:  # patsy's tokenizer also fails by assertions and Python's own errors
        return text
    return str(terms[0].name()) if len(terms) == 1 else text


def refuse_response(formula: str, schema: Schema, columns: Sequence[Column], response: Column) -> None:
    """Raise SchemaError where a column is the response itself, or determines the response's level."""
    inputs = response.inputs
    declared = schema[inputs[0]] if len(inputs) == 1 and inputs[0] in schema else None
    categorical = isinstance(declared, Factor) and declared.categorical
    for column in columns:
        if column.pieces == response.pieces or (categorical and column.inputs == inputs):
            raise SchemaError(
                f"formula {shown(formula)}: {shown(column.name)} is both the response and a "
                "regressor; remove it from the right-hand side"
            )


def _parsed(formula: str) -> tuple[str, list[Any]]:
    """Return the code of the response and patsy's terms of the right-hand side."""
    import patsy

    if not isinstance(formula, str):
        raise SchemaError(f"formula must be a string, got {type(formula).__name__}")
    if "`" in formula:
        raise SchemaError(
            f"formula {shown(formula)}: backticks are not supported; write Q('x y') instead of `x y`"
        )
    if "|" in formula and len(parted(formula)) > 1:
        raise SchemaError(f"formula {shown(formula)}: {EFFECTS}")
    try:
        description = patsy.ModelDesc.from_formula(formula)
    except Exception as error:  # patsy's tokenizer also fails by assertions and Python's own errors
        reason = (
            error.message.replace("a noun", "a term")
            if isinstance(error, patsy.PatsyError)
            else "it is not a valid formula"
        )
        raise SchemaError(f"formula {shown(formula)} cannot be read: {reason}") from None
    responses = description.lhs_termlist
    right = description.rhs_termlist
    if len(responses) != 1 or len(responses[0].factors) != 1:
        raise SchemaError(f"formula {shown(formula)} must have one response before the ~")
    if not right:
        raise SchemaError(f"formula {shown(formula)} has no column and no constant after the ~; add a column")
    return responses[0].factors[0].code, right


def _response(schema: Schema, code: str, public: bool) -> Response:
    """Return the response: one numeric column, or 1 where a factor of two levels has the second one."""
    declared = schema[code] if code in schema else None  # noqa: SIM401 (a schema has no get)
    if isinstance(declared, Factor) and declared.categorical and len(declared.levels) == 2:
        return Response.declared(schema, Column(code, (Indicator(code, declared.levels[1]),)), public=public)
    if isinstance(declared, Factor) and declared.categorical:
        raise SchemaError(MANY_LEVELS.format(code, len(declared.levels)))
    _refuse_coded(schema, code)
    pieces = numeric_pieces(schema, syntax(code), code, known_only=False)
    if len(pieces) != 1:
        raise SchemaError(f"response {code!r} must be a single numeric column")
    return Response.declared(schema, Column(code, pieces), public=public)


def _refuse_coded(schema: Schema, code: str) -> None:
    """Raise SchemaError for a response ``C(factor)``, with the name that stands for it."""
    match syntax(code):
        case ast.Call(func=ast.Name(id="C"), args=[ast.Name(id=name), *_]) if name in schema:
            declared = schema[name]
            if isinstance(declared, Factor) and len(declared.levels) == 2:
                form = CODED if declared.categorical else CODED_NUMBERS
                raise SchemaError(form.format(code, name, declared.levels[1], declared.levels[0]))
            if isinstance(declared, Factor):
                raise SchemaError(MANY_LEVELS.format(name, len(declared.levels)))


def _columns(
    schema: Schema, terms: list[Any], sources: dict[str, Source]
) -> tuple[tuple[Column, ...], tuple[int, ...]]:
    """Return the design columns in patsy's order, and for each the run of patsy's coding it belongs to."""
    if (plain := _plain_columns(terms, sources)) is not None:
        return plain, tuple(range(len(plain)))
    info = _design_info(schema, terms, sources)
    names = iter(info.column_names)
    columns: list[Column] = []
    groups: list[int] = []
    runs = [run for subterms in info.term_codings.values() for run in subterms]
    for group, run in enumerate(runs):
        for pieces in _products(run, sources):
            columns.append(Column(next(names), pieces))
            groups.append(group)
    return tuple(columns), tuple(groups)


def _plain_columns(terms: list[Any], sources: dict[str, Source]) -> tuple[Column, ...] | None:
    """Return the columns of a constant and of single numbers, of which patsy codes none; else None."""
    columns = []
    for term in terms:
        pieces: tuple[Piece, ...] = ()
        if term.factors:
            source = sources[term.factors[0].code]
            if len(term.factors) > 1 or not isinstance(source, tuple) or len(source) != 1:
                return None
            pieces = source
        columns.append(Column(term.name(), pieces))
    return tuple(columns)


def _design_info(schema: Schema, terms: list[Any], sources: dict[str, Source]) -> Any:
    from patsy import EvalEnvironment, PatsyError, Term
    from patsy.build import design_matrix_builders

    stubs = {code: _Stub(code, _answer(source)) for code, source in sources.items()}
    stubbed = [Term([stubs[factor.code] for factor in term.factors]) for term in terms]
    try:
        return design_matrix_builders([stubbed], lambda: iter([{}]), EvalEnvironment([]), "raise")[0]
    except PatsyError as error:
        raise SchemaError(f"the factors of the formula cannot be coded: {error.message}") from None


def _answer(source: Source) -> Any:
    import pandas as pd
    from patsy.builtins import C

    if isinstance(source, tuple):
        return np.zeros((2, len(source)))
    levels = list(source.levels)
    return C(pd.Categorical(levels, categories=levels), source.coding)


def _products(run: Any, sources: dict[str, Source]) -> Iterator[tuple[Piece, ...]]:
    """Yield the pieces of each column of one run, the first factor varying fastest, as patsy does."""
    choices: list[tuple[Piece, ...]] = []
    for factor in run.factors:
        source = sources[factor.code]
        if isinstance(source, tuple):
            choices.append(source)
        else:
            choices.append(source.pieces(np.asarray(run.contrast_matrices[factor].matrix, dtype=np.float64)))
    for product in itertools.product(*reversed(choices)):  # a coding without a constant has a mean of 1
        ones = [piece for piece in product if isinstance(piece, Contrast) and set(piece.weights) == {1.0}]
        yield tuple(piece for piece in reversed(product) if piece not in ones)


@dataclass(frozen=True, slots=True)
class Categorical:
    """A factor of the formula, the order of its levels, and patsy's coding of it."""

    column: str
    levels: tuple[Level, ...]
    coding: Any

    def pieces(self, matrix: Floats) -> tuple[Piece, ...]:
        """Return terms with the values of a coding matrix, shape (levels, columns); indicators if any."""
        return tuple(self._piece(weights) for weights in matrix.T)

    def _piece(self, weights: Floats) -> Piece:
        if sorted(weights) == [0.0] * (len(weights) - 1) + [1.0]:
            return Indicator(self.column, self.levels[int(weights.argmax())])
        return Contrast(self.column, self.levels, tuple(weights.tolist()))


@dataclass(frozen=True, slots=True)
class Truth:
    """A comparison, which patsy codes as a factor with the levels False and True."""

    source: str
    levels: tuple[Level, ...] = (False, True)
    coding: Any = None

    def pieces(self, matrix: Floats) -> tuple[Piece, ...]:
        """Return 0 or 1 by the comparison, or its opposite."""
        return tuple(
            Expression(self.source if weights[1] > weights[0] else f"1 - ({self.source})")
            for weights in matrix.T
        )


Source: TypeAlias = Categorical | Truth | tuple[Piece, ...]


def source_of(schema: Schema, code: str) -> Source:
    """Return the meaning of one factor of the formula: a coded factor, or numeric pieces.

    Raises SchemaError if it names unknown columns, would learn from the rows, or is outside the whitelist.
    """
    node = syntax(code)
    name = expressions.column_of(node)
    if name is not None and schema[name].categorical:
        return coded(name, declared_levels(schema, name))
    called = expressions.called_name(node)
    if called == "C":
        assert isinstance(node, ast.Call)
        return coded(*coded_factor(schema, node, code))
    if called == "offset":
        raise SchemaError(
            f"{code!r}: only Logit and Poisson accept + offset(column); for other models, subtract "
            "the offset from the response, for example I(y - z) for + offset(z)"
        )
    if expressions.is_truth(node):
        (piece,) = numeric_pieces(schema, node, code)
        assert isinstance(piece, Expression)
        return Truth(piece.source)
    return numeric_pieces(schema, node, code)


def syntax(code: str) -> ast.expr:
    """Return the syntax tree of one factor of a formula, unchecked."""
    try:
        return ast.parse(code, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        if code.strip() == ".":
            raise SchemaError(
                "'.' is not supported as a shorthand for all columns: list them, as in a + b"
            ) from None
        raise SchemaError(expressions.not_an_expression(code)) from None


def coded(
    column: str, levels: tuple[Level, ...], kind: str = "Treatment", reference: Level | None = None
) -> Categorical:
    """Return a factor with patsy's coding of this name, and its reference or the level left out."""
    import patsy

    if kind == "Helmert":
        return Categorical(column, levels, patsy.Helmert())
    if kind == "Sum":
        return Categorical(column, levels, patsy.Sum(levels[-1] if reference is None else reference))
    return Categorical(column, levels, patsy.Treatment(levels[0] if reference is None else reference))


def numeric_pieces(
    schema: Schema, node: ast.expr, code: str, *, known_only: bool = True
) -> tuple[Piece, ...]:
    """Return the numeric columns of one factor of the formula (several for a basis)."""
    name = expressions.column_of(node)
    if name is not None:
        if known_only or name in schema:
            require_number(schema, name)
        return (Plain(name),)
    if expressions.called_name(node) in BASES:
        assert isinstance(node, ast.Call)
        return basis_pieces(schema, node, code)
    source = ast.unparse(_Substitution(schema, code).visit(node))
    try:
        expressions.parse(source)
    except SchemaError as error:
        text = str(error)
        raise SchemaError(
            text if text.startswith(repr(code)) else f"{code!r} cannot be used: {text}"
        ) from None
    for column in expressions.inputs(source):
        if known_only or column in schema:
            require_number(schema, column)
    return (Expression(source),)


class _Substitution(ast.NodeTransformer):
    """Replaces center(x) and standardize(x) by arithmetic with the schema's numbers."""

    def __init__(self, schema: Schema, code: str) -> None:
        self.schema = schema
        self.code = code

    def visit_Call(self, node: ast.Call) -> ast.AST:
        called = expressions.called_name(node)
        if called not in LEARNERS:
            return self.generic_visit(node)
        if called not in SHIFTS:
            raise learns(self.code, called)
        return self._shifted(node, called)

    def _shifted(self, node: ast.Call, called: str) -> ast.expr:
        name = expressions.column_of(node.args[0]) if len(node.args) == 1 and not node.keywords else None
        item = self.schema[name] if name is not None else None
        if not isinstance(item, Numeric) or item.center is None:
            raise learns(self.code, called)
        shifted = ast.BinOp(node.args[0], ast.Sub(), ast.Constant(item.center))
        if called == "center":
            return shifted
        if item.scale is None:
            raise learns(self.code, called)
        return ast.BinOp(shifted, ast.Div(), ast.Constant(item.scale))
