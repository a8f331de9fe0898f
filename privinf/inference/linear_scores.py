"""What every corrected estimating equation offers: score statistics, sums over clusters, partialling out."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincc, betainccinv, chdtrc, chdtri

from privinf.errors import ArgumentError, NotAvailableError
from privinf.inference.estimate import is_positive_definite
from privinf.typing import Flags, Floats, Integers, SamplingKind
from privinf.validation import check_array

BLOCK = 1 << 15  # rows that are worked on at a time
# The clean meat is a difference of two estimates. Its smallest eigenvalue relative to the noise's has a
# sampling sd of up to sqrt(8/n) (products of Gaussians have kurtosis 9); below this many n^-1/2 the
# homoskedastic form is the more accurate one.
_RESOLUTION = 30.0
# Slope of the score along a coefficient, in sds of its noise, below which the coefficient is called weakly
# identified: of noisy second moments and of modulated rows. Smaller slopes that are above it by chance are
# then rare (benchmarks/results/flags.md).
LEAST_MOMENT_STRENGTH = 4.95


@dataclass(frozen=True, slots=True)
class ScoreDistribution:
    """Chi-square, or the exact distribution for a statistic of Gaussian rows.

    Attributes
    ----------
    rows : int or None
        k: the statistic is k R^2 of a regression of k Gaussian rows, whose null distribution is
        ``k Beta(df/2, (k - q - df)/2)``, q the columns of the regression that are not tested: the F test.
        None: chi-square.
    columns : int
        Columns of that regression, tested or not.
    """

    rows: int | None = None
    columns: int = 0

    def pvalue(self, statistic: float, df: int) -> float:
        """Return the chance of a larger statistic."""
        if self.rows is None:
            return float(chdtrc(df, statistic))
        share = min(max(statistic / self.rows, 0.0), 1.0)
        return float(betaincc(df / 2.0, self._denominator(df) / 2.0, share))

    def critical(self, df: int, alpha: float) -> float:
        """Return the value that the statistic exceeds with probability `alpha`."""
        if self.rows is None:
            return float(chdtri(df, alpha))
        return self.rows * float(betainccinv(df / 2.0, self._denominator(df) / 2.0, alpha))

    @property
    def tail(self) -> str:
        """What a summary calls the p-value."""
        return "P>chi2" if self.rows is None else "P>F"

    def described(self, statistic: float, df: int) -> str:
        """Return the test as a summary prints it: ``chi2(3) = 4.2`` or ``F(3, 96) = 1.3``."""
        if self.rows is None:
            return f"chi2({df}) = {statistic:.4g}"
        remainder = self.rows - statistic
        lower = self._denominator(df)
        ratio = math.inf if remainder <= 0.0 else statistic / remainder * lower / df
        return f"F({df}, {lower}) = {ratio:.4g}"

    def _denominator(self, df: int) -> int:
        assert self.rows is not None
        return self.rows - max(self.columns, df)


CHI_SQUARE = (
    ScoreDistribution()
)  # normal and chi-square distributions of score tests on many independent records


class LinearScores(Protocol):
    """An estimating function that is linear in beta: ``psibar(beta) = g - A beta``.

    Attributes
    ----------
    g : (p,) array
    A : (p, p) symmetric array
        Unbiased for the second moments of the clean columns; need not be positive definite.
    n : int
        Number of records.
    noise_free : (p,) bool array
        Columns that were released without noise (the intercept, public covariates).
    cov_type : str
        "HC0", "cluster" or "nonrobust", as statsmodels names the noise-free limit.
    df, df_resid : float
        Degrees of freedom of the covariance, and of its sampling part alone; infinite for normal inference.
    distribution : ScoreDistribution
        Of the score statistic.
    linear_noise : bool
        Whether g and A are clean moments plus noise of a known distribution, no noise moment subtracted.
    variance_equation : str
        What the terms of the covariance are.
    least_strength : float or None
        Slope of the score along one coefficient, in sds of its noise (`CoefficientScores.strength`), below
        which the coefficient is weakly identified. None: score sets of single coefficients were not
        validated for this equation.
    """

    g: Floats
    A: Floats
    n: int
    noise_free: Flags
    cov_type: str
    df: float
    df_resid: float
    distribution: ScoreDistribution
    linear_noise: bool
    variance_equation: str
    least_strength: float | None

    def scores(self, beta: Floats) -> Floats | None:
        """Return the scores of the m independent units, mean over rows psibar(beta); None for totals."""

    def residual_variance(self, beta: Floats) -> float:
        """Return mean (y - x'beta)^2 of the rows without noise, unbiased; it may be negative."""

    def meat(self, beta: Floats) -> Floats:
        """Return ``n Cov(psibar(beta))``, shape (p, p): sampling and noise together."""

    def null_meat(self, beta: Floats) -> Floats:
        """Return the meat that the score test of `beta` uses: `meat`, or a better one under the null."""

    def noise_meat(self, beta: Floats) -> Floats:
        """Return the part of the meat that the noise causes, given the clean rows; shape (p, p)."""

    def noise_terms(self, beta: Floats) -> dict[str, Floats]:
        """Return the named terms of `noise_meat`, which they add up to."""

    def clean_meat(self, beta: Floats) -> tuple[Floats, SamplingKind]:
        """Return the meat that the same rows would have had without noise, and on what assumption."""

    def tensor(self) -> Floats:
        """Return C, shape (p+1, p+1, p, p), with ``null_meat(b) = sum_kl w_k w_l C_kl`` at w = (b, 1)."""

    def contrast_forms(self, directions: Floats) -> Floats:
        """Return F, shape (k, p+1, p+1), with ``t_k' null_meat(b) t_k = w'F_k w``, t_k row k, w = (b, 1)."""

    def gram_noise(self) -> tuple[Floats, float]:
        """Return the metric (p, p) of the noise in A, and how far it spreads the spectrum in it."""

    def fuller_gram(self, a: float | None) -> Floats:
        """Return Fuller's positive definite modification of A."""


class LeastSquaresScores(LinearScores, Protocol):
    """Scores whose root is least squares, so that the noise of mean squares at it is known."""

    def squares_with_noise(self, beta: Floats, constant: Floats | None) -> tuple[Floats, Floats]:
        """Return mean squares of residuals and of the response, and the covariance of their noise, (2, 2).

        The residuals are those of the estimate, with what it takes off by fitting the noise; the response is
        about its mean where there is a constant x'v = 1.
        """


class LargeSample:
    """What systems of many independent records share: normal and chi-square inference."""

    df = np.inf
    df_resid = np.inf
    distribution = CHI_SQUARE
    linear_noise = False
    least_strength: float | None = None

    def meat(self, beta: Floats) -> Floats:
        """Return ``n Cov(psibar(beta))``."""
        raise NotImplementedError

    def null_meat(self, beta: Floats) -> Floats:
        """Return `meat`: the score test needs no other."""
        return self.meat(beta)

    def noise_terms(self, beta: Floats) -> dict[str, Floats]:
        """Return the named terms of the noise's meat."""
        raise NotImplementedError

    def noise_meat(self, beta: Floats) -> Floats:
        """Return the part of the meat that the noise causes, given the clean rows: the sum of its terms."""
        return np.asarray(sum(self.noise_terms(beta).values()), dtype=np.float64)

    def tensor(self) -> Floats:
        """Return C with ``null_meat(b) = sum_kl w_k w_l C_kl``."""
        raise NotImplementedError

    def contrast_forms(self, directions: Floats) -> Floats:
        """Return F, shape (k, p+1, p+1), with ``t_k' null_meat(b) t_k = w'F_k w``, t_k row k, w = (b, 1)."""
        return tensor_forms(self.tensor(), directions)


def tensor_forms(tensor: Floats, directions: Floats) -> Floats:
    """Return ``sum_ab C_klab t_ja t_jb``, shape (k, p+1, p+1), of the rows t_j of `directions`."""
    forms = np.einsum("klab,ja,jb->jkl", tensor, directions, directions, optimize=True)
    return np.asarray((forms + np.swapaxes(forms, 1, 2)) / 2.0, dtype=np.float64)


def determined_difference(meat: Floats, noise: Floats, units: int) -> Floats | None:
    """Return ``meat - noise`` where its sampling error is small relative to it, else None."""
    clean = meat - noise
    if is_positive_definite(clean - _RESOLUTION / np.sqrt(units) * noise):
        return clean
    return None


def with_fitted_noise(
    system: LinearScores, beta: Floats, squares: Floats, cov: Floats
) -> tuple[Floats, Floats]:
    """Return mean squares of residuals and response, with what the estimate takes off the first by its noise.

    Parameters
    ----------
    beta : (p,) array
        The estimate.
    squares : (2,) array
        Mean squares of residuals and of the response.
    cov : (2, 2) array
        Covariance of their noise at fixed coefficients.

    Notes
    -----
    The residual variance has the slope ``-2 (g - A b)`` in b, which is 0 at least squares, and the curvature
    2 A. With M/n the covariance of the noise of psibar, b errs by ``A^-1 psibar``: the second-order part
    ``psibar'A^-1 psibar`` has the mean ``tr(A^-1 M)/n``, which is added, and the variance ``2 tr((A^-1
    M)^2)/n^2``. The slope adds ``4 h'M h/n``, ``h = A^-1 (g - A b)``. Where A is not positive definite, no
    minimum exists and the variance is infinite.
    """
    M = system.noise_meat(beta) / system.n
    if not M.any():
        return squares, cov
    if not is_positive_definite(system.A):
        return squares, cov + np.diag([np.inf, 0.0])
    fitted = np.linalg.solve(system.A, M)
    h = np.linalg.solve(system.A, system.g - system.A @ beta)
    variance = 2.0 * float(np.trace(fitted @ fitted)) + 4.0 * float(h @ M @ h)
    return squares + np.array([np.trace(fitted), 0.0]), cov + np.diag([variance, 0.0])


def mean_response(system: LinearScores, constant: Floats | None) -> Floats:
    """Return the coefficients of the mean of the response; zeros without a constant x'v = 1."""
    mean = np.zeros_like(system.g)
    if constant is not None and (mass := float(constant @ system.A @ constant)) > 0.0:
        mean = constant * float(constant @ system.g) / mass
    return mean


def homoskedastic_variance(system: LinearScores, beta: Floats) -> float:
    """Return the residual variance of the clean rows, from the estimate `beta`.

    Notes
    -----
    The estimate minimises `residual_variance`, which is therefore too small by the part that fits noise:
    ``tr(A^-1 noise_meat)/n`` is added back (nothing without noise).

    Raises
    ------
    NotAvailableError
        If the noise has drowned the features or the residual variance.
    """
    if is_positive_definite(system.A):
        fitted = float(np.trace(np.linalg.solve(system.A, system.noise_meat(beta)))) / system.n
        variance = system.residual_variance(beta) + fitted
        if variance > 0.0:
            return variance
    raise NotAvailableError(
        "the standard error without noise cannot be estimated, because the noise is larger "
        "than the residual variance or the variance of the columns: use a larger budget or more rows"
    )


def refuse_dependent_rows(units: Units) -> None:
    """Raise NotAvailableError for clustered rows: the homoskedastic form takes rows as independent."""
    if units.count < units.n:
        raise NotAvailableError(
            "the standard error without noise cannot be estimated: with noise of this size, the estimate "
            "needs independent rows, but several rows belong to one unit. Use a larger budget"
        )


class Units:
    """Independent units: the records, or clusters of them; rows of a cluster are kept together.

    Parameters
    ----------
    n : int
        Number of records.
    groups : (n,) integer codes, optional
        Cluster of each record.

    Attributes
    ----------
    n, count : int
        Records and units.
    order : (n,) array or None
        Permutation that brings each cluster together; None without groups.
    """

    __slots__ = ("_starts", "count", "n", "order")

    def __init__(self, n: int, groups: ArrayLike | None = None) -> None:
        self.n = n
        self.count = n
        self.order: Integers | None = None
        self._starts: Integers | None = None
        if groups is not None:
            codes = np.asarray(groups)
            if codes.shape != (n,) or not np.issubdtype(codes.dtype, np.integer):
                raise ArgumentError(f"groups= must contain {n} integer codes, one for each row")
            self.order = np.argsort(codes, kind="stable")
            ordered = codes[self.order]
            self._starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
            self.count = self._starts.shape[0]

    def sort(self, rows: Floats) -> Floats:
        """Return rows with clusters brought together."""
        return rows if self.order is None else rows[self.order]

    def blocks(self) -> Iterator[tuple[slice, slice]]:
        """Yield (rows, units) slices that never cut a cluster."""
        if self._starts is None:
            for start in range(0, self.n, BLOCK):
                part = slice(start, min(start + BLOCK, self.n))
                yield part, part
            return
        edges = np.unique(np.searchsorted(self._starts, np.arange(0, self.n, BLOCK)))
        edges = np.append(edges[edges < self.count], self.count)
        ends = np.append(self._starts, self.n)
        for low, high in pairwise(edges):
            yield slice(ends[low], ends[high]), slice(low, high)

    def of_rows(self) -> Integers:
        """Return the unit of each sorted row, from 0, shape (n,)."""
        if self._starts is None:
            return np.arange(self.n)
        return np.repeat(np.arange(self.count), np.diff(np.append(self._starts, self.n)))

    def totals(self, values: Floats, units: slice) -> Floats:
        """Return the sums over each unit of one block's rows."""
        if self._starts is None:
            return values
        starts = self._starts[units]
        return np.asarray(np.add.reduceat(values, starts - starts[0], axis=0), dtype=np.float64)

    def covariance(self, gram: Floats, mean: Floats) -> Floats:
        """Return n Cov(mean) from the units' Gram matrix over n and the mean over records (centred)."""
        return gram - self.n / self.count * np.outer(mean, mean)


def check_weights(weights: ArrayLike | None, n: int) -> Floats | None:
    """Return public weights as positive floats, None for equal ones."""
    if weights is None:
        return None
    values = check_array(weights, "weights", ndim=1)
    if values.shape != (n,) or not (values > 0.0).all():
        raise ArgumentError(f"weights= must contain {n} positive numbers, one for each row")
    return values


# ---- concentrating out columns without noise (Frisch, Waugh, Lovell)


@dataclass(frozen=True, slots=True)
class Concentrated:
    """How the coefficients under test determine everything else.

    Attributes
    ----------
    projection : (k, p) array
        P, with ``P psi`` the scores of the kept columns after concentration.
    lift : (p + 1, k + 1) array
        From (b kept, 1) to (b, 1): the other coefficients solve their own rows of psibar exactly.
    """

    projection: Floats
    lift: Floats

    def coefficients(self, values: Floats) -> Floats:
        """Return all p coefficients at the given kept ones."""
        return np.asarray((self.lift @ np.append(values, 1.0))[:-1], dtype=np.float64)


def kept_columns(tested: ArrayLike | None, noise_free: Flags) -> Flags:
    """Return the mask of the columns under test: by default, and always at least, those with noise.

    Raises
    ------
    ArgumentError
        If a column with noise is left out: only noise-free columns can be concentrated out exactly.
    """
    if tested is None:
        mask: Flags = ~noise_free
    else:
        mask = np.asarray(tested)
        if mask.dtype != np.bool_ or mask.shape != noise_free.shape:
            raise ArgumentError(
                f"tested= must be an array of {noise_free.shape[0]} booleans, one for each column"
            )
    if (~mask & ~noise_free).any():
        raise ArgumentError("tested= must be True for every column that was released with noise")
    if not mask.any():
        raise ArgumentError(
            "there is nothing to test: without tested=, the columns with noise are tested, and here no "
            "column has noise; pass tested= with True for each column to test"
        )
    return mask


def concentrate(gram: Floats, g: Floats, tested: Flags) -> Concentrated:
    """Return the maps that concentrate the columns outside `tested` out of ``psibar(b) = g - A b``.

    Notes
    -----
    ``P = [I, -A_xz A_zz^-1]`` and ``b_z = A_zz^-1 (g_z - A_zx b_x)``. A_zz is free of noise, so this is
    never weak; the noise in A_xz multiplies psi_z, which is zero at b_z: an error of second order.
    """
    p = gram.shape[0]
    k = int(tested.sum())
    projection = np.eye(p)[tested]
    lift = np.zeros((p + 1, k + 1))
    lift[np.append(tested, True)] = np.eye(k + 1)
    if k < p:
        coupling = np.column_stack([gram[np.ix_(~tested, tested)], g[~tested]])
        solved = np.linalg.lstsq(gram[np.ix_(~tested, ~tested)], coupling, rcond=None)[0]
        projection[:, ~tested] = -solved[:, :-1].T
        lift[np.append(~tested, False)] = np.column_stack([-solved[:, :-1], solved[:, -1]])
    return Concentrated(projection, lift)


def partialled(gram: Floats, tested: Flags) -> Floats:
    """Return ``A_xx - A_xz A_zz^-1 A_zx`` of a symmetric matrix, shape (k, k)."""
    reduced = concentrate(gram, np.zeros(gram.shape[0]), tested).projection @ gram[:, tested]
    return (reduced + reduced.T) / 2
