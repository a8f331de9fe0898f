"""The inverse Weierstrass transform as a truncated series, and where to truncate it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
from numpy.polynomial import Polynomial
from scipy.special import expit

from privinf.errors import ArgumentError
from privinf.typing import Floats
from privinf.validation import check_count, check_number, check_positive

Derivatives = Callable[[Floats, int], Floats]


def series_coefficients(s2: float, truncation: int) -> Floats:
    """Return ``(-s2/2)^k / k!`` for k = 0, ..., truncation; empty below 0."""
    if truncation < 0:
        return np.zeros(0)
    steps = -s2 / 2 / np.arange(1.0, truncation + 1.0)
    return np.asarray(np.cumprod(np.append(1.0, steps)), dtype=np.float64)


def truncation_bias(f: Derivatives, s2: float, *, truncation: int, bound: float, points: int = 41) -> float:
    r"""Return the largest bias of the truncated series over a bounded interval.

    Parameters
    ----------
    f : function
        From (z, m) to the derivatives of order 0 to m at z, stacked, shape (m + 1, ...).
    s2 : float
        Variance of the noise in z.
    truncation : int
    bound : float
        The clean z is in [-bound, bound].
    points : int, default 41
        Grid on which the supremum is taken.

    Returns
    -------
    float: ``sup |W[g_K](z) - f(z)|``.

    Notes
    -----
    .. math:: \text{bias}_K = \sup_z \left| E\, g_K(z + N(0, s^2)) - f(z) \right|

    (appendix D.7), with g_K the truncated series; the expectation by the trapezoidal rule, which is
    spectrally accurate for smooth functions under a Gaussian weight.

    **Privacy.** Reads no data.

    Examples
    --------
    >>> truncation_bias(logistic_derivatives, 0.5, truncation=2, bound=1.0) < 0.01
    True
    """
    check_number(s2, "s2", low=0.0)
    check_count(truncation, "truncation", least=0)
    centers = np.linspace(-check_positive(bound, "bound"), bound, check_count(points, "points", least=2))
    noise, density = gaussian_grid(s2)
    bias = []
    for center in centers:
        corrected = truncated_sum(f(center + noise, 2 * truncation), s2, truncation)
        bias.append(abs(float(density @ corrected) - float(f(np.array(center), 0)[0])))
    return max(bias)


def gaussian_grid(s2: float) -> tuple[Floats, Floats]:
    """Return nodes and weights of the trapezoidal rule for expectations over N(0, s2)."""
    sd = np.sqrt(s2)
    if sd == 0.0:
        return np.zeros(1), np.ones(1)
    step = min(0.2, sd / 5.0)
    nodes = np.arange(-9.0 * sd, 9.0 * sd + step, step)
    density = np.exp(-(nodes**2) / (2 * s2))
    return np.asarray(nodes, dtype=np.float64), np.asarray(density / density.sum(), dtype=np.float64)


def choose_truncation(
    f: Derivatives, s2: float, *, bound: float, candidates: Sequence[int] = (1, 2, 3)
) -> int:
    """Return the truncation of least bias (the criterion of appendix D.7).

    Parameters
    ----------
    f : function
        Derivatives, as for `truncation_bias`.
    s2 : float
        Variance of the noise in z.
    bound : float
        The clean z is in [-bound, bound].
    candidates : sequence of int, default (1, 2, 3)

    Returns
    -------
    int, one of the candidates, the smallest of equals.

    Raises
    ------
    ArgumentError
        Without candidates.

    Notes
    -----
    **Privacy.** Reads no data.

    Examples
    --------
    >>> choose_truncation(logistic_derivatives, 2.0, bound=1.0)
    3
    """
    if not candidates:
        raise ArgumentError(
            "candidates= must contain at least one order at which to truncate the Taylor series"
        )
    return min(candidates, key=lambda k: truncation_bias(f, s2, truncation=k, bound=bound))


def logistic_derivatives(z: Floats, order: int) -> Floats:
    r"""Return ``f(z) = log(1 + e^-z)`` and its derivatives up to `order`, shape (order + 1, ...).

    Parameters
    ----------
    z : (...) array
    order : int

    Notes
    -----
    With p = expit(z), f' = p - 1 and every derivative is a polynomial in p:
    ``P_{m+1} = P_m' p (1 - p)``.

    **Privacy.** Reads no data.

    Examples
    --------
    >>> logistic_derivatives(np.array(0.0), 2)
    array([ 0.69314718, -0.5       ,  0.25      ])
    """
    points = np.asarray(z, dtype=np.float64)
    p = expit(points)
    values = np.empty((order + 1, *points.shape))
    values[0] = np.logaddexp(0.0, -points)
    for m in range(1, order + 1):
        values[m] = _polynomial(m)(p)
    return values


@cache
def _polynomial(order: int) -> Polynomial:
    """Return the polynomial in expit(z) that is the logistic loss's derivative of an order from 1."""
    if order == 1:
        return Polynomial([-1.0, 1.0])
    return _polynomial(order - 1).deriv() * Polynomial([0.0, 1.0, -1.0])


def exponential_derivatives(z: Floats, order: int) -> Floats:
    """Return ``f(z) = e^-z`` and its derivatives up to `order`, shape (order + 1, ...)."""
    signs = (-1.0) ** np.arange(order + 1)
    return np.asarray(np.multiply.outer(signs, np.exp(-np.asarray(z, dtype=np.float64))), dtype=np.float64)


def quadratic_derivatives(z: Floats, order: int) -> Floats:
    """Return ``f(z) = (z - 1)^2/2`` and its derivatives up to `order`, shape (order + 1, ...)."""
    points = np.asarray(z, dtype=np.float64)
    values = np.zeros((order + 1, *points.shape))
    for m, value in enumerate([(points - 1.0) ** 2 / 2, points - 1.0, np.ones_like(points)][: order + 1]):
        values[m] = value
    return values


def truncated_sum(values: Floats, s2: float, truncation: int) -> Floats:
    """Return the series from a function's derivatives, stacked from order 0 to twice the truncation."""
    total: Floats = np.tensordot(series_coefficients(s2, truncation), values[::2], axes=1)
    return total
