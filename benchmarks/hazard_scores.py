"""Score tests and score intervals of `PHReg`: size, coverage and width in simulated fits.

    python benchmarks/hazard_scores.py [FITS]    (default 400; 3 minutes of one core)

Rows have a binary column (21% ones) and two normal ones in [-1, 1], a constant baseline hazard and 35% events. In the
designs "narrow column" the standard deviation of the third column is 0.06, so that noise hides its coefficient at the
smaller sizes and budgets. Fits are those of `studies.hazards.simulated`, with 16 intervals and delta 1e-6; the equation is that of
`privinf.glm.hazards.score_equation`. The page is benchmarks/results/hazard_scores.md.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.stats import binom

from privinf.accounting import calibrate_mu
from privinf.errors import PrivinfError
from privinf.glm.hazards.score_equation import slope_scores
from privinf.inference.score_sets import restricted_score_test, score_sets
from privinf.inference.score_test import score_test
from privinf.typing import Floats
from studies.hazards.records import Records
from studies.hazards.simulated import simulated_fit

PAGE = Path(__file__).parent / "results" / "hazard_scores.md"
FITS = 400
LEVEL = 0.05
DELTA = 1e-6
EDGES = np.linspace(0.0, 1.0, 17)[1:]
LONG = 0.8  # move of linear predictors in the last step from which fits are called long
SLOPES = np.array([0.45, 1.2, -0.9])


class Setting(NamedTuple):
    """Rows, epsilon, slopes, and the standard deviation of the third column."""

    name: str
    n: int
    epsilon: float
    slopes: Floats
    spread: float


SETTINGS = (
    Setting("no effects", 5_000, 1.0, np.zeros(3), 0.35),
    Setting("effects", 5_000, 1.0, SLOPES, 0.35),
    Setting("no effects, narrow column", 5_000, 1.0, np.zeros(3), 0.06),
    Setting("effects, narrow column", 5_000, 0.5, SLOPES, 0.06),
    Setting("no effects, narrow column", 1_200, 1.0, np.zeros(3), 0.06),
    Setting("effects", 1_200, 1.0, SLOPES, 0.35),
)


def sample(setting: Setting, rng: np.random.Generator) -> Records:
    n = setting.n
    normal = np.clip(rng.standard_normal((n, 2)) * [0.35, setting.spread], -1.0, 1.0)
    x = np.column_stack([2.0 * (rng.random(n) < 0.21) - 1.0, normal])
    failure = rng.exponential(size=n) / (0.62 * np.exp(x @ setting.slopes))
    end = np.minimum(rng.uniform(0.3, 1.6, n), 1.0)
    return Records(x=x, time=np.minimum(failure, end), event=failure <= end)


def one_fit(setting: Setting, seed: int) -> list[float] | None:
    """Return what is measured of a fit; None where it has no intervals."""
    rng = np.random.default_rng([seed, setting.n, int(10 * setting.epsilon), int(100 * setting.spread)])
    mu = calibrate_mu(epsilon=setting.epsilon, delta=DELTA)
    try:
        fit = simulated_fit(sample(setting, rng), EDGES, mu, rng)
    except PrivinfError:
        return None
    if not (fit.draws.converged or fit.draws.weak):
        return None
    assert fit.fit.step is not None
    truth = setting.slopes
    d = len(truth)
    nothing = np.zeros(d, dtype=bool)
    system = slope_scores(fit.fit.step, np.eye(d), np.zeros(d), setting.n, nothing, "HC0")
    single = [restricted_score_test(system, np.eye(d)[[j]], truth[[j]]).pvalue < LEVEL for j in range(d)]
    sets = score_sets(system, alpha=LEVEL)
    low, high = fit.intervals()
    missed = (truth < low) | (truth > high)
    return [
        fit.draws.weak,
        fit.draws.shift > LONG,
        score_test(system, truth).pvalue < LEVEL,
        *single,
        *missed,
        all(value in one for value, one in zip(truth, sets, strict=True)),
        *[one.bounded for one in sets],
        *[(one.hull[1] - one.hull[0]) / width for one, width in zip(sets, high - low, strict=True)],
    ]


def row(setting: Setting, fits: int) -> tuple[list[str], Floats]:
    records = [one_fit(setting, seed) for seed in range(fits)]
    values = np.array([record for record in records if record is not None], dtype=float)
    means = values.mean(axis=0)
    width = float(np.median(values[:, 13:]))
    cells = [
        setting.name,
        f"{setting.n:,}",
        f"{setting.epsilon:g}",
        f"{len(values)}",
        f"{means[0]:.2f}",
        f"{means[2]:.3f}",
        f"{means[3:6].min():.3f} to {means[3:6].max():.3f}",
        f"{means[6:9].min():.3f} to {means[6:9].max():.3f}",
        f"{means[9]:.3f}",
        f"{means[10:13].min():.2f}",
        "unbounded" if np.isinf(width) else f"{width:.2f}",
    ]
    print(" | ".join(cells), flush=True)
    return cells, values


def long_rows(values: Floats) -> list[str]:
    """Return rows of the page, of fits whose last step was short and long."""
    lines = []
    for name, chosen in (("at most", values[:, 1] == 0.0), ("more than", values[:, 1] == 1.0)):
        part = values[chosen]
        if len(part):
            sizes = part[:, 2:9].mean(axis=0)
            lines.append(
                f"| {name} {LONG:g} | {len(part)} | {sizes[0]:.3f} | {sizes[1:4].max():.3f} | {sizes[4:].max():.3f} |"
            )
    return lines


def page(rows: list[list[str]], last: Floats, fits: int) -> str:
    most = binom.ppf(0.995, fits, LEVEL) / fits
    names = ["rows", "n", "epsilon", "fits", "posterior", "size, all slopes", "size, one slope", "draws miss"]
    names += ["score sets cover jointly", "bounded", "width over draws"]
    return "\n".join(
        [
            "# Score tests of PHReg\n",
            "Made by `python benchmarks/hazard_scores.py`, which describes the rows. Tests of true hypotheses at 5%: with 99%",
            f"probability the measured size of a true 5% is at most {most:.3f} ({fits} fits). *Posterior*: share of weak fits,",
            "whose coefficients have a prior. *One slope*: the smallest and the largest size of the three slopes.",
            "*Draws miss*: the same of the fit's own 95% intervals. *Bounded*: share of bounded score sets. *Width*: median",
            "width of score sets, which hold for all slopes simultaneously, over that of the fit's intervals.\n",
            "| " + " | ".join(names) + " |",
            "|" + "---|" * len(names),
            *("| " + " | ".join(cells) + " |" for cells in rows),
            "\nThe last setting has about 400 events and long last steps, of which the Hessian is a secant. By the move of linear",
            "predictors in the last step (root mean square), largest of the three slopes:\n",
            "| move | fits | size, all slopes | size, one slope | draws miss |",
            "|---|---|---|---|---|",
            *long_rows(last),
            "",
        ]
    )


def main() -> None:
    fits = int(sys.argv[1]) if len(sys.argv) > 1 else FITS
    parts = [row(setting, fits) for setting in SETTINGS]
    PAGE.write_text(page([cells for cells, _ in parts], parts[-1][1], fits), encoding="utf-8")


if __name__ == "__main__":
    main()
