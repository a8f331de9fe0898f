r"""Nodewise regressions of named targets: double selection, a regression on the neighbors, its diagnostics.

For targets j = 1, ..., k after a sparse fit the neighbors of each target, columns that explain it next to
those of the fit, are selected by peeling ``|sum clip(e_j, c) clip(x_k, c)|``, e_j what the fit's columns
leave of the target. The nodewise regression of a target (`privinf.lasso.nodewise`) has both as regressors: an
effect that the fit missed does not move the target's coordinate if its column is among the neighbors. A
public rule chooses their number (`neighbor_count`).

One Gram matrix of the k residuals and the k targets, in their units, gives the scores' correlation and the
share of each target that is explained, ``R2_j = 1 - E e_j^2 / E x_j^2``. Where even the smallest quarter
of the selected neighbors explains a material part, more neighbors than the selected ones are likely to
matter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from privinf.lasso.coordinates import score_correlation, steadied
from privinf.lasso.diagnostics import NodewiseDiagnostics
from privinf.lasso.fit import GRAM_ROOM, SparseFit, positions
from privinf.lasso.nodewise import (
    ColumnRegression,
    column_regression,
    entries_above_noise,
    noise_of_column,
)
from privinf.lasso.precision import SMALLEST_SQUARE, floored, precision_columns
from privinf.lasso.prices import DebiasingPrices
from privinf.lasso.radii import residual_moments
from privinf.lasso.selection import detection_limit
from privinf.lasso.sums import SparseSums
from privinf.typing import Flags, Floats
from privinf.wire import Labels

NEAR_CLIP = 0.7  # c: where both factors of a product are clipped, in units of their sizes
MATTERS = 0.08  # smaller correlations of a target are not sought (`neighbor_count`)
MIN_NEIGHBORS = 4  # neighbors of a target, at least
MAX_NEIGHBORS = 40  # neighbors of a target, at most; also their number where there is no noise
STEADY = 0.125  # largest noise of all coefficients of a regression, relative to the target's residual
START = 0.1  # share of the columns' price for the Gram matrix before the selections
SIZES = 0.05  # share for the sizes of the neighbors
FORMS = 0.06  # share for the Gram matrix of residuals and targets at the end
REGRESSIONS = 1.0 - START - SIZES - FORMS  # the rest, for the regressions on the neighbors
FORMS_ROOM = 4.0  # residuals and targets are shrunk to the root of this many times k + 2
MATERIAL = 0.02  # share of the target that the smallest quarter of its neighbors may explain; more is marked
OUT = 3.0  # sds of its noise that the share must also exceed to be marked
HIDDEN_TAIL = 0.5  # part of the sampling variance from which on tails that the regressions cut matter


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TargetColumns:
    """Nodewise regressions of k targets, in the units of the sums.

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
    marks : NodewiseDiagnostics
    """

    union: list[int]
    standard: Floats
    noise: Floats
    correlation: Floats
    marks: NodewiseDiagnostics


def neighbor_count(budget: DebiasingPrices, n: int, p: int, targets: int, fixed: int) -> int:
    """Return the number of neighbors of every target.

    Parameters
    ----------
    budget : DebiasingPrices
    n, p, targets : int
        Records, columns and targets.
    fixed : int
        Columns of the fit, which are in every nodewise regression.

    Notes
    -----
    **Privacy.** A function of public numbers.

    m selections for each of k targets have Gumbel noise of scale ``2 c^2 sqrt(k m / (2 rho))`` in the sums;
    of p columns the largest noise is log p times that. As many are selected as keep it below the sum of a
    correlation of `MATTERS`, and the noise of all coefficients of a regression on them below `STEADY` of the
    target's residual; at least `MIN_NEIGHBORS` and at most `MAX_NEIGHBORS`.

    Examples
    --------
    >>> budget = DebiasingPrices(neighbors=0.0015, gram=0.0033, sizes=0.0, slopes=0.0, score=0.0)
    >>> [neighbor_count(budget, 40_000, 300, k, 10) for k in (1, 5)]
    [26, 6]
    """
    if math.isinf(budget.gram):
        return MAX_NEIGHBORS
    slope = residual_moments(NEAR_CLIP)[0] ** 2
    scale = MATTERS * slope * n / math.log(max(p, 2)) / (2.0 * NEAR_CLIP**2)
    findable = 2.0 * budget.neighbors * scale**2 / targets
    affordable = STEADY / noise_of_column(n, budget.gram * REGRESSIONS / targets) - fixed
    return int(min(max(min(findable, affordable), MIN_NEIGHBORS), MAX_NEIGHBORS))


def detectable_correlation(n: int, columns: int, selections: int, rho: float, bound: float) -> float:
    """Return the correlation with a target from which on a column is selected as its neighbor.

    Parameters
    ----------
    n, columns : int
    selections : int
        Neighbors of every target; 0: nothing is sought.
    rho : float
        Price of one target's selections, zCDP.
    bound : float
        Where columns are clipped, in units of their size.

    Notes
    -----
    **Privacy.** A function of public numbers. It holds if no more columns than selections have such a
    correlation.
    """
    if selections < 1:
        return 1.0
    if math.isinf(rho):
        bound = math.inf
        scale = 0.0
    else:
        scale = 4.0 * bound**2 / math.sqrt(8.0 * rho / selections)
    slope, square = residual_moments(bound)
    return min(1.0, detection_limit(n, columns, scale, slope**2, square**2) / math.sqrt(n))


def target_columns(
    sums: SparseSums,
    fit: SparseFit,
    targets: Sequence[int],
    budget: DebiasingPrices,
    *,
    neighbors: int | None,
    excluded: Sequence[int] = (),
) -> TargetColumns:
    """Return the nodewise regressions of some targets; parameters as for `privinf.lasso.debiasing.debias`.

    Raises
    ------
    NotPositiveDefiniteError
        The noise leaves no precision.

    Notes
    -----
    **Privacy.** Spends the prices `neighbors`, `gram` and `sizes` of `budget`.
    """
    k = len(targets)
    rho = budget.gram
    fresh = bool({*fit.selected, *targets} - sums.units.sized)
    sums.size_columns([*fit.selected, *targets], budget.sizes)
    near = _near(sums, fit, targets, neighbors, excluded, budget)
    regressors = [
        [i for i in dict.fromkeys([*fit.selected, *chosen]) if i != j]
        for j, chosen in zip(targets, near, strict=True)
    ]
    union = list(dict.fromkeys([*fit.selected, *targets, *(j for chosen in near for j in chosen)]))
    sums.size_columns(union, SIZES * rho + (0.0 if fresh else budget.sizes))
    price = REGRESSIONS * rho / k
    regressions = [
        column_regression(sums, fit, j, chosen, price) for j, chosen in zip(targets, regressors, strict=True)
    ]
    residuals = np.zeros((len(union), k))
    for column, (target, regression) in enumerate(zip(targets, regressions, strict=True)):
        residuals[positions(regression.regressors, union), column] = (
            -regression.coefficients / regression.scale
        )
        residuals[union.index(target), column] = 1.0 / regression.scale
    squares, own_squares, correlation, sd = _forms(sums, union, targets, residuals, FORMS * rho)
    scale = np.array([regression.scale for regression in regressions])
    errors = np.array(
        [known_error(fit, regression.regressors, sums.n) for regression in regressions]
    ) + _effects(regressions)
    noise = np.array([regression.step_sd**2 for regression in regressions]) * errors / scale**4
    tails = np.array([regression.tail**2 for regression in regressions]) * errors / scale**4
    heavy = tails > HIDDEN_TAIL * fit.scale**2 / (sums.n * scale**2)
    marks = _marks(regressions, near, sums.n, scale**2 * squares, own_squares, scale**2 * sd, sd, heavy)
    return TargetColumns(
        union=union, standard=residuals, noise=noise + tails, correlation=correlation, marks=marks
    )


def _effects(regressions: Sequence[ColumnRegression]) -> Floats:
    """Return abs(d~)^2 of every target as far as products show it, steadied over targets, at least 0."""
    estimates = np.array([regression.effects for regression in regressions])
    noise = math.sqrt(float(np.mean([regression.effects_sd**2 for regression in regressions])))
    return np.maximum(steadied(estimates, noise), 0.0)


def known_error(fit: SparseFit, regressors: Sequence[int], n: int) -> float:
    """Return E abs(d~)^2 of a fit whose selected columns are the signals, for those in `regressors`."""
    count = len(set(fit.selected) & set(regressors))
    return count * (fit.efficiency * fit.scale**2 / n + fit.step_sd**2)


def _near(
    sums: SparseSums,
    fit: SparseFit,
    targets: Sequence[int],
    neighbors: int | None,
    excluded: Sequence[int],
    budget: DebiasingPrices,
) -> list[list[int]]:
    """Return the neighbors of every target, selected by products with its residual on the fit's columns."""
    p = len(sums.units.scale)
    k = len(targets)
    allowed = np.ones((k, p), dtype=bool)
    allowed[:, [*fit.selected, *excluded]] = False
    allowed[np.arange(k), list(targets)] = False
    most_useful = neighbor_count(budget, sums.n, p, k, len(fit.selected)) if neighbors is None else neighbors
    count = min(most_useful, int(allowed.sum(axis=1).min()))
    if count == 0:
        return [[] for _ in targets]
    columns = list(dict.fromkeys([*fit.selected, *targets]))
    price = START * budget.gram
    norm = math.inf if math.isinf(price) else math.sqrt(GRAM_ROOM * len(columns))
    noisy, sd = sums.gram(columns, norm, price, Labels.GRAM_OF_SELECTION_AND_TARGETS)
    gram = floored(entries_above_noise(noisy, sd)[0])
    at = positions(targets, columns)
    members = [
        [int(i), *positions([s for s in fit.selected if s != j], columns)]
        for i, j in zip(at, targets, strict=True)
    ]
    forms = precision_columns(gram, members)
    forms /= np.sqrt(np.maximum(np.diag(forms[at]), np.finfo(np.float64).tiny))
    return sums.neighbors(columns, count, allowed, budget.neighbors, NEAR_CLIP, forms)


def _forms(
    sums: SparseSums, union: list[int], targets: Sequence[int], residuals: Floats, rho: float
) -> tuple[Floats, Floats, Floats, float]:
    """Return mean squares of residuals and targets, the residuals' correlation, the sd of a mean square.

    Of one noisy Gram matrix of standardized residuals and targets.
    """
    k = len(targets)
    transform = np.zeros((len(union), 2 * k))
    transform[:, :k] = residuals
    transform[positions(targets, union), np.arange(k, 2 * k)] = 1.0
    norm = math.inf if math.isinf(rho) else math.sqrt(FORMS_ROOM * (k + 2.0))
    gram, sd = sums.gram(union, norm, rho, Labels.RESIDUALS_OF_TARGETS, transform=transform)
    squares, own_squares = np.split(np.maximum(np.diag(gram), SMALLEST_SQUARE), 2)
    among = gram[:k, :k] - np.diag(np.diag(gram)[:k] - squares)
    return squares, own_squares, score_correlation(np.eye(k), among), sd


def _marks(
    regressions: Sequence[ColumnRegression],
    near: Sequence[Sequence[int]],
    n: int,
    size: Floats,
    own_squares: Floats,
    size_sd: Floats,
    own_sd: float,
    heavy: Flags,
) -> NodewiseDiagnostics:
    """Return the marks; `size` and `own_squares` are the mean squares of residuals and targets."""
    unexplained = size / own_squares
    sd = np.hypot(size_sd, unexplained * own_sd) / own_squares
    last = np.zeros(len(regressions))
    out = np.zeros(len(regressions), dtype=bool)
    for column, (regression, chosen, square) in enumerate(zip(regressions, near, size, strict=True)):
        share, noise = _last_quarter(regression, chosen, regression.step_sd**2 + square / n)
        last[column] = share / own_squares[column]
        out[column] = last[column] > MATERIAL and share > OUT * noise
    moving = np.array([regression.not_converged for regression in regressions], dtype=bool)
    selected = tuple(len(chosen) for chosen in near)
    return NodewiseDiagnostics(
        selected=selected,
        explained=1.0 - unexplained,
        explained_sd=sd,
        last=last,
        exhausted=out,
        not_converged=moving,
        heavy=heavy,
    )


def _last_quarter(
    regression: ColumnRegression, chosen: Sequence[int], variance: float
) -> tuple[float, float]:
    """Return the share that the smallest quarter of neighbors adds to the others, and the sd of its error.

    Of columns Q it is ``g_Q' (P_QQ)^-1 g_Q``, P = TT' the inverse Gram matrix; their error adds the
    `variance` of a whitened coordinate for each of them.
    """
    count = len(chosen) // 4
    if count == 0:
        return 0.0, 0.0
    at = positions(chosen, regression.regressors)
    inverse = regression.root[at] @ regression.root[at].T
    g = regression.coefficients[at]
    weakest = np.argsort(g**2 / np.diag(inverse), kind="stable")[:count]
    share = float(g[weakest] @ np.linalg.solve(inverse[np.ix_(weakest, weakest)], g[weakest]))
    return share - count * variance, variance * math.sqrt(2.0 * count)
