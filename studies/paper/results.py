"""Results of the paper's own algorithms, in the user's units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from privinf.accounting import PrivacyReport
from privinf.errors import NotAvailableError
from privinf.inference.estimate import Estimate
from privinf.lasso.heterogeneous.results import MachineResults
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
ALONE = (
    "Noise is calibrated for each interval alone: the guarantee for everything released together is the "
    "joint epsilon of the privacy block."
)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Described:
    """What results of all parties share: columns, units, cost, options of the summary."""

    names: Sequence[str]
    response: str
    units: SparseUnits
    report: PrivacyReport
    options: Mapping[str, str]
    interval_epsilon: float
    per_interval: bool


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
) -> MachineResults:
    """Return results by party; `labels` and `rows` by site."""
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
            f"{METHOD}, party {labels[site]}",
            _multipliers(fits.draws[site], size, scale, targets),
        )
        for site, size in rows.items()
    }
    shared = pd.Series(fits.shared.dense(len(names)) / scale, names, name="shared_params")
    return MachineResults(
        labels=tuple(results),
        shared_params=shared,
        privacy=described.report,
        interval_epsilon=described.interval_epsilon,
        results=results,
    )


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
