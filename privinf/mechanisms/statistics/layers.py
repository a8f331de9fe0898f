r"""Sums of scores in two layers, and what goes with them: what a last look at residuals releases.

A record has a vector v and a residual e; t = |v| |e| / s is the size of its score in units of a public s, and
q = sign(e) v / |v| its direction. Least squares by a second look (`whitened`) and the named targets of a
sparse regression, here, differ in v and e alone. With r = clip(y) - intercept - x_S'beta for e and u = T'x_A
for v,

- ``layers.counts``: counts of t above public thresholds, see `tails`;
- ``layers.score``: sum q min((t - a)+, b - a), a layer of the scores between norms a and b: norms are at most
  b - a, l2 2 (b - a), attained by opposite scores;
- ``layers.meat``: sum of products of q [min(t, a) + w min((t - a)+, b - a)], the score of both layers, whose
  norm is at most C' = a + w (b - a): l2 sqrt 2 C'^2, attained by orthogonal scores;
- ``layers.slopes``: sum (u_j x_j psi)_j over targets j, psi the derivative of the score of both layers along
  u: 1 for t <= a, w for t <= b, 0 beyond; the vector is shrunk to norm D: l2 2D;
- ``shrunk_sums``: sum x_A shrunk to |x_A| <= C: l2 2C, attained by opposite rows of full length;
- ``columns_outside``: counts of values outside their column's bounds, in {0, 1} each: l2 sqrt k for k.

All hold for any arguments, and whatever stands in the rows: the norms are enforced on what is summed.
"""

from __future__ import annotations

import numpy as np

from privinf.errors import ArgumentError, SensitivityError
from privinf.mechanisms.statistics.block import (
    LARGEST,
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
)
from privinf.mechanisms.statistics.glm import FEWEST, outer_reach, upper_triangle
from privinf.mechanisms.statistics.ops import COMMON, Reach, SiteOp, named
from privinf.mechanisms.statistics.scores import width_of_forms
from privinf.mechanisms.statistics.tails import counted, counted_reach
from privinf.typing import Floats
from privinf.validation import check_number

# ---- of any vectors and residuals


def lengths(v: Floats) -> Floats:
    """Return the lengths of rows."""
    return np.asarray(np.sqrt(np.einsum("ij,ij->i", v, v)))


def sizes(length: Floats, e: Floats, args: Args) -> Floats:
    """Return t, shape (rows,)."""
    return made_finite(length * np.abs(e) / float(args["unit"]))


def directed(v: Floats, e: Floats, args: Args) -> tuple[Floats, Floats]:
    """Return q, in the place of v, and t."""
    length = lengths(v)
    v *= (np.sign(e) / np.maximum(length, SMALLEST))[:, None]
    return v, sizes(length, e, args)


def layer(q: Floats, t: Floats, args: Args) -> Floats:
    """Return sum q min((t - a)+, b - a)."""
    low, width = float(args["low"]), float(args["high"]) - float(args["low"])
    half = digits(args)[1]
    if digits(args)[0] and half < FEWEST:
        raise SensitivityError("so many rows leave a score too few digits for an exact sum")
    q_unit = unit_of(1.0, half)
    q, q_step = rounded(clip_norms(q, 1.0, q_unit), q_unit, 1.0)
    r, r_step = rounded(np.clip(t - low, 0.0, width), unit_of(width, half), width)
    return np.asarray(r @ q * (q_step * r_step))


def layer_reach(args: Args, columns: int) -> Reach:
    """Return how far a record moves a layer of scores."""
    low, high = ends(args)
    if not high > low:
        raise ArgumentError("high must be above low")
    return Reach.ball((columns,), high - low, "2 (b - a), a layer of scores between norms a and b")


def meat(q: Floats, t: Floats, args: Args) -> Floats:
    """Return the sum of products of the scores of both layers, isometric entries; q is overwritten."""
    low, high, weight = (float(args[name]) for name in ("low", "high", "weight"))
    q *= (np.minimum(t, low) + weight * np.clip(t - low, 0.0, high - low))[:, None]
    return upper_triangle(q, largest(args), args)


def meat_reach(args: Args, columns: int) -> Reach:
    """Return how far a record moves the meat."""
    check_layers(args)
    return outer_reach(columns, largest(args))


def slope(t: Floats, args: Args) -> Floats:
    """Return psi, shape (rows,)."""
    low, high, weight = (float(args[name]) for name in ("low", "high", "weight"))
    return np.where(t <= low, 1.0, np.where(t <= high, weight, 0.0))


def largest(args: Args) -> float:
    """Return C'."""
    low, high = float(args["low"]), float(args["high"])
    return low + float(args["weight"]) * (high - low)


def ends(args: Args) -> tuple[float, float]:
    """Check the unit and both ends of a layer, and return the ends."""
    positive(args, "unit")
    low = check_number(args.get("low"), "low", low=0.0, high=LARGEST)
    return low, check_number(args.get("high"), "high", low=max(low, SMALLEST), high=LARGEST)


def check_layers(args: Args) -> None:
    """Check what statistics of both layers take."""
    ends(args)
    check_number(args.get("weight"), "weight", low=1.0, high=LARGEST)


# ---- of the targets of a sparse regression


def _forms(block: SiteBlock, args: Args) -> tuple[Floats, Floats]:
    """Return u, shape (rows, m), and r."""
    u = block.columns(args, np.asarray(args["columns"])) @ np.asarray(args["transform"], dtype=np.float64)
    return made_finite(u), block.residual(args)


def _counts(block: SiteBlock, args: Args) -> Floats:
    u, r = _forms(block, args)
    return counted(sizes(lengths(u), r, args), args)


def _counts_reach(args: Args, columns: int) -> Reach:
    width_of_forms(args, columns)
    positive(args, "unit")
    return counted_reach(args)


def _score(block: SiteBlock, args: Args) -> Floats:
    return layer(*directed(*_forms(block, args), args), args)


def _score_reach(args: Args, columns: int) -> Reach:
    return layer_reach(args, width_of_forms(args, columns))


def _meat(block: SiteBlock, args: Args) -> Floats:
    return meat(*directed(*_forms(block, args), args), args)


def _meat_reach(args: Args, columns: int) -> Reach:
    return meat_reach(args, width_of_forms(args, columns))


def _slopes(block: SiteBlock, args: Args) -> Floats:
    norm = float(args["norm"])
    u, r = _forms(block, args)
    psi = slope(sizes(lengths(u), r, args), args)
    u *= block.columns(args, np.asarray(args["targets"]))
    u *= psi[:, None]
    return cut_sum(clip_norms(u, norm), norm, args)


def _slopes_reach(args: Args, columns: int) -> Reach:
    check_layers(args)
    size = width_of_forms(args, columns)
    if len(positions(args, "targets", columns)) != size:
        raise ArgumentError(f"targets must name {size} columns, one for each column of transform")
    return Reach.ball((size,), positive(args, "norm"), "2D, vectors of products shrunk to norm D")


# ---- means of columns, and whether bounds cut them


def shrunk_sums(block: SiteBlock, args: Args) -> Floats:
    """Return sum x_A shrunk to |x_A| <= C, shape (k,)."""
    norm = float(args["norm"])
    return cut_sum(clip_norms(block.columns(args, np.asarray(args["columns"])), norm), norm, args)


def _shrunk_sums_reach(args: Args, columns: int) -> Reach:
    size, norm = len(positions(args, "columns", columns)), positive(args, "norm")
    return Reach.ball((size,), norm, "2C, rows shrunk to |x_A| <= C")


def columns_outside(block: SiteBlock, args: Args) -> Floats:
    """Return how many values of some columns lie outside their public bounds, shape (k,)."""
    chosen = np.asarray(args["columns"])
    x = block.features[:, chosen]
    outside = (x < block.low[chosen]) | (x > block.high[chosen])
    return np.asarray(outside.sum(axis=0), dtype=np.float64)


def _outside_reach(args: Args, columns: int) -> Reach:
    size = len(positions(args, "columns", columns))
    return Reach.positive_box((size,), 1.0, "sqrt k, counts of values that are outside or not")


_FORMS = (*COMMON, "columns", "transform", "unit")

LAYER_OPS: dict[str, SiteOp] = named(
    SiteOp("shrunk_sums", shrunk_sums, _shrunk_sums_reach, (*COMMON, "columns", "norm")),
    SiteOp("columns_outside", columns_outside, _outside_reach, (*COMMON, "columns")),
    SiteOp("layers.counts", _counts, _counts_reach, (*_FORMS, "thresholds")),
    SiteOp("layers.score", _score, _score_reach, (*_FORMS, "low", "high")),
    SiteOp("layers.meat", _meat, _meat_reach, (*_FORMS, "low", "high", "weight")),
    SiteOp("layers.slopes", _slopes, _slopes_reach, (*_FORMS, "targets", "low", "high", "weight", "norm")),
)
