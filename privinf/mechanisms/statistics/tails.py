r"""Counts of terms above public thresholds, by the square root of the matrix that adds cells up.

With h the numbers of records in the m cells that m increasing thresholds begin, the counts above them are T
h, T upper triangular of ones. U, upper Toeplitz with first row f_0 = 1, f_k = f_{k-1} (2k - 1)/(2k), is the
square root of T: the square of (1 - x)^{-1/2} is 1 + x + x^2 + .... So U h is released with noise g xi, and N
= U (release) has the counts T h and noise of sd g sqrt(f_0^2 + ... + f_{m-1-i}^2): at 20 cells 2.4 / mu for
the lowest of them, where the sums of a noisy histogram have 6.3 / mu. (Fichtenberger, Henzinger and Upadhyay
2023, arXiv 2202.11205, for running sums.)

Replacing a record moves U h by the difference of two columns of U, or by one column: a record below all
thresholds is in no cell. Entries of U are numbers of `DIGITS` binary digits, so that sums of them are exact.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from privinf.errors import ArgumentError, SensitivityError
from privinf.mechanisms.statistics.block import Args, digits, vector
from privinf.mechanisms.statistics.ops import Reach
from privinf.typing import Floats

DIGITS = 24
MOST_CELLS = 256


@lru_cache(maxsize=256)
def root_matrix(cells: int) -> Floats:
    """Return U, shape (m, m)."""
    k = np.arange(1, cells)
    factors = np.concatenate([[1.0], np.cumprod((2.0 * k - 1.0) / (2.0 * k))])
    factors = np.ldexp(np.rint(np.ldexp(factors, DIGITS)), -DIGITS)
    gap = np.arange(cells)[None, :] - np.arange(cells)[:, None]
    matrix = np.where(gap >= 0, factors[np.maximum(gap, 0)], 0.0)
    matrix.setflags(write=False)
    return matrix


@lru_cache(maxsize=256)
def root_sensitivity(cells: int) -> float:
    """Return max |U (e_i - e_j)| over the m cells and the place below them: 1.52 for 8, 1.71 for 20."""
    columns = np.column_stack([np.zeros(cells), root_matrix(cells)])
    squares = np.einsum("ij,ij->j", columns, columns)
    distances = squares[:, None] + squares[None, :] - 2.0 * columns.T @ columns
    return math.sqrt(float(distances.max()))


def counted(terms: Floats, args: Args) -> Floats:
    """Return U h of the terms of a block; what is not a number counts as above all thresholds."""
    if 0 < digits(args)[0] <= DIGITS:
        raise SensitivityError("so many rows leave a count too few digits for an exact sum")
    thresholds = np.asarray(args["thresholds"], dtype=np.float64)
    cells = np.bincount(np.searchsorted(thresholds, terms, side="left"), minlength=len(thresholds) + 1)
    return np.asarray(root_matrix(len(thresholds)) @ cells[1:].astype(np.float64))


def counted_reach(args: Args) -> Reach:
    """Return how far a record moves U h; ArgumentError for thresholds that are not increasing."""
    thresholds = vector(args, "thresholds")
    if not 1 <= len(thresholds) <= MOST_CELLS or thresholds[0] < 0.0 or not (np.diff(thresholds) > 0.0).all():
        raise ArgumentError(f"thresholds must be 1 to {MOST_CELLS} increasing numbers, none negative")
    cells = len(thresholds)
    l2 = root_sensitivity(cells)
    longest = float(np.linalg.norm(root_matrix(cells)[:, -1]))
    return Reach((cells,), l2, 1.0, 1.0, "two columns of the square root of running sums", longest)


def counts_above(release: Floats, scale: float) -> tuple[Floats, Floats]:
    """Return the counts above the thresholds and the sds of their noise, both of shape (m,).

    Parameters
    ----------
    release : ndarray, shape (m,)
        U h with noise.
    scale : float
        Sd of the noise of each entry.

    Notes
    -----
    **Privacy.** Post-processing of the release.
    """
    root = root_matrix(len(release))
    return root @ release, scale * np.sqrt(np.einsum("ij,ij->i", root, root))
