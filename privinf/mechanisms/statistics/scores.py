"""Sums of clipped scores, target by target, and of clipped linear forms of a record.

**Whole products.** With u_j = T_j'x - o_j, r the residual, m targets and s_j = clip(u_j r, B) / B, a record
adds to ``target_scores``

    s_j,   3/2 s_j^2,   c clip(u_j x_j 1(|u_j r| < B), -a/2, a) / a   for every target,
    g clip(mean_j h_j u_j x_j 1(|u_j r| < B), -d/2, d) / d            once.

Of all scores moved by at most 2 B by one record, the clipped product is the most precise for its slope: it
clips what is large in the product, not a factor. The slopes' products have a positive mean, and rarely are
far below zero; their average over many targets, with public weights h_j, is alike for all records, so d may
be small. The offsets o_j are public, 0 by default; whatever they are, s_j is clipped.

Replacing a record moves a target's first two entries by s - t and 3/2 (s^2 - t^2), where y = |s - t| and
|s + t| add up to at most 2:

    (s - t)^2 + 9/4 (s^2 - t^2)^2 <= y^2 [1 + 9/4 (2 - y)^2] <= 4   on [0, 2],

with equality at s = -t = 1, where the squares agree: next to a score its variance is free. The slopes move by
up to 3/2 c, the average by up to 3/2 g: the vector's l2 sensitivity is ``sqrt(m (4 + 9/4 c^2) + 9/4 g^2)``,
that of one target's entries and the average the same with m = 1. Records whose products stand just inside
B attain it.

On a grid of unit d the squares are those of the rounded s_j, cut toward zero: equal where the scores are
opposite, else up to d farther apart. With z = |s + t| >= d and y <= 2 - z, y^2 + (3/2 y z + d)^2 is below 4
for d <= 1/8; for d = 1/4 all pairs on the grid were compared. A unit of 1/2 would allow 9/2 and is refused.

**Vectors.** ``product_vector`` and ``column_product_vector`` sum products of a record that are shrunk as one
vector to a public norm.

**Forms.** Pi_Rw cuts every form w_j'x_A to [-R_w, R_w], Pi_R the residual to [-R, R]. One record's entries
move by, in l_inf:

- ``paper_variances``: sum Pi_Rw(w_j'x)^2 Pi_R(r)^2, the squares of the scores, R_w^2 R^2;
- ``quadratic_forms``: sum Pi_Rv(v_k'x)^2, R_v^2;
- ``form_sums``: sum Pi_c(w_j'x), 2c; in l2 2c sqrt m for m forms, attained by opposite records far out;
- ``multiplier_scores``: sum e Pi_Rw(w_j'x) Pi_R(r) for several draws of public multipliers e, 2 R_w R max|e|.
  e is a function of (seed, site, position) alone: the replaced record keeps it. Gaussian multipliers are
  clipped at the public ``multiplier_bound``. This sum alone is of doubles that are cut, in blocks whose size
  goes by the number of draws: it depends on the places of rows, so that no other order has it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from privinf.errors import ArgumentError
from privinf.mechanisms.philox import words_run
from privinf.mechanisms.statistics.block import (
    Args,
    SiteBlock,
    clipped,
    digits,
    made_finite,
    positions,
    positive,
    rounded,
    unit_of,
    vector,
    whole_number,
)
from privinf.mechanisms.statistics.layers import width_of_forms
from privinf.mechanisms.statistics.ops import COMMON, RecordSensitivity, SiteOp, named
from privinf.mechanisms.statistics.regression import (
    clipped_products,
    column_products,
    forms,
    leading_size,
)
from privinf.mechanisms.statistics.summands import (
    NUMBER_DIGITS,
    Box,
    Cross,
    CrossProducts,
    NonNegative,
    Numbers,
    ReplaceOnly,
    stated,
)
from privinf.mechanisms.statistics.terms import RowReader, op_of_terms, residual
from privinf.typing import Floats
from privinf.validation import check_choice
from privinf.wire import Derivations, Statistics

SQUARE_WEIGHT = 1.5  # the largest at which squares are free beside scores, see above
LARGEST_UNIT = 0.25  # of scores on their grid: squares are free on this one and on all finer ones, see above
MULTIPLIERS = ("rademacher", "gaussian")  # of the multipliers
MOST_DRAWS = 100_000  # of the multipliers
FORM_ARGUMENTS = (*COMMON, "columns", "transform", "clip")  # arguments of statistics of linear forms
_SCORES = (*FORM_ARGUMENTS, "residual_clip")  # and of those with residuals


def target_scores(rows: RowReader, scores: ScoresWithSquares) -> tuple[Numbers]:
    """Return the sum of scores, squares and slopes of m targets and of the average slope, (3 m + 1,)."""
    args = rows.args
    bound = float(args["bound"])
    u = forms(rows)
    if "offsets" in args:
        u = u - np.asarray(args["offsets"], dtype=np.float64)[:, None]
    products = u * residual(rows)
    slopes = u * rows.read(np.asarray(args["targets"])).columns()
    slopes *= np.abs(products) < bound
    made_finite(slopes)
    average = np.zeros(slopes.shape[1])
    for weight, slope in zip(np.asarray(args["weights"], dtype=np.float64), slopes, strict=True):
        average += slope * (weight / len(slopes))
    average /= float(args["average_clip"])
    products /= bound
    slopes /= float(args["slope_clip"])
    return (scores.numbers(products, slopes, average, rows.digits),)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoresWithSquares:
    """What a record adds to `target_scores`: the squares are free in addition to the scores, see above."""

    targets: int
    slope_weight: float
    average_weight: float

    @property
    def bound(self) -> float:
        """Largest absolute entry."""
        return max(SQUARE_WEIGHT, self.slope_weight, self.average_weight)

    def unit(self, digits: int) -> float:
        """Return the unit of the grid on which all entries are."""
        return unit_of(self.bound, min(digits, NUMBER_DIGITS))

    def sensitivity(self) -> RecordSensitivity:
        """Return the largest distance of two records."""
        slope = self.slope_weight
        average = self.average_weight
        return RecordSensitivity(
            shape=(3 * self.targets + 1,),
            l2=math.sqrt(self.targets * (4.0 + 2.25 * slope**2) + 2.25 * average**2),
            linf=max(2.0, 1.5 * slope, 1.5 * average),
            bound=self.bound,
            derivation=Derivations.TARGET_SCORES,
        )

    def numbers(self, products: Floats, slopes: Floats, average: Floats, digits: int) -> Numbers:
        """Return the sum of scores, squares, slopes and average of rows, in shares of their clips.

        Squares are those of the scores as they are summed; (m, rows), the average (rows,).
        """
        scores = Numbers.cut_from(clipped(products, 1.0), self.bound, digits)
        squares = np.square(scores.steps * scores.unit)
        squares *= SQUARE_WEIGHT
        others = (
            squares,
            _between(slopes, self.slope_weight),
            _between(average[None], self.average_weight),
        )
        steps = [Numbers.cut_from(values, self.bound, digits).steps for values in others]
        return Numbers(np.concatenate([scores.steps, *steps]), scores.unit)


def _between(shares: Floats, weight: float) -> Floats:
    """Return weight x clip(shares, -1/2, 1), in place."""
    np.clip(np.nan_to_num(shares, copy=False), -0.5, 1.0, out=shares)
    shares *= weight
    return shares


def _scores_summand(args: Args, columns: int) -> ScoresWithSquares:
    size = width_of_forms(args, columns)
    if len(positions(args, "targets", columns)) != size:
        raise ArgumentError(
            f"argument 'targets' of the statistic must contain {size} column numbers, one for each "
            "column of its argument 'transform'"
        )
    vector(args, "weights", size)
    if "offsets" in args:
        vector(args, "offsets", size)
    for name in ("bound", "slope_clip", "average_clip"):
        positive(args, name)
    scores = ScoresWithSquares(
        targets=size,
        slope_weight=positive(args, "slope_weight"),
        average_weight=positive(args, "average_weight"),
    )
    if scores.unit(digits(args)[0] or NUMBER_DIGITS) > LARGEST_UNIT:
        raise ArgumentError(
            "argument 'bits' of the statistic is too small for scores and their squares: use more bits, or "
            "smaller weights 'slope_weight' and 'average_weight'"
        )
    return scores


SINGLE_OPS: dict[str, SiteOp] = named(
    op_of_terms(
        name=Statistics.TARGET_SCORES,
        summand=_scores_summand,
        terms=target_scores,
        arguments=(
            *COMMON,
            "columns",
            "transform",
            "bound",
            "targets",
            "weights",
            "offsets",
            "slope_clip",
            "slope_weight",
            "average_clip",
            "average_weight",
        ),
        aligned=True,
    ),
)


def clipped_forms(block: SiteBlock, args: Args) -> Floats:
    """Return Pi_Rw(T'x_A), every entry cut to [-R_w, R_w], shape (rows, m)."""
    x = block.columns(args, np.asarray(args["columns"]))
    return clipped(x @ np.asarray(args["transform"], dtype=np.float64), float(args["clip"]))


def paper_variances(rows: RowReader, squares: NonNegative) -> tuple[Numbers]:
    """Return the sums of Pi_Rw(w_j'x)^2 Pi_R(r)^2, shape (m,)."""
    scores = clipped(forms(rows), float(rows.args["clip"]))
    scores *= residual(rows, float(rows.args["residual_clip"]))
    return (squares.squares(scores, rows.digits),)


def _paper_variances_summand(args: Args, columns: int) -> NonNegative:
    top = (positive(args, "clip") * positive(args, "residual_clip")) ** 2
    width = width_of_forms(args, columns)
    return NonNegative(shape=(width,), bound=top, derivation=Derivations.BOOTSTRAP_VARIANCES)


def quadratic_forms(rows: RowReader, squares: NonNegative) -> tuple[Numbers]:
    """Return the sums of Pi_Rv(v_k'x)^2 (Algorithm 5), shape (m,)."""
    return (squares.squares(forms(rows), rows.digits),)


def form_sums(rows: RowReader, box: Box) -> tuple[Numbers]:
    """Return the sums of Pi_c(w_j'x), shape (m,)."""
    return (box.numbers(forms(rows), rows.digits),)


def _form_sums_summand(args: Args, columns: int) -> Box:
    width = width_of_forms(args, columns)
    return Box(shape=(width,), bound=positive(args, "clip"), derivation=Derivations.FORM_SUMS)


def _quadratic_summand(args: Args, columns: int) -> NonNegative:
    top = positive(args, "clip") ** 2
    width = width_of_forms(args, columns)
    return NonNegative(shape=(width,), bound=top, derivation=Derivations.QUADRATIC_FORMS)


def multipliers(block: SiteBlock, args: Args) -> Floats:
    """Return the public multipliers of a block's rows, shape (draws, rows): by (seed, site, position)."""
    draws = int(args["draws"])
    seed = int(args["seed"])
    rows = len(block)
    if args["law"] == "rademacher":
        per = -(-draws // 64)
        words = words_run(seed, block.stream, block.start * per, rows * per).reshape(rows, per)
        flags = np.unpackbits(words.astype("<u8").view(np.uint8), axis=1, bitorder="little")[:, :draws]
        return np.asarray(flags.T * 2.0 - 1.0, dtype=np.float64)
    words = words_run(seed, block.stream, block.start * draws, rows * draws).reshape(rows, draws)
    normal = ndtri(((words >> np.uint64(11)) + 0.5) * 2.0**-53)
    return clipped(normal.T, float(args["multiplier_bound"]))


def multiplier_scores(block: SiteBlock, args: Args) -> Floats:
    """Return sum e Pi_Rw(w_j'x) Pi_R(r) for every draw of e (Algorithm 7), shape (draws, m)."""
    bits, half = digits(args)
    bound = float(args["residual_clip"])
    top = float(args["clip"]) * bound
    scores = clipped_forms(block, args)
    scores *= block.residual(args, bound)[:, None]
    e = multipliers(block, args)
    e_unit = 1.0
    if args["law"] == "gaussian":
        bound_of_draws = float(args["multiplier_bound"])
        e, e_unit = rounded(e, unit_of(bound_of_draws, half), bound_of_draws)
        bits = half
    scores, unit = rounded(scores, unit_of(top, bits), top)
    return np.asarray(e @ scores * (e_unit * unit), dtype=np.float64)


def _multiplier_summand(args: Args, columns: int) -> Box:
    check_choice(args.get("law"), MULTIPLIERS, "law")
    draws = whole_number(args, "draws", minimum=1)
    if draws > MOST_DRAWS:
        raise ArgumentError(f"argument 'draws' of the statistic must be at most {MOST_DRAWS}")
    if whole_number(args, "seed") >= 2**64:
        raise ArgumentError("argument 'seed' of the statistic must be smaller than 2^64")
    top = positive(args, "clip") * positive(args, "residual_clip")
    if args["law"] == "gaussian":
        top *= positive(args, "multiplier_bound")
    shape = draws, width_of_forms(args, columns)
    return Box(shape=shape, bound=top, derivation=Derivations.MULTIPLIERS)


FORM_OPS: dict[str, SiteOp] = named(
    op_of_terms(
        name=Statistics.PAPER_VARIANCES,
        summand=_paper_variances_summand,
        terms=paper_variances,
        arguments=_SCORES,
        aligned=True,
    ),
    op_of_terms(
        name=Statistics.QUADRATIC_FORMS,
        summand=_quadratic_summand,
        terms=quadratic_forms,
        arguments=FORM_ARGUMENTS,
        aligned=True,
    ),
    op_of_terms(
        name=Statistics.FORM_SUMS,
        summand=_form_sums_summand,
        terms=form_sums,
        arguments=FORM_ARGUMENTS,
        aligned=True,
    ),
    SiteOp(
        name=Statistics.MULTIPLIER_SCORES,
        function=multiplier_scores,
        sensitivity=stated(_multiplier_summand),
        arguments=(*_SCORES, "draws", "law", "seed", "multiplier_bound"),
    ),
)


def product_vector(rows: RowReader, box: ReplaceOnly[Box]) -> tuple[Numbers]:
    """Return the sums of x_j r, clipped to [-B, B], then the vector of a record shrunk to norm C."""
    return clipped_products(rows, box.part)


def _product_summand(args: Args, columns: int) -> ReplaceOnly[Box]:
    bound = positive(args, "bound")
    norm = positive(args, "norm")
    derivation = Derivations.PRODUCT_VECTORS
    return ReplaceOnly(Box(shape=(columns,), bound=bound, radius=norm, derivation=derivation))


def column_product_vector(rows: RowReader, products: ReplaceOnly[CrossProducts]) -> tuple[Cross]:
    """Return sum a b' of targets or forms and all columns, each record's shrunk to |a| |b| <= C, (m, p)."""
    return column_products(rows, products.part)


def _column_product_summand(args: Args, columns: int) -> ReplaceOnly[CrossProducts]:
    shape = leading_size(args, columns), columns
    entry = positive(args, "bound")
    norm = positive(args, "norm")
    derivation = Derivations.COLUMN_PRODUCT_VECTORS
    return ReplaceOnly(CrossProducts(shape=shape, entry=entry, radius=norm, derivation=derivation))


VECTOR_OPS: dict[str, SiteOp] = named(
    op_of_terms(
        name=Statistics.PRODUCT_VECTOR,
        summand=_product_summand,
        terms=product_vector,
        arguments=(*COMMON, "bound", "norm"),
        wide=True,
        aligned=True,
    ),
    op_of_terms(
        name=Statistics.COLUMN_PRODUCT_VECTOR,
        summand=_column_product_summand,
        terms=column_product_vector,
        arguments=(*COMMON, "targets", "transform", "bound", "norm"),
        wide=True,
        aligned=True,
    ),
)
