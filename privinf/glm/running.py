"""A fit of a generalised linear model: who is asked, what the plan asks, and the results of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from privinf.accounting import GaussianLoss, Ledger, PrivacyReport
from privinf.errors import AlignmentError, ArgumentError, NotAvailableError
from privinf.federation import NoisySum, SecureServer, TrustedServer
from privinf.federation.charges import stating_charges
from privinf.federation.checkpoint import CheckpointedServer, FitFolder, fit_digest
from privinf.federation.curator import Curator, TableByPasses
from privinf.federation.local import LocalSites
from privinf.fitting.covariances import CURVED_HC1, requested_covariance
from privinf.fitting.solve import with_covariance
from privinf.glm.advice import curved_notes, misfits, unsettled_reason
from privinf.glm.clipping import LABEL, OutsideCount, ends_of
from privinf.glm.curved import FinalStep, Walk, fit_curved
from privinf.glm.curved_sums import CurvedSums, Noisy
from privinf.glm.drawn import (
    DRAWN_EQUATION,
    POSTERIOR_EQUATION,
    curved_system,
    drawn,
    drawn_terms,
    recorded,
)
from privinf.glm.least_squares import SecondLook, fit_least_squares
from privinf.glm.margins import (
    NO_CONSTANT,
    NO_OFFSET,
    SHARE,
    average_curvature,
    ratio_beside,
    recorded_moments,
)
from privinf.glm.plan import FitPlan, FitRequest, plan_fit, refuse_without_intervals
from privinf.glm.questions import Questions
from privinf.glm.results import (
    SINGULAR,
    FitDescription,
    GLMResults,
    glm_results,
    named_results,
    second_look_results,
    singular,
    weak_results,
)
from privinf.glm.rows import GlmRows
from privinf.glm.settling import Trajectory
from privinf.glm.sums import Clients, GlmSums
from privinf.inference.covariances import COVARIANCES
from privinf.inference.estimate import Estimate, VarianceTerms
from privinf.mechanisms.gaussian import warn_of_large_delta
from privinf.results.effects import absorbing
from privinf.typing import RngLike, Trust
from privinf.validation import counted

ROLES = (
    "offset=, exposure= and weights= belong to the default fit of a logistic or Poisson model: no "
    "optimizer=, unit=, targets= or residual_clip=, and rows and budget enough for its coefficients"
)
NO_CURVATURE = (
    "the first Hessian is within its noise in every direction, and what was left was not spent: spend more, "
    "use fewer columns, or state tighter bounds"
)
ONE_MEAN = (
    "the model has no column beside the constant, and its one coefficient is a mean: pi.Moments(...) "
    "releases means(), and GLM(...).fit(optimizer=Newton()) fits the constant alone"
)
TOO_FEW_ROWS = "{} rows cannot identify {} coefficients: the rows are too few"
HIDDEN = "the noise hides the Hessian: spend more, use fewer coefficients, or state tighter bounds"


def run_fit(
    rows: GlmRows, trust: Trust, ledger: Ledger, model: str, request: FitRequest, spending: Mapping[str, Any]
) -> GLMResults:
    """Check a request, ask what its plan asks, and return the results; errors as `GLM.fit` says."""
    covariance = requested_covariance(request.cov_type, rows.design.schema)
    if covariance is COVARIANCES["HC1"] and rows.family != "gaussian":
        raise NotAvailableError(f"cov_type='HC1' {CURVED_HC1}")
    request = replace(request, cov_type=covariance.release or "HC0")
    with ExitStack() as held:
        found = _run(rows, trust, ledger, model, request, spending, held)
    return absorbing(with_covariance(found, covariance), rows.roles.effects)


def _run(
    rows: GlmRows,
    trust: Trust,
    ledger: Ledger,
    model: str,
    request: FitRequest,
    spending: Mapping[str, Any],
    held: ExitStack,
) -> GLMResults:
    """Fit; the folder of the checkpoint is held until the caller's stack is left."""
    level = {name: value for name, value in spending.items() if name != "rng"}
    rows = rows if request.targets is None else rows.user
    whole = rows
    rows = rows.reported()
    plan = plan_fit(level, request, rows)
    if whole.beside and not plan.curved:
        raise ArgumentError(ROLES)
    if rows.total < rows.p and (plan.curved or plan.looks is not None):
        raise AlignmentError(TOO_FEW_ROWS.format(rows.total, rows.p))
    refuse_without_intervals(plan, request, rows.family)
    if rows.p == 1 and rows.design.constant is not None and (plan.curved or plan.looks is not None):
        raise ArgumentError(ONE_MEAN)
    if plan.margins and rows.design.constant is None:
        raise NotAvailableError(NO_CONSTANT)
    if plan.margins and rows.family == "binomial" and whole.roles.offset is not None:
        raise ArgumentError(NO_OFFSET)
    if not isinstance(whole.federation, (LocalSites, TableByPasses)):
        stated = stating_charges(ledger, delta=plan.delta, checkpoint=request.checkpoint)
        held.enter_context(stated)
    if isinstance(whole.federation, TableByPasses):
        engines = plan.curved or (plan.looks is not None and not plan.looks.adapt)
        whole.federation.check_fit(default=engines and plan.clients is None and not math.isinf(plan.mu))
    warn_of_large_delta(spending.get("delta"), rows.total)
    default = plan.curved or plan.looks is not None
    own = trust == "central" and isinstance(whole.federation, (LocalSites, TableByPasses))
    outside = OutsideCount.of(whole, plan.mu) if default and own else None
    price = plan.mu if outside is None else outside.rest
    folder = _folder(whole, trust, request, plan, outside)
    left = plan.mu if folder is None else held.enter_context(folder).unspent(plan.mu, ledger)
    if 0.0 < left < math.inf:
        ledger.check(GaussianLoss(left))
    before = len(ledger.entries)
    sums = sums_of(whole, trust, ledger, spending.get("rng"), request, folder, plan.clients)
    if isinstance(sums.server, (TrustedServer, CheckpointedServer)):
        held.enter_context(sums.server.reserving([GaussianLoss(plan.mu)]))

    def told(
        method: str,
        trajectory: Trajectory,
        found: NoisySum | None = None,
        ends: tuple[str, ...] = (),
        **more: str,
    ) -> FitDescription:
        kept = sums.server
        entries = kept.entries if isinstance(kept, CheckpointedServer) else ledger.entries[before:]
        report = PrivacyReport.of(entries, ledger=ledger, delta=plan.delta)
        options = _options(rows, trust, request) | more
        if (passes := getattr(kept, "passes", None)) is not None:
            options["Passes over the table"] = str(passes)
        clipped = {} if found is None or outside is None else outside.shares(found, whole.total)
        return FitDescription(
            model=model,
            method=method,
            options=options,
            trajectory=trajectory,
            traffic=sums.traffic,
            report=report,
            clipped=clipped,
            at_an_end=ends,
        )

    if plan.curved:
        releases = curved_sums(whole, sums, price)
        bent, average = _curved(releases, plan)
        seen = outside.ask(sums) if outside is not None and isinstance(bent, FinalStep) else None
        path = curved_path(bent)
        method = f"Newton in whitened units, {counted(path.length, 'round')}"
        ends = curved_ends(rows, bent, releases.moment_sd)
        description = told(method, path, seen, ends, **whole.roles.described())
        ratio = ratio_beside(whole.design, whole.roles)
        return curved_results(rows, bent, description, request.cov_type, average, ratio)
    if plan.looks is not None:
        asked = Questions.of(rows, sums, price, plan.looks)
        asked.outside = None if math.isinf(price) else outside  # without noise looks are repeated
        look = fit_least_squares(asked)
        if outside is not None and asked.counted is None:
            asked.counted = outside.ask(sums)
        lines = plan.looks.described(rows.design.y_scale)
        path = path_of(look, asked.rows)
        description = told("least squares by a second look", path, asked.counted, asked.ends, **lines)
        return second_look_results(asked.rows, look, plan.looks, description)
    trajectory = plan.trajectory(sums, rows.start)
    found = plan.last_step(sums, trajectory.params)
    description = told(f"{type(plan.optimizer).__name__}, {counted(trajectory.length, 'round')}", trajectory)
    if found is None:
        return weak_results(rows, description, plan.weak or HIDDEN, plan.block)
    return glm_results(rows, found, description, request.cov_type, plan.block)


def _curved(asked: CurvedSums, plan: FitPlan) -> tuple[FinalStep | Walk, Noisy | None]:
    """Return the final release of a curved fit, and the mean curvature where it was asked for."""
    asked.spent = SHARE if plan.margins else 0.0
    found = fit_curved(asked, robust=plan.robust)
    asked.spent -= SHARE if plan.margins else 0.0
    if not plan.margins or isinstance(found, Walk):
        return found, None
    return found, average_curvature(asked, found.estimate)


def curved_sums(rows: GlmRows, sums: GlmSums, mu: float) -> CurvedSums:
    """Return the same server with what it is asked about a curved model."""
    design = rows.design
    roles = rows.roles
    units = dict(rows.units)
    fixed = np.zeros(rows.p)
    names = list(design.names)
    shift = 0.0
    linear = 0.0
    if roles.offset is not None:
        at = names.index(roles.offset)
        fixed[at] = rows.scale[at]
        shift = float(rows.center[at])
    start = fixed.copy()
    if roles.exposure is not None:
        at = units["exposure"] = names.index(roles.exposure)
        middle = max(float(rows.center[at]), float(design.high[at]) / 2.0)
        start[at] = rows.scale[at] / middle
        linear = math.log(middle) + float(rows.center[at]) / middle - 1.0
    if roles.weights is not None:
        at = units["weight"] = names.index(roles.weights)
        units["weight_unit"] = max(float(design.low[at] + design.high[at]) / 2.0, 1e-6)
    if shift:
        units["intercept"] = shift
    free, low, high = rows.free, *rows.limits
    asked = np.flatnonzero((start != 0.0) | np.isin(np.arange(rows.p), free))
    reach = np.maximum(np.abs(low), np.abs(high))
    spare = [j for j in range(rows.p) if j not in asked]
    radius = math.sqrt(max(rows.radius**2 - float(reach[spare] @ reach[spare]), 1e-12))
    constant = None if design.constant is None else int(np.flatnonzero(free == design.constant)[0])
    response = float(design.y_low or 0.0), float(design.y_high or 0.0)
    assert rows.family != "gaussian"
    return CurvedSums(
        server=sums.server,
        family=rows.family,
        units=units,
        n=sums.n,
        free=free,
        fixed=fixed,
        linear=start,
        level=shift + linear,
        radius=radius,
        constant=constant,
        response=response,
        mu=mu,
        traffic=sums.traffic,
        names=tuple(names[j] for j in free),
    )


def curved_ends(rows: GlmRows, found: FinalStep | Walk, sd: float) -> tuple[str, ...]:
    """Return the columns whose mean the first release puts at an end of their bounds."""
    constant = rows.design.constant
    if constant is None:
        return ()
    second = (found.walk if isinstance(found, FinalStep) else found).second
    return ends_of(rows, second[constant], sd / math.sqrt(2.0))


def _folder(
    rows: GlmRows, trust: Trust, request: FitRequest, plan: FitPlan, outside: OutsideCount | None
) -> FitFolder | None:
    """Return the folder that a fit is kept in."""
    if request.checkpoint is None:
        return None
    block = () if plan.block is None else plan.block.columns.tolist()
    more = () if outside is None else (LABEL,)
    settings = *plan.settings, *more, block, trust, request.relation, request.max_colluding
    fit = fit_digest(rows.design, rows.model, *settings)
    return FitFolder(path=Path(request.checkpoint), fit=fit, keyed=trust != "secure-sum")


def _options(rows: GlmRows, trust: Trust, request: FitRequest) -> dict[str, str]:
    """Return the lines of a summary that say what was asked for."""
    options = {"Family": rows.family, "Sites": str(len(rows.rows)), "Trust": trust}
    if request.relation != "replace-one":
        options["Neighbours"] = request.relation
    if request.unit != "record":
        options["Protected unit"] = request.unit
    return options


def sums_of(
    rows: GlmRows,
    trust: Trust,
    ledger: Ledger,
    rng: RngLike,
    request: FitRequest,
    folder: FitFolder | None = None,
    clients: Clients | None = None,
) -> GlmSums:
    """Return the sums of a model, asked of a curator's own rows, a trusted server, or sites under masks."""
    if request.max_colluding and trust != "secure-sum":
        raise ArgumentError('max_colluding= belongs to trust="secure-sum"')
    options: dict[str, Any] = {"ledger": ledger, "rng": rng, "relation": request.relation}
    sites = rows.federation
    if isinstance(sites, TableByPasses) and folder is not None:
        sites = sites.collected()
    own = sites.own_rows(rows.design) if isinstance(sites, (LocalSites, TableByPasses)) else None
    asked: Curator | TrustedServer | CheckpointedServer
    if trust == "central" and folder is None and own is not None:
        asked = Curator(own[1], name=own[0], **options)
    else:
        options["design"] = None if rows.design.schema is None else rows.design
        if trust == "secure-sum":
            server: TrustedServer = SecureServer(sites, max_colluding=request.max_colluding, **options)
        else:
            server = TrustedServer(sites, trust=trust, **options)
        asked = server if folder is None else CheckpointedServer(server, folder)
    constant = rows.design.constant if rows.family == "poisson" else None
    low, high = rows.limits
    return GlmSums(
        server=asked,
        model=rows.model,
        n=rows.total,
        p=rows.p,
        low=low,
        high=high,
        scaled_constant=constant,
        clients=clients,
    )


def path_of(look: SecondLook, rows: GlmRows) -> Trajectory:
    """Return a second look as a trajectory: the pilot, then the estimate; units of `GlmRows`."""
    center, unit, _, _ = rows.response_units
    middle = np.zeros(rows.p)
    if rows.design.constant is not None:
        middle[rows.design.constant] = center
    path = [middle + unit * theta for theta in (look.pilot.theta, look.params)]
    return Trajectory(params=path[-1], path=path, length=1, rounds=[])


# ---- results of curved fits


def curved_path(found: FinalStep | Walk) -> Trajectory:
    """Return the iterates of a curved fit, those of `GlmRows`' units."""
    path = (found.walk if isinstance(found, FinalStep) else found).path
    return Trajectory(params=path[-1], path=path, length=len(path) - 1, rounds=[])


def curved_results(
    rows: GlmRows,
    found: FinalStep | Walk,
    description: FitDescription,
    cov_type: str,
    average: Noisy | None = None,
    ratio: float = 1.0,
) -> GLMResults:
    """Return the results of a curved fit, in the user's units; intervals are quantiles of draws."""
    names = rows.design.names
    back = rows.to_user
    design = rows.design
    if isinstance(found, Walk):
        return weak_results(rows, description, NO_CURVATURE, None)
    told: dict[str, Any] = {"second": recorded_moments(found.walk.second, back)}
    if rows.family == "poisson":
        told["dispersion"] = found.dispersion
    if average is not None:
        told["margins"] = [float(average.mean[0]), average.sd, ratio]
    if found.hessian.sd == 0.0:
        return _exact_results(rows, found, description, cov_type, told)
    try:
        got = drawn(found, rows.total, design.constant)
    except np.linalg.LinAlgError:
        return weak_results(rows, description, SINGULAR, None)
    if got.weak:  # in standard errors of the posterior
        share = np.diag(got.sampling) / np.var(got.draws, axis=0)
        found = replace(found, far=found.far * math.sqrt(min(float(share.max()), 1.0)))
    context = description.context(rows, *curved_notes(rows, found, got))
    context["settings"] |= told
    total = np.atleast_2d(np.cov(got.draws.T))
    reason = "" if got.settled or got.weak else unsettled_reason(rows, found, got)
    if reason := reason or singular(total):
        bare = Estimate(
            params=back @ got.params,
            cov=None,
            names=names,
            nobs=rows.total,
            cov_type="none",
            weak_reason=reason,
        )
        return named_results(bare, **context)
    context["settings"] |= {"curved": recorded(found), "to_user": back.tolist()}
    system = curved_system(context["settings"], design, rows.total, cov_type)
    values, vectors = np.linalg.eigh(total - got.sampling)
    noise = None if got.weak else (vectors * np.maximum(values, 0.0)) @ vectors.T
    terms = VarianceTerms(POSTERIOR_EQUATION, {"sampling, noise and prior": total}, {})
    if noise is not None:
        terms = VarianceTerms.dividing(total, DRAWN_EQUATION, drawn_terms(found, noise))
    kind = "posterior" if got.weak else cov_type
    estimate = Estimate(
        params=got.params,
        cov=total,
        names=names,
        nobs=rows.total,
        noise_cov=noise,
        cov_type=kind,
        terms=terms,
    )
    estimate = estimate.transformed(back, names=names)
    if texts := misfits(found):
        context["settings"] |= {"misfits": list(texts)}
    if found.hidden is not None and not got.weak:
        values, vectors = found.hessian.floored()
        influence = back @ found.place.transform.T @ (vectors / values) @ vectors.T
        estimate = replace(estimate, bias=found.hidden.bias(influence))
        context["settings"] |= {"tail_ratio": found.hidden.ratio}
    sampling = None if noise is None else back @ (total - noise) @ back.T
    return named_results(estimate, sampling_cov=sampling, system=system, **context)


def _exact_results(
    rows: GlmRows, found: FinalStep, description: FitDescription, cov_type: str, told: Mapping[str, Any]
) -> GLMResults:
    """Return the results of a fit without noise: the maximum of the likelihood, and its covariance."""
    move = found.place.transform.T @ np.linalg.inv(found.hessian.mean)
    cov = move @ found.meat @ move.T / rows.total
    step = move @ found.score.mean
    nothing = np.zeros_like(cov)
    estimate = Estimate(
        params=found.place.theta + step,
        cov=cov,
        names=rows.design.names,
        nobs=rows.total,
        noise_cov=nothing,
        cov_type=cov_type,
        terms=VarianceTerms.dividing(cov, DRAWN_EQUATION, drawn_terms(found, nothing)),
    )
    back = rows.to_user
    context = description.context(rows)
    context["settings"] |= told
    sampling = back @ cov @ back.T
    # The settings, which files keep, do not hold the equation: its sums have no noise.
    told = {"curved": recorded(found), "to_user": back.tolist()}
    return named_results(
        estimate.transformed(back, names=rows.design.names),
        sampling_cov=sampling,
        system=curved_system(told, rows.design, rows.total, cov_type),
        **context,
    )
