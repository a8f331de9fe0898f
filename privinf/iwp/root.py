"""Roots of an estimating function: where to start, and damped Newton iterations from several starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg

from privinf.errors import ArgumentError
from privinf.iwp.data import Examples
from privinf.iwp.engines import DERIVATIVES
from privinf.iwp.equation import Correction, ExampleScores
from privinf.iwp.newton import NEWTON_STEPS, has_stable_bread, newton
from privinf.iwp.transforms import choose_truncation, truncation_bias
from privinf.typing import Floats
from privinf.validation import check_array, check_count

_ROWS = 100_000  # rows that regression calibration uses at most: it only has to find a start
_RELIABILITY = 0.02  # least share of the calibrated features' variance that is taken to be signal
_STEPS = 15  # Newton steps of regression calibration


def regression_calibration(system: ExampleScores) -> Floats:
    r"""Return the regression-calibration estimate, a start for the corrected score.

    Returns
    -------
    (p,) array

    Notes
    -----
    The features as sent are replaced by the best linear guess of the clean ones,
    ``m + (C - V) C^-1 (x - m)`` with C the covariance of the (unbiased) released features and V that of
    their noise, reliabilities floored at 0.02; then the loss without feature noise is minimized, labels
    corrected. At most 100,000 evenly spaced records are used: the start need not be more accurate. The
    naive system starts from its own noisy features.

    **Privacy.** Post-processing.

    References
    ----------
    Carroll, Ruppert, Stefanski and Crainiceanu (2006), Measurement Error in Nonlinear Models, chapter 4.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-1, 1, (50_000, 1))
    >>> noisy = x + 0.5 * rng.standard_normal(x.shape)
    >>> system = ExampleScores(noisy, x[:, 0], [0.25], loss="squared", correction="exact")
    >>> regression_calibration(system).round(1)
    array([1.])
    """
    data = system.effective
    step = max(1, -(-data.n // _ROWS))
    X = _calibrated(data, data.X[::step])
    correction: Correction = "conditional" if system.loss in {"logistic", "multinomial"} else "exact"
    clean = ExampleScores(
        X,
        data.labels[::step],
        np.zeros(X.shape[1]),
        loss=system.loss,
        correction=correction,
        label=data.label,
        ridge=system.ridge,
        penalized=system.penalized,
    )
    path = newton(clean, np.zeros(system.p), max_steps=_STEPS, tolerance=1e-4)
    return path.point


def conditional_start(system: ExampleScores) -> Floats:
    """Return a start for the logistic score under Laplace noise, whose loss is not convex.

    Notes
    -----
    The root of the conditional score, as if the noise were Gaussian of the same variance; without one, the
    regression-calibration estimate.

    **Privacy.** Post-processing.
    """
    data = system.data
    calibrated = regression_calibration(system)
    normal = ExampleScores(
        data.X,
        data.labels,
        data.noise,
        loss=system.loss,
        correction="conditional",
        label=data.label,
        responses=data.responses,
        ridge=system.ridge,
        penalized=system.penalized,
    )
    path = newton(normal, calibrated)
    return calibrated if path.reason else path.point


def chosen_truncation(system: ExampleScores, *, candidates: Sequence[int] = (1, 2, 3)) -> int:
    r"""Return the truncation of the series that has the least bias at the regression-calibration estimate.

    Parameters
    ----------
    system : ExampleScores
        Quadratic, exponential or logistic, of any correction but the naive one.
    candidates : sequence of int, default (1, 2, 3)

    Raises
    ------
    ArgumentError
        For another loss.

    Notes
    -----
    The criterion of appendix D.7 at noise variance theta'S theta and clean linear predictors up to
    ``sum_j |theta_j|``, the largest for columns scaled to [-1, 1].

    **Privacy.** Post-processing.

    Examples
    --------
    >>> X = np.linspace(-1.0, 1.0, 100)[:, None]
    >>> chosen_truncation(ExampleScores(X, X[:, 0] > 0.2, [0.1], loss="quadratic", correction="exact"))
    1
    """
    if system.loss not in DERIVATIVES:
        raise ArgumentError(
            f"correction='series' can be used only with loss= one of {', '.join(DERIVATIVES)}, not "
            f"{system.loss!r}"
        )
    theta = regression_calibration(system)
    variance = float(theta**2 @ system.noise)
    bound = float(np.abs(theta).sum())
    if variance == 0.0:
        return min(candidates)
    return choose_truncation(DERIVATIVES[system.loss], variance, bound=bound, candidates=candidates)


def series_bias(system: ExampleScores, params: Floats) -> float:
    """Return the largest bias of the truncated loss at given coefficients, by the same criterion.

    Parameters
    ----------
    system : ExampleScores
        Of correction "series".
    params : (p,) array

    Raises
    ------
    ArgumentError
        For another correction.

    Notes
    -----
    **Privacy.** Post-processing.

    Examples
    --------
    >>> X = np.linspace(-1.0, 1.0, 100)[:, None]
    >>> one = ExampleScores(X, X[:, 0] > 0, [1.0], loss="logistic", correction="series", truncation=1)
    >>> 0.01 < series_bias(one, np.array([2.0])) < 0.1
    True
    """
    if system.truncation is None:
        raise ArgumentError("series_bias() needs an estimating equation with correction='series'")
    variance = float(params**2 @ system.noise)
    bound = float(np.abs(params).sum())
    if variance == 0.0:
        return 0.0
    return truncation_bias(DERIVATIVES[system.loss], variance, truncation=system.truncation, bound=bound)


def _calibrated(data: Examples, X: Floats) -> Floats:
    """Return the best linear guess of the clean features of some rows."""
    unbiased = np.array(X)
    variance = data.noise.copy()
    for response in data.responses:
        columns = list(response.columns)
        unbiased[:, columns] = response.unbiased(X)
        variance[columns] = response.variance
    if not variance.any():
        return unbiased
    mean = unbiased.mean(axis=0)
    centered = unbiased - mean
    covariance = centered.T @ centered / len(X)
    covariance += 1e-10 * float(np.diag(covariance).max()) * np.eye(len(mean))
    share, basis = linalg.eigh(np.diag(variance), covariance)
    share = np.minimum(share, 1.0 - _RELIABILITY)
    return np.asarray(
        mean + centered - ((centered @ basis) * share) @ (basis.T @ covariance), dtype=np.float64
    )


UNSTABLE = (
    "the solution is not a minimum, since columns are collinear or the noise leaves too little signal; use "
    "score_test() and conf_int(method='score'), or less noise"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Root:
    """Root of an estimating function, or the best iterate.

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


def solve_root(
    system: ExampleScores, *, start: ArrayLike | None = None, max_steps: int = NEWTON_STEPS
) -> Root:
    r"""Solve ``mean psi(theta) = 0``.

    Parameters
    ----------
    system : ExampleScores
    start : (p,) array, optional
        Default: regression calibration, or `conditional_start`.
    max_steps : int, default 60
        Newton steps from each start.

    Returns
    -------
    Root
        Never raises for a system without a root: `converged` is then False and `reason` states why.

    Raises
    ------
    ArgumentError
        For a start of the wrong length.

    Notes
    -----
    Damped Newton: a step is halved until the next one, in the metric of the present derivative, would be
    shorter (Deuflhard's natural monotonicity); where the derivative is not positive definite it is
    shifted until it is. A corrected score can have several roots, of which the consistent one has a
    positive definite derivative and is near a consistent start: the first such root from regression
    calibration (logistic loss under Laplace noise: from `conditional_start`) is taken. Without one, the naive
    estimate, zero and multiples of the start are tried, and the positive definite root nearest the start is
    taken.

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
    if start is not None:
        first = check_array(start, "start", ndim=1)
    elif system.effective.laplace and system.loss == "logistic":
        first = conditional_start(system)
    else:
        first = regression_calibration(system)
    if first.shape != (system.p,):
        raise ArgumentError(
            f"start= must have {system.p} values, one for each coefficient, got {first.shape[0]} values"
        )
    paths = []
    for tried, point in enumerate(_starts(system, first), start=1):
        path = newton(system, point, max_steps=max_steps)
        if not path.reason and has_stable_bread(system.jacobian(path.point)):
            if tried == 1:
                return Root(
                    params=path.point,
                    converged=True,
                    iterations=path.iterations,
                    reason="",
                    tried=1,
                    start=first,
                )
            paths.append((path, True))
        else:
            paths.append((path, False))
    stable = [path for path, good in paths if good]
    if stable:
        best = min(stable, key=lambda path: float(np.linalg.norm(path.point - first)))
        return Root(
            params=best.point,
            converged=True,
            iterations=best.iterations,
            reason="",
            tried=len(paths),
            start=first,
        )
    converged = [path for path, _ in paths if not path.reason]
    if converged:
        best = min(converged, key=lambda path: float(np.linalg.norm(path.point - first)))
        return Root(
            params=best.point,
            converged=False,
            iterations=best.iterations,
            reason=UNSTABLE,
            tried=len(paths),
            start=first,
        )
    best = min((path for path, _ in paths), key=lambda path: path.step)
    return Root(
        params=best.point,
        converged=False,
        iterations=best.iterations,
        reason=paths[0][0].reason,
        tried=len(paths),
        start=first,
    )


def _starts(system: ExampleScores, first: Floats) -> list[Floats]:
    return [first, np.zeros_like(first), 0.5 * first, 1.5 * first]
