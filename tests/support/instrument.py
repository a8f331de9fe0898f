"""A noise source that writes down what was asked of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from privinf.noise import NoiseKey, NoiseSource
from privinf.typing import Flags, Floats, Integers

Size = int | tuple[int, ...]
NoiseKind = Literal["perturb", "gaussian_steps", "uniform", "bernoulli", "integers", "gumbel", "laplace"]


@dataclass(frozen=True, slots=True)
class NoiseCall:
    """One call of a noise source.

    Attributes
    ----------
    kind : str
        Name of the method.
    scale : float
        Noise sd of ``perturb``; scale of ``gumbel`` and ``laplace``; sd in grid steps of
        ``gaussian_steps``; p of ``bernoulli``; k of ``integers``; 1 of ``uniform``.
    shape : tuple of int
        Shape of what was drawn.
    """

    kind: NoiseKind
    scale: float
    shape: tuple[int, ...]


@dataclass(slots=True)
class RecordingNoise:
    """A noise source that passes every call on to `source` and records it in `calls`.

    With the scales and shapes of the raw calls a test adds up the privacy loss by itself and compares it
    with the ledger's.

    Examples
    --------
    >>> from privinf.noise import LatticeNoise
    >>> noise = RecordingNoise(LatticeNoise())
    >>> noisy = noise.perturb(np.zeros((3, 2)), 1.5)
    >>> noise.calls
    [NoiseCall(kind='perturb', scale=1.5, shape=(3, 2))]
    """

    source: NoiseSource
    calls: list[NoiseCall] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Name of the source behind."""
        return self.source.name

    @property
    def secure(self) -> bool:
        """Whether the source behind is secure."""
        return self.source.secure

    def of(self, *kinds: NoiseKind) -> list[NoiseCall]:
        """Return the calls of these kinds, in order."""
        return [call for call in self.calls if call.kind in kinds]

    def new_key(self) -> NoiseKey | None:
        """Return a new key of the source behind."""
        return self.source.new_key()

    def at(self, stream: bytes) -> RecordingNoise:
        """Return the source behind at one stream; its calls are recorded here."""
        return RecordingNoise(self.source.at(stream), self.calls)

    def perturb(self, values: Floats, scale: float) -> Floats:
        """Return values plus noise."""
        self._record("perturb", scale, np.shape(values))
        return self.source.perturb(values, scale)

    def gaussian_steps(self, steps: Integers, sigma: float) -> Integers:
        """Return integers plus noise."""
        self._record("gaussian_steps", sigma, np.shape(steps))
        return self.source.gaussian_steps(steps, sigma)

    def inflation(self, scale: float, dimension: int) -> float:
        """Return what rounding adds to a sensitivity."""
        return self.source.inflation(scale, dimension)

    def uniform(self, size: Size) -> Floats:
        """Return uniforms on [0, 1)."""
        self._record("uniform", 1.0, _shape(size))
        return self.source.uniform(size)

    def bernoulli(self, p: float, size: Size) -> Flags:
        """Return flags, True with probability `p`."""
        self._record("bernoulli", p, _shape(size))
        return self.source.bernoulli(p, size)

    def integers(self, k: int, size: Size) -> Integers:
        """Return uniforms on 0, ..., k - 1."""
        self._record("integers", float(k), _shape(size))
        return self.source.integers(k, size)

    def gumbel(self, scale: float, size: Size) -> Floats:
        """Return Gumbel numbers."""
        self._record("gumbel", scale, _shape(size))
        return self.source.gumbel(scale, size)

    def laplace(self, scale: float, size: Size) -> Floats:
        """Return Laplace numbers."""
        self._record("laplace", scale, _shape(size))
        return self.source.laplace(scale, size)

    def _record(self, kind: NoiseKind, scale: float, shape: tuple[int, ...]) -> None:
        self.calls.append(NoiseCall(kind, float(scale), shape))


def _shape(size: Size) -> tuple[int, ...]:
    return (size,) if isinstance(size, int) else tuple(size)
