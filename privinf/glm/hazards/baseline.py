r"""The baseline hazard of a proportional-hazards fit from noisy cells, and how far records are followed.

**Marginal hazard.** Of intervals that are merged, by two, four, ..., until the mean number of events exceeds
four sds of its noise: D / E, exposures E as in `privinf.inference.survival`. Where most events come early, a
mean over the grid says little: late intervals would have hazards of noise, cut at 0. Then the same rule holds
in each half of the grid, in each half of a half, and so on: a part is divided as long as the mean number of
events of its halves exceeds four sds of theirs.

**Baseline.** The marginal hazard is the mean hazard of the records still at risk. With a normal predictor
eta ~ N(m, s^2) at time 0, and survivors weighted by exp(-L e^eta), the baseline's increment is the marginal
one over the mean of e^eta among survivors: dL_k = h_k / E[e^eta | at risk]. Without this step, effects with
predictors of sd 1.2 are off by several standard errors.

**Stop.** A record is followed up to the last edge at which its cumulated hazard is at most c. The norm of
its score is then at most about max(1, c) times its whitened length, so that the noise of the score over its
sampling variance is about

.. math:: \rho(c) = 5.8 P c^2 / (\mu_S^2 n p_c),

p_c the share of records with an event before the stop, by the cells and the predictor's distribution.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from privinf.glm.curved import NODE_WEIGHTS, NODES
from privinf.inference.survival import CellEstimate
from privinf.typing import Floats, Integers

CLEAR = 4.0  # sds of its noise that the mean number of events of a merged interval exceeds
LEAST_EVENTS = 0.05  # of the mean number, that a merged interval is taken to have at least
STOPS = np.array([1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0])  # values of c that are tried
NOISE = 5.8  # of rho(c), for scores that are clipped at about 1.2 of their usual length
EARLY = 0.125  # part of the grid in which a hazard that is steep at 0 has most events
STEEP = 0.6  # share of the events there above which a hazard is steep
LARGE_SDS = 3.0  # sds of the predictor above its mean, whose hazard is taken for the largest


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Baseline:
    """The cells of a fit, and the public baseline that scores are measured against.

    Attributes
    ----------
    cells : CellEstimate
        Of one group.
    n : int
        Number of records.
    edges : ndarray, shape (K,)
        Ends of the intervals.
    block : ndarray of int, shape (K,)
        Block of each interval.
    marginal, increments : ndarray, shape (K,)
        Increments of the marginal hazard, and of the baseline.
    mean, sd : float
        Of the predictor at time 0.
    """

    cells: CellEstimate
    n: int
    edges: Floats
    block: Integers
    marginal: Floats
    increments: Floats
    mean: float = 0.0
    sd: float = 0.0

    @classmethod
    def from_cells(cls, cells: CellEstimate, n: int, edges: Floats, blocks: int) -> Baseline:
        """Return the marginal hazard as a baseline of at most `blocks` blocks."""
        marginal = marginal_hazard(cells, is_steep=early_share(cells, edges) > STEEP)
        block = blocks_of(cells.D[0], blocks)
        return cls(cells=cells, n=n, edges=edges, block=block, marginal=marginal, increments=marginal)

    @property
    def blocks(self) -> int:
        """Number of blocks, q."""
        return int(self.block[-1]) + 1

    @property
    def events(self) -> float:
        """Number of events, at least 1."""
        return max(events_of(self.cells)[0], 1.0)

    @property
    def early(self) -> float:
        """Share of the events in the first part of the grid, `EARLY` of it, at most 1."""
        return early_share(self.cells, self.edges)

    def at(self, slopes: Floats, center: Floats, spread: Floats) -> Baseline:
        """Return the baseline at these slopes of columns with this mean and covariance."""
        mean = float(slopes @ center)
        sd = math.sqrt(max(float(slopes @ spread @ slopes), 0.0))
        increments = baseline_hazard(self.marginal, mean, sd)
        return replace(self, increments=increments, mean=mean, sd=sd)

    def shares(self, stops: Floats) -> Floats:
        """Return the share of events before each stop."""
        return share_followed(self.cells.D[0], self.increments, self.mean, self.sd, stops)

    def later(self, stop: float) -> tuple[float, float]:
        r"""Return the share of events after a stop, and the sd of its noise.

        With the expected share q_k of the events of interval k that come after the stop, the share is
        ``sum_k D_k q_k / sum_k D_k``. Its sd is that of ``sum_k D_k (q_k - share) / sum_k D_k``, by the noise
        of the counts D (delta method). The q_k count as known. Counts below 0 are set to 0, so that the share
        is too large if few events come late.
        """
        D = np.maximum(self.cells.D[0], 0.0)
        after = 1.0 - shares_by_interval(self.increments, self.mean, self.sd, stop)
        share = max(1.0 - float(self.shares(np.array([stop]))[0]), 0.0)
        weights = np.where(D > 0.0, after - share, 0.0) / max(float(D.sum()), 1.0)
        return share, float(_events_sds(self.cells, weights[None, :])[0])

    def stop(self, price: float, size: int, most: float) -> float:
        """Return c for a score of `size` entries released at this price: the largest with rho <= most.

        Where none is, the c of the smallest variance, (1 + rho) / p_c. Infinite without noise.
        """
        if math.isinf(price):
            return math.inf
        largest = float(self.increments.sum()) * math.exp(self.mean + LARGE_SDS * self.sd)
        followed = np.maximum(self.shares(STOPS) * self.events / self.n, 1.0 / self.n)
        sizes = np.maximum(np.minimum(STOPS, largest), 1.0)
        noise = NOISE * size * sizes**2 / (price**2 * self.n * followed)
        small = np.flatnonzero(noise <= most)
        return float(STOPS[small[-1] if len(small) else np.argmin((1.0 + noise) / followed)])


def events_of(cells: CellEstimate) -> tuple[float, float]:
    """Return the number of events of one group, and the sd of its noise."""
    return float(cells.D.sum()), float(_events_sds(cells, np.ones((1, cells.D.shape[-1])))[0])


def _events_sds(cells: CellEstimate, merged: Floats) -> Floats:
    """Return the sds of the noise of sums of events, shape (m,), by weights of shape (m, K)."""
    nothing = np.zeros((len(merged), 1, merged.shape[1] + 1))
    covariance = cells.noise.covariance(cells.noise.whitened(merged[:, None, :], nothing))
    return np.asarray(np.sqrt(np.maximum(np.diag(np.atleast_2d(covariance)), 0.0)))


def early_share(cells: CellEstimate, edges: Floats) -> float:
    """Return the share of the events in the first part of the grid, `EARLY` of it, at most 1."""
    first = edges <= EARLY * edges[-1]
    return min(float(cells.D[0][first].sum()) / max(events_of(cells)[0], 1.0), 1.0)


def marginal_hazard(cells: CellEstimate, *, is_steep: bool = False) -> Floats:
    """Return the increments of the marginal cumulated hazard, shape (K,), on the finest clear merging.

    Parameters
    ----------
    cells : CellEstimate
        Of one group.
    is_steep : bool
        Whether halves of the grid are merged by themselves.
    """
    D = cells.D[0]
    exposed = cells.exposed[0]
    count = len(D)
    total = max(float(D.sum()), 1.0)
    hazard = np.empty(count)
    for part in clear_halves(cells) if is_steep else equal_parts(cells):
        events = max(float(D[part].sum()), LEAST_EVENTS * total * len(D[part]) / count)
        hazard[part] = events / max(float(exposed[part].sum()), events)
    return hazard


def equal_parts(cells: CellEstimate) -> list[slice]:
    """Return the finest parts of 1, 2, 4, ... intervals whose mean number of events is clear."""
    count = cells.D.shape[-1]
    total = max(float(cells.D[0].sum()), 1.0)
    width = 1
    while width < count:
        groups = np.arange(count) // width
        merged = (groups == np.arange(groups[-1] + 1)[:, None]).astype(np.float64)
        if total / len(merged) > CLEAR * float(_events_sds(cells, merged).max()):
            break
        width *= 2
    return [slice(start, start + width) for start in range(0, count, width)]


def clear_halves(cells: CellEstimate) -> list[slice]:
    """Return the parts of the grid that are left when halves are divided while their mean number is clear."""
    parts = []
    waiting = [slice(0, cells.D.shape[-1])]
    while waiting:
        part = waiting.pop()
        middle = (part.start + part.stop) // 2
        halves = [slice(part.start, middle), slice(middle, part.stop)]
        merged = np.zeros((2, cells.D.shape[-1]))
        for row, half in zip(merged, halves, strict=True):
            row[half] = 1.0
        mean = 0.5 * float(cells.D[0][part].sum())
        if middle > part.start and mean > CLEAR * float(_events_sds(cells, merged).max()):
            waiting += halves
        else:
            parts.append(part)
    return parts


def baseline_hazard(marginal: Floats, mean: float, sd: float) -> Floats:
    """Return the baseline's increments where predictors are N(mean, sd^2) at time 0 (module docstring)."""
    risk = np.exp(mean + sd * NODES)
    L = 0.0
    increments = np.empty(len(marginal))
    for k, step in enumerate(marginal):
        weight = NODE_WEIGHTS * np.exp(-L * risk)
        increment = step * weight.sum() / (weight @ risk)
        # The increment is that of who survives half of the interval.
        weight = NODE_WEIGHTS * np.exp(-(L + 0.5 * increment) * risk)
        increments[k] = step * weight.sum() / (weight @ risk)
        L += increments[k]
    return increments


def blocks_of(events: Floats, count: int) -> Integers:
    """Return each interval's block, shape (K,): blocks of about equal numbers of events, none empty."""
    positive = np.maximum(events, 0.0)
    done = np.cumsum(positive)
    middle = done - 0.5 * positive
    block = np.minimum((count * middle / max(float(done[-1]), 1e-300)).astype(np.int64), count - 1)
    return np.unique(block, return_inverse=True)[1]


def share_followed(events: Floats, baseline: Floats, mean: float, sd: float, stops: Floats) -> Floats:
    """Return the share of events before each stop, where predictors are N(mean, sd^2) at time 0.

    A record is followed up to the last edge where its cumulated hazard L_k e^eta is at most the stop.
    """
    D = np.maximum(events, 0.0)
    shares = [D @ shares_by_interval(baseline, mean, sd, stop) for stop in stops]
    return np.asarray(shares) / max(float(D.sum()), 1e-300)


def shares_by_interval(baseline: Floats, mean: float, sd: float, stop: float) -> Floats:
    """Return the share of the events of each interval that come before a stop, shape (K,)."""
    risk = np.exp(mean + sd * NODES)
    end = np.cumsum(baseline)
    middle = end - 0.5 * baseline
    density = NODE_WEIGHTS * risk * np.exp(-np.outer(middle, risk))
    density /= np.maximum(density.sum(axis=1, keepdims=True), 1e-300)
    # Half of a node's mass lies below it; between nodes the distribution function is interpolated.
    below = np.cumsum(density, axis=1) - 0.5 * density
    eta = mean + sd * NODES
    cuts = np.log(stop / end)
    inside = [np.interp(cut, eta, row, left=0.0, right=1.0) for cut, row in zip(cuts, below, strict=True)]
    return np.array(inside)
