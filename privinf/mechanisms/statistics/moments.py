r"""Sums over a site's records from which least squares are made, with their replace-one sensitivities.

z = (1, x, c y), the 1 only with a constant: x the other columns in scaled units, shrunk to |x| <= R, and
|c y| <= k, both enforced on the very record that is summed. Entries are isometric: sqrt 2 above the diagonal.

- ``moments.total``: sum z z' without its public 1. The l2 sensitivity is that of `moments_geometry`, the same
  as a curator's, not twice the largest norm R^2 + k^2 + 1;
- ``moments.residual``: sum clip(e, E)^2 x x', e = y - x'b at public b, x with its 1: sqrt 2 E^2 (R^2 + 1).

Where sums must be exact, every product of a record is cut to ``bits`` digits. Cutting does not contract
distances: it moves two records apart by at most one unit an entry, which is charged at the fewest digits
that are taken.
"""

from __future__ import annotations

import math

import numpy as np

from privinf.errors import ArgumentError, SensitivityError
from privinf.mechanisms.statistics.block import (
    Args,
    SiteBlock,
    clip_norms,
    clipped,
    cut,
    digits,
    positive,
    unit_of,
    vector,
    whole_number,
)
from privinf.mechanisms.statistics.geometry import (
    MomentLayout,
    residual_moment_sensitivity,
    second_moment_sensitivity,
)
from privinf.mechanisms.statistics.ops import COMMON, Reach, SiteOp, named
from privinf.typing import Floats

# Digits of a record's product: up to 268 million rows.
FEWEST = 24
ROOT2 = math.sqrt(2.0)


def moment_total(block: SiteBlock, args: Args) -> Floats:
    """Return the isometric entries of sum z z', less the constant's own."""
    y = block.residual(args) * float(args["response_factor"])
    z = np.vstack([_regressors(block, args), clipped(y, float(args["response_bound"]))])
    entries = _isometric_sums(z, np.ones(len(block)), _unit(_total_bound(args), args))
    return entries[1:] if "constant" in args else entries


def _total_reach(args: Args, columns: int) -> Reach:
    constant, norm = _check(args, columns)
    y_norm = positive(args, "response_bound")
    size = MomentLayout(constant, columns - constant).pairs()[0].size
    l2 = second_moment_sensitivity(norm, y_norm, float(constant))
    return _reach(size, l2, _total_bound(args), "Frobenius distance of two records' second moments")


def _total_bound(args: Args) -> float:
    """Return the largest isometric entry that a record can add."""
    norm, y_norm = float(args["norm"]), float(args["response_bound"])
    beside = max(norm, y_norm) if "constant" in args else 0.0
    return max(norm**2, y_norm**2, ROOT2 * norm * y_norm, ROOT2 * beside)


def residual_moments(block: SiteBlock, args: Args) -> Floats:
    """Return the isometric entries of sum clip(e, E)^2 x x'."""
    x = _regressors(block, args)
    e = block.residual(args) * float(args["response_factor"]) - np.asarray(args["coefficients"]) @ x
    e = clipped(e, float(args["residual_clip"]))
    return _isometric_sums(x, np.square(e, out=e), _unit(_residual_bound(args), args))


def _residual_reach(args: Args, columns: int) -> Reach:
    constant, norm = _check(args, columns)
    vector(args, "coefficients", columns)
    l2 = positive(args, "residual_clip") ** 2 * residual_moment_sensitivity(norm, float(constant))
    size = columns * (columns + 1) // 2
    return _reach(size, l2, _residual_bound(args), "Frobenius distance of two records' residual moments")


def _residual_bound(args: Args) -> float:
    norm = float(args["norm"])
    beside = max(1.0, ROOT2 * norm) if "constant" in args else 0.0
    return float(args["residual_clip"]) ** 2 * max(norm**2, beside)


def _regressors(block: SiteBlock, args: Args) -> Floats:
    """Return (1, x), one row a column, with |x| at most R."""
    columns, constant = np.arange(block.features.shape[1]), args.get("constant")
    if constant is None:
        return clip_norms(block.columns(args), float(args["norm"])).T
    x = clip_norms(block.columns(args, np.delete(columns, constant)), float(args["norm"]))
    return np.vstack([np.ones(len(block)), x.T])


def _isometric_sums(z: Floats, weights: Floats, unit: float) -> Floats:
    """Return the isometric entries of sum w z z', row by row of the triangle; z has one row a column."""
    if unit == 0.0:
        rows, columns = np.triu_indices(len(z))
        return ((z * weights) @ z.T)[rows, columns] * np.where(rows == columns, 1.0, ROOT2)
    sums = []
    for first in range(len(z)):
        products = z[first:] * (z[first] * weights)
        products[1:] *= ROOT2
        steps, one = cut(products, unit)
        sums.append(steps.sum(axis=1) * one)
    return np.concatenate(sums)


def _unit(bound: float, args: Args) -> float:
    bits = digits(args)[0]
    if bits and bits < FEWEST:
        raise SensitivityError("so many rows leave a product too few digits for an exact sum")
    return unit_of(bound, bits)


def _reach(size: int, l2: float, bound: float, why: str) -> Reach:
    l2 += unit_of(bound, FEWEST) * math.sqrt(size)
    return Reach((size,), l2, min(l2, 2.0 * bound), bound, why)


def _check(args: Args, columns: int) -> tuple[int, float]:
    """Check what both statistics take; return how many constants there are, and R."""
    positive(args, "response_factor")
    if "constant" not in args:
        return 0, positive(args, "norm")
    if whole_number(args, "constant") >= columns or columns < 2:
        raise ArgumentError(f"constant must be a position below {columns}, beside another column")
    return 1, positive(args, "norm")


_SHARED = (
    *(name for name in COMMON if name not in ("support", "beta")),
    "constant",
    "norm",
    "response_factor",
)

MOMENT_OPS: dict[str, SiteOp] = named(
    SiteOp("moments.total", moment_total, _total_reach, (*_SHARED, "response_bound")),
    SiteOp(
        "moments.residual", residual_moments, _residual_reach, (*_SHARED, "coefficients", "residual_clip")
    ),
)
