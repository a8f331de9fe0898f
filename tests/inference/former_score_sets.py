"""Score sets as they were sought, one coefficient at a time: the reference of `score_sets`."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from privinf.errors import NotPositiveDefiniteError
from privinf.inference.linear_scores import concentrate, kept_columns
from privinf.inference.score_sets import ScoreSet

_ITERATIONS = 60
_TOLERANCE = 1e-10
_LARGEST_STEP = 0.5
_GRID = 48
_SWEEPS = 3
_SECTIONS = 8
_ROUNDS = 5


def score_sets(system, columns=None, *, alpha=0.05, tested=None):
    """Return the sets of `privinf.inference.score_sets.score_sets`, by the former search."""
    kept = kept_columns(tested, system.noise_free)
    tensor, sets = system.tensor(), []
    for column in range(len(kept)) if columns is None else columns:
        mask = kept.copy()
        mask[column] = True
        surface = Surface.from_arrays(
            system.A, system.g, tensor, system.n, concentrate(system.A, system.g, mask)
        )
        sets.append(projected_set(surface, int(mask[:column].sum()), alpha, system.distribution))
    return tuple(sets)


@dataclass(frozen=True, slots=True)
class Surface:
    """T in whitened coordinates: ``w = unwhiten v``, with V(w) near |v|^2 I on average.

    Attributes
    ----------
    B : (k, m) array
        Root-n psibar is ``B v``; m = k + 1.
    C : (m, m, k, k) array
    unwhiten : (m, m) array
    """

    B: np.ndarray
    C: np.ndarray
    unwhiten: np.ndarray

    @classmethod
    def from_arrays(cls, A, g, tensor, n, maps):
        """Return the surface of a system with its concentrated columns removed.

        Raises
        ------
        NotPositiveDefiniteError
            If the scores are linearly dependent.
        """
        P, lift = maps.projection, maps.lift
        B = np.sqrt(n) * P @ np.column_stack([-A, g]) @ lift
        C = np.einsum("ki,lj,klab,ca,db->ijcd", lift, lift, tensor, P, P, optimize=True)
        try:
            rows, columns = _whitening(C)
        except np.linalg.LinAlgError:
            raise NotPositiveDefiniteError(
                "the scores are linearly dependent: a column is collinear, or the fit is perfect"
            ) from None
        C = np.einsum("ki,lj,klab,ca,db->ijcd", columns, columns, C, rows, rows, optimize=True)
        return cls(rows @ B @ columns, C, columns)

    def evaluate(self, v):
        """Return T (N,), its gradient (N, m) and Hessian (N, m, m) at N points v (N, m)."""
        N, m = v.shape
        k = self.B.shape[0]
        both = self.C + self.C.transpose(1, 0, 2, 3)
        dV = (v @ both.reshape(m, -1)).reshape(N, m, k, k)
        V = np.einsum("nk,nkab->nab", v, dV) / 2
        psi = v @ self.B.T
        try:
            inverse = np.linalg.inv(V)
        except np.linalg.LinAlgError:
            raise NotPositiveDefiniteError(
                "the scores are constant at some coefficients: the fit is perfect"
            ) from None
        q = np.einsum("nab,nb->na", inverse, psi)
        J = self.B - np.einsum("nkab,nb->nak", dV, q)
        D = (
            np.einsum("na,nb->nab", q, q).reshape(N, -1) @ self.C.transpose(2, 3, 0, 1).reshape(k * k, -1)
        ).reshape(N, m, m)
        value = np.einsum("na,na->n", psi, q)
        gradient = q @ self.B + np.einsum("nak,na->nk", J, q)
        hessian = 2.0 * (J.transpose(0, 2, 1) @ (inverse @ J) - (D + D.transpose(0, 2, 1)) / 2)
        return value, gradient, hessian

    def starts(self, normals, count):
        """Return (N, count, m) starting points orthogonal to N unit normals: minima were V constant."""
        F = self.B.T @ self.B
        lift = 2.0 * np.trace(F) + 1.0
        P = np.eye(F.shape[0]) - np.einsum("ni,nj->nij", normals, normals)
        inside = P @ F @ P + lift * np.einsum("ni,nj->nij", normals, normals)
        return np.asarray(np.linalg.eigh(inside)[1][:, :, :count].transpose(0, 2, 1), dtype=np.float64)

    def minimise(self, v, normals):
        """Return local minima of T on {v orthogonal to normal}, from N starting points.

        Parameters
        ----------
        v, normals : (N, m) arrays
            Starting points and unit normals; a zero normal is no constraint.

        Returns
        -------
        value : (N,) array
        v : (N, m) array
            Unit vectors.
        """
        v = _unit(v - np.einsum("ni,ni->n", v, normals)[:, None] * normals)
        value, gradient, hessian = self.evaluate(v)
        radius = np.full(len(v), _LARGEST_STEP)
        active = np.arange(len(v))
        for _ in range(_ITERATIONS):
            step, gain = _newton_steps(
                v[active], normals[active], gradient[active], hessian[active], radius[active]
            )
            moving = gain > _TOLERANCE * (1.0 + value[active])
            active, step = active[moving], step[moving]
            if active.size == 0:
                break
            trial = _unit(v[active] + step)
            new_value, new_gradient, new_hessian = self.evaluate(trial)
            better = new_value < value[active]
            length = np.linalg.norm(step, axis=1)
            radius[active] = np.where(better, np.minimum(2.0 * radius[active], _LARGEST_STEP), length / 4.0)
            accepted = active[better]
            v[accepted], value[accepted] = trial[better], new_value[better]
            gradient[accepted], hessian[accepted] = new_gradient[better], new_hessian[better]
            active = active[better | (radius[active] > 1e-12)]
        return value, v


def _whitening(C):
    """Return (rows, columns) under which C is near the Kronecker product of identities (flip-flop)."""
    m, k = C.shape[0], C.shape[2]
    inner = np.einsum("kkab->ab", C)
    outer = np.eye(m)
    for _ in range(5):
        outer = np.einsum("ab,klab->kl", np.linalg.inv(inner), C) / k
        inner = np.einsum("kl,klab->ab", np.linalg.inv(outer), C) / m
    rows = np.linalg.inv(np.linalg.cholesky((inner + inner.T) / 2))
    columns = np.linalg.inv(np.linalg.cholesky((outer + outer.T) / 2)).T
    return np.asarray(rows, dtype=np.float64), np.asarray(columns, dtype=np.float64)


def _newton_steps(v, normals, gradient, hessian, radius: np.ndarray):
    """Return descent steps in the tangent space, no longer than radius, and the decrease they promise."""
    P = np.eye(v.shape[1]) - np.einsum("ni,nj->nij", v, v) - np.einsum("ni,nj->nij", normals, normals)
    slope = np.einsum("nij,nj->ni", P, gradient)
    tangent = P @ hessian @ P
    size = np.linalg.norm(tangent, axis=(1, 2))[:, None, None]
    values, vectors = np.linalg.eigh(tangent + size * (np.eye(v.shape[1]) - P))
    curvature = np.maximum(np.abs(values), 1e-9 * size[:, 0] + 1e-300)
    along = np.einsum("nji,nj->ni", vectors, slope)
    step = -np.einsum("nij,njk,nk->ni", P, vectors, along / curvature, optimize=True)
    shrink = np.minimum(1.0, radius / np.maximum(np.linalg.norm(step, axis=1), 1e-300))
    step *= shrink[:, None]
    return step, -np.einsum("ni,ni->n", slope, step) / 2


def _unit(v):
    return np.asarray(v / np.linalg.norm(v, axis=1, keepdims=True), dtype=np.float64)


def projected_set(surface, coordinate, alpha, distribution):
    """Return the shadow of {T <= critical value} on one coordinate."""
    df = surface.B.shape[0]
    line = _Line.from_surface(surface, coordinate, critical=distribution.critical(df, alpha))
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

    surface: Surface
    coordinate: int
    centre: float
    scale: float
    critical: float

    @classmethod
    def from_surface(cls, surface: Surface, coordinate, *, critical: float):
        """Centre at the estimate (T = 0), with a scale that puts a Wald interval at 45 degrees."""
        w = surface.unwhiten @ np.linalg.svd(surface.B)[2][-1]
        lean = w / w[-1] if abs(w[-1]) > 1e-12 * np.abs(w).max() else np.append(np.zeros(len(w) - 1), 1.0)
        slopes = surface.B @ np.linalg.inv(surface.unwhiten)[:, :-1]
        v = np.linalg.solve(surface.unwhiten, lean)
        spread = float(np.sqrt(v @ v)) * np.linalg.norm(np.linalg.pinv(slopes)[coordinate])
        scale = math.sqrt(critical) * float(spread)
        return cls(surface, coordinate, float(lean[coordinate]), scale if scale > 0.0 else 1.0, critical)

    def value(self, angles):
        """Return b_j at the given angles, strictly inside (-pi/2, pi/2)."""
        return np.asarray(self.centre + self.scale * np.tan(angles), dtype=np.float64)

    def normals(self, angles):
        """Return unit normals (N, m) of the hyperplanes {b_j fixed} in whitened coordinates."""
        normal = np.zeros((len(angles), self.surface.B.shape[1]))
        normal[:, self.coordinate] = np.cos(angles)
        normal[:, -1] -= self.centre * np.cos(angles) + self.scale * np.sin(angles)
        normal = normal @ self.surface.unwhiten
        return np.asarray(normal / np.linalg.norm(normal, axis=1, keepdims=True), dtype=np.float64)

    def grid(self):
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

    def profile(self, angles):
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

    def crossings(self, angles, values, points, edges):
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
