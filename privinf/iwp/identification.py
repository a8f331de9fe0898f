"""How well released examples identify the coefficients of a nonlinear model."""

from __future__ import annotations

import numpy as np
from scipy import linalg

from privinf.inference.identification import THRESHOLD, Identification
from privinf.iwp.equation import ExampleScores
from privinf.iwp.score_test import concentrating_maps, no_central_limit
from privinf.typing import Floats

_STEP = 1e-5


def identification(
    system: ExampleScores, params: Floats, *, threshold: float | None = None
) -> Identification:
    r"""Return the identification statistic of a system at an estimate.

    Parameters
    ----------
    system : ExampleScores
    params : (p,) array
    threshold : float, optional
        Default 3.5 / sqrt(d), d the number of parameters of noisy columns.

    Returns
    -------
    Identification

    Notes
    -----
    The smallest eigenvalue of the bread, noise-free parameters partialled out, in the metric of the
    features' noise (Gaussian variances; ``P Q/(P - Q)^2`` and its like under response), over
    ``sqrt(2 d)`` times the standard error of that entry v'Jv: the edge to which sampling and noise spread
    the spectrum of a matrix with nothing in it. What the bread is:

    - squared and quadratic losses: the corrected Gram matrix, as in linear models;
    - logistic and multinomial, conditional: about ``mean w (x x' - S)``, w = p (1 - p), label noise
      included;
    - exponential and Poisson: ``mean e (x - ..)(x - ..)'``-like sums with the lognormal factor of relative
      variance ``exp(theta'S theta) - 1`` (`noise_inflation`).

    It is called weak too where `score_test` would find no usable central limit at the estimate.

    **Privacy.** Post-processing.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-1, 1, (5000, 1))
    >>> codes = rng.random(5000) < 1 / (1 + np.exp(-2 * x[:, 0]))
    >>> noisy = x + 9.0 * rng.standard_normal(x.shape)
    >>> system = ExampleScores(noisy, codes, [81.0], loss="logistic", correction="conditional")
    >>> identification(system, np.zeros(1)).weak
    True
    """
    noisy = ~system.noise_free
    d = int(noisy.sum())
    limit = float(THRESHOLD / np.sqrt(max(d, 1))) if threshold is None else threshold
    if d == 0:
        return Identification(np.inf, limit, False, np.inf, 0.0)
    bread = system.jacobian(params)
    left, lift = concentrating_maps(bread, noisy)
    reduced = left @ bread @ lift
    values, vectors = linalg.eigh((reduced + reduced.T) / 2, np.diag(_metric(system)[noisy]))
    direction = vectors[:, 0]
    edge = np.sqrt(2.0 * d) * _entry_error(system, params, direction @ left, lift @ direction)
    statistic = float(values[0] / edge) if edge > 0.0 else np.inf
    weak = statistic < limit or bool(no_central_limit(system, params, nuisances=True))
    return Identification(statistic, limit, weak, float(values[0]), float(edge))


def _metric(system: ExampleScores) -> Floats:
    """Return the noise variance of each parameter's column, responses included."""
    variances = system.data.noise.copy()
    for response in system.data.responses:
        variances[list(response.columns)] = response.variance
    return np.tile(variances, system.p // len(variances))


def _entry_error(system: ExampleScores, theta: Floats, left: Floats, right: Floats) -> float:
    """Return the standard error of ``left' J right``, from central differences of each record's score."""
    step = _STEP * (1.0 + float(np.abs(theta).max())) / float(np.abs(right).max())
    total, square = 0.0, 0.0
    for rows in system.blocks():
        ahead = system.block_scores(theta + step * right, rows) @ left
        entries = (system.block_scores(theta - step * right, rows) @ left - ahead) / (2.0 * step)
        total += float(entries.sum())
        square += float(entries @ entries)
    mean = total / system.n
    return float(np.sqrt(max(square / system.n - mean**2, 0.0) / system.n))
