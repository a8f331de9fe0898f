"""Counts of values that lie outside their public bounds, and are put at the nearest one.

``values_outside``: for each of k columns the number of records whose value lies outside its bounds, or, of a
derived column, whose input does; ``columns_outside``: of columns alone. Replacing a record changes each of
the k marks, 0 or 1, by 1 at most: the l2 sensitivity of all counts together is sqrt k, attained by a record
that is outside everywhere in place of one that is inside. Values within 2^-20 of half the range beyond a
bound do not count: a bound that single precision rounds does not clip.
"""

from __future__ import annotations

import numpy as np

from privinf.errors import ArgumentError
from privinf.mechanisms.statistics.block import Args, positions, whole_number
from privinf.mechanisms.statistics.ops import COMMON, SiteOp, named
from privinf.mechanisms.statistics.summands import Marks, Numbers
from privinf.mechanisms.statistics.terms import RowReader, op_of_terms
from privinf.validation import check_flag
from privinf.wire import Derivations, Statistics


def _marks_summand(args: Args, columns: int) -> Marks:
    chosen = positions(args, "columns", columns)
    outcome = check_flag(args.get("outcome", False), "outcome")
    size = len(chosen) + outcome + whole_number(args, "inputs", default=0, minimum=0)
    if not size:
        raise ArgumentError("columns must contain at least one column whose values are counted")
    return Marks(size=size, derivation=Derivations.MARKS_OUTSIDE)


def _marks(rows: RowReader, marks: Marks) -> tuple[Numbers]:
    """Return the number of marks of every requested column, of the response and of inputs."""
    args = rows.args
    marked = rows.outside(
        np.asarray(args["columns"], dtype=np.int64),
        outcome=bool(args.get("outcome", False)),
        inputs=int(args.get("inputs", 0)),
    )
    return (marks.counts(marked),)


def _columns_summand(args: Args, columns: int) -> Marks:
    size = len(positions(args, "columns", columns))
    return Marks(size=size, derivation=Derivations.COUNTS_OUTSIDE)


def _columns(rows: RowReader, marks: Marks) -> tuple[Numbers]:
    """Return the number of marks of columns."""
    return (marks.counts(rows.outside(np.asarray(rows.args["columns"], dtype=np.int64))),)


OUTSIDE_OPS: dict[str, SiteOp] = named(
    op_of_terms(
        name=Statistics.VALUES_OUTSIDE,
        summand=_marks_summand,
        terms=_marks,
        arguments=("bits", "columns", "outcome", "inputs"),
    ),
    op_of_terms(
        name=Statistics.COLUMNS_OUTSIDE,
        summand=_columns_summand,
        terms=_columns,
        arguments=(*COMMON, "columns"),
        aligned=True,
    ),
)
