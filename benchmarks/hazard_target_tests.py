"""How often `PHReg` says that its coefficients depend on the follow-up, and whether they do.

    python benchmarks/hazard_target_tests.py [FITS]    (fits that are not stored yet, then the page)
    python benchmarks/hazard_target_tests.py 0         (the page from the stored fits)

Tables, laws and settings are those of `hazard_tables`, with the seeds of `hazard_targets`. Of each fit the test of its
target is stored (`privinf.glm.hazards.target_test`), and the diagnostics by which the package warns. In the laws of
`LAWS_OF_TEST` the model holds, but columns have long tails or effects are strong. `NEW_LAWS` were tried once,
when the test and the level of its warning were fixed. Single fits are stored in
benchmarks/results/hazard_target_tests.csv. The page is benchmarks/results/hazard_target_tests.md.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import csv
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import hazard_tables
import numpy as np
import pandas as pd
from hazard_tables import SETTINGS, Setting, fits_of, numbers, stored_fits, text_of, warned
from hazard_targets import FIRST_SEED, MISSING
from proportional_hazards import DELTA, Law
from scipy.stats import chi2

from privinf.accounting.calibration import calibrate_mu
from privinf.errors import PrivinfError
from privinf.glm.hazards.path import MOST_NOISE, fit_hazards
from privinf.glm.hazards.results import FAR_COLUMN, FAR_OUT, LATER, MOVED_LEVEL, column_reach
from privinf.glm.posterior_draws import drawn
from privinf.typing import Floats
from studies.hazards.follow_up import follow_up_test
from studies.hazards.records import Records
from studies.hazards.simulated import SimulatedSums
from studies.simulation import binomial_limits

RESULTS = Path(__file__).parent / "results"
STORE = RESULTS / "hazard_target_tests.csv"
PAGE = RESULTS / "hazard_target_tests.md"
FITS = 8  # a setting, by default
MORE_FITS = 3  # times as many of a setting of `SILENT`
LAW_FITS = 5  # times as many of a law
LEVELS = (0.001, 0.005, 0.01, 0.02, 0.05, 0.1)
SILENT: list[Setting] = [*MISSING, ("Rotterdam, log nodes", 20_000, 4.0)]
FIELDS = (
    "task",
    "rows",
    "epsilon",
    "seed",
    "later",
    "far",
    "early",
    "reach",
    "weak",
    "converged",
    "missed",
    "statistic",
    "noncentrality",
    "df",
    "pvalue",
)


@dataclass(frozen=True, kw_only=True)
class LongTails:
    """Proportional hazards with linear effects of a lognormal, a rare and an exponential column, and another."""

    slopes: float
    scale: float

    def sample(self, n: int, rng: np.random.Generator) -> tuple[Records, Floats]:
        """Return records and the true slopes."""
        lognormal = np.minimum(np.exp(0.9 * rng.standard_normal(n)) / 12.0, 1.0) * 2.0 - 1.0
        rare = 2.0 * (rng.random(n) < 0.08) - 1.0
        exponential = np.minimum(rng.exponential(size=n) / 6.0, 1.0) * 2.0 - 1.0
        normal = np.clip(0.35 * rng.standard_normal(n) + 0.3 * exponential, -1.0, 1.0)
        x = np.column_stack([lognormal, rare, exponential, normal])
        beta = self.slopes * np.array([2.0, 0.5, -1.0, 0.8])
        failure = rng.exponential(size=n) / (self.scale * np.exp(x @ beta + 1.2 * self.slopes))
        return censored(x, failure, rng), beta


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Proportional hazards of shape 1.6 with effects of a count, a gamma, a uniform and a binary column."""

    def sample(self, n: int, rng: np.random.Generator) -> tuple[Records, Floats]:
        """Return records and the true slopes."""
        count = np.minimum(rng.poisson(2.0, n) / 10.0, 1.0) * 2.0 - 1.0
        gamma = np.minimum(rng.gamma(2.0, size=n) / 9.0, 1.0) * 2.0 - 1.0
        binary = 2.0 * (rng.random(n) < 0.35 + 0.1 * gamma) - 1.0
        x = np.column_stack([count, gamma, rng.uniform(-1.0, 1.0, n), binary])
        beta = np.array([1.0, 0.8, -0.6, 0.3])
        failure = (rng.exponential(size=n) / (1.2 * np.exp(x @ beta))) ** (1.0 / 1.6)
        return censored(x, failure, rng), beta


@dataclass(frozen=True, kw_only=True)
class HeavyTails:
    """Proportional hazards, of which half come early, with effects of five columns with t distributions."""

    def sample(self, n: int, rng: np.random.Generator) -> tuple[Records, Floats]:
        """Return records and the true slopes."""
        common = rng.standard_t(4.0, (n, 1))
        x = np.clip((rng.standard_t(4.0, (n, 5)) + 0.5 * common) / 8.0, -1.0, 1.0)
        beta = np.array([1.2, -0.9, 0.6, 0.0, 0.9])
        hazard = rng.exponential(size=n) / np.exp(x @ beta)
        # The cumulated baseline hazard: 0.3 up to 0.15, then 0.3 more up to 1.
        failure = np.where(hazard < 0.3, 0.5 * hazard, 0.15 + (hazard - 0.3) * 0.85 / 0.3)
        return censored(x, failure, rng), beta


def censored(x: Floats, failure: Floats, rng: np.random.Generator) -> Records:
    """Return records whose follow-up ends at a uniform time, at 1 at the latest."""
    end = np.minimum(rng.uniform(0.3, 1.6, len(x)), 1.0)
    return Records(x=x, time=np.minimum(failure, end), event=failure <= end)


LAWS: dict[str, Callable[[], Any]] = {
    "strong, d = 6": lambda: Law(columns=6, slopes=2.0),
    "strong, d = 6, most fail": lambda: Law(columns=6, slopes=2.0, scale=3.0),
    "long tails": lambda: LongTails(slopes=1.0, scale=0.4),
    "long tails, strong": lambda: LongTails(slopes=2.0, scale=0.4),
    "long tails, most fail": lambda: LongTails(slopes=1.5, scale=2.0),
    "counts": Counts,
    "heavy tails": HeavyTails,
}
LAWS_OF_TEST: list[Setting] = [(name, 20_000, 4.0) for name in list(LAWS)[:5]]
NEW_LAWS: list[Setting] = [("counts", 20_000, 4.0), ("heavy tails", 10_000, 2.0)]


@cache
def made(task: str) -> tuple[Any, int]:
    """Return the population of a task, and the number of intervals."""
    return (LAWS[task](), hazard_tables.INTERVALS) if task in LAWS else hazard_tables.made(task)


def one(setting: Setting, seed: int) -> dict[str, Any]:
    """Return what is stored of a fit; a fit that is refused has no more than its seed."""
    task, n, epsilon = setting
    people, intervals = made(task)
    rng = np.random.default_rng(seed)
    records, beta = people.sample(n, rng)
    mu = calibrate_mu(epsilon=epsilon, delta=DELTA)
    sums = SimulatedSums(records=records, edges=np.arange(1, intervals + 1) / intervals, mu=mu, rng=rng)
    stored: dict[str, Any] = {"task": task, "rows": n, "epsilon": epsilon, "seed": seed}
    try:
        fit = fit_hazards(sums, most_noise=MOST_NOISE)
        posterior = None if fit.step is None else drawn(fit.step, n, None)
    except (PrivinfError, np.linalg.LinAlgError):
        return stored
    if fit.step is None or posterior is None:
        return stored
    q = fit.baseline.blocks
    low, high = np.quantile(posterior.draws[:, q:], [0.025, 0.975], axis=0)
    ones = np.ones(len(beta))
    stored |= {
        "later": round(fit.later, 5),
        "far": round(fit.step.far, 4),
        "early": round(fit.baseline.early, 4),
        "reach": text_of(column_reach(fit.step, q, -ones, ones), 3),
        "weak": int(posterior.weak),
        "converged": int(posterior.converged),
        "missed": text_of((low > beta) | (beta > high), 0),
    }
    test = follow_up_test(fit, posterior, n)
    if test is None:
        return stored
    return stored | {
        "statistic": round(test.statistic, 4),
        "noncentrality": round(test.noncentrality, 5),
        "df": test.df,
        "pvalue": f"{test.pvalue:.3g}",
    }


def planned(fits: int) -> dict[Setting, int]:
    """Return the number of fits of each setting."""
    numbers_of = {setting: fits * (MORE_FITS if setting in SILENT else 1) for setting in SETTINGS}
    return numbers_of | dict.fromkeys([*LAWS_OF_TEST, *NEW_LAWS], LAW_FITS * fits)


def run(fits: int) -> None:
    """Make and store the fits that are not stored yet."""
    done = stored_fits(STORE, FIELDS)
    counts = planned(fits)
    for number in range(max(counts.values(), default=0)):
        for setting, most in counts.items():
            seed = FIRST_SEED + number
            if number < most and (*setting, seed) not in done:
                line = one(setting, seed)
                with STORE.open("a", encoding="utf-8", newline="") as file:
                    csv.DictWriter(file, FIELDS, lineterminator="\n").writerow(line)


# ---- the page

HEAD = """# Proportional hazards: the test of the target

Made by `python benchmarks/hazard_target_tests.py`, which describes the rows; delta = 1e-6. `result.target_test()` of
`PHReg` compares the coefficients of a fit with the score equation of its round, which follows records to an earlier stop
and gives smaller weights to records far out (`privinf/glm/hazards/target_test.py`). A fit warns at level {level:g}. Weak
fits, and fits in whose round noise hides a direction, have no test and count as not rejected.

## Where the model holds

The share of fits in which the test rejects, in laws with proportional hazards and linear effects. The p-value allows for the
second order of the scores between the round and the fit. The column *without* has the test without this allowance: in
laws with strong effects of columns with long tails it rejects a true model. The last two laws were tried once, when test and
level were fixed.

| law | rows | epsilon | fits with a test | at 0.01 | at 0.05 | without, at 0.05 | largest noncentrality, median |
|---|---|---|---|---|---|---|---|
"""
CURVES = """
## Choosing the level

Of the [settings of tables and laws](hazard_tables.md) with intervals, the mean share of fits in which the test rejects: in
harmless settings, in those that miss, and in the four that miss while fewer than nine of ten fits warn. *Added* is the share
of fits that the test alone warns of, in addition to the warnings of events after the stop, long tails and steep hazards. Half
the settings are every second table or law by name.

| level | half | harmless | added | missing | added | of the silent settings |
|---|---|---|---|---|---|---|
"""
FOUND = """
The level was chosen on the first half. From 0.01 to 0.05 the test finds more of *Rotterdam, log nodes*, and adds hardly any
false alarm; from 0.05 to 0.1 it adds more false alarms than it finds. The second half has the same result at 0.05. Most of the
false alarms in the first half are those of one setting, *Rotterdam, log nodes* at epsilon 4.

## With the other warnings

The mean share of fits that warn that the target may be another one, without the test and with it.

| settings | number | without the test | with it |
|---|---|---|---|
{both}

## The settings that miss in silence

| table | rows | epsilon | fits | with a test | at 0.01 | at 0.05 | warned without the test | warned with it |
|---|---|---|---|---|---|---|---|---|
"""
TAIL = """
*Rotterdam, log nodes* at epsilon 4 is harmless: its intervals hold because they allow for what weights leave out, but its two
score equations have different solutions. In *nafld1* at epsilon 4, the weights move both equations alike, and the test finds
nothing. In *pbc* most fits are weak and have no test.
"""


def with_test(fits: pd.DataFrame) -> pd.DataFrame:
    """Return the fits that have a test."""
    return fits[fits["pvalue"].notna()]


def law_line(fits: pd.DataFrame, name: str, n: int | str, epsilon: float) -> str:
    """Return the row of a law, or of several."""
    size = n if isinstance(n, str) else f"{n:,}"
    tested = with_test(fits)
    without = chi2.sf(tested["statistic"], tested["df"])
    shares = " | ".join(
        f"{np.mean(values < level):.1%}"
        for values, level in ((tested["pvalue"], 0.01), (tested["pvalue"], 0.05), (without, 0.05))
    )
    return f"| {name} | {size} | {epsilon:g} | {len(tested)} | {shares} | {tested['noncentrality'].median():.2g} |"


def setting_rows(stored: pd.DataFrame) -> pd.DataFrame:
    """Return every setting with its fits' warnings and p-values; missing or harmless by `hazard_tables`."""
    tables = pd.read_csv(hazard_tables.STORE)
    names = sorted({task for task, _, _ in SETTINGS})
    rows = []
    for setting in SETTINGS:
        usable = fits_of(tables, setting)[1]
        here = fits_of(stored, setting)[1]
        if len(usable) < hazard_tables.LEAST_FITS or here.empty:
            continue
        covered = 1.0 - numbers(usable["missed"]).mean(axis=0)
        rows.append(
            {
                "setting": setting,
                "half": names.index(setting[0]) % 2,
                "is_harmless": bool(covered.min() >= binomial_limits(0.95, len(usable))[0]),
                "fits": here,
                "warned": warned(here, LATER, FAR_COLUMN, FAR_OUT).any(axis=1),
                "pvalue": here["pvalue"].fillna(1.0).to_numpy(),
            }
        )
    return pd.DataFrame(rows)


def curve_lines(rows: pd.DataFrame) -> list[str]:
    """Return the rows of the levels, half by half."""
    lines = []
    for level in LEVELS:
        for half in (0, 1):
            cells = []
            for is_harmless in (True, False):
                part = rows[(rows["half"] == half) & (rows["is_harmless"] == is_harmless)]
                rejected = [(p < level).mean() for p in part["pvalue"]]
                pairs = zip(part["pvalue"], part["warned"], strict=True)
                added = [((p < level) & ~is_warned).mean() for p, is_warned in pairs]
                cells += [f"{np.mean(rejected):.1%} of {len(part)}", f"{np.mean(added):.1%}"]
            silent = rows[rows["setting"].isin(MISSING) & (rows["half"] == half)]
            names = [
                f"{setting[0]} {(p < level).mean():.0%}"
                for setting, p in zip(silent["setting"], silent["pvalue"], strict=True)
            ]
            mark = " (used)" if level == MOVED_LEVEL else ""
            lines.append(f"| {level:g}{mark} | {half + 1} | {' | '.join(cells)} | {'; '.join(names)} |")
    return lines


def warning_lines(rows: pd.DataFrame) -> list[str]:
    """Return the rows of shares of fits that warn, without the test and with it."""
    lines = []
    other = rows["setting"] != SILENT[-1]
    groups = {
        "harmless": rows[rows["is_harmless"]],
        "harmless, without Rotterdam, log nodes at epsilon 4": rows[rows["is_harmless"] & other],
        "missing": rows[~rows["is_harmless"]],
    }
    for name, part in groups.items():
        without = np.mean([share.mean() for share in part["warned"]])
        pairs = zip(part["warned"], part["pvalue"], strict=True)
        both = np.mean([(is_warned | (p < MOVED_LEVEL)).mean() for is_warned, p in pairs])
        lines.append(f"| {name} | {len(part)} | {without:.1%} | {both:.1%} |")
    return lines


def silent_lines(rows: pd.DataFrame) -> list[str]:
    """Return the rows of settings that hardly warn."""
    lines = []
    for setting in SILENT:
        for row in rows[rows["setting"] == setting].itertuples():
            task, n, epsilon = setting
            p = row.pvalue
            shares = [(p < 0.01), (p < 0.05), row.warned, row.warned | (p < MOVED_LEVEL)]
            cells = " | ".join(f"{share.mean():.0%}" for share in shares)
            tested = len(with_test(row.fits))
            lines.append(f"| {task} | {n:,} | {epsilon:g} | {len(p)} | {tested} | {cells} |")
    return lines


def write_page() -> None:
    """Write the page from the stored fits."""
    stored = pd.read_csv(STORE)
    of_page = stored[stored["task"].isin(hazard_tables.LAWS)]
    laws = [law_line(of_page, "laws of the page of tables", "5,000 or 20,000", 1.0)]
    for setting in (*LAWS_OF_TEST, *NEW_LAWS):
        fits = fits_of(stored, setting)[1]
        if len(with_test(fits)):
            laws.append(law_line(fits, *setting))
    rows = setting_rows(stored)
    sections = [
        HEAD.format(level=MOVED_LEVEL) + "\n".join(laws) + "\n",
        CURVES + "\n".join(curve_lines(rows)) + "\n",
        FOUND.format(both="\n".join(warning_lines(rows))) + "\n".join(silent_lines(rows)) + "\n",
        TAIL,
    ]
    PAGE.write_text("".join(sections), encoding="utf-8")


if __name__ == "__main__":
    run(int(sys.argv[1]) if len(sys.argv) > 1 else FITS)
    write_page()
