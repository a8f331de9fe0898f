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

EPSILON, LOCAL_EPSILON, DELTA, SEEDS = 1.0, 6.0, 1e-6, 100
DARK, LIGHT = "#16324f", "#f0a94a"  # printed in grey one is dark and the other light
NORMAL_975 = 1.959964
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
    """Return whether the fit is marked as weakly identified, or warns about its intervals."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        result.conf_int()
    return bool(said) or bool(result.identification.weak)


def interval_panel(axis: Any, result: Any, name: str, unit: str) -> None:
    """Draw the interval of one coefficient on an axis of its own, above what it would be without noise."""
    estimate = float(result.params[name])
    low, high = (float(end) for end in result.conf_int().loc[name])
    without_noise = NORMAL_975 * float(result.bse_sampling[name])
    axis.plot([low, high], [1.0, 1.0], color=DARK, linewidth=2.5, marker="|", markersize=12)
    axis.plot([estimate - without_noise, estimate + without_noise], [0.0, 0.0], color=LIGHT, linewidth=9)
    axis.plot([estimate, estimate], [0.0, 1.0], linestyle="none", marker="o", color=DARK, markersize=5)
    margin = 0.3 * (high - low)
    left, right = low - margin, high + margin
    if abs(estimate) < 1.5 * (high - low):  # zero is near: show it
        left, right = min(left, -margin), max(right, margin)
        axis.axvline(0.0, color=DARK, linewidth=1, linestyle=(0, (3, 3)))
    axis.set(xlim=(left, right), ylim=(-0.6, 1.6), yticks=[0.0, 1.0], xlabel=unit)
    axis.xaxis.label.set_size(9)
    axis.set_yticklabels(["without noise\n(estimate)", "released"])
    axis.set_title(name, loc="left", fontweight="bold")
    axis.locator_params(axis="x", nbins=4)
    axis.spines[["top", "right", "left"]].set_visible(False)
    axis.tick_params(axis="y", length=0)


def picture(central: Any, local: Any, path: Path) -> None:
    """Draw every coefficient of both fits on an axis of its own."""
    from matplotlib import pyplot

    panels = [
        (central, "age", "years married per year of age"),
        (central, "children", "years married per child"),
        (central, "religious", "years married per scale point"),
        (local, "free", "change of P(any visit)"),
    ]
    figure, axes = pyplot.subplots(1, 4, figsize=(11.0, 2.6), layout="constrained")
    for axis, (result, name, unit) in zip(axes, panels, strict=True):
        interval_panel(axis, result, name, unit)
    for axis in axes[1:]:
        axis.set_yticklabels([])
    axes[0].annotate(f"The curator adds noise, epsilon {EPSILON:g}", (0.0, 1.22), xycoords="axes fraction")
    axes[3].annotate(
        f"Each record adds noise, epsilon {LOCAL_EPSILON:g}", (0.0, 1.22), xycoords="axes fraction"
    )
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=90)


def measure() -> None:
    """Repeat the local fit under seeds; write how many are marked, and how many intervals contain the fit without privacy."""
    rows = insured()
    without_privacy = float(np.subtract(*(rows["visit"][rows["free"] == side].mean() for side in (1.0, 0.0))))
    flags, covered, nonzero, widths = 0, 0, 0, []
    for seed in range(SEEDS):
        result = local_fit(rows, seed)
        flags += marked(result)
        low, high = result.conf_int().loc["free"]
        covered += low <= without_privacy <= high
        nonzero += low > 0.0 or high < 0.0
        widths.append(high - low)
    PAGE.write_text(f"""# The local fit of the demo

`python vignettes/demo.py --measure`: `MomentOLS(trust="local")`, `{VISITED}`, RAND's health insurance experiment
({len(rows):,} rows, statsmodels' copy), epsilon {LOCAL_EPSILON:g}, delta {DELTA:g}, seeds 0 to {SEEDS - 1}.

| what | number |
|---|---|
| fits that are marked as weakly identified, or that warn about their intervals | {flags} of {SEEDS} |
| 95% intervals that contain the coefficient of the same rows without privacy ({without_privacy:.4f}) | {covered} of {SEEDS} |
| 95% intervals that exclude zero | {nonzero} of {SEEDS} |
| median width of the interval | {np.median(widths):.3f} |
""")
    print(PAGE.read_text())


def main() -> None:
    """Fit both models, print their summaries, and draw their intervals."""
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
