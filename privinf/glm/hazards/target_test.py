r"""Test of whether the coefficients of a proportional-hazards fit depend on follow-up and weights.

A fit releases a score and a Hessian twice: in its round, and at its end. Records are followed up to a stop,
and records far out have a weight below 1. In the round the stop c is earlier, mostly 1, and the weights are
smaller. Stops and weights are functions of the columns alone. If hazards are proportional and effects linear,
both score equations therefore have mean zero at the same slopes. Elsewhere they can differ, and so can Cox's
regression from both.

**Equations.** Let tau_i be the end of the follow-up of record i by its stop, w_i its weight, M_i its
martingale under the model, and v_i its design. The round at theta_1 has the mean score and Hessian

.. math:: S_1 = \frac1n \sum_i w_{1i} \int_0^{\tau_{1i}} v_i \, dM_i + J_1 d + e_1, \qquad H_1 = J_1 + N_1,

d the distance of the true coefficients from theta_1, and e_1, N_1 noise. The q factors of the baseline are
solved for, by their own rows. What is left are d scores of the slopes, with J_1 the partial Hessian. At the
slopes b of the fit, in units of the round,

.. math:: \psi = S_1 - J_1 b.

**Covariance.** Three parts, of which the first two add noise and the third is sampling:

- noise of the round: s_S^2 I + (s_H^2 / 2)(|d|^2 I + d d'), P ( ) P' once the baseline is solved for;
- noise of the fit: J_1 V_noise J_1, V_noise the covariance of the fit less that of sampling. The noise of
  both releases is independent. Which place the final release is made at depends on the noise of the round,
  but one Newton step from any near place leads to the same slopes, to first order;
- sampling. The scores are martingales of the same records, so that the covariance of both equations is that
  of the common part of the follow-up, ``C = E w_1 w_T int_0^tau_1 v v' dL``. Where the final weights are 1,
  C = H_1, and the slopes b have the covariance V with the round's own slopes: the variance of the difference
  is the difference of the variances (Hausman 1978). The variance of the round's scores is at most J_1 / n
  since w_1^2 <= w_1. Together ``J_1 / n - J_1 V J_1``, V the sampling covariance of b, made positive
  semidefinite in units in which J_1 = I.

  If final weights are below 1, this is an approximation. On eight settings of tables and simulated
  distributions, the covariance of psi with that of the records in place of it was larger by a factor of 1.02
  to 1.34 in the direction in which they differ most (means over 15 to 60 fits).

**Remainder.** H_1 is a tangent, and the score is not linear. The predictor of a record moves from theta_1 to
b by m + a_b, with m = x~'(b - theta_1), x~ the columns about their mean in the block, and a_b the move of the
block's level. With L the cumulated hazard, the second order of the scores is

.. math:: \tfrac12 E w L\, \tilde x (m + a_b)^2 = \tfrac12 E w L\, \tilde x m^2 + E w L\, a_b \tilde x m.

Take units in which J_1 = E w L x~ x~' = I. By the Cauchy-Schwarz inequality, E w L |u'x~ m| is at most
(E w L m^2)^(1/2) in every direction u of length 1. So the second order is no longer than

.. math:: (E w L m^2)^{1/2} (\tfrac12 \max|m| + \max|a_b|), \qquad
          |m| \le \sum_j |b_j - \theta_j| (1 + |mean_j|)

by the bounds of the columns. psi' Cov(psi)^-1 psi has a noncentral chi-squared distribution, whose
noncentrality is at most the square of this length over the smallest variance. The p-value is by this
distribution. If the round was far from the fit, the test therefore has little power; if it was close, the
noncentrality is about 0. Without it, the test rejects a true model in all fits of a distribution with strong
effects of columns with long tails (`benchmarks/results/hazard_target_tests.md`).

**What it tests.** That the slopes are the same at both stops and with both weights. It does not reject if the
model is wrong in a way that moves both equations alike. It is a function of released numbers, and costs
nothing.
"""

from __future__ import annotations

import html
import math
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.stats import ncx2

from privinf.errors import NotAvailableError
from privinf.glm.curved_sums import Noisy
from privinf.inference.one_step import OneStepScores
from privinf.inference.partialled_scores import PartialledScores
from privinf.notebook import html_table
from privinf.typing import Floats

# Noncentrality above which a result states that its test has little power. A shift of 1 to 10 coefficients
# that the test detects with probability 0.8 is 1.5 to 2 times as large at 10 as at 0, and 2.4 to 3.4 times
# at 50.
LITTLE_POWER = 10.0
BLIND = (
    "little, because the noncentrality is above {:g}: the test detects only large differences, and a large "
    "p-value does not support the model"
)
NOT_BLIND = "not flagged: the noncentrality is not above {:g}"
TITLE = "Test of the target: do the coefficients depend on the follow-up or on weights?"
COMPARED = (
    "Compares the fit with an earlier round of it, which followed records less long and gave smaller weights "
    "to records far out. If hazards are proportional and effects linear, both have the same coefficients."
)
NONCENTRAL = (
    "The p-value is that of a noncentral chi-squared distribution, so it is larger than in a table of "
    "chi-squared values. The noncentrality is the most that the model itself may add to chi2."
)
STOPS = "{:g} in the round and {:g} in the fit, as a cumulated hazard and not a time"
TEXT_WIDTH = 100  # characters of a line
HIDDEN_ROUND = "the test is not available: noise hides a direction of the Hessian of the round"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RoundRelease:
    """Score and Hessian of the round, in the whitened units of its place.

    Attributes
    ----------
    theta : ndarray, shape (P,)
        theta_1: q factors of the baseline and d slopes.
    transform : ndarray, shape (P, P)
        W.
    score, hessian : Noisy
        S_1 and H_1.
    stop : float
        c.
    """

    theta: Floats
    transform: Floats
    score: Noisy
    hessian: Noisy
    stop: float

    def to_dict(self) -> dict[str, Any]:
        """Return the release as JSON takes it."""
        return {
            "theta": self.theta.tolist(),
            "transform": self.transform.tolist(),
            "score": self.score.mean.tolist(),
            "score_sd": self.score.sd,
            "hessian": self.hessian.mean.tolist(),
            "hessian_sd": self.hessian.sd,
            "stop": self.stop,
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> RoundRelease:
        """Return the release that `to_dict` described."""
        arrays = {
            name: np.array(content[name], dtype=np.float64)
            for name in ("theta", "transform", "score", "hessian")
        }
        return cls(
            theta=arrays["theta"],
            transform=arrays["transform"],
            score=Noisy(arrays["score"], float(content["score_sd"])),
            hessian=Noisy(arrays["hessian"], float(content["hessian_sd"])),
            stop=float(content["stop"]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetTestResult:
    """Test of whether the coefficients of a proportional-hazards fit depend on follow-up and weights.

    ``print`` states in words what it compares, and whether it has little power.

    Attributes
    ----------
    statistic : float
    pvalue : float
        Of a noncentral chi-squared distribution with `df` degrees of freedom.
    df : int
        Number of coefficients.
    noncentrality : float
        Largest noncentrality that the second order of the scores may cause.
    stops : (float, float)
        Cumulated hazards up to which records are followed: in the round, and in the fit.
    """

    statistic: float
    pvalue: float
    df: int
    noncentrality: float
    stops: tuple[float, float]

    @property
    def has_little_power(self) -> bool:
        """Whether the noncentrality is above `LITTLE_POWER`, so that only large differences are detected."""
        return self.noncentrality > LITTLE_POWER

    @property
    def _facts(self) -> dict[str, str]:
        """Numbers of the test by their names."""
        return {
            "chi2": f"{self.statistic:.4g}",
            "degrees of freedom": str(self.df),
            "noncentrality": f"at most {shown_noncentrality(self.noncentrality)}",
            "p-value": f"{self.pvalue:.4g}",
            "follow-up": STOPS.format(*self.stops),
            "power": (BLIND if self.has_little_power else NOT_BLIND).format(LITTLE_POWER),
        }

    def __repr__(self) -> str:
        power = ", little power" if self.has_little_power else ""
        return (
            f"<Test of the target: chi2={self.statistic:.4g}, df={self.df}, noncentrality at most "
            f"{shown_noncentrality(self.noncentrality)}, noncentral p-value={self.pvalue:.4g}{power}>"
        )

    def __str__(self) -> str:
        width = max(map(len, self._facts)) + 2
        lines = [f"{name + ':':<{width}}{value}" for name, value in self._facts.items()]
        lines = [textwrap.fill(line, TEXT_WIDTH, subsequent_indent=" " * width) for line in lines]
        return "\n".join(
            [TITLE, textwrap.fill(COMPARED, TEXT_WIDTH), *lines, textwrap.fill(NONCENTRAL, TEXT_WIDTH)]
        )

    def _repr_html_(self) -> str:
        notes = (f"<p>{html.escape(text)}</p>" for text in (COMPARED, NONCENTRAL))
        return "\n".join([html_table(("", ""), self._facts.items(), TITLE), *notes])


def shown_noncentrality(value: float) -> str:
    """Return a noncentrality with two digits, or without decimals if it is large."""
    return f"{value:,.0f}" if value > LITTLE_POWER else f"{value:.2g}"


def target_test(
    early: RoundRelease, slopes: Floats, covariance: Floats, noise: Floats, n: int, stop: float
) -> TargetTestResult:
    """Return the test of the module docstring.

    Parameters
    ----------
    early : RoundRelease
    slopes : ndarray, shape (d,)
        Of the fit, for columns in [-1, 1].
    covariance, noise : ndarray, shape (d, d)
        Of these slopes, and the part of it that is noise.
    n : int
        Number of records.
    stop : float
        c of the fit.

    Raises
    ------
    NotAvailableError
        Noise hides a direction of the Hessian of the round.
    """
    if not np.linalg.eigvalsh(early.hessian.mean)[0] > early.hessian.floor:
        raise NotAvailableError(HIDDEN_ROUND)
    scores = _round_scores(early, len(slopes), n)
    # Units in which the partial Hessian is the identity: x = L^-1 of scores.
    root = cholesky(scores.A, lower=True)
    mean = solve_triangular(root, scores.g - scores.A @ slopes, lower=True)
    released = solve_triangular(root, scores.null_meat(slopes) / n, lower=True)
    released = solve_triangular(root, released.T, lower=True)
    sampling = np.eye(len(slopes)) / n - root.T @ (covariance - noise) @ root
    variance = released + root.T @ noise @ root + _positive_part(sampling)
    statistic = float(mean @ np.linalg.solve(variance, mean))
    bias = _largest_remainder(early, scores, slopes)
    noncentrality = bias**2 / float(np.linalg.eigvalsh(variance)[0])
    return TargetTestResult(
        statistic=statistic,
        pvalue=float(ncx2.sf(statistic, len(slopes), noncentrality)),
        df=len(slopes),
        noncentrality=noncentrality,
        stops=(early.stop, stop),
    )


def _round_scores(early: RoundRelease, d: int, n: int) -> PartialledScores:
    """Return the equation of the round's slopes, whose covariance is that of noise alone."""
    P = len(early.theta)
    equation = OneStepScores(
        to_scaled=early.transform.T,
        start=early.theta,
        mean=early.score.mean,
        hessian=early.hessian.mean,
        released_hessian=early.hessian.mean,
        clean=np.zeros((P, P)),
        known=n * early.score.sd**2 * np.eye(P),
        hessian_sd=early.hessian.sd,
        residual=None,
        noise_free=np.arange(P) < P - d,
        n=n,
        cov_type="HC0",
    )
    return PartialledScores(
        system=equation, columns=np.arange(P) >= P - d, noise_free=np.zeros(d, dtype=bool)
    )


def _largest_remainder(early: RoundRelease, scores: PartialledScores, slopes: Floats) -> float:
    """Return the bound of the second order of the scores, in units in which the partial Hessian is I."""
    q = len(early.theta) - len(slopes)
    hessian = scores.system.A
    gradient = scores.system.g - hessian @ early.theta
    # The design of block b begins with sqrt q e_b, so these are E(w L) of each block and E(w L x).
    events = np.diag(hessian)[:q] / q
    center = hessian[:q, q:] / (math.sqrt(q) * events[:, None])
    move = slopes - early.theta[q:]
    factors = np.linalg.solve(hessian[:q, :q], gradient[:q] - hessian[:q, q:] @ move)
    levels = math.sqrt(q) * factors + center @ move
    largest = float(np.abs(move) @ (1.0 + np.minimum(np.abs(center).max(axis=0), 1.0)))
    return math.sqrt(float(move @ scores.A @ move)) * (0.5 * largest + float(np.abs(levels).max()))


def _positive_part(matrix: Floats) -> Floats:
    """Return a symmetric matrix without its negative eigenvalues."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2.0)
    return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T)
