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
    check_layers,
    counted,
    layer,
    layer_sensitivity,
    meat,
    meat_sensitivity,
    outer_sensitivity,
    sizes,
    slope,
)
from privinf.mechanisms.statistics.loops import lengths
from privinf.mechanisms.statistics.ops import RecordSensitivity, SiteOp, named
from privinf.mechanisms.statistics.summands import Counts, Product, RowDirections, Square, counted_sensitivity
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
        return RowDirections(forms[1:]), _error(rows, forms[0], root)

    return rows.once("scores", (*_UNITS, "residual_clip"), make_scores)


def _columns(rows: RowReader) -> tuple[Counts, ...]:
    z = rows.block.columns(rows.args, np.asarray(rows.args["columns"]))
    return tuple(counted(column + 1.0, rows.args) for column in z.T)


def _columns_sensitivity(args: Args, columns: int) -> RecordSensitivity:
    chosen = positions(args, "columns", columns)
    if not len(chosen):
        raise ArgumentError("columns must contain at least one column number")
    column_sensitivity = counted_sensitivity(args)
    root = math.sqrt(len(chosen))
    norm = None if column_sensitivity.norm is None else root * column_sensitivity.norm
    return RecordSensitivity(
        shape=(len(chosen) * column_sensitivity.size,),
        l2=root * column_sensitivity.l2,
        linf=column_sensitivity.linf,
        bound=column_sensitivity.bound,
        derivation=column_sensitivity.derivation,
        norm=norm,
    )


def _moments(rows: RowReader) -> tuple[Square]:
    z, root = _rows(rows)
    x = z.columns()
    fitted = z.forms(np.asarray(rows.args["theta"], dtype=np.float64)[None])[0]
    vectors = np.vstack([x, float(rows.args["response_weight"]) * _error(rows, fitted, root)])
    return (Square(vectors=vectors, top=float(rows.args["clip"]), length=lengths(vectors)),)


def _moments_sensitivity(args: Args, columns: int) -> RecordSensitivity:
    _check(args, columns)
    positive(args, "response_weight")
    return outer_sensitivity(columns + 1, positive(args, "clip"))


def _counts(rows: RowReader) -> tuple[Counts]:
    quantity: Quantity = rows.args["quantity"]
    if quantity == "residual":
        return (counted(np.abs(_residuals(rows)), rows.args),)
    v, e = _scores(rows)
    values = np.square(v.length) if quantity == "length" else sizes(v.length, e, rows.args)
    return (counted(values, rows.args),)


def _counts_sensitivity(args: Args, columns: int) -> RecordSensitivity:
    _check(args, columns)
    check_choice(args.get("quantity"), Quantity, "quantity")
    return counted_sensitivity(args)


def _gram(rows: RowReader) -> tuple[Square]:
    v = _rows(rows)[0].forms(np.asarray(rows.args["whitening"], dtype=np.float64))
    return (Square(vectors=v, top=float(rows.args["clip"]), length=lengths(v)),)


def _gram_sensitivity(args: Args, columns: int) -> RecordSensitivity:
    _check(args, columns)
    return outer_sensitivity(columns, positive(args, "clip"))


def _slopes(rows: RowReader) -> tuple[Square]:
    """Return minus the derivative of the scores of both layers along v."""
    v, e = _scores(rows)
    psi = slope(sizes(v.length, e, rows.args), rows.args)
    psi[np.abs(e) >= float(rows.args.get("residual_clip", math.inf))] = 0.0
    root = np.sqrt(psi)
    return (Square(vectors=v.vectors, top=float(rows.args["clip"]), length=v.length * root, size=root),)


def _slopes_sensitivity(args: Args, columns: int) -> RecordSensitivity:
    _check(args, columns)
    check_layers(args)
    return outer_sensitivity(columns, positive(args, "clip"))


def _layer(rows: RowReader) -> tuple[Product]:
    return (layer(*_scores(rows), rows.args),)


def _layer_sensitivity(args: Args, columns: int) -> RecordSensitivity:
    _check(args, columns)
    return layer_sensitivity(args, columns)


def _meat(rows: RowReader) -> tuple[Square]:
    return (meat(*_scores(rows), rows.args),)


def _meat_sensitivity(args: Args, columns: int) -> RecordSensitivity:
    _check(args, columns)
    return meat_sensitivity(args, columns)


def _square(rows: RowReader) -> tuple[Square]:
    e = _residuals(rows)
    return (Square(vectors=e[None], top=float(rows.args["residual_clip"]), length=np.abs(e)),)


def _square_sensitivity(args: Args, columns: int) -> RecordSensitivity:
    _check(args, columns)
    return RecordSensitivity.positive_box(
        (1,), positive(args, "residual_clip") ** 2, Derivations.SQUARED_RESIDUAL
    )


def _check(args: Args, columns: int) -> None:
    """Check the common arguments of the statistics."""
    positive(args, "response_factor")
    vector(args, "theta", columns)
    if check_array(args.get("whitening", ()), "whitening", ndim=2).shape != (columns, columns):
        raise ArgumentError(
            f"argument whitening of the statistic must be a matrix of shape ({columns}, {columns})"
        )
    if not isinstance(args.get("row_weights", False), (bool, np.bool_)):
        raise ArgumentError("row_weights must be True or False")
    if "constant" in args and whole_number(args, "constant") >= columns:
        raise ArgumentError(f"argument constant of the statistic must be a column number below {columns}")
    if args.get("quantity", "score") == "score":
        positive(args, "unit")
    if "residual_clip" in args:
        positive(args, "residual_clip")


_SCORES = (*_UNITS, "unit", "residual_clip")  # and of those of residuals

WHITENED_OPS: dict[str, SiteOp] = named(
    op_of_terms(
        Statistics.WHITENED_COUNTS, _counts, _counts_sensitivity, (*_SCORES, "quantity", "thresholds")
    ),
    op_of_terms(
        Statistics.WHITENED_COLUMNS,
        _columns,
        _columns_sensitivity,
        ("center", "scale", "bits", "columns", "thresholds"),
    ),
    op_of_terms(
        Statistics.WHITENED_MOMENTS, _moments, _moments_sensitivity, (*_SCORES, "response_weight", "clip")
    ),
    op_of_terms(Statistics.WHITENED_GRAM, _gram, _gram_sensitivity, (*_UNITS, "unit", "clip")),
    op_of_terms(
        Statistics.WHITENED_HESSIAN, _slopes, _slopes_sensitivity, (*_SCORES, "low", "high", "weight", "clip")
    ),
    op_of_terms(Statistics.WHITENED_SCORE, _layer, _layer_sensitivity, (*_SCORES, "low", "high")),
    op_of_terms(Statistics.WHITENED_MEAT, _meat, _meat_sensitivity, (*_SCORES, "low", "high", "weight")),
    op_of_terms(Statistics.WHITENED_SQUARE, _square, _square_sensitivity, _SCORES),
)
