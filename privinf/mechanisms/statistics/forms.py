r"""Sums of clipped linear forms of a record, Pi_Rw(w_j'x), each with its exact replace-one sensitivity.

x, r and Pi_R are as in `sparse_statistics`; Pi_Rw cuts every form w_j'x_A to [-R_w, R_w]. By entries (l_inf):

- ``paper_variances``: sum Pi_Rw(w_j'x)^2 Pi_R(r)^2, the squares of the scores, R_w^2 R^2;
- ``quadratic_forms``: sum Pi_Rv(v_k'x)^2, R_v^2;
- ``multiplier_scores``: sum e Pi_Rw(w_j'x) Pi_R(r) for several draws of public multipliers e, 2 R_w R max|e|.
  e is a function of (seed, site, position) alone: the replaced record keeps it. Gaussian multipliers are
  clipped at the public ``multiplier_bound``.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri

from privinf.errors import ArgumentError
from privinf.mechanisms.philox import words_run
from privinf.mechanisms.statistics.block import (
    Args,
    SiteBlock,
    clipped,
    cut,
    digits,
    positions,
    positive,
    rounded,
    unit_of,
    whole_number,
)
from privinf.mechanisms.statistics.ops import COMMON, Reach, SiteOp, named
from privinf.typing import Floats
from privinf.validation import check_array, check_choice

LAWS = ("rademacher", "gaussian")
MOST_DRAWS = 100_000
FORM_ARGUMENTS = (*COMMON, "columns", "transform", "clip")


def clipped_forms(block: SiteBlock, args: Args) -> Floats:
    """Return Pi_Rw(T'x_A), every entry cut to [-R_w, R_w], shape (rows, m)."""
    x = block.columns(args, np.asarray(args["columns"]))
    return clipped(x @ np.asarray(args["transform"], dtype=np.float64), float(args["clip"]))


def width_of_forms(args: Args, columns: int) -> int:
    """Return m, the number of forms; checks their arguments."""
    transform = check_array(args.get("transform", ()), "transform", ndim=2)
    if transform.shape[0] != len(positions(args, "columns", columns)):
        raise ArgumentError("transform must have one row for each of columns")
    return int(transform.shape[1])


def paper_variances(block: SiteBlock, args: Args) -> Floats:
    """Return sum Pi_Rw(w_j'x)^2 Pi_R(r)^2, shape (m,)."""
    bound = float(args["residual_clip"])
    forms = clipped_forms(block, args)
    forms *= block.residual(args, bound)[:, None]
    top = (float(args["clip"]) * bound) ** 2
    steps, unit = cut(np.square(forms, out=forms), unit_of(top, digits(args)[0]))
    return np.asarray(steps.sum(axis=0) * unit, dtype=np.float64)


def _paper_variances_reach(args: Args, columns: int) -> Reach:
    top = (positive(args, "clip") * positive(args, "residual_clip")) ** 2
    return Reach.positive_box((width_of_forms(args, columns),), top, "R_w^2 R^2")


def quadratic_forms(block: SiteBlock, args: Args) -> Floats:
    """Return sum Pi_Rv(v_k'x)^2 (Algorithm 5), shape (m,)."""
    forms = clipped_forms(block, args)
    steps, unit = cut(np.square(forms, out=forms), unit_of(args["clip"] ** 2, digits(args)[0]))
    return np.asarray(steps.sum(axis=0) * unit, dtype=np.float64)


def _quadratic_reach(args: Args, columns: int) -> Reach:
    top = positive(args, "clip") ** 2
    return Reach.positive_box((width_of_forms(args, columns),), top, "R_v^2")


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
    scores = clipped_forms(block, args)
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
    return Reach.box((draws, width_of_forms(args, columns)), top, "2 R_w R max|e|")


_SCORES = (*FORM_ARGUMENTS, "residual_clip")

FORM_OPS: dict[str, SiteOp] = named(
    SiteOp("paper_variances", paper_variances, _paper_variances_reach, _SCORES),
    SiteOp("quadratic_forms", quadratic_forms, _quadratic_reach, FORM_ARGUMENTS),
    SiteOp(
        "multiplier_scores", multiplier_scores, _multiplier_reach,
        (*_SCORES, "draws", "law", "seed", "multiplier_bound"),
    ),
)  # fmt: skip
