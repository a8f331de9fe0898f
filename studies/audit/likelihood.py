"""Likelihood-ratio audits of a mechanism on one pair of neighbours: lower bounds on epsilon and mu."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import betaincinv, logsumexp, ndtri

from privinf.accounting import GaussianLoss, PureLoss, Total, compose
from privinf.errors import ArgumentError, NotAvailableError
from privinf.typing import Floats, Integers, RngLike
from privinf.validation import as_generator, check_count, check_fraction, check_number, check_positive

CANDIDATES = 400  # thresholds that are tried on the first half
# Scores are rounded to this many decimals: the low bits of a float score depend on the world (Mironov 2012)
# and would be taken for a loss of the mechanism; the precision attack looks at them on its own.
DECIMALS = 9
SIGHT = 0.85  # an audit that proves less than this share of the exact loss is blind
PHASES = 96
Draw = Callable[[int, int, np.random.Generator], Any]
LogRatio = Callable[[Any], Floats]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditResult:
    """Verdict of one audit.

    Attributes
    ----------
    name : str
    draws : int
        Draws a world.
    epsilon_lower, mu_lower : float
        Proved lower bounds on the loss, each at 99.9% confidence.
    epsilon_claim, mu_claim : float
        What the mechanism claims: epsilon at `delta`; mu (infinite where the claim has none).
    delta : float
    exact_epsilon, exact_mu : float or None
        Exact loss of the mechanism on this pair, in the currency in which its sight is judged.
    exceeded : bool
        A lower bound is above its claim: the mechanism is not as private as it says.
    blind : bool
        The bound is below 0.85 of the exact loss: the audit, or the mechanism, is not what was thought.
    reason : str
    """

    name: str
    draws: int
    epsilon_lower: float
    mu_lower: float
    epsilon_claim: float
    mu_claim: float
    delta: float
    exact_epsilon: float | None
    exact_mu: float | None
    exceeded: bool
    blind: bool
    reason: str

    @property
    def passed(self) -> bool:
        """Neither above the claim nor blind."""
        return not (self.exceeded or self.blind)

    def __str__(self) -> str:
        return f"{self.name or 'audit'}: {'passed' if self.passed else 'FAILED'} ({self.reason})"


def audit_mechanism(
    draw: Draw,
    log_ratio: LogRatio,
    *,
    draws: int,
    rng: RngLike,
    claim: Total | None = None,
    mu: float | None = None,
    epsilon: float | None = None,
    delta: float = 0.0,
    exact_mu: float | None = None,
    exact_epsilon: float | None = None,
    confidence: float = 0.999,
    name: str = "",
) -> AuditResult:
    """Draw a mechanism in two neighbouring worlds and bound its loss from below.

    Parameters
    ----------
    draw : callable (world, count, rng) -> outputs
        `count` independent outputs in world 0 or 1, along the first axis.
    log_ratio : callable outputs -> ndarray, shape (count,)
        log p1/p0 of each output. Any other score gives a valid, weaker bound.
    draws : int
        Outputs a world.
    rng : int or Generator
        Handed to `draw`; mechanisms with secure noise do not use it.
    claim : Total, optional
        The claim; or name one of `mu` and `epsilon` (pure, or with `delta`).
    delta : float
        Where epsilon is compared; with a Gaussian claim it must be positive for epsilon to say anything.
    exact_mu, exact_epsilon : float, optional
        Exact loss on this pair; the audit is blind if it proves less than 0.85 of it.

    Raises
    ------
    ArgumentError
        There is no claim, or more than one.

    Notes
    -----
    **Privacy.** A test tool: it draws the mechanism many times on made-up records.

    Examples
    --------
    >>> def draw(world, count, rng):
    ...     return rng.normal(world * 1.0, 1.0, count)
    >>> audit_mechanism(draw, lambda x: x - 0.5, draws=50_000, rng=0, mu=1.0, exact_mu=1.0).passed
    True
    >>> audit_mechanism(draw, lambda x: x - 0.5, draws=50_000, rng=0, mu=0.5).passed
    False
    """
    epsilon_claim, mu_claim = _claims(claim, mu, epsilon, delta)
    count = check_count(draws, "draws", least=8)
    generator = as_generator(rng)
    scores = [np.asarray(log_ratio(draw(world, count, generator)), dtype=np.float64) for world in (0, 1)]
    if any(len(one) != count for one in scores):
        raise ArgumentError(f"draw and log_ratio must give {count} scores")
    proved = lower_bounds(scores[0], scores[1], delta=delta, confidence=confidence)
    exceeded, blind, reason = _verdict(proved, (epsilon_claim, mu_claim), (exact_epsilon, exact_mu))
    return AuditResult(
        name=name,
        draws=count,
        epsilon_lower=proved.epsilon,
        mu_lower=proved.mu,
        epsilon_claim=epsilon_claim,
        mu_claim=mu_claim,
        delta=delta,
        exact_epsilon=exact_epsilon,
        exact_mu=exact_mu,
        exceeded=exceeded,
        blind=blind,
        reason=reason,
    )


def _claims(
    claim: Total | None, mu: float | None, epsilon: float | None, delta: float
) -> tuple[float, float]:
    """Return the claimed epsilon at `delta` and the claimed mu; infinite where there is none."""
    check_number(delta, "delta", low=0.0, high=1.0, open_high=True)
    if sum(given is not None for given in (claim, mu, epsilon)) != 1:
        raise ArgumentError("name one claim: claim=, mu= or epsilon=")
    if epsilon is not None and delta > 0.0:
        return check_positive(epsilon, "epsilon"), math.inf
    if claim is None:
        claim = compose([PureLoss(check_positive(epsilon, "epsilon"))] if mu is None else [GaussianLoss(mu)])
    try:
        mu_claim = claim.mu
    except NotAvailableError:
        mu_claim = math.inf
    if delta > 0.0:
        return claim.epsilon(delta), mu_claim
    pure = claim.mu2 == 0.0 and not claim.approximate and claim.concentrated == 0.0
    return (math.fsum(claim.pure) if pure else math.inf), mu_claim


def _verdict(
    proved: TradeoffBounds, claims: tuple[float, float], exact_losses: tuple[float | None, float | None]
) -> tuple[bool, bool, str]:
    """Return exceeded, blind and the reason; claims and exact losses are of epsilon and of mu."""
    bounds = {"epsilon": proved.epsilon, "mu": proved.mu}
    for (word, bound), claimed in zip(bounds.items(), claims, strict=True):
        if bound > claimed:
            return True, False, f"{word} is at least {bound:.4g}, the claim is {claimed:.4g}"
    for (word, bound), exact in zip(bounds.items(), exact_losses, strict=True):
        if exact is not None and bound < SIGHT * exact:
            return False, True, f"blind: proves {word} {bound:.4g} where the exact loss is {exact:.4g}"
    return False, False, f"epsilon at least {proved.epsilon:.4g}, mu at least {proved.mu:.4g}"


def gaussian_log_ratio(outputs: Floats, mean0: Floats, mean1: Floats, scale: float) -> Floats:
    """Return log p1/p0 of outputs (count, ...) that are one of two means plus N(0, scale^2) on each entry."""
    flat = np.asarray(outputs, dtype=np.float64).reshape(len(outputs), -1)
    low, high = np.ravel(mean0), np.ravel(mean1)
    return np.asarray((flat - 0.5 * (low + high)) @ ((high - low) / scale**2), dtype=np.float64)


def wave_log_density(values: Floats, amplitude: float, scale: float) -> Floats:
    """Return the log-density of amplitude cos(U) + N(0, scale^2), U uniform on the circle.

    Its characteristic function is J0(amplitude t) exp(-scale^2 t^2 / 2); the cosine is integrated out by
    the midpoint rule on the half circle, which converges exponentially.
    """
    nodes = amplitude * np.cos((np.arange(PHASES) + 0.5) * (np.pi / PHASES))
    log_kernel = -0.5 * ((np.asarray(values)[..., None] - nodes) / scale) ** 2
    constant = math.log(PHASES * scale * math.sqrt(2.0 * math.pi))
    return np.asarray(logsumexp(log_kernel, axis=-1) - constant, dtype=np.float64)


def tradeoff_mu(log_p0: Floats, log_p1: Floats, weights: Floats, *, least: float = 0.01) -> float:
    """Return the largest z(1 - FPR) - z(FNR) of likelihood-ratio tests with both error rates >= `least`.

    Parameters
    ----------
    log_p0, log_p1 : ndarray, shape (points,)
        Log-densities on a quadrature grid (or log-probabilities of atoms).
    weights : ndarray, shape (points,)
        Quadrature weights (ones for atoms).
    """
    order = np.argsort(log_p1 - log_p0)[::-1]
    fpr = np.cumsum((np.exp(log_p0) * weights)[order])
    fnr = 1.0 - np.cumsum((np.exp(log_p1) * weights)[order])
    inside = (fpr >= least) & (fpr <= 1.0 - least) & (fnr >= least) & (fnr <= 1.0 - least)
    if not inside.any():
        raise ArgumentError("no test has both error rates so large: lower `least`")
    return float((-ndtri(fpr[inside]) - ndtri(fnr[inside])).max())


@dataclass(frozen=True, slots=True)
class TradeoffBounds:
    """What the draws prove at the stated confidence, each of the two on its own.

    Attributes
    ----------
    epsilon : float
        max(log((TPR_lo - delta) / FPR_hi), log((TNR_lo - delta) / FNR_hi)), at least 0.
    mu : float
        z(1 - FPR_hi) - z(FNR_hi), at least 0.
    """

    epsilon: float
    mu: float


def binomial_bounds(hits: Integers, trials: int, error: float) -> tuple[Floats, Floats]:
    """Return one-sided Clopper-Pearson bounds (low, high), each wrong with probability at most `error`."""
    error = check_fraction(error, "error")
    k = np.asarray(hits, dtype=np.float64)
    low = np.where(k > 0, betaincinv(np.maximum(k, 1.0), trials - k + 1.0, error), 0.0)
    high = np.where(k < trials, betaincinv(k + 1.0, np.maximum(trials - k, 1.0), 1.0 - error), 1.0)
    return low, high


def lower_bounds(
    null: Floats, alternative: Floats, *, delta: float = 0.0, confidence: float = 0.999
) -> TradeoffBounds:
    """Return lower bounds on epsilon(`delta`) and mu from scores drawn in two neighbouring worlds.

    Parameters
    ----------
    null, alternative : ndarray, shapes (n0,) and (n1,)
        Scores; larger ones speak for the alternative. Independent draws.
    delta : float in [0, 1)
    confidence : float
        Each bound holds with at least this probability.

    Raises
    ------
    ArgumentError
        Fewer than four scores a world, or nan among them.

    Notes
    -----
    The threshold is chosen on the first half of the draws and measured on the second, so that the choice
    costs no confidence. The two error rates share ``1 - confidence``.
    """
    delta = check_number(delta, "delta", low=0.0, high=1.0, open_high=True)
    error = (1.0 - check_fraction(confidence, "confidence")) / 2.0
    worlds = [
        np.round(np.asarray(scores, dtype=np.float64).ravel(), DECIMALS) for scores in (null, alternative)
    ]
    if min(map(len, worlds)) < 4 or any(np.isnan(scores).any() for scores in worlds):
        raise ArgumentError("scores must be at least four numbers a world, none of them nan")
    first = [scores[: len(scores) // 2] for scores in worlds]
    second = [scores[len(scores) // 2 :] for scores in worlds]
    thresholds = _candidates(np.concatenate(first))
    # A far stricter level for the choice keeps it away from the tails, where luck looks like loss.
    tried_epsilon, tried_mu = _measured(first, thresholds, delta, 1e-3 * error)
    chosen = thresholds[[int(np.argmax(tried_epsilon)), int(np.argmax(tried_mu))]]
    epsilon, mu = _measured(second, chosen, delta, error)
    return TradeoffBounds(max(float(epsilon[0]), 0.0), max(float(mu[1]), 0.0))


def _candidates(scores: Floats) -> Floats:
    """Return thresholds between distinct scores: all of them if they are few, else quantiles."""
    levels = np.unique(scores)
    if len(levels) > CANDIDATES:
        ends = np.geomspace(1.0 / len(scores), 0.5, CANDIDATES // 2)
        chosen = np.quantile(scores, np.unique(np.concatenate([ends, 1.0 - ends])))
        return np.asarray(np.unique(chosen) + 0.5 * 10.0**-DECIMALS)
    if len(levels) == 1:
        return np.asarray(levels - 0.5)
    return np.asarray(0.5 * (levels[1:] + levels[:-1]))


def _measured(worlds: list[Floats], thresholds: Floats, delta: float, error: float) -> tuple[Floats, Floats]:
    """Return the bounds on epsilon and on mu that each threshold proves."""
    null, alternative = (np.sort(scores) for scores in worlds)
    n0 = len(null)
    n1 = len(alternative)
    false_positives = n0 - np.searchsorted(null, thresholds, side="right")
    true_positives = n1 - np.searchsorted(alternative, thresholds, side="right")
    fpr_high = binomial_bounds(false_positives, n0, error)[1]
    tpr_low = binomial_bounds(true_positives, n1, error)[0]
    tnr_low = 1.0 - fpr_high
    fnr_high = 1.0 - tpr_low
    with np.errstate(divide="ignore", invalid="ignore"):
        forward = np.log(np.maximum(tpr_low - delta, 0.0) / fpr_high)
        backward = np.log(np.maximum(tnr_low - delta, 0.0) / fnr_high)
        mu = ndtri(tnr_low) - ndtri(fnr_high)
    epsilon = np.maximum(np.nan_to_num(forward, nan=-np.inf), np.nan_to_num(backward, nan=-np.inf))
    return epsilon, np.nan_to_num(mu, nan=-np.inf)
