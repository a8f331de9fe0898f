"""Sums over a table on a cluster: a task for each part, whose exact integers are added up.

A task reads its part in blocks and adds them to accumulators. The totals are integers, so they are those of
one process, to the bit, in whatever order they are added. They have no noise: `dask_tables` and
`spark_tables` state which clusters may compute them. A task returns what is wrong with rows instead of
raising it, because clusters write raised errors into their logs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np

from privinf import errors
from privinf.errors import PrivinfError, SchemaError
from privinf.mechanisms.catalogue import SITE_OPS
from privinf.mechanisms.rows import PublicSizes, Rows, needed
from privinf.mechanisms.sources import Source, no_rows, require_columns
from privinf.mechanisms.statistics.block import Args, SiteBlock
from privinf.mechanisms.statistics.gridded import MomentSums
from privinf.mechanisms.statistics.ops import Accumulator
from privinf.mechanisms.statistics.terms import TermSums
from privinf.mechanisms.sums import Wide
from privinf.schema import Design
from privinf.typing import Missing

# ---- in a worker


class PartPasses(Protocol):
    """Reader of the rows of a partition: a `RowPasses`."""

    seen_levels: set[str]

    @property
    def empty(self) -> SiteBlock:
        """A block without rows."""

    def part(self) -> Iterator[SiteBlock]:
        """Yield all rows, which can be few."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionTask:
    """The sums over a part of a table: statistics of these names, with public arguments."""

    design: Design
    missing: Missing
    weights: str | None
    stream: int | None
    public: PublicSizes | None
    passes: Callable[..., PartPasses]
    queries: tuple[tuple[str, Args], ...]
    table: str


@dataclass(frozen=True, slots=True)
class _Partial:
    """Integers of some partitions, their number of rows, and the kinds of their columns.

    Notes
    -----
    **Privacy.** Sums without noise, and the only ones that leave a process: between those of the holder's own
    cluster.
    """

    rows: int
    seen_levels: frozenset[str]
    kinds: dict[str, str]
    totals: list[Wide]

    def packed(self) -> bytes:
        """Return a message that holds it."""
        totals = [[list(total.shape), total.ravel().tolist()] for total in self.totals]
        levels = sorted(self.seen_levels)
        return json.dumps([self.rows, levels, self.kinds, totals]).encode()


@dataclass(frozen=True, slots=True)
class _Refused:
    """An error by its name and text, which hold no value of a row."""

    kind: str
    message: str

    def packed(self) -> bytes:
        """Return a message that holds it."""
        return json.dumps({"error": self.kind, "message": self.message}).encode()

    def error(self) -> PrivinfError:
        """Return the error."""
        problem: PrivinfError = getattr(errors, self.kind)(self.message)
        return problem


def _unpacked(message: bytes) -> _Partial | _Refused:
    """Return what a message holds."""
    content = json.loads(message)
    if isinstance(content, dict):
        return _Refused(content["error"], content["message"])
    rows, levels, kinds, totals = content
    arrays = [np.array(integers, dtype=object).reshape(shape) for shape, integers in totals]
    return _Partial(rows, frozenset(levels), kinds, arrays)


def _result_or_refusal(work: Callable[[], _Partial], table: str) -> _Partial | _Refused:
    """Return the result of a task, or its error."""
    try:
        return work()
    except PrivinfError as problem:
        return _Refused(type(problem).__name__, str(problem))
    except Exception as problem:  # of pandas, of numpy: its text can show values
        return _Refused(
            "StorageError",
            f"the sums over {table} failed with an error of type {type(problem).__name__}",
        )


def partition_sums(task: PartitionTask, open_part: Callable[[], Source]) -> bytes:
    """Return the sums over one part of a table, or what is wrong with it, as a message."""
    return _result_or_refusal(lambda: _summed(task, open_part()), task.table).packed()


def _summed(task: PartitionTask, part: Source) -> _Partial:
    rows = Rows(part, None, task.missing)
    passes = task.passes(task.design, rows, task.weights, stream=task.stream, public=task.public)
    sums = _accumulators(task, passes)
    for block in passes.part():
        for accumulator in sums:
            accumulator.update(block)
    kinds = part.part_kinds(needed(task.design, task.weights))
    totals = [part_sums.total.integers() for accumulator in sums for part_sums in _parts(accumulator)]
    return _Partial(part.count(), frozenset(passes.seen_levels), kinds, totals)


def _accumulators(task: PartitionTask, passes: PartPasses) -> list[Accumulator]:
    accumulators = []
    for name, args in task.queries:
        make = SITE_OPS[name].sums
        assert make is not None
        accumulators.append(make(passes.empty, args))
    return accumulators


def _parts(sums: Accumulator) -> list[Any]:
    """Return the sums of integers that an accumulator is made of."""
    assert isinstance(sums, MomentSums | TermSums)
    return [sums.sums] if isinstance(sums, MomentSums) else sums.parts


def joined(table: str, messages: Sequence[bytes]) -> bytes:
    """Return the sums over several parts of a table, in their order, as one message."""
    parts = list(map(_unpacked, messages))
    wrong = next((part for part in parts if isinstance(part, _Refused)), None)
    if wrong is not None:
        return wrong.packed()
    whole = [part for part in parts if isinstance(part, _Partial)]
    return _result_or_refusal(lambda: _added(table, whole), table).packed()


def _added(table: str, parts: Sequence[_Partial]) -> _Partial:
    kinds = dict[str, str]()
    for part in parts:
        for name, kind in part.kinds.items():
            if kind and kinds.setdefault(name, kind) != kind:
                raise SchemaError(
                    f"column {name!r} of {table} holds {kinds[name]} at first and {kind} in a later "
                    "part: convert the column to one type"
                )
    totals = [
        np.sum(part_totals, axis=0, dtype=object)
        for part_totals in zip(*(part.totals for part in parts), strict=True)
    ]
    seen_columns = frozenset[str]().union(*(part.seen_levels for part in parts))
    return _Partial(sum(part.rows for part in parts), seen_columns, kinds, totals)


# ---- in the holder's process


def add_partitions(
    rows: Rows, task: PartitionTask, sums: Sequence[Accumulator]
) -> tuple[int, frozenset[str]]:
    """Add all rows of a table on a cluster to empty accumulators.

    Returns the number of rows, and the columns of which declared levels were seen.

    Raises
    ------
    SchemaError
        A row does not fit the design, or a part has other columns or types.
    NotAvailableError
        The cluster is open to others.
    StorageError
        A part cannot be read, or a worker died.
    """
    source = rows.features
    columns = needed(task.design, task.weights)
    require_columns(source, columns)
    total = _unpacked(source.gathered(columns, partial(partition_sums, task), partial(joined, task.table)))
    if isinstance(total, _Refused):
        raise total.error()
    if not total.rows:
        raise no_rows(task.table)
    totals = iter(total.totals)
    for accumulator in sums:
        for part in _parts(accumulator):
            part.take(total.rows, next(totals))
    return total.rows, total.seen_levels
