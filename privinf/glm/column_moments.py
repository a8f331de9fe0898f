"""Means and variances of columns by released second moments: columns of two values and rare indicators."""

from __future__ import annotations

import numpy as np

from privinf.typing import Flags, Floats

# A column has two values, the ends of its bounds, if its variance is more than this part of the largest one
# that its mean allows: two values have all of it, up to noise, and uniform ones a third.
TWO_VALUES = 0.7
NEAREST_END = 0.02  # a mean this close to an end of [-1, 1] may be there by noise
RARE = 0.15  # an indicator is rare if fewer rows than this share have its rarer value


def column_moments(second: Floats, constant: int | None) -> tuple[Floats, Floats]:
    """Return means and variances of the columns in [-1, 1] by noisy second moments; 0 of the constant.

    Without a constant they are about zero.
    """
    p = len(second)
    size = 1.0 if constant is None else float(second[constant, constant])
    mean = np.zeros(p) if constant is None else np.clip(second[constant] / size, -1.0, 1.0)
    variance = np.maximum(np.diag(second) / size - mean**2, 0.0)
    if constant is not None:
        mean[constant] = variance[constant] = 0.0
    return mean, variance


def has_two_values(mean: Floats, variance: Floats) -> Flags:
    """Return which columns in [-1, 1] appear to be at the ends of their bounds in all rows, by moments."""
    nearest = 1.0 - np.abs(mean)
    return np.asarray((variance > TWO_VALUES * (1.0 - mean**2)) & (nearest > NEAREST_END))


def rare_indicators(second: Floats, constant: int | None, indicators: Flags) -> Flags:
    """Return which indicators have their rarer value in a share of the rows below `RARE`, shape (p,).

    Parameters
    ----------
    second : ndarray, shape (p, p)
        Noisy second moments of z.
    constant : int or None
        Place of the constant; without one, no indicator is called rare.
    indicators : ndarray of bool, shape (p,)
        Columns that are declared as indicators.
    """
    if constant is None:
        return np.zeros(len(second), dtype=bool)
    share, _ = column_moments(second, constant)
    return np.asarray(indicators & (np.minimum(share, 1.0 - share) < RARE))
