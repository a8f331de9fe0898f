"""Speed, as ratios measured in one run: ``make bench`` writes benchmarks/results/bench.md.

Made by `make bench`; one thread. Rows with two numbers are ratios of medians of five alternating runs of both sides: first of wall time, then of processor time, which depends less on other programs. The other rows are the best of several alternating repetitions of both sides. Memory is the largest additional memory of a call. For Parquet files it is the largest resident memory of a new process, in GiB. Exponents are least squares slopes of the logarithm of time on the logarithm of n or d, over all stated sizes. Both sides of a pair run in the same process, alternately, on the same arrays; for Parquet files each side runs in its own process (`benchmarks/table_sums.py`).
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import functools
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import numpy as np
import statsmodels.api as sm

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "inference"))

import former_score_sets
import mixing_speed
import small_fits
import table_sums
from old_sampler import OldNoise
from studies_of_speed import study_of_moments

import privinf as pi
from privinf.noise import LatticeNoise, OpenDPNoise
from studies.replications import replicate_moments
from studies.simulation import Workers, replicate

RESULTS = Path(__file__).parent / "results"


def best(functions: dict[str, Callable[[], object]], repetitions: int) -> dict[str, float]:
    """Return the shortest wall time of each function, run in turn."""
    times = {name: [] for name in functions}
    for _ in range(repetitions):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            times[name].append(time.perf_counter() - start)
    return {name: min(values) for name, values in times.items()}


def medians(functions: dict[str, Callable[[], object]], repetitions: int = 5) -> dict[str, np.ndarray]:
    """Return the median seconds of each function, (wall, processor), run in turn after a first run of each."""
    times = {name: [] for name in functions}
    for repetition in range(repetitions + 1):
        for name, function in functions.items():
            wall, processor = time.perf_counter(), time.process_time()
            function()
            spent = time.perf_counter() - wall, time.process_time() - processor
            if repetition:
                times[name].append(spent)
    return {name: np.median(values, axis=0) for name, values in times.items()}


def import_ratio(repetitions: int = 9) -> float:
    """Return wall time of ``import privinf`` over ``import statsmodels.api``, fresh interpreters."""

    def run(module: str) -> Callable[[], object]:
        return lambda: subprocess.run([sys.executable, "-c", f"import {module}"], check=True)

    empty = {"bare": lambda: subprocess.run([sys.executable, "-c", ""], check=True)}
    times = best(empty | {"ours": run("privinf"), "theirs": run("statsmodels.api")}, repetitions)
    return (times["ours"] - times["bare"]) / (times["theirs"] - times["bare"])


def lattice_rate(count: int = 4_000_000) -> float:
    """Return secure discrete Gaussian values a second, one core."""
    source = LatticeNoise()
    zeros = np.zeros((count // 10, 10))
    source.perturb(zeros[:1000], 1.0)
    return count / best({"lattice": lambda: source.perturb(zeros, 1.0)}, 3)["lattice"]


def noise_costs(count: int = 1_000_000) -> dict[str, np.ndarray]:
    """Return nanoseconds (wall, processor) a value of secure noise and of what it is compared with."""
    zeros, few = np.zeros((count // 10, 10)), np.zeros(count // 100)
    rng, ours, old, opendp = np.random.default_rng(0), LatticeNoise(), OldNoise(), OpenDPNoise()
    times = medians(
        {
            "secure": lambda: ours.perturb(zeros, 1.0),
            "old": lambda: old.perturb(zeros, 1.0),
            "normal": lambda: rng.standard_normal(zeros.shape),
            "opendp": lambda: opendp.perturb(few, 1.0),
        }
    )
    return {name: 1e9 * spent / (few if name == "opendp" else zeros).size for name, spent in times.items()}


def noise_rows() -> list[tuple[str, ...]]:
    """Return the rows of secure noise."""
    costs = noise_costs()
    return [
        ("the sampler of version 0.1 / secure noise", *ratio(costs, "old", "secure"), ">= 1.4"),
        ("OpenDP's sampler / secure noise", *ratio(costs, "opendp", "secure"), ""),
        ("secure noise / rng.standard_normal", *ratio(costs, "secure", "normal"), ""),
        ("secure noise, nanoseconds a value", *(f"{spent:.1f}" for spent in costs["secure"]), ""),
    ]


def score_costs(d: int, repetitions: int = 5, former: bool = True) -> dict[str, np.ndarray]:
    """Return seconds (wall, processor) of the score intervals of d slopes of `MomentOLS`, and of the search before."""
    rng, side = np.random.default_rng(0), 1.0 / np.sqrt(d)
    X = rng.uniform(-side, side, (20_000, d))
    y = np.clip(X @ rng.uniform(-1.0, 1.0, d) + 0.3 * rng.standard_normal(len(X)), -2.0, 2.0)
    fit = pi.MomentOLS(y, X, bounds=[(-side, side)] * d, y_bounds=(-2.0, 2.0)).fit(mu=2.0, rng=1)

    def intervals() -> object:
        vars(fit).pop("_score_tests", None)
        return fit.conf_int(method="score")

    def searched() -> object:
        with patch("privinf.results.score_inference.score_sets", former_score_sets.score_sets):
            return intervals()

    return medians({"now": intervals} | ({"former": searched} if former else {}), repetitions)


def score_rows() -> list[tuple[str, ...]]:
    """Return the rows of score intervals; the former search of 20 coefficients is run once."""
    ten, twenty, before = score_costs(10), score_costs(20, former=False), score_costs(20, 1)
    return [
        ("score intervals of 10 slopes, seconds", *(f"{spent:.3f}" for spent in ten["now"]), "<= .3"),
        ("score intervals of 20 slopes, seconds", *(f"{spent:.3f}" for spent in twenty["now"]), "<= 2"),
        ("the former search / score intervals of 10 slopes", *ratio(ten, "former", "now"), ""),
        ("the former search / score intervals of 20 slopes", *ratio(before, "former", "now"), ""),
    ]


def replication_costs(replications: int = 1000, n: int = 1000, d: int = 5) -> dict[str, np.ndarray]:
    """Return seconds (wall, processor) of many fits of `MomentOLS` at once, and one by one (a tenth, times ten)."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (replications, n, d))
    y = 0.2 * X.sum(axis=2) + 0.3 * rng.standard_normal((replications, n))
    bounds = {"bounds": [(-1.0, 1.0)] * d, "y_bounds": (-2.0, 2.0)}

    def single() -> None:
        for seed in range(replications // 10):
            pi.MomentOLS(y[seed], X[seed], **bounds).fit(mu=1.0, rng=seed).conf_int()

    def together() -> None:
        replicate_moments(y, X, mu=1.0, **bounds).conf_int()

    times = medians({"together": together, "single": single})
    return times | {"single": 10.0 * times["single"]}


def workers_costs(replications: int = 4500) -> dict[str, np.ndarray]:
    """Return seconds (wall, the busiest process's) of a study in this process, and by two workers."""
    spent: dict[str, list[tuple[float, float]]] = {"one": [], "two": []}
    with Workers(2) as workers:
        replicate(study_of_moments, 16, seed=0, progress=False, processes=workers)
        for _ in range(5):
            for name, processes in (("one", 1), ("two", workers)):
                start = time.perf_counter()
                frame = replicate(study_of_moments, replications, seed=0, progress=False, processes=processes)
                busiest = float(frame.groupby("process")["seconds"].sum().max())
                spent[name].append((time.perf_counter() - start, busiest))
    return {name: np.median(values, axis=0) for name, values in spent.items()}


def replication_rows() -> list[tuple[str, ...]]:
    """Return the rows of studies by simulation."""
    fits, workers = replication_costs(), workers_costs()
    return [
        ("1,000 fits of 1,000 x 5 at once, seconds", *(f"{s:.3f}" for s in fits["together"]), "<= .4"),
        ("the same fits one by one / at once", *ratio(fits, "single", "together"), ""),
        ("a study in one process / by two warm workers", *ratio(workers, "one", "two"), ">= 1.6"),
    ]


def logistic_costs(n: int = 1_000_000, d: int = 10) -> dict[str, np.ndarray]:
    """Return seconds (wall, processor) of statsmodels' Logit, and of both private logistic regressions."""
    rng, side = np.random.default_rng(0), 1.0 / np.sqrt(d)
    X = rng.uniform(-side, side, (n, d))
    y = (rng.random(n) < 1.0 / (1.0 + np.exp(-X @ np.resize([1.0, -0.5, 0.25], d)))).astype(np.float64)
    sent = pi.IWPGLM(y, X, radius=1.0).release(epsilon_x=20.0, epsilon_y=4.0, delta=1e-5, rng=1)
    parties = [(y[: n // 2], X[: n // 2]), (y[n // 2 :], X[n // 2 :])]
    model = pi.FederatedGLM.from_arrays(parties, bounds=[(-side, side)] * d, family="binomial")
    return medians(
        {
            "Logit": lambda: sm.Logit(y, X).fit(disp=0),
            "IWPGLM": lambda: pi.IWPGLM.from_release(sent).fit(),
            "FederatedGLM": lambda: model.fit(mu=1.0, rng=1),
        }
    )


def logistic_rows() -> list[tuple[str, ...]]:
    """Return the rows of logistic regressions of 1e6 x 10."""
    costs = logistic_costs()
    return [
        ("IWPGLM by Newton / statsmodels Logit, 1e6 x 10", *ratio(costs, "IWPGLM", "Logit"), "<= 1.2"),
        (
            "FederatedGLM of two sites / statsmodels Logit, 1e6 x 10",
            *ratio(costs, "FederatedGLM", "Logit"),
            "<= 1",
        ),
    ]


def ratio(costs: dict[str, np.ndarray], one: str, other: str) -> list[str]:
    """Return how often `other` goes into `one`, by the wall's time and by the processor's."""
    return [f"{share:.2f}" for share in costs[one] / costs[other]]


def moment_rows() -> list[tuple[str, ...]]:
    """Return the rows of central second moments: time over X'X, memory over the bytes of X."""
    rows = []
    for n, d, asked in ((1_000_000, 10, "<= 3"), (200_000, 50, "<= 3"), (20_000, 200, "<= 3")):
        rng = np.random.default_rng(0)
        X, y = rng.uniform(-1.0, 1.0, (n, d)), rng.uniform(-2.0, 2.0, n)
        model = pi.MomentOLS(y, X, bounds=[(-1.0, 1.0)] * d, y_bounds=(-2.0, 2.0))
        product, release = functools.partial(np.matmul, X.T, X), functools.partial(model.release, mu=1.0)
        costs = medians({"product": product, "release": release})
        what = f"central moments of {n:,} x {d}"
        rows += [
            (f"{what} / X'X", *ratio(costs, "release", "product"), asked),
            (f"{what}, memory taken on top / X", f"{peak(release) / X.nbytes:.2f}", "", "<= 0.3"),
        ]
    return rows


def bounded(n: int, d: int) -> tuple[np.ndarray, np.ndarray, dict[str, object]]:
    """Return a response, columns, and their bounds."""
    rng, side = np.random.default_rng(0), 1.0 / np.sqrt(d)
    X = rng.uniform(-side, side, (n, d))
    y = np.clip(X @ np.resize([1.0, -0.5, 0.25], d) + 0.3 * rng.standard_normal(n), -2.0, 2.0)
    return y, X, {"bounds": [(-side, side)] * d, "y_bounds": (-2.0, 2.0)}


def peer_rows(n: int = 1_000_000, d: int = 10) -> list[tuple[str, ...]]:
    """Return the rows of regressions of one table, set against those of statsmodels and scikit-learn."""
    from sklearn.linear_model import LinearRegression, LogisticRegression

    y, X, bounds = bounded(n, d)
    b = (np.random.default_rng(1).random(n) < 1.0 / (1.0 + np.exp(-2.0 * y))).astype(np.float64)
    with_one = sm.add_constant(X)
    linear: dict[str, Callable[[], object]] = {
        "MomentOLS": lambda: pi.MomentOLS(y, X, **bounds).fit(mu=1.0).bse,
        "OLS": lambda: pi.OLS(y, X, **bounds).fit(mu=1.0).bse,
        "statsmodels OLS": lambda: sm.OLS(y, with_one).fit().bse,
        "statsmodels OLS, HC0": lambda: sm.OLS(y, with_one).fit(cov_type="HC0").bse,
        "LinearRegression": lambda: LinearRegression().fit(X, y),
    }
    curved: dict[str, Callable[[], object]] = {
        "Logit": lambda: pi.Logit(b, X, bounds=bounds["bounds"]).fit(mu=1.0).bse,
        "statsmodels Logit": lambda: sm.Logit(b, with_one).fit(disp=0).bse,
        "LogisticRegression": lambda: LogisticRegression(C=np.inf).fit(X, b),
    }
    rows, size = [], f"{n:,} x {d}"
    for sides, pairs in (
        (
            linear,
            (
                ("MomentOLS", "statsmodels OLS"),
                ("MomentOLS", "LinearRegression"),
                ("OLS", "statsmodels OLS, HC0"),
                ("OLS", "LinearRegression"),
            ),
        ),
        (curved, (("Logit", "statsmodels Logit"), ("Logit", "LogisticRegression"))),
    ):
        costs, peaks = medians(sides), {name: peak(run) for name, run in sides.items()}
        for one, other in pairs:
            library = "" if other.startswith("statsmodels") else "scikit-learn "
            rows += [
                (f"{one} / {library}{other}, {size}", *ratio(costs, one, other), ""),
                (
                    "the same, memory taken on top / X: ours; theirs",
                    f"{peaks[one] / X.nbytes:.2f}; {peaks[other] / X.nbytes:.2f}",
                    "",
                    "",
                ),
            ]
    return rows


def table_rows(n: int = 1_000_000) -> list[tuple[str, ...]]:
    """Return the rows of a Parquet file of 20 columns, set against polars' sums over the same file."""
    with tempfile.TemporaryDirectory() as place:
        path, small = Path(place) / f"{n}.parquet", Path(place) / "small.parquet"
        table_sums.write(path, n)
        table_sums.write(small, table_sums.WARM)
        found = table_sums.measured(path, small, 5)
    costs = {side: np.array([one["wall"], one["cpu"]]) for side, one in found.items()}
    passes = found["OLS"]["value"]
    costs["a pass of OLS"] = costs["OLS"] / passes
    what = f"Parquet, {n:,} x 20"
    return [
        (f"{what}: MomentOLS / polars' streaming sums", *ratio(costs, "ours", "sums"), ""),
        (f"{what}: MomentOLS / polars' batches and X'X", *ratio(costs, "ours", "batches"), "<= 1.5"),
        (f"{what}: MomentOLS of a LazyFrame / the same", *ratio(costs, "ours, lazy", "batches"), "<= 1.5"),
        (
            f"{what}: OLS / its {passes:.0f} passes by the same",
            *ratio(costs, "a pass of OLS", "batches"),
            "<= 1.5",
        ),
        (
            f"{what}, peak memory in GiB: MomentOLS; OLS; sums; batches",
            "; ".join(f"{found[side]['peak']:.2f}" for side in ("ours", "OLS", "sums", "batches")),
            "",
            "< 1",
        ),
    ]


def mixing_rows(n: int = 200_000, k: int = 500) -> list[tuple[str, ...]]:
    """Return the rows of mixing, set against products with a dense matrix of signs as one writes it first."""
    data = mixing_speed.records(n)
    kinds = {kind: functools.partial(mixing_speed.mix, kind, data, k) for kind in mixing_speed.KINDS}
    naive = functools.partial(mixing_speed.naive, data, k)
    costs = medians({**kinds, "naive": naive}, 3)
    return [
        row
        for kind, run in kinds.items()
        for row in (
            (
                f"naive dense mixing of {n:,} x 11, k = {k} / {kind}",
                *ratio(costs, "naive", kind),
                f">= {mixing_speed.AGAINST_NAIVE[kind]:.0f}" if kind in mixing_speed.AGAINST_NAIVE else "",
            ),
            (
                "the same, memory taken on top / X: naive; ours",
                f"{peak(naive) / data.nbytes:.2f}; {peak(run) / data.nbytes:.2f}",
                "",
                "",
            ),
        )
    ]


def growth_rows() -> list[tuple[str, ...]]:
    """Return the rows of exponents, ours and of what they are set against."""
    counts, widths = (50_000, 100_000, 200_000, 400_000), (10, 20, 40, 80)
    cells = {
        f"n, {counts[0]:,} to {counts[-1]:,}, d = 10": ([(n, 10) for n in counts], np.log(counts)),
        f"d, {widths[0]} to {widths[-1]}, n = 40,000": ([(40_000, d) for d in widths], np.log(widths)),
    }
    rows = []
    for what, (sizes, logs) in cells.items():
        costs = [growth_costs(n, d) for n, d in sizes]
        for name in costs[0]:
            slopes = np.polyfit(logs, np.log([one[name] for one in costs]), 1)[0]
            rows.append((f"{name}: exponent in {what}", *(f"{slope:.2f}" for slope in slopes), ""))
    return rows


def growth_costs(n: int, d: int) -> dict[str, np.ndarray]:
    """Return seconds (wall, processor) at one size."""
    y, X, bounds = bounded(n, d)
    model, local = pi.MomentOLS(y, X, **bounds), pi.ModulatedOLS(y, X, radius=1.0, response="public")
    return medians(
        {
            "X'X by numpy": lambda: X.T @ X,
            "statsmodels OLS": lambda: sm.OLS(y, X).fit().bse,
            "central moments": lambda: model.release(mu=8.0),
            "MomentOLS": lambda: model.fit(mu=8.0).bse,
            "OLS": lambda: pi.OLS(y, X, **bounds).fit(mu=8.0).bse,
            "numpy's normals": lambda: np.random.default_rng(0).standard_normal((n, d)),
            "a local release": lambda: local.release(epsilon=8.0, delta=1e-6),
        },
        3,
    )


def peak(function: Callable[[], object]) -> int:
    """Return the most bytes that a call held at once, beside what was there."""
    tracemalloc.start()
    function()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most


def release_ratio(n: int = 1_000_000, d: int = 10) -> float:
    """Return a seeded release of n x d over ``rng.standard_normal`` of that shape."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.3, 0.3, (n, d))
    model = pi.ModulatedOLS(X[:, 0], X, radius=1.0, response="public")
    times = best(
        {
            "release": lambda: model.release(epsilon=4.0, delta=1e-5, rng=1),
            "normal": lambda: rng.standard_normal((n, d)),
        },
        5,
    )
    return times["release"] / times["normal"]


def fit_ratio(n: int = 1_000_000, d: int = 10) -> float:
    """Return a fit from an n x d release over a statsmodels OLS HC0 fit of the same shape."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.3, 0.3, (n, d))
    y = X.sum(axis=1) + rng.standard_normal(n)
    release = pi.ModulatedOLS(y, X, radius=1.0, response="public").release(epsilon=16.0, delta=1e-5, rng=1)
    times = best(
        {
            "ours": lambda: pi.ModulatedOLS.from_release(release).fit().bse,
            "statsmodels": lambda: sm.OLS(y, X).fit(cov_type="HC0").bse,
        },
        5,
    )
    return times["ours"] / times["statsmodels"]


def main() -> None:
    """Measure everything and write the table."""
    rows = [
        *small_fits.small_rows(),
        ("secure noise, values a second on one core", f"{lattice_rate():.3g}", "", ">= 2e6"),
        *noise_rows(),
        *score_rows(),
        *replication_rows(),
        *logistic_rows(),
        *moment_rows(),
        *table_rows(),
        *peer_rows(),
        *mixing_rows(),
        *growth_rows(),
        ("seeded release of 1e6 x 10 / rng.standard_normal", f"{release_ratio():.2f}", "", "<= 2.5"),
        ("fit of a 1e6 x 10 release / statsmodels OLS HC0", f"{fit_ratio():.2f}", "", "<= 1.0"),
        ("import privinf / import statsmodels.api", f"{import_ratio():.2f}", "", "<= 0.8"),
    ]
    lines = ["# Speed", "", __doc__.partition("\n\n")[2].strip(), ""]
    lines += ["| what | measured | by the processor's time | asked |", "|---|---|---|---|"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    text = "\n".join(lines) + "\n"
    print(text)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "bench.md").write_text(text)


if __name__ == "__main__":
    main()
