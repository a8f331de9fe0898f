r"""What a record adds to the sums of a proportional-hazards fit, and how far one record moves each sum.

A record has columns x, |x_j| <= 1, a time and an event. Its hazard in interval k is dL_k exp(a_b + x'beta),
dL public increments, constant within an interval, and b the interval's block. With q blocks the design at a
time in block b is z_b = (sqrt q e_b, x), of P = q + d entries, theta = (a / sqrt q, beta), and v_b = W z_b
for a public W. Lambda_b is the record's hazard cumulated within block b up to its own time, Lambda their
sum.

- *Stop*: x is followed up to the last edge where the hazard of x, cumulated from 0, is at most c. What
  happens later is cut, so that Lambda <= c and |event - Lambda| <= max(1, c).
- *Weight* w = min(1, B/Q), Q = max |v_b| max(1, hazard of x at the stop), the maximum over blocks up to the
  stop.

Stop and weight are functions of x alone: the score keeps the mean 0 at the right coefficients.

**Sensitivities** (replace-one), whatever x, time, theta, W and dL are:

- ``scores``: sum of s = w sum_b v_b (event in b - Lambda_b), shrunk to |s| <= B: 2 B. It is attained by s
  and -s, both of norm B; a record whose event comes late and one whose event comes at once have such
  scores, since event - Lambda has both signs. No smaller bound holds, as for the scores of a logistic
  model, whose sign is y's.
- ``meat``: sum s s': |aa' - bb'|_F^2 = |a|^4 + |b|^4 - 2 (a'b)^2 <= 2 B^4, that is sqrt 2 B^2, attained by
  orthogonal scores of norm B.
- ``hessian``: sum of A = w sum_b Lambda_b v_b v_b', scaled to a trace of at most K. For positive
  semidefinite A, A' |A - A'|_F^2 = |A|_F^2 + |A'|_F^2 - 2 tr A A' <= tr^2 A + tr^2 A' <= 2 K^2, that is
  sqrt 2 K, attained by matrices of rank one and trace K with orthogonal directions. The secant's slopes
  scale Lambda_b by a positive factor.
- counts of records above m thresholds, released as U h with U the square root of suffix sums:
  `root_sensitivity`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from privinf.typing import Flags, Floats, Integers

TANGENT = 1e-6  # moves of a predictor below which a secant is the tangent


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Records:
    """Rows: columns x in [-1, 1], shape (n, d), times and events, shape (n,)."""

    x: Floats
    time: Floats
    event: Flags

    def __len__(self) -> int:
        return len(self.time)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Hazard:
    """A public baseline: the end of each interval, the increment and the block of each, shape (K,)."""

    edges: Floats
    increments: Floats
    block: Integers

    @property
    def blocks(self) -> int:
        """Number of blocks, q."""
        return int(self.block[-1]) + 1


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FollowUp:
    """Records at a public theta, W and stop.

    Attributes
    ----------
    transform : ndarray, shape (P, P)
        W.
    cumulated : ndarray, shape (n, q)
        Lambda_b.
    residual : ndarray, shape (n, q)
        Event in b less Lambda_b.
    designs : ndarray, shape (n, q, P)
        v_b.
    size : ndarray, shape (n,)
        Q; 0 where nothing of a record is followed.
    """

    transform: Floats
    cumulated: Floats
    residual: Floats
    designs: Floats
    size: Floats

    def weights(self, bound: float) -> Floats:
        """Return w = min(1, B/Q)."""
        return np.asarray(np.minimum(1.0, bound / np.maximum(self.size, 1e-300)))

    def scores(self, bound: float) -> Floats:
        """Return the weighted scores, of norm B at most, shape (n, P)."""
        scores = np.einsum("nbp,nb->np", self.designs, self.residual)
        if math.isinf(bound):
            return np.asarray(scores)
        scores *= self.weights(bound)[:, None]
        return shrunk_to(scores, bound)

    def parts(self, bound: float, step: Floats | None = None) -> Floats:
        """Return w Lambda_b, or w times the secant of it along a step in whitened units, shape (n, q)."""
        parts = self.cumulated
        if step is not None:
            move = self.designs @ step
            flat = np.abs(move) < TANGENT
            slope = np.where(flat, 1.0 + 0.5 * move, np.expm1(move) / np.where(flat, 1.0, move))
            parts = parts * slope
        return np.asarray(parts if math.isinf(bound) else parts * self.weights(bound)[:, None])

    def traces(self, bound: float, step: Floats | None = None) -> Floats:
        """Return tr A of each record, shape (n,)."""
        lengths = np.einsum("nbp,nbp->nb", self.designs, self.designs)
        return np.asarray((self.parts(bound, step) * lengths).sum(axis=1))

    def hessians(self, bound: float, largest: float, step: Floats | None = None) -> Floats:
        """Return factors, shape (n q, P), whose Gram is the sum of A, of traces of at most `largest`."""
        parts = self.parts(bound, step)
        if not math.isinf(largest):
            traces = self.traces(bound, step)
            parts = parts * np.minimum(1.0, largest / np.maximum(traces, 1e-300))[:, None]
        return np.asarray((self.designs * np.sqrt(parts)[:, :, None]).reshape(-1, self.designs.shape[2]))


def follow(records: Records, hazard: Hazard, theta: Floats, transform: Floats, stop: float) -> FollowUp:
    """Return what records add at theta, shape (P,), with W = `transform` and the stop c."""
    q = hazard.blocks
    edges = np.concatenate([[0.0], hazard.edges])
    eta = records.x @ theta[q:]
    increments = hazard.increments * np.exp(math.sqrt(q) * theta[:q])[hazard.block]
    total = np.concatenate([[0.0], np.cumsum(increments)])
    with np.errstate(over="ignore"):
        last = np.searchsorted(total, stop * np.exp(-eta), side="right") - 1
    risk = np.exp(np.minimum(eta, 700.0))
    end = edges[last]
    time = np.minimum(records.time, end)
    happened = records.event & (records.time <= end) & (last > 0)
    place = np.minimum(np.searchsorted(hazard.edges, time, side="left"), len(hazard.edges) - 1)
    cumulated = np.empty((len(records), q))
    for b in range(q):
        inside = np.concatenate([[0.0], np.cumsum(np.where(hazard.block == b, increments, 0.0))])
        cumulated[:, b] = risk * np.interp(time, edges, inside)
    residual = -cumulated
    rows = np.flatnonzero(happened)
    residual[rows, hazard.block[place[rows]]] += 1.0
    along = records.x @ transform[:, q:].T
    designs = along[:, None, :] + math.sqrt(q) * transform[:, :q].T
    first = np.searchsorted(hazard.block, np.arange(q))  # the interval that a block begins with
    reached = last[:, None] > first
    lengths = np.where(reached, np.linalg.norm(designs, axis=2), 0.0)
    size = lengths.max(axis=1) * np.maximum(1.0, risk * total[last])
    return FollowUp(transform=transform, cumulated=cumulated, residual=residual, designs=designs, size=size)


def shrunk_to(vectors: Floats, bound: float) -> Floats:
    """Return vectors, shape (n, P), shrunk to a norm of at most `bound`."""
    norms = np.linalg.norm(vectors, axis=1)
    return np.asarray(vectors * np.minimum(1.0, bound / np.maximum(norms, 1e-300))[:, None])


def score_sensitivity(bound: float) -> float:
    """Return 2 B."""
    return 2.0 * bound


def meat_sensitivity(bound: float) -> float:
    """Return sqrt 2 B^2."""
    return math.sqrt(2.0) * bound**2


def hessian_sensitivity(largest: float) -> float:
    """Return sqrt 2 K."""
    return math.sqrt(2.0) * largest
