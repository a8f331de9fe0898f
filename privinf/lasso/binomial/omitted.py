r"""Was a column missed by a sparse logistic fit: as in `privinf.lasso.omitted`, with weighted scores.

The candidate l is the column outside the fit's P (selected columns and targets) with the largest noisy
``|sum clip(x_j, B / q) e|``. With z = (1, x_P, x_l) and G~ the noisy mean of c z z', w_l = G~^-1 e_l and
``u = w_l'z / sqrt(w_ll)``, the weighted score has the mean

    E w u e = kappa b_l / sqrt(w_ll),

kappa the slope of weighted scores, and T is its noisy value over its standard error,

    T = s / sqrt( (A2 / n) + t^2 + kappa^2 N_l ),

A2 the weighted score's square at a right mean, t the noise of s, N_l what the noise of G~ does to the errors
of the coefficients on P. If T rejects, l joins P with ``b_l = sqrt(w_ll) s / kappa``, and constant and
the other coefficients move by ``b_l w_l / w_ll``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from privinf.inference.estimate import upper_quantile
from privinf.lasso.binomial.sums import (
    WIDEST,
    Directions,
    LogisticSums,
    Point,
    Spread,
    curvature_bound,
    weights_of,
)
from privinf.lasso.binomial.thresholding import LogisticFit
from privinf.lasso.omitted import (
    CANDIDATE,
    GRAM,
    SELECTION_SHARE,
    SIZE,
    OmittedCandidates,
    critical_value,
    searched,
)
from privinf.lasso.precision import column_noise_variance, floored
from privinf.lasso.radii import residual_moments
from privinf.lasso.selection import DETECTION_PROBABILITY, detection_limit
from privinf.lasso.sums import UNCLIPPED
from privinf.typing import Flags, Floats
from privinf.wire import Labels


def screen_omitted_logistic(
    sums: LogisticSums,
    fit: LogisticFit,
    rho: float,
    scores: float,
    *,
    clip: float,
    keep: bool,
    excluded: Sequence[int],
) -> tuple[LogisticFit, OmittedCandidates | None]:
    """Return a fit with the omitted columns that stand out, and the candidates; None if no column is left.

    Parameters
    ----------
    sums : LogisticSums
    fit : LogisticFit
    rho, scores : float
        Prices of one candidate and of the scores, zCDP. Further candidates are paid from the latter.
    clip : float
        B of the products in multiples of the response's sd.
    keep : bool
        Whether columns that join are among the kept columns.
    excluded : sequence of int
        Columns that may not be candidates, such as one of ones.

    Notes
    -----
    **Privacy.** Spends `rho` for the first candidate and, only where that stands out, for each further one.
    """
    outside = int(_allowed(sums, fit, excluded).sum())
    if not outside:
        return fit, None
    rate = fit.spread.rate
    scales = []
    bound = clip * math.sqrt(rate * (1.0 - rate))

    def test_candidate(fit: LogisticFit) -> tuple[int, float, LogisticFit]:
        selected, scale = sums.select(
            fit.point, bound, 1, _allowed(sums, fit, excluded), SELECTION_SHARE * rho, CANDIDATE
        )
        scales.append(scale)
        return selected[0], *_tested(sums, fit, selected[0], rho, keep)

    wider, candidates = searched(
        fit, test_candidate, outside, 0.0, (rho, 0.0), scores, lambda refitted: refitted
    )
    moments = residual_moments(bound / max(rate, 1.0 - rate))
    peeled = detection_limit(sums.n * fit.spread.curvature, outside, scales[0], *moments)
    need = (critical_value(outside) + upper_quantile(1.0 - DETECTION_PROBABILITY)) * _relative_error(
        sums, fit, rho
    )
    return wider, replace(candidates, detection_limit=max(peeled, need))


def _allowed(sums: LogisticSums, fit: LogisticFit, excluded: Sequence[int]) -> Flags:
    allowed = np.ones(len(sums.sparse.units.scale), dtype=bool)
    allowed[[*fit.point.support, *excluded]] = False
    return allowed


def _relative_error(sums: LogisticSums, fit: LogisticFit, rho: float) -> float:
    """Return the error of one score in units of its error without privacy."""
    price = (1.0 - SELECTION_SHARE - SIZE - GRAM) * rho
    weights = weights_of(fit.spread, 1, sums.n, price)
    noise = 0.0 if math.isinf(rho) else 4.0 * weights.score**2 / (2.0 * price * sums.n)
    return math.sqrt(weights.square + noise) / weights.slope


def _tested(
    sums: LogisticSums, fit: LogisticFit, candidate: int, rho: float, keep: bool
) -> tuple[float, LogisticFit]:
    """Return T of a candidate, and the fit with it: among the kept columns too if `keep`."""
    noiseless = math.isinf(rho)
    score_rho = (1.0 - GRAM - SELECTION_SHARE) * rho
    if candidate not in sums.sparse.units.sized:
        score_rho -= 0.0 if noiseless else SIZE * rho
        sums.sparse.size_columns([candidate], SIZE * rho)
    columns = [*fit.point.support, candidate]
    size = 2 + len(fit.point.support)
    white = np.zeros((size, size))
    white[:-1, :-1] = fit.root
    white[-1, -1] = 1.0 / math.sqrt(fit.spread.curvature)
    top = UNCLIPPED if noiseless else curvature_bound(fit.spread, size, 0.99)
    release = sums.hessian(fit.point, Directions(columns, white), top, GRAM * rho, Labels.GRAM_OF_SUSPECT)
    gram = floored(release.mean)
    inverse = np.asarray(np.linalg.inv(gram))
    column = inverse @ white[-1]  # of v = white'z
    unit = math.sqrt(float(white[-1] @ column))
    weights = weights_of(fit.spread, 1, sums.n, score_rho)
    along = Directions(columns, (white @ column)[:, None] / unit)
    score = sums.score(fit.point, along, weights, score_rho, Labels.SCORE_OF_SUSPECT)
    moved = (fit.efficiency / sums.n + fit.step_sd**2) * np.diag(np.append(np.ones(size - 1), 0.0))
    noise = column_noise_variance(column[:, None], release.sd, np.arange(size), moved)[0] / unit**2
    variance = score.sd**2 + weights.slope**2 * float(noise)
    value = float(score.mean[0])
    error = math.sqrt(weights.square / sums.n + variance)
    direction = white @ column / unit
    wider = _joined(fit, candidate, direction, value / weights.slope, keep)
    return abs(value) / error, replace(wider, step_sd=max(fit.step_sd, math.sqrt(variance) / weights.slope))


def _joined(fit: LogisticFit, column: int, direction: Floats, step: float, keep: bool) -> LogisticFit:
    """Return the fit with one more column, moved by a `step` along ``direction = w_l / sqrt(w_ll)``."""
    at = fit.point
    size = len(direction)
    theta = np.append(at.all_coefficients, 0.0) + step * direction
    root = np.zeros((size, size))
    root[:-1, :-1] = fit.root
    root[:, -1] = direction
    sd = math.hypot(fit.spread.sd, step / math.sqrt(fit.spread.curvature))
    spread = Spread(fit.spread.rate, min(sd, WIDEST))
    point = Point([*at.support, column], theta[1:], float(theta[0]))
    selected_positions = [*fit.kept, len(at.support)] if keep else fit.kept
    return replace(fit, point=point, kept=selected_positions, spread=spread, root=root)
