r"""Sums from which proportional-hazards models are fitted in whitened units, with their sensitivities.

x stands for (clip(x, bounds) - center) / scale of the columns `columns`, y for the time, cut at 0 and at the
last edge, and an event is a status above 1/2 at a time up to that edge. The public edges 0 < t_1 < ... < t_K
cut time into intervals, and interval k has the public increment dL_k, so that the hazard of x cumulated up to
t, H(t), is exp(x'theta) times a function that is linear within an interval. Interval k is in the block b of
q. The design in block b is v_b = T'x + o_b, for a public matrix T and public vectors o_b. Lambda_b is the
hazard of x cumulated within block b up to the record's own time, and Lambda the sum over blocks.

- *Stop*: x is followed up to the last edge at which H is at most c. Events and time after it are cut.
- *Weight*: w = min(1, B / Q), Q = max |v_b| max(1, H at the stop), the maximum over blocks that x reaches.

Stop and weight are functions **of x alone**, so that the score has mean 0 at the right coefficients. What a
record adds is bounded by these norms, whatever x, y, theta and T are:

- ``hazards.counts``: how many records have Q, or w sum_b Lambda_b |v_b|^2, above thresholds, see `summands`;
- ``hazards.score``: s = w sum_b v_b (event in b - Lambda_b), shrunk to |s| <= B: 2 B. It is attained: events
  have residuals up to 1, records without one down to -c;
- ``hazards.meat``: sum s s': sqrt 2 B^2 (B^2 for one column);
- ``hazards.secant``: sum of A = w sum_b g_b v_b v_b', g_b the secant of Lambda_b between theta and a step
  from there, scaled to tr A <= K: sqrt 2 K. For positive semidefinite A and A'

.. math:: |A - A'|_F^2 = |A|_F^2 + |A'|_F^2 - 2 tr A A' \le tr^2 A + tr^2 A' \le 2 K^2,

attained by matrices of rank one with orthogonal directions.

**On the grid** the q vectors sqrt(w g_b) v_b of a record are rounded as one vector of all their entries
would be, of length sqrt(tr A): the sum of their squared norms is at most K (`Semidefinite`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from privinf.errors import ArgumentError
from privinf.mechanisms.statistics.block import (
    SMALLEST,
    Args,
    made_finite,
    positions,
    positive,
    vector,
    whole_number,
)
from privinf.mechanisms.statistics.curved import SMALLEST_STEP, TANGENT
from privinf.mechanisms.statistics.families import exponential
from privinf.mechanisms.statistics.loops import lengths
from privinf.mechanisms.statistics.ops import RecordSensitivity, SiteOp, named
from privinf.mechanisms.statistics.summands import Ball, Cells, Counts, Outer, Product, Square
from privinf.mechanisms.statistics.survival import MIDDLE, MOST_INTERVALS
from privinf.mechanisms.statistics.terms import RowReader, op_of_terms
from privinf.typing import Floats
from privinf.validation import SAME_TIME, check_array, check_choice
from privinf.wire import Derivations, Statistics

# Arguments of every statistic.
MODEL = (
    "center",
    "scale",
    "bits",
    "columns",
    "status",
    "edges",
    "increments",
    "blocks",
    "theta",
    "transform",
    "offsets",
    "stop",
    "score_bound",
)
MOST_BLOCKS = 16
COUNTED = ("score", "curvature")  # sizes of records that can be counted above thresholds
ROUNDED = 2.0**-20  # of a vector of length 1, by which rounding moves each entry, twice over


class _FollowUp:
    """A block's rows up to their stop: residuals, cumulated hazards and designs of blocks, and weights."""

    __slots__ = ("args", "base", "designs", "exact", "predictor", "residuals", "risk", "size", "weight")

    def __init__(self, rows: RowReader) -> None:
        args = rows.args
        self.args = args
        self.exact = rows.exact
        theta = np.asarray(args["theta"], dtype=np.float64)
        transform = np.asarray(args["transform"], dtype=np.float64)
        forms = rows.read(np.asarray(args["columns"])).forms(np.vstack([theta, transform.T]))
        self.predictor = forms[0]
        self.risk = exponential(self.predictor, exact=self.exact)
        self.designs = [
            forms[1:] + offset[:, None] for offset in np.asarray(args["offsets"], dtype=np.float64)
        ]
        edges = np.concatenate([[0.0], np.asarray(args["edges"], dtype=np.float64)])
        increments = np.asarray(args["increments"], dtype=np.float64)
        block = np.asarray(args["blocks"])
        total = np.concatenate([[0.0], np.cumsum(increments)])
        last = np.full(len(self.risk), len(increments))
        if "stop" in args:
            last = np.searchsorted(total, float(args["stop"]) / self.risk, side="right") - 1
        ends = edges[last]
        time = made_finite(rows.block.response.astype(np.float64))
        status = rows.block.features[:, int(args["status"])]
        same = 1.0 + SAME_TIME  # a time that differs from an edge by rounding is at it, as in the cells
        event = (status > MIDDLE) & (time <= ends * same) & (last > 0)
        time = np.clip(time, 0.0, ends)
        place = np.minimum(np.searchsorted(edges[1:] * same, time, side="left"), len(increments) - 1)
        after = np.minimum(time - edges[place], np.diff(edges)[place])
        self.base = []
        self.residuals = []
        self.size = np.zeros(len(self.risk))
        for b, v in enumerate(self.designs):
            inside = np.where(block == b, increments, 0.0)
            start = np.concatenate([[0.0], np.cumsum(inside)])[place]
            self.base.append(start + (inside / np.diff(edges))[place] * after)
            self.residuals.append(np.where(event & (block[place] == b), 1.0, 0.0) - self.base[b] * self.risk)
            reached = last > int(np.searchsorted(block, b))
            self.size = np.maximum(self.size, np.where(reached, lengths(v), 0.0))
        self.size *= np.maximum(1.0, self.risk * total[last])
        made_finite(self.size)
        self.weight = np.ones(len(self.risk))
        if "score_bound" in args:
            self.weight = np.minimum(1.0, float(args["score_bound"]) / np.maximum(self.size, SMALLEST))

    def scores(self) -> Floats:
        """Return the weighted scores, shape (p, rows)."""
        total = self.designs[0] * (self.residuals[0] * self.weight)
        for v, residual in zip(self.designs[1:], self.residuals[1:], strict=True):
            total += v * (residual * self.weight)
        return made_finite(total)

    def parts(self, step: Floats | None = None) -> list[Floats]:
        """Return w Lambda_b of every block, or w times its secant along a step."""
        if step is None:
            return [made_finite(base * self.risk * self.weight) for base in self.base]
        parts = []
        smallest_step = TANGENT if self.exact else SMALLEST_STEP
        for base, v in zip(self.base, self.designs, strict=True):
            move = np.zeros(len(self.risk))
            for entry, size in zip(v, step, strict=True):
                move += entry * size
            made_finite(move)
            middle = exponential(self.predictor + 0.5 * move, exact=self.exact)
            ends = exponential(self.predictor + move, exact=self.exact) - self.risk
            apart = np.copysign(np.maximum(np.abs(move), smallest_step), move)
            slope = np.where(np.abs(move) < smallest_step, middle, ends / apart)
            parts.append(np.maximum(made_finite(base * slope * self.weight), 0.0))
        return parts

    def vectors(self, step: Floats | None = None) -> tuple[Floats, Floats]:
        """Return sqrt(w g_b) v_b of all blocks, shape (p, q rows), and the trace of every record."""
        roots = [v * np.sqrt(part) for v, part in zip(self.designs, self.parts(step), strict=True)]
        trace = np.zeros(len(self.risk))
        for root in roots:
            trace += np.square(lengths(root))
        return np.concatenate([made_finite(root) for root in roots], axis=1), made_finite(trace)


@dataclass(frozen=True, slots=True, kw_only=True)
class Semidefinite:
    """Positive semidefinite matrices of `size` columns, sums of `count` squares, of trace at most `trace`."""

    size: int
    count: int
    trace: float

    @property
    def outer(self) -> Outer:
        """The matrices of rank one among them, whose largest distance is that of all."""
        return Outer(
            size=self.size, top=math.sqrt(self.trace), square=self.trace, derivation=Derivations.TRACE
        )

    def sensitivity(self) -> RecordSensitivity:
        """Return the largest Frobenius distance of two matrices, and the largest norm of one."""
        return self.outer.sensitivity()

    def matrices(self, vectors: Floats, trace: Floats) -> Square:
        """Return the sum over records of the squares of their `count` vectors, scaled to the trace.

        Parameters
        ----------
        vectors : ndarray, shape (size, count * rows)
            Vectors of the rows, one after the other.
        trace : ndarray, shape (rows,)
            Sum of their squared lengths.
        """
        # All entries of a record are rounded as one vector's: with room for the roots of all of them.
        room = 1.0 + ROUNDED * math.sqrt(self.size * self.count)
        length = np.tile(np.sqrt(trace) * room, self.count)
        return Square(vectors=vectors, top=math.sqrt(self.trace), length=length, count=self.count)


# ---- the statistics


def _check_model(args: Args, columns: int) -> int:
    """Check the common arguments, and return the number of whitened columns."""
    used = len(positions(args, "columns", columns))
    if not used:
        raise ArgumentError("argument 'columns' of the statistic must contain at least one column number")
    if whole_number(args, "status") >= columns:
        raise ArgumentError(f"argument 'status' of the statistic must be a column number below {columns}")
    vector(args, "theta", used)
    edges = vector(args, "edges")
    if not 1 <= len(edges) <= MOST_INTERVALS or not edges[0] > 0.0 or not (np.diff(edges) > 0.0).all():
        raise ArgumentError(
            f"argument 'edges' of the statistic must hold between 1 and {MOST_INTERVALS} positive numbers in "
            "increasing order"
        )
    if not (vector(args, "increments", len(edges)) >= 0.0).all():
        raise ArgumentError("argument 'increments' of the statistic must hold no negative number")
    offsets = check_array(args.get("offsets", ()), "offsets", ndim=2)
    transform = check_array(args.get("transform", ()), "transform", ndim=2)
    count, size = offsets.shape
    if not 1 <= count <= MOST_BLOCKS or transform.shape != (used, size):
        raise ArgumentError(
            "arguments 'transform' and 'offsets' of the statistic must be matrices of equally many columns; "
            f"'transform' has {used} rows (one for each column), and 'offsets' 1 to {MOST_BLOCKS} (one for "
            "each block)"
        )
    blocks = vector(args, "blocks", len(edges))
    ends = (blocks[0], blocks[-1])
    if ends != (0.0, count - 1.0) or not np.isin(np.diff(blocks), (0.0, 1.0)).all():
        raise ArgumentError(
            "argument 'blocks' of the statistic must hold the block of each interval, from 0 to "
            f"{count - 1} in steps of 1"
        )
    for name in {"stop", "score_bound"} & set(args):
        positive(args, name)
    if not 1 <= size <= used + count:
        raise ArgumentError(f"argument 'transform' of the statistic must have 1 to {used + count} columns")
    return int(size)


def _counts_summand(args: Args, columns: int) -> Cells:
    _check_model(args, columns)
    check_choice(args.get("of"), COUNTED, "of")
    return Cells.from_args(args)


def _counts(rows: RowReader, cells: Cells) -> tuple[Counts]:
    at = _FollowUp(rows)
    return (cells.counts(at.size if rows.args["of"] == "score" else at.vectors()[1]),)


def _score_summand(args: Args, columns: int) -> Ball:
    size = _check_model(args, columns)
    return Ball(size=size, top=positive(args, "high"), derivation=Derivations.HAZARD_SCORES)


def _score(rows: RowReader, ball: Ball) -> tuple[Product]:
    return (ball.shrunk(_FollowUp(rows).scores()),)


def _meat_summand(args: Args, columns: int) -> Outer:
    size = _check_model(args, columns)
    return Outer(size=size, top=positive(args, "high"))


def _meat(rows: RowReader, outer: Outer) -> tuple[Square]:
    scores = _FollowUp(rows).scores()
    return (outer.matrices(scores, lengths(scores)),)


def _secant_summand(args: Args, columns: int) -> Semidefinite:
    vector(args, "step", size := _check_model(args, columns))
    return Semidefinite(size=size, count=len(args["offsets"]), trace=positive(args, "clip"))


def _secant(rows: RowReader, summand: Semidefinite) -> tuple[Square]:
    at = _FollowUp(rows)
    return (summand.matrices(*at.vectors(np.asarray(rows.args["step"], dtype=np.float64))),)


HAZARD_OPS: dict[str, SiteOp] = named(
    op_of_terms(
        name=Statistics.HAZARDS_COUNTS,
        summand=_counts_summand,
        terms=_counts,
        arguments=(*MODEL, "of", "thresholds"),
    ),
    op_of_terms(
        name=Statistics.HAZARDS_SCORE, summand=_score_summand, terms=_score, arguments=(*MODEL, "high")
    ),
    op_of_terms(name=Statistics.HAZARDS_MEAT, summand=_meat_summand, terms=_meat, arguments=(*MODEL, "high")),
    op_of_terms(
        name=Statistics.HAZARDS_SECANT,
        summand=_secant_summand,
        terms=_secant,
        arguments=(*MODEL, "step", "clip"),
    ),
)
