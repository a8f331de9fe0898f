"""Size, coverage and power of `pi.stats`, by its own laws of simulated releases, and a few hundred real runs.

``python benchmarks/tests_size.py [part ...]`` writes benchmarks/results/tests_size.md; the parts are groups,
one, power, entry points, shares, pairs, pure_pairs, tables, laplace, clipped and large (default: all, about
20 minutes of a core). Records come from laws on a few hundred values, so that sums of any n are drawn as
counts; 10,000 releases a cell unless it says less.
"""

from __future__ import annotations

import math
import sys
from itertools import product
from pathlib import Path

import numpy as np
from scipy import stats
from scipy.signal import lfilter

import privinf as pi
from privinf.accounting import calibrate_mu
from privinf.inference.counts import ShareModel
from privinf.mechanisms.distribution import NoisyCDF
from privinf.mechanisms.statistics.prefixes import prefix_sensitivity, root
from privinf.mechanisms.statistics.samples import SAMPLE_STATISTICS
from privinf.stats.association import PairModel, TableModel
from privinf.stats.groups import GroupModel, score_interval
from privinf.stats.means import MeanModel
from privinf.stats.quantiles import CLIP_SHARE, FIRST_CELLS, core_clip
from privinf.stats.ranks import RankModel, null_statistics

OUT = Path(__file__).parent / "results" / "tests_size.md"
DRAWS = 10_000
SIZES, LEVELS = (200, 1000, 10_000, 100_000), (0.2, 1.0, 4.0)
LIMIT = 2.576 * math.sqrt(0.05 * 0.95 / DRAWS)


def law(kind, mean=0.0, sd=0.25, points=401):
    """Return values in [-1, 1] and their probabilities."""
    x = np.linspace(-1.0, 1.0, points)
    if kind == "normal":
        p = stats.norm.pdf(x, mean, sd)
    elif kind == "uniform":
        p = np.ones(points)
    elif kind == "lognormal":  # of log sd .75, median 1, on bounds from 0 to 12
        p = stats.lognorm.pdf(np.maximum((x + 1.0) * 6.0, 1e-9), 0.75)
    elif kind == "t3":
        p = stats.t.pdf(x / 0.15, 3)
    else:  # two values
        x, p = np.array([-1.0, 1.0]), np.array([1.0 - mean, mean])
    return x, p / p.sum()


def released(rng, n, shares, laws, draws=None):
    """Return clean N, S, Q of groups, shape (draws, k) each."""
    N = rng.multinomial(n, shares, size=draws or DRAWS)
    counts = [rng.multinomial(N[:, g], p) for g, (_, p) in enumerate(laws)]
    S, Q = (
        np.column_stack([c @ x**power for c, (x, _) in zip(counts, laws, strict=True)]) for power in (1, 2)
    )
    return N.astype(float), S, Q


def mu_of(epsilon):
    return calibrate_mu(epsilon=epsilon, delta=1e-6)


# ---- one sample

ONE = {
    "normal": law("normal"),
    "uniform": law("uniform"),
    "lognormal": law("lognormal"),
    "t3": law("t3"),
    "50% of 1": law("two", 0.5),
    "5% of 1": law("two", 0.05),
    "mean at -.9": law("normal", -0.9, 0.05),
}


def one():
    rng, rows = np.random.default_rng(1), []
    c = math.sqrt(((1 + math.sqrt(5)) / 2) ** 5 / 4)
    for name, (x, p) in ONE.items():
        for n in SIZES:
            _, S, Q = (sums[:, 0] for sums in released(rng, n, [1.0], [(x, p)]))
            plain = MeanModel.from_sums(S, Q, n, (0.0, 0.0)).test(float(x @ p), "two-sided")[1]
            for epsilon in LEVELS:
                a = 2.0 / mu_of(epsilon)
                noise = a * rng.standard_normal((2, DRAWS))
                gaussian = MeanModel.from_sums(S + noise[0], Q + noise[1] / c, n, (a, a / c)).test(
                    float(x @ p), "two-sided"
                )[1]
                b = 2.0 / epsilon
                noisy = S + rng.laplace(0, b, DRAWS), Q + rng.laplace(0, 2 * b, DRAWS)
                sds = math.sqrt(2) * b, 2 * math.sqrt(2) * b
                each = [noisy] if n >= 1000 else zip(*noisy, strict=True)
                laplace = np.hstack(
                    [
                        MeanModel.from_sums(s, q, n, sds, laplace=True).test(float(x @ p), "two-sided")[1]
                        for s, q in each
                    ]
                )
                rates = [float(np.mean(one < 0.05)) for one in (plain, gaussian, laplace)]
                rows.append([name, n, epsilon, *rates])
                print(rows[-1], flush=True)
    return rows


# ---- groups

N = lambda sd: law("normal", 0.0, sd)  # noqa: E731
DESIGNS = {
    "two equal": ([0.5] * 2, [N(0.25)] * 2),
    "1:9, sds 3:1": ([0.1, 0.9], [N(0.3), N(0.1)]),
    "1:9, sds 1:3": ([0.1, 0.9], [N(0.1), N(0.3)]),
    "1:49": ([0.02, 0.98], [N(0.25)] * 2),
    "five equal": ([0.2] * 5, [N(0.25)] * 5),
    "five unequal": ([0.05, 0.1, 0.15, 0.3, 0.4], [N(0.3), N(0.2), N(0.1), N(0.25), N(0.15)]),
    "sixteen": ([1 / 16] * 16, [N(0.25)] * 16),
    "1:9, lognormal": ([0.1, 0.9], [law("lognormal")] * 2),
    "sixteen, lognormal": ([1 / 16] * 16, [law("lognormal")] * 16),
}
PAIR = np.array([0]), np.array([1])


def groups():
    """Return sizes of Welch's F and of t, and coverage of the difference of the first two means."""
    rng, rows = np.random.default_rng(2), []
    for name, (shares, laws) in DESIGNS.items():
        k = len(shares)
        for n in SIZES:
            clean = released(rng, n, shares, laws)
            with np.errstate(all="ignore"):
                F, df = GroupModel(
                    N=clean[0], S=clean[1], P=clean[0] - clean[2], n=n, a=0.0, b=0.0
                ).equal_means()
                plain = float(np.mean(stats.f.sf(F, k - 1, df) < 0.05))
            for epsilon in LEVELS:
                a = 2.0 / mu_of(epsilon)
                noise = a * rng.standard_normal((3, DRAWS, k))
                noisy = clean[0] + noise[0], clean[1] + noise[1], clean[0] - clean[2] + noise[2]
                found = GroupModel.from_sums(*noisy, n, (a, a))
                F, df = found.equal_means()
                t, dft = found.differences(*PAIR)
                low, high = found.difference_sets(*PAIR, stats.t.isf(0.025, dft))
                rows.append(
                    [
                        name,
                        n,
                        epsilon,
                        plain,
                        float(np.mean(stats.f.sf(F, k - 1, df) < 0.05)),
                        float(np.mean(2 * stats.t.sf(np.abs(t), dft) < 0.05)),
                        float(np.mean((low <= 0.0) & (high >= 0.0))),
                        float(np.median(high - low)),
                    ]
                )
                print(rows[-1], flush=True)
    return rows


def laplace(simulate=199):
    """Return sizes of the F test with Laplace noise, each with made-up releases of its own."""
    rng, rows = np.random.default_rng(3), []
    for name in ("two equal", "1:9, sds 3:1", "five equal", "sixteen, lognormal"):
        shares, laws = DESIGNS[name]
        k = len(shares)
        for n in SIZES[:3]:
            clean = released(rng, n, shares, laws)
            for epsilon in LEVELS:
                b = 4.0 / epsilon
                sds = math.sqrt(2) * b, 2 * math.sqrt(2) * b
                noise = rng.laplace(0, b, (3, DRAWS, k)) * np.array([1.0, 1.0, 2.0])[:, None, None]
                noisy = clean[0] + noise[0], clean[1] + noise[1], clean[0] - clean[2] + noise[2]
                pvalues = []
                for stream, place in enumerate(range(0, DRAWS, 250)):
                    found = GroupModel.from_sums(
                        *(sums[place : place + 250] for sums in noisy), n, sds, laplace=True
                    )
                    F, df = found.equal_means()
                    made = found.simulate(simulate, equal=True, stream=stream).equal_means()[0]
                    ranks = (1 + np.count_nonzero(made >= F, axis=0)) / (simulate + 1)
                    pvalues.append(np.maximum(ranks, stats.f.sf(F, k - 1, df)))
                rows.append([name, n, epsilon, float(np.mean(np.hstack(pvalues) <= 0.05))])
                print(rows[-1], flush=True)
    return rows


# ---- groups on a clip that noisy counts chose

LOOSE = 3.0  # bounds, in units in which the laws are on [-1, 1]
CLIPPED = {
    "three equal, normal": ([1 / 3] * 3, [law("normal")] * 3),
    "1:9, normal": ([0.1, 0.9], [law("normal")] * 2),
    "three equal, lognormal": ([1 / 3] * 3, [law("lognormal")] * 3),
    "1:9, t3": ([0.1, 0.9], [law("t3")] * 2),
    "equal means, sds 1:3": ([0.5, 0.5], [law("normal", 0.0, 0.1), law("normal", 0.0, 0.3)]),
    "equal means, skewed and not": ([0.5, 0.5], [law("lognormal"), law("normal", -0.78024, 0.05)]),
    "Swanberg's three groups, n = 200": (
        [1 / 3] * 3,
        [law("normal", mean, 0.3, points=201) for mean in (-0.3, 0.0, 0.3)],
    ),
}


def clipped_sums(rng, n, shares, laws, mu, draws):
    """Return noisy N, S, P on clips that a fifth of mu^2 chose, and the sd of their noise."""
    k, first, rest = len(shares), math.sqrt(CLIP_SHARE) * mu, math.sqrt(1.0 - CLIP_SHARE) * mu
    edges = np.linspace(-LOOSE, LOOSE, FIRST_CELLS + 1)[1:-1]
    scale = prefix_sensitivity(FIRST_CELLS) / first
    N = rng.multinomial(n, shares, size=draws)
    points = [x for x, _ in laws]
    cells = [np.searchsorted(edges, x) for x in points]
    counts = [rng.multinomial(N[:, g], p) for g, (_, p) in enumerate(laws)]
    found = np.empty((3, draws, k))
    for draw in range(draws):
        h = sum(np.bincount(cells[g], weights=counts[g][draw], minlength=FIRST_CELLS) for g in range(k))
        noisy = lfilter(root(FIRST_CELLS), [1.0], h) + scale * rng.standard_normal(FIRST_CELLS)
        clip = core_clip(NoisyCDF.from_counts(edges, noisy, scale, n), -LOOSE, LOOSE, rest, k)
        middle, half = (clip.high + clip.low) / 2.0, (clip.high - clip.low) / 2.0
        for g in range(k):
            u = np.clip((points[g] - middle) / half, -1.0, 1.0)
            found[:, draw, g] = N[draw, g], counts[g][draw] @ u, counts[g][draw] @ (1.0 - u * u)
    return found + 2.0 / rest * rng.standard_normal(found.shape), 2.0 / rest


def clipped():
    """Return rejections by Welch's F on clips that noisy counts chose, bounds three times loose."""
    rng, rows = np.random.default_rng(9), []
    for name, (shares, laws) in CLIPPED.items():
        for n in (200,) if "200" in name else SIZES[:3]:
            for epsilon in LEVELS:
                noisy, a = clipped_sums(rng, n, shares, laws, mu_of(epsilon), DRAWS)
                F, df = GroupModel.from_sums(*noisy, n, (a, a)).equal_means()
                rejected = float(np.mean(stats.f.sf(F, len(shares) - 1, df) < 0.05))
                kind = (
                    "power"
                    if "Swan" in name
                    else "other distributions"
                    if "means" in name
                    else "one distribution"
                )
                rows.append([name, n, epsilon, kind, rejected])
                print(rows[-1], flush=True)
    return rows


LARGE = ("three equal, normal", "1:9, normal", "three equal, lognormal", "1:9, t3")


def large(n=100_000, chunk=2000):
    """Return sizes on such clips of many rows."""
    rows = []
    for name, epsilon in product(LARGE, LEVELS):
        rng, (shares, laws), low = np.random.default_rng([9, n, int(10 * epsilon)]), CLIPPED[name], 0
        for start in range(0, DRAWS, chunk):
            some = min(chunk, DRAWS - start)
            noisy, a = clipped_sums(rng, n, shares, laws, mu_of(epsilon), some)
            F, df = GroupModel.from_sums(*noisy, n, (a, a)).equal_means()
            low += int((stats.f.sf(F, len(shares) - 1, df) < 0.05).sum())
        rows.append([name, n, epsilon, low / DRAWS])
        print(rows[-1], flush=True)
    return rows


# ---- shares, tables, pairs


def shares():
    rng, rows = np.random.default_rng(4), []
    for p in (0.5, 0.1, 0.01, 0.001):
        for n in SIZES:
            for epsilon in LEVELS:
                sd = 1.0 / mu_of(epsilon)
                count = rng.binomial(n, p, DRAWS) + sd * rng.standard_normal(DRAWS)
                low, high = score_interval(count, n, sd, 0.95)
                exact = [ShareModel(x, n, sd).tail(p) < 0.05 for x in count[:200]]
                rows.append([p, n, epsilon, float(np.mean((low <= p) & (p <= high))), float(np.mean(exact))])
    print(rows)
    return rows


TABLES = {
    "2 x 2": ([0.5, 0.5], [0.3, 0.7]),
    "2 x 2, rare": ([0.05, 0.95], [0.04, 0.96]),
    "3 x 4": ([0.5, 0.3, 0.2], [0.4, 0.3, 0.2, 0.1]),
    "5 x 5, rare": ([0.6, 0.25, 0.1, 0.04, 0.01], [0.6, 0.25, 0.1, 0.04, 0.01]),
    "2 x 16, rare": ([0.5, 0.5], [0.3, 0.2, 0.1, *[0.4 / 13] * 12, 0.4 / 13]),
}


def tables(made=99, chunk=1000, names=tuple(TABLES)):
    """Return sizes by chi-square and by made-up tables; fewer of these than the entry point has give the same size."""
    rows = []
    for place, (name, (p, q)) in enumerate(TABLES.items()):
        df = (len(p) - 1) * (len(q) - 1)
        for n in SIZES if name in names else ():
            rng = np.random.default_rng([5, place, n])
            cells = rng.multinomial(n, np.outer(p, q).ravel(), size=DRAWS)
            for epsilon in LEVELS:
                sd = math.sqrt(2.0) / mu_of(epsilon)
                X = (cells + sd * rng.standard_normal(cells.shape)).reshape(DRAWS, len(p), len(q))
                law = TableModel.from_counts(X, n, sd)
                T = law.independence()[0]
                low = 0
                for start in range(0, DRAWS, chunk):
                    some = TableModel.from_counts(X[start : start + chunk], n, sd)
                    null = some.simulate(made, int(rng.integers(2**31))).independence()[0]
                    low += np.sum(1 + (null >= T[start : start + chunk]).sum(axis=0) <= 0.05 * (made + 1))
                np_T = TableModel.from_counts(cells.reshape(X.shape).astype(float), n, 0.0).independence()[0]
                plain, chi2 = (float(np.mean(stats.chi2.sf(one, df) < 0.05)) for one in (np_T, T))
                rows.append([name, n, epsilon, plain, chi2, float(low / DRAWS)])
                print(rows[-1], flush=True)
    return rows


# ---- ranks

RANKED = {
    "mannwhitneyu, equal": [0.5, 0.5],
    "mannwhitneyu, 1:9": [0.1, 0.9],
    "kruskal, three equal": [1 / 3] * 3,
    "kruskal, 8:1:1": [0.8, 0.1, 0.1],
    "kruskal, sixteen equal": [1 / 16] * 16,
}


def rank_sums(rng, n, zeros, numbers=10_000_000):
    """Return sums of centred ranks by design, (draws, k) each, and of signed ranks: values are in no order."""
    below = int(zeros * n)
    ranks = np.arange(1.0, n + 1.0)
    ranks[:below] = (below + 1.0) / 2.0
    starts = {
        name: np.r_[0, np.rint(np.cumsum(shares) * n).astype(int)[:-1]] for name, shares in RANKED.items()
    }
    sums, signed = {name: [] for name in RANKED}, []
    for place in range(0, DRAWS, max(1, numbers // n)):
        size = min(max(1, numbers // n), DRAWS - place)
        mixed = rng.permuted(np.tile(ranks - (n + 1) / 2.0, (size, 1)), axis=1)
        for name, found in sums.items():
            found.append(np.add.reduceat(mixed, starts[name], axis=1))
        signs = rng.integers(0, 2, (size, n - below), dtype=np.int8)
        signed.append((2.0 * signs - 1.0) @ ranks[below:])
    return {name: np.concatenate(found) for name, found in sums.items()}, np.concatenate(signed), starts


def ranks():
    """Return sizes of the tests by ranks, where all values differ and where half of them are 0."""
    rows = []
    for values, zeros in (("all differ", 0.0), ("half are 0", 0.5)):
        for n in SIZES:
            rng = np.random.default_rng([12, n, int(10 * zeros)])
            sums, signed, starts = rank_sums(rng, n, zeros)
            for epsilon in LEVELS:
                found = {name: [] for name in (*RANKED, "wilcoxon")}
                for pure in (False, True):
                    draw, unit = (rng.laplace, 1.0 / epsilon) if pure else (rng.normal, 1.0 / mu_of(epsilon))
                    sd = unit * (math.sqrt(2.0) if pure else 1.0)
                    for name, S in sums.items():
                        k = S.shape[1]
                        if k == 2:
                            scales = (1.0, 2.0) if pure else (1.0, math.sqrt(4.0 / 3.0))
                            R = S[:, 0] / (n - 1.0) + draw(0.0, scales[0] * unit, DRAWS)
                            first = starts[name][1] + draw(0.0, scales[1] * unit, DRAWS)
                            sds = [scale * sd for scale in scales]
                            laws = (
                                RankModel.of_two(r, m, n, sds, laplace=pure)
                                for r, m in zip(R, first, strict=True)
                            )
                            low = np.mean([one.test("two-sided")[1] < 0.05 for one in laws])
                        else:
                            W = np.abs(S).sum(axis=1) / (n - 1.0) + draw(0.0, 2.0 * unit, DRAWS)
                            made = np.sort(null_statistics(n, k, 2.0 * sd, laplace=pure))
                            above = len(made) - np.searchsorted(made, W)
                            low = np.mean((1.0 + above) / (len(made) + 1.0) <= 0.05)
                        found[name].append(float(low))
                    T = signed / n + draw(0.0, 2.0 * unit, DRAWS)
                    spread = math.sqrt(n * (n + 1) * (2 * n + 1) / 6.0)
                    laws = (RankModel(t * n, spread, 2.0 * sd * n, pure) for t in T)
                    found["wilcoxon"].append(
                        float(np.mean([one.test("two-sided")[1] < 0.05 for one in laws]))
                    )
                rows += [[name, values, n, epsilon, *sizes] for name, sizes in found.items()]
                print(*rows[-len(found) :], sep="\n", flush=True)
    return rows


def skewed(weight, points=41):
    """Return sums of cells, their probabilities and correlation: v is `weight` of u's normal score, lognormal."""
    z = np.linspace(-3.5, 3.5, points)
    joint = stats.multivariate_normal(cov=[[1.0, weight], [weight, 1.0]]).pdf(np.dstack(np.meshgrid(z, z)))
    x = 2.0 * np.exp(0.6 * z) / np.exp(0.6 * 3.5) - 1.0
    u, v, p = *(one.ravel() for one in np.meshgrid(x, x)), (joint / joint.sum()).ravel()
    spread = np.cov(np.array([u, v]), aweights=p, bias=True)
    return np.column_stack([u, v, u * u, v * v, u * v]), p, float(spread[0, 1] / spread[0, 0])


def normal_pairs(rng, rho, n):
    """Return sums of normal pairs whose sds are a quarter of half the range (Bartlett's decomposition)."""
    root = np.linalg.cholesky(np.array([[1.0, rho], [rho, 1.0]])) * 0.25
    mean = rng.standard_normal((DRAWS, 2)) @ root.T / math.sqrt(n)
    T = np.zeros((DRAWS, 2, 2))
    T[:, 0, 0], T[:, 1, 1] = (np.sqrt(rng.chisquare(n - 1 - j, DRAWS)) for j in (0, 1))
    T[:, 1, 0] = rng.standard_normal(DRAWS)
    scatter = (root @ T) @ np.swapaxes(root @ T, -1, -2) + n * mean[:, :, None] * mean[:, None, :]
    return np.column_stack([n * mean, scatter[:, 0, 0], scatter[:, 1, 1], scatter[:, 0, 1]])


def pairs():
    """Return rejections of no correlation, and coverage of rho, of normal and of lognormal pairs."""
    rng, rows = np.random.default_rng(6), []
    for law, weight in [
        ("normal", 0.0),
        ("normal", 0.3),
        ("normal", 0.8),
        ("lognormal", 0.0),
        ("lognormal", 0.6),
    ]:
        cells, p, rho = skewed(weight)
        rho = weight if law == "normal" else rho
        for n in SIZES:
            clean = normal_pairs(rng, rho, n) if law == "normal" else rng.multinomial(n, p, DRAWS) @ cells
            covered_plain = pair_cell(clean, n, np.zeros(3), rho)[1]
            for epsilon in LEVELS:
                scale = 2.0 * math.sqrt(1.49) / mu_of(epsilon)
                sds = scale / np.array([0.7, 0.7, 1.35, 1.35, 1.0])
                noisy = clean + sds * rng.standard_normal(clean.shape)
                size, covered, width = pair_cell(noisy, n, sds[[0, 2, 4]], rho)
                rows.append([law, f"{rho:.2f}", n, epsilon, size, covered_plain, covered, width])
                print(rows[-1], flush=True)
    return rows


def pure_pairs(draws=4000):
    """Return the same with Laplace noise: rejections of no correlation, coverage (500) of none and of more."""
    rng, rows = np.random.default_rng(10), []
    weights = SAMPLE_STATISTICS["pairs"].l1
    for law, weight in [("normal", 0.0), ("normal", 0.3), ("lognormal", 0.0)]:
        cells, p, rho = skewed(weight)
        rho = weight if law == "normal" else rho
        for n in SIZES[:3]:
            clean = normal_pairs(rng, rho, n) if law == "normal" else rng.multinomial(n, p, DRAWS) @ cells
            for epsilon in LEVELS:
                sds = math.sqrt(2.0) * weights.sensitivity / epsilon / np.array(weights.weights)
                noisy = clean[:draws] + sds / math.sqrt(2.0) * rng.laplace(size=(draws, 5))
                found = [PairModel.from_sums(one, n, *sds[[0, 2, 4]], laplace=True) for one in noisy]
                size = float(np.mean([one.pvalue("two-sided") < 0.05 for one in found]))
                ends = np.array([one.interval(0.95) for one in found[:500]])
                covered = float(np.mean((ends[:, 0] <= rho) & (rho <= ends[:, 1])))
                width = float(np.median(np.ptp(ends, axis=1)))
                rows.append([law, f"{rho:.2f}", n, epsilon, size, covered, width])
                print(rows[-1], flush=True)
    return rows


def pair_cell(sums, n, sds, rho):
    """Return rejections of 0, coverage of rho, and the median width of 500 intervals."""
    both = PairModel.from_sums(sums, n, *sds)
    size = float(np.mean(2 * stats.t.sf(np.abs(both.zero()), n - 2) < 0.05))
    with np.errstate(invalid="ignore"):  # a hidden variance: all of [-1, 1]
        near = (both.A - rho * n * both.product) ** 2 <= 1.959964**2 * both.variance(np.asarray(rho))
    held = near | ~np.isfinite(both.relative)
    for at in np.flatnonzero(~held):  # an interval is all between its ends
        low, high = PairModel.from_sums(sums[at], n, *sds).interval(0.95)
        held[at] = low <= rho <= high
    ends = [PairModel.from_sums(one, n, *sds).interval(0.95) for one in sums[:500]]
    return size, float(np.mean(held)), float(np.median(np.ptp(ends, axis=1)))


# ---- power


def power():
    rng, rows, draws = np.random.default_rng(7), [], 3000
    mu, c = mu_of(1.0), math.sqrt(((1 + math.sqrt(5)) / 2) ** 5 / 4)
    for n in (100, 200, 300):
        sizes = [n // 3 + (g < n % 3) for g in range(3)]
        x = [
            2 * np.clip(rng.normal(m, 0.15, (draws, s)), 0, 1) - 1
            for m, s in zip((0.35, 0.5, 0.65), sizes, strict=True)
        ]
        clean = (
            np.tile(np.array(sizes, float), (draws, 1)),
            *(np.column_stack([(one**k).sum(axis=1) for one in x]) for k in (1, 2)),
        )
        a = 2.0 / mu
        e = a * rng.standard_normal((3, draws, 3))
        F, df = GroupModel.from_sums(
            clean[0] + e[0], clean[1] + e[1], clean[0] - clean[2] + e[2], n, (a, a)
        ).equal_means()
        rows.append(
            [
                f"ANOVA, Swanberg's three groups, n = {n}",
                "Gaussian, eps 1",
                float(np.mean(stats.f.sf(F, 2, df) < 0.05)),
            ]
        )
        b, hits = 4.0, []
        e = rng.laplace(0, b, (3, 500, 3)) * np.array([1.0, 1.0, 2.0])[:, None, None]
        noisy = clean[0][:500] + e[0], clean[1][:500] + e[1], (clean[0] - clean[2])[:500] + e[2]
        for stream, sums in enumerate(zip(*noisy, strict=True)):
            found = GroupModel.from_sums(*sums, n, (math.sqrt(2) * b, 2 * math.sqrt(2) * b), laplace=True)
            F, df = found.equal_means()
            made = found.simulate(499, equal=True, stream=stream).equal_means()[0]
            hits.append(max((1 + np.sum(made >= F)) / 500, stats.f.sf(F, 2, df)) <= 0.05)
        rows.append([f"the same, n = {n}", "Laplace, eps 1", float(np.mean(hits))])
    for n in (300, 500):
        for mean in (0.0, 0.05):
            x = np.clip(rng.normal(mean, 0.25, (draws, n)), -1, 1)
            S, Q = x.sum(axis=1), (x**2).sum(axis=1)
            a = 2.0 / mu
            g = MeanModel.from_sums(
                S + a * rng.standard_normal(draws), Q + a / c * rng.standard_normal(draws), n, (a, a / c)
            )
            sds = 2 * math.sqrt(2), 4 * math.sqrt(2)
            noisy = S + rng.laplace(0, 2, draws), Q + rng.laplace(0, 4, draws)
            hits = [
                MeanModel.from_sums(s, q, n, sds, laplace=True).test(0.0, "two-sided")[1] < 0.05
                for s, q in zip(*noisy, strict=True)
            ]
            what = f"one sample, mean {mean / 0.25:g} sd, bounds 4 sds, n = {n}"
            rows.append([what, "Gaussian, eps 1", float(np.mean(g.test(0.0, "two-sided")[1] < 0.05))])
            rows.append([what, "Laplace, eps 1", float(np.mean(hits))])
    clean = released(
        rng, 1000, [0.5, 0.5], [law("normal", -0.0375, 0.25), law("normal", 0.0375, 0.25)], draws
    )
    e = 2.0 / mu * rng.standard_normal((3, draws, 2))
    F, df = GroupModel.from_sums(
        clean[0] + e[0], clean[1] + e[1], clean[0] - clean[2] + e[2], 1000, (2.0 / mu, 2.0 / mu)
    ).equal_means()
    rows.append(
        [
            "two samples, d = .3, bounds 4 sds, n = 1,000",
            "Gaussian, eps 1",
            float(np.mean(stats.f.sf(F, 1, df) < 0.05)),
        ]
    )
    for row in rows:
        print(row, flush=True)
    return rows


# ---- the entry points


def doors(runs=200):
    """Return rejections at the null by the entry points themselves, secure noise."""
    rng, rows = np.random.default_rng(8), []
    words = {"epsilon": 1.0, "delta": 1e-6}

    def rate(name, test):
        rows.append([name, float(np.mean([test().pvalue < 0.05 for _ in range(runs)]))])
        print(rows[-1], flush=True)

    normal = lambda n: rng.normal(5.0, 1.25, n)  # noqa: E731
    for noise in ("gaussian", "laplace"):
        w = words | {"noise": noise}
        rate(
            f"ttest_1samp, {noise}, n = 500",
            lambda w=w: pi.stats.ttest_1samp(normal(500), 5.0, bounds=(0, 10), **w),
        )
        rate(
            f"ttest_ind, {noise}, 200 and 800",
            lambda w=w: pi.stats.ttest_ind(normal(200), normal(800), bounds=(0, 10), **w),
        )
        rate(
            f"anova_oneway, {noise}, 5 groups of 400",
            lambda w=w: pi.stats.anova_oneway(
                normal(2000), rng.integers(0, 5, 2000), levels=range(5), bounds=(0, 10), **w
            ),
        )
        rate(
            f"proportions_ztest, {noise}, 5% of 1,000",
            lambda w=w: pi.stats.proportions_ztest(rng.uniform(size=1000) < 0.05, value=0.05, **w),
        )
        rate(
            f"chi2_contingency, {noise}, 3 x 2, n = 1,000",
            lambda w=w: pi.stats.chi2_contingency(
                rng.integers(0, 3, 1000), rng.integers(0, 2, 1000), levels=([0, 1, 2], [0, 1]), **w
            ),
        )
    rate(
        "pearsonr, n = 1,000",
        lambda: pi.stats.pearsonr(normal(1000), normal(1000), bounds=((0, 10), (0, 10)), **words),
    )
    return rows


# ---- the page


def table(head, rows):
    shown = [
        [f"{x:.4f}" if isinstance(x, float) and x not in LEVELS else str(x) for x in row] for row in rows
    ]
    return "\n".join(["| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *shown]])


def page(found):
    """Write the parts that were found, and keep all other sections of the page."""
    lines = [
        "# Tests without a regression: size, coverage, power",
        "",
        "Made by `python benchmarks/tests_size.py`. delta = 1e-6; level .05; 10,000 releases a cell unless it says less; "
        f'99% limits of 10,000: {0.05 - LIMIT:.4f} to {0.05 + LIMIT:.4f}. "plain" is the same test without noise on the same draws.',
        "",
    ]
    parts = {
        "one": ("One sample, size", ["law", "n", "eps", "plain", "Gaussian", "Laplace"]),
        "groups": (
            "Groups: size of F and of t of the first two, coverage and width of their difference (two other means equal; units of half the range)",
            ["design", "n", "eps", "plain F", "F", "t", "coverage", "width"],
        ),
        "clipped": (
            'Groups clipped at thresholds from noisy counts (clip="auto"), bounds three times too wide: Welch\'s F. It keeps its level if groups have the same distribution; with equal means and different distributions the clipped means differ, and ChangedTargetWarning states this',
            ["design", "n", "eps", "groups have", "rejected"],
        ),
        "large": (
            'Clipped groups of many rows (clip="auto"), bounds three times loose: Welch\'s F',
            ["design", "n", "eps", "rejected"],
        ),
        "laplace": ("Groups, Laplace noise (199 made-up releases each)", ["design", "n", "eps", "F"]),
        "shares": (
            "Shares: coverage of the score interval; size of the exact one-sided test (200)",
            ["share", "n", "eps", "coverage", "exact size"],
        ),
        "tables": (
            "Tables: size by chi-square, without noise and with it, and by made-up tables (99 each)",
            ["table", "n", "eps", "plain", "chi-square", "made up"],
        ),
        "pairs": (
            "Correlation: rejections of no correlation, coverage of rho without noise and with it, width (of 500)",
            ["pairs", "rho", "n", "eps", "rejected", "plain coverage", "coverage", "width"],
        ),
        "pure_pairs": (
            "Correlation, Laplace noise (4,000 releases, 99% limits .0411 to .0589; coverage and width 500)",
            ["law", "rho", "n", "eps", "rejected", "coverage", "width"],
        ),
        "ranks": (
            "Ranks: size (ties and unequal groups make the tests conservative)",
            ["test", "values", "n", "eps", "Gaussian", "Laplace"],
        ),
        "power": ("Power (3,000 releases; groups with Laplace noise 500)", ["test", "noise", "rejected"]),
        "doors": (
            "Through the doors, at the null, secure noise, eps 1 (200 runs: .015 to .095 in 99%)",
            ["door", "rejected"],
        ),
    }
    old = {one[:12]: one for one in OUT.read_text().split("\n## ")} if OUT.exists() else {}
    for part, (title, head) in parts.items():
        if part in found:
            lines += [f"## {title}", "", table(head, found[part]), ""]
        elif title[:12] in old:
            lines += ["## " + old[title[:12]].rstrip("\n"), ""]
    OUT.write_text("\n".join(lines))


def main():
    chosen = sys.argv[1:] or [
        "groups",
        "one",
        "power",
        "doors",
        "shares",
        "pairs",
        "tables",
        "laplace",
        "clipped",
        "large",
        "ranks",
    ]
    for part in chosen:
        page({part: globals()[part]()})


if __name__ == "__main__":
    main()
