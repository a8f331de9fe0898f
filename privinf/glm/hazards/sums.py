"""Queries of a proportional-hazards fit, and their prices."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from privinf.accounting.shares import part_of_mu
from privinf.completeness import CompleteRows
from privinf.federation import NoisyGram
from privinf.glm.curved_sums import Noisy
from privinf.glm.hazards.baseline import Baseline
from privinf.glm.sums import GlmServer, Traffic
from privinf.inference.survival import CellEstimate, CellNoise
from privinf.mechanisms.statistics.summands import counts_above
from privinf.mechanisms.statistics.survival import NEGATIVE_WEIGHT, suffix_root
from privinf.typing import Floats, Integers, PlainValue
from privinf.wire import Labels, Statistics


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class HazardPoint:
    """Current point of a fit.

    Attributes
    ----------
    baseline : Baseline
    theta : ndarray, shape (P,)
        Logarithms a_b of the blocks' factors over sqrt q, and the d slopes.
    transform : ndarray, shape (P, P)
        W: whitened designs are W (sqrt q e_b, x).
    curvature : float
        h, the mean curvature in whitened units.
    stop : float
        c.
    """

    baseline: Baseline
    theta: Floats
    transform: Floats
    curvature: float
    stop: float = math.inf

    @property
    def slopes(self) -> Floats:
        """The d slopes."""
        return self.theta[self.baseline.blocks :]

    @property
    def increments(self) -> Floats:
        """Increments of the cumulated hazard of x = 0, shape (K,)."""
        q = self.baseline.blocks
        return self.baseline.increments * np.exp(math.sqrt(q) * self.theta[:q])[self.baseline.block]


class HazardQueries(Protocol):
    """The releases that a fit needs; shares are of mu^2."""

    n: int
    mu: float
    edges: Floats
    largest: Floats

    def price(self, share: float) -> float:
        """Return mu of a share."""

    def cells(self, share: float) -> CellEstimate:
        """Return the cells of one group."""

    def gram(self, share: float) -> Noisy:
        """Return the mean of (1, x)(1, x)'."""

    def counts(
        self, at: HazardPoint, of: str, thresholds: Floats, share: float, bound: float
    ) -> tuple[Floats, Floats]:
        """Return noisy numbers of records above thresholds, and the sds of their noise."""

    def score(self, at: HazardPoint, share: float, label: str, *, high: float, bound: float) -> Noisy:
        """Return the mean score, weighted by min(1, bound / Q) and shrunk to `high`."""

    def meat(self, at: HazardPoint, share: float, bound: float) -> Noisy:
        """Return the mean outer product of these scores."""

    def hessian(
        self, at: HazardPoint, share: float, label: str, *, step: Floats, bound: float, trace: float
    ) -> Noisy:
        """Return the mean secant Hessian along a step, of matrices of at most this trace."""


@dataclass(slots=True, kw_only=True)
class HazardSums:
    """Releases of a proportional-hazards fit by a server.

    Attributes
    ----------
    server : GlmServer
    units : mapping
        Center and scale of all columns.
    n : int
        Number of records; where records with missing values are dropped, its estimate once the cells are
        released.
    width : int
        Number of all columns.
    columns : ndarray of int
        Positions of the columns that have coefficients.
    constant, status : int
        Positions of the constant and of the status.
    largest : ndarray, shape (d,)
        Largest sizes of the columns, scaled units.
    edges : ndarray, shape (K,)
        Ends of the intervals.
    mu : float
    traffic : Traffic
    spent : float
        Of mu^2, in shares.
    dropping : bool
        Whether records with missing values are dropped.
    complete : CompleteRows or None
        Estimate from the cells where they are.
    negative : (float, float) or None
        Number of negative times by the cells, and the sd of its noise; None before they are released.
    """

    server: GlmServer
    units: Mapping[str, Any]
    n: int
    width: int
    columns: Integers
    constant: int
    status: int
    largest: Floats
    edges: Floats
    mu: float
    traffic: Traffic = field(default_factory=Traffic)
    spent: float = 0.0
    dropping: bool = False
    complete: CompleteRows | None = None
    negative: tuple[float, float] | None = None

    def price(self, share: float) -> float:
        """Return mu of a share of mu^2."""
        return part_of_mu(self.mu, share)

    def _release(self, op: str, args: Mapping[str, Any], label: str, share: float) -> Any:
        self.spent += share
        release = self.server.vector_sum(op, args, label=label, mu=self.price(share))
        self.traffic.add(label, args, len(release.values))
        return release if self.complete is None else replace(release, rows=self.n)

    def _at(self, at: HazardPoint, bound: float, **extra: PlainValue) -> dict[str, Any]:
        """Return the arguments of a statistic at a point, with weights by a bound."""
        q = at.baseline.blocks
        args: dict[str, Any] = {
            **self.units,
            "columns": self.columns,
            "status": self.status,
            "edges": self.edges,
            "increments": at.increments,
            "blocks": at.baseline.block.astype(np.float64),
            "theta": at.slopes,
            "transform": np.ascontiguousarray(at.transform[:, q:].T),
            "offsets": np.ascontiguousarray(math.sqrt(q) * at.transform[:, :q].T),
            **extra,
        }
        if math.isfinite(at.stop):
            args["stop"] = at.stop
        if math.isfinite(bound):
            args["score_bound"] = bound
        return args

    def cells(self, share: float) -> CellEstimate:
        """Return the cells of one group."""
        args: dict[str, Any] = {"edges": self.edges, "status": self.status, "negative": True}
        if self.dropping:
            args["counted"] = True
        release = self._release(Statistics.SURVIVAL_CELLS, args, Labels.CELLS_OF_EVENTS, share)
        noise = CellNoise(
            scale=float(release.scale),
            root=suffix_root(len(self.edges) + 1),
            groups=1,
            counted=float(self.dropping),
        )
        cells = CellEstimate.from_release(release.values, noise, self.n)
        self.negative = float(release.values[-1]) / NEGATIVE_WEIGHT, noise.scale / NEGATIVE_WEIGHT
        if self.dropping:
            sd = noise.scale * math.sqrt(1.0 - 1.0 / noise.total_size)
            self.complete = CompleteRows.from_sum(float(cells.total), sd, self.n, len(self.columns))
            self.n = self.complete.rows
        return cells

    def gram(self, share: float) -> Noisy:
        """Return the mean of (1, x)(1, x)'."""
        args = {
            **self.units,
            "family": "gaussian",
            "theta": np.zeros(self.width),
            "radius": math.sqrt(1.0 + float(self.largest @ self.largest)),
            "residual_clip": 1.0,
            "curvature": "bound",
            "block": np.concatenate([[self.constant], self.columns]),
        }
        release = self._release(Statistics.GLM_HESSIAN, args, Labels.MOMENTS, share)
        return Noisy(NoisyGram.from_sum(release).mean, release.mean_sd)

    def counts(
        self, at: HazardPoint, of: str, thresholds: Floats, share: float, bound: float
    ) -> tuple[Floats, Floats]:
        """Return noisy numbers of records above thresholds, and the sds of their noise."""
        args = self._at(at, bound, of=of, thresholds=thresholds)
        release = self._release(Statistics.HAZARDS_COUNTS, args, Labels.COUNTS.format(quantity=of), share)
        return counts_above(release.values, float(release.scale))

    def score(self, at: HazardPoint, share: float, label: str, *, high: float, bound: float) -> Noisy:
        """Return the mean score, weighted by min(1, bound / Q) and shrunk to `high`."""
        release = self._release(Statistics.HAZARDS_SCORE, self._at(at, bound, high=high), label, share)
        return Noisy(release.mean, release.mean_sd)

    def meat(self, at: HazardPoint, share: float, bound: float) -> Noisy:
        """Return the mean outer product of these scores."""
        args = self._at(at, bound, high=bound)
        release = self._release(Statistics.HAZARDS_MEAT, args, Labels.MEAT, share)
        return Noisy(NoisyGram.from_sum(release).mean, release.mean_sd)

    def hessian(
        self, at: HazardPoint, share: float, label: str, *, step: Floats, bound: float, trace: float
    ) -> Noisy:
        """Return the mean secant Hessian along a step, of matrices of at most this trace."""
        args = self._at(at, bound, step=step, clip=trace)
        release = self._release(Statistics.HAZARDS_SECANT, args, label, share)
        return Noisy(NoisyGram.from_sum(release).mean, release.mean_sd)
