"""The Bernoulli transform (expectation over randomized response) and its inverse, for k >= 2 levels."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from privinf.errors import ArgumentError
from privinf.typing import Floats


def inverse_weights(indicators: Floats, *, keep: float, other: float) -> Floats:
    """Return ``(1{sent = l} - Q)/(P - Q)`` from the indicators (b, k) of the levels as sent."""
    if other == 0.0:
        return indicators
    weights: Floats = (indicators - other) / (keep - other)
    return weights


def bernoulli(g: ArrayLike, *, keep: float, other: float) -> Floats:
    r"""Return B[g], the expectation of g at the answer of k-ary randomized response.

    Parameters
    ----------
    g : (k, ...) array
        Values of a function at the k levels.
    keep, other : float
        P and Q: probabilities of the true level and of each other level, ``P + (k - 1) Q = 1``.

    Returns
    -------
    (k, ...) array: ``P g(l) + Q sum_{m != l} g(m)`` for each true level l.

    Raises
    ------
    ArgumentError
        If the probabilities do not sum to one over the k levels.

    Notes
    -----
    **Privacy.** A function of the public law.

    Examples
    --------
    >>> bernoulli([0.0, 1.0], keep=0.75, other=0.25)
    array([0.25, 0.75])
    """
    values = _levels(g, keep, other)
    expected: Floats = (keep - other) * values + other * values.sum(axis=0)
    return expected


def inverse_bernoulli(g: ArrayLike, *, keep: float, other: float) -> Floats:
    r"""Return B^-1[g], whose expectation over the response is g.

    Parameters
    ----------
    g : (k, ...) array
    keep, other : float

    Returns
    -------
    (k, ...) array: ``(g(l) - Q sum_m g(m))/(P - Q)`` for each level l as sent.

    Raises
    ------
    ArgumentError
        If the probabilities do not sum to one over the k levels, or are all equal.

    Notes
    -----
    Two levels: ``St g(y) + (1 - St) g(-y)`` with St = 1/(1 - e^-eps) (theorem 5.1).

    **Privacy.** A function of the public law.

    Examples
    --------
    >>> inverse_bernoulli(bernoulli([0.0, 1.0, 5.0], keep=0.6, other=0.2), keep=0.6, other=0.2).round(9)
    array([0., 1., 5.])
    """
    values = _levels(g, keep, other)
    if keep == other:
        raise ArgumentError("a response that keeps no level more often than another has no inverse")
    inverse: Floats = (values - other * values.sum(axis=0)) / (keep - other)
    return inverse


def _levels(g: ArrayLike, keep: float, other: float) -> Floats:
    values = np.asarray(g, dtype=np.float64)
    if values.ndim == 0 or abs(keep + (values.shape[0] - 1) * other - 1.0) > 1e-9:
        raise ArgumentError("keep + (k - 1) other must be 1, with k the first dimension of g")
    return values
