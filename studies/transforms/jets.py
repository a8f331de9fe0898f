"""Derivatives of any order of a scalar function: Taylor-mode differentiation through numpy ufuncs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import ArrayLike
from scipy.special import expit

from privinf.errors import ArgumentError
from privinf.typing import Floats
from privinf.validation import check_count


class Jet(NDArrayOperatorsMixin):
    """A truncated Taylor series in one variable that numpy functions act on.

    Parameters
    ----------
    coefficients : (m + 1, ...) array
        ``f^(j)(z)/j!`` for j = 0, ..., m at each point.

    Notes
    -----
    Sums, products, quotients, real powers, and exp, expm1, log, log1p, sqrt, square, sin, cos, tanh,
    logaddexp and expit of `scipy.special`, each by its recursion (Griewank and Walther 2008, chapter 13).

    **Privacy.** Reads no data.

    Examples
    --------
    >>> jet = Jet(np.array([[0.0], [1.0], [0.0]]))
    >>> np.exp(jet).coefficients[:, 0]
    array([1. , 1. , 0.5])
    """

    __slots__ = ("coefficients",)

    def __init__(self, coefficients: Floats) -> None:
        self.coefficients = coefficients

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Jet:
        """Apply a numpy function to the series."""
        rule = _RULES.get(ufunc)
        if rule is None or method != "__call__" or kwargs:
            raise ArgumentError(f"derivatives of {ufunc.__name__} are not available: write f without it")
        shape = self.coefficients.shape
        return Jet(rule(*(_series(value, shape) for value in inputs)))


def derivatives(f: Callable[[Any], Any], z: ArrayLike, order: int) -> Floats:
    """Return f and its derivatives up to `order` at the points z.

    Parameters
    ----------
    f : function of one argument
        Written with operators and numpy functions.
    z : (...) array
    order : int
        At least 0.

    Returns
    -------
    (order + 1, ...) array: ``f^(j)(z)`` for j = 0, ..., order.

    Raises
    ------
    ArgumentError
        For a numpy function without a derivative rule.

    Notes
    -----
    Exact up to rounding: the coefficients of f's Taylor series, times j!.

    **Privacy.** Reads no data.

    References
    ----------
    Griewank, A. and Walther, A. (2008), Evaluating Derivatives, chapter 13.

    Examples
    --------
    >>> derivatives(lambda z: np.exp(2.0 * z), 0.0, 3)
    array([1., 2., 4., 8.])
    """
    check_count(order, "order", least=0)
    points = np.asarray(z, dtype=np.float64)
    seed = np.zeros((order + 1, *points.shape))
    seed[0] = points
    if order > 0:
        seed[1] = 1.0
    result = _series(f(Jet(seed)), seed.shape)
    factorials = np.cumprod(np.r_[1.0, np.arange(1.0, order + 1.0)])
    values: Floats = result * factorials.reshape(-1, *(1,) * points.ndim)
    return values


def _series(value: Any, shape: tuple[int, ...]) -> Floats:
    if isinstance(value, Jet):
        return value.coefficients
    constant = np.zeros(shape)
    constant[0] = value
    return constant


def _product(a: Floats, b: Floats) -> Floats:
    return np.stack([np.einsum("j...,j...->...", a[: k + 1], b[k::-1]) for k in range(len(a))])


def _quotient(a: Floats, b: Floats) -> Floats:
    c = np.zeros_like(a)
    for k in range(len(a)):
        c[k] = (a[k] - np.einsum("j...,j...->...", c[:k], b[k:0:-1])) / b[0]
    return c


def _steps(a: Floats) -> Floats:
    """Return j a_j: the coefficients of z a'."""
    weights = np.arange(len(a), dtype=np.float64).reshape(-1, *(1,) * (a.ndim - 1))
    result: Floats = weights * a
    return result


def _exp(a: Floats) -> Floats:
    c = np.zeros_like(a)
    da = _steps(a)
    c[0] = np.exp(a[0])
    for k in range(1, len(a)):
        c[k] = np.einsum("j...,j...->...", da[1 : k + 1], c[k - 1 :: -1]) / k
    return c


def _integral(first: Floats, derivative: Floats, a: Floats) -> Floats:
    """Return the series that starts at `first` and whose derivative is ``derivative * a'``."""
    da = _steps(a)
    c = np.zeros_like(a)
    c[0] = first
    for k in range(1, len(a)):
        c[k] = np.einsum("j...,j...->...", da[1 : k + 1], derivative[k - 1 :: -1]) / k
    return c


def _log(a: Floats) -> Floats:
    one = np.zeros_like(a)
    one[0] = 1.0
    return _integral(np.log(a[0]), _quotient(one, a), a)


def _shifted(a: Floats, amount: float) -> Floats:
    moved = a.copy()
    moved[0] += amount
    return moved


def _sine_cosine(a: Floats) -> tuple[Floats, Floats]:
    sine = np.zeros_like(a)
    cosine = np.zeros_like(a)
    da = _steps(a)
    sine[0] = np.sin(a[0])
    cosine[0] = np.cos(a[0])
    for k in range(1, len(a)):
        sine[k] = np.einsum("j...,j...->...", da[1 : k + 1], cosine[k - 1 :: -1]) / k
        cosine[k] = -np.einsum("j...,j...->...", da[1 : k + 1], sine[k - 1 :: -1]) / k
    return sine, cosine


def _expit(a: Floats) -> Floats:
    """Return the logistic function: c' = c (1 - c) a'."""
    c = np.zeros_like(a)
    da = _steps(a)
    c[0] = expit(a[0])
    slope = np.zeros_like(a)
    for k in range(1, len(a)):
        slope[k - 1] = c[k - 1] - np.einsum("j...,j...->...", c[:k], c[k - 1 :: -1])
        c[k] = np.einsum("j...,j...->...", da[1 : k + 1], slope[k - 1 :: -1]) / k
    return c


def _logaddexp(a: Floats, b: Floats) -> Floats:
    difference = a - b
    return b + _integral(np.logaddexp(0.0, difference[0]), _expit(difference), difference)


def _power(a: Floats, exponent: Floats) -> Floats:
    r = float(exponent[0].flat[0])
    if exponent[1:].any() or (exponent[0] != r).any():
        return _exp(_product(exponent, _log(a)))
    if r == int(r) and r >= 0:
        c = np.zeros_like(a)
        c[0] = 1.0
        for _ in range(int(r)):
            c = _product(c, a)
        return c
    c = np.zeros_like(a)
    c[0] = a[0] ** r
    for k in range(1, len(a)):
        weights = (r * np.arange(1, k + 1) - np.arange(k - 1, -1, -1)).reshape(-1, *(1,) * (a.ndim - 1))
        c[k] = np.einsum("j...,j...->...", weights * a[1 : k + 1], c[k - 1 :: -1]) / (k * a[0])
    return c


_RULES: dict[np.ufunc, Callable[..., Floats]] = {
    np.add: lambda a, b: a + b,
    np.subtract: lambda a, b: a - b,
    np.multiply: _product,
    np.divide: _quotient,
    np.negative: lambda a: -a,
    np.positive: lambda a: a,
    np.square: lambda a: _product(a, a),
    np.power: _power,
    np.float_power: _power,
    np.exp: _exp,
    np.expm1: lambda a: _shifted(_exp(a), -1.0),
    np.log: _log,
    np.log1p: lambda a: _log(_shifted(a, 1.0)),
    np.sqrt: lambda a: _power(a, _series(0.5, a.shape)),
    np.sin: lambda a: _sine_cosine(a)[0],
    np.cos: lambda a: _sine_cosine(a)[1],
    np.tanh: lambda a: _shifted(2.0 * _expit(2.0 * a), -1.0),
    np.logaddexp: _logaddexp,
    expit: _expit,
}
