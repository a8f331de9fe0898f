r"""One-step estimation: the score equation of one Newton step whose score and Hessian have noise.

A fit ends with a mean score S and a mean Hessian H at an expansion point c_T, released in whitened
coordinates ``c = c_T + K d``, K `to_scaled`. With the scores' error e (sampling and noise) and the noise N of
H (independent entries, of sd s_H on the diagonal and s_H / sqrt 2 above it), ``S = H_0 d_0 + e`` and
``H = H_0 + N``, so that at the true d_0

.. math:: S - H d_0 = e - N d_0, \qquad
          n \operatorname{Cov}(S - H d) = M + n \Sigma + \frac{n s_H^2}{2} (|d|^2 I + d d'),

M the meat of the scores, n Sigma what noise and clipped tails add to it. This is exact at every d, and only
for the Hessian *as it was released*. Estimates invert one whose eigenvalues are floored, and a floored
eigenvalue adds ``(floor - lambda) d_u`` along its eigenvector u to the scores, a bias that no variance
contains: score sets from it covered as little as 0.35 where they should cover 0.95.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from privinf.errors import NotAvailableError
from privinf.inference.covariances import sampling_kind
from privinf.inference.linear_scores import LargeSample
from privinf.typing import Flags, Floats, SamplingKind

STEP_EQUATION = """\
cov = H^-1 [ meat / n + s_S^2 I + (s_H^2 / 2) (|D|^2 I + D D') ] H^-1
H: the last noisy Hessian
sampling: meat / n; meat is the mean outer product of the scores, n the number of records
score noise: s_S^2 I; s_S is the standard deviation of the noise in every entry of the last score
Hessian noise: (s_H^2 / 2) (|D|^2 I + D D'); s_H is the standard deviation of the noise on the diagonal of the
last Hessian, D the last step"""


# Slope of the score along a coefficient, in sds of its noise, below which the coefficient is called weakly
# identified. Noise of a Hessian at the expansion point multiplies a short step, so that four sds suffice
# (benchmarks/results/flags.md).
LEAST_SCORE_STRENGTH = 4.0


def step_noise(step: Floats, score_sd: float, hessian_sd: float) -> dict[str, Floats]:
    """Return the terms that noise of the last score and Hessian adds to the covariance of the scores."""
    eye = np.eye(len(step))
    hessian = hessian_sd**2 / 2.0 * (step @ step * eye + np.outer(step, step))
    return {"score noise": score_sd**2 * eye, "Hessian noise": np.asarray(hessian)}


@dataclass(frozen=True, eq=False, kw_only=True)
class OneStepScores(LargeSample):
    r"""The scores of a one-step estimator as an equation that is linear in the coefficients c.

    .. math:: \psi(c) = K^{-T} (S - H d), \qquad d = K^{-1} (c - c_T),

    the scores at the expansion point moved along the released Hessian, and ``n Cov psi(c)`` as the module has
    it, between K^-T and K^-1. A = K^-T H K^-1 need not be positive definite.

    Attributes
    ----------
    to_scaled : ndarray, shape (p, p)
        K: from whitened coordinates to the design's scaled ones.
    start, mean : ndarray, shape (p,)
        c_T and S, a mean over records.
    hessian : ndarray, shape (p, p)
        H with floored eigenvalues, which the estimate inverts.
    released_hessian : ndarray, shape (p, p), or None
        H as it was released, which score tests use. None: files of earlier versions do not contain it, and
        the floored one takes its place.
    clean, known : ndarray, shape (p, p)
        M, the meat of the scores; n Sigma, n times the covariance that noise and tails add to S.
    hessian_sd : float
        Sd of the noise on the diagonal of H.
    residual : float or None
        Mean squared residual; None where squares of residuals are not released.
    noise_free : ndarray of bool, shape (p,)
        Columns that are concentrated out; their own noise is of second order there.
    n : int
    cov_type : str
    """

    to_scaled: Floats
    start: Floats
    mean: Floats
    hessian: Floats
    released_hessian: Floats | None = None
    clean: Floats
    known: Floats
    hessian_sd: float
    residual: float | None
    noise_free: Flags
    n: int
    cov_type: str

    variance_equation = STEP_EQUATION
    least_strength = LEAST_SCORE_STRENGTH

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON holds it."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: v.tolist() if isinstance(v, np.ndarray) else v for name, v in values.items()}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> OneStepScores:
        """Return what `to_dict` described, of this version or of an older one."""
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
        hessian = self.hessian if self.released_hessian is None else self.released_hessian
        return np.asarray(self._inverse.T @ hessian @ self._inverse)

    @cached_property
    def g(self) -> Floats:
        """Psi at zero."""
        return np.asarray(self._inverse.T @ self.mean + self.A @ self.start)

    def scores(self, beta: Floats) -> None:
        """Return None: sums were released, not records' scores."""

    def residual_variance(self, beta: Floats) -> float:
        """Return the mean squared residual, at the estimate whatever beta."""
        if self.residual is None:
            raise NotAvailableError(
                "the residual variance is not available: this model releases no squared residuals"
            )
        return self.residual

    def meat(self, beta: Floats) -> Floats:
        """Return ``n Cov(psi(beta))``, shape (p, p)."""
        return self.clean_meat(beta)[0] + self.noise_meat(beta)

    def noise_terms(self, beta: Floats) -> dict[str, Floats]:
        """Return the terms of `noise_meat`: n Sigma, and that of the Hessian."""
        moved = self._inverse @ (beta - self.start)
        hessian = self.n * step_noise(moved, 0.0, self.hessian_sd)["Hessian noise"]
        terms = {"score noise": self.known, "Hessian noise": hessian}
        return {name: self._inverse.T @ term @ self._inverse for name, term in terms.items()}

    def clean_meat(self, beta: Floats) -> tuple[Floats, SamplingKind]:
        """Return the meat that the same rows would have had without noise."""
        return self._inverse.T @ self.clean @ self._inverse, sampling_kind(self.cov_type)

    def tensor(self) -> Floats:
        """Return C with ``meat(c) = sum_kl w_k w_l C_kl``, w = (c, 1)."""
        p = len(self.start)
        inverse = self._inverse
        moved = np.column_stack([inverse, -inverse @ self.start])
        noise = self.n * self.hessian_sd**2 / 2.0
        crossed = inverse.T @ moved
        tensor = np.multiply.outer(moved.T @ moved, inverse.T @ inverse)
        tensor += np.einsum("bk,cl->klbc", crossed, crossed)
        tensor *= noise
        tensor[p, p] += inverse.T @ (self.clean + self.known) @ inverse
        return np.asarray(tensor)

    def contrast_forms(self, directions: Floats) -> Floats:
        """Return F, shape (k, p+1, p+1), with ``t_k' meat(c) t_k = w'F_k w``, t_k row k, w = (c, 1).

        The tensor takes p^2 times the memory: a fit can have hundreds of columns.
        """
        moved = np.column_stack([self._inverse, -self._inverse @ self.start])
        rows = directions @ self._inverse.T
        crossed = rows @ moved
        forms = np.multiply.outer(np.sum(rows**2, axis=1), moved.T @ moved)
        forms += crossed[:, :, None] * crossed[:, None, :]
        forms *= self.n * self.hessian_sd**2 / 2.0
        forms[:, -1, -1] += np.einsum("ja,ab,jb->j", rows, self.clean + self.known, rows, optimize=True)
        return np.asarray(forms)

    def gram_noise(self) -> tuple[Floats, float]:
        """Return the metric of the noise in A and how far it spreads the spectrum in it."""
        return self._inverse.T @ self._inverse, self.hessian_sd * float(np.sqrt(2.0 * len(self.start)))

    def fuller_gram(self, a: float | None) -> Floats:
        """Raise NotAvailableError: nothing is subtracted from the Hessian."""
        raise NotAvailableError(
            "Fuller's modification is not available for the one-step estimator, because no noise is "
            "subtracted from its Hessian: fit without it"
        )
