r"""Per-record residuals and curvatures of generalized linear models, and bounds of scores.

A record's score is ``u r``, u = w x with w = min(1, R^2/||x||^2), so that ||u|| <= R, and
r = y - mean(x'theta) clipped at a public E. Clips on y, on the Poisson mean and on r are public; weights
depend on x alone, so that a correctly specified mean keeps its coefficients.

**Means by tables.** Exact sums need means that are the same on every machine, which no exponential function
promises. So there are two tables of integers, in units of 2^-40, made by arithmetic of integers alone:
1/(1 + e^z) at z = 0, h, 2 h, ..., 32, h = 2^-10, and e^z on [0, 1]; between their places means are
interpolated by one product and one sum. Chords of f are off by h^2 max|f''| / 8 at most: a logistic mean by
2^-26.4 (1.2e-8, f'' <= 0.0963), an exponential one by 1.2e-7 of itself; in addition to 2^-41 of rounding. A
logistic mean beyond 32 is that at 32, an exponential one has its argument in [-64, 60].
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import accumulate
from typing import Any, Literal

import numpy as np
from scipy.special import expit

from privinf.errors import ArgumentError
from privinf.mechanisms.statistics.block import Args, SiteBlock, clipped, positive, vector
from privinf.typing import Family, Floats
from privinf.validation import check_choice

Curvature = Literal["exact", "bound"]

# Arguments of every statistic of these models.
GLM_ARGS = ("center", "scale", "bits", "family", "theta", "radius", "residual_clip", "mean_cap")
HIGHEST_PRODUCT = 0.2784646  # max over z of z expit(-z), rounded up
PRODUCT_PEAK = 1.2784  # a point below where that is attained
ANGLES = 721  # at which the diameter of a logistic score is computed; values between are bounded
PLACES = 1 << 10  # of a table of means in a unit of the predictor: 1 / h
TABLE_END = 32  # predictor where the logistic table ends
TABLE_BITS = 40  # binary digits of a table's numbers after the point
WORK_BITS = 256  # of the integers from which they are made
TABLE_UNIT = 2.0**-TABLE_BITS  # of a table's numbers
SMALLEST_PREDICTOR = -64  # of an exponential mean
LARGEST_PREDICTOR = 60  # of an exponential mean


def check_glm(args: Args, columns: int) -> float:
    """Check the common arguments of a model's statistics, and return the bound of its residuals.

    Raises
    ------
    ArgumentError
        The family is unknown, or theta, radius or a clip is missing or out of range.
    """
    family = check_choice(args.get("family"), Family, "family")
    vector(args, "theta", columns)
    positive(args, "radius")
    if ("mean_cap" in args) != (family == "poisson"):
        raise ArgumentError(
            "argument 'mean_cap' of the statistic (largest mean) must be passed with "
            "family='poisson', and with no other family"
        )
    if ("residual_clip" in args) != (family != "binomial"):
        raise ArgumentError(
            "argument 'residual_clip' of the statistic (largest residual) must be passed with "
            "family='gaussian' or 'poisson', and with no other family"
        )
    if family == "poisson":
        positive(args, "mean_cap")
    return 1.0 if family == "binomial" else positive(args, "residual_clip")


@lru_cache(maxsize=1)
def _logistic_table() -> tuple[Floats, Floats]:
    """Return 1/(1 + e^z) at z = 0, h, ..., 32, in units of 2^-40, and its steps."""
    unit = 1 << WORK_BITS
    step = _exponential(-1)
    power = unit
    entries = []
    for _ in range(TABLE_END * PLACES + 1):
        entries.append(((power << TABLE_BITS + 1) // (unit + power) + 1) >> 1)
        power = power * step >> WORK_BITS
    values = np.array(entries, dtype=np.float64)
    return values, np.append(np.diff(values), 0.0)


@lru_cache(maxsize=1)
def _exponential_table() -> tuple[Floats, Floats, Floats]:
    """Return e^z at z = 0, h, ..., 1 in units of 2^-40, its steps, and e^-64, ..., e^64 as doubles."""
    unit = 1 << WORK_BITS
    step = _exponential(1)
    places = list(accumulate(range(PLACES), lambda power, _: power * step >> WORK_BITS, initial=unit))
    near = [((power >> WORK_BITS - TABLE_BITS - 1) + 1) >> 1 for power in places]
    values = np.array(near, dtype=np.float64)
    ends = range(-SMALLEST_PREDICTOR)
    whole_powers = list(accumulate(ends, lambda power, _: power * places[-1] >> WORK_BITS, initial=unit))
    powers = [*(unit / power for power in whole_powers[:0:-1]), *(power / unit for power in whole_powers)]
    return values, np.append(np.diff(values), 0.0), np.array(powers)


@lru_cache(maxsize=2)
def _exponential(sign: int) -> int:
    """Return e^h or e^-h in units of 2^-256."""
    total = term = 1 << WORK_BITS
    for k in range(1, 40):
        term = sign * term // (k * PLACES)
        total += term
    return total


def logistic(eta: Floats, *, exact: bool) -> Floats:
    """Return 1/(1 + e^|eta|); by the table where sums are exact."""
    size: Floats = np.abs(eta)
    if not exact:
        return np.asarray(expit(-size))
    place: Floats = np.minimum(size * PLACES, TABLE_END * PLACES)
    floor = np.floor(place)
    place -= floor
    place = between(_logistic_table(), floor.astype(np.intp), place)
    return np.multiply(place, TABLE_UNIT, out=place)


def exponential(eta: Floats, *, exact: bool) -> Floats:
    """Return e^eta, eta at most 60; by the table where sums are exact."""
    if not exact:
        return np.asarray(np.exp(np.minimum(eta, LARGEST_PREDICTOR)))
    values, steps, powers = _exponential_table()
    place: Floats = np.clip(eta, SMALLEST_PREDICTOR, LARGEST_PREDICTOR) * PLACES
    floor = np.floor(place)
    place -= floor
    whole_part = np.floor(floor * (1.0 / PLACES))
    floor -= whole_part * PLACES
    place = between((values, steps), floor.astype(np.intp), place)
    place *= at_places(powers, (whole_part - SMALLEST_PREDICTOR).astype(np.intp))
    return np.multiply(place, TABLE_UNIT, out=place)


def at_places(table: Floats, index: Any) -> Floats:
    """Return the numbers of a table at some places; a query has its own kind of look-up."""
    return table.take(index) if isinstance(index, np.ndarray) else index.looked_up(table)


def between(table: tuple[Floats, Floats], index: Any, share: Floats) -> Floats:
    """Return value + share x step at some places of a table, in place."""
    values, steps = table
    if not isinstance(index, np.ndarray):
        between: Floats = index.looked_up_between(values, steps, share)
        return between
    share *= steps.take(index)
    share += values.take(index)
    return share


def residuals(block: SiteBlock, eta: Floats, args: Args, *, exact: bool) -> Floats:
    """Return the clipped residuals at the linear predictors, shape (rows,)."""
    return clipped(*_raw(block.outcome(), eta, args, exact=exact))


def curvatures(block: SiteBlock, eta: Floats, args: Args, *, exact: bool) -> Floats:
    """Return minus the derivative of the residuals in the predictors, shape (rows,), at most `steepest`.

    Under ``curvature="bound"`` the clips are not differentiated: a bound from above.
    """
    cut = args.get("curvature", "exact") == "exact"
    if args["family"] == "binomial":
        tail = logistic(eta, exact=exact)
        return tail * (1.0 - tail)
    if args["family"] == "poisson":
        top = float(args["mean_cap"])
        slope = exponential(np.minimum(eta, math.log(top)), exact=exact)
        if cut:
            slope[eta >= math.log(top)] = 0.0
    else:
        slope = np.ones_like(eta)
    if cut:
        r, bound = _raw(block.outcome(), eta, args, exact=exact)
        slope[np.abs(r) >= bound] = 0.0
    return np.minimum(slope, steepest(args))


def steepest(args: Args) -> float:
    """Return the largest curvature."""
    return {"gaussian": 1.0, "binomial": 0.25}.get(args["family"]) or float(args["mean_cap"])


def _raw(y: Floats, eta: Floats, args: Args, *, exact: bool) -> tuple[Floats, float]:
    """Return residuals before their clip, and the clip."""
    if args["family"] == "binomial":
        tail = logistic(eta, exact=exact)
        return np.clip(y, 0.0, 1.0) - np.where(eta < 0.0, tail, 1.0 - tail), 1.0
    if args["family"] == "poisson":
        cap = float(args["mean_cap"])
        mean = exponential(np.minimum(eta, math.log(cap)), exact=exact)
        return y - np.minimum(mean, cap), float(args["residual_clip"])
    return y - eta, float(args["residual_clip"])


def longest_score(args: Args, bound: float) -> float:
    """Return the largest norm of a record's score at theta.

    R E; logistic: R expit(t R), t = ||theta||, the norm at a row of length R against theta. A longer row of
    length c R has u of length R/c, and (1/c) expit(t c R) falls with c.
    """
    radius = float(args["radius"])
    if args["family"] != "binomial":
        return radius * bound
    return radius * float(expit(_steepness(args)))


def _steepness(args: Args) -> float:
    """Return ||theta|| R; beyond 1e9, where a logistic curve is a step, no more than that."""
    with np.errstate(over="ignore"):
        size = float(np.linalg.norm(np.asarray(args["theta"], dtype=np.float64)))
    return min(size * float(args["radius"]), 1e9)


def score_diameter(args: Args, bound: float) -> float:
    r"""Return the largest distance of two records' scores at theta.

    2 R E. For the logistic model less: with y = 1 the score is u expit(-x'theta), with y = 0 it is the same
    at -x, so scores lie in the body of revolution about theta whose length at angle a from it is
    ``m(a) = max over l <= R of l expit(-t l cos a)``, t = ||theta||: R expit(-t R cos a) where
    t R cos a <= 1.278, else 0.2785 / (t cos a); rows longer than R do not pass it (see `longest_score`).
    Its diameter is the largest distance of two points (m cos a, m sin a), (m' cos a', -m' sin a'), found on a
    grid of angles; m and its derivative are at most R and t R^2 / 4, which bounds the values between.
    """
    radius = float(args["radius"])
    if args["family"] != "binomial":
        return 2.0 * radius * bound
    return radius * _unit_diameter(_steepness(args))


@lru_cache(maxsize=64)
def _unit_diameter(radius: float) -> float:
    """Return the diameter at R = 1 for t R = `radius`."""
    angles = np.linspace(0.0, math.pi, ANGLES)
    slant = radius * np.cos(angles)
    ahead = HIGHEST_PRODUCT / np.maximum(slant, PRODUCT_PEAK)
    lengths = np.where(slant <= PRODUCT_PEAK, expit(-slant), ahead)
    along = lengths * np.cos(angles)
    across = lengths * np.sin(angles)
    distance2 = (along[:, None] - along) ** 2 + (across[:, None] + across) ** 2
    between = (1.0 + radius / 4.0) * (math.pi / (ANGLES - 1))
    return min(2.0, math.sqrt(float(distance2.max())) + between)
