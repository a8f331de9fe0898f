"""What surrounds an estimate: where it came from, what it cost, and why some members are not available."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypedDict

import numpy as np

from privinf.accounting import PrivacyReport
from privinf.doors import doors
from privinf.errors import ArgumentError, NotAvailableError
from privinf.inference.estimate import Estimate
from privinf.inference.linear_scores import LinearScores
from privinf.inference.score_test import Identification
from privinf.releases import Release
from privinf.schema import Design
from privinf.typing import Floats

ROWS_STAY = (
    "the rows stayed with their owners, and a residual or a fitted value is a statement about one of them; "
    "predict(new_rows) works for rows at hand"
)
NO_LIKELIHOOD = (
    "the estimate solves a corrected estimating equation and has no likelihood; compare nested models by "
    "wald_test or score_test"
)
ONE_RECORD = "the influence of a single person is what the noise protects"


@doors
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Context:
    """The frozen surroundings of an estimate of p coefficients.

    Attributes
    ----------
    report : PrivacyReport
        What the fit cost.
    design : Design or None
        Columns, bounds, and the map to scaled units. Needed for formulas and the score test.
    release : Release or None
        What the estimate was made from.
    system : LinearScores or None
        Its estimating equation in scaled units: score tests and the pairs bootstrap rest on it.
    sampling_cov : ndarray, shape (p, p), or None
        Covariance that the same data would have had without noise, user units.
    identification : Identification or None
    target : str
        Whose coefficients the intervals are for.
    model, method : str
    options : mapping of str to str
        Named choices, one line each in the summary.
    settings : mapping
        JSON-able: all that the model needs to make `system` from `release` again.
    rsquared, scale : float or None
        From corrected moments.
    notes : tuple of str
        Footnotes of the summary.
    point : ndarray, shape (p,), or None
        Coefficients to report where they are not those that intervals and tests are about (ridge).
    """

    report: PrivacyReport
    design: Design | None = None
    release: Release | None = None
    system: LinearScores | None = None
    sampling_cov: Floats | None = None
    identification: Identification | None = None
    target: str = "population"
    model: str = ""
    method: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    rsquared: float | None = None
    scale: float | None = None
    notes: tuple[str, ...] = ()
    point: Floats | None = None

    def fit_to(self, estimate: Estimate) -> Context:
        """Return the context itself if it fits the estimate, else raise ArgumentError."""
        p = len(estimate.params)
        if self.design is not None and self.design.names != estimate.names:
            raise ArgumentError("the design's columns are not those of the estimate")
        if self.sampling_cov is not None and np.shape(self.sampling_cov) != (p, p):
            raise ArgumentError(f"sampling_cov must have shape {(p, p)}, got {np.shape(self.sampling_cov)}")
        if self.point is not None and np.shape(self.point) != (p,):
            raise ArgumentError(f"point must have shape {(p,)}, got {np.shape(self.point)}")
        return self


class Surroundings(TypedDict, total=False):
    """Attributes of a `Context` that have a default."""

    design: Design | None
    release: Release | None
    system: Any  # LinearScores, or an equation that a results class of a tower knows
    sampling_cov: Floats | None
    identification: Identification | None
    target: str
    model: str
    method: str
    options: Mapping[str, str]
    settings: Mapping[str, Any]
    rsquared: float | None
    scale: float | None
    notes: tuple[str, ...]
    point: Floats | None


def unavailable(name: str, reason: str) -> Any:
    """Return a property that raises NotAvailableError with the reason (so that hasattr is False)."""

    def raise_reason(self: object) -> Any:
        raise NotAvailableError(f"{name} is not available: {reason}")

    raise_reason.__name__ = name
    return property(raise_reason, doc=f"Not available: {reason}.")
