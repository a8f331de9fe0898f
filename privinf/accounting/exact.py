"""Floats as exact rationals, rounded back in the safe direction; the exact law of summed binary losses."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

import numpy as np
from scipy.special import gammaln, log_expit

from privinf.typing import Floats, Integers

MAX_ATOMS = 100_000
MAX_EVENTS = 10_000


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


def is_tractable(epsilons: tuple[float, ...]) -> bool:
    """Say whether `binary_losses` should be asked at all (thousands of distinct responses take seconds)."""
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
    """Convolve on a grid of step h, dominating each response by a lottery between its two grid neighbours.

    Randomized response with g <= e <= g + h is dominated by: with probability w response at g, else at g + h,
    where w keeps the average truth probability. (Both privacy curves are linear in e^eps between -g and g
    and coincide there; the lottery's is the chord of the other, which is convex, between g and g + h.)
    The excess is of second order in h.
    """
    step = 2.0 * float(values @ counts) / MAX_ATOMS
    mass = np.ones(1)
    for value, count in zip(values, counts, strict=True):
        cells = math.floor(value / step)
        below, above = cells * step, (cells + 1) * step
        weight = math.expm1(value - above) / math.expm1(below - above)
        weight = min(1.0, weight * math.exp(log_expit(-value) - log_expit(-below)))
        for _ in range(count):
            mass = _respond(mass, cells, weight, step)
    half = (mass.size - 1) // 2
    return np.arange(-half, half + 1, dtype=np.float64) * step, mass


def _respond(mass: Floats, cells: int, weight: float, step: float) -> Floats:
    reach = cells + 1
    result = np.zeros(mass.size + 2 * reach)
    for size, share in ((cells, weight), (reach, 1.0 - weight)):
        for sign in (-1, 1):
            start = reach + sign * size
            result[start : start + mass.size] += share * math.exp(log_expit(sign * size * step)) * mass
    return result
