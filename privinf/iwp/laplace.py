r"""Scores of smooth losses on features with Laplace noise, corrected without a series.

A Laplace number Z of scale b has the characteristic function 1/(1 + b^2 t^2), so that

.. math:: E\,[f(z + Z) - b^2 f''(z + Z)] = f(z)

for every f whose two derivatives have a mean: the inverse of the noise is a differential operator of order
two, one for each column. On a function of the linear predictor eta = x'theta column j contributes
``1 - c_j D^2``, c_j = b_j^2 theta_j^2, D the derivative in eta, so that the loss F(eta) - y eta becomes

.. math:: \tilde F(\eta) - y \eta, \qquad \tilde F = \prod_j (1 - c_j D^2) F
          = \sum_k (-1)^k e_k(c) F^{(2k)},

e_k the elementary symmetric polynomials. The score is minus its gradient. With m = F' the mean of y,
v_j = 2 b_j^2 the variance of the noise and t_j = v_j theta_j,

.. math:: \tilde\psi_j = x_j (y - A) + t_j B_j, \quad A = \sum_k (-1)^k e_k(c) m^{(2k)}, \quad
          B_j = \sum_k (-1)^k e_k(c_{-j}) m^{(2k + 1)},

c_{-j} without c_j, because ``de_k(c)/dtheta_j = t_j e_{k-1}(c_{-j})``. Given x and y the mean of each score
over the noise is the score without noise, whatever the distribution of y.

Minus the derivative of the score is the inverse transform of m'(eta) x x'. For any function g of eta

.. math:: W^{-1}[g\, x x'] = A x x' - x (B' \circ t)' - (B' \circ t) x' - diag(v \circ B)
          + (t t') \circ G,

with A, B_j and B'_j from g as ``sum_k (-1)^k e_k(c) g^(2k)``, ``sum_k (-1)^k e_k(c_{-j}) g^(2k)`` and
``sum_k (-1)^k e_k(c_{-j}) g^(2k + 1)``, and G_jl, zero for j = l, as
``sum_k (-1)^k e_k(c_{-jl}) g^(2k + 2)``: it is the Hessian in theta of the transformed second integral of g.
With g = m' this is the bread, with g = (y - m)^2 the second moment of the clean scores. So the covariance
``J^-1 Cov(psi) J^-T / n`` has a known part that the noise causes, which a conditional score has not.

Discrete Laplace noise on a grid of step s has the same inverse with second differences, and its exact
variance v = s^2 / (2 sinh(s/(2 b))^2) takes the place of 2 b^2. Second differences differ from derivatives by
s^2/12 of a fourth derivative: a relative 2^-44 of the scale, because b spans 2^20 steps or more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

import numpy as np
from numpy.polynomial.polynomial import polyder, polymul, polyval

from privinf.iwp.data import Examples
from privinf.iwp.noise import Combinations
from privinf.iwp.nonlinear import SIGNED, ExampleBlock
from privinf.typing import Floats

# Columns with Laplace noise in a logistic model. The variance of the corrected scores multiplies with every
# column: at epsilon 8 six columns need millions of records.
MOST_COLUMNS = 6


Coefficients: TypeAlias = tuple[float, ...]  # of a polynomial, the constant first


@dataclass(frozen=True, slots=True)
class SmoothMean:
    """Mean m of a label as a function of the linear predictor: expit, or the predictor itself.

    All derivatives are polynomials in one variable: u = tanh(eta/2), of which expit is (1 + u)/2, or eta.

    Attributes
    ----------
    logistic : bool
    """

    logistic: bool

    @property
    def mean(self) -> Coefficients:
        """M as a polynomial in the variable."""
        return (0.5, 0.5) if self.logistic else (0.0, 1.0)

    @property
    def squared_mean(self) -> Coefficients:
        """m^2 as a polynomial in the variable."""
        return (0.25, 0.5, 0.25) if self.logistic else (0.0, 0.0, 1.0)

    @property
    def slope(self) -> Coefficients:
        """M' as a polynomial in the variable."""
        return (0.25, 0.0, -0.25) if self.logistic else (1.0,)

    def variable(self, eta: Floats) -> Floats:
        """Return the variable of the polynomials."""
        return np.tanh(eta / 2.0) if self.logistic else eta

    def transformed(self, g: Coefficients, order: int, squares: Sequence[float]) -> Floats:
        """Return ``prod_j (1 - c_j D^2) D^order g`` for the numbers c in `squares`, as coefficients."""
        signs = signed_symmetric(squares)
        table = derivative_table(g, order + 2 * len(squares), self.logistic)
        return np.asarray(signs @ table[order::2], dtype=np.float64)


def signed_symmetric(c: Sequence[float]) -> Floats:
    """Return ``(-1)^k e_k(c)`` for k = 0, ..., len(c): the coefficients of ``prod_j (1 - c_j z)``.

    Examples
    --------
    >>> signed_symmetric([1.0, 2.0])
    array([ 1., -3.,  2.])
    """
    coefficients = np.ones(1)
    for number in c:
        coefficients = np.convolve(coefficients, [1.0, -number])
    return coefficients


@cache
def derivative_table(g: Coefficients, order: int, logistic: bool) -> Floats:
    """Return the derivatives in eta of a polynomial in the variable, up to an order, as rows of coefficients.

    Of u = tanh(eta/2) the derivative is (1 - u^2)/2.

    Examples
    --------
    >>> derivative_table((0.5, 0.5), 1, True)
    array([[ 0.5 ,  0.5 ,  0.  ],
           [ 0.25,  0.  , -0.25]])
    """
    rows = [np.array(g)]
    for _ in range(order):
        slope = polyder(rows[-1])
        rows.append(polymul(slope, [0.5, 0.0, -0.5]) if logistic else slope)
    table = np.zeros((order + 1, max(map(len, rows))))
    for row, coefficients in zip(table, rows, strict=True):
        row[: len(coefficients)] = coefficients
    return table


@dataclass(frozen=True, slots=True)
class LaplaceEngine:
    """Scores of a smooth loss under Laplace noise: equations in the module docstring.

    Attributes
    ----------
    data : Examples
    mean : SmoothMean
    combinations : Combinations
    signed : bool
        Labels are -1 and 1 rather than codes or numbers.
    """

    data: Examples
    mean: SmoothMean
    combinations: Combinations
    signed: bool = False

    @property
    def size(self) -> int:
        """Number of parameters."""
        return int(self.data.X.shape[1])

    @property
    def width(self) -> int:
        """Evaluations each record needs."""
        return int(self.combinations.offsets.shape[0])

    def scores(self, theta: Floats, rows: slice) -> Floats:
        """Return the scores of a block, shape (b, p)."""
        return self._scores(theta, rows, ExampleBlock.at(self.data, self.combinations, theta, rows))

    def totals(self, theta: Floats, rows: slice) -> Floats:
        """Return the sum of a block's scores, shape (p,)."""
        return np.asarray(self.scores(theta, rows).sum(axis=0), dtype=np.float64)

    def derivatives(
        self, theta: Floats, rows: slice, multipliers: Floats | None = None
    ) -> tuple[Floats, Floats]:
        """Return the sums of a block's scores (p,) and of their derivatives (p, p), optionally weighted."""
        block = ExampleBlock.at(self.data, self.combinations, theta, rows)
        scores = self._scores(theta, rows, block)
        weights: Floats | float = 1.0 if multipliers is None else multipliers[:, None]
        total = np.asarray((scores * weights).sum(axis=0), dtype=np.float64)
        return total, -self._second_moment(theta, block, [(weights, self.mean.slope)])

    def clean_squares(self, theta: Floats, rows: slice) -> Floats | None:
        """Return the sum of the inverse transform of ``(y - m)^2 x x'``."""
        block = ExampleBlock.at(self.data, self.combinations, theta, rows)
        y, square = self._label(rows)
        terms: list[tuple[Floats | float, Coefficients]] = [
            (square[:, None], (1.0,)),
            (-2.0 * y[:, None], self.mean.mean),
            (1.0, self.mean.squared_mean),
        ]
        return self._second_moment(theta, block, terms)

    def _scores(self, theta: Floats, rows: slice, block: ExampleBlock) -> Floats:
        y, _ = self._label(rows)
        c = self._squares(theta)
        t = self.data.noise * theta
        m = self.mean.mean
        u = self.mean.variable(block.eta)
        residual = block.weights * (y[:, None] - polyval(u, self.mean.transformed(m, 0, _without(c))))
        scores: Floats = block.base * residual.sum(axis=1)[:, None]
        if self.width > 1:
            scores += residual @ self.combinations.offsets
        for column in c:
            B = polyval(u, self.mean.transformed(m, 1, _without(c, column)))
            scores[:, column] += t[column] * (block.weights * B).sum(axis=1)
        return scores

    def _second_moment(
        self, theta: Floats, block: ExampleBlock, terms: Sequence[tuple[Floats | float, Coefficients]]
    ) -> Floats:
        """Return the sum over a block of W^-1[g x x'], g the sum of weights times polynomials in `terms`."""
        c = self._squares(theta)
        t = self.data.noise * theta
        u = self.mean.variable(block.eta)

        def transformed(order: int, *left_out: int) -> Floats:
            squares = _without(c, *left_out)
            total = np.zeros(u.shape)
            for weights, g in terms:
                total += weights * polyval(u, self.mean.transformed(g, order, squares))
            total *= block.weights
            return total

        total = block.second(transformed(0))
        for j in c:
            cross = np.outer(block.first(transformed(1, j))[0], t * (np.arange(self.size) == j))
            total -= cross + cross.T
            total[j, j] -= self.data.noise[j] * float(transformed(0, j).sum())
            for k in c:
                if k < j:
                    G = t[j] * t[k] * float(transformed(2, j, k).sum())
                    total[j, k] += G
                    total[k, j] += G
        return total

    def _squares(self, theta: Floats) -> dict[int, float]:
        """Return c_j = b_j^2 theta_j^2 of the columns with noise."""
        columns = np.flatnonzero(self.data.noise)
        return {int(j): float(self.data.noise[j] * theta[j] ** 2 / 2.0) for j in columns}

    def _label(self, rows: slice) -> tuple[Floats, Floats]:
        return self.data.label_moments(rows, SIGNED if self.signed else None)


def _without(c: dict[int, float], *columns: int) -> list[float]:
    return [number for column, number in c.items() if column not in columns]
