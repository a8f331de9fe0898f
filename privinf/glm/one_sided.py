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

from privinf.glm.advice import declared_two_valued
from privinf.glm.column_moments import column_moments
from privinf.glm.least_squares import OneStepFit
from privinf.glm.rows import GlmRows
from privinf.results.notes import Note, must_read
from privinf.typing import Flags, Floats

# Distance from the mean of the response to its farther bound, relative to the nearer one. Residuals of the
# nearer side are too short for a clip of several times the typical size.
RESPONSE_RATIO = 3.0
COLUMN_RATIO = 2.5  # the same of a column
COLUMN_REACH = 4.0  # and its distance to the farther bound, in standard deviations of the column
# Distance from the mean of the response to its farther bound, in typical residuals, up to which it applies.
LONGEST_RESIDUAL = 15.0
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


def bound_distances(
    second: Floats, constant: int, limits: tuple[Floats, Floats]
) -> tuple[Floats, Floats, Floats]:
    """Return the means of columns, and how far their nearer and their farther bounds are from these.

    Parameters
    ----------
    second : ndarray, shape (p, p)
        Noisy second moments of the columns.
    constant : int
        Place of the constant.
    limits : (low, high), ndarrays of shape (p,)
        Bounds of the columns, in the same units.

    Returns
    -------
    mean : ndarray, shape (p,)
        1 of the constant.
    nearer, farther : ndarray, shape (p,)
        In standard deviations of the column; nan of the constant and where the noise hides the variance.
    """
    mean, variance = column_moments(second, constant)
    mean[constant] = 1.0
    low, high = limits
    sd = np.sqrt(np.where(variance > 0.0, variance, np.nan))
    below, above = np.maximum(mean - low, 0.0), np.maximum(high - mean, 0.0)
    return mean, np.minimum(below, above) / sd, np.maximum(below, above) / sd


def reaches_one_side(nearer: Floats, farther: Floats) -> Flags:
    """Return which columns reach far, and much farther on one side of their means, shape (p,)."""
    return np.asarray((farther >= COLUMN_REACH) & (farther >= COLUMN_RATIO * nearer))


def far_direction(mean: Floats, limits: tuple[Floats, Floats], j: int, whitening: Floats) -> Floats:
    """Return the unit vector of a row with the farther bound of column j and means of the others, (p,)."""
    low, high = limits
    row = mean.copy()
    row[j] = high[j] if high[j] - mean[j] > mean[j] - low[j] else low[j]
    direction = whitening @ row
    return np.asarray(direction / np.linalg.norm(direction))


def one_sided_columns(rows: GlmRows, one_step: OneStepFit) -> tuple[list[int], Floats]:
    """Return the columns along which long scores have one sign; none without a constant.

    Indicators are not among them: `privinf.glm.advice.few_records` names those of few records.

    Returns
    -------
    columns : list of int
        Their places.
    directions : ndarray, shape (m, p)
        For each of them, the unit vector along which rows far out in it lie, in whitened units.
    """
    none: tuple[list[int], Floats] = [], np.empty((0, rows.p))
    design = rows.design
    constant = design.constant
    initial = one_step.initial
    if constant is None or one_step.clip.beyond == 0.0:
        return none
    mean, nearer, farther = bound_distances(initial.gram, constant, rows.limits)
    response = float(initial.theta @ mean)
    _, _, low, high = rows.response_units
    near, far = sorted((response - low, high - response))
    longest = far / initial.unit
    if far < RESPONSE_RATIO * max(near, 0.0) or longest > LONGEST_RESIDUAL:
        return none
    chosen = reaches_one_side(nearer, farther) & ~declared_two_valued(design)
    chosen &= one_step.clip.high / longest >= ROW_RATIO * np.sqrt(1.0 + nearer**2)
    columns = np.flatnonzero(chosen).tolist()
    directions = [far_direction(mean, rows.limits, j, initial.whitening) for j in columns]
    return columns, np.reshape(directions, (len(columns), rows.p))


def note_of(rows: GlmRows, columns: list[int], bias: Floats) -> tuple[Note, ...]:
    """Return the note on the column whose coefficient has the largest bias, in standard errors."""
    worst = max(columns, key=lambda j: bias[j], default=None)
    if worst is None or bias[worst] < NOTABLE_BIAS:
        return ()
    name = rows.design.names[worst]
    design = rows.design
    remedy = OF_TWO_VALUES if (design.y_low, design.y_high) == (0.0, 1.0) else OF_NUMBERS
    return must_read(ONE_SIDED.format(name, float(bias[worst]), remedy), columns=(name,))
