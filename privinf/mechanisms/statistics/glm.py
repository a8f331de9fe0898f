r"""Sums over records from which a generalized linear model is fitted, with their replace-one sensitivities.

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
  public basis next to public random probes, made here from their seed. Batches are fixed by (seed, site,
  position) before any row is read: a record is in one of them, so the releases of different batches concern
  different records.

**On the grid** (`terms`) a score is r |u| times a direction, with |r u| <= R E; the other norms are those of
`Square` and `Product`. The logistic score's diameter is that of *right* scores at theta. The record on its
grid is a record, x; what is off is its residual, by 2^-26.3 for the table, 2^-32 for its own grid and, since
columns on the grid keep to R, a quarter of p 2^-32 |theta|_1 R max(1, |x|/R) for theta's, which |u| <= R^2 /
|x| makes up for; and its direction, by sqrt(p) 2^-20 for rounding and room. Two records move both.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

import numpy as np

from privinf.errors import ArgumentError
from privinf.mechanisms.philox import words_run
from privinf.mechanisms.statistics.block import (
    SMALLEST,
    Args,
    SiteBlock,
    positions,
    positive,
    positive_vector,
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
    steepest,
)
from privinf.mechanisms.statistics.loops import lengths
from privinf.mechanisms.statistics.ops import CLIENTS, SiteOp, named
from privinf.mechanisms.statistics.summands import Ball, Outer, Product, RowDirections, Square
from privinf.mechanisms.statistics.terms import RowReader, op_of_terms
from privinf.typing import Floats, Integers
from privinf.validation import check_array, check_choice
from privinf.wire import Derivations, Places, Statistics

# What rounding moves a logistic score of length 1, see `terms`.
ROUNDED = 2.0**-24  # by a number
ROUNDED_ENTRY = 2.0**-20  # for each root of a column


def _predictors(rows: RowReader) -> tuple[Floats, Floats]:
    """Return x'theta and the columns whose scores are requested, shape (k, rows)."""
    placed = rows.read()
    eta = placed.forms(np.asarray(rows.args["theta"], dtype=np.float64)[None])[0]
    x = placed.columns()
    return eta, x[np.asarray(rows.args["block"])] if "block" in rows.args else x


def _weighted(length: Floats, args: Args) -> Floats:
    """Return |u| = min(|x|, R^2 / |x|)."""
    return np.minimum(length, float(args["radius"]) ** 2 / np.maximum(length, SMALLEST))


def _bound(args: Args) -> float:
    """Return E."""
    return 1.0 if args["family"] == "binomial" else float(args["residual_clip"])


def _size(args: Args, columns: int) -> int:
    if "block" not in args:
        return columns
    if not len(chosen := positions(args, "block", columns)):
        raise ArgumentError("argument 'block' of the statistic must contain at least one column number")
    return len(chosen)


def _score_summand(args: Args, columns: int) -> Ball:
    """Return the ball of radius R E; logistic scores at theta have their own diameter and norm."""
    bound = check_glm(args, columns)
    radius = float(args["radius"])
    top = radius * bound
    if "block" in args:
        return Ball(size=_size(args, columns), top=top, derivation=Derivations.SCORES)
    slack = 2.0 * radius * bound * (ROUNDED_ENTRY * math.sqrt(columns) + ROUNDED)
    if args["family"] == "binomial":
        slack += radius * 2.0**-33 * columns**1.5 * float(np.linalg.norm(args["theta"])) * radius
    return Ball(
        size=columns,
        top=top,
        derivation=Derivations.SCORES_AT_THETA if args["family"] == "binomial" else Derivations.SCORES,
        apart=score_diameter(args, bound) + slack,
        longest=longest_score(args, bound) + slack / 2.0,  # one record is rounded where two were
    )


def _score(rows: RowReader, ball: Ball) -> tuple[Product]:
    eta, x = _predictors(rows)
    r = residuals(rows.block, eta, rows.args, exact=rows.exact)
    along = RowDirections(x)
    return (ball.product(r * _weighted(along.length, rows.args), along),)


def _hessian_summand(args: Args, columns: int) -> Outer:
    check_glm(args, columns)
    check_choice(args.get("curvature", "exact"), Curvature, "curvature")
    return Outer(size=_size(args, columns), top=float(args["radius"]) * math.sqrt(steepest(args)))


def _hessian(rows: RowReader, outer: Outer) -> tuple[Square]:
    eta, x = _predictors(rows)
    slope = curvatures(rows.block, eta, rows.args, exact=rows.exact)
    length = lengths(x)
    size = np.sqrt(slope) * np.minimum(1.0, float(rows.args["radius"]) / np.maximum(length, SMALLEST))
    x *= size
    return (outer.matrices(x, length * size),)


def _meat_summand(args: Args, columns: int) -> Outer:
    bound = check_glm(args, columns)
    size = _size(args, columns)
    top = float(args["radius"]) * bound if "block" in args else longest_score(args, bound)
    return Outer(size=size, top=top)


def _meat(rows: RowReader, outer: Outer) -> tuple[Square]:
    eta, x = _predictors(rows)
    r = residuals(rows.block, eta, rows.args, exact=rows.exact)
    length = lengths(x)
    size = np.abs(r) * _weighted(length, rows.args)
    x *= size / np.maximum(length, SMALLEST)
    return (outer.matrices(x, size),)


def batch_of(block: SiteBlock, seed: int, batches: int) -> Integers:
    """Return the public batch of each record, by (seed, site, position)."""
    words = words_run(seed, block.stream, block.start, len(block))
    return (words % np.uint64(batches)).astype(np.int64)


def partition_of(args: Args) -> tuple[str, str] | None:
    """Return the names of the partition into batches and of the requested batch; None without batches."""
    if "batches" not in args:
        return None
    return Places.BATCH.format(batches=args["batches"], seed=args["seed"]), str(args["batch"])


def sketch_of(args: Args, columns: int) -> Floats | None:
    """Return S, shape (columns, k): the basis next to scaled probes orthogonal to it; None without either."""
    basis = np.asarray(args["basis"], dtype=np.float64) if "basis" in args else np.empty((columns, 0))
    count = int(args.get("probes", 0))
    if count == 0:
        return basis if "basis" in args else None
    probes = _probes(int(args["probe_seed"]), count, columns, np.ascontiguousarray(basis).tobytes())
    return np.column_stack([basis, float(args["probe_scale"]) * probes])


@lru_cache(maxsize=2)
def _probes(seed: int, count: int, columns: int, basis: bytes) -> Floats:
    """Return orthonormal normal directions orthogonal to a basis, shape (columns, count)."""
    known_basis = np.frombuffer(basis).reshape(columns, -1)
    drawn = np.random.Generator(np.random.Philox(key=seed)).standard_normal((columns, count))
    drawn -= known_basis @ (known_basis.T @ drawn)
    return np.asarray(np.linalg.qr(drawn)[0])


def _drawn(block: SiteBlock, args: Args) -> SiteBlock:
    """Return the rows of the requested batch."""
    codes = batch_of(block, int(args["seed"]), int(args["batches"]))
    if block.batch is not None:
        features, response = block.batch.rows(codes, block.features, block.response)
    else:
        drawn = codes == int(args["batch"])
        features = block.features[drawn]
        response = block.response[drawn]
    return replace(block, features=features, response=response)


def _sketched_summand(args: Args, columns: int) -> Ball:
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
        batches = whole_number(args, "batches", minimum=1)
        if whole_number(args, "batch") >= batches or whole_number(args, "seed") >= 2**63:
            raise ArgumentError(
                f"argument 'batch' of the statistic must be smaller than batches={batches}, and its "
                "argument 'seed' smaller than 2^63"
            )
    return Ball(size=size, top=_norm_of(args), derivation=Derivations.SKETCHED_SCORES)


def _norm_of(args: Args) -> float:
    """Return the norm of the longest vector that a record adds: C, or R E of whole scores, if less."""
    clip = float(args["clip"])
    if {"basis", "probes", "moment", "unit"} & set(args):
        return clip
    return min(clip, float(args["radius"]) * _bound(args))


def _sketch_size(args: Args, columns: int) -> int:
    basis = check_array(args.get("basis", np.empty((columns, 0))), "basis", ndim=2)
    count = whole_number(args, "probes", default=0)
    if basis.shape[0] != columns or not 1 <= basis.shape[1] + count <= columns:
        raise ArgumentError(
            "arguments 'basis' (given directions) and 'probes' (number of random directions) of the "
            f"statistic must together give 1 to {columns} directions, and each column of 'basis' "
            f"needs {columns} entries"
        )
    if count:
        positive(args, "probe_scale")
        if whole_number(args, "probe_seed") >= 2**63:
            raise ArgumentError("argument 'probe_seed' of the statistic must be smaller than 2^63")
    return int(basis.shape[1]) + count


def _sketched_score(rows: RowReader, ball: Ball) -> tuple[Product]:
    args = rows.args
    if "batches" in args:
        rows.narrow(_drawn(rows.block, args))
    placed = rows.read()
    eta = placed.forms(np.asarray(args["theta"], dtype=np.float64)[None])[0]
    r = residuals(rows.block, eta, args, exact=rows.exact)
    x = placed.columns()
    unit = np.asarray(args.get("unit", np.ones(len(x))), dtype=np.float64)
    sketch = sketch_of(args, len(x))
    length = lengths(x)
    along = x / unit[:, None] if sketch is None else placed.forms(sketch.T / unit)
    z = along * (r * np.minimum(1.0, float(args["radius"]) ** 2 / np.maximum(length, SMALLEST) ** 2))
    if (moment := args.get("moment")) is not None:
        moment = np.asarray(moment) / unit
        z -= (moment if sketch is None else moment @ sketch)[:, None]
    return (ball.shrunk(z),)


GLM_OPS: dict[str, SiteOp] = named(
    op_of_terms(
        name=Statistics.GLM_SCORE,
        summand=_score_summand,
        terms=_score,
        arguments=(*GLM_ARGS, *CLIENTS, "block"),
    ),
    op_of_terms(
        name=Statistics.GLM_HESSIAN,
        summand=_hessian_summand,
        terms=_hessian,
        arguments=(*GLM_ARGS, *CLIENTS, "block", "curvature"),
    ),
    op_of_terms(
        name=Statistics.GLM_MEAT,
        summand=_meat_summand,
        terms=_meat,
        arguments=(*GLM_ARGS, *CLIENTS, "block"),
    ),
    op_of_terms(
        name=Statistics.GLM_SKETCHED_SCORE,
        summand=_sketched_summand,
        terms=_sketched_score,
        arguments=(
            *GLM_ARGS,
            *CLIENTS,
            "clip",
            "basis",
            "probes",
            "probe_seed",
            "probe_scale",
            "moment",
            "unit",
            "batches",
            "batch",
            "seed",
        ),
        partition=partition_of,
    ),
)
