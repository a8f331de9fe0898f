"""Speed of the noise sources on one core: ``python benchmarks/bench_noise.py``."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import time
from collections.abc import Callable

import numpy as np

from privinf.noise import LatticeNoise, SimulationNoise

SIGMAS = (1.0, 30.0, 2.0**20, 2.0**40)


def best(function: Callable[[], object], repetitions: int = 5) -> float:
    """Return the shortest wall time of several runs."""
    times = []
    for _ in range(repetitions):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def measure() -> dict[str, float]:
    """Return values a second of the lattice, and seeded `perturb` over ``standard_normal``."""
    lattice, seeded, rng = LatticeNoise(), SimulationNoise(0), np.random.default_rng(0)
    values, steps = rng.uniform(-1.0, 1.0, (1_000_000, 10)), np.zeros(1_000_000, dtype=np.int64)
    lattice.perturb(values[:10], 1.3)  # the first call of a scale builds its table
    found = {"perturb": 2_000_000 / best(lambda: lattice.perturb(values[:200_000], 1.3))}
    for sigma in SIGMAS:
        found[f"steps, sigma {sigma:.3g}"] = len(steps) / best(
            lambda s=sigma: lattice.gaussian_steps(steps, s)
        )
    found["gumbel"] = len(steps) / best(lambda: lattice.gumbel(1.3, len(steps)))
    normal = best(lambda: rng.standard_normal(values.shape))
    found["seeded perturb / standard_normal"] = best(lambda: seeded.perturb(values, 1.3)) / normal
    return found


if __name__ == "__main__":
    print("; ".join(f"{what}: {value:.3g}" for what, value in measure().items()))
