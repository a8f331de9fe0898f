"""Lower bounds on epsilon and mu from how well a score tells two worlds apart."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import betaincinv, ndtri

from privinf.errors import ArgumentError
from privinf.typing import Floats, Integers
from privinf.validation import check_fraction, check_number

CANDIDATES = 400  # thresholds that are tried on the first half
# Scores are rounded to this many decimals: the low bits of a float score depend on the world (Mironov 2012)
# and would be taken for a loss of the mechanism; the precision attack looks at them on its own.
DECIMALS = 9


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
    n0, n1 = len(null), len(alternative)
    false_positives = n0 - np.searchsorted(null, thresholds, side="right")
    true_positives = n1 - np.searchsorted(alternative, thresholds, side="right")
    fpr_high = binomial_bounds(false_positives, n0, error)[1]
    tpr_low = binomial_bounds(true_positives, n1, error)[0]
    tnr_low, fnr_high = 1.0 - fpr_high, 1.0 - tpr_low
    with np.errstate(divide="ignore", invalid="ignore"):
        forward = np.log(np.maximum(tpr_low - delta, 0.0) / fpr_high)
        backward = np.log(np.maximum(tnr_low - delta, 0.0) / fnr_high)
        mu = ndtri(tnr_low) - ndtri(fnr_high)
    epsilon = np.maximum(np.nan_to_num(forward, nan=-np.inf), np.nan_to_num(backward, nan=-np.inf))
    return epsilon, np.nan_to_num(mu, nan=-np.inf)
