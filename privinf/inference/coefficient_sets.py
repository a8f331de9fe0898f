"""The score set of one coefficient: the roots of one quadratic, with one degree of freedom."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from privinf.errors import NotPositiveDefiniteError
from privinf.inference.linear_scores import LinearScores
from privinf.inference.score_sets import ScoreSet
from privinf.typing import Floats
from privinf.validation import check_fraction

EVERYTHING = ((-math.inf, math.inf),)


@dataclass(frozen=True, slots=True, kw_only=True)
class CoefficientScores:
    r"""The score statistic of one contrast of the coefficients, the others solved under the null.

    .. math:: T(x) = n x^2 / v(x), \qquad v(x) = v_0 + v_1 x + v_2 x^2,

    x the distance of the tested value from the root of the equation.

    Attributes
    ----------
    root : float
        The contrast at the root of the score equation, c'b^ with A b^ = g. It need not be the estimate, which
        may come from a stabilized A.
    v0, v1, v2 : float
        ``v0 / n`` is the variance of the root; v2 comes from the noise in A.
    n : int
    curvature : float
        c'A^-1 c. Noise hides a contrast for which it is not positive.
    """

    root: float
    v0: float
    v1: float
    v2: float
    n: int
    curvature: float

    @property
    def strength(self) -> float:
        """The slope of the score along the contrast, in sds of its noise: r = sqrt(n / v2).

        It is infinite without noise, and negative where the released curvature is. The set at level
        1 - alpha is bounded exactly where it is above the normal quantile z.
        """
        if self.v2 <= 0.0:
            return math.copysign(math.inf, self.curvature)
        return math.copysign(math.sqrt(self.n / self.v2), self.curvature)

    @property
    def standard_error(self) -> float:
        """Standard error of the root: Wald's."""
        return math.sqrt(self.v0 / self.n)

    def statistic(self, value: float) -> float:
        """Return T, the score statistic of the hypothesis that the contrast has this value."""
        x = value - self.root
        return self.n * x**2 / (self.v0 + self.v1 * x + self.v2 * x**2)

    def pieces(self, critical: float) -> tuple[tuple[float, float], ...]:
        """Return where T is at most `critical`: ``(n - q v2) x^2 - q v1 x <= q v0`` for that q.

        It is one interval where n > q v2, and all but an open interval, or the whole line, elsewhere.
        """
        square = self.n - critical * self.v2
        linear = -critical * self.v1
        constant = -critical * self.v0
        discriminant = linear**2 - 4.0 * square * constant
        if not self.curvature > 0.0 or discriminant <= 0.0:
            return EVERYTHING
        if square == 0.0:
            end = self.root - constant / linear
            return ((end, math.inf),) if linear < 0.0 else ((-math.inf, end),)
        larger = -0.5 * (linear + math.copysign(math.sqrt(discriminant), linear))  # without cancellation
        low, high = sorted((self.root + larger / square, self.root + constant / larger))
        return ((low, high),) if square > 0.0 else ((-math.inf, low), (high, math.inf))


def coefficient_scores(system: LinearScores, contrast: Floats) -> CoefficientScores:
    r"""Return the score statistic of ``contrast @ b`` as a function of its value.

    Parameters
    ----------
    system : LinearScores
        Its A need not be positive definite.
    contrast : (p,) array
        c, in the units of the system.

    Returns
    -------
    CoefficientScores

    Raises
    ------
    NotPositiveDefiniteError
        If A is singular, or the scores along ``A^-1 c`` have no variance.

    Notes
    -----
    With t = A^-1 c and the others solved under ``c'b = c'b^ + x``, ``b(x) = b^ + x t/(c't)`` and
    ``t'psi = -x``:

    .. math:: T(x) = n x^2 / v(x), \qquad v(x) = t' V(b(x)) t = v_0 + v_1 x + v_2 x^2,

    V = n Cov psi. A weak direction of A reaches the contrast through t alone, and t is released. In noise
    units ``r = sqrt(n / v_2)`` is the Rayleigh quotient of A at t, never below the smallest eigenvalue over
    the sd of the noise.

    Given t the level is that of normal scores. t has the noise of A, though, and V(b(x)) is at estimated
    values of the other coefficients. So a very steep slope along a direction that the noise hides is not
    covered: where it multiplied the noise of A to 2 to 10 times the scores' own sd, true values were rejected
    in 0.12 to 0.36 of simulated releases at level 0.05, and in at most 0.07 where it was up to once that sd.

    **Privacy.** Post-processing.
    """
    return contrast_scores(system, np.asarray(contrast, dtype=np.float64)[None])[0]


def contrast_scores(system: LinearScores, contrasts: Floats) -> tuple[CoefficientScores, ...]:
    """Return `coefficient_scores` of each row of `contrasts`, shape (k, p)."""
    try:
        solved = np.linalg.solve(system.A, np.column_stack([system.g, contrasts.T]))
    except np.linalg.LinAlgError:
        raise NotPositiveDefiniteError(
            "the matrix of derivatives of the scores is singular, as with collinear columns: leave out a "
            "collinear column"
        ) from None
    root = solved[:, 0]
    directions: Floats = np.asarray(solved[:, 1:].T, dtype=np.float64)
    curvatures = np.sum(contrasts * directions, axis=1)
    if not curvatures.all():
        raise NotPositiveDefiniteError(
            "the scores do not change with this contrast of the coefficients, so it has no score interval: "
            "choose another contrast"
        )
    forms = system.contrast_forms(directions)
    at_root = np.append(root, 1.0)
    along = np.column_stack([directions / curvatures[:, None], np.zeros(len(contrasts))])
    at_forms = forms @ at_root
    v0 = at_forms @ at_root
    if not (v0 > 0.0).all():
        raise NotPositiveDefiniteError("the scores are linearly dependent: leave out a collinear column")
    v1 = 2.0 * np.sum(at_forms * along, axis=1)
    v2 = np.einsum("jk,jkl,jl->j", along, forms, along, optimize=True)
    return tuple(
        CoefficientScores(
            root=float(contrast @ root),
            v0=float(v0[place]),
            v1=float(v1[place]),
            v2=float(v2[place]),
            n=system.n,
            curvature=float(curvatures[place]),
        )
        for place, contrast in enumerate(contrasts)
    )


def coefficient_set(system: LinearScores, contrast: Floats, *, alpha: float = 0.05) -> ScoreSet:
    """Return the values of ``contrast @ b`` that its own score test does not reject.

    Parameters
    ----------
    system : LinearScores
    contrast : (p,) array
        In the units of the system.
    alpha : float

    Returns
    -------
    ScoreSet
        Of one degree of freedom. `score_sets` returns the shadow of the joint set instead, which holds for
        all coefficients simultaneously and can be unbounded for all of them where one direction is weak.

    Raises
    ------
    ArgumentError
        For alpha outside (0, 1).
    NotPositiveDefiniteError
        As for `coefficient_scores`.

    Notes
    -----
    The set is one quadratic inequality (`CoefficientScores.pieces`). It is the whole line where the released
    curvature along the contrast is not positive.

    **Privacy.** Post-processing.

    Examples
    --------
    >>> from privinf.inference.corrected_features import CorrectedLeastSquares
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-1, 1, (5000, 2))
    >>> noisy = x + [0.1, 5.0] * rng.standard_normal(x.shape)
    >>> system = CorrectedLeastSquares(noisy, x[:, 0], np.diag([0.01, 25.0]))
    >>> [coefficient_set(system, c).bounded for c in np.eye(2)]
    [True, False]
    """
    critical = system.distribution.critical(1, check_fraction(alpha, "alpha"))
    pieces = coefficient_scores(system, np.asarray(contrast, dtype=np.float64)).pieces(critical)
    return ScoreSet(pieces, 1.0 - alpha, 1)
