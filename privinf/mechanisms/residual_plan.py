"""Which residuals the second release for robust errors is about: decided by the first release alone."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from privinf.typing import Floats

# Residuals are clipped at a multiple of their released standard deviation before the HC0 release: at the
# largest, unless noise would drown what it is added to. At 3 intervals cover .85 to .92 on skewed responses,
# at 20 .92 to .97: see benchmarks/results/hc0_real.md, made by benchmarks/verify_hc0.py.
LEAST_MULTIPLE = 3.0  # smallest multiple
RESIDUAL_MULTIPLE = 20.0  # largest multiple
SMALLEST_TRACE = 0.05  # of mean squares of rows, of which noise may leave nothing
# Largest noise of units' residual moments, relative to what it is added to: 95% covered .93 there.
UNITS_NOISE = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class MomentScale:
    """Bound of a record's z, and the noise of its released moments.

    Attributes
    ----------
    weight : float
        c.
    x_norm, y_norm : float
        Largest |x| and |y|, scaled units.
    public : int
        Number of public columns.
    public_norm2 : float
        Largest squared norm of a record's public columns.
    n : int
        Number of records.
    noise, residual_noise : float
        Sd of the noise on an isometric entry of the mean moments, and of mean residual moments clipped at 1.
    units : int
        0 where every record is one; else how many records a unit has at most, whose scores are added up.
    """

    weight: float
    x_norm: float
    y_norm: float
    public: int
    public_norm2: float
    n: int
    noise: float
    residual_noise: float
    units: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class ResidualPlan:
    """Which residuals a second release is about, decided by the first one alone.

    Attributes
    ----------
    coefficients : ndarray, shape (p,)
        b, in the order of z.
    bound : float
        E, at which residuals are clipped. For units: C, the norm to which sums of their scores are shrunk.
    largest : float
        Largest residual, or norm of a unit, by the public bounds.
    residual : float
        Largest residual.
    """

    coefficients: Floats
    bound: float
    largest: float
    residual: float

    @classmethod
    def from_moments(cls, mean_moments: Floats, scale: MomentScale) -> ResidualPlan:
        r"""Return the plan that noisy mean moments of z, shape (p + 1, p + 1), lead to.

        Notes
        -----
        E is the smallest of three: 20 sds of the residuals; the largest residual within the public bounds,
        ``k + |p|_max |b_p| + R |b_x|``; and where the noise of the residual moments, whose operator norm is
        about ``E^2 sd sqrt(2 p)``, is as large as the mean eigenvalue of what they are added to or a part of,
        ``s^2 tr A / p`` and n times the noise of g - A b. A smaller clip then costs little: it takes from a
        part of the variance that does not matter. Never below 3 sds.

        Of units C stands in the place of E: an sd is the length of the scores of a unit of m records that go
        wholly together, ``m s (tr A)^.5``, the bounds allow m times the largest residual times the
        longest x, and noise may be a fifth of what it is added to: such an sd is long, and little is cut.
        """
        gram = mean_moments[:-1, :-1]
        cross = mean_moments[:-1, -1] / scale.weight
        b = np.asarray(np.linalg.lstsq(gram, cross, rcond=None)[0], dtype=np.float64)
        variance = float(mean_moments[-1, -1] / scale.weight**2 - 2.0 * b @ cross + b @ gram @ b)
        sd = math.sqrt(max(variance, (0.05 * scale.y_norm) ** 2))
        public = b[: scale.public]
        private = b[scale.public :]
        largest = (
            scale.y_norm
            + math.sqrt(scale.public_norm2) * float(np.linalg.norm(public))
            + scale.x_norm * float(np.linalg.norm(private))
        )
        sampling = max(variance * float(np.trace(gram)), 0.0) / len(b)
        noise = scale.n * scale.noise**2 / 2.0 * (float(b @ b) + scale.weight**-2)
        edge = scale.residual_noise * math.sqrt(2.0 * len(b))
        drowned = math.sqrt((sampling + noise) / edge) if edge > 0.0 else math.inf
        residual = largest
        if scale.units:
            drowned *= math.sqrt(UNITS_NOISE)
            sd *= scale.units * math.sqrt(max(float(np.trace(gram)), SMALLEST_TRACE))
            largest *= scale.units * math.hypot(scale.x_norm, math.sqrt(scale.public_norm2))
        clip = float(np.clip(drowned, LEAST_MULTIPLE * sd, RESIDUAL_MULTIPLE * sd))
        return cls(b, min(clip, largest), largest, residual)
