"""The numbers that MomentOLS claims over parties by secure sums, by Monte Carlo.

``noise``: the noise of the actual releases of a small problem against one trusted curator's at the same
(epsilon, delta), with 0 and 2 of 10 sites in league with the server; sites draw secure noise. ``intervals``:
coverage and widths through the public API, seeded. Single fits go to
benchmarks/results/moments_federated.csv, which git ignores, as they end, so that a run that was stopped goes on
where it was; when all cells are there, the tables to the .md beside it. ``--replications 200`` makes fewer,
``--only NAME`` one cell, ``--fresh`` forgets.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

import privinf as pi
from studies.simulation import binomial_limits

RESULTS = Path(__file__).parent / "results" / "moments_federated.csv"
TRUE = np.array([0.5, -0.3, 0.2])
SITES, DELTA, NORMAL = 10, 1e-5, 1.959963984540054
STORE_EVERY = 50
HEADER = """# Moments over ten sites: noise and coverage of 95% intervals

Made by `python benchmarks/verify_moments_federated.py`. Ten sites, delta = 1e-5, replace-one of one record.
Noise: epsilon = 1, secure noise at the sites. Intervals: X ~ U[-1, 1]^3, beta (.5, -.3, .2), error sd .3, n = 5,000,
epsilon = 1; heteroskedastic: error sd .6 x1^2, n = 20,000, epsilon = 8. Single fits go to `moments_federated.csv` beside
this file (1.2 MB, not kept in git). An interval's data and noise are those of the seed
`numpy.random.default_rng([7, n, heteroskedastic, number])`, with `number` from 0 in each cell; the noise of the first table
is secure and has no seed (its data: seed 11).
"""


@dataclass(frozen=True)
class Noise:
    """Releases of a small problem with 28 moments (d = 6): how much noise they carry."""

    colluding: int
    replications: int = 2000


@dataclass(frozen=True)
class Intervals:
    """Fits on U[-1, 1]^3, error sd .3 (or .6 x^2 times a normal), y clipped at 2."""

    n: int = 5000
    epsilon: float = 1.0
    colluding: int = 0
    cov_type: str = "nonrobust"
    trust: str = "secure-sum"
    constant: bool = False
    heteroskedastic: bool = False
    replications: int = 1000


CELLS: dict[str, Noise | Intervals] = {
    "noise, 0 of 10": Noise(0),
    "noise, 2 of 10": Noise(2),
    "secure sum": Intervals(),
    "secure sum, 2 of 10 collude": Intervals(colluding=2),
    "secure sum, constant": Intervals(constant=True),
    "secure sum, HC0": Intervals(cov_type="HC0"),
    "secure sum, heteroskedastic, HC0": Intervals(
        cov_type="HC0", heteroskedastic=True, n=20_000, epsilon=8.0
    ),
    "secure sum, heteroskedastic, nonrobust": Intervals(heteroskedastic=True, n=20_000, epsilon=8.0),
    "trusted server": Intervals(trust="server"),
    "one curator": Intervals(trust="central"),
}


def noise_of(cell: Noise) -> Callable[[int], dict[str, float]]:
    """Return a function that makes one release and tells the mean square of its noise over a curator's."""
    rng = np.random.default_rng(11)
    X = rng.uniform(-1, 1, (60, 6))
    y = np.clip(X[:, 0] + 0.3 * rng.standard_normal(60), -2, 2)
    limits = {"bounds": [(-1, 1)] * 6, "y_bounds": (-2, 2)}
    parties = [(y[i::SITES], X[i::SITES]) for i in range(SITES)]
    model = pi.MomentOLS.from_arrays(parties, **limits)
    curator = pi.MomentOLS(y, X, **limits).release(epsilon=1.0, delta=DELTA)
    exact = model.release(epsilon=np.inf).arrays["moments"]

    def one(number: int) -> dict[str, float]:
        found = model.release(epsilon=1.0, delta=DELTA, max_colluding=cell.colluding)
        noise = (found.arrays["moments"] - exact) / curator.noise_model["scale"]
        stated = (found.noise_model["scale"] / curator.noise_model["scale"]) ** 2
        return {"square": np.mean(noise**2), "size": len(noise), "stated": stated}

    return one


def one_fit(cell: Intervals, number: int) -> dict[str, float]:
    """Draw, fit, and return errors and standard errors of the three slopes."""
    rng = np.random.default_rng([7, cell.n, cell.heteroskedastic, number])
    X = rng.uniform(-1, 1, (cell.n, 3))
    sd = 0.6 * X[:, 0] ** 2 if cell.heteroskedastic else 0.3
    y = np.clip(X @ TRUE + sd * rng.standard_normal(cell.n), -2, 2)
    design = pi.add_constant(X) if cell.constant else X
    limits = {"bounds": [(-1, 1)] * 3, "y_bounds": (-2, 2)}
    how = {"epsilon": cell.epsilon, "delta": DELTA, "cov_type": cell.cov_type, "rng": rng}
    if cell.trust == "central":
        fit = pi.MomentOLS(y, design, **limits).fit(**how)
    else:
        parts = [(y[i::SITES], design[i::SITES]) for i in range(SITES)]
        told = {"max_colluding": cell.colluding} if cell.colluding else {}
        fit = pi.MomentOLS.from_arrays(parts, trust=cell.trust, **limits).fit(**how, **told)
    slopes = slice(-3, None)
    row = {f"error{j}": v for j, v in enumerate(fit.params.to_numpy()[slopes] - TRUE)}
    row |= {f"se{j}": v for j, v in enumerate(fit.bse.to_numpy()[slopes])}
    row |= {f"privacy{j}": v for j, v in enumerate(fit.bse_privacy.to_numpy()[slopes])}
    return row


def run(name: str, replications: int | None, fresh: bool) -> None:
    """Make the fits of one cell that are not stored."""
    stored = pd.read_csv(RESULTS) if RESULTS.exists() else pd.DataFrame(columns=["cell", "number"])
    if fresh:
        stored = stored[stored["cell"] != name]
    cell = CELLS[name]
    have = set(stored.loc[stored["cell"] == name, "number"])
    left = [number for number in range(replications or cell.replications) if number not in have]
    if not left:
        return
    made = noise_of(cell) if isinstance(cell, Noise) else partial(one_fit, cell)
    started = time.perf_counter()
    for first in range(0, len(left), STORE_EVERY):
        part = left[first : first + STORE_EVERY]
        rows = pd.DataFrame([{"cell": name, "number": number, **made(number)} for number in part])
        stored = pd.concat([stored, rows]) if len(stored) else rows
        stored.to_csv(RESULTS, index=False, float_format="%.6g")
    print(f"{name}: {(time.perf_counter() - started) / len(left):.3f} s each", flush=True)


def tables() -> str:
    """Return the tables of all that is stored."""
    stored = pd.read_csv(RESULTS)
    noise = [
        "| noise | releases | measured variance / a curator's | standard error | stated | asked |",
        "|---|---|---|---|---|---|",
    ]
    fits = [
        "| intervals | fits | coverage, each slope | 99% limits | pooled | median width | share of noise in it |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, cell in CELLS.items():
        rows = stored[stored["cell"] == name]
        if rows.empty:
            continue
        if isinstance(cell, Noise):
            error = rows["square"].mean() * np.sqrt(2.0 / rows["size"].sum())
            asked = SITES / (SITES - cell.colluding)
            noise.append(
                f"| {name} | {len(rows)} | {rows['square'].mean():.4f} | {error:.4f} "
                f"| {rows['stated'].mean():.5f} | {asked:.2f} within 2% |"
            )
            continue
        error, se, privacy = (
            rows[[f"{what}{j}" for j in range(3)]].to_numpy() for what in ("error", "se", "privacy")
        )
        hits = np.abs(error) < NORMAL * se
        low, high = binomial_limits(0.95, len(rows))
        each = " ".join(f"{share:.3f}" for share in hits.mean(axis=0))
        fits.append(
            f"| {name} | {len(rows)} | {each} | {low:.3f} to {high:.3f} | {hits.mean():.4f} "
            f"| {np.median(2 * NORMAL * se):.5f} | {np.median(privacy**2 / se**2):.3f} |"
        )
    return "\n".join([HEADER, *noise, "", *fits]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replications", type=int)
    parser.add_argument("--only", choices=CELLS)
    parser.add_argument("--fresh", action="store_true")
    given = parser.parse_args()
    RESULTS.parent.mkdir(exist_ok=True)
    for name in [given.only] if given.only else CELLS:
        run(name, given.replications, given.fresh)
    if set(CELLS) <= set(pd.read_csv(RESULTS)["cell"]):
        RESULTS.with_suffix(".md").write_text(tables())
    print(tables())


if __name__ == "__main__":
    main()
