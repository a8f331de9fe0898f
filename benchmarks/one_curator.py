"""Weak directions, narrower bounds, and the time of `privinf.OLS`: `python benchmarks/one_curator.py`.

Writes benchmarks/results/one_curator.md. Cells of weak directions: a column that is 1 in 1% of rows, two columns
correlated .95, bounds of x ten and three times too wide; n so that the ratio of the smallest eigenvalue of the
partialled Gram matrix to the noise sd of an entry, were all of mu spent on it, is 3 to 12.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import statsmodels.api as sm
from scipy.stats import binom, f

import privinf as pi
from privinf.accounting import calibrate_mu
from privinf.glm.queries import LeastSquaresQueries

RESULTS = Path(__file__).parent / "results" / "one_curator.md"
DELTA = 1e-6
CELLS = [
    ("rare", 5, 4.0),
    ("rare", 10, 4.0),
    ("rare", 20, 4.0),
    ("pair", 2, 1.0),
    ("pair", 5, 1.0),
    ("wide10", 1, 4.0),
    ("wide10", 3, 4.0),
    ("wide3", 3, 1.0),
]


def draw(kind, d, n, rng):
    """Return X, y and the true coefficients."""
    X = rng.uniform(-1, 1, (n, d))
    slopes = 0.3 * (-1.0) ** np.arange(d)
    if kind == "rare":
        X[:, 0] = np.where(rng.uniform(size=n) < 0.01, 1.0, -1.0)
        slopes = np.append(0.6, slopes[:-1])
    elif kind == "pair":
        X[:, 1] = (0.95 * X[:, 0] + math.sqrt(1 - 0.95**2) * X[:, 1]) / 1.27
        slopes = np.concatenate([[0.8, -0.8], slopes[2:]])
    else:
        times = float(kind.removeprefix("wide"))
        X /= times
        slopes = times * np.append(0.4, np.abs(slopes[1:]))
    truth = np.append(0.1, slopes / (1.0 + 0.1 * d))
    return X, truth[0] + X @ truth[1:] + 0.3 * rng.standard_normal(n), truth


def size_for(kind, d, mu, ratio):
    """Return n for a predicted ratio."""
    X = draw(kind, d, 200_000, np.random.default_rng(0))[0]
    smallest = np.linalg.eigvalsh(np.cov(X.T).reshape(d, d))[0]
    return int(ratio * math.sqrt(2.0) * (1.0 + 0.87**2) * (d + 1) / mu / smallest)


def cell(kind, d, epsilon, ratio, replications):
    """Return n, the worst miss and the joint rejections of unflagged fits, and the share of flagged ones."""
    n = size_for(kind, d, calibrate_mu(epsilon=epsilon, delta=DELTA), ratio)
    missed, joint, flagged = np.zeros(d + 1), 0, 0
    for number in range(replications):
        rng = np.random.default_rng([31, number])
        X, y, truth = draw(kind, d, n, rng)
        model = pi.OLS(y, pi.add_constant(X), bounds=[(-1, 1)] * d, y_bounds=(-3, 3))
        fit = model.fit(epsilon=epsilon, delta=DELTA, rng=rng)
        if fit.identification.weak:
            flagged += 1
            continue
        ends = fit.conf_int().to_numpy()
        missed += (truth < ends[:, 0]) | (truth > ends[:, 1])
        error = fit.params.to_numpy() - truth
        statistic = error @ np.linalg.solve(fit.cov_params(), error) / (d + 1)
        joint += f.sf(statistic, d + 1, fit.df_resid) < 0.05
    kept = replications - flagged
    return n, missed.max() / max(kept, 1), joint / max(kept, 1), flagged / replications


@contextmanager
def whole_gram():
    """Take the Gram matrix of all rows for the Hessian of the clipped scores, as a recipe before this one."""
    honest = LeastSquaresQueries.together

    def together(asked, wanted):
        _, share, label, args = wanted[0]
        told = {name: value for name, value in args.items() if name not in ("low", "high", "weight")}
        return honest(asked, [("whitened.gram", share, label, told), *wanted[1:]])

    LeastSquaresQueries.together = together
    try:
        yield
    finally:
        LeastSquaresQueries.together = honest


def weak_directions(replications):
    """Yield lines of the table of weak directions."""
    yield f"## Weak directions, {replications} fits a cell\n"
    limit = binom.ppf(0.99, replications, 0.05) / replications
    yield f"Of unflagged fits; one cell's own 99% binomial limit is {limit:.3f}.\n"
    yield "| design | d | eps | ratio | n | worst miss | joint Wald | flagged |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for kind, d, epsilon in CELLS:
        for ratio in (3, 5, 8, 12):
            n, worst, joint, flagged = cell(kind, d, epsilon, ratio, replications)
            yield f"| {kind} | {d} | {epsilon:g} | {ratio} | {n} | {worst:.3f} | {joint:.3f} | {flagged:.2f} |"
    yield "\n## The Gram matrix of all rows in place of the Hessian of the clipped scores\n"
    yield "| design | d | eps | ratio | worst miss | joint Wald | flagged |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    with whole_gram():
        for d in (5, 10):
            for ratio in (8, 12):
                _, worst, joint, flagged = cell("rare", d, 4.0, ratio, replications)
                yield f"| rare | {d} | 4 | {ratio} | {worst:.3f} | {joint:.3f} | {flagged:.2f} |"


def narrower_bounds(replications):
    """Yield lines of the table of `adapt_bounds`."""
    truth = np.array([0.2, 0.5, -0.3, 0.2])
    yield f"\n## Narrower bounds by row weights, n = 20,000, eps 1, {replications} fits a cell\n"
    yield "| bounds of x and y, times too wide | adapt_bounds | worst coverage | width over HC0 |"
    yield "| --- | --- | --- | --- |"
    for times in (1, 3, 10):
        for adapt in (False, True):
            hits, widths = np.zeros(4), []
            for number in range(replications):
                rng = np.random.default_rng([32, number])
                X = pi.add_constant(rng.uniform(-1, 1, (20_000, 3)))
                y = X.to_numpy() @ truth + 0.3 * rng.standard_normal(len(X))
                model = pi.OLS(y, X, bounds=[(-times, times)] * 3, y_bounds=(-2 * times, 2 * times))
                ends = model.fit(epsilon=1.0, delta=DELTA, rng=rng, adapt_bounds=adapt).conf_int().to_numpy()
                hits += (ends[:, 0] <= truth) & (truth <= ends[:, 1])
                widths.append((ends[:, 1] - ends[:, 0]) / 3.92 / sm.OLS(y, X).fit(cov_type="HC0").bse)
            yield f"| {times} | {adapt} | {hits.min() / replications:.3f} | {np.median(widths):.2f} |"


def times(repeats=25):
    """Yield lines of the time of one fit and its summary, beside statsmodels."""
    rng = np.random.default_rng(0)
    X = pi.add_constant(rng.uniform(-1, 1, (1000, 5)))
    y = X.to_numpy()[:, 1:] @ np.full(5, 0.2) + 0.3 * rng.standard_normal(1000)
    model = pi.OLS(y, X, bounds=[(-1, 1)] * 5, y_bounds=(-2, 2))
    calls = {
        "privinf.OLS, eps 4": lambda: str(model.fit(epsilon=4.0, delta=1e-5, rng=0).summary()),
        "statsmodels OLS, HC0": lambda: str(sm.OLS(y, X).fit(cov_type="HC0").summary()),
    }
    taken = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            taken[name].append(time.perf_counter() - start)
    ours, theirs = (np.median(values) for values in taken.values())
    yield f"\n## Time of fit().summary() as text, n = 1,000, d = 5, medians of {repeats} in turn\n"
    yield f"privinf.OLS {1e3 * ours:.1f} ms, statsmodels {1e3 * theirs:.1f} ms: ratio {ours / theirs:.2f}."


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--replications", type=int, default=300)
    parser.add_argument("--only", choices=["weak", "narrow", "times"])
    chosen = parser.parse_args()
    parts = {
        "weak": lambda: weak_directions(chosen.replications),
        "narrow": lambda: narrower_bounds(chosen.replications),
        "times": times,
    }
    lines = [
        "# One curator: weak directions, narrower bounds, time\n",
        f"`python benchmarks/one_curator.py --replications {chosen.replications}`\n",
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, part in parts.items():
            for line in part() if chosen.only in (None, name) else ():
                print(line, flush=True)
                lines.append(line)
    if chosen.only is None:
        RESULTS.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
