"""Scores of nonlinear losses, their derivatives and second moments, computed block by block.

`ScalarEngine` serves every loss on one linear predictor; `MultinomialEngine` the conditional score of
multinomial logistic regression.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from privinf.iwp.data import Examples
from privinf.iwp.forms import Form, Slopes
from privinf.iwp.noise import Combinations, LabelNoise
from privinf.typing import Floats

SIGNED = np.array([-1.0, 1.0])  # values of a label of two levels in losses of the margin y x'theta


@dataclass(frozen=True, slots=True)
class ExampleBlock:
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

    @classmethod
    def at(cls, data: Examples, combinations: Combinations, theta: Floats, rows: slice) -> ExampleBlock:
        """Return a block of rows at theta."""
        X = data.X[rows]
        base = combinations.base(X)
        eta = (base @ theta)[:, None] + combinations.offsets @ theta
        return cls(base, combinations.offsets, combinations.weights(X), eta)

    def first(self, *w: Floats) -> Floats:
        """Return sum w_if x_if for each w, shape (len(w), p)."""
        sums = np.array([part.sum(axis=0) for part in w]) @ self.offsets
        return np.asarray(np.stack([_by_row(part) for part in w]) @ self.base + sums, dtype=np.float64)

    def second(self, w: Floats) -> Floats:
        """Return sum w_if x_if x_if', shape (p, p)."""
        total: Floats = self.base.T @ (self.base * _by_row(w)[:, None])
        if self.offsets.shape[0] > 1:
            cross = (self.base.T @ w) @ self.offsets
            total += cross + cross.T + (self.offsets.T * w.sum(axis=0)) @ self.offsets
        return total


def _by_row(w: Floats) -> Floats:
    """Return the sums over combinations, shape (b,)."""
    return np.asarray(w[:, 0] if w.shape[1] == 1 else w.sum(axis=1), dtype=np.float64)


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
        block = ExampleBlock.at(self.data, self.combinations, theta, rows)
        A = np.zeros_like(block.eta)
        B = np.zeros(block.eta.shape[0])
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
        block = ExampleBlock.at(self.data, self.combinations, theta, rows)
        A = np.zeros_like(block.eta)
        b_sum = 0.0
        for y, _, w in self._labels(rows, linear=self.form.linear):
            a, b = self.form.score(block.eta, y, s)
            weights = block.weights * w
            A += weights * a
            b_sum += float((weights * b).sum())
        return np.asarray(block.first(A)[0] + b_sum * t, dtype=np.float64)

    def derivatives(
        self, theta: Floats, rows: slice, multipliers: Floats | None = None
    ) -> tuple[Floats, Floats]:
        """Return the sums of a block's scores (p,) and of their derivatives (p, p), optionally weighted."""
        t = self.data.noise * theta
        s = float(theta @ t)
        block = ExampleBlock.at(self.data, self.combinations, theta, rows)
        sums: list[Floats] = []
        for y, _, w in self._labels(rows, linear=self.form.linear):
            weights = block.weights * (w if multipliers is None else w * multipliers[:, None])
            parts = [weights * part for part in self.form.slopes(block.eta, y, s)]
            sums = [total + part for total, part in zip(sums, parts, strict=True)] if sums else parts
        summed = Slopes(*sums)
        b_sum = float(summed.b.sum())
        slope = block.second(summed.a_eta)
        if not self.data.noise.any():
            return block.first(summed.a)[0] + b_sum * t, slope
        total, in_s, in_eta = block.first(summed.a, summed.a_s, summed.b_eta)
        slope += 2.0 * np.outer(in_s, t) + np.outer(t, in_eta)
        slope += 2.0 * float(summed.b_s.sum()) * np.outer(t, t) + b_sum * np.diag(self.data.noise)
        return total + b_sum * t, slope

    def clean_squares(self, theta: Floats, rows: slice) -> Floats | None:
        """Return the sum of the inverse transform of the clean scores' outer products; None without one."""
        t = self.data.noise * theta
        s = float(theta @ t)
        block = ExampleBlock.at(self.data, self.combinations, theta, rows)
        total = np.zeros((self.size, self.size))
        for y, square, w in self._labels(rows, linear=isinstance(self.data.label, float)):
            terms = self.form.squares(block.eta, y, square, s)
            if terms is None:
                return None
            for term in terms:
                weights = block.weights * w * term.value
                shifted = weights * term.rate
                cross = np.outer(block.first(shifted)[0], t)
                total += block.second(weights) - cross - cross.T
                total += float((shifted * term.rate).sum()) * np.outer(t, t)
                total -= float(weights.sum()) * np.diag(self.data.noise)
        return total

    def _labels(
        self, rows: slice, *, linear: bool
    ) -> Iterator[tuple[Floats | float, Floats | float, Floats | float]]:
        """Yield (y, y^2, weight): once with unbiased y where that is enough, else once for every level."""
        data = self.data
        values = SIGNED if self.form.signed else None
        if linear or data.unprotected_label:
            y, square = data.label_moments(rows, values)
            yield y[:, None], square[:, None], 1.0
            return
        assert isinstance(data.label, LabelNoise)
        levels = np.arange(data.label.levels, dtype=np.float64) if values is None else values
        weights = data.label_weights(rows)
        for position, level in enumerate(levels):
            yield float(level), float(level) ** 2, weights[:, position, None]


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
        m = self.levels - 1
        p = self.data.X.shape[1]
        classes = theta.reshape(m, p)
        total = np.zeros((m, p))
        slope = np.zeros((m, p, m, p))
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
        base = self.combinations.base(X)
        feature_weights = self.combinations.weights(X)
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
            centered = eta - np.diag(gram) / 2
            for level in range(self.levels):
                target = np.eye(self.levels)[level, 1:]
                shift = noisy[level - 1] if level > 0 else none
                tilted = centered + gram[:, level - 1] if level > 0 else centered
                yield level, (x, target, _softmax(tilted), shift, w * weights[:, level])


def _softmax(eta: Floats) -> Floats:
    """Return the probabilities of levels 1, ..., L - 1 against the reference's 0, shape (b, L - 1)."""
    top = np.maximum(eta.max(axis=1, keepdims=True), 0.0)
    e = np.exp(eta - top)
    return np.asarray(e / (np.exp(-top) + e.sum(axis=1, keepdims=True)), dtype=np.float64)
