"""From a loss and its correction to the engine that sums its scores; the engine of linear scores."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from privinf.errors import ArgumentError
from privinf.iwp.data import Examples
from privinf.iwp.forms import ConditionalForm, ExponentialForm, Form, PoissonForm, SeriesForm
from privinf.iwp.laplace import LaplaceEngine, SmoothMean
from privinf.iwp.noise import Combinations, LabelNoise
from privinf.iwp.nonlinear import SIGNED, MultinomialEngine, ScalarEngine
from privinf.iwp.transforms import exponential_derivatives, logistic_derivatives, quadratic_derivatives
from privinf.typing import Floats

DERIVATIVES = {
    "quadratic": quadratic_derivatives,
    "exponential": exponential_derivatives,
    "logistic": logistic_derivatives,
}
Engine: TypeAlias = "ScalarEngine | MultinomialEngine | LinearEngine | LaplaceEngine"


def engine_for(data: Examples, loss: str, correction: str, truncation: int | None) -> Engine:
    """Return the engine of a loss under a correction."""
    if loss in {"squared", "quadratic"}:
        # The series of a quadratic is exact from its first term on.
        if correction == "series" and truncation == 0:
            return LinearEngine(replace(data, noise=np.zeros_like(data.noise)), signed=True)
        return LinearEngine(data, signed=loss == "quadratic")
    combinations = data.combinations()
    if loss == "multinomial":
        assert isinstance(data.label, LabelNoise)
        return MultinomialEngine(data, combinations, data.label.levels)
    if data.laplace:
        return LaplaceEngine(data, SmoothMean(logistic=True), combinations)
    form = _form(loss, correction, truncation, gaussian=bool(data.noise.any()))
    return ScalarEngine(data, form, combinations)


def _form(loss: str, correction: str, truncation: int | None, *, gaussian: bool) -> Form:
    if correction == "series" and gaussian:
        assert truncation is not None
        return SeriesForm(DERIVATIVES[loss], truncation)
    if loss == "exponential":
        return ExponentialForm()
    return PoissonForm() if loss == "poisson" else ConditionalForm(linear=not gaussian)


def ignoring_noise(data: Examples) -> Examples:
    """Return the same examples as if they had been sent without protection."""
    label = LabelNoise(data.label.levels, 1.0, 0.0) if isinstance(data.label, LabelNoise) else 0.0
    return Examples(X=data.X, labels=data.labels, noise=np.zeros_like(data.noise), responses=(), label=label)


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
        return np.asarray(self.scores(theta, rows).sum(axis=0), dtype=np.float64)

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
        ``(r^2 - s)(x x' - S) + 2 r (t x' + x t') + 2 t t'``, summed over the level combinations. Laplace
        noise has other fourth moments: `privinf.iwp.laplace`.
        """
        try:
            combinations = Combinations.from_responses(self.data.responses, self.size)
        except ArgumentError:
            return None
        if self.data.laplace:
            engine = LaplaceEngine(self.data, SmoothMean(logistic=False), combinations, self.signed)
            return engine.clean_squares(theta, rows)
        X = self.data.X[rows]
        y, square = self._label(rows)
        base = combinations.base(X)
        weights = combinations.weights(X)
        t = self.data.noise * theta
        s = float(theta @ t)
        total = np.zeros((self.size, self.size))
        for position, offset in enumerate(combinations.offsets):
            w = weights[:, position]
            x = base + offset
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
