r"""Debiasing a sparse logistic fit at named targets.

With z = (1, x_U), U the selected columns, the targets T and their neighbors, at the first fit theta:

1. G~, the noisy mean of c z z', in two releases: the second is at v = F'z, F from the first, where all
   directions have similar variances, so that its noise Z affects weak directions no more than strong ones.
2. W = G~^-1 E_T, the nodewise regressions of the targets, Omega = E_T' G~^-1 E_T, and u = Omega^-1/2 W'z: k
   directions with E c u u' = I, orthogonal to the constant and to all columns of U but the targets.
3. The weighted score s = mean w u e, the secant matrix M = mean w g u u', g the slope of the mean between eta
   and eta + u'step for a step along s, and the meat, mean w^2 e^2 u u', each with Gaussian noise.

On T x = Omega^-1/2 u + rest, E c u rest' = 0, and w is a function of u but for c: for elliptical columns
E w g u rest' = 0 too. So with d the error of the first fit, at the targets and at the other columns,

    E s = M Omega^-1/2 d_T + (W Omega^-1/2)' Z d + second order,     b_T = theta_T + A s,  A = Omega^1/2 M^-1.

The targets are in the first fit, selected or not, so that d and the step are short. Along a long step the
other coefficients, such as the constant, would have to move as well.

With delta = M^-1 s, the variance is

    A [meat / n + sigma_s^2 I + sigma_M^2 / 2 (|delta|^2 I + delta delta')] A'  +  diag E (w_j' Z d)^2,

the noise of the score and of M (isometric, sd sigma_M on the diagonal; both by `step_noise` of
`privinf.inference.one_step`), and of the nodewise regressions (`privinf.lasso.precision`), d having the
covariance (q / n + t^2) H^-1 on the constant and the fit's columns.
The targets' own d is repaired by A and yet counted in the last term: a second-order matter. M is a full
matrix, so that correlated targets do not leak into one another where rows are weighted down.

The meat is shrunk toward a multiple of the identity as far as its noise asks, which M is near to at a right
mean: k (k + 1) / 2 noisy numbers, whose noise weighs where responses are rare.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from privinf.inference.estimate import VarianceTerms
from privinf.inference.one_step import step_noise
from privinf.inference.tails import shrunk
from privinf.lasso.binomial.fit import FIRST_MATRIX_SHARE, LogisticFit, two_stage_hessian
from privinf.lasso.debiasing import TargetCoefficients
from privinf.lasso.fit import MIN_CLEARANCE, positions
from privinf.lasso.plan import DebiasingPrices
from privinf.lasso.precision import clearance, column_noise_variance, floored
from privinf.lasso.radii import MOST_ROWS, curvature_bound, weights_of
from privinf.lasso.sums import Directions, HiddenByNoise, LogisticSums, NoisyMean
from privinf.typing import Floats
from privinf.wire import Labels

EQUATION = """\
cov = L [ meat / n + s_S^2 I + (s_H^2 / 2) (|D|^2 I + D D') ] L' + diag(column)
sampling: meat / n; meat is the shrunk mean outer product of the weighted scores, n the number of records
score noise: s_S^2 I; s_S is the standard deviation of the noise in the score, I the identity matrix
Hessian noise: (s_H^2 / 2) (|D|^2 I + D D'); s_H is that standard deviation for the Hessian, D the last step
precision columns: column_j = E (w_j' Z d)^2, E is the mean over the noise; w_j is column j of the matrix L
(the estimated inverse Hessian), Z the noise of its Gram matrix, d the error of the initial estimate"""
UNION_LABEL = Labels.GRAM_OF_TARGETS_AND_NEIGHBOURS
MIN_NEIGHBORS = 2  # neighbors of a target, at least, where their number is not an argument
MAX_NEIGHBORS = 25  # and at most; also their number where there is no noise
# Share of a coordinate's variance that noise of the Gram matrix may add (`affordable_neighbors`).
AFFORDED = 0.03
TYPICAL = 40  # columns for which the bound on c |v|^2 is worked out; the rule uses that bound per column
STANDING = 4.0  # standard deviations of its noise that M must lie above zero
FAR = 1.0  # root mean square move of the predictor beyond which a step is not local, and is shortened
FAR_SIGN = (
    "the debiasing step would move the linear predictor by {:.1f} (root mean square), too "
    "far for a one-step estimator"
)
WEAK_UNION = "the noise of the Gram matrix of the targets and their neighbors is as large as the matrix"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class DebiasedLogistic:
    """Debiased coefficients of k targets in the units of the sums.

    Attributes
    ----------
    params : ndarray, shape (k,)
    sampling, privacy : ndarray, shape (k, k)
        Covariances: of the rows' drawing, and of the noise of all releases.
    union : list of int
        Columns of the Gram matrix.
    signs : tuple of str
        Warning signs of the step.
    noise : mapping of str to ndarray, shape (k, k)
        Named terms of `privacy`.
    """

    params: Floats
    sampling: Floats
    privacy: Floats
    union: list[int]
    signs: tuple[str, ...] = ()
    noise: Mapping[str, Floats] = field(default_factory=dict)

    def in_units(self, unit: Floats) -> TargetCoefficients:
        """Return the coefficients after division by `unit`, (k,)."""
        back = np.outer(unit, unit)
        sampling = self.sampling / back
        noise = self.privacy / back
        named = {name: term / back for name, term in self.noise.items()}
        return TargetCoefficients(
            params=self.params / unit,
            cov=sampling + noise,
            sampling=sampling,
            noise=noise,
            terms=VarianceTerms.dividing(sampling + noise, EQUATION, named),
        )


def affordable_neighbors(fit: LogisticFit, targets: int, n: int, rho: float) -> int:
    """Return the number of neighbors of each target, by a rule on public and released numbers.

    A Gram matrix of m columns of price mu, rows weighted down to c |v|^2 <= K = kappa m, has noise of sd
    g = sqrt 2 kappa m / (n mu), which raises the variance of a coordinate by m g^2 / 2: at most 3% while
    m^3 <= 0.03 (n mu / kappa)^2.
    """
    if math.isinf(rho):
        return MAX_NEIGHBORS
    kappa = curvature_bound(fit.spread, TYPICAL, MOST_ROWS) / TYPICAL
    price = 2.0 * (1.0 - FIRST_MATRIX_SHARE) * rho
    room = (AFFORDED * price * (n / kappa) ** 2) ** (1.0 / 3.0) - len(fit.point.support)
    room -= 1.0
    return int(np.clip(room / targets, MIN_NEIGHBORS, MAX_NEIGHBORS))


def debias_logistic(
    sums: LogisticSums,
    fit: LogisticFit,
    targets: Sequence[int],
    prices: DebiasingPrices,
    *,
    neighbors: int,
    excluded: Sequence[int] = (),
) -> DebiasedLogistic:
    """Return the debiased coefficients of some columns.

    Parameters
    ----------
    sums : LogisticSums
    fit : LogisticFit
    targets : sequence of int
    prices : DebiasingPrices
    neighbors : int
        Number selected for every target, in addition to the columns of the fit.
    excluded : sequence of int
        Columns that may not be neighbors, such as one of ones.

    Raises
    ------
    HiddenByNoise
        The noise hides the curvature of the scores.

    Notes
    -----
    **Privacy.** Spends the prices in `prices`, except for that of the candidates.
    """
    union = _union(sums, fit, targets, neighbors, excluded, prices.neighbors)
    sums.sparse.size_columns(union, prices.sizes)
    whitening, gram = two_stage_hessian(sums, fit.point, union, fit.spread, prices.gram, UNION_LABEL)
    first = 1 + positions(targets, union)
    inverse: Floats = np.asarray(np.linalg.inv(floored(gram.mean)), dtype=np.float64)
    columns = inverse @ whitening[first].T  # of v: W = whitening @ columns
    omega = whitening[first] @ columns
    values, vectors = np.linalg.eigh((omega + omega.T) / 2.0)
    root = (vectors * np.sqrt(values)) @ vectors.T
    back = (vectors / np.sqrt(values)) @ vectors.T
    along = Directions(union, whitening @ columns @ back)
    score, secant, meat, moved = _released(sums, fit, along, prices)
    if not np.linalg.eigvalsh(secant.mean)[0] > STANDING * secant.sd:
        raise HiddenByNoise(
            "the noise hides the curvature of the scores: pass fewer targets, a larger budget, or "
            "other shares="
        )
    lead = root @ np.linalg.inv(secant.mean)
    delta = np.asarray(np.linalg.solve(secant.mean, score.mean), dtype=np.float64)
    step_terms = step_noise(delta, score.sd, secant.sd)
    noise = step_terms["score noise"] + step_terms["Hessian noise"]
    sampling = lead @ (shrunk(meat.mean, meat.sd) / sums.n) @ lead.T
    column = _column_noise(sums, fit, union, whitening, inverse, columns, gram.sd)
    signs = [FAR_SIGN.format(moved)] * (moved > FAR)
    signs += [WEAK_UNION] * (clearance(gram.mean, gram.sd) < MIN_CLEARANCE)
    params = fit.point.on(targets) + lead @ score.mean
    privacy = lead @ noise @ lead.T + np.diag(column)
    terms = {
        "score noise": score.sd**2 * (lead @ lead.T),
        "Hessian noise": lead @ step_terms["Hessian noise"] @ lead.T,
        "precision columns": np.diag(column),
    }
    return DebiasedLogistic(
        params=params, sampling=sampling, privacy=privacy, union=union, signs=tuple(signs), noise=terms
    )


def _union(
    sums: LogisticSums,
    fit: LogisticFit,
    targets: Sequence[int],
    neighbors: int,
    excluded: Sequence[int],
    rho: float,
) -> list[int]:
    """Return selected columns, targets and their neighbors."""
    union = [*fit.point.support, *targets]
    allowed = sums.sparse.possible_neighbors(targets, [*union, *excluded])
    if count := min(neighbors, int(allowed[0].sum())):
        union += [j for chosen in sums.sparse.neighbors(targets, count, allowed, rho) for j in chosen]
    return list(dict.fromkeys(union))


def _released(
    sums: LogisticSums, fit: LogisticFit, along: Directions, prices: DebiasingPrices
) -> tuple[NoisyMean, NoisyMean, NoisyMean, float]:
    """Return score, secant matrix and meat, and the root mean square of the predictor's move."""
    weights = weights_of(fit.spread, along.size, sums.n, prices.score)
    score = sums.score(fit.point, along, weights, prices.score, Labels.DEBIASING_SCORES)
    step = score.mean / weights.slope
    moved = float(np.linalg.norm(step)) / math.sqrt(fit.spread.curvature)
    step *= min(1.0, FAR / max(moved, FAR))
    secant = sums.secant(fit.point, along, weights, step, prices.slopes, Labels.SLOPES_OF_SCORES)
    meat = sums.meat(fit.point, along, weights, prices.meat)
    return score, secant, meat, moved


def _column_noise(
    sums: LogisticSums,
    fit: LogisticFit,
    union: list[int],
    whitening: Floats,
    inverse: Floats,
    columns: Floats,
    sd: float,
) -> Floats:
    """Return E (w_j' Z d)^2 in the coordinates of v."""
    places = np.append(0, 1 + positions(fit.point.support, union))
    inverse_gram = whitening @ inverse @ whitening.T
    selected = np.linalg.inv(np.linalg.inv(inverse_gram)[np.ix_(places, places)])
    error = np.zeros_like(inverse_gram)
    error[np.ix_(places, places)] = fit.error_covariance(selected, sums.n)
    back = np.linalg.inv(whitening)
    moved = back @ error @ back.T
    return column_noise_variance(columns, sd, np.arange(len(moved)), (moved + moved.T) / 2.0)
