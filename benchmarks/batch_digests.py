"""What it costs to hold a fit by batches over a file to its first pass: processor time with and without digests.

``python benchmarks/batch_digests.py [--rows 200000] [--repeats 3]``; both kinds of runs take turns.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pandas as pd

import privinf as pi
from privinf.mechanisms.statistics.ops import SiteOp

COLUMNS = [f"x{number}" for number in range(10)]
SCHEMA = pi.Schema({"y": (-3, 3), **dict.fromkeys(COLUMNS, (-1, 1))})


def written(folder: Path, rows: int) -> list[Path]:
    """Write one made-up table as Parquet and as CSV."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (rows, len(COLUMNS)))
    y = np.clip(X[:, 0] + 0.3 * rng.standard_normal(rows), -3, 3)
    frame = pd.DataFrame(X, columns=COLUMNS).assign(y=y)
    frame.to_parquet(folder / "t.parquet")
    frame.to_csv(folder / "t.csv", index=False)
    return [folder / "t.parquet", folder / "t.csv"]


def seconds(path: Path) -> float:
    """Return the processor time of a fit of 2 epochs of 10 batches: 20 passes."""
    model = pi.GLM.from_formula("y ~ " + " + ".join(COLUMNS), path, schema=SCHEMA, family="gaussian")
    start = time.process_time()
    model.fit(epsilon=2.0, delta=1e-6, optimizer=pi.DPSGD(epochs=2, batches=10))
    return time.process_time() - start


def main() -> None:
    """Print medians and their ratio, by kind of file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        for path in written(Path(folder), options.rows):
            held, free = [], []
            for _ in range(options.repeats):
                with patch.object(SiteOp, "batch_pass", lambda *_: None):
                    free.append(seconds(path))
                held.append(seconds(path))
            before, after = float(np.median(free)), float(np.median(held))
            print(
                f"{path.suffix}: {before:.2f} s without digests, {after:.2f} s with, ratio {after / before:.3f}"
            )


if __name__ == "__main__":
    main()
