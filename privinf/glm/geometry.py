"""Which rows public bounds allow: their longest image, the largest residual at a coefficient."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from privinf.typing import Floats

MOST_VERTICES = 1 << 12


@dataclass(frozen=True, slots=True, eq=False)
class Reachable:
    """Rows z in scaled units inside their bounds; a column with equal bounds never varies.

    Attributes
    ----------
    low, high : ndarray, shape (p,)
    blocks : tuple of tuple of int
        Columns of which at most one differs from its lower bound in any row.
    radius : float
        Longest row.
    vertices : ndarray, shape (k, p), or None
        Corners of the set; None where there are too many.
    """

    low: Floats
    high: Floats
    blocks: tuple[tuple[int, ...], ...]
    radius: float
    vertices: Floats | None

    @classmethod
    def of(cls, low: Floats, high: Floats, blocks: Sequence[Sequence[int]], radius: float) -> Reachable:
        """Return the set of rows between bounds, its corners where there are at most 4,096."""
        kept = tuple(tuple(int(j) for j in block) for block in blocks)
        return cls(low, high, kept, radius, _vertices(low, high, kept))

    def longest2(self, matrix: Floats) -> float:
        """Return the largest |M z|^2, or a bound of it."""
        bound = self.radius**2 * float(np.linalg.norm(matrix, 2)) ** 2
        if self.vertices is None:
            return bound
        images = self.vertices @ matrix.T
        return min(bound, float(np.einsum("ij,ij->i", images, images).max()))

    def predictor(self, theta: Floats) -> tuple[float, float]:
        """Return the least and the largest z'theta."""
        ends = np.stack([self.low * theta, self.high * theta])
        least, most = ends.min(axis=0), ends.max(axis=0)
        inside = {j for block in self.blocks for j in block}
        free = [j for j in range(len(theta)) if j not in inside]
        low, high = float(least[free].sum()), float(most[free].sum())
        for block in self.blocks:
            at = list(block)
            base = float((self.low[at] * theta[at]).sum())
            moved = (self.high[at] - self.low[at]) * theta[at]
            low += base + min(0.0, float(moved.min()))
            high += base + max(0.0, float(moved.max()))
        return low, high

    def residual(self, theta: Floats, low: float, high: float) -> float:
        """Return the largest |y - z'theta| of responses between `low` and `high`."""
        least, most = self.predictor(theta)
        return max(high - least, most - low)


def _vertices(low: Floats, high: Floats, blocks: tuple[tuple[int, ...], ...]) -> Floats | None:
    inside = {j for block in blocks for j in block}
    free = [j for j in range(len(low)) if j not in inside and high[j] > low[j]]
    count = math.prod([2 ** min(len(free), 40), *(len(block) + 1 for block in blocks)])
    if count > MOST_VERTICES:
        return None
    choices: list[list[tuple[int, ...]]] = [[(), (j,)] for j in free]
    choices += [[(), *((j,) for j in block)] for block in blocks]
    corners = np.tile(low, (count, 1))
    for row, chosen in enumerate(product(*choices)):
        raised = [j for part in chosen for j in part]
        corners[row, raised] = high[raised]
    return corners
