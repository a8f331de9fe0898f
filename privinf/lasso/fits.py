"""The kinds of fit of a debiased lasso and their options: all rows, secure sums, by site, the paper's."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

import numpy as np

from privinf.accounting import (
    ConcentratedLoss,
    GaussianLoss,
    Ledger,
    PrivacyReport,
    calibrate_mu,
    epsilon_to_rho,
    rho_to_epsilon,
)
from privinf.errors import ArgumentError, NotAvailableError
from privinf.fitting.model import SITES_NOISE
from privinf.inference.estimate import upper_quantile
from privinf.lasso.all_targets import debias_all
from privinf.lasso.coordinates import HiddenByNoise
from privinf.lasso.debiasing import DebiasedFit, debias
from privinf.lasso.extras import Extras, ExtrasPlan, check_extras, run_extras, unreleased_extras
from privinf.lasso.heterogeneous.fit import (
    MachineResults,
    check_site_plan,
    fit_sites,
    joint_loss,
    results_by_site,
)
from privinf.lasso.omitted import MissedColumnTest, missed_column_test, screen_omitted, sparse_columns
from privinf.lasso.plan import (
    MOST_LOGISTIC,
    RESPONSE_SHARE,
    Accounting,
    Center,
    LassoPlan,
    Targets,
    check_level,
    check_logistic,
    check_plan,
    largest_sparsity,
    target_positions,
)
from privinf.lasso.results import (
    ASTRAY_NOTE,
    NONE_SELECTED,
    THROUGH_MIDDLE,
    WHOM,
    LassoResults,
    fit_settings,
    lasso_results,
    results_without_intervals,
    sparse_part,
)
from privinf.lasso.rows import LassoFamily, LassoRows, check_price, server_of
from privinf.lasso.secure import FALSE_PICKS, cost_note, detection_of, secure_server, vector_server
from privinf.lasso.selection import VectorServer
from privinf.lasso.sums import SparseSums
from privinf.lasso.thresholding import SparseFit, center_response, sparse_fit
from privinf.mechanisms.gaussian import warn_of_large_delta
from privinf.registry import studied
from privinf.results.notes import Note, must_read
from privinf.typing import CovWord, Multipliers, Precision, RngLike, ScoreTarget, Trust
from privinf.validation import check_choice, check_number, check_positive, reporting_delta, shown

Variant = Literal["default", "paper"]
FitKind = Literal["joint", "heterogeneous", "paper", "secure", "binomial"]
OPTIONS: Mapping[FitKind, set[str]] = {
    "joint": {
        "max_sparsity",
        "iterations",
        "clip",
        "center",
        "bootstrap_draws",
        "bootstrap_multipliers",
        "restricted_eigenvalues",
        "noise_variance",
        "bias_bound",
        "extra_shares",
        "target",
    },
    "heterogeneous": {"shared_sparsity", "accounting", "precision", "center", "target"},
    "paper": {"shared_sparsity", "accounting", "iterations", "clip", "refit", "paper_options", "target"},
    "secure": {
        "max_sparsity",
        "iterations",
        "clip",
        "center",
        "noise_variance",
        "extra_shares",
        "max_colluding",
        "target",
    },
    "binomial": {"max_sparsity", "iterations", "clip"},
}
# Options that every kind of fit has.
OF_EVERY_FIT = {
    "sparsity",
    "targets",
    "variant",
    "heterogeneous",
    "epsilon",
    "delta",
    "mu",
    "rho",
    "rng",
    "precision_sparsity",
    "shares",
    "cov_type",
}
WORDS: Mapping[FitKind, str] = {
    "joint": "variant='default', heterogeneous=False and trust='central' or 'server'",
    "heterogeneous": "variant='default' and heterogeneous=True",
    "paper": "variant='paper'",
    "secure": "trust='secure-sum'",
    "binomial": "family='binomial'",
}
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
        return [] if self.debiased is None else clear_targets(self.targets, self.debiased)

    @property
    def hidden(self) -> list[int]:
        """Targets whose slopes the noise hides."""
        return [j for j in self.targets if j not in self.debiased_targets]


def clear_targets(targets: Sequence[int], debiased: DebiasedFit) -> list[int]:
    """Return the targets that have debiased coefficients."""
    clear = [True] * len(targets) if debiased.clear is None else debiased.clear
    return [j for j, keep in zip(targets, clear, strict=True) if keep]


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
    plan = replace(full_plan, rho=requested.basic(full_plan.rho))
    ledger.check(ConcentratedLoss(full_plan.rho))
    before = len(ledger.entries)
    server = server_of(rows, ledger, rng)
    sums = SparseSums(server=server, units=rows.units(), n=server.nobs)
    check_price(server, len(rows.names), plan.rho)
    with server.reserving([ConcentratedLoss(full_plan.rho)]):
        joint = _fitted(sums, rows, plan, options.score_target)
        extras = _extras(sums, joint, requested, full_plan.rho)
    report = PrivacyReport.of(ledger.entries[before:], ledger=ledger, delta=plan.delta)
    return _joint_results(rows, plan, sums, joint, report, extras, options.score_target)


def fit_securely(rows: LassoRows, ledger: Ledger, options: LassoOptions, rng: RngLike) -> LassoResults:
    """Return the fit of common coefficients by secure sums."""
    requested = check_extras(noise_variance=options.noise_variance, extra_shares=options.extra_shares)
    full_plan = plan_of(rows, options, gaussian=True)
    plan = replace(full_plan, rho=requested.basic(full_plan.rho))
    price = GaussianLoss(math.sqrt(2.0 * full_plan.rho))
    ledger.check(price)
    before = len(ledger.entries)
    secure = secure_server(rows, ledger, rng, options.max_colluding)
    server = vector_server(secure, rows, plan.clip)
    sums = SparseSums(server=server, units=rows.units(), n=secure.nobs)
    check_price(secure, len(rows.names), plan.rho)
    with secure.reserving([price]):
        joint = _fitted(sums, rows, plan, options.score_target, server)
        extras = _extras(sums, joint, requested, full_plan.rho)
    report = PrivacyReport.of(ledger.entries[before:], ledger=ledger, delta=plan.delta)
    return _joint_results(rows, plan, sums, joint, report, extras, options.score_target, server)


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
    sparsity = plan.told(joint.fit.support, rows.constant)
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
    """Return what a joint fit bought of which no target is debiased: its sparse fit, and the reason."""
    fit = joint.fit
    settings = fit_settings(rows, sparse_part(rows, sums, fit), fit.astray)
    settings["target"] = target
    settings["extras"] = extras.settings(np.ones(0))
    notes: tuple[str | Note, ...] = must_read(ASTRAY_NOTE) * fit.astray
    notes += must_read(THROUGH_MIDDLE) * (rows.constant is None and sums.through_middle)
    if joint.missed is not None:
        settings["missed"] = joint.missed.settings()
        notes += (joint.missed.ranked_note,)
    if vectors is not None:
        settings["sight"] = {"looks": [asdict(release) for release in vectors.releases]}
        notes += (cost_note(vectors.releases, len(rows.names)),)
    sparse = dict(zip(fit.picked, fit.picked_beta, strict=True))
    return results_without_intervals(
        rows,
        settings,
        report,
        {j: float(sparse.get(j, 0.0) / sums.units.scale[j]) for j in joint.targets},
        joint.reason,
        nobs=sums.n,
        method=f"debiased lasso, {WHOM[rows.trust]}",
        options={"Sparsity": sparsity, "Parties": str(len(rows.rows)), "Target": target},
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
    sums.centred = not plan.every and not always
    fit = sparse_fit(
        sums,
        plan.sparsity,
        plan.shares.thresholding(plan.rho, every=plan.every),
        blocks=plan.blocks,
        clip=plan.clip,
        always=always,
        targets=() if plan.every else plan.targets or (),
        threshold=upper_quantile(FALSE_PICKS / 2.0 / len(sums.units.scale)) if plan.automatic else 0.0,
    )
    fit, suspects = screen_omitted(sums, fit, plan, rows.constant, None if vectors is None else plan.clip)
    targets = sorted(set(fit.support) - set(always)) if plan.targets is None else list(plan.targets)
    prices = plan.shares.debiasing(plan.rho, every=plan.every)
    count = plan.neighbours
    further = 0.0 if suspects is None else suspects.further
    prices = replace(prices, score=prices.score + fit.unspent - further)
    try:
        if not targets:
            raise HiddenByNoise(NONE_SELECTED)
        if plan.every:
            debiased = debias_all(sums, fit, replace(prices, center=plan.means_price))
        else:
            debiased = debias(sums, fit, targets, prices, neighbours=count, excluded=always, target=aim)
    except HiddenByNoise as hidden:
        missed = None if suspects is None else suspects.test(rows, sparse_columns(fit, plan))
        return JointFit(fit=fit, targets=targets, debiased=None, missed=missed, reason=str(hidden))
    clear = clear_targets(targets, debiased)
    missed = missed_column_test(sums, rows, fit, clear, suspects, debiased, plan, vectors)
    return JointFit(fit=fit, targets=targets, debiased=debiased, missed=missed)


def fit_heterogeneous(rows: LassoRows, ledger: Ledger, options: LassoOptions, rng: RngLike) -> MachineResults:
    """Return the fit in which every site has a part of its own."""
    if rows.constant is not None:
        raise NotAvailableError("heterogeneous fits have no constant: columns and response are centred")
    if (isinstance(options.targets, str) and not options.every) or isinstance(options.sparsity, str):
        raise ArgumentError("heterogeneous fits need targets='all' or a list, and sparsity= as a number")
    targets = range(len(rows.names)) if options.every else options.targets
    plan = plan_of(rows, replace(options, targets=targets, shares=None, center=options.center or "released"))
    chosen = () if plan.targets is None else plan.targets
    site_plan = check_site_plan(
        plan.rho,
        means=plan.means_price,
        sparsity=plan.sparsity,
        shared_sparsity=options.shared_sparsity,
        neighbours=plan.site_neighbours,
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
    report = PrivacyReport.of(ledger.entries[before:], ledger=ledger, delta=plan.delta)
    level = rho_to_epsilon(plan.rho, plan.delta) if options.epsilon is None else options.epsilon
    return results_by_site(fits, units, chosen, rows, report, level)


def fit_by_paper(
    rows: LassoRows, ledger: Ledger, options: LassoOptions, heterogeneous: bool, rng: RngLike
) -> LassoResults | MachineResults:
    """Return the fit by the paper's own algorithms, which are in studies."""
    if isinstance(options.sparsity, str):
        raise ArgumentError("variant='paper' needs sparsity= as a number")
    paper_options = dict(options.paper_options or {})
    if unknown := set(paper_options) - PAPER_OPTIONS:
        raise ArgumentError(
            f"paper_options has {', '.join(sorted(map(repr, unknown)))}; there are "
            f"{', '.join(sorted(PAPER_OPTIONS))}"
        )
    paper = studied("paper.model", "variant='paper'")
    targets = range(len(rows.names)) if options.every else options.targets
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


def plan_of(rows: LassoRows, options: LassoOptions, *, gaussian: bool = False) -> LassoPlan:
    """Return the plan; of Gaussian releases alone a level buys more than of any others in zCDP."""
    delta = reporting_delta(options.epsilon, options.delta, rows.total)
    warn_of_large_delta(options.delta, rows.total)
    if gaussian:
        mu = calibrate_mu(epsilon=options.epsilon, mu=options.mu, rho=options.rho, delta=delta)
        rho = mu * mu / 2.0
    elif options.rho is not None:
        rho = check_positive(options.rho, "rho", infinite=True)
    else:
        epsilon = check_number(options.epsilon, "epsilon", low=0.0, open_low=True, infinite=True)
        rho = math.inf if math.isinf(epsilon) else epsilon_to_rho(epsilon, delta)
    released = options.every and "means" in (options.shares or ("means",))
    center: Center = options.center or ("released" if released else "declared")
    largest = options.max_sparsity
    if largest is None and options.sparsity == "auto" and not gaussian:
        largest = largest_sparsity(rows.total, rho, len(rows.names) - (rows.constant is not None))
        largest = min(largest, MOST_LOGISTIC) if rows.family == "binomial" else largest
    return check_plan(
        rho=rho,
        delta=delta,
        sparsity=options.sparsity,
        max_sparsity=largest,
        targets=options.targets,
        precision_sparsity=options.precision_sparsity,
        iterations=options.iterations,
        clip=options.clip,
        center=center,
        shares=options.shares,
        names=rows.names,
        constant=rows.constant,
    )


REFUSED = {"calibration": "has no choice here: all prices are exact", "source": SITES_NOISE}
NO_ROW_COUNT = {"HC1": "divides by n less the number of columns, which may be more than n: ask for 'HC0'"}
NO_MEAN = (
    "target='mean' needs the scores of a few named or selected targets as one vector, whose tail is counted; "
    "with {} every score is clipped by itself, which is target='robust'"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LassoOptions:
    """Options of `DebiasedLasso.fit`, which describes them."""

    sparsity: int | Literal["auto"] = "auto"
    targets: Targets = "selected"
    variant: Variant = "default"
    heterogeneous: bool = False
    epsilon: float | None = None
    delta: float | None = None
    mu: float | None = None
    rho: float | None = None
    rng: RngLike = None
    precision_sparsity: int | None = None
    shares: Mapping[str, float] | None = None
    max_sparsity: int | None = None
    shared_sparsity: int | None = None
    accounting: Accounting = "joint"
    precision: Precision = "pooled"
    iterations: int | None = None
    clip: float | None = None
    refit: bool | None = None
    center: Center | None = None
    target: ScoreTarget | None = None
    bootstrap_draws: int | None = None
    bootstrap_multipliers: Multipliers = "rademacher"
    restricted_eigenvalues: bool = False
    noise_variance: bool = False
    bias_bound: bool = False
    extra_shares: Mapping[str, float] | None = None
    paper_options: Mapping[str, Any] | None = None
    max_colluding: int = 0
    cov_type: CovWord | None = None

    @property
    def every(self) -> bool:
        """Whether all columns are targets."""
        return isinstance(self.targets, str) and self.targets == "all"

    @property
    def score_target(self) -> ScoreTarget:
        """What the scores aim at, where nothing is said the mean if it can be had."""
        return self.target or ("robust" if self.every else "mean")

    def kind(self, trust: Trust, family: LassoFamily) -> FitKind:
        """Return which kind of fit is asked for.

        Raises
        ------
        ArgumentError, NotAvailableError
            An option does not go with this kind of fit: nothing is accepted and ignored.
        """
        check_choice(self.accounting, Accounting, "accounting")
        check_choice(self.precision, Precision, "precision")
        paper = check_choice(self.variant, Variant, "variant") == "paper"
        kind: FitKind = "paper" if paper else "heterogeneous" if self.heterogeneous else "joint"
        if family == "binomial":
            check_logistic("targets='all'" if self.every else WORDS[kind] * (kind != "joint"), trust)
            kind = "binomial"
        elif trust == "secure-sum":
            kind = self._secure(kind)
        check_level(kind, epsilon=self.epsilon, mu=self.mu, rho=self.rho)
        if self.target is not None and check_choice(self.target, ScoreTarget, "target") == "mean":
            alone = "targets='all'" if self.every else WORDS[kind]
            if self.every or kind in ("heterogeneous", "paper"):
                raise NotAvailableError(NO_MEAN.format(alone))
        if kind in {"joint", "binomial"} and self.accounting == "per-interval":
            raise NotAvailableError(
                "the scores of all targets are one release, whose noise serves every interval: "
                "accounting='per-interval' is offered with heterogeneous=True and with variant='paper'"
            )
        for option in [one for one in fields(self) if one.name not in OF_EVERY_FIT]:
            if getattr(self, option.name) != option.default and option.name not in OPTIONS[kind]:
                homes = " or ".join(WORDS[home] for home, names in OPTIONS.items() if option.name in names)
                raise ArgumentError(
                    f"{option.name}= has no place in a fit with {WORDS[kind]}: it goes with {homes}"
                )
        return kind

    def _secure(self, kind: FitKind) -> FitKind:
        """Return the kind of fit on secure sums, if there is one."""
        if kind != "joint":
            raise NotAvailableError(
                f"a fit with {WORDS[kind]} peels un-noised sums, or sums of one party: that needs a trusted "
                "server; trust='secure-sum' goes with variant='default' and heterogeneous=False"
            )
        if isinstance(self.targets, str):
            raise ArgumentError(
                f"targets={shown(self.targets)}: on secure sums the targets are a list of columns, named "
                "before the data are seen. All columns are too many for one Gaussian release of their "
                "products with all columns, p^2 numbers, and selected ones are those that its noise favours"
            )
        return "secure"
