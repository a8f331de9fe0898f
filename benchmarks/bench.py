"""Speed, as ratios measured in one run: ``make bench`` writes benchmarks/results/bench.md.

Each figure is the best of several repetitions of both sides, alternating, on one thread.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import statsmodels.api as sm

import privinf as pi
from privinf.noise import LatticeNoise

RESULTS = Path(__file__).parent / "results"


def best(functions: dict[str, Callable[[], object]], repetitions: int) -> dict[str, float]:
    """Return the shortest wall time of each function, run in turn."""
    times = {name: [] for name in functions}
    for _ in range(repetitions):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            times[name].append(time.perf_counter() - start)
    return {name: min(values) for name, values in times.items()}


def import_ratio(repetitions: int = 9) -> float:
    """Return wall time of ``import privinf`` over ``import statsmodels.api``, fresh interpreters."""

    def run(module: str) -> Callable[[], object]:
        return lambda: subprocess.run([sys.executable, "-c", f"import {module}"], check=True)

    empty = {"bare": lambda: subprocess.run([sys.executable, "-c", ""], check=True)}
    times = best(empty | {"ours": run("privinf"), "theirs": run("statsmodels.api")}, repetitions)
    return (times["ours"] - times["bare"]) / (times["theirs"] - times["bare"])


def lattice_rate(count: int = 4_000_000) -> float:
    """Return secure discrete Gaussian values a second, one core."""
    source = LatticeNoise()
    zeros = np.zeros((count // 10, 10))
    source.perturb(zeros[:1000], 1.0)
    return count / best({"lattice": lambda: source.perturb(zeros, 1.0)}, 3)["lattice"]


def release_ratio(n: int = 1_000_000, d: int = 10) -> float:
    """Return a seeded release of n x d over ``rng.standard_normal`` of that shape."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.3, 0.3, (n, d))
    model = pi.ModulatedOLS(X[:, 0], X, radius=1.0)
    times = best(
        {
            "release": lambda: model.release(epsilon=4.0, delta=1e-5, rng=1),
            "normal": lambda: rng.standard_normal((n, d)),
        },
        5,
    )
    return times["release"] / times["normal"]


def fit_ratio(n: int = 1_000_000, d: int = 10) -> float:
    """Return a fit from an n x d release over a statsmodels OLS HC0 fit of the same shape."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.3, 0.3, (n, d))
    y = X.sum(axis=1) + rng.standard_normal(n)
    release = pi.ModulatedOLS(y, X, radius=1.0).release(epsilon=16.0, delta=1e-5, rng=1)
    times = best(
        {
            "ours": lambda: pi.ModulatedOLS.from_release(release).fit().bse,
            "statsmodels": lambda: sm.OLS(y, X).fit(cov_type="HC0").bse,
        },
        5,
    )
    return times["ours"] / times["statsmodels"]


def main() -> None:
    """Measure everything and write the table."""
    rows = [
        ("secure noise, values a second on one core", f"{lattice_rate():.3g}", ">= 2e6"),
        ("seeded release of 1e6 x 10 / rng.standard_normal", f"{release_ratio():.2f}", "<= 2.5"),
        ("fit of a 1e6 x 10 release / statsmodels OLS HC0", f"{fit_ratio():.2f}", "<= 1.0"),
        ("import privinf / import statsmodels.api", f"{import_ratio():.2f}", "<= 0.8"),
    ]
    lines = [
        "# Speed",
        "",
        "Made by `make bench`; one thread.",
        "",
        "| what | measured | asked |",
        "|---|---|---|",
    ]
    lines += [f"| {what} | {value} | {asked} |" for what, value, asked in rows]
    text = "\n".join(lines) + "\n"
    print(text)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "bench.md").write_text(text)


if __name__ == "__main__":
    main()
