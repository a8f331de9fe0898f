"""Conditional score of multinomial logistic regression, block by block."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from privinf.iwp.data import Examples
from privinf.iwp.noise import Combinations
from privinf.typing import Floats


@dataclass(frozen=True, slots=True)
class MultinomialEngine:
    r"""Scores of L levels, the first the reference; parameters class by class, (L - 1) p of them.

    Attributes
    ----------
    data : Examples
        With a `LabelNoise` as label.
    combinations : Combinations
    levels : int

    Notes
    -----
    With ``Delta_l = x + S theta_l`` and ``p_j(Delta)`` proportional to
    ``exp(theta_j'Delta - theta_j'S theta_j/2)``, theta_0 = 0, the score of class j is
    ``(1{l = j} - p_j(Delta_l)) Delta_l``, summed over levels l and combinations with their inverse
    weights. Without Gaussian noise it is linear in the indicators of the label, and one evaluation is
    enough.
    """

    data: Examples
    combinations: Combinations
    levels: int

    @property
    def size(self) -> int:
        """Number of parameters."""
        return (self.levels - 1) * int(self.data.X.shape[1])

    @property
    def width(self) -> int:
        """Evaluations each record needs."""
        return int(self.combinations.offsets.shape[0]) * (self.levels - 1) ** 2

    def scores(self, theta: Floats, rows: slice) -> Floats:
        """Return the scores of a block, shape (b, (L - 1) p)."""
        classes = theta.reshape(self.levels - 1, -1)
        total = np.zeros((len(self.data.labels[rows]), *classes.shape))
        for x, target, p, shift, w in self._terms(classes, rows):
            residual = (target - p) * w[:, None]
            total += residual[:, :, None] * (x + shift)[:, None, :]
        return total.reshape(-1, self.size)

    def totals(self, theta: Floats, rows: slice) -> Floats:
        """Return the sum of a block's scores, shape ((L - 1) p,)."""
        classes = theta.reshape(self.levels - 1, -1)
        total = np.zeros_like(classes)
        for x, target, p, shift, w in self._terms(classes, rows):
            residual = (target - p) * w[:, None]
            total += residual.T @ x + np.multiply.outer(residual.sum(axis=0), shift)
        return total.ravel()

    def derivatives(
        self, theta: Floats, rows: slice, multipliers: Floats | None = None
    ) -> tuple[Floats, Floats]:
        """Return the sums of a block's scores and of their derivatives, optionally weighted."""
        m, p = self.levels - 1, self.data.X.shape[1]
        classes = theta.reshape(m, p)
        total, slope = np.zeros((m, p)), np.zeros((m, p, m, p))
        for level, (x, target, probability, shift, w) in self._numbered(classes, rows):
            w = w if multipliers is None else w * multipliers
            residual = (target - probability) * w[:, None]
            total += residual.T @ x + np.multiply.outer(residual.sum(axis=0), shift)
            slope -= self._curvature(classes, x, probability, shift, w, level)
            if level is not None and level > 0:
                slope[:, :, level - 1, :] += np.einsum(
                    "j,ab->jab", residual.sum(axis=0), np.diag(self.data.noise)
                )
        return total.ravel(), slope.reshape(self.size, self.size)

    def clean_squares(self, theta: Floats, rows: slice) -> Floats | None:
        """Return the sum of the inverse transform of the clean outer products; None under Gaussian noise."""
        if self.data.noise.any():
            return None
        m = self.levels - 1
        classes = theta.reshape(m, -1)
        total = np.zeros((self.size, self.size))
        weights = self.data.label_weights(rows)
        for x, _, p, _, w in self._terms(classes, rows):
            for level in range(self.levels):
                residual = (np.eye(self.levels)[level, 1:] - p)[:, :, None] * x[:, None, :]
                scores = residual.reshape(-1, self.size)
                total += scores.T @ (scores * (w * weights[:, level])[:, None])
        return total

    def _curvature(
        self, classes: Floats, x: Floats, p: Floats, shift: Floats, w: Floats, level: int | None
    ) -> Floats:
        """Return sum over the block of w Delta_l (dp_j/dtheta_k)', shape (m, p, m, p)."""
        m, columns = classes.shape
        H = -p[:, :, None] * p[:, None, :] * w[:, None, None]
        H[:, np.arange(m), np.arange(m)] += p * w[:, None]
        curvature = np.empty((m, columns, m, columns))
        for j in range(m):
            for k in range(j, m):
                curvature[j, :, k] = curvature[k, :, j] = x.T @ (x * H[:, j, k, None])
        if level is None:
            return curvature
        first = np.einsum("bjk,ba->jka", H, x, optimize=True)
        zeroth = H.sum(axis=0)
        curvature += np.einsum("a,jkc->jakc", shift, first)
        tilt = self._tilt(classes, level)
        half = first + zeroth[:, :, None] * shift
        curvature += np.einsum("jia,ikc->jakc", half, tilt)
        return curvature

    def _tilt(self, classes: Floats, level: int) -> Floats:
        """Return r_ik = d xi_i/d theta_k - 1{i = k} x, constant over records, shape (m, m, p)."""
        noisy = classes * self.data.noise
        m = classes.shape[0]
        tilt = np.zeros((m, m, classes.shape[1]))
        tilt[np.arange(m), np.arange(m)] = (noisy[level - 1] if level > 0 else 0.0) - noisy
        if level > 0:
            tilt[:, level - 1] += noisy
        return tilt

    def _terms(self, classes: Floats, rows: slice) -> Iterator[tuple[Floats, Floats, Floats, Floats, Floats]]:
        for _, term in self._numbered(classes, rows):
            yield term

    def _numbered(
        self, classes: Floats, rows: slice
    ) -> Iterator[tuple[int | None, tuple[Floats, Floats, Floats, Floats, Floats]]]:
        """Yield (level, (x, target, p, S theta_level, weight)); level None where one evaluation is enough."""
        X = self.data.X[rows]
        base, feature_weights = self.combinations.base(X), self.combinations.weights(X)
        weights = self.data.label_weights(rows)
        noisy = classes * self.data.noise
        gram = classes @ noisy.T
        none = np.zeros(X.shape[1])
        for position, offset in enumerate(self.combinations.offsets):
            x = base + offset if self.combinations.responses else base
            eta = x @ classes.T
            w = feature_weights[:, position]
            if not self.data.noise.any():
                yield None, (x, weights[:, 1:], _softmax(eta), none, w)
                continue
            centred = eta - np.diag(gram) / 2
            for level in range(self.levels):
                target = np.eye(self.levels)[level, 1:]
                shift = noisy[level - 1] if level > 0 else none
                tilted = centred + gram[:, level - 1] if level > 0 else centred
                yield level, (x, target, _softmax(tilted), shift, w * weights[:, level])


def _softmax(eta: Floats) -> Floats:
    """Return the probabilities of levels 1, ..., L - 1 against the reference's 0, shape (b, L - 1)."""
    top = np.maximum(eta.max(axis=1, keepdims=True), 0.0)
    e = np.exp(eta - top)
    probabilities: Floats = e / (np.exp(-top) + e.sum(axis=1, keepdims=True))
    return probabilities
