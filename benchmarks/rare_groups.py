"""Groups of few records in least squares: ``python benchmarks/rare_groups.py [DRAWS]``.

`privinf.OLS`, delta = 1e-6, on designs that were not used for tuning. The truth is least squares on 2,000,000 simulated rows.

- *product*: y = 2 x + 3 g + (1 + |x|) e, e exponential about its mean, x normal plus a t with 3 degrees of freedom on
  bounds of 20, g 1 in a tenth of the rows; fitted with g x.
- *yes or no*: a 0/1 response that is 1 in one row of twenty, or one row of four if d = 1, as in 3% of the rows; x normal on bounds of 5.
- *costs*: exponential errors, twice as large if d = 1, as in 5% of the rows; x uniform.
- *even errors*: normal errors, d = 1 in 5%; x normal on bounds of 5.

*Marked* is the share of fits whose `conf_int` raised a `WeakIdentificationWarning`, and *warned* the share with a `HeavyTailWarning`. The coefficient is the one with the lowest coverage among fits that are neither marked nor warned, or among all fits if these are fewer than twenty. Width is relative to the HC0 interval without privacy.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import sys
import time
import warnings
import zlib
from collections.abc import Callable

import numpy as np
import pandas as pd
import statsmodels.api as sm
from tables import RESULTS, write_table

import privinf as pi
from privinf.errors import HeavyTailWarning, WeakIdentificationWarning

Draw = Callable[[np.random.Generator, int], tuple[np.ndarray, dict[str, np.ndarray]]]
WHOLE = 2_000_000
# Fewer fits say nothing of coverage.
FEW = 20


def product(rng, n):
    x = np.clip(rng.normal(size=n) + 0.3 * rng.standard_t(3, n), -20, 20)
    g = (rng.random(n) < 0.1).astype(float)
    y = 2 * x + 3 * g + (1 + np.abs(x)) * (rng.exponential(size=n) - 1)
    return np.clip(y, -200, 200), {"x": x, "g": g, "gx": g * x}


def yes_or_no(rng, n):
    x, d = np.clip(rng.normal(size=n), -5, 5), (rng.random(n) < 0.03).astype(float)
    return (rng.random(n) < np.clip(0.05 + 0.03 * x + 0.2 * d, 0.005, 1)).astype(float), {"x": x, "d": d}


def costs(rng, n):
    x, d = rng.uniform(-1, 1, n), (rng.random(n) < 0.05).astype(float)
    return np.clip(0.5 * x + d + (1 + d) * rng.exponential(size=n), -2, 30), {"x": x, "d": d}


def even(rng, n):
    x, d = np.clip(rng.normal(size=n), -5, 5), (rng.random(n) < 0.05).astype(float)
    return np.clip(0.5 * x + d + rng.normal(size=n), -8, 8), {"x": x, "d": d}


LAWS = {
    "product": (product, {"x": (-20, 20), "g": (0, 1), "gx": (-20, 20)}, (-200, 200)),
    "yes or no": (yes_or_no, {"x": (-5, 5), "d": (0, 1)}, (0, 1)),
    "costs": (costs, {"x": (-1, 1), "d": (0, 1)}, (-2, 30)),
    "even errors": (even, {"x": (-5, 5), "d": (0, 1)}, (-8, 8)),
}
CASES = [
    ("product", 8_000, 1.0, "auto"),
    ("product", 8_000, 4.0, "auto"),
    ("product", 20_000, 0.5, "auto"),
    ("product", 20_000, 2.0, "auto"),
    ("yes or no", 3_000, 2.0, "auto"),
    ("yes or no", 8_000, 0.5, "auto"),
    ("yes or no", 8_000, 2.0, "auto"),
    ("yes or no", 20_000, 0.5, "auto"),
    ("costs", 8_000, 2.0, "auto"),
    ("costs", 20_000, 1.0, "auto"),
    ("costs", 20_000, 1.0, "bounds"),
    ("costs", 20_000, 4.0, "auto"),
    ("even errors", 3_000, 1.0, "auto"),
    ("even errors", 8_000, 1.0, "auto"),
    ("even errors", 8_000, 4.0, "auto"),
]


def truth_of(law: Draw) -> np.ndarray:
    """Return least squares on very many draws."""
    y, columns = law(np.random.default_rng(99), WHOLE)
    X = sm.add_constant(np.column_stack(list(columns.values())))
    return np.linalg.lstsq(X, y, rcond=None)[0]


def row_of(name: str, n: int, epsilon: float, clip: str, draws: int, truth: np.ndarray) -> dict[str, object]:
    """Return a line of the table."""
    law, bounds, ends = LAWS[name]
    covered, widths, weak, heavy = [], [], [], []
    for seed in range(draws):
        y, columns = law(np.random.default_rng([zlib.crc32(name.encode()), n, seed]), n)
        X = pi.add_constant(pd.DataFrame(columns))
        fit = pi.OLS(y, X, bounds=bounds, y_bounds=ends, residual_clip=clip).fit(
            epsilon=epsilon, delta=1e-6, rng=seed
        )
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            limits = fit.conf_int().to_numpy()
        kinds = {one.category for one in seen}
        weak.append(WeakIdentificationWarning in kinds)
        heavy.append(HeavyTailWarning in kinds)
        covered.append((limits[:, 0] <= truth) & (truth <= limits[:, 1]))
        widths.append(
            (limits[:, 1] - limits[:, 0]) / np.diff(sm.OLS(y, X).fit(cov_type="HC0").conf_int())[:, 0]
        )
    told = np.array(weak) | np.array(heavy)
    every, kept = np.array(covered, dtype=float), np.array(covered, dtype=float)[~told]
    worst = int((kept if len(kept) >= FEW else every).mean(axis=0).argmin())
    return {
        "law": name,
        "n": n,
        "epsilon": epsilon,
        "residual_clip": clip,
        "marked": f"{np.mean(weak):.2f}",
        "warned": f"{np.mean(heavy):.2f}",
        "neither": len(kept),
        "coefficient": X.columns[worst],
        "coverage, neither": f"{kept[:, worst].mean():.3f}" if len(kept) >= FEW else "-",
        "all fits": f"{every[:, worst].mean():.3f}",
        "width": f"{np.median(np.array(widths)[:, worst]):.2f}",
    }


def main(draws: int) -> None:
    """Write the table."""
    start, rows = time.time(), []
    truths = {name: truth_of(law) for name, (law, _, _) in LAWS.items()}
    for case in CASES:
        rows.append(row_of(*case, draws, truths[case[0]]))
        print(rows[-1], flush=True)
    note = (__doc__ or "").partition(".\n")[2].strip() + f" {draws} draws."
    write_table(
        RESULTS / "rare_groups.md",
        "Groups of few records",
        f"benchmarks/rare_groups.py {draws}",
        rows,
        time.time() - start,
        note,
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
