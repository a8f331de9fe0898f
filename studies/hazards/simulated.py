"""Releases of a proportional-hazards fit with seeded normal noise, over records in memory."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from privinf.accounting.shares import part_of_mu
from privinf.glm.curved_sums import Noisy
from privinf.glm.hazards.path import MOST_NOISE, HazardFit, fit_hazards
from privinf.glm.hazards.sums import HazardPoint
from privinf.glm.posterior_draws import PosteriorDraws, drawn
from privinf.inference.survival import CellEstimate, CellNoise
from privinf.mechanisms.statistics.summands import counts_above, root_matrix, root_sensitivity
from privinf.mechanisms.statistics.survival import suffix_root
from privinf.typing import Flags, Floats
from studies.hazards.records import (
    FollowUp,
    Hazard,
    Records,
    follow,
    hessian_sensitivity,
    meat_sensitivity,
    score_sensitivity,
    shrunk_to,
)


@dataclass(slots=True, kw_only=True)
class SimulatedSums:
    """The queries of `privinf.glm.hazards.sums.HazardSums`, answered in doubles with simulation noise.

    Attributes
    ----------
    records : Records
    edges : ndarray, shape (K,)
    mu : float
    rng : Generator
    spent : float
        Of mu^2, in shares.
    """

    records: Records
    edges: Floats
    mu: float
    rng: np.random.Generator
    spent: float = 0.0
    n: int = field(init=False)
    largest: Floats = field(init=False)
    _place: HazardPoint | None = field(init=False, default=None)
    _followed: FollowUp | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        """Public sizes."""
        self.n = len(self.records)
        self.largest = np.ones(self.records.x.shape[1])

    def price(self, share: float) -> float:
        """Return mu of a share of mu^2."""
        return part_of_mu(self.mu, share)

    def _sd(self, sensitivity: float, share: float) -> float:
        self.spent += share
        return 0.0 if math.isinf(self.mu) else sensitivity / self.price(share)

    def _matrix(self, total: Floats, sensitivity: float, share: float) -> Noisy:
        """Return the mean of a symmetric matrix, noise isotropic in the Frobenius norm."""
        sd = self._sd(sensitivity, share)
        noise = np.triu(self.rng.standard_normal(total.shape), 1) * (sd / math.sqrt(2.0))
        noise = noise + noise.T + np.diag(sd * self.rng.standard_normal(len(total)))
        return Noisy((total + noise) / self.n, sd / self.n)

    def at(self, place: HazardPoint) -> FollowUp:
        """Return the records at a place."""
        if self._followed is None or place is not self._place:
            base = place.baseline
            hazard = Hazard(edges=base.edges, increments=base.increments, block=base.block)
            self._followed = follow(self.records, hazard, place.theta, place.transform, place.stop)
            self._place = place
        return self._followed

    def cells(self, share: float) -> CellEstimate:
        """Return the cells of one group."""
        root = suffix_root(len(self.edges) + 1)
        cells = cells_of(self.records.time, self.records.event, self.edges)
        sd = self._sd(math.sqrt(float(root[:-1] @ root[:-1] + root @ root)), share)
        sums = np.concatenate([root_matrix(len(part)) @ part for part in cells])
        values = sums + sd * self.rng.standard_normal(len(sums))
        return CellEstimate.from_release(values, CellNoise(scale=sd, root=root, groups=1), self.n)

    def gram(self, share: float) -> Noisy:
        """Return the mean of (1, x)(1, x)'."""
        ones = np.column_stack([np.ones(self.n), self.records.x])
        return self._matrix(ones.T @ ones, math.sqrt(2.0) * ones.shape[1], share)

    def counts(
        self, at: HazardPoint, of: str, thresholds: Floats, share: float, bound: float
    ) -> tuple[Floats, Floats]:
        """Return noisy numbers of records above thresholds, and the sds of their noise."""
        values = self.at(at).size if of == "score" else self.at(at).traces(bound)
        cells = np.bincount(np.searchsorted(thresholds, values, side="left"), minlength=len(thresholds) + 1)
        sd = self._sd(root_sensitivity(len(thresholds)), share)
        sums = root_matrix(len(thresholds)) @ cells[1:]
        return counts_above(sums + sd * self.rng.standard_normal(len(sums)), sd)

    def score(self, at: HazardPoint, share: float, label: str, *, high: float, bound: float) -> Noisy:
        """Return the mean score."""
        total = shrunk_to(self.at(at).scores(bound), high).sum(axis=0)
        sd = self._sd(score_sensitivity(high), share)
        return Noisy((total + sd * self.rng.standard_normal(len(total))) / self.n, sd / self.n)

    def meat(self, at: HazardPoint, share: float, bound: float) -> Noisy:
        """Return the mean outer product of the scores."""
        scores = self.at(at).scores(bound if math.isfinite(self.mu) else math.inf)
        return self._matrix(scores.T @ scores, meat_sensitivity(bound), share)

    def hessian(
        self, at: HazardPoint, share: float, label: str, *, step: Floats, bound: float, trace: float
    ) -> Noisy:
        """Return the mean secant Hessian along a step."""
        factors = self.at(at).hessians(bound, trace, step)
        return self._matrix(factors.T @ factors, hessian_sensitivity(trace), share)


def cells_of(time: Floats, event: Flags, edges: Floats) -> tuple[Floats, Floats]:
    """Return events and censored records of each interval, shapes (K,) and (K + 1,)."""
    count = len(edges)
    place = np.searchsorted(edges, time, side="left")
    place[~event & (time >= edges[-1])] = count
    inside = event & (place < count)
    D = np.bincount(place[inside], minlength=count).astype(np.float64)
    C = np.bincount(place[~inside], minlength=count + 1).astype(np.float64)
    return D, C


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SimulatedFit:
    """A fit and its draws."""

    fit: HazardFit
    draws: PosteriorDraws
    spent: float

    @property
    def params(self) -> Floats:
        """Slopes, shape (d,)."""
        return self.draws.params[self.fit.baseline.blocks :]

    def intervals(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Return the ends of the slopes' intervals."""
        tail = (1.0 - level) / 2.0
        slopes = self.draws.draws[:, self.fit.baseline.blocks :]
        low, high = np.quantile(slopes, [tail, 1.0 - tail], axis=0)
        return low, high


def simulated_fit(
    records: Records, edges: Floats, mu: float, rng: np.random.Generator, most_noise: float = MOST_NOISE
) -> SimulatedFit:
    """Return a fit of records at a price of mu; errors as in `fit_hazards`."""
    sums = SimulatedSums(records=records, edges=edges, mu=mu, rng=rng)
    fit = fit_hazards(sums, most_noise=most_noise)
    assert fit.step is not None
    return SimulatedFit(fit=fit, draws=drawn(fit.step, len(records), None), spent=sums.spent)
