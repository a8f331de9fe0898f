"""Spark DataFrames: executors compute the exact sums of their partitions.

The sums have no noise, and go from the executors to the holder's process. So Spark must run in this process
(``local[...]``), or with authentication and encryption between its processes. Every pass over the rows runs
the query again: only queries that give the same rows every time are accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import pandas as pd

from privinf.errors import NotAvailableError
from privinf.mechanisms.arrow import drawn, frames_of, guarded_read, string_names
from privinf.mechanisms.sources import Source, SpreadSource, Types

SPARK_FRAME = "the Spark DataFrame"
FAN = 64  # partial results that are held before they are joined
# Nodes of a query whose rows depend on the order in which Spark finds them.
BY_ORDER = ("GlobalLimit", "LocalLimit", "Limit", "Offset", "Tail", "Sample")
# Functions of several rows whose value depends on their order.
BY_ORDER_FUNCTIONS = ("first", "last", "any_value", "first_value", "last_value", "collect_list")
# The first byte of what an executor returns.
RESULT = b"R"
VERSION = b"V"


class SparkSource(SpreadSource):
    """A Spark DataFrame, whose sums are computed by its executors.

    Parameters
    ----------
    frame : pyspark.sql.DataFrame

    Raises
    ------
    NotAvailableError
        A DataFrame of Spark Connect; processes of Spark exchange messages without encryption; or the query
        can give other rows the next time.

    Notes
    -----
    **Privacy.** Sums leave an executor without noise, and go to the holder's process alone. What needs rows
    gets one partition after the other in the holder's process.
    """

    __slots__ = ("_frame", "columns")

    name = SPARK_FRAME
    ordered = False

    def __init__(self, frame: object) -> None:
        self._frame = cast(Any, frame)
        if not hasattr(self._frame, "_jdf"):
            raise NotAvailableError(
                "DataFrames of Spark Connect are not supported, because sums without noise would pass "
                "through its server: use a classic SparkSession, or write the table to Parquet and pass its "
                "path"
            )
        self.columns: Sequence[str] = string_names(self._frame.columns)
        _check_encryption(self._frame)
        _check_repeatable(self._frame)

    def read(self, columns: Sequence[str], types: Types) -> Iterator[pd.DataFrame]:
        """Yield blocks of rows; StorageError if Spark fails."""
        return frames_of(self.name, self.batches(columns), list(columns))

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """Yield Arrow batches, partition by partition."""
        import pyarrow

        chosen = self._chosen(columns)
        packed = guarded_read(self.name, lambda: chosen.mapInArrow(_packer(), "batch binary"))
        for row in drawn(self.name, packed.toLocalIterator):
            with pyarrow.ipc.open_stream(row[0]) as stream:
                yield from stream

    def count(self) -> int:
        """Return the number of rows, counted by the executors."""
        return int(guarded_read(self.name, self._frame.count))

    def state(self) -> object:
        """Return None: nothing of it is seen before it is read."""
        return None

    def gathered(
        self,
        columns: Sequence[str],
        work: Callable[[Callable[[], Source]], bytes],
        join: Callable[[Sequence[bytes]], bytes],
    ) -> bytes:
        """Return the joined results of all partitions.

        Raises
        ------
        StorageError
            A query fails; or the executors lack privinf or pyarrow, or have a very different version of it.
        NotAvailableError
            The executors have another version of privinf.
        """
        from privinf.version import __version__

        task = _task(work, list(columns), __version__)
        chosen = self._chosen(columns)
        rows = guarded_read(self.name, lambda: chosen.mapInArrow(task, "result binary").collect())
        results = list[bytes]()
        for (message,) in rows:
            if message[:1] == VERSION:
                raise NotAvailableError(
                    f"the executors of Spark have privinf {bytes(message[1:]).decode()}, and this process "
                    f"has {__version__}: install the same version"
                )
            results.append(bytes(message[1:]))
            if len(results) == FAN:
                results = [join(results)]
        return join(results)

    def _chosen(self, columns: Sequence[str]) -> Any:
        """Return a DataFrame of some columns."""
        quoted = ["`" + name.replace("`", "``") + "`" for name in columns]
        return guarded_read(self.name, lambda: self._frame.select(*quoted))


# ---- in an executor. Spark pickles these functions within functions by value, whatever is installed there.


def _packer() -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Return a function that packs each Arrow batch into one binary value."""

    def pack(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow

        for batch in batches:
            buffer = pyarrow.BufferOutputStream()
            with pyarrow.ipc.new_stream(buffer, batch.schema) as stream:
                stream.write_batch(batch)
            packed = pyarrow.array([buffer.getvalue().to_pybytes()], pyarrow.binary())
            yield pyarrow.RecordBatch.from_arrays([packed], ["batch"])

    return pack


def _task(
    work: Callable[[Callable[[], Source]], bytes], columns: list[str], version: str
) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Return a function that does the work on the rows of a partition, or returns its version."""
    result = RESULT
    other = VERSION
    name = f"a partition of {SPARK_FRAME}"

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow

        from privinf.version import __version__

        if __version__ != version:
            message = other + __version__.encode()
        else:
            from functools import partial

            from privinf.mechanisms.arrow import ArrowPart

            message = result + work(partial(ArrowPart, name, batches, columns))
        yield pyarrow.RecordBatch.from_arrays([pyarrow.array([message], pyarrow.binary())], ["result"])

    return run


# ---- what Spark must be


def _check_encryption(frame: Any) -> None:
    """Raise NotAvailableError if others could read the messages between Spark's processes."""
    context = guarded_read(SPARK_FRAME, lambda: frame.sparkSession.sparkContext)
    master = str(context.master)
    if master == "local" or master.startswith("local["):
        return
    options = context.getConf()

    def enabled(name: str) -> bool:
        return str(options.get(name, "false")).lower() == "true"

    encrypted = enabled("spark.network.crypto.enabled") or enabled("spark.ssl.rpc.enabled")
    if not (enabled("spark.authenticate") and encrypted):
        raise NotAvailableError(
            "the processes of Spark exchange sums without noise, and others could read their messages: set "
            "spark.authenticate=true and spark.network.crypto.enabled=true (or spark.ssl.rpc.enabled=true), "
            "or use master('local[*]')"
        )


def _check_repeatable(frame: Any) -> None:
    """Raise NotAvailableError for a query that can give other rows the next time."""

    def unstable() -> bool:
        execution = frame._jdf.queryExecution()
        plans = [execution.analyzed(), execution.optimizedPlan()]
        return any(not plan.deterministic() or _by_order(plan) for plan in plans)

    if guarded_read(SPARK_FRAME, unstable):
        raise NotAvailableError(
            f"the query of {SPARK_FRAME} can give other rows the next time, because of a random function, "
            "limit, offset or sample, or of rows that are dropped as duplicates: write it to Parquet, and "
            "pass the DataFrame that reads the file, or its path"
        )


def _by_order(plan: Any) -> bool:
    """Return whether a query, or one inside it, takes rows by their order."""
    name = plan.nodeName()
    if name in BY_ORDER or (name == "Deduplicate" and plan.keys().size() < plan.output().size()):
        return True
    if any(_calls_by_order(expression) for expression in _items(plan.expressions())):
        return True
    return any(map(_by_order, _items(plan.children())))


def _calls_by_order(expression: Any) -> bool:
    """Return whether an expression has a function of several rows that depends on their order."""
    return expression.prettyName() in BY_ORDER_FUNCTIONS or any(
        map(_calls_by_order, _items(expression.children()))
    )


def _items(sequence: Any) -> Iterator[Any]:
    """Yield the items of a sequence of Scala."""
    return (sequence.apply(at) for at in range(sequence.size()))
