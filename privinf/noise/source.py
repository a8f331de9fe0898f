"""What a noise source offers, the grid of secure noise, and the noise scale that a budget buys."""

from __future__ import annotations

import math
from typing import Protocol

from privinf.errors import SensitivityError
from privinf.noise.keys import NoiseKey
from privinf.typing import Flags, Floats, Integers
from privinf.validation import check_number, check_positive

Size = int | tuple[int, ...]

# A noise scale spans 2^20 to 2^21 grid steps.
GRID_BITS = 20


class NoiseSource(Protocol):
    """Where noise comes from.

    Attributes
    ----------
    name : str
    secure : bool
        Whether its releases may leave the building: operating-system entropy, integers on a public grid.
    """

    name: str
    secure: bool

    def new_key(self) -> NoiseKey | None:
        """Return a new secret key for `at`; None from a source that cannot be keyed."""
        ...

    def at(self, stream: bytes) -> NoiseSource:
        """Return the same noise, drawn from the words of one stream key (`NoiseKey.stream`)."""
        ...

    def perturb(self, values: Floats, scale: float) -> Floats:
        """Return ``values + N(0, scale^2)``; secure sources put values and noise on `grid_step`'s grid."""
        ...

    def gaussian_steps(self, steps: Integers, sigma: float) -> Integers:
        """Return integers plus discrete Gaussian noise, `sigma` in steps."""
        ...

    def inflation(self, scale: float, dimension: int) -> float:
        """Return what rounding to the grid can add to an l2 sensitivity over `dimension` numbers."""
        ...

    def uniform(self, size: Size) -> Floats:
        """Return independent uniforms on [0, 1), multiples of 2^-53."""
        ...

    def bernoulli(self, p: float, size: Size) -> Flags:
        """Return independent flags, True with probability `p`."""
        ...

    def integers(self, k: int, size: Size) -> Integers:
        """Return independent uniforms on 0, ..., k - 1."""
        ...

    def gumbel(self, scale: float, size: Size) -> Floats:
        """Return independent Gumbel numbers with mode 0, as noisy maxima need them."""
        ...

    def laplace(self, scale: float, size: Size) -> Floats:
        """Return independent Laplace numbers; secure sources draw them on `grid_step`'s grid."""
        ...


def grid_step(scale: float) -> float:
    """Return the grid of secure noise of sd `scale`: the power of two 2^(floor(log2 scale) - 20).

    Raises
    ------
    ArgumentError
        `scale` is not a number above 2^-1000, below which doubles have no such grid.
    """
    check_number(scale, "scale", low=2.0**-1000)
    return math.ldexp(1.0, math.frexp(scale)[1] - 1 - GRID_BITS)


def grid_inflation(scale: float, dimension: int) -> float:
    """Return g sqrt(D): two neighbours are moved by at most g/2 each in each of D coordinates."""
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
        The budget is so small that the grid's own share of the sensitivity would outgrow it.
    """
    check_positive(sensitivity, "sensitivity")
    scale = sensitivity / check_positive(mu, "mu")
    for _ in range(64):
        total = sensitivity + source.inflation(scale, dimension)
        if total / mu <= scale:
            return scale, scale * mu
        # Grow the scale (and, past a power of two, its grid) until the grid's share is covered.
        scale = total / mu * (1.0 + 2.0**-50)
    raise SensitivityError(
        f"mu={mu:g} is too small for {dimension} numbers on the noise grid: spend more or release fewer"
    )
