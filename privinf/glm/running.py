"""A fit of a generalised linear model: who is asked, what the plan asks, and the results of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from privinf.accounting import GaussianLoss, Ledger, PrivacyReport
from privinf.errors import ArgumentError
from privinf.federation import SecureServer, TrustedServer
from privinf.federation.checkpoint import CheckpointedServer, FitFolder, fit_digest
from privinf.federation.local import Curator, LocalSites
from privinf.glm.curved import fit_curved
from privinf.glm.least_squares import fit_least_squares
from privinf.glm.plan import FitPlan, FitRequest, plan_fit
from privinf.glm.questions import Questions
from privinf.glm.results import (
    FederatedGLMResults,
    FitDescription,
    curved_path,
    curved_results,
    glm_results,
    path_of,
    second_look_results,
    weak_results,
)
from privinf.glm.rows import GlmRows, curved_sums
from privinf.glm.settling import Trajectory
from privinf.glm.sums import Clients, GlmSums
from privinf.typing import RngLike, Trust

ROLES = (
    "offset=, exposure= and weights= belong to the default fit of a logistic or Poisson model: no "
    "optimizer=, unit=, targets= or residual_clip=, and rows and budget enough for its coefficients"
)
HIDDEN = "the noise hides the Hessian: spend more, use fewer coefficients, or state tighter bounds"


def run_fit(
    rows: GlmRows, trust: Trust, ledger: Ledger, model: str, request: FitRequest, spending: Mapping[str, Any]
) -> FederatedGLMResults:
    """Check a request, ask what its plan asks, and return the results; errors as `GLM.fit` says."""
    level = {name: value for name, value in spending.items() if name != "rng"}
    whole, rows = rows, rows.reported()
    plan = plan_fit(level, request, rows)
    if whole.beside and not plan.curved:
        raise ArgumentError(ROLES)
    folder = _folder(whole, trust, request, plan)
    left = plan.mu if folder is None else folder.unspent(plan.mu, ledger)
    if 0.0 < left < math.inf:
        ledger.check(GaussianLoss(left))
    before = len(ledger.entries)
    sums = sums_of(whole, trust, ledger, spending.get("rng"), request, folder, plan.clients)

    def told(method: str, trajectory: Trajectory, **more: str) -> FitDescription:
        kept = sums.server
        entries = kept.entries if isinstance(kept, CheckpointedServer) else ledger.entries[before:]
        report = PrivacyReport.of(entries, ledger=ledger, delta=plan.delta)
        options = _options(rows, trust, request) | more
        return FitDescription(model, method, options, trajectory, sums.traffic, report)

    if plan.curved:
        bent = fit_curved(curved_sums(whole, sums, plan.mu), robust=plan.robust)
        path = curved_path(bent)
        method = f"Newton in whitened units, {path.length} rounds"
        return curved_results(rows, bent, told(method, path, **whole.roles.described()), request.cov_type)
    if plan.looks is not None:
        asked = Questions.of(rows, sums, plan.mu, plan.looks)
        look = fit_least_squares(asked)
        lines = plan.looks.described(rows.design.y_scale)
        description = told("least squares by a second look", path_of(look, asked.rows), **lines)
        return second_look_results(asked.rows, look, plan.looks, description)
    trajectory = plan.trajectory(sums, rows.start)
    found = plan.last_step(sums, trajectory.params)
    description = told(f"{type(plan.optimizer).__name__}, {trajectory.length} rounds", trajectory)
    if found is None:
        return weak_results(rows, description, plan.weak or HIDDEN, plan.block)
    return glm_results(rows, found, description, request.cov_type, plan.block)


def _folder(rows: GlmRows, trust: Trust, request: FitRequest, plan: FitPlan) -> FitFolder | None:
    """Return the folder that a fit is kept in."""
    if request.checkpoint is None:
        return None
    block = () if plan.block is None else plan.block.columns.tolist()
    settings = *plan.settings, block, trust, request.relation, request.max_colluding
    fit = fit_digest(rows.design, rows.model, *settings)
    return FitFolder(Path(request.checkpoint), fit, keyed=trust != "secure-sum")


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
    own = rows.federation.own_rows() if isinstance(rows.federation, LocalSites) else None
    asked: Curator | TrustedServer | CheckpointedServer
    if trust == "central" and folder is None and own is not None:
        asked = Curator(own[1], name=own[0], **options)
    else:
        options["design"] = None if rows.design.schema is None else rows.design
        if trust == "secure-sum":
            server: TrustedServer = SecureServer(
                rows.federation, max_colluding=request.max_colluding, **options
            )
        else:
            server = TrustedServer(rows.federation, trust=trust, **options)
        asked = server if folder is None else CheckpointedServer(server, folder)
    constant = rows.design.constant if rows.family == "poisson" else None
    return GlmSums(asked, rows.model, rows.total, rows.p, *rows.limits, constant, clients)
