"""The internal basis of a design: centered products and orthogonal powers, and the map back to the formula's.

A product x z repeats x and z wherever their bounds are far from zero: noise that is small against each of
the three columns is large against what the product adds. The release therefore has Legendre's polynomials of
each factor over its public bounds in place of powers, products of them in place of products, and indicators
in place of other codings of a factor. Both sets of columns span the same space; M with ``raw = internal @ M``
follows from the schema and the formula alone, and coefficients go back by ``b_raw = M^-1 b_internal``.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from privinf.errors import SchemaError
from privinf.schema import expressions
from privinf.schema.declared import Factor
from privinf.schema.reading import Reader
from privinf.schema.splines import HIGHEST
from privinf.schema.table import Schema
from privinf.schema.terms import Column, Contrast, Expression, Indicator, Piece, Plain, Polynomial
from privinf.typing import Flags, Floats

EXACT = 1e-9  # how far a column may be from its sum, against its size
ROUNDED_OFF = 1e-12  # what rounding leaves of a coefficient that is zero
CELLS_AT_MOST = 2_000  # of the factors of one column
MADE_UP_AT_MOST = 1_000_000  # of simulated rows, so that a map takes no more than a second
FARTHEST_SIZE = 1e100  # sizes of columns are between 1 over this and this
# Columns are linearly dependent where their smallest singular value is below this times the largest one: what
# rounding leaves.
DEPENDENT_BELOW = 1e-13
COMPARED_AT_MOST = 200  # columns, so that the comparison takes no more than a moment
NARROWEST = 1e-6  # width of bounds, relative to their ends, from which on a number is surely not constant
MOST_NAMED = 6  # columns that the error lists
DEPENDENT = (
    "the columns {} of the formula are linearly dependent for all rows, or too nearly so for double "
    "precision, so their coefficients cannot be estimated: leave one of them out; for powers of a column, "
    "use poly(column, degree)"
)
REPEATED = 1e13  # condition number of a basis from which on its columns repeat one another


def internal_columns(schema: Schema, raw: tuple[Column, ...]) -> tuple[Column, ...]:
    """Return the internal columns that span a formula's; the same where none is changed. See the module."""
    internal = tuple(internal_column(schema, column) for column in with_indicators(schema, raw))
    while internal != raw:
        basis = basis_of(schema, internal, raw)
        if not isinstance(basis, tuple):
            break
        internal = tuple(raw[j] if j in basis else column for j, column in enumerate(internal))
    return raw if internal == raw or _singular(basis) else internal


def with_indicators(schema: Schema, columns: Sequence[Column]) -> list[Column]:
    """Return columns with indicators of all levels but the first in place of other codings of a factor."""
    codings: dict[str, list[Contrast]] = {}
    for piece in (piece for column in columns for piece in column.pieces):
        if isinstance(piece, Contrast) and piece not in codings.setdefault(piece.column, []):
            codings[piece.column].append(piece)

    def indicated(piece: Piece) -> Piece:
        if not isinstance(piece, Contrast) or len(codings[piece.column]) != len(piece.levels) - 1:
            return piece
        return Indicator(piece.column, piece.levels[codings[piece.column].index(piece) + 1])

    return [Column(column.name, tuple(map(indicated, column.pieces))) for column in columns]


def new_blocks(
    raw: Sequence[Column], internal: Sequence[Column], private: Flags
) -> tuple[tuple[int, ...], ...]:
    """Return the private indicators that took the place of other columns, by their factors."""
    blocks: dict[frozenset[str], list[int]] = {}
    for j, column in enumerate(internal):
        if column != raw[j] and column.indicator and private[j]:
            blocks.setdefault(frozenset(column.inputs), []).append(j)
    return tuple(map(tuple, blocks.values()))


def internal_column(schema: Schema, column: Column) -> Column:
    """Return the column that stands for one of the formula's: itself, unless it is a product or a power."""
    powers: Counter[str] = Counter()
    other_pieces: list[Piece] = []
    for piece in column.pieces:
        if isinstance(piece, Plain):
            powers[expressions.named(piece.column)] += 1
        elif isinstance(piece, Expression):
            powers += factors_of(expressions.parse(piece.source))
        else:
            other_pieces.append(piece)
    degrees = sum(powers.values())
    if degrees == 0 or degrees + len(other_pieces) < 2 or max(powers.values()) > HIGHEST:
        return column
    ends = {source: expressions.interval(source, schema.interval) for source in powers}
    if any(not interval.low < interval.high for interval in ends.values()):
        return column
    pieces = [Polynomial(source, ends[source].low, ends[source].high, k) for source, k in powers.items()]
    return Column(column.name, (*pieces, *other_pieces))


def factors_of(node: ast.expr) -> Counter[str]:
    """Return the factors of a product or an integer power, with multiplicities; others are one factor."""
    match node:
        case ast.Call(args=[inner]) if expressions.called_name(node) == expressions.IDENTITY:
            return factors_of(inner)
        case ast.BinOp(op=ast.Pow(), left=left, right=right):
            exponent = expressions.number_of(right)
            if exponent is not None and exponent.is_integer() and 1.0 <= exponent <= HIGHEST:
                return Counter({key: int(exponent) * k for key, k in factors_of(left).items()})
        case ast.BinOp(op=ast.Mult(), left=left, right=right):
            sides = [side for side in (left, right) if expressions.number_of(side) is None]
            return sum((factors_of(side) for side in sides), Counter())
        case ast.BinOp(op=ast.Div(), left=left, right=right) if expressions.number_of(right) is not None:
            return factors_of(left)
    return Counter({ast.unparse(node): 1})


def checked_basis(schema: Schema | None, internal: Sequence[Column], raw: Sequence[Column]) -> Floats:
    """Return M with ``raw = internal @ M``, shape (p, p); SchemaError unless there is one."""
    names = [column.name for column in internal]
    if [column.name for column in raw] != names:
        raise SchemaError(
            "the stored design is damaged: its two lists of column names differ; create the design "
            "again from its formula"
        )
    if schema is None:
        raise SchemaError(
            "the stored design is damaged: it has no schema, although its columns were transformed "
            "by one; create the design again from its formula"
        )
    basis = basis_of(schema, internal, raw)
    if isinstance(basis, tuple):
        raise SchemaError(
            f"the stored design is damaged: column {names[basis[0]]!r} is not a linear combination "
            "of the stored columns; create the design again from its formula"
        )
    return basis


def basis_of(schema: Schema, internal: Sequence[Column], raw: Sequence[Column]) -> Floats | tuple[int, ...]:
    """Return M with ``raw = internal @ M``, shape (p, p), or the raw columns that are not such sums.

    Notes
    -----
    A column is a sum of internal columns of its own inputs, the constant among them. Its coefficients are
    solved for on simulated rows within the bounds, with every cell of its factors, and are exact up to
    rounding; the schema and the columns alone decide them.
    """
    p = len(raw)
    M = np.eye(p)
    unreached = []
    for inputs in dict.fromkeys(frozenset(raw[j].inputs) for j in range(p) if raw[j] != internal[j]):
        group = [j for j in range(p) if raw[j] != internal[j] and frozenset(raw[j].inputs) == inputs]
        among = [j for j in range(p) if frozenset(internal[j].inputs) <= inputs]
        rows = public_rows(schema, sorted(inputs), len(among))
        if rows is None:
            unreached += group
            continue
        X = np.column_stack([internal[j].values(rows, clip=True) for j in among])
        Y = np.column_stack([raw[j].values(rows, clip=True) for j in group])
        unit = np.abs(X).max(axis=0)
        size = np.abs(Y).max(axis=0)
        ends = np.concatenate([unit, size])
        if not ((ends > 1.0 / FARTHEST_SIZE) & (ends < FARTHEST_SIZE)).all():
            unreached += group
            continue
        solution = np.linalg.lstsq(X / unit, Y / size, rcond=None)[0]
        away = np.abs(X / unit @ solution - Y / size).max(axis=0)
        solution[np.abs(solution) < ROUNDED_OFF] = 0.0
        M[:, group] = 0.0
        M[np.ix_(among, group)] = solution * size / unit[:, None]
        unreached += [j for j, far in zip(group, away, strict=True) if not far <= EXACT]
    return tuple(unreached) if unreached else M


def refuse_dependent(schema: Schema | None, columns: Sequence[Column]) -> None:
    """Raise SchemaError if some columns of a formula are linearly dependent for all rows.

    Notes
    -----
    The columns are evaluated on simulated rows within the bounds, with every cell of their factors. Only
    smooth columns are compared: if they are dependent on an interval, they are dependent everywhere, while
    steps and splines may merely be zero in all simulated rows. Numbers that no other column reads are left
    out, as no sum of other columns moves with them. Nothing is refused where the simulated rows would be too
    many, or more columns than `COMPARED_AT_MOST` were compared.

    **Privacy.** Reads the schema and the columns alone.
    """
    if schema is None:
        return
    smooth = [column for column in columns if all(map(is_smooth, column.pieces))]
    dependent = _dependent(schema, _without_free_numbers(schema, smooth))
    if not dependent:
        return
    named = [column.name for column in dependent]
    names = ", ".join(map(repr, named[:MOST_NAMED])) + (", ..." if len(named) > MOST_NAMED else "")
    raise SchemaError(DEPENDENT.format(names))


def is_smooth(piece: Piece) -> bool:
    """Return whether a piece is a level of a factor, or a smooth function of numbers: no step, no spline."""
    if isinstance(piece, Plain | Indicator | Contrast | Polynomial):
        return True
    return isinstance(piece, Expression) and _is_analytic(expressions.parse(piece.source))


def _is_analytic(node: ast.expr) -> bool:
    """Return whether an expression has arithmetic, powers and smooth functions only."""
    if expressions.column_of(node) is not None or expressions.number_of(node) is not None:
        return True
    match node:
        case ast.UnaryOp(op=ast.UAdd() | ast.USub(), operand=operand):
            return _is_analytic(operand)
        case ast.BinOp(op=ast.Pow(), left=left):
            return _is_analytic(left)
        case ast.BinOp(op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div(), left=left, right=right):
            return _is_analytic(left) and _is_analytic(right)
        case ast.Call(args=[argument]):
            return expressions.called_name(node) not in (*expressions.CALLS, "abs") and _is_analytic(argument)
    return False


def _without_free_numbers(schema: Schema, columns: Sequence[Column]) -> list[Column]:
    """Return columns without numbers as they are that no other column reads; no sum can equal these."""
    readers = Counter(name for column in columns for name in column.inputs)

    def is_free(column: Column) -> bool:
        if not column.plain or readers[column.inputs[0]] > 1:
            return False
        ends = schema.interval(column.inputs[0])
        return ends.high - ends.low > NARROWEST * ends.largest

    return [column for column in columns if not is_free(column)]


def _dependent(schema: Schema, columns: Sequence[Column]) -> list[Column]:
    """Return columns of which one is a sum of the others; those of numbers alone if cells are too many."""
    if len(columns) < 2:
        return []
    compared = list(columns)
    rows = None
    if len(columns) <= COMPARED_AT_MOST:
        rows = public_rows(
            schema, sorted({name for column in columns for name in column.inputs}), len(columns)
        )
    if rows is None:
        compared = [
            column
            for column in columns
            if not any(isinstance(schema[name], Factor) for name in column.inputs)
        ]
        if not 1 < len(compared) <= COMPARED_AT_MOST:
            return []
        inputs = sorted({name for column in compared for name in column.inputs})
        rows = public_rows(schema, inputs, len(compared))
    if rows is None or len(compared) < 2:
        return []
    X = np.column_stack([column.values(rows, clip=True) for column in compared])
    size = np.abs(X).max(axis=0)
    if not ((size > 1.0 / FARTHEST_SIZE) & (size < FARTHEST_SIZE)).all():
        return []
    _, lengths, directions = np.linalg.svd(np.linalg.qr(X / size, mode="r"))
    if lengths[-1] > DEPENDENT_BELOW * lengths[0]:
        return []
    weights = np.abs(directions[-1])
    return [
        column for column, weight in zip(compared, weights, strict=True) if weight > EXACT * weights.max()
    ]


def public_rows(schema: Schema, inputs: Sequence[str], columns: int) -> Reader | None:
    """Return simulated rows of some columns within their bounds; None where they would be too many."""
    factors = {name: item for name in inputs if isinstance(item := schema[name], Factor)}
    cells = int(np.prod([len(item.levels) for item in factors.values()], dtype=float))
    if cells > CELLS_AT_MOST:
        return None
    rng = np.random.default_rng(0)
    count = max(64, 4 * columns, 16 * cells)
    if count * columns > MADE_UP_AT_MOST:
        return None
    at = np.arange(count)
    table: dict[str, pd.Series[Any] | Floats] = {}
    for name in inputs:
        if name in factors:
            levels = factors[name].levels
            table[name] = pd.Series([levels[k] for k in at % len(levels)], dtype=object)
            at = at // len(levels)
        else:
            ends = schema.interval(name)
            table[name] = rng.uniform(ends.low, ends.high, count)
    reader = Reader(pd.DataFrame(table, index=range(count)), schema.in_days())
    reader.open(inputs)
    return reader


def _singular(basis: Floats | tuple[int, ...]) -> bool:
    """Whether a map cannot be inverted: the formula has columns that repeat one another."""
    if isinstance(basis, tuple):
        raise SchemaError(
            "the columns of the formula cannot be transformed to numerically stable columns; check "
            "that the formula does not contain the same column twice"
        )
    unit = np.abs(basis).max(axis=0)
    return not np.linalg.cond(basis / unit) < REPEATED
