"""Coverage and widths of proportional-hazards fits.

    python benchmarks/proportional_hazards.py [FITS] [--only TEXT]    (rows that are not stored yet, then the page)
    python benchmarks/proportional_hazards.py --report                (the page from the stored rows)
    python benchmarks/proportional_hazards.py [FITS] --fresh          (every row again)

Rows have 500 fits by default. They are stored in benchmarks/results/proportional_hazards.csv as they end, and a row
with at least as many fits is not made again. The page is benchmarks/results/proportional_hazards.md. The fits are those
of `pi.PHReg`, with sums in doubles and seeded noise (`studies.hazards.simulated`). The target is Cox's regression in
the population. In simulated tables its coefficients are those of the law. Tables of the package scikit-survival are
resampled as populations, where that package is installed, and the target is Cox's regression in the table. Columns are
cut to public bounds and scaled to [-1, 1].

*mixed*: a column of 21% ones, and normal ones of sd 0.35 with correlation 0.3, cut to [-1, 1]; the hazard is
exponential unless the row says otherwise, and censoring is uniform. *strong*: predictors of sd 1.2. *all fail*: 86%
events. *few events*: 1.8%; *fewer events*: 1.5%. *early censoring*: uniform in the first 60% of the grid, 10% events.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import csv
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.io import arff

import privinf as pi
from privinf.accounting.calibration import calibrate_mu
from privinf.errors import NotAvailableError
from privinf.glm.hazards.path import MOST_NOISE, MOST_NOISE_MODEL
from privinf.typing import Floats
from studies.hazards.cox import cox
from studies.hazards.records import Records
from studies.hazards.simulated import simulated_fit
from studies.simulation import binomial_limits

PAGE = Path(__file__).parent / "results" / "proportional_hazards.md"
STORE = PAGE.with_suffix(".csv")
FITS = 500  # a row, by default
DELTA = 1e-6
INTERVALS = 16
WITHIN = 0.1  # ratio of widths to the prototype's, less 1, that is not in bold
NORMAL = 1.959963984540054
SLOPES = np.array([0.45, 1.2, -0.9, 0.75, -0.6, 0.45])


@dataclass(frozen=True, kw_only=True)
class Law:
    """A simulated population: slopes, Weibull shape, scale of the hazard, times of censoring."""

    columns: int = 3
    slopes: float = 1.0
    shape: float = 1.0
    scale: float = 0.62
    censoring: tuple[float, float] = (0.3, 1.6)

    def sample(self, n: int, rng: np.random.Generator) -> tuple[Records, Floats]:
        """Return records and the true slopes."""
        d = self.columns
        correlation = np.full((d - 1, d - 1), 0.3) + 0.7 * np.eye(d - 1)
        normal = rng.standard_normal((n, d - 1)) @ np.linalg.cholesky(correlation).T
        x = np.column_stack([2.0 * (rng.random(n) < 0.21) - 1.0, np.clip(0.35 * normal, -1.0, 1.0)])
        beta = self.slopes * SLOPES[:d]
        failure = (rng.exponential(size=n) / (self.scale * np.exp(x @ beta))) ** (1.0 / self.shape)
        end = np.minimum(rng.uniform(*self.censoring, n), 1.0)
        return Records(x=x, time=np.minimum(failure, end), event=failure <= end), beta


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table as a population."""

    records: Records
    beta: Floats

    @property
    def columns(self) -> int:
        """Number of columns."""
        return len(self.beta)

    def sample(self, n: int, rng: np.random.Generator) -> tuple[Records, Floats]:
        """Return resampled records and the slopes of the table."""
        rows = rng.integers(0, len(self.records), n)
        return Records(
            x=self.records.x[rows], time=self.records.time[rows], event=self.records.event[rows]
        ), self.beta


def scaled(values: Floats, low: float, high: float) -> Floats:
    """Return values cut to bounds and scaled to [-1, 1]."""
    return np.asarray(2.0 * (np.clip(values, low, high) - low) / (high - low) - 1.0)


def table(name: str, *, logs: bool = False) -> Table | None:
    """Return a table of scikit-survival, its follow-up scaled to [0, 1]; None where that is not installed.

    `logs` has the logarithm of the light chains in flchain.
    """
    if (package := find_spec("sksurv")) is None or not package.submodule_search_locations:
        return None
    folder = Path(package.submodule_search_locations[0]) / "datasets" / "data"
    rows = arff.loadarff(folder / f"{name}.arff")[0]
    if name == "flchain":
        chains = rows["kappa"] + rows["lambda"]
        x = [scaled(rows["age"], 50.0, 100.0), scaled(rows["sex"] == b"M", 0.0, 1.0)]
        x += [scaled(np.log(chains), np.log(0.5), np.log(20.0)) if logs else scaled(chains, 0.0, 20.0)]
        time, event, end = rows["futime"], rows["death"] == b"dead", 5000.0
    elif name == "GBSG2":
        x = [scaled(rows["age"], 20.0, 80.0), scaled(rows["horTh"] == b"yes", 0.0, 1.0)]
        x += [scaled(rows["pnodes"], 0.0, 40.0), scaled(rows["tsize"], 0.0, 100.0)]
        time, event, end = rows["time"], rows["cens"] == b"1", 2500.0
    else:
        x = [
            scaled(rows["tx"] == b"1", 0.0, 1.0),
            scaled(rows["cd4"], 0.0, 300.0),
            scaled(rows["age"], 15.0, 75.0),
        ]
        time, event, end = rows["time"], rows["censor"] == b"1", 365.0
    time = time / end
    records = Records(x=np.column_stack(x), time=np.minimum(time, 1.0), event=event & (time <= 1.0))
    return Table(records=records, beta=cox(records)[0])


class Task(NamedTuple):
    """Rows of the page: a population, numbers of records and epsilons."""

    name: str
    make: Callable[[], Law | Table | None]
    rows: int
    epsilons: tuple[float, ...]
    intervals: int = INTERVALS


def six(**options: float) -> Callable[[], Law]:
    """Return a law of six columns."""
    return lambda: Law(columns=6, **options)


TASKS = (
    Task("mixed, d = 3", Law, 5_000, (1.0, 2.0, 4.0)),
    Task("mixed, d = 6", six(), 5_000, (1.0, 2.0, 4.0)),
    Task("mixed, d = 3", Law, 20_000, (1.0, 2.0, 4.0)),
    Task("mixed, d = 6", six(), 20_000, (1.0, 2.0, 4.0)),
    Task("mixed, d = 3", Law, 100_000, (1.0, 4.0)),
    Task("mixed, d = 6", six(), 100_000, (1.0,)),
    Task("Weibull 2.5", lambda: Law(shape=2.5), 20_000, (1.0,)),
    Task("Weibull 2.5, more events", lambda: Law(shape=2.5, scale=2.4), 20_000, (1.0,)),
    Task("strong, d = 6", six(slopes=2.0), 5_000, (2.0,)),
    Task("strong, d = 6", six(slopes=2.0), 20_000, (1.0,)),
    Task("Weibull 0.5", lambda: Law(shape=0.5), 20_000, (1.0,)),
    Task("Weibull 0.5, 64 intervals", lambda: Law(shape=0.5), 20_000, (1.0,), intervals=64),
    Task("all fail", lambda: Law(scale=4.0), 20_000, (1.0,)),
    Task("early censoring", lambda: Law(scale=0.365, censoring=(0.05, 0.6)), 20_000, (1.0,)),
    Task("strong", lambda: Law(slopes=2.0), 20_000, (1.0,)),
    Task("strong", lambda: Law(slopes=2.0), 100_000, (1.0,)),
    Task("null", lambda: Law(slopes=0.0), 20_000, (1.0,)),
    Task("few events", lambda: Law(scale=0.025), 20_000, (1.0, 4.0)),
    Task("fewer events", lambda: Law(scale=0.0207), 20_000, (1.0, 4.0)),
    Task("fewer events", lambda: Law(scale=0.0207), 100_000, (1.0,)),
    Task("flchain, log of light chains", lambda: table("flchain", logs=True), 7_874, (1.0, 4.0)),
    Task("flchain, linear", lambda: table("flchain"), 7_874, (1.0, 4.0)),
    Task("ACTG 320", lambda: table("actg320"), 20_000, (1.0, 4.0)),
    Task("GBSG2, linear nodes", lambda: table("GBSG2"), 20_000, (1.0, 4.0)),
)
FOLLOWED = ("all fail", "flchain, log of light chains")  # tasks with follow-up by the model too
# What is stored of a row.
FIELDS = (
    "task",
    "rows",
    "epsilon",
    "fits",
    "events",
    "coverage",
    "worst",
    "width",
    "weak",
    "not converged",
    "first stop",
    "last stop",
    "later",
)


class Prototype(NamedTuple):
    """A cell of the prototype of the derivation: coverage, mean over slopes and worst, and width."""

    coverage: float
    worst: float
    width: float


# What the derivation's prototype of these fits measured in 200 draws, and in 60 of 100,000 records.
PROTOTYPES = {
    ("mixed, d = 3", 5_000, 1.0): Prototype(0.957, 0.950, 1.59),
    ("mixed, d = 3", 5_000, 2.0): Prototype(0.958, 0.940, 1.27),
    ("mixed, d = 3", 5_000, 4.0): Prototype(0.958, 0.945, 1.11),
    ("mixed, d = 6", 5_000, 1.0): Prototype(0.970, 0.955, 1.87),
    ("mixed, d = 6", 5_000, 2.0): Prototype(0.976, 0.965, 1.49),
    ("mixed, d = 6", 5_000, 4.0): Prototype(0.964, 0.945, 1.18),
    ("mixed, d = 3", 20_000, 1.0): Prototype(0.960, 0.945, 1.24),
    ("mixed, d = 3", 20_000, 2.0): Prototype(0.960, 0.950, 1.09),
    ("mixed, d = 3", 20_000, 4.0): Prototype(0.953, 0.930, 1.05),
    ("mixed, d = 6", 20_000, 1.0): Prototype(0.967, 0.950, 1.47),
    ("mixed, d = 6", 20_000, 2.0): Prototype(0.963, 0.935, 1.18),
    ("mixed, d = 6", 20_000, 4.0): Prototype(0.951, 0.915, 1.09),
    ("mixed, d = 3", 100_000, 1.0): Prototype(0.961, 0.950, 1.11),
    ("mixed, d = 6", 100_000, 1.0): Prototype(0.961, 0.933, 1.22),
    ("Weibull 2.5", 20_000, 1.0): Prototype(0.965, 0.960, 1.59),
    ("Weibull 2.5, more events", 20_000, 1.0): Prototype(0.965, 0.960, 1.59),
    ("strong, d = 6", 5_000, 2.0): Prototype(0.976, 0.965, 1.49),
    ("strong, d = 6", 20_000, 1.0): Prototype(0.967, 0.950, 1.47),
    ("Weibull 0.5", 20_000, 1.0): Prototype(0.935, 0.910, 1.21),
    ("Weibull 0.5, 64 intervals", 20_000, 1.0): Prototype(0.953, 0.930, 1.19),
    ("all fail", 20_000, 1.0): Prototype(0.958, 0.940, 1.77),
    ("early censoring", 20_000, 1.0): Prototype(0.960, 0.950, 1.40),
    ("strong", 20_000, 1.0): Prototype(0.960, 0.950, 1.46),
    ("strong", 100_000, 1.0): Prototype(0.961, 0.950, 1.64),
    ("null", 20_000, 1.0): Prototype(0.950, 0.940, 1.08),
    ("fewer events", 20_000, 1.0): Prototype(0.913, 0.870, 1.85),
    ("fewer events", 20_000, 4.0): Prototype(0.940, 0.935, 1.12),
    ("fewer events", 100_000, 1.0): Prototype(0.972, 0.967, 1.32),
}
HEAD = """# Proportional hazards: coverage of `PHReg`

Made by `python benchmarks/proportional_hazards.py 500`, which describes the laws; delta = 1e-6, 16 intervals unless the
row says otherwise. The fits are those of `pi.PHReg`, with sums in doubles and seeded noise; two rows use the model itself.
Coverage of 95% intervals is the mean over slopes, with the worst in brackets; that of one slope keeps {low:.3f} to
{high:.3f} in 99% of cases where a row has {fits} fits. Width is the median over that of Cox's regression without noise,
robust standard errors. *Weak* fits use a posterior. *Not converged* fits had a last step that was too long. The model
gives no intervals then: rows of the model leave these fits out, and the others count them. *Later* is the mean share of
events after the stop, as the fits estimate it.

| task | rows | events | epsilon | fits | coverage | width | weak | not converged | stops | later |
|---|---|---|---|---|---|---|---|---|---|---|
"""
COMPARED = """
## Against the prototype of the derivation

The rules of `PHReg` were derived with a prototype. Its coverage and widths are those of 200 draws, and of 60 draws of
100,000 records. The derivation states no slopes and no censoring of its simulated distributions, so that those of this
page are similar and not equal. Widths that differ by more than 10% are in bold; all of these are narrower, and the
differences are those of the distributions:

- *Weibull 2.5*: 28% of the records have an event here. With 62% (*more events*) the stop is later and scores are longer,
  so that the width is close to the prototype's.
- *mixed, d = 6*: with slopes twice as large (*strong*) the widths are close to the prototype's.

| task | rows | epsilon | coverage, prototype | coverage | width, prototype | width | ratio |
|---|---|---|---|---|---|---|---|
"""


class Row(NamedTuple):
    """A row of the page; `by_model` has fits of `pi.PHReg` itself, on its default grid."""

    title: str
    task: Task
    epsilon: float
    fits: int
    most_noise: float = MOST_NOISE
    by_model: bool = False

    @property
    def key(self) -> tuple[str, int, float]:
        """What the row is stored under."""
        return self.title, self.task.rows, self.epsilon


class Fit(NamedTuple):
    """What is measured of a fit: which intervals cover, their widths over Cox's, and its notes."""

    covered: Floats
    width: Floats
    events: float
    weak: bool
    converged: bool
    stop: float
    later: float


def planned(fits: int) -> list[Row]:
    """Return the rows of the page."""
    rows = [Row(task.name, task, epsilon, fits) for task in TASKS for epsilon in task.epsilons]
    title = "mixed, d = 3: `pi.PHReg`, 64 intervals"
    rows += [Row(title, TASKS[0], epsilon, fits, by_model=True) for epsilon in (1.0, 4.0)]
    for task in TASKS:
        if task.name in FOLLOWED:
            title = f'{task.name}: `follow_up="model"`'
            rows.append(Row(title, task, 1.0, fits, MOST_NOISE_MODEL))
    return rows


def one(row: Row, population: Law | Table, mu: float, seed: int) -> Fit:
    """Return what is measured of a simulated fit."""
    rng = np.random.default_rng(seed)
    records, beta = population.sample(row.task.rows, rng)
    grid = np.linspace(0.0, 1.0, row.task.intervals + 1)[1:]
    fit = simulated_fit(records, grid, mu, rng, row.most_noise)
    low, high = fit.intervals()
    return Fit(
        covered=(low <= beta) & (beta <= high),
        width=(high - low) / (2.0 * NORMAL * cox(records)[1]),
        events=float(records.event.mean()),
        weak=fit.draws.weak,
        converged=fit.draws.converged,
        stop=fit.fit.stop,
        later=fit.fit.later,
    )


def one_by_model(row: Row, population: Law | Table, mu: float, seed: int) -> Fit:
    """Return what is measured of a fit of `pi.PHReg`."""
    records, beta = population.sample(row.task.rows, np.random.default_rng(seed))
    bounds = [(-1, 1)] * population.columns
    model = pi.PHReg(records.time, records.x, status=records.event, bounds=bounds, horizon=1.0)
    fit = model.fit(mu=mu, delta=DELTA, rng=seed, progress=False)
    converged = True
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            low, high = fit.conf_int().to_numpy().T
        except NotAvailableError:
            converged, low, high = False, *np.full((2, population.columns), np.nan)
    return Fit(
        covered=np.where(np.isnan(low), np.nan, (low <= beta) & (beta <= high)),
        width=(high - low) / (2.0 * NORMAL * cox(records)[1]),
        events=float(records.event.mean()),
        weak=fit.cov_type == "posterior",
        converged=converged,
        stop=fit.follow_up,
        later=fit.events_after_stop,
    )


def measured(row: Row, population: Law | Table) -> dict[str, str | float]:
    """Return what is stored of a row."""
    mu = calibrate_mu(epsilon=row.epsilon, delta=DELTA)
    make = one_by_model if row.by_model else one
    fits = [make(row, population, mu, seed) for seed in range(row.fits)]
    covered = np.nanmean([fit.covered for fit in fits], axis=0)
    stops = [fit.stop for fit in fits]
    numbers = {
        "events": np.mean([fit.events for fit in fits]),
        "coverage": covered.mean(),
        "worst": covered.min(),
        "width": np.nanmedian([fit.width for fit in fits]),
        "weak": np.mean([fit.weak for fit in fits]),
        "not converged": np.mean([not fit.converged for fit in fits]),
        "first stop": min(stops),
        "last stop": max(stops),
        "later": np.mean([fit.later for fit in fits]),
    }
    rounded = {name: round(float(number), 5) for name, number in numbers.items()}
    title, rows, epsilon = row.key
    return {"task": title, "rows": rows, "epsilon": epsilon, "fits": row.fits} | rounded


def stored_rows() -> dict[tuple[str, int, float], dict[str, str]]:
    """Return the stored rows by title, records and epsilon; of a row that was made twice, the last."""
    if not STORE.exists():
        return {}
    with STORE.open(encoding="utf-8", newline="") as file:
        return {
            (line["task"], int(line["rows"]), float(line["epsilon"])): line for line in csv.DictReader(file)
        }


def run(fits: int, only: str) -> None:
    """Make and store the rows that are not stored yet with as many fits."""
    stored = stored_rows()
    if not stored:
        STORE.write_text(",".join(FIELDS) + "\n", encoding="utf-8")
    for row in planned(fits):
        if only not in row.title or (row.key in stored and int(stored[row.key]["fits"]) >= row.fits):
            continue
        if (population := row.task.make()) is None:
            print(f"{row.title}: scikit-survival is not installed")
            continue
        line = measured(row, population)
        with STORE.open("a", encoding="utf-8", newline="") as file:
            csv.DictWriter(file, FIELDS, lineterminator="\n").writerow(line)
        print(line, flush=True)


def compared(key: tuple[str, int, float], prototype: Prototype, measured: Prototype) -> str:
    """Return the row of a comparison with the prototype; ratios beyond `WITHIN` are in bold."""
    title, rows, epsilon = key
    ratio = measured.width / prototype.width
    shown = f"{ratio:.2f}" if abs(ratio - 1.0) <= WITHIN else f"**{ratio:.2f}**"
    cells = [f"{cell.coverage:.3f} ({cell.worst:.3f})" for cell in (prototype, measured)]
    return (
        f"| {title} | {rows:,} | {epsilon:g} | {cells[0]} | {cells[1]} | {prototype.width:.2f} "
        f"| {measured.width:.2f} | {shown} |"
    )


def line_of(line: dict[str, str]) -> str:
    """Return the row of the page of a stored row."""
    number = {name: float(line[name]) for name in FIELDS[1:]}
    return (
        f"| {line['task']} | {number['rows']:,.0f} | {number['events']:.0%} | {number['epsilon']:g} "
        f"| {number['fits']:.0f} | {number['coverage']:.3f} ({number['worst']:.3f}) | {number['width']:.2f} "
        f"| {number['weak']:.0%} | {number['not converged']:.0%} "
        f"| {number['first stop']:g} to {number['last stop']:g} | {number['later']:.1%} |"
    )


def write_page() -> None:
    """Write the page from the stored rows."""
    stored = stored_rows()
    low, high = binomial_limits(0.95, FITS)
    lines = [line_of(stored[row.key]) for row in planned(FITS) if row.key in stored]
    text = HEAD.format(fits=FITS, low=low, high=high) + "\n".join(lines) + "\n"
    comparisons = []
    for key, prototype in PROTOTYPES.items():
        if key in stored:
            numbers = [float(stored[key][name]) for name in ("coverage", "worst", "width")]
            comparisons.append(compared(key, prototype, Prototype(*numbers)))
    PAGE.write_text(text + COMPARED + "\n".join(comparisons) + "\n", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("fits", type=int, nargs="?", default=FITS)
    parser.add_argument("--only", default="", help="make only rows whose title has this text")
    parser.add_argument("--fresh", action="store_true", help="make every row again")
    parser.add_argument("--report", action="store_true", help="write the page from the stored rows")
    arguments = parser.parse_args()
    if arguments.fresh:
        STORE.unlink(missing_ok=True)
    if not arguments.report:
        run(arguments.fits, arguments.only)
    write_page()
