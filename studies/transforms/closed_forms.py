r"""Weierstrass transforms in closed form: polynomials times exponentials, sines and cosines.

All of them are real parts of ``sum_j p_j(z) e^(c_j z)`` with complex rates c_j, a family that sums,
products, derivatives, the transform and its inverse do not leave.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

import numpy as np
from numpy.polynomial import polynomial as poly
from numpy.typing import ArrayLike, NDArray

from privinf.errors import ArgumentError
from privinf.typing import Floats
from privinf.validation import check_array, check_number

Complexes = NDArray[np.complex128]


@dataclass(frozen=True, slots=True)
class ClosedForm:
    r"""A function ``Re sum_j p_j(z) e^(c_j z)`` of one variable.

    Attributes
    ----------
    terms : tuple of (complex, tuple of complex)
        Rate c_j, and the coefficients of p_j in increasing powers.

    Notes
    -----
    Made by `polynomial`, `exponential`, `cosine` and `sine`, and by sums and products of them.

    **Privacy.** Reads no data.

    Examples
    --------
    >>> f = polynomial([0.0, 1.0]) * cosine(2.0)
    >>> back = f.inverse(0.5).transform(0.5)
    >>> bool(np.isclose(back(0.3), 0.3 * np.cos(0.6)))
    True
    """

    terms: tuple[tuple[complex, tuple[complex, ...]], ...]

    def __call__(self, z: ArrayLike) -> Floats:
        """Return the values at z."""
        points = np.asarray(z, dtype=np.float64)
        total: Complexes = np.zeros(points.shape, dtype=np.complex128)
        for rate, coefficients in self.terms:
            total = total + poly.polyval(points, np.array(coefficients)) * np.exp(rate * points)
        return np.asarray(total.real, dtype=np.float64)

    def __add__(self, other: ClosedForm) -> ClosedForm:
        return ClosedForm(self.terms + other.terms)

    def __mul__(self, other: ClosedForm | float) -> ClosedForm:
        if not isinstance(other, ClosedForm):
            factor = check_number(other, "factor")
            return ClosedForm(tuple((c, tuple(factor * a for a in p)) for c, p in self.terms))
        # Re u Re v = Re(u v + u conj v)/2.
        conjugate = tuple((c.conjugate(), tuple(a.conjugate() for a in p)) for c, p in other.terms)
        return ClosedForm(
            tuple(
                (c + d, tuple(poly.polymul(p, q) / 2.0))
                for c, p in self.terms
                for d, q in other.terms + conjugate
            )
        )

    __rmul__ = __mul__

    def derivative(self, order: int = 1) -> ClosedForm:
        """Return the derivative."""
        form = self
        for _ in range(order):
            form = ClosedForm(
                tuple((c, tuple(poly.polyadd(poly.polyder(p), c * np.array(p)))) for c, p in form.terms)
            )
        return form

    def transform(self, s2: float) -> ClosedForm:
        r"""Return W[f], ``E f(z + N(0, s2))`` as a function of z.

        Notes
        -----
        ``E (z + N)^k e^(c (z + N)) = e^(c z + c^2 s2/2) E (z + c s2 + N)^k``, and the last expectation is
        ``sum_j C(k, 2j) (2j - 1)!! s2^j (z + c s2)^(k - 2j)``.
        """
        return self._smoothed(check_number(s2, "s2", low=0.0))

    def inverse(self, s2: float) -> ClosedForm:
        """Return W^-1[f]: the same identities at variance -s2, so that its transform is f."""
        return self._smoothed(-check_number(s2, "s2", low=0.0))

    def _smoothed(self, variance: float) -> ClosedForm:
        terms = []
        for rate, coefficients in self.terms:
            smooth = _hermite(np.array(coefficients), variance)
            moved = np.zeros(1, dtype=np.complex128)
            for power, coefficient in enumerate(smooth):
                moved = poly.polyadd(moved, coefficient * _shifted_power(rate * variance, power))
            factor = np.exp(rate**2 * variance / 2)
            terms.append((rate, tuple(complex(a) for a in factor * moved)))
        return ClosedForm(tuple(terms))


def polynomial(coefficients: Sequence[float]) -> ClosedForm:
    """Return ``sum_k a_k z^k`` from its coefficients in increasing powers."""
    values = check_array(coefficients, "coefficients", ndim=1)
    if values.size == 0:
        raise ArgumentError("coefficients must not be empty")
    return ClosedForm(((0j, tuple(complex(a) for a in values)),))


def exponential(rate: float) -> ClosedForm:
    """Return ``e^(rate z)``."""
    return ClosedForm(((complex(check_number(rate, "rate")), (1 + 0j,)),))


def cosine(frequency: float) -> ClosedForm:
    """Return ``cos(frequency z)``."""
    return ClosedForm(((1j * check_number(frequency, "frequency"), (1 + 0j,)),))


def sine(frequency: float) -> ClosedForm:
    """Return ``sin(frequency z)``."""
    return ClosedForm(((1j * check_number(frequency, "frequency"), (-1j,)),))


def inverse_linear_product(f: ClosedForm, X: ArrayLike, theta: ArrayLike, noise: ArrayLike) -> Floats:
    r"""Return the inverse transform of ``x f(x'theta)`` over noisy x, row by row.

    Parameters
    ----------
    f : ClosedForm
    X : (n, p) array
        x + u, u Gaussian.
    theta : (p,) array
    noise : (p,) array
        Variances of u; 0 for columns without noise.

    Returns
    -------
    (n, p) array whose expectation over u is ``x f(x'theta)``.

    Raises
    ------
    ArgumentError
        For shapes that do not match or a negative variance.

    Notes
    -----
    With S = diag(noise) and s = theta'S theta,
    ``W^-1[x f(x'theta)] = x W_s^-1[f](x'theta) - S theta W_s^-1[f'](x'theta)`` (equation 16).

    **Privacy.** A function of the release.

    Examples
    --------
    >>> inverse_linear_product(polynomial([0.0, 1.0]), [[2.0]], [3.0], [0.5])
    array([[10.5]])
    """
    rows = check_array(X, "X", ndim=2)
    direction = check_array(theta, "theta", ndim=1)
    variances = check_array(noise, "noise", ndim=1)
    if not rows.shape[1:] == direction.shape == variances.shape or (variances < 0.0).any():
        raise ArgumentError("theta and noise must have one entry, variances >= 0, for each column of X")
    tilt = variances * direction
    s = float(direction @ tilt)
    eta = rows @ direction
    product: Floats = rows * f.inverse(s)(eta)[:, None]
    return product - np.multiply.outer(f.derivative().inverse(s)(eta), tilt)


def _hermite(coefficients: Complexes, variance: float) -> Complexes:
    """Return the coefficients of ``E p(z + N(0, variance))``, by the identity that holds below 0 too."""
    smooth = np.zeros(len(coefficients), dtype=np.complex128)
    for power, coefficient in enumerate(coefficients):
        moment = 1.0
        for j in range(power // 2 + 1):
            smooth[power - 2 * j] += coefficient * comb(power, 2 * j) * moment
            moment *= (2 * j + 1) * variance
    return smooth


def _shifted_power(shift: complex, power: int) -> Complexes:
    """Return the coefficients of ``(z + shift)^power``."""
    return np.array([comb(power, j) * shift ** (power - j) for j in range(power + 1)], dtype=np.complex128)
