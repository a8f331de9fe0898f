"""A study that worker processes import: `bench.py` runs it in one process and in two."""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np

import privinf as pi


def study_of_moments(seed: np.random.SeedSequence) -> dict[str, Any]:
    """Return whether an interval of `MomentOLS` held the truth, and what the replication cost whom."""
    start, rng = time.process_time(), np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (1000, 5))
    y = 0.2 * X.sum(axis=1) + 0.3 * rng.standard_normal(1000)
    fit = pi.MomentOLS(y, X, bounds=[(-1.0, 1.0)] * 5, y_bounds=(-2.0, 2.0)).fit(
        mu=1.0, rng=int(rng.integers(2**31))
    )
    low, high = fit.conf_int().iloc[0]
    return {"hit": low < 0.2 < high, "process": os.getpid(), "seconds": time.process_time() - start}
