"""Score confidence sets for single coefficients: inversion of the score test by projection."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from privinf.errors import ArgumentError, NotPositiveDefiniteError
from privinf.inference.estimate import is_positive_definite
from privinf.inference.linear_scores import LinearScores, ScoreLaw, concentrate, kept_columns
from privinf.inference.score_surface import ScoreSurface
from privinf.typing import Flags, Floats
from privinf.validation import check_fraction

_GRID = 48
_SWEEPS = 3
_SECTIONS = 8
_ROUNDS = 5


@dataclass(frozen=True, slots=True)
class ScoreSet:
    """A confidence set on the line; its pieces may be several, and unbounded.

    Attributes
    ----------
    pieces : tuple of (low, high)
        Disjoint closed intervals in increasing order; ends may be infinite.
    level : float
        1 - alpha.
    df : int
        Degrees of freedom of the statistic that was inverted.
    """

    pieces: tuple[tuple[float, float], ...]
    level: float
    df: int

    @property
    def hull(self) -> tuple[float, float]:
        """Smallest interval that holds the set."""
        return self.pieces[0][0], self.pieces[-1][1]

    @property
    def bounded(self) -> bool:
        """Whether both ends of the hull are finite."""
        return all(map(math.isfinite, self.hull))

    def __contains__(self, value: float) -> bool:
        """Whether a value lies in one of the pieces."""
        return any(low <= value <= high for low, high in self.pieces)

    def mapped(self, factor: float, shift: float = 0.0) -> ScoreSet:
        """Return the set of ``factor * value + shift``, factor nonzero: other units."""
        if factor == 0.0:
            raise ArgumentError("factor must not be zero")
        ends = [sorted((low * factor + shift, high * factor + shift)) for low, high in self.pieces]
        return ScoreSet(tuple(sorted((low, high) for low, high in ends)), self.level, self.df)


def score_sets(
    system: LinearScores,
    columns: Sequence[int] | None = None,
    *,
    alpha: float = 0.05,
    tested: ArrayLike | None = None,
) -> tuple[ScoreSet, ...]:
    r"""Confidence sets that hold at level 1 - alpha whatever the strength of identification.

    Parameters
    ----------
    system : LinearScores
    columns : sequence of int, optional
        Coefficients wanted; default all p.
    alpha : float
    tested : (p,) bool array, optional
        Columns that are nuisance-tested jointly: all that have noise (default), and any others.

    Returns
    -------
    tuple of ScoreSet, in the order of `columns` and the units of the system.

    Raises
    ------
    ArgumentError
        For alpha outside (0, 1) or columns that do not exist.
    NotPositiveDefiniteError
        If the scores are linearly dependent.

    Notes
    -----
    The set of b_j is ``{b_j : min over the other tested coefficients of T(b) <= chi2_{k, 1-alpha}}``: the
    shadow of the joint region on one axis, hence conservative for one coefficient and valid for all of
    them at once. It is unbounded exactly when the minimum of T at b_j = infinity is inside. A noise-free
    column that is not tested (an intercept, a public covariate) is added to the tested ones for its own
    set, so that k rises by one, and the remaining noise-free columns are concentrated out.

    The tensor of the system is formed once; after that the cost does not depend on n.

    **Privacy.** Post-processing.

    References
    ----------
    Dufour, J.-M. and Taamouti, M. (2005), Econometrica 73, 1351-1365 (projection of Anderson-Rubin sets).

    Examples
    --------
    >>> from privinf.inference.corrected_features import CorrectedLeastSquares
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-1, 1, (5000, 1))
    >>> strong = CorrectedLeastSquares(x + 0.1 * rng.standard_normal(x.shape), x[:, 0], [[0.01]])
    >>> weak = CorrectedLeastSquares(x + 9.0 * rng.standard_normal(x.shape), x[:, 0], [[81.0]])
    >>> score_sets(strong)[0].bounded, score_sets(weak)[0].bounded
    (True, False)
    """
    check_fraction(alpha, "alpha")
    kept = kept_columns(tested, system.noise_free)
    p = kept.shape[0]
    wanted = range(p) if columns is None else columns
    if not all(0 <= column < p for column in wanted):
        raise ArgumentError(f"columns must lie in 0..{p - 1}")
    tensor = system.tensor()
    if not tensor[:-1].any() and not tensor[:, :-1].any():
        return tuple(_ellipse_set(system, tensor[-1, -1], kept, column, alpha) for column in wanted)
    surfaces: dict[bytes, ScoreSurface] = {}
    sets = []
    for column in wanted:
        mask = kept.copy()
        mask[column] = True
        key = mask.tobytes()
        if key not in surfaces:
            maps = concentrate(system.A, system.g, mask)
            surfaces[key] = ScoreSurface.of(system.A, system.g, tensor, system.n, maps)
        sets.append(projected_set(surfaces[key], _position(mask, column), alpha, system.law))
    return tuple(sets)


def _ellipse_set(system: LinearScores, meat: Floats, kept: Flags, column: int, alpha: float) -> ScoreSet:
    """Return the set of one coefficient where the meat is the same everywhere: the shadow of an ellipse.

    ``T(b) = n (h - J b)' V^-1 (h - J b)`` has the set ``b^_j +- sqrt(chi2_k [J^-1 V J^-T]_jj / n)``. So it is
    without noise, of scores that were released at one point.
    """
    mask = kept.copy()
    mask[column] = True
    maps = concentrate(system.A, system.g, mask)
    J = maps.projection @ system.A @ maps.lift[:-1, :-1]
    h = maps.projection @ (system.g - system.A @ maps.lift[:-1, -1])
    place, df = _position(mask, column), len(h)
    if not is_positive_definite(maps.projection @ meat @ maps.projection.T):
        raise NotPositiveDefiniteError("the scores are linearly dependent: drop a collinear column")
    influence = np.linalg.solve(J.T, np.eye(df)[place])
    variance = float(influence @ maps.projection @ meat @ maps.projection.T @ influence) / system.n
    half = math.sqrt(system.law.critical(df, alpha) * variance)
    middle = float(influence @ h)
    return ScoreSet(((middle - half, middle + half),), 1.0 - alpha, df)


def _position(mask: Flags, column: int) -> int:
    return int(mask[:column].sum())


def projected_set(surface: ScoreSurface, coordinate: int, alpha: float, law: ScoreLaw) -> ScoreSet:
    """Return the shadow of {T <= critical value} on one coordinate."""
    df = surface.B.shape[0]
    line = _Line.of(surface, coordinate, critical=law.critical(df, alpha))
    angles = line.grid()
    values, points = line.profile(angles)
    inside = values <= line.critical
    edges = np.flatnonzero(inside[:-1] != inside[1:])
    crossings = line.crossings(angles, values, points, edges)
    ends = np.concatenate(
        [[-np.inf] if inside[0] else [], line.value(crossings), [np.inf] if inside[-1] else []]
    )
    pieces = tuple((float(low), float(high)) for low, high in ends.reshape(-1, 2))
    return ScoreSet(pieces, 1.0 - alpha, df)


@dataclass(frozen=True, slots=True)
class _Line:
    """The line of one coefficient closed by its point at infinity: ``b_j = centre + scale tan(angle)``.

    Angles run from -pi/2 to pi/2; both ends are the point at infinity.
    """

    surface: ScoreSurface
    coordinate: int
    centre: float
    scale: float
    critical: float

    @classmethod
    def of(cls, surface: ScoreSurface, coordinate: int, *, critical: float) -> _Line:
        """Centre at the estimate (T = 0), with a scale that puts a Wald interval at 45 degrees."""
        w = surface.unwhiten @ np.linalg.svd(surface.B)[2][-1]
        lean = w / w[-1] if abs(w[-1]) > 1e-12 * np.abs(w).max() else np.append(np.zeros(len(w) - 1), 1.0)
        slopes = surface.B @ np.linalg.inv(surface.unwhiten)[:, :-1]
        v = np.linalg.solve(surface.unwhiten, lean)
        spread = float(np.sqrt(v @ v)) * np.linalg.norm(np.linalg.pinv(slopes)[coordinate])
        scale = math.sqrt(critical) * float(spread)
        return cls(surface, coordinate, float(lean[coordinate]), scale if scale > 0.0 else 1.0, critical)

    def value(self, angles: Floats) -> Floats:
        """Return b_j at the given angles, strictly inside (-pi/2, pi/2)."""
        return np.asarray(self.centre + self.scale * np.tan(angles), dtype=np.float64)

    def normals(self, angles: Floats) -> Floats:
        """Return unit normals (N, m) of the hyperplanes {b_j fixed} in whitened coordinates."""
        normal = np.zeros((len(angles), self.surface.B.shape[1]))
        normal[:, self.coordinate] = np.cos(angles)
        normal[:, -1] -= self.centre * np.cos(angles) + self.scale * np.sin(angles)
        normal = normal @ self.surface.unwhiten
        return np.asarray(normal / np.linalg.norm(normal, axis=1, keepdims=True), dtype=np.float64)

    def grid(self) -> Floats:
        """Return angles: an even grid with both ends, and the angles of all local minima of T."""
        free = np.zeros((1, self.surface.B.shape[1]))
        starts = self.surface.starts(free, free.shape[1])[0]
        _, minima = self.surface.minimise(starts, np.zeros_like(starts))
        w = minima @ self.surface.unwhiten.T
        angles = np.arctan2(
            (w[:, self.coordinate] - self.centre * w[:, -1]) * np.sign(w[:, -1]),
            self.scale * np.abs(w[:, -1]),
        )
        inner = angles[np.abs(angles) < np.pi / 2 - 1e-9]
        return np.unique(np.concatenate([np.linspace(-np.pi / 2, np.pi / 2, _GRID + 1), inner]))

    def profile(self, angles: Floats) -> tuple[Floats, Floats]:
        """Return min T on each hyperplane (N,), and where (N, m)."""
        normals = self.normals(angles)
        N, m = normals.shape
        count = min(m - 1, 3)
        starts = self.surface.starts(normals, count).reshape(-1, m)
        values, points = self.surface.minimise(starts, np.repeat(normals, count, axis=0))
        best = values.reshape(N, count).argmin(axis=1)
        values, points = (
            values.reshape(N, count)[np.arange(N), best],
            points.reshape(N, count, m)[np.arange(N), best],
        )
        for _ in range(_SWEEPS):
            for shift in (1, -1):
                other, moved = self.surface.minimise(np.roll(points, shift, axis=0), normals)
                better = other < values - 1e-9 * (1.0 + values)
                values, points = np.where(better, other, values), np.where(better[:, None], moved, points)
        values[0] = values[-1] = min(values[0], values[-1])
        return values, points

    def crossings(self, angles: Floats, values: Floats, points: Floats, edges: np.ndarray) -> Floats:
        """Return the angles where the profile crosses the critical value, one for each edge of the grid."""
        low, high = angles[edges], angles[edges + 1]
        f_low, f_high = values[edges], values[edges + 1]
        v_low, v_high = points[edges], points[edges + 1]
        if edges.size == 0:
            return np.zeros(0)
        rows = np.arange(edges.size)
        fractions = np.linspace(0.0, 1.0, _SECTIONS + 1)
        for _ in range(_ROUNDS):
            inner = low[:, None] + (high - low)[:, None] * fractions
            between = inner[:, 1:-1].ravel()
            normals = self.normals(between)
            sides = [
                self.surface.minimise(np.repeat(v, _SECTIONS - 1, axis=0), normals) for v in (v_low, v_high)
            ]
            take = sides[1][0] < sides[0][0]
            f = np.where(take, sides[1][0], sides[0][0]).reshape(edges.size, -1)
            v = np.where(take[:, None], sides[1][1], sides[0][1]).reshape(edges.size, _SECTIONS - 1, -1)
            f = np.column_stack([f_low, f, f_high])
            v = np.concatenate([v_low[:, None], v, v_high[:, None]], axis=1)
            outside = (f <= self.critical) != (f_low <= self.critical)[:, None]
            at = outside.argmax(axis=1)
            low, high = inner[rows, at - 1], inner[rows, at]
            f_low, f_high = f[rows, at - 1], f[rows, at]
            v_low, v_high = v[rows, at - 1], v[rows, at]
        share = (self.critical - f_low) / (f_high - f_low)
        return np.asarray(low + np.clip(share, 0.0, 1.0) * (high - low), dtype=np.float64)
