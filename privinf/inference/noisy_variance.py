"""Variances estimated from noisy sums: which of them the noise hides, and prediction intervals from them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy.special import ndtri

from privinf.inference.estimate import upper_quantile
from privinf.validation import check_fraction

# A variance estimate of fewer sds of its noise is hidden. Above it, an estimate below half of the true
# variance needs noise below -2 sds, whatever the sd: a probability of at most 0.023.
HIDDEN_SDS = 2.0


def is_hidden(variance: float, noise: float) -> bool:
    """Return whether the estimate of a variance is negative or indistinguishable from its noise (an sd)."""
    return variance < 0.0 or (noise > 0.0 and variance < HIDDEN_SDS * noise)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisyVariance:
    """Variance of single observations with normal noise of known sd.

    Attributes
    ----------
    estimate : float
        Noise may make it negative.
    noise : float
        Sd of the noise.
    df : float
        Degrees of freedom of its sampling error; infinite for none.

    Notes
    -----
    With the estimate s2 = S + d Z, d the sd of the noise, a half-length ``z sqrt(s2)`` has the average
    coverage ``E f(s2/S)``, ``f(x) = 2 Phi(z sqrt(x)) - 1``. To second order that is ``1 - alpha`` if d^2/S
    times ``-f''(1)/(2 f'(1)) = (1 + z^2)/4`` is added to s2. `limit` adds it at s2 >= 2 d.

    **Privacy.** Post-processing.
    """

    estimate: float
    noise: float = 0.0
    df: float = math.inf

    def half_length(self, alpha: float) -> float:
        """Return the half-length of an interval of level ``1 - alpha`` for an observation of known mean."""
        return float(upper_quantile(alpha / 2.0, self.df)) * math.sqrt(self.limit(alpha))

    def limit(self, alpha: float) -> float:
        """Return the variance for intervals of new observations of level ``1 - alpha``."""
        z2 = float(ndtri(check_fraction(alpha, "alpha") / 2.0)) ** 2
        visible = max(self.estimate, HIDDEN_SDS * self.noise)
        return visible if self.noise == 0.0 else visible + (1.0 + z2) / 4.0 * self.noise**2 / visible

    def interval(self, z: float, fourth: float = 0.0) -> tuple[float, float]:
        """Return the S >= 0 with ``(estimate - S)^2 <= z^2 (noise^2 + fourth S)``: the smallest and largest.

        `fourth` times S is at least the sampling variance of the estimate. The estimate may be negative; the
        largest is then that of an estimate of 0.
        """
        curve = z**2 * fourth / 2.0

        def half(estimate: float) -> float:
            return math.sqrt(max(curve**2 + 2.0 * curve * estimate + (z * self.noise) ** 2, 0.0))

        low = max(self.estimate + curve - half(self.estimate), 0.0)
        largest = max(self.estimate, 0.0)
        return low, largest + curve + half(largest)

    @property
    def sd(self) -> float:
        """Sd of single observations, not below the limit that the noise leaves."""
        return math.sqrt(max(self.estimate, HIDDEN_SDS * self.noise))


@dataclass(frozen=True, slots=True, kw_only=True)
class StandardizedMean:
    """A mean, or a difference of means, over a standard deviation: Cohen's d.

    Attributes
    ----------
    mean, sd : float
        The estimate and its standard error, from sampling and noise.
    variance : NoisyVariance
        Variance of the values, whose root is the divisor.
    fourth : float
        This times the variance is at least the sampling variance of `variance`.
    covariance : float
        Covariance of the noise of the mean with that of the variance.

    Notes
    -----
    With M the mean and s the divisor, ``M - d s`` has mean 0 at the true d and, to first order (the delta
    method), the variance ``sd^2 - d covariance / s + d^2 v / (4 s^2)``, v that of `variance`. The interval
    is the set of d that are not rejected (Fieller), which has infinite ends where the noise hides s. The
    sampling covariance of mean and variance, which is 0 for symmetric values, is neglected.

    **Privacy.** Post-processing.
    """

    mean: float
    sd: float
    variance: NoisyVariance
    fourth: float
    covariance: float

    @property
    def estimate(self) -> float:
        """The ratio; nan where the noise hides the divisor."""
        if self.variance.estimate <= 0.0 or is_hidden(self.variance.estimate, self.variance.noise):
            return math.nan
        return self.mean / math.sqrt(self.variance.estimate)

    def interval(self, quantile: float) -> tuple[float, float]:
        """Return the ends of the set of d at this quantile; infinite where it is not bounded."""
        if math.isnan(self.estimate):
            return -math.inf, math.inf
        v = self.variance.estimate
        of_divisor = (self.variance.noise**2 + self.fourth * v) / (4.0 * v)
        square = v - quantile**2 * of_divisor
        half_linear = self.mean * math.sqrt(v) - quantile**2 * self.covariance / (2.0 * math.sqrt(v))
        constant = self.mean**2 - quantile**2 * self.sd**2
        root = half_linear**2 - square * constant
        if square <= 0.0 or root < 0.0:
            return -math.inf, math.inf
        return (half_linear - math.sqrt(root)) / square, (half_linear + math.sqrt(root)) / square
