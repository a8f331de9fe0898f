"""Robust errors of MomentOLS on real, skewed responses, where a wide clip could do harm, and where none helps.

Real: rows of statsmodels' Fair (affairs on rate_marriage, religious, yrs_married) and RAND (mdvis on lncoins,
idp, physlm) data, drawn again with replacement; bounds of their code books; the target is least squares on all
rows. Regular: uniform columns, errors of sd .3. Each with residuals clipped at 3, 10 and 20 of their sds, and by
the package's rule. Groups: what score tests of a true hypothesis do where one group's errors have three times
the sd of the others'. Delta 1e-6; every fit through the public API and seeded.

``--replications 50`` makes fewer fits; the tables go to benchmarks/results/hc0_real.md.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from statsmodels.datasets import fair, randhie
from tqdm import tqdm

import privinf as pi
from privinf.errors import WeakIdentificationWarning
from privinf.mechanisms import residual_plan

RESULTS = Path(__file__).parent / "results" / "hc0_real.md"
DELTA, NORMAL = 1e-6, 1.959963984540054
CLIPS = {"3 sd": 3.0, "10 sd": 10.0, "20 sd": 20.0, "rule": None}
SLOPES, SD = np.array([0.5, -0.3, 0.2]), 0.3
HEADER = """# Clipping of residuals: robust standard errors, coverage and width

Made by `python benchmarks/verify_hc0.py`, {} replications; delta = 1e-6, one curator. *Clip* is the median threshold, in standard deviations of the residuals. The ratio of standard deviation and standard error (root mean square) and the coverage of 95% intervals are given for each coefficient, the constant first, or from lowest to highest if there are more than four. *Width* is the median over slopes, relative to the width with a threshold of 3 standard deviations.

"""


@dataclass(frozen=True)
class PosteriorDraws:
    """One data set: response, columns, public bounds, and the coefficients that intervals are for."""

    y: np.ndarray
    X: pd.DataFrame
    bounds: list[tuple[float, float]]
    y_bounds: tuple[float, float]
    target: np.ndarray


Draw = Callable[[int, np.random.Generator], PosteriorDraws]


def resampled(rows: pd.DataFrame, response: str, bounds: dict, y_bounds: tuple[float, float]) -> Draw:
    """Return a function that draws n rows again."""
    X = pi.add_constant(rows[list(bounds)].astype(float))
    y = rows[response].to_numpy(dtype=float)
    target = np.linalg.lstsq(X.to_numpy(), y, rcond=None)[0]

    def draw(n: int, rng: np.random.Generator) -> PosteriorDraws:
        chosen = rng.integers(len(y), size=n)
        return PosteriorDraws(y[chosen], X.iloc[chosen], list(bounds.values()), y_bounds, target)

    return draw


def regular(errors: str, columns: int = 3) -> Draw:
    """Return a function that draws uniform columns, and errors of one variance."""
    slopes = np.concatenate([SLOPES, np.zeros(columns - 3)])

    def draw(n: int, rng: np.random.Generator) -> PosteriorDraws:
        X = rng.uniform(-1.0, 1.0, (n, columns))
        unit = rng.standard_normal(n) if errors == "normal" else np.sqrt(3.0) * rng.uniform(-1.0, 1.0, n)
        frame = pi.add_constant(pd.DataFrame(X, columns=[f"x{j + 1}" for j in range(columns)]))
        y = np.clip(X @ slopes + SD * unit, -2.0, 2.0)
        return PosteriorDraws(y, frame, [(-1.0, 1.0)] * columns, (-2.0, 2.0), np.concatenate([[0.0], slopes]))

    return draw


def grouped(share: float) -> Draw:
    """Return a function that draws a group of a share of the rows, whose errors have three times the sd."""

    def draw(n: int, rng: np.random.Generator) -> PosteriorDraws:
        group = (rng.uniform(size=n) < share).astype(float)
        y = np.clip(SD * (1.0 + 2.0 * group) * rng.standard_normal(n), -5.0, 5.0)
        frame = pi.add_constant(pd.DataFrame({"group": group}))
        return PosteriorDraws(y, frame, [(0.0, 1.0)], (-5.0, 5.0), np.zeros(2))

    return draw


AFFAIRS = resampled(
    fair.load_pandas().data,
    "affairs",
    {"rate_marriage": (1.0, 5.0), "religious": (1.0, 4.0), "yrs_married": (0.5, 23.0)},
    (0.0, 58.0),
)
VISITS = resampled(
    randhie.load_pandas().data,
    "mdvis",
    {"lncoins": (0.0, float(np.log(101.0))), "idp": (0.0, 1.0), "physlm": (0.0, 1.0)},
    (0.0, 77.0),
)
SIZES = ((50_000, 4.0), (50_000, 1.0), (6_000, 4.0), (6_000, 1.0))
CELLS: list[tuple[str, Draw, int, float]] = [
    *((name, draw, *size) for name, draw in (("Fair", AFFAIRS), ("RAND", VISITS)) for size in SIZES),
    *((f"{law}, d = 3", regular(law), n, 1.0) for law in ("normal", "uniform") for n in (5_000, 20_000)),
    ("normal, d = 10", regular("normal", 10), 20_000, 1.0),
    ("normal, d = 10", regular("normal", 10), 20_000, 4.0),
    ("normal, d = 10", regular("normal", 10), 5_000, 4.0),
]


def fit_of(drawn: PosteriorDraws, epsilon: float, cov_type: str, rng: np.random.Generator) -> pi.Results:
    """Return one fit through the public API."""
    model = pi.MomentOLS(drawn.y, drawn.X, bounds=drawn.bounds, y_bounds=drawn.y_bounds)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", WeakIdentificationWarning)
        return model.fit(epsilon=epsilon, delta=DELTA, cov_type=cov_type, rng=rng)


@dataclass(frozen=True)
class Outcome:
    """What the fits of one cell did: sd over se and coverage a coefficient, median width and clip."""

    ratios: np.ndarray
    covered: np.ndarray
    width: float
    clip: float


def outcome(draw: Draw, n: int, epsilon: float, multiple: float | None, replications: int) -> Outcome:
    """Make the fits of one cell, residuals clipped at a multiple of their sd; None for the package's rule."""
    kept = residual_plan.LEAST_MULTIPLE, residual_plan.RESIDUAL_MULTIPLE
    if multiple is not None:
        residual_plan.LEAST_MULTIPLE = residual_plan.RESIDUAL_MULTIPLE = multiple
    errors, se, clips = [], [], []
    for number in range(replications):
        rng = np.random.default_rng([11, n, number])
        drawn = draw(n, rng)
        r = fit_of(drawn, epsilon, "HC0", rng)
        errors.append(r.params.to_numpy() - drawn.target)
        se.append(r.bse.to_numpy())
        sd = np.std(drawn.y - drawn.X.to_numpy() @ drawn.target)
        clips.append(r.release.noise_model["residual_bound"] * r.release.design.y_scale / sd)
    residual_plan.LEAST_MULTIPLE, residual_plan.RESIDUAL_MULTIPLE = kept
    error, total = np.array(errors), np.array(se)
    return Outcome(
        error.std(axis=0) / np.sqrt((total**2).mean(axis=0)),
        (np.abs(error) <= NORMAL * total).mean(axis=0),
        float(np.median(2.0 * NORMAL * total[:, 1:])),
        float(np.median(clips)),
    )


def spread(values: np.ndarray, digits: int) -> str:
    """Return the values of all coefficients, or their range."""
    if len(values) > 4:
        return f"{values.min():.{digits}f} to {values.max():.{digits}f}"
    return " ".join(f"{value:.{digits}f}" for value in values)


def clips_table(replications: int) -> str:
    """Return the table of cells and clips."""
    lines = ["| cell | n | epsilon | clip | clip, sds | sd over se | coverage | width |", "|" + "---|" * 8]
    for name, draw, n, epsilon in tqdm(CELLS):
        base = None
        for label, multiple in CLIPS.items():
            found = outcome(draw, n, epsilon, multiple, replications)
            base = base or found.width
            lines.append(
                f"| {name} | {n:,} | {epsilon:g} | {label} | {found.clip:.1f} | {spread(found.ratios, 2)} "
                f"| {spread(found.covered, 3)} | {found.width / base:.3f} |"
            )
    return "\n".join(lines) + "\n"


def sizes_table(replications: int) -> str:
    """Return the table of score tests under grouped variances."""
    lines = ["| share of the group | n | epsilon | nonrobust | HC0 |", "|" + "---|" * 5]
    for share, epsilon in tqdm([(0.1, 4.0), (0.25, 4.0), (0.1, 16.0), (0.25, 16.0)]):
        rejected = {"nonrobust": 0, "HC0": 0}
        for number in range(replications):
            drawn = grouped(share)(50_000, np.random.default_rng([12, number]))
            for cov_type in rejected:
                r = fit_of(drawn, epsilon, cov_type, np.random.default_rng([13, number]))
                rejected[cov_type] += r.score_test([0.0]).pvalue < 0.05
        sizes = " | ".join(f"{count / replications:.3f}" for count in rejected.values())
        lines.append(f"| {share:g} | 50,000 | {epsilon:g} | {sizes} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replications", type=int, default=300)
    given = parser.parse_args()
    text = HEADER.format(given.replications) + clips_table(given.replications)
    text += "\nShare of true hypotheses that score tests at the 5% level reject, if one group has three times the standard deviation of the others:\n\n"
    text += sizes_table(given.replications)
    RESULTS.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
