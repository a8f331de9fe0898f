"""Releases of a server: noisy sums and matrices with their noise models."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from privinf.accounting import LedgerEntry, Released, ReleasedNumber
from privinf.accounting.released import appended
from privinf.error_boundary import error_boundaries
from privinf.mechanisms.statistics.isometric import ROOT2_BELOW, from_isometric
from privinf.typing import Floats


@error_boundaries
@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _NoisyRelease(Released):
    values: Floats
    rows: int
    sites: tuple[str, ...]
    scale: float
    mu: float
    entries: tuple[LedgerEntry, ...]

    def __repr__(self) -> str:
        kind = type(self).__name__
        shape = self.values.shape
        return f"<{kind} {shape} of {self.rows} rows: noise sd {self.scale:.6g}{appended(self.stamp)}>"

    @property
    def mean(self) -> Floats:
        """The noisy sum over the number of rows."""
        return np.asarray(self.values / self.rows)


@error_boundaries
@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class NoisySum(_NoisyRelease):
    """Sum over rows with Gaussian noise.

    Attributes
    ----------
    values : ndarray
        The noisy sum.
    rows : int
        Public number of rows in the sum.
    sites : tuple of str
        Names of the sites that answered.
    scale : float
        Standard deviation of the noise of every entry; 0 without noise.
    mu : float
        Price.
    entries : tuple of LedgerEntry
        The ledger entries of the release.

    Notes
    -----
    **Privacy.** Costs nothing: the sum was released and is public.
    """

    @property
    def mean_sd(self) -> float:
        """Standard deviation of the noise of `mean`."""
        return self.scale / self.rows


@error_boundaries
@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class NoisyGram(_NoisyRelease):
    """Sum of outer products of rows, a symmetric matrix, with Gaussian noise.

    Attributes
    ----------
    values : ndarray, shape (k, k)
        The noisy symmetric matrix, which may have negative eigenvalues.
    rows : int
        Public number of rows in the sum.
    sites : tuple of str
        Names of the sites that answered.
    mu : float
        Cost of the release in Gaussian differential privacy.
    entries : tuple of LedgerEntry
        The ledger entries of the release.
    scale : float
        Standard deviation of the noise of the diagonal entries. The standard deviation of the other entries
        is smaller by a factor of sqrt 2 (see `entry_sd`).

    Notes
    -----
    **Privacy.** Costs nothing: the matrix was released and is public.
    """

    @classmethod
    def from_sum(cls, release: NoisySum) -> NoisyGram:
        """Make the matrix from its released entries: the diagonal, and the other entries times sqrt 2.

        Parameters
        ----------
        release : NoisySum
            Released entries of the matrix: the diagonal entries, and the off-diagonal entries multiplied by
            sqrt 2.

        Returns
        -------
        NoisyGram
            The symmetric matrix, with the same noise and the same ledger entries.
        """
        values = from_isometric(release.values)
        return cls(
            values=values,
            rows=release.rows,
            sites=release.sites,
            scale=release.scale,
            mu=release.mu,
            entries=release.entries,
        )

    @property
    def entry_sd(self) -> Floats:
        """Standard deviation of the noise of every entry of `mean`, shape (k, k)."""
        sd = np.full(self.values.shape, self.scale / ROOT2_BELOW / self.rows)
        np.fill_diagonal(sd, self.scale / self.rows)
        return sd


def histogram_quantile(counts: NoisySum, edges: Floats, level: float) -> ReleasedNumber:
    """Return where the running sum of noisy counts, made nondecreasing, passes `level` times the rows.

    Parameters
    ----------
    counts : NoisySum
        Below the first edge, between edges, and from the last one on.
    edges : ndarray
        Positive and increasing.
    level : float

    Returns
    -------
    ReleasedNumber
        Interpolated geometrically inside a cell. With N the running sum, its noise has to first order the sd
        ``scale sqrt(cells) dlog(q)/dN q``; at the ends of the edges that is unknown, nan.
    """
    reached = np.maximum.accumulate(np.cumsum(counts.values))
    target = level * counts.rows
    cell = int(np.searchsorted(reached, target))
    if cell == 0 or cell >= len(edges):
        return ReleasedNumber(float(edges[0] if cell == 0 else edges[-1]), counts.entries, math.nan)
    width = math.log(edges[cell] / edges[cell - 1])
    inside = reached[cell] - reached[cell - 1]
    value = float(edges[cell - 1] * math.exp(width * (target - reached[cell - 1]) / inside))
    noise = counts.scale * math.sqrt(cell + 1)
    return ReleasedNumber(value, counts.entries, value * width * noise / inside)
