"""Sums made where the rows are: inside a database, as queries, or on a cluster, as a task a partition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from privinf.mechanisms.pushdown.databases import unfit
from privinf.mechanisms.rows import Rows, check_levels
from privinf.mechanisms.statistics.block import Args, SiteBlock
from privinf.mechanisms.statistics.ops import Accumulator, SiteOp
from privinf.schema import Design


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Rows that are summed where they are, as a design has them.

    Attributes
    ----------
    rows : Rows
    design : Design
    empty : SiteBlock
        A block without rows.
    weights : str or None
        Column of public observation weights.
    stream : int or None
        Blocks have all columns side by side, and their stream of public random numbers.
    passes : type
        `RowPasses`, for the parts of the rows.
    """

    rows: Rows
    design: Design
    empty: SiteBlock
    weights: str | None
    stream: int | None
    passes: Callable[..., Any]

    def sums(
        self, asked: Sequence[tuple[SiteOp, Args]], *, exact: bool
    ) -> tuple[list[Accumulator], list[int]]:
        """Return exact sums over all rows, and how many rows each query found.

        Raises as `traced.add_pushed` and `cluster.add_partitions`, and NotAvailableError for other sums.
        """
        found = [op.sums(self.empty, args) for op, args in asked if op.sums is not None]
        if len(found) < len(asked):
            raise unfit("there is a statistic without exact sums")
        if self.rows.features.pushes:
            from privinf.mechanisms.pushdown.traced import add_pushed

            plain = exact and self.weights is None
            return found, add_pushed(self.rows, self.design, self.empty, found, plain)
        from privinf.mechanisms.pushdown.cluster import PartitionTask, add_partitions

        names = tuple((op.name, args) for op, args in asked)
        task = PartitionTask(self.design, self.rows.missing, self.weights, self.stream, self.passes, names)
        n, seen = add_partitions(self.rows, task, found)
        check_levels(self.design, set(seen))
        return found, [n]
