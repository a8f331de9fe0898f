"""Tables of other libraries as sources: frames, Arrow tables, data sets and streams, and queries, in blocks.

Libraries are known by the names of their modules: none is imported that the caller has not imported already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from os import PathLike
from typing import Any

import pandas as pd

from privinf.mechanisms import sources
from privinf.mechanisms.arrow import ArrowSource, StreamSource, arrow_library, guarded_read, string_names
from privinf.mechanisms.files import file_source
from privinf.mechanisms.sources import FrameSource, Source, are_paths
from privinf.schema.reading import as_frame
from privinf.typing import Table


def source_of(data: Table) -> Source:
    """Return the source of any table.

    Parameters
    ----------
    data : table
        A pandas DataFrame; a mapping of columns; a polars DataFrame or LazyFrame; a pyarrow Table,
        RecordBatch, Dataset or RecordBatchReader; the path of a CSV or Parquet file, or of a folder of
        such; a list of paths of such files, or a pattern (``"years/*.parquet"``); a DuckDB relation; an
        ibis table; a dask or a Spark DataFrame; anything with ``__arrow_c_stream__`` or ``to_pandas``.

    Raises
    ------
    SchemaError
        The object is not a table with named columns.
    StorageError
        The file does not exist, or its type is not supported.
    NotAvailableError
        pyarrow is needed and not installed.
    """
    if isinstance(data, Source):
        return data
    if isinstance(data, pd.DataFrame):
        return FrameSource(data)
    if isinstance(data, (str, PathLike)) or are_paths(data):
        return file_source(data)
    if isinstance(data, Mapping):
        return FrameSource(as_frame(data), "the mapping")
    kind = type(data)
    if (maker := _maker(kind)) is not None:
        return maker(data)
    if hasattr(kind, "to_pandas") and hasattr(kind, "__len__"):
        return FrameSource(as_frame(data), "the table")
    if hasattr(kind, "__arrow_c_stream__"):
        return StreamSource(_arrow_stream(data), "the stream")
    return FrameSource(as_frame(data), "the table", ordered=False)


# ---- libraries


def _maker(kind: type) -> Callable[[Any], Source] | None:
    """Return the constructor of the source of a known library's table; None for all others."""
    names = ((base.__module__.partition(".")[0].lstrip("_"), base.__name__) for base in kind.__mro__)
    return next((_MAKERS[name] for name in names if name in _MAKERS), None)


def _polars_frame(data: Any) -> Source:
    def batches(columns: list[str]) -> Iterable[Any]:
        return data.select(columns).to_arrow().to_batches()  # type: ignore[no-any-return]

    return ArrowSource("the DataFrame", data.columns, batches, ordered=True, rows=data.height)


def _polars_lazy(data: Any) -> Source:
    def batches(columns: list[str]) -> Iterator[Any]:
        chosen = data.select(columns)
        if hasattr(chosen, "collect_batches"):
            parts = chosen.collect_batches(chunk_size=sources.ROWS, maintain_order=True)
        else:
            parts = [chosen.collect()]
        for part in parts:
            yield from part.rechunk().to_arrow().to_batches()

    names = guarded_read("the LazyFrame", lambda: list(data.collect_schema().names()))
    return ArrowSource("the LazyFrame", names, batches, ordered=False)


def _arrow_table(data: Any) -> Source:
    def batches(columns: list[str]) -> Iterable[Any]:
        chosen = data.select(columns)
        return chosen.to_batches() if hasattr(chosen, "to_batches") else [chosen]

    return ArrowSource("the table", data.schema.names, batches, ordered=True, rows=data.num_rows)


def _arrow_dataset(data: Any) -> Source:
    def batches(columns: list[str]) -> Iterable[Any]:
        return data.to_batches(  # type: ignore[no-any-return]
            columns=columns, batch_size=sources.ROWS, batch_readahead=4, fragment_readahead=1
        )

    return ArrowSource("the dataset", data.schema.names, batches, ordered=True)


def _duckdb(data: Any) -> Source:
    def batches(columns: list[str]) -> Iterable[Any]:
        quoted = ", ".join('"' + name.replace('"', '""') + '"' for name in columns)
        chosen = data.project(quoted)
        reader = getattr(chosen, "to_arrow_reader", None) or chosen.fetch_record_batch
        return reader(sources.ROWS)  # type: ignore[no-any-return]

    return ArrowSource("the DuckDB relation", data.columns, batches, ordered=False)


def _ibis(data: Any) -> Source:
    def batches(columns: list[str]) -> Iterable[Any]:
        return data.select(*columns).to_pyarrow_batches(chunk_size=sources.ROWS)  # type: ignore[no-any-return]

    return ArrowSource("the ibis table", data.columns, batches, ordered=False)


def _dask(data: Any) -> Source:
    from privinf.mechanisms.pushdown.dask_tables import DaskSource

    return DaskSource(data, string_names(data.columns))


def _spark(data: Any) -> Source:
    from privinf.mechanisms.pushdown.spark_tables import SparkSource

    return SparkSource(data)


_MAKERS: dict[tuple[str, str], Callable[[Any], Source]] = {
    ("polars", "DataFrame"): _polars_frame,
    ("polars", "LazyFrame"): _polars_lazy,
    ("pyarrow", "Table"): _arrow_table,
    ("pyarrow", "RecordBatch"): _arrow_table,
    ("pyarrow", "Dataset"): _arrow_dataset,
    ("pyarrow", "RecordBatchReader"): lambda data: StreamSource(data, "the RecordBatchReader"),
    ("duckdb", "DuckDBPyRelation"): _duckdb,
    ("ibis", "Table"): _ibis,
    ("dask", "DataFrame"): _dask,
    ("pyspark", "DataFrame"): _spark,
}


def _arrow_stream(data: Any) -> Any:
    arrow = arrow_library("Arrow streams")
    return guarded_read("the stream", lambda: arrow.RecordBatchReader.from_stream(data))
