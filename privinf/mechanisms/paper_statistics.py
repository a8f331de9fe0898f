r"""The per-record sums of the paper's own algorithms, with their replace-one sensitivities.

c_x bounds every column, Pi_R clips a scalar; every entry is bounded on its own, so the natural sensitivity is
that of an entry (l_inf):

- ``paper_gradient``: sum -x Pi_R(y - x'beta), 2 c_x R (form "residual"), or sum x (x'beta - Pi_R(y)),
  2 c_x (R + c_x ||beta||_1) (form "response"; ||beta||_1 <= sqrt(s) C for the projected iterates);
- ``precision_gradient``: sum x Pi_R(x'w), 2 c_x R;
- ``paper_scores``: sum Pi_Rw(w_j'x) Pi_R(r), 2 R_w R; ``paper_variances``: sum of their squares, R_w^2 R^2;
- ``single_slopes``: sum Pi_Rw(w_j'x) x_j 1(|r| < R) with |x_j| <= c, the slope of the scores, 2 R_w c;
- ``quadratic_forms``: sum Pi_Rv(v_k'x)^2, R_v^2;
- ``multiplier_scores``: sum e Pi_Rw(w_j'x) Pi_R(r) for several draws of public multipliers e, 2 R_w R max|e|.
  e is a function of (seed, site, position) alone: the replaced record keeps it. Gaussian multipliers are
  clipped at the public ``multiplier_bound``.

The noise variance (Algorithm 4) is ``squared_residuals`` of `sparse_statistics`.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri

from privinf.errors import ArgumentError
from privinf.mechanisms.philox import words_run
from privinf.mechanisms.site_ops import COMMON, Reach, SiteOp, named
from privinf.mechanisms.site_rows import (
    Args,
    SiteBlock,
    clipped,
    cut,
    digits,
    positions,
    positive,
    rounded,
    unit_of,
    vector,
    whole_number,
)
from privinf.typing import Floats
from privinf.validation import check_array, check_choice

FORMS = ("residual", "response")
LAWS = ("rademacher", "gaussian")
MOST_DRAWS = 100_000


def _bounded(block: SiteBlock, args: Args) -> Floats:
    return clipped(block.columns(args), float(args["column_bound"]))


def paper_gradient(block: SiteBlock, args: Args) -> Floats:
    """Return the gradient of Algorithm 2, shape (p,)."""
    half, bound = digits(args)[1], float(args["residual_clip"])
    x = _bounded(block, args)
    support, beta = np.asarray(args.get("support", ()), dtype=np.int64), np.asarray(args.get("beta", ()))
    fitted = x[:, support] @ beta
    y = block.outcome() - args.get("intercept", 0.0)
    if args["form"] == "response":
        step = fitted - clipped(y, bound)
        top = bound + float(args["column_bound"]) * float(np.abs(beta).sum())
        step = clipped(step, top)
    else:
        step, top = -clipped(y - fitted, bound), bound
    x, x_unit = rounded(x, unit_of(args["column_bound"], half), float(args["column_bound"]))
    step, unit = rounded(step, unit_of(top, half), top)
    return np.asarray(step @ x * (x_unit * unit), dtype=np.float64)


def _paper_gradient_reach(args: Args, columns: int) -> Reach:
    check_choice(args.get("form"), FORMS, "form")
    c, top = positive(args, "column_bound"), positive(args, "residual_clip")
    if args["form"] == "response":
        top += c * float(np.abs(np.asarray(args.get("beta", ()), dtype=np.float64)).sum())
    return Reach.box((columns,), c * top, "2 c_x R, R the bound of the residual")


def precision_gradient(block: SiteBlock, args: Args) -> Floats:
    """Return sum x Pi_R(x_A'w), Algorithm 3 without its unit vector, shape (p,)."""
    half, bound = digits(args)[1], float(args["clip"])
    x = _bounded(block, args)
    fitted = clipped(x[:, np.asarray(args["columns"])] @ np.asarray(args["weights"]), bound)
    x, x_unit = rounded(x, unit_of(args["column_bound"], half), float(args["column_bound"]))
    fitted, unit = rounded(fitted, unit_of(bound, half), bound)
    return np.asarray(fitted @ x * (x_unit * unit), dtype=np.float64)


def _precision_reach(args: Args, columns: int) -> Reach:
    vector(args, "weights", len(positions(args, "columns", columns)))
    top = positive(args, "column_bound") * positive(args, "clip")
    return Reach.box((columns,), top, "2 c_x R_w")


def _forms(block: SiteBlock, args: Args) -> Floats:
    """Return Pi_Rw(T'x_A), shape (rows, m)."""
    x = block.columns(args, np.asarray(args["columns"]))
    return clipped(x @ np.asarray(args["transform"], dtype=np.float64), float(args["clip"]))


def _forms_of(args: Args, columns: int) -> int:
    transform = check_array(args.get("transform", ()), "transform", ndim=2)
    if transform.shape[0] != len(positions(args, "columns", columns)):
        raise ArgumentError("transform must have one row for each of columns")
    return int(transform.shape[1])


def paper_scores(block: SiteBlock, args: Args) -> Floats:
    """Return sum Pi_Rw(w_j'x) Pi_R(r), shape (m,)."""
    half, bound = digits(args)[1], float(args["residual_clip"])
    forms, unit = rounded(_forms(block, args), unit_of(args["clip"], half), float(args["clip"]))
    r, r_unit = rounded(block.residual(args, bound), unit_of(bound, half), bound)
    return np.asarray(r @ forms * (unit * r_unit), dtype=np.float64)


def _scores_reach(args: Args, columns: int) -> Reach:
    top = positive(args, "clip") * positive(args, "residual_clip")
    return Reach.box((_forms_of(args, columns),), top, "2 R_w R")


def paper_variances(block: SiteBlock, args: Args) -> Floats:
    """Return sum Pi_Rw(w_j'x)^2 Pi_R(r)^2, shape (m,)."""
    bound = float(args["residual_clip"])
    forms = _forms(block, args)
    forms *= block.residual(args, bound)[:, None]
    top = (float(args["clip"]) * bound) ** 2
    steps, unit = cut(np.square(forms, out=forms), unit_of(top, digits(args)[0]))
    return np.asarray(steps.sum(axis=0) * unit, dtype=np.float64)


def _paper_variances_reach(args: Args, columns: int) -> Reach:
    top = (positive(args, "clip") * positive(args, "residual_clip")) ** 2
    return Reach.positive_box((_forms_of(args, columns),), top, "R_w^2 R^2")


def single_slopes(block: SiteBlock, args: Args) -> Floats:
    """Return sum Pi_Rw(w_j'x) x_j 1(|r| < R), shape (m,)."""
    half, reach = digits(args)[1], float(args["column_clip"])
    forms, unit = rounded(_forms(block, args), unit_of(args["clip"], half), float(args["clip"]))
    forms *= (np.abs(block.residual(args)) < float(args["residual_clip"]))[:, None]
    x, x_unit = rounded(clipped(block.columns(args, np.asarray(args["targets"])), reach),
                        unit_of(reach, half), reach)  # fmt: skip
    return np.asarray(np.einsum("ij,ij->j", forms, x) * (unit * x_unit), dtype=np.float64)


def _single_slopes_reach(args: Args, columns: int) -> Reach:
    size = _forms_of(args, columns)
    if len(positions(args, "targets", columns)) != size:
        raise ArgumentError(f"targets must name {size} columns, one for each column of transform")
    positive(args, "residual_clip")
    top = positive(args, "clip") * positive(args, "column_clip")
    return Reach.box((size,), top, "2 R_w c, |w_j'x| <= R_w and |x_j| <= c")


def quadratic_forms(block: SiteBlock, args: Args) -> Floats:
    """Return sum Pi_Rv(v_k'x)^2 (Algorithm 5), shape (m,)."""
    forms = _forms(block, args)
    steps, unit = cut(np.square(forms, out=forms), unit_of(args["clip"] ** 2, digits(args)[0]))
    return np.asarray(steps.sum(axis=0) * unit, dtype=np.float64)


def _quadratic_reach(args: Args, columns: int) -> Reach:
    top = positive(args, "clip") ** 2
    return Reach.positive_box((_forms_of(args, columns),), top, "R_v^2")


def multipliers(block: SiteBlock, args: Args) -> Floats:
    """Return the public multipliers of a block's rows, shape (draws, rows): by (seed, site, position)."""
    draws, seed, rows = int(args["draws"]), int(args["seed"]), len(block)
    if args["law"] == "rademacher":
        per = -(-draws // 64)
        words = words_run(seed, block.stream, block.start * per, rows * per).reshape(rows, per)
        flags = np.unpackbits(words.astype("<u8").view(np.uint8), axis=1, bitorder="little")[:, :draws]
        return np.asarray(flags.T * 2.0 - 1.0, dtype=np.float64)
    words = words_run(seed, block.stream, block.start * draws, rows * draws).reshape(rows, draws)
    normal = ndtri(((words >> np.uint64(11)) + 0.5) * 2.0**-53)
    return clipped(normal.T, float(args["multiplier_bound"]))


def multiplier_scores(block: SiteBlock, args: Args) -> Floats:
    """Return sum e Pi_Rw(w_j'x) Pi_R(r) for every draw of e (Algorithm 7), shape (draws, m)."""
    bits, half = digits(args)
    bound = float(args["residual_clip"])
    top = float(args["clip"]) * bound
    scores = _forms(block, args)
    scores *= block.residual(args, bound)[:, None]
    e, e_unit = multipliers(block, args), 1.0
    if args["law"] == "gaussian":
        most = float(args["multiplier_bound"])
        e, e_unit = rounded(e, unit_of(most, half), most)
        bits = half
    scores, unit = rounded(scores, unit_of(top, bits), top)
    return np.asarray(e @ scores * (e_unit * unit), dtype=np.float64)


def _multiplier_reach(args: Args, columns: int) -> Reach:
    check_choice(args.get("law"), LAWS, "law")
    draws = whole_number(args, "draws", least=1)
    if draws > MOST_DRAWS:
        raise ArgumentError(f"draws must be at most {MOST_DRAWS}")
    if whole_number(args, "seed") >= 2**64:
        raise ArgumentError("seed must be below 2^64")
    top = positive(args, "clip") * positive(args, "residual_clip")
    if args["law"] == "gaussian":
        top *= positive(args, "multiplier_bound")
    return Reach.box((draws, _forms_of(args, columns)), top, "2 R_w R max|e|")


_FORMS = (*COMMON, "columns", "transform", "clip")
_SCORES = (*_FORMS, "residual_clip")

PAPER_OPS: dict[str, SiteOp] = named(
    SiteOp(
        "paper_gradient", paper_gradient, _paper_gradient_reach,
        (*COMMON, "column_bound", "residual_clip", "form"), wide=True,
    ),
    SiteOp(
        "precision_gradient", precision_gradient, _precision_reach,
        (*COMMON, "column_bound", "clip", "columns", "weights"), wide=True,
    ),
    SiteOp("paper_scores", paper_scores, _scores_reach, _SCORES),
    SiteOp("paper_variances", paper_variances, _paper_variances_reach, _SCORES),
    SiteOp("single_slopes", single_slopes, _single_slopes_reach, (*_SCORES, "targets", "column_clip")),
    SiteOp("quadratic_forms", quadratic_forms, _quadratic_reach, _FORMS),
    SiteOp(
        "multiplier_scores", multiplier_scores, _multiplier_reach,
        (*_SCORES, "draws", "law", "seed", "multiplier_bound"),
    ),
)  # fmt: skip
