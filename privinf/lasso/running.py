"""The kinds of fit of a debiased lasso: all rows, secure sums, logistic, by site, the paper's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from privinf.accounting import ConcentratedLoss, GaussianLoss, Ledger, PrivacyReport, rho_to_epsilon
from privinf.accounting.ledger import charged_since
from privinf.errors import ArgumentError, NotAvailableError
from privinf.federation import SecureServer, TrustedServer
from privinf.fitting.model import SITES_NOISE
from privinf.lasso.debiasing import (
    DebiasedFit,
    DebiasedLogistic,
    debias,
    debias_all,
    debias_logistic,
)
from privinf.lasso.extras import Extras, ExtrasPlan, check_extras, run_extras, unreleased_extras
from privinf.lasso.fit import SparseFit, center_response, sparse_fit
from privinf.lasso.heterogeneous.building import logistic_results_by_site, results_by_site
from privinf.lasso.heterogeneous.fit import fit_sites
from privinf.lasso.heterogeneous.logistic import fit_logistic_sites, plan_logistic_sites
from privinf.lasso.heterogeneous.plan import check_site_plan, joint_loss
from privinf.lasso.heterogeneous.results import SiteResults
from privinf.lasso.logistic import PEELS, SPARE, LogisticFit, TooRareResponse, check_room, sparse_logistic
from privinf.lasso.nodewise import affordable_neighbors
from privinf.lasso.omitted import (
    LinearSearch,
    LogisticSearch,
    candidates_if_all_are_targets,
    detection_limits,
    linear_columns,
    logistic_columns,
    missed_column_test,
    screen_omitted,
)
from privinf.lasso.plan import (
    RESPONSE_SHARE,
    LassoOptions,
    LassoPlan,
    LogisticShares,
    default_sparsity,
    plan_of,
    target_positions,
)
from privinf.lasso.results import NONE_SELECTED, LassoResults
from privinf.lasso.results.building import FittedTargets, linear_results, logistic_results, rate_results
from privinf.lasso.rows import LassoRows, check_price, secure_server, server_of
from privinf.lasso.selection import VectorServer, detectable_correlation, sharpest, vector_server
from privinf.lasso.sums import HiddenByNoise, LogisticSums, SparseSums
from privinf.registry import studied
from privinf.typing import RngLike, ScoreTarget
from privinf.wire import Labels

PAPER_OPTIONS = {
    "step",
    "norm_bound",
    "precision_clip",
    "form",
    "variance",
    "multiplier_draws",
    "public_seed",
}


def targets_above_noise(targets: Sequence[int], debiased: DebiasedFit) -> list[int]:
    """Return the targets that have debiased coefficients."""
    above_noise = [True] * len(targets) if debiased.above_noise is None else debiased.above_noise
    return [j for j, keep in zip(targets, above_noise, strict=True) if keep]


def fit_jointly(rows: LassoRows, ledger: Ledger, options: LassoOptions, rng: RngLike) -> LassoResults:
    """Return the fit of common coefficients under one joint budget."""
    requested = check_extras(
        bootstrap_draws=options.bootstrap_draws,
        bootstrap_multipliers=options.bootstrap_multipliers,
        restricted_eigenvalues=options.restricted_eigenvalues,
        noise_variance=options.noise_variance,
        bias_bound=options.bias_bound,
        extra_shares=options.extra_shares,
    )
    full_plan = plan_of(rows, options)
    _refuse_draws(rows, options)
    price = ConcentratedLoss(full_plan.rho)
    ledger.check(price)
    server = server_of(rows, ledger, rng)
    return _joint_fit(rows, full_plan, requested, price, server, options.score_target)


def fit_securely(rows: LassoRows, ledger: Ledger, options: LassoOptions, rng: RngLike) -> LassoResults:
    """Return the fit of common coefficients by secure sums."""
    requested = check_extras(noise_variance=options.noise_variance, extra_shares=options.extra_shares)
    full_plan = plan_of(rows, options, gaussian=True)
    price = GaussianLoss(math.sqrt(2.0 * full_plan.rho))
    ledger.check(price)
    server = secure_server(rows, ledger, rng, options.max_colluding)
    vectors = vector_server(server, rows, full_plan.clip)
    return _joint_fit(rows, full_plan, requested, price, server, options.score_target, vectors)


def _joint_fit(
    rows: LassoRows,
    full_plan: LassoPlan,
    requested: ExtrasPlan,
    price: ConcentratedLoss | GaussianLoss,
    server: TrustedServer | SecureServer,
    target: ScoreTarget,
    vectors: VectorServer | None = None,
) -> LassoResults:
    """Return a joint fit with its extras, whose price is reserved; `vectors` releases sums of secure fits."""
    ledger = server.ledger
    plan = replace(full_plan, rho=requested.basic(full_plan.rho))
    before = len(ledger.entries)
    sums = SparseSums(server=vectors or server, units=rows.units(), n=server.nobs)
    check_price(server, len(rows.names), plan.rho)
    with server.reserving([price]):
        plan = _counted(sums, rows, plan, vectors)
        joint = _fitted(sums, rows, plan, target, vectors)
        extras = _extras(sums, joint, requested, full_plan.rho)
    report = PrivacyReport.from_entries(
        charged_since(ledger, before), ledger=ledger, delta=plan.delta, nobs=rows.total
    )
    return linear_results(rows, plan, sums, joint, report, extras, target, vectors)


def _counted(
    sums: SparseSums, rows: LassoRows, plan: LassoPlan, vectors: VectorServer | None = None
) -> LassoPlan:
    """Release the number of complete rows where the others are dropped; return the plan for the rest.

    Clips, neighbors and the default sparsity are for this number of rows from then on.
    """
    if rows.missing != "drop":
        return plan
    sums.count_complete(plan.count)
    if vectors is not None:
        vectors.n = sums.n
    rest = plan.after_count()
    if not plan.open_sparsity:
        return rest
    return replace(rest, sparsity=min(plan.sparsity, default_sparsity(rows, sums.n, rest.rho)))


def _refuse_draws(rows: LassoRows, options: LassoOptions) -> None:
    """Raise NotAvailableError for draws that go by the places of rows, where complete ones have none."""
    if rows.missing == "drop" and options.bootstrap_draws is not None:
        raise NotAvailableError(NO_DRAWS)


def _extras(
    sums: SparseSums,
    fitted: FittedTargets[SparseFit, DebiasedFit],
    requested: ExtrasPlan,
    rho: float,
) -> Extras:
    """Release the extras of a fit that has debiased targets."""
    if fitted.debiased is None:
        return unreleased_extras(requested, fitted.reason)
    return run_extras(sums, fitted.fit, fitted.debiased, requested, rho)


def _fitted(
    sums: SparseSums, rows: LassoRows, plan: LassoPlan, aim: ScoreTarget, vectors: VectorServer | None = None
) -> FittedTargets[SparseFit, DebiasedFit]:
    """Return the sparse fit, its debiased targets, and the test of what the fit first had missed."""
    always = () if rows.constant is None else (rows.constant,)
    fit = _sparse_fit(sums, plan, always)
    if plan.all_targets:
        candidates = candidates_if_all_are_targets(sums, fit)
    else:
        clip = None if vectors is None else plan.clip
        search = LinearSearch.from_plan(sums, fit, plan, rows.constant, clip)
        fit, candidates = screen_omitted(search, fit)
    targets = sorted(set(fit.support) - set(always)) if plan.targets is None else list(plan.targets)
    prices = plan.shares.debiasing(plan.rho, all_targets=plan.all_targets)
    further = 0.0 if candidates is None else candidates.further
    prices = replace(prices, score=prices.score + fit.unspent - further)
    try:
        if not targets:
            raise HiddenByNoise(NONE_SELECTED)
        if plan.all_targets:
            debiased = debias_all(sums, fit, replace(prices, center=plan.means_price))
        else:
            debiased = debias(
                sums, fit, targets, prices, neighbors=plan.neighbors, excluded=always, target=aim
            )
    except HiddenByNoise as hidden:
        missed = None if candidates is None else candidates.test(rows, linear_columns(fit, plan))
        return FittedTargets(fit=fit, targets=targets, missed=missed, reason=str(hidden))
    above_noise = targets_above_noise(targets, debiased)
    missed = None
    if candidates is not None:
        missed = missed_column_test(
            candidates,
            rows,
            linear_columns(fit, plan),
            above_noise,
            debiased.coordinates,
            inside=fit.support if plan.all_targets else fit.selected,
            limits=detection_limits(candidates, sums, fit, debiased, plan, vectors),
            unit=sums.units.scale[above_noise],
        )
    return FittedTargets(
        fit=fit, targets=targets, debiased=debiased, debiased_targets=above_noise, missed=missed
    )


def _sparse_fit(sums: SparseSums, plan: LassoPlan, always: Sequence[int]) -> SparseFit:
    """Return the sparse fit of all rows, at released means where the plan has them."""
    if plan.means_price > 0.0:
        sums.center((1.0 - RESPONSE_SHARE) * plan.means_price, always)
    if (price := plan.response_price) > 0.0:
        center_response(sums, price)
    sums.centered = not plan.all_targets and not always
    return sparse_fit(
        sums,
        plan.sparsity,
        plan.shares.sparse_fit(plan.rho, all_targets=plan.all_targets),
        blocks=plan.blocks,
        clip=plan.clip,
        always=always,
        targets=() if plan.all_targets else plan.targets or (),
        threshold=plan.threshold(len(sums.units.scale)),
    )


def fit_logistic(rows: LassoRows, ledger: Ledger, options: LassoOptions, rng: RngLike) -> LassoResults:
    """Return the fit of a logistic model.

    Raises
    ------
    ArgumentError, BudgetExceededError
        Nothing was spent.
    NotAvailableError
        Not even a response of rate one half would leave an estimate; nothing was spent.
    """
    plan = plan_of(rows, replace(options, shares=None))
    price = ConcentratedLoss(plan.rho)
    return _joint_logistic(rows, options, plan, price, server_of(rows, ledger, rng))


def fit_logistic_securely(
    rows: LassoRows, ledger: Ledger, options: LassoOptions, rng: RngLike
) -> LassoResults:
    """Return the fit of a logistic model by secure sums; errors are those of `fit_logistic`."""
    plan = plan_of(rows, replace(options, shares=None), gaussian=True)
    price = GaussianLoss(math.sqrt(2.0 * plan.rho))
    server = secure_server(rows, ledger, rng, options.max_colluding)
    return _joint_logistic(rows, options, plan, price, server, vector_server(server, rows, plan.clip))


def _joint_logistic(
    rows: LassoRows,
    options: LassoOptions,
    plan: LassoPlan,
    price: ConcentratedLoss | GaussianLoss,
    server: TrustedServer | SecureServer,
    vectors: VectorServer | None = None,
) -> LassoResults:
    """Return the fit of a logistic model at a price; `vectors` releases sums of secure fits."""
    ledger = server.ledger
    shares = LogisticShares.from_mapping(options.shares)
    blocks = PEELS if options.iterations is None else options.iterations
    selections = min(plan.sparsity + SPARE, len(rows.names) - (rows.constant is not None))
    columns = selections + len(plan.targets or ())
    check_room(server.nobs, columns, shares.sparse_fit(plan.rho), min(blocks, selections))
    ledger.check(price)
    check_price(server, len(rows.names), plan.rho)
    before = len(ledger.entries)
    sums = LogisticSums(SparseSums(server=vectors or server, units=rows.units(), n=server.nobs))
    fitted: FittedTargets[LogisticFit, DebiasedLogistic] | TooRareResponse
    with server.reserving([price]):
        plan = _counted(sums.sparse, rows, plan, vectors)
        try:
            fitted = _logistic_fit(sums, rows, plan, shares, blocks, vectors)
        except TooRareResponse as rare:
            fitted = rare
    report = PrivacyReport.from_entries(
        charged_since(ledger, before), ledger=ledger, delta=plan.delta, nobs=rows.total
    )
    if isinstance(fitted, TooRareResponse):
        return rate_results(rows, plan, sums, fitted, report)
    return logistic_results(rows, plan, sums, fitted, report, vectors)


def _logistic_fit(
    sums: LogisticSums,
    rows: LassoRows,
    plan: LassoPlan,
    shares: LogisticShares,
    blocks: int,
    vectors: VectorServer | None = None,
) -> FittedTargets[LogisticFit, DebiasedLogistic]:
    """Return the sparse fit, its debiased targets, and the test of what the fit first had missed.

    Raises
    ------
    TooRareResponse
        The response is too rare for the noise; nothing but its rate was released.
    """
    excluded = () if rows.constant is None else (rows.constant,)
    fit = sparse_logistic(
        sums,
        plan.sparsity,
        shares.sparse_fit(plan.rho),
        clip=plan.clip,
        blocks=blocks,
        threshold=plan.threshold(len(rows.names)),
        targets=plan.targets or (),
        excluded=excluded,
    )
    prices = shares.debiasing(plan.rho)
    search = LogisticSearch(
        sums=sums.sparse,
        test_price=prices.candidate,
        scores_price=prices.score,
        keep=plan.automatic,
        excluded=excluded,
        clip=plan.clip,
        vectors=vectors,
    )
    fit, candidates = screen_omitted(search, fit)
    if candidates is not None and candidates.further:
        prices = replace(prices, score=prices.score - candidates.further)
    targets = fit.support if plan.targets is None else list(plan.targets)
    try:
        if not targets:
            raise HiddenByNoise(NONE_SELECTED)
        count = plan.neighbors
        if count is None:
            count = affordable_neighbors(fit, len(targets), sums.n, prices.gram)
        debiased = debias_logistic(sums, fit, targets, prices, neighbors=count, excluded=excluded)
    except HiddenByNoise as hidden:
        missed = None if candidates is None else candidates.test(rows, logistic_columns(fit, plan, sums.n))
        return FittedTargets(fit=fit, targets=targets, missed=missed, reason=str(hidden))
    missed = None
    if candidates is not None:
        price = prices.neighbors / len(targets)
        correlation = detectable_correlation(sums.n, len(rows.names), count, price, 1.0)
        neighbors = None if vectors is None else sharpest(vectors.releases, Labels.NEIGHBOURS)
        if neighbors is not None:
            correlation = min(neighbors.found_from, 1.0)
        missed = missed_column_test(
            candidates,
            rows,
            logistic_columns(fit, plan, sums.n, targets),
            targets,
            debiased.coordinates,
            inside=fit.selected,
            limits=(candidates.detection_limit, correlation),
            unit=sums.sparse.units.scale[targets],
        )
    return FittedTargets(fit=fit, targets=targets, debiased=debiased, debiased_targets=targets, missed=missed)


def fit_heterogeneous(rows: LassoRows, ledger: Ledger, options: LassoOptions, rng: RngLike) -> SiteResults:
    """Return the fit in which every site has a part of its own."""
    if rows.constant is not None:
        raise NotAvailableError(
            "heterogeneous=True cannot be used with a constant in the regression: leave the constant out, "
            "because columns and response are centered"
        )
    if (isinstance(options.targets, str) and not options.all_targets) or isinstance(options.sparsity, str):
        raise ArgumentError(NO_CHOICE.format("targets='all' or a list of columns"))
    targets = range(len(rows.names)) if options.all_targets else options.targets
    plan = plan_of(rows, replace(options, targets=targets, shares=None, center=options.center or "released"))
    chosen = () if plan.targets is None else plan.targets
    site_plan = check_site_plan(
        plan.rho,
        centered=plan.means_price > 0.0,
        count=plan.count,
        sparsity=plan.sparsity,
        shared_sparsity=options.shared_sparsity,
        neighbors=plan.site_neighbors,
        shares=options.shares,
        targets=len(chosen),
        p=len(rows.names),
        rows=list(rows.rows.values()),
        accounting=options.accounting,
        precision=options.precision,
    )
    ledger.check(joint_loss(site_plan))
    before = len(ledger.entries)
    server = server_of(rows, ledger, rng)
    units = rows.units()
    check_price(server, len(rows.names), plan.rho)
    with server.reserving([joint_loss(site_plan)]):
        fits = fit_sites(server, units, site_plan, chosen)
    report = PrivacyReport.from_entries(
        charged_since(ledger, before), ledger=ledger, delta=plan.delta, nobs=rows.total
    )
    level = rho_to_epsilon(plan.rho, report.default_delta) if options.epsilon is None else options.epsilon
    return results_by_site(fits, units, chosen, rows, report, level)


def fit_logistic_by_site(rows: LassoRows, ledger: Ledger, options: LassoOptions, rng: RngLike) -> SiteResults:
    """Return the logistic fit in which every site has a part of its own; errors as of `fit_logistic`."""
    if isinstance(options.targets, str) or isinstance(options.sparsity, str):
        raise ArgumentError(NO_CHOICE.format("a list of columns as targets="))
    plan = plan_of(rows, replace(options, shares=None))
    site_plan = plan_logistic_sites(rows, plan, options)
    price = ConcentratedLoss(plan.rho)
    ledger.check(price)
    check_price(server := server_of(rows, ledger, rng), len(rows.names), plan.rho)
    before = len(ledger.entries)
    with server.reserving([price]):
        sites = fit_logistic_sites(server, rows.units(), site_plan)
    report = PrivacyReport.from_entries(
        charged_since(ledger, before), ledger=ledger, delta=plan.delta, nobs=rows.total
    )
    return logistic_results_by_site(sites, site_plan, rows, report)


def fit_by_paper(
    rows: LassoRows, ledger: Ledger, options: LassoOptions, heterogeneous: bool, rng: RngLike
) -> LassoResults | SiteResults:
    """Return the fit by the paper's own algorithms, which are in studies."""
    if rows.missing == "drop":
        raise NotAvailableError(NO_PAPER)
    if isinstance(options.sparsity, str):
        raise ArgumentError("variant='paper' requires a number as sparsity=")
    paper_options = dict(options.paper_options or {})
    if unknown := set(paper_options) - PAPER_OPTIONS:
        raise ArgumentError(
            f"paper_options contains unknown options {', '.join(sorted(map(repr, unknown)))}; the "
            f"options are {', '.join(sorted(PAPER_OPTIONS))}"
        )
    paper = studied("paper.model", "variant='paper'")
    targets = range(len(rows.names)) if options.all_targets else options.targets
    fit: LassoResults | SiteResults = paper.fit_paper(
        rows,
        server_of(rows, ledger, rng),
        ledger,
        epsilon=options.epsilon,
        delta=options.delta,
        sparsity=options.sparsity,
        targets=target_positions(targets, rows.names, rows.constant) or "selected",
        precision_sparsity=options.precision_sparsity,
        heterogeneous=heterogeneous,
        shared_sparsity=options.shared_sparsity,
        accounting=options.accounting,
        iterations=options.iterations,
        clip=options.clip,
        refit=bool(options.refit),
        shares=options.shares,
        **paper_options,
    )
    return fit


NO_CHOICE = "heterogeneous=True requires {}, and a number as sparsity="
NO_DRAWS = (
    "bootstrap_draws= cannot be combined with missing='drop', because the multipliers of the bootstrap "
    "depend on the positions of rows, and complete rows have none: leave bootstrap_draws= out and use "
    "simultaneous(method='simulation')"
)
NO_PAPER = (
    "missing='drop' is not available with variant='paper', because the paper's algorithms divide by a public "
    "number of rows: use variant='default' or missing='impute-public'"
)
REFUSED = {"calibration": "is not accepted here: all noise is calibrated exactly", "source": SITES_NOISE}
NO_ROW_COUNT = {
    "HC1": ("divides by the number of rows minus the number of columns, which may be negative: use 'HC0'")
}
