"""What k mixed rows vary by: named terms, and the rows drawn again."""

from __future__ import annotations

import numpy as np

from privinf.typing import Floats

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
