"""The kinds of fit of a debiased lasso: all rows, secure sums, by site, the paper's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from privinf.accounting import ConcentratedLoss, GaussianLoss, Ledger, PrivacyReport, rho_to_epsilon
from privinf.errors import ArgumentError, NotAvailableError
from privinf.federation import SecureServer, TrustedServer
from privinf.fitting.model import SITES_NOISE
from privinf.inference.estimate import upper_quantile
from privinf.lasso.debiasing import DebiasedFit, debias, debias_all
from privinf.lasso.diagnostics import MissedColumnTest, cost_notes
from privinf.lasso.extras import Extras, ExtrasPlan, check_extras, run_extras, unreleased_extras
from privinf.lasso.fit import SparseFit, center_response, sparse_fit
from privinf.lasso.heterogeneous.fit import fit_sites
from privinf.lasso.heterogeneous.plan import check_site_plan, joint_loss
from privinf.lasso.heterogeneous.results import MachineResults, results_by_site
from privinf.lasso.omitted import (
    LinearSearch,
    candidates_if_all_are_targets,
    detection_of,
    missed_column_test,
    screen_omitted,
    sparse_columns,
)
from privinf.lasso.plan import (
    FALSE_SELECTION_RATE,
    RESPONSE_SHARE,
    LassoOptions,
    LassoPlan,
    plan_of,
    target_positions,
)
from privinf.lasso.results import (
    DIVERGED_NOTE,
    METHOD,
    NONE_SELECTED,
    THROUGH_MIDDLE,
    LassoResults,
    fit_settings,
    lasso_results,
    results_without_intervals,
    sparse_part,
)
from privinf.lasso.rows import LassoRows, check_price, secure_server, server_of
from privinf.lasso.selection import VectorServer, vector_server
from privinf.lasso.sums import HiddenByNoise, SparseSums
from privinf.registry import studied
from privinf.results.notes import Note, must_read
from privinf.typing import RngLike, ScoreTarget

PAPER_OPTIONS = {
    "step",
    "norm_bound",
    "precision_clip",
    "form",
    "variance",
    "multiplier_draws",
    "public_seed",
}


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class JointFit:
    """A sparse fit and its debiased targets.

    Attributes
    ----------
    fit : SparseFit
    targets : list of int
        All that were named, or that the fit selected.
    debiased : DebiasedFit or None
        None where the noise hides all targets, or no column was selected, for the `reason`.
    missed : MissedColumnTest or None
        Test that no column outside the fit has an effect.
    reason : str
    """

    fit: SparseFit
    targets: list[int]
    debiased: DebiasedFit | None
    missed: MissedColumnTest | None
    reason: str = ""

    @property
    def debiased_targets(self) -> list[int]:
        """Targets that have debiased coefficients."""
        return [] if self.debiased is None else targets_above_noise(self.targets, self.debiased)

    @property
    def hidden(self) -> list[int]:
        """Targets whose slopes the noise hides."""
        return [j for j in self.targets if j not in self.debiased_targets]


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
        joint = _fitted(sums, rows, plan, target, vectors)
        extras = _extras(sums, joint, requested, full_plan.rho)
    report = PrivacyReport.from_entries(ledger.entries[before:], ledger=ledger, delta=plan.delta)
    return _joint_results(rows, plan, sums, joint, report, extras, target, vectors)


def _extras(sums: SparseSums, joint: JointFit, requested: ExtrasPlan, rho: float) -> Extras:
    """Release the extras of a fit that has debiased targets."""
    if joint.debiased is None:
        return unreleased_extras(requested, joint.reason)
    return run_extras(sums, joint.fit, joint.debiased, requested, rho)


def _joint_results(
    rows: LassoRows,
    plan: LassoPlan,
    sums: SparseSums,
    joint: JointFit,
    report: PrivacyReport,
    extras: Extras,
    target: ScoreTarget,
    vectors: VectorServer | None = None,
) -> LassoResults:
    """Return the results of a joint fit: with intervals, or without where the noise hides all of them."""
    fit = joint.fit
    sparsity = plan.sparsity_text(joint.fit.support, rows.constant)
    if joint.debiased is None:
        return _results_without_intervals(rows, sparsity, sums, joint, report, extras, target, vectors)
    detection = None
    if vectors is not None:
        detection = detection_of(vectors, fit, plan, joint.debiased_targets, joint.debiased, rows.constant)
    return lasso_results(
        rows,
        sparsity,
        sums,
        fit,
        joint.debiased_targets,
        joint.debiased,
        report,
        extras=extras,
        after_selection=plan.targets is None,
        missed=joint.missed,
        detection=detection,
        hidden=joint.hidden,
    )


def _results_without_intervals(
    rows: LassoRows,
    sparsity: str,
    sums: SparseSums,
    joint: JointFit,
    report: PrivacyReport,
    extras: Extras,
    target: ScoreTarget,
    vectors: VectorServer | None,
) -> LassoResults:
    """Return the results of a joint fit without debiased targets: its sparse fit, and the reason."""
    fit = joint.fit
    settings = fit_settings(rows, sparse_part(rows, sums, fit), fit.diverged)
    settings["target"] = target
    settings["extras"] = extras.settings(np.ones(0))
    notes: tuple[str | Note, ...] = must_read(DIVERGED_NOTE) * fit.diverged
    notes += must_read(THROUGH_MIDDLE) * (rows.constant is None and sums.through_middle)
    if joint.missed is not None:
        settings["missed"] = joint.missed.settings()
        notes += joint.missed.ranked_notes
    if vectors is not None:
        settings["sight"] = {"looks": [asdict(release) for release in vectors.releases]}
        notes += cost_notes(vectors.releases, len(rows.names))
    sparse = dict(zip(fit.selected, fit.selected_beta, strict=True))
    return results_without_intervals(
        rows,
        settings,
        report,
        {j: float(sparse.get(j, 0.0) / sums.units.scale[j]) for j in joint.targets},
        joint.reason,
        nobs=sums.n,
        method=METHOD,
        options={"Sparsity": sparsity, "Sites": str(len(rows.rows)), "Score target": target},
        notes=notes,
    )


def _fitted(
    sums: SparseSums, rows: LassoRows, plan: LassoPlan, aim: ScoreTarget, vectors: VectorServer | None = None
) -> JointFit:
    """Return the sparse fit, its debiased targets, and the test of what the fit first had missed."""
    always = () if rows.constant is None else (rows.constant,)
    if plan.means_price > 0.0:
        sums.center((1.0 - RESPONSE_SHARE) * plan.means_price, always)
    if (price := plan.response_price) > 0.0:
        center_response(sums, price)
    sums.centered = not plan.all_targets and not always
    fit = sparse_fit(
        sums,
        plan.sparsity,
        plan.shares.sparse_fit(plan.rho, all_targets=plan.all_targets),
        blocks=plan.blocks,
        clip=plan.clip,
        always=always,
        targets=() if plan.all_targets else plan.targets or (),
        threshold=upper_quantile(FALSE_SELECTION_RATE / 2.0 / len(sums.units.scale))
        if plan.automatic
        else 0.0,
    )
    if plan.all_targets:
        candidates = candidates_if_all_are_targets(sums, fit)
    else:
        clip = None if vectors is None else plan.clip
        search = LinearSearch.from_plan(sums, fit, plan, rows.constant, clip)
        fit, candidates = screen_omitted(search, fit)
    targets = sorted(set(fit.support) - set(always)) if plan.targets is None else list(plan.targets)
    prices = plan.shares.debiasing(plan.rho, all_targets=plan.all_targets)
    count = plan.neighbors
    further = 0.0 if candidates is None else candidates.further
    prices = replace(prices, score=prices.score + fit.unspent - further)
    try:
        if not targets:
            raise HiddenByNoise(NONE_SELECTED)
        if plan.all_targets:
            debiased = debias_all(sums, fit, replace(prices, center=plan.means_price))
        else:
            debiased = debias(sums, fit, targets, prices, neighbors=count, excluded=always, target=aim)
    except HiddenByNoise as hidden:
        missed = None if candidates is None else candidates.test(rows, sparse_columns(fit, plan))
        return JointFit(fit=fit, targets=targets, debiased=None, missed=missed, reason=str(hidden))
    above_noise = targets_above_noise(targets, debiased)
    missed = missed_column_test(sums, rows, fit, above_noise, candidates, debiased, plan, vectors)
    return JointFit(fit=fit, targets=targets, debiased=debiased, missed=missed)


def fit_heterogeneous(rows: LassoRows, ledger: Ledger, options: LassoOptions, rng: RngLike) -> MachineResults:
    """Return the fit in which every site has a part of its own."""
    if rows.constant is not None:
        raise NotAvailableError(
            "heterogeneous=True cannot be used with a constant in the regression: leave the constant out, "
            "because columns and response are centered"
        )
    if (isinstance(options.targets, str) and not options.all_targets) or isinstance(options.sparsity, str):
        raise ArgumentError(
            "heterogeneous=True requires targets='all' or a list of columns, and a number as sparsity="
        )
    targets = range(len(rows.names)) if options.all_targets else options.targets
    plan = plan_of(rows, replace(options, targets=targets, shares=None, center=options.center or "released"))
    chosen = () if plan.targets is None else plan.targets
    site_plan = check_site_plan(
        plan.rho,
        means=plan.means_price,
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
    report = PrivacyReport.from_entries(ledger.entries[before:], ledger=ledger, delta=plan.delta)
    level = rho_to_epsilon(plan.rho, plan.delta) if options.epsilon is None else options.epsilon
    return results_by_site(fits, units, chosen, rows, report, level)


def fit_by_paper(
    rows: LassoRows, ledger: Ledger, options: LassoOptions, heterogeneous: bool, rng: RngLike
) -> LassoResults | MachineResults:
    """Return the fit by the paper's own algorithms, which are in studies."""
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
    fit: LassoResults | MachineResults = paper.fit_paper(
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


REFUSED = {"calibration": "is not accepted here: all noise is calibrated exactly", "source": SITES_NOISE}
NO_ROW_COUNT = {
    "HC1": ("divides by the number of rows minus the number of columns, which may be negative: use 'HC0'")
}
