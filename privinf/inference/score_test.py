"""The score test, valid whatever the strength of identification, and a measure of that strength."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg

from privinf.errors import ArgumentError, NotPositiveDefiniteError
from privinf.inference.estimate import is_positive_definite
from privinf.inference.linear_scores import (
    CHI_SQUARE,
    LinearScores,
    ScoreDistribution,
    concentrate,
    kept_columns,
    partialled,
)
from privinf.inference.solution import sandwich
from privinf.notebook import html_table
from privinf.typing import Floats
from privinf.validation import check_array

NOTABLE_BIAS = 0.1  # standard errors: notes leave out a smaller bound of the bias
NO_ALLOWANCE = "the test does not allow for a possible bias of up to {:.2g} standard errors; wald_test() does"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
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
    law : ScoreDistribution
        Chi-square with `df` degrees of freedom, or F for mixed rows.
    bias : float
        Largest possible bias of the tested values in standard errors, for which `wald_test` allows and this
        test does not.
    """

    statistic: float
    pvalue: float
    df: int
    null: Floats
    law: ScoreDistribution = CHI_SQUARE
    bias: float = 0.0

    @property
    def note(self) -> str:
        """That the test does not allow for a bias; empty without a notable one."""
        return NO_ALLOWANCE.format(self.bias) if self.bias > NOTABLE_BIAS else ""

    def __repr__(self) -> str:
        described = self.law.described(self.statistic, self.df)
        note = f"; {self.note}" if self.note else ""
        return f"<Score test: {described}, p-value={self.pvalue:.4g}, df={self.df}{note}>"

    def _repr_html_(self) -> str:
        cells = (self.law.described(self.statistic, self.df), f"{self.pvalue:.4g}", self.df)
        table = html_table(("statistic", "p-value", "df"), [cells], "Score test")
        return table + (f"<p>{self.note}</p>" if self.note else "")


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

    Raises
    ------
    ArgumentError
        For a null of the wrong length, or if a column with noise is not tested.
    NotPositiveDefiniteError
        If the scores are linearly dependent at the null.

    Notes
    -----
    ``T = n psibar(b)' meat(b)^-1 psibar(b)``, chi-square at the true b (mixed rows: the F distribution): A is
    never inverted, so weak identification does not matter. The concentrated coefficients solve their own rows
    exactly, and their influence ``psi_x - A_xz A_zz^-1 psi_z`` is what the meat is taken of. A "nonrobust"
    system's meat assumes equal error variance, and so does the test then.

    **Privacy.** Post-processing.

    References
    ----------
    Anderson, T. W. and Rubin, H. (1949), Annals of Mathematical Statistics 20, 46-63; Stock, J. H. and
    Wright, J. H. (2000), Econometrica 68, 1055-1096.

    Examples
    --------
    >>> from privinf.inference.corrected_features import CorrectedLeastSquares
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-1, 1, (5000, 2))
    >>> noisy = x + 2.0 * rng.standard_normal(x.shape)
    >>> system = CorrectedLeastSquares(noisy, x @ [1.0, -1.0], 4.0 * np.eye(2))
    >>> bool(score_test(system).pvalue < 1e-6), bool(score_test(system, [1.0, -1.0]).pvalue > 0.05)
    (True, True)
    """
    under_test = kept_columns(tested, system.noise_free)
    df = int(under_test.sum())
    values = np.zeros(df) if null is None else check_array(null, "null", ndim=1)
    if values.shape != (df,):
        raise ArgumentError(f"null= must have {df} values, one for each tested column, got {values.shape[0]}")
    maps = concentrate(system.A, system.g, under_test)
    beta = maps.coefficients(values)
    psi = maps.projection @ (system.g - system.A @ beta)
    meat = maps.projection @ system.null_meat(beta) @ maps.projection.T
    if not is_positive_definite(meat):
        raise NotPositiveDefiniteError(
            "the scores are linearly dependent under the null hypothesis: leave out a collinear column"
        )
    statistic = float(system.n * psi @ np.linalg.solve(meat, psi))
    return ScoreTestResult(
        statistic=statistic,
        pvalue=system.distribution.pvalue(statistic, df),
        df=df,
        null=values,
        law=system.distribution,
    )


# Both limits are chosen by simulation, so that without a flag or a warning no coefficient's 95% intervals
# miss more than 7%, and joint Wald tests reject at most 7.5%: see benchmarks/results/identification.md, made
# by benchmarks/calibrate_identification.py.
THRESHOLD = 3.5  # over sqrt(d): the smallest eigenvalue must exceed about five sds of its own noise
LARGEST_STRETCH = 1.96 / 22.0  # stretch of a contrast above which its direction is called steep
_QUANTILE = 1.96  # normal, of a 95% interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Identification:
    """Strength of identification.

    Attributes
    ----------
    statistic : float
        `smallest_eigenvalue` over `noise_edge`; infinite without noise.
    threshold : float
        Below it Wald intervals should not be trusted.
    weak : bool
    smallest_eigenvalue : float
        Of the corrected Gram matrix of the noisy columns, the others partialled out, in the metric of its
        noise; negative where noise outweighs signal.
    noise_edge : float
        How far pure noise spreads that eigenvalue below zero.
    stretch : float
        How much farther than the 95% Wald interval the score interval of the weakest direction reaches:
        ``1.96/sqrt(T) - 1``, T the score statistic at the Wald interval's worse end. Looked for in noisy
        moments above the threshold; 0 elsewhere.
    """

    statistic: float
    threshold: float
    weak: bool
    smallest_eigenvalue: float
    noise_edge: float
    stretch: float = 0.0

    def __str__(self) -> str:
        verdict = "too weak for normal intervals" if self.weak else "strong enough for normal intervals"
        if self.steep:
            verdict = (
                f"the score changes fast in one direction (stretch {self.stretch:.2g}), so normal "
                "intervals err on one side: use score intervals"
            )
        return f"statistic {self.statistic:.3g} (weak below {self.threshold:.3g}): {verdict}"

    @property
    def steep(self) -> bool:
        """Whether a direction that is not weak has so steep a slope that Wald intervals err on one side."""
        return not self.weak and self.stretch > LARGEST_STRETCH


def identification(system: LinearScores, *, threshold: float | None = None) -> Identification:
    r"""Return the identification statistic of a system.

    Parameters
    ----------
    system : LinearScores
    threshold : float, optional
        Default 3.5 / sqrt(d), d the number of noisy columns.

    Notes
    -----
    Corrected least squares: ``lambda_min(S^-1/2 M S^-1/2) - 1`` over ``2 sqrt(d/n)``; pure noise puts the
    numerator near -2 sqrt(d/n) (the lower edge of the Marchenko-Pastur law), not at zero. Noisy moments:
    smallest eigenvalue of A over the spectral edge of its noise, sqrt(2 d) times the sd of a diagonal
    entry. Weak identification is to Wald intervals what weak instruments are to two-stage least squares;
    the score test does not need it. What else intervals assume, such as errors of equal variance, it does not
    see.

    In noisy moments a weak direction with a steep slope needs more: the noise of A then moves the estimate
    and its standard error together, ``t = z (1 + z/r)``, r the smallest eigenvalue in sds of its noise, and z
    decides on the flag too. Such a slope shows in the score statistic at the ends of the Wald interval:
    `stretch` is 1.96/r where the slope is all, and near 0 where it adds nothing to the noise. Above 1.96/22
    the direction is called steep: over all fits intervals miss 5 to 8% there, all on one side.

    Where half of the fits or more are neither weak nor steep, no coefficient's intervals of these miss more
    than 7%, and joint Wald tests reject at most 7.5%, in every simulated design of noisy moments. Where
    nearly all are one or the other, those that are not are those that the noise has favoured.

    **Privacy.** Post-processing.

    Examples
    --------
    >>> from privinf.inference.corrected_features import CorrectedLeastSquares
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-1, 1, (5000, 1))
    >>> noisy = x + 9.0 * rng.standard_normal(x.shape)
    >>> identification(CorrectedLeastSquares(noisy, x[:, 0], [[81.0]])).weak
    True
    """
    noisy = ~system.noise_free
    metric, edge = system.gram_noise()
    limit = float(THRESHOLD / np.sqrt(max(int(noisy.sum()), 1))) if threshold is None else threshold
    if edge == 0.0:
        return Identification(
            statistic=np.inf, threshold=limit, weak=False, smallest_eigenvalue=np.inf, noise_edge=0.0
        )
    values, vectors = linalg.eigh(partialled(system.A, noisy), metric[np.ix_(noisy, noisy)])
    statistic = float(values[0] / edge)
    stretch = 0.0
    if statistic >= limit and system.linear_noise:
        stretch = _stretch(system, metric[:, noisy] @ vectors[:, 0])
    return Identification(
        statistic=statistic,
        threshold=limit,
        weak=statistic < limit,
        smallest_eigenvalue=float(values[0]),
        noise_edge=float(edge),
        stretch=stretch,
    )


def _stretch(system: LinearScores, contrast: Floats) -> float:
    """Return ``1.96/sqrt(T) - 1`` at the worse end of a contrast's Wald interval, the rest moved along.

    Less the part of it that few records alone would give, ``sqrt(1 + 1.96^2/n)``: t intervals have it.
    """
    if not is_positive_definite(system.A):
        return np.inf
    beta = np.asarray(np.linalg.solve(system.A, system.g), dtype=np.float64)
    along = sandwich(system.A, system.null_meat(beta), system.n) @ contrast
    variance = float(contrast @ along)
    if not variance > 0.0:
        return np.inf
    step = np.asarray(_QUANTILE * along / np.sqrt(variance), dtype=np.float64)
    psi = system.A @ step
    smallest = np.inf
    for end in (beta - step, beta + step):
        meat = system.null_meat(end)
        if not is_positive_definite(meat):
            return np.inf
        smallest = min(smallest, float(system.n * psi @ np.linalg.solve(meat, psi)))
    return float(_QUANTILE / np.sqrt(smallest * (1.0 + _QUANTILE**2 / system.n)) - 1.0)
