"""Diagnostics of a debiased lasso: bounds, nodewise regressions, tails, omitted columns, selections."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from privinf.inference.tails import HEAVY, HEAVY_TAIL, Clip
from privinf.lasso.selection import DETECTION_PROBABILITY, SelectionRelease, sharpest
from privinf.lasso.sums import SparseSums
from privinf.results.notes import Note, must_read, sentence
from privinf.typing import Flags, Floats, NoteRank
from privinf.wire import Labels, Statistics, readable

EXPLAINED_NOTE = (
    "The column (R2 of x) contains noisy estimates of the R-squared of each target's regression on the other "
    "columns (its nodewise regression); explained_shares() returns intervals."
)
EXHAUSTED = (
    "The interval is not reliable for {}, because the nodewise regression probably needs more columns than "
    "were selected, and omitted columns may bias the coefficient. Pass fewer targets, a larger budget, or a "
    "larger precision_sparsity=."
)
DIVERGED_COLUMN = (
    "The interval is not reliable for {}, because the nodewise regression did not converge, or the noise is "
    "too large for it. "
    "Pass fewer targets, a larger budget, or a smaller precision_sparsity=."
)
HEAVY_COLUMN = (
    "The interval is not reliable for {}, because the long tail of this column was clipped in the nodewise "
    "regression, and omitted columns may bias the coefficient. Use logarithms, narrower "
    "bounds or a larger budget."
)
MEAN_NOTE = (
    "Target: the mean. Scores were clipped at {:.3g} times their typical size; this threshold was chosen "
    "from noisy counts of large scores. About {:.2g}% of the records had larger scores. Their clipped part "
    "is extrapolated from the part of the scores just below the threshold; the ratio of the two (lambda) is "
    "{:.2g}."
)
UNCLIPPED_NOTE = (
    "Target: the mean. Scores larger than {:.3g} times their typical size would have been "
    "clipped, but no scores are expected to be so large."
)
ROBUST_NOTE = (
    "Target: a robust center. The clipping threshold of the scores is optimal for normal "
    "errors. If errors are skewed and their size depends on the columns, the coefficients "
    "are not those of the mean."
)
MOST_OUTSIDE = 0.02  # share of values outside the bounds that changes coefficients
SURE = 3.0  # sds of its noise that this share must also exceed
LEVEL = 0.05  # of the test for missed columns
# Settings of `MissedColumnTest` that are floats.
NUMBERS = ("statistic", "pvalue", "seen_from", "correlation", "bias_in_errors")
INTEGERS = ("columns", "kept", "standing_out")  # and those that are integers
MANY_FADING = 3  # kept columns with effects that are easily missed; as many cast doubt on sparsity
FADING = (
    "The intervals are not reliable, because the model may not be sparse enough: of the {1} kept columns, "
    "{0} have effects below {2:.2g} standard errors, and other such columns were probably missed."
)
EXHAUSTED_SEARCH = (
    "The intervals are not reliable, because columns outside the {} kept ones matter: {} (z = {:.2f}, p = "
    "{:.2g}); raise sparsity= to {} or more."
)
TESTED_COLUMNS = "The p-value is corrected for the {} columns outside the fit."
NOT_SPARSE = (
    "Further columns probably matter; if any are significant after you raise sparsity=, the model is not "
    "sparse, and no choice of columns makes its intervals valid."
)
ADDED_COLUMNS = (
    "Outside the {} kept columns, {} (z = {:.2f}, p = {:.2g} over {} columns) and joined the fit, after "
    "which no column stood out; intervals account for this step."
)
DROPPED_BUT_LARGE = (
    "The fit selected and then dropped {} column(s) with significant coefficients; intervals account for "
    "these columns."
)
NO_OMITTED_COLUMNS = (
    "Test for omitted columns: of {} columns outside the fit, {} stands out most (z = {:.2f}, p = {:.2g})."
)
DETECTABLE_EFFECT = (
    "The detection limit is {:.2g} standard errors without privacy noise: an omitted column with an effect "
    "of this size would have been detected with probability {:.1g}."
)
BIAS = (
    "An omitted column that the test cannot detect may shift a target's interval by up to {1:.2g} standard "
    "errors if its correlation with the residual of the target's nodewise regression is below {0:.2g}."
)
CORRELATIONS_NOT_TESTED = (
    "The fit gives no limit for the bias of a target's interval from an omitted column, because it did not "
    "test the correlations of omitted columns with targets."
)
HARMLESS_BIAS = 0.5  # a bias of this many standard errors leaves 95% intervals a coverage of 92%
HIDDEN_GRAM = (
    "The intervals are not reliable, because the noise of the selection's Gram matrix is as large as its "
    "smallest eigenvalue; keep fewer columns, increase the budget, or increase the share of the refit with "
    "shares=."
)
FAR_FROM_CONVERGED = "The coefficients may be far from those of a converged fit."
TOO_MANY_STAND_OUT = (
    "The intervals are not reliable, because more columns stand out from the noise than sparsity= allows; "
    "raise sparsity=, or use more rows, a larger budget, fewer columns, or a trusted server."
)
CAUSE_OF_MANY = (
    "Either a column that matters was missed and others are correlated with it, or more columns matter."
)
MAY_BE_MISSED = (
    "If as many columns matter as sparsity= allows, {} of them may have been missed, and the interval of a "
    "target correlated with a missed column is off by up to {:.2g} standard errors."
)
DETECTED_FROM = "A column may have been missed where its covariance with the residuals is below {:.3g}."
REMEDY = (
    "Use more rows, a larger budget, fewer columns or a trusted server; if fewer columns matter, pass a "
    "smaller sparsity=."
)
SELECTED_FROM_SUMS = (
    "Without a trusted server, columns were selected from noisy sums of the products of the residuals or "
    "targets with all {} columns."
)
NOISE_GROWS = "The noise of these sums grows with the square root of the number of columns."


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class NodewiseDiagnostics:
    """How well the nodewise regressions of k targets are known.

    Attributes
    ----------
    selected : tuple of int, length k
        Number of neighbors of each target, in addition to the columns of the fit.
    explained : ndarray, shape (k,)
        Share of the target's mean square that the other columns of its nodewise regression explain.
    explained_sd : ndarray, shape (k,)
        Its noise.
    last : ndarray, shape (k,)
        Share that the smallest quarter of the selected neighbors adds to the others.
    exhausted, not_converged, heavy : ndarray of bool, shape (k,)
        Whether `last` is material beyond its noise; the regression did not converge; its clips hide a tail.
    """

    selected: tuple[int, ...]
    explained: Floats
    explained_sd: Floats
    last: Floats
    exhausted: Flags
    not_converged: Flags
    heavy: Flags

    def only(self, above_noise: Flags) -> NodewiseDiagnostics:
        """Return the marks of some of the targets."""
        return NodewiseDiagnostics(
            selected=tuple(count for count, keep in zip(self.selected, above_noise, strict=True) if keep),
            explained=self.explained[above_noise],
            explained_sd=self.explained_sd[above_noise],
            last=self.last[above_noise],
            exhausted=self.exhausted[above_noise],
            not_converged=self.not_converged[above_noise],
            heavy=self.heavy[above_noise],
        )

    def notes(self, names: Sequence[str]) -> tuple[Note, ...]:
        """Return the warnings about these targets, each with the targets that it is about."""
        marks = (self.exhausted, EXHAUSTED), (self.not_converged, DIVERGED_COLUMN), (self.heavy, HEAVY_COLUMN)
        notes: tuple[Note, ...] = ()
        for marked, text in marks:
            weak = tuple(name for name, is_weak in zip(names, marked, strict=True) if is_weak)
            notes += must_read(text.format(", ".join(weak)), columns=weak) if weak else ()
        return notes

    def warning(self, names: Sequence[str]) -> str | None:
        """Return the same as one text, or None."""
        return " ".join(note.text for note in self.notes(names)) or None

    def settings(self, names: Sequence[str]) -> dict[str, Any]:
        """Return everything as plain numbers and texts."""
        plain = {
            "neighbours": list(self.selected),
            "explained": self.explained.tolist(),
            "explained_sd": self.explained_sd.tolist(),
            "last": self.last.tolist(),
        }
        return plain | ({} if (warning := self.warning(names)) is None else {"warning": warning})


@dataclass(frozen=True, slots=True, eq=False)
class Outside:
    """Shares of the values of k targets that lie outside their public bounds, and the sd of their noise."""

    shares: Floats
    sd: float

    @classmethod
    def from_sums(cls, sums: SparseSums, targets: Sequence[int], rho: float) -> Outside:
        """Release these shares."""
        noisy = sums.release(
            Statistics.COLUMNS_OUTSIDE,
            sums.args((), np.empty(0), columns=np.asarray(targets)),
            rho,
            Labels.VALUES_OUTSIDE,
        )
        return cls(noisy.mean, noisy.mean_sd)

    def only(self, above_noise: Flags) -> Outside:
        """Return the shares of some of the targets."""
        return Outside(self.shares[above_noise], self.sd)

    @property
    def cut(self) -> Flags:
        """Which targets have so many, beyond the noise, that their coefficients change, shape (k,)."""
        return np.asarray(self.shares > max(MOST_OUTSIDE, SURE * self.sd))


@dataclass(frozen=True, slots=True)
class ScoreTail:
    """The tail of the scores by noisy counts.

    Attributes
    ----------
    beyond : float
        Share of the records whose scores are beyond the clipping threshold.
    ratio : float
        lambda: the extrapolated tail over the scores just below the threshold (`privinf.inference.tails`).
    """

    beyond: float
    ratio: float

    @classmethod
    def from_clip(cls, clip: Clip, n: int) -> ScoreTail:
        """Return that of a clip of n scores."""
        return cls(clip.cut / n, clip.ratio)


def tail_notes(clip: Clip | None, n: int, targets: int) -> tuple[Note, ...]:
    """Return the notes on the target and on scores beyond the clipping threshold."""
    if clip is None:
        return (Note(ROBUST_NOTE),)
    tail = ScoreTail.from_clip(clip, n)
    text = MEAN_NOTE if tail.beyond > 0.0 else UNCLIPPED_NOTE
    notes = [Note(text.format(clip.high / math.sqrt(targets), 100.0 * tail.beyond, tail.ratio))]
    if tail.ratio > HEAVY:
        notes += must_read(sentence(HEAVY_TAIL.format(tail.ratio)))
    return tuple(notes)


@dataclass(frozen=True, slots=True, kw_only=True)
class MissedColumnTest:
    """Test that no column outside the fit has an effect.

    Attributes
    ----------
    column : str
        The column outside the fit that stood out most.
    statistic : float
        T, its size over its standard error.
    pvalue : float
        By Bonferroni over all columns outside the fit.
    columns : int
        Number of these.
    kept : int
        Columns that the fit keeps.
    standing_out : int
        Columns other than the kept ones that stood out: they joined here, or were selected and dropped.
    found : tuple of str
        Columns that joined the fit here: intervals allow for them.
    exhausted : bool
        Whether the last that was tested still stood out, so that more are likely to: intervals come with a
        warning.
    seen_from : float
        Effect, in standard errors without privacy, that is detected with probability 0.8 (with all columns as
        targets: in their own standard errors).
    correlation : float
        Correlation with a target from which on a column is among its neighbors; 1 if it had none selected.
    bias : tuple of float
        Bias of each target's coefficient, in user units, due to one column with an effect just below
        `seen_from` and a correlation just below `correlation`.
    bias_in_errors : float
        The largest of these in standard errors of the target.
    faint : int
        Columns that a fit chose itself and that are below `seen_from`; three and more bring a warning.
    """

    column: str
    statistic: float
    pvalue: float
    columns: int
    kept: int
    standing_out: int
    found: tuple[str, ...]
    exhausted: bool
    seen_from: float
    correlation: float
    bias: tuple[float, ...]
    bias_in_errors: float
    faint: int = 0

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> MissedColumnTest:
        """Return the test that `settings` describe."""
        plain: dict[str, Any] = {name: float(settings[name]) for name in NUMBERS}
        plain |= {name: int(settings[name]) for name in INTEGERS}
        bias = tuple(float(value) for value in settings["bias"])
        columns = tuple(str(name) for name in settings["found"])
        exhausted = bool(settings["exhausted"])
        plain["faint"] = int(settings.get("faint", 0))
        return cls(column=str(settings["column"]), bias=bias, found=columns, exhausted=exhausted, **plain)

    def settings(self) -> dict[str, Any]:
        """Return everything as plain numbers and texts."""
        return asdict(self) | {"bias": list(self.bias), "found": list(self.found)}

    @property
    def rejects(self) -> bool:
        """Whether columns outside the fit matter, at the level of 5%."""
        return self.pvalue < LEVEL

    @property
    def doubtful(self) -> bool:
        """Whether more columns are likely to matter than were found: intervals come with a warning."""
        return self.exhausted or self.faint >= MANY_FADING

    @property
    def ranked_notes(self) -> tuple[Note, ...]:
        """The notes; the first must be read where columns are likely to have been missed."""
        rank: NoteRank = "must-read" if self.doubtful else "detail"
        return (Note(self.note, rank), *map(Note, self.details))

    @property
    def note(self) -> str:
        """One sentence with the result of the test."""
        if self.exhausted:
            least = self.kept + self.standing_out
            return EXHAUSTED_SEARCH.format(self.kept, self._out, self.statistic, self.pvalue, least)
        if self.doubtful:
            return FADING.format(self.faint, self.kept + len(self.found), self.seen_from)
        return self._outcome

    @property
    def details(self) -> tuple[str, ...]:
        """Further sentences: on what the test could detect, and on what smaller effects can do."""
        if self.exhausted:
            return TESTED_COLUMNS.format(self.columns), NOT_SPARSE
        bias = BIAS.format(self.correlation, self.bias_in_errors)
        texts = [
            *([self._outcome] if self.doubtful else []),
            DETECTABLE_EFFECT.format(self.seen_from, DETECTION_PROBABILITY),
            bias if self.correlation < 1.0 else CORRELATIONS_NOT_TESTED,
        ]
        if self.standing_out > 0 and not self.found:
            texts.append(DROPPED_BUT_LARGE.format(self.standing_out))
        return tuple(texts)

    @property
    def _outcome(self) -> str:
        """The columns that joined the fit, or else the one that stood out most."""
        if self.found:
            return ADDED_COLUMNS.format(self.kept, self._out, self.statistic, self.pvalue, self.columns)
        return NO_OMITTED_COLUMNS.format(self.columns, self.column, self.statistic, self.pvalue)

    @property
    def _out(self) -> str:
        names = list(dict.fromkeys([*self.found, self.column] if self.exhausted else self.found))
        return f"{', '.join(map(repr, names))} stand{'s' * (len(names) < 2)} out"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SparseColumns:
    """The columns that a sparse fit ended with.

    Attributes
    ----------
    kept : sequence of int
        Kept columns, with or without those that were found later.
    ratios : mapping of int to float
        Coefficients over their errors, of all columns in the fit.
    automatic : bool
        Whether all kept columns stood out: a number that was requested is filled up.
    """

    kept: Sequence[int]
    ratios: Mapping[int, float]
    automatic: bool


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TargetDetection:
    """Bias of the intervals of k targets due to effects below the detection limit.

    Attributes
    ----------
    detection_limit, correlation : float
        From where on effects, in standard errors without privacy, and correlations with targets are found.
    sampling, errors : ndarray, shape (k,)
        Standard errors of the targets: without privacy, and total.
    unit : ndarray, shape (k,)
        Divisors of the targets' coefficients.
    """

    detection_limit: float
    correlation: float
    sampling: Floats
    errors: Floats
    unit: Floats

    @classmethod
    def without(cls, detection_limit: float) -> TargetDetection:
        """Return that of no target."""
        nothing = np.empty(0)
        return cls(
            detection_limit=detection_limit, correlation=1.0, sampling=nothing, errors=nothing, unit=nothing
        )

    @property
    def bias(self) -> Floats:
        """Bias that an effect just below both may give each target, shape (k,)."""
        return self.correlation * self.detection_limit * self.sampling


@dataclass(frozen=True, slots=True, kw_only=True)
class Detection:
    """Detection limits of the selections of a secure fit.

    Attributes
    ----------
    releases : tuple of SelectionRelease
        Every release that columns were selected from, in order.
    unseen : int
        Number of the `sparsity` possible signals that do not stand out: this many may be missed.
    bias : float
        Bound on their effect on an interval, in standard errors.
    crowded : bool
        Whether columns other than the kept ones stand out.
    hidden : bool
        Whether the noise of the selection's Gram matrix is as large as its smallest eigenvalue.
    """

    releases: tuple[SelectionRelease, ...]
    unseen: int
    bias: float
    crowded: bool
    hidden: bool

    @property
    def weak(self) -> bool:
        """Whether intervals may be wrong."""
        return self.bias > HARMLESS_BIAS or self.crowded or self.hidden

    def settings(self) -> dict[str, Any]:
        """Return everything as plain numbers and texts."""
        plain = {
            "looks": [asdict(release) for release in self.releases],
            "unseen": self.unseen,
            "bias": self.bias,
        }
        return plain | ({"missed": self.warning} if self.weak else {})

    @property
    def warning(self) -> str:
        """One sentence that a reader of the intervals must know."""
        if self.hidden:
            return HIDDEN_GRAM
        if self.bias <= HARMLESS_BIAS:
            return TOO_MANY_STAND_OUT
        return MAY_BE_MISSED.format(self.unseen, self.bias)

    @property
    def details(self) -> tuple[str, ...]:
        """Further sentences: the cause, and what to do."""
        if self.hidden:
            return (FAR_FROM_CONVERGED,)
        if self.bias <= HARMLESS_BIAS:
            return (CAUSE_OF_MANY,)
        selection = sharpest(self.releases, Labels.SELECTION)
        assert selection is not None
        return DETECTED_FROM.format(selection.found_from), REMEDY


def cost_notes(releases: Sequence[SelectionRelease], columns: int) -> tuple[str, ...]:
    """Return sentences on the noise of secure sums from which columns were selected."""
    texts = [SELECTED_FROM_SUMS.format(columns), NOISE_GROWS]
    for label, unit in (
        (Labels.SELECTION, "a covariance with the residuals"),
        (Labels.NEIGHBOURS, "a correlation"),
    ):
        if (selection := sharpest(releases, label)) is not None:
            title = readable(label).capitalize()
            texts.append(
                f"{title}: {selection.entries} noisy numbers, with noise of standard deviation "
                f"{selection.sd:.3g} in each; {unit} is detected from {selection.found_from:.3g} on."
            )
    return tuple(texts)
