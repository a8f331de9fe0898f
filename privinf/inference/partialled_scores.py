r"""Scores of some coefficients, the others solved for: an equation of fewer coefficients.

Nuisance coefficients z of an equation ``psi(x, z) = g - A (x, z)`` solve their own rows at every x,
``z(x) = A_zz^-1 (g_z - A_zx x)``. What is left is linear in x,

.. math:: \tilde\psi(x) = P \psi(x, z(x)), \qquad P = (I, -A_{xz} A_{zz}^{-1}), \qquad
          n \operatorname{Cov} \tilde\psi(x) = P\,meat(x, z(x))\,P'.

Noise in A_xz and A_zz multiplies psi_z, which is zero at z(x): an error of second order.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from privinf.inference.linear_scores import Concentrated, ScoreDistribution, concentrate
from privinf.inference.one_step import OneStepScores
from privinf.typing import Flags, Floats


@dataclass(frozen=True, eq=False, kw_only=True)
class PartialledScores:
    """An equation of k of the p coefficients of another one, with the interface of score tests and sets.

    Attributes
    ----------
    system : OneStepScores
        Of all p coefficients.
    columns : ndarray of bool, shape (p,)
        The k coefficients that stay.
    noise_free : ndarray of bool, shape (k,)
        Those of them that score tests may solve for too.
    """

    system: OneStepScores
    columns: Flags
    noise_free: Flags

    @property
    def n(self) -> int:
        """Number of records."""
        return self.system.n

    @property
    def cov_type(self) -> str:
        """Kind of covariance."""
        return self.system.cov_type

    @property
    def distribution(self) -> ScoreDistribution:
        """Distribution of the score statistic."""
        return self.system.distribution

    @cached_property
    def _maps(self) -> Concentrated:
        return concentrate(self.system.A, self.system.g, self.columns)

    @cached_property
    def A(self) -> Floats:
        """Minus the derivative of the scores, shape (k, k)."""
        return np.asarray(self._maps.projection @ self.system.A @ self._maps.lift[:-1, :-1])

    @cached_property
    def g(self) -> Floats:
        """The scores at zero, shape (k,)."""
        return np.asarray(self._maps.projection @ (self.system.g - self.system.A @ self._maps.lift[:-1, -1]))

    def null_meat(self, beta: Floats) -> Floats:
        """Return n times the covariance of the scores at beta, shape (k, k)."""
        P = self._maps.projection
        return np.asarray(P @ self.system.null_meat(self._maps.coefficients(beta)) @ P.T)

    def tensor(self) -> Floats:
        """Return C, shape (k+1, k+1, k, k), with ``null_meat(b) = sum_kl w_k w_l C_kl`` at w = (b, 1)."""
        P = self._maps.projection
        lift = self._maps.lift
        tensor = np.einsum("ki,lj,klab,xa,yb->ijxy", lift, lift, self.system.tensor(), P, P, optimize=True)
        return np.asarray(tensor)
