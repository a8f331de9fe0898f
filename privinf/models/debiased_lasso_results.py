"""Results of the debiased lasso: the common facade on the targets, the sparse fit beside it."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

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
