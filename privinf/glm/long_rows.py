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
from privinf.glm.one_sided import bound_distances, far_direction, reaches_one_side
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
    if outcome.hidden is None or outcome.hidden.along is None or constant is None:
        return LongRows(levels=[], directions=np.empty((0, rows.p)))
    mean, nearer, farther = bound_distances(outcome.walk.second, constant, rows.limits)
    indicators = np.array([column.indicator for column in design.columns])
    is_rare = indicators & (nearer + farther >= LENGTH_RATIO * rows.p * nearer)
    is_far = ~indicators & reaches_one_side(nearer, farther)
    shares = np.where(is_rare, 1.0, ONE_SIGN)
    directions = [
        shares[j] * far_direction(mean, rows.limits, j, outcome.place.transform)
        for j in np.flatnonzero(is_rare | is_far).tolist()
    ]
    return LongRows(
        levels=np.flatnonzero(is_rare).tolist(),
        directions=np.reshape(directions, (len(directions), rows.p)),
    )


def tail_bias(rows: GlmRows, outcome: OneStepRelease, influence: Floats) -> tuple[Floats, list[int]]:
    """Return the bias of coefficients that clipped scores of a count model may cause, and its rare levels.

    Parameters
    ----------
    rows : GlmRows
    outcome : OneStepRelease
        With `hidden`.
    influence : ndarray, shape (p, p)
        Of scores on coefficients.

    Returns
    -------
    bias : ndarray, shape (p,)
    levels : list of int
        Places of the rare levels along which all of the tail is allowed for.
    """
    assert outcome.hidden is not None
    tail = long_rows(rows, outcome)
    along = outcome.hidden.bias_along(influence, tail.directions)
    return np.maximum(outcome.hidden.bias(influence), along), tail.levels


def note_of_levels(names: tuple[str, ...], levels: list[int], bias: Floats) -> tuple[Note, ...]:
    """Return the note on the rare level with the largest bias, in standard errors."""
    worst = max(levels, key=lambda j: bias[j], default=None)
    if worst is None or bias[worst] < NOTABLE:
        return ()
    return must_read(LEVELS.format(names[worst], float(bias[worst])), columns=(names[worst],))
