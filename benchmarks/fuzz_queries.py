"""The query fuzzer in full: ``python benchmarks/fuzz_queries.py`` (tests/privacy/query_fuzzer.py).

Questions of real fits, changed field by field, put to two sites that differ in one row: in this process under
four policies, and behind daemons. Then the same with the mutants that it must find.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path += [str(ROOT / "tests"), str(ROOT / "tests" / "privacy")]

import query_fuzzer  # noqa: E402
from test_query_fuzzer import MUTANTS  # noqa: E402

TARGET = ROOT / "benchmarks" / "results" / "fuzz_queries.md"
# Shares of the questions: policy, behind a daemon.
PARTS = {
    ("open", False): 0.8,
    ("open", True): 0.08,
    ("server", False): 0.05,
    ("secure", False): 0.05,
    ("closed", False): 0.02,
}

HEAD = """# Queries to two neighboring sites

Made by `python benchmarks/fuzz_queries.py --count {count}` in {seconds:.0f} s, seed {seed}; corpus of {corpus}
queries of real fits. *Designs* counts accepted designs, and *charged* counts queries that both sites charged.
*Differing* counts replies without a charge that differ in a byte, replies with a charge that differ in more than their
sums, and ledgers that differ. *Foreign* counts exceptions that leave a site, unexpected errors, and errors after the
charge. *Slow*: over {slow:g} s.

| policy | entry point | queries | designs | charged | differing | foreign | slow | slowest, s |
|---|---|---|---|---|---|---|---|---|
"""


def main() -> None:
    """Run, write the table, and fail if anything was found, or a mutant was not."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=11)
    asked = parser.parse_args()
    start, kept = time.monotonic(), query_fuzzer.corpus()
    query_fuzzer.corpus = lambda: kept
    lines, wrong = [], []
    for number, ((policy, daemon), share) in enumerate(PARTS.items()):
        with tempfile.TemporaryDirectory() as folder:
            found = query_fuzzer.fuzz(
                round(share * asked.count),
                asked.seed + number,
                policy=policy,
                folder=folder if daemon else None,
            )
        wrong += [*found.different, *found.foreign, *found.slow]
        lines.append(
            f"| {policy} | {'daemon' if daemon else 'handle'} | {found.asked} | {found.designs} | {found.charged} "
            f"| {len(found.different)} | {len(found.foreign)} | {len(found.slow)} | {found.slowest:.2f} |"
        )
        print(lines[-1], flush=True)
    lines += ["", "| mutant | found in 1,000 questions |", "|---|---|"]
    for mutant in MUTANTS:
        with pytest.MonkeyPatch.context() as patched:
            mutant(patched)
            found = query_fuzzer.fuzz(1000, asked.seed)
        wrong += [] if found else [f"mutant {mutant.__name__} was not found"]
        lines.append(f"| {mutant.__doc__} | {len(found.different)} differing, {len(found.foreign)} foreign |")
    head = HEAD.format(
        count=asked.count,
        seconds=time.monotonic() - start,
        seed=asked.seed,
        corpus=len(kept),
        slow=query_fuzzer.SLOW,
    )
    TARGET.write_text(head + "\n".join(lines) + "\n")
    print(TARGET.read_text(), *wrong[:20], sep="\n")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
