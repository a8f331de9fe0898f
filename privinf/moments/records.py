"""Least squares from noisy second moments of every record (MomentOLS, local)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from privinf.errors import ArgumentError, NotAvailableError
from privinf.inference.linear_scores import (
    LargeSample,
    Units,
    check_weights,
    determined_difference,
    homoskedastic_variance,
    quadratic,
    refuse_dependent_rows,
)
from privinf.typing import Flags, Floats, Integers, SamplingKind
from privinf.validation import check_array, check_count, check_number, check_positive

# ---- isometric

FULLER_REASON = (
    "Fuller's modification shrinks the noise covariance that corrected least squares subtracts; noisy second "
    "moments subtract none: use stabilization='ridge'"
)


@dataclass(frozen=True, slots=True)
class MomentMap:
    """From the moments of z to those of a regression of y on the columns in a chosen order.

    Attributes
    ----------
    public, size : int
        Leading public entries of z, and its length.
    order : (size - 1,) array
        Column j of the regression is entry ``order[j]`` of z.
    weight : float
        c.
    """

    public: int
    size: int
    order: Integers
    weight: float

    @classmethod
    def checked(cls, *, public: int, size: int, order: ArrayLike | None, weight: float) -> MomentMap:
        """Return the map, or raise ArgumentError for arguments that do not fit together."""
        check_count(public, "public", least=0)
        if public > size - 2:
            raise ArgumentError(
                f"z of length {size} needs a private column beside {public} public ones and y"
            )
        columns = np.arange(size - 1) if order is None else np.asarray(order, dtype=np.int64)
        if not np.array_equal(np.sort(columns), np.arange(size - 1)):
            raise ArgumentError(f"order must be a permutation of the {size - 1} columns")
        return cls(public, size, columns, check_positive(weight, "weight"))

    @property
    def noise_free(self) -> Flags:
        """Which columns are public, in the regression's order."""
        return self.order < self.public

    def pairs(self) -> tuple[Integers, Integers, Floats]:
        """Return rows, columns and factors of all isometric entries: the noisy ones, then the public."""
        rows, columns = np.triu_indices(self.size)
        first = np.argsort(columns < self.public, kind="stable")
        rows, columns = rows[first], columns[first]
        return rows, columns, np.where(rows == columns, 1.0, np.sqrt(2.0))

    @property
    def noisy(self) -> int:
        """How many isometric entries carry noise."""
        return self.size * (self.size + 1) // 2 - self.public * (self.public + 1) // 2

    def quadratic_form(self, W: Floats) -> Floats:
        """Return Q with ``w'Qw = mean (y - x'b)^2`` at w = (b, 1): [[A, -g], [-g', yy]]."""
        J = np.zeros((self.size, self.size))
        J[self.order, np.arange(self.size - 1)] = -1.0
        J[-1, -1] = 1.0 / self.weight
        form: Floats = J.T @ W @ J
        return form

    def loadings(self) -> Floats:
        """Return L, shape (p+1, p, m), with ``psi = sum_k w_k L_k m``."""
        rows, columns, factors = self.pairs()
        entry: Floats = np.zeros((self.size, self.size, rows.shape[0]))
        index = np.arange(rows.shape[0])
        entry[rows, columns, index] = 1.0 / factors
        entry[columns, rows, index] = 1.0 / factors
        loadings: Floats = entry[np.append(self.order, self.size - 1)][:, self.order]
        loadings[:-1] *= -1.0
        loadings[-1] /= self.weight
        return loadings

    def noise_tensor(self, variance: float) -> Floats:
        """Return K with ``Cov(noise of psi) = sum_kl w_k w_l K_kl`` for iid noise on the noisy entries.

        Where every entry is noisy this is ``(s^2/2)[(|b|^2 + c^-2) I + b b']``.
        """
        L = self.loadings()[:, :, : self.noisy]
        tensor: Floats = variance * np.einsum("kam,lbm->klab", L, L, optimize=True)
        return tensor


def positive_part(matrix: Floats) -> Floats:
    """Return the nearest positive semidefinite matrix; the matrix itself where it is one already."""
    values, vectors = np.linalg.eigh(matrix)
    if values[0] >= 0.0:
        return matrix
    nearest: Floats = (vectors * np.maximum(values, 0.0)) @ vectors.T
    return nearest


def spectral_edge(noise_free: Flags, sd: float) -> float:
    """Return ``sqrt(2 d) sd``: about the largest eigenvalue of the noise in d private columns of A."""
    return float(np.sqrt(2.0 * np.count_nonzero(~noise_free)) * sd)


class NoisyRecordMoments(LargeSample):
    r"""Least squares from per-record moments, each with its own noise.

    Parameters
    ----------
    moments : (n, m) array
        Isometric entries of z z' for each record, z = (public, private, c y): the upper triangle row by
        row, off-diagonal entries times sqrt 2, less the public x public block; noise of sd `scale` on
        each.
    public : (n, k) array, optional
        Public columns, in clear.
    private : int
        Number of private columns.
    order : (p,) array of int, optional
        Column j of the regression is entry ``order[j]`` of (public, private).
    weight : float, default 1
        c.
    scale : float
        Noise sd.
    groups, weights : (n,) arrays, optional
        Clusters (noise independent between rows) and public positive weights.

    Raises
    ------
    ArgumentError
        For shapes that do not match or entries that are not finite.

    Notes
    -----
    psi_i(b) = g_i - A_i b is linear in the moments of record i, so the meat needs their covariance once.

    **Privacy.** A function of the release alone.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-1, 1, 20_000)
    >>> clean = np.column_stack([x * x, np.sqrt(2) * 0.5 * x * x, 0.25 * x * x])
    >>> noisy = clean + 0.1 * rng.standard_normal(clean.shape)
    >>> system = NoisyRecordMoments(noisy, private=1, scale=0.1)
    >>> np.round(np.linalg.solve(system.A, system.g), 1)
    array([0.5])
    """

    def __init__(
        self,
        moments: ArrayLike,
        *,
        public: ArrayLike | None = None,
        private: int,
        order: ArrayLike | None = None,
        weight: float = 1.0,
        scale: float,
        groups: ArrayLike | None = None,
        weights: ArrayLike | None = None,
    ) -> None:
        noisy = check_array(moments, "moments", ndim=2)
        n = noisy.shape[0]
        clear = np.empty((n, 0)) if public is None else check_array(public, "public", ndim=2)
        size = clear.shape[1] + check_count(private, "private") + 1
        self._map = MomentMap.checked(public=clear.shape[1], size=size, order=order, weight=weight)
        if n == 0 or noisy.shape[1] != self._map.noisy or clear.shape[0] != n:
            raise ArgumentError(
                f"moments must have {self._map.noisy} columns and as many rows as public, got {noisy.shape}"
            )
        self.n = n
        self._variance = check_number(scale, "scale", low=0.0) ** 2
        self.noise_free = self._map.noise_free
        self.cov_type = "HC0" if groups is None else "cluster"
        self._units = Units(n, groups)
        given = check_weights(weights, n)
        self._moments, self._public = self._units.sort(noisy), self._units.sort(clear)
        self._weights = None if given is None else self._units.sort(given)
        self._loadings = self._map.loadings()
        mean, self._covariance = self._unit_moments()
        coefficients: Floats = self._loadings @ mean
        self.A: Floats = -(coefficients[:-1] + coefficients[:-1].T) / 2
        self.g: Floats = coefficients[-1]
        self._square = float(mean[self._square_position()]) / weight**2

    def scores(self, beta: Floats) -> Floats:
        """Return psi of the m units, shape (m, p), clusters in the order of their codes, times m/n."""
        loading = self._at(beta)
        scores = np.empty((self._units.count, self.g.shape[0]))
        for rows, units in self._units.blocks():
            scores[units] = self._units.totals(self._entries(rows) @ loading.T, units)
        if self._units.count != self.n:
            scores *= self._units.count / self.n
        return scores

    def residual_variance(self, beta: Floats) -> float:
        """Return s2(b), the mean (weighted) squared residual from the noisy moments; it may be negative."""
        return self._square - float(beta @ (2.0 * self.g - self.A @ beta))

    def meat(self, beta: Floats) -> Floats:
        """Return the centred covariance of psi, divisor n; clustered where there are groups."""
        loading = self._at(beta)
        meat: Floats = loading @ self._covariance @ loading.T
        return meat

    def noise_meat(self, beta: Floats) -> Floats:
        """Return the noise part of the meat: exact."""
        mean_square = 1.0 if self._weights is None else float(np.mean(self._weights**2))
        return quadratic(self._map.noise_tensor(mean_square * self._variance), np.append(beta, 1.0))

    def clean_meat(self, beta: Floats) -> tuple[Floats, SamplingKind]:
        """Return ``meat - noise_meat`` where it is well determined, else residual variance times A."""
        clean = determined_difference(self.meat(beta), self.noise_meat(beta), self._units.count)
        if clean is not None:
            return clean, "heteroskedastic"
        refuse_dependent_rows(self._units)
        if self._weights is not None:
            raise NotAvailableError(
                "with weights, the error without noise is not identified at this noise level"
            )
        return homoskedastic_variance(self, beta) * self.A, "homoskedastic"

    def tensor(self) -> Floats:
        """Return C with ``meat(b) = sum_kl w_k w_l C_kl``."""
        half = self._loadings @ self._covariance
        tensor: Floats = np.einsum("kam,lbm->klab", half, self._loadings, optimize=True)
        return tensor

    def gram_noise(self) -> tuple[Floats, float]:
        """Return (I, sqrt(2 d/n) s), the spectral edge of the noise in the private block of A."""
        sd = np.sqrt(self._variance / self.n)
        if self._weights is not None:
            sd *= np.sqrt(np.mean(self._weights**2))
        return np.diag((~self.noise_free).astype(np.float64)), spectral_edge(self.noise_free, float(sd))

    def fuller_gram(self, a: float | None = None) -> Floats:
        """Raise NotAvailableError: these moments are unbiased, no noise covariance is subtracted."""
        raise NotAvailableError(FULLER_REASON)

    def _at(self, beta: Floats) -> Floats:
        """Return L(b), shape (p, m), with ``psi_i = L(b) m_i``."""
        loading: Floats = np.tensordot(np.append(beta, 1.0), self._loadings, axes=1)
        return loading

    def _entries(self, rows: slice) -> Floats:
        """Return all isometric entries of each row, public ones included, weighted."""
        public = self._public[rows]
        first, second, factors = (part[self._map.noisy :] for part in self._map.pairs())
        exact = public[:, first] * public[:, second] * factors
        entries = np.hstack([self._moments[rows], exact])
        if self._weights is not None:
            entries *= self._weights[rows, None]
        return entries

    def _unit_moments(self) -> tuple[Floats, Floats]:
        """Return the mean of the entries and n times the covariance of that mean."""
        width = self._loadings.shape[2]
        gram, total = np.zeros((width, width)), np.zeros(width)
        for rows, units in self._units.blocks():
            part = self._units.totals(self._entries(rows), units)
            gram += part.T @ part
            total += part.sum(axis=0)
        return total / self.n, self._units.covariance(gram / self.n, total / self.n)

    def _square_position(self) -> int:
        first, second, _ = self._map.pairs()
        return int(np.flatnonzero((first == second) & (first == self._map.size - 1))[0])
