"""A third layer of scores as a test of rows far out of a column: misses against false alarms.

    python benchmarks/third_layer.py --run FILE.csv --fits 30 --named 80   (fits of `OLS`; a few minutes)
    python benchmarks/third_layer.py --report FILE.csv                     (-> benchmarks/results/third_layer.md)

`OLS` clips scores t at a threshold C and extrapolates the tail beyond. Here sums beyond C are computed from the rows of
benchmark fits, in the coordinates of the fit, and get simulated noise: no release of the package has them. Fits are
those of the lottery (epsilon 2) and of named regressions of benchmarks/silent_cells.py.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import math
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lottery
import numpy as np
import pandas as pd
from gauntlet import seed_of
from gauntlet_cells import DELTA, Cell
from gauntlet_estimators import outcome_and_result
from gauntlet_truth import clipped, model_columns, reference_of
from lottery_fits import fitted_parts
from silent_cells import FEWEST, far_rule, limit, markdown, named_cells, prepared

from privinf.accounting import calibrate_mu
from privinf.glm.advice import column_reach
from privinf.inference.tails import TAIL_SHARE

RESULTS = Path(__file__).parent / "results"
PAGE = RESULTS / "third_layer.md"
SHARE = 0.05  # of mu^2, for the third layer
CAPS = (2, 4, 8)  # third layers that end at this many times C
LARGEST_RESIDUAL = 3.0  # standard deviations at which the layer of leverage clips residuals
LONG_ROWS = 3.0  # rows whose squared length is this many times p have a high leverage


# ---- fits


def facts_of(cell: Cell, frame: pd.DataFrame, result: Any, parts: dict[str, Any]) -> dict[str, np.ndarray]:
    """Return sums beyond C for each coefficient, in standard errors, and facts of the release."""
    fit, rows = parts["one_step"], parts["rows"]
    initial, clip = fit.initial, fit.clip
    center, unit, low, high = rows.response_units
    X, y, names = model_columns(clipped(frame, cell), cell)
    own = ["Intercept" if name == "const" else name for name in result.params.index]
    order = [own.index(name) if name in own else j for j, name in enumerate(names)]
    z = X[:, np.argsort(order)] @ rows.to_user
    errors = ((y - center) / unit - z @ initial.theta) / initial.unit
    v = z @ initial.whitening.T
    length = np.linalg.norm(v, axis=1)
    scores = length * np.abs(errors)
    directions = v * (np.sign(errors) / np.maximum(length, 1e-300))[:, None]
    p, n = len(own), fit.n
    transform = unit * rows.to_user
    influence = transform @ fit.influence
    size = np.linalg.norm(influence, axis=1)
    bse = result.estimate.bse

    def along(weights: np.ndarray) -> np.ndarray:
        return influence @ (directions.T @ weights) / n

    extrapolated = TAIL_SHARE * clip.ratio * along(np.clip(scores - clip.low, 0.0, clip.high - clip.low))
    beyond = np.maximum(scores - clip.high, 0.0)
    top = math.sqrt(initial.longest) * rows.reachable.residual(initial.theta, low, high) / initial.unit
    far = length > math.sqrt(LONG_ROWS * p)
    noise = np.sqrt(np.diag(result.estimate.noise_cov)) / bse
    return {
        "hidden": (along(beyond) - extrapolated) / bse,
        **{
            f"hidden {k}": (along(np.minimum(beyond, (k - 1) * clip.high)) - extrapolated) / bse for k in CAPS
        },
        "signs": n * along(scores > clip.high) / size,
        "leverage": n * along(np.minimum(np.abs(errors), LARGEST_RESIDUAL) * far) / size,
        "unit": size / n / bse,
        "noise": noise,
        "C": np.full(p, clip.high),
        "top": np.full(p, top),
        "reach": column_reach(initial.gram, 0),
        "upz": fit.one_sided_sds(transform),
        "moved": np.abs(fit.unclipped_shift(transform)) / bse,
    }


def rows_of_fit(cell: Cell, number: int) -> list[dict[str, Any]]:
    """Return one row a coefficient."""
    reference = reference_of(cell)
    frame = cell.population.draw(cell.n, np.random.default_rng(seed_of(cell.name, number)))
    noise = np.random.default_rng(seed_of(cell.name, number, "OLS"))
    with fitted_parts() as parts:
        outcome, result = outcome_and_result(cell, "OLS", frame, noise, reference)
    if result is None or result.estimate.cov is None or not parts or "one_step" not in parts[-1]:
        return []
    facts = facts_of(cell, frame, result, parts[-1])
    own = ["Intercept" if name == "const" else name for name in result.params.index]
    places = [own.index(name) if name in own else j for j, name in enumerate(reference.names)]
    weak = set(result.weakly_identified.index)
    return [
        {
            "cell": cell.name,
            "fit": number,
            "coef": name,
            "epsilon": cell.epsilon,
            "covered": outcome.covered[j],
        }
        | {"weak": int(result.params.index[place] in weak), "warned": outcome.warned}
        | {"err": (result.params.iloc[place] - reference.target[j]) / result.bse.iloc[place]}
        | {fact: float(values[place]) for fact, values in facts.items()}
        for j, (name, place) in enumerate(zip(reference.names, places, strict=True))
    ]


def run(path: Path, fits: int, named: int) -> None:
    """Make the fits and write them, one regression after the other."""
    work = [(cell, named) for cell, _ in named_cells() if cell.family == "gaussian"]
    of_lot = (name for name, one in lottery.regressions().items() if one.estimator == "OLS")
    work += [(lottery.cell_named(f"{name}, epsilon 2"), fits) for name in of_lot]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for cell, number in work:
            rows = [row for k in range(number) for row in rows_of_fit(cell, k)]
            pd.DataFrame(rows).to_csv(path, mode="a", header=not path.exists(), index=False)


# ---- curves


def with_noise(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with noisy layers in sds of their noise, and the sds in standard errors."""
    rng = np.random.default_rng(20261129)
    mu = rows["epsilon"].map(
        {one: calibrate_mu(epsilon=one, delta=DELTA) for one in rows["epsilon"].unique()}
    )
    per_unit = 2.0 / (mu * math.sqrt(SHARE))  # sd of the noise of a sum of vectors of length 1
    ends = {"top": rows["top"] - rows["C"]}
    ends |= {str(k): np.minimum(rows["top"] - rows["C"], (k - 1) * rows["C"]) for k in CAPS}
    made = {}
    for name, end in ends.items():
        hidden = rows["hidden" if name == "top" else f"hidden {name}"]
        sd = per_unit * end * rows["unit"]
        noisy = (hidden + sd * rng.standard_normal(len(rows))).abs()
        made |= {f"sd {name}": sd, f"shift {name}": noisy, f"sds {name}": noisy / sd}
    for name, sd in (("signs", per_unit), ("leverage", LARGEST_RESIDUAL * per_unit)):
        made[f"sds {name}"] = (rows[name] + sd * rng.standard_normal(len(rows))).abs() / sd
    return rows.assign(**made, lottery=rows["cell"].str.contains("/"))


def rules() -> Iterator[tuple[str, Any]]:
    """Return the rules of the table, each with its alarms."""
    yield "today: a column reaches far, and clipping or the scores below C", far_rule
    yield "the same, with a reach of 8 in place of 10", lambda rows: far_rule(rows, 8.0)
    for bound in (0.5, 1.0):
        yield (
            f"no noise: what C hides is above {bound:g} standard errors",
            lambda rows, b=bound: rows["hidden"].abs() > b,
        )
    for name in ("top", *map(str, CAPS)):
        label = "to the public top" if name == "top" else f"to {name} C"
        for bound in (1.5, 2.0, 3.0):
            yield (
                f"third layer {label}: above {bound:g} sds of its noise",
                lambda rows, n=name, b=bound: rows[f"sds {n}"] > b,
            )
        for bound in (1.0, 3.0):
            yield (
                f"third layer {label}: shift above {bound:g} standard errors",
                lambda rows, n=name, b=bound: rows[f"shift {n}"] > b,
            )
    for name, label in (("signs", "directions of scores beyond C"), ("leverage", "residuals of long rows")):
        for bound in (1.5, 2.0, 3.0):
            yield f"{label}: above {bound:g} sds", lambda rows, n=name, b=bound: rows[f"sds {n}"] > b
            if bound == 2.0:
                yield (
                    f"{label}: above {bound:g} sds, reach above 10",
                    lambda rows, n=name, b=bound: (rows[f"sds {n}"] > b) & (rows["reach"] > 10.0),
                )
    yield "today, or directions above 3 sds", lambda rows: far_rule(rows) | (rows["sds signs"] > 3.0)
    yield (
        "today, or residuals of long rows above 3 sds",
        lambda rows: far_rule(rows) | (rows["sds leverage"] > 3.0),
    )


def share(alarms: np.ndarray) -> float:
    return float(alarms.mean()) if len(alarms) else math.nan


def curve(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the points of all rules."""
    cells = rows.groupby(["cell", "coef"]).agg(
        hits=("covered", "sum"), fits=("covered", "size"), error=("err", "mean")
    )
    cells = cells[cells["fits"] >= FEWEST]
    pairs = pd.MultiIndex.from_frame(rows[["cell", "coef"]])
    below = pairs.isin(cells[cells["hits"] < cells["fits"].map(limit)].index)
    off = pairs.isin(cells[cells["error"].abs() > 0.5].index)
    lots, miss = rows["lottery"].to_numpy(), (rows["covered"] == 0).to_numpy()
    points = []
    for name, rule in rules():
        alarm = np.asarray(rule(rows), dtype=bool)
        points.append(
            {
                "rule": name,
                "false alarms": share(alarm[lots & ~below]),
                "cells below": share(alarm[lots & below]),
                "their misses": share(alarm[lots & below & miss]),
                "all misses": share(alarm[lots & miss]),
                "mean error above 0.5": share(alarm[lots & off]),
                "named: cells below": share(alarm[~lots & below]),
                "their misses ": share(alarm[~lots & below & miss]),
            }
        )
    return points


def sizes(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """Return quantiles of the noise of the layers, and of what the threshold hides."""
    facts = {
        "top over C": rows["top"] / rows["C"],
        **{
            f"sd of the layer to {name}, standard errors": rows[f"sd {name}"]
            for name in ("top", *map(str, CAPS))
        },
        "shift that C hides, standard errors": rows["hidden"].abs(),
    }
    lines = []
    for group, mine in (("lottery", rows["lottery"]), ("named", ~rows["lottery"])):
        for fact, values in facts.items() if mine.any() else ():
            quantiles = dict(
                zip(
                    ("10%", "25%", "50%", "75%", "90%"),
                    np.quantile(values[mine], [0.1, 0.25, 0.5, 0.75, 0.9]),
                    strict=True,
                )
            )
            lines.append({"regressions": group, "fact": fact, **quantiles})
    return lines


def named_table(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the failing coefficients of the named regressions."""
    lines = []
    for (cell, coefficient), mine in rows[~rows["lottery"]].groupby(["cell", "coef"], sort=False):
        if mine["covered"].mean() < 0.9:
            lines.append(
                {
                    "regression": cell,
                    "coefficient": f"`{coefficient}`",
                    "fits": len(mine),
                    "coverage": mine["covered"].mean(),
                    "mean error": mine["err"].mean(),
                    "hidden by C": mine["hidden"].mean(),
                    "sd, to the top": mine["sd top"].median(),
                    "sd, to 2 C": mine["sd 2"].median(),
                    "alarms, to the top": (mine["sds top"] > 2.0).mean(),
                    "to 2 C": (mine["sds 2"] > 2.0).mean(),
                    "directions": (mine["sds signs"] > 2.0).mean(),
                    "long rows": (mine["sds leverage"] > 2.0).mean(),
                    "today": far_rule(mine).mean(),
                }
            )
    return lines


TEXT = """# A third layer of scores as a test

Made by `python benchmarks/third_layer.py --report FILE.csv` from {fits:,} fits of `--run`: {lots} `OLS` regressions of the
[lottery](lottery.md) at epsilon 2, and nine regressions of [silent cells](silent_cells.md). Intervals are not flagged.

`OLS` clips scores at a threshold C. It extrapolates the tail beyond C from the layer of scores just below C. Rows far out of a column may
lie beyond C and miss the regression line to one side. Could a third layer detect them? Each test gets 0.05 of mu^2, which would make
intervals up to 5% wider. Sums come from the rows, and their noise is simulated.

- **Third layer.** Sum of the excess of scores over C, up to the public top or up to 2, 4 or 8 times C, less the extrapolated tail. The test
  compares the shift of the coefficient with the noise of the layer, or with the standard error.
- **Directions.** Each score beyond C counts with length 1 in its direction, whatever its size.
- **Residuals of long rows.** Rows whose squared length in the whitened coordinates is above 3 p, with residuals clipped at 3 standard
  deviations.
- **No noise** is a test that nobody can have: what C hides, known exactly.
- **Columns** of the curves are as in [silent cells](silent_cells.md). *False alarms* are alarms in cells that are not below their 99%
  limit. *Mean error above 0.5* are intervals of coefficients with a mean error above half a standard error.

## Noise of the layers

{sizes}

## Misses against false alarms

{curve}

## Named regressions

Mean error, hidden shift and sds are in standard errors. Alarms are shares of fits with a layer above 2 sds of its noise.

{named}

{findings}"""
# What the committed tables show; changed by hand with them.
FINDINGS = """## Findings

- **No third layer is used.** As a test, the layer to the public top is a coin: 4% false alarms, and 5% of the intervals of cells below their
  limit. A layer that ends at 2 C has 5% and 9%. The warning of today has 6% and 56%.
- **Why.** The public top is 12 times C at the median, and 25 times in the named regressions. The noise of the layer is then 13 standard errors of
  a coefficient at the median, and it has to detect a shift of about one. A layer to 2 C has a noise of 1.3 standard errors, and it
  misses most of the tail beyond C.
- **Directions and long rows** contain some information: at 9% false alarms they have 20% and 26% of the intervals of cells below their
  limit. The warning of today with a reach of 8 has 67% at 8%. The residuals of long rows are the only test with an alarm in many fits
  of the flights (46%).
- **Without noise**, a test with 9% false alarms would name 62% of the intervals of cells below their limit. So even a test that costs
  nothing would be little better in the lottery. In the named regressions it would name 74% instead of 37%.
- The flights, spikes and the low group stay without a warning. Remedies are in [one-curator.md](../../docs/one-curator.md).
"""


def report(path: Path) -> None:
    """Write the page."""
    rows = prepared(pd.read_csv(path).drop_duplicates(["cell", "fit", "coef"]))
    table = with_noise(rows)
    lots = table[table["lottery"]]
    PAGE.write_text(
        TEXT.format(
            fits=table.groupby(["cell", "fit"]).ngroups,
            lots=lots["cell"].nunique(),
            sizes=markdown(sizes(table)),
            curve=markdown(curve(table)),
            named=markdown(named_table(table)),
            findings=FINDINGS,
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", type=Path)
    parser.add_argument("--report", type=Path)
    parser.add_argument("--fits", type=int, default=30)
    parser.add_argument("--named", type=int, default=80)
    arguments = parser.parse_args()
    if arguments.run:
        run(arguments.run, arguments.fits, arguments.named)
    if arguments.report:
        report(arguments.report)


if __name__ == "__main__":
    main()
