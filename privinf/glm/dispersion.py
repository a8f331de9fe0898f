r"""Dispersion of negative binomial counts: alpha in Var(y) = m + alpha m^2, from bounded functions of counts.

At a working dispersion a, a record has the value

.. math:: \psi(y, m) = r(m) [g(y) - c(m) y_K - E_a(g - c(m) y_K)],

where g is the part of the derivative of the log likelihood in alpha that depends on y alone,
``sum over j < y of j/(1 + a j)``, both g and y_K are constant beyond a count K, and
``c(m) = (d/dm) E g / (d/dm) E y_K`` makes psi orthogonal to the mean: an error of the coefficients changes
its expectation to second order only. Expectations are those of a negative binomial distribution with
dispersion a, so that the truncation at K leaves no bias; without it, psi is the likelihood's own derivative.
The weight r, of the mean alone, keeps psi between two ends, between which a record moves the sum. K
minimizes the variance of alpha with its noise.

The expectation of psi at another dispersion, D(alpha), is public up to the distribution of means: its size at
a, ``E dD/dalpha``, is released, and its bend is that for normal predictors. Then ``D(alpha) = mean psi`` is
solved. The mean's equation is ``sum x (y - m)/(1 + a m) = 0``, whose expectation is zero at any a: an error
of a changes neither the coefficients nor their variance to first order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from scipy.special import betainc, gammaln

from privinf.glm.curved_sums import CurvedSums
from privinf.inference.intervals import Precision
from privinf.typing import Floats
from privinf.wire import Labels

FIRST_ESTIMATE = 0.02  # share of mu^2 for the first estimate of alpha, after a round
FINAL = 0.05  # share of mu^2 for the estimate that is reported, at the estimated coefficients
SLOPE = 0.12  # part of such a share for the slope
MEAT = 0.15  # part of the last share for the variance of psi
FIRST_ALPHA = 1.0  # working dispersion before a release, and the mean of its prior
PRIOR_VARIANCE = 1.0  # of alpha, which shrinks a noisy first estimate
LARGEST_ALPHA = 20.0  # largest dispersion that is looked for
SMALLEST_ALPHA = 1e-3  # tables of smaller dispersions are those of this one, nearly a Poisson model's
TABLE_PIECES = 160  # pieces of the tables by the mean
MOST_CELLS = 4096  # cells of counts
# Ends K are at most this many times the bound of counts, so that means near it have cells for larger counts.
BEYOND = 4.0
TRIED_ENDS = 2.0 ** np.arange(-1.0, 7.1, 0.5)  # ends K that are tried, in units of the mean count
USUAL = 1.5  # sds of the predictor within which means have full weight
NORMAL_NODES, NORMAL_WEIGHTS = np.polynomial.hermite_e.hermegauss(15)
PROBABILITIES = NORMAL_WEIGHTS / NORMAL_WEIGHTS.sum()  # of the nodes
STEP = 1e-3  # of derivatives, relative to alpha or the mean
LARGEST_VARIANCE = 4.0  # of linear predictors, by noisy second moments
SMALLEST_END = 1e-9  # of psi and of its slope, where counts are nearly all 0
LEAST_SLOPE = 3.0  # sds of its noise that the slope must pass for an interval
GRID = 41  # dispersions at which D is stored


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispersion:
    """Estimate of alpha: the equation D(alpha) = psi, with the error of psi.

    Attributes
    ----------
    working : float
        a, at which psi was released.
    mean, sampling, noise : float
        Mean of psi, and the parts of its variance.
    slope : float
        Released derivative of D at a.
    alphas, expected : tuple of float
        D at some dispersions, increasing; in a straight line beyond them.
    error2 : float
        Mean square error of the predictors at which psi was released.
    identified : bool
        Whether the slope stands clear of its noise.
    """

    working: float
    mean: float
    sampling: float
    noise: float
    slope: float
    alphas: tuple[float, ...]
    expected: tuple[float, ...]
    error2: float = 0.0
    identified: bool = True

    @property
    def estimate(self) -> float:
        """Root of the equation; below 0 where counts vary less than a Poisson model allows."""
        return self._solved(self.mean)

    @property
    def value(self) -> float:
        """The estimate, 0 where it is negative."""
        return max(self.estimate, 0.0)

    @property
    def se(self) -> float:
        """Standard error of the estimate, to first order."""
        return math.sqrt(self.variance)

    @property
    def variance(self) -> float:
        """Variance of the estimate, to first order."""
        at = min(max(self.estimate, 0.0), self.alphas[-1])
        step = STEP * (1.0 + at)
        slope = (self._expected(at + step) - self._expected(at)) / step
        return (self.sampling + self.noise) / max(slope, 1e-300) ** 2

    def _expected(self, alpha: float) -> float:
        first, last = self.alphas[0], self.alphas[-1]
        if alpha < first:
            return self.expected[0] + (alpha - first) * self._end_slope(0, 1)
        if alpha > last:
            return self.expected[-1] + (alpha - last) * self._end_slope(-2, -1)
        return float(np.interp(alpha, self.alphas, self.expected))

    def _end_slope(self, low: int, high: int) -> float:
        rise = self.expected[high] - self.expected[low]
        return max(rise, 1e-300) / (self.alphas[high] - self.alphas[low])

    def _solved(self, value: float) -> float:
        """Return alpha with D(alpha) = `value`."""
        if value < self.expected[0]:
            return self.alphas[0] + (value - self.expected[0]) / self._end_slope(0, 1)
        if value > self.expected[-1]:
            return self.alphas[-1] + (value - self.expected[-1]) / self._end_slope(-2, -1)
        return float(np.interp(value, self.expected, self.alphas))

    def interval(self, alpha: float) -> tuple[float, float]:
        """Return the ends of the interval of level ``1 - alpha``, cut at 0.

        They solve the equation at the ends of the interval of psi's mean. Errors of the predictors add
        (1 + alpha) times their mean square to alpha, and the interval allows for it as a bias.
        """
        if not self.identified:
            return 0.0, math.inf
        bias = self.slope * (1.0 + self.value) * self.error2
        sd = np.array([math.sqrt(self.sampling + self.noise)])
        precision = Precision(sd, bias=np.array([bias]) if bias > 0.0 else None)
        half = float(precision.half_length(alpha)[0])
        low, high = (self._solved(self.mean + sign * half) for sign in (-1.0, 1.0))
        return max(low, 0.0), max(high, 0.0)

    def described(self) -> str:
        """Return value and 95% interval for a summary."""
        low, high = self.interval(0.05)
        return f"{self.value:.3g} [{low:.3g}, {high:.3g}]"

    def at_error(self, error2: float) -> Self:
        """Return the same where predictors have this mean square error."""
        return replace(self, error2=error2)

    def to_dict(self) -> dict[str, Any]:
        """Return the estimate as JSON takes it."""
        names = ("working", "mean", "sampling", "noise", "slope", "error2", "identified")
        lists = {"alphas": list(self.alphas), "expected": list(self.expected)}
        return {**{name: getattr(self, name) for name in names}, **lists}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """Rebuild the estimate from the result of `to_dict`."""
        return cls(
            working=float(record["working"]),
            mean=float(record["mean"]),
            sampling=float(record["sampling"]),
            noise=float(record["noise"]),
            slope=float(record["slope"]),
            alphas=tuple(map(float, record["alphas"])),
            expected=tuple(map(float, record["expected"])),
            error2=float(record["error2"]),
            identified=bool(record["identified"]),
        )


@dataclass(frozen=True, slots=True, eq=False)
class CountCells:
    """CountCells of counts, and the functions of them that make up psi.

    Attributes
    ----------
    width : float
        Whole number of counts in a cell.
    values : ndarray, shape (2, cells)
        g at a working dispersion, and y, at the middle of each cell.
    """

    width: float
    values: Floats

    @classmethod
    def up_to(cls, end: float, alpha: float) -> CountCells:
        """Return the cells of the counts up to `end`; the last one holds all larger counts."""
        width = max(math.ceil((end + 1.0) / MOST_CELLS), 1)
        count = max(math.ceil((end + 1.0) / width), 2)
        middles = width * np.arange(count) + (width - 1) / 2.0
        j = np.arange(math.ceil(middles[-1]) + 1)
        summed = np.concatenate([[0.0], np.cumsum(j / (1.0 + alpha * j))])
        return cls(float(width), np.vstack([np.interp(middles, np.arange(len(summed)), summed), middles]))

    def expected(self, means: Floats, alpha: float, values: Floats | None = None) -> Floats:
        """Return E of functions of the cell, shape (functions, means), by default g and y."""
        functions = self.values if values is None else values
        return np.asarray(functions @ self.chances(means, alpha).T)

    def chances(self, means: Floats, alpha: float) -> Floats:
        """Return the negative binomial probabilities of the cells, shape (means, cells)."""
        shape = 1.0 / max(alpha, SMALLEST_ALPHA)
        count = self.values.shape[1]
        if self.width > 1.0:
            starts = self.width * np.arange(1, count)
            above = betainc(starts, shape, (means / (shape + means))[:, None])
            edges = np.column_stack([np.ones(len(means)), above, np.zeros(len(means))])
            return np.asarray(-np.diff(edges, axis=1))
        k = np.arange(count - 1)
        logs = gammaln(k + shape) - gammaln(k + 1.0) - gammaln(shape)
        logs = logs + np.outer(np.log(means / (shape + means)), k) - shape * np.log1p(means / shape)[:, None]
        chances = np.exp(logs)
        return np.column_stack([chances, np.maximum(1.0 - chances.sum(axis=1), 0.0)])


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class DispersionEquation:
    """psi at a working dispersion, before its weight: values, shape (cells, means), and what they expect."""

    cells: CountCells
    means: Floats
    factors: Floats
    centers: Floats
    slopes: Floats
    variances: Floats
    lowest: Floats
    highest: Floats

    @classmethod
    def at(cls, cells: CountCells, means: Floats, alpha: float) -> DispersionEquation:
        """Return psi's parts at these positive means."""
        low, high = (cells.expected(means * factor, alpha) for factor in (1.0 - STEP, 1.0 + STEP))
        rise = high - low
        factors = np.divide(rise[0], rise[1], out=np.zeros(len(means)), where=rise[1] > 1e-12 * means)
        chances = cells.chances(means, alpha)
        expected = cells.values @ chances.T
        centers = expected[0] - factors * expected[1]
        psi = cells.values[0][:, None] - np.outer(cells.values[1], factors) - centers
        step = STEP * (1.0 + alpha)
        moved = cells.expected(means, alpha + step)
        slopes = (moved[0] - factors * moved[1] - centers) / step
        return cls(
            cells=cells,
            means=means,
            factors=factors,
            centers=centers,
            slopes=slopes,
            variances=np.sum(chances.T * psi**2, axis=0),
            lowest=psi.min(axis=0),
            highest=psi.max(axis=0),
        )

    def weights(self, low: float, high: float) -> Floats:
        """Return r, which keeps psi between the ends."""
        below = low / np.minimum(self.lowest, -1e-300)
        above = high / np.maximum(self.highest, 1e-300)
        return np.minimum(1.0, np.minimum(below, above))


def usual_means(sums: CurvedSums, theta: Floats, second: Floats) -> Floats:
    """Return means of records at `NORMAL_NODES`, if predictors are normal.

    Their average is the mean count at these coefficients, at the middle of an exposure or offset; without a
    constant it is the mean response of the first release, which bounds of the response make noisy.
    """
    constant = sums.constant
    variance = float(theta @ second @ theta)
    average = sums.mean_response
    if constant is not None:
        middle = float(second[constant] @ theta) / second[constant, constant]
        variance = variance / second[constant, constant] - middle**2
    sd = math.sqrt(min(max(variance, 0.0), LARGEST_VARIANCE))
    if constant is not None:
        least = 1.0 / sums.n
        average = math.exp(min(middle + sums.level + sd**2 / 2.0, math.log(max(sums.response[1], least))))
        average = max(average, least)
    return np.asarray(average * np.exp(sd * NORMAL_NODES - sd**2 / 2.0))


def best_cells(sums: CurvedSums, means: Floats, alpha: float, mu: float) -> tuple[CountCells, float, float]:
    """Return the cells, and the ends of psi, with the least variance of alpha."""
    high = BEYOND * (max(sums.response[1], 1.0) + 1.0)
    if math.isinf(mu):
        largest = max(MOST_CELLS - 1.0, float(TRIED_ENDS[-1] * PROBABILITIES @ means))
        return CountCells.up_to(min(high, largest), alpha), -math.inf, math.inf
    best: tuple[float, CountCells, float, float] | None = None
    usual = np.abs(NORMAL_NODES) <= USUAL
    average = float(PROBABILITIES @ means)
    for end in np.unique(np.clip(np.ceil(TRIED_ENDS * average), 2.0, high)):
        cells = CountCells.up_to(float(end), alpha)
        psi = DispersionEquation.at(cells, means, alpha)
        ends = float(psi.lowest[usual].min()), max(float(psi.highest[usual].max()), SMALLEST_END)
        r = psi.weights(*ends)
        slope = float(PROBABILITIES @ (r * psi.slopes))
        noise = ((ends[1] - ends[0]) / mu) ** 2 / sums.n
        sampling = float(PROBABILITIES @ (r**2 * psi.variances))
        variance = (sampling + noise) / slope**2 if slope > SMALLEST_END else math.inf
        if best is None or variance < best[0]:
            best = variance, cells, *ends
    assert best is not None
    return best[1:]


def estimate_dispersion(
    sums: CurvedSums, theta: Floats, second: Floats, share: float, *, last: bool
) -> Dispersion:
    """Release the equation of alpha at coefficients `theta`, and return its solution.

    The variance of psi is released with the `last` estimate; before, it is that of the model.
    """
    working = max(float(sums.alpha or 0.0), SMALLEST_ALPHA)
    meat = MEAT * share * last
    for_mean = share * (1.0 - SLOPE) - meat
    means = usual_means(sums, theta, second)
    cells, low, high = best_cells(sums, means, working, sums.price(for_mean))
    unit = float(PROBABILITIES @ means)
    places = np.clip(np.arange(TABLE_PIECES + 1) / TABLE_PIECES, 1e-6, 1.0 - 0.25 / TABLE_PIECES)
    psi = DispersionEquation.at(cells, unit * places / (1.0 - places), working)
    if math.isinf(sums.mu):
        low, high = 2.0 * float(psi.lowest.min()), max(2.0 * float(psi.highest.max()), SMALLEST_END)
    r = psi.weights(low, high)
    tables: dict[str, Any] = {
        "by_count": cells.values,
        "by_mean": np.vstack([r, r * psi.factors, r * psi.centers]),
        "width": cells.width,
        "mean_unit": unit,
        "low": low,
        "high": high,
    }
    slopes = r * psi.slopes
    flat = {"by_count": np.zeros((2, 1)), "by_mean": np.vstack([slopes * 0.0, slopes * 0.0, -slopes])}
    steepest = max(float(slopes.max()), SMALLEST_END)
    ends = {"width": 1.0, "low": min(float(slopes.min()), 0.0), "high": steepest}
    mean = sums.dispersion(theta, tables, Labels.DISPERSION, for_mean)
    slope = sums.dispersion(theta, tables | flat | ends, Labels.SLOPE_OF_DISPERSION, SLOPE * share)
    usual = DispersionEquation.at(cells, means, working)
    usual_weights = usual.weights(low, high)
    weighted = PROBABILITIES * usual_weights
    variance = float(weighted @ (usual_weights * usual.variances))
    if last:
        square = sums.dispersion_meat(theta, tables, meat or share)
        variance = max(float(square.mean[0]), square.sd)
    level = max(float(slope.mean[0]), slope.sd, 1e-300)
    alphas = _dispersions(working)
    curve = np.array([weighted @ _away(usual, alpha) for alpha in alphas])
    own = float(weighted @ usual.slopes)
    expected = np.maximum.accumulate(curve * (level / own))
    away = float(mean.mean[0])
    return Dispersion(
        working=working,
        mean=away,
        sampling=variance / sums.n,
        noise=mean.sd**2 + (away / level * slope.sd) ** 2,
        slope=level,
        alphas=tuple(alphas),
        expected=tuple(expected.tolist()),
        identified=float(slope.mean[0]) > LEAST_SLOPE * slope.sd,
    )


def _dispersions(working: float) -> list[float]:
    """Return the dispersions at which D is stored, a among them."""
    grid = np.expm1(np.linspace(0.0, math.log1p(LARGEST_ALPHA), GRID))
    return [float(alpha) for alpha in np.unique(np.append(np.maximum(grid, SMALLEST_ALPHA), working))]


def _away(psi: DispersionEquation, alpha: float) -> Floats:
    """Return E psi at another dispersion, at each mean."""
    expected = psi.cells.expected(psi.means, alpha)
    return np.asarray(expected[0] - psi.factors * expected[1] - psi.centers)


def working_alpha(first: Dispersion) -> float:
    """Return a from a noisy estimate, shrunk toward its prior, between 0 and `LARGEST_ALPHA`."""
    variance = first.variance
    shrunken = (first.estimate / variance + FIRST_ALPHA / PRIOR_VARIANCE) / (
        1.0 / variance + 1.0 / PRIOR_VARIANCE
    )
    return min(max(shrunken if first.identified else FIRST_ALPHA, 0.0), LARGEST_ALPHA)
