"""What surrounds an estimate: where it came from, what it cost, and why some members are not available."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, TypedDict

import numpy as np
import pandas as pd

from privinf.accounting import PrivacyReport
from privinf.error_boundary import doors, warn
from privinf.errors import ArgumentError, ChangedTargetWarning, NotAvailableError
from privinf.inference.covariances import takes_rows_as_independent
from privinf.inference.estimate import Estimate
from privinf.inference.linear_scores import LinearScores
from privinf.inference.score_sets import ScoreSet, score_sets
from privinf.inference.score_sets import restricted_score_test as test_restrictions
from privinf.inference.score_test import Identification, ScoreTestResult
from privinf.inference.score_test import score_test as test_system
from privinf.registry import MODELS
from privinf.releases import Release
from privinf.results.notes import (
    CHANGED_TARGET,
    IMPUTING,
    Note,
    clipped_texts,
    imputes,
    must_read,
    ranked,
    sentence,
    with_imputation,
)
from privinf.schema import Design
from privinf.typing import ColumnLike, Floats
from privinf.validation import check_array

NEVER_KEPT = (
    "{} does not release an estimating equation that can be evaluated at other values: its "
    "scores are summed at one point, divided by their slopes, and published as coordinates "
    "with a covariance. The score test of its targets is their Wald test: use wald_test(), "
    "conf_int() or simultaneous()"
)
LEFT_OUT = (
    "this result contains no estimating equation: its fit released only coefficients or "
    "named targets, or it was saved with records=False"
)
ROWS_ALONE = (
    "standard errors assume independent rows, but one {!r} has up to {}. If rows of one "
    "unit are correlated, standard errors are too small. Use MomentOLS or ModulatedOLS of "
    "one table with cov_type='cluster', which sums over units"
)


@lru_cache(maxsize=256)
def index_of(names: tuple[str, ...]) -> pd.Index[Any]:
    """Return names as the labels of a table; tables of one fit share them."""
    return pd.Index(list(names))


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
    notes : tuple of Note
        What the summary says of the result; texts are details.
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
    notes: tuple[str | Note, ...] = ()
    point: Floats | None = None

    def __post_init__(self) -> None:
        """Notes that imputed rows and the design's schema ask for come first."""
        notes = ranked(self.notes)
        if self.design is not None and self.design.schema is not None:
            inputs = dict.fromkeys((*self.design.outcome.column.inputs, *self.design.inputs))
            more = self.design.schema.notes(inputs)
            texts = [note.text for note in notes]
            notes = (*must_read(*(text for text in more if text not in texts)), *notes)
        if imputes({} if self.release is None else self.release.law, self.settings):
            object.__setattr__(self, "settings", {**self.settings, "missing": IMPUTING})
            notes = with_imputation(notes)
        object.__setattr__(self, "notes", notes)

    @property
    def ranked(self) -> tuple[Note, ...]:
        """The notes with their ranks."""
        return ranked(self.notes)

    @property
    def imputed(self) -> bool:
        """Whether missing values were imputed, so that estimates describe completed rows."""
        return imputes(self.settings)

    def warned(self, estimate: Estimate) -> Context:
        """Return the context with notes on what bounds do, or bought ones may do, and warn of it."""
        told = (*clipped_texts(self.settings), *self.shifts(estimate))
        for text in told:
            warn(text, ChangedTargetWarning)
        known = [note.text for note in self.ranked]
        fresh = tuple(
            Note(sentence(text), "must-read", CHANGED_TARGET) for text in told if sentence(text) not in known
        )
        return replace(self, notes=(*self.notes, *fresh)) if fresh else self

    def shifts(self, estimate: Estimate) -> tuple[str, ...]:
        """Return which of these coefficients bought bounds may have moved notably, as a warning or none."""
        design = self.design
        if design is None or design.schema is None or estimate.cov is None:
            return ()
        raw = design.columns if design.raw is None else design.raw
        columns = {column.name: column.inputs for column in raw}
        return design.schema.shifts(columns, design.outcome.column.inputs, estimate.params, estimate.bse)

    def rows_alone(self, cov_type: str) -> str:
        """Return what to say where a covariance takes the rows of one unit as independent; else nothing."""
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
        """Columns of the design whose coefficients are."""
        names = () if self.design is None else self.design.names
        return tuple(name for name in names if name not in self.absorbed)

    def require_population(self, what: str) -> None:
        """Raise NotAvailableError for what resamples records, where the target has no sampling error."""
        if self.target == "sample":
            raise NotAvailableError(
                f"{what} resamples records to measure sampling error, but the target is this finite "
                "population, whose only error is the noise"
            )

    def fit_to(self, estimate: Estimate) -> Context:
        """Return the context itself if it fits the estimate, else raise ArgumentError."""
        p = len(estimate.params)
        if self.design is not None and self.reported != estimate.names:
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
    notes: tuple[str | Note, ...]
    point: Floats | None


def score_test(context: Context, beta0: ColumnLike | None) -> ScoreTestResult:
    """Return the score test of private slopes `beta0` in user units; see `Results.score_test`."""
    system, design = _parts(context)
    if context.absorbed:
        k = len(context.reported)
        null = np.zeros(k) if beta0 is None else check_array(beta0, "beta0", ndim=1)
        if null.shape != (k,):
            raise ArgumentError(f"beta0 must hold {k} coefficients ({', '.join(context.reported)})")
        return restricted_score_test(context, np.eye(k), null)
    if beta0 is None:
        tested = np.ones(len(design.names), dtype=bool)
        if design.constant is not None:
            tested[design.constant] = False
        if not tested.any():
            raise NotAvailableError("the model has no slope to test")
        return test_system(system, tested=tested)
    null = _private_slopes(beta0, design)
    found = test_system(system, design.scaled_slopes(null), tested=design.private)
    return replace(found, null=null)


def restricted_score_test(context: Context, R: Floats, q: Floats) -> ScoreTestResult:
    """Return the score test of ``R b = q`` in user units; see `Results.score_test`."""
    system, design = _parts(context)
    transform, shift = design.to_user
    R = R @ np.eye(len(design.names))[_places(context)]
    found = test_restrictions(system, R @ transform, q - R @ shift)
    return replace(found, null=q)


def all_score_sets(context: Context, alpha: float) -> tuple[ScoreSet, ...]:
    """Return the score sets of all p coefficients in user units.

    Notes
    -----
    A slope in user units is a multiple of the scaled one. The constant of centred columns is not: its
    set comes from the system with the centring undone.
    """
    system, design = _parts(context)
    transform, shift = design.to_user
    factors = np.diag(transform)
    moved: Any = Uncentred(system, transform / factors[:, None])
    places = _places(context)
    found = score_sets(moved, places, alpha=alpha, tested=design.private)
    return tuple(s.mapped(float(factors[j]), float(shift[j])) for s, j in zip(found, places, strict=True))


@dataclass(frozen=True)
class Uncentred:
    """A linear system in coefficients ``c = T b``: what score sets ask of a `LinearScores`.

    Attributes
    ----------
    system : LinearScores
    T : ndarray, shape (p, p)
        Invertible; adds noisy columns' coefficients to the constant's, so that noise-free columns stay so.

    Notes
    -----
    ``psi(c) = T^-T psi(T^-1 c)``: the scores of the regression on ``T^-T x``.
    """

    system: LinearScores
    T: Floats

    @property
    def n(self) -> int:
        """Number of records."""
        return self.system.n

    @property
    def noise_free(self) -> Any:
        """Columns without noise."""
        return self.system.noise_free

    @property
    def cov_type(self) -> str:
        """Kind of covariance."""
        return self.system.cov_type

    @property
    def law(self) -> Any:
        """Law of the score statistic."""
        return self.system.law

    @cached_property
    def A(self) -> Floats:
        """Minus the derivative of psi."""
        return np.asarray(self._inverse.T @ self.system.A @ self._inverse, dtype=np.float64)

    @cached_property
    def g(self) -> Floats:
        """Psi at zero."""
        return np.asarray(self._inverse.T @ self.system.g, dtype=np.float64)

    def tensor(self) -> Floats:
        """Return C with ``null_meat(c) = sum_kl w_k w_l C_kl``, w = (c, 1)."""
        p = len(self.T)
        lift = np.eye(p + 1)
        lift[:p, :p] = inverse = self._inverse
        moved = np.einsum(
            "ki,lj,klab,ac,bd->ijcd", lift, lift, self.system.tensor(), inverse, inverse, optimize=True
        )
        return np.asarray(moved, dtype=np.float64)

    @cached_property
    def _inverse(self) -> Floats:
        return np.asarray(np.linalg.inv(self.T), dtype=np.float64)


def _places(context: Context) -> list[int]:
    """Return the places of the reported coefficients in the design."""
    names = () if context.design is None else context.design.names
    return [names.index(name) for name in context.reported]


def _parts(context: Context) -> tuple[LinearScores, Design]:
    if context.system is None or context.design is None:
        stored = MODELS.get(context.model)
        raise NotAvailableError(
            "score tests and score intervals rest on the released estimating equation, and "
            + (NEVER_KEPT if stored is not None and stored.system is None else LEFT_OUT).format(context.model)
        )
    return context.system, context.design


def _private_slopes(beta0: Any, design: Design) -> Floats:
    names = list(design.private_names)
    if isinstance(beta0, pd.Series):
        if sorted(map(str, beta0.index)) != sorted(names):
            raise ArgumentError(f"beta0= must be labeled by the private columns: {', '.join(names)}")
        beta0 = beta0[names]
    values = check_array(beta0, "beta0", ndim=1)
    if values.shape != (len(names),):
        raise ArgumentError(
            f"beta0 must hold {len(names)} private slopes ({', '.join(names)}), got {len(values)}"
        )
    return values
