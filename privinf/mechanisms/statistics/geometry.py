r"""Sensitivity, layout and residual plan of second-moment releases, whoever makes them.

With z = (p, x, c y), p the declared-public columns (the constant among them), x the private columns in
scaled units, |x| <= R, and c a public weight, |c y| <= k, what is released are the isometric entries of
z z' (the diagonal, and sqrt 2 times the entries above it) less the block p p', which is public. Noise of
equal sd on those entries is isotropic in the Frobenius norm.

Replace-one sensitivity: two records share p (it is public), so with q^2 = max |p|^2, a = (x, c y) and b
its replacement,

.. math:: \|zz' - ww'\|_F^2 = (q^2 + |a|^2)^2 + (q^2 + |b|^2)^2 - 2 (q^2 + a'b)^2,

which is largest at |a|^2 = |b|^2 = R^2 + k^2 =: rho^2 and the inner product nearest to -q^2 that two
such pairs can have.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from privinf.typing import Floats, Integers

# Residuals are clipped at such a multiple of their released standard deviation before the HC0 release: at the
# largest, unless noise would drown what it is added to. At 3 intervals cover .85 to .92 on skewed responses,
# at 20 .92 to .97: see benchmarks/results/hc0_real.md, made by benchmarks/verify_hc0.py.
LEAST_MULTIPLE, RESIDUAL_MULTIPLE = 3.0, 20.0


def second_moment_sensitivity(x_norm: float, y_norm: float, public_norm2: float = 0.0) -> float:
    """Return the largest ||zz' - ww'||_F over two records (see the module docstring).

    Parameters
    ----------
    x_norm, y_norm : float
        Largest |x| and largest |c y|.
    public_norm2 : float
        Largest squared norm of a record's public columns (1 with a constant alone, 0 without any).

    Notes
    -----
    sqrt 2 (q^2 + rho^2) where an inner product of -q^2 can be had, 2 sqrt 2 q rho where even -rho^2 is
    not that small (rho < q). Attained for d >= 2 private columns on a ball when k^2 <= R^2 + q^2 (as the
    default weight has it); otherwise, for d = 1 and for a box, an upper bound. (2 sqrt 2 R k, sometimes
    given for k > R without a constant, is *not* an upper bound: against the record (0, 0) the distance is
    R^2 + k^2 already.)
    """
    rho2 = x_norm**2 + y_norm**2
    gap = max(public_norm2 - rho2, 0.0)
    return math.sqrt(2.0 * ((public_norm2 + rho2) ** 2 - gap**2))


def residual_moment_sensitivity(x_norm: float, public_norm2: float = 0.0) -> float:
    """Return the largest Frobenius distance of two matrices r^2 x x', |r| <= 1, x with its public part."""
    return math.sqrt(2.0) * (x_norm**2 + public_norm2)


def default_response_weight(x_norm: float, y_norm: float, public_norm2: float) -> float:
    """Return the public weight c of y: c |y| <= .87 sqrt(R^2 + q^2) spends the sensitivity well.

    For small slopes the noise of the estimate is proportional to (q^2 + R^2 + k^2)/k with k = c |y|,
    smallest at k^2 = q^2 + R^2 and flat around it; larger slopes favour a smaller k.
    """
    return 0.87 * math.sqrt(x_norm**2 + public_norm2) / y_norm


@dataclass(frozen=True, slots=True)
class MomentLayout:
    """Which entries of zz' a moment vector holds.

    Attributes
    ----------
    public, private : int
        Numbers of public and private columns; z has public + private + 1 entries, in this order.
    """

    public: int
    private: int

    @property
    def size(self) -> int:
        """Length of z."""
        return self.public + self.private + 1

    def pairs(self) -> tuple[Integers, Integers, Floats]:
        """Return rows, columns and isometric factors of the entries that are released."""
        rows, columns = np.triu_indices(self.size)
        keep = columns >= self.public
        rows, columns = rows[keep], columns[keep]
        factors = np.where(rows == columns, 1.0, math.sqrt(2.0))
        return rows.astype(np.int64), columns.astype(np.int64), factors

    def matrix(self, moments: Floats, public_moments: Floats) -> Floats:
        """Return the symmetric (size, size) matrix from isometric entries and the public block."""
        rows, columns, factors = self.pairs()
        full = np.zeros((self.size, self.size))
        full[rows, columns] = moments / factors
        full[columns, rows] = full[rows, columns]
        full[: self.public, : self.public] = public_moments
        return full


@dataclass(frozen=True, slots=True)
class MomentScale:
    """How far a record's z reaches, and the noise of what is released of it.

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
    """

    weight: float
    x_norm: float
    y_norm: float
    public: int
    public_norm2: float
    n: int
    noise: float
    residual_noise: float


@dataclass(frozen=True, slots=True, eq=False)
class ResidualPlan:
    """Which residuals a second release is about, decided by the first one alone.

    Attributes
    ----------
    coefficients : ndarray, shape (p,)
        b, in the order of z.
    bound : float
        E, at which residuals are clipped.
    largest : float
        What no residual passes, by the public bounds.
    """

    coefficients: Floats
    bound: float
    largest: float

    @classmethod
    def of(cls, mean_moments: Floats, scale: MomentScale) -> ResidualPlan:
        r"""Return the plan that noisy mean moments of z, shape (p + 1, p + 1), lead to.

        Notes
        -----
        E is the smallest of three: 20 sds of the residuals; what the public bounds let a residual reach,
        ``k + |p|_max |b_p| + R |b_x|``; and where the noise of the residual moments, whose operator norm is
        about ``E^2 sd sqrt(2 p)``, is as large as the mean eigenvalue of what they are added to or a part of,
        ``s^2 tr A / p`` and n times the noise of g - A b. A smaller clip then costs little: it takes from a
        part of the variance that does not matter. Never below 3 sds.
        """
        gram, cross = mean_moments[:-1, :-1], mean_moments[:-1, -1] / scale.weight
        b = np.asarray(np.linalg.lstsq(gram, cross, rcond=None)[0], dtype=np.float64)
        variance = float(mean_moments[-1, -1] / scale.weight**2 - 2.0 * b @ cross + b @ gram @ b)
        sd = math.sqrt(max(variance, (0.05 * scale.y_norm) ** 2))
        known, private = b[: scale.public], b[scale.public :]
        largest = (
            scale.y_norm
            + math.sqrt(scale.public_norm2) * float(np.linalg.norm(known))
            + scale.x_norm * float(np.linalg.norm(private))
        )
        sampling = max(variance * float(np.trace(gram)), 0.0) / len(b)
        noise = scale.n * scale.noise**2 / 2.0 * (float(b @ b) + scale.weight**-2)
        edge = scale.residual_noise * math.sqrt(2.0 * len(b))
        drowned = math.sqrt((sampling + noise) / edge) if edge > 0.0 else math.inf
        clip = float(np.clip(drowned, LEAST_MULTIPLE * sd, RESIDUAL_MULTIPLE * sd))
        return cls(b, min(clip, largest), largest)
