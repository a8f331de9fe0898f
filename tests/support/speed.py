"""How fast this processor is: limits in seconds hold on a slower one too."""

from __future__ import annotations

import hashlib
import time
from functools import cache

import numpy as np

# Seconds of processor time that `work` takes on the machine whose limits stand in the tests (EPYC, Zen 3).
MEASURED = 0.014
RUNS = 20


def work(numbers: np.ndarray) -> None:
    """Do what the package does most: Python's loops, numpy's passes over arrays, a digest."""
    total = 0
    for i in range(100_000):
        total += i * i % 7
    np.exp(np.sort(numbers)).sum()
    hashlib.sha256(bytes(1 << 20)).digest()


@cache
def slowness() -> float:
    """Return how many times as long as on the machine of the limits everything takes here, at least 1."""
    numbers = np.random.default_rng(0).random(200_000)
    seconds = []
    for _ in range(RUNS):
        start = time.process_time()
        work(numbers)
        seconds.append(time.process_time() - start)
    return max(1.0, min(seconds) / MEASURED)
