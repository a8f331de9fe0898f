"""Two private regressions on real data: one with a trusted curator, one in which nobody is trusted.

``make demo`` runs this. It prints two summaries and writes one picture to demo_output/.
``python vignettes/demo.py --measure`` repeats the second fit 100 times and writes benchmarks/results/demo.md.
The bounds below are public: they come from the surveys' code books, never from the rows.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from statsmodels.datasets import fair, randhie

import privinf as pi

EPSILON, LOCAL_EPSILON, DELTA, SEEDS = 1.0, 4.0, 1e-6, 100
OUTPUT = Path("demo_output")
PAGE = Path(__file__).parents[1] / "benchmarks" / "results" / "demo.md"

MARRIAGES = pi.Schema(
    {"yrs_married": (0.0, 25.0), "age": (17.0, 45.0), "children": (0.0, 6.0), "religious": (1.0, 4.0)}
)
VISITS = pi.Schema({"visit": (0.0, 1.0), "free": (0.0, 1.0)})
MARRIED, VISITED = "yrs_married ~ age + children + religious", "visit ~ free"


def insured() -> pd.DataFrame:
    """Return RAND's health insurance experiment: was there a visit to a doctor that year, was care free?"""
    rows = randhie.load_pandas().data
    return pd.DataFrame(
        {"visit": (rows["mdvis"] > 0).astype(float), "free": (rows["lncoins"] == 0).astype(float)}
    )


def central_fit() -> Any:
    """Fit once on the rows of Fair's survey; the curator adds the noise."""
    model = pi.OLS.from_formula(MARRIED, fair.load_pandas().data, schema=MARRIAGES)
    return model.fit(epsilon=EPSILON, delta=DELTA)


def local_fit(rows: pd.DataFrame, rng: int | None = None) -> Any:
    """Fit on what the records of RAND's experiment send, each with noise of its own."""
    model = pi.MomentOLS.from_formula(VISITED, rows, schema=VISITS, trust="local")
    return model.fit(epsilon=LOCAL_EPSILON, delta=DELTA, rng=rng)


def marked(result: Any) -> bool:
    """Whether the fit says of itself that its normal intervals are not to be trusted, or err on one side."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        result.conf_int()
    return bool(said) or bool(result.identification.weak)


def picture(central: Any, local: Any, path: Path) -> None:
    """Draw both fits' coefficients with their intervals, and inside these what they were without noise."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(10.8, 3.3), layout="constrained", width_ratios=(3, 2))
    for ax, result, title in zip(
        axes,
        (central, local),
        ("A curator adds the noise: years married", "Each record adds its own: any visit"),
        strict=True,
    ):
        result.plot(ax=ax)
        ax.set_title(title, loc="left", pad=20)
        ax.get_legend().remove()
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False, fontsize="small")
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=90)


def measure() -> None:
    """Repeat the local fit under seeds; write how many are marked, and how many intervals hold the clear fit."""
    rows = insured()
    clear = float(np.subtract(*(rows["visit"][rows["free"] == side].mean() for side in (1.0, 0.0))))
    flags, held, apart, widths = 0, 0, 0, []
    for seed in range(SEEDS):
        result = local_fit(rows, seed)
        flags += marked(result)
        low, high = result.conf_int().loc["free"]
        held += low <= clear <= high
        apart += low > 0.0 or high < 0.0
        widths.append(high - low)
    PAGE.write_text(f"""# The local fit of the demo

`python vignettes/demo.py --measure`: `MomentOLS(trust="local")`, `{VISITED}`, RAND's health insurance experiment
({len(rows):,} rows, statsmodels' copy), epsilon {LOCAL_EPSILON:g}, delta {DELTA:g}, seeds 0 to {SEEDS - 1}.

| what | number |
|---|---|
| fits that are marked as weakly identified, or warn of their intervals | {flags} of {SEEDS} |
| 95% intervals that hold the coefficient of the same rows without privacy ({clear:.4f}) | {held} of {SEEDS} |
| 95% intervals that exclude zero | {apart} of {SEEDS} |
| median width of the interval | {np.median(widths):.3f} |
""")
    print(PAGE.read_text())


def main() -> None:
    """Fit both, print what they say, and draw them."""
    print("1. A curator holds the rows of Fair's survey and adds noise to what is released.\n")
    central = central_fit()
    print(central.summary())
    print("\nHypothesis: a year of age and a child add the same number of years")
    print(central.t_test("age = children"))

    print("\n2. Nobody is trusted: each record of RAND's experiment sends noisy numbers (a record is a year")
    print("   of a person; plans were drawn by lot). Does free care change whether one sees a doctor?\n")
    local = local_fit(insured())
    print(local.summary())
    test = local.score_test()
    print(f"\nScore test of no effect: chi2({test.df}) = {test.statistic:.1f}, p = {test.pvalue:.3g}")
    print(f"Identification: {local.identification}")
    np.testing.assert_array_less(central.privacy.epsilon(DELTA), EPSILON * (1 + 1e-9))
    picture(central, local, OUTPUT / "coefficients.png")
    print(f"\nPicture: {OUTPUT / 'coefficients.png'}")


if __name__ == "__main__":
    measure() if "--measure" in sys.argv[1:] else main()
