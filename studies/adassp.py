r"""Adaptive sufficient-statistics perturbation: private least squares on a support that is given.

Given the true support it is an oracle: no private method that must find the support itself can expect less
error from the same budget by this route.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri

from privinf.accounting import GaussianLoss, LedgerEntry, PrivacyReport, Sensitivity, calibrate_mu
from privinf.errors import ArgumentError
from privinf.noise import NoiseSource, get_source, solve_scale
from privinf.typing import ArrayLike, Floats, Integers, RngLike
from privinf.validation import check_array, check_positive

# Rounding of the clipping arithmetic is far below this relative slack, which the sensitivity is charged.
_SLACK = 2.0**-40
_FAILURE = 0.05  # chance that the ridge does not cover the noise


@dataclass(frozen=True, slots=True, eq=False)
class AdaSSPFit:
    """Private ridge regression on a given support.

    Attributes
    ----------
    params : ndarray, shape (p,)
        Zero outside the support.
    support : ndarray of int, shape (d,)
    ridge : float
        What was added to the diagonal of X'X.
    privacy : PrivacyReport
        Does not cover the support.
    """

    params: Floats
    support: Integers
    ridge: float
    privacy: PrivacyReport


def adassp(
    y: ArrayLike,
    X: Any,
    support: ArrayLike,
    *,
    epsilon: float,
    delta: float,
    x_radius: float,
    y_bound: float,
    rng: RngLike = None,
) -> AdaSSPFit:
    r"""Regress y on the columns `support` of X under (epsilon, delta)-DP.

    Parameters
    ----------
    y, X : array_like, shapes (n,) and (n, p)
    support : sequence of int
        d different columns.
    epsilon, delta : float
        Of all three releases together; ``epsilon=inf`` is least squares among the clipped rows.
    x_radius, y_bound : float
        The l2 norm of x on the support and abs(y) are clipped at them.
    rng : None, int or Generator
        None: secure noise.

    Raises
    ------
    ArgumentError
        Shapes do not match, or `support` has repeats or columns that there are not.

    Notes
    -----
    **Privacy.** Replace-one; a third of mu^2 each for the smallest eigenvalue of X'X (sensitivity r^2), X'X
    (isometric upper triangle, sqrt(2) r^2) and X'y (2 r B). The noise is calibrated exactly for Gaussians,
    where Wang splits epsilon and delta in three.

    The ridge is Wang's: what the noise in X'X may take away (with W's sd s on the diagonal,
    ``P(norm(W) > s (sqrt(2d) + t)) <= 2 exp(-t^2/2)``), less a lower bound of the smallest eigenvalue.

    References
    ----------
    Wang (2018), "Revisiting differentially private linear regression", algorithm 2.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (20_000, 10))
    >>> y = X[:, 0] - X[:, 4] + 0.1 * rng.standard_normal(20_000)
    >>> fit = adassp(y, X, [0, 4], epsilon=1.0, delta=1e-6, x_radius=1.5, y_bound=2.5, rng=0)
    >>> fit.params[[0, 1, 4]].round(1).tolist(), round(fit.privacy.epsilon(1e-6), 3)
    ([1.0, 0.0, -1.0], 1.0)
    """
    radius = check_positive(x_radius, "x_radius")
    bound = check_positive(y_bound, "y_bound")
    mu = calibrate_mu(epsilon=epsilon, mu=None, rho=None, delta=delta, calibration="exact")
    source = get_source(rng=rng)
    response, features, chosen, p = _clipped(y, X, support, radius, bound)
    d = len(chosen)
    gram = features.T @ features
    cross = features.T @ response
    upper = np.triu_indices(d)
    stretch = np.where(upper[0] == upper[1], 1.0, math.sqrt(2.0))
    smallest = np.array([np.linalg.eigvalsh(gram)[0]])
    noisy = _Noise(mu / math.sqrt(3.0), source)
    lowest, lowest_scale, line1 = noisy.release("smallest eigenvalue", smallest, radius**2)
    packed, scale, line2 = noisy.release("X'X", gram[upper] * stretch, math.sqrt(2.0) * radius**2)
    cross, _, line3 = noisy.release("X'y", cross, 2.0 * radius * bound)
    moments = np.zeros((d, d))
    moments[upper] = packed / stretch
    moments = moments + np.triu(moments, 1).T
    floor = max(float(lowest[0]) + lowest_scale * float(ndtri(_FAILURE)), 0.0)
    ridge = max(scale * (math.sqrt(2.0 * d) + math.sqrt(2.0 * math.log(2.0 / _FAILURE))) - floor, 0.0)
    params = np.zeros(p)
    params[chosen] = np.linalg.solve(moments + ridge * np.eye(d), cross)
    report = PrivacyReport.from_entries([line1, line2, line3], delta=delta)
    return AdaSSPFit(params, chosen, ridge, report)


@dataclass(frozen=True, slots=True)
class _Noise:
    """Gaussian noise at a given mu for each release."""

    mu: float
    source: NoiseSource

    def release(self, label: str, values: Floats, sensitivity: float) -> tuple[Floats, float, LedgerEntry]:
        """Return the noisy values, the noise sd and the ledger line."""
        clear = math.isinf(self.mu)
        scale = 0.0
        total = sensitivity * (1.0 + _SLACK)
        if not clear:
            scale, total = solve_scale(total, self.mu, values.size, self.source)
        entry = LedgerEntry(
            mechanism="gaussian",
            label=label,
            unit="record",
            relation="replace-one",
            trust="central",
            sensitivity=Sensitivity(norm="l2", value=total, derivation="x and y clipped to public norms"),
            noise={"law": "none" if clear else "gaussian", "scale": scale},
            loss=GaussianLoss(self.mu),
            source="none" if clear else self.source.name,
            secure=not clear and self.source.secure,
            assumptions=("the number of records is public (replace-one)", "the support is given"),
        )
        return (values if clear else self.source.perturb(values, scale)), scale, entry


def _clipped(
    y: ArrayLike, X: Any, support: ArrayLike, radius: float, bound: float
) -> tuple[Floats, Floats, Integers, int]:
    """Return the clipped response and features on the support, the support, and the number of columns."""
    response = check_array(y, "y", ndim=1)
    given = np.asarray(X)
    chosen = np.atleast_1d(np.asarray(support))
    if given.ndim != 2 or len(given) != len(response):
        raise ArgumentError(f"X must have one row for each of the {len(response)} entries of y")
    p = given.shape[1]
    inside = chosen.dtype.kind in "iu" and ((chosen >= 0) & (chosen < p)).all()
    if not inside or len(np.unique(chosen)) < len(chosen):
        raise ArgumentError(f"support must hold different whole numbers from 0 to {p - 1}")
    features = check_array(given[:, chosen], "X", ndim=2)
    norms = np.sqrt(np.einsum("ij,ij->i", features, features))
    features = features * np.minimum(1.0, radius / np.maximum(norms, radius))[:, None]
    return np.clip(response, -bound, bound), features, chosen.astype(np.int64), p
