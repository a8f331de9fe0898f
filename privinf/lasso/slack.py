r"""The slack of Theorem 5: what the privacy errors of beta and of w_j do to an interval at worst.

The debiased b_j keeps the remainder ``(e_j - S w_j)'(b0 - beta)``, S the Gram matrix. With the error d of the
coefficients on the picked columns and w_j solved from the noisy Gram S + Z, its part from the noise is

    (w_j - w_j0)' S d = -w_j' Z d.

The intervals already count w_j'Z d as a variance (the part "column" of
`privinf.lasso.coordinates`): it is centred, as Z is. Theorem 5 bounds it instead, by Cauchy and
Schwarz,

    |(w_j - w_j0)' S d| <= k_max ||w_j - w_j0|| ||d|| <= (k_max / k_min) ||Z w_j|| ||d||,          (bound)

k_max and k_min the restricted eigenvalues: that needs no independence of Z and d. Both norms are taken from
the laws of the released noises, d from the noise of the coefficients alone. With |w| the norm of w_j, D_j its
number of entries, g the sd of the Gram's noise, t the noise of the m coefficients, which have the
covariance t^2 P,

    E||Z w_j||^2 = g^2 |w|^2 (D_j + 1) / 2,     E||d||^2 = t^2 tr P.

The released variance "column" is g^2/2 (|w|^2 tr D + w'D w) >= g^2 |w|^2 a tr P / 2 with D = a P and
a = q sigma^2/N + t^2, sampling error included, so that

    E||Z w_j||^2 E||d||^2 <= (D_j + 1) (t^2 / a) column_j,

and Gaussian concentration (``||G|| <= sqrt(E||G||^2) + l sqrt(2 log(2/eta))``, l the largest sd of any
projection) gives with probability 1 - eta

    slack_j = (k_max / k_min) sqrt[(D_j + 1) (t^2 / a) column_j]
              x (1 + 2 c / sqrt(D_j + 1)) (1 + c / sqrt(m_e)),     c = sqrt(log(2 / eta)),

for ||Z w||, where l is g |w|, and for ||d||, where m_e = tr P / (2 l_max(P)) is unknown and at least 1/2: the
bound takes 1/2 x (k_min / k_max) m, its least value over the designs that have the released eigenvalues.
The bound grows like sqrt(D_j m): s times the privacy error of an entry of beta times that of w, as in the
paper.

**The paper.** Its text lost the formula of Theorem 5 and the constant before it; its proof says that the
constant may be one, and rests on constants of Theorem 3 that it does not state. Here only eta is open.

**Assumed.** The supports of beta and of w_j are found; the noise of the last gradient step is all of the
coefficients' privacy error (earlier ones contract). Signal in columns that were not picked is not in the
bound, nor are the sampling errors of w_j and beta, which vanish by Theorem 4. The released eigenvalues are
those of random directions: k_max / k_min is underestimated, which the bound can bear, for it holds with one
in its place.
"""

from __future__ import annotations

import math

import numpy as np

from privinf.errors import ArgumentError
from privinf.typing import Floats, Integers
from privinf.validation import check_array, check_count, check_fraction, check_number

ETA = 0.01


def privacy_slack(
    column: Floats,
    members: Integers,
    picked: int,
    privacy_share: float,
    ratio: float,
    *,
    eta: float = ETA,
) -> Floats:
    """Return the bound on what the privacy errors of coefficients and precision columns do together, (k,).

    Parameters
    ----------
    column : ndarray, shape (k,)
        Released variances of w_j'Z d, sampling error of the coefficients included.
    members : ndarray of int, shape (k,)
        D_j, entries of each precision column.
    picked : int
        m, columns whose coefficients have noise.
    privacy_share : float
        t^2 / a, the share of the noise in the coefficients' variance, in [0, 1].
    ratio : float
        k_max / k_min, at least 1.
    eta : float
        Probability that a bound fails, each target alone.

    Raises
    ------
    ArgumentError

    Notes
    -----
    **Privacy.** Post-processing. In the units of the coordinates; zero without noise.

    Examples
    --------
    >>> privacy_slack(np.array([1e-6]), np.array([8]), 5, 0.5, 1.0).round(3)
    array([0.013])
    """
    variances = check_array(column, "column", ndim=1)
    sizes = np.asarray(members)
    if sizes.shape != variances.shape or (variances < 0.0).any() or (sizes < 1).any():
        raise ArgumentError("column must hold variances and members as many sizes of at least 1")
    check_number(privacy_share, "privacy_share", low=0.0, high=1.0)
    check_number(ratio, "ratio", low=1.0)
    tail = math.sqrt(math.log(2.0 / check_fraction(eta, "eta")))
    effective = max(0.5, 0.5 * check_count(picked, "picked", least=0) / ratio)
    typical = np.sqrt((sizes + 1.0) * privacy_share * variances)
    room = (1.0 + 2.0 * tail / np.sqrt(sizes + 1.0)) * (1.0 + tail / math.sqrt(effective))
    return np.asarray(ratio * typical * room)
