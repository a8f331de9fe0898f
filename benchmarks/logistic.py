"""Logistic and Poisson regression of one table through the public functions: coverage, width, what is
flagged.

    python benchmarks/logistic.py [--replications 200] [--cells "2% positives 1;any affair 1"]

Writes benchmarks/results/logistic.md unless cells are named. The cells are the gauntlet's. Width is over that
of statsmodels' Logit (Poisson: HC0) without privacy; coverage is that of the constant and of the worst slope
among fits with sandwich intervals, and of all coefficients among posteriors.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from pathlib import Path

import numpy as np
from gauntlet_cells import BY_NAME, DELTA, Cell
from gauntlet_truth import NORMAL, Reference, reference_of

import privinf as pi
from privinf.errors import PrivinfError, PrivinfWarning

OUT = Path(__file__).parent / "results" / "logistic.md"
DEFAULT = (
    "balanced 1",
    "balanced 1 (2,000)",
    "balanced x5 1",
    "2% positives 1",
    "2% positives 4",
    "2% positives 1 (100,000)",
    "1% positives 0.5",
    "1% positives 1",
    "1% positives 4",
    "1% positives 1 (200,000)",
    "1% positives 4 (200,000)",
    "any affair 0.5",
    "any affair 1",
    "any affair 4",
    "worked 0.5",
    "worked 1",
    "labour 1",
    "approved 1",
    "vote 1",
    "labour 4",
    "approved 4",
    "vote 4",
    "strong signal 1",
    "strong signal 4",
    "separated 1",
    "counts 1",
    "visits, Poisson 4",
    "arrests, Poisson 4",
)
HEADER = (
    "| cell | fits | constant | worst slope | mean | width | posterior | its coverage | its width | no interval | s |\n"
    "|---|---|---|---|---|---|---|---|---|---|---|"
)

HEAD = """# Logistic and Poisson regression of one table

Made by `python benchmarks/logistic.py --replications {replications}` (150 where n is above 50,000).

Through `pi.Logit` and `pi.Poisson`, delta 1e-6; the cells are the gauntlet's. Coverage of the population's
coefficients: constant, worst slope and mean, among fits with sandwich intervals; width over Logit's (Poisson:
HC0) without privacy; then the share of posteriors, their coverage and width, and the share without interval.

"""


def fits_of(
    cell: Cell, truth: Reference | None, count: int, seed: int
) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """Return the kind of each fit, which coefficients it covers, and relative widths."""
    entry_point = pi.Poisson if cell.family == "poisson" else pi.Logit
    schema, found = pi.Schema(cell.declared()), []
    for replication in range(count):
        rng = np.random.default_rng([seed, replication])
        frame = cell.population.draw(cell.n, rng)
        model = entry_point.from_formula(cell.population.formula, frame, schema=schema)
        fit = model.fit(epsilon=cell.epsilon, delta=DELTA, rng=rng)
        try:
            ends = fit.conf_int()
        except PrivinfError:
            found.append(("none", np.empty(0), np.empty(0)))
            continue
        if truth is None:
            found.append((fit.cov_type, np.zeros(1), np.full(1, math.nan)))
            continue
        low, high = ends.loc[list(truth.names)].to_numpy().T
        lengths = 2.0 * NORMAL * truth.sd / math.sqrt(cell.n)
        found.append((fit.cov_type, (low <= truth.target) & (truth.target <= high), (high - low) / lengths))
    return found


def line_of(cell: Cell, count: int, seed: int) -> str:
    """Return one line of the table."""
    started = time.perf_counter()
    truth = None if cell.name.startswith("separated") else reference_of(cell)
    found = fits_of(cell, truth, count, seed)
    seconds = (time.perf_counter() - started) / count
    plain = [one for one in found if one[0] not in ("none", "posterior")]
    posterior = [one for one in found if one[0] == "posterior"]
    cells = ["-"] * 4
    if plain:
        inside = np.array([one[1] for one in plain]).mean(axis=0)
        width = np.median(np.array([one[2] for one in plain]))
        cells = [
            f"{inside[0]:.3f}",
            f"{inside[1:].min(initial=1.0):.3f}",
            f"{inside.mean():.3f}",
            f"{width:.2f}",
        ]
    mean = f"{np.mean([one[1] for one in posterior]):.3f}" if posterior else "-"
    wide = f"{np.median([one[2] for one in posterior]):.1f}" if posterior else "-"
    shares = f"{len(posterior) / count:.3f}", f"{sum(one[0] == 'none' for one in found) / count:.3f}"
    parts = [cell.name, str(len(plain)), *cells, shares[0], mean, wide, shares[1], f"{seconds:.2f}"]
    return f"| {' | '.join(parts)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replications", type=int, default=200)
    parser.add_argument("--seed", type=int, default=13)
    parser.add_argument("--cells", default="")
    asked = parser.parse_args()
    warnings.simplefilter("ignore", PrivinfWarning)
    lines = [HEADER]
    print(HEADER, flush=True)
    for name in asked.cells.split(";") if asked.cells else DEFAULT:
        cell = BY_NAME[name.strip()]
        if cell.population.missing:
            print(f"{name}: skipped, needs {cell.population.missing}", flush=True)
            continue
        # Large cells take a second a fit.
        count = asked.replications if cell.n <= 50_000 else min(asked.replications, 150)
        lines.append(line_of(cell, count, asked.seed))
        print(lines[-1], flush=True)
    if not asked.cells:
        OUT.write_text(HEAD.format(replications=asked.replications) + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
