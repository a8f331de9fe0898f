"""Precision columns of named targets: neighbours, a noisy Gram matrix, and what its noise does.

For targets j = 1, ..., k after a sparse fit the neighbours of each target are picked by peeling
``|sum clip(x_j, 1) clip(x_k, 1)|``; one Gram matrix on the union of picked columns, targets and neighbours
gives all precision columns (`privinf.lasso.precision`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from privinf.errors import NotPositiveDefiniteError
from privinf.lasso.coordinates import score_correlation
from privinf.lasso.precision import column_noise_variance, floored, precision_columns
from privinf.lasso.sums import SparseSums
from privinf.lasso.thresholding import GRAM_ROOM, SparseFit, error_covariance, positions
from privinf.typing import Floats


@dataclass(frozen=True, slots=True)
class DebiasingBudget:
    """Prices in zCDP: neighbours, union Gram matrix, sizes of its columns, slopes with variances, score."""

    neighbours: float
    gram: float
    sizes: float
    slopes: float
    score: float


@dataclass(frozen=True, slots=True, eq=False)
class TargetColumns:
    """Precision columns of k targets, in the units of the sums.

    Attributes
    ----------
    union : list of int
        Columns of the design that any of them uses.
    standard : ndarray, shape (size of the union, k)
        w_j / sqrt(w_jj).
    noise : ndarray, shape (k,)
        Variance that the noise of each column causes.
    correlation : ndarray, shape (k, k)
        Of the scores.
    """

    union: list[int]
    standard: Floats
    noise: Floats
    correlation: Floats


def target_columns(
    sums: SparseSums,
    fit: SparseFit,
    targets: Sequence[int],
    budget: DebiasingBudget,
    *,
    neighbours: int,
    excluded: Sequence[int] = (),
) -> TargetColumns:
    """Return the precision columns of some targets; parameters as for `privinf.lasso.debiasing.debias`.

    Raises
    ------
    NotPositiveDefiniteError
        The noise leaves no precision.

    Notes
    -----
    **Privacy.** Spends what `budget` says of neighbours, gram and sizes.
    """
    members = _members(sums, fit, targets, neighbours, excluded, budget.neighbours)
    union = list(dict.fromkeys([*fit.picked, *targets, *(j for chosen in members for j in chosen)]))
    sums.size_columns(union, budget.sizes)
    norm = math.inf if math.isinf(budget.gram) else math.sqrt(GRAM_ROOM * len(union))
    noisy, gram_sd = sums.gram(union, norm, budget.gram, "Gram matrix of the precision columns")
    gram = floored(noisy)
    columns = precision_columns(gram, [list(positions(chosen, union)) for chosen in members])
    at = positions(targets, union)
    diagonal = columns[at, np.arange(len(targets))]
    if not (diagonal > 0.0).all():
        raise NotPositiveDefiniteError("the noisy Gram matrix gives a precision that is not positive")
    noise = column_noise(gram, gram_sd, columns, fit, targets, union, sums.n)
    return TargetColumns(union, columns / np.sqrt(diagonal), noise, score_correlation(columns, gram))


def _members(
    sums: SparseSums,
    fit: SparseFit,
    targets: Sequence[int],
    neighbours: int,
    excluded: Sequence[int],
    rho: float,
) -> list[list[int]]:
    """Return for every target: itself, the columns of the fit, its neighbours."""
    p = len(sums.units.scale)
    allowed = np.ones((len(targets), p), dtype=bool)
    allowed[:, [*fit.picked, *excluded]] = False
    allowed[np.arange(len(targets)), list(targets)] = False
    count = min(neighbours, int(allowed.sum(axis=1).min()))
    near: list[list[int]] = [[] for _ in targets]
    if count > 0:
        near = sums.neighbours(targets, count, allowed, rho)
    return [list(dict.fromkeys([j, *fit.picked, *chosen])) for j, chosen in zip(targets, near, strict=True)]


def column_noise(
    gram: Floats,
    gram_sd: float,
    columns: Floats,
    fit: SparseFit,
    targets: Sequence[int],
    union: list[int],
    n: int,
) -> Floats:
    """Return the variance that the noise of each precision column causes, its own coordinate left out."""
    at = positions(fit.picked, union)
    error = error_covariance(np.asarray(np.linalg.inv(gram[np.ix_(at, at)])), fit, n)
    variances = np.empty(len(targets))
    for column, target in enumerate(targets):
        others = np.array([i for i, j in enumerate(fit.picked) if j != target], dtype=int)
        variances[column] = column_noise_variance(
            columns[:, [column]], gram_sd, at[others], error[np.ix_(others, others)]
        )[0]
    return variances
