"""False notes of clipping, and notes on values that are outside: the count of a fit.

Two parts. The count alone, with the noise that `privinf.glm.clipping` states, over many draws at every cell of rows
and columns. Whole fits of tables without a value outside its bounds, skewed and rare columns among them, and
of the two tables of the changelog.

    python benchmarks/clipping.py [--fits 100] [--draws 20000] [--write]
"""

from __future__ import annotations

import argparse
import math
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

import privinf as pi
from privinf.accounting import calibrate_mu, split_mu
from privinf.glm.clipping import COUNT_SHARE, DETECTABLE_SHARE, is_detectable, threshold

EPSILON, DELTA = 1.0, 1e-6
ROWS, COLUMNS = (2_000, 5_000, 10_000, 15_000, 20_000, 50_000), (3, 5, 10, 20)
SHARES = (0.005, 0.01, 0.02, DETECTABLE_SHARE)
PAGE = Path(__file__).parent / "results" / "clipping.md"
CAUTIONS = ("their public bounds", "the same end of the bounds 0 and 1")


def count_alone(n: int, k: int, draws: int, share: float, rng: np.random.Generator) -> float | None:
    """Return how often the count of one of k columns, with this share outside, is a note; without one, that of any.

    None: not counted.
    """
    mu = split_mu(calibrate_mu(epsilon=EPSILON, delta=DELTA), [1.0 - COUNT_SHARE, COUNT_SHARE])[1]
    if not is_detectable(n, k, mu):
        return None
    sd = math.sqrt(k) / mu
    counts = share * n * (np.arange(k) == 0) + sd * rng.standard_normal((draws, k))
    visible = counts > threshold(k, sd)
    return float((visible[:, 0] if share else visible.any(axis=1)).mean())


def table(n: int, k: int, rng: np.random.Generator) -> tuple[pd.DataFrame, pi.Schema]:
    """Return rows inside their bounds: even, normal, skewed, rare and zero-heavy columns, and a response."""
    columns, bounds = {}, {}
    for j in range(k):
        kind = j % 5
        if kind == 0:
            values, low, high = rng.uniform(-1.0, 1.0, n), -1.0, 1.0
        elif kind == 1:
            values, low, high = np.clip(rng.normal(40.0, 12.0, n), 18.0, 90.0), 18.0, 90.0
        elif kind == 2:
            values, low, high = np.minimum(rng.lognormal(0.0, 1.0, n), 40.0), 0.0, 40.0
        elif kind == 3:
            values, low, high = (rng.uniform(size=n) < 0.05).astype(float), 0.0, 1.0
        else:
            values, low, high = np.minimum(rng.poisson(0.4, n), 12).astype(float), 0.0, 12.0
        columns[f"x{j}"], bounds[f"x{j}"] = values, (low, high)
    linear = sum((columns[name] - columns[name].mean()) / columns[name].std() for name in columns)
    columns["y"] = np.clip(linear + rng.normal(0.0, 2.0, n), -60.0, 60.0)
    return pd.DataFrame(columns), pi.Schema(bounds | {"y": (-60.0, 60.0)})


def noted(fit: object) -> bool:
    """Return whether a summary has a note, or a result has a caution, about clipping."""
    texts = [text for _, text in fit.cautions]  # type: ignore[attr-defined]
    texts += [note.text for note in fit.summary().ranked_notes if note.rank == "must-read"]  # type: ignore[attr-defined]
    return any(part in text for text in texts for part in CAUTIONS)


def whole_fits(fits: int) -> list[tuple[int, int, int, int, int]]:
    """Return (rows, columns, fits, false cautions, those that counted) of tables without clipping."""
    found = []
    cells = [(2_000, 5), (10_000, 5), (10_000, 20), (50_000, 10)]
    for n, k in cells:
        false = asked = 0
        for seed in range(max(fits // len(cells), 1)):
            rows, schema = table(n, k, np.random.default_rng(seed))
            formula = "y ~ " + " + ".join(f"x{j}" for j in range(k))
            model = pi.OLS.from_formula(formula, rows, schema=schema)
            # A table too small for intervals at this budget is fitted too: cautions are counted over all.
            fit = model.fit(epsilon=EPSILON, delta=DELTA, rng=seed, intervals="optional")
            false += noted(fit)
            asked += "values outside bounds" in set(fit.privacy.releases["label"])
        found.append((n, k, max(fits // len(cells), 1), false, asked))
    return found


def examples(fits: int) -> list[tuple[str, int, int, float]]:
    """Return (what, fits, cautions, middle estimate) of tables that bounds cut."""
    made: dict[str, list[tuple[bool, float]]] = {
        "response about 110 in (1000, 2000)": [],
        "ages in (18, 40)": [],
    }
    for seed in range(max(fits // 5, 1)):
        rng = np.random.default_rng(seed)
        age = rng.uniform(18.0, 90.0, 5_000)
        rows = pd.DataFrame({"age": age, "y": 82.0 + 0.52 * age + rng.normal(0.0, 5.0, 5_000)})
        for name, bounds, at in (
            ("response about 110 in (1000, 2000)", {"age": (18.0, 90.0), "y": (1000.0, 2000.0)}, 0),
            ("ages in (18, 40)", {"age": (18.0, 40.0), "y": (50.0, 200.0)}, 1),
        ):
            model = pi.OLS.from_formula("y ~ age", rows, schema=pi.Schema(bounds))
            # A table too small for intervals at this budget is fitted too: cautions are counted over all.
            fit = model.fit(epsilon=EPSILON, delta=DELTA, rng=seed, intervals="optional")
            made[name].append((noted(fit), float(fit.params.iloc[at])))
    return [
        (name, len(one), sum(hit for hit, _ in one), float(np.median([b for _, b in one])))
        for name, one in made.items()
    ]


def page(draws: int, fits: int) -> str:
    """Return the results as a page."""
    rng = np.random.default_rng(1)
    lines = [
        "# Notes on clipping",
        "",
        f"`python benchmarks/clipping.py --draws {draws} --fits {fits} --write`; epsilon {EPSILON:g}, delta {DELTA:g}. "
        "A fit of a curator's own rows spends 1% of its budget on a joint count of values outside their bounds, if a share of 5% would be detected with probability 0.8"
        " (`privinf.glm.clipping`).",
        "",
        "## The count alone",
        "",
        f"The table shows the share of {draws:,} draws in which a count stands out of the noise and is a note of the summary. "
        "Column *none*: any count, if no value is outside its bounds (0.01 by construction). Other columns: the count of a "
        "column of which this share of the values is outside. From 1% on such a note is also a warning.",
        "",
        f"| rows | columns | none | {' | '.join(f'{share:.1%}' for share in SHARES)} |",
        "|---|---|---|---|---|---|---|",
    ]
    for n in ROWS:
        for k in COLUMNS:
            visible = [count_alone(n, k, draws, share, rng) for share in (0.0, *SHARES)]
            cells = ["not counted" if one is None else f"{one:.3f}" for one in visible]
            lines.append(f"| {n:,} | {k} | {' | '.join(cells)} |")
    lines += [
        "",
        "## Whole fits without a value outside",
        "",
        "| rows | columns | fits | counted | false notes |",
        "|---|---|---|---|---|",
    ]
    clean = whole_fits(fits)
    lines += [f"| {n:,} | {k} | {size} | {asked} | {false} |" for n, k, size, false, asked in clean]
    lines += [
        "",
        "## Tables that bounds cut",
        "",
        "| table, 5,000 rows | fits | notes | middle estimate |",
        "|---|---|---|---|",
    ]
    lines += [f"| {name} | {size} | {hits} | {b:.4g} |" for name, size, hits, b in examples(fits)]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print the page, or write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=20_000)
    parser.add_argument("--fits", type=int, default=100)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    text = page(given.draws, given.fits)
    if given.write:
        PAGE.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
