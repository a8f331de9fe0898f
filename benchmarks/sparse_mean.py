"""Errors of a sparse mean from machines that trust no server: on signals and on nulls (some three minutes).

``--scale 0.5`` makes half of the draws.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import math
import time
import warnings

import numpy as np
import pandas as pd
from tables import RESULTS, write_table

import privinf as pi

SIZES, MACHINES, ROWS, SPARSITY, EPSILONS = (50, 100, 200, 400, 800), 16_000, 4, 5, (1.0, 4.0)
MEAN = 0.7 / math.sqrt(ROWS)


def one_draw(p: int, draw: int) -> list[dict]:
    """Return errors of one draw at every epsilon."""
    rng = np.random.default_rng([p, draw])
    truth = np.zeros(p)
    truth[:SPARSITY] = MEAN
    rows = rng.standard_normal((MACHINES, ROWS, p))
    rows[:, :, :SPARSITY] += MEAN
    clear = float(((rows.mean(axis=(0, 1)) - truth)[:SPARSITY] ** 2).sum())
    found = []
    for epsilon in EPSILONS:
        r = pi.sparse_mean(rows, epsilon=epsilon, sparsity=SPARSITY, rng=rng, public_seed=draw)
        square = (r.params.to_numpy() - truth) ** 2
        found.append(
            {
                "epsilon": epsilon,
                "p": p,
                "draw": draw,
                "signals": float(square[:SPARSITY].sum()),
                "nulls": SPARSITY * float(square[SPARSITY:].mean()),
                "forecast of signals": SPARSITY * r.expected_square(MEAN),
                "forecast of nulls": SPARSITY * r.expected_square(),
                "first order at 0": r.error,
                "rate": r.rate,
                "sparse": float(((r.sparse_params - truth) ** 2).sum()),
                "kept": len(set(r.selected) & set(range(SPARSITY))),
                "saturated": float(r.saturated[:SPARSITY].mean()),
                "clear": clear,
            }
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0)
    scale = parser.parse_args().scale
    draws, started = max(2, round(20 * scale)), time.process_time()
    warnings.simplefilter("ignore")  # saturated signs are the subject
    frame = pd.DataFrame([row for p in SIZES for draw in range(draws) for row in one_draw(p, draw)])
    frame.to_csv(RESULTS / "sparse_mean.csv", index=False, float_format="%.7g")
    rows = []
    for (epsilon, p), group in frame.groupby(["epsilon", "p"]):
        mean, error = group.mean(), group.std(ddof=1) / math.sqrt(draws)
        rows.append(
            {
                "eps": f"{epsilon:g}",
                "p": p,
                "draws": draws,
                "error on the 5 signals": f"{mean['signals']:.4f} ± {error['signals']:.4f}",
                "forecast of signals": f"{mean['forecast of signals']:.4f}",
                "error on 5 nulls": f"{mean['nulls']:.4f} ± {error['nulls']:.4f}",
                "forecast of nulls": f"{mean['forecast of nulls']:.4f}",
                "first order at 0": f"{mean['first order at 0']:.4f}",
                "minimax rate": f"{mean['rate']:.5f}",
                "signals / rate": f"{mean['signals'] / mean['rate']:.1f}",
                "sparse estimate": f"{mean['sparse']:.3f}",
                "true kept, of 5": f"{mean['kept']:.2f}",
                "signals that saturate": f"{mean['saturated']:.2f}",
                "no privacy": f"{mean['clear']:.5f}",
            }
        )
    write_table(
        RESULTS / "sparse_mean.md",
        "A sparse mean from machines that trust no server: signals and nulls apart",
        "benchmarks/sparse_mean.py" + (f" --scale {scale:g}" if scale != 1.0 else ""),
        rows,
        time.process_time() - started,
        f"{MACHINES:,} machines with {ROWS} rows N(mu, I) each, {SPARSITY} of p means {MEAN:g}, one private sign a machine. "
        "Squared error, before any selection, summed over the five signals, and five times the mean over nulls; standard "
        "errors over draws. Forecasts: five times `SparseMeanResult.expected_square`, the exact mean over all answers; "
        "first order at 0: `SparseMeanResult.error`. The rate, min(s/n, s p/(m n eps^2)), is without constants and "
        "logarithms, and one of privacy only up to eps about 1. Estimates are held within 2/sqrt n, so that errors stop "
        "growing. 'sparse estimate': all p coordinates after the largest five are kept.",
    )


if __name__ == "__main__":
    main()
