"""Released means so near to an end of their bounds that nearly all values must lie there, or beyond."""

from __future__ import annotations

import numpy as np

from privinf.typing import Flags, Floats

# How far from an end a mean may be, in sds of its noise.
NEAR_SDS = 2.0
# The largest sd of the noise for which means at an end are reported, in half ranges.
CLEAR_SHARE = 0.05


def at_an_end(means: Floats, sds: Floats, low: Floats, high: Floats) -> Flags:
    """Return which means are within their noise of an end of their bounds, where the noise is small.

    Parameters
    ----------
    means, sds : ndarray, shape (k,)
        Released means of values clipped to their bounds, and the sds of their noise.
    low, high : ndarray, shape (k,)
        Bounds; where they are infinite the answer is no.

    Notes
    -----
    A mean of values in [low, high] is at a distance d from an end only if all but a share s of the values
    are nearer to it than d / s (Markov). With d within two sds of the noise, and these below a twentieth of
    half the range, at least half of the values lie in the outermost tenth of the half range, or beyond.

    **Privacy.** Post-processing of a release.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        half = (high - low) / 2.0
        gap = np.minimum(means - low, high - means) / half
        noise = NEAR_SDS * sds / half
    return np.asarray(np.isfinite(half) & (gap <= noise) & (noise <= CLEAR_SHARE), dtype=bool)
