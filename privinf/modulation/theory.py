r"""Variance, convergence and reconstruction formulas of the modulated release (paper 1, sections 6 to 9).

All in scaled units. S is the covariance of the noise in the rescaled features u = g/(1-alpha) - x,

.. math:: S = \Big(\sigma^2 I + \frac{\lambda^2}{2m} P_V\Big) / (1-\alpha)^2 .
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from privinf.errors import ArgumentError
from privinf.typing import Floats
from privinf.validation import check_array, check_choice, check_count, check_number, check_positive

Phase = Literal["known", "unknown"]


def modulation_noise_cov(directions: Floats, *, scale: float, contraction: float, amplitude: float) -> Floats:
    """Return S, shape (d, d), for orthonormal rows `directions` (m, d)."""
    count, dimension = directions.shape
    wave = amplitude**2 / (2.0 * count) * (directions.T @ directions)
    return np.asarray((scale**2 * np.eye(dimension) + wave) / (1.0 - contraction) ** 2, dtype=np.float64)


def modulation_cumulants(directions: Floats, *, contraction: float, amplitude: float) -> Floats:
    """Return the fourth cumulant (m,) of the noise along each direction: a cos U has -(3/8) a^4."""
    count = len(directions)
    peak = amplitude / (math.sqrt(count) * (1.0 - contraction))
    return np.full(count, -0.375 * peak**4)


def gradient_variance(
    beta: Floats,
    *,
    second_moment: Floats,
    residual_cross: Floats,
    residual_variance: float,
    noise_cov: Floats,
    directions: Floats,
    cumulants: Floats,
    nobs: int,
    response_noise: float = 0.0,
) -> float:
    r"""Return E||G - grad L||^2, the variance of the corrected gradient given the data (Theorem 8.1).

    Parameters
    ----------
    beta : ndarray, shape (p,)
    second_moment : ndarray, shape (p, p)
        Sigma_x = mean x x' of the clean features.
    residual_cross : ndarray, shape (p,)
        Sigma_rx = mean x r, with r = x'beta - y.
    residual_variance : float
        S_r^2 = mean r^2 of the clean residuals.
    noise_cov : ndarray, shape (p, p)
        S; rows and columns of public features are zero.
    directions, cumulants : ndarrays, shapes (k, p) and (k,)
        Directions of the non-Gaussian part of the noise and its fourth cumulants.
    nobs : int
        K, the number of clients.
    response_noise : float
        Variance of the noise added to the response.

    Notes
    -----
    K times the variance is, with q = b'Sb,

    .. math:: S_r^2 tr S + q\, tr \Sigma_x + 2 b'S\Sigma_{rx} + q\, tr S + b'S^2 b
              + \sum_j k_j (v_j'b)^2 + \sigma_y^2 tr(\Sigma_x + S).

    Equation (25) of the paper is the case of V orthogonal to beta (the cumulants drop out) and of an
    unprotected response, for every m. For another V it is not a variance: with lambda 1.2, sigma 0.5 and
    alpha 0.4 the simulated variance is 1.6 to 1.8 times (25), and agrees with this form.
    """
    trace = float(np.trace(noise_cov))
    q = float(beta @ noise_cov @ beta)
    total = (
        residual_variance * trace
        + q * float(np.trace(second_moment))
        + 2.0 * float(beta @ noise_cov @ residual_cross)
        + q * trace
        + float(beta @ noise_cov @ noise_cov @ beta)
        + float(cumulants @ (directions @ beta) ** 2)
        + response_noise * (float(np.trace(second_moment)) + trace)
    )
    return total / nobs


def variance_bound(
    *,
    beta_norm: float,
    feature_norm: float,
    response_norm: float,
    scale: float,
    contraction: float,
    amplitude: float,
    dimension: int,
    nobs: int,
    directions: int = 1,
    alignment: float = 1.0,
    response_noise: float = 0.0,
) -> float:
    r"""Return the largest variance of the corrected gradient over bounded records (Corollary 9.1).

    Parameters
    ----------
    beta_norm, feature_norm, response_norm : float
        B, R and M: bounds of ||beta||, ||x|| and \|y\|.
    scale : float
        sigma, sd of the Gaussian noise of a message.
    contraction, amplitude : float
        alpha and lambda.
    dimension, nobs, directions : int
        d, K and m.
    alignment : float in [0, 1]
        c: largest share of ||beta||^2 in the span of V. 1 for any V; 0 for V orthogonal to beta, as in the
        iterative protocol.
    response_noise : float
        Variance tau^2 of the noise added to the response; 0 for one sent without protection.

    Notes
    -----
    With s_0 = sigma^2/(1-alpha)^2 and a^2 = lambda^2/(m (1-alpha)^2) the noise S of `gradient_variance` has
    trace ``T = d s_0 + m a^2/2`` and the eigenvalues ``s_1 = s_0 + a^2/2`` along V and s_0 elsewhere. Hence
    b'Sb <= B^2 q and ||Sb|| <= B s with ``q = s_0 + c a^2/2`` and ``s^2 = c s_1^2 + (1-c) s_0^2``; with
    \|r\| <= RB + M no term is larger than in

    .. math:: K \bar\sigma_g^2 = (RB + M)^2 T + 2 (RB + M) RB\, s + R^2 B^2 q
              + B^2 \left(q T + s^2 - \tfrac38 c a^4\right) + \tau^2 (R^2 + T),

    which grows with c, as q T + s^2 does by more than (3/8) a^4 c, the fourth cumulant's part. Records
    ``x_i = R beta/||beta||``, ``y_i = -M`` attain it for c = 0 and c = 1: no bound in these
    numbers is smaller. For c = 0 and tau = 0 it is the paper's. With c = 1 the mean of a client's messages
    over rounds, of weights that sum to one, stays below the bound of its noisiest round.

    **Privacy.** Public numbers only.
    """
    check_number(alignment, "alignment", low=0.0, high=1.0)
    keep = 1.0 - contraction
    quiet = (scale / keep) ** 2
    peak = amplitude**2 / (directions * keep**2)
    trace = dimension * quiet + (amplitude / keep) ** 2 / 2.0
    q = quiet + alignment * peak / 2.0
    pushed2 = quiet**2 + alignment * peak * (quiet + peak / 4.0)
    largest_product = feature_norm * beta_norm + response_norm
    pull = feature_norm * beta_norm
    first = largest_product**2 * trace + 2.0 * largest_product * pull * math.sqrt(pushed2) + pull**2 * q
    second = beta_norm**2 * (q * trace + pushed2 - 0.375 * alignment * peak**2)
    return (first + second + response_noise * (feature_norm**2 + trace)) / nobs


def expected_expansion(
    difference: Floats, directions: Floats, *, contraction: float, amplitude: float, frequency: float
) -> float:
    r"""Return E||g(x) - g(x')||^2 of two messages without noise that share their phases (Lemma D.3).

    Parameters
    ----------
    difference : ndarray, shape (d,)
        h = x - x'.
    directions : ndarray, shape (m, d)
        Orthonormal rows v_j; the paper has m = 1.
    contraction, amplitude, frequency : float
        alpha, lambda and omega.

    Notes
    -----
    ``(1-alpha)^2 ||h||^2 + (2 lambda^2/m) sum_j sin^2(omega <h, v_j>/2)``.

    **Privacy.** This is not a privacy bound. Clients draw their own phases, and with new phases the second
    term is noise whose distribution does not depend on h.
    """
    waves = np.sin(0.5 * frequency * (directions @ difference)) ** 2
    return float(
        (1.0 - contraction) ** 2 * (difference @ difference)
        + 2.0 * amplitude**2 / len(directions) * waves.sum()
    )


def convergence_bound(*, smoothness: float, distance: float, rounds: int, variance: float) -> float:
    """Return the bound on the excess risk of the averaged iterate, Theorem 9.2 corrected.

    ``L D^2 / (2 T) + variance / (2 L)`` with L = lambda_max(Sigma_x) (`smoothness`), D = ||b_0 - b*||
    (`distance`), for least squares given the data and b* inside the ball. `variance` already contains
    1/K; the paper divides by K again.
    """
    check_positive(smoothness, "smoothness")
    check_count(rounds, "rounds")
    return smoothness * distance**2 / (2.0 * rounds) + variance / (2.0 * smoothness)


def wave_information(amplitude: float, scale: float) -> float:
    """Return the Fisher information on location of ``amplitude * cos U + N(0, scale^2)``, U uniform."""
    check_positive(scale, "scale")
    nodes = 256 + int(32.0 * amplitude / scale)
    angles = math.pi * (np.arange(nodes) + 0.5) / nodes
    centers = amplitude * np.cos(angles)
    z = np.linspace(-amplitude - 9.0 * scale, amplitude + 9.0 * scale, 64 * (18 + int(2 * amplitude / scale)))
    density = np.zeros_like(z)
    slope = np.zeros_like(z)
    for center in centers:
        t = (z - center) / scale
        kernel = np.exp(-0.5 * t * t) / (math.sqrt(2.0 * math.pi) * scale * nodes)
        density += kernel
        slope -= t / scale * kernel
    return float(np.trapezoid(slope**2 / np.maximum(density, 1e-300), z))


def reconstruction_bound(
    *,
    dimension: int,
    scales: ArrayLike,
    contraction: float,
    amplitude: float,
    frequency: float,
    directions: int,
    phase: Phase = "unknown",
    angles: ArrayLike | None = None,
    beta_norm: float = 0.0,
    error_variance: float | None = None,
) -> float:
    r"""Return a lower bound on the mean squared error per coordinate of any unbiased attack on x.

    Parameters
    ----------
    scales : sequence of float
        sigma of each round: information adds over rounds.
    phase : {"unknown", "known"}
        "known": for an attacker who knows phi, the paper's Theorem 6.3; "unknown": phi is uniform and
        unknown, the information of one message is ``(1-alpha)^2 [(I - P_V)/sigma^2 + J P_V]`` with J from
        `wave_information`.
    angles : array_like, shape (rounds, directions), optional
        ``theta_tj = omega <x, v_tj> + phi_tj`` of the attacked record, in radians, for ``phase="known"``: the
        bound (18) given these phases. Default: the average of its denominator over phases (Corollary 6.4).
    beta_norm, error_variance : float
        ||beta*|| and the variance of y given x, where the response is sent without protection: adds
        beta beta'/variance to the information.

    Raises
    ------
    ArgumentError
        An argument is out of range, or `angles` are passed for unknown phases or do not have this shape.

    Notes
    -----
    With phi known, the information of one message has the trace
    ``[(1-alpha)^2 d + sum_j c_j]/sigma^2``, where, with ``a = lambda omega/sqrt m``,

    .. math:: c_j = -2 a (1-\alpha) \sin\theta_j + a^2 \sin^2\theta_j ,

    and tr(I^-1) >= d^2/tr(I). Over uniform phases c_j is ``a^2/2`` on average, so the modulation adds Fisher
    information and *lowers* the bound: the remark after the paper's Corollary 6.4 has the sign wrong. With
    phi unknown it removes information along V.
    """
    check_choice(phase, Phase, "phase")
    sigma = check_array(scales, "scales", ndim=1)
    if (sigma <= 0.0).any():
        return 0.0
    keep2 = (1.0 - contraction) ** 2
    response_information = (
        0.0 if error_variance is None else beta_norm**2 / check_positive(error_variance, "error_variance")
    )
    if angles is not None and phase == "unknown":
        raise ArgumentError('angles= are those of known phases: pass phase="known" with them')
    if phase == "known":
        slope = amplitude * frequency / math.sqrt(directions)
        wave: Floats | float = directions * slope**2 / 2.0
        if angles is not None:
            sines = np.sin(check_array(angles, "angles", ndim=2))
            if sines.shape != (len(sigma), directions):
                raise ArgumentError(
                    f"angles= must have the shape ({len(sigma)}, {directions}): a row for each round and a "
                    "column for each direction"
                )
            wave = np.sum(slope * sines * (slope * sines - 2.0 * (1.0 - contraction)), axis=1)
        information = float(np.sum((keep2 * dimension + wave) / sigma**2)) + response_information
        return dimension / information
    if directions > dimension:
        raise ArgumentError(
            f"directions={directions} exceed the {dimension} private column(s): pass at most that number"
        )
    along = sum(keep2 * wave_information(amplitude / math.sqrt(directions), float(s)) for s in sigma)
    across = float(np.sum(keep2 / sigma**2))
    if response_information == 0.0 and len(sigma) == 1:
        return (directions / along + (dimension - directions) / across) / dimension
    # With an unprotected y, or over rounds with other directions: tr(I^-1) >= d^2 / tr(I), as in the paper.
    return dimension / (directions * along + (dimension - directions) * across + response_information)
