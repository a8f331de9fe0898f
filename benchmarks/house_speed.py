"""Times of the house: ``python benchmarks/house_speed.py [--before PATH --after PATH [--bench]]`` (two minutes).

First what ``import privinf`` takes over ``import statsmodels.api``: medians of nine fresh processes each, in
turn, less that of an empty one. With two source trees, ``fit().summary()`` of a central MomentOLS (n=1000,
d=5), of a FederatedGLM (three sites, n=3000, d=5), and fits over 200 sites of 100 rows in this process, from
both, nine processes each (`--times`), in turn; a process takes the median of its repetitions after one to
warm up. Processor time throughout: cores may be shared.

`--bench` compares those parts of ``make bench`` that both trees have instead, each by the functions of its own
tree, in fresh processes in turn: seconds of the processor, MiB where it says so. Lines that name numpy, polars,
pyarrow, DuckDB or statsmodels run no code of privinf: their ratios show what other work on the machine does.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

TIMES = 9
IMPORTS = {"nothing": "pass", "privinf": "import privinf", "statsmodels.api": "import statsmodels.api"}
CLOCK = """
import statistics, time, warnings
warnings.simplefilter("ignore")
import numpy as np
import privinf as pi
def median(act, times):
    act()
    taken = []
    for _ in range(times):
        begun = time.process_time()
        act()
        taken.append(time.process_time() - begun)
    print(statistics.median(taken))
rng = np.random.default_rng(0)
"""
SITES = (
    CLOCK
    + """
parts = []
for _ in range(200):
    X = rng.uniform(-1, 1, (100, 5))
    parts.append(((X @ [0.5, -0.3, 0.2, 0.0, 0.1] + 0.2 * rng.standard_normal(100)).clip(-2, 2), X))
"""
)
TABLE = (
    CLOCK
    + """
import tempfile
import pandas as pd
def table(p):
    names, side = [f"x{j}" for j in range(p)], p ** -0.5
    X = rng.uniform(-side, side, (1_000_000, p))
    y = (X @ np.resize([1.0, -0.5, 0.25], p) + 0.3 * rng.standard_normal(len(X))).clip(-2, 2)
    frame = pd.DataFrame(X, columns=names).assign(y=y)
    return frame, f"y ~ {' + '.join(names)}", pi.Schema(dict.fromkeys(names, (-side, side)) | {"y": (-2, 2)})
def fit(kind, p, parquet=False):
    frame, formula, schema = table(p)
    with tempfile.TemporaryDirectory() as folder:
        if parquet:
            frame.to_parquet(f"{folder}/rows.parquet")
            frame = f"{folder}/rows.parquet"
        median(lambda: kind.from_formula(formula, frame, schema=schema).fit(mu=1.0, rng=2), 5)
"""
)
FITS = {
    "MomentOLS central": CLOCK
    + """
X = rng.uniform(-1, 1, (1000, 5))
y = (X @ [0.5, -0.3, 0.2, 0.0, 0.1] + 0.2 * rng.standard_normal(1000)).clip(-2, 2)
def act():
    model = pi.MomentOLS(y, X, bounds=[(-1, 1)] * 5, y_bounds=(-2, 2))
    str(model.fit(epsilon=8.0, delta=1e-6, rng=0).summary())
median(act, 25)
""",
    "FederatedGLM": CLOCK
    + """
X = rng.uniform(-1, 1, (3000, 5))
y = (rng.uniform(size=3000) < 1 / (1 + np.exp(-X @ [1.0, -0.5, 0.0, 0.3, 0.1]))).astype(float)
parts = [(y[i::3], X[i::3]) for i in range(3)]
def act():
    model = pi.FederatedGLM.from_arrays(parts, bounds=[(-1, 1)] * 5, family="binomial")
    str(model.fit(epsilon=8.0, delta=1e-6, rng=0).summary())
median(act, 9)
""",
    "MomentOLS, 200 sites, masked": SITES
    + """
def act():
    model = pi.MomentOLS.from_arrays(parts, bounds=[(-1, 1)] * 5, y_bounds=(-2, 2), trust="secure-sum")
    model.fit(epsilon=8.0, delta=1e-6)
median(act, 3)
""",
    "MomentOLS, 200 sites, a trusted server": SITES
    + """
def act():
    model = pi.MomentOLS.from_arrays(parts, bounds=[(-1, 1)] * 5, y_bounds=(-2, 2), trust="server")
    model.fit(epsilon=8.0, delta=1e-6)
median(act, 5)
""",
    "FederatedGLM, 200 sites, masked": SITES
    + """
hits = [((y > 0).astype(float), X) for y, X in parts]
def act():
    model = pi.FederatedGLM.from_arrays(hits, bounds=[(-1, 1)] * 5, family="binomial", trust="secure-sum")
    model.fit(epsilon=8.0, delta=1e-6)
median(act, 1)
""",
    "FederatedGLM, 200 sites, a trusted server": SITES
    + """
hits = [((y > 0).astype(float), X) for y, X in parts]
def act():
    model = pi.FederatedGLM.from_arrays(hits, bounds=[(-1, 1)] * 5, family="binomial", trust="server")
    model.fit(epsilon=8.0, delta=1e-6)
median(act, 3)
""",
    "OLS of a data frame, 1e6 x 5": TABLE + "fit(pi.OLS, 5)",
    "OLS of a data frame, 1e6 x 20": TABLE + "fit(pi.OLS, 20)",
    "OLS from Parquet, 1e6 x 5": TABLE + "fit(pi.OLS, 5, parquet=True)",
    "OLS from Parquet, 1e6 x 20": TABLE + "fit(pi.OLS, 20, parquet=True)",
    "MomentOLS of a data frame, 1e6 x 20": TABLE + "fit(pi.MomentOLS, 20)",
    "MomentOLS from Parquet, 1e6 x 20": TABLE + "fit(pi.MomentOLS, 20, parquet=True)",
}
# Processor time inside the process: starting Python does not count, nor do others on the same cores.
IMPORT_CLOCK = "import time; begun = time.process_time(); {}; print(time.process_time() - begun)"


def printed(words: list[str], tree: Path | None) -> str:
    """Return the last line that a process of Python prints, with privinf and benchmarks of a source tree."""
    one_core = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"}
    place = {} if tree is None else {"PYTHONPATH": f"{tree.resolve()}:{tree.resolve() / 'benchmarks'}"}
    process = subprocess.run(
        [sys.executable, "-P", *words],
        env=os.environ | one_core | place,
        capture_output=True,
        text=True,
        check=True,
    )
    return process.stdout.splitlines()[-1]


def seconds(code: str, tree: Path | None) -> float:
    """Return the number that a process prints, with privinf from a source tree."""
    return float(printed(["-c", code], tree))


# ---- parts of `make bench`, run in a process of each tree


def of_bench() -> dict[str, float]:
    """Return seconds and MiB of `bench.py`."""
    import bench

    import privinf as pi

    samplers = bench.noise_costs()
    fits = bench.replication_costs(300)
    logistic = bench.logistic_costs(n=100_000)
    tall = bench.growth_costs(200_000, 10)
    wide = bench.growth_costs(20_000, 40)
    y, X, bounds = bench.bounded(1_000_000, 10)
    b = (y > 0.0).astype(float)
    held = {
        "MomentOLS": lambda: pi.MomentOLS(y, X, **bounds).fit(mu=1.0),
        "OLS": lambda: pi.OLS(y, X, **bounds).fit(mu=1.0),
        "Logit": lambda: pi.Logit(b, X, bounds=bounds["bounds"]).fit(mu=1.0),
    }
    return {
        "a million values of secure noise": 1e-3 * samplers["secure"][1],
        "a million normals of numpy": 1e-3 * samplers["normal"][1],
        "score intervals of 10 slopes": bench.score_costs(10, former=False)["now"][1],
        "300 fits of 1,000 x 5 at once": fits["together"][1],
        "the same fits one by one": fits["single"][1],
        **{f"{name}, logistic, 100,000 x 10": spent[1] for name, spent in logistic.items()},
        **{f"{name}, 200,000 x 10": spent[1] for name, spent in tall.items()},
        **{f"{name}, 20,000 x 40": spent[1] for name, spent in wide.items()},
        **{f"{name}, 1e6 x 10, MiB on top": bench.peak(fit) / 2**20 for name, fit in held.items()},
    }


def of_mixing() -> dict[str, float]:
    """Return seconds of the mixing matrices of `bench.py`."""
    import bench
    import mixing_speed

    data = mixing_speed.records(200_000)
    sides = {kind: lambda kind=kind: mixing_speed.mix(kind, data, 500) for kind in mixing_speed.KINDS}
    costs = bench.medians(sides, 3)
    return {f"mixing of 200,000 x 11, {kind}": spent[1] for kind, spent in costs.items()}


def of_table_sums() -> dict[str, float]:
    """Return seconds and MiB of `table_sums.py`."""
    import table_sums

    names = {
        "ours": "MomentOLS from Parquet, 1e6 x 20",
        "ours, lazy": "MomentOLS of a LazyFrame, 1e6 x 20",
        "OLS": "OLS from Parquet, 1e6 x 20",
        "sums": "polars' streaming sums of the file",
        "batches": "polars' batches and X'X by numpy",
    }
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "rows.parquet"
        table_sums.write(path, 1_000_000)
        sides = table_sums.measured(path, path, 1)
    times = {f"{names[side]}": spent["cpu"] for side, spent in sides.items()}
    return times | {
        f"{names[side]}, MiB at most": spent["peak"] * 1024
        for side, spent in sides.items()
        if side not in ("sums", "batches")
    }


def of_streamed_release() -> dict[str, float]:
    """Return seconds of `streamed_release.py`."""
    import streamed_release

    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "rows.parquet"
        streamed_release.write(path, 1_000_000)
        sides = {"a local release, Parquet to Parquet, 1e6 x 11": streamed_release.ours}
        sides["pyarrow's copy of the file and as much noise"] = streamed_release.plain
        times: dict[str, list[float]] = {name: [] for name in sides}
        for _ in range(6):
            for name, run in sides.items():
                times[name].append(streamed_release.spent(run, path, path.parent)[1])
        return {name: statistics.median(spent[1:]) for name, spent in times.items()}


def of_pushed() -> dict[str, float]:
    """Return seconds of `pushed.py`."""
    import pushed

    spent = [part.strip() for part in pushed.times(11, 1_000_000, 5).split("|")]
    with tempfile.TemporaryDirectory() as place:
        lines = [[part.strip() for part in line.split("|")] for line in pushed.fits(100_000, Path(place))[2:]]
    return {
        "moments in DuckDB, 1e6 x 11": float(spent[3]),
        "DuckDB's plain sums, 1e6 x 11": float(spent[4]),
        **{f"{line[1]} in DuckDB, 100,000 x 10": float(line[3].removesuffix(" s")) for line in lines},
    }


BENCH: dict[str, Callable[[], dict[str, float]]] = {
    part.__name__: part for part in (of_bench, of_mixing, of_table_sums, of_streamed_release, of_pushed)
}


def bench_of_both(before: Path, after: Path, only: str, times: int) -> None:
    """Print medians of the parts of `make bench`, of both trees in turn."""
    print("| part of `make bench` | before | after | ratio |\n|---|---|---|---|")
    for part in BENCH:
        if only not in part:
            continue
        runs: tuple[list[dict[str, float]], list[dict[str, float]]] = ([], [])
        for turn in range(times):
            for side in (0, 1) if turn % 2 == 0 else (1, 0):
                line = printed([__file__, "--part", part], (before, after)[side])
                runs[side].append(json.loads(line))
        for name in runs[0][0]:
            a, b = (statistics.median(run[name] for run in side) for side in runs)
            print(f"| {name} | {a:.4g} | {b:.4g} | {b / a:.2f} |", flush=True)


def imports(tree: Path | None) -> None:
    taken: dict[str, list[float]] = {name: [] for name in IMPORTS}
    for _ in range(TIMES):
        for name, code in IMPORTS.items():
            taken[name].append(seconds(IMPORT_CLOCK.format(code), tree))
    found = {name: statistics.median(times) for name, times in taken.items()}
    print("| import | ms | over statsmodels.api |\n|---|---|---|")
    for name in ("privinf", "statsmodels.api"):
        share = (found[name] - found["nothing"]) / (found["statsmodels.api"] - found["nothing"])
        print(f"| {name} | {1e3 * found[name]:.0f} | {share:.2f} |")


def fits(before: Path, after: Path, only: str, times: int) -> None:
    print("\n| fit | before, ms | after, ms | ratio |\n|---|---|---|---|")
    for name, code in FITS.items():
        if only not in name:
            continue
        taken: tuple[list[float], list[float]] = ([], [])
        for turn in range(times):
            for side in (0, 1) if turn % 2 == 0 else (1, 0):
                taken[side].append(seconds(code, (before, after)[side]))
        a, b = map(statistics.median, taken)
        print(f"| {name} | {1e3 * a:.2f} | {1e3 * b:.2f} | {b / a:.3f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--after", type=Path)
    parser.add_argument("--only", default="", help="fits whose name has this text, and no imports")
    parser.add_argument("--times", type=int, default=TIMES, help="processes of each tree")
    parser.add_argument("--bench", action="store_true", help="parts of `make bench` in place of fits")
    parser.add_argument("--part", choices=BENCH, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.part:
        print(json.dumps(BENCH[asked.part]()))
        return
    if (asked.before is None) != (asked.after is None):
        parser.error("--before and --after belong together")
    if asked.bench and asked.before is None:
        parser.error("--bench needs --before and --after")
    if asked.bench:
        bench_of_both(asked.before, asked.after, asked.only, asked.times)
        return
    if not asked.only:
        imports(asked.after)
    if asked.before is not None:
        fits(asked.before, asked.after, asked.only, asked.times)


if __name__ == "__main__":
    main()
