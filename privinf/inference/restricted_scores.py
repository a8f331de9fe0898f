r"""Score tests of linear restrictions ``R b = q``: what they leave free is profiled under the null."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import linalg

from privinf.errors import NotPositiveDefiniteError
from privinf.inference.estimate import is_positive_definite
from privinf.inference.linear_scores import LinearScores
from privinf.inference.score_test import ScoreTestResult
from privinf.typing import Flags, Floats

COLLINEAR_SCORES = "the scores are linearly dependent under the null: drop a collinear column"


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
    def of(cls, R: Floats, q: Floats) -> Restriction:
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
    errors have equal variance, and the generalised one with "HC0". Of restrictions on all noisy columns it is
    `privinf.inference.score_test.score_test`.

    **Privacy.** Post-processing.

    References
    ----------
    Boos, D. D. (1992), American Statistician 46, 327-333 (generalised score tests).

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
    null = Restriction.of(R, q)
    P = null.projection(system.A)
    b = null.start
    if null.free.shape[1]:
        inner = null.free.T @ system.A @ null.free
        left = null.free.T @ (system.g - system.A @ null.start)
        b = null.at(np.asarray(np.linalg.lstsq(inner, left, rcond=None)[0], dtype=np.float64))
    statistic = quadratic_statistic(P @ (system.g - system.A @ b), P @ system.null_meat(b) @ P.T, system.n)
    return ScoreTestResult(statistic, system.law.pvalue(statistic, len(R)), len(R), q, system.law)


def quadratic_statistic(psi: Floats, meat: Floats, n: int) -> float:
    """Return ``n psi' meat^-1 psi`` (NotPositiveDefiniteError where there is no such inverse)."""
    if not is_positive_definite(meat):
        raise NotPositiveDefiniteError(COLLINEAR_SCORES)
    return float(n * psi @ np.linalg.solve(meat, psi))
