"""The numbers that DebiasedLasso claims, by Monte Carlo (about two hours on two free cores).

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
import resource
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pandas as pd
from lasso_machines import joint_budget, low, row_of, table2, table5, with_error
from tables import RESULTS, Job, checkpointed, write_table

import privinf as pi
from studies.lasso import ERROR_COLUMN, LassoDesign, lasso_design
from studies.lasso_tables import paper_design, paper_table
from studies.simulation import binomial_limits

NORMAL, EPSILON, SIGNALS = 1.959963984540054, 0.8, 3
# Of intervals of the mean, over those without privacy.
WIDEST = 1.25
# The columns' bounds are public: 3.5 standard deviations of normals; chi-square features reach further.
BOUNDS = {"chi2": 12.0}
# Drawing 60,000 x 800 features takes longer than a fit: each draw serves for this many responses and noises.
PER_DRAW = 25

WIDE = (100_000, 5_000)
HOMOGENEOUS = {"normal": "paper's: AR(.5) normal features, normal errors"}
ROBUST = {
    "heteroskedastic": "errors times abs(x_7)",
    "skewed": "exponential errors times abs(x_7)",
    "chi2": "chi-square features, 3 degrees of freedom",
    "equicorrelated": "correlation .3 between all features",
    "spread": "signals of both signs, far apart",
}


def targets(design: LassoDesign) -> list[int]:
    """Return three signals (the first, the middle, the last), the null beside the last or so, and one far."""
    support = np.flatnonzero(design_params(design))
    middle, last = int(support[len(support) // 2]), int(support[-1])
    return [int(support[0]), middle, last, (middle if design.signals == "spread" else last) + 1, 400]


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


def one_response(
    design: LassoDesign,
    X: np.ndarray,
    params: np.ndarray,
    rng: np.random.Generator,
    *,
    bound: float = 3.5,
    epsilon: float = EPSILON,
) -> dict:
    """Draw a response of features that were drawn before, fit it, and return errors and standard errors."""
    started, wanted = time.process_time(), targets(design)
    y = response(design, X, params, rng)
    model = pi.DebiasedLasso(y, X, x_bound=bound, y_bounds=(-5.0, 5.0))
    r = model.fit(epsilon=epsilon, delta=0.5 / design.nobs, sparsity=design.sparsity, targets=wanted, rng=rng)
    chosen = set(np.flatnonzero(r.sparse_params.to_numpy()))
    row = {f"error{j}": v for j, v in enumerate(r.params.to_numpy() - params[wanted])}
    row |= {f"se{j}": v for j, v in enumerate(r.bse.to_numpy())}
    found = np.isin(np.flatnonzero(params), list(chosen)).sum()
    row |= {"found": int(found), "epsilon": r.privacy.epsilon(1.0 / (2 * design.nobs))}
    return row | {"seconds": time.process_time() - started}


def fits_of_draw(cell: str, number: int, count: int) -> pd.DataFrame:
    """Draw features once, and fit `count` new responses with new noise."""
    design, place = lasso_design(cell), [*HOMOGENEOUS, *ROBUST].index(cell)
    first, *seeds = np.random.SeedSequence([place, number]).spawn(1 + PER_DRAW)
    sample, bound = design.draw(np.random.default_rng(first)), BOUNDS.get(cell, 3.5)
    rows = []
    for replication, seed in enumerate(seeds[:count]):
        rng = np.random.default_rng(seed)
        row = {"cell": cell, "draw": number, "replication": replication}
        rows.append(row | one_response(design, sample.X, sample.shared, rng, bound=bound))
    return pd.DataFrame(rows)


def jobs_of(cells: Iterable[str], replications: int, per_draw: int = PER_DRAW) -> list[Job]:
    """Return (cell, draw, count): the draws of all cells in turn."""
    draws = math.ceil(replications / per_draw)
    counts = [min(per_draw, replications - k * per_draw) for k in range(draws)]
    return [(cell, k, count) for k, count in enumerate(counts) for cell in cells]


def coverage_row(design: LassoDesign, label: str, frame: pd.DataFrame, asked: dict[str, float]) -> dict:
    """Return one line of a table of coverage: overall, each target, width, selection."""
    wanted = targets(design)
    errors = frame.filter(regex=r"^error\d$").to_numpy(float)
    ses = frame.filter(regex=r"^se\d$").to_numpy(float)
    held = np.abs(errors) <= NORMAL * ses
    each, overall = held.mean(axis=0), held.mean()
    clear = 2.0 * NORMAL * np.sqrt(design.sampling_variance()[wanted] / design.nobs)
    width = 2.0 * NORMAL * ses.mean(axis=0)
    found = float((frame["found"] == design.sparsity).mean())
    low, high = binomial_limits(0.95, held.size)
    passed = asked.get("overall", 0.0) <= overall <= asked.get("most", 1.0)
    passed &= asked.get("each", 0.0) <= each.min() and each.max() <= asked.get("most each", 1.0)
    passed &= found >= asked.get("found", 0.0)
    passed &= bool((width <= asked.get("ratio", math.inf) * clear).all())
    return {
        "design": label,
        "fits": len(frame),
        "draws of X": frame["draw"].nunique(),
        "coverage": f"{overall:.4f}",
        "± se": f"{held.mean(axis=1).std(ddof=1) / math.sqrt(len(held)):.4f}",
        "99% limits of 0.95": f"{low:.4f} to {high:.4f}",
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


def homogeneous(scale: float) -> None:
    """Coverage, width and selection in the paper's homogeneous setting, five targets, joint budget."""
    _coverage(
        "homogeneous",
        "Homogeneous setting: 95% intervals of five targets under one joint budget",
        HOMOGENEOUS,
        max(10, int(500 * scale)),
        {"overall": 0.93, "most": 0.97, "each": 0.91, "most each": 0.98, "ratio": WIDEST, "found": 0.99},
        f"The aim was a coverage in [93%, 97%], for each target in [91%, 98%], width of each at most {WIDEST} times the "
        "non-private one, all signals selected in 99% of the fits.",
        scale,
    )


def robust(scale: float) -> None:
    """The same under other errors, features and signals."""
    _coverage(
        "robust",
        "The same fit under other errors, features and signals",
        ROBUST,
        max(10, int(200 * scale)),
        {"overall": 0.91, "each": 0.88, "ratio": WIDEST},
        f"Asked: coverage at least 91%, each target at least 88%, width of each target at most {WIDEST} times "
        "the non-private one (heteroskedasticity-robust, `LassoDesign.sampling_variance`).",
        scale,
    )


def _coverage(
    name: str,
    title: str,
    cells: dict[str, str],
    replications: int,
    asked: dict[str, float],
    note: str,
    scale: float,
) -> None:
    stored = checkpointed(RESULTS / f"lasso_{name}.csv", jobs_of(cells, replications), fits_of_draw)
    stored = stored[stored["draw"] * PER_DRAW + stored["replication"] < replications]
    rows = [
        coverage_row(lasso_design(cell), label, stored[stored["cell"] == cell], asked)
        for cell, label in cells.items()
    ]
    write(
        name,
        title,
        rows,
        stored["seconds"].sum(),
        "N = 60,000, p = 800, s = 15 coefficients of size 1/sqrt 15, error sd .5, eps = .8, delta = 1/(2N), "
        "all releases charged. The targets are signals 1, 8 and 15, a null next to a signal, and a null far away. Seconds are processor time of the fits."
        f" X is drawn again after {PER_DRAW} fits, responses and noise for every fit. The non-private width is that of the debiased lasso with the true precision matrix."
        " Standard error over fits. " + note,
        scale,
    )


def speed(scale: float) -> None:
    """Time and memory of one fit with five targets, in a process of its own."""
    started, rows = time.time(), []
    for threads in (1, 2):
        load = os.getloadavg()[0]
        wall, cpu, before, after = _alone("--one-fit", threads)
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
        "speed",
        "Time and memory of one fit with five targets, N = 60,000, p = 800",
        rows,
        time.time() - started,
        "Median of five fits after one; X is 366 MB of doubles. Wall time depends on other programs on the machine (load: processes that waited for one of the two cores before the fit).",
    )


def wide(scale: float) -> None:
    """Time and memory of one fit of 5,000 columns, in a process of its own."""
    started, load = time.time(), os.getloadavg()[0]
    wall, cpu, before, after = _alone("--wide-fit", 1)
    size = WIDE[0] * WIDE[1] * 8 / 2**20
    row = {
        "model and fit, seconds": f"{wall:.1f}",
        "of processor": f"{cpu:.1f}",
        "load of the machine": f"{load:.1f}",
        "X, MB": f"{size:.0f}",
        "peak memory with the data alone, MB": f"{before:.0f}",
        "with the fit, MB": f"{after:.0f}",
        "peak / X": f"{after / size:.3f}",
        "<= 60 s": wall <= 60.0,
        "<= 1.2 x X": after <= 1.2 * size,
    }
    write(
        "wide",
        "Time and memory of one fit with five targets, N = 100,000, p = 5,000",
        [row],
        time.time() - started,
        "Epsilon 1, the number of columns chosen by the fit; one fit, the first of its process, one thread. "
        "Memory is that of the whole process, with the interpreter and what it loads. Wall time depends on other programs on the machine (load: processes that waited for one of the two cores before the fit).",
    )


def _alone(fit: str, threads: int) -> list[float]:
    """Return what a fit in a process of its own prints."""
    env = os.environ | {"OMP_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": str(threads)}
    done = subprocess.run(
        [sys.executable, __file__, fit], env=env, capture_output=True, text=True, check=True
    )
    return [float(v) for v in done.stdout.split()]


def one_fit() -> None:
    """Print seconds by the clock and of the processor, and peak memory before and after, MB."""
    design = lasso_design("normal")
    sample = design.draw(0)
    before = peak_memory()
    seconds = [_timed(sample.y, sample.X, 3.5, seed, EPSILON, targets(design), 15) for seed in range(6)]
    print(*np.median(seconds[1:], axis=0), before, peak_memory())


def wide_fit() -> None:
    """Print the same of one fit of a wide table: eight effects, five targets, three of them without."""
    rng, X = np.random.default_rng(0), np.empty(WIDE)
    for rows in np.array_split(X, 50):  # views: they are filled in place
        rows[:] = rng.standard_normal(rows.shape)
    y = 0.25 * X[:, :8].sum(axis=1) + rng.standard_normal(len(X))
    before = peak_memory()
    print(*_timed(y, X, 4.0, 0, 1.0, [0, 7, 8, 100, 4_000], "auto"), before, peak_memory())


def peak_memory() -> float:
    """Return the peak memory of this process, MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _timed(
    y: np.ndarray,
    X: np.ndarray,
    bound: float,
    seed: int,
    epsilon: float,
    names: list[int],
    sparsity: int | str,
) -> tuple[float, float]:
    """Return seconds of model and fit, by the clock and of the processor."""
    clock, processor = time.perf_counter(), time.process_time()
    model = pi.DebiasedLasso(y, X, x_bound=bound, y_bounds=(-5.0, 5.0))
    model.fit(epsilon=epsilon, delta=0.5 / len(y), sparsity=sparsity, targets=names, rng=seed)
    return time.perf_counter() - clock, time.process_time() - processor


# Rows that differ without parts of the machines' own; data sets: features are drawn for JOINT_DRAW fits.
JOINT_ROWS = [1, 2, 3, 4, 5, 6, 7, 10, 11, 12, 13]
JOINT_DRAW = 5
JOINT_COLUMNS = (
    "coverage",
    "± se",
    "99% limits of 0.95",
    "width",
    "non-private width",
    "width / non-private, each",
    "all signals selected",
    "joint epsilon",
)


def pooled_design(row: int) -> LassoDesign:
    """Return the design of a row of the paper with all s coefficients shared."""
    return replace(paper_design(row), shared_sparsity=None)


def joint_fits(cell: str, number: int, count: int) -> pd.DataFrame:
    """Draw the features of a row once, and fit `count` responses under the row's budget."""
    row = row_of(cell)
    design, epsilon = pooled_design(row), float(paper_table()["epsilon"].loc[row])
    first, *seeds = np.random.SeedSequence([6, row, number]).spawn(1 + JOINT_DRAW)
    sample = design.draw(np.random.default_rng(first))
    rows = []
    for replication, seed in enumerate(seeds[:count]):
        line = {"cell": cell, "draw": number, "replication": replication}
        rng = np.random.default_rng(seed)
        rows.append(line | one_response(design, sample.X, sample.shared, rng, epsilon=epsilon))
    return pd.DataFrame(rows)


def joint(scale: float) -> None:
    """The paper's sizes under one joint budget: five targets of the pooled rows, all parts shared."""
    replications = max(2, round(50 * scale))
    jobs = jobs_of([f"row {row}" for row in JOINT_ROWS], replications, JOINT_DRAW)
    stored = checkpointed(RESULTS / "lasso_joint.csv", jobs, joint_fits)
    stored = stored[stored["draw"] * JOINT_DRAW + stored["replication"] < replications]
    rows = []
    for row in JOINT_ROWS:
        design, paper = pooled_design(row), paper_table().loc[row]
        frame = stored[stored["cell"] == f"row {row}"]
        line = coverage_row(design, str(row), frame, {})
        rows.append(
            {"row": row, "rows in all": design.nobs, "p": design.p, "s": design.sparsity}
            | {"epsilon": paper["epsilon"], "fits": len(frame)}
            | {name: line[name] for name in JOINT_COLUMNS}
            | {"paper's length, each alone": f"{paper['length']:.4f}"}
        )
    write(
        "joint",
        "The paper's sizes under one joint budget, five targets",
        rows,
        stored["seconds"].sum(),
        "Everything released counted: n rows on each machine, all s coefficients shared, intervals of five "
        "columns from all rows together. The paper's length is that of one machine's interval with a budget of "
        f"its own. X is drawn again after {JOINT_DRAW} fits, responses and noise for every fit.",
        scale,
    )


def every_fit(cell: str, number: int, count: int) -> pd.DataFrame:
    """Draw one data set, and fit the intervals of every column under one joint budget."""
    design = lasso_design(cell)
    data, noise = np.random.SeedSequence([7, number]).spawn(2)
    sample = design.draw(np.random.default_rng(data))
    clock, started = time.perf_counter(), time.process_time()
    model = pi.DebiasedLasso(sample.y, sample.X, x_bound=3.5, y_bounds=(-5.0, 5.0))
    r = model.fit(
        epsilon=EPSILON,
        delta=0.5 / design.nobs,
        sparsity=design.sparsity,
        targets="all",
        rng=np.random.default_rng(noise),
    )
    seconds, clock = time.process_time() - started, time.perf_counter() - clock
    low, high = r.conf_int().to_numpy().T
    held, signal = (low <= sample.shared) & (sample.shared <= high), sample.shared != 0.0
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    row = {
        "cell": cell,
        "draw": number,
        "replication": 0,
        "coverage": held.mean(),
        "non-zero": held[signal].mean(),
        "zero": held[~signal].mean(),
        "width": (high - low).mean(),
        "epsilon": r.privacy.epsilon(),
        "seconds": seconds,
        "clock": clock,
        "memory": memory,
    }
    return pd.DataFrame([row])


def every(scale: float) -> None:
    """Every one of the 800 columns with its interval, under one joint budget."""
    design, count = lasso_design("normal"), max(2, round(20 * scale))
    stored = checkpointed(RESULTS / "lasso_all.csv", jobs_of(["normal"], count, 1), every_fit)
    stored = stored[stored["draw"] < count]
    clear = 2.0 * NORMAL * np.sqrt(design.sampling_variance() / design.nobs).mean()
    width, coverage = stored["width"].mean(), stored["coverage"].mean()
    row = {
        "data sets": len(stored),
        "coverage": with_error(stored["coverage"], 4),
        "non-zero": with_error(stored["non-zero"], 4),
        "zero": with_error(stored["zero"], 4),
        "width": f"{width:.5f}",
        "non-private width": f"{clear:.5f}",
        "joint epsilon": f"{stored['epsilon'].max():.4f}",
        "seconds a fit, by the clock, most": f"{stored['clock'].max():.1f}",
        "of processor": f"{stored['seconds'].max():.1f}",
        "peak memory with the data, GB": f"{stored['memory'].max():.2f}",
        "width <= .045": bool(width <= 0.045),
        "coverage in [93%, 97%]": bool(0.93 <= coverage <= 0.97),
        "<= 60 s": bool(stored["seconds"].max() <= 60.0),
        "< 1.5 GB": bool(stored["memory"].max() < 1.5),
    }
    write(
        "all",
        "Intervals of all 800 columns under one joint budget",
        [row],
        stored["seconds"].sum(),
        "N = 60,000, s = 15, eps = .8, delta = 1/(2N), everything released counted. Standard errors over data "
        "sets. Memory is the peak of the process that drew the data (366 MB) and fitted, two at a time; wall time depends on other programs, so processor time (one thread) is compared with the aim.",
        scale,
    )


def write(name: str, title: str, rows: list[dict], seconds: float, note: str, scale: float = 1.0) -> None:
    """Write one table; the seconds of fits are those of the processor."""
    command = f"benchmarks/verify_lasso.py --only {name}" + (f" --scale {scale:g}" if scale != 1.0 else "")
    write_table(RESULTS / f"lasso_{name}.md", title, command, rows, seconds, note)


TABLES = {
    "homogeneous": homogeneous,
    "robust": robust,
    "speed": speed,
    "wide": wide,
    "table2": table2,
    "table5": table5,
    "low": low,
    "machines_joint": joint_budget,
    "all": every,
    "joint": joint,
}
# Files of single fits; several tables may be made from one.
STORED = {name: f"lasso_{name}.csv" for name in ("homogeneous", "robust", "all", "joint")}
STORED |= dict.fromkeys(("table2", "table5", "low", "machines_joint"), "lasso_machines.csv")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=TABLES)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--fresh", action="store_true", help="forget the fits that are stored")
    parser.add_argument("--one-fit", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--wide-fit", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one_fit or arguments.wide_fit:
        (one_fit if arguments.one_fit else wide_fit)()
        return
    chosen = [arguments.only] if arguments.only else list(TABLES)
    if arguments.fresh:
        for file in {STORED[name] for name in chosen if name in STORED}:
            (RESULTS / file).unlink(missing_ok=True)
    for name in chosen:
        TABLES[name](arguments.scale)


if __name__ == "__main__":
    main()
