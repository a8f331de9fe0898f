"""DebiasedLasso(family="binomial") by Monte Carlo: three designs, three rates, two sizes, fit by fit.

    python benchmarks/lasso_logistic.py                       (100 fits a cell: about 40 minutes of one core)
    python benchmarks/lasso_logistic.py --cells "ar, " --fits 40
    python benchmarks/lasso_logistic.py --report              (-> benchmarks/results/lasso_logistic.md)

Fits are appended to benchmarks/results/lasso_logistic.csv as they come; what stands there is not run again. A
fit is seeded by its cell and number. "Width" is over the Logit of the columns that matter: signals, targets,
and what the targets load on.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import math
import time
import warnings
import zlib
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.optimize import brentq
from scipy.special import expit
from tables import RESULTS, write_table

import privinf as pi
from privinf.errors import PrivinfError
from studies.simulation import binomial_limits

FITS, NORMAL, PER_DRAW, BOUND = RESULTS / "lasso_logistic.csv", 1.959963984540054, 20, 4.5
SIGNS, CONFOUNDERS = np.array([1, -1, 1, -1, 1, 1, -1, 1]), 20


@dataclass(frozen=True)
class Cell:
    """A design ("ar", "blocks", "weak"), n, p, epsilon and the rate of the response."""

    design: str
    n: int
    p: int
    epsilon: float
    rate: float

    @property
    def name(self) -> str:
        return f"{self.design}, n = {self.n:,}, p = {self.p}, eps = {self.epsilon:g}, rate {self.rate:g}"

    @property
    def truth(self) -> np.ndarray:
        """Eight signals of .3, each in a block of its own; or one target, weak confounders, three of .3."""
        b = np.zeros(self.p)
        if self.design == "weak":
            b[0], b[1 : CONFOUNDERS + 1], b[[50, 100, 150]] = 0.2, 0.02, 0.3
            return b
        b[np.linspace(0, self.p - 1, 9)[:8].astype(int) + 3] = 0.3 * SIGNS
        return b

    @property
    def targets(self) -> list[int]:
        """Three signals, the null beside the second, and a null near the third."""
        signals = np.flatnonzero(self.truth)
        if self.design == "weak":
            return [0]
        return [int(j) for j in (signals[0], signals[3], signals[3] + 1, signals[6], signals[6] - 2)]

    @property
    def near(self) -> list[int]:
        """What belongs in the oracle beside signals and targets: what the targets load on."""
        if self.design == "weak":
            return []
        reach = {"ar": lambda t: (t - 1, t + 1), "blocks": lambda t: range(t // 10 * 10, t // 10 * 10 + 10)}
        return [j for t in self.targets for j in reach[self.design](t) if 0 <= j < self.p]

    def features(self, rng: np.random.Generator) -> np.ndarray:
        X = rng.standard_normal((self.n, self.p), dtype=np.float32)
        if self.design == "ar":
            for j in range(1, self.p):
                X[:, j] = 0.5 * X[:, j - 1] + math.sqrt(0.75) * X[:, j]
        elif self.design == "blocks":
            common = rng.standard_normal((self.n, -(-self.p // 10)), dtype=np.float32)
            X *= np.float32(math.sqrt(0.1))
            X += np.float32(math.sqrt(0.9)) * np.repeat(common, 10, axis=1)[:, : self.p]
        else:
            load = 0.7 / math.sqrt(CONFOUNDERS)
            X[:, 0] = load * X[:, 1 : CONFOUNDERS + 1].sum(axis=1) + math.sqrt(0.51) * X[:, 0]
        return X


CELLS = {
    cell.name: cell
    for rate in (0.5, 0.1, 0.03)
    for size in ((60_000, 800, 0.8), (40_000, 400, 1.0))
    for cell in (Cell(design, *size, rate) for design in ("ar", "blocks", "weak"))
}


def oracle_errors(y: np.ndarray, Z: np.ndarray) -> np.ndarray:
    """Return the standard errors of a Logit with a constant."""
    Z = np.column_stack([np.ones(len(y)), Z]).astype(float)
    theta = np.zeros(Z.shape[1])
    for _ in range(25):
        m = expit(Z @ theta)
        hessian = (Z * (m * (1.0 - m))[:, None]).T @ Z
        theta += np.linalg.solve(hessian, Z.T @ (y - m))
    return np.sqrt(np.diag(np.linalg.inv(hessian)))[1:]


def one_fit(cell: Cell, X: np.ndarray, level: float, rng: np.random.Generator) -> dict:
    """Draw a response, fit it, and return errors, standard errors and marks."""
    b, targets = cell.truth, cell.targets
    signals = np.flatnonzero(b)
    y = (rng.random(cell.n) < expit(level + X[:, signals] @ b[signals])).astype(float)
    matter = sorted({*signals.tolist(), *targets, *cell.near})
    clear = oracle_errors(y, X[:, matter])[[matter.index(t) for t in targets]]
    started, kept = time.process_time(), int((np.abs(b) > 0.1).sum())
    try:
        model = pi.DebiasedLasso(y, X, x_bound=BOUND, family="binomial")
        r = model.fit(epsilon=cell.epsilon, delta=0.5 / cell.n, sparsity=kept, targets=targets, rng=rng)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            r.conf_int()
    except PrivinfError:  # the fit or its intervals
        return {"state": "refused"}
    found = {*np.flatnonzero(r.sparse_params)} & {*np.flatnonzero(np.abs(b) > 0.1)}
    row = {"state": "marked" if told else "plain", "found": len(found) / kept}
    for place, target in enumerate(targets):
        row[f"z{place}"] = (r.params.iloc[place] - b[target]) / r.bse.iloc[place]
        row[f"width{place}"] = r.bse.iloc[place] / clear[place]
    return row | {"seconds": time.process_time() - started}


def run_cell(cell: Cell, fits: int) -> None:
    """Run what is not yet stored of a cell."""
    stored = pd.read_csv(FITS) if FITS.exists() else pd.DataFrame({"cell": []})
    have = int((stored["cell"] == cell.name).sum())
    seed, X, drawn, level = zlib.crc32(cell.name.encode()), None, -1, 0.0
    for number in range(have, fits):
        if X is None or number // PER_DRAW != drawn:
            drawn = number // PER_DRAW
            X = cell.features(np.random.default_rng([seed, 10**6 + drawn]))
            eta = X @ cell.truth.astype(np.float32)
            level = float(brentq(lambda at: expit(at + eta).mean() - cell.rate, -30.0, 30.0))  # noqa: B023
        row = {"cell": cell.name, "number": number} | one_fit(
            cell, X, level, np.random.default_rng([seed, number])
        )
        stored = pd.concat([stored, pd.DataFrame([row])])
        stored.to_csv(FITS, index=False, float_format="%.5g")
    print(cell.name, "done", flush=True)


def report() -> None:
    """Write the table."""
    stored, rows = pd.read_csv(FITS), []
    for name in CELLS:
        part = stored[stored["cell"] == name]
        if part.empty:
            continue
        plain = part[part["state"] == "plain"]
        z = plain.filter(regex=r"^z\d$").to_numpy()
        z = z[~np.isnan(z)]
        row = {"cell": name, "fits": len(part)}
        for state in ("marked", "refused"):
            row[state] = f"{(part['state'] == state).mean():.2f}"
        if len(z):
            low, high = binomial_limits(0.95, len(z))
            coverage = float((np.abs(z) <= NORMAL).mean())
            width = np.nanmean(plain.filter(regex=r"^width\d$").to_numpy())
            row |= {
                "coverage of unmarked": f"{coverage:.3f}",
                "99% limits": f"{low:.3f} to {high:.3f}",
                "in limits": bool(low <= coverage <= high),
                "sd of error / se": f"{z.std():.2f}",
                "width over oracle": f"{width:.2f}",
                "signals found": f"{plain['found'].mean():.2f}",
                "seconds": f"{plain['seconds'].mean():.1f}",
            }
        rows.append(row)
    table = pd.DataFrame(rows).fillna("")
    note = "Intervals of five targets (weak confounders: one) under one joint budget, delta = 1/(2n)."
    write_table(
        RESULTS / "lasso_logistic.md",
        "Debiased sparse logistic regression",
        "benchmarks/lasso_logistic.py",
        table,
        float(stored["seconds"].sum()),
        note,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cells", default="", help="cells whose names hold this text")
    parser.add_argument("--fits", type=int, default=100)
    parser.add_argument("--report", action="store_true", help="write the table of what is stored")
    asked = parser.parse_args()
    if not asked.report:
        for name, cell in CELLS.items():
            if asked.cells in name:
                run_cell(cell, asked.fits)
    report()


if __name__ == "__main__":
    main()
