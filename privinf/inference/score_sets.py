"""Score tests of restrictions ``R b = q``, what they leave free profiled; sets of the values not rejected."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg

from privinf.errors import ArgumentError, NotPositiveDefiniteError
from privinf.inference.estimate import is_positive_definite
from privinf.inference.linear_scores import LinearScores, ScoreDistribution, concentrate, kept_columns
from privinf.inference.score_profiles import Lines, Profiles
from privinf.inference.score_surface import ScoreSurface
from privinf.inference.score_test import ScoreTestResult
from privinf.typing import Flags, Floats
from privinf.validation import check_fraction

COLLINEAR_SCORES = "the scores are linearly dependent under the null hypothesis: leave out a collinear column"


@dataclass(frozen=True, slots=True)
class Restriction:
    """k independent restrictions on p coefficients: ``b = start + free c``, c whatever.

    Attributes
    ----------
    start : (p,) array
        The shortest coefficients that keep the restrictions.
    tested : (p, k) array
        ``R tested = I``: directions that break one restriction each.
    free : (p, p - k) array
        Orthonormal directions that break none.
    """

    start: Floats
    tested: Floats
    free: Floats

    @classmethod
    def from_arrays(cls, R: Floats, q: Floats) -> Restriction:
        """Return the restrictions ``R b = q``."""
        tested = np.asarray(np.linalg.pinv(R), dtype=np.float64)
        return cls(tested @ q, tested, np.asarray(linalg.null_space(R), dtype=np.float64))

    @classmethod
    def columns(cls, values: Floats, tested: Flags) -> Restriction:
        """Return the restrictions of some coefficients, a mask, to their values; the others' are zero."""
        eye = np.eye(len(values))
        return cls(values, eye[:, tested], eye[:, ~tested])

    def at(self, c: Floats) -> Floats:
        """Return all p coefficients at free ones c, shape (p - k,)."""
        return np.asarray(self.start + self.free @ c, dtype=np.float64)

    def projection(self, slope: Floats) -> Floats:
        """Return P, shape (k, p): scores of the tested directions, the free ones concentrated out.

        ``P = K' - K'J N (N'J N)^-1 N'``, J minus the derivative of the scores, K `tested` and N `free`.
        """
        if not self.free.shape[1]:
            return self.tested.T
        inner = self.free.T @ slope @ self.free
        solved = np.linalg.lstsq(inner.T, (self.tested.T @ slope @ self.free).T, rcond=None)[0]
        return np.asarray(self.tested.T - solved.T @ self.free.T, dtype=np.float64)

    def direction(self, slope: Floats) -> Floats:
        """Return ``K - N (N'J N)^-1 N'J K``, shape (p, k): how the free ones move along with the tested."""
        if not self.free.shape[1]:
            return self.tested
        inner = self.free.T @ slope @ self.free
        moved = np.linalg.lstsq(inner, self.free.T @ slope @ self.tested, rcond=None)[0]
        return np.asarray(self.tested - self.free @ moved, dtype=np.float64)

    @property
    def lift(self) -> Floats:
        """From (c, 1) to (b, 1), shape (p + 1, p - k + 1)."""
        joined = np.column_stack([self.free, self.start])
        return np.vstack([joined, np.append(np.zeros(self.free.shape[1]), 1.0)])


def restricted_score_test(system: LinearScores, R: Floats, q: Floats) -> ScoreTestResult:
    r"""Test linear restrictions by the scores, the coefficients that they leave free solved under the null.

    Parameters
    ----------
    system : LinearScores
    R : (k, p) array
        k independent rows, in the units of the system.
    q : (k,) array

    Returns
    -------
    ScoreTestResult
        Its `null` is q.

    Raises
    ------
    NotPositiveDefiniteError
        If the scores are linearly dependent under the null.

    Notes
    -----
    With ``b = b_0 + N c`` under the null, c solves ``N' psibar(b) = 0``, and at that b

    .. math:: T = n (P \bar\psi)' (P\,meat\,P')^{-1} P \bar\psi \sim \chi^2_k, \qquad
              P = K' - K'A N (N'A N)^{-1} N',

    R K = I (mixed rows: the F law). Nothing along the tested directions is inverted, so that these may be as
    weakly identified as they are; of N'A N, which is noisy, the error multiplies N'psibar, which is zero.
    Where the noise hides the free coefficients too, the test was conservative in simulated releases: it
    rejected a true null within 99% limits of its level, or less often (benchmarks/results/score_tests.md).

    Without noise it is the score (Lagrange multiplier) test of statsmodels: ``n R^2`` of least squares where
    errors have equal variance, and the generalized one with "HC0". For restrictions on all noisy columns it
    is `privinf.inference.score_test.score_test`.

    **Privacy.** Post-processing.

    References
    ----------
    Boos, D. D. (1992), American Statistician 46, 327-333 (generalized score tests).

    Examples
    --------
    >>> from privinf.inference.corrected_features import CorrectedLeastSquares
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-1, 1, (5000, 2))
    >>> noisy = x + 2.0 * rng.standard_normal(x.shape)
    >>> system = CorrectedLeastSquares(noisy, x @ [1.0, 1.0], 4.0 * np.eye(2))
    >>> equal, zero = np.array([[1.0, -1.0]]), np.array([[1.0, 0.0]])
    >>> [bool(restricted_score_test(system, R, np.zeros(1)).pvalue > 0.05) for R in (equal, zero)]
    [True, False]
    """
    null = Restriction.from_arrays(R, q)
    P = null.projection(system.A)
    b = null.start
    if null.free.shape[1]:
        inner = null.free.T @ system.A @ null.free
        free_scores = null.free.T @ (system.g - system.A @ null.start)
        b = null.at(np.asarray(np.linalg.lstsq(inner, free_scores, rcond=None)[0], dtype=np.float64))
    statistic = quadratic_statistic(P @ (system.g - system.A @ b), P @ system.null_meat(b) @ P.T, system.n)
    return ScoreTestResult(
        statistic=statistic,
        pvalue=system.distribution.pvalue(statistic, len(R)),
        df=len(R),
        null=q,
        law=system.distribution,
    )


def quadratic_statistic(psi: Floats, meat: Floats, n: int) -> float:
    """Return ``n psi' meat^-1 psi`` (NotPositiveDefiniteError where there is no such inverse)."""
    if not is_positive_definite(meat):
        raise NotPositiveDefiniteError(COLLINEAR_SCORES)
    return float(n * psi @ np.linalg.solve(meat, psi))


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

    def __str__(self) -> str:
        pieces = " or ".join(f"[{low:.4g}, {high:.4g}]" for low, high in self.pieces)
        kind = "score interval" if self.bounded else "unbounded score interval"
        return f"{pieces} ({self.level:.4g} {kind}, {self.df} df)"

    def __contains__(self, value: float) -> bool:
        """Whether a value lies in one of the pieces."""
        return any(low <= value <= high for low, high in self.pieces)

    def mapped(self, factor: float, shift: float = 0.0) -> ScoreSet:
        """Return the set of ``factor * value + shift``, factor nonzero: other units."""
        if factor == 0.0:
            raise ArgumentError("factor= must not be zero")
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
    under_test = kept_columns(tested, system.noise_free)
    p = under_test.shape[0]
    requested = range(p) if columns is None else columns
    if not all(0 <= column < p for column in requested):
        raise ArgumentError(f"columns= must hold integers from 0 to {p - 1}")
    tensor = system.tensor()
    if not tensor[:-1].any() and not tensor[:, :-1].any():
        return tuple(_ellipse_set(system, tensor[-1, -1], under_test, column, alpha) for column in requested)
    alike: dict[bytes, list[int]] = {}
    for column in requested:
        alike.setdefault(_mask(under_test, column).tobytes(), []).append(column)
    sets: dict[int, ScoreSet] = {}
    for columns_alike in alike.values():
        mask = _mask(under_test, columns_alike[0])
        maps = concentrate(system.A, system.g, mask)
        surface = ScoreSurface.from_arrays(system.A, system.g, tensor, system.n, maps)
        places = [int(mask[:column].sum()) for column in columns_alike]
        sets |= zip(columns_alike, projected_sets(surface, places, alpha, system.distribution), strict=True)
    return tuple(sets[column] for column in requested)


def _ellipse_set(
    system: LinearScores, meat: Floats, under_test: Flags, column: int, alpha: float
) -> ScoreSet:
    """Return the set of one coefficient where the meat is the same everywhere: the shadow of an ellipse.

    ``T(b) = n (h - J b)' V^-1 (h - J b)`` has the set ``b^_j +- sqrt(chi2_k [J^-1 V J^-T]_jj / n)``. So it is
    without noise, of scores that were released at one point.
    """
    mask = _mask(under_test, column)
    maps = concentrate(system.A, system.g, mask)
    J = maps.projection @ system.A @ maps.lift[:-1, :-1]
    h = maps.projection @ (system.g - system.A @ maps.lift[:-1, -1])
    place = int(mask[:column].sum())
    df = len(h)
    if not is_positive_definite(maps.projection @ meat @ maps.projection.T):
        raise NotPositiveDefiniteError("the scores are linearly dependent: leave out a collinear column")
    influence = np.linalg.solve(J.T, np.eye(df)[place])
    variance = float(influence @ maps.projection @ meat @ maps.projection.T @ influence) / system.n
    half = math.sqrt(system.distribution.critical(df, alpha) * variance)
    middle = float(influence @ h)
    return ScoreSet(((middle - half, middle + half),), 1.0 - alpha, df)


def _mask(under_test: Flags, column: int) -> Flags:
    mask = under_test.copy()
    mask[column] = True
    return mask


def projected_sets(
    surface: ScoreSurface, coordinates: Sequence[int], alpha: float, distribution: ScoreDistribution
) -> list[ScoreSet]:
    """Return the shadows of {T <= critical value} on some coordinates, sought together."""
    df = surface.B.shape[0]
    lines = Lines.from_surface(
        surface, np.asarray(coordinates, dtype=np.int64), critical=distribution.critical(df, alpha)
    )
    profiles = Profiles.from_lines(lines)
    profiles.settle()
    edges = profiles.edges()
    ends = lines.value(profiles.line[edges], profiles.crossings(edges))
    sets = []
    for line in range(len(coordinates)):
        inside = profiles.inside[profiles.line == line]
        line_ends = ends[profiles.line[edges] == line]
        limits = np.concatenate([[-np.inf] if inside[0] else [], line_ends, [np.inf] if inside[-1] else []])
        pieces = tuple((float(low), float(high)) for low, high in limits.reshape(-1, 2))
        sets.append(ScoreSet(pieces, 1.0 - alpha, df))
    return sets
