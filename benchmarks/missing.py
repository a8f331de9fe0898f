"""Regressions on rows of which some lack values: ``python benchmarks/missing.py [FITS] [--few]``.

Fits with ``missing="drop"``, delta = 1e-6, are compared with two others on the same rows: of all rows before values
were removed (*whole*), and of the complete rows with their number told (*told*). Values are missing in the response, in
x or in the factor g, each in a third of the incomplete rows: at random, or more often where x is large (*by x*; x
itself is then always there). The truth is the coefficients that the rows are drawn with.

Single fits are stored in benchmarks/results/missing_fits.csv as they end, and another run goes on with what is
stored. The page benchmarks/results/missing.md is written at the end; with FITS = 0 from the stored fits alone.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import sys
import warnings
import zlib
from pathlib import Path

import numpy as np
import pandas as pd

import privinf as pi
from privinf.errors import NotAvailableError
from studies.simulation import binomial_limits

RESULTS = Path(__file__).parent / "results"
STORE = RESULTS / "missing_fits.csv"
PAGE = RESULTS / "missing.md"
REAL_TABLES = "## Real tables"  # the section that missing_real.py writes
TRUTH = {"Intercept": 0.4, "g[T.b]": 0.3, "g[T.c]": -0.3, "x": 0.7}
SCHEMA = pi.Schema({"y": (-5.0, 6.0), "b": (0, 1), "k": (0, 25), "x": (-1.0, 1.0), "g": ["a", "b", "c"]})
MODELS = {
    "MomentOLS": (pi.MomentOLS, "y ~ x + g", {"cov_type": "HC0"}),
    "OLS": (pi.OLS, "y ~ x + g", {}),
    "Logit": (pi.Logit, "b ~ x + g", {}),
    "Poisson": (pi.Poisson, "k ~ x + g", {}),
}
# (rows, epsilon) by how many fits are asked for: large tables take longest.
SIZES = {
    "few": [(5_000, 4.0), (20_000, 1.0)],
    "all": [(2_000, 4.0), (5_000, 4.0), (20_000, 1.0), (50_000, 1.0)],
}
GAPS = [(0.05, "at random"), (0.2, "at random"), (0.5, "at random"), (0.5, "by x")]
FITS = 200  # by default
CUT = 1.959963984540054


def rows(rng: np.random.Generator, n: int) -> pd.DataFrame:
    """Return complete rows: uneven errors of y, a 0/1 response b, counts k."""
    x = rng.uniform(-1.0, 1.0, n)
    codes = rng.integers(0, 3, n)
    mean = np.array([0.4, 0.7, 0.1])[codes] + 0.7 * x
    return pd.DataFrame(
        {
            "y": np.clip(mean + (0.4 + 0.6 * np.abs(x)) * rng.standard_normal(n), -5.0, 6.0),
            "b": (rng.random(n) < 1.0 / (1.0 + np.exp(-mean))).astype(float),
            "k": np.minimum(rng.poisson(np.exp(mean)), 25).astype(float),
            "x": x,
            "g": np.array(list("abc"), dtype=object)[codes],
        }
    )


def with_gaps(frame: pd.DataFrame, rng: np.random.Generator, share: float, kind: str) -> pd.DataFrame:
    """Return rows of which a share lack a value."""
    by_x = kind == "by x"
    lacking = rng.random(len(frame)) < share * (1.0 + 0.9 * frame["x"] if by_x else 1.0)
    which = rng.integers(0, 2 if by_x else 3, len(frame))
    frame = frame.copy()
    for column in ("y", "b", "k"):
        frame.loc[lacking & (which == 0), column] = np.nan
    frame.loc[lacking & (which == 1), "g"] = None
    frame.loc[lacking & (which == 2), "x"] = np.nan
    return frame


def fitted(
    name: str, frame: pd.DataFrame, epsilon: float, seed: int, **missing: str
) -> list[tuple[float, float]]:
    """Return (covered, width) of each coefficient; nan where there is no finite interval."""
    model, formula, options = MODELS[name]
    try:
        result = model.from_formula(formula, frame, schema=SCHEMA, **missing).fit(
            epsilon=epsilon, delta=1e-6, rng=seed, **options
        )
        ends = result.conf_int()
    except NotAvailableError:
        return [(np.nan, np.nan)] * len(TRUTH)
    found = []
    for coefficient, truth in TRUTH.items():
        low, high = ends.loc[coefficient]
        found.append((float(low <= truth <= high), float(high - low)))
    return found


def run(fits: int, sizes: list[tuple[int, float]]) -> None:
    """Make the fits of all cells that are not stored, a fit of every cell at a time."""
    stored = pd.read_csv(STORE) if STORE.exists() else pd.DataFrame(columns=["cell", "fit"])
    done = set(zip(stored["cell"], stored["fit"], strict=True))
    for fit in range(fits):
        lines = []
        for name in MODELS:
            for n, epsilon in sizes:
                seed = zlib.crc32(f"{name} {n} {epsilon} {fit}".encode())
                whole = None
                for share, kind in GAPS:
                    cell = f"{name}; {n}; {epsilon:g}; {share:g}; {kind}"
                    if (cell, fit) in done:
                        continue
                    frame = rows(np.random.default_rng(seed), n)
                    gaps = with_gaps(frame, np.random.default_rng([seed, 1]), share, kind)
                    read = ["x", "g", MODELS[name][1].split(" ~")[0]]
                    whole = whole or fitted(name, frame, epsilon, seed)
                    runs = {
                        "drop": fitted(name, gaps, epsilon, seed + 1, missing="drop"),
                        "told": fitted(name, gaps.dropna(subset=read), epsilon, seed + 1),
                        "whole": whole,
                    }
                    for place, coefficient in enumerate(TRUTH):
                        line = {"cell": cell, "fit": fit, "coefficient": coefficient}
                        for kind_of_fit, values in runs.items():
                            line[f"{kind_of_fit} covers"], line[f"{kind_of_fit} width"] = values[place]
                        lines.append(line)
        if lines:
            pd.DataFrame(lines).to_csv(STORE, mode="a", header=not STORE.exists(), index=False)


def report() -> None:
    """Write the page."""
    fits = pd.read_csv(STORE)
    text = [
        "# Rows with missing values that are dropped",
        "",
        "Made by `python benchmarks/missing.py`, which describes the distributions. Values are missing in some of the rows: at",
        'random, or more often where x is large. *Drop* is a fit with `missing="drop"`, *whole* the fit of the same rows',
        "before values were removed, *told* a fit of the complete rows that knows their number. Coverage of 95% intervals",
        "is that of the worst of four coefficients, and *below* counts coefficients below their 99% binomial limit. Widths are",
        "medians over fits and coefficients.",
        "",
        "| model | rows, epsilon | incomplete | fits | drop: worst | below | whole: worst | below | drop: no interval | width over told |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    below_all = {"drop": 0, "whole": 0}
    coefficients = 0
    ratios = []
    for cell, part in fits.groupby("cell", sort=False):
        name, n, epsilon, share, kind = cell.split("; ")
        worst, below = {}, {}
        for kind_of_fit in ("drop", "whole"):
            groups = part.groupby("coefficient")[f"{kind_of_fit} covers"]
            rates, counts = groups.mean(), groups.count()
            limits = [binomial_limits(0.95, max(int(count), 1))[0] for count in counts]
            worst[kind_of_fit] = rates.min()
            below[kind_of_fit] = int((rates.to_numpy() < limits).sum())
            below_all[kind_of_fit] += below[kind_of_fit]
        coefficients += part["coefficient"].nunique()
        finite = np.isfinite(part["drop width"]) & np.isfinite(part["told width"])
        ratio = float((part["drop width"] / part["told width"])[finite].median())
        ratios.append(ratio)
        text.append(
            f"| {name} | {int(n):,}, {epsilon} | {float(share):.0%} {kind} | {part['fit'].nunique()} | {worst['drop']:.3f} | "
            f"{below['drop']} | {worst['whole']:.3f} | {below['whole']} | {part['drop covers'].isna().mean():.0%} | {ratio:.3f} |"
        )
    text += [
        "",
        f"Of {coefficients} coefficients, {below_all['drop']} are below their 99% limit with dropped rows, and "
        f"{below_all['whole']} in fits of the rows before values were removed; the number expected by chance is {0.005 * coefficients:.1f}. Widths over those of a fit "
        f"that knows the number of complete rows are {min(ratios):.3f} to {max(ratios):.3f}.",
        "",
    ]
    _, heading, real_tables = PAGE.read_text().partition(REAL_TABLES) if PAGE.exists() else ("", "", "")
    PAGE.write_text("\n".join(text) + (f"\n{heading}{real_tables}" if heading else ""))
    print(PAGE.read_text())


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    numbers = [int(argument) for argument in sys.argv[1:] if argument.isdigit()]
    run(numbers[0] if numbers else FITS, SIZES["few" if "--few" in sys.argv else "all"])
    report()
