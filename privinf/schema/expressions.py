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
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, TypeVar

import numpy as np

from privinf.errors import SchemaError
from privinf.schema.intervals import Interval, power
from privinf.typing import Floats

Value = TypeVar("Value")

MAX_LENGTH = 2000
MAX_DEPTH = 250
NUMPY_NAMES = ("np", "numpy")
IDENTITY = "I"
QUOTE = "Q"


@dataclass(frozen=True, slots=True)
class _Function:
    """An increasing function, one implementation for intervals and rows, on [least, oo) or (least, oo)."""

    array: Callable[[Floats], Floats]
    least: float = -math.inf
    open_end: bool = False


_FUNCTIONS: dict[str, _Function] = {
    "log": _Function(np.log, 0.0, True),
    "log1p": _Function(np.log1p, -1.0, True),
    "log2": _Function(np.log2, 0.0, True),
    "log10": _Function(np.log10, 0.0, True),
    "exp": _Function(np.exp),
    "expm1": _Function(np.expm1),
    "sqrt": _Function(np.sqrt, 0.0),
}
FUNCTION_NAMES = ("abs", *_FUNCTIONS)
_OPERATIONS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Ranged:
    """Numbers of rows with the interval that holds them all; every operation keeps them inside.

    Attributes
    ----------
    values : ndarray
        Inside `interval`.
    interval : Interval
        Follows from public bounds alone.
    """

    values: Floats
    interval: Interval

    @classmethod
    def of(cls, values: Floats, interval: Interval) -> Ranged:
        """Return values put into their interval."""
        return cls(interval.inside(values), interval)

    def __add__(self, other: Ranged) -> Ranged:
        return Ranged.of(self.values + other.values, self.interval + other.interval)

    def __sub__(self, other: Ranged) -> Ranged:
        return Ranged.of(self.values - other.values, self.interval - other.interval)

    def __neg__(self) -> Ranged:
        return Ranged(-self.values, -self.interval)

    def __mul__(self, other: Ranged) -> Ranged:
        return Ranged.of(self.values * other.values, self.interval * other.interval)

    def __truediv__(self, other: Ranged) -> Ranged:
        return Ranged.of(self.values / other.values, self.interval / other.interval)

    def power(self, exponent: float) -> Ranged:
        """Return the numbers raised to a fixed exponent."""
        base = self.values if exponent.is_integer() else np.maximum(self.values, 0.0)
        return Ranged.of(power(base, exponent), self.interval.power(exponent))


@dataclass(frozen=True, slots=True)
class Algebra(Generic[Value]):
    """What the interpreter needs to know of the values that it computes with."""

    constant: Callable[[float], Value]
    power: Callable[[Value, float], Value]
    function: Callable[[str, Value], Value]


def _interval_function(name: str, value: Interval) -> Interval:
    if name == "abs":
        return value.absolute()
    known = _FUNCTIONS[name]
    return value.monotone(known.array, least=known.least, open_end=known.open_end)


def _ranged_function(name: str, value: Ranged) -> Ranged:
    image = _interval_function(name, value.interval)
    if name == "abs":
        return Ranged.of(np.abs(value.values), image)
    known = _FUNCTIONS[name]
    return Ranged.of(known.array(np.maximum(value.values, known.least)), image)


def _array_function(name: str, value: Floats) -> Floats:
    return np.abs(value) if name == "abs" else _FUNCTIONS[name].array(value)


_INTERVALS: Algebra[Interval] = Algebra(lambda c: Interval(c, c), Interval.power, _interval_function)
_RANGED: Algebra[Ranged] = Algebra(
    lambda c: Ranged(np.float64(c), Interval(c, c)),  # type: ignore[arg-type]
    Ranged.power,
    _ranged_function,
)
_ARRAYS: Algebra[Any] = Algebra(np.float64, power, _array_function)


def interval(source: str, bounds: Callable[[str], Interval]) -> Interval:
    """Return the bounds of `source` when every column lies in its own bounds.

    Raises SchemaError if the expression is outside the whitelist or is not bounded over the declared bounds.
    """
    try:
        image: Interval = _evaluate(parse(source), bounds, _INTERVALS)
    except SchemaError as error:
        raise SchemaError(f"{source!r} cannot be used: {error}") from None
    return image


def bounded(source: str, read: Callable[[str], Ranged]) -> Floats:
    """Return `source` evaluated row by row, total: inside its `interval`, whatever the rows hold.

    Raises SchemaError only where `interval` does: never for what a row holds.
    """
    with np.errstate(all="ignore"):
        ranged: Ranged = _evaluate(parse(source), read, _RANGED)
    return np.asarray(ranged.values, dtype=np.float64)


def values(source: str, read: Callable[[str], Floats]) -> Floats:
    """Return `source` evaluated row by row; entries outside a function's domain are nan or infinite.

    For public columns and for new rows of a prediction; a holder's private columns go through `bounded`.
    """
    with np.errstate(all="ignore"):
        return np.asarray(_evaluate(parse(source), read, _ARRAYS), dtype=np.float64)


def inputs(source: str) -> tuple[str, ...]:
    """Return the columns that `source` reads, in order of appearance."""
    columns: dict[str, None] = {}
    _collect(parse(source), columns)
    return tuple(columns)


@lru_cache(maxsize=1024)
def parse(source: str) -> ast.expr:
    """Return the checked syntax tree of `source`.

    Raises SchemaError if the text is no expression, too long, or uses anything outside the whitelist.
    """
    if len(source) > MAX_LENGTH:
        raise SchemaError(f"an expression may have at most {MAX_LENGTH} characters")
    try:
        tree = ast.parse(source, mode="eval").body
        _check(tree, MAX_DEPTH)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        if isinstance(error, SchemaError):
            raise
        raise SchemaError(f"{source!r} is not an expression") from None
    return tree


def called_name(node: ast.expr) -> str | None:
    """Return the name that a call uses, without the numpy prefix; None if it is no plain call."""
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


def _constant(node: ast.expr) -> float:
    """Return the value of a checked node that names no column."""
    with np.errstate(all="ignore"):
        return float(_evaluate(node, lambda _: math.nan, _ARRAYS))


def _is_number(node: ast.expr) -> bool:
    value = node.value if isinstance(node, ast.Constant) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    if not abs(value) <= sys.float_info.max:
        raise SchemaError("a number in it is too large")
    return True


def _check(node: ast.expr, depth: int) -> None:
    if depth == 0:
        raise SchemaError(f"an expression may be nested {MAX_DEPTH} levels deep")
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
        case _:
            raise SchemaError(
                f"{ast.unparse(node)!r} is not among the allowed expressions (columns, numbers, + - * / **, "
                f"I, Q, {', '.join(FUNCTION_NAMES)}): add the derived column to the data and declare its "
                "bounds"
            )


def _collect(node: ast.expr, columns: dict[str, None]) -> None:
    name = column_of(node)
    if name is not None:
        columns.setdefault(name)
        return
    match node:
        case ast.UnaryOp(operand=operand):
            _collect(operand, columns)
        case ast.BinOp(left=left, right=right):
            _collect(left, columns)
            _collect(right, columns)
        case ast.Call(args=[argument]):
            _collect(argument, columns)


def _evaluate(node: ast.expr, read: Callable[[str], Any], algebra: Algebra[Any]) -> Any:
    name = column_of(node)
    if name is not None:
        return read(name)
    match node:
        case ast.Constant(value=value):
            return algebra.constant(float(value))  # type: ignore[arg-type]
        case ast.UnaryOp(op=sign, operand=operand):
            inner = _evaluate(operand, read, algebra)
            return -inner if isinstance(sign, ast.USub) else inner
        case ast.BinOp(op=ast.Pow(), left=left, right=right):
            return algebra.power(_evaluate(left, read, algebra), _constant(right))
        case ast.BinOp(op=operation, left=left, right=right):
            combine = _OPERATIONS[type(operation)]
            return combine(_evaluate(left, read, algebra), _evaluate(right, read, algebra))
        case ast.Call(args=[argument]):
            inner = _evaluate(argument, read, algebra)
            called = called_name(node)
            assert called is not None
            return inner if called == IDENTITY else algebra.function(called, inner)
    raise AssertionError("an unchecked expression reached the interpreter")
