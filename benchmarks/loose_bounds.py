"""Bounds far beyond the values of a response or of columns: ``python benchmarks/loose_bounds.py [DRAWS]``.

Columns are standard normal; slopes are 1 and errors normal for `OLS`, rates exp(.2 + .3 a - .2 b + .2 c) for `Poisson` (without
c where there are two columns), logits like these rates' logarithms, delta = 1e-6. Bounds are far away, so that counts of the
scores' tail have many thresholds beyond all scores: what noise alone passes there must not set the clip. Widths are over the
median one; coverage is of all slopes; refused fits are left out.
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
from privinf.errors import NotAvailableError

# Model, n, epsilon, bounds of the response and of the columns, number of columns.
CASES = [
    ("OLS", 5_000, 1.0, 30.0, 4.0, 3),
    ("OLS", 5_000, 1.0, 300.0, 4.0, 3),
    ("OLS", 20_000, 0.5, 100.0, 4.0, 5),
    ("OLS", 20_000, 4.0, 1000.0, 4.0, 5),
    ("Poisson", 50_000, 2.0, 40.0, 4.0, 2),
    ("Poisson", 50_000, 4.0, 400.0, 4.0, 2),
    ("Poisson", 50_000, 2.0, 40.0, 40.0, 3),
    ("Poisson", 50_000, 2.0, 40.0, 400.0, 3),
    ("Poisson", 20_000, 1.0, 40.0, 40.0, 3),
    ("Logit", 20_000, 1.0, 1.0, 40.0, 3),
    ("Logit", 20_000, 1.0, 1.0, 400.0, 3),
    ("Logit", 20_000, 4.0, 1.0, 400.0, 3),
]
RATES = np.array([0.3, -0.2, 0.2])


def one_fit(
    model: str, n: int, epsilon: float, bound: float, reach: float, columns: int, seed: int
) -> np.ndarray:
    """Return widths of the slopes' intervals, and whether each holds its slope; shape (2, columns).

    Widths of a fit that is refused are nan.
    """
    rng = np.random.default_rng([n, columns, seed])
    X = np.clip(rng.normal(size=(n, columns)), -4.0, 4.0)
    slopes = np.ones(columns) if model == "OLS" else RATES[:columns]
    linear = X @ slopes
    if model == "OLS":
        y = linear + rng.normal(size=n)
    elif model == "Poisson":
        y = rng.poisson(np.exp(0.2 + linear))
    else:
        y = rng.uniform(size=n) < 1.0 / (1.0 + np.exp(-0.2 - linear))
    names = [f"x{j + 1}" for j in range(columns)]
    schema = pi.Schema(
        {"y": (-bound if model == "OLS" else 0.0, bound)} | dict.fromkeys(names, (-reach, reach))
    )
    rows = pd.DataFrame(X, columns=names).assign(y=np.minimum(y, bound))
    asked = getattr(pi, model).from_formula("y ~ " + " + ".join(names), rows, schema=schema)
    try:
        limits = np.asarray(asked.fit(epsilon=epsilon, delta=1e-6, rng=seed).conf_int())[1:]
    except NotAvailableError:
        return np.full((2, columns), np.nan)
    return np.stack([limits[:, 1] - limits[:, 0], (limits[:, 0] <= slopes) & (slopes <= limits[:, 1])])


def row_of(
    model: str, n: int, epsilon: float, bound: float, reach: float, columns: int, draws: int
) -> dict[str, object]:
    """Return a line of the table."""
    every = np.array([one_fit(model, n, epsilon, bound, reach, columns, seed) for seed in range(draws)])
    found = every[np.isfinite(every[:, 0, 0])]
    widths = found[:, 0].mean(axis=1)
    median = float(np.median(widths))
    shares = np.quantile(widths, [0.9, 0.95, 0.99]) / median
    return {
        "model": model,
        "n": n,
        "epsilon": epsilon,
        "response within": f"{bound:g}",
        "columns within": f"{reach:g}",
        "columns": columns,
        "refused": draws - len(found),
        "median width": f"{median:.4f}",
        "mean": f"{widths.mean() / median:.2f}",
        **{f"{level}%": f"{share:.2f}" for level, share in zip((90, 95, 99), shares, strict=True)},
        "coverage": f"{found[:, 1].mean():.3f}",
        "worst slope": f"{found[:, 1].mean(axis=0).min():.3f}",
    }


def main(draws: int) -> None:
    """Write the table."""
    start, rows = time.time(), []
    for case in CASES:
        rows.append(row_of(*case, draws))
        print(rows[-1], flush=True)
    note = (__doc__ or "").partition(".\n")[2].strip() + f" {draws} draws."
    write_table(
        RESULTS / "loose_bounds.md",
        "Bounds far beyond the values",
        f"benchmarks/loose_bounds.py {draws}",
        rows,
        time.time() - start,
        note,
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
