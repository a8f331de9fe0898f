"""From a promised level of privacy to the mu that a release may spend; floats as exact rationals for it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

import numpy as np
from scipy.special import gammaln, log_expit

from privinf.accounting.conversions import gaussian_mu
from privinf.accounting.losses import check_cost
from privinf.error_boundary import error_boundary
from privinf.errors import ArgumentError
from privinf.typing import Calibration, Floats, Integers
from privinf.validation import check_choice, check_count, check_delta, check_fraction, check_positive

MAX_ATOMS = 100_000  # losses of a sum of responses that are worked out exactly
MAX_EVENTS = 10_000  # different responses in one sum; more would take seconds


def exact(value: float) -> Fraction:
    """Return the decimal that a float prints as, exactly.

    A user who writes 0.1 three times means 0.3; the binary values 3 x 0.1 and 0.3 differ in the last bit, and
    a closed limit would refuse the third spend. The printed decimal is within half a unit of the last place.
    """
    return Fraction(repr(float(value)))


def float_down(value: Fraction) -> float:
    """Return the largest float (near enough) whose decimal does not exceed `value`."""
    number = float(value)
    while exact(number) > value:
        number = math.nextafter(number, -math.inf)
    return number


def sqrt_down(value: Fraction) -> float:
    """Return the largest float (near enough) whose square does not exceed `value` >= 0, exactly."""
    number = math.sqrt(value)
    while exact(number) ** 2 > value:
        number = math.nextafter(number, 0.0)
    return number


@lru_cache(maxsize=16)
def binary_losses(epsilons: tuple[float, ...]) -> tuple[Floats, Floats]:
    """Return the distribution of the summed privacy loss of randomized responses.

    Parameters
    ----------
    epsilons : tuple of float
        One finite epsilon a response.

    Returns
    -------
    losses, probabilities : ndarray, shape (atoms,)
        Read-only. Exact if all epsilons are equal or at most `MAX_ATOMS` atoms arise; beyond that on a grid,
        from above.
    """
    values, counts = np.unique(np.asarray(epsilons, dtype=np.float64), return_counts=True)
    if len(values) <= 1 or math.prod(int(count) + 1 for count in counts) <= MAX_ATOMS:
        losses, masses = _product(values, counts)
    else:
        losses, masses = _lattice(values, counts)
    losses.setflags(write=False)
    masses.setflags(write=False)
    return losses, masses


def binary_rounding(epsilons: tuple[float, ...]) -> tuple[float, float]:
    """Return bounds of the rounding error of `binary_losses`: of a loss, and relative of a mass.

    A loss is a sum of as many products as there are distinct epsilons; a mass is the exponential of terms up
    to the largest log-gamma, or a product over all responses on the grid, and is added to all others.
    """
    values, counts = np.unique(np.asarray(epsilons, dtype=np.float64), return_counts=True)
    slip = (2.0 * len(values) + 2.0) * math.ulp(math.fsum(epsilons))
    logs = 1.0 + gammaln(counts + 1.0) + np.minimum(counts * values, 800.0)  # beyond 800 a mass is 0
    atoms = min(float(np.prod(counts + 1.0)), 4.0 * MAX_ATOMS)
    return slip, 2.0**-53 * (atoms + 8.0 * len(epsilons) + 16.0 * float(logs.sum()))


def sum_up(values: Sequence[float]) -> float:
    """Return the smallest float that is at least the exact sum of floats."""
    total = sum(map(Fraction, values), start=Fraction(0))
    number = float(total)
    return number if Fraction(number) >= total else math.nextafter(number, math.inf)


def is_tractable(epsilons: tuple[float, ...]) -> bool:
    """Return whether `binary_losses` is worth computing (thousands of distinct responses take seconds)."""
    return len(epsilons) <= MAX_EVENTS or len(set(epsilons)) == 1


def _product(values: Floats, counts: Integers) -> tuple[Floats, Floats]:
    """Every combination: k responses of one epsilon e have loss (2j - k) e with a binomial j."""
    losses: Floats = np.zeros(1)
    masses: Floats = np.ones(1)
    for value, count in zip(values, counts, strict=True):
        j = np.arange(count + 1.0)
        log_choose = gammaln(count + 1.0) - gammaln(j + 1.0) - gammaln(count - j + 1.0)
        log_mass = log_choose + j * log_expit(value) + (count - j) * log_expit(-value)
        losses = np.ravel(losses[:, None] + (2.0 * j - count) * value)
        masses = np.ravel(masses[:, None] * np.exp(log_mass))
    return losses, masses


def _lattice(values: Floats, counts: Integers) -> tuple[Floats, Floats]:
    """Convolve on a grid of step h, dominating each response by a lottery between its two grid neighbors.

    Randomized response with g <= e <= g + h is dominated by: with probability w response at g, else at g + h,
    where w keeps the average truth probability. (Both privacy curves are linear in e^eps between -g and g
    and coincide there; the lottery's is the chord of the other, which is convex, between g and g + h.)
    The excess is of second order in h.
    """
    step = 2.0 * float(values @ counts) / MAX_ATOMS
    mass = np.ones(1)
    for value, count in zip(values, counts, strict=True):
        cells = math.floor(value / step)
        below = cells * step
        above = (cells + 1) * step
        weight = math.expm1(value - above) / math.expm1(below - above)
        weight = min(1.0, weight * math.exp(log_expit(-value) - log_expit(-below)))
        for _ in range(count):
            mass = _respond(mass, cells, weight, step)
    half = (mass.size - 1) // 2
    return np.arange(-half, half + 1, dtype=np.float64) * step, mass


def _respond(mass: Floats, cells: int, weight: float, step: float) -> Floats:
    widest = cells + 1
    result = np.zeros(mass.size + 2 * widest)
    for size, share in ((cells, weight), (widest, 1.0 - weight)):
        for sign in (-1, 1):
            start = widest + sign * size
            result[start : start + mass.size] += share * math.exp(log_expit(sign * size * step)) * mass
    return result


@error_boundary
def classic_mu(epsilon: float, delta: float) -> float:
    """Return the mu of the noise by the textbook formula, sigma = L sqrt(2 ln(1.25/delta)) / epsilon.

    Parameters
    ----------
    epsilon : float
        Stated epsilon and delta of the guarantee, positive and finite.
    delta : float
        In (0, 1).

    Returns
    -------
    float
        mu in Gaussian differential privacy.

    Raises
    ------
    ArgumentError
        Raised if an argument is out of range.

    Notes
    -----
    For reproduction only. The textbook formula is proved for epsilon < 1. For such an epsilon, the noise of
    the formula is always larger than necessary. For large epsilon (above about 8.4 for delta = 1e-5) the
    release does **not** have the stated guarantee. The exact guarantee of the noise is
    ``gaussian_epsilon(classic_mu(epsilon, delta), delta)``; report this epsilon.
    """
    epsilon = check_positive(epsilon, "epsilon")
    return epsilon / math.sqrt(2.0 * math.log(1.25 / check_fraction(delta, "delta")))


@error_boundary
def calibrate_mu(
    *,
    epsilon: float | None = None,
    mu: float | None = None,
    rho: float | None = None,
    delta: float | None = None,
    calibration: Calibration = "exact",
) -> float:
    """Return mu, the ratio of sensitivity to noise, for a budget in (epsilon, delta), mu or rho.

    Parameters
    ----------
    epsilon : float, optional
        Epsilon of the (epsilon, delta) guarantee. Infinity means no noise.
    mu : float, optional
        Budget in Gaussian differential privacy, which is returned unchanged.
    rho : float, optional
        Budget in zero-concentrated differential privacy (zCDP). For a budget in rho the result is mu = sqrt(2
        rho).
    delta : float, optional
        Delta of the (epsilon, delta) guarantee, in (0, 1), required with a finite `epsilon`. With `mu` or
        `rho`, delta does not affect the result, because it is only the delta of later reports.
    calibration : {"exact", "classic"}
        How mu is computed from `epsilon` and `delta`. The choice "exact" solves the exact equation for
        Gaussian noise. The choice "classic" is the textbook formula; use it only to reproduce published
        results.

    Returns
    -------
    float
        The value of mu, positive and possibly infinite.

    Raises
    ------
    ArgumentError
        Raised if no budget or several budgets are passed, the budget is not positive, or a required delta is
        missing.

    Examples
    --------
    >>> from privinf.accounting import calibrate_mu
    >>> round(calibrate_mu(epsilon=1.0, delta=1e-6), 4), round(calibrate_mu(rho=0.5), 4)
    (0.2367, 1.0)
    """
    check_choice(calibration, Calibration, "calibration")
    names = [name for name, level in (("epsilon", epsilon), ("mu", mu), ("rho", rho)) if level is not None]
    if len(names) != 1:
        raise ArgumentError(f"pass exactly one of epsilon, mu and rho, got {' and '.join(names) or 'none'}")
    if delta is not None and epsilon is None:
        check_fraction(delta, "delta")
    if epsilon is None and calibration == "classic":
        raise ArgumentError(
            "calibration='classic' is a formula for epsilon and delta; pass epsilon= and delta="
        )
    if mu is not None:
        return check_cost(check_positive(mu, "mu", infinite=True), "mu")
    if rho is not None:
        return math.sqrt(2.0 * check_cost(check_positive(rho, "rho", infinite=True), "rho"))
    epsilon = check_cost(check_positive(epsilon, "epsilon", infinite=True), "epsilon")
    if math.isinf(epsilon):
        if delta is not None:
            check_fraction(delta, "delta")
        return math.inf
    delta = check_delta(delta)
    return gaussian_mu(epsilon, delta) if calibration == "exact" else classic_mu(epsilon, delta)


@error_boundary
def split_mu(mu: float, shares: int | Sequence[float]) -> tuple[float, ...]:
    """Split a budget mu over several Gaussian releases, so that their mu^2 add up to at most mu^2.

    Parameters
    ----------
    mu : float
        The value of mu, positive and possibly infinite.
    shares : int or sequence of float
        Number of equal shares, or a sequence of positive weights of mu^2.

    Returns
    -------
    tuple of float
        Values of mu for the releases, ``mu sqrt(w_i / sum w)``. They are rounded down, so that a ledger with
        the limit `mu` accepts all releases.

    Raises
    ------
    ArgumentError
        Raised if `mu` or a weight is not positive, or if `shares` is empty.

    Examples
    --------
    >>> from privinf.accounting import split_mu
    >>> split_mu(1.0, 4)
    (0.5, 0.5, 0.5, 0.5)
    """
    mu = check_positive(mu, "mu", infinite=True)
    if isinstance(shares, Sequence):
        weights = [exact(check_positive(weight, "shares")) for weight in shares]
        if not weights:
            raise ArgumentError("shares= must have at least one share")
    else:
        weights = [exact(1.0)] * check_count(shares, "shares")
    if math.isinf(mu):
        return (math.inf,) * len(weights)
    total = sum(weights)
    return tuple(sqrt_down(exact(mu) ** 2 * weight / total) for weight in weights)
