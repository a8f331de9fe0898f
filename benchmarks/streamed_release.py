"""A local release of a Parquet file to a Parquet file, against the raw sampler, reading and writing.

Made by `python benchmarks/streamed_release.py`; writes benchmarks/results/streamed_release.md. Both sides in turn,
the files in memory where there is room (/dev/shm): seconds of the wall's clock on two cores, seconds of the
processor, and the peak of the process's memory. BLAS and polars have one thread.

- ours: `LocalExamples(schema, "y ~ x0 + ... + x9", label="gaussian").release(path, ..., to=sent)`, secure noise;
- plain: pyarrow reads the file once and writes the same columns, uncompressed, and the discrete Gaussian
  sampler draws as many numbers; nothing is checked, clipped, added or hashed.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("POLARS_MAX_THREADS", "1")

import argparse
import resource
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

import privinf as pi
from privinf.noise.discrete_gaussian import discrete_gaussian

RESULTS = Path(__file__).parent / "results"
NAMES = ("y", *(f"x{number}" for number in range(10)))
CHUNK = 1 << 15


def write(path: Path, n: int) -> None:
    """Write n rows."""
    rng = np.random.default_rng(0)
    schema = pa.schema([(name, pa.float64()) for name in NAMES])
    with parquet.ParquetWriter(path, schema, use_dictionary=False) as writer:
        for start in range(0, n, 1 << 17):
            X = rng.uniform(-1.0, 1.0, (len(NAMES) - 1, min(1 << 17, n - start)))
            y = np.clip(X.sum(axis=0) + rng.normal(size=X.shape[1]), -12.0, 12.0)
            writer.write_table(pa.table([y, *X], schema=schema))


def plain(path: Path, sent: Path) -> None:
    file = parquet.ParquetFile(path, buffer_size=1 << 15, pre_buffer=False)
    options = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    with parquet.ParquetWriter(sent, file.schema_arrow, **options) as writer:
        for batch in file.iter_batches(batch_size=1 << 16, use_threads=False):
            for _ in range(-(-batch.num_rows * len(NAMES) // CHUNK)):
                discrete_gaussian(1.5 * 2**20, CHUNK)
            writer.write_batch(batch)


def ours(path: Path, sent: Path) -> None:
    schema = pi.Schema({"y": (-12.0, 12.0), **dict.fromkeys(NAMES[1:], (-1.0, 1.0))})
    mechanism = pi.LocalExamples(schema, f"y ~ {' + '.join(NAMES[1:])}", label="gaussian")
    mechanism.release(path, epsilon_x=8.0, epsilon_y=4.0, delta=1e-6, to=sent)


def spent(run: Callable[[Path, Path], None], path: Path, folder: Path) -> tuple[float, float]:
    start = time.perf_counter(), time.process_time()
    run(path, folder / "sent.parquet")
    seconds = time.perf_counter() - start[0], time.process_time() - start[1]
    for left in folder.glob("sent.parquet*"):
        left.unlink()
    return seconds


def main(n: int, repetitions: int, folder: str | None) -> None:
    memory = Path("/dev/shm")
    if folder is None and memory.is_dir() and shutil.disk_usage(memory).free > 400 * n:
        folder = str(memory)
    with tempfile.TemporaryDirectory(dir=folder) as place:
        path = Path(place) / "rows.parquet"
        write(path, n)
        pairs = [
            (spent(ours, path, path.parent), spent(plain, path, path.parent)) for _ in range(repetitions)
        ]
    wall, processor = np.moveaxis(np.median(pairs, axis=0), 1, 0) / n * 1e6
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    lines = [
        "# Releases of rows, Parquet to Parquet",
        "",
        *(__doc__ or "").strip().splitlines()[2:],
        "",
        "| rows | runs | ours, microseconds a row | plain | ratio (asked 1.3) | seconds of the processor: ours | plain | ratio | peak memory, GiB (asked 1) |",
        "|---|---|---|---|---|---|---|---|---|",
        f"| {n:,} | {repetitions} | {wall[0]:.3f} | {wall[1]:.3f} | {wall[0] / wall[1]:.2f} | "
        f"{processor[0]:.3f} | {processor[1]:.3f} | {processor[0] / processor[1]:.2f} | {peak:.2f} |",
    ]
    (RESULTS / "streamed_release.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--folder")
    given = parser.parse_args()
    main(given.rows, given.repetitions, given.folder)
