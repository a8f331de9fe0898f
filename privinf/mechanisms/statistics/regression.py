r"""Sums over records from which a sparse regression is fitted, each with its exact replace-one sensitivity.

Every statistic is a sum of one bounded vector a record, made from public arguments. Its summand keeps the
vector in the set whose sensitivity it states, and the sums are exact integers (`terms`, *Aligned sums*). x
stands for (clip(x, bounds) - center) / scale and r for clip(y) - intercept - x_S'beta, with the column
`response` in the place of clip(y) if there is one, psi_R for the clip to [-R, R].
Replacing one record moves the sum by f(z) - f(z'), so that

- ``clipped_products``: sum clip(x_j r, B), every entry in [-B, B]: l_inf sensitivity 2B;
- ``logistic_products``: sum clip(x_j, B / q) e, e = y - m, m = sigma(intercept + x_S'beta), y cut to [0, 1],
  q = max(m, 1 - m) >= abs(e): every entry in [-B, B], 2B, attained by opposite columns far out. The clip is a
  function of x alone: at the right mean a product has the mean zero, however skewed its column and however
  rare the response (clipping x_j e itself would cut one side of a rare response);
- ``column_products``: sum clip(x_j, c) clip(x_k, c), forms T'x_A in the place of x_j on request: l_inf 2 c^2;
- ``union_gram``: sum a a', a = clip(x_A, c) or clip(T'x_A, c), shrunk to |a| <= D on request, q^2 = min(m
  c^2, D^2) for m entries. Its
  isometric upper triangle (sqrt 2 above the diagonal) has the Frobenius norm as its l2 norm:
  ||aa' - bb'||^2 = |a|^4 + |b|^4 - 2 (a'b)^2 <= 2 q^4, with equality for orthogonal a and b of full length
  (q^2 for a single column, where (a^2 - b^2)^2 <= q^4);
- ``clipped_score``: sum u psi_R(r), u = T'x_A shrunk to |u| <= C: l2 2CR, attained by +-R at one u. With T
  the identity it is the clipped gradient, with a preconditioner the preconditioned one, with columns
  w_j / sqrt(w_jj) the joint score of several targets;
- ``slopes``: sum (u_j x_j)_j 1(|r| < R) with |x_j| <= c: a vector of norm at most c C (or D, to which it is
  shrunk on request): l2 2 min(cC, D);
- ``score_variances``: sum (u_j^2 psi_R(r)^2)_j, nonnegative with sum at most C^2 R^2: l2 sqrt 2 C^2 R^2 for
  two orthogonal u, C^2 R^2 for one target;
- ``residual_histogram``: counts of |r|: one count moves: l2 sqrt 2;
- ``squared_residuals``: sum psi_R(r)^2 in [0, R^2]: R^2; ``residual_sum``: 2R;
- ``column_sums``: sum clip(x_j, c): l_inf 2c; ``column_squares``: in [0, c^2]: l_inf c^2;
- ``complete_rows``: the number of rows that lack no value, where others are dropped before they are summed:
  one mark, l2 1, attained by a record that is complete in place of one that is not.

On request (arguments `streams` and `intercepts`), ``clipped_products``, ``clipped_score`` and
``residual_histogram`` have a public intercept of its own at each site (`block.with_constant`). A record that
is replaced stays at its site, whose intercept is a number like any other: the sets are the same, and no
sensitivity rises.

A dropped record adds zero to every sum. Zero is in each of these sets, or nearer to every vector of the set
than the farthest one (`tests/privacy/attained.py` searches for exceptions): no sensitivity rises.
"""

from __future__ import annotations

import math

import numpy as np

from privinf.errors import ArgumentError
from privinf.mechanisms.statistics.block import (
    Args,
    clipped,
    made_finite,
    positions,
    positive,
    vector,
)
from privinf.mechanisms.statistics.families import logistic
from privinf.mechanisms.statistics.ops import COMMON, CONSTANTS, SiteOp, named
from privinf.mechanisms.statistics.summands import (
    Ball,
    Box,
    Cross,
    CrossProducts,
    Histogram,
    Marks,
    NonNegative,
    Numbers,
    OneCell,
    Outer,
    ReplaceOnly,
    RowDirections,
    Square,
    shrunk_vectors,
)
from privinf.mechanisms.statistics.terms import RowReader, op_of_terms, residual
from privinf.typing import Floats
from privinf.validation import check_array
from privinf.wire import Derivations, Statistics

# Products with a residual, for peeling.


def clipped_products(rows: RowReader, box: Box) -> tuple[Numbers]:
    """Return the sums of x_j r, every product clipped to [-B, B]."""
    x = rows.block.columns(rows.args)
    x *= residual(rows, float(rows.args.get("residual_clip") or math.inf))[:, None]
    return (box.numbers(x.T, rows.digits),)


def _products_summand(args: Args, columns: int) -> Box:
    bound = positive(args, "bound")
    if args.get("residual_clip") is not None:
        positive(args, "residual_clip")
    return Box(shape=(columns,), bound=bound, derivation=Derivations.PRODUCTS)


def logistic_products(rows: RowReader, box: Box) -> tuple[Numbers]:
    """Return the sums of clip(x_j, B / q) e."""
    args = rows.args
    x = rows.block.columns(args)
    eta = np.full(len(x), float(args.get("intercept", 0.0)))
    if "support" in args and len(args["support"]):
        eta += rows.read(np.asarray(args["support"])).forms(np.asarray(args["beta"])[None])[0]
    tail = logistic(eta, exact=rows.exact)
    mean = np.where(eta < 0.0, tail, 1.0 - tail)
    largest = (box.bound / np.maximum(mean, 1.0 - mean))[:, None]
    np.minimum(np.maximum(x, -largest, out=x), largest, out=x)
    x *= (np.clip(rows.block.outcome(), 0.0, 1.0) - mean)[:, None]
    return (box.numbers(x.T, rows.digits),)


def _logistic_summand(args: Args, columns: int) -> Box:
    bound = positive(args, "bound")
    return Box(shape=(columns,), bound=bound, derivation=Derivations.LOGISTIC_PRODUCTS)


# Products of columns.


def column_products(rows: RowReader, products: CrossProducts) -> tuple[Cross]:
    """Return sum clip(a, c) clip(x_k, c) for targets or forms a and all k, shape (m, p)."""
    a = forms(rows, "targets")
    return (products.matrices(a, rows.block.columns(rows.args).T, rows.digits),)


def leading_size(args: Args, columns: int) -> int:
    """Check targets and transform, and return m."""
    return forms_of(args, len(positions(args, "targets", columns)))


def forms_of(args: Args, size: int) -> int:
    """Check the transform of `size` columns, if there is one, and return how many forms it has."""
    if args.get("transform") is None:
        return size
    transform = check_array(args["transform"], "transform", ndim=2)
    if transform.shape[0] != size:
        raise ArgumentError(
            f"argument 'transform' of the statistic has {transform.shape[0]} rows, but {size} columns "
            "are used: the matrix transform needs one row for each of these columns"
        )
    return int(transform.shape[1])


def _column_products_summand(args: Args, columns: int) -> CrossProducts:
    entry = positive(args, "bound")
    shape = leading_size(args, columns), columns
    return CrossProducts(shape=shape, entry=entry, derivation=Derivations.COLUMN_PRODUCTS)


def union_gram(rows: RowReader, outer: ReplaceOnly[Outer]) -> tuple[Square]:
    """Return the isometric upper triangle of sum a a', shape (k (k + 1) / 2,)."""
    return (outer.part.aligned(forms(rows), rows.digits),)


def _gram_summand(args: Args, columns: int) -> ReplaceOnly[Outer]:
    size = _targets_of(args, columns)
    entry = positive(args, "bound")
    top = math.inf if args.get("norm") is None else positive(args, "norm")
    return ReplaceOnly(Outer(size=size, top=top, entry=entry, derivation=Derivations.CLIPPED_RANK_ONE))


# Scores.


def forms(rows: RowReader, columns: str = "columns") -> Floats:
    """Return T'x_A, shape (m, rows), A an argument; T the identity without a transform."""
    args = rows.args
    x = rows.read(np.asarray(args[columns]))
    transform = args.get("transform")
    return x.columns() if transform is None else x.forms(np.asarray(transform, dtype=np.float64).T)


def directions(rows: RowReader) -> Floats:
    """Return u = T'x_A shrunk to norm at most C, shape (m, rows)."""
    return shrunk_vectors(forms(rows), float(rows.args["clip"]))


def _clipped_scores(rows: RowReader) -> Floats:
    """Return u psi_R(r), shape (m, rows)."""
    u = directions(rows)
    u *= residual(rows, float(rows.args["residual_clip"]))
    return u


def clipped_score(rows: RowReader, ball: Ball) -> tuple[Numbers]:
    """Return sum u psi_R(r), shape (m,)."""
    along = RowDirections(made_finite(forms(rows)))
    left = residual(rows, float(rows.args["residual_clip"]))
    left *= np.minimum(along.length, float(rows.args["clip"]))
    return (ball.along(left, along, rows.digits),)


def _targets_of(args: Args, columns: int) -> int:
    """Check columns and transform, and return m."""
    return forms_of(args, len(positions(args, "columns", columns)))


def _score_summand(args: Args, columns: int) -> Ball:
    top = positive(args, "clip") * positive(args, "residual_clip")
    return Ball(size=_targets_of(args, columns), top=top, derivation=Derivations.CLIPPED_SCORE)


def slopes(rows: RowReader, ball: Ball) -> tuple[Numbers]:
    """Return sum (u_j x_j)_j 1(|r| < R), shape (m,)."""
    args = rows.args
    vectors = directions(rows)
    x = rows.read(np.asarray(args["targets"])).columns()
    vectors *= clipped(x, float(args["column_clip"]))
    vectors *= np.abs(residual(rows)) < float(args["residual_clip"])
    return (ball.numbers(vectors, rows.digits),)


def _slopes_summand(args: Args, columns: int) -> Ball:
    size = _targets_of(args, columns)
    if len(positions(args, "targets", columns)) != size:
        raise ArgumentError(
            f"argument 'targets' of the statistic must contain {size} column numbers, one for each "
            "column of the matrix in its argument 'transform'"
        )
    positive(args, "residual_clip")
    bound = positive(args, "clip") * positive(args, "column_clip")
    if args.get("norm") is not None:
        bound = min(bound, positive(args, "norm"))
    return Ball(size=size, top=bound, derivation=Derivations.SLOPES)


def score_variances(rows: RowReader, squares: ReplaceOnly[NonNegative]) -> tuple[Numbers]:
    """Return sum (u_j psi_R(r))_j^2, shape (m,)."""
    return (squares.part.squares(_clipped_scores(rows), rows.digits),)


def _variances_summand(args: Args, columns: int) -> ReplaceOnly[NonNegative]:
    size = _targets_of(args, columns)
    top = (positive(args, "clip") * positive(args, "residual_clip")) ** 2
    derivation = Derivations.SCORE_VARIANCES
    return ReplaceOnly(NonNegative(shape=(size,), bound=top, total=top, derivation=derivation))


# Residuals.


def residual_histogram(rows: RowReader, cells: ReplaceOnly[OneCell]) -> tuple[Histogram]:
    """Return the counts of |r| in cells: below the first edge, between edges, or from the last one on."""
    edges = np.asarray(rows.args["edges"], dtype=np.float64)
    return (cells.part.counts(np.searchsorted(edges, np.abs(residual(rows)), side="right")),)


def _histogram_summand(args: Args, columns: int) -> ReplaceOnly[OneCell]:
    edges = vector(args, "edges")
    if len(edges) == 0 or edges[0] <= 0.0 or not (np.diff(edges) > 0.0).all():
        raise ArgumentError(
            "argument 'edges' of the statistic must hold positive numbers in increasing order"
        )
    return ReplaceOnly(OneCell(cells=len(edges) + 1, derivation=Derivations.HISTOGRAM))


def squared_residuals(rows: RowReader, squares: ReplaceOnly[NonNegative]) -> tuple[Numbers]:
    """Return the sum of psi_R(r)^2."""
    return (squares.part.squares(residual(rows)[None], rows.digits),)


def _squares_summand(args: Args, columns: int) -> ReplaceOnly[NonNegative]:
    top = positive(args, "residual_clip") ** 2
    return ReplaceOnly(NonNegative(shape=(1,), bound=top, derivation=Derivations.SQUARED_RESIDUALS))


def residual_sum(rows: RowReader, box: Box) -> tuple[Numbers]:
    """Return the sum of r, clipped to [-R, R]."""
    return (box.numbers(residual(rows)[None], rows.digits),)


def _residual_sum_summand(args: Args, columns: int) -> Box:
    return Box(shape=(1,), bound=positive(args, "residual_clip"), derivation=Derivations.RESIDUALS)


# Columns.


def column_sums(rows: RowReader, box: Box) -> tuple[Numbers]:
    """Return the sums of some columns, clipped to [-c, c]."""
    x = rows.block.columns(rows.args, np.asarray(rows.args["columns"]))
    return (box.numbers(x.T, rows.digits),)


def _column_sums_summand(args: Args, columns: int) -> Box:
    size = len(positions(args, "columns", columns))
    return Box(shape=(size,), bound=positive(args, "bound"), derivation=Derivations.COLUMN_SUMS)


def column_squares(rows: RowReader, squares: NonNegative) -> tuple[Numbers]:
    """Return the sums of clip(x_j, c)^2 of some columns."""
    x = rows.block.columns(rows.args, np.asarray(rows.args["columns"]))
    return (squares.squares(x.T, rows.digits),)


def _column_squares_summand(args: Args, columns: int) -> NonNegative:
    size = len(positions(args, "columns", columns))
    top = positive(args, "bound") ** 2
    return NonNegative(shape=(size,), bound=top, derivation=Derivations.COLUMN_SQUARES)


# Rows.


def complete_rows(rows: RowReader, marks: Marks) -> tuple[Numbers]:
    """Return the number of rows of the block, which are the complete ones."""
    return (marks.counts(np.ones((1, len(rows.block)), dtype=np.bool_)),)


def _complete_rows_summand(args: Args, columns: int) -> Marks:
    return Marks(size=1, derivation=Derivations.COMPLETE_ROWS)


# Arguments of every statistic of targets.
_TARGETS = (*COMMON, "columns", "transform", "clip", "residual_clip")

SPARSE_OPS: dict[str, SiteOp] = named(
    op_of_terms(
        name=Statistics.CLIPPED_PRODUCTS,
        summand=_products_summand,
        terms=clipped_products,
        arguments=(*COMMON, *CONSTANTS, "bound", "residual_clip"),
        wide=True,
        aligned=True,
    ),
    op_of_terms(
        name=Statistics.COLUMN_PRODUCTS,
        summand=_column_products_summand,
        terms=column_products,
        arguments=(*COMMON, "targets", "transform", "bound"),
        wide=True,
        aligned=True,
    ),
    op_of_terms(
        name=Statistics.LOGISTIC_PRODUCTS,
        summand=_logistic_summand,
        terms=logistic_products,
        arguments=(*COMMON, "bound"),
        wide=True,
        aligned=True,
    ),
    op_of_terms(
        name=Statistics.UNION_GRAM,
        summand=_gram_summand,
        terms=union_gram,
        arguments=(*COMMON, "columns", "transform", "bound", "norm"),
        aligned=True,
    ),
    op_of_terms(
        name=Statistics.CLIPPED_SCORE,
        summand=_score_summand,
        terms=clipped_score,
        arguments=(*_TARGETS, *CONSTANTS),
        aligned=True,
    ),
    op_of_terms(
        name=Statistics.SLOPES,
        summand=_slopes_summand,
        terms=slopes,
        arguments=(*_TARGETS, "targets", "column_clip", "norm"),
        aligned=True,
    ),
    op_of_terms(
        name=Statistics.SCORE_VARIANCES,
        summand=_variances_summand,
        terms=score_variances,
        arguments=_TARGETS,
        aligned=True,
    ),
    op_of_terms(
        name=Statistics.RESIDUAL_HISTOGRAM,
        summand=_histogram_summand,
        terms=residual_histogram,
        arguments=(*COMMON, *CONSTANTS, "edges"),
        aligned=True,
    ),
    op_of_terms(
        name=Statistics.SQUARED_RESIDUALS,
        summand=_squares_summand,
        terms=squared_residuals,
        arguments=(*COMMON, "residual_clip"),
        aligned=True,
    ),
    op_of_terms(
        name=Statistics.RESIDUAL_SUM,
        summand=_residual_sum_summand,
        terms=residual_sum,
        arguments=(*COMMON, "residual_clip"),
        aligned=True,
    ),
    op_of_terms(
        name=Statistics.COLUMN_SUMS,
        summand=_column_sums_summand,
        terms=column_sums,
        arguments=(*COMMON, "columns", "bound"),
        wide=True,
        aligned=True,
    ),
    op_of_terms(
        name=Statistics.COLUMN_SQUARES,
        summand=_column_squares_summand,
        terms=column_squares,
        arguments=(*COMMON, "columns", "bound"),
        wide=True,
        aligned=True,
    ),
    op_of_terms(
        name=Statistics.COMPLETE_ROWS,
        summand=_complete_rows_summand,
        terms=complete_rows,
        arguments=("bits",),
        aligned=True,
    ),
)
