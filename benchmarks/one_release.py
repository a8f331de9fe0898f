"""Coverage of all that one release of second moments answers: regressions, instruments, means, correlations.

Five columns are released once a replication, `privinf.Moments(schema, columns=[...])`, at two sizes and two
budgets; every analysis is made from that release by the package's own equations, and each 95% interval compared
with the population's number. Of normal columns the sums are drawn by their exact law (a Wishart matrix), of
skewed and binary ones, in which the correlations' sampling law does not hold, from rows; then instruments that are
weak. Seeded; 99% binomial limits hold jointly over the table.

``--replications 100`` makes fewer, ``--only TEXT`` the cells whose name holds it; the table goes to
benchmarks/results/one_release.md.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import wishart
from tables import limits
from tqdm import tqdm

import privinf as pi
from privinf.inference.score_test import identification
from privinf.inference.solution import solve
from privinf.mechanisms.statistics.moments import MomentLayout
from privinf.moments.analyses import part_of, stage_system
from privinf.moments.correlation import MeanMoments, correlations, means
from privinf.moments.equation import total_system
from privinf.moments.iv import IVResults, Stages, two_stage
from privinf.moments.model import moment_system
from privinf.releases import Release
from privinf.schema.columns import all_columns, sub_design

RESULTS = Path(__file__).parent / "results" / "one_release.md"
DELTA, NORMAL = 1e-6, 1.959963984540054
NAMES = ["z", "v", "x", "w", "y"]
MEANS = np.array([0.3, -0.2, 0.1, 0.4, 0.5])
SLOPE = 0.5  # of y on w
REACH = 4.0
SKEW = 0.6
HEADER = """# Many analyses of one release: coverage of 95% intervals

Made by `python benchmarks/one_release.py`, {} releases a cell, delta = 1e-6: five columns z, v, x, w, y and a
constant are released once, with bounds of four sds, and all analyses are made from that release. The table shows the coverage of 95% intervals, first the lowest over the quantities of an analysis, then the mean over them. *Wide*: the share of intervals that are [-1, 1]
(correlations), or of fits that are flagged (others). Coverage of correlations includes intervals that are [-1, 1], and coverage of fits leaves flagged fits out; *given* is the lowest coverage of a correlation whose interval is narrower in half of the releases
or more. 99% binomial limits of one share, jointly over {} shares: {:.3f} to {:.3f}.

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
    "first stage .1, 5,000, eps 4": Cell(5_000, 4.0, 0.1, only_iv=True),
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


def population(cell: Cell) -> np.ndarray:
    """Return the mean second moments of (1, z, v, x, w, y), from many rows where the law is not normal."""
    if cell.law == "normal":
        mean, cov = MEANS, mixing(cell.strength) @ mixing(cell.strength).T
    else:
        rows = np.concatenate([draw(cell, np.random.default_rng([5, k]), 1_000_000) for k in range(8)])
        mean, cov = rows.mean(axis=0), np.cov(rows.T)
    one = np.append(1.0, mean)
    return np.outer(one, one) + np.pad(cov, ((1, 0), (1, 0)))


def sums(cell: Cell, rng: np.random.Generator) -> np.ndarray:
    """Return the mean second moments of the rows of one sample."""
    if cell.law == "normal":
        cov = mixing(cell.strength) @ mixing(cell.strength).T
        one = np.append(1.0, rng.multivariate_normal(MEANS, cov / cell.n))
        scatter = wishart.rvs(cell.n - 1, cov, random_state=rng) / cell.n
        return np.outer(one, one) + np.pad(scatter, ((1, 0), (1, 0)))
    z = np.column_stack([np.ones(cell.n), draw(cell, rng)])
    return z.T @ z / cell.n


class Study:
    """The release of one cell, and what is asked of it."""

    def __init__(self, cell: Cell) -> None:
        self.cell = cell
        rows = pd.DataFrame(draw(cell, np.random.default_rng(0)), columns=NAMES)
        made = pi.Moments(schema_of(cell), columns=NAMES).release(
            rows, epsilon=cell.epsilon, delta=DELTA, rng=0
        )
        self.made, design = made, made.design
        names = [column.name for column in all_columns(design)]
        self.order = [0, *(1 + NAMES.index(name) for name in names[1:])]
        scale, center = np.append(design.scale, design.y_scale), np.append(design.center, design.y_center)
        scale_up = np.diag(scale)
        scale_up[:, 0] += center
        self.down = np.linalg.inv(scale_up)
        self.layout = MomentLayout(1, len(names) - 2)
        self.everything = part_of(made, np.eye(len(names)))
        self.parts = {formula: part_of(made, sub_design(design, formula).maps) for formula in FITS}
        self.stages = {formula: Stages.from_design(design, formula) for formula in INSTRUMENTS}
        self.truth = self.release(population(cell), None)

    def release(self, moments: np.ndarray, rng: np.random.Generator | None) -> Release:
        """Return the release of mean second moments in user units, without noise where rng is None."""
        scaled = self.down @ moments[np.ix_(self.order, self.order)] @ self.down.T
        rows, columns, factors = self.layout.pairs()
        entries = self.cell.n * scaled[rows, columns] * factors
        law = dict(self.made.noise_model)
        if rng is None:
            law["scale"] = 0.0
        else:
            entries = entries + law["scale"] * rng.standard_normal(len(entries))
        return replace(
            self.made,
            arrays={"moments": entries, "public_moments": np.array([[float(self.cell.n)]])},
            noise_model=law,
        )

    def moments(self, release: Release) -> MeanMoments:
        """Return the moments of all columns."""
        return MeanMoments.from_release(release, moment_system(release, self.everything), self.everything)

    def iv(self, release: Release, formula: str) -> IVResults:
        """Return two-stage least squares."""
        stages = self.stages[formula]
        return two_stage(release, formula, stages, stage_system(release, stages))


FITS = ["y ~ x + w", "z ~ v + x + w + y"]
INSTRUMENTS = {"y ~ x + [w ~ z]": "iv, one instrument", "y ~ x + [w ~ z + v]": "iv, two instruments"}
Found = dict[str, tuple[np.ndarray, np.ndarray]]  # covered, wide


def one(study: Study, number: int, truths: dict[str, np.ndarray]) -> Found:
    """Return what each analysis of one release covers, and which intervals are wide or flagged."""
    rng = np.random.default_rng([29, number])
    release = study.release(sums(study.cell, rng), rng)
    found: Found = {}
    if study.cell.law == "normal":
        for formula, name in INSTRUMENTS.items():
            fit = study.iv(release, formula)
            weak = fit.identification.weak or fit.estimate.cov is None
            inside = np.zeros(3) if weak else np.abs(fit.params - truths[formula]) <= NORMAL * fit.bse
            found[name] = np.asarray(inside), np.full(3, weak)
            covered = fit.score_test([SLOPE]).pvalue > 0.05
            found[f"{name}, Anderson-Rubin"] = np.array([covered]), np.zeros(1, dtype=bool)
    if study.cell.only_iv:
        return found
    moments = study.moments(release)
    averages = means(moments, release)
    found["means"] = (
        np.abs(averages.params - truths["means"]) <= NORMAL * averages.bse,
        np.zeros(5, dtype=bool),
    )
    for name, given in (("correlations", ()), ("partial correlations", None)):
        table = correlations(moments, release, None, given).table
        wide = table["weak"].to_numpy()
        inside = np.abs(table["z"] - np.arctanh(truths[name])) <= NORMAL * table["se_z"]
        found[name] = inside.to_numpy() | wide, wide
        null = np.abs(truths[name]) < 1e-9
        if null.any():
            tested = table["P>|z|"].to_numpy()[null] > 0.05
            found[f"{name}, test of zero"] = tested, np.zeros(null.sum(), dtype=bool)
    for formula, part in study.parts.items():
        system = total_system(release, part)
        solution = solve(system)
        weak = identification(system).weak or solution.cov is None
        size = len(solution.params)
        inside = np.zeros(size)
        if not weak:
            inside = np.abs(solution.params - truths[formula]) <= NORMAL * np.sqrt(np.diag(solution.cov))
        found[formula] = inside, np.full(size, weak)
    return found


def truths_of(study: Study) -> dict[str, np.ndarray]:
    """Return the population's numbers."""
    exact, moments = study.truth, study.moments(study.truth)
    found = {formula: solve(total_system(exact, part)).params for formula, part in study.parts.items()}
    if study.cell.law == "normal":
        found |= {formula: study.iv(exact, formula).params.to_numpy() for formula in INSTRUMENTS}
    found["means"] = means(moments, exact).params.to_numpy()
    for name, given in (("correlations", ()), ("partial correlations", None)):
        values = correlations(moments, exact, None, given).table["corr"].to_numpy()
        found[name] = np.where(np.abs(values) < 1e-9, 0.0, values)
    return found


def lines(name: str, cell: Cell, replications: int) -> list[str]:
    """Return the table's lines of one cell."""
    study = Study(cell)
    truths = truths_of(study)
    runs = [one(study, number, truths) for number in tqdm(range(replications), desc=name, disable=None)]
    found = []
    for analysis in runs[0]:
        covered, wide = (np.array([run[analysis][k] for run in runs], dtype=float) for k in (0, 1))
        correlated = "correlations" in analysis
        kept = np.ones_like(wide) if correlated else 1.0 - wide
        text, given = "fewer than 200 kept", ""
        if kept[:, 0].sum() >= 200:
            shares = (covered * kept).sum(axis=0) / kept.sum(axis=0)
            text = f"{shares.min():.3f}, {shares.mean():.3f}"
        narrow = 1.0 - wide
        half = narrow.mean(axis=0) >= 0.5
        if correlated and half.any() and wide.any():
            given = f"{((covered * narrow).sum(axis=0) / narrow.sum(axis=0).clip(1))[half].min():.3f}"
        found.append(f"| {name} | {analysis} | {text} | {wide.mean():.3f} | {given} |")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replications", type=int, default=2000)
    parser.add_argument("--only", default="")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    shares = 250
    low, high = limits(0.95, given.replications, shares)
    text = [
        HEADER.format(given.replications, shares, low, high),
        "| cell | analysis | coverage: least, mean | wide | given |\n|---|---|---|---|---|\n",
    ]
    for name, cell in CELLS.items():
        if given.only in name:
            text += [line + "\n" for line in lines(name, cell, given.replications)]
            given.out.write_text("".join(text), encoding="utf-8")
    print("".join(text))


if __name__ == "__main__":
    main()
