"""Curved fits whose last step is long: rare outcomes next to a rare indicator, ordinary cells, and the lottery.

    python benchmarks/long_steps.py --run FILE.jsonl --fits 300     (fits that FILE has not are added to it)
    python benchmarks/long_steps.py --lottery FILE.jsonl --epsilons 2 --fits 24
    python benchmarks/long_steps.py --report FILE.jsonl ...         (-> benchmarks/results/long_steps.md)

Rows and noise are seeded by the cell's name and the number of the fit. Stored are the last release of each fit and its
intervals without the bias of the last step, so that rules for them can be tried without new fits.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import json
import warnings
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lottery
import numpy as np
import pandas as pd
from gauntlet import seed_of
from gauntlet_estimators import outcome_and_result
from gauntlet_truth import reference_of
from lottery_fits import fitted_parts
from silent_cells import markdown

import privinf as pi
from privinf.errors import NotAvailableError
from privinf.glm.advice import FAR_COLUMN, FAR_OUT, column_reach
from privinf.glm.column_moments import column_moments, has_two_values
from privinf.glm.posterior_draws import (
    LEAST_BIAS,
    recorded,
    restored,
    secant_bias,
)
from privinf.inference.coefficient_sets import contrast_scores
from privinf.inference.intervals import moved_quantile
from privinf.inference.one_step import OneStepScores

RESULTS = Path(__file__).parent / "results"
PAGE = RESULTS / "long_steps.md"
DELTA = 1e-6
CHI_SQUARE = 3.841458820694124  # 95% quantile, one degree of freedom
HALF_NORMAL = 0.05
BINS = (-1.0, LEAST_BIAS, 0.2, 0.5, 1.0, 2.0, 3.0, np.inf)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """Rows of one distribution, and what they are fitted with."""

    kind: str
    n: int
    epsilon: float
    model: str = "Logit"

    @property
    def name(self) -> str:
        return f"{self.kind}, {self.model}, {self.n:,}, {self.epsilon:g}"


CELLS = [
    Cell(kind="rare", n=8_000, epsilon=1.0),
    Cell(kind="rare", n=4_000, epsilon=1.0),
    Cell(kind="rare", n=8_000, epsilon=2.0),
    Cell(kind="rare", n=20_000, epsilon=1.0),
    Cell(kind="rare", n=8_000, epsilon=1.0, model="Poisson"),
    Cell(kind="even", n=8_000, epsilon=1.0),
    Cell(kind="even", n=3_000, epsilon=2.0),
    Cell(kind="health", n=8_000, epsilon=1.0),
    Cell(kind="health", n=3_000, epsilon=2.0),
    Cell(kind="group", n=8_000, epsilon=1.0),
    Cell(kind="even", n=8_000, epsilon=1.0, model="Poisson"),
]
FORMULAS = {
    "rare": "y ~ x1 + x2 + x3 + f",
    "even": "y ~ x1 + x2 + x3 + x4",
    "health": "y ~ age + income + children + female",
    "group": "y ~ x1 + x2 + f",
}
TRUTHS = {
    "rare": (-3.0, 1.0, -0.5, 0.3, 0.8),
    "even": (-0.5, 0.8, -0.5, 0.3, 0.0),
    "health": (-2.0, 0.03, 0.01, -0.2, 0.4),
    "group": (-0.5, 0.8, -0.5, 0.8),
}
BOUNDS = {
    "age": (18, 90),
    "income": (0, 300),
    "children": (0, 8),
    "female": (0, 1),
    "f": (0, 1),
    **dict.fromkeys(("x1", "x2", "x3", "x4"), (-1.0, 1.0)),
}
TOPS = {"Logit": 1, "Poisson": 20}  # largest outcome


# ---- fits


def rows_of(cell: Cell, rng: np.random.Generator) -> pd.DataFrame:
    """Return rows: *rare* and *group* have an indicator that 5% have, *health* has skewed columns."""
    n = cell.n
    if cell.kind == "health":
        columns = {
            "age": np.clip(rng.normal(45.0, 15.0, n), 18.0, 90.0),
            "income": np.clip(rng.lognormal(3.5, 0.7, n), 0.0, 300.0),
            "children": np.minimum(rng.poisson(1.0, n), 8).astype(float),
            "female": (rng.random(n) < 0.5).astype(float),
        }
    else:
        columns = {
            name: (rng.random(n) < 0.05).astype(float) if name == "f" else rng.uniform(-1.0, 1.0, n)
            for name in FORMULAS[cell.kind].removeprefix("y ~ ").split(" + ")
        }
    truth = TRUTHS[cell.kind]
    eta = truth[0] + sum(slope * values for slope, values in zip(truth[1:], columns.values(), strict=True))
    if cell.model == "Poisson":
        y = np.minimum(rng.poisson(np.exp(eta)), TOPS[cell.model]).astype(float)
    else:
        y = (rng.random(n) < 1.0 / (1.0 + np.exp(-eta))).astype(float)
    return pd.DataFrame({**columns, "y": y})


def fit_of(cell: Cell, number: int) -> dict[str, Any]:
    """Return a fit's last release and intervals."""
    seed = zlib.crc32(cell.name.encode())
    frame = rows_of(cell, np.random.default_rng([seed, number, 1]))
    bounds = {name: BOUNDS[name] for name in frame if name != "y"}
    schema = pi.Schema(bounds | {"y": (0, TOPS[cell.model])})
    model = getattr(pi, cell.model).from_formula(FORMULAS[cell.kind], frame, schema=schema)
    with fitted_parts() as parts:
        result = model.fit(epsilon=cell.epsilon, delta=DELTA, rng=np.random.default_rng([seed, number, 2]))
    names = ("Intercept", *FORMULAS[cell.kind].removeprefix("y ~ ").split(" + "))
    return line_of(cell.name, number, cell.model, result, parts, names, TRUTHS[cell.kind])


def lottery_fit(name: str, epsilon: float, number: int) -> dict[str, Any] | None:
    """Return the same of a regression of the lottery: its rows and noise are those of benchmarks/lottery.py."""
    cell = lottery.cell_named(f"{name}, epsilon {epsilon:g}")
    estimator = lottery.regressions()[name].estimator
    reference = reference_of(cell)
    frame = cell.population.draw(cell.n, np.random.default_rng(seed_of(cell.name, number)))
    noise = np.random.default_rng(seed_of(cell.name, number, estimator))
    with fitted_parts() as parts:
        _, result = outcome_and_result(cell, estimator, frame, noise, reference)
    if result is None or not parts or parts[-1]["rows"].design.constant != 0:
        return None
    return line_of(cell.name, number, estimator, result, parts, reference.names, reference.target)


def line_of(
    cell: str, number: int, model: str, result: Any, parts: list[dict[str, Any]], names: Any, target: Any
) -> dict[str, Any]:
    """Return what is stored of a fit; coefficients are in the order of the result."""
    line: dict[str, Any] = {"cell": cell, "fit": number, "model": model}
    if not parts:
        return line
    step, draws, rows = parts[-1]["step"], parts[-1]["draws"], parts[-1]["rows"]
    own = ["Intercept" if name == "const" else name for name in result.params.index]
    places = [own.index(name) if name in own else j for j, name in enumerate(names)]
    truth = np.empty(len(own))
    truth[places] = target
    line |= {
        "n": rows.total,
        "names": own,
        "truth": truth.tolist(),
        "indicators": [bool(column.indicator) for column in rows.design.columns],
        "step": recorded(step),
        "back": rows.to_user.tolist(),
        "far": step.far,
        "length2": draws.length2,
        "shift": draws.shift,
        "converged": bool(draws.converged),
        "posterior": bool(draws.weak),
        "weak": [name in result.weakly_identified.index for name in result.params.index],
    }
    if result.estimate.cov is None:
        return line
    ends, other = ends_without(result)
    line |= {"bse": result.bse.tolist(), "other": other, "ends": ends.tolist(), "joint": None}
    try:
        joint = result.conf_int(method="score").to_numpy()
    except NotAvailableError:
        return line
    return line | {"joint": np.where(np.isfinite(joint), joint, 1e9 * np.sign(joint)).tolist()}


def ends_without(result: Any) -> tuple[np.ndarray, list[float]]:
    """Return the ends of intervals without the bias of the last step, and the bias that they allow for."""
    bse = result.bse.to_numpy()
    bias = np.zeros(len(bse)) if result.estimate.bias is None else np.asarray(result.estimate.bias)
    own = np.array(result._context.settings.get("secant_bias", np.zeros(len(bse))))
    other = np.maximum(bias - own, 0.0)
    ends = result.conf_int().to_numpy()
    return ends + np.outer(longer_by(own, bse, other), [1.0, -1.0]), other.tolist()


def longer_by(bias: np.ndarray, bse: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return by how much a bias makes each end of 95% intervals longer, next to another bias."""
    with_both = moved_quantile((other + bias) / bse, HALF_NORMAL)
    return np.asarray(bse * (with_both - moved_quantile(other / bse, HALF_NORMAL)))


def stored(path: Path) -> list[dict[str, Any]]:
    """Return stored fits."""
    return [json.loads(text) for text in path.read_text().splitlines()] if path.exists() else []


def add(path: Path, work: Iterator[tuple[tuple[str, int], Callable[[], dict[str, Any] | None]]]) -> None:
    """Make the fits that are not stored, and store each one as it ends."""
    done = {(line["cell"], line["fit"]) for line in stored(path)}
    with warnings.catch_warnings(), path.open("a") as file:
        warnings.simplefilter("ignore")
        for key, fit in work:
            if key not in done and (line := fit()) is not None:
                file.write(json.dumps(line) + "\n")
                file.flush()


def simulated(fits: int) -> Iterator[tuple[tuple[str, int], Callable[[], dict[str, Any] | None]]]:
    for number in range(fits):
        for cell in CELLS:
            yield (cell.name, number), lambda cell=cell, number=number: fit_of(cell, number)


def of_lottery(
    fits: int, epsilons: list[float]
) -> Iterator[tuple[tuple[str, int], Callable[[], dict[str, Any] | None]]]:
    for epsilon in epsilons:
        for number in range(fits):
            for name, one in lottery.regressions().items():
                if one.estimator in ("Logit", "Poisson"):
                    key = f"{name}, epsilon {epsilon:g}", number
                    yield key, lambda name=name, key=key, e=epsilon: lottery_fit(name, e, key[1])


# ---- the table of intervals


def single_sets(line: dict[str, Any]) -> np.ndarray:
    """Return score intervals of single coefficients, shape (p, 2)."""
    step, back = restored(line["step"]), np.array(line["back"])
    p = len(back)
    system = OneStepScores(
        to_scaled=step.place.transform.T,
        start=step.place.theta,
        mean=step.score.mean,
        hessian=step.hessian.lifted(),
        released_hessian=step.hessian.mean,
        clean=step.meat,
        known=line["n"] * (step.score.sd**2 + step.allowance) * np.eye(p),
        hessian_sd=step.hessian.sd,
        residual=None,
        noise_free=np.zeros(p, dtype=bool),
        n=line["n"],
        cov_type="HC0",
    )
    pieces = [score.pieces(CHI_SQUARE) for score in contrast_scores(system, back)]
    return np.array([(one[0][0], one[-1][1]) for one in pieces])


def intervals(lines: list[dict[str, Any]]) -> pd.DataFrame:
    """Return one row a coefficient of fits with intervals, or without convergence."""
    rows = []
    for line in lines:
        if "step" not in line:
            continue
        step = restored(line["step"])
        p = len(line["names"])
        mean, variance = column_moments(step.walk.second, 0)
        indicators = np.array(line["indicators"])
        two_valued = indicators | has_two_values(mean, variance)
        reach = column_reach(step.walk.second, 0)
        far = (
            np.where(reach > FAR_COLUMN, line["far"] * reach / FAR_COLUMN, line["far"] * line["posterior"])
            > FAR_OUT
        )
        named = far & ~(two_valued & ~np.array(line["posterior"]))
        for marks in (far, named):
            marks[0] |= marks.any()
        facts = {
            "two": two_valued,
            "named before": far,
            "named": named,
            "weak": line["weak"],
            "truth": line["truth"],
        }
        if "ends" in line:
            bse, other = np.array(line["bse"]), np.array(line["other"])
            bias = secant_bias(step, 0, indicators, np.array(line["back"]), np.full(p, 1e-300))
            bias = np.zeros(p) if bias is None else bias
            allowed = np.where(bias >= LEAST_BIAS * bse, bias, 0.0) * (not line["posterior"])
            longer = longer_by(allowed, bse, other)
            ends, joint = np.array(line["ends"]), np.array(line["joint"] or np.full((p, 2), np.nan))
            single = single_sets(line)
            facts |= {"low": ends[:, 0], "high": ends[:, 1], "longer": longer, "share": bias / bse}
            facts |= {"joint low": joint[:, 0], "joint high": joint[:, 1]}
            facts |= {"single low": single[:, 0], "single high": single[:, 1]}
        whole = {
            name: line[name]
            for name in ("cell", "fit", "model", "converged", "posterior", "length2", "shift")
        }
        rows += [
            whole | {"name": line["names"][j]} | {fact: values[j] for fact, values in facts.items()}
            for j in range(p)
        ]
    table = pd.DataFrame(rows)
    width = table["high"] - table["low"]
    for name, low, high in (
        ("before", table["low"], table["high"]),
        ("after", table["low"] - table["longer"], table["high"] + table["longer"]),
        ("joint", table["joint low"], table["joint high"]),
        ("single", table["single low"], table["single high"]),
    ):
        table[name] = ((low <= table["truth"]) & (table["truth"] <= high)).where(width.notna())
        table[f"{name} width"] = (high - low) / width
    return table.assign(lottery=table["cell"].str.contains("/"))


# ---- the page


def cells_table(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return coverage by cells; of *f*, or of the worst coefficient."""
    lines = []
    for cell in [cell.name for cell in CELLS]:
        mine = table[table["cell"] == cell]
        if mine.empty:
            continue
        fits = mine.groupby("fit")
        good = mine[mine["converged"] & ~mine["posterior"]]
        rates = good.groupby("name").agg(
            before=("before", "mean"),
            after=("after", "mean"),
            single=("single", "mean"),
            joint=("joint", "mean"),
        )
        worst = "f" if "f" in rates.index else rates["before"].idxmin()
        rest = rates.drop(index=worst)
        own = good[good["name"] == worst]
        lines.append(
            {
                "rows, model, n, epsilon": cell,
                "fits": fits.ngroups,
                "not converged": 1.0 - fits["converged"].first().mean(),
                "coefficient": f"`{worst}`",
                "before": rates["before"][worst],
                "after": rates["after"][worst],
                "single score set": rates["single"][worst],
                "joint score set": rates["joint"][worst],
                "longer": (own["longer"] > 0.0).mean(),
                "mean width": own["after width"].mean(),
                "median": own["after width"].median(),
                "worst of the others, before": rest["before"].min(),
                "after ": rest["after"].min(),
                "mean width ": good[good["name"] != worst]["after width"].mean(),
                "named before": own["named before"].mean(),
                "named": own["named"].mean(),
            }
        )
    return lines


def curve(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return rules as alarms of *f* in the rare logistic cells, and of all other intervals."""
    good = table[table["converged"] & ~table["posterior"] & (table["model"] == "Logit")]
    rare = good[(good["name"] == "f") & good["cell"].str.startswith("rare")]
    first = rare["cell"] == CELLS[0].name
    other = good[~good.index.isin(rare.index) & ~good["lottery"]]
    lots = good[good["lottery"] & ~good["weak"].astype(bool) & ~good["named before"]]
    lines = []
    for rule, fact, limits in (
        ("mean square of the last step above", "length2", (2, 3, 4, 5, 6, 8, 10)),
        ("shift of predictors above", "shift", (0.3, 0.4, 0.5, 0.6, 0.7)),
        ("bias of the last step, in standard errors, above", "share", (0.1, 0.2, 0.3, 0.5, 0.75, 1.0)),
    ):
        for bound in limits:
            alarm = rare[fact] > bound
            miss = rare["before"] == 0
            lines.append(
                {
                    "rule": f"{rule} {bound:g}",
                    "alarms, f": alarm.mean(),
                    "misses of f with an alarm": alarm[miss].mean(),
                    "coverage of f without": rare["before"][~alarm].astype(float).mean(),
                    "the same, 8,000 rows": rare["before"][~alarm & first].astype(float).mean(),
                    "alarms, other intervals": (other[fact] > bound).mean(),
                    "alarms, lottery": (lots[fact] > bound).mean() if len(lots) else np.nan,
                }
            )
    return lines


def bins_table(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return coverage before and after by the size of the bias, in simulated cells and in the lottery."""
    good = table[table["converged"] & ~table["posterior"] & ~table["weak"].astype(bool)]
    lines = []
    for lots in (False, True):
        for two in (True, False):
            mine = good[(good["lottery"] == lots) & (good["two"].astype(bool) == two)]
            for bin_, part in mine.groupby(pd.cut(mine["share"], BINS), observed=True):
                lines.append(
                    {
                        "fits": "lottery" if lots else "simulated",
                        "column": "two values" if two else "other, constant",
                        "bias, standard errors": f"{max(bin_.left, 0.0):g} to {bin_.right:g}",
                        "intervals": len(part),
                        "before": part["before"].astype(float).mean(),
                        "after": part["after"].astype(float).mean(),
                        "median width": part["after width"].median(),
                    }
                )
    return lines


def lottery_table(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return coverage of the lottery's unflagged intervals, before and after, by their names in warnings."""
    good = table[table["lottery"] & table["converged"] & ~table["posterior"] & ~table["weak"].astype(bool)]
    epsilon = good["cell"].map(lambda cell: float(cell.rpartition(", epsilon ")[2]))
    lines = []
    for (eps, model), mine in good.groupby([epsilon, "model"]):
        for kind, part in (
            ("all", mine),
            ("two values, named before", mine[mine["two"].astype(bool) & mine["named before"].astype(bool)]),
            (
                "two values, not named before",
                mine[mine["two"].astype(bool) & ~mine["named before"].astype(bool)],
            ),
            ("named", mine[mine["named"].astype(bool)]),
            ("not named", mine[~mine["named"].astype(bool)]),
        ):
            if part.empty:
                continue
            touched = part[part["longer"] > 0.0]
            lines.append(
                {
                    "epsilon": eps,
                    "estimator": model,
                    "intervals": kind,
                    "number": len(part),
                    "before": part["before"].astype(float).mean(),
                    "after": part["after"].astype(float).mean(),
                    "longer": len(touched) / len(part),
                    "those, before": touched["before"].astype(float).mean(),
                    "those, after": touched["after"].astype(float).mean(),
                    "their median width": touched["after width"].median(),
                    "median width": part["after width"].median(),
                    "mean": part["after width"].mean(),
                }
            )
    return lines


PAGE_TEXT = """# Last steps that are long, in logistic and Poisson fits

Made by `python benchmarks/long_steps.py --report FILES` from fits of `--run` and `--lottery`; delta = 1e-6, replace-one, 95%
intervals. Fits that did not converge, and posteriors, are left out of coverage.

- **Cells.** *Rare*: an outcome with intercept -3, three uniform columns and an indicator *f* that 5% of the rows have. *Even*: four
  uniform columns. *Health*: age, income (skewed), children (counts) and female. *Group*: *f* and two uniform columns, intercept -0.5.
- **Before** and **after**: without and with the bias of the last step, for which intervals allow since this page.
- **Single and joint score sets** are those of the same equation with one and with p degrees of freedom. `conf_int(method="score")`
  returns the joint ones, which are about 1.57 times as wide here.
- **Widths** are relative to those before. *Longer* is the share of intervals that the bias makes longer. *Named* is the share of fits
  in which the warning of outlying rows names the coefficient, before and since two-valued columns are exempt.

## Cells

{cells}

## Alarms and misses

Rules as alarms: shares of the intervals of *f* in the four rare cells of `Logit`, of all other intervals of the simulated cells, and of
intervals of the lottery's `Logit` regressions that are neither flagged nor named by a warning.

{curve}

## Coverage by the bias of the last step

{bins}

## The lottery

Regressions of the [lottery](lottery.md), with rows and noise of its first fits; intervals that are not flagged. The rule was chosen on the
simulated cells and on epsilon 2.

{lots}

{findings}"""

# What the committed tables show; changed by hand with them.
FINDINGS = """## Findings

- **Cause.** The last Hessian is a secant towards a preliminary step, because the curvature changes along the step. For a rare group with few
  positives, the step moves log odds by 1 to 6, and it ends elsewhere than the preliminary step. The curvature is then wrong along the
  coefficient of the group.
- **Score sets do not help.** The single score set has the width and the coverage of the interval by draws. A first report of 0.957 for score
  intervals was about the joint set, which is wider because it holds for all coefficients simultaneously.
- **Shorter steps do not help.** If fits with a mean square above 4 had no interval, 0.38 of the intervals of *f* and 0.18 of all others would
  be lost, with 0.71 of the misses of *f*. A bias of the last step above 0.5 standard errors has 0.61 of these misses with 0.14 of the
  intervals of *f* and 0.003 of the others.
- **Used since: a bias.** Intervals and p-values allow for the bias of the last step from 0.1 standard errors on. In the first cell, coverage of
  *f* rises from 0.93 to 0.95, and the median width stays the same. Where the bias is a standard error or more, coverage rises from at
  most 0.85 to at least 0.91, in simulated cells and in the lottery. A flag would lose such intervals. Epsilon 1 and 4 of the
  lottery, which were not used to choose the rule, show the same.
- **Fits that did not converge** stay without intervals. With the bias, *f* would still cover 0.64 with 4,000 rows, and less in other cells.
- **Outlying rows.** The warning named *f* in most fits of five cells, where no mean is wrong. The coefficient of a column with two values
  makes the mean right in both groups, so such columns are not named any more. In the lottery at epsilon 2, those that were named cover 0.945
  with the bias, and other columns with two values 0.952.
- **Posteriors** are as before, without this bias. So are `PHReg` and fits with `optimizer=`.
"""


def report(paths: list[Path]) -> None:
    """Write the page from stored fits."""
    table = intervals([line for path in paths for line in stored(path)])
    PAGE.write_text(
        PAGE_TEXT.format(
            cells=markdown(cells_table(table)),
            curve=markdown(curve(table)),
            bins=markdown(bins_table(table)),
            lots=markdown(lottery_table(table)),
            findings=FINDINGS,
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", type=Path)
    parser.add_argument("--lottery", type=Path)
    parser.add_argument("--report", type=Path, nargs="+")
    parser.add_argument("--fits", type=int, default=300)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[2.0])
    arguments = parser.parse_args()
    if arguments.run:
        add(arguments.run, simulated(arguments.fits))
    if arguments.lottery:
        add(arguments.lottery, of_lottery(arguments.fits, arguments.epsilons))
    if arguments.report:
        report(arguments.report)


if __name__ == "__main__":
    main()
