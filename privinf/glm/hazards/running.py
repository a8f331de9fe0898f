"""The steps of a proportional-hazards fit: check, release, describe."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np

from privinf.accounting import Ledger
from privinf.accounting.purposes import charged_for
from privinf.errors import AlignmentError, NotAvailableError
from privinf.federation.curator import TableByPasses
from privinf.glm.clipping import ends_of, leverages
from privinf.glm.convergence import Trajectory
from privinf.glm.curved_sums import LEAST_SIZE, enough
from privinf.glm.hazards.baseline import events_of
from privinf.glm.hazards.path import HazardFit, fit_hazards, number_of_blocks
from privinf.glm.hazards.results import CellFacts, PHRegResults, hazard_results
from privinf.glm.hazards.rows import HazardRows, fit_text
from privinf.glm.hazards.sums import HazardSums
from privinf.glm.plan import FitRequest, plan_fit
from privinf.glm.results import FitDescription
from privinf.glm.running import TOO_FEW_ROWS, FitRun, prepare_fit
from privinf.typing import Trust

MODEL = "PHReg"
METHOD = "Newton's method in whitened coordinates, scores up to a stop"
TOO_SMALL = (
    "no intervals are possible for {} coefficients, {} of them for the baseline, with {} records at this "
    "budget: records * mu is {:.0f}, and must be at least {:.0f}. Nothing was charged. Use more records, a "
    "larger budget or fewer columns"
)
NO_QUERY = "PHReg has no query that a database answers"


def run_hazards(
    hazards: HazardRows,
    trust: Trust,
    ledger: Ledger,
    request: FitRequest,
    spending: Mapping[str, Any],
    most_noise: float,
) -> PHRegResults:
    """Check a request, release the sums, and return the results; errors as in `PHReg.fit`."""
    _check_size(hazards, request, spending)
    with ExitStack() as stack:
        stack.enter_context(charged_for(f"{MODEL}: {fit_text(hazards.rows.design.user, hazards.status)}"))
        fit = prepare_fit(hazards.rows, trust, ledger, MODEL, request, spending, stack)
        queries = _sums_of(hazards, fit)
        outcome = fit_hazards(queries, most_noise=most_noise)
        counts = None
        if fit.outside is not None and outcome.step is not None:
            counts = fit.outside.release(fit.sums)
        if queries.complete is not None:
            fit = fit.counted(queries.complete)
        rows = replace(hazards.reported(), complete=queries.complete)
        path = Trajectory(params=outcome.path[-1], path=outcome.path, length=len(outcome.path) - 1, rounds=[])
        means, squares, sd = outcome.gram.mean[0, 1:], np.diag(outcome.gram.mean)[1:], outcome.gram.sd
        ends = ends_of(rows, means, sd / 2.0**0.5)
        description = fit.describe(METHOD, path, counts, ends, leverages(rows, means, squares, sd))
        description = replace(description, options=_options(hazards, outcome, description))
        events = events_of(outcome.baseline.cells)[0]
        measured = CellFacts(edges=hazards.edges, events=events, negative=queries.negative)
        return hazard_results(rows, outcome, description, measured, hazards.status)


def _check_size(hazards: HazardRows, request: FitRequest, spending: Mapping[str, Any]) -> None:
    """Raise NotAvailableError where rows or budget are too few; nothing is charged."""
    level = {name: value for name, value in spending.items() if name != "rng"}
    rows = hazards.rows
    mu = plan_fit(level, request, rows.reported()).mu
    blocks = number_of_blocks(rows.total, mu)
    P = len(hazards.columns) + blocks
    if rows.total < P:
        raise AlignmentError(TOO_FEW_ROWS.format(rows.total, P))
    if not enough(rows.total, mu, P):
        least = LEAST_SIZE * P**1.5
        raise NotAvailableError(TOO_SMALL.format(P, blocks, rows.total, rows.total * mu, least))
    if isinstance(rows.federation, TableByPasses):
        rows.federation.check_fit(NO_QUERY)


def _sums_of(hazards: HazardRows, fit: FitRun) -> HazardSums:
    rows = hazards.rows
    return HazardSums(
        server=fit.sums.server,
        units=rows.units,
        n=rows.total,
        width=rows.p,
        columns=hazards.columns,
        constant=hazards.constant,
        status=hazards.event,
        largest=hazards.largest,
        edges=hazards.edges,
        mu=fit.mu,
        traffic=fit.sums.traffic,
        dropping=rows.missing == "drop",
    )


def _options(hazards: HazardRows, outcome: HazardFit, description: FitDescription) -> dict[str, str]:
    """Return the lines of a summary: those of every fit, without the family, and the model's own."""
    options = {name: value for name, value in description.options.items() if name != "Family"}
    events = events_of(outcome.baseline.cells)[0]
    return options | {"Status": hazards.described_status, "Events": f"about {max(events, 0.0):,.0f}"}
