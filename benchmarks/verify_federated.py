"""The numbers that FederatedGLM claims for its intervals, by Monte Carlo.

Logistic, d = 10, n = 20,000, 10 sites, delta = 1e-6, replace-one of one record unless a cell says zero-out,
every fit through the public API and seeded. Single fits go to benchmarks/results/federated_intervals.csv, which
git ignores, as they end, so that a run that was stopped goes on where it was; when all cells are there, the
table to the .md beside it. ``--replications 200`` makes fewer, ``--only NAME`` one cell, ``--fresh`` forgets what
is stored.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import expit

import privinf as pi
from privinf.mechanisms.catalogue import SITE_OPS
from studies.simulation import binomial_limits

RESULTS = Path(__file__).parent / "results" / "federated_intervals.csv"
TRUE = np.array([0.8, -0.6, 0.5, -0.4, 0.3, -0.2, 0.1, 0.0, 0.0, 0.5])
HEADER = """# Regressions over ten sites: coverage of 95% intervals

Made by `python benchmarks/verify_federated.py`, which stores its fits in `federated_intervals.csv` beside this
file (not kept in git). A fit's data and noise are those of the seed
`numpy.random.default_rng([20_000, setting, number])`: `setting` is the position of the distribution of features and of epsilon in `SEEDS` of the script, and `number` counts the fits of a cell from 0.
"""
D, WIDE, N, SITES, DELTA, NORMAL = len(TRUE), 100, 20_000, 10, 1e-6, 1.959963984540054
STORE_EVERY = 20


@dataclass(frozen=True)
class Cell:
    """One setting: law of the features, budget, trust, whether scores are wrongly clipped at 2, relation."""

    features: str
    epsilon: float
    trust: str = "server"
    clipped: bool = False
    relation: str = "replace-one"


CELLS = {
    "uniform, eps 2": Cell("uniform", 2.0),
    "uniform, eps 0.5": Cell("uniform", 0.5),
    "signs, eps 2": Cell("signs", 2.0),
    "signs, eps 0.5": Cell("signs", 0.5),
    "uniform, eps 2, secure sums": Cell("uniform", 2.0, trust="secure-sum"),
    "uniform, eps 0.5, secure sums": Cell("uniform", 0.5, trust="secure-sum"),
    "uniform, eps 2, zero-out": Cell("uniform", 2.0, relation="zero-out"),
    "uniform, eps 2, zero-out, secure sums": Cell("uniform", 2.0, trust="secure-sum", relation="zero-out"),
    "targets beside 100 columns, eps 2": Cell("wide", 2.0),
    "signs, eps 2, Newton, whole score clipped at 2": Cell("signs", 2.0, clipped=True),
}


# The same data and, where the noise is made in one place, the same noise for cells that differ elsewhere.
SEEDS = [("uniform", 2.0), ("uniform", 0.5), ("signs", 2.0), ("signs", 0.5), ("wide", 2.0)]


def one_fit(cell: Cell, number: int) -> dict[str, float]:
    """Draw, fit, and return errors, standard errors, and those without privacy, of all coefficients.

    Standard errors are nan where the fit did not settle and has none.
    """
    rng = np.random.default_rng([20_000, SEEDS.index((cell.features, cell.epsilon)), number])
    d = WIDE if cell.features == "wide" else D
    X = rng.choice([-1.0, 1.0], (N, d)) if cell.features == "signs" else rng.uniform(-1.0, 1.0, (N, d))
    mean = expit(X[:, :D] @ TRUE)
    y = (rng.uniform(size=N) < mean).astype(float)
    sites = [(y[i::SITES], X[i::SITES]) for i in range(SITES)]
    wide = {"radius": 1.1 * np.sqrt(d / 3.0)} if d > D else {}
    model = pi.FederatedGLM.from_arrays(
        sites, bounds=[(-1, 1)] * d, family="binomial", trust=cell.trust, **wide
    )
    targets = [f"x{j + 1}" for j in range(D)] if d > D else None
    # The default fit has no whole score of a record that could be clipped.
    how = {"optimizer": pi.Newton()} if cell.clipped else {}
    r = model.fit(epsilon=cell.epsilon, delta=DELTA, relation=cell.relation, targets=targets, rng=rng, **how)
    plain = np.sqrt(np.diag(np.linalg.inv((X.T * (mean * (1.0 - mean))) @ X)))[:D]
    row = {f"error{j}": v for j, v in enumerate(r.params - TRUE)}
    none = r.estimate.cov is None
    row |= {f"se{j}": v for j, v in enumerate(np.full(D, np.nan) if none else r.bse)}
    row |= {f"sampling{j}": v for j, v in enumerate(np.full(D, np.nan) if none else r.bse_sampling)}
    row |= {f"plain{j}": v for j, v in enumerate(plain)}
    return row | {"epsilon": r.privacy.epsilon(DELTA)}


def clipped_whole() -> None:
    """Put the mutant in place: scores clipped at 2 as they are."""
    whole = SITE_OPS["glm.sketched_score"]
    SITE_OPS["glm.score"] = replace(
        SITE_OPS["glm.score"],
        function=lambda block, args: whole.function(block, {**args, "clip": 2.0}),
        sums=lambda block, args: whole.sums(block, {**args, "clip": 2.0}),
    )


def run(name: str, replications: int, fresh: bool) -> None:
    """Make the fits of one cell that are not stored."""
    stored = pd.read_csv(RESULTS) if RESULTS.exists() else pd.DataFrame(columns=["cell", "number"])
    if fresh:
        stored = stored[stored["cell"] != name]
    have = set(stored.loc[stored["cell"] == name, "number"])
    left = [number for number in range(replications) if number not in have]
    kept, cell = SITE_OPS["glm.score"], CELLS[name]
    if cell.clipped:
        clipped_whole()
    started = time.perf_counter()
    for first in range(0, len(left), STORE_EVERY):
        part = left[first : first + STORE_EVERY]
        rows = pd.DataFrame([{"cell": name, "number": number, **one_fit(cell, number)} for number in part])
        stored = pd.concat([stored, rows]) if len(stored) else rows
        stored.to_csv(RESULTS, index=False, float_format="%.6g")
    SITE_OPS["glm.score"] = kept
    if left:
        print(f"{name}: {(time.perf_counter() - started) / len(left):.2f} s a fit", flush=True)


def table() -> str:
    """Return the table of all that is stored."""
    stored = pd.read_csv(RESULTS)
    lines = [
        "| cell | fits | without intervals | coverage | 99% limits | without the noise | width / non-private "
        "| sd / non-private |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name in CELLS:
        rows = stored[stored["cell"] == name]
        if rows.empty:
            continue
        made, rows = len(rows), rows.dropna(subset=["se0"])
        error, se, sampling, plain = (
            rows[[f"{what}{j}" for j in range(D)]].to_numpy() for what in ("error", "se", "sampling", "plain")
        )
        low, high = binomial_limits(0.95, error.size)
        lines.append(
            f"| {name} | {made} | {made - len(rows)} | {np.mean(np.abs(error) < NORMAL * se):.4f} | {low:.4f}-{high:.4f} "
            f"| {np.mean(np.abs(error) < NORMAL * sampling):.4f} | {np.median(se / plain):.3f} "
            f"| {np.std(error / plain):.3f} |"
        )
    return "\n".join([HEADER, *lines]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replications", type=int, default=1000)
    parser.add_argument("--only", choices=CELLS)
    parser.add_argument("--fresh", action="store_true")
    given = parser.parse_args()
    RESULTS.parent.mkdir(exist_ok=True)
    for name in [given.only] if given.only else CELLS:
        run(name, given.replications, given.fresh)
    if set(CELLS) <= set(pd.read_csv(RESULTS)["cell"]):
        RESULTS.with_suffix(".md").write_text(table())
    print(table())


if __name__ == "__main__":
    main()
