"""Least squares from one noisy total of second moments (MomentOLS, central or by secure sum)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike

from privinf.completeness import CompleteRows
from privinf.errors import ArgumentError, NotAvailableError
from privinf.fitting.covariances import check_records, requested_covariance
from privinf.fitting.solve import Fit
from privinf.inference.ends import at_an_end
from privinf.inference.estimate import is_positive_definite
from privinf.inference.linear_scores import (
    LEAST_MOMENT_STRENGTH,
    LargeSample,
    homoskedastic_variance,
    mean_response,
    with_fitted_noise,
)
from privinf.inference.solution import TOTALS_EQUATION, semidefinite, totals_noise_terms
from privinf.mechanisms.moments import can_cluster, complete_rows_of, moment_columns
from privinf.mechanisms.statistics.moments import MomentLayout
from privinf.release_kinds import MomentsNoiseModel
from privinf.releases import Release
from privinf.results import Results
from privinf.schema import Design, Numeric, Schema
from privinf.schema.terms import Column, Contrast, Indicator
from privinf.typing import CovWord, Flags, Floats, Integers, Missing, SamplingKind, Trust
from privinf.validation import check_array, check_count, check_number, check_positive, counted

# ---- from entries of a release to a regression

FULLER_REASON = (
    "stabilization='fuller' is only for corrected least squares, and this model uses noisy "
    "second moments: pass stabilization='ridge'"
)


@dataclass(frozen=True, slots=True)
class MomentMap:
    """From the moments of z to those of a regression of y on columns that are sums of entries of z.

    Attributes
    ----------
    public : int
        How many leading entries of z are public.
    columns : (p, size) array
        Column j of the regression is ``columns[j] @ z``.
    response : (size,) array
        y is ``response @ z``.
    """

    public: int
    columns: Floats
    response: Floats

    @classmethod
    def checked(cls, *, public: int, size: int, order: ArrayLike | None, weight: float) -> MomentMap:
        """Return the map of all columns in a chosen order, or raise ArgumentError."""
        check_count(public, "public", least=0)
        if public > size - 2:
            raise ArgumentError(
                f"public={public} leaves no private column, because z has {counted(size - 1, 'column')} "
                f"before its last entry, y: pass public= of at most {max(size - 2, 0)}, or add columns"
            )
        columns = np.arange(size - 1) if order is None else np.asarray(order, dtype=np.int64)
        if not np.array_equal(np.sort(columns), np.arange(size - 1)):
            raise ArgumentError(f"order= must be a permutation of the {size - 1} columns")
        entries = np.eye(size)
        return cls(public, entries[columns], entries[-1] / check_positive(weight, "weight"))

    @property
    def noise_free(self) -> Flags:
        """Which columns are public."""
        return np.asarray(~self.columns[:, self.public :].any(axis=1))

    def pairs(self) -> tuple[Integers, Integers, Floats]:
        """Return rows, columns and factors of all isometric entries: the noisy ones, then the public."""
        rows, columns = np.triu_indices(len(self.response))
        first = np.argsort(columns < self.public, kind="stable")
        rows, columns = rows[first], columns[first]
        return rows, columns, np.where(rows == columns, 1.0, np.sqrt(2.0))

    @property
    def noisy(self) -> int:
        """How many isometric entries carry noise."""
        size = len(self.response)
        public = self.public
        return size * (size + 1) // 2 - public * (public + 1) // 2

    def quadratic_form(self, W: Floats) -> Floats:
        """Return Q with ``w'Qw = mean (y - x'b)^2`` at w = (b, 1): [[A, -g], [-g', yy]]."""
        J = self._signed()
        return np.asarray(J @ W @ J.T, dtype=np.float64)

    def loadings(self) -> Floats:
        """Return L, shape (p+1, p, m), with ``psi = sum_k w_k L_k m``."""
        return self.products(self._signed(), self.columns)

    def products(self, first: Floats, right: Floats) -> Floats:
        """Return L, shape (k, l, m): ``left[k] @ z`` times ``right[l] @ z`` is ``L_kl m``."""
        rows, columns, factors = self.pairs()
        once = first[:, None, rows] * right[None, :, columns]
        twice = np.where(rows == columns, 0.0, first[:, None, columns] * right[None, :, rows])
        return np.asarray((once + twice) / factors, dtype=np.float64)

    def noise_tensor(self, variance: float) -> Floats:
        """Return K with ``Cov(noise of psi) = sum_kl w_k w_l K_kl`` for iid noise on the noisy entries.

        With N the noise of the moments, of variance s^2 on the diagonal and s^2/2 next to it,
        ``Cov(u'N a, t'N c) = (s^2/2) [(u't)(a'c) + (u'c)(a't)]``, less the same of their public entries.
        Where the columns are entries of z, all noisy, that is ``(s^2/2)[(|b|^2 + c^-2) I + b b']`` at w. The
        form alone is `noise_form`: the tensor takes p^2 times its memory.
        """
        J = self._signed()

        def part(J: Floats, C: Floats) -> Floats:
            crossed = J @ C.T
            K: Floats = np.multiply.outer(J @ J.T, C @ C.T)
            K += np.einsum("kb,la->klab", crossed, crossed)
            return K

        K = part(J, self.columns)
        if self.public:
            K -= part(J[:, : self.public], self.columns[:, : self.public])
        K *= variance / 2.0
        return K

    def contrast_forms(self, directions: Floats, variance: float) -> Floats:
        """Return ``sum_ab K_klab t_ja t_jb``, shape (k, p+1, p+1), of the rows t_j of `directions`."""
        J = self._signed()

        def part(J: Floats, C: Floats) -> Floats:
            rows = directions @ C
            crossed = rows @ J.T
            return np.asarray(
                np.multiply.outer(np.sum(rows**2, axis=1), J @ J.T)
                + crossed[:, :, None] * crossed[:, None, :]
            )

        public = slice(self.public)
        of_public = part(J[:, public], self.columns[:, public])
        return np.asarray(variance / 2.0 * (part(J, self.columns) - of_public))

    def noise_form(self, w: Floats, v: Floats, variance: float) -> Floats:
        """Return ``sum_kl w_k v_l K_kl``, shape (p, p)."""
        J = self._signed()
        C = self.columns

        def part(u: Floats, t: Floats, C: Floats) -> Floats:
            return np.asarray((u @ t) * (C @ C.T) + np.outer(C @ t, C @ u), dtype=np.float64)

        u = J.T @ w
        t = J.T @ v
        public = slice(self.public)
        return np.asarray(variance / 2.0 * (part(u, t, C) - part(u[public], t[public], C[:, public])))

    def noise_terms(self, beta: Floats, variance: float) -> dict[str, Floats]:
        """Return the named terms of the form at w = (b, 1)."""
        return totals_noise_terms(lambda w, v: self.noise_form(w, v, variance), beta)

    def _signed(self) -> Floats:
        return np.vstack([-self.columns, self.response])

    def square_noise(self, params: list[Floats], variance: float) -> Floats:
        """Return the covariance of the noise of mean squared residuals at some coefficients b.

        With ``y - x'b = v'z``, the noise of two of them has the covariance ``s^2 [(v'u)^2 - (v_0'u_0)^2]``,
        s^2 its `variance` in an isometric entry and v_0 the public entries of v.
        """
        forms = np.array([self.response - self.columns.T @ b for b in params])
        public = forms[:, : self.public]
        return np.asarray(variance * ((forms @ forms.T) ** 2 - (public @ public.T) ** 2))

    def metric(self) -> Floats:
        """Return the metric of the noise in A: that of the noisy columns as sums of entries of z."""
        noisy = np.where(self.noise_free[:, None], 0.0, self.columns)
        return np.asarray(noisy @ noisy.T, dtype=np.float64)


def positive_part(matrix: Floats) -> Floats:
    """Return the nearest positive semidefinite matrix; the matrix itself where it is one already."""
    values, vectors = np.linalg.eigh(matrix)
    if values[0] >= 0.0:
        return matrix
    return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T, dtype=np.float64)


def spectral_edge(noise_free: Flags, sd: float) -> float:
    """Return ``sqrt(2 d) sd``: about the largest eigenvalue of the noise in d private columns of A."""
    return float(np.sqrt(2.0 * np.count_nonzero(~noise_free)) * sd)


# ---- totals


def moments_noise_model(release: Release) -> MomentsNoiseModel:
    """Return the noise model of a release of kind "moments"."""
    return cast(MomentsNoiseModel, release.noise_model)


class NoisyTotals(LargeSample):
    r"""Least squares from ``W = (sum z z' + noise)/n``, z = (public, private, c y).

    Parameters
    ----------
    W : (q, q) array
        Noisy mean second moments; the public x public block is exact.
    n : int
        Number of records.
    public : int, default 0
        How many leading entries of z are public.
    order : (q - 1,) array of int, optional
        Column j of the regression is entry ``order[j]`` of z; default: as they come.
    weight : float, default 1
        c.
    part : MomentMap, optional
        Columns and response that are sums of entries of z, in place of `public`, `order` and `weight`.
    scale : float
        sd s of the noise on each isometric entry of the *sum*.
    residual_moments : (q - 1, q - 1) array, optional
        Noisy mean of ``clip(e)^2 x x'``, columns as in z: makes the covariance heteroskedasticity-robust
        (HC0).
    units : int, default 0
        Where these are sums over units of s s', s the sum of a unit's scores: how many records one has at
        most. The covariance is clustered, and has n/m - 1 degrees of freedom.

    Attributes
    ----------
    residual_projected : bool
        Whether `residual_moments` had to be made semidefinite; their trace is kept, since cutting negative
        eigenvalues off alone would widen intervals (by half, with ten columns and much noise).

    Raises
    ------
    ArgumentError
        For shapes that do not match, matrices that are not symmetric, or a negative scale.

    Notes
    -----
    psibar(b) = g - A b takes the noise linearly: it is exactly Gaussian, and nothing has to be subtracted.
    ``null_meat(b) = s2(b) A + n V(b)``, s2(b) = mean (y - x'b)^2, with V from the noise model; under HC0
    ``null_meat(b) = H + (b - b^)'A(b - b^) A + n V(b)``, so that away from the estimate b^ the residual
    moments grow as they do under homoskedasticity. In the sampling term W is replaced by its positive part,
    H by the nearest semidefinite matrix of its trace; where they are semidefinite that is W and H
    themselves. Without HC0 the meat at the estimate has divisor n - p, as statsmodels' OLS, and s2 regains
    what the estimate takes off by fitting the noise; the score test's, at a value not estimated, has n.

    **Privacy.** A function of the release alone.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> z = rng.standard_normal((1000, 2)) @ [[1.0, 2.0], [0.0, 0.5]]
    >>> system = NoisyTotals(z.T @ z / 1000, n=1000, scale=0.0)
    >>> np.round(np.linalg.solve(system.A, system.g), 1)
    array([2.])
    """

    linear_noise = True
    variance_equation = TOTALS_EQUATION
    least_strength: float | None = LEAST_MOMENT_STRENGTH

    def __init__(
        self,
        W: ArrayLike,
        *,
        n: int,
        public: int = 0,
        order: ArrayLike | None = None,
        weight: float = 1.0,
        part: MomentMap | None = None,
        scale: float,
        residual_moments: ArrayLike | None = None,
        units: int = 0,
    ) -> None:
        matrix = _symmetric(W, "W")
        self.n = check_count(n, "n")
        self._map = part or MomentMap.checked(public=public, size=matrix.shape[0], order=order, weight=weight)
        self._scale = check_number(scale, "scale", low=0.0)
        self.noise_free = self._map.noise_free
        Q = self._map.quadratic_form(matrix)
        self.A: Floats = Q[:-1, :-1]
        self.g: Floats = -Q[:-1, -1]
        self._second_moments = Q
        self._noise = self._scale**2 / self.n
        self._positive = self._map.quadratic_form(positive_part(matrix))
        self.residual_projected = False
        self._residual: Floats | None = None
        self.cov_type = "cluster" if units else "nonrobust" if residual_moments is None else "HC0"
        self._units = math.ceil(self.n / units) if units else self.n
        if residual_moments is not None:
            H = _symmetric(residual_moments, "residual_moments")
            if H.shape != self.A.shape:
                raise ArgumentError(f"residual_moments= must have shape {self.A.shape}, got {H.shape}")
            columns = self._map.columns[:, :-1]
            H = columns @ H @ columns.T
            self.residual_projected = bool(np.linalg.eigvalsh(H)[0] < 0.0)
            self._residual = semidefinite(H) if self.residual_projected else H
        self.df_resid = self._freedom()

    def scores(self, beta: Floats) -> None:
        """Return None: a total has no records."""

    def residual_variance(self, beta: Floats) -> float:
        """Return s2(b) = mean (y - x'b)^2 from the noisy moments; it may be negative."""
        w = np.append(beta, 1.0)
        return float(w @ self._second_moments @ w)

    def meat(self, beta: Floats) -> Floats:
        """Return ``n Cov(psibar(b))`` at the estimate: sampling and noise together."""
        if self._residual is not None:
            return self.null_meat(beta)
        sampling = self._variance(beta) * self._freed * self._positive[:-1, :-1]
        return sampling + self.noise_meat(beta)

    def null_meat(self, beta: Floats) -> Floats:
        """Return ``n Cov(psibar(b))`` at coefficients that were not estimated."""
        gram = self._positive[:-1, :-1]
        away = np.append(beta, 1.0)
        if self._residual is None:
            return float(away @ self._positive @ away) * gram + self.noise_meat(beta)
        away = self._away() @ away
        return float(away @ gram @ away) * gram + self._residual + self.noise_meat(beta)

    def noise_terms(self, beta: Floats) -> dict[str, Floats]:
        """Return the terms of n V(b), the noise part: exact."""
        return self._map.noise_terms(beta, self._noise)

    def clean_meat(self, beta: Floats) -> tuple[Floats, SamplingKind]:
        """Return the sampling part of the meat."""
        if self._residual is not None:
            return self._residual, "heteroskedastic"
        return homoskedastic_variance(self, beta) * self._freed * self.A, "homoskedastic"

    def squares_with_noise(self, beta: Floats, constant: Floats | None) -> tuple[Floats, Floats]:
        """Return mean squares of residuals and of the response, and the covariance of their noise, (2, 2)."""
        both = [beta, mean_response(self, constant)]
        squares = np.array([self.residual_variance(b) for b in both])
        noise = self._map.square_noise(both, (self._scale / self.n) ** 2)
        return with_fitted_noise(self, beta, squares, noise)

    def _freedom(self) -> float:
        """Degrees of freedom of the sampling part: n - p, or fewer where noise is in s2 as well.

        Satterthwaite: s2 varies by ``2 s2^2/(n - p)`` and by its noise's ``s^2 |v|^4/n^2``, v'z = y - x'b.
        """
        freedom = float(max(self.n - len(self.g) if self._units == self.n else self._units - 1, 1))
        if self._residual is not None or self._scale == 0.0 or not is_positive_definite(self.A):
            return freedom
        beta: Floats = np.asarray(np.linalg.solve(self.A, self.g), dtype=np.float64)
        variance = self._variance(beta)
        v = self._map.response - self._map.columns.T @ beta  # y - x'b = v'z
        noise = (self._scale / self.n) ** 2 * float((v @ v) ** 2 - np.sum(v[: self._map.public] ** 2) ** 2)
        return 2.0 * variance**2 / (2.0 * variance**2 / freedom + noise)

    def _variance(self, beta: Floats) -> float:
        """Return s2 at the estimate, corrected for its fit to the noise, at least that of the tensor."""
        w = np.append(beta, 1.0)
        smallest = float(w @ self._positive @ w)
        if not is_positive_definite(self.A):
            return smallest
        fitted = float(np.trace(np.linalg.solve(self.A, self.noise_meat(beta)))) / self.n
        return max(self.residual_variance(beta) + fitted, smallest)

    @property
    def _freed(self) -> float:
        return self.n / max(self.n - len(self.g), 1)

    def tensor(self) -> Floats:
        """Return C with ``null_meat(b) = sum_kl w_k w_l C_kl``; positive semidefinite at every w."""
        gram = self._positive[:-1, :-1]
        noise = self._map.noise_tensor(self._noise)
        if self._residual is None:
            return np.asarray(np.multiply.outer(self._positive, gram) + noise, dtype=np.float64)
        away = self._away()
        tensor = np.multiply.outer(away.T @ gram @ away, gram) + noise
        tensor[-1, -1] += self._residual
        return np.asarray(tensor, dtype=np.float64)

    def contrast_forms(self, directions: Floats) -> Floats:
        """Return F, shape (k, p+1, p+1), with ``t_k' null_meat(b) t_k = w'F_k w``, t_k row k, w = (b, 1)."""
        gram = self._positive[:-1, :-1]
        squares = np.einsum("ja,ab,jb->j", directions, gram, directions, optimize=True)
        forms = self._map.contrast_forms(directions, self._noise)
        if self._residual is None:
            return np.asarray(forms + np.multiply.outer(squares, self._positive))
        away = self._away()
        forms += np.multiply.outer(squares, away.T @ gram @ away)
        forms[:, -1, -1] += np.einsum("ja,ab,jb->j", directions, self._residual, directions, optimize=True)
        return forms

    def _away(self) -> Floats:
        """Return D with ``b - b^ = D w``."""
        p = self.g.shape[0]
        shift = np.eye(p, p + 1)
        shift[:, -1] = -np.linalg.pinv(self.A, hermitian=True) @ self.g
        return shift

    def gram_noise(self) -> tuple[Floats, float]:
        """Return (the noise's metric, sqrt(2 d) s/n): the spectral edge in the private block of A."""
        return self._map.metric(), spectral_edge(self.noise_free, self._scale / self.n)

    def fuller_gram(self, a: float | None = None) -> Floats:
        """Raise NotAvailableError: these moments are unbiased, no noise covariance is subtracted."""
        raise NotAvailableError(FULLER_REASON)


def _symmetric(value: ArrayLike, name: str) -> Floats:
    matrix = check_array(value, name, ndim=2)
    if matrix.shape[0] != matrix.shape[1] or not np.allclose(matrix, matrix.T, rtol=1e-9, atol=1e-12):
        raise ArgumentError(f"{name} must be a symmetric matrix")
    return (matrix + matrix.T) / 2


# ---- systems

# Robust errors were measured where residuals beyond seven sds and more were left out, see
# benchmarks/results/hc0_real.md; at three they are too small on skewed responses.
MEASURED_MULTIPLE = 5.0


def caveats(release: Release, system: LargeSample) -> dict[str, Any]:
    """Return ``clipped_at``, in sds, where residuals were clipped so tightly that robust errors may be wrong.

    Empty where the public bounds keep residuals inside the clip, and where it is wide enough.
    """
    noise_model = moments_noise_model(release)
    if not isinstance(system, NoisyTotals) or "residual_moments" not in release.arrays:
        return {}
    bound = float(noise_model["residual_bound"])
    b = np.asarray(np.linalg.lstsq(system.A, system.g, rcond=None)[0], dtype=np.float64)
    variance = system.residual_variance(b)
    if units := noise_model.get("units", 0):
        # The mean square of a unit's length: at most of units that all have as many records as one may have.
        variance = max(units * float(np.trace(system.clean_meat(b)[0])), 0.0)
    if bound >= noise_model.get("residual_largest", math.inf) or bound**2 >= MEASURED_MULTIPLE**2 * variance:
        return {}
    return {"clipped_at": bound / math.sqrt(variance)}


def at_ends(release: Release, system: LargeSample, design: Design) -> dict[str, Any]:
    """Return ``at_an_end``: the numbers whose released mean is at an end of their bounds; else nothing.

    Parameters
    ----------
    release : Release
    system : LargeSample
        Of totals, scaled units; with a constant whose mean square is 1.
    design : Design
        Columns of the equation.
    """
    constant = design.constant
    if not isinstance(system, NoisyTotals) or constant is None:
        return {}
    noise_model = moments_noise_model(release)
    dropping = noise_model.get("missing") == "drop"
    if abs(system.A[constant, constant] - 1.0) > 1e-9 and not dropping:  # rows are weighted
        return {}
    sd = noise_model["scale"] / (system.n * math.sqrt(2.0))
    schema = design.schema
    response = design.outcome.column

    def is_number(column: Column) -> bool:
        return column.plain and (schema is None or isinstance(schema.columns.get(column.inputs[0]), Numeric))

    columns = [j for j, column in enumerate(design.columns) if j != constant and is_number(column)]
    names = [design.columns[j].inputs[0] for j in columns]
    means = system.A[constant, columns]
    sds = np.full(len(columns), sd)
    low = design.scaled_low[columns]
    high = design.scaled_high[columns]
    if is_number(response) and design.y_low is not None and design.y_high is not None:
        names.append(design.response)
        ends = ((end - design.y_center) / design.y_scale for end in (design.y_low, design.y_high))
        of_response = float(system.g[constant]), sd / noise_model["response_weight"], *ends
        means, sds, low, high = (
            np.append(values, response_value)
            for values, response_value in zip((means, sds, low, high), of_response, strict=True)
        )
    near = [name for name, at in zip(names, at_an_end(means, sds, low, high), strict=True) if at]
    return {"at_an_end": near} if near else {}


METHOD = "noisy second moments"  # of a summary


def described(release: Release) -> dict[str, str]:
    """Return the rows of a summary about a federation."""
    labels = {"sites": "Sites", "max_colluding": "Colluding sites allowed for"}
    return {
        text: str(release.noise_model[name]) for name, text in labels.items() if release.noise_model.get(name)
    }


def release_cov_type(release: Release) -> CovWord:
    """Return the covariance that a moment release supports."""
    if "groups" in release.arrays or moments_noise_model(release).get("units"):
        return "cluster"
    robust = release.noise_model["trust"] == "local" or "residual_moments" in release.arrays
    return "HC0" if robust else "nonrobust"


def without(result: Results, effects: tuple[str, ...]) -> Results:
    """Return a result without the coefficients of these terms; see `privinf.results.effects`."""
    from privinf.results.effects import absorbing

    return absorbing(result, effects)


ROW_SUMS = (
    "cov_type='cluster' is not available with several sites, because rows of one cluster "
    "may be at different sites: use MomentOLS with one table, or ModulatedOLS"
)


def default_covariance(schema: Schema | None, trust: Trust) -> CovWord | None:
    """Return the covariance of a fit that names none: by units of several rows in one table, else None."""
    several = schema is not None and schema.max_rows > 1 and can_cluster(schema.max_rows)
    return "cluster" if trust == "central" and several else None


def release_covariance_kind(cov_type: CovWord | None, schema: Schema | None, trust: Trust) -> CovWord | None:
    """Return the kind of covariance that a release computes; errors as in `requested_covariance`."""
    kind = requested_covariance(cov_type, schema).release
    if kind == "cluster" and trust in ("server", "secure-sum"):
        raise NotAvailableError(ROW_SUMS)
    if trust != "local" or kind == "nonrobust":
        return kind
    check_records(cov_type, schema)
    return None  # of records' moments there is one covariance


def total_system(release: Release, part: MomentMap | None = None) -> NoisyTotals:
    """Return the estimating equation of a total, scaled units: of its design, or of a part of it."""
    arrays = release.arrays
    noise_model = moments_noise_model(release)
    layout, order = layout_of(release)
    n = rows_of(release)
    residual = None
    if part is None and "residual_moments" in arrays:
        size = layout.size - 1
        rows, columns = np.triu_indices(size)
        residual = np.zeros((size, size))
        residual[rows, columns] = arrays["residual_moments"] / np.where(rows == columns, 1.0, np.sqrt(2.0))
        residual[columns, rows] = residual[rows, columns]
        residual = residual / n
    return NoisyTotals(
        layout.matrix(arrays["moments"], arrays["public_moments"]) / n,
        n=n,
        public=layout.public,
        order=order,
        weight=noise_model["response_weight"],
        part=part,
        scale=noise_model["scale"],
        residual_moments=residual,
        units=noise_model.get("units", 0),
    )


def layout_of(release: Release) -> tuple[MomentLayout, Integers]:
    """Return how a release orders z, (public, private, c y), and the order that brings columns back."""
    return layout_of_design(release.design, moments_noise_model(release).get("missing", "raise"))


def layout_of_design(design: Design, missing: Missing = "raise") -> tuple[MomentLayout, Integers]:
    """Return the same of releases of a design, by their handling of missing values."""
    noised = moment_columns(design, missing)
    public = np.flatnonzero(~noised)
    private = np.flatnonzero(noised)
    return MomentLayout(len(public), len(private)), np.argsort(np.concatenate([public, private]))


def complete_rows(release: Release) -> CompleteRows | None:
    """Return the estimated number of complete rows; None where no rows are dropped.

    It is the noisy sum of the constant, and takes the place of n in every mean: see
    `privinf.completeness`.
    """
    if release.noise_model.get("missing") != "drop":
        return None
    layout, _ = layout_of(release)
    moments = layout.matrix(release.arrays["moments"], release.arrays["public_moments"])
    return complete_rows_of(release.design, release.noise_model, moments, release.nobs)


def rows_of(release: Release) -> int:
    """Return the number of rows behind a release: where rows are dropped, the estimate for complete ones."""
    complete = complete_rows(release)
    return release.nobs if complete is None else complete.rows


def check_stabilization(release: Release, fit: Fit) -> None:
    """Refuse a ridge penalty where rows were dropped, since it would shrink the noisy constant too."""
    if fit.ridge > 0.0 and release.noise_model.get("missing") == "drop":
        raise NotAvailableError(
            "ridge= cannot be used with a release with missing='drop', whose constant carries noise too and "
            "would be penalized: leave ridge= and stabilization= out"
        )


def completeness(release: Release) -> dict[str, Any]:
    """Return the settings of a result that state how many rows are complete; empty where none are dropped."""
    complete = complete_rows(release)
    return {} if complete is None else complete.settings()


# ---- causes of wide intervals

WIDE = 2.0  # standard error of the middle slope over that without noise, from which on a note says why
WIDEST = 3.0  # the same of the widest coefficient
COSTLY = 3.0  # a cause that costs this many times the variance is named; the dearest always
# Residual variance, in units of the largest squared response, at which bounds cost 1.
EVEN_RESPONSE = 1.0 / 4.0
EVEN_COLUMN = 1.0 / 3.0  # variance of a uniform column in units of its bounds; at that its bounds cost 1
ALONE = 0.3  # a column of which the others leave a smaller share of the variance is correlated with them
RANGES = (
    "The noise is proportional to the declared ranges of the response and the columns. "
    "{} OLS with the same formula scales the noise to the spread of the residuals, and has narrower "
    "intervals where bounds are wide."
)
ONE_CAUSE = "The main cause of the wide intervals is {}."
SEVERAL_CAUSES = "The main causes of the wide intervals are {}."
TIMES = (
    "Because of the noise, the standard errors of the slopes are {:.1f} times as large as without "
    "noise (median over the slopes), and the standard error of {} is {:.1f} times as large. "
)
DROWNED = "The noise is too large to estimate the standard errors without noise. "
RESPONSE_WIDE = "the bounds of the response {} ({})"
RESIDUAL_SD = "the standard deviation of the residuals is {:.0%} of half the width of these bounds"
RESIDUALS_HIDDEN = "the noise is too large to estimate the standard deviation of the residuals"
COLUMN_WIDE = (
    "the bounds of {}, which are wide relative to its values (the standard deviation of the values is "
    "{:.0%} of half the width)"
)
UNTOLD = "the variance of {}, which is too small to estimate with this noise"
ONE_LEVEL = "the small variation of {} (its standard deviation is {:.0%} of half the width of its range)"
GOES_ALONG = "the correlation of {} with other columns"
NUMEROUS = "the number of columns, {} (each column adds noise)"


def advice_of(result: Results, system: LargeSample, released: Design) -> tuple[str, ...]:
    """Return the note on why intervals are wide; nothing where they are not wide.

    Parameters
    ----------
    result : Results
        Of p coefficients, none left out.
    system : LargeSample
        Its equation, scaled units; records' moments have no advice.
    released : Design
        Of the release: all its columns add to the noise.

    Notes
    -----
    With half the width of their bounds 1, the noise adds to the variance of a slope about as much as sampling
    does, times ``kappa (1 + R^2) / (sigma^2 r_j)``: sigma^2 the residual variance, r_j the share of column j
    that the others do not explain, R^2 the largest squared norm of the columns, kappa a number that budget
    and n decide. Against a response and a column that fill their bounds evenly next to one other, 1/4, 1/3
    and R^2 = 1, each factor is the increase in variance.
    """
    design = result._context.design
    estimate = result.estimate
    if design is None or not isinstance(system, NoisyTotals) or system._scale == 0.0:
        return ()
    slopes = np.arange(len(result.names)) != (-1 if design.constant is None else design.constant)
    if not slopes.any():
        return ()
    sampling = result._context.sampling_cov
    if estimate.cov is None or sampling is None or not (np.diag(sampling) > 0.0).all():
        weakest = np.linalg.eigh(system.A)[1][:, 0]
        widest = int(np.argmax(np.where(slopes, np.abs(weakest), -1.0)))
        return (DROWNED + RANGES.format(_causes(result, system, (design, released), widest)),)
    ratio = np.where(slopes, estimate.bse / np.sqrt(np.diag(sampling)), 0.0)
    middle = float(np.median(ratio[slopes]))
    widest = int(np.argmax(ratio))
    if middle < WIDE and ratio[widest] < WIDEST:
        return ()
    text = TIMES.format(middle, repr(result.names[widest]), float(ratio[widest]))
    return (text + RANGES.format(_causes(result, system, (design, released), widest)),)


def _causes(result: Results, system: NoisyTotals, designs: tuple[Design, Design], widest: int) -> str:
    """Return a sentence on the causes that cost most, the dearest first.

    `designs` are those of the fit and of the release.
    """
    design, released = designs
    name = repr(result.names[widest])
    gram = system.A
    mean = 0.0 if design.constant is None else float(gram[design.constant, widest])
    spread = max(float(gram[widest, widest]) - mean**2, 0.0)
    own_variation = max(1.0 / float(np.linalg.pinv(gram, hermitian=True)[widest, widest]), 0.0)
    scale = result._context.scale
    residual = 0.0 if scale is None else scale / (design.y_scale * design.y_norm) ** 2
    share = RESIDUAL_SD.format(math.sqrt(residual)) if residual else RESIDUALS_HIDDEN
    along = own_variation < ALONE * spread
    if spread == 0.0:
        column = UNTOLD.format(name)
    elif along:
        column = GOES_ALONG.format(name)
    elif any(isinstance(piece, (Indicator, Contrast)) for piece in design.columns[widest].pieces):
        column = ONE_LEVEL.format(name, math.sqrt(spread))
    else:
        column = COLUMN_WIDE.format(name, math.sqrt(spread))
    costs = {
        RESPONSE_WIDE.format(repr(design.response), share): EVEN_RESPONSE / max(residual, 1e-6),
        column: EVEN_COLUMN / max(own_variation, 1e-12),
        NUMEROUS.format(len(released.columns)): (1.0 + released.norm**2) / 2.0,
    }
    dearest = sorted(costs, key=lambda cause: -costs[cause])
    causes = [cause for cause in dearest if costs[cause] >= COSTLY or cause == dearest[0]]
    if len(causes) == 1:
        return ONE_CAUSE.format(causes[0])
    return SEVERAL_CAUSES.format("; ".join(f"({k}) {cause}" for k, cause in enumerate(causes, 1)))
