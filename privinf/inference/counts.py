r"""Tables of counts with noise: estimates of cells and margins, their display, and intervals.

**Estimates.** Cells have noise of sd s_c and, where margins are released too, rows of sd s_r and columns of
    sd s_k. With A the matrix that adds cells up to rows and columns, the least-squares estimate has the
    precision P = I/s_c^2 + A' W A, W diagonal with 1/s_r^2 and 1/s_k^2, and
    P^-1 = s_c^2 (I - A' M A),  M = W^.5 (I/s_c^2 + W^.5 A A' W^.5)^-1 W^.5,
    so that only a matrix of the size of rows and columns is inverted. The public total n is a linear
    constraint: x - u (1'x - n)/(1'u) with u = P^-1 1 has the covariance P^-1 - u u'/(1'u). Without margins it
    spreads the excess evenly. Without impossible cells this is the decomposition of the analysis of variance:
    the precision of row effects is 1/s_c^2 + c/s_r^2, of column effects 1/s_c^2 + r/s_k^2, of interactions
    1/s_c^2.
**Display.** Estimates can be negative. What is shown is the nearest table that is possible: margins on
    {x >= 0, sum x = n}, then cells on {x >= 0, with these margins}, by Dykstra's alternating projections.
**Intervals.** This table's count is one of the whole numbers k >= 0 with |x - k| <= c, where c is the
    quantile of the noise: they contain it with probability 1 - alpha, whatever it is. A sum of m Laplace
    numbers of scale b has the tail  P(sum > x) = sum_(j < m) C(m - 1 + j, j) 2^-(m + j) Q(m - j, x/b),  with
    Q the upper tail of the gamma distribution. K intervals at a joint level 1 - alpha have each the level (1
    - alpha)^(1/K). For normal numbers with any correlations, this is Sidak's inequality. It holds for sums of
    Laplace numbers too: given their variances these are normal, and the probability of each interval falls in
    every variance, so that the mean of the product is at least the product of the means (Harris).

References
----------
Sidak (1967), "Rectangular confidence regions for the means of multivariate normal distributions". Boyle and
Dykstra (1986), "A method for finding projections onto the intersection of convex sets in Hilbert spaces".
Benjamini and Yekutieli (2005), "False discovery rate-adjusted multiple confidence intervals".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import stats
from scipy.optimize import brentq
from scipy.special import gammaincc, gammaln, ndtr, ndtri, xlogy

from privinf.typing import Flags, Floats, Integers

QUANTILE_ROOM = 2.0**-17  # sds that the grid of the noise may add to its quantile
BISECTIONS = 40  # of the ends of shares
MOST_STEPS = 50_000  # of Dykstra's projections
CLOSE = 1e-11  # relative error of margins at which they end
NODES = 128  # of the Gauss-Hermite rule by which normal numbers are added to larger Laplace numbers
SPACING = 0.2  # scales between the points at which the density of Laplace numbers is taken otherwise


@dataclass(frozen=True, slots=True, kw_only=True)
class TableEstimate:
    """Estimates of the cells of a table, its rows and its columns, with their standard deviations."""

    cells: Floats
    rows: Floats
    columns: Floats
    cell_sds: Floats
    row_sds: Floats
    column_sds: Floats


def estimate_table(
    cells: Floats,
    n: int,
    sd: float,
    *,
    rows: Floats | None = None,
    columns: Floats | None = None,
    margin_sds: tuple[float, float] = (math.inf, math.inf),
    possible: Flags | None = None,
) -> TableEstimate:
    """Return the least-squares estimates of a table of n records (module docstring).

    Parameters
    ----------
    cells : ndarray, shape (r, c)
        Noisy counts.
    n : int
        Their public total.
    sd : float
        Sd of their noise; 0 without noise.
    rows, columns : ndarray, optional
        Noisy counts of rows and of columns, with the sds `margin_sds`.
    possible : ndarray of bool, shape (r, c), optional
        False for cells that are empty by definition.
    """
    present = np.ones(cells.shape, dtype=bool) if possible is None else possible
    marks = present.astype(np.float64)
    if sd == 0.0:
        zeros = np.zeros(cells.shape)
        exact = cells * marks
        return TableEstimate(
            cells=exact,
            rows=exact.sum(axis=1),
            columns=exact.sum(axis=0),
            cell_sds=zeros,
            row_sds=zeros[:, 0],
            column_sds=zeros[0],
        )
    if rows is None and columns is None:
        return _projected(cells, n, sd, present)
    r, _ = cells.shape
    precisions = np.concatenate(
        [np.full(size, 1.0 / margin**2) for size, margin in zip(cells.shape, margin_sds, strict=True)]
    )
    margins = np.zeros(len(precisions))
    for place, observed in ((slice(None, r), rows), (slice(r, None), columns)):
        if observed is None:
            precisions[place] = 0.0
        else:
            margins[place] = observed
    gram = np.block([[np.diag(marks.sum(axis=1)), marks], [marks.T, np.diag(marks.sum(axis=0))]])
    root = np.sqrt(precisions)
    middle = np.eye(len(root)) / sd**2 + root[:, None] * gram * root
    M = root[:, None] * np.linalg.solve(middle, np.diag(root))

    def added(table: Floats) -> Floats:
        return np.concatenate([table.sum(axis=1), table.sum(axis=0)])

    def spread(margin: Floats) -> Floats:
        return (margin[:r, None] + margin[r:]) * marks

    def solved(table: Floats) -> Floats:
        return sd**2 * (table - spread(M @ added(table)))

    x = solved(cells * marks / sd**2 + spread(precisions * margins))
    u = solved(marks)
    total = float(u.sum())
    x = x - u * ((x.sum() - n) / total)
    diagonal = np.diag(M)
    cell_variance = sd**2 * (1.0 - diagonal[:r, None] - diagonal[r:] - 2.0 * M[:r, r:]) - u**2 / total
    margin_variance = sd**2 * np.diag(gram - gram @ M @ gram) - added(u) ** 2 / total
    estimates = added(x)
    sds = np.sqrt(np.maximum(margin_variance, 0.0))
    return TableEstimate(
        cells=x,
        rows=estimates[:r],
        columns=estimates[r:],
        cell_sds=np.sqrt(np.maximum(cell_variance, 0.0)) * marks,
        row_sds=sds[:r],
        column_sds=sds[r:],
    )


def _projected(cells: Floats, n: int, sd: float, present: Flags) -> TableEstimate:
    """Return the estimates where cells alone are released: the excess over n is spread evenly."""
    sizes = present.sum(), present.sum(axis=1), present.sum(axis=0)
    marks = present.astype(np.float64)
    x = (cells - ((cells * marks).sum() - n) / sizes[0]) * marks
    sds = [sd * np.sqrt(size * np.maximum(1.0 - size / sizes[0], 0.0)) for size in (1, *sizes[1:])]
    return TableEstimate(
        cells=x,
        rows=x.sum(axis=1),
        columns=x.sum(axis=0),
        cell_sds=sds[0] * marks,
        row_sds=sds[1],
        column_sds=sds[2],
    )


# ---- display


def on_simplex(x: Floats, total: float) -> Floats:
    """Return the nearest numbers that are not negative and add up to a total."""
    falling = np.sort(x)[::-1]
    excess = (np.cumsum(falling) - total) / np.arange(1.0, len(x) + 1.0)
    last = int(np.flatnonzero(falling > excess)[-1]) if total > 0.0 else 0
    return np.asarray(np.maximum(x - excess[last], 0.0))


def with_margins(cells: Floats, rows: Floats, columns: Floats, possible: Flags | None = None) -> Floats:
    """Return the nearest table that is not negative and has these margins (Dykstra).

    Impossible cells are 0. Where they leave no such table, what is returned has nearly these margins.
    """
    marks = np.ones(cells.shape) if possible is None else possible.astype(np.float64)
    r = len(rows)
    gram = np.block([[np.diag(marks.sum(axis=1)), marks], [marks.T, np.diag(marks.sum(axis=0))]])
    inverse = np.linalg.pinv(gram, hermitian=True)
    target = np.concatenate([rows, columns])
    close = CLOSE * max(float(rows.sum()), 1.0)
    x = cells * marks
    correction = np.zeros(cells.shape)
    for _ in range(MOST_STEPS):
        step = inverse @ (target - np.concatenate([x.sum(axis=1), x.sum(axis=0)]))
        x = x + (step[:r, None] + step[r:]) * marks
        shown = np.maximum(x + correction, 0.0)
        correction = x + correction - shown
        x = shown
        error = max(np.abs(x.sum(axis=1) - rows).max(), np.abs(x.sum(axis=0) - columns).max())
        if error <= close:
            break
    return x


# ---- intervals


def joint_level(level: float, intervals: int) -> float:
    """Return the level of each of several intervals that hold jointly at a level (Sidak)."""
    return float(level ** (1.0 / max(intervals, 1)))


def _gamma_weights(terms: int) -> tuple[Floats, Floats]:
    """Return shapes of gamma distributions, and their weights, that make up one side of a sum."""
    j = np.arange(terms)
    log_weights = gammaln(terms + j) - gammaln(j + 1.0) - gammaln(terms) - (terms + j) * math.log(2.0)
    return terms - j.astype(np.float64), np.exp(log_weights)


def laplace_sum_density(x: Floats, terms: int) -> Floats:
    """Return the density of the sum of so many Laplace numbers of scale 1."""
    shapes, weights = _gamma_weights(terms)
    size = np.abs(x)[..., None]
    return np.asarray((weights * np.exp(xlogy(shapes - 1.0, size) - size - gammaln(shapes))).sum(axis=-1))


def laplace_sum_tail(x: Floats, terms: int) -> Floats:
    """Return P(sum > x) of so many Laplace numbers of scale 1."""
    size = np.abs(np.asarray(x, dtype=np.float64))
    if terms == 1:
        one_sided = 0.5 * np.exp(-size)
        return np.asarray(np.where(np.asarray(x) >= 0.0, one_sided, 1.0 - one_sided))
    shapes, weights = _gamma_weights(terms)
    upper = (weights * gammaincc(shapes, size[..., None])).sum(axis=-1)
    return np.asarray(np.where(np.asarray(x) >= 0.0, upper, 1.0 - upper))


def laplace_sum_quantile(level: float, terms: int) -> float:
    """Return c with P(|sum| <= c) = level, of so many Laplace numbers of scale 1."""
    tail = (1.0 - level) / 2.0
    if terms == 1:
        return -math.log(2.0 * tail)
    end = 2.0 * terms - 2.0 * math.log(tail)
    return float(brentq(lambda x: float(laplace_sum_tail(np.asarray(x), terms)) - tail, 0.0, end))


def noise_half(sds: Floats, level: float, terms: int | Integers | None = None) -> Floats:
    """Return the quantiles of the sizes of noises: of normal ones, or of sums of `terms` Laplace numbers."""
    sds = np.asarray(sds, dtype=np.float64)
    if terms is None:
        return np.asarray(sds * (float(ndtri((1.0 + level) / 2.0)) + QUANTILE_ROOM))
    counts = np.broadcast_to(np.asarray(terms), sds.shape)
    half = np.zeros(sds.shape)
    for m in np.unique(counts):
        quantile = laplace_sum_quantile(level, int(m)) / math.sqrt(2.0 * m)
        half = np.where(counts == m, sds * (quantile + QUANTILE_ROOM), half)
    return half


def count_intervals(x: Floats, half: Floats, n: int) -> tuple[Floats, Floats]:
    """Return the ends of the whole numbers from 0 to n that are at most `half` from x.

    Where there is none, the nearest of these numbers: below 0 it is 0.
    """
    low = np.clip(np.ceil(x - half), 0.0, n)
    high = np.clip(np.floor(x + half), 0.0, n)
    nearest = np.clip(np.rint(x), 0.0, n)
    empty = low > high
    return np.where(empty, nearest, low), np.where(empty, nearest, high)


def laplace_share_intervals(
    x: Floats, n: int, sds: Floats, level: float, terms: int | Integers
) -> tuple[Floats, Floats]:
    """Return the ends of the shares p that a test of x, n p and noise, does not reject.

    The noise is a sum of `terms` Laplace numbers; sampling is taken as normal, of variance n p (1 - p).
    """
    x, sds = np.broadcast_arrays(np.asarray(x, dtype=np.float64), sds)
    counts = np.broadcast_to(np.asarray(terms), x.shape)
    low = np.zeros(x.shape)
    high = np.zeros(x.shape)
    for m in np.unique(counts):
        at = counts == m
        low[at], high[at] = _share_set(x[at], n, sds[at], level, int(m))
    return low, high


def _share_set(x: Floats, n: int, sds: Floats, level: float, terms: int) -> tuple[Floats, Floats]:
    """Return the ends of shares that are not rejected, by bisection from the estimate outwards."""
    scale = np.maximum(sds / math.sqrt(2.0 * terms), 1e-300)
    center = np.clip(x / n, 0.0, 1.0)
    ends = []
    for end in (0.0, 1.0):
        inside = center.copy()
        outside = np.full(x.shape, end)
        for _ in range(BISECTIONS):
            share = (inside + outside) / 2.0
            sampling = np.sqrt(n * share * (1.0 - share))
            tail = _noisy_tail(np.abs(x - n * share), sampling, scale, terms)
            accepted = tail >= (1.0 - level) / 2.0
            inside = np.where(accepted, share, inside)
            outside = np.where(accepted, outside, share)
        at_end = np.abs(x - n * end) <= noise_half(sds, level, terms)
        ends.append(np.where(at_end, end, inside))
    return ends[0], ends[1]


def _noisy_tail(x: Floats, sd: Floats, scale: Floats, terms: int) -> Floats:
    """Return P(Z + L > x) of a normal number and a sum of Laplace numbers of a scale.

    The larger one is integrated by its distribution function, the smaller one by points.
    """
    tail = np.empty(x.shape)
    wide = scale >= sd
    nodes, masses = np.polynomial.hermite_e.hermegauss(NODES)
    inner = (x[wide, None] - sd[wide, None] * nodes) / scale[wide, None]
    tail[wide] = laplace_sum_tail(inner, terms) @ (masses / masses.sum())
    reach = 2.0 * terms + 24.0
    points = np.linspace(-reach, reach, 2 * round(reach / SPACING) + 1)
    masses = laplace_sum_density(points, terms)
    narrow = ~wide
    shifted = (x[narrow, None] - scale[narrow, None] * points) / sd[narrow, None]
    tail[narrow] = ndtr(-shifted) @ (masses / masses.sum())
    return tail


# ---- exact tests of a share


@dataclass(frozen=True, slots=True)
class ShareModel:
    """A released count of n records, whose noise has sd `sd`; counts of any shape."""

    count: Floats
    n: int
    sd: float
    laplace: bool = False

    def score(self, share: float) -> Floats:
        """Return z of the share being `share`."""
        return np.asarray(
            (self.count - self.n * share) / math.sqrt(self.n * share * (1.0 - share) + self.sd**2)
        )

    def tail(self, share: float) -> float:
        """Return P(count or more) if the share is `share`, exactly: a binomial number plus noise."""
        n = self.n
        x = float(self.count)
        limit = 12.0 * math.sqrt(n * share * (1.0 - share)) + 30.0
        k = np.arange(max(0, math.floor(n * share - limit)), min(n, math.ceil(n * share + limit)) + 1)
        mass = stats.binom.pmf(k, n, share)
        if self.sd == 0.0:
            return float(mass @ (k >= x - 1e-9))
        model = stats.laplace(scale=self.sd / math.sqrt(2.0)) if self.laplace else stats.norm(scale=self.sd)
        return min(float(mass @ np.asarray(model.sf(x - k))), 1.0)

    def below(self, share: float) -> float:
        """Return P(count or less) if the share is `share`."""
        return ShareModel(self.n - self.count, self.n, self.sd, self.laplace).tail(1.0 - share)

    def exact_interval(self, level: float) -> tuple[float, float]:
        """Return the ends of the shares that neither exact one-sided test rejects at half of 1 - level."""
        half = (1.0 - level) / 2.0
        ends = []
        for test, first in ((self.tail, 0.0), (self.below, 1.0)):
            ends.append(_root(test, half, first))
        return ends[0], ends[1]


def _root(tail: Callable[[float], float], level: float, first: float) -> float:
    """Return the share at which a tail that rises from `first` on equals a level; otherwise an end."""
    if tail(first) >= level:
        return first
    if tail(1.0 - first) < level:
        return 1.0 - first
    return float(brentq(lambda share: tail(share) - level, 0.0, 1.0))
