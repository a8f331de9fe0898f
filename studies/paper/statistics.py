r"""The per-record sums of the paper's own algorithms, with their replace-one sensitivities.

c_x bounds every column, Pi_R clips a scalar; every entry is bounded on its own, so the natural sensitivity is
that of an entry (l_inf):

- ``paper_gradient``: sum -x Pi_R(y - x'beta), 2 c_x R (form "residual"), or sum x (x'beta - Pi_R(y)),
  2 c_x (R + c_x ||beta||_1) (form "response"; ||beta||_1 <= sqrt(s) C for the projected iterates);
- ``precision_gradient``: sum x Pi_R(x'w), 2 c_x R;
- ``paper_scores``: sum Pi_Rw(w_j'x) Pi_R(r), 2 R_w R;
- ``single_slopes``: sum Pi_Rw(w_j'x) x_j 1(|r| < R) with |x_j| <= c, the slope of the scores, 2 R_w c.

The noise variance (Algorithm 4) is ``squared_residuals`` of `privinf.mechanisms.statistics.regression`;
squares of the scores and sums with multipliers are in `privinf.mechanisms.statistics.scores`.
"""

from __future__ import annotations

import numpy as np

from privinf.errors import ArgumentError
from privinf.mechanisms.catalogue import register
from privinf.mechanisms.statistics.block import (
    Args,
    SiteBlock,
    clipped,
    digits,
    positions,
    positive,
    rounded,
    unit_of,
    vector,
)
from privinf.mechanisms.statistics.layers import width_of_forms
from privinf.mechanisms.statistics.ops import COMMON, SiteOp, named
from privinf.mechanisms.statistics.scores import FORM_ARGUMENTS, clipped_forms
from privinf.mechanisms.statistics.summands import Box, stated
from privinf.typing import Floats
from privinf.validation import check_choice

FORMS = ("residual", "response")


def _bounded(block: SiteBlock, args: Args) -> Floats:
    return clipped(block.columns(args), float(args["column_bound"]))


def paper_gradient(block: SiteBlock, args: Args) -> Floats:
    """Return the gradient of Algorithm 2, shape (p,)."""
    half = digits(args)[1]
    bound = float(args["residual_clip"])
    x = _bounded(block, args)
    support = np.asarray(args.get("support", ()), dtype=np.int64)
    beta = np.asarray(args.get("beta", ()))
    fitted = x[:, support] @ beta
    y = block.outcome() - args.get("intercept", 0.0)
    if args["form"] == "response":
        step = fitted - clipped(y, bound)
        top = bound + float(args["column_bound"]) * float(np.abs(beta).sum())
        step = clipped(step, top)
    else:
        step = -clipped(y - fitted, bound)
        top = bound
    x, x_unit = rounded(x, unit_of(args["column_bound"], half), float(args["column_bound"]))
    step, unit = rounded(step, unit_of(top, half), top)
    return np.asarray(step @ x * (x_unit * unit), dtype=np.float64)


def _paper_gradient_summand(args: Args, columns: int) -> Box:
    check_choice(args.get("form"), FORMS, "form")
    c = positive(args, "column_bound")
    top = positive(args, "residual_clip")
    if args["form"] == "response":
        top += c * float(np.abs(np.asarray(args.get("beta", ()), dtype=np.float64)).sum())
    return Box(shape=(columns,), bound=c * top, derivation="2 c_x R, R the bound of the residual")


def precision_gradient(block: SiteBlock, args: Args) -> Floats:
    """Return sum x Pi_R(x_A'w), Algorithm 3 without its unit vector, shape (p,)."""
    half = digits(args)[1]
    bound = float(args["clip"])
    x = _bounded(block, args)
    fitted = clipped(x[:, np.asarray(args["columns"])] @ np.asarray(args["weights"]), bound)
    x, x_unit = rounded(x, unit_of(args["column_bound"], half), float(args["column_bound"]))
    fitted, unit = rounded(fitted, unit_of(bound, half), bound)
    return np.asarray(fitted @ x * (x_unit * unit), dtype=np.float64)


def _precision_summand(args: Args, columns: int) -> Box:
    vector(args, "weights", len(positions(args, "columns", columns)))
    top = positive(args, "column_bound") * positive(args, "clip")
    return Box(shape=(columns,), bound=top, derivation="2 c_x R_w")


def paper_scores(block: SiteBlock, args: Args) -> Floats:
    """Return sum Pi_Rw(w_j'x) Pi_R(r), shape (m,)."""
    half = digits(args)[1]
    bound = float(args["residual_clip"])
    forms, unit = rounded(clipped_forms(block, args), unit_of(args["clip"], half), float(args["clip"]))
    r, r_unit = rounded(block.residual(args, bound), unit_of(bound, half), bound)
    return np.asarray(r @ forms * (unit * r_unit), dtype=np.float64)


def _scores_summand(args: Args, columns: int) -> Box:
    top = positive(args, "clip") * positive(args, "residual_clip")
    return Box(shape=(width_of_forms(args, columns),), bound=top, derivation="2 R_w R")


def single_slopes(block: SiteBlock, args: Args) -> Floats:
    """Return sum Pi_Rw(w_j'x) x_j 1(|r| < R), shape (m,)."""
    half = digits(args)[1]
    reach = float(args["column_clip"])
    forms, unit = rounded(clipped_forms(block, args), unit_of(args["clip"], half), float(args["clip"]))
    forms *= (np.abs(block.residual(args)) < float(args["residual_clip"]))[:, None]
    x, x_unit = rounded(
        clipped(block.columns(args, np.asarray(args["targets"])), reach), unit_of(reach, half), reach
    )
    return np.asarray(np.einsum("ij,ij->j", forms, x) * (unit * x_unit), dtype=np.float64)


def _single_slopes_summand(args: Args, columns: int) -> Box:
    size = width_of_forms(args, columns)
    if len(positions(args, "targets", columns)) != size:
        raise ArgumentError(f"targets must name {size} columns, one for each column of transform")
    positive(args, "residual_clip")
    top = positive(args, "clip") * positive(args, "column_clip")
    return Box(shape=(size,), bound=top, derivation="2 R_w c, |w_j'x| <= R_w and |x_j| <= c")


_SCORES = (*FORM_ARGUMENTS, "residual_clip")

PAPER_OPS: dict[str, SiteOp] = named(
    SiteOp(
        name="paper_gradient",
        function=paper_gradient,
        sensitivity=stated(_paper_gradient_summand),
        arguments=(*COMMON, "column_bound", "residual_clip", "form"),
        wide=True,
    ),
    SiteOp(
        name="precision_gradient",
        function=precision_gradient,
        sensitivity=stated(_precision_summand),
        arguments=(*COMMON, "column_bound", "clip", "columns", "weights"),
        wide=True,
    ),
    SiteOp(
        name="paper_scores", function=paper_scores, sensitivity=stated(_scores_summand), arguments=_SCORES
    ),
    SiteOp(
        name="single_slopes",
        function=single_slopes,
        sensitivity=stated(_single_slopes_summand),
        arguments=(*_SCORES, "targets", "column_clip"),
    ),
)

register(PAPER_OPS)
