"""Numeric expressions of a formula over a whitelist: parsed once, read as intervals or as arrays.

A formula is never executed as Python: this small interpreter is all that reads it, at the analyst's side
and at the holder's. On a holder's rows it is total: each step's result is put into the interval that follows
from the public bounds alone, so that no row can make a step fail, warn or leave the finite numbers, whatever
the last bits of a function are.
"""

from __future__ import annotations

import ast
import math
import operator
import sys
from collections.abc import Callable
from functools import lru_cache, reduce
from keyword import iskeyword
from typing import Any

import numpy as np

from privinf.errors import SchemaError
from privinf.schema.declared import date_number
from privinf.schema.intervals import ARRAYS, FUNCTION_NAMES, INTERVALS, RANGED, Algebra, Interval, Ranged
from privinf.typing import Floats

MAX_LENGTH = 2000  # characters of an expression
MAX_DEPTH = 250  # of nested operations
NUMPY_NAMES = ("np", "numpy")  # under which formulas call numpy's functions
IDENTITY = "I"
QUOTE = "Q"


def not_an_expression(source: str) -> str:
    """Return the message on an invalid expression."""
    if not source.strip():
        return "the formula has an empty term: write the name of a column"
    return f"{source!r} is not a valid expression; if it is the name of a column, write Q('name')"


_OPERATIONS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_TESTS: dict[type[ast.cmpop], np.ufunc] = {
    ast.Gt: np.greater,
    ast.GtE: np.greater_equal,
    ast.Lt: np.less,
    ast.LtE: np.less_equal,
    ast.Eq: np.equal,
    ast.NotEq: np.not_equal,
}
_LIMITS: dict[type[ast.operator] | str, np.ufunc] = {
    ast.BitAnd: np.minimum,
    ast.BitOr: np.maximum,
    "minimum": np.minimum,
    "maximum": np.maximum,
}
CALLS = ("where", "clip", "minimum", "maximum")  # functions of several arguments


def interval(source: str, bounds: Callable[[str], Interval]) -> Interval:
    """Return the bounds of `source` when every column lies in its own bounds.

    Raises SchemaError if the expression is outside the whitelist or is not bounded over the declared bounds.
    """
    try:
        image: Interval = _evaluate(parse(source), bounds, INTERVALS)
    except SchemaError as error:
        raise SchemaError(f"{source!r} cannot be used: {error}") from None
    return image


def bounded(source: str, value_of: Callable[[str], Ranged]) -> Floats:
    """Return `source` evaluated row by row, total: inside its `interval`, whatever the rows hold.

    Raises SchemaError only where `interval` does: never for a value of a row.
    """
    with np.errstate(all="ignore"):
        ranged: Ranged = _evaluate(parse(source), value_of, RANGED)
    return np.asarray(ranged.values, dtype=np.float64)


def values(source: str, value_of: Callable[[str], Floats]) -> Floats:
    """Return `source` evaluated row by row; entries outside a function's domain are nan or infinite.

    For public columns and for new rows of a prediction; a holder's private columns go through `bounded`.
    """
    with np.errstate(all="ignore"):
        return np.asarray(_evaluate(parse(source), value_of, ARRAYS), dtype=np.float64)


def inputs(source: str) -> tuple[str, ...]:
    """Return the columns that `source` reads, in order of appearance."""
    columns: dict[str, None] = {}
    _collect(parse(source), columns)
    return tuple(columns)


@lru_cache(maxsize=1024)
def parse(source: str) -> ast.expr:
    """Return the checked syntax tree of `source`.

    Raises SchemaError if the text is not an expression, is too long, or uses anything outside the whitelist.
    """
    if len(source) > MAX_LENGTH:
        raise SchemaError(f"an expression may have at most {MAX_LENGTH} characters")
    try:
        tree = ast.parse(source, mode="eval").body
        _check(tree, MAX_DEPTH)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        if isinstance(error, SchemaError):
            raise
        raise SchemaError(not_an_expression(source)) from None
    return tree


def called_name(node: ast.expr) -> str | None:
    """Return the name that a call uses, without the numpy prefix; None if it is not a plain call."""
    if not isinstance(node, ast.Call):
        return None
    target = node.func
    if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
        return target.attr if target.value.id in NUMPY_NAMES else f"{target.value.id}.{target.attr}"
    return target.id if isinstance(target, ast.Name) else None


def column_of(node: ast.expr) -> str | None:
    """Return the column that a node names, as ``x`` or ``Q("x")``; None for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if called_name(node) == QUOTE and isinstance(node, ast.Call) and len(node.args) == 1:
        argument = node.args[0]
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str) and not node.keywords:
            return argument.value
    return None


def named(column: str) -> str:
    """Return the expression that reads a column."""
    return column if column.isidentifier() and not iskeyword(column) else f"{QUOTE}({column!r})"


def number_of(node: ast.expr, depth: int = MAX_DEPTH) -> float | None:
    """Return the value of a node that holds only numbers; None if it holds anything else."""
    columns: dict[str, None] = {}
    try:
        _check(node, depth)
    except SchemaError:
        return None
    _collect(node, columns)
    value = math.nan if columns else _constant(node)
    return value if math.isfinite(value) else None


def is_truth(node: ast.expr) -> bool:
    """Return whether a node is a comparison, or comparisons joined by &, | and ~."""
    match node:
        case ast.Compare():
            return True
        case ast.BinOp(op=ast.BitAnd() | ast.BitOr(), left=left, right=right):
            return is_truth(left) and is_truth(right)
        case ast.UnaryOp(op=ast.Invert(), operand=operand):
            return is_truth(operand)
        case ast.Call(args=[inner]) if called_name(node) == IDENTITY:
            return is_truth(inner)
    return False


def literal(node: ast.expr) -> Any:
    """Return the value of a node that is a literal; None if it is none."""
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError):
        return None


def _constant(node: ast.expr) -> float:
    """Return the value of a checked node that names no column."""
    with np.errstate(all="ignore"):
        return float(_evaluate(node, lambda _: math.nan, ARRAYS))


def _is_number(node: ast.expr) -> bool:
    value = node.value if isinstance(node, ast.Constant) else None
    if isinstance(value, str):
        return date_number(value) is not None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    if not abs(value) <= sys.float_info.max:
        raise SchemaError(
            f"a number in the expression is too large; numbers must be at most {sys.float_info.max:.1e}"
        )
    return True


def _check(node: ast.expr, depth: int) -> None:
    if depth == 0:
        raise SchemaError(f"an expression must not be nested more than {MAX_DEPTH} levels deep")
    if column_of(node) is not None or _is_number(node):
        return
    depth -= 1
    match node:
        case ast.UnaryOp(op=ast.UAdd() | ast.USub(), operand=operand):
            _check(operand, depth)
        case ast.BinOp(op=ast.Pow(), left=left, right=right):
            _check(left, depth)
            if number_of(right, depth) is None:
                raise SchemaError("an exponent must be a number")
        case ast.BinOp(op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div(), left=left, right=right):
            _check(left, depth)
            _check(right, depth)
        case ast.Call(args=[argument], keywords=[]) if called_name(node) in (IDENTITY, *FUNCTION_NAMES):
            _check(argument, depth)
        case ast.Compare(left=left, ops=ops, comparators=others) if all(type(op) in _TESTS for op in ops):
            for side in (left, *others):
                _check(side, depth)
        case ast.BinOp(left=left, right=right) | ast.UnaryOp(operand=left as right) if is_truth(node):
            _check(left, depth)
            _check(right, depth)
        case ast.Call(keywords=[]) if called_name(node) in CALLS:
            for argument in _arguments(node):
                _check(argument, depth)
        case _:
            raise SchemaError(
                f"{ast.unparse(node)!r} is not among the allowed expressions (columns, numbers, "
                "+ - * / **, comparisons, & | ~, I, Q, "
                f"np.{', np.'.join((*FUNCTION_NAMES[1:], *CALLS))}, abs): {_instead(node)}add "
                "the derived column to the data and declare its bounds"
            )


def _arguments(node: ast.Call) -> list[ast.expr]:
    """Return the arguments of where, clip, minimum or maximum, without the None of an open clip."""
    called = called_name(node)
    arguments = node.args
    if called == "where":
        if len(arguments) != 3 or not is_truth(arguments[0]):
            raise SchemaError(
                "np.where must have three arguments, a comparison and two values, as in np.where(x > 1, a, b)"
            )
        return arguments
    if called == "clip":
        ends = [number_of(end) for end in arguments[1:]]
        open_ends = [isinstance(end, ast.Constant) and end.value is None for end in arguments[1:]]
        if len(arguments) != 3 or any(
            end is None and not free for end, free in zip(ends, open_ends, strict=True)
        ):
            raise SchemaError(
                "the bounds of np.clip must be numbers, or None for no bound, as in np.clip(x, low, high)"
            )
        if not any(open_ends) and ends[0] > ends[1]:  # type: ignore[operator]
            raise SchemaError("the lower bound of np.clip must not exceed its upper bound")
        return [arguments[0], *(end for end, free in zip(arguments[1:], open_ends, strict=True) if not free)]
    if len(arguments) != 2:
        raise SchemaError(f"np.{called} must have exactly two arguments")
    return arguments


def _instead(node: ast.expr) -> str:
    """Return a replacement for an expression that is not allowed, where there is one."""
    match node:
        case ast.BoolOp():
            return "join comparisons with & and |, each comparison in parentheses; or "
        case ast.UnaryOp(op=ast.Not()):
            return "write ~(...) instead of not; or "
        case ast.Constant(value=str()):
            return "use C(factor) for the levels of a factor and 'YYYY-MM-DD' for a date; or "
        case ast.BinOp(op=ast.BitXor()):
            return "write a power as I(x**2); or "
        case ast.Call() if called_name(node) in ("factor", "as.factor", "i"):
            return "write C(x) for a factor; or "
        case ast.BinOp(op=ast.FloorDiv() | ast.Mod()):
            return "write the steps as comparisons, such as I(x > 40); or "
        case ast.IfExp():
            return "write np.where(comparison, a, b); or "
        case ast.Call() if called_name(node) in ("max", "min"):
            return "write np.maximum(a, b) or np.minimum(a, b); or "
        case ast.Call() if called_name(node) in (
            "round",
            "floor",
            "ceil",
            "digitize",
            "cut",
            "qcut",
            "pd.cut",
        ):
            return "write the classes as comparisons, such as I(x > 40); or "
    return ""


def _collect(node: ast.expr, columns: dict[str, None]) -> None:
    name = column_of(node)
    if name is not None:
        columns.setdefault(name)
        return
    for inner in node.args if isinstance(node, ast.Call) else ast.iter_child_nodes(node):
        if isinstance(inner, ast.expr):
            _collect(inner, columns)


def _evaluate(node: ast.expr, value_of: Callable[[str], Any], algebra: Algebra[Any]) -> Any:
    name = column_of(node)
    if name is not None:
        return value_of(name)
    match node:
        case ast.Constant(value=str(text)):
            return algebra.constant(date_number(text))  # type: ignore[arg-type]
        case ast.Constant(value=value):
            return algebra.constant(float(value))  # type: ignore[arg-type]
        case ast.UnaryOp(op=ast.Invert(), operand=operand):
            return algebra.constant(1.0) - _evaluate(operand, value_of, algebra)
        case ast.Compare(left=left, ops=ops, comparators=others):
            sides = [_evaluate(side, value_of, algebra) for side in (left, *others)]
            pairs = zip(ops, sides[:-1], sides[1:], strict=True)
            tests = [algebra.test(_TESTS[type(op)], a, b) for op, a, b in pairs]
            return reduce(lambda a, b: algebra.limit(np.minimum, a, b), tests)
        case ast.BinOp(op=ast.BitAnd() | ast.BitOr() as join, left=left, right=right):
            a, b = (_evaluate(side, value_of, algebra) for side in (left, right))
            return algebra.limit(_LIMITS[type(join)], a, b)
        case ast.UnaryOp(op=sign, operand=operand):
            inner = _evaluate(operand, value_of, algebra)
            return -inner if isinstance(sign, ast.USub) else inner
        case ast.BinOp(op=ast.Pow(), left=left, right=right):
            return algebra.power(_evaluate(left, value_of, algebra), _constant(right))
        case ast.BinOp(op=operation, left=left, right=right):
            combine = _OPERATIONS[type(operation)]
            return combine(_evaluate(left, value_of, algebra), _evaluate(right, value_of, algebra))
        case ast.Call() if (name := called_name(node)) in CALLS:
            return _called(
                str(name),
                node,
                [_evaluate(argument_node, value_of, algebra) for argument_node in _arguments(node)],
                algebra,
            )
        case ast.Call(args=[argument]):
            inner = _evaluate(argument, value_of, algebra)
            called = called_name(node)
            assert called is not None
            return inner if called == IDENTITY else algebra.function(called, inner)
    raise AssertionError("internal error: an expression was evaluated before it was checked")


def _called(name: str, node: ast.Call, operands: list[Any], algebra: Algebra[Any]) -> Any:
    """Return the value of where, clip, minimum or maximum."""
    if name == "where":
        return algebra.choose(*operands)
    if name != "clip":
        return algebra.limit(_LIMITS[name], *operands)
    value, *ends = operands
    free = [isinstance(end, ast.Constant) and end.value is None for end in node.args[1:]]
    limits = [limit for limit, is_open in zip((np.maximum, np.minimum), free, strict=True) if not is_open]
    for limit, end in zip(limits, ends, strict=True):
        value = algebra.limit(limit, value, end)
    return value
