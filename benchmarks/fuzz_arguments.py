"""The argument fuzzer in full: ``python benchmarks/fuzz_arguments.py``.

10,000 calls of public functions, each with one or two arguments changed (tests/privacy/argument_corpus.py,
argument_fuzzer.py).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path += [str(ROOT / "tests"), str(ROOT / "tests" / "privacy")]

from argument_corpus import CASES  # noqa: E402
from argument_fuzzer import LONGEST, Findings, fuzz  # noqa: E402

TARGET = ROOT / "benchmarks" / "results" / "fuzz_arguments.md"

HEAD = """# Changed arguments

Made by `python benchmarks/fuzz_arguments.py` in {seconds:.0f} s of processor time: {calls} calls of {cases} public constructors,
class methods, fits, releases, plans and results' methods; in each one or two arguments of a valid call were
changed: to another type or range, to a table or an array with a defect, to an object whose conversions raise with a
value, or inside (one item of a list, a dict or a formula). The longest took {slowest:.2f} s of processor time
(limit {limit:g} s), in 2 GB of memory.

{problems} problems: foreign exceptions or warnings, a context that is left, a value of a row in a message or a
warning, a call over the limit, an exception after a charge.

| what came of it | calls |
|---|---|
"""


def table(found: Findings, seconds: float) -> str:
    """Return the page."""
    head = HEAD.format(
        seconds=seconds,
        calls=found.calls,
        cases=len(CASES),
        slowest=found.slowest,
        limit=LONGEST,
        problems=len(found.problems) or "No",
    )
    names = {
        "a result": "a result: the change was harmless",
        "UnforeseenError": "`UnforeseenError`: an argument of a type that nothing looks for, in general words",
        "TypeError": "`TypeError`, Python's own: an unknown option, or one that is missing",
    }
    lines = [f"| {names.get(name, f'`{name}`')} | {count} |" for name, count in found.outcomes.most_common()]
    problems = [f"- {problem}" for problem in found.problems]
    return head + "\n".join([*lines, "", *problems]).rstrip() + "\n"


def main() -> int:
    """Fuzz, write the table, and fail if there is a problem."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    begun, found = time.process_time(), Findings()
    for first in range(0, asked.calls, 500):
        part = fuzz(min(500, asked.calls - first), asked.seed, first=first)
        found.outcomes += Counter(part.outcomes)
        found.unforeseen += part.unforeseen
        found.problems += part.problems
        found.slowest = max(found.slowest, part.slowest)
        print(f"{found.calls} calls, {len(found.problems)} problems", flush=True)
    TARGET.write_text(table(found, time.process_time() - begun))
    return min(len(found.problems), 1)


if __name__ == "__main__":
    sys.exit(main())
