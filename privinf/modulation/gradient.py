"""Projected gradient descent on corrected least-squares moments (paper 1, Algorithms 2 and 4)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from privinf.typing import Floats


def gradient_step(
    coefficients: Floats, gram: Floats, cross: Floats, *, step: float, max_norm: float | None
) -> Floats:
    """Return the next iterate: ``b - eta (A b - g)`` with ``eta = step / ||A||_op``, then projected.

    Parameters
    ----------
    coefficients : ndarray, shape (p,)
    gram, cross : ndarrays, shapes (p, p) and (p,)
        Corrected moments A and g of this round's release.
    step : float
        c of the paper (its Table 2).
    max_norm : float or None
        Radius of the ball to which the iterate is projected; None: no projection.

    Notes
    -----
    **Privacy.** Reads released moments only.
    """
    rate = step / max(float(np.linalg.norm(gram, 2)), np.finfo(float).tiny)
    moved = coefficients - rate * (gram @ coefficients - cross)
    if max_norm is None:
        return moved
    return moved / max(1.0, float(np.linalg.norm(moved)) / max_norm)


def gradient_path(
    moments: Iterable[tuple[Floats, Floats]], start: Floats, *, step: float, max_norm: float | None
) -> Floats:
    """Return all iterates, shape (T + 1, p), for the rounds' moments (A_t, g_t)."""
    path = [np.asarray(start, dtype=np.float64)]
    for gram, cross in moments:
        path.append(gradient_step(path[-1], gram, cross, step=step, max_norm=max_norm))
    return np.stack(path)
