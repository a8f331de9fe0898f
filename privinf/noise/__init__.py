"""Noise sources: the lattice (default, secure), OpenDP (extra) and seeded simulation; samplers and keys."""

from privinf.noise.keys import NoiseKey
from privinf.noise.lattice import LatticeNoise
from privinf.noise.opendp import OpenDPNoise
from privinf.noise.simulation import SimulationNoise
from privinf.noise.source import NoiseSource, SourceName, get_source, grid_step, solve_scale

__all__ = [
    "LatticeNoise",
    "NoiseKey",
    "NoiseSource",
    "OpenDPNoise",
    "SimulationNoise",
    "SourceName",
    "get_source",
    "grid_step",
    "solve_scale",
]
