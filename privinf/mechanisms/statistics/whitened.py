r"""Sums for a second look at least squares: at residuals, in coordinates learnt from an earlier release.

z stands for (clip(x, bounds) - center) / scale, with its constant 1, e = (clip(y) - intercept) k - z'theta
for the residual (k the public `response_factor`), clipped to +-E where `residual_clip` says so, and v = M z
for the row in the coordinates that the public matrix M makes, t = |v| |e| / s for the size of its score in
units of a public s, and q = sign(e) v / |v| for its direction.

- ``whitened.counts``: counts of |e|, |v|^2 or t above public thresholds, see `tails`;
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

All hold for any arguments, and whatever stands in the rows: the norms are enforced on what is summed.
"""

from __future__ import annotations

import math

import numpy as np

from privinf.errors import ArgumentError
from privinf.mechanisms.statistics.block import (
    Args,
    SiteBlock,
    clipped,
    cut_sum,
    made_finite,
    positions,
    positive,
    vector,
    whole_number,
)
from privinf.mechanisms.statistics.glm import outer_reach, upper_triangle
from privinf.mechanisms.statistics.layers import (
    check_layers,
    directed,
    layer,
    layer_reach,
    lengths,
    meat,
    meat_reach,
    sizes,
    slope,
)
from privinf.mechanisms.statistics.ops import Reach, SiteOp, named
from privinf.mechanisms.statistics.tails import counted, counted_reach
from privinf.typing import Floats, Quantity
from privinf.validation import check_array, check_choice

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


def _rows(block: SiteBlock, args: Args) -> tuple[Floats, Floats]:
    """Return z, shape (rows, p), and the residuals e, shape (rows,)."""
    z = block.columns(args)
    if "constant" in args:
        z[:, int(args["constant"])] = 1.0
    y = (block.outcome() - args.get("intercept", 0.0)) * float(args["response_factor"])
    e = made_finite(y - z @ np.asarray(args["theta"]))
    if args.get("row_weights", False):
        root = _root_weights(z, args)
        z *= root[:, None]
        e *= root
    return z, clipped(e, float(args["residual_clip"])) if "residual_clip" in args else e


def _root_weights(z: Floats, args: Args) -> Floats:
    """Return sqrt(w), w = min(1, 1/max_j z_j^2) over the columns but the constant."""
    others = np.delete(np.abs(z), int(args["constant"]), axis=1) if "constant" in args else np.abs(z)
    return np.asarray(1.0 / np.maximum(others.max(axis=1, initial=0.0), 1.0))


def _columns(block: SiteBlock, args: Args) -> Floats:
    z = block.columns(args, np.asarray(args["columns"]))
    return np.concatenate([counted(column + 1.0, args) for column in z.T])


def _columns_reach(args: Args, columns: int) -> Reach:
    chosen = positions(args, "columns", columns)
    if not len(chosen):
        raise ArgumentError("columns must name at least one column")
    one, root = counted_reach(args), math.sqrt(len(chosen))
    norm = None if one.norm is None else root * one.norm
    return Reach((len(chosen) * one.size,), root * one.l2, one.linf, one.bound, one.derivation, norm)


def _moments(block: SiteBlock, args: Args) -> Floats:
    z, y = _rows(block, args)
    return upper_triangle(np.column_stack([z, float(args["response_weight"]) * y]), float(args["clip"]), args)


def _moments_reach(args: Args, columns: int) -> Reach:
    _check(args, columns)
    positive(args, "response_weight")
    return outer_reach(columns + 1, positive(args, "clip"))


def _whitened(z: Floats, args: Args) -> tuple[Floats, Floats]:
    """Return v, shape (rows, p), and its lengths."""
    v = made_finite(z @ np.asarray(args["whitening"]).T)
    return v, lengths(v)


def _scores(block: SiteBlock, args: Args) -> tuple[Floats, Floats]:
    """Return q, shape (rows, p), and t."""
    z, e = _rows(block, args)
    return directed(_whitened(z, args)[0], e, args)


def _counts(block: SiteBlock, args: Args) -> Floats:
    quantity: Quantity = args["quantity"]
    z, e = _rows(block, args)
    if quantity == "residual":
        return counted(np.abs(e), args)
    length = _whitened(z, args)[1]
    if quantity == "length":
        return counted(length**2, args)
    return counted(sizes(length, e, args), args)


def _counts_reach(args: Args, columns: int) -> Reach:
    _check(args, columns)
    check_choice(args.get("quantity"), Quantity, "quantity")
    return counted_reach(args)


def _gram(block: SiteBlock, args: Args) -> Floats:
    v, _ = _whitened(_rows(block, args)[0], args)
    return upper_triangle(v, float(args["clip"]), args)


def _gram_reach(args: Args, columns: int) -> Reach:
    _check(args, columns)
    return outer_reach(columns, positive(args, "clip"))


def _slopes(block: SiteBlock, args: Args) -> Floats:
    """Return minus the derivative of the scores of both layers along v, sum by sum, isometric entries."""
    z, e = _rows(block, args)
    v, length = _whitened(z, args)
    psi = slope(sizes(length, e, args), args)
    psi[np.abs(e) >= float(args.get("residual_clip", math.inf))] = 0.0
    v *= np.sqrt(psi)[:, None]
    return upper_triangle(v, float(args["clip"]), args)


def _slopes_reach(args: Args, columns: int) -> Reach:
    _check(args, columns)
    check_layers(args)
    return outer_reach(columns, positive(args, "clip"))


def _layer(block: SiteBlock, args: Args) -> Floats:
    return layer(*_scores(block, args), args)


def _layer_reach(args: Args, columns: int) -> Reach:
    _check(args, columns)
    return layer_reach(args, columns)


def _meat(block: SiteBlock, args: Args) -> Floats:
    return meat(*_scores(block, args), args)


def _meat_reach(args: Args, columns: int) -> Reach:
    _check(args, columns)
    return meat_reach(args, columns)


def _square(block: SiteBlock, args: Args) -> Floats:
    top = float(args["residual_clip"]) ** 2
    return np.array([cut_sum(np.minimum(_rows(block, args)[1] ** 2, top), top, args)])


def _square_reach(args: Args, columns: int) -> Reach:
    _check(args, columns)
    return Reach.positive_box(
        (1,), positive(args, "residual_clip") ** 2, "E^2, the square of a clipped residual"
    )


def _check(args: Args, columns: int) -> None:
    """Check what every statistic takes."""
    positive(args, "response_factor")
    vector(args, "theta", columns)
    if check_array(args.get("whitening", ()), "whitening", ndim=2).shape != (columns, columns):
        raise ArgumentError(f"whitening must have shape ({columns}, {columns})")
    if not isinstance(args.get("row_weights", False), (bool, np.bool_)):
        raise ArgumentError("row_weights must be True or False")
    if "constant" in args and whole_number(args, "constant") >= columns:
        raise ArgumentError(f"constant must be a position below {columns}")
    if args.get("quantity", "score") == "score":
        positive(args, "unit")
    if "residual_clip" in args:
        positive(args, "residual_clip")


_SCORES = (*_UNITS, "unit", "residual_clip")

WHITENED_OPS: dict[str, SiteOp] = named(
    SiteOp("whitened.counts", _counts, _counts_reach, (*_SCORES, "quantity", "thresholds")),
    SiteOp(
        "whitened.columns", _columns, _columns_reach, ("center", "scale", "bits", "columns", "thresholds")
    ),
    SiteOp("whitened.moments", _moments, _moments_reach, (*_SCORES, "response_weight", "clip")),
    SiteOp("whitened.gram", _gram, _gram_reach, (*_UNITS, "unit", "clip")),
    SiteOp("whitened.hessian", _slopes, _slopes_reach, (*_SCORES, "low", "high", "weight", "clip")),
    SiteOp("whitened.score", _layer, _layer_reach, (*_SCORES, "low", "high")),
    SiteOp("whitened.meat", _meat, _meat_reach, (*_SCORES, "low", "high", "weight")),
    SiteOp("whitened.square", _square, _square_reach, _SCORES),
)
