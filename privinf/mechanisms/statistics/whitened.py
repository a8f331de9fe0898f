r"""Sums of the one-step fit of least squares: of residuals, in coordinates learnt from an earlier release.

z stands for (clip(x, bounds) - center) / scale, with its constant 1, e = (clip(y) - intercept) k - z'theta
for the residual (k the public `response_factor`), clipped to +-E given `residual_clip`, and v = M z
for the row in the coordinates that the public matrix M makes, t = |v| |e| / s for the size of its score in
units of a public s, and q = sign(e) v / |v| for its direction.

- ``whitened.counts``: counts of |e|, |v|^2 or t above public thresholds, see `summands`;
- ``whitened.columns``: the same counts of every chosen column + 1: sqrt(number of columns) times as far;
- ``whitened.moments``: sum (z, k' y)(z, k' y)' at theta = 0, shrunk to norm C: l2 sqrt 2 C^2;
- ``whitened.gram``: sum v v', v shrunk to |v| <= C: l2 sqrt 2 C^2, attained by orthogonal v;
- ``whitened.score``: sum q min((t - a)+, b - a), a layer of the scores between norms a and b: norms are at
  most b - a, l2 2 (b - a), attained by opposite scores;
- ``whitened.meat``: sum u u', u = q [min(t, a) + w min((t - a)+, b - a)], the score of both layers, whose
  norm is at most C' = a + w (b - a): l2 sqrt 2 C'^2;
- ``whitened.hessian``: sum psi v v', psi the derivative of the score of both layers: 1 for t <= a, w for t <=
  b, 0 beyond and where e is clipped; sqrt(psi) v is shrunk to |v| <= C: l2 sqrt 2 C^2;
- ``whitened.square``: sum e^2 of residuals clipped at E, in [0, E^2]: l2 E^2.

With ``row_weights`` z and e are multiplied by sqrt(w), w = min(1, 1/max_j z_j^2) over all columns but the
constant.

All hold for any arguments and any rows: the norms are enforced on the summands.
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
    whole_number,
)
from privinf.mechanisms.statistics.layers import (
    check_weight,
    ends,
    layer,
    layer_summand,
    meat,
    meat_summand,
    sizes,
    slope,
)
from privinf.mechanisms.statistics.loops import lengths
from privinf.mechanisms.statistics.ops import SiteOp, named
from privinf.mechanisms.statistics.summands import (
    Ball,
    Cells,
    Copies,
    Counts,
    Outer,
    Product,
    RowDirections,
    Square,
)
from privinf.mechanisms.statistics.terms import PlacedRows, RowReader, op_of_terms
from privinf.typing import Floats, Quantity
from privinf.validation import check_array, check_choice
from privinf.wire import Derivations, Statistics

# Arguments of every statistic in whitened coordinates.
_UNITS = (
    "center",
    "scale",
    "intercept",
    "bits",
    "constant",
    "response_factor",
    "whitening",
    "theta",
    "row_weights",
)


def _rows(rows: RowReader) -> tuple[PlacedRows, Floats | float]:
    """Return z and the square roots of weights, by which it is multiplied."""
    args = rows.args
    constant = rows.args.get("constant")
    if not args.get("row_weights", False):
        return rows.read(constant=constant), 1.0
    z = made_finite(rows.block.columns(args))
    sizes = np.abs(z)
    if constant is not None:
        z[:, constant] = 1.0
        sizes[:, constant] = 0.0
    root = 1.0 / np.maximum(sizes.max(axis=1, initial=0.0), 1.0)
    z *= root[:, None]
    return rows.placed(z, 1.0), root


def _error(rows: RowReader, fitted: Floats, root: Floats | float) -> Floats:
    """Return the residuals e, shape (rows,)."""
    args = rows.args
    y = (rows.block.outcome() - args.get("intercept", 0.0)) * float(args["response_factor"])
    e = made_finite(y * root - fitted)
    return clipped(e, float(args["residual_clip"])) if "residual_clip" in args else e


def _residuals(rows: RowReader) -> Floats:
    """Return the residuals alone."""
    z, root = _rows(rows)
    return _error(rows, z.forms(np.asarray(rows.args["theta"], dtype=np.float64)[None])[0], root)


def _scores(rows: RowReader) -> tuple[RowDirections, Floats]:
    """Return v, of p entries, and the residuals."""

    def make_scores() -> tuple[RowDirections, Floats]:
        z, root = _rows(rows)
        forms = z.forms(np.vstack([rows.args["theta"], rows.args["whitening"]]))
        return RowDirections(forms[1:], lasting=rows.lasting), _error(rows, forms[0], root)

    return rows.once("scores", (*_UNITS, "residual_clip"), make_scores)


def _columns_summand(args: Args, columns: int) -> Copies[Cells]:
    chosen = positions(args, "columns", columns)
    if not len(chosen):
        raise ArgumentError("columns must contain at least one column number")
    return Copies(Cells.from_args(args), len(chosen))


def _columns(rows: RowReader, cells: Copies[Cells]) -> tuple[Counts, ...]:
    z = rows.block.columns(rows.args, np.asarray(rows.args["columns"]))
    return tuple(cells.part.counts(column + 1.0) for column in z.T)


def _moments_summand(args: Args, columns: int) -> Outer:
    _check(args, columns)
    positive(args, "response_weight")
    return Outer(size=columns + 1, top=positive(args, "clip"))


def _moments(rows: RowReader, outer: Outer) -> tuple[Square]:
    z, root = _rows(rows)
    x = z.columns()
    fitted = z.forms(np.asarray(rows.args["theta"], dtype=np.float64)[None])[0]
    vectors = np.vstack([x, float(rows.args["response_weight"]) * _error(rows, fitted, root)])
    return (outer.matrices(vectors, lengths(vectors)),)


def _counts_summand(args: Args, columns: int) -> Cells:
    _check(args, columns)
    check_choice(args.get("quantity"), Quantity, "quantity")
    return Cells.from_args(args)


def _counts(rows: RowReader, cells: Cells) -> tuple[Counts]:
    quantity: Quantity = rows.args["quantity"]
    if quantity == "residual":
        return (cells.counts(np.abs(_residuals(rows))),)
    v, e = _scores(rows)
    values = np.square(v.length) if quantity == "length" else sizes(v.length, e, rows.args)
    return (cells.counts(values),)


def _gram_summand(args: Args, columns: int) -> Outer:
    _check(args, columns)
    return Outer(size=columns, top=positive(args, "clip"))


def _gram(rows: RowReader, outer: Outer) -> tuple[Square]:
    v = _rows(rows)[0].forms(np.asarray(rows.args["whitening"], dtype=np.float64))
    return (outer.matrices(v, lengths(v)),)


def _hessian_summand(args: Args, columns: int) -> Outer:
    _check(args, columns)
    ends(args)
    check_weight(args)
    return Outer(size=columns, top=positive(args, "clip"))


def _hessian(rows: RowReader, outer: Outer) -> tuple[Square]:
    """Return minus the derivative of the scores of both layers along v."""
    v, e = _scores(rows)
    psi = slope(sizes(v.length, e, rows.args), rows.args)
    psi[np.abs(e) >= float(rows.args.get("residual_clip", math.inf))] = 0.0
    root = np.sqrt(psi)
    return (outer.matrices(v.vectors, v.length * root, root),)


def _layer_summand(args: Args, columns: int) -> Ball:
    _check(args, columns)
    return layer_summand(args, columns)


def _layer(rows: RowReader, ball: Ball) -> tuple[Product]:
    return (layer(ball, *_scores(rows), rows.args),)


def _meat_summand(args: Args, columns: int) -> Outer:
    _check(args, columns)
    return meat_summand(args, columns)


def _meat(rows: RowReader, outer: Outer) -> tuple[Square]:
    return (meat(outer, *_scores(rows), rows.args),)


def _square_summand(args: Args, columns: int) -> Outer:
    _check(args, columns)
    return Outer(size=1, top=positive(args, "residual_clip"), derivation=Derivations.SQUARED_RESIDUAL)


def _square(rows: RowReader, outer: Outer) -> tuple[Square]:
    e = _residuals(rows)
    return (outer.matrices(e[None], np.abs(e)),)


def _check(args: Args, columns: int) -> None:
    """Check the common arguments of the statistics."""
    positive(args, "response_factor")
    vector(args, "theta", columns)
    if check_array(args.get("whitening", ()), "whitening", ndim=2).shape != (columns, columns):
        raise ArgumentError(
            f"argument 'whitening' of the statistic must be a matrix of shape ({columns}, {columns})"
        )
    if not isinstance(args.get("row_weights", False), (bool, np.bool_)):
        raise ArgumentError("row_weights= must be True or False")
    if "constant" in args and whole_number(args, "constant") >= columns:
        raise ArgumentError(f"argument 'constant' of the statistic must be a column number below {columns}")
    if args.get("quantity", "score") == "score":
        positive(args, "unit")
    if "residual_clip" in args:
        positive(args, "residual_clip")


_SCORES = (*_UNITS, "unit", "residual_clip")  # and of those of residuals

WHITENED_OPS: dict[str, SiteOp] = named(
    op_of_terms(
        name=Statistics.WHITENED_COUNTS,
        summand=_counts_summand,
        terms=_counts,
        arguments=(*_SCORES, "quantity", "thresholds"),
    ),
    op_of_terms(
        name=Statistics.WHITENED_COLUMNS,
        summand=_columns_summand,
        terms=_columns,
        arguments=("center", "scale", "bits", "columns", "thresholds"),
    ),
    op_of_terms(
        name=Statistics.WHITENED_MOMENTS,
        summand=_moments_summand,
        terms=_moments,
        arguments=(*_SCORES, "response_weight", "clip"),
    ),
    op_of_terms(
        name=Statistics.WHITENED_GRAM,
        summand=_gram_summand,
        terms=_gram,
        arguments=(*_UNITS, "unit", "clip"),
    ),
    op_of_terms(
        name=Statistics.WHITENED_HESSIAN,
        summand=_hessian_summand,
        terms=_hessian,
        arguments=(*_SCORES, "low", "high", "weight", "clip"),
    ),
    op_of_terms(
        name=Statistics.WHITENED_SCORE,
        summand=_layer_summand,
        terms=_layer,
        arguments=(*_SCORES, "low", "high"),
    ),
    op_of_terms(
        name=Statistics.WHITENED_MEAT,
        summand=_meat_summand,
        terms=_meat,
        arguments=(*_SCORES, "low", "high", "weight"),
    ),
    op_of_terms(
        name=Statistics.WHITENED_SQUARE,
        summand=_square_summand,
        terms=_square,
        arguments=_SCORES,
    ),
)
