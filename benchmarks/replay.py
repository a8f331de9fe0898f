"""Record and replay of every fit on many neighbours, and all mutants: ``python benchmarks/replay.py``.

The fits, the pairs of records and the mutants are those of tests/privacy/replay_fits.py and test_mutants.py;
``--drawn 10`` adds so many pairs of random records to the ones that are written there; ``--only fits`` and
``--only mutants`` make one of the two tables.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from tables import RESULTS, load, write_table
from tqdm import tqdm

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

TESTS = Path(__file__).parents[1] / "tests" / "privacy"
sys.path.insert(0, str(TESTS))

NOTE = """Every fit runs on a table, and all its releases are recorded. The fit then runs on a table that differs in one unit (a record, person or site), and gets the recorded releases in place of its own. *Differing* is the number of fits in which any public output differs between the two runs: arrays and noise models of releases, every public member of the results, summaries, reports, ledger lines, warnings,
errors. *Overspent* is the number of fits of which a release, or all releases together, cost more on this pair of tables than the ledger states, or of which a release has no ledger line. *Largest share* is the largest share of the loss of a ledger line that a pair spends, in the kind of the loss (mu^2, rho, pure epsilon). Lines with the zero-out relation may cost four times their mu^2 on a pair that replaces a record by another record. *Refused* is the number of runs in which the noise left no estimate; these runs are compared like others. Two options are left out:
`bounds="data"` and epsilon = inf. {pairs} pairs a fit."""
MUTANTS_NOTE = """Each row is a mutant: a version of the code in which one thing is wrong, as in tests/privacy/test_mutants.py. The check of the row reports nothing if the mutant is not in place."""


def replayed(drawn: int) -> tuple[list[dict], int]:
    """Return one row a model, and how many fits differ or overspend."""
    fits, audits = (
        load(TESTS / "replay_fits.py", "replay_fits"),
        load(TESTS / "record_replay.py", "record_replay"),
    )
    fits.PAIRS |= {f"drawn {seed}": fits.drawn_pair(seed) for seed in range(drawn)}
    rows: dict[str, dict] = {}
    wrong = 0
    for name in tqdm(fits.FITS):
        model = name.split()[0].rstrip(",")
        row = rows.setdefault(
            model,
            {
                "model": model,
                "fits": 0,
                "runs": 0,
                "releases": 0,
                "differing": 0,
                "overspent": 0,
                "largest share": 0.0,
                "refused": 0,
            },
        )
        row["fits"] += 1
        for seed, pair in enumerate(fits.PAIRS):
            found = audits.audit(fits.run_of(name, pair), allowed=fits.allowed(name), seed=seed)
            row["runs"] += 1
            row["releases"] += found.releases
            row["differing"] += bool(found.differences)
            row["overspent"] += bool(found.overspent)
            row["largest share"] = max(row["largest share"], found.share / fits.allowed(name))
            row["refused"] += found.refused
            if found.complaints:
                wrong += 1
                print(f"{name} | {pair}: {found.complaints[:5]}", flush=True)
    total = {"model": "all"} | {
        key: (max if key == "largest share" else sum)(row[key] for row in rows.values())
        for key in next(iter(rows.values()))
        if key != "model"
    }
    return [*rows.values(), total], wrong


def mutants() -> tuple[list[dict], int]:
    """Return one row a mutant, and how many were not caught."""
    tests = load(TESTS / "test_mutants.py", "test_mutants")
    rows = []
    for name, (mutant, check) in tqdm(tests.MUTANTS.items()):
        with mutant.applied():
            found = check()
        rows.append(
            {
                "mutant": name,
                "where": f"`{mutant.module}.{mutant.function}`",
                "caught by": found[0] if found else "NOTHING",
            }
        )
    return rows, sum(row["caught by"] == "NOTHING" for row in rows)


def main() -> None:
    """Write the tables, and fail if anything differs, overspends or passes unseen."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--drawn", type=int, default=10)
    parser.add_argument("--only", choices=["fits", "mutants"])
    asked = parser.parse_args()
    wrong = unseen = 0
    if asked.only != "mutants":
        started = time.perf_counter()
        rows, wrong = replayed(asked.drawn)
        note = NOTE.format(pairs=rows[-1]["runs"] // rows[-1]["fits"])
        command = f"benchmarks/replay.py --only fits --drawn {asked.drawn}"
        seconds = time.perf_counter() - started
        write_table(RESULTS / "replay.md", "Record and replay", command, rows, seconds, note)
    if asked.only != "fits":
        started = time.perf_counter()
        rows, unseen = mutants()
        command, seconds = "benchmarks/replay.py --only mutants", time.perf_counter() - started
        write_table(RESULTS / "mutants.md", f"Mutants: {len(rows)}", command, rows, seconds, MUTANTS_NOTE)
    if wrong or unseen:
        raise SystemExit(f"{wrong} runs differ or overspend, {unseen} mutants are not caught")


if __name__ == "__main__":
    main()
