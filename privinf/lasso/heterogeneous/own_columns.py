r"""Columns of each site for nodewise regressions of its own: centered at their means there, in their sizes.

**Why.** A site has a constant of its own, so its coefficients are identified by the covariances S of its
columns. Let d be the means of the columns at the site, relative to those of all rows. A Gram matrix about the
means of all rows is ``G = S + d d'``. A nodewise regression ``w = G^-1 e_j`` from it leaves, in the mean of
the score ``(w'x - w'd) r``, of an error b of the coefficients

    w'S b - b_j = -(w'd)(d'b),    w'd = d'S^-1 e_j / (1 + d'S^-1 d),

a bias of first order in b, which no term of the variance counts: w avoids d, so that means of forms w'x show
little of it. Without noise coverage was 0.85 where means differed by 0.5 standard deviations (six sites of
4,000 rows, 14 targets of 60 columns).

**Centers.** The means of the columns are therefore released at every site, and its Gram matrix is about
them. An error h of the center leaves ``-(w'h)(h'b)``, a product of three errors. Centers are shrunk toward
the means of all rows as far as they do not stand out of the noise, like means of forms
(`privinf.lasso.heterogeneous.means`): where sites have equal means nothing moves. The scores and the forms
are of columns that are centered so too, with a constant that moves along.

With a budget for each interval an interval pays for its own columns: every column is clipped alone
(`released_column_means`), its deviation from the mean of all sites is used, which a skewed column
does not move, and it is shrunk by this column's deviations alone. Under one budget rows are shrunk, and all
columns of all sites share a factor.

**Sizes.** The units of columns are their sizes over all rows. Where the sizes s of a site differ from them,
``w = (s R s)^-1 e_j`` with the correlations R, not ``R^-1 e_j``. Under one budget the sizes come from the
diagonal of the Gram matrix, relative to their median: rows that are shrunk are shorter in all columns alike,
which the slope of the score corrects. Sizes within their noise stay 1. With a budget for each interval, the
squares of clipped columns are too noisy: only sizes that differ by 40% and more would stand out. A column is
then taken to have the same size at all sites, which is smaller than its size over all rows by the part that
its means have in that: ``s^2 = 1 - mean of d^2``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace

import numpy as np

from privinf.lasso.heterogeneous.shrinking import kept_shares, significant_spread, variance_of_means
from privinf.lasso.precision import DROPPED, SMALLEST_SQUARE, Correlations, standing_out
from privinf.lasso.rows import SparseUnits
from privinf.lasso.sums import MEAN_ROOM, SparseSums, released_column_means
from privinf.typing import Floats

OWN_MEANS = 0.10  # share of the price of a site's Gram matrix for the means of its columns
PRECISE = 0.1  # sd of the means of all columns, in units of their sizes, up to which they are released early
MEAN_CLIP = 1.0  # of a column for its mean with a budget for each interval, in units of its size


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SiteCenter:
    """Released means of the columns at a site.

    Attributes
    ----------
    means : ndarray, shape (p,)
        In the user's units.
    shares : ndarray, shape (p,)
        How far columns are moved from the means of all rows toward these; 0 where none is released.
    sizes : ndarray, shape (p,)
        Of columns about their means at the sites, if they are the same at all sites, in units of the columns.
    left : ndarray, shape (p,)
        Variances of the means that are left, in units of the columns.
    spread : float
        Standard deviation over columns of their differences from the means of all rows, in units of the
        columns; 0 where it does not stand out of the noise.
    """

    means: Floats
    shares: Floats
    sizes: Floats
    left: Floats
    spread: float

    def centered(self, sums: SparseSums) -> SparseSums:
        """Return sums of columns that are centered there, with units of their own."""
        moved = replace(sums, units=copy(sums.units))
        moved.units.move(np.arange(len(self.means)), self._shift(sums.units))
        return moved

    def with_constant(self, sums: SparseSums, support: Sequence[int], beta: Floats) -> SparseSums:
        """Return the same with a constant that leaves the residuals of a fit as they are."""
        moved = self.centered(sums)
        moved.move_constant(float(self._shift(sums.units)[list(support)] @ beta))
        return moved

    def _shift(self, units: SparseUnits) -> Floats:
        return np.asarray(self.shares * (self.means - units.center) / units.scale)


def site_centers(
    sites: Mapping[str, SparseSums], members: Mapping[str, Sequence[int]], rho: float, *, joint: bool
) -> dict[str, SiteCenter]:
    """Release the means of some columns at every site.

    Parameters
    ----------
    sites : mapping of str to SparseSums
    members : mapping of str to sequence of int
        By site: columns.
    rho : float
        Price of all means of a site.
    joint : bool
        Whether one budget pays for everything; otherwise an interval pays for its own columns.

    Notes
    -----
    **Privacy.** Spends `rho` at every site; neighboring tables differ in one record (replace-one).
    """
    units = next(iter(sites.values())).units
    shape = len(sites), len(units.scale)
    apart, noise, used = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    for place, (name, sums) in enumerate(sites.items()):
        columns = np.unique(np.asarray(members[name], dtype=np.int64))
        mean, sd = released_column_means(sums, columns, rho, None if joint else MEAN_CLIP)
        apart[place, columns], noise[place, columns], used[place, columns] = mean, np.square(sd), 1.0
    rows = np.array([[sums.n] for sums in sites.values()], dtype=np.float64)
    if not joint:
        weights = rows / rows.sum()
        apart = apart - (weights * apart).sum(axis=0)
        shared = np.square(weights) * noise
        noise = np.square(1.0 - weights) * noise + shared.sum(axis=0) - shared
    prior = variance_of_means(apart, noise, used, joint=joint) * used
    share = kept_shares(apart, noise, prior)
    weights = rows * used
    weights /= np.maximum(weights.sum(axis=0), 1.0)
    between = (weights * np.square(share * apart)).sum(axis=0)
    sizes = np.sqrt(np.maximum(1.0 - between, SMALLEST_SQUARE))
    centers = {}
    for place, name in enumerate(sites):
        at = np.flatnonzero(used[place])
        sampling = noise[place, at] + 1.0 / rows[place]
        centers[name] = SiteCenter(
            means=units.center + apart[place] * units.scale,
            shares=share[place] * used[place],
            sizes=sizes,
            left=share[place] * noise[place],
            spread=significant_spread(apart[place, at], sampling, np.ones(len(at))),
        )
    return centers


def precise_centers(columns: int, rows: int, rho: float) -> bool:
    """Return whether the means of all columns, from rows that are shrunk together, have little noise."""
    return 2.0 * MEAN_ROOM * math.sqrt(columns / (2.0 * rho)) / rows <= PRECISE


def with_sizes(released: Correlations, gram: Floats, gram_sd: float) -> Correlations:
    """Return correlations of a site's columns with the sizes of the columns there, relative to their median.

    Parameters
    ----------
    released : Correlations
        Of this Gram matrix.
    gram : ndarray, shape (k, k)
    gram_sd : float
        Sd of the noise of a diagonal entry.

    Notes
    -----
    **Privacy.** Post-processing.
    """
    sizes = np.sqrt(np.maximum(np.diag(gram), SMALLEST_SQUARE))
    middle = float(np.median(sizes))
    sds = gram_sd / (2.0 * sizes * middle)
    deviations = standing_out(sizes / middle - 1.0, sds)
    variances = np.where(deviations == 0.0, DROPPED, 1.0) * np.square(sds)
    moved = released.variances + np.square(released.values) * np.add.outer(variances, variances)
    return scaled(Correlations(released.values, moved), 1.0 + deviations)


def scaled(released: Correlations, sizes: Floats) -> Correlations:
    """Return covariances of columns of these sizes."""
    pairs = np.outer(sizes, sizes)
    return Correlations(released.values * pairs, released.variances * np.square(pairs))
