r"""Sums that a sparse logistic fit requests from a trusted server, and the weights of its scores.

z = (1, x_A) are a constant and some columns in units of their sizes, eta = a + x_S'beta the predictor of the
sparse fit, m = sigma(eta), c = m (1 - m), e = y - m. Directions are v = T'z, scaled so that about
E c v v' = I. Every row has a weight **in x alone**, the same in the score and its derivative,

    w = min(1, B / q, K / k),   q = |v| max(m, 1 - m),   k = c |v|^2,

so that a right mean keeps its coefficients whatever B and K are; a record's score w v e has a length of at
most B and its curvature w c v v' of at most K (`privinf.mechanisms.statistics.curved`).

B minimizes the variance of a step that is divided by its slope, relative to the unweighted one,

    Q(B) = [A2 + (2 B)^2 / (2 rho n)] / A1^2,   A1 = E w c |v|^2 / k,   A2 = E w^2 c |v|^2 / k,

in the distribution in which eta is normal about a level with a spread, both from releases, and |v|^2 is
chi-square of k degrees of freedom over the mean of c: no budget is spent on it, and a wrong distribution
costs width alone. Rare responses have c small: there q / sqrt c, and with it B, is large, as sqrt(max(m, 1 -
m) / min(m, 1 - m)).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit
from scipy.stats import chi2

from privinf.federation import NoisyGram
from privinf.lasso.sums import UNCLIPPED, SparseSums
from privinf.typing import Flags, Floats, PlainValue
from privinf.wire import Labels, Statistics

NORMAL_NODES, NORMAL_WEIGHTS = np.polynomial.hermite_e.hermegauss(31)
NORMAL_WEIGHTS = NORMAL_WEIGHTS / NORMAL_WEIGHTS.sum()  # made to add up to 1: probabilities of the nodes
LENGTHS = (np.arange(200) + 0.5) / 200.0  # midpoints of 200 equally probable cells of |v|^2, as probabilities
UNCUT_SHARE = 0.995  # share of rows that K leaves as they are, for scores
MOST_ROWS = 0.9  # the same for a matrix that the noise could drown
CLIPS = np.geomspace(0.2, 6.0, 120)  # grid on which B is sought, relative to sqrt(k odds)
WIDEST = 4.0  # largest sd of the predictor: beyond it the responses are separated


@dataclass(frozen=True, slots=True, eq=False)
class Point:
    """A sparse logistic model in units of the columns' sizes: eta = intercept + x_S'beta."""

    support: list[int]
    beta: Floats
    intercept: float

    def on(self, columns: Sequence[int]) -> Floats:
        """Return the coefficients of some columns, those of the support among them."""
        values = dict(zip(self.support, self.beta, strict=True))
        return np.array([values.get(j, 0.0) for j in columns])

    def joined(self, columns: Sequence[int]) -> Point:
        """Return the same model with more columns, whose coefficients are 0."""
        beta = np.append(self.beta, np.zeros(len(columns)))
        return Point([*self.support, *columns], beta, self.intercept)

    @property
    def all_coefficients(self) -> Floats:
        """Intercept and coefficients."""
        return np.append(self.intercept, self.beta)


LEAST_MEAN = 1e-12  # of the response at a node of the predictor, so that no curvature is 0


@dataclass(frozen=True, slots=True)
class Spread:
    """Distribution of the predictor for which bounds are chosen: normal about a level with the released rate.

    Attributes
    ----------
    rate : float
        Mean of the response.
    sd : float
        Of the predictor.
    """

    rate: float
    sd: float = 0.0

    @property
    def level(self) -> float:
        """Where the predictor is centered."""
        size = self.sd
        return float(
            brentq(lambda at: NORMAL_WEIGHTS @ expit(at + size * NORMAL_NODES) - self.rate, -40.0, 40.0)
        )

    @property
    def means(self) -> Floats:
        """Means at the nodes of the predictor; none is so near to 0 or 1 that its curvature would vanish."""
        return np.clip(expit(self.level + self.sd * NORMAL_NODES), LEAST_MEAN, 1.0 - LEAST_MEAN)

    @property
    def curvature(self) -> float:
        """Mean of c."""
        means = self.means
        return float(NORMAL_WEIGHTS @ (means * (1.0 - means)))


@dataclass(frozen=True, slots=True)
class Weights:
    """B and K, with the slope and the square of the weighted score relative to the unweighted one."""

    score: float
    curvature: float
    slope: float = 1.0
    square: float = 1.0


def weights_of(spread: Spread, size: int, n: int, rho: float) -> Weights:
    """Return B and K for a score in `size` directions at a price."""
    if math.isinf(rho):
        return Weights(UNCLIPPED, UNCLIPPED)
    means = spread.means
    c = (means * (1.0 - means))[:, None]
    length2 = (chi2.ppf(LENGTHS, size) / spread.curvature)[None, :]
    share = np.repeat(NORMAL_WEIGHTS[:, None], len(LENGTHS), axis=1) / len(LENGTHS)
    q = np.sqrt(length2) * np.maximum(means, 1.0 - means)[:, None]
    top = curvature_bound(spread, size, UNCUT_SHARE)
    odds = math.sqrt(max(spread.rate, 1.0 - spread.rate) / min(spread.rate, 1.0 - spread.rate))
    bounds = CLIPS * odds * math.sqrt(size)
    candidates = []
    for bound in bounds:
        w = np.minimum(1.0, np.minimum(bound / q, top / (c * length2)))
        slope = float((share * w * c * length2).sum()) / size
        square = float((share * w**2 * c * length2).sum()) / size
        candidates.append(((square + 4.0 * bound**2 / (2.0 * rho * n)) / slope**2, bound, slope, square))
    _, bound, slope, square = min(candidates)
    return Weights(float(bound), top, slope, square)


def curvature_bound(spread: Spread, size: int, share: float) -> float:
    """Return the quantile of c |v|^2 at `share`, E c |v|^2 = `size`."""
    means = spread.means
    sizes = (means * (1.0 - means) / spread.curvature)[:, None] * chi2.ppf(LENGTHS, size)[None, :]
    weights = np.repeat(NORMAL_WEIGHTS[:, None], len(LENGTHS), axis=1).ravel()
    order = np.argsort(sizes, axis=None)
    cumulative = np.cumsum(weights[order]) / weights.sum()
    return float(sizes.ravel()[order][np.searchsorted(cumulative, share)])


@dataclass(frozen=True, slots=True, eq=False)
class Directions:
    """v = T'(1, x_A): T has the shape (1 + size of A, k), the constant's row first."""

    columns: Sequence[int]
    matrix: Floats

    @property
    def size(self) -> int:
        """Number of directions."""
        return int(self.matrix.shape[1])


@dataclass(frozen=True, slots=True, eq=False)
class NoisyMean:
    """A mean over records and the sd of its noise (of a matrix's diagonal)."""

    mean: Floats
    sd: float


@dataclass(frozen=True, slots=True, eq=False)
class LogisticSums:
    """Releases over all rows, each with its price in zCDP.

    Attributes
    ----------
    sparse : SparseSums
        Units of the columns, their sizes and neighbors.

    Notes
    -----
    **Privacy.** Everything returned is a release; prices are the caller's.
    """

    sparse: SparseSums

    @property
    def n(self) -> int:
        """Number of rows."""
        return self.sparse.n

    def rate(self, rho: float) -> NoisyMean:
        """Return the mean of the response."""
        release = self._release(
            Statistics.RESIDUAL_SUM, {"intercept": 0.5, "residual_clip": 0.5}, Labels.MEAN_RESPONSE, rho
        )
        return NoisyMean(release.mean + 0.5, release.mean_sd)

    def select(
        self, at: Point, bound: float, k: int, allowed: Flags, rho: float, label: str = Labels.SELECTION
    ) -> tuple[list[int], float]:
        """Return the k columns whose products with residuals have the largest sums, and the noise's scale."""
        args = self._query_args(bound=bound, intercept=at.intercept)
        if at.support:
            args |= {"support": np.asarray(at.support, dtype=np.int64), "beta": at.beta}
        selections = self.sparse.server.top_k(
            Statistics.LOGISTIC_PRODUCTS,
            args,
            k,
            rho=rho,
            values=False,
            candidates=allowed,
            label=label,
            sites=self.sparse.sites,
        )
        return [int(j) for j in selections.support], float(selections.scale)

    def score(self, at: Point, along: Directions, weights: Weights, rho: float, label: str) -> NoisyMean:
        """Return the mean of w v e."""
        args = self._at(at, along, weights, high=weights.score)
        release = self._release(Statistics.CURVED_SCORE, args, label, rho)
        return NoisyMean(release.mean, release.mean_sd)

    def meat(self, at: Point, along: Directions, weights: Weights, rho: float) -> NoisyMean:
        """Return the mean of w^2 e^2 v v'."""
        args = self._at(at, along, weights, high=weights.score)
        release = self._release(Statistics.CURVED_MEAT, args, Labels.SQUARES_OF_SCORES, rho)
        return NoisyMean(NoisyGram.from_sum(release).mean, release.mean_sd)

    def secant(
        self, at: Point, along: Directions, weights: Weights, step: Floats, rho: float, label: str
    ) -> NoisyMean:
        """Return the mean of w g v v', g the slope of the mean between eta and eta + v'step, at most K."""
        args = self._at(at, along, weights, step=step, clip=weights.curvature)
        release = self._release(Statistics.CURVED_SECANT, args, label, rho)
        return NoisyMean(NoisyGram.from_sum(release).mean, release.mean_sd)

    def hessian(self, at: Point, along: Directions, top: float, rho: float, label: str) -> NoisyMean:
        """Return the mean of w c v v' for weights w = min(1, K / k) alone."""
        return self.secant(at, along, Weights(UNCLIPPED, top), np.zeros(along.size), rho, label)

    def _at(self, at: Point, along: Directions, weights: Weights, **extra: PlainValue) -> dict[str, Any]:
        columns = np.asarray(along.columns, dtype=np.int64)
        return self._query_args(
            family="binomial",
            columns=columns,
            theta=at.on(along.columns),
            intercept=at.intercept,
            transform=along.matrix[1:],
            offset=along.matrix[0],
            score_bound=weights.score,
            curvature_bound=weights.curvature,
            **extra,
        )

    def _query_args(self, **args: PlainValue) -> dict[str, Any]:
        units = self.sparse.units
        return {"center": units.center, "scale": units.scale, **args}

    def _release(self, op: str, args: dict[str, Any], label: str, rho: float) -> Any:
        return self.sparse.server.vector_sum(op, args, label=label, rho=rho, sites=self.sparse.sites)
