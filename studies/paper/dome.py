"""DOME as its paper writes it: centred, preconditioned, projected, tracking the gradient, by Adam's steps.

"Communication efficient, differentially private distributed optimization using correlation-aware sketching",
Algorithms 1 and 2: the learned directions are updated by QR, and stay as they are where the units change.
"""

from __future__ import annotations

import numpy as np

from privinf.glm.dome.optimizers import DomeVariant, register_variant
from privinf.glm.dome.sketch import LearnedSpace
from privinf.typing import Floats

SMALLEST_REST = 1e-7  # of a vector's length: what the learned directions leave of it counts as rounding below


def qr_update(space: LearnedSpace, vector: Floats, limit: int, energy: float) -> LearnedSpace:
    """Return the learned directions after one more vector g, by the paper's update (equation 10).

    With ``M = t/(t+1) Q L Q' + 1/(t+1) g g'`` and e, what Q leaves of g, at length one:

        [Q, e] -> M [Q, e] = Q_new R,   L_new = abs(diag R),

    in decreasing order of L_new, kept up to the share `energy` of their sum, at most `limit`. Our copy of the
    paper has lost equation 10. It says that the update is orthogonalized "via QR to obtain" both matrices. As
    restored, this is one step of orthogonal iteration from the last directions, as in history PCA (Yang et
    al. 2018). The column e takes the place of the probes: g lies in the span of the sketch, and M maps every
    probe to a multiple of g.

    Notes
    -----
    **Privacy.** Post-processing of releases.
    """
    t = space.count
    rest = vector - space.basis @ (space.basis.T @ vector)
    rest = rest - space.basis @ (space.basis.T @ rest)
    length = float(np.linalg.norm(rest))
    start = space.basis
    if length > SMALLEST_REST * float(np.linalg.norm(vector)):
        start = np.column_stack([start, rest / length])
    if not start.shape[1]:
        return LearnedSpace(space.basis, space.values, t + 1)
    kept = space.basis @ (space.values[:, None] * (space.basis.T @ start))
    moved = (t * kept + np.outer(vector, vector @ start)) / (t + 1.0)
    axes, triangle = np.linalg.qr(moved)
    values = np.abs(np.diag(triangle))
    order = np.argsort(-values, kind="stable")
    return space.truncated(axes[:, order], values[order], limit=limit, energy=energy)


PAPER_VARIANT = DomeVariant(
    moments=True,
    probes="orthonormal",
    averages=False,
    tracked=lambda sketched, gradient: gradient,
    learned=qr_update,
    rescaled=lambda space, ratio: space,
)

register_variant("paper", PAPER_VARIANT)
