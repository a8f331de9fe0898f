"""Queries of a logistic, Poisson or negative binomial fit, and their prices."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from privinf.accounting.shares import part_of_mu
from privinf.completeness import CompleteRows
from privinf.errors import NotPositiveDefiniteError
from privinf.federation import NoisyGram
from privinf.glm.sums import SINGULAR_SUMS, GlmServer, Traffic
from privinf.inference.tails import EXCESS_WEIGHT
from privinf.mechanisms.statistics.summands import counts_above
from privinf.typing import CurvedFamily, Flags, Floats, Integers, PlainValue
from privinf.wire import Labels, Statistics

VISIBLE_SDS = 2.0  # counts, made nonincreasing, that are fewer sds of their noise than this count as none
VISIBLE_SDS_FEW_ROWS = 1.2  # the same with few rows: undetected tails cost more there than noise
FULL_ROUNDS = 3  # rounds at most, from r = MIDDLE on
LEAST_SIZE = 3.5  # r = n mu / p^1.5 below which no final Hessian could stand above its noise (`enough`)
SMALL = 25.0  # r below which there is one round; and no fit of more than FEW_COLUMNS columns
MIDDLE = 60.0  # r below which there are two rounds
LARGE = 400.0  # r from which on a Hessian is clear of its noise with little budget
ROUND_STEP = 0.07  # share of mu^2 for the score and Hessian of a round, half each
FEW_COLUMNS = 20  # for which a posterior is drawn where a fit is weak


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """How a budget is spent, by the size r = n mu / p^1.5.

    Attributes
    ----------
    rounds : int
        At most.
    start, gram : float
        Of mu^2 for the start, and the Gram's part of it.
    score : float
        The score's part of the rest, which pays for the final score and Hessian.
    steepest : float
        Largest slope of a start, in sds of the predictor.
    margin : float
        Of `GLMNewtonPath`.
    second_move : float
        A second round that moves predictors no more is the last one.
    first_round, later_rounds : float
        Of mu^2 for the score and Hessian of the first round, and of each round after it, half each.
    excess_weight : float
        Weight of the excess beyond the final clip of counts, relative to the noise.
    """

    rounds: int = FULL_ROUNDS
    start: float = 0.082
    gram: float = 0.6
    score: float = 0.65
    steepest: float = 2.5
    margin: float = 1.0
    second_move: float = 0.0
    first_round: float = ROUND_STEP
    later_rounds: float = ROUND_STEP
    excess_weight: float = EXCESS_WEIGHT

    def of_round(self, number: int) -> float:
        """Return the share of mu^2 for the score and Hessian of a round, numbered from 1."""
        return self.first_round if number == 1 else self.later_rounds

    @property
    def is_small(self) -> bool:
        """Whether rows and budget are few against coefficients."""
        return self.rounds < FULL_ROUNDS

    @classmethod
    def from_size(cls, size: float) -> Shares:
        """Return the shares for a size r."""
        if size < SMALL:
            return cls(rounds=1, start=0.162, gram=0.79, score=0.5, steepest=1.5, margin=1.5)
        return cls(rounds=2, steepest=1.5) if size < MIDDLE else cls()

    @classmethod
    def for_mixed_counts(cls, size: float) -> Shares:
        """Return the shares of negative binomial counts: long scores need more, where Hessians are clear.

        Where noise is small, clips are far above the residuals of counts of 0, and the tail beyond them is
        extrapolated well. Elsewhere it is not, and more noise costs less than what the clip takes.
        """
        if size < LARGE:
            return replace(cls.from_size(size), excess_weight=1.0)
        return cls(start=0.05, score=0.93, second_move=0.5, later_rounds=0.04, excess_weight=0.25)


def enough(n: int, mu: float, p: int) -> bool:
    """Return whether a final Hessian could stand above its noise at the most favorable curvature.

    Rows alike in all directions have a curvature of at least tr H / p, and K >= tr H, so that the noise's
    operator norm, sqrt 2 K sqrt(2 p) / (n mu_H), passes it below r = n mu / p^1.5 of about 3.5. A posterior,
    which weak fits end with, is drawn for few columns only.
    """
    return bool(n * mu >= least_size(p) * math.pow(p, 1.5))


def least_size(p: int) -> float:
    """Return the least r = n mu / p^1.5 of a fit with p coefficients."""
    return LEAST_SIZE if p <= FEW_COLUMNS else SMALL


@dataclass(slots=True, kw_only=True)
class CurvedSums:
    """Releases of a logistic, Poisson or negative binomial fit; prices are shares of mu^2.

    Attributes
    ----------
    server : GlmServer
    family : {"binomial", "poisson"}
        The mean's; that of negative binomial counts is a Poisson model's.
    units : mapping
        Arguments of every statistic: center, scale, and the public weight's column.
    n : int
    free : ndarray of int
        Columns that have coefficients.
    fixed, linear : ndarray
        Coefficients of all columns, where those of `free` are 0: an offset's; and about a log exposure's.
    level : float
        Contribution of these in addition to their columns.
    radius : float
        Longest row over the free columns and the offset's.
    constant : int or None
        Position of the constant among `free`.
    response : (low, high)
    mu : float
    traffic : Traffic
    spent : float
        Of mu^2, in shares.
    names : tuple of str
        Of the free columns.
    moment_sd : float
        Of the noise of the first release's second moments, on their diagonal.
    dropping : bool
        Whether rows with missing values are dropped, so that their number is private.
    complete : CompleteRows or None
        Estimate from the first release, whose number of rows then has the place of `n`.
    alpha : float or None
        Working dispersion of negative binomial counts, by which rows are weighted; None of other models.
    mean_response : float
        By the first release.
    indicators : ndarray of bool
        Which free columns are declared as indicators; empty if none is.
    """

    server: GlmServer
    family: CurvedFamily
    units: Mapping[str, Any]
    n: int
    free: Integers
    fixed: Floats
    linear: Floats
    level: float
    radius: float
    constant: int | None
    response: tuple[float, float]
    mu: float
    traffic: Traffic = field(default_factory=Traffic)
    spent: float = 0.0
    names: tuple[str, ...] = ()
    moment_sd: float = math.inf
    dropping: bool = False
    complete: CompleteRows | None = None
    alpha: float | None = None
    mean_response: float = 1.0
    indicators: Flags = field(default_factory=lambda: np.zeros(0, dtype=bool))

    @property
    def p(self) -> int:
        """Number of coefficients."""
        return len(self.free)

    @property
    def detection_sds(self) -> float:
        """From how many sds on a count is detected."""
        is_small = not math.isinf(self.mu) and Shares.from_size(self.n * self.mu / self.p**1.5).is_small
        return VISIBLE_SDS_FEW_ROWS if is_small else VISIBLE_SDS

    @property
    def start_columns(self) -> Integers:
        """Columns of the start: those with coefficients and the offset's."""
        return np.flatnonzero((self.linear != 0.0) | np.isin(np.arange(len(self.fixed)), self.free))

    def price(self, share: float) -> float:
        """Return mu of a share of mu^2."""
        return part_of_mu(self.mu, share)

    def _release(self, op: str, args: Mapping[str, Any], label: str, share: float) -> Any:
        self.spent += share
        release = self.server.vector_sum(op, args, label=label, mu=self.price(share))
        self.traffic.add(label, args, len(release.values))
        return release if self.complete is None else replace(release, rows=self.n)

    @property
    def weight_unit(self) -> float:
        """Divisor of public weights: scores are divided by it, squares of scores by its square."""
        return float(self.units.get("weight_unit", 1.0))

    def weighted(self, mean: float) -> float:
        """Return the curvature of a record of this mean count: m/(1 + alpha m)."""
        return mean / (1.0 + (self.alpha or 0.0) * mean)

    def _at(self, theta: Floats, transform: Floats, **extra: PlainValue) -> dict[str, Any]:
        full_theta = self.fixed.copy()
        columns = np.zeros((len(self.fixed), self.p))
        full_theta[self.free] = theta
        columns[self.free] = transform.T
        model = {**self.units, "family": self.family}
        if self.alpha is not None:
            model["alpha"] = self.alpha
        return {**model, "theta": full_theta, "transform": columns, **extra}

    def start(self, share: float, matrix: float) -> tuple[Noisy, Noisy]:
        """Return means of z (y' - 1/2), y' the response in [0, 1], and z z'; `matrix` the Gram's part."""
        args = {name: self.units[name] for name in ("center", "scale") if name in self.units}
        args |= {"block": self.start_columns, "radius": self.radius, "share": matrix}
        release = self._release(Statistics.CURVED_START, args, Labels.START, share)
        means = self._means_of_start(release, matrix)
        if not self.dropping:
            return means
        self._count(means[1])
        return self._means_of_start(release, matrix)

    def _means_of_start(self, release: Any, matrix: float) -> tuple[Noisy, Noisy]:
        """Return both means of the first release over `n` rows."""
        over_rows = replace(release, rows=self.n)
        return _parts(over_rows, len(self.start_columns), matrix, self.radius / 2.0, self.radius**2)

    def _count(self, gram: Noisy) -> None:
        """Estimate the number of complete rows, which has the place of n from now on.

        `gram` is the mean of z z' over all rows: its entry of the constant is the share of complete rows.
        """
        assert self.constant is not None
        at = int(np.flatnonzero(self.start_columns == self.free[self.constant])[0])
        total = float(gram.mean[at, at]) * self.n
        self.complete = CompleteRows.from_sum(total, gram.sd * self.n, self.n, self.p)
        self.n = self.complete.rows

    def step(
        self, at: ExpansionPoint, score_bound: float, curvature_bound: float, share: float, label: str
    ) -> tuple[Noisy, Noisy]:
        """Return mean weighted score and Hessian, released together with equal precision."""
        args = self._at(at.theta, at.transform, score_bound=score_bound, curvature_bound=curvature_bound)
        release = self._release(Statistics.CURVED_STEP, args | {"share": 0.5}, label, share)
        return _parts(release, self.p, 0.5, score_bound, curvature_bound)

    def counts(
        self, at: ExpansionPoint, of: str, thresholds: Floats, share: float, **bounds: PlainValue
    ) -> tuple[Floats, Floats]:
        """Return the noisy counts above thresholds, and the sds of their noise."""
        args = self._at(at.theta, at.transform, of=of, thresholds=thresholds, **bounds)
        release = self._release(Statistics.CURVED_COUNTS, args, Labels.COUNTS.format(quantity=of), share)
        return counts_above(release.values, float(release.scale))

    def score(self, at: ExpansionPoint, share: float, **bounds: PlainValue) -> Noisy:
        """Return the mean score of one part."""
        release = self._release(
            Statistics.CURVED_SCORE, self._at(at.theta, at.transform, **bounds), Labels.FINAL_SCORE, share
        )
        return Noisy(release.mean, release.mean_sd)

    def meat(self, at: ExpansionPoint, share: float, **bounds: PlainValue) -> Noisy:
        """Return the mean outer product of the scores."""
        release = self._release(
            Statistics.CURVED_MEAT, self._at(at.theta, at.transform, **bounds), Labels.MEAT, share
        )
        return Noisy(NoisyGram.from_sum(release).mean, release.mean_sd)

    def average(self, theta: Floats, top: float, share: float) -> Noisy:
        """Return the mean derivative of the mean at `theta`: each record counts once, at most `top`."""
        assert self.constant is not None
        args = self._at(theta, np.eye(self.p))
        args["transform"] = args["transform"][:, [self.constant]]
        args = {name: value for name, value in args.items() if name not in ("weight", "weight_unit", "alpha")}
        release = self._release(
            Statistics.CURVED_SECANT, args | {"step": np.zeros(1), "clip": top}, Labels.MEAN_CURVATURE, share
        )
        return Noisy(release.mean, release.mean_sd)

    def secant(self, at: ExpansionPoint, step: Floats, share: float, **bounds: PlainValue) -> Noisy:
        """Return the mean secant Hessian."""
        args = self._at(at.theta, at.transform, step=step, **bounds)
        release = self._release(Statistics.CURVED_SECANT, args, Labels.FINAL_HESSIAN, share)
        return Noisy(NoisyGram.from_sum(release).mean, release.mean_sd)

    def dispersion(self, theta: Floats, tables: Mapping[str, PlainValue], label: str, share: float) -> Noisy:
        """Return the mean of a bounded function of count and mean, by its tables."""
        args = self._of_dispersion(theta, tables)
        release = self._release(Statistics.CURVED_DISPERSION, args, label, share)
        return Noisy(release.mean, release.mean_sd)

    def dispersion_meat(self, theta: Floats, tables: Mapping[str, PlainValue], share: float) -> Noisy:
        """Return the mean square of such a function."""
        args = self._of_dispersion(theta, tables)
        release = self._release(Statistics.CURVED_DISPERSION_MEAT, args, Labels.MEAT_OF_DISPERSION, share)
        return Noisy(release.mean, release.mean_sd)

    def _of_dispersion(self, theta: Floats, tables: Mapping[str, PlainValue]) -> dict[str, Any]:
        args = self._at(theta, np.eye(self.p)[:1], **tables)
        return {name: value for name, value in args.items() if name != "alpha"}


@dataclass(frozen=True, slots=True, eq=False)
class Noisy:
    """A mean over records, and the sd of its noise (of a matrix's diagonal)."""

    mean: Floats
    sd: float

    @property
    def floor(self) -> float:
        """About the operator norm of a matrix's noise."""
        return self.sd * math.sqrt(2.0 * len(self.mean))

    def lifted(self) -> Floats:
        """Return a matrix with eigenvalues not below the floor; without noise itself, singular or not."""
        values, vectors = np.linalg.eigh(self.mean)
        return np.asarray((vectors * np.maximum(values, self.floor)) @ vectors.T)

    def floored(self) -> tuple[Floats, Floats]:
        """Return eigenvalues, not below the floor, and eigenvectors of a matrix."""
        values, vectors = np.linalg.eigh(self.mean)
        if self.sd == 0.0 and not values[0] > 1e-13 * values[-1]:
            raise NotPositiveDefiniteError(SINGULAR_SUMS)
        return np.maximum(values, self.floor), vectors


@dataclass(frozen=True, slots=True, eq=False)
class ExpansionPoint:
    """Current point of a fit: theta in z, W, and h, the mean curvature."""

    theta: Floats
    transform: Floats
    curvature: float


def _parts(release: Any, size: int, matrix: float, score: float, curvature: float) -> tuple[Noisy, Noisy]:
    """Return both means of a joint release, in their own units."""
    a = score / (math.sqrt(1.0 - matrix) / 2.0)
    b = curvature / math.sqrt(matrix / 2.0)
    gram = NoisyGram.from_sum(replace(release, values=release.values[size:]))
    return Noisy(a * release.mean[:size], a * release.mean_sd), Noisy(b * gram.mean, b * release.mean_sd)
