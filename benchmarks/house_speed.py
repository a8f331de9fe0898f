"""Times of the house: ``python benchmarks/house_speed.py [--before PATH --after PATH]`` (two minutes).

First what ``import privinf`` takes over ``import statsmodels.api``: medians of nine fresh processes each, in
turn, less that of an empty one. With two source trees, ``fit().summary()`` of a central MomentOLS (n=1000,
d=5), of a FederatedGLM (three sites, n=3000, d=5), and fits over 200 sites of 100 rows in this process, from
both, nine processes each (`--times`), in turn; a process takes the median of its repetitions after one to
warm up. Processor time throughout: cores may be shared.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
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
}
# Processor time inside the process: starting Python does not count, nor do others on the same cores.
IMPORT_CLOCK = "import time; begun = time.process_time(); {}; print(time.process_time() - begun)"


def seconds(code: str, tree: Path | None) -> float:
    """Return the number that a process prints, with privinf from a source tree."""
    one_core = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    place = {} if tree is None else {"PYTHONPATH": str(tree.resolve())}
    told = subprocess.run(
        [sys.executable, "-P", "-c", code],
        env=os.environ | one_core | place,
        capture_output=True,
        text=True,
        check=True,
    )
    return float(told.stdout)


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
    asked = parser.parse_args()
    if (asked.before is None) != (asked.after is None):
        parser.error("--before and --after belong together")
    if not asked.only:
        imports(asked.after)
    if asked.before is not None:
        fits(asked.before, asked.after, asked.only, asked.times)


if __name__ == "__main__":
    main()
