"""Memory and time of ``privinf release`` on 1e7 people: ``python benchmarks/release_memory.py`` (two minutes).

Each row is one process of the command line on a file that this script makes, block by block, in a temporary
folder and deletes. Peak is the largest resident memory of that process, imports included; seconds are wall
times of whole processes. "reading alone" is a process that reads the same columns in the same blocks and does
nothing with them.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import multiprocessing
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

import privinf as pi
from privinf.mechanisms import MixingPlan, PartyPlan

TARGET = Path(__file__).parent / "results" / "release_memory.md"
PEOPLE, WIDTH, BLOCK = 10_000_000, 10, 1 << 18
MOST_MEGABYTES = 1000.0
COLUMNS = [f"x{k}" for k in range(WIDTH)]
SCHEMA = pi.Schema({name: (-1.0, 1.0) for name in COLUMNS})

HEAD = """# `privinf release`: memory and time

Made by `python benchmarks/release_memory.py`: {width} numeric columns beside the id column, one thread. Each row is
one process of the command line; peak is its largest resident memory, imports included, and seconds are wall times
of whole processes. "reading alone" is a process that reads the same columns in the same blocks and does nothing
with them. Importing the package alone takes {start:.1f} s and {base:.0f} MB.

| file | people | ids | mixing | k | file, MB | reading alone, s | release, s | peak, MB | target | verdict |
|---|---|---|---|---|---|---|---|---|---|---|
"""

READING = """
import sys
from privinf.mechanisms.tables import source_of
from privinf.schema import Schema
source = source_of(sys.argv[1])
names = sys.argv[2].split(",")
for block in source.read(names, Schema({name: (-1.0, 1.0) for name in names})):
    pass
"""


def blocks(people: int, ids: str) -> Iterator[pa.RecordBatch]:
    """Yield made-up people; ids increase, are shuffled, or are texts that increase."""
    rng = np.random.default_rng(0)
    names = rng.permutation(people) if ids == "shuffled" else np.arange(people)
    for start in range(0, people, BLOCK):
        own = names[start : start + BLOCK]
        column = pa.array([f"P{name:09d}" for name in own.tolist()]) if ids == "texts" else pa.array(own)
        values = [pa.array(rng.uniform(-1.0, 1.0, len(own))) for _ in COLUMNS]
        yield pa.RecordBatch.from_arrays([column, *values], ["patient", *COLUMNS])


def make(path: Path, people: int, ids: str, groups: int) -> None:
    """Write the people to a Parquet or CSV file."""
    if path.suffix == ".csv":
        for position, batch in enumerate(blocks(people, ids)):
            batch.to_pandas().to_csv(path, mode="a", header=position == 0, index=False)
        return
    parquet.write_table(pa.Table.from_batches(blocks(people, ids)), path, row_group_size=-(-people // groups))


def measured(*arguments: str) -> tuple[float, float]:
    """Run Python with these arguments; return seconds and peak megabytes."""
    started = time.perf_counter()
    process = subprocess.Popen([sys.executable, *arguments])
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{arguments[:4]} failed")
    return time.perf_counter() - started, usage.ru_maxrss / 1024.0


def row(
    folder: Path, name: str, people: int, ids: str, groups: int, kind: str = "countsketch", k: int = 500
) -> str:
    """Make a file, release it, and return the line of the report."""
    data, plan_file, out = folder / name, folder / "plan.json", folder / "party.npz"
    # A process starts with the peak of the one that started it: files are made elsewhere.
    maker = multiprocessing.get_context("spawn").Process(target=make, args=(data, people, ids, groups))
    maker.start()
    maker.join()
    parties = {"party": PartyPlan(SCHEMA, epsilon=1.0, delta=1e-8)}
    MixingPlan.new(parties=parties, n=people, k=k, kind=kind, id="patient").save(plan_file)
    read, _ = measured("-c", READING, str(data), ",".join(COLUMNS))
    ledger = Path(tempfile.mkdtemp(dir=folder)) / "party.ledger"
    pi.LedgerFile.create(ledger, pi.Budget(mu=10.0))
    options = ["--plan", plan_file, "--party", "party", "--data", data, "--out", out, "--quiet"]
    options += ["--ledger", ledger]
    seconds, peak = measured("-m", "privinf", "release", *map(str, options))
    size = data.stat().st_size / 1e6
    for path in (data, plan_file, out):
        path.unlink()
    verdict = "met" if peak < MOST_MEGABYTES else "MISSED"
    shown = f"{name.split('.')[1]}, {groups} row group(s)" if name.endswith("parquet") else "csv"
    return (
        f"| {shown} | {people:,} | {ids} | {kind} | {k} | {size:,.0f} | {read:.1f} | {seconds:.1f} | {peak:.0f} | "
        f"< {MOST_MEGABYTES:.0f} | {verdict} |"
    )


def main() -> None:
    """Measure, print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the people")
    scale = parser.parse_args().scale
    people = int(PEOPLE * scale)
    start, base = measured("-c", "import privinf")
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        for name, count, ids, groups, kind in [
            ("people.parquet", people, "increasing", 10, "countsketch"),
            ("people.parquet", people, "increasing", 1, "countsketch"),
            ("people.parquet", people, "shuffled", 10, "countsketch"),
            ("people.parquet", people, "texts", 10, "countsketch"),
            ("people.parquet", people, "increasing", 10, "hadamard"),
            ("people.csv", people // 10, "increasing", 1, "countsketch"),
        ]:
            lines.append(row(Path(folder), name, count, ids, groups, kind))
            print(lines[-1], flush=True)
    text = HEAD.format(width=WIDTH, start=start, base=base) + "\n".join(lines) + "\n"
    if scale == 1.0:
        TARGET.write_text(text, encoding="utf-8")
    if "MISSED" in text:
        raise SystemExit("a target was missed")


if __name__ == "__main__":
    main()
