r"""Ratios and marginal effects of logistic and Poisson models, from the releases of their fits.

The effect of a column on the mean is c(eta) b_j, c the mean's derivative. At the columns' means it follows
from the coefficients and the means that the fit's first release holds. The average over the records needs
E c(eta), one more number: a record adds c at the estimate, at most C (1/4, or the largest count).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit

from privinf.errors import NotAvailableError
from privinf.glm.curved_sums import CurvedSums, Noisy
from privinf.glm.sums import Roles
from privinf.inference.estimate import Estimate
from privinf.inference.intervals import Precision
from privinf.schema import Design
from privinf.typing import Floats

SHARE = 0.1  # share of mu^2 for average effects, where they are requested
MARGINS_NOT_RELEASED = (
    "average marginal effects require fit(margins=True), which spends a tenth of the budget on them"
)
NO_CONSTANT = "marginal effects require a model with a constant"
NO_OFFSET = (
    "average marginal effects are not available for a logistic model with an offset, "
    "because their covariance with the coefficients is not released; get_margeff('mean') "
    "returns effects at the means and at offset 0, without further cost"
)
# Largest variance of a predictor, or width of a term, that is worked with: beyond it standard errors say
# nothing anyway.
LARGEST_VARIANCE = 20.0
CURVES, SPREAD = np.polynomial.hermite_e.hermegauss(41)
SPREAD = SPREAD / SPREAD.sum()  # made to add up to 1: probabilities at CURVES


@dataclass(frozen=True, slots=True, eq=False)
class Effects:
    """Marginal effects, how well they are known, and the names of the columns that they are of."""

    values: Floats
    precision: Precision
    names: tuple[str, ...]

    def table(self, alpha: float) -> pd.DataFrame:
        """Return them as statsmodels' ``summary_frame`` has them."""
        b = self.values
        precision = self.precision
        half = self.precision.half_length(alpha)
        columns = ["dy/dx", "Std. Err.", "z", "Pr(>|z|)", "Conf. Int. Low", "Cont. Int. Hi."]
        columns_of_table = [b, precision.se, z := b / precision.se, precision.pvalues(z), b - half, b + half]
        return pd.DataFrame(np.column_stack(columns_of_table), list(self.names), columns)


def average_curvature(sums: CurvedSums, theta: Floats) -> Noisy:
    """Release the mean of c at `theta`, for the rest of the budget."""
    top = 0.25 if sums.family == "binomial" else sums.response[1]
    if sums.constant is None:
        raise NotAvailableError(NO_CONSTANT)
    return sums.average(theta, top, SHARE)


def at_means(family: str, estimate: Estimate, second: Floats, constant: int) -> Effects:
    """Return the effects at the columns' means, which are taken as they were released.

    Parameters
    ----------
    family : {"binomial", "poisson"}
    estimate : Estimate
    second : ndarray, shape (p, p)
        Mean of x x', user units, of the first release.
    constant : int
    """
    mean = second[constant]
    c, slope, _ = (float(part[0]) for part in _curve(family, np.array([mean @ estimate.params])))
    return _effects(estimate, c, slope * mean, 0.0, constant)


def averaged(
    family: str, estimate: Estimate, second: Floats, constant: int, released: Sequence[float]
) -> Effects:
    """Return the average effects; `released` is E c, the sd of its noise, and `exposure_ratio`.

    How E c goes with b is taken from a normal predictor: E c'(eta) x = m E c' + S b E c'', m and S the
    columns' means and covariance. Of a Poisson model c' = c'' = c, whose mean is known, whatever else
    enters the predictor, if it is uncorrelated with the columns.
    """
    mean = second[constant]
    b = estimate.params
    spread = second - np.outer(mean, mean)
    variance = max(float(b @ spread @ b), 0.0)
    slope, noise, ratio = released
    if family == "poisson":
        moved = slope * (mean + spread @ b)
        sampling = slope**2 * (math.exp(min(variance, LARGEST_VARIANCE)) * ratio - 1.0) / estimate.nobs
    else:
        _, slopes, bends = _curve(family, mean @ b + math.sqrt(variance) * CURVES)
        moved = mean * float(SPREAD @ slopes) + spread @ b * float(SPREAD @ bends)
        # The variance of a number between 0 and C with mean c is at most c (C - c).
        sampling = max(slope * (0.25 - slope), 0.0) / estimate.nobs
    return _effects(estimate, slope, moved, noise**2 + sampling, constant)


def exposure_ratio(design: Design, roles: Roles) -> float:
    """Return how large E f^2 / (E f)^2 may be, f the exposure times exp of the offset, by their bounds.

    At most (l + h)^2 / (4 l h) for a number between l and h.
    """
    ratio = 1.0
    for name in (roles.exposure, roles.offset):
        if name is not None:
            at = design.names.index(name)
            low, high = float(design.low[at]), float(design.high[at])
            width = high - low if name == roles.offset else math.log(high / low)
            ratio *= math.cosh(min(width, LARGEST_VARIANCE) / 2.0) ** 2
    return ratio


def _curve(family: str, eta: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the mean's first three derivatives."""
    if family == "poisson":
        mean = np.exp(eta)
        return mean, mean, mean
    mean = expit(eta)
    c = mean * (1.0 - mean)
    return c, c * (1.0 - 2.0 * mean), c - 6.0 * c**2


def _effects(estimate: Estimate, c: float, moved: Floats, variance: float, constant: int) -> Effects:
    """Return c b without the constant, with c's derivative in b, its own variance, and the bias of b."""
    b = estimate.params
    jacobian = c * np.eye(len(b)) + np.outer(b, moved)
    covariance = jacobian @ estimate.covariance @ jacobian.T + variance * np.outer(b, b)
    is_slope = np.arange(len(b)) != constant
    names = tuple(name for name, keep in zip(estimate.names, is_slope, strict=True) if keep)
    se = np.sqrt(np.diag(covariance))[is_slope]
    # A bias goes with the length of a form's influence, as its standard error does.
    bias = None if estimate.bias is None else float((estimate.bias / estimate.bse).max()) * se
    return Effects((c * b)[is_slope], Precision(se, bias=bias), names)


def recorded_moments(second: Floats, to_user: Floats) -> list[list[Any]]:
    """Return second moments of columns in user units, from scaled ones; params_user = T params_scaled."""
    inverse = np.linalg.inv(to_user)
    return [[float(value) for value in row] for row in inverse.T @ second @ inverse]
