"""A second layer of `PHReg`'s score, as a test of whether the target moved: it was measured, and is not in the package.

    python benchmarks/hazard_layers.py [FITS]    (fits that are not stored yet, then the page)
    python benchmarks/hazard_layers.py 0         (the page from the stored fits)

A fit follows records up to a stop, with weights w in the columns alone. Its layer is what it leaves out: the score with
complete follow-up and without weights, less the score of the fit, at the estimated coefficients. It has mean zero where
hazards are proportional and effects linear. Elsewhere the Hessian turns it into the shift of the coefficients to those of
Cox's regression. A record's layer is bounded by a function Q of its columns, and weighted by min(1, B2/Q), so that its
sensitivity is 2 B2. B2 is 0.5, 1 or 2 times the bound B of the fit's own scores.

Tables and fits are those of `hazard_tables`. Single fits are stored in benchmarks/results/hazard_layers.csv. The page is
benchmarks/results/hazard_layers.md.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import csv
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from hazard_tables import Setting, made, numbers, stored_fits, text_of
from proportional_hazards import DELTA
from scipy.stats import norm

from privinf.accounting.calibration import calibrate_mu
from privinf.glm.curved_sums import Noisy
from privinf.glm.hazards.path import MOST_NOISE, fit_hazards
from privinf.glm.hazards.sums import HazardPoint
from privinf.glm.posterior_draws import drawn
from privinf.typing import Floats
from studies.hazards.records import Hazard, Records, follow
from studies.hazards.simulated import SimulatedSums

RESULTS = Path(__file__).parent / "results"
STORE = RESULTS / "hazard_layers.csv"
PAGE = RESULTS / "hazard_layers.md"
FITS = 60
CLIPS = (0.5, 1.0, 2.0)  # B2 over B
SHARES = (0.05, 0.2)  # of the budget for the layer
LEVEL = 0.05  # of the test
FIELDS = ("task", "rows", "epsilon", "seed", "clip", "missed", "shift", "sampling", "noise")
SETTINGS: list[Setting] = [
    ("mixed, d = 3", 5_000, 1.0),
    ("mixed, d = 6", 5_000, 1.0),
    ("strong", 20_000, 1.0),
    ("flchain, log light chains", 7_874, 1.0),
    ("nafld1", 17_549, 1.0),
    ("flchain, light chains", 7_874, 1.0),
    ("flchain, light chains", 7_874, 4.0),
    ("gbsg, nodes", 20_000, 1.0),
    ("gbsg, nodes", 20_000, 4.0),
    ("Rotterdam, nodes", 2_982, 1.0),
    ("Rotterdam, nodes", 20_000, 1.0),
]


class Recorded(SimulatedSums):
    """The releases of a fit, which keep the point and the bound of the last score."""

    __slots__ = ("last",)
    last: tuple[HazardPoint, float]

    def score(self, at: HazardPoint, share: float, label: str, *, high: float, bound: float) -> Noisy:
        """Return the mean score."""
        self.last = at, bound
        return super().score(at, share, label, high=high, bound=bound)


def layers(records: Records, at: HazardPoint, theta: Floats, bound: float) -> tuple[Floats, Floats]:
    """Return what the fit's score leaves out, shape (n, P), and its bound Q by the columns, shape (n,)."""
    base = at.baseline
    q = base.blocks
    hazard = Hazard(edges=base.edges, increments=base.increments, block=base.block)
    stopped = follow(records, hazard, theta, at.transform, at.stop)
    weight = stopped.weights(bound)
    complete = follow(records, hazard, theta, at.transform, 1e9)
    layer = complete.scores(math.inf) - weight[:, None] * stopped.scores(math.inf)
    risk = np.exp(records.x @ theta[q:])
    steps = base.increments * np.exp(math.sqrt(q) * theta[:q])[base.block]
    total = np.concatenate([[0.0], np.cumsum(steps)])
    last = np.searchsorted(total, at.stop / risk, side="right") - 1
    before = risk * total[last]
    after = np.where(last < len(steps), np.maximum(1.0, risk * total[-1] - before), 0.0)
    longest = np.linalg.norm(stopped.designs, axis=2).max(axis=1)
    return layer, longest * ((1.0 - weight) * np.maximum(1.0, before) + after)


def one(setting: Setting, seed: int) -> list[dict[str, Any]]:
    """Return what is stored of a fit, for every clip."""
    task, n, epsilon = setting
    people, intervals = made(task)
    rng = np.random.default_rng(seed)
    records, beta = people.sample(n, rng)
    mu = calibrate_mu(epsilon=epsilon, delta=DELTA)
    sums = Recorded(records=records, edges=np.arange(1, intervals + 1) / intervals, mu=mu, rng=rng)
    fit = fit_hazards(sums, most_noise=MOST_NOISE)
    assert fit.step is not None
    posterior = drawn(fit.step, n, None)
    q = fit.baseline.blocks
    low, high = np.quantile(posterior.draws[:, q:], [0.025, 0.975], axis=0)
    at, bound = sums.last
    layer, size = layers(records, at, posterior.params, bound)
    values, vectors = fit.step.hessian.floored()
    influence = (at.transform.T @ (vectors / values) @ vectors.T)[q:]
    errors = posterior.draws[:, q:].std(axis=0)
    lines = []
    for clip in CLIPS:
        top = clip * bound
        weighted = layer * np.minimum(1.0, top / np.maximum(size, 1e-300))[:, None]
        assert np.linalg.norm(weighted, axis=1).max() <= top * (1.0 + 1e-9)
        moved = weighted @ influence.T
        stored = {"task": task, "rows": n, "epsilon": epsilon, "seed": seed, "clip": clip}
        stored |= {
            "missed": text_of((low > beta) | (beta > high), 0),
            "shift": text_of(moved.mean(axis=0) / errors, 4),
            "sampling": text_of(np.sqrt((moved**2).mean(axis=0) / n) / errors, 4),
            "noise": text_of(2.0 * top / (mu * n) * np.linalg.norm(influence, axis=1) / errors, 4),
        }
        lines.append(stored)
    return lines


def run(fits: int) -> None:
    """Make and store the fits that are not stored yet."""
    done = stored_fits(STORE, FIELDS)
    for seed in range(fits):
        for setting in SETTINGS:
            if (*setting, seed) not in done:
                lines = one(setting, seed)
                with STORE.open("a", encoding="utf-8", newline="") as file:
                    csv.DictWriter(file, FIELDS, lineterminator="\n").writerows(lines)


HEAD = """# Proportional hazards: a second layer of the score, which is not in the package

Made by `python benchmarks/hazard_layers.py`, which describes the layer. Its mean is zero where hazards are proportional and
effects linear; elsewhere the Hessian turns it into a shift of the coefficients, and a test of this shift could warn that the
target is not Cox's regression. *Coverage* is that of the slope whose intervals miss most often. *Shift* is the mean shift of
this slope by the layer without noise, and *noise* the standard deviation of the layer's noise, both in standard errors of the
fit. *Rejected* is the share of fits in which the test of all slopes at level 0.05 rejects; in the first five settings it
should be 0.05. The layer is clipped at B2, a multiple of the bound B of the fit's own scores. It costs 5% or 20% of
the budget; with 20%, intervals of the fit are up to 7% wider.

| table | rows | epsilon | fits | coverage | B2 / B | shift | noise at 5% | rejected at 5% | noise at 20% | rejected at 20% |
|---|---|---|---|---|---|---|---|---|---|---|
"""
TAIL = """
A fit leaves these scores out because their noise is large: for 5% of the budget, one to four standard errors. Where 98% of the
intervals miss, the test rejects in at most {most:.0%} of the fits at this price. The warnings of the package, which need no release
of their own, are on the [page of tables](hazard_tables.md).
"""


def write_page() -> None:
    """Write the page from the stored fits."""
    stored = pd.read_csv(STORE)
    rng = np.random.default_rng(0)
    lines = []
    most = 0.0
    for task, n, epsilon in SETTINGS:
        setting = stored[(stored["task"] == task) & (stored["rows"] == n) & (stored["epsilon"] == epsilon)]
        for clip, fits in setting.groupby("clip"):
            missed = numbers(fits["missed"]).mean(axis=0)
            worst = int(np.argmax(missed))
            shift, sampling, noise = (numbers(fits[name]) for name in ("shift", "sampling", "noise"))
            cells = []
            for share in SHARES:
                sd = noise / math.sqrt(share)
                released = shift + sd * rng.standard_normal(shift.shape)
                z = np.abs(released) / np.hypot(sd, sampling)
                rejected = float((z.max(axis=1) > norm.isf(LEVEL / 2.0 / shift.shape[1])).mean())
                most = max(most, rejected) if share == SHARES[0] and missed[worst] > 0.9 else most
                cells += [f"{sd[:, worst].mean():.1f}", f"{rejected:.2f}"]
            lines.append(
                f"| {task} | {n:,} | {epsilon:g} | {len(fits)} | {1.0 - missed[worst]:.2f} | {clip:g} "
                f"| {shift[:, worst].mean():.1f} | {' | '.join(cells)} |"
            )
    page = HEAD + "\n".join(lines) + "\n" + TAIL.format(most=most)
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    run(int(sys.argv[1]) if len(sys.argv) > 1 else FITS)
    write_page()
