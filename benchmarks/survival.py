"""Coverage of survival curves and size of log-rank tests: real fits, and draws of releases.

``python benchmarks/survival.py [curves | tests] [--fits 200]`` writes benchmarks/results/survival.md (default: both
parts, about an hour of a core). Curves are fits of `pi.survival.KaplanMeier`; the tests are 2,000 draws of people
and of noise a cell, through the functions that the package calls. Each part is stored in benchmarks/results/survival.json.
"""

from __future__ import annotations

import argparse
import json
import math
from itertools import product
from pathlib import Path

import numpy as np
from scipy import stats
from scipy.optimize import brentq
from scipy.signal import lfilter

import privinf as pi
from privinf.accounting import calibrate_mu
from privinf.inference.survival import (
    CellEstimate,
    CellNoise,
    gehan_weights,
    log_hazard_ratio,
    log_rank,
    survival_weights,
)
from privinf.mechanisms.catalogue import SITE_OPS
from privinf.mechanisms.statistics.survival import suffix_root

OUT = (Path(__file__).parent / "results" / "survival").with_suffix(".md")
STORE = OUT.with_suffix(".json")
FITS = 200
COMPARED = 40  # fits whose width is compared with that without noise
DRAWS = 2000
RATIOS = 400  # draws of hazard ratios
INTERVALS = 32
DELTA = 1e-6
SETTINGS = ((1000, 1.0), (5000, 0.2), (5000, 1.0), (5000, 4.0), (20_000, 1.0))
ORDERS = (0.1, 0.25, 0.5)
EDGES = np.linspace(0.0, 1.0, INTERVALS + 1)[1:]


def uniform(low, high):
    return lambda rng, n: rng.uniform(low, high, n)


def power(rate, shape):
    return (lambda L: (L / rate) ** (1.0 / shape)), (lambda t: rate * t**shape)


def cured(total, rate):
    return (
        lambda L: np.where(total > L, -np.log1p(-np.minimum(L, total * (1.0 - 1e-9)) / total) / rate, np.inf),
        lambda t: total * (1.0 - np.exp(-rate * t)),
    )


# Inverse of the cumulated hazard, the hazard, and the censoring; the last two are no laws of the method's page.
LAWS = {
    "Weibull 0.7": (*power(1.2, 0.7), uniform(0.2, 1.6)),
    "Weibull 2": (*power(1.2, 2.0), uniform(0.0, 1.5)),
    "2% events": (*power(0.02, 1.0), uniform(0.2, 1.6)),
    "early deaths and cure": (*cured(0.7, 8.0), uniform(0.2, 1.6)),
    "no censoring": (*power(1.0, 1.0), lambda rng, n: np.full(n, np.inf)),
    "very early censoring": (*power(0.8, 1.0), lambda rng, n: rng.exponential(0.25, n)),
    "late deaths": (*power(2.0, 5.0), uniform(0.1, 1.2)),
    "heavy early deaths": (*power(0.9, 0.35), lambda rng, n: rng.exponential(0.8, n)),
}


def people(rng, law, n):
    inverse, _, censored = LAWS[law]
    event, end = inverse(rng.exponential(size=n)), censored(rng, n)
    return np.minimum(event, end), (event <= end) * 1.0


# ---- curves


def curve_cell(law, n, epsilon, fits):
    hazard = LAWS[law][1]
    truth = np.exp(-hazard(EDGES))
    mu = calibrate_mu(epsilon=epsilon, delta=DELTA)
    inside, used, bands, quantiles, means, widths = [], [], [], [], [], []
    places = [INTERVALS // 4 - 1, INTERVALS // 2 - 1, INTERVALS - 1]
    for fit in range(fits):
        rng = np.random.default_rng([sum(map(ord, law)), n, int(10 * epsilon), fit])
        model = pi.survival.KaplanMeier(*people(rng, law, n), horizon=1.0, grid=INTERVALS)
        result = model.fit(mu=mu, rng=rng)
        table = result.table
        low, high, band_low, band_high = (
            table[name].to_numpy() for name in ("[0.025", "0.975]", "band low", "band high")
        )
        inside.append((low <= truth) & (truth <= high))
        used.append(table["survival"].notna().to_numpy())
        bands.append(bool(((band_low <= truth) & (truth <= band_high)).all()))
        row = []
        for p in ORDERS:
            target = -math.log1p(-p)
            time = brentq(lambda t, a=target: hazard(t) - a, 0.0, 1e4) if hazard(1e4) > target else math.inf
            answer = result.quantile(p).iloc[0]
            row.append(bool(answer.iloc[1] <= time <= answer.iloc[2]))
        quantiles.append(row)
        last = next(iter(result.last_times.values()))
        if last > 0.0:
            answer = result.restricted_mean().iloc[0]
            grid = np.linspace(0.0, last, 4001)
            mean = float(np.trapezoid(np.exp(-hazard(grid)), grid))
            means.append(bool(answer["[0.025"] <= mean <= answer["0.975]"]))
        if fit < COMPARED:
            exact = model.fit(mu=math.inf).table
            widths.append((high - low)[places] / (exact["0.975]"] - exact["[0.025"]).to_numpy()[places])
    inside, used = np.array(inside), np.array(used)
    rates = [
        float(inside[used[:, k], k].mean()) if used[:, k].sum() >= fits / 2 else math.nan
        for k in range(INTERVALS)
    ]
    middle = np.median(np.array(widths), axis=0)
    numbers = [rates[k] for k in places] + [float(np.nanmin(rates)), float(np.mean(bands))]
    numbers += [float(x) for x in np.mean(quantiles, axis=0)] + [float(np.mean(means))]
    return [law, n, epsilon, *numbers, *middle.tolist(), float(used.mean())]


def curves(fits):
    rows = []
    for law, (n, epsilon) in product(LAWS, SETTINGS):
        rows.append(curve_cell(law, n, epsilon, fits))
        print(rows[-1], flush=True)
    return rows


# ---- tests


def released(D, C, sigma, rng):
    root = suffix_root(INTERVALS + 1)
    sums = [lfilter(root, [1.0], part[..., ::-1], axis=-1)[..., ::-1] for part in (D, C)]
    values = np.concatenate(sums, axis=-1).reshape(len(D), -1)
    values = values + sigma * rng.standard_normal(values.shape)
    noise = CellNoise(scale=sigma, root=root, groups=D.shape[1])
    return CellEstimate.from_release(values, noise, int(D[0].sum() + C[0].sum()))


def noise_sd(groups, epsilon):
    marks = {"groups": np.arange(1, groups)} if groups > 1 else {}
    args = {"edges": EDGES, "status": 0, **marks}
    sensitivity = SITE_OPS["survival.cells"].record_sensitivity(args, groups)
    return sensitivity.l2 / calibrate_mu(epsilon=epsilon, delta=DELTA)


def drawn_cells(law, sizes, unequal, ratio=1.0, draws=DRAWS):
    rng = np.random.default_rng([7, sum(map(ord, law)), sum(sizes), unequal])
    D = np.zeros((draws, len(sizes), INTERVALS))
    C = np.zeros((draws, len(sizes), INTERVALS + 1))
    late, early = uniform(0.2, 1.6), uniform(0.05, 1.0)
    inverse = LAWS[law][0]
    for draw, (group, size) in product(range(draws), enumerate(sizes)):
        scaled = (lambda L, r=ratio: inverse(L / r)) if group else inverse
        censoring = early if unequal and group else late
        event, end = scaled(rng.exponential(size=size)), censoring(rng, size)
        time, died = np.minimum(event, end), event <= end
        interval = np.searchsorted(EDGES, time, side="left")
        died = died & (interval < INTERVALS)
        interval = np.where(died | (time < EDGES[-1]), interval, INTERVALS)
        D[draw, group] = np.bincount(interval[died], minlength=INTERVALS)
        C[draw, group] = np.bincount(interval[~died], minlength=INTERVALS + 1)
    return D, C, rng


def rejections(D, C, sigma, rng):
    cells = released(D, C, sigma, rng)
    limit = stats.chi2.isf(0.05, D.shape[1] - 1)
    weights = (None, survival_weights(cells, 1.0), gehan_weights(cells))
    scores = [np.nan_to_num(log_rank(cells, numbers).statistic) for numbers in weights]
    return [float((score > limit).mean()) for score in scores]


def tests():
    shares = ((0.5, 0.5), (0.1, 0.9), (0.3, 0.7))
    rows = []
    cells = product(
        ("Weibull 0.7", "Weibull 2", "2% events", "early deaths and cure"),
        (False, True),
        ((1000, 1.0), (5000, 0.2), (5000, 1.0), (20_000, 4.0)),
    )
    for place, (law, unequal, (n, epsilon)) in enumerate(cells):
        share = shares[place % 3]
        sizes = [round(n * part) for part in share]
        D, C, rng = drawn_cells(law, sizes, unequal)
        noisy = rejections(D, C, noise_sd(len(sizes), epsilon), rng)
        exact = rejections(D, C, 0.0, rng)
        split = ":".join(f"{10 * part:g}" for part in share)
        rows.append([law, split, "unequal" if unequal else "equal", n, epsilon, *noisy, *exact[:1]])
        print(rows[-1], flush=True)
    sizes = [1000, 1500, 2500]
    D, C, rng = drawn_cells("Weibull 0.7", sizes, True)
    sized = [*rejections(D, C, noise_sd(3, 1.0), rng), *rejections(D, C, 0.0, rng)[:1]]
    rows.append(["Weibull 0.7", "2:3:5", "unequal", 5000, 1.0, *sized])
    return rows


def ratios():
    rows = []
    for n, share, ratio, epsilon in ((1000, 0.5, 0.2, 1.0), (5000, 0.1, 0.2, 1.0), (1000, 0.5, 0.4, 0.2)):
        sizes = [round(n * share), n - round(n * share)]
        D, C, rng = drawn_cells("no censoring", sizes, False, math.exp(ratio), RATIOS)
        numbers = []
        for sigma in (noise_sd(2, epsilon), 0.0):
            cells = released(D, C, sigma, rng)
            test = np.nan_to_num(log_rank(cells).statistic) > stats.chi2.isf(0.05, 1)
            ends = []
            for draw in range(RATIOS):
                one = CellEstimate(D=cells.D[draw], C=cells.C[draw], noise=cells.noise)
                ends.append(log_hazard_ratio(one, 1.96)[1:])
            low, high = np.array(ends).T
            numbers += [
                float(test.mean()),
                float(((low <= ratio) & (ratio <= high)).mean()),
                float(np.median(high - low)),
                float((~np.isfinite(high - low)).mean()),
            ]
        rows.append(
            [n, f"{10 * share:g}:{10 - 10 * share:g}", ratio, epsilon, *numbers[:4], numbers[4], numbers[6]]
        )
        print(rows[-1], flush=True)
    return rows


# ---- the page


def table(names, rows):
    def text(value):
        if isinstance(value, float):
            return "-" if math.isnan(value) else f"{value:.3f}" if value < 10.0 else f"{value:.1f}"
        return f"{value:,}" if isinstance(value, int) else str(value)

    lines = ["| " + " | ".join(names) + " |", "|" + " --- |" * len(names)]
    return "\n".join([*lines, *("| " + " | ".join(map(text, row)) + " |" for row in rows)])


def page(parts):
    fits = parts.get("fits", FITS)
    least, most = (float(stats.binom.ppf(tail, fits, 0.95)) / fits for tail in (0.005, 0.995))
    texts = [
        "# Survival curves and log-rank tests\n",
        "Made by `python benchmarks/survival.py`.\n",
        f"Epsilon at delta = {DELTA:g}. {INTERVALS} intervals. {fits} fits a cell: with 99% probability a rate of "
        f"0.95 is measured between {least:.3f} and {most:.3f}. Widths are medians of {COMPARED} fits, relative "
        "to the same fit without noise.\n",
    ]
    if "curves" in parts:
        rows = parts["curves"]
        point = [x for row in rows for x in row[3:6] if not math.isnan(x)]
        texts.append("## Curves\n")
        texts.append(
            f"{len(point)} rates of intervals at a quarter, a half and the end of the follow-up: "
            f"{sum(x < least for x in point)} below {least:.3f}, lowest {min(point):.3f}. Bands "
            f"{min(row[7] for row in rows):.3f} to {max(row[7] for row in rows):.3f}. Restricted means "
            f"{min(row[11] for row in rows):.3f} to {max(row[11] for row in rows):.3f}. Quantiles "
            f"{min(min(row[8:11]) for row in rows):.3f} at least.\n"
        )
        names = ["law", "n", "epsilon", "1/4", "1/2", "end", "worst edge", "band", "10%", "25%", "median"]
        names += ["restricted mean", "width 1/4", "width 1/2", "width end", "share of edges used"]
        texts.append(table(names, rows) + "\n")
    if "tests" in parts:
        rows = parts["tests"]
        texts.append("## Size of tests at 5%\n")
        rates = [x for row in rows for x in row[5:8]]
        texts.append(
            f"{DRAWS:,} draws a cell. {len(rates)} rates from {min(rates):.3f} to {max(rates):.3f}.\n"
        )
        names = ["law", "groups", "censoring", "n", "epsilon", "log-rank", "Fleming-Harrington", "Gehan"]
        texts.append(table([*names, "log-rank without noise"], rows) + "\n")
    if "ratios" in parts:
        texts.append("## Hazard ratios\n")
        texts.append(
            f"{RATIOS} draws a cell; exponential times, censored uniformly between 0.2 and 1.6 times the horizon.\n"
        )
        names = ["n", "groups", "log ratio", "epsilon", "power", "coverage", "length", "unbounded"]
        texts.append(table([*names, "power without noise", "length without noise"], parts["ratios"]))
    return "\n".join(texts).rstrip() + "\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("part", nargs="*", choices=["curves", "tests", []])
    parser.add_argument("--fits", type=int, default=FITS)
    options = parser.parse_args()
    parts = json.loads(STORE.read_text()) if STORE.exists() else {}
    if not options.part or "tests" in options.part:
        parts |= {"tests": tests(), "ratios": ratios()}
    if not options.part or "curves" in options.part:
        parts |= {"curves": curves(options.fits), "fits": options.fits}
    STORE.write_text(json.dumps(parts))
    OUT.write_text(page(parts), encoding="utf-8")


if __name__ == "__main__":
    main()
