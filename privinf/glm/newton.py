r"""Newton's method on noisy scores and Hessians, and the one-step estimate whose distribution is known."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from privinf.accounting.shares import part_of_mu
from privinf.error_boundary import error_boundaries
from privinf.errors import ConvergenceError, NotPositiveDefiniteError
from privinf.glm.convergence import Round, Trajectory
from privinf.glm.sums import SINGULAR_SUMS, GlmSums
from privinf.inference.one_step import step_noise
from privinf.inference.solution import semidefinite
from privinf.typing import Floats, Integers
from privinf.validation import check_count, check_fraction
from privinf.wire import Labels

FINAL_SHARES = (0.7, 0.2, 0.1)  # of the final release's mu^2: score, Hessian, meat
EARLY_HESSIAN = 0.2  # the Hessian's share of mu^2 in a round before that
GROWTH = 2.0  # of mu^2 from round to round
RULE = 0.1  # largest p^1.5 / (n mu of the final Hessian): beyond it the Hessian's noise biases its inverse
MOST_ROUNDS = 100  # rounds without noise
TOLERANCE = 1e-11  # largest entry of a step, relative to 1 + the largest coefficient, that has converged


@error_boundaries
@dataclass(frozen=True, slots=True)
class Newton:
    """Newton's method with a noisy score and a noisy Hessian in every round, and a final release.

    Parameters
    ----------
    rounds : int
        Rounds before the final release.
    final_share : float
        Share of the budget (in mu^2) that is spent on the final release.

    Notes
    -----
    **Privacy.** The settings are public. Every round reads every row and costs budget; the total is the joint
    cost of all rounds.
    """

    rounds: int = 3
    final_share: float = 0.8

    def __post_init__(self) -> None:
        check_count(self.rounds, "rounds")
        check_fraction(self.final_share, "final_share")


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Columns whose coefficients the final step moves: named targets and possibly correlated columns.

    Attributes
    ----------
    columns : ndarray of int
        The targets first.
    radius : float
        The longest row over these columns.
    targets : tuple of str
    """

    columns: Integers
    radius: float
    targets: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class OneStep:
    """The final release at theta_T: a Newton step and the distribution of its error, scaled units.

    Attributes
    ----------
    params : ndarray, shape (p,)
        theta_T + bread^-1 score.
    start : ndarray, shape (p,)
        theta_T.
    bread, meat : ndarray, shape (p, p)
        Mean Hessian and mean outer product of the scores, noisy; the meat made `semidefinite`, or the Hessian
        again where the model's variance is taken for it.
    score_sd, bread_sd : float
        Sd of the noise of the mean score, and of the diagonal of the bread.
    """

    params: Floats
    start: Floats
    bread: Floats
    meat: Floats
    score_sd: float
    bread_sd: float

    @property
    def shift(self) -> float:
        """How far the step moved linear predictors, root mean square: at most about that.

        sqrt(D'HD / v) with the mean curvature v bounded from below by the largest diagonal entry of H, as
        scaled columns are in [-1, 1].
        """
        length2 = float(self.step @ self.bread @ self.step)
        return math.sqrt(max(length2, 0.0) / float(np.diag(self.bread).max()))

    @property
    def step(self) -> Floats:
        """D, shape (p,)."""
        return self.params - self.start

    @property
    def noise_terms(self) -> dict[str, Floats]:
        """Terms of the covariance of what the noise adds to ``bread (params - truth)``.

        Of the score, and of the bread's noise N times the step D: N has independent entries, of sd s on the
        diagonal and s / sqrt 2 above it, so Cov(N D) = s^2/2 (|D|^2 I + D D').
        """
        return step_noise(self.step, self.score_sd, self.bread_sd)


def intervals_possible(p: int, n: float, mu: float) -> bool:
    """Return whether ``p^1.5 <= 0.1 n mu_H``: whether the Hessian's noise leaves its inverse nearly unbiased.

    Parameters
    ----------
    p : int
    n : float
        Rows; where sites are the units, in units of the largest one.
    mu : float
        Price of the final release; sqrt(2 rho_H) is the root of its Hessian's share times mu.
    """
    return math.pow(p, 1.5) <= largest_size_for_intervals(n, mu)


def largest_size_for_intervals(n: float, mu: float) -> float:
    """Return the largest p^1.5 that `intervals_possible` allows."""
    return RULE * n * math.sqrt(FINAL_SHARES[1]) * mu


def newton_path(sums: GlmSums, start: Floats, mu: float, options: Newton, watched: Integers) -> Trajectory:
    """Return the trajectory over all rounds, their distributions in the coefficients `watched`.

    Every round gets twice the budget of the one before.

    Without noise (infinite `mu`) it runs to convergence and ignores the rounds in `options`.

    Raises
    ------
    ConvergenceError
        Without noise: no convergence, as where a logistic model separates the rows.
    """
    path = [start]
    steps = []
    rounds = MOST_ROUNDS if math.isinf(mu) else options.rounds
    for number in range(1, rounds + 1):
        theta = path[-1]
        price = _round_price(mu, number, rounds)
        score, score_sd = sums.score(
            theta, price * math.sqrt(1.0 - EARLY_HESSIAN), Labels.SCORE_OF_ROUND.format(round=number)
        )
        hessian, sd = sums.hessian(
            theta,
            price * math.sqrt(EARLY_HESSIAN),
            curvature="bound",
            label=Labels.HESSIAN_OF_ROUND.format(round=number),
        )
        step, gain = _step(score, hessian, sd, sums.scaled_constant)
        path.append(theta + step)
        steps.append(Round(gain[np.ix_(watched, watched)], np.full(len(watched), score_sd**2)))
        if math.isinf(mu) and np.abs(path[-1] - theta).max() <= TOLERANCE * (1.0 + np.abs(theta).max()):
            return Trajectory(params=path[-1], path=path, length=number, rounds=steps)
    if math.isinf(mu):
        raise ConvergenceError(
            f"Newton's method did not converge in {MOST_ROUNDS} iterations: the coefficients may be infinite"
        )
    return Trajectory(params=path[-1], path=path, length=rounds, rounds=steps)


def _round_price(mu: float, number: int, rounds: int) -> float:
    shares = GROWTH ** np.arange(1, rounds + 1)
    return part_of_mu(mu, float(shares[number - 1] / shares.sum()))


def _step(score: Floats, hessian: Floats, sd: float, constant: int | None) -> tuple[Floats, Floats]:
    """Return Newton's step and its derivative in the score, near the solution.

    Directions in which noise hides the curvature are held back.
    """
    shift = np.zeros(len(score))
    if constant is not None:
        # Poisson: scaling all means by c is exact in the Hessian, whose column of the constant sums x mean.
        mean = max(hessian[constant, constant], 1e-12)
        ratio = float(np.clip((mean + score[constant]) / mean, 0.05, 20.0))
        shift[constant] = math.log(ratio)
        score = score + (1.0 - ratio) * hessian[:, constant]
        hessian = ratio * hessian
        sd = ratio * sd
    values, vectors = np.linalg.eigh(hessian)
    # The operator norm of the noise is about sd sqrt(2 p).
    floor = sd * math.sqrt(2.0 * len(score))
    if floor == 0.0 and values[0] <= 1e-13 * values[-1]:
        raise NotPositiveDefiniteError(SINGULAR_SUMS)
    gain = np.asarray((vectors / np.maximum(values, floor)) @ vectors.T)
    return shift + gain @ score, gain


def one_step(
    sums: GlmSums, theta: Floats, mu: float, *, robust: bool = True, block: Block | None = None
) -> OneStep | None:
    """Release score, Hessian and, where `robust`, meat at `theta`, and take one Newton step from there.

    Without a meat its share goes to the others. None where the noise of the Hessian hides it: there is no
    step, and no covariance. With a block the step is in its columns B alone: a coefficient j of it is right
    if E[v x_k (x_j - x_B'g)] = 0 for every other column k, g the weighted regression of x_j on the rest of B,
    since then the error D of the other coefficients enters H_BB^-1 (s_B - H_B- D) only through the sampling
    error of that mean, of order |D| / sqrt n.
    """
    spent = 1.0 if robust else sum(FINAL_SHARES[:2])
    prices = [part_of_mu(mu, share / spent) for share in FINAL_SHARES]
    before = theta
    if block is not None:
        sums = sums.of_block(block.columns, block.radius)
        before = theta[block.columns]
    score, score_sd = sums.score(theta, prices[0], Labels.FINAL_SCORE)
    bread, bread_sd = sums.hessian(theta, prices[1], curvature="exact", label=Labels.FINAL_HESSIAN)
    meat = semidefinite(sums.meat(theta, prices[2])[0]) if robust else bread
    # No more than the operator norm of the noise: the columns could be collinear.
    if np.linalg.eigvalsh(bread)[0] <= bread_sd * math.sqrt(2.0 * len(score)):
        return None
    step = np.linalg.solve(bread, score)
    return OneStep(
        params=before + step, start=before, bread=bread, meat=meat, score_sd=score_sd, bread_sd=bread_sd
    )
