"""Many fits of MomentOLS at once, in one process: coverage studies of any design."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from privinf.error_boundary import error_boundary
from privinf.errors import ArgumentError, SchemaError
from privinf.fitting.rows import PROTECTED, Limits, rows_of_arrays
from privinf.inference.estimate import is_positive_definite, two_sided_pvalue, upper_quantile
from privinf.inference.score_test import THRESHOLD
from privinf.mechanisms import Moments, Rows
from privinf.mechanisms.gaussian import noisy_total
from privinf.mechanisms.passes import OwnSum, RowPasses
from privinf.moments.equation import MomentMap, layout_of_design, spectral_edge
from privinf.noise import SimulationNoise
from privinf.schema import Design
from privinf.typing import Bounds, Calibration, Flags, Floats, Pair, SpendingOptions
from privinf.validation import check_array, check_count, check_fraction

__all__ = ["MomentReplications", "SimulatedMoments", "replicate_moments", "simulated_moments"]


@dataclass(frozen=True, slots=True, eq=False)
class SimulatedMoments:
    """What R releases of second moments hold.

    Attributes
    ----------
    totals : ndarray, shape (R, q, q)
        Sums of zz', z = (public, private, c y), with noise on what is not public.
    weights, scales : ndarray, shape (R,)
        c, and the noise's sd on each isometric entry.
    n : int
        Rows of each table.
    """

    totals: Floats
    weights: Floats
    scales: Floats
    n: int


def simulated_moments(
    mechanism: Moments,
    tables: Iterable[tuple[Floats, Floats]],
    seeds: Sequence[int],
    spending: Mapping[str, Any],
) -> SimulatedMoments:
    """Return the totals that ``mechanism.release(table, rng=seed, **spending)`` has for each table (y, X).

    Budget and noise scale are solved for once for all tables whose public columns have the same sizes.

    Raises
    ------
    ArgumentError, SchemaError, AlignmentError, SensitivityError
        As for `Moments.release`.

    Notes
    -----
    **Privacy.** None: the noise is seeded, the rows are simulated. It is no release.
    """
    rows, columns, factors = mechanism.layout.pairs()
    public = mechanism.layout.public
    laws: dict[bytes, tuple[float, float, OwnSum]] = {}
    totals = []
    told = []
    n = 0
    for (y, X), seed in zip(tables, seeds, strict=True):
        passes = RowPasses(mechanism.design, Rows(X, y))
        reach, norm2 = passes.public_sizes()
        key = np.append(reach, norm2).tobytes()
        if key not in laws:
            law = mechanism.release(Rows(X, y), rng=seed, **spending).noise_model
            weight = float(law["response_weight"])
            scale = float(law["scale"])
            laws[key] = weight, scale, mechanism._queries(weight, reach, norm2, robust=False)[0]
        weight, scale, asked = laws[key]
        sums = asked.over(passes, exact=scale > 0.0)
        total = np.zeros((mechanism.layout.size, mechanism.layout.size))
        total[rows, columns] = noisy_total(sums, scale, SimulationNoise(seed)) / factors
        total[columns, rows] = total[rows, columns]
        total[:public, :public] = sums.public
        totals.append(total)
        told.append((weight, scale))
        n = passes.n
    weights, scales = np.array(told).T
    return SimulatedMoments(np.array(totals), weights, scales, n)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class MomentReplications:
    """What R fits of `MomentOLS` say, one row a replication.

    Attributes
    ----------
    names : tuple of str
        Of the p coefficients.
    params, bse : ndarray, shape (R, p)
        In the user's units; standard errors are nan where a fit has none (`MomentOLS`: so little signal that
        no covariance follows).
    df : ndarray, shape (R, p)
        Degrees of freedom of the t quantiles.
    weak : ndarray of bool, shape (R,)
        ``fit.identification.weak``, where a single fit has score intervals of each coefficient; steep
        directions are not told.
    nobs : int

    Notes
    -----
    **Privacy.** None: seeded noise on simulated rows.
    """

    names: tuple[str, ...]
    params: Floats
    bse: Floats
    df: Floats
    weak: Flags
    nobs: int

    def conf_int(self, alpha: float = 0.05) -> Floats:
        """Return intervals of level ``1 - alpha``, shape (R, p, 2), as ``fit.conf_int(alpha)`` has them."""
        level = check_fraction(alpha, "alpha")
        half = np.asarray(upper_quantile(level / 2.0, self.df)) * self.bse
        return np.stack([self.params - half, self.params + half], axis=2)

    def covers(self, truth: ArrayLike, alpha: float = 0.05) -> Flags:
        """Return which intervals hold their true coefficients, shape (R, p); False where there is none."""
        values = check_array(truth, "truth", ndim=1)
        if values.shape != (len(self.names),):
            raise ArgumentError(f"truth must have {len(self.names)} values, one for each coefficient")
        low, high = np.moveaxis(self.conf_int(alpha), 2, 0)
        return np.asarray((low <= values) & (values <= high))

    @property
    def pvalues(self) -> Floats:
        """P-values of the hypotheses that coefficients are zero, shape (R, p)."""
        return two_sided_pvalue(self.params / self.bse, self.df)


@error_boundary
def replicate_moments(
    y: ArrayLike,
    X: ArrayLike,
    *,
    seeds: Sequence[int] | int = 0,
    bounds: Bounds = None,
    radius: float | None = None,
    y_bounds: Pair | None = None,
    public: Sequence[str | int] = (),
    response_weight: float | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    mu: float | None = None,
    rho: float | None = None,
    calibration: Calibration | None = None,
) -> MomentReplications:
    """Fit `MomentOLS` (trust "central", "nonrobust") to many simulated tables at once.

    Parameters
    ----------
    y : array_like, shape (R, n)
    X : array_like, shape (R, n, p)
        As it is; the columns' names are x1, ..., xp. Several blocks of replications fit in any memory.
    seeds : sequence of R ints, or int
        Replication r is ``MomentOLS(y[r], X[r], ...).fit(rng=seeds[r], ...)``; from one seed s: s + r.
    bounds : pairs (low, high), optional
        Public bounds of the columns.
    radius : float, optional
        Radius of a ball into which each (scaled) row is projected.
    y_bounds : (low, high)
        Public bounds of the response.
    public : sequence of str or int
        Columns that are sent in clear.
    response_weight : float, optional
        Public weight of the response in the sensitivity.
    epsilon, delta, mu, rho : float, optional
        Budget of every fit; exactly one of `epsilon`, `mu` and `rho`.
    calibration : {"exact", "classic"}, optional
        How `epsilon` and `delta` determine the noise.

    Returns
    -------
    MomentReplications
        Coefficients, standard errors and degrees of freedom of all fits.

    Raises
    ------
    ArgumentError, SchemaError, SensitivityError, AlignmentError
        Shapes that do not fit; otherwise as for a single fit, of the first table that has something wrong.

    Notes
    -----
    Sums and noise are those of the single fits; their equations are solved together, with
    ``cov = A^-1 (s^2 A + n V(b)) A^-1 / n`` and Satterthwaite's degrees of freedom as in
    `privinf.moments.equation.NoisyTotals`. Numbers agree with the single fits' up to rounding.

    **Privacy.** None: seeded noise, for simulated rows alone.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (200, 500, 2))
    >>> y = X @ [0.5, -0.3] + 0.3 * rng.standard_normal((200, 500))
    >>> fits = replicate_moments(y, X, bounds=[(-1, 1)] * 2, y_bounds=(-2, 2), epsilon=1.0, delta=1e-6)
    >>> bool(0.9 < fits.covers([0.5, -0.3]).mean() < 0.99)
    True
    """
    responses = check_array(y, "y", ndim=2)
    tables = check_array(X, "X", ndim=3)
    if len(responses) == 0 or responses.shape != tables.shape[:2]:
        raise ArgumentError(
            f"y must have the shape (R, n) of X's (R, n, p), R >= 1; got {responses.shape} and {tables.shape}"
        )
    chosen = (
        range(check_count(seeds, "seeds", least=0), seeds + len(tables)) if isinstance(seeds, int) else seeds
    )
    if len(chosen) != len(tables):
        raise ArgumentError(
            f"seeds must be one for each of the {len(tables)} replications, got {len(chosen)}"
        )
    budget = SpendingOptions(epsilon=epsilon, delta=delta, mu=mu, rho=rho, calibration=calibration)
    if y_bounds is None:
        raise SchemaError(PROTECTED)
    if isinstance(bounds, str) or isinstance(y_bounds, str):
        raise ArgumentError('bounds="data" would differ from table to table: give numbers')
    held = rows_of_arrays(
        responses[0], tables[0], Limits(bounds=bounds, radius=radius, y_bounds=y_bounds, public=public)
    )
    mechanism = Moments(held.design, response_weight=response_weight)
    return _solved(
        simulated_moments(mechanism, zip(responses, tables, strict=True), chosen, {**budget.spending()}),
        held.design,
    )


def _solved(moments: SimulatedMoments, design: Design) -> MomentReplications:
    """Return the estimates of all replications; those of one weight and noise scale are solved together."""
    R = len(moments.totals)
    p = len(design.names)
    params, bse, df = (np.full((R, p), np.nan) for _ in range(3))
    weak = np.zeros(R, dtype=np.bool_)
    laws = np.column_stack([moments.weights, moments.scales])
    layout, order = layout_of_design(design)
    for law in np.unique(laws, axis=0):
        rows = np.flatnonzero((laws == law).all(axis=1))
        W = moments.totals[rows] / moments.n
        own = MomentMap.checked(public=layout.public, size=layout.size, order=order, weight=law[0])
        equations = _Equations.from_moments(W, own, moments.n, float(law[1]))
        params[rows], bse[rows], df[rows] = equations.in_units(*design.to_user)
        weak[rows] = equations.weak()
    return MomentReplications(names=design.names, params=params, bse=bse, df=df, weak=weak, nobs=moments.n)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Equations:
    """R equations ``g - A b = 0`` of noisy totals with one noise law, and their solutions, scaled units.

    Attributes
    ----------
    A, noise : ndarray, shape (R, p, p)
        Second moments of the columns, and n times the covariance of the noise's part of the scores.
    params : ndarray, shape (R, p)
    cov : ndarray, shape (R, p, p)
        nan where there is none.
    df_resid : ndarray, shape (R,)
        Of the sampling part.
    """

    own: MomentMap
    n: int
    scale: float
    A: Floats
    noise: Floats
    params: Floats
    cov: Floats
    df_resid: Floats

    @classmethod
    def from_moments(cls, W: Floats, own: MomentMap, n: int, scale: float) -> _Equations:
        """Return the equations of mean second moments W, shape (R, q, q), solved."""
        J = np.vstack([-own.columns, own.response])
        values, vectors = np.linalg.eigh(W)
        lifted = (vectors * np.maximum(values, 0.0)[:, None, :]) @ vectors.transpose(0, 2, 1)
        Q, positive = (J @ V @ J.T for V in (W, np.where(values[:, :1, None] < 0.0, lifted, W)))
        A = Q[:, :-1, :-1]
        g = -Q[:, :-1, -1]
        definite = _definite(A)
        bread = np.where(definite[:, None, None], A, np.eye(A.shape[1]))
        params = np.linalg.solve(bread, g[:, :, None])[:, :, 0]
        for row in np.flatnonzero(~definite):
            params[row] = np.linalg.pinv(A[row], hermitian=True) @ g[row]
        w = np.column_stack([params, np.ones(len(params))])
        noise = _noise(own, w, scale**2 / n)
        fitted = np.trace(np.linalg.solve(bread, noise), axis1=1, axis2=2) / n
        residual, least = (np.einsum("rk,rkl,rl->r", w, V, w) for V in (Q, positive))
        variance = np.where(definite, np.maximum(residual + fitted, least), least)
        left = float(max(n - A.shape[1], 1))
        meat = variance[:, None, None] * (n / left) * positive[:, :-1, :-1] + noise
        cov = _sandwiches(bread, meat, n)
        cov[~(definite & _definite(cov))] = np.nan
        v = own.response - params @ own.columns
        size = np.sum(v**2, axis=1) ** 2 - np.sum(v[:, : own.public] ** 2, axis=1) ** 2
        twice = 2.0 * variance**2
        df = twice / (twice / left + (scale / n) ** 2 * size) if scale > 0.0 else np.full(len(A), left)
        return cls(own=own, n=n, scale=scale, A=A, noise=noise, params=params, cov=cov, df_resid=df)

    def in_units(self, transform: Floats, shift: Floats) -> tuple[Floats, Floats, Floats]:
        """Return coefficients, standard errors and degrees of freedom of ``transform b + shift``."""
        bread = np.where(np.isnan(self.cov), np.eye(self.A.shape[1]), self.A)
        total, noise = (
            np.einsum("ij,rjk,ik->ri", transform, V, transform)
            for V in (self.cov, _sandwiches(bread, self.noise, self.n))
        )
        sampling = np.maximum(total - noise, 0.0)
        ratio = np.divide(total, sampling, out=np.full_like(total, np.inf), where=sampling > 0.0)
        df = self.df_resid[:, None] * np.maximum(ratio, 1.0) ** 2
        return self.params @ transform.T + shift, np.sqrt(total), df

    def weak(self) -> Flags:
        """Return whether A is too weak for normal intervals, as `identification` has it."""
        free = self.own.noise_free
        edge = spectral_edge(free, self.scale / self.n)
        if edge == 0.0:
            return np.zeros(len(self.A), dtype=np.bool_)
        gram = self.A[:, ~free][:, :, ~free]
        cross = self.A[:, free][:, :, ~free]
        gram = gram - cross.transpose(0, 2, 1) @ np.linalg.solve(self.A[:, free][:, :, free], cross)
        root = np.linalg.inv(np.linalg.cholesky(self.own.metric()[np.ix_(~free, ~free)]))
        least = np.linalg.eigvalsh(root @ gram @ root.T)[:, 0]
        return np.asarray(least / edge < THRESHOLD / np.sqrt(np.count_nonzero(~free)))


def _noise(own: MomentMap, w: Floats, variance: float) -> Floats:
    """Return `MomentMap.noise_form` for each row of w, shape (R, p, p)."""
    u = w @ np.vstack([-own.columns, own.response])
    C = own.columns

    def part(u: Floats, C: Floats) -> Floats:
        turned = u @ C.T
        squares = np.einsum("ri,ri->r", u, u)
        return np.asarray(squares[:, None, None] * (C @ C.T) + turned[:, :, None] * turned[:, None, :])

    public = part(u[:, : own.public], C[:, : own.public])
    return np.asarray(variance / 2.0 * (part(u, C) - public), dtype=np.float64)


def _sandwiches(bread: Floats, meat: Floats, n: int) -> Floats:
    """Return ``bread^-1 meat bread^-T / n`` of each."""
    half = np.linalg.solve(bread, meat)
    cov = np.linalg.solve(bread, half.transpose(0, 2, 1)) / n
    return np.asarray((cov + cov.transpose(0, 2, 1)) / 2.0)


def _definite(matrices: Floats) -> Flags:
    """Return whether each matrix is positive definite, as `is_positive_definite` has it."""
    diagonal = np.einsum("rii->ri", matrices)
    with np.errstate(invalid="ignore"):
        unit = np.sqrt(diagonal)
    try:
        if np.isfinite(matrices).all() and (diagonal > 0.0).all():
            np.linalg.cholesky(matrices / unit[:, None, :] / unit[:, :, None])
            return np.ones(len(matrices), dtype=np.bool_)
    except np.linalg.LinAlgError:
        pass
    return np.array([is_positive_definite(matrix) for matrix in matrices])
