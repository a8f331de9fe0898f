"""Results of a fit by site from its releases: those of the sites, and the result of all of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from privinf.accounting import PrivacyReport, rho_to_epsilon
from privinf.inference.estimate import upper_quantile
from privinf.lasso.debiasing import HIDDEN_SLOPES
from privinf.lasso.heterogeneous.fit import PlannedFits
from privinf.lasso.heterogeneous.logistic import LogisticSite, LogisticSitePlan, shared_coefficients
from privinf.lasso.heterogeneous.results import SiteParts, SiteResults
from privinf.lasso.logistic import LogisticFit
from privinf.lasso.results import DIVERGED_NOTE, LassoResults
from privinf.lasso.results.building import (
    LOGISTIC_METHOD,
    THROUGH_MIDDLE,
    FitReport,
    FittedTargets,
    fit_settings,
    logistic_results,
    rate_results,
    sparse_settings,
)
from privinf.lasso.rows import LassoRows, SparseUnits
from privinf.results.notes import Note, must_read

# Probability of a false report, over all sites, that a site's design differs.
FALSE_ALARM = 0.05
# Differences of the means of columns, root mean square over sites, from which coverage can suffer. They are
# seen along nodewise regressions, which avoid them: differences of 0.5 standard deviations are seen as 0.23,
# of 0.3 as 0.21, of 0.2 as 0.17 (six sites, 60 columns).
LARGE_SPREAD = 0.19
# The same where the means of the columns of each site are released themselves: differences of 0.5 are seen as
# 0.43, because sizes of columns include them, and coverage was 0.97; 1 is seen as 0.7.
LARGE_OWN_SPREAD = 0.5


def results_by_site(
    planned: PlannedFits,
    units: SparseUnits,
    targets: Sequence[int],
    rows: LassoRows,
    report: PrivacyReport,
    epsilon: float,
) -> SiteResults:
    """Return the results of all sites, in the user's units; `epsilon` is the requested one."""
    plan = planned.plan
    fits = planned.fits
    names = rows.names
    shared = np.zeros(len(names))
    shared[fits.shared] = fits.shared_beta / units.scale[fits.shared]
    alone = epsilon
    if plan.accounting == "joint" and math.isfinite(plan.interval):
        alone = rho_to_epsilon(plan.interval, report.default_delta)
    options = {
        "Accounting": plan.accounting.replace("-", " "),
        "Epsilon of one interval": f"{alone:.4g}",
        "Joint epsilon": f"{report.epsilon():.4g}",
        "Sites": str(len(rows.rows)),
        "Precision columns": plan.precision,
        "Score target": "robust",
    }
    results = {
        rows.labels[site]: _site_results(planned, site, rows, units, targets, report, options)
        for site in rows.rows
    }
    unit = units.scale[list(targets)]
    parts = SiteParts(
        results=results,
        targets=[names[j] for j in targets],
        between={name: term / np.square(unit)[:, None, None] for name, term in fits.between.items()},
        shared=pd.Series(shared, list(names), name="shared_params"),
        differs=[fits.differs[site] for site in rows.rows],
        interval_epsilon=alone,
    )
    return parts.joined()


def _site_results(
    planned: PlannedFits,
    site: str,
    rows: LassoRows,
    units: SparseUnits,
    targets: Sequence[int],
    report: PrivacyReport,
    options: Mapping[str, str],
) -> LassoResults:
    fits = planned.fits
    names = rows.names
    label = rows.labels[site]
    fit = fits.fits[site]
    debiased = fits.debiased[site]
    target_columns = list(fits.targets[site])
    selected_columns = [fit.support[i] for i in fit.kept_positions]
    values = np.array([fit.beta[i] for i in fit.kept_positions]) / units.scale[selected_columns]
    complete = planned.complete.get(site)
    sparse_part = sparse_settings(names, units, selected_columns, values, fit.scale)
    settings = fit_settings(rows, sparse_part, fit.diverged, complete)
    if hidden := [names[j] for j in targets if j not in set(target_columns)]:
        settings["hidden"] = hidden
    described = FitReport(
        rows=rows,
        report=report,
        nobs=rows.rows[site] if complete is None else complete.rows,
        method=f"debiased lasso, site {label}",
        options=options,
        settings=settings,
        notes=_notes(planned, site, label),
    )
    if debiased is None:
        sparse = dict(zip(fit.support, fit.beta, strict=True))
        values_of_targets = {j: float(sparse.get(j, 0.0) / units.scale[j]) for j in targets}
        return described.without_intervals(values_of_targets, HIDDEN_SLOPES)
    return described.with_targets(target_columns, debiased.in_units(units.scale[target_columns]))


def _notes(planned: PlannedFits, site: str, label: Any) -> tuple[Note, ...]:
    notes = [DIVERGED_NOTE] if planned.fits.fits[site].diverged else []
    notes += [] if planned.plan.means.columns else [THROUGH_MIDDLE]
    if planned.plan.accounting == "per-interval":
        notes.append(
            "The noise is calibrated for each interval separately. The epsilon of one interval leaves out a "
            "part of the cost of releases that several intervals share. The privacy guarantee of the fit is "
            "the joint epsilon."
        )
    spreads = planned.fits.spreads
    typical = math.sqrt(sum(spread**2 for spread in spreads.values()) / len(spreads))
    own_precision = planned.plan.precision == "machine"
    if typical > (LARGE_OWN_SPREAD if own_precision else LARGE_SPREAD) and spreads[site] > 0.0:
        notes.append(
            f"The means of the columns of site {label} differ from the means of all sites, by about "
            f"{spreads[site]:.2f} standard deviations of a column or more. Its intervals may be too short. "
            "Subtract known means of each site from its columns."
        )
        return must_read(*notes)
    score = planned.fits.differs[site]
    sites = len(planned.fits.differs)
    if not own_precision and score > upper_quantile(FALSE_ALARM / (3.0 * sites)):
        notes.append(
            f"The columns of site {label} seem to differ from those of the other sites (z = "
            f"{score:.1f}). Its intervals use nodewise regressions of all sites; with "
            "precision='machine' they use those of the site itself."
        )
    return must_read(*notes)


def logistic_results_by_site(
    sites: Mapping[str, LogisticSite], site_plan: LogisticSitePlan, rows: LassoRows, report: PrivacyReport
) -> SiteResults:
    """Return the results of all sites of a logistic fit, in the user's units."""
    names = rows.names
    plan = site_plan.plan
    results = {
        rows.labels[name]: _logistic_site(site, site_plan, rows, rows.labels[name], report)
        for name, site in sites.items()
    }
    parts = SiteParts(
        results=results,
        targets=[names[j] for j in site_plan.targets],
        between={},
        shared=pd.Series(shared_coefficients(sites, len(names)), list(names), name="shared_params"),
        differs=None,
        interval_epsilon=rho_to_epsilon(plan.rho, report.default_delta)
        if math.isfinite(plan.rho)
        else math.inf,
        method=f"{LOGISTIC_METHOD} by site",
    )
    return parts.joined()


def _logistic_site(
    site: LogisticSite, site_plan: LogisticSitePlan, rows: LassoRows, label: Any, report: PrivacyReport
) -> LassoResults:
    plan = site_plan.plan
    targets = site_plan.targets
    method = f"{LOGISTIC_METHOD}, site {label}"
    if not isinstance(site.fit, LogisticFit):
        return rate_results(rows, plan, site.sums, site.fit, report, method=method, start=site.start)
    fitted = FittedTargets(
        fit=site.fit,
        targets=targets,
        debiased=site.debiased,
        debiased_targets=targets if site.debiased is not None else (),
        reason=site.reason,
    )
    return logistic_results(rows, plan, site.sums, fitted, report, method=method)
