"""Average marginal effects from the Hessian of a fit: how often they are available, and how often they cover.

    python benchmarks/margins.py --fits 100            (-> benchmarks/results/margins.md)

Truth: the average over 2,000,000 simulated records, times the coefficient.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import expit
from scipy.stats import binom

import privinf as pi
from privinf.errors import NotAvailableError
from privinf.glm.margins import Average

PAGE = Path(__file__).parent / "results" / "margins.md"
SLOPES = np.array([0.8, -0.5, 0.3, 0.6, -0.2])
CONSTANT = -0.5
TRUTH_ROWS = 2_000_000
HEAD = """# Average marginal effects from the Hessian

Made by `python benchmarks/margins.py --fits {fits}`. The constant's entry of the last released Hessian is the mean derivative, so
`get_margeff()` costs no budget. It is available if no interval is wider by more than 2% than with a known mean derivative.

- **Available.** Fits with averages among fits with intervals and without flags.
- **Coverage.** Share of 95% intervals, all slopes together, that contain the true average. The last column has the 99% binomial limits
  of a true 0.95, as if the intervals of a fit were independent.
- **Error.** Root mean square of the relative error of the mean derivative, at the estimate, in all fits.

| model | records | slopes | epsilon | design | available | coverage | error | 99% limits |
|---|---|---|---|---|---|---|---|---|
"""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One simulated setting."""

    family: str
    n: int
    d: int
    epsilon: float
    steep: float = 1.0
    loose: float = 1.0
    rare: bool = False

    @property
    def slopes(self) -> np.ndarray:
        return self.steep * SLOPES[: self.d]

    @property
    def design(self) -> str:
        texts = {
            f"slopes times {self.steep:g}": self.steep != 1.0,
            f"bounds {self.loose:g} times as wide": self.loose != 1.0,
            "one column is 1 in 10% of the records": self.rare,
        }
        return ", ".join(text for text, holds in texts.items() if holds) or "uniform"

    def rows(self, n: int, rng: np.random.Generator) -> np.ndarray:
        columns = rng.uniform(-1.0, 1.0, (n, self.d))
        if self.rare:
            columns[:, 0] = rng.uniform(size=n) < 0.1
            columns[:, 1] = 2.0 * rng.beta(1.0, 4.0, n) - 1.0
        return columns

    def derivatives(self, predictor: np.ndarray) -> np.ndarray:
        if self.family == "poisson":
            return np.exp(predictor)
        mean = expit(predictor)
        return mean * (1.0 - mean)

    def fit(self, columns: np.ndarray, rng: np.random.Generator, seed: int) -> pi.Results:
        predictor = CONSTANT + columns @ self.slopes
        X = pi.add_constant(pd.DataFrame(columns, columns=list("abcde")[: self.d]))
        bounds = [(-self.loose, self.loose)] * self.d
        if self.family == "poisson":
            model = pi.Poisson(
                rng.poisson(np.exp(predictor)).astype(float), X, bounds=bounds, y_bounds=(0, 20)
            )
        else:
            model = pi.Logit((rng.uniform(size=len(X)) < expit(predictor)).astype(float), X, bounds=bounds)
        return model.fit(epsilon=self.epsilon, delta=1e-6, rng=seed)


CELLS = (
    Cell(family="binomial", n=20_000, d=3, epsilon=1.0),
    Cell(family="binomial", n=5_000, d=3, epsilon=4.0),
    Cell(family="binomial", n=100_000, d=3, epsilon=1.0),
    Cell(family="binomial", n=20_000, d=3, epsilon=1.0, rare=True),
    Cell(family="binomial", n=20_000, d=3, epsilon=1.0, loose=5.0),
    Cell(family="binomial", n=20_000, d=5, epsilon=4.0, steep=2.0),
    Cell(family="binomial", n=20_000, d=5, epsilon=1.0, steep=2.0),
    Cell(family="poisson", n=20_000, d=3, epsilon=4.0),
    Cell(family="poisson", n=50_000, d=3, epsilon=4.0, rare=True),
    Cell(family="poisson", n=20_000, d=3, epsilon=1.0),
)


def row_of(cell: Cell, fits: int) -> str:
    """Return the table's row of a cell."""
    many = cell.rows(TRUTH_ROWS, np.random.default_rng(99))
    truth = cell.derivatives(CONSTANT + many @ cell.slopes).mean() * cell.slopes
    covered: list[np.ndarray] = []
    errors: list[float] = []
    for seed in range(fits):
        rng = np.random.default_rng([cell.n, cell.d, seed])
        columns = cell.rows(cell.n, rng)
        result = cell.fit(columns, rng, seed)
        if result.estimate.cov is None or len(result.weakly_identified):
            continue
        params = result.params.to_numpy()
        known = cell.derivatives(params[0] + columns @ params[1:]).mean()
        errors.append(Average.from_dict(result._settings["hessian_average"]).mean / known - 1.0)
        try:
            low, high = result.get_margeff().conf_int().T
        except NotAvailableError:
            continue
        covered.append((low <= truth) & (truth <= high))
    share = np.mean(covered) if covered else np.nan
    count = len(covered) * cell.d
    limits = " to ".join(f"{end / count:.3f}" for end in binom.interval(0.99, count, 0.95)) if count else ""
    facts = (
        {"binomial": "Logit", "poisson": "Poisson"}[cell.family],
        f"{cell.n:,}",
        cell.d,
        f"{cell.epsilon:g}",
        cell.design,
        f"{len(covered)} of {len(errors)}",
        f"{share:.3f}" if covered else "",
        f"{np.sqrt(np.mean(np.square(errors))):.4f}" if errors else "",
        limits,
    )
    return f"| {' | '.join(map(str, facts))} |\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fits", type=int, default=100)
    fits = parser.parse_args().fits
    warnings.simplefilter("ignore")
    lines = []
    for cell in CELLS:
        lines.append(row_of(cell, fits))
        print(lines[-1], end="", flush=True)
    PAGE.write_text(HEAD.format(fits=fits) + "".join(lines))


if __name__ == "__main__":
    main()
