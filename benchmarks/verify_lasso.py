"""The numbers that DebiasedLasso claims, by Monte Carlo (about an hour on two free cores).

Every fit goes through the public API, seeded. Each table stands in benchmarks/results/lasso_*.md, its single
fits in the .csv beside it: a run that was stopped goes on where it was. ``--only NAME`` makes one table,
``--scale 0.1`` a tenth of the replications, ``--fresh`` forgets what is stored.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import math
import multiprocessing
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import numpy as np
import pandas as pd

import privinf as pi
from privinf.simulation import binomial_limits
from privinf.simulation.lasso import ERROR_COLUMN, LassoDesign, lasso_design

RESULTS = Path(__file__).parent / "results"
NORMAL, EPSILON, SIGNALS = 1.959963984540054, 0.8, 3
# The columns' bounds are public: 3.5 standard deviations of normals; chi-square features reach further.
BOUNDS = {"chi2": 12.0}
# Drawing 60,000 x 800 features takes longer than a fit: each draw serves for this many responses and noises.
PER_DRAW = 25

HOMOGENEOUS = {"normal": "paper's: AR(.5) normal features, normal errors"}
ROBUST = {
    "heteroskedastic": "errors times abs(x_7)",
    "skewed": "exponential errors times abs(x_7)",
    "chi2": "chi-square features, 3 degrees of freedom",
    "equicorrelated": "correlation .3 between all features",
    "spread": "signals of both signs, far apart",
}


def targets(design: LassoDesign) -> list[int]:
    """Return three signals (the first, the eighth, the last), the null beside the last or so, and one far."""
    support = np.flatnonzero(design_params(design))
    return [int(support[0]), int(support[7]), int(support[14]), int(support[7 if design.signals == "spread" else 14]) + 1, 400]  # fmt: skip


def design_params(design: LassoDesign) -> np.ndarray:
    """Return the true coefficients of a homogeneous design."""
    small = LassoDesign(machines=1, n=1, p=design.p, sparsity=design.sparsity, signals=design.signals)
    return small.draw(0).shared


def response(design: LassoDesign, X: np.ndarray, params: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return a new response of features that were drawn before."""
    support = np.flatnonzero(params)
    error = (
        rng.standard_exponential(len(X)) - 1.0 if design.errors == "skewed" else rng.standard_normal(len(X))
    )
    if design.errors != "normal":
        error *= np.abs(X[:, ERROR_COLUMN])
    return X[:, support] @ params[support] + design.error_sd * error


def fits_of_draw(cell: str, number: int, count: int) -> pd.DataFrame:
    """Draw features once, and fit `count` new responses with new noise."""
    design, place = lasso_design(cell), [*HOMOGENEOUS, *ROBUST].index(cell)
    root = np.random.SeedSequence([place, number])
    first, *seeds = root.spawn(1 + PER_DRAW)
    sample, wanted = design.draw(np.random.default_rng(first)), targets(design)
    rows = []
    for replication, seed in enumerate(seeds[:count]):
        started = time.process_time()
        rng = np.random.default_rng(seed)
        y = response(design, sample.X, sample.shared, rng)
        model = pi.DebiasedLasso(y, sample.X, x_bound=BOUNDS.get(cell, 3.5), y_bounds=(-5.0, 5.0))
        r = model.fit(epsilon=EPSILON, sparsity=design.sparsity, targets=wanted, rng=rng)
        chosen = set(np.flatnonzero(r.sparse_params.to_numpy()))
        row = {"cell": cell, "draw": number, "replication": replication}
        row |= {f"error{j}": v for j, v in enumerate(r.params.to_numpy() - sample.shared[wanted])}
        row |= {f"se{j}": v for j, v in enumerate(r.bse.to_numpy())}
        found = np.isin(np.flatnonzero(sample.shared), list(chosen)).sum()
        row |= {"found": int(found), "epsilon": r.privacy.epsilon(1.0 / (2 * design.nobs))}
        rows.append(row | {"seconds": time.process_time() - started})
    return pd.DataFrame(rows)


def checkpointed(path: Path, jobs: list[tuple], function: Callable[..., pd.DataFrame], fresh: bool) -> None:
    """Run jobs (cell, draw, count) that are not yet stored on two processes; store each when it ends."""
    if fresh:
        path.unlink(missing_ok=True)
    stored = pd.read_csv(path) if path.exists() else pd.DataFrame(columns=["cell", "draw"])
    have = stored.groupby(["cell", "draw"]).size()
    left = [job for job in jobs if have.get(job[:2], 0) < job[2]]
    if not left:
        return
    print(f"{path.name}: {len(left)} of {len(jobs)} draws to do", flush=True)
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        running = {pool.submit(function, *job): job for job in left}
        for done in as_completed(running):
            cell, draw, _ = running[done]
            stored = stored[(stored["cell"] != cell) | (stored["draw"] != draw)]
            stored = pd.concat([stored, done.result()] if len(stored) else [done.result()])
            stored = stored.sort_values(["cell", "draw", "replication"])
            stored.to_csv(path, index=False, float_format="%.7g")
            print(f"{time.strftime('%H:%M:%S')} {cell} {draw}: {len(stored)} fits stored", flush=True)


def jobs_of(cells: dict[str, str], replications: int) -> list[tuple[str, int, int]]:
    """Return (cell, draw, count): the draws of all cells in turn."""
    draws = math.ceil(replications / PER_DRAW)
    counts = [min(PER_DRAW, replications - k * PER_DRAW) for k in range(draws)]
    return [(cell, k, count) for k, count in enumerate(counts) for cell in cells]


def coverage_row(cell: str, label: str, frame: pd.DataFrame, asked: dict[str, float]) -> dict:
    """Return one line of a table of coverage: overall, each target, width, selection."""
    design, wanted = lasso_design(cell), targets(lasso_design(cell))
    errors = frame.filter(regex=r"^error\d$").to_numpy(float)
    ses = frame.filter(regex=r"^se\d$").to_numpy(float)
    held = np.abs(errors) <= NORMAL * ses
    each, overall = held.mean(axis=0), held.mean()
    clear = 2.0 * NORMAL * np.sqrt(design.sampling_variance()[wanted] / design.nobs)
    width = 2.0 * NORMAL * ses.mean(axis=0)
    found = float((frame["found"] == design.sparsity).mean())
    low, high = binomial_limits(0.95, held.size)
    passed = asked["overall"] <= overall <= asked.get("most", 1.0)
    passed &= asked["each"] <= each.min() and each.max() <= asked.get("most each", 1.0)
    passed &= width.mean() <= asked.get("width", math.inf) and found >= asked.get("found", 0.0)
    passed &= bool((width <= asked.get("ratio", math.inf) * clear).all())
    return {
        "design": label,
        "fits": len(frame),
        "draws of X": frame["draw"].nunique(),
        "coverage": f"{overall:.4f}",
        "± se": f"{held.mean(axis=1).std(ddof=1) / math.sqrt(len(held)):.4f}",
        "99% limits of .95": f"{low:.4f} to {high:.4f}",
        "each target": " ".join(f"{c:.3f}" for c in each),
        "error / se: mean": " ".join(f"{b:+.2f}" for b in (errors / ses).mean(axis=0)),
        "sd": " ".join(f"{b:.2f}" for b in (errors / ses).std(axis=0)),
        "width": f"{width.mean():.5f}",
        "non-private width": f"{clear.mean():.5f}",
        "width / non-private, each": " ".join(f"{v:.2f}" for v in width / clear),
        "all signals selected": f"{found:.3f}",
        "joint epsilon": f"{frame['epsilon'].max():.4f}",
        "as asked": bool(passed),
    }


def homogeneous(scale: float, fresh: bool) -> None:
    """Coverage, width and selection in the paper's homogeneous setting, five targets, joint budget."""
    _coverage(
        "homogeneous", "Homogeneous setting: 95% intervals of five targets under one joint budget",
        HOMOGENEOUS, max(10, int(500 * scale)), fresh,
        {"overall": 0.93, "most": 0.97, "each": 0.91, "most each": 0.98, "width": 0.0125, "found": 0.99},
        "Asked: coverage in [93%, 97%], each target in [91%, 98%], width at most .0125, all signals selected "
        "in 99% of the fits.",
    )  # fmt: skip


def robust(scale: float, fresh: bool) -> None:
    """The same under other errors, features and signals."""
    _coverage(
        "robust", "The same fit under other errors, features and signals", ROBUST,
        max(10, int(200 * scale)), fresh, {"overall": 0.91, "each": 0.88, "ratio": 1.3},
        "Asked: coverage at least 91%, each target at least 88%, width of each target at most 1.3 times the "
        "non-private one (heteroskedasticity-robust, `LassoDesign.sampling_variance`).",
    )  # fmt: skip


def _coverage(
    name: str,
    title: str,
    cells: dict[str, str],
    replications: int,
    fresh: bool,
    asked: dict[str, float],
    note: str,
) -> None:
    path = RESULTS / f"lasso_{name}.csv"
    checkpointed(path, jobs_of(cells, replications), fits_of_draw, fresh)
    stored = pd.read_csv(path)
    stored = stored[stored["draw"] * PER_DRAW + stored["replication"] < replications]
    rows = [coverage_row(cell, label, stored[stored["cell"] == cell], asked) for cell, label in cells.items()]
    write(
        name, title, rows, stored["seconds"].sum(),
        "N = 60,000, p = 800, s = 15 coefficients of size 1/sqrt 15, error sd .5, eps = .8, delta = 1/(2N), "
        "everything released counted. Targets: signals 1, 8 and 15, a null beside a signal, a null far away. "
        f"The seconds are those of the processor in the fits. X is drawn anew after {PER_DRAW} fits, responses and noise for every fit. Non-private width: that of "
        "the debiased lasso with the true precision matrix. Standard error over fits. " + note,
    )  # fmt: skip


def speed(scale: float, fresh: bool) -> None:
    """Time and memory of one fit with five targets, in a process of its own."""
    started, rows = time.time(), []
    for threads in (1, 2):
        env = os.environ | {"OMP_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": str(threads)}
        load = os.getloadavg()[0]
        done = subprocess.run(
            [sys.executable, __file__, "--one-fit"], env=env, capture_output=True, text=True, check=True
        )
        wall, cpu, before, after = (float(v) for v in done.stdout.split())
        rows.append(
            {
                "threads": threads,
                "model and fit, seconds": f"{wall:.2f}",
                "of processor": f"{cpu:.2f}",
                "load of the machine": f"{load:.1f}",
                "peak memory with the data alone, MB": f"{before:.0f}",
                "with the fit, MB": f"{after:.0f}",
                "<= 5 s": wall <= 5.0,
            }
        )
    write(
        "speed", "Time and memory of one fit with five targets, N = 60,000, p = 800", rows, time.time() - started,
        "Median of five fits after one; X is 366 MB of doubles. Seconds by the clock count what else ran on "
        "the machine (load: processes that wanted one of the two cores before the fit).",
    )  # fmt: skip


def one_fit() -> None:
    """Print seconds by the clock and of the processor, and peak memory before and after."""
    design = lasso_design("normal")
    sample = design.draw(0)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    seconds = []
    for seed in range(6):
        clock, processor = time.perf_counter(), time.process_time()
        model = pi.DebiasedLasso(sample.y, sample.X, x_bound=3.5, y_bounds=(-5.0, 5.0))
        model.fit(epsilon=EPSILON, sparsity=15, targets=targets(design), rng=seed)
        seconds.append((time.perf_counter() - clock, time.process_time() - processor))
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(*np.median(seconds[1:], axis=0), before, after)


def write(name: str, title: str, rows: list[dict], seconds: float, note: str) -> None:
    """Write one table with the command that made it and the seconds that it took (of fits: of the processor)."""
    RESULTS.mkdir(exist_ok=True)
    table = pd.DataFrame(rows)
    header = "| " + " | ".join(table.columns) + " |"
    body = ["| " + " | ".join(str(v) for v in row) + " |" for row in table.itertuples(index=False)]
    made = f"Made by `python benchmarks/verify_lasso.py --only {name}` in {seconds:.0f} s."
    lines = [f"# {title}", "", made, "", note, "", header, "|" + "---|" * len(table.columns), *body]
    (RESULTS / f"lasso_{name}.md").write_text("\n".join(lines) + "\n")
    print("\n".join(["", title, header, *body]), flush=True)


TABLES = {"homogeneous": homogeneous, "robust": robust, "speed": speed}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=TABLES)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--fresh", action="store_true", help="forget the fits that are stored")
    parser.add_argument("--one-fit", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one_fit:
        one_fit()
        return
    for name in [arguments.only] if arguments.only else TABLES:
        TABLES[name](arguments.scale, arguments.fresh)


if __name__ == "__main__":
    main()
