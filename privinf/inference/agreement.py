r"""Agreement of estimates of one coefficient: Cochran's Q, I^2 with an interval, and the pooled estimate.

For estimates b of a coefficient at m sites with the covariance V, which need not be diagonal,

    pooled  b^ = (1'V^-1 b) / (1'V^-1 1),   Q = (b - b^ 1)' V^-1 (b - b^ 1).

Q is the Wald statistic of the hypothesis that all m coefficients are equal, whatever contrasts state it.
Where V is diagonal, it is Cochran's Q. If the coefficients are equal, Q is chi-square with m - 1 degrees of
freedom. Otherwise it is noncentral with ``lambda = beta' (V^-1 - V^-1 1 1' V^-1 / 1'V^-1 1) beta``. Then
E Q = m - 1 + lambda, and

    I^2 = max(0, (Q - m + 1) / Q)   estimates   lambda / (m - 1 + lambda),

the share of the estimates' spread that their errors do not cause. Its interval inverts the distribution of Q,
which is exact for normal estimates of known covariance. It is about these m sites, not about a population
from which they were drawn.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import optimize, stats

from privinf.errors import ArgumentError
from privinf.inference.estimate import is_positive_definite
from privinf.typing import ArrayLike, Floats
from privinf.validation import check_array, check_fraction


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Homogeneity:
    """Test that m coefficients are equal, and their pooled estimate.

    Attributes
    ----------
    statistic : float
        Q.
    df : int
        m - 1.
    pooled, pooled_se : float
        Estimate with the smallest variance if the coefficients are equal, and its standard error.
    weights : ndarray, shape (m,)
        Weights of the estimates in it; they add up to one.
    """

    statistic: float
    df: int
    pooled: float
    pooled_se: float
    weights: Floats

    @property
    def pvalue(self) -> float:
        """Chance of a larger Q if the coefficients are equal."""
        return float(stats.chi2.sf(self.statistic, self.df))

    @property
    def i_squared(self) -> float:
        """Share of the spread of the estimates that their errors do not cause."""
        return max(0.0, 1.0 - self.df / self.statistic) if self.statistic > 0.0 else 0.0

    def i_squared_interval(self, alpha: float = 0.05) -> tuple[float, float]:
        """Return an interval for lambda / (m - 1 + lambda) of level ``1 - alpha``.

        Parameters
        ----------
        alpha : float
            The interval has the level ``1 - alpha``.

        Returns
        -------
        (float, float)
        """
        check_fraction(alpha, "alpha")
        low, high = (
            noncentrality(self.statistic, self.df, tail) for tail in (alpha / 2.0, 1.0 - alpha / 2.0)
        )
        return low / (self.df + low), high / (self.df + high)


def homogeneity(estimates: ArrayLike, cov: ArrayLike) -> Homogeneity:
    """Return the test that m >= 2 coefficients are equal.

    Parameters
    ----------
    estimates : array_like, shape (m,)
    cov : array_like, shape (m, m)
        Covariance of their errors.

    Raises
    ------
    ArgumentError
        There are fewer than two estimates, or `cov` is not a positive definite matrix of this size.

    Notes
    -----
    **Privacy.** Post-processing: no cost.

    Examples
    --------
    >>> import numpy as np
    >>> test = homogeneity([0.9, 1.1, 1.6], np.diag([0.01, 0.01, 0.04]))
    >>> round(test.statistic, 2), test.df, round(test.pooled, 3), round(test.i_squared, 2)
    (10.0, 2, 1.067, 0.8)
    """
    values = check_array(estimates, "estimates", ndim=1)
    matrix = check_array(cov, "cov", ndim=2)
    if len(values) < 2:
        raise ArgumentError(
            "estimates= must have at least two entries, because one has nothing to agree with"
        )
    if matrix.shape != (len(values),) * 2 or not is_positive_definite(matrix):
        raise ArgumentError(f"cov= must be a positive definite matrix of shape {(len(values),) * 2}")
    precision = np.linalg.inv(matrix)
    sums = precision.sum(axis=0)
    total = float(sums.sum())
    weights = sums / total
    pooled = float(weights @ values)
    away = values - pooled
    return Homogeneity(
        statistic=max(float(away @ precision @ away), 0.0),
        df=len(values) - 1,
        pooled=pooled,
        pooled_se=total**-0.5,
        weights=weights,
    )


def noncentrality(statistic: float, df: int, tail: float) -> float:
    """Return the lambda at which a noncentral chi-square exceeds `statistic` with probability `tail`.

    It is 0 where even a central one exceeds it more often.
    """

    def excess(value: float) -> float:
        return float(stats.ncx2.sf(statistic, df, value)) - tail if value else central - tail

    central = float(stats.chi2.sf(statistic, df))
    if central >= tail:
        return 0.0
    largest = 2.0 * statistic + 10.0
    while excess(largest) < 0.0:
        largest *= 2.0
    return float(optimize.brentq(excess, 0.0, largest, xtol=1e-10 * largest, rtol=1e-10))


def holm(pvalues: Floats) -> Floats:
    """Return p-values that are adjusted for their number by Holm's rule, which holds under any dependence."""
    order = np.argsort(pvalues)
    stepped = np.maximum.accumulate((len(order) - np.arange(len(order))) * pvalues[order])
    adjusted = np.empty(len(order))
    adjusted[order] = np.minimum(stepped, 1.0)
    return adjusted
