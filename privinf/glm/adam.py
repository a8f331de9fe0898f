"""Adam's moments of noisy gradients, the second one without the noise's part (paper 3, Lemma 3.2)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privinf.glm.sketch import debiased_square
from privinf.typing import Floats

BETA1, BETA2, TINY = 0.9, 0.999, 1e-8
# The second moment stays above this share of the noise's variance, which was subtracted from it.
FLOOR = 0.1


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
        """Return the moments before anything was seen."""
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
