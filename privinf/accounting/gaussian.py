"""The exact privacy curve of the Gaussian mechanism and its inverses.

Everything is written with the scaled complementary error function, in which the factor e^eps cancels
analytically: no overflow, no catastrophic subtraction, mu from 1e-10 to 1000 and beyond.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.special import erfcx, ndtr

from privinf.doors import door
from privinf.errors import ArgumentError
from privinf.typing import Floats
from privinf.validation import check_fraction, check_number

_TINY = 5e-324
_SQRT2 = math.sqrt(2.0)
_SMALLEST_DELTA = 1e-300


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
    t = epsilon / mu - mu / 2.0
    near = np.maximum(t, -1.0)
    with np.errstate(over="ignore", under="ignore"):
        decay = 0.5 * np.exp(-0.5 * t * t)
        far = erfcx((t + mu) / _SQRT2)
        if mu < 1e-5:  # the difference of two erfcx is a derivative times mu: exact to mu^2
            middle = (near + 0.5 * mu) / _SQRT2
            difference = (mu / _SQRT2) * 2.0 * (1.0 / math.sqrt(math.pi) - middle * erfcx(middle))
        else:
            difference = erfcx(near / _SQRT2) - far
        delta = np.where(t >= -1.0, decay * difference, ndtr(-t) - decay * far)
    return np.asarray(np.clip(delta, 0.0, 1.0))


@door
def gaussian_delta(epsilon: float, mu: float) -> float:
    """Return the smallest delta for which a mu-GDP mechanism is (epsilon, delta)-DP.

    Parameters
    ----------
    epsilon : float
        In [0, inf).
    mu : float
        In [0, inf]; sensitivity over noise standard deviation.

    Raises
    ------
    ArgumentError
        If an argument is out of range.

    References
    ----------
    Balle and Wang (2018), Improving the Gaussian mechanism for differential privacy, Theorem 8.

    Examples
    --------
    >>> f"{gaussian_delta(1.0, 0.5):.6f}"
    '0.006830'
    """
    epsilon = check_number(epsilon, "epsilon", low=0.0)
    mu = check_number(mu, "mu", low=0.0, infinite=True)
    return float(hockey_stick(np.array([epsilon]), mu)[0])


@door
def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the smallest epsilon >= 0 for which a mu-GDP mechanism is (epsilon, delta)-DP.

    Parameters
    ----------
    mu : float
        In [0, inf]; infinity gives infinity.
    delta : float
        In (0, 1).

    Raises
    ------
    ArgumentError
        If an argument is out of range.

    Notes
    -----
    Rounded upwards: ``gaussian_delta`` at the returned value does not exceed `delta`.

    Examples
    --------
    >>> f"{gaussian_epsilon(0.5, 1e-6):.6f}"
    '2.254085'
    """
    mu = check_number(mu, "mu", low=0.0, infinite=True)
    delta = check_fraction(delta, "delta")
    if math.isinf(mu):
        return math.inf
    high = 0.5 * mu * mu + mu * math.sqrt(-2.0 * math.log(delta))
    return smallest_epsilon(lambda e: float(hockey_stick(np.array([e]), mu)[0]), delta, high)


@door
def gaussian_mu(epsilon: float, delta: float) -> float:
    """Return the largest mu for which a mu-GDP mechanism is (epsilon, delta)-DP: the exact calibration.

    Parameters
    ----------
    epsilon : float
        In [0, inf]; infinity gives infinity.
    delta : float
        In (0, 1).

    Raises
    ------
    ArgumentError
        If an argument is out of range.

    Notes
    -----
    Found by bracketing and Brent's method on log delta, which increases in mu; rounded downwards, so that
    ``gaussian_delta(epsilon, mu)`` does not exceed `delta`.

    Examples
    --------
    >>> f"{1 / gaussian_mu(1.0, 1e-6):.6f}"
    '4.224679'
    """
    epsilon = check_number(epsilon, "epsilon", low=0.0, infinite=True)
    delta = check_fraction(delta, "delta")
    if delta < _SMALLEST_DELTA:  # no bracket is found among numbers that have lost their digits
        raise ArgumentError(f"delta must be at least {_SMALLEST_DELTA:g}")
    if math.isinf(epsilon):
        return math.inf

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
        root, step = root - step, 2.0 * step
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
        root, step = root + step, 2.0 * step
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
