"""Interface of noise sources, seeded noise for simulation, and the noise scale of a budget."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

import numpy as np

from privinf.errors import SensitivityError
from privinf.noise.entropy import KEY_BYTES, NoiseKey
from privinf.typing import Flags, Floats, Integers, RngLike
from privinf.validation import READ_ROWS, as_generator, check_number, check_positive
from privinf.wire import NoiseSources

Size = int | tuple[int, ...]

# A noise scale spans 2^20 to 2^21 grid steps.
GRID_BITS = 20
# Beyond it a scale grows without end: its grid alone would cost more than mu.
LARGEST_SCALE = 2.0**900


class NoiseSource(Protocol):
    """Base class of noise sources.

    Attributes
    ----------
    name : str
        Name of the source in ledger lines.
    secure : bool
        Whether its noise is private: keys of the operating system, integers on a public grid.
    """

    name: str
    secure: bool

    def new_key(self) -> NoiseKey | None:
        """Return a new secret key for `at`; None from a source that cannot be keyed."""

    def at(self, stream: bytes) -> NoiseSource:
        """Return the same noise, drawn from the words of one stream key (`NoiseKey.stream`)."""

    def perturb(self, values: Floats, scale: float) -> Floats:
        """Return ``values + N(0, scale^2)``; secure sources put values and noise on `grid_step`'s grid."""

    def gaussian_steps(self, steps: Integers, sigma: float) -> Integers:
        """Return integers plus discrete Gaussian noise, `sigma` in steps."""

    def inflation(self, scale: float, dimension: int) -> float:
        """Return the largest increase of an l2 sensitivity of `dimension` numbers by grid rounding."""

    def uniform(self, size: Size) -> Floats:
        """Return independent uniforms on [0, 1), multiples of 2^-53."""

    def bernoulli(self, p: float, size: Size) -> Flags:
        """Return independent flags, True with probability `p`."""

    def integers(self, k: int, size: Size) -> Integers:
        """Return independent uniforms on 0, ..., k - 1."""

    def gumbel(self, scale: float, size: Size) -> Floats:
        """Return independent Gumbel numbers with mode 0, as noisy maxima need them."""

    def laplace(self, scale: float, size: Size) -> Floats:
        """Return independent Laplace numbers; secure sources draw them on `grid_step`'s grid."""


def grid_step(scale: float) -> float:
    """Return the grid of secure noise of sd `scale`: the power of two 2^(floor(log2 scale) - 20).

    Raises ArgumentError if `scale` is not a number above 2^-1000, below which doubles have no such grid.
    """
    check_number(scale, "scale", low=2.0**-1000)
    return math.ldexp(1.0, math.frexp(scale)[1] - 1 - GRID_BITS)


def grid_inflation(scale: float, dimension: int) -> float:
    """Return g sqrt(D): two neighbors are moved by at most g/2 each in each of D coordinates."""
    return grid_step(scale) * math.sqrt(dimension)


def solve_scale(sensitivity: float, mu: float, dimension: int, source: NoiseSource) -> tuple[float, float]:
    """Return (scale, sensitivity on the grid) of a Gaussian release that costs exactly `mu`.

    Parameters
    ----------
    sensitivity : float
        Replace-one l2 sensitivity before rounding.
    mu : float
        Finite.
    dimension : int
        Number of released numbers that one unit touches.

    Raises
    ------
    SensitivityError
        The budget is so small that rounding to the grid of the noise would alone cost more than the budget.
    """
    check_positive(sensitivity, "sensitivity")
    scale = sensitivity / check_positive(mu, "mu")
    for _ in range(64):
        total = sensitivity + source.inflation(scale, dimension)
        if total / mu <= scale:
            return scale, scale * mu
        # Grow the scale (and, past a power of two, its grid) until the grid's share is covered.
        scale = total / mu * (1.0 + 2.0**-50)
        if not scale < LARGEST_SCALE:
            break
    smallest_mu = 2.0**-GRID_BITS * math.sqrt(dimension)
    raise SensitivityError(
        f"mu={mu:g} is too small for a release of {dimension} numbers, which needs about "
        f"mu={smallest_mu:.1g} or more. Use a larger privacy budget, or release fewer numbers"
    )


Draw: TypeAlias = Callable[[NoiseSource, int], object]


def side_by_side(source: NoiseSource, draws: Sequence[Draw], rows: int) -> list[NoiseSource]:
    """Return a source for each of several arrays of noise, so that blocks of all can be drawn together.

    Simulation noise is then that of drawing one array after the other: the generator of each starts where
    that of the one before ends. Secure noise has no order, and one source serves all.

    Parameters
    ----------
    source : NoiseSource
        The noise source; for simulation noise that of the last array, in its final state.
    draws : sequence of callable (source, rows)
        How some rows of each array are drawn.
    rows : int
        Number of rows.
    """
    sources = []
    for draw in draws[:-1]:
        sources.append(source if source.secure else copy.deepcopy(source))
        for start in range(0, 0 if source.secure else rows, READ_ROWS):
            draw(source, min(READ_ROWS, rows - start))
    return [*sources, source]


class SimulationNoise:
    """Simulation noise from a numpy Generator, which is not private.

    Parameters
    ----------
    rng : int or Generator
        None draws a fresh seed, which is simulation all the same.

    Notes
    -----
    **Privacy.** None: anyone who knows the seed can remove the noise, and float noise leaks through low bits
    (Mironov 2012). Results made with it are stamped.
    """

    name = NoiseSources.SIMULATION
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
