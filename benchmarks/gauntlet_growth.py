"""Width as the number of records grows, and where it comes to 1.1: the flagship and flights at epsilon 1."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
from gauntlet_cells import BY_NAME, Cell
from gauntlet_estimators import ESTIMATORS, outcome
from gauntlet_truth import reference_of

import privinf as pi

SIZES = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
GROWING = ("flagship 1", "air time 1")
BESIDE = ("OLS", "MomentOLS HC0", "MomentOLS")
NEAR = 1.1
MOST = 30  # fits of a size: a median of widths needs no more
HEADER = """# Width as n grows

Made by `python benchmarks/gauntlet.py --growth`, {} fits a size; epsilon 1, delta 1e-6. Median over fits, then over
slopes, of the interval's length over that without privacy (HC0); in brackets the share of fits that are flagged or
have no interval, where it is not 0. "n at {}": where the width comes down to it, interpolated in log n and
log(width - 1).

| cell | estimator | {} | n at {} |
|{}
"""


def width(cell: Cell, estimator: str, replications: int) -> tuple[float, float]:
    """Return the median width of fits with an interval, and the share of those flagged or without one."""
    reference, found, hidden = reference_of(cell), [], 0
    for number in range(replications):
        frame = cell.population.draw(cell.n, np.random.default_rng([21, number]))
        said = outcome(cell, estimator, frame, np.random.default_rng([22, number]), reference)
        hidden += bool(said.flagged or said.refused)
        if not said.refused:
            found.append(said.width[1:])
    middle = float(np.median(np.median(np.array(found, dtype=float), axis=0))) if found else math.nan
    return middle, hidden / replications


def crossing(widths: list[float]) -> str:
    """Return the size at which the width falls to `NEAR`."""
    for place in range(1, len(SIZES)):
        before, after = widths[place - 1], widths[place]
        if before > NEAR >= after > 1.0:
            part = math.log((before - 1.0) / (NEAR - 1.0)) / math.log((before - 1.0) / (after - 1.0))
            low, high = math.log(SIZES[place - 1]), math.log(SIZES[place])
            return f"{math.exp(low + part * (high - low)):,.0f}"
    return f"> {SIZES[-1]:,}" if widths[-1] > NEAR else f"<= {SIZES[0]:,}"


def write_growth(replications: int, path: Path) -> None:
    """Write the table."""
    replications, rows = min(replications, MOST), []
    for name in GROWING:
        if BY_NAME[name].population.missing:
            print(f"{name}: skipped, needs {BY_NAME[name].population.missing} (extra `datasets`)")
            continue
        for estimator in BESIDE:
            if ESTIMATORS[estimator].entry_point in pi.__all__:
                rows.append(_row(BY_NAME[name], estimator, replications))
                print(rows[-1], flush=True)
    sizes = " | ".join(f"{n:,}" for n in SIZES)
    columns = "---|" * (len(SIZES) + 3)
    path.write_text(HEADER.format(replications, NEAR, sizes, NEAR, columns) + "\n".join(rows) + "\n")


def _row(cell: Cell, estimator: str, replications: int) -> str:
    found = [width(replace(cell, n=n), estimator, replications) for n in SIZES]
    told = [f"{middle:.2f}" + (f" ({hidden:.2f})" if hidden else "") for middle, hidden in found]
    return f"| {cell.name} | {estimator} | {' | '.join(told)} | {crossing([middle for middle, _ in found])} |"
