"""One weak direction with a steep slope: what unflagged fits of noisy moments promise (calibrate_identification.py).

A cell is a design and its number of records, told by the true ratio r of the smallest eigenvalue of the scaled
Gram, the constant partialled out, to the noise sd of its entries. Rows are drawn anew for every eighth draw of
the noise; totals of a cell are solved at once. The formulas below are those of `NoisyTotals`, `solve` and
`identification`, and every cell is compared with them on its first fits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.stats import chi2, norm

from privinf.inference.score_test import LARGEST_STRETCH, THRESHOLD, identification
from privinf.inference.solution import solve
from privinf.moments.equation import NoisyTotals

RATIOS = (4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 34, 38)
BEFORE = THRESHOLD * np.sqrt(2.0)
NOISE_PER_ROWS = 8
PAIR = 0.187  # share of a column's own part: correlation .95
SHAPE = 0.87  # c |y| <= .87 of the norm of the features
DELTA = 1e-6

Rows = Callable[[np.random.Generator, int], np.ndarray]


def gaussian_mu(epsilon: float, delta: float) -> float:
    """mu of the Gaussian mechanism at (epsilon, delta), by the exact curve."""

    def excess(mu: float) -> float:
        above = norm.cdf(mu / 2 - epsilon / mu)
        return float(above - np.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu) - delta)

    return float(brentq(excess, 1e-3, 20.0))


@dataclass(frozen=True, slots=True)
class Weak:
    """A design in scaled units: |x_j| <= 1, |y| <= 1, a constant beside x.

    Attributes
    ----------
    slopes : (d,) array
    smallest : float
        Eigenvalue of the weak direction.
    """

    label: str
    rows: Rows
    slopes: np.ndarray
    smallest: float
    epsilon: float


def binary(d: int, slope: float = 0.6) -> Weak:
    """A column of 1% ones among uniform columns."""
    slopes = np.full(d, 0.3 / (d - 1)) * np.where(np.arange(d) % 2, -1.0, 1.0)
    slopes[0] = slope

    def rows(rng: np.random.Generator, n: int) -> np.ndarray:
        x = rng.uniform(-1, 1, (n, d))
        x[:, 0] = np.where(rng.random(n) < 0.01, 1.0, -1.0)
        return x

    return Weak(f"1% binary, slope {slope:g}, d={d}, eps=4", rows, slopes, 4 * 0.01 * 0.99, 4.0)


def pair(d: int, slope: float = 2.0) -> Weak:
    """Two columns correlated .95, with opposite slopes."""
    slopes = np.full(d, 0.1)
    slopes[:2] = slope, -slope

    def rows(rng: np.random.Generator, n: int) -> np.ndarray:
        x = rng.uniform(-1, 1, (n, d))
        x[:, :2] = (1 - PAIR) * rng.uniform(-1, 1, (n, 1)) + PAIR * x[:, :2]
        return x

    return Weak(f"pair at .95, slopes +-{slope:g}, d={d}, eps=4", rows, slopes, PAIR**2 / 3, 4.0)


def loose(d: int, factor: float, epsilon: float, reach: float = 0.8) -> Weak:
    """Bounds of x that are `factor` times too wide; the first column moves y by `reach` either way."""
    slopes = np.full(d, 0.1 * factor / max(d - 1, 1))
    slopes[0] = reach * factor

    def rows(rng: np.random.Generator, n: int) -> np.ndarray:
        return rng.uniform(-1, 1, (n, d)) / factor

    label = f"x {factor:g} times loose, slope moves y by {reach:g}, d={d}, eps={epsilon:g}"
    return Weak(label, rows, slopes, 1 / (3 * factor**2), epsilon)


CELLS = (
    binary(5),
    binary(10),
    binary(20),
    pair(2),
    pair(5),
    loose(1, 10, 4.0),
    loose(3, 10, 4.0),
    loose(3, 3, 1.0),
    binary(5, 0.1),
    pair(2, 0.2),
    loose(3, 3, 1.0, 0.1),
)


@dataclass(frozen=True, slots=True)
class Fits:
    """What many fits of a cell gave.

    Attributes
    ----------
    ratio, stretch : (r,) arrays
    miss : (r, d + 1) bool array
    reject : (r,) bool array
        Of the joint Wald test of all slopes.
    """

    ratio: np.ndarray
    stretch: np.ndarray
    miss: np.ndarray
    reject: np.ndarray

    def unflagged(self, stretch: float) -> np.ndarray:
        return (self.ratio >= BEFORE) & (self.stretch <= stretch)


def totals(
    cell: Weak, n: int, scale: float, weight: float, reps: int, rng: np.random.Generator
) -> np.ndarray:
    """Return noisy mean second moments of (1, x, c y), shape (reps, d + 2, d + 2)."""
    size = cell.slopes.shape[0] + 2
    clean = np.empty((-(-reps // NOISE_PER_ROWS), size, size))
    for k in range(len(clean)):
        x = cell.rows(rng, n)
        y = x @ cell.slopes + 0.05 * np.sqrt(3.0) * rng.uniform(-1, 1, n)
        z = np.column_stack([np.ones(n), x, weight * y])
        clean[k] = z.T @ z / n
    noise = rng.standard_normal((reps, size, size))
    noise = (noise + np.swapaxes(noise, 1, 2)) * scale / (2.0 * n)
    noise[:, 0, 0] = 0.0
    return np.repeat(clean, NOISE_PER_ROWS, axis=0)[:reps] + noise


def _meats(beta: np.ndarray, positive: np.ndarray, n: int, scale: float, weight: float) -> np.ndarray:
    """Return Cov(psibar) at each of the betas."""
    reps, p = beta.shape
    w = np.column_stack([-beta, np.full(reps, 1.0 / weight)])
    noise = np.sum(w**2, axis=1)[:, None, None] * np.eye(p) + w[:, :p, None] * w[:, None, :p]
    noise[:, 0, 0] -= 2.0 * w[:, 0] ** 2
    ends = np.column_stack([beta, np.ones(reps)])
    variance = np.einsum("ri,rij,rj->r", ends, positive, ends)
    return variance[:, None, None] * positive[:, :-1, :-1] / n + noise * (scale / n) ** 2 / 2.0


def _squares(vectors: np.ndarray, meats: np.ndarray) -> np.ndarray:
    return np.einsum("ri,ri->r", vectors, np.linalg.solve(meats, vectors[:, :, None])[:, :, 0])


def fits(W: np.ndarray, n: int, scale: float, weight: float, truth: np.ndarray) -> Fits:
    """Solve all totals; where A is not positive definite the ratio is minus infinity."""
    flip = np.diag(np.append(-np.ones(len(truth)), 1.0 / weight))
    Q = flip @ W @ flip
    reduced = Q[:, 1:-1, 1:-1] - Q[:, 1:-1, :1] * Q[:, :1, 1:-1] / Q[:, :1, :1]
    values, vectors = np.linalg.eigh(reduced)
    good = values[:, 0] > 0.0
    Q, A, g = Q[good], Q[good, :-1, :-1], -Q[good, :-1, -1]
    spectrum, axes = np.linalg.eigh(W[good])
    positive = flip @ ((axes * np.maximum(spectrum, 0.0)[:, None, :]) @ np.swapaxes(axes, 1, 2)) @ flip
    beta = np.linalg.solve(A, g[:, :, None])[:, :, 0]
    inverse = np.linalg.inv(A)
    meats = _meats(beta, positive, n, scale, weight)
    cov = inverse @ meats @ inverse
    error = beta - truth
    contrast = np.pad(vectors[good, :, 0], ((0, 0), (1, 0)))
    along = np.einsum("rij,rj->ri", cov, contrast)
    step = 1.96 * along / np.sqrt(np.einsum("ri,ri->r", contrast, along))[:, None]
    psi = np.einsum("rij,rj->ri", A, step)
    squares = [_squares(psi, _meats(b, positive, n, scale, weight)) for b in (beta - step, beta + step)]
    # The Wald interval's residual variance has divisor n - p, and what the fit to the noise took off.
    ends = np.column_stack([beta, np.ones(len(beta))])
    least, found = (np.einsum("ri,rij,rj->r", ends, form, ends) for form in (positive, Q))
    noise = meats - least[:, None, None] * positive[:, :-1, :-1] / n
    found = np.maximum(found + np.einsum("rij,rji->r", inverse, noise), least) * n / (n - len(truth))
    cov = inverse @ (noise + found[:, None, None] * positive[:, :-1, :-1] / n) @ inverse
    miss, reject = np.ones((len(W), len(truth)), bool), np.ones(len(W), bool)
    miss[good] = np.abs(error) > 1.96 * np.sqrt(np.einsum("rii->ri", cov))
    reject[good] = _squares(error[:, 1:], cov[:, 1:, 1:]) > chi2.ppf(0.95, len(truth) - 1)
    ratio, stretch = np.full(len(W), -np.inf), np.full(len(W), np.inf)
    ratio[good] = values[good, 0] * n / scale
    few = 1.0 + 1.96**2 / n
    stretch[good] = 1.96 / np.sqrt(np.minimum(*squares) * few) - 1.0
    return Fits(ratio, stretch, miss, reject)


def simulate(cell: Weak, ratio: float, reps: int, rng: np.random.Generator) -> tuple[int, Fits]:
    """Return the number of records at a true ratio, and the fits."""
    d = cell.slopes.shape[0]
    weight = SHAPE * np.sqrt(1 + d)
    scale = np.sqrt(2.0) * (1 + d) * (1 + SHAPE**2) / gaussian_mu(cell.epsilon, DELTA)
    n = round(ratio * scale / cell.smallest)
    W, truth = totals(cell, n, scale, weight, reps, rng), np.append(0.0, cell.slopes)
    found = fits(W, n, scale, weight, truth)
    for k in range(2):
        system = NoisyTotals(W[k], n=n, public=1, weight=weight, scale=scale)
        same = identification(system)
        assert np.isclose(same.statistic * np.sqrt(2.0 * d), found.ratio[k]) or found.ratio[k] < 0.0
        assert np.isclose(same.stretch, found.stretch[k]) or same.stretch == 0.0
        cov = solve(system).cov
        if cov is not None:
            wrong = np.abs(solve(system).params - truth) > 1.96 * np.sqrt(np.diag(cov))
            assert np.array_equal(wrong, found.miss[k])
    return n, found


def table(reps: int, rng: np.random.Generator) -> list[str]:
    """Return the lines of the section, a line a cell and the worst over its ratios in each column."""
    rules = {
        f"ratio {BEFORE:.2f}": (BEFORE, np.inf),
        "ratio 8": (8.0, np.inf),
        "ratio 12": (12.0, np.inf),
        f"ratio {BEFORE:.2f}, stretch": (BEFORE, LARGEST_STRETCH),
    }
    lines = ["| cell | " + " | ".join(rules) + " |", "|---" * (1 + len(rules)) + "|"]
    worst = {name: [0.0, 0.0, 0.0] for name in rules}
    for cell in CELLS:
        found = {ratio: simulate(cell, ratio, reps, rng)[1] for ratio in RATIOS}
        entries = []
        for name, (least, most) in rules.items():
            first, miss, reject, overall = np.inf, (0.0, 0), (0.0, 0), 0.0
            for ratio, many in found.items():
                kept = (many.ratio >= least) & (many.stretch <= most)
                overall = max(overall, float((kept[:, None] & many.miss).mean(axis=0).max()))
                if kept.mean() >= 0.5:
                    first = min(first, ratio)
                    miss = max(miss, (float(many.miss[kept].mean(axis=0).max()), ratio))
                    reject = max(reject, (float(many.reject[kept].mean()), ratio))
            worst[name] = [max(pair) for pair in zip(worst[name], (miss[0], reject[0], overall), strict=True)]
            entries.append(
                f"{first:g}: {miss[0]:.3f} ({miss[1]}), {reject[0]:.3f} ({reject[1]}), {overall:.3f}"
            )
        lines.append(f"| {cell.label} | " + " | ".join(entries) + " |")
        print(lines[-1], flush=True)
    ends = [f"{miss:.3f}, {reject:.3f}, {overall:.3f}" for miss, reject, overall in worst.values()]
    return [*lines, "| **largest** | " + " | ".join(ends) + " |"]
