"""From a promised level of privacy to the mu that a Gaussian release may spend."""

from __future__ import annotations

import math
from collections.abc import Sequence

from privinf.accounting.conversions import gaussian_mu
from privinf.accounting.exact import exact, sqrt_down
from privinf.doors import door
from privinf.errors import ArgumentError
from privinf.typing import Calibration
from privinf.validation import check_choice, check_count, check_fraction, check_positive


@door
def classic_mu(epsilon: float, delta: float) -> float:
    """Return the mu that the textbook noise really has: sigma = L sqrt(2 ln(1.25/delta)) / epsilon.

    Parameters
    ----------
    epsilon : float
        The level claimed; positive, finite.
    delta : float
        In (0, 1).

    Raises
    ------
    ArgumentError
        If an argument is out of range.

    Notes
    -----
    For reproduction only. The rule is proved for epsilon < 1, is never tight, and from about epsilon = 8.4
    (delta = 1e-5) the release is **not** private at the level claimed: report
    ``gaussian_epsilon(classic_mu(epsilon, delta), delta)``, which is what the noise really gives.
    """
    epsilon = check_positive(epsilon, "epsilon")
    return epsilon / math.sqrt(2.0 * math.log(1.25 / check_fraction(delta, "delta")))


@door
def calibrate_mu(
    *,
    epsilon: float | None = None,
    mu: float | None = None,
    rho: float | None = None,
    delta: float | None = None,
    calibration: Calibration = "exact",
) -> float:
    """Return the mu = sensitivity / noise sd that meets a level of privacy stated in one of three ways.

    Parameters
    ----------
    epsilon : float, optional
        With `delta`: the (epsilon, delta) level. Infinity asks for no noise.
    mu : float, optional
        The level in Gaussian DP, returned as it is.
    rho : float, optional
        The level in zCDP: mu = sqrt(2 rho).
    delta : float, optional
        In (0, 1). Required with a finite `epsilon`; beside `mu` or `rho` it does not enter the calibration
        (it is the delta at which the caller will report) and is only checked.
    calibration : {"exact", "classic"}
        "exact" finds the root of the Gaussian privacy curve; "classic" is the textbook formula, for
        reproduction only (see :func:`classic_mu`).

    Returns
    -------
    float
        Positive, possibly infinite.

    Raises
    ------
    ArgumentError
        Unless exactly one level is given, it is positive, and delta is there where it is needed.

    Examples
    --------
    >>> round(calibrate_mu(epsilon=1.0, delta=1e-6), 4), round(calibrate_mu(rho=0.5), 4)
    (0.2367, 1.0)
    """
    check_choice(calibration, Calibration, "calibration")
    given = [name for name, level in (("epsilon", epsilon), ("mu", mu), ("rho", rho)) if level is not None]
    if len(given) != 1:
        raise ArgumentError(f"give exactly one of epsilon, mu and rho, got {' and '.join(given) or 'none'}")
    if delta is not None:
        delta = check_fraction(delta, "delta")
    if epsilon is None and calibration == "classic":
        raise ArgumentError("calibration='classic' is a formula for epsilon and delta; give those")
    if mu is not None:
        return check_positive(mu, "mu", infinite=True)
    if rho is not None:
        return math.sqrt(2.0 * check_positive(rho, "rho", infinite=True))
    epsilon = check_positive(epsilon, "epsilon", infinite=True)
    if math.isinf(epsilon):
        return math.inf
    if delta is None:
        raise ArgumentError("epsilon needs delta, in (0, 1), for a Gaussian release")
    return gaussian_mu(epsilon, delta) if calibration == "exact" else classic_mu(epsilon, delta)


@door
def split_mu(mu: float, shares: int | Sequence[float]) -> tuple[float, ...]:
    """Split one mu over several Gaussian releases so that their mu^2 add up to it, never to more.

    Parameters
    ----------
    mu : float
        Positive, possibly infinite.
    shares : int or sequence of float
        A number of equal shares, or positive weights of mu^2.

    Returns
    -------
    tuple of float
        ``mu sqrt(w_i / sum w)``, each rounded down: a ledger whose limit is `mu` accepts them all.

    Raises
    ------
    ArgumentError
        If `mu` or a weight is not positive, or there are none.

    Examples
    --------
    >>> split_mu(1.0, 4)
    (0.5, 0.5, 0.5, 0.5)
    """
    mu = check_positive(mu, "mu", infinite=True)
    if isinstance(shares, Sequence):
        weights = [exact(check_positive(weight, "shares")) for weight in shares]
        if not weights:
            raise ArgumentError("shares must hold at least one weight")
    else:
        weights = [exact(1.0)] * check_count(shares, "shares")
    if math.isinf(mu):
        return (math.inf,) * len(weights)
    whole = sum(weights)
    return tuple(sqrt_down(exact(mu) ** 2 * weight / whole) for weight in weights)
