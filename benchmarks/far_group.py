"""A far group off the line: ``PYTHONPATH=. python benchmarks/far_group.py [DRAWS]``.

Air time on distance, hour and month of the flights of 2013 from New York, by `privinf.OLS`, delta = 1e-6, with rows drawn with replacement. Of the rows, 0.2% are flights to Honolulu. These flights are 5 standard deviations longer than the mean, and their air times are 28 minutes (2.2 standard deviations of the residuals) below the regression line. The truth is least squares on the complete table (for "without them", on the rows of other flights).
*Shift* is the mean error divided by the standard error. *Warned* is the share of fits whose `conf_int` raised a `HeavyTailWarning`.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import sys
import time
import warnings

import numpy as np
from gauntlet_cells import AIR
from patsy import dmatrices
from tables import RESULTS, write_table

import privinf as pi

FAR = 4000.0
# Rows, n, epsilon, options.
CASES = [
    ("all", 50_000, 1.0, {}),
    ("without them", 50_000, 1.0, {}),
    ("all", 50_000, 1.0, {"residual_clip": "bounds"}),
    ("all", 50_000, 2.0, {}),
    ("all", 100_000, 1.0, {}),
    ("all", 200_000, 1.0, {}),
]


def row_of(rows, n, epsilon, options, draws):
    """Return a line of the table."""
    frame = AIR.whole()[list(AIR.declared)]
    frame = frame if rows == "all" else frame[frame.distance < FAR]
    y, X = dmatrices(AIR.formula, frame, return_type="dataframe")
    truth = np.linalg.lstsq(X.to_numpy(), y.to_numpy()[:, 0], rcond=None)[0]
    names, found, warned = list(X.columns), [], []
    for seed in range(draws):
        drawn = frame.iloc[np.random.default_rng(seed).integers(0, len(frame), n)].reset_index(drop=True)
        model = pi.OLS.from_formula(AIR.formula, drawn, schema=pi.Schema(dict(AIR.declared)), **options)
        fit = model.fit(epsilon=epsilon, delta=1e-6, rng=seed)
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            ends = fit.conf_int().loc[names].to_numpy()
        error = (fit.params[names] - truth) / fit.bse[names]
        inside = (ends[:, 0] <= truth) & (truth <= ends[:, 1])
        found.append([inside, error, fit.bse[names]])
        warned.append(any(issubclass(one.category, pi.errors.HeavyTailWarning) for one in seen))
    found, warned = np.array(found, dtype=float), np.array(warned)
    at = names.index("distance")
    return {
        "rows": rows,
        "n": n,
        "epsilon": epsilon,
        "residual_clip": options.get("residual_clip", "auto"),
        "coverage, distance": f"{found[:, 0, at].mean():.3f}",
        "of fits not warned": f"{found[~warned, 0, at].mean():.3f}",
        "worst of the others": f"{np.delete(found[:, 0], at, axis=1).mean(axis=0).min():.3f}",
        "shift, distance": f"{found[:, 1, at].mean():.2f}",
        "standard error, distance": f"{np.median(found[:, 2, at]):.2g}",
        "the constant's": f"{np.median(found[:, 2, names.index('Intercept')]):.2g}",
        "warned": f"{warned.mean():.3f}",
    }


def main(draws: int) -> None:
    """Write the table."""
    start, rows = time.time(), []
    for case in CASES:
        rows.append(row_of(*case, draws))
        print(rows[-1], flush=True)
    note = (__doc__ or "").partition(".\n")[2].strip() + f" {draws} draws."
    write_table(
        RESULTS / "far_group.md",
        "A far group off the line",
        f"benchmarks/far_group.py {draws}",
        rows,
        time.time() - start,
        note,
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
