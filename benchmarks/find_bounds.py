"""Bounds that are bought: ``python benchmarks/find_bounds.py [RUNS]``.

Bounds of one column are requested that leave 1% of the rows outside, at delta = 1e-6. Every run draws n rows and releases bounds as `privinf.find_bounds` does, with seeded noise. A row of the tables is a cell: the share of rows outside of the
bounds (median, and what 90% of runs stay below), the width of the bounds over that of the true (.005, .995)
quantiles (median, and what 90% stay below), the median of the stated largest share outside, and the number of runs with more rows outside than stated. Cells below n mu = 100 are refused. `Laplace at 1e6` and years
lie within one octave: a third look. Values that are rarer than the noise are lost, and are included in the stated largest share.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import math
import sys
import time

import numpy as np
from bought_laws import OWN, PAGE, Law
from tables import RESULTS

from privinf.accounting import calibrate_mu
from privinf.bounds.finding import LEAST_SIGNAL
from privinf.inference.quantiles import range_search
from privinf.mechanisms.distribution import NoisyCDF, cell_counts, noisy_prefixes
from privinf.mechanisms.statistics.prefixes import prefix_sensitivity
from privinf.noise import SimulationNoise

SIZES, EPSILONS, DELTA, CLIP = (1_000, 10_000, 100_000), (0.1, 0.2, 0.5), 1e-6, 0.01
HEAD = "| law | outside | 90% | width | 90% | said at most | more than said |\n|---|---|---|---|---|---|---|"


def run(x: np.ndarray, mu: float, source: SimulationNoise) -> tuple[float, float, float]:
    """Return the bounds of one run, and the share that is said to be outside at most."""

    def look(edges: np.ndarray, share: float) -> NoisyCDF:
        scale = prefix_sensitivity(len(edges) + 1) / (math.sqrt(share) * mu)
        noisy = noisy_prefixes(cell_counts(x, edges), scale, source)
        return NoisyCDF.from_counts(edges, noisy, scale, len(x))

    search = range_search(CLIP)
    asked = next(search)
    try:
        while True:
            asked = search.send(look(*asked))
    except StopIteration as end:
        return end.value.low, end.value.high, end.value.most


def cell(law: Law, n: int, mu: float, runs: int) -> str:
    """Return the figures of one cell."""
    rng = np.random.default_rng(n)
    usual = np.subtract(*np.quantile(law(400_000, rng), [0.995, 0.005]))
    rows = []
    for seed in range(runs):
        x = law(n, rng)
        low, high, most = run(x, mu, SimulationNoise(seed))
        rows.append((np.mean((x < low) | (x > high)), (high - low) / usual, most))
    outside, width, most = np.array(rows).T
    figures = (
        *(f"{value:.4f}" for value in (np.median(outside), np.quantile(outside, 0.9))),
        *(f"{value:.3g}" for value in (np.median(width), np.quantile(width, 0.9))),
        f"{np.median(most):.3f}",
        f"{int((outside > most).sum())}",
    )
    return " | ".join(figures)


def main(runs: int) -> None:
    """Write the tables."""
    start, parts = time.time(), []
    for n in SIZES:
        for epsilon in EPSILONS:
            mu = calibrate_mu(epsilon=epsilon, delta=DELTA)
            title = f"## n = {n:,}, epsilon = {epsilon}, n mu = {n * mu:.0f}\n"
            if n * mu < LEAST_SIGNAL:
                parts.append(f"{title}\nRefused.\n")
                continue
            lines = [
                f"| {name}{mark} | {cell(law, n, mu, runs)} |"
                for laws, mark in ((PAGE, ""), (OWN, " *"))
                for name, law in laws.items()
            ]
            parts.append("\n".join([title, HEAD, *lines, ""]))
            print(parts[-1], flush=True)
    head = (
        f"# Bounds that are bought\n\nMade by `python benchmarks/find_bounds.py {runs}` in "
        f"{time.time() - start:.0f} s.\n\n{(__doc__ or '').partition('.' + chr(10))[2].strip()}\n\n"
        f"{runs} runs a cell. A star marks distributions that were not used for tuning.\n\n"
    )
    (RESULTS / "find_bounds.md").write_text(head + "\n".join(parts))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
