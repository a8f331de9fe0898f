"""What the releases of a fit say about its intervals, and what would help: footnotes of the summary."""

from __future__ import annotations

import numpy as np

from privinf.glm.rows import GlmRows
from privinf.glm.second_look import SecondLook
from privinf.inference.estimate import Estimate
from privinf.inference.score_test import Identification
from privinf.typing import Floats

# From this ratio of what lies beyond the clip to the layer below it on, intervals rest on an assumption.
HEAVY = 0.7
HEAVY_TAIL = (
    "heavy tail (lambda {:.2f}): much of the scores lies beyond what noisy counts can see, and the intervals "
    "take the tail to go on as it was seen to; more rows or budget see more, tighter bounds of the response "
    'cost less, and residual_clip="bounds" assumes nothing, at the price of noise for the whole range'
)
CUT = (
    "About {:.0f} of {} records passed the clip of the scores and counted with its size; the intervals allow "
    "for a shift of up to {:.2f} standard errors of a coefficient from what lies beyond."
)
STEP = "The last step was {:.1f} of its own standard errors long (root mean square)."
WEAK = "Identification is weak: the noise hides the direction of {}. {}"
CAUSES = {
    "level": "{0} is 1 in few records: merge it with another level, or leave it out.",
    "product": "{0} is a product of columns: centre its columns (I(x - c)), or leave it out.",
    "bounds": "The bounds of {0} are wide against its values: state tighter public bounds.",
    "alike": "{0} goes along with other columns: leave one of them out.",
    "many": "{1} coefficients are many for {2} records at this budget: use fewer columns, or spend more.",
}
# Spread, in scaled units, below which bounds are called wide or levels rare.
NARROW = 0.05


def notes_of(
    rows: GlmRows, look: SecondLook, estimate: Estimate, strength: Identification
) -> tuple[str, ...]:
    """Return the footnotes of least squares by a second look."""
    notes = []
    if strength.weak:
        name, cause = weakest_column(rows, look.pilot.gram, look.pilot.edge)
        notes.append(WEAK.format(name, CAUSES[cause].format(name, rows.p, rows.total)))
    if look.clip.ratio > HEAVY:
        heavy = HEAVY_TAIL.format(look.clip.ratio)
        notes.append(f"H{heavy[1:]}.")
    if estimate.bias is not None:
        shift = float((estimate.bias / estimate.bse).max())
        notes.append(CUT.format(look.clip.cut, rows.total, shift))
    if look.score_sd > 0.0:
        notes.append(STEP.format(look.length))
    return tuple(notes)


def weakest_column(rows: GlmRows, gram: Floats, edge: float) -> tuple[str, str]:
    """Return the column that most of the weakest direction of a Gram matrix is made of, and the likely cause.

    Parameters
    ----------
    rows : GlmRows
    gram : ndarray, shape (p, p)
        A released Gram matrix, scaled units.
    edge : float
        Operator norm of its noise.
    """
    design = rows.design
    vector = np.linalg.eigh(gram)[1][:, 0].copy()
    if design.constant is not None:
        vector[design.constant] = 0.0
    place = int(np.argmax(np.abs(vector)))
    mean = 0.0 if design.constant is None else float(gram[design.constant, place])
    spread, column = float(gram[place, place]) - mean**2, design.columns[place]
    cause = "many" if rows.p > 10 else "alike"
    if spread < max(NARROW, edge):
        cause = "bounds"
        if column.indicator:
            cause = "level"
        elif len(column.pieces) > 1:
            cause = "product"
    return design.names[place], cause
