r"""Logistic sites: logit P(y = 1) = a_i + x'(u + v_i) at site i, with an intercept a_i of its own.

1. The shared columns are selected and fitted on all rows (`privinf.lasso.logistic`). This regression pools
   sites of different intercepts and effects. It is an approximation that chooses columns and a start, and
   enters no estimate otherwise.
2. Site i releases its rate of the response. Its fit starts at the shared columns and their coefficients, with
   the intercept moved to its rate. Columns of its own are selected in blocks on its residuals, and Newton
   steps on its rows fit its intercept, the shared columns, its own ones and the targets.
3. The targets of the site are debiased on its rows alone: neighbors, curvature-weighted Gram matrix at the
   site's fit, score, secant matrix and meat (`privinf.lasso.debiasing.debias_logistic`). A linear fit may
   pool nodewise regressions. Here the weights of the rows are p (1 - p) at the site's own coefficients, so a
   pooled regression would be that of no site.

**Why the intervals hold.** The debiased coordinate ``b0 + A s`` solves the site's own score equation to first
order, whatever the start b0: the error of b0 enters through the noise of the Gram matrix, which the variance
contains, and in second order. A column that is wrongly shared, or not selected at all, therefore costs what
it costs a fit of the site alone, and no error of the pooled regression remains.

**Between sites.** Sites have no row in common. Given the columns, every term of the error of site i, its
sampling error and the noise of its score, of its secant matrix and of its Gram matrix, comes from rows and
noise of the site alone. The errors of two sites are independent, and the joint covariance is block-diagonal.
The shared start enters all sites, but only as a factor of the noise of their own Gram matrices, which is
independent between sites.

**Shared part.** Of the coefficients of a shared column at m sites, the mean weighted by inverse variances is
returned (`shared_coefficients`). It costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from privinf.completeness import CompleteRows
from privinf.federation.trusted import TrustedServer
from privinf.lasso.debiasing import DebiasedLogistic, debias_logistic
from privinf.lasso.heterogeneous.fit import count_complete
from privinf.lasso.heterogeneous.plan import check_shared
from privinf.lasso.logistic import (
    PEELS,
    SPARE,
    LogisticFit,
    SharedStart,
    TooRareResponse,
    check_room,
    sparse_logistic,
)
from privinf.lasso.nodewise import affordable_neighbors
from privinf.lasso.plan import LassoOptions, LassoPlan, LogisticSiteShares
from privinf.lasso.rows import LassoRows, SparseUnits
from privinf.lasso.sums import HiddenByNoise, LogisticSums, SparseSums
from privinf.typing import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class LogisticSitePlan:
    """A checked request.

    Attributes
    ----------
    plan : LassoPlan
        Price, targets, clip and number of neighbors.
    shares : LogisticSiteShares
    shared, own_sparsity : int
        Columns that are kept of the shared part, and of a site's own.
    blocks : int
        Blocks in which columns are selected, of the shared part and of a site's own.
    excluded : tuple of int
        Columns that are not selected: a constant.
    """

    plan: LassoPlan
    shares: LogisticSiteShares
    shared: int
    own_sparsity: int
    blocks: int
    excluded: tuple[int, ...]

    @property
    def targets(self) -> list[int]:
        """Positions of the targets."""
        return list(self.plan.targets or ())


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LogisticSite:
    """Releases of one site.

    Attributes
    ----------
    sums : LogisticSums
        With the units of the site's columns, and its number of complete rows.
    fit : LogisticFit or TooRareResponse
        The second where one of the two responses is too rare at the site.
    debiased : DebiasedLogistic or None
        None where the noise hides the targets, for the `reason`.
    start : SharedStart or None
        None where the response is too rare in all rows.
    """

    sums: LogisticSums
    fit: LogisticFit | TooRareResponse
    debiased: DebiasedLogistic | None = None
    reason: str = ""
    start: SharedStart | None = None


def plan_logistic_sites(rows: LassoRows, plan: LassoPlan, options: LassoOptions) -> LogisticSitePlan:
    """Return the plan of a logistic fit by site.

    Raises
    ------
    ArgumentError
        The request is invalid.
    NotAvailableError
        The largest site is too small for a fit with this budget, by public numbers.
    """
    shared = check_shared(options.shared_sparsity, plan.sparsity)
    site_plan = LogisticSitePlan(
        plan=plan,
        shares=LogisticSiteShares.from_mapping(options.shares),
        shared=shared,
        own_sparsity=plan.sparsity - shared,
        blocks=PEELS if options.iterations is None else plan.blocks,
        excluded=() if rows.constant is None else (rows.constant,),
    )
    columns = len(rows.names) - len(site_plan.excluded)
    own = min(site_plan.own_sparsity + SPARE, columns - shared)
    selected = shared + own + len(site_plan.targets)
    prices = site_plan.shares.own_fit(plan.rho)
    check_room(max(rows.rows.values()), min(selected, columns), prices, min(site_plan.blocks, own))
    return site_plan


def fit_logistic_sites(
    server: TrustedServer, units: SparseUnits, site_plan: LogisticSitePlan
) -> dict[str, LogisticSite]:
    """Return the releases of all sites over a trusted server, by site.

    Notes
    -----
    **Privacy.** Spends the price of the plan at every site: the shared part is charged once, and the sites,
    whose rows are disjoint, in parallel.
    """
    plan = site_plan.plan
    pooled = SparseSums(server=server, units=units, n=server.nobs)
    sites = {
        name: SparseSums(server=server, units=units, n=rows, sites=(name,))
        for name, rows in server.rows.items()
    }
    complete = count_complete(pooled, sites, plan.count)
    rest = replace(site_plan, plan=plan.after_count())
    try:
        shared = sparse_logistic(
            LogisticSums(pooled),
            rest.shared,
            rest.shares.shared_fit(rest.plan.rho),
            clip=plan.clip,
            blocks=rest.blocks,
            excluded=rest.excluded,
        )
    except TooRareResponse as rare:
        return {name: _released_rate(sums, units, rare, complete.get(name)) for name, sums in sites.items()}
    start = SharedStart.from_fit(shared)
    return {name: _fit_of_site(_own_sums(sums, units), rest, start) for name, sums in sites.items()}


def _own_sums(sums: SparseSums, units: SparseUnits) -> LogisticSums:
    """Return the sums of a site with its own units, which start at those of all rows."""
    own = replace(units, scale=units.scale.copy(), max_abs=units.max_abs.copy(), sized=set(units.sized))
    return LogisticSums(replace(sums, units=own))


def _released_rate(
    sums: SparseSums, units: SparseUnits, rare: TooRareResponse, complete: CompleteRows | None
) -> LogisticSite:
    """Return a site of a fit that ended with the rate of the response in all rows."""
    own = _own_sums(sums, units)
    own.sparse.complete = complete
    return LogisticSite(sums=own, fit=rare, reason=str(rare))


def _fit_of_site(sums: LogisticSums, site_plan: LogisticSitePlan, start: SharedStart) -> LogisticSite:
    """Return the fit of a site and its debiased targets."""
    plan = site_plan.plan
    try:
        fit = sparse_logistic(
            sums,
            site_plan.own_sparsity,
            site_plan.shares.own_fit(plan.rho),
            clip=plan.clip,
            blocks=site_plan.blocks,
            targets=site_plan.targets,
            excluded=site_plan.excluded,
            shared=start,
        )
    except TooRareResponse as rare:
        return LogisticSite(sums=sums, fit=rare, reason=str(rare), start=start)
    prices = site_plan.shares.debiasing(plan.rho)
    targets = site_plan.targets
    count = plan.neighbors
    if count is None:
        count = affordable_neighbors(fit, len(targets), sums.n, prices.gram)
    try:
        debiased = debias_logistic(sums, fit, targets, prices, neighbors=count, excluded=site_plan.excluded)
    except HiddenByNoise as hidden:
        return LogisticSite(sums=sums, fit=fit, reason=str(hidden), start=start)
    return LogisticSite(sums=sums, fit=fit, debiased=debiased, start=start)


def shared_coefficients(sites: Mapping[str, LogisticSite], columns: int) -> Floats:
    """Return the shared coefficients in the user's units, shape (columns,).

    The mean of the sites' fits weighted by inverse variances; where no site has a fit, the regression on all
    rows; zero where that has none.

    Notes
    -----
    **Privacy.** Post-processing.
    """
    shared = np.zeros(columns)
    start = next((site.start for site in sites.values() if site.start is not None), None)
    if start is None:
        return shared
    support = start.point.support
    units = next(iter(sites.values())).sums.sparse.units
    shared[support] = start.point.beta / units.scale[support]
    values: list[Floats] = []
    weights: list[Floats] = []
    for site in sites.values():
        if isinstance(site.fit, LogisticFit):
            # The shared columns are the first ones of a site's fit.
            scale = site.sums.sparse.units.scale[support]
            values.append(site.fit.point.beta[: len(support)] / scale)
            weights.append(np.square(scale / site.fit.errors(site.sums.n)[: len(support)]))
    if values:
        shared[support] = np.average(values, axis=0, weights=weights)
    return shared
