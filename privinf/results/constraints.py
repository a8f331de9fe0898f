"""Linear restrictions ``R b = q`` from strings, lists, mappings, arrays, or the terms of a design."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import patsy

from privinf.errors import ArgumentError, NotAvailableError
from privinf.results.context import Context
from privinf.schema import Design, Factor
from privinf.schema.formulas import term_name
from privinf.schema.terms import Contrast, Indicator, Piece
from privinf.typing import Floats, Names
from privinf.validation import check_array, shown

ConstraintLike: TypeAlias = (
    "str | Sequence[str] | Mapping[str, float] | np.ndarray[Any, Any] | tuple[Any, Any]"
)

TERM = (
    "{0} is a term and not a coefficient: wald_test_terms() tests every term jointly; to test its "
    "coefficients by wald_test(), f_test() or score_test(), pass {1!r}"
)


@dataclass(frozen=True, slots=True)
class Constraints:
    """k restrictions on p coefficients.

    Attributes
    ----------
    R : ndarray, shape (k, p)
    q : ndarray, shape (k,)
    labels : tuple of k str
        The left-hand sides, as printed in tables: ``x1 - x2``.
    """

    R: Floats
    q: Floats
    labels: tuple[str, ...]


def linear_constraints(restrictions: ConstraintLike, names: Sequence[str]) -> Constraints:
    """Return the restrictions that `restrictions` describes.

    Parameters
    ----------
    restrictions : str, list of str, mapping, array or tuple
        ``"x1 = x2 = 0"`` (two restrictions), ``"x1 = x2, x3 = 0.5"``, ``"2*x1 - x2"`` (equal to zero),
        ``["x1", "x2 = 1"]``, ``{"x1": 0.5}``, R of shape (k, p) or (p,), or ``(R, q)``. Names are those
        of the coefficients as printed, such as ``C(g)[T.b]`` or ``x:y``, without quotes.
    names : sequence of p str

    Raises
    ------
    ArgumentError
        An unknown name, a nonlinear expression, a wrong shape.
    NotAvailableError
        There are no coefficients.

    Notes
    -----
    Text goes to patsy, whatever engine ``statsmodels.formula.options`` names: under formulaic
    ``x1 = x2 = 0`` would be the single restriction ``x1 = x2``.
    """
    if not names:
        raise NotAvailableError(
            "this result contains no estimated coefficients, so no restrictions can be tested: its "
            "summary() gives the reason"
        )
    R, q = _matrices(restrictions, tuple(names))
    empty = ~R.any(axis=1)
    if empty.any():
        raise ArgumentError(
            f"restriction {int(np.flatnonzero(empty)[0])} (counted from 0) involves no coefficient: "
            "leave it out"
        )
    return Constraints(R, q, tuple(_label(row, names) for row in R))


def describes_restrictions(hypothesis: object) -> bool:
    """Whether a hypothesis is in words, a mapping, R or (R, q), and not the values of all slopes."""
    if isinstance(hypothesis, (str, Mapping)) or _is_text(hypothesis):
        return True
    if isinstance(hypothesis, tuple) and len(hypothesis) == 2 and np.ndim(hypothesis[0]) > 0:
        return True
    return isinstance(hypothesis, np.ndarray) and hypothesis.ndim == 2


def check_independent(restrictions: Constraints) -> Constraints:
    """Return the restrictions if none follows from the others (else ArgumentError): a joint test needs it."""
    rank = int(np.linalg.matrix_rank(restrictions.R))
    if rank < len(restrictions.R):
        raise ArgumentError(
            f"the {len(restrictions.R)} restrictions are linearly dependent (rank {rank}): leave out those "
            "that follow from the others"
        )
    return restrictions


def _matrices(restrictions: ConstraintLike, names: tuple[str, ...]) -> tuple[Floats, Floats]:
    if isinstance(restrictions, (str, Mapping)) or _is_text(restrictions):
        return _parsed(restrictions, names)
    R, q = restrictions if isinstance(restrictions, tuple) and len(restrictions) == 2 else (restrictions, 0.0)
    matrix = check_array(np.atleast_2d(np.asarray(R)), "R", ndim=2)
    if not matrix.size:
        raise ArgumentError("no restriction given")
    if matrix.shape[1] != len(names):
        raise ArgumentError(
            f"R has {matrix.shape[1]} columns, but it must have one for each of the {len(names)} "
            f"coefficients: {', '.join(names)}"
        )
    values = check_array(q, "q", ndim=np.ndim(q)).ravel()
    if values.size not in (1, len(matrix)):
        raise ArgumentError(
            f"q= has {values.size} entries, but it must have one for each of the {len(matrix)} restrictions"
        )
    return matrix, np.broadcast_to(values, (len(matrix),)).copy()


def _is_text(restrictions: Any) -> bool:
    return (
        isinstance(restrictions, (list, tuple))
        and bool(restrictions)
        and all(isinstance(item, str) for item in restrictions)
    )


def _parsed(restrictions: Any, names: tuple[str, ...]) -> tuple[Floats, Floats]:
    if len(set(names)) != len(names):
        raise ArgumentError(
            "restrictions cannot be written as text, because several coefficients have the same "
            "name: pass a matrix R with one column for each coefficient"
        )
    if not restrictions or (isinstance(restrictions, str) and not restrictions.strip()):
        raise ArgumentError("no restriction given")
    text = (
        list(restrictions)
        if isinstance(restrictions, tuple)
        else dict(restrictions)
        if isinstance(restrictions, Mapping)
        else restrictions
    )
    try:
        constraint = patsy.DesignInfo(names).linear_constraint(text)
    except (patsy.PatsyError, ValueError, TypeError, IndexError) as problem:
        if term := _term_of(restrictions, names):
            raise ArgumentError(TERM.format(*term)) from None
        reason = str(problem).partition("\n")[0].replace("a noun", "a coefficient or a number")
        raise ArgumentError(
            f"the restriction {shown(restrictions)} cannot be parsed ({reason}); the coefficients are "
            f"{', '.join(names)}"
        ) from None
    # patsy leaves negative zeros behind, which labels and tables would print
    R, q = (np.asarray(part, dtype=np.float64) + 0.0 for part in (constraint.coefs, constraint.constants))
    return R, q.ravel()


def _term_of(restrictions: Any, names: tuple[str, ...]) -> tuple[str, str] | None:
    """Return a factor that stands for a restriction, ``C(g)`` or ``g``, and its restrictions; else None."""
    if not isinstance(restrictions, str) or not (text := restrictions.partition("=")[0].strip()):
        return None
    for term in (text, f"C({text})"):
        levels = [name for name in names if name.startswith(f"{term}[") and ":" not in name]
        if levels:
            return term, " = ".join([*levels, "0"])
    return None


def _label(row: Floats, names: Sequence[str]) -> str:
    """Return ``2*x1 - x2`` for the coefficients of a restriction."""
    text = ""
    for weight, name in zip(row, names, strict=True):
        if weight == 0.0:
            continue
        size = "" if abs(weight) == 1.0 else f"{abs(weight):g}*"
        sign = ("-" if weight < 0.0 else "") if not text else (" - " if weight < 0.0 else " + ")
        text += f"{sign}{size}{name}"
    return text


def terms(names: Names, design: Design | None) -> dict[str, list[int]]:
    """Return the positions of each term's coefficients: ``C(g)[T.b]`` and ``C(g)[T.c]`` make ``C(g)``.

    The terms are those of the design's formula. In a design of arrays every column is a term of its own.

    Raises
    ------
    NotAvailableError
        The result has no design, or coefficients that its design's formula does not have.
    """
    if design is None:
        raise NotAvailableError("term tests require a model with a formula or with named columns")
    term_of = {name: name for name in names} if design.formula is None else design.terms
    if unknown := [name for name in names if name not in term_of]:
        raise NotAvailableError(
            f"coefficient {shown(unknown[0])} does not belong to a term of the formula: test it "
            "with wald_test()"
        )
    grouped: dict[str, list[int]] = {}
    for position, name in enumerate(names):
        grouped.setdefault(term_of[name], []).append(position)
    return grouped


def pairwise_contrasts(
    term: str, names: Names, design: Design | None, factor_labels: Sequence[str] | None = None
) -> tuple[Floats, list[str], Floats, tuple[Any, ...]]:
    """Return contrasts of all pairs of levels, their labels, the factor's coding and its levels.

    Labels call the levels by their own names, or as `factor_labels` has them. Contrasts are of shape
    (pairs, p): later level minus earlier level. The coding, of shape (levels, columns of the term), has the
    values that the term's columns take at each level, whatever contrasts the formula chose: a row of zeros
    for the reference level of a treatment coding.

    Raises
    ------
    NotAvailableError
        The model has no formula, hence no factors.
    ArgumentError
        The term is unknown, or not the main effect of one factor.
    """
    if design is None or design.schema is None or design.formula is None:
        raise NotAvailableError(
            "pairwise tests compare the levels of a factor: they require a model with a formula"
        )
    grouped = terms(names, design)
    name = term_name(term)
    if name not in grouped:
        raise ArgumentError(f"term {shown(term)} is not in the model; its terms are: {', '.join(grouped)}")
    positions = grouped[name]
    columns = design.columns if design.raw is None else design.raw
    by_name = dict(zip(design.names, columns, strict=True))
    pieces = [by_name[names[position]].pieces for position in positions]
    factor = _single_factor(pieces)
    declared = None if factor is None else design.schema[factor]
    if not isinstance(declared, Factor):
        raise ArgumentError(
            f"term {shown(term)} is not the main effect of one factor: pass the name of such a term"
        )
    levels = _levels_in_order(pieces, declared)
    coding = np.array([[_value_at(piece[0], level) for piece in pieces] for level in levels])
    pairs = list(itertools.combinations(range(len(levels)), 2))
    contrasts = np.zeros((len(pairs), len(names)))
    for row, (first, second) in enumerate(pairs):
        contrasts[row, positions] = coding[second] - coding[first]
    labels = levels if factor_labels is None else tuple(factor_labels)
    if len(labels) != len(levels):
        raise ArgumentError(
            f"factor_labels= contains {len(labels)} labels, but the factor has {len(levels)} levels"
        )
    return contrasts, [f"{labels[b]}-{labels[a]}" for a, b in pairs], coding, levels


def check_adjustment(method: str | Sequence[str]) -> None:
    """Raise ArgumentError, listing the methods, for an adjustment that statsmodels does not have."""
    from statsmodels.stats.multitest import multitest_alias, multitest_methods_names

    for name in [method] if isinstance(method, str) else method:
        if name not in multitest_alias:
            known = ", ".join(f"{code!r} ({label})" for code, label in multitest_methods_names.items())
            raise ArgumentError(f"method= must be one of {known}, got {shown(name)}")


def _single_factor(pieces: Sequence[tuple[Piece, ...]]) -> str | None:
    """Return the factor that a term codes as a main effect, None if it is another kind of term."""
    coded = [piece[0] for piece in pieces if len(piece) == 1 and isinstance(piece[0], (Indicator, Contrast))]
    factors = {piece.column for piece in coded}
    return factors.pop() if len(coded) == len(pieces) and len(factors) == 1 else None


def _levels_in_order(pieces: Sequence[tuple[Piece, ...]], declared: Factor) -> tuple[Any, ...]:
    """Return the levels of a factor as its coding has them, else as they are declared."""
    ordered = [piece[0].levels for piece in pieces if isinstance(piece[0], Contrast)]
    return ordered[0] if ordered else declared.levels


def _value_at(piece: Piece, level: Any) -> float:
    """Return the value of an indicator or a contrast at a level of the factor."""
    if isinstance(piece, Contrast):
        return piece.weights[piece.levels.index(level)]
    assert isinstance(piece, Indicator)
    return float(piece.level == level)


def left_out(full: Context, names: Sequence[str], restricted: Context, fewer: Sequence[str]) -> list[int]:
    """Return the places in `names` of the columns that a nested fit of the same release leaves out.

    Raises ArgumentError unless the fits are nested, of one response and of one release.
    """
    responses = [
        None if context.design is None else context.design.response for context in (full, restricted)
    ]
    if responses[0] is None or responses[0] != responses[1]:
        raise ArgumentError("the two fits have different responses: compare two fits of the same response")
    if set(fewer) == set(names):
        raise ArgumentError(
            "both fits have the same columns, so there is nothing to test: pass a fit without the columns to "
            "be tested, of the same pi.Moments release"
        )
    if not set(fewer) < set(names):
        raise ArgumentError(
            f"the other fit must be nested in this fit, but its columns ({', '.join(fewer)}) are not a part "
            f"of the columns of this fit ({', '.join(names)}). Call the method on the larger fit, and code "
            "factors alike in both"
        )
    left = [place for place, name in enumerate(names) if name not in fewer]
    if full.report.entries != restricted.report.entries:
        test = " = ".join([*(names[place] for place in left), "0"])
        raise ArgumentError(
            "the two fits come from different releases, so their difference has the noise of both. The "
            "larger fit alone tests the columns that the smaller one leaves out: call its "
            f"wald_test({test!r}), or compare two fits of one pi.Moments release"
        )
    return left
