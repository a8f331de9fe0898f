"""Cox's regression without noise: Breslow's ties, robust standard errors, fast for many samples."""

from __future__ import annotations

import numpy as np

from privinf.errors import ConvergenceError
from privinf.typing import Floats
from studies.hazards.records import Records

STEPS = 50  # of Newton's method, at most
LONGEST_STEP = 2.0  # of the largest coefficient
CONVERGED = 1e-9  # largest entry of a step that has converged


def cox(records: Records) -> tuple[Floats, Floats]:
    """Return coefficients and robust standard errors (Lin and Wei 1989), shape (d,).

    Raises
    ------
    ConvergenceError
        Newton's method did not converge.
    """
    order = np.argsort(-records.time, kind="stable")
    x = records.x[order]
    time = records.time[order]
    event = records.event[order]
    last = np.searchsorted(-time, -time, side="right") - 1  # the last one who is at risk at that time
    beta = np.zeros(x.shape[1])
    for _ in range(STEPS):
        risk = np.exp(x @ beta)
        weighted = risk[:, None] * x
        total = np.cumsum(risk)[last]
        mean = np.cumsum(weighted, axis=0)[last] / total[:, None]
        second = np.cumsum(weighted[:, :, None] * x[:, None, :], axis=0)[last] / total[:, None, None]
        information = (second - mean[:, :, None] * mean[:, None, :])[event].sum(axis=0)
        step = np.linalg.solve(information, (x - mean)[event].sum(axis=0))
        step *= min(1.0, LONGEST_STEP / max(float(np.abs(step).max()), CONVERGED))
        beta = beta + step
        if np.abs(step).max() < CONVERGED:
            break
    else:
        raise ConvergenceError("Cox's regression did not converge")
    # A record pays at every event before its own time: sums over events, from the earliest on.
    first = np.searchsorted(-time, -time, side="left")  # the first one with that time
    paid = np.cumsum((event / total)[::-1])[::-1][first]
    moved = np.cumsum((event[:, None] * mean / total[:, None])[::-1], axis=0)[::-1][first]
    scores = event[:, None] * (x - mean) - risk[:, None] * (x * paid[:, None] - moved)
    influence = np.linalg.solve(information, scores.T)
    return beta, np.sqrt(np.square(influence).sum(axis=1))
