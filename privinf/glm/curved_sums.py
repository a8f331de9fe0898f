"""What a curved model asks, at which price, and where its sums are clipped, by noisy counts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from privinf.accounting.budget import ROUNDING
from privinf.errors import NotPositiveDefiniteError
from privinf.federation import NoisyGram
from privinf.glm.sums import GlmServer, Traffic
from privinf.inference.tails import FLATTEST, SEEN, SEEN_BEFORE, Tail, best_clip, clip_of, tail_of
from privinf.mechanisms.statistics.summands import counts_above
from privinf.typing import CurvedFamily, Floats, Integers, PlainValue

# Thresholds of the counts, in units of the typical size.
CELLS = 2.0 ** np.arange(-5.0, 2.51, 0.25)
SCORE_SIZES = 2.0 ** np.arange(-2.0, 6.01, 0.25)
# A public allowance for a mean that is not right: what share of what weights leave out moves the score. The
# smaller the curvature the less a mean can be wrong: so much of it, and no less than the least.
MISFIT, LEAST_MISFIT = 0.4, 0.015
# A wider one, where its noise stays below this share of the sampling variance.
WIDE_MISFIT, CHEAP = 0.2, 0.3
LOWEST_QUANTILE = 0.3
# Counts, made nonincreasing, below so many of their sds count as none (fewer where rows are few: there what is
# overlooked costs more than what noise pretends); counts whose noise is this share of n choose no K.
SEEN_SDS, SEEN_IN_FEW, MOST_NOISE = 2.0, 1.6, 0.05 / 6.0
# Weights and log exposures pass their middle by a factor of two at most.
ROOM, LARGEST_LOG = 2.001, 60.0
# Lowest threshold of scores, in units of their usual size; most thresholds; means above so many times the
# largest response are not looked for.
LOWEST_SCORE, MOST_THRESHOLDS, LARGEST_MEAN = 0.7, 120, 4.0
# Sizes r = n mu / p^1.5: none, one and two rounds below these.
FULL_ROUNDS = 3
LEAST_SIZE, SMALL, MIDDLE, FEW_COLUMNS = 3.5, 25.0, 60.0, 20


@dataclass(frozen=True, slots=True)
class Shares:
    """How a budget is spent, by the size r = n mu / p^1.5.

    Attributes
    ----------
    rounds : int
        At most.
    start, gram : float
        Of mu^2 for the start, and the Gram's part of it.
    score : float
        The score's part of what is left for the final score and Hessian.
    steepest : float
        Largest slope of a start, in sds of the predictor.
    margin : float
        Of `Walk`.
    """

    rounds: int = FULL_ROUNDS
    start: float = 0.082
    gram: float = 0.6
    score: float = 0.65
    steepest: float = 2.5
    margin: float = 1.0

    @property
    def few(self) -> bool:
        """Whether rows and budget are few against coefficients."""
        return self.rounds < FULL_ROUNDS

    @classmethod
    def of(cls, size: float) -> Shares:
        """Return the shares for a size r."""
        if size < SMALL:
            return cls(1, 0.162, 0.79, 0.5, 1.5, 1.5)
        return cls(rounds=2, steepest=1.5) if size < MIDDLE else cls()


def enough(n: int, mu: float, p: int) -> bool:
    """Return whether a final Hessian could stand clear of its noise at the most favourable curvature.

    Rows alike in all directions have a curvature of at least tr H / p, and K >= tr H, so that the noise's
    operator norm, sqrt 2 K sqrt(2 p) / (n mu_H), passes it below r = n mu / p^1.5 of about 3.5. A posterior,
    which weak fits end with, is drawn for few columns only.
    """
    return bool(n * mu >= (LEAST_SIZE if p <= FEW_COLUMNS else SMALL) * math.pow(p, 1.5))


@dataclass(slots=True)
class CurvedSums:
    """Releases about a curved model, and what they cost; prices are shares of mu^2.

    Attributes
    ----------
    server : GlmServer
    family : {"binomial", "poisson"}
    units : mapping
        What every statistic is told: center, scale, and the public weight's column.
    n : int
    free : ndarray of int
        Columns that have coefficients.
    fixed, linear : ndarray
        Coefficients of all columns, where those of `free` are 0: an offset's; and about a log exposure's.
    level : float
        What these add beside their columns.
    radius : float
        Longest row over the free columns and the offset's.
    constant : int or None
        Position of the constant among `free`.
    response : (low, high)
    mu : float
    traffic : Traffic
    spent : float
        Of mu^2, in shares.
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

    @property
    def p(self) -> int:
        """Number of coefficients."""
        return len(self.free)

    @property
    def seen(self) -> float:
        """From how many sds on a count is seen."""
        few = not math.isinf(self.mu) and Shares.of(self.n * self.mu / self.p**1.5).few
        return SEEN_IN_FEW if few else SEEN_SDS

    @property
    def asked(self) -> Integers:
        """Columns of the start: those with coefficients and the offset's."""
        return np.flatnonzero((self.linear != 0.0) | np.isin(np.arange(len(self.fixed)), self.free))

    def price(self, share: float) -> float:
        """Return mu of a share of mu^2."""
        return self.mu if math.isinf(self.mu) else self.mu * math.sqrt(share * ROUNDING)

    def _ask(self, op: str, args: Mapping[str, Any], label: str, share: float) -> Any:
        self.spent += share
        found = self.server.vector_sum(op, args, label=label, mu=self.price(share))
        self.traffic.add(label, args, len(found.values))
        return found

    @property
    def weight_unit(self) -> float:
        """What public weights are divided by: scores are, squares of scores are by its square."""
        return float(self.units.get("weight_unit", 1.0))

    def _at(self, theta: Floats, transform: Floats, **more: PlainValue) -> dict[str, Any]:
        whole, columns = self.fixed.copy(), np.zeros((len(self.fixed), self.p))
        whole[self.free], columns[self.free] = theta, transform.T
        return {**self.units, "family": self.family, "theta": whole, "transform": columns, **more}

    def start(self, share: float, matrix: float) -> tuple[Noisy, Noisy]:
        """Return means of z (y' - 1/2), y' the response in [0, 1], and z z'; `matrix` the Gram's part."""
        args = {name: self.units[name] for name in ("center", "scale") if name in self.units}
        args |= {"block": self.asked, "radius": self.radius, "share": matrix}
        found = self._ask("curved.start", args, "start", share)
        return _parts(found, len(self.asked), matrix, self.radius / 2.0, self.radius**2)

    def step(
        self, at: Place, score_bound: float, curvature_bound: float, share: float, label: str
    ) -> tuple[Noisy, Noisy]:
        """Return mean weighted score and Hessian at once, as precise as each other."""
        args = self._at(at.theta, at.transform, score_bound=score_bound, curvature_bound=curvature_bound)
        found = self._ask("curved.step", args | {"share": 0.5}, label, share)
        return _parts(found, self.p, 0.5, score_bound, curvature_bound)

    def counts(
        self, at: Place, of: str, thresholds: Floats, share: float, **bounds: PlainValue
    ) -> tuple[Floats, Floats]:
        """Return the noisy counts above thresholds, and the sds of their noise."""
        args = self._at(at.theta, at.transform, of=of, thresholds=thresholds, **bounds)
        found = self._ask("curved.counts", args, f"counts of {of}", share)
        return counts_above(found.values, float(found.scale))

    def score(self, at: Place, share: float, **bounds: PlainValue) -> Noisy:
        """Return the mean score of one layer."""
        found = self._ask("curved.score", self._at(at.theta, at.transform, **bounds), "final score", share)
        return Noisy(found.mean, found.mean_sd)

    def meat(self, at: Place, share: float, **bounds: PlainValue) -> Noisy:
        """Return the mean outer product of the scores."""
        found = self._ask("curved.meat", self._at(at.theta, at.transform, **bounds), "meat", share)
        return Noisy(NoisyGram.of(found).mean, found.mean_sd)

    def average(self, theta: Floats, top: float, share: float) -> Noisy:
        """Return the mean derivative of the mean at `theta`: each record counts once, at most `top`."""
        assert self.constant is not None
        args = self._at(theta, np.eye(self.p))
        args["transform"] = args["transform"][:, [self.constant]]
        args = {name: value for name, value in args.items() if name not in ("weight", "weight_unit")}
        found = self._ask("curved.secant", args | {"step": np.zeros(1), "clip": top}, "mean curvature", share)
        return Noisy(found.mean, found.mean_sd)

    def secant(self, at: Place, step: Floats, share: float, **bounds: PlainValue) -> Noisy:
        """Return the mean secant Hessian."""
        args = self._at(at.theta, at.transform, step=step, **bounds)
        found = self._ask("curved.secant", args, "final Hessian", share)
        return Noisy(NoisyGram.of(found).mean, found.mean_sd)


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
            raise NotPositiveDefiniteError("the Hessian is singular: columns are collinear or never vary")
        return np.maximum(values, self.floor), vectors


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """Where a fit stands: theta in z, W, and h, the mean curvature."""

    theta: Floats
    transform: Floats
    curvature: float


def _parts(found: Any, size: int, matrix: float, score: float, curvature: float) -> tuple[Noisy, Noisy]:
    """Return both means of a joint release, in their own units."""
    a, b = score / (math.sqrt(1.0 - matrix) / 2.0), curvature / math.sqrt(matrix / 2.0)
    gram = NoisyGram.of(replace(found, values=found.values[size:]))
    return Noisy(a * found.mean[:size], a * found.mean_sd), Noisy(b * gram.mean, b * found.mean_sd)


@dataclass(frozen=True, slots=True)
class Bounds:
    """B and K, and what is left beyond them: mean excesses of the score's size and of the Hessian's."""

    score: float
    curvature: float
    score_excess: float = 0.0
    curvature_excess: float = 0.0


def choose_bounds(sums: CurvedSums, at: Place, share: float, score: float, curvature: float) -> Bounds:
    """Return B and K from noisy counts; `score` and `curvature` are the shares that they are for.

    B weighs the noise of the score, p (2 B / mu)^2, against what weights beyond B leave out times `MISFIT`,
    and K likewise: 4 p (K / mu)^2 against the excess.
    """
    if math.isinf(sums.mu):
        return no_bounds(sums, at)
    p, half = sums.p, share / 2.0
    if sums.family == "poisson":
        large, beyond = curvature_bound(sums, at, half, curvature)
        tail, mu = residual_tail(sums, at, half, coarse=True), sums.price(score)
        bound = best_clip(tail, lambda c: p * (2.0 * c / mu) ** 2 + (0.5 * tail.excess(c)) ** 2)
        return Bounds(bound, large, 0.0, beyond / sums.n)
    sizes = SCORE_SIZES * math.sqrt(p)
    top = sums.radius * float(np.linalg.norm(at.transform, 2))
    edges = np.append(sizes[sizes < top / 1.05], top)
    counts, sd = sums.counts(at, "score", edges, half)
    least = quantile_of(edges, counts, (1.0 - LOWEST_QUANTILE) * sums.n)
    cost = 4.0 * p / sums.price(score) ** 2
    bound, excess = clip_of(edges, counts, sd, sums.n, cost, WIDE_MISFIT, least, sums.seen)
    if cost / p * bound**2 > CHEAP * at.curvature * sums.n:
        affordable = math.sqrt(CHEAP * at.curvature * sums.n * p / cost)
        least = max(least, min(affordable, bound))
        bound, excess = clip_of(edges, counts, sd, sums.n, cost, misfit_of(at), least, sums.seen)
    edges = CELLS * 2.0 * at.curvature * bound * math.sqrt(p)
    large, beyond = _curvature_bound(sums, at, edges, half, curvature, score_bound=bound)
    return Bounds(bound, large, excess / sums.n, beyond / sums.n)


def misfit_of(at: Place) -> float:
    """Return what share of what weights leave out may move the score: less where the curvature is small."""
    return max(LEAST_MISFIT, MISFIT * at.curvature)


def residual_tail(sums: CurvedSums, at: Place, share: float, *, coarse: bool) -> Tail:
    """Return the tail of |v e| from counts below the largest that the public bounds allow."""
    length, high = sums.radius * float(np.linalg.norm(at.transform, 2)), sums.response[1]
    predictor = float(np.abs(at.theta).sum() + np.abs(sums.linear).sum() + abs(sums.level))
    top = length * max(high, min(math.exp(min(predictor, LARGEST_LOG)), LARGEST_MEAN * high))
    ratio = math.pow(2.0, 0.5 if coarse else 0.25)
    lowest = LOWEST_SCORE * math.sqrt(sums.p * at.curvature)
    cells = min(max(math.ceil(math.log(max(top / lowest, 1.0)) / math.log(ratio)), 1), MOST_THRESHOLDS)
    thresholds = top * ratio ** np.arange(-cells, 0, dtype=np.float64)
    counts, sd = sums.counts(at, "residual", thresholds, share)
    seen, flattest = (SEEN_BEFORE, 2.0) if coarse else (SEEN, FLATTEST)
    return tail_of(thresholds, counts, sd, sums.n, top, seen=seen, flattest=flattest)


def curvature_bound(sums: CurvedSums, at: Place, share: float, curvature: float) -> tuple[float, float]:
    """Return K of a Poisson model, and the summed excess beyond it."""
    return _curvature_bound(sums, at, CELLS * 2.0 * at.curvature * sums.p, share, curvature)


def _curvature_bound(
    sums: CurvedSums, at: Place, edges: Floats, share: float, curvature: float, **bounds: float
) -> tuple[float, float]:
    """Return K and the summed excess beyond it."""
    counts, sd = sums.counts(at, "curvature", edges, share, **bounds)
    coarse = math.sqrt(2.0) / sums.price(share) > MOST_NOISE * sums.n
    least = 1.5 * at.curvature * sums.p if coarse else 0.0
    cost = 4.0 * sums.p / sums.price(curvature) ** 2
    return clip_of(edges, counts, sd, sums.n, cost, 1.0, min(least, float(edges[-1])), sums.seen)


def quantile_of(edges: Floats, counts: Floats, level: float) -> float:
    """Return the first edge that at most `level` records pass."""
    passed = np.flatnonzero(np.maximum.accumulate(counts[::-1])[::-1] <= level)
    return float(edges[passed[0] if len(passed) else -1])


def no_bounds(sums: CurvedSums, at: Place) -> Bounds:
    """Return B and K that no row inside the public bounds reaches."""
    length = sums.radius * float(np.linalg.norm(at.transform, 2)) * ROOM
    if sums.family == "binomial":
        return Bounds(length, length**2 / 4.0)
    most = math.exp(
        min(float(np.abs(at.theta).sum() + np.abs(sums.linear).sum() + abs(sums.level)) + 1.0, LARGEST_LOG)
    )
    return Bounds(length * max(most, sums.response[1]), length**2 * most)
