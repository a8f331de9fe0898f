r"""How hard to clip a score: radii and weights that trade efficiency against privacy noise.

A target's score is the sum over records of ``u_j psi_R(r)``, u in R^k the standardized precision scores of
all k targets, shrunk to norm at most C, and r the residual in units of its scale, clipped at R. One record
moves the released vector by at most 2 C R. Divided by its slope, the estimate has the relative variance

    Q(C, R) = [A2(C) B2(R) + (2 C R)^2 / (2 rho n)] / [A1(C) B1(R)]^2,

relative to the least-squares variance ``sigma^2 omega_jj / n``. For Gaussian u and r

    A1 = E min(|u|^2, C |u|) / k,   A2 = E min(|u|^2, C^2) / k,   |u|^2 ~ chi^2_k,
    B1 = P(|r| < R) = 2 Phi(R) - 1,   B2 = E psi_R(r)^2 = B1 - 2 R phi(R) + 2 R^2 (1 - Phi(R)).

A1 and B1 are the slopes of the shrunk score in u and in r, A2 and B2 its second moments. Without noise
(rho infinite) nothing is clipped and Q = 1.

Where a target is released alone, its score is ``clip(u_j r, B)``: among all scores moved by at most 2 B by
one record it has the smallest second moment for its slope (Hampel's problem). For Gaussian u and r, given
|r| = t and with a = B / t,

    slope = E[2 Phi(a) - 1 - 2 a phi(a)],   square = E t^2 [2 Phi(a) - 1 - 2 a phi(a) + 2 a^2 (1 - Phi(a))],

and the relative variance is ``[square + (2 B)^2 / (2 rho n)] / slope^2``.

**Logistic scores** are not clipped but weighted. With eta = a + x_S'beta the predictor of the sparse fit,
m = sigma(eta), c = m (1 - m), e = y - m and directions v = T'z of z = (1, x_A), scaled so that about
E c v v' = I, every row has a weight **in x alone**, the same in the score and its derivative,

    w = min(1, B / q, K / k),   q = |v| max(m, 1 - m),   k = c |v|^2,

so that a right mean keeps its coefficients whatever B and K are; a record's score w v e has a length of at
most B and its curvature w c v v' of at most K (`privinf.mechanisms.statistics.curved`).

B minimizes the variance of a step that is divided by its slope, relative to the unweighted one,

    Q(B) = [A2 + (2 B)^2 / (2 rho n)] / A1^2,   A1 = E w c |v|^2 / k,   A2 = E w^2 c |v|^2 / k,

in the distribution in which eta is normal about a level with a spread, both from releases, and |v|^2 is
chi-square of k degrees of freedom over the mean of c: no budget is spent on it, and a wrong distribution
costs width alone. Rare responses have c small: there q / sqrt c, and with it B, is large, as sqrt(max(m, 1 -
m) / min(m, 1 - m)).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
from scipy.optimize import brentq, minimize_scalar
from scipy.special import chdtri, expit, ndtr, ndtri
from scipy.stats import chi2

from privinf.federation.noisy import NoisySum, histogram_quantile
from privinf.inference.estimate import upper_quantile
from privinf.typing import Floats
from privinf.validation import check_count, check_positive

_CELLS = 4000  # cells of equal probability whose midpoints represent the distribution of |u|
_SIZES = 400  # the same for that of |r|, where scores are clipped alone
_STEP_CLIPS = np.geomspace(0.2, 1.75, 24)  # grid of residual clips of a step, for `best_step_radii`
_SWEEPS = 8  # searches in C and R by turns; C and R are exact to more digits than matter
ONE_SD = 0.6827  # probability that a normal residual is below one sd
FALSE_CELLS = 0.001  # chance that a cell without records is taken for one with some, over all cells
# Largest unit of clips, in middles of |r|: tails without a variance would drown selections in noise.
MOST_SPREAD = 3.0
DOUBTED = 0.05  # chance that the typical size of residuals is outside the bounds stated for it
KNOWN_WITHIN = 2.0  # a typical size is known if both of its bounds are within this factor
TWO_CELLS = 0.9  # share of all residuals in two cells from which on a response is taken to have two values
# A Gram matrix shrinks rows to |x|^2 <= 1.4 k: k columns in units of their sizes have |x|^2 = k on average.
GRAM_ROOM = 1.4
FARTHEST_MEAN = 2.0  # of a column at a site, in units of its size
UNCLIPPED = 1e12  # means "not clipped" without noise: no sum of records comes near it
NORMAL_NODES, NORMAL_WEIGHTS = np.polynomial.hermite_e.hermegauss(31)
NORMAL_WEIGHTS = NORMAL_WEIGHTS / NORMAL_WEIGHTS.sum()  # made to add up to 1: probabilities of the nodes
LENGTHS = (np.arange(200) + 0.5) / 200.0  # midpoints of 200 equally probable cells of |v|^2, as probabilities
UNCUT_SHARE = 0.995  # share of rows that K leaves as they are, for scores
MOST_ROWS = 0.9  # the same for a matrix that the noise could drown
CLIPS = np.geomspace(0.2, 6.0, 120)  # grid on which B is sought, relative to sqrt(k odds)
WIDEST = 4.0  # largest sd of the predictor: beyond it the responses are separated
LEAST_MEAN = 1e-12  # of the response at a node of the predictor, so that no curvature is 0


@dataclass(frozen=True, slots=True)
class ClipRadii:
    """Radii of the joint score of k targets.

    Attributes
    ----------
    norm : float
        C, bound of the l2 norm of the standardized scores; infinite without noise.
    residual : float
        R, bound of the residual in units of its scale; infinite without noise.
    variance : float
        Q(C, R): variance of the estimate relative to least squares, privacy noise included.
    """

    norm: float
    residual: float
    variance: float


@cache
def _norms(k: int) -> Floats:
    tail = 1.0 - (np.arange(_CELLS) + 0.5) / _CELLS
    return np.asarray(np.sqrt(chdtri(k, tail)))


def norm_moments(clip: float, k: int) -> tuple[float, float]:
    """Return (A1, A2) of a standard normal vector in R^k shrunk to norm at most `clip`."""
    if math.isinf(clip):
        return 1.0, 1.0
    norms = _norms(check_count(k, "k"))
    slope = float(np.minimum(norms**2, clip * norms).mean())
    return slope / k, float((np.minimum(norms, clip) ** 2).mean()) / k


def residual_moments(clip: float) -> tuple[float, float]:
    """Return (B1, B2) of a standard normal number clipped at `clip`."""
    if math.isinf(clip):
        return 1.0, 1.0
    inside = float(2.0 * ndtr(clip) - 1.0)
    density = math.exp(-0.5 * clip * clip) / math.sqrt(2.0 * math.pi)
    return inside, inside - 2.0 * clip * density + 2.0 * clip * clip * float(ndtr(-clip))


def relative_variance(norm: float, residual: float, k: int, n: int, rho: float) -> float:
    """Return Q(C, R) for k targets, n records and a score released at `rho` in zCDP."""
    slope_u, square_u = norm_moments(norm, k)
    slope_r, square_r = residual_moments(residual)
    noise = 0.0 if math.isinf(rho) else (2.0 * norm * residual) ** 2 / (2.0 * rho * n)
    return (square_u * square_r + noise) / (slope_u * slope_r) ** 2


def clip_radii(k: int, n: int, rho: float) -> ClipRadii:
    """Return the radii that minimize Q(C, R).

    Parameters
    ----------
    k : int
        Number of targets released together.
    n : int
        Number of records.
    rho : float
        What the score's release costs, zCDP; infinite for no noise.

    Notes
    -----
    **Privacy.** A function of public numbers.

    Brent searches in log C and log R in turn: Q is smooth with one minimum, and its flatness there makes
    the third digit of the radii irrelevant.

    Examples
    --------
    >>> found = clip_radii(5, 60_000, 0.00715)
    >>> round(found.norm, 1), round(found.residual, 1)
    (2.4, 1.6)
    """
    check_count(n, "n")
    if math.isinf(check_positive(rho, "rho", infinite=True)):
        return ClipRadii(math.inf, math.inf, 1.0)
    root = math.sqrt(k)
    norm = root
    residual = 1.5
    variance = partial(relative_variance, k=k, n=n, rho=rho)
    for _ in range(_SWEEPS):
        norm = _minimum(partial(variance, residual=residual), 0.02 * root, 6.0 * root)
        residual = _minimum(partial(variance, norm), 0.02, 6.0)
    return ClipRadii(norm, residual, relative_variance(norm, residual, k, n, rho))


def _minimum(function: Callable[[float], float], low: float, high: float) -> float:
    """Return the minimizer of a unimodal function over [low, high], sought in the logarithm."""
    minimum = minimize_scalar(
        lambda t: function(math.exp(t)),
        bounds=(math.log(low), math.log(high)),
        method="bounded",
        options={"xatol": 1e-4},
    )
    return math.exp(float(minimum.x))


@dataclass(frozen=True, slots=True)
class ProductRadius:
    """Radius of the score of one target whose products ``u_j r`` are clipped as wholes.

    Attributes
    ----------
    bound : float
        B, in units of the residual's scale; infinite without noise.
    variance : float
        Variance of the estimate relative to least squares, privacy noise included.
    """

    bound: float
    variance: float


@cache
def _residuals() -> Floats:
    """Return as many equally probable sizes of a standard normal residual, their cells' midpoints."""
    return np.asarray(ndtri(0.5 + 0.5 * (np.arange(_SIZES) + 0.5) / _SIZES))


def product_moments(bound: float) -> tuple[float, float]:
    """Return slope and second moment of ``clip(u r, B)``, u and r independent standard normal."""
    if math.isinf(bound):
        return 1.0, 1.0
    sizes = _residuals()
    clip = bound / sizes
    density = np.exp(-0.5 * clip**2) / math.sqrt(2.0 * math.pi)
    slope = 2.0 * ndtr(clip) - 1.0 - 2.0 * clip * density
    square = sizes**2 * (slope + 2.0 * clip**2 * ndtr(-clip))
    return float(slope.mean()), float(square.mean())


def product_variance(bound: float, n: int, rho: float) -> float:
    """Return the relative variance of a product-clipped score of n records, released at `rho` in zCDP."""
    slope, square = product_moments(bound)
    noise = 0.0 if math.isinf(rho) else (2.0 * bound) ** 2 / (2.0 * rho * n)
    return (square + noise) / slope**2


@cache
def product_radius(n: int, rho: float) -> ProductRadius:
    """Return the radius B that minimizes the variance of a product-clipped score of one target.

    Parameters
    ----------
    n : int
        Number of records.
    rho : float
        What the score's release costs, zCDP; infinite for no noise.

    Notes
    -----
    **Privacy.** A function of public numbers.

    Examples
    --------
    >>> found = product_radius(4_000, 0.004)
    >>> round(found.bound, 2), round(found.variance, 2)
    (1.16, 1.72)
    """
    check_count(n, "n")
    if math.isinf(check_positive(rho, "rho", infinite=True)):
        return ProductRadius(math.inf, 1.0)
    bound = _minimum(partial(product_variance, n=n, rho=rho), 0.01, 8.0)
    return ProductRadius(bound, product_variance(bound, n, rho))


def scale_of_squares(mean: float, bound: float) -> float:
    """Return the sd of normal residuals whose squares, clipped at ``bound^2``, have this mean.

    Parameters
    ----------
    mean : float
        Noisy; the result is kept between a quarter of `bound` and four times it.
    bound : float
        Infinite: the root of the mean.

    Notes
    -----
    **Privacy.** Post-processing.
    """
    if math.isinf(bound):
        return math.sqrt(mean)

    def excess(log_scale: float) -> float:
        scale = bound * math.exp(log_scale)
        return scale**2 * residual_moments(bound / scale)[1] - mean

    log_range = math.log(4.0)
    if excess(-log_range) >= 0.0:
        return bound / 4.0
    return (
        4.0 * bound
        if excess(log_range) <= 0.0
        else bound * math.exp(float(brentq(excess, -log_range, log_range)))
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TypicalSize:
    """The 68% point of abs(r) from a noisy histogram, with bounds for its noise.

    Attributes
    ----------
    value : float
    low, high : float
        Bounds that contain the 68% point of these rows with a probability of at least 95%; 0 and infinity
        where the noise leaves none.

    Notes
    -----
    K cells have the counts c with noise of sd s, and the sum of the true counts is the public n. The
    released count of the first k cells, conditioned on this sum, is

        ``S_k = c_1 + ... + c_k - (k/K) (c_1 + ... + c_K - n)``,

    with noise of variance ``s^2 k (1 - k/K)``. If n was itself released with an error of sd t, the error of
    ``S_k - 0.68 n`` has the additional variance ``(k/K - 0.68)^2 t^2``. The true counts of the first k cells
    are nondecreasing in k. The 68% point is in cell k if the true count of the first k - 1 cells is at most
    0.68 n and that of the first k cells is at least 0.68 n. Each of the two is tested at the level 2.5%. The
    bounds are the ends of the first and of the last cell that pass both tests, so they fail with a
    probability of at most 5%, whatever the distribution of the residuals.

    `value` is where the isotonic regression of the S_k crosses 0.68 n: it is the cell after the k with the
    smallest ``(S_1 - 0.68 n) + ... + (S_k - 0.68 n)``, interpolated geometrically.
    """

    value: float
    low: float
    high: float

    @property
    def known(self) -> bool:
        """Whether both bounds are within a factor of 2 of the value."""
        return self.high <= KNOWN_WITHIN * self.value and self.low >= self.value / KNOWN_WITHIN

    @classmethod
    def from_counts(cls, counts: NoisySum, edges: Floats, rows_sd: float = 0.0) -> TypicalSize:
        """Return the 68% point of counts below the first edge, between edges and above the last one."""
        below = np.arange(1.0, len(edges) + 1.0) / len(counts.values)
        sums = np.cumsum(counts.values)
        excess = sums[:-1] - below * (sums[-1] - counts.rows) - ONE_SD * counts.rows
        noise = counts.scale**2 * len(counts.values) * below * (1.0 - below)
        sd = np.sqrt(noise + ((below - ONE_SD) * rows_sd) ** 2)
        half = upper_quantile(DOUBTED / 2.0) * sd
        # The last cell has no end below which all rows are counted, the first none below it.
        possible = np.append(excess + half >= 0.0, True) & np.append(True, excess - half <= 0.0)
        cells = np.flatnonzero(possible)
        cell = int(np.argmin(np.append(0.0, np.cumsum(excess))))
        return cls(
            value=_crossing(edges, excess, cell),
            low=float(edges[cells[0] - 1]) if len(cells) and cells[0] > 0 else 0.0,
            high=float(edges[cells[-1]]) if len(cells) and cells[-1] < len(edges) else math.inf,
        )


def _crossing(edges: Floats, excess: Floats, cell: int) -> float:
    """Return where the excess at the edges crosses 0 in a cell, at its one end where it has no other."""
    if cell == 0 or cell == len(edges):
        return float(edges[0] if cell == 0 else edges[-1])
    before, after = excess[cell - 1], excess[cell]
    share = 0.0 if after == before else -before / (after - before)
    return float(edges[cell - 1] * (edges[cell] / edges[cell - 1]) ** share)


@dataclass(frozen=True, slots=True)
class ResidualSizes:
    """Summary of one noisy histogram of abs(r).

    Attributes
    ----------
    middle : float
        Its 68% point: the sd of normal residuals, a scale of the middle of any others.
    spread : float
        Root of the second moment of the cells that stand out of their noise.
    far : float
        The end of the farther cell, if all but a tenth is in two cells: the residuals of a response of two
        values. Else 0.
    typical : TypicalSize
        The 68% point again, with bounds and from all counts. Results state it. Clips are still in units of
        `middle`, which uses the counts of smaller residuals alone.
    """

    middle: float
    spread: float
    far: float = 0.0
    typical: TypicalSize | None = None

    @property
    def two_valued(self) -> bool:
        """Whether all but a tenth is in two cells."""
        return self.far > 0.0

    @property
    def scale(self) -> float:
        """The unit of clips: the larger of both, which follows the sd where the tail has the mass.

        At most three times the middle: tails without a variance would drown selections and refit in noise.
        """
        return self._unit(self.middle)

    @property
    def typical_scale(self) -> float:
        """The same with the 68% point from all counts."""
        return self.scale if self.typical is None else self._unit(self.typical.value)

    def _unit(self, middle: float) -> float:
        return max(middle, min(self.spread, MOST_SPREAD * middle))

    @classmethod
    def from_counts(cls, counts: NoisySum, edges: Floats, rows_sd: float = 0.0) -> ResidualSizes:
        """Return the summary of counts below the first edge, between edges and above the last one.

        `rows_sd` is the sd of the noise in the number of rows; 0 if it is public.
        """
        threshold = upper_quantile(FALSE_CELLS / len(edges)) * counts.scale
        cells = np.where(counts.values > threshold, counts.values, 0.0) / counts.rows
        middles = np.concatenate([[0.0], np.sqrt(edges[1:] * edges[:-1]), edges[-1:]])
        two = np.sort(np.argsort(cells)[-2:])
        far = float(edges[min(int(two[-1]), len(edges) - 1)]) if cells[two].sum() > TWO_CELLS else 0.0
        middle = float(histogram_quantile(counts, edges, ONE_SD))
        typical = TypicalSize.from_counts(counts, edges, rows_sd)
        return cls(middle, math.sqrt(float(cells @ middles**2)), far, typical)


def mean_of_clipped(means: Floats, bound: float) -> tuple[Floats, Floats]:
    """Return means of normal numbers of sd 1 whose values, clipped at `bound`, have these means.

    Also the slopes of clipped means in means. Means are kept between plus and minus `FARTHEST_MEAN`.

    Notes
    -----
    **Privacy.** Post-processing.
    """
    grid = np.linspace(-FARTHEST_MEAN, FARTHEST_MEAN, 401)
    low, high = -bound - grid, bound - grid
    density = np.exp(-0.5 * np.square([low, high])) / math.sqrt(2.0 * math.pi)
    inside = ndtr(high) - ndtr(low)
    clipped = grid * inside + density[0] - density[1] + bound * (ndtr(-high) - ndtr(low))
    unclipped = np.interp(means, clipped, grid)
    return unclipped, np.interp(unclipped, grid, inside)


def gram_norm(size: int, rho: float) -> float:
    """Return where rows of `size` columns are shrunk for their Gram matrix; infinite without noise."""
    return math.inf if math.isinf(rho) else math.sqrt(GRAM_ROOM * size)


def step_radii(size: int, clip: float, rho: float) -> tuple[float, float]:
    """Return (C, R) of a step on `size` columns, residuals clipped at `clip`; infinite without noise."""
    return (math.inf, math.inf) if math.isinf(rho) else (math.sqrt(size), clip)


def best_step_radii(size: int, n: int, rho: float) -> tuple[float, float]:
    """Return (C, R) of a step on `size` columns, C = sqrt(size) and R with the least variance of the step."""
    if math.isinf(rho):
        return math.inf, math.inf
    norm = math.sqrt(size)
    return norm, float(min(_STEP_CLIPS, key=lambda bound: relative_variance(norm, bound, size, n, rho)))


def step_slope(norm: float, bound: float, size: int) -> float:
    """Return A1(C) B1(R), the slope of the clipped score of `size` normal columns."""
    return norm_moments(norm, size)[0] * residual_moments(bound)[0]


def step_efficiency(size: int, clip: float, rho: float) -> float:
    """Return the sampling variance of where clipped steps end over that of least squares, normal errors."""
    norm, bound = step_radii(size, clip, rho)
    square = norm_moments(norm, size)[1] * residual_moments(bound)[1]
    return square / step_slope(norm, bound, size) ** 2


@dataclass(frozen=True, slots=True)
class Spread:
    """Distribution of the predictor for which bounds are chosen: normal about a level with the released rate.

    Attributes
    ----------
    rate : float
        Mean of the response.
    sd : float
        Of the predictor.
    """

    rate: float
    sd: float = 0.0

    @property
    def level(self) -> float:
        """Where the predictor is centered."""
        size = self.sd
        return float(
            brentq(lambda at: NORMAL_WEIGHTS @ expit(at + size * NORMAL_NODES) - self.rate, -40.0, 40.0)
        )

    @property
    def means(self) -> Floats:
        """Means at the nodes of the predictor; none is so near to 0 or 1 that its curvature would vanish."""
        return np.clip(expit(self.level + self.sd * NORMAL_NODES), LEAST_MEAN, 1.0 - LEAST_MEAN)

    @property
    def curvature(self) -> float:
        """Mean of c."""
        means = self.means
        return float(NORMAL_WEIGHTS @ (means * (1.0 - means)))


@dataclass(frozen=True, slots=True)
class Weights:
    """B and K, with the slope and the square of the weighted score relative to the unweighted one."""

    score: float
    curvature: float
    slope: float = 1.0
    square: float = 1.0


def weights_of(spread: Spread, size: int, n: int, rho: float) -> Weights:
    """Return B and K for a score in `size` directions at a price."""
    if math.isinf(rho):
        return Weights(UNCLIPPED, UNCLIPPED)
    means = spread.means
    c = (means * (1.0 - means))[:, None]
    length2 = (chi2.ppf(LENGTHS, size) / spread.curvature)[None, :]
    share = np.repeat(NORMAL_WEIGHTS[:, None], len(LENGTHS), axis=1) / len(LENGTHS)
    q = np.sqrt(length2) * np.maximum(means, 1.0 - means)[:, None]
    top = curvature_bound(spread, size, UNCUT_SHARE)
    odds = math.sqrt(max(spread.rate, 1.0 - spread.rate) / min(spread.rate, 1.0 - spread.rate))
    bounds = CLIPS * odds * math.sqrt(size)
    candidates = []
    for bound in bounds:
        w = np.minimum(1.0, np.minimum(bound / q, top / (c * length2)))
        slope = float((share * w * c * length2).sum()) / size
        square = float((share * w**2 * c * length2).sum()) / size
        candidates.append(((square + 4.0 * bound**2 / (2.0 * rho * n)) / slope**2, bound, slope, square))
    _, bound, slope, square = min(candidates)
    return Weights(float(bound), top, slope, square)


def curvature_bound(spread: Spread, size: int, share: float) -> float:
    """Return the quantile of c |v|^2 at `share`, E c |v|^2 = `size`."""
    means = spread.means
    sizes = (means * (1.0 - means) / spread.curvature)[:, None] * chi2.ppf(LENGTHS, size)[None, :]
    weights = np.repeat(NORMAL_WEIGHTS[:, None], len(LENGTHS), axis=1).ravel()
    order = np.argsort(sizes, axis=None)
    cumulative = np.cumsum(weights[order]) / weights.sum()
    return float(sizes.ravel()[order][np.searchsorted(cumulative, share)])
