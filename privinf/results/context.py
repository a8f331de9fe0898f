"""Context of an estimate: its design, release and equation, its cost, and its notes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from privinf.accounting import PrivacyReport
from privinf.completeness import CompleteRows
from privinf.error_boundary import error_boundaries, warn
from privinf.errors import ArgumentError, ChangedTargetWarning, NotAvailableError
from privinf.inference.covariances import takes_rows_as_independent
from privinf.inference.estimate import Estimate
from privinf.inference.score_test import Identification
from privinf.releases import Release
from privinf.results.notes import (
    CHANGED_TARGET,
    IMPUTING,
    Note,
    clipped_texts,
    complete_notes,
    complete_sample_notes,
    earlier_complete_texts,
    imputes,
    must_read,
    negative_times_texts,
    ranked,
    sentence,
    with_imputation,
)
from privinf.results.outside_counts import OutsideCounts
from privinf.schema import Design
from privinf.schema.declared import Level, Numeric
from privinf.typing import Floats

ROWS_ALONE = (
    "standard errors assume independent rows, but one {!r} may have up to {} rows; if "
    "these rows are correlated, standard errors are too small. MomentOLS and ModulatedOLS "
    "of one table have cov_type='cluster'"
)


# Name of the model of means, which has no response: each coefficient is the mean of a column.
NOISE_SDS = 2.0  # of a count, by which it may be above the share that a release of bounds allows for
MEANS = "Means"


@lru_cache(maxsize=256)
def index_of(names: tuple[str, ...]) -> pd.Index[Any]:
    """Return names as the labels of a table; tables of one fit share them."""
    return pd.Index(list(names))


@error_boundaries
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Context:
    """Public facts behind an estimate of p coefficients: cost, design, release, options and notes.

    Attributes
    ----------
    report : PrivacyReport
        Privacy cost of the fit.
    design : Design or None
        Columns, bounds, and the map to scaled units. Needed for formulas and the score test.
    release : Release or None
        Release behind the estimate.
    system : LinearScores, or another equation of a method, or None
        The estimating equation in scaled units: score tests and the pairs bootstrap use it.
    sampling_cov : ndarray, shape (p, p), or None
        Covariance of the same fit without noise, user units.
    identification : Identification or None
        Strength of the signal relative to the noise.
    target : str
        Coefficients that the intervals are for, such as those of the population.
    model, method : str
        Names of the model and of the method, for the summary.
    options : mapping of str to str
        Named choices, one line each in the summary.
    settings : mapping
        Settings, as JSON, from which the model computes `system` from `release`.
    rsquared, scale : float or None
        From corrected moments.
    notes : tuple of Note
        Notes of the summary; plain texts are details.
    point : ndarray, shape (p,), or None
        Coefficients to report where they are not those that intervals and tests are about (ridge).
    """

    report: PrivacyReport
    design: Design | None = None
    release: Release | None = None
    system: Any = None
    sampling_cov: Floats | None = None
    identification: Identification | None = None
    target: str = "population"
    model: str = ""
    method: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    rsquared: float | None = None
    scale: float | None = None
    notes: tuple[str | Note, ...] = ()
    point: Floats | None = None

    def __post_init__(self) -> None:
        """Notes on imputed rows and the design's schema come first."""
        notes = ranked(self.notes)
        if self.design is not None and self.design.schema is not None:
            inputs = dict.fromkeys((*self.design.outcome.column.inputs, *self.design.inputs))
            schema_notes = self.design.schema.notes(inputs)
            texts = [note.text for note in notes]
            notes = (*must_read(*(text for text in schema_notes if text not in texts)), *notes)
        if imputes({} if self.release is None else self.release.noise_model, self.settings):
            object.__setattr__(self, "settings", {**self.settings, "missing": IMPUTING})
            notes = with_imputation(notes)
        object.__setattr__(self, "notes", self._with_complete_rows(notes))

    def _with_complete_rows(self, notes: tuple[Note, ...]) -> tuple[Note, ...]:
        """Return notes after those on complete rows, of which files of earlier versions have others."""
        is_means = self.model == MEANS
        complete = complete_sample_notes(self.complete) if is_means else complete_notes(self.settings)
        others = {*earlier_complete_texts(self.settings), *(note.text for note in complete)}
        return (*complete, *(note for note in notes if note.text not in others))

    @property
    def ranked(self) -> tuple[Note, ...]:
        """The notes with their ranks."""
        return ranked(self.notes)

    @property
    def response(self) -> str:
        """Name of the response; empty for means, which have none, and "y" where nothing states it."""
        if self.model == MEANS:
            return ""
        stored = self.settings.get("response", "y")
        return str(stored) if self.design is None else self.design.response

    @property
    def response_level(self) -> Level | None:
        """Level of the response that counts as 1; None where the response is a number."""
        level: Level | None = self.settings.get("level")
        return self.design.outcome.level if level is None and self.design is not None else level

    @property
    def measure_noise(self) -> Mapping[str, float]:
        """Standard errors that noise causes: ``scale_noise``, ``rsquared_noise``; empty where unknown."""
        noise: Mapping[str, float] = self.settings.get("measure_noise", {})
        return noise

    @property
    def variance_hidden(self) -> bool:
        """Whether noise of known size hides the residual variance."""
        return self.scale is None and self.measure_noise.get("scale_noise", 0.0) > 0.0

    @property
    def imputed(self) -> bool:
        """Whether missing values were imputed, so that estimates describe completed rows."""
        return imputes(self.settings)

    @property
    def complete(self) -> CompleteRows | None:
        """Estimated number of complete rows, where the others were dropped; None elsewhere."""
        return CompleteRows.from_settings(self.settings)

    def table_rows(self, nobs: int) -> int:
        """Return the public number of rows: where incomplete rows were dropped, `nobs` is an estimate."""
        return nobs if self.complete is None else self.complete.of

    def records(self, nobs: int) -> str:
        """Return the number of records as text, marked where it is the estimate for complete rows."""
        complete = self.complete
        if complete is None:
            return f"{nobs:,}"
        return f"{'' if complete.is_exact else 'about '}{nobs:,} of {complete.of:,}"

    def warned(self, estimate: Estimate) -> Context:
        """Return the context with notes on effects of bounds, or of released bounds, and warn of them."""
        texts = self.target_changes(estimate)
        for text in texts:
            warn(text, ChangedTargetWarning)
        noted = [note.text for note in self.ranked]
        notes = [Note(sentence(text), "must-read", CHANGED_TARGET) for text in texts]
        notes += [Note(sentence(text), "must-read") for text in self._smaller_counts(estimate)]
        new_notes = tuple(note for note in notes if note.text not in noted)
        return replace(self, notes=(*self.notes, *new_notes)) if new_notes else self

    def target_changes(self, estimate: Estimate) -> tuple[str, ...]:
        """Return the effects of bounds on the target of the coefficients, as texts of warnings."""
        texts = self._clipped_texts({**self.settings, "clipped": self._clipped(estimate)})
        negative = self.settings.get("negative_times")
        times = negative_times_texts(None if negative is None else tuple(negative), estimate.nobs)
        return (*texts, *times, *self.shifts(estimate))

    def _clipped_texts(self, settings: Mapping[str, Any]) -> tuple[str, ...]:
        outcome = self.response if self.settings.get("family") == "binomial" else ""
        codes = self._zero_to_one | {outcome} if outcome else self._zero_to_one
        return clipped_texts(settings, codes, outcome)

    def _clipped(self, estimate: Estimate) -> dict[str, float]:
        """Return the shares of values outside their bounds that are large, or may move a coefficient.

        Shares that the releases of the bounds allow for are left out: `shifts` warns of their effect.
        """
        clipped = dict(self.settings.get("clipped", {}))
        counts = OutsideCounts.from_settings(self.settings)
        if counts is None or self.design is None:
            return clipped
        return self._unexpected(counts, counts.moving(self.design, estimate) | clipped)

    def _unexpected(self, counts: OutsideCounts, shares: Mapping[str, float]) -> dict[str, float]:
        """Return the shares that are larger than the releases of the bounds allow for."""
        schema = None if self.design is None else self.design.schema
        expected = {} if schema is None else schema.expected_outside()
        noise = NOISE_SDS * counts.sd / counts.rows
        return {
            name: share
            for name, share in shares.items()
            if name not in expected or share > expected[name] + noise
        }

    def _smaller_counts(self, estimate: Estimate) -> tuple[str, ...]:
        """Return the texts on values outside their bounds that stand out of the noise without a warning."""
        counts = OutsideCounts.from_settings(self.settings)
        warned = self._clipped(estimate)
        visible = {} if counts is None else self._unexpected(counts, counts.visible)
        smaller = {name: share for name, share in visible.items() if name not in warned}
        return self._clipped_texts({**self.settings, "clipped": smaller, "at_an_end": ()}) if smaller else ()

    @property
    def _zero_to_one(self) -> frozenset[str]:
        """Columns with the bounds (0, 1), probably yes and no."""
        schema = None if self.design is None else self.design.schema
        columns = {} if schema is None else schema.columns
        numbers = ((name, kind) for name, kind in columns.items() if isinstance(kind, Numeric))
        return frozenset(name for name, kind in numbers if kind.is_zero_to_one)

    def shifts(self, estimate: Estimate) -> tuple[str, ...]:
        """Return a warning about coefficients that released bounds may change notably, or none."""
        design = self.design
        if design is None or design.schema is None or estimate.cov is None:
            return ()
        raw = design.columns if design.raw is None else design.raw
        columns = {column.name: column.inputs for column in raw}
        return design.schema.shifts(columns, design.outcome.column.inputs, estimate.params, estimate.bse)

    def rows_alone(self, cov_type: str) -> str:
        """Return a warning where a covariance treats the rows of one unit as independent; else nothing."""
        schema = None if self.design is None else self.design.schema
        if schema is None or schema.max_rows == 1 or not takes_rows_as_independent(cov_type):
            return ""
        return ROWS_ALONE.format(schema.unit, schema.max_rows)

    @property
    def absorbed(self) -> tuple[str, ...]:
        """Columns of the design whose coefficients are not reported (`privinf.results.effects`)."""
        return tuple(self.settings.get("absorbed", ()))

    @property
    def reported(self) -> tuple[str, ...]:
        """Columns of the design whose coefficients are reported."""
        names = () if self.design is None else self.design.names
        return tuple(name for name in names if name not in self.absorbed)

    def require_population(self, subject: str) -> None:
        """Raise NotAvailableError for resampling of records where the target has no sampling error."""
        if self.target == "sample":
            raise NotAvailableError(
                f"{subject} measures sampling error by resampling, but a fit with target='sample' has no "
                "sampling error, only noise: fit with target='population'"
            )

    def fit_to(self, estimate: Estimate) -> Context:
        """Return the context itself if it fits the estimate, else raise ArgumentError."""
        p = len(estimate.params)
        if self.design is not None and self.reported != estimate.names:
            raise ArgumentError(
                "the columns of the design differ from the coefficients of the estimate: pass the design "
                "from which the estimate was computed"
            )
        if self.sampling_cov is not None and np.shape(self.sampling_cov) != (p, p):
            raise ArgumentError(f"sampling_cov= must have shape {(p, p)}, got {np.shape(self.sampling_cov)}")
        if self.point is not None and np.shape(self.point) != (p,):
            raise ArgumentError(f"point= must have shape {(p,)}, got {np.shape(self.point)}")
        return self
