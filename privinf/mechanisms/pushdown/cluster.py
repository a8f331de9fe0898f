"""Sums over a dask frame: a task a partition on the holder's own cluster, totals added up as a tree.

A task reads its partition in blocks and adds them to the accumulators of blocks; the integers of these are
added up, eight partial sums a task, so that the holder's process gets one. They are the integers of one
process, to the bit, and un-noised: see `dask_frames` for the clusters that may have them. A task hands back
what is wrong with rows instead of raising it, as dask writes what is raised into its logs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pandas as pd

from privinf import errors
from privinf.errors import PrivinfError, SchemaError
from privinf.mechanisms.catalogue import SITE_OPS
from privinf.mechanisms.rows import PublicSizes, Rows, needed
from privinf.mechanisms.sources import Source, Types, frame_blocks, no_rows, require_columns
from privinf.mechanisms.statistics.block import Args, SiteBlock
from privinf.mechanisms.statistics.gridded import MomentSums
from privinf.mechanisms.statistics.ops import Accumulator
from privinf.mechanisms.statistics.terms import TermSums
from privinf.mechanisms.sums import Wide
from privinf.mechanisms.tables import DASK_FRAME, computed
from privinf.schema import Design
from privinf.schema.reading import kind_of
from privinf.typing import Missing

FAN = 8  # partial sums that one task adds up


class _Partition(Source):
    """One partition in the process that has it."""

    __slots__ = ("_frame", "columns")

    name = f"a partition of {DASK_FRAME}"
    ordered = False
    whole = False

    def __init__(self, frame: pd.DataFrame) -> None:
        self._frame = frame
        self.columns: Sequence[str] = list(map(str, frame.columns))

    def read(self, columns: Sequence[str], types: Types) -> Iterator[pd.DataFrame]:
        """Return blocks of rows."""
        return frame_blocks(self._frame, columns)

    def batches(self, columns: Sequence[str]) -> Iterator[Any] | None:
        """Return the columns as one Arrow batch, without a copy of doubles; None where Arrow takes none."""
        try:
            from pyarrow import RecordBatch

            return iter([RecordBatch.from_pandas(self._frame[list(columns)], preserve_index=False)])
        except Exception:  # pyarrow is not installed, or a column holds values that reading refuses
            return None

    def known(self) -> int:
        """Return the number of rows."""
        return len(self._frame)

    def state(self) -> object:
        """Return None: it does not change."""
        return None


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
    """The sums: statistics of these names, with public arguments."""

    design: Design
    missing: Missing
    weights: str | None
    stream: int | None
    public: PublicSizes | None
    passes: Callable[..., PartPasses]
    queries: tuple[tuple[str, Args], ...]


@dataclass(frozen=True, slots=True)
class _Partial:
    """Integers of some partitions, their number of rows, and the kinds of their columns.

    Notes
    -----
    **Privacy.** Un-noised sums, and the only ones that are pickled: between the processes of the holder's
    own cluster.
    """

    rows: int
    seen_levels: frozenset[str]
    kinds: dict[str, str]
    totals: list[Wide]


@dataclass(frozen=True, slots=True)
class _Refused:
    """An error by its name and text, which hold no value of a row."""

    kind: str
    message: str

    def error(self) -> PrivinfError:
        """Return the error."""
        problem: PrivinfError = getattr(errors, self.kind)(self.message)
        return problem


def _result_or_refusal(work: Callable[[], _Partial]) -> _Partial | _Refused:
    """Return the result of a task, or its error."""
    try:
        return work()
    except PrivinfError as problem:
        return _Refused(type(problem).__name__, str(problem))
    except Exception as problem:  # of pandas, of numpy: its text can show values
        return _Refused(
            "StorageError",
            f"the sums over {DASK_FRAME} failed with an error of type {type(problem).__name__}",
        )


def partition_sums(task: PartitionTask, frame: object) -> _Partial | _Refused:
    """Return the sums over one partition."""
    return _result_or_refusal(lambda: _summed(task, frame))


def _summed(task: PartitionTask, frame: object) -> _Partial:
    if not isinstance(frame, pd.DataFrame):
        raise SchemaError(f"a partition of {DASK_FRAME} is not a data frame")
    rows = Rows(_Partition(frame), None, task.missing)
    passes = task.passes(task.design, rows, task.weights, stream=task.stream, public=task.public)
    sums = _accumulators(task, passes)
    for block in passes.part():
        for accumulator in sums:
            accumulator.update(block)
    columns = needed(task.design, task.weights) if len(frame) else []
    kinds = {name: kind_of(frame[name]) for name in columns}
    totals = [part.total.integers() for accumulator in sums for part in _parts(accumulator)]
    return _Partial(len(frame), frozenset(passes.seen_levels), kinds, totals)


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


def joined(parts: Sequence[_Partial | _Refused]) -> _Partial | _Refused:
    """Return the sums over several parts of a table, in their order."""
    wrong = next((part for part in parts if isinstance(part, _Refused)), None)
    if wrong is not None:
        return wrong
    return _result_or_refusal(lambda: _added([part for part in parts if isinstance(part, _Partial)]))


def _added(parts: Sequence[_Partial]) -> _Partial:
    kinds = dict[str, str]()
    for part in parts:
        for name, kind in part.kinds.items():
            if kind and kinds.setdefault(name, kind) != kind:
                raise SchemaError(
                    f"column {name!r} of {DASK_FRAME} holds {kinds[name]} at first and {kind} in a later "
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
    """Add all rows of a dask frame to empty accumulators; return their number, and columns with levels seen.

    Raises
    ------
    SchemaError
        A row does not fit the design, or a partition has other columns or types.
    NotAvailableError
        The cluster is open to others.
    StorageError
        A partition cannot be made, or a worker died.
    """
    import dask

    source = rows.features
    columns = needed(task.design, task.weights)
    require_columns(source, columns)
    shared_task = dask.delayed(task, pure=False, traverse=False)
    sum_partition = dask.delayed(partition_sums, pure=False)
    join = dask.delayed(joined, pure=False)
    parts = [sum_partition(shared_task, part) for part in source.partitions(columns)]
    while len(parts) > 1:
        parts = [join(parts[start : start + FAN]) for start in range(0, len(parts), FAN)]
    total = computed(parts[0])
    if isinstance(total, _Refused):
        raise total.error()
    if not total.rows:
        raise no_rows(DASK_FRAME)
    totals = iter(total.totals)
    for accumulator in sums:
        for part in _parts(accumulator):
            part.take(total.rows, next(totals))
    return total.rows, total.seen_levels
