"""What k mixed rows vary by: named terms, and the rows drawn again."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from privinf.errors import ArgumentError
from privinf.inference.bootstrap import covariance_root, multiplier_sums
from privinf.typing import Floats
from privinf.validation import check_array, check_number

EQUATION = """\
cov = A^-1 [ mixing + (m s2 S + m q A + (q S + t t') + t2 (m A + S)) n k / N^2 + means + sampling ] A^-T / n
mixing: sums of other people in a row; what the sandwich of the k rows has beyond the next four
feature noise: m s2 S, noise of covariance S in a row's x times its clean residual; m = N/k, N = (1 - a) n
feature noise in residuals: m q A, q = b'S b, A the people's second moments
noise on noise: q S + t t', products of both, t = S b
response noise: t2 (m A + S), noise of variance t2 in a row's y times its x
noise of the means: of the all-ones row; concerns the constant
sampling: s2 A, of the population's coefficients only"""


def row_terms(
    size: float, gram: Floats, variance: float, S: Floats, common: Floats, slopes: Floats, response: float
) -> dict[str, Floats]:
    """Return the noise's terms of the covariance of a row's score ``x (y - x'b) + S b``.

    Parameters
    ----------
    size : float
        m = N / k, people in a row.
    gram, S : (d, d) arrays
        The people's second moments A, and the covariance of a row's noise.
    variance : float
        s2, mean squared residual of the people.
    common, slopes : (d,) arrays
        t = S b, the noise that x and the residual share, and b.
    response : float
        t2, variance of the noise in a row's y.

    Notes
    -----
    Given the people a row is (x + u, e + v - u'b) with x and e of covariances m A and m s2, uncorrelated at
    the estimate. For normal rows the product of two has the covariance of the one times that of the other
    plus the square of their covariance, ``(m A + S)(m s2 + q + t2) + t t'``: its terms but for m A m s2,
    which is mixing, vanish without noise.
    """
    q = float(slopes @ S @ slopes)
    return {
        "feature noise": size * variance * S,
        "feature noise in residuals": size * q * gram,
        "noise on noise": q * S + np.outer(common, common),
        "response noise": response * (size * gram + S),
    }


def ones_means(
    ones_row: ArrayLike, ones_response: float | None, constant: int, p: int
) -> tuple[Floats, float]:
    """Return the means of all columns and the response, and the public weight sqrt(a) n of the row."""
    row = check_array(ones_row, "ones_row", ndim=1)
    if row.shape != (p,) or ones_response is None:
        raise ArgumentError("ones_row must have one entry a column, and ones_response goes with it")
    weight = float(row[constant])
    if not weight > 0.0:
        raise ArgumentError("the entry of ones_row at the constant must be sqrt(a) n")
    return np.append(row, check_number(ones_response, "ones_response")) / weight, weight


def signed_rows(
    influence: Floats, rest: Floats, bse: Floats, draws: int, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Return draws of the errors of q quantities by random signs on k rows, and of their t statistics.

    Parameters
    ----------
    influence : (k, q) array
        What each row adds to each error; their squares add up to the rows' part of the variance.
    rest : (q, q) array
        Covariance of what does not come from the rows: noise of the means, and sampling.
    bse : (q,) array
    draws : int
    rng : Generator

    Returns
    -------
    shifts, statistics : (draws, q) arrays

    Notes
    -----
    Given the people, mixed rows are independent and alike: exactly with random signs, up to k/n where every
    person is in one row. So ``sum w_i influence_i`` with random signs w has their law. A row says nothing of
    the draw of the people, nor of the noise of means that all rows share: both are drawn from normal laws.
    The standard error of a draw is that of its signed rows, about their own mean.
    """
    moved = multiplier_sums(influence, draws=draws, multipliers="rademacher", rng=rng)
    spread = np.sqrt(bse**2 - moved**2 / len(influence))
    root = covariance_root(nonnegative(rest))
    shifts = moved + rng.standard_normal((draws, root.shape[1])) @ root.T
    return shifts, shifts / spread


def nonnegative(matrix: Floats) -> Floats:
    """Return a symmetric matrix with its negative eigenvalues at zero."""
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T, dtype=np.float64)


def residuals(X: Floats, y: Floats) -> Floats:
    """Return y less its projection on the columns of X."""
    if X.shape[1] == 0:
        return y
    coefficients = np.linalg.lstsq(X, y, rcond=None)[0]
    return np.asarray(y - X @ coefficients, dtype=np.float64)
