r"""Modulated release of features: one noisy vector per client (paper 1).

A client with features x in R^d (private columns, scaled units) sends

.. math:: g = (1-\alpha) x + \frac{\lambda}{\sqrt m} \sum_{j=1}^m
          \cos(\omega \langle x, v_j\rangle + \phi_j) v_j + N(0, \sigma^2 I_d)

with fresh phases phi_j ~ U[0, 2 pi) that never leave it. The phase is uniform, so
omega<x, v_j> + phi_j is uniform modulo 2 pi *whatever x is*: the modulation is noise independent of x,
and the sensitivity of the message is (1 - alpha) ||x - x'|| exactly. A phase kept for another message
forfeits this, hence a session draws phases again in every round.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from privinf.error_boundary import error_boundaries
from privinf.errors import ArgumentError
from privinf.mechanisms.gaussian import Spending
from privinf.mechanisms.rows import BLOCK
from privinf.noise import NoiseSource, grid_step
from privinf.release_kinds import ModulationNoiseModel
from privinf.typing import Adjacency, Floats, SensitivityRule
from privinf.validation import check_choice, check_count, check_number
from privinf.wire import Derivations


@error_boundaries
@dataclass(frozen=True, slots=True, kw_only=True)
class ModulationMap:
    """The paper's client map and its sensitivity.

    Attributes
    ----------
    contraction : float in [0, 1)
        alpha of the paper.
    amplitude : float >= 0
        lambda: size of the cosine modulation, scaled units.
    frequency : float >= 0
        omega.
    directions : int >= 1
        m: number of orthonormal modulation directions.
    sensitivity : {"exact", "lipschitz"}
        "exact": (1 - alpha) times the distance (see the module docstring); "lipschitz": the paper's
        (|1 - alpha| + lambda omega / sqrt m) times the distance (Theorem 7.2).
    adjacency : {"bounded", "unit"}
        "bounded": any two records inside the public bounds; "unit": the paper's records at distance
        at most 1 (metric privacy).
    """

    contraction: float = 0.5
    amplitude: float = 0.1
    frequency: float = 1.0
    directions: int = 1
    sensitivity: SensitivityRule = "exact"
    adjacency: Adjacency = "bounded"

    def __post_init__(self) -> None:
        contraction = check_number(self.contraction, "contraction", low=0.0, high=1.0, open_high=True)
        object.__setattr__(self, "contraction", contraction)
        object.__setattr__(self, "amplitude", check_number(self.amplitude, "amplitude", low=0.0))
        object.__setattr__(self, "frequency", check_number(self.frequency, "frequency", low=0.0))
        check_count(self.directions, "directions")
        check_choice(self.sensitivity, SensitivityRule, "sensitivity")
        check_choice(self.adjacency, Adjacency, "adjacency")

    def lipschitz(self) -> float:
        """Return the factor from a distance between records to a distance between messages."""
        keep = 1.0 - self.contraction
        if self.sensitivity == "exact":
            return keep
        return keep + self.amplitude * self.frequency / math.sqrt(self.directions)

    def derivation(self) -> str:
        """Return the derivation of the sensitivity in one line."""
        factor = Derivations.CONTRACTION
        if self.sensitivity == "lipschitz":
            factor = Derivations.CONTRACTION_AND_WAVES
        distance = Derivations.PUBLIC_DIAMETER if self.adjacency == "bounded" else Derivations.UNIT_DISTANCE
        return Derivations.MODULATED.format(factor=factor, distance=distance)

    def noise_model(
        self, scales: list[float], response_scale: float, spending: Spending
    ) -> ModulationNoiseModel:
        """Return the noise model of a release: of each round and of the response."""
        noise_free = math.isinf(spending.mu)
        return {
            "contraction": self.contraction,
            "amplitude": 0.0 if noise_free else self.amplitude,
            "frequency": self.frequency,
            "sensitivity": self.sensitivity,
            "adjacency": self.adjacency,
            "scales": list(scales),
            "response_scale": response_scale,
            "delta": spending.delta,
            "noise_free": noise_free,
        }


def orthonormal_directions(
    rng: np.random.Generator, count: int, dimension: int, *, orthogonal_to: Floats | None = None
) -> Floats:
    """Return `count` random orthonormal rows (count, dimension), orthogonal to a vector if one is given.

    Public randomness: the directions are announced to every client.
    """
    vector = None if orthogonal_to is None or not np.any(orthogonal_to) else orthogonal_to
    room = dimension - (vector is not None)
    if count > room:
        others = "" if vector is None else " and to the current coefficients"
        raise ArgumentError(
            f"directions={count} is too large for {dimension} private column(s): at most {room} "
            f"directions are possible, since they must be orthogonal to each other{others}"
        )
    draws = rng.standard_normal((dimension, count))
    if vector is not None:
        draws = np.column_stack([vector, draws])
    basis, _ = np.linalg.qr(draws)
    return np.ascontiguousarray(basis[:, basis.shape[1] - count :].T)


def modulated_message(
    x: Floats, directions: Floats, scale: float, source: NoiseSource, parameters: ModulationMap
) -> Floats:
    """Return one message per row of `x`, shape (n, d).

    Parameters
    ----------
    x : ndarray, shape (n, d)
        Private columns, scaled units.
    directions : ndarray, shape (m, d)
        Orthonormal rows.
    scale : float
        sd of the Gaussian noise; 0 switches noise and modulation off.

    Notes
    -----
    **Privacy.** Reads all rows; the caller has charged them. With a secure source and
    ``sensitivity="exact"`` the modulation is drawn without looking at x and put on the noise's grid, so
    no rounding of a cosine can depend on x. Seeded runs, and "lipschitz", compute the paper's formula.
    """
    keep = 1.0 - parameters.contraction
    if scale == 0.0:
        return keep * x
    amplitude = parameters.amplitude / math.sqrt(len(directions))
    oblivious = source.secure and parameters.sensitivity == "exact"
    message = np.empty_like(x)
    for start in range(0, len(x), BLOCK):
        block = x[start : start + BLOCK]
        values = keep * block
        if amplitude > 0.0:
            angle = (2.0 * math.pi) * source.uniform((len(block), len(directions)))
            if oblivious:
                step = grid_step(scale)
                wave = np.rint((amplitude * np.cos(angle)) @ directions / step) * step
                message[start : start + BLOCK] = source.perturb(values, scale) + wave
                continue
            angle += parameters.frequency * (block @ directions.T)
            np.cos(angle, out=angle)
            angle *= amplitude
            values += angle @ directions
        message[start : start + BLOCK] = source.perturb(values, scale)
    return message


def planned_response_share(
    mu: float, feature_distance: float, response_diameter: float, columns: int
) -> float:
    """Return the share of mu^2 for a protected response that a public guess makes best.

    Minimises the trace of the asymptotic covariance of corrected least squares,
    (s_e^2 + t_y^2 + t_x^2 b'b)(h + t_x^2) + t_x^4 b'b, over the split, at the public guess that columns
    and response are uniform on [-1, 1] and R^2 = 1/2.
    """
    if math.isinf(mu):
        return 0.5
    variance = 1.0 / 3.0
    slope = 0.5 * variance / (variance * 1.0)

    def spread(share: float) -> float:
        tx = (feature_distance / mu) ** 2 / (1.0 - share)
        ty = (response_diameter / mu) ** 2 / share
        return (0.5 * variance + ty + tx * slope) * (variance + tx) + tx**2 * slope

    from scipy.optimize import minimize_scalar  # a third of the import time of the package

    best = minimize_scalar(spread, bounds=(0.02, 0.9), method="bounded", options={"xatol": 1e-4})
    return float(best.x)
