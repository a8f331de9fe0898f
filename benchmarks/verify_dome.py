"""The numbers of first-order private rounds with and without a sketch: losses, bytes, noise.

Logistic, n = 50,000 rows at 10 sites, delta = n^-1.1. Zero-out relation unless a row says replace-one. Excess
loss: expected logistic loss above the truth's, exact (the features' law is known). Fits go to
benchmarks/results/dome_fits.csv as they end, so that a run that was stopped goes on where it was.
``--only`` makes one part, ``--scale .1`` uses a tenth of the draws or seeds (at least one);
the curves have three seeds, of full rank one.

Parts: ``noise`` (Lemmas 3.1 and 3.2), ``learned`` (how much of the gradient a learned sketch misses), ``losses``
(tuned on a 3 x 3 grid, then fresh seeds), ``losses-full``, ``curves`` (what vignette 5 draws), ``curves-full`` (the same for
features of full rank).
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any

import dome_sketches
import numpy as np
import pandas as pd
from dome_problems import Problem, fit
from tables import RESULTS, write_table

import privinf as pi
from privinf.accounting import calibrate_mu

FITS = RESULTS / "dome_fits.csv"
N, D, K, EPSILON, SITES = 50_000, 2000, 40, 2.0, 10
DELTA = N**-1.1
TUNING_SEEDS, SEEDS = range(100, 103), range(20)


@dataclass(frozen=True)
class Job:
    """One fit: a problem, a method and its settings, a relation and a seed."""

    features: str
    d: int
    method: str
    epsilon: float = EPSILON
    reach: int = 1
    epochs: int = 5
    batches: int = 20
    step: float = 1.0
    clip: float = 6.0
    k: int = 0
    span: bool = False
    seed: int = 0

    @property
    def optimizer(self) -> pi.DPSGD:
        """The optimiser with these settings."""
        given: dict[str, Any] = {
            "epochs": self.epochs,
            "batches": self.batches,
            "step": self.step,
            "clip": self.clip,
        }
        if self.epochs * self.batches < 10:
            given["average"] = 0.0
        if self.method == "DPSGD":
            return pi.DPSGD(**given)
        if self.method == "DPAdam":
            return pi.DPAdam(**given)
        if self.method == "RandomSketch":
            return pi.RandomSketch(k=self.k, **given)
        return pi.DOME(k=self.k, variant="paper" if self.method == "DOME, paper" else "repaired", **given)


KEYS = [field.name for field in fields(Job)]


@lru_cache(maxsize=1)
def problem_of(features: str, d: int, seed: int) -> Problem:
    """Return a problem; only the last one is kept."""
    return Problem.draw(features, d, N, seed)


def done_fit(job: Job) -> dict[str, Any]:
    """Make one fit."""
    problem = problem_of(job.features, job.d, job.seed)
    mu = calibrate_mu(epsilon=job.epsilon, delta=DELTA)
    started = time.process_time()
    # Noise of its own for the fit in the true span, so that the two means are independent given the data.
    seed = job.seed + (10_000 if job.span else 0)
    found = fit(
        problem.in_span() if job.span else problem, job.optimizer, mu, reach=job.reach, seed=seed, sites=SITES
    )
    used = time.process_time() - started
    return {**asdict(job), "excess": found.excess, "up": found.up, "down": found.down, "seconds": used}


def stored() -> pd.DataFrame:
    """Return the fits that are stored."""
    return pd.read_csv(FITS) if FITS.exists() else pd.DataFrame(columns=[*KEYS, "excess"])


def fits_of(jobs: Iterable[Job]) -> pd.DataFrame:
    """Make the fits that are not stored, store them, and return all that were asked for, in their order."""
    jobs = list(dict.fromkeys(jobs))
    have = {key_of(row): row for row in stored().to_dict("records")}
    left = [job for job in jobs if key_of(asdict(job)) not in have]
    left.sort(key=lambda job: (job.features, job.d, job.seed))
    started = said = time.time()
    for i, job in enumerate(left, start=1):
        row = done_fit(job)
        have[key_of(row)] = row
        pd.DataFrame([row]).to_csv(FITS, mode="a", header=not FITS.exists(), index=False, float_format="%.7g")
        if time.time() - said > 60.0 or i == len(left):
            said = time.time()
            print(f"{time.strftime('%H:%M:%S')} {i} of {len(left)} fits, {said - started:.0f} s", flush=True)
    return pd.DataFrame([have[key_of(asdict(job))] for job in jobs])


def key_of(row: dict[str, Any]) -> tuple[Any, ...]:
    """Return what identifies a fit."""
    return tuple(
        f"{float(row[name]):.6g}" if name not in ("features", "method", "span") else str(row[name])
        for name in KEYS
    )


# ---- losses: tuned, then fresh seeds

LOW_STEPS, LOW_CLIPS = (0.5, 1.0, 2.0), (3.0, 4.0, 6.0)
UNEVEN_STEPS, HALVED_STEPS = (1.0, 2.0, 4.0), (0.25, 0.5, 1.0)
FULL_GRIDS = {0: ((6.0, 15.0, 40.0), (0.5, 1.0, 2.0)), K: ((1.0, 2.0, 4.0), (1.0, 2.0, 4.0))}
FEW_STEPS = (4.0, 8.0, 16.0)
ADAM_STEPS = (0.0025, 0.005, 0.01)
PAPER_STEPS, PAPER_CLIPS = (2e-3, 4e-3, 8e-3), (100.0, 200.0, 400.0)


@dataclass(frozen=True)
class Row:
    """A row of the table: a job without settings, the grid, and how many seeds."""

    name: str
    job: Job
    steps: Sequence[float] = LOW_STEPS
    clips: Sequence[float] = LOW_CLIPS
    tuning: Sequence[int] = TUNING_SEEDS
    seeds: Sequence[int] = SEEDS


LOW = {
    "DPSGD": Job("low", D, "DPSGD"),
    "DOME": Job("low", D, "DOME", k=K),
    "random sketch": Job("low", D, "RandomSketch", k=K),
}

ROWS = [
    *(Row(name, job) for name, job in LOW.items()),
    Row("DPAdam", Job("low", D, "DPAdam"), ADAM_STEPS),
    Row("DOME as restored", Job("low", D, "DOME, paper", k=K), PAPER_STEPS, PAPER_CLIPS),
    Row("DPSGD, equal floats up", replace(LOW["DPSGD"], epochs=1, batches=2), FEW_STEPS),
    *(Row(f"{name}, replace-one", replace(job, reach=2), HALVED_STEPS) for name, job in LOW.items()),
    *(
        Row(f"{name}, uneven features", replace(job, features="uneven"), UNEVEN_STEPS)
        for name, job in LOW.items()
    ),
    Row(
        "DPSGD, equal floats up, uneven features",
        replace(LOW["DPSGD"], features="uneven", epochs=1, batches=2),
        (1.0, 2.0, 4.0),
    ),
]
# Slow: no factors.
FEW: dict[str, Any] = {"tuning": TUNING_SEEDS[:1], "seeds": SEEDS[:5]}
FULL_ROWS = [
    *(
        Row(f"{name}, 5% full-rank noise", replace(job, features="mixed"), LOW_STEPS, LOW_CLIPS, **FEW)
        for name, job in LOW.items()
    ),
    *(
        Row(f"{name}, full-rank features", replace(job, features="full"), *FULL_GRIDS[job.k], **FEW)
        for name, job in LOW.items()
    ),
    Row(
        "DPSGD, equal floats up, full-rank features",
        replace(LOW["DPSGD"], features="full", epochs=1, batches=2),
        (50.0, 150.0, 400.0),
        (1.0, 2.0, 4.0),
        **FEW,
    ),
]


def winners(rows: Sequence[Row], scale: float) -> list[Job]:
    """Return each row's setting with the least mean excess over its tuning seeds."""
    grids = [grid_of(row, scale) for row in rows]
    fits_of(job for grid in grids for job in grid)  # together: a problem is drawn once
    best = []
    for row, grid in zip(rows, grids, strict=True):
        seeds = len(scaled(row.tuning, scale))
        means = fits_of(grid)["excess"].to_numpy().reshape(-1, seeds).mean(axis=1)
        best.append(grid[seeds * int(np.argmin(means))])
    return best


def grid_of(row: Row, scale: float) -> list[Job]:
    """Return the jobs of a row's grid, the seeds of a setting side by side."""
    seeds = scaled(row.tuning, scale)
    return [
        replace(row.job, step=step, clip=clip, seed=seed)
        for step in row.steps
        for clip in row.clips
        for seed in seeds
    ]


def scaled(seeds: Sequence[int], scale: float) -> Sequence[int]:
    """Return a share of the seeds, at least one."""
    return seeds[: max(1, round(scale * len(seeds)))]


NOTE = (
    f"n = {N:,}, {SITES} sites, epsilon {EPSILON:g}, delta n^-1.1 = {DELTA:.2g}, zero-out unless a row says replace-one "
    "(the same noise would be four times the rho). Features: 20 directions of equal variance unless a row says otherwise "
    "(uneven: variances that fall as 1/j); the null model's excess is .231. "
)


def losses(scale: float) -> None:
    """Write the table of tuned losses, and of full dimension against the true span."""
    span(scale)
    tuned(
        "losses",
        ROWS,
        scale,
        "Step and clip: the best of 3 x 3 (3 tuning seeds), then fresh data, batches and noise for each seed.",
    )


def losses_full(scale: float) -> None:
    """Write the same table for features that are not of low rank."""
    tuned(
        "losses_full",
        FULL_ROWS,
        scale,
        "Step and clip: the best of 3 x 3 on one tuning seed, then fresh seeds.",
    )


def tuned(name: str, rows: Sequence[Row], scale: float, how: str) -> None:
    """Tune, fit on fresh seeds, and write the table."""
    table, used = [], []
    for _, group in groupby(rows, key=lambda row: row.job.features):
        alike = list(group)
        final = [
            [replace(best, seed=seed) for seed in scaled(row.seeds, scale)]
            for row, best in zip(alike, winners(alike, scale), strict=True)
        ]
        fits_of(job for jobs in final for job in jobs)  # together: a problem is drawn once
        used += [fits_of(grid_of(row, scale)) for row in alike] + [fits_of(jobs) for jobs in final]
        table += [told(row.name, jobs[0], fits_of(jobs)) for row, jobs in zip(alike, final, strict=True)]
        write_table(
            RESULTS / f"dome_{name}.md",
            f"Excess loss of private logistic fits, d = {D:,}",
            f"benchmarks/verify_dome.py --only {name.replace('_', '-')}",
            table,
            seconds_of(used),
            NOTE + how,
        )


def seconds_of(found: Iterable[pd.DataFrame]) -> float:
    """Return the processor's seconds of stored fits."""
    return float(sum(fits["seconds"].sum() for fits in found))


def told(name: str, best: Job, found: pd.DataFrame) -> dict[str, Any]:
    """Return a row of the table."""
    excess = found["excess"]
    return {
        "method": name,
        "step": best.step,
        "clip": best.clip,
        "rounds": best.epochs * best.batches,
        "seeds": len(found),
        "excess loss": float(excess.mean()),
        "sd of a fit": float(excess.std()) if len(found) > 1 else math.nan,
        "floats up": int(found["up"].iloc[0]),
        "floats down": round(found["down"].mean()),
    }


def span(scale: float) -> None:
    """Write DPSGD in full dimension beside DPSGD that is given the true span."""
    best = winners(ROWS[:1], scale)[0]
    found = [
        fits_of(replace(best, seed=seed, span=inside) for seed in scaled(SEEDS, scale))
        for inside in (False, True)
    ]
    pair = [fits["excess"].to_numpy() for fits in found]
    gap = float(pair[0].mean() - pair[1].mean())
    se = math.sqrt(sum(e.var(ddof=1) / len(e) for e in pair)) if len(pair[0]) > 1 else math.nan
    paired = (pair[0] - pair[1]).std(ddof=1) / math.sqrt(len(pair[0])) if len(pair[0]) > 1 else math.nan
    table = [
        {
            "full dimension": float(pair[0].mean()),
            "true span": float(pair[1].mean()),
            "difference": gap,
            "standard error": se,
            "paired standard error": float(paired),
            "seeds": len(pair[0]),
            "within 3": bool(abs(gap) <= 3.0 * min(se, paired)),
        }
    ]
    write_table(
        RESULTS / "dome_span.md",
        "DPSGD in 2,000 dimensions and in the 20 that matter: excess loss",
        "benchmarks/verify_dome.py --only losses",
        table,
        seconds_of(found),
        "The same data and batches, independent noise, the settings of the first row of dome_losses.md.",
    )


# ---- curves: for the vignette

CURVE_D, EPSILONS, DIMENSIONS = 500, (0.5, 1.0, 2.0, 4.0, 8.0), (100, 500, 2000, 10_000)
SCHEDULES = ((1, 2), (1, 5), (2, 10), (5, 20), (10, 40))
METHODS = ("DPSGD", "DPAdam", "RandomSketch", "DOME", "DOME, paper")
CURVE_STEPS = {"DPAdam": (0.005, 0.01, 0.02), "DOME, paper": PAPER_STEPS}
CURVE_CLIPS = {"DOME, paper": 200.0}
WIDE_STEPS, FEW_WIDE_STEPS = (1.0, 3.0, 10.0, 30.0), (3.0, 10.0, 30.0, 100.0)
SHORT_STEPS, LONG_STEPS = (0.25, 0.5, 1.0, 2.0), (1.0, 2.0, 4.0, 8.0, 16.0)


def curve_jobs(features: str) -> list[Job]:
    """Return one job, without steps and seeds, for each point of the curves; fewer for slow ones."""
    low = features == "low"
    points = []
    for method in METHODS:
        k = 0 if method in ("DPSGD", "DPAdam") else K
        job = Job(features, CURVE_D, method, clip=CURVE_CLIPS.get(method, 4.0), k=k)
        points += [replace(job, epsilon=epsilon) for epsilon in (EPSILONS if low else EPSILONS[::2])]
        points += [
            replace(job, d=d) for d in DIMENSIONS if low or d < DIMENSIONS[-1] or method not in CURVE_STEPS
        ]
        if method not in CURVE_STEPS:
            points += [replace(job, epochs=e, batches=b) for e, b in SCHEDULES]
            points += [replace(job, k=size) for size in (10, 160) if k]
    # Where noise in all of d drowns the signal, shorter scores are better.
    wide = [
        replace(job, clip=2.0) if not low and job.d > CURVE_D and job.clip == 4.0 else job for job in points
    ]
    return list(dict.fromkeys(wide))


def curves(features: str) -> None:
    """Make the fits behind the curves, three to five steps each, and store them."""
    jobs = []
    for job in curve_jobs(features):
        few = job.epochs * job.batches <= 20
        if job.method in CURVE_STEPS:
            steps = CURVE_STEPS[job.method]
        elif features == "low":
            steps = LONG_STEPS if few else SHORT_STEPS
        else:
            steps = FEW_WIDE_STEPS if few else WIDE_STEPS
        seeds = TUNING_SEEDS if features == "low" else TUNING_SEEDS[:1]
        jobs += [replace(job, step=step, seed=seed) for step in steps for seed in seeds]
    found = fits_of(jobs)
    print(f"{features}: {len(found)} fits behind the curves", flush=True)


PARTS = {
    "noise": dome_sketches.noise,
    "losses": losses,
    "losses-full": losses_full,
    "learned": dome_sketches.learned,
    "curves": lambda _: curves("low"),
    "curves-full": lambda _: curves("full"),
}


def stored_by(part: str) -> Path | None:
    """Return the file of single fits of a part; losses and curves share one."""
    return {"noise": None, "learned": dome_sketches.LEARNED}.get(part, FITS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--fresh", action="store_true", help="forget the fits that are stored")
    given = parser.parse_args()
    RESULTS.mkdir(exist_ok=True)
    parts = [given.only] if given.only else list(PARTS)
    if given.fresh:
        for path in {stored_by(name) for name in parts} - {None}:
            path.unlink(missing_ok=True)
    for name in parts:
        PARTS[name](given.scale)


if __name__ == "__main__":
    main()
