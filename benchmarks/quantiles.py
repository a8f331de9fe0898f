"""Quantiles, and means whose clip is chosen: ``python benchmarks/quantiles.py [DRAWS]``.

Released sums and counts are drawn as `privinf.stats.quantile` and ``mean(clip="auto")`` release them, with
seeded noise, delta = 1e-6, intervals of 95%. Coverage of the true quantile or mean, and the median width over
that of the interval without noise (order statistics; t). Public bounds of quantiles are twice as wide as the range of 99.9% of the distribution; public bounds of means are ten times as wide as the range of nearly all rows. A star marks distributions that were not used for tuning. `.5% at 20 sd` is the stated exception: values that are too few to be detected, but too many to be ignored. The result states how many values may be beyond its threshold, and how far the mean would move if all of them were at the public bounds. The third number is the share of draws in which not more values were beyond the threshold than stated. The fourth is the share of draws in which the interval missed the mean without a warning that it may (`MeanClip.hides`).
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import math
import sys
import time
from functools import cache

import numpy as np
from bought_laws import OWN, PAGE
from tables import RESULTS

from privinf.accounting import calibrate_mu
from privinf.inference.quantiles import mean_clip, quantile_interval, window_edges
from privinf.mechanisms.distribution import NoisyCDF, noisy_prefixes
from privinf.mechanisms.statistics.prefixes import prefix_sensitivity
from privinf.noise import SimulationNoise
from privinf.stats.means import MeanModel
from privinf.stats.quantiles import CLIP_SHARE, FIRST_CELLS, FIRST_SHARE

DELTA, Z, SQUARES = 1e-6, 1.959964, math.sqrt(2.7725)
QUANTILES = [
    "normal",
    "exponential",
    "lognormal .75",
    "t3",
    "heaped log income",
    "Poisson 2 *",
    "Weibull .6 *",
]
# Law, true mean, public bounds, whether the rule was chosen on it.
MEANS = {
    "normal": (PAGE["normal"], 0.0, -40.0, 40.0),
    "lognormal .75": (PAGE["lognormal .75"], math.exp(0.75**2 / 2), 0.0, 200.0),
    "60% at the bound, lognormal 1.25": (
        lambda n, r: (r.random(n) < 0.4) * np.exp(1.25 * r.standard_normal(n)),
        0.4 * math.exp(1.25**2 / 2),
        0.0,
        1000.0,
    ),
    "Pareto 2.2": (PAGE["Pareto 2.2"], 2.2 / 1.2, 1.0, 2000.0),
    "t3 *": (PAGE["t3"], 0.0, -300.0, 300.0),
    "gamma .5 *": (PAGE["gamma .5"], 0.5, 0.0, 100.0),
    "uniform *": (PAGE["uniform"], 0.5, -5.0, 6.0),
    "bimodal *": (PAGE["bimodal"], 2.0, -80.0, 80.0),
    "Poisson 2 *": (OWN["Poisson 2"], 2.0, 0.0, 80.0),
    "Weibull .6 *": (OWN["Weibull .6"], math.gamma(1 + 1 / 0.6), 0.0, 100.0),
    "2% at 6 sd *": (lambda n, r: r.standard_normal(n) + 6 * (r.random(n) < 0.02), 0.12, -60.0, 60.0),
    ".5% at 20 sd *": (lambda n, r: r.standard_normal(n) + 20 * (r.random(n) < 0.005), 0.1, -60.0, 60.0),
}


def look(x: np.ndarray, edges: np.ndarray, mu: float, source: SimulationNoise) -> NoisyCDF:
    """Return a distribution function of sorted values at some edges, as `cell_counts` counts them."""
    scale = prefix_sensitivity(len(edges) + 1) / mu
    counts = np.diff(np.concatenate([[0], np.searchsorted(x, edges, side="right"), [len(x)]]))
    return NoisyCDF.from_counts(edges, noisy_prefixes(counts, scale, source), scale, len(x))


@cache
def quantile_law(name: str, q: float) -> tuple[float, float, float]:
    """Return the true quantile of a law, and public bounds."""
    many = (PAGE | OWN)[name.removesuffix(" *")](4_000_000, np.random.default_rng(0))
    ends = np.quantile(many, [0.0005, 0.9995])
    low, high = ends + np.array([-0.5, 0.5]) * np.diff(ends)
    return float(np.quantile(many, q, method="inverted_cdf")), float(low), float(high)


def cells(low: float, high: float) -> np.ndarray:
    return np.linspace(low, high, FIRST_CELLS + 1)[1:-1]


def quantile_cell(name: str, q: float, n: int, mu: float, draws: int) -> str:
    """Return coverage and relative width of one cell."""
    law = (PAGE | OWN)[name.removesuffix(" *")]
    rng, (truth, low, high) = np.random.default_rng(n), quantile_law(name, q)
    held, ratios = 0, []
    half = Z * math.sqrt(n * q * (1 - q))
    for seed in range(draws):
        x, source = np.sort(law(n, rng)), SimulationNoise(seed)
        first = look(x, cells(low, high), math.sqrt(FIRST_SHARE) * mu, source)
        edges = window_edges(first, q, Z, low, high)
        found = look(x, edges, math.sqrt(1 - FIRST_SHARE) * mu, source)
        _, left, right = quantile_interval(found, q, Z, low, high)
        held += left <= truth <= right
        places = np.clip([int(q * n - half), math.ceil(q * n + half)], 0, n - 1)
        ratios.append((right - left, np.diff(x[places])[0]))
    ours, plain = np.median(ratios, axis=0)
    width = f"{ours / plain:.2f}" if plain > 0.01 * ours else f"{ours:.2g} (0)"
    return f"{held / draws:.3f}; {width}"


def mean_cell(name: str, n: int, mu: float, draws: int) -> str:
    """Return coverage, relative width, how often no more lay beyond than said, and silent misses."""
    law, truth, low, high = MEANS[name]
    rng = np.random.default_rng(n)
    held, said, silent, ratios = 0, 0, 0, []
    for seed in range(draws):
        x, source = np.sort(law(n, rng)), SimulationNoise(seed)
        rest = math.sqrt(1 - CLIP_SHARE) * mu
        clip = mean_clip(look(x, cells(low, high), math.sqrt(CLIP_SHARE) * mu, source), low, high, Z, rest)
        middle, half = (clip.low + clip.high) / 2, (clip.high - clip.low) / 2
        u = (np.clip(x, clip.low, clip.high) - middle) / half
        a = 2.0 / rest
        S, Q = (
            source.perturb(np.array([total]), sd)[0]
            for total, sd in ((u.sum(), a), ((u * u).sum(), a / SQUARES))
        )
        ends = MeanModel.from_sums(np.asarray(S), np.asarray(Q), n, (a, a / SQUARES)).interval(0.95)
        left, right = (middle + half * float(end) for end in ends)
        up, down = clip.share(n)
        inside = left - down <= truth <= right + up
        held += inside
        silent += not inside and not clip.hides(n, 0.5 * (right - left + up + down))
        said += (x < clip.low).sum() <= clip.most[0] and (x > clip.high).sum() <= clip.most[1]
        ratios.append((right + up - left + down) / (2 * Z * x.std() / math.sqrt(n)))
    return f"{held / draws:.3f}; {np.median(ratios):.3g}; {said / draws:.2f}; {silent / draws:.3f}"


MEAN_SIZES = [(n, epsilon) for n in (1_000, 3_000, 10_000, 100_000) for epsilon in (0.2, 1.0, 4.0)]
QUANTILE_SIZES = [(1_000, 1.0), (10_000, 0.2), (10_000, 1.0), (10_000, 4.0), (100_000, 1.0)]
PARTS = {
    "means: coverage; width; beyond as said; silent misses": (
        MEAN_SIZES,
        [(name,) for name in MEANS],
        mean_cell,
    ),
    "quantiles: coverage; width": (
        QUANTILE_SIZES,
        [(name, q) for q in (0.5, 0.95) for name in QUANTILES],
        quantile_cell,
    ),
}


def draws_of(part: str, n: int, epsilon: float, draws: int) -> int:
    """Return how many draws a cell has: all for quantiles of 10,000 rows at epsilon 1 and 4."""
    if part.startswith("means"):
        return max(1, draws * 3 // (10 if n < 100_000 else 20))
    whole = (n, epsilon) in ((10_000, 1.0), (10_000, 4.0))
    return draws if whole else max(1, draws // (2 if n < 100_000 else 4))


def line(part: str, row: tuple[str | float, ...], draws: int) -> str:
    """Return a row of a table."""
    sizes, _, cell = PARTS[part]
    found = [
        cell(*row, n, calibrate_mu(epsilon=epsilon, delta=DELTA), draws_of(part, n, epsilon, draws))
        for n, epsilon in sizes
    ]
    return f"| {', '.join(map(str, row))} | {' | '.join(found)} |"


def main(draws: int) -> None:
    """Write both tables, row by row."""
    start, parts = time.time(), []
    for title, (_, rows, _) in PARTS.items():
        parts += heading(title)
        for row in rows:
            parts.append(line(title, row, draws))
            print(parts[-1], flush=True)
            store(draws, parts, time.time() - start)


def heading(title: str) -> list[str]:
    sizes = PARTS[title][0]
    head = " | ".join(f"{n:,}, {epsilon:g}" for n, epsilon in sizes)
    return [f"\n## {title}\n", f"| law | {head} |", "|---" * (len(sizes) + 1) + "|"]


def store(draws: int, parts: list[str], seconds: float) -> None:
    """Write what there is."""
    note = (__doc__ or "").partition(".\n")[2].strip()
    table = "\n".join(parts)
    (RESULTS / "quantiles.md").write_text(
        "# Quantiles and clipped means\n\n"
        f"Made by `python benchmarks/quantiles.py {draws}` in {seconds:.0f} s.\n\n{note}\n\n"
        f"Quantiles of 10,000 rows at epsilon 1 and 4: {draws} draws a cell; others {draws // 2}, of 100,000 "
        f"rows {draws // 4}. Means: {draws * 3 // 10}, and {draws * 3 // 20}. Columns: n, epsilon.\n{table}\n"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000)
