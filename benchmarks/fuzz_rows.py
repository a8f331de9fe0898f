"""The fuzzer of rows in full: ``python benchmarks/fuzz_rows.py``.

Every public model and test on hostile tables, with options at the ends of their ranges
(tests/privacy/row_fuzzer.py). Run k is the same whatever the number of runs and processes; `fuzz_rows(1,
seed, first=k)` repeats it.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path += [str(ROOT / "tests"), str(ROOT / "tests" / "privacy")]

from row_fuzzer import ENTRY_POINTS, ROWS, SIZES, Findings, fuzz_rows  # noqa: E402

TARGET = ROOT / "benchmarks" / "results" / "argument_fuzzer.md"

# Runs that one process makes at a time.
PART = 40

HEAD = """# Hostile rows and options at their ends

Made by `python benchmarks/fuzz_rows.py --runs {runs} --seed {seed}{without}`: {runs} runs of {doors}
public models and tests. Each draws one of {kinds} kinds of rows ({names}), from {least} to {most} rows, a price
(mu 1e-6 to 1e8, epsilon 1e-9 to 1e4, rho 1e-12 to 1e4, delta 1e-300 to 0.999999), options at the ends of their
ranges, and one curator or two sites (halves, one row and the others, all and none). What is returned is shown:
summary, intervals, p-values, `to_dict`, privacy.

**{faults} faults**: exceptions after a charge, exceptions that are not the package's own in plain words, warnings of
numpy or Python.

| model or test | returned | refused in advance | faults |
|---|---|---|---|
"""


def page(found: Findings, seed: int, without: list[str]) -> str:
    """Return the page."""
    head = HEAD.format(
        runs=found.runs,
        seed=seed,
        without="".join(f" --without {name}" for name in without),
        doors=len(found.outcomes),
        kinds=len(ROWS),
        names=", ".join(ROWS),
        least=min(SIZES),
        most=max(SIZES),
        faults=len(found.faults),
    )
    kinds = ("returned", "refused in advance", "fault")
    lines = [
        f"| {name} | " + " | ".join(str(counts[kind]) for kind in kinds) + " |"
        for name, counts in found.outcomes.items()
    ]
    total = sum(found.outcomes.values(), Counter[str]())
    lines.append("| **all** | " + " | ".join(str(total[kind]) for kind in kinds) + " |")
    return head + "\n".join([*lines, "", *(f"- {fault}" for fault in found.faults)]).rstrip() + "\n"


def merged(parts: list[Findings]) -> Findings:
    """Return the findings of all parts."""
    found = Findings()
    for part in parts:
        for name, counts in part.outcomes.items():
            found.outcomes.setdefault(name, Counter()).update(counts)
        found.faults += part.faults
    return found


def part_of(first: int, runs: int, seed: int, names: list[str]) -> Findings:
    """Return the findings of a part of the runs."""
    return fuzz_rows(min(PART, runs - first), seed, names, first=first, show=partial(print, flush=True))


def main() -> int:
    """Fuzz, write the table, and fail if there is a fault."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--without", action="append", default=[], metavar="DOOR")
    asked = parser.parse_args()
    names = [name for name in ENTRY_POINTS if name not in asked.without]
    fuzz = partial(part_of, runs=asked.runs, seed=asked.seed, names=names)
    with ProcessPoolExecutor(asked.processes) as pool:
        found = merged(list(pool.map(fuzz, range(0, asked.runs, PART))))
    TARGET.write_text(page(found, asked.seed, asked.without))
    print(f"{found.runs} runs, {len(found.faults)} faults")
    return min(len(found.faults), 1)


if __name__ == "__main__":
    sys.exit(main())
