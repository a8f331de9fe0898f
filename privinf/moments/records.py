"""Least squares from noisy second moments of every record (MomentOLS, local)."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from privinf.errors import ArgumentError, NotAvailableError
from privinf.inference.linear_scores import (
    LEAST_MOMENT_STRENGTH,
    LargeSample,
    Units,
    check_weights,
    determined_difference,
    homoskedastic_variance,
    mean_response,
    refuse_dependent_rows,
    with_fitted_noise,
)
from privinf.inference.solution import TOTALS_EQUATION
from privinf.moments.equation import (
    FULLER_REASON,
    MomentMap,
    NoisyTotals,
    layout_of,
    moments_noise_model,
    spectral_edge,
)
from privinf.releases import Release
from privinf.typing import Floats, SamplingKind
from privinf.validation import ReadRows, check_array, check_count, check_number


class NoisyRecordMoments(LargeSample):
    r"""Least squares from per-record moments, each with its own noise.

    Parameters
    ----------
    moments : (n, m) array
        Isometric entries of z z' for each record, z = (public, private, c y): the upper triangle row by row,
        off-diagonal entries times sqrt 2, less the public x public block; noise of sd `scale` on each.
    public : (n, k) array, optional
        Public columns, without protection.
    private : int
        Number of private columns.
    order : (p,) array of int, optional
        Column j of the regression is entry ``order[j]`` of (public, private).
    weight : float, default 1
        c.
    part : MomentMap, optional
        Columns and response that are sums of entries of z, in place of `order` and `weight`.
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

    linear_noise = True
    variance_equation = TOTALS_EQUATION
    least_strength: float | None = LEAST_MOMENT_STRENGTH

    def __init__(
        self,
        moments: ArrayLike,
        *,
        public: ArrayLike | None = None,
        private: int,
        order: ArrayLike | None = None,
        weight: float = 1.0,
        part: MomentMap | None = None,
        scale: float,
        groups: ArrayLike | None = None,
        weights: ArrayLike | None = None,
    ) -> None:
        noisy = check_array(moments, "moments", ndim=2, copy=False)
        n = noisy.shape[0]
        public_values = np.empty((n, 0)) if public is None else check_array(public, "public", ndim=2)
        size = public_values.shape[1] + check_count(private, "private") + 1
        self._map = part or MomentMap.checked(
            public=public_values.shape[1], size=size, order=order, weight=weight
        )
        if n == 0 or noisy.shape[1] != self._map.noisy or public_values.shape[0] != n:
            raise ArgumentError(
                f"moments= must have {self._map.noisy} columns and as many rows as public=, got "
                f"shape {noisy.shape}"
            )
        self.n = n
        self._variance = check_number(scale, "scale", low=0.0) ** 2
        self.noise_free = self._map.noise_free
        self.cov_type = "HC0" if groups is None else "cluster"
        self.df_resid = float(max(n - size + 1, 1)) if groups is None else np.inf
        self._units = Units(n, groups)
        row_weights = check_weights(weights, n)
        self._moments, self._public = self._units.sort(noisy), self._units.sort(public_values)
        self._weights = None if row_weights is None else self._units.sort(row_weights)
        self._loadings = self._map.loadings()
        mean, self.covariance = self._unit_moments()
        coefficients: Floats = self._loadings @ mean
        self.A: Floats = -(coefficients[:-1] + coefficients[:-1].T) / 2
        self.g: Floats = coefficients[-1]
        response = self._map.response[None]
        self._square = float(self._map.products(response, response)[0, 0] @ mean)

    def scores(self, beta: Floats) -> Floats | None:
        """Return psi of the m units, (m, p), in the order of their codes, times m/n; None of `ReadRows`."""
        if isinstance(self._moments, ReadRows):
            return None
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

    def squares_with_noise(self, beta: Floats, constant: Floats | None) -> tuple[Floats, Floats]:
        """Return mean squares of residuals and of the response, and the covariance of their noise, (2, 2)."""
        both = [beta, mean_response(self, constant)]
        squares = np.array([self.residual_variance(b) for b in both])
        mean_square = 1.0 if self._weights is None else float(np.mean(self._weights**2))
        noise = self._map.square_noise(both, mean_square * self._variance / self.n)
        return with_fitted_noise(self, beta, squares, noise)

    def meat(self, beta: Floats) -> Floats:
        """Return the centered covariance of psi, divisor n; clustered where there are groups."""
        loading = self._at(beta)
        return np.asarray(loading @ self.covariance @ loading.T, dtype=np.float64)

    def noise_terms(self, beta: Floats) -> dict[str, Floats]:
        """Return the terms of the noise part of the meat: exact."""
        mean_square = 1.0 if self._weights is None else float(np.mean(self._weights**2))
        return self._map.noise_terms(beta, mean_square * self._variance)

    def clean_meat(self, beta: Floats) -> tuple[Floats, SamplingKind]:
        """Return ``meat - noise_meat`` where it is well determined, else residual variance times A."""
        clean = determined_difference(self.meat(beta), self.noise_meat(beta), self._units.count)
        if clean is not None:
            return clean, "heteroskedastic"
        refuse_dependent_rows(self._units)
        if self._weights is not None:
            raise NotAvailableError(
                "the standard error without noise cannot be estimated for weighted rows at this noise level"
            )
        return homoskedastic_variance(self, beta) * self.A, "homoskedastic"

    def tensor(self) -> Floats:
        """Return C with ``meat(b) = sum_kl w_k w_l C_kl``."""
        half = self._loadings @ self.covariance
        return np.asarray(np.einsum("kam,lbm->klab", half, self._loadings, optimize=True), dtype=np.float64)

    def gram_noise(self) -> tuple[Floats, float]:
        """Return (the noise's metric, sqrt(2 d/n) s): the spectral edge in the private block of A."""
        sd = np.sqrt(self._variance / self.n)
        if self._weights is not None:
            sd *= np.sqrt(np.mean(self._weights**2))
        return self._map.metric(), spectral_edge(self.noise_free, float(sd))

    def fuller_gram(self, a: float | None = None) -> Floats:
        """Raise NotAvailableError: these moments are unbiased, no noise covariance is subtracted."""
        raise NotAvailableError(FULLER_REASON)

    def _at(self, beta: Floats) -> Floats:
        """Return L(b), shape (p, m), with ``psi_i = L(b) m_i``."""
        return np.asarray(np.tensordot(np.append(beta, 1.0), self._loadings, axes=1), dtype=np.float64)

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
        gram = np.zeros((width, width))
        total = np.zeros(width)
        for rows, units in self._units.blocks():
            part = self._units.totals(self._entries(rows), units)
            gram += part.T @ part
            total += part.sum(axis=0)
        return total / self.n, self._units.covariance(gram / self.n, total / self.n)


def record_system(release: Release, part: MomentMap | None = None) -> NoisyRecordMoments:
    """Return the estimating equation of records' moments, scaled units, in the design's column order.

    With `part`, of that regression on released columns.
    """
    arrays = release.arrays
    noise_model = moments_noise_model(release)
    layout, order = layout_of(release)
    weights = arrays.get("weights")
    return NoisyRecordMoments(
        arrays["moments"],
        public=arrays["public"],
        private=layout.private,
        order=order,
        weight=noise_model["response_weight"],
        part=part,
        scale=noise_model["scale"],
        groups=arrays.get("groups"),
        weights=None if weights is None else np.asarray(weights),
    )


MomentSystem: TypeAlias = NoisyTotals | NoisyRecordMoments
