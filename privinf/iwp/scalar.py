"""Mean score, derivative and second moments of a loss on one linear predictor, block by block."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from privinf.iwp.data import Examples
from privinf.iwp.forms import Form
from privinf.iwp.noise import Combinations, LabelNoise
from privinf.typing import Floats

SIGNED = np.array([-1.0, 1.0])


@dataclass(frozen=True, slots=True)
class _Block:
    """One block at one theta: the linear predictor at every combination of levels.

    Attributes
    ----------
    base : (b, p) array
        Features, zero in the columns under response.
    offsets : (F, p) array
    weights : (b, F) array
        Inverse weights of the combinations.
    eta : (b, F) array
    """

    base: Floats
    offsets: Floats
    weights: Floats
    eta: Floats

    def first(self, w: Floats) -> Floats:
        """Return sum w_if x_if, shape (p,)."""
        total: Floats = self.base.T @ w.sum(axis=1) + w.sum(axis=0) @ self.offsets
        return total

    def second(self, w: Floats) -> Floats:
        """Return sum w_if x_if x_if', shape (p, p)."""
        total: Floats = self.base.T @ (self.base * w.sum(axis=1)[:, None])
        if self.offsets.shape[0] > 1:
            cross = (self.base.T @ w) @ self.offsets
            total += cross + cross.T + (self.offsets.T * w.sum(axis=0)) @ self.offsets
        return total


@dataclass(frozen=True, slots=True)
class ScalarEngine:
    """Scores ``sum_f w_f [a(eta_f) x_f + b(eta_f) S theta]`` over the combinations of levels f.

    Attributes
    ----------
    data : Examples
    form : Form
    combinations : Combinations
    """

    data: Examples
    form: Form
    combinations: Combinations

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
        t = self.data.noise * theta
        s = float(theta @ t)
        block = self._block(theta, rows)
        A, B = np.zeros_like(block.eta), np.zeros(block.eta.shape[0])
        for y, _, w in self._labels(rows, linear=self.form.linear):
            a, b = self.form.score(block.eta, y, s)
            weights = block.weights * w
            A += weights * a
            B += (weights * b).sum(axis=1)
        scores: Floats = block.base * A.sum(axis=1)[:, None]
        if self.width > 1:
            scores += A @ self.combinations.offsets
        if s > 0.0:
            scores += np.multiply.outer(B, t)
        return scores

    def totals(self, theta: Floats, rows: slice) -> Floats:
        """Return the sum of a block's scores, shape (p,)."""
        t = self.data.noise * theta
        s = float(theta @ t)
        block = self._block(theta, rows)
        total = np.zeros(self.size)
        for y, _, w in self._labels(rows, linear=self.form.linear):
            a, b = self.form.score(block.eta, y, s)
            weights = block.weights * w
            total += block.first(weights * a) + float((weights * b).sum()) * t
        return total

    def derivatives(
        self, theta: Floats, rows: slice, multipliers: Floats | None = None
    ) -> tuple[Floats, Floats]:
        """Return the sums of a block's scores (p,) and of their derivatives (p, p), optionally weighted."""
        t = self.data.noise * theta
        s = float(theta @ t)
        block = self._block(theta, rows)
        total, slope = np.zeros(self.size), np.zeros((self.size, self.size))
        outer = 1.0 if multipliers is None else multipliers[:, None]
        for y, _, w in self._labels(rows, linear=self.form.linear):
            parts = self.form.slopes(block.eta, y, s)
            weights = block.weights * (w * outer)
            b_sum = float((weights * parts.b).sum())
            total += block.first(weights * parts.a) + b_sum * t
            slope += block.second(weights * parts.a_eta)
            if self.data.noise.any():
                slope += 2.0 * np.outer(block.first(weights * parts.a_s), t)
                slope += np.outer(t, block.first(weights * parts.b_eta))
                slope += 2.0 * float((weights * parts.b_s).sum()) * np.outer(t, t)
                slope += b_sum * np.diag(self.data.noise)
        return total, slope

    def clean_squares(self, theta: Floats, rows: slice) -> Floats | None:
        """Return the sum of the inverse transform of the clean scores' outer products; None without one."""
        t = self.data.noise * theta
        s = float(theta @ t)
        block = self._block(theta, rows)
        total = np.zeros((self.size, self.size))
        for y, square, w in self._labels(rows, linear=isinstance(self.data.label, float)):
            terms = self.form.squares(block.eta, y, square, s)
            if terms is None:
                return None
            for term in terms:
                weights = block.weights * w * term.value
                shifted = weights * term.rate
                cross = np.outer(block.first(shifted), t)
                total += block.second(weights) - cross - cross.T
                total += float((shifted * term.rate).sum()) * np.outer(t, t)
                total -= float(weights.sum()) * np.diag(self.data.noise)
        return total

    def _block(self, theta: Floats, rows: slice) -> _Block:
        X = self.data.X[rows]
        base = self.combinations.base(X)
        eta = (base @ theta)[:, None] + self.combinations.offsets @ theta
        return _Block(base, self.combinations.offsets, self.combinations.weights(X), eta)

    def _labels(
        self, rows: slice, *, linear: bool
    ) -> Iterator[tuple[Floats | float, Floats | float, Floats | float]]:
        """Yield (y, y^2, weight): once with unbiased y where that is enough, else once for every level."""
        data, values = self.data, SIGNED if self.form.signed else None
        if linear or data.clear_label:
            y, square = data.label_moments(rows, values)
            yield y[:, None], square[:, None], 1.0
            return
        assert isinstance(data.label, LabelNoise)
        levels = np.arange(data.label.levels, dtype=np.float64) if values is None else values
        weights = data.label_weights(rows)
        for position, level in enumerate(levels):
            yield float(level), float(level) ** 2, weights[:, [position]]
