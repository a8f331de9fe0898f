r"""Means from randomized signs: counts of positive answers, inverted.

Machine i, with n_i rows of N(mu, s^2 I), has a positive mean in coordinate j with probability
Phi(sqrt(n_i) mu_j / s). With lie the probability of a false answer, the m_j machines that are asked about j
answer 1 with mean probability ``lie + (1 - 2 lie) F_j(mu_j)``, F_j the average of those normal curves, which
increases in mu_j: everything here is that curve and its inverse. mu is in units of s.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import betaincinv, ndtr, ndtri
from scipy.stats import binom

from privinf.typing import Flags, Floats, Integers

SATURATION = 2.0  # of sqrt(n) mu: beyond it only 1 in 44 signs is informative
_BISECTIONS = 80  # halvings of the bracket, more than a double has digits


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SignCounts:
    """Answers by coordinate.

    Attributes
    ----------
    hits, asked : ndarray of int, shape (p,)
        Positive answers, and machines queried.
    sizes : ndarray, shape (u,)
        Different numbers of rows.
    weights : ndarray, shape (p, u)
        Share of each among the machines queried; zero rows where none was.
    lie : float
    """

    hits: Integers
    asked: Integers
    sizes: Floats
    weights: Floats
    lie: float

    @classmethod
    def from_answers(
        cls, coordinates: Integers, answers: Integers, sizes: Integers, p: int, lie: float
    ) -> SignCounts:
        """Count answers by coordinate."""
        counts = np.bincount(coordinates, minlength=p)
        hits = np.bincount(coordinates, weights=answers, minlength=p).astype(np.int64)
        unique, kind = np.unique(sizes, return_inverse=True)
        table = np.zeros((p, len(unique)))
        np.add.at(table, (coordinates, kind), 1.0)
        return cls(
            hits=hits,
            asked=counts,
            sizes=unique.astype(np.float64),
            weights=table / np.maximum(counts, 1)[:, None],
            lie=lie,
        )

    def shares(self) -> Floats:
        """Return unbiased shares of positive signs, shape (p,): at times outside [0, 1], nan if unknown."""
        with np.errstate(invalid="ignore"):
            return np.asarray(self.undistorted(self.hits / self.asked), dtype=np.float64)

    def undistorted(self, probability: Floats) -> Floats:
        """Return the probability of a positive sign given that of a positive answer."""
        return (probability - self.lie) / (1.0 - 2.0 * self.lie)

    def slope(self, mu: Floats) -> Floats:
        """Return the derivative of F at mu, shape (p,)."""
        root = np.sqrt(self.sizes)
        density = np.exp(-0.5 * (mu[:, None] * root) ** 2) / math.sqrt(2.0 * math.pi)
        return np.asarray((self.weights * root * density).sum(axis=1), dtype=np.float64)

    def inverse(self, probability: Floats) -> Floats:
        """Return mu with F(mu) = probability, shape (p,); infinite from 0 down and from 1 up."""
        inside = np.clip(probability, 0.0, 1.0)
        if len(self.sizes) == 1:
            return np.asarray(ndtri(inside) / math.sqrt(self.sizes[0]), dtype=np.float64)
        # F lies between the curves of the smallest and the largest machine.
        ends = ndtri(inside)[:, None] / np.sqrt(self.sizes[[0, -1]])
        low, high = ends.min(axis=1), ends.max(axis=1)
        bounded = np.isfinite(low)
        low = np.where(bounded, low, 0.0)
        high = np.where(bounded, high, 0.0)
        for _ in range(_BISECTIONS):
            middle = 0.5 * (low + high)
            below = (self.weights * ndtr(middle[:, None] * np.sqrt(self.sizes))).sum(axis=1) < inside
            low = np.where(below, middle, low)
            high = np.where(below, high, middle)
        return np.where(bounded, 0.5 * (low + high), ndtri(inside))


@dataclass(frozen=True, slots=True, eq=False)
class SignEstimate:
    """Point estimates in units of the sd; nan where no machine was queried.

    Attributes
    ----------
    params, bse : ndarray, shape (p,)
        Estimates are held inside the saturation; their standard error is infinite there.
    saturated : ndarray of bool, shape (p,)
        The share of positive signs is beyond Phi(2), or less than two standard errors from it.
    """

    params: Floats
    bse: Floats
    saturated: Flags


def sign_estimate(counts: SignCounts) -> SignEstimate:
    """Invert the shares of positive signs; first-order standard errors."""
    share = counts.shares()
    edge = float(ndtr(SATURATION))
    unknown = counts.asked == 0
    inside = np.where(unknown, 0.5, np.clip(share, 1.0 - edge, edge))
    mu = counts.inverse(inside)
    answer = counts.lie + (1.0 - 2.0 * counts.lie) * inside
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = np.sqrt(answer * (1.0 - answer) / counts.asked) / (1.0 - 2.0 * counts.lie)
        bse = spread / np.where(unknown, 1.0, counts.slope(mu))
        saturated = np.abs(share - 0.5) + 2.0 * spread > edge - 0.5
    return SignEstimate(np.where(unknown, np.nan, mu), np.where(saturated | unknown, np.inf, bse), saturated)


def expected_square(counts: SignCounts, mu: float, coordinate: int) -> float:
    """Return the mean squared error of an estimate of mu, over all answers that machines may give.

    Notes
    -----
    The sum over h of ``P(h) (estimate(h) - mu)^2``, h binomial with the mean probability of a positive
    answer: exact for machines of one size. It has what a first-order variance at zero has not: the slope of
    the curve at mu, its curvature, and that estimates are held within 2/sqrt(n).
    """
    count = int(counts.asked[coordinate])
    if count == 0:
        return math.nan
    hits = np.arange(count + 1)
    weights = counts.weights[coordinate]
    outcomes = SignCounts(
        hits=hits,
        asked=np.full(count + 1, count),
        sizes=counts.sizes,
        weights=np.tile(weights, (count + 1, 1)),
        lie=counts.lie,
    )
    curve = float(weights @ ndtr(mu * np.sqrt(counts.sizes)))
    chance = binom.pmf(hits, count, counts.lie + (1.0 - 2.0 * counts.lie) * curve)
    return float(chance @ (sign_estimate(outcomes).params - mu) ** 2)


def exact_limits(counts: SignCounts, alpha: float) -> Floats:
    r"""Return intervals, shape (p, 2), that cover each mu_j with probability at least ``1 - alpha``.

    Notes
    -----
    Clopper-Pearson limits of the mean probability of a positive answer, mapped by F's inverse: unbounded
    beyond the range in which signs are informative. With machines of different sizes the count is a sum of
    unequal Bernoulli variables, whose tails beyond its mean are lighter than the binomial's (Hoeffding 1956):
    the limits still hold.
    """
    hits = counts.hits
    misses = counts.asked - counts.hits
    low = np.where(hits > 0, betaincinv(np.maximum(hits, 1), misses + 1, alpha / 2.0), 0.0)
    high = np.where(misses > 0, betaincinv(hits + 1, np.maximum(misses, 1), 1.0 - alpha / 2.0), 1.0)
    return np.column_stack([counts.inverse(counts.undistorted(end)) for end in (low, high)])


def minimax_rate(*, n: float, machines: int, p: int, sparsity: int, epsilon: float) -> float:
    """Return min(s/n, s p/(m n eps^2)), the order of the squared l2 error: no constants, no logarithms.

    The second term is a rate for epsilon up to about 1: beyond, one sign limits the error, not privacy.
    """
    return min(sparsity / n, sparsity * p / (machines * n * epsilon**2))
