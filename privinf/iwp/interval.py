"""Score intervals for single coefficients: the score test inverted by profiling, numerically."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from privinf.errors import ArgumentError, ConvergenceError, NotAvailableError, NotPositiveDefiniteError
from privinf.inference.linear_scores import CHI_SQUARE
from privinf.inference.score_sets import ScoreSet
from privinf.iwp.equation import ExampleScores
from privinf.iwp.root import Root
from privinf.iwp.score_test import NullPoint, null_point, parameters_under_test
from privinf.typing import Flags, Floats
from privinf.validation import check_count, check_fraction, check_positive

_STEPS = 12  # of Newton's method on T, for each value of the profiled coefficient
_HALVINGS = 6  # of such a step, before the search ends
_DECREASE = 1e-3  # expected decrease of T below which the search ends: critical values are 2.7 and more
_FAR = 5.0  # T over its critical value beyond which no more of the set is sought
_GROWTH = 1.5  # factor by which the distance from the center grows
_LEVERAGE = 0.25  # `NullPoint` whose leverage is larger is outside the region where T is trusted

EMPTY = (
    "the score interval is empty, because the score test rejects all coefficients near the "
    "estimate: the model may not hold, or the normal approximation may be poor"
)


def score_interval(
    system: ExampleScores, root: Root, column: int, *, alpha: float = 0.05, max_distance: float = 100.0
) -> ScoreSet:
    r"""Return a confidence interval for one coefficient that needs no invertible bread.

    Parameters
    ----------
    system : ExampleScores
    root : Root
        Of the system; it need not have converged.
    column : int
        The parameter, 0..p - 1.
    alpha : float, default 0.05
    max_distance : float, default 100
        Largest distance of an end from the estimate, in the system's units; beyond it ends are infinite.

    Returns
    -------
    ScoreSet
        One piece; its ends may be infinite.

    Raises
    ------
    ArgumentError
        For alpha outside (0, 1) or a column that does not exist.
    NotAvailableError
        For scores that are biased at the truth; where the set is empty around the estimate.

    Notes
    -----
    The set of b_j is ``{b_j : min over the other tested parameters of T(b) <= chi2_{k, 1-alpha}}``: the
    projection of the joint score set, hence conservative for one coefficient and valid simultaneously. The
    profile is followed outwards from the estimate in growing steps, each minimum started from the last
    one, until it exceeds five times the critical value; the hull of the set is returned. The
    score of a nonlinear loss fades far from the truth, where a few records dominate it (leverage above 1/4)
    and the test has no power: a side that is still inside there, or at `max_distance`, is infinite.

    Minima by Gauss-Newton steps on T itself, the change of the meat included; nuisance parameters as in
    `score_test`. Some hundred passes over the records for each coefficient.

    **Privacy.** Post-processing.

    References
    ----------
    Dufour, J.-M. and Taamouti, M. (2005), Econometrica 73, 1351-1365; Hansen, Heaton and Yaron (1996),
    Journal of Business & Economic Statistics 14, 262-280 (continuous updating).

    Examples
    --------
    >>> from privinf.iwp.root import solve_root
    >>> rng = np.random.default_rng(1)
    >>> x = rng.uniform(-1, 1, (20_000, 1))
    >>> codes = rng.random(20_000) < 1 / (1 + np.exp(-2 * x[:, 0]))
    >>> noisy = x + 0.5 * rng.standard_normal(x.shape)
    >>> system = ExampleScores(noisy, codes, [0.25], loss="logistic", correction="conditional")
    >>> low, high = score_interval(system, solve_root(system), 0).hull
    >>> 1.8 < low < 2.0 < high < 2.2
    True
    """
    check_fraction(alpha, "alpha")
    check_positive(max_distance, "max_distance")
    if check_count(column, "column", least=0) >= system.p:
        raise ArgumentError(f"column= must be an index from 0 to {system.p - 1}")
    is_column = np.arange(system.p) == column
    under_test = parameters_under_test(system, is_column | ~system.noise_free)
    df = int(under_test.sum())
    profile = _Profile(system, under_test, int(under_test[:column].sum()), CHI_SQUARE.critical(df, alpha))
    center, unit = profile.center(root.params)
    low, high = (profile.end(center, side * unit, max_distance) for side in (-1.0, 1.0))
    return ScoreSet(((low, high),), 1.0 - alpha, df)


@dataclass(frozen=True, slots=True)
class _Profile:
    """The statistic T as a function of one parameter, the other tested ones minimized out.

    Attributes
    ----------
    system : ExampleScores
    under_test : (p,) bool array
        Tested parameters.
    coordinate : int
        Position of the profiled one among them.
    critical : float
    """

    system: ExampleScores
    under_test: Flags
    coordinate: int
    critical: float

    def center(self, theta: Floats) -> tuple[NullPoint, float]:
        """Return the point of least T near an estimate, or near zero, and half a Wald half-width."""
        for start in (theta, np.zeros_like(theta)):
            best = self._minimized(start, np.ones(int(self.under_test.sum()), dtype=np.bool_))
            if best is not None and best.statistic(self.system.n) <= self.critical:
                curvature = self._curvature(best)[1] / 2.0
                spread = float(np.linalg.pinv(curvature, hermitian=True)[self.coordinate, self.coordinate])
                unit = 0.5 * math.sqrt(self.critical * max(spread, 0.0))
                return best, unit if unit > 0.0 else 1.0
        raise NotAvailableError(EMPTY)

    def end(self, center: NullPoint, unit: float, max_distance: float) -> float:
        """Return the end of the set on the side of `unit`, infinite if there is none."""
        origin = float(center.theta[self.under_test][self.coordinate])
        point = center
        inside = (0.0, center)
        outside = 0.0
        distance = 1.0
        while distance * abs(unit) <= max_distance:
            moved = self._at(origin + distance * unit, point)
            if moved is None or self._leverage(moved) > _LEVERAGE:
                break
            point = moved
            statistic = moved.statistic(self.system.n)
            if statistic <= self.critical:
                inside = (distance, moved)
                outside = 0.0
            elif outside == 0.0:
                outside = distance
            if statistic > _FAR * self.critical:
                break
            distance *= _GROWTH
        if outside == 0.0:
            return math.copysign(math.inf, unit)
        return origin + unit * self._crossing(origin, unit, inside, outside)

    def _crossing(self, origin: float, unit: float, inside: tuple[float, NullPoint], outside: float) -> float:
        """Return the distance at which the profile crosses the critical value."""
        from scipy.optimize import brentq

        def excess(distance: float) -> float:
            moved = self._at(origin + distance * unit, inside[1]) if distance > inside[0] else inside[1]
            level = math.sqrt(self.critical)
            return level if moved is None else math.sqrt(moved.statistic(self.system.n)) - level

        if excess(outside) <= 0.0:
            return outside
        return float(brentq(excess, inside[0], outside, xtol=1e-3))

    def _at(self, value: float, near: NullPoint) -> NullPoint | None:
        """Return the least T at one value of the profiled parameter, sought from a near point."""
        theta = near.theta.copy()
        position = int(np.flatnonzero(self.under_test)[self.coordinate])
        theta[position] = value
        return self._minimized(theta, np.arange(int(self.under_test.sum())) != self.coordinate)

    def _minimized(self, theta: Floats, free: Flags) -> NullPoint | None:
        """Return the least T over the free parameters near theta; None where T is not defined there."""
        point = self._point(theta[self.under_test], theta)
        if point is None or not free.any():
            return point
        for _ in range(_STEPS):
            gradient, curvature = self._curvature(point)
            step = np.zeros(free.shape)
            step[free] = -np.linalg.lstsq(curvature[np.ix_(free, free)], gradient[free], rcond=None)[0]
            if -float(gradient @ step) < _DECREASE:
                break
            moved = self._search(point, step, -float(gradient @ step))
            if moved is None:
                break
            point = moved
        return point

    def _search(self, point: NullPoint, step: Floats, slope: float) -> NullPoint | None:
        """Return the first halving of a step that lowers T enough."""
        before = point.statistic(self.system.n)
        fraction = 1.0
        for _ in range(_HALVINGS):
            moved = self._point(point.theta[self.under_test] + fraction * step, point.theta)
            if moved is not None and moved.statistic(self.system.n) < before - 0.1 * fraction * slope:
                return moved
            fraction /= 2.0
        return None

    def _point(self, values: Floats, start: Floats) -> NullPoint | None:
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                return null_point(self.system, values, self.under_test, start=start)
        except (ConvergenceError, NotAvailableError, NotPositiveDefiniteError):
            return None

    def _curvature(self, point: NullPoint) -> tuple[Floats, Floats]:
        """Return the gradient of T and its Gauss-Newton Hessian, shapes (k,) and (k, k).

        Notes
        -----
        With w = Cov^-1 psi and c_i = w'psi_i the gradient is
        ``2 n (-J'w + mean (c_i - mean c) J_i'w)``: the second term is the change of the meat.
        """
        n = self.system.n
        w = np.linalg.solve(point.meat, point.score)
        influence = w @ point.projection
        pull = np.empty(n)
        for rows in self.system.blocks():
            pull[rows] = self.system.block_scores(point.theta, rows) @ influence
        pull -= pull.mean()
        change = influence @ self.system.weighted_jacobian(point.theta, pull) @ point.lift
        gradient = 2.0 * n * (change - w @ point.slope)
        curvature = 2.0 * n * point.slope.T @ np.linalg.solve(point.meat, point.slope)
        return gradient, curvature

    def _leverage(self, point: NullPoint) -> float:
        """Return the largest share of one record in the meat of all."""
        inverse = np.linalg.inv(point.meat) / self.system.n
        largest = 0.0
        for rows in self.system.blocks():
            influence = self.system.block_scores(point.theta, rows) @ point.projection.T
            largest = max(largest, float(np.einsum("ij,jk,ik->i", influence, inverse, influence).max()))
        return largest
