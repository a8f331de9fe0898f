"""Coverage of all that one release of second moments answers: regressions, instruments, means, correlations.

Five columns are released once a replication, `privinf.Moments(schema, columns=[...])`, at two sizes and two
budgets; every analysis is made from that release, and each 95% interval compared with the population's number.
Normal columns, with bounds of four sds; then skewed and binary ones, in which the correlations' sampling law does
not hold; then instruments that are weak. Seeded; 99% binomial limits hold jointly over a table's cells.

``--replications 100`` makes fewer, ``--only TEXT`` the cells whose name holds it; the table goes to
benchmarks/results/one_release.md.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from tables import limits
from tqdm import tqdm

import privinf as pi

RESULTS = Path(__file__).parent / "results" / "one_release.md"
DELTA, NORMAL = 1e-6, 1.959963984540054
NAMES = ["z", "v", "x", "w", "y"]
MEANS = np.array([0.3, -0.2, 0.1, 0.4, 0.5])
SLOPE = 0.5  # of y on w
REACH = 4.0
SKEW = 0.6
HEADER = """Made by `python benchmarks/one_release.py`, {} releases a cell, delta = 1e-6: five columns z, v, x, w, y and a
constant are released once, and all analyses are made from that release. Coverage of 95% intervals; each entry is
the least over its quantities, then their mean; *not given* is the share of intervals that are [-1, 1] (correlations)
or flagged (others), which are left out. 99% binomial limits of one share, jointly over {} cells: {:.3f} to {:.3f}.

"""


@dataclass(frozen=True)
class Cell:
    """A population, a size and a budget."""

    n: int
    epsilon: float
    strength: float = 0.6
    law: str = "normal"
    only_iv: bool = False


CELLS = {
    "normal, n = 5,000, eps 1": Cell(5_000, 1.0),
    "normal, 5,000, eps 4": Cell(5_000, 4.0),
    "normal, 50,000, eps 1": Cell(50_000, 1.0),
    "normal, 50,000, eps 4": Cell(50_000, 4.0),
    "skewed and binary, 5,000, eps 4": Cell(5_000, 4.0, law="skewed"),
    "skewed and binary, 50,000, eps 4": Cell(50_000, 4.0, law="skewed"),
    "first stage .2, 5,000, eps 4": Cell(5_000, 4.0, 0.2, only_iv=True),
    "first stage .1, 5,000, eps 4": Cell(5_000, 4.0, 0.1, only_iv=True),
    "first stage .05, 5,000, eps 4": Cell(5_000, 4.0, 0.05, only_iv=True),
    "first stage .1, 50,000, eps 1": Cell(50_000, 1.0, 0.1, only_iv=True),
    "first stage .05, 50,000, eps 1": Cell(50_000, 1.0, 0.05, only_iv=True),
    "first stage .02, 50,000, eps 1": Cell(50_000, 1.0, 0.02, only_iv=True),
}


def mixing(strength: float) -> np.ndarray:
    """Return the loadings of (z, v, x, w, y) on independent standard columns (z, v, x, u, e, f)."""
    z, v, x, u, e, f = np.eye(6)
    right = 0.3 * z + np.sqrt(1 - 0.09) * x
    w = strength * z + 0.5 * strength * v + 0.3 * right + 0.7 * u + 0.4 * e
    y = SLOPE * w - 0.3 * right + 0.5 * u + 0.4 * f
    return np.array([z, v, right, w, y])


def draw(cell: Cell, rng: np.random.Generator, n: int | None = None) -> np.ndarray:
    """Return rows, shape (n, 5), inside the bounds."""
    loadings = mixing(cell.strength)
    rows = rng.standard_normal((n or cell.n, 6)) @ loadings.T
    if cell.law == "skewed":  # z binary, x and y lognormal
        rows[:, 0] = rows[:, 0] > 0.5
        rows[:, 2], rows[:, 4] = np.exp(SKEW * rows[:, 2]), np.exp(SKEW * rows[:, 4])
    sds = np.sqrt(np.einsum("ij,ij->i", loadings, loadings))
    return np.clip(rows, -REACH * sds, REACH * sds) + MEANS


def schema_of(cell: Cell) -> pi.Schema:
    """Return the public bounds: four sds of the normal law."""
    sds = np.sqrt(np.einsum("ij,ij->i", mixing(cell.strength), mixing(cell.strength)))
    ends = zip(NAMES, MEANS - REACH * sds, MEANS + REACH * sds, strict=True)
    return pi.Schema({name: (float(low), float(high)) for name, low, high in ends})


def truth_of(cell: Cell) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and covariance of the columns inside their bounds, from many rows where the law is not normal."""
    if cell.law == "normal":
        return MEANS, mixing(cell.strength) @ mixing(cell.strength).T
    rows = np.concatenate([draw(cell, np.random.default_rng([5, k]), 1_000_000) for k in range(8)])
    return rows.mean(axis=0), np.cov(rows.T)


def correlations(cov: np.ndarray, partial: bool) -> np.ndarray:
    """Return the correlations of all pairs, or the partial ones given all others."""
    matrix = -np.linalg.inv(cov) if partial else cov
    scale = np.sqrt(np.abs(np.diag(matrix)))
    return np.array([matrix[i, j] / (scale[i] * scale[j]) for i, j in combinations(range(len(cov)), 2)])


def inside(interval: pd.DataFrame, truth: np.ndarray) -> np.ndarray:
    ends = interval.to_numpy()
    return (ends[:, 0] <= truth) & (truth <= ends[:, 1])


def regression_truth(cov: np.ndarray, mean: np.ndarray, response: str, columns: list[str]) -> np.ndarray:
    at, own = [NAMES.index(name) for name in columns], NAMES.index(response)
    slopes = np.linalg.solve(cov[np.ix_(at, at)], cov[at, own])
    return np.append(mean[own] - slopes @ mean[at], slopes)


FITS = {"y": ["x", "w"], "z": ["v", "x", "w", "y"]}
INSTRUMENTS = {"iv, just identified": "y ~ x + [w ~ z]", "iv, two instruments": "y ~ x + [w ~ z + v]"}


def one(cell: Cell, truth: tuple[np.ndarray, np.ndarray], number: int) -> dict[str, tuple[Any, float]]:
    """Return what is covered by each analysis of one release, and the share that is not given."""
    rng = np.random.default_rng([29, number])
    rows = pd.DataFrame(draw(cell, rng), columns=NAMES)
    release = pi.Moments(schema_of(cell), columns=NAMES).release(rows, epsilon=cell.epsilon, delta=DELTA, rng=rng)
    mean, cov = truth
    found: dict[str, tuple[Any, float]] = {}
    if cell.law == "normal":
        for name, formula in INSTRUMENTS.items():
            fit = release.iv(formula)
            b = [mean[4] - SLOPE * mean[3] + 0.3 * mean[2], -0.3, SLOPE]
            weak = fit.identification.weak or fit.estimate.cov is None
            found[name] = (None if weak else np.abs(fit.params - b) <= NORMAL * fit.bse, float(weak))
            found[f"{name}, Anderson-Rubin"] = (np.array([fit.score_test([SLOPE]).pvalue > 0.05]), 0.0)
    if cell.only_iv:
        return found
    found["means"] = (inside(release.means().conf_int(), mean), 0.0)
    for partial, table in ((False, release.corr()), (True, release.partial_corr())):
        covered, weak = np.zeros(10, dtype=object), table.table["weak"].to_numpy()
        found_in = np.tanh(
            table.table["z"].to_numpy()[:, None] + NORMAL * table.table["se_z"].to_numpy()[:, None] * [-1, 1]
        )
        covered = (found_in[:, 0] <= correlations(cov, partial)) & (correlations(cov, partial) <= found_in[:, 1])
        name = "partial correlations" if partial else "correlations"
        found[name] = (np.where(weak, np.nan, covered), float(weak.mean()))
        zero = table.table["P>|z|"].to_numpy() > 0.05
        null = np.abs(correlations(cov, partial)) < 1e-9
        if null.any():
            found[f"{name}, test of zero"] = (zero[null], 0.0)
    for response, columns in FITS.items():
        fit = release.regress(f"{response} ~ {' + '.join(columns)}")
        weak = fit.identification.weak or fit.estimate.cov is None
        b = regression_truth(cov, mean, response, columns)
        found[f"{response} ~ {' + '.join(columns)}"] = (
            None if weak else np.abs(fit.params - b) <= NORMAL * fit.bse, float(weak),
        )  # fmt: skip
    return found


def lines(name: str, cell: Cell, replications: int) -> list[str]:
    """Return the table's lines of one cell."""
    truth = truth_of(cell)
    runs = [one(cell, truth, number) for number in tqdm(range(replications), desc=name, disable=None)]
    found = []
    for analysis in runs[0]:
        kept = [run[analysis][0] for run in runs if run[analysis][0] is not None]
        missing = np.mean([run[analysis][1] for run in runs])
        text = "none given"
        if kept:
            table = np.asarray(kept, dtype=float)
            seen = [column for column in table.T if np.isfinite(column).sum() >= 200]
            shares = [np.nanmean(column) for column in seen]
            text = f"{min(shares):.3f}, {np.mean(shares):.3f}" if shares else "fewer than 200"
        found.append(f"| {name} | {analysis} | {text} | {missing:.3f} |")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replications", type=int, default=2000)
    parser.add_argument("--only", default="")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    low, high = limits(0.95, given.replications, 60)
    text = [
        HEADER.format(given.replications, 60, low, high),
        "| cell | analysis | coverage: least, mean | not given |\n|---|---|---|---|\n",
    ]
    for name, cell in CELLS.items():
        if given.only in name:
            text += [line + "\n" for line in lines(name, cell, given.replications)]
            given.out.write_text("".join(text), encoding="utf-8")
    print("".join(text))


if __name__ == "__main__":
    main()
