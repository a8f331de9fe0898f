"""Inverse transforms of any function: the truncated series, and the Bernoulli inverse of tabled values.

The package's estimators use the losses' own series and forms (`privinf.iwp.transforms`); these are the
theorem's general ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy.typing import ArrayLike

from privinf.errors import ArgumentError
from privinf.iwp.transforms import truncated_sum
from privinf.typing import Floats
from privinf.validation import check_count, check_number
from studies.transforms.jets import derivatives
from studies.transforms.variances import table_of_levels


def inverse_series(f: Callable[[Any], Any], z: ArrayLike, s2: float, *, truncation: int) -> Floats:
    r"""Return the truncated inverse Weierstrass transform of f at z.

    Parameters
    ----------
    f : function of one argument
        Written with operators and numpy functions; its derivatives are taken automatically.
    z : (...) array
    s2 : float
        Variance of the noise in z.
    truncation : int
        K >= 0.

    Returns
    -------
    array of the shape of z.

    Raises
    ------
    ArgumentError
        For a negative variance or truncation, or a numpy function without a derivative rule.

    Notes
    -----
    .. math:: \sum_{k=0}^K (-1)^k (s^2/2)^k / k! \, f^{(2k)}(z).

    Exact for polynomials of degree at most 2 K + 1. For functions that grow no faster than e^(a z^2),
    s^2 < 1/(4a), the bias falls with K; for others (the logistic loss) the series does not converge and
    there is a best K: see `choose_truncation`.

    **Privacy.** A function of the release.

    References
    ----------
    Paper, theorem 5.1 and appendix D.7.

    Examples
    --------
    >>> float(inverse_series(lambda z: z**2, 3.0, 0.5, truncation=1))
    8.5
    """
    check_number(s2, "s2", low=0.0)
    check_count(truncation, "truncation", least=0)
    return truncated_sum(derivatives(f, z, 2 * truncation), s2, truncation)


def inverse_bernoulli(g: ArrayLike, *, keep: float, other: float) -> Floats:
    r"""Return B^-1[g], whose expectation over the response is g.

    Parameters
    ----------
    g : (k, ...) array
    keep, other : float

    Returns
    -------
    (k, ...) array: ``(g(l) - Q sum_m g(m))/(P - Q)`` for each level l as sent.

    Raises
    ------
    ArgumentError
        If the probabilities do not sum to one over the k levels, or are all equal.

    Notes
    -----
    Two levels: ``St g(y) + (1 - St) g(-y)`` with St = 1/(1 - e^-eps) (theorem 5.1).

    **Privacy.** A function of the public law.

    Examples
    --------
    >>> from studies.transforms import bernoulli
    >>> inverse_bernoulli(bernoulli([0.0, 1.0, 5.0], keep=0.6, other=0.2), keep=0.6, other=0.2).round(9)
    array([0., 1., 5.])
    """
    values = table_of_levels(g, keep, other)
    if keep == other:
        raise ArgumentError("a response that keeps no level more often than another has no inverse")
    inverse: Floats = (values - other * values.sum(axis=0)) / (keep - other)
    return inverse
