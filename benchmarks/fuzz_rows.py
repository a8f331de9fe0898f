"""The fuzzer of rows in full: ``python benchmarks/fuzz_rows.py``.

Every public model and test on hostile tables, with options at the ends of their ranges
(tests/privacy/row_fuzzer.py). ``--only`` and ``--first`` repeat one door, or one run.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path += [str(ROOT / "tests"), str(ROOT / "tests" / "privacy")]

from row_fuzzer import DOORS, ROWS, SIZES, Findings, fuzz_rows  # noqa: E402

TARGET = ROOT / "benchmarks" / "results" / "argument_fuzzer.md"

HEAD = """# Hostile rows and options at their ends

Made by `python benchmarks/fuzz_rows.py --runs {runs} --seed {seed}` in {seconds:.0f} s of processor time: {runs} runs of {doors}
public models and tests. Each draws one of {kinds} kinds of rows ({names}), from {least} to {most} rows, a price
(mu 1e-6 to 1e8, epsilon 1e-9 to 1e4, rho 1e-12 to 1e4, delta 1e-300 to 0.999999), options at the ends of their
ranges, and one curator or two sites (halves, one row and the others, all and none). What is returned is shown:
summary, intervals, p-values, `to_dict`, privacy.

**{faults} faults**: exceptions after a charge, exceptions that are not the package's own in plain words, warnings of
numpy or Python.

| model or test | returned | refused in advance | faults |
|---|---|---|---|
"""


def page(found: Findings, seed: int, seconds: float) -> str:
    """Return the page."""
    head = HEAD.format(
        runs=found.runs,
        seed=seed,
        seconds=seconds,
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


def main() -> int:
    """Fuzz, write the table, and fail if there is a fault."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=list(DOORS), metavar="DOOR")
    asked = parser.parse_args()
    begun = time.process_time()
    found = fuzz_rows(asked.runs, asked.seed, asked.only, first=asked.first, show=print)
    if asked.only == list(DOORS):
        TARGET.write_text(page(found, asked.seed, time.process_time() - begun))
    print(f"{found.runs} runs, {len(found.faults)} faults")
    return min(len(found.faults), 1)


if __name__ == "__main__":
    sys.exit(main())
