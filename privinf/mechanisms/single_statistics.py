r"""Sums of scores that are clipped as whole products, target by target, with their replace-one sensitivities.

With u_j = T_j'x and r the residual, a target's entry is a function of the product u_j r alone:

- ``product_scores``: sum clip(u_j r, B), every entry in [-B, B]: l_inf sensitivity 2B. Of all scores of that
  sensitivity it is the most precise for its slope: it clips what is large in the product, not a factor;
- ``product_variances``: sum of their squares, in [0, B^2]: B^2;
- ``product_slopes``: sum clip(u_j x_j, -c/2, c) 1(|u_j r| < B), the slope of the score: 3c/2. u_j x_j has a
  positive mean, and rarely is far below zero;
- ``mean_slope``: the same products times public weights h_j, averaged over the targets and then clipped to
  [-c/2, c]: one number, 3c/2. A record's average over many targets is nearly 1, so c may be.

Every entry is bounded on its own; the bounds are attained by records whose products stand beyond the clips.
"""

from __future__ import annotations

import math

import numpy as np

from privinf.errors import ArgumentError
from privinf.mechanisms.site_ops import COMMON, Reach, SiteOp, named
from privinf.mechanisms.site_rows import (
    Args,
    SiteBlock,
    clipped,
    cut,
    digits,
    positions,
    positive,
    unit_of,
    vector,
)
from privinf.typing import Floats
from privinf.validation import check_array

__all__ = ["SINGLE_OPS"]


def _forms(block: SiteBlock, args: Args) -> Floats:
    """Return u = T'x_A, shape (rows, m)."""
    x = block.columns(args, np.asarray(args["columns"]))
    return np.asarray(x @ np.asarray(args["transform"], dtype=np.float64), dtype=np.float64)


def _forms_of(args: Args, columns: int) -> int:
    transform = check_array(args.get("transform", ()), "transform", ndim=2)
    if transform.shape[0] != len(positions(args, "columns", columns)):
        raise ArgumentError("transform must have one row for each of columns")
    return int(transform.shape[1])


def product_scores(block: SiteBlock, args: Args) -> Floats:
    """Return sum clip(u_j r, B), shape (m,)."""
    bound = float(args["bound"])
    products = _forms(block, args)
    products *= block.residual(args)[:, None]
    steps, unit = cut(clipped(products, bound), unit_of(bound, digits(args)[0]))
    return np.asarray(steps.sum(axis=0) * unit, dtype=np.float64)


def _scores_reach(args: Args, columns: int) -> Reach:
    bound = positive(args, "bound")
    return Reach.box((_forms_of(args, columns),), bound, "2B, products clipped to [-B, B]")


def product_variances(block: SiteBlock, args: Args) -> Floats:
    """Return sum clip(u_j r, B)^2, shape (m,)."""
    bound = float(args["bound"])
    products = _forms(block, args)
    products *= block.residual(args)[:, None]
    squares = np.square(clipped(products, bound), out=products)
    steps, unit = cut(squares, unit_of(bound**2, digits(args)[0]))
    return np.asarray(steps.sum(axis=0) * unit, dtype=np.float64)


def _variances_reach(args: Args, columns: int) -> Reach:
    bound = positive(args, "bound")
    return Reach.positive_box((_forms_of(args, columns),), bound**2, "B^2, squares in [0, B^2]")


def _inside(block: SiteBlock, args: Args) -> Floats:
    """Return u_j x_j where |u_j r| < B and 0 elsewhere, shape (rows, m)."""
    forms = _forms(block, args)
    inside = np.abs(forms * block.residual(args)[:, None]) < float(args["bound"])
    forms *= block.columns(args, np.asarray(args["targets"]))
    return np.where(inside, np.nan_to_num(forms, copy=False), 0.0)


def product_slopes(block: SiteBlock, args: Args) -> Floats:
    """Return sum clip(u_j x_j, -c/2, c) 1(|u_j r| < B), shape (m,)."""
    top = float(args["slope_clip"])
    slopes = _inside(block, args)
    np.clip(slopes, -0.5 * top, top, out=slopes)
    steps, unit = cut(slopes, unit_of(top, digits(args)[0]))
    return np.asarray(steps.sum(axis=0) * unit, dtype=np.float64)


def mean_slope(block: SiteBlock, args: Args) -> Floats:
    """Return sum clip(mean_j h_j u_j x_j 1(|u_j r| < B), -c/2, c), shape (1,)."""
    top = float(args["slope_clip"])
    weights = np.asarray(args["weights"], dtype=np.float64)
    means = np.clip(np.nan_to_num(_inside(block, args) @ weights / len(weights)), -0.5 * top, top)
    steps, unit = cut(means, unit_of(top, digits(args)[0]))
    return np.array([steps.sum() * unit])


def _slopes_size(args: Args, columns: int) -> int:
    size = _forms_of(args, columns)
    if len(positions(args, "targets", columns)) != size:
        raise ArgumentError(f"targets must name {size} columns, one for each column of transform")
    positive(args, "bound")
    return size


def _slopes_reach(args: Args, columns: int) -> Reach:
    size, top = _slopes_size(args, columns), positive(args, "slope_clip")
    wide = 1.5 * top
    return Reach((size,), wide * math.sqrt(size), wide, top, "3c/2, products clipped to [-c/2, c]")


def _mean_reach(args: Args, columns: int) -> Reach:
    vector(args, "weights", _slopes_size(args, columns))
    top = positive(args, "slope_clip")
    return Reach((1,), 1.5 * top, 1.5 * top, top, "3c/2, averages clipped to [-c/2, c]")


_PRODUCTS = (*COMMON, "columns", "transform", "bound")
_SLOPES = (*_PRODUCTS, "targets", "slope_clip")

SINGLE_OPS: dict[str, SiteOp] = named(
    SiteOp("product_scores", product_scores, _scores_reach, _PRODUCTS),
    SiteOp("product_variances", product_variances, _variances_reach, _PRODUCTS),
    SiteOp("product_slopes", product_slopes, _slopes_reach, _SLOPES),
    SiteOp("mean_slope", mean_slope, _mean_reach, (*_SLOPES, "weights")),
)
