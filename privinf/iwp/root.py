"""Roots of an estimating function: damped Newton iterations from several starts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from privinf.errors import ArgumentError
from privinf.iwp.equation import ExampleScores
from privinf.iwp.newton import STEPS, has_stable_bread, newton
from privinf.iwp.start import regression_calibration
from privinf.typing import Floats
from privinf.validation import check_array, check_count

UNSTABLE = (
    "the root found is no minimum: the derivative of the score is not positive definite there, so no "
    "covariance follows: columns are collinear, or the noise leaves too little signal; use score_test() and "
    "conf_int(method='score'), or a smaller noise"
)


@dataclass(frozen=True, slots=True)
class Root:
    """Where an estimating function vanishes, or the best that was reached.

    Attributes
    ----------
    params : (p,) array
        The root; where `converged` is False the point with the smallest remaining Newton step.
    converged : bool
        Whether the score vanishes there and its derivative is positive definite.
    iterations : int
        Newton steps from the start that led there.
    reason : str
        Why it has not converged; empty otherwise.
    tried : int
        Starts that were tried.
    start : (p,) array
        The first start.
    """

    params: Floats
    converged: bool
    iterations: int
    reason: str
    tried: int
    start: Floats


def solve_root(system: ExampleScores, *, start: ArrayLike | None = None, max_steps: int = STEPS) -> Root:
    r"""Solve ``mean psi(theta) = 0``.

    Parameters
    ----------
    system : ExampleScores
    start : (p,) array, optional
        Default: regression calibration.
    max_steps : int, default 60
        Newton steps from each start.

    Returns
    -------
    Root
        Never raises for a system without a root: `converged` is then False and `reason` says why.

    Raises
    ------
    ArgumentError
        For a start of the wrong length.

    Notes
    -----
    Damped Newton: a step is halved until the next one, in the metric of the present derivative, would be
    shorter (Deuflhard's natural monotonicity); where the derivative is not positive definite it is
    shifted until it is. A corrected score can have several roots, of which the consistent one has a
    positive definite derivative and lies near a consistent start: the first such root from regression
    calibration is taken. If there is none, the naive estimate, zero and multiples of the start are
    tried, and the positive definite root nearest the start is taken.

    **Privacy.** Post-processing.

    References
    ----------
    Deuflhard, P. (2011), Newton Methods for Nonlinear Problems, section 3.3; Stefanski, L. A. and Carroll,
    R. J. (1987), Biometrika 74, 703-716 (multiple roots).

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-1, 1, (200_000, 1))
    >>> codes = rng.random(200_000) < 1 / (1 + np.exp(-2 * x[:, 0]))
    >>> noisy = x + 0.5 * rng.standard_normal(x.shape)
    >>> root = solve_root(ExampleScores(noisy, codes, [0.25], loss="logistic", correction="conditional"))
    >>> root.converged, root.params.round(1)
    (True, array([2.]))
    """
    check_count(max_steps, "max_steps")
    first = regression_calibration(system) if start is None else check_array(start, "start", ndim=1)
    if first.shape != (system.p,):
        raise ArgumentError(f"start must have {system.p} values, got {first.shape[0]}")
    paths = []
    for tried, point in enumerate(_starts(system, first), start=1):
        path = newton(system, point, max_steps=max_steps)
        if not path.reason and has_stable_bread(system.jacobian(path.point)):
            if tried == 1:
                return Root(path.point, True, path.iterations, "", 1, first)
            paths.append((path, True))
        else:
            paths.append((path, False))
    stable = [path for path, good in paths if good]
    if stable:
        best = min(stable, key=lambda path: float(np.linalg.norm(path.point - first)))
        return Root(best.point, True, best.iterations, "", len(paths), first)
    found = [path for path, _ in paths if not path.reason]
    if found:
        best = min(found, key=lambda path: float(np.linalg.norm(path.point - first)))
        return Root(best.point, False, best.iterations, UNSTABLE, len(paths), first)
    best = min((path for path, _ in paths), key=lambda path: path.step)
    return Root(best.point, False, best.iterations, paths[0][0].reason, len(paths), first)


def _starts(system: ExampleScores, first: Floats) -> list[Floats]:
    return [first, np.zeros_like(first), 0.5 * first, 1.5 * first]
