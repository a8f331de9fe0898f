"""DOME as its paper writes it: centred, preconditioned, projected, tracking the gradient, by Adam's steps.

"Communication efficient, differentially private distributed optimization using correlation-aware sketching",
Algorithms 1 and 2: the learned directions stay as they are where the units change.
"""

from __future__ import annotations

from privinf.glm.dome.optimizers import DomeVariant, register_variant

PAPER_VARIANT = DomeVariant(
    moments=True,
    probes="orthonormal",
    averages=False,
    tracked=lambda sketched, gradient: gradient,
    rescaled=lambda space, ratio: space,
)

register_variant("paper", PAPER_VARIANT)
