r"""Products of all columns with a logistic residual, for ranking columns.

x stands for (clip(x, bounds) - center) / scale, m = sigma(intercept + x_S'beta), e = y - m with y cut to
[0, 1], and q = max(m, 1 - m) >= abs(e) whatever y is. A record adds to ``logistic_products``

    clip(x_j, B / q) e   for every column j,

every entry in [-B, B]: l_inf 2 B, attained by opposite columns far out and a response on the far side. The
clip depends on x alone: at the right mean a product has the mean zero, however skewed its column is and
however rare the response. (Clipping x_j e itself would cut one side of a rare response.)
"""

from __future__ import annotations

import numpy as np
from scipy.special import expit

from privinf.mechanisms.statistics.block import (
    Args,
    SiteBlock,
    clipped,
    cut_sum,
    made_finite,
    positive,
)
from privinf.mechanisms.statistics.ops import COMMON, Reach, SiteOp, named
from privinf.typing import Floats


def logistic_products(block: SiteBlock, args: Args) -> Floats:
    """Return sum clip(x_j, B / q) e over the block, shape (p,)."""
    bound, x = float(args["bound"]), block.columns(args)
    eta = np.full(len(block), float(args.get("intercept", 0.0)))
    if "support" in args and len(args["support"]):
        eta += made_finite(block.columns(args, np.asarray(args["support"])) @ np.asarray(args["beta"]))
    mean = expit(eta)
    most = (bound / np.maximum(mean, 1.0 - mean))[:, None]
    np.minimum(np.maximum(x, -most, out=x), most, out=x)
    x *= (np.clip(block.outcome(), 0.0, 1.0) - mean)[:, None]
    return cut_sum(clipped(x, bound), bound, args)


def _products_reach(args: Args, columns: int) -> Reach:
    return Reach.box((columns,), positive(args, "bound"), "2B, |clip(x_j, B / q)| |y - m| <= B")


LOGISTIC_OPS: dict[str, SiteOp] = named(
    SiteOp("logistic_products", logistic_products, _products_reach, (*COMMON, "bound"), wide=True),
)
