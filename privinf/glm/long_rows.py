r"""Negative binomial fits in which a few long rows make up the tail of the scores.

The final release clips scores at C, and counts estimate the summed excess X(C) of the scores beyond it.
Clipped scores of negative binomial counts have the sign of their row v, since only large counts are beyond C.
By the model, the mean of these rows has the direction of the mean of all v, which moves the constant alone.
Long rows are clipped more often, so this is not so where a few rows are much longer than the others:

- **A rare level.** Rows with a level of the share pi have the length 1/sqrt(pi) in whitened units, the others
  about sqrt(p). Where 1/pi is at least 2 p, nearly all clipped scores may be those of the level, so an
  interval allows for a bias of ``X(C) |R d|/n``, d the direction of a row with the level and with the means
  of the other columns, R the influence of scores on coefficients.
- **A column that reaches far to one side.** Rows far out in it are long too, but a row may be long for other
  reasons. As along the mean of v, a quarter of the tail is taken to have their direction.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privinf.glm.curved import ONE_SIGN, OneStepRelease
from privinf.glm.one_sided import COLUMN_RATIO, COLUMN_REACH
from privinf.glm.posterior_draws import column_moments
from privinf.glm.rows import GlmRows
from privinf.results.notes import Note, must_read
from privinf.typing import Floats

LENGTH_RATIO = 2.0  # of the squared length of a row with the level, 1/pi, to the mean of all, p
NOTABLE = 1.0  # standard errors of a level's bias from which on a note names it
LEVELS = (
    "few records have the level {0!r}, and their large counts are clipped, so that its coefficient may be "
    "too low. The interval allows for a bias of {1:.1f} standard errors; merge the level with another one "
    "(pi.Factor([...], other=...)), or use Poisson"
)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LongRows:
    """Directions that clipped scores may have.

    Attributes
    ----------
    levels : list of int
        Places of indicators of rare levels.
    directions : ndarray, shape (m, p)
        Of them and of columns that reach far, in whitened units. The length is the share of the tail.
    """

    levels: list[int]
    directions: Floats


def long_rows(rows: GlmRows, outcome: OneStepRelease) -> LongRows:
    """Return rare levels and far columns of negative binomial counts; none in other fits."""
    design = rows.design
    constant = design.constant
    p = rows.p
    if outcome.hidden is None or outcome.hidden.along is None or constant is None:
        return LongRows(levels=[], directions=np.empty((0, p)))
    mean, variance = column_moments(outcome.walk.second, constant)
    mean[constant] = 1.0
    low, high = rows.limits
    levels: list[int] = []
    directions = []
    for j, column in enumerate(design.columns):
        if j == constant or variance[j] <= 0.0:
            continue
        near, far = sorted((abs(mean[j] - low[j]), abs(high[j] - mean[j])))
        if column.indicator:
            is_long = far >= near and far + near >= LENGTH_RATIO * p * near
            levels += [j] if is_long else []
            share = 1.0
        else:
            is_long = far >= COLUMN_REACH * np.sqrt(variance[j]) and far >= COLUMN_RATIO * near
            share = ONE_SIGN
        if is_long:
            row = mean.copy()
            row[j] = high[j] if high[j] - mean[j] > mean[j] - low[j] else low[j]
            direction = outcome.place.transform @ row
            directions.append(share * direction / np.linalg.norm(direction))
    return LongRows(levels=levels, directions=np.reshape(directions, (len(directions), p)))


def note_of_levels(names: tuple[str, ...], levels: list[int], bias: Floats) -> tuple[Note, ...]:
    """Return the note on the rare level with the largest bias, in standard errors."""
    worst = max(levels, key=lambda j: bias[j], default=None)
    if worst is None or bias[worst] < NOTABLE:
        return ()
    return must_read(LEVELS.format(names[worst], float(bias[worst])), columns=(names[worst],))
