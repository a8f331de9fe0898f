"""Constants of sites: moved by released means of residuals during the fits, and before the scores.

A fit has no constant of its own; columns are centered at the means of all rows. A site whose columns have
other means has other means of its residuals too, and they change with the coefficients: products of its
columns with its residuals are covariances only where the residuals have the mean zero. Constants are moved
before selections and steps (`move_constants`), by means that are shrunk together, as James and Stein do: if
the means of all sites are within their noise, no constant moves. Before the scores a constant moves by its
own mean alone, and the size of what is left is known (`center_sites`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from privinf.lasso.heterogeneous.own_columns import SiteCenter
from privinf.lasso.precision import standing_out
from privinf.lasso.sums import SparseSums
from privinf.typing import Floats
from privinf.wire import Labels

CONSTANT_CLIP = 3.0  # of residuals for their mean, in units of their scale
LEAST_SITES = 3  # from which means of residuals are shrunk together


class SparsePoint(Protocol):
    """A sparse fit and the typical size of its residuals."""

    @property
    def support(self) -> Sequence[int]:
        """Columns."""

    @property
    def beta(self) -> Floats:
        """Coefficients."""

    @property
    def scale(self) -> float:
        """Typical size of the residuals."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class CenteredSite:
    """Sums of a site with its residuals centered, and what is left of the means.

    Attributes
    ----------
    sums : SparseSums
        With units of the site's own.
    residual_sd : float
        Standard deviation of the noise of the mean of the residuals; 0 where none was released.
    column_sd : ndarray, shape (p,), or float
        Standard deviations of the noise of the means of columns, in the units of the columns: of the means of
        all rows, which sites share.
    own_variance : ndarray, shape (p,), or float
        Variances of what the site's own means leave; 0 where columns are not centered at them.
    """

    sums: SparseSums
    residual_sd: float
    column_sd: Floats | float
    own_variance: Floats | float

    def form_variance(self, forms: Floats) -> Floats:
        """Return variances of the means of k forms, shape (p, k), due to the noise that sites share."""
        variances = np.broadcast_to(np.square(self.column_sd), len(forms))
        return np.asarray(variances @ np.square(forms))

    def own_form_variance(self, forms: Floats) -> Floats:
        """Return variances of the means of k forms, shape (p, k), due to the site's own center."""
        return np.asarray(np.broadcast_to(self.own_variance, len(forms)) @ np.square(forms))


def center_sites(
    pooled: SparseSums,
    sites: Mapping[str, SparseSums],
    fits: Mapping[str, SparsePoint],
    centers: Mapping[str, SiteCenter],
    rho: float,
    *,
    moved: bool,
) -> dict[str, CenteredSite]:
    """Return the sites with residuals centered at means that are released at a price; at 0 none are.

    The units of columns are those of `pooled`, the constants those of the sites. Columns move to the
    `centers` of the sites that have one; if they were there during the fits (`moved`), the constants are
    theirs, else they move along.

    Notes
    -----
    **Privacy.** Spends `rho` at every site; neighboring tables differ in one record (replace-one).
    """
    centered = {}
    for name, sums in sites.items():
        fit = fits[name]
        units = replace(pooled.units, intercept=sums.units.intercept, y_limit=sums.units.y_limit)
        own = replace(sums, units=units)
        own_variance: Floats | float = 0.0
        if name in centers:
            center = centers[name]
            own = center.centered(own) if moved else center.with_constant(own, fit.support, fit.beta)
            own_variance = center.left
        sd = 0.0
        if rho > 0.0:
            bound = CONSTANT_CLIP * fit.scale
            label = Labels.MEAN_OF_RESIDUALS
            sd = own.center_residual(fit.support, fit.beta, bound, rho, label)
        column_sd = pooled.mean_sd / units.scale
        centered[name] = CenteredSite(
            sums=own, residual_sd=sd, column_sd=column_sd, own_variance=own_variance
        )
    return centered


def move_constants(sites: Mapping[str, SparseSums], fits: Mapping[str, SparsePoint], rho: float) -> None:
    """Move the constants of all sites by released means of their residuals; at no price they stay.

    Notes
    -----
    **Privacy.** Spends `rho` at every site; neighboring tables differ in one record (replace-one).
    """
    if rho <= 0.0:
        return
    released = [
        sums.residual_mean(
            fits[name].support,
            fits[name].beta,
            CONSTANT_CLIP * fits[name].scale,
            rho,
            Labels.MEAN_OF_RESIDUALS,
        )
        for name, sums in sites.items()
    ]
    means, sds = (np.array(numbers) for numbers in zip(*released, strict=True))
    if len(means) < LEAST_SITES:
        shifts = standing_out(means, sds)
    else:
        squares = max(float(np.square(means).sum()), np.finfo(np.float64).tiny)
        noise = (len(means) - 2.0) / len(means) * float(np.square(sds).sum())
        shifts = means * max(0.0, 1.0 - noise / squares)
    for sums, shift in zip(sites.values(), shifts, strict=True):
        sums.move_constant(float(shift))
