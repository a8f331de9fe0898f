"""Queries of a one-step least-squares fit, with their prices.

With narrower bounds (`OLS.fit` with ``adapt_bounds=True``) rows are weighted. Clipping columns at narrower
bounds would bias slopes. Weights that depend on x alone do not, where the mean is linear:
w = min(1, 1/max_j x~_j^2), x~ in units of the narrower bounds, so that every entry of sqrt(w) (1, x~) is in
[-1, 1]. All sums are of rows weighted so, their own Gram matrix among them: the target is least squares with
these weights.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from privinf.accounting.shares import part_of_mu
from privinf.completeness import CompleteRows
from privinf.federation import NoisySum
from privinf.glm.clipping import OutsideCount, ends_of, leverages
from privinf.glm.rows import GlmRows
from privinf.glm.sums import GlmSums
from privinf.inference.tails import VISIBLE_SDS_BEFORE, Tail, best_clip, confirmed_tail, squared, tail_of
from privinf.mechanisms.statistics.isometric import from_isometric
from privinf.mechanisms.statistics.moments import MomentLayout
from privinf.mechanisms.statistics.summands import counts_above
from privinf.schema.geometry import Reachable
from privinf.typing import ClipRule, Floats, Pair, PlainValue, Quantity, ScoreTarget
from privinf.wire import Labels, Statistics

NARROWER = 0.04  # share of mu^2 for narrower bounds
MOMENTS = 0.15  # share of mu^2 for the first release, of second moments
MEAT = 0.06  # share of mu^2 for the meat
COARSE_RATIO = math.sqrt(2.0)  # of a threshold to the one below it, in counts on the way
FINE_RATIO = math.pow(2.0, 0.25)  # the same in the tail counts that choose the clip
LOWEST_THRESHOLD = 0.7  # lowest threshold, of scores in units of sqrt p and of squared lengths in units of p
MOST_THRESHOLDS = 120  # of one release of counts
CELLS = 64  # of a column's bounds, in the counts for narrower ones
OUTSIDE_SHARE = 0.01  # share of the records that may be beyond either narrower bound
UNSEEN = 2.0  # sds of its noise up to which a count may be nothing

# A statistic, its share of mu^2, its label and its arguments.
PricedQuery: TypeAlias = tuple[str, float, str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class InitialEstimate:
    """Initial estimate of a one-step fit, scaled units.

    Attributes
    ----------
    theta : ndarray, shape (p,)
    whitening : ndarray, shape (p, p)
        M: v = M z.
    longest : float
        Public bound of |v|^2.
    unit : float
        s: about the sd of the residuals.
    noise : float
        Sd that the noise of theta gives linear predictors.
    smallest, edge : float
        Smallest eigenvalue of the first Gram matrix, and the operator norm of its noise.
    gram : ndarray, shape (p, p)
        The first Gram matrix.
    residuals : Tail or None
        Of the residuals at the first theta.
    white : ndarray, shape (p, p)
        Second moments of v by the release that M was computed from: 1 along directions above its noise.
    """

    theta: Floats
    whitening: Floats
    longest: float
    unit: float = 1.0
    noise: float = 0.0
    smallest: float = 1.0
    edge: float = 0.0
    gram: Floats = field(default_factory=lambda: np.empty((0, 0)))
    residuals: Tail | None = None
    white: Floats = field(default_factory=lambda: np.empty((0, 0)))

    @property
    def strength(self) -> float:
        """Smallest eigenvalue of the first Gram matrix over the operator norm of its noise."""
        return self.smallest / self.edge if self.edge > 0.0 else math.inf

    def args(self, extra: Mapping[str, PlainValue]) -> dict[str, Any]:
        """Return the arguments of a statistic at the initial estimate."""
        return {"theta": self.theta, "whitening": self.whitening, "unit": self.unit, **extra}


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastSquaresOptions:
    """Options of a least-squares fit.

    Attributes
    ----------
    rule : {"auto", "bounds"} or None
        Clipping of scores: by counts; none, with noise for the full range of the bounds; None: at `clip`.
    clip : float or None
        E, the residual clip of the user, scaled units.
    target : {"mean", "robust"}
        Least squares, or the root of the clipped scores.
    robust : bool
        Whether a meat is released; otherwise equal variances of the errors are assumed.
    adapt_bounds : bool
        Whether rows are weighted by narrower bounds.
    """

    rule: ClipRule | None = "auto"
    clip: float | None = None
    target: ScoreTarget = "mean"
    robust: bool = True
    adapt_bounds: bool = False

    def described(self, unit: float) -> dict[str, str]:
        """Return the lines of a summary that name a choice; `unit` is that of the scaled response."""
        lines = {}
        if self.rule is None and self.clip is not None:
            lines["Residual clip"] = f"{self.clip * unit:g}"
        elif self.target == "mean":
            lines["Residual clip"] = "by counts" if self.rule == "auto" else "none (bounds)"
        if self.target == "robust":
            lines["Target"] = "clipped scores"
        if self.adapt_bounds:
            lines["Rows"] = "weighted by narrower bounds"
        return lines


@dataclass(slots=True, kw_only=True)
class LeastSquaresQueries:
    """Releases of one regression, and the share of the budget that they spent.

    Attributes
    ----------
    sums : GlmSums
    rows : GlmRows
        Units and public bounds.
    units : mapping
        Arguments of every statistic: centers, scales, the constant, the response's units.
    reachable : Reachable
        Of rows in scaled units.
    mu : float
        Of all releases.
    n : int
    response : (low, high)
        Bounds of the response, scaled units.
    options : LeastSquaresOptions
    spent : float
        Share of mu^2.
    ones : ndarray, shape (p,), or None
        The v with z'v = 1 in every row, where columns hold a constant or add up to one.
    outside : OutsideCount or None
        Count that is released together with the last queries, at a separate price.
    counted : NoisySum or None
        Its release.
    ends : tuple of str
        Columns whose mean the first release puts at an end of their bounds.
    leverage : mapping of str to float
        Of columns by the first release (`privinf.glm.clipping.leverages`).
    """

    sums: GlmSums
    rows: GlmRows
    units: Mapping[str, Any]
    reachable: Reachable
    mu: float
    n: int
    response: Pair
    options: LeastSquaresOptions = field(default_factory=LeastSquaresOptions)
    spent: float = 0.0
    ones: Floats | None = None
    outside: OutsideCount | None = None
    counted: Any = None
    ends: tuple[str, ...] = ()
    leverage: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def from_rows(
        cls, rows: GlmRows, sums: GlmSums, mu: float, options: LeastSquaresOptions
    ) -> LeastSquaresQueries:
        """Return the queries of a model's rows."""
        center, unit, low, high = rows.response_units
        units: dict[str, Any] = {"response_factor": 1.0 / unit, "intercept": center}
        if rows.center.any():
            units["center"] = rows.center
        if (rows.scale != 1.0).any():
            units["scale"] = rows.scale
        if rows.design.constant is not None:
            units["constant"] = rows.design.constant
        direction = rows.design.constant_direction
        ones = None if direction is None else direction * rows.scale
        if rows.weighted:
            units["row_weights"] = True
            low, high = min(low, 0.0), max(high, 0.0)
        return cls(
            sums=sums,
            rows=rows,
            units=units,
            reachable=rows.reachable,
            mu=mu,
            n=rows.total,
            response=(low, high),
            options=options,
            ones=ones,
        )

    def reweight_by_tighter_bounds(self) -> None:
        """Weight the rows by narrower bounds, from noisy counts of every column."""
        if not (columns := counted_columns(self.rows)):
            return
        args = {"columns": np.array(columns), "thresholds": edges()}
        units = {name: self.units[name] for name in ("center", "scale") if name in self.units}
        release = self.sums.release_sum(
            Statistics.WHITENED_COLUMNS, {**units, **args}, Labels.COUNTS_OF_COLUMNS, self.price(NARROWER)
        )
        parts = release.values.reshape(len(columns), -1)
        above = np.array([counts_above(part, 0.0)[0] for part in parts])
        sd = counts_above(parts[0], float(release.scale))[1]
        rows = narrowed(self.rows, columns, above, sd)
        narrower = LeastSquaresQueries.from_rows(rows, self.sums, self.mu, self.options)
        for name in ("rows", "units", "reachable", "response", "ones"):
            setattr(self, name, getattr(narrower, name))

    def detect_values_at_ends(self, moments: Floats, sd: float, weight: float) -> None:
        """Store columns whose means are at an end by the first release of (z, y), and leverages.

        The response has this weight.
        """
        constant = self.rows.design.constant
        p = self.p
        if constant is None or self.rows.weighted:
            return
        sd /= math.sqrt(2.0)  # the diagonal of the noise has twice the variance of other entries
        response = float(moments[constant, p]), sd / weight, *self.response
        means, squares = moments[constant, :p], np.diag(moments)[:p]
        self.ends = ends_of(self.rows, means, sd, response)
        self.leverage = leverages(self.rows, means, squares, math.sqrt(2.0) * sd)

    @property
    def p(self) -> int:
        """Number of coefficients."""
        return len(self.reachable.low)

    def residual(self, theta: Floats) -> float:
        """Return the largest |y - z'theta| that public bounds allow."""
        return self.reachable.residual(theta, *self.response)

    def of_scores(self, initial: InitialEstimate, *, coarse: bool) -> Counting:
        """Return the thresholds of counts of t."""
        residual = min(self.residual(initial.theta), self.options.clip or math.inf)
        top = math.sqrt(initial.longest) * residual / initial.unit
        ratio = COARSE_RATIO if coarse else FINE_RATIO
        return Counting(top=top, lowest=LOWEST_THRESHOLD * math.sqrt(self.p), ratio=ratio, coarse=coarse)

    def moments(self, weight: float) -> tuple[Floats, float]:
        """Return the mean of (z, y)(z, y)', shape (p + 1, p + 1), and the sd of its noisy diagonal.

        In the release y has this weight against z, here it has not.
        """
        if self.rows.weighted:
            return self._weighted_moments(weight)
        constant = self.units.get("constant")
        dropping = self.rows.missing == "drop"
        public = 0 if constant is None or dropping else 1
        units = {name: value for name, value in self.units.items() if name != "constant" or not dropping}
        args = {
            **units,
            "norm": math.sqrt(self.reachable.radius**2 - public),
            "response_factor": weight * self.units["response_factor"],
            "response_bound": weight * max(map(abs, self.response)),
        }
        release = self.sums.release_sum(Statistics.MOMENTS_TOTAL, args, Labels.MOMENTS, self.price(MOMENTS))
        layout = MomentLayout(public, self.p - public)
        full = layout.matrix(release.values, np.full((public, public), float(self.n)))
        if dropping:
            self._count(float(full[constant, constant]), float(release.scale))
        full /= self.n
        private = [j for j in range(self.p) if j != constant]
        order = np.argsort([*([constant] if public else []), *(private if public else range(self.p)), self.p])
        unit = np.append(np.ones(self.p), 1.0 / weight)
        return (full * np.outer(unit, unit))[np.ix_(order, order)], float(release.scale) / self.n

    def _count(self, total: float, sd: float) -> None:
        """Estimate the number of complete rows, which has the place of n from now on."""
        complete = CompleteRows.from_sum(total, sd, self.n, self.p)
        self.rows = replace(self.rows, complete=complete)
        self.n = complete.rows

    def _weighted_moments(self, weight: float) -> tuple[Floats, float]:
        """Return the same of weighted rows, whose constant is private too."""
        norm = math.hypot(self.reachable.radius, weight * max(map(abs, self.response)))
        blank = InitialEstimate(theta=np.zeros(self.p), whitening=np.eye(self.p), longest=1.0)
        args = blank.args({"response_weight": weight, "clip": norm})
        full, sd = self.matrix(Statistics.WHITENED_MOMENTS, MOMENTS, Labels.MOMENTS, args)
        unit = np.append(np.ones(self.p), 1.0 / weight)
        return full * np.outer(unit, unit), sd

    def price(self, share: float) -> float:
        """Return the mu of a share, which is spent."""
        self.spent += share
        return part_of_mu(self.mu, share)

    def vector(self, op: str, share: float, label: str, args: Mapping[str, Any]) -> Any:
        """Release a vector sum."""
        return self.sums.release_sum(op, {**self.units, **args}, label, self.price(share))

    def matrix(self, op: str, share: float, label: str, args: Mapping[str, Any]) -> tuple[Floats, float]:
        """Return the mean of a symmetric statistic and the sd of the noise of its diagonal."""
        release = self.sums.release_matrix(op, {**self.units, **args}, label, self.price(share))
        return release.values / self.n, float(release.scale) / self.n

    def together(self, queries: Sequence[PricedQuery]) -> list[Any]:
        """Release several sums, (op, share, label, args) each, that do not wait for one another.

        The last ones of a fit: values outside their bounds are counted in the same pass over the rows.
        """
        full_queries = [
            (op, {**self.units, **args}, label, self.price(share)) for op, share, label, args in queries
        ]
        if self.outside is None or self.counted is not None:
            return self.sums.release_together(full_queries)
        releases = self.sums.release_together([*full_queries, self.outside.query])
        self.counted = releases.pop()
        return releases

    def mean_matrix(self, release: NoisySum) -> tuple[Floats, float]:
        """Return the mean of a symmetric statistic that was released as a vector, and its diagonal's sd."""
        return from_isometric(release.values) / self.n, float(release.scale) / self.n

    def args(self, initial: InitialEstimate, extra: Mapping[str, PlainValue]) -> dict[str, Any]:
        """Return the arguments of a statistic of residuals: the initial estimate and the user's clip."""
        clip = {} if self.options.clip is None else {"residual_clip": self.options.clip}
        return initial.args({**clip, **extra})

    def squares(self, initial: InitialEstimate) -> tuple[PricedQuery, float]:
        """Return the query of squared residuals at the initial estimate, priced as a meat, and their tail.

        Counts choose the clip; the second value is the estimated tail beyond it, to be added.
        """
        excess = 0.0
        bound2 = min(self.residual(initial.theta), self.options.clip or math.inf) ** 2
        if initial.residuals is not None and self.options.rule == "auto":
            tail = squared(initial.residuals)
            mu = self.mu * math.sqrt(MEAT)
            bound2 = best_clip(tail, lambda c: (c / mu) ** 2 + tail.excess(c) ** 2)
            excess = float(tail.excess(np.array([bound2]))[0])
        args = initial.args({"residual_clip": math.sqrt(bound2)})
        return (Statistics.WHITENED_SQUARE, MEAT, Labels.SQUARED_RESIDUALS, args), excess

    def tail(self, initial: InitialEstimate, quantity: Quantity, share: float, counting: Counting) -> Tail:
        """Return the tail of a quantity from noisy counts."""

        def release_counts(cuts: Floats, part: float) -> tuple[Floats, Floats]:
            args = self.args(initial, {"quantity": quantity, "thresholds": cuts})
            release = self.vector(
                Statistics.WHITENED_COUNTS, part * share, Labels.COUNTS.format(quantity=quantity), args
            )
            return counts_above(release.values, float(release.scale))

        thresholds = counting.thresholds()
        if quantity == "score" and not counting.coarse:
            return confirmed_tail(release_counts, thresholds, self.n, counting.top)
        counts, sd = release_counts(thresholds, 1.0)
        return tail_of(
            thresholds, counts, sd, self.n, counting.top, visible_sds=VISIBLE_SDS_BEFORE, flattest=2.0
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Counting:
    """Thresholds of counts: `cells` of them, or down to `lowest`, each `ratio` times the next lower one."""

    top: float
    lowest: float = 0.0
    ratio: float = COARSE_RATIO
    cells: int = 0
    coarse: bool = True

    def thresholds(self) -> Floats:
        """Return them, increasing; the top is not among them, since nothing passes it."""
        cells = self.cells
        if not cells:
            down = math.log(max(self.top / self.lowest, 1.0)) / math.log(self.ratio)
            cells = min(max(math.ceil(down), 1), MOST_THRESHOLDS)
        return self.top * self.ratio ** np.arange(-cells, 0, dtype=np.float64)


def counted_columns(rows: GlmRows) -> list[int]:
    """Return the columns whose bounds may be narrowed: bounded ones that are not indicators."""
    design = rows.design
    return [j for j, column in enumerate(design.columns) if j != design.constant and not column.indicator]


def edges() -> Floats:
    """Return the thresholds inside [-1, 1], shifted to [0, 2]."""
    return np.arange(1, CELLS, dtype=np.float64) * (2.0 / CELLS)


def narrowed(rows: GlmRows, columns: list[int], counts: Floats, sd: Floats) -> GlmRows:
    """Return the rows in units of narrower bounds, weighted.

    Parameters
    ----------
    rows : GlmRows
    columns : list of int
    counts : ndarray, shape (number of columns, CELLS - 1)
        Noisy numbers of records above each threshold.
    sd : ndarray, shape (CELLS - 1,)
        Of their noise.
    """
    center, scale = rows.center.copy(), rows.scale.copy()
    threshold = np.maximum(OUTSIDE_SHARE * rows.total, UNSEEN * sd)
    ends = np.concatenate([[-1.0], edges() - 1.0, [1.0]])
    for j, above in zip(columns, counts, strict=True):
        below_few = np.concatenate([[True], rows.total - above <= threshold, [False]])
        above_few = np.concatenate([[False], above <= threshold, [True]])
        low = ends[np.flatnonzero(below_few)[-1]]
        high = ends[np.flatnonzero(above_few)[0]]
        if high > low:
            center[j] += scale[j] * 0.5 * (low + high)
            scale[j] *= 0.5 * (high - low)
    return replace(rows, center=center, scale=scale, weighted=True)
