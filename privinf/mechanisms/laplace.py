"""The Laplace mechanism: from an l1 sensitivity and a pure epsilon to a noise scale and a ledger line.

On a secure source's grid of step g the noise is discrete Laplace: from a step to the next its probability
falls by the ratio e^(-g/b), exactly. Values are rounded to the grid first, which adds at most g to the
distance of two neighbors in each of D coordinates, so that a release costs exactly (L + D g)/b.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from privinf.accounting import LedgerEntry, PureLoss, Sensitivity
from privinf.errors import SensitivityError
from privinf.mechanisms.peeling import solve_peeling_scale
from privinf.noise import NoiseSource, grid_step
from privinf.noise.lattice import LARGEST_STEP
from privinf.schema import Design, geometry
from privinf.typing import Floats, TrustModel
from privinf.wire import Assumptions, Mechanisms, NoiseLaws, NoiseSources, Norms, readable


@dataclass(frozen=True, slots=True, kw_only=True)
class LaplaceLine:
    """A planned Laplace release: all contents of its ledger line.

    Attributes
    ----------
    sensitivity : float
        Replace-one l1 sensitivity of the released array, before grid rounding.
    dimension : int
        Number of released numbers that one unit touches (for the grid's share of the sensitivity).
    epsilon : float
        Pure epsilon of the release; infinity means no noise.
    largest : float
        Public bound of the released numbers that secure noise must have room for; 0 where there is none.
    """

    label: str
    sensitivity: float
    derivation: str
    dimension: int
    epsilon: float
    unit: str
    trust: TrustModel
    assumptions: tuple[str, ...] = (Assumptions.PUBLIC_N,)
    largest: float = 0.0

    def calibrated(self, source: NoiseSource) -> tuple[float, LedgerEntry]:
        """Return the noise scale b and the ledger line.

        Raises
        ------
        SensitivityError
            The noise is so small that its grid cannot represent all values within the public bounds, or so
            large that it cannot be drawn.
        """
        if math.isinf(self.epsilon):
            return 0.0, self._entry(NoiseLaws.NONE, 0.0, self.sensitivity, source)
        scale, total = solve_peeling_scale(
            self.sensitivity, 1.0 / self.epsilon, float(self.dimension), source
        )
        if source.secure and self.largest >= LARGEST_STEP * grid_step(scale):
            raise SensitivityError(
                f"release {readable(self.label)!r}: the noise at epsilon={self.epsilon:.3g} is too small to "
                "be represented exactly. Use a smaller privacy budget, or pass epsilon=inf for no noise"
            )
        law = NoiseLaws.DISCRETE_LAPLACE if source.secure else NoiseLaws.LAPLACE
        return scale, self._entry(law, scale, total, source)

    def _entry(self, law: str, scale: float, sensitivity: float, source: NoiseSource) -> LedgerEntry:
        noisy = scale > 0.0
        secure = source.secure and noisy
        return LedgerEntry(
            mechanism=Mechanisms.LAPLACE,
            label=self.label,
            unit=self.unit,
            relation="replace-one",
            trust=self.trust,
            sensitivity=Sensitivity(norm=Norms.L1, value=sensitivity, derivation=self.derivation),
            noise={"law": law, "scale": scale, "grid": grid_step(scale) if secure else 0.0},
            loss=PureLoss(self.epsilon),
            source=source.name if noisy else NoiseSources.NONE,
            secure=secure,
            assumptions=self.assumptions,
        )


def l1_diameter(design: Design) -> float:
    """Return the largest l1 distance between two scaled private rows inside the bounds and the ball."""
    numeric = geometry.outside(design.private, design.blocks)
    box = geometry.box_l1_diameter(((design.high - design.low) / design.scale)[numeric], design.blocks)
    columns = float(design.private.sum())
    return box if design.radius is None else min(box, 2.0 * design.radius * math.sqrt(columns))


def perturb_laplace(values: Floats, scale: float, source: NoiseSource) -> Floats:
    """Return values and Laplace noise of scale b; secure sources put both on the grid of the scale.

    Values beyond 2^45 steps are clipped there, which increases no distance between values; nan counts as 0.
    Values and noise are integers below 2^53 in steps, so that their sum in doubles has no rounding.
    """
    noise = source.laplace(scale, np.shape(values))
    if not source.secure:
        return np.asarray(values + noise, dtype=np.float64)
    step = grid_step(scale)
    with np.errstate(over="ignore", invalid="ignore"):
        steps = np.rint(np.asarray(values, dtype=np.float64) / step).clip(-LARGEST_STEP, LARGEST_STEP)
    steps[np.isnan(steps)] = 0.0
    return np.asarray((steps + noise / step) * step, dtype=np.float64)


def laplace_variance(scale: float, source: NoiseSource) -> float:
    """Return the exact variance of the noise that a source draws at scale b.

    Notes
    -----
    2 b^2 of continuous noise; ``g^2 / (2 sinh(g/(2 b))^2)`` of discrete noise on a grid of step g, which is
    less by g^2/6.
    """
    if scale == 0.0 or not source.secure:
        return 2.0 * scale**2
    step = grid_step(scale)
    return float(0.5 * (step / math.sinh(step / (2.0 * scale))) ** 2)
