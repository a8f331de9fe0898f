"""The Bernoulli transform (expectation over k-ary randomized response), and what its inverse costs.

The variances of inverse transforms are those of lemmas D.2 and D.3.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from privinf.errors import ArgumentError
from privinf.typing import Floats
from privinf.validation import check_array, check_number, check_positive


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
    values = table_of_levels(g, keep, other)
    return np.asarray((keep - other) * values + other * values.sum(axis=0), dtype=np.float64)


def table_of_levels(g: ArrayLike, keep: float, other: float) -> Floats:
    """Return the values of a function by level, checked against the probabilities of a response."""
    values = np.asarray(g, dtype=np.float64)
    if values.ndim == 0 or abs(keep + (values.shape[0] - 1) * other - 1.0) > 1e-9:
        raise ArgumentError("keep + (k - 1) other must be 1, with k the first dimension of g")
    return values


def quadratic_variance(A: ArrayLike, b: ArrayLike, x: ArrayLike, s2: float) -> float:
    r"""Return the variance of the unbiased estimate of ``x'A x/2 + b'x + c`` from x + N(0, s2 I).

    Parameters
    ----------
    A : (p, p) array
        Symmetric or not: only its symmetric part counts.
    b, x : (p,) arrays
    s2 : float

    Returns
    -------
    float: ``s2 ||H x + b||^2 + s2^2 tr(H^2)/2``, H = (A + A')/2.

    Raises
    ------
    ArgumentError
        For shapes that do not match or a negative variance.

    Notes
    -----
    The paper's closed form in lemma D.2 adds f(x)^2: it is the second moment. This one is the integral
    of the lemma.

    **Privacy.** Reads no data.

    Examples
    --------
    >>> quadratic_variance([[2.0]], [0.0], [1.0], 1.0)
    6.0
    """
    matrix, slope, point = (check_array(v, n, ndim=d) for v, n, d in ((A, "A", 2), (b, "b", 1), (x, "x", 1)))
    if matrix.shape != (point.size, point.size) or slope.shape != point.shape:
        raise ArgumentError(f"A must be square and b as long as x, which has {point.size} entries")
    check_number(s2, "s2", low=0.0)
    H = (matrix + matrix.T) / 2
    gradient = H @ point + slope
    return float(s2 * gradient @ gradient + s2**2 * np.sum(H**2) / 2)


def exponential_variance(a: ArrayLike, x: ArrayLike, s2: float) -> float:
    r"""Return the variance of the unbiased estimate of ``e^(a'x)`` from x + N(0, s2 I).

    Parameters
    ----------
    a, x : (p,) arrays
    s2 : float

    Returns
    -------
    float: ``e^(2 a'x) (e^(s2 ||a||^2) - 1)``.

    Raises
    ------
    ArgumentError
        For shapes that do not match or a negative variance.

    Notes
    -----
    The paper's closed form in lemma D.2 leaves out the ``- 1``: it is the second moment.

    **Privacy.** Reads no data.

    Examples
    --------
    >>> round(exponential_variance([1.0], [0.0], 1.0), 6)
    1.718282
    """
    direction = check_array(a, "a", ndim=1)
    point = check_array(x, "x", ndim=1)
    if direction.shape != point.shape:
        raise ArgumentError(f"a must be as long as x, which has {point.size} entries")
    check_number(s2, "s2", low=0.0)
    return math.exp(2.0 * float(direction @ point)) * math.expm1(s2 * float(direction @ direction))


def bernoulli_variance(difference: float, epsilon: float) -> float:
    r"""Return the variance of the unbiased estimate of g(y) from a binary response.

    Parameters
    ----------
    difference : float
        g(1) - g(-1).
    epsilon : float
        Of the response, positive; infinity gives 0.

    Returns
    -------
    float: ``St (St - 1) (g(1) - g(-1))^2``, St = 1/(1 - e^-epsilon), the same at both y.

    Raises
    ------
    ArgumentError
        If epsilon is not positive.

    Notes
    -----
    Lemma D.3.

    **Privacy.** Reads no data.

    Examples
    --------
    >>> round(bernoulli_variance(2.0, 1.0), 4)
    3.6827
    """
    lie = math.exp(-check_positive(epsilon, "epsilon", infinite=True))
    return check_number(difference, "difference") ** 2 * lie / math.expm1(-epsilon) ** 2


def response_variances(g: ArrayLike, *, keep: float, other: float) -> Floats:
    r"""Return the variance of the unbiased estimate of g(l) from a k-ary response, at each true level l.

    Parameters
    ----------
    g : (k,) array
    keep, other : float
        P and Q.

    Returns
    -------
    (k,) array: ``[P g(l)^2 + Q sum_{m != l} g(m)^2 - (P g(l) + Q sum_{m != l} g(m))^2]/(P - Q)^2``.

    Raises
    ------
    ArgumentError
        If the probabilities do not belong to k levels.

    Notes
    -----
    Lemma D.3 for k levels: with more than two it depends on the level.

    **Privacy.** Reads no data.

    Examples
    --------
    >>> response_variances([0.0, 1.0], keep=0.75, other=0.25)
    array([0.75, 0.75])
    """
    values = check_array(g, "g", ndim=1)
    if abs(keep + (values.size - 1) * other - 1.0) > 1e-9 or keep <= other:
        raise ArgumentError(
            "keep must exceed other, and keep + (k - 1) other must be 1 for the k values of g"
        )
    first = (keep - other) * values + other * values.sum()
    second = (keep - other) * values**2 + other * float(np.sum(values**2))
    return np.asarray((second - first**2) / (keep - other) ** 2, dtype=np.float64)
