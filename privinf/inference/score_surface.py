r"""The score statistic as a function on the projective space of (b, 1), and its constrained minima.

``T(w) = n (B w)' V(w)^-1 (B w)``, ``V(w) = sum_kl w_k w_l C_kl``, is homogeneous of degree 0 in w = (b, t):
coefficients at infinity are ordinary points (t = 0), so that unbounded sets need no special case. In
coordinates v where T is close to n times a Rayleigh quotient, minima over hyperplanes are found for many
hyperplanes at once by a trust-region Newton method with the exact Hessian.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from privinf.errors import NotPositiveDefiniteError
from privinf.inference.linear_scores import Concentrated
from privinf.typing import Floats, Integers

_ITERATIONS = 60  # Newton steps to a minimum
_TOLERANCE = 1e-10  # gain of a step, relative to 1 + T, below which a minimum is reached
_LARGEST_STEP = 0.5  # length of a step on the unit sphere
_STARTS = 4  # starting points of a minimum without constraints
_CHUNK = 64  # points whose Hessians are decomposed at a time
_LOST = 1e-6  # a point this much shorter on its plane lies along the normal, and an axis replaces it
_FLAT = 1e-9  # smallest curvature that steps believe, in shares of the Hessian's norm


@dataclass(frozen=True, eq=False)
class ScoreSurface:
    """T in whitened coordinates: ``w = unwhiten v``, with V(w) near |v|^2 I on average.

    Attributes
    ----------
    B : (k, m) array
        Root-n psibar is ``B v``; m = k + 1.
    C : (m, m, k, k) array
    unwhiten : (m, m) array
    """

    B: Floats
    C: Floats
    unwhiten: Floats

    @classmethod
    def from_arrays(cls, A: Floats, g: Floats, tensor: Floats, n: int, maps: Concentrated) -> ScoreSurface:
        """Return the surface of a system with its concentrated columns removed.

        Raises
        ------
        NotPositiveDefiniteError
            If the scores are linearly dependent.
        """
        P = maps.projection
        lift = maps.lift
        B = np.sqrt(n) * P @ np.column_stack([-A, g]) @ lift
        C = _changed(tensor, lift, P)
        try:
            rows, columns = _whitening(C)
        except np.linalg.LinAlgError:
            raise NotPositiveDefiniteError(
                "the scores are linearly dependent, because a column is collinear or the fit is perfect"
            ) from None
        C = _changed(C, columns, rows)
        return cls(rows @ B @ columns, C, columns)

    def values(self, v: Floats) -> Floats:
        """Return T (N,) at N points v (N, m)."""
        psi, q, _ = self._solved(v)
        return np.asarray(np.einsum("na,na->n", psi, q), dtype=np.float64)

    def evaluate(self, v: Floats) -> tuple[Floats, Floats, Floats]:
        """Return T (N,), its gradient (N, m) and Hessian (N, m, m) at N points v (N, m).

        With q = V^-1 psi and J = B - dV q: ``T = psi'q``, ``grad T = (B + J)'q`` and
        ``T'' = 2 (J'V^-1 J - sum_ab q_a q_b C_ab)``.
        """
        N, m = v.shape
        k = self.B.shape[0]
        psi, q, inverse = self._solved(v)
        _, change, bend = self._flat
        J = self.B.ravel() - (v[:, :, None] * q[:, None, :]).reshape(N, m * k) @ change
        J = J.reshape(N, k, m)
        a, b = _halves(k)
        D = ((q[:, a] * q[:, b]) @ bend).reshape(N, m, m)
        gradient = q @ self.B + (q[:, None, :] @ J)[:, 0]
        hessian = 2.0 * (J.transpose(0, 2, 1) @ (inverse @ J) - D)
        return np.einsum("na,na->n", psi, q), gradient, hessian

    def _solved(self, v: Floats) -> tuple[Floats, Floats, Floats]:
        """Return psi (N, k), V^-1 psi and V^-1 (N, k, k)."""
        k = self.B.shape[0]
        i, j = _halves(v.shape[1])
        V = ((v[:, i] * v[:, j]) @ self._flat[0]).reshape(-1, k, k)
        psi = v @ self.B.T
        try:
            inverse = np.linalg.inv(V)
        except np.linalg.LinAlgError:
            raise NotPositiveDefiniteError(
                "the scores are constant at some coefficients, because the fit is perfect"
            ) from None
        return psi, (inverse @ psi[:, :, None])[:, :, 0], np.asarray(inverse, dtype=np.float64)

    @cached_property
    def _flat(self) -> tuple[Floats, Floats, Floats]:
        """Return C as matrices: of products v v to V, of products v q to dV q, of products q q to D."""
        m = self.C.shape[0]
        k = self.C.shape[2]
        symmetric = self.C + self.C.transpose(1, 0, 2, 3)
        i, j = _halves(m)
        meat = np.where(i == j, 0.5, 1.0)[:, None] * symmetric[i, j].reshape(-1, k * k)
        change = symmetric.transpose(1, 3, 2, 0).reshape(m * k, k * m)
        a, b = _halves(k)
        twice = symmetric.transpose(2, 3, 0, 1) / 2.0
        bend = np.where(a == b, 0.5, 1.0)[:, None] * (twice[a, b] + twice[b, a]).reshape(-1, m * m)
        return meat, change, bend

    @cached_property
    def largest(self) -> float:
        """The largest eigenvalue of C as a form in v x psi: no V(v) of a unit vector v has a larger one.

        So ``T(v) >= |B v|^2 / largest``.
        """
        size = self.C.shape[0] * self.C.shape[2]
        form = self.C.transpose(0, 2, 1, 3).reshape(size, size)
        return float(np.linalg.eigvalsh((form + form.T) / 2.0)[-1])

    def starts(self, normals: Floats, count: int) -> tuple[Floats, Floats]:
        """Return (N, count, m) starting points orthogonal to N unit normals, and the least |B v|^2 there.

        They would be the minima were V constant. The bound (N,) is over the unit vectors of each hyperplane,
        less what rounding may add to it.
        """
        F = self.B.T @ self.B
        lift = 2.0 * np.trace(F) + 1.0
        P = np.eye(F.shape[0]) - np.einsum("ni,nj->nij", normals, normals)
        inside = P @ F @ P + lift * np.einsum("ni,nj->nij", normals, normals)
        values, vectors = np.linalg.eigh(inside)
        smallest = values[:, 0] - 1e-13 * len(F) * lift
        return np.asarray(vectors[:, :, :count].transpose(0, 2, 1), dtype=np.float64), smallest

    def least(self, lift: Floats) -> float:
        """Return the least T over the points ``w = lift u``, lift of shape (m, r); at infinity too."""
        axes = np.linalg.qr(np.linalg.solve(self.unwhiten, lift))[0]
        C = _changed(self.C, axes, np.eye(self.C.shape[2]))
        restricted = ScoreSurface(self.B @ axes, C, self.unwhiten @ axes)
        if axes.shape[1] == 1:
            return float(restricted.evaluate(np.ones((1, 1)))[0][0])
        count = min(_STARTS, axes.shape[1])
        v = restricted.starts(np.zeros((1, axes.shape[1])), count)[0][0]
        return float(restricted.minimise(v, np.zeros_like(v))[0].min())

    def minimise(self, v: Floats, normals: Floats) -> tuple[Floats, Floats]:
        """Return local minima of T on {v orthogonal to normal}, from N starting points.

        Parameters
        ----------
        v, normals : (N, m) arrays
            Starting points and unit normals; a zero normal constrains nothing. A start along its normal has
            no direction on the hyperplane and is replaced by an axis.

        Returns
        -------
        value : (N,) array
        v : (N, m) array
            Unit vectors.
        """
        v = _unit(_on_planes(v, normals))
        value, gradient, hessian = self.evaluate(v)
        radius = np.full(len(v), _LARGEST_STEP)
        active = np.arange(len(v))
        for _ in range(_ITERATIONS):
            step, gain = _newton_steps(
                v[active], normals[active], gradient[active], hessian[active], radius[active]
            )
            moving = gain > _TOLERANCE * (1.0 + value[active])
            active = active[moving]
            step = step[moving]
            if active.size == 0:
                break
            trial = _unit(v[active] + step)
            new_value, new_gradient, new_hessian = self.evaluate(trial)
            better = new_value < value[active]
            length = np.linalg.norm(step, axis=1)
            radius[active] = np.where(better, np.minimum(2.0 * radius[active], _LARGEST_STEP), length / 4.0)
            accepted = active[better]
            v[accepted] = trial[better]
            value[accepted] = new_value[better]
            gradient[accepted] = new_gradient[better]
            hessian[accepted] = new_hessian[better]
            active = active[better | (radius[active] > 1e-12)]
        return value, v


def _whitening(C: Floats) -> tuple[Floats, Floats]:
    """Return (rows, columns) under which C is near the Kronecker product of identities (flip-flop)."""
    m = C.shape[0]
    k = C.shape[2]
    inner = np.einsum("kkab->ab", C)
    outer = np.eye(m)
    for _ in range(5):
        outer = np.einsum("ab,klab->kl", np.linalg.inv(inner), C) / k
        inner = np.einsum("kl,klab->ab", np.linalg.inv(outer), C) / m
    rows = np.linalg.inv(np.linalg.cholesky((inner + inner.T) / 2))
    columns = np.linalg.inv(np.linalg.cholesky((outer + outer.T) / 2)).T
    return np.asarray(rows, dtype=np.float64), np.asarray(columns, dtype=np.float64)


def _newton_steps(
    v: Floats, normals: Floats, gradient: Floats, hessian: Floats, radius: Floats
) -> tuple[Floats, Floats]:
    """Return descent steps in the tangent space, no longer than radius, and the decrease they promise."""
    P = np.eye(v.shape[1]) - np.einsum("ni,nj->nij", v, v) - np.einsum("ni,nj->nij", normals, normals)
    slope = np.einsum("nij,nj->ni", P, gradient)
    tangent = P @ hessian @ P
    size = np.linalg.norm(tangent, axis=(1, 2))[:, None, None]
    away = np.eye(v.shape[1]) - P
    step = np.empty_like(v)
    for start in range(0, len(v), _CHUNK):
        rows = slice(start, start + _CHUNK)
        step[rows] = _descent(tangent[rows] + size[rows] * away[rows], slope[rows], size[rows])
    step = np.einsum("nij,nj->ni", P, step)
    shrink = np.minimum(1.0, radius / np.maximum(np.linalg.norm(step, axis=1), 1e-300))
    step *= shrink[:, None]
    return step, -np.einsum("ni,ni->n", slope, step) / 2


def _descent(hessian: Floats, slope: Floats, size: Floats) -> Floats:
    """Return ``-|H|^-1 slope``, |H| with the absolute eigenvalues of H: Newton's step where H is positive."""
    floor = _FLAT * size
    try:
        np.linalg.cholesky(hessian - floor * np.eye(slope.shape[1]))
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(hessian)
        along = np.einsum("nji,nj->ni", vectors, slope)
        curvature = np.maximum(np.abs(values), floor[:, 0] + 1e-300)
        return np.asarray(-np.einsum("njk,nk->nj", vectors, along / curvature))
    return np.asarray(-np.linalg.solve(hessian, slope[:, :, None])[:, :, 0])


def _changed(C: Floats, columns: Floats, rows: Floats) -> Floats:
    """Return C in other coordinates, ``sum_klab columns_ki columns_lj C_klab rows_ca rows_db``."""
    return np.asarray(np.einsum("ki,lj,klab,ca,db->ijcd", columns, columns, C, rows, rows, optimize=True))


def _halves(size: int) -> tuple[Integers, Integers]:
    """Return the places of a symmetric matrix on and above its diagonal."""
    return np.triu_indices(size)


def _on_planes(v: Floats, normals: Floats) -> Floats:
    """Return points (N, m) projected on the hyperplanes of unit or zero normals."""
    along = _LOST * np.linalg.norm(v, axis=1)
    moved = v - np.einsum("ni,ni->n", v, normals)[:, None] * normals
    lost = np.flatnonzero(np.linalg.norm(moved, axis=1) < along)
    if lost.size:
        axes = np.eye(v.shape[1])[np.abs(normals[lost]).argmin(axis=1)]
        moved[lost] = axes - np.einsum("ni,ni->n", axes, normals[lost])[:, None] * normals[lost]
    return np.asarray(moved, dtype=np.float64)


def _unit(v: Floats) -> Floats:
    return np.asarray(v / np.linalg.norm(v, axis=1, keepdims=True), dtype=np.float64)
