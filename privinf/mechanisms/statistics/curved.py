r"""Sums from which logistic and Poisson models are fitted in whitened units, with their sensitivities.

x stands for (clip(x, bounds) - center) / scale and eta = x'theta + intercept at a public theta; m is the
mean at eta, c its derivative, e = y - m, y inside its public bounds; v = T'x for a public matrix T. Every row
has a public weight o (1, or the column `weight` over `weight_unit`, where that is positive), and eta the log
of the column `exposure`. Of many columns x may hold `columns` alone, and v a public `offset`, T's row of a
constant that is no column: neither is in what bounds a record. What a record adds is bounded by these norms,
whatever x, y, theta and T are:

- weights **in x alone**, w = o min(1, B / (o q), K / (o k)): q = |v| max(m, 1 - m) bounds the logistic score
  and k = c |v|^2 is the norm of the Hessian. The same w stand in score and Hessian, so that a right mean
  keeps its coefficients. Poisson scores have no such bound in x: they are shrunk to the norm B.
- ``curved.start``: x (y' - 1/2) and x x' of the columns `block`, |x| <= R, y' the response in [0, 1];
- ``curved.step``: w v e and w c v v';
- ``curved.counts``: how many records have o q, w k or w |v e| above thresholds, see `tails`;
- ``curved.score``: v e w / |v e w| clip(|v e w| - low, 0, high - low), one layer of the scores, of norm
  C = high - low at most: 2 C;
- ``curved.meat``: sum u u', u = both layers with the upper one times `upper`: |u| <= U = middle +
  upper (high - middle), sqrt 2 U^2 (U^2 for one column);
- ``curved.secant``: sum g v v', g the slope of the mean between eta and eta + v'step, times the weights of
  the score, and g |v|^2 <= K: sqrt 2 K.

**Two sums at once.** ``curved.start`` and ``curved.step`` add a = sqrt(1 - r) / 2 times a score of norm at
most 1 and b = sqrt(r / 2) times a matrix k d d', 0 <= k <= 1, both along one direction d of the record: apart
they would cost 1 - r and r. Two records whose directions have the cosine t are no farther apart than

.. math:: J = \max_t [r \max(1/2, 1 - t^2) + (1 - r)(1 + t)/2],

as the squared distance is convex in both scores and in both k, and so is largest where scores are +-1 and k
are 0 or 1. In the start k = s^2 goes with a score of size s at most, and 1/2 falls away: for r <= 1/2 the
distance grows with s, and for r > 1/2 what is not at s = 1 is below .5625. Rounding moves a record by less
than the slack that is added.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import expit

from privinf.errors import ArgumentError, SensitivityError
from privinf.mechanisms.statistics.block import (
    SMALLEST,
    Args,
    SiteBlock,
    clip_norms,
    cut_sum,
    digits,
    made_finite,
    positions,
    positive,
    rounded,
    unit_of,
    vector,
    whole_number,
)
from privinf.mechanisms.statistics.ops import Reach, SiteOp, named
from privinf.mechanisms.statistics.regression import ROOT2_BITS, isometric_pairs
from privinf.mechanisms.statistics.tails import counted, counted_reach
from privinf.typing import CurvedFamily, Floats
from privinf.validation import check_array, check_choice, check_number

BASIS = ("center", "scale", "intercept", "bits")
MODEL = (
    *BASIS, "family", "columns", "theta", "transform", "offset", "weight", "weight_unit", "exposure",
    "score_bound", "curvature_bound",
)  # fmt: skip
# Fewest digits of a number and of a factor of a matrix: up to sixteen million rows.
FEWEST_DIGITS, FEWEST_FACTOR = 28, 10
# Poisson means stop here, so that no product overflows; below this step the secant is the tangent.
LARGEST_PREDICTOR, TANGENT = 60.0, 1e-6
COUNTED = ("score", "curvature", "residual")


class _Rows:
    """A block's rows at theta: eta, v, |v|^2, c, e, o and w."""

    __slots__ = ("curvature", "error", "length2", "predictor", "public", "v", "weight")

    def __init__(self, block: SiteBlock, args: Args) -> None:
        x = block.columns(args, np.asarray(args["columns"]) if "columns" in args else None)
        self.predictor = made_finite(x @ np.asarray(args["theta"], dtype=np.float64))
        self.predictor += float(args.get("intercept", 0.0))
        if "exposure" in args:
            self.predictor += np.log(np.maximum(_column(block, int(args["exposure"])), SMALLEST))
        self.v = x @ np.asarray(args["transform"], dtype=np.float64)
        self.v = made_finite(self.v + np.asarray(args.get("offset", 0.0)))
        self.length2 = np.einsum("ij,ij->i", self.v, self.v)
        mean, self.curvature = _mean(args["family"], self.predictor)
        binomial = args["family"] == "binomial"
        y = block.outcome()
        self.error = made_finite((np.clip(y, 0.0, 1.0) if binomial else y) - mean)
        self.public = np.ones(len(block))
        if "weight" in args:
            unit = float(args.get("weight_unit", 1.0))
            self.public = np.maximum(_column(block, int(args["weight"])), 0.0) / unit
        self.weight = self.public.copy()
        if "curvature_bound" in args:
            self.weight = np.minimum(self.weight, args["curvature_bound"] / (self.curvature * self.length2))
        if "score_bound" in args and binomial:
            self.weight = np.minimum(self.weight, args["score_bound"] / self.largest(mean))
        made_finite(self.weight)

    def largest(self, mean: Floats | None = None) -> Floats:
        """Return q without the public weight."""
        mean = expit(self.predictor) if mean is None else mean
        return np.asarray(np.sqrt(self.length2) * np.maximum(mean, 1.0 - mean))

    def scores(self) -> Floats:
        """Return w v e, shape (rows, k)."""
        return made_finite(self.v * (self.weight * self.error)[:, None])


def _column(block: SiteBlock, position: int) -> Floats:
    """Return one column in its own units."""
    return made_finite(block.columns({}, np.array([position]))[:, 0])


def _mean(family: str, predictor: Floats) -> tuple[Floats, Floats]:
    """Return the mean and its derivative."""
    if family == "poisson":
        mean = np.exp(np.minimum(predictor, LARGEST_PREDICTOR))
        return mean, mean
    mean = expit(predictor)
    return mean, mean * expit(-predictor)


# ---- what is summed


def _joint(scores: Floats, factors: Floats, share: float, args: Args) -> Floats:
    """Return both sums of records' scores and matrix factors of norm at most 1."""
    a, b = math.sqrt(1.0 - share) / 2.0, math.sqrt(share / 2.0)
    scores *= a
    return np.concatenate([
        cut_sum(clip_norms(scores, a), a, args),
        _matrix(np.multiply(factors, math.sqrt(b), out=factors), math.sqrt(b), args),
    ])  # fmt: skip


def _matrix(factors: Floats, top: float, args: Args) -> Floats:
    """Return the isometric entries of the sum of f f', factors shrunk to norm `top`."""
    unit = unit_of(top, _factor_digits(args))
    f, unit = rounded(clip_norms(factors, top, unit), unit, top)
    rows, columns, isometric = isometric_pairs(f.shape[1])
    return np.asarray((f.T @ f)[rows, columns] * unit**2 * isometric, dtype=np.float64)


def _factor_digits(args: Args) -> int:
    bits = digits(args)[0]
    if not bits:
        return 0
    if bits < FEWEST_DIGITS:
        raise SensitivityError("so many rows leave a matrix too few digits for an exact sum")
    return (bits - ROOT2_BITS) // 2


def _start(block: SiteBlock, args: Args) -> Floats:
    chosen, radius = np.asarray(args["block"]), float(args["radius"])
    x = clip_norms(block.columns(args, chosen), radius)
    x *= 1.0 / radius
    low, high = block.response_low, block.response_high
    y = made_finite((block.outcome() - low) / (high - low))
    return _joint(x * (2.0 * np.clip(y, 0.0, 1.0) - 1.0)[:, None], x, float(args["share"]), args)


def _step(block: SiteBlock, args: Args) -> Floats:
    rows = _Rows(block, args)
    scores = rows.scores()
    scores *= 1.0 / float(args["score_bound"])
    size = np.sqrt(rows.weight * rows.curvature / float(args["curvature_bound"]))
    return _joint(scores, rows.v * size[:, None], float(args["share"]), args)


def _counts(block: SiteBlock, args: Args) -> Floats:
    rows = _Rows(block, args)
    if args["of"] == "score":
        return counted(made_finite(rows.public * rows.largest()), args)
    if args["of"] == "curvature":
        return counted(made_finite(rows.weight * rows.curvature * rows.length2), args)
    return counted(made_finite(rows.weight * np.sqrt(rows.length2) * np.abs(rows.error)), args)


def _score(block: SiteBlock, args: Args) -> Floats:
    low, high = float(args.get("low", 0.0)), float(args["high"])
    return cut_sum(clip_norms(_layer(_Rows(block, args).scores(), low, high), high - low), high - low, args)


def _layer(scores: Floats, low: float, high: float) -> Floats:
    """Return what of the scores' lengths lies between `low` and `high`, along them."""
    length = np.sqrt(np.einsum("ij,ij->i", scores, scores))
    size = np.clip(length - low, 0.0, high - low) / np.maximum(length, np.finfo(float).tiny)
    return made_finite(scores * size[:, None])


def _meat(block: SiteBlock, args: Args) -> Floats:
    scores, (middle, high, upper) = _Rows(block, args).scores(), _layers(args)
    u, top = _layer(scores, 0.0, middle), _longest(args)
    if high > middle:
        u += upper * _layer(scores, middle, high)
    return _matrix(u, top, args)


def _secant(block: SiteBlock, args: Args) -> Floats:
    rows, bound = _Rows(block, args), float(args["clip"])
    move = made_finite(rows.v @ np.asarray(args["step"], dtype=np.float64))
    near = np.abs(move) < TANGENT
    ends = _mean(args["family"], rows.predictor + move)[0] - _mean(args["family"], rows.predictor)[0]
    slope = np.where(near, rows.curvature, ends / np.where(near, 1.0, move))
    size = np.sqrt(np.maximum(made_finite(slope * rows.weight), 0.0))
    return _matrix(rows.v * size[:, None], math.sqrt(bound), args)


# ---- how far one record moves it


def joint_distance(share: float, *, start: bool = False) -> float:
    """Return sqrt J for r = `share`; of a `start`, whose matrix does not vanish beside its score."""
    both = min((1.0 - share) / (4.0 * share), 1.0)  # the cosine where both matrices count
    most = share * (1.0 - both**2) + (1.0 - share) * (1.0 + both) / 2.0
    one = 1.0 - share if start else 1.0 - share / 2.0  # cosine 1
    return math.sqrt(max(most, one))


def _check_model(args: Args, columns: int) -> int:
    """Check what every statistic takes at theta, and return the number of whitened columns."""
    check_choice(args.get("family"), CurvedFamily, "family")
    used = len(positions(args, "columns", columns)) if "columns" in args else columns
    vector(args, "theta", used)
    transform = check_array(args.get("transform", ()), "transform", ndim=2)
    most = used + ("offset" in args)
    if transform.shape[0] != used or not 1 <= transform.shape[1] <= most:
        raise ArgumentError(f"transform must have {used} rows, and at most {most} columns")
    if "offset" in args:
        vector(args, "offset", transform.shape[1])
    for name in {"weight", "exposure"} & set(args):
        if whole_number(args, name) >= columns:
            raise ArgumentError(f"{name} must be a position below {columns}")
    for name in {"score_bound", "curvature_bound", "weight_unit"} & set(args):
        positive(args, name)
    return int(transform.shape[1])


def _joint_reach(size: int, args: Args, *, start: bool) -> Reach:
    share = check_number(args.get("share"), "share", low=0.01, high=0.99)
    a, b = math.sqrt(1.0 - share) / 2.0, math.sqrt(share / 2.0)
    # A number is cut by less than a unit, a factor's entry moved by half of one.
    slack = 2.0 * math.sqrt(size) * (a * 2.0 ** (1 - FEWEST_DIGITS) + 2.0 * b * 2.0**-FEWEST_FACTOR)
    l2 = joint_distance(share, start=start) + 2.0 * slack
    why = "score and matrix of one direction a record, at once"
    shape = (size + size * (size + 1) // 2,)
    return Reach(
        shape, l2, max(2.0 * a, math.sqrt(2.0) * b) + slack, max(a, b), why, math.hypot(a, b) + slack
    )


def _start_reach(args: Args, columns: int) -> Reach:
    if not len(chosen := positions(args, "block", columns)):
        raise ArgumentError("block must name at least one column")
    positive(args, "radius")
    return _joint_reach(len(chosen), args, start=True)


def _step_reach(args: Args, columns: int) -> Reach:
    size = _check_model(args, columns)
    positive(args, "score_bound"), positive(args, "curvature_bound")
    return _joint_reach(size, args, start=False)


def _counts_reach(args: Args, columns: int) -> Reach:
    _check_model(args, columns)
    if check_choice(args.get("of"), COUNTED, "of") == "score" and args["family"] != "binomial":
        raise ArgumentError("scores of this family have no bound in x: count of='residual'")
    return counted_reach(args)


def _score_reach(args: Args, columns: int) -> Reach:
    size, low = _check_model(args, columns), check_number(args.get("low", 0.0), "low", low=0.0)
    if not (top := positive(args, "high") - low) > 0.0:
        raise ArgumentError("high must be above low")
    return Reach.ball((size,), top, "2C, a layer of the scores of norm C at most")


def _layers(args: Args) -> tuple[float, float, float]:
    """Return where the layers end, and the upper one's factor; without `middle` there is one layer."""
    high = float(args["high"])
    return float(args.get("middle", high)), high, float(args.get("upper", 1.0))


def _longest(args: Args) -> float:
    middle, high, upper = _layers(args)
    return middle + upper * (high - middle)


def _meat_reach(args: Args, columns: int) -> Reach:
    size = _check_model(args, columns)
    positive(args, "high")
    for name in {"middle", "upper"} & set(args):
        positive(args, name)
    if _layers(args)[0] > float(args["high"]):
        raise ArgumentError("middle must not be above high")
    top = _longest(args) ** 2
    return _matrix_reach(size, top)


def _secant_reach(args: Args, columns: int) -> Reach:
    vector(args, "step", size := _check_model(args, columns))
    return _matrix_reach(size, positive(args, "clip"))


def _matrix_reach(size: int, top: float) -> Reach:
    shape, why = (size * (size + 1) // 2,), "distance of two bounded rank-one matrices"
    if size == 1:
        return Reach(shape, top, top, top, why, top)
    return Reach(shape, math.sqrt(2.0) * top, math.sqrt(2.0) * top, top, why, top)


CURVED_OPS: dict[str, SiteOp] = named(
    SiteOp("curved.start", _start, _start_reach, (*BASIS, "block", "radius", "share")),
    SiteOp("curved.step", _step, _step_reach, (*MODEL, "share")),
    SiteOp("curved.counts", _counts, _counts_reach, (*MODEL, "of", "thresholds")),
    SiteOp("curved.score", _score, _score_reach, (*MODEL, "low", "high")),
    SiteOp("curved.meat", _meat, _meat_reach, (*MODEL, "middle", "high", "upper")),
    SiteOp("curved.secant", _secant, _secant_reach, (*MODEL, "step", "clip")),
)
