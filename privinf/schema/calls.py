"""Calls in a formula: codings of factors, splines with public knots, polynomials."""

from __future__ import annotations

import ast
import re
from typing import Any

from privinf.errors import SchemaError
from privinf.schema import expressions
from privinf.schema.declared import Level
from privinf.schema.expressions import literal
from privinf.schema.splines import Basis
from privinf.schema.table import Schema, declared_levels, require_number
from privinf.schema.terms import Piece, Polynomial, Spline

BASIS_ARGUMENTS = {
    "bs": ("df", "knots", "degree", "include_intercept", "lower_bound", "upper_bound"),
    "cr": ("df", "knots", "lower_bound", "upper_bound", "constraints"),
    "poly": ("degree", "raw"),
}
# Codings of factors, each with the word for its level.
CODINGS = {"Treatment": "reference", "Sum": "omit", "Helmert": None}


EFFECTS = (
    "a | in a formula absorbs the effects of factors (y ~ x | firm + year), which only OLS, "
    "GLM(family='gaussian') and MomentOLS support: write + C(firm) for other models"
)


def absorbed(formula: str, schema: Schema) -> tuple[str, tuple[str, ...]]:
    """Return a formula in which the effects after its ``|`` are terms, and these terms.

    ``y ~ x | firm + year`` gives ``y ~ x + C(firm) + C(year)`` and ``("C(firm)", "C(year)")``.

    Raises
    ------
    SchemaError
        A name after the ``|`` is not a declared factor.
    """
    parts = parted(formula) if isinstance(formula, str) and isinstance(schema, Schema) else [""]
    if len(parts) == 1:
        return formula, ()
    formula_part, right = parts[0], parts[-1]
    matches = [_EFFECT.fullmatch(name) for name in right.split("+")]
    columns = [match[1] or match[2] for match in matches if match is not None]
    if len(parts) > 2 or len(columns) < len(matches):
        raise SchemaError(
            f"formula {formula!r}: write one | followed by names of factors, as in y ~ x | firm + year"
        )
    for column in columns:
        declared_levels(schema, column)
    terms = tuple(dict.fromkeys(f"C({column})" for column in columns))
    return " + ".join([formula_part.rstrip(), *terms]), terms


def parted(formula: str) -> list[str]:
    """Return the parts of a formula between the bars that stand in no brackets."""
    parts = [""]
    depth = 0
    for letter in formula:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "|" and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


_EFFECT = re.compile(r"\s*(?:C\(\s*(\w+)\s*\)|(\w+))\s*")


def coded_factor(
    schema: Schema, node: ast.Call, code: str
) -> tuple[str, tuple[Level, ...], str, Level | None]:
    """Return the column, the order of its levels, the name of the coding and its level that C() names."""
    words = {str(word.arg): word.value for word in node.keywords}
    contrast = node.args[1] if len(node.args) == 2 else words.pop("contrast", None)
    order = words.pop("levels", None)
    name = expressions.column_of(node.args[0]) if node.args else None
    if name is None or len(node.args) > 2 or words:
        raise SchemaError(
            f"{code!r} is not a valid use of C(): write C(column), C(column, Treatment(reference)), "
            "or C(column, levels=[...])"
        )
    levels = declared_levels(schema, name)
    if order is not None:
        ordered = literal(order)
        if (
            not isinstance(ordered, (list, tuple))
            or len(ordered) != len(levels)
            or set(ordered) != set(levels)
        ):
            raise SchemaError(
                f"{code!r}: levels= must contain all declared levels, in the order you want; to pool or "
                "drop levels, declare the column with fewer levels in the schema"
            )
        levels = tuple(ordered)
    return name, levels, *_contrast(contrast, levels, code)


def _contrast(node: ast.expr | None, levels: tuple[Level, ...], code: str) -> tuple[str, Any]:
    """Return the name of a coding and its reference, or level left out."""
    if node is None:
        return "Treatment", None
    kind = node.id if isinstance(node, ast.Name) else expressions.called_name(node)
    if kind not in CODINGS:
        raise SchemaError(f"{code!r}: the coding must be one of {', '.join(CODINGS)}")
    word = CODINGS[kind]
    values = [] if isinstance(node, ast.Name) else _arguments_of(node, word)
    if not values:
        return kind, None
    level = literal(values[0])
    if len(values) > 1 or word is None or not isinstance(level, (str, int, float)) or level not in levels:
        if word is None:
            raise SchemaError(f"{code!r}: the coding {kind} takes no argument")
        raise SchemaError(
            f"{code!r}: {word}= of the coding must be one of the declared levels {list(levels)}"
        )
    return kind, level


def _arguments_of(node: ast.expr, word: str | None) -> list[ast.expr]:
    assert isinstance(node, ast.Call)
    named = [keyword.value for keyword in node.keywords if keyword.arg == word]
    return [*node.args, *named, *(keyword.value for keyword in node.keywords if keyword.arg != word)]


def basis_pieces(schema: Schema, node: ast.Call, code: str) -> tuple[Piece, ...]:
    """Return the functions of bs(), cr() or poly()."""
    called = expressions.called_name(node)
    return polynomial_pieces(schema, node, code) if called == "poly" else spline_pieces(schema, node, code)


def polynomial_pieces(schema: Schema, node: ast.Call, code: str) -> tuple[Piece, ...]:
    """Return Legendre's polynomials of degrees 1 to d of a number, its public bounds moved to -1 and 1.

    They are orthogonal for a number that is uniform over its bounds; R's are for the rows at hand.
    """
    words = {str(word.arg): literal(word.value) for word in node.keywords}
    degree = literal(node.args[1]) if len(node.args) == 2 else words.pop("degree", None)
    if words.pop("raw", False):
        raise SchemaError(f"{code!r}: raw=True is not supported; write x + I(x**2) for raw powers")
    if not node.args or len(node.args) > 2 or words or degree is None:
        raise learns(code, "poly")
    source = ast.unparse(node.args[0])
    for column in expressions.inputs(source):
        require_number(schema, column)
    ends = expressions.interval(source, schema.interval)
    try:
        pieces = [Polynomial(source, ends.low, ends.high, k) for k in range(1, degree + 1)]
    except (SchemaError, TypeError) as error:
        reason = error if isinstance(error, SchemaError) else "the degree must be a whole number"
        raise SchemaError(f"{code!r} cannot be used: {reason}") from None
    if not pieces:
        raise SchemaError(f"{code!r} cannot be used: the degree must be at least 1")
    return tuple(pieces)


def spline_pieces(schema: Schema, node: ast.Call, code: str) -> tuple[Piece, ...]:
    """Return the functions of bs() or cr() with public knots."""
    kind = expressions.called_name(node)
    assert kind is not None
    name = expressions.column_of(node.args[0]) if node.args else None
    if name is None:
        raise SchemaError(f"{code!r}: the first argument must be the name of a column")
    require_number(schema, name)
    order = BASIS_ARGUMENTS[kind]
    arguments = dict(zip(order, map(literal, node.args[1:]), strict=False))
    arguments |= {str(word.arg): literal(word.value) for word in node.keywords}
    arguments = {key: value for key, value in arguments.items() if value is not None}
    if len(node.args) - 1 > len(order) or not {"knots", "lower_bound", "upper_bound"} <= set(arguments):
        raise learns(code, kind)
    if extra := sorted(set(arguments) - (set(order) - {"df", "constraints"})):
        raise SchemaError(
            f"{code!r} cannot be used with {', '.join(f'{key}=' for key in extra)}; arguments that can be "
            f"used are {', '.join(f'{key}=' for key in order if key not in {'df', 'constraints'})}"
        )
    options = {key: arguments[key] for key in ("degree", "include_intercept") if key in arguments}
    try:
        basis = Basis(
            kind=kind,  # type: ignore[arg-type]
            knots=tuple(arguments["knots"]),
            lower=arguments["lower_bound"],
            upper=arguments["upper_bound"],
            **options,
        )
    except (SchemaError, TypeError, ValueError) as error:
        raise SchemaError(f"{code!r} cannot be used: {error}") from None
    return tuple(Spline(name, basis, index) for index in range(basis.size))


def learns(code: str, called: str) -> SchemaError:
    """Return the error about a term that would learn from the rows, with its replacement."""
    remedy = {
        "center": "declare the column as Numeric(low, high, center=...)",
        "standardize": "declare the column as Numeric(low, high, center=..., scale=...)",
        "scale": "declare the column as Numeric(low, high, center=..., scale=...)",
        "poly": "write poly(x, 2), with a column and a degree only",
        "bs": (
            "write bs(x, knots=[...], lower_bound=..., upper_bound=...) with public numbers for "
            "the knots and bounds"
        ),
        "cr": (
            "write cr(x, knots=[...], lower_bound=..., upper_bound=...) with public numbers for "
            "the knots and bounds"
        ),
    }.get(called, "add the derived columns to the data and declare their bounds")
    return SchemaError(f"{code!r}: {called}() would estimate its parameters from the rows; {remedy}")
