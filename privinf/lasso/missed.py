r"""Was a column missed: the most suspicious column outside the fit, tested as a target would be.

After a sparse fit that keeps S, with the picked columns P in every precision column, the suspect l is

- a column that was picked and dropped again, if one stands out of its errors by more than `SUSPICIOUS` (where
  the fit chooses the number of columns none is: what was picked is in every precision column, and S is P),
- else the column outside P with the largest noisy ``|sum clip(x_l r, B)|``, peeled.

With r the residuals without l, w_l the precision column of l on P (a noisy Gram matrix of its own) and
u_l = w_l'x / sqrt(w_ll), one release gives mean and mean square of clip(u_l r, C) (``target_scores``), and

    T = s / sqrt( v / n + t^2 + kappa^2 N_l ),

s and v the mean and the mean square, t the noise of s, kappa the slope under normal errors and N_l what the
noise of the Gram matrix does to the errors of the coefficients on P (`privinf.lasso.precision`). That r has
the errors d of a clipped, noisy refit does not matter to first order: w_l'G vanishes on P, so that their
sampling error, their noise and their bias, if errors are skewed, all drop out. Nor does the clip: u_l is
uncorrelated with the columns of P, and only errors whose skewness goes along with u_l itself have
E clip(u_l r, C) away from 0.

**Null law.** If no column outside S has an effect, every column's own T is about standard normal. The suspect
was chosen on the same rows, but its T is one of those of all m columns outside S: by Bonferroni

    P(T > c) <= m 2 (1 - Phi(c)),      p-value  min(1, m 2 (1 - Phi(T))).

Targets that were not kept have a T already, of their debiased coordinates, and count as suspects where there
are other targets: to themselves they are not missing.

**What is seen.** An effect of z standard errors (those without privacy) moves the clipped sum by z sqrt(n)
times a slope. Peeling with Gumbel noise of scale g takes it before m columns that are noise of sd h if it
exceeds g times the logarithm of their sum of exponentials (a random energy model),

    L = g log 2m + h^2 / (2 g)   for g > h / sqrt(2 log 2m), else h sqrt(2 log 2m),

by a logistic number of scale g and its own spread h, about L + z_q sqrt(h^2 + g^2 pi^2 / 3) with probability
q; B minimises the z that this needs. The test
then needs (c + z_q) times the error of T. An effect of z that is missed, of a column whose correlation with
target j given the precision column of j is rho, moves the coordinate of j by rho z standard errors (without
privacy). A correlation that neighbours are picked by is seen likewise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from privinf.inference.estimate import upper_quantile
from privinf.lasso.columns import NEAR_CLIP
from privinf.lasso.debiasing import DebiasedFit
from privinf.lasso.marks import FOUND, LEVEL, MissedColumnTest
from privinf.lasso.picks import PickRelease, VectorServer, sharpest
from privinf.lasso.plan import LassoPlan
from privinf.lasso.precision import column_noise_variance, floored, precision_columns
from privinf.lasso.radii import product_moments, product_radius, residual_moments
from privinf.lasso.rows import LassoRows
from privinf.lasso.secure import NEIGHBOURS
from privinf.lasso.sums import Score, SparseSums
from privinf.lasso.thresholding import GRAM_ROOM, PRODUCT_CLIP, SparseFit, error_covariance
from privinf.mechanisms.statistics.scores import SQUARE_WEIGHT
from privinf.typing import PlainValue

# Of the price: the pick, the suspect's size, the Gram matrix, and the rest the score.
PICK, SIZE, GRAM = 0.5, 0.03, 0.12
# A dropped column of so many errors is tested without a further pick.
SUSPICIOUS = 3.0
SUSPECT = "the most suspicious column"
# Clips of products that are picked from, in units of the residuals.
PICK_CLIPS = np.geomspace(0.1, 2.0, 24)
# Released variances stay above this share of what normal scores have.
SMALLEST_VARIANCE = 0.5
# Without noise products are clipped here, in units of the residuals: so far out that none is.
ALL_BUT_INFINITE = 1e4
# Slopes are not needed: their place in the release is all but empty.
NO_SLOPES: dict[str, PlainValue] = {
    "slope_clip": 1.0, "slope_weight": 1e-3, "average_clip": 1.0, "average_weight": 1e-3,
}  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Suspects:
    """Columns outside a fit and their statistics; `seen_from` as in `MissedColumnTest`."""

    statistics: dict[int, float]
    columns: int
    seen_from: float

    @property
    def critical(self) -> float:
        """The statistic that rejects."""
        return critical_value(self.columns)


def critical_value(columns: int) -> float:
    """Return the statistic from which on the test over so many columns rejects."""
    return upper_quantile(LEVEL / 2.0 / columns)


def find_suspect(
    sums: SparseSums,
    fit: SparseFit,
    targets: Sequence[int],
    plan: LassoPlan,
    constant: int | None,
    clip: float | None = None,
) -> Suspects | None:
    """Return the most suspicious column outside a fit with its statistic; None if none is left.

    Parameters
    ----------
    sums : SparseSums
    fit : SparseFit
    targets : sequence of int
        Never suspects. Where they are all columns, nothing else is left to look at.
    plan : LassoPlan
    constant : int, optional
        Column that is always in the fit.
    clip : float, optional
        Where the products are clipped that are picked from, in units of the residuals' scale; default: where
        peeling sees most.

    Notes
    -----
    **Privacy.** Spends the plan's price of it, less the pick's part where none is needed.
    """
    if plan.every:
        return _none_beside_all(sums, fit)
    rho, excluded = plan.price("missed"), () if constant is None else (constant,)
    p = len(sums.units.scale)
    inside = fit.picked if plan.automatic else fit.support
    outside = p - len(set(inside) | set(excluded))
    allowed = np.ones(p, dtype=bool)
    allowed[[*fit.picked, *targets, *excluded]] = False
    sizes = np.abs(fit.picked_beta) / fit.picked_errors
    known = {*inside, *targets, *excluded}
    ratio = {j: float(t) for j, t in zip(fit.picked, sizes, strict=True) if j not in known}
    first = max(ratio, key=lambda j: ratio[j], default=None)
    dropped = first is not None and ratio[first] > SUSPICIOUS
    if not dropped and not allowed.any():
        return None
    bound, pick_seen = pick_clip(sums.n, int(allowed.sum()) or 1, PICK * rho)
    if dropped:
        assert first is not None
        suspect, score = first, 1.0 - GRAM
    else:
        bound = (bound if clip is None else clip) * fit.scale
        suspect = sums.pick(fit.picked, fit.picked_beta, bound, 1, allowed, PICK * rho, SUSPECT)[0]
        score = 1.0 - GRAM - PICK
    if suspect not in sums.units.sized:
        score -= SIZE
        sums.size_columns([suspect], SIZE * rho)
    statistic = _studentised(sums, fit, suspect, GRAM * rho, score * rho)
    own = math.sqrt(product_radius(sums.n, (1.0 - PICK - SIZE - GRAM) * rho).variance)
    need = (critical_value(outside) + upper_quantile(1.0 - FOUND)) * own
    statistics = {j: t for j, t in ratio.items() if t > critical_value(outside)} | {suspect: statistic}
    return Suspects(statistics, outside, max(need, pick_seen))


def _none_beside_all(sums: SparseSums, fit: SparseFit) -> Suspects | None:
    """Return what is tested beside targets that are all columns: nothing; None if all are kept."""
    outside = len(sums.units.scale) - len(fit.support)
    need = critical_value(max(outside, 1)) + upper_quantile(1.0 - FOUND)
    return Suspects({}, outside, need) if outside else None


def _studentised(sums: SparseSums, fit: SparseFit, suspect: int, gram_rho: float, rho: float) -> float:
    clear = math.isinf(rho)
    others = [i for i, j in enumerate(fit.picked) if j != suspect]
    support, beta = [fit.picked[i] for i in others], fit.picked_beta[others]
    union = [suspect, *support]
    norm = math.inf if clear else math.sqrt(GRAM_ROOM * len(union))
    noisy, gram_sd = sums.gram(union, norm, gram_rho, "Gram matrix of the suspect")
    gram = floored(noisy)
    column = precision_columns(gram, [range(len(union))])
    unit = math.sqrt(column[0, 0])
    radius = product_radius(sums.n, rho).bound
    bound = min(radius, ALL_BUT_INFINITE) * fit.scale
    score = Score(union, column / unit, math.inf, bound, support, beta)
    mean, sd = sums.target_scores(
        score, [suspect], rho, "score of the suspect", weights=np.array([unit]), **NO_SLOPES
    )
    slope, normal = product_moments(radius)
    square = float(mean[1]) * bound**2 / SQUARE_WEIGHT
    if not clear:
        square = min(max(square, SMALLEST_VARIANCE * normal * fit.scale**2), bound**2)
    error = error_covariance(np.asarray(np.linalg.inv(gram[1:, 1:])), fit, sums.n)
    noise = column_noise_variance(column, gram_sd, np.arange(1, len(union)), error)[0] / column[0, 0]
    variance = square / sums.n + (sd * bound) ** 2 + slope**2 * float(noise)
    return abs(float(mean[0])) * bound / math.sqrt(variance)


def pick_clip(n: int, columns: int, rho: float) -> tuple[float, float]:
    """Return where products are clipped for one pick of `columns`, and the z that is then picked.

    Parameters
    ----------
    n : int
        Records.
    columns : int
        That are peeled from.
    rho : float
        Price, zCDP; infinite for no noise.

    Notes
    -----
    **Privacy.** A function of public numbers.

    Examples
    --------
    >>> found = pick_clip(40_000, 300, 0.0008)
    >>> round(found[0], 1), round(found[1], 1)
    (0.9, 5.6)
    """
    if math.isinf(rho):
        return PRODUCT_CLIP, picked_from(n, columns, 0.0, *product_moments(PRODUCT_CLIP))
    found = [
        picked_from(n, columns, 4.0 * bound / math.sqrt(8.0 * rho), *product_moments(bound))
        for bound in PICK_CLIPS
    ]
    best = int(np.argmin(found))
    return float(PICK_CLIPS[best]), float(found[best])


def picked_from(n: float, columns: int, scale: float, slope: float, square: float) -> float:
    """Return the z that is picked with probability `FOUND` from sums with Gumbel noise of this scale."""
    spread, many = math.sqrt(n * square), math.log(2.0 * columns)
    frozen = scale * math.sqrt(2.0 * many) <= spread
    others = spread * math.sqrt(2.0 * many) if frozen else scale * many + spread**2 / (2.0 * scale)
    own = math.hypot(spread, scale * math.pi / math.sqrt(3.0))
    return (others + upper_quantile(1.0 - FOUND) * own) / (slope * math.sqrt(n))


def found_correlation(n: int, columns: int, picks: int, rho: float, bound: float) -> float:
    """Return the correlation with a target from which on a column is picked as its neighbour.

    Parameters
    ----------
    n, columns : int
    picks : int
        Neighbours of every target; 0: nothing is looked for.
    rho : float
        Price of one target's picks, zCDP.
    bound : float
        Where columns are clipped, in units of their size.

    Notes
    -----
    **Privacy.** A function of public numbers. If no more columns are correlated as much than there are picks.
    """
    if picks < 1:
        return 1.0
    if math.isinf(rho):
        bound, scale = math.inf, 0.0
    else:
        scale = 4.0 * bound**2 / math.sqrt(8.0 * rho / picks)
    slope, square = residual_moments(bound)
    return min(1.0, picked_from(n, columns, scale, slope**2, square**2) / math.sqrt(n))


def missed_column_test(
    sums: SparseSums,
    rows: LassoRows,
    fit: SparseFit,
    targets: Sequence[int],
    debiased: DebiasedFit,
    plan: LassoPlan,
    vectors: VectorServer | None = None,
) -> MissedColumnTest | None:
    """Return the test, with what an undetected column could do to the targets; None if all are in the fit.

    Parameters
    ----------
    sums : SparseSums
    rows : LassoRows
    fit : SparseFit
    targets : sequence of int
    debiased : DebiasedFit
        Of the targets.
    plan : LassoPlan
    vectors : VectorServer, optional
        Of secure sums: what its releases could find takes the place of what peeling finds.

    Notes
    -----
    **Privacy.** Spends what `find_suspect` does.
    """
    clip, releases = (None, ()) if vectors is None else (plan.clip, vectors.releases)
    suspects = find_suspect(sums, fit, targets, plan, rows.constant, clip)
    if suspects is None:
        return None
    parts, found, inside = debiased.coordinates, dict(suspects.statistics), {rows.constant}
    inside |= set(fit.picked if plan.automatic else fit.support)
    errors = np.sqrt(parts.variance)
    if len(targets) > 1:
        sizes = np.abs(parts.params) / errors
        found |= {j: float(t) for j, t in zip(targets, sizes, strict=True) if j not in inside}
    seen, correlation = _sight(suspects, sums, fit, debiased, plan, releases)
    column = max(found, key=lambda j: found[j])
    bias = correlation * seen * np.sqrt(parts.sampling)
    return MissedColumnTest(
        column=rows.names[column],
        statistic=found[column],
        pvalue=min(1.0, 2.0 * suspects.columns * float(ndtr(-found[column]))),
        columns=suspects.columns,
        kept=len(set(fit.support) - {rows.constant}),
        standing_out=sum(t > suspects.critical for t in found.values()),
        seen_from=seen,
        correlation=correlation,
        bias=tuple(float(value) for value in bias / sums.units.scale[list(targets)]),
        bias_in_errors=float((bias / errors).max()),
    )


def _sight(
    suspects: Suspects,
    sums: SparseSums,
    fit: SparseFit,
    debiased: DebiasedFit,
    plan: LassoPlan,
    releases: Sequence[PickRelease],
) -> tuple[float, float]:
    """Return from where on effects, and correlations with targets, are found."""
    seen, near = suspects.seen_from, () if debiased.marks is None else debiased.marks.picked
    price = plan.shares.debiasing(plan.rho).neighbours / max(len(near), 1)
    correlation = found_correlation(sums.n, len(sums.units.scale), min(near, default=0), price, NEAR_CLIP)
    if (pick := sharpest(releases, SUSPECT)) is not None:
        seen = max(seen, pick.found_from * math.sqrt(sums.n) / fit.scale)
    if (look := sharpest(releases, NEIGHBOURS)) is not None:
        correlation = min(look.found_from, 1.0)
    return seen, correlation
