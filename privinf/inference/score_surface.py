r"""The score statistic as a function on the projective space of (b, 1), and its constrained minima.

``T(w) = n (B w)' V(w)^-1 (B w)``, ``V(w) = sum_kl w_k w_l C_kl``, is homogeneous of degree 0 in w = (b, t):
coefficients at infinity are ordinary points (t = 0), so that unbounded sets need no special case. In
coordinates v where T is close to n times a Rayleigh quotient, minima over hyperplanes are found for many
hyperplanes at once by a trust-region Newton method with the exact Hessian.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privinf.errors import NotPositiveDefiniteError
from privinf.inference.linear_scores import Concentrated
from privinf.typing import Floats

_ITERATIONS = 60
_TOLERANCE = 1e-10
_LARGEST_STEP = 0.5
_STARTS = 4


@dataclass(frozen=True, slots=True)
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
    def of(cls, A: Floats, g: Floats, tensor: Floats, n: int, maps: Concentrated) -> ScoreSurface:
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

    def evaluate(self, v: Floats) -> tuple[Floats, Floats, Floats]:
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

    def starts(self, normals: Floats, count: int) -> Floats:
        """Return (N, count, m) starting points orthogonal to N unit normals: minima were V constant."""
        F = self.B.T @ self.B
        lift = 2.0 * np.trace(F) + 1.0
        P = np.eye(F.shape[0]) - np.einsum("ni,nj->nij", normals, normals)
        inside = P @ F @ P + lift * np.einsum("ni,nj->nij", normals, normals)
        return np.asarray(np.linalg.eigh(inside)[1][:, :, :count].transpose(0, 2, 1), dtype=np.float64)

    def least(self, lift: Floats) -> float:
        """Return the least T over the points ``w = lift u``, lift of shape (m, r); at infinity too."""
        axes = np.linalg.qr(np.linalg.solve(self.unwhiten, lift))[0]
        C = np.einsum("ki,lj,klab->ijab", axes, axes, self.C, optimize=True)
        own = ScoreSurface(self.B @ axes, C, self.unwhiten @ axes)
        if axes.shape[1] == 1:
            return float(own.evaluate(np.ones((1, 1)))[0][0])
        count = min(_STARTS, axes.shape[1])
        v = own.starts(np.zeros((1, axes.shape[1])), count)[0]
        return float(own.minimise(v, np.zeros_like(v))[0].min())

    def minimise(self, v: Floats, normals: Floats) -> tuple[Floats, Floats]:
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


def _whitening(C: Floats) -> tuple[Floats, Floats]:
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


def _newton_steps(
    v: Floats, normals: Floats, gradient: Floats, hessian: Floats, radius: Floats
) -> tuple[Floats, Floats]:
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


def _unit(v: Floats) -> Floats:
    return np.asarray(v / np.linalg.norm(v, axis=1, keepdims=True), dtype=np.float64)
