r"""Rare levels of a factor in a curved fit: which ones the noise hides, and the last step without them.

The last step must be short, because its Hessian is a secant towards a preliminary step. A level that few rows
have can make it long on its own: its rows say little of its coefficient, so noise moves it far. The question
is what that does to the other coefficients. In z, the columns in scaled units, let r be the indicator of the
level, o the other columns, H the Hessian with weights w, and D the distance to the solution without noise.
A row's score changes by mu(eta + x'D) - mu(eta), of which H D has w x'D. With e the difference, the other
coefficients are wrong by

.. math:: S^{-1} E[(x_o - h)\, e], \quad h = H_{or} / H_{rr}, \quad S = H_{oo} - H_{or} H_{rr}^{-1} H_{ro}.

- **Rows without the level** have x_r = 0: their predictors move by x_o'D_o, however long D_r is.
- **Rows of the level** have x_r = 1, so h is the mean of their x_o with weights w, and (x_o - h) w has mean
  0: any part of e that is a multiple of w is taken by the level's own coefficient. D_r moves all these rows
  by the same t. In a count model mu(eta + t) - mu(eta) is a multiple of w, and nothing is left for any t. In
  a logistic model let f be this difference. To first order in s, the standard deviation of eta in the level,
  the rest is s |w(eta + t) - w(eta) - f w'/w|, which is at most s (1/4 + |f|), as |w'| <= w. With pi the
  share of the level and v the mean curvature, the bias of the others is then at most

  .. math:: \sqrt{n / v}\; \pi s\, (1/4 + |f|)

  of the standard errors that they have without noise. For 117 of 12,000 rows, s = 0.35, v = 0.1 and a level
  in which 0.2 more of the rows have a 1 than at the start of the step, this is 0.5, if x_o and eta are
  perfectly correlated in the level. Intervals do not have this part: they cover in simulations
  (benchmarks/results/rare_levels.md).

So the rows without the level decide whether the other coefficients have intervals. How far noise moves D_r is
not part of e. It multiplies the noise of H_or, which draws of the coefficients include. The square of the
step's move of predictors is

.. math:: D^T H D = D_o^T S D_o + H_{rr} (D_r + h^T D_o)^2,

whose first term is judged, with the same limits as other steps.

**The length.** If noise hides the curvature of a level, rounds of counts shrink its step by itself
(`privinf.glm.curved.newton_move`). In other rounds, a level with a strong noise also keeps the steps of the
other coefficients short: they are shrunk by the noise of all directions together, and the last step then has
nearly all of the way to the solution. In logistic fits with such a level it is four standard errors long in
all directions, though it moves predictors by 0.5 only.
Its remainder is not that of a Newton step. With the secant towards the preliminary step D', e is of the
size w' (x'D) x'(D - D') / 2, so what counts is by how much D - D' moves predictors: about 0.1 in these fits.
The limit of the length is therefore that of a step that moves predictors by so much
(`posterior_draws.LONGEST_STEP2`). Coefficients that the step may still bias have longer intervals, as in all
fits (`posterior_draws.secant_bias`).

**Which levels.** All numbers are released, or made from releases. A level is rare if its indicator's share by
the released moments is below `RARE`. The noise hides its coefficient if half the width of the 95% interval by
draws, over 1.96, is above `HIDDEN_ERROR` on the scale of the log odds or the log mean: then the noise alone
moves the predictors of its rows by so much that the curvature there changes by about its own size, and no
secant is right. Such a coefficient is flagged as weakly identified, in every fit. Its interval is wide, or
unbounded if the fit converged only without it. A level that is rare and not hidden is judged with all other
columns at first. If the step is too long with it and short enough without it, it is taken for hidden, with an
unbounded interval (`left_out_levels`): the rows without the level decide here too.
"""

from __future__ import annotations

import math

import numpy as np

from privinf.glm.column_moments import rare_indicators
from privinf.glm.curved import OneStepRelease, preliminary_step
from privinf.glm.posterior_draws import (
    PosteriorDraws,
    longest_step2,
    moves_too_far,
    squared_length,
)
from privinf.typing import Flags, Floats

# Standard error of a rare level's coefficient, log odds or log mean, above which the noise hides it: the
# curvature changes by its own size where predictors move by 1.
HIDDEN_ERROR = 1.0
NORMAL_QUANTILE = 1.959963984540054  # half the length of a normal 95% interval, in standard errors
TAIL = 0.025  # of draws at each end of a 95% interval


def hidden_levels(
    step: OneStepRelease, posterior: PosteriorDraws, constant: int | None, indicators: Flags
) -> Floats:
    """Return the standard errors of the rare levels' coefficients that the noise hides, 0 of others, (p,)."""
    errors = rare_errors(step, posterior, constant, indicators)
    return np.where(errors > HIDDEN_ERROR, errors, 0.0)


def rare_errors(
    step: OneStepRelease, posterior: PosteriorDraws, constant: int | None, indicators: Flags
) -> Floats:
    """Return the standard errors of the rare levels' coefficients, 0 of others, (p,).

    A standard error is half the length of the 95% interval by draws in normal quantiles, which a few draws
    with a nearly singular Hessian do not move. Posteriors have a prior instead, and no errors of rare levels.
    """
    errors = np.zeros(len(posterior.params))
    rare = rare_indicators(step.walk.second, constant, indicators)
    if posterior.weak or not rare.any():
        return errors
    ends = np.quantile(posterior.draws[:, rare], [TAIL, 1.0 - TAIL], axis=0)
    errors[rare] = (ends[1] - ends[0]) / (2.0 * NORMAL_QUANTILE)
    return errors


def left_out_levels(
    step: OneStepRelease, posterior: PosteriorDraws, constant: int | None, indicators: Flags
) -> Floats:
    """Return the standard errors of rare levels without which the last step is short, 0 of others, (p,).

    They are the hidden levels if that is enough, or if nothing is. Otherwise rare levels are added, those
    with the largest standard errors first.
    """
    errors = rare_errors(step, posterior, constant, indicators)
    hidden = errors > HIDDEN_ERROR
    left_out = hidden.copy()
    for level in np.argsort(-errors)[: np.count_nonzero(errors)]:
        if converged_without(step, posterior, left_out):
            return np.where(left_out, errors, 0.0)
        left_out[level] = True
    enough = converged_without(step, posterior, left_out)
    return np.where(left_out if enough else hidden, errors, 0.0)


def converged_without(step: OneStepRelease, posterior: PosteriorDraws, hidden: Flags) -> bool:
    """Return whether the last step is short enough for intervals of coefficients that are not `hidden`."""
    if posterior.converged or not hidden.any() or hidden.all():
        return posterior.converged
    shift, beyond, length2 = step_of_others(step, posterior, hidden)
    return not moves_too_far(shift, step.walk.walking) and length2 <= longest_step2(beyond)


def step_of_others(
    step: OneStepRelease, posterior: PosteriorDraws, hidden: Flags
) -> tuple[float, float, float]:
    """Return how long the last step is without the `hidden` coefficients.

    Returns
    -------
    shift : float
        By how much D_o moves linear predictors, root mean square.
    beyond : float
        By how much D_o - D'_o does.
    length2 : float
        Mean square of D_o in standard errors.
    """
    others = ~hidden
    values, vectors = step.hessian.floored()
    back = step.place.transform.T
    inverse = (vectors / values) @ vectors.T
    move = inverse @ step.score.mean
    own_inverse = (back @ inverse @ back.T)[np.ix_(others, others)]  # of S, a block of the inverse of H
    level = max(float(np.trace(step.hessian.mean)) / len(move), step.hessian.floor / len(move))

    def moved(part: Floats) -> float:
        return math.sqrt(max(float(part @ np.linalg.solve(own_inverse, part)), 0.0) / level)

    of_others = (back @ move)[others]
    beyond = of_others - (back @ preliminary_step(step.score, step.place))[others]
    covariance = np.atleast_2d(np.cov(posterior.draws[:, others].T))
    return moved(of_others), moved(beyond), squared_length(of_others, covariance) / len(of_others)
