"""Fits of one large table, as files, a query, and on the workers of dask and of Spark.

Made by `python benchmarks/large_tables.py`; writes benchmarks/results/large_tables.md. Needs privinf[dask],
privinf[spark], polars, DuckDB, psutil, and Java for Spark. What is not installed is left out.

`pi.MomentOLS` (nonrobust) and `pi.OLS` of 20 columns of doubles in a folder of Parquet files, with seeded noise and
one thread of BLAS a process. *Path* is the folder's path, in one process. *Polars* is its LazyFrame, *DuckDB* a
relation whose rows are read, and *DuckDB, sums inside* one with `push_down=True`. *Dask, row groups* is
`pi.open_rows(path, client=client)`, *dask frame* `dask.dataframe.read_parquet(path)`, and *Spark*
`spark.read.parquet(path)` by `local[2]`. Clusters have two workers and are started before the clock.

- **Processor**: seconds of the processor, of all processes.
- **Longest**: seconds of the processor of this process and of the busiest worker (of Spark half of what its processes
  take): what the time would come to on two quiet cores.
- **Time**: seconds by the clock, on a machine that other work shares.
- **Two workers on two cores** save no time: one process decodes Parquet in a second thread, and two processes on
  one processor's threads slow each other down.
- **Memory**: the largest resident memory of a process since its start, in GB.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import pandas as pd
import psutil

import privinf as pi

PAGE = Path(__file__).parent / "results" / "large_tables.md"
NAMES = [f"x{place}" for place in range(20)]
FORMULA = f"x0 ~ {' + '.join(NAMES[1:])}"
SCHEMA = pi.Schema(dict.fromkeys(NAMES, (-1.0, 1.0)))
MODELS = [(pi.MomentOLS, {"cov_type": "nonrobust"}), (pi.OLS, {})]


@dataclass(frozen=True, kw_only=True)
class Way:
    """A way to pass the table: what makes it, and whether workers share the work evenly."""

    name: str
    data: Callable[[], Any]
    workers: bool = False


def write(folder: Path, rows: int, files: int) -> None:
    """Write the table."""
    rng = np.random.default_rng(1)
    for place in range(files):
        table = pd.DataFrame(rng.uniform(-1.01, 1.01, (rows // files, len(NAMES))), columns=NAMES)
        table.to_parquet(folder / f"{place:03}.parquet", index=False)


def installed(*packages: str) -> bool:
    """Return whether all packages are installed."""
    return all(importlib.util.find_spec(package) is not None for package in packages)


@contextmanager
def ways(folder: Path) -> Iterator[list[Way]]:
    """Yield all ways that are installed."""
    found = [Way(name="path", data=lambda: str(folder))]
    with ExitStack() as stack:
        if installed("polars"):
            import polars

            found.append(Way(name="polars", data=lambda: polars.scan_parquet(f"{folder}/*.parquet")))
        if installed("duckdb"):
            import duckdb

            database = stack.enter_context(duckdb.connect())
            database.execute("SET threads = 1")
            relation = database.from_parquet(f"{folder}/*.parquet")
            found.append(Way(name="DuckDB", data=lambda: relation))
            found.append(Way(name="DuckDB, sums inside", data=lambda: pi.open_rows(relation, push_down=True)))
        if installed("dask", "distributed"):
            import dask.dataframe as frames
            from distributed import Client, LocalCluster

            closed = {"dashboard_address": None, "worker_dashboard_address": None, "threads_per_worker": 1}
            cluster = stack.enter_context(LocalCluster(n_workers=2, **closed))
            client = stack.enter_context(Client(cluster))
            client.run(__import__, "privinf.mechanisms.pushdown.cluster")
            found.append(
                Way(
                    name="dask, row groups",
                    data=lambda: pi.open_rows(folder, client=client),
                    workers=True,
                )
            )
            frame = frames.read_parquet(str(folder))
            found.append(Way(name="dask frame", data=lambda: frame, workers=True))
        if installed("pyspark") and shutil.which("java"):
            from pyspark.sql import SparkSession

            os.environ["PYSPARK_PYTHON"] = sys.executable
            builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
            spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
            spark.sparkContext.setLogLevel("OFF")
            stack.callback(spark.stop)
            rows = spark.read.parquet(str(folder))
            found.append(Way(name="Spark", data=lambda: rows, workers=True))
        yield found


def processor_times() -> dict[int, float]:
    """Return the seconds of the processor of this process and those below it."""
    this = psutil.Process()
    times = {}
    for process in [this, *this.children(recursive=True)]:
        try:
            used = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        times[process.pid] = used.user + used.system
    return times


def memory() -> float:
    """Return the largest resident memory of a process, in GB."""
    sizes = []
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        try:
            status = Path(f"/proc/{process.pid}/status").read_text()
        except OSError:
            continue
        sizes += [int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")]
    return max(sizes) / 1e6


def measured(way: Way, model: Any, options: dict[str, Any]) -> tuple[pd.Series, list[float]]:
    """Return coefficients, and all processes' seconds, the longest, and the clock's."""
    before = processor_times()
    start = time.perf_counter()
    fit = model.from_formula(FORMULA, way.data(), schema=SCHEMA).fit(mu=1.0, rng=1, **options)
    clock = time.perf_counter() - start
    used = {process: seconds - before.get(process, 0.0) for process, seconds in processor_times().items()}
    own = used.pop(os.getpid())
    others = sum(used.values())
    longest = own + (others / 2 if way.name == "Spark" else max(used.values(), default=0.0))
    return fit.params, [own + others, longest if way.workers else own, clock]


def main() -> None:
    """Measure all ways, and write the page."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--files", type=int, default=40)
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # values lie outside the bounds
    folder = Path(tempfile.mkdtemp())
    lines = ["# Fits of one large table", "", *(__doc__ or "").split("\n", 2)[2].strip().split("\n"), ""]
    lines += [
        f"{arguments.rows:,} rows in {arguments.files} files, medians of {arguments.runs} fits.",
        "",
        "| fit | table | processor | longest | over path | time | memory so far | bits of path |",
        "|---|---|---|---|---|---|---|---|",
    ]
    try:
        write(folder, arguments.rows, arguments.files)
        with ways(folder) as found:
            for model, options in MODELS:
                base = None
                for way in found:
                    measured(way, model, options)  # all is imported before the clock
                    runs = [measured(way, model, options) for _ in range(arguments.runs)]
                    numbers = np.median([run[1] for run in runs], axis=0)
                    base = base or (runs[0][0], numbers)
                    lines.append(
                        f"| {model.__name__} | {way.name} | {numbers[0]:.2f} s | {numbers[1]:.2f} s "
                        f"| {numbers[1] / base[1][1]:.2f} | {numbers[2]:.2f} s | {memory():.2f} GB "
                        f"| {'yes' if runs[0][0].equals(base[0]) else 'no'} |"
                    )
                    print(lines[-1], flush=True)
    finally:
        shutil.rmtree(folder)
    PAGE.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
