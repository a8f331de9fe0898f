"""Whether FederatedGLM says of fits that did not settle that they did not, and of others nothing.

Every cell is fitted with intervals whatever the last step's length was, and the verdict on that step noted: what
would have been covered, how many fits have intervals, what those cover. Far cells: rare events, strong signals
on wide bounds, clips that are small against the response; good cells: those whose coverage is published, and small
ones in which the noise dominates. Delta 1e-6, Newton's three rounds unless a cell says otherwise, seeded.

``--replications 50`` makes fewer, ``--only TEXT`` the cells whose name holds it; the table goes to
benchmarks/results/settled.md.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit
from tqdm import tqdm

import privinf as pi
from privinf.errors import NotAvailableError
from privinf.glm import convergence as judge_convergence
from privinf.glm import results as federated_glm_results

RESULTS = Path(__file__).parent / "results" / "settled.md"
DELTA, NORMAL = 1e-6, 1.959963984540054
TEN = np.array([0.8, -0.6, 0.5, -0.4, 0.3, -0.2, 0.1, 0.0, 0.0, 0.5])
FOUR = np.array([0.8, -0.5, 0.3, 0.0])
FIVE = np.array([0.3, 0.5, -0.5, 0.0, 1.0])
HEADER = """# FederatedGLM: flags of fits that have not converged

Made by `python benchmarks/verify_settled.py`, {} fits a cell; delta = 1e-6, replace-one of one record. Fits of
`FederatedGLM` by `optimizer=Newton()`, unless a cell names another; the default fit does not depend on a last step. *Hidden* is the share of fits in which the noise hides the final Hessian. *Would cover* is the coverage of the worst coefficient, and of all coefficients, if every other fit reported intervals. *Flagged* is the share of flagged fits among those that are not hidden. *Cover* is the coverage of fits that keep their intervals. *Length* is the median length of the last step in its own standard errors; steps above 1.5 are flagged. A cell fails without a warning if many fits keep intervals that do not cover.

"""


@dataclass(frozen=True)
class Cell:
    """Rows of one family, and how they are fitted."""

    n: int
    beta: np.ndarray
    epsilon: float
    family: str = "binomial"
    constant: bool = True
    features: str = "uniform"
    reach: float = 1.0
    sd: float = 0.5
    sites: int = 2
    options: dict[str, Any] = field(default_factory=dict)
    fit: dict[str, Any] = field(default_factory=dict)
    targets: int = 0

    def draw(self, rng: np.random.Generator) -> tuple[np.ndarray, pd.DataFrame]:
        """Return response and columns."""
        shape = (self.n, len(self.beta) - self.constant)
        make: dict[str, Callable[[], np.ndarray]] = {
            "uniform": lambda: rng.uniform(-self.reach, self.reach, shape),
            "signs": lambda: rng.choice([-1.0, 1.0], shape),
            "normal": lambda: np.clip(rng.standard_normal(shape), -self.reach, self.reach),
        }
        frame = pd.DataFrame(make[self.features](), columns=[f"x{j + 1}" for j in range(shape[1])])
        X = pi.add_constant(frame) if self.constant else frame
        eta = X.to_numpy() @ self.beta
        if self.family == "binomial":
            return (rng.uniform(size=self.n) < expit(eta)).astype(float), X
        if self.family == "poisson":
            return rng.poisson(np.exp(eta)).astype(float), X
        return eta + self.sd * rng.standard_normal(self.n), X


def rare(share: float) -> np.ndarray:
    """Return coefficients with about a share of positives."""
    return np.r_[{0.01: -4.75, 0.02: -4.0, 0.05: -3.1, 0.1: -2.3}[share], FOUR]


def small_clip(clip: float | None, slope: float = 5.0) -> Cell:
    """Return a linear model whose response goes far beyond a clip."""
    reach = 2.0 * slope + 2.0
    options = {"y_bounds": (-reach, reach), "residual_clip": clip}
    beta = np.r_[0.0, slope * np.array([1.0, -0.5, 0.25])]
    return Cell(50_000, beta, 1.0, family="gaussian", options=options)


WIDE = np.r_[TEN, np.zeros(90)]
CELLS = {
    "1% of positives, n = 200,000, eps 2": Cell(200_000, rare(0.01), 2.0),
    "1%, 200,000, eps 1": Cell(200_000, rare(0.01), 1.0),
    "1%, 20,000, eps 4": Cell(20_000, rare(0.01), 4.0),
    "2%, 100,000, eps 2": Cell(100_000, rare(0.02), 2.0),
    "2%, 100,000, eps 1": Cell(100_000, rare(0.02), 1.0),
    "2%, 20,000, eps 1": Cell(20_000, rare(0.02), 1.0),
    "5%, 100,000, eps 2": Cell(100_000, rare(0.05), 2.0),
    "5%, 20,000, eps 2": Cell(20_000, rare(0.05), 2.0),
    "strong on +-4 (5, -3, 2, 0), 20,000, eps 4": Cell(
        20_000, np.array([5.0, -3.0, 2.0, 0.0]), 4.0, constant=False, features="normal", reach=4.0
    ),
    "strong on +-4 (3, -2, 1, 0), 20,000, eps 4": Cell(
        20_000, np.array([3.0, -2.0, 1.0, 0.0]), 4.0, constant=False, features="normal", reach=4.0
    ),
    "strong on +-4 (1.5, -1, .7, 0), 20,000, eps .5": Cell(
        20_000, np.array([1.5, -1.0, 0.7, 0.0]), 0.5, constant=False, features="normal", reach=4.0
    ),
    "linear, clip a fifth of the response": small_clip(1.0),
    "linear, clip a tenth": small_clip(0.5),
    "linear, clip as wide as the bounds": small_clip(None),
    "linear, clip 3 sds, fitted well": small_clip(1.5, slope=1.0),
    "uniform d = 10, 20,000, eps 2": Cell(20_000, TEN, 2.0, constant=False, sites=10),
    "uniform d = 10, 20,000, eps .5": Cell(20_000, TEN, 0.5, constant=False, sites=10),
    "signs d = 10, 20,000, eps 2": Cell(20_000, TEN, 2.0, constant=False, sites=10, features="signs"),
    "signs d = 10, 20,000, eps .5": Cell(20_000, TEN, 0.5, constant=False, sites=10, features="signs"),
    "signs d = 10, 10,000, eps .5": Cell(10_000, TEN, 0.5, constant=False, sites=4, features="signs"),
    "targets beside 100 columns, 20,000, eps 2": Cell(
        20_000, WIDE, 2.0, constant=False, targets=10, options={"radius": 1.1 * np.sqrt(100 / 3.0)}
    ),
    "DPSGD(step=4, clip=2), d = 10, eps 2": Cell(
        20_000, TEN, 2.0, constant=False, fit={"optimizer": pi.DPSGD(step=4.0, clip=2.0)}
    ),
    "10% of positives, 50,000, eps 2": Cell(50_000, rare(0.1), 2.0),
    "10% of positives, 50,000, eps .5": Cell(50_000, rare(0.1), 0.5),
    "one slope, 5,000, eps 1": Cell(5_000, np.array([0.0, 0.8]), 1.0),
    "one slope, 2,000, eps .5": Cell(2_000, np.array([0.0, 0.8]), 0.5),
    "two slopes, 3,000, eps .5": Cell(3_000, np.array([0.5, 0.8, -0.5]), 0.5),
    "linear, 60,000, eps 2": Cell(
        60_000, FIVE, 2.0, family="gaussian", options={"y_bounds": (-4.0, 5.0), "residual_clip": 2.0}
    ),
    "Poisson, 60,000, eps 2": Cell(60_000, FIVE, 2.0, family="poisson", options={"y_bounds": (0.0, 12.0)}),
    "Poisson, 20,000, eps 1": Cell(20_000, FIVE, 1.0, family="poisson", options={"y_bounds": (0.0, 12.0)}),
}


@contextmanager
def unguarded(verdicts: list[judge_convergence.Convergence]) -> Iterator[None]:
    """Give intervals to every fit, and keep the verdict on each."""
    judge = federated_glm_results.judge_convergence

    def noted(*given: Any) -> judge_convergence.Convergence:
        verdicts.append(judge(*given))
        return judge_convergence.Convergence(0.0, 0.0, 0.0)

    federated_glm_results.judge_convergence = noted
    try:
        yield
    finally:
        federated_glm_results.judge_convergence = judge


def line(name: str, cell: Cell, replications: int) -> str:
    """Return the table's line of one cell."""
    verdicts: list[judge_convergence.Convergence] = []
    hits, hidden = [], 0
    targets = [f"x{j + 1}" for j in range(cell.targets)] or None
    how = {"optimizer": pi.Newton()} | cell.fit  # the default fit rests on no last step
    truth = cell.beta[: cell.targets] if cell.targets else cell.beta
    for number in range(replications):
        rng = np.random.default_rng([23, number])
        y, X = cell.draw(rng)
        parts = np.array_split(np.arange(cell.n), cell.sites)
        model = pi.FederatedGLM.from_arrays(
            [(y[i], X.iloc[i]) for i in parts],
            bounds={column: (-cell.reach, cell.reach) for column in X.columns if column != "const"},
            family=cell.family,
            **cell.options,
        )
        try:
            with unguarded(verdicts):
                r = model.fit(epsilon=cell.epsilon, delta=DELTA, targets=targets, rng=rng, **how)
        except NotAvailableError:
            return f"| {name} | refused | | | | |"
        if r.estimate.cov is None:
            hidden += 1
        else:
            hits.append(np.abs(r.params - truth) <= NORMAL * r.bse)
    if not hits:
        return f"| {name} | {hidden / replications:.2f} | | | | |"
    covered = np.array(hits)
    kept = np.array([found.converged for found in verdicts])
    length = f"{np.median([found.length for found in verdicts]):.2f}"
    rest = covered[kept]
    left = f"{rest.mean(axis=0).min():.2f}, {rest.mean():.3f}" if kept.any() else "none left"
    return (
        f"| {name} | {hidden / replications:.2f} | {covered.mean(axis=0).min():.2f}, {covered.mean():.3f} "
        f"| {1.0 - kept.mean():.3f} | {left} | {length} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replications", type=int, default=200)
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    lines = [
        "| cell | hidden | would cover: worst, all | flagged | cover: worst, all | length |",
        "|---|---|---|---|---|---|",
    ]
    for name, cell in tqdm(CELLS.items()):
        if given.only in name:
            lines.append(line(name, cell, given.replications))
    text = HEADER.format(given.replications) + "\n".join(lines) + "\n"
    if not given.only:
        RESULTS.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
