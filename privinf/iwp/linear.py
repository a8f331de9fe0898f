"""Scores of the squared and quadratic losses: linear in theta, so that moments are formed once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privinf.errors import ArgumentError
from privinf.iwp.data import Examples
from privinf.iwp.noise import Combinations
from privinf.iwp.scalar import SIGNED
from privinf.typing import Floats


@dataclass(frozen=True, slots=True)
class LinearEngine:
    r"""Scores ``x^ y^ - Q theta`` with ``E[Q | x] = x x'``.

    Attributes
    ----------
    data : Examples
    signed : bool
        Labels are -1 and 1 (quadratic loss) rather than codes or numbers.

    Notes
    -----
    x^ holds the Gaussian columns as sent and the unbiased indicators of the columns under response.
    ``Q = x^ x^' - S``, except inside a factor under response, where it is diag(x^): exactly one indicator
    is one. For two levels that is x^^2 - v, v the variance of x^. This equals the sum over all level
    combinations, for any number of them.
    """

    data: Examples
    signed: bool

    @property
    def size(self) -> int:
        """Number of parameters."""
        return int(self.data.X.shape[1])

    @property
    def width(self) -> int:
        """Evaluations each record needs."""
        return 1

    def scores(self, theta: Floats, rows: slice) -> Floats:
        """Return the scores of a block, shape (b, p)."""
        X, y = self._unbiased(rows), self._label(rows)[0]
        scores = X * (y - X @ theta)[:, None]
        scores += self.data.noise * theta
        for response in self.data.responses:
            columns = list(response.columns)
            part = X[:, columns]
            scores[:, columns] += part * (part @ theta[columns])[:, None] - part * theta[columns]
        return scores

    def totals(self, theta: Floats, rows: slice) -> Floats:
        """Return the sum of a block's scores, shape (p,)."""
        total: Floats = self.scores(theta, rows).sum(axis=0)
        return total

    def derivatives(
        self, theta: Floats, rows: slice, multipliers: Floats | None = None
    ) -> tuple[Floats, Floats]:
        """Return the sums of a block's scores (p,) and of their derivatives (p, p), optionally weighted."""
        X, y = self._unbiased(rows), self._label(rows)[0]
        weights = np.ones(y.shape) if multipliers is None else multipliers
        weighted = X if multipliers is None else X * weights[:, None]
        gram = weighted.T @ X - float(weights.sum()) * np.diag(self.data.noise)
        for response in self.data.responses:
            columns = list(response.columns)
            gram[np.ix_(columns, columns)] = np.diag(weighted[:, columns].sum(axis=0))
        return weighted.T @ y - gram @ theta, -gram

    def clean_squares(self, theta: Floats, rows: slice) -> Floats | None:
        r"""Return the sum of the inverse transform of ``(y - x'theta)^2 x x'``; None beyond 64 combinations.

        Notes
        -----
        With r = y - x'theta, t = S theta, s = theta't:
        ``(r^2 - s)(x x' - S) + 2 r (t x' + x t') + 2 t t'``, summed over the level combinations.
        """
        try:
            combinations = Combinations.of(self.data.responses, self.size)
        except ArgumentError:
            return None
        X = self.data.X[rows]
        y, square = self._label(rows)
        base, weights = combinations.base(X), combinations.weights(X)
        t = self.data.noise * theta
        s = float(theta @ t)
        total = np.zeros((self.size, self.size))
        for position, offset in enumerate(combinations.offsets):
            w, x = weights[:, position], base + offset
            eta = x @ theta
            r2 = w * (square - 2.0 * y * eta + eta**2 - s)
            cross = np.outer(t, 2.0 * (w * (y - eta)) @ x)
            total += x.T @ (x * r2[:, None]) - float(r2.sum()) * np.diag(self.data.noise)
            total += cross + cross.T + 2.0 * float(w.sum()) * np.outer(t, t)
        return total

    def _unbiased(self, rows: slice) -> Floats:
        X = self.data.X[rows]
        if self.data.responses:
            X = X.copy()
            for response in self.data.responses:
                X[:, list(response.columns)] = response.unbiased(X)
        return X

    def _label(self, rows: slice) -> tuple[Floats, Floats]:
        return self.data.label_moments(rows, SIGNED if self.signed else None)
