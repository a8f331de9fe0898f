"""Size and power of score tests of restrictions, the rest profiled under the null, beside Wald's.

    python benchmarks/score_tests.py            # about 12 minutes of one core
    python benchmarks/score_tests.py --quick    # prints, and writes no page

MomentOLS: sums of fresh rows with the noise of a release. Logit: whole fits. Nulls are true (size), then false
by three of the standard errors that the release leaves (power).
"""

from __future__ import annotations

import argparse
import math
import time
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import chi2

import privinf as pi
from privinf.accounting import gaussian_mu
from privinf.inference.score_sets import restricted_score_test
from privinf.inference.score_test import identification
from privinf.moments.equation import NoisyTotals

OUT = Path(__file__).parent / "results" / "score_tests.md"
NULLS = {
    "b2 = 0": np.eye(5)[[2]],
    "b3 = b4 = 0": np.eye(5)[[3, 4]],
    "b1 = b2": np.array([[0.0, 1.0, -1.0, 0.0, 0.0]]),
}
BETA = np.array([0.3, 0.5, 0.5, 0.3, 0.0])
MOMENTS = {500: (0.25, 1.0, math.inf), 5_000: (1.0, math.inf)}


def moment_rows(n, rng, skewed):
    """Return rows (1, x, y) in [-1, 1], the columns correlated .5, errors normal or exponential."""
    shared = rng.standard_normal((n, 1))
    x = np.clip((rng.standard_normal((n, 4)) + shared) / 3.0, -1.0, 1.0)
    e = rng.exponential(size=n) - 1.0 if skewed else rng.standard_normal(n)
    y = np.clip((BETA[0] + x @ BETA[1:]) / 2.0 + 0.2 * e, -1.0, 1.0)
    return np.column_stack([np.ones(n), x, y])


@lru_cache
def truth(skewed):
    """Return the coefficients that the clipped rows have, from many of them."""
    Z = moment_rows(2_000_000, np.random.default_rng(99), skewed)
    return np.linalg.lstsq(Z[:, :-1], Z[:, -1], rcond=None)[0]


def noise_of(epsilon, n):
    """Return the noise's sd on an entry of the sum: columns and response in [-1, 1], replace-one."""
    if math.isinf(epsilon):
        return 0.0
    most = 6.0  # |z|^2 of a row: the diameter of zz' is at most sqrt 2 times that, the constant's entry known
    return math.sqrt(2.0) * most / gaussian_mu(epsilon, 1.0 / n**1.1)


def wald(system, R, q):
    """Return the p-value of Wald's test; 1 where the estimate has no covariance."""
    if np.linalg.eigvalsh(system.A)[0] <= 0.0:
        return 1.0
    b, inverse = np.linalg.solve(system.A, system.g), np.linalg.inv(system.A)
    V, d = R @ inverse @ system.meat(b) @ inverse @ R.T / system.n, R @ b - q
    return float(chi2.sf(d @ np.linalg.solve(V, d), len(R)))


def moment_cell(n, epsilon, skewed, draws, seed):
    """Return rejections of true and of false nulls by both tests, and the share of weak releases."""
    rng, beta, scale = np.random.default_rng(seed), truth(skewed), noise_of(epsilon, n)
    counts, weak = {name: np.zeros((2, 2)) for name in NULLS}, 0
    typical = None
    for _ in range(draws):
        Z = moment_rows(n, rng, skewed)
        E = np.triu(rng.standard_normal((6, 6)) / math.sqrt(2.0), 1)
        E = scale * (E + E.T + np.diag(rng.standard_normal(6)))
        E[0, 0] = 0.0
        system = NoisyTotals((Z.T @ Z + E) / n, n=n, public=1, scale=scale)
        weak += identification(system).weak
        if typical is None:
            A = moment_rows(200_000, np.random.default_rng(1), skewed)
            large = NoisyTotals(A.T @ A / len(A), n=n, public=1, scale=scale)
            inverse = np.linalg.inv(large.A)
            typical = inverse @ large.meat(beta) @ inverse / n
        for name, R in NULLS.items():
            se = np.sqrt(np.diag(R @ typical @ R.T))
            for row, q in enumerate((R @ beta, R @ beta + 3.0 * se)):
                ours = restricted_score_test(system, R, q).pvalue
                counts[name][row] += np.array([ours, wald(system, R, q)]) < 0.05
    return {name: found / draws for name, found in counts.items()}, weak / draws


def logit_cell(n, epsilon, fits, seed):
    """Return the same of whole fits of Logit."""
    beta = np.array([-0.5, 0.8, 0.8, -0.5, 0.0])
    names = ["const", "x1", "x2", "x3", "x4"]
    counts, kept, weak = {name: np.zeros((2, 2)) for name in NULLS}, 0, 0
    for fit in range(fits):
        rng = np.random.default_rng([seed, fit])
        x = np.clip((rng.standard_normal((n, 4)) + rng.standard_normal((n, 1))) / 3.0, -1.0, 1.0)
        y = (rng.random(n) < 1.0 / (1.0 + np.exp(-beta[0] - x @ beta[1:]))).astype(float)
        X = np.column_stack([np.ones(n), x])
        model = pi.Logit(y, pd.DataFrame(X, columns=names), bounds={name: (-1, 1) for name in names[1:]})
        spent = {"epsilon": epsilon} | ({} if math.isinf(epsilon) else {"delta": 1e-6, "rng": fit})
        result = model.fit(**spent)
        if result.estimate.cov is None:
            continue
        kept += 1
        weak += result.cov_type == "posterior"
        cov = np.asarray(result.cov_params())
        for name, R in NULLS.items():
            se = np.sqrt(np.diag(R @ cov @ R.T))
            for row, q in enumerate((R @ beta, R @ beta + 3.0 * se)):
                ours = result.score_test((R, q)).pvalue
                d = R @ result.params.to_numpy() - q
                theirs = chi2.sf(d @ np.linalg.solve(R @ cov @ R.T, d), len(R))
                counts[name][row] += np.array([ours, theirs]) < 0.05
    return {name: found / max(kept, 1) for name, found in counts.items()}, weak / max(kept, 1), kept


def limits(draws):
    """Return the 99% limits of a true share of .05."""
    half = 2.576 * math.sqrt(0.05 * 0.95 / draws)
    return 0.05 - half, 0.05 + half


def lines(label, found, weak):
    """Return a row of the table for each null."""
    for name, shares in found.items():
        cells = " | ".join(f"{share:.3f}" for share in shares.ravel())
        yield f"| {label} | {name} | {cells} | {weak:.2f} |"


HEAD = """| n, epsilon, errors | null | size, score | size, Wald | power, score | power, Wald | weak |
|---|---|---|---|---|---|---|"""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--draws", type=int, default=1_000)
    parser.add_argument("--fits", type=int, default=2_000)
    given = parser.parse_args()
    draws, fits = (100, 20) if given.quick else (given.draws, given.fits)
    start, text, worst = time.perf_counter(), [], 0.0
    for n, epsilons in MOMENTS.items():
        for epsilon in epsilons:
            for skewed in (False, True):
                found, weak = moment_cell(n, epsilon, skewed, draws, n)
                worst = max(worst, *(float(shares[0, 0]) for shares in found.values()))
                label = f"{n:,}, {epsilon:g}, {'exponential' if skewed else 'normal'}"
                text += lines(label, found, weak)
                print("\n".join(text[-3:]), flush=True)
    low, high = limits(draws)
    body = [
        "# Score tests of restrictions",
        "",
        f"Made by `python benchmarks/score_tests.py --draws {draws} --fits {fits}`: see there for the designs. Tests are at 5%, delta n^-1.1; false "
        "nulls are three standard errors of the release away; weak: the share of releases whose "
        "identification is called so.",
        "",
        f"## MomentOLS, {draws:,} released sums a cell",
        "",
        f"99% limits of a true 5%: {low:.3f} to {high:.3f}. Largest size of the score test: {worst:.3f}. "
        "Where the noise hides the columns it is conservative.",
        "",
        HEAD,
        *text,
        "",
    ]
    text, worst, total = [], 0.0, 0
    for n in (1_000, 4_000):
        epsilon = 1.0
        found, weak, kept = logit_cell(n, epsilon, fits, n)
        total += kept
        worst = max(worst, *(float(shares[0, 0]) for shares in found.values()))
        text += lines(f"{n:,}, {epsilon:g}, {kept} fits", found, weak)
        print("\n".join(text[-3:]), flush=True)
    low, high = limits(fits)
    body += [
        f"## Logit, {fits:,} fits a cell",
        "",
        f"{total:,} of {2 * fits:,} fits had a covariance. 99% limits of a true 5%: {low:.3f} to {high:.3f}. "
        f"Largest size of the score test: {worst:.3f}. Power is against nulls three of the fit's own standard "
        "errors away from the truth; weak: the share of fits that are posteriors.",
        "",
        HEAD,
        *text,
        "",
    ]
    if not given.quick:
        OUT.write_text("\n".join(body), encoding="utf-8")
    print(f"{time.perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
