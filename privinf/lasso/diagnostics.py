"""Notes of a debiased lasso: nodewise regressions of the targets, and the tail of their scores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from privinf.inference.tails import HEAVY, HEAVY_TAIL, Clip
from privinf.results.notes import Note, must_read, sentence
from privinf.typing import Flags, Floats

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
    "from noisy counts of large scores. About {:.2g}% of the records had larger scores. The part of the "
    "scores beyond the threshold is extrapolated, and estimated at {:.2g} times the part just below it."
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
