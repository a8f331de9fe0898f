"""The sketch of DOME, learned directions next to random probes, and Adam's moments of gradients (paper 3).

All of it is public: a function of releases and of public seeds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from privinf.typing import Floats

Probes = Literal["unbiased", "orthonormal"]
BETA1 = 0.9  # decay of the gradients' mean, Adam's usual one
BETA2 = 0.999  # decay of the mean of their squares, Adam's usual one
TINY = 1e-8  # added to the root of that mean, as Adam does
FLOOR = 0.1  # least second moment, as a share of the noise's variance, which is subtracted from it


@dataclass(frozen=True, slots=True, eq=False)
class LearnedSpace:
    """Leading eigenvectors of the mean outer product of past directions.

    Attributes
    ----------
    basis : ndarray, shape (d, r)
        Orthonormal columns.
    values : ndarray, shape (r,)
        Eigenvalues.
    count : int
        Directions behind them.
    """

    basis: Floats
    values: Floats
    count: int = 0

    @classmethod
    def empty(cls, d: int) -> LearnedSpace:
        """Return the space before anything was observed."""
        return cls(np.empty((d, 0)), np.empty(0))

    def track(self, direction: Floats, *, limit: int, energy: float) -> LearnedSpace:
        """Return the space after one more direction h: history PCA (Yang et al. 2018), solved exactly.

        Eigenvectors of ``t/(t+1) Q L Q' + 1/(t+1) h h'`` by the singular vectors of its root, kept up to the
        share `energy` of their sum, at most `limit`.
        """
        old = math.sqrt(self.count / (self.count + 1.0)) * self.basis * np.sqrt(self.values)
        joined = np.column_stack([old, direction / math.sqrt(self.count + 1.0)])
        axes, singular, _ = np.linalg.svd(joined, full_matrices=False)
        return self.truncated(axes, singular**2, limit=limit, energy=energy)

    def truncated(self, axes: Floats, values: Floats, *, limit: int, energy: float) -> LearnedSpace:
        """Return the space of one more direction: leading axes, whose eigenvalues decrease."""
        if not values[0] > 0.0:
            return LearnedSpace(self.basis, self.values, self.count + 1)
        cumulative = np.cumsum(values) / values.sum()
        rank = min(
            limit, int(np.searchsorted(cumulative, energy)) + 1, int((values > 1e-14 * values[0]).sum())
        )
        return LearnedSpace(axes[:, :rank], values[:rank], self.count + 1)

    def rescaled(self, ratio: Floats) -> LearnedSpace:
        """Return the space of the directions times `ratio`, entry by entry: another preconditioner."""
        if not len(self.values):
            return self
        return LearnedSpace(np.linalg.qr(ratio[:, None] * self.basis)[0], self.values, self.count)


@dataclass(frozen=True, slots=True, eq=False)
class Sketch:
    """One round's sketch S, shape (d, k), and the arguments from which a site makes the same.

    Attributes
    ----------
    matrix : ndarray, shape (d, k)
    arguments : mapping
        Basis, number of probes, their seed and scale: not S itself.
    """

    matrix: Floats
    arguments: dict[str, Any]

    @classmethod
    def from_space(cls, space: LearnedSpace, k: int, seed: int, kind: Probes) -> Sketch:
        """Return the learned directions and ``k - r`` probes: normal, then orthonormal, orthogonal to them.

        Scaled by sqrt((d - r) / (k - r)) they give an unbiased estimate S S'h of any h ("unbiased"); without
        that, a projection ("orthonormal").
        """
        d, r = space.basis.shape
        count = k - r
        scale = math.sqrt((d - r) / count) if kind == "unbiased" and count else 1.0
        probes = _probes(seed, count, d, np.ascontiguousarray(space.basis).tobytes())
        arguments: dict[str, Any] = {"probes": count, "probe_seed": seed, "probe_scale": scale}
        if r:
            arguments["basis"] = space.basis
        return cls(np.column_stack([space.basis, scale * probes]), arguments)

    @property
    def noise_diagonal(self) -> Floats:
        """diag(S S'), shape (d,): variance of S xi for noise xi of variance 1."""
        return np.asarray(np.einsum("ij,ij->i", self.matrix, self.matrix))


@lru_cache(maxsize=1)
def _probes(seed: int, count: int, d: int, basis: bytes) -> Floats:
    """Return orthonormal normal directions orthogonal to a basis, shape (d, count)."""
    known_axes = np.frombuffer(basis).reshape(d, -1)
    drawn = np.random.Generator(np.random.Philox(key=seed)).standard_normal((d, count))
    drawn -= known_axes @ (known_axes.T @ drawn)
    return np.asarray(np.linalg.qr(drawn)[0])


def debiased_square(estimate: Floats, noise_variance: Floats | float) -> Floats:
    """Return ``estimate^2`` less the noise's variance, entry by entry (Lemma 3.2): it may be negative."""
    return np.asarray(estimate**2 - noise_variance)


@dataclass(slots=True)
class RunningMoments:
    """Adam's moments of the gradient, and the noise's variance averaged in the same way.

    Attributes
    ----------
    first, second, noise : ndarray, shape (d,)
        `second` has the noise's part taken off and may be negative.
    updates : int
    """

    first: Floats
    second: Floats
    noise: Floats
    updates: int = 0

    @classmethod
    def start(cls, d: int) -> RunningMoments:
        """Return the moments before anything was observed."""
        return cls(np.zeros(d), np.zeros(d), np.zeros(d))

    def update(self, gradient: Floats, noise_variance: Floats) -> None:
        """Take in a noisy gradient; its square without the noise's part (Lemma 3.2)."""
        self.updates += 1
        self.first = BETA1 * self.first + (1.0 - BETA1) * gradient
        square = debiased_square(gradient, noise_variance)
        self.second = BETA2 * self.second + (1.0 - BETA2) * square
        self.noise = BETA2 * self.noise + (1.0 - BETA2) * noise_variance

    @property
    def unit(self) -> Floats:
        """Root of the second moment, corrected for its start at 0, plus a small number; at first 1.

        The moment is kept above a share of the noise's average: one that followed the current noise would
        shrink with the unit itself, and the steps would grow without end.
        """
        if not self.updates:
            return np.ones_like(self.second)
        corrected = np.maximum(self.second, FLOOR * self.noise) / (1.0 - BETA2**self.updates)
        return np.asarray(np.sqrt(np.maximum(corrected, 0.0)) + TINY)

    @property
    def direction(self) -> Floats:
        """Adam's step of length 1."""
        return np.asarray(self.first / (1.0 - BETA1**self.updates) / self.unit)
