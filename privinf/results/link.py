"""Mean responses of generalised linear losses, with intervals on the scale of the mean."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from privinf.inference.prediction import MeanPrediction
from privinf.typing import Floats, Loss


def mean_response(loss: Loss, linear: Floats) -> Floats:
    """Return the mean at a linear predictor.

    squared: itself; poisson: its exponential; logistic, exponential, quadratic: the probability of the
    label's second level, ``expit(eta)``, ``expit(2 eta)`` (the exponential loss's population minimiser is
    half the log odds) and ``(1 + eta)/2``.
    """
    if loss == "poisson":
        return np.exp(linear)
    if loss == "logistic":
        return np.asarray(expit(linear), dtype=np.float64)
    if loss == "exponential":
        return np.asarray(expit(2.0 * linear), dtype=np.float64)
    return (1.0 + linear) / 2.0 if loss == "quadratic" else linear


def mean_slope(loss: Loss, linear: Floats) -> Floats:
    """Return the derivative of `mean_response`."""
    mean = mean_response(loss, linear)
    if loss == "poisson":
        return mean
    if loss in {"logistic", "exponential"}:
        return mean * (1.0 - mean) * (2.0 if loss == "exponential" else 1.0)
    return np.full_like(linear, 0.5 if loss == "quadratic" else 1.0)


def class_probabilities(linear: Floats) -> Floats:
    """Return probabilities (rows, L) from linear predictors (rows, L - 1) against the first level."""
    full = np.column_stack([np.zeros(len(linear)), linear])
    full -= full.max(axis=1, keepdims=True)
    weights = np.exp(full)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True), dtype=np.float64)


@dataclass(frozen=True, slots=True)
class LinkPrediction:
    """Means through a link: standard errors by the delta method, intervals from the linear predictor's.

    Attributes
    ----------
    linear : MeanPrediction
        Of the linear predictor.
    loss : str
    """

    linear: MeanPrediction
    loss: Loss

    @property
    def mean(self) -> Floats:
        """Means, shape (rows,)."""
        return mean_response(self.loss, self.linear.mean)

    @property
    def se(self) -> Floats:
        """Standard errors, shape (rows,)."""
        return np.asarray(mean_slope(self.loss, self.linear.mean) * self.linear.se, dtype=np.float64)

    def conf_int(self, alpha: float = 0.05) -> Floats:
        """Return pointwise intervals of level ``1 - alpha``, shape (rows, 2)."""
        return mean_response(self.loss, self.linear.conf_int(alpha))
