"""Joint intervals at 95%: how often all of them hold, by every method that a result offers.

    python benchmarks/simultaneous.py                    (a quarter of an hour on one core)
    python benchmarks/simultaneous.py --fits 50 --only mixing          (or pairs, or lasso)

Tables go to benchmarks/results/simultaneous_*.md.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import time
import warnings
from collections import defaultdict
from functools import partial

import numpy as np
from tables import RESULTS, limits, write_table

import privinf as pi

ALPHA, DELTA = 0.05, 1e-6
SLOPES = np.array([1.0, -1.0, 0.5, 0.0])
PAIRS_DRAWS, JOINT_DRAWS = 99, 1_999
# n, k and epsilon of every party; few rows are where the law of the t statistic matters: six times the fits.
MIXED = [(20_000, 60, 16.0), (20_000, 300, 16.0), (100_000, 300, 4.0)]
FEW, MORE = 60, 6
# Five coefficients: fewer than 15 rows are refused.
PAIRS = [(20_000, k, 16.0) for k in (15, 30, 60, 300)]
PEOPLE, COLUMNS, TARGETS = 8_000, 15, 6
EPSILONS = [4.0]


def held(ends: np.ndarray, truth: np.ndarray) -> bool:
    """Return whether all intervals hold."""
    return bool(((ends[:, 0] <= truth) & (truth <= ends[:, 1])).all())


def mixed_release(n: int, k: int, epsilon: float, seed: int) -> tuple[pi.Release, np.ndarray]:
    """Return one release of mixed rows, skewed errors, slopes on [-.5, .5], and these people's coefficients."""
    rng = np.random.default_rng([seed, n, k])
    X = rng.uniform(-0.5, 0.5, (n, len(SLOPES)))
    errors = 0.3 * (rng.exponential(1.0, n) - 1.0)
    y = np.clip(X @ SLOPES + errors, -2.0, 2.0)
    own = np.linalg.lstsq(np.column_stack([np.ones(n), X]), y, rcond=None)[0]
    model = pi.RMGMOLS(
        y,
        X,
        parties={"a": [0, 1], "b": [2, 3], "c": ["y"]},
        bounds=[(-0.5, 0.5)] * len(SLOPES),
        y_bounds=(-2.0, 2.0),
        k=k,
        seed=seed,
    )
    return model.release(epsilon=epsilon, delta=DELTA, rng=seed), own


def pairs_fit(n: int, k: int, epsilon: float, seed: int) -> dict[str, list[bool]]:
    """Return which of the four slopes' own intervals held in one fit of mixed rows."""
    found = defaultdict(list)
    result = pi.RMGMOLS.from_release(mixed_release(n, k, epsilon, seed)[0], label="y").fit()
    try:
        drawn = result.bootstrap(PAIRS_DRAWS, "pairs", rng=seed)
    except (pi.errors.ArgumentError, pi.errors.NotAvailableError):
        return found
    for name, frame in (
        ("t", result.conf_int()),
        ("pairs, studentized", drawn.conf_int(ALPHA)),
        ("pairs, percentile", drawn.conf_int(ALPHA, "percentile")),
    ):
        low, high = frame.to_numpy()[1:].T
        found[name].append(float(((low <= SLOPES) & (high >= SLOPES)).mean()))
        found[f"{name}: width"].append(float((high - low).mean()))
    return found


def mixed_fit(n: int, k: int, epsilon: float, seed: int) -> dict[str, list[bool]]:
    """Return what held in one fit of mixed rows, for both targets."""
    release, own = mixed_release(n, k, epsilon, seed)
    found = defaultdict(list)
    for target, truth in (("population", np.append(0.0, SLOPES)), ("sample", own)):
        result = pi.RMGMOLS.from_release(release, label="y").fit(target=target)
        try:
            each = held(result.conf_int().to_numpy()[1:2], truth[1:2])
        except pi.errors.NotAvailableError:
            continue
        found[f"{target}, one slope, t"].append(each)
        ends = result.bootstrap(999, "multiplier", rng=seed).conf_int(ALPHA).to_numpy()
        found[f"{target}, one slope, multiplier"].append(held(ends[1:2], truth[1:2]))
        for method in ("gaussian", "multiplier"):
            joint = result.simultaneous(ALPHA, method=method, draws=JOINT_DRAWS, rng=seed)
            ends = joint.conf_int().to_numpy()
            found[f"{target}, all 5, {method}"].append(held(ends, truth))
    return found


def lasso_fit(epsilon: float, seed: int) -> dict[str, list[bool]]:
    """Return what held in one fit of the debiased lasso: AR(.5) columns, 4 signals, 6 named targets."""
    rng = np.random.default_rng([seed, 7])
    X = np.empty((PEOPLE, COLUMNS))
    X[:, 0] = rng.standard_normal(PEOPLE)
    for j in range(1, COLUMNS):
        X[:, j] = 0.5 * X[:, j - 1] + np.sqrt(0.75) * rng.standard_normal(PEOPLE)
    X = np.clip(X, -4.0, 4.0)
    beta = np.zeros(COLUMNS)
    beta[[0, 4, 8, 12]] = [0.5, -0.5, 0.3, 0.3]
    y = X @ beta + rng.standard_normal(PEOPLE)
    names = [f"x{j + 1}" for j in range(TARGETS)]
    model = pi.DebiasedLasso(y, X, bounds=[(-4.0, 4.0)] * COLUMNS, y_bounds=(-8.0, 8.0))
    truth, found = beta[:TARGETS], defaultdict(list)
    try:
        result = model.fit(epsilon=epsilon, delta=DELTA, targets=names, sparsity=6, rng=seed)
    except pi.errors.NotAvailableError:
        return found
    found["one target, normal"].append(held(result.conf_int().to_numpy()[:1], truth[:1]))
    joint = result.simultaneous(ALPHA, rng=seed)
    found["all 6, simulation"].append(held(joint.conf_int().to_numpy(), truth))
    found["all 6, pointwise"].append(held(result.conf_int().to_numpy(), truth))
    return found


def lines(setting: dict[str, object], fits: int, one) -> list[dict[str, object]]:
    """Return a row for every quantity and method: the share that held, and its 99% limits at 95%."""
    found = defaultdict(list)
    for seed in range(fits):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for name, values in one(seed).items():
                found[name] += values
    rows = []
    for name, values in found.items():
        low, high = limits(1.0 - ALPHA, len(values), 1)
        rows.append(
            {
                **setting,
                "what, method": name,
                "fits": len(values),
                "held": float(np.mean(values)),
                "99% limits of 0.95": f"{low:.3f} to {high:.3f}",
            }
        )
    return rows


def pairs_lines(setting: dict[str, object], fits: int) -> list[dict[str, object]]:
    """Return a row for every method: the mean share of four slopes that held, and the median width by t's."""
    found = defaultdict(list)
    for seed in range(fits):
        for name, values in pairs_fit(*setting.values(), seed).items():
            found[name] += values
    low, high = limits(1.0 - ALPHA, len(found["t"]), 1)
    return [
        {
            **setting,
            "method": name,
            "fits": len(found[name]),
            "held, mean of four slopes": float(np.mean(found[name])),
            "± se": float(np.std(found[name]) / len(found[name]) ** 0.5),
            "99% limits of 0.95, one slope": f"{low:.3f} to {high:.3f}",
            "width / t's, median": float(np.median(np.divide(found[f"{name}: width"], found["t: width"]))),
        }
        for name in ("t", "pairs, studentized", "pairs, percentile")
    ]


def table(name: str, title: str, note: str, settings: list[dict[str, object]], fits: int, one) -> None:
    """Write one table, a setting at a time."""
    started, rows = time.monotonic(), []
    for setting in settings:
        more = MORE if setting.get("k") == FEW else 1
        rows += lines(setting, fits * more, partial(one, *setting.values()))
        write_table(
            RESULTS / f"simultaneous_{name}.md",
            title,
            f"benchmarks/simultaneous.py --only {name}",
            rows,
            time.monotonic() - started,
            note,
        )


def pairs_table(fits: int) -> None:
    """Write the table of the rows drawn again."""
    started, rows = time.process_time(), []
    warnings.simplefilter("ignore")
    for n, k, epsilon in PAIRS:
        rows += pairs_lines({"n": n, "k": k, "epsilon": epsilon}, fits)
        write_table(
            RESULTS / "simultaneous_pairs.md",
            "Intervals from mixed rows drawn again",
            "benchmarks/simultaneous.py --only pairs",
            rows,
            time.process_time() - started,
            f"The design of simultaneous_mixing.md; the k rows drawn again {PAIRS_DRAWS} times and solved, target population, "
            "five coefficients. Means over four slopes of a fit, and their standard error over fits. A draw of k rows has about 0.63 k different rows. Intervals become long if this number is near the number of coefficients, and are refused below three rows per coefficient.",
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fits", type=int, default=500)
    parser.add_argument("--only", choices=["mixing", "pairs", "lasso"])
    asked = parser.parse_args()
    if asked.only in (None, "pairs"):
        pairs_table(asked.fits)
    if asked.only in (None, "mixing"):
        note = (
            "Slopes 1, -1, .5, 0 of columns on [-.5, .5], errors .3 (Exp(1) - 1), three parties, each at "
            f'epsilon, delta {DELTA:g}, countsketch, a new mixing seed in every fit. "multiplier" uses normal '
            "multipliers on the k rows, with normal draws of the noise of the means, and of the sampling for the population. "
            'The page simultaneous_pairs.md has the results of "pairs". "gaussian": '
            "multivariate t of k - d degrees of freedom. Fits without a covariance are left out."
        )
        settings = [{"n": n, "k": k, "epsilon": epsilon} for n, k, epsilon in MIXED]
        title = "Joint and bootstrap intervals from mixed rows"
        table("mixing", title, note, settings, asked.fits, mixed_fit)
    if asked.only in (None, "lasso"):
        note = (
            f"n = {PEOPLE:,}, p = {COLUMNS}, AR(.5) columns, signals .5, -.5, .3, .3, normal errors; the first "
            f"{TARGETS} columns named as targets, two with a signal, sparsity 6, delta {DELTA:g}. The simulation "
            'gives the same result as a multiplier bootstrap with normal multipliers. "pointwise", for comparison, is the '
            "joint coverage of six intervals with a nominal level of 95% each. Fits whose noise hides a slope are left out."
        )
        settings = [{"epsilon": epsilon} for epsilon in EPSILONS]
        title = "Joint intervals of the debiased lasso"
        table("lasso", title, note, settings, asked.fits, lasso_fit)


if __name__ == "__main__":
    main()
