r"""What privacy adds to a record's gradient, and what one pass of SGD then reaches (paper 4, section 5).

Theorems 5.3 and 5.5, for losses of the margin ``z = y theta'x``, y = -1 or 1: quadratic ``(z - 1)^2/2`` and
exponential ``e^-z``. ``kappa = e^eps_y/(e^eps_y - 1)^2`` is what randomized response costs (lemma D.3).
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from privinf.errors import ArgumentError
from privinf.typing import Floats
from privinf.validation import check_choice, check_count, check_number, check_positive
from studies.theory.noisy_risk import checked_records
from studies.transforms.variances import bernoulli_variance

InvertibleLoss = Literal["quadratic", "exponential"]
Theorem = Literal["5.3", "5.5"]


def gradient_variance(
    theta: ArrayLike,
    X: ArrayLike,
    y: ArrayLike,
    *,
    loss: InvertibleLoss,
    noise: ArrayLike,
    epsilon_y: float = math.inf,
) -> Floats:
    r"""Return the variance that privacy gives the corrected gradient of each record, exactly.

    Parameters
    ----------
    theta : (p,) array
    X : (n, p) array
        Clean features.
    y : (n,) array
        Clean labels, -1 or 1.
    loss : {"quadratic", "exponential"}
        The losses whose transform has an inverse.
    noise : (p,) array
        Variances of the Gaussian noise.
    epsilon_y : float, default infinity

    Returns
    -------
    (n,) array: ``E||g(x~, y~) - grad f||^2``, the left side of theorem 5.3.

    Raises
    ------
    ArgumentError
        For shapes that do not match, other labels than -1 and 1, a negative variance or another loss.

    Notes
    -----
    The law of total variance with lemma D.3 gives ``V + kappa E||g_1(x~) - g_-1(x~)||^2``, g_y the gradient
    at a clear label y and V its variance. With T = tr S, t = S theta, eta = theta'x, r = eta - y:

    ===========  =======================================================================================
    quadratic    ``V = s||x||^2 + T r^2 + 2 r x't + s T + ||t||^2``; difference ``4 (||x||^2 + T)``
    exponential  ``V = m_y - e^(-2 y eta) ||x||^2``, ``m_y = e^(s - 2 y eta) (||y x - t||^2 + T)``;
                 difference ``m_1 + m_-1 + 2 e^-s (||x||^2 + T - ||t||^2)``
    ===========  =======================================================================================

    by Gaussian moments up to order 4, and by tilting the Gaussian density.

    **Privacy.** Reads clean records: for studies, not for release.

    References
    ----------
    Paper 4, appendix D.4, whose integral these are.

    Examples
    --------
    >>> gradient_variance([1.0], [[1.0]], [1.0], loss="quadratic", noise=[0.5])
    array([1.])
    """
    check_choice(loss, InvertibleLoss, "loss")
    direction, rows, labels, variances = checked_records(theta, X, y, noise)
    t = variances * direction
    total = float(variances.sum())
    eta = rows @ direction
    s = float(direction @ t)
    square = (rows**2).sum(axis=1)
    shift = float(t @ t)
    if loss == "quadratic":
        r = eta - labels
        own = s * square + total * r**2 + 2.0 * r * (rows @ t) + s * total + shift
        apart = 4.0 * (square + total)
    else:
        moments = {
            level: np.exp(s - 2.0 * level * eta) * (square - 2.0 * level * (rows @ t) + shift + total)
            for level in (-1.0, 1.0)
        }
        own = np.where(labels > 0.0, moments[1.0], moments[-1.0]) - np.exp(-2.0 * labels * eta) * square
        apart = moments[1.0] + moments[-1.0] + 2.0 * math.exp(-s) * (square + total - shift)
    return np.asarray(own + bernoulli_variance(1.0, epsilon_y) * apart, dtype=np.float64)


def largest_gradient_variance(
    *,
    loss: InvertibleLoss,
    theta_radius: float,
    feature_norm: float,
    dimension: int,
    noise_variance: float,
    epsilon_y: float = math.inf,
) -> float:
    r"""Return the least upper bound of `gradient_variance` over balls of records and coefficients.

    Parameters
    ----------
    loss : {"quadratic", "exponential"}
    theta_radius, feature_norm : float
        B and R: bounds of ||theta|| and ||x||.
    dimension : int
        p.
    noise_variance : float
        sigma^2, the same for every feature.
    epsilon_y : float, default infinity

    Returns
    -------
    float, attained at ``theta'x = -y R B``.

    Raises
    ------
    ArgumentError
        A number is out of its range.

    Notes
    -----
    Both forms of `gradient_variance` increase in ||x||, in ||theta|| and in ``-y theta'x`` (S = sigma^2 I),
    and those three have their largest values together. It stands in for the bound of theorem 5.3, which is
    too small: see `printed_variance_bound`.

    **Privacy.** Reads no data.

    Examples
    --------
    >>> of = {"theta_radius": 1.0, "feature_norm": 1.0, "dimension": 2, "noise_variance": 1.0}
    >>> largest_gradient_variance(loss="quadratic", **of)
    16.0
    """
    axis = np.eye(1, check_count(dimension, "dimension"))
    theta = check_positive(theta_radius, "theta_radius") * axis[0]
    worst = -check_positive(feature_norm, "feature_norm") * axis
    noise = np.full(dimension, check_number(noise_variance, "noise_variance", low=0.0))
    return float(gradient_variance(theta, worst, [1.0], loss=loss, noise=noise, epsilon_y=epsilon_y)[0])


def gradient_constant(
    *, loss: InvertibleLoss, theta_radius: float, feature_norm: float, dimension: int
) -> float:
    r"""Return the constant C of theorem 5.3, equation (8), on balls.

    Parameters
    ----------
    loss : {"quadratic", "exponential"}
    theta_radius, feature_norm : float
        B and R: bounds of ||theta|| and ||x||.
    dimension : int
        p.

    Returns
    -------
    float: the larger of the suprema of the gradient's norm and of the Frobenius norm of the transformed
    mixed derivative, equation (17).

    Raises
    ------
    ArgumentError
        A number is out of its range.

    Notes
    -----
    Quadratic: ``R (R B + 1)`` and ``sqrt(R^2 B^2 + 2 R B (R B + 1) + p (R B + 1)^2)``. Exponential:
    ``R e^(R B)`` and ``e^(R B) sqrt(p - 1 + (1 + R B)^2)``, attained at noise 0, since with w = -y theta'x
    and t = s ||theta||^2 its square is ``e^(2 w - t) [p - 1 + ||x||^2 ||theta||^2 - w^2 + (1 + w - t)^2]``.
    Neither depends on sigma; the order e^(eps_x^2) that the paper gives for the second is larger.

    **Privacy.** Reads no data.

    Examples
    --------
    >>> round(gradient_constant(loss="exponential", theta_radius=1.0, feature_norm=1.0, dimension=2), 4)
    6.0783
    """
    check_choice(loss, InvertibleLoss, "loss")
    reach = check_positive(theta_radius, "theta_radius") * check_positive(feature_norm, "feature_norm")
    p = check_count(dimension, "dimension")
    if loss == "quadratic":
        mixed = math.sqrt(reach**2 + 2.0 * reach * (reach + 1.0) + p * (reach + 1.0) ** 2)
        return max(feature_norm * (reach + 1.0), mixed)
    return math.exp(reach) * max(feature_norm, math.sqrt(p - 1.0 + (1.0 + reach) ** 2))


def printed_variance_bound(
    constant: float, *, noise_variance: float, epsilon_y: float = math.inf, theorem: Theorem = "5.3"
) -> float:
    r"""Return what the paper prints as a bound of the gradient's variance: it is **not** one.

    Parameters
    ----------
    constant : float
        C, see `gradient_constant`.
    noise_variance : float
        sigma^2.
    epsilon_y : float, default infinity
    theorem : {"5.3", "5.5"}
        The factor of the one or of the other.

    Returns
    -------
    float: ``C^2 (sigma^2 + 4 kappa (1 + sigma^2))`` (5.3), or ``C^2 kappa sigma^2`` (5.5, which says
    ``kappa log(1.25/delta)/eps_x^2`` up to a factor that it does not state).

    Raises
    ------
    ArgumentError
        A number is out of its range, or the theorem is another.

    Notes
    -----
    The proof of 5.3 bounds the mixed derivative at x + w by its largest value over the set of *clean* x; w is
    Gaussian and leaves that set. So with clear labels and the quadratic loss the variance of the worst record
    exceeds the printed bound by ``sigma^4 (p + 1) B^2`` for every sigma (where C is the mixed derivative's);
    see `largest_gradient_variance`.
    Theorem 5.5 multiplies where 5.3 adds: with clear labels its term is 0, which no estimate from noisy
    features can have.

    **Privacy.** Reads no data.

    Examples
    --------
    >>> [printed_variance_bound(2.0, noise_variance=1.0, theorem=name) for name in ("5.3", "5.5")]
    [4.0, 0.0]
    """
    check_choice(theorem, Theorem, "theorem")
    check_positive(constant, "constant")
    check_number(noise_variance, "noise_variance", low=0.0)
    kappa = bernoulli_variance(1.0, epsilon_y)
    factor = kappa * noise_variance
    if theorem == "5.3":
        factor = noise_variance + 4.0 * kappa * (1.0 + noise_variance)
    return constant**2 * factor


def sgd_error_bound(
    n: int, *, step: float, convexity: float, smoothness: float, distance: float, variance: float
) -> float:
    r"""Return the bound on ``E||theta_n - theta*||^2`` of one pass of constant steps (theorem 5.5).

    Parameters
    ----------
    n : int
        Steps: records, or batches.
    step : float
        gamma, at most ``1/(2 K)``.
    convexity, smoothness : float
        mu and K of the risk.
    distance : float
        ``||theta_0 - theta*||``; theta* lies inside the ball.
    variance : float
        A: a bound of ``E||g - grad R||^2`` over the ball: what privacy adds (`largest_gradient_variance`)
        **and** the variance of the clean gradient from record to record, which the paper leaves out.

    Returns
    -------
    float: ``(1 - gamma mu)^n D^2 + gamma A/mu``.

    Raises
    ------
    ArgumentError
        A number is out of its range, or the step is too large.

    Notes
    -----
    Appendix D.8, equations (20) to (22), with A where the paper has a bound that is none
    (`printed_variance_bound`). With gamma = log(max(2, mu^2 D^2 n/A))/(mu n) (`privinf.iwp.sgd.theory_step`)
    it falls like log(n)/n.

    **Privacy.** Reads no data.

    Examples
    --------
    >>> round(sgd_error_bound(1000, step=0.01, convexity=1.0, smoothness=1.0, distance=1.0, variance=2.0), 6)
    0.020043
    """
    check_positive(smoothness, "smoothness")
    if check_positive(step, "step") > 0.5 / smoothness:
        raise ArgumentError(f"step={step:g} must be at most 1/(2 smoothness) = {0.5 / smoothness:g}")
    if check_positive(convexity, "convexity") > smoothness:
        raise ArgumentError("convexity must not be above smoothness")
    left = math.exp(check_count(n, "n") * math.log1p(-step * convexity))
    start = left * check_number(distance, "distance", low=0.0) ** 2
    return start + step * check_number(variance, "variance", low=0.0) / convexity
