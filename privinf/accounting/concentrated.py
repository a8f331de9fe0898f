"""From zCDP to (epsilon, delta): the tight conversion, in both directions."""

from __future__ import annotations

import math
from collections.abc import Callable

from privinf.doors import door
from privinf.validation import check_fraction, check_number, check_positive


@door
def rho_to_epsilon(rho: float, delta: float) -> float:
    """Return the best known epsilon for which every rho-zCDP mechanism is (epsilon, delta)-DP.

    Parameters
    ----------
    rho : float
        In [0, inf]; infinity gives infinity.
    delta : float
        In (0, 1).

    Raises
    ------
    ArgumentError
        If an argument is out of range.

    Notes
    -----
    The minimum over a > 1 of ``rho a + log((a-1)/a) - (log delta + log a)/(a-1)``. Its derivative vanishes
    where ``rho (a-1)^2 + log a = log(1/delta)``, whose left side increases: one root, no search grid. Every
    a gives a valid epsilon, so the error of the root can only be on the safe side.

    References
    ----------
    Canonne, Kamath and Steinke (2020), The discrete Gaussian for differential privacy, Proposition 12.

    Examples
    --------
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


@door
def rho_to_delta(rho: float, epsilon: float) -> float:
    """Return the best known delta for which every rho-zCDP mechanism is (epsilon, delta)-DP.

    Parameters
    ----------
    rho : float
        In [0, inf]; infinity gives 1.
    epsilon : float
        In [0, inf).

    Raises
    ------
    ArgumentError
        If an argument is out of range.

    Notes
    -----
    The minimum over a > 1 of ``exp((a-1)(a rho - eps)) (1 - 1/a)^a / (a-1)``; with x = a - 1 the derivative
    of its logarithm is ``rho (1 + 2x) - eps + log(x/(1+x))``, which increases: one root.

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
    x = _root(lambda u: rho * (1.0 + 2.0 * u) - epsilon - math.log1p(1.0 / u), high)
    log_delta = x * ((1.0 + x) * rho - epsilon) - x * math.log1p(1.0 / x) - math.log1p(x)
    return min(1.0, math.exp(min(0.0, log_delta)))


@door
def epsilon_to_rho(epsilon: float, delta: float) -> float:
    """Return the largest rho for which `rho_to_epsilon` proves (epsilon, delta)-DP: the calibration in zCDP.

    Parameters
    ----------
    epsilon : float
        Positive; infinity gives infinity.
    delta : float
        In (0, 1).

    Raises
    ------
    ArgumentError
        If an argument is out of range.

    Notes
    -----
    ``rho_to_epsilon`` increases in rho; the root is rounded downwards, so that the epsilon of the returned
    rho is not above the one that was asked for.

    Examples
    --------
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
    from scipy.optimize import brentq  # a third of the import time of the package

    return math.exp(float(brentq(lambda v: function(math.exp(v)), math.log(low), math.log(high), xtol=1e-14)))
