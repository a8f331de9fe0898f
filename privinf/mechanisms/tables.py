"""Tables of other libraries as sources: frames, Arrow tables, data sets and streams, and queries, in blocks.

Libraries are known by the names of their modules: none is imported that the caller has not imported already.
A library's error about a failed read can quote rows, and is dropped.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from os import PathLike
from typing import Any, TypeVar, cast

import pandas as pd

from privinf.errors import NotAvailableError, PrivinfError, SchemaError, StorageError
from privinf.mechanisms import sources
from privinf.mechanisms.files import file_source
from privinf.mechanisms.sources import FrameSource, Source, Types, are_paths
from privinf.schema.reading import as_frame
from privinf.typing import Table

R = TypeVar("R")

ONCE = (
    "{} can be read only once, but this method reads the rows several times: write them to "
    "a Parquet file and pass its path, or pass privinf.open_rows(data, spool=True)"
)
ORDERED = (
    ". Only the first way works for {}, which depends on the order of the rows: a stream has no fixed order"
)
NEEDS_ARROW = "{} need pyarrow: install privinf[parquet], or pass a pandas DataFrame"


class ArrowSource(Source):
    """A table that yields Arrow batches of columns on every request.

    Parameters
    ----------
    name : str
    columns : iterable of str
    batches : callable (columns) -> iterable of RecordBatch
    ordered : bool
    rows : int, optional
        Where the number of rows is known without reading.
    """

    __slots__ = ("_batches", "_rows", "columns", "name", "ordered")

    def __init__(
        self,
        name: str,
        columns: Iterable[Any],
        batches: Callable[[list[str]], Iterable[Any]],
        *,
        ordered: bool,
        rows: int | None = None,
    ) -> None:
        self.name: str = name
        self.columns: Sequence[str] = string_names(columns)
        self.ordered = ordered
        self._batches = batches
        self._rows = rows

    def read(self, columns: Sequence[str], types: Types) -> Iterator[pd.DataFrame]:
        """Yield blocks of rows; StorageError if the library fails."""
        return frames_of(self.name, self.batches(columns), list(columns))

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """Yield Arrow batches as the library gives them."""
        return drawn(self.name, lambda: iter(self._batches(list(columns))))

    def known(self) -> int | None:
        """Return the number of rows, where it is known without reading."""
        return self._rows

    def state(self) -> object:
        """Return the number of rows, where it is known without reading."""
        return self._rows


class StreamSource(Source):
    """Batches that can be read once; whatever makes them decides on their order."""

    __slots__ = ("_reader", "columns", "name")

    ordered = False
    repeatable = False

    def __init__(self, reader: object, name: str) -> None:
        self._reader = cast(Any, reader)
        self.name: str = name
        self.columns: Sequence[str] = string_names(self._reader.schema.names)

    def read(self, columns: Sequence[str], types: Types) -> Iterator[pd.DataFrame]:
        """Yield blocks of rows, once; NotAvailableError afterwards."""
        return frames_of(self.name, self.batches(columns), list(columns))

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """Yield Arrow batches, once; NotAvailableError afterwards."""
        if self._reader is None:
            raise read_once(self.name)
        reader = self._reader
        self._reader = None
        return drawn(self.name, lambda: iter(reader))

    def state(self) -> object:
        """Return None: nothing of it is seen before it is read."""
        return None


def read_once(name: str, by_places: str = "") -> NotAvailableError:
    """Return the error of a stream that is read again, possibly by code that uses the places of rows."""
    return NotAvailableError(ONCE.format(name) + (ORDERED.format(by_places) if by_places else ""))


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


def string_names(columns: Iterable[Any]) -> list[str]:
    """Return names of columns; SchemaError unless all are strings."""
    names = list(columns)
    if any(not isinstance(name, str) for name in names):
        raise SchemaError("all column names must be strings")
    return names


# ---- Arrow


def _arrow(name: str) -> Any:
    try:
        import pyarrow
    except ImportError:
        raise NotAvailableError(NEEDS_ARROW.format(name)) from None
    return pyarrow


def _arrow_stream(data: Any) -> Any:
    arrow = _arrow("Arrow streams")
    return guarded_read("the stream", lambda: arrow.RecordBatchReader.from_stream(data))


def drawn(name: str, start: Callable[[], Iterator[R]]) -> Iterator[R]:
    """Yield the items of a library's iterator; StorageError, without its text, if it fails."""
    items = guarded_read(name, start)
    while (item := guarded_read(name, lambda: next(items, None))) is not None:
        yield item


def frames_of(name: str, batches: Iterator[Any], columns: list[str]) -> Iterator[pd.DataFrame]:
    """Yield frames of `sources.ROWS` rows, the last one shorter, of Arrow batches of any size."""
    arrow = _arrow("tables of other libraries")
    pending = list[Any]()
    rows = 0
    for batch in batches:
        pending.append(batch.select(columns))
        if pending[-1].schema != pending[0].schema:
            raise SchemaError(
                f"{name} has a column of one type at first and of another type in a later part: convert "
                "the column to one type"
            )
        rows += batch.num_rows
        if rows >= sources.ROWS:
            table = arrow.Table.from_batches(pending)
            for start in range(0, rows - sources.ROWS + 1, sources.ROWS):
                yield _frame(name, table.slice(start, sources.ROWS))
            rest = table.slice(rows - rows % sources.ROWS)
            pending = rest.to_batches()
            rows = rest.num_rows
    if rows:
        yield _frame(name, arrow.Table.from_batches(pending))


def _frame(name: str, table: Any) -> pd.DataFrame:
    frame: pd.DataFrame = guarded_read(name, lambda: table.to_pandas(ignore_metadata=True))
    return frame


def guarded_read(name: str, parse: Callable[[], R]) -> R:
    """Return ``parse()``; errors of libraries may quote values of rows, and so may their warnings."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return parse()
    except (PrivinfError, MemoryError):
        raise
    except Exception:  # of any library, and of the database or the file behind it
        pass
    raise StorageError(
        f"{name} could not be read completely. The reason is not shown, because it can contain values of "
        "rows; to see it, read the table without privinf"
    )
