"""Least squares over a Parquet file that need not fit in memory, against plain sums of the same columns.

Made by `python benchmarks/table_sums.py`; writes benchmarks/results/table_sums.md. One thread on every side,
each run in a process of its own, in turn, the file in the page cache: seconds of the processor (other work on
the machine touches them less than the wall's), and the peak of the process's memory. The file is made on
the fly, 20 columns of doubles in row groups of 131,072, and deleted.

- ours: `MomentOLS.from_formula("y ~ x0 + ... + x18", path, schema=...).fit(...)`, trust "central",
  nonrobust, secure noise, from the path to standard errors;
- ours, lazy: the same of `polars.scan_parquet(path)`;
- OLS: `OLS.from_formula` of the same path, which reads it in passes, set against as many passes of the faster plain sums;
- sums: polars' streaming engine sums the 210 products and the 20 columns;
- batches: polars' `collect_batches`, X'X of each by numpy.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("POLARS_MAX_THREADS", "1")

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parent / "results"
NAMES = ("y", *(f"x{number}" for number in range(19)))
SIZES = (1_000_000, 10_000_000, 50_000_000)
WARM = (
    1_000_000  # rows of the file that every side runs on first: libraries, and what they compile, are loaded
)
ROOM = 20 << 30  # bytes that must be free for the largest file
CHUNK = 1 << 17
SIDES = ("ours", "ours, lazy", "OLS", "sums", "batches")


def write(path: Path, n: int) -> None:
    """Write n rows: uniform columns, a response with normal errors."""
    import pyarrow as pa
    from pyarrow import parquet

    rng = np.random.default_rng(0)
    slopes = np.linspace(-1.0, 1.0, len(NAMES) - 1)
    schema = pa.schema([(name, pa.float64()) for name in NAMES])
    with parquet.ParquetWriter(path, schema, use_dictionary=False) as writer:
        for start in range(0, n, CHUNK):
            X = rng.uniform(-1.0, 1.0, (len(slopes), min(CHUNK, n - start)))
            y = slopes @ X + rng.normal(size=X.shape[1])
            writer.write_table(pa.table([y, *X], schema=schema))


def lazy(path: str) -> float:
    import polars as pl

    return ours(pl.scan_parquet(path))


def ours(path: object) -> float:
    import privinf as pi

    return float(fitted(pi.MomentOLS, path).bse["x0"])


def ols(path: object) -> float:
    """Return the number of passes."""
    import privinf as pi

    (line,) = [line for line in str(fitted(pi.OLS, path).summary()).splitlines() if "Passes" in line]
    return float(line.split("table:")[1].split()[0])


def fitted(kind: Any, path: object) -> Any:
    import privinf as pi

    schema = pi.Schema({"y": (-12.0, 12.0), **dict.fromkeys(NAMES[1:], (-1.0, 1.0))})
    model = kind.from_formula(f"y ~ {' + '.join(NAMES[1:])}", path, schema=schema)
    return model.fit(epsilon=1.0, delta=1e-10)


def sums(path: str) -> float:
    import polars as pl

    pairs = [(pl.col(a) * pl.col(b)).sum().alias(f"{a} {b}") for i, a in enumerate(NAMES) for b in NAMES[i:]]
    totals = [pl.col(name).sum() for name in NAMES]
    return float(pl.scan_parquet(path).select(*pairs, *totals).collect(engine="streaming")["y"][0])


def batches(path: str) -> float:
    import polars as pl

    total = np.zeros((len(NAMES), len(NAMES)))
    for batch in pl.scan_parquet(path).collect_batches(chunk_size=1 << 16, maintain_order=False):
        X = batch.to_numpy()
        total += X.T @ X
    return float(total[0, 0])


def run(side: str, path: str, small: str) -> None:
    """Run one side on a smaller file, to load all libraries, then on the file; print what it took."""
    function = dict(zip(SIDES, (ours, lazy, ols, sums, batches), strict=True))[side]
    function(small)
    wall, processor = time.perf_counter(), time.process_time()
    value = function(path)
    spent = {"value": value, "wall": time.perf_counter() - wall, "cpu": time.process_time() - processor}
    print(json.dumps(spent | {"peak": largest() / 2**20}))


def largest() -> int:
    """Return the largest resident memory in KiB since the process was begun, its parent's not counted."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmHWM"))


def measured(path: Path, small: Path, repetitions: int) -> dict[str, dict[str, float]]:
    """Return the medians of each side, run in turn."""
    found: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
    for _ in range(repetitions):
        for side in SIDES:
            command = [sys.executable, __file__, "--run", side, str(path), str(small)]
            told = subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ)
            found[side].append(json.loads(told.stdout.splitlines()[-1]))
            print(path.name, side, found[side][-1], flush=True)
    return {
        side: {word: float(np.median([one[word] for one in runs])) for word in runs[0]}
        for side, runs in found.items()
    }


def main(sizes: list[int], folder: str | None) -> None:
    room = shutil.disk_usage(folder or tempfile.gettempdir()).free
    left_out = [n for n in sizes if n > 10_000_000 and room < ROOM]
    lines, results = [], {}
    with tempfile.TemporaryDirectory(dir=folder) as place:
        small = Path(place) / "small.parquet"
        write(small, WARM)
        for n in [n for n in sizes if n not in left_out]:
            path = Path(place) / f"{n}.parquet"
            write(path, n)
            results[n] = measured(path, small, 5 if n <= 10_000_000 else 3)
            path.unlink()
    for n, found in results.items():
        plain = min(found["sums"]["cpu"], found["batches"]["cpu"])
        each = [f"{found[side]['cpu'] / n * 1e6:.3f}" for side in SIDES]
        passes = {"OLS": found["OLS"]["value"]}
        ratios = [f"{found[side]['cpu'] / plain / passes.get(side, 1.0):.2f}" for side in SIDES[:3]]
        ratios[2] += f" ({passes['OLS']:.0f} passes)"
        peaks = [f"{found[side]['peak']:.2f}" for side in SIDES[:3]]
        lines.append(f"| {n:,} | {' | '.join(each)} | {'; '.join(ratios)} | {'; '.join(peaks)} |")
    head = [
        "# Least squares over a Parquet file",
        "",
        *(__doc__ or "").strip().splitlines()[2:],
        "",
        "| rows | ours, microseconds a row | ours, lazy | OLS | sums | batches | ours; lazy; OLS / the faster plain sums | "
        "peak memory of ours; lazy; OLS, GiB |",
        "|---|---|---|---|---|---|---|---|",
        *lines,
        "",
        "Medians of 5 runs (3 of the largest file).",
        *(f"{n:,} rows were left out: less than 20 GB of disk were free." for n in left_out),
    ]
    (RESULTS / "table_sums.md").write_text("\n".join(head) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--run", nargs=3, metavar=("SIDE", "PATH", "SMALL"))
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--folder")
    given = parser.parse_args()
    if given.run:
        run(*given.run)
    else:
        main(given.sizes, given.folder)
