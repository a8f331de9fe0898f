r"""Test for omitted columns: the strongest candidate outside the fit, tested as a target would be.

One search (`screen_omitted`) tests linear and logistic fits; `OmittedSearch` has the releases of a family.
The equations below are those of linear fits, at the end those of logistic ones.

The selected columns P of a sparse fit are in every nodewise regression. The candidate l is the column outside
P with the largest noisy ``|sum clip(x_l r, B)|``, peeled. With r the residuals of the fit on P, w_l the
nodewise regression of l on P (from a noisy Gram matrix of its own, of l and of the whitened columns R'x_P of
the fit's steps, whose own Gram matrix is taken to be I) and u_l = w_l'x / sqrt(w_ll), one release gives mean
and mean square of clip(u_l r, C) (``target_scores``), and

    T = s / sqrt( v / n + t^2 + kappa^2 N_l ),

s and v the mean and the mean square, t the noise of s, kappa the slope under normal errors and N_l what the
noise of the Gram matrix does to the errors of the coefficients on P (`privinf.lasso.precision`). It is the
debiased coordinate of a column with the first coefficient 0 over its standard error
(`privinf.lasso.debiasing`), but that kappa is computed and has no noise. That r has
the errors d of a clipped, noisy refit does not matter to first order: w_l'G vanishes on P, so that their
sampling error, their noise and their bias, if errors are skewed, all drop out. Nor does the clip: u_l is
uncorrelated with the columns of P, and only errors whose skewness goes along with u_l itself have
E clip(u_l r, C) away from 0.

**Columns that stand out join.** If T rejects, l joins P with the coefficient ``b_l = sqrt(w_ll) s / kappa``,
and the others move as in least squares: by ``b_l w_l / w_ll``. So it is in every nodewise regression, and
biases no target. The noise of w_l times b_l is in all of them now, which hides further columns and leaks into
the debiased coordinates: all of P is fitted again. Then the next candidate is tested, up to `MAX_CANDIDATES`
of them. (A logistic fit is not fitted again.) Every column that joins costs a fit and a further test, which
the price of the scores pays for; without such a column that price is unchanged. If the last candidate still
stands out, more columns matter than joined, and intervals are marked. Columns that were selected and then
dropped are in P: their effects are estimated and bias nothing, however large.

**Null distribution.** If no column outside P has an effect, every column's own T is about standard normal.
The candidate was chosen on the same rows, but its T is one of those of all m columns outside P: by Bonferroni

    P(T > c) <= m 2 (1 - Phi(c)),      p-value  min(1, m 2 (1 - Phi(T))).

Targets are in P unless there are very many of them. A target outside P that did not join, and
whose debiased coordinate stands out, is an omitted column for the other targets and marks their intervals.

**Detection limit.** The candidate has to be selected (`privinf.lasso.selection`), and T needs (c + z_q) times
its error. If an effect of z is missed, and the column's correlation with target j given the nodewise
regression of j is rho, the coordinate of j moves by rho z standard errors (without privacy). The selection of
neighbors has a detection limit for correlations likewise.

**Logistic fits.** The candidate has the largest noisy ``|sum clip(x_j, B / q) e|`` (`privinf.lasso.radii` has
q, w and e). With z = (1, x_P, x_l), G~ the noisy mean of c z z', w_l = G~^-1 e_l and
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
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, Protocol, Self, TypeVar

import numpy as np
from scipy.special import ndtr

from privinf.inference.estimate import upper_quantile
from privinf.lasso.debiasing import Debiased, DebiasedFit
from privinf.lasso.diagnostics import LEVEL, MissedColumnTest, SparseColumns, TargetDetection
from privinf.lasso.fit import (
    CHEAP_GRAM_SHARE,
    ColumnStep,
    SparseFit,
    bordered,
    error_variance,
    selection_gram,
    steps,
    still_moving,
)
from privinf.lasso.logistic import LogisticFit
from privinf.lasso.nodewise import NEAR_CLIP
from privinf.lasso.plan import LassoPlan
from privinf.lasso.precision import (
    clearance,
    column_noise_variance,
    floored,
    positions,
    precision_columns,
)
from privinf.lasso.radii import (
    UNCLIPPED,
    curvature_bound,
    gram_norm,
    product_moments,
    product_radius,
    residual_moments,
    step_efficiency,
    weights_of,
)
from privinf.lasso.rows import LassoRows
from privinf.lasso.scores import within_limits
from privinf.lasso.selection import (
    DETECTION_PROBABILITY,
    VectorServer,
    detectable_correlation,
    detection_limit,
    selection_clip,
    sharpest,
)
from privinf.lasso.sums import Directions, LogisticSums, Score, SparseSums
from privinf.mechanisms.statistics.scores import SQUARE_WEIGHT
from privinf.typing import Flags, Floats, PlainValue
from privinf.wire import Labels

SELECTION_SHARE = 0.5  # share of a test's price for the selection
SIZE = 0.03  # share for the size of the candidate
GRAM = 0.12  # share for the Gram matrix with the candidate; the rest is for its score
MAX_CANDIDATES = 4  # columns that are tested, one after the other
OF_SCORES = 0.75  # part of the scores' price that all releases and new fits may cost together
REFIT_PRICE = 0.45  # price of a new fit with a column that joined, relative to that of a test
AGAIN_STEPS = (0.3, 0.7)  # shares of the steps' price in such a fit
# Without noise products are clipped here, in units of the residuals: so far out that none is.
ALL_BUT_INFINITE = 1e4
# Slopes are not needed: their place in the release is all but empty.
NO_SLOPES: dict[str, PlainValue] = {
    "slope_clip": 1.0,
    "slope_weight": 1e-3,
    "average_clip": 1.0,
    "average_weight": 1e-3,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OmittedCandidates:
    """Columns outside a fit that were tested, one after the other, and their statistics.

    Attributes
    ----------
    statistics : dict of int to float
        T of each, in order: all but the last stand out.
    columns : int
        Number of columns outside the fit.
    detection_limit : float
        As in `MissedColumnTest`.
    further : float
        Price of all candidates but the first, and of the refits with columns that joined, zCDP.
    targets : dict of int to float
        Statistics of debiased targets that are outside the fit: omitted columns for the other targets.
    """

    statistics: dict[int, float]
    columns: int
    detection_limit: float
    further: float = 0.0
    targets: dict[int, float] = field(default_factory=dict)

    @property
    def critical(self) -> float:
        """The statistic that rejects."""
        return critical_value(self.columns)

    @property
    def found(self) -> tuple[int, ...]:
        """Candidates that stand out and joined the fit, without targets."""
        return tuple(j for j, t in self.statistics.items() if t > self.critical)

    @property
    def exhausted(self) -> bool:
        """Whether more columns are likely to matter: the last one tested stands out, or a target does."""
        last = len(self.found) == len(self.statistics) > 0
        return last or max(self.targets.values(), default=0.0) > self.critical

    def test(
        self, rows: LassoRows, columns: SparseColumns, targets: TargetDetection | None = None
    ) -> MissedColumnTest | None:
        """Return the test in names and user units; None if no column outside the fit was tested.

        Parameters
        ----------
        rows : LassoRows
        columns : SparseColumns
            What the fit ended with.
        targets : TargetDetection, optional
            Without it no target has an interval, and none can be biased.
        """
        statistics = self.statistics | self.targets
        if not statistics:
            return None
        if targets is None:
            targets = TargetDetection.without(self.detection_limit)
        column = max(statistics, key=lambda j: statistics[j])
        fixed = {rows.constant, *self.found}
        selected_columns = {*columns.kept}
        dropped = [t for j, t in columns.ratios.items() if j not in fixed | selected_columns]
        fitted = (selected_columns | {*self.found}) - {rows.constant}
        faint = [j for j in fitted if columns.ratios.get(j, math.inf) < self.detection_limit]
        return MissedColumnTest(
            column=rows.names[column],
            statistic=statistics[column],
            pvalue=min(1.0, 2.0 * self.columns * float(ndtr(-statistics[column]))),
            columns=self.columns,
            kept=len(selected_columns - fixed),
            standing_out=sum(int(t > self.critical) for t in [*dropped, *statistics.values()]),
            found=tuple(rows.names[j] for j in self.found),
            exhausted=self.exhausted,
            seen_from=targets.detection_limit,
            correlation=targets.correlation,
            bias=tuple(float(value) for value in targets.bias / targets.unit),
            bias_in_errors=float((targets.bias / targets.errors).max(initial=0.0)),
            faint=len(faint) if columns.automatic else 0,
        )


def critical_value(columns: int) -> float:
    """Return the critical value of the test over this many columns."""
    return upper_quantile(LEVEL / 2.0 / columns)


class JoinableFit(Protocol):
    """A sparse fit that omitted columns may join."""

    @property
    def selected(self) -> list[int]:
        """All selected columns."""

    def joined(self, column: int, step: ColumnStep, *, keep: bool) -> Self:
        """Return the fit with one more column after a step: among the kept columns too if `keep`."""


Fit = TypeVar("Fit", bound=JoinableFit)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class CandidateColumn:
    """Nodewise regression of a candidate l on the columns of a fit.

    Attributes
    ----------
    direction : ndarray, shape (size of the wider fit,)
        ``w_l / sqrt(w_ll)``, the candidate last.
    unit : float
        ``sqrt(w_ll)``.
    noise : float
        N_l.
    """

    direction: Floats
    unit: float
    noise: float


def _candidate_column(white: Floats, column: Floats, gram_sd: float, error: Floats) -> CandidateColumn:
    """Return the nodewise regression of the last column.

    Parameters
    ----------
    white : ndarray, shape (size, size)
        From whitened columns to those of the fit and the candidate.
    column : ndarray, shape (size,)
        w_l on the whitened columns.
    gram_sd : float
        Sd of the noise on the diagonal of their Gram matrix.
    error : ndarray, shape (s, s)
        Covariance of the error of the fit on the first whitened columns.
    """
    unit = math.sqrt(float(white[-1] @ column))
    noise = column_noise_variance(column[:, None], gram_sd, np.arange(len(error)), error)[0]
    return CandidateColumn(direction=white @ column / unit, unit=unit, noise=float(noise / unit**2))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class CandidateScore:
    """Released score of a candidate l.

    Attributes
    ----------
    column : CandidateColumn
    value, square : float
        s and v.
    slope : float
        kappa.
    sd : float
        t.
    """

    column: CandidateColumn
    value: float
    square: float
    slope: float
    sd: float


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class OmittedSearch(ABC, Generic[Fit]):
    """The releases by which a linear or a logistic fit is tested for omitted columns.

    Attributes
    ----------
    sums : SparseSums
    test_price, refit_price, scores_price : float
        Prices of a test, of a fit with a column that joined, and of the scores, zCDP. The last pays for all
        tests but the first.
    keep : bool
        Whether columns that join are among the kept columns.
    excluded : sequence of int
        Columns that may not be candidates, such as a constant.
    """

    sums: SparseSums
    test_price: float
    refit_price: float = 0.0
    scores_price: float
    keep: bool
    excluded: Sequence[int]

    def allowed(self, fit: Fit) -> Flags:
        """Return which columns may be candidates."""
        return self.sums.all_but([*fit.selected, *self.excluded])

    @abstractmethod
    def strongest(self, fit: Fit, allowed: Flags, rho: float) -> int:
        """Return the allowed column with the largest noisy product with the residuals."""

    @abstractmethod
    def score(self, fit: Fit, candidate: int, gram_price: float, score_price: float) -> CandidateScore:
        """Release the score of a candidate, by a Gram matrix of its own."""

    @abstractmethod
    def fitted_again(self, fit: Fit) -> Fit:
        """Return a fit that a column joined, fitted again."""

    @abstractmethod
    def detection_limit(self, fit: Fit, outside: int) -> float:
        """Return the effect that is detected, in standard errors without privacy."""


def screen_omitted(search: OmittedSearch[Fit], fit: Fit) -> tuple[Fit, OmittedCandidates | None]:
    """Return a fit with the omitted columns that stand out, and the candidates; None if no column is left.

    Notes
    -----
    **Privacy.** Spends the price of a test for the first candidate and, for each that stands out, that of
    a fit and of another test.
    """
    outside = int(search.allowed(fit).sum())
    if not outside:
        return fit, None
    wider = fit
    statistics: dict[int, float] = {}
    price = search.test_price + search.refit_price
    spent = 0.0
    limit = OF_SCORES * search.scores_price
    for _ in range(min(MAX_CANDIDATES, outside)):
        selection_price = SELECTION_SHARE * search.test_price
        candidate = search.strongest(wider, search.allowed(wider), selection_price)
        statistics[candidate], with_candidate = _tested(search, wider, candidate)
        if statistics[candidate] <= critical_value(outside):
            break
        wider = with_candidate
        if math.isfinite(price) and spent + price > limit:
            break
        wider = search.fitted_again(wider)
        spent = spent + price
    return wider, OmittedCandidates(
        statistics=statistics,
        columns=outside,
        detection_limit=search.detection_limit(fit, outside),
        further=spent if math.isfinite(price) else 0.0,
    )


def _tested(search: OmittedSearch[Fit], fit: Fit, candidate: int) -> tuple[float, Fit]:
    """Return T of a candidate, and the fit with it."""
    rho = search.test_price
    score_price = (1.0 - GRAM - SELECTION_SHARE) * rho
    if candidate not in search.sums.units.sized:
        score_price -= 0.0 if math.isinf(rho) else SIZE * rho
        search.sums.size_columns([candidate], SIZE * rho)
    score = search.score(fit, candidate, GRAM * rho, score_price)
    variance = score.sd**2 + score.slope**2 * score.column.noise
    error = math.sqrt(score.square / search.sums.n + variance)
    step = ColumnStep(
        direction=score.column.direction,
        length=score.value / score.slope,
        error=error / score.slope,
        noise=math.sqrt(variance) / score.slope,
    )
    return abs(score.value) / error, fit.joined(candidate, step, keep=search.keep)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LinearSearch(OmittedSearch[SparseFit]):
    """The search for columns that a linear fit omitted.

    Attributes
    ----------
    clip : float
        Clip of residuals in fits, in units of their scale.
    selection_clip : float
        The same of the products for selections.
    limit : float
        The detection limit.
    """

    clip: float
    selection_clip: float
    limit: float

    @classmethod
    def from_plan(
        cls,
        sums: SparseSums,
        fit: SparseFit,
        plan: LassoPlan,
        constant: int | None,
        clip: float | None = None,
    ) -> LinearSearch:
        """Return the search of a plan.

        Parameters
        ----------
        sums : SparseSums
        fit : SparseFit
        plan : LassoPlan
        constant : int, optional
            Column that is always in the fit.
        clip : float, optional
            Clip of the products for the selection, in units of the residuals' scale. Default: the one with
            the lowest detection limit under peeling.
        """
        rho = plan.price("missed")
        excluded = () if constant is None else (constant,)
        outside = max(len(sums.units.scale) - len({*fit.selected, *excluded}), 1)
        bound, selection_limit = selection_clip(sums.n, outside, SELECTION_SHARE * rho)
        error = math.sqrt(product_radius(sums.n, (1.0 - SELECTION_SHARE - SIZE - GRAM) * rho).variance)
        need = (critical_value(outside) + upper_quantile(1.0 - DETECTION_PROBABILITY)) * error
        return cls(
            sums=sums,
            test_price=rho,
            refit_price=REFIT_PRICE * rho,
            scores_price=plan.shares.debiasing(plan.rho).score,
            keep=plan.automatic,
            excluded=excluded,
            clip=plan.clip,
            selection_clip=bound if clip is None else clip,
            limit=max(need, selection_limit),
        )

    def strongest(self, fit: SparseFit, allowed: Flags, rho: float) -> int:
        """Return the allowed column with the largest noisy product with the residuals."""
        bound = self.selection_clip * fit.scale
        return self.sums.select(fit.selected, fit.selected_beta, bound, 1, allowed, rho, Labels.SUSPECT)[0]

    def score(self, fit: SparseFit, candidate: int, gram_price: float, score_price: float) -> CandidateScore:
        """Release the score of a candidate, by a Gram matrix of its own."""
        noiseless = math.isinf(gram_price)
        union = [*fit.selected, candidate]
        white = bordered(fit.root, 1.0)
        norm = gram_norm(len(union), gram_price)
        noisy, gram_sd = self.sums.gram(union, norm, gram_price, Labels.GRAM_OF_SUSPECT, transform=white)
        noisy[:-1, :-1] = np.eye(len(fit.selected))
        column = precision_columns(floored(noisy), [[len(fit.selected), *range(len(fit.selected))]])[:, 0]
        error = error_variance(fit, self.sums.n) * np.eye(len(fit.selected))
        nodewise = _candidate_column(white, column, gram_sd, error)
        radius = product_radius(self.sums.n, score_price).bound
        bound = min(radius, ALL_BUT_INFINITE) * fit.scale
        score = Score(
            columns=union,
            transform=nodewise.direction[:, None],
            norm=math.inf,
            residual=bound,
            support=fit.selected,
            beta=fit.selected_beta,
        )
        weights = np.array([nodewise.unit])
        mean, sd = self.sums.target_scores(
            score, [candidate], score_price, Labels.SCORE_OF_SUSPECT, weights=weights, **NO_SLOPES
        )
        square = float(mean[1]) * bound**2 / SQUARE_WEIGHT
        if not noiseless:
            square = float(within_limits(square, radius, fit.scale))
        return CandidateScore(
            column=nodewise,
            value=float(mean[0]) * bound,
            square=square,
            slope=product_moments(radius)[0],
            sd=sd * bound,
        )

    def fitted_again(self, fit: SparseFit) -> SparseFit:
        """Return a fit that a column joined, fitted again."""
        return _fitted_again(self.sums, fit, self.clip, self.refit_price)

    def detection_limit(self, fit: SparseFit, outside: int) -> float:
        """Return the effect that is detected, in standard errors without privacy."""
        return self.limit


def _fitted_again(sums: SparseSums, fit: SparseFit, clip: float, rho: float) -> SparseFit:
    """Return a fit that a column joined, with the noise of its Gram matrix, fitted again; spends `rho`."""
    far = sums.sizes[0].far if sums.sizes and math.isfinite(rho) else 0.0
    clip = max(clip, far / fit.scale)
    noisy, sd = selection_gram(sums, fit.selected, CHEAP_GRAM_SHARE * rho, fit.root)
    # None is lengthened: rows were shrunk, and lengthening hidden directions would not end.
    values, vectors = np.linalg.eigh(noisy)
    root = fit.root @ (vectors / np.sqrt(np.maximum(values, 1.0)))
    prices = [(1.0 - CHEAP_GRAM_SHARE) * share * rho for share in AGAIN_STEPS]
    before, last = steps(sums, fit.selected, fit.selected_beta, root, fit.scale, clip, prices)[-2:]
    moving = still_moving(last.length, len(last.beta), math.hypot(before.noise, last.noise))
    again = replace(
        fit,
        selected_beta=last.beta,
        step_sd=last.noise,
        beta=fit.beta + (last.beta - fit.selected_beta)[positions(fit.support, fit.selected)],
        efficiency=step_efficiency(len(last.beta), clip, rho),
        root=root,
        diverged=fit.diverged or (math.isfinite(rho) and moving),
        gram_clearance=clearance(noisy, sd),
    )
    errors = np.sqrt(error_variance(again, sums.n) * (root**2).sum(axis=1))
    return replace(again, selected_errors=errors)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LogisticSearch(OmittedSearch[LogisticFit]):
    """The search for columns that a logistic fit omitted.

    Attributes
    ----------
    clip : float
        B of the products in multiples of the response's sd.
    selection_scales : list of float
        Scales of the noise of previous selections.
    vectors : VectorServer, optional
        Of secure sums: the detection limit of its selection replaces that of peeling.
    """

    clip: float
    selection_scales: list[float] = field(default_factory=list)
    vectors: VectorServer | None = None

    @property
    def logistic(self) -> LogisticSums:
        """Sums of a logistic fit."""
        return LogisticSums(self.sums)

    def _bound(self, fit: LogisticFit) -> float:
        rate = fit.spread.rate
        return self.clip * math.sqrt(rate * (1.0 - rate))

    def strongest(self, fit: LogisticFit, allowed: Flags, rho: float) -> int:
        """Return the allowed column with the largest noisy product with the residuals."""
        selected, scale = self.logistic.select(fit.point, self._bound(fit), 1, allowed, rho, Labels.SUSPECT)
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
        error = error_variance(fit, sums.n) * np.diag(np.append(np.ones(size - 1), 0.0))
        nodewise = _candidate_column(white, column, release.sd, error)
        weights = weights_of(fit.spread, 1, sums.n, score_price)
        along = Directions(columns, nodewise.direction[:, None])
        score = sums.score(fit.point, along, weights, score_price, Labels.SCORE_OF_SUSPECT)
        return CandidateScore(
            column=nodewise,
            value=float(score.mean[0]),
            square=weights.square,
            slope=weights.slope,
            sd=score.sd,
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
        selection = None if self.vectors is None else sharpest(self.vectors.releases, Labels.SUSPECT)
        if selection is not None:  # a covariance of c is an effect of c / curvature
            peeled = selection.found_from * math.sqrt(n / fit.spread.curvature)
        return max(peeled, quantiles * self._relative_error(fit))

    def _relative_error(self, fit: LogisticFit) -> float:
        """Return the error of one score in units of its error without privacy."""
        price = (1.0 - SELECTION_SHARE - SIZE - GRAM) * self.test_price
        n = self.logistic.n
        weights = weights_of(fit.spread, 1, n, price)
        noise = 0.0 if math.isinf(price) else 4.0 * weights.score**2 / (2.0 * price * n)
        return math.sqrt(weights.square + noise) / weights.slope


def candidates_if_all_are_targets(sums: SparseSums, fit: SparseFit) -> OmittedCandidates | None:
    """Return the candidates if all columns are targets: none; None if all columns are kept."""
    outside = len(sums.units.scale) - len(fit.support)
    need = critical_value(max(outside, 1)) + upper_quantile(1.0 - DETECTION_PROBABILITY)
    return OmittedCandidates(statistics={}, columns=outside, detection_limit=need) if outside else None


def missed_column_test(
    candidates: OmittedCandidates,
    rows: LassoRows,
    columns: SparseColumns,
    targets: Sequence[int],
    debiased: Debiased,
    *,
    inside: Sequence[int],
    limits: tuple[float, float],
    unit: Floats,
) -> MissedColumnTest | None:
    """Return the test with the bias due to an undetected column; None if no column was tested.

    Parameters
    ----------
    candidates : OmittedCandidates
    rows : LassoRows
    columns : SparseColumns
        What the fit ended with, the candidates that joined among them.
    targets : sequence of k ints
    debiased : Debiased
        Of the targets.
    inside : sequence of int
        Columns of the fit: other targets that stand out are omitted columns, too.
    limits : (float, float)
        From where on effects, and correlations with targets, are detected.
    unit : ndarray, shape (k,)
        Divisors of the targets' coefficients.

    Notes
    -----
    **Privacy.** Post-processing.
    """
    errors = np.sqrt(debiased.variance)
    if len(targets) > 1:
        sizes = zip(targets, np.abs(debiased.params) / errors, strict=True)
        fitted = set(inside)
        candidates = replace(candidates, targets={j: float(t) for j, t in sizes if j not in fitted})
    detection_limit, correlation = limits
    detection = TargetDetection(
        detection_limit=detection_limit,
        correlation=correlation,
        sampling=np.sqrt(debiased.sampling),
        errors=errors,
        unit=unit,
    )
    return candidates.test(rows, columns, detection)


def linear_columns(fit: SparseFit, plan: LassoPlan) -> SparseColumns:
    """Return the columns that a linear sparse fit ended with."""
    ratios = dict(zip(fit.selected, np.abs(fit.selected_beta) / fit.selected_errors, strict=True))
    return SparseColumns(kept=fit.support, ratios=ratios, automatic=plan.automatic)


def logistic_columns(fit: LogisticFit, plan: LassoPlan, n: int, targets: Sequence[int] = ()) -> SparseColumns:
    """Return the columns that a logistic sparse fit ended with; debiased targets do not count as dropped."""
    ratios = {j: ratio for j, ratio in fit.ratios(n).items() if j not in set(targets)}
    return SparseColumns(kept=fit.support, ratios=ratios, automatic=plan.automatic)


def detection_limits(
    candidates: OmittedCandidates,
    sums: SparseSums,
    fit: SparseFit,
    debiased: DebiasedFit,
    plan: LassoPlan,
    vectors: VectorServer | None = None,
) -> tuple[float, float]:
    """Return from where on effects, and correlations with targets, are detected in a linear fit.

    The detection limits of secure sums, whose releases `vectors` has, replace those of peeling.
    """
    near = () if debiased.marks is None else debiased.marks.selected
    price = plan.shares.debiasing(plan.rho).neighbors / max(len(near), 1)
    effect = candidates.detection_limit
    correlation = detectable_correlation(
        sums.n, len(sums.units.scale), min(near, default=0), price, NEAR_CLIP
    )
    releases = () if vectors is None else vectors.releases
    if (selection := sharpest(releases, Labels.SUSPECT)) is not None:
        effect = max(effect, selection.found_from * math.sqrt(sums.n) / fit.scale)
    if (test_candidate := sharpest(releases, Labels.NEIGHBOURS)) is not None:
        correlation = min(test_candidate.found_from, 1.0)
    return effect, correlation
