"""One release of moments against separate fits: median width of 95% intervals, by the number of fits that share a budget.

``python benchmarks/one_or_many.py [seeds]`` writes benchmarks/results/one_or_many.md. Five regressions of one simulated
table, of 20,000 people, epsilon 2 and delta 1e-6 in all. *Separate*: each of k fits of `OLS` has mu/sqrt(k). *One release*:
`Moments` of all columns with the whole budget, whatever the number of fits.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

import privinf as pi
from privinf.accounting import calibrate_mu

OUT = Path(__file__).parent / "results" / "one_or_many.md"
N = 20_000
BUDGET = {"epsilon": 2.0, "delta": 1e-6}
FITS = (1, 2, 5, 10, 20)
FORMULAS = (
    "wage ~ educ",
    "wage ~ educ + exper",
    "wage ~ educ + exper + female",
    "educ ~ female + near",
    "wage ~ educ + exper + female + near",
)
SCHEMA = pi.Schema({"wage": (0, 30), "educ": (0, 20), "exper": (0, 40), "female": (0, 1), "near": (0, 1)})


def people(seed):
    """Return simulated wages, as docs/howto/many-analyses.md has them."""
    rng = np.random.default_rng(seed)
    near = rng.integers(0, 2, N)
    ability = rng.normal(0, 1, N)
    educ = np.clip(11 + 3 * near + ability + rng.normal(0, 1.5, N), 0, 20)
    exper = rng.uniform(0, 40, N)
    wage = np.clip(0.7 * educ + 0.2 * exper + ability + rng.normal(0, 2, N), 0, 30)
    female = rng.integers(0, 2, N)
    return pd.DataFrame({"wage": wage, "educ": educ, "exper": exper, "female": female, "near": near})


def widths(result):
    """Return the widths of the slopes' intervals; infinite where a fit has none or flags them."""
    if result.estimate.cov is None or len(result.weakly_identified):
        return np.full(len(result.names) - 1, np.inf)
    return np.diff(result.conf_int().to_numpy(), axis=1)[1:, 0]


def main(seeds=5):
    mu = calibrate_mu(**BUDGET)
    cells = {formula: {k: [] for k in ("one", *FITS)} for formula in FORMULAS}
    for seed in range(seeds):
        rows = people(seed)
        release = pi.Moments(SCHEMA, columns=list(SCHEMA.columns)).release(rows, **BUDGET, rng=seed)
        for formula, cell in cells.items():
            cell["one"].append(widths(release.regress(formula)))
            model = pi.OLS.from_formula(formula, rows, schema=SCHEMA)
            for k in FITS:
                cell[k].append(widths(model.fit(mu=mu / np.sqrt(k), delta=1e-6, rng=seed)))
        print(seed, flush=True)
    lines = [
        "# One release of moments or separate fits: widths of intervals",
        "",
        "Made by `python benchmarks/one_or_many.py`: median width of the slopes' 95% intervals over separate fits of",
        f"`OLS` at mu/sqrt(k) each, relative to one release of `Moments` ({N:,} people, epsilon 2 in all, {seeds} tables).",
        "Below 1 the separate fit is narrower. *-*: most fits of the release flag a coefficient as weak.",
        "",
        "| regression | " + " | ".join(f"k = {k}" for k in FITS) + " |",
        "|---" * (len(FITS) + 1) + "|",
    ]
    for formula, cell in cells.items():
        one = np.median(cell["one"], axis=0)
        ratios = [np.exp(np.mean(np.log(np.median(cell[k], axis=0) / one))) for k in FITS]
        shown = " | ".join("-" if not np.isfinite(r) or r == 0.0 else f"{r:.2f}" for r in ratios)
        lines.append(f"| `{formula}` | {shown} |")
    OUT.write_text("\n".join(lines) + "\n")
    print(OUT.read_text())


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        main(*map(int, sys.argv[1:]))
