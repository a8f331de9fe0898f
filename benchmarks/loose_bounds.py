"""Bounds of a response far beyond its values: ``python benchmarks/loose_bounds.py [DRAWS]``.

Columns are normal within bounds of 4; slopes are 1 and errors normal for `OLS`, rates exp(.2 + .3 a - .2 b) for `Poisson`,
delta = 1e-6. The response's bounds are far away, so that counts of the scores' tail have many thresholds beyond all scores:
what noise alone passes there must not set the clip. Widths are over the median one; coverage is of all slopes.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import sys
import time

import numpy as np
import pandas as pd
from tables import RESULTS, write_table

import privinf as pi

CASES = [
    ("OLS", 5_000, 1.0, 30.0, 3), ("OLS", 5_000, 1.0, 300.0, 3), ("OLS", 20_000, 0.5, 100.0, 5),
    ("OLS", 20_000, 4.0, 1000.0, 5), ("Poisson", 50_000, 2.0, 40.0, 2), ("Poisson", 50_000, 4.0, 400.0, 2),
]  # fmt: skip
RATES = np.array([0.3, -0.2])


def one_fit(model: str, n: int, epsilon: float, bound: float, columns: int, seed: int) -> np.ndarray:
    """Return widths of the slopes' intervals, and whether each holds its slope; shape (2, columns)."""
    rng = np.random.default_rng([n, columns, seed])
    X = np.clip(rng.normal(size=(n, columns)), -4.0, 4.0)
    slopes = RATES if model == "Poisson" else np.ones(columns)
    linear = X @ slopes
    y = rng.poisson(np.exp(0.2 + linear)) if model == "Poisson" else linear + rng.normal(size=n)
    names = [f"x{j + 1}" for j in range(columns)]
    schema = pi.Schema(
        {"y": (0.0 if model == "Poisson" else -bound, bound)} | dict.fromkeys(names, (-4.0, 4.0))
    )
    rows = pd.DataFrame(X, columns=names).assign(y=np.minimum(y, bound))
    asked = getattr(pi, model).from_formula("y ~ " + " + ".join(names), rows, schema=schema)
    limits = np.asarray(asked.fit(epsilon=epsilon, delta=1e-6, rng=seed).conf_int())[1:]
    return np.stack([limits[:, 1] - limits[:, 0], (limits[:, 0] <= slopes) & (slopes <= limits[:, 1])])


def row_of(model: str, n: int, epsilon: float, bound: float, columns: int, draws: int) -> dict[str, object]:
    """Return a line of the table."""
    found = np.array([one_fit(model, n, epsilon, bound, columns, seed) for seed in range(draws)])
    widths = found[:, 0].mean(axis=1)
    median = float(np.median(widths))
    shares = np.quantile(widths, [0.9, 0.95, 0.99]) / median
    return {
        "model": model, "n": n, "epsilon": epsilon, "response within": f"{bound:g}", "columns": columns,
        "median width": f"{median:.4f}", "mean": f"{widths.mean() / median:.2f}",
        **{f"{level}%": f"{share:.2f}" for level, share in zip((90, 95, 99), shares, strict=True)},
        "coverage": f"{found[:, 1].mean():.3f}", "worst slope": f"{found[:, 1].mean(axis=0).min():.3f}",
    }  # fmt: skip


def main(draws: int) -> None:
    """Write the table."""
    start, rows = time.time(), []
    for case in CASES:
        rows.append(row_of(*case, draws))
        print(rows[-1], flush=True)
    note = (__doc__ or "").partition(".\n")[2].strip() + f" {draws} draws."
    write_table(
        RESULTS / "loose_bounds.md", "Bounds far beyond the values", f"benchmarks/loose_bounds.py {draws}", rows,
        time.time() - start, note,
    )  # fmt: skip


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
