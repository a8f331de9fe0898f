"""Variance of k mixed rows: named terms, and the rows drawn again."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from privinf.errors import ArgumentError
from privinf.inference.bootstrap import covariance_root
from privinf.inference.estimate import is_positive_definite
from privinf.typing import Flags, Floats
from privinf.validation import check_array, check_number

EQUATION = """\
cov = A^-1 [ mixing + (m s2 S + m q A + (q S + t t') + t2 (m A + S)) n k / N^2 + means + sampling ] A^-T / n
k released rows are random combinations of n people's rows; a is the share of the row of means,
N = (1 - a) n, m = N / k, A the second moments of the columns, s2 the residual variance, b the coefficients
mixing: m s2 m A n k / N^2; other people's values in the same combination
feature noise: m s2 S; S is the covariance of the noise in a combination's features x
feature noise in residuals: m q A; q = b'S b
noise on noise: q S + t t'; t = S b
response noise: t2 (m A + S); t2 is the variance of the noise in a combination's response y
noise of the means: noise of the row of means; it affects the constant only
sampling: s2 A (averaged with an estimate from disjoint rows); only for the population's coefficients"""


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


def normal_meat(X: Floats, y: Floats, slopes: Floats, gram: Floats, S: Floats) -> Floats:
    r"""Return the covariance of a mixed row's score x e given the people, e = y - x'b, at the estimate b.

    Parameters
    ----------
    X, y : (k, d) and (k,) arrays
        Mixed rows.
    slopes : (d,) array
        b, with ``gram b = X'y/k`` up to rounding or a penalty.
    gram, S : (d, d) arrays
        m A, the people's second moments in one row, and the covariance of a row's noise: ``X'X/k - S``.

    Notes
    -----
    .. math:: \frac{X'X}{k}\, s^2 + c c', \qquad c = X'e/k, \qquad s^2 = \frac{e'e}{k - d}
              \frac{1 + \delta}{1 + 2\delta}

    is that of normal rows, (x, e) of mean 0 with E[x e] = c. Its expectation needs no normal distribution:
    over random signs ``sum x e`` of all rows has the terms ``d_i e_i``, a constant where columns of the
    mixing matrix have norm 1, and products of two people, uncorrelated. The omitted term, ``2 sum(d^2 e^2)``
    of the people, is a share of about 2/n. Dense signs and "countsketch" have it at every k up to n; for
    "hadamard", whose rows are orthogonal, it is too much by n/(n - k).

    A sandwich of the rows has four moments of each: for a row of n/k people it adds k/n times the people's
    ``mean(d d' e^2)``, which is not an error of the total, and where rows are normal its relative variance is
    8/k, that of this 2/k. By `residual_excess` the residuals at the estimate are larger than at the truth.
    """
    e = y - X @ slopes
    k = len(X)
    cross = X.T @ e / k
    meat = X.T @ X / k * residual_square(X, y, slopes, gram, S) + np.outer(cross, cross)
    return np.asarray(meat, dtype=np.float64)


def residual_square(X: Floats, y: Floats, slopes: Floats, gram: Floats, S: Floats) -> float:
    """Return s^2 of `normal_meat`: the variance of a mixed row's residual, noise included."""
    e = y - X @ slopes
    (k, d) = X.shape
    variance = float(e @ e) / (k - d)
    excess = residual_excess(gram, S, slopes, variance) / k if variance > 0.0 else 0.0
    return float(variance * (1.0 + excess) / (1.0 + 2.0 * excess))


def residual_excess(gram: Floats, S: Floats, slopes: Floats, variance: float) -> float:
    """Return k delta: the relative increase of residuals at the estimate by noise, beyond k/(k - d).

    Notes
    -----
    The error D of the estimate adds ``D'(S - A) D + 2 t'D`` to the mean squared residual, t = S b. By the
    distribution of normal rows, E D = A^-1 (G A^-1 + tr(A^-1 G)) t / k with G = A + S, and its covariance is
    ``A^-1 (s^2 G + t t') A^-1 / k``. The sum without ``-d s^2/k``, with R = A^-1 S, is

        tr R^2 + b'R' [3 S + (1 + 2 d + 2 tr R) A] R b / s^2,

    0 without noise. It is of first order in 1/k; where it is large the noise hides the slopes, and the
    variance is halved at most. 0 where the Gram matrix is not positive definite.
    """
    if not is_positive_definite(gram):
        return 0.0
    R = np.linalg.solve(gram, S)
    v = R @ slopes
    trace = float(np.trace(R))
    weight = 3.0 * S + (1.0 + 2.0 * (len(slopes) + trace)) * gram
    return float(np.trace(R @ R)) + float(v @ weight @ v) / variance


def centered_scatter(scores: Floats, df: float) -> Floats:
    """Return the sum of squares and products about the mean, over `df`."""
    centered = scores - scores.mean(axis=0)
    return np.asarray(centered.T @ centered / df, dtype=np.float64)


def shown_sampling(sandwich: Floats, normal: Floats, equal: Floats, k: int) -> Floats:
    """Return the meat of sampling from disjoint rows and from `equal` variances.

    Parameters
    ----------
    sandwich, normal : (d, d) arrays
        Of the k rows: the covariance of the scores that they show, and `normal_meat`, in one unit.
    equal : (d, d) array
        Residual variance times the people's second moments.
    k : int

    Notes
    -----
    The difference ``sandwich - normal`` is unbiased for the mean of ``d d' e^2`` of the people, its relative
    variance about ``v = (8/k) (tr equal^-1 normal / d)^2``. Its weight is 1/(1 + v): none where rows are few,
    all where k is near n and noise is weak.
    """
    ratio = float(np.trace(np.linalg.solve(equal, normal))) / len(normal)
    weight = 1.0 / (1.0 + 8.0 / k * ratio**2)
    return nonnegative((1.0 - weight) * equal + weight * (sandwich - normal))


def row_tensor(X: Floats, y: Floats, common: Floats) -> Floats:
    """Return C of ``V(b) = sum_kl w_k w_l C_kl`` in row units, w = (b, 1), shape (d+1, d+1, d, d).

    `common`, shape (d,), is the noise that x and the residual share at slopes of one.
    """
    k, d = X.shape
    Z = np.column_stack([-X, y])
    form = Z.T @ Z / k
    shared = np.column_stack([np.diag(common), np.zeros(d)])
    psi = X.T @ Z / k + shared
    cross = np.einsum("ak,bl->klab", psi - shared / 2.0, shared)
    cross += cross.transpose(0, 1, 3, 2)
    tensor = np.einsum("kl,ab->klab", form, form[:d, :d]) + cross
    return np.asarray((tensor + tensor.transpose(1, 0, 2, 3)) / 2.0, dtype=np.float64)


def ones_means(
    ones_row: ArrayLike, ones_response: float | None, constant: int, p: int
) -> tuple[Floats, float]:
    """Return the means of all columns and the response, and the public weight sqrt(a) n of the row."""
    row = check_array(ones_row, "ones_row", ndim=1)
    if row.shape != (p,) or ones_response is None:
        raise ArgumentError(
            "ones_row= (noisy sums of all columns, the constant included) must have one entry for each "
            "column; ones_response=, the noisy sum of the response, must be passed too"
        )
    weight = float(row[constant])
    if not weight > 0.0:
        raise ArgumentError("ones_row= must have a positive number as its entry for the constant")
    return np.append(row, check_number(ones_response, "ones_response")) / weight, weight


def row_draws(
    rows: Floats, rest: Floats, df: float, draws: int, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Return draws of the errors of q quantities by normal multipliers on k rows, and of their t statistics.

    Parameters
    ----------
    rows : (q, q) array
        Covariance of the errors due to the k rows.
    rest : (q, q) array
        Covariance of the other errors: noise of the means, and sampling.
    df : float
        k - d.
    draws : int
    rng : Generator

    Returns
    -------
    shifts, statistics : (draws, q) arrays

    Notes
    -----
    Given the people, mixed rows are independent and normal, sums of n/k people or more. So independent
    normal multipliers w on the rows' scores have their distribution: their sum is normal, of covariance
    `rows`, and ``w'w`` after d regressors is chi-square of k - d and independent of it, like the
    residual sum of squares that estimates `rows`, and the sampling with them. A row does not depend on the
    draw of the people, nor on the noise of means that all rows share: both are drawn from normal
    distributions.
    """
    root = covariance_root(nonnegative(rows))
    rest_root = covariance_root(nonnegative(rest))
    shifts = rng.standard_normal((draws, root.shape[1])) @ root.T
    shifts += rng.standard_normal((draws, rest_root.shape[1])) @ rest_root.T
    estimated = rng.chisquare(df, (draws, 1)) / df
    return shifts, shifts / np.sqrt(estimated * np.diag(rows + rest))


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


def independent_fit(X: Floats, e: Floats, common: Floats, size: float, tested: Flags, z: Floats) -> float:
    """Return k R^2 of residuals on rows, both with public noise that makes them independent.

    Parameters
    ----------
    X, e : (k, d) and (k,) arrays
    common : (d,) array
        t = S b, the noise that x and -e share.
    size : float
        c^2 = tau_y^2 + b'S b, noise variance of e.
    tested : (d,) bool array
        The other columns are partialled out.
    z : (k,) array
        Standard normal numbers.

    Notes
    -----
    ``e* = e + c z`` and ``x* = x + z t'/c`` are independent under the null: the noise common to e and x is
    cancelled by the noise added to both.
    """
    if common.any():
        scale = math.sqrt(size)
        e = e + scale * z
        X = X + np.outer(z, common) / scale
    e = residuals(X[:, ~tested], e)
    X = residuals(X[:, ~tested], X[:, tested])
    rest = residuals(X, e)
    return len(e) * (1.0 - float(rest @ rest) / float(e @ e))
