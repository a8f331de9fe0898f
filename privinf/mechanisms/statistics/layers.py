r"""Sums of scores in two parts (clipped and tail), released by the last step of a one-step fit.

A record has a vector v and a residual e; t = |v| |e| / s is the size of its score in units of a public s, and
q = sign(e) v / |v| its direction. One-step least squares (`whitened`) and the named targets of a
sparse regression, here, differ in v and e alone. With r = clip(y) - intercept - x_S'beta for e and u = T'x_A
for v,

- ``layers.counts``: counts of t above public thresholds, see `summands`;
- ``layers.score``: sum q min((t - a)+, b - a), a layer of the scores between norms a and b: norms are at most
  b - a, l2 2 (b - a), attained by opposite scores;
- ``layers.meat``: sum of products of q [min(t, a) + w min((t - a)+, b - a)], the score of both layers, whose
  norm is at most C' = a + w (b - a): l2 sqrt 2 C'^2, attained by orthogonal scores;
- ``layers.slopes``: sum (u_j x_j psi)_j over targets j, psi the derivative of the score of both layers along
  u: 1 for t <= a, w for t <= b, 0 beyond; the vector is shrunk to norm D: l2 2D;
- ``shrunk_sums``: sum x_A shrunk to |x_A| <= C: l2 2C, attained by opposite rows of full length.

All hold for any arguments and any rows: the norms are enforced on the summands.
"""

from __future__ import annotations

import numpy as np

from privinf.errors import ArgumentError
from privinf.mechanisms.statistics.block import (
    LARGEST,
    SMALLEST,
    Args,
    made_finite,
    positions,
    positive,
)
from privinf.mechanisms.statistics.ops import COMMON, SiteOp, named
from privinf.mechanisms.statistics.summands import (
    Ball,
    Cells,
    Counts,
    Outer,
    Product,
    RowDirections,
    Square,
)
from privinf.mechanisms.statistics.terms import RowReader, op_of_terms, residual
from privinf.typing import Floats
from privinf.validation import check_array, check_number
from privinf.wire import Derivations, Statistics

# ---- of any vectors and residuals


def sizes(length: Floats, e: Floats, args: Args) -> Floats:
    """Return t, shape (rows,)."""
    return made_finite(length * np.abs(e) / float(args["unit"]))


def layer_summand(args: Args, columns: int) -> Ball:
    """Return the ball of a layer of scores, of norm b - a; checks the arguments."""
    low, high = ends(args)
    if not high > low:
        raise ArgumentError(
            "argument 'high' of the statistic (upper limit of the scores) must be larger than its "
            "argument 'low'"
        )
    return Ball(size=columns, top=high - low, derivation=Derivations.LAYER)


def layer(ball: Ball, v: RowDirections, e: Floats, args: Args) -> Product:
    """Return sum q min((t - a)+, b - a)."""
    size = np.clip(sizes(v.length, e, args) - float(args["low"]), 0.0, ball.top)
    return ball.product(np.copysign(size, e), v)


def meat_summand(args: Args, columns: int) -> Outer:
    """Return the outer products of the scores of both layers, of norm C'; checks the arguments."""
    low, high = ends(args)
    weight = check_weight(args)
    return Outer(size=columns, top=low + weight * (high - low))


def meat(outer: Outer, v: RowDirections, e: Floats, args: Args) -> Square:
    """Return the sum of products of the scores of both layers."""
    low, high, weight = (float(args[name]) for name in ("low", "high", "weight"))
    t = sizes(v.length, e, args)
    size = np.minimum(t, low) + weight * np.clip(t - low, 0.0, high - low)
    return outer.matrices(v.vectors, size, size / np.maximum(v.length, SMALLEST))


def slope(t: Floats, args: Args) -> Floats:
    """Return psi, shape (rows,)."""
    low, high, weight = (float(args[name]) for name in ("low", "high", "weight"))
    return np.where(t <= low, 1.0, np.where(t <= high, weight, 0.0))


def ends(args: Args) -> tuple[float, float]:
    """Check the unit and both ends of a layer, and return the ends."""
    positive(args, "unit")
    low = check_number(args.get("low"), "low", low=0.0, high=LARGEST)
    return low, check_number(args.get("high"), "high", low=max(low, SMALLEST), high=LARGEST)


def check_weight(args: Args) -> float:
    """Check and return the weight of the upper layer."""
    return check_number(args.get("weight"), "weight", low=1.0, high=LARGEST)


# ---- of the targets of a sparse regression


def width_of_forms(args: Args, columns: int) -> int:
    """Return m, the number of forms; checks their arguments."""
    transform = check_array(args.get("transform", ()), "transform", ndim=2)
    if transform.shape[0] != len(positions(args, "columns", columns)):
        raise ArgumentError(
            "argument 'transform' of the statistic must be a matrix with one row for each column "
            "number in its argument 'columns'"
        )
    return int(transform.shape[1])


def _forms(rows: RowReader) -> tuple[RowDirections, Floats]:
    """Return u, of m entries, and r."""
    u = rows.read(np.asarray(rows.args["columns"])).forms(np.asarray(rows.args["transform"]).T)
    return RowDirections(u), residual(rows)


def _counts_summand(args: Args, columns: int) -> Cells:
    width_of_forms(args, columns)
    positive(args, "unit")
    return Cells.from_args(args)


def _counts(rows: RowReader, cells: Cells) -> tuple[Counts]:
    u, r = _forms(rows)
    return (cells.counts(sizes(u.length, r, rows.args)),)


def _score_summand(args: Args, columns: int) -> Ball:
    return layer_summand(args, width_of_forms(args, columns))


def _score(rows: RowReader, ball: Ball) -> tuple[Product]:
    return (layer(ball, *_forms(rows), rows.args),)


def _meat_summand(args: Args, columns: int) -> Outer:
    return meat_summand(args, width_of_forms(args, columns))


def _meat(rows: RowReader, outer: Outer) -> tuple[Square]:
    return (meat(outer, *_forms(rows), rows.args),)


def _slopes_summand(args: Args, columns: int) -> Ball:
    ends(args)
    check_weight(args)
    size = width_of_forms(args, columns)
    if len(positions(args, "targets", columns)) != size:
        raise ArgumentError(
            f"argument 'targets' of the statistic must contain {size} column numbers, one for each "
            "column of the matrix in its argument 'transform'"
        )
    return Ball(size=size, top=positive(args, "norm"), derivation=Derivations.SHRUNK_PRODUCTS)


def _slopes(rows: RowReader, ball: Ball) -> tuple[Product]:
    u, r = _forms(rows)
    product = u.vectors * slope(sizes(u.length, r, rows.args), rows.args)
    product *= rows.read(np.asarray(rows.args["targets"])).columns()
    return (ball.shrunk(product),)


# ---- means of columns


def _sums_summand(args: Args, columns: int) -> Ball:
    size = len(positions(args, "columns", columns))
    return Ball(size=size, top=positive(args, "norm"), derivation=Derivations.SHRUNK_ROWS)


def shrunk_sums(rows: RowReader, ball: Ball) -> tuple[Product]:
    """Return sum x_A shrunk to |x_A| <= C, shape (k,)."""
    return (ball.shrunk(rows.read(np.asarray(rows.args["columns"])).columns()),)


_FORMS = (*COMMON, "columns", "transform", "unit")  # arguments of every statistic of scores

LAYER_OPS: dict[str, SiteOp] = named(
    op_of_terms(
        name=Statistics.SHRUNK_SUMS,
        summand=_sums_summand,
        terms=shrunk_sums,
        arguments=(*COMMON, "columns", "norm"),
    ),
    op_of_terms(
        name=Statistics.LAYERS_COUNTS,
        summand=_counts_summand,
        terms=_counts,
        arguments=(*_FORMS, "thresholds"),
    ),
    op_of_terms(
        name=Statistics.LAYERS_SCORE,
        summand=_score_summand,
        terms=_score,
        arguments=(*_FORMS, "low", "high"),
    ),
    op_of_terms(
        name=Statistics.LAYERS_MEAT,
        summand=_meat_summand,
        terms=_meat,
        arguments=(*_FORMS, "low", "high", "weight"),
    ),
    op_of_terms(
        name=Statistics.LAYERS_SLOPES,
        summand=_slopes_summand,
        terms=_slopes,
        arguments=(*_FORMS, "targets", "low", "high", "weight", "norm"),
    ),
)
