r"""How hard to clip a score: radii that trade efficiency against privacy noise.

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
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
from scipy.special import chdtri, ndtr, ndtri

from privinf.federation.noisy import NoisySum, histogram_quantile
from privinf.inference.estimate import upper_quantile
from privinf.typing import Floats
from privinf.validation import check_count, check_positive

_CELLS = 4000  # cells of equal probability whose midpoints represent the distribution of |u|
_SIZES = 400  # the same for that of |r|, where scores are clipped alone
_SWEEPS = 8  # searches in C and R by turns; C and R are exact to more digits than matter
ONE_SD = 0.6827  # probability that a normal residual is below one sd
FALSE_CELLS = 0.001  # chance that a cell without records is taken for one with some, over all cells
# Largest unit of clips, in middles of |r|: tails without a variance would drown selections in noise.
MOST_SPREAD = 3.0
TWO_CELLS = 0.9  # share of all residuals in two cells from which on a response is taken to have two values
# A Gram matrix shrinks rows to |x|^2 <= 1.4 k: k columns in units of their sizes have |x|^2 = k on average.
GRAM_ROOM = 1.4


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
    from scipy.optimize import minimize_scalar  # a third of the import time of the package

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
    from scipy.optimize import brentq

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
    """

    middle: float
    spread: float
    far: float = 0.0

    @property
    def two_valued(self) -> bool:
        """Whether all but a tenth is in two cells."""
        return self.far > 0.0

    @property
    def scale(self) -> float:
        """The unit of clips: the larger of both, which follows the sd where the tail has the mass.

        At most three times the middle: tails without a variance would drown selections and refit in noise.
        """
        return max(self.middle, min(self.spread, MOST_SPREAD * self.middle))

    @classmethod
    def from_counts(cls, counts: NoisySum, edges: Floats) -> ResidualSizes:
        """Return the summary of counts below the first edge, between edges and above the last one."""
        threshold = upper_quantile(FALSE_CELLS / len(edges)) * counts.scale
        cells = np.where(counts.values > threshold, counts.values, 0.0) / counts.rows
        middles = np.concatenate([[0.0], np.sqrt(edges[1:] * edges[:-1]), edges[-1:]])
        two = np.sort(np.argsort(cells)[-2:])
        far = float(edges[min(int(two[-1]), len(edges) - 1)]) if cells[two].sum() > TWO_CELLS else 0.0
        middle = float(histogram_quantile(counts, edges, ONE_SD))
        return cls(middle, math.sqrt(float(cells @ middles**2)), far)


def gram_norm(size: int, rho: float) -> float:
    """Return where rows of `size` columns are shrunk for their Gram matrix; infinite without noise."""
    return math.inf if math.isinf(rho) else math.sqrt(GRAM_ROOM * size)


def step_radii(size: int, clip: float, rho: float) -> tuple[float, float]:
    """Return (C, R) of a step on `size` columns, residuals clipped at `clip`; infinite without noise."""
    return (math.inf, math.inf) if math.isinf(rho) else (math.sqrt(size), clip)


def step_slope(norm: float, bound: float, size: int) -> float:
    """Return A1(C) B1(R), the slope of the clipped score of `size` normal columns."""
    return norm_moments(norm, size)[0] * residual_moments(bound)[0]


def step_efficiency(size: int, clip: float, rho: float) -> float:
    """Return the sampling variance of where clipped steps end over that of least squares, normal errors."""
    norm, bound = step_radii(size, clip, rho)
    square = norm_moments(norm, size)[1] * residual_moments(bound)[1]
    return square / step_slope(norm, bound, size) ** 2
