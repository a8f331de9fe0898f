r"""Was a column missed: the most suspicious column outside the fit, tested as a target would be.

After a sparse fit whose picked columns P are in every precision column, the suspect l is the column outside P
with the largest noisy ``|sum clip(x_l r, B)|``, peeled. With r the residuals of the fit on P, w_l the
precision column of l on P (a noisy Gram matrix of its own) and u_l = w_l'x / sqrt(w_ll), one release gives
mean and mean square of clip(u_l r, C) (``target_scores``), and

    T = s / sqrt( v / n + t^2 + kappa^2 N_l ),

s and v the mean and the mean square, t the noise of s, kappa the slope under normal errors and N_l what the
noise of the Gram matrix does to the errors of the coefficients on P (`privinf.lasso.precision`). That r has
the errors d of a clipped, noisy refit does not matter to first order: w_l'G vanishes on P, so that their
sampling error, their noise and their bias, if errors are skewed, all drop out. Nor does the clip: u_l is
uncorrelated with the columns of P, and only errors whose skewness goes along with u_l itself have
E clip(u_l r, C) away from 0.

**What stands out joins.** If T rejects, l joins P with the coefficient ``b_l = sqrt(w_ll) s / kappa``, and
the others move as least squares would have them: by ``b_l w_l / w_ll``. So it is in every precision column,
and biases no target. Then the next suspect is looked for, up to `ROUNDS` of them; what the further ones cost
is taken from the scores' price, which is what it was where none is needed. If the last of them still stands
out, more columns matter than were found, and intervals are marked. Columns that were picked and not kept are
in P: their effects are estimated and bias nothing, however large.

**Null law.** If no column outside P has an effect, every column's own T is about standard normal. The suspect
was chosen on the same rows, but its T is one of those of all m columns outside P: by Bonferroni

    P(T > c) <= m 2 (1 - Phi(c)),      p-value  min(1, m 2 (1 - Phi(T))).

Targets are suspects where there are others: to itself a target is not missing. Those that did not join and
whose debiased coordinate stands out are columns that were missed for the others, too, and mark the intervals.

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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

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
from privinf.lasso.thresholding import GRAM_ROOM, PRODUCT_CLIP, SparseFit, error_covariance, positions
from privinf.mechanisms.statistics.scores import SQUARE_WEIGHT
from privinf.typing import Flags, Floats, PlainValue

Fit = TypeVar("Fit")
# Of the price: the pick, the suspect's size, the Gram matrix, and the rest the score.
PICK, SIZE, GRAM = 0.5, 0.03, 0.12
# So many columns may be found, one after the other.
ROUNDS = 4
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


@dataclass(frozen=True, slots=True)
class Suspects:
    """Columns outside a fit that were looked at, one after the other, and their statistics.

    Attributes
    ----------
    statistics : dict of int to float
        T of each, in order: all but the last stand out.
    columns : int
        Number of columns outside the fit.
    seen_from : float
        As in `MissedColumnTest`.
    further : float
        Price of all but the first, zCDP.
    """

    statistics: dict[int, float]
    columns: int
    seen_from: float
    further: float = 0.0

    @property
    def critical(self) -> float:
        """The statistic that rejects."""
        return critical_value(self.columns)

    @property
    def found(self) -> tuple[int, ...]:
        """Those that stand out."""
        return tuple(j for j, t in self.statistics.items() if t > self.critical)

    @property
    def exhausted(self) -> bool:
        """Whether the last of them still does."""
        return len(self.found) == len(self.statistics) > 0


def critical_value(columns: int) -> float:
    """Return the statistic from which on the test over so many columns rejects."""
    return upper_quantile(LEVEL / 2.0 / columns)


def find_suspects(
    sums: SparseSums,
    fit: SparseFit,
    targets: Sequence[int],
    plan: LassoPlan,
    constant: int | None,
    clip: float | None = None,
) -> tuple[SparseFit, Suspects | None]:
    """Return a fit with what it had missed, and the suspects; None if no column is left.

    Parameters
    ----------
    sums : SparseSums
    fit : SparseFit
    targets : sequence of int
        One alone is no suspect. Where they are all columns, nothing else is left to look at.
    plan : LassoPlan
    constant : int, optional
        Column that is always in the fit.
    clip : float, optional
        Where the products are clipped that are picked from, in units of the residuals' scale; default: where
        peeling sees most.

    Notes
    -----
    **Privacy.** Spends the plan's price of it for the first suspect and, only where that stands out, for each
    further one.
    """
    if plan.every:
        return fit, _none_beside_all(sums, fit)
    rho = plan.price("missed")
    excluded = [*([] if constant is None else [constant]), *(targets if len(targets) == 1 else [])]
    outside = len(_allowed(sums, fit, excluded).nonzero()[0])
    if not outside:
        return fit, None
    bound, pick_seen = pick_clip(sums.n, outside, PICK * rho)
    own = math.sqrt(product_radius(sums.n, (1.0 - PICK - SIZE - GRAM) * rho).variance)
    need = (critical_value(outside) + upper_quantile(1.0 - FOUND)) * own

    def look(fit: SparseFit) -> tuple[int, float, SparseFit]:
        limit = (bound if clip is None else clip) * fit.scale
        allowed = _allowed(sums, fit, excluded)
        suspect = sums.pick(fit.picked, fit.picked_beta, limit, 1, allowed, PICK * rho, SUSPECT)[0]
        return suspect, *_tested(sums, fit, suspect, rho, plan.automatic)

    return searched(fit, look, outside, max(need, pick_seen), rho)


def searched(
    fit: Fit, look: Callable[[Fit], tuple[int, float, Fit]], outside: int, seen: float, rho: float
) -> tuple[Fit, Suspects]:
    """Return a fit with what it had missed, and the suspects.

    Parameters
    ----------
    fit
    look : callable
        Returns the most suspicious column outside a fit, its statistic, and the fit with it.
    outside : int
        Number of columns outside the fit.
    seen, rho : float
        What is seen, and the price of a look.
    """
    statistics: dict[int, float] = {}
    for _ in range(min(ROUNDS, outside)):
        suspect, statistic, wider = look(fit)
        statistics[suspect] = statistic
        if statistic <= critical_value(outside):
            break
        fit = wider
    further = (len(statistics) - 1) * rho if len(statistics) > 1 else 0.0
    return fit, Suspects(statistics, outside, seen, further)


def _allowed(sums: SparseSums, fit: SparseFit, excluded: Sequence[int]) -> Flags:
    allowed = np.ones(len(sums.units.scale), dtype=bool)
    allowed[[*fit.picked, *excluded]] = False
    return allowed


def _none_beside_all(sums: SparseSums, fit: SparseFit) -> Suspects | None:
    """Return what is tested beside targets that are all columns: nothing; None if all are kept."""
    outside = len(sums.units.scale) - len(fit.support)
    need = critical_value(max(outside, 1)) + upper_quantile(1.0 - FOUND)
    return Suspects({}, outside, need) if outside else None


def _tested(
    sums: SparseSums, fit: SparseFit, suspect: int, rho: float, keep: bool
) -> tuple[float, SparseFit]:
    """Return T of a suspect, and the fit with it: among the kept columns too if `keep` says so."""
    clear, score_rho = math.isinf(rho), (1.0 - GRAM - PICK) * rho
    if suspect not in sums.units.sized:
        score_rho -= 0.0 if clear else SIZE * rho
        sums.size_columns([suspect], SIZE * rho)
    union = [suspect, *fit.picked]
    norm = math.inf if clear else math.sqrt(GRAM_ROOM * len(union))
    noisy, gram_sd = sums.gram(union, norm, GRAM * rho, "Gram matrix of the suspect")
    gram = floored(noisy)
    column = precision_columns(gram, [range(len(union))])
    unit = math.sqrt(column[0, 0])
    radius = product_radius(sums.n, score_rho).bound
    bound = min(radius, ALL_BUT_INFINITE) * fit.scale
    score = Score(union, column / unit, math.inf, bound, fit.picked, fit.picked_beta)
    mean, sd = sums.target_scores(
        score, [suspect], score_rho, "score of the suspect", weights=np.array([unit]), **NO_SLOPES
    )
    slope, normal = product_moments(radius)
    square = float(mean[1]) * bound**2 / SQUARE_WEIGHT
    if not clear:
        square = min(max(square, SMALLEST_VARIANCE * normal * fit.scale**2), bound**2)
    error = error_covariance(np.asarray(np.linalg.inv(gram[1:, 1:])), fit, sums.n)
    noise = column_noise_variance(column, gram_sd, np.arange(1, len(union)), error)[0] / column[0, 0]
    own = (sd * bound) ** 2 + slope**2 * float(noise)
    size, error_of_size = float(mean[0]) * bound, math.sqrt(square / sums.n + own)
    effect = unit * size / slope
    wider = _joined(fit, suspect, effect * column[:, 0] / column[0, 0], unit * error_of_size / slope, keep)
    return abs(size) / error_of_size, replace(wider, step_sd=max(fit.step_sd, math.sqrt(own) / slope))


def _joined(fit: SparseFit, column: int, change: Floats, error: float, keep: bool) -> SparseFit:
    """Return the fit with one more column; `change`: its coefficient, and what it changes of the others."""
    beta = fit.picked_beta + change[1:]
    wider = replace(
        fit, picked=[*fit.picked, column], picked_beta=np.append(beta, change[0]),
        picked_errors=np.append(fit.picked_errors, error),
    )  # fmt: skip
    if not keep:
        return wider
    kept = fit.beta + change[1 + positions(fit.support, fit.picked)]
    return replace(wider, support=[*fit.support, column], beta=np.append(kept, change[0]))


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
    suspects: Suspects | None,
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
        With the suspects that were found.
    targets : sequence of int
    suspects : Suspects or None
    debiased : DebiasedFit
        Of the targets.
    plan : LassoPlan
    vectors : VectorServer, optional
        Of secure sums: what its releases could find takes the place of what peeling finds.

    Notes
    -----
    **Privacy.** Post-processing.
    """
    if suspects is None:
        return None
    parts, found, exhausted = debiased.coordinates, suspects.found, suspects.exhausted
    errors = np.sqrt(parts.variance)
    if len(targets) > 1:
        sizes = zip(targets, np.abs(parts.params) / errors, strict=True)
        inside = set(fit.support if plan.every else fit.picked)
        beside = {j: float(t) for j, t in sizes if j not in inside}
        exhausted |= max(beside.values(), default=0.0) > suspects.critical
        suspects = replace(suspects, statistics=suspects.statistics | beside)
    known = dict(zip(fit.picked, np.abs(fit.picked_beta) / fit.picked_errors, strict=True))
    releases = () if vectors is None else vectors.releases
    return test_of(
        suspects, found, exhausted, rows, fit.support, known,
        _sight(suspects, sums, fit, debiased, plan, releases), np.sqrt(parts.sampling), errors,
        sums.units.scale[list(targets)],
    )  # fmt: skip


def test_of(
    suspects: Suspects,
    found: Sequence[int],
    exhausted: bool,
    rows: LassoRows,
    kept: Sequence[int],
    known: Mapping[int, float],
    sight: tuple[float, float],
    sampling: Floats,
    errors: Floats,
    unit: Floats,
) -> MissedColumnTest:
    """Return the test in names and user units.

    Parameters
    ----------
    suspects : Suspects
    found : sequence of int
        Those that joined the fit.
    exhausted : bool
        Whether more are likely to matter.
    rows : LassoRows
    kept : sequence of int
        Kept columns, with or without those found.
    known : mapping of int to float
        Coefficients over their errors of all columns in the fit.
    sight : tuple of float
        From where on effects, and correlations with targets, are found.
    sampling, errors : ndarray, shape (k,)
        Standard errors of the targets: without privacy, and whole.
    unit : ndarray, shape (k,)
        What divides the targets' coefficients.
    """
    statistics, (seen, correlation), fixed = suspects.statistics, sight, {rows.constant, *found}
    column = max(statistics, key=lambda j: statistics[j])
    dropped = [t for j, t in known.items() if j not in fixed | {*kept}]
    bias = correlation * seen * sampling
    return MissedColumnTest(
        column=rows.names[column],
        statistic=statistics[column],
        pvalue=min(1.0, 2.0 * suspects.columns * float(ndtr(-statistics[column]))),
        columns=suspects.columns,
        kept=len({*kept} - fixed),
        standing_out=sum(int(t > suspects.critical) for t in [*dropped, *statistics.values()]),
        found=tuple(rows.names[j] for j in found),
        exhausted=bool(exhausted),
        seen_from=seen,
        correlation=correlation,
        bias=tuple(float(value) for value in bias / unit),
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
