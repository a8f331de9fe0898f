"""Corrected least squares on features released with additive noise (errors in variables)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg

from privinf.errors import ArgumentError, NotAvailableError, NotPositiveDefiniteError
from privinf.inference.linear_scores import (
    LEAST_MOMENT_STRENGTH,
    LargeSample,
    Units,
    check_weights,
    determined_difference,
    homoskedastic_variance,
    mean_response,
    partialled,
    refuse_dependent_rows,
    with_fitted_noise,
)
from privinf.typing import Flags, Floats, SamplingKind
from privinf.validation import ReadRows, check_array, check_number

# Share of each column's noise variance that keeps the noise's metric regular.
REGULAR = 1e-9


class CorrectedLeastSquares(LargeSample):
    r"""Least squares on x + u with Cov(u) = S known.

    Parameters
    ----------
    X : (n, p) array
        Released features, rescaled so that ``E[x released | x] = x``; public columns included.
    y : (n,) array
        Response, without protection or with added noise.
    noise_cov : (p, p) array
        S; zero rows and columns for public columns.
    y_noise_var : float, default 0
        Variance of the noise in y.
    y_noise_cross : (p,) array, optional
        Covariance of the noises in x and y, where both were released together.
    fourth_directions, fourth_cumulants : (k, p) and (k,) arrays, optional
        Non-Gaussian components of u: directions and fourth cumulants of independent symmetric terms.
    fourth_response : (k,) array, optional
        How much of each component is in the noise of y.
    groups : (n,) integer codes, optional
        Clusters; the noise of different rows is independent even within one.
    weights : (n,) array, optional
        Public positive weights.
    shared_response_noise : bool, default False
        The noise in y is one draw for each cluster (the same response sent once, used in many rows).

    Raises
    ------
    ArgumentError
        For shapes that do not match, entries that are not finite, or bad weights and groups.
    NotPositiveDefiniteError
        If S is not positive semidefinite.

    Notes
    -----
    Estimating function of record i, mean zero at the truth whatever the noise level:

    .. math:: \psi_i(b) = w_i [x_i (y_i - x_i'b) + S b - c],

    c the covariance of the noises, so A = mean w x x' - mean(w) S and g = mean w x y - mean(w) c.

    **Privacy.** A function of the release alone.

    References
    ----------
    Fuller, W. A. (1987), Measurement Error Models, sections 2.2 and 3.1.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-1, 1, (50_000, 2))
    >>> y = x @ [1.0, -1.0]
    >>> system = CorrectedLeastSquares(x + rng.standard_normal(x.shape), y, np.eye(2))
    >>> np.round(np.linalg.solve(system.A, system.g), 1)
    array([ 1., -1.])
    """

    least_strength: float | None = LEAST_MOMENT_STRENGTH
    variance_equation = """\
cov = A^-1 [ sampling + s2 S + q A + (q S + d d' + K) + t2 (A + S) ] A^-T / n
A is the mean of x x' minus S: the second moments of the columns without noise; b are the coefficients
S is the covariance of the noise in x, and c its covariance with the noise in y
feature noise: s2 S, with s2 the mean square of the residuals without noise
feature noise in residuals: q A, with q = b'S b - 2 c'b
noise on noise: q S + d d' + K, with d = S b - c, and K from the fourth cumulants of the noise
response noise: t2 (A + S), with t2 the variance of the noise in y"""

    def __init__(
        self,
        X: ArrayLike,
        y: ArrayLike,
        noise_cov: ArrayLike,
        *,
        y_noise_var: float = 0.0,
        y_noise_cross: ArrayLike | None = None,
        fourth_directions: ArrayLike | None = None,
        fourth_cumulants: ArrayLike | None = None,
        fourth_response: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        shared_response_noise: bool = False,
    ) -> None:
        features = check_array(X, "X", ndim=2, copy=False)
        response = check_array(y, "y", ndim=1)
        n, p = features.shape
        if n == 0 or p == 0 or response.shape != (n,):
            raise ArgumentError(
                f"y= must have one entry for each row of X, got X of shape {features.shape} and y of "
                f"shape {response.shape}"
            )
        self.n = n
        self.noise_cov = _noise_covariance(noise_cov, p)
        self.y_noise_var = check_number(y_noise_var, "y_noise_var", low=0.0)
        cross = np.zeros(p) if y_noise_cross is None else y_noise_cross
        self._cross: Floats = check_array(cross, "y_noise_cross", ndim=1)
        if self._cross.shape != (p,):
            raise ArgumentError(f"y_noise_cross= must have length {p}, got {len(self._cross)}")
        self.noise_free: Flags = np.diag(self.noise_cov) == 0.0
        directions, cumulants = _fourth_components(fourth_directions, fourth_cumulants, p)
        self._fourth = directions, _response_part(fourth_response, len(cumulants)), cumulants
        self._shared_response_noise = shared_response_noise
        self._units = Units(n, groups)
        checked_weights = check_weights(weights, n)
        self._X, self._y = self._units.sort(features), self._units.sort(response)
        self._weights = None if checked_weights is None else self._units.sort(checked_weights)
        self._mean_weight = 1.0 if checked_weights is None else float(checked_weights.mean())
        self.cov_type = "HC0" if groups is None else "cluster"
        self._gram, products = self._moments(self._weights)
        self.g: Floats = products - self._mean_weight * self._cross
        self.A: Floats = self._gram - self._mean_weight * self.noise_cov

    def scores(self, beta: Floats) -> Floats | None:
        """Return psi of the m units, (m, p), in the order of their codes, times m/n; None of `ReadRows`."""
        if isinstance(self._X, ReadRows):
            return None
        scores = np.empty((self._units.count, self.g.shape[0]))
        for rows, units in self._units.blocks():
            scores[units] = self._units.totals(self._row_scores(rows, beta), units)
        if self._units.count != self.n:
            scores *= self._units.count / self.n
        return scores

    def residual_variance(self, beta: Floats) -> float:
        """Return mean w (y - x'b)^2 of the rows without noise; it may be negative."""
        return self._weighted_variance(self._weights, beta)

    def squares_with_noise(self, beta: Floats, constant: Floats | None) -> tuple[Floats, Floats]:
        """Return mean squares of residuals and of the response, and the covariance of their noise, (2, 2).

        A row's released residual ``r = e + nu`` at b has noise ``nu = v - u'b``. With C_ij the covariance of
        the noises at two vectors b, ``w r_i^2`` and ``w r_j^2`` have over the noise the covariance ``w^2 (4
        C_ij e_i e_j + 2 C_ij^2 + K_ij)``, K_ij from fourth cumulants. Noise of the response that all rows of
        a cluster share counts as often as a cluster has rows.
        """
        both = [beta, mean_response(self, constant)]
        squares = np.array([self.residual_variance(b) for b in both])
        S, c = self.noise_cov, self._cross
        C = np.array([[self.y_noise_var + b @ S @ d - c @ (b + d) for d in both] for b in both])
        w2 = np.ones(self.n) if self._weights is None else self._weights**2
        residuals = np.array([self._y - self._X @ b for b in both])
        clean = (w2 * residuals) @ residuals.T / self.n - w2.mean() * C
        clean[np.diag_indices(2)] = np.maximum(clean[np.diag_indices(2)], 0.0)
        V, response, cumulants = self._fourth
        loadings = np.array([response - V @ b for b in both]) ** 2
        cov = 4.0 * C * clean + w2.mean() * (2.0 * C**2 + (loadings * cumulants) @ loadings.T)
        cov *= (self.n / self._units.count if self._shared_response_noise else 1.0) / self.n
        return with_fitted_noise(self, beta, squares, cov)

    def meat(self, beta: Floats) -> Floats:
        """Return the centered covariance of psi, divisor n; clustered where there are groups."""
        gram = np.zeros_like(self.A)
        for rows, units in self._units.blocks():
            part = self._units.totals(self._row_scores(rows, beta), units)
            gram += part.T @ part
        return self._units.covariance(gram / self.n, self.g - self.A @ beta)

    def noise_terms(self, beta: Floats) -> dict[str, Floats]:
        """Return the terms of the covariance of root-n psibar over the noise, given the clean rows.

        Those of `variance_equation`: s2 = mean r^2 - q - t2 of the residuals r and, k_j the fourth cumulants
        along (v_j, a_j) of u and of the noise in y, ``K = sum_j k_j (a_j - v_j'b)^2 v_j v_j' - psibar d' -
        d psibar'`` (the last two vanish at the estimate). Rows are independent, so clusters change nothing;
        with weights every mean is of w^2.
        """
        gram, cross, mean_square = self._squared_weight_moments()
        squares = None if self._weights is None else self._weights**2
        S = self.noise_cov
        d = self._noise_bias(beta)
        q = self._residual_noise(beta) - self.y_noise_var
        psibar = cross - gram @ beta + mean_square * (S @ beta)
        V, response, cumulants = self._fourth
        fourth = (V.T * (cumulants * (response - V @ beta) ** 2)) @ V
        between = self._between_rows(gram) if self._shared_response_noise else 0.0
        noise_on_noise = (
            mean_square * (q * S + np.outer(d, d) + fourth) - np.outer(psibar, d) - np.outer(d, psibar)
        )
        return {
            "feature noise": max(self._weighted_variance(squares, beta), 0.0) * S,
            "feature noise in residuals": q * (gram - mean_square * S),
            "noise on noise": noise_on_noise,
            "response noise": self.y_noise_var * (gram + between),
        }

    def leaving_out(self, part: int, parts: int) -> CorrectedLeastSquares:
        """Return the system of the records but those of every `parts`-th unit."""
        if isinstance(self._X, ReadRows):
            raise NotAvailableError("rows that are read from a file cannot be split for the jackknife")
        units = self._units.of_rows()
        keep = units % parts != part
        V, response, cumulants = self._fourth
        return CorrectedLeastSquares(
            self._X[keep],
            self._y[keep],
            self.noise_cov,
            y_noise_var=self.y_noise_var,
            y_noise_cross=self._cross,
            fourth_directions=V,
            fourth_cumulants=cumulants,
            fourth_response=response,
            groups=None if self._units.order is None else units[keep],
            weights=None if self._weights is None else self._weights[keep],
            shared_response_noise=self._shared_response_noise,
        )

    def clean_meat(self, beta: Floats) -> tuple[Floats, SamplingKind]:
        """Return ``meat - noise_meat`` where it is well determined, else residual variance times A."""
        clean = determined_difference(self.meat(beta), self.noise_meat(beta), self._units.count)
        if clean is not None:
            return clean, "heteroskedastic"
        refuse_dependent_rows(self._units)
        gram, _, mean_square = self._squared_weight_moments()
        variance = homoskedastic_variance(self, beta) / self._mean_weight
        return variance * (gram - mean_square * self.noise_cov), "homoskedastic"

    def tensor(self) -> Floats:
        """Return C with ``meat(b) = sum_kl w_k w_l C_kl``, from fourth moments summed block by block."""
        p = self.g.shape[0]
        upper = np.triu_indices(p)
        width = upper[0].shape[0] + p
        gram = np.zeros((width, width))
        total = np.zeros(width)
        for rows, units in self._units.blocks():
            part = self._units.totals(self._row_moments(rows, upper), units)
            gram += part.T @ part
            total += part.sum(axis=0)
        covariance = self._units.covariance(gram / self.n, total / self.n)
        position = np.empty((p + 1, p), dtype=np.int64)
        position[upper] = np.arange(width - p)
        position[upper[::-1]] = np.arange(width - p)
        position[p] = np.arange(width - p, width)
        sign = np.append(-np.ones(p), 1.0)
        tensor: Floats = covariance[position[:, None, :, None], position[None, :, None, :]]
        tensor *= np.multiply.outer(sign, sign)[:, :, None, None]
        return tensor

    def gram_noise(self) -> tuple[Floats, float]:
        """Return (mean(w) S, 2 sqrt(d/n)): pure noise puts the smallest eigenvalue near minus that."""
        columns = int((~self.noise_free).sum())
        metric = self._mean_weight * self.noise_cov
        # Noisy columns may sum to one without noise (all levels of a factor): there the metric stays regular.
        floor = REGULAR * np.where(self.noise_free, 0.0, np.diag(metric))
        return metric + np.diag(floor), 2.0 * np.sqrt(columns / self._effective_n())

    def fuller_gram(self, a: float | None = None) -> Floats:
        r"""Return ``mean w x x' - kappa S``, kappa = min(1, l - 1/n) - a/n; always positive definite.

        Parameters
        ----------
        a : float, optional
            Fuller's constant, default d + 4.

        Notes
        -----
        l is the smallest root of ``det(M_zz - l S_zz) = 0``, z = (y, x), noise-free columns partialled
        out (Fuller 1987, equation 2.5.6). Every root of the x block alone is at least l, hence the
        modified matrix exceeds ((1 + a)/n) S.
        """
        private = ~self.noise_free
        d = int(private.sum())
        if d == 0:
            return self.A
        n = self._effective_n()
        constant = d + 4.0 if a is None else check_number(a, "fuller_a", low=0.0)
        kappa = min(1.0, self._smallest_root(private) - 1.0 / n) - constant / n
        return self._gram - kappa * self._mean_weight * self.noise_cov

    def _smallest_root(self, private: Flags) -> float:
        weighted = self._y if self._weights is None else self._weights * self._y
        joint = np.block([[self._gram, self.g[:, None]], [self.g, self._y @ weighted / self.n]])
        joint = partialled(joint, np.append(private, True))
        S = self.noise_cov[np.ix_(private, private)]
        S = self._mean_weight * (S + REGULAR * np.diag(np.diag(S)))
        if self.y_noise_var > 0.0:
            cross = self._mean_weight * self._cross[private, None]
            S = np.block([[S, cross], [cross.T, np.array([[self._mean_weight * self.y_noise_var]])]])
        elif joint[-1, -1] > 0.0:
            joint = joint[:-1, :-1] - np.outer(joint[:-1, -1], joint[:-1, -1]) / joint[-1, -1]
        else:
            joint = joint[:-1, :-1]
        return float(linalg.eigh(joint, S, eigvals_only=True)[0])

    def _effective_n(self) -> float:
        if self._weights is None:
            return float(self.n)
        return float(self._weights.sum() ** 2 / (self._weights @ self._weights))

    def _moments(self, weights: Floats | None) -> tuple[Floats, Floats]:
        """Return mean w x x' and mean w x y."""
        if weights is None and not isinstance(X := self._X, ReadRows):
            return X.T @ X / self.n, X.T @ self._y / self.n
        gram = np.zeros((self._X.shape[1],) * 2)
        cross = np.zeros(self._X.shape[1])
        for rows, _ in self._units.blocks():
            X = self._X[rows]
            weighted = X if weights is None else X * weights[rows, None]
            gram += weighted.T @ X
            cross += weighted.T @ self._y[rows]
        return (gram + gram.T) / (2 * self.n), cross / self.n

    def _squared_weight_moments(self) -> tuple[Floats, Floats, float]:
        """Return mean w^2 x x', mean w^2 (x y - c) and mean w^2."""
        if self._weights is None:
            return self._gram, self.g, 1.0
        gram, cross = self._moments(squares := self._weights**2)
        mean_square = float(squares.mean())
        return gram, cross - mean_square * self._cross, mean_square

    def _noise_bias(self, beta: Floats) -> Floats:
        """Return S b - c: minus the mean of the noise of x times that of the residual."""
        return np.asarray(self.noise_cov @ beta - self._cross, dtype=np.float64)

    def _residual_noise(self, beta: Floats) -> float:
        """Return the variance of the noise in y - x'b."""
        return float(beta @ (self._noise_bias(beta) - self._cross)) + self.y_noise_var

    def _row_scores(self, rows: slice, beta: Floats) -> Floats:
        X = self._X[rows]
        scores = X * (self._y[rows] - X @ beta)[:, None]
        scores += self._noise_bias(beta)
        if self._weights is not None:
            scores *= self._weights[rows, None]
        return scores

    def _row_moments(self, rows: slice, upper: tuple[np.ndarray, np.ndarray]) -> Floats:
        """Return (x x' - S upper triangle, x y) of each row, weighted."""
        X = self._X[rows]
        pairs = X[:, upper[0]]
        pairs *= X[:, upper[1]]
        pairs -= self.noise_cov[upper]
        values = np.hstack([pairs, X * self._y[rows, None] - self._cross])
        if self._weights is not None:
            values *= self._weights[rows, None]
        return values

    def _weighted_variance(self, weights: Floats | None, beta: Floats) -> float:
        """Return mean w r^2 less what the noise adds: the (weighted) residual variance without noise."""
        residual = self._y - self._X @ beta
        q = self._residual_noise(beta)
        if weights is None:
            return float(residual @ residual / self.n - q)
        return float(weights @ residual**2 / self.n - weights.mean() * q)

    def _between_rows(self, squared_gram: Floats) -> Floats:
        """Return mean over records of x_i x_j' w_i w_j summed over the other rows j of i's cluster."""
        total = np.zeros_like(self.A)
        for rows, units in self._units.blocks():
            X = self._X[rows] if self._weights is None else self._X[rows] * self._weights[rows, None]
            sums = self._units.totals(X, units)
            total += sums.T @ sums
        return np.asarray(total / self.n - squared_gram, dtype=np.float64)


def _noise_covariance(value: ArrayLike, p: int) -> Floats:
    S = check_array(value, "noise_cov", ndim=2)
    if S.shape != (p, p) or not np.allclose(S, S.T, rtol=1e-10, atol=0.0):
        raise ArgumentError(f"noise_cov= must be a symmetric ({p}, {p}) matrix")
    S = (S + S.T) / 2
    if np.linalg.eigvalsh(S)[0] < -1e-10 * max(float(np.abs(S).max()), 1e-300):
        raise NotPositiveDefiniteError(
            "noise_cov= must be a covariance matrix, but one of its eigenvalues is negative"
        )
    return S


def _fourth_components(
    directions: ArrayLike | None, cumulants: ArrayLike | None, p: int
) -> tuple[Floats, Floats]:
    if (directions is None) != (cumulants is None):
        raise ArgumentError("fourth_directions= and fourth_cumulants= must be passed together")
    if directions is None or cumulants is None:
        return np.zeros((0, p)), np.zeros(0)
    V = check_array(directions, "fourth_directions", ndim=2)
    k = check_array(cumulants, "fourth_cumulants", ndim=1)
    if V.shape != (k.shape[0], p):
        raise ArgumentError(f"fourth_directions= must have shape ({k.shape[0]}, {p}), got {V.shape}")
    return V, k


def _response_part(response: ArrayLike | None, count: int) -> Floats:
    if response is None:
        return np.zeros(count)
    parts = check_array(response, "fourth_response", ndim=1)
    if parts.shape != (count,):
        raise ArgumentError(
            f"fourth_response= must have length {count}, one entry for each fourth cumulant, got {len(parts)}"
        )
    return parts
