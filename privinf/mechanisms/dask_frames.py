"""Dask frames as tables, and the clusters that may compute un-noised values of them.

A cluster must protect the traffic between its processes: all of it on this machine's loopback, or under
mutual TLS, and without a dashboard, whose pages show tasks and logs.
"""

from __future__ import annotations

import ipaddress
import sys
from collections.abc import Iterator, Sequence
from typing import Any, cast

import pandas as pd

from privinf.errors import NotAvailableError, PrivinfError, StorageError
from privinf.mechanisms.sources import Source, Types, frame_blocks

NAME = "the dask frame"
OPEN_CLUSTER = (
    "{}, and the processes of the cluster exchange sums without noise. Use "
    "LocalCluster(dashboard_address=None, worker_dashboard_address=None), or a cluster "
    "with mutual TLS (dask Security) and without a dashboard"
)


class DaskSource(Source):
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

    name = NAME
    ordered = False
    spreads = True

    def __init__(self, frame: object, columns: Sequence[str]) -> None:
        self._frame = cast(Any, frame)
        self.columns: Sequence[str] = columns

    def read(self, columns: Sequence[str], types: Types) -> Iterator[pd.DataFrame]:
        """Yield blocks of rows, partition by partition."""
        for part in self.partitions(columns):
            yield from frame_blocks(computed(part), columns)

    def partitions(self, columns: Sequence[str]) -> list[Any]:
        """Return the partitions of some columns, to be computed."""
        return list(self._frame[list(columns)].to_delayed())

    def count(self) -> int:
        """Return the number of rows, counted where they are."""
        import dask

        parts = map(dask.delayed(len), self.partitions(self.columns[:1]))
        return int(computed(dask.delayed(sum)(list(parts))))

    def state(self) -> object:
        """Return None: nothing of it is seen before it is read."""
        return None


# ---- clusters


def computed(delayed: object) -> Any:
    """Return the result of a task: of the cluster whose client this process has, or of this process."""
    client = _client()
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
        f"{NAME} could not be read completely ({kind}): a worker died, or a partition failed, "
        "for example because a column is missing. The reason is not shown, because it can "
        "contain values of rows; to see it, compute the frame without privinf"
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
