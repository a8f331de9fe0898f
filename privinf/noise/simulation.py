"""Seeded noise for simulation: fast floats, reproducible, and not private."""

from __future__ import annotations

import numpy as np

from privinf.noise.entropy import KEY_BYTES
from privinf.noise.keys import NoiseKey
from privinf.noise.source import NoiseSource, Size
from privinf.typing import Flags, Floats, Integers, RngLike
from privinf.validation import as_generator


class SimulationNoise:
    """Noise from a numpy Generator.

    Parameters
    ----------
    rng : int or Generator
        None draws a fresh seed, which is simulation all the same.

    Notes
    -----
    **Privacy.** None: whoever knows the seed can remove the noise, and float noise leaks through low bits
    (Mironov 2012). Results made with it are stamped.
    """

    name = "simulation"
    secure = False

    def __init__(self, rng: RngLike) -> None:
        self._rng = as_generator(rng)

    def new_key(self) -> NoiseKey | None:
        """Return a key drawn from the seed: equal seeds give equal keys."""
        return NoiseKey(self._rng.bytes(KEY_BYTES))

    def at(self, stream: bytes) -> NoiseSource:
        """Return the same noise, drawn from a generator that one stream key seeds."""
        return SimulationNoise(np.random.default_rng(np.frombuffer(stream, dtype="<u4")))

    def perturb(self, values: Floats, scale: float) -> Floats:
        """Return ``values + N(0, scale^2)``."""
        noise = self._rng.standard_normal(np.shape(values))
        noise *= scale
        noise += values
        return noise

    def gaussian_steps(self, steps: Integers, sigma: float) -> Integers:
        """Return integers plus rounded Gaussian noise, `sigma` in steps."""
        noise = np.rint(sigma * self._rng.standard_normal(np.shape(steps)))
        return np.asarray(steps + noise.astype(np.int64), dtype=np.int64)

    def inflation(self, scale: float, dimension: int) -> float:
        """Return 0: there is no grid."""
        return 0.0

    def uniform(self, size: Size) -> Floats:
        """Return uniforms on [0, 1)."""
        return self._rng.random(size)

    def bernoulli(self, p: float, size: Size) -> Flags:
        """Return flags, True with probability `p`."""
        return np.asarray(self._rng.random(size) < p)

    def integers(self, k: int, size: Size) -> Integers:
        """Return uniforms on 0, ..., k - 1."""
        return self._rng.integers(k, size=size, dtype=np.int64)

    def gumbel(self, scale: float, size: Size) -> Floats:
        """Return Gumbel numbers with mode 0."""
        return self._rng.gumbel(0.0, scale, size)

    def laplace(self, scale: float, size: Size) -> Floats:
        """Return Laplace numbers."""
        return self._rng.laplace(0.0, scale, size)
