"""Where to start: regression calibration, a fit on the best linear guess of the clean features."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import linalg

from privinf.errors import ArgumentError
from privinf.iwp.data import Examples
from privinf.iwp.engines import DERIVATIVES
from privinf.iwp.equation import Correction, ExampleScores
from privinf.iwp.newton import newton
from privinf.iwp.transforms.series import choose_truncation, truncation_bias
from privinf.typing import Floats

_ROWS = 100_000
_RELIABILITY = 0.02
_STEPS = 15


def regression_calibration(system: ExampleScores) -> Floats:
    r"""Return the regression-calibration estimate, a start for the corrected score.

    Parameters
    ----------
    system : ExampleScores

    Returns
    -------
    (p,) array

    Notes
    -----
    The features as sent are replaced by the best linear guess of the clean ones,
    ``m + (C - V) C^-1 (x - m)`` with C the covariance of the (unbiased) released features and V that of
    their noise, reliabilities floored at 0.02; then the loss without feature noise is minimised, labels
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
        X, data.labels[::step], np.zeros(X.shape[1]), loss=system.loss, correction=correction,
        label=data.label, ridge=system.ridge, penalized=system.penalized,
    )  # fmt: skip
    path = newton(clean, np.zeros(system.p), max_steps=_STEPS, tolerance=1e-4)
    return path.point


def chosen_truncation(system: ExampleScores, *, candidates: Sequence[int] = (1, 2, 3)) -> int:
    r"""Return the truncation of the series that has the least bias at the regression-calibration estimate.

    Parameters
    ----------
    system : ExampleScores
        Quadratic, exponential or logistic, of any correction but the naive one.
    candidates : sequence of int, default (1, 2, 3)

    Returns
    -------
    int

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
        raise ArgumentError(f"the series belongs to the losses {', '.join(DERIVATIVES)}, not {system.loss!r}")
    theta = regression_calibration(system)
    variance, bound = float(theta**2 @ system.noise), float(np.abs(theta).sum())
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

    Returns
    -------
    float

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
        raise ArgumentError("series_bias: the system has no truncated series")
    variance, bound = float(params**2 @ system.noise), float(np.abs(params).sum())
    if variance == 0.0:
        return 0.0
    return truncation_bias(DERIVATIVES[system.loss], variance, truncation=system.truncation, bound=bound)


def _calibrated(data: Examples, X: Floats) -> Floats:
    """Return the best linear guess of the clean features of some rows."""
    unbiased, variance = np.array(X), data.noise.copy()
    for response in data.responses:
        columns = list(response.columns)
        unbiased[:, columns] = response.unbiased(X)
        variance[columns] = response.variance
    if not variance.any():
        return unbiased
    mean = unbiased.mean(axis=0)
    centred = unbiased - mean
    covariance = centred.T @ centred / len(X)
    covariance += 1e-10 * float(np.diag(covariance).max()) * np.eye(len(mean))
    share, basis = linalg.eigh(np.diag(variance), covariance)
    share = np.minimum(share, 1.0 - _RELIABILITY)
    guess: Floats = mean + centred - ((centred @ basis) * share) @ (basis.T @ covariance)
    return guess
