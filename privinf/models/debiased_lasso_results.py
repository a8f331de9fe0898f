"""Results of the debiased lasso: the common facade on the targets, the sparse fit beside it."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from privinf.accounting import PrivacyReport
from privinf.engines.debiasing import DebiasedFit
from privinf.engines.hard_thresholding import SparseFit
from privinf.engines.sparse_sums import SparseSums
from privinf.inference.estimate import Estimate
from privinf.inference.sparse.joint import joint_covariance
from privinf.models.debiased_lasso_rows import LassoRows
from privinf.results import Results


class LassoResults(Results):
    """Results of `DebiasedLasso`.

    ``params``, ``bse``, intervals and tests are those of the debiased targets; `sparse_params` is the fit
    before debiasing, of all columns. ``bse_sampling`` is the error without privacy noise but with the same
    clips. Score tests need per-record scores, which no one releases: they are not available.
    """

    @cached_property
    def sparse_params(self) -> pd.Series[float]:
        """Sparse coefficients of all p columns, user units: no basis of intervals after selection."""
        found = np.zeros(len(self._sparse["columns"]))
        found[self._sparse["positions"]] = self._sparse["values"]
        return pd.Series(found, list(self._sparse["columns"]), name="sparse_params")

    @property
    def selected(self) -> tuple[str, ...]:
        """Names of the columns that the fit kept, in the order of the columns."""
        columns = self._sparse["columns"]
        return tuple(columns[position] for position in self._sparse["positions"])

    @property
    def residual_scale(self) -> float:
        """Released typical size of the residuals: their 68% point, an sd if they are normal."""
        return float(self._sparse["scale"])

    @property
    def _sparse(self) -> Any:
        return self._context.settings["sparse"]


def lasso_results(
    rows: LassoRows,
    sparsity: int,
    sums: SparseSums,
    fit: SparseFit,
    chosen: list[int],
    debiased: DebiasedFit,
    report: PrivacyReport,
) -> LassoResults:
    """Return the results of a fit of `sparsity` columns, debiased at `chosen`, in the user's units."""
    found, names, unit = debiased.found, rows.names, sums.units.scale[chosen]
    back = np.outer(unit, unit)
    sampling = joint_covariance(debiased.correlation, found.sampling, np.zeros(len(chosen))) / back
    estimate = Estimate(
        found.params / unit,
        debiased.cov / back,
        tuple(names[j] for j in chosen),
        sums.n,
        noise_cov=np.diag(found.privacy) / back,
        cov_type="HC0",
    )
    values = fit.beta / sums.units.scale[fit.support]
    if rows.constant is not None:
        # In the user's units the constant takes up the centres of the other columns.
        at = fit.support.index(rows.constant)
        values[at] += sums.units.intercept - values @ sums.units.center[fit.support]
    order = np.argsort(fit.support)
    sparse = {
        "columns": list(names),
        "positions": [fit.support[i] for i in order],
        "values": [float(values[i]) for i in order],
        "scale": fit.scale,
    }
    options = {"Sparsity": str(sparsity), "Parties": str(len(rows.rows))}
    return LassoResults(
        estimate,
        report=report,
        sampling_cov=sampling,
        model="DebiasedLasso",
        method="debiased lasso, trusted server",
        options=options,
        settings={"sparse": sparse},
    )
