"""The lasso from second moments: coordinate descent, ended by an exact solve on the active set."""

from __future__ import annotations

import numpy as np

from privinf.errors import ConvergenceError
from privinf.typing import Floats, Integers

TOLERANCE = 1e-10  # of the optimality conditions, relative to the largest cross moment
_ROUNDS = 500  # of the active set, and of the residual scale
_SWEEPS = 50  # over all coordinates in a round


def lasso(
    gram: Floats,
    cross: Floats,
    penalty: float,
    *,
    without: int | None = None,
    start: Floats | None = None,
) -> Floats:
    r"""Return the minimiser of ``b'Gb/2 - c'b + penalty ||b||_1``, shape (p,).

    Parameters
    ----------
    gram : ndarray, shape (p, p)
        G = X'X/n.
    cross : ndarray, shape (p,)
        c = X'y/n.
    penalty : float
        At least 0; with 0, G must be regular on the features that enter.
    without : int, optional
        A feature that is left out: its coefficient is 0.
    start : ndarray, shape (p,), optional
        Where to begin; the answer does not depend on it.

    Raises
    ------
    ConvergenceError
        The optimality conditions were not met to 1e-10 (relative).

    Examples
    --------
    >>> lasso(np.eye(3), np.array([1.0, -0.3, 0.1]), 0.2).round(12).tolist()
    [0.8, -0.1, 0.0]
    """
    b = np.zeros(len(cross)) if start is None else start.copy()
    slope = cross - gram @ b
    tolerance = TOLERANCE * max(float(np.abs(cross).max()), penalty)
    free = np.ones(len(cross), dtype=bool)
    if without is not None:
        free[without] = False
    for _ in range(_ROUNDS):
        working = np.flatnonzero(free & ((b != 0.0) | (np.abs(slope) > penalty)))
        _descend(gram[np.ix_(working, working)], b, slope, penalty, working, tolerance)
        active = np.flatnonzero(b)
        _polish(gram, cross, b, penalty, active)
        slope = cross - gram[:, active] @ b[active]
        if _violation(b, slope, penalty, free) <= tolerance:
            return b
    raise ConvergenceError(f"the lasso at penalty {penalty:.3g} did not converge: raise the penalty")


def scaled_lasso(
    gram: Floats, cross: Floats, square: float, level: float, *, without: int | None = None
) -> tuple[Floats, float]:
    """Return (b, sd of the residuals): a lasso with penalty ``level * sd``, the two found together.

    Parameters
    ----------
    square : float
        Mean of y^2.
    level : float
        Such as sqrt(2 log(p) / n).

    References
    ----------
    Sun and Zhang (2012), "Scaled sparse linear regression".
    """
    scale = square**0.5
    b = np.zeros(len(cross))
    for _ in range(_ROUNDS):
        b = lasso(gram, cross, level * scale, without=without, start=b)
        active = np.flatnonzero(b)
        fitted = 2.0 * cross[active] - gram[np.ix_(active, active)] @ b[active]
        new = max(square - float(b[active] @ fitted), 0.0) ** 0.5
        if abs(new - scale) <= 1e-8 * square**0.5:
            return b, new
        scale = new
    raise ConvergenceError("the residual scale of the lasso did not settle: pass a penalty")


def _descend(
    gram: Floats, b: Floats, slope: Floats, penalty: float, working: Integers, tolerance: float
) -> None:
    """Cycle through the coordinates `working` of b, in place; `gram` is theirs."""
    x = b[working]
    g = slope[working]
    curvature = np.diag(gram).copy()
    for _ in range(_SWEEPS):
        largest = 0.0
        for k in range(len(x)):
            pull = g[k] + curvature[k] * x[k]
            new = np.sign(pull) * max(abs(pull) - penalty, 0.0) / curvature[k]
            if new != x[k]:
                step = new - x[k]
                g -= gram[k] * step
                x[k] = new
                largest = max(largest, abs(step) * curvature[k])
        if largest <= tolerance:
            break
    b[working] = x


def _polish(gram: Floats, cross: Floats, b: Floats, penalty: float, active: Integers) -> None:
    """Solve for the active coefficients, in place, if that leaves their signs."""
    sign = np.sign(b[active])
    try:
        exact = np.linalg.solve(gram[np.ix_(active, active)], cross[active] - penalty * sign)
    except np.linalg.LinAlgError:
        return
    if (np.sign(exact) == sign).all():
        b[active] = exact


def _violation(
    b: Floats, slope: Floats, penalty: float, free: np.ndarray[tuple[int], np.dtype[np.bool_]]
) -> float:
    """Return by how much the optimality conditions fail."""
    at_zero = np.maximum(np.abs(slope) - penalty, 0.0)
    return float(np.where(b == 0.0, at_zero, np.abs(slope - penalty * np.sign(b)))[free].max(initial=0.0))
