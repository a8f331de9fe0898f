r"""How hard to clip a score: radii that trade efficiency against privacy noise.

A target's score is the sum over records of ``u_j psi_R(r)``, u in R^k the standardised precision scores of
all k targets, shrunk to norm at most C, and r the residual in units of its scale, clipped at R. One record
moves the released vector by at most 2 C R. Divided by its slope, the estimate has the relative variance

    Q(C, R) = [A2(C) B2(R) + (2 C R)^2 / (2 rho n)] / [A1(C) B1(R)]^2,

relative to the least-squares variance ``sigma^2 omega_jj / n``. For Gaussian u and r

    A1 = E min(|u|^2, C |u|) / k,   A2 = E min(|u|^2, C^2) / k,   |u|^2 ~ chi^2_k,
    B1 = P(|r| < R) = 2 Phi(R) - 1,   B2 = E psi_R(r)^2 = B1 - 2 R phi(R) + 2 R^2 (1 - Phi(R)).

A1 and B1 are the slopes of the shrunk score in u and in r, A2 and B2 its second moments. Without noise
(rho infinite) nothing is clipped and Q = 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
from scipy.special import chdtri, ndtr

from privinf.typing import Floats
from privinf.validation import check_count, check_positive

# Midpoints of as many equal probabilities stand for the law of |u|.
_CELLS = 4000
_SWEEPS = 8


@dataclass(frozen=True, slots=True)
class ClipRadii:
    """Radii of the joint score of k targets.

    Attributes
    ----------
    norm : float
        C, bound of the l2 norm of the standardised scores; infinite without noise.
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
    """Return the radii that minimise Q(C, R).

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
    norm, residual = root, 1.5
    for _ in range(_SWEEPS):
        norm = _minimum(partial(_at_norm, residual=residual, k=k, n=n, rho=rho), 0.02 * root, 6.0 * root)
        residual = _minimum(partial(relative_variance, norm, k=k, n=n, rho=rho), 0.02, 6.0)
    return ClipRadii(norm, residual, relative_variance(norm, residual, k, n, rho))


def _at_norm(norm: float, *, residual: float, k: int, n: int, rho: float) -> float:
    return relative_variance(norm, residual, k, n, rho)


def _minimum(function: Callable[[float], float], low: float, high: float) -> float:
    """Return the minimiser of a unimodal function over [low, high], sought in the logarithm."""
    from scipy.optimize import minimize_scalar  # a third of the import time of the package

    found = minimize_scalar(
        lambda t: function(math.exp(t)),
        bounds=(math.log(low), math.log(high)),
        method="bounded",
        options={"xatol": 1e-4},
    )
    return math.exp(float(found.x))
