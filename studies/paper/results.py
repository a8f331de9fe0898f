"""Results of the paper's own algorithms, in the user's units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from privinf.accounting import PrivacyReport
from privinf.errors import NotAvailableError
from privinf.inference.estimate import Estimate, VarianceTerms
from privinf.lasso.debiasing import SCORE_NOISE
from privinf.lasso.heterogeneous.results import SiteParts, SiteResults
from privinf.lasso.precision import joint_covariance, score_correlation
from privinf.lasso.results import LassoResults
from privinf.lasso.results.building import sparse_settings
from privinf.lasso.rows import SparseUnits
from privinf.results.context import Context
from privinf.results.notes import must_read
from privinf.typing import Floats
from privinf.validation import check_fraction
from studies.paper.engine import PaperCoordinates, SparseVector, precision_diagonal
from studies.paper.machines import PaperMachineFits

METHOD = "debiased lasso, the paper's algorithms"
NOTE = (
    "This variant computes the intervals as the paper states them, for comparison. They are wide, and may "
    "cover less often than their level, because they ignore the bias that noise leaves in the coefficients "
    "and in the nodewise regressions."
)
EQUATION = """\
var_j = v_j / n + s_s^2
sampling: v_j / n; n is the number of records, v_j = {}
score noise: s_s^2; s_s is the standard deviation of the noise E_j in the mean of the clipped scores
not in the variance, as in the paper's Algorithm 6: the errors of the coefficients and of the precision
columns, whose effect Theorem 5 bounds by a slack"""
PLUG_IN = "sigma^2 w_jj, from the released variance and the precision column"
SQUARES = "the released mean square of the clipped scores of target j"
ALONE = (
    "Noise is calibrated for each interval alone: the guarantee for everything released together is the "
    "joint epsilon of the privacy block."
)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Described:
    """What results of all sites share: columns, units, cost, options of the summary, kind of variance."""

    names: Sequence[str]
    response: str
    units: SparseUnits
    report: PrivacyReport
    options: Mapping[str, str]
    interval_epsilon: float
    per_interval: bool
    robust: bool


def paper_results(
    described: Described,
    n: int,
    fit: SparseVector,
    columns: Sequence[SparseVector],
    targets: Sequence[int],
    variance: float,
    debiased: PaperCoordinates,
) -> LassoResults:
    """Return the results of a homogeneous fit over n rows."""
    correlation = _correlation(columns, targets)
    return _results(described, n, fit, correlation, targets, variance, debiased, METHOD, {})


def paper_machine_results(
    described: Described,
    fits: PaperMachineFits,
    targets: Sequence[int],
    labels: Mapping[str, Any],
    rows: Mapping[str, int],
) -> SiteResults:
    """Return the results of all sites; `labels` and `rows` by site.

    Covariances between sites are zero: the paper's variance has the sampling of a site's own rows and the
    noise of its own score, and no error of the shared fit and of the pooled precision columns.
    """
    names = list(described.names)
    scale = described.units.scale
    correlation = _correlation(fits.columns, targets)
    results = {
        labels[site]: _results(
            described,
            size,
            fits.own[site],
            correlation,
            targets,
            fits.variance,
            fits.debiased[site],
            f"{METHOD}, site {labels[site]}",
            _multipliers(fits.draws[site], size, scale, targets),
        )
        for site, size in rows.items()
    }
    shared = pd.Series(fits.shared.dense(len(names)) / scale, names, name="shared_params")
    parts = SiteParts(
        results=results,
        targets=[names[j] for j in targets],
        between={},
        shared=shared,
        differs=None,
        interval_epsilon=described.interval_epsilon,
        method=f"{METHOD}, by site",
    )
    return parts.joined()


def multiplier_intervals(result: LassoResults, alpha: float = 0.05) -> pd.DataFrame:
    """Return the simultaneous intervals of Algorithm 10, columns 0 and 1.

    Parameters
    ----------
    result : LassoResults
        Of a party, from a fit with ``multiplier_draws=``.
    alpha : float

    Raises
    ------
    NotAvailableError
        The fit released no multiplier draws.

    Notes
    -----
    **Privacy.** Post-processing: b_j +- c/sqrt n with c the 1 - alpha quantile of the released maxima, noise
    included, which the noise of b_j itself is not.
    """
    check_fraction(alpha, "alpha")
    kept = result._context.settings.get("multipliers")
    if kept is None:
        raise NotAvailableError("the fit released no multiplier draws: ask for them, multiplier_draws=")
    half = float(np.quantile(kept["draws"], 1.0 - alpha)) * np.asarray(kept["widths"])
    params = result.params.to_numpy()
    return pd.DataFrame(np.column_stack([params - half, params + half]), list(result.params.index))


def _multipliers(draws: Floats, n: int, scale: Floats, targets: Sequence[int]) -> dict[str, Any]:
    if not draws.size:
        return {}
    widths = 1.0 / (np.sqrt(n) * scale[list(targets)])
    return {"multipliers": {"draws": draws.tolist(), "widths": widths.tolist()}}


def _correlation(columns: Sequence[SparseVector], targets: Sequence[int]) -> Floats:
    """Return the correlation of the scores: w_j'Sigma w_k is w_jk."""
    return score_correlation(np.eye(len(targets)), precision_diagonal(columns, targets))


def _results(
    described: Described,
    n: int,
    fit: SparseVector,
    correlation: Floats,
    targets: Sequence[int],
    variance: float,
    debiased: PaperCoordinates,
    method: str,
    more: Mapping[str, Any],
) -> LassoResults:
    names = list(described.names)
    scale = described.units.scale
    unit = scale[list(targets)]
    back = np.outer(unit, unit)
    sampling = joint_covariance(correlation, debiased.sampling, np.zeros(len(unit))) / back
    noise = np.diag(debiased.privacy) / back
    support = list(fit.support)
    values = fit.values / scale[support]
    sparse = sparse_settings(names, described.units, support, values, float(np.sqrt(variance)))
    return LassoResults(
        Estimate(
            params=debiased.params / unit,
            cov=sampling + noise,
            names=tuple(names[j] for j in targets),
            nobs=n,
            noise_cov=noise,
            cov_type="plug-in",
            terms=VarianceTerms.dividing(
                sampling + noise,
                EQUATION.format(SQUARES if described.robust else PLUG_IN),
                {SCORE_NOISE: noise},
            ),
        ),
        Context(
            report=described.report,
            sampling_cov=sampling,
            model="DebiasedLasso",
            method=method,
            options=described.options,
            settings={"sparse": sparse, "response": described.response, **more},
            notes=must_read(NOTE, ALONE) if described.per_interval else must_read(NOTE),
        ),
    )
