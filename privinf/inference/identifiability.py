"""Fits without noise whose rows do not identify the coefficients: which columns are to blame."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from privinf.errors import ConvergenceError, NotPositiveDefiniteError
from privinf.typing import CurvedFamily, Floats

# Eigenvalues of a Gram matrix of columns of unit length that are rounding: sums of rows have about 1e-15.
RANK_TOLERANCE = 1e-11
# A column takes part in a direction if its part, in units of its length, passes this share of the largest.
LEAST_PART = 0.05
# Information n h of a direction, h the mean curvature of the likelihood along it. A finite maximum has about
# 1 or more: one outcome of each kind, or one count, along the direction.
LEAST_INFORMATION = 1e-4
ALIKE = {
    "binomial": (
        "coefficients may be infinite, because all outcomes are equal: use more rows, or another response"
    ),
    "poisson": (
        "coefficients may be infinite, because all counts are zero: use more rows, or another response"
    ),
}
SEPARATED = {
    "binomial": (
        "coefficients may be infinite, because {} the outcomes 0 and 1: leave such columns out, or merge "
        "levels of their factors"
    ),
    "poisson": (
        "coefficients may be infinite, because all counts that would identify {} are zero: "
        "leave such columns out, or merge levels of their factors"
    ),
}


def check_full_rank(gram: Floats, names: Sequence[str]) -> None:
    """Raise if columns repeat one another in rows that are released without noise.

    Parameters
    ----------
    gram : ndarray, shape (p, p)
        Second moments of the columns, without noise, in any units.
    names : sequence of p str

    Raises
    ------
    NotPositiveDefiniteError
        Names the columns: those that are zero, or the ones that are sums of others.
    """
    p = len(gram)
    lengths = np.sqrt(np.maximum(np.diag(gram), 0.0))
    unit = np.where(lengths > 0.0, lengths, 1.0)
    values, vectors = np.linalg.eigh(gram / np.outer(unit, unit))
    null = values < RANK_TOLERANCE * p
    if not null.any():
        return
    involved = list(map(repr, columns_along(vectors[:, null] / unit[:, None], unit, names)))
    rank = p - int(null.sum())
    if len(involved) == 1:
        problem = f"column {involved[0]} is 0 in all rows"
    else:
        problem = f"columns {', '.join(involved)} are linearly dependent in these rows"
    raise NotPositiveDefiniteError(
        f"{problem}, so the {p} coefficients are not all identified (the matrix of the columns has rank "
        f"{rank}): leave out redundant columns"
    )


def check_finite_maximum(
    information: Floats,
    gram: Floats,
    n: float,
    names: Sequence[str],
    family: CurvedFamily,
) -> None:
    """Raise if the likelihood increases without bound along a direction: the rows separate the outcomes.

    Parameters
    ----------
    information : ndarray, shape (p, p)
        Mean Hessian at the present coefficients, without noise.
    gram : ndarray, shape (p, p)
        Second moments of the same columns, of full rank.
    n : float
        Rows.
    names : sequence of p str
    family : {"binomial", "poisson"}
        Whose messages are wanted.

    Raises
    ------
    ConvergenceError
        Names the columns of the directions in which the curvature is gone.

    Notes
    -----
    Along u the mean curvature is ``u'Hu / u'Gu``. It is the mean of p(1 - p), or of the fitted counts, which
    is 1/n or more if there is one outcome of each kind, or one count.
    """
    lengths = np.sqrt(np.diag(gram))
    values, vectors = np.linalg.eigh(gram / np.outer(lengths, lengths))
    root = (vectors / np.sqrt(values)) / lengths[:, None]
    curvature, directions = np.linalg.eigh(root.T @ information @ root)
    flat = curvature * n < LEAST_INFORMATION
    if not flat.any():
        return
    if flat.all():
        raise ConvergenceError(ALIKE[family])
    involved = list(map(repr, columns_along(root @ directions[:, flat], lengths, names)))
    if family == "binomial":
        involved = [f"{', '.join(involved)} {'separates' if len(involved) == 1 else 'separate'}"]
    raise ConvergenceError(SEPARATED[family].format(", ".join(involved)))


def columns_along(directions: Floats, lengths: Floats, names: Sequence[str]) -> list[str]:
    """Return the columns that take part in some directions of coefficients, shape (p, k)."""
    parts = np.abs(directions * lengths[:, None])
    involved = (parts > LEAST_PART * parts.max(axis=0)).any(axis=1)
    return [name for name, part in zip(names, involved, strict=True) if part]
