"""The steps of a fit of a generalized linear model: check, release, estimate, describe."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import compress
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from privinf.accounting import GaussianLoss, Ledger, LedgerEntry, PrivacyReport
from privinf.accounting.ledger import charged_since
from privinf.accounting.purposes import charged_for
from privinf.completeness import CompleteRows
from privinf.errors import AlignmentError, ArgumentError, NotAvailableError
from privinf.federation import NoisySum, SecureServer, TrustedServer
from privinf.federation.charges import stating_charges
from privinf.federation.checkpoint import CheckpointedServer, FitFolder, fit_digest
from privinf.federation.curator import Curator, TableByPasses
from privinf.federation.local import LocalSites
from privinf.fitting.covariances import CURVED_HC1, requested_covariance
from privinf.fitting.solve import with_covariance
from privinf.glm.advice import (
    curved_notes,
    heavy_tail,
    hidden_level_notes,
    long_steps,
    misfits,
    nonconvergence_reason,
)
from privinf.glm.clipping import LABEL, OutsideCount, ends_of, leverages
from privinf.glm.convergence import Trajectory
from privinf.glm.curved import GLMNewtonPath, OneStepRelease, fit_curved
from privinf.glm.curved_sums import CurvedSums, Noisy
from privinf.glm.dispersion import FIRST_ALPHA, Dispersion
from privinf.glm.least_squares import OneStepFit, fit_least_squares
from privinf.glm.long_rows import note_of_levels, tail_bias
from privinf.glm.margins import (
    NO_CONSTANT,
    NO_OFFSET,
    SHARE,
    Average,
    average_curvature,
    exposure_ratio,
    hessian_average,
    is_well_determined,
    recorded_moments,
)
from privinf.glm.plan import FitPlan, FitRequest, plan_fit, refuse_without_intervals
from privinf.glm.posterior_draws import (
    DRAWN_EQUATION,
    POSTERIOR_EQUATION,
    PosteriorDraws,
    curved_system,
    drawn,
    drawn_terms,
    noise_of_draws,
    recorded,
    secant_bias,
)
from privinf.glm.queries import LeastSquaresOptions, LeastSquaresQueries
from privinf.glm.rare_levels import converged_without, left_out_levels
from privinf.glm.rare_reference import rare_references
from privinf.glm.results import (
    SINGULAR,
    FitDescription,
    GLMResults,
    glm_results,
    named_results,
    one_step_results,
    singular,
    weak_results,
)
from privinf.glm.rows import GlmRows
from privinf.glm.sums import Clients, GlmSums
from privinf.inference.covariances import COVARIANCES
from privinf.inference.estimate import Estimate, VarianceTerms
from privinf.inference.tails import HEAVY
from privinf.mechanisms.gaussian import warn_of_large_delta
from privinf.results.effects import absorbing
from privinf.results.notes import MARGINS_NOTE, Note
from privinf.schema.design import formula_text
from privinf.typing import Floats, RngLike, Trust
from privinf.validation import counted
from privinf.wire import readable

ROLES = (
    "offset=, exposure= and weights= can be used only in the default fit of a logistic or Poisson model, "
    "with enough rows and budget for its coefficients: leave out optimizer=, unit=, targets= and "
    "residual_clip=, or use more rows or a larger budget"
)
NO_CURVATURE = (
    "the noise hides the first Hessian in every direction; the rest of the budget was not "
    "spent. Increase the budget, use fewer columns, or declare tighter bounds"
)
ONE_MEAN = (
    "the model has no column besides the constant, whose coefficient follows from the mean of the "
    "response: use pi.stats.mean(), or GLM(...).fit(optimizer=Newton()) to fit the constant alone"
)
TOO_FEW_ROWS = "{} rows are too few to identify {} coefficients: use fewer columns or more rows"
HIDDEN = "the noise hides the Hessian: increase the budget, use fewer coefficients, or declare tighter bounds"
DROPPING_ROUNDS = (
    "missing='drop' is available only for the default fits of OLS, Logit and Poisson, which estimate the "
    "number of complete rows from their first release: leave optimizer=, unit=, targets= and residual_clip= "
    "out, and use enough rows and budget for the coefficients"
)
DROPPING_BOUNDS = (
    "missing='drop' cannot be combined with adapt_bounds=True, whose counts of columns come before the "
    "number of complete rows is estimated: leave adapt_bounds= out"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FitRun:
    """A checked fit whose server is ready: its rows, its plan, its sums, and what describes its results.

    Attributes
    ----------
    rows : GlmRows
        The rows of the coefficients that are reported.
    all_rows : GlmRows
        The same with the columns of offset, exposure, weights and fixed effects.
    plan : FitPlan
        What is released, at which price.
    request : FitRequest
        What the caller requested.
    trust : Trust
        Who sums.
    ledger : Ledger
        The account.
    first_line : int
        Number of ledger lines before the fit.
    model : str
        Name of the model.
    outside : OutsideCount or None
        The count of values outside their bounds, where it is part of the fit.
    mu : float
        Price of all releases besides that count.
    delta : float or None
        At which epsilon is reported; None if the call has none.
    sums : GlmSums
        The sums, released by the server.
    """

    rows: GlmRows
    all_rows: GlmRows
    plan: FitPlan
    request: FitRequest
    trust: Trust
    ledger: Ledger
    first_line: int
    model: str
    outside: OutsideCount | None
    mu: float
    delta: float | None
    sums: GlmSums

    def counted(self, complete: CompleteRows) -> FitRun:
        """Return the same fit once a release has told how many rows are complete."""
        return replace(
            self,
            rows=replace(self.rows, complete=complete),
            all_rows=replace(self.all_rows, complete=complete),
        )

    def describe(
        self,
        method: str,
        trajectory: Trajectory,
        outside_counts: NoisySum | None = None,
        ends: tuple[str, ...] = (),
        leverage: Mapping[str, float] = MappingProxyType({}),
        **extra: str,
    ) -> FitDescription:
        """Return the description of the finished fit: options, trajectory, traffic and privacy report."""
        server = self.sums.server
        if isinstance(server, CheckpointedServer):
            entries: Sequence[LedgerEntry] = server.entries
        else:
            entries = charged_since(self.ledger, self.first_line)
        options = {"Family": self.rows.family, "Sites": str(len(self.rows.rows)), "Trust": self.trust}
        if self.request.relation != "replace-one":
            options["Neighbors"] = self.request.relation
        if self.request.unit != "record":
            options["Protected unit"] = self.request.unit
        options |= extra
        if (passes := getattr(server, "passes", None)) is not None:
            options["Passes over the table"] = str(passes)
        counts = None
        if self.outside is not None and outside_counts is not None:
            counts = self.outside.counts(outside_counts, self.all_rows.total, leverage)
        return FitDescription(
            model=self.model,
            method=method,
            options=options,
            trajectory=trajectory,
            traffic=self.sums.traffic,
            report=PrivacyReport.from_entries(
                entries, ledger=self.ledger, delta=self.delta, nobs=self.rows.total
            ),
            outside=counts,
            at_an_end=ends,
        )


def run_fit(
    rows: GlmRows, trust: Trust, ledger: Ledger, model: str, request: FitRequest, spending: Mapping[str, Any]
) -> GLMResults:
    """Check a request, release the sums of its plan, and return the results; errors as in `GLM.fit`."""
    covariance = requested_covariance(request.cov_type, rows.design.schema)
    if covariance is COVARIANCES["HC1"] and rows.family != "gaussian":
        raise NotAvailableError(f"cov_type='HC1' {CURVED_HC1}")
    request = replace(request, cov_type=covariance.release or "HC0")
    with ExitStack() as stack:
        stack.enter_context(charged_for(f"{model}: {rows.roles.apart(formula_text(rows.design.user))}"))
        fit = prepare_fit(rows, trust, ledger, model, request, spending, stack)
        if fit.plan.curved:
            result = _run_curved(fit)
        elif fit.plan.least_squares is not None:
            result = _run_least_squares(fit, fit.plan.least_squares)
        else:
            result = _run_optimizer(fit)
    return absorbing(with_covariance(result, covariance), rows.roles.effects)


def prepare_fit(
    rows: GlmRows,
    trust: Trust,
    ledger: Ledger,
    model: str,
    request: FitRequest,
    spending: Mapping[str, Any],
    stack: ExitStack,
) -> FitRun:
    """Check, reserve and return a fit; reservation and checkpoint folder last until the stack is left."""
    level = {name: value for name, value in spending.items() if name != "rng"}
    all_rows = rows if request.targets is None else rows.user
    rows = all_rows.reported()
    plan = plan_fit(level, request, rows)
    _check_plan(plan, request, rows, all_rows)
    stack.enter_context(stating_charges(ledger, delta=spending.get("delta"), checkpoint=request.checkpoint))
    warn_of_large_delta(spending.get("delta"), rows.total)
    default = plan.curved or plan.least_squares is not None
    is_curator = trust == "central" and isinstance(all_rows.federation, (LocalSites, TableByPasses))
    outside = OutsideCount.from_rows(all_rows, plan.mu) if default and is_curator else None
    folder = _folder(all_rows, trust, request, plan, outside)
    unspent = plan.mu if folder is None else stack.enter_context(folder).unspent(plan.mu, ledger)
    if 0.0 < unspent < math.inf:
        ledger.check(GaussianLoss(unspent))
    first_line = len(ledger.entries)
    sums = sums_of(all_rows, trust, ledger, spending.get("rng"), request, folder, plan.clients)
    if isinstance(sums.server, (TrustedServer, CheckpointedServer)):
        stack.enter_context(sums.server.reserving([GaussianLoss(plan.mu)]))
    return FitRun(
        rows=rows,
        all_rows=all_rows,
        plan=plan,
        request=request,
        trust=trust,
        ledger=ledger,
        first_line=first_line,
        model=model,
        outside=outside,
        mu=plan.mu if outside is None else outside.rest,
        delta=spending.get("delta"),
        sums=sums,
    )


def _check_plan(plan: FitPlan, request: FitRequest, rows: GlmRows, all_rows: GlmRows) -> None:
    """Raise PrivinfError where the model's rows and columns do not allow a plan; nothing is charged."""
    one_step = plan.curved or plan.least_squares is not None
    if all_rows.role_columns and not plan.curved:
        raise ArgumentError(ROLES)
    if rows.total < rows.p and one_step:
        raise AlignmentError(TOO_FEW_ROWS.format(rows.total, rows.p))
    refuse_without_intervals(plan, request, rows.family)
    if rows.p == 1 and rows.design.constant is not None and one_step:
        raise ArgumentError(ONE_MEAN)
    if rows.missing == "drop" and not one_step:
        raise NotAvailableError(DROPPING_ROUNDS)
    if rows.missing == "drop" and plan.least_squares is not None and plan.least_squares.adapt_bounds:
        raise NotAvailableError(DROPPING_BOUNDS)
    if plan.margins and rows.design.constant is None:
        raise NotAvailableError(NO_CONSTANT)
    if plan.margins and rows.family == "binomial" and all_rows.roles.offset is not None:
        raise ArgumentError(NO_OFFSET)
    if isinstance(all_rows.federation, TableByPasses):
        all_rows.federation.check_fit(_unlike_default(plan, request, rows))


def _unlike_default(plan: FitPlan, request: FitRequest, rows: GlmRows) -> str:
    """Return why a fit differs from the default fits with noise, which have a database query; else ""."""
    if math.isinf(plan.mu):
        return "a fit without noise sums floating-point numbers, and the database sums only integers"
    if plan.clients is not None:
        return "unit= of the fit is not a record"
    if plan.least_squares is not None and plan.least_squares.adapt_bounds:
        return "the fit uses adapt_bounds=True"
    if plan.curved or plan.least_squares is not None:
        return ""
    used = {
        "optimizer": request.optimizer is not None,
        "targets": request.targets is not None,
        "radius": rows.family == "gaussian" and not rows.default_radius,
        "residual_clip": rows.family != "gaussian" and rows.rule != "auto",
    }
    if any(used.values()):
        return f"the fit uses {' and '.join(f'{name}=' for name, is_used in used.items() if is_used)}"
    return "the fit has too few rows, or too small a budget, for its coefficients"


def _run_curved(fit: FitRun) -> GLMResults:
    """Release the sums of a logistic or count model, with the mean curvature if margins are requested."""
    rows = fit.rows
    roles = fit.all_rows.roles
    queries = curved_sums(fit.all_rows, fit.sums, fit.mu)
    queries.spent = SHARE if fit.plan.margins else 0.0
    outcome = fit_curved(queries, robust=fit.plan.robust)
    queries.spent -= SHARE if fit.plan.margins else 0.0
    average = None
    final_counts = None
    if isinstance(outcome, OneStepRelease):
        average = average_curvature(queries, outcome.estimate) if fit.plan.margins else None
        final_counts = None if fit.outside is None else fit.outside.release(fit.sums)
    if queries.complete is not None:
        fit = fit.counted(queries.complete)
        rows = fit.rows
    path = curved_path(outcome)
    method = f"Newton's method in whitened coordinates, {counted(path.length, 'round')}"
    ends = curved_ends(rows, outcome, queries.moment_sd)
    leverage = curved_leverages(rows, outcome, queries.moment_sd)
    description = fit.describe(method, path, final_counts, ends, leverage, **roles.described())
    ratio = exposure_ratio(fit.all_rows.design, roles)
    extra = {}
    if isinstance(outcome, OneStepRelease):
        extra = _averages(fit, outcome, average, ratio)
    return curved_results(rows, outcome, description, fit.request.cov_type, extra)


def _averages(fit: FitRun, outcome: OneStepRelease, average: Noisy | None, ratio: float) -> dict[str, Any]:
    """Return settings of average marginal effects: the released mean curvature, or that of the Hessian."""
    rows = fit.rows
    if average is not None:
        return {"margins": [float(average.mean[0]), average.sd, ratio]}
    roles = fit.all_rows.roles
    constant = rows.design.constant
    offset = rows.family == "binomial" and roles.offset is not None
    if constant is None or offset or roles.weights is not None or not rows.default_radius:
        return {}
    if outcome.alpha is not None:  # the Hessian's weights depend on the mean
        return {}
    mean = hessian_average(outcome, rows.mean_family, constant, rows.to_user, ratio)
    return {} if mean is None else {"hessian_average": mean.to_dict()}


def _run_least_squares(fit: FitRun, options: LeastSquaresOptions) -> GLMResults:
    """Release the sums of a one-step least-squares fit."""
    queries = LeastSquaresQueries.from_rows(fit.rows, fit.sums, fit.mu, options)
    # Without noise the one-step fit is repeated, and the count is released once, after it.
    queries.outside = None if math.isinf(fit.mu) else fit.outside
    one_step = fit_least_squares(queries)
    if fit.outside is not None and queries.counted is None:
        queries.counted = fit.outside.release(fit.sums)
    lines = options.described(fit.rows.design.y_scale)
    if queries.rows.complete is not None:
        fit = fit.counted(queries.rows.complete)
    path = path_of(one_step, queries.rows)
    method = "least squares by a one-step estimator"
    description = fit.describe(method, path, queries.counted, queries.ends, queries.leverage, **lines)
    return one_step_results(queries.rows, one_step, options, description)


def _run_optimizer(fit: FitRun) -> GLMResults:
    """Release the rounds of an optimizer, and its last step."""
    plan = fit.plan
    trajectory = plan.trajectory(fit.sums, fit.rows.start)
    last = plan.last_step(fit.sums, trajectory.params)
    method = f"{type(plan.optimizer).__name__}, {counted(trajectory.length, 'round')}"
    description = fit.describe(method, trajectory)
    if last is None:
        return weak_results(fit.rows, description, readable(plan.weak) or HIDDEN, plan.block)
    return glm_results(fit.rows, last, description, fit.request.cov_type, plan.block)


def curved_sums(rows: GlmRows, sums: GlmSums, mu: float) -> CurvedSums:
    """Return the sums of a logistic or count model, with the units in which the sites compute them."""
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
    columns = np.flatnonzero((start != 0.0) | np.isin(np.arange(rows.p), free))
    largest = np.maximum(np.abs(low), np.abs(high))
    spare = [j for j in range(rows.p) if j not in columns]
    radius = math.sqrt(max(rows.radius**2 - float(largest[spare] @ largest[spare]), 1e-12))
    constant = None if design.constant is None else int(np.flatnonzero(free == design.constant)[0])
    response = float(design.y_low or 0.0), float(design.y_high or 0.0)
    assert rows.mean_family != "gaussian"
    return CurvedSums(
        server=sums.server,
        family=rows.mean_family,
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
        dropping=rows.missing == "drop",
        alpha=FIRST_ALPHA if rows.family == "negative-binomial" else None,
        indicators=np.array([design.columns[j].indicator for j in free], dtype=bool),
    )


def curved_ends(rows: GlmRows, outcome: OneStepRelease | GLMNewtonPath, sd: float) -> tuple[str, ...]:
    """Return the columns whose mean the first release puts at an end of their bounds."""
    constant = rows.design.constant
    if constant is None:
        return ()
    second = (outcome.walk if isinstance(outcome, OneStepRelease) else outcome).second
    return ends_of(rows, second[constant], sd / math.sqrt(2.0))


def curved_leverages(
    rows: GlmRows, outcome: OneStepRelease | GLMNewtonPath, sd: float
) -> Mapping[str, float]:
    """Return the leverages of columns by the first release (`privinf.glm.clipping.leverages`)."""
    constant = rows.design.constant
    if constant is None:
        return {}
    second = (outcome.walk if isinstance(outcome, OneStepRelease) else outcome).second
    return leverages(rows, second[constant], np.diag(second), sd)


def _folder(
    rows: GlmRows, trust: Trust, request: FitRequest, plan: FitPlan, outside: OutsideCount | None
) -> FitFolder | None:
    """Return the checkpoint folder of a fit, None without one."""
    if request.checkpoint is None:
        return None
    block = () if plan.block is None else plan.block.columns.tolist()
    count_settings = () if outside is None else (LABEL,)
    settings = *plan.settings, *count_settings, block, trust, request.relation, request.max_colluding
    fit = fit_digest(rows.design, rows.model, *settings)
    return FitFolder(path=Path(request.checkpoint), fit=fit, keyed=trust != "secure-sum")


def sums_of(
    rows: GlmRows,
    trust: Trust,
    ledger: Ledger,
    rng: RngLike,
    request: FitRequest,
    folder: FitFolder | None = None,
    clients: Clients | None = None,
) -> GlmSums:
    """Return the sums of a model over a curator's own rows, at a trusted server, or under masks."""
    if request.max_colluding and trust != "secure-sum":
        raise ArgumentError('max_colluding= can be used only with trust="secure-sum"')
    options: dict[str, Any] = {"ledger": ledger, "rng": rng, "relation": request.relation}
    sites = rows.federation
    if isinstance(sites, TableByPasses) and folder is not None:
        sites = sites.collected()
    curator_rows = sites.own_rows(rows.design) if isinstance(sites, (LocalSites, TableByPasses)) else None
    answering: Curator | TrustedServer | CheckpointedServer
    if trust == "central" and folder is None and curator_rows is not None:
        answering = Curator(curator_rows[1], name=curator_rows[0], size=rows.total, **options)
    else:
        options["design"] = None if rows.design.schema is None else rows.design
        if trust == "secure-sum":
            server: TrustedServer = SecureServer(sites, max_colluding=request.max_colluding, **options)
        else:
            server = TrustedServer(sites, trust=trust, **options)
        answering = server if folder is None else CheckpointedServer(server, folder)
    constant = rows.design.constant if rows.mean_family == "poisson" else None
    low, high = rows.limits
    return GlmSums(
        server=answering,
        model=rows.model,
        n=rows.total,
        p=rows.p,
        low=low,
        high=high,
        scaled_constant=constant,
        clients=clients,
    )


def path_of(one_step: OneStepFit, rows: GlmRows) -> Trajectory:
    """Return the initial and the one-step estimate as a trajectory, in the units of `GlmRows`."""
    center, unit, _, _ = rows.response_units
    middle = np.zeros(rows.p)
    if rows.design.constant is not None:
        middle[rows.design.constant] = center
    path = [middle + unit * theta for theta in (one_step.initial.theta, one_step.params)]
    return Trajectory(params=path[-1], path=path, length=1, rounds=[])


# ---- results of curved fits


def curved_path(outcome: OneStepRelease | GLMNewtonPath) -> Trajectory:
    """Return the iterates of a curved fit, those of `GlmRows`' units."""
    path = (outcome.walk if isinstance(outcome, OneStepRelease) else outcome).path
    return Trajectory(params=path[-1], path=path, length=len(path) - 1, rounds=[])


def curved_results(
    rows: GlmRows,
    outcome: OneStepRelease | GLMNewtonPath,
    description: FitDescription,
    cov_type: str,
    averages: Mapping[str, Any],
) -> GLMResults:
    """Return the results of a curved fit, in the user's units; intervals are quantiles of draws.

    `averages` are the settings of average marginal effects.
    """
    names = rows.design.names
    back = rows.to_user
    design = rows.design
    if isinstance(outcome, GLMNewtonPath):
        return weak_results(rows, description, NO_CURVATURE, None)
    extra_settings: dict[str, Any] = {"second": recorded_moments(outcome.walk.second, back)}
    if rows.family == "poisson":
        extra_settings["dispersion"] = outcome.dispersion
    extra_settings |= averages
    if outcome.hessian.sd == 0.0:
        if outcome.alpha is not None:
            description = _with_alpha(description, outcome.alpha, extra_settings)
        return _exact_results(rows, outcome, description, cov_type, extra_settings)
    try:
        posterior = drawn(outcome, rows.total, design.constant)
    except np.linalg.LinAlgError:
        return weak_results(rows, description, SINGULAR, None)
    if posterior.weak:  # in standard errors of the posterior
        share = np.diag(posterior.sampling) / np.var(posterior.draws, axis=0)
        outcome = replace(outcome, far=outcome.far * math.sqrt(min(float(share.max()), 1.0)))
    total = np.atleast_2d(np.cov(posterior.draws.T))
    if outcome.alpha is not None:
        alpha = outcome.alpha.at_error(_predictor_error(outcome, total))
        description = _with_alpha(description, alpha, extra_settings)
    indicators = np.array([column.indicator for column in design.columns])
    hidden = left_out_levels(outcome, posterior, design.constant, indicators)
    reason = ""
    if not (posterior.weak or converged_without(outcome, posterior, hidden > 0.0)):
        reason = nonconvergence_reason(rows, outcome, posterior, clipped=description.clipped)
    reason = reason or singular(total)
    notes = curved_notes(rows, outcome, posterior, has_intervals=not reason)
    context = description.context(rows, *notes)
    context["settings"] |= extra_settings
    if reason:
        bare = Estimate(
            params=back @ posterior.params,
            cov=None,
            names=names,
            nobs=rows.total,
            cov_type="none",
            weak_reason=reason,
        )
        return named_results(bare, **context)
    context["settings"] |= {"curved": recorded(outcome), "to_user": back.tolist()}
    if hidden.any():
        errors = dict(zip(compress(names, hidden), hidden[hidden > 0.0].tolist(), strict=True))
        context["settings"]["hidden_levels"] = errors
        context["settings"] |= {} if posterior.converged else {"unbounded": list(errors)}
        context["notes"] = (*hidden_level_notes(errors, posterior.converged), *context["notes"])
    system = curved_system(context["settings"], design, rows.total, cov_type)
    noise = noise_of_draws(posterior, total)
    estimate = _drawn_estimate(rows, outcome, posterior, total, noise, cov_type)
    if texts := [text for text, _ in misfits(rows, outcome, posterior.weak)]:
        context["settings"] |= {"misfits": texts}
    if outcome.hidden is not None and not posterior.weak:
        bias, levels = tail_bias(rows, outcome, outcome.influence(back))
        estimate = replace(estimate, bias=bias)
        unhidden = [j for j in levels if hidden[j] == 0.0]  # hidden levels have a note of their own
        context["notes"] = (*note_of_levels(names, unhidden, bias / estimate.bse), *context["notes"])
        if outcome.hidden.ratio > HEAVY:
            context["notes"] = (*context["notes"], heavy_tail(outcome.hidden.ratio))
    by_step = None
    if not posterior.weak:
        by_step = secant_bias(outcome, design.constant, indicators, back, estimate.bse)
    if by_step is not None:
        context["settings"]["secant_bias"] = by_step.tolist()
        text, notes = long_steps(names, np.where(hidden > 0.0, 0.0, by_step), estimate.bse)
        if text:
            context["settings"]["misfits"] = [*context["settings"].get("misfits", ()), text]
            context["notes"] = (*context["notes"], *notes)
        estimate = replace(estimate, bias=by_step if estimate.bias is None else estimate.bias + by_step)
    references = () if posterior.weak else rare_references(design.user, estimate.covariance)
    context["notes"] = (*(reference.note for reference in references), *context["notes"])
    sampling = None if noise is None else back @ (total - noise) @ back.T
    if "margins" not in averages and not _has_averages(rows, estimate, description, extra_settings):
        context["notes"] = (*context["notes"], Note(MARGINS_NOTE, "header"))
    return named_results(estimate, sampling_cov=sampling, system=system, **context)


def _has_averages(
    rows: GlmRows, estimate: Estimate, description: FitDescription, settings: Mapping[str, Any]
) -> bool:
    """Return whether the Hessian of a fit gives average marginal effects, or ``margins=True`` would not."""
    constant = rows.design.constant
    if constant is None or (rows.family == "binomial" and "Offset" in description.options):
        return True
    if "hessian_average" not in settings:
        return False
    average = Average.from_dict(settings["hessian_average"])
    return is_well_determined(rows.mean_family, estimate, np.array(settings["second"]), constant, average)


def _with_alpha(description: FitDescription, alpha: Dispersion, settings: dict[str, Any]) -> FitDescription:
    """Return the description with the dispersion among its options, which `settings` keep too."""
    settings["alpha"] = alpha.to_dict()
    return replace(description, options={**description.options, "Dispersion": alpha.described()})


def _predictor_error(outcome: OneStepRelease, covariance: Floats) -> float:
    """Return about the mean square error of linear predictors, by a covariance of the coefficients of z."""
    inverse = np.linalg.inv(outcome.place.transform)
    hessian = inverse @ outcome.hessian.mean @ inverse.T
    return max(float(np.trace(hessian @ covariance)), 0.0) / outcome.place.curvature


def _drawn_estimate(
    rows: GlmRows,
    outcome: OneStepRelease,
    posterior: PosteriorDraws,
    total: Floats,
    noise: Floats | None,
    cov_type: str,
) -> Estimate:
    """Return the estimate of the draws in the user's units, with their covariance and its noise."""
    terms = VarianceTerms(POSTERIOR_EQUATION, {"sampling, noise and prior": total}, {})
    if noise is not None:
        terms = VarianceTerms.dividing(total, DRAWN_EQUATION, drawn_terms(outcome, noise))
    names = rows.design.names
    estimate = Estimate(
        params=posterior.params,
        cov=total,
        names=names,
        nobs=rows.total,
        noise_cov=noise,
        cov_type="posterior" if posterior.weak else cov_type,
        terms=terms,
    )
    return estimate.transformed(rows.to_user, names=names)


def _exact_results(
    rows: GlmRows,
    final: OneStepRelease,
    description: FitDescription,
    cov_type: str,
    extra_settings: Mapping[str, Any],
) -> GLMResults:
    """Return the results of a fit without noise: the maximum of the likelihood, and its covariance."""
    move = final.place.transform.T @ np.linalg.inv(final.hessian.mean)
    cov = move @ final.meat @ move.T / rows.total
    step = move @ final.score.mean
    nothing = np.zeros_like(cov)
    estimate = Estimate(
        params=final.place.theta + step,
        cov=cov,
        names=rows.design.names,
        nobs=rows.total,
        noise_cov=nothing,
        cov_type=cov_type,
        terms=VarianceTerms.dividing(cov, DRAWN_EQUATION, drawn_terms(final, nothing)),
    )
    back = rows.to_user
    context = description.context(rows)
    context["settings"] |= extra_settings
    sampling = back @ cov @ back.T
    # The settings, which files keep, do not hold the equation: its sums have no noise.
    extra_settings = {"curved": recorded(final), "to_user": back.tolist()}
    return named_results(
        estimate.transformed(back, names=rows.design.names),
        sampling_cov=sampling,
        system=curved_system(extra_settings, rows.design, rows.total, cov_type),
        **context,
    )
