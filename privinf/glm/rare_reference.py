"""Rare reference levels of factors, seen in the covariance of released coefficients.

The coefficient of level j is the difference between level j and the reference level r. For a factor without
other columns, ``Cov(b_j, b_k)`` is the variance v_r of the mean of the reference level for every pair of
levels j, k, and ``Var(b_j) = v_j + v_r``. If few records have the reference level, v_r is most of the
variance of all coefficients of the factor, while differences between the other levels are precise. v_r is
estimated by the mean of the covariances of all pairs, and v by the median of ``Var(b_j) - v_r``. Only the
covariance of the fit is used, so this is post-processing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privinf.results.notes import Note
from privinf.schema import Design
from privinf.schema.declared import Factor
from privinf.schema.terms import Indicator
from privinf.typing import Floats

# Ratio v_r / v above which a reference level is called rare: standard errors of the coefficients are then
# more than three times as large as with a reference level that is as common as the others.
RARE_REFERENCE = 25.0
SMALLEST_VARIANCE = 1e-12  # of v, relative to v_r: differences of draws can be smaller than rounding
TEXT = (
    "The reference level {0!r} of {1!r} is rare, or the noise hides how common it is, so all coefficients of "
    "{1!r} have large standard errors. Choose a common reference level: declare it first among the levels of "
    "the schema, or name it in the formula, as in C({1}, Treatment({2!r}))."
)


@dataclass(frozen=True, slots=True)
class RareReference:
    """A factor with a rare reference level: the note on it, and its coefficients."""

    note: Note
    names: tuple[str, ...]


def rare_references(design: Design, covariance: Floats) -> tuple[RareReference, ...]:
    """Return the factors of a formula whose reference level is rare, with three levels or more.

    Parameters
    ----------
    design : Design
    covariance : ndarray, shape (p, p)
        Covariance of the coefficients, in any units of the other columns.
    """
    if design.schema is None or design.constant is None:
        return ()
    levels: dict[str, dict[object, int]] = {}
    for place, column in enumerate(design.columns):
        if len(column.pieces) == 1 and isinstance(piece := column.pieces[0], Indicator):
            levels.setdefault(piece.column, {})[piece.level] = place
    notes = []
    for name, places in levels.items():
        declared = design.schema[name]
        if not isinstance(declared, Factor):
            continue
        absent = [level for level in declared.levels if level not in places]
        if len(absent) != 1 or len(places) < 2:
            continue
        chosen = list(places.values())
        block = covariance[np.ix_(chosen, chosen)]
        of_reference = float(block[np.triu_indices(len(chosen), 1)].mean())
        others = np.diag(block) - of_reference
        typical = max(float(np.median(others)), SMALLEST_VARIANCE * abs(of_reference))
        if of_reference > RARE_REFERENCE * typical:
            common = list(places)[int(np.argmin(others))]
            text = TEXT.format(absent[0], name, common)
            notes.append(RareReference(Note(text, "must-read"), tuple(design.names[at] for at in chosen)))
    return tuple(notes)
