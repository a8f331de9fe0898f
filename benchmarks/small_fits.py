"""Time of small fits, from a formula to the printed summary, over statsmodels' time for the same.

    python benchmarks/small_fits.py          (processor time: medians of both sides, run in turn in one process)

Rows have five columns, epsilon is 4, and every fit has noise of its own. A refusal is a fit without intervals at epsilon 0.01: it raises before a release.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import contextlib
import itertools
import statistics
import time
import warnings
from collections.abc import Callable

import numpy as np
import pandas as pd
import statsmodels.formula.api as smf

import privinf as pi
from privinf.errors import NotAvailableError

FORMULA = "y ~ a + b + c + d + e"
COLUMNS = list("abcde")
SLOPES = np.array([0.5, -0.3, 0.2, 0.0, 0.1])
BOUNDS = dict.fromkeys(COLUMNS, (-1.0, 1.0))
# Times statsmodels' that are asked for, at 1,000 and at 20,000 rows.
ASKED = {"OLS": (1.5, 1.0), "Logit": (1.5, 1.0), "Poisson": (2.0, 1.2)}
REFUSAL_MS = 10.0  # milliseconds of a refusal that are asked for
LITTLE = 0.01  # epsilon of a fit that is refused


def table(kind: str, n: int) -> tuple[pd.DataFrame, pi.Schema]:
    """Return simulated rows of a model, and their schema."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.uniform(-1.0, 1.0, (n, len(COLUMNS))), columns=COLUMNS)
    eta = frame.to_numpy() @ SLOPES
    if kind == "OLS":
        y = np.clip(eta + 0.3 * rng.standard_normal(n), -2.0, 2.0)
        return frame.assign(y=y), pi.Schema(BOUNDS | {"y": (-2.0, 2.0)})
    if kind == "Logit":
        y = (rng.random(n) < 1.0 / (1.0 + np.exp(-eta))).astype(float)
        return frame.assign(y=y), pi.Schema(BOUNDS | {"y": [0, 1]})
    return frame.assign(y=rng.poisson(np.exp(eta)).astype(float)), pi.Schema(BOUNDS | {"y": (0.0, 20.0)})


def ours(kind: str, n: int, epsilon: float = 4.0) -> Callable[[], object]:
    """Return a private fit with its summary."""
    frame, schema = table(kind, n)
    model = getattr(pi, kind)
    seeds = itertools.count()

    def run() -> str:
        built = model.from_formula(FORMULA, frame, schema=schema)
        return str(built.fit(epsilon=epsilon, delta=1e-6, rng=next(seeds)).summary())

    return run


def theirs(kind: str, n: int) -> Callable[[], object]:
    """Return statsmodels' fit with its summary; robust covariances, as ours are."""
    frame, _ = table(kind, n)
    model = getattr(smf, kind.lower())
    options = {"cov_type": "HC0"} if kind == "OLS" else {"cov_type": "HC0", "disp": 0}
    return lambda: str(model(FORMULA, frame).fit(**options).summary())


def refusal(kind: str, n: int) -> Callable[[], object]:
    """Return a fit that is refused."""
    run = ours(kind, n, LITTLE)

    def refused() -> None:
        with contextlib.suppress(NotAvailableError):
            run()
            raise AssertionError("the fit is not refused")

    return refused


def processor_times(functions: dict[str, Callable[[], object]], repetitions: int) -> dict[str, list[float]]:
    """Return seconds of the processor of each function, run in turn after a first run of each."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    for repetition in range(repetitions + 1):
        for name, function in functions.items():
            begun = time.process_time()
            function()
            if repetition:
                times[name].append(time.process_time() - begun)
    return times


def small_rows(repetitions: int = 40) -> list[tuple[str, ...]]:
    """Return the rows of `make bench`: what, measured, by the processor's time, asked."""
    warnings.simplefilter("ignore")
    rows = []
    for kind, asked in ASKED.items():
        for n, most in zip((1_000, 20_000), asked, strict=True):
            times = processor_times({"ours": ours(kind, n), "theirs": theirs(kind, n)}, repetitions)
            ms = {side: 1e3 * statistics.median(spent) for side, spent in times.items()}
            what = f"{kind}, formula to summary, {n:,} x 5 / statsmodels ({ms['ours']:.1f} / {ms['theirs']:.1f} ms)"
            rows.append((what, "", f"{ms['ours'] / ms['theirs']:.2f}", f"<= {most:g}"))
    for kind in ASKED:
        times = processor_times({"refused": refusal(kind, 1_000)}, repetitions)
        rows.append(
            (
                f"a refused fit of {kind}, 1,000 x 5, milliseconds",
                "",
                f"{1e3 * statistics.median(times['refused']):.1f}",
                f"<= {REFUSAL_MS:g}",
            )
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=40)
    for row in small_rows(parser.parse_args().repetitions):
        print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
