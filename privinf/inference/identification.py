"""How well a noisy release identifies the coefficients: a statistic and a threshold for Wald intervals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import linalg

from privinf.inference.linear_scores import LinearScores
from privinf.inference.partialling import partialled

# The threshold is this over sqrt(d): the smallest eigenvalue must exceed about five sds of its own noise.
# Chosen by simulation so that unflagged 95% Wald intervals miss at most 7%: see
# benchmarks/results/identification.md, made by benchmarks/calibrate_identification.py.
THRESHOLD = 3.5


@dataclass(frozen=True, slots=True)
class Identification:
    """Strength of identification.

    Attributes
    ----------
    statistic : float
        `smallest_eigenvalue` over `noise_edge`; infinite without noise.
    threshold : float
        Below it Wald intervals should not be trusted.
    weak : bool
    smallest_eigenvalue : float
        Of the corrected Gram matrix of the noisy columns, the others partialled out, in the metric of its
        noise; negative where noise outweighs signal.
    noise_edge : float
        How far pure noise spreads that eigenvalue below zero.
    """

    statistic: float
    threshold: float
    weak: bool
    smallest_eigenvalue: float
    noise_edge: float

    def __str__(self) -> str:
        verdict = "too weak for normal intervals" if self.weak else "strong enough for normal intervals"
        return f"statistic {self.statistic:.3g} (weak below {self.threshold:.3g}): {verdict}"


def identification(system: LinearScores, *, threshold: float | None = None) -> Identification:
    r"""Return the identification statistic of a system.

    Parameters
    ----------
    system : LinearScores
    threshold : float, optional
        Default 3.5 / sqrt(d), d the number of noisy columns.

    Returns
    -------
    Identification

    Notes
    -----
    Corrected least squares: ``lambda_min(S^-1/2 M S^-1/2) - 1`` over ``2 sqrt(d/n)``; pure noise puts the
    numerator near -2 sqrt(d/n) (the lower edge of the Marchenko-Pastur law), not at zero. Noisy moments:
    smallest eigenvalue of A over the spectral edge of its noise, sqrt(2 d) times the sd of a diagonal
    entry. Weak identification is to Wald intervals what weak instruments are to two-stage least squares;
    the score test does not need it. What else intervals assume, such as errors of equal variance, it does not
    see.

    At the default threshold unflagged 95% intervals miss at most 7% in every simulated design in which
    half of the fits or more are unflagged. With d = 1 or 2 no threshold can promise more: the error of the
    smallest eigenvalue is then the error of the coefficient too, so that where nearly all fits are flagged
    the unflagged ones are those that the noise has favoured.

    **Privacy.** Post-processing.

    Examples
    --------
    >>> from privinf.inference.corrected_scores import CorrectedLeastSquares
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-1, 1, (5000, 1))
    >>> noisy = x + 9.0 * rng.standard_normal(x.shape)
    >>> identification(CorrectedLeastSquares(noisy, x[:, 0], [[81.0]])).weak
    True
    """
    noisy = ~system.noise_free
    metric, edge = system.gram_noise()
    limit = float(THRESHOLD / np.sqrt(max(int(noisy.sum()), 1))) if threshold is None else threshold
    if edge == 0.0:
        return Identification(np.inf, limit, False, np.inf, 0.0)
    reduced = partialled(system.A, noisy)
    smallest = float(linalg.eigh(reduced, metric[np.ix_(noisy, noisy)], eigvals_only=True)[0])
    statistic = float(smallest / edge)
    return Identification(statistic, limit, statistic < limit, smallest, float(edge))
