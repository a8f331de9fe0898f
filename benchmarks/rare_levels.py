"""A rare level of a factor in logistic and count fits: intervals with and without its part of the last step.

    python benchmarks/rare_levels.py --run FILE.jsonl --scale 1     (fits that FILE has not are added to it)
    python benchmarks/rare_levels.py --report FILE.jsonl            (-> benchmarks/results/rare_levels.md)

Each seed has two fits: one with *earlier rounds*, in which W is stretched in all directions, and one as now, which holds
hidden directions of rare levels back in counts (`privinf.glm.curved.newton_move`). The *earlier rule* judges the last step of all
coefficients, the one of now leaves out rare levels that the noise hides (`privinf.glm.rare_levels`). Both judge the same
releases.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import json
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from lottery_fits import fitted_parts
from scipy.stats import binom
from silent_cells import markdown

import privinf as pi
from privinf.glm import curved

PAGE = Path(__file__).parent / "results" / "rare_levels.md"
DELTA = 1e-6
LEVELS = ["north", "south", "west", "island"]
SHARES = [0.45, 0.33, 0.21025, 0.00975]  # 117 of 12,000 rows have the last level
# Coefficients: constant, three levels, male, age, smoker. Of the last level none, a positive one, a negative one.
EFFECTS = {"none": (0.0, 0.0, 0.0), "positive": (0.2, -0.3, 1.0), "negative": (0.0, 0.0, -1.5)}
OTHERS = {"Logit": (-3.4, 0.2, 0.02, 0.5), "Poisson": (-3.585, 0.1, 0.01, 0.3)}
UNBOUNDED = 1e9  # length that is stored of an unbounded interval
LIMIT = 0.01  # a binomial quantile of coverage 0.95
FORMULA = "C(region) + C(sex) + age + smoker"
SCHEMA = pi.Schema(
    {
        "age": (18, 100),
        "sex": ["F", "M"],
        "smoker": [0, 1],
        "region": LEVELS,
        "ill": [0, 1],
        "visits": (0, 60),
        "months": (1, 60),
        "x1": (-1, 1),
        "x2": (-1, 1),
        "f": [0, 1],
        "falls": (0, 20),
    }
)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """Rows of one distribution, and what they are fitted with: patients, or rare outcomes next to an indicator."""

    model: str
    n: int
    epsilon: float
    fits: int
    kind: str = "patients"
    share: float = SHARES[-1]
    intercept: float = 0.0
    effect: float = 0.0

    @property
    def name(self) -> str:
        size = f"{self.model}, {self.n:,}, {self.epsilon:g}"
        if self.kind == "patients":
            return f"patients, {size}"
        return f"{self.kind} {self.intercept:g}, {self.share:g}, {self.effect:g}, {size}"


def patients(model: str, n: int, epsilon: float, fits: int) -> Cell:
    return Cell(model=model, n=n, epsilon=epsilon, fits=fits)


def outcomes(
    model: str, n: int, epsilon: float, share: float, intercept: float, effect: float, fits: int = 24
) -> Cell:
    return Cell(
        model=model,
        n=n,
        epsilon=epsilon,
        fits=fits,
        kind="outcomes",
        share=share,
        intercept=intercept,
        effect=effect,
    )


CELLS = [
    patients("Logit", 12_000, 1.0, 240),
    patients("NegativeBinomial", 12_000, 1.0, 240),
    patients("Poisson", 12_000, 1.0, 240),
    patients("Logit", 24_000, 0.5, 120),
    patients("NegativeBinomial", 24_000, 0.5, 36),
    patients("Poisson", 24_000, 0.5, 36),
    patients("Logit", 24_000, 1.0, 60),
    patients("NegativeBinomial", 24_000, 1.0, 60),
    patients("Poisson", 24_000, 1.0, 60),
    patients("Logit", 12_000, 2.0, 36),
    patients("NegativeBinomial", 12_000, 2.0, 36),
    patients("Poisson", 12_000, 2.0, 36),
    patients("Logit", 24_000, 2.0, 24),
    patients("NegativeBinomial", 24_000, 2.0, 24),
    patients("Poisson", 24_000, 2.0, 24),
    outcomes("Logit", 20_000, 1.0, 0.01, -3.0, 2.0),
    outcomes("Logit", 8_000, 2.0, 0.01, -3.0, 2.5),
    outcomes("Logit", 8_000, 1.0, 0.02, -3.0, 0.8),
    outcomes("Logit", 8_000, 1.0, 0.02, -3.0, 2.5),
    outcomes("Logit", 8_000, 1.0, 0.02, -0.5, -3.0),
    outcomes("Logit", 8_000, 1.0, 0.05, -3.0, 0.8),
    outcomes("NegativeBinomial", 8_000, 1.0, 0.02, -1.0, 1.5),
    outcomes("Poisson", 8_000, 1.0, 0.02, -1.0, 1.5),
    outcomes("Poisson", 8_000, 1.0, 0.05, -3.0, 0.8),
]


@contextmanager
def earlier_rounds() -> Iterator[None]:
    """Make rounds that hold no direction back."""
    original = curved.hidden_directions
    curved.hidden_directions = lambda values, *_: np.zeros(len(values), dtype=bool)
    try:
        yield
    finally:
        curved.hidden_directions = original


def counts(mean: np.ndarray, model: str, top: int, rng: np.random.Generator) -> np.ndarray:
    """Return Poisson counts, or negative binomial ones with dispersion 0.5."""
    factor = rng.gamma(2.0, 0.5, len(mean)) if model == "NegativeBinomial" else 1.0
    return np.minimum(rng.poisson(mean * factor), top)


def patients_of(cell: Cell, number: int, rng: np.random.Generator) -> tuple[pd.DataFrame, dict[str, float]]:
    """Return rows and coefficients; where the level has a positive one, its people are older and smoke more."""
    effect = list(EFFECTS)[number % len(EFFECTS)]
    region = rng.choice(4, cell.n, p=SHARES)
    island = region == 3
    differs = effect == "positive"
    age = np.clip(np.round(rng.normal(62.0, 15.0, cell.n) + 10.0 * differs * island), 18.0, 100.0)
    male = rng.random(cell.n) < 0.47
    smoker = rng.random(cell.n) < np.where(island & differs, 0.5, 0.25)
    constant, *slopes = OTHERS["Logit" if cell.model == "Logit" else "Poisson"]
    levels = EFFECTS[effect]
    eta = constant + np.array([0.0, *levels])[region] + np.column_stack([male, age, smoker]) @ slopes
    table = pd.DataFrame(
        {
            "age": age,
            "sex": np.where(male, "M", "F"),
            "smoker": smoker.astype(int),
            "region": np.array(LEVELS)[region],
        }
    )
    if cell.model == "Logit":
        table["ill"] = (rng.random(cell.n) < 1.0 / (1.0 + np.exp(-eta))).astype(int)
    else:
        table["months"] = np.round(rng.uniform(1.0, 60.0, cell.n), 1)
        table["visits"] = counts(table["months"].to_numpy() * np.exp(eta), cell.model, 60, rng)
    names = ["Intercept", *(f"C(region)[T.{level}]" for level in LEVELS[1:]), "C(sex)[T.M]", "age", "smoker"]
    return table, dict(zip(names, (constant, *levels, *slopes), strict=True))


def outcomes_of(cell: Cell, rng: np.random.Generator) -> tuple[pd.DataFrame, dict[str, float]]:
    """Return rows and coefficients; the indicator goes with the first column."""
    x = rng.uniform(-1.0, 1.0, (cell.n, 2))
    f = rng.random(cell.n) < cell.share * (1.0 + 0.9 * x[:, 0])
    eta = cell.intercept + x @ [1.0, -0.5] + cell.effect * f
    table = pd.DataFrame({"x1": x[:, 0], "x2": x[:, 1], "f": f.astype(int)})
    if cell.model == "Logit":
        table["ill"] = (rng.random(cell.n) < 1.0 / (1.0 + np.exp(-eta))).astype(int)
    else:
        table["falls"] = counts(np.exp(eta), cell.model, 20, rng)
    return table, {"Intercept": cell.intercept, "C(f)[T.1]": cell.effect, "x1": 1.0, "x2": -0.5}


def fit_of(cell: Cell, number: int) -> dict[str, Any]:
    """Return what is stored of a seed: of both fits whether each rule leaves intervals; of now which ones hold."""
    seed = zlib.crc32(cell.name.encode())
    rng = np.random.default_rng([seed, number, 1])
    table, truth = patients_of(cell, number, rng) if cell.kind == "patients" else outcomes_of(cell, rng)
    right = FORMULA if cell.kind == "patients" else "C(f) + x1 + x2"
    response = "ill" if cell.model == "Logit" else "visits" if cell.kind == "patients" else "falls"
    exposure = {"exposure": "months"} if response == "visits" else {}
    model = getattr(pi, cell.model).from_formula(f"{response} ~ {right}", table, schema=SCHEMA, **exposure)

    def fit() -> tuple[Any, dict[str, Any]]:
        with fitted_parts() as parts:
            result = model.fit(
                epsilon=cell.epsilon, delta=DELTA, rng=np.random.default_rng([seed, number, 2])
            )
        draws = parts[-1]["draws"] if parts else None
        return result, {
            "posterior": bool(draws and draws.weak),
            "all_short": bool(draws and (draws.converged or draws.weak)),
            "intervals": result.estimate.cov is not None,
        }

    with earlier_rounds():
        result, facts = fit()
    line: dict[str, Any] = {"cell": cell.name, "fit": number}
    line |= {f"earlier_{name}": value for name, value in facts.items()}
    line["earlier_length"] = lengths_of(result.conf_int()) if facts["intervals"] else []
    result, facts = fit()
    line |= facts
    if not line["intervals"]:
        return line
    ends = result.conf_int()
    values = np.array([truth[name] for name in ends.index])
    level = "C(region)[T.island]" if cell.kind == "patients" else "C(f)[T.1]"
    line["level"] = list(ends.index).index(level)
    line["flagged"] = [name in result.weakly_identified.index for name in ends.index]
    line["holds"] = ((ends[0] <= values) & (values <= ends[1])).tolist()
    line["bounded"] = bool(np.isfinite(ends.loc[level]).all())
    line["length"] = lengths_of(ends)
    return line


def lengths_of(ends: pd.DataFrame) -> list[float]:
    """Return the lengths of intervals; of unbounded ones a large number."""
    return [min(float(length), UNBOUNDED) for length in ends[1] - ends[0]]


def stored(path: Path) -> list[dict[str, Any]]:
    """Return stored fits."""
    return [json.loads(text) for text in path.read_text().splitlines()] if path.exists() else []


def run(path: Path, scale: float) -> None:
    """Make the fits that are not stored, and store each one as it ends."""
    done = {(line["cell"], line["fit"]) for line in stored(path)}
    largest = max(cell.fits for cell in CELLS)
    with warnings.catch_warnings(), path.open("a") as file:
        warnings.simplefilter("ignore")
        for number in range(max(round(scale * largest), 1)):
            for cell in CELLS:
                if number < max(scale * cell.fits, 1) and (cell.name, number) not in done:
                    file.write(json.dumps(fit_of(cell, number)) + "\n")
                    file.flush()


# ---- the page


def covered(hits: list[bool]) -> str:
    """Return a coverage, its number of intervals and the 99% binomial limit."""
    if not hits:
        return "-"
    lowest = binom.ppf(LIMIT, len(hits), 0.95) / len(hits)
    return f"{np.mean(hits):.3f} of {len(hits)} ({lowest:.3f})"


def coefficients(lines: list[dict[str, Any]], *, level: bool) -> list[bool]:
    """Return whether intervals hold: of the rare level, or of the others without a flag."""
    if level:
        return [line["holds"][line["level"]] for line in lines if line["bounded"]]
    return [
        held
        for line in lines
        for j, (held, flag) in enumerate(zip(line["holds"], line["flagged"], strict=True))
        if j != line["level"] and not flag
    ]


def relative_length(lines: list[dict[str, Any]], *, level: bool) -> str:
    """Return the median of lengths over those of the earlier rounds: of the rare level, or of the others."""
    ratios = [
        now / earlier
        for line in lines
        if line["intervals"] and line["earlier_intervals"]
        for j, (now, earlier) in enumerate(zip(line["length"], line["earlier_length"], strict=True))
        if (j == line["level"]) == level
    ]
    return f"{np.median(ratios):.2f}" if ratios else "-"


def row_of(name: str, lines: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a row of the table."""
    fits = [line for line in lines if line["intervals"] and not line["posterior"]]
    saved = [line for line in fits if not line["earlier_intervals"]]
    flagged = [line for line in fits if line["flagged"][line["level"]]]
    clear = [line for line in fits if not line["flagged"][line["level"]]]
    return {
        "rows, model, n, epsilon": name,
        "fits": len(lines),
        "no interval: earlier rounds and rule": sum(not line["earlier_all_short"] for line in lines),
        "earlier rounds": sum(not line["earlier_intervals"] for line in lines),
        "now": sum(not line["intervals"] for line in lines),
        "posterior: earlier rounds": sum(line["earlier_posterior"] for line in lines),
        "posterior, now": sum(line["posterior"] for line in lines),
        "level unbounded, now": sum(not line["bounded"] for line in lines if line["intervals"]),
        "length of others": relative_length(lines, level=False),
        "of the level": relative_length(lines, level=True),
        "others": covered(coefficients(fits, level=False)),
        "others, fits without an interval by earlier rounds": covered(coefficients(saved, level=False)),
        "level, flagged": covered(coefficients(flagged, level=True)),
        "level, not flagged": covered(coefficients(clear, level=True)),
    }


TITLE = "# Rare levels of a factor, in logistic and count fits"
NOTE = """
Made by `python benchmarks/rare_levels.py --report FILE` from fits of `--run`; delta = 1e-6, replace-one, 95% intervals. Coverages have their
number of intervals, and in brackets the 1% quantile of the share of a binomial distribution with probability 0.95.

- **Rows.** *patients*: a factor of four levels of which the last one has 1% of the rows, sex, age and smoking; counts have an exposure. A
  third of the fits each have no effect of the level, a positive one (its people are older and smoke more), and a negative one. *outcomes*: an
  intercept, the share of an indicator that goes with the first of two uniform columns, its coefficient.
- **Earlier rounds** stretched the whitening of the rounds in all directions. **Now** rounds of count models hold directions of rare levels back
  whose curvature the noise hides (`privinf.glm.curved.newton_move`). Those of `Logit` are as they were. Both are fitted with the same seeds, by `--run FILE --scale 0.3`.
- **Earlier rule**: the last step of all coefficients is judged together. Since then, rare levels that the noise hides are left out.
- **Posterior**: weak fits, whose intervals come from a posterior with a prior. They are not in the coverages.
- **Length**: median of the lengths of intervals now, relative to those with earlier rounds, in fits with intervals in both cases.
- **Level unbounded**: fits that converged only without the level. It is flagged then, as it is if its standard error is above 1.
- **Coverages** are those of fits now. *Others* are the coefficients without a flag that do not belong to the level.
"""

FINDINGS = """
## Findings

- **Cause.** The rows of a rare level are few, and their curvature is clipped. Along the level, the Hessian of a round is therefore not above
  its noise, however far the whitening is stretched, and each round stretched it again, by about 2.6. The scores of these rows became the
  longest ones. They raised the clipping threshold and with it the noise of all coefficients. The noise of the level also shortened the
  steps of the other coefficients, so that the last step was too long.
- **Used since, in count models.** The rounds do not stretch such a direction further than a limit, and its step is shrunk by itself. With
  earlier rounds, {earlier} fits of counts have no interval, and now {now}. Intervals of the level are less than a quarter as long at the median.
- **Not in logistic models.** In a trial, weak fits of `Logit` to 720 rows had a note on outlying rows in 12 of 12 cases (before, in 3), and
  intervals of the other coefficients were about 15% longer.
- **What is left.** Of the {now} fits of counts without an interval now, {poisson} are fits of `Poisson` to 8,000 rows with few events.
- **The rule of the last step** left out hidden levels before the rounds changed. It is still needed: the interval of the
  level is unbounded in {unbounded} fits now.
- **Coverage** of the other coefficients agrees with 0.95. The step of the level may bias them by a part of a standard error in
  a logistic fit (`privinf.glm.rare_levels`). This part is not seen here, with levels whose people are older, smoke more, and are ill three
  times as often.
- **The level itself.** A flagged coefficient has a wide interval that covers. With a strong effect in counts it can miss: in a trial of 40 fits
  of counts with dispersion and the coefficient 1.5 in 2% of 8,000 rows, the intervals by draws of 14 fits would have covered 9 times. Therefore the
  interval is unbounded if the fit converged only without the level.
- **Without a flag.** If the standard error of a rare level is below 1, its coefficient has no flag. Scores of the few records of the level are
  longer than others and most of them are clipped, so that `NegativeBinomial` estimates such coefficients too low: 0.3 to 0.5 of their
  intervals covered in the cells with 24,000 rows and in that with 12,000 rows and epsilon 2. Since then, these intervals allow for a bias of
  all of the clipped tail (`privinf.glm.long_rows`), and a note names the level. The fits of `NegativeBinomial` above have this allowance.
"""


def report(path: Path) -> None:
    """Write the page."""
    lines = stored(path)
    names = [cell.name for cell in CELLS if any(line["cell"] == cell.name for line in lines)]
    rows = [row_of(name, [line for line in lines if line["cell"] == name]) for name in names]
    rows += [row_of("all", lines)]
    counted = [line for line in lines if "Logit" not in line["cell"]]
    lost = [line for line in counted if not line["intervals"]]
    findings = FINDINGS.format(
        earlier=sum(not line["earlier_intervals"] for line in counted),
        now=len(lost),
        poisson=sum("outcomes" in line["cell"] and "Poisson" in line["cell"] for line in lost),
        unbounded=sum(not line["bounded"] for line in lines if line["intervals"]),
    )
    PAGE.write_text(f"{TITLE}\n{NOTE}\n{markdown(rows)}\n{findings}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--run", type=Path)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--report", type=Path)
    options = parser.parse_args()
    if options.run is not None:
        run(options.run, options.scale)
    if options.report is not None:
        report(options.report)


if __name__ == "__main__":
    main()
