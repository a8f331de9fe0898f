"""The score test: valid whatever the strength of identification (Anderson and Rubin's form)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from privinf.errors import ArgumentError, NotPositiveDefiniteError
from privinf.inference.estimate import is_positive_definite
from privinf.inference.linear_scores import CHI_SQUARE, LinearScores, ScoreLaw
from privinf.inference.partialling import concentrate, kept_columns
from privinf.typing import Floats
from privinf.validation import check_array


@dataclass(frozen=True, slots=True)
class ScoreTestResult:
    """Outcome of a score test.

    Attributes
    ----------
    statistic : float
    pvalue : float
        By `law`.
    df : int
    null : (df,) array
        Tested values, in the units of the system.
    law : ScoreLaw
        Chi-square with `df` degrees of freedom, or F for mixed rows.
    """

    statistic: float
    pvalue: float
    df: int
    null: Floats
    law: ScoreLaw = CHI_SQUARE


def score_test(
    system: LinearScores, null: ArrayLike | None = None, *, tested: ArrayLike | None = None
) -> ScoreTestResult:
    r"""Test all noisy coefficients jointly.

    Parameters
    ----------
    system : LinearScores
    null : (k,) array, optional
        Values of the tested coefficients, in the units of the system; default zero.
    tested : (p,) bool array, optional
        Columns under test: all that have noise (the default), and any others. The rest, noise-free, are
        concentrated out.

    Returns
    -------
    ScoreTestResult

    Raises
    ------
    ArgumentError
        For a null of the wrong length, or if a column with noise is not tested.
    NotPositiveDefiniteError
        If the scores are linearly dependent at the null.

    Notes
    -----
    ``T = n psibar(b)' meat(b)^-1 psibar(b)``, chi-square at the true b (mixed rows: the F law): A is never
    inverted, so weak identification does not matter. The concentrated coefficients solve their own rows
    exactly, and their influence ``psi_x - A_xz A_zz^-1 psi_z`` is what the meat is taken of. A "nonrobust"
    system's meat assumes equal error variance, and so does the test then.

    **Privacy.** Post-processing.

    References
    ----------
    Anderson, T. W. and Rubin, H. (1949), Annals of Mathematical Statistics 20, 46-63; Stock, J. H. and
    Wright, J. H. (2000), Econometrica 68, 1055-1096.

    Examples
    --------
    >>> from privinf.inference.corrected_scores import CorrectedLeastSquares
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-1, 1, (5000, 2))
    >>> noisy = x + 2.0 * rng.standard_normal(x.shape)
    >>> system = CorrectedLeastSquares(noisy, x @ [1.0, -1.0], 4.0 * np.eye(2))
    >>> bool(score_test(system).pvalue < 1e-6), bool(score_test(system, [1.0, -1.0]).pvalue > 0.05)
    (True, True)
    """
    kept = kept_columns(tested, system.noise_free)
    df = int(kept.sum())
    values = np.zeros(df) if null is None else check_array(null, "null", ndim=1)
    if values.shape != (df,):
        raise ArgumentError(f"null must have {df} values, one for each tested column, got {values.shape[0]}")
    maps = concentrate(system.A, system.g, kept)
    beta = maps.coefficients(values)
    psi = maps.projection @ (system.g - system.A @ beta)
    meat = maps.projection @ system.null_meat(beta) @ maps.projection.T
    if not is_positive_definite(meat):
        raise NotPositiveDefiniteError(
            "the scores are linearly dependent at the null: drop a collinear column"
        )
    statistic = float(system.n * psi @ np.linalg.solve(meat, psi))
    return ScoreTestResult(statistic, system.law.pvalue(statistic, df), df, values, system.law)
