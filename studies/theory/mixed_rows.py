r"""How far regressions on single and on mixed released rows can be off: theorems 1 and 2 of paper 5.

n people, d features and a label, all in [-1, 1]; every released cell has noise variance at most tau^2
(the paper: ``4 d_max sigma^2``). H = E xx', C = E xy, w = H^-1 C. The paper states its theorems up to
constants; here they are numbers, by the steps of its proofs with their slips repaired.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from privinf.validation import check_count, check_number, check_positive


@dataclass(frozen=True, slots=True)
class Regression:
    """What the bounds take of a regression.

    Attributes
    ----------
    features : int
        d.
    cross_norm : float
        ||C||.
    inverse_norm : float
        ||H^-1||, the spectral norm.

    Raises
    ------
    ArgumentError
        A number is out of its range.

    Notes
    -----
    **Privacy.** Numbers of the population, or guesses of them: no data.
    """

    features: int
    cross_norm: float
    inverse_norm: float

    def __post_init__(self) -> None:
        check_count(self.features, "features")
        check_number(self.cross_norm, "cross_norm", low=0.0)
        check_positive(self.inverse_norm, "inverse_norm")

    def tolerance(self, beta: float) -> float:
        r"""Return the error of H and of C, each, that keeps the slopes within beta (lemma 4).

        Notes
        -----
        If both are off by at most ``t <= 1/(2 ||H^-1||)`` then

        .. math:: \|\hat w - w\| \le (2 \|C\| \|H^{-1}\|^2 + 2 \|H^{-1}\|)\, t ,

        with equality for d = 1 at the largest t. The lemma prints ``||C|| ||H^-1||^2 + 2 ||H^-1||`` and its
        proof ``(2 ||C|| ||H^-1||^2 + 5 ||H^-1||)/4``: both are too small, since the proof divides by 2 where
        ``1 - ||H^-1|| t >= 1/2`` multiplies by 2.

        **Privacy.** Reads no data.

        Examples
        --------
        >>> Regression(1, cross_norm=0.5, inverse_norm=1.0).tolerance(1.5)
        0.5
        """
        factor = 2.0 * self.inverse_norm * (self.cross_norm * self.inverse_norm + 1.0)
        return min(check_positive(beta, "beta") / factor, 0.5 / self.inverse_norm)


def inner_products_bound(beta: float, *, rows: int, vectors: int) -> float:
    r"""Return the chance that random signs move an inner product by more than 4 beta (lemma 2).

    Parameters
    ----------
    beta : float
        In (0, 1), relative to the largest squared norm.
    rows : int
        k.
    vectors : int
        l: the inner products are those of l points, with themselves too.

    Returns
    -------
    float: ``(l + 1)^2 exp(-k (beta^2/4 - beta^3/6))``, at most 1.

    Raises
    ------
    ArgumentError
        A number is out of its range.

    Notes
    -----
    The lemma holds, and with 3 beta too: the lengths of the l points and of their sums, l (l + 1)/2 vectors
    with two tails each, fix every inner product.

    **Privacy.** Reads no data.

    Examples
    --------
    >>> round(inner_products_bound(0.2, rows=1000, vectors=3), 5)
    0.00276
    """
    check_number(beta, "beta", low=0.0, high=1.0)
    points = check_count(vectors, "vectors") + 1
    return min(1.0, points**2 * math.exp(-check_count(rows, "rows") * (beta**2 / 4.0 - beta**3 / 6.0)))


def chi_square_tails(u: float, degrees: int) -> float:
    """Return the Chernoff bound on the chance that a chi-square over its degrees is off 1 by more than u.

    Parameters
    ----------
    u : float
    degrees : int

    Returns
    -------
    float: both sides, with exponents ``degrees (u - log(1 + u))/2`` and ``-degrees (u + log(1 - u))/2``; the
    paper prints them without the halves, which is below the truth.

    Notes
    -----
    **Privacy.** Reads no data.

    Examples
    --------
    >>> round(chi_square_tails(0.5, 100), 4)
    0.0089
    """
    upper = math.exp(-0.5 * degrees * (u - math.log1p(u)))
    lower = math.exp(0.5 * degrees * (u + math.log1p(-u))) if u < 1.0 else 0.0
    return upper + lower


def single_rows_bound(beta: float, regression: Regression, *, n: int, noise_variance: float) -> float:
    r"""Return the bound on ``P(||w^ - w|| > beta)`` of DGM-OLS (theorem 1).

    Parameters
    ----------
    beta : float
    regression : Regression
    n : int
    noise_variance : float
        tau^2.

    Returns
    -------
    float, at most 1.

    Raises
    ------
    ArgumentError
        A number is out of its range.

    Notes
    -----
    With t from `Regression.tolerance`, H and C are within t unless one of these happens: the sampling error
    of H or C exceeds t/4 (Hoeffding, entry by entry); ``R'R/n - tau^2 I`` or ``R'r/n`` exceeds t/2 (products
    of normal columns are half differences of two chi-squares of n degrees, whose Chernoff exponent is half
    of what the paper prints); a cross term exceeds t/8 (normal). For small beta the exponent is
    ``n t^2/(16 d^2 tau^4)``: the rate that the theorem states.

    **Privacy.** Reads no data.

    Examples
    --------
    >>> design = Regression(1, cross_norm=0.05, inverse_norm=3.0)
    >>> single_rows_bound(0.1, design, n=10_000_000, noise_variance=0.5) < 1e-9
    True
    """
    t = regression.tolerance(beta)
    d = regression.features
    tau2 = check_number(noise_variance, "noise_variance", low=0.0)
    total = _sampling(t / 4.0, n, d)
    if tau2 > 0.0:
        total += d**2 * chi_square_tails(t / (2.0 * d * tau2), n)
        total += 2.0 * d * chi_square_tails(t / (2.0 * math.sqrt(d) * tau2), n)
        total += _crossing(t / 8.0, math.sqrt(tau2 / n), d)
    return min(1.0, total)


def mixed_rows_bound(
    beta: float, regression: Regression, *, n: int, rows: int, noise_variance: float
) -> float:
    r"""Return the bound on ``P(||w^ - w|| > beta)`` of the plain fit of mixed rows, RMGM-OLS (theorem 2).

    Parameters
    ----------
    beta : float
    regression : Regression
    n : int
    rows : int
        k.
    noise_variance : float
        tau^2.

    Returns
    -------
    float, at most 1.

    Raises
    ------
    ArgumentError
        A number is out of its range.

    Notes
    -----
    As `single_rows_bound`, with `inner_products_bound` at ``t/(16 d)`` for what the mixing moves, and t/4
    for ``R'R/n``, which is not corrected: ``||R||_F^2`` is tau^2 times a chi-square of k d degrees, so that
    the bound is 1 where ``k d tau^2/n >= t/4``.

    **Privacy.** Reads no data.

    Examples
    --------
    >>> design = Regression(1, cross_norm=0.05, inverse_norm=3.0)
    >>> mixed_rows_bound(0.5, design, n=10**11, rows=10**7, noise_variance=0.5) < 1e-9
    True
    """
    t = regression.tolerance(beta)
    d = regression.features
    k = check_count(rows, "rows")
    tau2 = check_number(noise_variance, "noise_variance", low=0.0)
    mixing = min(t / (16.0 * d), 0.25)
    total = _sampling(t / 4.0, n, d) + inner_products_bound(mixing, rows=k, vectors=d + 1)
    if tau2 > 0.0:
        excess = n * t / (4.0 * tau2 * k * d) - 1.0
        if excess <= 0.0:
            return 1.0
        total += math.exp(-0.5 * k * d * (excess - math.log1p(excess)))
        total += 2.0 * d * chi_square_tails(n * t / (4.0 * math.sqrt(d) * tau2 * k), k)
        total += _crossing(t / 8.0, math.sqrt(2.0 * tau2 / n), d)
    return min(1.0, total)


def single_rows_exponent(beta: float, *, n: int, features: int, largest_party: int, sigma: float) -> float:
    """Return theorem 1's exponent as printed, ``beta^2 n/(sigma^4 d^2 d_max^2)``: a rate, no constant.

    Parameters
    ----------
    beta : float
    n, features, largest_party : int
        n, d and d_max.
    sigma : float
        sqrt(2 log(1.25/delta))/epsilon.

    Raises
    ------
    ArgumentError
        A number is out of its range.

    Notes
    -----
    **Privacy.** Reads no data.

    Examples
    --------
    >>> round(single_rows_exponent(0.1, n=10**8, features=10, largest_party=1, sigma=1.0))
    10000
    """
    scale = check_positive(sigma, "sigma") ** 2 * check_count(features, "features")
    scale *= check_count(largest_party, "largest_party")
    return check_positive(beta, "beta") ** 2 * check_count(n, "n") / scale**2


def mixed_rows_exponent(
    beta: float, *, n: int, rows: int, features: int, largest_party: int, sigma: float
) -> float:
    r"""Return theorem 2's exponent as printed in the text: a rate, without its constant.

    Parameters
    ----------
    beta : float
    n, rows, features, largest_party : int
        n, k, d and d_max.
    sigma : float
        sqrt(2 log(1.25/delta))/epsilon.

    Returns
    -------
    float: the least of ``k beta^2/d^2``, ``n beta/(k d d_max sigma^2)`` and
    ``sqrt(n) beta/(d sqrt(d_max) sigma)``.

    Raises
    ------
    ArgumentError
        A number is out of its range.

    Notes
    -----
    The appendix restates it with ``n beta/(k d^2 sigma^2)`` and ``sqrt(n) beta/(d^(3/2) sigma)``; its proof
    ends with what the text has. At ``k = sqrt(n d/d_max)/sigma`` all is of order
    ``sqrt(n) beta min(1, beta)/(d^(3/2) sqrt(d_max) sigma)``.

    **Privacy.** Reads no data.

    Examples
    --------
    >>> round(mixed_rows_exponent(0.1, n=10**8, rows=10**4, features=1, largest_party=1, sigma=1.0))
    100
    """
    check_positive(beta, "beta")
    d = check_count(features, "features")
    widest = check_count(largest_party, "largest_party")
    spread = d * widest * check_positive(sigma, "sigma") ** 2
    k = check_count(rows, "rows")
    people = check_count(n, "n")
    return min(k * beta**2 / d**2, people * beta / (k * spread), math.sqrt(people / (spread * d)) * beta)


def _sampling(t: float, n: int, d: int) -> float:
    """Bound the chance that the mean of xx' or xy of n people in [-1, 1] is off by more than t."""
    check_count(n, "n")
    second = d * (d + 1.0) * math.exp(-n * (t / d) ** 2 / 2.0)
    return second + 2.0 * d * math.exp(-n * t**2 / (2.0 * d))


def _crossing(t: float, sd: float, d: int) -> float:
    """Bound the chance that X'R, X'r or R'y, of normal entries with an sd at most this, exceeds t."""
    root2 = math.sqrt(2.0) * sd
    return d**2 * math.erfc(t / (d * root2)) + 2.0 * d * math.erfc(t / (math.sqrt(d) * root2))
