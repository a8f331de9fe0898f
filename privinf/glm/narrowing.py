"""Rows weighted by narrower bounds that noisy counts found: `OLS.fit` with ``adapt_bounds=True``.

Clipping columns at narrower bounds would bias slopes. Weights that depend on x alone do not, where the mean
is linear: w = min(1, 1/max_j x~_j^2), x~ in units of the narrower bounds, so that every entry of
sqrt(w) (1, x~) is in [-1, 1]. All sums are of rows weighted so, their own Gram matrix among them: the target
is least squares with these weights.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from privinf.glm.rows import GlmRows
from privinf.typing import Floats

# Cells of a column's bounds, and the share of records that may be beyond either narrower bound.
CELLS, BEYOND = 64, 0.01
# A count that is this many sds of its noise may be nothing.
UNSEEN = 2.0


def counted_columns(rows: GlmRows) -> list[int]:
    """Return the columns whose bounds may be narrowed: bounded ones that are no indicators."""
    design = rows.design
    return [
        j for j, column in enumerate(design.columns) if j != design.constant and not column.indicator
    ]  # fmt: skip


def edges() -> Floats:
    """Return the thresholds inside [-1, 1], shifted to [0, 2]."""
    return np.arange(1, CELLS, dtype=np.float64) * (2.0 / CELLS)


def narrowed(rows: GlmRows, columns: list[int], counts: Floats, sd: Floats) -> GlmRows:
    """Return the rows in units of narrower bounds, weighted.

    Parameters
    ----------
    rows : GlmRows
    columns : list of int
    counts : ndarray, shape (number of columns, CELLS - 1)
        Noisy numbers of records above each threshold.
    sd : ndarray, shape (CELLS - 1,)
        Of their noise.
    """
    center, scale = rows.center.copy(), rows.scale.copy()
    least = np.maximum(BEYOND * rows.total, UNSEEN * sd)
    ends = np.concatenate([[-1.0], edges() - 1.0, [1.0]])
    for j, above in zip(columns, counts, strict=True):
        below_few = np.concatenate([[True], rows.total - above <= least, [False]])
        above_few = np.concatenate([[False], above <= least, [True]])
        low, high = ends[np.flatnonzero(below_few)[-1]], ends[np.flatnonzero(above_few)[0]]
        if high > low:
            center[j] += scale[j] * 0.5 * (low + high)
            scale[j] *= 0.5 * (high - low)
    return replace(rows, center=center, scale=scale, weighted=True)
