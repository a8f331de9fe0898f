"""Means of sites shrunk toward those of all: as far as deviations stand out of their noise."""

from __future__ import annotations

import math

import numpy as np

from privinf.lasso.precision import standing_out
from privinf.typing import Floats

SINGLE = 3.0  # sds of its noise from which a single mean stands out
SIGNIFICANT = 3.0  # standard normal number from which the means of a site differ


def kept_shares(apart: Floats, noise: Floats, prior: Floats) -> Floats:
    """Return shares of deviations that are kept, from the variances of their noise and of themselves."""
    share = np.divide(prior, prior + noise, out=np.ones_like(prior), where=noise > 0.0)
    single = 1.0 - SINGLE**2 * noise / np.maximum(np.square(apart), np.finfo(np.float64).tiny)
    return np.asarray(np.maximum(share, single))


def variance_of_means(apart: Floats, noise: Floats, lengths: Floats, *, joint: bool) -> Floats:
    """Return the variance of the means of a column, (k,), as far as deviations stand out of the noise.

    From all targets, or for each target from its own deviations at all sites.
    """
    axis = None if joint else 0
    excess = (np.square(apart) - noise).sum(axis=axis)
    sd = np.sqrt(2.0 * np.square(noise).sum(axis=axis))
    steady = standing_out(np.atleast_1d(np.maximum(excess, 0.0)), np.atleast_1d(sd))
    return np.broadcast_to(steady / np.atleast_1d(lengths.sum(axis=axis)), apart.shape[1:])


def significant_spread(apart: Floats, noise: Floats, lengths: Floats) -> float:
    """Return the sd of a column's mean at a site, from the means of k forms; 0 unless it is significant."""
    size = 2.0 / (9.0 * len(apart))  # a mean of k squares to the power 1/3 is normal (Wilson and Hilferty)
    normal = (float(np.mean(np.square(apart) / noise)) ** (1.0 / 3.0) - 1.0 + size) / math.sqrt(size)
    if normal < SIGNIFICANT:
        return 0.0
    return math.sqrt(max(float((np.square(apart) - noise).sum()), 0.0) / float(lengths.sum()))
