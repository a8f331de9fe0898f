"""Results of a fit where sites have coefficients of their own, by site."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from privinf.accounting import PrivacyReport, rho_to_epsilon
from privinf.accounting.released import appended
from privinf.errors import ArgumentError
from privinf.inference.estimate import upper_quantile
from privinf.lasso.debiasing import HIDDEN_SLOPES
from privinf.lasso.heterogeneous.fit import PlannedFits
from privinf.lasso.results import DIVERGED_NOTE, LassoResults
from privinf.lasso.results.building import THROUGH_MIDDLE, FitReport, fit_settings, sparse_settings
from privinf.lasso.rows import LassoRows, SparseUnits
from privinf.notebook import html_frame
from privinf.results.export import PortableParts
from privinf.results.notes import Note, must_read, sentence
from privinf.results.summary import large_delta

# Probability of a false report, over all sites, that a site's design differs.
FALSE_ALARM = 0.05


def results_by_site(
    planned: PlannedFits,
    units: SparseUnits,
    targets: Sequence[int],
    rows: LassoRows,
    report: PrivacyReport,
    epsilon: float,
) -> MachineResults:
    """Return results by site, in the user's units; `epsilon` is the requested one."""
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
    differs = pd.Series({rows.labels[site]: fits.differs[site] for site in rows.rows}, name="differs")
    series = pd.Series(shared, list(names), name="shared_params")
    return MachineResults(
        labels=tuple(results),
        shared_params=series,
        privacy=report,
        interval_epsilon=alone,
        results=results,
        differs=differs,
    )


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
    notes += [] if planned.plan.means else [THROUGH_MIDDLE]
    if planned.plan.accounting == "per-interval":
        notes.append(
            "The noise is calibrated for each interval separately; the privacy guarantee for all intervals "
            "together is the joint epsilon."
        )
    score = planned.fits.differs[site]
    sites = len(planned.fits.differs)
    if planned.plan.precision == "pooled" and score > upper_quantile(FALSE_ALARM / (3.0 * sites)):
        notes.append(
            f"The columns of site {label} seem to differ from those of the other sites (z = "
            f"{score:.1f}). Its intervals use nodewise regressions of all sites; with "
            "precision='machine' they use those of the site itself."
        )
    return must_read(*notes)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class MachineResults(PortableParts):
    """Results of a fit in which every site has a part of its own.

    Attributes
    ----------
    labels : tuple
        Sites.
    shared_params : Series of p
        The part that all sites share, user units; without intervals.
    privacy : PrivacyReport
        Joint cost of all releases, for either calibration of the noise.
    interval_epsilon : float
        Cost of the releases behind one interval: the shared part, the site's part, its nodewise regression,
        its score.
    results : mapping
        `LassoResults` by label.
    differs : Series, optional
        Difference of every site's slopes from the others', as a standard normal number: a large one shows
        that its columns have another distribution, and that pooled nodewise regressions do not fit it.

    Notes
    -----
    **Privacy.** Post-processing of releases.
    """

    labels: tuple[Any, ...]
    shared_params: pd.Series[float]
    privacy: PrivacyReport
    interval_epsilon: float
    results: Mapping[Any, LassoResults]
    differs: pd.Series[float] | None = None

    def machine(self, label: object) -> LassoResults:
        """Return the results of one site, by its label (ArgumentError if there is none)."""
        if label not in self.results:
            raise ArgumentError(f"unknown site {label}; the sites are {', '.join(map(repr, self.labels))}")
        return self.results[label]

    def to_frame(self, alpha: float = 0.05) -> pd.DataFrame:
        """Return one line per site: rows, columns selected, scale of residuals, lengths of intervals."""
        lines = []
        for label in self.labels:
            result = self.results[label]
            length = np.array([math.inf])  # the noise hides all targets
            if result.estimate.cov is not None:
                limits = result.conf_int(alpha).to_numpy()
                length = limits[:, 1] - limits[:, 0]
            lines.append(
                [int(result.nobs), len(result.selected), result.residual_scale, length.min(), length.max()]
            )
        columns = ["rows", "selected", "residual scale", "narrowest", "widest"]
        table = pd.DataFrame(lines, pd.Index(self.labels, name="site"), columns)
        return table if self.differs is None else table.assign(**{"differs (z)": self.differs.to_numpy()})

    def summary(self, alpha: float = 0.05) -> str:
        """Return a table of the sites, with the joint epsilon and that of one interval."""
        table = self.to_frame(alpha).to_string(float_format=lambda value: f"{value:.4g}")
        return "\n".join([*self._heading(alpha), table, *self._notes])

    def _heading(self, alpha: float) -> list[str]:
        shared = ", ".join(self.shared_params.index[self.shared_params != 0.0])
        return [
            f"Debiased lasso, {len(self.labels)} sites with coefficients of their own",
            f"Joint epsilon {self.privacy.epsilon():.4g} at delta {self.privacy.default_delta:g}; "
            f"of one interval alone {self.interval_epsilon:.4g}{appended(self.privacy.stamp)}",
            f"Shared part: {shared}",
            f"Lengths of {1.0 - alpha:.0%} intervals, by site:",
        ]

    @property
    def _notes(self) -> list[str]:
        total = sum(result._context.table_rows(int(result.nobs)) for result in self.results.values())
        notes = {note for result in self.results.values() for note in result.notes}
        return [*(sentence(text) for text in large_delta(self.privacy, total)), *sorted(notes)]

    def _repr_html_(self) -> str:
        return html_frame(self.to_frame(), "; ".join(self._heading(0.05)), self._notes)

    def __repr__(self) -> str:
        joint = f"joint epsilon {self.privacy.epsilon():.4g} at delta {self.privacy.default_delta:g}"
        alone = f"{self.interval_epsilon:.4g} for one interval{appended(self.privacy.stamp)}"
        return f"<MachineResults of {len(self.labels)} sites: {joint}, {alone}>"
