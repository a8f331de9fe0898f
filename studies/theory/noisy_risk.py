r"""What noise does to the risk (paper 4, section 4): theorem 4.2, part by part.

Losses f(z) of the margin ``z = y theta'x``, y = -1 or 1: quadratic ``(z - 1)^2/2``, exponential ``e^-z``,
logistic ``log(1 + e^-z)``. S is the covariance of the Gaussian noise in the features, s = theta'S theta, W_s
the Weierstrass transform at variance s, ``keep = 1/(1 + e^-eps_y)`` the probability of a true label.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from privinf.errors import ArgumentError
from privinf.iwp.transforms import gaussian_grid
from privinf.typing import Floats
from privinf.validation import check_array, check_choice, check_positive

MarginLoss = Literal["quadratic", "exponential", "logistic"]


@dataclass(frozen=True, slots=True)
class RiskBias:
    """The risk of noisy records minus that of clean ones, in three parts; see `risk_bias`.

    Attributes
    ----------
    label, features, interaction : float
        Of the label's noise alone, of the features' noise where the label stays, and where it is turned.
    """

    label: float
    features: float
    interaction: float

    @property
    def total(self) -> float:
        """The whole bias."""
        return self.label + self.features + self.interaction


def risk_bias(
    theta: ArrayLike,
    X: ArrayLike,
    y: ArrayLike,
    *,
    loss: MarginLoss,
    noise: ArrayLike,
    epsilon_y: float = math.inf,
) -> RiskBias:
    r"""Return the bias of the mean loss on noisy copies of records, for given records (theorem 4.2).

    Parameters
    ----------
    theta : (p,) array
    X : (n, p) array
        Clean features.
    y : (n,) array
        Clean labels, -1 or 1.
    loss : {"quadratic", "exponential", "logistic"}
    noise : (p,) array
        Variances of the Gaussian noise; 0 for columns without noise.
    epsilon_y : float, default infinity
        Of the label's randomized response; infinity leaves labels as they are.

    Returns
    -------
    RiskBias

    Raises
    ------
    ArgumentError
        For shapes that do not match, other labels, a negative variance or an unknown loss.

    Notes
    -----
    With means over the records,

    .. math:: (1 - keep)\, [\bar f(-z) - \bar f(z)] + keep\, [\overline{W_s f}(z) - \bar f(z)]
              + (1 - keep)\, [\overline{W_s f}(-z) - \bar f(-z)].

    The theorem writes ``W_s f - f`` as a series of iterated Laplacians. Here it is what the series stands
    for: ``s/2`` (quadratic), ``(e^(s/2) - 1) f`` (exponential), and for the logistic loss, whose series does
    not converge, the integral by the trapezoidal rule (1e-12).

    **Privacy.** Reads clean records: for studies, not for release.

    References
    ----------
    Paper 4, theorem 4.2 and example 1.

    Examples
    --------
    >>> bias = risk_bias([1.0, 0.0], [[1.0, 0.0]], [1.0], loss="quadratic", noise=[0.5, 0.5], epsilon_y=1.0)
    >>> round(bias.label, 4), round(bias.features, 4), round(bias.interaction, 4)
    (0.5379, 0.1828, 0.0672)
    """
    check_choice(loss, MarginLoss, "loss")
    direction, rows, labels, variances = checked_records(theta, X, y, noise)
    z = labels * (rows @ direction)
    turned = float(expit(-check_positive(epsilon_y, "epsilon_y", infinite=True)))
    s = float(direction @ (variances * direction))
    kept_risk = float(_loss(loss, z).mean())
    turned_risk = float(_loss(loss, -z).mean())
    return RiskBias(
        turned * (turned_risk - kept_risk),
        (1.0 - turned) * (float(_smoothed(loss, z, s).mean()) - kept_risk),
        turned * (float(_smoothed(loss, -z, s).mean()) - turned_risk),
    )


def checked_records(
    theta: ArrayLike, X: ArrayLike, y: ArrayLike, noise: ArrayLike
) -> tuple[Floats, Floats, Floats, Floats]:
    """Return coefficients, rows, labels and noise variances whose shapes match."""
    direction = check_array(theta, "theta", ndim=1)
    rows = check_array(X, "X", ndim=2)
    labels = check_array(y, "y", ndim=1)
    variances = check_array(noise, "noise", ndim=1)
    if not rows.shape[1:] == direction.shape == variances.shape or (variances < 0.0).any():
        raise ArgumentError("theta and noise must have one entry, variances >= 0, for each column of X")
    if labels.shape != rows.shape[:1] or not len(rows) or (np.abs(labels) != 1.0).any():
        raise ArgumentError("y must have a label, -1 or 1, for each row of X")
    return direction, rows, labels, variances


def _loss(loss: MarginLoss, z: Floats) -> Floats:
    if loss == "quadratic":
        return np.asarray((z - 1.0) ** 2 / 2.0, dtype=np.float64)
    return np.asarray(np.exp(-z) if loss == "exponential" else np.logaddexp(0.0, -z), dtype=np.float64)


def _smoothed(loss: MarginLoss, z: Floats, s: float) -> Floats:
    """Return W_s[f](z)."""
    if loss == "quadratic":
        return _loss(loss, z) + s / 2.0
    if loss == "exponential":
        return math.exp(s / 2.0) * _loss(loss, z)
    total = np.zeros_like(z)
    for node, weight in zip(*gaussian_grid(s), strict=True):
        total += weight * _loss(loss, z + node)
    return total
