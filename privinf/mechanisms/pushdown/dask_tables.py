"""dask frames, and Parquet files that the workers of a dask cluster read.

The cluster may compute un-noised values. It must protect the traffic between its processes: all of it on this
machine's loopback, or under mutual TLS, and without a dashboard, whose pages show tasks and logs.
"""

from __future__ import annotations

import ipaddress
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import pandas as pd

from privinf.errors import (
    AlignmentError,
    ArgumentError,
    NotAvailableError,
    PrivinfError,
    SchemaError,
    StorageError,
)
from privinf.mechanisms import sources
from privinf.mechanisms.files import FilesSource, ParquetSource, file_source, row_group_batches, row_groups
from privinf.mechanisms.sources import Source, SpreadSource, Types, frame_blocks
from privinf.schema.reading import kind_of

FAN = 8  # partial results that one task joins
DASK_FRAME = "the dask frame"
PART_ROWS = 1 << 18  # rows, at least, of the row groups that one task reads, where a file has so many
OPEN_CLUSTER = (
    "{}, and the processes of the cluster exchange sums without noise. Use "
    "LocalCluster(dashboard_address=None, worker_dashboard_address=None), or a cluster "
    "with mutual TLS (dask Security) and without a dashboard"
)


class FramePart(Source):
    """A data frame that is one part of a table."""

    __slots__ = ("_frame", "columns", "name")

    ordered = False
    whole = False

    def __init__(self, frame: pd.DataFrame, name: str) -> None:
        self._frame = frame
        self.name: str = name
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

    def part_kinds(self, columns: Sequence[str]) -> dict[str, str]:
        """Return the kinds of columns, of a frame with rows."""
        return {name: kind_of(self._frame[name]) for name in columns} if len(self._frame) else {}


def _frame_part(frame: object) -> FramePart:
    if not isinstance(frame, pd.DataFrame):
        raise SchemaError(f"a partition of {DASK_FRAME} is not a data frame")
    return FramePart(frame, f"a partition of {DASK_FRAME}")


def _on_frame(work: Callable[[Callable[[], Source]], bytes], frame: object) -> bytes:
    return work(partial(_frame_part, frame))


def _joined_in_tasks(
    parts: Sequence[Any], join: Callable[[Sequence[bytes]], bytes], table: str, client: Any = None
) -> bytes:
    """Return the joined results of delayed parts: `FAN` of them a task, as a tree."""
    import dask

    delayed_join = dask.delayed(join, pure=False)
    results = list(parts)
    while len(results) > 1:
        results = [delayed_join(results[start : start + FAN]) for start in range(0, len(results), FAN)]
    total: bytes = computed(results[0], table, client)
    return total


class DaskSource(SpreadSource):
    """A dask frame, whose sums are made where its partitions are.

    Parameters
    ----------
    frame : dask.dataframe.DataFrame
    columns : sequence of str

    Notes
    -----
    **Privacy.** What needs rows gets one partition after the other in the holder's process; sums of rows
    leave a worker un-noised, and go to the holder's process alone.
    """

    __slots__ = ("_frame", "columns")

    name = DASK_FRAME
    ordered = False

    def __init__(self, frame: object, columns: Sequence[str]) -> None:
        self._frame = cast(Any, frame)
        self.columns: Sequence[str] = columns

    def read(self, columns: Sequence[str], types: Types) -> Iterator[pd.DataFrame]:
        """Yield blocks of rows, partition by partition."""
        for part in self.partitions(columns):
            yield from frame_blocks(computed(part, self.name), columns)

    def partitions(self, columns: Sequence[str]) -> list[Any]:
        """Return the partitions of some columns, to be computed."""
        return list(self._frame[list(columns)].to_delayed())

    def count(self) -> int:
        """Return the number of rows, counted where they are."""
        import dask

        parts = map(dask.delayed(len), self.partitions(self.columns[:1]))
        return int(computed(dask.delayed(sum)(list(parts)), self.name))

    def state(self) -> object:
        """Return None: nothing of it is seen before it is read."""
        return None

    def gathered(
        self,
        columns: Sequence[str],
        work: Callable[[Callable[[], Source]], bytes],
        join: Callable[[Sequence[bytes]], bytes],
    ) -> bytes:
        """Return the joined results of all partitions; StorageError if one fails, or a worker dies."""
        import dask

        shared_work = dask.delayed(work, pure=False, traverse=False)
        on_frame = dask.delayed(_on_frame, pure=False)
        parts = [on_frame(shared_work, part) for part in self.partitions(columns)]
        return _joined_in_tasks(parts, join, self.name)


# ---- Parquet files that workers read


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ParquetPart(Source):
    """Some row groups of a Parquet file, opened where a worker is.

    Attributes
    ----------
    file : ParquetSource
    groups : tuple of int
    rows : int
    """

    file: ParquetSource
    groups: tuple[int, ...]
    rows: int

    ordered = False
    whole = False

    @property
    def name(self) -> str:
        """Name of the file."""
        return self.file.name

    @property
    def columns(self) -> Sequence[str]:
        """Names of its columns."""
        return self.file.columns

    def read(self, columns: Sequence[str], types: Types) -> Iterator[pd.DataFrame]:
        """Yield blocks of rows."""
        for batch in self.batches(columns):
            yield batch.to_pandas(ignore_metadata=True)

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """Yield Arrow batches."""
        return row_group_batches(self.file, columns, self.groups)

    def known(self) -> int:
        """Return the number of rows, which the file states."""
        return self.rows

    def state(self) -> object:
        """Return size and time of the last change of the file."""
        return self.file.state()

    def part_kinds(self, columns: Sequence[str]) -> dict[str, str]:
        """Return the kinds of columns by their first rows."""
        first = next(self.read(columns, "guessed"), None)
        return {} if first is None else {name: kind_of(first[name]) for name in columns}


def _parquet_part(path: Path, groups: tuple[int, ...], rows: int, state: object) -> ParquetPart:
    """Return some row groups; AlignmentError if the worker sees another file than the holder's process."""
    file = ParquetSource(path)
    if file.state() != state:
        raise AlignmentError(
            f"a worker of the dask cluster finds {file.name} with another size or time of change than this "
            "process: start again when nobody writes to the file, on a folder that all workers share"
        )
    return ParquetPart(file=file, groups=groups, rows=rows)


def _on_row_groups(work: Callable[[Callable[[], Source]], bytes], *part: Any) -> bytes:
    return work(partial(_parquet_part, *part))


class ClusterFiles(SpreadSource):
    """Parquet files, of which the workers of a dask cluster read the row groups that they sum.

    Parameters
    ----------
    files : ParquetSource or FilesSource
    client : distributed.Client

    Notes
    -----
    **Privacy.** As `DaskSource`. What needs rows reads the files in the holder's process.
    """

    __slots__ = ("_client", "_files")

    def __init__(self, files: ParquetSource | FilesSource, client: object) -> None:
        self._files = files
        self._client = client

    @property
    def name(self) -> str:
        """Name of the file or the folder."""
        return self._files.name

    @property
    def columns(self) -> Sequence[str]:
        """Names of the columns."""
        return self._files.columns

    def read(self, columns: Sequence[str], types: Types) -> Iterator[pd.DataFrame]:
        """Yield blocks of rows, in this process."""
        return self._files.read(columns, types)

    def batches(self, columns: Sequence[str]) -> Iterator[Any] | None:
        """Return Arrow batches, in this process."""
        return self._files.batches(columns)

    def known(self) -> int:
        """Return the number of rows, which the files state."""
        return sum(file.known() or 0 for file in self._single_files())

    def state(self) -> object:
        """Return name, size and time of the last change of each file."""
        return self._files.state()

    def _single_files(self) -> Sequence[ParquetSource]:
        files = self._files.files if isinstance(self._files, FilesSource) else (self._files,)
        return cast("Sequence[ParquetSource]", files)

    def gathered(
        self,
        columns: Sequence[str],
        work: Callable[[Callable[[], Source]], bytes],
        join: Callable[[Sequence[bytes]], bytes],
    ) -> bytes:
        """Return the joined results of all row groups; StorageError if one fails, or a worker dies."""
        import dask

        before = self.state()
        shared_work = dask.delayed(work, pure=False, traverse=False)
        on_row_groups = dask.delayed(_on_row_groups, pure=False, traverse=False)
        parts = []
        for file in self._single_files():
            sources.require_columns(file, columns)
            state = file.state()
            for groups, rows in row_groups(file, PART_ROWS):
                parts.append(on_row_groups(shared_work, file.path, groups, rows, state))
        if not parts:
            raise sources.no_rows(self.name)
        total = _joined_in_tasks(parts, join, self.name, self._client)
        if self.state() != before:
            raise AlignmentError(
                f"{self.name} was changed while it was read: start again with a table that nobody writes to"
            )
        return total


def cluster_files(data: object, client: object) -> ClusterFiles:
    """Return Parquet files that the workers of a client read.

    Raises
    ------
    ArgumentError
        The data are not Parquet files, or the client is not one of dask's.
    StorageError
        There is no such file.
    """
    if type(client).__module__.partition(".")[0] != "distributed" or getattr(client, "asynchronous", True):
        raise ArgumentError("client= must be a dask.distributed.Client that is not asynchronous")
    source = data if isinstance(data, Source) else file_source(data)
    files = source.files if isinstance(source, FilesSource) else (source,)
    if not isinstance(files[0], ParquetSource):
        raise ArgumentError(
            "client= needs Parquet files, whose row groups the workers read: pass the path of a Parquet "
            "file, the path of a folder, or a list of paths"
        )
    return ClusterFiles(cast("ParquetSource | FilesSource", source), client)


# ---- tasks, and the cluster that runs them


def computed(delayed: object, table: str, chosen: Any = None) -> Any:
    """Return the result of a task: of the cluster of a client, or of this process if it has none."""
    client = _client() if chosen is None else chosen
    kind = ""
    task = cast(Any, delayed)
    if client is not None:
        _check_cluster(client)
    try:
        return task.compute(scheduler="synchronous") if client is None else client.compute(task).result()
    except (PrivinfError, MemoryError):
        raise
    except Exception as problem:  # of the tasks that make a partition, or of dask: it can quote rows
        kind = type(problem).__name__
    raise StorageError(
        f"{table} could not be read completely ({kind}): a worker died, or a partition failed, "
        "for example because a column is missing. The reason is not shown, because it can "
        "contain values of rows; to see it, read the table with dask alone"
    )


def _client() -> Any:
    """Return the client of this process, if it has one."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return None
    try:
        return distributed.Client.current(allow_global=True)
    except ValueError:
        return None


def _check_cluster(client: Any) -> None:
    """Raise NotAvailableError for a cluster whose messages or pages others could read."""
    try:
        info = client.scheduler_info(n_workers=-1)
        pages = [client.run_on_scheduler(_page), *client.run(_page).values()]
    except Exception as problem:
        kind = type(problem).__name__
    else:
        for address in (info["address"], *info["workers"]):
            if not _closed(address):
                raise NotAvailableError(
                    OPEN_CLUSTER.format("other computers can reach a process of the dask cluster without TLS")
                )
        if any(exposed or not _loopback(host) for host, exposed in pages):
            raise NotAvailableError(
                OPEN_CLUSTER.format(
                    "other accounts or computers can open a web page (dashboard) of the dask cluster"
                )
            )
        return
    raise StorageError(
        f"the addresses of the dask cluster could not be read ({kind}): install privinf on all "
        "workers and on the scheduler"
    )


def _closed(address: str) -> bool:
    """Return whether messages to a process stay on this machine, or go by TLS, which dask makes mutual."""
    kind, _, rest = address.partition("://")
    return kind in ("tls", "inproc") or (kind == "tcp" and _loopback(rest.rpartition(":")[0]))


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def _page(dask_scheduler: Any = None, dask_worker: Any = None) -> tuple[str, bool]:
    """Return where a process of the cluster has its page, and whether there is a dashboard."""
    node = dask_scheduler or dask_worker
    return str(node.http_server.address), bool(node.http_application.applications)
