"""Where an estimate came from, what it cost, and how its error divides between sampling and privacy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from privinf.accounting import PrivacyReport
from privinf.errors import NotAvailableError
from privinf.inference.estimate import Estimate
from privinf.results.wald import WaldResults

if TYPE_CHECKING:
    from privinf.inference.identification import Identification
    from privinf.releases import Release


@dataclass(frozen=True, slots=True)
class ModelLabels:
    """Names that statsmodels' tables ask the model for.

    Attributes
    ----------
    name : str
    endog_names : str
    exog_names : list of str
    """

    name: str
    endog_names: str
    exog_names: list[str]


class DescribedResults(WaldResults):
    """Normal inference with its provenance: report, release, identification, and both kinds of error."""

    @property
    def estimate(self) -> Estimate:
        """The estimate behind everything, in the user's units."""
        return self._estimate

    @property
    def privacy(self) -> PrivacyReport:
        """What this fit cost; ``.cumulative`` is the whole ledger."""
        return self._context.report

    @property
    def identification(self) -> Identification:
        """How much signal the noise left, and whether it is enough for Wald intervals."""
        found = self._context.identification
        if found is None:
            raise NotAvailableError("identification: this estimator has no such statistic")
        return found

    @property
    def release(self) -> Release | None:
        """What the estimate was made from; None where it was not kept."""
        return self._context.release

    @property
    def model(self) -> ModelLabels:
        """Names of model, response and coefficients."""
        design = self._context.design
        response = "y" if design is None else design.response
        return ModelLabels(self._context.model, response, list(self.names))

    @property
    def method(self) -> str:
        """How the coefficients were estimated."""
        return self._context.method

    @property
    def target(self) -> str:
        """Whose coefficients the intervals are for."""
        return self._context.target

    @property
    def options(self) -> Mapping[str, str]:
        """Named choices, as the summary prints them."""
        return MappingProxyType(dict(self._context.options))

    @property
    def notes(self) -> tuple[str, ...]:
        """Footnotes of the summary."""
        return self._context.notes

    @property
    def _no_moments(self) -> str | None:
        """Why this model has neither R-squared nor a residual variance; None for those that have them."""
        return None

    @property
    def rsquared(self) -> float:
        """Share of the response's variance explained, from corrected moments."""
        if self._context.rsquared is None:
            reason = self._no_moments
            noisy = "the corrected moments give no value between 0 and 1: too much noise"
            raise NotAvailableError(f"rsquared: {reason or noisy}")
        return self._context.rsquared

    @property
    def scale(self) -> float:
        """Residual variance without privacy noise, from corrected moments."""
        if self._context.scale is None:
            reason = self._no_moments
            raise NotAvailableError(
                f"scale: {reason or 'the corrected residual variance is not positive: too much noise'}"
            )
        return self._context.scale

    @cached_property
    def bse_sampling(self) -> pd.Series[float]:
        """Standard errors that the same data would have had without noise, estimated from the release."""
        cov = self._context.sampling_cov
        if cov is None:
            raise NotAvailableError("bse_sampling: the noise hides what the error without it would be")
        return self._labelled(np.sqrt(np.diag(cov)), "bse_sampling")

    @cached_property
    def bse_privacy(self) -> pd.Series[float]:
        """Standard errors that the privacy noise alone causes."""
        return self._labelled(self._estimate.noise_bse, "bse_privacy")

    @cached_property
    def noise_share(self) -> pd.Series[float]:
        """Share of each coefficient's variance that the privacy noise causes."""
        share = np.square(self.bse_privacy.to_numpy() / self._estimate.bse)
        return self._labelled(np.minimum(share, 1.0), "noise_share")
