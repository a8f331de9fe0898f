"""Damped Newton iterations on an estimating equation that need not be a gradient."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from privinf.typing import Floats
from privinf.validation import check_positive

NEWTON_STEPS = 60  # Newton steps, by default
TOLERANCE = 1e-10  # largest entry of a step, relative to 1 + the largest coefficient, that has converged
_HALVINGS = 12  # of a step, before the search for a shorter one ends without a root
_RUNAWAY = 1e4  # coefficients larger than this, relative to 1 + the start, are taken to be infinite

NO_ROOT = (
    "no root of the corrected score was found, which happens if the noise is too strong or columns "
    "separate the levels: use score_test() and conf_int(method='score'), a ridge, or less noise"
)
SEPARATED = (
    "the coefficients go to infinity: the columns separate the levels, or the noise leaves no solution; use "
    "a ridge"
)
SLOW = "Newton's method did not converge within {steps} steps"


class Equation(Protocol):
    """A mean score with its derivative."""

    def score_and_jacobian(self, theta: Floats) -> tuple[Floats, Floats]:
        """Return the mean score and minus its derivative."""


@dataclass(frozen=True, slots=True)
class NewtonPath:
    """Outcome of one run: last point, steps taken, size of the last step, and why it stopped if it failed."""

    point: Floats
    iterations: int
    step: float
    reason: str


@np.errstate(over="ignore", invalid="ignore")  # steps that overflow are halved
def newton(
    equation: Equation, start: Floats, *, max_steps: int = NEWTON_STEPS, tolerance: float = TOLERANCE
) -> NewtonPath:
    """Return the path of damped Newton steps on an equation.

    Parameters
    ----------
    equation : Equation
    start : (p,) array
    max_steps : int
    tolerance : float
        Largest entry of the last step, relative to ``1 + max abs(theta)``.

    Raises
    ------
    ArgumentError
        If the tolerance is not positive.

    Notes
    -----
    **Privacy.** Post-processing.
    """
    check_positive(tolerance, "tolerance")
    point = np.array(start, dtype=np.float64)
    state = _finite(equation, point)
    if state is None:
        return NewtonPath(point, 0, np.inf, NO_ROOT)
    length = np.inf
    for iteration in range(1, max_steps + 1):
        score, slope = state
        solver = _solver(slope)
        if solver is None:
            return NewtonPath(point, iteration, length, SEPARATED)
        step = solver(score)
        length = float(np.abs(step).max())
        if length <= tolerance * (1.0 + float(np.abs(point).max())):
            return NewtonPath(point + step, iteration, length, "")
        moved = _damped(equation, point, step, solver)
        if moved is None:
            return NewtonPath(point, iteration, length, NO_ROOT)
        point, state = moved
        if np.abs(point).max() > _RUNAWAY * (1.0 + np.abs(start).max()):
            return NewtonPath(point, iteration, length, SEPARATED)
    return NewtonPath(point, max_steps, length, SLOW.format(steps=max_steps))


def has_stable_bread(bread: Floats) -> bool:
    """Whether all eigenvalues of a bread have positive real part: positive definite where it is symmetric."""
    if not np.isfinite(bread).all():
        return False
    scale = np.sqrt(np.maximum(np.abs(np.diag(bread)), np.finfo(float).tiny))
    values = np.linalg.eigvals(bread / np.outer(scale, scale)).real
    return bool(values.min() > 1e-10 * np.abs(values).max())


def _finite(equation: Equation, point: Floats) -> tuple[Floats, Floats] | None:
    with np.errstate(over="ignore", invalid="ignore"):
        score, slope = equation.score_and_jacobian(point)
    return (score, slope) if np.isfinite(score).all() and np.isfinite(slope).all() else None


def _solver(slope: Floats) -> Callable[[Floats], Floats] | None:
    """Return the solution map of the bread, shifted until it is positive definite; None if it vanishes."""
    scale = np.sqrt(np.maximum(np.abs(np.diag(slope)), np.finfo(float).tiny))
    scaled = slope / np.outer(scale, scale)
    if not np.isfinite(scaled).all() or np.abs(slope).max() < 1e-14:
        return None
    smallest = float(np.linalg.eigvalsh((scaled + scaled.T) / 2)[0])
    if smallest < 1e-10 and not has_stable_bread(slope):
        scaled = scaled + (0.1 - smallest) * np.eye(len(scaled))

    def solve(vector: Floats) -> Floats:
        return np.asarray(np.linalg.solve(scaled, vector / scale) / scale, dtype=np.float64)

    return solve


def _damped(
    equation: Equation, point: Floats, step: Floats, solver: Callable[[Floats], Floats]
) -> tuple[Floats, tuple[Floats, Floats]] | None:
    """Return the first halving of a step after which the next one would be shorter, with its state."""
    length = float(np.linalg.norm(step))
    fraction = 1.0
    for _ in range(_HALVINGS):
        trial = point + fraction * step
        state = _finite(equation, trial)
        if state is not None:
            remaining = float(np.linalg.norm(solver(state[0])))
            if remaining <= (1.0 - fraction / 4.0) * length or length < 1e-8 * (1.0 + np.abs(point).max()):
                return trial, state
        fraction /= 2.0
    return None
