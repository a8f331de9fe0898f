r"""Scores of the scalar losses, as scalars of the linear predictor.

With S the noise covariance of the features, eta = x'theta (x as released) and s = theta'S theta, the
corrected score (minus the gradient) of every loss here is ``a x + b S theta`` with a and b functions of
(eta, y, s) alone. A form gives a and b, and their derivatives in eta and s. It is `linear` where a and b are
linear in y, so that an unbiased y can replace it, and `signed` where y is -1 or 1.

``squares`` gives exponential terms whose sum is the inverse of the clean a^2, or None where there is no such.
A term ``c e^(t x'theta)`` of the clean squared factor contributes
``c e^(t eta - t^2 s/2) [(x - t S theta)(x - t S theta)' - S]`` to the clean second moment of the scores.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from privinf.iwp.transforms import series_coefficients
from privinf.typing import Floats


class Slopes(NamedTuple):
    """a and b, and their derivatives in eta and in s."""

    a: Floats
    b: Floats
    a_eta: Floats
    a_s: Floats
    b_eta: Floats
    b_s: Floats


class ClosedTerm(NamedTuple):
    """A term ``c e^(t eta - t^2 s/2)``, value given, of the clean squared residual."""

    rate: Floats | float
    value: Floats


@dataclass(frozen=True, slots=True)
class ExponentialForm:
    """Loss e^(-y eta), y = -1 or 1: exact."""

    linear = False
    signed = True

    def score(self, eta: Floats, y: Floats | float, s: float) -> tuple[Floats, Floats]:
        """Return (a, b)."""
        e = np.exp(-y * eta - s / 2)
        return y * e, e

    def slopes(self, eta: Floats, y: Floats | float, s: float) -> Slopes:
        """Return a and b with their derivatives."""
        a, e = self.score(eta, y, s)
        return Slopes(a=a, b=e, a_eta=-e, a_s=-a / 2, b_eta=-a, b_s=-e / 2)

    def squares(
        self, eta: Floats, y: Floats | float, y_square: Floats | float, s: float
    ) -> tuple[ClosedTerm, ...]:
        """Return the one term e^(-2 y eta)."""
        return (ClosedTerm(-2.0 * y, np.exp(-2.0 * y * eta - 2.0 * s)),)


@dataclass(frozen=True, slots=True)
class PoissonForm:
    """Loss e^eta - y eta: exact, by the exponential correction."""

    linear = True
    signed = False

    def score(self, eta: Floats, y: Floats | float, s: float) -> tuple[Floats, Floats]:
        """Return (a, b)."""
        e = np.exp(eta - s / 2)
        return y - e, e

    def slopes(self, eta: Floats, y: Floats | float, s: float) -> Slopes:
        """Return a and b with their derivatives."""
        a, e = self.score(eta, y, s)
        return Slopes(a=a, b=e, a_eta=-e, a_s=e / 2, b_eta=e, b_s=-e / 2)

    def squares(
        self, eta: Floats, y: Floats | float, y_square: Floats | float, s: float
    ) -> tuple[ClosedTerm, ...]:
        """Return the terms of y^2 - 2 y e^eta + e^(2 eta)."""
        return (
            ClosedTerm(0.0, y_square + np.zeros_like(eta)),
            ClosedTerm(1.0, -2.0 * y * np.exp(eta - s / 2)),
            ClosedTerm(2.0, np.exp(2.0 * eta - 2.0 * s)),
        )


def _expit(x: Floats) -> Floats:
    """Return 1/(1 + e^-x), by numpy's vectorized exponential."""
    with np.errstate(over="ignore"):
        e = np.exp(-x)
    e += 1.0
    return np.asarray(np.divide(1.0, e, out=e))


@dataclass(frozen=True, slots=True)
class ConditionalForm:
    """Conditional score of the logistic model, y = 0 or 1 (Stefanski and Carroll 1987).

    Attributes
    ----------
    linear : bool
        True where no feature has Gaussian noise: this is then the likelihood score.
    """

    linear: bool
    signed = False

    def score(self, eta: Floats, y: Floats | float, s: float) -> tuple[Floats, Floats]:
        """Return (a, b)."""
        a = y - _expit(eta if self.linear else eta + (y - 0.5) * s)
        return a, y * a

    def slopes(self, eta: Floats, y: Floats | float, s: float) -> Slopes:
        """Return a and b with their derivatives."""
        a, b = self.score(eta, y, s)
        p = y - a
        h = p - p * p
        tilt = (y - 0.5) * h
        return Slopes(a=a, b=b, a_eta=-h, a_s=-tilt, b_eta=-y * h, b_s=-y * tilt)

    def squares(
        self, eta: Floats, y: Floats | float, y_square: Floats | float, s: float
    ) -> tuple[ClosedTerm, ...] | None:
        """Return the squared residual without Gaussian noise, None with it."""
        if not self.linear:
            return None
        return (ClosedTerm(0.0, (y - _expit(eta)) ** 2),)


@dataclass(frozen=True, slots=True)
class SeriesForm:
    """Loss f(y eta), y = -1 or 1, corrected by its series of 2 K-th derivatives (equation 16).

    Attributes
    ----------
    derivatives : function
        From (z, m) to the derivatives of order 0 to m of f at z, stacked.
    truncation : int
        K >= 0. The score is minus the exact gradient of the truncated loss, hence one term less for f''.
    """

    derivatives: Callable[[Floats, int], Floats]
    truncation: int
    linear = False
    signed = True

    def score(self, eta: Floats, y: Floats | float, s: float) -> tuple[Floats, Floats]:
        """Return (a, b)."""
        d = self.derivatives(y * eta, 2 * self.truncation + 1)
        return -y * self._sum(d, 1, s), self._sum(d, 2, s)

    def slopes(self, eta: Floats, y: Floats | float, s: float) -> Slopes:
        """Return a and b with their derivatives."""
        d = self.derivatives(y * eta, 2 * self.truncation + 2)
        third = y * self._sum(d, 3, s)
        return Slopes(
            a=-y * self._sum(d, 1, s),
            b=self._sum(d, 2, s),
            a_eta=-self._sum(d, 2, s, terms=self.truncation + 1),
            a_s=third / 2,
            b_eta=third,
            b_s=-self._sum(d, 4, s) / 2,
        )

    def squares(
        self, eta: Floats, y: Floats | float, y_square: Floats | float, s: float
    ) -> tuple[ClosedTerm, ...] | None:
        """Return None: a truncated series has no exact second moment."""
        return None

    def _sum(self, d: Floats, order: int, s: float, *, terms: int | None = None) -> Floats:
        """Return ``sum_k (-s/2)^k / k! f^(2k + order)``; K + 1 terms, one less for every two orders."""
        count = self.truncation + 1 - order // 2 if terms is None else terms
        total: Floats = np.zeros_like(d[0])
        for k, coefficient in enumerate(series_coefficients(s, max(count, 0) - 1)):
            total += coefficient * d[2 * k + order]
        return total


Form: TypeAlias = ExponentialForm | PoissonForm | ConditionalForm | SeriesForm
