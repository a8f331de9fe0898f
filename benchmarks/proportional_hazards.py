"""Coverage of proportional-hazards fits: ``python benchmarks/proportional_hazards.py [FITS]``.

Writes benchmarks/results/proportional_hazards.md, of 500 fits a row by default. The fits are those of `pi.PHReg`,
with sums in doubles and seeded noise (`studies.hazards.simulated`). The target is Cox's regression in the population. In simulated tables its
coefficients are those of the law. Tables of the package scikit-survival are resampled as populations, where that
package is installed, and the target is Cox's regression in the table. Columns are cut to public bounds and scaled to
[-1, 1].

*mixed*: a column of 21% ones, and normal ones of sd 0.35 with correlation 0.3, cut to [-1, 1]; the hazard is
exponential unless the row says otherwise, and censoring is uniform. *strong*: predictors of sd 1.2. *all fail*: 83%
events. *few events*: 2%.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from scipy.io import arff

import privinf as pi
from privinf.accounting.calibration import calibrate_mu
from privinf.glm.hazards.path import MOST_NOISE, MOST_NOISE_MODEL
from privinf.typing import Floats
from studies.hazards.cox import cox
from studies.hazards.records import Records
from studies.hazards.simulated import SimulatedFit, simulated_fit
from studies.simulation import binomial_limits

PAGE = Path(__file__).parent / "results" / "proportional_hazards.md"
FITS = 500  # a row, by default
MODEL_FITS = 100  # of `pi.PHReg` itself
FOLLOWED_FITS = 60  # a row of follow-up by the model
DELTA = 1e-6
NORMAL = 1.959963984540054
SLOPES = np.array([0.45, 1.2, -0.9, 0.75, -0.6, 0.45])


@dataclass(frozen=True, kw_only=True)
class Law:
    """A simulated population: slopes, Weibull shape, scale of the hazard, end of the grid."""

    columns: int = 3
    slopes: float = 1.0
    shape: float = 1.0
    scale: float = 0.62

    def sample(self, n: int, rng: np.random.Generator) -> tuple[Records, Floats]:
        """Return records and the true slopes."""
        d = self.columns
        correlation = np.full((d - 1, d - 1), 0.3) + 0.7 * np.eye(d - 1)
        normal = rng.standard_normal((n, d - 1)) @ np.linalg.cholesky(correlation).T
        x = np.column_stack([2.0 * (rng.random(n) < 0.21) - 1.0, np.clip(0.35 * normal, -1.0, 1.0)])
        beta = self.slopes * SLOPES[:d]
        failure = (rng.exponential(size=n) / (self.scale * np.exp(x @ beta))) ** (1.0 / self.shape)
        end = np.minimum(rng.uniform(0.3, 1.6, n), 1.0)
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


MIXED = Law()
# (task, population, rows, epsilons)
ROWS: list[tuple[str, Callable[[], Law | Table | None], int, tuple[float, ...]]] = [
    ("mixed, d = 3", lambda: MIXED, 5_000, (1.0, 2.0, 4.0)),
    ("mixed, d = 6", lambda: Law(columns=6), 5_000, (1.0, 4.0)),
    ("mixed, d = 3", lambda: MIXED, 20_000, (1.0, 4.0)),
    ("mixed, d = 3", lambda: MIXED, 100_000, (1.0, 4.0)),
    ("mixed, d = 6", lambda: Law(columns=6), 20_000, (1.0,)),
    ("Weibull 2.5", lambda: Law(shape=2.5), 20_000, (1.0,)),
    ("Weibull 0.5", lambda: Law(shape=0.5), 20_000, (1.0,)),
    ("all fail", lambda: Law(scale=4.0), 20_000, (1.0,)),
    ("strong", lambda: Law(slopes=2.0), 20_000, (1.0,)),
    ("null", lambda: Law(slopes=0.0), 20_000, (1.0,)),
    ("few events", lambda: Law(scale=0.025), 20_000, (1.0, 4.0)),
    ("flchain, log of light chains", lambda: table("flchain", logs=True), 7_874, (1.0, 4.0)),
    ("flchain, linear", lambda: table("flchain"), 7_874, (1.0, 4.0)),
    ("ACTG 320", lambda: table("actg320"), 20_000, (1.0, 4.0)),
    ("GBSG2, linear nodes", lambda: table("GBSG2"), 20_000, (1.0, 4.0)),
]
GRID = np.linspace(0.0, 1.0, 17)[1:]
HEAD = """# Proportional hazards: coverage of `PHReg`

Made by `python benchmarks/proportional_hazards.py {fits}`, which describes the laws; {fits} fits a row, delta = 1e-6,
16 intervals. The fits are those of `pi.PHReg`, with sums in doubles and seeded noise; two rows use the model itself.
Coverage of 95% intervals is the mean over slopes, with the worst in brackets; that of one slope keeps {low:.3f} to
{high:.3f} in 99% of cases. Width is the median over that of Cox's regression without noise, robust standard errors.
*Weak* fits use a posterior. *Not converged* fits had a last step that was too long; they count here, but the model
gives no intervals then. *Later* is the mean share of events after the stop, as the fits estimate it.

| task | rows | events | epsilon | coverage | width | weak | not converged | stops | later |
|---|---|---|---|---|---|---|---|---|---|
"""


def one(
    population: Law | Table, n: int, mu: float, seed: int, most_noise: float = MOST_NOISE
) -> tuple[SimulatedFit, Floats, Floats, float]:
    """Return a fit, whether its intervals cover, their widths over Cox's, and the share of events."""
    rng = np.random.default_rng(seed)
    records, beta = population.sample(n, rng)
    fit = simulated_fit(records, GRID, mu, rng, most_noise)
    low, high = fit.intervals()
    width = (high - low) / (2.0 * NORMAL * cox(records)[1])
    return fit, (low <= beta) & (beta <= high), width, float(records.event.mean())


def row(
    task: str, population: Law | Table, n: int, epsilon: float, fits: int, most_noise: float = MOST_NOISE
) -> str:
    """Return one row of the page."""
    mu = calibrate_mu(epsilon=epsilon, delta=DELTA)
    results = [one(population, n, mu, seed, most_noise) for seed in range(fits)]
    covered = np.mean([result[1] for result in results], axis=0)
    width = float(np.median([result[2] for result in results]))
    weak = np.mean([result[0].draws.weak for result in results])
    astray = np.mean([not result[0].draws.converged for result in results])
    stops = [result[0].fit.stop for result in results]
    later = np.mean([result[0].fit.later for result in results])
    events = np.mean([result[3] for result in results])
    return (
        f"| {task} | {n:,} | {events:.0%} | {epsilon:g} | {covered.mean():.3f} ({covered.min():.3f}) | {width:.2f} "
        f"| {weak:.0%} | {astray:.0%} | {min(stops):g} to {max(stops):g} | {later:.1%} |"
    )


def by_model(n: int, epsilon: float, fits: int) -> str:
    """Return a row of fits of `pi.PHReg` itself, on its default grid, of mixed tables."""
    results = []
    for seed in range(fits):
        records, beta = MIXED.sample(n, np.random.default_rng(seed))
        model = pi.PHReg(records.time, records.x, status=records.event, bounds=[(-1, 1)] * 3, horizon=1.0)
        fit = model.fit(epsilon=epsilon, delta=DELTA, rng=seed, progress=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            low, high = fit.conf_int().to_numpy().T
        width = (high - low) / (2.0 * NORMAL * cox(records)[1])
        results.append(((low <= beta) & (beta <= high), width, fit, records.event.mean()))
    covered = np.mean([result[0] for result in results], axis=0)
    weak = np.mean([result[2].cov_type == "posterior" for result in results])
    stops = [result[2].follow_up for result in results]
    return (
        f"| mixed, d = 3: {fits} fits of `pi.PHReg`, 64 intervals | {n:,} "
        f"| {np.mean([result[3] for result in results]):.0%} | {epsilon:g} "
        f"| {covered.mean():.3f} ({covered.min():.3f}) | {np.median([result[1] for result in results]):.2f} "
        f"| {weak:.0%} | 0% | {min(stops):g} to {max(stops):g} "
        f"| {np.mean([result[2].events_after_stop for result in results]):.1%} |"
    )


def main(fits: int) -> None:
    """Write the page."""
    low, high = binomial_limits(0.95, fits)
    lines = []
    for task, make, n, epsilons in ROWS:
        if (population := make()) is None:
            print(f"{task}: scikit-survival is not installed")
            continue
        for epsilon in epsilons:
            lines.append(row(task, population, n, epsilon, fits))
            print(lines[-1], flush=True)
    for epsilon in (1.0, 4.0):
        lines.append(by_model(5_000, epsilon, MODEL_FITS))
        print(lines[-1], flush=True)
    for task, make, n, _ in ROWS:
        if task in ("all fail", "flchain, log of light chains") and (population := make()) is not None:
            title = f'{task}: {FOLLOWED_FITS} fits with `follow_up="model"`'
            lines.append(row(title, population, n, 1.0, FOLLOWED_FITS, MOST_NOISE_MODEL))
            print(lines[-1], flush=True)
    text = HEAD.format(fits=fits, low=low, high=high) + "\n".join(lines) + "\n"
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else FITS)
