"""What results say of the precision columns of their targets, and of the tail of their scores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from privinf.inference.tails import HEAVY, HEAVY_TAIL, Clip
from privinf.results.notes import Note, must_read, sentence
from privinf.typing import Flags, Floats

EXPLAINED_NOTE = (
    "(R2 of x) estimates the share of a target's variance that its nodewise regression "
    "explains; `explained_shares` has intervals."
)
EXHAUSTED = (
    "Not reliable for {}: even the quarter of the neighbors with the smallest coefficients "
    "explains a part of the target, so more columns are probably correlated with it than "
    "were selected. The coefficient includes a part of the effect of each correlated "
    "column that was left out. Name fewer targets, increase the budget, or raise "
    "precision_sparsity=."
)
ASTRAY_COLUMN = (
    "Not reliable for {}: the nodewise regression did not converge. The noise of its Gram "
    "matrix is as large as the smallest eigenvalue, or its last step was long. Name fewer "
    "targets, increase the budget, or lower precision_sparsity=."
)
HEAVY_COLUMN = (
    "Not reliable for {}: the residuals of its nodewise regression have a long tail (as "
    "for rare levels), which clipping cuts off. The coefficient therefore includes a part "
    "of the effects of neighbors that are not in the fit. Use logarithms or narrower "
    "bounds, or increase the budget."
)
MEAN_NOTE = (
    "Target: the mean. Scores are clipped at {:.3g} times their typical size. By noisy counts, about {:.2g}% "
    "of the records are in the clipped tail, which is {:.2f} times as heavy as the tail just below the "
    "clipping threshold."
)
ROBUST_NOTE = (
    "Target: robust. Every score is clipped at the threshold that is optimal for normal "
    "errors. If errors are skewed and their size depends on the columns, the coefficients "
    "are not those of the mean."
)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class NodewiseDiagnostics:
    """How well the precision columns of k targets are known.

    Attributes
    ----------
    picked : tuple of int, length k
        Neighbours of each target beside the columns of the fit.
    explained : ndarray, shape (k,)
        Share of the target's mean square that the other columns of its precision column explain.
    explained_sd : ndarray, shape (k,)
        Its noise.
    last : ndarray, shape (k,)
        Share that the smallest quarter of the picked neighbours explains beside the others.
    exhausted, unsettled, heavy : ndarray of bool, shape (k,)
        Whether that is material, beyond noise; the regression did not get there; its clips hide a tail.
    """

    picked: tuple[int, ...]
    explained: Floats
    explained_sd: Floats
    last: Floats
    exhausted: Flags
    unsettled: Flags
    heavy: Flags

    def only(self, clear: Flags) -> NodewiseDiagnostics:
        """Return the marks of some of the targets."""
        return NodewiseDiagnostics(
            picked=tuple(count for count, keep in zip(self.picked, clear, strict=True) if keep),
            explained=self.explained[clear],
            explained_sd=self.explained_sd[clear],
            last=self.last[clear],
            exhausted=self.exhausted[clear],
            unsettled=self.unsettled[clear],
            heavy=self.heavy[clear],
        )

    def warning(self, names: Sequence[str]) -> str | None:
        """Return what a reader of the intervals of these targets must know, if anything."""
        texts = []
        marks = (self.exhausted, EXHAUSTED), (self.unsettled, ASTRAY_COLUMN), (self.heavy, HEAVY_COLUMN)
        for marked, text in marks:
            if marked.any():
                texts.append(text.format(", ".join(np.array(names)[marked])))
        return " ".join(texts) or None

    def settings(self, names: Sequence[str]) -> dict[str, Any]:
        """Return everything as plain numbers and texts."""
        plain = {
            "neighbours": list(self.picked),
            "explained": self.explained.tolist(),
            "explained_sd": self.explained_sd.tolist(),
            "last": self.last.tolist(),
        }
        return plain | ({} if (warning := self.warning(names)) is None else {"warning": warning})


@dataclass(frozen=True, slots=True)
class ScoreTail:
    """What noisy counts say of the scores' tail.

    Attributes
    ----------
    beyond : float
        Share of the records whose scores pass the clip, and count with its size.
    ratio : float
        lambda: what lies beyond the clip, over what the layer below it holds (`privinf.inference.tails`).
    """

    beyond: float
    ratio: float

    @classmethod
    def of(cls, clip: Clip, n: int) -> ScoreTail:
        """Return that of a clip of n scores."""
        return cls(clip.cut / n, clip.ratio)


def tail_notes(clip: Clip | None, n: int, targets: int) -> tuple[Note, ...]:
    """Return what the summary says of the target and of scores beyond the clip."""
    if clip is None:
        return (Note(ROBUST_NOTE),)
    tail = ScoreTail.of(clip, n)
    notes = [Note(MEAN_NOTE.format(clip.high / math.sqrt(targets), 100.0 * tail.beyond, tail.ratio))]
    if tail.ratio > HEAVY:
        notes += must_read(sentence(HEAVY_TAIL.format(tail.ratio)))
    return tuple(notes)
