"""Single-pass projected stochastic gradient descent (paper 4, Algorithm 1), averaged on request."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from privinf.errors import ArgumentError, ConvergenceError
from privinf.typing import Floats, Integers
from privinf.validation import check_array, check_count, check_fraction, check_number, check_positive

Gradient = Callable[[Floats, slice], Floats]

BATCH = 128  # records per step, by default
AVERAGED_DECAY = 0.6  # power a of step sizes t^-a where iterates are averaged, by default


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SGDPath:
    """One pass of stochastic gradient descent.

    Attributes
    ----------
    last : (p,) array
        The last iterate.
    average : (p,) array or None
        Mean of the iterates after the burn-in; None where it was not requested.
    averaged : int
        Records behind the iterates of the average.
    steps : int
        Batches.
    projected : int
        Steps of the second half of the pass that ended outside the ball and were projected.
    skipped : int
        Steps left out because their gradient was not finite.
    iterates : (m, p) array
        Stored iterates, the start first.
    batches : (m,) array
        Number of batches before each of them.
    """

    last: Floats
    average: Floats | None
    averaged: int
    steps: int
    projected: int
    skipped: int
    iterates: Floats
    batches: Integers

    @property
    def params(self) -> Floats:
        """The average where there is one, else the last iterate."""
        return self.last if self.average is None else self.average


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Batches and steps of one pass.

    Attributes
    ----------
    batch : int
        Records a step; the last batch may be shorter.
    step, decay : float
        The t-th step is ``step t^-decay``, t = 1, 2, ...
    average : bool
        Average the iterates (Polyak and Ruppert).
    burn_in : float
        Share of the batches whose iterates the average leaves out; the last one stays.
    """

    batch: int
    step: float
    decay: float
    average: bool = False
    burn_in: float = 0.0

    @classmethod
    def checked(
        cls,
        *,
        step: float,
        batch: int = BATCH,
        decay: float | None = None,
        average: bool = False,
        burn_in: float = 0.0,
    ) -> Schedule:
        """Check the options, and fill in the decay: 0, the paper's constant step, or 0.6 with averaging.

        Raises
        ------
        ArgumentError
            An option is out of range, or belongs to averaging and there is none.
        """
        power = default_decay(average) if decay is None else check_number(decay, "decay", low=0.0, high=1.0)
        if average and not 0.5 < power < 1.0:
            raise ArgumentError(
                f"decay={power:g} is not valid: averaged iterates need steps proportional to t^-decay "
                "with decay greater than 0.5 and less than 1"
            )
        if burn_in != 0.0:
            check_fraction(burn_in, "burn_in")
            if not average:
                raise ArgumentError(
                    "burn_in= excludes the first iterates from the average, so it needs average=True"
                )
        return cls(
            batch=check_count(batch, "batch"),
            step=check_positive(step, "step"),
            decay=power,
            average=average,
            burn_in=burn_in,
        )

    def sizes(self, steps: int) -> list[float]:
        """Return the first `steps` step sizes."""
        sizes: list[float] = (self.step * np.arange(1.0, steps + 1.0) ** -self.decay).tolist()
        return sizes


def default_decay(average: bool) -> float:
    """Return the default decay of the steps, for an average or a last iterate."""
    return AVERAGED_DECAY if average else 0.0


def sgd(
    gradient: Gradient,
    n: int,
    start: ArrayLike,
    schedule: Schedule,
    *,
    theta_radius: float | None,
    keep: int = 0,
) -> SGDPath:
    r"""Run one pass of projected stochastic gradient descent over n records.

    Parameters
    ----------
    gradient : function
        From (theta, slice of records) to the mean gradient over these records, shape (p,).
    n : int
        Number of records; each is used once, in their order.
    start : (p,) array
        Projected where it lies outside the ball.
    schedule : Schedule
    theta_radius : float
        Radius of the ball that holds the iterates. None, or an infinite one, is refused: the gradients of
        exponential corrections grow without bound.
    keep : int
        Keep about this many iterates along the pass, for a picture of it; 0: the start and the last.

    Raises
    ------
    ArgumentError
        For an unbounded ball or an argument out of range.

    Notes
    -----
    .. math:: \theta_t = \Pi(\theta_{t-1} - \gamma_t \, g_t(\theta_{t-1})), \quad \|\theta\| \le r

    (Algorithm 1 of the paper). A gradient that is not finite leaves the iterate where it is, and is counted.

    **Privacy.** Post-processing.

    References
    ----------
    Polyak, B. T. and Juditsky, A. B. (1992), SIAM Journal on Control and Optimization 30, 838-855.

    Examples
    --------
    >>> rows = np.random.default_rng(0).standard_normal((10_000, 2)) + [1.0, 2.0]
    >>> path = sgd(lambda theta, part: theta - rows[part].mean(axis=0), 10_000, [0.0, 0.0],
    ...            Schedule.checked(step=0.5, average=True, burn_in=0.2), theta_radius=10.0)
    >>> path.average.round(1), path.steps
    (array([1., 2.]), 79)
    """
    radius = checked_radius(theta_radius)
    batch = schedule.batch
    steps = -(-check_count(n, "n") // schedule.batch)
    burnt = min(math.ceil(schedule.burn_in * steps), steps - 1)
    late = steps // 2
    theta, _ = _projected(np.array(check_array(start, "start", ndim=1)), radius)
    marks = np.linspace(0, steps, min(check_count(keep, "keep", least=0), steps) + 1).round().astype(int)
    saved_steps = {*marks.tolist()[1:], steps}
    iterates = [theta]
    total = np.zeros_like(theta)
    outside = 0
    skipped = 0
    with np.errstate(over="ignore", invalid="ignore"):
        for t, size in enumerate(schedule.sizes(steps), start=1):
            moved = theta - size * gradient(theta, slice((t - 1) * batch, min(t * batch, n)))
            if np.isfinite(moved).all():
                theta, cut = _projected(moved, radius)
                outside += cut and t > late
            else:
                skipped += 1
            if schedule.average and t > burnt:
                total += theta
            if t in saved_steps:
                iterates.append(theta)
    return SGDPath(
        last=theta,
        average=total / (steps - burnt) if schedule.average else None,
        averaged=n - burnt * batch if schedule.average else 0,
        steps=steps,
        projected=outside,
        skipped=skipped,
        iterates=np.array(iterates),
        batches=np.array([0, *sorted(saved_steps)], dtype=np.int64),
    )


def theory_step(
    bread: Floats, meat: Floats, *, n: int, batch: int, theta_radius: float | None, decay: float = 0.0
) -> float:
    r"""Return the step that the paper's theory chooses for one pass over n records.

    Parameters
    ----------
    bread : (p, p) array
        Mean derivative of the gradient; its eigenvalues bound the curvature.
    meat : (p, p) array
        Covariance of one record's gradient.
    n, batch : int
    theta_radius : float
        Proxy for the distance of the start from the optimum.
    decay : float
        Steps fall like t^-decay; the sum of all steps stays the same.

    Raises
    ------
    ConvergenceError
        The bread is not positive definite: there is no curvature to go by, so `step` must be given.

    Notes
    -----
    With m and L the extreme eigenvalues of the bread, T batches and A the trace of the meat over the batch,

    .. math:: \gamma = \frac{1}{m T} \log\max\left(2, \frac{m^2 r^2 T}{A}\right),
              \quad \gamma \le \frac{1}{2 L}

    (appendix D.8 of the paper, where T counts records and A is bounded by theorem 5.3).

    **Privacy.** Post-processing.

    Examples
    --------
    >>> round(theory_step(np.eye(2), np.eye(2), n=128_000, batch=128, theta_radius=1.0), 4)
    0.0111
    """
    radius = checked_radius(theta_radius)
    values = np.linalg.eigvalsh((bread + bread.T) / 2)
    lowest = float(values[0])
    highest = float(values[-1])
    if not lowest > 0.0:
        raise ConvergenceError(
            "step= is needed, because the corrected loss has no positive curvature at the starting "
            "values: pass a step size"
        )
    steps = -(-n // batch)
    spread = max(float(np.trace(meat)) / batch, np.finfo(float).tiny)
    constant = math.log(max(2.0, lowest**2 * radius**2 * steps / spread)) / (lowest * steps)
    powers = float(np.mean(np.arange(1.0, steps + 1.0) ** -decay))
    return min(constant / powers, 1.0 / (2.0 * highest))


def checked_radius(theta_radius: float | None) -> float:
    """Return the radius of the ball of coefficients; ArgumentError unless it is finite and positive."""
    if theta_radius is None or math.isinf(theta_radius):
        raise ArgumentError(
            "theta_radius= is needed: stochastic gradient descent keeps the coefficients (in "
            "scaled units) within a ball of this radius. Pass a finite positive number"
        )
    return check_positive(theta_radius, "theta_radius")


def _projected(theta: Floats, radius: float) -> tuple[Floats, bool]:
    norm = math.sqrt(float(theta @ theta))
    return (theta, False) if norm <= radius else (theta * (radius / norm), True)
