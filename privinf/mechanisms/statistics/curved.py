r"""Sums from which logistic and count models are fitted in whitened units, with their sensitivities.

x stands for (clip(x, bounds) - center) / scale and eta = x'theta + intercept at a public theta; m is the
mean at eta, c its derivative, e = y - m, y inside its public bounds; v = T'x for a public matrix T. Every row
has a public weight o (1, or the column `weight` over `weight_unit`, where that is positive), and eta the log
of the column `exposure`. Negative binomial counts are Poisson ones whose rows have the weight 1/(1 + a m), a
the working dispersion `alpha`: their score is v e/(1 + a m). With many columns, x may hold `columns` alone,
and v a public `offset`, T's row of a constant that is not a column: neither is in what bounds a record. What
a record adds is bounded by these norms, whatever x, y, theta and T are:

- weights **in x alone**, w = o min(1, B / (o q), K / (o k)): q = |v| max(m, 1 - m) bounds the logistic score
  and k = c |v|^2 is the norm of the Hessian. The same w stand in score and Hessian, so that a right mean
  keeps its coefficients. Poisson scores have no such bound in x: they are shrunk to the norm B.
- ``curved.start``: x (y' - 1/2) and x x' of the columns `block`, |x| <= R, y' the response in [0, 1];
- ``curved.step``: w v e and w c v v';
- ``curved.counts``: how many records have o q, w k or w |v e| above thresholds, see `summands`;
- ``curved.score``: v e w / |v e w| clip(|v e w| - low, 0, high - low), one layer of the scores, of norm
  C = high - low at most: 2 C;
- ``curved.meat``: sum u u', u = both layers with the upper one times `upper`: |u| <= U = middle +
  upper (high - middle), sqrt 2 U^2 (U^2 for one column);
- ``curved.secant``: sum g v v', g the slope of the mean between eta and eta + v'step, times the weights of
  the score, and g |v|^2 <= K: sqrt 2 K.

**Dispersion.** A record adds a bounded function of its count and its mean, by public tables: with y in cell k
of width `width` (the last cell has no end) and u = m/(m_0 + m), m_0 the public `mean_unit`,

.. math:: \psi = r(u) g_k - s(u) h_k - e(u), \qquad low \le \psi \le high,

g, h the rows of `by_count`, and r, s, e those of `by_mean`, straight between equally spaced u:

- ``curved.dispersion``: sum psi, whose values are high - low apart;
- ``curved.dispersion_meat``: sum psi^2, l2 max(low^2, high^2).

**Two sums together.** ``curved.start`` and ``curved.step`` add a = sqrt(1 - r) / 2 times a score of norm at
most 1 and b = sqrt(r / 2) times a matrix k d d', 0 <= k <= 1, both along one direction d of the record: apart
they would cost 1 - r and r. Two records whose directions have the cosine t are no farther apart than

.. math:: J = \max_t [r \max(1/2, 1 - t^2) + (1 - r)(1 + t)/2],

as the squared distance is convex in both scores and in both k, and so is largest where scores are +-1 and k
are 0 or 1. In the start k = s^2 goes with a score of size s at most, and 1/2 falls away: for r <= 1/2 the
distance grows with s, and for r > 1/2 what is not at s = 1 is below 0.5625. Rounding moves a record by less
than the slack that is added: either is turned by sqrt(k) 2^-20 of its size at most (`terms`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from privinf.errors import ArgumentError
from privinf.mechanisms.statistics.block import (
    SMALLEST,
    Args,
    SiteBlock,
    made_finite,
    positions,
    positive,
    vector,
    whole_number,
)
from privinf.mechanisms.statistics.families import at_places, between, exponential, logistic
from privinf.mechanisms.statistics.ops import RecordSensitivity, SiteOp, named
from privinf.mechanisms.statistics.summands import (
    Ball,
    Cells,
    Counts,
    Outer,
    Product,
    RowDirections,
    Square,
)
from privinf.mechanisms.statistics.terms import RowReader, op_of_terms
from privinf.typing import CurvedFamily, Floats
from privinf.validation import check_array, check_choice, check_number
from privinf.wire import Derivations, Statistics

BASIS = ("center", "scale", "intercept", "bits")  # arguments of every statistic
# Arguments of the statistics at a public theta.
MODEL = (
    *BASIS,
    "family",
    "columns",
    "theta",
    "transform",
    "offset",
    "weight",
    "weight_unit",
    "exposure",
    "score_bound",
    "curvature_bound",
    "alpha",
)
# Arguments that rows at theta depend on, whatever their weights.
POINT = (*BASIS, "radius", "family", "columns", "theta", "transform", "offset", "exposure")
# Arguments of the statistics of the dispersion, whose rows have no weights.
DISPERSION = (
    *BASIS,
    "family",
    "columns",
    "theta",
    "transform",
    "exposure",
    "by_count",
    "by_mean",
    "width",
    "mean_unit",
    "low",
    "high",
)
# What rounding moves a vector of length 1 for each root of an entry, twice over: see `terms`.
ROUNDED_ENTRY = 2.0**-19
# A move of the predictor below which the secant is the tangent in its middle, off by 2^-12 / 24 of itself at
# most, as is a secant of tables there.
TANGENT = 2.0**-6
SMALLEST_STEP = 1e-6  # the same without noise, where means are not from tables
COUNTED = ("score", "curvature", "residual")  # sizes of records that can be counted above thresholds


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class _Point:
    """A block's rows at theta, whatever their weights: eta, the exposure, v, m, c, y, e and q."""

    predictor: Floats
    exposure: Floats | float
    v: RowDirections
    mean: Floats
    curvature: Floats
    count: Floats
    error: Floats
    score_size: Floats  # q, of the logistic model only


def _point(rows: RowReader) -> _Point:
    """Return the rows at the theta of a query; the queries of a fit at one theta share them."""

    def make_point() -> _Point:
        args = rows.args
        block = rows.block
        theta = np.asarray(args["theta"], dtype=np.float64)[None]
        placed = rows.read(np.asarray(args["columns"]) if "columns" in args else None)
        forms = placed.forms(np.vstack([theta, np.asarray(args["transform"], dtype=np.float64).T]))
        predictor = forms[0]
        vectors = forms[1:]
        if "intercept" in args:
            predictor += float(args["intercept"])
        if "offset" in args:
            vectors += np.asarray(args["offset"], dtype=np.float64)[:, None]
        exposure: Floats | float = 1.0
        if "exposure" in args:
            exposure = np.maximum(_column(block, int(args["exposure"])), SMALLEST)
        mean, curvature, larger = _mean(args, predictor, exposure, exact=rows.exact)
        y = block.outcome()
        v = RowDirections(vectors, lasting=rows.lasting)
        return _Point(
            predictor=predictor,
            exposure=exposure,
            v=v,
            mean=mean,
            curvature=curvature,
            count=y,
            error=made_finite((np.clip(y, 0.0, 1.0) if args["family"] == "binomial" else y) - mean),
            score_size=v.length * larger,
        )

    return rows.once("point", POINT, make_point)


def _mean(
    args: Args, predictor: Floats, exposure: Floats | float, *, exact: bool
) -> tuple[Floats, Floats, Floats]:
    """Return the mean, its derivative, and the larger of m and 1 - m (of counts, which need none, m)."""
    if args["family"] == "poisson":
        mean = exponential(predictor, exact=exact) * exposure
        return mean, mean, mean
    tail = logistic(predictor, exact=exact)
    larger = 1.0 - tail
    return np.where(predictor < 0.0, tail, larger), tail * larger, larger


class _Rows:
    """A block's rows at theta, with the weights o and w of a query.

    `public` and `weight` are the number 1 where nothing weights the rows.
    """

    __slots__ = ("args", "count", "curvature", "error", "exact", "length", "point", "public", "v", "weight")

    def __init__(self, rows: RowReader) -> None:
        args = rows.args
        self.exact = rows.exact
        self.args = args
        self.point = point = _point(rows)
        self.v = point.v
        self.length = point.v.length
        self.curvature = point.curvature
        self.count = point.count
        self.error = point.error
        self.public: Floats | float = 1.0
        if "weight" in args:
            unit = float(args.get("weight_unit", 1.0))
            self.public = np.maximum(_column(rows.block, int(args["weight"])), 0.0) / unit
        if "alpha" in args:
            self.public = self.public / (1.0 + float(args["alpha"]) * point.mean)
        weight = self.public
        if "curvature_bound" in args:
            weight = np.minimum(weight, args["curvature_bound"] / (self.curvature * np.square(self.length)))
        if "score_bound" in args and args["family"] == "binomial":
            weight = np.minimum(weight, args["score_bound"] / point.score_size)
        self.weight = weight if isinstance(weight, float) else _finite(weight)

    def mean(self, predictor: Floats) -> tuple[Floats, Floats]:
        """Return the mean and its derivative at other predictors."""
        return _mean(self.args, predictor, self.point.exposure, exact=self.exact)[:2]

    def sizes(self) -> Floats:
        """Return |w v e|."""
        return made_finite(self.length * np.abs(self.error) * self.weight)


def _finite(values: Floats) -> Floats:
    """Return values without nan and infinities, in memory of their own where there is one."""
    return values if np.isfinite(values).all() else np.nan_to_num(values)


def _rows(rows: RowReader) -> _Rows:
    """Return the rows at theta with their weights; queries of one theta and the same bounds share them."""
    return rows.once("rows", MODEL, lambda: _Rows(rows))


def _column(block: SiteBlock, position: int) -> Floats:
    """Return one column in its own units."""
    return made_finite(block.columns({}, np.array([position]))[:, 0])


# ---- score and matrix along one direction


def joint_distance(share: float, *, start: bool = False) -> float:
    """Return sqrt J for r = `share`; the matrix of a `start` does not vanish relative to its score."""
    cosine = min((1.0 - share) / (4.0 * share), 1.0)  # where both matrices count
    between = share * (1.0 - cosine**2) + (1.0 - share) * (1.0 + cosine) / 2.0
    aligned = 1.0 - share if start else 1.0 - share / 2.0  # cosine 1
    return math.sqrt(max(between, aligned))


@dataclass(frozen=True, slots=True, kw_only=True)
class OneDirection:
    """A score of norm at most 1 and a matrix k d d', 0 <= k <= 1, both along one direction d of a record.

    They are multiplied by sqrt(1 - r) / 2 and sqrt(r / 2), r = `share`. See the module docstring.
    """

    size: int
    share: float
    start: bool = False

    def factors(self) -> tuple[float, float]:
        """Return the factors of score and matrix."""
        return math.sqrt(1.0 - self.share) / 2.0, math.sqrt(self.share / 2.0)

    def sensitivity(self) -> RecordSensitivity:
        """Return the largest distance of two records, with what rounding may add."""
        a, b = self.factors()
        slack = ROUNDED_ENTRY * math.sqrt(self.size) * (a + 2.0 * b)
        return RecordSensitivity(
            shape=(self.size + self.size * (self.size + 1) // 2,),
            l2=joint_distance(self.share, start=self.start) + 2.0 * slack,
            linf=max(2.0 * a, math.sqrt(2.0) * b) + slack,
            bound=max(a, b),
            derivation=Derivations.ONE_DIRECTION,
            norm=math.hypot(a, b) + slack,
        )

    def terms(self, score: Floats, v: RowDirections, size: Floats) -> tuple[Product, Square]:
        """Return scores of size `score` along v, and matrices of v times `size`."""
        a, b = self.factors()
        matrices = Square(vectors=v.vectors, top=1.0, length=v.length * size, factor=b, size=size)
        return Product(score, 1.0, v, a), matrices


# ---- the statistics


def _check_model(args: Args, columns: int) -> int:
    """Check the common arguments of statistics at theta, and return the number of whitened columns."""
    check_choice(args.get("family"), CurvedFamily, "family")
    used = len(positions(args, "columns", columns)) if "columns" in args else columns
    vector(args, "theta", used)
    transform = check_array(args.get("transform", ()), "transform", ndim=2)
    widest = used + ("offset" in args)
    if transform.shape[0] != used or not 1 <= transform.shape[1] <= widest:
        raise ArgumentError(
            f"argument 'transform' of the statistic must be a matrix with {used} rows (one for each "
            f"column of the regression) and 1 to {widest} columns"
        )
    if "offset" in args:
        vector(args, "offset", transform.shape[1])
    if "exposure" in args and args["family"] != "poisson":
        raise ArgumentError("argument 'exposure' of the statistic can be used only with family='poisson'")
    if "alpha" in args:
        check_number(args["alpha"], "alpha", low=0.0)
        if args["family"] != "poisson":
            raise ArgumentError("argument 'alpha' of the statistic can be used only with family='poisson'")
    for name in {"weight", "exposure"} & set(args):
        if whole_number(args, name) >= columns:
            raise ArgumentError(f"argument {name!r} of the statistic must be a column number below {columns}")
    for name in {"score_bound", "curvature_bound", "weight_unit"} & set(args):
        positive(args, name)
    return int(transform.shape[1])


def _check_share(args: Args) -> float:
    return check_number(args.get("share"), "share", low=0.01, high=0.99)


def _start_summand(args: Args, columns: int) -> OneDirection:
    if not len(chosen := positions(args, "block", columns)):
        raise ArgumentError("argument 'block' of the statistic must contain at least one column number")
    positive(args, "radius")
    return OneDirection(size=len(chosen), share=_check_share(args), start=True)


def _start(rows: RowReader, summand: OneDirection) -> tuple[Product, Square]:
    block = rows.block
    radius = float(rows.args["radius"])
    x = RowDirections(rows.read(np.asarray(rows.args["block"])).columns())
    length = x.length
    low = block.response_low
    high = block.response_high
    y = made_finite((block.outcome() - low) / (high - low))
    score = (2.0 * np.clip(y, 0.0, 1.0) - 1.0) * np.minimum(length / radius, 1.0)
    return summand.terms(score, x, 1.0 / np.maximum(length, radius))


def _step_summand(args: Args, columns: int) -> OneDirection:
    size = _check_model(args, columns)
    positive(args, "score_bound"), positive(args, "curvature_bound")
    return OneDirection(size=size, share=_check_share(args))


def _step(rows: RowReader, summand: OneDirection) -> tuple[Product, Square]:
    at = _rows(rows)
    args = rows.args
    score = np.copysign(at.sizes() / float(args["score_bound"]), at.error)
    size = made_finite(np.sqrt(at.weight * at.curvature / float(args["curvature_bound"])))
    return summand.terms(score, at.v, size)


def _counts_summand(args: Args, columns: int) -> Cells:
    _check_model(args, columns)
    if check_choice(args.get("of"), COUNTED, "of") == "score" and args["family"] != "binomial":
        raise ArgumentError(
            "scores can be counted only with family='binomial': pass of='residual' to count residuals"
        )
    return Cells.from_args(args)


def _counts(rows: RowReader, cells: Cells) -> tuple[Counts]:
    at = _rows(rows)
    if rows.args["of"] == "score":
        return (cells.counts(made_finite(at.public * at.point.score_size)),)
    if rows.args["of"] == "curvature":
        return (cells.counts(made_finite(at.weight * at.curvature * np.square(at.length))),)
    return (cells.counts(at.sizes()),)


def _score_summand(args: Args, columns: int) -> Ball:
    size = _check_model(args, columns)
    low = check_number(args.get("low", 0.0), "low", low=0.0)
    if not (top := positive(args, "high") - low) > 0.0:
        raise ArgumentError(
            "argument 'high' of the statistic (upper limit of the scores) must be larger than its "
            "argument 'low'"
        )
    return Ball(size=size, top=top, derivation=Derivations.LAYER_OF_SCORES)


def _score(rows: RowReader, ball: Ball) -> tuple[Product]:
    at = _rows(rows)
    score = np.clip(at.sizes() - float(rows.args.get("low", 0.0)), 0.0, ball.top)
    return (ball.product(np.copysign(score, at.error), at.v),)


def _layers(args: Args) -> tuple[float, float, float]:
    """Return where the layers end, and the upper one's factor; without `middle` there is one layer."""
    high = float(args["high"])
    return float(args.get("middle", high)), high, float(args.get("upper", 1.0))


def _meat_summand(args: Args, columns: int) -> Outer:
    size = _check_model(args, columns)
    positive(args, "high")
    for name in {"middle", "upper"} & set(args):
        positive(args, name)
    middle, high, upper = _layers(args)
    if middle > high:
        raise ArgumentError(
            "argument 'middle' of the statistic (a limit of the scores) must not be larger than its "
            "argument 'high'"
        )
    return Outer(size=size, top=middle + upper * (high - middle))


def _meat(rows: RowReader, outer: Outer) -> tuple[Square]:
    at = _rows(rows)
    middle, high, upper = _layers(rows.args)
    t = at.sizes()
    size = np.minimum(t, middle) + upper * np.clip(t - middle, 0.0, high - middle)
    return (outer.matrices(at.v.vectors, size, size / np.maximum(at.length, SMALLEST)),)


def _secant_summand(args: Args, columns: int) -> Outer:
    vector(args, "step", size := _check_model(args, columns))
    bound = positive(args, "clip")
    return Outer(size=size, top=math.sqrt(bound), square=bound)


def _secant(rows: RowReader, outer: Outer) -> tuple[Square]:
    at = _rows(rows)
    move = np.zeros_like(at.length)
    for entry, step in zip(at.v.vectors, np.asarray(rows.args["step"], dtype=np.float64), strict=True):
        move += entry * step
    move = made_finite(move)
    smallest_step = TANGENT if rows.exact else SMALLEST_STEP
    middle = at.mean(at.point.predictor + 0.5 * move)[1]
    ends = at.mean(at.point.predictor + move)[0] - at.point.mean
    apart = np.copysign(np.maximum(np.abs(move), smallest_step), move)
    slope = np.where(np.abs(move) < smallest_step, middle, ends / apart)
    size = np.sqrt(np.maximum(made_finite(slope * at.weight), 0.0))
    return (outer.matrices(at.v.vectors, at.length * size, size),)


# ---- the dispersion


def _check_dispersion(args: Args, columns: int) -> tuple[float, float]:
    """Check the arguments of the statistics of the dispersion, and return the ends of psi."""
    _check_model(args, columns)
    if args["family"] != "poisson":
        raise ArgumentError("argument 'family' of the statistic must be 'poisson', the family of its means")
    by_count = check_array(args.get("by_count", ()), "by_count", ndim=2)
    by_mean = check_array(args.get("by_mean", ()), "by_mean", ndim=2)
    if by_count.shape[0] != 2 or by_mean.shape[0] != 3 or by_count.shape[1] < 1 or by_mean.shape[1] < 2:
        raise ArgumentError(
            "arguments 'by_count' and 'by_mean' of the statistic must be tables of 2 and of 3 rows, with an "
            "entry for each cell of the counts, and for two or more places of the mean"
        )
    positive(args, "width"), positive(args, "mean_unit")
    low = check_number(args.get("low"), "low", high=0.0)
    high = check_number(args.get("high"), "high", low=0.0)
    if not high > low:
        raise ArgumentError(
            "argument 'high' of the statistic (upper end of its values) must be larger than its argument "
            "'low'"
        )
    return low, high


def _dispersion_values(rows: RowReader) -> Floats:
    """Return psi of each row."""
    args = rows.args
    at = _rows(rows)
    by_count = np.asarray(args["by_count"], dtype=np.float64)
    by_mean = np.asarray(args["by_mean"], dtype=np.float64)
    cells = by_count.shape[1] - 1
    pieces = by_mean.shape[1] - 1
    cell = np.floor(np.clip(made_finite(at.count) / float(args["width"]), 0.0, cells)).astype(np.intp)
    place = at.curvature / (float(args["mean_unit"]) + at.curvature) * pieces
    floor = np.floor(np.clip(place, 0.0, pieces - 1))
    share = np.clip(place - floor, 0.0, 1.0)
    index = floor.astype(np.intp)
    r, s, e = (between((table, np.append(np.diff(table), 0.0)), index, share.copy()) for table in by_mean)
    values = r * at_places(by_count[0], cell) - s * at_places(by_count[1], cell) - e
    return np.clip(made_finite(values), float(args["low"]), float(args["high"]))


def _dispersion_summand(args: Args, columns: int) -> Ball:
    low, high = _check_dispersion(args, columns)
    return Ball(size=1, top=max(-low, high), apart=high - low, derivation=Derivations.BETWEEN_ENDS)


def _dispersion(rows: RowReader, ball: Ball) -> tuple[Product]:
    values = _dispersion_values(rows)
    return (ball.product(values, RowDirections(np.ones_like(values)[None])),)


def _dispersion_meat_summand(args: Args, columns: int) -> Outer:
    low, high = _check_dispersion(args, columns)
    return Outer(size=1, top=max(-low, high))


def _dispersion_meat(rows: RowReader, outer: Outer) -> tuple[Square]:
    values = _dispersion_values(rows)
    return (outer.matrices(values[None], np.abs(values)),)


CURVED_OPS: dict[str, SiteOp] = named(
    op_of_terms(
        name=Statistics.CURVED_START,
        summand=_start_summand,
        terms=_start,
        arguments=(*BASIS, "block", "radius", "share"),
    ),
    op_of_terms(name=Statistics.CURVED_STEP, summand=_step_summand, terms=_step, arguments=(*MODEL, "share")),
    op_of_terms(
        name=Statistics.CURVED_COUNTS,
        summand=_counts_summand,
        terms=_counts,
        arguments=(*MODEL, "of", "thresholds"),
    ),
    op_of_terms(
        name=Statistics.CURVED_SCORE,
        summand=_score_summand,
        terms=_score,
        arguments=(*MODEL, "low", "high"),
    ),
    op_of_terms(
        name=Statistics.CURVED_MEAT,
        summand=_meat_summand,
        terms=_meat,
        arguments=(*MODEL, "middle", "high", "upper"),
    ),
    op_of_terms(
        name=Statistics.CURVED_SECANT,
        summand=_secant_summand,
        terms=_secant,
        arguments=(*MODEL, "step", "clip"),
    ),
    op_of_terms(
        name=Statistics.CURVED_DISPERSION,
        summand=_dispersion_summand,
        terms=_dispersion,
        arguments=DISPERSION,
    ),
    op_of_terms(
        name=Statistics.CURVED_DISPERSION_MEAT,
        summand=_dispersion_meat_summand,
        terms=_dispersion_meat,
        arguments=DISPERSION,
    ),
)
