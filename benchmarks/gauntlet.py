"""The gauntlet: every estimator that claims an interval, on 60 named cells, coefficient by coefficient.

    python benchmarks/gauntlet.py --processes 2 --replications 300      (about 40 minutes on two cores)
    python benchmarks/gauntlet.py --report                              (-> benchmarks/results/gauntlet.md)
    python benchmarks/gauntlet.py --report --out gauntlet_curved.jsonl  (-> benchmarks/results/gauntlet_curved.md)
    python benchmarks/gauntlet.py --growth                              (-> benchmarks/results/gauntlet_growth.md)

``--named`` runs further rows and foreign tables beside the 60; ``--cells`` and ``--estimators`` choose. Fits are
appended to a file of JSON lines as they come, and what stands there already is not run again, so that a run can
be stopped and taken up. A replication's rows and noise are seeded by the names of cell and estimator and its
number alone. Tables beyond statsmodels' need the extra ``datasets``.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import contextlib
import json
import multiprocessing
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from gauntlet_cells import BY_NAME, CELLS, FOREIGN, NAMED, Cell
from gauntlet_estimators import ESTIMATORS, estimators_of, outcome
from gauntlet_truth import reference_of

RESULTS = Path(__file__).parent / "results"
FITS = RESULTS / "gauntlet.jsonl"
BATCH = 10

# Name of a cell, names of estimators, first replication and the one after the last.
Work = tuple[str, tuple[str, ...], int, int]


def seed_of(*names: str | int) -> list[int]:
    """Return what seeds a generator, whatever the order of cells and estimators is."""
    return [zlib.crc32(name.encode()) if isinstance(name, str) else name for name in names]


def fits(work: Work) -> list[dict[str, Any]]:
    """Make some replications of a cell of the gauntlet."""
    return fits_of(BY_NAME[work[0]], work)


def fits_of(cell: Cell, work: Work, observe: Callable[..., Any] = outcome) -> list[dict[str, Any]]:
    """Make some replications of a cell; every estimator sees the same rows, `observe` returns what is stored."""
    name, estimators, first, stop = work
    reference, found = reference_of(cell), []
    for number in range(first, stop):
        frame = cell.population.draw(cell.n, np.random.default_rng(seed_of(name, number)))
        for estimator in estimators:
            noise = np.random.default_rng(seed_of(name, number, estimator))
            began = time.perf_counter()
            try:
                said = asdict(observe(cell, estimator, frame, noise, reference))
            except Exception as error:  # a defect: told in the report, and no reason to lose the other fits
                said = {"failed": f"{type(error).__name__}: {error}"[:200]}
            seconds = round(time.perf_counter() - began, 3)
            found.append({"cell": name, "estimator": estimator, "fit": number, "seconds": seconds, **said})
    return found


def stored(path: Path) -> Iterator[dict[str, Any]]:
    """Return the fits of a file, without lines that were cut where a run was stopped."""
    if path.exists():
        for text in path.read_text().splitlines():
            with contextlib.suppress(json.JSONDecodeError):
                yield json.loads(text)


def line(one: dict[str, Any]) -> str:
    """Return a fit as a line of its own, whatever stands before it."""
    return "\n" + json.dumps(one)


def left(cells: Iterable[Cell], wanted: list[str] | None, replications: int, path: Path) -> list[Work]:
    """Return what is still to be done, round by round, so that a stopped run has some of every cell."""
    have = {(one["cell"], one["estimator"], one["fit"]) for one in stored(path)}
    work: list[Work] = []
    for first in range(0, replications, BATCH):
        stop = min(first + BATCH, replications)
        for cell in cells:
            names = tuple(
                name
                for name in estimators_of(cell, wanted)
                if any((cell.name, name, number) not in have for number in range(first, stop))
            )
            if names:
                work.append((cell.name, names, first, stop))
    return work


def run(
    work: Sequence[Any], path: Path, processes: int, make: Callable[[Any], list[dict[str, Any]]] = fits
) -> None:
    """Do the work by a function of each, and append every fit to the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    with (
        path.open("a") as out,
        ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool,
    ):
        running = [pool.submit(make, one) for one in work]
        for done, future in enumerate(as_completed(running), 1):
            out.writelines(line(one) for one in future.result())
            out.flush()
            if done % 20 == 0 or done == len(work):
                print(f"{done} of {len(work)} in {time.perf_counter() - began:.0f} s", flush=True)


def chosen(given: argparse.Namespace) -> list[Cell]:
    """Return the cells that were asked for and whose tables are installed."""
    cells = (
        [BY_NAME[name] for name in given.cells]
        if given.cells
        else [*CELLS, *((*NAMED, *FOREIGN) if given.named else ())]
    )
    if given.family:
        cells = [cell for cell in cells if cell.family == given.family]
    for cell in cells:
        if cell.population.missing:
            print(f"{cell.name}: skipped, needs {cell.population.missing} (extra `datasets`)", flush=True)
    return [cell for cell in cells if not cell.population.missing]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--replications", type=int, default=300)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--cells", nargs="+", choices=BY_NAME, metavar="NAME")
    parser.add_argument("--family", choices=("gaussian", "binomial", "poisson"))
    parser.add_argument("--estimators", nargs="+", choices=ESTIMATORS, metavar="NAME")
    parser.add_argument("--named", action="store_true")
    parser.add_argument("--out", type=Path, default=FITS)
    parser.add_argument("--fresh", action="store_true", help="forget the fits that are stored")
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--growth", action="store_true")
    given = parser.parse_args()
    if given.report:
        from gauntlet_report import write_report

        write_report(list(stored(given.out)), RESULTS / f"{given.out.stem}.md")
    elif given.growth:
        from gauntlet_growth import write_growth

        write_growth(given.replications, RESULTS / "gauntlet_growth.md")
    else:
        if given.fresh:
            given.out.unlink(missing_ok=True)
        run(left(chosen(given), given.estimators, given.replications, given.out), given.out, given.processes)


if __name__ == "__main__":
    main()
