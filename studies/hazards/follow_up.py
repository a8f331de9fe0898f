r"""A test, from releases that a fit makes anyway, of whether coefficients depend on the follow-up.

The round before the final release follows records to an earlier stop, mostly 1, and gives records far out
smaller weights. Where hazards are proportional and effects linear, both estimate the same coefficients.
Elsewhere they can differ, and so can Cox's regression from both.

**Estimates.** The slopes of ``theta_1 + W'H_1^{-1} S_1``, from the score S_1 and the Hessian H_1 of the round
at theta_1, not shrunk; and the slopes of the fit. Their difference D has mean zero if the model holds.

**Variance.** Of three parts:

- noise of S_1, and of H_1 along its step d, in whitened units:
  :math:`s_S^2 I + s_H^2 (|d|^2 I + d d') / 2`;
- noise of the final release: the covariance of the fit less that of sampling;
- sampling. If the model holds, the covariance of the round's scores is at most H_1, since weights are at most
  1. Scores are martingales of the same records. So the covariance of both estimates is about the variance of
  the one with the longer follow-up, and the variance of their difference is the difference of the variances
  (Hausman 1978), :math:`W' H_1^{-1} W / n - V`, made positive semidefinite.

D' Var(D)^{-1} D is compared with a chi-squared distribution of d degrees of freedom. How often it rejects:
``benchmarks/results/hazard_targets.md``. It is a function of released numbers and has no price.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from scipy.stats import chi2

from privinf.glm.curved_sums import Noisy
from privinf.glm.hazards.sums import HazardPoint
from privinf.glm.posterior_draws import PosteriorDraws
from privinf.typing import Floats
from privinf.wire import Labels
from studies.hazards.simulated import SimulatedSums


@dataclass(slots=True, kw_only=True)
class RecordedSums(SimulatedSums):
    """The releases of a fit, of which the scores and Hessians and their places are kept by label."""

    scores: dict[str, tuple[HazardPoint, Noisy, float]] = field(init=False, default_factory=dict)
    hessians: dict[str, Noisy] = field(init=False, default_factory=dict)

    def score(self, at: HazardPoint, share: float, label: str, *, high: float, bound: float) -> Noisy:
        """Return the mean score; keep it, its place and its bound."""
        mean = SimulatedSums.score(self, at, share, label, high=high, bound=bound)
        self.scores[label] = at, mean, bound
        return mean

    def hessian(
        self, at: HazardPoint, share: float, label: str, *, step: Floats, bound: float, trace: float
    ) -> Noisy:
        """Return the mean secant Hessian along a step; keep it."""
        secant = SimulatedSums.hessian(self, at, share, label, step=step, bound=bound, trace=trace)
        self.hessians[label] = secant
        return secant


def follow_up_pvalue(sums: RecordedSums, posterior: PosteriorDraws) -> float:
    """Return the p-value of the slopes of the round in the draws of the fit; 1 where there is no such test.

    There is none where noise hides the Hessian of the round in a direction, and where the fit is a posterior
    with a prior.
    """
    at, score, _ = sums.scores[Labels.SCORE_OF_ROUND.format(round=1)]
    hessian = sums.hessians[Labels.HESSIAN_OF_ROUND.format(round=1)]
    values, vectors = np.linalg.eigh(hessian.mean)
    if posterior.weak or not values[0] > hessian.floor:
        return 1.0
    q = at.baseline.blocks
    inverse = (vectors / values) @ vectors.T
    step = inverse @ score.mean
    back = (at.transform.T @ inverse)[q:]
    moved = step @ step * np.eye(len(step)) + np.outer(step, step)
    noise = back @ (score.sd**2 * np.eye(len(step)) + 0.5 * hessian.sd**2 * moved) @ back.T
    early = back @ at.transform[:, q:] / sums.n
    difference = at.slopes + back @ score.mean
    d = len(difference)
    late = posterior.sampling[-d:, -d:]
    total = np.atleast_2d(np.cov(posterior.draws[:, -d:].T))
    variance = noise + positive_part(total - late) + positive_part(early - late)
    difference = difference - posterior.params[-d:]
    return float(chi2.sf(difference @ np.linalg.solve(variance, difference), d))


def positive_part(matrix: Floats) -> Floats:
    """Return a symmetric matrix without its negative eigenvalues."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2.0)
    return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T)
