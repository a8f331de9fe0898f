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
from dataclasses import dataclass, field

import numpy as np

from privinf.inference.estimate import upper_quantile
from privinf.lasso.binomial.fit import LogisticFit
from privinf.lasso.binomial.sums import Directions, LogisticSums, curvature_bound, weights_of
from privinf.lasso.fit import bordered
from privinf.lasso.omitted import (
    CANDIDATE,
    GRAM,
    SELECTION_SHARE,
    SIZE,
    CandidateScore,
    OmittedSearch,
    critical_value,
)
from privinf.lasso.precision import column_noise_variance, floored
from privinf.lasso.radii import residual_moments
from privinf.lasso.selection import DETECTION_PROBABILITY, detection_limit
from privinf.lasso.sums import UNCLIPPED
from privinf.typing import Flags
from privinf.wire import Labels


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LogisticSearch(OmittedSearch[LogisticFit]):
    """The search for columns that a logistic fit omitted.

    Attributes
    ----------
    clip : float
        B of the products in multiples of the response's sd.
    selection_scales : list of float
        Scales of the noise of previous selections.
    """

    clip: float
    selection_scales: list[float] = field(default_factory=list)

    @property
    def logistic(self) -> LogisticSums:
        """Sums of a logistic fit."""
        return LogisticSums(self.sums)

    def _bound(self, fit: LogisticFit) -> float:
        rate = fit.spread.rate
        return self.clip * math.sqrt(rate * (1.0 - rate))

    def strongest(self, fit: LogisticFit, allowed: Flags, rho: float) -> int:
        """Return the allowed column with the largest noisy product with the residuals."""
        selected, scale = self.logistic.select(fit.point, self._bound(fit), 1, allowed, rho, CANDIDATE)
        self.selection_scales.append(scale)
        return selected[0]

    def score(
        self, fit: LogisticFit, candidate: int, gram_price: float, score_price: float
    ) -> CandidateScore:
        """Release the score of a candidate, by a Gram matrix of its own."""
        sums = self.logistic
        columns = [*fit.selected, candidate]
        white = bordered(fit.root, 1.0 / math.sqrt(fit.spread.curvature))
        size = len(white)
        top = UNCLIPPED if math.isinf(gram_price) else curvature_bound(fit.spread, size, 0.99)
        release = sums.hessian(fit.point, Directions(columns, white), top, gram_price, Labels.GRAM_OF_SUSPECT)
        gram = floored(release.mean)
        inverse = np.asarray(np.linalg.inv(gram))
        column = inverse @ white[-1]  # of v = white'z
        unit = math.sqrt(float(white[-1] @ column))
        weights = weights_of(fit.spread, 1, sums.n, score_price)
        along = Directions(columns, (white @ column)[:, None] / unit)
        score = sums.score(fit.point, along, weights, score_price, Labels.SCORE_OF_SUSPECT)
        moved = (fit.efficiency / sums.n + fit.step_sd**2) * np.diag(np.append(np.ones(size - 1), 0.0))
        noise = column_noise_variance(column[:, None], release.sd, np.arange(size), moved)[0] / unit**2
        return CandidateScore(
            direction=white @ column / unit,
            value=float(score.mean[0]),
            square=weights.square,
            slope=weights.slope,
            sd=score.sd,
            column_noise=float(noise),
        )

    def fitted_again(self, fit: LogisticFit) -> LogisticFit:
        """Return the fit as it is: the step of a column that joined is a Newton step of all coefficients."""
        return fit

    def detection_limit(self, fit: LogisticFit, outside: int) -> float:
        """Return the effect that is detected, in standard errors without privacy."""
        rate = fit.spread.rate
        moments = residual_moments(self._bound(fit) / max(rate, 1.0 - rate))
        n = self.logistic.n
        peeled = detection_limit(n * fit.spread.curvature, outside, self.selection_scales[0], *moments)
        quantiles = critical_value(outside) + upper_quantile(1.0 - DETECTION_PROBABILITY)
        return max(peeled, quantiles * self._relative_error(fit))

    def _relative_error(self, fit: LogisticFit) -> float:
        """Return the error of one score in units of its error without privacy."""
        price = (1.0 - SELECTION_SHARE - SIZE - GRAM) * self.test_price
        n = self.logistic.n
        weights = weights_of(fit.spread, 1, n, price)
        noise = 0.0 if math.isinf(price) else 4.0 * weights.score**2 / (2.0 * price * n)
        return math.sqrt(weights.square + noise) / weights.slope
