r"""Whether the rounds of a fit settled: whether its last Newton step was short enough for its intervals.

A fit ends with one Newton step D = theta^ - theta_T from the end of its rounds. Intervals account for the
error that is linear in D. They ignore the change of the curvature along the step, which is of second order:
about

.. math:: \tfrac12 \sqrt p\, m\, \sqrt{D'C^{-1}D / p}

standard errors of a coefficient at most, C the reported covariance and m the rms by which D moves linear
predictors, in units in which the curvature changes by its own size: 1 for the logistic and the Poisson model,
whose third derivative is at most their second; the clip of the residuals for the linear model, whose
curvature changes as residuals enter the clip. So a step must be short, relative to its
own standard error.

Let theta* be the solution on the rows without noise. Then theta^ = theta* + e^ with e^ the noise of the final
release, and theta_T = theta* + e_T + o, with e_T the noise of the rounds and o the remaining distance from
the start: 0 where the rounds have converged. The sampling error of theta* is common to both. It is in C
and not in D, whose covariance is that of noise alone, Cov(e^) + Cov(e_T). To measure D

- by C flags good fits: e_T has the budget of one round, a seventh of the last release's, so that where noise
  dominates D is about 2.7 reported standard errors long in a settled fit;
- by the noise alone flags fits with little noise, in the end all with none, for an o far below the sampling
  error that does no harm.

It is therefore measured by both: a fit has settled if

.. math:: D'[C + Cov(e_T)]^{-1} D / p \le 1.5^2 .

With o = 0 this is at most a chi-square over its degrees of freedom, and less as sampling error has its part
in C. Cov(e_T) follows from the rounds' public gains G and noise N: theta moves by G (score + noise), the mean
score is -H (theta - theta*) near the solution, and so

.. math:: Cov_t = (I - G H) Cov_{t-1} (I - G H)' + G N G'.

H is the final Hessian. On a batch of the rows the score has the batch's own sampling error too, which theta*
does not have: meat (B - 1)/n for B batches. Averages of iterates are followed along; momentum, and the
randomness of a sketch, are taken at their mean.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from privinf.typing import Floats

LONGEST_STEP = 1.5  # a longer last step, in its own standard errors, comes from rounds that had not converged
# Standard errors of its remainder up to which such a step still leaves 95% intervals 94% and more.
HARMLESS = 0.2
# A last step that moves linear predictors further changes the curvature, however strong the noise.
LONGEST_SHIFT = 1.0
NO_SHIFT = 1e-8  # no step at all: rounds without noise that converged


@dataclass(frozen=True, slots=True, eq=False)
class Round:
    """One step of a path: theta moved by gain (score + noise).

    Attributes
    ----------
    gain : ndarray, shape (p, p), or (p,) for a diagonal
    noise : ndarray, shape (p,)
        Variances of the noise of the mean score.
    batches : float
        B: the score was that of about n/B rows.
    """

    gain: Floats
    noise: Floats
    batches: float = 1.0


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Trajectory:
    """The rounds of a fit before its final release.

    Attributes
    ----------
    params : ndarray, shape (d,)
        theta_T: the mean of the last iterates.
    path : list of ndarray
        Stored public iterates, the start first.
    length : int
        Number of rounds.
    rounds : list of Round
        Their distributions in the coefficients that the final release is about; empty if not requested.
    averaged : int
        How many iterates `params` is the mean of.
    """

    params: Floats
    path: list[Floats]
    length: int
    rounds: list[Round]
    averaged: int = 1


def error_of_start(trajectory: Trajectory, bread: Floats, meat: Floats, n: int) -> Floats:
    """Return Cov(e_T), the covariance that the rounds' noise gave `trajectory.params`, shape (p, p).

    Parameters
    ----------
    trajectory : Trajectory
    bread, meat : ndarray, shape (p, p)
        Mean Hessian and mean outer product of the scores. Coefficients that are not among the p are taken
        as uncorrelated with them.
    n : int
        Rows.

    Returns
    -------
    ndarray, shape (p, p)
        Zeros where the rounds' steps are so long that their errors grow beyond the doubles: a last step is
        then measured by its own standard errors alone, in which it is longest.
    """
    p = len(bread)
    last = np.zeros((p, p))
    carried = np.zeros((p, p))
    mean = np.zeros((p, p))
    for number, fit_round in enumerate(trajectory.rounds, 1):
        gain = np.diag(fit_round.gain) if fit_round.gain.ndim == 1 else fit_round.gain
        keep = np.eye(p) - gain @ bread
        noise = np.diag(fit_round.noise) + max(fit_round.batches - 1.0, 0.0) / n * meat
        with np.errstate(over="ignore", invalid="ignore"):
            last = keep @ last @ keep.T + gain @ noise @ gain.T
            carried = keep @ carried
            if number > trajectory.length - trajectory.averaged:
                mean = mean + carried + carried.T + last
                carried = carried + last
    return np.asarray(mean / trajectory.averaged**2) if np.isfinite(mean).all() else np.zeros((p, p))


@dataclass(frozen=True, slots=True)
class Convergence:
    """How long the last step of a fit was.

    Attributes
    ----------
    length : float
        Root mean square over coefficients, in its own standard errors.
    shift : float
        Rms by which it moved linear predictors, in units in which the curvature changes by its own size.
    remainder : float
        Remaining error, in reported standard errors of a coefficient.
    """

    length: float
    shift: float
    remainder: float

    @property
    def converged(self) -> bool:
        """Whether intervals that neglect the remainder of the step can be right."""
        if self.shift <= NO_SHIFT:
            return True
        return self.shift <= LONGEST_SHIFT and (self.length <= LONGEST_STEP or self.remainder <= HARMLESS)


def judge_convergence(step: Floats, covariance: Floats, start: Floats, shift: float) -> Convergence:
    """Return how long a last step was.

    Parameters
    ----------
    step : ndarray, shape (p,)
        D.
    covariance, start : ndarray, shape (p, p)
        C and Cov(e_T).
    shift : float
        m.
    """
    p = len(step)
    reported = _length(step, covariance)
    return Convergence(_length(step, covariance + start), shift, 0.5 * math.sqrt(p) * shift * reported)


def _length(step: Floats, covariance: Floats) -> float:
    """Return sqrt(D'C^-1 D / p), infinite where C leaves a direction without error and D moves along it."""
    values, vectors = np.linalg.eigh(covariance)
    along = np.square(vectors.T @ step)
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = np.where(along > 0.0, along / np.maximum(values, 0.0), 0.0)
    return math.sqrt(float(parts.sum()) / len(step))
