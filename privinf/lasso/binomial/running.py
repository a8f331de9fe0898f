"""Debiased sparse logistic regression: budget shares, fit and results."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from privinf.accounting import ConcentratedLoss, Ledger, PrivacyReport
from privinf.federation import TrustedServer
from privinf.inference.estimate import Estimate, VarianceTerms, upper_quantile
from privinf.lasso.binomial.debiasing import DebiasedLogistic, affordable_neighbors, debias_logistic
from privinf.lasso.binomial.fit import PEELS, SPARE, LogisticFit, TooRareResponse, check_room, sparse_logistic
from privinf.lasso.diagnostics import MissedColumnTest
from privinf.lasso.nodewise import detectable_correlation
from privinf.lasso.omitted import (
    LogisticSearch,
    OmittedCandidates,
    SparseColumns,
    TargetDetection,
    screen_omitted,
)
from privinf.lasso.plan import (
    FALSE_SELECTION_RATE,
    LassoOptions,
    LassoPlan,
    LogisticShares,
    SparseFitPrices,
    plan_of,
)
from privinf.lasso.radii import Spread
from privinf.lasso.results import (
    NONE_SELECTED,
    SELECTED_NOTE,
    LassoResults,
    fit_settings,
    listed,
    results_without_intervals,
    sparse_settings,
)
from privinf.lasso.results.sparse import LassoSettings
from privinf.lasso.rows import LassoRows, check_price, server_of
from privinf.lasso.sums import HiddenByNoise, LogisticSums, SparseSums
from privinf.results.context import Context
from privinf.results.notes import Note, must_read, target_notes
from privinf.typing import RngLike

METHOD = "debiased sparse logistic regression"
RATE_ALONE = (
    "{}. Only the rate of the response was released and charged; no coefficient{} was "
    "estimated, and the sparse fit has only a constant"
)
EQUATION = """\
cov = L [ meat / n + s_S^2 I + (s_H^2 / 2) (|D|^2 I + D D') ] L' + diag(column)
sampling: meat / n; meat is the shrunk mean outer product of the weighted scores, n the number of records
score noise: s_S^2 I; s_S is the standard deviation of the noise in the score, I the identity matrix
Hessian noise: (s_H^2 / 2) (|D|^2 I + D D'); s_H is that standard deviation for the Hessian, D the last step
precision columns: column_j = E (w_j' Z d)^2, E is the mean over the noise; w_j is column j of the matrix L
(the estimated inverse Hessian), Z the noise of its Gram matrix, d the error of the initial estimate"""
DOUBTFUL = (
    "The intervals are not reliable, because in the sparse logistic fit, {}. Keep fewer columns, pass fewer "
    "targets, or increase the budget."
)
WEIGHTED_NOTE = (
    "Outlying rows have less weight: if the logistic model with these columns is misspecified, coefficients "
    "can differ from maximum likelihood by a few standard errors; add squares and products that matter."
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
    server = server_of(rows, ledger, rng)
    budget = LogisticShares.from_mapping(options.shares).sparse_fit(plan.rho)
    blocks = PEELS if options.iterations is None else options.iterations
    selections = min(plan.sparsity + SPARE, len(rows.names) - (rows.constant is not None))
    columns = selections + len(plan.targets or ())
    check_room(server.nobs, columns, budget, min(blocks, selections))
    price = ConcentratedLoss(plan.rho)
    ledger.check(price)
    check_price(server, len(rows.names), plan.rho)
    with server.reserving([price]):
        return _fitted(rows, server, plan, options, budget, blocks)


def _fitted(
    rows: LassoRows,
    server: TrustedServer,
    plan: LassoPlan,
    options: LassoOptions,
    budget: SparseFitPrices,
    blocks: int,
) -> LassoResults:
    """Return the fit whose price is reserved."""
    ledger = server.ledger
    prices = LogisticShares.from_mapping(options.shares).debiasing(plan.rho)
    before = len(ledger.entries)
    excluded = () if rows.constant is None else (rows.constant,)
    sums = LogisticSums(SparseSums(server=server, units=rows.units(), n=server.nobs))
    threshold = upper_quantile(FALSE_SELECTION_RATE / 2.0 / len(rows.names)) if plan.automatic else 0.0

    def spent() -> PrivacyReport:
        return PrivacyReport.from_entries(ledger.entries[before:], ledger=ledger, delta=plan.delta)

    try:
        fit = sparse_logistic(
            sums,
            plan.sparsity,
            budget,
            clip=plan.clip,
            blocks=blocks,
            threshold=threshold,
            targets=plan.targets or (),
            excluded=excluded,
        )
    except TooRareResponse as rare:
        return _rate_alone(rows, plan, sums, rare, spent())
    search = LogisticSearch(
        sums=sums.sparse,
        test_price=prices.candidate,
        scores_price=prices.score,
        keep=plan.automatic,
        excluded=excluded,
        clip=plan.clip,
    )
    fit, candidates = screen_omitted(search, fit)
    if candidates is not None and candidates.further:
        prices = replace(prices, score=prices.score - candidates.further)
    targets = (
        [fit.point.support[i] for i in fit.kept_positions] if plan.targets is None else list(plan.targets)
    )
    try:
        if not targets:
            raise HiddenByNoise(NONE_SELECTED)
        count = options.precision_sparsity
        if count is None:
            count = affordable_neighbors(fit, len(targets), sums.n, prices.gram)
        debiased = debias_logistic(sums, fit, targets, prices, neighbors=count, excluded=excluded)
    except HiddenByNoise as hidden:
        return _without_intervals(rows, plan, sums, fit, targets, candidates, spent(), str(hidden))
    report = spent()
    price = prices.neighbors / len(targets)
    correlation = detectable_correlation(sums.n, len(rows.names), count, price, 1.0)
    missed = (
        None
        if candidates is None
        else _missed(rows, sums, fit, targets, candidates, debiased, correlation, plan.automatic)
    )
    return _results(rows, plan, sums, fit, targets, debiased, missed, report)


def _rate_alone(
    rows: LassoRows,
    plan: LassoPlan,
    sums: LogisticSums,
    rare: TooRareResponse,
    report: PrivacyReport,
) -> LassoResults:
    """Return the results of a fit that ended after the rate: a constant, and no estimate of any slope."""
    units = sums.sparse.units
    constant = rows.constant
    units.intercept = Spread(rare.rate).level
    support, values = ([], np.empty(0)) if constant is None else ([constant], np.zeros(1))
    sparse = sparse_settings(rows.names, units, support, values, rare.rate, constant)
    settings: LassoSettings = fit_settings(rows, sparse, diverged=False) | {"family": "binomial"}
    hidden = [rows.names[j] for j in plan.targets or ()]
    settings["hidden"] = hidden
    return results_without_intervals(
        rows,
        settings,
        report,
        {},
        RATE_ALONE.format(rare, f" of {listed(hidden)}" if hidden else ""),
        nobs=sums.n,
        method=METHOD,
        options=_options(rows, plan, support, rare.rate),
    )


def _without_intervals(
    rows: LassoRows,
    plan: LassoPlan,
    sums: LogisticSums,
    fit: LogisticFit,
    targets: Sequence[int],
    candidates: OmittedCandidates | None,
    report: PrivacyReport,
    reason: str,
) -> LassoResults:
    """Return what a fit bought whose intervals the noise hides: the sparse fit, and the reason."""
    settings, doubts = _sparse_fit(rows, sums, fit, fit.signs)
    notes = list(must_read(*doubts))
    columns = SparseColumns(kept=fit.columns, ratios=fit.ratios(sums.n), automatic=plan.automatic)
    missed = None if candidates is None else candidates.test(rows, columns)
    if missed is not None:
        settings["missed"] = missed.settings()
        notes.extend(missed.ranked_notes)
    values = fit.point.on(targets) / sums.sparse.units.scale[targets] if targets else ()
    return results_without_intervals(
        rows,
        settings,
        report,
        dict(zip(targets, map(float, values), strict=True)),
        reason,
        nobs=sums.n,
        method=METHOD,
        options=_options(rows, plan, settings["sparse"]["positions"], fit.spread.rate),
        notes=notes,
    )


def _options(rows: LassoRows, plan: LassoPlan, support: Sequence[int], rate: float) -> dict[str, str]:
    """Return the header lines of the summary."""
    return {
        "Family": "binomial",
        "Sparsity": plan.sparsity_text(list(support), rows.constant),
        "Sites": str(len(rows.rows)),
        "Rate": f"{rate:.4g}",
    }


def _sparse_fit(
    rows: LassoRows, sums: LogisticSums, fit: LogisticFit, signs: Sequence[str]
) -> tuple[LassoSettings, list[str]]:
    """Return the settings of the sparse fit, and the notes of it: `signs` speak against the results."""
    units = sums.sparse.units
    support = fit.columns
    values = fit.point.beta[fit.kept_positions] / units.scale[support]
    units.intercept = fit.intercept_of_selected
    if rows.constant is not None:
        support = [*support, rows.constant]
        values = np.append(values, 0.0)
    sparse = sparse_settings(rows.names, units, support, values, fit.spread.rate, rows.constant)
    settings: LassoSettings = fit_settings(rows, sparse, diverged=False) | {"family": "binomial"}
    if signs:
        settings["doubt"] = DOUBTFUL.format(", and ".join(signs))
    return settings, [settings["doubt"]] if signs else []


def _missed(
    rows: LassoRows,
    sums: LogisticSums,
    fit: LogisticFit,
    chosen: list[int],
    candidates: OmittedCandidates,
    debiased: DebiasedLogistic,
    correlation: float,
    automatic: bool,
) -> MissedColumnTest | None:
    """Return the test that no column was missed."""
    sampling = np.diag(debiased.sampling)
    ratios = fit.ratios(sums.n)
    for j in chosen:
        ratios.pop(j, None)
    detection = TargetDetection(
        detection_limit=candidates.detection_limit,
        correlation=correlation,
        sampling=np.sqrt(sampling),
        errors=np.sqrt(sampling + np.diag(debiased.privacy)),
        unit=sums.sparse.units.scale[chosen],
    )
    return candidates.test(
        rows, SparseColumns(kept=fit.columns, ratios=ratios, automatic=automatic), detection
    )


def _results(
    rows: LassoRows,
    plan: LassoPlan,
    sums: LogisticSums,
    fit: LogisticFit,
    chosen: list[int],
    debiased: DebiasedLogistic,
    missed: MissedColumnTest | None,
    report: PrivacyReport,
) -> LassoResults:
    """Return the results in the user's units."""
    names = rows.names
    unit = sums.sparse.units.scale[chosen]
    back = np.outer(unit, unit)
    sampling = debiased.sampling / back
    noise = debiased.privacy / back
    estimate = Estimate(
        params=debiased.params / unit,
        cov=sampling + noise,
        names=tuple(names[j] for j in chosen),
        nobs=sums.n,
        noise_cov=noise,
        cov_type="HC0",
        terms=VarianceTerms.dividing(
            sampling + noise, EQUATION, {name: term / back for name, term in debiased.noise.items()}
        ),
    )
    settings, doubts = _sparse_fit(rows, sums, fit, [*fit.signs, *debiased.signs])
    notes = list(must_read(*[SELECTED_NOTE] * (plan.targets is None), *doubts))
    notes += [Note(WEIGHTED_NOTE, "table")] * math.isfinite(plan.rho)
    if missed is not None:
        settings["missed"] = missed.settings()
        notes.extend(missed.ranked_notes)
    return LassoResults(
        estimate,
        Context(
            report=report,
            sampling_cov=sampling,
            model="DebiasedLasso",
            method=METHOD,
            options=_options(rows, plan, settings["sparse"]["positions"], fit.spread.rate),
            settings=settings,
            notes=(*target_notes(report), *notes),
        ),
    )
