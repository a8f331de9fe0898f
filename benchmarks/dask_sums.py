"""Sums over a dask frame: two workers against one process, and the memory of a worker.

Made by `python benchmarks/dask_sums.py`; writes benchmarks/results/dask_sums.md. Needs privinf[dask].

`pi.MomentOLS` (nonrobust, secure noise) and `pi.OLS` of 20 columns, doubles in a folder of Parquet files, one a
partition. *Two workers*: a LocalCluster of two processes of one thread each, started before the clock, and
the frame of `dask.dataframe.read_parquet`. *One process*: the folder's path. One thread of BLAS each.

- **Processor**: the processor time of the busiest worker, and of the holder's process beside it, over that of one
  process: what the time would come to on a quiet machine.
- **Time**: by the clock, on a machine that other work shared.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import tempfile
import time
from pathlib import Path

import dask.dataframe as frames
import numpy as np
import pandas as pd
from distributed import Client, LocalCluster

import privinf as pi

RESULT = Path(__file__).parent / "results" / "dask_sums.md"
NAMES = [f"x{place}" for place in range(20)]


def write(folder: Path, rows: int, files: int) -> None:
    rng = np.random.default_rng(1)
    for place in range(files):
        table = pd.DataFrame(rng.uniform(-1.01, 1.01, (rows // files, len(NAMES))), columns=NAMES)
        table.to_parquet(folder / f"{place:03}.parquet", index=False)


def used() -> tuple[float, float]:
    """Return seconds of the processor, and the largest memory in GB."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return time.process_time(), most / 1e6


def measured(run, client=None):
    before = {} if client is None else client.run(used)
    own, start = time.process_time(), time.perf_counter()
    result = run()
    wall, own = time.perf_counter() - start, time.process_time() - own
    after = {} if client is None else client.run(used)
    busiest = max((after[name][0] - before[name][0] for name in before), default=0.0)
    return result, wall, own + busiest, max((one[1] for one in after.values()), default=0.0)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--files", type=int, default=40)
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    schema = pi.Schema(dict.fromkeys(NAMES, (-1.0, 1.0)))
    formula = f"x0 ~ {' + '.join(NAMES[1:])}"
    folder = Path(tempfile.mkdtemp())
    closed = {"dashboard_address": None, "worker_dashboard_address": None, "threads_per_worker": 1}
    lines = ["# Sums over a dask frame", "", *__doc__.split("\n", 2)[2].strip().split("\n"), ""]
    lines += [
        f"{given.rows:,} rows in {given.files} files, medians of {given.runs}, in turn.",
        "",
        "| fit | processor, one process | two workers | ratio | time, one process | two workers | ratio "
        "| memory of a worker | same bits |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    try:
        write(folder, given.rows, given.files)
        with LocalCluster(n_workers=2, **closed) as cluster, Client(cluster) as client:
            spread = frames.read_parquet(str(folder))
            client.run(__import__, "privinf.mechanisms.pushdown.cluster")
            for model, words in ((pi.MomentOLS, {"cov_type": "nonrobust"}), (pi.OLS, {})):
                same = [
                    model.from_formula(formula, data, schema=schema).fit(mu=1.0, rng=1, **words).params
                    for data in (str(folder), spread)
                ]  # before the clock, so that all is imported
                found = {"one": [], "two": []}
                for _ in range(given.runs):
                    for side, data, asked in (("one", str(folder), None), ("two", spread, client)):

                        def run(data=data, model=model, words=words):
                            return model.from_formula(formula, data, schema=schema).fit(mu=1.0, **words)

                        found[side].append(measured(run, asked))
                one, two = (np.median([row[1:] for row in found[side]], axis=0) for side in ("one", "two"))
                lines.append(
                    f"| {model.__name__} | {one[1]:.2f} s | {two[1]:.2f} s | {two[1] / one[1]:.2f} "
                    f"| {one[0]:.2f} s | {two[0]:.2f} s | {two[0] / one[0]:.2f} | {two[2]:.2f} GB "
                    f"| {'yes' if same[0].equals(same[1]) else 'no'} |"
                )
    finally:
        shutil.rmtree(folder)
    RESULT.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
