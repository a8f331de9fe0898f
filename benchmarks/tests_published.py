"""Tests of `pi.stats` against published private tests, by their own settings and by skewed real tables.

``python benchmarks/tests_published.py [part ...]`` writes benchmarks/results/tests_published.md; the parts are
groups, two, one, cells and real (default: all, about 10 minutes of a core). The published tests are
benchmarks/peers/published.py. At equal mu all noise is Gaussian; at equal (epsilon, delta) every test takes the law
of its paper, and `pi.stats` what it takes by itself, `noise="auto"`. What a paper leaves open is chosen for it by
the best power in the cell.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
from peers import published
from peers.published import Spent
from scipy import stats
from scipy.signal import lfilter
from statsmodels.datasets import fair, randhie

from privinf.accounting import calibrate_mu
from privinf.mechanisms.distribution import NoisyCDF
from privinf.mechanisms.statistics.prefixes import prefix_sensitivity, root
from privinf.mechanisms.statistics.samples import PARABOLA_WEIGHT
from privinf.stats.association import TableModel
from privinf.stats.groups import GroupModel
from privinf.stats.means import MeanModel
from privinf.stats.quantiles import CLIP_SHARE, FIRST_CELLS, core_clip
from privinf.stats.ranks import RankModel, null_statistics

OUT = Path(__file__).parent / "results" / "tests_published.md"
DRAWS, LEVEL = 1000, 0.05
EPSILON, DELTA = 1.0, 1e-6
MU = calibrate_mu(epsilon=EPSILON, delta=DELTA)
BUDGETS = {"mu": Spent(mu=MU), "eps": Spent(epsilon=EPSILON, delta=DELTA)}


# ---- ours, by the laws of released sums


def grouped(u, g, k):
    """Return N, S and P of values in [-1, 1]."""
    N = np.tile(np.bincount(g, minlength=k).astype(float), (len(u), 1))
    S, Q = (np.stack([(u[:, g == one] ** p).sum(axis=1) for one in range(k)], axis=-1) for p in (1, 2))
    return np.array([N, S, N - Q])


def scaled(x, low, high):
    return np.clip((x - (low + high) / 2.0) / ((high - low) / 2.0), -1.0, 1.0)


def our_groups(rng, x, g, k, bounds, pure):
    """Return p-values of Welch's F."""
    scale = 4.0 / EPSILON if pure else 2.0 / MU
    return welch(rng, grouped(scaled(x, *bounds), g, k), x.shape[1], scale, pure)


def welch(rng, clean, n, scale, pure):
    k = clean.shape[-1]
    if not pure:
        law = GroupModel.from_sums(*(clean + scale * rng.standard_normal(clean.shape)), n, (scale, scale))
        F, df = law.equal_means()
        return stats.f.sf(F, k - 1, df)
    noisy = clean + scale * rng.laplace(size=clean.shape) * np.array([1.0, 1.0, 2.0])[:, None, None]
    pvalues = []
    for stream, place in enumerate(range(0, clean.shape[1], 250)):
        part = noisy[:, place : place + 250]
        law = GroupModel.from_sums(*part, n, (math.sqrt(2.0) * scale, math.sqrt(8.0) * scale), laplace=True)
        F, df = law.equal_means()
        made = law.simulate(199, equal=True, stream=stream).equal_means()[0]
        pvalues.append(np.maximum((1 + (made >= F).sum(axis=0)) / 200.0, stats.f.sf(F, k - 1, df)))
    return np.hstack(pvalues)


def our_clipped(rng, x, g, k, bounds):
    """Return p-values of clip="auto": a clip by a fifth of mu^2, Gaussian noise."""
    n, rest = x.shape[1], math.sqrt(1.0 - CLIP_SHARE) * MU
    scale = prefix_sensitivity(FIRST_CELLS) / (math.sqrt(CLIP_SHARE) * MU)
    edges = np.linspace(*bounds, FIRST_CELLS + 1)[1:-1]
    ends = []
    for row in np.clip(x, *bounds):
        h = np.bincount(np.searchsorted(edges, row), minlength=FIRST_CELLS)
        noisy = lfilter(root(FIRST_CELLS), [1.0], h.astype(float))
        found = NoisyCDF.from_counts(edges, noisy + scale * rng.standard_normal(FIRST_CELLS), scale, n)
        clip = core_clip(found, *bounds, rest, k)
        ends.append((clip.low, clip.high))
    return welch(rng, grouped(scaled(x, *np.array(ends).T[:, :, None]), g, k), n, 2.0 / rest, False)


def our_mean(rng, u, null, pure):
    """Return p-values of the one-sample t-test, units in which bounds are -1 and 1."""
    S, Q, n = u.sum(axis=1), (u * u).sum(axis=1), u.shape[1]
    if not pure:
        a, b = 2.0 / MU, 2.0 / MU / PARABOLA_WEIGHT
        law = MeanModel.from_sums(
            S + a * rng.standard_normal(len(u)), Q + b * rng.standard_normal(len(u)), n, (a, b)
        )
        return law.test(null, "two-sided")[1]
    b = 2.0 / EPSILON
    noisy = S + rng.laplace(0.0, b, len(u)), Q + rng.laplace(0.0, 2.0 * b, len(u))
    sds = math.sqrt(2.0) * b, math.sqrt(8.0) * b
    return np.array(
        [
            MeanModel.from_sums(s, q, n, sds, laplace=True).test(null, "two-sided")[1]
            for s, q in zip(*noisy, strict=True)
        ]
    )


def our_cells(rng, tables, pure):
    sd = 2.0 * math.sqrt(2.0) / EPSILON if pure else math.sqrt(2.0) / MU
    noise = rng.laplace(0.0, sd / math.sqrt(2.0), tables.shape) if pure else rng.normal(0.0, sd, tables.shape)
    pvalues = []
    for one in tables + noise:
        law = TableModel.from_counts(one, int(tables[0].sum()), sd, laplace=pure)
        made = law.simulate(999).independence()[0]
        pvalues.append((1.0 + np.count_nonzero(made >= law.independence()[0])) / 1000.0)
    return np.array(pvalues)


def our_ranks(rng, x, g, k, pure):
    """Return p-values of mannwhitneyu (k = 2) and kruskal."""
    n, centred = x.shape[1], stats.rankdata(x, axis=1) - (x.shape[1] + 1) / 2.0
    sums = np.stack([centred[:, g == one].sum(axis=1) for one in range(k)], axis=-1)
    if k == 2:
        scales = (1.0, 2.0) if pure else (1.0, math.sqrt(4.0 / 3.0))
        R, first = sums[:, 0] / (n - 1.0), np.full(len(x), float((g == 0).sum()))
        R, first = (one + noise_of(rng, s, len(x), pure) for one, s in zip((R, first), scales, strict=True))
        sds = [s * math.sqrt(2.0) / EPSILON if pure else s / MU for s in scales]
        laws = [RankModel.of_two(r, m, n, sds, laplace=pure) for r, m in zip(R, first, strict=True)]
        return np.array([law.test("two-sided")[1] for law in laws])
    sd = 2.0 * math.sqrt(2.0) / EPSILON if pure else 2.0 / MU
    W = np.abs(sums).sum(axis=1) / (n - 1.0) + noise_of(rng, 2.0, len(x), pure)
    return published.larger(null_statistics(n, k, sd, laplace=pure), W)


def our_signs(rng, d, pure):
    """Return p-values of wilcoxon."""
    n = d.shape[1]
    T = (np.sign(d) * stats.rankdata(np.abs(d), axis=1)).sum(axis=1) / n + noise_of(rng, 2.0, len(d), pure)
    sd = 2.0 * math.sqrt(2.0) / EPSILON if pure else 2.0 / MU
    spread = math.sqrt(n * (n + 1) * (2 * n + 1) / 6.0)
    return np.array([RankModel(t * n, spread, sd * n, pure).test("two-sided")[1] for t in T])


def noise_of(rng, sensitivity, size, pure):
    return rng.laplace(0.0, sensitivity / EPSILON, size) if pure else rng.normal(0.0, sensitivity / MU, size)


# ---- settings


def rate(pvalues):
    return float(np.mean(np.asarray(pvalues) < LEVEL + 1e-12))


def best(tries):
    """Return the largest rejection rate of settings that a paper leaves open, and the setting."""
    return max((rate(found), setting) for setting, found in tries.items())


def aggregated(rng, parts, spent):
    """Return the best test of tests over numbers of parts and levels; `parts(m)` returns p-values."""
    tries = {}
    for m in (5, 10, 20, 40, 80):
        found = parts(m)
        for alpha0 in (0.05, 0.15, 0.3):
            tries[f"m = {m}, alpha0 = {alpha0}"] = published.test_of_tests(rng, found < alpha0, alpha0, spent)
    return tries


def compared(rng, name, alternative, null, rows):
    """Add rows of power and size of tests: `alternative` and `null` map a test to settings' p-values."""
    for budget, label in (("mu", f"mu = {MU:.3f}"), ("eps", "(1, 1e-6)")):
        powers, sizes = alternative(budget), null(budget)
        for test in powers:
            if isinstance(powers[test], dict):
                power, setting = best(powers[test])
                row = [name, label, f"{test} ({setting})", power, rate(sizes[test][setting])]
            else:
                row = [name, label, test, rate(powers[test]), rate(sizes[test])]
            rows.append(row)
            print(row, flush=True)


def of_groups(rng, draw, k, tight, loose):
    """Return a function of a budget that returns p-values of all tests of groups on one set of tables."""

    def tests(budget):
        spent, pure = BUDGETS[budget], budget == "eps"
        x, g = draw()
        y = np.clip((x - tight[0]) / (tight[1] - tight[0]), 0.0, 1.0)
        wide = np.clip((x - loose[0]) / (loose[1] - loose[0]), 0.0, 1.0)
        found = {
            "anova_oneway": our_groups(rng, x, g, k, tight, pure),
            "anova_oneway, bounds 3 times loose": our_groups(rng, x, g, k, loose, pure),
            "anova_oneway, clip='auto', bounds 3 times loose": our_clipped(rng, x, g, k, loose),
            "mannwhitneyu" if k == 2 else "kruskal": our_ranks(rng, x, g, k, pure),
            "KWabs": published.kwabs(rng, x, g, k, spent),
            "F1": {f"share {s}": published.f1(rng, y, g, k, spent, s) for s in (0.3, 0.5, 0.7)},
            "F1, bounds 3 times loose": {
                f"share {s}": published.f1(rng, wide, g, k, spent, s) for s in (0.3, 0.5, 0.7)
            },
            "test of tests (F)": aggregated(
                rng, lambda m: published.parts_anova(rng, x, g, k, min(m, x.shape[1] // (3 * k))), spent
            ),
        }
        if k == 2:
            found["Mann-Whitney"] = published.mann_whitney(rng, x, g, spent)
        return found

    return tests


def normal_groups(rng, n, means, sd, draws=DRAWS):
    g = np.arange(n) % len(means)
    return lambda: (np.array(means)[g] + sd * rng.standard_normal((draws, n)), g)


def groups():
    rng, rows = np.random.default_rng(1), []
    for n in (100, 200, 500):
        draws = [normal_groups(rng, n, means, 0.15) for means in ((0.35, 0.5, 0.65), (0.5,) * 3)]
        power, size = (of_groups(rng, one, 3, (0.0, 1.0), (-1.0, 2.0)) for one in draws)
        compared(rng, f"Swanberg's three groups, n = {n}", power, size, rows)
    return rows


def two():
    rng, rows = np.random.default_rng(2), []
    for d, n in ((1.0, 100), (0.3, 1000)):
        draws = [normal_groups(rng, n, (0.0, shift), 1.0) for shift in (d, 0.0)]
        power, size = (of_groups(rng, one, 2, (-4.0, 4.0), (-12.0, 12.0)) for one in draws)
        compared(rng, f"two normal samples, {d:g} sd apart, n = {n}", power, size, rows)
    return rows


def one():
    rng, rows = np.random.default_rng(3), []

    def tests_of(shift, n):
        def tests(budget):
            spent, pure = BUDGETS[budget], budget == "eps"
            d = shift + rng.standard_normal((DRAWS, n))
            return {
                "ttest_1samp, bounds 4 sds": our_mean(rng, np.clip(d / 4.0, -1.0, 1.0), 0.0, pure),
                "ttest_1samp, bounds 2 sds": our_mean(rng, np.clip(d / 2.0, -1.0, 1.0), 0.0, pure),
                "wilcoxon": our_signs(rng, d, pure),
                "signed rank": published.signed_rank(rng, d, spent),
                "test of tests (t)": aggregated(
                    rng, lambda m: published.parts_one_sample(d, min(m, n // 4)), spent
                ),
            }

        return tests

    for shift, n in ((1.0, 50), (0.2, 300), (0.2, 500)):
        name = f"one normal sample, mean {shift:g} sd, n = {n}"
        compared(rng, name, tests_of(shift, n), tests_of(0.0, n), rows)
    return rows


def cells():
    rng, rows = np.random.default_rng(4), []
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.4, 0.3, 0.2, 0.1])
    tilt = 0.04 * np.array([[1, -1, 0, 0], [-1, 0, 1, 0], [0, 1, -1, 0]])
    settings = {
        "3 x 4 cells, n = 500": (500, np.outer(p, q), tilt),
        "2 x 2 cells, Gaboardi's, shift .01, n = 10,000": (
            10_000,
            np.full((2, 2), 0.25),
            0.01 * np.array([[1, -1], [-1, 1]]),
        ),
        "2 x 2 cells, shift .05, n = 500": (500, np.full((2, 2), 0.25), 0.05 * np.array([[1, -1], [-1, 1]])),
    }

    def tests_of(n, shares):
        def tests(budget):
            tables = rng.multinomial(n, shares.ravel(), size=DRAWS // 2).reshape(-1, *shares.shape)
            return {
                "chi2_contingency": our_cells(rng, tables, budget == "eps"),
                "Gaboardi's Monte Carlo test": published.independence(rng, tables, BUDGETS[budget]),
            }

        return tests

    for name, (n, shares, moved) in settings.items():
        compared(rng, name, tests_of(n, shares + moved), tests_of(n, shares), rows)
    return rows


def real():
    """Tables drawn with replacement from real ones; at the null, groups are shuffled."""
    rng, rows = np.random.default_rng(5), []
    affairs, visits = fair.load_pandas().data, randhie.load_pandas().data
    tables = {
        "fair: affairs by marriage rated 1-2, 3, 4, 5": (
            affairs["affairs"],
            np.maximum(affairs["rate_marriage"], 2.0) - 2.0,
            (0.0, 12.0),
            (0.0, 36.0),
            500,
        ),
        "RAND: doctor visits by health fair or poor": (
            visits["mdvis"],
            ((visits["hlthf"] + visits["hlthp"]) > 0).astype(float),
            (0.0, 20.0),
            (0.0, 60.0),
            1000,
        ),
        "RAND: disease index by health fair or poor": (
            visits["disea"],
            ((visits["hlthf"] + visits["hlthp"]) > 0).astype(float),
            (0.0, 60.0),
            (0.0, 180.0),
            500,
        ),
    }

    def drawing(x, g, n, shuffled):
        """Return tables with the groups of one draw, in the table's proportions."""
        x, g = np.asarray(x, float), np.asarray(g).astype(int)
        shares = np.bincount(g) / len(g)
        sizes = np.maximum(np.rint(n * shares), 2).astype(int)
        labels = np.repeat(np.arange(len(sizes)), sizes)
        pools = [x if shuffled else x[g == one] for one in range(len(sizes))]
        return lambda: (
            np.column_stack(
                [rng.choice(pool, (DRAWS, size)) for pool, size in zip(pools, sizes, strict=True)]
            ),
            labels,
        )

    for name, (x, g, tight, loose, n) in tables.items():
        k = int(np.max(g)) + 1
        power, size = (
            of_groups(rng, drawing(x, g, n, shuffled), k, tight, loose) for shuffled in (False, True)
        )
        compared(rng, f"{name}, n = {n}", power, size, rows)
    return rows


# ---- the page

TITLES = {
    "groups": "Groups",
    "two": "Two samples",
    "one": "One sample",
    "cells": "Independence",
    "real": "Skewed real tables (rows drawn with replacement; at the null, from all groups together)",
}


def page(found):
    """Write the parts that were found, and keep all other sections of the page."""
    kept = {}
    if OUT.exists():
        for section in OUT.read_text().split("\n## ")[1:]:
            title, _, body = section.partition("\n")
            kept[title] = body.strip()
    for part, rows in found.items():
        lines = ["| setting | budget | test | power | size |", "|---|---|---|---|---|"]
        lines += [f"| {' | '.join(row[:3])} | {row[3]:.3f} | {row[4]:.3f} |" for row in rows]
        kept[TITLES[part]] = "\n".join(lines)
    text = [
        "# Tests of pi.stats and published private tests",
        "",
        "Made by `python benchmarks/tests_published.py`: "
        f"{DRAWS:,} tables a cell (cells: {DRAWS // 2}), level .05, (1, 1e-6) or mu = {MU:.4f}, which is the same for Gaussian "
        "noise. At equal mu all noise is Gaussian; at (1, 1e-6) published tests have the noise of their papers (pure "
        "epsilon 1; Mann-Whitney (1, 1e-6)), ours Laplace noise, but for `clip='auto'`, whose noise is Gaussian. If a paper leaves a choice open, the choice with the largest power of the published test in the cell is used."
        " KWabs, Mann-Whitney and the signed-rank test are about equal distributions (or symmetry), not about equal means, and do not estimate the distance between groups.",
        "",
    ]
    for title in TITLES.values():
        if title in kept:
            text += [f"## {title}", "", kept[title], ""]
    OUT.write_text("\n".join(text))


def main():
    for part in sys.argv[1:] or list(TITLES):
        page({part: globals()[part]()})


if __name__ == "__main__":
    main()
