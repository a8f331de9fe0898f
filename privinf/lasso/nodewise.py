r"""Nodewise regressions of targets: double selection, a regression on the neighbors, its diagnostics.

For targets j = 1, ..., k after a sparse fit the neighbors of each target, columns that explain it next to
those of the fit, are selected by peeling ``|sum clip(e_j, c) clip(x_k, c)|``, e_j what the fit's columns
leave of the target. The nodewise regression of a target (`column_regression`, below) has both as regressors:
an effect that the fit missed does not move the target's coordinate if its column is among the neighbors. A
public rule chooses their number (`neighbor_count`).

One Gram matrix of the k residuals and the k targets, in their units, gives the scores' correlation and the
share of each target that is explained, ``R2_j = 1 - E e_j^2 / E x_j^2``. Where even the smallest quarter
of the selected neighbors explains a material part, more neighbors than the selected ones are likely to
matter.

Other fits solve for all their nodewise regressions from one noisy Gram matrix (`privinf.lasso.precision`),
because they have too many of them, or rows whose weights depend on all: fits where all columns are targets
(`all_target_columns`), logistic fits (`logistic_target_columns`) and fits by site
(`privinf.lasso.heterogeneous.scores`).

**One regression.** For target j and other columns A the residual ``e_j = x_j - x_A'g`` is uncorrelated with
x_A, and the nodewise regression is ``w_j = (1, -g) / E e_j^2``. g comes from clipped preconditioned steps, as
the coefficients of y do: with ``T T' ~ (E x_A x_A')^-1`` and v = T'x_A shrunk to abs(v) <= C,

    g <- g + T mean[v psi_R(e_j)] / (A1(C) B1(R)).

A Gram matrix of q columns is about sqrt q times as far from the truth as such a step of q numbers: it makes T
and the start only, and its noise does not bias the end point. The last step's noise z, of sd t in whitened
coordinates, is what remains of ``mean e_j v = -z``: an error d of the coefficients of y on A moves the
debiased coordinate by ``z'd~ / E e_j^2``, ``d~ = T'Gd``, with the variance

    t^2 |d~|^2 / (E e_j^2)^2.                                                             (noise of w_j)

**Tails.** The end point solves mean[v psi_R(e_j)] = 0, which leaves ``L = mean e_j v`` where e_j has a long
tail that depends on v, as for products and rare levels: L'd~ then moves the coordinate, for any number of
rows. Counts of ``|v| |e_j|`` above public thresholds, from `FAR` times its size on, show the mean X of
the tail, and abs(L) is at most about X (0.25 to 0.45 of it in five real tables). Half of X represents it,
in a direction unrelated to d~: ``h^2 = (X / 2)^2 / q`` is added to t^2.

**Preconditioner.** Only those entries of the noisy Gram matrix are kept that stand out of their noise. The
noise of d kept entries a row has eigenvalues of up to g sqrt(2 d), g its sd on the diagonal: where the
smallest eigenvalue is not well above, a second matrix, of v = T'x in the eigenvectors' coordinates, shows the
error of T and corrects it. Otherwise its price goes to the steps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from privinf.inference.estimate import upper_quantile
from privinf.lasso.diagnostics import NodewiseDiagnostics
from privinf.lasso.fit import SparseFit, error_variance, steps, still_moving
from privinf.lasso.logistic import FIRST_MATRIX_SHARE, LogisticFit, two_stage_hessian
from privinf.lasso.plan import PRODUCT_CLIP, DebiasingPrices
from privinf.lasso.precision import (
    SMALLEST_SQUARE,
    THRESHOLD,
    AllColumns,
    all_columns,
    clearance,
    floored,
    joint_columns,
    positions,
    precision_columns,
    score_correlation,
    standing_out,
    steadied,
)
from privinf.lasso.radii import MOST_ROWS, curvature_bound, gram_norm, norm_moments, residual_moments
from privinf.lasso.sums import Directions, HiddenByNoise, LogisticSums, Score, SparseSums
from privinf.mechanisms.statistics.summands import counts_above
from privinf.typing import Flags, Floats, Integers
from privinf.wire import Labels, Statistics

# Targets and their neighbors
NEAR_CLIP = 0.7  # c: where both factors of a product are clipped, in units of their sizes
MATTERS = 0.08  # smaller correlations of a target are not sought (`neighbor_count`)
MIN_NEIGHBORS = 4  # neighbors of a target, at least
MAX_NEIGHBORS = 40  # neighbors of a target, at most; also their number in a fit without noise
STEADY = 0.125  # largest noise of all coefficients of a regression, relative to the target's residual
START = 0.1  # share of the columns' price for the Gram matrix before the selections
SIZES = 0.05  # share for the sizes of the neighbors
FORMS = 0.06  # share for the Gram matrix of residuals and targets at the end
REGRESSIONS = 1.0 - START - SIZES - FORMS  # the rest, for the regressions on the neighbors
FORMS_ROOM = 4.0  # residuals and targets are shrunk to the root of this many times k + 2
MATERIAL = 0.02  # share of the target that the smallest quarter of its neighbors may explain; more is marked
OUT = 3.0  # sds of its noise that the share must also exceed to be marked
HIDDEN_TAIL = 0.5  # part of the sampling variance from which on tails that the regressions cut matter

# The regression of one target; shares are of its price
GRAM_SHARE = 0.26  # share of a target's price for the Gram matrix of its neighbors
SECOND_GRAM_SHARE = 0.17  # share for a second one, where it is needed
SCALES = 0.05  # share for the sizes of residuals
EFFECTS = 0.12  # share for what the coefficients of y leave in the products with the neighbors
TAIL = 0.05  # share for the tail of residuals; the rest of the price is for the steps
STEPS = (0.2, 0.3, 0.5)  # shares of the steps' price; the last step decides the noise
CLIP = 2.0  # of residuals of columns, in units of their size
MIN_CLEARANCE = 3.0  # smallest eigenvalue over the noise's largest, below which there is a second release
MIN_SECOND_CLEARANCE = 0.5  # the same after the second release, below which the target is marked
FAR = 4.0  # smallest threshold of the tails that are counted, in sizes
APART_BY = math.sqrt(2.0)  # ratio of a threshold to the one below it
TAIL_CELLS = 8  # number of thresholds
FALSE_TAIL = 0.01  # chance that noise alone is taken for a tail, over all thresholds
TINIEST = 1e-6  # least eigenvalue, relative to the mean of all
LARGEST_SIZE = 1.5  # of a residual, in units of the target's released size

# Where all columns are targets
STANDS_OUT = 3.0  # sds of its noise from which on a product is used as it was released
CLIP_OF_PRODUCTS = 1.0  # where both factors of a product are clipped, in units of the columns' sizes
HIDDEN_GRAM = (
    "the noise hides the Gram matrix of the fitted columns: increase the budget, fit fewer "
    "columns, or give this matrix a larger share with shares="
)

# Logistic fits
MIN_LOGISTIC_NEIGHBORS = 2  # neighbors of a target, at least, where their number is not an argument
MAX_LOGISTIC_NEIGHBORS = 25  # and at most; also their number where there is no noise
# Share of a coordinate's variance that noise of the Gram matrix may add (`affordable_neighbors`).
AFFORDED = 0.03
TYPICAL = 40  # columns for which the bound on c |v|^2 is worked out; the rule uses that bound per column


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

    m selections for each of k targets have Gumbel noise of scale ``2 c^2 sqrt(k m / (2 rho))`` in the sums.
    With p columns, the largest noise is log p times that. As many are selected as keep it below the sum of a
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
    ) + _steadied_effects(regressions)
    noise = np.array([regression.step_sd**2 for regression in regressions]) * errors / scale**4
    tails = np.array([regression.tail**2 for regression in regressions]) * errors / scale**4
    heavy = tails > HIDDEN_TAIL * fit.scale**2 / (sums.n * scale**2)
    marks = _marks(regressions, near, sums.n, scale**2 * squares, own_squares, scale**2 * sd, sd, heavy)
    return TargetColumns(
        union=union, standard=residuals, noise=noise + tails, correlation=correlation, marks=marks
    )


def _steadied_effects(regressions: Sequence[ColumnRegression]) -> Floats:
    """Return abs(d~)^2 of every target as far as products show it, steadied over targets, at least 0."""
    estimates = np.array([regression.effects for regression in regressions])
    noise = math.sqrt(float(np.mean([regression.effects_sd**2 for regression in regressions])))
    return np.maximum(steadied(estimates, noise), 0.0)


def known_error(fit: SparseFit, regressors: Sequence[int], n: int) -> float:
    """Return E abs(d~)^2 of a fit whose selected columns are the signals, for those in `regressors`."""
    count = len(set(fit.selected) & set(regressors))
    return count * error_variance(fit, n)


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
    allowed = sums.possible_neighbors(targets, [*fit.selected, *excluded])
    most_useful = neighbor_count(budget, sums.n, p, k, len(fit.selected)) if neighbors is None else neighbors
    count = min(most_useful, int(allowed.sum(axis=1).min()))
    if count == 0:
        return [[] for _ in targets]
    columns = list(dict.fromkeys([*fit.selected, *targets]))
    price = START * budget.gram
    noisy, sd = sums.gram(
        columns, gram_norm(len(columns), price), price, Labels.GRAM_OF_SELECTION_AND_TARGETS
    )
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


def all_target_columns(sums: SparseSums, fit: SparseFit, budget: DebiasingPrices) -> AllColumns:
    """Return the nodewise regressions of all columns on the selected ones.

    Raises
    ------
    HiddenByNoise
        The noise hides the Gram matrix of the fit's columns.

    Notes
    -----
    **Privacy.** Spends the prices `gram`, for the Gram matrix of the selected columns, and `neighbors`, for
    their products with the others.
    """
    selected = np.array(fit.selected)
    rest = np.setdiff1d(np.arange(len(sums.units.scale)), selected)
    norm = gram_norm(len(selected), budget.gram)
    noisy, gram_sd = sums.gram(fit.selected, norm, budget.gram, Labels.GRAM_OF_PRECISION_COLUMNS)
    if not np.trace(noisy) > 0.0:
        raise HiddenByNoise(HIDDEN_GRAM)
    products, errors = _products(sums, fit, rest, budget.neighbors)
    return all_columns(floored(noisy), gram_sd, selected, rest, products, errors, error_variance(fit, sums.n))


def _products(sums: SparseSums, fit: SparseFit, rest: Integers, rho: float) -> tuple[Floats, Floats]:
    """Return c of the columns outside the fit and e^2, each of shape (m, size of rest)."""
    if not len(rest):
        return np.empty((len(fit.selected), 0)), np.empty((len(fit.selected), 0))
    private = math.isfinite(rho)
    bound = CLIP_OF_PRODUCTS if private else float(sums.units.max_abs.max())
    noisy = sums.release(
        Statistics.COLUMN_PRODUCTS,
        sums.args((), np.empty(0), targets=np.array(fit.selected), bound=bound),
        rho,
        Labels.PRODUCTS_WITH_SELECTED,
    )
    # E clip(x) clip(z) is about P(|x| < c)^2 E x z for normal x and z.
    shrunk = residual_moments(bound)[0] ** 2 if private else 1.0
    products = noisy.mean[:, rest] / shrunk
    sd = noisy.mean_sd / shrunk
    if not private:
        return products, np.zeros_like(products)
    away = products - products.mean(axis=1, keepdims=True)
    above_noise = np.abs(away) > STANDS_OUT * sd
    unseen = max(0.0, float(np.var(away[~above_noise])) - sd**2) if not above_noise.all() else 0.0
    return np.where(above_noise, products, products - away), np.where(above_noise, sd**2, unseen)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LogisticTargetColumns:
    """Nodewise regressions of the targets of a logistic fit.

    Attributes
    ----------
    along : Directions
        u, with E c u u' = I.
    root : ndarray, shape (k, k)
        Omega^1/2.
    noise : ndarray, shape (k,)
        Variance that the noise of each column causes.
    clearance : float
        That of the Gram matrix (`privinf.lasso.precision.clearance`).
    """

    along: Directions
    root: Floats
    noise: Floats
    clearance: float


def logistic_target_columns(
    sums: LogisticSums,
    fit: LogisticFit,
    targets: Sequence[int],
    prices: DebiasingPrices,
    *,
    neighbors: int,
    excluded: Sequence[int] = (),
) -> LogisticTargetColumns:
    """Return the nodewise regressions of the targets of a logistic fit.

    The Gram matrix is the noisy mean of c z z', in two releases: the second is at v = F'z, F from the first,
    where all directions have similar variances, so that its noise affects weak directions no more than strong
    ones.

    Parameters
    ----------
    sums : LogisticSums
    fit : LogisticFit
    targets : sequence of int
    prices : DebiasingPrices
    neighbors : int
        Number selected for every target, in addition to the columns of the fit.
    excluded : sequence of int
        Columns that may not be neighbors.

    Notes
    -----
    **Privacy.** Spends the prices of neighbors, sizes and the Gram matrix.
    """
    union = _union(sums, fit, targets, neighbors, excluded, prices.neighbors)
    sums.sparse.size_columns(union, prices.sizes)
    label = Labels.GRAM_OF_TARGETS_AND_NEIGHBOURS
    whitening, gram = two_stage_hessian(sums, fit.point, union, fit.spread, prices.gram, label)
    columns = joint_columns(whitening, gram.mean, 1 + positions(targets, union))
    in_fit = np.append(0, 1 + positions(fit.point.support, union))
    return LogisticTargetColumns(
        along=Directions(union, columns.directions),
        root=columns.root,
        noise=columns.noise(gram.sd, in_fit, error_variance(fit, sums.n)),
        clearance=clearance(gram.mean, gram.sd),
    )


def affordable_neighbors(fit: LogisticFit, targets: int, n: int, rho: float) -> int:
    """Return the number of neighbors of each target, by a rule on public and released numbers.

    A Gram matrix of m columns of price mu, rows weighted down to c |v|^2 <= K = kappa m, has noise of sd
    g = sqrt 2 kappa m / (n mu), which raises the variance of a coordinate by m g^2 / 2: at most 3% while
    m^3 <= 0.03 (n mu / kappa)^2.
    """
    if math.isinf(rho):
        return MAX_LOGISTIC_NEIGHBORS
    kappa = curvature_bound(fit.spread, TYPICAL, MOST_ROWS) / TYPICAL
    price = 2.0 * (1.0 - FIRST_MATRIX_SHARE) * rho
    room = (AFFORDED * price * (n / kappa) ** 2) ** (1.0 / 3.0) - len(fit.point.support)
    room -= 1.0
    return int(np.clip(room / targets, MIN_LOGISTIC_NEIGHBORS, MAX_LOGISTIC_NEIGHBORS))


def _union(
    sums: LogisticSums,
    fit: LogisticFit,
    targets: Sequence[int],
    neighbors: int,
    excluded: Sequence[int],
    rho: float,
) -> list[int]:
    """Return selected columns, targets and their neighbors."""
    union = [*fit.point.support, *targets]
    allowed = sums.sparse.possible_neighbors(targets, [*union, *excluded])
    if count := min(neighbors, int(allowed[0].sum())):
        union += [j for chosen in sums.sparse.neighbors(targets, count, allowed, rho) for j in chosen]
    return list(dict.fromkeys(union))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ColumnRegression:
    """The regression of a target on other columns, in the units of the sums.

    Attributes
    ----------
    regressors : list of int
        A.
    coefficients : ndarray, shape (size of A,)
        g.
    root : ndarray, shape (size of A, size of A)
        T.
    scale : float
        Typical size of the residual.
    step_sd : float
        t.
    effects, effects_sd : float
        Estimate of abs(d~)^2 due to effects of columns outside the fit, from products of v with the residuals
        of y, noise removed on average; its sd.
    not_converged : bool
        Whether the steps were still moving at the end, or the noise hides the Gram matrix.
    tail : float
        h, the possible clipping bias of a whitened coordinate.
    """

    regressors: list[int]
    coefficients: Floats
    root: Floats
    scale: float
    step_sd: float
    effects: float
    effects_sd: float
    not_converged: bool
    tail: float


def column_regression(
    sums: SparseSums, fit: SparseFit, target: int, regressors: Sequence[int], rho: float
) -> ColumnRegression:
    """Return the regression of a target on other columns.

    Parameters
    ----------
    sums : SparseSums
        Of the response.
    fit : SparseFit
        Its coefficients.
    target : int
    regressors : sequence of int
        A, without the target.
    rho : float
        Price, zCDP.

    Notes
    -----
    **Privacy.** Spends `rho`.
    """
    regressors = list(regressors)
    if not regressors:
        return ColumnRegression(
            regressors=[],
            coefficients=np.empty(0),
            root=np.empty((0, 0)),
            scale=1.0,
            step_sd=0.0,
            effects=0.0,
            effects_sd=0.0,
            not_converged=False,
            tail=0.0,
        )
    release = _neighbor_gram(sums, target, regressors, rho)
    root = release.root
    g = release.start
    steps_price = release.steps_price
    column = replace(sums, response=target)
    size = len(regressors)
    price = 0.5 * SCALES * rho
    typical, scale = _sizes(column, release, regressors, g, price)
    prices = [share * steps_price for share in STEPS]
    before, last = steps(column, regressors, g, root, scale, CLIP * scale / typical, prices)[-2:]
    g, noise = shrunk(last.beta, root, last.noise)
    _, scale = _sizes(column, release, regressors, g, price)
    moving = still_moving(last.length, size, math.hypot(before.noise, noise, scale / math.sqrt(sums.n)))
    not_converged = math.isfinite(rho) and (moving or release.clearance < MIN_SECOND_CLEARANCE)
    effects, effects_sd = _effects(sums, fit, regressors, root, EFFECTS * rho)
    tail = _tail(column, regressors, g, root, scale, TAIL * rho)
    return ColumnRegression(
        regressors=regressors,
        coefficients=g,
        root=root,
        scale=scale,
        step_sd=noise,
        effects=effects,
        effects_sd=effects_sd,
        not_converged=not_converged,
        tail=tail,
    )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _NeighborGram:
    """Whitening and first coefficients by the Gram matrices of a target and its neighbors."""

    gram: Floats
    sd: float
    root: Floats
    start: Floats
    clearance: float
    steps_price: float


def _sizes(
    column: SparseSums, release: _NeighborGram, regressors: list[int], g: Floats, rho: float
) -> tuple[float, float]:
    """Return the typical size of the residuals, and their root mean square.

    The first is their 68% point, no larger than the Gram matrix and the target's own size allow; the second
    is larger where the Gram matrix shows it beyond its noise, as for rare levels.
    """
    form = np.append(1.0, -g)
    square = float(form @ release.gram @ form)
    noise = release.sd * float(form @ form)
    if math.isinf(rho):
        return math.sqrt(square), math.sqrt(square)
    largest = math.sqrt(min(max(square, 0.0) + THRESHOLD * noise, LARGEST_SIZE**2))
    point = column.residual_scale(regressors, g, rho, Labels.SIZES_OF_TARGET_RESIDUALS)
    typical = min(point, largest)
    excess = square - typical**2
    if excess <= THRESHOLD * noise:
        return typical, typical
    root_mean = math.sqrt(typical**2 + float(standing_out(np.array([excess]), noise)[0]))
    return typical, min(root_mean, LARGEST_SIZE)


def shrunk(g: Floats, root: Floats, noise: float) -> tuple[Floats, float]:
    """Return coefficients, shrunk where they are mostly noise, and the sd of their error.

    Of G = abs(T^-1 g)^2 the noise has the share a = q t^2 / G. With ``f = 1 - a^2`` the error is ``f^2 t^2``
    by noise and ``(1 - f)^2 (1 - a) G / q`` by shrinking, a whitened coordinate on average.
    """
    square = float(np.sum(np.square(np.linalg.solve(root, g))))
    if noise == 0.0 or square == 0.0:
        return g, noise
    share = min(1.0, len(g) * noise**2 / square)
    factor = 1.0 - share**2
    missed = (1.0 - factor) ** 2 * max(1.0 - share, 1.0 / len(g)) * square / len(g)
    return factor * g, math.sqrt(factor**2 * noise**2 + missed)


def _neighbor_gram(sums: SparseSums, target: int, regressors: list[int], rho: float) -> _NeighborGram:
    """Return T, a start of g, the clearance of the matrix of T, and the price that remains for steps."""
    steps_price = (1.0 - GRAM_SHARE - SCALES - EFFECTS - TAIL) * rho
    noisy, sd = sums.gram(
        [target, *regressors],
        gram_norm(len(regressors) + 1, rho),
        GRAM_SHARE * rho,
        Labels.GRAMS_OF_NEIGHBOURS,
    )
    thresholded_gram, edge = entries_above_noise(noisy, sd)
    root, clearance = _inverse_root(thresholded_gram[1:, 1:], edge)
    start = root @ (root.T @ thresholded_gram[1:, 0])
    if clearance >= MIN_CLEARANCE:
        return _NeighborGram(
            gram=noisy, sd=sd, root=root, start=start, clearance=clearance, steps_price=steps_price
        )
    second, spread = sums.gram(
        regressors,
        gram_norm(len(regressors), rho),
        SECOND_GRAM_SHARE * rho,
        Labels.SECOND_GRAMS_OF_NEIGHBOURS,
        transform=root,
    )
    refinement, clearance = _inverse_root(*entries_above_noise(second, spread))
    return _NeighborGram(
        gram=noisy,
        sd=sd,
        root=root @ refinement,
        start=start,
        clearance=clearance,
        steps_price=steps_price - SECOND_GRAM_SHARE * rho,
    )


def noise_of_column(n: int, rho: float) -> float:
    """Return what a column adds to abs(z), z the noise of a regression, over the size of the residual.

    Of q columns it is ``sqrt(q) t = q 2 R / (n sqrt(2 rho) B1(R))`` at the price rho of the last step, which
    follows from that of the regression, `rho`; C is taken as sqrt q and A1(C) as 1.
    """
    last = (1.0 - GRAM_SHARE - SECOND_GRAM_SHARE - SCALES - EFFECTS - TAIL) * STEPS[-1] * rho
    return 2.0 * CLIP / (n * math.sqrt(2.0 * last) * residual_moments(CLIP)[0])


def entries_above_noise(gram: Floats, sd: float) -> tuple[Floats, float]:
    """Return a noisy Gram matrix without the entries that are noise, and the largest noise of the rest.

    `sd` is that of the noise on the diagonal; above it, it is 1 / sqrt 2 of that. Post-processing.
    """
    off = standing_out(gram, sd / math.sqrt(2.0))
    np.fill_diagonal(off, 0.0)
    widest = 1 + int((off != 0.0).sum(axis=1).max())
    return np.asarray(off + np.diag(np.diag(gram))), sd * math.sqrt(2.0 * widest)


def _inverse_root(gram: Floats, edge: float) -> tuple[Floats, float]:
    """Return T with T T' the inverse, eigenvalues kept above half the `edge` of noise, and the clearance."""
    values, vectors = np.linalg.eigh((gram + gram.T) / 2.0)
    low = max(0.5 * edge, TINIEST * max(float(np.mean(values)), TINIEST))
    clearance = float(values[0]) / edge if edge > 0.0 else math.inf
    return np.asarray(vectors / np.sqrt(np.maximum(values, low))), clearance


def _effects(
    sums: SparseSums, fit: SparseFit, regressors: list[int], root: Floats, rho: float
) -> tuple[float, float]:
    """Return abs(mean v psi(r))^2 over its squared slope, minus the contribution of its noise, and its sd.

    Of v only the directions are used in which a d that is zero on the fit's columns has its d~.
    """
    new = [position for position, column in enumerate(regressors) if column not in fit.selected]
    if not new:
        return 0.0, 0.0
    root = root @ np.linalg.qr(np.linalg.inv(root)[:, new])[0]
    size = len(new)
    private = math.isfinite(rho)
    norm, bound = (math.sqrt(size), PRODUCT_CLIP) if private else (math.inf, math.inf)
    score = Score(
        columns=regressors,
        transform=root,
        norm=norm,
        residual=bound * fit.scale,
        support=fit.selected,
        beta=fit.selected_beta,
    )
    mean, sd = sums.score(score, rho, Labels.EFFECTS_OF_NEIGHBOURS)
    slope = norm_moments(norm, size)[0] * residual_moments(bound)[0]
    return (float(mean @ mean) - size * sd**2) / slope**2, math.sqrt(2.0 * size) * (sd / slope) ** 2


def _tail(
    column: SparseSums, regressors: list[int], g: Floats, root: Floats, scale: float, rho: float
) -> float:
    """Return h from noisy counts of |v| |e|: a threshold counts as long as all below it stand out."""
    if math.isinf(rho):
        return 0.0
    sizes = math.sqrt(len(regressors)) * FAR * APART_BY ** np.arange(TAIL_CELLS + 1.0)
    args = column.args(
        regressors, g, columns=np.asarray(regressors), transform=root, unit=scale, thresholds=sizes[:-1]
    )
    noisy = column.release(Statistics.LAYERS_COUNTS, args, rho, Labels.TAILS_OF_TARGET_RESIDUALS)
    counts, sd = counts_above(noisy.values, float(noisy.scale))
    stands_out = np.logical_and.accumulate(counts > upper_quantile(FALSE_TAIL / TAIL_CELLS) * sd)
    excess = float(np.diff(sizes) @ np.where(stands_out, counts, 0.0)) / column.n
    return 0.5 * scale * excess / math.sqrt(len(regressors))
