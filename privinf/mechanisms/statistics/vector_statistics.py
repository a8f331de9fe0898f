r"""Products with all columns as one vector of bounded length: for a Gaussian release that is not peeled.

Peeling needs un-noised sums at one place and pays for the l_inf sensitivity of its vector. Where nobody sees
such sums the whole vector goes out with Gaussian noise and pays for its l2 sensitivity, so a record's vector
f is shrunk to |f| <= C as a whole, after its entries were clipped as for peeling:

- ``product_vector``: f = (clip(x_j r, B))_j, shrunk to |f| <= C. Replacing a record moves the sum by
  f(z) - f(z'), of norm at most 2 min(C, B sqrt p): attained by opposite residuals at one x;
- ``column_product_vector``: f = a b', b = clip(x, c), a = its entries at the targets, shrunk so that
  |a| |b| <= C. |f| = |a| |b|, so the l2 sensitivity is at most 2 C. With theta the angle between b and its
  part outside the targets, two records reach 2 C cos(theta): all of it but where the targets make up b.

With B infinite and C below the usual |x r|, f is C times the sign of r and the direction of x.
"""

from __future__ import annotations

import math

import numpy as np

from privinf.mechanisms.statistics.block import (
    Args,
    SiteBlock,
    clip_norms,
    clipped,
    cut,
    digits,
    positions,
    positive,
    rounded,
    unit_of,
)
from privinf.mechanisms.statistics.ops import COMMON, Reach, SiteOp, named
from privinf.typing import Floats

__all__ = ["VECTOR_OPS"]


def product_vector(block: SiteBlock, args: Args) -> Floats:
    """Return sum (clip(x_j r, B))_j, each record's vector shrunk to |f| <= C, shape (p,)."""
    bound, norm = float(args["bound"]), float(args["norm"])
    x = block.columns(args)
    x *= block.residual(args)[:, None]
    # Cut towards zero, as one number an entry: no norm is raised by it.
    steps, unit = cut(clip_norms(clipped(x, bound), norm), unit_of(min(bound, norm), digits(args)[0]))
    return np.asarray(steps.sum(axis=0) * unit, dtype=np.float64)


def _product_reach(args: Args, columns: int) -> Reach:
    bound, norm = positive(args, "bound"), positive(args, "norm")
    l2, top = 2.0 * min(norm, bound * math.sqrt(columns)), min(bound, norm)
    return Reach((columns,), l2, 2.0 * top, top, "2C, vectors of clipped products shrunk to |f| <= C")


def column_product_vector(block: SiteBlock, args: Args) -> Floats:
    """Return sum a b' of targets and all columns, each record's shrunk to |a| |b| <= C, shape (m, p)."""
    half, bound, norm = digits(args)[1], float(args["bound"]), float(args["norm"])
    unit = unit_of(bound, half)
    b, b_unit = rounded(clipped(block.columns(args), bound), unit, bound)
    a = b[:, np.asarray(args["targets"])]
    lengths = np.sqrt(np.einsum("ij,ij->i", a, a) * np.einsum("ij,ij->i", b, b)) * b_unit**2
    # b stands on its grid; a is shrunk against it and cut towards zero.
    a *= _room(lengths, norm)[:, None]
    a = np.trunc(a) if half > 0 else a
    return np.asarray(a.T @ b * b_unit**2, dtype=np.float64)


def _room(lengths: Floats, norm: float) -> Floats:
    """Return the factors that shrink these lengths to `norm`."""
    return np.asarray(norm / np.maximum(lengths, norm))


def _column_product_reach(args: Args, columns: int) -> Reach:
    size = len(positions(args, "targets", columns))
    bound, norm = positive(args, "bound"), positive(args, "norm")
    l2 = 2.0 * min(norm, bound**2 * math.sqrt(size * columns))
    top = min(bound**2, norm)
    return Reach((size, columns), l2, 2.0 * top, top, "2C, products shrunk to |a| |b| <= C")


VECTOR_OPS: dict[str, SiteOp] = named(
    SiteOp("product_vector", product_vector, _product_reach, (*COMMON, "bound", "norm"), wide=True),
    SiteOp(
        "column_product_vector", column_product_vector, _column_product_reach,
        (*COMMON, "targets", "bound", "norm"), wide=True,
    ),
)  # fmt: skip
