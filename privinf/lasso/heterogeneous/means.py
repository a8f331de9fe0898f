r"""Means of the forms w_j'x at every site: released, subtracted in the scores, and what is left of them.

Columns are centered at the means of all rows, so that the form u_j of target j has a mean f at a site whose
columns have other means. Its score is the mean of u_j times a residual whose own mean is left by e
(`privinf.lasso.heterogeneous.centering`): it has the bias ``e f``. With f released as f^, the forms are
``u_j - f^`` in the score, and ``e (f - f^)`` is left: a product of two errors, with mean zero and variance
``e^2 Var(f - f^)``, which is counted.

**Shrinking.** Where sites have equal means f is zero, but for the noise of the means of all rows, and f^ is
only noise. So deviations from the mean of all sites are shrunk, by the larger of two factors: the share that
deviations have in their sum with the noise, as far as they stand out of it; and that of a single mean of more
than three sds. The first uses all targets under one budget, and the target's own means at all sites with a
budget for each interval: an interval pays for its own means alone. A clipped form of a skewed column has a
mean that is not zero, but the same at all sites; deviations do not have it.

**Nodewise regressions.** The Gram matrix of columns that are centered at the means of all rows holds a part
between sites, D, the mean of d d' over sites, d being the means of a site's columns. The regressions are
orthogonal to the selected columns in the sum of both parts, so that an error b of the coefficients leaves
``w_j'D b``, the mean over sites of ``f d'b``. With means d of variance t^2 for each column, its variance is
``t^2 |b|^2`` times the mean square of f over the number of sites. It is counted as an error of the nodewise
regression, with the stated variance of b. Regressions of each site's own are of columns that are centered at
their means at the site (`privinf.lasso.heterogeneous.own_columns`): D is then due to noise alone. The
variances of what these centers leave are known, and are the least prior variances of the means of forms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from privinf.lasso.heterogeneous.centering import CenteredSite
from privinf.lasso.heterogeneous.shrinking import kept_shares, significant_spread, variance_of_means
from privinf.lasso.sums import released_form_means
from privinf.typing import Floats

FORM_MEAN_CLIP = 3.0  # forms have mean square 1; for their means they are clipped here


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FormMeans:
    """Released means of k forms at m sites.

    Attributes
    ----------
    offsets : dict of str to ndarray, shape (k,)
        By site: means that are subtracted.
    left : dict of str to ndarray, shape (k,)
        By site: variances of the means that are left.
    between : dict of str to ndarray, shape (k,)
        By site: variance of ``w_j'D b`` for an error b of length 1, in units of the forms.
    spreads : dict of str to float
        By site: standard deviation over columns of the difference of their means from those of all sites, in
        units of the columns' sizes; 0 where it does not stand out of the noise. Too small where differences
        are large, because the regressions avoid the part between sites.
    """

    offsets: dict[str, Floats]
    left: dict[str, Floats]
    between: dict[str, Floats]
    spreads: dict[str, float]


def form_means(
    sites: Mapping[str, CenteredSite],
    forms: Mapping[str, Floats],
    rho: float,
    *,
    joint: bool,
    own_precision: bool,
) -> FormMeans:
    """Release the means of the forms at every site.

    Parameters
    ----------
    sites : mapping of str to CenteredSite
    forms : mapping of str to ndarray, shape (p, k)
        Nodewise regressions in units of the scores.
    rho : float
        Price of all k means at a site; at 0 none are released.
    joint : bool
        Whether one budget pays for all targets.
    own_precision : bool
        Whether nodewise regressions are each site's own.

    Notes
    -----
    **Privacy.** Spends `rho` at every site; neighboring tables differ in one record (replace-one).
    """
    names = list(sites)
    start = {name: sites[name].form_variance(forms[name]) for name in names}
    own = np.array([sites[name].own_form_variance(forms[name]) for name in names])
    zero = dict.fromkeys(names, np.zeros(forms[names[0]].shape[1]))
    if rho <= 0.0:
        left = {name: start[name] + row for name, row in zip(names, own, strict=True)}
        return FormMeans(offsets=zero, left=left, between=zero, spreads=dict.fromkeys(names, 0.0))
    released = [_released(sites[name], forms[name], rho) for name in names]
    means = np.array([mean for mean, _ in released])
    variances = np.array([np.square(sd) for _, sd in released])
    rows = np.array([[sites[name].sums.n] for name in names], dtype=np.float64)
    weights = rows / rows.sum()
    apart = means - (weights * means).sum(axis=0)
    shared = np.square(weights) * variances
    noise = np.square(1.0 - weights) * variances + shared.sum(axis=0) - shared
    lengths = np.array([np.square(forms[name]).sum(axis=0) for name in names])
    columns = variance_of_means(apart, noise, lengths, joint=joint)
    share = kept_shares(apart, noise, np.maximum(columns * lengths, own))
    offsets = share * apart
    squares = np.square(offsets)
    if not own_precision:
        squares = np.broadcast_to((np.square(weights) * squares).sum(axis=0), squares.shape)
    return FormMeans(
        offsets=dict(zip(names, offsets, strict=True)),
        left={name: start[name] + row for name, row in zip(names, share * noise, strict=True)},
        between=dict(zip(names, columns * squares, strict=True)),
        spreads={
            name: significant_spread(*site)
            for name, *site in zip(names, apart, noise + 1.0 / rows, lengths, strict=True)
        },
    )


def _released(site: CenteredSite, forms: Floats, rho: float) -> tuple[Floats, Floats]:
    used = np.flatnonzero(forms.any(axis=1))
    return released_form_means(site.sums, used.tolist(), forms[used], FORM_MEAN_CLIP, rho)
