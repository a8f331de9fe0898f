"""From mu (Gaussian DP) and from rho (zCDP) to (epsilon, delta), exactly or tightly, and back.

Gaussian curves are written with the scaled complementary error function, in which the factor e^eps cancels
analytically: no overflow, no catastrophic subtraction, mu from 1e-10 to 1000 and beyond. The conversion from
zCDP is the best known one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from scipy.special import erfcx, ndtr

from privinf.error_boundary import error_boundary
from privinf.errors import ArgumentError
from privinf.typing import Floats
from privinf.validation import check_fraction, check_number, check_positive

_TINY = 5e-324  # the smallest positive double
_FAR = 1e3  # sds: beyond 39 of them a normal tail is 0 in doubles
_SQRT2 = math.sqrt(2.0)  # in erfc's argument of a normal tail
_SMALLEST_DELTA = 1e-300  # among smaller ones doubles lose digits, and no bracket of the root is found
# Their squares, and epsilon of such a mu, are finite doubles.
_LARGEST_MU = 1e150  # that is converted
_LARGEST_EPSILON = 1e200  # that is converted


def hockey_stick(epsilon: Floats, mu: float) -> Floats:
    """Return delta(epsilon) of a mu-GDP mechanism for an array of epsilons of either sign.

    Parameters
    ----------
    epsilon : ndarray
        Any shape; negative values occur when the loss of another mechanism has been subtracted.
    mu : float
        In [0, inf].

    Returns
    -------
    ndarray
        Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu), of the shape of `epsilon`.

    Notes
    -----
    The loss is symmetric, so delta(-e) = 1 - e^-e + e^-e delta(e), and only e >= 0 is ever evaluated.
    """
    below = np.minimum(epsilon, 0.0)
    if mu == 0.0:
        return np.asarray(-np.expm1(below))
    if math.isinf(mu):
        return np.ones_like(epsilon)
    upper = _upper_half(np.abs(epsilon), mu)
    return np.asarray(np.exp(below) * upper - np.expm1(below))


def _upper_half(epsilon: Floats, mu: float) -> Floats:
    """Return delta(eps) for eps >= 0.

    With t = eps/mu - mu/2 the second term e^eps Phi(-t - mu) is e^(-t^2/2) erfcx((t + mu)/sqrt 2) / 2.
    """
    with np.errstate(over="ignore", under="ignore"):
        t = np.minimum(epsilon / mu - mu / 2.0, _FAR)
        near = np.maximum(t, -1.0)
        decay = 0.5 * np.exp(-0.5 * t * t)
        far = erfcx((t + mu) / _SQRT2)
        if mu < 1e-5:  # the difference of two erfcx is a derivative times mu: exact to mu^2
            middle = (near + 0.5 * mu) / _SQRT2
            difference = (mu / _SQRT2) * 2.0 * (1.0 / math.sqrt(math.pi) - middle * erfcx(middle))
        else:
            difference = erfcx(near / _SQRT2) - far
        delta = np.where(t >= -1.0, decay * difference, ndtr(-t) - decay * far)
    return np.asarray(np.clip(delta, 0.0, 1.0))


@error_boundary
def gaussian_delta(epsilon: float, mu: float) -> float:
    """Return the smallest delta for which a mu-GDP mechanism is (epsilon, delta)-DP.

    Parameters
    ----------
    epsilon : float
        In [0, inf).
    mu : float
        Parameter mu of the mechanism, in [0, inf]: for Gaussian noise, the sensitivity divided by the
        standard deviation of the noise.

    Returns
    -------
    float
        Delta.

    Raises
    ------
    ArgumentError
        Raised if an argument is out of range.

    References
    ----------
    Balle and Wang (2018), Improving the Gaussian mechanism for differential privacy, Theorem 8.

    Examples
    --------
    >>> from privinf.accounting import gaussian_delta
    >>> f"{gaussian_delta(1.0, 0.5):.6f}"
    '0.006830'
    """
    epsilon = check_number(epsilon, "epsilon", low=0.0)
    mu = check_number(mu, "mu", low=0.0, infinite=True)
    return float(hockey_stick(np.array([epsilon]), mu)[0])


@error_boundary
def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the smallest epsilon >= 0 for which a mu-GDP mechanism is (epsilon, delta)-DP.

    Parameters
    ----------
    mu : float
        Parameter mu of the mechanism, in [0, inf]: for Gaussian noise, the sensitivity divided by the
        standard deviation of the noise. For infinity the result is infinity.
    delta : float
        In (0, 1).

    Returns
    -------
    float
        Epsilon, rounded up, so that `gaussian_delta` of the returned value is at most `delta`.

    Raises
    ------
    ArgumentError
        Raised if an argument is out of range.

    Examples
    --------
    >>> from privinf.accounting import gaussian_epsilon
    >>> f"{gaussian_epsilon(0.5, 1e-6):.6f}"
    '2.254085'
    """
    mu = check_number(mu, "mu", low=0.0, infinite=True)
    delta = check_fraction(delta, "delta")
    if mu > _LARGEST_MU and not math.isinf(mu):
        raise ArgumentError(f"mu={mu:g} is too large to convert; it must be at most {_LARGEST_MU:g}")
    return math.inf if math.isinf(mu) else _gaussian_epsilon(mu, delta)


@lru_cache(maxsize=64)
def _gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the epsilon of checked numbers; a report states that of a fit and that of its ledger."""
    high = 0.5 * mu * mu + mu * math.sqrt(-2.0 * math.log(delta))
    return smallest_epsilon(lambda e: float(hockey_stick(np.array([e]), mu)[0]), delta, high)


@error_boundary
def gaussian_mu(epsilon: float, delta: float) -> float:
    """Return the largest mu for which a mu-GDP mechanism is (epsilon, delta)-DP (exact calibration).

    Parameters
    ----------
    epsilon : float
        Epsilon of the guarantee, in [0, inf]. For infinity the result is infinity.
    delta : float
        In (0, 1).

    Returns
    -------
    float
        mu, rounded down.

    Raises
    ------
    ArgumentError
        Raised if an argument is out of range.

    Notes
    -----
    The root is computed by Brent's method on log delta, which is increasing in mu. The root is rounded down,
    so that ``gaussian_delta(epsilon, mu)`` is at most `delta`.

    Examples
    --------
    >>> from privinf.accounting import gaussian_mu
    >>> f"{1 / gaussian_mu(1.0, 1e-6):.6f}"
    '4.224679'
    """
    epsilon = check_number(epsilon, "epsilon", low=0.0, infinite=True)
    delta = check_fraction(delta, "delta")
    if delta < _SMALLEST_DELTA:  # no bracket is found among numbers that have lost their digits
        raise ArgumentError(f"delta= must be at least {_SMALLEST_DELTA:g}")
    if math.isinf(epsilon):
        return math.inf
    if epsilon > _LARGEST_EPSILON:
        raise ArgumentError(
            f"epsilon={epsilon:g} is too large to convert; it must be at most {_LARGEST_EPSILON:g}"
        )
    return _largest_mu(epsilon, delta)


@lru_cache(maxsize=256)
def _largest_mu(epsilon: float, delta: float) -> float:
    """Return `gaussian_mu` of checked arguments."""

    def delta_of(mu: float) -> float:
        return float(hockey_stick(np.array([epsilon]), mu)[0])

    low = high = max(epsilon, delta) / math.sqrt(2.0 * math.log(1.25 / delta))
    while delta_of(low) > delta:
        low /= 2.0
    while delta_of(high) <= delta:
        high *= 2.0
    root = _crossing(delta_of, delta, low, high)
    step = math.ulp(root)
    while delta_of(root) > delta:
        root = root - step
        step = 2.0 * step
    return root


def smallest_epsilon(delta_of: Callable[[float], float], delta: float, high: float) -> float:
    """Return the smallest epsilon >= 0 with ``delta_of(epsilon) <= delta``, rounded upwards.

    `delta_of` decreases; `high` is a point where it should be at most `delta` (it is moved out if rounding
    says otherwise).
    """
    if delta_of(0.0) <= delta:
        return 0.0
    while delta_of(high) > delta:
        high *= 1.5
    root = _crossing(delta_of, delta, 0.0, high)
    step = math.ulp(root)
    while delta_of(root) > delta:
        root = root + step
        step = 2.0 * step
    return root


def _crossing(delta_of: Callable[[float], float], delta: float, low: float, high: float) -> float:
    """Return where a monotone `delta_of` crosses `delta`: on the log scale the root is well conditioned."""
    target = math.log(delta)

    def excess(x: float) -> float:
        return math.log(max(delta_of(x), _TINY)) - target

    if excess(low) * excess(high) >= 0.0:  # an end is the root to the last digit
        return high if abs(excess(high)) <= abs(excess(low)) else low
    from scipy.optimize import brentq  # a third of the import time of the package

    return float(brentq(excess, low, high, xtol=_TINY, rtol=1e-15, maxiter=500))


@error_boundary
def rho_to_epsilon(rho: float, delta: float) -> float:
    """Return the best known epsilon for which every rho-zCDP mechanism is (epsilon, delta)-DP.

    Parameters
    ----------
    rho : float
        Parameter rho of the mechanism, in [0, inf]. For infinity the result is infinity.
    delta : float
        In (0, 1).

    Returns
    -------
    float
        Epsilon.

    Raises
    ------
    ArgumentError
        Raised if an argument is out of range.

    Notes
    -----
    The result is the minimum over a > 1 of ``rho a + log((a-1)/a) - (log delta + log a)/(a-1)``. The
    derivative of this expression is zero if ``rho (a-1)^2 + log a = log(1/delta)``. The left side of this
    equation is increasing in a. Therefore the equation has exactly one root. Every number a > 1 gives a valid
    epsilon, so an inexact root can only make the returned epsilon too large.

    References
    ----------
    Canonne, Kamath and Steinke (2020), The discrete Gaussian for differential privacy, Proposition 12.

    Examples
    --------
    >>> from privinf.accounting import rho_to_epsilon
    >>> f"{rho_to_epsilon(0.0199, 8.3e-6):.2f}"
    '0.80'
    """
    rho = check_number(rho, "rho", low=0.0, infinite=True)
    delta = check_fraction(delta, "delta")
    if rho == 0.0 or math.isinf(rho):
        return rho
    need = -math.log(delta)
    high = math.sqrt(need / rho)
    if need < 700.0:
        high = min(high, math.expm1(need))
    x = _root(lambda u: rho * u * u + math.log1p(u) - need, high)
    return max(0.0, rho * (1.0 + x) - math.log1p(1.0 / x) + (need - math.log1p(x)) / x)


@error_boundary
def rho_to_delta(rho: float, epsilon: float) -> float:
    """Return the best known delta for which every rho-zCDP mechanism is (epsilon, delta)-DP.

    Parameters
    ----------
    rho : float
        Parameter rho of the mechanism, in [0, inf]. For infinity the result is 1.
    epsilon : float
        Epsilon of the guarantee, finite and at least 0.

    Returns
    -------
    float
        Delta.

    Raises
    ------
    ArgumentError
        Raised if an argument is out of range.

    Notes
    -----
    The result is the minimum over a > 1 of ``exp((a-1)(a rho - eps)) (1 - 1/a)^a / (a-1)``. With x = a - 1,
    the derivative of the logarithm of this expression is ``rho (1 + 2x) - eps + log(x/(1+x))``. The
    derivative is increasing in x and therefore has one root.

    References
    ----------
    Canonne, Kamath and Steinke (2020), The discrete Gaussian for differential privacy, Corollary 13.
    """
    rho = check_number(rho, "rho", low=0.0, infinite=True)
    epsilon = check_number(epsilon, "epsilon", low=0.0)
    if rho == 0.0 or math.isinf(rho):
        return 0.0 if rho == 0.0 else 1.0
    # At this x, rho (1 + 2x) - eps > 2 sqrt(rho) while log((1+x)/x) <= 1/x <= sqrt(rho).
    high = epsilon / (2.0 * rho) + 1.0 / math.sqrt(rho) + 1.0
    if math.isinf(high):  # epsilon^2 / rho is beyond the doubles, and delta below them
        return 0.0
    if rho - epsilon > 700.0:  # the root is below exp(-700), and delta 1 in doubles
        return 1.0
    x = _root(lambda u: rho * (1.0 + 2.0 * u) - epsilon - math.log1p(1.0 / u), high)
    log_delta = x * ((1.0 + x) * rho - epsilon) - x * math.log1p(1.0 / x) - math.log1p(x)
    return min(1.0, math.exp(min(0.0, log_delta)))


@error_boundary
def epsilon_to_rho(epsilon: float, delta: float) -> float:
    """Return the largest rho for which every rho-zCDP mechanism is known to be (epsilon, delta)-DP.

    Parameters
    ----------
    epsilon : float
        Epsilon of the guarantee, in (0, inf]. For infinity the result is infinity.
    delta : float
        In (0, 1).

    Returns
    -------
    float
        rho, rounded down.

    Raises
    ------
    ArgumentError
        Raised if an argument is out of range.

    Notes
    -----
    The function ``rho_to_epsilon`` is increasing in rho. The result is the rho at which this function equals
    `epsilon`, rounded down. The epsilon of the returned rho is therefore at most `epsilon`.

    Examples
    --------
    >>> from privinf.accounting import epsilon_to_rho
    >>> f"{epsilon_to_rho(0.8, 8.3e-6):.3f}"
    '0.020'
    """
    epsilon = check_positive(epsilon, "epsilon", infinite=True)
    delta = check_fraction(delta, "delta")
    if math.isinf(epsilon):
        return math.inf
    rho = _root(lambda u: rho_to_epsilon(u, delta) - epsilon, epsilon)
    while rho_to_epsilon(rho, delta) > epsilon:
        rho *= 1.0 - 2.0**-50
    return rho


def _root(function: Callable[[float], float], high: float) -> float:
    """Root in (0, high] of an increasing function, sought in log x because it spans many powers of ten."""
    if function(high) <= 0.0:
        return high
    low = high / 2.0
    while function(low) > 0.0:
        low /= 2.0

    def value(log: float) -> float:
        return function(math.exp(log))

    bottom, top = math.log(low), math.log(high)
    if value(top) <= 0.0 or value(bottom) > 0.0:  # an end's logarithm was rounded to the root's other side
        return high if value(top) <= 0.0 else low
    from scipy.optimize import brentq  # a third of the import time of the package

    return math.exp(float(brentq(value, bottom, top, xtol=1e-14)))
