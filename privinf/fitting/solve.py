"""From an estimating equation to a result: solve in scaled units, report in the user's."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from privinf.accounting import Ledger, PrivacyReport
from privinf.errors import ArgumentError
from privinf.inference.covariances import Covariance
from privinf.inference.estimate import Estimate
from privinf.inference.identifiability import check_full_rank
from privinf.inference.linear_scores import LeastSquaresScores, LinearScores
from privinf.inference.noisy_variance import HIDDEN_SDS, is_hidden
from privinf.inference.score_test import identification
from privinf.inference.solution import solve
from privinf.releases import Release
from privinf.results import Results
from privinf.results.context import Context
from privinf.results.notes import CLIPPED, CLIPPED_COLUMNS, CLIPPED_RESPONSE, Note, must_read
from privinf.schema import Design
from privinf.typing import Floats, ReportSubject, Stabilization, Target
from privinf.validation import check_choice, check_number, check_positive

ResultsT = TypeVar("ResultsT", bound=Results)

LAST_ITERATE = (
    "the last iterate has an unknown optimization error and therefore no valid interval: "
    "pass estimator='client-average', which uses the same messages"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """How to solve the equation.

    Attributes
    ----------
    stabilization : {"none", "fuller", "ridge"}
    ridge : float
        gamma, scaled units; > 0 means "ridge".
    fuller : float or None
        Fuller's constant; None: d + 4.
    target : {"population", "sample", "penalized"}
    design : Design or None
        Columns of the equation, where they are not those of the release.
    """

    stabilization: Stabilization = "none"
    ridge: float = 0.0
    fuller: float | None = None
    target: Target = "population"
    design: Design | None = None

    def __post_init__(self) -> None:
        check_choice(self.stabilization, Stabilization, "stabilization")
        check_choice(self.target, Target, "target")
        object.__setattr__(self, "ridge", check_number(self.ridge, "ridge", low=0.0))
        if self.ridge > 0.0 and self.stabilization == "fuller":
            raise ArgumentError("ridge= and stabilization='fuller' are alternatives: choose one")
        if self.ridge == 0.0 and self.stabilization == "ridge":
            raise ArgumentError("stabilization='ridge' needs ridge > 0")
        if self.ridge > 0.0:
            object.__setattr__(self, "stabilization", "ridge")
        if self.fuller is not None:
            object.__setattr__(self, "fuller", check_positive(self.fuller, "fuller"))
            if self.stabilization != "fuller":
                raise ArgumentError("fuller= can only be combined with stabilization='fuller'")
        if self.target == "penalized" and self.ridge == 0.0:
            raise ArgumentError("target='penalized' needs ridge > 0")

    def described(self) -> dict[str, str]:
        """Return the lines of a summary that name a stabilisation."""
        if self.stabilization == "fuller":
            constant = "d + 4" if self.fuller is None else f"{self.fuller:g}"
            return {"Stabilization": f"Fuller, a = {constant}"}
        if self.stabilization == "ridge":
            return {"Stabilization": f"ridge {self.ridge:g} (scaled units)"}
        return {}

    def notes(self) -> tuple[Note, ...]:
        """Return the footnotes of a summary that follow from the options."""
        if self.stabilization != "ridge":
            return ()
        if self.target == "penalized":
            return must_read("Coefficients, intervals and tests are for the ridge-penalized target.")
        return must_read(
            "Coefficients are biased ridge estimates; standard errors, intervals and tests are for the "
            "coefficients without the penalty (pass target='penalized' for intervals and tests of the "
            "penalized coefficients).",
        )


@dataclass(frozen=True, slots=True)
class Reported:
    """Coefficients that are reported without intervals, and why there are none.

    Attributes
    ----------
    params : ndarray, shape (p,)
        Scaled units.
    reason : str
    """

    params: Floats
    reason: str


def build_results(
    kind: type[ResultsT],
    system: LeastSquaresScores,
    *,
    release: Release,
    ledger: Ledger | None,
    reread: bool,
    model: str,
    method: str,
    fit: Fit,
    options: Mapping[str, str] | None = None,
    settings: Mapping[str, Any] | None = None,
    reported: Reported | None = None,
    sampling_system: LinearScores | None = None,
    notes: tuple[str | Note, ...] = (),
) -> ResultsT:
    """Solve `system` and wrap the estimate, in the user's units, with everything a result shows.

    Parameters
    ----------
    kind : type of Results
    system : LeastSquaresScores
        In scaled units, columns in the design's order.
    reread : bool
        Whether the release was made before this fit, which then spends nothing itself.
    settings : mapping
        Arguments by which the model builds `system` from `release` again (after loading).
    reported : Reported, optional
        Coefficients to report instead of the solution, without intervals.
    sampling_system : LinearScores, optional
        Equation with independent rows from which to estimate the error without noise, where `system` has
        several rows a client.
    notes : tuple of str or Note
        More notes of the summary.

    Notes
    -----
    **Privacy.** Post-processing of the release.
    """
    design = release.design if fit.design is None else fit.design
    exact = bool(release.noise_model.get("noise_free", False))
    if exact and fit.stabilization == "none":
        check_full_rank(system.A, design.names)
    solution = solve(
        system, stabilization=fit.stabilization, ridge=fit.ridge, fuller_a=fit.fuller, target=fit.target
    )
    transform, shift = design.to_user
    if reported is None:
        estimate = solution.estimate(design.names)
    else:
        estimate = Estimate(
            params=reported.params,
            cov=None,
            names=design.names,
            nobs=release.nobs,
            df=solution.df,
            weak_reason=reported.reason,
        )
    point = None
    if reported is None and not np.array_equal(solution.point, solution.params):
        point = transform @ solution.point + shift
    sampling = (solution if sampling_system is None else solve(sampling_system)).sampling_cov
    measures = fit_measures(system, solution.params, design.constant_direction).rescaled(design.y_scale**2)
    clipped = () if exact else clipped_target(release.design)
    context = Context(
        report=release_report(release, ledger, reread=reread),
        design=design,
        release=release,
        system=system,
        sampling_cov=None if sampling is None or reported is not None else transform @ sampling @ transform.T,
        identification=identification(system),
        target=fit.target,
        model=model,
        method=method,
        options={**(options or {}), **fit.described()},
        settings={**(settings or {}), "measure_noise": dict(measures.noise)},
        rsquared=measures.rsquared,
        scale=measures.scale,
        notes=(*clipped, *fit.notes(), *notes),
        point=point,
    )
    return kind(estimate.transformed(transform, shift=shift, names=design.names), context)


def release_report(release: Release, ledger: Ledger | None = None, *, reread: bool) -> PrivacyReport:
    """Return the privacy report of a fit from a release.

    Parameters
    ----------
    release : Release
    ledger : Ledger, optional
        The fit's account.
    reread : bool
        Whether the release was made before this fit, which then spends nothing itself.
    """
    subject: ReportSubject = "earlier release" if reread else "fit"
    return PrivacyReport.from_entries(
        release.entries, ledger=ledger, delta=release.noise_model["delta"], subject=subject, nobs=release.nobs
    )


def clipped_target(design: Design) -> tuple[Note, ...]:
    """Return a note on clipping, if anything is clipped."""
    if design.bounded and not design.response_public:
        return (Note(CLIPPED, "header"),)
    if design.bounded:
        ends = np.concatenate([design.low[design.private], design.high[design.private]])
        box = bool(np.isfinite(ends).all())
        wording = (
            "clipped to their public bounds"
            if box
            else "with rows longer than the public radius shortened to it"
        )
        return (Note(CLIPPED_COLUMNS.format(wording, design.response), "header"),)
    return () if design.response_public else (Note(CLIPPED_RESPONSE, "header"),)


def with_covariance(result: ResultsT, covariance: type[Covariance]) -> ResultsT:
    """Return a result with the requested covariance, computed from the one of its release."""
    context = result._context
    estimate, sampling = covariance.finish(result.estimate, context.sampling_cov)
    if estimate is result.estimate and sampling is context.sampling_cov:
        return result
    return result._with(estimate, replace(context, sampling_cov=sampling))


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuresOfFit:
    """R-squared and the residual variance, None where noise hides them, and the sds of their noise.

    Attributes
    ----------
    rsquared, scale : float or None
    noise : mapping of str to float
        ``scale_noise`` and ``rsquared_noise``.
    """

    rsquared: float | None
    scale: float | None
    noise: Mapping[str, float]

    def rescaled(self, factor: float) -> MeasuresOfFit:
        """Return the same with variances in other units."""
        noise = {**self.noise, "scale_noise": self.noise["scale_noise"] * factor}
        return MeasuresOfFit(
            rsquared=self.rsquared, scale=None if self.scale is None else self.scale * factor, noise=noise
        )


def fit_measures(system: LeastSquaresScores, params: Floats, constant: Floats | None) -> MeasuresOfFit:
    """Return R^2 and the residual variance, from corrected moments, scaled units.

    R^2 is centered where there is a constant x'v = 1, as statsmodels has it; the residual variance has
    divisor n - p where the system has a `df_resid`, else n. R^2 is None outside 0 to 1. Both are None where
    the residual variance is below two sds of its noise (`is_hidden`), exceeds the variance of the response
    by more than their noise allows, or has no minimum since the noise exceeds the signal of the columns. In
    the last two cases the sd of its noise is such that two sds are the largest possible residual variance.
    """
    freed = system.n / max(system.n - len(params), 1) if math.isfinite(system.df_resid) else 1.0
    (residual, total), cov = system.squares_with_noise(params, constant)
    sd, total_sd = (math.sqrt(max(float(variance), 0.0)) for variance in np.diag(cov))
    limit = max(float(total), 0.0) + HIDDEN_SDS * total_sd
    if sd > 0.0 and (math.isinf(sd) or residual > limit + HIDDEN_SDS * sd):
        residual, sd = 0.0, limit / HIDDEN_SDS
        cov = np.array([[sd**2, 0.0], [0.0, total_sd**2]])
    rsquared = 1.0 - float(residual / total) if total > 0.0 else -1.0
    hidden = is_hidden(float(residual), sd)
    slopes = np.array([-1.0, 1.0 - rsquared]) / total if total > 0.0 else np.zeros(2)
    variance = max(float(slopes @ cov @ slopes), 0.0)
    return MeasuresOfFit(
        rsquared=None if hidden or not 0.0 <= rsquared <= 1.0 else rsquared,
        scale=None if hidden else float(residual) * freed,
        noise={"scale_noise": sd * freed, "rsquared_noise": math.sqrt(variance)},
    )
