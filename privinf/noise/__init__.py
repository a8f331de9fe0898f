"""Noise sources: the lattice (default, secure), OpenDP (extra) and seeded simulation; samplers and keys."""

from privinf.errors import ArgumentError
from privinf.noise.entropy import NoiseKey
from privinf.noise.lattice import LatticeNoise, OpenDPNoise
from privinf.noise.source import NoiseSource, SimulationNoise, grid_step, side_by_side, solve_scale
from privinf.typing import RngLike, SourceName
from privinf.validation import check_choice

__all__ = [
    "LatticeNoise",
    "NoiseKey",
    "NoiseSource",
    "OpenDPNoise",
    "SimulationNoise",
    "SourceName",
    "get_source",
    "grid_step",
    "side_by_side",
    "solve_scale",
]


def get_source(rng: RngLike = None, source: SourceName = "lattice") -> NoiseSource:
    """Return seeded simulation noise if `rng` is given, else the named secure source.

    Raises ArgumentError if both a seed and a source other than the default are named: secure noise has no
    seed.
    """
    check_choice(source, SourceName, "source")
    if rng is not None:
        if source != "lattice":
            raise ArgumentError(
                f"source={source!r} cannot be combined with rng=, because secure noise has no seed: "
                "leave source= or rng= out"
            )
        return SimulationNoise(rng)
    return LatticeNoise() if source == "lattice" else OpenDPNoise()
