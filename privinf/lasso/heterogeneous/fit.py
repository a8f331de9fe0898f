"""The debiased lasso where sites have coefficients of their own: request, fit, results by site."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pandas as pd

from privinf.accounting import ConcentratedLoss, PrivacyReport, rho_to_epsilon
from privinf.accounting.released import appended
from privinf.accounting.shares import check_shares, part_of_rho
from privinf.errors import ArgumentError
from privinf.federation.trusted import TrustedServer
from privinf.inference.estimate import Estimate, upper_quantile
from privinf.lasso.debiasing import HIDDEN_SLOPES
from privinf.lasso.fit import center_response
from privinf.lasso.heterogeneous.parts import (
    SIZES,
    RequestSize,
    SiteBudget,
    SiteFits,
    interval_columns,
    site_fits,
    site_shares,
)
from privinf.lasso.heterogeneous.scores import MEAN_SHARE
from privinf.lasso.heterogeneous.site_effects import gram_factor
from privinf.lasso.plan import RESPONSE_SHARE, Accounting
from privinf.lasso.precision import joint_covariance, score_correlation
from privinf.lasso.results import (
    DIVERGED_NOTE,
    THROUGH_MIDDLE,
    LassoResults,
    fit_settings,
    hidden_notes,
    results_without_intervals,
    sparse_settings,
)
from privinf.lasso.rows import LassoRows, SparseUnits
from privinf.lasso.sums import SparseSums
from privinf.notebook import html_frame
from privinf.results.context import Context
from privinf.results.export import PortableParts
from privinf.results.notes import Note, must_read, sentence, target_notes
from privinf.results.summary import large_delta
from privinf.typing import Precision
from privinf.validation import check_choice, check_count

# Probability of a false report, over all sites, that a site's design differs.
FALSE_ALARM = 0.05


def extra_selections(own_sparsity: int) -> tuple[int, int]:
    """Return how many extra columns are selected for the shared part and for own parts of this size."""
    return 1, max(2, own_sparsity // 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class SitePlan:
    """A checked request.

    Attributes
    ----------
    budget : SiteBudget
        Prices of one interval.
    shared, own_sparsity, neighbors : int
    joint : float
        Total price, zCDP.
    interval : float
        Price of one interval.
    accounting, precision : str
    means : float
        Of `joint`, for the means of columns and response.
    """

    budget: SiteBudget
    shared: int
    own_sparsity: int
    neighbors: int
    joint: float
    interval: float
    accounting: Accounting
    precision: Precision
    means: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class PlannedFits:
    """The engine's fits and the plan that they follow."""

    plan: SitePlan
    fits: SiteFits


def check_site_plan(
    rho: float,
    *,
    means: float = 0.0,
    sparsity: int,
    shared_sparsity: int | None,
    neighbors: int,
    shares: Mapping[str, float] | None,
    targets: int,
    p: int,
    rows: Sequence[int],
    accounting: Accounting = "per-interval",
    precision: Precision = "pooled",
) -> SitePlan:
    """Return the plan of a heterogeneous fit, or raise ArgumentError for an invalid request.

    Parameters
    ----------
    rho : float
        Of one interval, or of everything.
    means : float
        Of `rho`, for the means of columns and response.
    sparsity, shared_sparsity, neighbors : int
    shares : mapping, optional
        Of `rho`: all fields of `SiteBudget`. By default from the size of the request.
    targets, p : int
    rows : sequence of int
        Every site's.
    accounting : {"joint", "per-interval"}
    precision : {"pooled", "machine"}
        Nodewise regressions from all rows, which is right where the sites' columns have one distribution, or
        from each site's own.
    """
    check_choice(accounting, Accounting, "accounting")
    check_choice(precision, Precision, "precision")
    if shared_sparsity is None:
        raise ArgumentError(
            "heterogeneous=True requires shared_sparsity=, the number of columns (less than "
            "sparsity=) with effects that all sites share"
        )
    shared = check_count(shared_sparsity, "shared_sparsity")
    if shared >= sparsity:
        raise ArgumentError(f"shared_sparsity={shared} must be less than sparsity={sparsity}")
    own_sparsity = sparsity - shared
    full_rho = rho
    rho = rho if math.isinf(rho) else rho - means
    extra = extra_selections(own_sparsity)
    if sparsity + sum(extra) > p:
        smaller = range(shared + 1, sparsity)
        largest = max((s for s in smaller if s + sum(extra_selections(s - shared)) <= p), default=None)
        remedy = "a smaller shared_sparsity= or more columns" if largest is None else f"at most {largest}"
        raise ArgumentError(
            f"sparsity={sparsity} is too large for {p} columns, because this fit selects {sum(extra)} "
            f"columns more than sparsity= (fewer for a smaller sparsity=): pass {remedy}"
        )
    joint = accounting == "joint"
    own_precision = precision == "machine"
    if shares is None:
        size = RequestSize(
            total=sum(rows),
            rows=int(np.median(rows)),
            p=p,
            shared=shared + extra[0],
            own_sparsity=own_sparsity + extra[1],
            sparsity=sparsity,
            neighbors=neighbors,
        )
        parts: Mapping[str, float] = site_shares(
            rho if math.isfinite(rho) else 1.0,
            size,
            targets=targets,
            joint=joint,
            own_precision=own_precision,
        )
    else:
        parts = check_shares(shares, [field.name for field in fields(SiteBudget)])
    counts = factors(
        targets,
        p,
        interval_columns(shared, own_sparsity, extra, neighbors),
        joint=joint,
        own_precision=own_precision,
    )
    price = {name: share / (counts[name] if joint else 1.0) for name, share in parts.items()}
    total = sum(price[name] * counts[name] for name in price)
    return SitePlan(
        budget=SiteBudget(**{name: part_of_rho(rho, part_price) for name, part_price in price.items()}),
        shared=shared,
        own_sparsity=own_sparsity,
        neighbors=neighbors,
        joint=full_rho if joint else total * rho + means,
        interval=sum(price.values()) * rho + means,
        accounting=accounting,
        precision=precision,
        means=means,
    )


def factors(targets: int, p: int, columns: int, *, joint: bool, own_precision: bool) -> dict[str, float]:
    """Return the price of each part relative to one interval, which uses the given number of columns."""
    counts = dict.fromkeys((field.name for field in fields(SiteBudget)), 1.0)
    return counts | {
        "neighbours": float(targets),
        "slopes": MEAN_SHARE + (1.0 - MEAN_SHARE) * targets,
        "score": float(targets),
        "gram": gram_factor(p, columns, joint=joint, own_precision=own_precision),
        "scales": 1.0 - SIZES + SIZES * p / columns,
    }


def fit_sites(
    server: TrustedServer, units: SparseUnits, plan: SitePlan, targets: Sequence[int]
) -> PlannedFits:
    """Return the engine's fits over a trusted server's sites."""
    pooled = SparseSums(server=server, units=units, n=server.nobs)
    if plan.means > 0.0:
        pooled.center((1.0 - RESPONSE_SHARE) * plan.means)
        center_response(pooled, RESPONSE_SHARE * plan.means)
    sites = {
        name: SparseSums(server=server, units=units, n=rows, sites=(name,))
        for name, rows in server.rows.items()
    }
    fits = site_fits(
        pooled,
        sites,
        targets,
        plan.budget,
        shared_sparsity=plan.shared,
        own_sparsity=plan.own_sparsity,
        neighbors=plan.neighbors,
        extra=extra_selections(plan.own_sparsity),
        joint=plan.accounting == "joint",
        own_precision=plan.precision == "machine",
    )
    return PlannedFits(plan, fits)


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
    settings = fit_settings(
        rows, sparse_settings(names, units, selected_columns, values, fit.scale), fit.diverged
    )
    hidden = [names[j] for j in targets if j not in set(target_columns)]
    method = f"debiased lasso, site {label}"
    if debiased is None:
        sparse = dict(zip(fit.support, fit.beta, strict=True))
        return results_without_intervals(
            rows,
            settings,
            report,
            {j: float(sparse.get(j, 0.0) / units.scale[j]) for j in targets},
            HIDDEN_SLOPES,
            nobs=rows.rows[site],
            method=method,
            options=options,
            notes=_notes(planned, site, label),
        )
    if hidden:
        settings["hidden"] = hidden
    unit = units.scale[target_columns]
    back = np.outer(unit, unit)
    correlation = score_correlation(fits.columns[site], fits.grams[site])
    sampling = joint_covariance(correlation, debiased.sampling, np.zeros(len(unit)))
    return LassoResults(
        Estimate(
            params=debiased.params / unit,
            cov=(sampling + np.diag(debiased.privacy)) / back,
            names=tuple(names[j] for j in target_columns),
            nobs=rows.rows[site],
            noise_cov=np.diag(debiased.privacy / unit**2),
            cov_type="HC0",
            terms=debiased.terms(sampling + np.diag(debiased.privacy), unit),
        ),
        Context(
            report=report,
            sampling_cov=sampling / back,
            model="DebiasedLasso",
            method=method,
            options=dict(options),
            settings=settings,
            notes=(*target_notes(report), *hidden_notes(settings), *_notes(planned, site, label)),
        ),
    )


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


def joint_loss(plan: SitePlan) -> ConcentratedLoss:
    """Return the total price of the request."""
    return ConcentratedLoss(plan.joint)


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
        total = sum(result.nobs for result in self.results.values())
        notes = {note for result in self.results.values() for note in result.notes}
        return [*(sentence(text) for text in large_delta(self.privacy, total)), *sorted(notes)]

    def _repr_html_(self) -> str:
        return html_frame(self.to_frame(), "; ".join(self._heading(0.05)), self._notes)

    def __repr__(self) -> str:
        joint = f"joint epsilon {self.privacy.epsilon():.4g} at delta {self.privacy.default_delta:g}"
        alone = f"{self.interval_epsilon:.4g} for one interval{appended(self.privacy.stamp)}"
        return f"<MachineResults of {len(self.labels)} sites: {joint}, {alone}>"
