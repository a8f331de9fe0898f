"""Terms of a design: which coefficients belong together, and the levels of a factor."""

from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np

from privinf.errors import ArgumentError, NotAvailableError
from privinf.schema import Design, Factor
from privinf.typing import Floats, Names
from privinf.validation import shown


def terms(names: Names, design: Design | None) -> dict[str, list[int]]:
    """Return the positions of each term's coefficients: ``C(g)[T.b]`` and ``C(g)[T.c]`` make ``C(g)``.

    Without a formula every coefficient is a term of its own.
    """
    grouped: dict[str, list[int]] = {}
    formula = design is not None and design.formula is not None
    for position, name in enumerate(names):
        grouped.setdefault(term_of(name) if formula else name, []).append(position)
    return grouped


def term_of(name: str) -> str:
    """Return the name of a column without its levels: ``C(g)[T.b]:x`` gives ``C(g):x``."""
    return re.sub(r"\[[^\[\]]*\]", "", name)


def pairwise_contrasts(
    term: str, names: Names, design: Design | None
) -> tuple[Floats, list[str], Floats, tuple[Any, ...]]:
    """Return contrasts of all pairs of levels, their labels, the factor's coding and its levels.

    Contrasts are of shape (pairs, p): later level minus earlier level. The coding, of shape (levels,
    columns of the term), has a row of zeros for the reference level.

    Raises
    ------
    NotAvailableError
        The model has no formula, hence no factors.
    ArgumentError
        The term is unknown, or not the main effect of one factor.
    """
    if design is None or design.schema is None:
        raise NotAvailableError("pairwise tests compare levels of a factor: they need a model from a formula")
    grouped = terms(names, design)
    if term not in grouped:
        raise ArgumentError(f"term {shown(term)} is not in the model; its terms are: {', '.join(grouped)}")
    positions = grouped[term]
    pieces = [design.columns[position].to_dict()["pieces"] for position in positions]
    factors = {str(piece[0].get("factor")) if len(piece) == 1 else "" for piece in pieces}
    declared = design.schema[name] if (name := factors.pop()) in design.schema else None
    if factors or not isinstance(declared, Factor):
        raise ArgumentError(f"term {shown(term)} is not the main effect of one factor")
    levels = declared.levels
    coding = np.zeros((len(levels), len(positions)))
    for column, piece in enumerate(pieces):
        coding[levels.index(piece[0]["level"]), column] = 1.0
    pairs = list(itertools.combinations(range(len(levels)), 2))
    contrasts = np.zeros((len(pairs), len(names)))
    for row, (first, second) in enumerate(pairs):
        contrasts[row, positions] = coding[second] - coding[first]
    return contrasts, [f"{levels[b]}-{levels[a]}" for a, b in pairs], coding, levels
