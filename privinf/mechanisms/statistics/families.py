r"""Per-record residuals and curvatures of generalised linear models, and how far a score can reach.

A record's score is ``u r``, u = w x with w = min(1, R^2/||x||^2), so that ||u|| <= R, and
r = y - mean(x'theta) clipped at a public E. Clips on y, on the Poisson mean and on r are public; weights
depend on x alone, so that a correctly specified mean keeps its coefficients.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Literal

import numpy as np
from scipy.special import expit

from privinf.errors import ArgumentError
from privinf.mechanisms.statistics.block import Args, SiteBlock, clip_norms, clipped, positive, vector
from privinf.typing import Family, Floats
from privinf.validation import check_choice

Curvature = Literal["exact", "bound"]

GLM_ARGS = ("center", "scale", "bits", "family", "theta", "radius", "residual_clip", "mean_cap")
# max over z of z expit(-z), rounded up, and a point below where it is attained.
HIGHEST_PRODUCT, PRODUCT_PEAK = 0.2784646, 1.2784
ANGLES = 721


def check_glm(args: Args, columns: int) -> float:
    """Check what every statistic of a model takes, and return the bound of its residuals.

    Raises
    ------
    ArgumentError
        The family is unknown, or theta, radius or a clip is missing or out of range.
    """
    family = check_choice(args.get("family"), Family, "family")
    vector(args, "theta", columns)
    positive(args, "radius")
    if ("mean_cap" in args) != (family == "poisson"):
        raise ArgumentError("mean_cap belongs to family='poisson', and is needed there")
    if ("residual_clip" in args) != (family != "binomial"):
        raise ArgumentError("residual_clip belongs to the families 'gaussian' and 'poisson', needed there")
    if family == "poisson":
        positive(args, "mean_cap")
    return 1.0 if family == "binomial" else positive(args, "residual_clip")


def weighted(x: Floats, radius: float, unit: float = 0.0) -> Floats:
    """Return min(1, R^2/||x||^2) x, rows of norm at most R once rounded to `unit`; x is left alone."""
    squares = np.einsum("ij,ij->i", x, x)
    with np.errstate(over="ignore"):
        u = x * np.minimum(1.0, radius**2 / np.maximum(squares, radius**2))[:, None]
    return clip_norms(u, radius, unit)


def residuals(block: SiteBlock, x: Floats, args: Args) -> Floats:
    """Return the clipped residuals at theta, shape (rows,)."""
    y = block.outcome()
    r, bound = _raw(y, x, args)
    return clipped(r, bound)


def curvatures(block: SiteBlock, x: Floats, args: Args) -> tuple[Floats, float]:
    """Return minus the derivative of the residuals in x'theta, shape (rows,), and its largest value.

    Under ``curvature="bound"`` the clips are not differentiated: a bound from above.
    """
    eta = np.nan_to_num(x @ np.asarray(args["theta"], dtype=np.float64))
    exact = args.get("curvature", "exact") == "exact"
    if args["family"] == "binomial":
        mean = expit(eta)
        return mean * (1.0 - mean), 0.25
    if args["family"] == "poisson":
        top = float(args["mean_cap"])
        slope, most = np.exp(np.minimum(eta, math.log(top))), top
        if exact:
            slope[eta >= math.log(top)] = 0.0
    else:
        slope, most = np.ones(len(eta)), 1.0
    if exact:
        y = block.outcome()
        r, bound = _raw(y, x, args)
        slope[np.abs(r) >= bound] = 0.0
    return np.minimum(slope, most), most


def _raw(y: Floats, x: Floats, args: Args) -> tuple[Floats, float]:
    """Return residuals before their clip, and the clip."""
    eta = np.nan_to_num(x @ np.asarray(args["theta"], dtype=np.float64))
    if args["family"] == "binomial":
        return np.clip(y, 0.0, 1.0) - expit(eta), 1.0
    if args["family"] == "poisson":
        cap = float(args["mean_cap"])
        return y - np.minimum(np.exp(np.minimum(eta, math.log(cap))), cap), float(args["residual_clip"])
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
    t R cos a <= 1.278, else .2785 / (t cos a); rows longer than R do not pass it (see `longest_score`).
    Its diameter is the largest distance of two points (m cos a, m sin a), (m' cos a', -m' sin a'), found on a
    grid of angles; m and its derivative are at most R and t R^2 / 4, which bounds what lies between.
    """
    radius = float(args["radius"])
    if args["family"] != "binomial":
        return 2.0 * radius * bound
    return radius * _unit_diameter(_steepness(args))


@lru_cache(maxsize=64)
def _unit_diameter(reach: float) -> float:
    """Return the diameter at R = 1 for t R = `reach`."""
    angles = np.linspace(0.0, math.pi, ANGLES)
    slant = reach * np.cos(angles)
    ahead = HIGHEST_PRODUCT / np.maximum(slant, PRODUCT_PEAK)
    lengths = np.where(slant <= PRODUCT_PEAK, expit(-slant), ahead)
    along, beside = lengths * np.cos(angles), lengths * np.sin(angles)
    distance2 = (along[:, None] - along) ** 2 + (beside[:, None] + beside) ** 2
    between = (1.0 + reach / 4.0) * (math.pi / (ANGLES - 1))
    return min(2.0, math.sqrt(float(distance2.max())) + between)
