"""Published private tests, written from their papers, many tables at once: rows of `x` are tables.

Each takes the budget that its paper states and, for a comparison at equal mu, the same statistic with Gaussian
noise of its sensitivity. p-values are Monte Carlo, as in the papers.

* `kwabs`: Couch, Kazan, Shi, Bray and Groce (2019), "Differentially private nonparametric hypothesis testing":
  Kruskal and Wallis's statistic with absolute values, sensitivity 8, reference of equal group sizes.
* `mann_whitney`: ibidem. .35 of epsilon for the size of the smaller group, lowered so that it is not too large but
  with probability delta; .65 for U, whose sensitivity is the size of the larger.
* `signed_rank`: ibidem. Sum of signed ranks, sensitivity 2 n; zeros have no sign and keep their rank.
* `f1`: Swanberg, Globus-Harris, Griffith, Ritz, Groce and Bray (2019), "Improved differentially private analysis of
  variance": absolute deviations between and within groups, sensitivities 4 and 3.
* `independence`: Gaboardi, Lim, Rogers and Vadhan (2016), "Differentially private chi-squared hypothesis testing":
  noisy cells, chi-square of independence against tables made up from noisy margins; not rejected where an
  expected count is below 5.
* `test_of_tests`: Kazan, Shi, Groce and Bray (2023), "The test of tests": a public test on each of m parts, the number
  that rejects at alpha0 released with Tulap noise (Awan and Slavkovic, 2018) and tested as binomial.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import stats

REFERENCE = 20_000


@dataclass(frozen=True)
class Spent:
    """Pure epsilon (with delta where a test needs one), or mu: the noise of a sensitivity."""

    epsilon: float | None = None
    mu: float | None = None
    delta: float = 1e-6

    def noise(self, rng, sensitivity, size, share=1.0):
        """Return noise; `share` of epsilon, or of mu^2."""
        if self.mu is not None:
            return rng.normal(0.0, 1.0, size) * (sensitivity / (np.sqrt(share) * self.mu))
        return rng.laplace(0.0, 1.0, size) * (sensitivity / (share * self.epsilon))


def ranks(rng, x):
    """Return ranks in rows; ties are broken at random."""
    order = np.lexsort((rng.uniform(size=x.shape), x), axis=-1)
    return np.argsort(order, axis=-1) + 1.0


def larger(reference, found):
    """Return p-values: the share of sorted reference values at or above each."""
    return 1.0 - np.searchsorted(np.sort(reference), found, side="left") / len(reference)


def _absolute(centred, g, k):
    n = centred.shape[-1]
    sums = np.stack([centred[:, g == one].sum(axis=1) for one in range(k)], axis=-1)
    return (n - 1.0) * np.abs(sums).sum(axis=1) / (n * n // 4)


def kwabs(rng, x, g, k, spent):
    """Return p-values of equal laws in k groups."""
    n = x.shape[1]
    found = _absolute(ranks(rng, x) - (n + 1) / 2.0, g, k) + spent.noise(rng, 8.0, len(x))
    shuffled = rng.permuted(np.tile(np.arange(n) - (n - 1) / 2.0, (2000, 1)), axis=1)
    null = np.repeat(_absolute(shuffled, np.arange(n) % k, k), REFERENCE // 2000)
    return larger(null + spent.noise(rng, 8.0, len(null)), found)


def mann_whitney(rng, x, g, spent, share=0.35):
    """Return p-values of equal laws in two groups."""
    n, first = x.shape[1], int((g == 0).sum())
    least = min(first, n - first)
    sd = 1.0 / (np.sqrt(share) * spent.mu) if spent.mu is not None else 1.0 / (share * spent.epsilon)
    slack = stats.norm.isf(spent.delta) if spent.mu is not None else -np.log(2.0 * spent.delta)
    size = np.floor(least + spent.noise(rng, 1.0, len(x), share) - slack * sd).clip(0, n // 2)
    U = ranks(rng, x)[:, g == 0].sum(axis=1) - first * (first + 1) / 2.0
    found = np.minimum(U, first * (n - first) - U) + spent.noise(rng, 1.0, len(x), 1.0 - share) * (n - size)
    pvalues = np.empty(len(x))
    for m in np.unique(size):  # the reference has groups of the noisy size
        at = size == m
        guess = np.clip(m + slack * sd, 1, n // 2)
        drawn = rng.normal(guess * (n - guess) / 2.0, np.sqrt(guess * (n - guess) * (n + 1) / 12.0), 4000)
        null = np.minimum(drawn, guess * (n - guess) - drawn)
        null = null + spent.noise(rng, n - m, len(null), 1.0 - share)
        pvalues[at] = larger(-null, -found[at])
    return pvalues


def signed_rank(rng, d, spent):
    """Return two-sided p-values of symmetry about 0."""
    n = d.shape[1]
    found = (np.sign(d) * ranks(rng, np.abs(d))).sum(axis=1) + spent.noise(rng, 2.0 * n, len(d))
    null = rng.normal(0.0, np.sqrt(n * (n + 1) * (2 * n + 1) / 6.0), REFERENCE)
    return larger(np.abs(null + spent.noise(rng, 2.0 * n, REFERENCE)), np.abs(found))


def f1(rng, y, g, k, spent, share=0.7):
    """Return p-values of equal means of values in [0, 1]; `share` is for what is between the groups."""
    n = y.shape[1]
    sizes = np.bincount(g, minlength=k)
    means = np.stack([y[:, g == one].mean(axis=1) for one in range(k)], axis=-1)
    between = (np.abs(means - y.mean(axis=1, keepdims=True)) * sizes).sum(axis=1)
    within = np.abs(y - means[:, g]).sum(axis=1)
    between = between + spent.noise(rng, 4.0, len(y), share)
    within = within + spent.noise(rng, 3.0, len(y), 1.0 - share)
    sd = np.sqrt(np.pi / 2.0) * within / (n - k)
    drawn = rng.standard_normal((2000, k)) / np.sqrt(n / k)
    drawn = (np.abs(drawn - drawn.mean(axis=1, keepdims=True)) * n / k).sum(axis=1)
    spread = np.abs(rng.normal(np.sqrt(2.0 / np.pi) * (n - k), np.sqrt((1.0 - 2.0 / np.pi) * n), 2000))
    pvalues = np.ones(len(y))
    for at in np.flatnonzero(sd > 0.0):
        top = sd[at] * drawn + spent.noise(rng, 4.0, 2000, share)
        bottom = sd[at] * spread + spent.noise(rng, 3.0, 2000, 1.0 - share)
        null = np.where(bottom > 0.0, top / np.where(bottom > 0.0, bottom, 1.0), np.inf)
        pvalues[at] = np.mean(null >= between[at] / within[at])
    return pvalues


def independence(rng, tables, spent, draws=199):
    """Return p-values of independence of rows and columns, tables of shape (many, r, c)."""
    n = tables[0].sum()
    l2 = np.sqrt(2.0) if spent.mu is not None else 2.0

    def chi_square(noisy):
        kept = np.maximum(noisy, 0.0)
        kept = kept * (n / np.maximum(kept.sum(axis=(-2, -1), keepdims=True), 1e-9))
        p, q = kept.sum(axis=-1) / n, kept.sum(axis=-2) / n
        expected = n * p[..., :, None] * q[..., None, :]
        low = expected.min(axis=(-2, -1)) < 5.0
        expected = np.maximum(expected, 1e-9)
        return (
            ((noisy - expected) ** 2 / expected).sum(axis=(-2, -1)),
            expected / expected.sum(axis=(-2, -1), keepdims=True),
            low,
        )

    found, shares, low = chi_square(tables + spent.noise(rng, l2, tables.shape))
    pvalues = np.ones(len(tables))
    for at in np.flatnonzero(~low):
        made = rng.multinomial(n, shares[at].ravel(), size=draws).reshape(draws, *tables.shape[1:])
        null = chi_square(made + spent.noise(rng, l2, made.shape))[0]
        pvalues[at] = (1.0 + np.count_nonzero(null >= found[at])) / (draws + 1.0)
    return pvalues


def tulap(rng, epsilon, size):
    """Return Tulap noise: discrete Laplace of exp(-epsilon), and a uniform number about 0."""
    success = 1.0 - np.exp(-epsilon)
    return rng.geometric(success, size) - rng.geometric(success, size) + rng.uniform(-0.5, 0.5, size)


def test_of_tests(rng, rejected, alpha0, spent):
    """Return p-values; `rejected` (many, m) says which parts the public test rejects at alpha0."""
    m = rejected.shape[1]

    def noise(size):
        return (
            rng.normal(0.0, 1.0 / spent.mu, size) if spent.mu is not None else tulap(rng, spent.epsilon, size)
        )

    found = rejected.sum(axis=1) + noise(len(rejected))
    return larger(rng.binomial(m, alpha0, REFERENCE) + noise(REFERENCE), found)


def parts_one_sample(x, m):
    """Return p-values of Student's t in m parts of every row."""
    size = x.shape[1] // m
    parts = x[:, : m * size].reshape(len(x), m, size)
    t = parts.mean(axis=2) / (parts.std(axis=2, ddof=1) / np.sqrt(size))
    return 2.0 * stats.t.sf(np.abs(t), size - 1)


def parts_anova(rng, y, g, k, m):
    """Return p-values of the F test in m parts of every row, drawn at random."""
    order = rng.permutation(y.shape[1])
    found = []
    for part in np.array_split(order, m):
        sizes = np.bincount(g[part], minlength=k)
        if (sizes < 2).any():
            found.append(np.ones(len(y)))
            continue
        groups = [y[:, part[g[part] == one]] for one in range(k)]
        found.append(stats.f_oneway(*groups, axis=1).pvalue)
    return np.column_stack(found)
