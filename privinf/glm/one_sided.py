r"""Clipped scores that all move a least squares fit in one direction.

A score v e is clipped if its length exceeds C. The fit loses ``sum (|v| |e| - C)+ q``, q = v sign(e)/|v|, and
the counts estimate its total length X(C). The signed sum of the scores just below C replaces it, as if the
signs of both were alike. They are not if long scores have one sign only: if a response is 1 in 10% of the
rows and a column is skewed to the right, rows beyond C have a positive residual and a large value, but below
C there are rows of both sides of the column's mean. Then the loss is close to X(C) d, d the unit vector along
which rows with large values of the column lie. Public bounds and released moments show this case: both the
response and the column reach much farther from their means on one side than on the other, and residuals are
short enough that scores are beyond C only in rows far out. With longer residuals, scores of rows of both
sides are beyond C, and the signed sum below C is a better guess of the loss. Intervals in this case
allow for a bias of ``(X(C) + sd) |R d|/n``, R the influence of scores on coefficients, sd that of X(C).
"""

from __future__ import annotations

import numpy as np

from privinf.glm.least_squares import OneStepFit
from privinf.glm.rows import GlmRows
from privinf.results.notes import Note, must_read
from privinf.typing import Floats

# Distance from the mean of the response to its farther bound, relative to the nearer one. Residuals of the
# nearer side are too short for a clip of several times the typical size.
RESPONSE_RATIO = 3.0
COLUMN_RATIO = 2.5  # the same of a column
COLUMN_REACH = 4.0  # and its distance to the farther bound, in standard deviations of the column
LONGEST_RESIDUAL = (
    15.0  # distance to the response's farther bound, in typical residuals, up to which it applies
)
# Length of a row with which a residual of that size is beyond C, relative to the longest row on the nearer
# side of the column. Few rows are at the bound, so that less than 1 suffices.
ROW_RATIO = 0.6
NOTABLE_BIAS = 0.5  # standard errors from which on a note names the column
ONE_SIDED = (
    "the values of {0!r} and of the response are far from their means on one side only, so clipping of large "
    "scores shifts the coefficient of {0!r} in one direction, for which the interval allows {1:.1f} standard "
    "errors; {2}"
)
OF_TWO_VALUES = "MomentOLS, which does not clip scores, can be more accurate for a response of 0 and 1"
OF_NUMBERS = 'use tighter bounds, logarithms, more budget or residual_clip="bounds"'


def one_sided_columns(rows: GlmRows, one_step: OneStepFit) -> list[int]:
    """Return the places of columns along which long scores have one sign; none without a constant.

    Indicators are not among them: `privinf.glm.advice.few_records` names those of few records.
    """
    constant = rows.design.constant
    if constant is None or one_step.clip.beyond == 0.0:
        return []
    gram = one_step.initial.gram
    mass = max(float(gram[constant, constant]), 1e-300)
    mean = gram[constant] / mass
    response = float(one_step.initial.theta @ mean)
    _, _, low, high = rows.response_units
    near, far = sorted((response - low, high - response))
    longest = far / one_step.initial.unit
    if far < RESPONSE_RATIO * max(near, 0.0) or longest > LONGEST_RESIDUAL:
        return []
    sd = np.sqrt(np.maximum(np.diag(gram) / mass - mean**2, 1e-300))
    nearer, farther = (1.0 - np.abs(mean)) / sd, (1.0 + np.abs(mean)) / sd
    skewed = (farther >= COLUMN_REACH) & (farther >= COLUMN_RATIO * nearer)
    skewed &= one_step.clip.high / longest >= ROW_RATIO * np.sqrt(1.0 + nearer**2)
    return [
        j
        for j, column in enumerate(rows.design.columns)
        if j != constant and skewed[j] and not column.indicator and not two_valued(rows, j)
    ]


def two_valued(rows: GlmRows, j: int) -> bool:
    """Return whether a column has the bounds 0 and 1, as an indicator has."""
    return bool(rows.design.low[j] == 0.0 and rows.design.high[j] == 1.0)


def directions(rows: GlmRows, one_step: OneStepFit, columns: list[int]) -> Floats:
    """Return the unit vectors along which rows far out in each of the columns lie, whitened, shape (m, p).

    Such a row has the farther bound of its column, and the means of the others.
    """
    constant = rows.design.constant
    gram = one_step.initial.gram
    found = np.empty((len(columns), len(gram)))
    for place, j in enumerate(columns):
        row = gram[constant] / gram[constant, constant]
        row[j] = -1.0 if row[j] > 0.0 else 1.0
        far = one_step.initial.whitening @ row
        found[place] = far / np.linalg.norm(far)
    return found


def note_of(rows: GlmRows, columns: list[int], bias: Floats) -> tuple[Note, ...]:
    """Return the note on the column whose coefficient has the largest bias, in standard errors."""
    worst = max(columns, key=lambda j: bias[j], default=None)
    if worst is None or bias[worst] < NOTABLE_BIAS:
        return ()
    name = rows.design.names[worst]
    design = rows.design
    remedy = OF_TWO_VALUES if (design.y_low, design.y_high) == (0.0, 1.0) else OF_NUMBERS
    return must_read(ONE_SIDED.format(name, float(bias[worst]), remedy), columns=(name,))
