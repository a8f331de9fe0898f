r"""The synthetic design of paper 5, and releases of several parties drawn from the sums over people alone.

With D (n x d) the table of all parties, a mixed release is k sums over n people and noise. Given D, random
signs make its rows independent, each nearly normal with covariance D'D/k: the central limit theorem over
people. So a release can be drawn from D'D, in time and memory that do not grow with n. The Gram matrix of
single rows with Gaussian noise can be drawn from D'D too, without any approximation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from privinf.errors import ArgumentError
from privinf.typing import Floats, RngLike
from privinf.validation import as_generator, check_array, check_count, check_number
from studies.designs import Sample

FEATURES = 10
SLOPE_BOUND = 1.0 / FEATURES  # of uniform slopes: the mean of the response stays in [-1, 1]
MIXING_PARTIES: dict[str, list[int | str]] = {
    "a": [0, 1],
    "b": [2, 3],
    "c": [4, 5],
    "d": [6, 7],
    "e": [8, 9],
    "f": ["y"],
}
_BLOCK = 1 << 13  # people at a time: their numbers stay in the cache


@dataclass(frozen=True, slots=True, eq=False)
class PeopleSums:
    """Sums over people: all that a release depends on in its Gaussian limit.

    Attributes
    ----------
    n : int
        Number of people.
    gram : ndarray, shape (d + 2, d + 2)
        Sum of z z' over people, z = (1, x, y).
    slopes : ndarray, shape (d,)
        The true coefficients of x; the intercept is 0.
    """

    n: int
    gram: Floats
    slopes: Floats


@dataclass(frozen=True, slots=True, eq=False)
class MixedRows:
    """The releases of all parties side by side.

    Attributes
    ----------
    rows : ndarray, shape (k, d + 2)
        The public mixture of ones, without noise, then x and y.
    ones_row : ndarray, shape (d + 2,)
        The all-ones row; its first entry, without noise, is sqrt(share) n.
    """

    rows: Floats
    ones_row: Floats


def mixing_design(n: int, rng: RngLike = None, *, residual: float = 0.0) -> Sample:
    """Return y = w'x + residual U(-1, 1), x uniform on [-1, 1]^10, w uniform on [-.1, .1]^10.

    Parameters
    ----------
    n : int
    rng : None, int or Generator
    residual : float
        From 0 (the paper's: no error at all) up; with at most .2, bounds (-1, 1) hold y in all but
        astronomically few draws.

    Notes
    -----
    Six parties (`MIXING_PARTIES`): five hold two features each and the sixth the label.

    References
    ----------
    Wu et al. (2022), "Differentially private multi-party data release for linear regression", section 5.2.

    Examples
    --------
    >>> mixing_design(100, 0).X.shape
    (100, 10)
    """
    generator = as_generator(rng)
    w = _slopes(generator)
    u = 2.0 * generator.random((check_count(n, "n"), FEATURES + 1)) - 1.0
    names = [f"x{j + 1}" for j in range(FEATURES)]
    slopes = pd.Series(w, index=names)
    y = u[:, :-1] @ w + check_number(residual, "residual", low=0.0) * u[:, -1]
    return Sample(y, pd.DataFrame(u[:, :-1], columns=names), slopes, slopes)


def mixing_sums(n: int, rng: RngLike = None, *, residual: float = 0.0) -> PeopleSums:
    """Return the sums over n people of `mixing_design`, drawn block by block: exact, in constant memory.

    Examples
    --------
    >>> sums = mixing_sums(1000, 0)
    >>> float(sums.gram[0, 0]), sums.gram.shape
    (1000.0, (12, 12))
    """
    generator = as_generator(rng)
    w = _slopes(generator)
    n = check_count(n, "n")
    residual = check_number(residual, "residual", low=0.0)
    width = FEATURES + 2
    u = np.empty((min(n, _BLOCK), width - 1))
    total = np.zeros((width, width))
    ones = np.ones(len(u))
    for start in range(0, n, _BLOCK):
        block = u[: min(_BLOCK, n - start)]
        generator.random(out=block)
        total[1:, 1:] += block.T @ block
        total[0, 1:] += ones[: len(block)] @ block
    total[1:, 0] = total[0, 1:]
    total[0, 0] = n
    # From (1, u), u uniform on [0, 1], to (1, x, e) = (1, 2u - 1) and on to (1, x, y).
    centred = np.diag([1.0] + [2.0] * (width - 1))
    centred[1:, 0] = -1.0
    return _with_label(n, centred @ total @ centred.T, w, residual)


def mixing_sums_limit(n: int, rng: RngLike = None, *, residual: float = 0.0) -> PeopleSums:
    """Return the sums over n people of `mixing_design` from their normal limit: in no time at any n.

    Notes
    -----
    Sums of the monomials x_j, x_j^2 and x_i x_j of independent U(-1, 1) are uncorrelated, with variances n/3,
    4 n/45 and n/9. The limit's error is of order 1/sqrt(n) beside that, and all of it is far below the noise
    of a release: for a million people and more.

    Examples
    --------
    >>> sums = mixing_sums_limit(10**6, 0)
    >>> bool(abs(sums.gram[1, 1] - 10**6 / 3) < 2_000)
    True
    """
    generator = as_generator(rng)
    w = _slopes(generator)
    n = check_count(n, "n")
    residual = check_number(residual, "residual", low=0.0)
    half = np.triu(math.sqrt(n) / 3.0 * generator.standard_normal((FEATURES + 2, FEATURES + 2)), 1)
    half[0] *= math.sqrt(3.0)
    total = half + half.T
    squares = n / 3.0 + math.sqrt(4.0 * n / 45.0) * generator.standard_normal(FEATURES + 1)
    np.fill_diagonal(total, [n, *squares])
    return _with_label(n, total, w, residual)


def mixed_rows_limit(
    sums: PeopleSums, *, k: int, noise: Floats, share: float = 0.0, rng: RngLike = None
) -> MixedRows:
    r"""Draw the k mixed rows and the all-ones row of all parties, given the sums over people.

    Parameters
    ----------
    sums : PeopleSums
    k : int
        Mixed rows.
    noise : (d + 1,) array
        Noise variance of each x and of y.
    share : float
        Share of the all-ones row.
    rng : None, int or Generator

    Returns
    -------
    MixedRows

    Raises
    ------
    ArgumentError
        `noise` has another length or a negative entry, or a number is out of its range.

    Notes
    -----
    Rows are independent, ``N(0, (1 - share) Z'Z/k + diag(0, noise))``, Z = (1, D). Of the release's law
    only the mixing is approximate, by the central limit theorem over n people; the all-ones row is exact.

    Examples
    --------
    >>> released = mixed_rows_limit(mixing_sums(1000, 0), k=50, noise=np.ones(11), share=0.1, rng=1)
    >>> released.rows.shape, round(float(released.ones_row[0]), 2)
    ((50, 12), 316.23)
    """
    scale = _noise_scale(sums, noise)
    k = check_count(k, "k")
    share = check_number(share, "share", low=0.0, high=0.99)
    generator = as_generator(rng)
    root = _root(sums.gram)
    rows = math.sqrt((1.0 - share) / k) * generator.standard_normal((k, len(root))) @ root.T
    rows[:, 1:] += scale * generator.standard_normal((k, len(scale)))
    top = math.sqrt(share) * sums.gram[0]
    top[1:] += scale * generator.standard_normal(len(scale))
    return MixedRows(rows, top)


def noisy_rows_gram(sums: PeopleSums, *, noise: Floats, rng: RngLike = None) -> Floats:
    r"""Draw the Gram matrix of the n released rows D + R, R Gaussian, given the sums over people.

    Parameters
    ----------
    sums : PeopleSums
        Of at least as many people as columns.
    noise : (d + 1,) array
        Noise variance of each x and of y.
    rng : None, int or Generator

    Returns
    -------
    ndarray, shape (d + 1, d + 1)
        ``(D + R)'(D + R)``, D = (x, y).

    Raises
    ------
    ArgumentError
        As for `mixed_rows_limit`, or there are fewer people than columns.

    Notes
    -----
    Exact. With ``D = Q L'``, Q'Q = I, and G = Q'R (independent normal entries), it is
    ``(L + G')(L' + G) + W``, W the noise outside the columns of Q: Wishart with n - d - 1 degrees of freedom,
    independent of G; drawn by Bartlett's decomposition.

    Examples
    --------
    >>> noisy_rows_gram(mixing_sums(1000, 0), noise=np.ones(11), rng=1).shape
    (11, 11)
    """
    scale = _noise_scale(sums, noise)
    width = len(scale)
    if sums.n <= width:
        raise ArgumentError(f"n={sums.n} people are too few for {width} columns: more are needed")
    generator = as_generator(rng)
    seen = _root(sums.gram[1:, 1:]).T + scale * generator.standard_normal((width, width))
    bartlett = np.tril(generator.standard_normal((width, width)), -1)
    np.fill_diagonal(bartlett, np.sqrt(generator.chisquare(sums.n - width - np.arange(width))))
    unseen = scale[:, None] * bartlett
    return np.asarray(seen.T @ seen + unseen @ unseen.T, dtype=np.float64)


def _slopes(generator: np.random.Generator) -> Floats:
    return generator.uniform(-SLOPE_BOUND, SLOPE_BOUND, FEATURES)


def _with_label(n: int, total: Floats, w: Floats, residual: float) -> PeopleSums:
    """Return the sums of (1, x, y) from those of (1, x, e)."""
    design = np.eye(len(total))
    design[-1, 1:-1] = w
    design[-1, -1] = residual
    return PeopleSums(n, np.asarray(design @ total @ design.T, dtype=np.float64), w)


def _noise_scale(sums: PeopleSums, noise: Floats) -> Floats:
    """Return the noise sds of x and y."""
    variances = check_array(noise, "noise", ndim=1)
    if len(variances) != len(sums.gram) - 1:
        raise ArgumentError(f"noise has {len(variances)} entries, one for each x and y: {len(sums.gram) - 1}")
    if (variances < 0.0).any():
        raise ArgumentError("noise must hold variances: numbers from 0 up")
    return np.sqrt(variances)


def _root(gram: Floats) -> Floats:
    """Return L with L L' = gram, which is singular where y has no error of its own."""
    values, vectors = np.linalg.eigh(gram)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)), dtype=np.float64)
