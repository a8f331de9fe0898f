"""Sites whose coefficients share a part: u from all rows, v_i from site i's, intervals for each site.

1. Means of columns and response, and sizes of the columns, over all rows: m of the p entries of a vector
   cost m / p of the total. Their correlations: `site_grams`.
2. u: columns selected and fitted on all rows, the sites' own parts being noise, and each site with a constant
   of its own, the mean of its residuals, which moves with the fit: `move_constants`.
3. With nodewise regressions of each site, its columns are centered at their means there, if the means of all
   columns are precise; otherwise those of the regressions, after step 4: `site_centers`.
4. v_i: columns selected on the residuals of site i in blocks, each fitted before the next, and its constant
   after them: `own_fits`.
5. Means of the columns in the scores, in units of their sizes (under a joint budget), and of each site's
   residuals: `center_sites`.
6. Means of the forms w_j'x of the targets at every site: `form_means`. Scores of single targets, their slopes
   and variances; nodewise regressions have the site's selected columns in them: `site_scores`.

Sizes of residuals only set clips.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace

import numpy as np

from privinf.completeness import CompleteRows
from privinf.federation.trusted import TrustedServer
from privinf.lasso.debiasing import Debiased
from privinf.lasso.fit import center_response, clipped_step, largest_positions
from privinf.lasso.heterogeneous.centering import center_sites, move_constants
from privinf.lasso.heterogeneous.plan import (
    SIZES,
    MeanPrices,
    SiteBudget,
    SitePlan,
    extra_selections,
    interval_columns,
)
from privinf.lasso.heterogeneous.scores import ScorePrices, site_scores
from privinf.lasso.heterogeneous.site_effects import (
    SharedPart,
    SiteEffects,
    SiteGrams,
    diverged,
    moving,
    own_fits,
    site_grams,
)
from privinf.lasso.plan import PRODUCT_CLIP
from privinf.lasso.radii import best_step_radii
from privinf.lasso.rows import SparseUnits
from privinf.lasso.sums import SparseSums
from privinf.typing import Floats
from privinf.wire import Labels

# Of columns before their squares, in declared units: large ones only add noise to typical sizes.
SIZE_CLIP = 1.5
SHARED_STEPS = (0.2, 0.3, 0.5)  # shares of the refit of the shared part; the last step decides the noise
POOLED_SCALE_SHARE = 0.30  # share for the residuals' scale on all rows, in three equal releases
BLOCK_SCALE_SHARE = 0.10  # share for a site's residuals after its blocks
FINAL_SCALE_SHARE = 0.25  # share for a site's residuals at the end


@dataclass(frozen=True, slots=True, eq=False)
class PlannedFits:
    """The engine's fits, the plan that they follow, and numbers of complete rows where others are dropped."""

    plan: SitePlan
    fits: SiteFits
    complete: Mapping[str, CompleteRows]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SiteFits:
    """Everything released: the shared fit, and per site its fit and its debiased targets.

    Attributes
    ----------
    shared : list of int
    shared_beta : ndarray
    targets, fits, debiased : mapping
        By site: targets that have a slope, fits, these targets debiased.
    differs : mapping
        By site: difference of its slopes from those of the others, as a standard normal number.
    spreads : mapping
        By site: standard deviation over columns of the differences of their means from those of all sites.
    between : mapping of str to ndarray, shape (k, m, m)
        By term of the variance: covariances between the errors of each of the k targets at the m sites.
    """

    shared: list[int]
    shared_beta: Floats
    targets: Mapping[str, Sequence[int]]
    fits: Mapping[str, SiteEffects]
    debiased: Mapping[str, Debiased | None]
    differs: Mapping[str, float]
    spreads: Mapping[str, float]
    between: Mapping[str, Floats]


def site_fits(
    pooled: SparseSums,
    sites: Mapping[str, SparseSums],
    targets: Sequence[int],
    budget: SiteBudget,
    means: MeanPrices,
    *,
    shared_sparsity: int,
    own_sparsity: int,
    neighbors: int = 3,
    extra: tuple[int, int] = (1, 2),
    joint: bool = False,
    own_precision: bool = False,
) -> SiteFits:
    """Return the fits of all sites.

    Parameters
    ----------
    pooled : SparseSums
        Over all rows; its units, which the sites share, are refined.
    sites : mapping of str to SparseSums
        Over each site's rows.
    targets : sequence of int
    budget : SiteBudget
    means : MeanPrices
        Columns and response were centered at their first means.
    shared_sparsity, own_sparsity : int
    neighbors : int
    extra : (int, int)
        Columns selected beyond the sparsity, for the shared and the own parts.
    joint : bool
        Whether Gram matrices are made for few columns, under one budget.
    own_precision : bool
        Whether nodewise regressions are each site's own.

    Notes
    -----
    **Privacy.** Prices are those of one interval: a joint release of m coordinates is charged m times the
    price of one, as the ledger shows.
    """
    p = len(pooled.units.scale)
    size = interval_columns(shared_sparsity, own_sparsity, extra, neighbors)
    pooled.size_columns(range(p), SIZES * budget.scales * p / size, SIZE_CLIP)
    grams = site_grams(
        pooled,
        sites,
        budget.gram,
        size,
        joint=joint,
        own_precision=own_precision,
        own_centers=own_precision and means.columns > 0.0,
    )
    sites = {name: replace(sums, units=copy(sums.units)) for name, sums in sites.items()}
    shared = _shared(pooled, sites, grams, budget, means.constant, shared_sparsity, extra[0])
    grams.center_early()
    moved = bool(grams.centers)
    sites = {
        name: grams.centers[name].with_constant(sums, shared.support, shared.beta) if moved else sums
        for name, sums in sites.items()
    }
    scale_prices = BLOCK_SCALE_SHARE * budget.scales, FINAL_SCALE_SHARE * budget.scales
    fits = own_fits(
        sites,
        grams,
        shared,
        budget.own_selection,
        budget.own_refit,
        scale_prices,
        means.constant,
        own_sparsity,
        extra[1],
    )
    near = _neighbors(pooled, sites, own_precision, targets, shared.support, neighbors, budget.neighbours)
    members = {
        name: sorted({*fit.support, *targets, *(j for chosen in near[name] for j in chosen)})
        for name, fit in fits.items()
    }
    correlations = grams.precision(members)
    if means.score_columns > 0.0:
        pooled.center_again(means.score_columns, np.unique(np.concatenate(list(members.values()))))
    centered = center_sites(pooled, sites, fits, grams.centers, means.last_constant, moved=moved)
    prices = ScorePrices.from_prices(budget.slopes, budget.score)
    scores = site_scores(
        centered,
        correlations,
        fits,
        shared,
        targets,
        near,
        prices,
        means.forms,
        joint=joint,
        own_precision=own_precision,
    )
    return SiteFits(
        shared=shared.support,
        shared_beta=shared.beta,
        targets=scores.targets,
        fits=fits,
        debiased=scores.debiased,
        differs=scores.differs,
        spreads={name: center.spread for name, center in grams.centers.items()} or scores.spreads,
        between=scores.between,
    )


def _shared(
    pooled: SparseSums,
    sites: Mapping[str, SparseSums],
    grams: SiteGrams,
    budget: SiteBudget,
    constant_price: float,
    sparsity: int,
    extra: int,
) -> SharedPart:
    p = len(pooled.units.scale)
    scale_price = POOLED_SCALE_SHARE * budget.scales / 3.0
    scale = response = pooled.residual_scale((), np.empty(0), scale_price, Labels.SCALE_OF_RESPONSE)
    _move_constants(pooled, sites, _SharedPoint((), np.empty(0), scale), constant_price)
    support = pooled.select(
        (),
        np.empty(0),
        PRODUCT_CLIP * scale,
        min(sparsity + extra, p),
        np.ones(p, dtype=bool),
        budget.selection,
        Labels.SELECTION_OF_SHARED_PART,
    )
    root = grams.shared_root(support)
    beta = np.zeros(len(support))
    steps = []
    free = range(len(support))
    last = len(SHARED_STEPS) - 1
    for place, share in enumerate(SHARED_STEPS):
        price = share * budget.refit
        radii = best_step_radii(len(support), pooled.n, price)
        steps.append(clipped_step(pooled, support, beta, free, root.values, scale, radii, price))
        beta = steps[-1].beta
        if place in (0, last):
            scale = pooled.residual_scale(support, beta, scale_price, Labels.SCALE_OF_RESIDUALS)
        if place < last:
            _move_constants(pooled, sites, _SharedPoint(support, beta, scale), constant_price)
    largest = largest_positions(beta, sparsity)
    cov = (steps[-1].variance * root.values @ root.values.T)[np.ix_(largest, largest)]
    lost = diverged(steps, len(support), scale, response, root)
    columns = [support[i] for i in largest]
    _move_constants(pooled, sites, _SharedPoint(columns, beta[largest], scale), constant_price)
    return SharedPart(
        support=columns,
        beta=beta[largest],
        cov=cov,
        scale=scale,
        response=response,
        diverged=lost,
        moving=moving(steps, root),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _SharedPoint:
    """The shared part between steps: columns, coefficients, and the typical size of residuals of all rows."""

    support: Sequence[int]
    beta: Floats
    scale: float


def _move_constants(
    pooled: SparseSums, sites: Mapping[str, SparseSums], point: _SharedPoint, rho: float
) -> None:
    """Move the constants of the sites by the means of their residuals, and use them in sums over all rows.

    With one constant for all rows, sites whose columns have other means would pull the shared coefficients
    toward their own constants.

    Notes
    -----
    **Privacy.** Spends `rho` at every site.
    """
    move_constants(sites, dict.fromkeys(sites, point), rho)
    if rho > 0.0:
        constant = pooled.units.intercept
        pooled.constants = {name: sums.units.intercept - constant for name, sums in sites.items()}


def _neighbors(
    pooled: SparseSums,
    sites: Mapping[str, SparseSums],
    own_precision: bool,
    targets: Sequence[int],
    shared: list[int],
    count: int,
    rho: float,
) -> dict[str, list[list[int]]]:
    """Return every site's neighbors of the targets: the same for all, or each site's own."""
    allowed = pooled.possible_neighbors(targets, shared)
    count = min(count, int(allowed.sum(axis=1).min()))
    if count == 0:
        return {name: [[] for _ in targets] for name in sites}
    price = rho * len(targets)
    if own_precision:
        return {name: sums.neighbors(targets, count, allowed, price) for name, sums in sites.items()}
    return dict.fromkeys(sites, pooled.neighbors(targets, count, allowed, price))


def fit_sites(
    server: TrustedServer, units: SparseUnits, plan: SitePlan, targets: Sequence[int]
) -> PlannedFits:
    """Return the engine's fits over a trusted server's sites."""
    pooled = SparseSums(server=server, units=units, n=server.nobs)
    sites = {
        name: SparseSums(server=server, units=units, n=rows, sites=(name,))
        for name, rows in server.rows.items()
    }
    complete = count_complete(pooled, sites, plan.count)
    if plan.means.columns > 0.0:
        pooled.center(plan.means.columns)
        center_response(pooled, plan.means.response)
    fits = site_fits(
        pooled,
        sites,
        targets,
        plan.budget,
        plan.means,
        shared_sparsity=plan.shared,
        own_sparsity=plan.own_sparsity,
        neighbors=plan.neighbors,
        extra=extra_selections(plan.own_sparsity),
        joint=plan.accounting == "joint",
        own_precision=plan.precision == "machine",
    )
    return PlannedFits(plan, fits, complete)


def count_complete(
    pooled: SparseSums, sites: Mapping[str, SparseSums], rho: float
) -> dict[str, CompleteRows]:
    """Return the number of complete rows of every site, each at this price; empty where no rows are dropped.

    The number of all sites is their sum.

    Notes
    -----
    **Privacy.** Spends `rho` at every site.
    """
    if rho <= 0.0:
        return {}
    complete = {name: sums.count_complete(rho) for name, sums in sites.items()}
    pooled.counted(CompleteRows.sum_of(complete.values()))
    return complete
