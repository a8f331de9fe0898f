"""Coverage and size of `pi.stats` with missing="drop", where rows lack a value: real calls, and counts of tables.

``python benchmarks/missing_stats.py [part ...]`` writes benchmarks/results/missing_stats.md; the parts are means,
shares, quantiles, groups, pairs, tables and ranks (default: all, about an hour of a core). 400 draws a cell of
the records, of what is missing and of the noise. Widths are over those of the same call on the complete rows alone,
whose number then counts as public.
"""

from __future__ import annotations

import json
import math
import sys
import warnings
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
from scipy import stats

import privinf as pi
from privinf.accounting import calibrate_mu
from privinf.stats.association import TableModel
from privinf.stats.groups import GroupModel

OUT = Path(__file__).parent / "results" / "missing_stats.md"
DRAWS = 400
TOLD = 40  # draws of which the width is compared
TABLES = 499  # simulated tables behind a p-value
SIZES = (300, 2000, 20_000)
LEVELS = (1.0, 4.0)
SHARES = (0.05, 0.2, 0.5)
LEAST, MOST = (float(stats.binom.ppf(tail, DRAWS, 0.95)) / DRAWS for tail in (0.005, 0.995))
POINTS = 401


def law(kind, center=0.0, sd=0.25):
    """Return values in [-1, 1] and their probabilities."""
    x = np.linspace(-1.0, 1.0, POINTS)
    if kind == "two":
        return np.array([-1.0, 1.0]), np.array([1.0 - center, center])
    p = stats.norm.pdf(x, center, sd)
    if kind == "lognormal":  # of log sd .75, median 1, on bounds from 0 to 12
        p = stats.lognorm.pdf(np.maximum((x + 1.0) * 6.0, 1e-9), 0.75)
    return x, p / p.sum()


LAWS = {
    "normal": law("normal"),
    "lognormal": law("lognormal"),
    "5% of 1": law("two", 0.05),
    "mean at -0.9": law("normal", -0.9, 0.05),
}
BOUNDS = {"bounds": (-1.0, 1.0)}


def drawn(rng, one, n):
    x, p = one
    return x[np.minimum(np.searchsorted(np.cumsum(p), rng.uniform(size=n)), len(x) - 1)]


def lacking(rng, values, share):
    """Return the values with missing ones; `share` is a number or one number a record."""
    return np.where(rng.uniform(size=len(values)) < share, np.nan, values)


def cells(sizes):
    return product(SHARES, sizes, LEVELS)


def measured(part, name, one_draw: Callable, sizes=SIZES):
    """Run a cell's draws; `one_draw` gives covered or not rejected, and the width with and without being told N."""
    rows = []
    for share, n, epsilon in cells(sizes):
        mu = calibrate_mu(epsilon=epsilon, delta=1e-6)
        held, widths = [], []
        for draw in range(DRAWS):
            rng = np.random.default_rng([sum(map(ord, part + name)), int(100 * share), n, int(epsilon), draw])
            numbers, ratio = one_draw(rng, n, share, mu, draw < TOLD)
            held.append(numbers)
            widths += [] if ratio is None else [ratio]
        kept = np.mean(held, axis=0)
        rows.append(
            [name, share, n, epsilon, *kept.tolist(), float(np.median(widths)) if widths else math.nan]
        )
        print(part, rows[-1], flush=True)
    return rows


def width(row):
    return row.high - row.low


def ratio(row, told):
    """Return the width over that of the row of a call that is told N."""
    return width(row) / max(width(told().rows[0]), 1e-12)


def means():
    rows = []
    for name, one in LAWS.items():
        truth = float(one[0] @ one[1])

        def draw(rng, n, share, mu, told, one=one, truth=truth):
            x = lacking(rng, drawn(rng, one, n), share)
            words = {"mu": mu, "rng": rng, **BOUNDS}
            row = pi.stats.mean(x, missing="drop", **words).rows[0]
            compared = ratio(row, lambda: pi.stats.mean(x[~np.isnan(x)], **words)) if told else None
            return [row.low <= truth <= row.high], compared

        rows += measured("means", name, draw)
    return ["values", "missing", "n", "epsilon", "coverage", "width"], rows


def shares():
    rows = []
    for p in (0.5, 0.1, 0.02):

        def draw(rng, n, share, mu, told, p=p):
            x = lacking(rng, (rng.uniform(size=n) < p).astype(float), share)
            words = {"mu": mu, "rng": rng}
            row = pi.stats.proportion_confint(x, missing="drop", **words).rows[0]
            compared = (
                ratio(row, lambda: pi.stats.proportion_confint(x[~np.isnan(x)], **words)) if told else None
            )
            return [row.low <= p <= row.high], compared

        rows += measured("shares", f"{p:g}", draw)
    return ["share", "missing", "n", "epsilon", "coverage", "width"], rows


def quantiles():
    rows = []
    for name in ("normal", "lognormal", "mean at -0.9"):
        one = LAWS[name]
        truths = [_spread_quantile(one, q) for q in (0.5, 0.9)]

        def draw(rng, n, share, mu, told, one=one, truths=truths):
            # The grid's values are spread over its cells, so that no quantile is a heap of rows.
            step = 2.0 / (POINTS - 1)
            x = drawn(rng, one, n) + step * (rng.uniform(size=n) - 0.5)
            x = lacking(rng, x, share)
            words = {"mu": mu, "rng": rng, **BOUNDS}
            found = pi.stats.quantile(x, (0.5, 0.9), missing="drop", **words).rows
            compared = (
                ratio(found[0], lambda: pi.stats.quantile(x[~np.isnan(x)], (0.5, 0.9), **words))
                if told
                else None
            )
            return [row.low <= at <= row.high for row, at in zip(found, truths, strict=True)], compared

        rows += measured("quantiles", name, draw)
    return ["values", "missing", "n", "epsilon", "median", "q = 0.9", "width of the median's"], rows


def _spread_quantile(one, q):
    """Return a quantile of a law whose values are spread over their cells."""
    x, p = one
    step = 2.0 / (POINTS - 1)
    at = int(np.searchsorted(np.cumsum(p), q))
    return float(x[at] + step * ((q - p[:at].sum()) / p[at] - 0.5))


# Shares of the groups, laws of their values, and factors of the share of missing values.
DESIGNS = {
    "two equal": ([0.5, 0.5], [law("normal")] * 2, [1.0, 1.0]),
    "1:9, sds 3:1": ([0.1, 0.9], [law("normal", sd=0.3), law("normal", sd=0.1)], [1.5, 0.5]),
    "1:4, lognormal": ([0.2, 0.8], [LAWS["lognormal"]] * 2, [0.5, 1.5]),
    "three, sds 3:2:1": (
        [0.2, 0.3, 0.5],
        [law("normal", sd=sd) for sd in (0.3, 0.2, 0.1)],
        [1.5, 1.0, 0.5],
    ),
}


def first_difference(result):
    """Return the 95% interval of the first group's mean less the second's, of any number of groups."""
    return GroupModel.released(result.release).first_difference(0.95)[0]


def groups():
    rows = []
    for name, (parts, laws, factors) in DESIGNS.items():
        k = len(parts)
        chance = np.array(factors)

        def draw(rng, n, share, mu, told, parts=parts, laws=laws, k=k, chance=chance):
            g = rng.choice(k, n, p=parts)
            x = np.empty(n)
            for level, one in enumerate(laws):
                x[g == level] = drawn(rng, one, int((g == level).sum()))
            x = lacking(rng, x, share * chance[g])
            words = {"mu": mu, "rng": rng, "levels": list(range(k)), **BOUNDS}
            result = pi.stats.anova_oneway(x, g, missing="drop", **words)
            low, high = first_difference(result)
            there = ~np.isnan(x)
            compared = None
            if told:
                plain = first_difference(pi.stats.anova_oneway(x[there], g[there], **words))
                compared = (high - low) / max(plain[1] - plain[0], 1e-12)
            return [low <= 0.0 <= high, result.pvalue >= 0.05], compared

        rows += measured("groups", name, draw)
    return ["groups", "missing", "n", "epsilon", "difference", "1 - size of ANOVA", "width"], rows


def pairs():
    rows = []
    for name, r in (("normal", 0.0), ("normal", 0.6), ("skewed", 0.0)):

        def draw(rng, n, share, mu, told, name=name, r=r):
            u, e = rng.normal(size=(2, n))
            v = r * u + math.sqrt(1.0 - r * r) * e
            if name == "skewed":
                u, v = np.exp(0.6 * u) - 1.2, np.exp(0.6 * v) - 1.2
            # Where u is larger, v is missing more often: that does not depend on v, given u.
            v = lacking(rng, v, np.clip(share * np.where(u > 0.0, 1.5, 0.5), 0.0, 1.0))
            words = {"mu": mu, "rng": rng, "bounds": ((-4.0, 4.0), (-4.0, 4.0))}
            result = pi.stats.pearsonr(u, v, missing="drop", **words)
            row = result.rows[0]
            there = ~np.isnan(v)
            compared = ratio(row, lambda: pi.stats.pearsonr(u[there], v[there], **words)) if told else None
            # Selection by u changes the variance of u, and so the correlation of complete pairs.
            truth = _selected(r, share)
            return [row.low <= truth <= row.high, math.nan if r else result.pvalue >= 0.05], compared

        rows += measured("pairs", f"{name}, r = {r:g}", draw)
    return ["pairs", "missing", "n", "epsilon", "coverage", "1 - size", "width"], rows


def _selected(r, share):
    """Return the correlation of normal pairs that are kept more often where u < 0."""
    low, high = 1.0 - 0.5 * share, 1.0 - min(1.5 * share, 1.0)
    kept = 0.5 * (low + high)
    mean = math.sqrt(2.0 / math.pi) * 0.5 * (high - low) / kept
    variance = 1.0 - mean**2
    return r * math.sqrt(variance) / math.sqrt(r * r * variance + 1.0 - r * r)


def tables():
    rows = []
    tables_of = {
        "3 x 4, equal": ([1 / 3] * 3, [0.25] * 4),
        "2 x 5, rare": ([0.9, 0.1], [0.6, 0.3, 0.06, 0.03, 0.01]),
    }
    for name, (p, q) in tables_of.items():

        def draw(rng, n, share, mu, told, p=p, q=q):
            # The counts of records drawn one by one: a row of the table lacks its other value more often.
            kept = 1.0 - share * np.where(np.arange(len(p)) == 0, 0.5, 1.5)
            cells = (np.array(p) * kept)[:, None] * np.array(q)
            counts = rng.multinomial(n, [*cells.ravel(), 1.0 - cells.sum()]).astype(float)
            counts += rng.normal(0.0, math.sqrt(2.0) / mu, len(counts))
            X, gaps = counts[:-1].reshape(cells.shape), np.asarray(counts[-1])
            model = TableModel.from_counts(X, n, math.sqrt(2.0) / mu, gaps=gaps)
            T = float(model.independence()[0])
            simulated = model.simulate(TABLES, stream=int(rng.integers(1 << 30))).independence()[0]
            return [(1.0 + np.count_nonzero(simulated >= T)) / (TABLES + 1.0) >= 0.05], None

        rows += measured("tables", name, draw)
    return ["table", "missing", "n", "epsilon", "1 - size", "width"], rows


def ranks():
    rows = []
    for name, (parts, chance) in {"equal": ([0.5, 0.5], [1.0, 1.0]), "1:4": ([0.2, 0.8], [0.5, 1.5])}.items():

        def draw(rng, n, share, mu, told, parts=parts, chance=chance):
            g = rng.choice(2, n, p=parts)
            x = lacking(rng, rng.lognormal(size=n), share * np.array(chance)[g])
            words = {"mu": mu, "rng": rng, "missing": "drop"}
            two = pi.stats.mannwhitneyu(x[g == 0], x[g == 1], **words)
            third = rng.choice(3, n)
            three = pi.stats.kruskal(x, third, levels=[0, 1, 2], **words)
            centered = rng.normal(size=n)
            signed = pi.stats.wilcoxon(np.where(np.isnan(x), np.nan, centered), 0.0, **words)
            row = two.rows[0]
            return [
                row.low <= 0.5 <= row.high,
                two.pvalue >= 0.05,
                three.pvalue >= 0.05,
                signed.pvalue >= 0.05,
                signed.rows[0].low <= 0.0 <= signed.rows[0].high,
            ], None

        rows += measured("ranks", name, draw, SIZES[:2])
    head = ["samples", "missing", "n", "epsilon", "P(x > y)", "1 - size, Mann-Whitney", "Kruskal", "Wilcoxon"]
    return [*head, "rank-biserial r", "width"], rows


PARTS = {one.__name__: one for one in (means, shares, quantiles, groups, pairs, tables, ranks)}


def written(results):
    """Return the page."""
    lines = [
        '# Tests and intervals with missing="drop"',
        "",
        "Made by `python benchmarks/missing_stats.py`.",
        "",
    ]
    lines += [
        f"{DRAWS} draws a cell. Coverage at 95% and one minus the size at 5%: with 99% probability a rate of 0.95 "
        f"is measured between {LEAST:.3f} and {MOST:.3f}. Width: median of {TOLD} draws, relative to the call "
        "that knows the number of complete rows. Epsilon at delta = 1e-6, Gaussian noise.",
        "",
    ]
    for part, (head, rows) in results.items():
        rates = np.array([row[4:-1] for row in rows], dtype=float)
        rates = rates[~np.isnan(rates)]
        below = int((rates < LEAST).sum())
        widths = np.array([row[-1] for row in rows], dtype=float)
        worst = f"lowest {rates.min():.3f}"
        if not np.isnan(widths).all():
            worst += f"; widths {np.nanmin(widths):.2f} to {np.nanmax(widths):.2f}, median {np.nanmedian(widths):.2f}"
        lines += [
            f"## {part.capitalize()}",
            "",
            f"{rates.size} rates, {below} below {LEAST:.3f}; {worst}.",
            "",
        ]
        lines += ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
        for row in rows:
            numbers = ["-" if math.isnan(value) else f"{value:.3f}" for value in row[4:-1]]
            last = "-" if math.isnan(row[-1]) else f"{row[-1]:.2f}"
            lines.append(
                f"| {row[0]} | {row[1]:.0%} | {row[2]:,} | {row[3]:g} | {' | '.join(numbers)} | {last} |"
            )
        lines.append("")
    return "\n".join(lines)


def main(names):
    warnings.simplefilter("ignore")
    stored = OUT.with_suffix(".json")
    results = json.loads(stored.read_text()) if stored.exists() and names else {}
    for name in names or PARTS:
        results[name] = PARTS[name]()
        results = {part: results[part] for part in PARTS if part in results}
        if len(results) < len(PARTS):
            stored.write_text(json.dumps(results))
        OUT.write_text(written(results))
    if len(results) == len(PARTS):
        stored.unlink(missing_ok=True)


if __name__ == "__main__":
    main(sys.argv[1:])
