r"""Sums over records from which a generalised linear model is fitted, with their replace-one sensitivities.

x stands for (clip(x, bounds) - center) / scale; u = min(1, R^2/||x||^2) x is a record's weighted row and r
its clipped residual at the public theta (`glm_families`), |r| <= E (1 for the logistic model). The curvature
v is at most V: 1 gaussian, 1/4 logistic, the cap of the mean for the Poisson model.

- ``glm.score``: sum u r. Norm at most R E, so l2 2 R E; for the logistic model the diameter of all scores
  at this theta, which tends to 2 R only as theta grows;
- ``glm.hessian``: sum w v x x' in isometric entries. w v ||x||^2 <= R^2 V =: q, and
  ||aa' - bb'||_F^2 = |a|^4 + |b|^4 - 2 (a'b)^2 <= 2 q^2, attained by orthogonal a and b: l2 sqrt 2 R^2 V
  (R^2 V for a single column);
- ``glm.meat``: sum u u' r^2, likewise with q = (R E)^2: l2 sqrt 2 R^2 E^2;
- with ``block=`` positions, u and the x of the Hessian hold these columns alone, R is their radius, and r and
  v are still those at x'theta over all columns: the bounds above hold, but not the smaller logistic ones,
  since x'theta does not follow from the block;
- ``glm.sketched_score``: sum z over one public batch of records, z = S'(u r - m) / D shrunk to |z| <= C, S, m
  and D public: l2 2C, attained by opposite z; whole scores (no S, m, D) have C = R E if that is less. S is a
  public basis beside public random probes, made here from their seed. Batches are fixed by (seed, site,
  position) before any row is read: a record is in one of them, so the releases of different batches concern
  different records.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

import numpy as np

from privinf.errors import ArgumentError, SensitivityError
from privinf.mechanisms.philox import words_run
from privinf.mechanisms.statistics.block import (
    Args,
    SiteBlock,
    clip_norms,
    cut,
    digits,
    positions,
    positive,
    positive_vector,
    rounded,
    unit_of,
    vector,
    whole_number,
)
from privinf.mechanisms.statistics.families import (
    GLM_ARGS,
    Curvature,
    check_glm,
    curvatures,
    longest_score,
    residuals,
    score_diameter,
    weighted,
)
from privinf.mechanisms.statistics.ops import CLIENTS, Reach, SiteOp, named
from privinf.typing import Floats, Integers
from privinf.validation import check_array, check_choice

# Digits that the isometric factor sqrt 2 takes of a product's.
ROOT2, ROOT2_BITS = 181.0 / 128.0, 8
# Fewest digits of a factor of a score: up to sixteen million rows.
FEWEST = 14


def _score(block: SiteBlock, args: Args) -> Floats:
    half, radius = digits(args)[1], float(args["radius"])
    if digits(args)[0] and half < FEWEST:
        raise SensitivityError("so many rows leave a score too few digits for an exact sum")
    unit = unit_of(radius, half)
    x = block.columns(args)
    bound = 1.0 if args["family"] == "binomial" else float(args["residual_clip"])
    u, u_unit = rounded(weighted(_chosen(x, args), radius, unit), unit, radius)
    r, r_unit = rounded(residuals(block, x, args), unit_of(bound, half), bound)
    return np.asarray(r @ u * (u_unit * r_unit), dtype=np.float64)


def _chosen(x: Floats, args: Args) -> Floats:
    """Return the columns whose scores are asked for."""
    return x[:, np.asarray(args["block"])] if "block" in args else x


def _longest(args: Args, bound: float) -> float:
    """Return the largest norm of a record's score."""
    return float(args["radius"]) * bound if "block" in args else longest_score(args, bound)


def _size(args: Args, columns: int) -> int:
    if "block" not in args:
        return columns
    if not len(chosen := positions(args, "block", columns)):
        raise ArgumentError("block must name at least one column")
    return len(chosen)


def _score_reach(args: Args, columns: int) -> Reach:
    bound, radius = check_glm(args, columns), float(args["radius"])
    if "block" in args:
        return Reach.ball((_size(args, columns),), radius * bound, "2RE, |u| <= R, |r| <= E")
    # What rounding u and r can move two records' scores.
    slack = unit_of(radius, FEWEST) * math.sqrt(columns) * bound + radius * unit_of(bound, FEWEST)
    l2 = min(2.0 * radius * bound, score_diameter(args, bound) + slack)
    why = "diameter of the scores at theta" if args["family"] == "binomial" else "2RE, |u| <= R, |r| <= E"
    # One record is rounded where two were.
    longest = min(radius * bound, longest_score(args, bound) + slack / 2.0)
    return Reach((columns,), l2, l2, radius * bound, why, longest)


def upper_triangle(a: Floats, top: float, args: Args) -> Floats:
    """Return the isometric entries of sum a a' of rows with norm at most `top`."""
    unit = unit_of(top, max(digits(args)[0] - ROOT2_BITS, 0) // 2)
    a, unit = rounded(clip_norms(a, top, unit), unit, top)
    rows, columns = np.triu_indices(a.shape[1])
    return np.asarray((a.T @ a)[rows, columns] * unit**2 * np.where(rows == columns, 1.0, ROOT2))


def outer_reach(columns: int, top: float) -> Reach:
    """Return the reach of sum a a' of rows with norm at most `top`."""
    q, shape, why = top**2, (columns * (columns + 1) // 2,), "distance of two bounded rank-one matrices"
    if columns == 1:
        return Reach(shape, q, q, q, why, q)
    return Reach(shape, math.sqrt(2.0) * q, math.sqrt(2.0) * q, q, why, q)


def _hessian(block: SiteBlock, args: Args) -> Floats:
    radius, x = float(args["radius"]), block.columns(args)
    slope, most = curvatures(block, x, args)
    x = _chosen(x, args)
    squares = np.einsum("ij,ij->i", x, x)
    x *= (radius / np.sqrt(np.maximum(squares, radius**2)) * np.sqrt(slope))[:, None]
    return upper_triangle(x, radius * math.sqrt(most), args)


def _hessian_reach(args: Args, columns: int) -> Reach:
    check_glm(args, columns)
    check_choice(args.get("curvature", "exact"), Curvature, "curvature")
    most = {"gaussian": 1.0, "binomial": 0.25}.get(args["family"]) or float(args["mean_cap"])
    return outer_reach(_size(args, columns), float(args["radius"]) * math.sqrt(most))


def _meat(block: SiteBlock, args: Args) -> Floats:
    x = block.columns(args)
    u = weighted(_chosen(x, args), float(args["radius"]))
    u *= residuals(block, x, args)[:, None]
    bound = 1.0 if args["family"] == "binomial" else float(args["residual_clip"])
    return upper_triangle(u, _longest(args, bound), args)


def _meat_reach(args: Args, columns: int) -> Reach:
    bound = check_glm(args, columns)
    return outer_reach(_size(args, columns), _longest(args, bound))


def batch_of(block: SiteBlock, seed: int, batches: int) -> Integers:
    """Return the public batch of each record, by (seed, site, position)."""
    words = words_run(seed, block.stream, block.start, len(block))
    return (words % np.uint64(batches)).astype(np.int64)


def partition_of(args: Args) -> tuple[str, str] | None:
    """Return the names of the partition into batches and of the batch asked for; None without batches."""
    if "batches" not in args:
        return None
    return f"batch of {args['batches']} by seed {args['seed']}", str(args["batch"])


def sketch_of(args: Args, columns: int) -> Floats | None:
    """Return S, shape (columns, k): the basis beside scaled probes orthogonal to it; None without either."""
    basis = np.asarray(args["basis"], dtype=np.float64) if "basis" in args else np.empty((columns, 0))
    count = int(args.get("probes", 0))
    if count == 0:
        return basis if "basis" in args else None
    probes = _probes(int(args["probe_seed"]), count, columns, np.ascontiguousarray(basis).tobytes())
    return np.column_stack([basis, float(args["probe_scale"]) * probes])


@lru_cache(maxsize=2)
def _probes(seed: int, count: int, columns: int, basis: bytes) -> Floats:
    """Return orthonormal normal directions orthogonal to a basis, shape (columns, count)."""
    known = np.frombuffer(basis).reshape(columns, -1)
    drawn = np.random.Generator(np.random.Philox(key=seed)).standard_normal((columns, count))
    drawn -= known @ (known.T @ drawn)
    return np.asarray(np.linalg.qr(drawn)[0])


def _drawn(block: SiteBlock, args: Args) -> SiteBlock:
    """Return the rows of the batch asked for; all without one."""
    if "batches" not in args:
        return block
    drawn = batch_of(block, int(args["seed"]), int(args["batches"])) == int(args["batch"])
    return replace(block, features=block.features[drawn], response=block.response[drawn])


def _sketched_score(block: SiteBlock, args: Args) -> Floats:
    clip = _norm_of(args)
    unit = unit_of(clip, digits(args)[0])
    block = _drawn(block, args)
    x = block.columns(args)
    r = residuals(block, x, args)
    squares = np.einsum("ij,ij->i", x, x)
    radius2 = float(args["radius"]) ** 2
    factors = np.minimum(1.0, radius2 / np.maximum(squares, radius2)) * r
    unit_of_score = np.asarray(args.get("unit", 1.0), dtype=np.float64)
    sketch, moment = sketch_of(args, x.shape[1]), args.get("moment")
    if sketch is None:
        z = np.multiply(x, factors[:, None] / unit_of_score, out=x)
    else:
        sketch = sketch / unit_of_score[..., None] if "unit" in args else sketch
        z = (x @ sketch) * factors[:, None]
    if moment is not None:
        z -= np.asarray(moment) / unit_of_score if sketch is None else np.asarray(moment) @ sketch
    z, unit = cut(clip_norms(z, clip), unit)
    return np.asarray(z.sum(axis=0) * unit, dtype=np.float64)


def _sketched_reach(args: Args, columns: int) -> Reach:
    check_glm(args, columns)
    size = columns
    positive(args, "clip")
    if "moment" in args:
        vector(args, "moment", columns)
    if "unit" in args:
        positive_vector(args, "unit", columns)
    if "basis" in args or "probes" in args:
        size = _sketch_size(args, columns)
    if "batches" in args:
        batches = whole_number(args, "batches", least=1)
        if whole_number(args, "batch") >= batches or whole_number(args, "seed") >= 2**63:
            raise ArgumentError(f"batch must be below batches={batches}, seed below 2^63")
    # Cutting towards zero keeps the norm; two cut vectors are still in the ball.
    return Reach.ball((size,), _norm_of(args), "2C, |z| <= C")


def _norm_of(args: Args) -> float:
    """Return the norm of the longest vector that a record adds: C, or R E of whole scores, if less."""
    clip = float(args["clip"])
    if {"basis", "probes", "moment", "unit"} & set(args):
        return clip
    bound = 1.0 if args["family"] == "binomial" else float(args["residual_clip"])
    return min(clip, float(args["radius"]) * bound)


def _sketch_size(args: Args, columns: int) -> int:
    basis = check_array(args.get("basis", np.empty((columns, 0))), "basis", ndim=2)
    count = whole_number(args, "probes", default=0)
    if basis.shape[0] != columns or not 1 <= basis.shape[1] + count <= columns:
        raise ArgumentError(f"basis and probes must be 1 to {columns} directions in {columns} columns")
    if count:
        positive(args, "probe_scale")
        if whole_number(args, "probe_seed") >= 2**63:
            raise ArgumentError("probe_seed must be below 2^63")
    return int(basis.shape[1]) + count


GLM_OPS: dict[str, SiteOp] = named(
    SiteOp("glm.score", _score, _score_reach, (*GLM_ARGS, *CLIENTS, "block")),
    SiteOp("glm.hessian", _hessian, _hessian_reach, (*GLM_ARGS, *CLIENTS, "block", "curvature")),
    SiteOp("glm.meat", _meat, _meat_reach, (*GLM_ARGS, *CLIENTS, "block")),
    SiteOp(
        "glm.sketched_score", _sketched_score, _sketched_reach,
        (
            *GLM_ARGS, *CLIENTS, "clip", "basis", "probes", "probe_seed", "probe_scale", "moment", "unit",
            "batches", "batch", "seed",
        ),
        partition=partition_of,
    ),
)  # fmt: skip
