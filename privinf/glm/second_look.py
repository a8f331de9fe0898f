"""What the last releases of a second look say: coefficients, covariance, the bias to allow, score tests."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np

from privinf.errors import NotAvailableError
from privinf.glm.newton import step_noise
from privinf.inference.linear_scores import LargeSample
from privinf.inference.tails import ALLOWED, Clip, Tail
from privinf.typing import Flags, Floats, PlainValue, SamplingKind


@dataclass(frozen=True, slots=True)
class Measures:
    """Moments of the response and of the residuals, scaled units.

    Attributes
    ----------
    residual : float
        Mean squared residual at the coefficients.
    total : float
        Mean square of the response, about its mean where there is a constant.
    """

    residual: float
    total: float


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Pilot:
    """Where a second look starts, scaled units.

    Attributes
    ----------
    theta : ndarray, shape (p,)
    whitening : ndarray, shape (p, p)
        M: v = M z.
    longest : float
        Public bound of |v|^2.
    unit : float
        s: about the sd of the residuals.
    noise : float
        Sd that the noise of theta gives linear predictors.
    smallest, edge : float
        Smallest eigenvalue of the first Gram matrix, and the operator norm of its noise.
    gram : ndarray, shape (p, p)
        The first Gram matrix.
    residuals : Tail or None
        Of the residuals at the first theta.
    white : ndarray, shape (p, p)
        Second moments of v by the release that M was made of: 1 along directions that it saw.
    """

    theta: Floats
    whitening: Floats
    longest: float
    unit: float = 1.0
    noise: float = 0.0
    smallest: float = 1.0
    edge: float = 0.0
    gram: Floats = field(default_factory=lambda: np.empty((0, 0)))
    residuals: Tail | None = None
    white: Floats = field(default_factory=lambda: np.empty((0, 0)))

    @property
    def strength(self) -> float:
        """Smallest eigenvalue of the first Gram matrix over the operator norm of its noise."""
        return self.smallest / self.edge if self.edge > 0.0 else math.inf

    def args(self, more: Mapping[str, PlainValue]) -> dict[str, Any]:
        """Return what statistics are told of the pilot."""
        return {"theta": self.theta, "whitening": self.whitening, "unit": self.unit, **more}


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SecondLook:
    """The last releases of a fit, in whitened coordinates, and what they say.

    Attributes
    ----------
    pilot : Pilot
    clip : Clip
    hessian : ndarray, shape (p, p)
        H, its eigenvalues floored.
    strength : float
        Its smallest eigenvalue before that, over the operator norm of its noise.
    lower, upper : ndarray, shape (p,)
        S1/n and S2/n.
    meat : ndarray, shape (p, p)
        Of the clipped scores, shrunk.
    raw_meat : ndarray, shape (p, p)
        As it was released.
    score_sd, upper_sd, hessian_sd : float
        Sds of the noise of S1 + w S2, of S2 and of the diagonal of H, all over n.
    measures : Measures
    n : int
    """

    pilot: Pilot
    clip: Clip
    hessian: Floats
    strength: float
    lower: Floats
    upper: Floats
    meat: Floats
    raw_meat: Floats
    score_sd: float
    upper_sd: float
    hessian_sd: float
    measures: Measures
    n: int

    @property
    def step(self) -> Floats:
        """D = H^-1 (S1 + w S2)/n."""
        return np.asarray(np.linalg.solve(self.hessian, self.lower + self.clip.weight * self.upper))

    @property
    def influence(self) -> Floats:
        """R = s M' H^-1, shape (p, p)."""
        return np.asarray(self.pilot.unit * np.linalg.solve(self.hessian, self.pilot.whitening).T)

    @property
    def params(self) -> Floats:
        """Coefficients, scaled units."""
        return np.asarray(self.pilot.theta + self.pilot.unit * self.pilot.whitening.T @ self.step)

    @property
    def length(self) -> float:
        """Root mean square length of the last step, in its own standard errors."""
        noise = sum(step_noise(self.step, self.score_sd, self.hessian_sd).values())
        cov = np.linalg.solve(self.hessian, self.meat / self.n + noise)
        cov = np.linalg.solve(self.hessian, cov.T)
        return math.sqrt(max(float(self.step @ np.linalg.solve(cov, self.step)), 0.0) / len(self.step))

    def noise_terms(self, transform: Floats) -> dict[str, Floats]:
        """Return the terms of the covariance of ``transform @ params`` that the noise causes, (k, k) each."""
        R = transform @ self.influence
        terms = step_noise(self.step, self.score_sd, self.hessian_sd)
        return {name: R @ term @ R.T for name, term in terms.items()}

    def remainder(self, transform: Floats) -> Floats:
        """Return what noise N of the Hessian adds to ``transform @ params`` in second order, shape (k,).

        (H + N)^-1 S = D - H^-1 N D + H^-1 N H^-1 N D - ...: the covariance has the first order, and the mean
        of the second is H^-1 (sigma_H^2/2)(H^-1 + tr(H^-1) I) D, as E N M N = (sigma_H^2/2)(M + tr(M) I).
        """
        inverse = np.linalg.inv(self.hessian)
        spread = self.hessian_sd**2 / 2.0 * (inverse + np.trace(inverse) * np.eye(len(inverse)))
        return np.asarray(transform @ self.influence @ spread @ self.step)

    def covariance(self, transform: Floats) -> tuple[Floats, Floats]:
        """Return the covariance of ``transform @ params`` and the part of it that noise causes.

        The sampling part of a coefficient is the larger of the shrunk meat's and the raw one's (at most four
        times the shrunk one's).
        """
        R = transform @ self.influence
        shrunk, raw = (R @ meat @ R.T / self.n for meat in (self.meat, self.raw_meat))
        part = np.diag(shrunk)
        grown = np.sqrt(np.clip(np.diag(raw) / part, 1.0, 4.0))
        noise = np.asarray(sum(self.noise_terms(transform).values()))
        return shrunk * np.outer(grown, grown) + noise, noise

    def bias(self, transform: Floats) -> Floats:
        """Return the bias that the intervals of ``transform @ params`` must allow, shape (k,)."""
        R = transform @ self.influence
        size = np.linalg.norm(R, axis=1)
        return self.clip.bias(R @ self.upper, self.upper_sd * size, size / self.n)

    def elsewhere(self, transform: Floats) -> Floats:
        """Return how much shorter ``transform @ params`` would step if all rows counted in H, shape (k,).

        R (G - H) D to first order, G the moments of v. A clipped row is in S, not in H: right of a long tail,
        but not where the pilot was off, so that the step takes the row back inside the clip.
        """
        return np.asarray(transform @ self.influence @ (self.pilot.white - self.hessian) @ self.step)

    def most_bias(self, transform: Floats) -> Floats:
        """Return X(C) |R_j| / n, the shift if all that counts see beyond C were along one R_j, shape (k,)."""
        return np.asarray(self.clip.beyond * np.linalg.norm(transform @ self.influence, axis=1) / self.n)

    def one_sided(self, transform: Floats) -> Floats:
        """Return the share of the N(C) records beyond C that may be along R_j and to one side, shape (k,).

        Each holds C - tau of the upper layer: R_j S2 is that share of N(C) (C - tau) |R_j|, where the layer's
        other records are even. Two sds of its noise are added.
        """
        R = transform @ self.influence
        size = np.linalg.norm(R, axis=1)
        all_of_them = self.clip.cut * (self.clip.high - self.clip.low) * size / self.n
        shown = np.abs(R @ self.upper) + 2.0 * self.upper_sd * size
        return np.asarray(np.minimum(shown, all_of_them) / np.maximum(all_of_them, 1e-300))


@dataclass(frozen=True, eq=False, kw_only=True)
class LookedScores(LargeSample):
    r"""The scores of a second look as an equation that is linear in the coefficients c, for score tests.

    psi(c) = K^-T (S/n - H d), d = K^-1 (c - c_T): the scores at the pilot c_T moved along the Hessian. Their
    covariance is that of the clipped scores, of the noise, H's with the length of d, and of what the tail may
    hide: (.7 lambda)^2 (S2 S2'/n^2 + sd_2^2 I).

    Attributes
    ----------
    to_scaled : ndarray, shape (p, p)
        K: from whitened coordinates to the design's scaled ones.
    start, mean : ndarray, shape (p,)
        c_T, and S/n.
    hessian, clean, known : ndarray, shape (p, p)
        H, the meat, and n times the covariance that noise and tail add to S/n.
    hessian_sd, residual : float
        Sd of the noise of the diagonal of H, and the mean squared residual.
    noise_free : ndarray of bool, shape (p,)
        Columns that are concentrated out; their own noise is of second order there.
    n : int
    cov_type : str
    """

    to_scaled: Floats
    start: Floats
    mean: Floats
    hessian: Floats
    clean: Floats
    known: Floats
    hessian_sd: float
    residual: float
    noise_free: Flags
    n: int
    cov_type: str

    @classmethod
    def of(cls, look: SecondLook, to_scaled: Floats, noise_free: Flags, cov_type: str) -> LookedScores:
        """Return the scores of a look; `to_scaled` is from its scaled units to the design's."""
        hidden = (ALLOWED * look.clip.ratio) ** 2
        flat = look.score_sd**2 + hidden * look.upper_sd**2
        known = flat * np.eye(len(look.lower)) + hidden * np.outer(look.upper, look.upper)
        return cls(
            to_scaled=to_scaled @ (look.pilot.unit * look.pilot.whitening.T),
            start=to_scaled @ look.pilot.theta,
            mean=look.lower + look.clip.weight * look.upper,
            hessian=look.hessian,
            clean=look.meat,
            known=look.n * known,
            hessian_sd=look.hessian_sd,
            residual=look.measures.residual,
            noise_free=noise_free,
            n=look.n,
            cov_type=cov_type,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON holds it."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: v.tolist() if isinstance(v, np.ndarray) else v for name, v in values.items()}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> LookedScores:
        """Return what `to_dict` described."""
        values: dict[str, Any] = {
            name: np.asarray(value) if isinstance(value, list) else value for name, value in content.items()
        }
        return cls(**values)

    @cached_property
    def _inverse(self) -> Floats:
        return np.asarray(np.linalg.inv(self.to_scaled))

    @cached_property
    def A(self) -> Floats:
        """Minus the derivative of psi."""
        return np.asarray(self._inverse.T @ self.hessian @ self._inverse)

    @cached_property
    def g(self) -> Floats:
        """Psi at zero."""
        return np.asarray(self._inverse.T @ self.mean + self.A @ self.start)

    def scores(self, beta: Floats) -> None:
        """Return None: sums were released, not records' scores."""

    def residual_variance(self, beta: Floats) -> float:
        """Return the mean squared residual, at the estimate whatever beta."""
        return self.residual

    def meat(self, beta: Floats) -> Floats:
        """Return ``n Cov(psi(beta))``, shape (p, p)."""
        moved = self._inverse @ (beta - self.start)
        noise = moved @ moved * np.eye(len(moved)) + np.outer(moved, moved)
        inner = self.clean + self.known + self.n * self.hessian_sd**2 / 2.0 * noise
        return np.asarray(self._inverse.T @ inner @ self._inverse)

    def noise_meat(self, beta: Floats) -> Floats:
        """Return the part of the meat that the noise causes."""
        return self.meat(beta) - self.clean_meat(beta)[0]

    def clean_meat(self, beta: Floats) -> tuple[Floats, SamplingKind]:
        """Return the meat that the same rows would have had without noise."""
        kind: SamplingKind = "homoskedastic" if self.cov_type == "nonrobust" else "heteroskedastic"
        return self._inverse.T @ self.clean @ self._inverse, kind

    def tensor(self) -> Floats:
        """Return C with ``meat(c) = sum_kl w_k w_l C_kl``, w = (c, 1)."""
        p = len(self.start)
        inverse = self._inverse
        moved = np.column_stack([inverse, -inverse @ self.start])
        noise = self.n * self.hessian_sd**2 / 2.0
        crossed = inverse.T @ moved
        found = np.multiply.outer(moved.T @ moved, inverse.T @ inverse)
        found += np.einsum("bk,cl->klbc", crossed, crossed)
        found *= noise
        found[p, p] += inverse.T @ (self.clean + self.known) @ inverse
        return np.asarray(found)

    def gram_noise(self) -> tuple[Floats, float]:
        """Return the metric of the noise in A and how far it spreads the spectrum in it."""
        return self._inverse.T @ self._inverse, self.hessian_sd * math.sqrt(2.0 * len(self.start))

    def fuller_gram(self, a: float | None) -> Floats:
        """Raise NotAvailableError: nothing is subtracted from the Hessian."""
        raise NotAvailableError("Fuller's modification is for corrected features: a second look has none")


def stored_scores(release: object, settings: Mapping[str, Any]) -> LookedScores | None:
    """Return the scores that settings of a result hold; None for fits of other engines."""
    return LookedScores.from_dict(settings["scores"]) if "scores" in settings else None
